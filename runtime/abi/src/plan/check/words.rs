//! Counters, epochs and flags: words by which CTAs, launches and ranks tell each other that data is there.
//!
//! A kernel is proved for words that start at zero and that nobody else touches. Words that go on from launch to launch, an
//! epoch, what signals raise, and with them the memory of ranks, whose slots follow the epoch, belong together: every
//! launch that touches one of them is of one kernel and has all the others. Then each counts the launches before, on
//! every rank, since all ranks run the same nodes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::Checker;
use crate::Access;
use crate::plan::{BufferId, BufferRole, KernelKey, Node, NodeOp, ParamSpec, PlanCode, WordKind};

/// Who touches words first.
struct User<'p> {
    node: &'p str,
    words: Option<WordKind>,
}

/// A launch that goes on where others have stopped.
struct Launch<'p> {
    node: &'p str,
    kernel: &'p KernelKey,
    /// What it gets of words that go on and of memory of ranks.
    group: Vec<(&'p str, BufferId)>,
}

impl<'p> Checker<'p> {
    /// Words start at zero and are of one kind and one kernel.
    pub(super) fn words(&mut self) {
        let mut users: BTreeMap<BufferId, User<'p>> = BTreeMap::new();
        let mut launches: BTreeMap<BufferId, Launch<'p>> = BTreeMap::new();
        for node in &self.plan.nodes {
            match &node.op {
                NodeOp::Kernel { kernel, args } => {
                    let given = self.buffers_of(kernel, args);
                    for &(param, buffer) in &given {
                        self.kind(&mut users, node, buffer, param.words);
                        self.start(node, param, buffer);
                    }
                    let goes_on = |param: &ParamSpec| {
                        param.access == Access::Peer || param.words.is_some_and(WordKind::goes_on)
                    };
                    let mut group: Vec<(&'p str, BufferId)> = given
                        .iter()
                        .filter(|(param, _)| goes_on(param))
                        .map(|&(param, buffer)| (param.name.as_str(), buffer))
                        .collect();
                    group.sort_unstable();
                    for &(_, buffer) in &group {
                        let launch = Launch { node: &node.name, kernel, group: group.clone() };
                        self.goes_on(&mut launches, buffer, launch);
                    }
                }
                NodeOp::AllReduce { src, dst }
                | NodeOp::AllGather { src, dst, .. }
                | NodeOp::ReduceScatter { src, dst, .. } => {
                    self.kind(&mut users, node, *src, None);
                    self.kind(&mut users, node, *dst, None);
                }
                NodeOp::Copy { src, dst } => {
                    self.kind(&mut users, node, src.buffer, None);
                    self.kind(&mut users, node, dst.buffer, None);
                }
            }
        }
    }

    /// All who touch a buffer say the same of its words.
    fn kind(
        &mut self,
        users: &mut BTreeMap<BufferId, User<'p>>,
        node: &'p Node,
        buffer: BufferId,
        words: Option<WordKind>,
    ) {
        match users.entry(buffer) {
            Entry::Vacant(place) => {
                place.insert(User { node: &node.name, words });
            }
            Entry::Occupied(first) if first.get().words != words => {
                let first = first.get();
                let is = |words: Option<WordKind>| words.map_or("data", WordKind::name);
                let message = format!(
                    "`{}` is {} here and {} of `{}`; give each a buffer of its own",
                    self.buffer(buffer).name,
                    is(words),
                    is(first.words),
                    first.node
                );
                self.error(PlanCode::Words, &node.name, message);
            }
            Entry::Occupied(_) => {}
        }
    }

    /// Words are zero before the first launch, and the host does not write them.
    fn start(&mut self, node: &'p Node, param: &ParamSpec, buffer: BufferId) {
        let Some(words) = param.words else { return };
        let described = self.buffer(buffer);
        let (role, is_right) = match words {
            WordKind::Counter | WordKind::Raised | WordKind::Epoch => {
                ("State", described.role == BufferRole::State)
            }
            // Another role is no memory of ranks, which is said there.
            WordKind::Flag => return,
        };
        if !is_right {
            let message = format!(
                "`{}` is {} here, which starts at zero on every rank and keeps what launches leave: give it the role \
                 `{role}`",
                described.name,
                words.name()
            );
            self.error(PlanCode::Words, &node.name, message);
        }
    }

    /// All launches that touch a buffer of those that go on are of one kernel, with the same ones.
    fn goes_on(
        &mut self,
        launches: &mut BTreeMap<BufferId, Launch<'p>>,
        buffer: BufferId,
        launch: Launch<'p>,
    ) {
        let first = match launches.entry(buffer) {
            Entry::Vacant(place) => {
                place.insert(launch);
                return;
            }
            Entry::Occupied(first) => first.into_mut(),
        };
        let why = if first.kernel != launch.kernel {
            format!("{} here, {} there", launch.kernel, first.kernel)
        } else if first.group != launch.group {
            let differs = launch.group.iter().zip(&first.group).find(|(here, there)| here != there);
            let name = |id: BufferId| self.plan.buffers[id.index()].name.as_str();
            match differs {
                Some((here, there)) => {
                    format!("`{}` is `{}` here, `{}` there", here.0, name(here.1), name(there.1))
                }
                None => "other words go with it".to_owned(),
            }
        } else {
            return;
        };
        let message = format!(
            "`{}` goes on from launch to launch, and `{}` touches it too, but does not count with this one ({why}); give \
             each kernel words and memory of ranks of its own",
            self.buffer(buffer).name,
            first.node
        );
        self.error(PlanCode::Words, launch.node, message);
    }
}

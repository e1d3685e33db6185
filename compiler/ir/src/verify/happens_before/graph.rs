//! Events and the edges between them, and whether one comes before another.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use kernel_dsl::source::Span;
use petgraph::Direction;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;

/// Choices that a proof is split by, at most, one inside of another.
const MAX_SPLITS: u32 = 2;
/// Choices that are tried for that, the nearest first.
const MAX_TRIED: usize = 3;

/// Why one event comes before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edge {
    /// One statement follows another in one thread, or a copy or product starts at its statement.
    Then,
    /// Threads meet.
    Sync,
    /// CTAs of a cluster meet. The axes of the grid along which all CTAs are of one cluster.
    Cluster([bool; 3]),
    /// What arrives at an index of a barrier, and who waits for it.
    Round,
    /// A copy or product is complete where it is waited for.
    Settle,
    /// What a thread has stored is published for copies.
    Publish,
    /// A signal, and who awaits it. The axes of the grid along which CTAs share the word.
    Signal([bool; 3]),
    /// An arrival, and the CTA that is the last. The axes likewise.
    Last([bool; 3]),
    /// The end of a launch, and what waits for it.
    Launch,
}

impl Edge {
    pub(super) fn name(self) -> &'static str {
        match self {
            Edge::Then => "then",
            Edge::Sync => "sync",
            Edge::Cluster(_) => "sync cluster",
            Edge::Round => "barrier",
            Edge::Settle => "settle",
            Edge::Publish => "publish",
            Edge::Signal(_) => "signal",
            Edge::Last(_) => "arrive.last",
            Edge::Launch => "launch",
        }
    }

    /// True where CTAs that differ along these axes are in order by it.
    fn covers(self, apart: [bool; 3]) -> bool {
        match self {
            Edge::Signal(shared) | Edge::Last(shared) | Edge::Cluster(shared) => {
                shared.iter().zip(apart).all(|(&shared, needed)| shared || !needed)
            }
            Edge::Then | Edge::Sync | Edge::Round | Edge::Settle | Edge::Publish | Edge::Launch => {
                true
            }
        }
    }
}

/// A condition and how it came out there.
pub(super) type Arm = (usize, bool);

/// Something that happens.
#[derive(Debug, Clone)]
pub(super) struct Event {
    /// What, in words; nothing for a fork or a join of paths.
    pub(super) what: String,
    pub(super) span: Span,
    /// Who.
    pub(super) who: String,
    /// It happens where these conditions came out so.
    pub(super) under: Vec<Arm>,
}

/// The graph of one set of agents.
#[derive(Debug, Default)]
pub(super) struct Graph {
    pub(super) events: DiGraph<Event, Edge>,
    /// Conditions that are rounds of loops: a round comes, or nothing of it does.
    pub(super) rounds: BTreeSet<usize>,
}

/// The events of a path, and the edges between them.
pub(super) type Path = Vec<(Option<Edge>, NodeIndex)>;

impl Graph {
    pub(super) fn edge(&mut self, from: NodeIndex, to: NodeIndex, edge: Edge) {
        if from != to {
            self.events.update_edge(from, to, edge);
        }
    }

    /// The conditions that hold where an event happens: its own, and those of rounds that it has waited for.
    pub(super) fn implied(&self, of: NodeIndex) -> BTreeSet<Arm> {
        let mut assumed: BTreeSet<Arm> = self.events[of].under.iter().copied().collect();
        if self.rounds.is_empty() {
            return assumed;
        }
        let mut seen = BTreeSet::from([of]);
        let mut open = vec![of];
        let mut later: Vec<NodeIndex> = Vec::new();
        while let Some(at) = open.pop() {
            for edge in self.events.edges_directed(at, Direction::Incoming) {
                let source = edge.source();
                let under = &self.events[source].under;
                if *edge.weight() == Edge::Round {
                    let is_round = |arm: &&Arm| self.rounds.contains(&arm.0);
                    assumed.extend(under.iter().filter(is_round).copied());
                }
                if seen.contains(&source) {
                    continue;
                }
                if under.iter().all(|arm| assumed.contains(arm)) {
                    seen.insert(source);
                    open.push(source);
                } else {
                    later.push(source);
                }
            }
            if open.is_empty() {
                let (known, left): (Vec<_>, Vec<_>) = std::mem::take(&mut later)
                    .into_iter()
                    .partition(|at| self.events[*at].under.iter().all(|arm| assumed.contains(arm)));
                later = left;
                open.extend(known.into_iter().filter(|at| seen.insert(*at)));
            }
        }
        assumed
    }

    /// True where some choice has both of its arms in the graph.
    pub(super) fn has_choices(&self) -> bool {
        self.events.node_weights().flat_map(|event| &event.under).any(|(_, truth)| !truth)
    }

    /// What an event comes before, where these conditions came out so.
    pub(super) fn reached(
        &self,
        from: NodeIndex,
        assumed: &BTreeSet<Arm>,
        apart: [bool; 3],
    ) -> Vec<bool> {
        let mut seen = vec![false; self.events.node_count()];
        let mut open = vec![from];
        while let Some(at) = open.pop() {
            for edge in self.events.edges_directed(at, Direction::Outgoing) {
                let next = edge.target();
                let known = |arm: &Arm| assumed.contains(arm);
                let is_new = !seen[next.index()] && edge.weight().covers(apart);
                if is_new && self.events[next].under.iter().all(known) {
                    seen[next.index()] = true;
                    open.push(next);
                }
            }
        }
        seen
    }

    /// A path from one event to another that is there whenever both happen.
    pub(super) fn path(&self, from: NodeIndex, to: NodeIndex, apart: [bool; 3]) -> Option<Path> {
        let mut assumed = self.implied(from);
        assumed.extend(self.implied(to));
        self.path_where(from, to, apart, &assumed, MAX_SPLITS)
    }

    fn path_where(
        &self,
        from: NodeIndex,
        to: NodeIndex,
        apart: [bool; 3],
        assumed: &BTreeSet<Arm>,
        splits: u32,
    ) -> Option<Path> {
        let mut reached: BTreeMap<NodeIndex, Option<(Edge, NodeIndex)>> =
            BTreeMap::from([(from, None)]);
        let mut open = VecDeque::from([from]);
        let mut blocked: Vec<Arm> = Vec::new();
        while let Some(at) = open.pop_front() {
            if at == to {
                return Some(walked(&reached, to));
            }
            for edge in self.events.edges_directed(at, Direction::Outgoing) {
                let next = edge.target();
                if reached.contains_key(&next) || !edge.weight().covers(apart) {
                    continue;
                }
                let under = &self.events[next].under;
                match under.iter().find(|arm| !assumed.contains(arm)) {
                    None => {
                        reached.insert(next, Some((*edge.weight(), at)));
                        open.push_back(next);
                    }
                    Some(arm) if !blocked.contains(arm) => blocked.push(*arm),
                    Some(_) => {}
                }
            }
        }
        // What both arms order is in order: each has to show it for itself.
        let is_open = |choice: &usize| {
            !assumed.contains(&(*choice, true)) && !assumed.contains(&(*choice, false))
        };
        let left = splits.checked_sub(1)?;
        let both = blocked.iter().filter(|(_, truth)| *truth).map(|&(choice, _)| choice);
        let both = both.filter(|choice| blocked.contains(&(*choice, false)));
        both.filter(is_open).take(MAX_TRIED).find_map(|choice| {
            let with = |truth: bool| {
                let mut assumed = assumed.clone();
                assumed.insert((choice, truth));
                self.path_where(from, to, apart, &assumed, left)
            };
            with(false).and_then(|_| with(true))
        })
    }
}

fn walked(reached: &BTreeMap<NodeIndex, Option<(Edge, NodeIndex)>>, to: NodeIndex) -> Path {
    let mut path = Vec::new();
    let mut at = to;
    while let Some(Some((edge, before))) = reached.get(&at) {
        path.push((Some(*edge), at));
        at = *before;
    }
    path.push((None, at));
    path.reverse();
    path
}

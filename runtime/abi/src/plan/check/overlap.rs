//! Launches that may run side by side: a kernel that starts early begins while those before it may still run, and its
//! wait covers what the launch right before it had waited for.
//!
//! The nodes run on one stream in the order of the plan. What a node knows to have ended follows from the
//! node before it alone:
//!
//! * a kernel that starts early begins when all CTAs of the launch before have let it, or ended. So that one may still
//!   run, and so may all that may still run for it where it lets the next one begin;
//! * its wait returns when the launch before has ended; then all has ended of which that one knew it at its end;
//! * every other node begins when the one before it has ended, and knows what a wait would tell.
//!
//! A sum over the ranks in place, and a node that moves nothing, may be no launch at all, and order nothing.
//!
//! Of what earlier kernels have stored, asynchronous copies of a kernel that starts early read nothing without a fence, but
//! where a launch is between that begins when all before it have ended.
//!
//! Guaranteed: whatever a node touches before its wait is touched by no launch that may still run then, and whatever
//! it touches behind it by none that may still run there, where one of the two writes. A step begins when the one before
//! has ended; what a kernel touches early is held to the last launch of the step before all the same.

use std::collections::{BTreeMap, BTreeSet};

use super::{Checker, Touch};
use crate::plan::{BufferRole, NodeOp, Plan, PlanCode, Waits};

/// Which nodes may still run for which, by their places: those of the step before come first.
pub(super) struct Stream {
    nodes: usize,
    states: Vec<State>,
    /// The launch right before each.
    before: Vec<Option<usize>>,
}

/// What a node knows.
#[derive(Default, Clone)]
struct State {
    /// May still run before its wait.
    at_start: Running,
    /// May still run behind it.
    after_wait: Running,
    waits: Waits,
}

/// Launches that may still run, each with the one that is the reason.
type Running = BTreeMap<usize, Reason>;

/// Why nothing says that a launch has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// It is the one right before.
    RightBefore,
    /// This launch may end without a wait.
    NoWait(usize),
    /// This launch may let the next one begin before it waits.
    LaunchesFirst(usize),
}

impl State {
    /// What may still run when it has ended.
    fn at_end(&self, own: usize, nodes: usize) -> Running {
        if self.waits.may_not_wait {
            because(&self.at_start, Reason::NoWait(own), nodes)
        } else {
            self.after_wait.clone()
        }
    }

    /// What may still run when it lets the next one begin.
    fn at_launch(&self, own: usize, nodes: usize) -> Running {
        match self.waits {
            Waits { may_not_wait: true, .. } => because(&self.at_start, Reason::NoWait(own), nodes),
            Waits { may_launch_first: true, .. } => {
                because(&self.at_start, Reason::LaunchesFirst(own), nodes)
            }
            Waits { may_not_wait: false, may_launch_first: false } => self.after_wait.clone(),
        }
    }
}

/// The launches of this step among those, for a reason.
fn because(running: &Running, reason: Reason, nodes: usize) -> Running {
    running.keys().filter(|&&launch| launch >= nodes).map(|&launch| (launch, reason)).collect()
}

impl Stream {
    /// The stream of a plan. `early` says of each node whether it starts early, and how it waits then.
    fn of(plan: &Plan, early: impl Fn(usize) -> Option<Waits>) -> Stream {
        let nodes = plan.nodes.len();
        let mut stream =
            Stream { nodes, states: vec![State::default(); nodes], before: vec![None; nodes] };
        let mut last = (0..nodes).rev().find(|&node| is_launch(plan, node));
        for place in nodes..nodes * 2 {
            let (waits, before) = (early(place - nodes), last.map(|last| &stream.states[last]));
            let at_end = last
                .zip(before)
                .map_or_else(Running::new, |(last, before)| before.at_end(last, nodes));
            let mut state =
                State { at_start: at_end.clone(), after_wait: at_end, ..State::default() };
            if let (Some(waits), Some(last), Some(before)) = (waits, last, before) {
                let mut at_start = before.at_launch(last, nodes);
                state.after_wait.retain(|launch, _| at_start.contains_key(launch));
                at_start.insert(last, Reason::RightBefore);
                state = State { at_start, waits, ..state };
            }
            stream.states.push(state);
            stream.before.push(last);
            if is_launch(plan, place - nodes) {
                last = Some(place);
            }
        }
        stream
    }

    /// The last node of the step that may touch memory while a node of it still runs; the node itself where none may.
    fn runs_until(&self, touches_early: impl Fn(usize) -> bool) -> Vec<usize> {
        let mut until: Vec<usize> = (0..self.nodes).collect();
        for (node, state) in self.states.iter().skip(self.nodes).enumerate() {
            let running = if touches_early(node) { &state.at_start } else { &state.after_wait };
            for launch in running.keys().filter_map(|launch| launch.checked_sub(self.nodes)) {
                until[launch] = until[launch].max(node);
            }
        }
        until
    }
}

/// Whether a node is surely work of its own on a device.
fn is_launch(plan: &Plan, node: usize) -> bool {
    let has_elements = |buffer: super::BufferId| {
        plan.buffers[buffer.index()].elements().is_some_and(|elements| elements > 0)
    };
    match &plan.nodes[node].op {
        NodeOp::Kernel { .. } => true,
        NodeOp::AllReduce { src, dst } => src != dst && has_elements(*dst),
        NodeOp::AllGather { dst, .. } | NodeOp::ReduceScatter { dst, .. } => has_elements(*dst),
        NodeOp::Copy { dst, .. } => dst.len > 0,
    }
}

impl Checker<'_> {
    /// How a node waits, if it is a kernel that starts early.
    fn starts_early(&self, node: usize) -> Option<Waits> {
        match &self.plan.nodes[node].op {
            NodeOp::Kernel { kernel, .. } => {
                let signature = self.signatures.get(kernel)?;
                signature.starts_early.then_some(signature.waits)
            }
            NodeOp::AllReduce { .. }
            | NodeOp::AllGather { .. }
            | NodeOp::ReduceScatter { .. }
            | NodeOp::Copy { .. } => None,
        }
    }

    /// Judges every node against those that may still run for it. For each node, the last one of the step that may touch
    /// memory while it still runs.
    pub(super) fn overlap(&mut self, touches: &[Touch<'_>]) -> Vec<usize> {
        let stream = Stream::of(self.plan, |node| self.starts_early(node));
        let mut of_node: Vec<Vec<&Touch<'_>>> = vec![Vec::new(); self.plan.nodes.len()];
        for touch in touches {
            of_node[touch.node].push(touch);
        }
        for place in stream.nodes..stream.nodes * 2 {
            for touch in &of_node[place % stream.nodes] {
                let mut named = BTreeSet::new();
                self.against(&stream, &of_node, (place, touch, true), &mut named);
                self.against(&stream, &of_node, (place, touch, false), &mut named);
                if touch.unfenced {
                    self.unfenced(&stream, &of_node, place, touch);
                }
            }
        }
        let is_early = |touch: &&Touch<'_>| {
            touch.is_early() && self.buffer(touch.buffer).role == BufferRole::Step
        };
        stream.runs_until(|node| of_node[node].iter().any(is_early))
    }

    /// What threads have stored comes ahead of an asynchronous read of it behind a fence, or where a launch begins when all
    /// before it have ended.
    fn unfenced(
        &mut self,
        stream: &Stream,
        of_node: &[Vec<&Touch<'_>>],
        place: usize,
        touch: &Touch<'_>,
    ) {
        let mut at = place;
        while self.starts_early(at % stream.nodes).is_some() {
            let Some(before) = stream.before[at] else { return };
            let writes = |there: &&Touch<'_>| there.writes && there.meets(touch);
            if of_node[before % stream.nodes].iter().copied().any(|there| writes(&there)) {
                let message = format!(
                    "asynchronous copies read `{}` here, which `{}` has written, and no fence is between: none in {} comes \
                     after all before it; declare the parameter `input` and build the kernel anew, so that the compiler \
                     puts a fence behind its wait",
                    self.buffer(touch.buffer).name,
                    self.plan.nodes[before % stream.nodes].name,
                    self.path(stream, before, place).join(" -> ")
                );
                let node = self.plan.nodes[touch.node].name.clone();
                self.error(PlanCode::Proxy, &node, message);
                return;
            }
            at = before;
        }
    }

    /// What of a touch is before the wait, or behind it, against all launches that may still run then; each is named
    /// once.
    fn against(
        &mut self,
        stream: &Stream,
        of_node: &[Vec<&Touch<'_>>],
        (place, touch, early): (usize, &Touch<'_>, bool),
        named: &mut BTreeSet<usize>,
    ) {
        let state = &stream.states[place];
        let (running, reads, writes) = if early {
            (&state.at_start, touch.reads_early, touch.writes_early)
        } else {
            (&state.after_wait, touch.reads, touch.writes)
        };
        if !reads && !writes {
            return;
        }
        for (&other, &reason) in running.iter().rev() {
            let meets = |there: &&&Touch<'_>| there.meets(touch) && (writes || there.writes);
            let Some(there) = of_node[other % stream.nodes].iter().find(meets) else { continue };
            if named.insert(other % stream.nodes) {
                let found =
                    Found { place, other, reason, early, writes, there_writes: there.writes };
                self.overlapping(stream, touch, found);
            }
        }
    }

    fn overlapping(&mut self, stream: &Stream, touch: &Touch<'_>, found: Found) {
        let Found { place, other, reason, early, writes, there_writes } = found;
        let name = |place: usize| self.plan.nodes[place % stream.nodes].name.as_str();
        let buffer = &self.buffer(touch.buffer).name;
        let step = |place: usize| {
            if place < stream.nodes { " of the step before" } else { "" }
        };
        let of = format!("`{}`{}", name(other), step(other));
        let settled = touch.settled && stream.before[place] == Some(other) && there_writes;
        let (code, message) = if early && settled && !writes {
            let message = format!(
                "`{buffer}` is settled here, but {of}, the launch right before, which may still run, writes it; put a \
                 launch that does not write it between the two, or read it behind the wait"
            );
            (PlanCode::Settled, message)
        } else {
            let does = if writes { "written" } else { "read" };
            let did = if there_writes { "writes" } else { "reads" };
            let (code, when) = if early {
                (PlanCode::Early, "before the wait")
            } else {
                (PlanCode::Chain, "behind the wait, which does not cover it")
            };
            let why = match reason {
                Reason::RightBefore => {
                    "it is the launch right before; touch the buffer behind the wait".to_owned()
                }
                Reason::NoWait(through) => format!(
                    "`{}`{} may end without a wait, so its end says nothing of launches before it; let it wait on every \
                     path",
                    name(through),
                    step(through)
                ),
                Reason::LaunchesFirst(through) => format!(
                    "`{}`{} may let the next kernel begin before its own wait; put its `grid_launch` behind its \
                     `grid_wait`",
                    name(through),
                    step(through)
                ),
            };
            let path: Vec<String> = self.path(stream, other, place);
            let message = format!(
                "`{buffer}` is {does} {when}, and {of}, which may still run, {did} it: {} ({why})",
                path.join(" -> ")
            );
            (code, message)
        };
        let node = self.plan.nodes[touch.node].name.clone();
        self.error(code, &node, message);
    }

    /// The launches from one to another, at most the last few.
    fn path(&self, stream: &Stream, from: usize, to: usize) -> Vec<String> {
        let mut places = vec![to];
        let mut at = to;
        while let Some(before) = stream.before[at].filter(|&before| before >= from) {
            places.push(before);
            at = before;
        }
        let cut = places.len().saturating_sub(6);
        if cut > 0 {
            // The two ends matter most.
            places.drain(4..4 + cut);
        }
        let mut names: Vec<String> = places
            .iter()
            .map(|&place| format!("`{}`", self.plan.nodes[place % stream.nodes].name))
            .collect();
        if cut > 0 {
            names.insert(4, format!("{cut} more"));
        }
        names.reverse();
        names
    }
}

/// Two touches that nothing orders.
#[derive(Clone, Copy)]
struct Found {
    place: usize,
    other: usize,
    reason: Reason,
    early: bool,
    writes: bool,
    there_writes: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PlanBuilder;

    /// How far a launch is.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    enum At {
        Ahead,
        Started,
        Waited,
        Ended,
    }

    /// How far each launch is, and whether it has let the next one begin.
    type Moment = Vec<(At, bool)>;

    /// What can happen next, told from what a launch does and nothing else.
    fn next(kinds: &[Option<Waits>], now: &Moment) -> Vec<Moment> {
        let mut all = Vec::new();
        for (launch, &kind) in kinds.iter().enumerate() {
            let before = launch.checked_sub(1).map(|before| now[before]);
            let has_ended = before.is_none_or(|(at, _)| at == At::Ended);
            let lets = has_ended || before.is_some_and(|(_, lets)| lets);
            let waits = kind.unwrap_or_default();
            let (at, has_let) = now[launch];
            let mut to = |at, has_let| {
                let mut then = now.clone();
                then[launch] = (at, has_let);
                all.push(then);
            };
            match (at, kind) {
                (At::Ahead, Some(_)) if lets => to(At::Started, false),
                // What comes after all others knows at its start what a wait would tell.
                (At::Ahead, None) if has_ended => to(At::Waited, false),
                (At::Ahead | At::Ended, _) => {}
                (At::Started, _) => {
                    if has_ended {
                        to(At::Waited, has_let);
                    }
                    if waits.may_not_wait || waits.may_launch_first {
                        to(At::Started, true);
                    }
                    if waits.may_not_wait {
                        to(At::Ended, true);
                    }
                }
                (At::Waited, _) => {
                    to(At::Waited, true);
                    to(At::Ended, true);
                }
            }
        }
        all
    }

    /// For each launch, those that run at some moment at which it has not waited yet, and at which it has.
    fn running(kinds: &[Option<Waits>]) -> Vec<[BTreeSet<usize>; 2]> {
        let mut seen = BTreeSet::new();
        let mut open = vec![vec![(At::Ahead, false); kinds.len()]];
        while let Some(now) = open.pop() {
            if seen.insert(now.clone()) {
                open.extend(next(kinds, &now));
            }
        }
        let mut found = vec![[BTreeSet::new(), BTreeSet::new()]; kinds.len()];
        for now in &seen {
            let runs = |at: At| at == At::Started || at == At::Waited;
            for launch in (0..kinds.len()).filter(|&launch| runs(now[launch].0)) {
                let side = usize::from(now[launch].0 == At::Waited);
                let others = (0..launch).filter(|&other| runs(now[other].0));
                found[launch][side].extend(others);
            }
        }
        found
    }

    #[test]
    fn the_launches_that_may_run_are_those_of_all_orders_of_what_can_happen() {
        let waits = |may_not_wait, may_launch_first| Some(Waits { may_not_wait, may_launch_first });
        let all =
            [None, waits(false, false), waits(false, true), waits(true, false), waits(true, true)];
        let count = 5;
        for number in 0..all.len().pow(count) {
            let kind = |place: u32| all[number / all.len().pow(place) % all.len()];
            let kinds: Vec<Option<Waits>> = (0..count).map(kind).collect();
            let mut plan = PlanBuilder::new(1);
            for node in 0..count {
                plan.kernel(format!("{node}"), "k.tile", "k", &[]).add();
            }
            let stream = Stream::of(&plan.finish(), |node| kinds[node]);
            let nodes = stream.nodes;
            let own = |running: &Running| -> BTreeSet<usize> {
                running.keys().filter_map(|launch| launch.checked_sub(nodes)).collect()
            };
            let told: Vec<[BTreeSet<usize>; 2]> = stream.states[nodes..]
                .iter()
                .zip(&kinds)
                .map(|(state, kind)| {
                    let at_start = own(&state.at_start);
                    let early = if kind.is_some() { at_start } else { BTreeSet::new() };
                    [early, own(&state.after_wait)]
                })
                .collect();
            assert_eq!(told, running(&kinds), "{kinds:?}");
        }
    }
}

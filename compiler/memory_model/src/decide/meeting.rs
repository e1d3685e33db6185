//! Barriers: whom each waits for, whether all are passed, and what that orders.

use std::collections::BTreeMap;

use super::trace::{Action, Trace};
use crate::event::{FenceOrder, Scope};
use crate::litmus::{BarrierMode, Instruction, Test, Value, Word};

/// One barrier of one CTA at its n-th use by each thread, or one phase of the barrier of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Cta { gpu: u32, cta: u32, key: (Word, Option<Word>), use_: usize },
    Cluster { leader: usize, phase: usize },
}

/// A place in a combination of traces: thread and index.
pub(super) type At = (usize, usize);

/// Those that use one barrier.
#[derive(Debug, Default)]
struct Meeting {
    /// Who arrives.
    arrivals: Vec<At>,
    /// What the others see of an arrival, if anything: the arrival itself, or a fence before it.
    visible: Vec<Option<At>>,
    /// Who waits.
    waits: Vec<At>,
    /// How many arrivals open it; all when nothing is said.
    quorum: Option<usize>,
    /// Somebody whose arrival is waited for never arrives.
    is_short: bool,
}

/// The edges from arrivals to waits: one list for each choice of which arrivals open which barrier. No list when
/// a thread waits for ever; `None` when there are more choices than `limit`.
pub(super) fn choices(test: &Test, traces: &[&Trace], limit: usize) -> Option<Vec<Vec<(At, At)>>> {
    let meetings = collect(test, traces);
    let mut openings: Vec<Vec<Vec<usize>>> = Vec::new();
    let mut count_of_choices = 1_usize;
    for meeting in meetings.values() {
        let count = meeting.arrivals.len();
        if meeting.is_short && !meeting.waits.is_empty() {
            return Some(Vec::new());
        }
        match meeting.quorum {
            None => openings.push(vec![(0..count).collect()]),
            // Too few arrive.
            Some(quorum) if quorum > count && !meeting.waits.is_empty() => return Some(Vec::new()),
            // Fewer arrivals order less, so the smallest sets that open the barrier allow the most.
            Some(quorum) => openings.push(subsets(count, quorum.min(count))),
        }
        count_of_choices =
            count_of_choices.saturating_mul(openings.last().map_or(1, |sets| sets.len()));
        if count_of_choices > limit {
            return None;
        }
    }
    let mut found = Vec::new();
    let mut picked = vec![0; openings.len()];
    loop {
        let chosen: Vec<&Vec<usize>> =
            openings.iter().zip(&picked).map(|(sets, pick)| &sets[*pick]).collect();
        if all_pass(traces, &meetings, &chosen) {
            found.push(edges(&meetings, &chosen));
        }
        let Some(next) = (0..picked.len()).find(|at| picked[*at] + 1 < openings[*at].len()) else {
            return Some(found);
        };
        picked[next] += 1;
        picked[..next].fill(0);
    }
}

fn edges(meetings: &BTreeMap<Key, Meeting>, chosen: &[&Vec<usize>]) -> Vec<(At, At)> {
    let mut edges = Vec::new();
    for (meeting, set) in meetings.values().zip(chosen) {
        for arrival in *set {
            let Some(from) = meeting.visible[*arrival] else { continue };
            for to in &meeting.waits {
                if from != *to && meeting.arrivals[*arrival] != *to {
                    edges.push((from, *to));
                }
            }
        }
    }
    edges
}

/// All sets of `size` of the numbers below `count`, in order.
fn subsets(count: usize, size: usize) -> Vec<Vec<usize>> {
    let mut sets = Vec::new();
    let mut set: Vec<usize> = (0..size).collect();
    loop {
        sets.push(set.clone());
        let Some(at) = (0..size).rev().find(|at| set[*at] < count - size + at) else { return sets };
        set[at] += 1;
        for later in at + 1..size {
            set[later] = set[later - 1] + 1;
        }
    }
}

fn collect(test: &Test, traces: &[&Trace]) -> BTreeMap<Key, Meeting> {
    let mut meetings: BTreeMap<Key, Meeting> = BTreeMap::new();
    for (thread, trace) in traces.iter().enumerate() {
        let position = test.threads[thread].position;
        let mut uses: BTreeMap<(Word, Option<Word>), usize> = BTreeMap::new();
        let (mut arrived, mut waited) = (0, 0);
        let mut fence = None;
        for (index, done) in trace.done.iter().enumerate() {
            let at = (thread, index);
            match done.action {
                Action::Barrier { mode, key, quorum } => {
                    let use_ = uses.entry(key).or_default();
                    let key = Key::Cta { gpu: position.gpu, cta: position.cta, key, use_: *use_ };
                    *use_ += 1;
                    let meeting = meetings.entry(key).or_default();
                    meeting.arrivals.push(at);
                    meeting.visible.push(Some(at));
                    if mode == BarrierMode::Sync {
                        meeting.waits.push(at);
                    }
                    if let Some(quorum) = quorum {
                        let quorum = usize::try_from(quorum).unwrap_or(0);
                        meeting.quorum = Some(meeting.quorum.unwrap_or(0).max(quorum));
                    }
                }
                Action::ClusterArrive(releases) => {
                    let key = Key::Cluster { leader: leader(test, thread), phase: arrived };
                    arrived += 1;
                    let meeting = meetings.entry(key).or_default();
                    meeting.arrivals.push(at);
                    meeting.visible.push(if releases { Some(at) } else { fence });
                }
                Action::ClusterWait => {
                    let key = Key::Cluster { leader: leader(test, thread), phase: waited };
                    waited += 1;
                    meetings.entry(key).or_default().waits.push(at);
                }
                Action::Fence(order, scope) if releases_to_cluster(order, scope) => {
                    fence = Some(at);
                }
                Action::Fence(..)
                | Action::Read { .. }
                | Action::Write { .. }
                | Action::ProxyFence(_) => {}
            }
        }
    }
    for (key, meeting) in &mut meetings {
        meeting.is_short = (0..traces.len()).any(|thread| {
            !meeting.arrivals.iter().any(|(at, _)| *at == thread) && belongs(test, thread, key)
        });
    }
    meetings
}

fn releases_to_cluster(order: FenceOrder, scope: Scope) -> bool {
    order.releases() && scope >= Scope::Cluster
}

/// The first thread of the cluster of a thread.
fn leader(test: &Test, thread: usize) -> usize {
    let here = test.threads[thread].position;
    test.threads
        .iter()
        .position(|other| here.shares(other.position, Scope::Cluster))
        .unwrap_or(thread)
}

/// Whether a thread that did not arrive is waited for: the barrier stands in its program, and it took another
/// way. Only the first use counts, as nobody knows how often a thread that left a loop would have come back;
/// with a quorum, nobody is waited for by name.
fn belongs(test: &Test, thread: usize, key: &Key) -> bool {
    let position = test.threads[thread].position;
    let mut code = test.threads[thread].code.iter();
    match *key {
        Key::Cta { gpu, cta, key: (instance, resource), use_ } => {
            let is = |value: Value, wanted: Word| value == Value::Constant(wanted);
            use_ == 0
                && (position.gpu, position.cta) == (gpu, cta)
                && code.any(|line| {
                    let Instruction::Barrier(barrier) = line.instruction else { return false };
                    barrier.quorum.is_none()
                        && is(barrier.instance, instance)
                        && match (barrier.resource, resource) {
                            (None, None) => true,
                            (Some(value), Some(wanted)) => is(value, wanted),
                            (None, Some(_)) | (Some(_), None) => false,
                        }
                })
        }
        Key::Cluster { leader: first, phase } => {
            phase == 0
                && leader(test, thread) == first
                && code.any(|line| matches!(line.instruction, Instruction::ClusterArrive(_)))
        }
    }
}

/// Whether every thread gets to its end when barriers open for the chosen arrivals.
fn all_pass(traces: &[&Trace], meetings: &BTreeMap<Key, Meeting>, chosen: &[&Vec<usize>]) -> bool {
    if meetings.is_empty() {
        return true;
    }
    // Where each thread stands; everything before that is done, and at that it has arrived.
    let mut reached: Vec<usize> = vec![0; traces.len()];
    let opened = |reached: &[usize], at: At| {
        meetings.values().zip(chosen).all(|(meeting, set)| {
            !meeting.waits.contains(&at)
                || set.iter().all(|arrival| {
                    let (thread, index) = meeting.arrivals[*arrival];
                    reached[thread] >= index
                })
        })
    };
    loop {
        let mut moved = false;
        for (thread, trace) in traces.iter().enumerate() {
            while reached[thread] < trace.done.len() && opened(&reached, (thread, reached[thread]))
            {
                reached[thread] += 1;
                moved = true;
            }
        }
        if !moved {
            return reached.iter().zip(traces).all(|(at, trace)| *at == trace.done.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subsets_are_all_there() {
        assert_eq!(subsets(3, 2), [vec![0, 1], vec![0, 2], vec![1, 2]]);
        assert_eq!(subsets(2, 2), [vec![0, 1]]);
        assert_eq!(subsets(2, 0), [Vec::<usize>::new()]);
    }
}

//! Asynchronous stores that are told to others before they are complete.
//!
//! `cp.async.bulk.wait_group.read` waits until the source may be used again; what was stored is there only
//! behind `wait_group`. A thread that goes on to signal has told too early.

use std::collections::BTreeSet;

use super::some_threads;
use super::threads::{GLOBAL_START, Held, Threads};
use super::walk::{Step, Ways};
use crate::analysis::Facts;
use crate::kernel::Kernel;
use crate::traffic::{Arg, Event, Memory};

/// Groups behind that of the store that are told apart.
const MOST_GROUPS: i64 = 15;

/// A store and the signal that is ahead of its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Unfinished {
    pub(crate) store: u32,
    pub(crate) signal: u32,
    /// The wait for the source that stands between.
    pub(crate) wait: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Carried {
    /// Groups that were closed since the store, its own among them.
    groups: i64,
    /// The wait for the source.
    read: Option<u32>,
    waited: bool,
    /// A fence that orders what follows.
    fenced: bool,
    /// Other data was stored, for which the signal may be.
    other: bool,
}

/// Finds signals ahead of the end of asynchronous stores.
pub(crate) fn unfinished(kernel: &Kernel, facts: &Facts) -> Vec<Unfinished> {
    let events = &kernel.traffic.events;
    let outs: Vec<(u32, &[Arg])> = events
        .iter()
        .filter(|(node, _)| facts.live.contains(**node))
        .flat_map(|(&node, events)| {
            events.iter().filter_map(move |event| match event {
                Event::Out { addr } => Some((node, &addr[..])),
                _ => None,
            })
        })
        .collect();
    if outs.is_empty() {
        return Vec::new();
    }
    let ways = Ways::new(kernel, facts);
    let mut threads = Threads::new(kernel);
    // Where threads store data too, a signal without any wait may be for those.
    let stores_too = events.values().any(|events| {
        events
            .iter()
            .any(|event| matches!(event, Event::Write { memory, .. } if *memory != Memory::Shared))
            && !events.iter().any(|event| matches!(event, Event::Signal { .. }))
    });
    let mut found = BTreeSet::new();
    for (node, addr) in outs {
        for thread in some_threads(kernel) {
            if threads.runs(thread, node) == Some(false) {
                continue;
            }
            let to = threads.sum(thread, addr, node);
            if let Some((signal, wait)) =
                told(&ways, &mut threads, thread, node, to.as_ref(), stores_too)
            {
                found.insert(Unfinished { store: node, signal, wait });
            }
            break;
        }
    }
    found.into_iter().collect()
}

/// The first signal that the thread comes to ahead of the end of its store.
fn told(
    ways: &Ways<'_>,
    threads: &mut Threads<'_>,
    thread: u32,
    store: u32,
    to: Option<&Held>,
    stores_too: bool,
) -> Option<(u32, Option<u32>)> {
    let kernel = ways.kernel;
    let mut signal = None;
    let mut meets = BTreeSet::new();
    let start = Carried { groups: 0, read: None, waited: false, fenced: false, other: false };
    let tells =
        |threads: &mut Threads<'_>, node: u32, event: &Event, carried: &mut Carried| match event {
            Event::Fence => {
                carried.fenced = true;
                false
            }
            Event::Signal { release, strong, addr } => {
                let orders = *release || carried.fenced;
                // A plain store may be one of data.
                let is_flag = *strong
                    || threads
                        .sum(thread, addr, node)
                        .is_some_and(|at| to.is_some_and(|to| apart(&at, to)));
                let is_early = carried.read.is_some() || !carried.waited && !stores_too;
                orders && is_flag && is_early && !carried.other
            }
            _ => false,
        };
    ways.go(threads, thread, Some(store), start, |threads, node, mut carried| {
        if signal.is_some() {
            return Step::Stop;
        }
        let events = kernel.traffic.events.get(&node).map_or(&[][..], |list| list);
        let is_signal = events.iter().any(|event| matches!(event, Event::Signal { .. }));
        for event in events {
            match event {
                Event::Commit => carried.groups = (carried.groups + 1).min(MOST_GROUPS),
                Event::GroupWait { reads, left } => {
                    let covers = *left < carried.groups;
                    carried.waited = true;
                    if covers && !*reads {
                        return Step::Stop;
                    }
                    if covers {
                        carried.read = Some(node);
                    }
                }
                Event::Write { memory, .. } if *memory != Memory::Shared && !is_signal => {
                    carried.other = true;
                }
                Event::Meet { waits: true, .. } | Event::MeetWarp => {
                    meets.insert((
                        node,
                        carried.read,
                        carried.waited,
                        carried.fenced,
                        carried.other,
                    ));
                }
                // Another store of the kind has its own way.
                Event::Out { .. } if node == store => return Step::Stop,
                other if tells(threads, node, other, &mut carried) => {
                    signal = Some((node, carried.read));
                }
                _ => {}
            }
        }
        Step::Go(carried)
    });
    if signal.is_some() {
        return signal;
    }
    // Another thread signals behind a barrier.
    for (meet, read, waited, fenced, other) in meets {
        for other_thread in some_threads(kernel) {
            if other_thread == thread {
                continue;
            }
            let start = Carried { groups: 0, read, waited, fenced, other };
            ways.go(threads, other_thread, Some(meet), start, |threads, node, mut carried| {
                if signal.is_some() || node == store || node == meet {
                    return Step::Stop;
                }
                let events = kernel.traffic.events.get(&node).map_or(&[][..], |list| list);
                let is_signal = events.iter().any(|event| matches!(event, Event::Signal { .. }));
                for event in events {
                    match event {
                        Event::Write { memory, .. } if *memory != Memory::Shared && !is_signal => {
                            carried.other = true;
                        }
                        Event::Meet { .. } => return Step::Stop,
                        event if tells(threads, node, event, &mut carried) => {
                            signal = Some((node, carried.read));
                        }
                        _ => {}
                    }
                }
                Step::Go(carried)
            });
            if signal.is_some() {
                return signal;
            }
        }
    }
    None
}

/// Whether two addresses are surely of different buffers.
fn apart(a: &Held, b: &Held) -> bool {
    let buffer = |at: i64| at / GLOBAL_START;
    a.all.iter().all(|&a| b.all.iter().all(|&b| buffer(a) != buffer(b)))
}

//! What the asynchronous proxy reads of what threads have stored.
//!
//! Assumes the facts of a kernel of PTX. Looks at single threads of a CTA and at the first turn of loops:
//! a finding names a store of one thread and an asynchronous read of the same or of another one, at the
//! same address, with a way from the store to the read on which no fence of the proxy stands. Ways lead
//! from thread to thread through barriers. What has no known address is left alone.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use publish::unfinished;
use threads::{GLOBAL_START, Held, SHARED_END, Threads};
use walk::{Step, Ways};

use crate::analysis::Facts;
use crate::graph::NodeSet;
use crate::kernel::Kernel;
use crate::traffic::{Arg, Event, Memory, Place};

mod publish;
mod report;
mod threads;
mod walk;

pub(crate) use report::judge;

/// Bytes of a read whose size is not known.
const SOME_BYTES: i64 = 128;
/// Walks from a store to a read in one kernel at most.
const MOST_WALKS: usize = 4000;
/// Threads of a CTA at most.
const MOST_THREADS: u32 = 1024;

/// A store that an asynchronous read takes up without a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Unfenced {
    read: u32,
    write: u32,
    is_global: bool,
}

/// What was found, and whether all was looked at.
#[derive(Debug, Default)]
struct Found {
    unfenced: Vec<Unfenced>,
    /// Addresses of stores or reads are not known.
    is_partial: bool,
}

struct Read<'a> {
    node: u32,
    memory: Memory,
    place: &'a Place,
    bytes: Option<Arg>,
}

struct Write<'a> {
    node: u32,
    memory: Memory,
    addr: &'a [Arg],
    bytes: i64,
    later: bool,
}

/// Where a way of the writer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Carried {
    /// A copy of the thread has not arrived yet.
    later: bool,
    /// The first barrier on the way.
    met: Option<u32>,
}

/// Finds the reads that no fence covers.
fn unfenced(kernel: &Kernel, facts: &Facts) -> Found {
    let mut found = Found::default();
    let (reads, writes) = accesses(kernel, facts);
    if reads.is_empty() || writes.is_empty() {
        return found;
    }
    let mut look = Look::new(kernel, facts);
    let places: Vec<BTreeMap<u32, Held>> = reads.iter().map(|read| look.places(read)).collect();
    let mut reported = BTreeSet::new();
    for write in &writes {
        let fits = |read: &Read<'_>| write.memory == Memory::Generic || read.memory == write.memory;
        if !reads.iter().any(fits) {
            continue;
        }
        let writers = look.writers(write);
        for (read, places) in reads.iter().zip(&places) {
            if reported.contains(&read.node) || !fits(read) {
                continue;
            }
            found.is_partial |= places.is_empty();
            for (thread, at) in &writers {
                let Some(at) = at else {
                    found.is_partial = true;
                    continue;
                };
                if look.walks > MOST_WALKS {
                    found.is_partial = true;
                    return found;
                }
                if look.reaches(write, (*thread, at), read, places) {
                    reported.insert(read.node);
                    let is_global = read.memory == Memory::Global;
                    found.unfenced.push(Unfenced { read: read.node, write: write.node, is_global });
                    break;
                }
            }
        }
    }
    found
}

fn accesses<'a>(kernel: &'a Kernel, facts: &Facts) -> (Vec<Read<'a>>, Vec<Write<'a>>) {
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    for (&node, events) in &kernel.traffic.events {
        if !facts.live.contains(node) {
            continue;
        }
        for event in events {
            match event {
                Event::Read { memory, place, bytes } => {
                    reads.push(Read { node, memory: *memory, place, bytes: *bytes });
                }
                Event::Write { memory, addr, bytes, later } => writes.push(Write {
                    node,
                    memory: *memory,
                    addr,
                    bytes: i64::from(*bytes),
                    later: *later,
                }),
                _ => {}
            }
        }
    }
    (reads, writes)
}

/// Threads of a CTA that stand for the others: the first of each warp, and a second one.
pub(super) fn some_threads(kernel: &Kernel) -> Vec<u32> {
    let most = kernel.traffic.threads.unwrap_or(MOST_THREADS).min(MOST_THREADS);
    let warps = (0..most).step_by(32);
    warps.flat_map(|first| [first, first + 1]).filter(|&thread| thread < most).collect()
}

struct Look<'a> {
    ways: Ways<'a>,
    threads: Threads<'a>,
    some: Vec<u32>,
    /// What each thread comes to at all.
    comes: FxHashMap<u32, NodeSet>,
    /// What each barrier leads to, over all threads.
    behind: FxHashMap<u32, NodeSet>,
    walks: usize,
}

impl<'a> Look<'a> {
    fn new(kernel: &'a Kernel, facts: &'a Facts) -> Self {
        Look {
            ways: Ways::new(kernel, facts),
            threads: Threads::new(kernel),
            some: some_threads(kernel),
            comes: FxHashMap::default(),
            behind: FxHashMap::default(),
            walks: 0,
        }
    }

    fn comes_to(&mut self, thread: u32, node: u32) -> bool {
        if !self.comes.contains_key(&thread) {
            let mut reached = NodeSet::new(self.ways.kernel.program.graph.len());
            self.ways.go(&mut self.threads, thread, None, (), |_, node, ()| {
                reached.insert(node);
                Step::Go(())
            });
            self.comes.insert(thread, reached);
        }
        self.comes[&thread].contains(node)
    }

    /// Threads that store, and where. Of a CTA of unknown size the first ones alone: others may not be there.
    fn writers(&mut self, write: &Write<'_>) -> Vec<(u32, Option<Held>)> {
        let mut writers = Vec::new();
        let is_known = self.ways.kernel.traffic.threads.is_some();
        for thread in self.some.clone() {
            if (is_known || writers.len() < 2) && self.comes_to(thread, write.node) {
                writers.push((thread, self.threads.sum(thread, write.addr, write.node)));
            }
        }
        writers
    }

    /// Where the read starts, in each thread that issues it.
    fn places(&mut self, read: &Read<'_>) -> BTreeMap<u32, Held> {
        let mut places = BTreeMap::new();
        for thread in self.some.clone() {
            if !self.comes_to(thread, read.node) {
                continue;
            }
            let held = match read.place {
                Place::Address(parts) => self.threads.sum(thread, parts, read.node),
                Place::Descriptor(arg) => {
                    self.threads.sum(thread, &[*arg], read.node).map(|mut held| {
                        for value in &mut held.all {
                            *value = (*value & 0x3fff) << 4;
                        }
                        held
                    })
                }
            };
            if let Some(held) = held {
                places.insert(thread, held);
            }
        }
        places
    }

    fn size(&mut self, thread: u32, read: &Read<'_>) -> i64 {
        let size = read.bytes.and_then(|bytes| self.threads.sum(thread, &[bytes], read.node));
        match size {
            Some(Held { all, sure: true, .. }) if all[0] > 0 => all[0],
            _ => SOME_BYTES,
        }
    }

    /// Whether a way without a fence leads from the store of a thread to the read.
    fn reaches(
        &mut self,
        write: &Write<'_>,
        (writer, at): (u32, &Held),
        read: &Read<'_>,
        places: &BTreeMap<u32, Held>,
    ) -> bool {
        let is_global = read.memory == Memory::Global;
        let mut readers = BTreeSet::new();
        let mut turns: BTreeSet<u32> = BTreeSet::new();
        for (&thread, place) in places {
            let size = self.size(thread, read);
            let meets = at.all.iter().any(|&at| {
                let is_there =
                    if is_global { at >= GLOBAL_START } else { (0..SHARED_END).contains(&at) };
                is_there
                    && place.all.iter().any(|&from| {
                        at < from.saturating_add(size) && from < at.saturating_add(write.bytes)
                    })
            });
            if meets {
                readers.insert(thread);
                turns.extend(place.turns.intersection(&at.turns));
            }
        }
        if readers.is_empty() {
            return false;
        }
        let stops = |events: &[Event]| {
            events.iter().any(|event| match event {
                Event::ProxyFence { shared, global } => {
                    if is_global {
                        *global
                    } else {
                        *shared
                    }
                }
                _ => false,
            })
        };
        self.walks += 1;
        let mut reached = false;
        let mut switches: BTreeSet<(u32, Option<u32>)> = BTreeSet::new();
        let kernel = self.ways.kernel;
        let events_of = |node: u32| kernel.traffic.events.get(&node).map_or(&[][..], |list| list);
        let carried = Carried { later: write.later, met: None };
        let all = self.ways.go(
            &mut self.threads,
            writer,
            Some(write.node),
            carried,
            |_, node, mut carried| {
                if reached || turns.contains(&node) {
                    return Step::Stop;
                }
                let events = events_of(node);
                if node == read.node && readers.contains(&writer) && !carried.later {
                    reached = true;
                }
                if stops(events) && !carried.later {
                    return Step::Stop;
                }
                for event in events {
                    match event {
                        Event::CopiesDone | Event::Await { .. } => carried.later = false,
                        Event::Meet { .. } | Event::MeetWarp | Event::MeetCluster
                            if !carried.later =>
                        {
                            switches.insert((node, carried.met));
                            if !matches!(event, Event::MeetWarp) && carried.met.is_none() {
                                carried.met = Some(node);
                            }
                        }
                        Event::Arrive { copies, .. } if *copies == carried.later => {
                            switches.insert((node, carried.met));
                        }
                        _ => {}
                    }
                }
                Step::Go(carried)
            },
        );
        if !all {
            return false;
        }
        if reached {
            return true;
        }
        for (node, met) in switches {
            for thread in readers.clone() {
                let skips = met.is_some_and(|met| self.comes_to(thread, met));
                if thread == writer || skips {
                    continue;
                }
                for from in self.handed(writer, node, thread) {
                    let mut reached = false;
                    self.ways.go(&mut self.threads, thread, Some(from), (), |_, node, ()| {
                        if reached || turns.contains(&node) {
                            return Step::Stop;
                        }
                        reached |= node == read.node;
                        if stops(events_of(node)) { Step::Stop } else { Step::Go(()) }
                    });
                    if reached {
                        return true;
                    }
                }
            }
        }
        false
    }

    /// Where another thread knows that the writer has passed the barrier at `node`.
    fn handed(&mut self, writer: u32, node: u32, thread: u32) -> Vec<u32> {
        let kernel = self.ways.kernel;
        let mut list = Vec::new();
        for event in kernel.traffic.events.get(&node).into_iter().flatten() {
            match event {
                Event::MeetWarp if writer / 32 == thread / 32 => list.push(node),
                Event::MeetCluster => list.push(node),
                Event::Meet { id, waits, .. } => {
                    if *waits {
                        list.push(node);
                    }
                    list.extend(self.partners(writer, node, *id));
                }
                Event::Arrive { addr, .. } => {
                    let Some(own) = self.threads.sum(writer, addr, node) else { continue };
                    for (&other, events) in &kernel.traffic.events {
                        for event in events {
                            let Event::Await { addr } = event else { continue };
                            let theirs = self.threads.sum(thread, addr, other);
                            let same = theirs
                                .is_some_and(|held| held.all.iter().any(|at| own.all.contains(at)));
                            if same {
                                list.push(other);
                            }
                        }
                    }
                }
                _ => {}
            }
        }
        list.retain(|&from| self.comes_to(thread, from));
        list
    }

    /// Barriers of the same number that stand in another role: neither leads to the other.
    fn partners(&mut self, thread: u32, node: u32, id: Arg) -> Vec<u32> {
        let kernel = self.ways.kernel;
        let mut list = Vec::new();
        let Some(own) = self.threads.sum(thread, &[id], node) else { return list };
        for (&other, events) in &kernel.traffic.events {
            for event in events {
                let Event::Meet { id, waits: true } = event else { continue };
                let theirs = self.threads.sum(thread, &[*id], other);
                let is_same = theirs.is_some_and(|theirs| theirs.all == own.all);
                let is_apart = !self.leads(node, other) && !self.leads(other, node);
                if other != node && is_same && is_apart {
                    list.push(other);
                }
            }
        }
        list
    }

    fn leads(&mut self, from: u32, to: u32) -> bool {
        let graph = &self.ways.kernel.program.graph;
        self.behind
            .entry(from)
            .or_insert_with(|| graph.reach_after(&[from], |_, _| true))
            .contains(to)
    }
}

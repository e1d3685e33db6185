//! What a run did to memory, as the memory model knows it: an event for each access of each thread, for what goes on
//! behind its statement, and for every place where threads learn of each other.
//!
//! The emulator finds races by what it knows of its own parts. Here the axioms of [`kernel_memory_model`] judge the same
//! run, with proxies, scopes and strengths as the instructions have them; nothing that orders events in the emulator
//! counts there unless an instruction says so.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kernel_dsl::source::Span;
use kernel_ir::kernel::{BarrierId, ParamId};
use kernel_memory_model::event::{
    Access, EventId, FenceOrder, Place, Position, Proxy, ProxyFence, Returns, Scope, Strength,
    ThreadId, Way,
};
use kernel_memory_model::graph::GraphError;
use kernel_memory_model::{EventGraph, Orders};

use crate::error::{EmuError, ErrorKind};

/// Events at most: what the model computes grows with their square.
pub const MAX_EVENTS: usize = 3000;

/// A thread of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Who {
    /// The rank.
    pub rank: u32,
    /// The launch of the rank, from 0.
    pub launch: u32,
    /// The number of the CTA in its grid, x fastest.
    pub cta: u32,
    /// The thread of the CTA.
    pub thread: u32,
}

/// An access of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    /// The thread that does it, or that has issued it.
    pub who: Who,
    /// The statement.
    pub span: Span,
    /// Whether it writes.
    pub writes: bool,
}

/// Two accesses that the memory model orders in no direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordedRace {
    /// The one that ran first.
    pub first: Site,
    /// The other one.
    pub second: Site,
}

impl RecordedRace {
    /// The race as an error of the run.
    pub fn to_error(&self) -> EmuError {
        let does = |site: &Site| {
            let Site { who: Who { rank, launch, cta, thread }, writes, .. } = *site;
            let verb = if writes { "writes" } else { "reads" };
            format!("thread {thread} of CTA {cta} of rank {rank} in launch {launch} {verb} it here")
        };
        let (first, second) = (&self.first, &self.second);
        let message = "two threads touch one place, and nothing in the memory model orders them";
        EmuError::new(ErrorKind::ModelRace, second.span, format!("{message}: {}", does(second)))
            .other(first.span, does(first))
    }
}

/// The events of a run.
#[derive(Debug, Default)]
pub struct Record {
    graph: EventGraph,
    sites: BTreeMap<EventId, Site>,
    is_full: bool,
}

impl Record {
    /// How many events there are.
    pub fn len(&self) -> usize {
        self.graph.events().len()
    }

    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pairs of statements whose accesses race, each with one example; nothing where the run had more than
    /// [`MAX_EVENTS`] events.
    pub fn races(&self) -> Option<Vec<RecordedRace>> {
        if self.is_full {
            return None;
        }
        let mut found: BTreeMap<(Span, Span), RecordedRace> = BTreeMap::new();
        for race in Orders::of(&self.graph).races() {
            let (Some(first), Some(second)) =
                (self.sites.get(&race.first), self.sites.get(&race.second))
            else {
                continue;
            };
            let race = RecordedRace { first: *first, second: *second };
            found.entry((first.span, second.span)).or_insert(race);
        }
        Some(found.into_values().collect())
    }
}

/// Memory that accesses are to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Object {
    /// Shared memory of a CTA of a launch of a rank.
    Shared { rank: u32, launch: u32, cta: u32 },
    /// A buffer of a rank.
    Buffer { rank: u32, param: ParamId },
}

/// The address by which the memory of all ranks is reached at once.
pub(crate) const MULTICAST: u32 = 1;

/// Bytes of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Bytes {
    pub(crate) object: Object,
    /// By which address: its own, or the multicast one.
    pub(crate) mapping: u32,
    pub(crate) at: u64,
    pub(crate) len: u64,
}

/// A round of a slot of a barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Round {
    rank: u32,
    launch: u32,
    cta: u32,
    barrier: BarrierId,
    slot: usize,
    number: u64,
}

/// A slot of a barrier of a CTA, and what a round of it takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) cta: u32,
    pub(crate) barrier: BarrierId,
    pub(crate) slot: usize,
    /// Arrivals.
    pub(crate) arrivals: u32,
    /// Bytes.
    pub(crate) bytes: u32,
}

/// A thread, and where it stands.
struct Thread {
    id: ThreadId,
    /// Its last event.
    last: Option<EventId>,
    /// What it has come to know since then.
    learnt: Vec<EventId>,
}

#[derive(Default)]
struct State {
    record: Record,
    threads: BTreeMap<Who, Thread>,
    objects: BTreeMap<Object, u32>,
    /// Where those who complete a round hand over what they know.
    rounds: BTreeMap<Round, EventId>,
    /// Arrivals and bytes of each slot so far, by round 0 of it.
    counts: BTreeMap<Round, (u64, u64)>,
    /// Meetings of clusters: by rank, launch, first CTA and number.
    meetings: BTreeMap<(u32, u32, u32, u32), EventId>,
    /// How often each CTA of a rank has started.
    starts: BTreeMap<(u32, u32), u32>,
    /// The ends of launches: by rank and launch.
    ends: BTreeMap<(u32, u32), EventId>,
    /// The last strong write of each word.
    words: BTreeMap<(Object, u64), EventId>,
}

/// Keeps the events of a run.
#[derive(Default)]
pub(crate) struct Recorder(Mutex<State>);

impl Recorder {
    /// A CTA of a rank starts; the number of its launch.
    pub(crate) fn start(&self, rank: u32, cta: u32) -> u32 {
        let mut state = self.lock();
        let starts = state.starts.entry((rank, cta)).or_default();
        *starts += 1;
        *starts - 1
    }

    /// The launch that a CTA of a rank is at.
    pub(crate) fn launch(&self, rank: u32, cta: u32) -> u32 {
        self.lock().starts.get(&(rank, cta)).map_or(0, |starts| starts.saturating_sub(1))
    }

    pub(crate) fn into_record(self) -> Record {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner).record
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why ids always fit: all of them come from this graph.
const OWN: &str = "the ids are of this graph";

/// The ends of a single event.
fn one(event: Result<EventId, GraphError>) -> Result<(EventId, EventId), GraphError> {
    event.map(|event| (event, event))
}

impl State {
    fn thread(&mut self, who: Who, cluster: Option<u32>) -> &mut Thread {
        let Who { rank, cta, .. } = who;
        let graph = &mut self.record.graph;
        let position = Position { gpu: rank, cluster, cta };
        self.threads.entry(who).or_insert_with(|| Thread {
            id: graph.thread(position),
            last: None,
            learnt: Vec::new(),
        })
    }

    /// Adds an event of a thread, or several of which the first and the last are given, unless there are too many; the
    /// last.
    fn add_to(
        &mut self,
        who: Who,
        cluster: Option<u32>,
        event: impl FnOnce(&mut EventGraph, ThreadId) -> Result<(EventId, EventId), GraphError>,
    ) -> Option<EventId> {
        let id = self.thread(who, cluster).id;
        let mut ends = None;
        self.add(|graph| {
            let (first, last) = event(graph, id)?;
            ends = Some((first, last));
            Ok(last)
        })?;
        let (first, event) = ends?;
        let thread = self.thread(who, cluster);
        thread.last = Some(event);
        let learnt = std::mem::take(&mut thread.learnt);
        learnt.into_iter().for_each(|hub| self.order(hub, first));
        Some(event)
    }

    /// What a thread has done and knows comes before a hub, or what it does from now on after it.
    fn pass(&mut self, who: Who, cluster: Option<u32>, hub: EventId, [give, take]: [bool; 2]) {
        let thread = self.thread(who, cluster);
        let given: Vec<EventId> = match give {
            true => thread.last.iter().chain(&thread.learnt).copied().collect(),
            false => Vec::new(),
        };
        if take {
            thread.learnt.push(hub);
        }
        given.into_iter().filter(|&event| event != hub).for_each(|event| self.order(event, hub));
    }

    fn place(&mut self, bytes: Bytes) -> Place {
        let next = u32::try_from(self.objects.len()).unwrap_or(u32::MAX);
        let object = *self.objects.entry(bytes.object).or_insert(next);
        Place { object, mapping: bytes.mapping, offset: bytes.at, bytes: bytes.len }
    }

    /// Adds an event, unless there are too many.
    fn add(
        &mut self,
        event: impl FnOnce(&mut EventGraph) -> Result<EventId, GraphError>,
    ) -> Option<EventId> {
        if self.record.len() >= MAX_EVENTS {
            self.record.is_full = true;
            return None;
        }
        Some(event(&mut self.record.graph).expect(OWN))
    }

    /// A place where several threads hand over what they know.
    fn hub(&mut self, rank: u32, cta: u32, cluster: Option<u32>) -> Option<EventId> {
        let thread = self.record.graph.thread(Position { gpu: rank, cluster, cta });
        self.add(|graph| graph.mark(thread))
    }

    fn order(&mut self, first: EventId, second: EventId) {
        self.record.graph.order(first, second).expect(OWN);
    }

    /// A round, which comes after those before it.
    fn round(&mut self, round: Round) -> Option<EventId> {
        if let Some(&hub) = self.rounds.get(&round) {
            return Some(hub);
        }
        let before = match round.number.checked_sub(1) {
            Some(number) => Some(self.round(Round { number, ..round })?),
            None => None,
        };
        let hub = self.hub(round.rank, round.cta, None)?;
        if let Some(before) = before {
            self.order(before, hub);
        }
        self.rounds.insert(round, hub);
        Some(hub)
    }
}

/// Something that goes on, for those who see it complete.
pub(crate) type Noted = Vec<EventId>;

/// How those who do something are known to the recorder: a CTA, or a role of it.
#[derive(Clone, Copy)]
pub(crate) struct Recording<'r> {
    pub(crate) recorder: &'r Recorder,
    pub(crate) rank: u32,
    pub(crate) launch: u32,
    pub(crate) cta: u32,
    /// The number of its cluster, where there are several CTAs in one.
    pub(crate) cluster: Option<u32>,
    /// The thread of the CTA that is number 0 here.
    pub(crate) first_thread: u32,
}

impl Recording<'_> {
    fn who(&self, t: usize) -> Who {
        let thread = self.first_thread.saturating_add(u32::try_from(t).unwrap_or(u32::MAX));
        Who { rank: self.rank, launch: self.launch, cta: self.cta, thread }
    }

    /// The same for memory of another rank.
    pub(crate) fn of_rank(self, rank: i64) -> Self {
        Recording { rank: u32::try_from(rank).unwrap_or(u32::MAX), ..self }
    }

    /// Shared memory of a CTA of the rank.
    pub(crate) fn shared(&self, cta: u32, at: i64, len: usize) -> Bytes {
        let object = Object::Shared { rank: self.rank, launch: self.launch, cta };
        let at = u64::try_from(at).unwrap_or(u64::MAX / 2);
        Bytes { object, mapping: 0, at, len: len as u64 }
    }

    /// A buffer of a rank, of elements with so many bits.
    pub(crate) fn buffer(&self, param: ParamId, start: u64, count: usize, bits: u32) -> Bytes {
        let (bits, object) = (u64::from(bits), Object::Buffer { rank: self.rank, param });
        let (first, last) = (start * bits / 8, ((start + count as u64) * bits).div_ceil(8));
        Bytes { object, mapping: 0, at: first, len: last - first }
    }

    /// A thread reads or writes as any other instruction does.
    pub(crate) fn access(&self, t: usize, bytes: Bytes, way: Way, span: Span) {
        let mut state = self.recorder.lock();
        let (who, place) = (self.who(t), state.place(bytes));
        let access = Access::new(place, Strength::Weak);
        let event = state.add_to(who, self.cluster, |graph, thread| {
            one(match way {
                Way::Read => graph.read(thread, access),
                Way::Write => graph.write(thread, access),
            })
        });
        if let Some(event) = event {
            let site = Site { who, span, writes: way == Way::Write };
            state.record.sites.insert(event, site);
        }
    }

    /// Threads start something that goes on behind them.
    pub(crate) fn begin(
        &self,
        threads: std::ops::Range<usize>,
        accesses: &[(Bytes, Way)],
        proxy: Proxy,
        span: Span,
    ) -> Noted {
        let mut state = self.recorder.lock();
        let who = self.who(threads.start);
        let Some(issue) = state.hub(self.rank, self.cta, self.cluster) else { return Noted::new() };
        threads.for_each(|t| state.pass(self.who(t), self.cluster, issue, [true, false]));
        let mut noted = Vec::with_capacity(accesses.len());
        for &(bytes, way) in accesses {
            let place = state.place(bytes);
            let access = Access { proxy, ..Access::new(place, Strength::Weak) };
            if let Some(event) = state.add(|graph| graph.asynchronous(&[issue], access, way)) {
                let site = Site { who, span, writes: way == Way::Write };
                state.record.sites.insert(event, site);
                noted.push(event);
            }
        }
        noted
    }

    /// Threads see that something is complete.
    pub(crate) fn complete(&self, threads: std::ops::Range<usize>, noted: &[EventId]) {
        if noted.is_empty() {
            return;
        }
        let mut state = self.recorder.lock();
        let Some(hub) = state.hub(self.rank, self.cta, self.cluster) else { return };
        for event in noted {
            state.record.graph.complete(*event, hub).expect(OWN);
        }
        threads.for_each(|t| state.pass(self.who(t), self.cluster, hub, [false, true]));
    }

    /// All threads meet.
    pub(crate) fn meet(&self, threads: usize) {
        let mut state = self.recorder.lock();
        if let Some(hub) = state.hub(self.rank, self.cta, self.cluster) {
            self.pass(&mut state, threads, hub, [true, true]);
        }
    }

    /// The threads of a CTA end: a launch that waits for this one comes to know what they did.
    pub(crate) fn end(&self, threads: usize) {
        let mut state = self.recorder.lock();
        let key = (self.rank, self.launch);
        let hub = match state.ends.get(&key) {
            Some(&hub) => hub,
            None => {
                let Some(hub) = state.hub(self.rank, self.cta, self.cluster) else { return };
                state.ends.insert(key, hub);
                hub
            }
        };
        self.pass(&mut state, threads, hub, [true, false]);
    }

    /// Threads come to know what the launch ahead has done.
    pub(crate) fn after_launch_ahead(&self, threads: usize) {
        let mut state = self.recorder.lock();
        let Some(launch) = self.launch.checked_sub(1) else { return };
        if let Some(&hub) = state.ends.get(&(self.rank, launch)) {
            self.pass(&mut state, threads, hub, [false, true]);
        }
    }

    /// Threads hand over what they know, or come to know it.
    fn pass(&self, state: &mut State, threads: usize, hub: EventId, how: [bool; 2]) {
        (0..threads).for_each(|t| state.pass(self.who(t), self.cluster, hub, how));
    }

    /// The threads arrive at a meeting of their cluster, or go on after it.
    pub(crate) fn meet_cluster(&self, threads: usize, number: u32, arrives: bool) {
        let mut state = self.recorder.lock();
        let key = (self.rank, self.launch, self.cluster.unwrap_or(self.cta), number);
        let hub = match state.meetings.get(&key) {
            Some(&hub) => hub,
            None => {
                let Some(hub) = state.hub(self.rank, self.cta, self.cluster) else { return };
                state.meetings.insert(key, hub);
                hub
            }
        };
        self.pass(&mut state, threads, hub, [arrives, !arrives]);
    }

    /// The round of a slot that is at hand, by arrivals, or by bytes where none are taken.
    fn at_hand(&self, state: &mut State, slot: Slot, by_bytes: bool) -> Option<EventId> {
        let Slot { cta, barrier, slot: of, arrivals, bytes } = slot;
        let round =
            Round { rank: self.rank, launch: self.launch, cta, barrier, slot: of, number: 0 };
        let &(arrived, came) = state.counts.get(&round).unwrap_or(&(0, 0));
        let number = match by_bytes || arrivals == 0 {
            true => came.checked_div(u64::from(bytes)),
            false => arrived.checked_div(u64::from(arrivals)),
        };
        state.round(Round { number: number.unwrap_or(0), ..round })
    }

    fn count(&self, state: &mut State, slot: Slot, arrivals: u32, bytes: usize) {
        let Slot { cta, barrier, slot, .. } = slot;
        let round = Round { rank: self.rank, launch: self.launch, cta, barrier, slot, number: 0 };
        let counts = state.counts.entry(round).or_default();
        *counts = (counts.0 + u64::from(arrivals), counts.1 + bytes as u64);
    }

    /// Threads arrive so many times.
    pub(crate) fn arrive(&self, threads: usize, slot: Slot, arrivals: u32) {
        let mut state = self.recorder.lock();
        if let Some(hub) = self.at_hand(&mut state, slot, false) {
            self.pass(&mut state, threads, hub, [true, false]);
        }
        self.count(&mut state, slot, arrivals, 0);
    }

    /// What threads have started arrives once by itself when it is complete.
    pub(crate) fn arrive_when_complete(&self, slot: Slot, noted: &[EventId]) {
        let mut state = self.recorder.lock();
        if let Some(hub) = self.at_hand(&mut state, slot, false) {
            for event in noted {
                state.record.graph.complete(*event, hub).expect(OWN);
            }
        }
        self.count(&mut state, slot, 1, 0);
    }

    /// What threads have started counts so many bytes when it is complete.
    pub(crate) fn count_bytes(&self, slot: Slot, noted: &[EventId], bytes: usize) {
        let mut state = self.recorder.lock();
        if let Some(hub) = self.at_hand(&mut state, slot, true) {
            for event in noted {
                state.record.graph.complete(*event, hub).expect(OWN);
            }
        }
        self.count(&mut state, slot, 0, bytes);
    }

    /// Threads have waited until so many rounds were complete.
    pub(crate) fn wait(&self, threads: usize, slot: Slot, rounds: u64) {
        let mut state = self.recorder.lock();
        let Some(number) = rounds.checked_sub(1) else { return };
        let Slot { cta, barrier, slot, .. } = slot;
        let round = Round { rank: self.rank, launch: self.launch, cta, barrier, slot, number };
        if let Some(hub) = state.round(round) {
            self.pass(&mut state, threads, hub, [false, true]);
        }
    }

    /// All threads fence what they did by the generic proxy from the async one.
    pub(crate) fn fence_async(&self, threads: usize) {
        let mut state = self.recorder.lock();
        for t in 0..threads {
            let fence = ProxyFence::Proxy(Proxy::Async);
            state.add_to(self.who(t), self.cluster, |graph, thread| {
                one(graph.proxy_fence(thread, fence))
            });
        }
    }

    /// A thread fences what it did at one address of some memory from what it does at another.
    pub(crate) fn fence_alias(&self, t: usize) {
        let mut state = self.recorder.lock();
        state.add_to(self.who(t), self.cluster, |graph, thread| {
            one(graph.proxy_fence(thread, ProxyFence::Alias))
        });
    }

    /// A thread fences.
    pub(crate) fn fence(&self, t: usize, scope: Scope) {
        let mut state = self.recorder.lock();
        state.add_to(self.who(t), self.cluster, |graph, thread| {
            one(graph.fence(thread, FenceOrder::AcqRel, scope))
        });
    }

    /// A thread changes a word, of the rank that `bytes` names.
    pub(crate) fn update(
        &self,
        t: usize,
        bytes: Bytes,
        writes: Strength,
        returns: Returns,
        span: Span,
    ) {
        let mut state = self.recorder.lock();
        let (who, place) = (self.who(t), state.place(bytes));
        let Some(scope) = writes.scope() else { return };
        let reads = Access::new(place, Strength::Relaxed(scope));
        let mut read = None;
        let write = state.add_to(who, self.cluster, |graph, thread| {
            let ends = graph.update(thread, reads, returns, Access::new(place, writes))?;
            read = Some(ends.0);
            Ok(ends)
        });
        let (Some(read), Some(write)) = (read, write) else { return };
        for (event, writes) in [(read, false), (write, true)] {
            state.record.sites.insert(event, Site { who, span, writes });
        }
        if let Some(before) = state.words.insert((bytes.object, bytes.at), write) {
            state.record.graph.reads_from(before, read).expect(OWN);
        }
    }

    /// A thread has seen the word that it waited for.
    pub(crate) fn acquire(&self, t: usize, bytes: Bytes, scope: Scope, span: Span) {
        let mut state = self.recorder.lock();
        let (who, place) = (self.who(t), state.place(bytes));
        let access = Access::new(place, Strength::Acquire(scope));
        let read = state.add_to(who, self.cluster, |graph, thread| one(graph.read(thread, access)));
        let Some(read) = read else { return };
        state.record.sites.insert(read, Site { who, span, writes: false });
        if let Some(&write) = state.words.get(&(bytes.object, bytes.at)) {
            state.record.graph.reads_from(write, read).expect(OWN);
        }
    }
}

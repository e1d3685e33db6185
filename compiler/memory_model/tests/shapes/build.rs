//! The event graph of a program, and what the axioms say of its executions.

use kernel_memory_model::event::{
    Access, BarrierSide, EventId, FenceOrder, Place, Position, Proxy, ProxyFence, Returns, Scope,
    Strength, ThreadId, Way,
};
use kernel_memory_model::{EventGraph, Orders};

use crate::matrix::{Act, Awaited, HandOver, Program, Shape};

/// What the axioms say of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Whether the data may be seen as it was, although all hand-overs have been seen.
    pub(crate) is_allowed: bool,
    /// Whether accesses of an execution that may happen race.
    pub(crate) races: bool,
}

/// A read with the writes that it may read from, the one of the outcome that is asked for first.
struct Choice {
    read: EventId,
    from: [EventId; 2],
}

/// How a word is changed.
enum Word {
    /// By a store.
    Stored,
    /// By an arrival.
    Counted,
}

/// A graph that is being built.
struct Builder {
    graph: EventGraph,
    objects: u32,
    choices: Vec<Choice>,
    /// Fences that stand in one order or the other.
    fences: Vec<EventId>,
}

/// A piece of data, and its accesses so far.
struct Data {
    place: Place,
    init: EventId,
    write: Option<EventId>,
    reads: Vec<EventId>,
    /// Copies whose bytes count at the mbarrier that is handed over.
    bytes: Vec<EventId>,
}

pub(crate) fn judge(program: &Program) -> Verdict {
    let (graph, choices, fences) = build(program);
    let mut verdict = Verdict { is_allowed: false, races: false };
    let orders = if fences.len() == 2 { 2 } else { 1 };
    for picked in 0..1_usize << choices.len() {
        for order in 0..orders {
            let mut graph = graph.clone();
            for (number, choice) in choices.iter().enumerate() {
                let from = choice.from[picked >> number & 1];
                graph.reads_from(from, choice.read).unwrap();
            }
            if let [a, b] = fences[..] {
                let (first, second) = if order == 0 { (a, b) } else { (b, a) };
                graph.fence_order(first, second).unwrap();
            }
            let orders = Orders::of(&graph);
            if orders.violation(&graph).is_none() {
                verdict.is_allowed |= picked == 0;
                verdict.races |= !orders.races().is_empty();
            }
        }
    }
    verdict
}

/// Threads that stand as far apart as their hand-overs say.
fn positions([first, second]: [Scope; 2]) -> [Position; 3] {
    let step = |from: Position, distance: Scope| match distance {
        Scope::Cta => from,
        Scope::Cluster => Position { cta: from.cta + 1, ..from },
        Scope::Gpu => Position { cluster: from.cluster.map(|c| c + 1), cta: from.cta + 10, ..from },
        Scope::Sys => Position { gpu: from.gpu + 1, ..from },
    };
    let start = Position { gpu: 0, cluster: Some(0), cta: 0 };
    let middle = step(start, first);
    [start, middle, step(middle, second)]
}

fn build(program: &Program) -> (EventGraph, Vec<Choice>, Vec<EventId>) {
    let mut b =
        Builder { graph: EventGraph::new(), objects: 0, choices: Vec::new(), fences: Vec::new() };
    let [t0, t1, t2] = positions(program.distances).map(|position| b.graph.thread(position));
    let [near, far] = program.hand_overs;
    let distances = program.distances;
    let mut x = b.data();
    match program.shape {
        Shape::Mp => {
            b.first(program, t0, &mut x, near);
            b.hand_over(near, distances[0], &[(t0, t1)], &[&x]);
            b.second(program, t1, &mut x);
        }
        Shape::Isa2 => {
            b.first(program, t0, &mut x, near);
            b.hand_over(near, distances[0], &[(t0, t1)], &[&x]);
            b.hand_over(far, distances[1], &[(t1, t2)], &[]);
            b.second(program, t2, &mut x);
        }
        Shape::Wrc => {
            b.first(program, t0, &mut x, HandOver::Flag(Scope::Sys));
            b.second(program, t1, &mut x);
            b.choose(&x, true);
            x.reads.clear();
            b.hand_over(far, distances[1], &[(t1, t2)], &[]);
            b.second(program, t2, &mut x);
        }
        Shape::Sb => {
            let mut y = b.data();
            b.first(program, t0, &mut x, near);
            b.first(program, t1, &mut y, near);
            b.hand_over(near, distances[0], &[(t0, t1), (t1, t0)], &[&x, &y]);
            b.second(program, t0, &mut y);
            b.second(program, t1, &mut x);
            b.choose(&y, false);
        }
    }
    b.choose(&x, false);
    (b.graph, b.choices, b.fences)
}

impl Builder {
    fn place(&mut self, bytes: u64) -> Place {
        self.objects += 1;
        Place::of(self.objects, bytes)
    }

    fn data(&mut self) -> Data {
        let place = self.place(16);
        let init = self.graph.init(place);
        Data { place, init, write: None, reads: Vec::new(), bytes: Vec::new() }
    }

    fn first(&mut self, program: &Program, thread: ThreadId, data: &mut Data, by: HandOver) {
        self.act(program.payload.first, thread, data, by == HandOver::Bytes);
        if program.payload.is_fenced_first {
            self.fence_async(thread);
        }
    }

    fn second(&mut self, program: &Program, thread: ThreadId, data: &mut Data) {
        if program.payload.is_fenced_second {
            self.fence_async(thread);
        }
        self.act(program.payload.second, thread, data, false);
    }

    fn fence_async(&mut self, thread: ThreadId) {
        self.graph.proxy_fence(thread, ProxyFence::Proxy(Proxy::Async)).unwrap();
    }

    fn act(&mut self, act: Act, thread: ThreadId, data: &mut Data, is_handed_on: bool) {
        match act {
            Act::Store(strength) => {
                let access = Access::new(data.place, strength);
                data.write = Some(self.graph.write(thread, access).unwrap());
            }
            Act::Load(strength) => {
                let access = Access::new(data.place, strength);
                data.reads.push(self.graph.read(thread, access).unwrap());
            }
            Act::Fill(awaited) => {
                let from = self.data();
                let copy = self.copy(thread, from.place, data.place);
                self.graph.reads_from(from.init, copy[0]).unwrap();
                data.write = Some(copy[1]);
                self.wait_for(thread, copy, awaited, data, is_handed_on);
            }
            Act::Drain(awaited) => {
                let to = self.place(16);
                let copy = self.copy(thread, data.place, to);
                data.reads.push(copy[0]);
                self.wait_for(thread, copy, awaited, data, is_handed_on);
            }
        }
    }

    /// A copy: its read and its write.
    fn copy(&mut self, thread: ThreadId, from: Place, to: Place) -> [EventId; 2] {
        let issue = self.graph.mark(thread).unwrap();
        [(from, Way::Read), (to, Way::Write)].map(|(place, way)| {
            let access = Access { proxy: Proxy::Async, ..Access::new(place, Strength::Weak) };
            self.graph.asynchronous(&[issue], access, way).unwrap()
        })
    }

    fn wait_for(
        &mut self,
        thread: ThreadId,
        copy: [EventId; 2],
        awaited: Awaited,
        data: &mut Data,
        is_handed_on: bool,
    ) {
        let seen: &[EventId] = match awaited {
            Awaited::Bytes if is_handed_on => {
                data.bytes = copy.to_vec();
                return;
            }
            Awaited::Bytes | Awaited::Group => &copy,
            Awaited::GroupRead => &copy[..1],
            Awaited::Nothing => return,
        };
        let wait = self.graph.mark(thread).unwrap();
        seen.iter().for_each(|event| self.graph.complete(*event, wait).unwrap());
    }

    /// Which values reads of the data may have: the first is the one that is asked for.
    fn choose(&mut self, data: &Data, is_new: bool) {
        let write = data.write.expect("every program writes its data");
        for &read in &data.reads {
            // What is read ahead of the hand-over should not be new; what is read behind it not old.
            let is_ahead = read < write;
            let new_first = is_new || is_ahead;
            let from = if new_first { [write, data.init] } else { [data.init, write] };
            self.choices.push(Choice { read, from });
        }
    }

    /// Threads hand over what they know: all give before anybody takes.
    fn hand_over(
        &mut self,
        how: HandOver,
        distance: Scope,
        pairs: &[(ThreadId, ThreadId)],
        data: &[&Data],
    ) {
        match how {
            HandOver::Bar | HandOver::Cluster | HandOver::ClusterRelaxed => {
                self.meet(how, distance, pairs[0]);
            }
            HandOver::Mbarrier(scope) => {
                let strengths = [Strength::Release(scope), Strength::Acquire(scope)];
                self.words(pairs, strengths, Word::Counted, None);
            }
            HandOver::Bytes => {
                for (number, (from, to)) in pairs.iter().enumerate() {
                    let mut bytes = data.get(number).map_or(Vec::new(), |data| data.bytes.clone());
                    if bytes.is_empty() {
                        let (source, target) = (self.data(), self.place(16));
                        let copy = self.copy(*from, source.place, target);
                        self.graph.reads_from(source.init, copy[0]).unwrap();
                        bytes = copy.to_vec();
                    }
                    let wait = self.graph.mark(*to).unwrap();
                    bytes.iter().for_each(|event| self.graph.complete(*event, wait).unwrap());
                }
            }
            HandOver::Flag(scope) => {
                let strengths = [Strength::Release(scope), Strength::Acquire(scope)];
                self.words(pairs, strengths, Word::Stored, None);
            }
            HandOver::Fences(scope) => {
                let strengths = [Strength::Relaxed(Scope::Sys); 2];
                self.words(pairs, strengths, Word::Stored, Some(scope));
            }
            HandOver::FlagRelaxed => {
                self.words(pairs, [Strength::Relaxed(Scope::Sys); 2], Word::Stored, None);
            }
            HandOver::Pdl => {
                for (from, to) in pairs {
                    let end = self.graph.mark(*from).unwrap();
                    let wait = self.graph.mark(*to).unwrap();
                    self.graph.order(end, wait).unwrap();
                }
            }
            HandOver::PdlNoWait => {}
            HandOver::FenceSc(scope) => {
                for (from, _) in pairs {
                    let fence = self.graph.fence(*from, FenceOrder::Sc, scope).unwrap();
                    self.fences.push(fence);
                }
                if scope < distance {
                    // They are not morally strong, so no order relates them.
                    self.fences.clear();
                }
            }
        }
    }

    fn meet(&mut self, how: HandOver, distance: Scope, (from, to): (ThreadId, ThreadId)) {
        if how == HandOver::Bar {
            let sides =
                [from, to].map(|thread| self.graph.barrier(thread, BarrierSide::Sync).unwrap());
            if distance == Scope::Cta {
                self.graph.meet(&sides).unwrap();
            }
            return;
        }
        let arrivals =
            [from, to].map(|thread| self.graph.barrier(thread, BarrierSide::Arrive).unwrap());
        let waits = [from, to].map(|thread| self.graph.barrier(thread, BarrierSide::Wait).unwrap());
        if distance <= Scope::Cluster && how == HandOver::Cluster {
            self.graph.meet(&[arrivals, waits].concat()).unwrap();
        }
    }

    /// Each thread that gives changes a word, and then each that takes has seen it.
    fn words(
        &mut self,
        pairs: &[(ThreadId, ThreadId)],
        [gives, takes]: [Strength; 2],
        changed: Word,
        fence: Option<Scope>,
    ) {
        let mut written = Vec::new();
        for &(from, to) in pairs {
            let word = self.place(8);
            let init = self.graph.init(word);
            if let Some(scope) = fence {
                self.graph.fence(from, FenceOrder::AcqRel, scope).unwrap();
            }
            let access = Access::new(word, gives);
            let write = match changed {
                Word::Stored => self.graph.write(from, access).unwrap(),
                Word::Counted => {
                    let old = Access::new(word, Strength::Relaxed(gives.scope().unwrap()));
                    let ends = self.graph.update(from, old, Returns::Nothing, access).unwrap();
                    self.graph.reads_from(init, ends.0).unwrap();
                    ends.1
                }
            };
            written.push((word, write, to));
        }
        for (word, write, to) in written {
            let read = self.graph.read(to, Access::new(word, takes)).unwrap();
            self.graph.reads_from(write, read).unwrap();
            if let Some(scope) = fence {
                self.graph.fence(to, FenceOrder::AcqRel, scope).unwrap();
            }
        }
    }
}

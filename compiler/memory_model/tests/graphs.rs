//! Event graphs that are built by hand: what is ordered, and what races.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

use kernel_memory_model::axioms::Edge;
use kernel_memory_model::event::{
    Access, BarrierSide, EventId, FenceOrder, Place, Position, Proxy, ProxyFence, Returns, Scope,
    Strength, ThreadId,
};
use kernel_memory_model::graph::{EventGraph, GraphError};
use kernel_memory_model::{Orders, Race};

const DATA: Place = Place::of(0, 16);
const FLAG: Place = Place::of(1, 4);

fn weak(place: Place) -> Access {
    Access::new(place, Strength::Weak)
}

fn two_devices() -> (EventGraph, ThreadId, ThreadId) {
    let mut graph = EventGraph::new();
    let producer = graph.thread(Position::new(0, 0));
    let consumer = graph.thread(Position::new(1, 0));
    (graph, producer, consumer)
}

/// A payload and a flag from one device to another.
fn message(release: Strength, acquire: Strength) -> (Orders, EventId, EventId) {
    let (mut graph, producer, consumer) = two_devices();
    let data = graph.write(producer, weak(DATA)).unwrap();
    let flag = graph.write(producer, Access::new(FLAG, release)).unwrap();
    let seen = graph.read(consumer, Access::new(FLAG, acquire)).unwrap();
    let read = graph.read(consumer, weak(DATA)).unwrap();
    graph.reads_from(flag, seen).unwrap();
    (Orders::of(&graph), data, read)
}

#[test]
fn a_flag_orders_when_both_sides_say_so_and_reach_each_other() {
    use Scope::{Gpu, Sys};
    use Strength::{Acquire, Relaxed, Release};
    for (release, acquire, is_ordered) in [
        (Release(Sys), Acquire(Sys), true),
        (Release(Gpu), Acquire(Sys), false),
        (Release(Sys), Acquire(Gpu), false),
        (Relaxed(Sys), Acquire(Sys), false),
        (Release(Sys), Relaxed(Sys), false),
        (Release(Sys), Strength::Weak, false),
    ] {
        let (orders, data, read) = message(release, acquire);
        assert_eq!(orders.causality(data, read), is_ordered, "{release} {acquire}");
        assert_eq!(orders.happens_before(data, read), is_ordered);
        assert!(!orders.causality(read, data));
        assert_eq!(orders.race(read, data).is_none(), is_ordered);
        let edges = orders.path(data, read).map(|path| path.iter().map(|s| s.edge).collect());
        let expected = vec![Edge::ProgramOrder, Edge::Synchronizes, Edge::ProgramOrder];
        assert_eq!(edges, is_ordered.then_some(expected));
    }
}

#[test]
fn a_strong_flag_does_not_race_and_a_weak_one_does() {
    let (orders, ..) = message(Strength::Release(Scope::Sys), Strength::Acquire(Scope::Sys));
    assert!(orders.races().is_empty());
    let (orders, data, read) = message(Strength::Release(Scope::Sys), Strength::Weak);
    let races = orders.races();
    assert_eq!(races.len(), 2, "{races:?}");
    assert!(races.contains(&Race { first: data, second: read, is_mixed_size: false }));
}

#[test]
fn a_barrier_orders_whoever_arrived_before_whoever_waited() {
    let mut graph = EventGraph::new();
    let threads: Vec<ThreadId> = (0..3).map(|_| graph.thread(Position::new(0, 0))).collect();
    let write = graph.write(threads[0], weak(DATA)).unwrap();
    let arrive = graph.barrier(threads[0], BarrierSide::Arrive).unwrap();
    let after = graph.read(threads[0], weak(FLAG)).unwrap();
    let syncs: Vec<EventId> =
        (1..3).map(|t| graph.barrier(threads[t], BarrierSide::Sync).unwrap()).collect();
    let read = graph.read(threads[1], weak(DATA)).unwrap();
    let flag = graph.write(threads[2], weak(FLAG)).unwrap();
    graph.meet(&[arrive, syncs[0], syncs[1]]).unwrap();
    let orders = Orders::of(&graph);
    assert!(orders.causality(write, read));
    // Who only arrives learns nothing.
    assert_eq!(orders.races(), [Race { first: after, second: flag, is_mixed_size: false }]);
}

#[test]
fn fences_order_through_relaxed_flags_and_updates() {
    let (mut graph, producer, consumer) = two_devices();
    let between = graph.thread(Position::new(0, 3));
    let sys = |place| Access::new(place, Strength::Relaxed(Scope::Sys));
    let data = graph.write(producer, weak(DATA)).unwrap();
    graph.fence(producer, FenceOrder::Release, Scope::Sys).unwrap();
    let flag = graph.write(producer, sys(FLAG)).unwrap();
    let (old, new) = graph.update(between, sys(FLAG), Returns::Nothing, sys(FLAG)).unwrap();
    let seen = graph.read(consumer, sys(FLAG)).unwrap();
    graph.fence(consumer, FenceOrder::Acquire, Scope::Sys).unwrap();
    let read = graph.read(consumer, weak(DATA)).unwrap();
    graph.reads_from(flag, old).unwrap();
    graph.reads_from(new, seen).unwrap();
    let orders = Orders::of(&graph);
    assert!(orders.causality(data, read));
    assert!(orders.races().is_empty());
}

#[test]
fn the_read_of_a_red_acquires_nothing() {
    for (returns, is_ordered) in [(Returns::Value, true), (Returns::Nothing, false)] {
        let (mut graph, producer, consumer) = two_devices();
        let data = graph.write(producer, weak(DATA)).unwrap();
        let release = Access::new(FLAG, Strength::Release(Scope::Sys));
        let flag = graph.write(producer, release).unwrap();
        let relaxed = Access::new(FLAG, Strength::Relaxed(Scope::Sys));
        let (old, _) = graph.update(consumer, relaxed, returns, relaxed).unwrap();
        graph.fence(consumer, FenceOrder::AcqRel, Scope::Sys).unwrap();
        let read = graph.read(consumer, weak(DATA)).unwrap();
        graph.reads_from(flag, old).unwrap();
        assert_eq!(Orders::of(&graph).causality(data, read), is_ordered);
    }
}

#[test]
fn another_proxy_needs_its_fence_in_its_cta() {
    for (fence, is_ordered) in [
        (None, false),
        (Some(ProxyFence::Proxy(Proxy::Async)), true),
        (Some(ProxyFence::Proxy(Proxy::Texture)), false),
        (Some(ProxyFence::Alias), false),
    ] {
        let mut graph = EventGraph::new();
        let thread = graph.thread(Position::new(0, 0));
        let write = graph.write(thread, weak(DATA)).unwrap();
        if let Some(fence) = fence {
            graph.proxy_fence(thread, fence).unwrap();
        }
        let copy = Access { proxy: Proxy::Async, ..weak(DATA) };
        let read = graph.read(thread, copy).unwrap();
        let orders = Orders::of(&graph);
        assert!(orders.happens_before(write, read));
        assert_eq!(orders.causality(write, read), is_ordered, "{fence:?}");
        assert_eq!(orders.race(write, read).is_none(), is_ordered);
    }
}

#[test]
fn another_address_of_the_same_memory_needs_an_alias_fence() {
    for (has_fence, is_ordered) in [(false, false), (true, true)] {
        let mut graph = EventGraph::new();
        let thread = graph.thread(Position::new(0, 0));
        let write = graph.write(thread, weak(DATA)).unwrap();
        if has_fence {
            graph.proxy_fence(thread, ProxyFence::Alias).unwrap();
        }
        let read = graph.read(thread, weak(Place { mapping: 1, ..DATA })).unwrap();
        assert_eq!(Orders::of(&graph).causality(write, read), is_ordered);
    }
}

#[test]
fn accesses_that_overlap_in_part_are_never_morally_strong() {
    let (mut graph, producer, consumer) = two_devices();
    let strong = Strength::Relaxed(Scope::Sys);
    let write = graph.write(producer, Access::new(DATA, strong)).unwrap();
    let half = Place { bytes: 8, ..DATA };
    let read = graph.read(consumer, Access::new(half, strong)).unwrap();
    let far = graph.read(consumer, weak(Place { offset: 16, ..DATA })).unwrap();
    let orders = Orders::of(&graph);
    assert_eq!(orders.races(), [Race { first: write, second: read, is_mixed_size: true }]);
    assert_eq!(orders.race(write, far), None);
}

#[test]
fn orders_from_elsewhere_and_of_fences_count() {
    let (mut graph, first, second) = two_devices();
    let write = graph.write(first, weak(DATA)).unwrap();
    let end = graph.fence(first, FenceOrder::Sc, Scope::Sys).unwrap();
    let start = graph.fence(second, FenceOrder::Sc, Scope::Sys).unwrap();
    let read = graph.read(second, weak(DATA)).unwrap();
    assert_eq!(Orders::of(&graph).races().len(), 1);
    let mut by_fences = graph.clone();
    by_fences.fence_order(end, start).unwrap();
    assert!(Orders::of(&by_fences).causality(write, read));
    graph.order(end, start).unwrap();
    assert!(Orders::of(&graph).causality(write, read));
}

#[test]
fn edges_that_fit_nothing_are_refused() {
    let (mut graph, thread, _) = two_devices();
    let write = graph.write(thread, weak(DATA)).unwrap();
    let read = graph.read(thread, weak(FLAG)).unwrap();
    let fence = graph.fence(thread, FenceOrder::AcqRel, Scope::Gpu).unwrap();
    let mut other = graph.clone();
    let unknown = other.init(DATA);
    let stranger = other.thread(Position::new(0, 0));
    assert_eq!(graph.reads_from(write, read), Err(GraphError::NotReadFrom { write, read }));
    assert_eq!(graph.reads_from(write, unknown), Err(GraphError::NoEvent(unknown)));
    assert_eq!(graph.meet(&[fence]), Err(GraphError::NotBarrierSide(fence)));
    assert_eq!(graph.fence_order(fence, fence), Err(GraphError::NotScFence(fence)));
    assert_eq!(graph.order(write, unknown), Err(GraphError::NoEvent(unknown)));
    assert_eq!(graph.depend(unknown, write), Err(GraphError::NoEvent(unknown)));
    assert_eq!(graph.read(stranger, weak(DATA)), Err(GraphError::NoThread(stranger)));
    let orders = Orders::of(&graph);
    assert!(!orders.happens_before(write, unknown));
    assert_eq!(orders.path(write, unknown), None);
    assert_eq!(orders.race(write, unknown), None);
}

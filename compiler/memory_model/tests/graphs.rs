//! Event graphs that are built by hand: what is ordered, and what races.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

use kernel_memory_model::axioms::{Axiom, Edge};
use kernel_memory_model::event::{
    Access, BarrierSide, EventId, FenceOrder, Place, Position, Proxy, ProxyFence, Returns, Scope,
    Strength, ThreadId, Way,
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
fn an_execution_is_refused_by_the_axiom_that_it_violates() {
    let read_from = |is_new: bool, acquire: Strength| {
        let (mut graph, producer, consumer) = two_devices();
        let old = graph.init(DATA);
        let data = graph.write(producer, weak(DATA)).unwrap();
        let release = Access::new(FLAG, Strength::Release(Scope::Sys));
        let flag = graph.write(producer, release).unwrap();
        let seen = graph.read(consumer, Access::new(FLAG, acquire)).unwrap();
        let read = graph.read(consumer, weak(DATA)).unwrap();
        graph.reads_from(flag, seen).unwrap();
        graph.reads_from(if is_new { data } else { old }, read).unwrap();
        Orders::of(&graph).violation(&graph).map(|violation| violation.axiom)
    };
    let (acquires, relaxed) = (Strength::Acquire(Scope::Sys), Strength::Relaxed(Scope::Sys));
    assert_eq!(read_from(true, acquires), None);
    assert_eq!(read_from(false, acquires), Some(Axiom::Causality));
    assert_eq!(read_from(false, relaxed), None);
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

/// A copy between two places, issued by a thread.
struct Copy {
    read: EventId,
    write: EventId,
}

fn bulk(graph: &mut EventGraph, issue: EventId, from: Place, to: Place) -> Copy {
    let asynchronous = |place| Access { proxy: Proxy::Async, ..weak(place) };
    let read = graph.asynchronous(&[issue], asynchronous(from), Way::Read).unwrap();
    let write = graph.asynchronous(&[issue], asynchronous(to), Way::Write).unwrap();
    Copy { read, write }
}

#[test]
fn a_copy_is_ordered_where_it_is_seen_to_be_complete() {
    for (is_seen, races) in [(true, 0), (false, 1)] {
        let mut graph = EventGraph::new();
        let [issuer, reader] = [0; 2].map(|_| graph.thread(Position::new(0, 0)));
        let issue = graph.mark(issuer).unwrap();
        let copy = bulk(&mut graph, issue, FLAG, DATA);
        let wait = graph.mark(reader).unwrap();
        let read = graph.read(reader, weak(DATA)).unwrap();
        if is_seen {
            graph.complete(copy.write, wait).unwrap();
        }
        let orders = Orders::of(&graph);
        // The generic read needs no fence: that the copy is complete includes it.
        assert_eq!(orders.races().len(), races);
        let path = orders.path(copy.write, read).map(|path| path.iter().map(|s| s.edge).collect());
        assert_eq!(path, is_seen.then_some(vec![Edge::Completion, Edge::ProgramOrder]));
    }
}

#[test]
fn whoever_sees_a_copy_complete_learns_nothing_of_its_issuer() {
    let mut graph = EventGraph::new();
    let [issuer, reader] = [0; 2].map(|_| graph.thread(Position::new(0, 0)));
    let before = graph.write(issuer, weak(DATA)).unwrap();
    let issue = graph.mark(issuer).unwrap();
    let copy = bulk(&mut graph, issue, FLAG, Place::of(2, 16));
    let wait = graph.mark(reader).unwrap();
    let read = graph.read(reader, weak(DATA)).unwrap();
    graph.complete(copy.write, wait).unwrap();
    let orders = Orders::of(&graph);
    assert!(orders.happens_before(before, copy.write) && orders.happens_before(copy.write, read));
    assert!(!orders.happens_before(before, read) && orders.path(before, read).is_none());
    assert_eq!(orders.races(), [Race { first: before, second: read, is_mixed_size: false }]);
}

#[test]
fn a_copy_hands_on_what_came_before_at_its_own_bytes() {
    let half = Place { bytes: 8, ..DATA };
    // A slot is filled, a product reads it, and when that is complete it is filled again.
    for (read_bytes, races) in [(DATA, 0), (half, 1)] {
        let mut graph = EventGraph::new();
        let [loader, tensor] = [0; 2].map(|_| graph.thread(Position::new(0, 0)));
        let issue = graph.mark(loader).unwrap();
        let first = bulk(&mut graph, issue, FLAG, DATA);
        let full = graph.mark(tensor).unwrap();
        graph.complete(first.write, full).unwrap();
        let begins = graph.mark(tensor).unwrap();
        let product = Access { proxy: Proxy::Async, ..weak(read_bytes) };
        let product = graph.asynchronous(&[begins], product, Way::Read).unwrap();
        let empty = graph.mark(loader).unwrap();
        graph.complete(product, empty).unwrap();
        let issue = graph.mark(loader).unwrap();
        let second = bulk(&mut graph, issue, FLAG, DATA);
        let orders = Orders::of(&graph);
        assert!(!orders.happens_before(first.write, second.write));
        assert_eq!(orders.causality(first.write, second.write), races == 0);
        assert_eq!(orders.races().len(), races);
    }
}

#[test]
fn what_threads_wrote_is_fenced_before_a_copy_reads_it_and_what_they_read_before_it_is_overwritten()
{
    let source = Place::of(2, 16);
    for (has_fence, races) in [(true, 0), (false, 2)] {
        let mut graph = EventGraph::new();
        let thread = graph.thread(Position::new(0, 0));
        graph.write(thread, weak(source)).unwrap();
        graph.read(thread, weak(DATA)).unwrap();
        if has_fence {
            graph.proxy_fence(thread, ProxyFence::Proxy(Proxy::Async)).unwrap();
        }
        let issue = graph.mark(thread).unwrap();
        bulk(&mut graph, issue, source, DATA);
        assert_eq!(Orders::of(&graph).races().len(), races);
    }
}

#[test]
fn a_read_that_is_complete_leaves_the_write_open() {
    let mut graph = EventGraph::new();
    let thread = graph.thread(Position::new(0, 0));
    let issue = graph.mark(thread).unwrap();
    let source = Place::of(2, 16);
    let copy = bulk(&mut graph, issue, source, DATA);
    let wait = graph.mark(thread).unwrap();
    graph.complete(copy.read, wait).unwrap();
    graph.write(thread, weak(source)).unwrap();
    let read = graph.read(thread, weak(DATA)).unwrap();
    let race = Race { first: copy.write, second: read, is_mixed_size: false };
    assert_eq!(Orders::of(&graph).races(), [race]);
}

#[test]
fn copies_follow_each_other_without_a_fence_in_a_cluster() {
    for (cluster, is_ordered) in [(Some(1), true), (None, false)] {
        let mut graph = EventGraph::new();
        let [first, second] = [0, 1].map(|cta| graph.thread(Position { gpu: 0, cluster, cta }));
        let issue = graph.mark(first).unwrap();
        let one = bulk(&mut graph, issue, FLAG, DATA);
        let seen = graph.barrier(first, BarrierSide::Sync).unwrap();
        let waited = graph.barrier(second, BarrierSide::Sync).unwrap();
        graph.complete(one.write, seen).unwrap();
        graph.meet(&[seen, waited]).unwrap();
        let issue = graph.mark(second).unwrap();
        let two = bulk(&mut graph, issue, FLAG, DATA);
        let orders = Orders::of(&graph);
        assert!(orders.happens_before(one.write, two.write));
        assert_eq!(orders.races().is_empty(), is_ordered);
    }
}

#[test]
fn operations_belong_to_threads_of_the_graph() {
    let mut graph = EventGraph::new();
    let thread = graph.thread(Position::new(0, 0));
    let init = graph.init(DATA);
    let write = graph.write(thread, weak(DATA)).unwrap();
    let copy = |graph: &mut EventGraph, issues: &[EventId]| {
        graph.asynchronous(issues, weak(DATA), Way::Write)
    };
    assert_eq!(copy(&mut graph, &[]), Err(GraphError::NotIssued));
    assert_eq!(copy(&mut graph, &[init]), Err(GraphError::NotIssued));
    assert_eq!(graph.complete(write, write), Err(GraphError::NotAsynchronous(write)));
}

//! Relations that the events alone decide, whatever a read returns.

use crate::event::{Event, Kind, Returns, Strength};
use crate::graph::EventGraph;
use crate::relation::Relation;

/// Relations that follow from what the events are, before any of them is given a value.
#[derive(Debug, Clone)]
pub struct Skeleton {
    /// Program order, total for each thread (PTX ISA 8.9.1).
    pub program_order: Relation,
    /// Address, data and control dependencies (PTX ISA 8.10.4).
    pub dependency: Relation,
    /// The read of an atomic update with its write.
    pub update: Relation,
    /// Accesses that overlap in physical memory.
    pub overlap: Relation,
    /// Accesses that overlap by the same virtual address (ISCA 2022, section 4.1).
    pub virtual_overlap: Relation,
    /// Moral strength: see [`is_morally_strong`].
    pub morally_strong: Relation,
    /// Release patterns: see [`release_patterns`].
    pub release: Relation,
    /// Acquire patterns: see [`acquire_patterns`].
    pub acquire: Relation,
}

impl Skeleton {
    /// The relations of a graph.
    pub fn of(graph: &EventGraph) -> Skeleton {
        let events = graph.events();
        let size = events.len();
        let program_order = Relation::from_fn(size, |a, b| graph.is_program_order(a, b));
        let overlap = Relation::from_fn(size, |a, b| {
            a != b && both_places(&events[a], &events[b], |p, q| p.overlaps(q))
        });
        let virtual_overlap = Relation::from_fn(size, |a, b| {
            overlap.has(a, b) && both_places(&events[a], &events[b], |p, q| p.mapping == q.mapping)
        });
        let morally_strong = Relation::from_fn(size, |a, b| is_morally_strong(graph, a, b));
        let same_address = program_order.intersection(&virtual_overlap);
        let release = release_patterns(events, &program_order, &same_address);
        let acquire = acquire_patterns(events, &program_order, &same_address);
        Skeleton {
            dependency: edges(size, &graph.dependencies),
            update: edges(size, &graph.updates),
            program_order,
            overlap,
            virtual_overlap,
            morally_strong,
            release,
            acquire,
        }
    }
}

/// A relation of listed pairs.
pub(crate) fn edges(size: usize, pairs: &[(usize, usize)]) -> Relation {
    let mut relation = Relation::empty(size);
    for (from, to) in pairs {
        relation.add(*from, *to);
    }
    relation
}

fn both_places(
    a: &Event,
    b: &Event,
    holds: impl Fn(&crate::event::Place, &crate::event::Place) -> bool,
) -> bool {
    match (a.kind.place(), b.kind.place()) {
        (Some(p), Some(q)) => holds(p, q),
        _ => false,
    }
}

/// Moral strength (PTX ISA 8.7): two operations of one thread, or two strong ones whose scopes each include the
/// other's thread; by the same proxy (ISCA 2022, section 4.2); and, if both access memory, at exactly the same
/// virtual address.
pub fn is_morally_strong(graph: &EventGraph, a: usize, b: usize) -> bool {
    let (first, second) = (&graph.events()[a], &graph.events()[b]);
    let (Some(here), Some(there)) = (graph.position(first), graph.position(second)) else {
        return false;
    };
    if a == b || first.kind.proxy().is_none() || first.kind.proxy() != second.kind.proxy() {
        return false;
    }
    let reaches_each_other = first.thread == second.thread
        || match (first.kind.strong_scope(), second.kind.strong_scope()) {
            (Some(mine), Some(theirs)) => here.shares(there, mine) && there.shares(here, theirs),
            _ => false,
        };
    reaches_each_other
        && match (first.kind.place(), second.kind.place()) {
            (Some(p), Some(q)) => p.is_same_memory(q) && p.mapping == q.mapping,
            _ => true,
        }
}

fn is_strong_write(event: &Event) -> bool {
    matches!(event.kind, Kind::Write(access) if access.strength.is_strong())
}

fn is_strong_read(event: &Event) -> bool {
    matches!(event.kind, Kind::Read(access, Returns::Value) if access.strength.is_strong())
}

/// Release patterns (PTX ISA 8.8), from their first event to their last: a release write and itself or a
/// later strong write to the same address; or a fence that releases and a later strong write anywhere.
pub fn release_patterns(
    events: &[Event],
    program_order: &Relation,
    same_address: &Relation,
) -> Relation {
    let releases = |e: usize| matches!(events[e].kind, Kind::Write(a) if matches!(a.strength, Strength::Release(_)));
    let fences = |e: usize| matches!(events[e].kind, Kind::Fence(order, _) if order.releases());
    let ends = |e: usize| is_strong_write(&events[e]);
    let mut patterns = same_address.reflexive().between(releases, ends);
    patterns.unite(&program_order.between(fences, ends));
    patterns
}

/// Acquire patterns (PTX ISA 8.8), from their first event to their last: a strong read and itself or a later
/// acquire read of the same address; or a strong read and a later fence that acquires. The read of a `red`
/// begins none (8.11.1).
pub fn acquire_patterns(
    events: &[Event],
    program_order: &Relation,
    same_address: &Relation,
) -> Relation {
    let begins = |e: usize| is_strong_read(&events[e]);
    let acquires = |e: usize| matches!(events[e].kind, Kind::Read(a, Returns::Value) if matches!(a.strength, Strength::Acquire(_)));
    let fences = |e: usize| matches!(events[e].kind, Kind::Fence(order, _) if order.acquires());
    let mut patterns = same_address.reflexive().between(begins, acquires);
    patterns.unite(&program_order.between(begins, fences));
    patterns
}

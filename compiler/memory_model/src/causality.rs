//! The orders that an execution adds to its events: observation, synchronisation, base causality, causality.

use crate::event::{Kind, Proxy, ProxyFence, Scope};
use crate::graph::EventGraph;
use crate::relation::Relation;
use crate::skeleton::Skeleton;

/// Observation (PTX ISA 8.9.2): a write is observed by a morally strong read of its value, and by reads of
/// what atomic updates made of it. It begins at a write and ends at a read (decided by `LB+RMW-a`: beginning at
/// the read of an update would order more).
pub fn observation(skeleton: &Skeleton, reads_from: &Relation) -> Relation {
    let strong = reads_from.intersection(&skeleton.morally_strong);
    if skeleton.update.is_empty() {
        return strong;
    }
    strong.then(&skeleton.update).closure().reflexive().then(&strong)
}

/// Synchronisation (PTX ISA 8.9.4): a release pattern whose last write is observed by the first read of an
/// acquire pattern, where the first event of the one and the last of the other are morally strong.
pub fn synchronization(skeleton: &Skeleton, observation: &Relation) -> Relation {
    skeleton
        .release
        .then(observation)
        .then(&skeleton.acquire)
        .intersection(&skeleton.morally_strong)
}

/// Base causality (PTX ISA 8.9.5): program order, synchronisation, barriers, the order of `fence.sc` and what
/// else is known, one after the other.
pub fn base_causality(skeleton: &Skeleton, steps: &[&Relation]) -> Relation {
    let mut base = skeleton.program_order.clone();
    for step in steps {
        base.unite(step);
    }
    base.close();
    base
}

/// Adds asynchronous operations: an access is after what is ahead of a place that issued it, and before what is behind
/// a place that saw it complete. It stands between no two others here: who sees it complete learns nothing of the
/// thread that issued it (`complete_tx` publishes what the copy did alone). Of its own bytes see
/// [`preserved_causality`].
pub fn with_operations(graph: &EventGraph, base: &Relation) -> Relation {
    let mut all = base.clone();
    let reaches = |from: usize, to: usize| from == to || base.has(from, to);
    let size = base.size();
    for operation in &graph.operations {
        for event in 0..size {
            if operation.issues.iter().any(|issue| reaches(event, *issue)) {
                all.add(event, operation.access);
            }
            if operation.seen.iter().any(|seen| reaches(*seen, event)) {
                all.add(operation.access, event);
            }
        }
        for other in &graph.operations {
            let is_after = |issue: &usize| operation.seen.iter().any(|seen| reaches(*seen, *issue));
            if other.issues.iter().any(is_after) {
                all.add(operation.access, other.access);
            }
        }
    }
    all
}

/// Proxy-preserved base causality (ISCA 2022, section 5): the part of base causality that holds although the
/// accesses go different ways.
///
/// An access is *out* of its proxy at itself when that is the generic one, and else at a fence of its proxy in
/// its CTA that base causality puts after it; it is *in* likewise at fences before it. Two accesses of one
/// virtual address are ordered when base causality leads from where the first is out to where the second is in,
/// or when both go the same way in one CTA; two of different virtual addresses need an alias fence between.
///
/// What is asynchronous is also out where it is seen to be complete, which includes that fence for its own bytes
/// (PTX ISA 8.6 and the bulk copies), and two accesses by the async proxy need none within a cluster. What came before
/// it at its own bytes comes before what comes after it there.
pub fn preserved_causality(graph: &EventGraph, skeleton: &Skeleton, base: &Relation) -> Relation {
    let mut preserved = without_operations_between(graph, skeleton, base);
    let events = graph.events();
    let mut has_grown = !graph.operations.is_empty();
    while has_grown {
        has_grown = false;
        for access in graph.operations.iter().map(|operation| operation.access) {
            let Some(own) = events[access].kind.place() else { continue };
            let after: Vec<usize> = preserved.successors(access).collect();
            for first in 0..events.len() {
                let Some(from) = events[first].kind.place() else { continue };
                if !preserved.has(first, access) {
                    continue;
                }
                for &second in &after {
                    let is_new = first != second && !preserved.has(first, second);
                    let to = events[second].kind.place();
                    if is_new && to.is_some_and(|to| own.has_common_of(from, to)) {
                        preserved.add(first, second);
                        has_grown = true;
                    }
                }
            }
        }
    }
    preserved
}

/// The same, but for what operations hand on.
fn without_operations_between(
    graph: &EventGraph,
    skeleton: &Skeleton,
    base: &Relation,
) -> Relation {
    let events = graph.events();
    let size = events.len();
    let is_access = |e: usize| events[e].kind.access().is_some();
    let proxy = |e: usize| events[e].kind.access().map(|access| access.proxy);
    let only_generic = (0..size).all(|e| proxy(e).is_none_or(|p| p == Proxy::Generic));
    let same_address = base.intersection(&skeleton.virtual_overlap);
    let is_alias_fence = |e: usize| events[e].kind == Kind::ProxyFence(ProxyFence::Alias);
    let has_alias_fence = (0..size).any(is_alias_fence);
    if only_generic && !has_alias_fence {
        return same_address;
    }
    let shares = |a: usize, b: usize, scope: Scope| match (
        graph.position(&events[a]),
        graph.position(&events[b]),
    ) {
        (Some(here), Some(there)) => here.shares(there, scope),
        _ => false,
    };
    let shares_cta = |a: usize, b: usize| shares(a, b, Scope::Cta);
    let fences = |fence: usize, access: usize| {
        matches!(events[fence].kind, Kind::ProxyFence(ProxyFence::Proxy(of)) if proxy(access) == Some(of))
            && shares_cta(fence, access)
    };
    // From an access to where it is out of its proxy, and from where it is in to the access.
    let mut leaves = Relation::from_fn(size, |a, b| {
        (a == b && proxy(a) == Some(Proxy::Generic)) || (base.has(a, b) && fences(b, a))
    });
    for operation in &graph.operations {
        operation.seen.iter().for_each(|seen| leaves.add(operation.access, *seen));
    }
    let enters = Relation::from_fn(size, |a, b| {
        (a == b && proxy(b) == Some(Proxy::Generic)) || (base.has(a, b) && fences(a, b))
    });
    let mut preserved = leaves.then(base).then(&enters).intersection(&skeleton.virtual_overlap);
    for (a, b) in same_address.pairs() {
        let reach = if proxy(a) == Some(Proxy::Async) { Scope::Cluster } else { Scope::Cta };
        if is_access(a) && proxy(a) == proxy(b) && shares(a, b, reach) {
            preserved.add(a, b);
        }
    }
    if has_alias_fence {
        let passed = base.between(|_| true, is_alias_fence).then(base);
        preserved.unite(&leaves.then(&passed).then(&enters).intersection(&skeleton.overlap));
    }
    preserved
}

/// Causality (PTX ISA 8.9.5): proxy-preserved base causality, also after an observation.
pub fn causality(observation: &Relation, preserved: &Relation) -> Relation {
    preserved.union(&observation.then(preserved))
}

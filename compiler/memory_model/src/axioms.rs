//! The axioms: an execution is allowed when none of them is violated.

use crate::event::Kind;
use crate::graph::EventGraph;
use crate::relation::Relation;
use crate::skeleton::Skeleton;

/// An axiom of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Axiom {
    /// Values do not come out of nothing.
    NoThinAir,
    /// The order of `fence.sc` agrees with causality.
    FenceSc,
    /// Writes that causality orders have that coherence order.
    Coherence,
    /// Nothing comes between the read and the write of an atomic update.
    Atomicity,
    /// Morally strong accesses of one location are as if interleaved.
    ScPerLocation,
    /// Reads do not see what causality hides from them.
    Causality,
}

impl Axiom {
    /// Every axiom, in the order in which they are checked.
    pub const ALL: [Axiom; 6] = [
        Axiom::NoThinAir,
        Axiom::FenceSc,
        Axiom::Coherence,
        Axiom::Atomicity,
        Axiom::ScPerLocation,
        Axiom::Causality,
    ];

    /// The name in the literature.
    pub const fn name(self) -> &'static str {
        match self {
            Axiom::NoThinAir => "No-Thin-Air",
            Axiom::FenceSc => "Fence-SC",
            Axiom::Coherence => "Coherence",
            Axiom::Atomicity => "Atomicity",
            Axiom::ScPerLocation => "SC-per-Location",
            Axiom::Causality => "Causality",
        }
    }

    /// Where it stands.
    pub const fn source(self) -> &'static str {
        match self {
            Axiom::Coherence => "PTX ISA 8.10.1",
            Axiom::FenceSc => "PTX ISA 8.10.2",
            Axiom::Atomicity => "PTX ISA 8.10.3",
            Axiom::NoThinAir => "PTX ISA 8.10.4",
            Axiom::ScPerLocation => "PTX ISA 8.10.5",
            Axiom::Causality => "PTX ISA 8.10.6",
        }
    }

    /// The axiom as a formula over the relations of this crate.
    pub const fn formula(self) -> &'static str {
        match self {
            Axiom::NoThinAir => "acyclic(rf | dep)",
            Axiom::FenceSc => "irreflexive(sc ; bco)",
            Axiom::Coherence => "acyclic(init-first | cause on overlapping writes)",
            Axiom::Atomicity => "empty(rmw & ((fr & ms) ; (co & ms)))",
            Axiom::ScPerLocation => "acyclic((ms & (rf | co | fr)) | po-same-address)",
            Axiom::Causality => "irreflexive((rf | fr) ; cause)",
        }
    }
}

/// A step of the cycle that an axiom forbids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Edge {
    /// Program order.
    ProgramOrder,
    /// A dependency.
    Dependency,
    /// From a write to a read of its value.
    ReadsFrom,
    /// Coherence order.
    Coherence,
    /// From a read to a write that overwrites what it read.
    FromRead,
    /// The order of `fence.sc`.
    FenceOrder,
    /// Synchronisation.
    Synchronizes,
    /// Barriers.
    Barrier,
    /// An order that was stated.
    Stated,
    /// From where an asynchronous operation is issued to its access.
    Issue,
    /// From its access to where it is seen to be complete.
    Completion,
    /// Observation.
    Observation,
    /// Base causality.
    BaseCausality,
    /// Causality.
    Causality,
    /// From the read to the write of an atomic update.
    Update,
}

impl Edge {
    /// The short name that explanations and drawings use.
    pub const fn name(self) -> &'static str {
        match self {
            Edge::ProgramOrder => "po",
            Edge::Dependency => "dep",
            Edge::ReadsFrom => "rf",
            Edge::Coherence => "co",
            Edge::FromRead => "fr",
            Edge::FenceOrder => "sc",
            Edge::Synchronizes => "sync",
            Edge::Barrier => "bar",
            Edge::Stated => "stated",
            Edge::Issue => "issue",
            Edge::Completion => "done",
            Edge::Observation => "obs",
            Edge::BaseCausality => "bco",
            Edge::Causality => "cause",
            Edge::Update => "rmw",
        }
    }
}

/// One step of a cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The event it starts at.
    pub from: usize,
    /// What relates the two.
    pub edge: Edge,
    /// The event it ends at.
    pub to: usize,
}

/// An axiom with the cycle that violates it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The axiom.
    pub axiom: Axiom,
    /// Steps from an event back to it.
    pub cycle: Vec<Step>,
}

/// A cycle of a union of relations, each step with the name of the first that has it.
fn named_cycle(axiom: Axiom, parts: &[(Edge, &Relation)]) -> Option<Violation> {
    let size = parts.first().map_or(0, |(_, relation)| relation.size());
    let mut all = Relation::empty(size);
    for (_, relation) in parts {
        all.unite(relation);
    }
    if all.is_acyclic() {
        return None;
    }
    let cycle = all
        .cycle()?
        .windows(2)
        .filter_map(|ends| {
            let (from, to) = (ends[0], ends[1]);
            let (edge, _) = parts.iter().find(|(_, relation)| relation.has(from, to))?;
            Some(Step { from, edge: *edge, to })
        })
        .collect();
    Some(Violation { axiom, cycle })
}

/// No-Thin-Air: no value depends on itself.
pub fn no_thin_air(skeleton: &Skeleton, reads_from: &Relation) -> Option<Violation> {
    named_cycle(
        Axiom::NoThinAir,
        &[(Edge::ReadsFrom, reads_from), (Edge::Dependency, &skeleton.dependency)],
    )
}

/// Fence-SC: the order of `fence.sc` never contradicts base causality.
pub fn fence_sc(fence_order: &Relation, base: &Relation) -> Option<Violation> {
    let (from, to) = fence_order.pairs().find(|(from, to)| base.has(*to, *from))?;
    Some(Violation {
        axiom: Axiom::FenceSc,
        cycle: vec![
            Step { from, edge: Edge::FenceOrder, to },
            Step { from: to, edge: Edge::BaseCausality, to: from },
        ],
    })
}

/// Coherence: the coherence order that causality asks for, initial values first, or the cycle in it.
///
/// # Errors
/// Causality orders writes of one location in a circle.
pub fn coherence(
    graph: &EventGraph,
    skeleton: &Skeleton,
    cause: &Relation,
) -> Result<Relation, Box<Violation>> {
    let events = graph.events();
    let is_write = |e: usize| events[e].kind.is_write();
    let is_init = |e: usize| matches!(events[e].kind, Kind::Init(_));
    let writes = skeleton.overlap.reflexive().between(is_write, is_write);
    let asked = cause.intersection(&writes);
    let first = writes.between(is_init, |e| !is_init(e));
    let mut order = asked.union(&first);
    order.close();
    if order.reflexive_event().is_none() {
        return Ok(order);
    }
    let violation =
        named_cycle(Axiom::Coherence, &[(Edge::Causality, &asked), (Edge::Coherence, &first)]);
    Err(Box::new(violation.unwrap_or(Violation { axiom: Axiom::Coherence, cycle: Vec::new() })))
}

/// `fr`: from a read to the writes that come after the one it read from.
pub fn from_read(reads_from: &Relation, coherence: &Relation) -> Relation {
    reads_from.inverse().then(coherence)
}

/// Atomicity: no morally strong write between the read and the write of an atomic update.
pub fn atomicity(
    skeleton: &Skeleton,
    coherence: &Relation,
    from_read: &Relation,
) -> Option<Violation> {
    for (read, write) in skeleton.update.pairs() {
        for between in from_read.successors(read) {
            let is_strong = skeleton.morally_strong.has(read, between)
                && skeleton.morally_strong.has(between, write);
            if is_strong && coherence.has(between, write) {
                return Some(Violation {
                    axiom: Axiom::Atomicity,
                    cycle: vec![
                        Step { from: read, edge: Edge::FromRead, to: between },
                        Step { from: between, edge: Edge::Coherence, to: write },
                        Step { from: write, edge: Edge::Update, to: read },
                    ],
                });
            }
        }
    }
    None
}

/// SC-per-Location: morally strong communication and program order at one address are acyclic.
pub fn sc_per_location(
    skeleton: &Skeleton,
    reads_from: &Relation,
    coherence: &Relation,
    from_read: &Relation,
) -> Option<Violation> {
    let strong = |relation: &Relation| relation.intersection(&skeleton.morally_strong);
    let order = skeleton.program_order.intersection(&skeleton.virtual_overlap);
    named_cycle(
        Axiom::ScPerLocation,
        &[
            (Edge::ReadsFrom, &strong(reads_from)),
            (Edge::Coherence, &strong(coherence)),
            (Edge::FromRead, &strong(from_read)),
            (Edge::ProgramOrder, &order),
        ],
    )
}

/// Causality: no read comes causally before the write that it reads from, or after one that overwrote it.
pub fn causality(
    reads_from: &Relation,
    from_read: &Relation,
    cause: &Relation,
) -> Option<Violation> {
    for (edge, relation) in [(Edge::ReadsFrom, reads_from), (Edge::FromRead, from_read)] {
        if let Some((from, to)) = relation.pairs().find(|(from, to)| cause.has(*to, *from)) {
            return Some(Violation {
                axiom: Axiom::Causality,
                cycle: vec![
                    Step { from, edge, to },
                    Step { from: to, edge: Edge::Causality, to: from },
                ],
            });
        }
    }
    None
}

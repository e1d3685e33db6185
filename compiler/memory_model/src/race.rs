//! What an event graph that was built by hand orders, and which accesses race.

use crate::axioms::{self, Edge, Step, Violation};
use crate::causality;
use crate::event::EventId;
use crate::graph::{EventGraph, Operation};
use crate::relation::Relation;
use crate::skeleton::{self, Skeleton};

/// The orders of a graph.
#[derive(Debug, Clone)]
pub struct Orders {
    skeleton: Skeleton,
    /// Each kind of step of base causality, by name.
    steps: Vec<(Edge, Relation)>,
    base: Relation,
    observation: Relation,
    preserved: Relation,
    cause: Relation,
    operations: Vec<Operation>,
    /// Accesses of threads: initial values race with nobody.
    accesses: Vec<(usize, bool)>,
    /// Accesses that overlap without being of the same bytes.
    partial: Relation,
}

/// Two accesses of which one writes, that nothing orders and that are not both strong enough for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Race {
    /// The one that was added first.
    pub first: EventId,
    /// The other one.
    pub second: EventId,
    /// Whether they overlap only in part: then the model says nothing at all about the program
    /// (PTX ISA 8.2.2 and 8.10).
    pub is_mixed_size: bool,
}

impl Orders {
    /// The orders that follow from the events and the edges of a graph.
    pub fn of(graph: &EventGraph) -> Orders {
        let size = graph.events().len();
        let skeleton = Skeleton::of(graph);
        let reads_from = skeleton::edges(size, &graph.reads_from);
        let observation = causality::observation(&skeleton, &reads_from);
        let steps = vec![
            (Edge::Synchronizes, causality::synchronization(&skeleton, &observation)),
            (Edge::Barrier, skeleton::edges(size, &graph.barriers)),
            (Edge::FenceOrder, skeleton::edges(size, &graph.fence_order)),
            (Edge::Stated, skeleton::edges(size, &graph.stated)),
            (Edge::ProgramOrder, skeleton.program_order.clone()),
        ];
        let parts: Vec<&Relation> = steps.iter().map(|(_, relation)| relation).collect();
        let base = causality::base_causality(&skeleton, &parts);
        let base = causality::with_operations(graph, &base);
        let preserved = causality::preserved_causality(graph, &skeleton, &base);
        let cause = causality::causality(&observation, &preserved);
        let events = graph.events();
        let accesses = (0..size)
            .filter(|event| events[*event].kind.access().is_some())
            .map(|event| (event, events[event].kind.is_write()))
            .collect();
        let partial = Relation::from_fn(size, |a, b| {
            match (events[a].kind.place(), events[b].kind.place()) {
                (Some(p), Some(q)) => p.overlaps(q) && !p.is_same_memory(q),
                _ => false,
            }
        });
        let operations = graph.operations.clone();
        Orders {
            skeleton,
            steps,
            base,
            observation,
            preserved,
            cause,
            operations,
            accesses,
            partial,
        }
    }

    /// Whether base causality orders `first` before `second`. What is no event of the graph is ordered with
    /// nothing.
    pub fn happens_before(&self, first: EventId, second: EventId) -> bool {
        self.knows(first, second) && self.base.has(first.0, second.0)
    }

    /// Whether causality orders the accesses: what `first` did to memory is seen, or not, by `second` as if one
    /// came after the other, whatever way they go. This is what data must be ordered by.
    pub fn causality(&self, first: EventId, second: EventId) -> bool {
        self.knows(first, second) && self.cause.has(first.0, second.0)
    }

    /// Whether two operations are morally strong.
    pub fn morally_strong(&self, first: EventId, second: EventId) -> bool {
        self.knows(first, second) && self.skeleton.morally_strong.has(first.0, second.0)
    }

    /// Whether two accesses race.
    pub fn race(&self, first: EventId, second: EventId) -> Option<Race> {
        let (first, second) = (first.min(second), first.max(second));
        let is_write = |event: EventId| {
            self.accesses
                .binary_search_by_key(&event.0, |(e, _)| *e)
                .ok()
                .map(|at| self.accesses[at].1)
        };
        let writes = [is_write(first)?, is_write(second)?];
        let races = writes.contains(&true)
            && self.skeleton.overlap.has(first.0, second.0)
            && !self.skeleton.morally_strong.has(first.0, second.0)
            && !self.cause.has(first.0, second.0)
            && !self.cause.has(second.0, first.0);
        races.then(|| Race { first, second, is_mixed_size: self.partial.has(first.0, second.0) })
    }

    /// Every race, in the order of the events.
    pub fn races(&self) -> Vec<Race> {
        let mut found = Vec::new();
        for (number, (first, _)) in self.accesses.iter().enumerate() {
            for (second, _) in &self.accesses[number + 1..] {
                found.extend(self.race(EventId(*first), EventId(*second)));
            }
        }
        found
    }

    /// The axiom that the execution violates which `graph` states, of which these are the orders; none when such an
    /// execution may happen. Every read has one write that it reads from. Morally strong writes of one place that
    /// causality does not order count as ordered in neither direction.
    pub fn violation(&self, graph: &EventGraph) -> Option<Violation> {
        let size = self.base.size();
        let reads_from = skeleton::edges(size, &graph.reads_from);
        let fence_order = skeleton::edges(size, &graph.fence_order);
        let coherence = match axioms::coherence(graph, &self.skeleton, &self.cause) {
            Ok(coherence) => coherence,
            Err(violation) => return Some(*violation),
        };
        let from_read = axioms::from_read(&reads_from, &coherence);
        let skeleton = &self.skeleton;
        axioms::no_thin_air(skeleton, &reads_from)
            .or_else(|| axioms::fence_sc(&fence_order, &self.base))
            .or_else(|| axioms::atomicity(skeleton, &coherence, &from_read))
            .or_else(|| axioms::sc_per_location(skeleton, &reads_from, &coherence, &from_read))
            .or_else(|| axioms::causality(&reads_from, &from_read, &self.cause))
    }

    /// The steps by which `first` is ordered before `second`, shortest first; none when they are not ordered.
    pub fn path(&self, first: EventId, second: EventId) -> Option<Vec<Step>> {
        if !self.happens_before(first, second) && !self.causality(first, second) {
            return None;
        }
        // What is asynchronous is where a way begins or ends, and never between.
        let size = self.base.size();
        let (mut issue, mut done) = (Relation::empty(size), Relation::empty(size));
        for operation in &self.operations {
            if operation.access == second.0 {
                operation.issues.iter().for_each(|from| issue.add(*from, second.0));
            }
            if operation.access == first.0 {
                operation.seen.iter().for_each(|to| done.add(first.0, *to));
            }
        }
        let mut parts: Vec<(Edge, &Relation)> = self.steps.iter().map(|(e, r)| (*e, r)).collect();
        parts.extend([(Edge::Issue, &issue), (Edge::Completion, &done)]);
        causal_path(&parts, (&self.observation, &self.preserved), first.0, second.0)
    }

    fn knows(&self, first: EventId, second: EventId) -> bool {
        first.0 < self.base.size() && second.0 < self.base.size()
    }
}

/// The steps of a pair of causality: an observation, if it needs one, and the shortest way through the steps of
/// base causality.
pub(crate) fn causal_path(
    steps: &[(Edge, &Relation)],
    (observation, preserved): (&Relation, &Relation),
    from: usize,
    to: usize,
) -> Option<Vec<Step>> {
    let mut all = Relation::empty(observation.size());
    for (_, relation) in steps {
        all.unite(relation);
    }
    let (start, mut path) = if preserved.has(from, to) || all.path(from, to).is_some() {
        (from, Vec::new())
    } else {
        let middle = observation.successors(from).find(|middle| preserved.has(*middle, to))?;
        (middle, vec![Step { from, edge: Edge::Observation, to: middle }])
    };
    for ends in all.path(start, to)?.windows(2) {
        let (from, to) = (ends[0], ends[1]);
        let (edge, _) = steps.iter().find(|(_, relation)| relation.has(from, to))?;
        path.push(Step { from, edge: *edge, to });
    }
    Some(path)
}

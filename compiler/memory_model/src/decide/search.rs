//! Combinations of traces, and the choices within one.

use std::collections::BTreeMap;

use super::execution::{Events, Execution, origins};
use super::meeting;
use super::supply::{Atomicity, Supply};
use super::trace::{Domain, Trace};
use super::{Limits, Refusals};
use crate::axioms::{self, Violation};
use crate::causality;
use crate::code::{Code, Diagnostic, Spot};
use crate::litmus::{Operand, Quantifier, Test, Word};
use crate::relation::Relation;
use crate::skeleton::{self, Skeleton};

/// The most events of one execution.
const MAX_EVENTS: usize = 256;
/// The most ways in which the barriers of one combination may open.
const MAX_OPENINGS: usize = 4096;

/// How many picks of a trace cost as much as a candidate.
const PICKS_PER_CANDIDATE: u64 = 16;

/// How many candidates are looked at once more to say why a state does not occur.
const CANDIDATES_FOR_REASONS: u64 = 10_000;

/// Looks for an execution that ends in the state that the test asks for.
pub(super) fn run(
    test: &Test,
    traces: &[Vec<Trace>],
    domain: &Domain,
    limits: &Limits,
) -> Result<(Option<Execution>, Refusals, u64), Diagnostic> {
    let search = |limits: &Limits, atomicity| {
        let supply = Supply::of(test, traces, domain, atomicity);
        let (locations, refusals) = (asked(test), Refusals::default());
        let mut search =
            Search { test, limits: *limits, supply, candidates: 0, picks: 0, refusals, locations };
        let witness = search.combine(traces, &mut Vec::new())?;
        Ok((witness, search.refusals, search.candidates))
    };
    let (witness, refusals, candidates) = search(limits, Atomicity::Counted)?;
    if witness.is_none() && refusals.by_axiom.is_empty() && refusals.other_memory == 0 {
        let few = Limits { candidates: CANDIDATES_FOR_REASONS.min(limits.candidates), ..*limits };
        if let Ok((_, refusals, _)) = search(&few, Atomicity::LeftToTheAxiom) {
            return Ok((None, refusals, candidates));
        }
    }
    Ok((witness, refusals, candidates))
}

/// The locations whose final values decide.
fn asked(test: &Test) -> Vec<usize> {
    let mut locations = test.condition.locations();
    locations.extend(test.filter.iter().flat_map(|filter| filter.locations()));
    locations.sort_unstable();
    locations.dedup();
    locations
}

struct Search<'t> {
    test: &'t Test,
    limits: Limits,
    supply: Supply,
    candidates: u64,
    picks: u64,
    refusals: Refusals,
    locations: Vec<usize>,
}

/// One combination of traces with all that does not change while its choices are made.
struct Case<'c> {
    traces: &'c [&'c Trace],
    events: Events,
    skeleton: Skeleton,
    /// Writes that moral strength orders one way or the other.
    rivals: Vec<(usize, usize)>,
    /// `fence.sc` likewise.
    fences: Vec<(usize, usize)>,
    /// The ways in which the barriers may open.
    openings: Vec<Relation>,
}

/// The choices made so far.
#[derive(Clone)]
struct Chosen {
    reads_from: Relation,
    barriers: Relation,
    observation: Relation,
    synchronizes: Relation,
    fence_order: Relation,
    preserved: Relation,
    cause: Relation,
}

impl<'t> Search<'t> {
    fn count(&mut self) -> Result<(), Diagnostic> {
        self.candidates += 1;
        if self.candidates <= self.limits.candidates {
            return Ok(());
        }
        Err(self.too_many())
    }

    fn too_many(&self) -> Diagnostic {
        let message =
            format!("the test has more than {} candidate executions", self.limits.candidates);
        Diagnostic::new(Code::M0202, Spot { line: 1, column: 1 }, message)
    }

    /// Whether a state is the one that is looked for, as far as it is known.
    fn is_wanted(&self, known: &impl Fn(&Operand) -> Option<Word>) -> Option<bool> {
        let passes = self.test.filter.as_ref().map_or(Some(true), |filter| filter.decide(known));
        let ends = match self.test.quantifier {
            Quantifier::Exists | Quantifier::NotExists => self.test.condition.decide(known),
            Quantifier::Forall => self.test.condition.decide(known).map(|holds| !holds),
        };
        match (passes, ends) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        }
    }

    /// Picks a trace for each thread, thread by thread.
    fn combine(
        &mut self,
        all: &[Vec<Trace>],
        picked: &mut Vec<usize>,
    ) -> Result<Option<Execution>, Diagnostic> {
        let known = |operand: &Operand| match operand {
            Operand::Constant(value) => Some(*value),
            Operand::Register(thread, register) => {
                picked.get(*thread).map(|trace| all[*thread][*trace].registers[*register])
            }
            Operand::Location(_) => None,
        };
        if self.is_wanted(&known) == Some(false) || !self.supply.suffices(picked) {
            return Ok(None);
        }
        let Some(traces) = all.get(picked.len()) else {
            let traces: Vec<&Trace> =
                picked.iter().zip(all).map(|(trace, traces)| &traces[*trace]).collect();
            return self.case(&traces);
        };
        for trace in 0..traces.len() {
            picked.push(trace);
            let found = self.combine(all, picked)?;
            picked.pop();
            if found.is_some() {
                return Ok(found);
            }
        }
        // Picking costs little, but there may be much to pick from.
        self.picks += traces.len() as u64;
        if self.picks > self.limits.candidates.saturating_mul(PICKS_PER_CANDIDATE) {
            return Err(self.too_many());
        }
        Ok(None)
    }

    /// Looks at one combination of traces.
    fn case(&mut self, traces: &[&Trace]) -> Result<Option<Execution>, Diagnostic> {
        self.count()?;
        let openings = meeting::choices(self.test, traces, MAX_OPENINGS).ok_or_else(|| {
            let message = format!("barriers open in more than {MAX_OPENINGS} ways");
            Diagnostic::new(Code::M0202, Spot { line: 1, column: 1 }, message)
        })?;
        if openings.is_empty() {
            return Ok(None);
        }
        let events = Events::of(self.test, traces);
        let size = events.values.len();
        if size > MAX_EVENTS {
            let message =
                format!("an execution has {size} events, at most {MAX_EVENTS} are looked at");
            return Err(Diagnostic::new(Code::M0202, Spot { line: 1, column: 1 }, message));
        }
        let skeleton = Skeleton::of(&events.graph);
        let kinds = events.graph.events();
        let pairs = |is: &dyn Fn(usize) -> bool| {
            skeleton
                .morally_strong
                .pairs()
                .filter(|(a, b)| a < b && is(*a) && is(*b))
                .collect::<Vec<_>>()
        };
        let rivals = pairs(&|e| kinds[e].kind.is_write());
        let fences = pairs(&|e| kinds[e].kind.is_sc_fence());
        let openings = openings
            .iter()
            .map(|edges| {
                let number = |(thread, index): &meeting::At| events.starts[*thread] + index;
                let edges: Vec<(usize, usize)> =
                    edges.iter().map(|(from, to)| (number(from), number(to))).collect();
                skeleton::edges(size, &edges)
            })
            .collect();
        let case = Case { traces, events, skeleton, rivals, fences, openings };
        let reads: Vec<usize> =
            (0..size).filter(|e| case.events.graph.events()[*e].kind.is_read()).collect();
        self.read(&case, &reads, &mut Relation::empty(size))
    }

    /// Picks a write for each read, read by read.
    fn read(
        &mut self,
        case: &Case<'_>,
        reads: &[usize],
        reads_from: &mut Relation,
    ) -> Result<Option<Execution>, Diagnostic> {
        let Some((read, rest)) = reads.split_first() else {
            return self.synchronize(case, reads_from);
        };
        let kinds = case.events.graph.events();
        for write in 0..case.events.values.len() {
            let fits = kinds[write].kind.is_write()
                && case.events.values[write] == case.events.values[*read]
                && case.skeleton.overlap.has(write, *read);
            if fits {
                let before = reads_from.clone();
                reads_from.add(write, *read);
                let found = self.read(case, rest, reads_from)?;
                *reads_from = before;
                if found.is_some() {
                    return Ok(found);
                }
            }
        }
        Ok(None)
    }

    fn synchronize(
        &mut self,
        case: &Case<'_>,
        reads_from: &Relation,
    ) -> Result<Option<Execution>, Diagnostic> {
        self.count()?;
        let empty = Relation::empty(reads_from.size());
        let observation = causality::observation(&case.skeleton, reads_from);
        let synchronizes = causality::synchronization(&case.skeleton, &observation);
        for barriers in &case.openings {
            let chosen = Chosen {
                reads_from: reads_from.clone(),
                barriers: barriers.clone(),
                observation: observation.clone(),
                synchronizes: synchronizes.clone(),
                fence_order: empty.clone(),
                preserved: empty.clone(),
                cause: empty.clone(),
            };
            if let Some(violation) = axioms::no_thin_air(&case.skeleton, reads_from) {
                self.refuse(case, &chosen, violation, &empty);
                continue;
            }
            let base = causality::base_causality(&case.skeleton, &[&chosen.synchronizes, barriers]);
            let found = self.order_fences(case, chosen, base)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Orders every two `fence.sc` that moral strength relates.
    fn order_fences(
        &mut self,
        case: &Case<'_>,
        mut chosen: Chosen,
        base: Relation,
    ) -> Result<Option<Execution>, Diagnostic> {
        for (a, b) in &case.fences {
            // What causality orders already has that order.
            for (from, to) in [(*a, *b), (*b, *a)] {
                if base.has(from, to) {
                    chosen.fence_order.add(from, to);
                }
            }
        }
        if let Some(violation) = axioms::fence_sc(&chosen.fence_order, &base) {
            let empty = Relation::empty(base.size());
            self.refuse(case, &chosen, violation, &empty);
            return Ok(None);
        }
        chosen.preserved =
            causality::preserved_causality(&case.events.graph, &case.skeleton, &base);
        chosen.cause = causality::causality(&chosen.observation, &chosen.preserved);
        let order = match axioms::coherence(&case.events.graph, &case.skeleton, &chosen.cause) {
            Ok(order) => order,
            Err(violation) => {
                let empty = Relation::empty(base.size());
                self.refuse(case, &chosen, *violation, &empty);
                return Ok(None);
            }
        };
        let open = case.fences.iter().find(|(a, b)| !base.has(*a, *b) && !base.has(*b, *a));
        let Some((a, b)) = open else {
            return self.order_writes(case, &chosen, order);
        };
        // More order between fences orders more accesses: what is refused now stays refused.
        let from_read = axioms::from_read(&chosen.reads_from, &order);
        if let Some(violation) = axioms::causality(&chosen.reads_from, &from_read, &chosen.cause) {
            self.refuse(case, &chosen, violation, &order);
            return Ok(None);
        }
        for (from, to) in [(*a, *b), (*b, *a)] {
            self.count()?;
            let mut base = base.clone();
            base.add_closed(from, to);
            let found = self.order_fences(case, chosen.clone(), base)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Orders every two writes that moral strength relates.
    fn order_writes(
        &mut self,
        case: &Case<'_>,
        chosen: &Chosen,
        mut order: Relation,
    ) -> Result<Option<Execution>, Diagnostic> {
        Self::force(case, chosen, &mut order);
        let from_read = axioms::from_read(&chosen.reads_from, &order);
        let violation = axioms::atomicity(&case.skeleton, &order, &from_read)
            .or_else(|| {
                axioms::sc_per_location(&case.skeleton, &chosen.reads_from, &order, &from_read)
            })
            .or_else(|| axioms::causality(&chosen.reads_from, &from_read, &chosen.cause));
        if let Some(violation) = violation {
            self.refuse(case, chosen, violation, &order);
            return Ok(None);
        }
        let open = case.rivals.iter().find(|(a, b)| !order.has(*a, *b) && !order.has(*b, *a));
        let Some((a, b)) = open else {
            return Ok(self.end(case, chosen, &order));
        };
        for (from, to) in [(*a, *b), (*b, *a)] {
            self.count()?;
            let mut order = order.clone();
            order.add_closed(from, to);
            let found = self.order_writes(case, chosen, order)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Orders the writes that moral strength relates and that the axioms leave one order: where the other one would
    /// close a cycle at one location, split an update, or hide what a read returned.
    fn force(case: &Case<'_>, chosen: &Chosen, order: &mut Relation) {
        let strong = &case.skeleton.morally_strong;
        let same_address = case.skeleton.program_order.intersection(&case.skeleton.virtual_overlap);
        let read_from =
            |read: usize| (0..case.events.values.len()).find(|w| chosen.reads_from.has(*w, read));
        loop {
            let from_read = axioms::from_read(&chosen.reads_from, order);
            let mut at_one_place =
                chosen.reads_from.union(order).union(&from_read).intersection(strong);
            at_one_place.unite(&same_address);
            at_one_place.close();
            let mut forced = Vec::new();
            for (a, b) in &case.rivals {
                for (from, to) in [(*a, *b), (*b, *a)] {
                    if at_one_place.has(from, to) {
                        forced.push((from, to));
                    }
                }
            }
            for (read, write) in case.skeleton.update.pairs() {
                let Some(source) = read_from(read) else { continue };
                for (a, b) in &case.rivals {
                    let other = if *a == write {
                        *b
                    } else if *b == write {
                        *a
                    } else {
                        continue;
                    };
                    if order.has(source, other) && strong.has(read, other) {
                        forced.push((write, other));
                    }
                }
            }
            for (a, b) in &case.rivals {
                for (source, other) in [(*a, *b), (*b, *a)] {
                    let hides =
                        chosen.reads_from.successors(source).any(|r| chosen.cause.has(other, r));
                    if hides {
                        forced.push((other, source));
                    }
                }
            }
            let before = order.clone();
            for (from, to) in forced {
                // What contradicts is found by whoever checks the axioms.
                if !order.has(to, from) && !order.has(from, to) {
                    order.add_closed(from, to);
                }
            }
            if *order == before {
                return;
            }
        }
    }

    /// Whether memory can end as it is asked for: each object with a write that no other one follows.
    fn end(&mut self, case: &Case<'_>, chosen: &Chosen, order: &Relation) -> Option<Execution> {
        let mut lasts: BTreeMap<u32, Vec<Word>> = BTreeMap::new();
        for location in &self.locations {
            lasts.entry(self.test.locations[*location].object).or_default();
        }
        for (number, event) in case.events.graph.events().iter().enumerate() {
            if let (true, Some(place), Some(value)) =
                (event.kind.is_write(), event.kind.place(), case.events.values[number])
                && let Some(values) = lasts.get_mut(&place.object)
                && order.successors(number).next().is_none()
                && !values.contains(&value)
            {
                values.push(value);
            }
        }
        let mut finals = BTreeMap::new();
        if self.can_end(case, &lasts, &mut finals) {
            let mut execution = self.execution(case, chosen, order);
            execution.finals = self
                .locations
                .iter()
                .filter_map(|at| Some((*at, *finals.get(&self.test.locations[*at].object)?)))
                .collect();
            return Some(execution);
        }
        self.refusals.other_memory += 1;
        None
    }

    fn can_end(
        &self,
        case: &Case<'_>,
        lasts: &BTreeMap<u32, Vec<Word>>,
        finals: &mut BTreeMap<u32, Word>,
    ) -> bool {
        let known = |operand: &Operand| match operand {
            Operand::Constant(value) => Some(*value),
            Operand::Register(thread, register) => Some(case.traces[*thread].registers[*register]),
            Operand::Location(location) => {
                finals.get(&self.test.locations[*location].object).copied()
            }
        };
        if self.is_wanted(&known) == Some(false) {
            return false;
        }
        let Some((object, values)) = lasts.iter().find(|(object, _)| !finals.contains_key(object))
        else {
            return self.is_wanted(&known) == Some(true);
        };
        for value in values {
            finals.insert(*object, *value);
            if self.can_end(case, lasts, finals) {
                return true;
            }
            finals.remove(object);
        }
        false
    }

    fn refuse(&mut self, case: &Case<'_>, chosen: &Chosen, violation: Violation, order: &Relation) {
        let mut refusals = std::mem::take(&mut self.refusals);
        refusals.add(violation, || self.execution(case, chosen, order));
        self.refusals = refusals;
    }

    fn execution(&self, case: &Case<'_>, chosen: &Chosen, order: &Relation) -> Execution {
        Execution {
            graph: case.events.graph.clone(),
            origins: origins(self.test, case.traces),
            reads_from: chosen.reads_from.clone(),
            coherence: order.clone(),
            fence_order: chosen.fence_order.clone(),
            barriers: chosen.barriers.clone(),
            synchronizes: chosen.synchronizes.clone(),
            observation: chosen.observation.clone(),
            preserved: chosen.preserved.clone(),
            registers: case.traces.iter().map(|trace| trace.registers.clone()).collect(),
            finals: Vec::new(),
        }
    }
}

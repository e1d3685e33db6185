//! The decider: looks at every execution of a test.
//!
//! Each thread is run on its own for all values that its reads might return; combinations of such traces are
//! filled with every way in which reads can get those values, barriers can open, `fence.sc` can be ordered and
//! writes can be coherent, and what violates an axiom is dropped as early as possible. The coherence order is
//! kept as small as causality and moral strength ask for: all axioms get harder with more of it, so nothing
//! that is allowed is missed.

mod execution;
mod meeting;
mod search;
mod supply;
mod trace;

pub(crate) use self::execution::reduced;
pub use self::execution::{Execution, Origin};

use crate::axioms::{Axiom, Violation};
use crate::code::{Code, Diagnostic};
use crate::event::{Access, BarrierSide, Kind, Place, Returns};
use crate::litmus::{BarrierMode, Location, Quantifier, Test};

use self::trace::{Action, Bounds};

/// Which text of the model judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Model {
    /// PTX ISA 6.0: scopes, no proxies.
    Ptx60,
    /// PTX ISA 7.5: with proxies.
    Ptx75,
}

impl Model {
    /// Every model.
    pub const ALL: [Model; 2] = [Model::Ptx60, Model::Ptx75];

    /// The version.
    pub const fn name(self) -> &'static str {
        match self {
            Model::Ptx60 => "6.0",
            Model::Ptx75 => "7.5",
        }
    }
}

/// How far the decider goes before it gives up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How often a path may run through a loop.
    pub unroll: u32,
    /// The most candidates that are looked at.
    pub candidates: u64,
    /// The most paths of one thread.
    pub traces: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { unroll: 1, candidates: 4_000_000, traces: 100_000 }
    }
}

/// The answer to a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// An execution ends in the state that `exists` or `~exists` names.
    Allowed,
    /// None does.
    Forbidden,
    /// All executions end as `forall` says.
    Holds,
    /// One does not.
    Violated,
}

impl Verdict {
    /// The word of the answer.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Allowed => "allowed",
            Verdict::Forbidden => "forbidden",
            Verdict::Holds => "holds",
            Verdict::Violated => "violated",
        }
    }
}

/// Why the state that was looked for does not occur.
#[derive(Debug, Clone, Default)]
pub struct Refusals {
    /// For each axiom that refused executions with that state: how many, and the first of them.
    pub by_axiom: Vec<Refusal>,
    /// Executions that all axioms allow, with the right registers and other values in memory.
    pub other_memory: u64,
}

/// Executions that one axiom refused.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// How many; later axioms are not looked at once one refused.
    pub count: u64,
    /// The cycle in the first of them.
    pub violation: Violation,
    /// The first of them.
    pub execution: Execution,
}

impl Refusals {
    /// The refusal that stands for all: the axiom that refused most, and of equal ones the one checked last.
    pub fn typical(&self) -> Option<&Refusal> {
        self.by_axiom.iter().max_by_key(|refusal| (refusal.count, refusal.violation.axiom))
    }

    fn add(&mut self, violation: Violation, execution: impl FnOnce() -> Execution) {
        let axiom: Axiom = violation.axiom;
        match self.by_axiom.iter_mut().find(|refusal| refusal.violation.axiom == axiom) {
            Some(refusal) => refusal.count += 1,
            None => self.by_axiom.push(Refusal { count: 1, violation, execution: execution() }),
        }
    }
}

/// What the decider found.
#[derive(Debug, Clone)]
pub struct Decision {
    /// The answer.
    pub verdict: Verdict,
    /// An execution that ends in the state that was looked for: the one that `exists` names, or one that breaks
    /// `forall`.
    pub witness: Option<Execution>,
    /// Why there is none.
    pub refusals: Refusals,
    /// How many candidates were looked at.
    pub candidates: u64,
    /// Threads that come to no end within the bound of loops, whatever they read: with one, no execution is complete.
    pub endless: Vec<usize>,
}

/// Decides a test.
///
/// # Errors
/// The model has no proxies and the test has (M0201), or there is more to look at than the limits allow (M0202).
pub fn decide(test: &Test, model: Model, limits: &Limits) -> Result<Decision, Diagnostic> {
    if model == Model::Ptx60
        && let Some(spot) = test.proxies
    {
        let message = "model 6.0 knows neither proxies nor aliases; model 7.5 does";
        return Err(Diagnostic::new(Code::M0201, spot, message));
    }
    let bounds = Bounds { unroll: limits.unroll.max(1), traces: limits.traces, values: 256 };
    let (traces, domain) = trace::traces(test, bounds)?;
    let (witness, refusals, candidates) = search::run(test, &traces, &domain, limits)?;
    let verdict = match (test.quantifier, witness.is_some()) {
        (Quantifier::Exists | Quantifier::NotExists, true) => Verdict::Allowed,
        (Quantifier::Exists | Quantifier::NotExists, false) => Verdict::Forbidden,
        (Quantifier::Forall, true) => Verdict::Violated,
        (Quantifier::Forall, false) => Verdict::Holds,
    };
    let endless = (0..traces.len()).filter(|&thread| traces[thread].is_empty()).collect();
    Ok(Decision { verdict, witness, refusals, candidates, endless })
}

/// The bytes of a location: every one is a word of 64 bits.
fn place(location: &Location) -> Place {
    Place { object: location.object, mapping: location.mapping, offset: 0, bytes: 8 }
}

/// An action as an event.
fn kind(test: &Test, action: &Action) -> Kind {
    match action {
        Action::Read { memory, returns, .. } => {
            let place = place(&test.locations[memory.location]);
            let access = Access { place, strength: memory.read, proxy: memory.proxy };
            Kind::Read(access, if *returns { Returns::Value } else { Returns::Nothing })
        }
        Action::Write { memory, .. } => {
            let place = place(&test.locations[memory.location]);
            Kind::Write(Access { place, strength: memory.write, proxy: memory.proxy })
        }
        Action::Fence(order, scope) => Kind::Fence(*order, *scope),
        Action::ProxyFence(fence) => Kind::ProxyFence(*fence),
        Action::Barrier { mode: BarrierMode::Sync, .. } => Kind::Barrier(BarrierSide::Sync),
        Action::Barrier { mode: BarrierMode::Arrive, .. } | Action::ClusterArrive(_) => {
            Kind::Barrier(BarrierSide::Arrive)
        }
        Action::ClusterWait => Kind::Barrier(BarrierSide::Wait),
    }
}

//! Signals and waits for them, arrivals and the last one, and slots that follow epochs.
//!
//! A wait has an edge from what all that may satisfy it have in common. Words between CTAs add up as E0174 and E0115
//! prove, so a wait is behind the signals of all CTAs that share its word. A word between ranks is raised by one signal
//! in each launch, by 1, and awaited until the epoch plus 1: so the wait of launch t is behind the signal of launch t of
//! each sender. Where this does not show, there is no edge.

use std::collections::BTreeMap;

use super::super::scalars::{Form, Knowledge, Symbol};
use super::agents::Scope;
use super::graph::Edge;
use super::touch::Memory;
use super::trace::Trace;
use crate::kernel::{
    Await, Extent, Kernel, Op, ParamId, RANK, Signal, StmtKind, Storage, ValueId, Words,
};
use crate::ops::BinaryOp;

/// What is left out where CTAs share a word by a quotient or a remainder of their number.
pub(super) const DIGITS: &str = "words that a digit of the CTA's number names (E0115, E0174)";

/// How values are computed.
pub(super) type Ops<'k> = BTreeMap<ValueId, &'k Op>;

/// Adds the edges of words, and gives slots of memory of ranks the number of their launch.
pub(super) fn connect(trace: &mut Trace<'_>, ops: &Ops<'_>) {
    match trace.scope {
        Scope::Threads | Scope::Cluster | Scope::Grid => between_ctas(trace),
        Scope::Ranks => between_ranks(trace, ops),
    }
}

/// A word whose index is more than a sum of the CTA's indices and scalars: who shares it is not in the graph.
fn is_digit(form: &Form) -> bool {
    !form.terms.keys().all(|symbol| matches!(symbol, Symbol::Cta(_) | Symbol::Param(_)))
}

/// The axes of the grid along which CTAs share the word.
fn shared(form: &Form) -> [bool; 3] {
    if is_digit(form) {
        return [false; 3];
    }
    let own = |axis: u8| form.terms.contains_key(&Symbol::Cta(axis));
    [!own(0), !own(1), !own(2)]
}

fn between_ctas(trace: &mut Trace<'_>) {
    let mut edges = Vec::new();
    for from in &trace.arrivals {
        for to in &trace.arrivals {
            // Which arrival a further one of the same CTA follows is not known.
            let again = trace.arrivals.iter().any(|other| {
                other.group == to.group && other.word == to.word && other.arrival != to.arrival
            });
            if from.group != to.group && from.word == to.word && !again {
                edges.push((from.arrival, to.last, Edge::Last(shared(&from.word.1))));
            }
        }
    }
    for signal in &trace.signals {
        let StmtKind::Signal(raised) = &signal.stmt.kind else { continue };
        for wait in &trace.awaits {
            let StmtKind::Await(awaited) = &wait.stmt.kind else { continue };
            let [Some(at)] = awaited.index.as_slice() else { continue };
            let form = trace.known.form(*at);
            let of = &trace.kernel.params[raised.param];
            // A wait is for all that share the word, its own CTA included.
            let group = |agent: usize| trace.agents[agent].group();
            if trace.scope != Scope::Grid && group(signal.agent) != group(wait.agent) {
                continue;
            }
            if raised.param == awaited.param
                && !of.is_flag()
                && signal.index.as_slice() == [form.clone()]
            {
                edges.push((signal.event, wait.event, Edge::Signal(shared(&form))));
            }
        }
    }
    let words = trace.arrivals.iter().map(|arrived| &arrived.word.1);
    let mut words = words.chain(trace.signals.iter().flat_map(|signal| &signal.index));
    if trace.scope == Scope::Grid && words.any(is_digit) {
        trace.left_out.insert(DIGITS.to_owned());
    }
    for (from, to, edge) in edges {
        trace.graph.edge(from, to, edge);
    }
}

/// The word of an epoch that a value is, but for conversions and a mask of `slots - 1`.
fn epoch(
    known: &Knowledge<'_>,
    kernel: &Kernel,
    ops: &Ops<'_>,
    mut value: ValueId,
    slots: Option<u32>,
) -> Option<(ParamId, Form)> {
    let mut is_masked = slots.is_none();
    loop {
        match ops.get(&value)? {
            Op::Convert { x } => value = *x,
            Op::Binary { op: BinaryOp::And, a, b } if !is_masked => {
                let mask = slots.map(|slots| i128::from(slots) - 1);
                if known.form(*b).as_constant() != mask {
                    return None;
                }
                (value, is_masked) = (*a, true);
            }
            Op::Load { access, .. } if is_masked => {
                let Storage::Buffer(param) = access.storage else { return None };
                let [crate::kernel::AxisIndex::At(at)] = access.index.as_slice() else {
                    return None;
                };
                let is_epoch = kernel.params[param].words == Some(Words::Epoch);
                return is_epoch.then(|| (param, known.form(*at)));
            }
            _ => return None,
        }
    }
}

fn until(trace: &Trace<'_>, ops: &Ops<'_>, wait: &Await) -> Option<(ParamId, Form)> {
    let Op::Binary { op: BinaryOp::Add, a, b } = ops.get(&wait.until)? else { return None };
    let one = |value: ValueId| trace.known.form(value).as_constant() == Some(1);
    let value = match (one(*a), one(*b)) {
        (false, true) => *a,
        (true, false) => *b,
        (_, _) => return None,
    };
    epoch(trace.known, trace.kernel, ops, value, None)
}

/// The one signal and the one wait of a flag, if both mean one word.
fn protocol<'k>(trace: &Trace<'k>, flag: ParamId) -> Option<(&'k Signal, &'k Await)> {
    let mut signals: Vec<&'k Signal> = Vec::new();
    let mut waits: Vec<&'k Await> = Vec::new();
    for told in &trace.signals {
        if let StmtKind::Signal(signal) = &told.stmt.kind
            && signal.param == flag
            && !signals.iter().any(|known| std::ptr::eq(*known, signal))
        {
            signals.push(signal);
        }
    }
    for told in &trace.awaits {
        if let StmtKind::Await(wait) = &told.stmt.kind
            && wait.param == flag
            && !waits.iter().any(|known| std::ptr::eq(*known, wait))
        {
            waits.push(wait);
        }
    }
    let (&[signal], &[wait]) = (signals.as_slice(), waits.as_slice()) else { return None };
    let each = wait.each()?;
    let form = |value: ValueId| trace.known.form(value);
    let is_rank = |value: ValueId| {
        let form = form(value);
        let terms: Vec<_> = form.terms.iter().collect();
        matches!(terms.as_slice(), [(Symbol::Param(param), 1)]
            if form.constant == 0 && trace.kernel.params[*param].name == RANK)
    };
    let mut words = signal.index.iter().zip(&wait.index).enumerate();
    let is_one_word = words.all(|(axis, (&raised, awaited))| match awaited {
        Some(awaited) => form(raised) == form(*awaited),
        None => axis == each && is_rank(raised),
    });
    (is_one_word && signal.add == 1 && signal.to.is_none()).then_some((signal, wait))
}

fn between_ranks(trace: &mut Trace<'_>, ops: &Ops<'_>) {
    let flags = trace.kernel.params.iter_enumerated().filter(|(_, param)| param.is_flag());
    let flags: Vec<ParamId> = flags.map(|(flag, _)| flag).collect();
    let mut edges = Vec::new();
    let mut epochs = Vec::new();
    for flag in flags {
        let tells_one = trace.signals.iter().any(|told| {
            matches!(&told.stmt.kind, StmtKind::Signal(signal) if signal.param == flag && signal.to.is_some())
        });
        if tells_one {
            trace.left_out.insert("signals to one rank (E0134)".to_owned());
        }
        let Some((_, wait)) = protocol(trace, flag) else { continue };
        let Some(epoch) = until(trace, ops, wait) else { continue };
        epochs.push(epoch);
        for signal in &trace.signals {
            let StmtKind::Signal(raised) = &signal.stmt.kind else { continue };
            for wait in &trace.awaits {
                let StmtKind::Await(awaited) = &wait.stmt.kind else { continue };
                let launch = |agent: usize| trace.agents[agent].launch;
                let is_meant = raised.param == flag && awaited.param == flag;
                if is_meant && launch(signal.agent) == launch(wait.agent) {
                    edges.push((signal.event, wait.event, Edge::Signal([true; 3])));
                }
            }
        }
    }
    for (from, to, edge) in edges {
        trace.graph.edge(from, to, edge);
    }
    let (known, kernel) = (trace.known, trace.kernel);
    for touch in &mut trace.touches {
        let Memory::Buffer(param) = touch.memory else { continue };
        let Some(Extent::Const(slots)) = kernel.params[param].shape.first() else { continue };
        let slot = touch.first.and_then(|slot| epoch(known, kernel, ops, slot, Some(*slots)));
        if slot.is_some_and(|slot| epochs.contains(&slot)) {
            touch.epoch_slot = Some(trace.agents[touch.agent].launch % slots);
        }
    }
}

//! R8: why slots and words may be used again, in a later round or a later launch.

use std::collections::BTreeMap;

use kernel_dsl::diag::Fact;
use kernel_dsl::source::Span;
use petgraph::visit::EdgeRef;

use super::agents::Scope;
use super::graph::Edge;
use super::trace::Trace;
use super::{Proof, Proofs, Verdict};
use crate::kernel::{Kernel, Op, ParamId, PipeOp, Stmt, StmtKind, Words, each_pipe_op};

/// One line for each ring of a pipeline, each word between CTAs or launches, and each flag between ranks.
pub(super) fn reuse(trace: &Trace<'_>, proofs: &mut Proofs) {
    match trace.scope {
        Scope::Threads => {
            rings(trace, proofs);
            words(trace.kernel, proofs);
        }
        Scope::Ranks => flags(trace, proofs),
        Scope::Cluster | Scope::Grid => {}
    }
}

/// Where a word is counted or raised first, and where that is waited for.
#[derive(Default)]
struct Uses {
    count: Option<Span>,
    tickets: Option<Span>,
    signal: Option<Span>,
    wait: Option<Span>,
    advance: Option<Span>,
}

fn find_uses(stmts: &[Stmt], found: &mut BTreeMap<ParamId, Uses>) {
    for stmt in stmts {
        let mut note = |param: ParamId, part: fn(&mut Uses) -> &mut Option<Span>| {
            part(found.entry(param).or_default()).get_or_insert(stmt.span);
        };
        match &stmt.kind {
            StmtKind::Def { op: Op::ArriveLast { word, .. }, .. } => {
                note(word.param, |uses| &mut uses.count);
            }
            StmtKind::For { tickets: Some(word), .. } => {
                note(word.param, |uses| &mut uses.tickets);
            }
            StmtKind::Signal(signal) => note(signal.param, |uses| &mut uses.signal),
            StmtKind::Await(wait) => note(wait.param, |uses| &mut uses.wait),
            StmtKind::Advance { word } => note(word.param, |uses| &mut uses.advance),
            _ => {}
        }
        for body in stmt.kind.bodies() {
            find_uses(body, found);
        }
    }
}

/// R8 for words of counters and epochs.
fn words(kernel: &Kernel, proofs: &mut Proofs) {
    let mut found = BTreeMap::new();
    find_uses(&kernel.body, &mut found);
    for (param, uses) in found {
        let fact = Fact::new("reuse");
        let told = match (kernel.params[param].words, &uses) {
            (Some(Words::Counter), Uses { count: Some(at), .. }) => {
                let why = fact.text("all who share a word arrive once in each launch (").line(*at);
                let why = why.text("), which E0115 proves, and the last one sets it back to zero: each launch finds zero");
                Some((why, [*at, *at]))
            }
            (Some(Words::Counter), Uses { tickets: Some(at), .. }) => {
                let why = fact.text("every CTA comes to the list once (").line(*at);
                let why = why.text("), which E0115 proves, so all tickets and one more for each CTA are taken, and who takes the last one sets the word back to zero: each launch finds zero");
                Some((why, [*at, *at]))
            }
            (Some(Words::Raised), Uses { signal: Some(signal), wait: Some(wait), .. }) => {
                let why = fact.text("in launch t each CTA that shares a word raises it once (");
                let why = why
                    .line(*signal)
                    .text("), to t + 1 times what they add together, which all wait for (")
                    .line(*wait);
                let why = why.text("), as E0174 proves; nothing clears it, and a CTA raises it for launch t + 1 when its launch t has ended, behind that wait");
                Some((why, [*signal, *wait]))
            }
            (Some(Words::Epoch), Uses { advance: Some(at), .. }) => {
                let why =
                    fact.text("each CTA advances its own word once in each launch (").line(*at);
                let why = why
                    .text("), behind all that reads it, which E0117 proves: in launch t it is t");
                Some((why, [*at, *at]))
            }
            (_, _) => None,
        };
        let Some((why, places)) = told else { continue };
        proofs.proofs.push(Proof {
            memory: kernel.params[param].name.clone(),
            places,
            between: "launches",
            verdict: Verdict::Ordered,
            why,
            open: None,
        });
    }
}

/// R8 for pipelines: who opens an index again is behind those who were done with its slot.
fn rings(trace: &Trace<'_>, proofs: &mut Proofs) {
    let kernel = trace.kernel;
    for (id, barrier) in kernel.barriers.iter_enumerated() {
        let Some(partner) = barrier.partner else { continue };
        let (mut open, mut free) = (None, None);
        each_pipe_op(&kernel.body, &mut |op, span| match op {
            PipeOp::Open { full, .. } if *full == id => open = open.or(Some(span)),
            PipeOp::Release { barrier, .. } | PipeOp::Commit { barrier, .. }
                if *barrier == partner =>
            {
                free = free.or(Some(span));
            }
            _ => {}
        });
        let (Some(open), Some(free)) = (open, free) else { continue };
        let name = barrier.name.strip_suffix(".full").unwrap_or(&barrier.name);
        let slots = barrier.slots;
        let why = Fact::new("reuse")
            .text("the slot of index t comes back at index t + ")
            .text(format!("{slots}: the arrival at t ("))
            .line(free)
            .text(") -barrier-> `open` at t + ")
            .text(format!("{slots} ("))
            .line(open)
            .text("), since indices come in order, which E0154 proves");
        proofs.proofs.push(Proof {
            memory: name.to_owned(),
            places: [free, open],
            between: "rounds of a pipeline",
            verdict: Verdict::Ordered,
            why,
            open: None,
        });
    }
}

/// R8 for words of ranks: one signal in each launch, and the wait for the epoch plus 1.
fn flags(trace: &Trace<'_>, proofs: &mut Proofs) {
    let mut told = Vec::new();
    for edge in trace.graph.events.edge_references() {
        if !matches!(edge.weight(), Edge::Signal(_)) {
            continue;
        }
        let signal = trace.signals.iter().find(|told| told.event == edge.source());
        let wait = trace.awaits.iter().find(|told| told.event == edge.target());
        let (Some(signal), Some(wait)) = (signal, wait) else { continue };
        let StmtKind::Signal(raised) = &signal.stmt.kind else { continue };
        if told.contains(&raised.param) {
            continue;
        }
        told.push(raised.param);
        let why = Fact::new("reuse")
            .text("in launch t each sender raises its word once, by 1 (")
            .line(signal.stmt.span)
            .text("), to t + 1, which all wait for (")
            .line(wait.stmt.span)
            .text("): who is behind the wait of launch t is behind what every rank did before its signal of launch t, and no rank is two launches ahead of another one");
        proofs.proofs.push(Proof {
            memory: trace.kernel.params[raised.param].name.clone(),
            places: [signal.stmt.span, wait.stmt.span],
            between: "launches of ranks",
            verdict: Verdict::Ordered,
            why,
            open: None,
        });
    }
}

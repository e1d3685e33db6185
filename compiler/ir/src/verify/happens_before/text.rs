//! Proofs and graphs as text.

use kernel_dsl::diag::Fact;
use kernel_dsl::source::SourceMap;
use petgraph::visit::EdgeRef;

use super::graph::{Edge, Path};
use super::trace::Trace;
use super::{Proof, Proofs, Verdict};
use crate::kernel::{PipeOp, StmtKind, each_pipe_op};

/// Events of a path that are shown; the middle of longer ones is left out.
const MAX_SHOWN: usize = 9;

/// The events of a path and the edges between them; forks and joins are left out, and what one thread does in turn.
pub(super) fn path(trace: &Trace<'_>, path: &Path, mut fact: Fact) -> Fact {
    let mut shown: Vec<(Option<Edge>, usize)> = Vec::new();
    let mut carried: Option<Edge> = None;
    for (number, (edge, event)) in path.iter().enumerate() {
        let edge = edge.filter(|edge| *edge != Edge::Then);
        carried = carried.or(edge);
        let next = path.get(number + 1).and_then(|(edge, _)| *edge);
        let is_end = number == 0 || number + 1 == path.len();
        let leads = next.is_some_and(|next| next != Edge::Then);
        let is_event = !trace.graph.events[*event].what.is_empty();
        if is_event && (is_end || carried.is_some() || leads) {
            shown.push((carried.take(), number));
        }
    }
    let skipped = shown.len().saturating_sub(MAX_SHOWN);
    let middle = shown.len().saturating_sub(skipped) / 2;
    for (at, (edge, number)) in shown.iter().enumerate() {
        if skipped > 0 && at == middle {
            fact = fact.text(format!(" -> … {skipped} more …"));
        }
        if skipped > 0 && (middle..middle + skipped).contains(&at) {
            continue;
        }
        let Some((_, event)) = path.get(*number) else { continue };
        let event = &trace.graph.events[*event];
        let arrow = match edge {
            Some(edge) => format!(" -{}-> ", edge.name()),
            None if at == 0 => String::new(),
            None => " -> ".to_owned(),
        };
        fact = fact.text(format!("{arrow}{} (", event.what)).line(event.span);
        let is_end = at == 0 || at + 1 == shown.len();
        fact = fact.text(if is_end { format!(", {})", event.who) } else { ")".to_owned() });
    }
    fact
}

/// R8 for pipelines: who opens an index again is behind those who were done with its slot.
pub(super) fn rings(trace: &Trace<'_>, proofs: &mut Proofs) {
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
        });
    }
}

/// R8 for words of ranks: one signal in each launch, and the wait for the epoch plus 1.
pub(super) fn flags(trace: &Trace<'_>, proofs: &mut Proofs) {
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
        });
    }
}

impl Proof {
    /// One line.
    pub fn line(&self, sources: &SourceMap) -> String {
        let home = self.places[0].file;
        let (memory, verdict, between) = (&self.memory, self.verdict.name(), self.between);
        format!("`{memory}`, {between}: {verdict}: {}", self.why.resolved(sources, Some(home)))
    }
}

impl Proofs {
    /// One line for each proof, and one for what the graph does not have.
    pub fn lines(&self, sources: &SourceMap) -> Vec<String> {
        let mut lines: Vec<String> = self.proofs.iter().map(|proof| proof.line(sources)).collect();
        lines.dedup();
        if !self.left_out.is_empty() {
            let names: Vec<&str> = self.left_out.iter().map(String::as_str).collect();
            lines.push(format!("not in the graph: {}", names.join("; ")));
        }
        lines
    }

    /// The graphs for Graphviz.
    pub fn dot(&self, sources: &SourceMap, name: &str) -> String {
        let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
        let mut out = format!("digraph \"{}\" {{\n  node [shape=box];\n", quoted(name));
        for (number, (scope, graph)) in self.graphs.iter().enumerate() {
            out.push_str(&format!(
                "  subgraph cluster_{number} {{\n    label=\"{}\";\n",
                scope.name()
            ));
            for event in graph.events.node_indices() {
                let what = &graph.events[event];
                let id = event.index();
                if what.what.is_empty() {
                    out.push_str(&format!("    g{number}_{id} [shape=point];\n"));
                    continue;
                }
                let line = sources.start(what.span).line;
                let label = format!("{}\\n{}, line {line}", quoted(&what.what), quoted(&what.who));
                out.push_str(&format!("    g{number}_{id} [label=\"{label}\"];\n"));
            }
            for edge in graph.events.edge_references() {
                let (from, to) = (edge.source().index(), edge.target().index());
                let label = match edge.weight() {
                    Edge::Then => String::new(),
                    edge => format!(" [label=\"{}\"]", edge.name()),
                };
                out.push_str(&format!("    g{number}_{from} -> g{number}_{to}{label};\n"));
            }
            out.push_str("  }\n");
        }
        out.push_str("}\n");
        out
    }
}

//! Proofs and graphs as text.

use kernel_dsl::diag::Fact;
use kernel_dsl::source::SourceMap;
use petgraph::visit::EdgeRef;

use super::graph::{Edge, Path};
use super::trace::Trace;
use super::{Proof, Proofs};

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

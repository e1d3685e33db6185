//! Decisions for people: the execution that was found or the axiom that forbids it, as text and as a drawing.

use std::fmt::Write as _;

use crate::axioms::{Edge, Step, Violation};
use crate::decide::{Decision, Execution, Refusal, reduced};
use crate::litmus::{Quantifier, Test};
use crate::race::causal_path;
use crate::relation::Relation;

/// The decision in words, in lines that are indented by two.
pub fn text(test: &Test, decision: &Decision) -> String {
    let mut lines = String::new();
    match (&decision.witness, decision.refusals.typical()) {
        (Some(execution), _) => {
            let end = match test.quantifier {
                Quantifier::Exists | Quantifier::NotExists => "ends so",
                Quantifier::Forall => "does not end so",
            };
            line(&mut lines, 1, &format!("this execution {end}:"));
            program(&mut lines, test, execution);
            reads(&mut lines, test, execution);
            line(&mut lines, 2, &format!("end: {}", end_state(test, execution)));
        }
        (None, Some(refusal)) => refused(&mut lines, test, decision, refusal),
        (None, None) if decision.refusals.other_memory > 0 => line(
            &mut lines,
            1,
            "executions with these registers end with other values in memory, as writes have an order",
        ),
        (None, None) => {
            let why = "no choice of paths and values ends so, whatever memory order would allow";
            line(&mut lines, 1, why);
        }
    }
    lines
}

fn line(lines: &mut String, depth: usize, text: &str) {
    lines.push_str(&"  ".repeat(depth));
    lines.push_str(text.trim_end());
    lines.push('\n');
}

fn refused(lines: &mut String, test: &Test, decision: &Decision, typical: &Refusal) {
    for refusal in &decision.refusals.by_axiom {
        let axiom = refusal.violation.axiom;
        let (count, s) = (refusal.count, if refusal.count == 1 { "" } else { "s" });
        let (name, formula, source) = (axiom.name(), axiom.formula(), axiom.source());
        let text = format!("{name} refuses {count} candidate{s}: {formula} ({source})");
        line(lines, 1, &text);
    }
    if decision.refusals.other_memory > 0 {
        let count = decision.refusals.other_memory;
        line(lines, 1, &format!("{count} end with other values in memory"));
    }
    line(lines, 1, &format!("a candidate that {} refuses:", typical.violation.axiom.name()));
    program(lines, test, &typical.execution);
    reads(lines, test, &typical.execution);
    line(lines, 2, "its cycle:");
    for step in &typical.violation.cycle {
        line(lines, 3, &spelled(test, &typical.execution, step));
        for part in parts(&typical.execution, step) {
            line(lines, 4, &spelled(test, &typical.execution, &part));
        }
    }
}

fn spelled(test: &Test, execution: &Execution, step: &Step) -> String {
    let name = |event| name(test, execution, event);
    format!("{}  -{}->  {}", name(step.from), step.edge.name(), name(step.to))
}

/// An event by thread and what it does.
pub fn name(test: &Test, execution: &Execution, event: usize) -> String {
    let origin = &execution.origins[event];
    match origin.thread {
        Some(thread) => format!("P{}: {}", test.threads[thread].number, origin.label),
        None => origin.label.clone(),
    }
}

/// What a step of causality consists of.
pub fn parts(execution: &Execution, step: &Step) -> Vec<Step> {
    if !matches!(step.edge, Edge::Causality | Edge::BaseCausality) {
        return Vec::new();
    }
    let steps = execution.steps();
    let steps: Vec<(Edge, &Relation)> = steps.iter().map(|(e, r)| (*e, r)).collect();
    causal_path(&steps, (&execution.observation, &execution.preserved), step.from, step.to)
        .unwrap_or_default()
}

fn program(lines: &mut String, test: &Test, execution: &Execution) {
    for (number, thread) in test.threads.iter().enumerate() {
        let position = thread.position;
        let cluster = position.cluster.map_or(String::new(), |c| format!(",cluster {c}"));
        let head = format!("P{}@cta {}{cluster},gpu {}", thread.number, position.cta, position.gpu);
        line(lines, 2, &head);
        for origin in execution.origins.iter().filter(|origin| origin.thread == Some(number)) {
            let source = &thread.code[origin.line].text;
            line(lines, 3, &format!("{:<24} {source}", origin.label));
        }
    }
}

fn reads(lines: &mut String, test: &Test, execution: &Execution) {
    for (write, read) in execution.reads_from.pairs() {
        let (read, write) = (name(test, execution, read), name(test, execution, write));
        line(lines, 2, &format!("{read}  reads from  {write}"));
    }
    for (first, second) in execution.fence_order.pairs() {
        let (first, second) = (name(test, execution, first), name(test, execution, second));
        line(lines, 2, &format!("{first}  stands before  {second}"));
    }
}

/// What registers and the locations that were asked for hold at the end.
pub fn end_state(test: &Test, execution: &Execution) -> String {
    let mut state = Vec::new();
    for (thread, values) in test.threads.iter().zip(&execution.registers) {
        for (register, value) in thread.registers.iter().zip(values) {
            state.push(format!("P{}:{register}={value}", thread.number));
        }
    }
    for (location, value) in &execution.finals {
        state.push(format!("{}={value}", test.locations[*location].name));
    }
    state.join(" ")
}

/// The execution of a decision as a drawing for Graphviz; a refused one with the cycle that refuses it.
/// `None` when there is no execution to draw.
pub fn dot(test: &Test, decision: &Decision) -> Option<String> {
    match (&decision.witness, decision.refusals.typical()) {
        (Some(execution), _) => Some(drawing(test, execution, None)),
        (None, Some(refusal)) => Some(drawing(test, &refusal.execution, Some(&refusal.violation))),
        (None, None) => None,
    }
}

/// The colour of an edge.
const fn colour(edge: Edge) -> &'static str {
    match edge {
        Edge::ProgramOrder | Edge::Update | Edge::Dependency => "black",
        Edge::ReadsFrom | Edge::Observation => "forestgreen",
        Edge::Coherence => "blue",
        Edge::FromRead => "darkorange",
        Edge::FenceOrder => "purple",
        Edge::Synchronizes | Edge::Barrier | Edge::Issue | Edge::Completion | Edge::Stated => {
            "firebrick"
        }
        Edge::BaseCausality | Edge::Causality => "red",
    }
}

fn drawing(test: &Test, execution: &Execution, violation: Option<&Violation>) -> String {
    let mut dot = String::new();
    let title = format!("{} {}", test.name, violation.map_or("", |v| v.axiom.name()));
    // Writing to a `String` does not fail.
    let _ = writeln!(dot, "digraph \"{}\" {{", escaped(title.trim_end()));
    dot.push_str("  node [shape=box, fontname=monospace];\n  edge [fontname=monospace];\n");
    for (number, thread) in test.threads.iter().enumerate() {
        let position = thread.position;
        let _ = writeln!(dot, "  subgraph cluster_{number} {{");
        let (name, cta, gpu) = (thread.number, position.cta, position.gpu);
        let _ = writeln!(dot, "    label=\"P{name}@cta {cta},gpu {gpu}\";");
        nodes(&mut dot, execution, Some(number));
        dot.push_str("  }\n");
    }
    nodes(&mut dot, execution, None);
    let coherence = reduced(&execution.coherence);
    let from_read = execution.reads_from.inverse().then(&coherence);
    let drawn = [
        (Edge::ProgramOrder, reduced(&execution.program_order())),
        (Edge::ReadsFrom, execution.reads_from.clone()),
        (Edge::Coherence, coherence),
        (Edge::FromRead, from_read),
        (Edge::FenceOrder, reduced(&execution.fence_order)),
        (Edge::Synchronizes, execution.synchronizes.clone()),
        (Edge::Barrier, execution.barriers.clone()),
    ];
    let cycle = violation.map_or(&[][..], |violation| &violation.cycle);
    for (edge, relation) in &drawn {
        for (from, to) in relation.pairs() {
            if !cycle.contains(&Step { from, edge: *edge, to }) {
                arrow(&mut dot, Step { from, edge: *edge, to }, 1);
            }
        }
    }
    for step in cycle {
        arrow(&mut dot, *step, 3);
    }
    dot.push_str("}\n");
    dot
}

fn nodes(dot: &mut String, execution: &Execution, thread: Option<usize>) {
    let indent = if thread.is_some() { "    " } else { "  " };
    for (number, origin) in execution.origins.iter().enumerate() {
        if origin.thread == thread {
            let _ = writeln!(dot, "{indent}e{number} [label=\"{}\"];", escaped(&origin.label));
        }
    }
}

fn arrow(dot: &mut String, Step { from, edge, to }: Step, width: u32) {
    let (name, colour) = (edge.name(), colour(edge));
    let _ = writeln!(
        dot,
        "  e{from} -> e{to} [label=\"{name}\", color={colour}, fontcolor={colour}, penwidth={width}];"
    );
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

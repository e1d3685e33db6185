//! Explanations and drawings: the witness of what is allowed, the axiom and the cycle of what is not.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

use kernel_memory_model::axioms::{Axiom, Edge};
use kernel_memory_model::{Decision, Limits, Model, Test, decide, explain, parse};

fn decided(cells: &[&str], threads: &str, question: &str) -> (Test, Decision) {
    let rows: String = cells.iter().map(|row| format!("{row} ;\n")).collect();
    let text = format!("PTX t\"e\n{{ x=0; y=0; }}\n{threads} ;\n{rows}{question}");
    let test = parse(&text).unwrap_or_else(|found| panic!("{found:?}"));
    let decision = decide(&test, Model::Ptx75, &Limits::default()).unwrap();
    (test, decision)
}

const TWO: &str = "P0@cta 0,gpu 0 | P1@cta 1,gpu 0";

fn message(release: &str) -> (Test, Decision) {
    let second = format!("{release} y, 1 | ld.weak r1, x");
    let cells = ["st.weak x, 1 | ld.acquire.gpu r0, y", &second];
    decided(&cells, TWO, "exists (P1:r0 == 1 /\\ P1:r1 == 0)")
}

#[test]
fn what_is_allowed_is_shown() {
    let (test, decision) = message("st.relaxed.gpu");
    let expected = "  this execution ends so:
    P0@cta 0,gpu 0
      W x=1 weak               st.weak x, 1
      W y=1 relaxed.gpu        st.relaxed.gpu y, 1
    P1@cta 1,gpu 0
      R y=1 acquire.gpu        ld.acquire.gpu r0, y
      R x=0 weak               ld.weak r1, x
    P1: R x=0 weak  reads from  init x=0
    P1: R y=1 acquire.gpu  reads from  P0: W y=1 relaxed.gpu
    end: P1:r0=1 P1:r1=0
";
    assert_eq!(explain::text(&test, &decision), expected);
}

#[test]
fn what_is_forbidden_names_its_axiom_and_its_cycle() {
    let (test, decision) = message("st.release.gpu");
    let text = explain::text(&test, &decision);
    let expected = "\
    its cycle:
      P1: R x=0 weak  -fr->  P0: W x=1 weak
      P0: W x=1 weak  -cause->  P1: R x=0 weak
        P0: W x=1 weak  -po->  P0: W y=1 release.gpu
        P0: W y=1 release.gpu  -sync->  P1: R y=1 acquire.gpu
        P1: R y=1 acquire.gpu  -po->  P1: R x=0 weak
";
    assert!(text.contains("  Causality refuses 1 candidate: irreflexive((rf | fr) ; cause)"));
    assert!(text.ends_with(expected), "{text}");
}

#[test]
fn every_axiom_refuses_something() {
    let both = "exists (P0:r0 == 1 /\\ P1:r0 == 1)";
    let stale = "exists (P1:r0 == 1 /\\ P1:r1 == 0)";
    let cases: [(&[&str], &str, Axiom, &[Edge]); 6] = [
        (
            &[
                "ld.weak r0, x | ld.weak r0, y",
                "and r1, r0, 0 | and r1, r0, 0",
                "add r1, r1, 1 | add r1, r1, 1",
                "st.weak y, r1 | st.weak x, r1",
            ],
            both,
            Axiom::NoThinAir,
            &[Edge::Dependency, Edge::ReadsFrom, Edge::Dependency, Edge::ReadsFrom],
        ),
        (
            &[
                "ld.acquire.gpu r0, x | ld.acquire.gpu r0, y",
                "fence.sc.gpu         | fence.sc.gpu",
                "st.release.gpu y, 1  | st.release.gpu x, 1",
            ],
            both,
            Axiom::FenceSc,
            &[Edge::FenceOrder, Edge::BaseCausality],
        ),
        (
            &[
                "ld.acquire.gpu r0, x | ld.acquire.gpu r0, y",
                "st.weak z, 1         | st.weak z, 2",
                "st.release.gpu y, 1  | st.release.gpu x, 1",
            ],
            both,
            Axiom::Coherence,
            &[Edge::Causality],
        ),
        (
            &["atom.relaxed.gpu.add r0, x, 1 | atom.relaxed.gpu.add r0, x, 1"],
            "exists (P0:r0 == 0 /\\ P1:r0 == 0)",
            Axiom::Atomicity,
            &[Edge::FromRead, Edge::Coherence, Edge::Update],
        ),
        (
            &["st.relaxed.gpu x, 1 | ld.relaxed.gpu r0, x", "| ld.relaxed.gpu r1, x"],
            stale,
            Axiom::ScPerLocation,
            &[Edge::ReadsFrom, Edge::ProgramOrder, Edge::FromRead],
        ),
        (
            &["st.weak x, 1 | ld.acquire.gpu r0, y", "st.release.gpu y, 1 | ld.weak r1, x"],
            stale,
            Axiom::Causality,
            &[Edge::FromRead, Edge::Causality],
        ),
    ];
    for (cells, question, axiom, edges) in cases {
        let (_, decision) = decided(cells, TWO, question);
        let [refusal] = decision.refusals.by_axiom.as_slice() else {
            panic!("{axiom:?}: {:?}", decision.refusals.by_axiom)
        };
        let cycle = &refusal.violation.cycle;
        assert_eq!(refusal.violation.axiom, axiom);
        assert_eq!(cycle.iter().map(|step| step.edge).collect::<Vec<_>>(), edges);
        for (number, step) in cycle.iter().enumerate() {
            assert_eq!(step.to, cycle[(number + 1) % cycle.len()].from, "{axiom:?} is a cycle");
        }
    }
}

#[test]
fn a_state_that_no_values_give_is_told_apart() {
    let (test, decision) = decided(&["st.weak x, 1 | "], TWO, "exists (x == 2)");
    assert!(explain::text(&test, &decision).contains("other values in memory"));
    let (test, decision) = decided(&["ld.weak r0, x | "], TWO, "exists (P0:r0 == 2)");
    assert!(explain::text(&test, &decision).contains("no choice of paths and values"));
    assert_eq!(explain::dot(&test, &decision), None);
}

#[test]
fn a_drawing_has_every_event_and_the_cycle() {
    let (test, decision) = message("st.release.gpu");
    let dot = explain::dot(&test, &decision).unwrap();
    assert!(dot.starts_with("digraph \"t Causality\" {\n"), "{dot}");
    assert_eq!(dot.matches("[label=\"W ").count() + dot.matches("[label=\"R ").count(), 4);
    assert_eq!(dot.matches("penwidth=3").count(), 2, "{dot}");
    assert_eq!(dot.matches('{').count(), dot.matches('}').count());
    let (test, decision) = message("st.weak");
    let dot = explain::dot(&test, &decision).unwrap();
    assert!(!dot.contains("penwidth=3") && dot.contains("label=\"fr\""), "{dot}");
}

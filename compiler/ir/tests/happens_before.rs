//! The happens-before graph against the other passes, on every file of the suite: of what they accept each two
//! statements are in order or apart, and of what they refuse the graph lacks the path between the two that are reported.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]
#![expect(clippy::disallowed_methods, reason = "the files of the suite are read here")]

#[path = "support/suite.rs"]
mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::OnceLock;

use kernel_dsl::diag::{Diagnostic, Severity};
use kernel_dsl::source::{SourceMap, Span};
use kernel_ir::kernel::Kernel;
use kernel_ir::verify;
use kernel_ir::verify::happens_before::{self, Proof, Proofs, Verdict};

/// Codes whose findings name two accesses that the graph has.
const JUDGED: [&str; 12] = [
    "E0107", "E0108", "E0113", "E0116", "E0118", "E0120", "E0122", "E0133", "E0141", "E0153",
    "E0160", "E0175",
];

/// Where a pass asks for more than an order. A `grid_wait` of one role counts for that role alone, though a pipeline
/// hands it on; a product that nobody waits for is refused, though nobody writes its operands later; a wait counts for
/// the rows of its own round, though it is behind earlier rounds as well; and so does a `sync` of rounds between two
/// that come to one row.
const STRICTER: [(&str, &str, &str); 5] = [
    ("patterns/f16_one_role_waits/faulty.tile: three", "E0108", "y"),
    ("verify/buffers/digits_reject.tile: low_digit", "E0120", "y"),
    ("verify/shared_memory/rows_reject.tile: parts", "E0153", "s"),
    ("verify/tmem/reject.tile: more_products", "E0153", "a"),
    ("verify/tmem/reject.tile: more_products", "E0153", "b"),
];

struct Judged {
    name: String,
    sources: SourceMap,
    proofs: Proofs,
    open: Vec<([Span; 2], Diagnostic)>,
    found: Vec<Diagnostic>,
    waived: bool,
}

fn judge(name: String, sources: &SourceMap, kernel: Kernel) -> Judged {
    let proofs = happens_before::prove(&kernel);
    let open = happens_before::open(&kernel);
    let outcome = verify::kernel(kernel);
    Judged {
        name,
        sources: sources.clone(),
        proofs,
        open,
        found: outcome.diagnostics,
        waived: !outcome.waived.is_empty(),
    }
}

/// Every kernel of the suite, judged once for all tests.
fn suite() -> &'static [Judged] {
    static JUDGED: OnceLock<Vec<Judged>> = OnceLock::new();
    JUDGED.get_or_init(all_of_suite)
}

fn all_of_suite() -> Vec<Judged> {
    let mut found = Vec::new();
    for path in support::paths(&["verify", "patterns", "ops", "run", "overlap"]) {
        let file = support::file(&path);
        let kernels = file.kernels(&path).into_iter();
        found.extend(kernels.map(|(name, kernel)| judge(name, &file.sources, kernel)));
    }
    found
}

/// Errors of other passes than that of the graph.
fn is_of_others(found: &Diagnostic) -> bool {
    found.severity == Severity::Error && !found.message.contains("happens-before graph")
}

/// Findings that speak of one access.
fn is_single(found: &Diagnostic) -> bool {
    matches!(found.code.name(), "E0107" | "E0108" | "E0133") || found.labels.len() < 3
}

#[test]
fn what_is_accepted_is_in_order_or_apart() {
    let (mut faults, mut counts) = (Vec::new(), [0usize; 4]);
    for kernel in suite() {
        let refused = kernel.found.iter().any(is_of_others);
        if refused || kernel.waived {
            continue;
        }
        for proof in &kernel.proofs.proofs {
            counts[proof.verdict as usize] += 1;
            if proof.verdict == Verdict::Open {
                faults.push(format!("{}: {}", kernel.name, proof.line(&kernel.sources)));
            }
        }
    }
    assert!(faults.is_empty(), "{counts:?} {}:\n{}", faults.len(), faults.join("\n"));
}

/// docs/verification.md names all that the graph does not have.
#[test]
fn what_is_left_out_is_documented() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/verification.md");
    let page = std::fs::read_to_string(page).unwrap();
    let names: BTreeSet<&String> =
        suite().iter().flat_map(|kernel| &kernel.proofs.left_out).collect();
    let missing: Vec<&String> = names
        .into_iter()
        .filter(|name| {
            !name.starts_with("what lies behind") && !page.contains(&format!("- {name}"))
        })
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Of two accesses that a pass names the graph alone says that they are open, or names what it does not have.
#[test]
fn of_what_is_refused_the_path_is_missing() {
    let (mut faults, mut open, mut left_out) = (Vec::new(), 0, 0);
    for kernel in suite() {
        for found in &kernel.found {
            if !JUDGED.contains(&found.code.name()) || !is_of_others(found) {
                continue;
            }
            let spans: Vec<_> = found.labels.iter().map(|label| label.span).collect();
            // Words, and what releases and waits do, are no accesses of the graph.
            let touched = spans.iter().filter(|span| kernel.proofs.touched.contains(span)).count();
            if touched < if is_single(found) { 1 } else { 2 } {
                continue;
            }
            let is_meant = |proof: &&Proof| {
                let mut places = proof.places.iter();
                match found.code.name() {
                    "E0133" => places.any(|place| spans.contains(place)),
                    _ => places.all(|place| spans.contains(place)),
                }
            };
            let meant = || kernel.proofs.proofs.iter().filter(is_meant);
            let is_stricter = STRICTER.iter().any(|(name, code, memory)| {
                let is_meant = kernel.name == *name && found.code.name() == *code;
                is_meant && found.message.contains(&format!("`{memory}`"))
            });
            if meant().any(|proof| proof.verdict == Verdict::Open) {
                open += 1;
            } else if meant().any(|proof| proof.verdict == Verdict::LeftOut) {
                left_out += 1;
            } else if !is_stricter {
                let line = kernel.sources.start(spans[0]).line;
                faults.push(format!(
                    "{}:{line}: {} {}",
                    kernel.name,
                    found.code.name(),
                    found.message
                ));
            }
        }
    }
    println!("open {open}, left out {left_out}");
    assert!(faults.is_empty(), "{}:\n{}", faults.len(), faults.join("\n"));
    assert!(open >= 3 * left_out, "open {open}, left out {left_out}");
}

/// A fence in one arm of a choice is none of the other.
#[test]
fn what_one_arm_publishes_is_open() {
    let name = "verify/copies/published_in_an_arm_reject.tile: one_arm";
    let kernel = suite().iter().find(|kernel| kernel.name == name).unwrap();
    assert!(kernel.proofs.proofs.iter().any(|proof| proof.verdict == Verdict::Open));
}

/// Each code of the pass `happens-before` is one that it gives by itself, with both places and the memory's name.
#[test]
fn the_graph_refuses_by_itself() {
    let pass = verify::PASSES.iter().find(|pass| pass.name == "happens-before").unwrap();
    let mut given = BTreeSet::new();
    for kernel in suite() {
        for (places, found) in &kernel.open {
            assert!(pass.codes.contains(&found.code), "{}: {}", kernel.name, found.code.name());
            let is_named = |place| found.labels.iter().any(|label| label.span == place);
            assert!(places.iter().all(|&place| is_named(place)), "{}: {found:?}", kernel.name);
            given.insert(found.code);
        }
    }
    let missing: Vec<_> = pass.codes.iter().filter(|code| !given.contains(code)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Kernels of Kimi K3, each with all bindings that `build.toml` has for it.
#[test]
fn kernels_of_the_model_are_in_order_or_apart() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/kimi_k3/kernels");
    let build = std::fs::read_to_string(folder.join("build.toml")).unwrap();
    let mut paths = Vec::new();
    support::files(&folder, &mut paths);
    paths.sort();
    let (mut faults, mut seen) = (Vec::new(), 0);
    for path in &paths {
        let support::File { sources, front, .. } = support::file(path);
        for template in &front.templates {
            let named = format!("kernel = \"{}\"", template.name());
            let bound = |line: &str| {
                let (pairs, _) = line.split_once("bind = {")?.1.split_once('}')?;
                Some(pairs.to_owned())
            };
            let lines = build.lines().filter(|line| line.contains(&named));
            let all: BTreeSet<String> = lines.filter_map(bound).collect();
            for pairs in all {
                let Some(kernel) = support::instantiated(template, &pairs, None) else { continue };
                let name = format!("{}: {}", path.display(), template.name());
                let kernel = judge(name, &sources, kernel);
                seen += 1;
                let proofs = kernel.proofs.proofs.iter();
                let open = proofs.filter(|proof| proof.verdict == Verdict::Open);
                let line = |proof: &Proof| format!("{pairs}: {}", proof.line(&sources));
                faults.extend(open.map(|proof| format!("{}: {}", kernel.name, line(proof))));
            }
        }
    }
    assert!(seen > 100, "{seen} kernels");
    assert!(faults.is_empty(), "{seen} {}:\n{}", faults.len(), faults.join("\n"));
}

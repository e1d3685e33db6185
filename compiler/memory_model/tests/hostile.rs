//! No text makes the reader or the decider panic or run without end.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

use std::path::Path;

use kernel_memory_model::{Limits, Model, decide, explain, parse};
use proptest::prelude::*;

const PIECES: [&str; 44] = [
    "PTX t",
    "{",
    "}",
    ";",
    "|",
    "@",
    "P0@cta 0,gpu 0",
    "P1@cta 0,gpu 1",
    "x=0",
    "y @ generic aliases x",
    "s @ surface aliases y",
    "P0:r0=1",
    "P1:r1=&x",
    "st.weak x, 1",
    "ld.acquire.gpu r0, x",
    "st.release.sys y, r1",
    "atom.acq_rel.gpu.add r0, x, r0",
    "red.relaxed.cta.dec x, 7",
    "atom.relaxed.gpu.cas r1, x, 0, 1",
    "fence.sc.gpu",
    "fence.proxy.alias",
    "bar.cta.sync 1",
    "bar.cta.sync 1, r0, 2",
    "bar.arrive r1",
    "barrier.cluster.arrive",
    "barrier.cluster.wait",
    "LC00:",
    "goto LC00",
    "bne r0, 1, LC00",
    "add r0, r0, 1",
    "div r0, r1, r0",
    "exists",
    "~exists",
    "forall",
    "filter",
    "(",
    ")",
    "x == 1",
    "P0:r0 == P1:r1",
    "/\\",
    "\\/",
    "~",
    "-9223372036854775808",
    "\u{e9}",
];

fn few() -> Limits {
    Limits { unroll: 2, candidates: 200, traces: 200 }
}

fn survives(text: &str) {
    let Ok(test) = parse(text) else { return };
    for model in Model::ALL {
        if let Ok(decision) = decide(&test, model, &few()) {
            explain::text(&test, &decision);
            explain::dot(&test, &decision);
        }
    }
}

fn published() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/dat3m/Manual");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "litmus"));
    files.sort();
    files.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text(text in "\\PC{0,200}") {
        survives(&text);
        survives(&format!("PTX t\n{{ {text}"));
    }

    #[test]
    fn pieces_in_any_order(picks in prop::collection::vec(0..PIECES.len(), 0..60)) {
        let text: Vec<&str> = picks.iter().map(|pick| PIECES[*pick]).collect();
        survives(&format!("PTX t {}", text.join(" ")));
    }

    #[test]
    fn tables_of_any_cells(cells in prop::collection::vec(13..31_usize, 2..24), end in 37..39_usize) {
        let rows: String = cells
            .chunks(2)
            .map(|row| row.iter().map(|c| PIECES[*c]).collect::<Vec<_>>())
            .filter(|row| row.len() == 2)
            .map(|row| format!("{} | {} ;\n", row[0], row[1]))
            .collect();
        let block = "x=0; y @ generic aliases x; P1:r1=&x;";
        survives(&format!(
            "PTX t\n{{ {block} }}\nP0@cta 0,gpu 0 | P1@cta 0,gpu 0 ;\n{rows}exists ({})", PIECES[end]
        ));
    }

    #[test]
    fn published_tests_with_a_byte_changed(which in 0..1000_usize, at in 0..1000_usize, byte in 0..128_u8) {
        let all = published();
        let mut bytes = all[which % all.len()].clone().into_bytes();
        let at = at % bytes.len();
        bytes[at] = byte;
        survives(&String::from_utf8_lossy(&bytes));
        bytes.truncate(at);
        survives(&String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn sixteen_threads_of_strong_stores_end() {
    let head: Vec<String> = (0..16).map(|n| format!("P{n}@cta {n},gpu 0")).collect();
    let row = ["st.relaxed.gpu x, 1"; 16].join(" | ") + " ;\n";
    let text =
        format!("PTX t\n{{ x=0; }}\n{} ;\n{}exists (x == 2)", head.join("|"), row.repeat(12));
    let test = parse(&text).unwrap();
    let limits = Limits { candidates: 400, ..Limits::default() };
    assert_eq!(decide(&test, Model::Ptx60, &limits).unwrap_err().code.name(), "M0202");
}

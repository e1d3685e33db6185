//! The patterns of tests/data/patterns: faulty exchanges are allowed to go wrong, sound ones are not, and the one
//! thing that makes the difference does make it.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

use std::path::Path;

use kernel_memory_model::Verdict::{Allowed, Forbidden, Holds, Violated};
use kernel_memory_model::{Limits, Model, Verdict, decide, parse};

/// A pattern with its verdict, edits of its text, and the verdict after them.
type Pattern = (&'static str, Verdict, &'static [[&'static str; 2]], Verdict);

const PATTERNS: [Pattern; 12] = [
    ("F3_peer_flag_of_device_scope", Allowed, &[["ld.acquire.gpu", "ld.acquire.sys"]], Forbidden),
    ("F4_missing_release", Allowed, &[["st.relaxed.sys", "st.release.sys"]], Forbidden),
    ("F5_fence_of_device_scope", Allowed, &[["fence.acq_rel.gpu", "fence.acq_rel.sys"]], Forbidden),
    ("F6_relaxed_spin_then_barrier", Allowed, &[["ld.relaxed.sys", "ld.acquire.sys"]], Forbidden),
    (
        "F7_constant_epoch",
        Allowed,
        &[["flag, 1 | ld.weak r3", "flag, 2 | ld.weak r3"], ["r2 == 1", "r2 == 2"]],
        Forbidden,
    ),
    (
        "F9_double_buffer_without_ack",
        Allowed,
        &[["st.weak buf0, 12", "st.weak buf1, 12"]],
        Forbidden,
    ),
    ("F18_one_lane_signals_for_all", Allowed, &[["P2:r2 == 0", "P2:r1 == 0"]], Forbidden),
    (
        "red_as_acquire",
        Allowed,
        &[["red.relaxed.sys.add flag", "atom.relaxed.sys.add r0, flag"]],
        Forbidden,
    ),
    (
        "C2_relaxed_poll_fence_fan_out",
        Forbidden,
        &[["fence.acquire.sys", "fence.acquire.gpu"]],
        Allowed,
    ),
    ("C3_cumulative_release", Forbidden, &[[" bar.cta.sync 0  |", " bar.cta.sync 1  |"]], Allowed),
    ("C4_counter_of_arrivals", Forbidden, &[["P2:r0 == 2", "P2:r0 == 1"]], Allowed),
    ("C7_two_slots_in_lock_step", Holds, &[["st.weak b0, 12", "st.weak b1, 12"]], Violated),
];

fn verdict(text: &str, model: Model) -> Verdict {
    let test = parse(text).unwrap_or_else(|found| panic!("{found:?}"));
    decide(&test, model, &Limits::default()).unwrap().verdict
}

#[test]
fn every_pattern_has_its_verdict_and_its_cure_or_fault() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/patterns");
    for (name, expected, edits, after) in PATTERNS {
        let text = std::fs::read_to_string(folder.join(format!("{name}.litmus"))).unwrap();
        let mut edited = text.clone();
        for [from, to] in edits {
            assert!(edited.contains(from), "{name} has no `{from}`");
            edited = edited.replacen(from, to, 1);
        }
        for model in Model::ALL {
            assert_eq!(verdict(&text, model), expected, "{name} {}", model.name());
            assert_eq!(verdict(&edited, model), after, "{name} edited {}", model.name());
        }
    }
    let files = std::fs::read_dir(&folder).unwrap().count();
    assert_eq!(files, PATTERNS.len() + 1, "every file of the folder is a row, and the README");
}

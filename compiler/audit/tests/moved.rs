//! Loads that the assembler moved, found in the machine code of every case file.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

#[path = "support/cases.rs"]
mod support;

use std::collections::BTreeMap;

use kernel_audit::{Code, Verdict};
use support::merge::{can_merge, merge};
use support::{Row, audit, rows, text, tools};

/// Files in one module.
const TOGETHER: usize = 48;

/// Compares what the audit says of the files of one folder and target with what is expected.
fn check(folder: &str, target: &str) {
    // In `basic` barriers count as waits too: what crosses them is a note.
    let with_notes = folder == "basic";
    let mut due: BTreeMap<String, Option<bool>> = BTreeMap::new();
    for row in rows(folder).iter().filter(|row| row.target == target) {
        if row
            .value
            .get("kernels")
            .is_none_or(|k| k.as_object().unwrap().values().all(|v| v.is_string()))
        {
            due.entry(row.file.clone()).or_insert(moved(row));
        }
    }
    let files: Vec<(String, Option<bool>)> = due
        .into_iter()
        .filter(|(file, due)| due.is_some() && can_merge(&text(folder, file)))
        .collect();
    assert!(files.len() > 4, "{} files of {folder} for {target}", files.len());
    let tools = tools();
    let mut problems = Vec::new();
    for part in files.chunks(TOGETHER) {
        let prefixed: Vec<(String, String)> = part
            .iter()
            .enumerate()
            .map(|(index, (file, _))| (format!("c{index}_"), text(folder, file)))
            .collect();
        let module = merge(&prefixed, target);
        let report = audit(&module, target, &[], &[], Some(&tools));
        assert_ne!(report.verdict, Verdict::NotJudged, "{}", report.to_text("merged"));
        for ((prefix, _), (file, due)) in prefixed.iter().zip(part) {
            let of_file = |item: &&kernel_audit::Item| item.kernel.starts_with(prefix.as_str());
            let notes = report.notes.iter().filter(|_| with_notes);
            let items: Vec<_> = report.findings.iter().chain(notes).filter(of_file).collect();
            let moved = items.iter().any(|item| item.code == Code::Moved);
            if Some(moved) != *due {
                problems.push(format!("{file}: moved {moved}, due {due:?} {items:#?}"));
            }
            for item in report.findings.iter().filter(of_file) {
                assert_eq!(item.code == Code::Moved, item.sass.is_some(), "{file}: {item:?}");
            }
        }
    }
    assert!(problems.is_empty(), "{} wrong:\n{}", problems.len(), problems.join("\n"));
}

fn moved(row: &Row) -> Option<bool> {
    row.value.get("moved_in_sass").and_then(|value| value.as_bool())
}

#[test]
fn basic_sm_90a() {
    check("basic", "sm_90a");
}

#[test]
fn basic_sm_100a() {
    check("basic", "sm_100a");
}

#[test]
fn hard_sm_90a() {
    check("hard", "sm_90a");
}

#[test]
fn hard_sm_100a() {
    check("hard", "sm_100a");
}

#[test]
fn hard_sm_103a() {
    check("hard", "sm_103a");
}

#[test]
fn own_sm_90a() {
    check("own", "sm_90a");
}

#[test]
fn own_sm_100a() {
    check("own", "sm_100a");
}

#[test]
fn own_sm_103a() {
    check("own", "sm_103a");
}

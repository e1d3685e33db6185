//! Every litmus test of tests/data/dat3m against the verdict that stands beside it.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

use std::path::Path;
use std::time::Instant;

use kernel_memory_model::{Limits, Model, Verdict, decide, parse};

struct Row {
    file: String,
    verdicts: [Option<Verdict>; 2],
}

fn verdict(text: &str) -> Option<Verdict> {
    match text {
        "" => None,
        "state-ALLOWED" => Some(Verdict::Allowed),
        "state-FORBIDDEN" => Some(Verdict::Forbidden),
        "always-HOLDS" => Some(Verdict::Holds),
        "violation-ALLOWED" => Some(Verdict::Violated),
        other => panic!("{other} is no verdict"),
    }
}

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/dat3m")
}

fn rows() -> Vec<Row> {
    let table = std::fs::read_to_string(folder().join("manifest.csv")).unwrap();
    let row = |line: &str| {
        // The licence, which alone is quoted where it has a comma, stands before the verdicts.
        let fields: Vec<&str> = line.rsplitn(5, ',').collect();
        Row {
            file: line.split(',').next().unwrap().to_owned(),
            verdicts: [verdict(fields[2]), verdict(fields[1])],
        }
    };
    table.lines().skip(1).map(row).collect()
}

fn compare(model: Model, column: usize, expected_rows: usize) {
    let mut wrong = Vec::new();
    let mut count = 0;
    let start = Instant::now();
    for row in rows() {
        let Some(expected) = row.verdicts[column] else { continue };
        count += 1;
        let text = std::fs::read_to_string(folder().join(&row.file)).unwrap();
        let found = parse(&text)
            .map_err(|found| found.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
            .and_then(|test| {
                decide(&test, model, &Limits::default()).map_err(|found| found.to_string())
            })
            .map(|decision| decision.verdict);
        if found != Ok(expected) {
            wrong.push(format!("{}: {found:?}, should be {expected:?}", row.file));
        }
    }
    assert!(wrong.is_empty(), "{} of {count} wrong\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(count, expected_rows);
    let seconds = start.elapsed().as_secs();
    assert!(seconds < 30, "{count} rows took {seconds} s");
}

#[test]
fn every_row_is_right_under_6_0() {
    compare(Model::Ptx60, 0, 84);
}

#[test]
fn every_row_is_right_under_7_5() {
    compare(Model::Ptx75, 1, 163);
}

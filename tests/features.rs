//! The tables of docs/language.md that set this language beside others: each row says what it must, and each test that
//! it names is there.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

use std::collections::BTreeSet;
use std::path::PathBuf;

const PAGE: &str = "docs/language.md";
const CHAPTER: &str = "## Against other systems";
const COLUMNS: [&str; 8] = [
    "feature",
    "CuTe DSL",
    "cuTile",
    "Triton, Gluon",
    "TileLang",
    "cutile-rs",
    "ours",
    "shown by; what is missing",
];

/// One row of a table.
struct Row {
    /// `path:line` in the page.
    place: String,
    cells: Vec<String>,
}

impl Row {
    fn feature(&self) -> &str {
        &self.cells[0]
    }

    /// The columns of the other systems.
    fn others(&self) -> &[String] {
        &self.cells[1..6]
    }

    fn ours(&self) -> &str {
        &self.cells[6]
    }

    fn last(&self) -> &str {
        &self.cells[7]
    }

    /// What stands between backticks and is a path.
    fn paths(&self) -> Vec<&str> {
        self.last().split('`').skip(1).step_by(2).filter(|code| code.contains('/')).collect()
    }

    /// The last column without paths and what separates them.
    fn words(&self) -> String {
        let text: String = self
            .paths()
            .iter()
            .fold(self.last().to_owned(), |text, path| text.replace(&format!("`{path}`"), ""));
        text.trim_matches([',', ';', ' ']).to_owned()
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The rows of all tables of the chapter, without their heads.
fn rows() -> Vec<Row> {
    let page = std::fs::read_to_string(root().join(PAGE)).unwrap();
    let mut rows = Vec::new();
    let mut heads = 0_usize;
    let lines = page.lines().enumerate().skip_while(|(_, line)| *line != CHAPTER).skip(1);
    for (index, line) in lines.take_while(|(_, line)| !line.starts_with("## ")) {
        let Some(inner) = line.strip_prefix('|').and_then(|line| line.strip_suffix('|')) else {
            continue;
        };
        let cells: Vec<String> = inner.split('|').map(|cell| cell.trim().to_owned()).collect();
        let place = format!("{PAGE}:{}", index + 1);
        assert_eq!(cells.len(), COLUMNS.len(), "{place}: a row has {} cells", COLUMNS.len());
        if cells == COLUMNS {
            heads += 1;
        } else if !cells.iter().all(|cell| cell.chars().all(|c| c == '-')) {
            rows.push(Row { place, cells });
        }
    }
    assert!(heads > 0 && rows.len() > heads, "the chapter `{CHAPTER}` has tables");
    rows
}

/// A file that tests something: one of a test folder, or source with unit tests.
fn is_test(path: &str) -> bool {
    let has_tests = |text: String| text.contains("#[test]");
    path.starts_with("tests/")
        || path.contains("/tests/")
        || std::fs::read_to_string(root().join(path)).is_ok_and(has_tests)
}

/// `yes`, `partly`, `no`, and after a colon how.
fn is_answer(cell: &str) -> bool {
    let (answer, how) =
        cell.split_once(':').map_or((cell, None), |(answer, how)| (answer, Some(how)));
    ["yes", "partly", "no"].contains(&answer) && how.is_none_or(|how| !how.trim().is_empty())
}

fn faults_of(row: &Row) -> Vec<String> {
    let mut faults = Vec::new();
    let paths = row.paths();
    for path in &paths {
        if !root().join(path).is_file() {
            faults.push(format!("`{path}` is gone"));
        } else if !is_test(path) {
            faults.push(format!("`{path}` tests nothing"));
        }
    }
    match row.ours() {
        "yes" if paths.is_empty() => faults.push("`yes` names no test".to_owned()),
        "partly" if paths.is_empty() => {
            faults.push("`partly` names no test of what is there".to_owned())
        }
        "partly" | "no" if row.words().is_empty() => {
            faults.push("it is not said what is missing".to_owned())
        }
        "yes" | "partly" | "no" => {}
        other => faults.push(format!("`{other}` is neither yes, partly nor no")),
    }
    for cell in row.others().iter().filter(|cell| *cell != "?" && !is_answer(cell)) {
        faults.push(format!("`{cell}` is neither yes, partly, no nor ?"));
    }
    faults.into_iter().map(|fault| format!("{}: {}: {fault}", row.place, row.feature())).collect()
}

#[test]
fn every_row_is_answered_and_its_tests_are_there() {
    let faults: Vec<String> = rows().iter().flat_map(faults_of).collect();
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn no_feature_stands_twice() {
    let mut seen = BTreeSet::new();
    for row in rows() {
        assert!(seen.insert(row.feature().to_owned()), "{}: `{}` again", row.place, row.feature());
    }
}

#[test]
fn a_row_that_says_too_little_is_found() {
    let row = |ours: &str, last: &str| Row {
        place: "here".to_owned(),
        cells: ["a feature", "yes", "no: by hand", "partly: hint", "?", "yes", ours, last]
            .map(str::to_owned)
            .to_vec(),
    };
    assert!(faults_of(&row("yes", "`tests/features.rs`")).is_empty());
    assert!(faults_of(&row("partly", "`tests/features.rs`; the rest")).is_empty());
    assert!(faults_of(&row("no", "`word`")).is_empty());
    for (ours, last) in [
        ("yes", ""),
        ("yes", "`tests/nowhere.rs`"),
        ("yes", "`docs/language.md`"),
        ("partly", "the rest"),
        ("partly", "`tests/features.rs`"),
        ("no", ""),
        ("soon", "`tests/features.rs`"),
    ] {
        assert_eq!(faults_of(&row(ours, last)).len(), 1, "{ours} {last}");
    }
}

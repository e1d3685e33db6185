//! The rows of the tables.

use std::fmt;
use std::path::PathBuf;

use kernel_tests::pages;
use kernel_tests::program::package_folder;

const PAGE: &str = "docs/verification.md";
const CHAPTER: &str = "## Patterns\n";
/// The folder of the pairs, below `tests`.
pub(crate) const FOLDER: &str = "suite/patterns";

/// What a table says of a pattern.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    /// A pattern that is only to be accepted has none.
    pub(crate) fault: Option<Fault>,
    pub(crate) right: Place,
}

/// A faulty file and what reports it.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(crate) place: Place,
    pub(crate) layer: Layer,
    /// Layers of Rust tests and axioms have none.
    pub(crate) code: Option<String>,
}

/// A file, or a test in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    pub(crate) test: Option<String>,
    /// As the table has it.
    words: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

/// Who reports a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layer {
    Language,
    Verifier,
    Launches,
    Plan,
    Audit,
    MachineCode,
    OwnBuild,
    BackEnd,
    Axioms,
}

impl Layer {
    const ALL: [Layer; 9] = [
        Layer::Language,
        Layer::Verifier,
        Layer::Launches,
        Layer::Plan,
        Layer::Audit,
        Layer::MachineCode,
        Layer::OwnBuild,
        Layer::BackEnd,
        Layer::Axioms,
    ];

    /// As the tables call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Layer::Language => "language",
            Layer::Verifier => "verifier",
            Layer::Launches => "launches",
            Layer::Plan => "plan",
            Layer::Audit => "audit",
            Layer::MachineCode => "machine code",
            Layer::OwnBuild => "own build",
            Layer::BackEnd => "back end",
            Layer::Axioms => "axioms",
        }
    }
}

/// The rows of all tables of the chapter.
///
/// # Errors
/// A row is not of one of the two forms.
pub(crate) fn rows() -> Result<Vec<Row>, String> {
    let page = std::fs::read_to_string(pages::root().join(PAGE))
        .map_err(|error| format!("{PAGE}: {error}"))?;
    let (_, chapter) = page.split_once(CHAPTER).ok_or("there is no chapter of patterns")?;
    let chapter = chapter.split("\n## ").next().unwrap_or(chapter);
    let mut rows = Vec::new();
    for line in chapter.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let row = match *cells.as_slice() {
            // Heads, and the table of layers.
            [_, _, "file"] | [_, _, "faulty", ..] | [_, _] => continue,
            [_, _, right] => Row { fault: None, right: place(right)? },
            [_, _, faulty, by, right] => {
                Row { fault: Some(fault(faulty, by)?), right: place(right)? }
            }
            _ => return Err(format!("a row is not understood: {line}")),
        };
        rows.push(row);
    }
    let faults = rows.iter().filter(|row| row.fault.is_some()).count();
    if faults < 40 || rows.len() < faults + 15 {
        return Err(format!("{} rows, {faults} of them with a fault", rows.len()));
    }
    Ok(rows)
}

fn fault(faulty: &str, by: &str) -> Result<Fault, String> {
    let layer = Layer::ALL.into_iter().find(|layer| by.starts_with(layer.name()));
    let layer = layer.ok_or_else(|| format!("no layer is called `{by}`"))?;
    let code = by[layer.name().len()..].trim();
    let code = (!code.is_empty()).then(|| code.to_owned());
    Ok(Fault { place: place(faulty)?, layer, code })
}

/// `` `path` `` below the folder of patterns or the root of the repository, or `` `path: test` ``.
fn place(cell: &str) -> Result<Place, String> {
    let words = cell.trim_matches('`').to_owned();
    let (path, test) = match words.split_once(": ") {
        Some((path, test)) => (path, Some(test.to_owned())),
        None => (words.as_str(), None),
    };
    let own = package_folder().join(FOLDER).join(path);
    let path = if own.is_file() { own } else { pages::root().join(path) };
    if !path.is_file() {
        return Err(format!("there is no file `{words}`"));
    }
    Ok(Place { path, test, words })
}

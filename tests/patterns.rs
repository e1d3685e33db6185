//! The tables of patterns in docs/verification.md: each faulty file is reported by its layer with its code, and nobody
//! says anything of the right one.

#[path = "patterns/judge.rs"]
mod judge;
#[path = "patterns/plan.rs"]
mod plan;
#[path = "patterns/table.rs"]
mod table;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use kernel_tests::program;
use libtest_mimic::{Arguments, Failed, Trial};

use table::{Place, Row};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let rows = table::rows().expect("the tables of docs/verification.md can be read");
    let mut trials = Vec::new();
    let mut right = BTreeSet::new();
    for row in rows.clone() {
        if right.insert(row.right.clone()) {
            let place = row.right.clone();
            trials.push(Trial::test(format!("{place} is right"), move || {
                judge::right(&place).map_err(Failed::from)
            }));
        }
        if let Some(fault) = row.fault {
            let name = format!("{} is found by the {}", fault.place, fault.layer.name());
            trials.push(Trial::test(name, move || judge::faulty(&fault).map_err(Failed::from)));
        }
    }
    trials.push(Trial::test("every file is in a row", move || {
        every_file_is_in_a_row(&rows).map_err(Failed::from)
    }));
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn every_file_is_in_a_row(rows: &[Row]) -> Result<(), String> {
    let faults = rows.iter().filter_map(|row| row.fault.as_ref());
    let named: BTreeSet<&Place> =
        rows.iter().map(|row| &row.right).chain(faults.map(|fault| &fault.place)).collect();
    let named: BTreeSet<_> = named.into_iter().map(|place| place.path.as_path()).collect();
    let mut missing = Vec::new();
    for folder in entries(&program::package_folder().join(table::FOLDER))? {
        if folder.is_dir() {
            missing.extend(entries(&folder)?.into_iter().filter(|f| !named.contains(f.as_path())));
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(format!("in no row: {missing:?}")) }
}

fn entries(folder: &Path) -> Result<Vec<std::path::PathBuf>, String> {
    let show = |error: std::io::Error| format!("{}: {error}", folder.display());
    let entries = std::fs::read_dir(folder).map_err(show)?;
    entries.map(|entry| entry.map(|entry| entry.path()).map_err(show)).collect()
}

//! `cargo xtask filetest`: the file tests of `tests/suite` whose name holds one of the words.

use crate::process::{cargo, run};
use crate::setup;
use crate::workspace::Workspace;
use anyhow::{Result, bail};
use std::process::{Command, ExitCode};

const PACKAGE: &str = "kernel_tests";
/// The test programs that walk `tests/suite`; the second links LLVM.
const PROGRAMS: [&str; 2] = ["front", "codegen"];
/// The folders of `tests/suite` that need the second.
const FOLDERS_WITH_LLVM: [&str; 3] = ["audit", "mlir", "ptx"];

pub(crate) fn main(args: &[String]) -> Result<ExitCode> {
    run_file_tests(args, &[])
}

/// Runs the tests with `variables` set; without words, all of them.
pub(crate) fn run_file_tests(words: &[String], variables: &[(&str, &str)]) -> Result<ExitCode> {
    let workspace = Workspace::enter()?;
    let tools = setup::run(&workspace)?;
    let filters: Vec<String> = words.iter().map(|word| filter(word)).collect();
    let programs: Vec<&str> = PROGRAMS
        .into_iter()
        .filter(|name| workspace.package(PACKAGE).is_some_and(|package| package.has_test(name)))
        .filter(|name| is_wanted(name, &filters))
        .collect();
    if programs.is_empty() {
        bail!("{PACKAGE} has none of the test programs {}", PROGRAMS.join(", "));
    }
    // libtest-mimic takes one filter, so several words are several runs.
    let filters = if filters.is_empty() { vec![String::new()] } else { filters };
    let mut failed = false;
    for filter in filters {
        let mut command = command(&programs, &filter);
        command.envs(tools.variables()).envs(variables.iter().copied());
        if let Err(error) = run(&mut command) {
            eprintln!("{error:#}");
            failed = true;
        }
    }
    Ok(ExitCode::from(u8::from(failed)))
}

fn command(programs: &[&str], filter: &str) -> Command {
    let mut command = cargo();
    command.args(["test", "--no-fail-fast", "--package", PACKAGE]);
    for name in programs {
        command.args(["--test", name]);
    }
    if !filter.is_empty() {
        command.args(["--", filter]);
    }
    command
}

/// A test is named by its path below `tests/suite`, so a path becomes that part of it.
fn filter(word: &str) -> String {
    let word = word.trim_start_matches("./");
    let word = word.strip_prefix("tests/").unwrap_or(word);
    word.strip_prefix("suite/").unwrap_or(word).to_owned()
}

/// Words that all lie in folders of one program do not build the other.
fn is_wanted(program: &str, filters: &[String]) -> bool {
    let folder_has_llvm = |filter: &String| {
        filter.split_once('/').map(|(folder, _)| FOLDERS_WITH_LLVM.contains(&folder))
    };
    filters.is_empty()
        || filters.iter().any(|filter| match folder_has_llvm(filter) {
            Some(has_llvm) => has_llvm == (program == "codegen"),
            None => true,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_becomes_the_name_of_its_test() {
        assert_eq!(filter("tests/suite/sema/shadow.tile"), "sema/shadow.tile");
        assert_eq!(filter("./tests/suite/sema"), "sema");
        assert_eq!(filter("shadow"), "shadow");
    }

    #[test]
    fn paths_choose_the_test_program() {
        let front = ["sema/shadow.tile".to_owned()];
        assert!(is_wanted("front", &front) && !is_wanted("codegen", &front));
        let ptx = ["ptx/sm_90a/smoke.tile".to_owned()];
        assert!(!is_wanted("front", &ptx) && is_wanted("codegen", &ptx));
        assert!(is_wanted("front", &[]) && is_wanted("codegen", &["shadow".to_owned()]));
    }
}

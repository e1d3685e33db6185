//! `cargo xtask mutate`: every mutant of every kernel of the repository, and what sees it.

use crate::process::{cargo, run};
use crate::setup;
use crate::workspace::Workspace;
use anyhow::{Result, bail};
use std::process::ExitCode;

pub(crate) fn main(args: &[String]) -> Result<ExitCode> {
    if let Some(arg) = args.first() {
        bail!("mutate has no option `{arg}`");
    }
    let workspace = Workspace::enter()?;
    let tools = setup::run(&workspace)?;
    let mut command = cargo();
    command.args(["test", "--package", "kernel_tests", "--test", "mutation"]);
    command.envs(tools.variables()).env("KERNEL_MUTANTS", "all");
    run(&mut command)?;
    Ok(ExitCode::SUCCESS)
}

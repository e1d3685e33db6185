//! `cargo xtask setup`: installs what the build and the tests need and the machine lacks.

use crate::tools::Tools;
use crate::workspace::Workspace;
use crate::{apt, tools};
use anyhow::{Result, bail};
use std::process::ExitCode;

pub(crate) fn main(args: &[String]) -> Result<ExitCode> {
    if let Some(arg) = args.first() {
        bail!("setup takes no argument, got `{arg}`");
    }
    let workspace = Workspace::enter()?;
    let tools = run(&workspace)?;
    println!("setup: ready; the vendor tools are in {}", tools.folder().display());
    Ok(ExitCode::SUCCESS)
}

/// Packages first: pip is one of them.
pub(crate) fn run(workspace: &Workspace) -> Result<Tools> {
    apt::install_missing()?;
    tools::install(&workspace.root)
}

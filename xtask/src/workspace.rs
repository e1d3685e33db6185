//! Where things are: the root, the target folder, the packages.

use crate::process::{cargo, stdout};
use anyhow::{Context, Result};
use serde::Deserialize;
use std::path::PathBuf;

/// The workspace as cargo describes it.
#[derive(Deserialize)]
pub(crate) struct Workspace {
    #[serde(rename = "workspace_root")]
    pub(crate) root: PathBuf,
    #[serde(rename = "target_directory")]
    pub(crate) target: PathBuf,
    pub(crate) packages: Vec<Package>,
}

#[derive(Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) targets: Vec<Target>,
}

#[derive(Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
}

impl Workspace {
    /// Asks cargo, and makes the root the working folder.
    pub(crate) fn enter() -> Result<Workspace> {
        let text = stdout(cargo().args(["metadata", "--format-version=1", "--no-deps"]))?;
        let workspace: Workspace =
            serde_json::from_str(&text).context("cargo metadata is not what was expected")?;
        std::env::set_current_dir(&workspace.root)?;
        Ok(workspace)
    }

    /// The program `name` as a build with `profile_dir` (`debug`, `release`) leaves it.
    pub(crate) fn program(&self, profile_dir: &str, name: &str) -> PathBuf {
        self.target.join(profile_dir).join(name)
    }

    pub(crate) fn package(&self, name: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.name == name)
    }
}

impl Package {
    pub(crate) fn has_library(&self) -> bool {
        self.targets.iter().any(|target| target.kind.iter().any(|kind| kind == "lib"))
    }

    pub(crate) fn has_test(&self, name: &str) -> bool {
        self.targets
            .iter()
            .any(|target| target.name == name && target.kind.iter().any(|kind| kind == "test"))
    }
}

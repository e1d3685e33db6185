//! Where the assembler and the disassembler are looked for.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program that kernelc runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// The assembler: PTX to machine code.
    Ptxas,
    /// The disassembler.
    Nvdisasm,
}

impl Tool {
    /// Both tools.
    pub const ALL: [Tool; 2] = [Tool::Ptxas, Tool::Nvdisasm];

    /// The name of the program.
    pub const fn name(self) -> &'static str {
        match self {
            Tool::Ptxas => "ptxas",
            Tool::Nvdisasm => "nvdisasm",
        }
    }

    /// The environment variable that names the program's path.
    pub const fn variable(self) -> &'static str {
        match self {
            Tool::Ptxas => "KERNELC_PTXAS",
            Tool::Nvdisasm => "KERNELC_NVDISASM",
        }
    }

    /// Looks for the tool: an explicit path, the environment variable, `$CUDA_HOME/bin`, `PATH`, then the
    /// tool folder of the project that `here` lies in. An explicit path and the variable are binding: when
    /// they name no file, nothing else is tried.
    pub fn find(self, explicit: Option<&Path>, here: &Path) -> Option<PathBuf> {
        let named =
            explicit.map(PathBuf::from).or_else(|| env::var_os(self.variable()).map(PathBuf::from));
        if let Some(path) = named {
            return path.is_file().then_some(path);
        }
        let cuda = env::var_os("CUDA_HOME").map(|home| Path::new(&home).join("bin"));
        let path = env::var_os("PATH").map(|p| env::split_paths(&p).collect::<Vec<_>>());
        let project = here.ancestors().map(|folder| folder.join(".tools/nvidia/cu13/bin"));
        cuda.into_iter()
            .chain(path.into_iter().flatten())
            .chain(project)
            .map(|folder| folder.join(self.name()))
            .find(|candidate| candidate.is_file())
    }
}

/// How to get a tool, for messages.
pub const HOW_TO_GET: &str = "`cargo xtask setup` installs the pinned version into the project; \
     or set KERNELC_PTXAS and KERNELC_NVDISASM, or put a CUDA toolkit's bin folder on PATH";

/// The version line of a tool: `13.5.37`.
pub fn version(path: &Path) -> Option<String> {
    let output = Command::new(path).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let after = text.rsplit_once("V")?.1;
    let version: String = after.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    (!version.is_empty()).then_some(version)
}

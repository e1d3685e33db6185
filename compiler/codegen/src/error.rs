//! What can go wrong, and at which stage.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ptx::Leftover;

/// A stage of code generation, named after what it produces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Device IR to MLIR.
    Mlir,
    /// MLIR to LLVM IR.
    Llvm,
    /// LLVM IR to PTX.
    Ptx,
    /// PTX to cubin.
    Cubin,
}

impl Stage {
    /// All stages in order.
    pub const ALL: [Stage; 4] = [Stage::Mlir, Stage::Llvm, Stage::Ptx, Stage::Cubin];

    /// The name, as in `--stage ptx`.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Mlir => "mlir",
            Stage::Llvm => "llvm",
            Stage::Ptx => "ptx",
            Stage::Cubin => "cubin",
        }
    }

    /// The stage of that name.
    pub fn from_name(name: &str) -> Option<Stage> {
        Stage::ALL.into_iter().find(|s| s.name() == name)
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why there is no cubin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum CodegenError {
    /// The device kernel holds what no lowering exists for. Our mistake, or a kernel that the verifier
    /// has not seen.
    #[error("operation {line} of kernel `{kernel}` cannot be lowered: {message}")]
    Lower {
        /// Export name.
        kernel: String,
        /// Line in the kernel's operation list; 0 for the kernel as a whole.
        line: u32,
        /// What is wrong with it.
        message: String,
    },
    /// MLIR does not parse or verify, or a pass fails. Our mistake, or that of a text given by hand.
    #[error("MLIR: {}", .0.join("\n"))]
    Mlir(Vec<String>),
    /// MLIR does not translate to LLVM IR. Our mistake, or that of a text given by hand.
    #[error("translation to LLVM IR: {}", .0.join("\n"))]
    Translate(Vec<String>),
    /// LLVM refuses the module or the target. Our mistake, or that of a text given by hand.
    #[error("LLVM: {0}")]
    Backend(String),
    /// LLVM wrote PTX that holds what it must not. Our mistake.
    #[error("the PTX holds {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Leftovers(Vec<Leftover>),
    /// ptxas or nvdisasm refuses its input.
    #[error("`{command}` failed: {log}")]
    Ptxas {
        /// The command, with the kernel's name in place of an anonymous file.
        command: String,
        /// What it said, and how it ended.
        log: String,
    },
    /// ptxas does not take PTX that an author wrote.
    #[error("the assembler does not take the PTX at {place}, `{text}`: {said}")]
    Author {
        /// File and line of the text.
        place: String,
        /// The text.
        text: String,
        /// What ptxas said of it.
        said: String,
    },
    /// ptxas makes products of a warpgroup wait for each other.
    #[error("`{command}` serialises products of a warpgroup: {log}")]
    Serialized {
        /// The command, with the kernel's name in place of an anonymous file.
        command: String,
        /// What it said.
        log: String,
    },
    /// ptxas or nvdisasm was ended by a signal. A mistake of the vendor.
    #[error("`{command}` crashed: {log}")]
    Crashed {
        /// The command, with the kernel's name in place of an anonymous file.
        command: String,
        /// What it said, and how it ended.
        log: String,
    },
    /// A tool of the vendor is missing.
    #[error("{tool} was not found or cannot be run: {reason}")]
    ToolMissing {
        /// `ptxas` or `nvdisasm`.
        tool: String,
        /// What was tried.
        reason: String,
    },
    /// The worker process that ran the job ended before it answered, or was stopped.
    #[error("the {stage} stage of kernel `{kernel}` ended the compiler's worker process ({status}){}", tail(.stderr))]
    WorkerDied {
        /// Name of the kernel, or of the text.
        kernel: String,
        /// The stage that it had announced last.
        stage: Stage,
        /// How it ended: a signal, an exit code or the time limit.
        status: String,
        /// The end of what it wrote to standard error.
        stderr: String,
        /// A command that shows it again.
        reproduce: String,
    },
    /// The worker process cannot be started or spoken to.
    #[error("the compiler's worker process cannot be used: {0}")]
    Worker(String),
}

impl CodegenError {
    /// The stage that failed.
    pub fn stage(&self) -> Stage {
        match self {
            CodegenError::Lower { .. } => Stage::Mlir,
            CodegenError::Mlir(_) | CodegenError::Translate(_) => Stage::Llvm,
            CodegenError::Backend(_) | CodegenError::Leftovers(_) => Stage::Ptx,
            CodegenError::Ptxas { .. }
            | CodegenError::Author { .. }
            | CodegenError::Serialized { .. }
            | CodegenError::Crashed { .. }
            | CodegenError::ToolMissing { .. } => Stage::Cubin,
            CodegenError::WorkerDied { stage, .. } => *stage,
            CodegenError::Worker(_) => Stage::Mlir,
        }
    }

    /// What the user can do about it, where that is known.
    pub fn help(&self) -> Option<String> {
        match self {
            CodegenError::ToolMissing { tool, .. } => Some(format!(
                "{tool} comes with the CUDA toolkit and, without it, with the Python wheel `{}`: \
                 `cargo xtask setup` installs it into the project's tool folder; \
                 KERNELC_{} or CUDA_HOME name another place",
                if tool == "ptxas" { "nvidia-cuda-nvcc" } else { "nvidia-cuda-nvdisasm" },
                tool.to_ascii_uppercase(),
            )),
            CodegenError::WorkerDied { reproduce, .. } => {
                Some(format!("this shows it again: {reproduce}"))
            }
            CodegenError::Crashed { .. } => {
                Some("`kernelc emit --stage ptx` writes the file that the command takes".to_owned())
            }
            CodegenError::Serialized { .. } => Some(
                "take smaller sums or fewer registers besides them: with too few registers, or sums that are \
                 moved between products, ptxas runs one product after the other"
                    .to_owned(),
            ),
            CodegenError::Lower { .. }
            | CodegenError::Mlir(_)
            | CodegenError::Translate(_)
            | CodegenError::Backend(_)
            | CodegenError::Leftovers(_)
            | CodegenError::Author { .. }
            | CodegenError::Ptxas { .. }
            | CodegenError::Worker(_) => None,
        }
    }
}

fn tail(stderr: &str) -> String {
    if stderr.trim().is_empty() { String::new() } else { format!(": {}", stderr.trim()) }
}

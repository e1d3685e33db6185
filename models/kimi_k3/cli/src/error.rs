//! What a command can fail with.

use std::path::PathBuf;

use kernel_abi::bundle::BundleError;
use kernel_emulator::{PlanFailure, SourceError};
use kernel_runtime::RuntimeError;
use kernel_text::TextError;
use kimi_k3::code::Code;
use kimi_k3::eval::EvalError;
use kimi_k3::load::LoadError;
use kimi_k3::memory::MemoryError;
use kimi_k3::packed::PackedError;
use kimi_k3::plan::ShapeError;
use kimi_k3::request::{RequestError, TokensError};
use kimi_k3::step::StepError;
use kimi_k3::{CheckpointError, ConfigError};
use thiserror::Error;

use crate::executor::ExecutorError;

/// What is refused.
const REFUSED: u8 = 1;

/// A wrong command line.
pub(crate) const USAGE: u8 = 2;

/// Files, disk, memory.
pub(crate) const WORLD: u8 = 4;

/// This program's own fault, as `EX_SOFTWARE` of sysexits.
const FAULT: u8 = 70;

/// Ctrl-C.
pub(crate) const INTERRUPTED: u8 = 130;

/// What a command can fail with.
#[derive(Debug, Error)]
pub(crate) enum CliError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Text(#[from] TextError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Shape(#[from] ShapeError),
    #[error(transparent)]
    Plan(#[from] PlanFailure),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A device without kernels for it.
    #[error("a CUDA device needs compiled kernels: --bundle FILE.kbundle")]
    NoBundle,
    #[error(transparent)]
    Step(#[from] StepError<ExecutorError>),
    #[error(transparent)]
    Eval(#[from] EvalError),
    #[error(transparent)]
    Tokens(#[from] TokensError),
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A task whose ids the model does not take.
    #[error("task `{task}`: {error}")]
    Task { task: String, error: RequestError },
    /// Kernels that do not exist for the extents of the model.
    #[error("the kernels do not take the sizes of this model: {kernel}: {fault}")]
    Sizes { kernel: String, fault: String },
    /// A file cannot be written.
    #[error("{} cannot be written: {fault}", path.display())]
    File { path: PathBuf, fault: String },
    /// Standard output is closed or full.
    #[error("the output cannot be written: {0}")]
    Output(std::io::Error),
    /// Ctrl-C.
    #[error("stopped")]
    Interrupted,
    /// A rank that there is not.
    #[error("there is no rank {rank} of {ranks}")]
    NoRank {
        /// The rank.
        rank: u32,
        /// How many there are.
        ranks: u32,
    },
    #[error(transparent)]
    Packed(#[from] PackedError),
    /// A panic.
    #[error("a fault of kimi-k3: {0}")]
    Fault(String),
}

impl CliError {
    /// The stable code.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            CliError::Config(error) => error.code().name(),
            CliError::Checkpoint(error) => error.code().name(),
            CliError::Text(error) => error.code(),
            CliError::Request(error) => error.code().name(),
            CliError::Shape(error) => error.code().name(),
            CliError::Plan(_) => Code::K0502.name(),
            CliError::Runtime(error) => error.code().name(),
            CliError::Bundle(error) => error.code.name(),
            CliError::NoBundle => Code::K0505.name(),
            CliError::Step(StepError::Executor(ExecutorError::Cuda(error))) => error.code().name(),
            CliError::Step(error) => error.code().name(),
            CliError::Eval(error) => error.code().name(),
            CliError::Tokens(error) => error.code().name(),
            CliError::Memory(error) => error.code().name(),
            CliError::Task { error, .. } => error.code().name(),
            CliError::Sizes { .. } => Code::K0404.name(),
            CliError::File { .. } => Code::K0701.name(),
            CliError::Output(_) => Code::K0702.name(),
            CliError::Interrupted => Code::K0703.name(),
            CliError::NoRank { .. } => Code::K0401.name(),
            CliError::Packed(error) => error.code().name(),
            CliError::Fault(_) => Code::K0704.name(),
        }
    }

    /// The exit code: 1 for what is refused, 4 for the world's faults, 70 for this program's, 130 for Ctrl-C.
    pub(crate) fn exit(&self) -> u8 {
        let of_world = |is_world: bool| if is_world { WORLD } else { REFUSED };
        match self {
            CliError::Config(error) => of_world(matches!(error, ConfigError::Read { .. })),
            CliError::Checkpoint(error) => of_world(matches!(error, CheckpointError::File { .. })),
            CliError::Text(error) => of_world(matches!(error, TextError::Read { .. })),
            CliError::Eval(error) => of_world(matches!(error, EvalError::Read { .. })),
            CliError::Tokens(error) => of_world(matches!(error, TokensError::Read { .. })),
            CliError::Bundle(error) => of_world(error.code.is_of_the_world()),
            CliError::Runtime(error)
            | CliError::Step(StepError::Executor(ExecutorError::Cuda(error))) => {
                of_world(error.is_of_the_world())
            }
            CliError::File { .. }
            | CliError::Output(_)
            | CliError::Memory(_)
            | CliError::Packed(_) => WORLD,
            CliError::Request(_)
            | CliError::Shape(_)
            | CliError::NoBundle
            | CliError::Plan(_)
            | CliError::Step(_)
            | CliError::Task { .. }
            | CliError::NoRank { .. }
            | CliError::Sizes { .. } => REFUSED,
            CliError::Interrupted => INTERRUPTED,
            CliError::Fault(_) => FAULT,
        }
    }

    /// Whether there is no device, or none that there are kernels for: the emulator may do.
    pub(crate) fn is_lack_of_device(&self) -> bool {
        use kernel_runtime::Code as Of;
        let CliError::Runtime(error) = self else { return false };
        match error.code() {
            Of::R0101 | Of::R0102 | Of::R0103 | Of::R0104 | Of::R0105 | Of::R0106 | Of::R0107 => {
                true
            }
            Of::R0301 | Of::R0302 => true,
            Of::R0201 | Of::R0202 | Of::R0203 | Of::R0204 => false,
            Of::R0303 | Of::R0304 | Of::R0305 | Of::R0306 | Of::R0307 | Of::R0308 => false,
            Of::R0401 | Of::R0402 => false,
        }
    }

    /// Whether a device still works, or may: the process ends without waiting for it.
    pub(crate) fn leaves_work_behind(&self) -> bool {
        match self {
            CliError::Runtime(error)
            | CliError::Step(StepError::Executor(ExecutorError::Cuda(error))) => {
                error.leaves_work_behind()
            }
            CliError::Config(_)
            | CliError::Checkpoint(_)
            | CliError::Text(_)
            | CliError::Request(_)
            | CliError::Shape(_)
            | CliError::Plan(_)
            | CliError::Bundle(_)
            | CliError::NoBundle
            | CliError::Step(_)
            | CliError::Eval(_)
            | CliError::Tokens(_)
            | CliError::Memory(_)
            | CliError::Task { .. }
            | CliError::Sizes { .. }
            | CliError::File { .. }
            | CliError::Output(_)
            | CliError::NoRank { .. }
            | CliError::Packed(_)
            | CliError::Interrupted
            | CliError::Fault(_) => false,
        }
    }

    /// The error for a plan that cannot be prepared. The kernels are part of this program, so one that is refused
    /// does not take what the model binds it to.
    pub(crate) fn of_preparation(error: PlanFailure) -> CliError {
        match error {
            PlanFailure::Source(SourceError::Refused { kernel, text }) => {
                let fault = text.lines().next().unwrap_or_default().to_owned();
                CliError::Sizes { kernel, fault }
            }
            PlanFailure::Source(SourceError::File(_) | SourceError::Kernel { .. })
            | PlanFailure::Plan(_)
            | PlanFailure::Run { .. }
            | PlanFailure::Absent { .. }
            | PlanFailure::Size { .. }
            | PlanFailure::Unwritten { .. } => CliError::Plan(error),
        }
    }
}

impl From<LoadError<CheckpointError, PackedError>> for CliError {
    fn from(error: LoadError<CheckpointError, PackedError>) -> CliError {
        match error {
            LoadError::Tensor(error) => CliError::Checkpoint(error),
            LoadError::Executor(error) => CliError::Packed(error),
            LoadError::Pack { .. } => CliError::Fault(error.to_string()),
            LoadError::Stopped => CliError::Interrupted,
        }
    }
}

impl From<LoadError<CheckpointError, ExecutorError>> for CliError {
    fn from(error: LoadError<CheckpointError, ExecutorError>) -> CliError {
        match error {
            LoadError::Tensor(error) => CliError::Checkpoint(error),
            LoadError::Executor(ExecutorError::Emulator(error)) => CliError::Plan(error),
            LoadError::Executor(ExecutorError::Cuda(error)) => CliError::Runtime(error),
            LoadError::Pack { .. } => CliError::Fault(error.to_string()),
            LoadError::Stopped => CliError::Interrupted,
        }
    }
}

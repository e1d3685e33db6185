//! What a command can fail with.

use std::path::PathBuf;

use kernel_emulator::PlanFailure;
use kernel_text::TextError;
use kimi_k3::code::Code;
use kimi_k3::eval::EvalError;
use kimi_k3::plan::ShapeError;
use kimi_k3::request::RequestError;
use kimi_k3::step::{LoadError, StepError};
use kimi_k3::{CheckpointError, ConfigError};
use thiserror::Error;

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
    Step(#[from] StepError<PlanFailure>),
    #[error(transparent)]
    Eval(#[from] EvalError),
    /// A file of token ids that is none.
    #[error("{}: {fault}", path.display())]
    Tokens { path: PathBuf, fault: String },
    /// A file cannot be read or written.
    #[error("{} cannot be {verb}: {fault}", path.display())]
    File { path: PathBuf, verb: &'static str, fault: String },
    /// Standard output is closed or full.
    #[error("the output cannot be written: {0}")]
    Output(std::io::Error),
    /// Ctrl-C.
    #[error("stopped")]
    Interrupted,
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
            CliError::Step(error) => error.code().name(),
            CliError::Eval(error) => error.code().name(),
            CliError::Tokens { .. } => Code::K0304.name(),
            CliError::File { .. } => Code::K0701.name(),
            CliError::Output(_) => Code::K0702.name(),
            CliError::Interrupted => Code::K0703.name(),
        }
    }

    /// The exit code: 4 for the world's faults, 130 for Ctrl-C, 1 for what is refused.
    pub(crate) fn exit(&self) -> u8 {
        let world = matches!(
            self,
            CliError::File { .. }
                | CliError::Output(_)
                | CliError::Config(ConfigError::Read { .. })
                | CliError::Checkpoint(CheckpointError::File { .. })
                | CliError::Text(TextError::Read { .. })
                | CliError::Eval(EvalError::Read { .. })
        );
        match self {
            CliError::Interrupted => 130,
            _ if world => 4,
            _ => 1,
        }
    }
}

impl From<LoadError<CheckpointError, PlanFailure>> for CliError {
    fn from(error: LoadError<CheckpointError, PlanFailure>) -> CliError {
        match error {
            LoadError::Tensor(error) => CliError::Checkpoint(error),
            LoadError::Executor(error) => CliError::Plan(error),
        }
    }
}

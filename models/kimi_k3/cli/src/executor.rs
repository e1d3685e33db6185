//! What runs the steps of a decoder.

use kernel_abi::exec::Executor;
use kernel_abi::plan::{BufferId, CheckedPlan};
use kernel_emulator::{EmuExecutor, PlanFailure};
use kernel_runtime::{CudaExecutor, RuntimeError};
use thiserror::Error;

/// The emulator, or a device.
#[derive(Debug)]
pub(crate) enum AnyExecutor {
    Emulator(Box<EmuExecutor>),
    Cuda(Box<CudaExecutor>),
}

/// What a step failed with.
#[derive(Debug, Error)]
pub(crate) enum ExecutorError {
    #[error(transparent)]
    Emulator(#[from] PlanFailure),
    #[error(transparent)]
    Cuda(#[from] RuntimeError),
}

impl Executor for AnyExecutor {
    type Error = ExecutorError;

    fn plan(&self) -> &CheckedPlan {
        match self {
            AnyExecutor::Emulator(executor) => executor.plan(),
            AnyExecutor::Cuda(executor) => executor.plan(),
        }
    }

    fn write(&mut self, rank: u32, buffer: BufferId, bytes: &[u8]) -> Result<(), ExecutorError> {
        match self {
            AnyExecutor::Emulator(executor) => Ok(executor.write(rank, buffer, bytes)?),
            AnyExecutor::Cuda(executor) => Ok(executor.write(rank, buffer, bytes)?),
        }
    }

    fn read(&self, rank: u32, buffer: BufferId) -> Result<Vec<u8>, ExecutorError> {
        match self {
            AnyExecutor::Emulator(executor) => Ok(executor.read(rank, buffer)?),
            AnyExecutor::Cuda(executor) => Ok(executor.read(rank, buffer)?),
        }
    }

    fn step(&mut self) -> Result<(), ExecutorError> {
        match self {
            AnyExecutor::Emulator(executor) => Ok(executor.step()?),
            AnyExecutor::Cuda(executor) => Ok(executor.step()?),
        }
    }
}

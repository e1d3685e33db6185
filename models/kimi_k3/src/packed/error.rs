//! What can be wrong with a file of packed weights. Nothing of it keeps weights from being loaded.

use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::code::Code;

/// What is wrong with a file of packed weights.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PackedError {
    /// It is not what was written, and is made anew.
    #[error("{}: {fault}; the packed weights are made anew", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        fault: String,
    },
    /// The world's: it cannot be written.
    #[error("{}: packed weights cannot be kept: {fault}", path.display())]
    Unkept {
        /// The file.
        path: PathBuf,
        /// Why.
        fault: String,
    },
}

impl PackedError {
    pub(super) fn damaged(path: &Path, fault: impl Into<String>) -> PackedError {
        PackedError::Damaged { path: path.to_owned(), fault: fault.into() }
    }

    pub(super) fn unkept(path: &Path, fault: impl Into<String>) -> PackedError {
        PackedError::Unkept { path: path.to_owned(), fault: fault.into() }
    }

    pub(crate) fn nowhere(path: &Path) -> PackedError {
        PackedError::unkept(path, "it was not finished")
    }

    /// Whether a file is not what was written.
    pub fn is_damage(&self) -> bool {
        match self {
            PackedError::Damaged { .. } => true,
            PackedError::Unkept { .. } => false,
        }
    }

    /// The stable code.
    pub fn code(&self) -> Code {
        match self {
            PackedError::Damaged { .. } => Code::K0214,
            PackedError::Unkept { .. } => Code::K0215,
        }
    }
}

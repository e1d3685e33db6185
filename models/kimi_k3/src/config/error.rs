//! What is wrong with a configuration: each names the field.

use std::path::PathBuf;

use thiserror::Error;

use crate::code::Code;

/// Why a configuration is refused.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The world's: the file is absent or unreadable.
    #[error("{} cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is no JSON.
    #[error("the configuration is no JSON: {0}")]
    Syntax(String),
    /// A field is missing.
    #[error("the configuration has no field `{field}`")]
    Missing {
        /// Its path.
        field: String,
    },
    /// A field holds a value of another kind.
    #[error("`{field}` is {found}, expected {expected}")]
    Kind {
        /// Its path.
        field: String,
        /// The kind that is needed.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
    /// A number is outside of its limits.
    #[error("`{field}` is {found}, expected {limits}")]
    Range {
        /// Its path.
        field: String,
        /// What stands there.
        found: String,
        /// What may stand there.
        limits: String,
    },
    /// A size is no multiple of what it must be.
    #[error("`{field}` is {found}, which is no multiple of {of}")]
    Multiple {
        /// Its path.
        field: String,
        /// What stands there.
        found: usize,
        /// What it must be a multiple of.
        of: usize,
    },
    /// A setting that is not implemented.
    #[error("`{field}` is {found}, which is not supported: expected {expected}")]
    Unsupported {
        /// Its path.
        field: String,
        /// What stands there.
        found: String,
        /// What is supported.
        expected: String,
    },
    /// The lists of layers do not name every layer once.
    #[error("`{field}` {fault}")]
    Layers {
        /// The list's path.
        field: String,
        /// What is wrong.
        fault: String,
    },
}

impl ConfigError {
    /// The stable code.
    pub fn code(&self) -> Code {
        match self {
            ConfigError::Read { .. } => Code::K0101,
            ConfigError::Syntax(_) => Code::K0102,
            ConfigError::Missing { .. } => Code::K0103,
            ConfigError::Kind { .. } => Code::K0104,
            ConfigError::Range { .. } => Code::K0105,
            ConfigError::Multiple { .. } => Code::K0106,
            ConfigError::Unsupported { .. } => Code::K0107,
            ConfigError::Layers { .. } => Code::K0108,
        }
    }
}

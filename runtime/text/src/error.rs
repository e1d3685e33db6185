//! What can be wrong with a tokenizer or a text.

use std::path::PathBuf;

use thiserror::Error;

/// Why there is no tokenizer, or no text.
#[derive(Debug, Error)]
pub enum TextError {
    /// The world's: the file cannot be read.
    #[error("{} cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A tokenizer of another format, or none.
    #[error("{} holds {found}; only `tokenizer.json` is supported", folder.display())]
    Format {
        /// The folder.
        folder: PathBuf,
        /// What it holds instead.
        found: String,
    },
    /// The file is broken.
    #[error("{} is broken: {fault}", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        fault: String,
    },
    /// A tokenizer of another kind.
    #[error("{}: `{field}` is {found}, expected {expected}", path.display())]
    Kind {
        /// The file.
        path: PathBuf,
        /// The field that tells.
        field: &'static str,
        /// What it says.
        found: String,
        /// What is supported.
        expected: &'static str,
    },
    /// A text cannot be encoded.
    #[error("the text cannot be encoded: {0}")]
    Encode(String),
    /// A token id without a token.
    #[error("there is no token {id}; the vocabulary has {size}")]
    Token {
        /// The id.
        id: u32,
        /// Tokens that there are.
        size: usize,
    },
}

impl TextError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            TextError::Read { .. } => "T0101",
            TextError::Format { .. } => "T0102",
            TextError::Broken { .. } => "T0103",
            TextError::Kind { .. } => "T0104",
            TextError::Encode(_) => "T0105",
            TextError::Token { .. } => "T0106",
        }
    }
}

//! What a request must hold before it runs.

use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::code::Code;
use crate::config::Config;
use crate::files::{MAX_IDS, read_bytes};
use crate::shown::{FAULT, shown};

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RequestError {
    /// There is no token to start from.
    #[error("the prompt is empty")]
    Empty,
    /// A token id that the vocabulary does not have.
    #[error("token {position} is {id}, the vocabulary has the ids 0 to {last}")]
    Vocabulary {
        /// Where it stands in the prompt.
        position: usize,
        /// The id.
        id: i64,
        /// The greatest id.
        last: usize,
    },
    /// More positions than the context has.
    #[error("{prompt} tokens and {new} new ones are more than the context of {context}")]
    Context {
        /// Tokens of the prompt.
        prompt: usize,
        /// New tokens that were asked for.
        new: usize,
        /// Positions of the context.
        context: usize,
    },
}

impl RequestError {
    /// The stable code.
    pub fn code(&self) -> Code {
        match self {
            RequestError::Empty => Code::K0301,
            RequestError::Vocabulary { .. } => Code::K0302,
            RequestError::Context { .. } => Code::K0303,
        }
    }
}

/// The ids of a prompt after which `new` tokens shall follow.
///
/// # Errors
/// The prompt is empty, an id is outside the vocabulary, or the context is too short.
pub fn check_tokens(config: &Config, ids: &[i64], new: usize) -> Result<Vec<u32>, RequestError> {
    if ids.is_empty() {
        return Err(RequestError::Empty);
    }
    if ids.len().checked_add(new).is_none_or(|all| all > config.context) {
        let (prompt, context) = (ids.len(), config.context);
        return Err(RequestError::Context { prompt, new, context });
    }
    let in_vocabulary = |(position, &id): (usize, &i64)| match u32::try_from(id) {
        Ok(token) if (token as usize) < config.vocab => Ok(token),
        Ok(_) | Err(_) => {
            Err(RequestError::Vocabulary { position, id, last: config.vocab.saturating_sub(1) })
        }
    };
    ids.iter().enumerate().map(in_vocabulary).collect()
}

/// Why there are no token ids.
#[derive(Debug, Error)]
pub enum TokensError {
    /// The world's: the file cannot be read.
    #[error("{} cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is no list of token ids.
    #[error("{} is no list of token ids: {fault}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        fault: String,
    },
}

impl TokensError {
    /// The stable code.
    pub fn code(&self) -> Code {
        match self {
            TokensError::Read { .. } => Code::K0701,
            TokensError::Syntax { .. } => Code::K0304,
        }
    }
}

/// Reads a JSON list of token ids. Whether they are tokens is for [`check_tokens`] to say.
///
/// # Errors
/// The file cannot be read, or is no such list.
pub fn read_tokens(path: &Path) -> Result<Vec<i64>, TokensError> {
    let text = read_bytes(path, MAX_IDS)
        .map_err(|source| TokensError::Read { path: path.to_owned(), source })?;
    serde_json::from_slice(&text).map_err(|error| {
        let fault = shown(&error.to_string(), FAULT);
        TokensError::Syntax { path: path.to_owned(), fault }
    })
}

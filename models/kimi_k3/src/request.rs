//! What a request must hold before it runs.

use thiserror::Error;

use crate::code::Code;
use crate::config::Config;

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

//! Sets of tasks with known answers: one JSON object a line, as `mini/eval` holds them.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;

use crate::code::Code;
use crate::files::{MAX_LIST, read_bytes};
use crate::shown::{FAULT, NAME, shown};

/// Stands before the result of a chain of arithmetic.
const RESULT_MARK: &str = "#### ";

/// One task.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Task {
    /// Its name.
    pub id: String,
    /// What is asked.
    #[serde(rename = "task")]
    pub kind: Kind,
    /// The text to continue; BOS is not part of it.
    pub prompt: String,
    /// The expected continuation without the space before it.
    pub answer: String,
    /// Tokens of the prompt with BOS.
    pub prompt_tokens: usize,
    /// The number that a chain of arithmetic ends with.
    #[serde(rename = "final")]
    pub result: Option<String>,
    /// What the reference model in f32 continues with, greedily.
    pub reference_ids: Vec<u32>,
    /// The same as text.
    pub reference_text: String,
    /// Whether that is correct.
    pub reference_correct: bool,
    /// The least margin between best and second logit on the way.
    pub reference_min_margin: f64,
}

/// Kinds of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The value of a key in a list.
    Recall,
    /// The i-th note about something.
    Ith,
    /// A chain of sums and products.
    Arith,
}

/// How many tokens of an output are those of the reference model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Agreement {
    /// Equal ones.
    pub equal: usize,
    /// All of the reference.
    pub all: usize,
}

impl std::ops::AddAssign for Agreement {
    fn add_assign(&mut self, other: Agreement) {
        self.equal += other.equal;
        self.all += other.all;
    }
}

impl Task {
    /// The start of its name, for messages.
    pub fn shown_name(&self) -> String {
        shown(&self.id, NAME)
    }

    /// Checks that the prompt has as many tokens as the set says; `path` is for messages.
    ///
    /// # Errors
    /// It has more or fewer: the set was made with another tokenizer.
    pub fn check_prompt(&self, tokens: usize, path: &Path) -> Result<(), EvalError> {
        if tokens == self.prompt_tokens {
            return Ok(());
        }
        Err(EvalError::Task {
            path: path.to_owned(),
            task: self.shown_name(),
            fault: format!(
                "has a prompt of {tokens} tokens, `prompt_tokens` says {}",
                self.prompt_tokens
            ),
        })
    }

    /// Tokens to generate: as many as the reference has.
    pub fn new_tokens(&self) -> usize {
        self.reference_ids.len()
    }

    /// Whether a continuation is correct: its first line is a space and the answer, or for arithmetic ends with the
    /// right result.
    pub fn is_correct(&self, output: &str) -> bool {
        let line = output.split('\n').next().unwrap_or("");
        match self.kind {
            Kind::Recall | Kind::Ith => line.strip_prefix(' ') == Some(self.answer.as_str()),
            Kind::Arith => {
                let result = line.split_once(RESULT_MARK).map(|(_, result)| result.trim_end());
                result.is_some() && result == self.result.as_deref()
            }
        }
    }

    /// Compares ids place by place; `ids` may be shorter or longer than the reference.
    ///
    /// With the reference fed in, `ids` holds the best token at each position; free-running, it is the output.
    pub fn agreement(&self, ids: &[u32]) -> Agreement {
        let equal = self.reference_ids.iter().zip(ids).filter(|(a, b)| a == b).count();
        Agreement { equal, all: self.reference_ids.len() }
    }
}

/// Why a set of tasks is refused.
#[derive(Debug, Error)]
pub enum EvalError {
    /// The world's: the file cannot be read.
    #[error("{} cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file has no task.
    #[error("{} holds no task", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A task does not fit the tokenizer.
    #[error("{}: task `{task}` {fault}", path.display())]
    Task {
        /// The file.
        path: PathBuf,
        /// The task's name.
        task: String,
        /// What does not fit.
        fault: String,
    },
    /// A line is broken.
    #[error("{}: line {line} is no task: {fault}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        fault: String,
    },
}

impl EvalError {
    /// The stable code.
    pub fn code(&self) -> Code {
        match self {
            EvalError::Read { .. } => Code::K0601,
            EvalError::Empty { .. } | EvalError::Task { .. } | EvalError::Line { .. } => {
                Code::K0602
            }
        }
    }
}

/// Reads a file of tasks.
///
/// # Errors
/// The file cannot be read, or [`parse`] refuses it.
pub fn open(path: &Path) -> Result<Vec<Task>, EvalError> {
    let bytes = read_bytes(path, MAX_LIST)
        .map_err(|source| EvalError::Read { path: path.to_owned(), source })?;
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        let line = bytes[..error.valid_up_to()].iter().filter(|&&byte| byte == b'\n').count() + 1;
        EvalError::Line { path: path.to_owned(), line, fault: format!("not UTF-8: {error}") }
    })?;
    parse(text, path)
}

/// Reads tasks, one a line; empty lines are skipped. `path` is for messages.
///
/// # Errors
/// There is no task, a line is none, or a task lacks what its kind needs.
pub fn parse(text: &str, path: &Path) -> Result<Vec<Task>, EvalError> {
    let mut tasks = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let broken = |fault: String| EvalError::Line { path: path.to_owned(), line: at + 1, fault };
        let task: Task = serde_json::from_str(line).map_err(|error| broken(fault_of(&error)))?;
        let name = task.shown_name();
        if task.kind == Kind::Arith && task.result.is_none() {
            return Err(broken(format!("`{name}` has no field `final`")));
        }
        if task.reference_ids.is_empty() {
            return Err(broken(format!("`{name}` has no reference ids")));
        }
        tasks.push(task);
    }
    if tasks.is_empty() {
        return Err(EvalError::Empty { path: path.to_owned() });
    }
    Ok(tasks)
}

/// A parser's message without the place, whose line would be that of a text of one line.
fn fault_of(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let fault = shown(message.strip_suffix(&place).unwrap_or(&message), FAULT);
    format!("{fault}, at column {}", error.column())
}

//! Stable codes of what can be wrong with a litmus test.

use std::fmt;

use thiserror::Error;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What is wrong, as a code that stays the same when the message is reworded. `docs/memory-model.md`
        /// lists them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// Every code, in order.
            pub const ALL: &[Code] = &[$(Code::$name,)*];

            /// The code as text, `M0101`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Code::$name => stringify!($name),)*
                }
            }
        }
    };
}

codes! {
    /// The text is no PTX litmus test.
    M0101,
    /// Something does not stand where it may.
    M0102,
    /// An instruction that the dialect does not have.
    M0103,
    /// A qualifier is missing, or does not fit the instruction.
    M0104,
    /// A row has more or fewer columns than there are threads.
    M0105,
    /// A thread, a label or an operation that does not exist is named.
    M0106,
    /// Something is declared twice.
    M0107,
    /// A number does not fit.
    M0108,
    /// The test is larger than this reader takes.
    M0109,
    /// An alias leads back to itself.
    M0110,
    /// The model that was asked for has no proxies.
    M0201,
    /// There are more executions than the decider looks at.
    M0202,
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A place in a text: both count from one; columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spot {
    /// The line.
    pub line: u32,
    /// The character within it.
    pub column: u32,
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// One thing that is wrong with a test: a fault of its author, or a limit of this crate.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{spot}: {code}: {message}")]
pub struct Diagnostic {
    /// What it is.
    pub code: Code,
    /// Where it is.
    pub spot: Spot,
    /// What was found, and what is possible instead.
    pub message: String,
}

impl Diagnostic {
    pub(crate) fn new(code: Code, spot: Spot, message: impl Into<String>) -> Diagnostic {
        Diagnostic { code, spot, message: message.into() }
    }
}

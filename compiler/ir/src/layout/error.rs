//! Why a layout operation was refused.

use std::fmt;

/// The kinds of refusal, each with its diagnostic code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutErrorKind {
    /// The operation is not defined for these layouts.
    Undefined,
    /// The text is not an expression of the notation.
    Notation,
    /// A number, a size, a nesting or a text is beyond the limits.
    TooLarge,
}

impl LayoutErrorKind {
    /// The code that users see.
    pub fn code(self) -> &'static str {
        match self {
            Self::Undefined => "E0301",
            Self::Notation => "E0302",
            Self::TooLarge => "E0303",
        }
    }
}

impl fmt::Display for LayoutErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// A refused layout operation; always the fault of the input.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct LayoutError {
    /// Which kind of refusal.
    pub kind: LayoutErrorKind,
    /// One line, lower case, without a full stop: which mode breaks which condition.
    pub message: String,
}

impl LayoutError {
    /// The code that users see.
    pub fn code(&self) -> &'static str {
        self.kind.code()
    }

    /// The operation is not defined there.
    pub fn undefined(message: impl Into<String>) -> Self {
        Self { kind: LayoutErrorKind::Undefined, message: message.into() }
    }

    /// The text is not notation.
    pub fn notation(message: impl Into<String>) -> Self {
        Self { kind: LayoutErrorKind::Notation, message: message.into() }
    }

    /// Something is beyond the limits.
    pub fn too_large(message: impl Into<String>) -> Self {
        Self { kind: LayoutErrorKind::TooLarge, message: message.into() }
    }
}

/// The product, or an error that names what grew too large.
pub(super) fn multiply(a: i64, b: i64, what: &str) -> Result<i64, LayoutError> {
    a.checked_mul(b).ok_or_else(|| {
        LayoutError::too_large(format!("{what} do not fit in 64 bits: {a} times {b}"))
    })
}

/// The sum, or an error that names what grew too large.
pub(super) fn add(a: i64, b: i64, what: &str) -> Result<i64, LayoutError> {
    a.checked_add(b).ok_or_else(|| {
        LayoutError::too_large(format!("{what} do not fit in 64 bits: {a} plus {b}"))
    })
}

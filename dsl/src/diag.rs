//! Diagnostics as plain data: built anywhere, rendered in `render`, `json` and `sarif` only.

mod codes;
mod fact;
pub mod json;
pub mod render;
pub mod sarif;

use std::fmt;

pub use codes::{Code, UnknownCode};
pub use fact::Fact;

use crate::source::Span;

/// How much a diagnostic weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Background that needs no action.
    Note,
    /// Legal, but probably not meant.
    Warning,
    /// The input is refused.
    Error,
}

impl Severity {
    /// The word that every output format uses.
    pub fn word(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A place and what to say about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Where.
    pub span: Span,
    /// What was found there; may be empty.
    pub message: String,
    /// Whether this is the place of the mistake itself, not one that explains it.
    pub primary: bool,
}

/// One finding: a code, a message of one line in lower case without a full stop, places, and what
/// to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Which rule speaks.
    pub code: Code,
    /// How much it weighs.
    pub severity: Severity,
    /// The mistake in one line.
    pub message: String,
    /// Places; a primary one first where the finding has a place in a text.
    pub labels: Vec<Label>,
    /// Facts that have a name and speak of lines.
    pub facts: Box<[Fact]>,
    /// Further facts.
    pub notes: Vec<String>,
    /// What to write instead.
    pub help: Vec<String>,
}

impl Diagnostic {
    /// A finding without places yet.
    pub fn new(code: Code, severity: Severity, message: impl Into<String>) -> Self {
        Self {
            code,
            severity,
            message: message.into(),
            labels: Vec::new(),
            facts: Box::default(),
            notes: Vec::new(),
            help: Vec::new(),
        }
    }

    /// A finding that refuses the input.
    pub fn error(code: Code, message: impl Into<String>) -> Self {
        Self::new(code, Severity::Error, message)
    }

    /// A finding that does not refuse the input.
    pub fn warning(code: Code, message: impl Into<String>) -> Self {
        Self::new(code, Severity::Warning, message)
    }

    /// Background that needs no action.
    pub fn remark(code: Code, message: impl Into<String>) -> Self {
        Self::new(code, Severity::Note, message)
    }

    /// Adds the place of the mistake.
    #[must_use]
    pub fn label(mut self, span: Span, message: impl Into<String>) -> Self {
        self.labels.push(Label { span, message: message.into(), primary: true });
        self
    }

    /// Adds a place that explains the mistake.
    #[must_use]
    pub fn secondary(mut self, span: Span, message: impl Into<String>) -> Self {
        self.labels.push(Label { span, message: message.into(), primary: false });
        self
    }

    /// Adds a fact that has a name.
    #[must_use]
    pub fn fact(mut self, fact: Fact) -> Self {
        let known = std::mem::take(&mut self.facts).into_vec();
        self.facts = known.into_iter().chain([fact]).collect();
        self
    }

    /// Adds a further fact.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Adds what to write instead.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help.push(help.into());
        self
    }

    /// The place of the mistake: the first primary label, else the first label.
    pub fn primary(&self) -> Option<&Label> {
        self.labels.iter().find(|label| label.primary).or(self.labels.first())
    }
}

/// Collects diagnostics; nothing stops at the first.
#[derive(Clone, Debug, Default)]
pub struct Sink {
    diagnostics: Vec<Diagnostic>,
}

impl Sink {
    /// An empty sink.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one finding.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
    }

    /// Adds findings.
    pub fn extend(&mut self, diagnostics: impl IntoIterator<Item = Diagnostic>) {
        self.diagnostics.extend(diagnostics);
    }

    /// Whether any finding is an error.
    pub fn has_errors(&self) -> bool {
        self.error_count() > 0
    }

    /// How many findings are errors.
    pub fn error_count(&self) -> usize {
        self.diagnostics.iter().filter(|d| d.severity == Severity::Error).count()
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.diagnostics.is_empty()
    }

    /// The findings so far, in the order in which they came.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// The findings, those of one file by place, equal ones once.
    pub fn into_sorted(self) -> Vec<Diagnostic> {
        let mut diagnostics = self.diagnostics;
        diagnostics.sort_by_key(|d| (d.primary().map(|l| l.span), d.code));
        diagnostics.dedup();
        diagnostics
    }

    /// The findings in the order in which they came.
    pub fn into_vec(self) -> Vec<Diagnostic> {
        self.diagnostics
    }
}

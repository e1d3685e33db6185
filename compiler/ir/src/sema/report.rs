//! Collects findings; one place gets one finding of a code.

use kernel_dsl::diag::{Code, Diagnostic, Sink};
use kernel_dsl::source::Span;
use rustc_hash::FxHashSet;

/// The reason has been reported; whoever gets this goes on with something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refused;

/// A result whose error has been reported.
pub(super) type Outcome<T> = Result<T, Refused>;

/// The most findings that one walk reports; a file that has more is read again after the first repairs.
const MAX_FINDINGS: usize = 200;

/// Collects findings.
#[derive(Debug, Default)]
pub(super) struct Reporter {
    sink: Sink,
    seen: FxHashSet<(Code, Span)>,
}

impl Reporter {
    /// Adds a finding, unless its place already has one of its code.
    pub(super) fn error(&mut self, diagnostic: Diagnostic) -> Refused {
        let span = diagnostic.primary().map(|label| label.span).unwrap_or_default();
        if self.seen.len() < MAX_FINDINGS && self.seen.insert((diagnostic.code, span)) {
            self.sink.push(diagnostic);
        }
        Refused
    }

    /// Refuses what is legal in the language and not built.
    pub(super) fn not_built(&mut self, span: Span, what: &str) -> Refused {
        self.error(not_built(span, what))
    }

    /// Whether anything was refused.
    pub(super) fn has_errors(&self) -> bool {
        self.sink.has_errors()
    }

    /// The findings by place.
    pub(super) fn into_sorted(self) -> Vec<Diagnostic> {
        self.sink.into_sorted()
    }
}

/// The finding for what is legal in the language and not built.
pub(super) fn not_built(span: Span, what: &str) -> Diagnostic {
    Diagnostic::error(Code::E0600, format!("{what}: not supported in this version"))
        .label(span, "this version of the compiler does not build it")
}

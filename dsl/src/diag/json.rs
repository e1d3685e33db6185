//! Diagnostics as JSON: one object a diagnostic, one line an object.

use serde::Serialize;

use super::{Diagnostic, Label};
use crate::source::{SourceMap, Span};

/// A diagnostic as it is written: places as lines and columns from 1.
#[derive(Clone, Debug, Serialize)]
pub struct JsonDiagnostic {
    code: &'static str,
    severity: &'static str,
    message: String,
    /// File and span of the primary label; null where the finding has no place in a text.
    file: Option<String>,
    span: Option<JsonSpan>,
    labels: Vec<JsonLabel>,
    notes: Vec<String>,
    help: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
struct JsonLabel {
    file: String,
    span: JsonSpan,
    message: String,
    primary: bool,
}

#[derive(Clone, Debug, Serialize)]
struct JsonSpan {
    start: JsonPlace,
    end: JsonPlace,
}

/// Line and column from 1, the column in characters, and the offset in bytes.
#[derive(Clone, Debug, Serialize)]
struct JsonPlace {
    line: u32,
    column: u32,
    offset: u32,
}

impl JsonDiagnostic {
    /// Resolves the places of a diagnostic.
    pub fn new(sources: &SourceMap, diagnostic: &Diagnostic) -> Self {
        let primary = diagnostic.primary();
        Self {
            code: diagnostic.code.name(),
            severity: diagnostic.severity.word(),
            message: diagnostic.message.clone(),
            file: primary.map(|label| sources.name(label.span.file).to_owned()),
            span: primary.map(|label| span(sources, label.span)),
            labels: diagnostic.labels.iter().map(|label| self::label(sources, label)).collect(),
            notes: {
                let mut notes = diagnostic.resolved_facts(sources);
                notes.extend(diagnostic.notes.iter().cloned());
                notes
            },
            help: diagnostic.help.clone(),
        }
    }
}

fn label(sources: &SourceMap, label: &Label) -> JsonLabel {
    JsonLabel {
        file: sources.name(label.span.file).to_owned(),
        span: span(sources, label.span),
        message: label.message.clone(),
        primary: label.primary,
    }
}

fn span(sources: &SourceMap, span: Span) -> JsonSpan {
    let place = |offset| {
        let at = sources.line_col(span.file, offset);
        JsonPlace { line: at.line, column: at.column, offset }
    };
    JsonSpan { start: place(span.lo), end: place(span.hi) }
}

/// One diagnostic on one line, without a line end.
pub fn object(sources: &SourceMap, diagnostic: &Diagnostic) -> String {
    serde_json::to_string(&JsonDiagnostic::new(sources, diagnostic))
        .expect("strings and numbers always have a JSON form")
}

/// All diagnostics, one line each.
pub fn lines(sources: &SourceMap, diagnostics: &[Diagnostic]) -> String {
    diagnostics.iter().map(|diagnostic| object(sources, diagnostic) + "\n").collect()
}

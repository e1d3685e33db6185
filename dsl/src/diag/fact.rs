//! Facts of a diagnostic that have a name and speak of lines, which only the map of sources knows.

use super::Diagnostic;
use crate::source::{FileId, SourceMap, Span};

/// A text under a name, `missing edge`, in which places stand as lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    name: &'static str,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Line(Span),
}

impl Fact {
    /// A fact without text yet.
    pub fn new(name: &'static str) -> Fact {
        Fact { name, parts: Vec::new() }
    }

    /// What the fact is called.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Adds words.
    #[must_use]
    pub fn text(mut self, text: impl Into<String>) -> Fact {
        self.parts.push(Part::Text(text.into()));
        self
    }

    /// Adds the line where a place begins: `line 12`, with the file where the diagnostic is of another one.
    #[must_use]
    pub fn line(mut self, span: Span) -> Fact {
        self.parts.push(Part::Line(span));
        self
    }

    /// The text without the name, as it stands in a diagnostic about `home`.
    pub fn resolved(&self, sources: &SourceMap, home: Option<FileId>) -> String {
        let part = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Line(span) => {
                let line = sources.start(*span).line;
                if home.is_none_or(|home| home == span.file) {
                    format!("line {line}")
                } else {
                    format!("{}:{line}", sources.name(span.file))
                }
            }
        };
        self.parts.iter().map(part).collect()
    }
}

impl Diagnostic {
    /// The facts as `name: text`, for formats that know notes alone.
    pub fn resolved_facts(&self, sources: &SourceMap) -> Vec<String> {
        let home = self.primary().map(|label| label.span.file);
        let line = |fact: &Fact| format!("{}: {}", fact.name, fact.resolved(sources, home));
        self.facts.iter().map(line).collect()
    }
}

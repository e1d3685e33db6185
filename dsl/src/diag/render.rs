//! Diagnostics as text for a terminal. The only place that knows the drawing crate.

use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level, Origin, Renderer, Snippet};

use super::{Diagnostic, Label, Severity};
use crate::source::{FileId, SourceMap};

/// Whether the text carries colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// Characters only.
    Plain,
    /// Escape sequences of a terminal.
    Colored,
}

/// How the text is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Colours or none.
    pub paint: Paint,
    /// Columns of the terminal; longer lines of source are cut.
    pub width: usize,
}

impl Look {
    /// Characters only, in 140 columns.
    pub const PLAIN: Look = Look { paint: Paint::Plain, width: 140 };
}

/// Source between the first and the last label of a file that is longer than this is not shown.
const MAX_SHOWN_BYTES: usize = 1 << 20;
/// Characters of one line that are shown at most around a label.
const MAX_LINE_BYTES: usize = 4096;

/// One diagnostic as text that ends with a line end.
pub fn text(sources: &SourceMap, diagnostic: &Diagnostic, look: Look) -> String {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
        Severity::Note => Level::NOTE,
    };
    let title = clean(&diagnostic.message);
    let mut group =
        annotate_snippets::Group::with_title(level.primary_title(title).id(diagnostic.code.name()));
    for labels in by_file(diagnostic) {
        group = match snippet(sources, &labels) {
            Some(snippet) => group.element(snippet),
            None => group.element(origin(sources, labels[0])),
        };
    }
    let home = diagnostic.primary().map(|label| label.span.file);
    group = group.elements(diagnostic.facts.iter().map(|fact| {
        Level::NOTE.with_name(fact.name()).message(clean(&fact.resolved(sources, home)))
    }));
    group = group.elements(diagnostic.notes.iter().map(|note| Level::NOTE.message(clean(note))));
    group = group.elements(diagnostic.help.iter().map(|help| Level::HELP.message(clean(help))));
    let renderer = match look.paint {
        Paint::Plain => Renderer::plain(),
        Paint::Colored => Renderer::styled(),
    };
    let mut out = renderer.term_width(look.width).render(&[group]);
    out.push('\n');
    out
}

/// All diagnostics as text, with a blank line between them.
pub fn text_of_all(sources: &SourceMap, diagnostics: &[Diagnostic], look: Look) -> String {
    let texts: Vec<String> = diagnostics.iter().map(|d| text(sources, d, look)).collect();
    texts.join("\n")
}

/// The labels of each file, that of the primary label first.
fn by_file(diagnostic: &Diagnostic) -> Vec<Vec<&Label>> {
    let mut files: Vec<(FileId, Vec<&Label>)> = Vec::new();
    let primary = diagnostic.primary();
    for label in primary.into_iter().chain(&diagnostic.labels) {
        match files.iter_mut().find(|(file, _)| *file == label.span.file) {
            Some((_, labels)) if labels.iter().any(|known| std::ptr::eq(*known, label)) => {}
            Some((_, labels)) => labels.push(label),
            None => files.push((label.span.file, vec![label])),
        }
    }
    files.into_iter().map(|(_, labels)| labels).collect()
}

/// The lines of the labels, none when they are too far apart or too long.
fn snippet<'a>(
    sources: &'a SourceMap,
    labels: &[&Label],
) -> Option<Snippet<'a, annotate_snippets::Annotation<'a>>> {
    let file = labels.first()?.span.file;
    let text = sources.text(file);
    let lo = labels.iter().map(|label| label.span.lo as usize).min()?;
    let hi = labels.iter().map(|label| label.span.hi as usize).max()?.max(lo);
    let start = text[..lo].rfind('\n').map_or(0, |at| at + 1);
    let end = text[hi..].find('\n').map_or(text.len(), |at| hi + at);
    if end - start > MAX_SHOWN_BYTES || lo - start > MAX_LINE_BYTES || end - hi > MAX_LINE_BYTES {
        return None;
    }
    let line = sources.line_col(file, lo as u32).line as usize;
    let annotations = labels.iter().map(|label| {
        let kind = if label.primary { AnnotationKind::Primary } else { AnnotationKind::Context };
        let span: Range<usize> =
            label.span.lo as usize - start..label.span.hi.max(label.span.lo) as usize - start;
        let annotation = kind.span(span);
        if label.message.is_empty() { annotation } else { annotation.label(clean(&label.message)) }
    });
    Some(
        Snippet::source(&text[start..end])
            .line_start(line)
            .path(sources.name(file))
            .annotations(annotations),
    )
}

fn origin<'a>(sources: &'a SourceMap, label: &Label) -> Origin<'a> {
    let place = sources.start(label.span);
    Origin::path(sources.name(label.span.file))
        .line(place.line as usize)
        .char_column(place.column as usize)
}

/// Messages may quote source text; control characters in it must not reach a terminal.
fn clean(text: &str) -> String {
    let visible =
        |c: char| if c.is_control() && c != '\n' { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().map(visible).collect()
}

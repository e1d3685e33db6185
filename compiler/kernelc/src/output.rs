//! Diagnostics in the form that was asked for.

use kernel_dsl::diag::{Diagnostic, Severity};
use kernel_dsl::source::SourceMap;
use kernel_ir::verify::Waived;

use crate::cli::{Answer, Format, exit};

/// Renders diagnostics: text goes to stderr, JSON (one object a line) and SARIF to stdout. The code is 1 when
/// one of them is an error.
pub fn diagnostics(format: Format, sources: &SourceMap, found: &[Diagnostic]) -> Answer {
    let mut answer = Answer::default();
    match format {
        Format::Text => {
            for diagnostic in found {
                answer.stderr.push_str(&kernel_dsl::diag::render::text(sources, diagnostic));
                answer.stderr.push('\n');
            }
        }
        Format::Json => {
            for diagnostic in found {
                answer.stdout.push_str(&kernel_dsl::diag::json::line(sources, diagnostic));
                answer.stdout.push('\n');
            }
        }
        Format::Sarif => {
            answer.stdout.push_str(&kernel_dsl::diag::sarif::document(sources, found));
            answer.stdout.push('\n');
        }
    }
    if found.iter().any(|d| d.severity == Severity::Error) {
        answer.code = exit::FINDINGS;
    }
    answer
}

/// Each waived finding with its reason, one a line.
pub fn waived(sources: &SourceMap, waived: &[Waived]) -> String {
    waived
        .iter()
        .map(|w| {
            let place = w.diagnostic.primary().map_or(String::new(), |label| {
                let at = sources.line_col(label.span.file, label.span.lo);
                format!(" at {}:{}", sources.name(label.span.file), at.line)
            });
            format!("waived {}{place}: {}\n", w.diagnostic.code.name(), w.reason)
        })
        .collect()
}

//! Diagnostics in the form that was asked for.

use std::io::IsTerminal;

use kernel_dsl::diag::render::{self, Look, Paint};
use kernel_dsl::diag::{Diagnostic, Severity, json, sarif};
use kernel_dsl::source::{SourceMap, Span};
use kernel_ir::pipeline::Built;

use crate::cli::{Answer, Format, exit};

/// Who writes SARIF logs.
const TOOL: sarif::Tool<'_> = sarif::Tool { name: "kernelc", version: env!("CARGO_PKG_VERSION") };

/// Colours where a person reads.
fn look() -> Look {
    let colored = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    Look { paint: if colored { Paint::Colored } else { Paint::Plain }, ..Look::PLAIN }
}

/// Renders diagnostics: text goes to stderr, JSON (one object a line) and SARIF to stdout. The code is 1 when
/// one of them is an error.
pub fn diagnostics(format: Format, sources: &SourceMap, found: &[Diagnostic]) -> Answer {
    let mut answer = Answer::default();
    match format {
        Format::Text => {
            for diagnostic in found {
                answer.stderr.push_str(&render::text(sources, diagnostic, look()));
                answer.stderr.push('\n');
            }
        }
        Format::Json => {
            for diagnostic in found {
                answer.stdout.push_str(&json::object(sources, diagnostic));
                answer.stdout.push('\n');
            }
        }
        Format::Sarif => {
            answer.stdout.push_str(&sarif::log(sources, found, TOOL));
            answer.stdout.push('\n');
        }
    }
    if found.iter().any(|d| d.severity == Severity::Error) {
        answer.code = exit::FINDINGS;
    }
    answer
}

/// What is taken on trust, one a line: each waived finding with its reason, and each PTX of an author.
pub fn trusted(sources: &SourceMap, built: &Built) -> String {
    let at = |span: Span| {
        format!(" at {}:{}", sources.name(span.file), sources.line_col(span.file, span.lo).line)
    };
    let waived = built.waived.iter().map(|w| {
        let place = w.diagnostic.primary().map_or(String::new(), |label| at(label.span));
        format!("waived {}{place}: {}\n", w.diagnostic.code.name(), w.reason)
    });
    let inline = built.kernel.inline_ptx();
    let unsafe_ptx = inline.iter().map(|(span, text)| format!("unsafe ptx{}: {text}\n", at(*span)));
    waived.chain(unsafe_ptx).collect()
}

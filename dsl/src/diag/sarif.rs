//! Diagnostics as one SARIF 2.1.0 log, for review tools.

use serde_json::{Value, json};

use super::{Code, Diagnostic, Label};
use crate::source::{SourceMap, Span};

/// Who writes the log.
#[derive(Clone, Copy, Debug)]
pub struct Tool<'a> {
    /// `kernelc`
    pub name: &'a str,
    /// Its version.
    pub version: &'a str,
}

const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// The log of one run.
pub fn log(sources: &SourceMap, diagnostics: &[Diagnostic], tool: Tool<'_>) -> String {
    let mut codes: Vec<Code> = diagnostics.iter().map(|diagnostic| diagnostic.code).collect();
    codes.sort_unstable();
    codes.dedup();
    let results: Vec<Value> =
        diagnostics.iter().map(|diagnostic| result(sources, diagnostic, &codes)).collect();
    let log = json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": tool.name,
                "version": tool.version,
                "rules": codes.iter().copied().map(rule).collect::<Vec<_>>(),
            }},
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    });
    let mut out = serde_json::to_string_pretty(&log).expect("a JSON value always has a text");
    out.push('\n');
    out
}

fn rule(code: Code) -> Value {
    json!({
        "id": code.name(),
        "shortDescription": { "text": code.title() },
        "help": { "text": code.page(), "markdown": code.page() },
    })
}

fn result(sources: &SourceMap, diagnostic: &Diagnostic, codes: &[Code]) -> Value {
    let index = codes.binary_search(&diagnostic.code).expect("`codes` holds every code");
    let mut lines = vec![diagnostic.message.clone()];
    lines.extend(diagnostic.resolved_facts(sources));
    lines.extend(diagnostic.notes.iter().map(|note| format!("note: {note}")));
    lines.extend(diagnostic.help.iter().map(|help| format!("help: {help}")));
    let primary = diagnostic.primary();
    let others = diagnostic
        .labels
        .iter()
        .filter(|label| !primary.is_some_and(|primary| std::ptr::eq(*label, primary)));
    json!({
        "ruleId": diagnostic.code.name(),
        "ruleIndex": index,
        // SARIF has the same three words.
        "level": diagnostic.severity.word(),
        "message": { "text": lines.join("\n") },
        "locations": primary.map(|label| location(sources, label)).into_iter().collect::<Vec<_>>(),
        "relatedLocations": others.map(|label| location(sources, label)).collect::<Vec<_>>(),
    })
}

fn location(sources: &SourceMap, label: &Label) -> Value {
    let physical = json!({
        "artifactLocation": { "uri": uri(sources.name(label.span.file)) },
        "region": region(sources, label.span),
    });
    if label.message.is_empty() {
        json!({ "physicalLocation": physical })
    } else {
        json!({ "physicalLocation": physical, "message": { "text": label.message } })
    }
}

fn region(sources: &SourceMap, span: Span) -> Value {
    let start = sources.line_col(span.file, span.lo);
    let end = sources.line_col(span.file, span.hi);
    json!({
        "startLine": start.line,
        "startColumn": start.column,
        "endLine": end.line,
        "endColumn": end.column,
    })
}

/// A file name as a relative or absolute URI reference.
fn uri(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.replace('\\', "/").bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            out.push(byte as char);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

//! Every file of `tests/suite/parse/err` gives exactly the findings that its `//~` comments announce:
//! `//~ error[E0010]: substring` on the line of the primary label.
#![expect(clippy::disallowed_methods, reason = "the cases of this test are files")]

use std::fs;
use std::path::PathBuf;

use kernel_dsl::{Diagnostic, SourceMap, parse};

/// Line, `error[E0010]`, and the rest of the annotation.
fn announced(text: &str) -> Vec<(u32, String, String)> {
    let mut list = Vec::new();
    for (at, line) in text.lines().enumerate() {
        for note in line.split("//~").skip(1) {
            let (head, message) = note.split_once(": ").expect("`//~ error[CODE]: substring`");
            list.push((at as u32 + 1, head.trim().to_owned(), message.trim().to_owned()));
        }
    }
    list
}

fn found(sources: &SourceMap, diagnostic: &Diagnostic) -> (u32, String, String) {
    let label = diagnostic.primary().expect("a finding of the parser has a place");
    let head = format!("{}[{}]", diagnostic.severity, diagnostic.code);
    (sources.start(label.span).line, head, diagnostic.message.clone())
}

#[test]
fn findings_are_those_announced() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/suite/parse/err");
    let mut faults = Vec::new();
    let mut files = 0;
    for entry in fs::read_dir(&folder).expect("the folder of cases exists") {
        let path = entry.expect("an entry of the folder").path();
        let text = fs::read_to_string(&path).expect("a text file");
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut sources = SourceMap::new();
        let file = sources.add(name.as_str(), text.as_str());
        let mut missing = announced(&text);
        files += 1;
        assert!(!missing.is_empty(), "{name} announces nothing");
        for diagnostic in &parse(&sources, file).diagnostics {
            let (line, head, message) = found(&sources, diagnostic);
            let place = missing
                .iter()
                .position(|(l, h, m)| *l == line && *h == head && message.contains(m.as_str()));
            match place {
                Some(place) => {
                    missing.remove(place);
                }
                None => faults.push(format!("{name}:{line}: not announced: {head}: {message}")),
            }
            assert_message_is_tidy(diagnostic);
        }
        faults.extend(missing.iter().map(|(l, h, m)| format!("{name}:{l}: missing: {h}: {m}")));
    }
    assert!(files >= 8, "{files} cases");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// One line, no full stop, and no name of a grammar rule.
fn assert_message_is_tidy(diagnostic: &Diagnostic) {
    let message = &diagnostic.message;
    assert!(!message.contains('\n') && !message.ends_with('.'), "{message}");
    for rule in ["_stmt", "_item", "kw_", "EOI", "SOI", "_head", "operand"] {
        assert!(!message.contains(rule), "{message}");
    }
}

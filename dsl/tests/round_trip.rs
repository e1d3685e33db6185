//! Every file of `tests/suite/parse/ok` parses, is in canonical form, and survives printing.
#![expect(clippy::disallowed_methods, reason = "the cases of this test are files")]

use std::fs;
use std::path::PathBuf;

use kernel_dsl::ast::{dump, print::print};
use kernel_dsl::{SourceMap, parse};

fn cases() -> Vec<(String, String)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/suite/parse/ok");
    let mut cases: Vec<(String, String)> = fs::read_dir(&folder)
        .expect("the folder of cases exists")
        .map(|entry| entry.expect("an entry of the folder").path())
        .map(|path| (path.display().to_string(), fs::read_to_string(&path).expect("a text file")))
        .collect();
    cases.sort();
    assert!(cases.len() >= 10, "{} holds the cases", folder.display());
    cases
}

#[test]
fn cases_parse_and_are_in_canonical_form() {
    for (name, text) in cases() {
        let mut sources = SourceMap::new();
        let file = sources.add(name.as_str(), text.as_str());
        let parsed = parse(&sources, file);
        assert_eq!(parsed.diagnostics, [], "{name}");
        let printed = print(&parsed.file);
        assert_eq!(printed, text, "{name} is not in canonical form");
    }
}

/// The same tokens with other white space give the same tree, comments too.
#[test]
fn white_space_changes_nothing() {
    for (name, text) in cases() {
        let mut sources = SourceMap::new();
        let file = sources.add(name.as_str(), text.as_str());
        let tree = dump(&parse(&sources, file).file);
        let variants =
            [text.replace('\n', "\r\n"), format!("\u{FEFF}{text}"), text.replace("    ", "\t")];
        for variant in variants {
            let file = sources.add(name.as_str(), variant);
            let parsed = parse(&sources, file);
            assert_eq!(parsed.diagnostics, [], "{name}");
            assert!(dump(&parsed.file) == tree, "{name}");
        }
    }
}

#[test]
fn a_file_on_one_line_prints_the_same_tree() {
    for (name, text) in cases() {
        // Comments are cut out: they would swallow what follows on the line.
        let bare: String = text.lines().map(|line| cut_comment(line).to_owned() + "\n").collect();
        let bare = bare.replace("/* A block comment\n   of two lines. */\n", "");
        let mut sources = SourceMap::new();
        let file = sources.add(name.as_str(), bare.as_str());
        let parsed = parse(&sources, file);
        assert_eq!(parsed.diagnostics, [], "{name}");
        let file = sources.add(name.as_str(), bare.replace('\n', " "));
        let on_one_line = parse(&sources, file);
        assert_eq!(on_one_line.diagnostics, [], "{name}");
        assert!(dump(&on_one_line.file) == dump(&parsed.file), "{name}");
        let printed = print(&on_one_line.file);
        let file = sources.add(name.as_str(), printed.as_str());
        let again = parse(&sources, file);
        assert_eq!(again.diagnostics, [], "{name}");
        assert!(dump(&again.file) == dump(&parsed.file), "{name}");
        assert_eq!(print(&again.file), printed, "{name}");
    }
}

fn cut_comment(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

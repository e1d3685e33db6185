//! No text makes the parser panic, overflow the stack, or take long.

use std::time::{Duration, Instant};

use kernel_dsl::ast::{dump, print::print};
use kernel_dsl::{Code, Parsed, SourceMap, parse};
use proptest::prelude::*;

const SYNTAX: &str = include_str!("../../tests/suite/parse/ok/syntax.tile");
const GEMV: &str = include_str!("../../tests/suite/parse/ok/gemv.tile");

fn parse_text(text: &str) -> Parsed {
    let mut sources = SourceMap::new();
    let file = sources.add("test.tile", text);
    let parsed = parse(&sources, file);
    for diagnostic in &parsed.diagnostics {
        for label in &diagnostic.labels {
            // Every span lies in the text, on character borders.
            sources.snippet(label.span);
            sources.start(label.span);
        }
    }
    parsed
}

fn codes(parsed: &Parsed) -> Vec<Code> {
    let mut codes: Vec<Code> = parsed.diagnostics.iter().map(|d| d.code).collect();
    codes.dedup();
    codes
}

fn body(text: &str) -> String {
    format!("kernel k() launch {{ grid: 1, warps: 1 }} {{ {text} }}")
}

#[test]
#[expect(clippy::disallowed_methods, reason = "bad input must be quick, and a clock tells")]
fn megabytes_of_anything_are_quick() {
    let brackets = ["(", "[", "{"].map(|unit| (unit, 10 << 20));
    let units = [
        ")",
        "]",
        "}",
        "({",
        "\0",
        "\"",
        "/*",
        "//",
        "é",
        ";",
        "kernel ",
        "-",
        "!",
        "a+",
        "a?",
        "load ",
        "x[",
        "\"\n",
        ",",
        "@",
        "else if ",
        "0",
        "a.",
        "a",
        "<",
        "f<",
        "kernel k() {",
        "\n",
        "let a = 1;\n",
        "if a { ",
        "} else {",
        "match arch { ",
        "a^T",
        "fn f(",
        "// c\n",
        "launch {",
        "in {",
        "=> {",
        "a ? b : ",
        "f<a, ",
    ]
    .map(|unit| (unit, 1 << 16));
    for (unit, size) in brackets.into_iter().chain(units) {
        let long = unit.repeat(size / unit.len());
        for text in [body(&long), long] {
            let start = Instant::now();
            let parsed = parse_text(&text);
            let time = start.elapsed();
            assert!(parsed.diagnostics.len() <= 64, "{unit:?}");
            assert!(time < Duration::from_secs(20), "{unit:?} took {time:?}");
        }
    }
}

#[test]
fn deep_nesting_is_refused_with_a_code() {
    for depth in [20, 90, 99, 100, 101, 1000, 20_000] {
        let nested = |open: &str, close: &str| {
            body(&format!("let a = {}1{};", open.repeat(depth), close.repeat(depth)))
        };
        let texts = [
            nested("(", ")"),
            nested("f(", ")"),
            nested("x[", "]"),
            nested("-", ""),
            nested("1 + ", ""),
            nested("a ? b : ", ""),
            nested("a ? (", ") : 1"),
            nested("load ", ""),
            nested("(load a[", "] else 1)"),
            nested("match arch { _ => ", " }"),
            nested("(a + x@(", "))"),
            body(&format!("let a = x{};", "[0]".repeat(depth))),
            nested("", "^T"),
            nested("f<1>(", ")"),
            body(&format!("{}{}", "if a { ".repeat(depth), "}".repeat(depth))),
            body(&format!("{}{}", "for i in 0..n { ".repeat(depth), "}".repeat(depth))),
            body(&format!("if a {{ }} {}", "else if a { } ".repeat(depth))),
            body(&format!("{}{}", "match arch { _ => { ".repeat(depth), "} }".repeat(depth))),
        ];
        for text in texts {
            let parsed = parse_text(&text);
            let shown = &text[..text.len().min(120)];
            if depth > 100 {
                assert_eq!(codes(&parsed), [Code::E0005], "{shown}");
            } else {
                let deep_only = parsed.diagnostics.iter().all(|d| d.code == Code::E0005);
                assert!(deep_only, "{:?}: {shown}", parsed.diagnostics);
                assert!(
                    depth > 20 || parsed.diagnostics.is_empty(),
                    "{:?}: {shown}",
                    parsed.diagnostics
                );
                print(&parsed.file);
            }
        }
    }
}

#[test]
fn odd_texts_get_their_codes() {
    let cases: &[(&str, &[Code])] = &[
        ("", &[]),
        ("\u{FEFF}", &[]),
        ("\u{FEFF}target sm_90a;\r\n", &[]),
        ("target sm_90a;\0", &[Code::E0002]),
        ("target sm_90a; /* x", &[Code::E0003]),
        ("import \"x", &[Code::E0003]),
        ("import \"x\\", &[Code::E0003]),
        ("const A = 18446744073709551615; const B = 0xffffffffffffffff;", &[]),
        ("const A = 18446744073709551616;", &[Code::E0006]),
        ("const A = 0x1ffffffffffffffff;", &[Code::E0006]),
        ("const A = 1.0e999;", &[Code::E0006]),
        ("const A = 1.0e-999;", &[]),
        ("const A = \"\\q\";", &[Code::E0007]),
        ("const A = (1;", &[Code::E0004]),
        ("const A = 1);", &[Code::E0004]),
        ("const A = 1", &[Code::E0011]),
        ("kernel k() { }", &[Code::E0016]),
        ("kernel k()", &[Code::E0016]),
        ("kernel", &[Code::E0016]),
        ("fn", &[Code::E0016]),
        ("kernel k() launch { grid: 1 } {", &[Code::E0004]),
    ];
    for (text, wanted) in cases {
        assert_eq!(codes(&parse_text(text)), *wanted, "{text:?}");
    }
}

#[test]
fn every_beginning_of_a_file_is_read() {
    for at in (0..SYNTAX.len()).step_by(113).filter(|&at| SYNTAX.is_char_boundary(at)) {
        parse_text(&SYNTAX[..at]);
    }
}

/// Pieces that a text is made of.
fn soup() -> impl Strategy<Value = String> {
    let words = SYNTAX.split_inclusive(' ').map(str::to_owned).collect::<Vec<_>>();
    let marks = [
        "(", ")", "[", "]", "{", "}", ";", ",", "->", "@", "..", "<", ">", "\"", "/*", "//", "\n",
        "\r\n", "\0", "é", "0x", "1e", ".",
    ];
    let piece = prop_oneof![
        6 => proptest::sample::select(words),
        3 => proptest::sample::select(marks.map(str::to_owned).to_vec()),
        1 => "\\PC{0,4}",
    ];
    proptest::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

/// Deletes, doubles and replaces parts of a file that parses.
fn mutated() -> impl Strategy<Value = String> {
    let edit = (any::<usize>(), 0..12_usize, 0..3_u8, "\\PC{0,3}");
    let edits = proptest::collection::vec(edit, 1..6);
    (proptest::sample::select(vec![SYNTAX, GEMV]), edits).prop_map(|(text, edits)| {
        let mut chars: Vec<char> = text.chars().collect();
        for (place, len, kind, insert) in edits {
            let lo = place % chars.len();
            let hi = (lo + len).min(chars.len());
            let part: Vec<char> = chars[lo..hi].to_vec();
            match kind {
                0 => drop(chars.splice(lo..hi, [])),
                1 => drop(chars.splice(lo..lo, part)),
                _ => drop(chars.splice(lo..hi, insert.chars())),
            }
        }
        chars.into_iter().collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_text_never_panics(text in any::<String>()) {
        parse_text(&text);
    }

    #[test]
    fn soup_of_words_never_panics(text in soup()) {
        let parsed = parse_text(&text);
        print(&parsed.file);
        parse_text(&body(&text));
    }

}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// A text without findings survives printing; others at least do not panic.
    #[test]
    fn mutated_files_never_panic_and_legal_ones_survive_printing(text in mutated()) {
        let parsed = parse_text(&text);
        let printed = print(&parsed.file);
        if parsed.diagnostics.is_empty() {
            let again = parse_text(&printed);
            prop_assert_eq!(&again.diagnostics, &[]);
            prop_assert!(dump(&again.file) == dump(&parsed.file), "{}", printed);
            prop_assert_eq!(print(&again.file), printed);
        }
    }
}

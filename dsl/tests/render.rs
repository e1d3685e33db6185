//! The three forms of diagnostics.

use kernel_dsl::diag::render::{Look, Paint};
use kernel_dsl::diag::{Fact, json, render, sarif};
use kernel_dsl::{Code, Diagnostic, FileId, SourceMap, Span, parse};

const GEMV: &str = "\
target sm_90a;
kernel gemv(
    static W     : gmem bf16[N, K],
    input  x     : gmem bf16[K],
)
launch { grid: 1, warps: 4, pdl: both }
{
    for s in 0..NS unroll {
        let xs = load x[s * STEP .. + STEP];
    }
}
";

fn span_of(text: &str, file: FileId, wanted: &str) -> Span {
    let lo = text.find(wanted).expect("the text holds it") as u32;
    Span::new(file, lo, lo + wanted.len() as u32)
}

fn early_read() -> (SourceMap, Diagnostic) {
    let mut sources = SourceMap::new();
    let file = sources.add("gemv.tile", GEMV);
    let mut declared = span_of(GEMV, file, "x     :");
    declared.hi = declared.lo + 1;
    let diagnostic = Diagnostic::error(
        Code::E0107,
        "activation `x` can be read before the previous kernel has finished",
    )
    .label(
        span_of(GEMV, file, "load x[s * STEP .. + STEP]"),
        "this read is not ordered after a `grid_wait`",
    )
    .secondary(declared, "declared `input`: an earlier kernel writes it")
    .help("put `grid_wait;` before this loop, or wait on a barrier that a role signals after its own `grid_wait`");
    (sources, diagnostic)
}

#[test]
fn text_shows_both_places_and_the_help() {
    let (sources, diagnostic) = early_read();
    let expected = "\
error[E0107]: activation `x` can be read before the previous kernel has finished
 --> gemv.tile:9:18
  |
4 |     input  x     : gmem bf16[K],
  |            - declared `input`: an earlier kernel writes it
...
9 |         let xs = load x[s * STEP .. + STEP];
  |                  ^^^^^^^^^^^^^^^^^^^^^^^^^^ this read is not ordered after a `grid_wait`
  |
  = help: put `grid_wait;` before this loop, or wait on a barrier that a role signals after its own `grid_wait`
";
    assert_eq!(render::text(&sources, &diagnostic, Look::PLAIN), expected);
    let colored = Look { paint: Paint::Colored, width: 140 };
    assert!(render::text(&sources, &diagnostic, colored).contains("\u{1b}["));
}

#[test]
fn facts_speak_of_lines_in_every_format() {
    let (mut sources, diagnostic) = early_read();
    let other = sources.add("b.tile", "fn f() {}\n");
    let place = diagnostic.primary().unwrap().span;
    let missing = Fact::new("missing edge").text("a store -> load `x` (").line(place).text(")");
    let path = Fact::new("path").text("from ").line(Span { file: other, lo: 0, hi: 2 });
    let diagnostic = diagnostic.fact(missing).fact(path);
    let text = render::text(&sources, &diagnostic, Look::PLAIN);
    let expected =
        "  = missing edge: a store -> load `x` (line 9)\n  = path: from b.tile:1\n  = help: put";
    assert!(text.contains(expected), "{text}");
    let value: serde_json::Value =
        serde_json::from_str(&json::object(&sources, &diagnostic)).unwrap();
    assert_eq!(value["notes"][0], "missing edge: a store -> load `x` (line 9)");
    assert_eq!(value["notes"][1], "path: from b.tile:1");
    let log = sarif::log(&sources, &[diagnostic], sarif::Tool { name: "kernelc", version: "1" });
    assert!(log.contains("missing edge: a store -> load `x` (line 9)"), "{log}");
}

#[test]
fn text_without_a_place_or_with_two_files() {
    let mut sources = SourceMap::new();
    let a = sources.add("a.tile", "import \"b.tile\";\n");
    let b = sources.add("b.tile", "fn f() {}\n");
    let none = Diagnostic::error(Code::E0801, "ptxas is missing").note("looked in the tool folder");
    assert_eq!(
        render::text(&sources, &none, Look::PLAIN),
        "error[E0801]: ptxas is missing\n |\n = note: looked in the tool folder\n"
    );
    let two = Diagnostic::warning(Code::E0202, "`f` is defined twice")
        .label(Span::new(b, 3, 4), "here")
        .secondary(Span::new(a, 0, 6), "imported here");
    let text = render::text(&sources, &two, Look::PLAIN);
    assert!(text.starts_with("warning[E0202]: `f` is defined twice"), "{text}");
    assert!(text.contains("b.tile:1:4") && text.contains("a.tile:1:1"), "{text}");
}

#[test]
fn json_is_one_object_a_line() {
    let (sources, diagnostic) = early_read();
    let lines = json::lines(&sources, &[diagnostic.clone(), diagnostic]);
    assert_eq!(lines.lines().count(), 2);
    let value: serde_json::Value =
        serde_json::from_str(lines.lines().next().expect("a line")).expect("JSON");
    assert_eq!(value["code"], "E0107");
    assert_eq!(value["severity"], "error");
    assert_eq!(value["file"], "gemv.tile");
    assert_eq!(value["span"]["start"]["line"], 9);
    assert_eq!(value["span"]["start"]["column"], 18);
    assert_eq!(value["span"]["end"]["column"], 44);
    assert_eq!(value["labels"][1]["span"]["start"]["line"], 4);
    assert_eq!(value["labels"][1]["primary"], false);
    assert_eq!(value["notes"].as_array().map(Vec::len), Some(0));
    assert_eq!(value["help"].as_array().map(Vec::len), Some(1));
}

#[test]
fn sarif_names_rules_and_places() {
    let (sources, diagnostic) = early_read();
    let tool = sarif::Tool { name: "kernelc", version: "0.1.0" };
    let log: serde_json::Value =
        serde_json::from_str(&sarif::log(&sources, &[diagnostic], tool)).expect("JSON");
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    assert_eq!(run["tool"]["driver"]["name"], "kernelc");
    assert_eq!(run["tool"]["driver"]["rules"][0]["id"], "E0107");
    let result = &run["results"][0];
    assert_eq!(result["ruleId"], "E0107");
    assert_eq!(result["ruleIndex"], 0);
    assert_eq!(result["level"], "error");
    let place = &result["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "gemv.tile");
    assert_eq!(place["region"]["startLine"], 9);
    assert_eq!(place["region"]["endColumn"], 44);
    assert_eq!(result["relatedLocations"][0]["physicalLocation"]["region"]["startLine"], 4);
}

/// Whatever the parser reports can be drawn.
#[test]
fn odd_places_are_drawn() {
    let long_line = format!("const A = {};", "(".repeat(100_000));
    let texts = [
        "",
        "kernel",
        "import \"ü",
        "\u{FEFF}\t$",
        "const A = 1\r\n",
        "a\0b",
        "/*",
        &long_line,
        "const A = \"ü\" ü;\n",
        "fn f() {\n",
    ];
    for text in texts {
        let mut sources = SourceMap::new();
        let file = sources.add("a b.tile", text);
        let diagnostics = parse(&sources, file).diagnostics;
        let drawn = render::text_of_all(&sources, &diagnostics, Look::PLAIN);
        assert!(drawn.len() < 100_000 && !drawn.contains('\0'), "{}", drawn.len());
        json::lines(&sources, &diagnostics);
        sarif::log(&sources, &diagnostics, sarif::Tool { name: "kernelc", version: "0" });
    }
}

/// Labels that are far apart are named by place, and the text stays short.
#[test]
fn far_apart_places_are_named() {
    let mut sources = SourceMap::new();
    let file = sources.add("far.tile", "sync;\n".repeat(400_000));
    let end = sources.text(file).len() as u32;
    let diagnostic = Diagnostic::error(Code::E0004, "`{` is not closed")
        .label(Span::new(file, 6, 7), "opened here")
        .secondary(Span::new(file, end, end), "the file ends here");
    let drawn = render::text(&sources, &diagnostic, Look::PLAIN);
    assert!(drawn.len() < 1000 && drawn.contains("far.tile:2:1"), "{drawn}");
}

//! House rules that can be checked by reading files.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

use kernel_abi::bundle::BundleCode;
use kernel_dsl::diag::Code;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const MAX_LINES: usize = 800;
/// The calls into LLVM and MLIR, those into the CUDA driver, and the memory maps: of checkpoints and of bundles.
const FILES_WITH_UNSAFE: [&str; 4] = [
    "compiler/codegen/src/ffi.rs",
    "runtime/abi/src/bundle/map.rs",
    "runtime/cuda/src/ffi.rs",
    "runtime/cuda/src/ffi/code.rs",
];
const EMPTY_NAMES: [&str; 7] = ["utils", "util", "helpers", "helper", "common", "base", "misc"];
/// Files of these kinds are data: somebody made or copied them, which their folder must say.
const DATA_EXTENSIONS: [&str; 7] = ["bin", "csv", "jsonl", "npy", "npz", "ptx", "safetensors"];
/// Files that are written by programs or whose text is not ours.
const NOT_OUR_TEXT: [&str; 2] = ["Cargo.lock", "LICENSE"];

/// One file that git tracks or would track.
struct File {
    path: String,
    /// `None` for what is not UTF-8.
    text: Option<String>,
}

impl File {
    fn extension(&self) -> &str {
        Path::new(&self.path).extension().and_then(|extension| extension.to_str()).unwrap_or("")
    }

    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap()
    }

    fn text(&self) -> &str {
        self.text.as_deref().unwrap_or("")
    }

    fn is_rust(&self) -> bool {
        self.extension() == "rs"
    }

    fn is_data(&self) -> bool {
        DATA_EXTENSIONS.contains(&self.extension())
    }

    /// Text that somebody of the project wrote.
    fn is_ours(&self) -> bool {
        self.text.is_some() && !self.is_data() && !NOT_OUR_TEXT.contains(&self.name())
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// What git tracks, and what it would track: a new file is judged before it is committed.
fn files() -> Vec<File> {
    let output = Command::new("git")
        .current_dir(root())
        // The tests may run as another user than the one who cloned.
        .args(["-c", "safe.directory=*", "ls-files", "-z"])
        .args(["--cached", "--others", "--exclude-standard"])
        .output()
        .expect("git is installed by `cargo xtask setup`");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let paths = String::from_utf8(output.stdout).unwrap();
    let files: Vec<File> = paths
        .split_terminator('\0')
        // A file that was deleted and not yet committed is still listed.
        .filter(|path| root().join(path).is_file())
        .map(|path| File {
            path: path.to_owned(),
            text: std::fs::read(root().join(path))
                .ok()
                .and_then(|text| String::from_utf8(text).ok()),
        })
        .collect();
    assert!(files.iter().any(|file| file.path == "Cargo.toml"), "the list of files is complete");
    files
}

fn assert_no_faults(faults: Vec<String>) {
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
}

/// `path:line` of every line of our text in which `is_fault` sees one.
fn lines_with(files: &[File], is_fault: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.is_ours()) {
        for (index, line) in file.text().lines().enumerate() {
            if is_fault(line) {
                found.push(format!("{}:{}: {}", file.path, index + 1, line.trim()));
            }
        }
    }
    found
}

/// Rust text without comments and without the insides of strings and character literals.
fn code_of(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = String::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if rest.starts_with('"') {
            quoted(rest, 1)
        } else if let Some(length) = raw_string(rest) {
            length
        } else if rest.starts_with('\'') && is_char_literal(rest) {
            quoted_char(rest)
        } else {
            0
        };
        if skipped > 0 {
            // Lines stay what they are.
            code.extend(rest[..skipped].chars().filter(|c| *c == '\n'));
            code.push(' ');
            at += skipped;
        } else {
            let c = rest.chars().next().unwrap();
            code.push(c);
            at += c.len_utf8();
        }
    }
    code
}

fn block_comment(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().unwrap().len_utf8();
        }
    }
    text.len()
}

/// The length of a quoted text whose opening quote ends at `start`.
fn quoted(text: &str, start: usize) -> usize {
    let mut escaped = false;
    for (index, c) in text.char_indices().skip_while(|(index, _)| *index < start) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return index + 1,
            _ => {}
        }
    }
    text.len()
}

fn raw_string(text: &str) -> Option<usize> {
    let marks = text.strip_prefix('r')?;
    let hashes = marks.len() - marks.trim_start_matches('#').len();
    if !marks[hashes..].starts_with('"') {
        return None;
    }
    let end = format!("\"{}", "#".repeat(hashes));
    let start = 1 + hashes + 1;
    Some(text[start..].find(&end).map_or(text.len(), |at| start + at + end.len()))
}

/// `'a'` and `'\n'` are literals, `'a` alone is a lifetime.
fn is_char_literal(text: &str) -> bool {
    let mut chars = text.chars().skip(1);
    match chars.next() {
        Some('\\') => true,
        Some(_) => chars.next() == Some('\''),
        None => false,
    }
}

fn quoted_char(text: &str) -> usize {
    let mut escaped = false;
    for (index, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '\'' => return index + 1,
            _ => {}
        }
    }
    text.len()
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// Lines before the unit tests, which stand last in a file.
fn lines_without_tests(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let tests = lines
        .windows(2)
        .position(|pair| pair[0].trim() == "#[cfg(test)]" && pair[1].starts_with("mod tests"));
    tests.unwrap_or(lines.len())
}

#[test]
fn no_file_is_longer_than_one_concept() {
    let faults = files()
        .iter()
        .filter(|file| file.is_rust())
        .map(|file| (file, lines_without_tests(file.text())))
        .filter(|(_, lines)| *lines > MAX_LINES)
        .map(|(file, lines)| format!("{}: {lines} lines, at most {MAX_LINES}", file.path))
        .collect();
    assert_no_faults(faults);
}

#[test]
fn unsafe_code_is_where_it_is_expected() {
    let faults = files()
        .iter()
        .filter(|file| file.is_rust() && !FILES_WITH_UNSAFE.contains(&file.path.as_str()))
        .filter(|file| words(&code_of(file.text())).any(|word| word == "unsafe"))
        .map(|file| format!("{}: `unsafe` outside {}", file.path, FILES_WITH_UNSAFE.join(", ")))
        .collect();
    assert_no_faults(faults);
}

#[test]
fn work_that_is_left_names_its_issue() {
    // Put together, so that this file does not find itself.
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
    let faults =
        lines_with(&files(), |line| marks.iter().any(|mark| has_mark_without_issue(line, mark)));
    assert_no_faults(faults);
}

fn has_mark_without_issue(line: &str, mark: &str) -> bool {
    line.match_indices(mark).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = &line[at + mark.len()..];
        let is_in_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !is_in_word(before) && !is_in_word(after.chars().next()) && !after.starts_with("(#")
    })
}

#[test]
fn names_say_what_is_in_a_file() {
    let mut faults = Vec::new();
    for file in files() {
        if file.name() == "mod.rs" {
            faults.push(format!("{}: a module `x` is `x.rs` with the folder `x/`", file.path));
        }
        for part in file.path.split('/') {
            let stem = part.split('.').next().unwrap();
            if EMPTY_NAMES.contains(&stem) {
                faults.push(format!("{}: `{stem}` says nothing", file.path));
            }
        }
    }
    assert_no_faults(faults);
}

#[test]
fn every_diagnostic_code_is_provoked_by_a_test() {
    let files = files();
    let tests: Vec<&File> = files
        .iter()
        .filter(|file| file.path.starts_with("tests/") || file.path.contains("/tests/"))
        .filter(|file| file.text.is_some())
        // Prose may speak of a code, and this file names none.
        .filter(|file| file.extension() != "md")
        .collect();
    let faults = Code::ALL
        .iter()
        // A fault of the compiler: no input provokes it while the compiler is right.
        .filter(|code| **code != Code::E0810)
        .map(|code| code.name())
        // A fault of the program, likewise.
        .chain(kimi_k3::code::Code::ALL.iter().map(|code| code.name()).filter(|c| *c != "K0704"))
        .chain(BundleCode::ALL.iter().map(|code| code.name()))
        .chain(kernel_runtime::Code::ALL.iter().map(|code| code.name()))
        .chain(kernel_memory_model::Code::ALL.iter().map(|code| code.name()))
        .filter(|name| !tests.iter().any(|file| words(file.text()).any(|word| word == *name)))
        .map(|name| format!("{name}: no file under tests/ provokes it"))
        .collect();
    assert_no_faults(faults);
}

#[test]
fn files_speak_of_the_project_alone() {
    let paths = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("/ho", "me/"),
        concat!("/tm", "p/"),
        concat!("../sha", "red"),
    ];
    let hosts = [
        concat!("py", "pi.org"),
        concat!("pythonho", "sted"),
        concat!("deb.deb", "ian.org"),
        concat!("index.cra", "tes.io"),
        concat!("static.cra", "tes.io"),
        concat!("npm", "js.org"),
    ];
    let faults =
        lines_with(&files(), |line| paths.iter().chain(&hosts).any(|text| line.contains(text)));
    assert_no_faults(faults);
}

#[test]
fn data_says_where_it_comes_from() {
    let files = files();
    let readmes: BTreeMap<&str, &str> = files
        .iter()
        .filter_map(|file| Some((file.path.strip_suffix("/README.md")?, file.text())))
        .collect();
    // The README may stand in a folder above, up to the one below `tests` or `models`.
    let readme_of = |path: &str| {
        let mut folder = Path::new(path).parent();
        while let Some(here) = folder.filter(|here| here.components().count() > 1) {
            if let Some(text) = here.to_str().and_then(|here| readmes.get(here)) {
                return Some(text.to_lowercase());
            }
            folder = here.parent();
        }
        None
    };
    let mut faults = BTreeMap::new();
    let is_ours = |path: &str| path.starts_with("tests/") || path.starts_with("models/");
    for file in files.iter().filter(|file| is_ours(&file.path) && file.is_data()) {
        let folder = file.path.rsplit_once('/').unwrap().0;
        let fault = match readme_of(&file.path) {
            None => "has no README.md",
            Some(text) if !text.contains("licen") => "names no licence in its README.md",
            Some(text)
                if !["provenance", "copied", "made by"].iter().any(|word| text.contains(word)) =>
            {
                "says nowhere in its README.md whether its data was copied or made, and from what"
            }
            Some(_) => continue,
        };
        faults.insert(folder, fault);
    }
    assert_no_faults(faults.iter().map(|(folder, fault)| format!("{folder}: {fault}")).collect());
}

#[test]
fn snapshots_belong_to_a_source() {
    let files = files();
    let mut faults = Vec::new();
    for snapshot in files.iter().filter(|file| file.extension() == "snap") {
        let head = snapshot.text().split("\n---\n").next().unwrap();
        for key in ["source: ", "input_file: "] {
            let source = head
                .lines()
                .find_map(|line| line.strip_prefix(key))
                .map(|path| path.trim_matches('"'));
            if source.is_some_and(|source| !root().join(source).exists()) {
                faults.push(format!("{}: {key}{} is gone", snapshot.path, source.unwrap()));
            }
        }
    }
    assert_no_faults(faults);
}

#[test]
fn comments_strings_and_lifetimes_are_told_from_code() {
    let text = r##"let a = "unsafe \" unsafe"; // unsafe
        /* unsafe /* unsafe */ unsafe */ let b: &'unsafe_ str = r#"unsafe"#;
        let c = '"'; let d = '\''; keep"##;
    let code = code_of(text);
    assert!(!words(&code).any(|word| word == "unsafe"), "{code}");
    assert!(words(&code).any(|word| word == "keep"));
    assert_eq!(code.lines().count(), text.lines().count());
    assert!(words(&code_of("unsafe { x }")).any(|word| word == "unsafe"));
    assert!(!words("#![deny(unsafe_code)]").any(|word| word == "unsafe"));
}

#[test]
fn a_mark_needs_its_issue() {
    assert!(has_mark_without_issue("// LATER: more", "LATER"));
    assert!(!has_mark_without_issue("// LATER(#12): more", "LATER"));
    assert!(!has_mark_without_issue("MUCH_LATER LATERAL", "LATER"));
}

#[test]
fn unit_tests_do_not_count_as_length() {
    assert_eq!(lines_without_tests("a\nb\n\n#[cfg(test)]\nmod tests {\n}\n"), 3);
    assert_eq!(lines_without_tests("a\n#[cfg(test)]\nfn only_for_tests() {}\nb\n"), 4);
}

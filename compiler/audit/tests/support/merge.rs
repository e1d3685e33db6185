//! Several case files as one module, so that the tools start once for all of them.

use std::collections::BTreeSet;

/// Text without comments.
fn bare(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('/') {
        let (before, tail) = rest.split_at(at);
        out.push_str(before);
        if tail.starts_with("//") {
            rest = &tail[tail.find('\n').unwrap_or(tail.len())..];
        } else if tail.starts_with("/*") {
            rest = &tail[tail.find("*/").unwrap() + 2..];
            out.push(' ');
        } else {
            out.push('/');
            rest = &tail[1..];
        }
    }
    out.push_str(rest);
    out
}

/// Pieces of the text: names, and everything between them.
fn pieces(text: &str) -> Vec<&str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_$%.".contains(c);
    let mut list = Vec::new();
    let mut start = 0;
    let mut inside = None;
    for (at, letter) in text.char_indices() {
        let name = is_name(letter);
        if inside.is_some_and(|was| was != name) {
            list.push(&text[start..at]);
            start = at;
        }
        inside = Some(name);
    }
    list.push(&text[start..]);
    list
}

/// Names of kernels, functions and variables of the module.
fn top_names(pieces: &[&str]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let (mut braces, mut parens) = (0i32, 0i32);
    let mut wanted = false;
    for piece in pieces {
        for letter in piece.chars() {
            match letter {
                '{' => braces += 1,
                '}' => braces -= 1,
                '(' => parens += 1,
                ')' => parens -= 1,
                ';' | '=' if braces == 0 => wanted = false,
                _ => {}
            }
        }
        if braces > 0 || parens > 0 {
            continue;
        }
        if matches!(*piece, ".entry" | ".func" | ".shared" | ".global" | ".const") {
            wanted = true;
        } else if wanted && piece.starts_with(|c: char| c.is_ascii_alphabetic() || "_$".contains(c))
        {
            names.insert((*piece).to_owned());
            wanted = false;
        }
    }
    names
}

/// Whether a file can stand in a module with others.
pub fn can_merge(text: &str) -> bool {
    ![".extern", ".file", ".section", ".pragma", ".alias"].iter().any(|word| text.contains(word))
}

/// One module of all files; the names of each begin with its prefix.
pub fn merge(files: &[(String, String)], target: &str) -> String {
    let mut out = format!(".version 9.5\n.target {target}\n.address_size 64\n");
    for (prefix, text) in files {
        let text = bare(text);
        let body: String = text
            .lines()
            .filter(|line| {
                let line = line.trim_start();
                ![".version", ".target", ".address_size"].iter().any(|d| line.starts_with(d))
            })
            .flat_map(|line| [line, "\n"])
            .collect();
        let list = pieces(&body);
        let names = top_names(&list);
        for piece in list {
            if names.contains(piece) {
                out.push_str(prefix);
            }
            out.push_str(piece);
        }
        out.push('\n');
    }
    out
}

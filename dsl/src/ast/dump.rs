//! The tree as text: every node and comment, no positions and no hints.
//!
//! Two files with the same dump mean the same and hold the same comments. The text is the `Debug`
//! form without positions and hints, which start with `@` there, one part a line where it is long.

use super::File;

/// Bracketed parts up to this many bytes stay on one line.
const SHORT: usize = 96;

/// The tree of a file as indented text.
pub fn dump(file: &File) -> String {
    let compact = without_marks(&format!("{:?}", (&file.items, &file.tail)));
    let ends = partners(&compact);
    let mut out = String::with_capacity(compact.len() * 2);
    // For each open bracket, whether its parts stand on lines of their own.
    let mut broken = Vec::new();
    for (at, piece) in pieces(&compact) {
        let end_line = |out: &mut String, depth: usize| {
            out.truncate(out.trim_end_matches(' ').len());
            out.push('\n');
            out.extend(std::iter::repeat_n("  ", depth));
        };
        match piece {
            "{" | "[" | "(" => {
                out.push_str(piece);
                let long = ends[at] - at > SHORT;
                broken.push(long);
                if long {
                    end_line(&mut out, broken.iter().filter(|long| **long).count());
                }
            }
            "}" | "]" | ")" => {
                if broken.pop() == Some(true) {
                    end_line(&mut out, broken.iter().filter(|long| **long).count());
                }
                out.push_str(piece);
            }
            "," if broken.last() == Some(&true) => {
                out.push_str(piece);
                end_line(&mut out, broken.iter().filter(|long| **long).count());
            }
            " " if out.ends_with([' ', '\n']) => {}
            _ => out.push_str(piece),
        }
    }
    out.push('\n');
    out
}

/// Brackets, commas, spaces and strings one by one, other text in runs, each with its place.
fn pieces(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = text.get(at..).filter(|rest| !rest.is_empty())?;
        let len = match rest.as_bytes()[0] {
            b'{' | b'[' | b'(' | b'}' | b']' | b')' | b',' | b' ' => 1,
            b'"' => string_len(rest),
            _ => rest.find(['{', '[', '(', '}', ']', ')', ',', ' ', '"']).unwrap_or(rest.len()),
        };
        let start = at;
        at += len;
        Some((start, &rest[..len]))
    })
}

/// The length of the string literal that a text starts with.
fn string_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(text.len())
}

/// Removes the fields whose values start with `@`.
fn without_marks(debug: &str) -> String {
    let mut out = String::with_capacity(debug.len());
    let mut skips_separator = false;
    for (_, piece) in pieces(debug) {
        if skips_separator && matches!(piece, "," | " ") {
            continue;
        }
        skips_separator = false;
        if piece.starts_with('@') {
            // The name of the field goes too; a tuple field has none.
            let kept = match out.strip_suffix(": ") {
                Some(named) => named.rfind(' ').map_or(0, |space| space + 1),
                None => out.len(),
            };
            out.truncate(kept);
            skips_separator = true;
            continue;
        }
        if matches!(piece, "}" | "]" | ")") {
            out.truncate(out.trim_end_matches([' ', ',']).len());
        }
        out.push_str(piece);
    }
    out
}

/// For each opening bracket its partner's place.
fn partners(text: &str) -> Vec<usize> {
    let mut ends = vec![0; text.len()];
    let mut open = Vec::new();
    for (at, piece) in pieces(text) {
        match piece {
            "{" | "[" | "(" => open.push(at),
            "}" | "]" | ")" => {
                if let Some(start) = open.pop() {
                    ends[start] = at;
                }
            }
            _ => {}
        }
    }
    ends
}

#[cfg(test)]
mod tests {
    use crate::{SourceMap, parse};

    #[test]
    fn a_dump_shows_nodes_and_comments_without_positions() {
        let mut sources = SourceMap::new();
        let text = "// note (\nconst A = \"x)\" ; const B = match arch { _ => 1 };";
        let file = sources.add("a.tile", text);
        let dump = super::dump(&parse(&sources, file).file);
        assert!(!dump.contains('@') && !dump.contains("span") && !dump.contains("blank"), "{dump}");
        assert!(dump.contains("\"// note (\"") && dump.contains("Str(\"x)\")"), "{dump}");
        assert!(dump.contains("pattern: Any()"), "{dump}");
    }
}

//! Text to tokens.

use std::fmt;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A name, with a leading `%`, `$` or `_` where it has one.
    Word,
    /// `.name`, the dot included; double colons join parts.
    Dotted,
    Number,
    Text,
    /// One character.
    Mark(u8),
}

/// A token with its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) line: u32,
}

/// Why the text is not PTX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable {
    pub(crate) line: u32,
    pub(crate) message: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$'
}

/// Splits the text; comments are dropped.
pub(crate) fn tokens(text: &str) -> Result<Vec<Token>, Unreadable> {
    let bytes = text.as_bytes();
    let mut list = Vec::new();
    let mut at = 0;
    let mut line = 1u32;
    let mut line_is_empty = true;
    while let Some(&byte) = bytes.get(at) {
        let start = at;
        let next = bytes.get(at + 1).copied().unwrap_or(0);
        match byte {
            b'\n' => {
                line += 1;
                at += 1;
                line_is_empty = true;
                continue;
            }
            b' ' | b'\t' | b'\r' | 0x0b | 0x0c => {
                at += 1;
                continue;
            }
            b'/' if next == b'/' => {
                at = end_of_line(bytes, at);
                continue;
            }
            b'/' if next == b'*' => {
                at = end_of_comment(bytes, at, &mut line)
                    .ok_or_else(|| unreadable(line, "the comment does not end"))?;
                continue;
            }
            // Line marks of a preprocessor, and the debug lines of old compilers.
            b'#' if line_is_empty => {
                at = end_of_line(bytes, at);
                continue;
            }
            b'@' if line_is_empty && next == b'@' => {
                at = end_of_line(bytes, at);
                continue;
            }
            _ => {}
        }
        line_is_empty = false;
        let first_line = line;
        let kind = match byte {
            b'"' => {
                at = end_of_text(bytes, at, &mut line)
                    .ok_or_else(|| unreadable(first_line, "the string does not end"))?;
                Kind::Text
            }
            b'0'..=b'9' => {
                at = end_of_number(bytes, at);
                Kind::Number
            }
            b'.' if is_word(next) => {
                at += 1;
                loop {
                    while bytes.get(at).copied().is_some_and(is_word) {
                        at += 1;
                    }
                    let joined = bytes.get(at) == Some(&b':')
                        && bytes.get(at + 1) == Some(&b':')
                        && bytes.get(at + 2).copied().is_some_and(is_word);
                    if !joined {
                        break;
                    }
                    at += 2;
                }
                Kind::Dotted
            }
            b'%' if is_word(next) => {
                at += 1;
                while bytes.get(at).copied().is_some_and(is_word) {
                    at += 1;
                }
                Kind::Word
            }
            _ if is_word(byte) => {
                while bytes.get(at).copied().is_some_and(is_word) {
                    at += 1;
                }
                Kind::Word
            }
            _ if byte.is_ascii_graphic() => {
                at += 1;
                Kind::Mark(byte)
            }
            _ => return Err(unreadable(line, "a character that PTX does not have")),
        };
        list.push(Token { kind, start, end: at, line: first_line });
    }
    Ok(list)
}

fn unreadable(line: u32, message: &str) -> Unreadable {
    Unreadable { line, message: message.to_owned() }
}

fn end_of_line(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(|&b| b != b'\n') {
        at += 1;
    }
    at
}

fn end_of_comment(bytes: &[u8], start: usize, line: &mut u32) -> Option<usize> {
    let mut at = start + 2;
    let mut passed = 0;
    loop {
        match (bytes.get(at)?, bytes.get(at + 1)) {
            (b'*', Some(b'/')) => {
                *line += passed;
                return Some(at + 2);
            }
            (b'\n', _) => passed += 1,
            _ => {}
        }
        at += 1;
    }
}

fn end_of_text(bytes: &[u8], start: usize, line: &mut u32) -> Option<usize> {
    let mut at = start + 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 1,
            b'\n' => *line += 1,
            _ => {}
        }
        at += 1;
    }
}

fn end_of_number(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    while bytes.get(at).copied().is_some_and(is_word) {
        at += 1;
    }
    // A fraction, and an exponent with a sign.
    if bytes.get(at) == Some(&b'.') && bytes.get(at + 1).is_some_and(u8::is_ascii_digit) {
        at += 1;
        while bytes.get(at).copied().is_some_and(is_word) {
            at += 1;
        }
    }
    let decimal = bytes.get(start + 1).is_none_or(|b| !b.is_ascii_alphabetic());
    let exponent = matches!(bytes.get(at.wrapping_sub(1)), Some(b'e' | b'E'));
    if decimal && exponent && matches!(bytes.get(at), Some(b'+' | b'-')) {
        at += 1;
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&str> {
        tokens(text).unwrap().iter().map(|t| &text[t.start..t.end]).collect()
    }

    #[test]
    fn modifiers_names_and_numbers_come_apart() {
        assert_eq!(
            words("ld.global.nc.L1::no_allocate.v2.f32 {%f1,%f2},[%rd1+4];"),
            [
                "ld",
                ".global",
                ".nc",
                ".L1::no_allocate",
                ".v2",
                ".f32",
                "{",
                "%f1",
                ",",
                "%f2",
                "}",
                ",",
                "[",
                "%rd1",
                "+",
                "4",
                "]",
                ";"
            ]
        );
        assert_eq!(words("mov.f64 %d, 1.5e-3;"), ["mov", ".f64", "%d", ",", "1.5e-3", ";"]);
        assert_eq!(words("%tid.x"), ["%tid", ".x"]);
    }

    #[test]
    fn comments_hide_their_text_and_nothing_else() {
        assert_eq!(words("a // /* b\nc /* // d */ e // */\nf"), ["a", "c", "e", "f"]);
    }

    #[test]
    fn lines_are_counted_through_comments() {
        let list = tokens("a /* \n\n */ b\nc").unwrap();
        assert_eq!(list.iter().map(|t| t.line).collect::<Vec<_>>(), [1, 3, 4]);
    }

    #[test]
    fn open_ends_are_errors() {
        assert!(tokens("/* a").is_err());
        assert!(tokens("\"a").is_err());
    }
}

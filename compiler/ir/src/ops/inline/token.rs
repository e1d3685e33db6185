//! Pieces of a PTX text.

use std::fmt;

use super::{Fault, fault};

/// Bytes of a text at most.
const LONGEST: usize = 16 << 10;

/// A piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'t> {
    /// A name without its dots.
    Word(&'t str),
    /// `%0`, or the name of a special register.
    Operand(&'t str),
    /// A number as it is written.
    Number(&'t str),
    /// One sign.
    Mark(&'t str),
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Word(text) | Token::Operand(text) | Token::Number(text) | Token::Mark(text) => {
                f.write_str(text)
            }
        }
    }
}

/// True for a number without a fraction: `7`, `-7`, `0x1f`.
pub(super) fn is_integer(number: &str) -> bool {
    let digits = number.trim_start_matches('-');
    !digits.contains('.') && !digits.starts_with("0f") && !digits.starts_with("0F")
}

/// The pieces of a text; blanks and comments are left out.
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>, Fault> {
    if text.len() > LONGEST {
        return fault(format!("the text has more than {LONGEST} bytes"));
    }
    let mut all = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if first.is_ascii_whitespace() {
            rest = &rest[1..];
            continue;
        }
        if let Some(comment) = rest.strip_prefix("//") {
            rest = comment.find('\n').map_or("", |end| &comment[end..]);
            continue;
        }
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = |from: usize, is: &dyn Fn(char) -> bool| {
            from + rest[from..].find(|c| !is(c)).unwrap_or(rest.len() - from)
        };
        let is_digit = |at: usize| rest[at..].starts_with(|c: char| c.is_ascii_digit());
        let (token, end) = if first.is_ascii_alphabetic() || first == '_' {
            let end = length(0, &is_name);
            (Token::Word(&rest[..end]), end)
        } else if first == '%' {
            let end = length(1, &is_name);
            if !is_digit(1) {
                let name = &rest[..end];
                return fault(format!(
                    "`{name}` says where it runs, or is no operand; those are `%0`, `%1` and so on"
                ));
            }
            (Token::Operand(&rest[..end]), end)
        } else if first.is_ascii_digit() || (first == '-' && is_digit(1)) {
            let whole = length(1, &is_name);
            let fraction = rest[whole..].starts_with('.') && is_digit(whole + 1);
            let end = if fraction { length(whole + 1, &is_name) } else { whole };
            (Token::Number(number(&rest[..end])?), end)
        } else if ".,;:@!{}[]".contains(first) {
            (Token::Mark(&rest[..1]), 1)
        } else {
            return fault(format!("`{first}` does not belong into such a text"));
        };
        all.push(token);
        rest = &rest[end..];
    }
    Ok(all)
}

/// A number that PTX has.
fn number(text: &str) -> Result<&str, Fault> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let hexadecimal =
        |digits: &str| !digits.is_empty() && digits.chars().all(|c| c.is_ascii_hexdigit());
    let prefixed =
        |prefixes: [&str; 2]| prefixes.iter().find_map(|prefix| digits.strip_prefix(prefix));
    let is_right = match (prefixed(["0f", "0F"]), prefixed(["0x", "0X"])) {
        (Some(bits), _) => bits.len() == 8 && hexadecimal(bits) && digits.len() == text.len(),
        (None, Some(bits)) => bits.len() <= 16 && hexadecimal(bits),
        (None, None) => {
            let plain = digits.chars().all(|c| c.is_ascii_digit() || c == '.');
            plain
                && (digits.contains('.') || digits.parse::<u64>().is_ok())
                && (digits == "0" || digits.contains('.') || !digits.starts_with('0'))
        }
    };
    if is_right { Ok(text) } else { fault(format!("`{text}` is no number of PTX")) }
}

//! Words and signs of a litmus test, each with its place.

use crate::code::{Code, Diagnostic, Spot};

/// The largest text that is read, in bytes.
pub const MAX_BYTES: usize = 1 << 20;

/// A word, number or sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign<'t> {
    /// A name, an instruction with its qualifiers, or a number: letters, digits, `_`, `.` and `::`.
    Word(&'t str),
    /// Punctuation: one of `{ } ( ) [ ] ; , : | @ & = == != <> < <= > >= => ~ - /\ \/`.
    Mark(&'t str),
}

/// A sign with its place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Token<'t> {
    /// What it is.
    pub sign: Sign<'t>,
    /// Where it begins.
    pub spot: Spot,
}

/// Two-letter marks first, so that `==` is not two.
const MARKS: [&str; 26] = [
    "/\\", "\\/", "==", "!=", "<=", ">=", "<>", "=>", "&&", "||", "{", "}", "(", ")", "[", "]",
    ";", ",", ":", "|", "@", "&", "=", "<", ">", "~",
];

/// The text of a test, read from the front.
struct Reader<'t> {
    rest: &'t str,
    spot: Spot,
}

impl<'t> Reader<'t> {
    fn skip(&mut self, bytes: usize) -> &'t str {
        let (head, rest) = self.rest.split_at(bytes);
        for letter in head.chars() {
            if letter == '\n' {
                self.spot.line = self.spot.line.saturating_add(1);
                self.spot.column = 1;
            } else {
                self.spot.column = self.spot.column.saturating_add(1);
            }
        }
        self.rest = rest;
        head
    }

    /// Skips a comment or a block for other tools, if one begins here.
    fn skip_aside(&mut self) -> Result<bool, Diagnostic> {
        for (open, close) in [("(*", "*)"), ("<<", ">>"), ("/*", "*/")] {
            if self.rest.starts_with(open) {
                let Some(end) = self.rest[open.len()..].find(close) else {
                    let message = format!("`{open}` is not closed by `{close}`");
                    return Err(Diagnostic::new(Code::M0102, self.spot, message));
                };
                self.skip(open.len() + end + close.len());
                return Ok(true);
            }
        }
        if self.rest.starts_with("//") {
            let end = self.rest.find('\n').unwrap_or(self.rest.len());
            self.skip(end);
            return Ok(true);
        }
        Ok(false)
    }
}

/// The name and the signs of a test. What stands between the name and the first `{` is prose and is skipped.
pub(super) fn read(text: &str) -> Result<(&str, Vec<Token<'_>>), Diagnostic> {
    let start = Spot { line: 1, column: 1 };
    if text.len() > MAX_BYTES {
        let message = format!("the test has {} bytes, at most {MAX_BYTES} are read", text.len());
        return Err(Diagnostic::new(Code::M0109, start, message));
    }
    let mut reader = Reader { rest: text.strip_prefix('\u{feff}').unwrap_or(text), spot: start };
    let name = read_head(&mut reader)?;
    let mut tokens = Vec::new();
    while let Some(first) = reader.rest.chars().next() {
        if first.is_whitespace() {
            reader.skip(first.len_utf8());
            continue;
        }
        if reader.skip_aside()? {
            continue;
        }
        let spot = reader.spot;
        let length = word_length(reader.rest);
        let sign = if length > 0 {
            Sign::Word(reader.skip(length))
        } else if let Some(mark) = MARKS.iter().find(|mark| reader.rest.starts_with(**mark)) {
            Sign::Mark(reader.skip(mark.len()))
        } else {
            let message = format!("`{}` has no meaning in a test", first.escape_default());
            return Err(Diagnostic::new(Code::M0102, spot, message));
        };
        tokens.push(Token { sign, spot });
    }
    Ok((name, tokens))
}

/// Reads `PTX name` and skips prose.
fn read_head<'t>(reader: &mut Reader<'t>) -> Result<&'t str, Diagnostic> {
    loop {
        let blank = reader.rest.len() - reader.rest.trim_start().len();
        reader.skip(blank);
        if !reader.skip_aside()? {
            break;
        }
    }
    let line_end = reader.rest.find('\n').unwrap_or(reader.rest.len());
    let line = &reader.rest[..line_end];
    let name = line
        .strip_prefix("PTX")
        .or_else(|| line.strip_prefix("ptx"))
        .filter(|name| name.is_empty() || name.starts_with(|c: char| c.is_whitespace() || c == '"'))
        .ok_or_else(|| {
            let message = "a test begins with `PTX` and its name".to_owned();
            Diagnostic::new(Code::M0101, reader.spot, message)
        })?;
    let name = name.split(['{', '"']).next().unwrap_or(name).trim();
    let Some(block) = block_start(reader.rest) else {
        let message = "the block `{ … }` of initial values is missing".to_owned();
        return Err(Diagnostic::new(Code::M0101, reader.spot, message));
    };
    reader.skip(block);
    Ok(name)
}

/// Where the block of initial values begins: at the first brace outside of quoted remarks, or, where quotes do
/// not close, at the first of all.
fn block_start(text: &str) -> Option<usize> {
    let mut quoted = false;
    let outside = text.char_indices().find(|(_, letter)| {
        quoted ^= *letter == '"';
        *letter == '{' && !quoted
    });
    outside.map(|(at, _)| at).or_else(|| text.find('{'))
}

/// The length of the word that `text` begins with.
fn word_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let is_word = |at: usize| {
        bytes.get(at).is_some_and(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.'))
    };
    let mut at = 0;
    // A negative number.
    if bytes.first() == Some(&b'-') && bytes.get(1).is_some_and(u8::is_ascii_digit) {
        at = 1;
    }
    loop {
        if is_word(at) {
            at += 1;
        } else if bytes[at.min(bytes.len())..].starts_with(b"::") && at > 0 && is_word(at + 2) {
            // `shared::cta` is one word, `LC00:` is a label.
            at += 2;
        } else {
            return at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let (_, tokens) = read(text).unwrap();
        tokens
            .iter()
            .map(|token| match token.sign {
                Sign::Word(word) => format!("w{word}"),
                Sign::Mark(mark) => mark.to_owned(),
            })
            .collect()
    }

    #[test]
    fn prose_is_skipped_and_signs_are_told_apart() {
        let text = "PTX a+b-c\n\"prose { here\"\n{ x = -1; } (* c *) fence.proxy.async.shared::cta ; LC00: (x != 2 /\\ y <= 3)";
        assert_eq!(read(text).unwrap().0, "a+b-c");
        let expected = [
            "{",
            "wx",
            "=",
            "w-1",
            ";",
            "}",
            "wfence.proxy.async.shared::cta",
            ";",
            "wLC00",
            ":",
            "(",
            "wx",
            "!=",
            "w2",
            "/\\",
            "wy",
            "<=",
            "w3",
            ")",
        ];
        assert_eq!(words(text), expected);
    }

    #[test]
    fn places_count_lines_and_letters() {
        let (_, tokens) = read("PTX a\n{\n  x = 1;}").unwrap();
        assert_eq!(tokens[1].spot, Spot { line: 3, column: 3 });
    }

    #[test]
    fn what_is_no_test_is_refused() {
        let code = |text: &str| read(text).unwrap_err().code;
        assert_eq!(code(""), Code::M0101);
        assert_eq!(code("PTXa {}"), Code::M0101);
        assert_eq!(code("C a {}"), Code::M0101);
        assert_eq!(code("PTX a \"\""), Code::M0101);
        assert_eq!(code("PTX a { ? }"), Code::M0102);
        assert_eq!(code("PTX a { (* }"), Code::M0102);
        assert_eq!(code(&" ".repeat(MAX_BYTES + 1)), Code::M0109);
    }
}

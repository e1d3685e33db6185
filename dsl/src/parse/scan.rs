//! Cuts a text into tokens, takes the comments out and matches brackets.
//!
//! Guarantees: in `tokens` every opening bracket has its partner and all are properly nested, at most
//! [`MAX_DEPTH`] deep; `masked` has the length of the text, with comments, a byte order mark and
//! broken tokens as spaces. A place where something was broken is listed in `broken`, so that
//! whatever contains it is not parsed and not reported twice.

use crate::ast::CommentKind;
use crate::diag::{Code, Diagnostic, Sink};
use crate::source::{FileId, Span};

use super::words;

/// How deep brackets nest at most.
pub(super) const MAX_DEPTH: usize = 100;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// A name or a word of the language.
    Word,
    /// A number.
    Number,
    /// A string with its quotes.
    Str,
    /// An operator or a mark.
    Mark,
    /// `(`, `[` or `{`; the index of its partner.
    Open(u32),
    /// `)`, `]` or `}`; the index of its partner. One that was missing in the text is empty.
    Close(u32),
}

/// A piece of the text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) lo: u32,
    pub(super) hi: u32,
    /// Whether it is the first of its line.
    pub(super) first: bool,
}

/// A comment.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawComment {
    pub(super) kind: CommentKind,
    pub(super) lo: u32,
    pub(super) hi: u32,
}

/// The result of scanning.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) tokens: Vec<Token>,
    pub(super) comments: Vec<RawComment>,
    pub(super) masked: String,
    /// Sorted offsets.
    pub(super) broken: Vec<u32>,
}

/// Scans a text.
pub(super) fn scan(file: FileId, text: &str, sink: &mut Sink) -> Scan {
    let mut scanner = Scanner {
        file,
        text,
        at: 0,
        fresh_line: true,
        tokens: Vec::new(),
        comments: Vec::new(),
        blanks: Vec::new(),
        broken: Vec::new(),
        open: Vec::new(),
        sink,
    };
    scanner.run();
    scanner.finish()
}

struct Scanner<'a> {
    file: FileId,
    text: &'a str,
    at: usize,
    fresh_line: bool,
    tokens: Vec<Token>,
    comments: Vec<RawComment>,
    /// Byte ranges to blank besides comments.
    blanks: Vec<(usize, usize)>,
    broken: Vec<u32>,
    /// Indices of tokens that opened a bracket.
    open: Vec<u32>,
    sink: &'a mut Sink,
}

/// Marks of more than one character, longest first.
const LONG_MARKS: &[&str] = &[
    "..=", "<<=", ">>=", "->", "=>", "..", "==", "!=", "<=", ">=", "&&", "||", "<<", ">>", "+=",
    "-=", "*=", "/=", "%=", "&=", "|=", "^=",
];
const SHORT_MARKS: &[u8] = b"+-*/%&|^~!<>=?:;,.@";

/// Findings of one scan; a text that gives more is hardly worth reading on.
const MAX_FINDINGS: usize = 64;

impl Scanner<'_> {
    fn run(&mut self) {
        let bytes = self.text.as_bytes();
        if self.text.starts_with('\u{FEFF}') {
            self.at = '\u{FEFF}'.len_utf8();
            self.blanks.push((0, self.at));
        }
        while let Some(&byte) = bytes.get(self.at) {
            if self.sink.diagnostics().len() >= MAX_FINDINGS {
                return self.stop();
            }
            match byte {
                b'\n' => {
                    self.fresh_line = true;
                    self.at += 1;
                }
                b' ' | b'\t' | b'\r' => self.at += 1,
                b'/' if bytes.get(self.at + 1) == Some(&b'/') => self.line_comment(),
                b'/' if bytes.get(self.at + 1) == Some(&b'*') => self.block_comment(),
                b'"' => self.string(),
                b'(' | b'[' | b'{' => {
                    if !self.opening(byte) {
                        return self.stop();
                    }
                }
                b')' | b']' | b'}' => self.closing(byte),
                b'0'..=b'9' => self.number(),
                b'a'..=b'z' | b'A'..=b'Z' | b'_' => self.word(),
                _ => self.mark(byte),
            }
        }
    }

    /// Gives up the rest of the text.
    fn stop(&mut self) {
        self.broken.push(self.at as u32);
        self.blanks.push((self.at, self.text.len()));
        // Brackets that are open here close silently.
        while let Some(open) = self.open.pop() {
            self.close_silently(open);
        }
    }

    fn span(&self, lo: usize, hi: usize) -> Span {
        Span::new(self.file, lo as u32, hi as u32)
    }

    fn push(&mut self, kind: TokenKind, len: usize) {
        let token = Token {
            kind,
            lo: self.at as u32,
            hi: (self.at + len) as u32,
            first: std::mem::take(&mut self.fresh_line),
        };
        self.tokens.push(token);
        self.at += len;
    }

    fn line_comment(&mut self) {
        let rest = &self.text[self.at..];
        let len = rest.find('\n').unwrap_or(rest.len());
        let len = rest[..len].trim_end().len();
        self.comment(CommentKind::Line, len);
    }

    fn block_comment(&mut self) {
        let rest = &self.text[self.at..];
        match rest[2..].find("*/") {
            Some(end) => self.comment(CommentKind::Block, end + 4),
            None => {
                let diagnostic = Diagnostic::error(Code::E0003, "this comment does not end")
                    .label(self.span(self.at, self.at + 2), "`/*` without `*/`");
                self.sink.push(diagnostic);
                self.stop();
                self.at = self.text.len();
            }
        }
    }

    fn comment(&mut self, kind: CommentKind, len: usize) {
        let (lo, hi) = (self.at as u32, (self.at + len) as u32);
        self.comments.push(RawComment { kind, lo, hi });
        self.at += len;
    }

    fn string(&mut self) {
        let bytes = self.text.as_bytes();
        let mut end = self.at + 1;
        loop {
            match bytes.get(end) {
                Some(b'"') => return self.push(TokenKind::Str, end + 1 - self.at),
                Some(b'\\') if bytes.get(end + 1).is_some_and(|&next| next != b'\n') => end += 2,
                None | Some(b'\n') => break,
                Some(_) => end += 1,
            }
        }
        let end = self.at + self.text[self.at..end.min(self.text.len())].trim_end().len();
        let diagnostic = Diagnostic::error(Code::E0003, "this string does not end on its line")
            .label(self.span(self.at, end), "`\"` without its partner")
            .help("a string ends with `\"` on the line on which it starts");
        self.sink.push(diagnostic);
        self.broken.push(self.at as u32);
        self.blanks.push((self.at, end));
        self.push(TokenKind::Str, end - self.at);
    }

    fn number(&mut self) {
        let bytes = self.text.as_bytes();
        let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
        let part =
            |at: usize| bytes.get(at).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
        let mut end = self.at;
        while part(end) {
            let exponent = matches!(bytes[end], b'e' | b'E')
                && bytes[self.at..end].iter().all(|b| !b.is_ascii_alphabetic());
            end += 1;
            if exponent && matches!(bytes.get(end), Some(b'+' | b'-')) && digit(end + 1) {
                end += 1;
            }
            if bytes.get(end) == Some(&b'.')
                && digit(end + 1)
                && !bytes[self.at..end].contains(&b'.')
            {
                end += 1;
            }
        }
        self.push(TokenKind::Number, end - self.at);
    }

    fn word(&mut self) {
        let rest = &self.text.as_bytes()[self.at..];
        let len = rest
            .iter()
            .position(|b| !(b.is_ascii_alphanumeric() || *b == b'_'))
            .unwrap_or(rest.len());
        let word = &self.text[self.at..self.at + len];
        if self.fresh_line && !self.open.is_empty() && words::starts_statement(word) {
            self.resynchronise(word);
        }
        self.push(TokenKind::Word, len);
    }

    /// A word that starts a line and can only start a statement or item ends open brackets.
    fn resynchronise(&mut self, word: &str) {
        if self.after_order() {
            return;
        }
        if words::ITEM_WORDS.contains(&word) {
            while let Some(open) = self.open.pop() {
                self.report_unclosed(open, &format!("`{word}` starts a new item"));
            }
        } else {
            self.close_down_to_brace(&format!("`{word}` starts a new statement"));
        }
    }

    /// `order` may stand before the word `release`.
    fn after_order(&self) -> bool {
        self.tokens
            .last()
            .is_some_and(|token| &self.text[token.lo as usize..token.hi as usize] == "order")
    }

    fn mark(&mut self, byte: u8) {
        let rest = &self.text.as_bytes()[self.at..];
        if byte == b';' {
            self.close_down_to_brace("`;` ends the statement");
        }
        let long = LONG_MARKS.iter().find(|mark| rest.starts_with(mark.as_bytes()));
        match long {
            Some(mark) => self.push(TokenKind::Mark, mark.len()),
            None if SHORT_MARKS.contains(&byte) => self.push(TokenKind::Mark, 1),
            None => self.unknown(),
        }
    }

    /// One finding for a run of characters that start no token.
    fn unknown(&mut self) {
        let known = |byte: &u8| {
            byte.is_ascii_alphanumeric()
                || byte.is_ascii_whitespace()
                || b"_()[]{}\"".contains(byte)
                || SHORT_MARKS.contains(byte)
        };
        // Bytes of characters outside ASCII are never known, so this ends on a character border.
        let rest = &self.text[self.at..];
        let len = rest.as_bytes().iter().position(known).unwrap_or(rest.len());
        let first = rest.chars().next().expect("a character stands here");
        let shown = if first.is_control() || first.is_whitespace() {
            format!("the character U+{:04X}", u32::from(first))
        } else {
            format!("`{first}`")
        };
        let diagnostic = Diagnostic::error(Code::E0002, format!("{shown} has no meaning here"))
            .label(self.span(self.at, self.at + len), "not part of the language")
            .help("outside comments and strings only ASCII letters, digits and the operators of the language may stand");
        self.sink.push(diagnostic);
        self.broken.push(self.at as u32);
        self.blanks.push((self.at, self.at + len));
        self.fresh_line = false;
        self.at += len;
    }

    /// False when the nesting is too deep.
    fn opening(&mut self, byte: u8) -> bool {
        if byte == b'{' && !self.brace_inside_expression() {
            self.close_down_to_brace("`{` starts a block");
        }
        if self.open.len() >= MAX_DEPTH {
            let diagnostic = Diagnostic::error(Code::E0005, "brackets nest too deeply")
                .label(self.span(self.at, self.at + 1), format!("more than {MAX_DEPTH} brackets are open here"))
                .help("bind parts of the expression with `let` or `const`, or move inner blocks into a `fn`");
            self.sink.push(diagnostic);
            return false;
        }
        self.open.push(self.tokens.len() as u32);
        self.push(TokenKind::Open(0), 1);
        true
    }

    /// Braces inside `(` or `[` stand in `in {…}` and `match arch {…}` only.
    fn brace_inside_expression(&self) -> bool {
        self.tokens.last().is_some_and(|token| {
            matches!(&self.text[token.lo as usize..token.hi as usize], "in" | "arch")
        })
    }

    fn closing(&mut self, byte: u8) {
        let opener = match byte {
            b')' => b'(',
            b']' => b'[',
            _ => b'{',
        };
        let limit = if byte == b'}' { 0 } else { self.last_open_brace().map_or(0, |at| at + 1) };
        let partner = self.open[limit..]
            .iter()
            .rposition(|&open| self.byte_at(open) == opener)
            .map(|at| at + limit);
        let Some(partner) = partner else {
            let shown = byte as char;
            let diagnostic = Diagnostic::error(Code::E0004, format!("`{shown}` closes nothing"))
                .label(
                    self.span(self.at, self.at + 1),
                    format!("no `{}` is open here", opener as char),
                );
            self.sink.push(diagnostic);
            self.broken.push(self.at as u32);
            self.blanks.push((self.at, self.at + 1));
            self.fresh_line = false;
            self.at += 1;
            return;
        };
        while self.open.len() > partner + 1 {
            let open = self.open.pop().expect("longer than the partner's place");
            self.report_unclosed(open, &format!("`{}` closes an outer bracket", byte as char));
        }
        let open = self.open.pop().expect("the partner is open");
        self.tokens[open as usize].kind = TokenKind::Open(self.tokens.len() as u32);
        self.push(TokenKind::Close(open), 1);
    }

    fn byte_at(&self, token: u32) -> u8 {
        self.text.as_bytes()[self.tokens[token as usize].lo as usize]
    }

    fn last_open_brace(&self) -> Option<usize> {
        self.open.iter().rposition(|&open| self.byte_at(open) == b'{')
    }

    /// Closes `(` and `[` that are open inside the innermost block.
    fn close_down_to_brace(&mut self, why: &str) {
        while let Some(&open) = self.open.last() {
            if self.byte_at(open) == b'{' {
                return;
            }
            self.open.pop();
            self.report_unclosed(open, why);
        }
    }

    fn report_unclosed(&mut self, open: u32, why: &str) {
        let token = self.tokens[open as usize];
        let shown = self.byte_at(open) as char;
        let rest = &self.text.as_bytes()[self.at..];
        let word = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_');
        let len = word.count().max(1).min(rest.len());
        let here = self.span(self.at, self.at + len);
        let diagnostic = Diagnostic::error(Code::E0004, format!("`{shown}` is not closed"))
            .label(self.span(token.lo as usize, token.hi as usize), "opened here")
            .secondary(here, why.to_owned());
        self.sink.push(diagnostic);
        if shown != '{' {
            self.broken.push(token.lo);
        }
        self.close_silently(open);
    }

    /// Gives an open bracket an empty partner here.
    fn close_silently(&mut self, open: u32) {
        let partner = self.tokens.len() as u32;
        self.tokens[open as usize].kind = TokenKind::Open(partner);
        let at = self.at as u32;
        self.tokens.push(Token { kind: TokenKind::Close(open), lo: at, hi: at, first: false });
    }

    fn finish(mut self) -> Scan {
        while let Some(open) = self.open.pop() {
            self.report_unclosed(open, "the file ends here");
        }
        let mut masked = self.text.as_bytes().to_vec();
        let comments = self.comments.iter().map(|c| (c.lo as usize, c.hi as usize));
        for (lo, hi) in comments.chain(self.blanks.iter().copied()) {
            masked[lo..hi].fill(b' ');
        }
        let masked = String::from_utf8(masked).expect("whole characters were replaced by spaces");
        self.broken.sort_unstable();
        Scan { tokens: self.tokens, comments: self.comments, masked, broken: self.broken }
    }
}

//! Text to tree.
//!
//! The text is scanned first: comments are taken out, brackets matched, their depth limited. Then it
//! is cut into items, statements and parameters, and each piece is matched alone against the
//! grammar, so that every broken piece gives a diagnostic and the others survive.
//!
//! Guarantees: no text makes it panic, overflow the stack or take more than linear time; a piece that
//! gives an error is left out of the tree.

mod block;
mod expr;
mod header;
mod item;
mod message;
mod scan;
mod stmt;
mod trivia;
mod words;

use pest::Parser as _;
use pest::iterators::Pair;
use pest_derive::Parser;

use crate::ast::{Expr, File, Waiver};
use crate::diag::{Code, Diagnostic, Sink};
use crate::source::{FileId, SourceMap, Span};
use expr::{Build, Parts};
use message::{Piece, Place};
use scan::{RawComment, Token, TokenKind};

#[derive(Parser)]
#[grammar = "grammar.pest"]
struct Grammar;

/// What `parse` gives: always a tree, and what is wrong with the text.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// The tree; broken pieces are missing in it where there are errors.
    pub file: File,
    /// Findings by place.
    pub diagnostics: Vec<Diagnostic>,
}

impl Parsed {
    /// Whether any finding is an error.
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(|d| d.severity == crate::diag::Severity::Error)
    }
}

/// Parses one file of the map.
pub fn parse(sources: &SourceMap, file: FileId) -> Parsed {
    let text = sources.text(file);
    let mut sink = Sink::new();
    let scan = scan::scan(file, text, &mut sink);
    let mut parser = Parser::new(sources, file, &scan, sink);
    let (items, tail) = parser.items();
    let mut waivers = parser.waivers;
    waivers.sort_by_key(|waiver| waiver.span.lo);
    let span = Span::new(file, 0, text.len() as u32);
    let mut diagnostics = parser.sink.into_sorted();
    if diagnostics.len() > MAX_FINDINGS {
        diagnostics.truncate(MAX_FINDINGS);
        let last = diagnostics.pop().expect("MAX_FINDINGS is not zero");
        diagnostics.push(last.note("there are further findings, which are not shown"));
    }
    Parsed { file: File { items, tail, waivers, span }, diagnostics }
}

/// Parses a text that is one value: an expression or a range.
pub fn parse_expr(sources: &SourceMap, file: FileId) -> Result<Expr, Vec<Diagnostic>> {
    let mut sink = Sink::new();
    let scan = scan::scan(file, sources.text(file), &mut sink);
    let mut parser = Parser::new(sources, file, &scan, sink);
    let piece = Piece {
        rule: Rule::value_alone,
        what: "expression",
        end: "the end of the text",
        form: None,
    };
    let value = parser.piece(&piece, 0, scan.tokens.len(), |build, pair| {
        build.value(Parts::of(pair).need(Rule::value))
    });
    match value {
        Some(value) if parser.sink.is_empty() => Ok(value),
        _ => Err(parser.sink.into_sorted()),
    }
}

/// Findings that one file gives at most.
const MAX_FINDINGS: usize = 64;

/// How many operators and brackets may nest inside one piece.
const MAX_OPERATORS: usize = 100;

/// The state of parsing one file.
struct Parser<'a> {
    sources: &'a SourceMap,
    file: FileId,
    text: &'a str,
    masked: &'a str,
    tokens: &'a [Token],
    comments: &'a [RawComment],
    broken: &'a [u32],
    /// The first comment that no node has taken.
    next_comment: usize,
    waivers: Vec<Waiver>,
    sink: Sink,
}

impl<'a> Parser<'a> {
    fn new(sources: &'a SourceMap, file: FileId, scan: &'a scan::Scan, sink: Sink) -> Self {
        Self {
            sources,
            file,
            text: sources.text(file),
            masked: &scan.masked,
            tokens: &scan.tokens,
            comments: &scan.comments,
            broken: &scan.broken,
            next_comment: 0,
            waivers: Vec::new(),
            sink,
        }
    }

    /// Whether so much is wrong that reading on helps nobody.
    fn gives_up(&self) -> bool {
        self.sink.diagnostics().len() > MAX_FINDINGS
    }

    /// The text of a token; empty behind the last token.
    fn word(&self, at: usize) -> &'a str {
        self.tokens.get(at).map_or("", |token| &self.text[token.lo as usize..token.hi as usize])
    }

    /// From the first of the tokens `lo..hi` to the last.
    fn span(&self, lo: usize, hi: usize) -> Span {
        let place = |at: usize| self.tokens.get(at).map_or(self.text.len() as u32, |t| t.lo);
        let lo_offset = place(lo);
        let hi_offset =
            if hi > lo && hi <= self.tokens.len() { self.tokens[hi - 1].hi } else { lo_offset };
        Span::new(self.file, lo_offset, hi_offset.max(lo_offset))
    }

    /// The token behind this one, or behind its partner when it opens a bracket.
    fn skip(&self, at: usize) -> usize {
        match self.tokens[at].kind {
            TokenKind::Open(partner) => partner as usize + 1,
            TokenKind::Word
            | TokenKind::Number
            | TokenKind::Str
            | TokenKind::Mark
            | TokenKind::Close(_) => at + 1,
        }
    }

    /// The partner of the opening bracket at `at`.
    fn partner(&self, at: usize) -> usize {
        match self.tokens[at].kind {
            TokenKind::Open(partner) => partner as usize,
            TokenKind::Word
            | TokenKind::Number
            | TokenKind::Str
            | TokenKind::Mark
            | TokenKind::Close(_) => at,
        }
    }

    fn opens(&self, at: usize, bracket: &str) -> bool {
        self.tokens.get(at).is_some_and(|t| matches!(t.kind, TokenKind::Open(_)))
            && self.word(at) == bracket
    }

    /// Whether a finding about the tokens `lo..hi` was reported by the scanner.
    fn is_broken(&self, lo: usize, hi: usize) -> bool {
        let place = |at: usize| self.tokens.get(at).map_or(self.text.len() as u32, |t| t.lo);
        // A bracket that the scanner closed where it gave up is empty; what is broken starts there.
        let gave_up = self.tokens.get(hi).is_some_and(|token| token.lo == token.hi);
        let (lo, hi) = (place(lo), place(hi) + u32::from(gave_up));
        let first = self.broken.partition_point(|&at| at < lo);
        self.broken.get(first).is_some_and(|&at| at < hi.max(lo + 1))
    }

    /// Matches the tokens `lo..hi` against the rule of a piece and builds a node. Gives nothing, and
    /// at least one diagnostic, when they do not match.
    fn piece<T>(
        &mut self,
        piece: &Piece<'_>,
        lo: usize,
        hi: usize,
        build: impl FnOnce(&Build, Pair<'_, Rule>) -> T,
    ) -> Option<T> {
        if self.is_broken(lo, hi) {
            return None;
        }
        if lo >= hi {
            let found = match self.word(lo) {
                "" => "the end of the file".to_owned(),
                word => format!("`{word}`"),
            };
            let mut here = self.span(lo, lo + 1);
            if here.lo == here.hi {
                here.lo = self.tokens.last().map_or(0, |token| token.lo);
            }
            let diagnostic =
                Diagnostic::error(Code::E0010, format!("expected a {}, found {found}", piece.what))
                    .label(here, format!("a {} is missing here", piece.what));
            self.sink.push(diagnostic);
            return None;
        }
        if let Some(at) = self.too_deep(lo, hi) {
            let diagnostic =
                Diagnostic::error(Code::E0005, format!("this {} nests too deeply", piece.what))
                    .label(
                        self.span(at, at + 1),
                        format!("more than {MAX_OPERATORS} operators and brackets are open here"),
                    )
                    .help("bind parts of it with `let` or `const`");
            self.sink.push(diagnostic);
            return None;
        }
        let base = self.tokens[lo].lo;
        let text = &self.masked[base as usize..self.tokens[hi - 1].hi as usize];
        match Grammar::parse(piece.rule, text) {
            Ok(mut pairs) => {
                let builder = Build::new(self.file, base);
                let pair = pairs.next().expect("a rule that matches gives a pair");
                let node = build(&builder, pair);
                self.sink.extend(builder.into_findings());
                Some(node)
            }
            Err(error) => {
                let place = Place { file: self.file, text: self.text, tokens: self.tokens, lo, hi };
                self.sink.push(message::syntax_error(&place, piece, &error));
                None
            }
        }
    }

    /// Whether the tokens match the rule, without any finding.
    fn matches(&self, rule: Rule, lo: usize, hi: usize) -> bool {
        lo < hi
            && self.too_deep(lo, hi).is_none()
            && Grammar::parse(
                rule,
                &self.masked[self.tokens[lo].lo as usize..self.tokens[hi - 1].hi as usize],
            )
            .is_ok()
    }

    /// The token at which the tree of `lo..hi` would get deeper than `MAX_OPERATORS`. Counts, on the
    /// path to each token, operators since the last separator of each open bracket.
    fn too_deep(&self, lo: usize, hi: usize) -> Option<usize> {
        let mut open = vec![0_usize];
        let mut total = 0;
        for at in lo..hi {
            let top = open.last_mut().expect("brackets match, so the outermost level stays");
            match self.tokens[at].kind {
                TokenKind::Open(_) => {
                    *top += 1;
                    total += 1;
                    open.push(0);
                }
                TokenKind::Close(_) => {
                    total -= *top;
                    if open.len() > 1 {
                        open.pop();
                    }
                }
                TokenKind::Mark if matches!(self.word(at), "," | ";") => {
                    total -= *top;
                    *top = 0;
                }
                TokenKind::Mark => {
                    *top += 1;
                    total += 1;
                }
                TokenKind::Word if matches!(self.word(at), "load" | "else" | "match" | "of") => {
                    *top += 1;
                    total += 1;
                }
                TokenKind::Word | TokenKind::Number | TokenKind::Str => {}
            }
            if total > MAX_OPERATORS {
                return Some(at);
            }
        }
        None
    }

    /// The place behind the generic arguments whose `<` is at `at`: it stands directly behind a
    /// name, the arguments hold no brackets, and `(` follows.
    fn behind_generics(&self, at: usize) -> Option<usize> {
        let before = self.tokens.get(at.checked_sub(1)?)?;
        let is_head = self.word(at) == "<"
            && before.kind == TokenKind::Word
            && before.hi == self.tokens[at].lo;
        if !is_head {
            return None;
        }
        let mut end = at + 1;
        while end < self.tokens.len() && self.word(end) != ">" {
            let plain = match self.tokens[end].kind {
                TokenKind::Word | TokenKind::Number => true,
                TokenKind::Mark => {
                    matches!(self.word(end), "," | "." | "+" | "-" | "*" | "/" | "%" | "!" | "~")
                }
                TokenKind::Str | TokenKind::Open(_) | TokenKind::Close(_) => false,
            };
            if !plain {
                return None;
            }
            end += 1;
        }
        self.opens(end + 1, "(").then_some(end + 1)
    }

    /// Cuts the tokens `lo..hi` at marks outside of brackets. Each part comes with the place of its
    /// mark, or `hi` for the last; an empty last part is left out.
    fn split(&self, lo: usize, hi: usize, mark: &str) -> Vec<(usize, usize)> {
        let mut parts = Vec::new();
        let mut start = lo;
        let mut at = lo;
        while at < hi {
            if self.word(at) == mark {
                parts.push((start, at));
                start = at + 1;
            }
            at = self.behind_generics(at).unwrap_or_else(|| self.skip(at));
        }
        if start < hi {
            parts.push((start, hi));
        }
        parts
    }
}

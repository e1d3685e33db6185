//! A place in the signs of a test.

use super::super::token::{Sign, Token};
use super::text_of;
use crate::code::{Code, Diagnostic, Spot};

/// Reads signs from the front.
pub(super) struct Cursor<'t> {
    tokens: &'t [Token<'t>],
    at: usize,
    /// Where the text ends, for what is missing there.
    end: Spot,
}

impl<'t> Cursor<'t> {
    pub(super) fn new(tokens: &'t [Token<'t>]) -> Cursor<'t> {
        let end = tokens.last().map_or(Spot { line: 1, column: 1 }, |token| token.spot);
        Cursor { tokens, at: 0, end }
    }

    /// A cursor for a part of the signs; what is missing at its end is missing at `end`.
    pub(super) fn within(tokens: &'t [Token<'t>], end: Spot) -> Cursor<'t> {
        Cursor { tokens, at: 0, end: tokens.last().map_or(end, |token| token.spot) }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at == self.tokens.len()
    }

    /// The next sign, or one further on.
    pub(super) fn peek(&self, ahead: usize) -> Option<Sign<'t>> {
        self.tokens.get(self.at + ahead).map(|token| token.sign)
    }

    /// Where the next sign stands.
    pub(super) fn spot(&self) -> Spot {
        self.tokens.get(self.at).map_or(self.end, |token| token.spot)
    }

    pub(super) fn advance(&mut self) {
        self.at = (self.at + 1).min(self.tokens.len());
    }

    /// Takes a mark if it comes next.
    pub(super) fn takes(&mut self, mark: &str) -> bool {
        let is_next = self.peek(0).is_some_and(|sign| matches!(sign, Sign::Mark(m) if m == mark));
        if is_next {
            self.advance();
        }
        is_next
    }

    /// Takes a word if it comes next.
    pub(super) fn takes_word(&mut self, word: &str) -> bool {
        let is_next = self.peek(0) == Some(Sign::Word(word));
        if is_next {
            self.advance();
        }
        is_next
    }

    pub(super) fn expect(&mut self, mark: &str) -> Result<(), Diagnostic> {
        if self.takes(mark) {
            return Ok(());
        }
        Err(self.unexpected(&format!("`{mark}`")))
    }

    pub(super) fn word(&mut self, wanted: &str) -> Result<&'t str, Diagnostic> {
        match self.peek(0) {
            Some(Sign::Word(word)) => {
                self.advance();
                Ok(word)
            }
            Some(Sign::Mark(_)) | None => Err(self.unexpected(wanted)),
        }
    }

    pub(super) fn unexpected(&self, wanted: &str) -> Diagnostic {
        let message = match self.peek(0) {
            Some(sign) => format!("{wanted} is missing before `{}`", text_of(sign)),
            None => format!("{wanted} is missing at the end"),
        };
        Diagnostic::new(Code::M0102, self.spot(), message)
    }

    /// Skips to the next of some marks, which stays.
    pub(super) fn skip_until(&mut self, marks: &[&str]) {
        while let Some(sign) = self.peek(0) {
            if matches!(sign, Sign::Mark(mark) if marks.contains(&mark)) {
                return;
            }
            self.advance();
        }
    }

    /// The signs up to the end of a cell.
    pub(super) fn cell(&mut self) -> &'t [Token<'t>] {
        let start = self.at;
        self.skip_until(&["|", ";"]);
        &self.tokens[start..self.at]
    }

    /// Every sign that is left.
    pub(super) fn rest(&self) -> &'t [Token<'t>] {
        &self.tokens[self.at..]
    }
}

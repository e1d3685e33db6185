//! Gives comments to nodes, and reads waivers from them.
//!
//! Every comment is taken exactly once, in order: by the node behind it, by the node that it stands
//! in, by the node that ends before it on its line, or by the block whose brace it stands at.

use std::str::FromStr;

use super::Parser;
use crate::ast::{Comment, CommentKind, Hint, Trivia, Waiver};
use crate::diag::{Code, Diagnostic};
use crate::source::Span;

/// A node that is being read: its comments so far, and the waivers that will cover it.
#[derive(Debug)]
pub(super) struct Open {
    trivia: Trivia,
    waivers: Vec<Waiver>,
}

impl Parser<'_> {
    /// Starts a node at a token: takes the comments before it.
    pub(super) fn begin(&mut self, at: usize) -> Open {
        let lo = self.tokens.get(at).map_or(self.text.len() as u32, |token| token.lo);
        let (leading, waivers) = self.take_before(lo, true);
        let before = self.end_before(lo);
        let same_line = leading.is_empty() && at > 0 && !self.has_line_end(before, lo);
        let trivia = Trivia {
            leading,
            trailing: None,
            blank_before: Hint(self.has_blank_line(before, lo)),
            same_line: Hint(same_line),
        };
        Open { trivia, waivers }
    }

    /// Takes comments that stand inside a node, before the token `at`.
    pub(super) fn inside(&mut self, open: &mut Open, at: usize) {
        let lo = self.tokens.get(at).map_or(self.text.len() as u32, |token| token.lo);
        let (comments, _) = self.take_before(lo, false);
        open.trivia.leading.extend(comments);
    }

    /// Ends a node whose last token is `last`; `covers` is what its waivers silence.
    pub(super) fn end(&mut self, mut open: Open, last: usize, covers: Span) -> Trivia {
        self.inside(&mut open, last);
        for mut waiver in open.waivers {
            waiver.covers = covers;
            self.waivers.push(waiver);
        }
        open.trivia.trailing = self.comment_behind(last);
        open.trivia
    }

    /// Takes the comment that stands on the line of a token with nothing behind it.
    pub(super) fn comment_behind(&mut self, at: usize) -> Option<Comment> {
        let comment = *self.comments.get(self.next_comment)?;
        let end = self.tokens.get(at)?.hi;
        let next = self.tokens.get(at + 1).map_or(u32::MAX, |token| token.lo);
        if comment.lo < end || comment.lo > next || self.has_line_end(end, comment.lo) {
            return None;
        }
        let alone = next == u32::MAX || self.has_line_end(comment.hi, next);
        if comment.kind == CommentKind::Block && !alone {
            return None;
        }
        Some(self.take_comment(false).0)
    }

    /// Takes the comments before a closing brace or the end of the text.
    pub(super) fn comments_before(&mut self, at: usize) -> Vec<Comment> {
        let lo = self.tokens.get(at).map_or(self.text.len() as u32, |token| token.lo);
        self.take_before(lo, false).0
    }

    fn take_before(&mut self, lo: u32, before_node: bool) -> (Vec<Comment>, Vec<Waiver>) {
        let mut comments = Vec::new();
        let mut waivers = Vec::new();
        while self.comments.get(self.next_comment).is_some_and(|comment| comment.lo < lo) {
            let covers = before_node && self.touches_node(lo);
            let (comment, waiver) = self.take_comment(covers);
            comments.push(comment);
            waivers.extend(waiver);
        }
        (comments, waivers)
    }

    /// Whether nothing but further comments and single line ends stands between the next comment
    /// and a node.
    fn touches_node(&self, lo: u32) -> bool {
        let mut end = self.comments[self.next_comment].hi;
        for comment in &self.comments[self.next_comment + 1..] {
            if comment.lo >= lo {
                break;
            }
            if self.has_blank_line(end, comment.lo) {
                return false;
            }
            end = comment.hi;
        }
        !self.has_blank_line(end, lo)
    }

    fn take_comment(&mut self, covers_node: bool) -> (Comment, Option<Waiver>) {
        let raw = self.comments[self.next_comment];
        let before = self.end_before(raw.lo);
        self.next_comment += 1;
        let span = Span::new(self.file, raw.lo, raw.hi);
        let text = self.text[raw.lo as usize..raw.hi as usize].replace("\r\n", "\n");
        let waiver = match raw.kind {
            CommentKind::Line => self.waiver(&text, span, covers_node),
            CommentKind::Block => None,
        };
        let blank_before = Hint(self.has_blank_line(before, raw.lo));
        (Comment { kind: raw.kind, text, blank_before, span }, waiver)
    }

    /// Reads `// allow E0107: reason`; a comment that only looks like it gives a finding.
    fn waiver(&mut self, text: &str, span: Span, covers_node: bool) -> Option<Waiver> {
        let rest = text[2..].trim_start().strip_prefix("allow ")?.trim_start();
        let code_len = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let (code, rest) = rest.split_at(code_len);
        let is_code = code.len() > 1
            && code.starts_with('E')
            && code[1..].bytes().all(|byte| byte.is_ascii_digit());
        if !is_code {
            return None;
        }
        let fault = |message: String, label: &str| {
            Diagnostic::error(Code::E0015, message).label(span, label).help(
                "a waiver is written `// allow E0107: reason` on the line before what it covers",
            )
        };
        let Ok(code) = Code::from_str(code) else {
            self.sink.push(fault(format!("`{code}` is no diagnostic code"), "unknown code"));
            return None;
        };
        let reason = rest.trim_start().strip_prefix(':').map(str::trim).unwrap_or_default();
        if reason.is_empty() {
            self.sink.push(fault("a waiver gives its reason".to_owned(), "no reason"));
            return None;
        }
        if !covers_node {
            let label = "no statement or parameter starts on the next line";
            self.sink.push(fault("this waiver covers nothing".to_owned(), label));
            return None;
        }
        let line = self.sources.start(span).line;
        Some(Waiver { code, reason: reason.to_owned(), line, span, covers: span })
    }

    /// The end of the token or comment before an offset.
    fn end_before(&self, lo: u32) -> u32 {
        let token = self.tokens.partition_point(|token| token.hi <= lo && token.lo < lo);
        let comment = self.comments.partition_point(|comment| comment.lo < lo);
        let token_end = token.checked_sub(1).map_or(0, |at| self.tokens[at].hi);
        let comment_end = comment.checked_sub(1).map_or(0, |at| self.comments[at].hi);
        token_end.max(comment_end)
    }

    fn has_line_end(&self, lo: u32, hi: u32) -> bool {
        lo < hi && self.text.as_bytes()[lo as usize..hi as usize].contains(&b'\n')
    }

    fn has_blank_line(&self, lo: u32, hi: u32) -> bool {
        if lo >= hi {
            return false;
        }
        let between = &self.text.as_bytes()[lo as usize..hi as usize];
        between.iter().filter(|&&byte| byte == b'\n').count() > 1
    }
}

//! The search.

use std::ops::Range;

use crate::edits::{entries, groups, is_balanced, run_of, unwrapped};
use crate::tokens::{Kind, Token, join, tokens};

/// Lengths of runs of tokens that are tried without regard to what they are.
const RUNS: [usize; 5] = [8, 4, 3, 2, 1];

/// What is left of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reduced {
    /// The text; it fails.
    pub text: String,
    /// Texts that were tried.
    pub tries: u64,
    /// Whether nothing else can be left out; otherwise the limit ended the search.
    pub is_least: bool,
}

/// The least text that is found by leaving out parts of `text`, each step of which `fails`; at most `limit` texts are
/// tried. `text` itself is taken to fail.
pub fn reduce(text: &str, limit: u64, fails: impl FnMut(&str) -> bool) -> Reduced {
    let mut search = Search { tokens: tokens(text), text: text.to_owned(), tries: 0, limit, fails };
    loop {
        let before = search.text.clone();
        search.without_comments();
        search.without_entries();
        search.without_brackets();
        search.without_runs();
        search.with_smaller_numbers();
        if search.text == before || search.is_over() {
            break;
        }
    }
    let is_least = !search.is_over();
    Reduced { text: search.text, tries: search.tries, is_least }
}

struct Search<F> {
    tokens: Vec<Token>,
    text: String,
    tries: u64,
    limit: u64,
    fails: F,
}

impl<F: FnMut(&str) -> bool> Search<F> {
    fn is_over(&self) -> bool {
        self.tries >= self.limit
    }

    /// Takes other tokens where their text fails and is another one.
    fn take(&mut self, tokens: Vec<Token>) -> bool {
        let text = join(&tokens);
        if self.is_over() || text == self.text {
            return false;
        }
        self.tries += 1;
        let is_taken = (self.fails)(&text);
        if is_taken {
            (self.tokens, self.text) = (tokens, text);
        }
        is_taken
    }

    fn leave_out(&mut self, parts: &[Range<usize>]) -> bool {
        let stays = |at: &usize| !parts.iter().any(|part| part.contains(at));
        let kept = (0..self.tokens.len()).filter(stays).map(|at| self.tokens[at].clone()).collect();
        self.take(kept)
    }

    fn without_comments(&mut self) {
        let is_comment = |token: &&Token| token.kind == Kind::Comment;
        if self.tokens.iter().any(|token| is_comment(&token)) {
            let kept = self.tokens.iter().filter(|token| !is_comment(token)).cloned().collect();
            self.take(kept);
        }
    }

    /// Entries of each group: all, then halves, quarters and so on.
    fn without_entries(&mut self) {
        let mut number = 0;
        while let Some(group) = groups(&self.tokens).get(number).cloned() {
            let mut size = entries(&self.tokens, &group).len();
            while size > 0 && !self.is_over() {
                let mut from = 0;
                // What goes from a group leaves its number and its first token as they are.
                while let Some(group) = groups(&self.tokens).get(number).cloned() {
                    let entries = entries(&self.tokens, &group);
                    let Some(run) = entries.get(from..(from + size).min(entries.len())) else {
                        break;
                    };
                    if run.is_empty() {
                        break;
                    }
                    let part = run_of(&self.tokens, &group, run);
                    if !self.leave_out(&[part]) {
                        from += size;
                    }
                }
                size /= 2;
            }
            number += 1;
        }
    }

    /// Blocks and arguments in the place of what is around them.
    fn without_brackets(&mut self) {
        let mut number = 0;
        while let Some((before, after)) = unwrapped(&self.tokens).get(number).cloned() {
            if !self.leave_out(&[before, after]) {
                number += 1;
            }
            if self.is_over() {
                return;
            }
        }
    }

    /// Tokens that follow each other.
    fn without_runs(&mut self) {
        for length in RUNS {
            let mut from = 0;
            while from + length <= self.tokens.len() && !self.is_over() {
                let run = from..from + length;
                if !is_balanced(&self.tokens[run.clone()]) || !self.leave_out(&[run]) {
                    from += 1;
                }
            }
        }
    }

    /// 0, 1, or half of each number.
    fn with_smaller_numbers(&mut self) {
        for at in 0..self.tokens.len() {
            while let Some(value) = self.tokens.get(at).and_then(Token::number) {
                let smaller = [0, 1, value / 2].into_iter().filter(|&other| other < value);
                let is_taken = smaller.into_iter().any(|other| {
                    let mut tokens = self.tokens.clone();
                    tokens[at].text = other.to_string();
                    self.take(tokens)
                });
                if !is_taken {
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "target sm_90a;
// a comment
kernel other(x : f32) { a; }
kernel k<const N: int = 64, const M: int = 2>(input x : f32[N], output y : f32[N]) launch { grid: 1, warps: 4 } {
    let a = f(x, g(y), 128);
    if a > 3 { for t in 0..16 { bad(a, t); } } else { fine(a); }
    sync;
}
";

    #[test]
    fn what_fails_is_all_that_stays() {
        let reduced = reduce(TEXT, 10_000, |text| text.contains("bad("));
        assert_eq!(reduced.text.trim(), "bad()", "{reduced:?}");
        let reduced =
            reduce(TEXT, 10_000, |text| text.contains("bad(a") && text.contains("kernel k<"));
        assert!(reduced.is_least);
        assert!(reduced.text.len() < 60, "{reduced:?}");
    }

    #[test]
    fn brackets_stay_whole_where_they_must() {
        let balanced = |text: &str| {
            let depth = |open: char, close: char| {
                text.matches(open).count() as i64 - text.matches(close).count() as i64
            };
            depth('(', ')') == 0 && depth('{', '}') == 0
        };
        let reduced = reduce(TEXT, 10_000, |text| balanced(text) && text.contains("fine(a)"));
        assert_eq!(reduced.text.trim(), "fine(a)");
    }

    #[test]
    fn numbers_become_small() {
        let reduced = reduce("f(x, 128, 7);", 1_000, |text| {
            tokens(text).iter().filter_map(Token::number).any(|number| number >= 5)
        });
        assert_eq!(reduced.text.trim(), "7");
        let at_least = |text: &str| tokens(text).iter().filter_map(Token::number).any(|n| n >= 30);
        assert_eq!(reduce("f(x, 128);", 1_000, at_least).text.trim(), "32");
    }

    #[test]
    fn a_limit_ends_the_search_with_what_fails() {
        let reduced = reduce(TEXT, 3, |text| text.contains("sync"));
        assert_eq!(reduced.tries, 3);
        assert!(!reduced.is_least && reduced.text.contains("sync"));
    }
}

//! What may be left out of a list of tokens.

use std::ops::Range;

use crate::tokens::{Kind, Token};

/// The groups of tokens: all of them, then what stands between each pair of brackets, in the order in which they open.
pub(crate) fn groups(tokens: &[Token]) -> Vec<Range<usize>> {
    let whole = 0..tokens.len();
    let mut found = Vec::from([whole]);
    let mut open = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        match token.kind {
            Kind::Open => open.push(at + 1),
            Kind::Close => found.extend(open.pop().map(|from| from..at)),
            Kind::Word | Kind::Comment | Kind::Text | Kind::Sign => {}
        }
    }
    found.sort_by_key(|group| (group.start, usize::MAX - group.end));
    found
}

/// The entries of a group: up to a `;`, a `,` or the end of a block, each with it. A comment is an entry.
pub(crate) fn entries(tokens: &[Token], group: &Range<usize>) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let (mut from, mut depth) = (group.start, 0_usize);
    for at in group.clone() {
        let token = &tokens[at];
        match token.kind {
            Kind::Open => depth += 1,
            Kind::Close => depth = depth.saturating_sub(1),
            Kind::Word | Kind::Comment | Kind::Text | Kind::Sign => {}
        }
        let is_end = token.is(";") || token.is(",") || token.is("}");
        if depth == 0 && (is_end || token.kind == Kind::Comment) {
            found.push(from..at + 1);
            from = at + 1;
        }
    }
    if from < group.end {
        found.push(from..group.end);
    }
    found
}

/// The tokens of some entries that follow each other; a `,` that would be left at the end of the group goes too.
pub(crate) fn run_of(tokens: &[Token], group: &Range<usize>, run: &[Range<usize>]) -> Range<usize> {
    let (Some(first), Some(last)) = (run.first(), run.last()) else { return 0..0 };
    let mut from = first.start;
    let is_last = last.end == group.end && !tokens[last.end - 1].is(",");
    if is_last && from > group.start && tokens[from - 1].is(",") {
        from -= 1;
    }
    from..last.end
}

/// For each pair of brackets: what could go so that what is between them stays, as two ranges around what stays.
pub(crate) fn unwrapped(tokens: &[Token]) -> Vec<(Range<usize>, Range<usize>)> {
    let mut found = Vec::new();
    let groups = groups(tokens);
    for group in groups.iter().skip(1) {
        let (open, close) = (group.start - 1, group.end);
        let parent = groups
            .iter()
            .filter(|outer| outer.start <= open && close < outer.end)
            .min_by_key(|outer| outer.len());
        let Some(parent) = parent else { continue };
        let entry = entries(tokens, parent).into_iter().find(|entry| entry.contains(&open));
        if let Some(entry) = entry {
            found.push((entry.start..open + 1, close..entry.end));
        }
        let called = (0..open).rev().find(|&at| !is_name(&tokens[at])).map_or(0, |at| at + 1);
        for argument in entries(tokens, group) {
            let end = argument.end - usize::from(tokens[argument.end - 1].is(","));
            found.push((called.max(parent.start)..argument.start, end..close + 1));
        }
    }
    found
}

fn is_name(token: &Token) -> bool {
    token.kind == Kind::Word || token.is(".") || token.is("@")
}

/// Whether each bracket of a range has its partner there.
pub(crate) fn is_balanced(tokens: &[Token]) -> bool {
    let mut depth = 0_i64;
    for token in tokens {
        match token.kind {
            Kind::Open => depth += 1,
            Kind::Close => depth -= 1,
            Kind::Word | Kind::Comment | Kind::Text | Kind::Sign => {}
        }
        if depth < 0 {
            return false;
        }
    }
    depth == 0
}

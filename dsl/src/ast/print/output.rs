//! Lines of output: indentation, blank lines, comments and their columns.

use crate::ast::{Comment, Trivia};

/// The width that lines keep to where they can be broken; comments do not count.
pub(super) const WIDTH: usize = 120;

/// Lines longer than this do not pull the comments of their neighbours to the right.
const COMMENT_COLUMN_LIMIT: usize = 88;

struct OutputLine {
    indent: usize,
    text: String,
    comment: Option<String>,
    /// Where spaces may go to bring a part of neighbouring lines into one column.
    column: Option<usize>,
}

/// The lines so far.
#[derive(Default)]
pub(super) struct Output {
    lines: Vec<OutputLine>,
    indent: usize,
    /// Whether a further statement may go on the last line.
    open: bool,
    /// Whether nothing was written since the block began.
    fresh: bool,
}

impl Output {
    pub(super) fn new() -> Self {
        Self { fresh: true, ..Self::default() }
    }

    pub(super) fn indent(&self) -> usize {
        self.indent
    }

    /// Starts a region that is indented by `by` more.
    pub(super) fn begin(&mut self, by: usize) {
        self.indent += by;
        self.fresh = true;
        self.open = false;
    }

    /// Ends a region.
    pub(super) fn end(&mut self, by: usize) {
        self.indent -= by;
        self.fresh = false;
        self.open = false;
    }

    /// A blank line, except at the start of a region and behind another.
    pub(super) fn blank(&mut self) {
        if !self.fresh && self.lines.last().is_some_and(|line| !line.text.is_empty()) {
            self.push(0, String::new());
            self.open = false;
        }
    }

    fn push(&mut self, indent: usize, text: String) {
        self.lines.push(OutputLine { indent, text, comment: None, column: None });
    }

    /// Marks a place in the last line, which is one whole statement: where the lines before and
    /// behind have the same indentation, first word and mark, the marked places get one column.
    pub(super) fn mark_column(&mut self, place: usize) {
        if let (true, Some(line)) = (self.open, self.lines.last_mut()) {
            line.column = Some(place);
        }
    }

    /// One line.
    pub(super) fn line(&mut self, text: impl Into<String>) {
        self.push(self.indent, text.into());
        self.fresh = false;
        self.open = false;
    }

    /// Lines of one statement; those behind the first carry their indentation.
    pub(super) fn paragraph(&mut self, lines: Vec<String>) {
        let single = lines.len() == 1;
        for (at, text) in lines.into_iter().enumerate() {
            let own = text.len() - text.trim_start_matches(' ').len();
            let indent = if at == 0 { self.indent } else { own };
            self.push(indent, text[own..].to_owned());
        }
        self.fresh = false;
        self.open = single;
    }

    /// Lines that go on behind the last one, as `else` does behind `}`.
    pub(super) fn continue_line(&mut self, lines: Vec<String>) {
        let mut lines = lines.into_iter();
        self.append(" ");
        self.append(&lines.next().unwrap_or_default());
        for text in lines {
            let indent = text.len() - text.trim_start_matches(' ').len();
            self.push(indent, text[indent..].to_owned());
        }
    }

    /// Whether a text fits behind the last line, which is one whole statement.
    pub(super) fn takes(&self, text: &str) -> bool {
        self.open
            && self.lines.last().is_some_and(|line| {
                let used = line.indent + line.text.chars().count();
                line.comment.is_none() && used + 1 + text.chars().count() <= WIDTH
            })
    }

    /// Appends to the last line.
    pub(super) fn append(&mut self, text: &str) {
        if let Some(line) = self.lines.last_mut() {
            line.text.push_str(text);
        }
    }

    /// Comments and the blank lines before a node.
    pub(super) fn leading(&mut self, trivia: &Trivia) {
        self.comments(&trivia.leading);
        if trivia.blank_before.0 {
            self.blank();
        }
    }

    /// Comments on lines of their own.
    pub(super) fn comments(&mut self, comments: &[Comment]) {
        for comment in comments {
            if comment.blank_before.0 {
                self.blank();
            }
            self.line(&*comment.text);
        }
    }

    /// The comment behind the last line.
    pub(super) fn trailing(&mut self, comment: Option<&Comment>) {
        if let (Some(comment), Some(line)) = (comment, self.lines.last_mut()) {
            line.comment = Some(comment.text.clone());
            self.open = false;
        }
    }

    /// The text, with marked places and comments of neighbouring lines in columns.
    pub(super) fn finish(mut self) -> String {
        self.align_columns();
        let mut out = String::new();
        let mut at = 0;
        while at < self.lines.len() {
            let run = self.run_from(at);
            let column = self.lines[at..at + run]
                .iter()
                .map(OutputLine::end)
                .filter(|&end| end <= COMMENT_COLUMN_LIMIT)
                .max();
            for line in &self.lines[at..at + run] {
                let start = out.len();
                out.extend(std::iter::repeat_n(' ', line.indent));
                out.push_str(&line.text);
                if let Some(comment) = &line.comment {
                    let gap = column.unwrap_or(0).saturating_sub(line.end());
                    out.extend(std::iter::repeat_n(' ', gap + 1));
                    out.push_str(comment);
                }
                let kept = out[start..].trim_end().len();
                out.truncate(start + kept);
                out.push('\n');
            }
            at += run;
        }
        out
    }

    fn align_columns(&mut self) {
        let mut at = 0;
        while at < self.lines.len() {
            let first = &self.lines[at];
            let alike = |line: &&OutputLine| {
                line.column.is_some() && line.indent == first.indent && line.word() == first.word()
            };
            let run = self.lines[at..].iter().take_while(alike).count().max(1);
            let lines = &mut self.lines[at..at + run];
            let column = lines.iter().filter_map(|line| line.column).max().unwrap_or(0);
            let gap = |line: &OutputLine| line.column.map_or(0, |place| column - place);
            if lines.iter().all(|line| line.end() + gap(line) <= WIDTH) {
                for line in lines {
                    let gap = gap(line);
                    line.text.insert_str(line.column.unwrap_or(0), &" ".repeat(gap));
                }
            }
            at += run;
        }
    }

    /// How many lines from `at` on share a comment column; at least one.
    fn run_from(&self, at: usize) -> usize {
        let first = &self.lines[at];
        let same = |line: &&OutputLine| line.comment.is_some() && line.indent == first.indent;
        self.lines[at..].iter().take_while(same).count().max(1)
    }
}

impl OutputLine {
    fn end(&self) -> usize {
        self.indent + self.text.chars().count()
    }

    fn word(&self) -> &str {
        self.text.split(' ').next().unwrap_or_default()
    }
}

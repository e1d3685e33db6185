//! A small layout engine: text with places where a line may break.
//!
//! A group is printed on one line when it fits, else every break of the group itself becomes a line
//! end; groups inside decide for themselves.

/// Text with possible breaks.
#[derive(Clone, Debug)]
pub(super) enum Doc {
    Text(String),
    /// A space, or a line end.
    Line,
    /// Nothing, or a line end.
    Soft,
    /// What fits on one line stays on one line.
    Group(Vec<Doc>),
    /// Lines inside are indented further.
    Nest(Vec<Doc>),
}

pub(super) fn text(text: impl Into<String>) -> Doc {
    Doc::Text(text.into())
}

/// Docs with `,` and a break between them.
pub(super) fn commas(docs: impl IntoIterator<Item = Doc>) -> Vec<Doc> {
    let mut list = Vec::new();
    for doc in docs {
        if !list.is_empty() {
            list.push(text(","));
            list.push(Doc::Line);
        }
        list.push(doc);
    }
    list
}

/// A list in brackets, broken inside them when it does not fit.
pub(super) fn bracketed(open: &str, list: Vec<Doc>, close: &str) -> Doc {
    if list.is_empty() {
        return text(format!("{open}{close}"));
    }
    let mut inner = vec![Doc::Soft];
    inner.extend(list);
    Doc::Group(vec![text(open), Doc::Nest(inner), Doc::Soft, text(close)])
}

/// How far a nested line is indented.
pub(super) const INDENT: usize = 4;

impl Doc {
    /// The doc on one line.
    pub(super) fn flat(&self) -> String {
        let mut out = String::new();
        self.write_flat(&mut out);
        out
    }

    fn write_flat(&self, out: &mut String) {
        match self {
            Doc::Text(text) => out.push_str(text),
            Doc::Line => out.push(' '),
            Doc::Soft => {}
            Doc::Group(docs) | Doc::Nest(docs) => docs.iter().for_each(|doc| doc.write_flat(out)),
        }
    }

    /// The doc within `width` columns, its first line starting at column `indent`, as lines without
    /// the indentation of the first.
    pub(super) fn lines(&self, indent: usize, width: usize) -> Vec<String> {
        let mut printer = Printer { width, column: indent, lines: vec![String::new()] };
        printer.write(self, indent, false);
        printer.lines
    }
}

struct Printer {
    width: usize,
    column: usize,
    lines: Vec<String>,
}

impl Printer {
    fn push(&mut self, text: &str) {
        self.column += text.chars().count();
        self.lines.last_mut().expect("there is a first line").push_str(text);
    }

    fn end_line(&mut self, indent: usize) {
        self.lines.push(" ".repeat(indent));
        self.column = indent;
    }

    fn write(&mut self, doc: &Doc, indent: usize, broken: bool) {
        match doc {
            Doc::Text(text) => self.push(text),
            Doc::Line if broken => self.end_line(indent),
            Doc::Line => self.push(" "),
            Doc::Soft if broken => self.end_line(indent),
            Doc::Soft => {}
            Doc::Nest(docs) => self.write_all(docs, indent + INDENT, broken),
            Doc::Group(docs) => {
                let flat = doc.flat();
                if self.column + flat.chars().count() <= self.width {
                    self.push(&flat);
                } else {
                    self.write_all(docs, indent, true);
                }
            }
        }
    }

    fn write_all(&mut self, docs: &[Doc], indent: usize, broken: bool) {
        docs.iter().for_each(|doc| self.write(doc, indent, broken));
    }
}

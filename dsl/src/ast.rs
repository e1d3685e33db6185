//! The tree of one source file, close to the text: names are strings, nothing is resolved.
//!
//! Every node has a span. Comments are kept as [`Trivia`] of items, parameters and statements, so
//! that the printer loses none. Data types, operation names, atoms and targets are plain names here;
//! what is an enum is fixed by the grammar.

mod dump;
mod expr;
mod header;
pub mod print;
mod stmt;

pub use dump::dump;
pub use expr::*;
pub use header::*;
pub use stmt::*;

use crate::source::Span;

/// An identifier.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// The characters.
    pub text: String,
    /// Where it stands.
    pub span: Span,
}

/// A dotted name: `reduce.add`, `cta.x`, `ld.full`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// One or more names.
    pub segments: Vec<Name>,
    /// From the first to the last name.
    pub span: Span,
}

impl Path {
    /// The dotted text.
    pub fn text(&self) -> String {
        let names: Vec<&str> = self.segments.iter().map(|name| name.text.as_str()).collect();
        names.join(".")
    }

    /// The only name, when there is one only.
    pub fn single(&self) -> Option<&Name> {
        match self.segments.as_slice() {
            [name] => Some(name),
            _ => None,
        }
    }

    /// Whether the dotted text equals `text`.
    pub fn is(&self, text: &str) -> bool {
        self.segments.iter().map(|name| name.text.as_str()).eq(text.split('.'))
    }
}

/// A string literal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// The characters with escapes resolved.
    pub value: String,
    /// With the quotes.
    pub span: Span,
}

/// How a comment is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommentKind {
    /// `// to the end of the line`
    Line,
    /// `/* … */`
    Block,
}

/// A comment as it is written, marks included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comment {
    /// How it is written.
    pub kind: CommentKind,
    /// The text with its marks, without trailing white space.
    pub text: String,
    /// Whether a blank line stands before it.
    pub blank_before: Hint,
    /// Where it stands.
    pub span: Span,
}

/// A wish of the author about line breaks. It has no meaning, and `dump` does not show it.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Hint(pub bool);

impl std::fmt::Debug for Hint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "@{}", self.0)
    }
}

/// Comments and line breaks around a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trivia {
    /// Comments before the node and inside it, where no inner node takes them.
    pub leading: Vec<Comment>,
    /// The comment behind the node on its last line.
    pub trailing: Option<Comment>,
    /// Whether a blank line stands directly before the node, behind its comments.
    pub blank_before: Hint,
    /// Whether the node starts on the line on which the one before it ends.
    pub same_line: Hint,
}

/// `// allow E0107: reason` on the line before a statement or parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiver {
    /// The code whose finding is silenced; always one of the table.
    pub code: crate::diag::Code,
    /// Why.
    pub reason: String,
    /// Line of the comment, from 1.
    pub line: u32,
    /// The comment.
    pub span: Span,
    /// The node on the line below: a finding whose primary label lies in it is silenced. For a
    /// statement with a block it is the part before the block.
    pub covers: Span,
}

/// One source file.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    /// Everything at the top level, in order.
    pub items: Vec<Item>,
    /// Comments behind the last item.
    pub tail: Vec<Comment>,
    /// All waivers, by line. They are read from the comments; the printer does not use them.
    pub waivers: Vec<Waiver>,
    /// The whole text.
    pub span: Span,
}

impl File {
    /// The names of all `target` lines.
    pub fn targets(&self) -> impl Iterator<Item = &Name> {
        self.items.iter().flat_map(|item| match &item.kind {
            ItemKind::Target(names) => names.as_slice(),
            _ => &[],
        })
    }

    /// The kernels in order.
    pub fn kernels(&self) -> impl Iterator<Item = &Kernel> {
        self.items.iter().filter_map(|item| match &item.kind {
            ItemKind::Kernel(kernel) => Some(&**kernel),
            _ => None,
        })
    }

    /// The functions in order.
    pub fn fns(&self) -> impl Iterator<Item = &Function> {
        self.items.iter().filter_map(|item| match &item.kind {
            ItemKind::Fn(function) => Some(&**function),
            _ => None,
        })
    }

    /// The texts of all `import` lines.
    pub fn imports(&self) -> impl Iterator<Item = &Text> {
        self.items.iter().filter_map(|item| match &item.kind {
            ItemKind::Import(text) => Some(text),
            _ => None,
        })
    }
}

/// Something at the top level.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// What it is.
    pub kind: ItemKind,
    /// Comments around it.
    pub trivia: Trivia,
    /// The whole item.
    pub span: Span,
}

/// The kinds of items.
#[derive(Clone, Debug, PartialEq)]
pub enum ItemKind {
    /// `target sm_90a, sm_100a;`
    Target(Vec<Name>),
    /// `import "file.tile";`
    Import(Text),
    /// `const G : int = 32;`
    Const(Const),
    /// `atom MMA = wgmma(m = 64, …);`
    Atom(Atom),
    /// `kernel name<…>(…) … { … }`
    Kernel(Box<Kernel>),
    /// `fn name<…>(…) -> … { … }`
    Fn(Box<Function>),
}

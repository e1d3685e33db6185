//! Source texts and positions in them.
//!
//! A [`SourceMap`] owns every text of one run; a [`Span`] is 12 bytes and is copied freely.
//! Offsets are bytes. Lines and columns are for people: they start at 1, and a column counts
//! characters, not bytes.

use std::fmt;

use crate::diag::{Code, Diagnostic};

/// Names one text of a [`SourceMap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileId(pub u32);

/// A range of bytes `lo..hi` of one file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span {
    /// The file that the bytes belong to.
    pub file: FileId,
    /// Offset of the first byte.
    pub lo: u32,
    /// Offset behind the last byte.
    pub hi: u32,
}

impl Span {
    /// The bytes `lo..hi` of `file`.
    pub fn new(file: FileId, lo: u32, hi: u32) -> Self {
        Self { file, lo, hi }
    }

    /// The smallest span that holds both; `other` must belong to the same file.
    #[must_use]
    pub fn to(self, other: Span) -> Self {
        debug_assert_eq!(self.file, other.file, "spans of two files cannot be joined");
        Self { file: self.file, lo: self.lo.min(other.lo), hi: self.hi.max(other.hi) }
    }

    /// The empty span at the end of this one.
    #[must_use]
    pub fn end(self) -> Self {
        Self { lo: self.hi, ..self }
    }

    /// Whether every byte of `other` lies in this span.
    pub fn contains(self, other: Span) -> bool {
        self.file == other.file && self.lo <= other.lo && other.hi <= self.hi
    }
}

impl fmt::Debug for Span {
    /// `@file:lo..hi`; `ast::dump` leaves out what starts with `@`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}:{}..{}", self.file.0, self.lo, self.hi)
    }
}

/// A place for people: line and column, both from 1, the column in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineCol {
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1, in characters.
    pub column: u32,
}

#[derive(Clone, Debug)]
struct SourceFile {
    name: String,
    text: String,
    /// Offset of the first byte of each line.
    line_starts: Vec<u32>,
}

/// Owns the texts of one run.
#[derive(Clone, Debug, Default)]
pub struct SourceMap {
    files: Vec<SourceFile>,
}

impl SourceMap {
    /// An empty map.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a text under a name that diagnostics show. What lies beyond `u32::MAX` bytes is cut
    /// off; whoever reads files refuses such texts first.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<String>) -> FileId {
        let mut text = text.into();
        if u32::try_from(text.len()).is_err() {
            let mut end = u32::MAX as usize;
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text.truncate(end);
        }
        let ends = text.match_indices('\n').map(|(at, _)| at as u32 + 1);
        let line_starts = std::iter::once(0).chain(ends).collect();
        let id = FileId(u32::try_from(self.files.len()).expect("fewer than 2^32 files"));
        self.files.push(SourceFile { name: name.into(), text, line_starts });
        id
    }

    /// Adds the bytes of a file; bytes that are not UTF-8 give the diagnostic E0001 and an entry
    /// in which each wrong sequence is replaced by U+FFFD.
    pub fn add_bytes(
        &mut self,
        name: impl Into<String>,
        bytes: &[u8],
    ) -> (FileId, Option<Diagnostic>) {
        match std::str::from_utf8(bytes) {
            Ok(text) => (self.add(name, text), None),
            Err(error) => {
                let lo = error.valid_up_to() as u32;
                let file = self.add(name, String::from_utf8_lossy(bytes));
                let span = Span::new(file, lo, lo + '\u{FFFD}'.len_utf8() as u32);
                let diagnostic = Diagnostic::error(Code::E0001, "the file is not UTF-8 text")
                    .label(span, format!("the byte {:#04x} at offset {lo} starts no character", bytes[error.valid_up_to()]))
                    .help("save the file as UTF-8; the language itself needs only ASCII outside comments and strings");
                (file, Some(diagnostic))
            }
        }
    }

    /// The name that the file was added under.
    pub fn name(&self, file: FileId) -> &str {
        &self.file(file).name
    }

    /// The whole text of the file.
    pub fn text(&self, file: FileId) -> &str {
        &self.file(file).text
    }

    /// The text that the span covers.
    pub fn snippet(&self, span: Span) -> &str {
        &self.text(span.file)[span.lo as usize..span.hi as usize]
    }

    /// All files in the order in which they were added.
    pub fn ids(&self) -> impl Iterator<Item = FileId> {
        (0..self.files.len() as u32).map(FileId)
    }

    /// Line and column of a byte offset; an offset behind the text gives the end of the text.
    pub fn line_col(&self, file: FileId, offset: u32) -> LineCol {
        let source = self.file(file);
        let mut offset = (offset as usize).min(source.text.len());
        while !source.text.is_char_boundary(offset) {
            offset -= 1;
        }
        let line = source.line_starts.partition_point(|&start| start as usize <= offset);
        let start = source.line_starts[line - 1] as usize;
        let column = source.text[start..offset].chars().count() + 1;
        LineCol { line: line as u32, column: column as u32 }
    }

    /// Line and column of the first byte of a span.
    pub fn start(&self, span: Span) -> LineCol {
        self.line_col(span.file, span.lo)
    }

    /// The text of a line (from 1) without its line end; empty behind the last line.
    pub fn line(&self, file: FileId, line: u32) -> &str {
        let source = self.file(file);
        let at = |line: usize| source.line_starts.get(line).map(|&start| start as usize);
        let Some(lo) = (line as usize).checked_sub(1).and_then(at) else { return "" };
        let hi = at(line as usize).unwrap_or(source.text.len());
        source.text[lo..hi].trim_end_matches(['\n', '\r'])
    }

    fn file(&self, file: FileId) -> &SourceFile {
        self.files.get(file.0 as usize).expect("a FileId comes from `add` of the same map")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_count_characters_from_one() {
        let mut map = SourceMap::new();
        let file = map.add("a.tile", "ab\né = 1\r\n");
        let place = |offset| {
            let LineCol { line, column } = map.line_col(file, offset);
            (line, column)
        };
        assert_eq!(place(0), (1, 1));
        assert_eq!(place(2), (1, 3));
        assert_eq!(place(3), (2, 1));
        assert_eq!(place(4), (2, 1), "inside a character");
        assert_eq!(place(5), (2, 2));
        assert_eq!(place(99), (3, 1));
        assert_eq!(map.line(file, 2), "é = 1");
        assert_eq!(map.line(file, 3), "");
        assert_eq!(map.line(file, 9), "");
    }

    #[test]
    fn bytes_that_are_not_utf8_give_e0001() {
        let mut map = SourceMap::new();
        let (_, none) = map.add_bytes("a.tile", b"target sm_90a;");
        assert!(none.is_none());
        let (file, some) = map.add_bytes("b.tile", b"ab\xff");
        let diagnostic = some.expect("0xff is not UTF-8");
        assert_eq!(diagnostic.code, Code::E0001);
        assert_eq!(map.snippet(diagnostic.labels[0].span), "\u{FFFD}");
        assert_eq!(map.text(file), "ab\u{FFFD}");
    }
}

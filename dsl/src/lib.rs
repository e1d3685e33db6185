//! Text, trees and diagnostics of the tile language.
//!
//! [`parse`] makes an [`ast::File`] from a text of a [`SourceMap`]; [`diag`] holds diagnostics as data.
//!
//! Invariants: every node has a span; names stay strings, this crate knows no data type, operation
//! or target; no text makes it panic or overflow the stack; nothing here reads files, the
//! environment or a clock.

pub mod ast;
pub mod diag;
mod parse;
pub mod source;

pub use diag::{Code, Diagnostic, Label, Severity, Sink};
pub use parse::{Parsed, parse, parse_expr};
pub use source::{FileId, LineCol, SourceMap, Span};

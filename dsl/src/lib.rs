//! Text, trees and diagnostics of the tile language.
//!
//! * [`source`]: texts and positions. * [`diag`]: diagnostics as data. * [`ast`]: the tree.
//!
//! Invariants: every node has a span; names stay strings, this crate knows no data type, operation
//! or target; no text makes it panic or overflow the stack; nothing here reads files, the
//! environment or a clock.

pub mod ast;
pub mod diag;
pub mod source;

pub use diag::{Code, Diagnostic, Label, Severity, Sink};
pub use source::{FileId, LineCol, SourceMap, Span};

//! The element-wise operations of the language: their names, typing rules and numerics.
//!
//! Both IR levels and both emulators use these enums, so an operation means one thing everywhere.

pub mod elementwise;

pub use elementwise::{BinaryOp, CompareOp, ReduceOp, UnaryOp};

//! The operations of the language: their names, typing rules and numerics.
//!
//! Both IR levels, constant folding and both emulators use what stands here, so an operation means one
//! thing everywhere:
//!
//! * [`elementwise`]: the operations as enums;
//! * [`typing`]: which operand types an operation takes and what it gives, or why not;
//! * [`math`]: the f32 functions, computed alike on every machine;
//! * [`elements`], [`eval`], [`convert`]: values as bits, and what operations make of them;
//! * [`mma`], [`wgmma`]: contractions and products on the tensor core;
//! * [`atomic`]: what atomic operations make of an element;
//! * [`hardware`]: how far a GPU may be off;
//! * [`inline`]: PTX that an author writes, and what of it is taken;
//! * [`reduce`], [`contract`]: the order in which reductions and contractions add, derived from a
//!   [`Distribution`](crate::distribution::Distribution).

pub mod atomic;
pub mod contract;
pub mod convert;
pub mod elements;
pub mod elementwise;
pub mod eval;
pub mod hardware;
pub mod inline;
pub mod math;
pub mod mma;
pub mod multimem;
pub mod reduce;
pub mod typing;
pub mod wgmma;

pub use atomic::AtomicOp;
pub use elements::Elements;
pub use elementwise::{BinaryOp, CompareOp, ReduceOp, UnaryOp};

//! The PTX memory model: which values reads may return, and which accesses are ordered.
//!
//! | module | gives |
//! |---|---|
//! | [`event`], [`graph`] | the events of one execution and what is known of their order |
//! | [`skeleton`], [`causality`] | the relations of the model over them |
//! | [`axioms`] | what every execution must satisfy |
//! | [`race`] | for graphs that are built by hand: what happens before what, and which accesses race |
//! | [`litmus`], [`mod@decide`] | small programs, and whether one of their executions ends in a given state |
//! | [`explain`] | the execution that was found, or the axiom that forbids it with its cycle |
//!
//! `docs/memory-model.md` states the model axiom by axiom, with sources.
//!
//! # Invariants
//!
//! No text makes this crate panic or run without end: sizes, nesting and the number of candidates have limits.
//! Answers depend on the input alone. The crate knows nothing of CUDA, LLVM or the language of the project, reads
//! no files and prints nothing. Asynchronous copies, mbarriers and dependent launches are not part of the axioms;
//! whoever builds a graph states their order with [`EventGraph::order`].

pub mod axioms;
pub mod causality;
pub mod code;
pub mod decide;
pub mod event;
pub mod explain;
pub mod graph;
pub mod litmus;
pub mod race;
pub mod relation;
pub mod skeleton;

pub use code::{Code, Diagnostic, Spot};
pub use decide::{Decision, Limits, Model, Verdict, decide};
pub use graph::EventGraph;
pub use litmus::{Test, parse};
pub use race::{Orders, Race};

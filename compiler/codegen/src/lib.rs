//! Device IR to MLIR, LLVM, PTX and cubin.
//!
//! All decisions are made in the device IR; this crate prints them. Each stage has a textual form, and
//! [`run`] starts at any of them and stops at any of them:
//!
//! | from | by | to |
//! |---|---|---|
//! | device IR | `lower` through typed builders | MLIR: `llvm`, `arith`, `scf`, `nvvm` |
//! | MLIR | `pipeline`, `translate` | LLVM IR |
//! | LLVM IR | `ptx` | PTX |
//! | PTX | [`ptxas`] | cubin |
//!
//! Invariants of what is emitted: an access to memory is one instruction, as wide as the device IR says and
//! in its place: neither LLVM nor a promise about a pointer (`noalias`, `readonly`, `invariant`) can make a
//! non-coherent load of it, and whatever waits, meets or accesses clobbers memory; no floating-point operation is contracted or relaxed; the `.loc` line
//! of an instruction is the [`LocId`](kernel_ir::device::LocId) of its operation plus one.
//!
//! This crate does not know the text of the language, CUDA or any model. It reads no environment, file
//! or clock: the tools that it runs are named by a [`Tools`]. LLVM may abort the process on input that
//! it cannot select, so programs run jobs in a worker process.

mod author;
mod context;
mod error;
mod ffi;
mod job;
mod lower;
mod mnemonic;
mod nvvm;
mod pipeline;
mod ptx;
pub mod ptxas;
mod translate;

pub use error::{CodegenError, Stage};
pub use job::{Artifacts, Compiled, Input, SourceLine, compile, run};
pub use ptx::{Leftover, LeftoverKind, llvm_version, scan};
pub use ptxas::{Cubin, Tools, Usage};

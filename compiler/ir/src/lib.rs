//! The typed tile IR of the language, at two levels.
//!
//! * [`kernel`]: the *kernel level*. One operation handles a whole tile; every shape is concrete and
//!   every tile has a [`distribution`]. It is what the author wrote, with functions inlined, constants
//!   folded and `unroll` loops written out.
//! * [`device`]: the *device level*. One operation handles the elements of one thread; shuffles, shared
//!   memory and barriers are explicit. `expand` makes it from the kernel level.
//!
//! Invariants: an operation's typing and meaning have one home, [`ops`]; a `Verified` value
//! can be made by the verifier alone; nothing here reads files, the environment or a clock; printing is
//! stable. This crate does not know LLVM, CUDA, or any model.

#[macro_use]
pub mod index;

pub mod device;
pub mod distribution;
pub mod expand;
pub mod explain;
pub mod infer;
pub mod kernel;
pub mod layout;
pub mod ops;
pub mod order;
pub mod pipeline;
pub mod print;
pub mod sema;
pub mod smem_plan;
pub mod target;
pub mod verify;

//! Readers of PTX and machine code, and the rules of memory order over them.
//!
//! The audit answers one question about kernels of any origin: may a read return stale data because it
//! is non-coherent, because the assembler took it to the other side of a wait, or because a copy runs in
//! a proxy that no fence has told of a store?
//!
//! | stage | module | gives |
//! |---|---|---|
//! | PTX text | `ptx` | a module: every instruction with its place, operands and targets resolved |
//! | disassembly, cubin | `sass` | sections of machine instructions; parameters, branch tables |
//! | either | `kernel`, `dataflow`, `values` | one program a kernel, callees inlined: a flow graph, steps that move values, a role for each access |
//! | kernel | `analysis`, `spin`, `paths` | waits, reads with their owners, paths between them |
//! | PTX, thread by thread | `traffic`, `proxy` | asynchronous reads without a fence, signals that are too early |
//! | PTX with machine code | `machine`, `moved` | loads that are not left on their side of a wait |
//! | facts with claims | `rules` | findings, notes, assumptions: a [`Report`] |
//!
//! [`audit_ptx`] and [`audit_cubin`] judge files of any origin by what the user declares;
//! [`check_build`] holds a build of our own to what the compiler proved of it.
//!
//! # What is judged
//!
//! * *Waits* are `griddepcontrol.wait`, acquiring loads and atomics of global memory, and relaxed or
//!   volatile loads, compare-and-swaps, exchanges and atomics that add nothing where their own value
//!   decides whether their loop goes on. Barriers, fences, mbarriers and copy groups bring no data from
//!   outside the grid and are none.
//! * A read counts as *after* a wait when a path leads from the wait to it. A wait under a predicate does
//!   not lead to instructions under its opposite until the predicate changes or a barrier is passed.
//! * The *owner* of an address is the set of parameters that it may come from. Of a sum, the parts that
//!   are known to be pointers elsewhere count; where none is, all do, and a static one alone where it comes
//!   first. A pointer and its opposite cancel out; bits of a pointer count where nothing else does. What
//!   cannot be traced is undeclared.
//! * With nothing declared, a non-coherent read after a wait is a finding. Of mutable parameters each
//!   non-coherent read is one, of static ones none.
//! * A load *moved* when PTX has it on one side of a wait, within one turn of the loops around both, and
//!   the machine code has none of it there, or runs a copy of it ahead of the wait, or of a branch around
//!   the wait, that PTX always passes before the load.
//! * What touches memory and is not understood makes the verdict "not judged".
//!
//! # Invariants
//!
//! No input makes this crate panic or run without end: nesting, calls and sizes have limits, and analyses
//! run to fixed points of finite height. Reports depend on the input alone. This crate does not know the
//! text of the language, LLVM or any model; it starts processes only through [`Processes`], a
//! [`Toolchain`] that callers may replace, and keeps nothing between calls.

mod analysis;
mod audit;
mod code;
mod dataflow;
mod declare;
mod facts;
mod graph;
mod kernel;
mod machine;
mod moved;
mod own_build;
mod paths;
mod proxy;
mod ptx;
mod report;
mod rules;
mod sass;
mod spin;
mod toolchain;
mod traffic;
mod values;

pub use audit::{audit_cubin, audit_ptx};
pub use code::Code;
pub use declare::{Claim, Declaration, Declarations, UsageError};
pub use facts::{MachineFacts, machine_facts};
pub use own_build::{Behind, KernelObligations, LoadLine, Obligations, PASSES, Pass, check_build};
pub use report::{EXIT_USAGE, Item, Report, SassSpot, Spot, Verdict};
pub use toolchain::{AssembleOptions, Processes, ToolError, Toolchain};

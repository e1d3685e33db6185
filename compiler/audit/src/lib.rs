//! Readers of PTX and machine code, and the rules of memory order over them.

mod analysis;
mod audit;
mod code;
mod dataflow;
mod declare;
mod graph;
mod kernel;
mod machine;
mod moved;
mod own_build;
mod paths;
mod ptx;
mod report;
mod rules;
mod sass;
mod spin;
mod toolchain;
mod values;

pub use audit::{audit_cubin, audit_ptx};
pub use code::Code;
pub use declare::{Claim, Declaration, Declarations, UsageError};
pub use own_build::{KernelObligations, LoadLine, Obligations, PASSES, Pass, check_build};
pub use report::{EXIT_USAGE, Item, Report, SassSpot, Spot, Verdict};
pub use toolchain::{AssembleOptions, Processes, ToolError, Toolchain};

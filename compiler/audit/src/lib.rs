//! Readers of PTX and machine code, and the rules of memory order over them.

mod analysis;
mod audit;
mod code;
mod dataflow;
mod declare;
mod graph;
mod kernel;
mod moved;
mod paths;
mod ptx;
mod report;
mod rules;
mod spin;
mod toolchain;
mod values;

pub use audit::audit_ptx;
pub use code::Code;
pub use declare::{Claim, Declaration, Declarations, UsageError};
pub use report::{EXIT_USAGE, Item, Report, SassSpot, Spot, Verdict};
pub use toolchain::{AssembleOptions, Processes, ToolError, Toolchain};

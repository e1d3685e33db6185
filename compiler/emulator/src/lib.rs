//! The CPU emulator of the tile language, at kernel level and at device level.
//!
//! [`run_kernel`] executes a kernel CTA by CTA and tile operation by tile operation; it is the
//! specification of the language. [`run_device`] executes what expansion made of it, thread by thread, with
//! registers, shuffles, shared memory and barriers. Both give the same bits.
//!
//! Invariants: a run depends on its arguments alone, neither on the number of host threads nor on their
//! schedule; CTAs of a cluster and roles of a CTA take turns as [`Options`] say. CTAs see the memory of the launch and their own stores, and the last arriver at a counter those of
//! the others; stores reach [`Memory`] when every
//! CTA has ended well, and a run that fails leaves it as it was. Unwritten memory is poison: reading it is an
//! error, never a value. This crate reads no files, environment or clock, and knows neither LLVM nor CUDA.

mod cluster;
mod counters;
mod device;

mod departures;
mod error;
mod fabric;
mod grid;
mod kernel;
mod launch;
mod memory;
mod options;
mod overlap;
mod pipes;
mod plan;
mod ranks;
mod record;
mod roles;
#[cfg(test)]
mod sample;
mod tmem;
mod turns;
mod view;

pub use counters::{Event, Printed, Trace};
pub use device::{record_device, run_device, run_device_on_ranks, run_device_stream};

pub use error::{EmuError, ErrorDetail, ErrorKind};
pub use kernel::{run_kernel, run_kernel_on_ranks, run_kernel_stream};
pub use memory::{Argument, Buffer, Memory};
pub use options::{Options, Policy, Schedule};
pub use overlap::{Bound, StreamLaunch, StreamMemory};
pub use plan::{EmuExecutor, PlanFailure, SourceError, instantiate, signature};
pub use ranks::fill_ranks;
pub use record::{MAX_EVENTS, Record, RecordedRace, Site, Who};

//! Runs compiled kernels and plans on CUDA devices, through the driver alone.
//!
//! The driver is loaded when [`probe`] is asked for it; without one every function here says so, and the crate builds
//! on machines that never had one. What it holds:
//!
//! * `ffi.rs` alone calls the driver, and every code that the driver returns becomes an error with a [`Code`];
//! * a launch is checked against the parameters that the compiler described and that the machine code has;
//! * every wait has an end: a kernel that does not end becomes an error that names what was running, and after that
//!   nothing waits for the device any more ([`end_process`]);
//! * it never uses managed memory or multicast objects and never changes a setting of a device.
//!
//! It knows nothing of the language and its compiler.

pub mod arena;
pub mod code;
pub mod coverage;
pub mod device;
pub mod error;
pub mod executor;
mod ffi;
pub mod graph;
pub mod kernel;
pub mod launch;
pub mod memory;
pub mod pool;
pub mod stream;
pub mod symmetric;
pub mod timing;
pub mod watchdog;

pub use code::Code;
pub use coverage::Coverage;
pub use device::{Device, DeviceInfo, Driver, probe};
pub use error::RuntimeError;
pub use executor::{CudaExecutor, CudaOptions, FoundPlan, MemoryNeed, Ranks};
pub use graph::{Begin, Graph, MarkTable, Recorder};
pub use kernel::{Kernel, KernelImage};
pub use launch::{LaunchShape, Value};
pub use memory::Buffer;
pub use pool::{Pool, PooledBuffer};
pub use stream::{Event, Stream};
pub use symmetric::Symmetric;

/// Ends the process at once, without waiting for a kernel that does not end: what the driver does at the end of a
/// process would. Output must be flushed before.
pub fn end_process(code: u8) -> ! {
    ffi::end_process(code)
}

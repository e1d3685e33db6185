//! What this crate fails with.

use std::time::Duration;

use kernel_abi::plan::PlanError;
use thiserror::Error;

use crate::code::Code;
pub use crate::ffi::DriverError;

/// A gigabyte of messages.
const GB: f64 = 1e9;

/// Codes of the driver after which nothing works in this process any more: a kernel did what it must not, or the
/// hardware failed.
const LOST: [u32; 14] = [4, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719];

/// What this crate fails with.
#[derive(Debug, Error)]
pub enum RuntimeError {
    /// The world's: no library of the driver.
    #[error("there is no CUDA driver on this machine: libcuda cannot be loaded")]
    NoDriver,
    /// The world's: an old driver.
    #[error("the CUDA driver speaks version {}, version {} is needed", version(*found), version(*needed))]
    OldDriver {
        /// Its version, 12040 for 12.4.
        found: u32,
        /// The least version.
        needed: u32,
    },
    /// The world's: the driver does not start.
    #[error("the CUDA driver cannot be used: {0}")]
    Unusable(DriverError),
    /// The world's: a driver without devices.
    #[error("the CUDA driver has no device")]
    NoDevice,
    /// The user's: a device that is not there.
    #[error("there is no device cuda:{ordinal}; {}", there_are(*count))]
    NoSuchDevice {
        /// The number that was asked for.
        ordinal: u32,
        /// Devices that there are.
        count: u32,
    },
    /// The world's: somebody else has the device.
    #[error("cuda:{ordinal} ({device}) is not free: {why}")]
    Busy {
        /// The device.
        ordinal: u32,
        /// Its name.
        device: String,
        /// Why.
        why: String,
    },
    /// The fault of a kernel or of the hardware.
    #[error("the device was lost: {error}{}", in_flight(.kernels))]
    Lost {
        /// What the driver said.
        error: DriverError,
        /// Kernels that may have been running.
        kernels: Vec<String>,
    },
    /// A call of the driver failed.
    #[error("{0}")]
    Driver(DriverError),
    /// The world's: too little memory.
    #[error(
        "{what} need {:.2} GB on the device, {:.2} GB of {:.2} GB are free{}",
        *needed as f64 / GB, *free as f64 / GB, *total as f64 / GB, shortage(*needed, *free, *others)
    )]
    Memory {
        /// What the memory is for.
        what: String,
        /// Bytes that are needed.
        needed: u64,
        /// Bytes that are free.
        free: u64,
        /// Bytes of the device.
        total: u64,
        /// Bytes that this process does not hold and that are not free.
        others: u64,
    },
    /// The caller's: bytes of another size.
    #[error("`{buffer}` has {wanted} bytes, not {found}")]
    Size {
        /// The buffer.
        buffer: String,
        /// Bytes that it has.
        wanted: u64,
        /// Bytes that were given.
        found: u64,
    },
    /// The caller's: no such buffer or rank.
    #[error("there is no buffer {buffer} of rank {rank}")]
    Absent {
        /// The buffer's number.
        buffer: u32,
        /// The rank.
        rank: u32,
    },
    /// The caller's: nothing is in the buffer.
    #[error("`{buffer}` {why}")]
    NoContent {
        /// The buffer.
        buffer: String,
        /// Why there is nothing.
        why: &'static str,
    },
    /// The user's: kernels for another device.
    #[error("{kernel} is built for {built_for}, the device is {device}")]
    Architecture {
        /// The kernel.
        kernel: String,
        /// What there is.
        built_for: String,
        /// The architecture of the device.
        device: String,
    },
    /// The user's: a bundle without a kernel of the plan.
    #[error("there is no kernel {kernel} for {device}; {why}")]
    NoKernel {
        /// The kernel with its bindings.
        kernel: String,
        /// The architecture of the device.
        device: String,
        /// How many others there are.
        why: String,
    },
    /// The driver refuses the code.
    #[error("{kernel}: the driver refuses its {form}: {fault}")]
    Image {
        /// The kernel.
        kernel: String,
        /// `machine code` or `PTX`.
        form: &'static str,
        /// What it said.
        fault: String,
    },
    /// The fault of whoever made the bundle.
    #[error("{kernel}: its machine code and its description differ: {fault}")]
    Layout {
        /// The kernel.
        kernel: String,
        /// In what.
        fault: String,
    },
    /// The caller's: arguments that do not fit.
    #[error("{kernel}: {fault}")]
    Arguments {
        /// The kernel.
        kernel: String,
        /// What does not fit.
        fault: String,
    },
    /// A launch that the device does not take.
    #[error("{kernel} cannot be launched: {fault}")]
    Shape {
        /// The kernel.
        kernel: String,
        /// Why.
        fault: String,
    },
    /// The plan is refused.
    #[error("the plan is refused:{}", .0.iter().map(|e| format!("\n  {e}")).collect::<String>())]
    Plan(Vec<PlanError>),
    /// What this version does not do.
    #[error("not supported in this version: {0}")]
    Unsupported(String),
    /// A kernel did not end.
    #[error("not done after {:.1} s{}", limit.as_secs_f64(), in_flight(.kernels))]
    Hung {
        /// How long was waited.
        limit: Duration,
        /// Kernels that may be running.
        kernels: Vec<String>,
    },
    /// The device was given up before.
    #[error("the device is not used any more: a kernel did not end, or the device was lost before")]
    GivenUp,
}

impl RuntimeError {
    /// The stable code.
    pub fn code(&self) -> Code {
        match self {
            RuntimeError::NoDriver => Code::R0101,
            RuntimeError::OldDriver { .. } | RuntimeError::Unusable(_) => Code::R0102,
            RuntimeError::NoDevice => Code::R0103,
            RuntimeError::NoSuchDevice { .. } => Code::R0104,
            RuntimeError::Busy { .. } => Code::R0105,
            RuntimeError::Lost { .. } => Code::R0106,
            RuntimeError::Driver(_) => Code::R0107,
            RuntimeError::Memory { .. } => Code::R0201,
            RuntimeError::Size { .. } => Code::R0202,
            RuntimeError::Absent { .. } => Code::R0203,
            RuntimeError::NoContent { .. } => Code::R0204,
            RuntimeError::Architecture { .. } => Code::R0301,
            RuntimeError::NoKernel { .. } => Code::R0302,
            RuntimeError::Image { .. } => Code::R0303,
            RuntimeError::Layout { .. } => Code::R0304,
            RuntimeError::Arguments { .. } => Code::R0305,
            RuntimeError::Shape { .. } => Code::R0306,
            RuntimeError::Plan(_) => Code::R0307,
            RuntimeError::Unsupported(_) => Code::R0308,
            RuntimeError::Hung { .. } => Code::R0401,
            RuntimeError::GivenUp => Code::R0402,
        }
    }

    /// True where the machine is at fault, not what was asked of it.
    pub fn is_of_the_world(&self) -> bool {
        match self {
            RuntimeError::NoDriver
            | RuntimeError::OldDriver { .. }
            | RuntimeError::Unusable(_)
            | RuntimeError::NoDevice
            | RuntimeError::NoSuchDevice { .. }
            | RuntimeError::Busy { .. }
            | RuntimeError::Lost { .. }
            | RuntimeError::Driver(_)
            | RuntimeError::Memory { .. }
            | RuntimeError::Hung { .. }
            | RuntimeError::GivenUp => true,
            RuntimeError::Size { .. }
            | RuntimeError::Absent { .. }
            | RuntimeError::NoContent { .. }
            | RuntimeError::Architecture { .. }
            | RuntimeError::NoKernel { .. }
            | RuntimeError::Image { .. }
            | RuntimeError::Layout { .. }
            | RuntimeError::Arguments { .. }
            | RuntimeError::Shape { .. }
            | RuntimeError::Plan(_)
            | RuntimeError::Unsupported(_) => false,
        }
    }

    /// True after which the process must not wait for the device: it ends with [`crate::end_process`].
    pub fn leaves_work_behind(&self) -> bool {
        matches!(
            self,
            RuntimeError::Hung { .. } | RuntimeError::Lost { .. } | RuntimeError::GivenUp
        )
    }
}

impl From<DriverError> for RuntimeError {
    fn from(error: DriverError) -> RuntimeError {
        if LOST.contains(&error.code) {
            RuntimeError::Lost { error, kernels: Vec::new() }
        } else {
            RuntimeError::Driver(error)
        }
    }
}

/// What the driver takes for a process, its kernels and its queues, at most.
const OF_DRIVER: u64 = 2_000_000_000;

/// How much is missing, and whether others hold it.
fn shortage(needed: u64, free: u64, others: u64) -> String {
    let missing = needed.saturating_sub(free);
    let mut text = String::new();
    if missing > 0 {
        text.push_str(&format!(", {:.2} GB are missing", missing as f64 / GB));
    }
    if others > OF_DRIVER {
        text.push_str(&format!("; other processes hold about {:.2} GB", others as f64 / GB));
    }
    text
}

/// `13.0` for 13000.
fn version(number: u32) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}

fn there_are(count: u32) -> String {
    match count {
        1 => "there is cuda:0 alone".to_owned(),
        _ => format!("there are {count}, from cuda:0"),
    }
}

/// Kernels of a message at most: all between two marks of a step, with the fills of poison between them.
const NAMED: usize = 64;

fn in_flight(kernels: &[String]) -> String {
    let Some(first) = kernels.first() else {
        return String::new();
    };
    let mut text = format!("; in flight: {first}");
    for kernel in kernels.iter().take(NAMED).skip(1) {
        text.push_str(", ");
        text.push_str(kernel);
    }
    if kernels.len() > NAMED {
        text.push_str(&format!(" and {} more", kernels.len() - NAMED));
    }
    text
}

//! Whether the machine has the memory that a plan or a result needs: an allocation that fails ends the process without a word.

use kernel_abi::plan::Plan;
use thiserror::Error;

use crate::code::Code;

/// Where Linux tells how much memory there is.
const MEMINFO: &str = "/proc/meminfo";

/// Where Linux tells how much of it this process holds.
const STATUS: &str = "/proc/self/status";

/// A gigabyte of messages.
const GB: f64 = 1e9;

/// Why a plan is refused for its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MemoryError {
    /// More is needed than there is.
    #[error(
        "{:.1} GB of memory are needed, {:.1} GB are available",
        *needed as f64 / GB,
        *available as f64 / GB
    )]
    Short {
        /// Bytes that are needed.
        needed: u64,
        /// Bytes that the machine can give.
        available: u64,
    },
    /// More is needed than can be counted.
    #[error("more memory is needed than 64 bits can count")]
    Uncountable,
}

impl MemoryError {
    /// The stable code.
    pub fn code(&self) -> Code {
        match self {
            MemoryError::Short { .. } | MemoryError::Uncountable => Code::K0504,
        }
    }
}

/// Bytes of the buffers of a plan on all of its ranks, with a bit for each element that says whether it was written;
/// `None` where 64 bits do not hold them.
pub fn bytes_of(plan: &Plan) -> Option<u64> {
    let mut all = 0_u64;
    for buffer in &plan.buffers {
        let bits = buffer.elements()?.checked_mul(u64::from(buffer.dtype.bits()) + 1)?;
        all = all.checked_add(bits.div_ceil(8))?;
    }
    all.checked_mul(u64::from(plan.ranks))
}

/// Refuses a plan whose buffers, `copies` times, are larger than the memory that is available. Where the system does
/// not say how much that is, every plan that can be counted passes.
///
/// # Errors
/// There is less memory than the plan needs.
pub fn check(plan: &Plan, copies: u64) -> Result<(), MemoryError> {
    compare(of_copies(plan, copies), now())
}

/// Refuses results of so many bytes (`None`: more than 64 bits hold) where less memory is available.
///
/// # Errors
/// There is less memory than the results need.
pub fn check_results(bytes: Option<u64>) -> Result<(), MemoryError> {
    compare(bytes, now())
}

fn of_copies(plan: &Plan, copies: u64) -> Option<u64> {
    bytes_of(plan).and_then(|bytes| bytes.checked_mul(copies))
}

fn compare(needed: Option<u64>, available: Option<u64>) -> Result<(), MemoryError> {
    let needed = needed.ok_or(MemoryError::Uncountable)?;
    match available {
        Some(available) if needed > available => Err(MemoryError::Short { needed, available }),
        Some(_) | None => Ok(()),
    }
}

/// Bytes that are available now, where the system says so.
fn now() -> Option<u64> {
    std::fs::read_to_string(MEMINFO).ok().as_deref().and_then(available)
}

/// The most bytes that this process held at a time, where the system says so.
pub fn peak() -> Option<u64> {
    std::fs::read_to_string(STATUS).ok().as_deref().and_then(|status| field(status, "VmHWM:"))
}

/// `MemAvailable` in bytes.
fn available(meminfo: &str) -> Option<u64> {
    field(meminfo, "MemAvailable:")
}

/// A field of one of those files, in bytes.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use kernel_abi::DType;
    use kernel_abi::plan::{BufferRole, PlanBuilder};

    use super::*;

    fn plan(ranks: u32, buffers: &[(DType, &[u64])]) -> Plan {
        let mut plan = PlanBuilder::new(ranks);
        for (at, (dtype, shape)) in buffers.iter().enumerate() {
            plan.buffer(format!("b{at}"), *dtype, shape, BufferRole::Step);
        }
        plan.finish()
    }

    #[test]
    fn bytes_are_summed_over_buffers_ranks_and_copies() {
        let plan = plan(2, &[(DType::F32, &[8, 10]), (DType::E2m1, &[16]), (DType::Bf16, &[3])]);
        // 80 * 33, 16 * 5 and 3 * 17 bits, in whole bytes.
        let bytes = (330 + 10 + 7) * 2;
        assert_eq!(bytes_of(&plan), Some(bytes));
        assert_eq!(compare(of_copies(&plan, 3), Some(bytes * 3)), Ok(()));
        assert_eq!(compare(of_copies(&plan, u64::MAX / bytes), None), Ok(()));
        let error = compare(of_copies(&plan, 3), Some(bytes * 3 - 1)).unwrap_err();
        assert_eq!(error.code(), Code::K0504);
    }

    #[test]
    fn absurd_sizes_are_refused_and_said() {
        let error = compare(of_copies(&plan(1, &[(DType::U8, &[1 << 40])]), 1), Some(5 << 30));
        let message = error.unwrap_err().to_string();
        assert_eq!(message, "1237.0 GB of memory are needed, 5.4 GB are available");
        for (shape, copies) in
            [(&[1 << 40, 1 << 40][..], 1), (&[1 << 60], 1), (&[1 << 40], 1 << 40)]
        {
            let error = check(&plan(4, &[(DType::F32, shape)]), copies).unwrap_err();
            assert_eq!(error, MemoryError::Uncountable);
            assert_eq!(error.code(), Code::K0504);
        }
    }

    #[test]
    fn what_is_available_is_read_from_the_system() {
        let meminfo =
            "MemTotal:  100 kB\nMemFree: 7 kB\nMemAvailable:       42 kB\nBuffers: 1 kB\n";
        assert_eq!(available(meminfo), Some(42 * 1024));
        for broken in ["", "MemAvailable: 42", "MemAvailable: x kB", "MemAvailable: -1 kB"] {
            assert_eq!(available(broken), None);
        }
        assert_eq!(field("VmPeak: 9 kB\nVmHWM:\t  12 kB\n", "VmHWM:"), Some(12 * 1024));
        assert!(!cfg!(target_os = "linux") || peak().is_some_and(|bytes| bytes > 1 << 16));
    }
}

//! What runs a plan.

use crate::plan::{BufferId, CheckedPlan};

/// Runs a checked plan: the emulator, or a device.
///
/// Buffers are little-endian and row-major; e2m1 lies two a byte with the even element in the low nibble.
pub trait Executor {
    /// What a step can fail with.
    type Error: std::error::Error;

    /// The plan that it runs.
    fn plan(&self) -> &CheckedPlan;

    /// Replaces the content of a weight, host or state buffer of a rank. The caller keeps the promise of a host
    /// buffer; the emulator checks the contracts of a kernel at every launch besides.
    ///
    /// # Errors
    /// The size does not fit, or there is no such rank.
    fn write(&mut self, rank: u32, buffer: BufferId, bytes: &[u8]) -> Result<(), Self::Error>;

    /// The content of a buffer of a rank.
    ///
    /// # Errors
    /// There is no such rank, or an element was never written.
    fn read(&self, rank: u32, buffer: BufferId) -> Result<Vec<u8>, Self::Error>;

    /// Runs every node once.
    ///
    /// # Errors
    /// What a kernel was stopped for. The buffers are then what the nodes before left.
    fn step(&mut self) -> Result<(), Self::Error>;
}

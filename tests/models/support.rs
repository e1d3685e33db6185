//! What the tests of all families share.

use kernel_abi::DType;
use kernel_emulator::{Buffer, Memory};
use kernel_ir::pipeline::Built;
use kernel_tests::k3::{self, Arguments, SEED};
use libtest_mimic::{Failed, Trial};

pub(crate) fn trial(
    name: String,
    test: impl FnOnce() -> Result<(), String> + Send + 'static,
) -> Trial {
    Trial::test(name, move || test().map_err(Failed::from))
}

/// Runs a kernel and compares it with the reference values that `wanted` makes of its arguments.
pub(crate) fn check(
    built: &Built,
    memory: Memory,
    wanted: impl FnOnce(&Arguments<'_>) -> Vec<(&'static str, Vec<f64>)>,
) -> Result<Memory, String> {
    let before = memory.clone();
    let memory = k3::run(built, memory)?;
    let wanted = wanted(&Arguments::new(built, &before));
    k3::match_reference(built, &memory, &wanted)?;
    Ok(memory)
}

/// Random values of a buffer, times `scale`.
pub(crate) fn scaled(dtype: DType, len: usize, stream: u64, scale: f64) -> Result<Buffer, String> {
    let raw = Buffer::random(DType::F32, len, SEED, stream, None).map_err(|e| e.to_string())?;
    let values: Vec<f32> = raw.to_f64().iter().map(|v| (v * scale) as f32).collect();
    Ok(Buffer::from_f32(dtype, &values))
}

/// Random values in `low .. high`, in f32.
pub(crate) fn between(len: usize, stream: u64, low: f64, high: f64) -> Result<Buffer, String> {
    let raw = Buffer::random(DType::F32, len, SEED, stream, None).map_err(|e| e.to_string())?;
    let middle = (low + high) / 2.0;
    let half = (high - low) / 2.0;
    let values: Vec<f32> = raw.to_f64().iter().map(|v| (middle + half * v) as f32).collect();
    Ok(Buffer::from_f32(DType::F32, &values))
}

/// A slot for each token: distinct ones above 0, not in order, and the null slot for the second token.
pub(crate) fn slots(m: usize) -> (Vec<i32>, usize) {
    let count = m + 2;
    let slots = (0..m).map(|i| if i == 1 { 0 } else { (count - 1 - i) as i32 }).collect();
    (slots, count)
}

//! Bank conflicts of a shared-memory access.
//!
//! Model: 32 banks of 4 bytes (CUDA C++ Programming Guide). A warp's request of up to 4 bytes a
//! lane is one pass, of 8 bytes two passes of 16 lanes, of 16 bytes four passes of 8 lanes; a
//! pass takes as many wavefronts as the bank with the most distinct words has words. Lanes that
//! read the same word share it. The compiler does not merge passes further, hardware may.

use std::collections::BTreeSet;

use super::{AnyLayout, Layout, LayoutError, MAX_MAP};

const WARP_LANES: i64 = 32;
const BANKS: usize = 32;
const BANK_BYTES: i64 = 4;

/// An access of all threads of a role to a tile in shared memory.
#[derive(Clone, Copy, Debug)]
pub struct SharedAccess<'a> {
    /// Coordinates of the tile to element offsets from an aligned base.
    pub tile: &'a AnyLayout,
    /// `(threads, values)` to coordinates of the tile.
    pub thread_values: &'a Layout,
    /// Bits of one element.
    pub element_bits: i64,
    /// Neighbouring values that one instruction moves.
    pub vector: i64,
}

/// What the accesses of all warps take together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BankReport {
    /// Load or store instructions, summed over warps.
    pub instructions: u64,
    /// Wavefronts that they need.
    pub wavefronts: u64,
    /// Wavefronts that they would need without conflicts.
    pub minimum: u64,
}

impl BankReport {
    /// Wavefronts lost to conflicts.
    pub fn conflicts(&self) -> u64 {
        self.wavefronts - self.minimum
    }
}

/// Counts wavefronts by enumerating every address.
///
/// Refused when the vector is not 1, 2, 4, 8 or 16 bytes, does not divide the values of a thread,
/// or some vector is not contiguous and aligned in the tile.
pub fn count_bank_conflicts(access: &SharedAccess<'_>) -> Result<BankReport, LayoutError> {
    let bytes = vector_bytes(access)?;
    let modes = access.thread_values.modes();
    let [threads, values] = modes.as_slice() else {
        return Err(LayoutError::undefined(format!(
            "bank conflicts: the thread-value layout has {} modes, it has two",
            modes.len()
        )));
    };
    if access.thread_values.size() > MAX_MAP {
        return Err(LayoutError::too_large(format!(
            "bank conflicts: {} accesses are above the limit of {MAX_MAP}",
            access.thread_values.size()
        )));
    }
    if values.size() % access.vector != 0 {
        return Err(LayoutError::undefined(format!(
            "bank conflicts: a vector of {} does not divide the {} values of a thread",
            access.vector,
            values.size()
        )));
    }
    if access.thread_values.cosize() > access.tile.size() {
        return Err(LayoutError::undefined(format!(
            "bank conflicts: the thread-value layout reaches coordinate {}, the tile has {}",
            access.thread_values.cosize() - 1,
            access.tile.size()
        )));
    }
    let passes_lanes = WARP_LANES * BANK_BYTES / bytes.max(BANK_BYTES);
    let mut report = BankReport { instructions: 0, wavefronts: 0, minimum: 0 };
    for warp in (0..threads.size()).step_by(32) {
        let warp_end = (warp + WARP_LANES).min(threads.size());
        for value in (0..values.size() / access.vector).map(|group| group * access.vector) {
            report.instructions += 1;
            let mut lane = warp;
            while lane < warp_end {
                let pass_end = (lane + passes_lanes).min(warp_end);
                let mut words = vec![BTreeSet::new(); BANKS];
                for thread in lane..pass_end {
                    let address = vector_address(access, threads, values, thread, value, bytes)?;
                    for word in address / BANK_BYTES..=(address + bytes - 1) / BANK_BYTES {
                        words[usize::try_from(word % 32).expect("below 32")].insert(word);
                    }
                }
                let most = words.iter().map(BTreeSet::len).max().unwrap_or(0);
                report.wavefronts += u64::try_from(most).expect("at most 32 lanes");
                report.minimum += 1;
                lane = pass_end;
            }
        }
    }
    Ok(report)
}

fn vector_bytes(access: &SharedAccess<'_>) -> Result<i64, LayoutError> {
    match access.element_bits.checked_mul(access.vector) {
        Some(bits @ (8 | 16 | 32 | 64 | 128)) if access.vector > 0 => Ok(bits / 8),
        _ => Err(LayoutError::undefined(format!(
            "bank conflicts: a vector of {} elements of {} bits is not 1, 2, 4, 8 or 16 bytes",
            access.vector, access.element_bits
        ))),
    }
}

/// The byte address of one lane's vector, checked to be contiguous and aligned.
fn vector_address(
    access: &SharedAccess<'_>,
    threads: &Layout,
    values: &Layout,
    thread: i64,
    value: i64,
    bytes: i64,
) -> Result<i64, LayoutError> {
    let element = |value: i64| {
        let coordinate = threads.index(thread)?.checked_add(values.index(value)?)?;
        access.tile.index(coordinate)
    };
    let first = element(value);
    let overflow = || LayoutError::too_large("bank conflicts: an address does not fit in 64 bits");
    let start = first.ok_or_else(overflow)?;
    for step in 1..access.vector {
        let next = element(value + step).ok_or_else(overflow)?;
        if next.checked_sub(start) != Some(step) {
            return Err(LayoutError::undefined(format!(
                "bank conflicts: values {value} and {} of thread {thread} are elements {start} \
                 and {next}, a vector of {} needs neighbours",
                value + step,
                access.vector
            )));
        }
    }
    let bits = start.checked_mul(access.element_bits).ok_or_else(overflow)?;
    if bits % (bytes * 8) != 0 {
        return Err(LayoutError::undefined(format!(
            "bank conflicts: value {value} of thread {thread} is element {start}, which is not \
             aligned to {bytes} bytes"
        )));
    }
    Ok(bits / 8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::evaluate;

    fn report(tile: &str, thread_values: &str, element_bits: i64, vector: i64) -> BankReport {
        let tile = evaluate(tile).unwrap();
        let thread_values = evaluate(thread_values).unwrap().inner().clone();
        let access =
            SharedAccess { tile: &tile, thread_values: &thread_values, element_bits, vector };
        count_bank_conflicts(&access).unwrap()
    }

    #[test]
    fn columns_conflict_and_rows_do_not() {
        let row = report("(32,32):(1,32)", "(32,1):(1,0)", 32, 1);
        assert_eq!((row.wavefronts, row.conflicts()), (1, 0));
        let column = report("(32,32):(32,1)", "(32,1):(1,0)", 32, 1);
        assert_eq!((column.wavefronts, column.conflicts()), (32, 31));
        let padded = report("(32,32):(33,1)", "(32,1):(1,0)", 32, 1);
        assert_eq!(padded.conflicts(), 0);
        let broadcast = report("1:0", "(32,1):(0,0)", 32, 1);
        assert_eq!(broadcast.conflicts(), 0);
    }

    #[test]
    fn the_swizzle_of_128_bytes_frees_16_byte_columns() {
        // 8 rows of 64 bf16; each of 32 lanes takes 16 bytes, 8 lanes down a column at a time.
        let lanes = "((8,4),8):((1,64),8)";
        let plain = report("(8,64):(64,1)", lanes, 16, 8);
        assert_eq!((plain.instructions, plain.minimum, plain.wavefronts), (1, 4, 32));
        let swizzled = report("swizzle(3,3,3) o 0 o (8,64):(64,1)", lanes, 16, 8);
        assert_eq!(swizzled.conflicts(), 0);
    }

    #[test]
    fn accesses_that_no_instruction_makes_are_refused() {
        let refuse = |tile: &str, thread_values: &str, element_bits, vector| {
            let tile = evaluate(tile).unwrap();
            let thread_values = evaluate(thread_values).unwrap().inner().clone();
            let access =
                SharedAccess { tile: &tile, thread_values: &thread_values, element_bits, vector };
            count_bank_conflicts(&access).unwrap_err().code()
        };
        assert_eq!(refuse("64:1", "32:1", 32, 1), "E0301");
        assert_eq!(refuse("64:1", "(32,2):(2,1)", 24, 1), "E0301");
        assert_eq!(refuse("64:1", "(32,2):(1,32)", 32, 2), "E0301");
        assert_eq!(refuse("swizzle(0,0,0) o 1 o 64:1", "(32,2):(2,1)", 32, 2), "E0301");
        assert_eq!(refuse("64:1", "(32,3):(1,1)", 32, 2), "E0301");
        assert_eq!(refuse("64:1", "(1000000,2):(0,0)", 32, 1), "E0303");
    }
}

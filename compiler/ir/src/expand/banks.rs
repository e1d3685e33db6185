//! Bank conflicts of accesses to shared memory, for `kernelc explain`.
//!
//! The model is that of [`crate::layout::count_bank_conflicts`]: 32 banks of 4 bytes, passes of as many lanes
//! as 128 bytes hold, and a pass takes as many wavefronts as its fullest bank has words. The first warp stands
//! for all; starts of slices that are known at run time count as 0.

use std::collections::BTreeSet;

use super::Expander;
use crate::distribution::{Distribution, LANES};
use crate::kernel::{AxisIndex, TileAccess, ViewAxis};

/// Banks of 4 bytes.
const BANKS: usize = 32;

/// Bytes that all banks give in one wavefront.
const WAVEFRONT_BYTES: u32 = 128;

/// Wavefronts of the instructions of one warp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Banks {
    /// With conflicts.
    pub(crate) wavefronts: u32,
    /// Without.
    pub(crate) minimum: u32,
}

impl Expander<'_> {
    /// Counts the wavefronts of instructions that take `len` elements from each register on; nothing where
    /// places come from an index tile.
    pub(super) fn banks(
        &self,
        access: &TileAccess,
        distribution: &Distribution,
        instructions: &[(u32, u32)],
        is_store: bool,
    ) -> Option<Banks> {
        let size = self.kernel.dtype_of(access.storage).bytes()?;
        let swizzle = self.swizzle(access.storage);
        let by_tile =
            |index: &AxisIndex| matches!(index, AxisIndex::Gather(_) | AxisIndex::Along(_));
        if access.index.iter().any(by_tile) {
            return None;
        }
        let free = distribution.free_lanes();
        let mut total = Banks::default();
        for &(register, len) in instructions {
            let one = wavefronts(size, len, |lane| {
                if is_store && free.iter().any(|digit| digit.of(lane) != 0) {
                    return None;
                }
                let element = offset(access, &distribution.coordinates(0, lane, register))?;
                Some(swizzle.map_or(element, |swizzle| swizzle.apply(element)))
            });
            total.wavefronts += one.wavefronts;
            total.minimum += one.minimum;
        }
        Some(total)
    }
}

/// Wavefronts of one instruction that moves `len` elements of `size` bytes from the place of each lane on; lanes
/// without a place take no part.
pub(super) fn wavefronts(size: u32, len: u32, place: impl Fn(u32) -> Option<i64>) -> Banks {
    let bytes = (len * size).max(1);
    let lanes = (WAVEFRONT_BYTES / bytes.max(4)).clamp(1, LANES);
    let mut total = Banks::default();
    for pass in 0..LANES / lanes {
        let mut words: Vec<BTreeSet<i64>> = vec![BTreeSet::new(); BANKS];
        for first in (pass * lanes..(pass + 1) * lanes).filter_map(&place) {
            let first = first * i64::from(size);
            for word in first / 4..=(first + i64::from(bytes) - 1) / 4 {
                words[word.rem_euclid(BANKS as i64) as usize].insert(word);
            }
        }
        let most = words.iter().map(BTreeSet::len).max().unwrap_or(0) as u32;
        total.wavefronts += most;
        total.minimum += most.min(1);
    }
    total
}

/// Elements from the start of a slot to an element of the tile.
fn offset(access: &TileAccess, coordinates: &[u32]) -> Option<i64> {
    let mut views = access.axes.iter();
    let mut coordinates = coordinates.iter();
    let mut sum = 0;
    for index in &access.index {
        match index {
            AxisIndex::New => {
                coordinates.next();
            }
            AxisIndex::At(_) => {
                views.next();
            }
            AxisIndex::Range { .. } => {
                sum += along(views.next()?, i64::from(*coordinates.next()?));
            }
            AxisIndex::Gather(_) | AxisIndex::Along(_) => return None,
        }
    }
    Some(sum)
}

fn along(axis: &ViewAxis, position: i64) -> i64 {
    let Some((slowest, faster)) = axis.digits.split_first() else { return 0 };
    let (mut rest, mut sum) = (position, 0);
    for digit in faster.iter().rev() {
        let extent = i64::from(digit.extent.max(1));
        sum += rest % extent * digit.stride;
        rest /= extent;
    }
    sum + rest * slowest.stride
}

//! Where the elements of a buffer lie that is not row-major: `stored LAYOUT` of a kernel's parameter.
//!
//! Each axis of the buffer is a mixed-radix number, fastest digit first, and each digit has a stride in memory,
//! as in a CuTe layout with one mode an axis. The strides are compact: every place of memory has one element.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::DType;
use crate::numeric::{bytes_of, read_element, write_element};

/// A digit of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StoredDigit {
    /// Values of the digit.
    pub extent: u32,
    /// Elements of memory between two of them.
    pub stride: u64,
}

/// The layout of a buffer in memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct StoredLayout {
    axes: Vec<Vec<StoredDigit>>,
}

/// A layout as a file has it.
#[derive(Deserialize)]
struct Unchecked {
    axes: Vec<Vec<StoredDigit>>,
}

impl TryFrom<Unchecked> for StoredLayout {
    type Error = StoredError;

    fn try_from(file: Unchecked) -> Result<StoredLayout, StoredError> {
        StoredLayout::new(file.axes)
    }
}

/// Why digits make no layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StoredError {
    /// Two elements would lie in one place, or a place would stay empty.
    #[error("stride {found} where {wanted} makes the places follow each other")]
    Gap {
        /// The stride that is given.
        found: u64,
        /// The one that is needed.
        wanted: u64,
    },
    /// More elements than 64 bits count.
    #[error("more elements than 64 bits count")]
    TooLarge,
    /// Memory of another length.
    #[error("{found} bytes for a buffer of {wanted}")]
    Length {
        /// Bytes that are given.
        found: usize,
        /// Bytes of the buffer.
        wanted: usize,
    },
}

impl StoredLayout {
    /// The layout whose axes have these digits, fastest first.
    ///
    /// # Errors
    /// The strides leave places out or use them twice.
    pub fn new(axes: Vec<Vec<StoredDigit>>) -> Result<StoredLayout, StoredError> {
        let mut digits: Vec<StoredDigit> =
            axes.iter().flatten().copied().filter(|digit| digit.extent > 1).collect();
        digits.sort_by_key(|digit| digit.stride);
        let mut next = 1u64;
        for StoredDigit { extent, stride } in digits {
            if stride != next {
                return Err(StoredError::Gap { found: stride, wanted: next });
            }
            next = next.checked_mul(u64::from(extent)).ok_or(StoredError::TooLarge)?;
        }
        Ok(StoredLayout { axes })
    }

    /// The digits of each axis, fastest first.
    pub fn axes(&self) -> &[Vec<StoredDigit>] {
        &self.axes
    }

    /// Number of elements.
    pub fn len(&self) -> u64 {
        self.digits().map(|digit| u64::from(digit.extent)).product()
    }

    /// True without elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All digits from the one that is fastest in row-major order on.
    fn digits(&self) -> impl Iterator<Item = StoredDigit> + '_ {
        self.axes.iter().rev().flatten().copied()
    }

    /// The place in memory of an element by its row-major number.
    pub fn place(&self, mut index: u64) -> u64 {
        let mut place = 0;
        for digit in self.digits() {
            let extent = u64::from(digit.extent.max(1));
            place += index % extent * digit.stride;
            index /= extent;
        }
        place
    }

    /// Extents and strides of its digits, with neighbours that follow each other in both orders made one: two layouts of
    /// one number of elements put them in the same places where these are equal.
    fn merged(&self) -> Vec<(u64, u64)> {
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for digit in self.digits().filter(|digit| digit.extent != 1) {
            let extent = u64::from(digit.extent);
            match merged.last_mut() {
                Some((before, stride)) if *before * *stride == digit.stride => *before *= extent,
                Some(_) | None => merged.push((extent, digit.stride)),
            }
        }
        merged
    }

    /// Whether two layouts put the elements of one buffer in the same places.
    pub fn same_places(&self, other: &StoredLayout) -> bool {
        self.merged() == other.merged()
    }

    /// Whether it is the row-major order.
    pub fn is_row_major(&self) -> bool {
        self.is_empty() || matches!(self.merged().as_slice(), [] | [(_, 1)])
    }

    /// Row-major memory as this layout has it.
    ///
    /// # Errors
    /// The memory has another length.
    pub fn pack(&self, dtype: DType, bytes: &[u8]) -> Result<Vec<u8>, StoredError> {
        let elements = usize::try_from(self.len()).map_err(|_| StoredError::TooLarge)?;
        let wanted = bytes_of(dtype, elements);
        if bytes.len() != wanted {
            return Err(StoredError::Length { found: bytes.len(), wanted });
        }
        let mut packed = vec![0; wanted];
        let mut digits = self.merged();
        // Neighbours that stay neighbours move together.
        let run = match digits.first() {
            Some((_, 1)) => digits.remove(0).0 as usize,
            Some(_) | None => 1,
        };
        let bits = dtype.bits() as usize;
        // Every other stride is a multiple of the run, so runs of whole bytes start at whole bytes.
        if (run * bits).is_multiple_of(8) {
            let size = bytes_of(dtype, run);
            let in_bytes = |(extent, stride)| (extent as usize, stride as usize * bits / 8);
            let digits: Vec<(usize, usize)> = digits.into_iter().map(in_bytes).collect();
            let mut runs = bytes.chunks_exact(size.max(1));
            spread(&digits, &mut packed, size, 0, &mut runs);
            return Ok(packed);
        }
        for index in 0..elements {
            let code = read_element(dtype, bytes, index).unwrap_or(0);
            write_element(dtype, &mut packed, self.place(index as u64) as usize, code);
        }
        Ok(packed)
    }
}

/// Puts runs of `size` bytes, one for each value of the digits, the first one fastest, to their places from `base` on.
fn spread<'b>(
    digits: &[(usize, usize)],
    packed: &mut [u8],
    size: usize,
    base: usize,
    runs: &mut impl Iterator<Item = &'b [u8]>,
) {
    match digits {
        [] => {
            if let Some(run) = runs.next() {
                packed[base..base + size].copy_from_slice(run);
            }
        }
        &[(extent, stride)] => {
            for (value, run) in runs.take(extent).enumerate() {
                packed[base + value * stride..][..size].copy_from_slice(run);
            }
        }
        [faster @ .., (extent, stride)] => {
            for value in 0..*extent {
                spread(faster, packed, size, base + value * stride, runs);
            }
        }
    }
}

/// `((8, 2), 64):((64, 1), 2)`, fastest digit of an axis first.
impl fmt::Display for StoredLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |show: &dyn Fn(&StoredDigit) -> String| {
            let axes: Vec<String> = self
                .axes
                .iter()
                .map(|digits| match digits.as_slice() {
                    [one] => show(one),
                    many => {
                        format!("({})", many.iter().map(show).collect::<Vec<_>>().join(", "))
                    }
                })
                .collect();
            format!("({})", axes.join(", "))
        };
        let extents = side(&|digit| digit.extent.to_string());
        write!(f, "{extents}:{}", side(&|digit| digit.stride.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digit(extent: u32, stride: u64) -> StoredDigit {
        StoredDigit { extent, stride }
    }

    #[test]
    fn packing_moves_every_element_to_its_place() {
        // 4 rows of 16, stored as two blocks of 8 columns
        let layout =
            StoredLayout::new(vec![vec![digit(4, 8)], vec![digit(8, 1), digit(2, 32)]]).unwrap();
        assert_eq!(layout.to_string(), "(4, (8, 2)):(8, (1, 32))");
        assert_eq!((layout.len(), layout.place(0), layout.place(16 + 9)), (64, 0, 8 + 1 + 32));
        let numbers: Vec<u8> = (0..64).collect();
        let packed = layout.pack(DType::U8, &numbers).unwrap();
        for index in 0..64 {
            assert_eq!(packed[layout.place(index) as usize], index as u8);
        }
        let nibbles: Vec<u8> = (0..32).collect();
        let packed = layout.pack(DType::E2m1, &nibbles).unwrap();
        for index in 0..64u64 {
            let place = layout.place(index) as usize;
            assert_eq!(
                read_element(DType::E2m1, &packed, place),
                read_element(DType::E2m1, &nibbles, index as usize)
            );
        }
        // transposed: single elements move
        let transposed = StoredLayout::new(vec![vec![digit(4, 1)], vec![digit(16, 4)]]).unwrap();
        assert_eq!(transposed.pack(DType::U8, &numbers).unwrap()[..5], [0, 16, 32, 48, 1]);
        assert_eq!(
            transposed.pack(DType::F32, &numbers),
            Err(StoredError::Length { found: 64, wanted: 256 })
        );
    }

    #[test]
    fn layouts_of_one_order_are_the_same_whatever_their_digits() {
        let of = |axes: Vec<Vec<StoredDigit>>| StoredLayout::new(axes).unwrap();
        let flat = of(vec![vec![digit(64, 1)]]);
        let rows = of(vec![vec![digit(4, 16)], vec![digit(1, 7), digit(8, 1), digit(2, 8)]]);
        assert!(flat.same_places(&rows) && rows.is_row_major());
        let turned = of(vec![vec![digit(4, 1)], vec![digit(16, 4)]]);
        assert!(!turned.is_row_major() && !turned.same_places(&rows));
        let halves = of(vec![vec![digit(4, 1)], vec![digit(2, 4), digit(8, 8)]]);
        assert!(turned.same_places(&halves));
        assert!(of(vec![vec![digit(0, 1)]]).is_row_major());
    }

    #[test]
    fn every_order_of_three_axes_is_packed_as_places_say() {
        // gate and up rows by turns: [3, 2, 5, 8] with the axes 1 and 2 exchanged
        let axes =
            vec![vec![digit(3, 80)], vec![digit(2, 8)], vec![digit(5, 16)], vec![digit(8, 1)]];
        let layout = StoredLayout::new(axes).unwrap();
        for (dtype, size) in [(DType::U8, 1), (DType::Bf16, 2), (DType::F32, 4)] {
            let bytes: Vec<u8> = (0..240 * size).map(|at| (at % 251) as u8).collect();
            let packed = layout.pack(dtype, &bytes).unwrap();
            for index in 0..240 {
                let place = layout.place(index as u64) as usize;
                assert_eq!(packed[place * size..][..size], bytes[index * size..][..size]);
            }
        }
        let nothing = StoredLayout::new(vec![vec![digit(0, 8)], vec![digit(8, 1)]]).unwrap();
        assert_eq!(nothing.pack(DType::F32, &[]).unwrap(), Vec::<u8>::new());
    }

    #[test]
    fn places_are_used_once() {
        let gap = StoredLayout::new(vec![vec![digit(4, 32)], vec![digit(16, 1)]]);
        assert_eq!(gap, Err(StoredError::Gap { found: 32, wanted: 16 }));
        assert!(StoredLayout::new(vec![vec![digit(4, 1)], vec![digit(16, 1)]]).is_err());
        assert!(StoredLayout::new(vec![vec![digit(1, 99)], vec![digit(16, 1)]]).is_ok());
        let large = vec![vec![digit(u32::MAX, 1)], vec![digit(u32::MAX, u64::from(u32::MAX))]];
        let most = u64::from(u32::MAX) * u64::from(u32::MAX);
        let large = [large, vec![vec![digit(9, most)]]].concat();
        assert_eq!(StoredLayout::new(large), Err(StoredError::TooLarge));
    }

    #[test]
    fn files_hold_layouts_that_are_checked() {
        let layout = StoredLayout::new(vec![vec![digit(4, 1), digit(2, 4)]]).unwrap();
        let file = Unchecked { axes: layout.axes.clone() };
        assert_eq!(StoredLayout::try_from(file), Ok(layout));
        let file = Unchecked { axes: vec![vec![digit(4, 1), digit(2, 5)]] };
        assert_eq!(StoredLayout::try_from(file), Err(StoredError::Gap { found: 5, wanted: 4 }));
    }
}

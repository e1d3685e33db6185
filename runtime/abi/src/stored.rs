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
        // Neighbours that stay neighbours move together.
        let run = match self.digits().find(|digit| digit.extent > 1) {
            Some(digit) if digit.stride == 1 => digit.extent as usize,
            Some(_) | None => 1,
        };
        if (run * dtype.bits() as usize).is_multiple_of(8) {
            let size = bytes_of(dtype, run);
            for (number, from) in bytes.chunks_exact(size.max(1)).enumerate() {
                let place = self.place((number * run) as u64) as usize;
                let at = bytes_of(dtype, place);
                packed[at..at + size].copy_from_slice(from);
            }
            return Ok(packed);
        }
        for index in 0..elements {
            let code = read_element(dtype, bytes, index).unwrap_or(0);
            write_element(dtype, &mut packed, self.place(index as u64) as usize, code);
        }
        Ok(packed)
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

//! Atomic operations on integers: what an element becomes. In whatever order those of one operation come, they leave the same value.

use kernel_abi::DType;
use serde::{Deserialize, Serialize};

/// How a value changes an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AtomicOp {
    /// Their sum, which wraps.
    Add,
    /// The greater one.
    Max,
    /// The smaller one.
    Min,
    /// Bits that both have.
    And,
    /// Bits that either has.
    Or,
}

impl AtomicOp {
    /// Every operation.
    pub const ALL: [AtomicOp; 5] =
        [AtomicOp::Add, AtomicOp::Max, AtomicOp::Min, AtomicOp::And, AtomicOp::Or];

    /// The word behind `atomic.`, which is that of PTX as well.
    pub fn name(self) -> &'static str {
        match self {
            AtomicOp::Add => "add",
            AtomicOp::Max => "max",
            AtomicOp::Min => "min",
            AtomicOp::And => "and",
            AtomicOp::Or => "or",
        }
    }

    /// True for element types that it works on.
    pub fn takes(dtype: DType) -> bool {
        matches!(dtype, DType::U32 | DType::I32 | DType::U64)
    }

    /// The code that an element has after it.
    pub fn apply(self, dtype: DType, old: u64, value: u64) -> u64 {
        let signed = |code: u64| i64::from(code as u32 as i32);
        let is_greater = match dtype {
            DType::I32 => signed(old) > signed(value),
            _ => old > value,
        };
        match self {
            AtomicOp::Add if dtype == DType::U64 => old.wrapping_add(value),
            AtomicOp::Add => u64::from((old as u32).wrapping_add(value as u32)),
            AtomicOp::Max => {
                if is_greater {
                    old
                } else {
                    value
                }
            }
            AtomicOp::Min => {
                if is_greater {
                    value
                } else {
                    old
                }
            }
            AtomicOp::And => old & value,
            AtomicOp::Or => old | value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_two_does_not_show() {
        let values = [0, 1, 7, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff];
        for op in AtomicOp::ALL {
            for dtype in [DType::U32, DType::I32, DType::U64] {
                for (a, b) in values.iter().flat_map(|&a| values.map(|b| (a, b))) {
                    let one = op.apply(dtype, op.apply(dtype, 5, a), b);
                    assert_eq!(one, op.apply(dtype, op.apply(dtype, 5, b), a), "{op:?} {dtype}");
                }
            }
        }
    }

    #[test]
    fn signs_count_where_the_type_has_them() {
        let minus_one = u64::from(u32::MAX);
        assert_eq!(AtomicOp::Max.apply(DType::I32, minus_one, 3), 3);
        assert_eq!(AtomicOp::Max.apply(DType::U32, minus_one, 3), minus_one);
        assert_eq!(AtomicOp::Min.apply(DType::I32, minus_one, 3), minus_one);
        assert_eq!(AtomicOp::Add.apply(DType::I32, minus_one, 3), 2);
        assert_eq!(AtomicOp::Add.apply(DType::U64, minus_one, 3), minus_one + 3);
    }
}

//! What one instruction does to the memory of all ranks at a multicast address.

use kernel_abi::{DType, numeric};

use super::elementwise::ReduceOp;
use super::eval;

/// True where one instruction folds the elements of all ranks.
pub fn folds(op: ReduceOp, dtype: DType) -> bool {
    match dtype {
        DType::F32 => op == ReduceOp::Add,
        DType::F16 | DType::Bf16 | DType::I32 | DType::U32 | DType::I64 | DType::U64 => true,
        DType::E4m3
        | DType::E5m2
        | DType::E2m1
        | DType::Ue8m0
        | DType::I8
        | DType::U8
        | DType::Bool => false,
    }
}

/// True where one instruction stores an element to all ranks.
pub fn stores(dtype: DType) -> bool {
    dtype == DType::F32 || folds(ReduceOp::Max, dtype)
}

/// True where one instruction moves so many elements: floats by 4, 8 or 16 bytes, integers one at a time.
pub fn moves(dtype: DType, len: u32) -> bool {
    let bits = dtype.bits().saturating_mul(len);
    stores(dtype) && if dtype.is_float() { matches!(bits, 32 | 64 | 128) } else { len == 1 }
}

/// The fold of what the ranks have, in ascending order of the rank. Sums of f16 and bf16 are formed in f32 and rounded
/// once; nothing for no ranks.
pub fn fold(op: ReduceOp, dtype: DType, codes: impl IntoIterator<Item = u64>) -> Option<u64> {
    let mut codes = codes.into_iter();
    let first = codes.next()?;
    if op == ReduceOp::Add && dtype.is_float() {
        let wide = |code| numeric::float_to_f32(dtype, code);
        let mut sum = wide(first)?;
        for code in codes {
            sum += wide(code)?;
        }
        return numeric::float_from_f32(dtype, sum);
    }
    codes.try_fold(first, |all, code| eval::binary_code(op.binary(), dtype, all, code).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f32s(values: &[f32]) -> impl Iterator<Item = u64> {
        values.iter().map(|v| u64::from(v.to_bits()))
    }

    #[test]
    fn sums_are_formed_in_the_order_of_the_ranks() {
        let big = 16_777_216.0_f32;
        let sum = |values: &[f32]| fold(ReduceOp::Add, DType::F32, f32s(values));
        assert_eq!(sum(&[big, 1.0, 1.0]), Some(u64::from(big.to_bits())));
        assert_eq!(sum(&[1.0, 1.0, big]), Some(u64::from((big + 2.0).to_bits())));
        assert_eq!(sum(&[]), None);
    }

    #[test]
    fn narrow_sums_are_rounded_once() {
        // 256 + 1 + 1 in bf16: each sum of two would be rounded back to 256.
        let code = |v: f32| u64::from(v.to_bits() >> 16);
        let sum = fold(ReduceOp::Add, DType::Bf16, [256.0, 1.0, 1.0].map(code));
        assert_eq!(sum, Some(code(258.0)));
    }

    #[test]
    fn integers_wrap_and_compare_by_their_sign() {
        let minus = u64::from(u32::MAX);
        assert_eq!(fold(ReduceOp::Add, DType::U32, [minus, 2]), Some(1));
        assert_eq!(fold(ReduceOp::Max, DType::I32, [minus, 2]), Some(2));
        assert_eq!(fold(ReduceOp::Max, DType::U32, [minus, 2]), Some(minus));
        assert_eq!(fold(ReduceOp::Min, DType::I64, [u64::MAX, 2]), Some(u64::MAX));
    }

    #[test]
    fn instructions_move_words() {
        assert!(moves(DType::F32, 1) && moves(DType::F32, 4) && !moves(DType::F32, 8));
        assert!(!moves(DType::Bf16, 1) && moves(DType::Bf16, 2) && moves(DType::Bf16, 8));
        assert!(moves(DType::U64, 1) && !moves(DType::U32, 2) && !moves(DType::U8, 4));
        assert!(!folds(ReduceOp::Max, DType::F32) && folds(ReduceOp::Max, DType::F16));
    }
}

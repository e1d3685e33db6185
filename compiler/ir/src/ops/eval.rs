//! What the element-wise operations compute, on runs of elements and on single codes.
//!
//! Operands and results follow [`super::typing`]. f16 and bf16 are computed in f32 and rounded once;
//! integers wrap; a shift by the width or more gives 0, or the sign for a signed right shift. A
//! computed NaN is the canonical one; `select` and copies keep the bits.

use kernel_abi::DType;
use kernel_abi::numeric::{bf16, canonical, f16};
use thiserror::Error;

use super::elements::{Elements, Word, Words};
use super::elementwise::{BinaryOp, CompareOp, UnaryOp};
use super::math;

/// An operation that has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum EvalError {
    /// An integer was divided by zero.
    #[error("integer division by zero in element {index}")]
    DivisionByZero {
        /// The first element where it happened.
        index: usize,
    },
}

/// Replaces `out` by `op` of each element of `x`.
pub fn unary(op: UnaryOp, x: &Elements, out: &mut Elements) {
    match op {
        UnaryOp::Neg => negate_or_abs(x, out, |v| -v, false),
        UnaryOp::Abs => negate_or_abs(x, out, f32::abs, true),
        UnaryOp::Not => not(x, out),
        UnaryOp::Exp => float_unary(x, out, math::exp),
        UnaryOp::Exp2 => float_unary(x, out, math::exp2),
        UnaryOp::Log2 => float_unary(x, out, math::log2),
        UnaryOp::Tanh => float_unary(x, out, math::tanh),
        UnaryOp::Sigmoid => float_unary(x, out, math::sigmoid),
        UnaryOp::Rsqrt => float_unary(x, out, math::rsqrt),
        UnaryOp::Sqrt => float_unary(x, out, math::sqrt),
        UnaryOp::ScaleUp => float_unary(x, out, math::scale_up),
    }
}

/// Replaces `out` by `op` of each pair of elements; both operands have one type and length.
pub fn binary(
    op: BinaryOp,
    a: &Elements,
    b: &Elements,
    out: &mut Elements,
) -> Result<(), EvalError> {
    match a.dtype() {
        DType::F32 | DType::F16 | DType::Bf16 => {
            match op {
                BinaryOp::Add => float_binary(a, b, out, |a, b| a + b),
                BinaryOp::Sub => float_binary(a, b, out, |a, b| a - b),
                BinaryOp::Mul => float_binary(a, b, out, |a, b| a * b),
                BinaryOp::Div => float_binary(a, b, out, |a, b| a / b),
                BinaryOp::Min => float_binary(a, b, out, math::min),
                BinaryOp::Max => float_binary(a, b, out, math::max),
                BinaryOp::Rem
                | BinaryOp::And
                | BinaryOp::Or
                | BinaryOp::Xor
                | BinaryOp::Shl
                | BinaryOp::Shr => unreachable!("typing refuses these on floating point"),
            }
            Ok(())
        }
        DType::I8 => int_binary::<i8>(op, a, b, out),
        DType::U8 | DType::Bool => int_binary::<u8>(op, a, b, out),
        DType::I32 => int_binary::<i32>(op, a, b, out),
        DType::U32 => int_binary::<u32>(op, a, b, out),
        DType::I64 => int_binary::<i64>(op, a, b, out),
        DType::U64 => int_binary::<u64>(op, a, b, out),
        DType::E4m3 | DType::E5m2 | DType::E2m1 | DType::Ue8m0 => {
            unreachable!("typing refuses arithmetic on packed types")
        }
    }
}

/// Replaces `out` by the truth of `op` for each pair of elements; both operands have one type and
/// length.
pub fn compare(op: CompareOp, a: &Elements, b: &Elements, out: &mut Elements) {
    out.reset(DType::Bool);
    match a.dtype() {
        DType::F32 => ordered(op, a, b, out, f32::from_bits),
        DType::F16 => ordered(op, a, b, out, f16::to_f32),
        DType::Bf16 => ordered(op, a, b, out, bf16::to_f32),
        DType::I8 => ordered(op, a, b, out, |w: u8| w as i8),
        DType::U8 | DType::Bool => ordered(op, a, b, out, |w: u8| w),
        DType::I32 => ordered(op, a, b, out, |w: u32| w as i32),
        DType::U32 => ordered(op, a, b, out, |w: u32| w),
        DType::I64 => ordered(op, a, b, out, |w: u64| w as i64),
        DType::U64 => ordered(op, a, b, out, |w: u64| w),
        DType::E4m3 | DType::E5m2 | DType::E2m1 | DType::Ue8m0 => {
            unreachable!("typing refuses comparisons of packed types")
        }
    }
}

/// Replaces `out` by `a` where `cond` is true and by `b` elsewhere.
pub fn select(cond: &Elements, a: &Elements, b: &Elements, out: &mut Elements) {
    fn pick<W: Word>(cond: &[u8], a: &[W], b: &[W], out: &mut Elements) {
        let picked = cond.iter().zip(a.iter().zip(b));
        out.vec_mut::<W>().extend(picked.map(|(&c, (&a, &b))| if c != 0 { a } else { b }));
    }
    out.reset(a.dtype());
    let cond = cond.slice::<u8>();
    match a.words() {
        Words::W8(a) => pick(cond, a, b.slice(), out),
        Words::W16(a) => pick(cond, a, b.slice(), out),
        Words::W32(a) => pick(cond, a, b.slice(), out),
        Words::W64(a) => pick(cond, a, b.slice(), out),
    }
}

/// Replaces `out` by `a * b + c` with one rounding, in f32.
pub fn fma(a: &Elements, b: &Elements, c: &Elements, out: &mut Elements) {
    out.reset(DType::F32);
    let out = out.vec_mut::<u32>();
    out.extend_from_slice(c.slice());
    math::fma_words(a.slice(), b.slice(), out);
}

/// `op` of one code.
pub fn unary_code(op: UnaryOp, dtype: DType, x: u64) -> u64 {
    let mut out = Elements::new(dtype);
    unary(op, &Elements::splat(dtype, x, 1), &mut out);
    out.get(0)
}

/// `op` of two codes of one type.
pub fn binary_code(op: BinaryOp, dtype: DType, a: u64, b: u64) -> Result<u64, EvalError> {
    let mut out = Elements::new(dtype);
    let (a, b) = (Elements::splat(dtype, a, 1), Elements::splat(dtype, b, 1));
    binary(op, &a, &b, &mut out)?;
    Ok(out.get(0))
}

/// The truth of `op` for two codes of one type.
pub fn compare_code(op: CompareOp, dtype: DType, a: u64, b: u64) -> bool {
    let mut out = Elements::new(DType::Bool);
    let (a, b) = (Elements::splat(dtype, a, 1), Elements::splat(dtype, b, 1));
    compare(op, &a, &b, &mut out);
    out.get(0) != 0
}

fn float_unary(x: &Elements, out: &mut Elements, f: impl Fn(f32) -> f32) {
    let dtype = x.dtype();
    out.reset(dtype);
    match dtype {
        DType::F32 => {
            let values = x.slice::<u32>().iter().map(|&w| f(f32::from_bits(w)));
            out.vec_mut::<u32>().extend(values.map(|v| canonical(v).to_bits()));
        }
        DType::Bf16 => {
            let values = x.slice::<u16>().iter().map(|&w| f(bf16::to_f32(w)));
            out.vec_mut::<u16>().extend(values.map(bf16::from_f32));
        }
        DType::F16 => {
            let values = x.slice::<u16>().iter().map(|&w| f(f16::to_f32(w)));
            out.vec_mut::<u16>().extend(values.map(f16::from_f32));
        }
        DType::E4m3
        | DType::E5m2
        | DType::E2m1
        | DType::Ue8m0
        | DType::I8
        | DType::U8
        | DType::I32
        | DType::U32
        | DType::I64
        | DType::U64
        | DType::Bool => unreachable!("typing takes f32, f16 and bf16 only"),
    }
}

fn negate_or_abs(x: &Elements, out: &mut Elements, f: impl Fn(f32) -> f32, abs: bool) {
    fn signed<I: Int>(x: &Elements, out: &mut Elements, abs: bool) {
        out.reset(x.dtype());
        let values = x.slice::<I::Word>().iter().map(|&w| I::of(w));
        out.vec_mut::<I::Word>()
            .extend(values.map(|v| if abs && v >= I::ZERO { v } else { I::ZERO.sub(v) }.word()));
    }
    match x.dtype() {
        DType::I8 => signed::<i8>(x, out, abs),
        DType::I32 => signed::<i32>(x, out, abs),
        DType::I64 => signed::<i64>(x, out, abs),
        DType::F32
        | DType::F16
        | DType::Bf16
        | DType::E4m3
        | DType::E5m2
        | DType::E2m1
        | DType::Ue8m0
        | DType::U8
        | DType::U32
        | DType::U64
        | DType::Bool => float_unary(x, out, f),
    }
}

fn not(x: &Elements, out: &mut Elements) {
    out.reset(x.dtype());
    let bool_mask = x.dtype() == DType::Bool;
    match x.words() {
        Words::W8(w) if bool_mask => out.vec_mut::<u8>().extend(w.iter().map(|w| w ^ 1)),
        Words::W8(w) => out.vec_mut::<u8>().extend(w.iter().map(|w| !w)),
        Words::W16(w) => out.vec_mut::<u16>().extend(w.iter().map(|w| !w)),
        Words::W32(w) => out.vec_mut::<u32>().extend(w.iter().map(|w| !w)),
        Words::W64(w) => out.vec_mut::<u64>().extend(w.iter().map(|w| !w)),
    }
}

fn float_binary(a: &Elements, b: &Elements, out: &mut Elements, f: impl Fn(f32, f32) -> f32) {
    let dtype = a.dtype();
    out.reset(dtype);
    if dtype == DType::F32 {
        let pairs = a.slice::<u32>().iter().zip(b.slice::<u32>());
        out.vec_mut::<u32>().extend(
            pairs.map(|(&a, &b)| canonical(f(f32::from_bits(a), f32::from_bits(b))).to_bits()),
        );
        return;
    }
    if dtype == DType::Bf16 {
        half_binary(a, b, out, |a, b| bf16::from_f32(f(bf16::to_f32(a), bf16::to_f32(b))));
    } else {
        half_binary(a, b, out, |a, b| f16::from_f32(f(f16::to_f32(a), f16::to_f32(b))));
    }
}

fn half_binary(a: &Elements, b: &Elements, out: &mut Elements, f: impl Fn(u16, u16) -> u16) {
    let pairs = a.slice::<u16>().iter().zip(b.slice::<u16>());
    out.vec_mut::<u16>().extend(pairs.map(|(&a, &b)| f(a, b)));
}

fn ordered<W: Word, V: PartialOrd>(
    op: CompareOp,
    a: &Elements,
    b: &Elements,
    out: &mut Elements,
    value: impl Fn(W) -> V,
) {
    fn truths<W: Word>(a: &[W], b: &[W], out: &mut Elements, f: impl Fn(W, W) -> bool) {
        out.vec_mut::<u8>().extend(a.iter().zip(b).map(|(&a, &b)| u8::from(f(a, b))));
    }
    let (a, b) = (a.slice::<W>(), b.slice::<W>());
    match op {
        CompareOp::Eq => truths(a, b, out, |a, b| value(a) == value(b)),
        CompareOp::Ne => truths(a, b, out, |a, b| value(a) != value(b)),
        CompareOp::Lt => truths(a, b, out, |a, b| value(a) < value(b)),
        CompareOp::Le => truths(a, b, out, |a, b| value(a) <= value(b)),
        CompareOp::Gt => truths(a, b, out, |a, b| value(a) > value(b)),
        CompareOp::Ge => truths(a, b, out, |a, b| value(a) >= value(b)),
    }
}

/// An integer type with the arithmetic of the language.
trait Int: Copy + Ord {
    type Word: Word;
    const ZERO: Self;
    fn of(word: Self::Word) -> Self;
    fn word(self) -> Self::Word;
    fn add(self, b: Self) -> Self;
    fn sub(self, b: Self) -> Self;
    fn mul(self, b: Self) -> Self;
    /// The divisor is not zero.
    fn div(self, b: Self) -> Self;
    /// The divisor is not zero.
    fn rem(self, b: Self) -> Self;
    fn shl(self, b: Self) -> Self;
    fn shr(self, b: Self) -> Self;
}

macro_rules! ints {
    ($($int:ty: $word:ty),*) => {$(
        impl Int for $int {
            type Word = $word;
            const ZERO: Self = 0;
            #[inline]
            fn of(word: $word) -> Self { word as $int }
            #[inline]
            fn word(self) -> $word { self as $word }
            #[inline]
            fn add(self, b: Self) -> Self { self.wrapping_add(b) }
            #[inline]
            fn sub(self, b: Self) -> Self { self.wrapping_sub(b) }
            #[inline]
            fn mul(self, b: Self) -> Self { self.wrapping_mul(b) }
            #[inline]
            fn div(self, b: Self) -> Self { self.wrapping_div(b) }
            #[inline]
            fn rem(self, b: Self) -> Self { self.wrapping_rem(b) }
            #[inline]
            fn shl(self, b: Self) -> Self {
                let by = b as $word;
                if u64::from(by) < u64::from(<$word>::BITS) { self.wrapping_shl(by as u32) } else { 0 }
            }
            #[inline]
            fn shr(self, b: Self) -> Self {
                // A shift by the width less one leaves nothing but the sign.
                let by = b as $word;
                let inside = u64::from(by) < u64::from(<$word>::BITS);
                if inside {
                    self.wrapping_shr(by as u32)
                } else if self < Self::ZERO {
                    Self::ZERO.wrapping_sub(1)
                } else {
                    Self::ZERO
                }
            }
        }
    )*};
}

ints!(i8: u8, u8: u8, i32: u32, u32: u32, i64: u64, u64: u64);

fn int_binary<I: Int>(
    op: BinaryOp,
    a: &Elements,
    b: &Elements,
    out: &mut Elements,
) -> Result<(), EvalError> {
    fn each<I: Int>(a: &[I::Word], b: &[I::Word], out: &mut Elements, f: impl Fn(I, I) -> I) {
        let values = a.iter().zip(b).map(|(&a, &b)| f(I::of(a), I::of(b)).word());
        out.vec_mut::<I::Word>().extend(values);
    }
    out.reset(a.dtype());
    let (a, b) = (a.slice::<I::Word>(), b.slice::<I::Word>());
    if matches!(op, BinaryOp::Div | BinaryOp::Rem)
        && let Some(index) = b.iter().position(|&b| I::of(b) == I::ZERO)
    {
        return Err(EvalError::DivisionByZero { index });
    }
    match op {
        BinaryOp::Add => each::<I>(a, b, out, I::add),
        BinaryOp::Sub => each::<I>(a, b, out, I::sub),
        BinaryOp::Mul => each::<I>(a, b, out, I::mul),
        BinaryOp::Div => each::<I>(a, b, out, I::div),
        BinaryOp::Rem => each::<I>(a, b, out, I::rem),
        BinaryOp::Min => each::<I>(a, b, out, I::min),
        BinaryOp::Max => each::<I>(a, b, out, I::max),
        BinaryOp::And => bits(a, b, out, |a, b| a & b),
        BinaryOp::Or => bits(a, b, out, |a, b| a | b),
        BinaryOp::Xor => bits(a, b, out, |a, b| a ^ b),
        BinaryOp::Shl => each::<I>(a, b, out, I::shl),
        BinaryOp::Shr => each::<I>(a, b, out, I::shr),
    }
    Ok(())
}

fn bits<W: Word>(a: &[W], b: &[W], out: &mut Elements, f: impl Fn(u64, u64) -> u64) {
    let values = a.iter().zip(b).map(|(&a, &b)| W::truncate(f(a.extend(), b.extend())));
    out.vec_mut::<W>().extend(values);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn int(op: BinaryOp, dtype: DType, a: i64, b: i64) -> i64 {
        let mask = u64::MAX >> (64 - dtype.bits());
        let code = binary_code(op, dtype, a as u64 & mask, b as u64 & mask).unwrap();
        kernel_abi::numeric::to_i64(dtype, code).unwrap()
    }

    fn float(op: BinaryOp, a: f32, b: f32) -> f32 {
        let code = |x: f32| u64::from(x.to_bits());
        f32::from_bits(binary_code(op, DType::F32, code(a), code(b)).unwrap() as u32)
    }

    #[test]
    fn integers_wrap_and_truncate() {
        assert_eq!(int(BinaryOp::Add, DType::I32, i64::from(i32::MAX), 1), i64::from(i32::MIN));
        assert_eq!(int(BinaryOp::Mul, DType::U8, 20, 20), 400 % 256);
        assert_eq!(int(BinaryOp::Div, DType::I32, -7, 2), -3);
        assert_eq!(int(BinaryOp::Rem, DType::I32, -7, 2), -1);
        let least = i64::from(i32::MIN);
        assert_eq!(int(BinaryOp::Div, DType::I32, least, -1), least);
        assert_eq!(int(BinaryOp::Rem, DType::I32, least, -1), 0);
        assert_eq!(int(BinaryOp::Min, DType::I8, -1, 1), -1);
        assert_eq!(int(BinaryOp::Max, DType::U32, -1, 1), i64::from(u32::MAX));
        assert_eq!(
            binary_code(BinaryOp::Div, DType::I32, 1, 0),
            Err(EvalError::DivisionByZero { index: 0 })
        );
    }

    #[test]
    fn wide_shifts_leave_nothing_or_the_sign() {
        assert_eq!(int(BinaryOp::Shl, DType::I32, 1, 31), i64::from(i32::MIN));
        assert_eq!(int(BinaryOp::Shl, DType::I32, 1, 32), 0);
        assert_eq!(int(BinaryOp::Shl, DType::U64, 1, 64), 0);
        assert_eq!(int(BinaryOp::Shl, DType::I32, 1, -1), 0);
        assert_eq!(int(BinaryOp::Shr, DType::I32, -8, 1), -4);
        assert_eq!(int(BinaryOp::Shr, DType::I32, -8, 40), -1);
        assert_eq!(int(BinaryOp::Shr, DType::I8, 64, 8), 0);
        assert_eq!(int(BinaryOp::Shr, DType::U32, 0xffff_fff8, 4), 0x0fff_ffff);
        assert_eq!(int(BinaryOp::Shr, DType::U32, 0xffff_fff8, 32), 0);
    }

    #[test]
    fn half_precision_is_rounded_once_from_f32() {
        // 1 + 2^-8 is the middle of two bf16 codes.
        let sum = binary_code(BinaryOp::Add, DType::Bf16, 0x3f80, 0x3b80).unwrap();
        assert_eq!(sum, 0x3f80);
        assert_eq!(binary_code(BinaryOp::Mul, DType::F16, 0x7bff, 0x4000), Ok(0x7c00));
        assert_eq!(unary_code(UnaryOp::Neg, DType::Bf16, 0x3f80), 0xbf80);
        assert_eq!(unary_code(UnaryOp::Abs, DType::F16, 0xbc00), 0x3c00);
    }

    #[test]
    fn every_nan_is_the_canonical_one() {
        assert_eq!(float(BinaryOp::Sub, f32::INFINITY, f32::INFINITY).to_bits(), 0x7fff_ffff);
        assert_eq!(float(BinaryOp::Div, -0.0, 0.0).to_bits(), 0x7fff_ffff);
        assert_eq!(float(BinaryOp::Add, -f32::NAN, 1.0).to_bits(), 0x7fff_ffff);
        assert_eq!(unary_code(UnaryOp::Neg, DType::F32, 0x7fc0_0000), 0x7fff_ffff);
        assert_eq!(float(BinaryOp::Max, f32::NAN, 2.0), 2.0);
        assert_eq!(float(BinaryOp::Div, 1.0, -0.0), f32::NEG_INFINITY);
    }

    #[test]
    fn comparisons_are_false_for_nan_but_for_ne() {
        let nan = u64::from(f32::NAN.to_bits());
        for &op in CompareOp::ALL {
            assert_eq!(compare_code(op, DType::F32, nan, nan), op == CompareOp::Ne);
        }
        let minus_one = u64::from(u32::MAX);
        assert!(compare_code(CompareOp::Lt, DType::I32, minus_one, 0));
        assert!(compare_code(CompareOp::Gt, DType::U32, minus_one, 0));
        assert!(compare_code(CompareOp::Eq, DType::Bf16, 0x8000, 0));
        assert!(compare_code(CompareOp::Ge, DType::I8, 0x7f, 0x80));
    }

    #[test]
    fn select_not_and_fma() {
        let cond = Elements::from_codes(DType::Bool, [1, 0]);
        let (a, b) = (Elements::from_f32(&[1.0, 2.0]), Elements::from_f32(&[-f32::NAN, f32::NAN]));
        let mut out = Elements::new(DType::Bool);
        select(&cond, &a, &b, &mut out);
        assert_eq!(out.codes().collect::<Vec<_>>(), [0x3f80_0000, u64::from(f32::NAN.to_bits())]);
        unary(UnaryOp::Not, &cond, &mut out);
        assert_eq!(out.codes().collect::<Vec<_>>(), [0, 1]);
        assert_eq!(unary_code(UnaryOp::Not, DType::I32, 0), u64::from(u32::MAX));
        assert_eq!(unary_code(UnaryOp::Abs, DType::I32, 0x8000_0000), 0x8000_0000);
        assert_eq!(unary_code(UnaryOp::Neg, DType::I64, 1), u64::MAX);
        fma(&a, &a, &a, &mut out);
        assert_eq!(out, Elements::from_f32(&[2.0, 6.0]));
    }
}

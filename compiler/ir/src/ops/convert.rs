//! Conversions between element types.
//!
//! To a floating-point type: rounded once, to nearest even. From a floating-point type to an integer: truncated, saturated at
//! the type's limits, a NaN gives 0. A NaN becomes the canonical one of the target type. Between integers: the low bits, extended by the sign of the source.

use kernel_abi::DType;
use kernel_abi::numeric::{bf16, canonical, f16, float_from_f32, float_from_f64, float_to_f32};

use super::elements::{Elements, Word};

/// The code in `to` of the value with code `code` in `from`.
pub fn code(from: DType, to: DType, code: u64) -> u64 {
    if from == to {
        return code;
    }
    let mask = u64::MAX >> (64 - to.bits());
    if let Some(x) = float_to_f32(from, code) {
        let integer = match to {
            DType::I8 => x as i8 as u64,
            DType::U8 => u64::from(x as u8),
            DType::I32 => x as i32 as u64,
            DType::U32 => u64::from(x as u32),
            DType::I64 => x as i64 as u64,
            DType::U64 => x as u64,
            DType::Bool => u64::from(x != 0.0),
            DType::F32
            | DType::F16
            | DType::Bf16
            | DType::E4m3
            | DType::E5m2
            | DType::E2m1
            | DType::Ue8m0 => float_from_f32(to, x).expect("`to` is floating-point"),
        };
        return integer & mask;
    }
    // The value of any integer fits i128, and `as` keeps its low bits.
    let value = match from {
        DType::I8 => i128::from(code as i8),
        DType::I32 => i128::from(code as i32),
        DType::I64 => i128::from(code as i64),
        DType::U8 | DType::U32 | DType::U64 | DType::Bool => i128::from(code),
        DType::F32
        | DType::F16
        | DType::Bf16
        | DType::E4m3
        | DType::E5m2
        | DType::E2m1
        | DType::Ue8m0 => unreachable!("handled above"),
    };
    match float_from_f64(to, to_odd(value)) {
        Some(code) => code,
        None if to == DType::Bool => u64::from(value != 0),
        None => value as u64 & mask,
    }
}

/// An integer as f64, exact up to 53 bits and odd beyond, so that rounding it once more to 32 bits or
/// less gives the same as rounding the integer.
fn to_odd(value: i128) -> f64 {
    let magnitude = value.unsigned_abs();
    let shift = (128 - magnitude.leading_zeros()).saturating_sub(53);
    let sticky = u128::from(magnitude & ((1 << shift) - 1) != 0);
    let kept = ((magnitude >> shift) | sticky) as f64 * 2f64.powi(shift as i32);
    if value < 0 { -kept } else { kept }
}

/// Replaces `out` by the elements of `x` converted to `to`.
pub fn elements(x: &Elements, to: DType, out: &mut Elements) {
    out.reset(to);
    match (x.dtype(), to) {
        (DType::Bf16, DType::F32) => map(x, out, |w| canonical(bf16::to_f32(w)).to_bits()),
        (DType::F16, DType::F32) => map(x, out, |w| canonical(f16::to_f32(w)).to_bits()),
        (DType::F32, DType::Bf16) => map(x, out, |w| bf16::from_f32(f32::from_bits(w))),
        (DType::F32, DType::F16) => map(x, out, |w| f16::from_f32(f32::from_bits(w))),
        (DType::I32, DType::F32) => map(x, out, |w: u32| (w as i32 as f32).to_bits()),
        (DType::F32, DType::I32) => map(x, out, |w| f32::from_bits(w) as i32 as u32),
        (from, to) if from == to => out.extend_from(x, 0..x.len()),
        (DType::E2m1 | DType::E4m3 | DType::E5m2 | DType::Ue8m0, to) => by_table(x, to, out),
        (from, to) => *out = Elements::from_codes(to, x.codes().map(|c| code(from, to, c))),
    }
}

/// A type of 8 bits and less has few codes: each is converted once.
fn by_table(x: &Elements, to: DType, out: &mut Elements) {
    let table = Elements::from_codes(to, (0..256).map(|c| code(x.dtype(), to, c)));
    out.gather(&table, x.slice::<u8>().iter().map(|&c| usize::from(c)));
}

fn map<A: Word, B: Word>(x: &Elements, out: &mut Elements, f: impl Fn(A) -> B) {
    out.vec_mut::<B>().extend(x.slice::<A>().iter().map(|&a| f(a)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_f32(to: DType, x: f32) -> u64 {
        code(DType::F32, to, u64::from(x.to_bits()))
    }

    #[test]
    fn floats_saturate_and_nan_is_zero() {
        assert_eq!(from_f32(DType::I32, 3e9) as i32, i32::MAX);
        assert_eq!(from_f32(DType::I32, -3e9) as i32, i32::MIN);
        assert_eq!(from_f32(DType::I32, -1.9) as i32, -1);
        assert_eq!(from_f32(DType::I8, 200.0), 127);
        assert_eq!(from_f32(DType::U8, -1.0), 0);
        assert_eq!(from_f32(DType::U64, f32::INFINITY), u64::MAX);
        assert_eq!(from_f32(DType::I64, f32::NAN), 0);
    }

    #[test]
    fn integers_keep_their_low_bits() {
        let minus_one = u64::from(u32::MAX);
        assert_eq!(code(DType::I32, DType::I64, minus_one), u64::MAX);
        assert_eq!(code(DType::U32, DType::I64, minus_one), minus_one);
        assert_eq!(code(DType::I64, DType::I8, 0x1234), 0x34);
        assert_eq!(code(DType::I8, DType::F32, 0xff), u64::from((-1f32).to_bits()));
        assert_eq!(code(DType::U64, DType::F32, u64::MAX), u64::from(2f32.powi(64).to_bits()));
        assert_eq!(code(DType::I32, DType::F32, 0x0100_0001), u64::from(16_777_216f32.to_bits()));
        assert_eq!(code(DType::Bool, DType::Bf16, 1), 0x3f80);
    }

    #[test]
    fn an_integer_is_rounded_once() {
        // Just above the middle of two bf16 codes, by less than f32 can tell.
        let above = (1i64 << 30) + (1 << 22) + 1;
        assert_eq!(code(DType::I32, DType::Bf16, above as u64), 0x4e81);
        assert_eq!(code(DType::I32, DType::Bf16, above as u64 - 1), 0x4e80);
        assert_eq!(code(DType::I64, DType::Bf16, (-above) as u64), 0xce81);
        let wide = (1u64 << 63) + (1 << 39) + 1;
        assert_eq!(code(DType::U64, DType::F32, wide), 0x5f00_0001);
        assert_eq!(code(DType::U64, DType::F32, wide - 1), 0x5f00_0000);
        assert_eq!(code(DType::I64, DType::F16, 65520), 0x7c00);
        assert_eq!(code(DType::U32, DType::F32, 0), 0);
    }

    #[test]
    fn the_vector_form_agrees_with_the_scalar_one() {
        let numbers = [0.0, -1.5, 2.5, 1e10, f32::NAN, f32::INFINITY, 1e-40, 65519.0, 3.3895e38];
        let source = Elements::from_f32(&numbers);
        for from in DType::ALL {
            let mut x = Elements::new(from);
            elements(&source, from, &mut x);
            for to in DType::ALL {
                let mut out = Elements::new(DType::F32);
                elements(&x, to, &mut out);
                assert_eq!(out.dtype(), to);
                let scalar: Vec<u64> = x.codes().map(|c| code(from, to, c)).collect();
                assert_eq!(out.codes().collect::<Vec<_>>(), scalar, "{from} to {to}");
            }
        }
    }
}

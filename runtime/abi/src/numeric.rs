//! Bit-exact numeric formats and the comparison of results.
//!
//! Every format converts to f32 without loss and from f32 with one rounding to nearest, ties to even.
//! A code travels as the low bits of a `u64`, so that one function serves every element type.
//! A NaN that a conversion makes has one code, the canonical one of the format; NaN payloads are not
//! kept.

pub mod bf16;
pub mod compare;
pub mod e2m1;
pub mod e4m3;
pub mod e5m2;
pub mod f16;
mod minifloat;
pub mod random;
pub mod ue8m0;

use crate::DType;

/// The NaN that arithmetic on f32 gives, as PTX does.
pub const CANONICAL_NAN: u32 = 0x7fff_ffff;

/// `x`, or the canonical NaN for any NaN.
#[inline]
pub fn canonical(x: f32) -> f32 {
    if x.is_nan() { f32::from_bits(CANONICAL_NAN) } else { x }
}

/// The value of a floating-point code; `None` for integers and bool.
pub fn float_to_f32(dtype: DType, bits: u64) -> Option<f32> {
    Some(match dtype {
        DType::F32 => f32::from_bits(bits as u32),
        DType::F16 => f16::to_f32(bits as u16),
        DType::Bf16 => bf16::to_f32(bits as u16),
        DType::E4m3 => e4m3::to_f32(bits as u8),
        DType::E5m2 => e5m2::to_f32(bits as u8),
        DType::E2m1 => e2m1::to_f32(bits as u8),
        DType::Ue8m0 => ue8m0::to_f32(bits as u8),
        DType::I8 | DType::U8 | DType::I32 | DType::U32 | DType::I64 | DType::U64 | DType::Bool => {
            return None;
        }
    })
}

/// The code of `x` in a floating-point type, rounded to nearest even; `None` for integers and bool.
pub fn float_from_f32(dtype: DType, x: f32) -> Option<u64> {
    Some(match dtype {
        DType::F32 => u64::from(canonical(x).to_bits()),
        DType::F16 => u64::from(f16::from_f32(x)),
        DType::Bf16 => u64::from(bf16::from_f32(x)),
        DType::E4m3 => u64::from(e4m3::from_f32(x)),
        DType::E5m2 => u64::from(e5m2::from_f32(x)),
        DType::E2m1 => u64::from(e2m1::from_f32(x)),
        DType::Ue8m0 => u64::from(ue8m0::from_f32(x)),
        DType::I8 | DType::U8 | DType::I32 | DType::U32 | DType::I64 | DType::U64 | DType::Bool => {
            return None;
        }
    })
}

/// The code of `x` in a floating-point type with a single rounding; `None` for integers and bool.
pub fn float_from_f64(dtype: DType, x: f64) -> Option<u64> {
    if dtype == DType::F32 {
        float_from_f32(dtype, x as f32)
    } else {
        float_from_f32(dtype, to_odd(x))
    }
}

/// `x` rounded to f32 so that an inexact result is odd: rounding it once more, to a format with at
/// most 22 bits of precision, gives the same code as rounding `x` itself.
fn to_odd(x: f64) -> f32 {
    let near = x as f32;
    if near.is_nan() || near.is_infinite() && x.is_infinite() || f64::from(near) == x {
        return near;
    }
    // The neighbour of `near` toward zero truncates `x` when `near` was rounded away from zero.
    let magnitude = near.abs().to_bits();
    let truncated = if f64::from(near.abs()) > x.abs() || near.is_infinite() {
        magnitude - 1
    } else {
        magnitude
    };
    f32::from_bits((truncated | 1) | (near.to_bits() & 0x8000_0000))
}

/// The value of any code as f64, for comparing and printing; integers of 64 bits are rounded.
pub fn to_f64(dtype: DType, bits: u64) -> f64 {
    match dtype {
        DType::F32
        | DType::F16
        | DType::Bf16
        | DType::E4m3
        | DType::E5m2
        | DType::E2m1
        | DType::Ue8m0 => float_to_f32(dtype, bits).map_or(f64::NAN, f64::from),
        DType::I8 => f64::from(bits as i8),
        DType::U8 => f64::from(bits as u8),
        DType::I32 => f64::from(bits as i32),
        DType::U32 => f64::from(bits as u32),
        DType::I64 => bits as i64 as f64,
        DType::U64 => bits as f64,
        DType::Bool => f64::from(u8::from(bits & 1 == 1)),
    }
}

/// The value of an integer or bool code; `None` for floating-point types and for what i64 cannot hold.
pub fn to_i64(dtype: DType, bits: u64) -> Option<i64> {
    match dtype {
        DType::I8 => Some(i64::from(bits as i8)),
        DType::U8 => Some(i64::from(bits as u8)),
        DType::I32 => Some(i64::from(bits as i32)),
        DType::U32 => Some(i64::from(bits as u32)),
        DType::I64 => Some(bits as i64),
        DType::U64 => i64::try_from(bits).ok(),
        DType::Bool => Some((bits & 1) as i64),
        DType::F32
        | DType::F16
        | DType::Bf16
        | DType::E4m3
        | DType::E5m2
        | DType::E2m1
        | DType::Ue8m0 => None,
    }
}

/// Number of elements that `bytes` bytes of `dtype` hold.
pub fn elements_in(dtype: DType, bytes: usize) -> usize {
    match dtype.bytes() {
        Some(size) => bytes / size as usize,
        None => bytes * 2,
    }
}

/// Bytes that `elements` elements take in memory.
pub fn bytes_of(dtype: DType, elements: usize) -> usize {
    match dtype.bytes() {
        Some(size) => elements * size as usize,
        None => elements.div_ceil(2),
    }
}

/// The code of element `index` in little-endian memory; `None` past the end.
pub fn read_element(dtype: DType, bytes: &[u8], index: usize) -> Option<u64> {
    match dtype.bytes() {
        None => {
            let byte = bytes.get(index / 2)?;
            Some(u64::from(if index.is_multiple_of(2) { byte & 0xf } else { byte >> 4 }))
        }
        Some(size) => {
            let at = index.checked_mul(size as usize)?;
            let code = bytes.get(at..at.checked_add(size as usize)?)?;
            Some(code.iter().rev().fold(0, |bits, &b| bits << 8 | u64::from(b)))
        }
    }
}

/// Writes the code of element `index` to little-endian memory; false past the end.
pub fn write_element(dtype: DType, bytes: &mut [u8], index: usize, bits: u64) -> bool {
    match dtype.bytes() {
        None => {
            let Some(byte) = bytes.get_mut(index / 2) else { return false };
            let code = (bits & 0xf) as u8;
            *byte = if index.is_multiple_of(2) {
                *byte & 0xf0 | code
            } else {
                *byte & 0x0f | code << 4
            };
            true
        }
        Some(size) => {
            let size = size as usize;
            let Some(at) = index.checked_mul(size) else { return false };
            let Some(slot) = bytes.get_mut(at..at.saturating_add(size)) else { return false };
            slot.copy_from_slice(&bits.to_le_bytes()[..size]);
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_double_is_rounded_once() {
        // Just above the middle of two bf16 codes, by less than f32 can tell.
        let x = 1.0 + 2f64.powi(-8) + 2f64.powi(-40);
        assert_eq!(float_from_f64(DType::Bf16, x), Some(0x3f81));
        assert_eq!(float_from_f32(DType::Bf16, x as f32), Some(0x3f80), "two roundings lose it");
        assert_eq!(float_from_f64(DType::Bf16, -x), Some(0xbf81));
        assert_eq!(float_from_f64(DType::F16, 65520.0), Some(0x7c00));
        assert_eq!(float_from_f64(DType::F16, 65520.0 - 1e-9), Some(0x7bff));
        assert_eq!(float_from_f64(DType::Bf16, f64::MAX), Some(0x7f80));
        assert_eq!(float_from_f64(DType::F32, 1e-50), Some(0));
        assert_eq!(float_from_f64(DType::Bf16, 1e-50), Some(0));
        assert_eq!(float_from_f64(DType::Bf16, f64::NEG_INFINITY), Some(0xff80));
        assert_eq!(float_from_f64(DType::I32, 1.0), None);
    }

    #[test]
    fn elements_travel_through_memory() {
        for dtype in DType::ALL {
            let mut memory = vec![0u8; 40];
            let mask = if dtype.bits() == 64 { u64::MAX } else { (1 << dtype.bits()) - 1 };
            for i in 0..5 {
                let code = 0x9182_7364_5546_3728u64.rotate_left(7 * i) & mask;
                assert!(write_element(dtype, &mut memory, i as usize, code));
            }
            for i in 0..5 {
                let code = 0x9182_7364_5546_3728u64.rotate_left(7 * i) & mask;
                assert_eq!(read_element(dtype, &memory, i as usize), Some(code));
            }
            assert_eq!(read_element(dtype, &memory, usize::MAX), None);
            assert!(!write_element(dtype, &mut memory, usize::MAX, 0));
            assert_eq!(elements_in(dtype, bytes_of(dtype, 6)), 6);
        }
    }
}

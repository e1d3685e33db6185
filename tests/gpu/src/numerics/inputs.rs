//! What goes into a measurement: all codes, random bits, and values near to where roundings go wrong.

use kernel_abi::DType;
use kernel_abi::numeric::random::word;
use kernel_abi::numeric::{bytes_of, float_from_f64, write_element};

/// A way to choose inputs. The values of one element depend on seed and number alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Set {
    /// All codes of a type of at most 16 bits, all bf16 for f32; further operands are random bits.
    Codes,
    /// Random bits; one of sixteen is an edge: zeros, ones, limits, subnormals, infinities, NaN.
    Words,
    /// Uniform in a range.
    Between(f64, f64),
    /// Operands that nearly cancel: `b` is `a` with other low bits and maybe another sign, `c` nearly `-a * b`.
    Near,
    /// Halfway between two numbers of fewer bits, or one code beside it.
    Ties,
    /// Every f32.
    Every,
    /// Signs, exponents from -8 to 8, random fractions; running values have exponents from -20 to 20.
    Scales,
    /// Positive and from 1 to 2, so that nothing cancels and sums grow.
    Alike,
    /// Products in pairs that cancel, but for some small ones; a running value that cancels the first product.
    Cancelling,
    /// Whole numbers from -8 to 8, whose sums are exact.
    Whole,
}

impl Set {
    /// In the report.
    pub(crate) fn name(self) -> String {
        match self {
            Set::Codes => "all codes of at most 16 bits".to_owned(),
            Set::Words => "uniform over bit patterns".to_owned(),
            Set::Between(from, to) => format!("uniform from {from} to {to}"),
            Set::Near => "operands that nearly cancel".to_owned(),
            Set::Ties => "ties and their neighbours".to_owned(),
            Set::Every => "every f32".to_owned(),
            Set::Scales => "exponents from -8 to 8".to_owned(),
            Set::Alike => "uniform from 1 to 2, nothing cancels".to_owned(),
            Set::Cancelling => "products that cancel".to_owned(),
            Set::Whole => "whole numbers from -8 to 8".to_owned(),
        }
    }

    /// How many different elements there are; nothing where there is no end of them.
    pub(crate) fn elements(self) -> Option<u64> {
        match self {
            Set::Codes => Some(1 << 16),
            Set::Every => Some(1 << 32),
            Set::Words
            | Set::Between(..)
            | Set::Near
            | Set::Ties
            | Set::Scales
            | Set::Alike
            | Set::Cancelling
            | Set::Whole => None,
        }
    }
}

/// Where an element stands: the operand, and the number of the element; for products the extents of a matrix too.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// Of the parameter: 0 is `a` or `x`.
    pub(crate) operand: u64,
    pub(crate) dtype: DType,
    /// Of the first element.
    pub(crate) first: u64,
    /// Products of one output, for [`Set::Cancelling`].
    pub(crate) depth: u64,
}

/// Little-endian memory of so many elements.
pub(crate) fn bytes(set: Set, place: Place, elements: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; bytes_of(place.dtype, elements)];
    for index in 0..elements {
        let code = code(set, place, place.first + index as u64, seed);
        // The memory holds all elements.
        let _ = write_element(place.dtype, &mut bytes, index, code);
    }
    bytes
}

fn code(set: Set, place: Place, index: u64, seed: u64) -> u64 {
    let Place { operand, dtype, depth, .. } = place;
    let mask = u64::MAX >> (64 - dtype.bits());
    let random = |stream: u64| word(seed, operand + 16 * stream, index);
    if dtype == DType::Bool {
        return if set == Set::Codes { index % 2 } else { random(0) % 2 };
    }
    match set {
        Set::Codes if operand == 0 && dtype == DType::F32 => (index & 0xffff) << 16,
        Set::Codes if operand == 0 => index & mask,
        Set::Codes | Set::Words => {
            let w = random(0);
            if w >> 60 == 0 { edge(dtype, random(1)) & mask } else { random(1) & mask }
        }
        Set::Between(from, to) => {
            let unit = (random(0) >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0);
            rounded(dtype, from + (to - from) * unit)
        }
        Set::Near => near(dtype, operand, seed, index) & mask,
        Set::Ties => tie(dtype, random(0), random(1)) & mask,
        Set::Every => index & mask,
        Set::Scales => {
            let reach = if dtype == DType::F32 { 20 } else { 8 };
            let exponent = (random(1) % (2 * reach + 1)) as i32 - reach as i32;
            rounded(dtype, signed_fraction(random(0)) * 2f64.powi(exponent))
        }
        Set::Alike => rounded(dtype, signed_fraction(random(0) & !1)),
        Set::Cancelling => rounded(dtype, cancelling(place, index, seed, depth)),
        Set::Whole => rounded(dtype, (random(0) % 17) as f64 - 8.0),
    }
}

fn rounded(dtype: DType, value: f64) -> u64 {
    let mask = u64::MAX >> (64 - dtype.bits());
    float_from_f64(dtype, value).unwrap_or(value as i64 as u64 & mask)
}

/// From 1 to 2, with a sign.
fn signed_fraction(w: u64) -> f64 {
    let fraction = 1.0 + (w >> 12) as f64 * (1.0 / 4_503_599_627_370_496.0);
    if w & 1 == 0 { fraction } else { -fraction }
}

/// Fraction and exponent bits of a float.
fn layout(dtype: DType) -> Option<(u32, u32)> {
    match dtype {
        DType::F32 => Some((23, 8)),
        DType::F16 => Some((10, 5)),
        DType::Bf16 => Some((7, 8)),
        DType::E4m3 => Some((3, 4)),
        DType::E5m2 => Some((2, 5)),
        DType::E2m1
        | DType::Ue8m0
        | DType::I8
        | DType::U8
        | DType::I32
        | DType::U32
        | DType::I64
        | DType::U64
        | DType::Bool => None,
    }
}

fn edge(dtype: DType, w: u64) -> u64 {
    let bits = dtype.bits();
    let sign = (w >> 8 & 1) << (bits - 1);
    let Some((fraction, exponent)) = layout(dtype) else {
        let all = u64::MAX >> (64 - bits);
        let edges =
            [0, 1, 2, all, all - 1, 1 << (bits - 1), all >> 1, 1 << ((w >> 16) % u64::from(bits))];
        return edges[(w % 8) as usize];
    };
    let infinity = ((1u64 << exponent) - 1) << fraction;
    let one = ((1u64 << (exponent - 1)) - 1) << fraction;
    let normal = 1u64 << fraction;
    let edges = [
        0,
        1,
        normal - 1,
        normal,
        normal + 1,
        one,
        one - 1,
        one + 1,
        infinity - 1,
        infinity,
        infinity + 1,
        one + normal,
    ];
    sign | edges[(w >> 16) as usize % edges.len()]
}

/// One of three operands that belong together.
fn near(dtype: DType, operand: u64, seed: u64, index: u64) -> u64 {
    let w = |stream: u64| word(seed, 1024 + stream, index);
    let (a, low) = (w(0), w(1) & ((1 << (w(2) % 13)) - 1));
    let Some((fraction, exponent)) = layout(dtype) else {
        // Quotients and remainders of neighbours.
        return if operand == 0 { a } else { a ^ low };
    };
    // In the middle half of the exponents, so that products stay finite.
    let middle = (1u64 << (exponent - 2)) + (a >> 40) % ((1 << (exponent - 1)) - 2);
    let a = a & ((1 << fraction) - 1) | middle << fraction | (a >> 39 & 1) << (fraction + exponent);
    let b = a ^ low & ((1 << fraction) - 1) ^ (w(3) & 1) << (fraction + exponent);
    match operand {
        0 => a,
        1 => b,
        _ => {
            let [a, b] = [a, b].map(|code| f32::from_bits(code as u32));
            u64::from((-(a * b)).to_bits()) ^ (w(4) % 4 / 3)
        }
    }
}

/// A number with one bit behind a random place, or one code beside it.
fn tie(dtype: DType, w: u64, place: u64) -> u64 {
    let beside = (place >> 32) % 3;
    let Some((fraction, exponent)) = layout(dtype) else {
        let keep = place % u64::from(dtype.bits());
        let value = (w | 1 << 63) >> keep;
        let cut = (place >> 8) % 40;
        let value = if cut == 0 { value } else { value >> cut << cut | 1 << (cut - 1) };
        return (if place >> 40 & 1 == 0 { value } else { value.wrapping_neg() })
            .wrapping_add(beside)
            .wrapping_sub(1);
    };
    let cut = 1 + place % u64::from(fraction);
    let number = w & ((1 << fraction) - 1) & !((1 << cut) - 1) | 1 << (cut - 1);
    // Where the narrower types have their numbers, or anywhere.
    let bias = (1u64 << (exponent - 1)) - 1;
    let exponents =
        if place >> 41 & 1 == 0 { (w >> 40) % (1 << exponent) } else { bias - 26 + (w >> 40) % 52 };
    let sign = (w >> 32 & 1) << (fraction + exponent);
    (sign | exponents << fraction | number).wrapping_add(beside).wrapping_sub(1)
}

/// Elements of the operands of a product whose terms cancel in pairs; every eighth pair is small and does not.
fn cancelling(place: Place, index: u64, seed: u64, depth: u64) -> f64 {
    let value = |operand: u64, index: u64| {
        let k = index % depth;
        let pair = index / 2;
        let is_small = k / 2 % 8 == 7;
        let random = word(seed, operand, if is_small { index } else { pair });
        let value = signed_fraction(random);
        match (is_small, operand, k % 2) {
            (true, ..) => value * 2f64.powi(-((random >> 2) as i32 & 7)),
            (false, 1, 1) => -value,
            (false, ..) => value,
        }
    };
    if place.operand < 2 {
        return value(place.operand, index);
    }
    // The running value of row `r` and column `q` of a matrix of 64 by 64: minus a product, nearly.
    let (matrix, r, q) = (index / 4096, index / 64 % 64, index % 64);
    let first = |row: u64| (matrix * 64 + row) * depth;
    -value(0, first(r)) * value(1, first(q))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(set: Set, operand: u64, dtype: DType, elements: usize) -> Vec<u64> {
        let place = Place { operand, dtype, first: 0, depth: 16 };
        (0..elements as u64).map(|index| code(set, place, index, 5)).collect()
    }

    #[test]
    fn all_codes_are_met() {
        let mut all = codes(Set::Codes, 0, DType::F32, 1 << 16);
        all.sort_unstable();
        all.dedup();
        assert_eq!((all.len(), all[1]), (1 << 16, 1 << 16));
        assert_eq!(codes(Set::Codes, 0, DType::E4m3, 256), (0..256).collect::<Vec<u64>>());
    }

    #[test]
    fn edges_are_among_random_bits() {
        let words = codes(Set::Words, 0, DType::F32, 4096);
        for wanted in [0, 0x8000_0000, 1, 0x7f80_0000, 0xff80_0000, 0x7f80_0001, 0x3f80_0000] {
            assert!(words.contains(&wanted), "{wanted:x}");
        }
        let words = codes(Set::Words, 1, DType::I64, 4096);
        assert!(words.contains(&(1 << 63)) && words.contains(&u64::MAX));
    }

    #[test]
    fn operands_nearly_cancel_and_stay_finite() {
        let [a, b, c] = [0, 1, 2].map(|operand| codes(Set::Near, operand, DType::F32, 2000));
        for ((a, b), c) in a.into_iter().zip(b).zip(c) {
            let [a, b, c] = [a, b, c].map(|code| f64::from(f32::from_bits(code as u32)));
            assert!((a.abs() - b.abs()).abs() < a.abs() * 1e-3, "{a} {b}");
            assert!((a * b + c).abs() <= (a * b).abs() * 1e-6, "{a} * {b} + {c}");
        }
    }

    #[test]
    fn ties_lie_between_two_narrower_numbers() {
        let all = codes(Set::Ties, 0, DType::F32, 30_000);
        let is_tie = |code: &&u64| **code & 0x1_ffff == 0x8000;
        assert!(all.iter().filter(is_tie).count() > 100);
        assert!(codes(Set::Ties, 0, DType::I32, 1000).iter().all(|code| *code <= 0xffff_ffff));
    }

    #[test]
    fn products_cancel_in_pairs() {
        let [a, b, c] = [(0, DType::Bf16), (1, DType::Bf16), (2, DType::F32)]
            .map(|(operand, dtype)| codes(Set::Cancelling, operand, dtype, 64 * 16));
        let value = |dtype, code: u64| kernel_abi::numeric::to_f64(dtype, code);
        let sum: f64 = (0..14).map(|k| value(DType::Bf16, a[k]) * value(DType::Bf16, b[k])).sum();
        assert_eq!(sum, 0.0);
        assert!(
            (value(DType::F32, c[0]) + value(DType::Bf16, a[0]) * value(DType::Bf16, b[0])).abs()
                < 0.05
        );
        let whole = codes(Set::Whole, 0, DType::F16, 100);
        assert!(whole.iter().all(|code| value(DType::F16, *code).fract() == 0.0));
    }
}

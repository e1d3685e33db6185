//! Reproducible test data, element by element, so that any language can make the same.
//!
//! All arithmetic is on 64-bit words and wraps. With `mix` the finaliser of splitmix64 and
//! `G = 0x9e3779b97f4a7c15`:
//!
//! ```text
//! mix(z):  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9
//!          z = (z ^ z >> 27) * 0x94d049bb133111eb
//!          return z ^ z >> 31
//! word(seed, stream, i) = mix(mix(seed + G * (stream + 1)) + G * (i + 1))
//! ```
//!
//! `stream` is the number of the kernel parameter, `i` the element. With `w = word(seed, stream, i)`:
//!
//! * f32, f16, bf16, e4m3, e5m2: `(w >> 40) * 2^-23 - 1`, in [-1, 1), rounded to the type;
//! * e2m1: code `w % 16`; ue8m0: code `120 + w % 15`, that is 2^-7 to 2^7;
//! * bool: `w % 2`;
//! * integers with a range: `lo + w % (hi - lo)`; without one, `lo..hi` is `-8..8` for signed and
//!   `0..16` for unsigned types;
//! * distinct integers: the candidates are `lo, lo + 1, …` without the exception, at most `max(4 * len, 1024)`
//!   of them; they are sorted by `word(seed, stream, k)` of the `k`-th candidate, ties to the lower `k`;
//!   the first `len` are the elements. Where there are too few, the rest is the exception.
//!
//! In numpy the distinct form is `candidates[argsort(words, kind="stable")][:len]`.

use std::ops::Range;

use thiserror::Error;

use super::float_from_f32;
use crate::DType;

const G: u64 = 0x9e37_79b9_7f4a_7c15;

/// What random integers must obey.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntRange {
    /// Values are at least the start and below the end.
    pub range: Range<i64>,
    /// No value occurs twice, but for the exception.
    pub distinct: Option<Distinct>,
}

/// No value occurs twice, but for the exception.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Distinct {
    /// The value that may repeat.
    pub except: Option<i64>,
}

/// Why no such data exists.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RandomError {
    /// The range holds no value.
    #[error("the range {}..{} is empty", .0.start, .0.end)]
    Empty(Range<i64>),
    /// Too few values for so many distinct elements, and no exception to repeat.
    #[error("{len} distinct elements need a range of as many values, {candidates} are there")]
    TooFew {
        /// Elements asked for.
        len: usize,
        /// Values that the range holds.
        candidates: usize,
    },
}

/// The finaliser of splitmix64.
fn mix(z: u64) -> u64 {
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// The word of element `i`.
pub fn word(seed: u64, stream: u64, i: u64) -> u64 {
    let key = mix(seed.wrapping_add(G.wrapping_mul(stream.wrapping_add(1))));
    mix(key.wrapping_add(G.wrapping_mul(i.wrapping_add(1))))
}

/// Codes of `len` random elements, by the recipe of this module. Floating-point types have no range.
pub fn codes(
    dtype: DType,
    len: usize,
    seed: u64,
    stream: u64,
    range: Option<&IntRange>,
) -> Result<Vec<u64>, RandomError> {
    let words = (0..len as u64).map(|i| word(seed, stream, i));
    match dtype {
        DType::F32 | DType::F16 | DType::Bf16 | DType::E4m3 | DType::E5m2 => {
            let code = |w| float_from_f32(dtype, unit(w)).expect("these types are floating-point");
            Ok(words.map(code).collect())
        }
        DType::E2m1 => Ok(words.map(|w| w % 16).collect()),
        DType::Ue8m0 => Ok(words.map(|w| 120 + w % 15).collect()),
        DType::Bool => Ok(words.map(|w| w % 2).collect()),
        DType::I8 | DType::U8 | DType::I32 | DType::U32 | DType::I64 | DType::U64 => {
            let small = if dtype.is_signed_int() { -8..8 } else { 0..16 };
            let default = IntRange { range: small, distinct: None };
            let ints = integers(len, seed, stream, range.unwrap_or(&default))?;
            let mask = u64::MAX >> (64 - dtype.bits());
            Ok(ints.into_iter().map(|v| v as u64 & mask).collect())
        }
    }
}

/// A number in [-1, 1) from the upper 24 bits of a word.
fn unit(w: u64) -> f32 {
    (w >> 40) as f32 * f32::from_bits(0x3400_0000) - 1.0
}

fn integers(len: usize, seed: u64, stream: u64, range: &IntRange) -> Result<Vec<i64>, RandomError> {
    let Range { start, end } = range.range;
    let size = i128::from(end) - i128::from(start);
    if size <= 0 && len > 0 {
        return Err(RandomError::Empty(range.range.clone()));
    }
    let size = u64::try_from(size).unwrap_or(0);
    let Some(distinct) = range.distinct else {
        let at = |i| start.wrapping_add((word(seed, stream, i) % size) as i64);
        return Ok((0..len as u64).map(at).collect());
    };
    let most = len.saturating_mul(4).max(1024);
    let candidates = (start..end).filter(|v| Some(*v) != distinct.except).take(most);
    let mut keyed: Vec<(u64, i64)> =
        candidates.zip(0..).map(|(v, k)| (word(seed, stream, k), v)).collect();
    keyed.sort_by_key(|&(key, _)| key);
    let found = keyed.len();
    let mut values: Vec<i64> = keyed.into_iter().take(len).map(|(_, v)| v).collect();
    match distinct.except {
        Some(except) => values.resize(len, except),
        None if values.len() < len => {
            return Err(RandomError::TooFew { len, candidates: found });
        }
        None => {}
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recipe_is_fixed() {
        // The finaliser is that of splitmix64: from seed 0 its first output is mix(G).
        assert_eq!(mix(G), 0xe220_a839_7b1d_cdaf);
        // What the numpy form of docs/numerics.md gives.
        assert_eq!(word(9, 1, 0), 0x1c62_5d96_9bf0_f5e2);
        assert_eq!(word(9, 1, 2), 0xd755_09f1_ddf7_cbab);
        assert_eq!(unit(word(9, 1, 1)), 0.490_508_44);
        assert_eq!(unit(0), -1.0);
        assert_eq!(unit(u64::MAX), 1.0 - 2f32.powi(-23));
        let a = codes(DType::F32, 4, 7, 0, None).unwrap();
        assert_eq!(a[2], codes(DType::F32, 9, 7, 0, None).unwrap()[2], "elements are independent");
        assert_ne!(a, codes(DType::F32, 4, 7, 1, None).unwrap());
        assert_ne!(a, codes(DType::F32, 4, 8, 0, None).unwrap());
    }

    #[test]
    fn ranges_and_distinctness_hold() {
        let range = IntRange { range: 3..10, distinct: None };
        let drawn = codes(DType::I32, 1000, 1, 0, Some(&range)).unwrap();
        assert!(drawn.iter().all(|v| (3..10).contains(v)));
        assert!((3..10).all(|v| drawn.contains(&v)));
        let distinct = Some(Distinct { except: Some(0) });
        let range = IntRange { range: 0..5, distinct };
        let mut drawn = codes(DType::I32, 6, 1, 0, Some(&range)).unwrap();
        drawn.sort_unstable();
        assert_eq!(drawn, [0, 0, 1, 2, 3, 4]);
        let range = IntRange { range: 0..5, distinct: Some(Distinct { except: None }) };
        assert_eq!(
            codes(DType::I32, 6, 1, 0, Some(&range)),
            Err(RandomError::TooFew { len: 6, candidates: 5 })
        );
        let empty = IntRange { range: 5..5, distinct: None };
        assert!(codes(DType::I32, 1, 1, 0, Some(&empty)).is_err());
        assert_eq!(codes(DType::I8, 50, 1, 0, None).unwrap().iter().max(), Some(&255));
    }
}

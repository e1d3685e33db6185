//! How results are compared: bits, distance in codes, closeness per element, relative L2.

use std::fmt;

use thiserror::Error;

use super::{bytes_of, read_element, to_f64};
use crate::DType;

/// What counts as equal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Tolerance {
    /// The same bits; NaNs of different codes differ.
    Bits,
    /// At most so many codes apart; a NaN matches any NaN.
    Ulp(u64),
    /// Each element: `|got - want| <= relative * |want| + of_rms * rms(want)`.
    Close {
        /// Share of the element's own magnitude.
        relative: f64,
        /// Share of the root mean square of all wanted elements: the room that cancellation needs.
        of_rms: f64,
    },
    /// The whole: `||got - want|| <= bound * ||want||`.
    RelativeL2(f64),
}

impl Tolerance {
    /// For a kernel whose result of type `dtype` is compared with its formula in f64: sums in f32, one
    /// rounding to `dtype`. Integers must agree in bits.
    pub const fn formula(dtype: DType) -> Tolerance {
        match dtype {
            DType::F32 => Tolerance::Close { relative: 2e-6, of_rms: 1e-5 },
            DType::F16 => Tolerance::Close { relative: 1e-3, of_rms: 1e-3 },
            DType::Bf16 => Tolerance::Close { relative: 8e-3, of_rms: 4e-3 },
            DType::E4m3 => Tolerance::Close { relative: 0.125, of_rms: 0.02 },
            DType::E5m2 => Tolerance::Close { relative: 0.25, of_rms: 0.02 },
            DType::E2m1
            | DType::Ue8m0
            | DType::I8
            | DType::U8
            | DType::I32
            | DType::U32
            | DType::I64
            | DType::U64
            | DType::Bool => Tolerance::Bits,
        }
    }

    /// For activations of a model run in `dtype` against goldens made without rounding, over all
    /// elements of a tensor: the suggested columns of the table in kimi-k3-mini's description (measured:
    /// bf16 0.011 on average, f32 6e-7).
    pub const fn model(dtype: DType) -> Tolerance {
        match dtype {
            DType::F32 => Tolerance::RelativeL2(1e-5),
            DType::F16 => Tolerance::RelativeL2(4e-3),
            DType::Bf16 => Tolerance::RelativeL2(0.03),
            DType::E4m3 => Tolerance::RelativeL2(0.06),
            DType::E5m2 | DType::E2m1 => Tolerance::RelativeL2(0.12),
            DType::Ue8m0
            | DType::I8
            | DType::U8
            | DType::I32
            | DType::U32
            | DType::I64
            | DType::U64
            | DType::Bool => Tolerance::Bits,
        }
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tolerance::Bits => f.write_str("equal bits"),
            Tolerance::Ulp(n) => write!(f, "at most {n} ulp"),
            Tolerance::Close { relative, of_rms } => {
                write!(f, "within {relative:e} of the element + {of_rms:e} of the rms")
            }
            Tolerance::RelativeL2(bound) => write!(f, "relative L2 at most {bound:e}"),
        }
    }
}

/// Two tensors that cannot be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{what} has {found} bytes, the shape needs {needed}")]
pub struct SizeError {
    /// Which of the two.
    pub what: &'static str,
    /// Bytes found.
    pub found: usize,
    /// Bytes of the shape.
    pub needed: usize,
}

/// One element that differs.
#[derive(Debug, Clone, PartialEq)]
pub struct Mismatch {
    /// Its place, outermost axis first.
    pub coordinate: Vec<usize>,
    /// Code that was found.
    pub got_bits: u64,
    /// Code that was wanted.
    pub want_bits: u64,
    /// Value that was found.
    pub got: f64,
    /// Value that was wanted.
    pub want: f64,
    /// Codes between them.
    pub ulp: u64,
}

/// What a comparison found.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Element type of both.
    pub dtype: DType,
    /// What counted as equal.
    pub tolerance: Tolerance,
    /// Elements compared.
    pub elements: usize,
    /// Elements whose bits differ.
    pub different_bits: usize,
    /// Elements outside the tolerance; for relative L2 all different ones when the whole is outside.
    pub outside: usize,
    /// Greatest distance in codes; `u64::MAX` for a NaN against a number.
    pub max_ulp: u64,
    /// Greatest absolute difference.
    pub max_abs: f64,
    /// `||got - want|| / ||want||`; infinite where a NaN or infinity has no match.
    pub relative_l2: f64,
    /// The first element outside the tolerance.
    pub first: Option<Mismatch>,
}

impl Comparison {
    /// True when nothing is outside the tolerance.
    pub fn holds(&self) -> bool {
        self.outside == 0
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {} elements outside ({}); {} differ in bits, at most {} ulp, {:.3e} absolute, \
             relative L2 {:.3e}",
            self.outside,
            self.elements,
            self.tolerance,
            self.different_bits,
            self.max_ulp,
            self.max_abs,
            self.relative_l2,
        )?;
        let Some(m) = &self.first else { return Ok(()) };
        let digits = self.dtype.bits().div_ceil(4) as usize;
        write!(
            f,
            "; first at {:?}: {} (0x{:0digits$x}), wanted {} (0x{:0digits$x})",
            m.coordinate, m.got, m.got_bits, m.want, m.want_bits,
        )
    }
}

/// The number of codes between two codes; `u64::MAX` for a NaN against a number, 0 for two NaNs.
pub fn ulp_distance(dtype: DType, a: u64, b: u64) -> u64 {
    let nan = |bits| dtype.is_float() && to_f64(dtype, bits).is_nan();
    match (nan(a), nan(b)) {
        (true, true) => 0,
        (false, false) => {
            u64::try_from((rank(dtype, a) - rank(dtype, b)).unsigned_abs()).unwrap_or(u64::MAX)
        }
        (true, false) | (false, true) => u64::MAX,
    }
}

/// The code as an integer that is ordered as the values are; both zeros are 0.
fn rank(dtype: DType, bits: u64) -> i128 {
    match dtype {
        DType::F32 | DType::F16 | DType::Bf16 | DType::E4m3 | DType::E5m2 | DType::E2m1 => {
            let sign = 1u64 << (dtype.bits() - 1);
            let magnitude = i128::from(bits & (sign - 1));
            if bits & sign == 0 { magnitude } else { -magnitude }
        }
        DType::Ue8m0 | DType::U8 | DType::U32 | DType::U64 | DType::Bool => i128::from(bits),
        DType::I8 => i128::from(bits as i8),
        DType::I32 => i128::from(bits as i32),
        DType::I64 => i128::from(bits as i64),
    }
}

/// Compares two tensors of one dtype and shape, given as little-endian bytes.
pub fn compare(
    dtype: DType,
    shape: &[usize],
    got: &[u8],
    want: &[u8],
    tolerance: Tolerance,
) -> Result<Comparison, SizeError> {
    let elements: usize = shape.iter().product();
    let needed = bytes_of(dtype, elements);
    for (what, bytes) in [("the result", got), ("the reference", want)] {
        if bytes.len() != needed {
            return Err(SizeError { what, found: bytes.len(), needed });
        }
    }
    let pair = |i| {
        let at = |bytes| read_element(dtype, bytes, i).expect("the sizes were checked");
        (at(got), at(want))
    };
    let mut c = Comparison {
        dtype,
        tolerance,
        elements,
        different_bits: 0,
        outside: 0,
        max_ulp: 0,
        max_abs: 0.0,
        relative_l2: 0.0,
        first: None,
    };
    let (mut error, mut norm) = (0.0f64, 0.0f64);
    for (g, w) in (0..elements).map(pair) {
        let want = to_f64(dtype, w);
        if want.is_finite() {
            norm += want * want;
        }
        if g == w {
            continue;
        }
        c.different_bits += 1;
        c.max_ulp = c.max_ulp.max(ulp_distance(dtype, g, w));
        let difference = difference(to_f64(dtype, g), want);
        c.max_abs = c.max_abs.max(difference);
        error += difference * difference;
    }
    let rms = if elements == 0 { 0.0 } else { (norm / elements as f64).sqrt() };
    c.relative_l2 = if error == 0.0 { 0.0 } else { (error / norm).sqrt() };
    let whole_is_outside = matches!(tolerance, Tolerance::RelativeL2(b) if c.relative_l2 > b);
    if c.different_bits == 0 {
        return Ok(c);
    }
    for (i, (g, w)) in (0..elements).map(|i| (i, pair(i))).filter(|(_, (g, w))| g != w) {
        let (got, want) = (to_f64(dtype, g), to_f64(dtype, w));
        let ulp = ulp_distance(dtype, g, w);
        let outside = match tolerance {
            Tolerance::Bits => true,
            Tolerance::Ulp(most) => ulp > most,
            Tolerance::Close { relative, of_rms } => {
                let room =
                    if want.is_finite() { relative * want.abs() + of_rms * rms } else { 0.0 };
                difference(got, want) > room
            }
            Tolerance::RelativeL2(_) => whole_is_outside,
        };
        if !outside {
            continue;
        }
        c.outside += 1;
        if c.first.is_none() {
            let coordinate = coordinate(shape, i);
            c.first = Some(Mismatch { coordinate, got_bits: g, want_bits: w, got, want, ulp });
        }
    }
    Ok(c)
}

/// `|got - want|`; 0 for equal infinities and two NaNs, infinite where only one is a number.
fn difference(got: f64, want: f64) -> f64 {
    if got == want || got.is_nan() && want.is_nan() {
        return 0.0;
    }
    let difference = (got - want).abs();
    if difference.is_nan() { f64::INFINITY } else { difference }
}

/// The coordinate of flat element `index` in row-major order.
fn coordinate(shape: &[usize], mut index: usize) -> Vec<usize> {
    let mut coordinate = vec![0; shape.len()];
    for (c, &extent) in coordinate.iter_mut().zip(shape).rev() {
        *c = index % extent;
        index /= extent;
    }
    coordinate
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    fn compare_floats(got: &[f32], want: &[f32], tolerance: Tolerance) -> Comparison {
        let shape = [got.len() / 2, 2];
        compare(DType::F32, &shape, &floats(got), &floats(want), tolerance).unwrap()
    }

    #[test]
    fn the_first_mismatch_has_coordinate_and_bits() {
        let c = compare_floats(&[1.0, 2.0, 3.0, 4.5], &[1.0, 2.0, 3.0, 4.0], Tolerance::Bits);
        let first = c.first.as_ref().unwrap();
        assert_eq!(first.coordinate, [1, 1]);
        assert_eq!((first.got_bits, first.want_bits), (0x4090_0000, 0x4080_0000));
        assert_eq!((c.outside, c.max_ulp, c.max_abs), (1, 0x10_0000, 0.5));
        assert!(!c.holds());
        assert!(c.to_string().contains("first at [1, 1]: 4.5 (0x40900000), wanted 4"), "{c}");
    }

    #[test]
    fn nans_and_infinities_match_only_themselves() {
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        let close = Tolerance::Close { relative: 0.1, of_rms: 0.1 };
        assert!(compare_floats(&[nan, inf], &[-nan, inf], close).holds());
        assert!(!compare_floats(&[nan, inf], &[-nan, inf], Tolerance::Bits).holds());
        for (got, want) in [(nan, 1.0), (1.0, nan), (inf, 1.0), (1.0, inf), (inf, -inf)] {
            assert!(!compare_floats(&[got, 1.0], &[want, 1.0], close).holds());
            assert!(!compare_floats(&[got, 1.0], &[want, 1.0], Tolerance::RelativeL2(0.5)).holds());
        }
        assert_eq!(ulp_distance(DType::F32, 0x8000_0000, 0), 0);
        assert_eq!(ulp_distance(DType::F32, 0x8000_0001, 1), 2);
        assert_eq!(ulp_distance(DType::Bf16, 0x7fff, 0x3f80), u64::MAX);
        assert_eq!(ulp_distance(DType::I32, u64::from(u32::MAX), 1), 2);
    }

    #[test]
    fn each_tolerance_draws_its_line() {
        let near = [1.0 + f32::EPSILON, 100.0];
        assert!(compare_floats(&near, &[1.0, 100.0], Tolerance::Ulp(1)).holds());
        assert!(!compare_floats(&near, &[1.0, 100.0], Tolerance::Ulp(0)).holds());
        assert!(
            compare_floats(&[1e-4, 100.0], &[0.0, 100.0], Tolerance::formula(DType::F32)).holds()
        );
        assert!(
            !compare_floats(&[1e-2, 100.0], &[0.0, 100.0], Tolerance::formula(DType::F32)).holds()
        );
        assert!(
            compare_floats(&[3.0, 104.0], &[0.0, 104.0], Tolerance::model(DType::Bf16)).holds()
        );
        assert!(
            !compare_floats(&[4.0, 104.0], &[0.0, 104.0], Tolerance::model(DType::Bf16)).holds()
        );
    }

    #[test]
    fn sizes_are_checked() {
        let error = compare(DType::F32, &[2], &[0; 8], &[0; 4], Tolerance::Bits).unwrap_err();
        assert_eq!(error, SizeError { what: "the reference", found: 4, needed: 8 });
        assert!(compare(DType::E2m1, &[3], &[0; 2], &[0; 2], Tolerance::Bits).unwrap().holds());
        assert!(compare(DType::F32, &[0], &[], &[], Tolerance::model(DType::F32)).unwrap().holds());
    }
}

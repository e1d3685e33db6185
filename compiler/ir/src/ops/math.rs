//! The f32 functions of the language, with the same bits on every machine.
//!
//! `exp2` and `log2` are computed in f64 by polynomials whose error is far below half a unit in the last
//! place of f32, with nothing but IEEE additions, multiplications and divisions, and rounded once. The
//! functions built on them follow the formulas of docs/numerics.md step by step in f32. A NaN result is
//! the canonical one.

use kernel_abi::numeric::{canonical, ue8m0};

/// log2(e), rounded to f32.
pub const LOG2_E: f32 = std::f32::consts::LOG2_E;

/// 2^x, correctly rounded but for the rarest cases.
pub fn exp2(x: f32) -> f32 {
    if x.is_nan() {
        return canonical(x);
    }
    if x >= 128.0 {
        return f32::INFINITY;
    }
    if x < -150.0 {
        return 0.0;
    }
    let x = f64::from(x);
    let whole = x.round_ties_even();
    // |r| <= ln(2)/2: the first term left out is r^14/14! < 5e-18.
    let r = (x - whole) * std::f64::consts::LN_2;
    let mut sum = 1.0;
    for k in (1..=13).rev() {
        sum = 1.0 + sum * r / f64::from(k);
    }
    // whole is between -150 and 128, so the power of two is a normal f64.
    let power = f64::from_bits(((whole as i64 + 1023) as u64) << 52);
    (sum * power) as f32
}

/// log2(x); -inf at zero, NaN below.
pub fn log2(x: f32) -> f32 {
    if x.is_nan() || x < 0.0 {
        return canonical(f32::NAN);
    }
    if x == 0.0 {
        return f32::NEG_INFINITY;
    }
    if x.is_infinite() {
        return f32::INFINITY;
    }
    // Every positive f32 is a normal f64.
    let bits = f64::from(x).to_bits();
    let mut exponent = (bits >> 52) as i32 - 1023;
    let mut m = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    if m > std::f64::consts::SQRT_2 {
        m /= 2.0;
        exponent += 1;
    }
    // ln m = 2 (t + t^3/3 + t^5/5 + …) with |t| < 0.172: the first term left out is below 1e-19.
    let t = (m - 1.0) / (m + 1.0);
    let square = t * t;
    let mut sum = 0.0;
    for k in (0..=11).rev() {
        sum = sum * square + 1.0 / f64::from(2 * k + 1);
    }
    (f64::from(exponent) + 2.0 * t * sum * std::f64::consts::LOG2_E) as f32
}

/// e^x as `exp2(x * log2(e))`, the product rounded to f32.
pub fn exp(x: f32) -> f32 {
    exp2(x * LOG2_E)
}

/// `1 - 2 / (exp(2x) + 1)`, each step rounded to f32.
pub fn tanh(x: f32) -> f32 {
    canonical(1.0 - 2.0 / (exp(2.0 * x) + 1.0))
}

/// `1 / (1 + exp(-x))`, each step rounded to f32.
pub fn sigmoid(x: f32) -> f32 {
    canonical(1.0 / (1.0 + exp(-x)))
}

/// 1 / sqrt(x), correctly rounded but for the rarest cases; NaN below zero, infinite at zero with
/// its sign.
pub fn rsqrt(x: f32) -> f32 {
    if x.is_nan() || x < 0.0 {
        return canonical(f32::NAN);
    }
    (1.0 / f64::from(x).sqrt()) as f32
}

/// The least power of two of ue8m0 that is not below `x`: at least 2^-127, at most 2^127; NaN below zero.
pub fn scale_up(x: f32) -> f32 {
    canonical(ue8m0::to_f32(ue8m0::from_f32_up(x)))
}

/// The correctly rounded square root; NaN below zero.
pub fn sqrt(x: f32) -> f32 {
    canonical(x.sqrt())
}

/// The lesser of two; a NaN loses, and -0 is less than +0.
#[inline]
pub fn min(a: f32, b: f32) -> f32 {
    let a_wins = a < b || b.is_nan() || a == b && a.is_sign_negative();
    canonical(if a_wins { a } else { b })
}

/// The greater of two; a NaN loses, and +0 is greater than -0.
#[inline]
pub fn max(a: f32, b: f32) -> f32 {
    let a_wins = a > b || b.is_nan() || a == b && a.is_sign_positive();
    canonical(if a_wins { a } else { b })
}

/// A loop that is compiled for the vector instructions of this machine by [`with_simd`].
pub(super) trait Loop {
    /// Runs it; `#[inline(always)]`, or it is compiled without them.
    fn run(self);
}

/// Runs a loop with the vector instructions of this machine; results do not depend on them.
pub(super) fn with_simd<L: Loop>(work: L) {
    struct Call<L>(L);
    impl<L: Loop> pulp::NullaryFnOnce for Call<L> {
        type Output = ();

        #[inline(always)]
        fn call(self) {
            self.0.run();
        }
    }
    pulp::Arch::new().dispatch(Call(work));
}

/// `a * b + c` with one rounding.
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    let (sum, doubtful) = fma_in_f64(a, b, c);
    canonical(if doubtful { fma_to_odd(a, b, c) } else { sum })
}

/// `acc[i] = fma(a[i], b[i], acc[i])` of bits for every element of `acc`; the operands are as long.
pub(super) fn fma_words(a: &[u32], b: &[u32], acc: &mut [u32]) {
    struct Fma<'a>(&'a [u32], &'a [u32], &'a mut [u32]);
    impl Loop for Fma<'_> {
        #[inline(always)]
        fn run(self) {
            for ((acc, &a), &b) in self.2.iter_mut().zip(self.0).zip(self.1) {
                let sum = f32::from_bits(a).mul_add(f32::from_bits(b), f32::from_bits(*acc));
                *acc = canonical(sum).to_bits();
            }
        }
    }
    with_simd(Fma(a, b, acc));
}

/// The fused product and sum by way of f64, and whether two roundings may have gone wrong: the
/// product is exact in f64, the sum is rounded to 53 bits and then to 24. Only a sum that looks like the
/// middle of two f32, or that is subnormal in f32, can be rounded the wrong way.
#[inline]
fn fma_in_f64(a: f32, b: f32, c: f32) -> (f32, bool) {
    let sum = f64::from(a) * f64::from(b) + f64::from(c);
    let middle = sum.to_bits() as u32 & 0x1fff_ffff == 0x1000_0000;
    let small = sum.abs() < f64::from(f32::MIN_POSITIVE) && sum != 0.0;
    (sum as f32, middle | small)
}

/// The fused product and sum with the f64 sum rounded to odd, which a second rounding cannot spoil.
fn fma_to_odd(a: f32, b: f32, c: f32) -> f32 {
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    if !sum.is_finite() {
        return sum as f32;
    }
    // The exact rounding error of the sum.
    let share = sum - product;
    let error = (product - (sum - share)) + (c - share);
    let bits = sum.to_bits();
    if error == 0.0 || bits & 1 == 1 {
        return sum as f32;
    }
    // Between an even sum and its neighbour on the side of the error lies the exact value; the neighbour
    // is odd.
    let outward = (error > 0.0) == (sum > 0.0);
    f64::from_bits(if outward { bits + 1 } else { bits - 1 }) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel_abi::numeric::random;

    /// Distance from the exact value in units of the last place of the result.
    fn ulps(got: f32, want: f64) -> f64 {
        let step = f32::from_bits(got.abs().to_bits() + 1) - got.abs();
        ((f64::from(got) - want) / f64::from(step)).abs()
    }

    #[test]
    fn exp2_and_log2_are_within_half_a_unit() {
        for i in 0..20_000u64 {
            let unit = |s| (random::word(1, s, i) >> 11) as f64 * 2f64.powi(-53);
            let x = (unit(0) * 280.0 - 152.0) as f32;
            if x < 127.9 && x > -125.0 {
                assert!(ulps(exp2(x), f64::from(x).exp2()) < 0.500_001, "exp2 {x:e}");
            }
            let y = f32::from_bits((random::word(1, 1, i) % 0x7f80_0000) as u32);
            assert!(ulps(log2(y), f64::from(y).log2()) < 0.500_001, "log2 {y:e}");
            let near_one = 1.0 + (unit(2) - 0.5) as f32 * 1e-3;
            assert!(ulps(log2(near_one), f64::from(near_one).log2()) < 0.500_01);
        }
        for e in -149..128 {
            assert_eq!(f64::from(exp2(e as f32)), 2f64.powi(e));
            assert_eq!(log2(2f64.powi(e) as f32), e as f32);
        }
    }

    #[test]
    fn the_edges_of_the_functions() {
        let inf = f32::INFINITY;
        assert_eq!([exp2(128.0), exp2(inf), exp2(-inf), exp2(-150.0)], [inf, inf, 0.0, 0.0]);
        assert_eq!(exp2(-149.9).to_bits(), 1);
        assert_eq!([log2(0.0), log2(-0.0), log2(inf), log2(1.0)], [-inf, -inf, inf, 0.0]);
        assert_eq!([rsqrt(0.0), rsqrt(-0.0), rsqrt(inf), rsqrt(4.0)], [inf, -inf, 0.0, 0.5]);
        assert_eq!([tanh(inf), tanh(-inf), tanh(0.0)], [1.0, -1.0, 0.0]);
        assert_eq!([sigmoid(inf), sigmoid(-inf), sigmoid(0.0)], [1.0, 0.0, 0.5]);
        assert_eq!([exp(0.0), exp(-inf), exp(inf)], [1.0, 0.0, inf]);
        for f in [exp2, log2, exp, tanh, sigmoid, rsqrt, sqrt] {
            assert_eq!(f(-f32::NAN).to_bits(), 0x7fff_ffff);
        }
        for f in [log2, rsqrt, sqrt] {
            assert_eq!(f(-1.0).to_bits(), 0x7fff_ffff);
        }
    }

    #[test]
    fn a_nan_loses_and_zeros_are_ordered() {
        assert_eq!([min(f32::NAN, 1.0), min(1.0, f32::NAN), max(f32::NAN, 1.0)], [1.0; 3]);
        assert_eq!(max(f32::NAN, -f32::NAN).to_bits(), 0x7fff_ffff);
        assert_eq!(max(-0.0, 0.0).to_bits(), 0);
        assert_eq!(max(0.0, -0.0).to_bits(), 0);
        assert_eq!(min(-0.0, 0.0).to_bits(), 0x8000_0000);
        assert_eq!(min(0.0, -0.0).to_bits(), 0x8000_0000);
    }

    #[test]
    fn fma_agrees_with_the_exact_one() {
        let mut doubtful = 0;
        let mut lists = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for i in 0..60_000u64 {
            let word = random::word(3, 0, i);
            // Few significant bits make middles and cancellation likely; some are tiny or huge.
            let number = |w: u64| {
                let exponent = match i % 4 {
                    0 => w % 256,
                    1 => 100 + w % 4,
                    2 => 60 + w % 8,
                    _ => 120 + w % 16,
                } as u32;
                let fraction = (w >> 8) as u32 & 0x7f_ffff & (u32::MAX << ((w >> 40) % 24));
                f32::from_bits(((w >> 63) as u32) << 31 | exponent << 23 | fraction)
            };
            let (a, b) = (number(word), number(random::word(3, 1, i)));
            let c = match i % 3 {
                0 => number(random::word(3, 2, i)),
                1 => -(a * b),
                _ => a * b * f32::from_bits(0x4b80_0000),
            };
            let want = canonical(a.mul_add(b, c));
            assert_eq!(fma(a, b, c).to_bits(), want.to_bits(), "{a:e} * {b:e} + {c:e}");
            doubtful += usize::from(fma_in_f64(a, b, c).1);
            lists.0.push(a.to_bits());
            lists.1.push(b.to_bits());
            lists.2.push(c.to_bits());
            lists.3.push(want.to_bits());
        }
        assert!(doubtful > 1000, "the rare cases were met {doubtful} times");
        fma_words(&lists.0, &lists.1, &mut lists.2);
        assert_eq!(lists.2, lists.3);
        // The classic double rounding: exactly above the middle of two f32.
        assert_eq!(fma(1.0 + f32::EPSILON, 1.0 + f32::EPSILON, -1.0), {
            (1.0 + f32::EPSILON).mul_add(1.0 + f32::EPSILON, -1.0)
        });
    }
}

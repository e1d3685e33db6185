//! Conversions of the formats of one byte or less, by their parameters.
//!
//! All have subnormals; none of the conversions to them gives an infinity: what is too large becomes
//! the greatest finite value, as `cvt.satfinite` of PTX does.

/// Parameters of a small format with a sign bit.
#[derive(Clone, Copy)]
pub(super) struct Format {
    /// Bits of the fraction.
    pub(super) fraction_bits: u32,
    /// Exponent of the field value 1, as a power of two: 1 - bias.
    pub(super) least_exponent: i32,
    /// Magnitude code of the greatest finite value.
    pub(super) greatest: u8,
    /// Code that a NaN becomes.
    pub(super) nan: u8,
    /// Bit of the sign.
    pub(super) sign: u8,
}

impl Format {
    /// The code of `x`, to nearest even, saturating.
    pub(super) fn encode(self, x: f32) -> u8 {
        if x.is_nan() {
            return self.nan;
        }
        let sign = if x.is_sign_negative() { self.sign } else { 0 };
        let magnitude = f64::from(x.abs());
        // In units of the step between neighbours, adding one code is adding one unit.
        let binade = exponent_of(x.abs()).max(self.least_exponent);
        let step = 2f64.powi(binade - self.fraction_bits as i32);
        let units = round_even(magnitude / step);
        let base = u64::from((binade - self.least_exponent) as u32) << self.fraction_bits;
        sign | (base.saturating_add(units)).min(u64::from(self.greatest)) as u8
    }

    /// The finite value of a code.
    pub(super) fn decode(self, code: u8) -> f32 {
        let magnitude = code & (self.sign - 1);
        let exponent = i32::from(magnitude >> self.fraction_bits);
        let fraction = f32::from(magnitude & ((1 << self.fraction_bits) - 1));
        let one = (1u32 << self.fraction_bits) as f32;
        let (significand, binade) = if exponent == 0 {
            (fraction, self.least_exponent)
        } else {
            (one + fraction, self.least_exponent + exponent - 1)
        };
        let value = significand * power_of_two(binade - self.fraction_bits as i32);
        if code & self.sign == 0 { value } else { -value }
    }
}

/// `floor(log2 x)` for a positive normal `x`; below the normal range some value under -126.
fn exponent_of(x: f32) -> i32 {
    (x.to_bits() >> 23) as i32 - 127
}

/// A power of two in the normal range of f32.
fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

/// `x` rounded to the nearest integer, ties to even; saturates.
fn round_even(x: f64) -> u64 {
    x.round_ties_even() as u64
}

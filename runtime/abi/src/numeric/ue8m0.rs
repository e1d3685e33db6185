//! OCP UE8M0: powers of two from 2^-127 (code 0) to 2^127 (code 254); code 255 is NaN.

/// The code of NaN.
pub const NAN: u8 = 255;

/// The value of a code; exact.
pub fn to_f32(code: u8) -> f32 {
    match code {
        0 => f32::from_bits(0x0040_0000),
        NAN => f32::NAN,
        _ => f32::from_bits(u32::from(code) << 23),
    }
}

/// The code of the nearest power of two; 1.5 times a power is a tie and goes to the even code. Zero and
/// what is below 2^-127 give code 0, what is above 2^127 code 254; a NaN or negative number gives NaN.
pub fn from_f32(x: f32) -> u8 {
    round(x, |code, lower, upper| {
        let (below, above) = (x - lower, upper - x);
        below > above || below == above && code % 2 == 1
    })
}

/// The code of the least power of two that is not below `x`: `.up`, for block scales. Limits as for
/// [`from_f32`].
pub fn from_f32_up(x: f32) -> u8 {
    round(x, |_, lower, _| x > lower)
}

/// The code of the power of two at or below `x`, or the next one where `goes_up(code, lower, upper)`.
fn round(x: f32, goes_up: impl Fn(u8, f32, f32) -> bool) -> u8 {
    if x.is_nan() || x < 0.0 {
        return NAN;
    }
    if x < to_f32(0) {
        return 0;
    }
    let code = ((x.to_bits() >> 23) as u8).min(254);
    if code == 254 {
        return 254;
    }
    if goes_up(code, to_f32(code), to_f32(code + 1)) { code + 1 } else { code }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_256_codes() {
        for code in 0..=254u8 {
            let value = to_f32(code);
            assert_eq!(f64::from(value), 2f64.powi(i32::from(code) - 127));
            assert_eq!(from_f32(value), code);
            assert_eq!(from_f32_up(value), code);
        }
        assert!(to_f32(255).is_nan());
    }

    #[test]
    fn rounding_is_to_the_nearest_and_up_never_lowers() {
        for code in 0..254u8 {
            let (lower, upper) = (to_f32(code), to_f32(code + 1));
            let middle = lower + (upper - lower) / 2.0;
            assert_eq!(from_f32(middle), code + code % 2);
            assert_eq!(from_f32(f32::from_bits(middle.to_bits() - 1)), code);
            assert_eq!(from_f32(f32::from_bits(middle.to_bits() + 1)), code + 1);
            assert_eq!(from_f32_up(f32::from_bits(lower.to_bits() + 1)), code + 1);
        }
        assert_eq!([0.0, -0.0, f32::from_bits(1)].map(from_f32), [0, 0, 0]);
        assert_eq!([-1.0, f32::NAN].map(from_f32_up), [255, 255]);
        assert_eq!([f32::MAX, f32::INFINITY].map(from_f32_up), [254, 254]);
    }
}

//! IEEE 754 binary16.

/// The value of a code; exact.
#[inline]
pub fn to_f32(code: u16) -> f32 {
    half::f16::from_bits(code).to_f32()
}

/// The code of `x`, to nearest even; from 65520 on gives an infinity, a NaN 0x7fff.
#[inline]
pub fn from_f32(x: f32) -> u16 {
    if x.is_nan() { 0x7fff } else { half::f16::from_f32(x).to_bits() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value by its definition.
    fn defined(code: u16) -> f64 {
        let (exponent, fraction) = (i32::from(code >> 10 & 31), f64::from(code & 0x3ff));
        let magnitude = match exponent {
            0 => fraction * 2f64.powi(-24),
            31 if fraction == 0.0 => f64::INFINITY,
            31 => f64::NAN,
            _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
        };
        if code & 0x8000 == 0 { magnitude } else { -magnitude }
    }

    #[test]
    fn every_code_has_its_value_and_comes_back() {
        for code in 0..=u16::MAX {
            let x = to_f32(code);
            if x.is_nan() {
                assert!(defined(code).is_nan());
                assert_eq!(from_f32(x), 0x7fff);
            } else {
                assert_eq!(f64::from(x), defined(code));
                assert_eq!(from_f32(x), code);
            }
        }
    }

    #[test]
    fn the_middle_of_two_codes_goes_to_the_even_one() {
        for code in 0..0x7bffu16 {
            let middle = ((defined(code) + defined(code + 1)) / 2.0) as f32;
            assert_eq!(from_f32(middle), code + (code & 1));
            assert_eq!(from_f32(f32::from_bits(middle.to_bits() - 1)), code);
            assert_eq!(from_f32(f32::from_bits(middle.to_bits() + 1)), code + 1);
        }
        assert_eq!(from_f32(65519.99), 0x7bff);
        assert_eq!(from_f32(65520.0), 0x7c00);
        assert_eq!(from_f32(2f32.powi(-25)), 0, "half of the least code is a tie");
        assert_eq!(from_f32(2f32.powi(-25) * 1.001), 1);
    }
}

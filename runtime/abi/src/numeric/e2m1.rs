//! OCP E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives, in the low four bits of a code.

use super::minifloat::Format;

const FORMAT: Format =
    Format { fraction_bits: 1, least_exponent: 0, greatest: 0x7, nan: 0x7, sign: 0x8 };

/// The value of a code (its low four bits); exact.
pub fn to_f32(code: u8) -> f32 {
    FORMAT.decode(code & 0xf)
}

/// The code of `x`, to nearest even; saturates to 6, and a NaN gives 6, as on hardware.
pub fn from_f32(x: f32) -> u8 {
    FORMAT.encode(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_16_codes() {
        let values = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0f32];
        for (code, value) in (0u8..).zip(values) {
            assert_eq!(to_f32(code), value);
            assert_eq!(to_f32(code | 8).to_bits(), (-value).to_bits());
            assert_eq!(from_f32(value), code);
            assert_eq!(from_f32(-value), code | 8);
        }
    }

    #[test]
    fn ties_go_to_even_and_large_values_saturate() {
        let middles = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0];
        assert_eq!(middles.map(from_f32), [0, 2, 2, 4, 4, 6, 6]);
        assert_eq!(from_f32(1e9), 7);
        assert_eq!(from_f32(f32::NEG_INFINITY), 15);
        assert_eq!(from_f32(f32::NAN), 7);
    }
}

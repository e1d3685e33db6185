//! OCP E4M3: 4 exponent bits, bias 7, 3 fraction bits, no infinity; 0x7f and 0xff are NaN, the greatest
//! value is 448.

use super::minifloat::Format;

const FORMAT: Format =
    Format { fraction_bits: 3, least_exponent: -6, greatest: 0x7e, nan: 0x7f, sign: 0x80 };

/// The value of a code; exact.
pub fn to_f32(code: u8) -> f32 {
    if code & 0x7f == 0x7f { f32::NAN } else { FORMAT.decode(code) }
}

/// The code of `x`, to nearest even; saturates to 448, infinities too; a NaN gives 0x7f.
pub fn from_f32(x: f32) -> u8 {
    FORMAT.encode(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_256_codes() {
        for code in 0..=255u8 {
            let (exponent, fraction) = (i32::from(code >> 3 & 15), f32::from(code & 7));
            let magnitude = if exponent == 0 {
                fraction * 2f32.powi(-9)
            } else {
                (8.0 + fraction) * 2f32.powi(exponent - 10)
            };
            if code & 0x7f == 0x7f {
                assert!(to_f32(code).is_nan());
                continue;
            }
            let value = if code < 128 { magnitude } else { -magnitude };
            assert_eq!(to_f32(code).to_bits(), value.to_bits());
            assert_eq!(from_f32(value), code);
        }
    }

    #[test]
    fn ties_go_to_even_and_large_values_saturate() {
        for code in 0..0x7eu8 {
            let middle = (to_f32(code) + to_f32(code + 1)) / 2.0;
            assert_eq!(from_f32(middle), code + (code & 1));
            assert_eq!(from_f32(f32::from_bits(middle.to_bits() - 1)), code);
            assert_eq!(from_f32(f32::from_bits(middle.to_bits() + 1)), code + 1);
        }
        assert_eq!(from_f32(464.0), 0x7e);
        assert_eq!(from_f32(f32::INFINITY), 0x7e);
        assert_eq!(from_f32(f32::MIN), 0xfe);
        assert_eq!(from_f32(f32::from_bits(1)), 0);
        assert_eq!(from_f32(-f32::NAN), 0x7f);
    }
}

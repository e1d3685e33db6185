//! OCP E5M2: 5 exponent bits, bias 15, 2 fraction bits; the upper half of a binary16.

use super::f16;
use super::minifloat::Format;

const FORMAT: Format =
    Format { fraction_bits: 2, least_exponent: -14, greatest: 0x7b, nan: 0x7f, sign: 0x80 };

/// The value of a code; exact. 0x7c and 0xfc are infinities.
pub fn to_f32(code: u8) -> f32 {
    f16::to_f32(u16::from(code) << 8)
}

/// The code of `x`, to nearest even; saturates to 57344, infinities too; a NaN gives 0x7f.
pub fn from_f32(x: f32) -> u8 {
    FORMAT.encode(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_256_codes() {
        for code in 0..=255u8 {
            let value = to_f32(code);
            match code & 0x7f {
                0x7c => assert!(value.is_infinite()),
                0x7d..=0x7f => assert!(value.is_nan()),
                _ => {
                    assert_eq!(value.to_bits(), FORMAT.decode(code).to_bits());
                    assert_eq!(from_f32(value), code);
                }
            }
        }
    }

    #[test]
    fn ties_go_to_even_and_large_values_saturate() {
        for code in 0..0x7bu8 {
            let middle = (to_f32(code) + to_f32(code + 1)) / 2.0;
            assert_eq!(from_f32(middle), code + (code & 1));
            assert_eq!(from_f32(f32::from_bits(middle.to_bits() - 1)), code);
            assert_eq!(from_f32(f32::from_bits(middle.to_bits() + 1)), code + 1);
        }
        assert_eq!(from_f32(f32::INFINITY), 0x7b);
        assert_eq!(from_f32(-1e30), 0xfb);
    }
}

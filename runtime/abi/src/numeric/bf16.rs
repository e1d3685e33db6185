//! bfloat16: the upper half of an f32.

/// The value of a code; exact.
#[inline]
pub fn to_f32(code: u16) -> f32 {
    f32::from_bits(u32::from(code) << 16)
}

/// The code of `x`, to nearest even; past the greatest finite value gives an infinity, a NaN 0x7fff.
#[inline]
pub fn from_f32(x: f32) -> u16 {
    let bits = x.to_bits();
    // Adding the half, less one when the kept part is even, carries exactly where rounding goes up.
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    if x.is_nan() { 0x7fff } else { rounded as u16 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_comes_back() {
        for code in 0..=u16::MAX {
            let x = to_f32(code);
            assert_eq!(from_f32(x), if x.is_nan() { 0x7fff } else { code });
        }
    }

    #[test]
    fn the_middle_of_two_codes_goes_to_the_even_one() {
        for code in 0..0x7f80u16 {
            let middle = (u32::from(code) << 16) + 0x8000;
            let even = code + (code & 1);
            assert_eq!(from_f32(f32::from_bits(middle)), even);
            assert_eq!(from_f32(f32::from_bits(middle - 1)), code);
            assert_eq!(from_f32(f32::from_bits(middle + 1)), code + 1);
            assert_eq!(from_f32(-f32::from_bits(middle)), even | 0x8000);
        }
    }
}

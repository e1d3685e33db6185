//! Values in test files: text to codes and back.

use kernel_abi::DType;
use kernel_abi::numeric::{bytes_of, float_from_f64, read_element, to_f64, to_i64, write_element};

/// The codes of a list of values; `v*n` stands for n times v.
///
/// # Errors
/// A word is no value of the type.
pub fn parse(dtype: DType, words: &[String]) -> Result<Vec<u64>, String> {
    let mut codes = Vec::new();
    for word in words {
        let (value, times) = match word.split_once('*') {
            Some((value, times)) => {
                (value, times.parse().map_err(|_| format!("`{word}`: no number of times"))?)
            }
            None => (word.as_str(), 1),
        };
        let code = code(dtype, value).ok_or_else(|| format!("`{value}` is no {dtype}"))?;
        codes.extend(std::iter::repeat_n(code, times));
    }
    Ok(codes)
}

/// The code of one value: rounded once for a float, in range for an integer.
fn code(dtype: DType, word: &str) -> Option<u64> {
    let mask = u64::MAX >> (64 - dtype.bits());
    if let Some(digits) = word.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok().filter(|code| *code <= mask);
    }
    match dtype {
        // By way of f64 a decimal could be rounded twice.
        DType::F32 => Some(match word.parse::<f32>().ok()? {
            x if x.is_nan() => u64::from(kernel_abi::numeric::CANONICAL_NAN),
            x => u64::from(x.to_bits()),
        }),
        DType::F16 | DType::Bf16 | DType::E4m3 | DType::E5m2 | DType::E2m1 | DType::Ue8m0 => {
            float_from_f64(dtype, word.parse().ok()?)
        }
        DType::Bool => match word {
            "0" | "false" => Some(0),
            "1" | "true" => Some(1),
            _ => None,
        },
        DType::I8 | DType::I32 | DType::I64 => {
            let value: i64 = word.parse().ok()?;
            let code = value as u64 & mask;
            (to_i64(dtype, code) == Some(value)).then_some(code)
        }
        DType::U8 | DType::U32 | DType::U64 => word.parse::<u64>().ok().filter(|v| *v <= mask),
    }
}

/// A code as people read it: the value, and the bits where the value does not tell them.
pub fn show(dtype: DType, code: u64) -> String {
    let digits = dtype.bits().div_ceil(4) as usize;
    if dtype.is_float() {
        return format!("{:?} (0x{code:0digits$x})", to_f64(dtype, code));
    }
    match to_i64(dtype, code) {
        Some(value) => value.to_string(),
        None => format!("0x{code:0digits$x}"),
    }
}

/// Codes as little-endian memory.
pub fn to_bytes(dtype: DType, codes: &[u64]) -> Vec<u8> {
    let mut bytes = vec![0; bytes_of(dtype, codes.len())];
    for (index, code) in codes.iter().enumerate() {
        assert!(write_element(dtype, &mut bytes, index, *code), "the memory holds all elements");
    }
    bytes
}

/// Little-endian memory as codes.
pub fn from_bytes(dtype: DType, bytes: &[u8], elements: usize) -> Vec<u64> {
    (0..elements)
        .map(|index| read_element(dtype, bytes, index).expect("the memory holds all elements"))
        .collect()
}

/// Memory as numbers.
pub fn to_f64s(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    let elements = kernel_abi::numeric::elements_in(dtype, bytes.len());
    from_bytes(dtype, bytes, elements).into_iter().map(|code| to_f64(dtype, code)).collect()
}

/// Numbers as memory, each rounded once.
pub fn from_f64s(dtype: DType, values: &[f64]) -> Vec<u8> {
    let codes: Vec<u64> = values
        .iter()
        .map(|value| match float_from_f64(dtype, *value) {
            Some(code) => code,
            None => *value as i64 as u64 & (u64::MAX >> (64 - dtype.bits())),
        })
        .collect();
    to_bytes(dtype, &codes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(dtype: DType, text: &str) -> Result<Vec<u64>, String> {
        parse(dtype, &text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn values_become_codes_exactly() {
        assert_eq!(
            codes(DType::F32, "-0.0 1e-45 nan -inf*2").unwrap(),
            [0x8000_0000, 1, 0x7fff_ffff, 0xff80_0000, 0xff80_0000]
        );
        assert_eq!(codes(DType::Bf16, "1.00390625 0x7fc0 inf").unwrap(), [0x3f80, 0x7fc0, 0x7f80]);
        assert_eq!(codes(DType::I8, "-128 127 0xff").unwrap(), [0x80, 0x7f, 0xff]);
        assert_eq!(codes(DType::U64, "18446744073709551615").unwrap(), [u64::MAX]);
        assert_eq!(codes(DType::Bool, "true 0").unwrap(), [1, 0]);
        for (dtype, text) in [
            (DType::I8, "128"),
            (DType::U8, "-1"),
            (DType::F16, "0x10000"),
            (DType::Bool, "2"),
            (DType::I32, "1.0"),
        ] {
            assert!(codes(dtype, text).is_err(), "{text} is no {dtype}");
        }
    }

    #[test]
    fn codes_travel_through_memory() {
        for dtype in DType::ALL {
            let codes = [1, 0, 1, 1, 0];
            assert_eq!(from_bytes(dtype, &to_bytes(dtype, &codes), 5), codes);
        }
        assert_eq!(to_f64s(DType::Bf16, &from_f64s(DType::Bf16, &[1.5, -2.0])), [1.5, -2.0]);
        assert_eq!(to_f64s(DType::I32, &from_f64s(DType::I32, &[-3.0])), [-3.0]);
    }
}

//! The `.npy` format, versions 1 to 3, of little-endian row-major arrays.

use kernel_abi::DType;

use super::{FileDType, Tensor};

const MAGIC: &[u8] = b"\x93NUMPY";

/// numpy's names of element types.
const TYPES: [(&str, FileDType); 20] = [
    ("<f4", FileDType::Known(DType::F32)),
    ("<f2", FileDType::Known(DType::F16)),
    ("<u2", FileDType::Bits16),
    ("|i1", FileDType::Known(DType::I8)),
    ("|u1", FileDType::Known(DType::U8)),
    ("<i4", FileDType::Known(DType::I32)),
    ("<u4", FileDType::Known(DType::U32)),
    ("<i8", FileDType::Known(DType::I64)),
    ("<u8", FileDType::Known(DType::U64)),
    ("|b1", FileDType::Known(DType::Bool)),
    ("i1", FileDType::Known(DType::I8)),
    ("u1", FileDType::Known(DType::U8)),
    ("<f8", FileDType::Foreign("f64")),
    ("<i2", FileDType::Foreign("i16")),
    ("<c8", FileDType::Foreign("complex64")),
    ("<c16", FileDType::Foreign("complex128")),
    (">f4", FileDType::Foreign("big-endian f32")),
    (">f8", FileDType::Foreign("big-endian f64")),
    (">i4", FileDType::Foreign("big-endian i32")),
    (">i8", FileDType::Foreign("big-endian i64")),
];

/// Reads an array.
pub(super) fn read(bytes: &[u8]) -> Result<Tensor, String> {
    let rest = bytes.strip_prefix(MAGIC).ok_or("it is no .npy file")?;
    let (header, data) = match rest {
        [1, _, a, b, rest @ ..] => split(rest, usize::from(u16::from_le_bytes([*a, *b])))?,
        [2 | 3, _, a, b, c, d, rest @ ..] => {
            split(rest, u32::from_le_bytes([*a, *b, *c, *d]) as usize)?
        }
        _ => return Err("its .npy version is unknown, or it ends in the header".to_owned()),
    };
    let header = std::str::from_utf8(header).map_err(|_| "its header is not text")?;
    let descr = field(header, "descr")?;
    let descr = descr
        .strip_prefix(['\'', '"'])
        .and_then(|d| d.split(['\'', '"']).next())
        .ok_or("its header names no simple element type")?;
    let dtype =
        TYPES.iter().find(|(name, _)| *name == descr).map(|(_, dtype)| *dtype).ok_or_else(
            || format!("its element type `{descr}` is not one that a buffer can have"),
        )?;
    if field(header, "fortran_order")?.starts_with("True") {
        return Err("it is stored column-major; save it with numpy.ascontiguousarray".to_owned());
    }
    let shape = field(header, "shape")?;
    let shape = shape
        .strip_prefix('(')
        .and_then(|s| s.split_once(')'))
        .ok_or("its header has no shape")?
        .0
        .split(',')
        .map(str::trim)
        .filter(|extent| !extent.is_empty())
        .map(|extent| extent.parse::<u64>().map_err(|_| format!("`{extent}` is no extent")))
        .collect::<Result<Vec<u64>, String>>()?;
    let size = match dtype {
        FileDType::Known(known) => u64::from(known.bits() / 8),
        FileDType::Bits16 => 2,
        // Whoever asked for the tensor refuses its type; the elements are not looked at.
        FileDType::Foreign(_) => return Ok(Tensor { dtype, shape, bytes: Vec::new() }),
    };
    let expected = shape
        .iter()
        .try_fold(size, |n, &e| n.checked_mul(e))
        .ok_or("its shape is larger than any memory")?;
    if data.len() as u64 != expected {
        return Err(format!("its shape asks for {expected} bytes and it holds {}", data.len()));
    }
    Ok(Tensor { dtype, shape, bytes: data.to_vec() })
}

fn split(rest: &[u8], header: usize) -> Result<(&[u8], &[u8]), String> {
    rest.split_at_checked(header).ok_or_else(|| "it ends in the header".to_owned())
}

/// The text behind a key of the header's dictionary.
fn field<'h>(header: &'h str, key: &str) -> Result<&'h str, String> {
    let missing = || format!("its header has no `{key}`");
    let at = header.find(&format!("'{key}'")).ok_or_else(missing)?;
    let (_, value) = header[at..].split_once(':').ok_or_else(missing)?;
    Ok(value.trim_start())
}

/// Writes an array; version 1, padded to 64 bytes as numpy does.
pub(super) fn write(dtype: DType, shape: &[u64], bytes: &[u8]) -> Result<Vec<u8>, String> {
    let wanted = if dtype == DType::Bf16 { FileDType::Bits16 } else { FileDType::Known(dtype) };
    let (name, _) = TYPES
        .iter()
        .find(|(_, t)| *t == wanted)
        .ok_or_else(|| format!(".npy cannot hold elements of type {dtype}"))?;
    let extents: String = shape.iter().map(|e| format!("{e},")).collect();
    let mut header =
        format!("{{'descr': '{name}', 'fortran_order': False, 'shape': ({extents}), }}");
    let fixed = MAGIC.len() + 4;
    while !(fixed + header.len() + 1).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    let length = u16::try_from(header.len()).map_err(|_| "a shape of too many axes")?;
    let mut file = MAGIC.to_vec();
    file.extend([1, 0]);
    file.extend(length.to_le_bytes());
    file.extend(header.as_bytes());
    file.extend(bytes);
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for (dtype, shape, len) in
            [(DType::F32, vec![2, 3], 24), (DType::Bf16, vec![5], 10), (DType::I32, vec![], 4)]
        {
            let bytes: Vec<u8> = (0..len).collect();
            let file = write(dtype, &shape, &bytes).unwrap();
            assert_eq!((file.len() - bytes.len()) % 64, 0);
            let tensor = read(&file).unwrap();
            assert!(tensor.dtype.fits(dtype));
            assert_eq!((tensor.shape, tensor.bytes), (shape, bytes));
        }
    }

    #[test]
    fn hostile_headers_are_refused() {
        let make = |header: &str| {
            let mut file = MAGIC.to_vec();
            file.extend([1, 0]);
            file.extend((header.len() as u16).to_le_bytes());
            file.extend(header.as_bytes());
            file
        };
        for header in [
            "",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551615, 4,), }",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
            "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }",
            "{'descr': '<U8', 'fortran_order': False, 'shape': (0,), }",
            "{'descr': '<f4', 'fortran_order': True, 'shape': (0,), }",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }",
        ] {
            assert!(read(&make(header)).is_err(), "{header}");
        }
        for cut in 0..10 {
            assert!(read(&MAGIC[..cut.min(6)]).is_err());
        }
    }
}

//! Elements out of memory as it lies in buffers.

use kernel_abi::DType;
use kernel_ir::ops::Elements;
use kernel_ir::ops::elements::Words;

/// Copies elements of 4 bits, the even one in the low half of its byte.
fn copy_nibbles(bytes: &[u8], start: usize, mut out: &mut [u8]) {
    if !start.is_multiple_of(2)
        && let Some((first, rest)) = std::mem::take(&mut out).split_first_mut()
    {
        *first = bytes[start / 2] >> 4;
        out = rest;
    }
    let bytes = &bytes[start.div_ceil(2)..];
    let (pairs, last) = out.as_chunks_mut::<2>();
    for ([low, high], byte) in pairs.iter_mut().zip(bytes) {
        *low = byte & 0xf;
        *high = byte >> 4;
    }
    if let ([last], Some(byte)) = (last, bytes.get(pairs.len())) {
        *last = byte & 0xf;
    }
}

/// Copies elements of little-endian memory into `out[at..]`.
pub(super) fn copy(
    bytes: &[u8],
    dtype: DType,
    start: usize,
    count: usize,
    out: &mut Elements,
    at: usize,
) {
    let Some(size) = dtype.bytes().map(|s| s as usize) else {
        copy_nibbles(bytes, start, &mut out.vec_mut()[at..at + count]);
        return;
    };
    let bytes = &bytes[start * size..(start + count) * size];
    match out.words_mut() {
        Words::W8(out) => out[at..at + count].copy_from_slice(bytes),
        Words::W16(out) => {
            let (words, _) = bytes.as_chunks::<2>();
            for (o, w) in out[at..at + count].iter_mut().zip(words) {
                *o = u16::from_le_bytes(*w);
            }
        }
        Words::W32(out) => {
            let (words, _) = bytes.as_chunks::<4>();
            for (o, w) in out[at..at + count].iter_mut().zip(words) {
                *o = u32::from_le_bytes(*w);
            }
        }
        Words::W64(out) => {
            let (words, _) = bytes.as_chunks::<8>();
            for (o, w) in out[at..at + count].iter_mut().zip(words) {
                *o = u64::from_le_bytes(*w);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nibbles_start_and_end_anywhere() {
        let bytes = [0x10, 0x32, 0x54, 0x76];
        for start in 0..8 {
            for count in 0..=8 - start {
                let mut out = vec![99; count];
                copy_nibbles(&bytes, start, &mut out);
                let wanted: Vec<u8> = (start as u8..(start + count) as u8).collect();
                assert_eq!(out, wanted);
            }
        }
    }
}

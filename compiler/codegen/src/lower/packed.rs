//! Elements of 4 bits: eight to a word of a register, the first in the low bits.
//!
//! A fragment or slot of e2m1 is a list of such words, the last one filled as far as there are elements. So
//! what a load brings stays as it lies in memory until it is decoded, a word at a time.

use kernel_abi::DType;
use kernel_ir::device::{Arg, FragId, Map};
use melior::ir::Value;

use super::{Lowered, Lowering, refuse};
use crate::mnemonic::Intrinsic;

/// Elements of a word.
pub(super) const OF_WORD: u32 = 8;

/// Values that hold `len` elements of a type: one an element, or one a word.
pub(super) fn units(dtype: DType, len: u32) -> u32 {
    if dtype == DType::E2m1 { len.div_ceil(OF_WORD) } else { len }
}

/// A code in every place of a word.
pub(super) fn repeated(code: u64) -> i64 {
    i64::from((code as u32 & 0xf).wrapping_mul(0x1111_1111) as i32)
}

/// Bytes of the magnitudes 0 to 7 in a 16-bit float, four to a word: those of the codes 0 to 3, then 4 to 7.
struct Table {
    high: [u32; 2],
    /// Absent where all are 0.
    low: Option<[u32; 2]>,
}

/// 0, 0.5, 1, 1.5, 2, 3, 4, 6 as bf16, which is the upper half of f32.
const BF16: Table =
    Table { high: [0x3f3f_3f00, 0x4040_4040], low: Some([0xc080_0000, 0xc080_4000]) };

/// The same as f16.
const F16: Table = Table { high: [0x3e3c_3800, 0x4644_4240], low: None };

/// Of four magnitudes and the bytes that hold their signs: which bytes make the pairs of neighbours.
const PAIRS: [u32; 2] = [0x5140, 0x7362];

/// Which bytes of a word and of the word four bits higher have the signs of elements 0 to 3, and of 4 to 7.
const SIGNS: [u32; 2] = [0x5140, 0x7362];

impl<'c, 'm> Lowering<'c, 'm, '_> {
    fn word(&self, value: u32) -> Value<'c, 'm> {
        self.build.int(self.build.types.i32, i64::from(value as i32))
    }

    /// Bytes of `a` and `b` by the low three bits of each nibble of `selector`.
    fn bytes(&self, a: Value<'c, 'm>, b: Value<'c, 'm>, selector: Value<'c, 'm>) -> Value<'c, 'm> {
        self.build.intrinsic(Intrinsic::Permute, self.build.types.i32, &[a, b, selector])
    }

    /// Word `unit` of an operand.
    pub(super) fn packed_operand(&self, arg: &Arg, unit: u32, len: u32) -> Lowered<Value<'c, 'm>> {
        let b = &self.build;
        let first = unit * OF_WORD;
        let count = OF_WORD.min(len.saturating_sub(first));
        let sources: Vec<u32> = match &arg.map {
            Map::Identity => return self.element(arg.frag, unit),
            Map::All(index) => vec![*index; OF_WORD as usize],
            Map::Table(table) => match table.get(first as usize..(first + count) as usize) {
                Some(entries) => entries.to_vec(),
                None => return refuse(format!("the map of {} is too short", arg.frag)),
            },
        };
        let start = sources.first().copied().unwrap_or(0);
        let in_order = sources.iter().zip(start..).all(|(&source, wanted)| source == wanted);
        if start.is_multiple_of(OF_WORD) && in_order {
            return self.element(arg.frag, start / OF_WORD);
        }
        let mut word = self.word(0);
        for (&source, place) in sources.iter().zip(0u32..) {
            let whole = self.element(arg.frag, source / OF_WORD)?;
            let shifted = b.shrui(whole, self.word(source % OF_WORD * 4));
            let code = b.andi(shifted, self.word(0xf));
            word = b.ori(word, b.shli(code, self.word(place * 4)));
        }
        Ok(word)
    }

    /// The elements of `dst`, decoded from the e2m1 operand `x`; exact.
    pub(super) fn decode(&self, dst: FragId, x: &Arg) -> Lowered<Vec<Value<'c, 'm>>> {
        let frag = self.frag(dst)?;
        let table = match frag.dtype {
            DType::F32 | DType::Bf16 => &BF16,
            DType::F16 => &F16,
            DType::E4m3
            | DType::E5m2
            | DType::E2m1
            | DType::Ue8m0
            | DType::I8
            | DType::U8
            | DType::I32
            | DType::U32
            | DType::I64
            | DType::U64
            | DType::Bool => return refuse(format!("e2m1 is not decoded to {}", frag.dtype)),
        };
        let mut elements = Vec::with_capacity(frag.len as usize);
        for unit in 0..units(DType::E2m1, frag.len) {
            let word = self.packed_operand(x, unit, frag.len)?;
            let mut decoded = self.decode_word(word, frag.dtype, table)?;
            decoded.truncate((frag.len - unit * OF_WORD).min(OF_WORD) as usize);
            elements.append(&mut decoded);
        }
        Ok(elements)
    }

    /// Three bits of each code choose bytes from a table, the fourth is the sign. Neighbours come in one word, as
    /// operands of the tensor core want them.
    fn decode_word(
        &self,
        word: Value<'c, 'm>,
        dtype: DType,
        table: &Table,
    ) -> Lowered<Vec<Value<'c, 'm>>> {
        let b = &self.build;
        let first = b.andi(word, self.word(0x7777_7777));
        let second = b.shrui(first, self.word(16));
        let higher = b.shli(word, self.word(4));
        let mut elements = Vec::with_capacity(OF_WORD as usize);
        for (codes, signs) in [first, second].into_iter().zip(SIGNS) {
            let look_up =
                |[low, high]: [u32; 2]| self.bytes(self.word(low), self.word(high), codes);
            let signs = self.bytes(higher, word, self.word(signs));
            let high = b.ori(look_up(table.high), b.andi(signs, self.word(0x8080_8080)));
            let low = table.low.map(look_up);
            for selector in PAIRS {
                let pair = match low {
                    Some(low) => self.bytes(low, high, self.word(selector)),
                    // the low bytes are 0
                    None => self.bytes(self.word(0), high, self.word(selector & 0xf0f0)),
                };
                elements.push(self.half(pair, dtype, false)?);
                elements.push(self.half(pair, dtype, true)?);
            }
        }
        Ok(elements)
    }

    /// One of the two 16-bit floats of a word as an element of `dtype`.
    fn half(&self, pair: Value<'c, 'm>, dtype: DType, upper: bool) -> Lowered<Value<'c, 'm>> {
        let b = &self.build;
        if dtype == DType::F32 {
            let bits = if upper {
                b.andi(pair, self.word(0xffff_0000))
            } else {
                b.shli(pair, self.word(16))
            };
            return Ok(b.bitcast(b.types.f32, bits));
        }
        let bits = if upper { b.shrui(pair, self.word(16)) } else { pair };
        Ok(b.bitcast(self.element_type(dtype)?, b.trunci(b.types.i16, bits)))
    }

    /// Puts a loaded word of `bits` bits at element `first` of a list of words.
    pub(super) fn deposit(
        &self,
        units: &mut [Option<Value<'c, 'm>>],
        first: u32,
        word: Value<'c, 'm>,
        bits: u32,
    ) -> Lowered<()> {
        let b = &self.build;
        let wide = if bits < 32 { b.extui(b.types.i32, word) } else { word };
        let (unit, shift) = (first / OF_WORD, first % OF_WORD * 4);
        let mut parts = vec![(unit, wide)];
        if shift > 0 {
            parts = vec![(unit, b.shli(wide, self.word(shift)))];
            if shift + bits > 32 {
                parts.push((unit + 1, b.shrui(wide, self.word(32 - shift))));
            }
        }
        for (unit, part) in parts {
            let Some(place) = units.get_mut(unit as usize) else {
                return refuse(format!("a vector ends behind element {first}"));
            };
            *place = Some(place.map_or(part, |known| b.ori(known, part)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel_abi::numeric::{bf16, e2m1, f16};

    /// What `prmt` gives: the selectors here have no sign bit set.
    fn bytes(a: u32, b: u32, selector: u32) -> u32 {
        let all = [a.to_le_bytes(), b.to_le_bytes()].concat();
        let byte = |i: u32| all[(selector >> (4 * i) & 7) as usize];
        u32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)])
    }

    #[test]
    fn every_code_in_every_place_decodes() {
        for seed in 0..4096u32 {
            let word = seed.wrapping_mul(0x9e37_79b9) ^ seed.rotate_left(16);
            let halves = [word & 0x7777_7777, (word & 0x7777_7777) >> 16];
            for (table, is_bf16) in [(&BF16, true), (&F16, false)] {
                for (half, (codes, signs)) in halves.into_iter().zip(SIGNS).enumerate() {
                    let look_up = |t: [u32; 2]| bytes(t[0], t[1], codes);
                    let high = look_up(table.high) | bytes(word << 4, word, signs) & 0x8080_8080;
                    for (at, selector) in PAIRS.into_iter().enumerate() {
                        let pair = match table.low {
                            Some(low) => bytes(look_up(low), high, selector),
                            None => bytes(0, high, selector & 0xf0f0),
                        };
                        let first = half * 4 + at * 2;
                        for (place, bits) in
                            [(first, pair as u16), (first + 1, (pair >> 16) as u16)]
                        {
                            let wanted = e2m1::to_f32((word >> (4 * place)) as u8 & 0xf);
                            let found =
                                if is_bf16 { bf16::to_f32(bits) } else { f16::to_f32(bits) };
                            assert_eq!(found.to_bits(), wanted.to_bits(), "{word:x} at {place}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn words_hold_eight() {
        assert_eq!([0, 1, 8, 9, 32].map(|n| units(DType::E2m1, n)), [0, 1, 1, 2, 4]);
        assert_eq!(units(DType::Ue8m0, 9), 9);
        assert_eq!(repeated(0xf), -1);
        assert_eq!(repeated(3), 0x3333_3333);
    }
}

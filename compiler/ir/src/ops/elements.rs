//! A run of elements of one type, as bits.

use kernel_abi::DType;
use kernel_abi::numeric::float_from_f64;

use crate::kernel::Literal;

/// A run of elements of one type. Each is stored as its code in the narrowest unsigned word of 8, 16, 32
/// or 64 bits; `e2m1` takes a byte, bool is 0 or 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elements {
    dtype: DType,
    words: Words,
}

/// Codes by the width of their word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Words {
    /// Types of 8 bits and less.
    W8(Vec<u8>),
    /// Types of 16 bits.
    W16(Vec<u16>),
    /// Types of 32 bits.
    W32(Vec<u32>),
    /// Types of 64 bits.
    W64(Vec<u64>),
}

/// Runs the block with `$words` bound to the vector inside, whatever its width.
#[macro_export]
macro_rules! each_width {
    ($value:expr, $words:ident => $block:expr) => {
        match $value {
            $crate::ops::elements::Words::W8($words) => $block,
            $crate::ops::elements::Words::W16($words) => $block,
            $crate::ops::elements::Words::W32($words) => $block,
            $crate::ops::elements::Words::W64($words) => $block,
        }
    };
}

/// An unsigned word that holds a code.
pub trait Word: Copy + Default + PartialEq + 'static {
    /// The codes, if they have this width.
    fn slice(words: &Words) -> Option<&[Self]>;
    /// The codes, if they have this width.
    fn vec_mut(words: &mut Words) -> Option<&mut Vec<Self>>;
    /// The low bits of `bits`.
    fn truncate(bits: u64) -> Self;
    /// The code as the low bits of a `u64`.
    fn extend(self) -> u64;
}

macro_rules! words {
    ($($word:ty = $variant:ident),*) => {$(
        impl Word for $word {
            #[inline]
            fn slice(words: &Words) -> Option<&[Self]> {
                if let Words::$variant(v) = words { Some(v) } else { None }
            }
            #[inline]
            fn vec_mut(words: &mut Words) -> Option<&mut Vec<Self>> {
                if let Words::$variant(v) = words { Some(v) } else { None }
            }
            #[inline]
            fn truncate(bits: u64) -> Self {
                bits as $word
            }
            #[inline]
            fn extend(self) -> u64 {
                u64::from(self)
            }
        }
    )*};
}

words!(u8 = W8, u16 = W16, u32 = W32, u64 = W64);

impl Words {
    fn empty(dtype: DType) -> Words {
        match dtype.bits() {
            0..=8 => Words::W8(Vec::new()),
            9..=16 => Words::W16(Vec::new()),
            17..=32 => Words::W32(Vec::new()),
            _ => Words::W64(Vec::new()),
        }
    }
}

impl Elements {
    /// No elements of a type.
    pub fn new(dtype: DType) -> Elements {
        Elements { dtype, words: Words::empty(dtype) }
    }

    /// `len` elements with one code.
    pub fn splat(dtype: DType, code: u64, len: usize) -> Elements {
        let mut elements = Elements::new(dtype);
        elements.fill(code, len);
        elements
    }

    /// Elements with the given codes.
    pub fn from_codes(dtype: DType, codes: impl IntoIterator<Item = u64>) -> Elements {
        let mut elements = Elements::new(dtype);
        each_width!(&mut elements.words, w => {
            for code in codes {
                w.push(Word::truncate(code));
            }
        });
        elements
    }

    /// Elements of f32.
    pub fn from_f32(values: &[f32]) -> Elements {
        let words = Words::W32(values.iter().map(|v| v.to_bits()).collect());
        Elements { dtype: DType::F32, words }
    }

    /// Elements of i32.
    pub fn from_i32(values: &[i32]) -> Elements {
        let words = Words::W32(values.iter().map(|&v| v as u32).collect());
        Elements { dtype: DType::I32, words }
    }

    /// The type of every element.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        each_width!(&self.words, w => w.len())
    }

    /// True without elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The code of an element.
    pub fn get(&self, index: usize) -> u64 {
        each_width!(&self.words, w => w[index].extend())
    }

    /// Sets the code of an element.
    pub fn set(&mut self, index: usize, code: u64) {
        each_width!(&mut self.words, w => w[index] = Word::truncate(code));
    }

    /// All codes, in order.
    pub fn codes(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.len()).map(|i| self.get(i))
    }

    /// Drops all elements and takes another type; memory is kept where the width allows.
    pub fn reset(&mut self, dtype: DType) {
        self.dtype = dtype;
        if std::mem::discriminant(&Words::empty(dtype)) == std::mem::discriminant(&self.words) {
            each_width!(&mut self.words, w => w.clear());
        } else {
            self.words = Words::empty(dtype);
        }
    }

    /// Replaces all elements by `len` with one code.
    pub fn fill(&mut self, code: u64, len: usize) {
        each_width!(&mut self.words, w => {
            w.clear();
            w.resize(len, Word::truncate(code));
        });
    }

    /// The codes by width.
    pub fn words(&self) -> &Words {
        &self.words
    }

    /// The codes by width, for writing; the width must stay.
    pub fn words_mut(&mut self) -> &mut Words {
        &mut self.words
    }

    /// The codes as words of a width that the type has.
    #[inline]
    pub fn slice<W: Word>(&self) -> &[W] {
        W::slice(&self.words).expect("the caller knows the width of the type")
    }

    /// The codes as words of a width that the type has, for writing.
    #[inline]
    pub fn vec_mut<W: Word>(&mut self) -> &mut Vec<W> {
        W::vec_mut(&mut self.words).expect("the caller knows the width of the type")
    }

    /// The values as f32; the type must be f32.
    pub fn to_f32(&self) -> Vec<f32> {
        self.slice::<u32>().iter().map(|&w| f32::from_bits(w)).collect()
    }

    /// Appends elements `map(i)` of `source`, which has the same type.
    pub fn gather(&mut self, source: &Elements, indices: impl Iterator<Item = usize>) {
        match (&mut self.words, &source.words) {
            (Words::W8(to), Words::W8(from)) => to.extend(indices.map(|i| from[i])),
            (Words::W16(to), Words::W16(from)) => to.extend(indices.map(|i| from[i])),
            (Words::W32(to), Words::W32(from)) => to.extend(indices.map(|i| from[i])),
            (Words::W64(to), Words::W64(from)) => to.extend(indices.map(|i| from[i])),
            (Words::W8(_) | Words::W16(_) | Words::W32(_) | Words::W64(_), _) => {
                unreachable!("both have one type, so one width")
            }
        }
    }

    /// Appends `source[range]`, which has the same type.
    pub fn extend_from(&mut self, source: &Elements, range: std::ops::Range<usize>) {
        match (&mut self.words, &source.words) {
            (Words::W8(to), Words::W8(from)) => to.extend_from_slice(&from[range]),
            (Words::W16(to), Words::W16(from)) => to.extend_from_slice(&from[range]),
            (Words::W32(to), Words::W32(from)) => to.extend_from_slice(&from[range]),
            (Words::W64(to), Words::W64(from)) => to.extend_from_slice(&from[range]),
            (Words::W8(_) | Words::W16(_) | Words::W32(_) | Words::W64(_), _) => {
                unreachable!("both have one type, so one width")
            }
        }
    }
}

/// The code of a literal in `dtype`, rounded once; `None` where kind and type do not fit, or an integer is
/// outside the type. An integer literal may stand for a floating-point value that it is exactly.
pub fn literal_code(dtype: DType, literal: Literal) -> Option<u64> {
    match literal {
        Literal::Float(x) => float_from_f64(dtype, x),
        Literal::Bool(b) => (dtype == DType::Bool).then_some(u64::from(b)),
        Literal::Int(i) if dtype.is_float() => float_from_f64(dtype, i as f64),
        Literal::Int(i) => {
            let fits = match dtype {
                DType::I8 => i8::try_from(i).is_ok(),
                DType::U8 => u8::try_from(i).is_ok(),
                DType::I32 => i32::try_from(i).is_ok(),
                DType::U32 => u32::try_from(i).is_ok(),
                DType::I64 => true,
                DType::U64 => i >= 0,
                DType::F32
                | DType::F16
                | DType::Bf16
                | DType::E4m3
                | DType::E5m2
                | DType::E2m1
                | DType::Ue8m0
                | DType::Bool => false,
            };
            fits.then_some(i as u64 & (u64::MAX >> (64 - dtype.bits())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_keep_their_width() {
        for dtype in DType::ALL {
            let mut e = Elements::from_codes(dtype, [1, 0, 1]);
            assert_eq!((e.len(), e.get(2), e.dtype()), (3, 1, dtype));
            e.set(1, 1);
            assert_eq!(e.codes().collect::<Vec<_>>(), [1, 1, 1]);
            let mut copy = Elements::new(dtype);
            copy.extend_from(&e, 1..3);
            copy.gather(&e, [0, 0].into_iter());
            assert_eq!(copy, Elements::splat(dtype, 1, 4));
            copy.reset(DType::F32);
            assert!(copy.is_empty());
        }
    }

    #[test]
    fn literals_are_rounded_once_and_checked() {
        assert_eq!(literal_code(DType::Bf16, Literal::Float(1.0 / 3.0)), Some(0x3eab));
        assert_eq!(literal_code(DType::F32, Literal::Float(f64::NEG_INFINITY)), Some(0xff80_0000));
        assert_eq!(literal_code(DType::I32, Literal::Int(-1)), Some(0xffff_ffff));
        assert_eq!(literal_code(DType::U32, Literal::Int(-1)), None);
        assert_eq!(literal_code(DType::I8, Literal::Int(200)), None);
        assert_eq!(literal_code(DType::F32, Literal::Int(3)), Some(0x4040_0000));
        assert_eq!(literal_code(DType::Bool, Literal::Bool(true)), Some(1));
        assert_eq!(literal_code(DType::I32, Literal::Bool(true)), None);
        assert_eq!(literal_code(DType::I32, Literal::Float(1.0)), None);
    }
}

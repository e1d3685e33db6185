//! The memory of a launch: one argument a parameter, with every element known to be written or not.

use std::sync::Arc;

use kernel_abi::DType;
use kernel_abi::numeric::{self, random};
use kernel_ir::index::IndexVec;
use kernel_ir::kernel::{Param, ParamId};
use kernel_ir::ops::Elements;

use crate::error::EmuError;
use crate::launch;

/// A buffer: little-endian bytes, and which elements have been written. Clones share their content until one of them
/// is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buffer {
    dtype: DType,
    len: usize,
    bytes: Arc<Vec<u8>>,
    /// One bit an element; absent when all are written.
    written: Option<Arc<Vec<u64>>>,
}

impl Default for Buffer {
    /// A buffer without elements.
    fn default() -> Buffer {
        Buffer::poison(DType::U8, 0)
    }
}

impl Buffer {
    /// A buffer whose elements are all written: little-endian, row-major, e2m1 two a byte with the even
    /// element in the low nibble.
    pub fn filled(dtype: DType, bytes: Vec<u8>) -> Buffer {
        let len = numeric::elements_in(dtype, bytes.len());
        Buffer { dtype, len, bytes: Arc::new(bytes), written: None }
    }

    /// A buffer of `len` elements that nothing has written.
    pub fn poison(dtype: DType, len: usize) -> Buffer {
        let bytes = Arc::new(vec![0; numeric::bytes_of(dtype, len)]);
        let written = (len > 0).then(|| Arc::new(vec![0; len.div_ceil(64)]));
        Buffer { dtype, len, bytes, written }
    }

    /// A buffer of random elements by the recipe of [`kernel_abi::numeric::random`], which any language can
    /// follow; `stream` is the number of the parameter.
    pub fn random(
        dtype: DType,
        len: usize,
        seed: u64,
        stream: u64,
        range: Option<&random::IntRange>,
    ) -> Result<Buffer, random::RandomError> {
        Ok(Buffer::from_codes(dtype, &random::codes(dtype, len, seed, stream, range)?))
    }

    /// A buffer with the given codes.
    pub fn from_codes(dtype: DType, codes: &[u64]) -> Buffer {
        let mut bytes = vec![0; numeric::bytes_of(dtype, codes.len())];
        for (i, &code) in codes.iter().enumerate() {
            numeric::write_element(dtype, &mut bytes, i, code);
        }
        Buffer { dtype, len: codes.len(), bytes: Arc::new(bytes), written: None }
    }

    /// A buffer of `dtype` with the given values, rounded; integers are truncated and saturate.
    pub fn from_f32(dtype: DType, values: &[f32]) -> Buffer {
        let mut elements = Elements::new(dtype);
        kernel_ir::ops::convert::elements(&Elements::from_f32(values), dtype, &mut elements);
        Buffer::from_codes(dtype, &elements.codes().collect::<Vec<_>>())
    }

    /// A buffer of i32.
    pub fn from_i32(values: &[i32]) -> Buffer {
        Buffer::filled(DType::I32, values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True without elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes; those of unwritten elements mean nothing.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// True where an element has been written; false past the end.
    pub fn is_written(&self, index: usize) -> bool {
        match &self.written {
            None => index < self.len,
            Some(bits) => bits.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1),
        }
    }

    /// The first element that nothing has written.
    pub fn first_unwritten(&self) -> Option<usize> {
        self.unwritten_in(0, self.len)
    }

    /// The code of an element, if it has been written.
    pub fn code(&self, index: usize) -> Option<u64> {
        if self.is_written(index) {
            numeric::read_element(self.dtype, &self.bytes, index)
        } else {
            None
        }
    }

    /// All elements as f64; NaN where nothing was written.
    pub fn to_f64(&self) -> Vec<f64> {
        let value = |i| self.code(i).map_or(f64::NAN, |code| numeric::to_f64(self.dtype, code));
        (0..self.len).map(value).collect()
    }

    /// The first element of `start..start + count` that nothing has written; the range is inside.
    pub(crate) fn unwritten_in(&self, start: usize, count: usize) -> Option<usize> {
        let bits = self.written.as_ref()?;
        let end = start + count;
        let mut at = start;
        while at < end {
            let in_word = at % 64;
            let here = (64 - in_word).min(end - at);
            let mask = (u64::MAX >> (64 - here)) << in_word;
            let missing = !bits[at / 64] & mask;
            if missing != 0 {
                return Some(at - in_word + missing.trailing_zeros() as usize);
            }
            at += here;
        }
        None
    }

    /// Sets an element.
    pub(crate) fn write(&mut self, index: usize, code: u64) {
        numeric::write_element(
            self.dtype,
            Arc::make_mut(&mut self.bytes).as_mut_slice(),
            index,
            code,
        );
        if let Some(bits) = &mut self.written {
            Arc::make_mut(bits)[index / 64] |= 1 << (index % 64);
        }
    }

    /// Sets consecutive elements of whole bytes.
    pub(crate) fn write_run(&mut self, start: usize, bytes: &[u8]) {
        let size = self.dtype.bytes().map_or(1, |size| size as usize);
        Arc::make_mut(&mut self.bytes)[start * size..][..bytes.len()].copy_from_slice(bytes);
        if let Some(bits) = self.written.as_mut().map(Arc::make_mut) {
            for i in start..start + bytes.len() / size {
                bits[i / 64] |= 1 << (i % 64);
            }
        }
    }

    /// Makes every element poison.
    pub(crate) fn forget_all(&mut self) {
        let words = self.len.div_ceil(64);
        match &mut self.written {
            Some(bits) => Arc::make_mut(bits).fill(0),
            None => self.written = (words > 0).then(|| Arc::new(vec![0; words])),
        }
    }

    /// Makes an element poison.
    pub(crate) fn forget(&mut self, index: usize) {
        let len = self.len;
        let all = || Arc::new(vec![u64::MAX; len.div_ceil(64)]);
        let bits = self.written.get_or_insert_with(all);
        Arc::make_mut(bits)[index / 64] &= !(1 << (index % 64));
    }
}

/// What a parameter gets at launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Argument {
    /// Nothing yet.
    Missing,
    /// The code of a scalar.
    Scalar {
        /// Its type.
        dtype: DType,
        /// Its code.
        code: u64,
    },
    /// A buffer.
    Buffer(Buffer),
}

/// The memory of a launch: one argument a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    pub(crate) arguments: IndexVec<ParamId, Argument>,
}

impl Memory {
    /// Memory for a kernel with these parameters; every argument is missing.
    pub fn new(params: &IndexVec<ParamId, Param>) -> Memory {
        Memory { arguments: params.iter().map(|_| Argument::Missing).collect() }
    }

    /// The parameter of that name.
    pub fn find(params: &IndexVec<ParamId, Param>, name: &str) -> Option<ParamId> {
        params.iter_enumerated().find(|(_, p)| p.name == name).map(|(id, _)| id)
    }

    /// Sets the buffer of a parameter.
    pub fn set_buffer(&mut self, param: ParamId, buffer: Buffer) {
        self.arguments[param] = Argument::Buffer(buffer);
    }

    /// Sets the value of a scalar parameter by its code.
    pub fn set_scalar(&mut self, param: ParamId, dtype: DType, code: u64) {
        self.arguments[param] = Argument::Scalar { dtype, code };
    }

    /// What a parameter has got.
    pub fn argument(&self, param: ParamId) -> &Argument {
        &self.arguments[param]
    }

    /// The buffer of a parameter, if it has one.
    pub fn buffer(&self, param: ParamId) -> Option<&Buffer> {
        match &self.arguments[param] {
            Argument::Buffer(buffer) => Some(buffer),
            Argument::Missing | Argument::Scalar { .. } => None,
        }
    }

    /// Gives every missing argument a value: random by the recipe of [`kernel_abi::numeric::random`], with
    /// the number of the parameter as stream and its contract as range; `output` and `scratch` buffers
    /// become poison. Scalars are set first, since extents depend on them; one that is an extent or bounds
    /// a contract takes the greatest value of its own contract, or 16 without one.
    pub fn fill_missing(
        &mut self,
        params: &IndexVec<ParamId, Param>,
        seed: u64,
    ) -> Result<(), EmuError> {
        launch::fill_missing(params, self, seed)
    }
}

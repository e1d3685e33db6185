//! A checkpoint in a folder: `model.safetensors`, or several files with `model.safetensors.index.json`.
//!
//! Tensors are read when they are asked for. Every header is checked before, so that a tensor never leaves its file
//! and two tensors never share bytes. A file that is cut off meanwhile is an error where it is read, and
//! [`Checkpoint::check_unchanged`] tells whether somebody wrote to one.

mod error;
mod file;
mod header;
mod index;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use kernel_abi::DType;
use safetensors::Dtype;
use sha2::{Digest, Sha256};

pub use error::CheckpointError;

use crate::config::Config;
use crate::files::{MAX_LIST, read_text};
use crate::manifest::{self, Entry, Rule};
use crate::shown::{NAME, shown};
use file::OpenFile;

/// Name of a checkpoint in one file.
pub const SINGLE_FILE: &str = "model.safetensors";
/// Name of the index of a checkpoint in several files.
pub const INDEX_FILE: &str = "model.safetensors.index.json";

/// The code of ue8m0 that is no number.
const SCALE_NAN: u8 = kernel_abi::numeric::ue8m0::NAN;

/// The exponent of bf16; all of its bits are set in infinities and NaN alone.
const BF16_INFINITY: u16 = 0x7f80;

/// An open checkpoint.
#[derive(Debug)]
pub struct Checkpoint {
    files: Vec<OpenFile>,
    tensors: BTreeMap<String, Place>,
}

/// Where a tensor stands.
#[derive(Debug, Clone)]
struct Place {
    file: usize,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Range<usize>,
}

/// A tensor as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Element type.
    pub dtype: DType,
    /// Shape, outermost axis first.
    pub shape: Vec<usize>,
    /// Elements, row-major and little-endian.
    pub bytes: Vec<u8>,
}

impl Tensor {
    /// The values of a floating-point tensor, widened without loss; integers as numbers.
    pub fn to_f64(&self) -> Vec<f64> {
        match self.dtype {
            DType::F32 => {
                let value = |b: &[u8]| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
                self.bytes.chunks_exact(4).map(value).collect()
            }
            DType::Bf16 => {
                let value = |b: &[u8]| {
                    f64::from(f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16))
                };
                self.bytes.chunks_exact(2).map(value).collect()
            }
            DType::F16
            | DType::E4m3
            | DType::E5m2
            | DType::E2m1
            | DType::Ue8m0
            | DType::I8
            | DType::U8
            | DType::I32
            | DType::U32
            | DType::I64
            | DType::U64
            | DType::Bool => {
                let count = kernel_abi::numeric::elements_in(self.dtype, self.bytes.len());
                let code = |at| kernel_abi::numeric::read_element(self.dtype, &self.bytes, at);
                let value = |code| kernel_abi::numeric::to_f64(self.dtype, code);
                (0..count).filter_map(code).map(value).collect()
            }
        }
    }
}

impl Place {
    /// Its element type.
    fn dtype(&self, name: &str) -> Result<DType, CheckpointError> {
        known(self.dtype).ok_or_else(|| CheckpointError::DType {
            tensor: name.to_owned(),
            found: format!("{:?}", self.dtype),
            expected: "a type that the language has".to_owned(),
        })
    }
}

impl Checkpoint {
    /// Opens the files of a folder and checks their headers.
    ///
    /// # Errors
    /// There is no checkpoint, a file cannot be read, or a header or the index is broken.
    pub fn open(folder: &Path) -> Result<Checkpoint, CheckpointError> {
        let single = folder.join(SINGLE_FILE);
        // A link that leads nowhere or in a circle is there, and cannot be read.
        let is_there = |path: &Path| path.symlink_metadata().is_ok();
        if is_there(&single) {
            return Checkpoint::open_file(&single);
        }
        let path = folder.join(INDEX_FILE);
        if !is_there(&path) {
            return Err(CheckpointError::None { folder: folder.to_owned() });
        }
        let text = read_text(&path, MAX_LIST)
            .map_err(|source| CheckpointError::File { path: path.clone(), source })?;
        let weight_map = index::parse(&text, &path)?;
        let mut checkpoint = Checkpoint { files: Vec::new(), tensors: BTreeMap::new() };
        for (file_name, names) in weight_map {
            checkpoint.add_indexed(folder, &path, &file_name, names)?;
        }
        Ok(checkpoint)
    }

    /// Opens one safetensors file, whatever its name.
    ///
    /// # Errors
    /// The file cannot be read, or its header is broken.
    pub fn open_file(path: &Path) -> Result<Checkpoint, CheckpointError> {
        let file = OpenFile::open(path)?;
        let place = |info: header::Info| Place {
            file: 0,
            dtype: info.dtype,
            shape: info.shape,
            bytes: info.bytes,
        };
        let tensors = header::parse(&file)?;
        let tensors = tensors.into_iter().map(|(name, info)| (name, place(info))).collect();
        Ok(Checkpoint { files: vec![file], tensors })
    }

    /// Adds what the index says about one file; what it does not name is left out.
    fn add_indexed(
        &mut self,
        folder: &Path,
        index: &Path,
        file_name: &str,
        names: Vec<String>,
    ) -> Result<(), CheckpointError> {
        let path = folder.join(file_name);
        if !path.is_file() {
            return Err(CheckpointError::IndexedFile {
                index: index.to_owned(),
                file: shown(file_name, NAME),
                fault: "which is not there",
            });
        }
        let file = OpenFile::open(&path)?;
        let mut tensors = header::parse(&file)?;
        for name in names {
            let Some(info) = tensors.remove(&name) else {
                return Err(CheckpointError::Missing { tensor: shown(&name, NAME), place: path });
            };
            let header::Info { dtype, shape, bytes } = info;
            self.tensors.insert(name, Place { file: self.files.len(), dtype, shape, bytes });
        }
        self.files.push(file);
        Ok(())
    }

    /// The names of all tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(OpenFile::len).sum()
    }

    /// The files, in the order of the index.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(OpenFile::path)
    }

    /// A tensor by name.
    ///
    /// # Errors
    /// There is none, nothing here knows its element type, or its file was cut off or cannot be read.
    pub fn tensor(&self, name: &str) -> Result<Tensor, CheckpointError> {
        let place = self.place(name)?;
        self.read(place, place.dtype(name)?, place.bytes.len())
    }

    /// The first `rows * columns` elements of a tensor that has no others, unless it is a vector: those may be padded.
    ///
    /// # Errors
    /// There is none of that type and size, or its file was cut off or cannot be read.
    pub fn matrix(
        &self,
        name: &str,
        dtype: DType,
        [rows, columns]: [u64; 2],
    ) -> Result<Vec<u8>, CheckpointError> {
        self.rows(name, dtype, [rows, columns], 0..rows)
    }

    /// Some rows of such a tensor; no more is read.
    ///
    /// # Errors
    /// As [`Checkpoint::matrix`], or there are not so many rows.
    pub fn rows(
        &self,
        name: &str,
        dtype: DType,
        [rows, columns]: [u64; 2],
        wanted: Range<u64>,
    ) -> Result<Vec<u8>, CheckpointError> {
        let place = self.typed(name, dtype)?;
        let found = place.bytes.len() as u64;
        let size = u64::from(dtype.bytes().unwrap_or(1));
        let row = columns.checked_mul(size);
        let all = row.and_then(|row| row.checked_mul(rows));
        match row.zip(all) {
            Some((row, all))
                if (found == all || (rows == 1 && found > all)) && wanted.end <= rows =>
            {
                // Within `all`, which is within the file.
                let len = wanted.end.saturating_sub(wanted.start) * row;
                let start = place.bytes.start as u64 + wanted.start * row;
                self.files[place.file].read(start, len as usize)
            }
            Some(_) | None => Err(CheckpointError::Shape {
                tensor: name.to_owned(),
                found: place.shape.clone(),
                expected: format!("[{rows}, {columns}]"),
            }),
        }
    }

    /// A tensor of that element type and shape.
    ///
    /// # Errors
    /// There is none, it is another, or its file was cut off or cannot be read.
    pub fn expect(
        &self,
        name: &str,
        dtype: DType,
        shape: &[usize],
    ) -> Result<Tensor, CheckpointError> {
        let place = self.typed(name, dtype)?;
        if place.shape != shape {
            return Err(CheckpointError::Shape {
                tensor: name.to_owned(),
                found: place.shape.clone(),
                expected: format!("{shape:?}"),
            });
        }
        self.read(place, dtype, place.bytes.len())
    }

    /// A tensor of floating-point numbers in which every element is finite.
    ///
    /// # Errors
    /// There is none, it is another, or an element is NaN or infinite.
    pub fn expect_finite(
        &self,
        name: &str,
        dtype: DType,
        shape: &[usize],
    ) -> Result<Tensor, CheckpointError> {
        self.finite(name, self.expect(name, dtype, shape)?)
    }

    /// The first `len` elements, all finite, of a tensor of f32 with one axis that may be longer.
    ///
    /// # Errors
    /// There is none, it is of another type or shape, or an element is NaN or infinite.
    pub fn expect_padded(&self, name: &str, len: usize) -> Result<Tensor, CheckpointError> {
        let place = self.typed(name, DType::F32)?;
        let bytes = kernel_abi::numeric::bytes_of(DType::F32, len);
        if place.shape.len() != 1 || place.bytes.len() < bytes {
            return Err(CheckpointError::Shape {
                tensor: name.to_owned(),
                found: place.shape.clone(),
                expected: format!("[{len} or more]"),
            });
        }
        let tensor = self.read(place, DType::F32, bytes)?;
        self.finite(name, Tensor { shape: vec![len], ..tensor })
    }

    /// Block scales: bytes of ue8m0, none of which is the code 255.
    ///
    /// # Errors
    /// There is no such tensor, it is another, or an element is no number.
    pub fn expect_scales(&self, name: &str, shape: [usize; 2]) -> Result<Tensor, CheckpointError> {
        let tensor = self.expect(name, DType::U8, &shape)?;
        match tensor.bytes.iter().position(|&code| code == SCALE_NAN) {
            None => Ok(Tensor { dtype: DType::Ue8m0, ..tensor }),
            Some(at) => Err(CheckpointError::Scale {
                path: self.path_of(name),
                tensor: name.to_owned(),
                row: at / shape[1],
                column: at % shape[1],
            }),
        }
    }

    /// The tensor that an entry of the manifest describes, with its rule held.
    ///
    /// # Errors
    /// There is none, it is another, or an element breaks the rule.
    pub fn entry(&self, entry: &Entry) -> Result<Tensor, CheckpointError> {
        let (name, shape) = (entry.name.as_str(), entry.shape.as_slice());
        match (entry.rule, shape) {
            (Rule::Scale, &[rows, columns]) => self.expect_scales(name, [rows, columns]),
            (Rule::Padded, &[len]) => self.expect_padded(name, len),
            (Rule::Finite, _) => self.expect_finite(name, entry.dtype, shape),
            (Rule::Any | Rule::Scale | Rule::Padded, _) => self.expect(name, entry.dtype, shape),
        }
    }

    /// Checks every tensor that a configuration needs. Further tensors are left alone.
    ///
    /// # Errors
    /// One is missing, is another, or holds an element that it must not.
    pub fn check(&self, config: &Config) -> Result<(), CheckpointError> {
        manifest::visit(config, &mut |entry| self.entry(&entry).map(|_| ()))
    }

    /// Compares size, inode and times of every file with those at opening.
    ///
    /// # Errors
    /// A file was written, replaced or removed since.
    pub fn check_unchanged(&self) -> Result<(), CheckpointError> {
        self.files.iter().try_for_each(OpenFile::check_unchanged)
    }

    /// A hash of the names, sizes, inodes and times of its files: another one after every change.
    pub fn identity(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        for file in &self.files {
            file.identify(&mut hash);
        }
        hash.finalize().into()
    }

    fn place(&self, name: &str) -> Result<&Place, CheckpointError> {
        self.tensors.get(name).ok_or_else(|| self.missing(name))
    }

    /// Where a tensor of that element type stands.
    fn typed(&self, name: &str, dtype: DType) -> Result<&Place, CheckpointError> {
        let place = self.place(name)?;
        let found = place.dtype(name)?;
        if found != dtype {
            return Err(CheckpointError::DType {
                tensor: name.to_owned(),
                found: found.name().to_owned(),
                expected: dtype.name().to_owned(),
            });
        }
        Ok(place)
    }

    /// The first `len` bytes of a tensor.
    fn read(&self, place: &Place, dtype: DType, len: usize) -> Result<Tensor, CheckpointError> {
        let bytes = self.files[place.file].read(place.bytes.start as u64, len)?;
        Ok(Tensor { dtype, shape: place.shape.clone(), bytes })
    }

    /// Refuses NaN and infinity.
    fn finite(&self, name: &str, tensor: Tensor) -> Result<Tensor, CheckpointError> {
        match first_fault(&tensor) {
            None => Ok(tensor),
            Some(element) => Err(CheckpointError::NotFinite {
                path: self.path_of(name),
                tensor: name.to_owned(),
                element,
            }),
        }
    }

    /// The file of a tensor.
    fn path_of(&self, name: &str) -> PathBuf {
        let place = self.tensors.get(name);
        place.map(|place| self.files[place.file].path().to_owned()).unwrap_or_default()
    }

    fn missing(&self, name: &str) -> CheckpointError {
        let place = match self.files.as_slice() {
            [file] => file.path().to_owned(),
            [] => PathBuf::new(),
            [first, ..] => first.path().parent().map(Path::to_owned).unwrap_or_default(),
        };
        CheckpointError::Missing { tensor: name.to_owned(), place }
    }
}

/// The first element that is NaN or infinite.
fn first_fault(tensor: &Tensor) -> Option<usize> {
    match tensor.dtype {
        DType::Bf16 => first_not_finite(tensor.bytes.as_chunks::<2>().0, |bytes| {
            u16::from_le_bytes(bytes) & BF16_INFINITY == BF16_INFINITY
        }),
        DType::F32 => first_not_finite(tensor.bytes.as_chunks::<4>().0, |bytes| {
            !f32::from_le_bytes(bytes).is_finite()
        }),
        DType::F16
        | DType::E4m3
        | DType::E5m2
        | DType::E2m1
        | DType::Ue8m0
        | DType::I8
        | DType::U8
        | DType::I32
        | DType::U32
        | DType::I64
        | DType::U64
        | DType::Bool => tensor.to_f64().iter().position(|value| !value.is_finite()),
    }
}

/// The first element that is not finite. Blocks are judged as a whole first, without a branch for each element: a
/// checkpoint of K3 has tens of billions.
fn first_not_finite<const N: usize>(
    elements: &[[u8; N]],
    is_bad: impl Fn([u8; N]) -> bool,
) -> Option<usize> {
    const BLOCK: usize = 4096;
    let has_bad = |block: &[[u8; N]]| block.iter().fold(false, |any, &bytes| any | is_bad(bytes));
    let block = elements.chunks(BLOCK).position(has_bad)? * BLOCK;
    let within = elements[block..].iter().position(|&bytes| is_bad(bytes))?;
    Some(block + within)
}

/// The language's type for a type of safetensors.
fn known(dtype: Dtype) -> Option<DType> {
    Some(match dtype {
        Dtype::BOOL => DType::Bool,
        Dtype::U8 => DType::U8,
        Dtype::I8 => DType::I8,
        Dtype::F8_E5M2 => DType::E5m2,
        Dtype::F8_E4M3 => DType::E4m3,
        Dtype::F8_E8M0 => DType::Ue8m0,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::Bf16,
        Dtype::I32 => DType::I32,
        Dtype::U32 => DType::U32,
        Dtype::F32 => DType::F32,
        Dtype::I64 => DType::I64,
        Dtype::U64 => DType::U64,
        // The type is another crate's and may grow.
        _ => return None,
    })
}

/// The name of a type in a header; `None` for the packed one, which is stored as bytes.
pub(crate) fn format_name(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::Bool => "BOOL",
        DType::U8 => "U8",
        DType::I8 => "I8",
        DType::E5m2 => "F8_E5M2",
        DType::E4m3 => "F8_E4M3",
        DType::Ue8m0 => "F8_E8M0",
        DType::F16 => "F16",
        DType::Bf16 => "BF16",
        DType::I32 => "I32",
        DType::U32 => "U32",
        DType::F32 => "F32",
        DType::I64 => "I64",
        DType::U64 => "U64",
        DType::E2m1 => return None,
    })
}

//! Tensors in files: `.npy` and `.safetensors`.
//!
//! The reader of `.npy` is our own because the maintained crate multiplies the extents of a header unchecked
//! and a hostile file would panic. numpy has no bf16: such buffers travel as `u2` bit patterns, or as BF16 in
//! safetensors.

mod npy;

use std::path::Path;

use kernel_abi::DType;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

/// A tensor: little-endian elements, row-major.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Element type of the file.
    pub dtype: FileDType,
    /// Extents.
    pub shape: Vec<u64>,
    /// The elements.
    pub bytes: Vec<u8>,
}

/// An element type as files name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileDType {
    /// One of ours.
    Known(DType),
    /// `u2` of numpy: the bit patterns of a 16-bit float.
    Bits16,
    /// A type of numpy that no buffer can have.
    Foreign(&'static str),
}

impl FileDType {
    /// True where a buffer of `dtype` can take the elements without conversion.
    pub fn fits(self, dtype: DType) -> bool {
        match self {
            FileDType::Known(known) => known == dtype,
            FileDType::Bits16 => matches!(dtype, DType::Bf16 | DType::F16),
            FileDType::Foreign(_) => false,
        }
    }

    /// The name for messages.
    pub fn name(self) -> &'static str {
        match self {
            FileDType::Known(dtype) => dtype.name(),
            FileDType::Bits16 => "u16",
            FileDType::Foreign(name) => name,
        }
    }
}

/// Reads a tensor. A path may name a tensor of a safetensors file: `model.safetensors:layers.1.norm.weight`.
///
/// # Errors
/// Why the file or the tensor cannot be read.
pub fn read(spec: &str) -> Result<Tensor, String> {
    let (path, name) = match spec.split_once(".safetensors:") {
        Some((stem, name)) => (format!("{stem}.safetensors"), Some(name)),
        None => (spec.to_owned(), None),
    };
    let bytes = std::fs::read(&path).map_err(|error| format!("cannot read `{path}`: {error}"))?;
    if Path::new(&path).extension().is_some_and(|e| e == "safetensors") {
        return read_safetensors(&bytes, name).map_err(|reason| format!("`{path}`: {reason}"));
    }
    npy::read(&bytes).map_err(|reason| format!("`{path}`: {reason}"))
}

/// The file form of a tensor: by the extension of its path.
///
/// # Errors
/// The extension is neither `.npy` nor `.safetensors`, or the form cannot hold the element type.
pub fn encode(
    path: &Path,
    name: &str,
    dtype: DType,
    shape: &[u64],
    bytes: &[u8],
) -> Result<Vec<u8>, String> {
    match path.extension().and_then(|e| e.to_str()) {
        Some("npy") => npy::write(dtype, shape, bytes),
        Some("safetensors") => {
            let shape: Vec<usize> = shape.iter().map(|&e| e as usize).collect();
            let dtype = to_safetensors(dtype)
                .ok_or_else(|| format!("safetensors cannot hold elements of type {dtype}"))?;
            let view = TensorView::new(dtype, shape, bytes).map_err(|error| error.to_string())?;
            safetensors::serialize([(name, view)], None).map_err(|error| error.to_string())
        }
        Some(_) | None => Err(format!("`{}` must end in .npy or .safetensors", path.display())),
    }
}

fn read_safetensors(bytes: &[u8], name: Option<&str>) -> Result<Tensor, String> {
    let file = SafeTensors::deserialize(bytes).map_err(|error| error.to_string())?;
    let names = file.names();
    let name = match (name, names.as_slice()) {
        (Some(name), _) => name.to_owned(),
        (None, [only]) => (*only).to_owned(),
        (None, several) => {
            return Err(format!(
                "the file has {} tensors; name one as FILE.safetensors:NAME",
                several.len()
            ));
        }
    };
    let view = file.tensor(&name).map_err(|error| error.to_string())?;
    let dtype = from_safetensors(view.dtype())
        .ok_or_else(|| format!("tensor `{name}` has the element type {:?}", view.dtype()))?;
    Ok(Tensor {
        dtype: FileDType::Known(dtype),
        shape: view.shape().iter().map(|&e| e as u64).collect(),
        bytes: view.data().to_vec(),
    })
}

const SAFETENSORS: [(DType, Dtype); 12] = [
    (DType::F32, Dtype::F32),
    (DType::F16, Dtype::F16),
    (DType::Bf16, Dtype::BF16),
    (DType::E4m3, Dtype::F8_E4M3),
    (DType::E5m2, Dtype::F8_E5M2),
    (DType::I8, Dtype::I8),
    (DType::U8, Dtype::U8),
    (DType::I32, Dtype::I32),
    (DType::U32, Dtype::U32),
    (DType::I64, Dtype::I64),
    (DType::U64, Dtype::U64),
    (DType::Bool, Dtype::BOOL),
];

fn to_safetensors(dtype: DType) -> Option<Dtype> {
    SAFETENSORS.iter().find(|(ours, _)| *ours == dtype).map(|(_, theirs)| *theirs)
}

fn from_safetensors(dtype: Dtype) -> Option<DType> {
    SAFETENSORS.iter().find(|(_, theirs)| *theirs == dtype).map(|(ours, _)| *ours)
}

//! Tensors in files: `.npy` and `.safetensors`.
//!
//! The reader of `.npy` is our own because the maintained crate multiplies the extents of a header unchecked
//! and a hostile file would panic. numpy has no bf16: such buffers travel as `u2` bit patterns, or as BF16 in
//! safetensors.

mod npy;

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::Path;

use kernel_abi::DType;
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorView};

use crate::files;

/// Bytes of a tensor whose buffer has an extent that is known at run time only.
const MAX_TENSOR: u64 = 4 << 30;
/// Bytes of the header of a `.npy` file.
const MAX_NPY_HEADER: u64 = 1 << 20;
/// Bytes of the header of a safetensors file, as in the format's own implementation.
const MAX_HEADER: u64 = 100_000_000;

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

/// Reads a tensor of at most `room` bytes. A path may name a tensor of a safetensors file: `model.safetensors:layers.1.norm.weight`.
///
/// # Errors
/// Why the file or the tensor cannot be read.
pub fn read(spec: &str, room: u64) -> Result<Tensor, String> {
    let (path, name) = match spec.split_once(".safetensors:") {
        Some((stem, name)) => (format!("{stem}.safetensors"), Some(name)),
        None => (spec.to_owned(), None),
    };
    let room = room.min(MAX_TENSOR);
    let cannot = |error: std::io::Error| format!("cannot read `{path}`: {error}");
    if Path::new(&path).extension().is_some_and(|e| e == "safetensors") {
        let (file, metadata) = files::open(Path::new(&path)).map_err(cannot)?;
        return read_safetensors(file, metadata.len(), name, room)
            .map_err(|reason| format!("`{path}`: {reason}"));
    }
    let bytes =
        files::read(Path::new(&path), room.saturating_add(MAX_NPY_HEADER)).map_err(cannot)?;
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

/// Reads the header and one tensor, however large the file is.
fn read_safetensors(
    mut file: File,
    len: u64,
    name: Option<&str>,
    room: u64,
) -> Result<Tensor, String> {
    let text = |error: std::io::Error| error.to_string();
    let length = files::bounded(std::io::Read::take(&file, 8), 8).map_err(text)?;
    let length: [u8; 8] = length.try_into().map_err(|_| "it is no safetensors file")?;
    let header_len = u64::from_le_bytes(length);
    let data = header_len.checked_add(8).filter(|&end| header_len <= MAX_HEADER && end <= len);
    let data = data.ok_or("its header is longer than the file or than a header may be")?;
    let header =
        files::bounded(std::io::Read::take(&file, header_len), header_len).map_err(text)?;
    let header: Metadata =
        serde_json::from_slice(&header).map_err(|error| format!("its header: {error}"))?;
    if data.checked_add(header.data_len() as u64) != Some(len) {
        return Err("its data are not as long as its header says".to_owned());
    }
    let name = match (name, header.offset_keys().as_slice()) {
        (Some(name), _) => name.to_owned(),
        (None, [only]) => only.clone(),
        (None, several) => {
            return Err(format!(
                "the file has {} tensors; name one as FILE.safetensors:NAME",
                several.len()
            ));
        }
    };
    let info = header.info(&name).ok_or_else(|| format!("it has no tensor `{name}`"))?;
    let dtype = from_safetensors(info.dtype)
        .ok_or_else(|| format!("tensor `{name}` has the element type {:?}", info.dtype))?;
    let shape: Vec<u64> = info.shape.iter().map(|&extent| extent as u64).collect();
    let (start, end) = (info.data_offsets.0 as u64, info.data_offsets.1 as u64);
    let bits = shape.iter().try_fold(u64::from(dtype.bits()), |n, &extent| n.checked_mul(extent));
    let size = end.checked_sub(start).filter(|&size| bits == size.checked_mul(8));
    let size =
        size.ok_or_else(|| format!("the offsets of tensor `{name}` do not fit its shape"))?;
    if size > room {
        return Err(format!("tensor `{name}` has {size} bytes, and {room} are the most"));
    }
    let at = data.checked_add(start).ok_or("its offsets leave 64 bits")?;
    file.seek(SeekFrom::Start(at)).map_err(text)?;
    let bytes = files::bounded(std::io::Read::take(&file, size), size).map_err(text)?;
    if bytes.len() as u64 != size {
        return Err(format!("it ends inside of tensor `{name}`"));
    }
    Ok(Tensor { dtype: FileDType::Known(dtype), shape, bytes })
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

//! The header of a safetensors file: eight bytes of length, then JSON.
//!
//! Element types and their sizes are those of the `safetensors` crate; the checks are ours, because a hostile file
//! must name its fault: nothing is allocated before the length is known to lie in the file, names occur once, and the
//! tensors tile the data without gap or overlap.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::Path;

use safetensors::Dtype;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};

use super::CheckpointError;
use super::file::OpenFile;
use crate::shown::{FAULT, NAME, shown};

/// Bytes of the length before the header.
const LENGTH_BYTES: usize = 8;

/// Bytes that a header may have, as in the format's own implementation.
const MAX_HEADER: u64 = 100_000_000;

/// Axes that a tensor may have: a header must not ask for more memory than it takes itself.
const MAX_AXES: usize = 16;

/// Name of the entry that is no tensor.
const METADATA: &str = "__metadata__";

/// What the header says about a tensor, checked.
#[derive(Debug)]
pub(super) struct Info {
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    /// Its bytes in the file.
    pub(super) bytes: Range<usize>,
}

/// An entry as it is written.
#[derive(Deserialize)]
struct Raw {
    dtype: Dtype,
    shape: Shape,
    data_offsets: (usize, usize),
}

/// Extents, outermost first.
#[derive(Debug)]
struct Shape(Vec<usize>);

/// The tensors of a file by name.
pub(super) fn parse(file: &OpenFile) -> Result<BTreeMap<String, Info>, CheckpointError> {
    let path = file.path();
    let broken = |fault: String| CheckpointError::Header { path: path.to_owned(), fault };
    let Some(left) = file.len().checked_sub(LENGTH_BYTES as u64) else {
        return Err(broken(format!("needs {LENGTH_BYTES} bytes, the file has {}", file.len())));
    };
    let mut length = [0; LENGTH_BYTES];
    length.copy_from_slice(&file.read(0, LENGTH_BYTES)?);
    let length = u64::from_le_bytes(length);
    if length > MAX_HEADER {
        return Err(broken(format!("claims {length} bytes, at most {MAX_HEADER} are allowed")));
    }
    if length > left {
        return Err(broken(format!("claims {length} bytes, the file has {left} left")));
    }
    let too_large =
        || broken(format!("has {} bytes, more than this machine addresses", file.len()));
    let end = usize::try_from(file.len()).map_err(|_| too_large())?;
    let text = file.read(LENGTH_BYTES as u64, length as usize)?;
    let raw = Entries::of(&text)
        .map_err(|error| broken(format!("is broken: {}", shown(&error.to_string(), FAULT))))?;
    if let Some(name) = raw.twice {
        return Err(CheckpointError::Twice { path: path.to_owned(), name: shown(&name, NAME) });
    }
    place(raw.tensors, LENGTH_BYTES + text.len()..end, path)
}

/// Checks the offsets of all tensors against `data`, the part of the file behind the header.
fn place(
    raw: BTreeMap<String, Raw>,
    data: Range<usize>,
    path: &Path,
) -> Result<BTreeMap<String, Info>, CheckpointError> {
    let fault = |name: &str, fault: String| CheckpointError::Place {
        path: path.to_owned(),
        tensor: shown(name, NAME),
        fault,
    };
    let mut order = Vec::with_capacity(raw.len());
    for (name, entry) in &raw {
        let (start, end) = entry.data_offsets;
        if start > end || end > data.len() {
            return Err(fault(
                name,
                format!("stands at bytes {start}..{end}, the file holds {} of data", data.len()),
            ));
        }
        let size = size_of(entry);
        if size != Some(end - start) {
            let needed = size.map_or("more than can be counted".to_owned(), |n| n.to_string());
            return Err(fault(
                name,
                format!(
                    "has {} bytes, its shape {} of {:?} needs {needed}",
                    end - start,
                    shown(&format!("{:?}", entry.shape.0), FAULT),
                    entry.dtype
                ),
            ));
        }
        order.push((start, end, name.as_str()));
    }
    order.sort_unstable();
    let mut free = 0;
    for (start, end, name) in order {
        if start < free {
            return Err(fault(name, format!("overlaps the tensor before it by {}", free - start)));
        }
        if start > free {
            return Err(fault(name, format!("leaves a gap of {} bytes before it", start - free)));
        }
        free = end;
    }
    if free != data.len() {
        return Err(CheckpointError::Header {
            path: path.to_owned(),
            fault: format!("accounts for {free} bytes of data, the file holds {}", data.len()),
        });
    }
    let info = |(name, entry): (String, Raw)| {
        let (start, end) = entry.data_offsets;
        let bytes = data.start + start..data.start + end;
        (name, Info { dtype: entry.dtype, shape: entry.shape.0, bytes })
    };
    Ok(raw.into_iter().map(info).collect())
}

/// Bytes that the shape needs; `None` when they cannot be counted or end within a byte.
fn size_of(entry: &Raw) -> Option<usize> {
    let elements = entry.shape.0.iter().try_fold(1_usize, |all, &axis| all.checked_mul(axis))?;
    let bits = elements.checked_mul(entry.dtype.bitsize())?;
    bits.is_multiple_of(8).then_some(bits / 8)
}

/// All entries of a header, and the first name that occurred twice.
struct Entries {
    tensors: BTreeMap<String, Raw>,
    twice: Option<String>,
}

impl Entries {
    fn of(text: &[u8]) -> Result<Entries, serde_json::Error> {
        serde_json::from_slice(text)
    }
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Entries, D::Error> {
        deserializer.deserialize_map(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
        let mut entries = Entries { tensors: BTreeMap::new(), twice: None };
        let mut has_metadata = false;
        while let Some(name) = map.next_key::<String>()? {
            if name == METADATA {
                map.next_value::<IgnoredAny>()?;
                if std::mem::replace(&mut has_metadata, true) {
                    entries.twice.get_or_insert(name);
                }
                continue;
            }
            let raw: Raw = map.next_value().map_err(|error| {
                de::Error::custom(format!("tensor `{}`: {error}", shown(&name, NAME)))
            })?;
            if entries.tensors.insert(name.clone(), raw).is_some() {
                entries.twice.get_or_insert(name);
            }
        }
        Ok(entries)
    }
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Shape, D::Error> {
        deserializer.deserialize_seq(ShapeVisitor)
    }
}

struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = Shape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MAX_AXES} extents")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Shape, A::Error> {
        let mut shape = Vec::new();
        while let Some(extent) = list.next_element()? {
            if shape.len() == MAX_AXES {
                return Err(de::Error::invalid_length(MAX_AXES + 1, &self));
            }
            shape.push(extent);
        }
        Ok(Shape(shape))
    }
}

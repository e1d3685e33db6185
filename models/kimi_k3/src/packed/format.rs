//! The head of a file of packed weights: written last, and compared with what it must be when it is read.

use std::collections::BTreeMap;
use std::fs::File;

use kernel_abi::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::files::read_at;

/// The version of the format that is written and read.
pub(super) const VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"KPACKED\0";
const HEADER: usize = 64;
/// Bytes of the header that the hash covers; the hash stands behind them.
const HASHED: usize = 32;
/// Weights lie at multiples of this.
const ALIGN: u64 = 4096;
/// An index that is longer than that of any model.
const MAX_INDEX: u64 = 64 << 20;

/// The index of a file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Index {
    identity: String,
    weights: Vec<Entry>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    start: u64,
    length: u64,
    sha256: String,
}

/// Where each weight of a file lies.
#[derive(Debug)]
pub(super) struct Layout {
    identity: [u8; 32],
    /// Name and length, in the order of the file.
    weights: Vec<(String, u64)>,
    starts: Vec<u64>,
    numbers: BTreeMap<String, usize>,
    file_bytes: u64,
}

impl Layout {
    /// The layout of a file with these weights; `None` without any, and where they are longer than a file can be.
    pub(super) fn of<'n>(weights: impl Iterator<Item = (&'n str, u64)>) -> Option<Layout> {
        let weights: Vec<(String, u64)> =
            weights.map(|(name, length)| (name.to_owned(), length)).collect();
        let numbers =
            weights.iter().enumerate().map(|(at, (name, _))| (name.clone(), at)).collect();
        let starts = vec![0; weights.len()];
        let mut layout = Layout { identity: [0; 32], weights, starts, numbers, file_bytes: 0 };
        // Every number of a place gets the room of the longest one.
        let index = layout.index(&vec![[0; 32]; layout.len()]).len() as u64;
        let room = index + 20 * layout.len() as u64;
        let mut next = (HEADER as u64 + room).next_multiple_of(ALIGN);
        for ((_, length), start) in layout.weights.iter().zip(&mut layout.starts) {
            *start = next;
            next = next.checked_add(*length)?.checked_next_multiple_of(ALIGN)?;
        }
        layout.file_bytes = next;
        (!layout.weights.is_empty() && i64::try_from(next).is_ok()).then_some(layout)
    }

    /// The same for weights made from this.
    pub(super) fn with_identity(self, identity: [u8; 32]) -> Layout {
        Layout { identity, ..self }
    }

    /// Number of weights.
    pub(super) fn len(&self) -> usize {
        self.weights.len()
    }

    /// Bytes of the weights.
    pub(super) fn weight_bytes(&self) -> u64 {
        self.weights.iter().map(|(_, length)| length).sum()
    }

    /// Bytes of the file.
    pub(super) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Number, start and length of a weight.
    pub(super) fn find(&self, name: &str) -> Option<(usize, u64, u64)> {
        let number = *self.numbers.get(name)?;
        Some((number, self.starts[number], self.weights[number].1))
    }

    fn index(&self, hashes: &[[u8; 32]]) -> Vec<u8> {
        serde_json::to_vec(&Index::of(self, hashes)).expect("numbers and texts have a JSON form")
    }
}

impl Index {
    /// The index of a file whose weights have these hashes.
    pub(super) fn of(layout: &Layout, hashes: &[[u8; 32]]) -> Index {
        let entry = |(((name, length), start), hash): (((&String, &u64), &u64), &[u8; 32])| Entry {
            name: name.clone(),
            start: *start,
            length: *length,
            sha256: hex::text(hash),
        };
        let weights = layout.weights.iter().map(|(name, length)| (name, length));
        Index {
            identity: hex::text(&layout.identity),
            weights: weights.zip(&layout.starts).zip(hashes).map(entry).collect(),
        }
    }
}

/// The bytes before the first weight.
pub(super) fn head(index: &Index, layout: &Layout) -> Vec<u8> {
    let index = serde_json::to_vec(index).expect("numbers and texts have a JSON form");
    let mut bytes = vec![0; HEADER];
    bytes[0..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&layout.file_bytes.to_le_bytes());
    bytes[24..32].copy_from_slice(&(index.len() as u64).to_le_bytes());
    let hash = hash(&bytes, &index);
    bytes[HASHED..HEADER].copy_from_slice(&hash);
    bytes.extend(index);
    bytes
}

/// The hashes of the weights, if the file is what a file of this layout must be.
pub(super) fn read(file: &File, layout: &Layout) -> Result<Vec<[u8; 32]>, String> {
    let unread = |error: std::io::Error| format!("cannot be read: {error}");
    let mut header = [0; HEADER];
    let size = file.metadata().map_err(unread)?.len();
    if size < HEADER as u64 {
        return Err("is no file of packed weights".to_owned());
    }
    read_at(file, &mut header, 0).map_err(unread)?;
    let number = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("8 bytes"));
    if header[0..8] != MAGIC {
        return Err("is no file of packed weights".to_owned());
    }
    if header[8..12] != VERSION.to_le_bytes() {
        return Err("has another version of the format".to_owned());
    }
    if number(16) != size {
        return Err(format!("has {size} bytes, not {}", number(16)));
    }
    let length = number(24);
    if length > MAX_INDEX || length > size - HEADER as u64 {
        return Err("has an index that is too long".to_owned());
    }
    let mut index = vec![0; length as usize];
    read_at(file, &mut index, HEADER as u64).map_err(unread)?;
    if hash(&header, &index) != header[HASHED..] {
        return Err("has an index that is not what was written".to_owned());
    }
    let index: Index = serde_json::from_slice(&index).map_err(|error| error.to_string())?;
    let hashes: Option<Vec<[u8; 32]>> =
        index.weights.iter().map(|entry| hex::bytes(&entry.sha256)).collect();
    match hashes {
        Some(hashes) if index == Index::of(layout, &hashes) && size == layout.file_bytes => {
            Ok(hashes)
        }
        Some(_) | None => Err("holds other weights".to_owned()),
    }
}

fn hash(header: &[u8], index: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(&header[..HASHED]);
    hash.update(index);
    hash.finalize().into()
}

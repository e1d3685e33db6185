//! The weights of a rank that kernels want in an order of their own, packed once and kept in a file beside the
//! checkpoint.
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | `KPACKED` and a zero |
//! | 8..12 | version of the format, little-endian |
//! | 12..16 | zero |
//! | 16..24 | length of the file |
//! | 24..32 | length of the index |
//! | 32..64 | SHA-256 of bytes 0..32 and of the index |
//! | 64.. | the index, JSON: what the weights were made from, and the place and SHA-256 of each |
//! | then | the weights, each at a multiple of 4096 bytes |
//!
//! The name of the file says the rank, the number of ranks, and a hash of everything that its bytes follow from: the
//! names, sizes, inodes and times of the checkpoint's files (of their content, and of their inodes), how each weight is cut from them, its layout, and the
//! version of the format. What is not what it must be is made anew; nothing of a file is used before its hash was
//! compared. A file may be removed at any time.

mod error;
mod format;
mod identity;

use std::fs::File;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use kernel_abi::files::open_regular;
use kernel_abi::hex;
use kernel_abi::whole::WholeFile;
use sha2::{Digest, Sha256};

use crate::files::{read_at, write_at};
use crate::load::Weight;
use format::{Index, Layout};

pub use error::PackedError;

/// Packed weights of a rank of fewer bytes are not worth a file that nobody asked for: they are packed in a moment.
pub const WORTH_KEEPING: u64 = 256 << 20;

/// Where packed weights are kept, and of what.
#[derive(Debug, Clone)]
pub struct Place {
    /// The folder.
    pub folder: PathBuf,
    /// Ranks that share the model.
    pub ranks: u32,
    /// The checkpoint's folder, in which nothing is written.
    pub model: PathBuf,
    /// What the checkpoint is, by [`crate::Checkpoint::identity`].
    pub checkpoint: [u8; 32],
    /// Fewer packed bytes get no new file.
    pub least: u64,
}

/// The folder of packed weights beside that of a model: `MODEL.packed`.
pub fn folder_beside(model: &Path) -> PathBuf {
    // A folder that is named as `.` or `..` has a name of its own, too.
    let model = model.canonicalize().unwrap_or_else(|_| model.to_owned());
    let mut name = model.file_name().unwrap_or_default().to_owned();
    name.push(".packed");
    model.with_file_name(name)
}

/// The folder for the packed weights of a model: the one that was asked for, or the one beside the model.
///
/// # Errors
/// It lies inside of the model's.
pub fn folder(model: &Path, asked: Option<&Path>) -> Result<PathBuf, PackedError> {
    let folder = asked.map_or_else(|| folder_beside(model), Path::to_owned);
    check_outside(&folder, model)?;
    Ok(folder)
}

/// Refuses a folder that lies inside of the model's, whatever links and `..` it is named by, and whether it is there
/// or would be made.
fn check_outside(folder: &Path, model: &Path) -> Result<(), PackedError> {
    match (resolved(folder), resolved(model)) {
        (Ok(inner), Ok(outer)) if !inner.starts_with(&outer) => Ok(()),
        (Ok(_), Ok(_)) => {
            Err(PackedError::unkept(folder, "the folder is inside of the checkpoint's"))
        }
        (Err(error), _) | (_, Err(error)) => Err(PackedError::unkept(folder, error.to_string())),
    }
}

/// Where a path leads once the folders that are not there yet are made.
fn resolved(path: &Path) -> std::io::Result<PathBuf> {
    let mut at = PathBuf::new();
    for component in std::path::absolute(path)?.components() {
        match component {
            // What is not there yet becomes a folder, and no link.
            Component::ParentDir => drop(at.pop()),
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => {
                at.push(component);
                at = at.canonicalize().unwrap_or(at);
            }
        }
    }
    Ok(at)
}

/// The packed weights of a rank: read from the file, or written to it while they are made.
#[derive(Debug)]
pub struct Packed {
    path: PathBuf,
    rank: u32,
    layout: Layout,
    source: Source,
    /// A weight of the file is not what was written.
    is_damaged: AtomicBool,
    faults: Mutex<Vec<PackedError>>,
}

#[derive(Debug)]
enum Source {
    Kept(Reading),
    /// A file that is being written; none once that failed.
    New(Mutex<Option<Writing>>),
    /// No file.
    None,
}

/// A whole file, and the hash of each weight.
#[derive(Debug)]
struct Reading {
    file: File,
    hashes: Vec<[u8; 32]>,
}

#[derive(Debug)]
struct Writing {
    file: WholeFile,
    /// Of the weights that are written.
    hashes: Vec<Option<[u8; 32]>>,
}

/// What became of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// It was there.
    Before,
    /// It was made.
    Now,
    /// It was there and is damaged.
    Damaged,
    /// There is none.
    Nowhere,
}

impl Packed {
    /// Looks for the file of a rank, and begins one where there is none. `None` where no weight is packed.
    pub(crate) fn open(place: &Place, rank: u32, weights: &[Weight<'_>]) -> Option<Packed> {
        let mut packed = Packed::without_file(place, rank, weights)?;
        match Packed::find(&packed.path, &packed.layout) {
            Ok(Some(reading)) => packed.source = Source::Kept(reading),
            Ok(None) if packed.bytes() < place.least => {}
            Ok(None) => packed.begin(place),
            Err(fault) => {
                packed.fault(fault);
                packed.begin(place);
            }
        }
        Some(packed)
    }

    /// Begins the file of a rank anew, whatever is there; it stays until the new one is whole.
    pub(crate) fn renew(place: &Place, rank: u32, weights: &[Weight<'_>]) -> Option<Packed> {
        let mut packed = Packed::without_file(place, rank, weights)?;
        packed.begin(place);
        Some(packed)
    }

    fn without_file(place: &Place, rank: u32, weights: &[Weight<'_>]) -> Option<Packed> {
        let packed = || weights.iter().filter(|w| w.rank == rank && w.layout.is_some());
        let layout = Layout::of(packed().map(|weight| (weight.name.as_str(), weight.bytes)))?;
        let identity = identity::of(place, rank, packed());
        let short = hex::text(&identity[..8]);
        let name = format!("rank{rank}-of-{}-{short}.kpacked", place.ranks);
        Some(Packed {
            path: place.folder.join(name),
            rank,
            layout: layout.with_identity(identity),
            source: Source::None,
            is_damaged: AtomicBool::new(false),
            faults: Mutex::new(Vec::new()),
        })
    }

    /// Begins a new file; where that fails there is none, and a fault.
    fn begin(&mut self, place: &Place) {
        match Packed::create(&self.path, place, &self.layout) {
            Ok(writing) => self.source = Source::New(Mutex::new(Some(writing))),
            Err(fault) => self.fault(fault),
        }
    }

    /// The file and its hashes, if it is there.
    fn find(path: &Path, layout: &Layout) -> Result<Option<Reading>, PackedError> {
        let file = match open_regular(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(PackedError::damaged(path, format!("cannot be read: {error}")));
            }
        };
        let hashes =
            format::read(&file, layout).map_err(|fault| PackedError::damaged(path, fault))?;
        Ok(Some(Reading { file, hashes }))
    }

    fn create(path: &Path, place: &Place, layout: &Layout) -> Result<Writing, PackedError> {
        let unkept = |error: std::io::Error| PackedError::unkept(path, error.to_string());
        std::fs::create_dir_all(&place.folder).map_err(unkept)?;
        // Now that it is there nothing of its path is a guess.
        check_outside(&place.folder, &place.model)?;
        let file = WholeFile::create(path).map_err(unkept)?;
        file.reserve(layout.file_bytes()).map_err(unkept)?;
        Ok(Writing { file, hashes: vec![None; layout.len()] })
    }

    /// The rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the packed weights.
    pub fn bytes(&self) -> u64 {
        self.layout.weight_bytes()
    }

    /// Whether there is a file, to read or to write.
    pub(crate) fn has_file(&self) -> bool {
        !matches!(self.source, Source::None)
    }

    /// Whether there is a file to read.
    pub fn is_kept(&self) -> bool {
        matches!(self.source, Source::Kept(..))
    }

    /// What went wrong since the last call, none of which keeps weights from being loaded.
    pub fn take_faults(&self) -> Vec<PackedError> {
        std::mem::take(&mut self.faults.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn fault(&self, error: PackedError) {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).push(error);
    }

    /// The bytes of a packed weight, where the file has them and they are what they were.
    pub(crate) fn read(&self, weight: &str) -> Option<Vec<u8>> {
        let Source::Kept(Reading { file, hashes }) = &self.source else { return None };
        let (number, start, bytes) = self.layout.find(weight)?;
        let mut content = vec![0; usize::try_from(bytes).ok()?];
        let fault = match read_at(file, &mut content, start) {
            Ok(()) if hash(&content) == hashes[number] => return Some(content),
            Ok(()) => format!("`{weight}` is not what was written"),
            Err(error) => format!("`{weight}` cannot be read: {error}"),
        };
        self.is_damaged.store(true, Ordering::Relaxed);
        self.fault(PackedError::damaged(&self.path, fault));
        None
    }

    /// Writes a packed weight to a new file. Where that fails there will be no file.
    pub(crate) fn keep(&self, weight: &str, content: &[u8]) {
        let Source::New(writing) = &self.source else { return };
        let Some((number, start, bytes)) = self.layout.find(weight) else { return };
        debug_assert_eq!(bytes, content.len() as u64, "weights have the size that the plan says");
        let file = {
            let writing = writing.lock().unwrap_or_else(PoisonError::into_inner);
            writing.as_ref().map(|writing| writing.file.file().try_clone())
        };
        let written = match file {
            None => return,
            // Outside of the lock: others write their weights at the same time.
            Some(file) => file.and_then(|file| write_at(&file, content, start)),
        };
        let mut writing = writing.lock().unwrap_or_else(PoisonError::into_inner);
        match written {
            Ok(()) => {
                if let Some(writing) = writing.as_mut() {
                    writing.hashes[number] = Some(hash(content));
                }
            }
            Err(error) => {
                if writing.take().is_some() {
                    self.fault(PackedError::unkept(&self.path, error.to_string()));
                }
            }
        }
    }

    /// Puts a new file in its place once all weights were packed.
    ///
    /// # Errors
    /// The disk does not take it.
    pub fn finish(self) -> Result<Kept, PackedError> {
        let Packed { path, layout, source, is_damaged, .. } = self;
        match source {
            Source::Kept(..) if is_damaged.into_inner() => Ok(Kept::Damaged),
            Source::Kept(..) => Ok(Kept::Before),
            Source::None => Ok(Kept::Nowhere),
            Source::New(writing) => {
                let writing = writing.into_inner().unwrap_or_else(PoisonError::into_inner);
                let Some(Writing { file, hashes }) = writing else { return Ok(Kept::Nowhere) };
                let hashes: Option<Vec<[u8; 32]>> = hashes.into_iter().collect();
                let Some(hashes) = hashes else { return Ok(Kept::Nowhere) };
                let head = format::head(&Index::of(&layout, &hashes), &layout);
                let written = write_at(file.file(), &head, 0)
                    .and_then(|()| file.file().set_len(layout.file_bytes()))
                    .and_then(|()| file.finish());
                written.map_err(|error| PackedError::unkept(&path, error.to_string()))?;
                Ok(Kept::Now)
            }
        }
    }
}

fn hash(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

//! A file mapped into memory, read-only: the one place of this crate with code that the compiler cannot check.

use std::fs::{File, Metadata};
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use memmap2::Mmap;

use super::CheckpointError;

/// A mapped file and what it was when it was opened.
#[derive(Debug)]
pub(super) struct MappedFile {
    path: PathBuf,
    #[cfg_attr(not(unix), expect(dead_code, reason = "only the map is read there"))]
    file: File,
    map: Mmap,
    identity: Identity,
}

/// What tells a file from another one in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    size: u64,
    inode: u64,
    modified: Option<SystemTime>,
}

impl Identity {
    fn of(metadata: &Metadata) -> Identity {
        #[cfg(unix)]
        let inode = std::os::unix::fs::MetadataExt::ino(metadata);
        #[cfg(not(unix))]
        let inode = 0;
        Identity { size: metadata.len(), inode, modified: metadata.modified().ok() }
    }
}

impl MappedFile {
    /// Maps a regular file.
    pub(super) fn open(path: &Path) -> Result<MappedFile, CheckpointError> {
        MappedFile::map(path)
            .map_err(|source| CheckpointError::File { path: path.to_owned(), source })
    }

    fn map(path: &Path) -> Result<MappedFile, Error> {
        // Asked before opening: to open a pipe would wait for its writer.
        if !std::fs::metadata(path)?.is_file() {
            return Err(Error::new(ErrorKind::InvalidData, "not a regular file"));
        }
        let file = File::open(path)?;
        let identity = Identity::of(&file.metadata()?);
        #[expect(unsafe_code, reason = "a file can be mapped no other way")]
        // SAFETY: `file` is open for reading and was a regular file; the map is private to `MappedFile`, is never
        // written, and is handed out only as `&[u8]` that borrows it. What stays with the user, as the module above
        // says, is not to write the file meanwhile.
        let map = unsafe { Mmap::map(&file)? };
        Ok(MappedFile { path: path.to_owned(), file, map, identity })
    }

    /// Everything in the file.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Bytes from an offset, read and not mapped.
    #[cfg(unix)]
    pub(super) fn read(&self, start: usize, len: usize) -> Result<Vec<u8>, CheckpointError> {
        let mut bytes = vec![0; len];
        std::os::unix::fs::FileExt::read_exact_at(&self.file, &mut bytes, start as u64).map_err(
            |source| {
                let path = self.path.clone();
                match source.kind() {
                    ErrorKind::UnexpectedEof => CheckpointError::Changed { path, fault: "cut off" },
                    _ => CheckpointError::File { path, source },
                }
            },
        )?;
        Ok(bytes)
    }

    /// Bytes from an offset: where nothing reads at a place of a file, from the map.
    #[cfg(not(unix))]
    pub(super) fn read(&self, start: usize, len: usize) -> Result<Vec<u8>, CheckpointError> {
        let end = start.saturating_add(len);
        self.map
            .get(start..end)
            .map(<[u8]>::to_vec)
            .ok_or_else(|| CheckpointError::Changed { path: self.path.clone(), fault: "cut off" })
    }

    /// Where it was opened.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Compares the file at the path with the one that was opened.
    pub(super) fn check_unchanged(&self) -> Result<(), CheckpointError> {
        let changed = |fault| CheckpointError::Changed { path: self.path.clone(), fault };
        let now = std::fs::metadata(&self.path).map_err(|_| changed("removed"))?;
        let now = Identity::of(&now);
        if now == self.identity {
            return Ok(());
        }
        Err(changed(if now.inode == self.identity.inode { "written" } else { "replaced" }))
    }
}

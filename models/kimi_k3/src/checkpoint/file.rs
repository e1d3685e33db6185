//! A file that is read at places, and what it was when it was opened.
//!
//! It is not mapped: where a mapped file is cut off, a read of it ends the process, and here it is an error.

use std::fs::{File, Metadata};
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::CheckpointError;

/// An open file.
#[derive(Debug)]
pub(super) struct OpenFile {
    path: PathBuf,
    file: File,
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

impl OpenFile {
    /// Opens a regular file.
    pub(super) fn open(path: &Path) -> Result<OpenFile, CheckpointError> {
        OpenFile::open_regular(path)
            .map_err(|source| CheckpointError::File { path: path.to_owned(), source })
    }

    fn open_regular(path: &Path) -> Result<OpenFile, Error> {
        // Asked before opening: to open a pipe would wait for its writer.
        if !std::fs::metadata(path)?.is_file() {
            return Err(Error::new(ErrorKind::InvalidData, "not a regular file"));
        }
        let file = File::open(path)?;
        let identity = Identity::of(&file.metadata()?);
        Ok(OpenFile { path: path.to_owned(), file, identity })
    }

    /// Its size when it was opened.
    pub(super) fn len(&self) -> u64 {
        self.identity.size
    }

    /// Bytes from an offset.
    pub(super) fn read(&self, start: u64, len: usize) -> Result<Vec<u8>, CheckpointError> {
        let mut bytes = vec![0; len];
        self.read_at(&mut bytes, start).map_err(|source| {
            let path = self.path.clone();
            match source.kind() {
                ErrorKind::UnexpectedEof => CheckpointError::Changed { path, fault: "cut off" },
                _ => CheckpointError::File { path, source },
            }
        })?;
        Ok(bytes)
    }

    #[cfg(unix)]
    fn read_at(&self, bytes: &mut [u8], start: u64) -> Result<(), Error> {
        std::os::unix::fs::FileExt::read_exact_at(&self.file, bytes, start)
    }

    /// Where no file is read at a place: with a position of its own.
    #[cfg(not(unix))]
    fn read_at(&self, bytes: &mut [u8], start: u64) -> Result<(), Error> {
        use std::io::{Read, Seek, SeekFrom};
        let mut file = &self.file;
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(bytes)
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

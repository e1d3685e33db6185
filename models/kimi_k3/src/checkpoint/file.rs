//! A file that is read at places, and what it was when it was opened.
//!
//! It is not mapped: where a mapped file is cut off, a read of it ends the process, and here it is an error.

use std::fs::{File, Metadata};
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use kernel_abi::files::open_regular;
use sha2::{Digest, Sha256};

use super::CheckpointError;
use crate::files::read_at;

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
    device: u64,
    inode: u64,
    modified: Option<SystemTime>,
    /// When the inode was changed, in seconds and nanoseconds: who writes to a file can set the time above back, and
    /// not this one.
    changed: [i64; 2],
}

impl Identity {
    fn of(metadata: &Metadata) -> Identity {
        #[cfg(unix)]
        let ([device, inode], changed) = {
            use std::os::unix::fs::MetadataExt;
            ([metadata.dev(), metadata.ino()], [metadata.ctime(), metadata.ctime_nsec()])
        };
        #[cfg(not(unix))]
        let ([device, inode], changed) = ([0, 0], [0, 0]);
        let modified = metadata.modified().ok();
        Identity { size: metadata.len(), device, inode, modified, changed }
    }
}

impl OpenFile {
    /// Opens a regular file.
    pub(super) fn open(path: &Path) -> Result<OpenFile, CheckpointError> {
        OpenFile::open_regular(path)
            .map_err(|source| CheckpointError::File { path: path.to_owned(), source })
    }

    fn open_regular(path: &Path) -> Result<OpenFile, Error> {
        let file = open_regular(path)?;
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
        read_at(&self.file, &mut bytes, start).map_err(|source| {
            let path = self.path.clone();
            match source.kind() {
                ErrorKind::UnexpectedEof => CheckpointError::Changed { path, fault: "cut off" },
                _ => CheckpointError::File { path, source },
            }
        })?;
        Ok(bytes)
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
        let of_file = |of: Identity| (of.device, of.inode);
        let of_content = |of: Identity| (of.size, of.modified);
        Err(changed(if of_file(now) != of_file(self.identity) {
            "replaced"
        } else if of_content(now) != of_content(self.identity) {
            "written"
        } else {
            "written, or given other rights, links or times,"
        }))
    }

    /// Tells a hash what the file was when it was opened: the length of its name (u64), its name, its size and inode
    /// (u64 each), the time of its content in nanoseconds since 1970 (i128), and the time of its inode in seconds and
    /// nanoseconds (i64 each); numbers are little-endian. The number of its file system is left out: it may be another
    /// after the next start of the machine.
    pub(super) fn identify(&self, hash: &mut Sha256) {
        let name = self.path.file_name().unwrap_or_default();
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name.as_encoded_bytes());
        hash.update(self.identity.size.to_le_bytes());
        hash.update(self.identity.inode.to_le_bytes());
        let modified =
            self.identity.modified.map_or(0, |time| match time.duration_since(UNIX_EPOCH) {
                Ok(after) => after.as_nanos() as i128,
                Err(before) => -(before.duration().as_nanos() as i128),
            });
        hash.update(modified.to_le_bytes());
        for part in self.identity.changed {
            hash.update(part.to_le_bytes());
        }
    }
}

//! A bundle mapped into memory, read-only: the one place of this crate with code that the compiler cannot check.

use std::fs::File;
use std::io::{Error, ErrorKind};
use std::path::Path;

use memmap2::Mmap;

/// A mapped file.
#[derive(Debug)]
pub(super) struct MappedFile {
    map: Mmap,
}

impl MappedFile {
    /// Maps a regular file.
    pub(super) fn open(path: &Path) -> Result<MappedFile, Error> {
        // Asked before opening: to open a pipe would wait for its writer.
        if !std::fs::metadata(path)?.is_file() {
            return Err(Error::new(ErrorKind::InvalidData, "not a regular file"));
        }
        let file = File::open(path)?;
        #[expect(unsafe_code, reason = "a file can be mapped no other way")]
        // SAFETY: `file` is open for reading and was a regular file; the map is private to `MappedFile`, is never
        // written, and is handed out only as `&[u8]` that borrows it. What stays with the user, as the module above
        // says, is to replace a bundle by another file instead of writing into it.
        let map = unsafe { Mmap::map(&file)? };
        Ok(MappedFile { map })
    }

    /// Everything in the file.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.map
    }
}

//! Reading files: regular ones alone, small ones of a size that text of their kind can have, large ones at places.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
#[cfg(not(unix))]
use std::io::{Seek, SeekFrom};
use std::path::Path;

use kernel_abi::files::open_regular;

/// Bytes that a configuration may have.
pub(crate) const MAX_CONFIG: u64 = 4 << 20;

/// Bytes that an index or a set of tasks may have. The index of K3's checkpoint has about 60 MB.
pub(crate) const MAX_LIST: u64 = 256 << 20;

/// Bytes that a list of token ids may have: some 5 MB hold the longest context of K3.
pub(crate) const MAX_IDS: u64 = 64 << 20;

/// The bytes of a regular file, at most `most`.
pub(crate) fn read_bytes(path: &Path, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(Error::new(ErrorKind::InvalidData, format!("more than {most} bytes")));
    }
    Ok(bytes)
}

/// Fills `bytes` from a place of a file.
#[cfg(unix)]
pub(crate) fn read_at(file: &File, bytes: &mut [u8], start: u64) -> Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, start)
}

/// Where no file is read at a place: by its position, one thread at a time.
#[cfg(not(unix))]
pub(crate) fn read_at(mut file: &File, bytes: &mut [u8], start: u64) -> Result<()> {
    let _alone = POSITION.lock();
    file.seek(SeekFrom::Start(start))?;
    file.read_exact(bytes)
}

/// Writes `bytes` to a place of a file.
#[cfg(unix)]
pub(crate) fn write_at(file: &File, bytes: &[u8], start: u64) -> Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, start)
}

/// Where no file is written at a place: by its position, one thread at a time.
#[cfg(not(unix))]
pub(crate) fn write_at(mut file: &File, bytes: &[u8], start: u64) -> Result<()> {
    let _alone = POSITION.lock();
    file.seek(SeekFrom::Start(start))?;
    std::io::Write::write_all(&mut file, bytes)
}

/// Held while a file has the position that a thread gave it.
#[cfg(not(unix))]
static POSITION: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// The text of a regular file of at most `most` bytes.
pub(crate) fn read_text(path: &Path, most: u64) -> Result<String> {
    String::from_utf8(read_bytes(path, most)?)
        .map_err(|error| Error::new(ErrorKind::InvalidData, format!("not UTF-8: {error}")))
}

//! Reading small files: regular ones, of a size that text of this kind can have.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// Bytes that a configuration may have.
pub(crate) const MAX_CONFIG: u64 = 4 << 20;

/// Bytes that an index or a set of tasks may have. The index of K3's checkpoint has about 60 MB.
pub(crate) const MAX_LIST: u64 = 256 << 20;

/// Bytes that a list of token ids may have: some 5 MB hold the longest context of K3.
pub(crate) const MAX_IDS: u64 = 64 << 20;

/// The bytes of a regular file, at most `most`.
pub(crate) fn read_bytes(path: &Path, most: u64) -> Result<Vec<u8>> {
    let invalid = |message: String| Error::new(ErrorKind::InvalidData, message);
    // Asked before opening: to open a pipe would wait for its writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(invalid("not a regular file".to_owned()));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(invalid(format!("more than {most} bytes")));
    }
    Ok(bytes)
}

/// The text of a regular file of at most `most` bytes.
pub(crate) fn read_text(path: &Path, most: u64) -> Result<String> {
    String::from_utf8(read_bytes(path, most)?)
        .map_err(|error| Error::new(ErrorKind::InvalidData, format!("not UTF-8: {error}")))
}

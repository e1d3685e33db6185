//! Reading small files: regular ones, of a size that text of this kind can have.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// Bytes that a configuration may have.
pub(crate) const MAX_CONFIG: u64 = 4 << 20;

/// Bytes that an index or a set of tasks may have. The index of K3's checkpoint has about 60 MB.
pub(crate) const MAX_LIST: u64 = 256 << 20;

/// The text of a regular file of at most `most` bytes.
pub(crate) fn read_text(path: &Path, most: u64) -> Result<String> {
    let invalid = |message: String| Error::new(ErrorKind::InvalidData, message);
    // Asked before opening: to open a pipe would wait for its writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(invalid("not a regular file".to_owned()));
    }
    let mut text = String::new();
    File::open(path)?.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most {
        return Err(invalid(format!("more than {most} bytes")));
    }
    Ok(text)
}

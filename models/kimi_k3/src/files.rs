//! Reading small files: regular ones, of a size that text of this kind can have.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// Bytes that a text file may have. The index of K3's checkpoint, the longest, has about 60 MB.
const MAX_BYTES: u64 = 256 << 20;

/// The text of a regular file.
pub(crate) fn read_text(path: &Path) -> Result<String> {
    let invalid = |message: String| Error::new(ErrorKind::InvalidData, message);
    // Asked before opening: to open a pipe would wait for its writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(invalid("not a regular file".to_owned()));
    }
    let mut text = String::new();
    File::open(path)?.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(invalid(format!("more than {MAX_BYTES} bytes")));
    }
    Ok(text)
}

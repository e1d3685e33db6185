//! Reading what a user names: regular files and standard input, never more than its kind can need.

use std::fs::{File, Metadata};
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// Bytes of a source file, and of a `build.toml`.
pub const MAX_SOURCE: u64 = 16 << 20;

/// Bytes of what is audited: PTX, a cubin or a bundle.
pub const MAX_AUDITED: u64 = 256 << 20;

/// The path that means standard input.
pub const STDIN: &str = "-";

/// Opens a regular file.
///
/// # Errors
/// It cannot be opened, or is a device, a pipe or a folder.
pub fn open(path: &Path) -> Result<(File, Metadata)> {
    let file = kernel_abi::files::open_regular(path)?;
    let metadata = file.metadata()?;
    Ok((file, metadata))
}

/// The bytes of a regular file, at most `most`.
///
/// # Errors
/// As [`open`], or the file is larger.
pub fn read(path: &Path, most: u64) -> Result<Vec<u8>> {
    bounded(open(path)?.0, most)
}

/// The bytes of a regular file, or of standard input for `-`; at most `most`.
///
/// # Errors
/// As [`read`].
pub fn read_or_stdin(path: &str, most: u64) -> Result<Vec<u8>> {
    if path == STDIN {
        return bounded(std::io::stdin().lock(), most);
    }
    read(Path::new(path), most)
}

/// What a source gives, at most `most` bytes.
///
/// # Errors
/// It gives more, or fails.
pub fn bounded(source: impl Read, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(invalid(format!("it has more than {most} bytes")));
    }
    Ok(bytes)
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidData, message)
}

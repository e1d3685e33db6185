//! Opening files that others may have replaced by something else.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::path::Path;

/// Opens a regular file to read it. What is opened is what is asked about, and a pipe in its place is refused without
/// waiting for its writer.
///
/// # Errors
/// It cannot be opened, or is no regular file.
pub fn open_regular(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        libc::O_NONBLOCK | libc::O_NOCTTY,
    );
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(Error::new(ErrorKind::InvalidData, "not a regular file"));
    }
    Ok(file)
}

#[cfg(all(test, unix))]
mod tests {
    use std::io::Read;
    use std::process::Command;

    use super::*;

    #[test]
    fn regular_files_are_opened_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let (file, pipe) = (folder.path().join("file"), folder.path().join("pipe"));
        std::fs::write(&file, "text").unwrap();
        let mut text = String::new();
        open_regular(&file).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        // To open the pipe would wait for ever.
        for other in [&pipe, folder.path(), Path::new("/dev/null")] {
            let error = open_regular(other).unwrap_err();
            assert_eq!(error.to_string(), "not a regular file", "{}", other.display());
        }
        assert_eq!(open_regular(&folder.path().join("x")).unwrap_err().kind(), ErrorKind::NotFound);
    }
}

//! What the terminal sees.
#![expect(clippy::print_stderr, reason = "messages to the person at the terminal")]

use std::io::{IsTerminal, Write};
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};

use crate::error::CliError;

/// An error with its code.
pub(crate) fn error(error: &CliError) {
    eprintln!("error[{}]: {error}", error.code());
}

/// A remark beside the output.
pub(crate) fn note(text: &str) {
    eprintln!("{text}");
}

/// A piece of the output, at once.
///
/// # Errors
/// Nobody reads it any more, or the disk is full.
pub(crate) fn text(text: &str) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(CliError::Output)
}

/// A bar on a terminal, nothing elsewhere.
pub(crate) fn progress(what: &'static str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0).with_message(what);
    match ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Writes a file as a whole: readers see the old one or the new one, and a full disk leaves the old one.
///
/// # Errors
/// The folder or the disk does not take it.
pub(crate) fn file(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    let failed = |fault: String| CliError::File { path: path.to_owned(), verb: "written", fault };
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(|e| failed(e.to_string()))?;
    file.write_all(bytes).map_err(|e| failed(e.to_string()))?;
    file.as_file().sync_all().map_err(|e| failed(e.to_string()))?;
    file.persist(path).map_err(|e| failed(e.error.to_string()))?;
    Ok(())
}

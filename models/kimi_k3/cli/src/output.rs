//! What the terminal sees.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};
use kernel_abi::whole::WholeFile;
use kimi_k3::packed::PackedError;

use tracing::Level;

use crate::error::CliError;
use crate::interrupt;

/// Sets how much the library says on standard error.
pub(crate) fn log(verbose: u8) {
    let level = match verbose {
        0 => Level::WARN,
        1 => Level::INFO,
        _ => Level::DEBUG,
    };
    tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).init();
}

/// An error with its code.
pub(crate) fn error(error: &CliError) {
    note(&format!("error[{}]: {error}", error.code()));
}

/// What is wrong with a file of packed weights, which keeps nothing from running.
pub(crate) fn warning(fault: &PackedError) {
    note(&format!("warning[{}]: {fault}", fault.code()));
}

/// A remark beside the output.
pub(crate) fn note(text: &str) {
    // Where standard error is closed or full there is nobody to tell it.
    let _ = writeln!(std::io::stderr().lock(), "{text}");
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

/// A file that is written as a whole: readers see the old one or the new one, and a full disk leaves the old one.
#[derive(Debug)]
pub(crate) struct Whole {
    /// As the user names it.
    path: PathBuf,
    file: WholeFile,
}

impl Whole {
    /// Prepares a file beside the one that it will be.
    ///
    /// # Errors
    /// There is something that is no regular file, or the folder does not take one.
    pub(crate) fn create(path: &Path) -> Result<Whole, CliError> {
        let file = WholeFile::create(path)
            .map_err(|error| CliError::File { path: path.to_owned(), fault: error.to_string() })?;
        if let Some(part) = file.part() {
            interrupt::remove_when_killed(part);
        }
        Ok(Whole { path: path.to_owned(), file })
    }

    /// The error for a file that cannot be written.
    pub(crate) fn failed(&self, fault: impl ToString) -> CliError {
        CliError::File { path: self.path.clone(), fault: fault.to_string() }
    }

    /// Writes the bytes and puts the file in its place.
    ///
    /// # Errors
    /// The disk does not take it.
    pub(crate) fn finish(self, bytes: &[u8]) -> Result<(), CliError> {
        let Whole { path, file } = self;
        file.finish_with(bytes).map_err(|error| CliError::File { path, fault: error.to_string() })
    }
}

//! Ctrl-C, or a request of the system to end: the first one asks the command to stop after the step that runs.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{CliError, INTERRUPTED};

static ASKED: AtomicBool = AtomicBool::new(false);

/// The unfinished file of the command.
static LEFT_BEHIND: OnceLock<PathBuf> = OnceLock::new();

/// Makes Ctrl-C ask instead of kill. Without a handler of the system it kills as before.
pub(crate) fn listen() {
    let _ = ctrlc::set_handler(|| {
        if ASKED.swap(true, Ordering::Relaxed) {
            // The second one does not wait for the step.
            if let Some(path) = LEFT_BEHIND.get() {
                // It is removed already, or in its place.
                let _ = std::fs::remove_file(path);
            }
            // At an ordinary end the driver would wait for a kernel that may never end.
            kernel_runtime::end_process(INTERRUPTED);
        }
    });
}

/// Removes this unfinished file when the second Ctrl-C ends the command. A command has one.
pub(crate) fn remove_when_killed(path: &Path) {
    // A relative path is that of the folder now; a command does not change it.
    let _ = LEFT_BEHIND.set(path.to_owned());
}

/// Whether to stop.
pub(crate) fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// Stops where that was asked.
///
/// # Errors
/// It was asked.
pub(crate) fn check() -> Result<(), CliError> {
    if asked() { Err(CliError::Interrupted) } else { Ok(()) }
}

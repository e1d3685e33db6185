//! Ctrl-C: the first one asks the command to stop after the step that runs.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::CliError;

static ASKED: AtomicBool = AtomicBool::new(false);

/// Makes Ctrl-C ask instead of kill. Without a handler of the system it kills as before.
pub(crate) fn listen() {
    let _ = ctrlc::set_handler(|| {
        if ASKED.swap(true, Ordering::Relaxed) {
            // The second one does not wait for the step.
            std::process::exit(130);
        }
    });
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

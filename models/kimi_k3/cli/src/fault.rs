//! A panic is a fault of this program, and ends as an error with a code.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use crate::error::CliError;

/// Characters of a panic's message that are shown.
const SHOWN: usize = 300;

/// What the first panic said, and where.
static FIRST: Mutex<Option<String>> = Mutex::new(None);

/// Keeps panics off standard error, which may be closed or full, for [`caught`] to tell.
pub(crate) fn listen() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(|place| format!(", {place}")).unwrap_or_default();
        let said = format!("{}{place}", said(panic.payload()));
        FIRST.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get_or_insert(said);
    }));
}

/// Runs a command; a panic becomes an error.
///
/// # Errors
/// What the command fails with.
pub(crate) fn caught(command: impl FnOnce() -> Result<(), CliError>) -> Result<(), CliError> {
    catch_unwind(AssertUnwindSafe(command)).unwrap_or_else(|payload| {
        let first = FIRST.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        Err(CliError::Fault(first.unwrap_or_else(|| said(payload.as_ref()))))
    })
}

/// The message of a panic in one line.
fn said(payload: &dyn Any) -> String {
    let text = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text.as_str(),
        (None, None) => "a panic without a message",
    };
    text.chars().take(SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_with_a_code() {
        let error = caught(|| panic!("two\nlines of {}", "text")).unwrap_err();
        assert_eq!((error.code(), error.exit()), ("K0704", 70));
        assert_eq!(error.to_string(), "a fault of kimi-k3: two lines of text");
        let error = caught(|| std::panic::panic_any(7)).unwrap_err();
        assert_eq!(error.to_string(), "a fault of kimi-k3: a panic without a message");
        assert!(caught(|| Ok(())).is_ok());
        assert!(matches!(caught(|| Err(CliError::Interrupted)), Err(CliError::Interrupted)));
    }
}

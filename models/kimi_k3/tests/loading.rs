//! What the crate reads from files: right ones load, wrong ones are refused with a code and the place.

#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

mod loading {
    mod checkpoint;
    mod config;
    mod eval;
    mod folder;
    mod hostile;
    mod packed;
    mod request;
}

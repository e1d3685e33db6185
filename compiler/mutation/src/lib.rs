//! How often the checker is right about what is wrong: each mutant of a kernel has one synchronisation less, or a weaker
//! one, and the verifier, the emulator's race detector or other results must tell it from the kernel.
//!
//! [`mutants`] makes them from the text, [`Subject::judge`] says what sees each; [`Subject::failures`] says what is wrong with any text. Nothing here knows LLVM or reads files.

mod edits;
mod failure;
mod judge;
mod operator;

pub use edits::{Mutant, mutants};
pub use failure::Failure;
pub use judge::{Memories, Subject, Unfit, Verdict};
pub use operator::Operator;

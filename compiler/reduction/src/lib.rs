//! Makes a text that fails as small as it can be while it still fails.
//!
//! [`reduce`] leaves parts out, as delta debugging does (Zeller and Hildebrandt, 2002), along the brackets of the text
//! (Misherghi and Su, 2006): statements and arguments, then what is around a block, then single tokens and numbers.
//! It knows brackets, separators and comments and nothing else of the language, so a text that does not parse is
//! reduced as well. What "fails" means is the caller's.

mod edits;
mod reduce;
mod tokens;

pub use reduce::{Reduced, reduce};

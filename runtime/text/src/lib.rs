//! Text and tokens: `tokenizer.json`, and decoding that streams whole characters.
//!
//! This crate knows neither models nor kernels. Files and ids never panic: each fault is a [`TextError`] with a code
//! that `README.md` lists.

mod bytes;
mod error;
mod tokenizer;
mod utf8;

pub use error::TextError;
pub use tokenizer::{DecodeStream, FILE_NAME, Tokenizer};
pub use utf8::Utf8Stream;

//! What the compiler, the runtime and the models agree on.
//!
//! This crate knows element types and their bit formats, who may write a buffer while a kernel
//! runs, and how numbers are compared. It knows neither CUDA, nor LLVM, nor the text of the
//! language.

pub mod access;
pub mod dtype;
pub mod numeric;

pub use access::Access;
pub use dtype::DType;

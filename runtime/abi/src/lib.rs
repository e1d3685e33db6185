//! What the compiler, the runtime and the models agree on.
//!
//! This crate knows element types and their bit formats, who may write a buffer while a kernel
//! runs, how numbers are compared, what a step of a model is, and the file that compiled kernels travel in. It knows neither CUDA, nor LLVM, nor the text of the
//! language.

pub mod access;
pub mod bundle;
pub mod dtype;
pub mod exec;
pub mod files;
pub mod hex;
pub mod numeric;
pub mod plan;
pub mod stored;
pub mod trace;
pub mod whole;

pub use access::Access;
pub use dtype::DType;

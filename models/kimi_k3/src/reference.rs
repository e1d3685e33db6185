//! What the kernels must compute, as plain loops in f64 without cleverness.
//!
//! Inputs are the values that the kernel reads, widened to f64; outputs are not rounded. Each function names
//! the formula's source. They share nothing with the compiler or the emulator. Slices are row-major, and
//! their shapes stand beside each parameter; a slice of another length is a mistake of the caller and panics.

pub mod attn_res;
pub mod draft;
pub mod gemv;
pub mod kda;
pub mod mla;
pub mod model;
pub mod moe;
pub mod norm;
pub mod pointwise;
pub mod select;

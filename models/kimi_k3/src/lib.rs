//! Kimi K3 as data: its kernels as text of the tile language, and what each of them must compute.
//!
//! Scope of this version: the kernels of [`kernels`] and their [`mod@reference`]. This crate depends on neither
//! the compiler, nor CUDA, nor HTTP; whoever runs the kernels brings an executor.

pub mod kernels;
pub mod reference;

//! Kimi K3 as data: its configuration and checkpoint, its kernels as text of the tile language, and what each of
//! them must compute.
//!
//! Scope of this version: [`config`], [`checkpoint`] with its [`names`] and [`manifest`], [`kernels`], the
//! [`plan`] of a step with its [`weights`] and how they are loaded ([`load`]), the loop over it ([`step`], [`sample`]), the [`mod@reference`] in f64,
//! random weights ([`synthetic`]), the [`memory`] that it takes, one [`mod@hash`] of what it computed, and sets of tasks ([`eval`]). This crate depends on neither the compiler, nor CUDA,
//! nor HTTP; whoever runs the kernels brings an executor. Values from files never panic: each fault is an error with a
//! [`code::Code`].

pub mod checkpoint;
pub mod code;
pub mod config;
pub mod eval;
mod files;
pub mod hash;
pub mod kernels;
pub mod load;
pub mod manifest;
pub mod memory;
pub mod names;
pub mod packed;
pub mod plan;
pub mod reference;
pub mod request;
pub mod sample;
pub mod sets;
mod shown;
pub mod step;
pub mod synthetic;
pub mod traffic;
pub mod weights;

pub use checkpoint::{Checkpoint, CheckpointError};
pub use config::{Config, ConfigError};

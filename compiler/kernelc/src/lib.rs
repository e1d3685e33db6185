//! The compiler driver: everything that touches files, processes and the environment.
//!
//! The stages themselves live in `kernel_dsl`, `kernel_ir`, `kernel_emulator`, `kernel_codegen` and
//! `kernel_audit`, which know none of these. [`session`] is the pipeline; [`cli`] has one file a subcommand;
//! [`package`] writes what `kernelc build` makes, [`bundle`] the one file of it that a device needs; [`worker`] runs the back end in processes of its own.

pub mod back_end;
pub mod build_file;
pub mod bundle;
pub mod cli;
pub mod declarations;
pub mod files;
pub mod operations;
pub mod output;
pub mod package;
pub mod session;
pub mod tensors;
pub mod tools;
pub mod waits;
pub mod worker;

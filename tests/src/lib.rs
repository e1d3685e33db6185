//! What the tests of this package share: test files and their directives, runs on the emulator at both
//! levels, the kernels of Kimi K3 with their references, and the real data of one layer.
//!
//! Invariants: nothing here knows LLVM; a test depends on files of the repository and on seeds alone.

pub mod decode;
pub mod directive;
pub mod examples;
pub mod fuzz;
pub mod generated;
pub mod gpu;
pub mod k3;
pub mod layer1;
pub mod mutation;
pub mod overlap;
pub mod pages;
pub mod process;
pub mod program;
pub mod ranks;
pub mod recorded;
pub mod runner;
pub mod schedules;
pub mod sets;
pub mod suite;
pub mod tolerance;
pub mod values;

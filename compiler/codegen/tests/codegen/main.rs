//! Device kernels through every stage to three cubins, and one test for each trap of lowering.

mod kernels;
mod operations;
mod stages;
mod traps;

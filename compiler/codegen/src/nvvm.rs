//! Typed builders for the NVVM dialect, made from MLIR's own table of its operations.
#![allow(missing_docs, unused_qualifications, clippy::all, reason = "the file is generated code")]

melior::dialect! {
    name: "nvvm",
    files: ["mlir/Dialect/LLVMIR/NVVMOps.td"],
}

pub(crate) use nvvm::*;

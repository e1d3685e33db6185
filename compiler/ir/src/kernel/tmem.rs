//! Products in tensor memory, `mma … via ATOM` with an atom of `tcgen05`: one thread starts them, and they run on their
//! own until a barrier that they are committed to is complete.
//!
//! Each product reads both operands from shared memory and adds to a tile in tensor memory. From its `mma` on until the
//! round of the `commit` behind it is complete, a product may read its operands and change its sums at any time.
//! Products of one thread follow each other in order. A `load` from tensor memory runs on its own too, until `settle`.

use kernel_abi::DType;

use super::{Start, TileAccess, ValueId, VarId};

/// What a role does with tensor memory.
#[derive(Debug, Clone)]
pub enum Tensor {
    /// `mma a * b^T -> acc via ATOM`
    Mma(Box<TensorMma>),
    /// `load acc[…] -> r`: 128 rows of some columns come to registers, not before the `settle`.
    Load {
        /// The tile in registers, f32.
        var: VarId,
        /// Its slot.
        slot: u32,
        /// What is read, in tensor memory.
        access: TileAccess,
    },
    /// `settle r;`: the load to `r` is complete.
    Settle {
        /// The tile in registers.
        var: VarId,
        /// Its slot.
        slot: u32,
    },
}

/// A product.
#[derive(Debug, Clone)]
pub struct TensorMma {
    /// The sums, f32 `[128, n]`, in tensor memory.
    pub acc: TileAccess,
    /// Left operand, `[128, k]` with k contiguous, in shared memory.
    pub a: TileAccess,
    /// Right operand, `[n, k]` with k contiguous, in shared memory.
    pub b: TileAccess,
    /// What one instruction does.
    pub atom: TensorAtom,
    /// Where the sums start from.
    pub start: Start,
}

impl TensorMma {
    /// Calls `see` with every value that the product reads.
    pub fn each_use(&self, mut see: impl FnMut(ValueId)) {
        for access in [&self.acc, &self.a, &self.b] {
            access.each_use(&mut see);
        }
        if let Start::When(cond) = self.start {
            see(cond);
        }
    }
}

impl Tensor {
    /// Calls `see` with every access of a tile.
    pub fn each_access<'a>(&'a self, mut see: impl FnMut(&'a TileAccess)) {
        match self {
            Tensor::Mma(mma) => [&mma.acc, &mma.a, &mma.b].into_iter().for_each(see),
            Tensor::Load { access, .. } => see(access),
            Tensor::Settle { .. } => {}
        }
    }

    /// Calls `see` with every value that is read.
    pub fn each_use(&self, see: impl FnMut(ValueId)) {
        match self {
            Tensor::Mma(mma) => mma.each_use(see),
            Tensor::Load { access, .. } => access.each_use(see),
            Tensor::Settle { .. } => {}
        }
    }
}

/// `atom NAME = tcgen05(m = 128, n = …, k = 16, a = …, b = …, d = f32);`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorAtom {
    /// Columns of the sums: a multiple of 16, at most 256.
    pub n: u32,
    /// Type of both operands: bf16 or f16.
    pub dtype: DType,
}

impl TensorAtom {
    /// Rows of the sums.
    pub const ROWS: u32 = 128;
    /// Most columns.
    pub const MAX_COLUMNS: u32 = 256;
    /// Bytes of each row of an operand that one instruction reads.
    pub const DEPTH_BYTES: u32 = 32;

    /// Positions of k.
    pub fn depth(self) -> u32 {
        Self::DEPTH_BYTES * 8 / self.dtype.bits()
    }
}

/// Columns of tensor memory that a CTA can have.
pub const TENSOR_COLUMNS: u32 = 512;

/// Warps that reach all 128 rows of tensor memory: each reaches 32.
pub const TENSOR_WARPS: u32 = 4;

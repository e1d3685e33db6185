//! Products of a warpgroup, `mma … via ATOM` with an atom of `wgmma`: they run on their own until they are settled.
//!
//! Each product reads its operands from shared memory, the left one from registers as well, and adds to a tile in
//! registers. Products since the last
//! `commit` are a group; groups complete in order. From its `mma` on until a `settle` that waits for its group a
//! product may read its operands and change its sums at any time.

use kernel_abi::DType;

use super::{TileAccess, ValueId, VarId};

/// What the warps of a role do with the tensor core of a warpgroup.
#[derive(Debug, Clone)]
pub enum Warpgroup {
    /// `mma a * b^T -> acc via ATOM`
    Mma(Box<WarpgroupMma>),
    /// `commit;`: the products since the last one are a group.
    Commit,
    /// `settle acc but n;`: all but the `pending` youngest groups are complete.
    Settle {
        /// The sums that are named.
        var: VarId,
        /// Their slot.
        slot: u32,
        /// Groups that may stay in flight.
        pending: u32,
    },
}

/// A product.
#[derive(Debug, Clone)]
pub struct WarpgroupMma {
    /// The sums, f32.
    pub var: VarId,
    /// Their slot.
    pub slot: u32,
    /// Left operand, `[m, k]`.
    pub a: LeftOperand,
    /// Right operand, in shared memory: `[n, k]` with k contiguous, or `[k, n]` with n contiguous where it lies across.
    pub b: TileAccess,
    /// The right operand is `[k, n]`.
    pub across: bool,
    /// What one instruction does.
    pub atom: WgmmaAtom,
    /// Where the sums start from.
    pub start: Start,
}

/// Where the left operand of a product is.
#[derive(Debug, Clone)]
pub enum LeftOperand {
    /// In shared memory, with k contiguous.
    Shared(Box<TileAccess>),
    /// In registers, as they are when the product starts.
    Registers(ValueId),
}

/// Where the sums of a product start from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// What they were.
    Sums,
    /// Zero.
    Zero,
    /// What they were where a bool scalar holds, else zero.
    When(ValueId),
}

/// `atom NAME = wgmma(m = 64, n = …, k = 16, a = …, b = …, d = f32);`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WgmmaAtom {
    /// Columns of the sums: a multiple of 8, at most 256.
    pub n: u32,
    /// Types of both operands: bf16 or f16 twice, or e4m3 and e5m2 as one likes.
    pub types: [DType; 2],
}

impl WgmmaAtom {
    /// Rows of the sums.
    pub const ROWS: u32 = 64;
    /// Most columns.
    pub const MAX_COLUMNS: u32 = 256;
    /// Bytes of each row of an operand that one instruction reads.
    pub const DEPTH_BYTES: u32 = 32;
    /// Warps that work together.
    pub const WARPS: u32 = 4;

    /// Products of one output in one instruction.
    pub fn depth(self) -> u32 {
        Self::DEPTH_BYTES * 8 / self.types[0].bits()
    }
}

/// True for types of operands that one instruction takes together.
pub fn multiplies(types: [DType; 2]) -> bool {
    let is_narrow = |dtype| matches!(dtype, DType::E4m3 | DType::E5m2);
    match types {
        [DType::Bf16, DType::Bf16] | [DType::F16, DType::F16] => true,
        [left, right] => is_narrow(left) && is_narrow(right),
    }
}

impl WarpgroupMma {
    /// What it reads from shared memory.
    pub fn reads(&self) -> impl Iterator<Item = &TileAccess> {
        let left = match &self.a {
            LeftOperand::Shared(access) => Some(&**access),
            LeftOperand::Registers(_) => None,
        };
        left.into_iter().chain([&self.b])
    }

    /// The left operand, where it is in registers.
    pub fn left_value(&self) -> Option<ValueId> {
        match self.a {
            LeftOperand::Shared(_) => None,
            LeftOperand::Registers(value) => Some(value),
        }
    }

    /// The values that it reads: its left operand, those of its accesses and of its start.
    pub fn each_use(&self, mut see: impl FnMut(ValueId)) {
        self.left_value().into_iter().for_each(&mut see);
        for access in self.reads() {
            access.each_use(&mut see);
        }
        if let Start::When(cond) = self.start {
            see(cond);
        }
    }
}

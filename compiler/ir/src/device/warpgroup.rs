//! Products of a warpgroup at device level: instructions that run on their own, and what waits for them.

use kernel_abi::DType;
use serde::{Deserialize, Serialize};

use super::{Address, FragId, SlotId};

/// What a warpgroup does with its tensor core.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum WarpgroupOp {
    /// Orders what the thread stored to shared memory before it ahead of what the tensor core reads after it.
    ProxyFence,
    /// Hands the registers of a slot over to the products that follow.
    Fence {
        /// The sums of those products.
        sums: SlotId,
    },
    /// Starts a product.
    Mma(Box<WarpgroupProduct>),
    /// Closes the group of the products since the last one.
    Commit,
    /// Waits until at most `pending` groups are in flight.
    Wait {
        /// How many may be.
        pending: u32,
        /// The sums that are used next.
        sums: SlotId,
    },
}

impl WarpgroupOp {
    /// Calls `see` with every fragment that the operation reads.
    pub fn each_read(&self, mut see: impl FnMut(FragId)) {
        match self {
            WarpgroupOp::Mma(product) => {
                match &product.a {
                    Factor::Shared(matrix) => matrix.at.offset.iter().for_each(|at| see(at.0)),
                    Factor::Registers { frag, .. } => see(*frag),
                }
                product.b.at.offset.iter().for_each(|at| see(at.0));
                if let ProductStart::When((frag, _)) = product.start {
                    see(frag);
                }
            }
            WarpgroupOp::ProxyFence
            | WarpgroupOp::Fence { .. }
            | WarpgroupOp::Commit
            | WarpgroupOp::Wait { .. } => {}
        }
    }

    /// The slot with the sums, if the operation has some.
    pub fn slot(&self) -> Option<SlotId> {
        match self {
            WarpgroupOp::Mma(product) => Some(product.slot),
            WarpgroupOp::Fence { sums } | WarpgroupOp::Wait { sums, .. } => Some(*sums),
            WarpgroupOp::ProxyFence | WarpgroupOp::Commit => None,
        }
    }

    /// The same, to be renamed.
    pub fn slot_mut(&mut self) -> Option<&mut SlotId> {
        match self {
            WarpgroupOp::Mma(product) => Some(&mut product.slot),
            WarpgroupOp::Fence { sums } | WarpgroupOp::Wait { sums, .. } => Some(sums),
            WarpgroupOp::ProxyFence | WarpgroupOp::Commit => None,
        }
    }
}

/// One instruction: 64 rows by `n` columns of sums gain some products each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarpgroupProduct {
    /// The slot with the sums, f32.
    pub slot: SlotId,
    /// Registers of the slot in the order of the instruction, `n / 2`: blocks of 8 columns, in each the rows g and
    /// g + 8 of the warp's 16, in each columns 2t and 2t + 1, for lane `4 g + t`.
    pub sums: Vec<u32>,
    /// Columns of the sums.
    pub n: u32,
    /// Types of both operands.
    pub types: [DType; 2],
    /// Left operand: 64 rows.
    pub a: Factor,
    /// Right operand: `n` rows, one a column of the sums.
    pub b: Matrix,
    /// Where the sums start from.
    pub start: ProductStart,
}

/// Where the sums of an instruction start from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProductStart {
    /// What they were.
    Sums,
    /// Zero.
    Zero,
    /// What they were where a register (bool, the same in all threads) holds, else zero.
    When((FragId, u32)),
}

/// A matrix in shared memory, of which an instruction reads 32 bytes a row. Each row lies in a line of its own, `line` bytes after the one before;
/// pieces of 16 bytes are permuted as in a tile with a swizzle of that line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Matrix {
    /// First byte of the tile in shared memory.
    pub base: u32,
    /// First element from there, as it is stored, before the swizzle; the same in all threads of a warpgroup.
    pub at: Address,
    /// Bytes of a line: 32, 64 or 128.
    pub line: u32,
    /// Lines run along n, one for each position of k, and columns beyond a line lie so many bytes further on.
    pub across: Option<u32>,
}

/// The left operand of a product of a warpgroup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Factor {
    /// In shared memory.
    Shared(Matrix),
    /// In registers of 16 bits an element.
    Registers {
        /// Which fragment.
        frag: FragId,
        /// Eight elements of it: of the rows g and g + 8 of the warp's 16 the positions 2t and 2t + 1 of k, then those
        /// 8 further on, for lane `4 g + t`.
        elements: Vec<u32>,
    },
}

//! Tensor memory at device level: its allocation, products that run on their own, and loads.

use kernel_abi::DType;
use serde::{Deserialize, Serialize};

use super::{Address, FragId, Matrix, ProductStart};
use crate::kernel::TensorAtom;

/// What threads do with tensor memory. Columns count from the first one of the CTA.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum TensorOp {
    /// The first warp of the CTA allocates columns, puts their address into shared memory, and allocates no more.
    Allocate {
        /// How many, a power of two from 32 to 512.
        columns: u32,
        /// First byte of the address.
        word: u32,
        /// Both CTAs of a pair do, together.
        pair: bool,
    },
    /// Each thread takes the address, after a barrier behind the allocation.
    Attach {
        /// First byte of the address.
        word: u32,
    },
    /// The first warp gives the columns back, after a barrier behind everything that touches them.
    Free {
        /// How many.
        columns: u32,
        /// Both CTAs of a pair do, together.
        pair: bool,
    },
    /// What the thread did in tensor memory comes ahead of what other threads do there after they have met it.
    FenceBefore,
    /// What other threads did there before they met this one comes ahead of what it does after.
    FenceAfter,
    /// The first thread of the role starts a copy of scales from shared memory to four columns, ahead of the products that
    /// it starts after: 512 bytes, of which each 16 are a lane of 32, the same in each warp's rows.
    CopyScales {
        /// First of the columns.
        column: u32,
        /// First byte of the tile in shared memory.
        base: u32,
        /// First byte from there, a multiple of 16.
        at: Address,
        /// Rows whose scales are used, at most 128; see [`scale_place`](crate::kernel::scale_place).
        rows: u32,
        /// Both CTAs of a pair do, each from its own shared memory to its own columns.
        pair: bool,
    },
    /// The first thread of the role starts a product.
    Product(Box<TensorProduct>),
    /// Each thread writes columns of its row, as it would read them of 128 rows, and waits until they are there. Two
    /// elements of 16 bits are a column, the first in its low half.
    Store {
        /// Elements of consecutive columns.
        src: FragId,
        /// First column.
        column: Address,
    },
    /// Each thread reads columns, and waits for them. Of 128 rows lane `l` of warp `w` of the CTA reads row
    /// `32 (w mod 4) + l`; of 64 rows, of which each warp reaches 16, lane `4 g + t` reads columns `2 t` and `2 t + 1`
    /// of each 8 of row `16 (w mod 4) + g`, then those of the row 8 further on.
    Load {
        /// Result, f32, one element a place.
        dst: FragId,
        /// Rows that warps reach: 128, or 64 where each reaches 16.
        rows: u32,
        /// First column.
        column: Address,
    },
}

impl TensorOp {
    /// Calls `see` with every register that the operation reads.
    pub fn each_register(&self, mut see: impl FnMut((FragId, u32))) {
        match self {
            TensorOp::Product(product) => {
                let left = match product.a {
                    TensorLeft::Shared(matrix) => matrix.at,
                    TensorLeft::Tensor(column) => column,
                };
                let addresses = [product.column, left, product.b.at];
                addresses.iter().filter_map(|at| at.offset).for_each(&mut see);
                if let ProductStart::When(cond) = product.start {
                    see(cond);
                }
            }
            TensorOp::CopyScales { at, .. } => at.offset.into_iter().for_each(see),
            TensorOp::Load { column, .. } => column.offset.into_iter().for_each(see),
            TensorOp::Store { src, column } => {
                see((*src, 0));
                column.offset.into_iter().for_each(see);
            }
            TensorOp::Allocate { .. }
            | TensorOp::Attach { .. }
            | TensorOp::Free { .. }
            | TensorOp::FenceBefore
            | TensorOp::FenceAfter => {}
        }
    }

    /// The fragment that it defines.
    pub fn result(&self) -> Option<FragId> {
        if let TensorOp::Load { dst, .. } = self { Some(*dst) } else { None }
    }
}

/// Where the left operand of an instruction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TensorLeft {
    /// In shared memory.
    Shared(Matrix),
    /// In tensor memory, from a column on.
    Tensor(Address),
}

/// One instruction: `m` rows by `n` columns of sums gain some products each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorProduct {
    /// First column of the sums.
    pub column: Address,
    /// Rows of the sums: 64 or 128, of a pair 128 or 256. Of 128 rows of a pair each CTA has 64, of which the second half of
    /// the columns lies in rows 64 to 127 of the same columns as the first.
    pub m: u32,
    /// Columns of the sums.
    pub n: u32,
    /// A pair of CTAs shares it: each has half of the rows of sums and of the operands, at the same places.
    pub pair: bool,
    /// Types of both operands.
    pub types: [DType; 2],
    /// Left operand: `m` rows.
    pub a: TensorLeft,
    /// Right operand: `n` rows, one a column of the sums.
    pub b: Matrix,
    /// Where the sums start from.
    pub start: ProductStart,
    /// Where the scales of both operands are.
    pub scales: Option<TensorScales>,
}

impl TensorProduct {
    /// The second half of the columns of its sums lies below the first.
    pub fn folds(&self) -> bool {
        self.pair && self.m == TensorAtom::ROWS
    }

    /// Columns of tensor memory of its sums.
    pub fn columns(&self) -> u32 {
        if self.folds() { self.n / 2 } else { self.n }
    }
}

/// The scales of both operands of an instruction, in columns of 32 rows each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorScales {
    /// First column, of the left and of the right operand.
    pub columns: [u32; 2],
    /// First byte of each word; the scales of further groups follow.
    pub byte: u32,
}

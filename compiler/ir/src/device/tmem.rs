//! Tensor memory at device level: its allocation, products that run on their own, and loads.

use kernel_abi::DType;
use serde::{Deserialize, Serialize};

use super::{Address, FragId, Matrix, ProductStart};

/// What threads do with tensor memory. Columns count from the first one of the CTA.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum TensorOp {
    /// The first warp of the CTA allocates columns, puts their address into shared memory, and allocates no more.
    Allocate {
        /// How many, a power of two from 32 to 512.
        columns: u32,
        /// First byte of the address.
        word: u32,
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
    },
    /// What the thread did in tensor memory comes ahead of what other threads do there after they have met it.
    FenceBefore,
    /// What other threads did there before they met this one comes ahead of what it does after.
    FenceAfter,
    /// The first thread of the role starts a product.
    Product(Box<TensorProduct>),
    /// Each thread reads columns of one row, and waits for them: lane `l` of warp `w` of the CTA that of row
    /// `32 (w mod 4) + l`.
    Load {
        /// Result, f32, one element a column.
        dst: FragId,
        /// First column.
        column: Address,
    },
}

impl TensorOp {
    /// Calls `see` with every register that the operation reads.
    pub fn each_register(&self, mut see: impl FnMut((FragId, u32))) {
        match self {
            TensorOp::Product(product) => {
                let addresses = [product.column, product.a.at, product.b.at];
                addresses.iter().filter_map(|at| at.offset).for_each(&mut see);
                if let ProductStart::When(cond) = product.start {
                    see(cond);
                }
            }
            TensorOp::Load { column, .. } => column.offset.into_iter().for_each(see),
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

/// One instruction: 128 rows by `n` columns of sums gain some products each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorProduct {
    /// First column of the sums.
    pub column: Address,
    /// Columns of the sums.
    pub n: u32,
    /// Type of both operands.
    pub dtype: DType,
    /// Left operand: 128 rows.
    pub a: Matrix,
    /// Right operand: `n` rows, one a column of the sums.
    pub b: Matrix,
    /// Where the sums start from.
    pub start: ProductStart,
}

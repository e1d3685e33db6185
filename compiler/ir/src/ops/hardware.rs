//! How far compiled code on a GPU may be from what the operations of [`super`] compute.
//!
//! The one home of these numbers: tests take them from here, `gpu-tests numerics` measures a device against them,
//! and docs/numerics.md states them. What is not named here is exact: the same bits, but for the code of a NaN.

use super::elementwise::UnaryOp;
use super::mma;

/// How far a result may be off: within either bound.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Slack {
    /// Codes between the two.
    pub ulp: u64,
    /// Absolute difference.
    pub abs: f64,
}

impl Slack {
    /// The same bits.
    pub const EXACT: Slack = Slack { ulp: 0, abs: 0.0 };

    /// The room of a function on one f32.
    pub const fn of(op: UnaryOp) -> Slack {
        match op {
            UnaryOp::Exp2 | UnaryOp::Exp | UnaryOp::Rsqrt => Slack { ulp: 2, abs: 0.0 },
            UnaryOp::Log2 => Slack { ulp: 2, abs: TWO_TO_MINUS_22 },
            UnaryOp::Tanh => Slack { ulp: 2, abs: TWO_TO_MINUS_22 },
            UnaryOp::Sigmoid => Slack { ulp: 4, abs: 0.0 },
            UnaryOp::Neg | UnaryOp::Not | UnaryOp::Abs | UnaryOp::Sqrt | UnaryOp::ScaleUp => {
                Slack::EXACT
            }
        }
    }

    /// The room of a sum of `depth` products, each at most 1, on the tensor core.
    pub fn of_product(depth: u32) -> Slack {
        let groups = depth.div_ceil(mma::DEPTH as u32);
        // Behind a group the running value is at most the number of products so far.
        let greatest: u32 = (1..=groups).map(|group| group * mma::DEPTH as u32).sum();
        Slack { ulp: 0, abs: PRODUCT_GROUP * UNIT * f64::from(greatest) }
    }
}

const TWO_TO_MINUS_22: f64 = 1.0 / 4_194_304.0;

/// The last place of a number from 1 to 2, in f32.
pub const UNIT: f64 = 1.0 / 8_388_608.0;

/// Error of one group of 16 products on the tensor core, in [`UNIT`]s of the greatest magnitude among the running
/// value, the products and the result.
pub const PRODUCT_GROUP: f64 = 6.0;

//! What a scalar is in the CTA of a cluster with one rank.

use std::collections::BTreeMap;

use kernel_abi::DType;

use crate::kernel::{ClusterAxis, Kernel, Literal, Op, ValueId};
use crate::ops::{BinaryOp, eval};

/// How far a scalar is followed.
const MAX_DEPTH: u32 = 32;

/// The value, where it depends on the rank alone.
pub(in crate::verify) fn on_rank(
    kernel: &Kernel,
    ops: &BTreeMap<ValueId, &Op>,
    value: ValueId,
    rank: u32,
) -> Option<i128> {
    let run = Run { kernel, ops, rank };
    let code = run.code(value, MAX_DEPTH)?;
    (kernel.values[value].dtype == DType::I32).then(|| i128::from(code as u32 as i32))
}

/// The index of a CTA along an axis of its cluster.
pub(in crate::verify) fn place(kernel: &Kernel, axis: ClusterAxis, rank: u32) -> u32 {
    let [x, y, _] = kernel.launch.cluster.map(|extent| extent.max(1));
    match axis {
        ClusterAxis::Along(0) => rank % x,
        ClusterAxis::Along(1) => rank / x % y,
        ClusterAxis::Along(_) => rank / x / y,
        ClusterAxis::Rank => rank,
    }
}

struct Run<'a> {
    kernel: &'a Kernel,
    ops: &'a BTreeMap<ValueId, &'a Op>,
    rank: u32,
}

impl Run<'_> {
    /// The code of an i32 or a bool.
    fn code(&self, value: ValueId, depth: u32) -> Option<u64> {
        let depth = depth.checked_sub(1)?;
        let declared = &self.kernel.values[value];
        if !declared.is_scalar() || !matches!(declared.dtype, DType::I32 | DType::Bool) {
            return None;
        }
        let known = |value: ValueId| self.code(value, depth);
        let dtype = |value: ValueId| self.kernel.values[value].dtype;
        match *self.ops.get(&value)? {
            Op::Const(Literal::Int(value)) => Some(u64::from(i32::try_from(*value).ok()? as u32)),
            Op::Const(Literal::Bool(value)) => Some(u64::from(*value)),
            Op::Unary { op, x } => Some(eval::unary_code(*op, dtype(*x), known(*x)?)),
            Op::Binary { op: BinaryOp::Rem, a, b } if self.is_cta(*a) => {
                self.place_in_cluster(*a, known(*b)?)
            }
            Op::Binary { op: BinaryOp::Shl | BinaryOp::Shr, .. } => None,
            Op::Binary { op, a, b } => {
                eval::binary_code(*op, dtype(*a), known(*a)?, known(*b)?).ok()
            }
            Op::Compare { op, a, b } => {
                Some(u64::from(eval::compare_code(*op, dtype(*a), known(*a)?, known(*b)?)))
            }
            Op::Select { cond, a, b } => known(if known(*cond)? != 0 { *a } else { *b }),
            Op::ClusterIndex(axis) => Some(u64::from(self.place(*axis))),
            _ => None,
        }
    }

    fn place(&self, axis: ClusterAxis) -> u32 {
        place(self.kernel, axis, self.rank)
    }

    fn is_cta(&self, value: ValueId) -> bool {
        matches!(self.ops.get(&value), Some(Op::CtaIndex(_)))
    }

    /// `cta.x % n`, where `n` divides the extent of clusters along x: they start at multiples of that.
    fn place_in_cluster(&self, value: ValueId, divisor: u64) -> Option<u64> {
        let Op::CtaIndex(axis) = self.ops.get(&value)? else { return None };
        let axis = ClusterAxis::Along(*axis);
        let divisor = u32::try_from(divisor).ok().filter(|divisor| *divisor > 0)?;
        let fits = axis.extent(self.kernel.launch.cluster).is_multiple_of(divisor);
        fits.then(|| u64::from(self.place(axis) % divisor))
    }
}

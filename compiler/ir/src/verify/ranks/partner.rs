//! Who tells whom: which rank a scalar names, for each rank that computes it.

use super::Survey;
use crate::kernel::{Literal, Op, RANK, ValueId};
use crate::ops::BinaryOp;

/// How far a scalar is followed.
const MAX_DEPTH: u32 = 32;

/// Which rank each rank tells; every rank is told by one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Partners {
    /// By rank, the one that it tells.
    pub(super) told: Vec<usize>,
    /// Ranks of the longest cycle.
    pub(super) longest: usize,
}

impl Partners {
    /// The permutation, if these numbers are one.
    fn new(numbers: &[i64]) -> Option<Partners> {
        let told: Vec<usize> =
            numbers.iter().map(|&number| usize::try_from(number).ok()).collect::<Option<_>>()?;
        let mut is_told = vec![false; told.len()];
        for &rank in &told {
            let seen = is_told.get_mut(rank)?;
            if std::mem::replace(seen, true) {
                return None;
            }
        }
        let length = |first: usize| {
            let mut at = told[first];
            let mut length = 1;
            while at != first {
                at = told[at];
                length += 1;
            }
            length
        };
        let longest = (0..told.len()).map(length).max()?;
        Some(Partners { told, longest })
    }
}

impl Survey<'_> {
    /// The values of a scalar on each rank, where it depends on the rank alone.
    pub(super) fn on_ranks(&self, value: ValueId) -> Option<Vec<i64>> {
        (0..i64::from(self.world)).map(|rank| self.on_rank(value, rank, MAX_DEPTH)).collect()
    }

    /// True for two scalars that name one rank on each.
    pub(super) fn is_one_rank(&self, a: ValueId, b: ValueId) -> bool {
        a == b || self.on_ranks(a).is_some_and(|all| self.on_ranks(b) == Some(all))
    }

    /// Who tells whom, where a scalar names the rank that is told.
    pub(super) fn partners(&self, to: ValueId) -> Option<Partners> {
        Partners::new(&self.on_ranks(to)?)
    }

    fn on_rank(&self, value: ValueId, rank: i64, depth: u32) -> Option<i64> {
        let depth = depth.checked_sub(1)?;
        let of = |value: ValueId| self.on_rank(value, rank, depth);
        let number = match self.ops.get(&value)? {
            Op::Const(Literal::Int(number)) => Some(*number),
            Op::ScalarParam(param) => (self.known.param(*param).name == RANK).then_some(rank),
            Op::Binary { op, a, b } => {
                let (a, b) = (of(*a)?, of(*b)?);
                match op {
                    BinaryOp::Add => a.checked_add(b),
                    BinaryOp::Sub => a.checked_sub(b),
                    BinaryOp::Mul => a.checked_mul(b),
                    BinaryOp::Div => a.checked_div(b),
                    BinaryOp::Rem => a.checked_rem(b),
                    BinaryOp::Min => Some(a.min(b)),
                    BinaryOp::Max => Some(a.max(b)),
                    BinaryOp::And => Some(a & b),
                    BinaryOp::Or => Some(a | b),
                    BinaryOp::Xor => Some(a ^ b),
                    BinaryOp::Shl | BinaryOp::Shr => None,
                }
            }
            _ => None,
        };
        // Where 32 bits would not hold a step, the sum is not followed.
        number.filter(|&number| i32::try_from(number).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::Partners;

    #[test]
    fn permutations_have_cycles() {
        let longest = |numbers: &[i64]| Partners::new(numbers).map(|all| all.longest);
        assert_eq!(longest(&[1, 2, 3, 0]), Some(4));
        assert_eq!(longest(&[1, 0, 3, 2]), Some(2));
        assert_eq!(longest(&[0, 2, 1]), Some(2));
        assert_eq!(longest(&[0]), Some(1));
        assert_eq!(longest(&[1, 1]), None);
        assert_eq!(longest(&[1, 2]), None);
        assert_eq!(longest(&[-1, 0]), None);
        assert_eq!(longest(&[]), None);
    }
}

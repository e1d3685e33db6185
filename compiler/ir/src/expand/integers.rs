//! Integer operations as forms: carried out where that is exact, else emitted with what is known of the
//! result.

use kernel_abi::DType;

use super::builder::{Builder, Pred, Pure, dtype_range, fits};
use super::linear::{Fact, Linear, Reg, gcd, power_of_two};
use crate::device::DeviceOp;
use crate::ops::{BinaryOp, CompareOp};

impl Builder<'_> {
    /// `a op b` on integers of `dtype`, as a form: carried out on the forms where that is exact.
    pub(super) fn int_binary(
        &mut self,
        op: BinaryOp,
        a: &Linear,
        b: &Linear,
        dtype: DType,
    ) -> Linear {
        if let Some(form) = self.folded(op, a, b)
            && fits(self.range(&form), dtype)
        {
            return form;
        }
        let fact = self.binary_fact(op, a, b, dtype);
        if let Some((op, b)) = self.cheaper(op, a, b) {
            let (x, y) = (self.materialize(a, dtype), self.int(dtype, b));
            let reg = self.binary(op, x, y, dtype);
            self.learn(reg, fact);
            return Linear::register(reg);
        }
        let divides = matches!(op, BinaryOp::Div | BinaryOp::Rem);
        let (x, y) = (self.materialize(a, dtype), self.materialize(b, dtype));
        // A division that is not known to be defined stays where the author put it.
        let reg = if divides && b.as_constant().is_none_or(|b| b <= 0) {
            let (a, b) = (self.arg(x), self.arg(y));
            (self.define(dtype, 1, |dst| DeviceOp::Binary { dst, op, a, b }), 0)
        } else {
            self.binary(op, x, y, dtype)
        };
        self.learn(reg, fact);
        Linear::register(reg)
    }

    /// A shift or a mask in place of a division of a number that is not negative by a power of two.
    fn cheaper(&self, op: BinaryOp, a: &Linear, b: &Linear) -> Option<(BinaryOp, i64)> {
        let divisor = b.as_constant().filter(|d| d.count_ones() == 1 && *d > 0)?;
        if self.range(a).0 < 0 {
            return None;
        }
        match op {
            BinaryOp::Div => Some((BinaryOp::Shr, i64::from(divisor.trailing_zeros()))),
            BinaryOp::Rem => Some((BinaryOp::And, divisor - 1)),
            BinaryOp::Add
            | BinaryOp::Sub
            | BinaryOp::Mul
            | BinaryOp::Min
            | BinaryOp::Max
            | BinaryOp::And
            | BinaryOp::Or
            | BinaryOp::Xor
            | BinaryOp::Shl
            | BinaryOp::Shr => None,
        }
    }

    /// The exact result of an integer operation as a form.
    fn folded(&self, op: BinaryOp, a: &Linear, b: &Linear) -> Option<Linear> {
        let (ra, rb) = (self.range(a), self.range(b));
        match op {
            BinaryOp::Add => a.plus(1, b),
            BinaryOp::Sub => a.plus(-1, b),
            BinaryOp::Mul => match (a.as_constant(), b.as_constant()) {
                (_, Some(b)) => a.times(b),
                (Some(a), None) => b.times(a),
                (None, None) => None,
            },
            BinaryOp::Div | BinaryOp::Rem => {
                let divisor = b.as_constant().filter(|&d| d > 0)?;
                let (high, low) = (ra.0 >= 0).then(|| self.split(a, divisor))??;
                Some(if op == BinaryOp::Div { high } else { low })
            }
            BinaryOp::Min if ra.1 <= rb.0 => Some(a.clone()),
            BinaryOp::Min if rb.1 <= ra.0 => Some(b.clone()),
            BinaryOp::Max if ra.1 <= rb.0 => Some(b.clone()),
            BinaryOp::Max if rb.1 <= ra.0 => Some(a.clone()),
            BinaryOp::Shl => {
                let shift = b.as_constant().filter(|s| (0..62).contains(s))?;
                a.times(1 << shift)
            }
            BinaryOp::Shr => {
                let shift = b.as_constant().filter(|s| (0..31).contains(s))?;
                (ra.0 >= 0).then(|| self.split(a, 1 << shift))?.map(|(high, _)| high)
            }
            BinaryOp::Min | BinaryOp::Max | BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => None,
        }
    }

    /// What is known of an operation that could not be carried out.
    fn binary_fact(&self, op: BinaryOp, a: &Linear, b: &Linear, dtype: DType) -> Fact {
        let (ra, rb) = (self.range(a), self.range(b));
        let (ma, mb) = (self.multiple(a), self.multiple(b));
        let joined = gcd(ma, mb);
        let unknown = dtype_range(dtype);
        let (range, multiple) = match op {
            BinaryOp::Add => ((ra.0 + rb.0, ra.1 + rb.1), joined),
            BinaryOp::Sub => ((ra.0 - rb.1, ra.1 - rb.0), joined),
            BinaryOp::Mul => {
                let ends = [(ra.0, rb.0), (ra.0, rb.1), (ra.1, rb.0), (ra.1, rb.1)]
                    .map(|(x, y)| x.saturating_mul(y));
                let lo = ends.into_iter().fold(i128::MAX, i128::min);
                let hi = ends.into_iter().fold(i128::MIN, i128::max);
                ((lo, hi), ma.checked_mul(mb).unwrap_or(1))
            }
            BinaryOp::Div | BinaryOp::Shr => {
                let divisor = match (op, b.as_constant()) {
                    (BinaryOp::Div, Some(d)) if d > 0 => Some(i128::from(d)),
                    (BinaryOp::Shr, Some(s)) if (0..31).contains(&s) => Some(1 << s),
                    _ => None,
                };
                match divisor {
                    Some(d) if ra.0 >= 0 => {
                        let exact = u64::try_from(d).ok().filter(|&d| ma.is_multiple_of(d));
                        ((ra.0 / d, ra.1 / d), exact.map_or(1, |d| ma / d))
                    }
                    _ => ((unknown.0.into(), unknown.1.into()), 1),
                }
            }
            BinaryOp::Rem => match b.as_constant() {
                Some(d) if d > 0 && ra.0 >= 0 => {
                    ((0, (i128::from(d) - 1).min(ra.1)), gcd(ma, d.unsigned_abs()))
                }
                _ => ((unknown.0.into(), unknown.1.into()), 1),
            },
            BinaryOp::Min => ((ra.0.min(rb.0), ra.1.min(rb.1)), joined),
            BinaryOp::Max => ((ra.0.max(rb.0), ra.1.max(rb.1)), joined),
            BinaryOp::And if ra.0 >= 0 && rb.0 >= 0 => ((0, ra.1.min(rb.1)), 1),
            BinaryOp::And | BinaryOp::Or | BinaryOp::Xor | BinaryOp::Shl => {
                ((unknown.0.into(), unknown.1.into()), 1)
            }
        };
        if fits(range, dtype) {
            let end = |x: i128| i64::try_from(x).expect("it fits the type");
            Fact { lo: end(range.0), hi: end(range.1), multiple }
        } else {
            // The result may wrap: only powers of two survive.
            let multiple = power_of_two(multiple).min(1 << 31);
            Fact { lo: unknown.0, hi: unknown.1, multiple }
        }
    }

    /// `a op b` on integers.
    pub(super) fn int_compare(
        &mut self,
        op: CompareOp,
        a: &Linear,
        b: &Linear,
        dtype: DType,
    ) -> Pred {
        if let Some(difference) = a.plus(-1, b) {
            let (lo, hi) = self.range(&difference);
            let known = match op {
                CompareOp::Eq => decide(lo == 0 && hi == 0, lo > 0 || hi < 0),
                CompareOp::Ne => decide(lo > 0 || hi < 0, lo == 0 && hi == 0),
                CompareOp::Lt => decide(hi < 0, lo >= 0),
                CompareOp::Le => decide(hi <= 0, lo > 0),
                CompareOp::Gt => decide(lo > 0, hi <= 0),
                CompareOp::Ge => decide(lo >= 0, hi < 0),
            };
            match known {
                Some(true) => return Pred::Always,
                Some(false) => return Pred::Never,
                None => {}
            }
        }
        let (x, y) = (self.materialize(a, dtype), self.materialize(b, dtype));
        Pred::When((self.pure(Pure::Compare(op, x, y), DType::Bool), 0))
    }

    /// `cond ? a : b` on integers.
    pub(super) fn int_select(&mut self, cond: Reg, a: &Linear, b: &Linear, dtype: DType) -> Linear {
        match self.known(cond) {
            Some(true) => return a.clone(),
            Some(false) => return b.clone(),
            None if a == b => return a.clone(),
            None => {}
        }
        let (ra, rb) = (self.range(a), self.range(b));
        let multiple = gcd(self.multiple(a), self.multiple(b));
        let (x, y) = (self.materialize(a, dtype), self.materialize(b, dtype));
        let reg = (self.pure(Pure::Select(cond, x, y), dtype), 0);
        let (lo, hi) = (ra.0.min(rb.0), ra.1.max(rb.1));
        if fits((lo, hi), dtype) {
            let end = |x: i128| i64::try_from(x).expect("it fits the type");
            self.learn(reg, Fact { lo: end(lo), hi: end(hi), multiple });
        }
        Linear::register(reg)
    }
}

fn decide(holds: bool, fails: bool) -> Option<bool> {
    if holds {
        Some(true)
    } else if fails {
        Some(false)
    } else {
        None
    }
}

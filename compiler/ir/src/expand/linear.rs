//! Linear forms over registers: how the expansion knows addresses.
//!
//! A form is exact: it is the integer that its registers give, not that integer modulo 2^32. What is known
//! of a register (an interval, and a number that divides it) decides how wide a vector may be and when a
//! division by a constant can be carried out on the form.

use crate::device::FragId;

/// Element of a fragment: a register that holds one integer.
pub(super) type Reg = (FragId, u32);

/// What is known of an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fact {
    /// Least value.
    pub(super) lo: i64,
    /// Greatest value.
    pub(super) hi: i64,
    /// A number that divides it; 0 for the value 0.
    pub(super) multiple: u64,
}

/// `constant + sum of factor * register`, each register once, in order, no factor 0.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub(super) struct Linear {
    pub(super) terms: Vec<(Reg, i64)>,
    pub(super) constant: i64,
}

impl Linear {
    pub(super) fn constant(constant: i64) -> Linear {
        Linear { terms: Vec::new(), constant }
    }

    pub(super) fn register(reg: Reg) -> Linear {
        Linear { terms: vec![(reg, 1)], constant: 0 }
    }

    /// The value, if no register is left.
    pub(super) fn as_constant(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// `self + factor * other`; nothing where the numbers leave 64 bits.
    pub(super) fn plus(&self, factor: i64, other: &Linear) -> Option<Linear> {
        let constant = self.constant.checked_add(factor.checked_mul(other.constant)?)?;
        let mut terms = Vec::with_capacity(self.terms.len() + other.terms.len());
        let (mut a, mut b) = (self.terms.iter().peekable(), other.terms.iter().peekable());
        loop {
            let (reg, value) = match (a.peek(), b.peek()) {
                (None, None) => break,
                (Some(&&(reg, f)), None) => {
                    a.next();
                    (reg, f)
                }
                (Some(&&(reg, f)), Some(&&(other, _))) if reg < other => {
                    a.next();
                    (reg, f)
                }
                (Some(&&(reg, f)), Some(&&(other, g))) if reg == other => {
                    a.next();
                    b.next();
                    (reg, f.checked_add(factor.checked_mul(g)?)?)
                }
                (_, Some(&&(reg, g))) => {
                    b.next();
                    (reg, factor.checked_mul(g)?)
                }
            };
            if value != 0 {
                terms.push((reg, value));
            }
        }
        Some(Linear { terms, constant })
    }

    /// `factor * self`.
    pub(super) fn times(&self, factor: i64) -> Option<Linear> {
        Linear::default().plus(factor, self)
    }

    /// `self + constant`.
    pub(super) fn offset(&self, constant: i64) -> Option<Linear> {
        let constant = self.constant.checked_add(constant)?;
        Some(Linear { terms: self.terms.clone(), constant })
    }

    /// The form without its constant.
    pub(super) fn variable(&self) -> Linear {
        Linear { terms: self.terms.clone(), constant: 0 }
    }

    /// The interval of its values, which may lie outside 64 bits.
    pub(super) fn range(&self, fact: impl Fn(Reg) -> Fact) -> (i128, i128) {
        let start = (i128::from(self.constant), i128::from(self.constant));
        self.terms.iter().fold(start, |(lo, hi), &(reg, factor)| {
            let fact = fact(reg);
            let factor = i128::from(factor);
            let ends = (factor * i128::from(fact.lo), factor * i128::from(fact.hi));
            (lo + ends.0.min(ends.1), hi + ends.0.max(ends.1))
        })
    }

    /// The greatest number known to divide it; 0 for the constant 0.
    pub(super) fn multiple(&self, fact: impl Fn(Reg) -> Fact) -> u64 {
        self.terms.iter().fold(self.constant.unsigned_abs(), |g, &(reg, factor)| {
            let factor = factor.unsigned_abs();
            gcd(g, factor.checked_mul(fact(reg).multiple).unwrap_or(factor))
        })
    }

    /// Quotient and remainder by `divisor`, floored, where the terms fall into multiples of it and a part
    /// that provably stays below it.
    pub(super) fn split(
        &self,
        divisor: i64,
        fact: impl Fn(Reg) -> Fact,
    ) -> Option<(Linear, Linear)> {
        let mut high = Linear::constant(self.constant.div_euclid(divisor));
        let mut low = Linear::constant(self.constant.rem_euclid(divisor));
        for &(reg, factor) in &self.terms {
            if factor % divisor == 0 {
                high.terms.push((reg, factor / divisor));
            } else {
                low.terms.push((reg, factor));
            }
        }
        let (lo, hi) = low.range(fact);
        (lo >= 0 && hi < i128::from(divisor)).then_some((high, low))
    }
}

/// Greatest common divisor; `gcd(0, x)` is `x`.
pub(super) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The largest power of two that divides a number known as "multiple of"; 0 divides by everything.
pub(super) fn power_of_two(multiple: u64) -> u64 {
    if multiple == 0 { 1 << 62 } else { 1 << multiple.trailing_zeros().min(62) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Id;
    use proptest::prelude::*;

    fn reg(i: usize) -> Reg {
        (FragId::new(i), 0)
    }

    #[test]
    fn splitting_needs_a_low_part_that_does_not_carry() {
        let fact = |(frag, _): Reg| match frag.index() {
            0 => Fact { lo: 0, hi: 7, multiple: 1 },
            _ => Fact { lo: -5, hi: 1000, multiple: 3 },
        };
        let form = Linear { terms: vec![(reg(0), 1), (reg(1), 16)], constant: 16 };
        let (high, low) = form.split(8, fact).unwrap();
        assert_eq!(high, Linear { terms: vec![(reg(1), 2)], constant: 2 });
        assert_eq!(low, Linear::register(reg(0)));
        assert_eq!(form.offset(1).unwrap().split(8, fact), None);
        assert_eq!(form.split(32, fact), None);
        assert_eq!(form.multiple(fact), 1);
        assert_eq!(form.variable().plus(-1, &Linear::register(reg(0))).unwrap().multiple(fact), 48);
    }

    proptest! {
        #[test]
        fn facts_hold_for_every_value(
            factors in proptest::collection::vec(-40i64..40, 3),
            multiples in proptest::collection::vec(1u64..9, 3),
            values in proptest::collection::vec(0i64..20, 3),
            constant in -100i64..100,
            divisor in 1i64..20,
        ) {
            let fact = |(frag, _): Reg| {
                let multiple = multiples[frag.index()];
                Fact { lo: 0, hi: 20 * multiple as i64, multiple }
            };
            let value_of = |r: usize| values[r] * multiples[r] as i64;
            let eval = |form: &Linear| {
                form.terms.iter().fold(form.constant, |n, (r, f)| n + f * value_of(r.0.index()))
            };
            let mut form = Linear::constant(constant);
            for (i, factor) in factors.iter().enumerate() {
                form = form.plus(*factor, &Linear::register(reg(i))).unwrap();
            }
            let value = eval(&form);
            let (lo, hi) = form.range(fact);
            prop_assert!(lo <= i128::from(value) && i128::from(value) <= hi);
            let multiple = form.multiple(fact);
            prop_assert_eq!(value.unsigned_abs().checked_rem(multiple).unwrap_or(value.unsigned_abs()), 0);
            if let Some((high, low)) = form.split(divisor, fact) {
                prop_assert_eq!(eval(&high), value.div_euclid(divisor));
                prop_assert_eq!(eval(&low), value.rem_euclid(divisor));
            }
        }
    }
}

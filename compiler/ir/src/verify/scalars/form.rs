//! Affine forms over symbols, and intervals.

use std::collections::BTreeMap;

use crate::kernel::{ClusterAxis, ParamId, ValueId};

/// An inclusive interval; `None` is unbounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::verify) struct Interval {
    pub(in crate::verify) lo: Option<i128>,
    pub(in crate::verify) hi: Option<i128>,
}

impl Interval {
    pub(in crate::verify) const TOP: Interval = Interval { lo: None, hi: None };

    pub(in crate::verify) fn new(lo: i128, hi: i128) -> Interval {
        Interval { lo: Some(lo), hi: Some(hi) }
    }

    /// True where every number of it is one of `other`; never for an unbounded one.
    pub(super) fn lies_in(self, other: Interval) -> bool {
        let inside = |a: Option<i128>, b: Option<i128>, f: fn(&i128, &i128) -> bool| {
            a.zip(b).is_some_and(|(a, b)| f(&a, &b))
        };
        inside(self.lo, other.lo, i128::ge) && inside(self.hi, other.hi, i128::le)
    }

    pub(super) fn join(self, other: Interval) -> Interval {
        let both = |a: Option<i128>, b: Option<i128>, f: fn(i128, i128) -> i128| Some(f(a?, b?));
        Interval { lo: both(self.lo, other.lo, i128::min), hi: both(self.hi, other.hi, i128::max) }
    }

    pub(super) fn meet(self, other: Interval) -> Interval {
        let either = |a: Option<i128>, b: Option<i128>, f: fn(i128, i128) -> i128| match (a, b) {
            (Some(a), Some(b)) => Some(f(a, b)),
            (a, b) => a.or(b),
        };
        Interval {
            lo: either(self.lo, other.lo, i128::max),
            hi: either(self.hi, other.hi, i128::min),
        }
    }
}

/// Something whose value is not a linear combination of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::verify) enum Symbol {
    /// A value of the kernel.
    Value(ValueId),
    /// A `scalar` parameter.
    Param(ParamId),
    /// Index of the CTA along one axis of the grid.
    Cta(u8),
    /// Place of the CTA in its cluster.
    Cluster(ClusterAxis),
    /// What another element of a tile is.
    Other(ValueId),
    /// What a value was in an earlier round of a loop.
    Earlier(ValueId),
    /// Rounds of the loop with this variable since then.
    Rounds(ValueId),
}

/// `constant + sum of factor * symbol`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(in crate::verify) struct Form {
    pub(in crate::verify) constant: i128,
    pub(in crate::verify) terms: BTreeMap<Symbol, i128>,
}

impl Form {
    pub(in crate::verify) fn constant(constant: i128) -> Form {
        Form { constant, terms: BTreeMap::new() }
    }

    pub(in crate::verify) fn symbol(symbol: Symbol) -> Form {
        Form { constant: 0, terms: BTreeMap::from([(symbol, 1)]) }
    }

    /// `self + factor * other`, or nothing when numbers grow absurd.
    pub(in crate::verify) fn plus(&self, factor: i128, other: &Form) -> Option<Form> {
        let mut sum = self.clone();
        sum.constant = sum.constant.checked_add(factor.checked_mul(other.constant)?)?;
        for (&symbol, &f) in &other.terms {
            let entry = sum.terms.entry(symbol).or_insert(0);
            *entry = entry.checked_add(factor.checked_mul(f)?)?;
            if *entry == 0 {
                sum.terms.remove(&symbol);
            }
        }
        Some(sum)
    }

    /// `self / divisor`, where it divides every part.
    pub(in crate::verify) fn divided(&self, divisor: i128) -> Option<Form> {
        let exact = self.constant % divisor == 0 && self.terms.values().all(|f| f % divisor == 0);
        exact.then(|| Form {
            constant: self.constant / divisor,
            terms: self.terms.iter().map(|(&symbol, f)| (symbol, f / divisor)).collect(),
        })
    }

    /// The value, if no symbol is left.
    pub(in crate::verify) fn as_constant(&self) -> Option<i128> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// The symbol, if the form is one.
    pub(in crate::verify) fn as_symbol(&self) -> Option<Symbol> {
        let mut terms = self.terms.iter();
        match (self.constant, terms.next(), terms.next()) {
            (0, Some((&symbol, 1)), None) => Some(symbol),
            _ => None,
        }
    }

    /// `self = divisor * first + second`, with as much as goes in the first.
    pub(in crate::verify) fn split(&self, divisor: i128) -> (Form, Form) {
        let (mut whole, mut rest) = (Form::default(), Form::default());
        whole.constant = self.constant.div_euclid(divisor);
        rest.constant = self.constant.rem_euclid(divisor);
        for (&symbol, &factor) in &self.terms {
            if factor % divisor == 0 {
                whole.terms.insert(symbol, factor / divisor);
            } else {
                rest.terms.insert(symbol, factor);
            }
        }
        (whole, rest)
    }
}

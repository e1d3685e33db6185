//! The indices that statements handle one after the other: those of a list, and those of all rounds of a loop.

use std::collections::BTreeSet;

use kernel_dsl::source::Span;

use super::super::scalars::{Facts, Form, Knowledge, Symbol};
use crate::kernel::{BarrierId, RoleId, ValueId};

/// How many indices there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) known: Form,
    /// So many more where this is above 0, and none otherwise.
    pub(super) rest: Option<Form>,
}

impl Count {
    /// The number, where it is a constant.
    pub(super) fn as_constant(&self) -> Option<i128> {
        self.rest.is_none().then(|| self.known.as_constant()).flatten()
    }

    /// True where both are one number, as far as forms say.
    pub(super) fn is_same(&self, other: &Count) -> bool {
        let equal = |a: &Form, b: &Form| a.plus(-1, b).is_some_and(|gap| gap == Form::default());
        let rests = match (&self.rest, &other.rest) {
            (Some(a), Some(b)) => equal(a, b),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        rests && equal(&self.known, &other.known)
    }
}

/// A side of a barrier, and the role that is there.
pub(super) type Key = (BarrierId, RoleId, bool);

/// Indices that follow each other.
#[derive(Debug, Clone)]
pub(super) struct Run {
    /// How many groups of the role began before.
    pub(super) order: usize,
    pub(super) key: Key,
    pub(super) start: Form,
    pub(super) count: Count,
    pub(super) span: Span,
    /// The first and the last operation, counted in the role.
    pub(super) ops: (usize, usize),
    /// Slots that are held at once, at most.
    pub(super) held: u32,
}

/// A loop around a list of statements.
pub(super) struct Loop {
    pub(super) var: ValueId,
    pub(super) start: ValueId,
    pub(super) end: ValueId,
    pub(super) step: u32,
    /// What its body defines.
    pub(super) own: BTreeSet<ValueId>,
}

impl Run {
    /// The run with that which follows it; nothing where that one does not start where it ends.
    pub(super) fn then(&self, next: &Run) -> Option<Run> {
        if self.count.rest.is_some() {
            return None;
        }
        let end = self.start.plus(1, &self.count.known)?;
        let gap = next.start.plus(-1, &end)?;
        if gap != Form::default() {
            return None;
        }
        let known = self.count.known.plus(1, &next.count.known)?;
        Some(Run {
            count: Count { known, rest: next.count.rest.clone() },
            span: next.span,
            ops: (self.ops.0, self.ops.1.max(next.ops.1)),
            ..self.clone()
        })
    }

    /// The indices of all rounds: those of a round follow those of the one before.
    pub(super) fn of_loop(
        self,
        known: &Knowledge<'_>,
        facts: &Facts,
        around: &Loop,
    ) -> Option<Run> {
        let each = self.count.as_constant().filter(|each| *each > 0)?;
        let var = Symbol::Value(around.var);
        let factor = self.start.terms.get(&var).copied()?;
        let step = i128::from(around.step);
        if factor.checked_mul(step)? != each {
            return None;
        }
        let offset = self.start.plus(-factor, &Form::symbol(var))?;
        let is_own =
            |symbol: &Symbol| matches!(symbol, Symbol::Value(value) if around.own.contains(value));
        if offset.terms.keys().any(is_own) {
            return None;
        }
        let (first, end) = (known.form(around.start), known.form(around.end));
        let length = end.plus(-1, &first)?;
        let rounds = match length.as_constant() {
            Some(length) => {
                let whole = length.max(0).unsigned_abs().div_ceil(step.unsigned_abs());
                Form::constant(whole.try_into().ok()?)
            }
            None => length.divided(step)?,
        };
        let total = Form::default().plus(each, &rounds)?;
        let count = if known.proves(&rounds, facts) {
            Count { known: total, rest: None }
        } else {
            Count { known: Form::constant(0), rest: Some(total) }
        };
        Some(Run { start: offset.plus(factor, &first)?, count, ..self })
    }
}

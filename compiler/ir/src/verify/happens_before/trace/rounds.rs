//! What values and conditions are in a round, and how many rounds are followed.

use super::{Condition, MAX_FULL, Thread, Trace};
use crate::kernel::{Op, PipeOp, Stmt, StmtKind, ValueId, each_pipe_op, first_of_pair};
use crate::verify::scalars::{Form, Interval, Symbol};

/// Quotients and remainders of each other, at most.
const MAX_DIGITS: u32 = 4;

/// Puts in what variables of loops are in this round.
fn replaced(thread: &Thread, form: &Form) -> Form {
    let mut form = form.clone();
    for (symbol, value) in thread.values.iter().rev() {
        let Some(factor) = form.terms.remove(symbol) else { continue };
        match form.plus(factor, value) {
            Some(sum) => form = sum,
            None => return Form::symbol(*symbol),
        }
    }
    form
}

/// True for what is the same in all rounds and roles of a CTA.
fn is_fixed(form: &Form) -> bool {
    let is_fixed =
        |symbol: &Symbol| matches!(symbol, Symbol::Param(_) | Symbol::Cta(_) | Symbol::Cluster(_));
    form.terms.keys().all(is_fixed)
}

impl Trace<'_> {
    pub(super) fn form(&self, thread: &Thread, value: ValueId) -> Form {
        let form = self.known.form(value);
        self.substituted(thread, &form)
    }

    pub(super) fn substituted(&self, thread: &Thread, form: &Form) -> Form {
        self.with_digits(thread, replaced(thread, form), MAX_DIGITS)
    }

    /// Puts in quotients and remainders of numbers that the round says.
    fn with_digits(&self, thread: &Thread, form: Form, depth: u32) -> Form {
        let Some(depth) = depth.checked_sub(1) else { return form };
        let mut sum = form.clone();
        for (symbol, &factor) in &form.terms {
            let Some(digit) = self.digit(thread, *symbol, depth) else { continue };
            let mut rest = sum.clone();
            rest.terms.remove(symbol);
            if let Some(next) = rest.plus(factor, &digit) {
                sum = next;
            }
        }
        sum
    }

    /// Of a number of at least 0, `divisor * whole + rest`.
    fn digit(&self, thread: &Thread, symbol: Symbol, depth: u32) -> Option<Form> {
        let Symbol::Value(value) = symbol else { return None };
        let (of, divisor, is_quotient) = self.known.digit(symbol)?;
        let number = self.with_digits(thread, replaced(thread, of), depth);
        if number == *of {
            return None;
        }
        let (whole, rest) = number.split(divisor);
        let Interval { lo: Some(lo), hi: Some(hi) } = self.known.interval(&rest) else {
            return None;
        };
        if lo >= 0 && hi < divisor {
            return Some(if is_quotient { whole } else { rest });
        }
        // The digit of the rest is the same in all rounds; it stands for itself, within the bounds of the digit.
        let Interval { lo: least, hi: most } = self.known.interval(&Form::symbol(symbol));
        let is_within = !is_quotient || (least? <= lo / divisor && hi / divisor <= most?);
        if lo < 0 || rest.constant != 0 || !is_fixed(&rest) || !is_within {
            return None;
        }
        let own = Form::symbol(Symbol::Earlier(value));
        if is_quotient { whole.plus(1, &own) } else { Some(own) }
    }

    /// What a choice compares, where that is the same in all rounds and roles of a CTA.
    pub(super) fn condition(
        &self,
        thread: &Thread,
        cond: ValueId,
        group: (u32, u32, u32),
    ) -> Option<Condition> {
        if self.is_joint {
            return None;
        }
        let Op::Compare { op, a, b } = self.ops.get(&cond)? else { return None };
        let (a, b) = (self.form(thread, *a), self.form(thread, *b));
        (is_fixed(&a) && is_fixed(&b)).then_some((group, *op as u8, a, b))
    }

    /// Rounds of a loop that is not followed to its end. One that counts the rounds of an inner loop elsewhere is
    /// followed as far.
    pub(super) fn rounds_to_follow(&self, body: &[Stmt]) -> u32 {
        if self.inner_rounds == 1 || !has_barriers(body) {
            return self.most_rounds;
        }
        let times = self.inner_rounds.div_ceil(self.inner(body).max(1));
        self.most_rounds.saturating_mul(times).min(MAX_FULL.max(self.most_rounds))
    }

    /// Rounds of inner loops in one round of a loop whose end is not known, at most.
    pub(super) fn most_inner(&self, stmts: &[Stmt]) -> u32 {
        let of = |stmt: &Stmt| match &stmt.kind {
            StmtKind::For { body, .. } if self.trips(&stmt.kind).is_none() => self.inner(body),
            kind => kind.bodies().into_iter().map(|body| self.most_inner(body)).max().unwrap_or(1),
        };
        stmts.iter().map(of).max().unwrap_or(1)
    }

    fn inner(&self, stmts: &[Stmt]) -> u32 {
        let of = |stmt: &Stmt| {
            let bodies = stmt.kind.bodies();
            let inner = bodies.into_iter().map(|body| self.inner(body)).max().unwrap_or(1);
            let bodies = stmt.kind.bodies();
            match self.trips(&stmt.kind) {
                Some(trips) if bodies.into_iter().any(has_barriers) => inner.saturating_mul(trips),
                _ => inner,
            }
        };
        stmts.iter().map(of).max().unwrap_or(1)
    }

    /// Rounds of a loop that is followed to its end.
    fn trips(&self, kind: &StmtKind) -> Option<u32> {
        let StmtKind::For { start, end, step, tickets: None, .. } = kind else { return None };
        let length = self.known.form(*end).plus(-1, &self.known.form(*start))?.as_constant()?;
        let trips = u32::try_from(length.max(0)).ok()?.div_ceil((*step).max(1));
        (1..=MAX_FULL).contains(&trips).then_some(trips)
    }
}

/// True where what one CTA does is done to the memory of another one: what it compares then says nothing there.
pub(super) fn is_joint(stmts: &[Stmt]) -> bool {
    let mut is_joint = first_of_pair(stmts).is_some();
    each_pipe_op(stmts, &mut |op, _| {
        is_joint |= matches!(
            op,
            PipeOp::Send { .. }
                | PipeOp::Copy { everywhere: true, .. }
                | PipeOp::Release { everywhere: true, .. }
                | PipeOp::Commit { everywhere: true, .. }
        );
    });
    is_joint
}

fn has_barriers(stmts: &[Stmt]) -> bool {
    let mut has = false;
    each_pipe_op(stmts, &mut |_, _| has = true);
    has
}

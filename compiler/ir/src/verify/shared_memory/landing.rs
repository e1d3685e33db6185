//! Where copies out of shared memory write, and which of them may write the same elements.
//!
//! Nothing orders the writes of two copies under way, so they are to write other elements. Unlike a slot of a ring, a place
//! in a buffer is never used again by itself: what older rounds of a loop have written lies on one side of a bound.

use std::collections::BTreeSet;

use super::super::scalars::{Form, Knowledge, Symbol};
use super::overlap::Judge;
use crate::kernel::{AxisIndex, ParamId, TileAccess, ValueId, ViewAxis};

/// Positions along an axis from `lo` on and below `hi`; without bound where nothing is known.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Run {
    lo: Option<Form>,
    hi: Option<Form>,
}

/// What a copy writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Landing {
    pub(super) param: ParamId,
    /// The axes of the view that it is seen through, and the positions along each.
    axes: Vec<(ViewAxis, Run)>,
}

/// A back edge, as the forms of places see it.
#[derive(Clone, Copy)]
pub(super) struct BackEdge<'a> {
    pub(super) known: &'a Knowledge<'a>,
    pub(super) var: ValueId,
    pub(super) step: u32,
    /// Rounds that are told apart.
    pub(super) most: u32,
    /// What the body of the loop defines.
    pub(super) own: &'a BTreeSet<ValueId>,
}

impl BackEdge<'_> {
    /// A form in the words of the next round; of any round before where it is old.
    pub(super) fn renamed(&self, form: &Form, old: bool) -> Option<Form> {
        match form.terms.get(&Symbol::Value(self.var)) {
            _ if self.is_inside(form) => None,
            None => Some(form.clone()),
            Some(_) if old => None,
            Some(&factor) => form.plus(-factor, &Form::constant(i128::from(self.step))),
        }
    }

    /// The same of a position: where it is old, so many rounds before as there may be.
    pub(super) fn moved(&self, form: &Form, old: bool) -> Option<Form> {
        let rounds = Symbol::Rounds(self.var);
        match form.terms.get(&Symbol::Value(self.var)) {
            Some(_) if self.is_inside(form) => None,
            Some(_) if form.terms.contains_key(&rounds) => Some(form.clone()),
            Some(&factor) if old => {
                let back = factor.checked_mul(i128::from(self.step))?;
                form.plus(-back, &Form::symbol(rounds))
            }
            Some(_) | None => self.renamed(form, old),
        }
    }

    /// True for a form that names what the body defines.
    fn is_inside(&self, form: &Form) -> bool {
        form.terms.keys().any(|symbol| match symbol {
            Symbol::Value(value) | Symbol::Rounds(value) => self.own.contains(value),
            Symbol::Other(_)
            | Symbol::Earlier(_)
            | Symbol::Param(_)
            | Symbol::Cta(_)
            | Symbol::Cluster(_) => false,
        })
    }

    pub(super) fn is_named(&self, form: &Form) -> bool {
        form.terms.contains_key(&Symbol::Value(self.var))
    }
}

impl Landing {
    /// True where a bound names the variable of the loop.
    pub(super) fn names(&self, edge: BackEdge<'_>) -> bool {
        let bounds = self.axes.iter().flat_map(|(_, run)| run.lo.iter().chain(&run.hi));
        bounds.into_iter().any(|bound| edge.is_named(bound))
    }

    pub(super) fn new(
        param: ParamId,
        dest: &TileAccess,
        form: impl Fn(ValueId) -> Form,
    ) -> Landing {
        let run = |index: &AxisIndex| {
            let (start, len) = match index {
                AxisIndex::At(at) => (Some(form(*at)), 1),
                AxisIndex::Range { start, len, until: _ } => (Some(form(*start)), *len),
                AxisIndex::Gather(_) | AxisIndex::Along(_) => (None, 0),
                AxisIndex::New => return None,
            };
            let hi = start.as_ref().and_then(|s| s.plus(i128::from(len), &Form::constant(1)));
            Some(Run { lo: start, hi })
        };
        let runs = dest.index.iter().filter_map(run);
        Landing { param, axes: dest.axes.iter().cloned().zip(runs).collect() }
    }

    /// True unless the elements are provably others.
    pub(super) fn may_meet(&self, other: &Landing, judge: &Judge<'_>) -> bool {
        let behind = |hi: &Option<Form>, lo: &Option<Form>| {
            hi.as_ref().zip(lo.as_ref()).is_some_and(|(hi, lo)| judge.is_at_most(hi, lo))
        };
        let apart = |a: &Run, b: &Run| behind(&a.hi, &b.lo) || behind(&b.hi, &a.lo);
        self.param == other.param
            && !self.axes.iter().any(|(axis, run)| {
                let same = other.axes.iter().filter(|(other, _)| other == axis);
                same.into_iter().any(|(_, other)| apart(run, other))
            })
    }

    /// Says in the words of the next round what was said in those of this one; `old` stands for all rounds before too.
    pub(super) fn next_round(&mut self, edge: BackEdge<'_>, old: bool) {
        let var = Symbol::Value(edge.var);
        let bound = |form: &Form, up: bool| {
            let form = edge.known.bounded(form, edge.own, up)?;
            match form.terms.get(&var) {
                None => Some(form),
                // In rounds before it lay further down, or further up.
                Some(&factor) if old && (factor > 0) == up => Some(form),
                Some(_) if old => None,
                Some(&factor) => form.plus(-factor, &Form::constant(i128::from(edge.step))),
            }
        };
        for (_, run) in &mut self.axes {
            run.lo = run.lo.as_ref().and_then(|lo| bound(lo, false));
            run.hi = run.hi.as_ref().and_then(|hi| bound(hi, true));
        }
    }
}

//! Whether two accesses by two CTAs of a cluster can meet.

use std::collections::BTreeSet;

use kernel_dsl::source::Span;

use super::super::scalars::{Facts, Form, Knowledge, Symbol};
use super::varying::Varying;
use crate::kernel::{AxisIndex, Kernel, SmemId, TileAccess, ValueId, ViewAxis};

/// Whose shared memory an access touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    Own,
    /// That of a CTA whose rank is known.
    Rank(i128),
    /// That of the CTA so many ranks on, round and round.
    Onwards(i128),
    /// That of any CTA.
    Any,
}

impl Whose {
    /// True where two CTAs that say the same, or one each, mean two others.
    fn differs(self, other: Whose) -> bool {
        match (self, other) {
            (Whose::Own, Whose::Own) => true,
            (Whose::Rank(a), Whose::Rank(b)) => a != b,
            // Two CTAs are never the same number of ranks before one.
            (Whose::Onwards(a), Whose::Onwards(b)) => a == b,
            (
                Whose::Own | Whose::Rank(_) | Whose::Onwards(_) | Whose::Any,
                Whose::Own | Whose::Rank(_) | Whose::Onwards(_) | Whose::Any,
            ) => false,
        }
    }
}

/// An access of shared memory, in the words of the CTA that does it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) tile: SmemId,
    pub(super) writes: bool,
    pub(super) whose: Whose,
    /// The rank of the CTA that does it, where no other one does.
    by: Option<i128>,
    pub(super) span: Span,
    /// Which slot, before it is taken modulo the ring; unknown without.
    slot: Option<Form>,
    /// The view that it is seen through.
    axes: Vec<ViewAxis>,
    /// First position and number of positions along each axis of the view; unknown without.
    sides: Vec<Option<(Form, u32)>>,
    /// Back edges that it has crossed.
    age: u32,
}

impl Access {
    /// The access that one statement does.
    pub(super) fn of(
        access: &TileAccess,
        writes: bool,
        whose: Whose,
        by: Option<i128>,
        form: impl Fn(ValueId) -> Form,
    ) -> Option<Access> {
        let (tile, slot) = access.storage.tile()?;
        let indices = access.index.iter().filter(|index| !matches!(index, AxisIndex::New));
        let sides = indices.map(|index| match index {
            AxisIndex::At(at) => Some((form(*at), 1)),
            AxisIndex::Range { start, len, until: _ } => Some((form(*start), *len)),
            AxisIndex::Gather(_) | AxisIndex::Along(_) | AxisIndex::New => None,
        });
        Some(Access {
            tile,
            writes,
            whose: match (whose, by) {
                (Whose::Own, Some(rank)) => Whose::Rank(rank),
                (whose, _) => whose,
            },
            by,
            span: access.span,
            slot: Some(slot.map_or(Form::constant(0), &form)),
            axes: access.axes.clone(),
            sides: sides.collect(),
            age: 0,
        })
    }

    fn rename(&mut self, renamed: impl Fn(&Form) -> Option<Form>) {
        self.slot = self.slot.as_ref().and_then(&renamed);
        for side in &mut self.sides {
            *side = side.take().and_then(|(start, len)| Some((renamed(&start)?, len)));
        }
    }

    /// Says in the words of the next round what was said in those of this one.
    pub(super) fn next_round(
        &mut self,
        var: ValueId,
        step: u32,
        own: &BTreeSet<ValueId>,
        most: u32,
    ) {
        let old = self.age >= most;
        self.age = (self.age + 1).min(most);
        self.rename(|form| {
            if own.iter().any(|value| form.terms.contains_key(&Symbol::Value(*value))) {
                return None;
            }
            match form.terms.get(&Symbol::Value(var)) {
                None => Some(form.clone()),
                Some(_) if old => None,
                Some(&factor) => form.plus(-factor, &Form::constant(i128::from(step))),
            }
        });
    }

    /// Behind the loop its values mean nothing.
    pub(super) fn leave(&mut self, var: ValueId, own: &BTreeSet<ValueId>) {
        self.age = 0;
        self.rename(|form| {
            let mut values = own.iter().chain([&var]);
            let inner = values.any(|value| form.terms.contains_key(&Symbol::Value(*value)));
            (!inner).then(|| form.clone())
        });
    }
}

/// True unless two CTAs that do this provably touch others' elements, or none writes.
pub(super) fn meet(
    kernel: &Kernel,
    known: &Knowledge<'_>,
    varying: &Varying,
    a: &Access,
    b: &Access,
) -> bool {
    let by_one = a.by.is_some() && a.by == b.by;
    if a.tile != b.tile || !(a.writes || b.writes) || by_one || a.whose.differs(b.whose) {
        return false;
    }
    let pair = Pair { kernel, known, varying };
    let other_places = a.axes == b.axes && pair.other_places(a, b);
    !(other_places || pair.other_slots(a, b))
}

struct Pair<'a> {
    kernel: &'a Kernel,
    known: &'a Knowledge<'a>,
    varying: &'a Varying,
}

impl Pair<'_> {
    /// True for a form that every CTA of a cluster agrees on.
    fn is_shared(&self, form: &Form) -> bool {
        form.terms.keys().all(|symbol| !self.varying.has_symbol(*symbol))
    }

    fn other_slots(&self, a: &Access, b: &Access) -> bool {
        let slots = i128::from(self.kernel.smem[a.tile].slots);
        let (Some(a), Some(b)) = (&a.slot, &b.slot) else { return false };
        if !self.is_shared(a) || !self.is_shared(b) {
            return false;
        }
        let distance = a.plus(-1, b).and_then(|distance| distance.as_constant());
        distance.is_some_and(|distance| distance.rem_euclid(slots) != 0)
    }

    fn other_places(&self, a: &Access, b: &Access) -> bool {
        a.sides.iter().zip(&b.sides).any(|(a, b)| match (a, b) {
            (Some((a, m)), Some((b, n))) => {
                self.apart(a, *m, b) || self.apart(b, *n, a) || self.by_cta(a, b, *m.max(n))
            }
            (_, _) => false,
        })
    }

    /// True where `b` starts behind the end of `a`, in whichever CTAs.
    fn apart(&self, a: &Form, len: u32, b: &Form) -> bool {
        if !self.is_shared(a) || !self.is_shared(b) {
            return false;
        }
        let gap = b.plus(-1, a).and_then(|gap| gap.plus(-i128::from(len), &Form::constant(1)));
        gap.is_some_and(|gap| self.known.proves(&gap, &Facts::new()))
    }

    /// True where both start at the same multiple of the CTA's own number plus the same rest, and the multiples lie
    /// as far apart as the accesses are long: two CTAs then touch two places.
    fn by_cta(&self, a: &Form, b: &Form, len: u32) -> bool {
        if a != b {
            return false;
        }
        let mut own = a.terms.iter().filter(|(symbol, _)| self.varying.has_symbol(**symbol));
        let (Some((symbol, factor)), None) = (own.next(), own.next()) else { return false };
        self.varying.tells_apart(*symbol) && factor.unsigned_abs() >= u128::from(len)
    }
}

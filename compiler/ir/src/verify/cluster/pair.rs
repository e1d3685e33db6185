//! Whether two accesses by two CTAs of a cluster can meet.

use std::collections::BTreeSet;

use kernel_dsl::source::Span;

use super::super::scalars::{Facts, Form, Knowledge, Symbol};
use super::varying::Varying;
use crate::kernel::{AxisIndex, ClusterAxis, Kernel, SmemId, TileAccess, ValueId, ViewAxis};

/// Whose shared memory an access touches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Whose {
    Own,
    /// By rank of the CTA that touches, that of which it touches.
    Ranks(Vec<i128>),
    /// That of any CTA.
    Any,
}

impl Whose {
    /// The one that a CTA touches.
    fn of(&self, rank: usize) -> Option<i128> {
        match self {
            Whose::Own => i128::try_from(rank).ok(),
            Whose::Ranks(ranks) => ranks.get(rank).copied(),
            Whose::Any => None,
        }
    }
}

/// True where two CTAs, one by each of two accesses, touch two others, or by places that differ with their ranks.
fn touch_others(kernel: &Kernel, varying: &Varying, a: &Access, b: &Access) -> bool {
    let is_same_view = a.axes == b.axes;
    let elsewhere = |one: usize, other: usize| {
        is_same_view
            && a.sides.iter().zip(&b.sides).any(|(a, b)| match (a, b) {
                (Some((a, m)), Some((b, n))) => {
                    let gap = between_ranks(kernel, varying, (a, one), (b, other));
                    gap.is_some_and(|gap| gap <= -i128::from(*n) || gap >= i128::from(*m))
                }
                (_, _) => false,
            })
    };
    let size = kernel.launch.cluster_size() as usize;
    let ranks = |by: Option<i128>| {
        (0..size).filter(move |&rank| by.is_none_or(|by| i128::try_from(rank) == Ok(by)))
    };
    ranks(a.by).all(|one| {
        ranks(b.by).filter(|&other| other != one).all(|other| {
            let touched = a.whose.of(one).zip(b.whose.of(other));
            touched.is_some_and(|(first, second)| first != second) || elsewhere(one, other)
        })
    })
}

/// How far the start of one access lies behind that of another, in the CTAs with two ranks, where these alone decide.
fn between_ranks(
    kernel: &Kernel,
    varying: &Varying,
    (a, one): (&Form, usize),
    (b, other): (&Form, usize),
) -> Option<i128> {
    let [x, y, _] = kernel.launch.cluster.map(|extent| extent.max(1) as usize);
    let place = |axis: u8, rank: usize| {
        i128::try_from(match axis {
            0 => rank % x,
            1 => rank / x % y,
            _ => rank / x / y,
        })
    };
    let number = |symbol: Symbol, rank: usize| match symbol {
        Symbol::Cta(axis) | Symbol::Cluster(ClusterAxis::Along(axis)) => place(axis, rank).ok(),
        Symbol::Cluster(ClusterAxis::Rank) => i128::try_from(rank).ok(),
        Symbol::Value(_)
        | Symbol::Param(_)
        | Symbol::Other(_)
        | Symbol::Earlier(_)
        | Symbol::Rounds(_) => None,
    };
    // What CTAs share falls out, and so does where the cluster starts in the grid.
    let mut gap = b.constant.checked_sub(a.constant)?;
    for symbol in a.terms.keys().chain(b.terms.keys().filter(|s| !a.terms.contains_key(*s))) {
        let [m, n] = [a, b].map(|form| form.terms.get(symbol).copied().unwrap_or(0));
        let is_of_grid = matches!(symbol, Symbol::Cta(_));
        if !varying.has_symbol(*symbol) || is_of_grid {
            if m != n {
                return None;
            }
            if !varying.has_symbol(*symbol) {
                continue;
            }
        }
        let step = n.checked_mul(number(*symbol, other)?)?;
        gap = gap.checked_add(step.checked_sub(m.checked_mul(number(*symbol, one)?)?)?)?;
    }
    Some(gap)
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
        known: &Knowledge<'_>,
    ) -> Option<Access> {
        let form = |value| known.form(value);
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
            whose,
            by,
            span: access.span,
            slot: Some(known.on_ring(slot.map_or(Form::constant(0), form), tile)),
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
    if a.tile != b.tile || !(a.writes || b.writes) || touch_others(kernel, varying, a, b) {
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

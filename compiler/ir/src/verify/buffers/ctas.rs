//! Whether other CTAs may touch an element.

use std::collections::BTreeMap;

use super::super::scalars::{Facts, Form, Interval, Knowledge, Symbol};
use super::place::{Place, Reach};
use crate::kernel::{AxisIndex, Kernel, Op, ParamId, ValueId, ViewAxis};

/// Axes of the grid.
type GridAxes = [bool; 3];

/// Tickets, each with its factor and the number of values that it may have.
type Rounds = BTreeMap<ValueId, (i128, i128)>;

/// The positions of an access along an axis of its view, as a function of the CTA.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Owner {
    /// `sum of factor * cta + sum of factor * ticket + sum of factor * scalar + something in lo..=hi`.
    Affine { ctas: [i128; 3], rounds: Rounds, scalars: BTreeMap<ParamId, i128>, lo: i128, hi: i128 },
    /// A value that is another one in each CTA, along these axes of the grid.
    Slot { value: ValueId, constant: i128, grid: GridAxes },
    /// Anything.
    Unknown,
}

impl Owner {
    /// The least and the greatest position of all CTAs and rounds, beside what scalars add.
    fn range(&self, grid: [u32; 3]) -> Option<(i128, i128, &BTreeMap<ParamId, i128>)> {
        let Owner::Affine { ctas, rounds, scalars, lo, hi } = self else { return None };
        let of_ctas = ctas.iter().zip(grid).map(|(&factor, extent)| (factor, i128::from(extent)));
        let (mut lo, mut hi) = (*lo, *hi);
        for (factor, count) in of_ctas.chain(rounds.values().copied()) {
            let last = factor.checked_mul(count - 1)?;
            lo = lo.checked_add(last.min(0))?;
            hi = hi.checked_add(last.max(0))?;
        }
        Some((lo, hi, scalars))
    }

    /// The positions on any rank: what scalars add is something else on each.
    fn on_any_rank(self, known: &Knowledge<'_>) -> Owner {
        let Owner::Affine { ctas, rounds, scalars, lo, hi } = self else { return self };
        let terms = scalars.into_iter().map(|(param, factor)| (Symbol::Param(param), factor));
        let added = known.interval(&Form { constant: 0, terms: terms.collect() });
        let sum = |a: i128, b: Option<i128>| b.and_then(|b| a.checked_add(b));
        match (sum(lo, added.lo), sum(hi, added.hi)) {
            (Some(lo), Some(hi)) => {
                Owner::Affine { ctas, rounds, scalars: BTreeMap::new(), lo, hi }
            }
            (_, _) => Owner::Unknown,
        }
    }
}

/// An access, as far as it tells CTAs apart; one of memory of ranks, as far as it does on any rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owners {
    /// One an axis of the view.
    axes: Vec<(ViewAxis, Owner)>,
    /// The only CTA along an axis of the grid that comes here.
    only: [Option<i128>; 3],
}

impl Owners {
    pub(super) fn new(
        kernel: &Kernel,
        known: &Knowledge<'_>,
        loads: &BTreeMap<ValueId, &Op>,
        tickets: &[ValueId],
        place: &Place,
    ) -> Owners {
        // What one rank stores another one reads: scalars and data of each are its own.
        let of_ranks = kernel.params[place.param].is_inbox();
        let on_rank = |owner: Owner| if of_ranks { owner.on_any_rank(known) } else { owner };
        let owner = |reach: &Reach| match reach {
            Reach::Run { start, len, .. } => {
                let may_be_slot = *len == 1 && !of_ranks;
                let slot = may_be_slot.then(|| slot(kernel, known, loads, start, &place.facts));
                let slot = slot.flatten();
                slot.unwrap_or_else(|| on_rank(affine(known, tickets, start, *len)))
            }
            Reach::Each(form) => on_rank(affine(known, tickets, form, 1)),
        };
        let axes = place.axes.iter().zip(&place.sides);
        let only = |axis: u8| {
            let cta = Form::symbol(Symbol::Cta(axis));
            let Interval { lo, hi } = known.refined(&cta, &place.facts);
            lo.filter(|_| lo == hi)
        };
        Owners {
            axes: axes.map(|(axis, side)| (axis.clone(), owner(&side.reach))).collect(),
            only: [only(0), only(1), only(2)],
        }
    }

    /// True where no two rounds of a work list come to one element.
    pub(super) fn is_of_round(&self, grid: [u32; 3]) -> bool {
        self.axes.iter().any(|(_, owner)| match owner {
            Owner::Affine { rounds, .. } => {
                !rounds.is_empty() && separated(owner, owner, grid) == [true; 3]
            }
            Owner::Slot { .. } | Owner::Unknown => false,
        })
    }

    /// True where the two have no element in common, whoever comes.
    pub(super) fn is_apart(&self, other: &Owners, grid: [u32; 3]) -> bool {
        self.axes.iter().any(|(axis, mine)| {
            let mut same = other.axes.iter().filter(|(theirs, _)| theirs == axis);
            same.any(|(_, theirs)| match (mine.range(grid), theirs.range(grid)) {
                (Some((lo, hi, scalars)), Some((low, high, others))) => {
                    scalars == others && (hi < low || high < lo)
                }
                (_, _) => false,
            })
        })
    }

    /// True where no other CTA touches by `other` what a CTA touches by `self`; of `between` an extent is 1 where CTAs
    /// that differ along that axis alone may touch the same.
    pub(super) fn is_private(&self, other: &Owners, grid: [u32; 3], between: [u32; 3]) -> bool {
        let mut apart = [0, 1, 2].map(|axis| {
            between[axis] <= 1 || (self.only[axis].is_some() && self.only[axis] == other.only[axis])
        });
        for (axis, mine) in &self.axes {
            for (_, theirs) in other.axes.iter().filter(|(theirs, _)| theirs == axis) {
                let found = separated(mine, theirs, grid);
                apart = [0, 1, 2].map(|axis| apart[axis] || found[axis]);
            }
        }
        apart == [true; 3]
    }
}

/// True where no two CTAs of the grid have the same positions.
pub(in crate::verify) fn tell_apart(known: &Knowledge<'_>, forms: &[Form], grid: [u32; 3]) -> bool {
    let mut apart = grid.map(|extent| extent <= 1);
    for form in forms {
        let owner = affine(known, &[], form, 1);
        let found = separated(&owner, &owner, grid);
        apart = [0, 1, 2].map(|axis| apart[axis] || found[axis]);
    }
    apart == [true; 3]
}

/// The axes of the grid along which different CTAs have different positions.
fn separated(a: &Owner, b: &Owner, grid: [u32; 3]) -> GridAxes {
    match (a, b) {
        (
            Owner::Affine { ctas, rounds, scalars, lo, hi },
            Owner::Affine { ctas: other, rounds: those, scalars: others, lo: low, hi: high },
        ) if ctas == other && rounds == those && scalars == others => {
            // Whatever the CTA is, one stays below the other.
            if ctas.iter().all(|&factor| factor == 0)
                && rounds.is_empty()
                && (hi < low || high < lo)
            {
                return [true; 3];
            }
            // A number in mixed radix: each digit is at least as wide as all below it.
            let of_ctas = (0..3).filter(|&axis| grid[axis] > 1 && ctas[axis] != 0);
            let of_ctas = of_ctas.map(|axis| (ctas[axis], i128::from(grid[axis]), Some(axis)));
            let of_rounds = rounds.values().map(|&(factor, count)| (factor, count, None));
            let mut digits: Vec<(i128, i128, Option<usize>)> = of_ctas.chain(of_rounds).collect();
            digits.sort_by_key(|&(factor, ..)| factor.unsigned_abs());
            let mut width = hi.max(high).checked_sub(*lo.min(low)).and_then(|w| w.checked_add(1));
            let mut found = [false; 3];
            for (factor, count, axis) in digits {
                let (Some(below), Some(step)) = (width, factor.checked_abs()) else {
                    return [false; 3];
                };
                if step < below {
                    return [false; 3];
                }
                let rest = step.checked_mul(count - 1);
                width = rest.and_then(|rest| rest.checked_add(below));
                match axis {
                    Some(axis) => found[axis] = true,
                    // A ticket is in the hands of one CTA.
                    None => found = [true; 3],
                }
            }
            found
        }
        (Owner::Slot { grid, .. }, Owner::Slot { .. }) if a == b => *grid,
        (Owner::Affine { .. } | Owner::Slot { .. } | Owner::Unknown, _) => [false; 3],
    }
}

fn affine(known: &Knowledge<'_>, tickets: &[ValueId], start: &Form, len: u32) -> Owner {
    let mut ctas = [0; 3];
    let mut rounds = Rounds::new();
    let mut scalars = BTreeMap::new();
    let mut rest = Form::constant(start.constant);
    for (&symbol, &factor) in &start.terms {
        match symbol {
            Symbol::Cta(axis) => ctas[usize::from(axis)] = factor,
            Symbol::Param(param) => {
                scalars.insert(param, factor);
            }
            Symbol::Value(value) if tickets.contains(&value) => {
                let Interval { lo: Some(lo), hi: Some(hi) } = known.interval(&Form::symbol(symbol))
                else {
                    return Owner::Unknown;
                };
                rounds.insert(value, (factor, (hi - lo).saturating_add(1).max(1)));
            }
            Symbol::Value(_)
            | Symbol::Cluster(_)
            | Symbol::Other(_)
            | Symbol::Earlier(_)
            | Symbol::Rounds(_) => {
                rest.terms.insert(symbol, factor);
            }
        }
    }
    let Interval { lo: Some(lo), hi: Some(hi) } = known.interval(&rest) else {
        return Owner::Unknown;
    };
    match hi.checked_add(i128::from(len.max(1)) - 1) {
        Some(hi) => Owner::Affine { ctas, rounds, scalars, lo, hi },
        None => Owner::Unknown,
    }
}

/// A position that is loaded from data which a contract calls distinct, each CTA another element.
fn slot(
    kernel: &Kernel,
    known: &Knowledge<'_>,
    loads: &BTreeMap<ValueId, &Op>,
    form: &Form,
    facts: &Facts,
) -> Option<Owner> {
    let terms: Vec<_> = form.terms.iter().collect();
    let &[(&Symbol::Value(value), &1)] = terms.as_slice() else { return None };
    let Op::Load { access, .. } = loads.get(&value)? else { return None };
    let distinct = kernel.params[access.storage.param()?].kept_contract()?.distinct?;
    if let Some(except) = distinct.except {
        let Interval { lo, hi } = known.refined(&Form::symbol(Symbol::Value(value)), facts);
        let except = i128::from(except);
        if !(lo.is_some_and(|lo| lo > except) || hi.is_some_and(|hi| hi < except)) {
            return None;
        }
    }
    let mut grid = [false; 3];
    for index in &access.index {
        let AxisIndex::At(at) = index else { return None };
        let owner = affine(known, &[], &known.form(*at), 1);
        let found = separated(&owner, &owner, kernel.launch.grid);
        grid = [0, 1, 2].map(|axis| grid[axis] || found[axis]);
    }
    Some(Owner::Slot { value, constant: form.constant, grid })
}

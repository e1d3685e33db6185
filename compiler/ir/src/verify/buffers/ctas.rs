//! Whether other CTAs may touch an element.

use std::collections::BTreeMap;

use super::super::scalars::{Facts, Form, Interval, Knowledge, Symbol};
use super::place::{Place, Reach};
use super::words::CtaDigit;
use crate::kernel::{AxisIndex, ClusterAxis, Kernel, Op, ParamId, ValueId, ViewAxis};

/// Axes of the grid.
type GridAxes = [bool; 3];

/// Tickets, each with its factor and the number of values that it may have.
type Rounds = BTreeMap<ValueId, (i128, i128)>;

/// Parts of what lies in `lo..=hi`, each a factor with the number of values that it may have, and the bounds of the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Digits {
    of: Vec<(i128, i128)>,
    lo: i128,
    hi: i128,
}

/// The positions of an access along an axis of its view, as a function of the CTA.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Owner {
    /// `sum of factor * cta + sum of factor * ticket + sum of factor * scalar + something in lo..=hi`.
    Affine {
        ctas: [i128; 3],
        rounds: Rounds,
        scalars: BTreeMap<ParamId, i128>,
        lo: i128,
        hi: i128,
        digits: Digits,
    },
    /// A value that is another one in each CTA, along these axes of the grid.
    Slot { value: ValueId, constant: i128, grid: GridAxes },
    /// Anything.
    Unknown,
}

impl Owner {
    /// The least and the greatest position of all CTAs and rounds, beside what scalars add.
    fn range(&self, grid: [u32; 3]) -> Option<(i128, i128, &BTreeMap<ParamId, i128>)> {
        let Owner::Affine { ctas, rounds, scalars, lo, hi, .. } = self else { return None };
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
        let Owner::Affine { ctas, rounds, scalars, lo, hi, .. } = self else { return self };
        let terms = scalars.into_iter().map(|(param, factor)| (Symbol::Param(param), factor));
        let added = known.interval(&Form { constant: 0, terms: terms.collect() });
        let sum = |a: i128, b: Option<i128>| b.and_then(|b| a.checked_add(b));
        match (sum(lo, added.lo), sum(hi, added.hi)) {
            (Some(lo), Some(hi)) => {
                let digits = Digits { of: Vec::new(), lo, hi };
                Owner::Affine { ctas, rounds, scalars: BTreeMap::new(), lo, hi, digits }
            }
            (_, _) => Owner::Unknown,
        }
    }
}

/// An access, as far as it tells CTAs apart; one of memory of ranks, as far as it does on any rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owners {
    /// One an axis of the view, and of sums of positions along several, times factors.
    axes: Vec<(Vec<(ViewAxis, i128)>, Owner)>,
    /// The only CTA along an axis of the grid that comes here.
    only: [Option<i128>; 3],
    /// Digits of the CTA's number, and its place in the cluster, in the positions along an axis.
    digits: Vec<Digit>,
    /// The only place in the cluster along an axis that comes here.
    place: [Option<i128>; 3],
    /// Extents of the cluster.
    cluster: [u32; 3],
}

/// Positions `factor * symbol + something in lo..=hi` along an axis.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Digit {
    axis: ViewAxis,
    symbol: Symbol,
    factor: i128,
    lo: i128,
    hi: i128,
    says: Part,
}

/// What a symbol says of the CTA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Its place in the cluster along these axes.
    Place(GridAxes),
    /// The quotient of its index along an axis of the grid.
    Quotient(u8, i128),
    /// Some other digit.
    Other,
}

impl Part {
    fn of(kernel: &Kernel, known: &Knowledge<'_>, symbol: Symbol) -> Part {
        match symbol {
            Symbol::Cluster(ClusterAxis::Along(axis)) => {
                Part::Place([0, 1, 2].map(|other| other == axis))
            }
            // The rank is made of the places along all axes of the cluster.
            Symbol::Cluster(ClusterAxis::Rank) => {
                Part::Place(kernel.launch.cluster.map(|extent| extent > 1))
            }
            symbol => match known.quotient_of_cta(symbol) {
                Some((axis, divisor)) => Part::Quotient(axis, divisor),
                None => Part::Other,
            },
        }
    }
}

impl Digit {
    /// The digits of the CTA's number in an access.
    fn all(kernel: &Kernel, known: &Knowledge<'_>, place: &Place) -> Vec<Digit> {
        let mut found = Vec::new();
        for (axis, side) in place.axes.iter().zip(&place.sides) {
            let (start, len) = match &side.reach {
                Reach::Run { start, len, .. } => (start, *len),
                Reach::Each(form) => (form, 1),
            };
            for (&symbol, &factor) in &start.terms {
                let says = Part::of(kernel, known, symbol);
                if says == Part::Other && !known.is_digit_of_cta(symbol) {
                    continue;
                }
                let rest = start.plus(-factor, &Form::symbol(symbol));
                let Some(Interval { lo: Some(lo), hi: Some(hi) }) =
                    rest.map(|rest| known.interval(&rest))
                else {
                    continue;
                };
                let hi = hi.saturating_add(i128::from(len.max(1)) - 1);
                found.push(Digit { axis: axis.clone(), symbol, factor, lo, hi, says });
            }
        }
        found
    }
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
            Reach::Each(form) => {
                let slots = (!of_ranks).then(|| slots(kernel, known, loads, form)).flatten();
                slots.unwrap_or_else(|| on_rank(affine(known, tickets, form, 1)))
            }
        };
        let axes = place.axes.iter().zip(&place.sides);
        let axes = axes.map(|(axis, side)| (vec![(axis.clone(), 1)], owner(&side.reach)));
        let sums = place.joint.iter().filter_map(|joint| {
            let axis = |&(at, factor): &(usize, i128)| Some((place.axes.get(at)?.clone(), factor));
            let of = joint.of.iter().map(axis).collect::<Option<Vec<_>>>()?;
            let may_be_slot = joint.len == 1 && !of_ranks;
            let slot = may_be_slot.then(|| slot(kernel, known, loads, &joint.start, &place.facts));
            let affine = || on_rank(affine(known, tickets, &joint.start, joint.len));
            Some((of, slot.flatten().unwrap_or_else(affine)))
        });
        let only = |axis: u8| {
            let cta = Form::symbol(Symbol::Cta(axis));
            let Interval { lo, hi } = known.refined(&cta, &place.facts);
            lo.filter(|_| lo == hi)
        };
        let cluster = kernel.launch.cluster;
        // Of a cluster along one axis the rank is the place along it.
        let along = |axis: usize| {
            let is_row = (0..3).all(|other| other == axis || cluster[other] <= 1);
            let rank = is_row.then_some(ClusterAxis::Rank);
            let own = ClusterAxis::Along(axis as u8);
            let mut places = std::iter::once(own).chain(rank).filter_map(|of| {
                let symbol = Form::symbol(Symbol::Cluster(of));
                let Interval { lo, hi } = known.refined(&symbol, &place.facts);
                lo.filter(|_| lo == hi)
            });
            places.next()
        };
        Owners {
            axes: axes.chain(sums).collect(),
            only: [only(0), only(1), only(2)],
            digits: if of_ranks { Vec::new() } else { Digit::all(kernel, known, place) },
            place: [along(0), along(1), along(2)],
            cluster,
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

    /// True where no CTA with another digit touches by `other` what a CTA touches by `self`.
    pub(super) fn is_of_digit(&self, other: &Owners, digit: CtaDigit, grid: [u32; 3]) -> bool {
        let theirs = other.in_digit(digit, grid);
        self.in_digit(digit, grid).iter().any(|mine| {
            let mut same = theirs
                .iter()
                .filter(|theirs| theirs.axis == mine.axis && theirs.factor == mine.factor);
            same.any(|theirs| {
                let width = mine.hi.max(theirs.hi).checked_sub(mine.lo.min(theirs.lo));
                width.is_some_and(|width| width < mine.factor.saturating_abs())
            })
        })
    }

    /// The positions by a digit, along each axis where that is known.
    fn in_digit(&self, digit: CtaDigit, grid: [u32; 3]) -> Vec<Digit> {
        let own = self.digits.iter().filter(|known| known.symbol == digit.symbol);
        let mut found: Vec<Digit> = own.cloned().collect();
        // `cta.x` is the divisor times the quotient and less than the divisor more.
        let whole = |owner: &Owner| {
            let (axis, divisor) = digit.of?;
            let Owner::Affine { ctas, rounds, scalars, lo, hi, .. } = owner else { return None };
            if !rounds.is_empty() || !scalars.is_empty() {
                return None;
            }
            let (mut lo, mut hi) = (*lo, *hi);
            for (at, (&factor, extent)) in ctas.iter().zip(grid).enumerate() {
                let count = if at == usize::from(axis) { divisor } else { extent.into() };
                let last = factor.checked_mul(count - 1)?;
                lo = lo.checked_add(last.min(0))?;
                hi = hi.checked_add(last.max(0))?;
            }
            Some((ctas[usize::from(axis)].checked_mul(divisor)?, lo, hi))
        };
        for (of, owner) in &self.axes {
            if let ([(axis, 1)], Some((factor, lo, hi))) = (of.as_slice(), whole(owner)) {
                let (axis, symbol, says) = (axis.clone(), digit.symbol, Part::Other);
                found.push(Digit { axis, symbol, factor, lo, hi, says });
            }
        }
        found
    }

    /// True where no two CTAs that differ along an axis of the grid have one position, by their places in the clusters and
    /// by which clusters they are in.
    fn tell_clusters_apart(&self, other: &Owners, axis: usize, grid: [u32; 3]) -> bool {
        let Some(&size) = self.cluster.get(axis).filter(|&&size| size > 1) else { return false };
        let tells = |wanted: &dyn Fn(Part) -> bool| {
            self.digits.iter().filter(|mine| wanted(mine.says)).any(|mine| {
                let is_same = |theirs: &&Digit| {
                    (&theirs.axis, theirs.symbol, theirs.factor)
                        == (&mine.axis, mine.symbol, mine.factor)
                };
                other.digits.iter().filter(is_same).any(|theirs| {
                    let width = mine.hi.max(theirs.hi).checked_sub(mine.lo.min(theirs.lo));
                    width.is_some_and(|width| width < mine.factor.saturating_abs())
                })
            })
        };
        let of_place = self.place[axis].is_some() && self.place[axis] == other.place[axis]
            || tells(&|part| matches!(part, Part::Place(axes) if axes[axis]));
        let of_cluster = grid[axis] == size
            || tells(&|part| part == Part::Quotient(axis as u8, i128::from(size)));
        of_place && of_cluster
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
        let apart =
            [0, 1, 2].map(|axis| apart[axis] || self.tell_clusters_apart(other, axis, grid));
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
            Owner::Affine { ctas, rounds, scalars, lo, hi, digits },
            Owner::Affine {
                ctas: other,
                rounds: those,
                scalars: others,
                lo: low,
                hi: high,
                digits: theirs,
            },
        ) if ctas == other && rounds == those && scalars == others => {
            // Whatever the CTA is, one stays below the other.
            if ctas.iter().all(|&factor| factor == 0)
                && rounds.is_empty()
                && (hi < low || high < lo)
            {
                return [true; 3];
            }
            let of_ctas = (0..3).filter(|&axis| grid[axis] > 1 && ctas[axis] != 0);
            let of_ctas = of_ctas.map(|axis| (ctas[axis], i128::from(grid[axis]), Says::Cta(axis)));
            let of_rounds = rounds.values().map(|&(factor, count)| (factor, count, Says::Ticket));
            let all: Vec<_> = of_ctas.chain(of_rounds).collect();
            let found = in_digits(all.clone(), (*lo.min(low), *hi.max(high)));
            if found == [false; 3] && digits.of == theirs.of {
                let others =
                    digits.of.iter().map(|&(factor, count)| (factor, count, Says::Nothing));
                let bounds = (digits.lo.min(theirs.lo), digits.hi.max(theirs.hi));
                return in_digits(all.into_iter().chain(others).collect(), bounds);
            }
            found
        }
        (Owner::Slot { grid, .. }, Owner::Slot { .. }) if a == b => *grid,
        (Owner::Affine { .. } | Owner::Slot { .. } | Owner::Unknown, _) => [false; 3],
    }
}

/// What a digit of a position says.
#[derive(Debug, Clone, Copy)]
enum Says {
    /// The CTA along an axis of the grid.
    Cta(usize),
    /// A ticket, which is in the hands of one CTA.
    Ticket,
    Nothing,
}

/// The axes that positions tell which are a number in mixed radix: each digit is at least as wide as all below it.
fn in_digits(mut digits: Vec<(i128, i128, Says)>, (lo, hi): (i128, i128)) -> GridAxes {
    digits.sort_by_key(|&(factor, ..)| factor.unsigned_abs());
    let mut width = hi.checked_sub(lo).and_then(|w| w.checked_add(1));
    let mut found = [false; 3];
    for (factor, count, says) in digits {
        let (Some(below), Some(step)) = (width, factor.checked_abs()) else { return [false; 3] };
        if step < below {
            return [false; 3];
        }
        let rest = step.checked_mul(count - 1);
        width = rest.and_then(|rest| rest.checked_add(below));
        match says {
            Says::Cta(axis) => found[axis] = true,
            Says::Ticket => found = [true; 3],
            Says::Nothing => {}
        }
    }
    found
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
    let wider = |hi: i128| hi.checked_add(i128::from(len.max(1)) - 1);
    let (Some(hi), Some(digits)) = (wider(hi), digits(known, &rest, len)) else {
        return Owner::Unknown;
    };
    Owner::Affine { ctas, rounds, scalars, lo, hi, digits }
}

/// What is no CTA, ticket or scalar, each for itself where it has bounds.
fn digits(known: &Knowledge<'_>, rest: &Form, len: u32) -> Option<Digits> {
    let mut of = Vec::new();
    let mut lo = rest.constant;
    for (&symbol, &factor) in &rest.terms {
        let Interval { lo: Some(least), hi: Some(most) } = known.interval(&Form::symbol(symbol))
        else {
            return None;
        };
        lo = lo.checked_add(factor.checked_mul(least)?)?;
        of.push((factor, most.checked_sub(least)?.checked_add(1)?.max(1)));
    }
    of.sort_unstable();
    Some(Digits { of, lo, hi: lo.checked_add(i128::from(len.max(1)) - 1)? })
}

/// Positions of an index tile that is loaded from data which a contract calls distinct, each CTA other rows or a slice of its
/// own. Negative entries are absent, so that an exception among them is one of no element, and so is what stands for
/// entries that are not loaded.
fn slots(
    kernel: &Kernel,
    known: &Knowledge<'_>,
    loads: &BTreeMap<ValueId, &Op>,
    form: &Form,
) -> Option<Owner> {
    let Some(Symbol::Value(value)) = form.as_symbol() else { return None };
    let Op::Load { access, other, .. } = loads.get(&value)? else { return None };
    let distinct = kernel.params[access.storage.param()?].kept_contract()?.distinct?;
    let is_element = |other: &ValueId| {
        let Interval { hi, .. } = known.interval(&known.form(*other));
        hi.is_none_or(|hi| hi >= 0)
    };
    if distinct.except.is_some_and(|except| except >= 0) || other.as_ref().is_some_and(is_element) {
        return None;
    }
    let mut grid = [false; 3];
    for index in &access.index {
        let (start, len) = match index {
            AxisIndex::At(at) => (*at, 1),
            AxisIndex::Range { start, len, .. } => (*start, *len),
            AxisIndex::Gather(_) | AxisIndex::Along(_) | AxisIndex::New => continue,
        };
        let owner = affine(known, &[], &known.form(start), len);
        let found = separated(&owner, &owner, kernel.launch.grid);
        grid = [0, 1, 2].map(|axis| grid[axis] || found[axis]);
    }
    Some(Owner::Slot { value, constant: 0, grid })
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

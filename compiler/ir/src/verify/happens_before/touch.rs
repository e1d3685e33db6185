//! What accesses touch, and whether two of them can touch one element.

use std::collections::{BTreeMap, BTreeSet};

use kernel_dsl::source::Span;
use petgraph::graph::NodeIndex;

use super::super::cluster::ranks::{on_rank, place};
use super::super::scalars::{Facts, Form, Interval, Knowledge, Symbol};
use super::words::Ops;
use crate::distribution::{AxisMap, Distribution};
use crate::kernel::{ClusterAxis, Kernel, ParamId, RoleId, SmemId, ValueId, ViewAxis};
use crate::ops::AtomicOp;
use crate::ops::mma::may_be_matrices;

/// Memory that is one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Memory {
    Tile(SmemId),
    Buffer(ParamId),
}

/// What an access does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    Change(AtomicOp),
}

/// Positions along an axis of a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reach {
    Run {
        start: Form,
        len: u32,
    },
    /// For each element this.
    Each(Form),
}

/// Positions, and the axis of the tile that runs along them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Side {
    pub(super) reach: Reach,
    pub(super) axis: Option<usize>,
}

/// Rounds of the loops around, by their variables.
pub(super) type Rounds = BTreeMap<ValueId, u32>;

/// One access of one agent.
#[derive(Debug, Clone)]
pub(super) struct Touch {
    pub(super) span: Span,
    pub(super) event: NodeIndex,
    pub(super) agent: usize,
    pub(super) memory: Memory,
    pub(super) kind: Kind,
    /// It goes on behind its statement.
    pub(super) is_async: bool,
    /// Threads write it, by the way that their accesses go.
    pub(super) by_threads: bool,
    /// It reads what threads have stored by another way, which `publish` has to order.
    pub(super) needs_publish: bool,
    /// The slot, before it is taken modulo the ring.
    pub(super) slot: Option<Form>,
    /// Memory of another CTA of the cluster, or of other ranks.
    pub(super) is_foreign: bool,
    /// The place of that CTA in its cluster.
    pub(super) cta: Option<ValueId>,
    pub(super) axes: Vec<ViewAxis>,
    pub(super) sides: Vec<Side>,
    pub(super) spread: Option<Distribution>,
    pub(super) role: Option<RoleId>,
    pub(super) rounds: Rounds,
    pub(super) facts: Facts,
    /// Words at which the CTA was the last to arrive.
    pub(super) last_at: Vec<(ParamId, Form)>,
    /// It may not happen.
    pub(super) under: bool,
    /// A store to every rank.
    pub(super) everywhere: bool,
    /// The value of the first index, which is the slot where memory is of ranks.
    pub(super) first: Option<ValueId>,
    /// The launch modulo the ring, of a slot that is the epoch.
    pub(super) epoch_slot: Option<u32>,
}

/// Why two accesses do not need an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Apart {
    /// Both read, or both change by one operation.
    Harmless,
    /// Other slots of a ring.
    Slots,
    /// Other places, computed for each two CTAs of a cluster.
    Places,
    /// Positions along an axis of the view.
    Axis(usize),
    /// One thread has each element both times.
    Thread,
    /// They stand in the two arms of one choice.
    Arms,
}

/// Where an access is, of one CTA of a cluster: in whose memory, in which slot, and from where how far along each axis,
/// beside so many times the start of the cluster.
struct Spot {
    cta: i128,
    slot: Option<i128>,
    sides: Vec<(i128, i128, [i128; 3])>,
}

/// What decides on places.
pub(super) struct Places<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) known: &'a Knowledge<'a>,
    /// The loops in which a value is defined.
    pub(super) loops_of: &'a BTreeMap<ValueId, BTreeSet<ValueId>>,
    pub(super) ops: &'a Ops<'a>,
}

impl Places<'_> {
    /// Why two accesses of threads of one CTA need no order.
    pub(super) fn apart(&self, a: &Touch, b: &Touch) -> Option<Apart> {
        if let Some(harmless) = harmless(a, b) {
            return Some(harmless);
        }
        if self.slot_distance(a, b).is_some_and(|distance| distance != 0) {
            return Some(Apart::Slots);
        }
        if a.axes != b.axes {
            return None;
        }
        let facts: Facts = a.facts.iter().chain(&b.facts).cloned().collect();
        let mut sides = a.sides.iter().zip(&b.sides);
        if let Some(axis) = sides.position(|(x, y)| self.sides_apart((a, x), (b, y), &facts)) {
            return Some(Apart::Axis(axis));
        }
        let one_thread = !a.is_async && !b.is_async && a.everywhere == b.everywhere;
        (one_thread && a.role == b.role && self.own(a, b)).then_some(Apart::Thread)
    }

    /// True where two CTAs of a cluster never touch one element by these, nothing where their places are not known.
    ///
    /// The places of both are computed for each two ranks. CTAs of one cluster have the same part of `cta` beside their
    /// place in it, so that drops out where both have the same factor of it.
    pub(super) fn apart_in_cluster(&self, a: &Touch, b: &Touch) -> Option<bool> {
        let size = self.kernel.launch.cluster_size();
        let mut apart = true;
        for (one, other) in (0..size).flat_map(|one| (0..size).map(move |other| (one, other))) {
            if one == other {
                continue;
            }
            let (x, y) = (self.spot(a, one)?, self.spot(b, other)?);
            let same_slot = match (&a.slot, &b.slot) {
                (Some(_), Some(_)) => x.slot == y.slot,
                (_, _) => true,
            };
            let mut sides = x.sides.iter().zip(&y.sides);
            let lies_apart = a.axes == b.axes
                && sides.any(|(&(from, len, base), &(start, n, of))| {
                    base == of
                        && (from.saturating_add(len) <= start || start.saturating_add(n) <= from)
                });
            apart &= x.cta != y.cta || !same_slot || lies_apart;
        }
        Some(apart)
    }

    fn spot(&self, touch: &Touch, rank: u32) -> Option<Spot> {
        let Memory::Tile(tile) = touch.memory else { return None };
        let cta = match touch.cta {
            Some(cta) => on_rank(self.kernel, self.ops, cta, rank)?,
            None => i128::from(rank),
        };
        let slots = i128::from(self.kernel.smem[tile].slots.max(1));
        let slot = match &touch.slot {
            Some(slot) => match self.on_rank(slot, rank)? {
                (slot, [0, 0, 0]) => Some(slot.rem_euclid(slots)),
                (_, _) => return None,
            },
            None => None,
        };
        let side = |side: &Side| match &side.reach {
            Reach::Run { start, len } => {
                let (start, base) = self.on_rank(start, rank)?;
                Some((start, i128::from(*len), base))
            }
            Reach::Each(_) => None,
        };
        Some(Spot { cta, slot, sides: touch.sides.iter().map(side).collect::<Option<_>>()? })
    }

    /// A form in the CTA with this rank, but for the start of its cluster, which has these factors.
    fn on_rank(&self, form: &Form, rank: u32) -> Option<(i128, [i128; 3])> {
        let (mut sum, mut bases) = (form.constant, [0; 3]);
        for (symbol, factor) in &form.terms {
            let value = match symbol {
                Symbol::Cta(axis) => {
                    let base = bases.get_mut(usize::from(*axis))?;
                    *base = factor.checked_add(*base)?;
                    i128::from(place(self.kernel, ClusterAxis::Along(*axis), rank))
                }
                Symbol::Cluster(axis) => i128::from(place(self.kernel, *axis, rank)),
                Symbol::Value(value) => on_rank(self.kernel, self.ops, *value, rank)?,
                Symbol::Param(_) | Symbol::Other(_) | Symbol::Earlier(_) | Symbol::Rounds(_) => {
                    return None;
                }
            };
            sum = sum.checked_add(factor.checked_mul(value)?)?;
        }
        Some((sum, bases))
    }

    /// The axes of the grid along which CTAs may meet in an element, nothing where they are apart altogether.
    pub(super) fn shared_axes(&self, a: &Touch, b: &Touch) -> Option<[bool; 3]> {
        if harmless(a, b).is_some() {
            return None;
        }
        let grid = self.kernel.launch.grid;
        let only = |touch: &Touch, axis: u8| {
            let Interval { lo, hi } =
                self.known.refined(&Form::symbol(Symbol::Cta(axis)), &touch.facts);
            lo.filter(|_| lo == hi)
        };
        let mut shared = grid.map(|extent| extent > 1);
        for axis in 0..3u8 {
            let one = only(a, axis);
            if one.is_some() && one == only(b, axis) {
                shared[usize::from(axis)] = false;
            }
        }
        // The last to arrive at a word is one CTA of those that share it.
        for (_, form) in a.last_at.iter().filter(|word| b.last_at.contains(word)) {
            for axis in 0..3u8 {
                shared[usize::from(axis)] &= form.terms.contains_key(&Symbol::Cta(axis));
            }
        }
        for (axis, x) in a.axes.iter().zip(&a.sides) {
            for (_, y) in b.axes.iter().zip(&b.sides).filter(|(other, _)| *other == axis) {
                let found = self.separated((a, x), (b, y), grid);
                for (shared, apart) in shared.iter_mut().zip(found) {
                    *shared &= !apart;
                }
            }
        }
        shared.contains(&true).then_some(shared)
    }

    /// The axes of the grid along which different CTAs have different positions: numbers in mixed radix.
    fn separated(
        &self,
        (a, x): (&Touch, &Side),
        (b, y): (&Touch, &Side),
        grid: [u32; 3],
    ) -> [bool; 3] {
        let (all, others) = (self.extent(a, x), self.extent(b, y));
        if all.lo.zip(others.hi).is_some_and(|(lo, hi)| hi < lo)
            || others.lo.zip(all.hi).is_some_and(|(lo, hi)| hi < lo)
        {
            return [true; 3];
        }
        let (Some((ctas, scalars, lo, hi)), Some((other, others, low, high))) =
            (self.split(a, x), self.split(b, y))
        else {
            return [false; 3];
        };
        if ctas != other || scalars != others {
            return [false; 3];
        }
        if ctas == [0; 3] {
            return [hi < low || high < lo; 3];
        }
        let mut digits: Vec<(i128, usize)> = (0..3)
            .filter(|&axis| ctas[axis] != 0 && grid[axis] > 1)
            .map(|axis| (ctas[axis], axis))
            .collect();
        digits.sort_by_key(|(factor, _)| factor.unsigned_abs());
        let mut found = [false; 3];
        let Some(mut width) = hi.max(high).checked_sub(lo.min(low)).and_then(|w| w.checked_add(1))
        else {
            return found;
        };
        for (factor, axis) in digits {
            let Some(step) = factor.checked_abs().filter(|step| *step >= width) else {
                return [false; 3];
            };
            found[axis] = true;
            let rest = step.checked_mul(i128::from(grid[axis]) - 1);
            match rest.and_then(|rest| rest.checked_add(width)) {
                Some(next) => width = next,
                None => return [false; 3],
            }
        }
        found
    }

    /// From where to where an access reaches, in any CTA.
    fn extent(&self, touch: &Touch, side: &Side) -> Interval {
        let (form, len) = match &side.reach {
            Reach::Run { start, len } => (start, *len),
            Reach::Each(form) => (form, 1),
        };
        let Interval { lo, hi } = self.known.refined(form, &touch.facts);
        Interval { lo, hi: hi.and_then(|hi| hi.checked_add(i128::from(len) - 1)) }
    }

    /// The factors of the CTA's index, those of scalars, and the bounds of the rest.
    #[expect(clippy::type_complexity, reason = "used in one place")]
    fn split(
        &self,
        touch: &Touch,
        side: &Side,
    ) -> Option<([i128; 3], BTreeMap<ParamId, i128>, i128, i128)> {
        let (form, len) = match &side.reach {
            Reach::Run { start, len } => (start, *len),
            Reach::Each(form) => (form, 1),
        };
        let mut ctas = [0; 3];
        let mut scalars = BTreeMap::new();
        let mut rest = form.clone();
        for (symbol, factor) in &form.terms {
            match symbol {
                Symbol::Cta(axis) => ctas[usize::from(*axis)] = *factor,
                Symbol::Param(param) => {
                    scalars.insert(*param, *factor);
                }
                _ => continue,
            }
            rest.terms.remove(symbol);
        }
        let Interval { lo, hi } = self.known.refined(&rest, &touch.facts);
        let hi = hi?.checked_add(i128::from(len) - 1)?;
        Some((ctas, scalars, lo?, hi))
    }

    /// `a - b`, where each symbol means the same in both.
    fn difference(&self, (a, x): (&Touch, &Form), (b, y): (&Touch, &Form)) -> Option<Form> {
        let difference = x.plus(-1, y)?;
        let mut named = x.terms.keys().chain(y.terms.keys());
        let is_same = named.all(|symbol| match symbol {
            Symbol::Value(value) | Symbol::Other(value) => {
                let loops = self.loops_of.get(value);
                loops.into_iter().flatten().all(|of| a.rounds.get(of) == b.rounds.get(of))
            }
            _ => true,
        });
        is_same.then_some(difference)
    }

    /// Slots from one to the other, modulo the ring.
    pub(super) fn slot_distance(&self, a: &Touch, b: &Touch) -> Option<i128> {
        if let (Some(one), Some(other)) = (a.epoch_slot, b.epoch_slot) {
            return Some(i128::from(one) - i128::from(other));
        }
        let Memory::Tile(tile) = a.memory else { return None };
        let slots = i128::from(self.kernel.smem[tile].slots);
        let (x, y) = (a.slot.as_ref()?, b.slot.as_ref()?);
        self.difference((a, x), (b, y))?.as_constant().map(|distance| distance.rem_euclid(slots))
    }

    fn sides_apart(&self, (a, x): (&Touch, &Side), (b, y): (&Touch, &Side), facts: &Facts) -> bool {
        let bounds = |side: &Side| match &side.reach {
            Reach::Run { start, len } => (start.clone(), *len, false),
            Reach::Each(form) => (form.clone(), 1, true),
        };
        let ((first, m, each), (second, n, other)) = (bounds(x), bounds(y));
        if each || other {
            // Elements of one tile of indices may be any of it.
            let second = self.known.other_element(&second);
            let behind = |a: &Form, len: u32, b: &Form| {
                let gap = b.plus(-1, a);
                let gap = gap.and_then(|gap| gap.plus(-i128::from(len), &Form::constant(1)));
                gap.is_some_and(|gap| self.known.proves(&gap, facts))
            };
            return self.difference((a, &first), (b, &second)).is_some()
                && (behind(&first, m, &second) || behind(&second, n, &first));
        }
        let behind = |(a, x): (&Touch, &Form), len: u32, (b, y): (&Touch, &Form)| {
            let gap = self.difference((b, y), (a, x));
            let gap = gap.and_then(|gap| gap.plus(-i128::from(len), &Form::constant(1)));
            gap.is_some_and(|gap| self.known.proves(&gap, facts))
        };
        behind((a, &first), m, (b, &second)) || behind((b, &second), n, (a, &first))
    }

    /// True where the thread that touches an element is the same both times.
    fn own(&self, a: &Touch, b: &Touch) -> bool {
        let (Some(first), Some(second)) = (&a.spread, &b.spread) else { return false };
        if first.warps != second.warps {
            return false;
        }
        // Rows of matrices go through other lanes.
        if let Memory::Tile(tile) = a.memory
            && a.kind != b.kind
            && may_be_matrices(self.kernel.smem[tile].dtype, first)
        {
            return false;
        }
        // A store comes to each element once, by E0404 where that is not waived.
        let is_waived = self.kernel.waivers.iter().any(|waiver| waiver.code == "E0404");
        let once = |reach: &Reach| match reach {
            Reach::Run { .. } => true,
            Reach::Each(_) => !is_waived && (a.kind == Kind::Write || b.kind == Kind::Write),
        };
        let map = |spread: &Distribution, side: &Side| {
            side.axis.and_then(|axis| spread.axes.get(axis).copied())
        };
        let is_same = |x: &Side, y: &Side| match (&x.reach, &y.reach) {
            (Reach::Run { start: s, len: m }, Reach::Run { start: t, len: n }) => {
                let distance = self.difference((a, s), (b, t)).and_then(|d| d.as_constant());
                m == n && distance == Some(0)
            }
            (Reach::Each(s), Reach::Each(t)) => {
                self.difference((a, s), (b, t)).and_then(|d| d.as_constant()) == Some(0)
            }
            (Reach::Run { .. }, Reach::Each(_)) | (Reach::Each(_), Reach::Run { .. }) => false,
        };
        let alike = a.sides.iter().zip(&b.sides).all(|(x, y)| {
            let (p, q) = (map(first, x), map(second, y));
            let local = |map: Option<AxisMap>| map.is_none_or(AxisMap::is_local);
            (local(p) && local(q)) || (p == q && is_same(x, y) && once(&x.reach))
        });
        // Stores are done by the lowest replica, loads by all.
        let single = |touch: &Touch, spread: &Distribution| {
            touch.kind != Kind::Read
                || (spread.free_lanes().is_empty() && spread.free_warps().is_empty())
        };
        alike && single(a, first) && single(b, second)
    }
}

fn harmless(a: &Touch, b: &Touch) -> Option<Apart> {
    let is_harmless = match (a.kind, b.kind) {
        (Kind::Read, Kind::Read) => true,
        (Kind::Change(one), Kind::Change(other)) => one == other,
        (Kind::Read | Kind::Write | Kind::Change(_), _) => false,
    };
    is_harmless.then_some(Apart::Harmless)
}

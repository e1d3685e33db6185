//! Whether two accesses of shared memory can meet.

use super::super::scalars::{Facts, Form, Knowledge, Symbol};
use super::state::{Cta, Kind, Side, Touch};
use crate::kernel::{BarrierId, Kernel, SmemId};
use crate::ops::mma::may_be_matrices;

/// What decides at one place of the kernel.
pub(super) struct Judge<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) known: &'a Knowledge<'a>,
    pub(super) facts: &'a Facts,
    /// Variables of loops that are in one of their first rounds, with their values there.
    pub(super) first_rounds: &'a [(Symbol, Form)],
}

impl Judge<'_> {
    /// True where different threads may touch one element and one of them writes.
    pub(super) fn clash(&self, earlier: &Touch, later: &Touch) -> bool {
        let writes = earlier.kind != Kind::Read || later.kind != Kind::Read;
        writes && self.may_meet(earlier, later) && !self.is_own(earlier, later)
    }

    /// True unless the elements of two accesses of a role are provably others, or a pipeline orders them.
    pub(super) fn may_meet(&self, earlier: &Touch, later: &Touch) -> bool {
        !earlier.is_at_other_index(later) && self.may_overlap(earlier, later)
    }

    /// True unless the elements are provably others.
    pub(super) fn may_overlap(&self, a: &Touch, b: &Touch) -> bool {
        if a.tile != b.tile || self.other_ctas(a, b) {
            return false;
        }
        if self.slot_distance(a, b).is_some_and(|distance| distance != 0) {
            return false;
        }
        if a.axes != b.axes {
            return true;
        }
        a.sides.iter().zip(&b.sides).all(|(a, b)| self.sides_meet(a, b))
    }

    /// True where both lie in other CTAs of the cluster, and provably not in the same one.
    fn other_ctas(&self, a: &Touch, b: &Touch) -> bool {
        let (Some(Cta(Some(a))), Some(Cta(Some(b)))) = (&a.cta, &b.cta) else { return false };
        let distance = self.difference(a, b).and_then(|distance| distance.as_constant());
        distance.is_some_and(|distance| distance != 0)
    }

    /// Slots from one to the other, modulo the ring, where that is known.
    pub(super) fn slot_distance(&self, a: &Touch, b: &Touch) -> Option<i128> {
        self.distance(a.tile, a.slot.as_ref(), b.slot.as_ref())
    }

    /// Indices from one to the other, where that is known.
    pub(super) fn constant_distance(&self, a: &Form, b: &Form) -> Option<i128> {
        self.difference(b, a).and_then(|distance| distance.as_constant())
    }

    /// True unless an access is provably none to the slot of an index of a pipeline.
    pub(super) fn may_hand_over(&self, touch: &Touch, pipeline: BarrierId, index: &Form) -> bool {
        let distance = touch.slot.as_ref().and_then(|slot| self.constant_distance(slot, index));
        touch.guards.iter().any(|guard| guard.pipeline == pipeline)
            && distance.is_none_or(|distance| distance == 0)
    }

    /// Slots of a tile from one to the other, modulo the ring, where that is known.
    pub(super) fn distance(
        &self,
        tile: SmemId,
        a: Option<&Form>,
        b: Option<&Form>,
    ) -> Option<i128> {
        let slots = i128::from(self.kernel.smem[tile].slots);
        if slots == 1 {
            return Some(0);
        }
        let distance = self.difference(b?, a?)?;
        distance.as_constant().map(|d| d.rem_euclid(slots))
    }

    /// True where `a <= b` everywhere.
    pub(super) fn is_at_most(&self, a: &Form, b: &Form) -> bool {
        self.difference(b, a).is_some_and(|gap| self.known.proves(&gap, self.facts))
    }

    /// `a - b`, with loop variables of first rounds replaced by where they start.
    fn difference(&self, a: &Form, b: &Form) -> Option<Form> {
        let mut difference = a.plus(-1, b)?;
        for (symbol, start) in self.first_rounds.iter().rev() {
            let Some(&factor) = difference.terms.get(symbol) else { continue };
            difference.terms.remove(symbol);
            difference = difference.plus(factor, start)?;
        }
        Some(difference)
    }

    fn sides_meet(&self, a: &Side, b: &Side) -> bool {
        let (Side::Range { start: a, len: m, .. }, Side::Range { start: b, len: n, .. }) = (a, b)
        else {
            return true;
        };
        let behind = |first: &Form, len: u32, second: &Form| {
            let gap = self.difference(second, first);
            let gap = gap.and_then(|gap| gap.plus(-i128::from(len), &Form::constant(1)));
            gap.is_some_and(|gap| self.known.proves(&gap, self.facts))
        };
        !behind(a, *m, b) && !behind(b, *n, a)
    }

    /// True where every thread touches the same elements both times, and nobody else does. In two slots of a ring, or in
    /// two CTAs, they do not meet anyway.
    fn is_own(&self, a: &Touch, b: &Touch) -> bool {
        let (Some(first), Some(second)) = (&a.spread, &b.spread) else { return false };
        // Stores are done by the lowest replica, loads by all.
        let both_write = a.kind == Kind::Write && b.kind == Kind::Write;
        let alone = first.free_lanes().is_empty() && first.free_warps().is_empty();
        let same_sides = || {
            a.sides.iter().zip(&b.sides).all(|(a, b)| match (a, b) {
                (
                    Side::Range { start: a, len: m, is_axis: x },
                    Side::Range { start: b, len: n, is_axis: y },
                ) => {
                    let distance = self.difference(a, b).and_then(|d| d.as_constant());
                    m == n && x == y && distance == Some(0)
                }
                (Side::Unknown, _) | (_, Side::Unknown) => false,
            })
        };
        // A store or a load of matrices moves rows for other lanes, which are in order with nothing that this one does.
        let dtype = self.kernel.smem[a.tile].dtype;
        let of_others = !both_write && may_be_matrices(dtype, first);
        first == second
            && (alone || both_write)
            && !of_others
            && a.axes == b.axes
            && a.new_axes == b.new_axes
            && same_sides()
    }
}

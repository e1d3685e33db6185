//! Whether two accesses of one buffer may touch an element by different threads.

use std::collections::BTreeSet;

use super::super::scalars::{Facts, Form, Joint, Knowledge};
use super::place::{Place, Reach, Side};
use crate::distribution::{AxisMap, Distribution};
use crate::kernel::ValueId;

/// True where the accesses may have an element in common, one of them writes it, and not each element is in the
/// hands of one thread both times.
pub(super) fn race(known: &Knowledge<'_>, facts: &Facts, earlier: &Place, later: &Place) -> bool {
    earlier.param == later.param
        && (earlier.is_store || later.is_store)
        && (earlier.update.is_none() || earlier.update != later.update)
        && !(is_copy(earlier) && is_copy(later))
        && !(earlier.axes == later.axes
            && (own(earlier, later)
                || earlier.sides.iter().zip(&later.sides).any(|(a, b)| apart(known, facts, a, b))
                || apart_together(known, facts, earlier, later)))
}

/// The access as it was in an earlier round of a loop; nothing where that has no form.
pub(super) fn in_earlier_round(
    known: &mut Knowledge<'_>,
    place: &Place,
    of_loop: (ValueId, u32),
    inside: &BTreeSet<ValueId>,
) -> Option<Place> {
    let mut was = |form: &Form| known.in_earlier_round(form, of_loop, inside);
    let mut sides = Vec::with_capacity(place.sides.len());
    for side in &place.sides {
        let reach = match &side.reach {
            Reach::Run { start, len, until, back } => Reach::Run {
                start: was(start)?,
                len: *len,
                until: match until {
                    Some(until) => Some(was(until)?),
                    None => None,
                },
                back: *back,
            },
            Reach::Each(form) => Reach::Each(was(form)?),
        };
        sides.push(Side { reach, axis: side.axis });
    }
    let joint = place
        .joint
        .iter()
        .filter_map(|joint| Some(Joint { start: was(&joint.start)?, ..joint.clone() }));
    let joint = joint.collect();
    Some(Place { sides, joint, ..place.clone() })
}

/// Copies out of shared memory are compared with each other where they are settled.
fn is_copy(place: &Place) -> bool {
    place.is_store && place.spread.is_none()
}

/// True where the positions have none in common.
fn apart(known: &Knowledge<'_>, facts: &Facts, a: &Side, b: &Side) -> bool {
    let ((a, m), (b, n)) = (bounds(&a.reach), bounds(&b.reach));
    let b = known.other_element(b);
    let behind = |(first, len): (&Form, u32), next: &Form| {
        let gap =
            next.plus(-1, first).and_then(|gap| gap.plus(-i128::from(len), &Form::constant(1)));
        gap.is_some_and(|gap| known.proves(&gap, facts))
    };
    behind((a, m), &b) || behind((&b, n), a)
}

/// True where sums of positions along several axes, times factors, have none in common.
fn apart_together(known: &Knowledge<'_>, facts: &Facts, a: &Place, b: &Place) -> bool {
    let sum = |joint: &Joint| Side {
        reach: Reach::Run { start: joint.start.clone(), len: joint.len, until: None, back: false },
        axis: None,
    };
    a.joint.iter().any(|one| {
        let other = b.joint.iter().find(|other| other.of == one.of);
        other.is_some_and(|other| apart(known, facts, &sum(one), &sum(other)))
    })
}

/// The first position, and how many follow at most. Of an index tile it is each one's.
fn bounds(reach: &Reach) -> (&Form, u32) {
    match reach {
        Reach::Run { start, len, .. } => (start, *len),
        Reach::Each(form) => (form, 1),
    }
}

/// True where a thread that touches an element by one access is the one that touches it by the other.
fn own(earlier: &Place, later: &Place) -> bool {
    let (Some(first), Some(second)) = (&earlier.spread, &later.spread) else { return false };
    if earlier.who.first != later.who.first || earlier.everywhere != later.everywhere {
        return false;
    }
    if earlier.who.elect && later.who.elect {
        return true;
    }
    if first.warps != second.warps || earlier.who.elect != later.who.elect {
        return false;
    }
    // Entries of an index tile may be equal: then several threads have one element, unless a store says otherwise.
    let once = |reach: &Reach| match reach {
        Reach::Run { .. } => true,
        Reach::Each(_) => earlier.is_once || later.is_once,
    };
    let map = |spread: &Distribution, side: &Side| side.axis.map(|axis| spread.axes[axis]);
    let alike = earlier.sides.iter().zip(&later.sides).all(|(a, b)| {
        let (x, y) = (map(first, a), map(second, b));
        let local = |map: Option<AxisMap>| map.is_none_or(AxisMap::is_local);
        (local(x) && local(y)) || (x == y && a.reach == b.reach && once(&a.reach))
    });
    // Stores are done by the lowest replica, loads by all.
    let is_single = |place: &Place, spread: &Distribution| {
        place.is_store || (spread.free_lanes().is_empty() && spread.free_warps().is_empty())
    };
    alike && is_single(earlier, first) && is_single(later, second)
}

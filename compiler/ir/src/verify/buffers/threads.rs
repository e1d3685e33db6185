//! Whether two accesses of one buffer surely touch an element by different threads.

use super::super::scalars::{Facts, Form, Knowledge};
use super::place::{Place, Reach, Side};
use crate::distribution::{AxisMap, Distribution};

/// True where the accesses have an element in common, one of them writes it, and not each element is in the
/// hands of one thread both times.
pub(super) fn race(known: &Knowledge<'_>, facts: &Facts, earlier: &Place, later: &Place) -> bool {
    earlier.param == later.param
        && (earlier.is_store || later.is_store)
        && (earlier.update.is_none() || earlier.update != later.update)
        && !(is_copy(earlier) && is_copy(later))
        && earlier.axes == later.axes
        && !own(earlier, later)
        && earlier.sides.iter().zip(&later.sides).all(|(a, b)| meet(known, facts, a, b))
}

/// Copies out of shared memory are compared with each other where they are settled.
fn is_copy(place: &Place) -> bool {
    place.is_store && place.spread.is_none()
}

/// True where the positions surely have one in common.
fn meet(known: &Knowledge<'_>, facts: &Facts, a: &Side, b: &Side) -> bool {
    let at_least = |x: &Form, y: &Form, more: i128| {
        let gap = x.plus(-1, y).and_then(|gap| gap.plus(more, &Form::constant(1)));
        gap.is_some_and(|gap| known.proves(&gap, facts))
    };
    let within = |form: &Form, start: &Form, len: u32| {
        at_least(form, start, 0) && at_least(start, form, i128::from(len) - 1)
    };
    match (&a.reach, &b.reach) {
        (
            Reach::Run { start: a, len: m, until: None, .. },
            Reach::Run { start: b, len: n, until: None, .. },
        ) => {
            *m > 0
                && *n > 0
                && at_least(b, a, i128::from(*n) - 1)
                && at_least(a, b, i128::from(*m) - 1)
        }
        (
            Reach::Run { start: a, len: m, until: u, .. },
            Reach::Run { start: b, len: n, until: w, .. },
        ) => *m > 0 && *n > 0 && a == b && u == w,
        (Reach::Run { start, len, until: None, .. }, Reach::Each(form))
        | (Reach::Each(form), Reach::Run { start, len, until: None, .. }) => {
            within(form, start, *len)
        }
        (Reach::Each(a), Reach::Each(b)) => a == b,
        (Reach::Run { .. }, Reach::Each(_)) | (Reach::Each(_), Reach::Run { .. }) => false,
    }
}

/// True where a thread that touches an element by one access is the one that touches it by the other.
fn own(earlier: &Place, later: &Place) -> bool {
    let (Some(first), Some(second)) = (&earlier.spread, &later.spread) else { return false };
    let map = |spread: &Distribution, side: &Side| side.axis.map(|axis| spread.axes[axis]);
    let alike = earlier.sides.iter().zip(&later.sides).all(|(a, b)| {
        let (x, y) = (map(first, a), map(second, b));
        let local = |map: Option<AxisMap>| map.is_none_or(AxisMap::is_local);
        (local(x) && local(y)) || (x == y && a.reach == b.reach)
    });
    // Stores are done by the lowest replica, loads by all. A load that other replicas do as well before the
    // store is let pass: it is what `store load y + 1 -> y` does with a small tile.
    let replicas =
        |spread: &Distribution| !spread.free_lanes().is_empty() || !spread.free_warps().is_empty();
    alike && (later.is_store || !replicas(second))
}

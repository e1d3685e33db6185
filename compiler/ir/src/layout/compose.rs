//! Composition and complement, on which divides, products and inverses are built.

use super::error::multiply;
use super::simplify::coalesce_digits;
use super::tiler::by_mode;
use super::{Digit, Layout, LayoutError, Mode, Tiler};

/// The layout `i -> first(second(i))` with the nesting of the second, or by mode for a tuple.
pub fn compose(first: &Layout, second: &Tiler) -> Result<Layout, LayoutError> {
    match second {
        Tiler::Int(extent) => compose_layouts(first, &Layout::identity(*extent)?),
        Tiler::Layout(layout) => compose_layouts(first, layout),
        Tiler::Modes(tilers) => by_mode(first, tilers, compose),
    }
}

/// The layout `i -> first(second(i))` with the nesting of the second.
///
/// Each mode of the second walks the coalesced modes of the first. The last of those is
/// unbounded, so the result may reach beyond the size of the first. The equation holds for each
/// mode of the second; for their sums it holds unless those overlap, as in `(2,4):(1,1)`, and
/// carry from one mode of the first into the next.
pub fn compose_layouts(first: &Layout, second: &Layout) -> Result<Layout, LayoutError> {
    let walked = coalesce_digits(&first.digits());
    Layout { root: compose_mode(&walked, &second.root)? }.checked()
}

fn compose_mode(walked: &[Digit], mode: &Mode) -> Result<Mode, LayoutError> {
    match mode {
        Mode::Leaf(digit) => Ok(match walk(walked, *digit)?.as_slice() {
            [one] => Mode::Leaf(*one),
            several => Mode::Group(several.iter().copied().map(Mode::Leaf).collect()),
        }),
        Mode::Group(modes) => {
            let modes = modes.iter().map(|mode| compose_mode(walked, mode));
            Ok(Mode::Group(modes.collect::<Result<_, _>>()?))
        }
    }
}

/// The digits that one mode of the second layout picks out of the coalesced first layout.
fn walk(walked: &[Digit], mode: Digit) -> Result<Vec<Digit>, LayoutError> {
    if mode.stride == 0 {
        return Ok(vec![mode]);
    }
    let (last, bounded) = walked.split_last().expect("coalesced digits are never empty");
    let mut picked = Vec::new();
    let Digit { mut extent, mut stride } = mode;
    for passed in bounded {
        if passed.extent % stride != 0 && stride % passed.extent != 0 {
            return Err(LayoutError::undefined(format!(
                "composition: mode {mode} arrives at mode {passed} of the first layout \
                 (coalesced) with stride {stride}, and neither {stride} nor the extent {} \
                 divides the other",
                passed.extent
            )));
        }
        let room = (passed.extent / stride).max(1);
        let taken = room.min(extent);
        if extent % taken != 0 {
            return Err(LayoutError::undefined(format!(
                "composition: mode {mode} arrives at mode {passed} of the first layout \
                 (coalesced) with extent {extent}, which is not a multiple of the {room} \
                 elements that remain there"
            )));
        }
        if taken > 1 {
            let stride = multiply(stride, passed.stride, "the strides of a composition")?;
            picked.push(Digit { extent: taken, stride });
        }
        extent /= taken;
        stride = (stride - 1) / passed.extent + 1;
    }
    if extent > 1 || picked.is_empty() {
        let stride = multiply(stride, last.stride, "the strides of a composition")?;
        picked.push(Digit { extent, stride });
    }
    Ok(picked)
}

/// The layout of the indices below `codomain` that `layout` skips, disjoint from its own.
///
/// Defined when, sorted by stride, every mode that moves starts at or after the end of the one
/// before it. Where a stride is no multiple of that end the quotient rounds down.
pub fn complement(layout: &Layout, codomain: i64) -> Result<Layout, LayoutError> {
    if codomain < 1 {
        return Err(LayoutError::undefined(format!(
            "complement: the codomain size is {codomain}, it is at least 1"
        )));
    }
    let mut gaps = Vec::new();
    let mut span = 1_i64;
    for digit in sorted_moving(layout) {
        if digit.stride < span {
            return Err(LayoutError::undefined(format!(
                "complement: mode {digit} has stride {}, less than the span {span} of the modes \
                 below it",
                digit.stride
            )));
        }
        gaps.push(Digit { extent: digit.stride / span, stride: span });
        span = multiply(digit.stride, digit.extent, "the spans of a complement")?;
    }
    gaps.push(Digit { extent: (codomain - 1) / span + 1, stride: span });
    Layout::of_coalesced(&coalesce_digits(&gaps))
}

/// The digits of extent above 1 and stride above 0, by stride.
pub(super) fn sorted_moving(layout: &Layout) -> Vec<Digit> {
    let mut digits: Vec<Digit> =
        layout.digits().into_iter().filter(|d| d.extent > 1 && d.stride > 0).collect();
    digits.sort_by_key(|digit| (digit.stride, digit.extent));
    digits
}

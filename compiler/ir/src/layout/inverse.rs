//! Right and left inverse.

use super::compose::{complement, sorted_moving};
use super::simplify::coalesce_digits;
use super::{Digit, Layout, LayoutError};

/// The longest layout `r` with `layout(r(i)) == i`: as far as the strides are compact from 1.
pub fn right_inverse(layout: &Layout) -> Layout {
    let mut steps: Vec<(Digit, i64)> = Vec::new();
    let mut coordinate = 1_i64;
    for digit in layout.digits() {
        steps.push((digit, coordinate));
        coordinate *= digit.extent;
    }
    steps.retain(|(digit, _)| digit.extent > 1);
    steps.sort_by_key(|(digit, coordinate)| (digit.stride, digit.extent, *coordinate));
    let mut inverse = Vec::new();
    let mut span = 1_i128;
    for (digit, coordinate) in steps {
        if i128::from(digit.stride) != span {
            break;
        }
        inverse.push(Digit { extent: digit.extent, stride: coordinate });
        span *= i128::from(digit.extent);
    }
    Layout::of_coalesced(&coalesce_digits(&inverse))
        .expect("a right inverse maps a part of the codomain into the coordinates")
}

/// The layout `l` with `l(layout(i)) == i` for every coordinate.
///
/// Defined when no mode repeats an index and, sorted by stride, each stride is a multiple of the
/// span before it.
pub fn left_inverse(layout: &Layout) -> Result<Layout, LayoutError> {
    if let Some(fixed) = layout.digits().iter().find(|d| d.extent > 1 && d.stride == 0) {
        return Err(LayoutError::undefined(format!(
            "left_inverse: mode {fixed} has stride 0, so {} coordinates share an index",
            fixed.extent
        )));
    }
    let mut span = 1_i128;
    for digit in sorted_moving(layout) {
        if i128::from(digit.stride) % span != 0 {
            return Err(LayoutError::undefined(format!(
                "left_inverse: mode {digit} has stride {}, not a multiple of the span {span} of \
                 the modes below it",
                digit.stride
            )));
        }
        span = i128::from(digit.stride) * i128::from(digit.extent);
    }
    let gaps = complement(layout, 1)?;
    Ok(right_inverse(&Layout::join(vec![layout.clone(), gaps])?))
}

//! Coalesce and filter: fewer modes, the same map or the same image.

use super::{Digit, Layout};

/// The flat layout with the fewest modes that has the same map; all of extent 1 gives `1:0`.
pub fn coalesce(layout: &Layout) -> Layout {
    let digits = coalesce_digits(&layout.digits());
    Layout::of_coalesced(&digits).expect("coalescing keeps size and codomain")
}

/// The coalesced layout without its modes of stride 0.
pub fn filter(layout: &Layout) -> Layout {
    let moving: Vec<Digit> =
        layout.digits().into_iter().filter(|digit| digit.stride != 0).collect();
    let digits = coalesce_digits(&moving);
    Layout::of_coalesced(&digits).expect("dropping modes shrinks size and keeps the codomain")
}

/// Merges neighbours where the slower one goes on where the faster one ends; never empty.
pub(super) fn coalesce_digits(digits: &[Digit]) -> Vec<Digit> {
    let mut merged: Vec<Digit> = Vec::new();
    for &digit in digits.iter().filter(|digit| digit.extent > 1) {
        match merged.last_mut() {
            Some(last) if span(*last) == i128::from(digit.stride) => last.extent *= digit.extent,
            _ => merged.push(digit),
        }
    }
    if merged.is_empty() {
        merged.push(Digit { extent: 1, stride: 0 });
    }
    merged
}

/// Extent times stride: where the next digit would go on.
fn span(digit: Digit) -> i128 {
    i128::from(digit.extent) * i128::from(digit.stride)
}

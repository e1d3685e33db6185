//! `view V = W by "n (j k) -> n j k" (k = 8)`: splits, merges and permutes the axes of a storage.
//!
//! Both sides list letters apart by blanks; letters in parentheses share one axis, the leftmost
//! slowest. Assumes const extents of at least 1. Guarantees that the result reads the same storage:
//! the element at letters (n, j, k) of one side is the element at those letters of the other.

use super::error::multiply;
use super::{Digit, Layout, LayoutError, MAX_DEPTH, MAX_LINE};

/// One axis of a buffer, tile or view: digits from the slowest to the fastest.
///
/// Neighbouring digits are merged where one goes on where the other ends, and digits of extent 1
/// are dropped, so an axis of extent 1 has no digits and a plain axis has one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Axis {
    digits: Vec<Digit>,
}

impl Axis {
    /// An axis of one digit.
    pub fn new(extent: i64, stride: i64) -> Result<Self, LayoutError> {
        Self::of_digits(&[Digit { extent, stride }])
    }

    /// An axis of several digits, the slowest first.
    pub fn of_digits(digits: &[Digit]) -> Result<Self, LayoutError> {
        if !digits.is_empty() {
            Layout::of_digits(digits)?;
        }
        let mut merged: Vec<Digit> = Vec::new();
        for &digit in digits.iter().filter(|digit| digit.extent > 1) {
            let span = i128::from(digit.extent) * i128::from(digit.stride);
            match merged.last_mut() {
                Some(slower) if i128::from(slower.stride) == span => {
                    slower.extent *= digit.extent;
                    slower.stride = digit.stride;
                }
                _ => merged.push(digit),
            }
        }
        Ok(Self { digits: merged })
    }

    /// The digits, the slowest first.
    pub fn digits(&self) -> &[Digit] {
        &self.digits
    }

    /// Number of positions.
    pub fn extent(&self) -> i64 {
        self.digits.iter().map(|digit| digit.extent).product()
    }

    /// The stride, if one number says it: that of a single digit, or 0 for extent 1.
    pub fn stride(&self) -> Option<i64> {
        match self.digits.as_slice() {
            [] => Some(0),
            [one] => Some(one.stride),
            _ => None,
        }
    }

    /// The axis as a layout, whose first mode is the fastest digit.
    pub fn to_layout(&self) -> Layout {
        let mut digits: Vec<Digit> = self.digits.iter().rev().copied().collect();
        if digits.is_empty() {
            digits.push(Digit { extent: 1, stride: 0 });
        }
        Layout::of_coalesced(&digits).expect("checked when the axis was made")
    }
}

/// The axes of `axes` seen through `pattern`, with the extents of split letters from `bindings`.
///
/// In each group of the left side at most one letter may be unbound; its extent follows.
pub fn relabel(
    axes: &[Axis],
    pattern: &str,
    bindings: &[(&str, i64)],
) -> Result<Vec<Axis>, LayoutError> {
    let (left, right) = parse(pattern)?;
    check_letters(&left, &right, bindings)?;
    if left.len() != axes.len() {
        return Err(LayoutError::undefined(format!(
            "the left side of the view names {} axes, there are {}",
            left.len(),
            axes.len()
        )));
    }
    let mut letters: Vec<(&str, Vec<Digit>)> = Vec::new();
    for (axis, group) in axes.iter().zip(&left) {
        let extents = group_extents(axis.extent(), group, bindings)?;
        letters.extend(split(axis, group, &extents)?);
    }
    let digits_of = |letter: &str| {
        let found = letters.iter().find(|(name, _)| *name == letter);
        found.map(|(_, digits)| digits.clone()).expect("both sides have the same letters")
    };
    right
        .iter()
        .map(|group| {
            let digits: Vec<Digit> = group.iter().flat_map(|letter| digits_of(letter)).collect();
            Axis::of_digits(&digits)
        })
        .collect()
}

/// The letters of one axis, the slowest first.
type Group<'p> = Vec<&'p str>;

fn parse(pattern: &str) -> Result<(Vec<Group<'_>>, Vec<Group<'_>>), LayoutError> {
    if pattern.len() > MAX_LINE {
        return Err(LayoutError::too_large(format!(
            "the view pattern has {} bytes, the limit is {MAX_LINE}",
            pattern.len()
        )));
    }
    let Some((left, right)) = pattern.split_once("->") else {
        return Err(LayoutError::notation("a view pattern has two sides around `->`"));
    };
    Ok((parse_side(left, "left")?, parse_side(right, "right")?))
}

fn parse_side<'p>(side: &'p str, name: &str) -> Result<Vec<Group<'p>>, LayoutError> {
    let mut groups: Vec<Group<'p>> = Vec::new();
    let mut open: Option<Group<'p>> = None;
    let mut rest = side.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = match first {
            '(' if open.is_none() => {
                open = Some(Vec::new());
                1
            }
            ')' => {
                let Some(group) = open.take() else {
                    return Err(LayoutError::notation(format!(
                        "the {name} side of the view closes a group that is not open"
                    )));
                };
                if group.is_empty() {
                    return Err(LayoutError::notation(format!(
                        "the {name} side of the view has a group without letters"
                    )));
                }
                groups.push(group);
                1
            }
            '(' => {
                return Err(LayoutError::notation(format!(
                    "the {name} side of the view has a group within a group"
                )));
            }
            _ if first.is_ascii_alphabetic() || first == '_' => {
                let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
                match &mut open {
                    Some(group) => group.push(&rest[..length]),
                    None => groups.push(vec![&rest[..length]]),
                }
                length
            }
            _ => {
                return Err(LayoutError::notation(format!(
                    "the {name} side of the view has `{}` where a letter or a group goes",
                    first.escape_debug()
                )));
            }
        };
        rest = rest[length..].trim_start();
    }
    if open.is_some() {
        return Err(LayoutError::notation(format!(
            "the {name} side of the view has a group that is not closed"
        )));
    }
    let letters = groups.iter().map(Vec::len).sum::<usize>();
    if letters == 0 {
        return Err(LayoutError::notation(format!("the {name} side of the view is empty")));
    }
    if letters > MAX_DEPTH {
        return Err(LayoutError::too_large(format!(
            "the {name} side of the view has {letters} letters, the limit is {MAX_DEPTH}"
        )));
    }
    Ok(groups)
}

/// Both sides have the same letters, each once; bindings name letters of the left side, once.
fn check_letters(
    left: &[Group<'_>],
    right: &[Group<'_>],
    bindings: &[(&str, i64)],
) -> Result<(), LayoutError> {
    let left: Vec<&str> = left.iter().flatten().copied().collect();
    let right: Vec<&str> = right.iter().flatten().copied().collect();
    for (side, name) in [(&left, "left"), (&right, "right")] {
        for (position, letter) in side.iter().enumerate() {
            if side[..position].contains(letter) {
                return Err(LayoutError::notation(format!(
                    "the letter `{letter}` is twice on the {name} side of the view"
                )));
            }
        }
    }
    if let Some(lost) = left.iter().find(|letter| !right.contains(letter)) {
        return Err(LayoutError::notation(format!(
            "the letter `{lost}` is missing on the right side of the view"
        )));
    }
    if let Some(unknown) = right.iter().find(|letter| !left.contains(letter)) {
        return Err(LayoutError::notation(format!(
            "the letter `{unknown}` is missing on the left side of the view"
        )));
    }
    for (position, (letter, extent)) in bindings.iter().enumerate() {
        if !left.contains(letter) {
            return Err(LayoutError::notation(format!(
                "the letter `{}` is bound and not in the view pattern",
                letter.escape_debug()
            )));
        }
        if bindings[..position].iter().any(|(other, _)| other == letter) {
            return Err(LayoutError::notation(format!("the letter `{letter}` is bound twice")));
        }
        if *extent < 1 {
            return Err(LayoutError::undefined(format!(
                "the letter `{letter}` is bound to {extent}, extents are at least 1"
            )));
        }
    }
    Ok(())
}

/// The extents of the letters of one axis: bound ones as bound, one unbound one from what is left.
fn group_extents(
    extent: i64,
    group: &Group<'_>,
    bindings: &[(&str, i64)],
) -> Result<Vec<i64>, LayoutError> {
    let bound =
        |letter: &str| bindings.iter().find(|(name, _)| *name == letter).map(|(_, extent)| *extent);
    let shown = || format!("axis `{}` of extent {extent}", group.join(" "));
    let unbound: Vec<&str> =
        group.iter().copied().filter(|letter| bound(letter).is_none()).collect();
    if let [_, second, ..] = unbound.as_slice() {
        return Err(LayoutError::undefined(format!(
            "{}: the extents of `{}` and `{second}` are both unknown, bind one of them",
            shown(),
            unbound[0]
        )));
    }
    let mut known = 1_i64;
    for bound in group.iter().filter_map(|letter| bound(letter)) {
        known = multiply(known, bound, "the extents of a view")?;
    }
    let inferred = extent / known;
    if extent % known != 0 || (unbound.is_empty() && inferred != 1) {
        let relation = if unbound.is_empty() { "not that extent" } else { "not a divisor of it" };
        return Err(LayoutError::undefined(format!(
            "{}: the bound extents multiply to {known}, {relation}",
            shown()
        )));
    }
    Ok(group.iter().map(|letter| bound(letter).unwrap_or(inferred)).collect())
}

/// Deals the digits of an axis out to its letters, from the fastest.
fn split<'p>(
    axis: &Axis,
    group: &Group<'p>,
    extents: &[i64],
) -> Result<Vec<(&'p str, Vec<Digit>)>, LayoutError> {
    let mut stock: Vec<Digit> = axis.digits().to_vec();
    let mut letters = Vec::with_capacity(group.len());
    for (&letter, &extent) in group.iter().zip(extents).rev() {
        let mut wanted = extent;
        let mut digits = Vec::new();
        while wanted > 1 {
            let digit = stock.pop().expect("the extents multiply to that of the axis");
            if wanted % digit.extent == 0 {
                wanted /= digit.extent;
                digits.push(digit);
            } else if digit.extent % wanted == 0 {
                digits.push(Digit { extent: wanted, stride: digit.stride });
                let stride = multiply(wanted, digit.stride, "the strides of a view")?;
                stock.push(Digit { extent: digit.extent / wanted, stride });
                wanted = 1;
            } else {
                return Err(LayoutError::undefined(format!(
                    "letter `{letter}` of extent {extent} ends within the run {digit} of its \
                     axis, whose extent and {wanted} do not divide one another: no layout of the \
                     same storage"
                )));
            }
        }
        digits.reverse();
        letters.push((letter, digits));
    }
    Ok(letters)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row-major buffer.
    fn buffer(extents: &[i64]) -> Vec<Axis> {
        let layout = Layout::row_major(extents).unwrap();
        layout.digits().iter().map(|d| Axis::new(d.extent, d.stride).unwrap()).collect()
    }

    fn view(axes: &[Axis], pattern: &str, bindings: &[(&str, i64)]) -> String {
        match relabel(axes, pattern, bindings) {
            Ok(axes) => {
                let shown = |axis: &Axis| {
                    let digits: Vec<String> = axis.digits().iter().map(Digit::to_string).collect();
                    digits.join(" ")
                };
                axes.iter().map(shown).collect::<Vec<_>>().join(", ")
            }
            Err(error) => format!("{}: {error}", error.code()),
        }
    }

    #[test]
    fn splits_permutes_and_merges() {
        let w = buffer(&[6, 32]);
        assert_eq!(view(&w, "n (j k) -> n j k", &[("k", 8)]), "6:32, 4:8, 8:1");
        assert_eq!(view(&w, "n (j k) -> k j n", &[("j", 4)]), "8:1, 4:8, 6:32");
        assert_eq!(view(&w, "n m -> m n", &[]), "32:1, 6:32");
        assert_eq!(view(&w, "n m -> (n m)", &[]), "192:1");
        assert_eq!(view(&w, "n m -> (m n)", &[]), "32:1 6:32");
        assert_eq!(view(&w, "n (j k) -> j (n k)", &[("k", 8)]), "4:8, 6:32 8:1");
        assert_eq!(view(&w, "n (j k one) -> one (n j k)", &[("k", 8), ("one", 1)]), ", 192:1");
    }

    #[test]
    fn splits_an_axis_of_several_digits() {
        let w = buffer(&[6, 32]);
        let merged = relabel(&w, "n m -> (m n)", &[]).unwrap();
        assert_eq!(view(&merged, "(m n) -> n m", &[("n", 6)]), "6:32, 32:1");
        assert_eq!(view(&merged, "(m n) -> m n", &[("n", 12)]), "16:2, 2:1 6:32");
        assert_eq!(view(&merged, "(m n) -> m n", &[("n", 3)]), "32:1 2:96, 3:32");
        let refused = view(&merged, "(m n) -> m n", &[("n", 4)]);
        assert!(refused.starts_with("E0301: letter `n` of extent 4 ends within"), "{refused}");
    }

    #[test]
    fn each_mistake_is_named() {
        let w = buffer(&[6, 32]);
        type Case = (&'static str, &'static [(&'static str, i64)], &'static str);
        let cases: [Case; 15] = [
            ("n m", &[], "E0302: a view pattern has two sides"),
            ("n m -> n", &[], "E0302: the letter `m` is missing on the right"),
            ("n m -> n m k", &[], "E0302: the letter `k` is missing on the left"),
            ("n n -> n", &[], "E0302: the letter `n` is twice on the left"),
            ("n m -> n m n", &[], "E0302: the letter `n` is twice on the right"),
            ("n m -> m n", &[("z", 2)], "E0302: the letter `z` is bound and not in"),
            ("n (j k) -> n j k", &[("k", 8), ("k", 8)], "E0302: the letter `k` is bound twice"),
            ("n (j k) -> n j k", &[], "E0301: axis `j k` of extent 32: the extents of `j` and `k`"),
            ("n (j k) -> n j k", &[("k", 5)], "E0301: axis `j k` of extent 32: the bound extents"),
            ("n (j k) -> n j k", &[("k", 8), ("j", 2)], "E0301: axis `j k` of extent 32"),
            ("n (j k) -> n j k", &[("k", 0)], "E0301: the letter `k` is bound to 0"),
            ("n m k -> n m k", &[], "E0301: the left side of the view names 3 axes"),
            ("n (j (k)) -> n j k", &[], "E0302: the left side of the view has a group within"),
            ("n (j k -> n j k", &[], "E0302: the left side of the view has a group that is not"),
            ("n 8 -> n", &[], "E0302: the left side of the view has `8`"),
        ];
        for (pattern, bindings, message) in cases {
            let shown = view(&w, pattern, bindings);
            assert!(shown.starts_with(message), "{pattern}: {shown}");
        }
    }

    #[test]
    fn an_axis_knows_its_layout() {
        let axis = Axis::of_digits(&[
            Digit { extent: 32, stride: 1 },
            Digit { extent: 3, stride: 64 },
            Digit { extent: 2, stride: 32 },
        ]);
        let axis = axis.unwrap();
        assert_eq!(axis.to_layout().to_string(), "(6,32):(32,1)");
        assert_eq!((axis.extent(), axis.stride()), (192, None));
        let one = Axis::new(1, 7).unwrap();
        assert_eq!((one.extent(), one.stride()), (1, Some(0)));
        assert_eq!(one.to_layout().to_string(), "1:0");
        assert_eq!(Axis::new(0, 1).unwrap_err().code(), "E0301");
    }
}

//! Layout algebra: nested `shape:stride` layouts after CuTe, their operations and their notation.
//!
//! A layout maps the coordinates of a nested shape to indices: a coordinate is split into digits,
//! the first mode fastest, and each digit is multiplied by its stride.
//! Every extent is at least 1, every stride at least 0, and size and codomain fit in an `i64`;
//! the constructors refuse everything else, so no operation can overflow or meet an empty mode.
//!
//! What this module does *not* know: element types (except in [`bank`]), memory spaces, threads.
//!
//! Source of the definitions: the layout documentation and `pycute` of NVIDIA/cutlass; the domain
//! of each operation is the one that `tests/data/layout/README.md` states.

use std::fmt;

pub mod answer;
pub mod bank;
pub mod compose;
pub mod divide;
pub mod error;
pub mod expr;
pub mod inverse;
pub mod notation;
pub mod product;
pub mod relabel;
pub mod render;
pub mod simplify;
pub mod swizzle;
pub mod tiler;
pub mod tuple;

pub use answer::{Answer, AnswerOptions, answer_bytes, answer_line};
pub use compose::{complement, compose, compose_layouts};
pub use divide::{logical_divide, tiled_divide, zipped_divide};
pub use error::{LayoutError, LayoutErrorKind};
pub use expr::evaluate;
pub use inverse::{left_inverse, right_inverse};
pub use product::{logical_product, tiled_product, zipped_product};
pub use relabel::{Axis, relabel};
pub use render::{picture, svg, text_grid};
pub use simplify::{coalesce, filter};
pub use swizzle::{AnyLayout, ComposedLayout, Swizzle};
pub use tiler::Tiler;
pub use tuple::IntTuple;

/// The most indices that a map, a picture or a bank-conflict count may enumerate.
pub const MAX_MAP: i64 = 1 << 20;
/// The deepest nesting that notation, shapes and strides may have.
pub const MAX_DEPTH: usize = 64;
/// The deepest nesting of a result: each operation around an argument adds at most two levels.
const MAX_RESULT_DEPTH: usize = 4 * MAX_DEPTH;
/// The longest expression, in bytes.
pub const MAX_LINE: usize = 64 * 1024;

/// One digit of a coordinate: how many values it takes and how far one step moves the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digit {
    /// Number of values, at least 1.
    pub extent: i64,
    /// Index distance of one step, at least 0.
    pub stride: i64,
}

impl fmt::Display for Digit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.extent, self.stride)
    }
}

/// A nested `shape:stride` layout.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    root: Mode,
}

/// The tree of a layout; shape and stride share it, so they are congruent by construction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Mode {
    Leaf(Digit),
    Group(Vec<Mode>),
}

impl Layout {
    /// Pairs a shape with a stride of the same nesting.
    pub fn new(shape: &IntTuple, stride: &IntTuple) -> Result<Self, LayoutError> {
        let root = pair(shape, stride, 0)?;
        Self { root }.checked()
    }

    /// The layout `extent:stride` of one integer mode.
    pub fn of_int(extent: i64, stride: i64) -> Result<Self, LayoutError> {
        Self::new(&IntTuple::Int(extent), &IntTuple::Int(stride))
    }

    /// The identity `extent:1`.
    pub fn identity(extent: i64) -> Result<Self, LayoutError> {
        Self::of_int(extent, 1)
    }

    /// A flat layout with the given modes, the first fastest.
    pub fn of_digits(digits: &[Digit]) -> Result<Self, LayoutError> {
        for digit in digits {
            check_digit(*digit)?;
        }
        Self { root: Mode::Group(digits.iter().copied().map(Mode::Leaf).collect()) }.checked()
    }

    /// A compact layout of the given extents in which the first mode has stride 1.
    pub fn column_major(extents: &[i64]) -> Result<Self, LayoutError> {
        let mut digits = Vec::with_capacity(extents.len());
        let mut stride = 1_i64;
        for &extent in extents {
            digits.push(Digit { extent, stride });
            stride = error::multiply(stride, extent, "the strides of a compact layout")?;
        }
        Self::of_digits(&digits)
    }

    /// A compact layout of the given extents in which the last mode has stride 1.
    pub fn row_major(extents: &[i64]) -> Result<Self, LayoutError> {
        let mut digits = Vec::with_capacity(extents.len());
        let mut stride = 1_i64;
        for &extent in extents.iter().rev() {
            digits.push(Digit { extent, stride });
            stride = error::multiply(stride, extent, "the strides of a compact layout")?;
        }
        digits.reverse();
        Self::of_digits(&digits)
    }

    /// A layout whose modes are the given layouts, in their order.
    pub fn join(modes: Vec<Self>) -> Result<Self, LayoutError> {
        Self { root: Mode::Group(modes.into_iter().map(|mode| mode.root).collect()) }.checked()
    }

    /// What coalescing and composition give: one digit is an integer mode, several are a tuple.
    fn of_coalesced(digits: &[Digit]) -> Result<Self, LayoutError> {
        match digits {
            [one] => Self { root: Mode::Leaf(*one) }.checked(),
            _ => Self::of_digits(digits),
        }
    }

    /// The shape, with the nesting of the layout.
    pub fn shape(&self) -> IntTuple {
        project(&self.root, |digit| digit.extent)
    }

    /// The stride, congruent with the shape.
    pub fn stride(&self) -> IntTuple {
        project(&self.root, |digit| digit.stride)
    }

    /// Number of top-level modes; an integer layout has one.
    pub fn rank(&self) -> usize {
        match &self.root {
            Mode::Leaf(_) => 1,
            Mode::Group(modes) => modes.len(),
        }
    }

    /// The top-level modes; an integer layout is its own only mode.
    pub fn modes(&self) -> Vec<Self> {
        match &self.root {
            Mode::Leaf(_) => vec![self.clone()],
            Mode::Group(modes) => modes.iter().map(|mode| Self { root: mode.clone() }).collect(),
        }
    }

    /// All digits, the fastest first.
    pub fn digits(&self) -> Vec<Digit> {
        let mut digits = Vec::new();
        collect(&self.root, &mut digits);
        digits
    }

    /// Number of coordinates.
    pub fn size(&self) -> i64 {
        self.digits().iter().map(|digit| digit.extent).product()
    }

    /// One more than the largest index.
    pub fn cosize(&self) -> i64 {
        self.digits().iter().map(|digit| (digit.extent - 1) * digit.stride).sum::<i64>() + 1
    }

    /// The index of a one-dimensional coordinate; beyond the size the last digit goes on.
    /// `None` for a negative coordinate or an index that does not fit.
    pub fn index(&self, coordinate: i64) -> Option<i64> {
        index_of(&self.digits(), coordinate)
    }

    /// The index of every one-dimensional coordinate in order.
    pub fn map(&self) -> Result<Vec<i64>, LayoutError> {
        let size = self.size();
        if size > MAX_MAP {
            return Err(LayoutError::too_large(format!(
                "a map of {size} indices is above the limit of {MAX_MAP}"
            )));
        }
        let mut map = vec![0];
        for digit in self.digits() {
            let slower = (1..digit.extent).flat_map(|step| {
                let shift = step * digit.stride;
                map.iter().map(move |index| index + shift)
            });
            let slower: Vec<i64> = slower.collect();
            map.extend(slower);
        }
        Ok(map)
    }

    /// Whether the layout is one to one onto `0..size`.
    ///
    /// A sum of arithmetic progressions from 0 tiles an interval only if each stride is the span
    /// of the ones before it, so sorting the digits decides it.
    pub fn is_bijective(&self) -> bool {
        let mut digits: Vec<Digit> = self.digits().into_iter().filter(|d| d.extent > 1).collect();
        digits.sort_by_key(|digit| digit.stride);
        let mut span = 1_i128;
        digits.iter().all(|digit| {
            let fits = i128::from(digit.stride) == span;
            span = i128::from(digit.stride) * i128::from(digit.extent);
            fits
        })
    }

    /// Holds the invariants of the type: depth, size and codomain.
    fn checked(self) -> Result<Self, LayoutError> {
        if depth(&self.root) > MAX_RESULT_DEPTH {
            return Err(LayoutError::too_large(format!(
                "a layout nests more than {MAX_RESULT_DEPTH} levels deep"
            )));
        }
        if has_empty_group(&self.root) {
            return Err(LayoutError::undefined("a layout has at least one mode"));
        }
        let mut size = 1_i64;
        let mut last = 0_i64;
        for digit in self.digits() {
            size = error::multiply(size, digit.extent, "the size of a layout")?;
            let reach = error::multiply(digit.extent - 1, digit.stride, "the indices of a layout")?;
            last = error::add(last, reach, "the indices of a layout")?;
        }
        error::add(last, 1, "the indices of a layout")?;
        Ok(self)
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.shape(), self.stride())
    }
}

/// The index of a coordinate in a list of digits, the last of which is unbounded.
fn index_of(digits: &[Digit], coordinate: i64) -> Option<i64> {
    if coordinate < 0 {
        return None;
    }
    let (last, bounded) = digits.split_last()?;
    let mut rest = coordinate;
    let mut index = 0_i64;
    for digit in bounded {
        index = index.checked_add((rest % digit.extent).checked_mul(digit.stride)?)?;
        rest /= digit.extent;
    }
    index.checked_add(rest.checked_mul(last.stride)?)
}

fn pair(shape: &IntTuple, stride: &IntTuple, depth: usize) -> Result<Mode, LayoutError> {
    if depth > MAX_RESULT_DEPTH {
        return Err(LayoutError::too_large(format!(
            "a layout nests more than {MAX_RESULT_DEPTH} levels deep"
        )));
    }
    match (shape, stride) {
        (IntTuple::Int(extent), IntTuple::Int(stride)) => {
            let digit = Digit { extent: *extent, stride: *stride };
            check_digit(digit)?;
            Ok(Mode::Leaf(digit))
        }
        (IntTuple::Tuple(shapes), IntTuple::Tuple(strides)) => {
            if shapes.len() != strides.len() {
                return Err(LayoutError::notation(format!(
                    "shape and stride differ in nesting: a tuple of {} extents stands over one of {} strides",
                    shapes.len(),
                    strides.len()
                )));
            }
            if shapes.is_empty() {
                return Err(LayoutError::notation("an empty tuple is not a shape"));
            }
            let modes = shapes.iter().zip(strides).map(|(a, b)| pair(a, b, depth + 1));
            Ok(Mode::Group(modes.collect::<Result<_, _>>()?))
        }
        (IntTuple::Int(extent), IntTuple::Tuple(_)) => Err(LayoutError::notation(format!(
            "shape and stride differ in nesting: the extent {extent} has a tuple of strides"
        ))),
        (IntTuple::Tuple(_), IntTuple::Int(stride)) => Err(LayoutError::notation(format!(
            "shape and stride differ in nesting: a tuple of extents has the single stride {stride}"
        ))),
    }
}

fn check_digit(digit: Digit) -> Result<(), LayoutError> {
    if digit.extent < 1 {
        return Err(LayoutError::undefined(format!(
            "the mode {digit} has extent {}, extents are at least 1",
            digit.extent
        )));
    }
    if digit.stride < 0 {
        return Err(LayoutError::undefined(format!(
            "the mode {digit} has stride {}, strides are at least 0",
            digit.stride
        )));
    }
    Ok(())
}

fn project(mode: &Mode, part: fn(&Digit) -> i64) -> IntTuple {
    match mode {
        Mode::Leaf(digit) => IntTuple::Int(part(digit)),
        Mode::Group(modes) => {
            IntTuple::Tuple(modes.iter().map(|mode| project(mode, part)).collect())
        }
    }
}

fn collect(mode: &Mode, digits: &mut Vec<Digit>) {
    match mode {
        Mode::Leaf(digit) => digits.push(*digit),
        Mode::Group(modes) => modes.iter().for_each(|mode| collect(mode, digits)),
    }
}

fn has_empty_group(mode: &Mode) -> bool {
    match mode {
        Mode::Leaf(_) => false,
        Mode::Group(modes) => modes.is_empty() || modes.iter().any(has_empty_group),
    }
}

fn depth(mode: &Mode) -> usize {
    match mode {
        Mode::Leaf(_) => 0,
        Mode::Group(modes) => 1 + modes.iter().map(depth).max().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compact_layouts_are_bijective() {
        let rows = Layout::row_major(&[4, 8]).unwrap();
        assert_eq!(rows.to_string(), "(4,8):(8,1)");
        assert!(rows.is_bijective());
        assert_eq!(Layout::column_major(&[4, 8]).unwrap().to_string(), "(4,8):(1,4)");
        assert!(!Layout::of_int(4, 2).unwrap().is_bijective());
        assert!(!Layout::of_int(4, 0).unwrap().is_bijective());
    }

    #[test]
    fn the_map_lists_the_first_mode_fastest() {
        let rows = Layout::row_major(&[2, 3]).unwrap();
        assert_eq!(rows.map().unwrap(), [0, 3, 1, 4, 2, 5]);
        assert_eq!(rows.index(5), Some(5));
        assert_eq!(rows.index(7), Some(6), "the last digit goes on beyond the size");
        assert_eq!(rows.index(-1), None);
    }

    #[test]
    fn what_breaks_the_invariants_is_refused() {
        let code = |extent, stride| Layout::of_int(extent, stride).unwrap_err().code();
        assert_eq!(code(0, 1), "E0301");
        assert_eq!(code(2, -1), "E0301");
        assert_eq!(code(i64::MAX, 2), "E0303");
        assert_eq!(Layout::column_major(&[i64::MAX, 2]).unwrap_err().code(), "E0303");
        assert_eq!(Layout::join(Vec::new()).unwrap_err().code(), "E0301");
        let empty = IntTuple::Tuple(Vec::new());
        assert_eq!(Layout::new(&empty, &empty).unwrap_err().code(), "E0302");
    }
}

//! Swizzles and layouts composed with one: `swizzle(B,M,S) o OFFSET o LAYOUT`.

use std::fmt;

use super::error::add;
use super::{IntTuple, Layout, LayoutError};

/// Bits that an index of 63 bits leaves for a swizzle.
const MAX_BITS: i64 = 62;

/// An exclusive or of one run of index bits into another.
///
/// With a positive shift the `bits` bits from `base + shift` are shifted right onto those from
/// `base`; with a negative shift those from `base` are shifted left onto those from
/// `base - shift`. Source: CuTe `Swizzle<B, M, S>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Swizzle {
    bits: u32,
    base: u32,
    shift: i32,
}

impl Swizzle {
    /// Checks that the two runs do not overlap and lie within an index.
    pub fn new(bits: i64, base: i64, shift: i64) -> Result<Self, LayoutError> {
        let name = format!("swizzle({bits},{base},{shift})");
        if bits < 0 || base < 0 {
            return Err(LayoutError::undefined(format!(
                "{name}: the number of bits and the base are at least 0"
            )));
        }
        if i128::from(shift).abs() < i128::from(bits) {
            return Err(LayoutError::undefined(format!(
                "{name}: a shift by less than {bits} makes the two runs of {bits} bits overlap"
            )));
        }
        if i128::from(bits) + i128::from(base) + i128::from(shift).abs() > i128::from(MAX_BITS) {
            return Err(LayoutError::too_large(format!(
                "{name}: the bits lie beyond the {MAX_BITS} lowest"
            )));
        }
        let small = "all three are at most 62 in magnitude";
        Ok(Self {
            bits: u32::try_from(bits).expect(small),
            base: u32::try_from(base).expect(small),
            shift: i32::try_from(shift).expect(small),
        })
    }

    /// The number of bits, the base and the shift.
    pub fn parameters(self) -> (u32, u32, i32) {
        (self.bits, self.base, self.shift)
    }

    /// The swizzled index; negative indices do not exist.
    pub fn apply(self, index: i64) -> i64 {
        let mask = (1_i64 << self.bits) - 1;
        let distance = self.shift.unsigned_abs();
        if self.shift >= 0 {
            index ^ ((index & (mask << (self.base + distance))) >> distance)
        } else {
            index ^ ((index & (mask << self.base)) << distance)
        }
    }
}

impl fmt::Display for Swizzle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "swizzle({},{},{})", self.bits, self.base, self.shift)
    }
}

/// The map `i -> swizzle(offset + inner(i))`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ComposedLayout {
    swizzle: Swizzle,
    offset: i64,
    inner: Layout,
}

impl ComposedLayout {
    /// Checks that the offset is at least 0 and every index fits.
    pub fn new(swizzle: Swizzle, offset: i64, inner: Layout) -> Result<Self, LayoutError> {
        if offset < 0 {
            return Err(LayoutError::undefined(format!(
                "the offset {offset} of a composed layout is negative"
            )));
        }
        add(offset, inner.cosize(), "the indices of a composed layout")?;
        Ok(Self { swizzle, offset, inner })
    }

    /// The swizzle, applied last.
    pub fn swizzle(&self) -> Swizzle {
        self.swizzle
    }

    /// What is added before the swizzle.
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// The layout, applied first.
    pub fn inner(&self) -> &Layout {
        &self.inner
    }

    /// The index of a one-dimensional coordinate, as [`Layout::index`].
    pub fn index(&self, coordinate: i64) -> Option<i64> {
        let plain = self.inner.index(coordinate)?;
        Some(self.swizzle.apply(plain.checked_add(self.offset)?))
    }

    /// The same swizzle and offset over another inner layout.
    pub(super) fn with_inner(&self, inner: Layout) -> Result<Self, LayoutError> {
        Self::new(self.swizzle, self.offset, inner)
    }
}

impl fmt::Display for ComposedLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} o {} o {}", self.swizzle, self.offset, self.inner)
    }
}

/// A plain or a composed layout: whatever maps coordinates to indices.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AnyLayout {
    /// `shape:stride`.
    Plain(Layout),
    /// `swizzle(B,M,S) o OFFSET o shape:stride`.
    Composed(ComposedLayout),
}

impl AnyLayout {
    /// The `shape:stride` part, which is the whole of a plain layout.
    pub fn inner(&self) -> &Layout {
        match self {
            Self::Plain(layout) => layout,
            Self::Composed(composed) => composed.inner(),
        }
    }

    /// The shape of the coordinates.
    pub fn shape(&self) -> IntTuple {
        self.inner().shape()
    }

    /// Number of coordinates.
    pub fn size(&self) -> i64 {
        self.inner().size()
    }

    /// The index of a one-dimensional coordinate, as [`Layout::index`].
    pub fn index(&self, coordinate: i64) -> Option<i64> {
        match self {
            Self::Plain(layout) => layout.index(coordinate),
            Self::Composed(composed) => composed.index(coordinate),
        }
    }

    /// The index of every one-dimensional coordinate in order.
    pub fn map(&self) -> Result<Vec<i64>, LayoutError> {
        let map = self.inner().map()?;
        Ok(match self {
            Self::Plain(_) => map,
            Self::Composed(composed) => map
                .into_iter()
                .map(|index| composed.swizzle.apply(composed.offset + index))
                .collect(),
        })
    }
}

impl From<Layout> for AnyLayout {
    fn from(layout: Layout) -> Self {
        Self::Plain(layout)
    }
}

impl From<ComposedLayout> for AnyLayout {
    fn from(composed: ComposedLayout) -> Self {
        Self::Composed(composed)
    }
}

impl fmt::Display for AnyLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(layout) => write!(f, "{layout}"),
            Self::Composed(composed) => write!(f, "{composed}"),
        }
    }
}

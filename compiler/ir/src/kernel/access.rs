//! What a statement touches of a buffer or of a tile in shared memory, and by which policy of the caches.

use kernel_dsl::source::Span;
use serde::{Deserialize, Serialize};

use super::{Extent, ParamId, Storage, ValueId};

/// A rectangular piece of a buffer or of a tile in shared memory, seen through a view.
#[derive(Debug, Clone)]
pub struct TileAccess {
    /// The memory.
    pub storage: Storage,
    /// Axes of the view, outermost first.
    pub axes: Vec<ViewAxis>,
    /// One entry an axis of the view, `New` entries between them. `Range`, `Gather` and `New` make the axes
    /// of the tile, in this order.
    pub index: Vec<AxisIndex>,
    /// The whole `load`/`store` text, for messages.
    pub span: Span,
}

/// One axis of a view: a mixed-radix number whose digits have strides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewAxis {
    /// Extent of the axis.
    pub extent: Extent,
    /// Digits, slowest first; position `i` is split by the digit extents. The slowest digit's extent is
    /// not used for the split, so that it may be unbounded.
    pub digits: Vec<ViewDigit>,
}

/// A digit of a view axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewDigit {
    /// Number of values.
    pub extent: u32,
    /// Elements between two values.
    pub stride: i64,
}

/// How an axis of a view is indexed.
#[derive(Debug, Clone)]
pub enum AxisIndex {
    /// One position; the axis is dropped.
    At(ValueId),
    /// `start .. + len [until bound]`: positions at or past the bound are absent.
    Range {
        /// i32 scalar.
        start: ValueId,
        /// Length.
        len: u32,
        /// i32 scalar.
        until: Option<ValueId>,
    },
    /// Positions from an i32 tile of rank 1; negative entries are absent.
    Gather(ValueId),
    /// Positions from a further i32 tile of rank 1, taken together with the `Gather` that stands before it
    /// in the access: entry by entry, along the axis that that one makes.
    Along(ValueId),
    /// A new axis of extent 1.
    New,
}

/// What a prefetch covers.
#[derive(Debug, Clone)]
pub enum PrefetchRange {
    /// A rectangular piece.
    Tile(TileAccess),
    /// A box, by one thread; positions outside of the buffer are none.
    Box(TileAccess),
    /// Elements `start..end` of a one-dimensional buffer, with run-time bounds.
    Elements {
        /// The buffer.
        param: ParamId,
        /// i32 or i64 scalar.
        start: ValueId,
        /// i32 or i64 scalar.
        end: ValueId,
    },
}

/// Cache policy of a load or store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
pub struct CachePolicy {
    /// `evict first|last`: priority in L2.
    pub evict: Option<Evict>,
    /// `no_allocate`: leave L1 alone.
    pub no_allocate: bool,
}

/// Priority of eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Evict {
    /// Goes first.
    First,
    /// Stays longest.
    Last,
}

//! Tiles in shared memory and in tensor memory, and what an access touches.

use kernel_abi::DType;
use kernel_dsl::source::Span;
use serde::{Deserialize, Serialize};

use super::{AxisIndex, Kernel, ParamId, SmemId, TileAccess, ValueId, ViewAxis};
use crate::ops::ReduceOp;

/// Which memory of the CTA a tile lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// Shared memory.
    Shared,
    /// Tensor memory: 128 rows of 32-bit columns. Products write sums there, which `load` reads; `store` writes left
    /// operands.
    Tensor,
}

/// Bits of a row in a column of tensor memory.
const COLUMN_BITS: u32 = 32;

/// A tile in shared memory, with `slots` ring slots. Elements lie row-major, permuted by the swizzle. Or one in tensor
/// memory: element `[i, j]` is row `i` of its column `j`, and of 16 bits two of a row are in a column.
#[derive(Debug, Clone)]
pub struct Smem {
    /// The author's name.
    pub name: String,
    /// Where it lies.
    pub space: Space,
    /// Element type.
    pub dtype: DType,
    /// Extents of one slot.
    pub shape: Vec<u32>,
    /// Ring slots; 1 without `ring`.
    pub slots: u32,
    /// Which 16-byte pieces change places.
    pub swizzle: SmemSwizzle,
    /// Each slot starts at a multiple of this many bytes, a power of two.
    pub align: u32,
    /// In tensor memory: the second half of the columns of 64 rows lies below the first, in rows 64 to 127 of the same
    /// columns, as products of a pair of CTAs with 128 rows have it.
    pub folded: bool,
    /// Where it is declared.
    pub span: Span,
}

impl Smem {
    /// True for a tile in tensor memory.
    pub fn is_tensor(&self) -> bool {
        self.space == Space::Tensor
    }

    /// Columns of tensor memory of one slot.
    pub fn columns(&self) -> u32 {
        let columns = self.shape.last().copied().unwrap_or(0).div_ceil(self.column_elements());
        if self.folded { columns.div_ceil(2) } else { columns }
    }

    /// Elements of a row in each column of tensor memory.
    pub fn column_elements(&self) -> u32 {
        (COLUMN_BITS / self.dtype.bits().max(1)).max(1)
    }

    /// Bytes of the elements of one slot.
    pub fn bytes(&self) -> u64 {
        let elements = self.shape.iter().fold(1u64, |n, &e| n.saturating_mul(u64::from(e)));
        elements.saturating_mul(u64::from(self.dtype.bits())).div_ceil(8)
    }

    /// Bytes that the elements of one slot lie within: a swizzle spreads the last of them over their line.
    pub fn span_bytes(&self) -> u64 {
        match self.swizzle {
            SmemSwizzle::None => self.bytes(),
            SmemSwizzle::B32 | SmemSwizzle::B64 | SmemSwizzle::B128 => {
                self.bytes().checked_next_multiple_of(128).unwrap_or(u64::MAX)
            }
        }
    }

    /// Bytes from one slot to the next.
    pub fn slot_bytes(&self) -> u64 {
        self.bytes().checked_next_multiple_of(u64::from(self.align)).unwrap_or(u64::MAX)
    }
}

/// How a tile in shared memory is permuted: within lines of 128 bytes the 16-byte piece number gets the low
/// bits of the line number as an exclusive or. In the words of layouts, on bytes: `swizzle(bits, 4, 3)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SmemSwizzle {
    /// Row-major.
    None,
    /// One bit.
    B32,
    /// Two bits.
    B64,
    /// Three bits.
    B128,
}

impl SmemSwizzle {
    /// Bits that are exchanged.
    pub fn bits(self) -> u32 {
        match self {
            SmemSwizzle::None => 0,
            SmemSwizzle::B32 => 1,
            SmemSwizzle::B64 => 2,
            SmemSwizzle::B128 => 3,
        }
    }

    /// Bytes of a line, in which pieces change places.
    pub fn line(self) -> Option<u32> {
        match self {
            SmemSwizzle::None => None,
            SmemSwizzle::B32 | SmemSwizzle::B64 | SmemSwizzle::B128 => Some(16 << self.bits()),
        }
    }

    /// Bytes after which the pattern repeats; a slot starts at a multiple of it.
    pub fn period(self) -> u32 {
        match self {
            SmemSwizzle::None => 16,
            SmemSwizzle::B32 | SmemSwizzle::B64 | SmemSwizzle::B128 => 128 << self.bits(),
        }
    }

    /// The name in the source, or nothing.
    pub fn name(self) -> Option<&'static str> {
        match self {
            SmemSwizzle::None => None,
            SmemSwizzle::B32 => Some("b32"),
            SmemSwizzle::B64 => Some("b64"),
            SmemSwizzle::B128 => Some("b128"),
        }
    }
}

/// The memory that an access touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// The buffer of a parameter.
    Buffer(ParamId),
    /// A slot of a tile in shared memory: an i32 scalar that counts modulo the ring, none without a ring.
    Smem(SmemId, Option<ValueId>),
    /// The same in another CTA of the cluster: an i32 scalar says which.
    Remote(SmemId, Option<ValueId>, ValueId),
    /// The buffer of a parameter on the rank that an i32 scalar says.
    Peer(ParamId, ValueId),
    /// The buffer of a parameter on every rank: a store alone, whose first axis has the extent 1.
    Peers(ParamId),
    /// The buffer of a parameter on all ranks at once, at the multicast address that another parameter has: a store
    /// goes to each, a load gives the fold of what they have.
    Multicast(ParamId, Option<ReduceOp>),
}

impl Storage {
    /// The parameter, where it is a buffer.
    pub fn param(self) -> Option<ParamId> {
        match self {
            Storage::Buffer(param)
            | Storage::Peer(param, _)
            | Storage::Peers(param)
            | Storage::Multicast(param, _) => Some(param),
            Storage::Smem(..) | Storage::Remote(..) => None,
        }
    }

    /// The scalar that chooses the slot, if there is one.
    pub fn slot(self) -> Option<ValueId> {
        match self {
            Storage::Buffer(_) | Storage::Peer(..) | Storage::Peers(_) | Storage::Multicast(..) => {
                None
            }
            Storage::Smem(_, slot) | Storage::Remote(_, slot, _) => slot,
        }
    }

    /// The tile and its slot, where it is shared memory of some CTA.
    pub fn tile(self) -> Option<(SmemId, Option<ValueId>)> {
        match self {
            Storage::Buffer(_) | Storage::Peer(..) | Storage::Peers(_) | Storage::Multicast(..) => {
                None
            }
            Storage::Smem(tile, slot) | Storage::Remote(tile, slot, _) => Some((tile, slot)),
        }
    }

    /// The scalar that chooses the CTA of the cluster, where it is not the own one.
    pub fn cta(self) -> Option<ValueId> {
        match self {
            Storage::Buffer(_)
            | Storage::Smem(..)
            | Storage::Peer(..)
            | Storage::Peers(_)
            | Storage::Multicast(..) => None,
            Storage::Remote(_, _, cta) => Some(cta),
        }
    }

    /// True for memory of one rank or of all that a store goes to.
    pub fn is_of_ranks(self) -> bool {
        matches!(self, Storage::Peer(..) | Storage::Peers(_) | Storage::Multicast(..))
    }

    /// The scalar that chooses the rank, where it is memory of any rank.
    pub fn rank(self) -> Option<ValueId> {
        match self {
            Storage::Buffer(_)
            | Storage::Smem(..)
            | Storage::Remote(..)
            | Storage::Peers(_)
            | Storage::Multicast(..) => None,
            Storage::Peer(_, rank) => Some(rank),
        }
    }
}

impl ViewAxis {
    /// Elements from its first position to another; nothing where that is no number.
    pub fn offset_of(&self, position: u32) -> Option<i64> {
        let mut left = position;
        let mut offset = 0i64;
        for (i, digit) in self.digits.iter().enumerate().rev() {
            let value = if i == 0 { left } else { left % digit.extent.max(1) };
            left /= digit.extent.max(1);
            offset = offset.checked_add(digit.stride.checked_mul(value.into())?)?;
        }
        Some(offset)
    }
}

impl Kernel {
    /// Element type of what an access touches.
    pub fn dtype_of(&self, storage: Storage) -> DType {
        match storage {
            Storage::Buffer(param)
            | Storage::Peer(param, _)
            | Storage::Peers(param)
            | Storage::Multicast(param, _) => self.params[param].dtype,
            Storage::Smem(tile, _) | Storage::Remote(tile, ..) => self.smem[tile].dtype,
        }
    }

    /// The author's name of what an access touches.
    pub fn name_of(&self, storage: Storage) -> &str {
        match storage {
            Storage::Buffer(param)
            | Storage::Peer(param, _)
            | Storage::Peers(param)
            | Storage::Multicast(param, _) => &self.params[param].name,
            Storage::Smem(tile, _) | Storage::Remote(tile, ..) => &self.smem[tile].name,
        }
    }

    /// Where what an access touches is declared.
    pub fn declaration_of(&self, storage: Storage) -> Span {
        match storage {
            Storage::Buffer(param)
            | Storage::Peer(param, _)
            | Storage::Peers(param)
            | Storage::Multicast(param, _) => self.params[param].span,
            Storage::Smem(tile, _) | Storage::Remote(tile, ..) => self.smem[tile].span,
        }
    }
}

impl TileAccess {
    /// Calls `see` with every value that chooses what is touched.
    pub fn each_use(&self, mut see: impl FnMut(ValueId)) {
        let chosen = [self.storage.slot(), self.storage.cta(), self.storage.rank()];
        chosen.into_iter().flatten().for_each(&mut see);
        for index in &self.index {
            match index {
                AxisIndex::At(x) | AxisIndex::Gather(x) | AxisIndex::Along(x) => see(*x),
                AxisIndex::Range { start, len: _, until } => {
                    see(*start);
                    until.iter().for_each(|x| see(*x));
                }
                AxisIndex::New => {}
            }
        }
    }
}

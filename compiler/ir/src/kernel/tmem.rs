//! Products in tensor memory, `mma … via ATOM` with an atom of `tcgen05`: one thread starts them, and they run on their
//! own until a barrier that they are committed to is complete.
//!
//! Each product reads both operands from shared memory, or the left one from tensor memory, and adds to a tile in tensor
//! memory. From its `mma` on until the
//! round of the `commit` behind it is complete, a product may read its operands and change its sums at any time.
//! Products of one thread follow each other in order. A `load` from tensor memory runs on its own too, until `settle`.

use kernel_abi::DType;
use kernel_dsl::source::Span;

use super::{Start, Stmt, StmtKind, TileAccess, ValueId, VarId};

/// What a role does with tensor memory.
#[derive(Debug, Clone)]
pub enum Tensor {
    /// `mma a * b^T -> acc via ATOM`
    Mma(Box<TensorMma>),
    /// `load acc[…] -> r`: all rows of some columns come to registers, not before the `settle`.
    Load {
        /// The tile in registers, f32.
        var: VarId,
        /// Its slot.
        slot: u32,
        /// What is read, in tensor memory.
        access: TileAccess,
    },
    /// `store v -> p[…]`: columns of all rows get values from registers, and the threads wait until they are there.
    Store {
        /// Elements of 16 bits.
        value: ValueId,
        /// Where they go, in tensor memory.
        access: TileAccess,
    },
    /// `settle r;`: the load to `r` is complete.
    Settle {
        /// The tile in registers.
        var: VarId,
        /// Its slot.
        slot: u32,
    },
}

/// A product.
#[derive(Debug, Clone)]
pub struct TensorMma {
    /// The sums, f32 `[m, n]`, in tensor memory.
    pub acc: TileAccess,
    /// Left operand, `[m, k]` with k contiguous, in shared memory, as [`TensorAtom::stored`] says; or in tensor memory, two
    /// elements of 16 bits a column.
    pub a: TileAccess,
    /// Right operand, `[n, k]` with k contiguous, likewise.
    pub b: TileAccess,
    /// What one instruction does.
    pub atom: TensorAtom,
    /// Where the sums start from.
    pub start: Start,
    /// Scales of both operands, ue8m0, one for each [`SCALE_GROUP`] elements of a row, in shared memory in the order of
    /// [`scale_place`].
    pub scales: Option<[TileAccess; 2]>,
}

impl TensorMma {
    /// What it reads: both operands, then their scales.
    pub fn reads(&self) -> impl Iterator<Item = &TileAccess> {
        [&self.a, &self.b].into_iter().chain(self.scales.iter().flatten())
    }

    /// Calls `see` with every value that the product reads.
    pub fn each_use(&self, mut see: impl FnMut(ValueId)) {
        for access in self.reads().chain([&self.acc]) {
            access.each_use(&mut see);
        }
        if let Start::When(cond) = self.start {
            see(cond);
        }
    }
}

impl Tensor {
    /// Calls `see` with every access of a tile.
    pub fn each_access<'a>(&'a self, mut see: impl FnMut(&'a TileAccess)) {
        match self {
            Tensor::Mma(mma) => mma.reads().chain([&mma.acc]).for_each(see),
            Tensor::Load { access, .. } | Tensor::Store { access, .. } => see(access),
            Tensor::Settle { .. } => {}
        }
    }

    /// Calls `see` with every value that is read.
    pub fn each_use(&self, mut see: impl FnMut(ValueId)) {
        match self {
            Tensor::Mma(mma) => mma.each_use(see),
            Tensor::Load { access, .. } => access.each_use(see),
            Tensor::Store { value, access } => {
                see(*value);
                access.each_use(see);
            }
            Tensor::Settle { .. } => {}
        }
    }
}

/// `atom NAME = tcgen05(m = 128, n = …, k = 16, a = …, b = …, d = f32);`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorAtom {
    /// Rows of the sums: 64 or 128; of a pair of CTAs 128 or 256.
    pub m: u32,
    /// Columns of the sums: a multiple of 16, or of 8 with 64 rows; at most 256.
    pub n: u32,
    /// Types of both operands: bf16 or f16 twice, or e4m3 and e5m2 as one likes; with scales these or e2m1 twice.
    pub types: [DType; 2],
    /// Operands come with block scales.
    pub scaled: bool,
    /// `cta_group = 2`: two CTAs share the instruction, which the first one starts. Each has half of the rows of the sums
    /// and of the left operand, and half of the rows of the right one: of several atoms the own part of each, one after the
    /// other.
    pub pair: bool,
}

impl TensorAtom {
    /// Rows of tensor memory.
    pub const ROWS: u32 = 128;
    /// Rows of an atom that uses half of them: 16 of those that a warp reaches.
    pub const HALF: u32 = 64;
    /// Rows of an atom of a pair of CTAs.
    pub const PAIR: u32 = 256;
    /// Most columns.
    pub const MAX_COLUMNS: u32 = 256;
    /// Bytes of each row of an operand that one instruction reads.
    pub const DEPTH_BYTES: u32 = 32;

    /// Positions of k.
    pub fn depth(self) -> u32 {
        Self::DEPTH_BYTES * 8 / self.types[0].bits()
    }

    /// The types that operands have in shared memory: of packed ones two lie in a byte, the first in its low half.
    pub fn stored(self) -> [DType; 2] {
        self.types.map(stored)
    }

    /// Stored elements of each row that one instruction reads.
    pub fn stored_depth(self) -> u32 {
        Self::DEPTH_BYTES * 8 / self.stored()[0].bits()
    }

    /// Elements of an operand in each that is stored.
    pub fn packing(self) -> u32 {
        self.depth() / self.stored_depth()
    }

    /// CTAs that share it.
    pub fn ctas(self) -> u32 {
        if self.pair { 2 } else { 1 }
    }

    /// Rows of the sums in each CTA.
    pub fn own_rows(self) -> u32 {
        self.m / self.ctas()
    }

    /// Rows of the right operand in each CTA.
    pub fn own_columns(self) -> u32 {
        self.n / self.ctas()
    }

    /// Each CTA has 64 rows of the sums, of which the second half of the columns lies below the first.
    pub fn folds(self) -> bool {
        self.pair && self.own_rows() == Self::HALF
    }

    /// Columns come in multiples of this many.
    pub fn column_step(rows: u32, pair: bool) -> u32 {
        match rows {
            _ if pair => 32,
            Self::HALF => 8,
            _ => 16,
        }
    }
}

/// What elements of an operand are in shared memory.
pub fn stored(dtype: DType) -> DType {
    if dtype == DType::E2m1 { DType::U8 } else { dtype }
}

/// Elements of a row that share a scale.
pub const SCALE_GROUP: u32 = 32;

/// Rows whose scales lie together: those of four groups of each are one piece of shared memory.
pub const SCALE_ROWS: u32 = 128;

/// Groups of a row whose scales are one word.
pub const SCALE_WORD: u32 = 4;

/// Bytes of such a piece, which is copied to four columns of tensor memory at once.
pub const SCALE_BYTES: u32 = SCALE_ROWS * SCALE_WORD;

/// The byte of a piece with the scale of a row and a group: 32 rows one after the other with 16 bytes each, in which the
/// words of every 32nd row follow each other.
pub fn scale_place(row: u32, group: u32) -> u32 {
    row % 32 * 16 + row / 32 % 4 * 4 + group % SCALE_WORD
}

/// Columns of tensor memory that the scales of so many rows take, for so many groups.
pub fn scale_columns(rows: u32, groups: u32) -> u32 {
    rows.div_ceil(SCALE_ROWS) * (SCALE_ROWS / 32) * groups.div_ceil(SCALE_WORD)
}

/// Columns of tensor memory that a CTA can have.
pub const TENSOR_COLUMNS: u32 = 512;

/// Warps that reach all 128 rows of tensor memory: each reaches 32.
pub const TENSOR_WARPS: u32 = 4;

/// The first product that a pair of CTAs shares, if there is one.
pub fn first_of_pair(stmts: &[Stmt]) -> Option<Span> {
    stmts.iter().find_map(|stmt| match &stmt.kind {
        StmtKind::Tensor(Tensor::Mma(mma)) if mma.atom.pair => Some(stmt.span),
        kind => kind.bodies().into_iter().find_map(first_of_pair),
    })
}

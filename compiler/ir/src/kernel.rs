//! The kernel level: one operation handles a whole tile.
//!
//! A [`Kernel`] is what instantiation makes of a kernel template for given bindings and a target:
//! `const` parameters are numbers, functions are inlined, `unroll` loops are written out, `const if` is
//! decided. Values are in static single assignment form; tiles that the author assigns to (`frag`
//! declarations) are [`Var`]s with one or more ring slots. Control flow takes scalars only, so every
//! statement is reached by all threads of the role or by none.

mod access;
mod cluster;
mod contract;
mod inline;
mod outgoing;
mod pipe;
mod ranks;
mod role;
mod smem;
mod tensor;
mod tmem;
mod walk;
mod warpgroup;
mod words;

use std::sync::Arc;

use kernel_abi::stored::StoredLayout;
use kernel_abi::{Access, DType};
use kernel_dsl::source::Span;
use serde::{Deserialize, Serialize};

use crate::distribution::Distribution;
use crate::index::IndexVec;
use crate::ops::{AtomicOp, BinaryOp, CompareOp, ReduceOp, UnaryOp};
use crate::target::Target;

pub use access::{AxisIndex, CachePolicy, Evict, PrefetchRange, TileAccess, ViewAxis, ViewDigit};
pub use cluster::ClusterAxis;
pub use contract::{Contract, ContractBound, Distinct};
pub(crate) use outgoing::tell_settles;
pub use outgoing::{Leaving, Outgoing};
pub use pipe::{Barrier, Between, CopyWay, PipeOp, copied, each_access, each_pipe_op};
pub use ranks::{Await, MAX_WORLD, RANK, Signal};
pub use role::{MAX_ROLES, Role, WARPGROUP, entry_registers};
pub use smem::{Smem, SmemSwizzle, Space, Storage};
pub use tensor::{BOX_ALIGN, MapAxis, TensorBox, TensorMap, find_map, tensor_box, tensor_maps};
pub use tmem::{
    SCALE_BYTES, SCALE_GROUP, SCALE_ROWS, SCALE_WORD, TENSOR_COLUMNS, TENSOR_WARPS, Tensor,
    TensorAtom, TensorMma, first_of_pair, scale_columns, scale_place, stored,
};
pub(crate) use walk::defined_in;
pub use warpgroup::{LeftOperand, Start, Warpgroup, WarpgroupMma, WgmmaAtom, multiplies};
pub use words::{Word, Words};

ids! {
    /// A parameter of a kernel.
    ParamId = "p";
    /// A value: a scalar or a tile that is defined once.
    ValueId = "v";
    /// A tile that is assigned to.
    VarId = "t";
    /// A tile in shared memory, or in tensor memory.
    SmemId = "s";
    /// A role.
    RoleId = "role";
    /// A barrier at which roles hand slots over.
    BarrierId = "b";
    /// A tensor map.
    MapId = "m";
}

/// A kernel with all shapes and distributions concrete.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// Name in the source.
    pub name: String,
    /// Symbol in the cubin.
    pub export: String,
    /// Values of the `const` parameters, in the order of declaration.
    pub bindings: Vec<(String, i64)>,
    /// What it is compiled for.
    pub target: Target,
    /// Launch shape and attributes.
    pub launch: Launch,
    /// Parameters in the order of declaration; scalars included.
    pub params: IndexVec<ParamId, Param>,
    /// Every value, with its type and distribution.
    pub values: IndexVec<ValueId, Value>,
    /// Every assignable tile.
    pub vars: IndexVec<VarId, Var>,
    /// Every tile in shared memory, and in tensor memory.
    pub smem: IndexVec<SmemId, Smem>,
    /// Every role.
    pub roles: IndexVec<RoleId, Role>,
    /// Every barrier of roles.
    pub barriers: IndexVec<BarrierId, Barrier>,
    /// Texts of the events that `trace` writes down; none where nobody asks for them.
    pub events: Vec<String>,
    /// The statements.
    pub body: Vec<Stmt>,
    /// Findings that the author has waived: `// allow E0107: reason`.
    pub waivers: Vec<Waiver>,
    /// Span of the kernel's name.
    pub span: Span,
}

/// A waived finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiver {
    /// Code in text form, `E0107`.
    pub code: String,
    /// The author's reason.
    pub reason: String,
    /// The statement that it stands before.
    pub span: Span,
}

/// Launch shape and attributes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// CTAs along x, y, z.
    pub grid: [u32; 3],
    /// CTAs of a cluster along x, y, z; they divide the grid.
    pub cluster: [u32; 3],
    /// Warps of a CTA.
    pub warps: u32,
    /// Programmatic dependent launch.
    pub pdl: Pdl,
    /// CTAs that must fit on one SM, if stated.
    pub min_ctas: Option<u32>,
    /// Ranks that run the kernel together, if it is one of several ranks.
    pub world: Option<u32>,
    /// All CTAs must be on the device at once.
    pub resident: bool,
}

impl Launch {
    /// Threads of a CTA.
    pub fn threads(&self) -> u32 {
        self.warps * crate::distribution::LANES
    }

    /// CTAs of the grid.
    pub fn ctas(&self) -> u64 {
        self.grid.iter().fold(1, |n, &extent| n.saturating_mul(u64::from(extent)))
    }

    /// CTAs of a cluster.
    pub fn cluster_size(&self) -> u32 {
        self.cluster.iter().product()
    }

    /// The extents of the grid, but 1 along axes on which all CTAs are of one cluster.
    pub fn between_clusters(&self) -> [u32; 3] {
        let extents = self.grid.iter().zip(self.cluster);
        let mut between = [1; 3];
        for (between, (&grid, cluster)) in between.iter_mut().zip(extents) {
            *between = if grid == cluster { 1 } else { grid };
        }
        between
    }
}

/// The kernel's part in programmatic dependent launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Pdl {
    /// Plain stream order on both sides.
    None,
    /// Lets the next kernel start early.
    Producer,
    /// May start before its predecessor has finished.
    Consumer,
    /// Both.
    Both,
}

impl Pdl {
    /// True where the kernel may start before its predecessor has finished.
    pub fn is_consumer(self) -> bool {
        matches!(self, Pdl::Consumer | Pdl::Both)
    }

    /// True where the kernel lets its successor start early.
    pub fn is_producer(self) -> bool {
        matches!(self, Pdl::Producer | Pdl::Both)
    }
}

/// A kernel parameter.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Param {
    /// Name in the source.
    pub name: String,
    /// Who may write it.
    pub access: Access,
    /// `settled`: reads are legal before `grid_wait`.
    pub settled: bool,
    /// `counter` or `epoch`: words between CTAs or launches, touched by their own forms only.
    pub words: Option<Words>,
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first; empty for a scalar.
    pub shape: Vec<Extent>,
    /// `stored LAYOUT`: the memory layout where it is not row-major.
    pub stored: Option<StoredLayout>,
    /// `scaled_by(s, group = n)`: where the scales of its elements are.
    pub scaled: Option<Scaled>,
    /// `of x`: the memory of ranks that a multicast address reaches.
    pub of: Option<ParamId>,
    /// What the author promises about the values: `in lo..hi`.
    pub contract: Option<Contract>,
    /// Where it is declared.
    #[serde(skip)]
    pub span: Span,
}

impl Param {
    /// The contract, where it holds of everything that the kernel can load: of a buffer that it may itself
    /// write, a contract says what holds after the run.
    pub fn kept_contract(&self) -> Option<Contract> {
        match self.access {
            Access::Static | Access::Input | Access::Peer | Access::Multicast | Access::Scalar => {
                self.contract
            }
            Access::Output | Access::Inout | Access::Scratch => None,
        }
    }

    /// Elements of the buffer when every extent is a constant.
    pub fn const_len(&self) -> Option<u64> {
        self.shape.iter().try_fold(1u64, |n, e| match e {
            Extent::Const(c) => n.checked_mul(u64::from(*c)),
            Extent::Scalar(_) => None,
        })
    }
}

/// The scales of a buffer: one for `group` neighbours along its last axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scaled {
    /// The buffer of scales: the same extents, the last one divided by `group`.
    pub by: ParamId,
    /// Elements that share a scale; a power of two.
    pub group: u32,
}

/// An extent of a buffer; only the outermost may be a run-time scalar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Extent {
    /// Known at instantiation.
    Const(u32),
    /// The value of a `scalar` parameter.
    Scalar(ParamId),
}

/// A value: scalar (rank 0) or tile.
#[derive(Debug, Clone)]
pub struct Value {
    /// Element type.
    pub dtype: DType,
    /// Extents; empty for a scalar.
    pub shape: Vec<u32>,
    /// How it is spread over threads.
    pub distribution: Distribution,
    /// The author's name for it, for printing.
    pub name: Option<String>,
    /// Where it is computed.
    pub span: Span,
}

impl Value {
    /// True for rank 0.
    pub fn is_scalar(&self) -> bool {
        self.shape.is_empty()
    }
}

/// A tile that is assigned to, with `slots` ring slots.
#[derive(Debug, Clone)]
pub struct Var {
    /// The author's name.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Extents of one slot.
    pub shape: Vec<u32>,
    /// Ring slots; 1 without `ring`.
    pub slots: u32,
    /// `spread(...)`, if the author wrote it.
    pub spread: Option<Spread>,
    /// `via mma_sync`: it holds sums of the tensor core.
    pub via_mma: bool,
    /// How a slot is spread over threads.
    pub distribution: Distribution,
    /// Where it is declared.
    pub span: Span,
}

/// `spread(warp: 0, lane: 1, vec: 1)`: which axes warps, lanes and vector elements run along, nearest
/// first. What it leaves open is decided as for a tile without it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spread {
    /// Axes that warps run along.
    pub warp: Vec<SpreadAxis>,
    /// Axes that lanes run along.
    pub lane: Vec<SpreadAxis>,
    /// Axes that vector elements run along.
    pub vec: Vec<SpreadAxis>,
    /// Where it stands.
    pub span: Option<Span>,
}

/// An axis, or a factor of it: `1` or `(1, 4)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpreadAxis {
    /// Axis of the tile.
    pub axis: u8,
    /// How many of the threads (or elements); all that fit when absent.
    pub factor: Option<u32>,
}

/// A statement.
#[derive(Debug, Clone)]
pub struct Stmt {
    /// What it does.
    pub kind: StmtKind,
    /// Where it stands; for an inlined function the place in the function.
    pub span: Span,
}

/// What a statement does.
#[derive(Debug, Clone)]
pub enum StmtKind {
    /// Defines values: one, but for `argmax`, which defines value and index.
    Def {
        /// The values, in the order that [`Op`] documents.
        results: Vec<ValueId>,
        /// How they are computed.
        op: Op,
    },
    /// Assigns a whole slot.
    SetVar {
        /// The tile.
        var: VarId,
        /// The slot, below `slots`.
        slot: u32,
        /// Same dtype, shape and distribution.
        value: ValueId,
    },
    /// Writes a tile to a buffer or to shared memory, or changes elements of a buffer by it; absent elements are
    /// skipped.
    Store {
        /// What is written; its shape is the shape of the access.
        value: ValueId,
        /// Where it goes.
        access: TileAccess,
        /// How an element changes, each in one step; it is replaced without.
        update: Option<AtomicOp>,
        /// Cache policy.
        cache: CachePolicy,
    },
    /// Brings bytes into L2: one 128-byte line a thread and step.
    Prefetch {
        /// What is fetched.
        what: PrefetchRange,
        /// `evict first|last`.
        evict: Option<Evict>,
    },
    /// Adds 1 to a word of an epoch, after all threads have read it.
    Advance {
        /// The word.
        word: Word,
    },
    /// Raises a word of every rank.
    Signal(Signal),
    /// Waits for words that other ranks raise; all threads meet.
    Await(Await),
    /// `copy.async`: moves a tile from a buffer to shared memory without waiting; absent elements arrive as
    /// zeros. Each copy is a group of its own.
    CopyAsync {
        /// Where from, a buffer.
        source: TileAccess,
        /// Where to, shared memory; the same extents.
        dest: TileAccess,
        /// `evict first|last`.
        evict: Option<Evict>,
    },
    /// A group without copies: it stands where another path copies, so that all paths count alike.
    EmptyGroup,
    /// `settle`: each thread waits until at most `pending` groups of its own copies are in flight.
    Settle {
        /// The slot that is waited for.
        storage: Storage,
        /// `but n`: of the copies to any slot of the tile so many of the youngest are left alone.
        but: Option<u32>,
        /// Groups that every path closes after the last one that is waited for.
        pending: u32,
    },
    /// Copies out of shared memory.
    Outgoing(Outgoing),
    /// Products on the tensor core of a warpgroup.
    Warpgroup(Warpgroup),
    /// Products in tensor memory, and loads from there.
    Tensor(Tensor),
    /// `sync`: all threads meet; what they stored to shared memory before is visible after.
    Sync,
    /// `sync cluster`: all threads of all CTAs of the cluster meet; what they stored to shared memory of any of them
    /// before is visible after.
    SyncCluster,
    /// `sync ROLE`, in that role: its threads meet; what they stored to shared memory before is visible to them after.
    SyncRole,
    /// What a role does at a barrier that it shares with others.
    Pipe(PipeOp),
    /// What one role does while others do theirs. Roles that follow each other directly run side by side: each starts
    /// when its warps come here, and the statements after the last of them are run by each warp when its role has
    /// ended. Neither orders memory.
    Role {
        /// Who runs it.
        role: RoleId,
        /// Its statements.
        body: Vec<Stmt>,
    },
    /// Waits for the kernels that this one depends on.
    GridWait,
    /// Lets the dependent kernels start.
    GridLaunch,
    /// Stops the launch with `message` when the scalar is false.
    Assert {
        /// A bool scalar.
        cond: ValueId,
        /// What the author wrote.
        message: String,
    },
    /// One thread writes down that it came here, and when.
    Trace {
        /// Place in the list of events.
        event: u32,
    },
    /// Prints scalars, once a CTA.
    Printf {
        /// Text with `{}` for each argument.
        format: String,
        /// Scalars.
        args: Vec<ValueId>,
    },
    /// A loop that is not unrolled: `var` runs from `start` below `end`. With a word of a counter each of these numbers
    /// is a ticket, which one CTA takes: all threads meet, and one of them counts; so a CTA runs some of the rounds, in
    /// ascending order, and all CTAs together each once.
    For {
        /// i32 scalar.
        var: ValueId,
        /// i32 scalar.
        start: ValueId,
        /// i32 scalar.
        end: ValueId,
        /// Positive constant.
        step: u32,
        /// The counter of a work list; `start` is 0 and `step` is 1 then.
        tickets: Option<Word>,
        /// Statements of one round.
        body: Vec<Stmt>,
    },
    /// A choice on a scalar.
    If {
        /// A bool scalar.
        cond: ValueId,
        /// Statements when true.
        then_body: Vec<Stmt>,
        /// Statements when false.
        else_body: Vec<Stmt>,
    },
}

/// The blocks inside of a statement kind; `&` or `&mut` decides what they are.
macro_rules! bodies_of {
    ($kind:expr, $none:expr) => {
        match $kind {
            StmtKind::For { body, .. } | StmtKind::Role { body, .. } => [body, $none],
            StmtKind::If { then_body, else_body, .. } => [then_body, else_body],
            StmtKind::Def { .. }
            | StmtKind::SetVar { .. }
            | StmtKind::Store { .. }
            | StmtKind::Prefetch { .. }
            | StmtKind::Advance { .. }
            | StmtKind::CopyAsync { .. }
            | StmtKind::EmptyGroup
            | StmtKind::Outgoing(_)
            | StmtKind::Settle { .. }
            | StmtKind::Warpgroup(_)
            | StmtKind::Tensor(_)
            | StmtKind::Sync
            | StmtKind::Signal(_)
            | StmtKind::Await(_)
            | StmtKind::SyncCluster
            | StmtKind::SyncRole
            | StmtKind::Pipe(_)
            | StmtKind::GridWait
            | StmtKind::GridLaunch
            | StmtKind::Assert { .. }
            | StmtKind::Trace { .. }
            | StmtKind::Printf { .. } => [$none, $none],
        }
    };
}

impl StmtKind {
    /// The blocks inside: the body of a loop, both arms of a choice, else nothing; two, some of them empty.
    pub fn bodies(&self) -> [&[Stmt]; 2] {
        bodies_of!(self, &[])
    }

    /// The same, to be changed.
    pub fn bodies_mut(&mut self) -> [&mut [Stmt]; 2] {
        bodies_of!(self, &mut [])
    }
}

/// How a value is computed. Element-wise operands broadcast as numpy does: shapes are aligned at the
/// last axis and an extent of 1 is repeated.
#[derive(Debug, Clone)]
pub enum Op {
    /// A constant scalar.
    Const(Literal),
    /// Index of the CTA in the grid along x (0), y (1) or z (2): i32.
    CtaIndex(u8),
    /// Place of the CTA in its cluster: i32.
    ClusterIndex(ClusterAxis),
    /// The value of a `scalar` parameter.
    ScalarParam(ParamId),
    /// One operand.
    Unary {
        /// Operation.
        op: UnaryOp,
        /// Operand.
        x: ValueId,
    },
    /// Two operands of one dtype.
    Binary {
        /// Operation.
        op: BinaryOp,
        /// Left operand.
        a: ValueId,
        /// Right operand.
        b: ValueId,
    },
    /// Two operands of one dtype; the result is bool.
    Compare {
        /// Operation.
        op: CompareOp,
        /// Left operand.
        a: ValueId,
        /// Right operand.
        b: ValueId,
    },
    /// `cond ? a : b` for each element.
    Select {
        /// bool.
        cond: ValueId,
        /// Taken where true.
        a: ValueId,
        /// Taken where false.
        b: ValueId,
    },
    /// `a * b + c` with one rounding; f32 (f16 and bf16 are converted by the author).
    Fma {
        /// Factor.
        a: ValueId,
        /// Factor.
        b: ValueId,
        /// Addend.
        c: ValueId,
    },
    /// PTX of the author, for each element: see [`crate::ops::inline`].
    Inline {
        /// The instructions; `%0` is the result.
        text: String,
        /// What they compute, in the language.
        equals: ValueId,
        /// `%1`, `%2`, ….
        inputs: Vec<ValueId>,
    },
    /// Conversion to the dtype of the result.
    Convert {
        /// Operand.
        x: ValueId,
    },
    /// 0, 1, ... along the only axis of the result: i32.
    Iota,
    /// A scalar repeated to the shape of the result.
    Splat {
        /// Scalar.
        x: ValueId,
    },
    /// Inserts axes of extent 1: the result's axis `i` is `axes[i]` of the operand, or new.
    Expand {
        /// Operand.
        x: ValueId,
        /// One entry an axis of the result.
        axes: Vec<Option<u8>>,
    },
    /// Reads a tile, or a scalar, from a buffer or from shared memory.
    Load {
        /// Where from; its shape is the shape of the result.
        access: TileAccess,
        /// Value of absent elements: scalar of the result's dtype. Present iff anything can be absent.
        other: Option<ValueId>,
        /// Cache policy.
        cache: CachePolicy,
    },
    /// The current content of a slot.
    ReadVar {
        /// The tile.
        var: VarId,
        /// The slot.
        slot: u32,
    },
    /// Folds an axis. The order is fixed by the operand's distribution: within a thread ascending, then a
    /// butterfly over the lanes that share the axis from the nearest, then warps ascending.
    Reduce {
        /// Operation.
        op: ReduceOp,
        /// Operand.
        x: ValueId,
        /// Axis that is folded away.
        axis: u8,
    },
    /// The greatest element along an axis and its index (i32); ties go to the lower index, NaN counts as
    /// -inf. Two results: value, index.
    Argmax {
        /// Operand, f32 or i32.
        x: ValueId,
        /// Axis that is folded away.
        axis: u8,
    },
    /// Sum of products over letters: f32 operands, each output is a chain `acc = fma(a, b, acc)` with the
    /// contracted positions ascending (in the order of the letters of `a`, then those only in `b`).
    /// Contracted axes that are spread over threads are then folded as by `Reduce`, and `acc` is added last.
    Contract {
        /// Letters of both operands and of the result.
        spec: ContractSpec,
        /// Left operand.
        a: ValueId,
        /// Right operand.
        b: ValueId,
        /// Running value that starts the chain; 0 without.
        acc: Option<ValueId>,
    },
    /// A contraction on the tensor core, see [`crate::ops::mma`]: operands of f16 or bf16, sums of f32.
    Mma {
        /// Letters of both operands and of the result.
        spec: ContractSpec,
        /// Left operand.
        a: ValueId,
        /// Right operand.
        b: ValueId,
        /// Running value that the sums start from; 0 without.
        acc: Option<ValueId>,
    },
    /// The same tile in another distribution.
    Relayout {
        /// Operand.
        x: ValueId,
    },
    /// A piece of a tile with constant bounds. An axis that is cut or dropped lies in registers whole.
    Slice {
        /// Operand.
        x: ValueId,
        /// One entry an axis of the operand.
        parts: Vec<SlicePart>,
    },
    /// All threads meet, and the CTA adds 1 to a word of a counter, which wraps after `count`: true in the CTA
    /// that arrives last. What any CTA stored before it arrived is visible to what the last one does after.
    ArriveLast {
        /// The word.
        word: Word,
        /// CTAs that arrive.
        count: u32,
    },
    /// All threads meet, and one of them changes an element of a buffer in one step; the old value, a scalar.
    Atomic {
        /// How it changes.
        op: AtomicOp,
        /// By what, a scalar.
        value: ValueId,
        /// The element.
        access: TileAccess,
    },
    /// Sums along an axis: element `i` is the sum of the elements up to `i`, or below `i` where exclusive.
    /// Integers, so that the order does not matter.
    Scan {
        /// Operand, i32 or u32.
        x: ValueId,
        /// The axis.
        axis: u8,
        /// Leaves the element itself out.
        exclusive: bool,
    },
    /// Two tiles, one after the other along an axis that lies in registers whole.
    Concat {
        /// What comes first.
        a: ValueId,
        /// What follows.
        b: ValueId,
        /// The axis.
        axis: u8,
    },
}

/// What a slice takes of one axis of a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlicePart {
    /// First position.
    pub start: u32,
    /// Positions; `None` takes one and drops the axis.
    pub len: Option<u32>,
}

impl SlicePart {
    /// True where all of an axis of this extent is taken, so that it may be spread in any way.
    pub fn is_whole(self, extent: u32) -> bool {
        self.start == 0 && self.len == Some(extent)
    }
}

/// A constant.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Literal {
    /// Of a floating-point dtype; rounded to it when used.
    Float(#[serde(with = "float_bits")] f64),
    /// Of an integer dtype.
    Int(i64),
    /// Truth value.
    Bool(bool),
}

/// Axes of a contraction, one letter an axis: `"r j k, j k -> r j"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContractSpec {
    /// Letters of the left operand.
    pub a: Vec<Arc<str>>,
    /// Letters of the right operand.
    pub b: Vec<Arc<str>>,
    /// Letters of the result.
    pub out: Vec<Arc<str>>,
}

impl ContractSpec {
    /// Letters that are summed over: those of `a`, then those of `b` only, that `out` lacks.
    pub fn contracted(&self) -> Vec<Arc<str>> {
        let mut letters: Vec<Arc<str>> = Vec::new();
        for l in self.a.iter().chain(&self.b) {
            if !self.out.contains(l) && !letters.contains(l) {
                letters.push(l.clone());
            }
        }
        letters
    }
}

/// A float as its bits: text formats have no infinities and no NaN.
mod float_bits {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        value.to_bits().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        u64::deserialize(deserializer).map(f64::from_bits)
    }
}

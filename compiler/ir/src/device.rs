//! The device level: one operation handles the elements of one thread.
//!
//! All threads of the CTA, or of a role, run the same statements; control flow is uniform. A [`Frag`] is an array of
//! registers of one thread, defined once; a [`Slot`] is an array of registers that is assigned to.
//! Addresses are element offsets from a parameter, or byte offsets into shared memory. Nothing is
//! implied: shuffles, barriers and shared memory stand as operations.

mod operand;
mod pipe;
mod tmem;
mod warpgroup;

use kernel_abi::DType;
use kernel_dsl::source::Span;
use serde::{Deserialize, Serialize};

use crate::index::IndexVec;
use crate::kernel::{
    Barrier, BarrierId, CachePolicy, ClusterAxis, Evict, Launch, Literal, MapId, Param, ParamId,
    Role, RoleId, TensorMap,
};
use crate::ops::{AtomicOp, BinaryOp, CompareOp, ReduceOp, UnaryOp};
use crate::target::Target;

pub use operand::{Arg, Frag, Map, Slot};
pub use pipe::DevicePipe;
pub use tmem::{TensorLeft, TensorOp, TensorProduct, TensorScales};
pub use warpgroup::{Factor, Matrix, ProductStart, WarpgroupOp, WarpgroupProduct};

ids! {
    /// Registers of one thread, defined once.
    FragId = "%";
    /// Registers of one thread, assigned to.
    SlotId = "$";
    /// Place of an operation: the line number in the kernel's operation list that `.loc` carries,
    /// minus one.
    LocId = "@";
}

/// A kernel at device level.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeviceKernel {
    /// Name in the source.
    pub name: String,
    /// Symbol in the cubin.
    pub export: String,
    /// What it is compiled for.
    pub target: Target,
    /// Launch shape and attributes.
    pub launch: Launch,
    /// Parameters in the order of declaration: a pointer for a buffer, a value for a scalar.
    pub params: IndexVec<ParamId, Param>,
    /// Types of the fragments.
    pub frags: IndexVec<FragId, Frag>,
    /// Types of the slots.
    pub slots: IndexVec<SlotId, Slot>,
    /// Every role.
    pub roles: IndexVec<RoleId, Role>,
    /// Every barrier of roles.
    pub barriers: IndexVec<BarrierId, PlacedBarrier>,
    /// Texts of the events that the kernel writes down.
    pub events: Vec<String>,
    /// How tensor copies see buffers; parameters of the kernel, behind the others.
    pub maps: IndexVec<MapId, TensorMap>,
    /// The statements.
    pub body: Vec<DeviceStmt>,
    /// Bytes of shared memory that the statements use.
    pub shared_bytes: u32,
    /// Source place of each [`LocId`].
    pub locs: IndexVec<LocId, OpLoc>,
}

/// The source of one operation: `.loc` line `id + 1` in PTX and machine code means this entry.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OpLoc {
    /// Place in the `.tile` file; not serialised, since it means nothing without the texts.
    #[serde(skip)]
    pub span: Span,
    /// What the operation is to the memory-order checks.
    pub role: OpRole,
}

/// What an operation is to the memory-order checks of PTX and machine code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OpRole {
    /// Touches no global memory.
    Compute,
    /// Loads of `param`; `ordered` says on which side of `grid_wait` the source has it.
    Load {
        /// What is read.
        param: ParamId,
        /// The side of the wait.
        order: WaitOrder,
    },
    /// Stores to `param`.
    Store {
        /// What is written.
        param: ParamId,
        /// The side of the wait.
        order: WaitOrder,
    },
    /// Atomic operations on `param`.
    Update {
        /// What is changed.
        param: ParamId,
        /// The side of the wait.
        order: WaitOrder,
    },
    /// A prefetch of `param`.
    Prefetch {
        /// What is fetched.
        param: ParamId,
        /// The side of the wait.
        order: WaitOrder,
    },
    /// `grid_wait`.
    GridWait,
    /// `grid_launch`.
    GridLaunch,
    /// An arrival at a word of counter `param`.
    Arrive {
        /// The counter.
        param: ParamId,
    },
    /// A signal that raises words of `param`.
    Signal {
        /// The flags.
        param: ParamId,
    },
    /// A wait for words of `param`.
    Await {
        /// The flags.
        param: ParamId,
    },
    /// The choice on an arrival at `param`: its first arm runs in the last CTA.
    LastArriver {
        /// The counter.
        param: ParamId,
    },
}

/// On which side of the kernel's `grid_wait` an access stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitOrder {
    /// The kernel does not wait (it is no consumer).
    NoWait,
    /// No `grid_wait` can have been passed.
    Before,
    /// Every path to it passes a `grid_wait`.
    After,
    /// Some paths do.
    Mixed,
}

/// A barrier with its place: a word of 64 bits for each slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedBarrier {
    /// Slots, arrivals, bytes.
    pub barrier: Barrier,
    /// First byte in shared memory.
    pub base: u32,
}

/// A statement with its place.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeviceStmt {
    /// What it does.
    pub op: DeviceOp,
    /// Unique line of the operation it was made for; several statements can share it.
    pub loc: LocId,
}

/// What a statement does in each thread.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum DeviceOp {
    /// `dst[i] = values[i]`, or `values[0]` for all.
    Const {
        /// Result.
        dst: FragId,
        /// One value, or one an element.
        values: Vec<Literal>,
    },
    /// A built-in i32 of the thread (one element).
    Special {
        /// Result.
        dst: FragId,
        /// Which.
        which: Special,
    },
    /// The value of a `scalar` parameter (one element).
    ScalarParam {
        /// Result.
        dst: FragId,
        /// Which.
        param: ParamId,
    },
    /// `dst[i] = op(x[i])`.
    Unary {
        /// Result.
        dst: FragId,
        /// Operation.
        op: UnaryOp,
        /// Operand.
        x: Arg,
    },
    /// `dst[i] = op(a[i], b[i])`.
    Binary {
        /// Result.
        dst: FragId,
        /// Operation.
        op: BinaryOp,
        /// Left operand.
        a: Arg,
        /// Right operand.
        b: Arg,
    },
    /// `dst[i] = op(a[i], b[i])`, bool.
    Compare {
        /// Result.
        dst: FragId,
        /// Operation.
        op: CompareOp,
        /// Left operand.
        a: Arg,
        /// Right operand.
        b: Arg,
    },
    /// `dst[i] = cond[i] ? a[i] : b[i]`.
    Select {
        /// Result.
        dst: FragId,
        /// bool.
        cond: Arg,
        /// Taken where true.
        a: Arg,
        /// Taken where false.
        b: Arg,
    },
    /// `dst[i] = fma(a[i], b[i], c[i])`.
    Fma {
        /// Result.
        dst: FragId,
        /// Factor.
        a: Arg,
        /// Factor.
        b: Arg,
        /// Addend.
        c: Arg,
    },
    /// PTX of the author, for each element.
    Inline {
        /// Result.
        dst: FragId,
        /// The instructions; `%0` is the result.
        text: String,
        /// What they compute.
        equals: Arg,
        /// `%1`, `%2`, ….
        inputs: Vec<Arg>,
    },
    /// Conversion to the dtype of `dst`.
    Convert {
        /// Result.
        dst: FragId,
        /// Operand.
        x: Arg,
    },
    /// `dst[i] = x[i]`: gathers elements.
    Copy {
        /// Result.
        dst: FragId,
        /// Operand.
        x: Arg,
    },
    /// `dst[i]` = element `from[i].1` of `from[i].0`: puts registers of several fragments side by side.
    Join {
        /// Result.
        dst: FragId,
        /// Fragment and element, one entry an element of the result.
        from: Vec<(FragId, u32)>,
    },
    /// Products of small matrices on the tensor core, m16n8k16: `dst` starts as `acc`, and each atom in turn
    /// adds to the sums that it names.
    Mma {
        /// Result, f32.
        dst: FragId,
        /// Left operand, f16 or bf16.
        a: FragId,
        /// Right operand, of the same type.
        b: FragId,
        /// The sums before, as many as `dst` has.
        acc: FragId,
        /// One entry an instruction.
        atoms: Vec<MmaAtom>,
    },
    /// `dst[i]` = element `i` of `x` in another lane of the warp.
    Shuffle {
        /// Result.
        dst: FragId,
        /// Operand.
        x: FragId,
        /// Which.
        lanes: Lanes,
    },
    /// `dst[i]` = elements `i` of `x` in all lanes of the warp, folded: i32 and u32, and the greatest or the least of
    /// f32, among which is no NaN; `-0` is below `+0`. The order shows in none of these.
    ReduceLanes {
        /// Result.
        dst: FragId,
        /// Operand.
        x: FragId,
        /// What folds.
        op: ReduceOp,
    },
    /// Reads vectors from memory. Elements that no vector covers do not exist: the vectors tile `dst`.
    Load {
        /// Result.
        dst: FragId,
        /// Where from.
        place: Place,
        /// One entry a memory instruction.
        vectors: Vec<Vector>,
        /// Value of elements whose vector's predicate is false (one element).
        other: Option<FragId>,
        /// Cache policy.
        cache: CachePolicy,
    },
    /// Reads matrices of 8 by 8 elements of 16 bits from shared memory: `ldmatrix`.
    LoadMatrices {
        /// Result: two elements a matrix, row `lane / 4` from column `2 (lane % 4)` on.
        dst: FragId,
        /// Where from.
        place: Place,
        /// One entry an instruction.
        loads: Vec<MatrixLoad>,
    },
    /// Writes matrices of 8 by 8 elements of 16 bits to shared memory: `stmatrix`.
    StoreMatrices {
        /// What is written, spread as `LoadMatrices` reads it.
        src: FragId,
        /// Where to.
        place: Place,
        /// One entry an instruction; all elements of `src` in order.
        stores: Vec<MatrixLoad>,
    },
    /// Writes vectors to memory.
    Store {
        /// What is written: element `i` of the operation is `src.element(i)`.
        src: Arg,
        /// Where to.
        place: Place,
        /// One entry a memory instruction; `first` counts elements of the operation.
        vectors: Vec<Vector>,
        /// How an element of a buffer changes, in one step, for all threads of the device; it is replaced without.
        update: Option<AtomicOp>,
        /// Cache policy.
        cache: CachePolicy,
    },
    /// Brings the 128-byte lines at the given places into L2, or the bytes from one place on.
    Prefetch {
        /// Where.
        place: Place,
        /// One entry a line, or the first byte; `len` and `first` are not used.
        vectors: Vec<Vector>,
        /// Register with a number of bytes (i32, a multiple of 16) from one place, which is aligned to 16, on; lines
        /// without.
        bytes: Option<(FragId, u32)>,
        /// Eviction priority.
        evict: Option<Evict>,
    },
    /// Starts copies from a buffer to shared memory that nothing waits for yet.
    CopyAsync {
        /// Where from.
        source: Place,
        /// Where to.
        dest: Place,
        /// One entry an instruction.
        pieces: Vec<Piece>,
        /// Eviction priority.
        evict: Option<Evict>,
    },
    /// Closes the group of the thread's copies that were started since the last one.
    CommitGroup,
    /// Waits until at most `pending` groups of the thread's copies are in flight.
    WaitGroup {
        /// How many may be.
        pending: u32,
    },
    /// Products on the tensor core of a warpgroup.
    Warpgroup(WarpgroupOp),
    /// Tensor memory.
    Tensor(TensorOp),
    /// Reads a slot.
    ReadSlot {
        /// Result.
        dst: FragId,
        /// Which.
        slot: SlotId,
    },
    /// Assigns a slot.
    SetSlot {
        /// Which.
        slot: SlotId,
        /// New content.
        x: Arg,
    },
    /// All threads of the CTA meet; shared memory written before is visible after.
    Barrier,
    /// All threads of all CTAs of the cluster meet; shared memory of any of them written before is visible after. CTAs
    /// that have ended count as met.
    ClusterBarrier,
    /// Raises a u32 word of a buffer on a rank, after all that the thread did, or met in a barrier, before: release,
    /// for all threads of all devices; or a word that the CTAs of the grid share, for all threads of the device.
    Signal {
        /// The flags.
        param: ParamId,
        /// Register with the rank (i32): fragment and element; none for a word of the grid.
        rank: Option<(FragId, u32)>,
        /// The place of the word: one element.
        at: Vector,
        /// By how much.
        add: u32,
        /// What was done at a multicast address is in order with what is done at the other ones: `fence.proxy.alias` first.
        alias: bool,
    },
    /// Waits until a u32 word of the own rank has reached a value, as a signed difference: acquire, for all threads of
    /// all devices; of a counter, for all threads of the device.
    Await {
        /// The flags.
        param: ParamId,
        /// The place of the word: one element.
        at: Vector,
        /// u32, one element.
        until: FragId,
        /// The same, after the wait.
        alias: bool,
    },
    /// All threads of the role around it meet, at the role's named barrier; shared memory that they wrote before is
    /// visible to them after.
    RoleBarrier {
        /// The role.
        role: RoleId,
    },
    /// What the threads of a role do at a barrier that it shares with others.
    Pipe(DevicePipe),
    /// What the threads of one role do while others do theirs; roles that follow each other directly run side by side.
    Role {
        /// Who runs it.
        role: RoleId,
        /// Its statements.
        body: Vec<DeviceStmt>,
    },
    /// Orders what the thread did before it ahead of what it does after it, for all threads of the device.
    Fence,
    /// `dst` = an element of a buffer, which changes in one step for all threads of the device.
    Atomic {
        /// The old value (one element).
        dst: FragId,
        /// The buffer.
        param: ParamId,
        /// Its place: one element.
        at: Vector,
        /// What it becomes.
        change: Change,
    },
    /// Waits for the kernels that this one depends on.
    GridWait,
    /// Lets the dependent kernels start.
    GridLaunch,
    /// Stops the launch when the (uniform) condition is false.
    Assert {
        /// bool, one element.
        cond: FragId,
        /// Text.
        message: String,
    },
    /// The first thread of the role, or of the CTA, writes down an event with the time.
    Trace {
        /// Place in the list of events.
        event: u32,
    },
    /// Prints from thread 0.
    Printf {
        /// Text with `{}` for each argument.
        format: String,
        /// One element each, uniform.
        args: Vec<FragId>,
    },
    /// A loop with uniform bounds.
    For {
        /// i32, one element, defined anew each round.
        var: FragId,
        /// i32, one element.
        start: FragId,
        /// i32, one element.
        end: FragId,
        /// Positive.
        step: u32,
        /// Statements of one round.
        body: Vec<DeviceStmt>,
    },
    /// Repeats the body as long as a register that it defines holds in the end, in all threads alike.
    Repeat {
        /// Statements of one round.
        body: Vec<DeviceStmt>,
        /// bool, one element, defined in the body.
        again: FragId,
    },
    /// A choice. `uniform` choices may hold barriers; others only memory operations of this thread.
    If {
        /// bool, one element.
        cond: FragId,
        /// Statements when true.
        then_body: Vec<DeviceStmt>,
        /// Statements when false.
        else_body: Vec<DeviceStmt>,
    },
}

/// What an atomic operation makes of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// Of u32: 0 where it was `limit` or more, else 1 more.
    Count {
        /// Register with the greatest value (u32): fragment and element.
        limit: (FragId, u32),
    },
    /// What an operation makes of it and a value.
    Apply {
        /// Which.
        op: AtomicOp,
        /// Register with the value: fragment and element.
        value: (FragId, u32),
    },
}

impl Change {
    /// The register that it reads.
    pub fn register(self) -> (FragId, u32) {
        match self {
            Change::Count { limit: register } | Change::Apply { op: _, value: register } => {
                register
            }
        }
    }
}

/// The registers of one thread in one m16n8k16. Lane `4 g + t` holds of the left operand rows g and g + 8 at
/// k = 2t, 2t + 1, 2t + 8, 2t + 9, of the right one column g at the same k, of the sums rows g and g + 8 at
/// columns 2t and 2t + 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MmaAtom {
    /// Elements of the left operand, in the order of the instruction: both rows at the lower k, then at the
    /// upper ones. Rows without elements are zeros.
    pub a: [Option<u32>; 8],
    /// Elements of the right operand.
    pub b: [u32; 4],
    /// Elements of the sums; what has none starts at 0 and is dropped.
    pub c: [Option<u32>; 4],
}

/// The lane that a shuffle reads from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lanes {
    /// The own lane with these bits flipped, 1 to 31.
    Xor(u32),
    /// The lane whose number a register holds (i32, fragment and element), 0 to 31.
    Register((FragId, u32)),
}

/// A built-in of the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Special {
    /// Index of the CTA along x (0), y (1) or z (2).
    CtaIndex(u8),
    /// Place of the CTA in its cluster.
    ClusterIndex(ClusterAxis),
    /// Lane of the warp, 0 to 31.
    Lane,
    /// Warp of the CTA.
    Warp,
    /// Warp of a role that begins with this warp of the CTA; in warps before it, below zero.
    WarpFrom(u32),
    /// Warp of a role with so many warps: that of the CTA modulo their number.
    WarpModulo(u32),
}

/// A region of memory with a place in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// The buffer of a parameter; offsets count elements.
    Global(ParamId),
    /// Shared memory of the CTA from byte `base`; offsets count elements of `dtype`.
    Shared {
        /// First byte.
        base: u32,
        /// Element type of what is stored there.
        dtype: DType,
    },
    /// The same of a CTA of the cluster.
    Remote {
        /// Register with its rank (i32): fragment and element.
        cta: (FragId, u32),
        /// First byte.
        base: u32,
        /// Element type of what is stored there.
        dtype: DType,
    },
    /// The buffer of a parameter on a rank; offsets count elements.
    Peer {
        /// Which.
        param: ParamId,
        /// Register with the rank (i32): fragment and element.
        rank: (FragId, u32),
    },
    /// What a multicast address reaches: the buffer of another parameter on all ranks; offsets count elements.
    Multicast {
        /// The address.
        param: ParamId,
        /// What folds the elements of the ranks: for loads.
        fold: Option<ReduceOp>,
    },
}

impl Place {
    /// The register that chooses the CTA or the rank.
    pub fn owner(&self) -> Option<(FragId, u32)> {
        match self {
            Place::Global(_) | Place::Shared { .. } | Place::Multicast { .. } => None,
            Place::Remote { cta: owner, .. } | Place::Peer { rank: owner, .. } => Some(*owner),
        }
    }
}

/// A place in a region, in elements: a register, if any, plus a constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// Register with the run-time part (i32 or i64): fragment and element.
    pub offset: Option<(FragId, u32)>,
    /// Constant part.
    pub constant: i64,
}

/// One instruction that reads or writes matrices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatrixLoad {
    /// First element of the operation that it makes or takes.
    pub first: u32,
    /// Matrices: 1, 2 or 4.
    pub count: u32,
    /// First element of row `lane % 8` of matrix `lane / 8`, 16 bytes aligned; lanes past the last matrix give none.
    pub at: Address,
}

/// One asynchronous copy of a thread: `len` consecutive elements, 4, 8 or 16 bytes, aligned on both sides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// Elements that arrive.
    pub len: u32,
    /// First element of the source.
    pub source: Address,
    /// First element of the destination.
    pub dest: Address,
    /// Register with the number of elements that are read, the rest arrives as zeros; all without.
    pub present: Option<(FragId, u32)>,
    /// Register with the predicate (bool), if any: the thread copies this piece.
    pub predicate: Option<(FragId, u32)>,
}

/// One memory instruction of a thread: `len` consecutive elements from
/// `offset.element(..) + constant`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vector {
    /// First element of the operation that it covers.
    pub first: u32,
    /// Number of elements, a power of two: whole bytes, at most 16, and the address is a multiple of its size.
    pub len: u32,
    /// Register with the run-time part of the offset (i32 or i64), if any: fragment and element.
    pub offset: Option<(FragId, u32)>,
    /// Constant part of the offset, in elements.
    pub constant: i64,
    /// Register with the predicate (bool), if any: fragment and element.
    pub predicate: Option<(FragId, u32)>,
}

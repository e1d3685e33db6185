//! What a kernel of PTX computes with, stores, copies and fences, as far as rules of proxies ask for it.
//!
//! The steps of the flow of values say where a pointer comes from; these facts say which number it is for
//! one thread, so that two accesses of one variable can be told apart.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

/// All facts of one kernel, by node.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) events: BTreeMap<u32, Vec<Event>>,
    pub(crate) computed: FxHashMap<u32, Vec<Computed>>,
    /// Bytes of each variable of shared memory that is named.
    pub(crate) shared: BTreeMap<u32, u32>,
    /// Threads of a CTA at most, where the kernel says so.
    pub(crate) threads: Option<u32>,
    /// What is stored to tracked variables of a thread, at a known place.
    pub(crate) slots: BTreeMap<(u32, i64), Vec<(u32, Arg)>>,
    /// Variables that are copied whole to others, as arguments of calls are.
    pub(crate) copied: BTreeMap<u32, Vec<u32>>,
}

/// An operand that a thread can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arg {
    Reg(u32),
    Number(i64),
    Shared(u32, i64),
    Global(u32, i64),
    /// A parameter of the kernel: its index, the place in it, and the bytes that are read.
    Param(u32, i64, u32),
    Slot(u32, i64),
    Special(Special),
    Unknown,
}

/// Registers that the hardware sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    Thread,
    Lane,
    Warp,
    /// Zero in every thread that is looked at: other axes of the CTA.
    Axis,
    /// The place of the CTA: zero in one of them.
    Cta,
    /// Threads of the CTA along its first axis.
    Threads,
    /// One, of the others: CTAs of the grid, threads along other axes.
    One,
}

/// A value that an instruction computes.
#[derive(Clone, Debug)]
pub(crate) struct Computed {
    pub(crate) dst: u32,
    pub(crate) op: Op,
    pub(crate) args: Vec<Arg>,
    /// Bits of the operands, and of the result.
    pub(crate) bits: u32,
    pub(crate) out: u32,
    pub(crate) signed: bool,
}

/// The operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Sum,
    Less,
    Product,
    /// The upper half of a product.
    ProductHigh,
    /// A product and what is added to it.
    ProductSum,
    ShiftLeft,
    ShiftRight,
    And,
    Or,
    Xor,
    Not,
    Min,
    Max,
    Divide,
    Remainder,
    /// Bits of a word: from where, how many.
    Extract,
    /// Bits put into a word.
    Insert,
    Table(u8),
    /// The first or the second by a predicate.
    Pick,
    Compare(Compare),
    /// Halves of a word.
    Pack,
    /// One lane of the warp.
    Elect,
    /// The value of the first lane of the warp.
    FirstLane,
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

/// Memory that copies touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    Shared,
    Global,
    /// The address decides.
    Generic,
}

/// Where an asynchronous read takes its address from.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    Address(Vec<Arg>),
    /// A descriptor of a matrix in shared memory.
    Descriptor(Arg),
}

/// What an instruction does.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// Threads write; a copy of the thread itself does so later.
    Write {
        memory: Memory,
        addr: Vec<Arg>,
        bytes: u32,
        later: bool,
    },
    /// The asynchronous proxy reads.
    Read {
        memory: Memory,
        place: Place,
        bytes: Option<Arg>,
    },
    /// The asynchronous proxy writes to global memory, in a group of the thread.
    Out {
        addr: Vec<Arg>,
    },
    /// A fence between threads and the asynchronous proxy.
    ProxyFence {
        shared: bool,
        global: bool,
    },
    /// A named barrier of the CTA.
    Meet {
        id: Arg,
        waits: bool,
    },
    MeetWarp,
    MeetCluster,
    Arrive {
        addr: Vec<Arg>,
        copies: bool,
    },
    Await {
        addr: Vec<Arg>,
    },
    /// The thread waits for its own copies.
    CopiesDone,
    Commit,
    GroupWait {
        reads: bool,
        left: i64,
    },
    /// A fence that orders threads beyond the CTA.
    Fence,
    /// A write to global memory that others may wait for.
    Signal {
        addr: Vec<Arg>,
        release: bool,
        strong: bool,
    },
}

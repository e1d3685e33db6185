//! A step of a model as data: kernels, collectives and copies over named buffers, the same on every rank.
//!
//! A [`Plan`] says what runs and in which order; [`Plan::check`] proves that it can run and makes a
//! [`CheckedPlan`], the only thing that an [`Executor`](crate::exec::Executor) takes. All ranks run the
//! same nodes; they differ in the contents of their buffers and in scalars given for each rank.

mod builder;
mod check;
mod error;
mod order;
mod ranges;
mod signature;
mod tensor;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use builder::PlanBuilder;
pub use check::CheckedPlan;
pub use error::{PlanCode, PlanError};
pub use signature::{
    ContractSpec, ExtentSpec, ParamSpec, ScaledBy, Signature, Touches, UpperBound, Waits, WordKind,
};
pub use tensor::{MAX_BOX, MAX_MAP_AXES, MapAxisSpec, TensorMapSpec};

use crate::DType;
use crate::numeric::to_i64;

/// The scalar parameter of a kernel over several ranks that gets the number of the rank.
pub const RANK: &str = "rank";

/// A buffer of a plan; every rank has its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferId(pub u32);

/// A node of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl BufferId {
    /// Its place in [`Plan::buffers`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl NodeId {
    /// Its place in [`Plan::nodes`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A step of a model.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    /// Ranks that run it, 1 to 64.
    pub ranks: u32,
    /// The buffers of one rank.
    pub buffers: Vec<PlanBuffer>,
    /// What runs. Each node comes after those that it waits for.
    pub nodes: Vec<Node>,
}

/// A buffer of one rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanBuffer {
    /// Unique name, `layer3.cache`.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first; row-major.
    pub shape: Vec<u64>,
    /// Who fills it.
    pub role: BufferRole,
}

impl PlanBuffer {
    /// Number of elements; `None` where 64 bits do not hold it.
    pub fn elements(&self) -> Option<u64> {
        self.shape.iter().try_fold(1u64, |n, &e| n.checked_mul(e))
    }
}

/// Who fills a buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BufferRole {
    /// Filled before the first step, written by no node.
    Weight,
    /// The host writes it before each step.
    Host {
        /// What the host promises about the values.
        promise: Option<Promise>,
    },
    /// Zero before the first step; keeps its values from step to step.
    State,
    /// Lives within one step: written by a node before any node reads it.
    Step,
    /// Memory of ranks, which other ranks write: zero before the first step; keeps its values from step to step.
    Symmetric,
}

/// Values of a host buffer: at least `lo`, below `hi`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promise {
    /// Least value.
    pub lo: i64,
    /// Exclusive bound.
    pub hi: i64,
    /// No value occurs twice, but for `except`.
    pub distinct: bool,
    /// A value that may repeat.
    pub except: Option<i64>,
}

/// A node.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Unique name, `layer3.in_proj`.
    pub name: String,
    /// What it does.
    pub op: NodeOp,
    /// Nodes that must have ended, all earlier in [`Plan::nodes`].
    pub after: Vec<NodeId>,
}

/// What a node does on every rank.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeOp {
    /// Launches a kernel.
    Kernel {
        /// Which.
        kernel: KernelKey,
        /// One entry a parameter, by name.
        args: Vec<Argument>,
    },
    /// `dst` = sum of `src` over the ranks, added in f32 from rank 0 upwards and rounded once.
    AllReduce {
        /// Addends.
        src: BufferId,
        /// The sum, of the same type and shape; may be `src`.
        dst: BufferId,
    },
    /// `dst[row]` = the rows `src[row]` of all ranks, side by side from rank 0 upwards.
    AllGather {
        /// `[rows, n]`.
        src: BufferId,
        /// `[rows, ranks * n]`.
        dst: BufferId,
        /// Rows of both.
        rows: u64,
    },
    /// `dst[row]` of rank `r` = the `r`-th part of the row of the sum of `src` over the ranks, added as in
    /// `AllReduce`.
    ReduceScatter {
        /// `[rows, ranks * n]`.
        src: BufferId,
        /// `[rows, n]`.
        dst: BufferId,
        /// Rows of both.
        rows: u64,
    },
    /// Copies elements within a rank.
    Copy {
        /// From here.
        src: Region,
        /// To here; the same type and length.
        dst: Region,
    },
}

/// Consecutive elements of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// The buffer.
    pub buffer: BufferId,
    /// First element.
    pub start: u64,
    /// Number of elements.
    pub len: u64,
}

/// A kernel with its bindings: what the compiler instantiates and a bundle stores.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelKey {
    /// File of the source, `gemv.tile`.
    pub file: String,
    /// Name of the kernel in it.
    pub kernel: String,
    /// Values of its `const` parameters; what is missing takes its default.
    pub bindings: BTreeMap<String, i64>,
}

impl std::fmt::Display for KernelKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let list: Vec<String> = self.bindings.iter().map(|(n, v)| format!("{n} = {v}")).collect();
        write!(f, "{}<{}>", self.kernel, list.join(", "))
    }
}

/// What a parameter of a kernel gets.
#[derive(Debug, Clone, PartialEq)]
pub struct Argument {
    /// Name of the parameter.
    pub param: String,
    /// Buffer or scalar.
    pub value: ArgumentValue,
}

/// What a parameter of a kernel gets.
#[derive(Debug, Clone, PartialEq)]
pub enum ArgumentValue {
    /// A buffer.
    Buffer {
        /// Which.
        buffer: BufferId,
        /// The leading elements that the kernel touches, as the author of the plan says; all of them
        /// without.
        prefix: Option<u64>,
    },
    /// One value for all ranks.
    Scalar(Scalar),
    /// One value for each rank.
    Scalars(Vec<Scalar>),
}

/// A scalar argument.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scalar {
    /// A 32-bit integer.
    I32(i32),
    /// A 32-bit float.
    F32(f32),
    /// A value of any type, by its code.
    Code(DType, u64),
}

impl Scalar {
    /// Its type.
    pub fn dtype(self) -> DType {
        match self {
            Scalar::I32(_) => DType::I32,
            Scalar::F32(_) => DType::F32,
            Scalar::Code(dtype, _) => dtype,
        }
    }

    /// Its bits.
    pub fn code(self) -> u64 {
        match self {
            Scalar::I32(v) => u64::from(v as u32),
            Scalar::F32(v) => u64::from(v.to_bits()),
            Scalar::Code(_, code) => code,
        }
    }

    /// Its value, if it is an integer.
    pub fn integer(self) -> Option<i64> {
        match self {
            Scalar::I32(v) => Some(i64::from(v)),
            Scalar::F32(_) => None,
            Scalar::Code(dtype, code) => to_i64(dtype, code),
        }
    }
}

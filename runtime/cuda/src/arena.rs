//! Where the buffers of a step lie: those that are never alive at the same time share memory.
//!
//! The nodes of a plan run on one stream in the order of the plan, which every edge of a checked plan agrees with. A
//! buffer is alive from the first node that touches it to the last one; what no node reads after its last write is a
//! result and stays alive until the next step. A kernel that starts early reads early only what is `static` or
//! `settled`, and writes only after its predecessor is over, so that the order of the nodes holds for it too; where one
//! does otherwise, the plan says how long those before it may still run.

use kernel_abi::plan::{
    ArgumentValue, BufferId, BufferRole, CheckedPlan, NodeId, NodeOp, Plan, PlanBuffer,
};

use crate::error::RuntimeError;
use crate::memory::{ALIGNMENT, byte_count};

/// From the first to the last node that touches a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    /// The first node.
    pub first: usize,
    /// The last node; the number of nodes for what outlives the step.
    pub last: usize,
}

impl Lifetime {
    /// Whether there is a node at which both are alive.
    pub fn meets(self, other: Lifetime) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// Which buffers keep their memory for the whole step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Those that must.
    Tight,
    /// All: every buffer can be read after a step.
    None,
}

/// Where buffers lie in memory of `bytes`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layout {
    /// Start of each buffer in bytes, for those that have a place.
    pub starts: Vec<Option<u64>>,
    /// Size of the memory.
    pub bytes: u64,
}

/// The buffers that an operation touches, with whether it reads them.
fn touched(op: &NodeOp) -> Vec<(BufferId, bool)> {
    match op {
        // What a kernel does to an argument is for its signature to say; to be alive, all count as read.
        NodeOp::Kernel { args, .. } => args
            .iter()
            .filter_map(|arg| match arg.value {
                ArgumentValue::Buffer { buffer, .. } => Some((buffer, true)),
                ArgumentValue::Scalar(_) | ArgumentValue::Scalars(_) => None,
            })
            .collect(),
        NodeOp::AllReduce { src, dst }
        | NodeOp::AllGather { src, dst, .. }
        | NodeOp::ReduceScatter { src, dst, .. } => vec![(*src, true), (*dst, false)],
        NodeOp::Copy { src, dst } => vec![(src.buffer, true), (dst.buffer, false)],
    }
}

/// The lifetime of every buffer that lives within a step; none for the others and for those that no node touches.
/// `writes` says whether a kernel node leaves something in a buffer.
pub fn lifetimes(
    plan: &Plan,
    sharing: Sharing,
    writes: impl Fn(usize, BufferId) -> bool,
) -> Vec<Option<Lifetime>> {
    let mut all: Vec<Option<Lifetime>> = vec![None; plan.buffers.len()];
    // Whether the last node that touches a buffer leaves something in it.
    let mut is_result = vec![false; plan.buffers.len()];
    for (node, described) in plan.nodes.iter().enumerate() {
        for (buffer, reads) in touched(&described.op) {
            if plan.buffers[buffer.index()].role != BufferRole::Step {
                continue;
            }
            let lifetime = all[buffer.index()].get_or_insert(Lifetime { first: node, last: node });
            lifetime.last = node;
            is_result[buffer.index()] = match &described.op {
                NodeOp::Kernel { .. } => writes(node, buffer),
                NodeOp::AllReduce { .. }
                | NodeOp::AllGather { .. }
                | NodeOp::ReduceScatter { .. }
                | NodeOp::Copy { .. } => !reads,
            };
        }
    }
    for (lifetime, is_result) in all.iter_mut().zip(is_result) {
        if let Some(lifetime) = lifetime {
            match sharing {
                Sharing::Tight if is_result => lifetime.last = plan.nodes.len(),
                Sharing::Tight => {}
                Sharing::None => *lifetime = Lifetime { first: 0, last: plan.nodes.len() },
            }
        }
    }
    all
}

/// A buffer is alive as long as some node that touches it may still run while others touch memory: where launches overlap,
/// that may be longer than until the next node.
pub fn outlast(plan: &CheckedPlan, lifetimes: &mut [Option<Lifetime>]) {
    for (node, described) in plan.nodes.iter().enumerate() {
        let until = plan.runs_until(NodeId(node as u32)).min(plan.nodes.len());
        for (buffer, _) in touched(&described.op) {
            if let Some(lifetime) = &mut lifetimes[buffer.index()] {
                lifetime.last = lifetime.last.max(until);
            }
        }
    }
}

/// Places blocks of `(bytes, lifetime)`: large ones first, each at the lowest place that no block has at the same time.
pub fn place(blocks: &[Option<(u64, Lifetime)>]) -> Layout {
    let mut order: Vec<usize> = (0..blocks.len()).filter(|&at| blocks[at].is_some()).collect();
    order.sort_by_key(|&at| (std::cmp::Reverse(blocks[at].map_or(0, |block| block.0)), at));
    let mut layout = Layout { starts: vec![None; blocks.len()], bytes: 0 };
    // Start, end and lifetime of what is placed, by start.
    let mut placed: Vec<(u64, u64, Lifetime)> = Vec::with_capacity(order.len());
    for at in order {
        let Some((bytes, lifetime)) = blocks[at] else { continue };
        let bytes = bytes.next_multiple_of(ALIGNMENT);
        let mut start = 0;
        for &(from, to, other) in &placed {
            if !lifetime.meets(other) || to <= start {
                continue;
            }
            if start + bytes <= from {
                break;
            }
            start = to;
        }
        layout.starts[at] = Some(start);
        layout.bytes = layout.bytes.max(start + bytes);
        let index = placed.partition_point(|&(from, ..)| from <= start);
        placed.insert(index, (start, start + bytes, lifetime));
    }
    layout
}

/// One buffer behind the other, for those that `is_there` names.
///
/// # Errors
/// They are larger than memory can be.
pub fn line_up(
    plan: &Plan,
    is_there: impl Fn(&BufferRole) -> bool,
) -> Result<Layout, RuntimeError> {
    let mut layout = Layout { starts: Vec::with_capacity(plan.buffers.len()), bytes: 0 };
    for buffer in &plan.buffers {
        if !is_there(&buffer.role) {
            layout.starts.push(None);
            continue;
        }
        let bytes = byte_count(&buffer.name, buffer.dtype, buffer.elements().unwrap_or(u64::MAX))?;
        layout.starts.push(Some(layout.bytes));
        layout.bytes = layout
            .bytes
            .checked_add((bytes as u64).next_multiple_of(ALIGNMENT))
            .filter(|&all| all <= isize::MAX as u64)
            .ok_or_else(|| RuntimeError::Unsupported("more memory than 63 bits count".into()))?;
    }
    Ok(layout)
}

/// Places the buffers that live within a step.
///
/// # Errors
/// One of them is larger than memory can be.
pub fn step_layout(plan: &Plan, lifetimes: &[Option<Lifetime>]) -> Result<Layout, RuntimeError> {
    let block = |(buffer, lifetime): (&PlanBuffer, &Option<Lifetime>)| {
        let Some(lifetime) = lifetime else { return Ok(None) };
        let elements = buffer.elements().unwrap_or(u64::MAX);
        let bytes = byte_count(&buffer.name, buffer.dtype, elements)?;
        Ok(Some((bytes as u64, *lifetime)))
    };
    let blocks =
        plan.buffers.iter().zip(lifetimes).map(block).collect::<Result<Vec<_>, RuntimeError>>()?;
    Ok(place(&blocks))
}

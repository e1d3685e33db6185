//! The memory of a plan's buffers: three allocations, for weights, for what is kept, and for what lives in a step.

use kernel_abi::plan::{BufferId, BufferRole, CheckedPlan, NodeOp};
use kernel_abi::{Access, DType};

use super::{CudaOptions, MemoryNeed, buffer_of};
use crate::arena::{self, Layout, Lifetime, Sharing};
use crate::error::RuntimeError;
use crate::memory::Buffer;
use crate::stream::Stream;

/// The buffers of a plan on a device.
#[derive(Debug)]
pub(super) struct Stock {
    /// None for what no node touches.
    buffers: Vec<Option<Buffer>>,
    lifetimes: Vec<Option<Lifetime>>,
    nodes: usize,
    weights: Buffer,
}

/// The three layouts of a plan.
struct Layouts {
    weights: Layout,
    states: Layout,
    step: Layout,
    lifetimes: Vec<Option<Lifetime>>,
}

fn layouts(plan: &CheckedPlan, sharing: Sharing) -> Result<Layouts, RuntimeError> {
    let mut lifetimes = arena::lifetimes(plan, sharing, |node, buffer| writes(plan, node, buffer));
    arena::outlast(plan, &mut lifetimes);
    Ok(Layouts {
        weights: arena::line_up(plan, |role| *role == BufferRole::Weight)?,
        states: arena::line_up(plan, |role| match role {
            BufferRole::Host { .. } | BufferRole::State => true,
            BufferRole::Weight | BufferRole::Step | BufferRole::Symmetric => false,
        })?,
        step: arena::step_layout(plan, &lifetimes)?,
        lifetimes,
    })
}

/// What the buffers of a plan need.
pub(super) fn need(plan: &CheckedPlan, sharing: Sharing) -> Result<MemoryNeed, RuntimeError> {
    let layouts = layouts(plan, sharing)?;
    Ok(MemoryNeed {
        weights: layouts.weights.bytes,
        states: layouts.states.bytes,
        step: layouts.step.bytes,
    })
}

/// Whether a kernel node leaves something in a buffer.
fn writes(plan: &CheckedPlan, node: usize, buffer: BufferId) -> bool {
    let NodeOp::Kernel { kernel, args } = &plan.nodes[node].op else {
        return false;
    };
    let signature = plan.signature(kernel);
    args.iter().filter(|arg| buffer_of(arg) == Some(buffer)).all(|arg| {
        signature.param(&arg.param).is_some_and(|param| match param.access {
            Access::Output | Access::Inout => true,
            Access::Static
            | Access::Input
            | Access::Scratch
            | Access::Peer
            | Access::Multicast
            | Access::Scalar => false,
        })
    })
}

impl Stock {
    /// Takes the memory, clears states and, if asked to, poisons the rest. `weights` are those of a stock before.
    pub(super) fn new(
        stream: &Stream,
        plan: &CheckedPlan,
        options: &CudaOptions,
        weights: Option<Buffer>,
    ) -> Result<Stock, RuntimeError> {
        let layouts = layouts(plan, options.sharing)?;
        let device = stream.device();
        let all = |name: &str, layout: &Layout| Buffer::new(device, name, DType::U8, layout.bytes);
        let are_new = weights.is_none();
        let weights = weights.map_or_else(|| all("weights", &layouts.weights), Ok)?;
        let states = all("states", &layouts.states)?;
        let step = all("the step", &layouts.step)?;
        if options.poison {
            if are_new {
                stream.poison(&weights)?;
            }
            stream.poison(&states)?;
            stream.poison(&step)?;
        }
        let mut buffers = Vec::with_capacity(plan.buffers.len());
        for (at, described) in plan.buffers.iter().enumerate() {
            let (memory, layout) = match described.role {
                BufferRole::Weight => (&weights, &layouts.weights),
                // A plan with memory of ranks is refused before; it has no place in any layout.
                BufferRole::Host { .. } | BufferRole::State | BufferRole::Symmetric => {
                    (&states, &layouts.states)
                }
                BufferRole::Step => (&step, &layouts.step),
            };
            let elements = described.elements().unwrap_or(0);
            let part = |start| memory.part(start, &described.name, described.dtype, elements);
            let buffer = layout.starts[at].map(part).transpose()?;
            if let (Some(buffer), BufferRole::State) = (&buffer, &described.role) {
                stream.fill(buffer, 0)?;
            }
            buffers.push(buffer);
        }
        Ok(Stock { buffers, lifetimes: layouts.lifetimes, nodes: plan.nodes.len(), weights })
    }

    /// The memory of all weights.
    pub(super) fn weights(&self) -> &Buffer {
        &self.weights
    }

    /// The memory of a buffer; none where no node touches it.
    pub(super) fn buffer(&self, buffer: BufferId) -> Option<&Buffer> {
        self.buffers.get(buffer.index())?.as_ref()
    }

    /// Whether a buffer of a step can be read after it.
    pub(super) fn outlives_step(&self, buffer: BufferId) -> bool {
        self.lifetimes[buffer.index()].is_some_and(|lifetime| lifetime.last >= self.nodes)
    }

    /// Buffers of the step that a node is the first to touch.
    pub(super) fn born_at(&self, node: usize) -> impl Iterator<Item = &Buffer> {
        self.lifetimes
            .iter()
            .zip(&self.buffers)
            .filter(move |(lifetime, _)| lifetime.is_some_and(|lifetime| lifetime.first == node))
            .filter_map(|(_, buffer)| buffer.as_ref())
    }
}

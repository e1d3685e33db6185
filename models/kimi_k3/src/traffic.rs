//! Bytes that the nodes of a decode step move, from the sizes of its buffers.
//!
//! A kernel reads each `static` and `input` buffer and writes each `output` once, and both for `inout`. Of some buffers
//! it touches a part: the rows of the embedding that are asked for, the experts that are picked, the positions so far,
//! the slots of the requests. An expert that two rows pick counts twice.

use kernel_abi::Access;
use kernel_abi::plan::{ArgumentValue, BufferId, CheckedPlan, NodeId, NodeOp, PlanBuffer};

/// Bytes of that many elements of a buffer.
fn bytes(buffer: &PlanBuffer, elements: u64) -> u64 {
    elements.saturating_mul(u64::from(buffer.dtype.bits())).div_ceil(8)
}

/// Bytes that a node reads and writes when every row has `positions` positions behind it, its own among them.
pub fn of_node(plan: &CheckedPlan, node: NodeId, positions: u64) -> u64 {
    let buffer = |id: BufferId| &plan.buffers[id.index()];
    let whole = |id: BufferId| bytes(buffer(id), buffer(id).elements().unwrap_or(0));
    match &plan.nodes[node.index()].op {
        NodeOp::Kernel { kernel, args } => {
            let signature = plan.signature(kernel);
            let binding = |name: &str| {
                kernel.bindings.get(name).and_then(|&value| u64::try_from(value).ok()).unwrap_or(1)
            };
            let mut all = 0_u64;
            for arg in args {
                let ArgumentValue::Buffer { buffer: id, prefix } = arg.value else { continue };
                let Some(param) = signature.param(&arg.param) else { continue };
                let elements = prefix.or_else(|| buffer(id).elements()).unwrap_or(0);
                let shape = &buffer(id).shape;
                // Elements behind the outermost extent, and how many of those the kernel touches.
                let inner: u64 = shape.iter().skip(1).product();
                let rows = binding("M");
                let touched = match (kernel.kernel.as_str(), arg.param.as_str()) {
                    ("embed", "E") | ("kda_conv", "window") | ("kda_recurrence", "S") => {
                        rows.saturating_mul(inner)
                    }
                    ("expert_w13", "w13" | "s13") | ("expert_w2", "w2" | "s2") => {
                        rows.saturating_mul(binding("K")).saturating_mul(inner)
                    }
                    ("mla_decode", "cache") => {
                        let row = shape.last().copied().unwrap_or(0);
                        rows.saturating_mul(positions).saturating_mul(row)
                    }
                    ("mla_cache_insert", "cache") => {
                        let row = shape.last().copied().unwrap_or(0);
                        // It is written and not read.
                        all = all.saturating_add(bytes(buffer(id), rows.saturating_mul(row)));
                        continue;
                    }
                    _ => elements,
                };
                let times = match param.access {
                    Access::Static | Access::Input | Access::Output | Access::Peer => 1,
                    Access::Inout => 2,
                    Access::Scratch | Access::Multicast | Access::Scalar => 0,
                };
                all = all.saturating_add(bytes(buffer(id), touched.min(elements)) * times);
            }
            all
        }
        NodeOp::AllReduce { src, dst } if src == dst => 0,
        NodeOp::AllReduce { src, dst }
        | NodeOp::AllGather { src, dst, .. }
        | NodeOp::ReduceScatter { src, dst, .. } => whole(*src).saturating_add(whole(*dst)),
        NodeOp::Copy { src, .. } => 2 * bytes(buffer(src.buffer), src.len),
    }
}

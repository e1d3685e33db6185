//! Kernels of a plan that follow each other, as a stream in which they overlap.

use std::ops::Range;
use std::sync::Arc;

use kernel_abi::plan::{ArgumentValue, CheckedPlan, NodeOp};
use kernel_ir::index::IndexVec;
use kernel_ir::kernel::{Kernel, ParamId};

use super::{PlanFailure, RankBuffers, Ready};
use crate::kernel::run_prepared_stream;
use crate::options::Options;
use crate::overlap::{Bound, StreamLaunch};

/// Runs the kernels of these nodes on the buffers of a rank.
pub(super) fn run(
    plan: &CheckedPlan,
    kernels: &[Option<Arc<Ready>>],
    nodes: Range<usize>,
    rank: usize,
    buffers: &mut RankBuffers,
    options: &Options,
) -> Result<(), PlanFailure> {
    let first = nodes.start;
    let of = |index: usize| {
        let ready = kernels[index].as_ref().expect("every kernel node has a kernel");
        (bind(plan, index, &ready.kernel, rank), &ready.prepared)
    };
    let launches: Vec<_> = nodes.map(of).collect();
    let prepared: Vec<_> = launches.iter().map(|(launch, prepared)| (launch, *prepared)).collect();
    run_prepared_stream(&prepared, buffers, options).map(|_| ()).map_err(|error| {
        let launch = error.detail.launch.map_or(0, |launch| launch as usize);
        let node = plan.nodes[first + launch].name.clone();
        let kernel = launches[launch].0.kernel.name.clone();
        PlanFailure::Run { node, rank: rank as u32, kernel, error }
    })
}

/// What the parameters of a node get.
fn bind<'k>(
    plan: &CheckedPlan,
    index: usize,
    kernel: &'k Kernel,
    rank: usize,
) -> StreamLaunch<'k, Kernel> {
    let NodeOp::Kernel { args, .. } = &plan.nodes[index].op else {
        unreachable!("kernels alone are in a stream")
    };
    let mut bound: IndexVec<ParamId, Bound> = IndexVec::new();
    for param in kernel.params.iter() {
        let arg = args.iter().find(|arg| arg.param == param.name);
        let arg = arg.expect("the plan was checked: every parameter has an argument");
        bound.push(match &arg.value {
            ArgumentValue::Buffer { buffer, .. } => Bound::Buffer(buffer.index()),
            ArgumentValue::Scalar(value) => Bound::Scalar(value.code()),
            ArgumentValue::Scalars(values) => Bound::Scalar(values[rank].code()),
        });
    }
    StreamLaunch { kernel, bound }
}

//! Runs a plan on the emulator: every node on every simulated rank, in the order of the plan; kernels that follow each
//! other overlap where the options say so.
//!
//! Ranks live in one process and are in step: a collective sees what all ranks wrote. Buffers that live
//! within one step are poison at its start, so a kernel that reads what this step has not written stops
//! with an error, never with an old value.

mod collectives;
mod instantiate;
mod stream;
#[cfg(test)]
mod tests;
mod touches;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use kernel_abi::exec::Executor;
use kernel_abi::numeric;
use kernel_abi::plan::{
    ArgumentValue, BufferId, BufferRole, CheckedPlan, KernelKey, NodeOp, Plan, PlanError, Region,
};
use kernel_ir::index::IndexVec;
use kernel_ir::kernel::{Kernel, ParamId};
use kernel_ir::verify::Verified;
use rayon::prelude::*;
use thiserror::Error;

use crate::error::EmuError;
use crate::kernel::{Prepared, run_prepared, run_prepared_on_ranks};
use crate::memory::{Argument, Buffer, Memory};
use crate::options::Options;

pub use instantiate::{SourceError, instantiate, signature};

/// Why a plan cannot be prepared or a step failed.
#[derive(Debug, Error)]
pub enum PlanFailure {
    /// A source of a kernel is refused.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The plan is refused.
    #[error("the plan is refused:{}", .0.iter().map(|e| format!("\n  {e}")).collect::<String>())]
    Plan(Vec<PlanError>),
    /// A kernel was stopped.
    #[error("{node}, rank {rank}: {kernel}: {error}")]
    Run {
        /// The node.
        node: String,
        /// The rank.
        rank: u32,
        /// The kernel.
        kernel: String,
        /// Why.
        error: EmuError,
    },
    /// There is no such rank, or no such buffer.
    #[error("there is no buffer {buffer} of rank {rank}")]
    Absent {
        /// The buffer's number.
        buffer: u32,
        /// The rank.
        rank: u32,
    },
    /// A buffer was given bytes of another size.
    #[error("`{buffer}` of rank {rank} has {wanted} bytes, not {found}")]
    Size {
        /// The buffer.
        buffer: String,
        /// The rank.
        rank: u32,
        /// Bytes that it has.
        wanted: usize,
        /// Bytes that were given.
        found: usize,
    },
    /// A buffer has an element that nothing wrote.
    #[error("element {element} of `{buffer}` of rank {rank} was never written")]
    Unwritten {
        /// The buffer.
        buffer: String,
        /// The rank.
        rank: u32,
        /// The element.
        element: usize,
    },
}

/// The buffers of one rank.
type RankBuffers = Vec<Buffer>;

/// A kernel and what its runs need again.
#[derive(Debug)]
struct Ready {
    kernel: Verified<Kernel>,
    prepared: Prepared,
}

/// A plan with its kernels and the memory of its ranks.
#[derive(Debug)]
pub struct EmuExecutor {
    plan: CheckedPlan,
    /// The kernel of each node that is one.
    kernels: Vec<Option<Arc<Ready>>>,
    ranks: Vec<RankBuffers>,
    options: Options,
}

impl EmuExecutor {
    /// Instantiates the kernels of a plan from texts by file name, checks the plan, and makes its memory:
    /// weights and host buffers poison, states zero.
    ///
    /// # Errors
    /// A source or the plan is refused.
    pub fn new(
        plan: Plan,
        sources: &(dyn Fn(&str) -> Option<&'static str> + Sync),
    ) -> Result<EmuExecutor, PlanFailure> {
        let keys: Vec<KernelKey> = plan.kernels().into_iter().cloned().collect();
        let built = instantiate(&keys, sources)?;
        let ready = |kernel: Verified<Kernel>| {
            let prepared = Prepared::new(&kernel);
            Arc::new(Ready { kernel, prepared })
        };
        let built: BTreeMap<KernelKey, Arc<Ready>> =
            keys.into_iter().zip(built.into_iter().map(ready)).collect();
        let signatures =
            built.iter().map(|(key, ready)| (key.clone(), signature(&ready.kernel))).collect();
        let plan = plan.check(signatures).map_err(PlanFailure::Plan)?;
        let of_node = |op: &NodeOp| match op {
            NodeOp::Kernel { kernel, .. } => built.get(kernel).cloned(),
            NodeOp::AllReduce { .. }
            | NodeOp::AllGather { .. }
            | NodeOp::ReduceScatter { .. }
            | NodeOp::Copy { .. } => None,
        };
        let kernels = plan.nodes.iter().map(|node| of_node(&node.op)).collect();
        let buffers = || plan.buffers.iter().map(fresh).collect();
        let ranks = (0..plan.ranks).map(|_| buffers()).collect();
        Ok(EmuExecutor { plan, kernels, ranks, options: Options::STANDARD })
    }

    /// Sets how the kernels are run; [`Options::STANDARD`] without.
    pub fn set_options(&mut self, options: Options) {
        self.options = options;
    }

    /// Runs one node on every rank.
    fn node(&mut self, index: usize) -> Result<(), PlanFailure> {
        let node = &self.plan.nodes[index];
        let ranks = &mut self.ranks;
        match &node.op {
            NodeOp::Kernel { kernel: key, args } => {
                let kernel = self.kernels[index].as_ref().expect("every kernel node has a kernel");
                let options = &self.options;
                if kernel.kernel.launch.world.is_some() {
                    return launch_together(kernel, args, ranks, options).map_err(|error| {
                        let (node, kernel) = (node.name.clone(), key.to_string());
                        let rank = error.detail.rank.unwrap_or(0);
                        PlanFailure::Run { node, rank, kernel, error }
                    });
                }
                let run = |(rank, buffers): (usize, &mut RankBuffers)| {
                    launch(kernel, args, rank, buffers, options).map_err(|error| {
                        let (node, kernel) = (node.name.clone(), key.to_string());
                        PlanFailure::Run { node, rank: rank as u32, kernel, error }
                    })
                };
                match &mut ranks[..] {
                    [only] => run((0, only)),
                    all => all.par_iter_mut().enumerate().map(run).collect::<Result<(), _>>(),
                }
            }
            NodeOp::AllReduce { src, dst } => {
                collectives::all_reduce(ranks, src.index(), dst.index());
                Ok(())
            }
            NodeOp::AllGather { src, dst, rows } => {
                collectives::all_gather(ranks, src.index(), dst.index(), *rows as usize);
                Ok(())
            }
            NodeOp::ReduceScatter { src, dst, rows } => {
                collectives::reduce_scatter(ranks, src.index(), dst.index(), *rows as usize);
                Ok(())
            }
            NodeOp::Copy { src, dst } => {
                for buffers in ranks {
                    copy(buffers, src, dst);
                }
                Ok(())
            }
        }
    }

    /// True for a kernel that may be in a stream with others.
    fn overlaps(&self, index: usize) -> bool {
        self.kernels[index].as_ref().is_some_and(|ready| ready.kernel.launch.world.is_none())
    }

    /// Runs kernels that follow each other, overlapping, on every rank.
    fn stream(&mut self, nodes: Range<usize>) -> Result<(), PlanFailure> {
        let EmuExecutor { plan, kernels, ranks, options } = self;
        let run = |(rank, buffers): (usize, &mut RankBuffers)| {
            stream::run(plan, kernels, nodes.clone(), rank, buffers, options)
        };
        match &mut ranks[..] {
            [only] => run((0, only)),
            all => all.par_iter_mut().enumerate().map(run).collect::<Result<(), _>>(),
        }
    }

    fn slot(&self, rank: u32, buffer: BufferId) -> Result<&Buffer, PlanFailure> {
        let slot = self.ranks.get(rank as usize).and_then(|buffers| buffers.get(buffer.index()));
        slot.ok_or(PlanFailure::Absent { buffer: buffer.0, rank })
    }
}

impl Executor for EmuExecutor {
    type Error = PlanFailure;

    fn plan(&self) -> &CheckedPlan {
        &self.plan
    }

    fn write(&mut self, rank: u32, buffer: BufferId, bytes: &[u8]) -> Result<(), PlanFailure> {
        let wanted = self.slot(rank, buffer)?.bytes().len();
        let described = &self.plan.buffers[buffer.index()];
        if wanted != bytes.len() {
            let (buffer, found) = (described.name.clone(), bytes.len());
            return Err(PlanFailure::Size { buffer, rank, wanted, found });
        }
        let filled = Buffer::filled(described.dtype, bytes.to_vec());
        self.ranks[rank as usize][buffer.index()] = filled;
        Ok(())
    }

    fn read(&self, rank: u32, buffer: BufferId) -> Result<Vec<u8>, PlanFailure> {
        let content = self.slot(rank, buffer)?;
        match content.first_unwritten() {
            None => Ok(content.bytes().to_vec()),
            Some(element) => {
                let buffer = self.plan.buffers[buffer.index()].name.clone();
                Err(PlanFailure::Unwritten { buffer, rank, element })
            }
        }
    }

    fn step(&mut self) -> Result<(), PlanFailure> {
        for buffers in &mut self.ranks {
            for (described, buffer) in self.plan.buffers.iter().zip(buffers) {
                if described.role == BufferRole::Step {
                    buffer.forget_all();
                }
            }
        }
        let count = self.plan.nodes.len();
        if !self.options.overlap {
            return (0..count).try_for_each(|index| self.node(index));
        }
        let mut at = 0;
        while at < count {
            let end = (at..count).find(|&index| !self.overlaps(index)).unwrap_or(count);
            if end == at {
                self.node(at)?;
                at += 1;
            } else {
                self.stream(at..end)?;
                at = end;
            }
        }
        Ok(())
    }
}

fn fresh(described: &kernel_abi::plan::PlanBuffer) -> Buffer {
    let len = described.elements().expect("the plan was checked") as usize;
    match described.role {
        BufferRole::State | BufferRole::Symmetric => {
            Buffer::filled(described.dtype, vec![0; numeric::bytes_of(described.dtype, len)])
        }
        BufferRole::Weight | BufferRole::Host { .. } | BufferRole::Step => {
            Buffer::poison(described.dtype, len)
        }
    }
}

/// Launches a kernel on the buffers of one rank.
fn launch(
    ready: &Ready,
    args: &[kernel_abi::plan::Argument],
    rank: usize,
    buffers: &mut RankBuffers,
    options: &Options,
) -> Result<(), EmuError> {
    // Buffers move into the memory of the launch and back; one that is read through two parameters is
    // copied for the second.
    let kernel = &ready.kernel;
    let (mut memory, home) = take(kernel, args, rank, buffers);
    let result = run_prepared(kernel, &ready.prepared, &mut memory, options).map(|_| ());
    give_back(memory, &home, buffers);
    result
}

/// Launches a kernel over all ranks.
fn launch_together(
    ready: &Ready,
    args: &[kernel_abi::plan::Argument],
    ranks: &mut [RankBuffers],
    options: &Options,
) -> Result<(), EmuError> {
    let kernel = &ready.kernel;
    let taken = ranks.iter_mut().enumerate().map(|(rank, all)| take(kernel, args, rank, all));
    let (mut memories, homes): (Vec<Memory>, Vec<Homes>) = taken.unzip();
    let result = run_prepared_on_ranks(kernel, &ready.prepared, &mut memories, options);
    for ((memory, home), buffers) in memories.into_iter().zip(&homes).zip(ranks) {
        give_back(memory, home, buffers);
    }
    result.map(|_| ())
}

/// Where the buffer of a parameter belongs; none for scalars, and for one that is read through a parameter before.
type Homes = IndexVec<ParamId, Option<usize>>;

/// The memory of a launch on a rank, with buffers that go back to their places afterwards.
fn take(
    kernel: &Kernel,
    args: &[kernel_abi::plan::Argument],
    rank: usize,
    buffers: &mut RankBuffers,
) -> (Memory, Homes) {
    let mut home = Homes::new();
    let mut memory = Memory::new(&kernel.params);
    let mut taken: Vec<(usize, ParamId)> = Vec::with_capacity(args.len());
    for (id, param) in kernel.params.iter_enumerated() {
        let arg = args.iter().find(|arg| arg.param == param.name);
        let mut at = None;
        match arg.map(|arg| &arg.value) {
            Some(ArgumentValue::Buffer { buffer, .. }) => {
                let index = buffer.index();
                let content = match taken.iter().find(|(other, _)| *other == index) {
                    Some(&(_, first)) => memory.buffer(first).expect("it was put there").clone(),
                    None => {
                        taken.push((index, id));
                        at = Some(index);
                        std::mem::replace(&mut buffers[index], Buffer::poison(param.dtype, 0))
                    }
                };
                memory.set_buffer(id, content);
            }
            Some(ArgumentValue::Scalar(value)) => {
                memory.set_scalar(id, value.dtype(), value.code());
            }
            Some(ArgumentValue::Scalars(values)) => {
                memory.set_scalar(id, values[rank].dtype(), values[rank].code());
            }
            None => {}
        }
        home.push(at);
    }
    (memory, home)
}

fn give_back(mut memory: Memory, home: &Homes, buffers: &mut RankBuffers) {
    for (id, home) in home.iter_enumerated() {
        let argument = std::mem::replace(&mut memory.arguments[id], Argument::Missing);
        if let (Argument::Buffer(buffer), Some(index)) = (argument, *home) {
            buffers[index] = buffer;
        }
    }
}

fn copy(buffers: &mut RankBuffers, src: &Region, dst: &Region) {
    let codes: Vec<Option<u64>> = {
        let from = &buffers[src.buffer.index()];
        (src.start..src.start + src.len).map(|i| from.code(i as usize)).collect()
    };
    let to = &mut buffers[dst.buffer.index()];
    for (i, code) in (dst.start as usize..).zip(codes) {
        match code {
            Some(code) => to.write(i, code),
            None => to.forget(i),
        }
    }
}

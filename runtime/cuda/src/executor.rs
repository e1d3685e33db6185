//! Runs a plan on a device: every node of a step in one graph, written down once and started for each step.
//!
//! The nodes run in the order of the plan on one stream. A kernel that is made for it starts before its predecessor is
//! over, where that is a kernel too.

mod record;
mod stock;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kernel_abi::bundle::Bundle;
use kernel_abi::exec::Executor;
use kernel_abi::plan::{
    Argument, ArgumentValue, BufferId, BufferRole, CheckedPlan, KernelKey, NodeId, Plan,
    PlanBuffer, Signature,
};

use crate::arena::Sharing;
use crate::coverage::Coverage;
use crate::device::{Device, HEADROOM};
use crate::error::RuntimeError;
use crate::graph::{Begin, Graph, MarkTable};
use crate::kernel::{Kernel, KernelImage};
use crate::memory::Buffer;
use crate::stream::{Event, Stream};
use crate::watchdog::DEFAULT_LIMIT;
use stock::Stock;

/// Which ranks of a plan an executor runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ranks {
    /// The only one.
    One,
    /// One of several without the others: what would come from them is zero. To measure, not to decode.
    Alone(u32),
}

/// How a plan is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CudaOptions {
    /// Which ranks.
    pub ranks: Ranks,
    /// Whether buffers of a step share memory.
    pub sharing: Sharing,
    /// Fills every buffer of a step with poison right before the first node that touches it.
    pub poison: bool,
    /// Nodes between two marks by which a step that hangs is told where; 0 for no marks.
    pub nodes_of_mark: usize,
    /// How long a step may take.
    pub limit: Duration,
}

impl CudaOptions {
    /// To decode.
    pub const STANDARD: CudaOptions = CudaOptions {
        ranks: Ranks::One,
        sharing: Sharing::Tight,
        poison: false,
        nodes_of_mark: 64,
        limit: DEFAULT_LIMIT,
    };

    /// The rank whose scalars and weights are used.
    fn rank(&self) -> u32 {
        match self.ranks {
            Ranks::One => 0,
            Ranks::Alone(rank) => rank,
        }
    }
}

/// What the buffers of a plan need on a device, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryNeed {
    /// Weights.
    pub weights: u64,
    /// What the host writes and what is kept from step to step.
    pub states: u64,
    /// What lives within a step.
    pub step: u64,
}

impl MemoryNeed {
    /// All of it.
    pub fn total(self) -> u64 {
        self.weights.saturating_add(self.states).saturating_add(self.step)
    }

    /// What it is for, for messages.
    pub fn parts(self) -> String {
        let parts = [("weights", self.weights), ("states", self.states), ("a step", self.step)];
        let shown = parts.map(|(part, bytes)| format!("{part} {:.2} GB", bytes as f64 / 1e9));
        format!("the buffers of the plan ({}) and its kernels", shown.join(", "))
    }
}

/// A plan with its kernels and memory on a device.
#[derive(Debug)]
pub struct CudaExecutor {
    plan: CheckedPlan,
    options: CudaOptions,
    stream: Stream,
    done: Event,
    kernels: BTreeMap<KernelKey, Kernel>,
    stock: Stock,
    graph: Graph,
    /// Weights and buffers of the host that nothing has written yet.
    missing: BTreeSet<BufferId>,
    has_stepped: bool,
}

/// A plan whose kernels were found in a bundle, checked.
#[derive(Debug)]
pub struct FoundPlan<'b> {
    plan: CheckedPlan,
    images: BTreeMap<KernelKey, KernelImage<'b>>,
}

impl<'b> FoundPlan<'b> {
    /// Finds the kernels of a plan and checks it.
    ///
    /// # Errors
    /// A kernel is not there, or the plan is refused.
    pub fn new(
        plan: Plan,
        find: impl Fn(&KernelKey) -> Result<KernelImage<'b>, RuntimeError>,
    ) -> Result<FoundPlan<'b>, RuntimeError> {
        let mut images = BTreeMap::new();
        for key in plan.kernels() {
            images.insert(key.clone(), find(key)?);
        }
        let signatures: BTreeMap<KernelKey, Signature> =
            images.iter().map(|(key, image)| (key.clone(), image.signature.clone())).collect();
        let plan = plan.check(signatures).map_err(RuntimeError::Plan)?;
        Ok(FoundPlan { plan, images })
    }

    /// The plan.
    pub fn plan(&self) -> &CheckedPlan {
        &self.plan
    }
}

impl CudaExecutor {
    /// Prepares a plan on a device with the kernels of a bundle: weights and host buffers without content, states zero.
    ///
    /// # Errors
    /// A kernel is not in the bundle or does not fit the device, the plan is refused, or the memory is too small.
    pub fn new(
        device: &Device,
        plan: Plan,
        bundle: &Bundle,
        options: CudaOptions,
    ) -> Result<CudaExecutor, RuntimeError> {
        check_ranks(&plan, options.ranks)?;
        let found = FoundPlan::new(plan, |key| KernelImage::find(bundle, key, device.info()))?;
        CudaExecutor::of_found(device, found, options)
    }

    /// Prepares a plan whose kernels were found.
    ///
    /// # Errors
    /// As [`CudaExecutor::new`].
    pub fn of_found(
        device: &Device,
        found: FoundPlan<'_>,
        options: CudaOptions,
    ) -> Result<CudaExecutor, RuntimeError> {
        let FoundPlan { plan, images } = found;
        check_ranks(&plan, options.ranks)?;
        let need = stock::need(&plan, options.sharing)?;
        device.check_free(&need.parts(), need.total().saturating_add(HEADROOM))?;
        let mut kernels = BTreeMap::new();
        for (key, image) in &images {
            kernels.insert(key.clone(), Kernel::load(device, image)?);
        }
        let mut stream = Stream::new(device)?;
        stream.set_limit(options.limit);
        let (stock, graph) = lay_out(&stream, &plan, &kernels, &options, None)?;
        tracing::info!(
            kernels = kernels.len(),
            plan_nodes = plan.nodes.len(),
            graph_nodes = graph.nodes(),
            weight_bytes = need.weights,
            state_bytes = need.states,
            step_bytes = need.step,
            "prepared a plan"
        );
        let missing = outside(&plan).collect();
        let done = Event::new(device)?;
        Ok(CudaExecutor {
            plan,
            options,
            stream,
            done,
            kernels,
            stock,
            graph,
            missing,
            has_stepped: false,
        })
    }

    /// Lays the buffers of a step out anew. Weights keep their content; states are zero, and the host writes its buffers
    /// again.
    ///
    /// # Errors
    /// There is too little memory, or the driver does not make a graph.
    pub fn set_sharing(&mut self, sharing: Sharing) -> Result<(), RuntimeError> {
        self.options.sharing = sharing;
        let weights = self.stock.weights().clone();
        let laid = lay_out(&self.stream, &self.plan, &self.kernels, &self.options, Some(weights))?;
        (self.stock, self.graph) = laid;
        let is_host = |buffer: &BufferId| {
            matches!(self.plan.buffers[buffer.index()].role, BufferRole::Host { .. })
        };
        self.missing.extend(outside(&self.plan).filter(is_host));
        self.has_stepped = false;
        Ok(())
    }

    /// What the buffers of a plan need.
    ///
    /// # Errors
    /// More than memory can be.
    pub fn need(plan: &CheckedPlan, sharing: Sharing) -> Result<MemoryNeed, RuntimeError> {
        stock::need(plan, sharing)
    }

    /// Launches of every kernel so far.
    pub fn coverage(&self) -> Coverage {
        self.stream.coverage()
    }

    /// The stream that everything runs on.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The graph of a step.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The kernels of the plan, loaded.
    pub fn kernels(&self) -> &BTreeMap<KernelKey, Kernel> {
        &self.kernels
    }

    /// The memory of a buffer, for those who fill it on the device and then say so by [`CudaExecutor::filled`].
    ///
    /// # Errors
    /// There is no such buffer, or it has no memory.
    pub fn buffer(&self, buffer: BufferId) -> Result<&Buffer, RuntimeError> {
        self.stock
            .buffer(buffer)
            .ok_or(RuntimeError::Absent { buffer: buffer.0, rank: self.options.rank() })
    }

    /// Takes note that a buffer has content.
    pub fn filled(&mut self, buffer: BufferId) {
        self.missing.remove(&buffer);
    }

    /// A graph of some nodes, in the given order and without marks: to measure them.
    ///
    /// # Errors
    /// The driver does not make a graph of them.
    pub fn graph_of(&self, nodes: &[NodeId], begin: Begin) -> Result<Graph, RuntimeError> {
        self.stream.capture(|recorder| {
            let (plan, kernels, stock) = (&self.plan, &self.kernels, &self.stock);
            record::nodes(recorder, plan, kernels, stock, &self.options, nodes, begin)
        })
    }

    fn place(&self, rank: u32, buffer: BufferId) -> Result<&Buffer, RuntimeError> {
        if rank != self.options.rank() || buffer.index() >= self.plan.buffers.len() {
            return Err(RuntimeError::Absent { buffer: buffer.0, rank });
        }
        self.stock.buffer(buffer).ok_or_else(|| RuntimeError::NoContent {
            buffer: self.plan.buffers[buffer.index()].name.clone(),
            why: "is touched by no node",
        })
    }

    /// Refuses a step with a buffer that nothing has written.
    fn check_written(&self) -> Result<(), RuntimeError> {
        match self.missing.first() {
            None => Ok(()),
            Some(buffer) => Err(RuntimeError::NoContent {
                buffer: self.plan.buffers[buffer.index()].name.clone(),
                why: "was never written",
            }),
        }
    }
}

impl Executor for CudaExecutor {
    type Error = RuntimeError;

    fn plan(&self) -> &CheckedPlan {
        &self.plan
    }

    fn write(&mut self, rank: u32, buffer: BufferId, bytes: &[u8]) -> Result<(), RuntimeError> {
        let place = self.place(rank, buffer)?;
        if self.plan.buffers[buffer.index()].role == BufferRole::Step {
            let buffer = place.name().to_owned();
            return Err(RuntimeError::NoContent { buffer, why: "is written by a step alone" });
        }
        self.stream.write(place, bytes)?;
        self.missing.remove(&buffer);
        Ok(())
    }

    fn read(&self, rank: u32, buffer: BufferId) -> Result<Vec<u8>, RuntimeError> {
        let place = self.place(rank, buffer)?;
        let fault = match self.plan.buffers[buffer.index()].role {
            BufferRole::State | BufferRole::Symmetric => None,
            BufferRole::Weight | BufferRole::Host { .. } => {
                self.missing.contains(&buffer).then_some("was never written")
            }
            BufferRole::Step if !self.has_stepped => {
                Some("is written by a step, of which none ran")
            }
            BufferRole::Step if !self.stock.outlives_step(buffer) => {
                Some("shares its memory with what came later in the step")
            }
            BufferRole::Step => None,
        };
        match fault {
            None => self.stream.read(place),
            Some(why) => Err(RuntimeError::NoContent { buffer: place.name().to_owned(), why }),
        }
    }

    fn step(&mut self) -> Result<(), RuntimeError> {
        self.check_written()?;
        self.stream.start(&self.graph)?;
        self.stream.record(&self.done)?;
        self.stream.finish_to(&self.done, || self.graph.running())?;
        self.has_stepped = true;
        Ok(())
    }
}

/// The buffers that others fill: weights and those of the host.
fn outside(plan: &CheckedPlan) -> impl Iterator<Item = BufferId> {
    let is_outside = |(_, buffer): &(usize, &PlanBuffer)| {
        let is_filled = match buffer.role {
            BufferRole::Weight | BufferRole::Host { .. } => true,
            BufferRole::State | BufferRole::Step | BufferRole::Symmetric => false,
        };
        is_filled && buffer.elements() != Some(0)
    };
    plan.buffers.iter().enumerate().filter(is_outside).map(|(at, _)| BufferId(at as u32))
}

/// Takes memory for the buffers of a plan and writes its graph down. `weights` are those of a layout before.
fn lay_out(
    stream: &Stream,
    plan: &CheckedPlan,
    kernels: &BTreeMap<KernelKey, Kernel>,
    options: &CudaOptions,
    weights: Option<Buffer>,
) -> Result<(Stock, Graph), RuntimeError> {
    let stock = Stock::new(stream, plan, options, weights)?;
    let marks = match options.nodes_of_mark {
        0 => None,
        nodes => {
            let most = plan.nodes.len() / nodes + 1;
            Some(MarkTable::new(stream, u32::try_from(most).unwrap_or(u32::MAX))?)
        }
    };
    let all: Vec<NodeId> = (0..plan.nodes.len() as u32).map(NodeId).collect();
    let graph = stream.capture(|recorder| {
        if let Some(marks) = &marks {
            recorder.set_marks(marks);
        }
        record::nodes(recorder, plan, kernels, &stock, options, &all, Begin::Early)
    })?;
    stream.finish(|| vec!["the preparation of buffers".to_owned()])?;
    Ok((stock, graph))
}

/// What this version runs: a plan of one rank, or one rank of several for itself.
fn check_ranks(plan: &Plan, ranks: Ranks) -> Result<(), RuntimeError> {
    if let Some(buffer) = plan.buffers.iter().find(|buffer| buffer.role == BufferRole::Symmetric) {
        return Err(RuntimeError::Unsupported(format!(
            "`{}`, memory of ranks, in a plan on CUDA devices",
            buffer.name
        )));
    }
    match ranks {
        Ranks::One if plan.ranks == 1 => Ok(()),
        Ranks::One => Err(RuntimeError::Unsupported(format!(
            "{} ranks on CUDA devices; a device runs a plan of one",
            plan.ranks
        ))),
        Ranks::Alone(rank) if rank < plan.ranks => Ok(()),
        Ranks::Alone(rank) => Err(RuntimeError::Absent { buffer: 0, rank }),
    }
}

/// The value of an argument that is a buffer.
fn buffer_of(argument: &Argument) -> Option<BufferId> {
    match argument.value {
        ArgumentValue::Buffer { buffer, .. } => Some(buffer),
        ArgumentValue::Scalar(_) | ArgumentValue::Scalars(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use kernel_abi::DType;
    use kernel_abi::plan::PlanBuilder;

    use super::*;

    #[test]
    fn plans_with_memory_of_ranks_are_refused() {
        for (role, is_refused) in [(BufferRole::State, false), (BufferRole::Symmetric, true)] {
            let mut plan = PlanBuilder::new(1);
            plan.buffer("inbox", DType::F32, &[2, 1, 4], role);
            let plan = plan.finish();
            for ranks in [Ranks::One, Ranks::Alone(0)] {
                let refused = check_ranks(&plan, ranks).err().map(|error| error.to_string());
                assert_eq!(refused.is_some(), is_refused, "{refused:?}");
                assert!(refused.is_none_or(|text| text.contains("`inbox`, memory of ranks")));
            }
        }
    }
}

//! `kimi-k3 bench`: the times of a decode step of one rank on a CUDA device, kernel by kernel.
//!
//! Weights have the true shapes and formats and random values that are made from a seed: blocks of random elements are
//! copied over the memory of the device. What would come from other ranks is zero. Times are those of marks of the
//! device around graphs.

mod report;
mod weights;

use std::collections::BTreeMap;
use std::time::Duration;

use kernel_abi::bundle::{Bundle, Policy};
use kernel_abi::exec::Executor;
use kernel_abi::numeric::random;
use kernel_abi::plan::{NodeId, NodeOp};
use kernel_runtime::arena::Sharing;
use kernel_runtime::timing::{self, Flush};
use kernel_runtime::{
    Begin, CudaExecutor, CudaOptions, Device, FoundPlan, KernelImage, MemoryNeed, Ranks, Stream,
    probe,
};
use kimi_k3::plan::{DecodeOptions, DecodePlan, HostBuffers};
use kimi_k3::{Config, traffic};

use crate::args::Bench;
use crate::error::CliError;
use crate::interrupt;
use crate::output::{self, Whole};
use report::{KernelRow, Report, StepRow};

/// The configuration of Kimi K3.
const K3: &str = include_str!("../../../../tests/data/kimi_k3/config.json");

/// The random stream of token ids; those of weights are lower.
const IDS: u64 = 100;

/// Bytes of the device beside the buffers of a rank: what pushes a step out of the cache, blocks of random elements, and
/// what the driver makes of kernels and graphs.
const BESIDE: u64 = 1 << 30;

/// Bytes of the copies that the rate of the device is measured with.
const COPY_BYTES: u64 = 1 << 30;

pub(crate) fn run(options: &Bench) -> Result<(), CliError> {
    interrupt::listen();
    let out = options.json.as_deref().map(Whole::create).transpose()?;
    let config = match &options.model {
        Some(folder) => Config::open(folder)?,
        None => Config::parse(K3)?,
    };
    options.check(&config)?;
    let policy = Policy { allow_unaudited: options.allow_unaudited };
    let bundle = Bundle::open(&options.bundle, policy)?;
    let device = Device::open(options.device)?;
    let stream = Stream::new(&device)?;
    let copy_rate = timing::copy_rate(&stream, COPY_BYTES, options.runs)?;
    let info = device.info().clone();
    output::text(&format!(
        "{}, copies {:.3} TB/s (read and written)\n",
        info.name,
        copy_rate / 1e12
    ))?;
    let mut steps = Vec::new();
    for &rows in &options.batch {
        interrupt::check()?;
        let step = measure(options, &config, options.shape(rows), &device, &bundle, copy_rate)?;
        output::text(&report::table(&step))?;
        steps.push(step);
    }
    let report = Report {
        device: info.name,
        driver: probe()?.version,
        seed: options.seed,
        rank: options.rank,
        ranks: options.of,
        context: options.context,
        copy_bytes_per_second: copy_rate,
        steps,
    };
    match out {
        Some(out) => {
            let json = serde_json::to_vec_pretty(&report).expect("numbers and texts have a form");
            out.finish(&json)
        }
        None => Ok(()),
    }
}

/// Measures a step of `shape.rows` rows.
fn measure(
    options: &Bench,
    config: &Config,
    shape: DecodeOptions,
    device: &Device,
    bundle: &Bundle,
    copy_rate: f64,
) -> Result<StepRow, CliError> {
    let DecodePlan { plan, weights, host } = DecodePlan::new(config, shape)?;
    // What each rank cuts from a checkpoint is long, and nothing is cut here.
    drop(weights);
    let found = FoundPlan::new(plan, |key| KernelImage::find(bundle, key, device.info()))?;
    let need = CudaExecutor::need(found.plan(), Sharing::None)?;
    let tight = CudaExecutor::need(found.plan(), Sharing::Tight)?;
    device.check_free("the buffers of this rank", all_bytes(need, tight))?;
    let run = CudaOptions {
        ranks: Ranks::Alone(options.rank),
        sharing: Sharing::Tight,
        poison: false,
        nodes_of_mark: 8,
        limit: Duration::from_secs(options.step_timeout),
    };
    let mut executor = CudaExecutor::of_found(device, found, run)?;
    let started = std::time::Instant::now();
    weights::fill(&mut executor, options.seed)?;
    executor.stream().finish(|| vec!["weights".to_owned()])?;
    tracing::info!(bytes = need.weights, seconds = started.elapsed().as_secs_f64(), "made weights");
    feed(&mut executor, &host, options)?;
    executor.step()?;
    let is_finite = is_finite(&executor, &host, options.rank)?;
    if !is_finite {
        output::note("the logits are not finite: times may be those of other paths");
    }
    // A step that hangs says where by its marks; what is timed has none.
    let all: Vec<NodeId> = (0..executor.plan().nodes.len() as u32).map(NodeId).collect();
    let graph = executor.graph_of(&all, Begin::Early)?;
    let step = timing::time_graph(executor.stream(), &graph, options.runs, None, "the step")?;
    let graph_nodes = graph.nodes();
    drop(graph);

    // Alone, a kernel finds what the step before left, so every buffer needs memory of its own.
    executor.set_sharing(Sharing::None)?;
    feed(&mut executor, &host, options)?;
    executor.step()?;
    let positions = options.position() + 1;
    let kernels = kernels(&executor, options, positions, copy_rate)?;
    let plan = executor.plan();
    let all = (0..plan.nodes.len() as u32).map(NodeId);
    let bytes = all.map(|node| traffic::of_node(plan, node, positions)).sum();
    Ok(StepRow::new(
        shape.rows,
        step,
        bytes,
        copy_rate,
        [tight.weights, tight.states, tight.step],
        graph_nodes,
        is_finite,
        kernels,
    ))
}

/// Bytes of the device at the moment of most: new states and buffers of the step are laid out while the old ones are
/// there.
fn all_bytes(apart: MemoryNeed, tight: MemoryNeed) -> u64 {
    [tight.states, tight.step, BESIDE]
        .iter()
        .fold(apart.total(), |all, &more| all.saturating_add(more))
}

/// What the host writes before a step: random ids, and a context that is full but for one position.
fn feed(executor: &mut CudaExecutor, host: &HostBuffers, options: &Bench) -> Result<(), CliError> {
    let rows = host.options.rows as usize;
    let id = |row| (random::word(options.seed, IDS, row) % host.vocab.max(1)) as i32;
    let ids: Vec<i32> = (0..host.options.rows).map(id).collect();
    let position = i32::try_from(options.position());
    let positions = vec![position.expect("a plan has no context of so many positions"); rows];
    let (slots, pages) = (host.own_slots(), host.own_pages());
    for (buffer, values) in
        [(host.ids, &ids), (host.positions, &positions), (host.slots, &slots), (host.pages, &pages)]
    {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        executor.write(options.rank, buffer, &bytes)?;
    }
    Ok(())
}

fn is_finite(executor: &CudaExecutor, host: &HostBuffers, rank: u32) -> Result<bool, CliError> {
    let logits = executor.read(rank, host.logits)?;
    let value = |bytes: &[u8; 4]| f32::from_le_bytes(*bytes);
    Ok(logits.as_chunks::<4>().0.iter().all(|bytes| value(bytes).is_finite()))
}

/// The kernels of a plan, each with all its nodes in a graph of their own, one after the other.
fn kernels(
    executor: &CudaExecutor,
    options: &Bench,
    positions: u64,
    copy_rate: f64,
) -> Result<Vec<KernelRow>, CliError> {
    let plan = executor.plan();
    let mut groups: BTreeMap<String, Vec<NodeId>> = BTreeMap::new();
    for (at, node) in plan.nodes.iter().enumerate() {
        let name = match &node.op {
            NodeOp::Kernel { kernel, .. } => kernel.to_string(),
            NodeOp::AllReduce { .. }
            | NodeOp::AllGather { .. }
            | NodeOp::ReduceScatter { .. }
            | NodeOp::Copy { .. } => "(copies in place of collectives)".to_owned(),
        };
        groups.entry(name).or_default().push(NodeId(at as u32));
    }
    let flush = Flush::new(executor.stream())?;
    let mut rows = Vec::new();
    for (name, nodes) in groups {
        interrupt::check()?;
        let graph = executor.graph_of(&nodes, Begin::After)?;
        let stream = executor.stream();
        let times = timing::time_graph(stream, &graph, options.runs, Some(&flush), &name)?;
        let bytes: u64 = nodes.iter().map(|&node| traffic::of_node(plan, node, positions)).sum();
        let first = &plan.nodes[nodes[0].index()].name;
        rows.push(KernelRow::new(name, first.clone(), nodes.len(), times, bytes, copy_rate));
    }
    rows.sort_by(|a, b| b.step_microseconds.total_cmp(&a.step_microseconds));
    Ok(rows)
}

impl Bench {
    /// Refuses what cannot be measured on any device, before one is looked for.
    ///
    /// # Errors
    /// There is no such rank, or no step of such a number of rows, ranks or positions.
    fn check(&self, config: &Config) -> Result<(), CliError> {
        let ranks = u32::try_from(self.of).unwrap_or(u32::MAX);
        if self.rank >= ranks {
            return Err(CliError::NoRank { rank: self.rank, ranks });
        }
        self.batch.iter().try_for_each(|&rows| Ok(self.shape(rows).check(config)?))
    }

    /// A step of so many rows.
    fn shape(&self, rows: u64) -> DecodeOptions {
        DecodeOptions { rows, ranks: self.of, context: self.context }
    }

    /// The position of the token of the step: the last one of the context.
    fn position(&self) -> u64 {
        self.context.saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_checked_is_the_moment_of_most() {
        let apart = MemoryNeed { weights: 100, states: 20, step: 8 };
        let tight = MemoryNeed { weights: 100, states: 20, step: 3 };
        assert_eq!(all_bytes(apart, tight), 100 + 20 + 8 + 20 + 3 + BESIDE);
        let most = MemoryNeed { weights: u64::MAX, states: 0, step: 0 };
        assert_eq!(all_bytes(most, most), u64::MAX);
    }
}

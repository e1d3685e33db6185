//! The plan executor on a device against the one of the emulator: a plan of kernels, copies and collectives, with and
//! without shared memory of a step and poison, started several times, every buffer that can be read and every count of
//! launches compared.
//!
//! Its kernels are exact, so bits decide. Where a device runs one of two ranks alone, the other one's inputs are zero
//! on the emulator.

use std::time::Duration;

use kernel_abi::bundle::Bundle;
use kernel_abi::exec::Executor;
use kernel_abi::numeric::{bytes_of, random, write_element};
use kernel_abi::plan::{BufferId, BufferRole, CheckedPlan, NodeOp, Plan, PlanBuilder, Region};
use kernel_abi::{DType, numeric};
use kernel_emulator::EmuExecutor;
use kernel_runtime::arena::Sharing;
use kernel_runtime::{
    Buffer, Code, Coverage, CudaExecutor, CudaOptions, Device, Ranks, RuntimeError, Stream,
};
use serde_json::{Value, json};

use crate::arguments::Arguments;
use crate::report::Report;

/// Steps of a mode.
const STEPS: u64 = 4;
/// Few enough that the plan has several marks.
const NODES_OF_MARK: usize = 4;
/// How long a step may take.
const LIMIT: Duration = Duration::from_secs(20);

/// Rows.
const M: u64 = 2;
/// Columns of the residuals.
const H: u64 = 7168;
/// Columns of what the product reads from, from a column on.
const XW: u64 = 3216;
const X0: u64 = 3072;
/// Columns and rows of the weights.
const K: u64 = 128;
const N: u64 = 768;
/// Addends and columns of the sum.
const PICKS: u64 = 16;
const Z: u64 = 3584;

/// The plan; the kernels and bindings are those of the set `gpu`.
fn plan(ranks: u32) -> Plan {
    let mut plan = PlanBuilder::new(ranks);
    let host = || BufferRole::Host { promise: None };
    let y0 = plan.buffer("y0", DType::F32, &[M, H], host());
    let y1 = plan.buffer("y1", DType::F32, &[M, H], host());
    let terms = plan.buffer("terms", DType::F32, &[M * PICKS, Z], host());
    let factors = plan.buffer("factors", DType::F32, &[M, PICKS], host());
    let weight = plan.buffer("weight", DType::Bf16, &[N, K], BufferRole::Weight);
    let nothing = plan.buffer("nothing", DType::U8, &[0], BufferRole::Weight);
    let state = plan.buffer("state", DType::Bf16, &[M, H], BufferRole::State);
    let step = |plan: &mut PlanBuilder, name: &str, dtype, shape: &[u64]| {
        plan.buffer(name, dtype, shape, BufferRole::Step)
    };
    let opened = step(&mut plan, "opened", DType::Bf16, &[M, H]);
    let added = step(&mut plan, "added", DType::Bf16, &[M, H]);
    let carried = step(&mut plan, "carried", DType::Bf16, &[M, H]);
    let x = step(&mut plan, "x", DType::Bf16, &[M, XW]);
    let product = step(&mut plan, "product", DType::Bf16, &[M, N]);
    let reduced = step(&mut plan, "reduced", DType::Bf16, &[M, N]);
    let gathered = step(&mut plan, "gathered", DType::Bf16, &[M, N * u64::from(ranks)]);
    let wide = step(&mut plan, "wide", DType::Bf16, &[M, N * u64::from(ranks)]);
    let scattered = step(&mut plan, "scattered", DType::Bf16, &[M, N]);
    let sum = step(&mut plan, "sum", DType::F32, &[M, Z]);
    let sums = step(&mut plan, "sums", DType::F32, &[M, H]);
    let last = step(&mut plan, "last", DType::Bf16, &[M, H]);
    let rows = [("M", M), ("H", H)];
    let residual = "residual.tile";
    plan.kernel("open", residual, "residual_open", &rows).read("y", y0).write("out", opened).add();
    plan.kernel("add", residual, "residual_add", &rows)
        .read("p", opened)
        .read("y", y1)
        .write("out", added)
        .add();
    plan.kernel("carry", residual, "residual_add", &rows)
        .read("p", state)
        .read("y", y0)
        .write("out", carried)
        .add();
    plan.copy("cut", region(added, 0, M * XW), region(x, 0, M * XW));
    let product_of = [("M", M), ("N", N), ("K", K), ("XW", XW), ("X0", X0)];
    plan.kernel("multiply", "gemv.tile", "gemv_bf16", &product_of)
        .read("W", weight)
        .read("x", x)
        .write("y", product)
        .read("next_w", nothing)
        .add();
    plan.all_reduce("reduce", product, reduced);
    // Not what is reduced: that is the same on a rank whose own part is zero.
    plan.all_gather("gather", product, gathered, M);
    for rank in 0..u64::from(ranks) {
        let name = format!("spread{rank}");
        plan.copy(name, region(product, 0, M * N), region(wide, rank * M * N, M * N));
    }
    plan.reduce_scatter("scatter", wide, scattered, M);
    plan.kernel("sum", "experts.tile", "expert_sum", &[("M", M), ("K", PICKS), ("Z", Z)])
        .read("y", terms)
        .read("wt", factors)
        .write("out", sum)
        .add();
    for half in 0..2 {
        let name = format!("repeat{half}");
        plan.copy(name, region(sum, 0, M * Z), region(sums, half * M * Z, M * Z));
    }
    plan.kernel("finish", residual, "residual_add", &rows)
        .read("p", carried)
        .read("y", sums)
        .write("out", last)
        .add();
    // The next step starts from what this one leaves.
    plan.copy("keep", region(last, 0, M * H), region(state, 0, M * H));
    plan.finish()
}

fn region(buffer: BufferId, start: u64, len: u64) -> Region {
    Region { buffer, start, len }
}

/// The texts of the kernels, by the names of their files.
fn text(name: &str) -> Option<&'static str> {
    kimi_k3::kernels::file(name).map(|file| file.text)
}

/// What is written before a step: weights before the first one alone.
fn inputs(plan: &CheckedPlan, seed: u64, step: u64) -> Result<Vec<(BufferId, Vec<u8>)>, String> {
    let mut all = Vec::new();
    for (at, buffer) in plan.buffers.iter().enumerate() {
        let is_written = match buffer.role {
            BufferRole::Weight => step == 0,
            BufferRole::Host { .. } => true,
            BufferRole::State | BufferRole::Step | BufferRole::Symmetric => false,
        };
        let count = buffer.elements().and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
        if is_written && count > 0 {
            let stream = at as u64 + 1000 * step;
            let codes = random::codes(buffer.dtype, count, seed, stream, None)
                .map_err(|error| error.to_string())?;
            let mut bytes = vec![0; bytes_of(buffer.dtype, count)];
            for (element, code) in codes.into_iter().enumerate() {
                write_element(buffer.dtype, &mut bytes, element, code);
            }
            all.push((BufferId(at as u32), bytes));
        }
    }
    Ok(all)
}

/// What a buffer holds after each step on rank 0.
type Contents = Vec<Vec<Vec<u8>>>;

/// The steps on the emulator. Ranks but the first one get zeros.
fn wanted(emulator: &mut EmuExecutor, seed: u64) -> Result<Contents, String> {
    let (ranks, buffers) = (emulator.plan().ranks, emulator.plan().buffers.len());
    let mut all = Vec::new();
    for step in 0..STEPS {
        for (buffer, bytes) in inputs(emulator.plan(), seed, step)? {
            for rank in 0..ranks {
                let given = if rank == 0 { bytes.clone() } else { vec![0; bytes.len()] };
                emulator.write(rank, buffer, &given).map_err(|error| error.to_string())?;
            }
        }
        emulator.step().map_err(|error| format!("on the emulator: {error}"))?;
        let read = |at: usize| emulator.read(0, BufferId(at as u32));
        let contents = (0..buffers).map(read).collect::<Result<Vec<_>, _>>();
        all.push(contents.map_err(|error| error.to_string())?);
    }
    Ok(all)
}

/// How a plan is run on a device.
#[derive(Debug, Clone, Copy)]
struct Mode {
    ranks: Ranks,
    sharing: Sharing,
    poison: bool,
}

impl Mode {
    fn all() -> Vec<Mode> {
        let mut all = Vec::new();
        for ranks in [Ranks::One, Ranks::Alone(0)] {
            for sharing in [Sharing::Tight, Sharing::None] {
                all.extend([false, true].map(|poison| Mode { ranks, sharing, poison }));
            }
        }
        all
    }

    fn name(&self) -> String {
        let ranks = match self.ranks {
            Ranks::One => "one rank",
            Ranks::Alone(_) => "one of two ranks alone",
        };
        let poison = if self.poison { ", poison" } else { "" };
        format!("{ranks}, {} memory{poison}", sharing_name(self.sharing))
    }
}

fn sharing_name(sharing: Sharing) -> &'static str {
    match sharing {
        Sharing::Tight => "shared",
        Sharing::None => "unshared",
    }
}

/// Whether the weights are written before the first step, or are there from steps before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weights {
    Written,
    There,
}

/// What came of a run of all steps.
#[derive(Debug, Default)]
struct Tally {
    buffers: u64,
    elements: u64,
    different: u64,
    first: Option<String>,
}

impl Tally {
    fn compare(&mut self, name: &str, dtype: DType, step: u64, found: &[u8], wanted: &[u8]) {
        self.buffers += 1;
        for at in 0..numeric::elements_in(dtype, wanted.len()) {
            let [found, wanted] =
                [found, wanted].map(|bytes| numeric::read_element(dtype, bytes, at));
            self.elements += 1;
            if found != wanted {
                self.different += 1;
                self.first.get_or_insert_with(|| {
                    let show = |code: Option<u64>| {
                        code.map_or("nothing".to_owned(), |code| {
                            kernel_tests::values::show(dtype, code)
                        })
                    };
                    let (found, wanted) = (show(found), show(wanted));
                    format!("`{name}` after step {step}, element {at}: {found}, wanted {wanted}")
                });
            }
        }
    }
}

/// Runs every mode and writes the report; 1 where one of them differs from the emulator.
///
/// # Errors
/// There is no device, the bundle does not fit it, or a step fails.
pub(crate) fn main(all: &Arguments, say: fn(&str)) -> Result<u8, crate::Stop> {
    let bundle = all.open_bundle()?;
    let report = Report::create(all.report.as_deref())?;
    let device = Device::open(all.device).map_err(show)?;
    let seed = all.seed.unwrap_or_else(crate::fresh_seed);
    say(&format!("{}, seed {seed}: --seed {seed} repeats it\n", device.info().name));
    let outcome = modes(&device, &bundle, seed, say);
    let code = match outcome {
        Ok(rows) => {
            let is_right = rows.iter().all(|row| row["right"] == true);
            report.finish(&json!({
                "gpu": device.info().name,
                "driver": kernel_runtime::probe().map(|driver| driver.version).unwrap_or(0),
                "seed": seed,
                "steps_of_a_mode": STEPS,
                "nodes_of_mark": NODES_OF_MARK,
                "all_right": is_right,
                "modes": rows,
            }))?;
            u8::from(!is_right)
        }
        Err(reason) => {
            crate::complain(&format!("error: {reason}\n"));
            4
        }
    };
    if device.is_given_up() {
        kernel_runtime::end_process(code.max(1));
    }
    Ok(code)
}

fn show(error: RuntimeError) -> String {
    format!("{}: {error}", error.code().name())
}

fn modes(device: &Device, bundle: &Bundle, seed: u64, say: fn(&str)) -> Result<Vec<Value>, String> {
    let mut contents = Vec::new();
    for ranks in [1, 2] {
        let mut emulator =
            EmuExecutor::new(plan(ranks), &text).map_err(|error| error.to_string())?;
        contents.push(wanted(&mut emulator, seed)?);
    }
    let mut rows = vec![refusal(device).map_err(show)?];
    tell(say, REFUSAL, &rows[0]);
    for mode in Mode::all() {
        let (ranks, wanted) = match mode.ranks {
            Ranks::One => (1, &contents[0]),
            Ranks::Alone(_) => (2, &contents[1]),
        };
        let options = CudaOptions {
            ranks: mode.ranks,
            sharing: mode.sharing,
            poison: mode.poison,
            nodes_of_mark: NODES_OF_MARK,
            limit: LIMIT,
        };
        let mut executor = CudaExecutor::new(device, plan(ranks), bundle, options).map_err(show)?;
        let row = run(&mut executor, mode.sharing, wanted, seed, Weights::Written)?;
        tell(say, &mode.name(), &row);
        rows.push(named(row, &mode.name()));
        // The same executor with its buffers laid out anew: weights stay, states begin with zeros.
        let other = match mode.sharing {
            Sharing::Tight => Sharing::None,
            Sharing::None => Sharing::Tight,
        };
        executor.set_sharing(other).map_err(show)?;
        let row = run(&mut executor, other, wanted, seed, Weights::There)?;
        let name = format!("{}, laid out anew as {} memory", mode.name(), sharing_name(other));
        tell(say, &name, &row);
        rows.push(named(row, &name));
    }
    Ok(rows)
}

/// What a graph must not do.
const REFUSAL: &str = "rows behind the end of a buffer";

/// Rows that would end in the neighbour of a buffer are refused, and the stream of the capture that stopped there goes on
/// working.
fn refusal(device: &Device) -> Result<Value, RuntimeError> {
    const ROWS: usize = 4;
    const BYTES: u64 = 64;
    let stream = Stream::new(device)?;
    let whole = Buffer::new(device, "whole", DType::U8, 2 * BYTES)?;
    let [own, neighbour] =
        [0, 1].map(|at| whole.part(at * BYTES, format!("part{at}"), DType::U8, BYTES));
    let (own, neighbour) = (own?, neighbour?);
    let pitch = own.bytes() / ROWS;
    let refused = stream.capture(|recorder| {
        recorder.fill("fill", &own, 1)?;
        // One row further than the buffer has.
        recorder.copy_rows("rows", (&neighbour, 0, pitch), (&own, pitch, pitch), pitch, ROWS)
    });
    let code = refused.as_ref().err().map(|error| error.code().name());
    stream.fill(&whole, 2)?;
    let graph = stream.capture(|recorder| {
        recorder.fill("fill", &own, 3)?;
        recorder.copy_rows("rows", (&own, 0, pitch), (&neighbour, pitch, pitch), pitch, ROWS - 1)
    })?;
    stream.start(&graph)?;
    let found = stream.read(&whole)?;
    let wanted = [vec![3; own.bytes()], vec![2; pitch], vec![3; own.bytes() - pitch]].concat();
    let mut tally = Tally::default();
    tally.compare(REFUSAL, DType::U8, 0, &found, &wanted);
    let is_right = code == Some(Code::R0202.name()) && tally.different == 0;
    Ok(json!({
        "mode": REFUSAL,
        "code": code,
        "elements": tally.elements,
        "different": tally.different,
        "first": tally.first,
        "right": is_right,
    }))
}

fn tell(say: fn(&str), name: &str, row: &Value) {
    let verdict = if row["right"] == true { "right" } else { "WRONG" };
    let (compared, different) = (&row["elements"], &row["different"]);
    say(&format!("{verdict}: {name}: {compared} elements, {different} differ, {}\n", row["first"]));
}

fn named(mut row: Value, name: &str) -> Value {
    row["mode"] = Value::from(name);
    row
}

/// All steps, each started from the one graph of the executor.
fn run(
    executor: &mut CudaExecutor,
    sharing: Sharing,
    wanted: &Contents,
    seed: u64,
    weights: Weights,
) -> Result<Value, String> {
    let before = executor.coverage();
    let mut tally = Tally::default();
    let (mut shared, mut skipped) = (0, 0);
    for (step, contents) in (0..).zip(wanted) {
        for (buffer, bytes) in inputs(executor.plan(), seed, step)? {
            let is_weight = executor.plan().buffers[buffer.index()].role == BufferRole::Weight;
            if !is_weight || weights == Weights::Written {
                executor.write(0, buffer, &bytes).map_err(show)?;
            }
        }
        executor.step().map_err(show)?;
        for (at, bytes) in contents.iter().enumerate() {
            let described = &executor.plan().buffers[at];
            if described.elements() == Some(0) {
                skipped += 1;
                continue;
            }
            match executor.read(0, BufferId(at as u32)) {
                Ok(found) => tally.compare(&described.name, described.dtype, step, &found, bytes),
                // What later buffers have overwritten is said, never given.
                Err(RuntimeError::NoContent { .. })
                    if sharing == Sharing::Tight && described.role == BufferRole::Step =>
                {
                    shared += 1;
                }
                Err(error) => return Err(show(error)),
            }
        }
    }
    let launches = executor.coverage();
    let counted = is_counted(executor.plan(), &before, &launches);
    // All of them where none shares memory; some where they do.
    let is_shared = match sharing {
        Sharing::Tight => shared > 0,
        Sharing::None => shared == 0,
    };
    let need = CudaExecutor::need(executor.plan(), sharing).map_err(show)?;
    Ok(json!({
        "steps": wanted.len(),
        "buffers": tally.buffers,
        "elements": tally.elements,
        "different": tally.different,
        "first": tally.first,
        "not_readable_as_shared": shared,
        "without_elements": skipped,
        "launches_so_far": launches.iter().map(|(name, count)| json!([name, count])).collect::<Vec<_>>(),
        "launches_are_those_of_the_plan": counted,
        "graph_nodes": executor.graph().nodes(),
        "step_bytes": need.step,
        "right": tally.different == 0 && tally.elements > 0 && counted && is_shared,
    }))
}

/// Whether every kernel of the plan was launched as often as the steps say, and nothing else.
fn is_counted(plan: &CheckedPlan, before: &Coverage, after: &Coverage) -> bool {
    let mut wanted = before.clone();
    for node in &plan.nodes {
        if let NodeOp::Kernel { kernel, .. } = &node.op {
            wanted.count(&kernel.to_string(), STEPS);
        }
    }
    wanted == *after
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_runs_on_the_emulator_and_its_steps_differ() {
        for ranks in [1, 2] {
            let mut emulator = EmuExecutor::new(plan(ranks), &text).expect("the plan is right");
            let contents = wanted(&mut emulator, 3).expect("it runs");
            let at = |name: &str| {
                let found = emulator.plan().buffers.iter().position(|b| b.name == name);
                found.expect("the buffer is there")
            };
            let (last, state) = (at("last"), at("state"));
            assert_eq!(contents[0][last], contents[0][state]);
            assert_ne!(contents[0][last], contents[1][last]);
            let scattered = &contents[0][at("scattered")];
            assert!(scattered.iter().any(|&byte| byte != 0));
            let bytes = contents[0][at("product")].len();
            let gathered = &contents[0][at("gathered")];
            assert_eq!(gathered.len(), bytes * ranks as usize);
            // Row by row the part of this rank, then that of the other one: zeros, as where this one runs alone.
            let rows = gathered.chunks(gathered.len() / M as usize);
            let (own, others): (Vec<&[u8]>, Vec<&[u8]>) =
                rows.map(|row| row.split_at(bytes / M as usize)).unzip();
            assert_eq!(own.concat(), contents[0][at("product")]);
            assert!(others.concat().iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn the_kernels_are_those_of_the_set() {
        let sources = kernel_tests::gpu::sources_of(&crate::suite::texts()).expect("they are read");
        for key in plan(2).kernels() {
            let of_file = sources.iter().filter(|source| source.path == key.file);
            let is_there = of_file.flat_map(|source| &source.cases).any(|case| {
                let bind = case.bind.iter().cloned().collect::<std::collections::BTreeMap<_, _>>();
                case.kernel == key.kernel && bind == key.bindings
            });
            assert!(is_there, "{key}");
        }
    }

    #[test]
    fn buffers_of_the_step_share_memory() {
        let emulator = EmuExecutor::new(plan(1), &text).expect("the plan is right");
        let bytes = |sharing| CudaExecutor::need(emulator.plan(), sharing).expect("it fits").step;
        assert!(bytes(Sharing::Tight) < bytes(Sharing::None));
        assert_eq!(Mode::all().len(), 8);
    }

    #[test]
    fn a_difference_and_a_launch_too_many_are_found() {
        let mut tally = Tally::default();
        let bytes = |values: [f32; 2]| values.map(f32::to_le_bytes).concat();
        tally.compare("y", DType::F32, 1, &bytes([1.0, 2.0]), &bytes([1.0, 3.0]));
        assert_eq!((tally.elements, tally.different), (2, 1));
        let first = tally.first.expect("there is one");
        assert!(first.starts_with("`y` after step 1, element 1: 2.0"), "{first}");
        let emulator = EmuExecutor::new(plan(1), &text).expect("the plan is right");
        let (before, mut after) = (Coverage::default(), Coverage::default());
        for node in &emulator.plan().nodes {
            if let NodeOp::Kernel { kernel, .. } = &node.op {
                after.count(&kernel.to_string(), STEPS);
            }
        }
        assert!(is_counted(emulator.plan(), &before, &after));
        after.count("more", 1);
        assert!(!is_counted(emulator.plan(), &before, &after));
    }
}

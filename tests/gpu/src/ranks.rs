//! `gpu-tests ranks`: kernels over several ranks on several devices of one process, against the emulator and f64.
//!
//! Each rank is a device with a stream of its own; a device that is named twice has two ranks, whose CTAs must fit
//! beside each other. Every wait has an end: a rank that is not heard of ends the run with an error.

mod exercise;

use std::time::Duration;

use kernel_abi::bundle::{Bundle, KernelHead};
use kernel_abi::plan::Scalar;
use kernel_abi::{Access, DType};
use kernel_emulator::{Argument, Memory, Options, fill_ranks, run_kernel_on_ranks};
use kernel_ir::index::{Id, IndexVec};
use kernel_ir::kernel::{Param, ParamId, RANK, Words};
use kernel_ir::pipeline::Built;
use kernel_runtime::graph::Begin;
use kernel_runtime::symmetric::{Symmetric, connect};
use kernel_runtime::timing::{Flush, Times};
use kernel_runtime::{
    Buffer, Device, Event, Graph, Kernel, KernelImage, RuntimeError, Stream, Value,
};
use kernel_tests::program::Program;
use serde_json::{Value as Json, json};

use crate::Stop;
use crate::arguments::Arguments;
use crate::report::Report;
use exercise::{Exercise, Inputs, floats};

/// How long a launch may take; a rank that waits for one that does not come spins that long.
const LIMIT: Duration = Duration::from_secs(10);
/// Launches of a graph.
const CHAIN: usize = 20;
/// Runs of a graph that count.
const RUNS: usize = 50;
/// Inputs that the rounds take in turn: the emulator says what each gives, which takes seconds.
const INPUTS: u32 = 2;

fn fault(error: RuntimeError) -> String {
    format!("{}: {error}", error.code().name())
}

/// Runs every kernel of the bundle that is made for as many ranks as devices are named.
pub(crate) fn main(all: &Arguments, say: fn(&str)) -> Result<u8, Stop> {
    let bundle = all.open_bundle()?;
    let report = Report::create(all.report.as_deref())?;
    Ok(run(all, &bundle, report, say)?)
}

fn run(all: &Arguments, bundle: &Bundle, out: Report, say: fn(&str)) -> Result<u8, String> {
    let numbers = if all.devices.is_empty() { vec![0, 1] } else { all.devices.clone() };
    let world = numbers.len();
    let devices =
        numbers.iter().map(|&n| Device::open(n).map_err(fault)).collect::<Result<Vec<_>, _>>()?;
    connect(&devices).map_err(fault)?;
    let stream = |device: &Device| -> Result<Stream, String> {
        let mut stream = Stream::new(device).map_err(fault)?;
        stream.set_limit(LIMIT);
        Ok(stream)
    };
    let streams = devices.iter().map(stream).collect::<Result<Vec<_>, _>>()?;
    let exercise = |head: KernelHead| {
        let named = exercise::ALL.iter().find(|exercise| exercise.kernel == head.kernel);
        let of_world = head.bindings.get("WORLD") == Some(&(world as i64));
        named.filter(|_| of_world).map(|exercise| (exercise, head))
    };
    let heads: Vec<(&Exercise, KernelHead)> = bundle
        .kernels()
        .map(|kernel| kernel.head().clone())
        .filter(|head| kernel_runtime::kernel::fits(&head.target, devices[0].info().capability))
        .filter_map(exercise)
        .collect();
    if heads.is_empty() {
        return Err(format!("the bundle has no kernel for {world} ranks and this device"));
    }
    let measured = measure(all, bundle, &heads, (&numbers, &streams), say);
    if devices.iter().any(Device::is_given_up) {
        // The end of the process would wait for the kernel that does not end.
        say(&measured.err().unwrap_or_default());
        kernel_runtime::end_process(4);
    }
    let (rows, failed) = measured?;
    let gpus: Vec<&str> = devices.iter().map(|device| device.info().name.as_str()).collect();
    let report = json!({
        "devices": numbers, "gpus": gpus, "chain": CHAIN, "runs": RUNS, "rows": rows,
        "how": "warm: a graph of launches a rank, the slowest rank; cold: caches filled before each, less the \
                same graph without launches",
    });
    out.finish(&report)?;
    Ok(u8::from(failed))
}

/// Checks and times each kernel; whether one of them is wrong.
fn measure(
    all: &Arguments,
    bundle: &Bundle,
    heads: &[(&Exercise, KernelHead)],
    (numbers, streams): (&[u32], &[Stream]),
    say: fn(&str),
) -> Result<(Vec<Json>, bool), String> {
    let world = numbers.len();
    let mut rows = Vec::new();
    let mut failed = false;
    for (exercise, head) in heads {
        let bench = Bench::new(bundle, exercise, head, numbers, streams)?;
        let checked = bench.check(all.seed.unwrap_or(1), all.runs)?;
        failed |= checked.wrong > 0 || checked.error > exercise.bound;
        let (warm, cold) = bench.times()?;
        let elements = bench.elements;
        say(&format!(
            "{}: {elements} elements, {world} ranks: {} rounds, {} wrong, relative error {:.2e}; {:.2} us warm \
             ({:.2} to {:.2}), {:.2} us cold\n",
            exercise.kernel,
            checked.rounds,
            checked.wrong,
            checked.error,
            warm.median,
            warm.least,
            warm.greatest,
            cold
        ));
        rows.push(json!({
            "kernel": exercise.kernel, "bindings": head.bindings, "world": world, "elements": elements,
            "rounds": checked.rounds, "inputs": INPUTS,
            "rounds_with_other_bits": checked.wrong, "relative_error_against_f64": checked.error,
            "warm_us": times(&warm), "cold_us": cold,
        }));
    }
    Ok((rows, failed))
}

fn times(times: &Times) -> Json {
    json!({ "median": times.median, "least": times.least, "greatest": times.greatest, "runs": times.runs })
}

/// What the rounds gave.
struct Checked {
    rounds: u32,
    /// Rounds with other bits than the emulator's.
    wrong: u32,
    /// The greatest error against the result in f64, by its greatest value.
    error: f64,
}

/// What a parameter is on the devices.
enum Held {
    /// Memory of ranks.
    Ranks(Symmetric),
    /// A buffer on each rank; words of epochs keep what launches leave.
    Buffers { of: Vec<Buffer>, is_epoch: bool },
    /// The number of the rank.
    Rank,
}

/// A kernel on all ranks.
struct Bench<'s> {
    exercise: &'s Exercise,
    head: &'s KernelHead,
    built: Built,
    streams: &'s [Stream],
    kernels: Vec<Kernel>,
    held: Vec<(String, Held)>,
    elements: u64,
}

/// What the ranks start with, and what the emulator says that they end with.
struct Case {
    memories: Vec<Memory>,
    /// The bits of each rank; those of the first round, where the emulator does not say.
    wanted: Option<Vec<Vec<u8>>>,
    exact: Vec<Vec<f64>>,
}

impl<'s> Bench<'s> {
    fn new(
        bundle: &Bundle,
        exercise: &'s Exercise,
        head: &'s KernelHead,
        numbers: &[u32],
        streams: &'s [Stream],
    ) -> Result<Bench<'s>, String> {
        let (file, source) = exercise.source;
        let program =
            Program::of_text(file, source, &mut |path| Err(format!("there is no file `{path}`")));
        let template = program.front.template(exercise.kernel);
        let template = template.ok_or("the source has no such kernel")?;
        let binding: Vec<(String, i64)> =
            head.bindings.iter().map(|(name, value)| (name.clone(), *value)).collect();
        let target = kernel_tests::program::target(&head.target)?;
        let built = program.build(template, &binding, target)?;
        let image = bundle
            .kernels()
            .find(|kernel| kernel.head() == head)
            .map(KernelImage::of)
            .ok_or("the kernel is gone")?;
        let kernels = streams
            .iter()
            .map(|stream| Kernel::load(stream.device(), &image).map_err(fault))
            .collect::<Result<Vec<_>, _>>()?;
        let ctas: u64 = built.kernel.launch.grid.iter().map(|&extent| u64::from(extent)).product();
        for ((kernel, stream), number) in kernels.iter().zip(streams).zip(numbers) {
            let beside = numbers.iter().filter(|other| *other == number).count() as u64;
            let room = kernel.ctas_at_once(stream.device().info()).map_err(fault)?;
            if ctas * beside > room {
                return Err(format!(
                    "{beside} ranks of {ctas} CTAs on device {number}, which has {room} at once"
                ));
            }
        }
        let hold = |param: &Param| -> Result<Held, String> {
            if param.access == Access::Scalar {
                let is_rank = param.name == RANK;
                return is_rank
                    .then_some(Held::Rank)
                    .ok_or_else(|| "a scalar is missing".to_owned());
            }
            let name = &param.name;
            let len = param.const_len().ok_or_else(|| format!("`{name}` has no size"))?;
            if param.access == Access::Peer {
                let memory = Symmetric::new(streams, name, param.dtype, len).map_err(fault)?;
                return Ok(Held::Ranks(memory));
            }
            let one = |stream: &Stream| -> Result<Buffer, RuntimeError> {
                let buffer = Buffer::new(stream.device(), name, param.dtype, len)?;
                stream.fill(&buffer, 0)?;
                Ok(buffer)
            };
            let of = streams.iter().map(|s| one(s).map_err(fault)).collect::<Result<_, _>>()?;
            Ok(Held::Buffers { of, is_epoch: param.words == Some(Words::Epoch) })
        };
        let params = built.kernel.params.iter();
        let held = params
            .map(|param| Ok((param.name.clone(), hold(param)?)))
            .collect::<Result<Vec<_>, String>>()?;
        let result = Memory::find(&built.kernel.params, exercise.result);
        let elements = result.and_then(|id| built.kernel.params[id].const_len());
        let elements = elements.ok_or_else(|| format!("`{}` has no size", exercise.result))?;
        Ok(Bench { exercise, head, built, streams, kernels, held, elements })
    }

    fn given(&self, rank: usize) -> Vec<(&str, Value<'_>)> {
        let mut given = Vec::with_capacity(self.held.len());
        for (name, held) in &self.held {
            given.push((
                name.as_str(),
                match held {
                    Held::Ranks(memory) => Value::Ranks(memory.table(rank)),
                    Held::Buffers { of, .. } => Value::Buffer(&of[rank]),
                    Held::Rank => Value::Scalar(Scalar::I32(rank as i32)),
                },
            ));
        }
        given
    }

    fn finish(&self) -> Result<(), String> {
        for (rank, stream) in self.streams.iter().enumerate() {
            stream
                .finish(|| vec![format!("{} of rank {rank}", self.exercise.kernel)])
                .map_err(fault)?;
        }
        Ok(())
    }

    fn bytes(&self, memory: &Memory, name: &str) -> (DType, Vec<u8>) {
        let id = Memory::find(&self.built.kernel.params, name);
        match id.map(|id| memory.argument(id)) {
            Some(Argument::Buffer(buffer)) => (buffer.dtype(), buffer.bytes().to_vec()),
            Some(Argument::Missing | Argument::Scalar { .. }) | None => (DType::U8, Vec::new()),
        }
    }

    fn case(&self, number: u32, seed: u64) -> Result<Case, String> {
        let params = &self.built.kernel.params;
        let mut memories = vec![Memory::new(params); self.streams.len()];
        let is_whole = number.is_multiple_of(2);
        for name in self.exercise.whole.iter().filter(|_| is_whole) {
            for (rank, memory) in memories.iter_mut().enumerate() {
                whole(params, memory, name, seed.wrapping_add(rank as u64))?;
            }
        }
        fill_ranks(params, &mut memories, seed).map_err(|e| e.to_string())?;
        for id in self.exercise.same.iter().filter_map(|name| Memory::find(params, name)) {
            let Argument::Buffer(first) = memories[0].argument(id).clone() else { continue };
            memories.iter_mut().for_each(|memory| memory.set_buffer(id, first.clone()));
        }
        let binding = |name: &str| {
            let value = self.head.bindings.get(name).copied().unwrap_or(0);
            usize::try_from(value).unwrap_or(0)
        };
        let exact = {
            let of: Vec<_> =
                memories.iter().map(|memory| move |name: &str| self.bytes(memory, name)).collect();
            let inputs: Vec<Inputs<'_>> =
                of.iter().map(|of| Inputs { of, binding: &binding }).collect();
            (self.exercise.exact)(&inputs)
        };
        if !is_whole && !self.exercise.whole.is_empty() {
            return Ok(Case { memories, wanted: None, exact });
        }
        let mut after = memories.clone();
        run_kernel_on_ranks(&self.built.kernel, &mut after, 1, &Options::STANDARD)
            .map_err(|error| error.to_string())?;
        let wanted = after.iter().map(|m| self.bytes(m, self.exercise.result).1).collect();
        Ok(Case { memories, wanted: Some(wanted), exact })
    }

    /// Gives every rank what it starts with; the result is poison where nothing is read of it.
    fn upload(&self, case: &Case) -> Result<(), String> {
        for (name, held) in &self.held {
            let Held::Buffers { of, is_epoch: false } = held else { continue };
            let id = Memory::find(&self.built.kernel.params, name);
            let access = id.map(|id| self.built.kernel.params[id].access);
            for ((buffer, stream), memory) in of.iter().zip(self.streams).zip(&case.memories) {
                if access == Some(Access::Output) {
                    stream.poison(buffer).map_err(fault)?;
                } else {
                    stream.write(buffer, &self.bytes(memory, name).1).map_err(fault)?;
                }
            }
        }
        Ok(())
    }

    /// Rounds on random inputs; ranks start one after the other, another one first in each round.
    fn check(&self, seed: u64, rounds: u32) -> Result<Checked, String> {
        let world = self.streams.len();
        let mut cases = (0..INPUTS.min(rounds))
            .map(|number| self.case(number, seed.wrapping_add(u64::from(number) * world as u64)))
            .collect::<Result<Vec<_>, _>>()?;
        let mut checked = Checked { rounds, wrong: 0, error: 0.0 };
        let result = self.held.iter().find(|(name, _)| name == self.exercise.result);
        let Some((_, Held::Buffers { of: results, .. })) = result else {
            return Err(format!("`{}` is no buffer", self.exercise.result));
        };
        for round in 0..rounds as usize {
            let inputs = cases.len();
            let case = &mut cases[round % inputs];
            self.upload(case)?;
            for at in 0..world {
                let rank = (at + round) % world;
                let (stream, kernel) = (&self.streams[rank], &self.kernels[rank]);
                stream.launch(kernel, &self.given(rank)).map_err(fault)?;
            }
            self.finish()?;
            let got = results
                .iter()
                .zip(self.streams)
                .map(|(result, stream)| stream.read(result).map_err(fault))
                .collect::<Result<Vec<_>, _>>()?;
            // What is the same on all ranks stays so.
            let agree = self.exercise.same.is_empty() || got.iter().all(|one| *one == got[0]);
            let right = agree && *case.wanted.get_or_insert_with(|| got.clone()) == got;
            for (rank, exact) in case.exact.iter().enumerate() {
                let got = &got[rank];
                let error = relative(&floats(results[rank].dtype(), got), exact);
                checked.error = checked.error.max(error);
            }
            checked.wrong += u32::from(!right);
        }
        Ok(checked)
    }

    /// Times of a launch: in a row, and each with cold caches.
    fn times(&self) -> Result<(Times, f64), String> {
        let record =
            |rank: usize, flush: Option<&Flush>, launches: bool| -> Result<Graph, String> {
                let stream = &self.streams[rank];
                let graph = stream.capture(|recorder| {
                    for at in 0..CHAIN {
                        if let Some(flush) = flush {
                            recorder.fill("flush", flush.buffer(), 0)?;
                        }
                        if launches {
                            let node = format!("launch {at}");
                            let kernel = &self.kernels[rank];
                            recorder.launch(&node, kernel, &self.given(rank), Begin::After)?;
                        }
                    }
                    Ok(())
                });
                graph.map_err(fault)
            };
        let ranks = 0..self.streams.len();
        let warm = ranks.clone().map(|r| record(r, None, true)).collect::<Result<Vec<_>, _>>()?;
        let flushes = self
            .streams
            .iter()
            .map(|stream| Flush::new(stream).map_err(fault))
            .collect::<Result<Vec<_>, _>>()?;
        let with = |launches: bool| {
            ranks
                .clone()
                .map(|r| record(r, Some(&flushes[r]), launches))
                .collect::<Result<Vec<_>, _>>()
        };
        let (cold, empty) = (with(true)?, with(false)?);
        let warm = self.time(&warm)?;
        let (cold, empty) = (self.time(&cold)?, self.time(&empty)?);
        Ok((warm, cold.median - empty.median))
    }

    /// Starts a graph on every rank; the time of the slowest, by launch.
    fn time(&self, graphs: &[Graph]) -> Result<Times, String> {
        let mut times = Vec::with_capacity(RUNS);
        for run in 0..RUNS + 3 {
            let mut marks = Vec::new();
            for (stream, graph) in self.streams.iter().zip(graphs) {
                let event = || Event::new(stream.device()).map_err(fault);
                let (start, end) = (event()?, event()?);
                stream.record(&start).map_err(fault)?;
                stream.start(graph).map_err(fault)?;
                stream.record(&end).map_err(fault)?;
                marks.push((start, end));
            }
            self.finish()?;
            let mut slowest = 0.0f64;
            for (start, end) in &marks {
                slowest = slowest.max(end.microseconds_since(start).map_err(fault)?);
            }
            if run >= 3 {
                times.push(slowest);
            }
        }
        Ok(Times::of(times).each_of(CHAIN))
    }
}

/// Small whole numbers for a buffer.
fn whole(
    params: &IndexVec<ParamId, Param>,
    memory: &mut Memory,
    name: &str,
    seed: u64,
) -> Result<(), String> {
    let id = Memory::find(params, name).ok_or_else(|| format!("no `{name}`"))?;
    let param = &params[id];
    let len = param.const_len().ok_or_else(|| format!("`{name}` has no size"))?;
    let code = |i: u64| {
        let word = kernel_abi::numeric::random::word(seed, id.index() as u64, i) % 7;
        kernel_abi::numeric::float_from_f64(param.dtype, word as f64 - 3.0).unwrap_or(0)
    };
    let codes: Vec<u64> = (0..len).map(code).collect();
    memory.set_buffer(id, kernel_emulator::Buffer::from_codes(param.dtype, &codes));
    Ok(())
}

/// The greatest difference, by the greatest exact value.
fn relative(got: &[f64], exact: &[f64]) -> f64 {
    let greatest = exact.iter().fold(f64::MIN_POSITIVE, |most, x| most.max(x.abs()));
    let worst = |most: f64, (x, y): (&f64, &f64)| {
        let difference = (x - y).abs();
        if difference.is_nan() { f64::INFINITY } else { most.max(difference) }
    };
    got.iter().zip(exact).fold(0.0, worst) / greatest
}

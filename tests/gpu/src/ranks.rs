//! `gpu-tests ranks`: the push all-reduce on several devices of one process, against the emulator and a sum in f64.
//!
//! Each rank is a device with a stream of its own; a device that is named twice has two ranks, whose CTAs must fit
//! beside each other. Every wait has an end: a rank that is not heard of ends the run with an error.

use std::time::Duration;

use kernel_abi::DType;
use kernel_abi::bundle::{Bundle, KernelHead};
use kernel_abi::plan::Scalar;
use kernel_emulator::{Argument, Memory, Options, fill_ranks, run_kernel_on_ranks};
use kernel_ir::kernel::RANK;
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

/// The source of the kernels of the bundle.
const SOURCE: &str = include_str!("../../ranks/all_reduce_push.tile");
/// The kernel.
const KERNEL: &str = "all_reduce_push";
/// How long a launch may take; a rank that waits for one that does not come spins that long.
const LIMIT: Duration = Duration::from_secs(10);
/// Launches of a graph.
const CHAIN: usize = 20;
/// Runs of a graph that count.
const RUNS: usize = 50;
/// Rounds that the emulator repeats: it takes seconds for large buffers.
const EMULATED: u32 = 2;

fn fault(error: RuntimeError) -> String {
    format!("{}: {error}", error.code().name())
}

/// Runs every all-reduce of the bundle that is made for as many ranks as devices are named.
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
    let heads: Vec<KernelHead> = bundle
        .kernels()
        .map(|kernel| kernel.head().clone())
        .filter(|head| head.kernel == KERNEL && head.bindings.get("WORLD") == Some(&(world as i64)))
        .filter(|head| kernel_runtime::kernel::fits(&head.target, devices[0].info().capability))
        .collect();
    if heads.is_empty() {
        return Err(format!("the bundle has no {KERNEL} for {world} ranks and this device"));
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
        "how": "warm: a graph of all-reduces a rank, the slowest rank; cold: caches filled before each, less the \
                same graph without all-reduces",
    });
    out.finish(&report)?;
    Ok(u8::from(failed))
}

/// Checks and times each kernel; whether one of them is wrong.
fn measure(
    all: &Arguments,
    bundle: &Bundle,
    heads: &[KernelHead],
    (numbers, streams): (&[u32], &[Stream]),
    say: fn(&str),
) -> Result<(Vec<Json>, bool), String> {
    let world = numbers.len();
    let mut rows = Vec::new();
    let mut failed = false;
    for head in heads {
        let bench = Bench::new(bundle, head, numbers, streams)?;
        let checked = bench.check(all.seed.unwrap_or(1), all.runs)?;
        failed |= !checked.holds();
        let (warm, cold) = bench.times()?;
        let elements = bench.elements;
        say(&format!(
            "{elements} elements, {world} ranks: {} rounds, {} wrong, relative error {:.2e}; {:.2} us warm \
             ({:.2} to {:.2}), {:.2} us cold\n",
            checked.rounds,
            checked.wrong,
            checked.error,
            warm.median,
            warm.least,
            warm.greatest,
            cold
        ));
        rows.push(json!({
            "kernel": KERNEL, "bindings": head.bindings, "world": world, "elements": elements,
            "rounds": checked.rounds, "rounds_against_the_emulator": checked.emulated,
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
    emulated: u32,
    /// Rounds with other bits than the sum in rank order.
    wrong: u32,
    /// The greatest error against the sum in f64, by the greatest sum.
    error: f64,
}

impl Checked {
    fn holds(&self) -> bool {
        self.wrong == 0 && self.error < 1e-5
    }
}

/// An all-reduce on all ranks.
struct Bench<'s> {
    built: Built,
    streams: &'s [Stream],
    kernels: Vec<Kernel>,
    inbox: Symmetric,
    ready: Symmetric,
    inputs: Vec<Buffer>,
    outputs: Vec<Buffer>,
    epochs: Vec<Buffer>,
    elements: u64,
}

impl<'s> Bench<'s> {
    fn new(
        bundle: &Bundle,
        head: &KernelHead,
        numbers: &[u32],
        streams: &'s [Stream],
    ) -> Result<Bench<'s>, String> {
        let program = Program::of_text("all_reduce_push.tile", SOURCE, &mut |path| {
            Err(format!("there is no file `{path}`"))
        });
        let template = program.front.template(KERNEL).ok_or("the source has no such kernel")?;
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
        let len = |name: &str| -> Result<u64, String> {
            let id = Memory::find(&built.kernel.params, name);
            let param = id.map(|id| &built.kernel.params[id]);
            param.and_then(|p| p.const_len()).ok_or_else(|| format!("`{name}` has no size"))
        };
        let symmetric = |name: &str, dtype| -> Result<Symmetric, String> {
            Symmetric::new(streams, name, dtype, len(name)?).map_err(fault)
        };
        let (inbox, ready) = (symmetric("inbox", DType::F32)?, symmetric("ready", DType::U32)?);
        let elements = len("x")?;
        let words = len("seq")?;
        let buffers = |name: &str, dtype, elements| -> Result<Vec<Buffer>, String> {
            let one = |stream: &Stream| -> Result<Buffer, RuntimeError> {
                let buffer = Buffer::new(stream.device(), name, dtype, elements)?;
                stream.fill(&buffer, 0)?;
                Ok(buffer)
            };
            streams.iter().map(|stream| one(stream).map_err(fault)).collect()
        };
        let inputs = buffers("x", DType::F32, elements)?;
        let outputs = buffers("y", DType::F32, elements)?;
        let epochs = buffers("seq", DType::U32, words)?;
        Ok(Bench { built, streams, kernels, inbox, ready, inputs, outputs, epochs, elements })
    }

    fn given(&self, rank: usize) -> [(&'static str, Value<'_>); 6] {
        [
            ("x", Value::Buffer(&self.inputs[rank])),
            ("y", Value::Buffer(&self.outputs[rank])),
            ("inbox", Value::Ranks(self.inbox.table(rank))),
            ("ready", Value::Ranks(self.ready.table(rank))),
            ("seq", Value::Buffer(&self.epochs[rank])),
            (RANK, Value::Scalar(Scalar::I32(rank as i32))),
        ]
    }

    fn finish(&self) -> Result<(), String> {
        for (rank, stream) in self.streams.iter().enumerate() {
            stream.finish(|| vec![format!("{KERNEL} of rank {rank}")]).map_err(fault)?;
        }
        Ok(())
    }

    /// Rounds on random inputs; ranks start one after the other, another one first in each round.
    fn check(&self, seed: u64, rounds: u32) -> Result<Checked, String> {
        let params = &self.built.kernel.params;
        let world = self.streams.len();
        let find = |name: &str| Memory::find(params, name).ok_or_else(|| format!("no `{name}`"));
        let (x, y) = (find("x")?, find("y")?);
        let mut checked = Checked { rounds, emulated: rounds.min(EMULATED), wrong: 0, error: 0.0 };
        for round in 0..rounds {
            let mut memories = vec![Memory::new(params); world];
            let fresh = seed.wrapping_add(u64::from(round) * world as u64);
            fill_ranks(params, &mut memories, fresh).map_err(|e| e.to_string())?;
            let bytes = |memory: &Memory, id| match memory.argument(id) {
                Argument::Buffer(buffer) => buffer.bytes().to_vec(),
                Argument::Missing | Argument::Scalar { .. } => Vec::new(),
            };
            let inputs: Vec<Vec<u8>> = memories.iter().map(|memory| bytes(memory, x)).collect();
            for rank in 0..world {
                self.streams[rank].write(&self.inputs[rank], &inputs[rank]).map_err(fault)?;
                self.streams[rank].poison(&self.outputs[rank]).map_err(fault)?;
            }
            for at in 0..world {
                let rank = (at + round as usize) % world;
                let (stream, kernel) = (&self.streams[rank], &self.kernels[rank]);
                stream.launch(kernel, &self.given(rank)).map_err(fault)?;
            }
            self.finish()?;
            let (sum, error) = sums(&inputs);
            let wanted = if round < EMULATED {
                run_kernel_on_ranks(&self.built.kernel, &mut memories, 1, &Options::STANDARD)
                    .map_err(|error| error.to_string())?;
                bytes(&memories[0], y)
            } else {
                sum
            };
            let mut right = true;
            for rank in 0..world {
                let got = self.streams[rank].read(&self.outputs[rank]).map_err(fault)?;
                right &= got == wanted;
                checked.error = checked.error.max(error(&got));
            }
            checked.wrong += u32::from(!right);
        }
        Ok(checked)
    }

    /// Times of an all-reduce: in a row, and each with cold caches.
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
                            let node = format!("all-reduce {at}");
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

/// The bytes of the sum in rank order, and what says how far other bytes are from the sum in f64.
fn sums(inputs: &[Vec<u8>]) -> (Vec<u8>, impl Fn(&[u8]) -> f64) {
    let floats = |bytes: &[u8]| -> Vec<f32> {
        let (words, _) = bytes.as_chunks::<4>();
        words.iter().map(|word| f32::from_le_bytes(*word)).collect()
    };
    let inputs: Vec<Vec<f32>> = inputs.iter().map(|bytes| floats(bytes)).collect();
    let len = inputs.first().map_or(0, Vec::len);
    let sum = |i: usize| inputs.iter().fold(0.0f32, |sum, part| sum + part[i]);
    let bytes = (0..len).flat_map(|i| sum(i).to_le_bytes()).collect();
    let exact: Vec<f64> =
        (0..len).map(|i| inputs.iter().map(|part| f64::from(part[i])).sum()).collect();
    let greatest = exact.iter().fold(f64::MIN_POSITIVE, |most, x| most.max(x.abs()));
    let error = move |got: &[u8]| {
        let differences =
            floats(got).into_iter().zip(&exact).map(|(x, y)| (f64::from(x) - y).abs());
        differences.fold(0.0, |most: f64, x| if x.is_nan() { f64::INFINITY } else { most.max(x) })
            / greatest
    };
    (bytes, error)
}

//! `kernelc run FILE`: one kernel on the emulator.

mod model;
mod orders;
mod ranks;
mod stream;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use kernel_abi::numeric::compare::{Comparison, Tolerance, compare};
use kernel_abi::trace::Records;
use kernel_abi::{Access, DType, numeric, trace};
use kernel_dsl::diag::Diagnostic;
use kernel_emulator::{Buffer, Memory, Options, Schedule, Trace, run_device, run_kernel};
use kernel_ir::index::IndexVec;
use kernel_ir::kernel::{Extent, Param, ParamId};
use kernel_ir::pipeline::{self, Built};

use super::{Answer, Cli, Format, KernelArgs, exit};
use crate::output;
use crate::package::Staged;
use crate::session::{self, Refusal, Session};
use crate::tensors;
use orders::{Fault, Orders};

/// Launches in a row, at most: all of them are kept to be compared.
const MAX_LAUNCHES: u64 = 65_536;

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The file; `-` reads standard input.
    pub file: String,
    /// Which kernel.
    #[command(flatten)]
    pub kernel: KernelArgs,
    /// Value of a parameter: a `.npy` or `.safetensors` file (`FILE.safetensors:TENSOR`) for a buffer, a number
    /// for a scalar. Parameters that are not named are random by --seed. `PARAM@1=VALUE` is of rank 1 alone.
    #[arg(long = "in", value_name = "PARAM=VALUE")]
    pub inputs: Vec<String>,
    /// Where the final content of a buffer goes: a `.npy` or `.safetensors` file.
    #[arg(long = "out", value_name = "PARAM=FILE")]
    pub outputs: Vec<String>,
    /// Seed of random inputs.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// A wanted result: `PARAM=FILE`, or FILE when the kernel writes one buffer only.
    #[arg(long, value_name = "PARAM=FILE")]
    pub compare: Vec<String>,
    /// What counts as equal for --compare: bits, what a sum in f32 of the element type may differ, or what
    /// a model's activations may differ.
    #[arg(long, value_enum, default_value_t = Closeness::Formula)]
    pub tolerance: Closeness,
    /// Where the events of --trace go, for viewers of Chrome's trace format; otherwise they are printed. Their times are
    /// the statements that the CTA, or the role in it, has run.
    #[arg(long, value_name = "FILE", requires = "trace")]
    pub trace_out: Option<PathBuf>,
    /// The level of the IR that runs; both must give the same bits.
    #[arg(long, value_enum, default_value_t = Level::Both)]
    pub level: Level,
    /// Earlier kernels have finished: what they wrote may be read before `grid_wait`.
    #[arg(long)]
    pub producer_done: bool,
    /// Statements that one CTA may execute.
    #[arg(long, default_value_t = Options::STANDARD.max_steps)]
    pub max_steps: u64,
    /// Runs in so many orders in which CTAs of a cluster, or of several ranks, take turns, by --seed: all must give the same bits.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub schedules: u64,
    /// Runs in this order alone, as a run that failed names it.
    #[arg(long, value_name = "POLICY:SEED[:FIRST..END]", conflicts_with = "schedules")]
    pub schedule: Option<Schedule>,
    /// Asks the axioms of the memory model too whether accesses race: every access of every thread at device level, so
    /// small runs only: one of more than 3000 events is not judged, which is exit code 3.
    #[arg(long, conflicts_with = "then")]
    pub memory_model: bool,
    /// Launches in a row. Ranks go on at their own pace. On one rank a launch of a kernel with `pdl: consumer` or `both`
    /// overlaps the one before it: it begins when all CTAs of that one have passed `grid_launch` or have ended.
    #[arg(long, default_value_t = 1, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=MAX_LAUNCHES))]
    pub launches: usize,
    /// A further kernel of the file that is launched next, and overlaps like --launches; may be given several times.
    /// Parameters of one name are one buffer or scalar, and --bind is for every kernel that has the parameter.
    #[arg(long, value_name = "KERNEL")]
    pub then: Vec<String>,
}

/// A level of the IR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Level {
    /// Tile operations.
    Kernel,
    /// Threads.
    Device,
    /// Both, compared bit for bit.
    Both,
}

/// What counts as equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Closeness {
    /// The same bits.
    Bits,
    /// A formula computed in f32 and rounded once.
    Formula,
    /// Activations of a model: relative L2.
    Model,
}

/// Runs the kernel.
pub fn run(cli: &Cli, args: &RunArgs) -> Answer {
    execute(cli, args).unwrap_or_else(|refusal| *refusal)
}

fn execute(cli: &Cli, args: &RunArgs) -> Result<Answer, Refusal> {
    let mut session = Session::new();
    let front = session.open(cli.format, &args.file)?;
    if !args.then.is_empty() {
        return stream::execute(cli, args, (&session, &front));
    }
    let (template, bindings, target) = session.pick(cli.format, &front, &args.kernel)?;
    let refuse =
        |found: &[Diagnostic]| Box::new(output::diagnostics(cli.format, &session.sources, found));
    let built = pipeline::build(template, &bindings, target).map_err(|found| refuse(&found))?;

    if built.kernel.launch.world.is_some() {
        return ranks::execute(cli, args, &built, &|found| refuse(found));
    }
    if args.launches != 1 {
        if args.memory_model {
            let message = "--memory-model judges one launch, or launches of several ranks";
            return Err(session::usage(cli.format, message));
        }
        return stream::execute(cli, args, (&session, &front));
    }
    let mut memory = Memory::new(&built.kernel.params);
    for input in &args.inputs {
        set_input(cli.format, &built, &mut memory, input)?;
    }
    memory
        .fill_missing(&built.kernel.params, args.seed)
        .map_err(|error| refuse(&[error.to_diagnostic()]))?;
    let outputs = named_files(cli.format, &built, &args.outputs)?;
    let wanted = named_files(cli.format, &built, &args.compare)?;

    let start = memory;
    let run = |options: &Options| run_levels(args.level, &built, &start, options);
    let orders = Orders { args, format: cli.format, code: "E0715", refuse: &refuse };
    let (options, (memory, trace)) = orders.run(&built.kernel.name, &run)?;
    let mut answer = report(cli.format, &built, &memory, &trace);
    model::judge(args, &built, &[start], &options, &mut answer, &refuse)?;
    let mut staged = Staged::default();
    events(cli.format, args, &built, std::slice::from_ref(&trace), &mut answer, &mut staged);
    for (param, path) in &wanted {
        compare_one(cli.format, args.tolerance, &built, &memory, *param, path, &mut answer)?;
    }
    for (param, path) in outputs {
        staged.add(path.clone(), encode(cli.format, &built, &memory, param, &path)?);
    }
    staged.commit(cli.format)?;
    Ok(answer)
}

fn run_levels(
    level: Level,
    built: &Built,
    start: &Memory,
    options: &Options,
) -> Result<(Memory, Trace), Fault> {
    let mut at_kernel = start.clone();
    let mut at_device = start.clone();
    match level {
        Level::Kernel => {
            let trace = run_kernel(&built.kernel, &mut at_kernel, options)?;
            Ok((at_kernel, trace))
        }
        Level::Device => {
            let trace = run_device(&built.device, &mut at_device, options)?;
            Ok((at_device, trace))
        }
        Level::Both => {
            let trace = run_kernel(&built.kernel, &mut at_kernel, options)?;
            run_device(&built.device, &mut at_device, options)?;
            for (id, param) in built.kernel.params.iter_enumerated() {
                if at_kernel.buffer(id) != at_device.buffer(id) {
                    return Err(Fault::Levels(format!("`{}`", param.name)));
                }
            }
            Ok((at_kernel, trace))
        }
    }
}

/// Bytes of a tensor for a buffer: 4 an element at least, since references are of f32.
fn room(param: &Param) -> u64 {
    let extents = param.shape.iter().map(|extent| match extent {
        Extent::Const(n) => u64::from(*n),
        Extent::Scalar(_) => i32::MAX as u64,
    });
    let elements = extents.fold(1u64, u64::saturating_mul);
    elements.saturating_mul(u64::from(param.dtype.bits().div_ceil(8).max(4)))
}

fn set_input(
    format: Format,
    built: &Built,
    memory: &mut Memory,
    input: &str,
) -> Result<(), Refusal> {
    let (name, value) = input.split_once('=').ok_or_else(|| {
        session::usage(format, &format!("`{input}` is not of the form PARAM=VALUE"))
    })?;
    let (id, param) = find(format, &built.kernel.params, name)?;
    if param.access == Access::Scalar {
        let code = scalar_code(param.dtype, value).ok_or_else(|| {
            session::usage(
                format,
                &format!("`{value}` is no value of type {} for `{name}`", param.dtype),
            )
        })?;
        memory.set_scalar(id, param.dtype, code);
        return Ok(());
    }
    let tensor = tensors::read(value, room(param))
        .map_err(|reason| Box::new(session::world(format, "E0806", &reason)))?;
    if !tensor.dtype.fits(param.dtype) {
        let message = format!(
            "`{value}` holds elements of type {}, and `{name}` is {}",
            tensor.dtype.name(),
            param.dtype
        );
        return Err(refused(format, "E0706", &message));
    }
    let fits = tensor.shape.len() == param.shape.len()
        && param.shape.iter().zip(&tensor.shape).all(|(extent, &got)| match extent {
            Extent::Const(wanted) => u64::from(*wanted) == got,
            Extent::Scalar(_) => true,
        });
    if !fits {
        let message = format!(
            "`{value}` has the shape {:?}, and `{name}` is {}[{}]",
            tensor.shape,
            param.dtype,
            extents(&built.kernel.params, param)
        );
        return Err(refused(format, "E0706", &message));
    }
    memory.set_buffer(id, Buffer::filled(param.dtype, tensor.bytes));
    Ok(())
}

fn scalar_code(dtype: DType, text: &str) -> Option<u64> {
    if dtype.is_float() {
        return numeric::float_from_f64(dtype, text.parse().ok()?);
    }
    let value: i128 = match text {
        "true" => 1,
        "false" => 0,
        number => number.parse().ok()?,
    };
    let bits = dtype.bits();
    let (lo, hi) = match (dtype, dtype.is_signed_int()) {
        (DType::Bool, _) => (0, 1),
        (_, true) => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
        (_, false) => (0, (1i128 << bits) - 1),
    };
    (lo..=hi).contains(&value).then_some((value as u64) & (u64::MAX >> (64 - bits)))
}

fn named_files(
    format: Format,
    built: &Built,
    pairs: &[String],
) -> Result<Vec<(ParamId, PathBuf)>, Refusal> {
    pairs
        .iter()
        .map(|pair| match pair.split_once('=') {
            Some((name, path)) => {
                let (id, param) = find(format, &built.kernel.params, name)?;
                if !param.access.is_writable() {
                    return Err(session::usage(
                        format,
                        &format!("`{name}` is {}: the kernel does not write it", param.access),
                    ));
                }
                Ok((id, PathBuf::from(path)))
            }
            None => {
                let written: Vec<ParamId> = built
                    .kernel
                    .params
                    .iter_enumerated()
                    .filter(|(_, p)| p.access.is_writable())
                    .map(|(id, _)| id)
                    .collect();
                match written.as_slice() {
                    [only] => Ok((*only, PathBuf::from(pair))),
                    _ => Err(session::usage(
                        format,
                        &format!("the kernel writes {} buffers; write PARAM={pair}", written.len()),
                    )),
                }
            }
        })
        .collect()
}

fn find<'p>(
    format: Format,
    params: &'p IndexVec<ParamId, Param>,
    name: &str,
) -> Result<(ParamId, &'p Param), Refusal> {
    Memory::find(params, name).map(|id| (id, &params[id])).ok_or_else(|| {
        let known: Vec<&str> = params.iter().map(|p| p.name.as_str()).collect();
        session::usage(format, &format!("no parameter `{name}`; there are {}", known.join(", ")))
    })
}

fn shape_of(built: &Built, memory: &Memory, param: ParamId) -> Vec<u64> {
    let p = &built.kernel.params[param];
    let len = memory.buffer(param).map_or(0, |b| b.len() as u64);
    let inner: u64 = p
        .shape
        .iter()
        .skip(1)
        .map(|e| if let Extent::Const(n) = e { u64::from(*n) } else { 1 })
        .product();
    p.shape
        .iter()
        .map(|extent| match extent {
            Extent::Const(n) => u64::from(*n),
            Extent::Scalar(_) => len / inner.max(1),
        })
        .collect()
}

fn encode(
    format: Format,
    built: &Built,
    memory: &Memory,
    param: ParamId,
    path: &std::path::Path,
) -> Result<Vec<u8>, Refusal> {
    let p = &built.kernel.params[param];
    let buffer = written(format, built, memory, param)?;
    tensors::encode(path, &p.name, p.dtype, &shape_of(built, memory, param), buffer.bytes())
        .map_err(|reason| session::usage(format, &reason))
}

/// The buffer, when every element was written.
fn written<'m>(
    format: Format,
    built: &Built,
    memory: &'m Memory,
    param: ParamId,
) -> Result<&'m Buffer, Refusal> {
    let name = &built.kernel.params[param].name;
    let buffer = memory
        .buffer(param)
        .ok_or_else(|| session::usage(format, &format!("`{name}` is no buffer")))?;
    match buffer.first_unwritten() {
        None => Ok(buffer),
        Some(at) => {
            Err(refused(format, "E0701", &format!("element {at} of `{name}` was never written")))
        }
    }
}

fn compare_one(
    format: Format,
    closeness: Closeness,
    built: &Built,
    memory: &Memory,
    param: ParamId,
    path: &std::path::Path,
    answer: &mut Answer,
) -> Result<(), Refusal> {
    let p = &built.kernel.params[param];
    let text = path.to_string_lossy();
    let tensor = tensors::read(&text, room(p))
        .map_err(|reason| Box::new(session::world(format, "E0806", &reason)))?;
    let got = written(format, built, memory, param)?;
    let shape: Vec<usize> = shape_of(built, memory, param).iter().map(|&e| e as usize).collect();
    let tolerance = match closeness {
        Closeness::Bits => Tolerance::Bits,
        Closeness::Formula => Tolerance::formula(p.dtype),
        Closeness::Model => Tolerance::model(p.dtype),
    };
    // A reference in f32 is rounded to the buffer's type first, as the kernel rounds.
    let want = if tensor.dtype.fits(p.dtype) {
        tensor.bytes
    } else if tensor.dtype == tensors::FileDType::Known(DType::F32) && p.dtype.is_float() {
        let values: Vec<f32> = tensor
            .bytes
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect();
        Buffer::from_f32(p.dtype, &values).bytes().to_vec()
    } else {
        let message = format!(
            "`{text}` holds elements of type {}, and `{}` is {}",
            tensor.dtype.name(),
            p.name,
            p.dtype
        );
        return Err(refused(format, "E0706", &message));
    };
    let comparison = compare(p.dtype, &shape, got.bytes(), &want, tolerance)
        .map_err(|error| refused(format, "E0706", &format!("`{text}`: {error}")))?;
    if !comparison.holds() {
        answer.code = exit::FINDINGS;
    }
    answer.stdout.push_str(&comparison_line(format, &p.name, &comparison));
    Ok(())
}

fn comparison_line(format: Format, name: &str, c: &Comparison) -> String {
    let verdict = if c.holds() { "equal" } else { "different" };
    if format == Format::Json {
        let first = c.first.as_ref().map(|m| {
            serde_json::json!({ "coordinate": m.coordinate, "got": m.got, "want": m.want, "ulp": m.ulp })
        });
        let line = serde_json::json!({
            "compare": name, "holds": c.holds(), "elements": c.elements, "different_bits": c.different_bits,
            "outside": c.outside, "max_ulp": c.max_ulp, "max_abs": c.max_abs, "relative_l2": c.relative_l2,
            "first": first,
        });
        return format!("{line}\n");
    }
    let mut line = format!(
        "compare `{name}`: {verdict}; {} of {} elements outside, {} differ in bits, max {} codes, max {:.3e}, \
         relative L2 {:.3e}\n",
        c.outside, c.elements, c.different_bits, c.max_ulp, c.max_abs, c.relative_l2
    );
    if let Some(m) = &c.first {
        line.push_str(&format!(
            "  first at {:?}: got {} ({:#x}), want {} ({:#x})\n",
            m.coordinate, m.got, m.got_bits, m.want, m.want_bits
        ));
    }
    line
}

/// Events that ranks have written down: as lines, or as a file.
fn events(
    format: Format,
    args: &RunArgs,
    built: &Built,
    ranks: &[Trace],
    answer: &mut Answer,
    staged: &mut Staged,
) {
    let kernel = &built.kernel;
    let roles: Vec<String> = kernel.roles.iter().map(|role| role.name.clone()).collect();
    let names = trace::Names { events: &kernel.events, roles: &roles, unit: "steps" };
    let room = args.kernel.trace.unwrap_or(trace::RECORDS);
    let records: Vec<Records> =
        ranks.iter().map(|trace| trace.records(kernel.launch.grid, room)).collect();
    match &args.trace_out {
        Some(path) => staged.add(path.clone(), trace::chrome(names, &records)),
        None if format == Format::Json => {
            // A line, as everything else of this form.
            let line = trace::chrome(names, &records).replace('\n', "");
            answer.stdout.push_str(&format!("{{\"trace\":{line}}}\n"));
        }
        None => answer.stdout.push_str(&trace::text(names, &records)),
    }
}

fn report(format: Format, built: &Built, memory: &Memory, trace: &Trace) -> Answer {
    let mut answer = Answer::default();
    for printed in &trace.printed {
        answer.stdout.push_str(&printed.text);
    }
    let is_shown = |p: &Param| p.access.is_writable() && p.name != trace::PARAM;
    answer.stdout.push_str(&buffers(format, built, memory, &is_shown));
    answer
}

/// How the buffers begin that are shown.
fn buffers(
    format: Format,
    built: &Built,
    memory: &Memory,
    is_shown: &dyn Fn(&Param) -> bool,
) -> String {
    let mut lines = String::new();
    let buffers = built.kernel.params.iter_enumerated().filter(|(_, p)| is_shown(p));
    for (id, param) in buffers {
        let Some(buffer) = memory.buffer(id) else { continue };
        let head: Vec<f64> = (0..buffer.len().min(8))
            .map(|i| buffer.code(i).map_or(f64::NAN, |code| numeric::to_f64(param.dtype, code)))
            .collect();
        if format == Format::Json {
            let line = serde_json::json!({
                "buffer": param.name, "dtype": param.dtype.name(), "shape": shape_of(built, memory, id),
                "unwritten": buffer.first_unwritten(), "head": head,
            });
            lines.push_str(&format!("{line}\n"));
        } else {
            let text: Vec<String> = head.iter().map(|v| format!("{v}")).collect();
            let more = if buffer.len() > 8 { ", …" } else { "" };
            lines.push_str(&format!(
                "{} : {}{:?} = [{}{more}]\n",
                param.name,
                param.dtype,
                shape_of(built, memory, id),
                text.join(", ")
            ));
        }
    }
    lines
}

fn extents(params: &IndexVec<ParamId, Param>, param: &Param) -> String {
    let text: Vec<String> = param
        .shape
        .iter()
        .map(|extent| match extent {
            Extent::Const(n) => n.to_string(),
            Extent::Scalar(id) => params[*id].name.clone(),
        })
        .collect();
    text.join(", ")
}

/// An input that does not fit the kernel.
fn refused(format: Format, code: &str, message: &str) -> Refusal {
    let mut answer = session::world(format, code, message);
    answer.code = exit::FINDINGS;
    Box::new(answer)
}

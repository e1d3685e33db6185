//! Kernels that are launched one after another and overlap, at both levels and in many schedules.

use kernel_dsl::source::Span;
use kernel_emulator::{
    Bound, EmuError, Memory, Options, Schedule, StreamLaunch, StreamMemory, run_device_stream,
    run_kernel_stream,
};
use kernel_ir::index::IndexVec;
use kernel_ir::kernel::ParamId;
use kernel_ir::pipeline::Built;

use crate::directive::Directives;
use crate::k3;
use crate::program::{self, Program};
use crate::runner::{self, Failure};
use crate::schedules::Schedules;

/// Orders in which a file test runs.
pub const FEW: Schedules = Schedules { count: 24, seed: 1 };

/// The memory of a chain, and what each of its launches gets.
#[derive(Debug, Clone)]
pub struct Chained {
    memory: StreamMemory,
    bound: Vec<IndexVec<ParamId, Bound>>,
}

/// The kernels of the chain that the directives name.
///
/// # Errors
/// The file or a kernel is refused, or there is no kernel of a name.
pub fn chain(program: &Program, directives: &Directives) -> Result<Vec<Built>, String> {
    if program.front.has_errors() {
        return Err(program.show(&program.front.diagnostics));
    }
    let (binding, target) = (directives.bindings(None), program::target_of(directives)?);
    let build = |name: &String| {
        let template = program.front.template(name);
        let template = template.ok_or_else(|| format!("there is no kernel `{name}`"))?;
        let params = template.const_params();
        let has = |name: &str| params.iter().any(|param| param.name == name);
        let own = binding.iter().filter(|(name, _)| has(name)).cloned().collect();
        program.build(template, &own, target)
    };
    directives.chain.iter().map(build).collect()
}

/// Memory for a chain as the directives say; what they leave out is random.
///
/// # Errors
/// A value does not fit.
pub fn memory(chain: &[Built], directives: &Directives) -> Result<Chained, String> {
    let kernels: Vec<&Built> = chain.iter().collect();
    memory_of(&kernels, directives)
}

/// Memory for launches of these kernels.
///
/// # Errors
/// A value does not fit.
pub fn memory_of(kernels: &[&Built], directives: &Directives) -> Result<Chained, String> {
    let mut chained = Chained { memory: StreamMemory::default(), bound: Vec::new() };
    for built in kernels {
        let params = &built.kernel.params;
        let mut memory = Memory::new(params);
        for (name, words) in &directives.inputs {
            if Memory::find(params, name).is_some() {
                runner::give(built, &mut memory, name, words, true)?;
            }
        }
        let bound = chained.memory.bind(params, memory, directives.seed);
        chained.bound.push(bound.map_err(|error| error.to_string())?);
    }
    Ok(chained)
}

/// Random memory for `rounds` rounds of these kernels, each of which has buffers of its own.
///
/// # Errors
/// A contract cannot be met.
pub fn memory_apart(kernels: &[Built], rounds: usize) -> Result<Chained, String> {
    let mut chained = Chained { memory: StreamMemory::default(), bound: Vec::new() };
    for built in kernels {
        let params = &built.kernel.params;
        let mut own = StreamMemory::default();
        let bound = own.bind(params, Memory::new(params), k3::SEED);
        let mut bound = bound.map_err(|error| error.to_string())?;
        let first = chained.memory.buffers.len();
        for id in params.ids() {
            if let Bound::Buffer(number) = &mut bound[id] {
                *number += first;
            }
        }
        chained.memory.buffers.append(&mut own.buffers);
        chained.bound.push(bound);
    }
    let round = chained.bound.clone();
    (1..rounds).for_each(|_| chained.bound.extend(round.iter().cloned()));
    Ok(chained)
}

/// What launches leave that do not overlap.
///
/// # Errors
/// One of them fails.
pub fn run_alone(kernels: &[&Built], start: &Chained) -> Result<StreamMemory, EmuError> {
    let mut memory = start.memory.clone();
    for (built, bound) in kernels.iter().zip(&start.bound) {
        let launch = StreamLaunch { kernel: &*built.kernel, bound: bound.clone() };
        run_kernel_stream(&[launch], &mut memory.buffers, &Options::STANDARD)?;
    }
    Ok(memory)
}

/// Both levels in every schedule: all give the same bits, or errors of one code at one place.
///
/// # Errors
/// The error of the kernel level, or in what the runs differ.
pub fn run_all(
    kernels: &[&Built],
    start: &Chained,
    schedules: Schedules,
) -> Result<StreamMemory, Failure> {
    let one = |number: u64, schedule| {
        let options = Options { schedule, ..Options::STANDARD };
        let kernel = at_kernel(kernels, start, &options);
        let device = at_device(kernels, start, &options);
        match (kernel, device) {
            (Ok(kernel), Ok(device)) if kernel == device => Ok(Ok(kernel)),
            (Err(kernel), Err(device)) if is_same(&kernel, &device) => Ok(Err(placed(kernel))),
            (kernel, device) => {
                let (kernel, device) = (say(&kernel), say(&device));
                Err(Failure::Levels(format!(
                    "the kernel level {kernel}, the device level {device} (schedule {number})"
                )))
            }
        }
    };
    let other = |number| {
        let schedule = Schedule::numbered(schedules.seed, number);
        let ended = at_kernel(kernels, start, &Options { schedule, ..Options::STANDARD });
        Failure::Levels(format!("schedule {number} {}, other than schedule 0", say(&ended)))
    };
    schedules.same_in_each(one, other)?.map_err(Failure::Run)
}

fn say(ended: &Result<StreamMemory, EmuError>) -> String {
    match ended {
        Ok(_) => "ends well".to_owned(),
        Err(error) => format!("says {error} at {:?}", error.span),
    }
}

/// One code at one place: a level may name the statement where the other one names the access in it.
fn is_same(a: &EmuError, b: &EmuError) -> bool {
    let is_in = |a: Span, b: Span| a.file == b.file && a.lo >= b.lo && a.hi <= b.hi;
    a.kind == b.kind && (is_in(a.span, b.span) || is_in(b.span, a.span))
}

/// Which of several CTAs and elements is seen first depends on the schedule.
fn placed(mut error: EmuError) -> EmuError {
    error.detail = Box::default();
    error
}

fn at_kernel(
    kernels: &[&Built],
    start: &Chained,
    options: &Options,
) -> Result<StreamMemory, EmuError> {
    let mut memory = start.memory.clone();
    let launches = launches(kernels, start, |built| &*built.kernel);
    run_kernel_stream(&launches, &mut memory.buffers, options).map(|_| memory)
}

fn at_device(
    kernels: &[&Built],
    start: &Chained,
    options: &Options,
) -> Result<StreamMemory, EmuError> {
    let mut memory = start.memory.clone();
    let launches = launches(kernels, start, |built| &*built.device);
    run_device_stream(&launches, &mut memory.buffers, options).map(|_| memory)
}

/// The launches of a chain at one level.
fn launches<'k, K>(
    kernels: &[&'k Built],
    start: &Chained,
    level: impl Fn(&'k Built) -> &'k K,
) -> Vec<StreamLaunch<'k, K>> {
    let launches = kernels.iter().zip(&start.bound);
    launches
        .map(|(&built, bound)| StreamLaunch { kernel: level(built), bound: bound.clone() })
        .collect()
}

/// The wanted values of the directives against what a chain gave.
///
/// # Errors
/// The elements that differ.
pub fn match_outputs(
    kernels: &[&Built],
    directives: &Directives,
    memory: &StreamMemory,
) -> Result<(), String> {
    for (name, words) in &directives.outputs {
        let names = |built: &&&Built| Memory::find(&built.kernel.params, name).is_some();
        let built = kernels.iter().find(names);
        let built = built.ok_or_else(|| format!("there is no parameter `{name}`"))?;
        let mut own = Directives::default();
        own.outputs.push((name.clone(), words.clone()));
        runner::match_outputs(built, &own, &memory.of(&built.kernel.params))?;
    }
    Ok(())
}

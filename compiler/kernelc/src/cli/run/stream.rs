//! Launches in a row on one rank, which overlap where programmatic dependent launch lets them.

use std::collections::BTreeSet;
use std::path::PathBuf;

use kernel_dsl::diag::Diagnostic;
use kernel_emulator::{
    Bound, EmuError, Memory, Options, StreamLaunch, StreamMemory, Trace, run_device_stream,
    run_kernel_stream,
};
use kernel_ir::index::IndexVec;
use kernel_ir::kernel::{Param, ParamId};
use kernel_ir::pipeline::{self, Built, Front};
use kernel_ir::sema::{Bindings, KernelTemplate};
use kernel_ir::target::Target;

use super::orders::{Fault, Orders};
use super::{Level, RunArgs, buffers, compare_one, encode, find, named_files, set_input};
use crate::cli::{Answer, Cli, Format, KernelArgs};
use crate::output;
use crate::package::Staged;
use crate::session::{self, Refusal, Session};

/// The kernels of a round, and what each of their parameters gets.
struct Chain {
    kernels: Vec<Built>,
    bound: Vec<IndexVec<ParamId, Bound>>,
    start: StreamMemory,
    launches: usize,
}

/// Runs the kernels in every order that is asked for; all must give the same bits.
pub(super) fn execute(
    cli: &Cli,
    args: &RunArgs,
    (session, front): (&Session, &Front),
) -> Result<Answer, Refusal> {
    let format = cli.format;
    let refuse =
        |found: &[Diagnostic]| Box::new(output::diagnostics(format, &session.sources, found));
    let emulated = |error: EmuError| refuse(&[error.to_diagnostic()]);
    if args.kernel.trace.is_some() {
        return Err(session::usage(format, "--trace is of one launch"));
    }
    let names = std::iter::once(args.kernel.kernel.as_ref()).chain(args.then.iter().map(Some));
    let mut bound = BTreeSet::new();
    let kernels = names
        .map(|name| {
            let (template, bindings, target) = own(session, front, args, name, format, &mut bound)?;
            pipeline::build(template, &bindings, target).map_err(|found| refuse(&found))
        })
        .collect::<Result<Vec<Built>, Refusal>>()?;
    if let Some(pair) = args.kernel.bind.iter().find(|pair| !bound.contains(pair)) {
        return Err(session::usage(format, &format!("E0208: `{pair}` is of none of the kernels")));
    }
    if kernels.iter().any(|built| built.kernel.launch.world.is_some()) {
        return Err(session::usage(format, "--then is of kernels on one rank"));
    }
    let mut chain = Chain {
        kernels,
        bound: Vec::new(),
        start: StreamMemory::default(),
        launches: args.launches,
    };
    let mut given = BTreeSet::new();
    for built in &chain.kernels {
        let params = &built.kernel.params;
        let mut memory = Memory::new(params);
        for input in &args.inputs {
            let name = input.split_once('=').map_or(input.as_str(), |(name, _)| name);
            if Memory::find(params, name).is_some() {
                set_input(format, built, &mut memory, input)?;
                given.insert(input);
            }
        }
        chain.bound.push(chain.start.bind(params, memory, args.seed).map_err(emulated)?);
    }
    for input in args.inputs.iter().filter(|input| !given.contains(input)) {
        let name = input.split_once('=').map_or(input.as_str(), |(name, _)| name);
        find(format, &chain.kernels[0].kernel.params, name)?;
    }
    let names: Vec<&str> = chain.kernels.iter().map(|built| &*built.kernel.name).collect();
    let run = |options: &Options| chain.run(args.level, options);
    let orders = Orders { args, format, code: "E0720", refuse: &refuse };
    let (_, (memory, traces)) = orders.run(&names.join(", "), &run)?;
    chain.answer(cli, args, &memory, &traces)
}

/// A kernel of the file, with those of the bindings that are its own.
fn own<'f, 'a>(
    session: &Session,
    front: &'f Front,
    args: &'a RunArgs,
    name: Option<&String>,
    format: Format,
    bound: &mut BTreeSet<&'a String>,
) -> Result<(&'f KernelTemplate, Bindings, Target), Refusal> {
    let mut own = KernelArgs { kernel: name.cloned(), bind: Vec::new(), ..args.kernel.clone() };
    let (template, ..) = session.pick(format, front, &own)?;
    let params = template.const_params();
    for pair in &args.kernel.bind {
        let of = pair.split_once('=').map_or("", |(name, _)| name.trim());
        if params.iter().any(|param| param.name == of) {
            own.bind.push(pair.clone());
            bound.insert(pair);
        }
    }
    session.pick(format, front, &own)
}

impl Chain {
    fn of_all<'c, T>(
        &'c self,
        kernel: impl Fn(&'c Built) -> &'c T + Copy,
    ) -> Vec<StreamLaunch<'c, T>> {
        let round = || {
            let all = self.kernels.iter().zip(&self.bound);
            all.map(move |(built, bound)| StreamLaunch {
                kernel: kernel(built),
                bound: bound.clone(),
            })
        };
        (0..self.launches).flat_map(|_| round()).collect()
    }

    fn run(&self, level: Level, options: &Options) -> Result<(StreamMemory, Vec<Trace>), Fault> {
        let at_kernel = || {
            let mut memory = self.start.clone();
            let launches = self.of_all(|built| &*built.kernel);
            let traces = run_kernel_stream(&launches, &mut memory.buffers, options)?;
            Ok::<_, Fault>((memory, traces))
        };
        let at_device = || {
            let mut memory = self.start.clone();
            let launches = self.of_all(|built| &*built.device);
            let traces = run_device_stream(&launches, &mut memory.buffers, options)?;
            Ok((memory, traces))
        };
        match level {
            Level::Kernel => at_kernel(),
            Level::Device => at_device(),
            Level::Both => {
                let (kernel, device) = (at_kernel()?, at_device()?);
                if kernel.0 != device.0 {
                    return Err(Fault::Levels("what the launches leave".to_owned()));
                }
                Ok(kernel)
            }
        }
    }

    /// The last kernel that writes the buffer that an argument speaks of; the last of all where it names none.
    fn writer(&self, pair: &str) -> &Built {
        let name = pair.split_once('=').map_or("", |(name, _)| name);
        let writes = |built: &&Built| {
            let params = &built.kernel.params;
            Memory::find(params, name).is_some_and(|id| params[id].access.is_writable())
        };
        let last = self.kernels.last().expect("there is a first kernel");
        self.kernels.iter().rev().find(writes).unwrap_or(last)
    }

    fn files(&self, format: Format, pair: &String) -> Result<(&Built, ParamId, PathBuf), Refusal> {
        let built = self.writer(pair);
        let mut named = named_files(format, built, std::slice::from_ref(pair))?;
        let (param, path) = named.pop().expect("one pair gives one file");
        Ok((built, param, path))
    }

    fn answer(
        &self,
        cli: &Cli,
        args: &RunArgs,
        memory: &StreamMemory,
        traces: &[Trace],
    ) -> Result<Answer, Refusal> {
        let mut answer = Answer::default();
        for printed in traces.iter().flat_map(|trace| &trace.printed) {
            answer.stdout.push_str(&printed.text);
        }
        let mut shown = BTreeSet::new();
        for built in &self.kernels {
            let is_shown = |p: &Param| p.access.is_writable() && !shown.contains(&p.name);
            let of = memory.of(&built.kernel.params);
            answer.stdout.push_str(&buffers(cli.format, built, &of, &is_shown));
            let written = built.kernel.params.iter().filter(|param| param.access.is_writable());
            shown.extend(written.map(|param| param.name.clone()));
        }
        for pair in &args.compare {
            let (built, param, path) = self.files(cli.format, pair)?;
            let of = memory.of(&built.kernel.params);
            compare_one(cli.format, args.tolerance, built, &of, param, &path, &mut answer)?;
        }
        let mut staged = Staged::default();
        for pair in &args.outputs {
            let (built, param, path) = self.files(cli.format, pair)?;
            let of = memory.of(&built.kernel.params);
            staged.add(path.clone(), encode(cli.format, built, &of, param, &path)?);
        }
        staged.commit(cli.format)?;
        Ok(answer)
    }
}

//! A kernel over several ranks, all of them in this process.

use kernel_dsl::diag::Diagnostic;
use kernel_emulator::{
    EmuError, Memory, Options, Schedule, Trace, fill_ranks, run_device_on_ranks,
    run_kernel_on_ranks,
};
use kernel_ir::pipeline::Built;

use super::{Level, RunArgs, events, model, refused, report, set_input};
use crate::cli::{Answer, Cli, Format};
use crate::package::Staged;
use crate::session::{self, Refusal};

/// Runs all ranks in every order that is asked for; all must give the same bits.
pub(super) fn execute(
    cli: &Cli,
    args: &RunArgs,
    built: &Built,
    refuse: &dyn Fn(&[Diagnostic]) -> Refusal,
) -> Result<Answer, Refusal> {
    if !args.outputs.is_empty() || !args.compare.is_empty() {
        let message = "a kernel over several ranks has no --out and no --compare";
        return Err(session::usage(cli.format, message));
    }
    let emulated = |error: EmuError| refuse(&[error.to_diagnostic()]);
    let params = &built.kernel.params;
    let world = built.kernel.launch.world.unwrap_or(1);
    let mut start: Vec<Memory> = (0..world).map(|_| Memory::new(params)).collect();
    for input in &args.inputs {
        let (name, value) = input.split_once('=').unwrap_or((input, ""));
        let (param, of) = match name.split_once('@') {
            None => (name, None),
            Some((param, rank)) => match rank.parse::<usize>() {
                Ok(rank) if rank < start.len() => (param, Some(rank)),
                Ok(_) | Err(_) => {
                    let message = format!("`{name}` names no rank of 0 to {}", world - 1);
                    return Err(session::usage(cli.format, &message));
                }
            },
        };
        for (rank, memory) in start.iter_mut().enumerate() {
            if of.is_none_or(|of| of == rank) {
                set_input(cli.format, built, memory, &format!("{param}={value}"))?;
            }
        }
    }
    fill_ranks(params, &mut start, args.seed).map_err(emulated)?;
    let options = Options {
        producer_running: !args.producer_done,
        max_steps: args.max_steps,
        ..Options::STANDARD
    };
    let (memories, traces) = levels(cli.format, args, built, &start, &options, &emulated)?;
    for number in 1..args.schedules {
        let options = Options { schedule: Schedule::numbered(args.seed, number), ..options };
        let (other, _) = levels(cli.format, args, built, &start, &options, &emulated)?;
        if other != memories {
            let message = format!(
                "kernel `{}` gives other bits where ranks take turns in another order (schedule {number})",
                built.kernel.name
            );
            return Err(refused(cli.format, "E0717", &message));
        }
    }
    let mut answer = Answer::default();
    for (rank, (memory, trace)) in memories.iter().zip(&traces).enumerate() {
        if cli.format != Format::Json {
            answer.stdout.push_str(&format!("rank {rank}\n"));
        }
        answer.stdout.push_str(&report(cli.format, built, memory, trace).stdout);
    }
    model::judge(args, built, &start, &options, &mut answer, refuse)?;
    let mut staged = Staged::default();
    events(cli.format, args, built, &traces, &mut answer, &mut staged);
    staged.commit(cli.format)?;
    Ok(answer)
}

fn levels(
    format: Format,
    args: &RunArgs,
    built: &Built,
    start: &[Memory],
    options: &Options,
    emulated: &dyn Fn(EmuError) -> Refusal,
) -> Result<(Vec<Memory>, Vec<Trace>), Refusal> {
    let (mut kernel, mut device) = (start.to_vec(), start.to_vec());
    let launches = args.launches;
    let at_kernel = |memories: &mut [Memory]| {
        run_kernel_on_ranks(&built.kernel, memories, launches, options).map_err(emulated)
    };
    let at_device = |memories: &mut [Memory]| {
        run_device_on_ranks(&built.device, memories, launches, options).map_err(emulated)
    };
    match args.level {
        Level::Kernel => at_kernel(&mut kernel).map(|traces| (kernel, traces)),
        Level::Device => at_device(&mut device).map(|traces| (device, traces)),
        Level::Both => {
            let traces = at_kernel(&mut kernel)?;
            at_device(&mut device)?;
            if kernel != device {
                let message = format!(
                    "the two levels of kernel `{}` give different bits; this is a fault of the compiler",
                    built.kernel.name
                );
                return Err(refused(format, "E0810", &message));
            }
            Ok((kernel, traces))
        }
    }
}

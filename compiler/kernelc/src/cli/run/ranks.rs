//! A kernel over several ranks, all of them in this process.

use kernel_dsl::diag::Diagnostic;
use kernel_emulator::{
    Memory, Options, Trace, fill_ranks, run_device_on_ranks, run_kernel_on_ranks,
};
use kernel_ir::pipeline::Built;

use super::orders::{Fault, Orders};
use super::{Level, RunArgs, events, model, report, set_input};
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
    fill_ranks(params, &mut start, args.seed).map_err(|error| refuse(&[error.to_diagnostic()]))?;
    let run = |options: &Options| levels(args, built, &start, options);
    let orders = Orders { args, format: cli.format, code: "E0717", refuse };
    let (options, (memories, traces)) = orders.run(&built.kernel.name, &run)?;
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
    args: &RunArgs,
    built: &Built,
    start: &[Memory],
    options: &Options,
) -> Result<(Vec<Memory>, Vec<Trace>), Fault> {
    let (mut kernel, mut device) = (start.to_vec(), start.to_vec());
    let launches = args.launches;
    let at_kernel =
        |memories: &mut [Memory]| run_kernel_on_ranks(&built.kernel, memories, launches, options);
    let at_device =
        |memories: &mut [Memory]| run_device_on_ranks(&built.device, memories, launches, options);
    match args.level {
        Level::Kernel => Ok(at_kernel(&mut kernel).map(|traces| (kernel, traces))?),
        Level::Device => Ok(at_device(&mut device).map(|traces| (device, traces))?),
        Level::Both => {
            let traces = at_kernel(&mut kernel)?;
            at_device(&mut device)?;
            if kernel != device {
                return Err(Fault::Levels("what a rank leaves".to_owned()));
            }
            Ok((kernel, traces))
        }
    }
}

//! A built kernel on several ranks, at both levels and in several orders in which their CTAs take turns.

use kernel_emulator::{Memory, Options, fill_ranks, run_device_on_ranks, run_kernel_on_ranks};
use kernel_ir::pipeline::Built;

use crate::directive::{Binding, Directives};
use crate::runner::{self, Failure, Run};
use crate::schedules::Schedules;

/// Orders in which a file test runs.
pub const FEW: Schedules = Schedules { count: 9, seed: 1 };

/// Memory of each rank as the directives say: `in x: …` is of all ranks, `in x@1: …` of rank 1 alone; what they leave
/// out is random, of each rank with a seed of its own.
///
/// # Errors
/// A value or a name does not fit.
pub fn memories(
    built: &Built,
    directives: &Directives,
    case: Option<&Binding>,
) -> Result<Vec<Memory>, String> {
    let params = &built.kernel.params;
    let world = built.kernel.launch.world.unwrap_or(1);
    let mut memories: Vec<Memory> = (0..world).map(|_| Memory::new(params)).collect();
    for (rank, memory) in memories.iter_mut().enumerate() {
        for (name, words) in &directives.inputs {
            let Some(name) = of_rank(name, rank)? else { continue };
            runner::give(built, memory, name, words, case.is_none())?;
        }
    }
    fill_ranks(params, &mut memories, directives.seed).map_err(|error| error.to_string())?;
    Ok(memories)
}

/// The parameter of `x` or `x@1`, where it speaks of this rank.
fn of_rank(name: &str, rank: usize) -> Result<Option<&str>, String> {
    match name.split_once('@') {
        None => Ok(Some(name)),
        Some((param, of)) => {
            let of: usize = of.parse().map_err(|_| format!("`{name}` names no rank"))?;
            Ok((of == rank).then_some(param))
        }
    }
}

/// Both levels in every order on the same memories: all give the same bits, or errors of one kind.
///
/// # Errors
/// The error of the kernel level, or in what the runs differ.
pub fn run_all(
    built: &Built,
    memories: &[Memory],
    launches: usize,
    schedules: Schedules,
    run: Run,
) -> Result<Vec<Memory>, Failure> {
    schedules.same_in_each(
        |number, schedule| {
            let options = Options { schedule, ..run.options };
            let mut kernel = memories.to_vec();
            let mut device = memories.to_vec();
            let ended = run_kernel_on_ranks(&built.kernel, &mut kernel, launches, &options);
            if let (Err(error), true) = (&ended, run.kernel_level_only) {
                return Err(Failure::Run(error.clone()));
            }
            let other = run_device_on_ranks(&built.device, &mut device, launches, &options);
            match (ended, other) {
                (Ok(_), Ok(_)) if kernel == device => Ok(kernel),
                (Ok(_), Ok(_)) => {
                    Err(Failure::Levels(format!("the levels differ in order {number}")))
                }
                (Err(one), Err(other)) if one.kind == other.kind => Err(Failure::Run(one)),
                (one, other) => Err(Failure::Levels(format!(
                    "the kernel level {}, the device level {} (order {number})",
                    one.map_or_else(|e| format!("says {e}"), |_| "ends well".to_owned()),
                    other.map_or_else(|e| format!("says {e}"), |_| "ends well".to_owned()),
                ))),
            }
        },
        |number| Failure::Levels(format!("order {number} gives other bits")),
    )
}

/// The wanted values of the directives against what the ranks have: `out y: …` of all, `out y@1: …` of rank 1.
///
/// # Errors
/// The first element of each buffer that differs.
pub fn match_outputs(
    built: &Built,
    directives: &Directives,
    memories: &[Memory],
) -> Result<(), String> {
    for (rank, memory) in memories.iter().enumerate() {
        let mut own = Directives::default();
        for (name, words) in &directives.outputs {
            if let Some(name) = of_rank(name, rank)? {
                own.outputs.push((name.to_owned(), words.clone()));
            }
        }
        runner::match_outputs(built, &own, memory).map_err(|e| format!("rank {rank}: {e}"))?;
    }
    Ok(())
}

//! A run as the memory model sees it.

use kernel_dsl::diag::Diagnostic;
use kernel_emulator::{MAX_EVENTS, Memory, Options, record_device};
use kernel_ir::pipeline::Built;

use super::RunArgs;
use crate::cli::{Answer, exit};
use crate::session::Refusal;

/// Where it is asked for, runs the device level once more and asks the axioms which accesses race.
pub(super) fn judge(
    args: &RunArgs,
    built: &Built,
    start: &[Memory],
    options: &Options,
    answer: &mut Answer,
    refuse: &dyn Fn(&[Diagnostic]) -> Refusal,
) -> Result<(), Refusal> {
    if !args.memory_model {
        return Ok(());
    }
    let mut memories = start.to_vec();
    let (ended, record) = record_device(&built.device, &mut memories, args.launches, options);
    ended.map_err(|error| refuse(&[error.to_diagnostic()]))?;
    match record.races() {
        None => {
            answer.code = exit::NOT_JUDGED;
            answer.stderr.push_str(&format!(
                "note: the run has more than {MAX_EVENTS} events, so the memory model was not asked\n"
            ));
        }
        Some(races) if races.is_empty() => answer.stderr.push_str(&format!(
            "note: no race in the memory model among {} events\n",
            record.len()
        )),
        Some(races) => {
            let found: Vec<Diagnostic> =
                races.iter().map(|race| race.to_error().to_diagnostic()).collect();
            return Err(refuse(&found));
        }
    }
    Ok(())
}

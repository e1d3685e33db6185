//! What the memory model says of runs on the emulator: which accesses no instruction orders.

use std::path::Path;

use kernel_dsl::diag::Diagnostic;
use kernel_dsl::source::SourceMap;
use kernel_emulator::{Memory, Options, RecordedRace, Site, record_device};
use kernel_ir::pipeline::Built;

use crate::directive::Directives;
use crate::program::Program;
use crate::suite::FileTest;
use crate::{ranks, runner, suite};

/// What the model says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judged {
    /// These accesses race; nothing where all are in order.
    Races(Vec<RecordedRace>),
    /// The run has more events than the model is asked about.
    TooLarge,
}

/// Runs the device level of a kernel, in one schedule, and asks the model.
///
/// # Errors
/// The run fails.
pub fn judge(
    built: &Built,
    memories: &mut [Memory],
    launches: usize,
    options: &Options,
) -> Result<Judged, String> {
    let (ended, record) = record_device(&built.device, memories, launches, options);
    ended.map_err(|error| error.to_string())?;
    Ok(record.races().map_or(Judged::TooLarge, Judged::Races))
}

/// The races of a run with the memory of the directives, as errors.
///
/// # Errors
/// A value does not fit, the run fails, or it is too large to be judged.
pub fn races(built: &Built, directives: &Directives) -> Result<Vec<Diagnostic>, String> {
    let mut memories = vec![runner::memory(built, directives, None)?];
    match judge(built, &mut memories, 1, &Options::STANDARD)? {
        Judged::TooLarge => Err("the run is too large to be judged".to_owned()),
        Judged::Races(races) => {
            Ok(races.iter().map(|race| race.to_error().to_diagnostic()).collect())
        }
    }
}

/// Runs a file test that ends well and asks the model.
///
/// # Errors
/// The run fails, or accesses race.
pub fn judge_file(suite: &Path, test: &FileTest, options: Options) -> Result<bool, String> {
    let directives = suite::directives(suite, &test.path)?;
    let program = Program::read(suite, &test.path)?;
    let case = test.case.and_then(|number| directives.cases.get(number));
    let built = suite::build(&program, &directives, case)?;
    let mut memories = match built.kernel.launch.world {
        Some(_) => ranks::memories(&built, &directives, case)?,
        None => vec![runner::memory(&built, &directives, case)?],
    };
    let launches = directives.launches.unwrap_or(1);
    let max_steps = directives.steps.unwrap_or(options.max_steps);
    let options = Options { max_steps, ..options };
    match judge(&built, &mut memories, launches, &options)? {
        Judged::TooLarge => Ok(false),
        Judged::Races(races) if races.is_empty() => Ok(true),
        Judged::Races(races) => {
            let races: Vec<String> =
                races.iter().map(|race| show(&program.sources, race)).collect();
            Err(races.join("\n"))
        }
    }
}

/// A race with both places.
pub fn show(sources: &SourceMap, race: &RecordedRace) -> String {
    let site = |site: &Site| {
        let at = sources.start(site.span);
        let does = if site.writes { "writes" } else { "reads" };
        let who = site.who;
        format!(
            "thread {} of CTA {} of rank {} {does} at {}:{}",
            who.thread, who.cta, who.rank, at.line, at.column
        )
    };
    format!("{}, {}, and nothing orders the two", site(&race.first), site(&race.second))
}

//! What the verifier says of a kernel, and what a run of it shows.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use kernel_dsl::diag::{Code, Diagnostic, Severity};
use kernel_dsl::source::SourceMap;
use kernel_emulator::{
    EmuError, Memory, Options, Schedule, record_device, run_kernel, run_kernel_on_ranks,
};
use kernel_ir::pipeline::{self, Built};
use kernel_ir::sema::Bindings;
use kernel_ir::target::Target;

use super::Case;
use crate::recorded;
use crate::schedules::has_a_choice;

/// Orders in which a kernel runs that has several.
const SCHEDULES: u64 = 3;
const SEED: u64 = 1;

/// Statements that one CTA may execute.
const MAX_STEPS: u64 = 200_000;

/// What the verifier says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// Nothing.
    Accepted,
    /// The kernel is refused with these codes, and runs where they are waived.
    Refused(BTreeSet<&'static str>),
    /// The text is no kernel, or is refused with a finding that cannot be waived.
    NoKernel(&'static str),
}

/// What runs show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// Accesses that the axioms order in no direction; one pair of them.
    Race(String),
    /// Something else that ends a run.
    Error(&'static str),
    /// Two schedules, or the two levels, end with other results.
    Differs,
    /// Nothing.
    Nothing,
}

/// A kernel, judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// By the verifier.
    pub said: Said,
    /// By runs, where there are any.
    pub seen: Seen,
}

/// Judges a kernel.
///
/// # Errors
/// The compiler or the emulator panics, or a run is too large for the axioms.
pub fn judge(case: &Case) -> Result<Judged, String> {
    let judged = catch_unwind(AssertUnwindSafe(|| {
        let mut sources = SourceMap::new();
        match build(&case.text, &mut sources) {
            Err(code) => Ok(Judged { said: Said::NoKernel(code), seen: Seen::Nothing }),
            Ok((built, waived)) => {
                let said = if waived.is_empty() { Said::Accepted } else { Said::Refused(waived) };
                Ok(Judged { said, seen: run(&built, case.launches, &sources)? })
            }
        }
    }));
    judged.unwrap_or_else(|_| Err("a panic".to_owned()))
}

/// A text with waivers on some of its lines.
struct Waived<'t> {
    lines: Vec<&'t str>,
    by_line: BTreeMap<usize, BTreeSet<Code>>,
}

impl Waived<'_> {
    /// The text, and the line of the original that each line of it is, or belongs to.
    fn text(&self) -> (String, Vec<usize>) {
        let (mut text, mut origins) = (String::new(), Vec::new());
        for (number, line) in self.lines.iter().enumerate() {
            for code in self.by_line.get(&number).into_iter().flatten() {
                text.push_str(&format!("// allow {}: to see what the axioms say\n", code.name()));
                origins.push(number);
            }
            text.push_str(line);
            text.push('\n');
            origins.push(number);
        }
        (text, origins)
    }

    /// Waives findings; false where one of them is waived already, or stands nowhere.
    fn add(&mut self, found: &[Diagnostic], origins: &[usize], sources: &SourceMap) -> bool {
        found.iter().all(|error| {
            let Some(label) = error.primary() else { return false };
            let line = sources.start(label.span).line as usize;
            let Some(&line) = origins.get(line.saturating_sub(1)) else { return false };
            self.by_line.entry(line).or_default().insert(error.code)
        })
    }
}

/// Builds a kernel and waives what the verifier finds; the codes of that.
fn build(
    text: &str,
    sources: &mut SourceMap,
) -> Result<(Built, BTreeSet<&'static str>), &'static str> {
    let mut waived = Waived { lines: text.lines().collect(), by_line: BTreeMap::new() };
    loop {
        let (text, origins) = waived.text();
        *sources = SourceMap::new();
        let root = sources.add("generated.tile", text);
        let front = pipeline::front(sources, root, &mut |path| Err(path.to_owned()));
        let first = |found: &[Diagnostic]| {
            let error = found.iter().find(|d| d.severity == Severity::Error);
            error.map_or("nothing", |error| error.code.name())
        };
        if front.has_errors() {
            return Err(first(&front.diagnostics));
        }
        let Some(template) = front.templates.first() else { return Err("nothing") };
        let target = template.targets().first().copied().unwrap_or(Target::Sm90a);
        let found = match pipeline::build(template, &Bindings::default(), target) {
            Ok(built) => {
                let codes = waived.by_line.values().flatten().map(|code| code.name());
                return Ok((built, codes.collect()));
            }
            Err(found) => found,
        };
        let errors: Vec<Diagnostic> =
            found.into_iter().filter(|d| d.severity == Severity::Error).collect();
        if errors.is_empty() || !waived.add(&errors, &origins, sources) {
            return Err(first(&errors));
        }
    }
}

fn run(built: &Built, launches: usize, sources: &SourceMap) -> Result<Seen, String> {
    let params = &built.kernel.params;
    let world = built.kernel.launch.world.unwrap_or(1);
    let mut start: Vec<Memory> = (0..world).map(|_| Memory::new(params)).collect();
    kernel_emulator::fill_ranks(params, &mut start, SEED).map_err(|error| error.to_string())?;
    let count = if has_a_choice(&built.kernel) { SCHEDULES } else { 1 };
    let (mut error, mut ends) = (None, Vec::new());
    for number in 0..count {
        // What an earlier launch writes is there in the run, so that the axioms alone say when it may be read.
        let options = Options {
            schedule: Schedule::numbered(SEED, number),
            max_steps: MAX_STEPS,
            producer_running: false,
            ..Options::STANDARD
        };
        let mut memories = start.clone();
        let (ended, record) = record_device(&built.device, &mut memories, launches, &options);
        let races = record.races().ok_or("the run is too large to be judged")?;
        if let Some(race) = races.first() {
            return Ok(Seen::Race(recorded::show(sources, race)));
        }
        let kernel = run_kernel_level(built, start.clone(), launches, &options);
        for failure in [ended.err(), kernel.as_ref().err().cloned()].into_iter().flatten() {
            error.get_or_insert(failure.code().name());
        }
        ends.push(memories);
        ends.extend(kernel);
    }
    if let Some(code) = error {
        return Ok(Seen::Error(code));
    }
    let differs = ends.windows(2).any(|two| two[0] != two[1]);
    Ok(if differs { Seen::Differs } else { Seen::Nothing })
}

fn run_kernel_level(
    built: &Built,
    mut memories: Vec<Memory>,
    launches: usize,
    options: &Options,
) -> Result<Vec<Memory>, EmuError> {
    if built.kernel.launch.world.is_some() {
        run_kernel_on_ranks(&built.kernel, &mut memories, launches, options)?;
        return Ok(memories);
    }
    for memory in &mut memories {
        for _ in 0..launches {
            run_kernel(&built.kernel, memory, options)?;
        }
    }
    Ok(memories)
}

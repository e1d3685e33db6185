//! What sees a mutant.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use kernel_dsl::diag::{Code, Diagnostic, Severity};
use kernel_dsl::source::SourceMap;
use kernel_emulator::{
    EmuError, Memory, Options, Schedule, record_device, run_device, run_device_on_ranks,
    run_kernel, run_kernel_on_ranks,
};
use kernel_ir::pipeline::{self, Built};
use kernel_ir::print;
use kernel_ir::sema::Bindings;
use kernel_ir::target::Target;

use crate::edits::Mutant;

/// Statements that one CTA of a mutant may execute.
const MAX_STEPS: u64 = 5_000_000;

/// Gives the memory of each rank for a built kernel; of one alone where there are no ranks.
pub type Memories<'a> = dyn Fn(&Built) -> Result<Vec<Memory>, String> + Sync + 'a;

/// A kernel whose mutants are judged.
pub struct Subject<'a> {
    /// Name of the file.
    pub name: &'a str,
    /// Gives the texts of its imports.
    pub read: &'a (dyn Fn(&str) -> Result<String, String> + Sync),
    /// Which kernel of the file.
    pub kernel: &'a str,
    /// Its const parameters.
    pub bindings: &'a (dyn Fn(&kernel_ir::sema::KernelTemplate) -> Bindings + Sync),
    /// What it is built for; the first that it names when left out.
    pub target: Option<Target>,
    /// Its memory.
    pub memories: &'a Memories<'a>,
    /// How often the ranks launch it.
    pub launches: usize,
    /// Schedules that a mutant runs in, and their seed.
    pub schedules: (u64, u64),
}

/// What tells a mutant from the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// A finding before anything runs.
    Refused(Code),
    /// An error of a run on the emulator, or a race by the axioms of the memory model.
    Found(Code),
    /// Other results on the emulator.
    Differs,
    /// The compiler does not know such a program, right or wrong.
    NotBuilt,
    /// Nothing can: both are the same program of the device.
    Equivalent,
    /// Nothing did.
    Survives,
    /// The compiler or the emulator panicked: a fault of theirs.
    Panicked,
}

impl Verdict {
    /// In one word, for programs.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Refused(_) => "refused",
            Verdict::Found(_) => "found",
            Verdict::Differs => "differs",
            Verdict::NotBuilt => "not built",
            Verdict::Equivalent => "equivalent",
            Verdict::Survives => "survives",
            Verdict::Panicked => "panicked",
        }
    }

    /// Whether the mutant is told from the kernel.
    pub fn is_killed(self) -> bool {
        matches!(self, Verdict::Refused(_) | Verdict::Found(_) | Verdict::Differs)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Refused(code) => write!(f, "refused: {}", code.name()),
            Verdict::Found(code) => write!(f, "found by the emulator: {}", code.name()),
            Verdict::Differs => f.write_str("other results on the emulator"),
            Verdict::NotBuilt => f.write_str("not supported in this version"),
            Verdict::Equivalent => f.write_str("the same program of the device"),
            Verdict::Survives => f.write_str("survives"),
            Verdict::Panicked => f.write_str("panicked"),
        }
    }
}

/// Why a kernel has no mutants to judge: it is not right itself.
#[derive(Debug, Clone)]
pub enum Unfit {
    /// It is refused, or the file has no such kernel.
    Refused(Vec<Diagnostic>),
    /// It does not run well.
    Run(EmuError),
    /// There is no memory for it.
    Memory(String),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::Refused(found) => {
                let error = found.iter().find(|d| d.severity == Severity::Error);
                match error {
                    Some(error) => write!(f, "{}: {}", error.code.name(), error.message),
                    None => f.write_str("there is no such kernel"),
                }
            }
            Unfit::Run(error) => write!(f, "{error}"),
            Unfit::Memory(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for Unfit {}

/// The kernel as it is: its program, and what it gives.
pub(crate) struct Original {
    built: Built,
    memories: Vec<Memory>,
    device: String,
    results: Vec<Memory>,
}

impl Subject<'_> {
    /// Judges mutants of a text, in their order.
    ///
    /// # Errors
    /// The kernel itself is refused or does not run well.
    pub fn judge(&self, text: &str, mutants: &[Mutant]) -> Result<Vec<Verdict>, Unfit> {
        let built = self.build(text).map_err(Unfit::Refused)?;
        let memories = (self.memories)(&built).map_err(Unfit::Memory)?;
        let first = Schedule::numbered(self.schedules.1, 0);
        let results = self.run(&built, &memories, first).map_err(Unfit::Run)?;
        let device = program(&built);
        let original = Original { built, memories, device, results };
        Ok(mutants.iter().map(|mutant| self.verdict(&original, mutant)).collect())
    }

    fn verdict(&self, original: &Original, mutant: &Mutant) -> Verdict {
        let judged = catch_unwind(AssertUnwindSafe(|| self.compare(original, mutant)));
        judged.unwrap_or(Verdict::Panicked)
    }

    fn compare(&self, original: &Original, mutant: &Mutant) -> Verdict {
        let built = match self.build(&mutant.text) {
            Ok(built) => built,
            Err(found) => {
                let error = found.iter().find(|d| d.severity == Severity::Error);
                return match error.map(|d| d.code) {
                    Some(Code::E0600) => Verdict::NotBuilt,
                    Some(code) => Verdict::Refused(code),
                    None => Verdict::Panicked,
                };
            }
        };
        if program(&built) == original.device {
            return Verdict::Equivalent;
        }
        let has_same_parameters = built.kernel.params.len() == original.built.kernel.params.len();
        let (count, seed) = self.schedules;
        for number in 0..count.max(1) {
            let schedule = Schedule::numbered(seed, number);
            match self.run(&built, &original.memories, schedule) {
                Err(error) => return Verdict::Found(error.code()),
                Ok(results) if !has_same_parameters || results != original.results => {
                    return Verdict::Differs;
                }
                Ok(_) => {}
            }
        }
        self.races(&built, &original.memories).map_or(Verdict::Survives, Verdict::Found)
    }

    /// What the axioms of the memory model say of a run that gave what it should.
    fn races(&self, built: &Built, memories: &[Memory]) -> Option<Code> {
        let schedule = Schedule::numbered(self.schedules.1, 0);
        let options = Options { schedule, max_steps: MAX_STEPS, ..Options::STANDARD };
        let mut memories = memories.to_vec();
        let (ended, record) = record_device(&built.device, &mut memories, self.launches, &options);
        ended.ok()?;
        record.races()?.first().map(|race| race.to_error().code())
    }

    pub(crate) fn build(&self, text: &str) -> Result<Built, Vec<Diagnostic>> {
        let mut sources = SourceMap::new();
        let root = sources.add(self.name, text);
        let front = pipeline::front(&mut sources, root, &mut |path| (self.read)(path));
        if front.has_errors() {
            return Err(front.diagnostics);
        }
        let Some(template) = front.template(self.kernel) else { return Err(Vec::new()) };
        let first = template.targets().first().copied().unwrap_or(Target::Sm90a);
        pipeline::build(template, &(self.bindings)(template), self.target.unwrap_or(first))
    }

    /// Both levels in one schedule; what the kernel level gives.
    fn run(
        &self,
        built: &Built,
        memories: &[Memory],
        schedule: Schedule,
    ) -> Result<Vec<Memory>, EmuError> {
        let (kernel, device) = self.levels(built, memories, schedule);
        let (kernel, device) = (kernel?, device?);
        // The levels agree on a kernel that is right; a mutant may make them differ.
        Ok(if kernel == device { kernel } else { Vec::new() })
    }

    /// What the kernel level gives in one schedule, and what the device level does.
    pub(crate) fn levels(
        &self,
        built: &Built,
        memories: &[Memory],
        schedule: Schedule,
    ) -> (Result<Vec<Memory>, EmuError>, Result<Vec<Memory>, EmuError>) {
        let options = Options { schedule, max_steps: MAX_STEPS, ..Options::STANDARD };
        let (mut kernel, mut device) = (memories.to_vec(), memories.to_vec());
        if built.kernel.launch.world.is_some() {
            let launches = self.launches;
            let one = run_kernel_on_ranks(&built.kernel, &mut kernel, launches, &options);
            let other = run_device_on_ranks(&built.device, &mut device, launches, &options);
            return (one.map(|_| kernel), other.map(|_| device));
        }
        let one =
            kernel.iter_mut().try_for_each(|m| run_kernel(&built.kernel, m, &options).map(drop));
        let other =
            device.iter_mut().try_for_each(|m| run_device(&built.device, m, &options).map(drop));
        (one.map(|()| kernel), other.map(|()| device))
    }
}

/// The program of the device without its places in the text. Of waits for copies that follow each other the one that
/// leaves the fewest groups under way says all.
fn program(built: &Built) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in print::device(&built.device).lines().map(unplaced) {
        if let (Some(groups), Some(last)) = (waited(line), lines.last_mut())
            && let Some(before) = waited(last)
        {
            if groups < before {
                *last = line.to_owned();
            }
            continue;
        }
        lines.push(line.to_owned());
    }
    lines.join("\n")
}

/// A line without the number of the statement that it comes from.
fn unplaced(line: &str) -> &str {
    let line = line.trim_start();
    match line.strip_prefix('@').and_then(|rest| rest.split_once(' ')) {
        Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => rest,
        Some(_) | None => line,
    }
}

/// How many groups of copies a line leaves under way, if it waits for some.
fn waited(line: &str) -> Option<u32> {
    line.strip_prefix("wait_group ")?.parse().ok()
}

//! Runs in several orders in which what runs at once takes turns: all must give the same.

use kernel_dsl::diag::Diagnostic;
use kernel_emulator::{EmuError, Options, Schedule};

use super::{RunArgs, refused};
use crate::cli::{Format, exit};
use crate::session::{self, Refusal};

/// Why a run gave no result.
#[derive(Debug)]
pub(super) enum Fault {
    /// The emulator found something.
    Emulated(EmuError),
    /// The two levels of the IR give other bits in what is named.
    Levels(String),
}

impl From<EmuError> for Fault {
    fn from(error: EmuError) -> Fault {
        Fault::Emulated(error)
    }
}

impl Fault {
    fn is_alike(&self, other: &Fault) -> bool {
        match (self, other) {
            (Fault::Emulated(a), Fault::Emulated(b)) => a.kind == b.kind,
            (Fault::Levels(_), Fault::Levels(_)) => true,
            (Fault::Emulated(_) | Fault::Levels(_), _) => false,
        }
    }
}

/// What a run leaves, and what was noted of it.
type Ran<M, T> = Result<(M, T), Fault>;

/// What went wrong in one order.
enum Wrong {
    Fault(Fault),
    /// Other bits than in the first one.
    Bits,
}

impl Wrong {
    fn is_alike(&self, other: &Wrong) -> bool {
        match (self, other) {
            (Wrong::Fault(a), Wrong::Fault(b)) => a.is_alike(b),
            (Wrong::Bits, Wrong::Bits) => true,
            (Wrong::Fault(_) | Wrong::Bits, _) => false,
        }
    }
}

/// The orders that the command line asks for.
pub(super) struct Orders<'a> {
    pub(super) args: &'a RunArgs,
    pub(super) format: Format,
    /// The code where orders differ.
    pub(super) code: &'static str,
    pub(super) refuse: &'a dyn Fn(&[Diagnostic]) -> Refusal,
}

impl Orders<'_> {
    /// Runs in each of them, and gives the result of the first one, with its options. What goes wrong in another one is
    /// told with the fewest choices in a row that it takes.
    ///
    /// # Errors
    /// A run fails, or one gives other bits than the first.
    pub(super) fn run<M: PartialEq, T>(
        &self,
        name: &str,
        run: &dyn Fn(&Options) -> Ran<M, T>,
    ) -> Result<(Options, (M, T)), Refusal> {
        let options = |schedule: Schedule| Options {
            producer_running: !self.args.producer_done,
            max_steps: self.args.max_steps,
            schedule,
            ..Options::STANDARD
        };
        let first = options(self.args.schedule.unwrap_or(Schedule::STANDARD));
        let wanted = run(&first).map_err(|fault| self.told(name, Wrong::Fault(fault), None))?;
        for number in 1..self.args.schedules {
            let schedule = Schedule::numbered(self.args.seed, number);
            let wrong = |schedule: Schedule| match run(&options(schedule)) {
                Err(fault) => Some(Wrong::Fault(fault)),
                Ok((memory, _)) => (memory != wanted.0).then_some(Wrong::Bits),
            };
            if let Some(found) = wrong(schedule) {
                let fails = |other| wrong(other).is_some_and(|other| other.is_alike(&found));
                let least = schedule.shrink(fails);
                // The places are those of the order that is named.
                let found = wrong(least).unwrap_or(found);
                return Err(self.told(name, found, Some(least)));
            }
        }
        Ok((first, wanted))
    }

    fn told(&self, name: &str, wrong: Wrong, schedule: Option<Schedule>) -> Refusal {
        let replay = schedule.map(|schedule| {
            let choices = match schedule.choices {
                (_, u64::MAX) => String::new(),
                (first, end) if first + 1 == end => {
                    format!(", whose choice {first} alone is out of turn")
                }
                (first, end) => {
                    format!(", whose choices {first} to {} alone are out of turn", end - 1)
                }
            };
            format!("seen in the order `--schedule {schedule}`{choices}")
        });
        match wrong {
            Wrong::Fault(Fault::Emulated(error)) => {
                let mut found = error.to_diagnostic();
                if let Some(replay) = replay {
                    found = found.note(replay);
                }
                (self.refuse)(&[found])
            }
            Wrong::Fault(Fault::Levels(place)) => {
                let message = format!(
                    "the two levels of kernel `{name}` give different bits in {place}; this is a fault of the compiler"
                );
                let mut answer = session::world(self.format, "E0810", &message);
                answer.code = exit::INTERNAL;
                Box::new(answer)
            }
            Wrong::Bits => {
                let replay = replay.unwrap_or_default();
                let message = format!(
                    "kernel `{name}` gives other bits where those who run at once take turns in another order; {replay}"
                );
                refused(self.format, self.code, &message)
            }
        }
    }
}

//! Runs in several orders in which what runs at once takes turns: all must give the same.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

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

/// The first of the numbers from 1 on that goes wrong, tried on all cores.
fn first_wrong(end: u64, wrong: &(dyn Fn(u64) -> Option<Wrong> + Sync)) -> Option<(u64, Wrong)> {
    let (next, stop) = (AtomicU64::new(1), AtomicU64::new(end));
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= stop.load(Ordering::Relaxed) {
                return None;
            }
            if let Some(found) = wrong(number) {
                stop.fetch_min(number, Ordering::Relaxed);
                return Some((number, found));
            }
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let found: Vec<Option<(u64, Wrong)>> = thread::scope(|scope| {
        let threads: Vec<_> = (1..workers).map(|_| scope.spawn(work)).collect();
        let own = work();
        let joined = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        std::iter::once(own).chain(threads.into_iter().map(joined)).collect()
    });
    found.into_iter().flatten().min_by_key(|(number, _)| *number)
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
    pub(super) fn run<M: PartialEq + Sync, T>(
        &self,
        name: &str,
        run: &(dyn Fn(&Options) -> Ran<M, T> + Sync),
    ) -> Result<(Options, (M, T)), Refusal> {
        let (producer_running, max_steps) = (!self.args.producer_done, self.args.max_steps);
        let options =
            |schedule| Options { producer_running, max_steps, schedule, ..Options::STANDARD };
        let first = options(self.args.schedule.unwrap_or(Schedule::STANDARD));
        let (wanted, noted) =
            run(&first).map_err(|fault| self.told(name, Wrong::Fault(fault), None))?;
        let wrong = |schedule| match run(&options(schedule)) {
            Err(fault) => Some(Wrong::Fault(fault)),
            Ok((memory, _)) => (memory != wanted).then_some(Wrong::Bits),
        };
        let seed = self.args.seed;
        let numbered = |number| Schedule::numbered(seed, number);
        let judged = first_wrong(self.args.schedules, &|number| wrong(numbered(number)));
        if let Some((number, found)) = judged {
            let fails = |other| wrong(other).is_some_and(|other| other.is_alike(&found));
            let least = numbered(number).shrink(fails);
            // The places are those of the order that is named.
            let found = wrong(least).unwrap_or(found);
            return Err(self.told(name, found, Some(least)));
        }
        Ok((first, (wanted, noted)))
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

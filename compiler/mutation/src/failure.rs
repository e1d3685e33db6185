//! What goes wrong with a text, so that a smaller one can be asked for the same.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use kernel_dsl::diag::{Code, Diagnostic, Severity};
use kernel_emulator::{EmuError, Memory, Schedule};

use crate::judge::Subject;

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failure {
    /// A finding before anything runs: its code, and what it says without names and numbers.
    Refused(Code, String),
    /// An error of a run on the emulator, at both levels.
    Found(Code),
    /// The levels of the compiler differ: in results, or in whether they end well.
    Levels,
    /// Two schedules give different results.
    Schedules,
    /// The compiler or the emulator panics.
    Panicked,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Refused(code, _) => write!(f, "{}", code.name()),
            Failure::Found(code) => write!(f, "{} on the emulator", code.name()),
            Failure::Levels => f.write_str("the two levels differ on the emulator"),
            Failure::Schedules => f.write_str("two schedules differ on the emulator"),
            Failure::Panicked => f.write_str("a panic"),
        }
    }
}

impl Subject<'_> {
    /// All that goes wrong with a text: every finding, or the first thing that a run shows; nothing where it is right
    /// in all schedules, or has no such kernel.
    pub fn failures(&self, text: &str) -> Vec<Failure> {
        catch_unwind(AssertUnwindSafe(|| self.seen(text))).unwrap_or(vec![Failure::Panicked])
    }

    fn seen(&self, text: &str) -> Vec<Failure> {
        let built = match self.build(text) {
            Ok(built) => built,
            Err(found) => {
                let errors = found.iter().filter(|d| d.severity == Severity::Error);
                return errors.map(|error| Failure::Refused(error.code, said(error))).collect();
            }
        };
        let Ok(memories) = (self.memories)(&built) else { return Vec::new() };
        let (count, seed) = self.schedules;
        let mut first: Option<Vec<Memory>> = None;
        for number in 0..count.max(1) {
            let schedule = Schedule::numbered(seed, number);
            let (kernel, device) = self.levels(&built, &memories, schedule);
            match (kernel, device) {
                (Ok(kernel), Ok(device)) if kernel != device => return vec![Failure::Levels],
                (Ok(kernel), Ok(_)) => match &first {
                    Some(first) if *first != kernel => return vec![Failure::Schedules],
                    Some(_) => {}
                    None => first = Some(kernel),
                },
                (Err(one), Err(other)) if one.kind == other.kind => {
                    return vec![Failure::Found(EmuError::code(&one))];
                }
                (Ok(_) | Err(_), Ok(_) | Err(_)) => return vec![Failure::Levels],
            }
        }
        Vec::new()
    }
}

/// The message of a finding and what it says of its place. Names and numbers change while a text gets smaller.
fn said(finding: &Diagnostic) -> String {
    let label = finding.labels.first().map_or("", |label| label.message.as_str());
    let mut is_name = false;
    let mut is_kept = |letter: &char| {
        is_name ^= *letter == '`';
        !is_name && !letter.is_ascii_digit()
    };
    finding.message.chars().chain([';']).chain(label.chars()).filter(|c| is_kept(c)).collect()
}

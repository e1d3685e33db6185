//! How a run is done.

use std::fmt;
use std::str::FromStr;

/// How a run is done. Results do not depend on `parallel`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Runs CTAs on the threads of the caller's rayon pool.
    pub parallel: bool,
    /// In a kernel that may start early (`pdl: consumer` or `both`), what other kernels may still write is
    /// poison until `grid_wait`, and what is stored before it is lost.
    pub producer_running: bool,
    /// Statements that one CTA may execute.
    pub max_steps: u64,
    /// In which order what runs at once takes turns.
    pub schedule: Schedule,
    /// In a plan, a kernel with `pdl: consumer` or `both` starts while the kernel before it still runs.
    pub overlap: bool,
}

/// In which order what runs at once takes turns. A kernel without faults gives the same bits in every one.
///
/// As text `POLICY:SEED`, and with bounds `POLICY:SEED:FIRST..END`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// How the next one is chosen.
    pub policy: Policy,
    /// Of the choices.
    pub seed: u64,
    /// The choices that the policy makes, from the first one to the one before the second number; all others are made in
    /// turn. Choice 0 is the order in which CTAs begin.
    pub choices: (u64, u64),
}

/// How the next one is chosen, of those that can go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Each in its turn.
    RoundRobin,
    /// Any.
    Random,
    /// One, chosen by the seed, stays behind all others for as long as it can.
    Adversarial,
}

impl Schedule {
    /// Each in its turn.
    pub const STANDARD: Schedule = Schedule::new(Policy::RoundRobin, 0);

    /// The policy makes all choices.
    pub const fn new(policy: Policy, seed: u64) -> Schedule {
        Schedule { policy, seed, choices: (0, u64::MAX) }
    }

    /// One of many: each number gives another one, all policies in turn.
    pub fn numbered(seed: u64, number: u64) -> Schedule {
        let policy = match number % 3 {
            0 => Policy::Random,
            1 => Policy::Adversarial,
            _ => Policy::RoundRobin,
        };
        Schedule::new(policy, seed.wrapping_add(number))
    }

    /// Who makes a choice.
    pub(crate) fn policy_of(&self, choice: u64) -> Policy {
        let (first, end) = self.choices;
        if (first..end).contains(&choice) { self.policy } else { Policy::RoundRobin }
    }

    /// The same with as few choices of the policy, in a row, as it takes to fail still; the schedule itself where only
    /// more than a million of them fail.
    pub fn shrink(self, fails: impl Fn(Schedule) -> bool) -> Schedule {
        const MOST: u64 = 1 << 20;
        let within = |first, end| Schedule { choices: (first, end), ..self };
        // No choice at all is the standard order.
        let (mut passing, mut end) = (0, 1);
        while !fails(within(0, end)) {
            if end >= MOST {
                return self;
            }
            (passing, end) = (end, end * 2);
        }
        while passing + 1 < end {
            let middle = passing.midpoint(end);
            if fails(within(0, middle)) { end = middle } else { passing = middle }
        }
        let (mut first, mut passing) = (0, end);
        while first + 1 < passing {
            let middle = first.midpoint(passing);
            if fails(within(middle, end)) { first = middle } else { passing = middle }
        }
        within(first, end)
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.policy.name(), self.seed)?;
        match self.choices {
            (0, u64::MAX) => Ok(()),
            (first, end) => write!(f, ":{first}..{end}"),
        }
    }
}

/// A text that names no schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no schedule: POLICY:SEED or POLICY:SEED:FIRST..END, with round-robin, random or adversarial as policy"
)]
pub struct NoSchedule(String);

impl FromStr for Schedule {
    type Err = NoSchedule;

    fn from_str(text: &str) -> Result<Schedule, NoSchedule> {
        let read = || {
            let (policy, rest) = text.split_once(':')?;
            let policy = Policy::ALL.into_iter().find(|known| known.name() == policy)?;
            let (seed, choices) = match rest.split_once(':') {
                None => (rest, (0, u64::MAX)),
                Some((seed, choices)) => {
                    let (first, end) = choices.split_once("..")?;
                    (seed, (first.parse().ok()?, end.parse().ok()?))
                }
            };
            Some(Schedule { policy, seed: seed.parse().ok()?, choices })
        };
        read().ok_or_else(|| NoSchedule(text.to_owned()))
    }
}

impl Policy {
    const ALL: [Policy; 3] = [Policy::RoundRobin, Policy::Random, Policy::Adversarial];

    fn name(self) -> &'static str {
        match self {
            Policy::RoundRobin => "round-robin",
            Policy::Random => "random",
            Policy::Adversarial => "adversarial",
        }
    }
}

impl Options {
    /// All threads of the pool, producers running, a limit that no sensible kernel reaches, each in its turn, kernels of
    /// a plan one after the other.
    pub const STANDARD: Options = Options {
        parallel: true,
        producer_running: true,
        max_steps: 50_000_000,
        schedule: Schedule::STANDARD,
        overlap: false,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_is_read_as_it_is_written() {
        for text in ["random:7", "adversarial:0:3..9", "round-robin:18446744073709551615"] {
            let schedule: Schedule = text.parse().unwrap();
            assert_eq!(schedule.to_string(), text);
        }
        for text in ["", "random", "random:", "random:x", "fair:1", "random:1:2", "random:1:a..3"] {
            assert!(text.parse::<Schedule>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_least_window_that_still_fails_is_found() {
        let schedule = Schedule::new(Policy::Random, 3);
        let holds =
            |first: u64, end: u64| move |s: Schedule| s.choices.0 <= first && s.choices.1 >= end;
        for (first, end) in [(0, 1), (5, 6), (17, 40), (0, 1000)] {
            assert_eq!(schedule.shrink(holds(first, end)).choices, (first, end));
        }
        assert_eq!(schedule.shrink(|s| s.choices.1 == u64::MAX), schedule);
    }
}

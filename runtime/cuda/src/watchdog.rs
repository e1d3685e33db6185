//! Waiting with an end: a kernel that does not end becomes an error that names what was running.

use std::time::{Duration, Instant};

use crate::error::{DriverError, RuntimeError};

/// How long is waited for the work of one step, or for a copy.
pub const DEFAULT_LIMIT: Duration = Duration::from_secs(8);

/// Time that the waiter burns before it sleeps: steps of small models are shorter.
const SPIN: Duration = Duration::from_millis(5);

/// Sleep between two looks after that.
const PAUSE: Duration = Duration::from_micros(100);

/// Where the time comes from.
pub(crate) trait Clock {
    /// Time since some moment.
    fn now(&self) -> Duration;
    /// Lets others work; not at all for no time.
    fn pause(&self, time: Duration);
}

/// The clock of the machine.
#[derive(Debug)]
pub(crate) struct SystemClock(Instant);

impl SystemClock {
    pub(crate) fn new() -> SystemClock {
        SystemClock(Instant::now())
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn pause(&self, time: Duration) {
        if time.is_zero() {
            std::hint::spin_loop();
        } else {
            std::thread::sleep(time);
        }
    }
}

/// Looks until `is_done` says so, at most for `limit`; `running` names what may be running then.
///
/// # Errors
/// The time is over, or the device was lost; each names what was running.
pub(crate) fn wait(
    clock: &impl Clock,
    limit: Duration,
    mut is_done: impl FnMut() -> Result<bool, DriverError>,
    running: impl Fn() -> Vec<String>,
) -> Result<(), RuntimeError> {
    let start = clock.now();
    loop {
        match is_done() {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(error) => {
                return Err(match RuntimeError::from(error) {
                    RuntimeError::Lost { error, .. } => {
                        RuntimeError::Lost { error, kernels: running() }
                    }
                    other => other,
                });
            }
        }
        let waited = clock.now().saturating_sub(start);
        if waited >= limit {
            return Err(RuntimeError::Hung { limit, kernels: running() });
        }
        clock.pause(if waited < SPIN { Duration::ZERO } else { PAUSE });
    }
}

/// Which nodes of a graph may be running: those after the last mark that was seen up to the next one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    names: Vec<String>,
    /// Number of nodes before each mark, ascending.
    marks: Vec<usize>,
}

impl Progress {
    /// Adds a node.
    pub fn node(&mut self, name: impl Into<String>) {
        self.names.push(name.into());
    }

    /// Sets a mark behind the nodes so far and returns its number, which is not 0.
    pub fn mark(&mut self) -> u32 {
        self.marks.push(self.names.len());
        self.marks.len() as u32
    }

    /// The nodes that may be running when `mark` was the last one; 0 stands for none.
    pub fn running(&self, mark: u32) -> Vec<String> {
        let mark = (mark as usize).min(self.marks.len());
        let from = if mark == 0 { 0 } else { self.marks[mark - 1] };
        let to = self.marks.get(mark).copied().unwrap_or(self.names.len());
        self.names[from..to].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::code::Code;

    /// A clock that goes on by a millisecond at each look.
    #[derive(Default)]
    struct Fake {
        now: Cell<Duration>,
        slept: Cell<Duration>,
    }

    impl Clock for Fake {
        fn now(&self) -> Duration {
            self.now.set(self.now.get() + Duration::from_millis(1));
            self.now.get()
        }

        fn pause(&self, time: Duration) {
            self.slept.set(self.slept.get() + time);
            self.now.set(self.now.get() + time);
        }
    }

    fn driver_error(code: u32) -> DriverError {
        DriverError { call: "cuEventQuery", code, name: "CUDA_ERROR_X".to_owned() }
    }

    #[test]
    fn work_that_ends_is_no_error() {
        let (clock, looks) = (Fake::default(), Cell::new(0));
        let done = || {
            looks.set(looks.get() + 1);
            Ok(looks.get() > 3)
        };
        wait(&clock, Duration::from_secs(1), done, Vec::new).unwrap();
        assert_eq!((looks.get(), clock.slept.get()), (4, Duration::ZERO));
    }

    #[test]
    fn work_that_does_not_end_is_named() {
        let clock = Fake::default();
        let names = || vec!["layer0.mix".to_owned(), "layer0.in_proj".to_owned()];
        let error = wait(&clock, Duration::from_secs(2), || Ok(false), names).unwrap_err();
        assert_eq!(error.code(), Code::R0401);
        assert!(error.leaves_work_behind());
        let text = "not done after 2.0 s; in flight: layer0.mix, layer0.in_proj";
        assert_eq!(error.to_string(), text);
        assert!(clock.slept.get() > Duration::ZERO && clock.now.get() < Duration::from_secs(3));
    }

    #[test]
    fn a_lost_device_is_told_from_a_call_that_failed() {
        let wait_for = |code| {
            let names = || vec!["gemv".to_owned()];
            wait(&Fake::default(), Duration::from_secs(1), || Err(driver_error(code)), names)
        };
        let lost = wait_for(700).unwrap_err();
        assert_eq!(lost.code(), Code::R0106);
        assert!(lost.to_string().ends_with("(CUDA_ERROR_X); in flight: gemv"), "{lost}");
        assert_eq!(wait_for(1).unwrap_err().code(), Code::R0107);
    }

    #[test]
    fn marks_say_where_the_work_was() {
        let mut progress = Progress::default();
        progress.node("a");
        progress.node("b");
        assert_eq!(progress.running(0), ["a", "b"]);
        assert_eq!(progress.mark(), 1);
        progress.node("c");
        assert_eq!(progress.mark(), 2);
        progress.node("d");
        assert_eq!(progress.running(0), ["a", "b"]);
        assert_eq!(progress.running(1), ["c"]);
        assert_eq!(progress.running(2), ["d"]);
        assert_eq!(progress.running(9), ["d"]);
    }

    #[test]
    fn all_nodes_between_two_marks_of_a_step_are_named() {
        let kernels: Vec<String> =
            (0..crate::CudaOptions::STANDARD.nodes_of_mark).map(|k| format!("k{k}")).collect();
        let last = kernels.last().expect("a step has marks").clone();
        let text = RuntimeError::Hung { limit: DEFAULT_LIMIT, kernels }.to_string();
        assert!(text.ends_with(&format!(", {last}")), "{text}");
    }

    #[test]
    fn long_lists_are_cut() {
        let kernels: Vec<String> = (0..100).map(|k| format!("k{k}")).collect();
        let text = RuntimeError::Hung { limit: DEFAULT_LIMIT, kernels }.to_string();
        assert!(text.ends_with("k62, k63 and 36 more"), "{text}");
    }
}

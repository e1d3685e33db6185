//! Work on several threads, each with an engine of its own; the first that fails stops the others.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::CliError;
use crate::interrupt;

/// Whether to go on.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    failed: AtomicBool,
}

impl Stop {
    /// Stops where another job failed or Ctrl-C asked for it.
    ///
    /// # Errors
    /// It is to stop.
    pub(crate) fn check(&self) -> Result<(), CliError> {
        interrupt::check()?;
        if self.failed.load(Ordering::Relaxed) { Err(CliError::Interrupted) } else { Ok(()) }
    }
}

/// Stops the others when its thread panics.
struct Watch<'a>(&'a Stop);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.failed.store(true, Ordering::Relaxed);
        }
    }
}

/// Does the works of `order` on `jobs` threads: each makes its state by `start` and then takes the next work as long
/// as there is one. `results` comes back filled, by the works' numbers.
///
/// # Errors
/// What the first job that failed failed with.
pub(crate) fn run<S, T: Send>(
    jobs: usize,
    order: &[usize],
    mut results: Vec<T>,
    start: impl Fn() -> Result<S, CliError> + Sync,
    work: impl Fn(&mut S, usize, &Stop) -> Result<T, CliError> + Sync,
) -> Result<Vec<T>, CliError> {
    let (next, stop) = (AtomicUsize::new(0), Stop::default());
    let first: Mutex<Option<CliError>> = Mutex::new(None);
    let filled = Mutex::new(&mut results);
    let job = || -> Result<(), CliError> {
        stop.check()?;
        let mut state = start()?;
        while let Some(&at) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            stop.check()?;
            let result = work(&mut state, at, &stop)?;
            filled.lock().unwrap_or_else(PoisonError::into_inner)[at] = result;
        }
        Ok(())
    };
    let thread = || {
        let _watch = Watch(&stop);
        if let Err(error) = job() {
            // Those that stop because of it come later.
            first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            stop.failed.store(true, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..jobs).map(|_| scope.spawn(thread)).collect();
        for job in running {
            if let Err(panic) = job.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
    match first.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(results),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_work_is_done_once() {
        let order: Vec<usize> = (0..100).rev().collect();
        let start = || Ok(0);
        let count = |done: &mut usize, at: usize, _: &Stop| {
            *done += 1;
            Ok((at, *done))
        };
        let results = run(4, &order, vec![(0, 0); 100], start, count).unwrap();
        assert!(results.iter().enumerate().all(|(at, &(of, done))| at == of && done > 0));
    }

    /// The other works end only when they are told to stop.
    fn endless(stop: &Stop) -> Result<(), CliError> {
        loop {
            stop.check()?;
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_job_that_fails_stops_the_others() {
        let fail = |_: &mut (), at: usize, stop: &Stop| match at {
            2 => Err(CliError::Fault("of work 2".to_owned())),
            _ => endless(stop),
        };
        let error = run(4, &[0, 1, 2, 3, 4], vec![(); 5], || Ok(()), fail).unwrap_err();
        assert!(matches!(error, CliError::Fault(text) if text == "of work 2"));
    }

    #[test]
    fn a_job_that_panics_stops_the_others() {
        let fail = |_: &mut (), at: usize, stop: &Stop| match at {
            1 => panic!("in work 1"),
            _ => endless(stop),
        };
        let run = || run(2, &[0, 1], vec![(); 2], || Ok(()), fail).map(drop);
        let error = crate::fault::caught(run).unwrap_err();
        assert_eq!(error.to_string(), "a fault of kimi-k3: in work 1");
    }
}

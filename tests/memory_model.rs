//! What the verifier accepts has no race in the axioms of the memory model: every operation file and whole kernel of
//! `tests/suite` runs at device level, and each access of each thread is an event that the axioms judge.

#![expect(
    clippy::print_stdout,
    reason = "how many kernels the model has judged is part of the result"
)]

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kernel_emulator::Options;
use kernel_tests::{program, recorded, schedules};
use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let suite = Arc::new(program::package_folder().join("suite"));
    let counts: Arc<[AtomicUsize; 2]> = Arc::default();
    let mut trials = Vec::new();
    for test in schedules::files(&suite).expect("the test files can be read") {
        let (suite, counts) = (Arc::clone(&suite), Arc::clone(&counts));
        trials.push(Trial::test(test.name.clone(), move || {
            let judged = recorded::judge_file(&suite, &test, Options::STANDARD)?;
            counts[usize::from(judged)].fetch_add(1, Ordering::Relaxed);
            Ok(())
        }));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    let [large, judged] = [0, 1].map(|i: usize| counts[i].load(Ordering::Relaxed));
    if large + judged > 0 {
        println!(
            "{judged} runs have no race in the memory model; {large} have too many events to be judged"
        );
    }
    conclusion.exit_code()
}

//! Every operation file, every kernel of kimi-k3-mini and of the specialised path, and the kernels of tests/ranks with
//! 1 to 16 ranks, under random schedules: the same bits at both levels in each; chains of kernels, the specialised
//! path and steps of kimi-k3-mini with kernels that overlap.
//!
//! `cargo xtask schedules` says how many; a plain test run tries a few.

#![expect(clippy::print_stdout, reason = "how many kernels had a choice is part of the result")]

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kernel_tests::program;
use kernel_tests::schedules::{self, Schedules};
use libtest_mimic::{Arguments, Failed, Trial};

const FEW: Schedules = Schedules { count: 6, seed: 1 };

/// Kernels that ran well.
#[derive(Default)]
struct Ran {
    in_all: AtomicUsize,
    once: AtomicUsize,
}

impl Ran {
    fn note(&self, had_a_choice: Result<bool, String>) -> Result<(), Failed> {
        let counter = if had_a_choice.map_err(Failed::from)? { &self.in_all } else { &self.once };
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn report(&self, count: u64) {
        let [all, once] = [&self.in_all, &self.once].map(|n| n.load(Ordering::Relaxed));
        // What lists the tests reads every line.
        if all + once == 0 {
            return;
        }
        println!(
            "{all} kernels gave the same bits in {count} schedules each at both levels; {once} have one schedule only"
        );
    }
}

/// A number that the command gives.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let chosen = Schedules {
        count: number("KERNEL_SCHEDULES").unwrap_or(FEW.count),
        seed: number("KERNEL_SCHEDULES_SEED").unwrap_or(FEW.seed),
    };
    let suite = Arc::new(program::package_folder().join("suite"));
    let ran = Arc::new(Ran::default());
    let mut trials = Vec::new();
    for test in schedules::files(&suite).expect("the test files can be read") {
        let (suite, ran) = (Arc::clone(&suite), Arc::clone(&ran));
        trials.push(Trial::test(test.name.clone(), move || {
            ran.note(schedules::run_file(&suite, &test, chosen))
        }));
    }
    let of_mini = schedules::kernels_of_mini().expect("the plans can be made");
    for key in of_mini.into_iter().chain(schedules::specialized()) {
        let ran = Arc::clone(&ran);
        trials.push(Trial::test(key.to_string(), move || {
            ran.note(schedules::run_kernel(&key, chosen))
        }));
    }
    for kernel in schedules::of_ranks() {
        let ran = Arc::clone(&ran);
        trials.push(Trial::test(kernel.name(), move || {
            ran.note(schedules::run_ranks(&kernel, chosen).map(|()| true))
        }));
    }
    for test in schedules::chains(&suite).expect("the test files can be read") {
        let suite = Arc::clone(&suite);
        trials.push(Trial::test(test.name.clone(), move || {
            schedules::run_chain(&suite, &test, chosen).map_err(Failed::from)
        }));
    }
    trials.push(Trial::test("overlap of the specialised path", move || {
        schedules::overlap_specialized(chosen).map_err(Failed::from)
    }));
    trials.push(Trial::test("overlap in kimi-k3-mini", move || {
        schedules::overlap_mini(chosen).map_err(Failed::from)
    }));
    let conclusion = libtest_mimic::run(&arguments, trials);
    ran.report(chosen.count);
    conclusion.exit_code()
}

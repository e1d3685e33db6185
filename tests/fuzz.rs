//! Random changes of the file tests: nothing panics, and what the verifier accepts runs as it promises.
//!
//! A plain test run judges a few inputs and those of tests/data/fuzz that once failed; `cargo xtask fuzz` runs for
//! minutes.

#![expect(clippy::print_stdout, reason = "findings are the result")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use kernel_tests::fuzz::{self, Finding, Outcome, Seeds};
use kernel_tests::program;
use libtest_mimic::{Arguments, Failed, Trial};

/// Inputs of a plain test run.
const FEW: u64 = 300;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    std::panic::set_hook(Box::new(|_| {}));
    let trials = vec![
        Trial::test("inputs that once failed", || known().map_err(Failed::from)),
        Trial::test("changed kernels", || changed().map_err(Failed::from)),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Every file of the corpus is told without a fault.
fn known() -> Result<(), String> {
    let folder = program::package_folder().join("data/fuzz");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&folder)
        .map_err(|error| error.to_string())?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "tile"))
        .collect();
    paths.sort();
    let mut left = Vec::new();
    for path in &paths {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        for kernel in fuzz::kernels(&text) {
            let faults = fuzz::failures(&kernel, &text).into_iter().filter(fuzz::is_fault);
            left.extend(faults.map(|fault| format!("{}: {fault}", path.display())));
        }
    }
    if left.is_empty() { Ok(()) } else { Err(left.join("\n")) }
}

fn changed() -> Result<(), String> {
    let seeds = Seeds::read(&program::package_folder().join("suite"))?;
    let seed = number("KERNEL_FUZZ_SEED").unwrap_or(1);
    let limit = number("KERNEL_FUZZ_SECONDS").map(Duration::from_secs);
    let started = Instant::now();
    let mut found = Vec::new();
    let (mut next, mut ran) = (0, 0);
    while limit.map_or(next < FEW, |limit| started.elapsed() < limit) {
        let text = seeds.input(seed, next);
        match fuzz::judge(next, &text) {
            Outcome::Fault(Finding { failure, kernel, text, .. }) => {
                println!("input {next}: {failure} in `{kernel}`:\n{text}");
                found.push(format!("input {next}: {failure}"));
            }
            Outcome::Runs => ran += 1,
            Outcome::Refused => {}
        }
        next += 1;
    }
    println!("{next} inputs of seed {seed}: {ran} run, {} faults", found.len());
    if found.is_empty() { Ok(()) } else { Err(found.join("\n")) }
}

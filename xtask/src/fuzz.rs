//! `cargo xtask fuzz`: random changes of kernels, and random input for every reader, for some minutes each.

use crate::process::{cargo, number_of, run};
use crate::setup;
use crate::workspace::Workspace;
use anyhow::{Result, bail};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

const MINUTES: u64 = 10;
const SEED: u64 = 1;

/// What reads texts or bytes that anyone may have written, with the tests that try it on random ones.
struct Reader {
    name: &'static str,
    package: &'static str,
    tests: &'static [&'static str],
    /// The property tests in them; all where none is named.
    filters: &'static [&'static str],
}

/// Kernels are changed by a test of their own; see `tests/fuzz.rs`.
const KERNELS: &str = "kernels";

const READERS: &[Reader] = &[
    Reader {
        name: "source",
        package: "kernel_dsl",
        tests: &["robust", "print"],
        filters: &["never_panic", "survive"],
    },
    Reader { name: "ptx", package: "kernel_audit", tests: &["hostile"], filters: &["changed_ptx"] },
    Reader {
        name: "sass",
        package: "kernel_audit",
        tests: &["hostile"],
        filters: &["changed_listings", "changed_cubins"],
    },
    Reader {
        name: "litmus",
        package: "kernel_memory_model",
        tests: &["hostile"],
        filters: &["any_text", "pieces", "changed"],
    },
    Reader {
        name: "bundles",
        package: "kernel_abi",
        tests: &["bundle"],
        filters: &["arbitrary_bytes"],
    },
];

#[derive(Debug, PartialEq, Eq)]
struct Options {
    minutes: u64,
    seed: u64,
    /// What is tried; all where nothing is named.
    chosen: Vec<String>,
}

pub(crate) fn main(args: &[String]) -> Result<ExitCode> {
    let options = Options::parse(args)?;
    let workspace = Workspace::enter()?;
    let tools = setup::run(&workspace)?;
    let limit = Duration::from_secs(options.minutes.saturating_mul(60));
    if options.takes(KERNELS) {
        let mut command = cargo();
        command.args(["test", "--package", "kernel_tests", "--test", "fuzz", "--", "--nocapture"]);
        command.envs(tools.variables());
        command.env("KERNEL_FUZZ_SECONDS", limit.as_secs().to_string());
        command.env("KERNEL_FUZZ_SEED", options.seed.to_string());
        run(&mut command)?;
    }
    for reader in READERS.iter().filter(|reader| options.takes(reader.name)) {
        let started = Instant::now();
        let mut rounds = 0;
        // Each run of the tests draws other inputs.
        while rounds == 0 || started.elapsed() < limit {
            run(reader.test().envs(tools.variables()))?;
            rounds += 1;
        }
        println!("{}: {rounds} rounds, no panic", reader.name);
    }
    Ok(ExitCode::SUCCESS)
}

impl Reader {
    fn test(&self) -> Command {
        let mut command = cargo();
        command.args(["test", "--quiet", "--package", self.package]);
        command.args(self.tests.iter().flat_map(|test| ["--test", test]));
        command.args(["--", "--quiet"]).args(self.filters);
        command
    }
}

impl Options {
    fn parse(args: &[String]) -> Result<Options> {
        let mut options = Options { minutes: MINUTES, seed: SEED, chosen: Vec::new() };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut number = || number_of(arg, args.next());
            match arg.as_str() {
                "--minutes" => options.minutes = number()?,
                "--seed" => options.seed = number()?,
                name if name == KERNELS || READERS.iter().any(|reader| reader.name == name) => {
                    options.chosen.push(name.to_owned());
                }
                arg => bail!("fuzz has no option `{arg}`"),
            }
        }
        Ok(options)
    }

    fn takes(&self, name: &str) -> bool {
        self.chosen.is_empty() || self.chosen.iter().any(|chosen| chosen == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_unknown_ones_refused() {
        let parse = |args: &[&str]| {
            Options::parse(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>())
        };
        let wanted = Options { minutes: 3, seed: 9, chosen: vec!["ptx".into()] };
        assert_eq!(parse(&["--minutes", "3", "ptx", "--seed", "9"]).ok(), Some(wanted));
        assert!(parse(&[]).is_ok_and(|all| all.takes("kernels") && all.takes("litmus")));
        assert!(parse(&["sass"]).is_ok_and(|one| one.takes("sass") && !one.takes("ptx")));
        assert!(parse(&["--minutes"]).is_err());
        assert!(parse(&["--minutes", "x"]).is_err());
        assert!(parse(&["cubins"]).is_err());
    }
}

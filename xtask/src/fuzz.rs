//! `cargo xtask fuzz`: random changes of kernels for some minutes.

use crate::process::{cargo, number_of, run};
use crate::setup;
use crate::workspace::Workspace;
use anyhow::{Result, bail};
use std::process::ExitCode;

const MINUTES: u64 = 10;
const SEED: u64 = 1;

#[derive(Debug, PartialEq, Eq)]
struct Options {
    minutes: u64,
    seed: u64,
}

pub(crate) fn main(args: &[String]) -> Result<ExitCode> {
    let options = Options::parse(args)?;
    let workspace = Workspace::enter()?;
    let tools = setup::run(&workspace)?;
    let mut command = cargo();
    command.args(["test", "--package", "kernel_tests", "--test", "fuzz", "--", "--nocapture"]);
    command.envs(tools.variables());
    command.env("KERNEL_FUZZ_SECONDS", options.minutes.saturating_mul(60).to_string());
    command.env("KERNEL_FUZZ_SEED", options.seed.to_string());
    run(&mut command)?;
    Ok(ExitCode::SUCCESS)
}

impl Options {
    fn parse(args: &[String]) -> Result<Options> {
        let mut options = Options { minutes: MINUTES, seed: SEED };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut number = || number_of(arg, args.next());
            match arg.as_str() {
                "--minutes" => options.minutes = number()?,
                "--seed" => options.seed = number()?,
                arg => bail!("fuzz has no option `{arg}`"),
            }
        }
        Ok(options)
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
        let wanted = Options { minutes: 3, seed: 9 };
        assert_eq!(parse(&["--minutes", "3", "--seed", "9"]).ok(), Some(wanted));
        assert!(parse(&["--minutes"]).is_err());
        assert!(parse(&["--minutes", "x"]).is_err());
        assert!(parse(&["kernels"]).is_err());
    }
}

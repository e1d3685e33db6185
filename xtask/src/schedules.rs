//! `cargo xtask schedules`: every operation file and every kernel of kimi-k3-mini and of the specialised path under
//! many schedules on the emulator, and launches that overlap.

use crate::process::{cargo, number_of, run};
use crate::setup;
use crate::workspace::Workspace;
use anyhow::{Result, bail};
use std::process::ExitCode;

const COUNT: u64 = 1000;
const SEED: u64 = 1;

#[derive(Debug, PartialEq, Eq)]
struct Options {
    count: u64,
    seed: u64,
    /// Which tests, by a part of their names; all without.
    word: Option<String>,
}

pub(crate) fn main(args: &[String]) -> Result<ExitCode> {
    let options = Options::parse(args)?;
    let workspace = Workspace::enter()?;
    let tools = setup::run(&workspace)?;
    let mut command = cargo();
    command.args(["test", "--package", "kernel_tests", "--test", "schedules"]);
    if let Some(word) = &options.word {
        command.args(["--", word]);
    }
    command.envs(tools.variables());
    command.env("KERNEL_SCHEDULES", options.count.to_string());
    command.env("KERNEL_SCHEDULES_SEED", options.seed.to_string());
    run(&mut command)?;
    Ok(ExitCode::SUCCESS)
}

impl Options {
    fn parse(args: &[String]) -> Result<Options> {
        let mut options = Options { count: COUNT, seed: SEED, word: None };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut number = || number_of(arg, args.next());
            match arg.as_str() {
                "--count" => options.count = number()?,
                "--seed" => options.seed = number()?,
                word if word.starts_with('-') => bail!("schedules has no option `{word}`"),
                word if options.word.is_none() => options.word = Some(word.to_owned()),
                word => bail!("schedules takes one word, `{word}` is another"),
            }
        }
        if options.count == 0 {
            bail!("`--count 0` runs nothing");
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Options> {
        Options::parse(&args.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn numbers_and_a_word_are_read() {
        let options = parse(&["--count", "20", "pipeline", "--seed", "7"]).unwrap();
        assert_eq!(options, Options { count: 20, seed: 7, word: Some("pipeline".to_owned()) });
        assert_eq!(parse(&[]).unwrap().count, COUNT);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for args in
            [&["--count"][..], &["--count", "x"], &["--count", "0"], &["--more"], &["a", "b"]]
        {
            assert!(parse(args).is_err(), "{args:?}");
        }
    }
}

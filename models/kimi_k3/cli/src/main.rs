//! `kimi-k3`: Kimi K3 from the command line.
//!
//! Exit codes: 0 done, 1 refused (the message has a code), 2 usage, 4 the world (files, disk, memory), 70 a fault of
//! this program, 130 stopped by Ctrl-C.

mod args;
mod bench;
mod cuda;
mod engine;
mod error;
mod eval;
mod executor;
mod fault;
mod generate;
mod interrupt;
mod jobs;
mod loading;
mod logits;
mod output;
mod pack;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use kernel_abi::bundle::{end_on_bus_error, fail_at_size_limit};

use crate::args::{Arguments, Command};
use crate::error::CliError;

fn main() -> ExitCode {
    end_on_bus_error(error::WORLD);
    fail_at_size_limit();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(said) => return explain(&said),
    };
    fault::listen();
    output::log(arguments.verbose);
    let done = fault::caught(|| match &arguments.command {
        Command::Generate(options) => generate::run(options),
        Command::Logits(options) => logits::run(options),
        Command::Eval(options) => eval::run(options),
        Command::Pack(options) => pack::run(options),
        Command::Bench(options) => bench::run(options),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::error(&error);
            if error.leaves_work_behind() {
                // At an ordinary end the driver would wait for the kernel that does not end.
                kernel_runtime::end_process(error.exit());
            }
            ExitCode::from(error.exit())
        }
    }
}

/// What a wrong command line gets, and what `--help` and `--version` ask for, which come as errors that are none.
fn explain(said: &clap::Error) -> ExitCode {
    let printed = said.print().and_then(|()| std::io::stdout().flush());
    if said.use_stderr() {
        return ExitCode::from(error::USAGE);
    }
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let error = CliError::Output(error);
            output::error(&error);
            ExitCode::from(error.exit())
        }
    }
}

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

use std::process::ExitCode;

use clap::Parser;
use kernel_abi::bundle::end_on_bus_error;

use crate::args::{Arguments, Command};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    fault::listen();
    end_on_bus_error(error::WORLD);
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

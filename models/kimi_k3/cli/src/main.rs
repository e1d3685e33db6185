//! `kimi-k3`: Kimi K3 from the command line.
//!
//! Exit codes: 0 done, 1 refused (the message has a code), 2 usage, 4 the world (files, disk, memory), 70 a fault of
//! this program, 130 stopped by Ctrl-C.

mod args;
mod engine;
mod error;
mod eval;
mod fault;
mod generate;
mod interrupt;
mod jobs;
mod logits;
mod output;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Arguments, Command};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    fault::listen();
    let done = fault::caught(|| match &arguments.command {
        Command::Generate(options) => generate::run(options),
        Command::Logits(options) => logits::run(options),
        Command::Eval(options) => eval::run(options),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::error(&error);
            ExitCode::from(error.exit())
        }
    }
}

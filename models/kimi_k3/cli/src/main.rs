//! `kimi-k3`: Kimi K3 from the command line.
//!
//! Exit codes: 0 done, 1 refused (the message has a code), 2 usage, 4 the world (files, disk), 130 stopped by
//! Ctrl-C.

mod args;
mod engine;
mod error;
mod eval;
mod generate;
mod interrupt;
mod logits;
mod output;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Arguments, Command};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.command {
        Command::Generate(options) => generate::run(options),
        Command::Logits(options) => logits::run(options),
        Command::Eval(options) => eval::run(options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::error(&error);
            ExitCode::from(error.exit())
        }
    }
}

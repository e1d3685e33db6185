//! The entry of `kernelc`: parses the command line, prints what a command answers, and turns a panic into
//! a report.

use std::io::{IsTerminal, Write};
use std::panic;
use std::process::ExitCode;

use clap::Parser;
use kernelc::cli::{self, Answer, Cli};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // `--help` and `--version` come as errors that are none.
            let code = if error.use_stderr() { cli::exit::USAGE } else { cli::exit::OK };
            return print(&if error.use_stderr() {
                Answer { stderr: rendered(&error), code, ..Answer::default() }
            } else {
                Answer { stdout: error.render().to_string(), code, ..Answer::default() }
            });
        }
    };
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(cli.log_level())
        .without_time()
        .init();
    panic::set_hook(Box::new(|_| {}));
    kernel_abi::bundle::end_on_bus_error(cli::exit::WORLD);
    kernel_abi::bundle::fail_at_size_limit();
    let answer = panic::catch_unwind(panic::AssertUnwindSafe(|| cli::run(&cli)))
        .unwrap_or_else(|payload| cli::internal_error(payload.as_ref()));
    print(&answer)
}

/// A wrong command line in words, with colours where a person reads.
fn rendered(error: &clap::Error) -> String {
    let text = error.render();
    if std::io::stderr().is_terminal() { text.ansi().to_string() } else { text.to_string() }
}

/// Writes both streams; a reader that went away ends the program quietly.
fn print(answer: &Answer) -> ExitCode {
    let out = std::io::stdout().lock().write_all(answer.stdout.as_bytes());
    let err = std::io::stderr().lock().write_all(answer.stderr.as_bytes());
    match out.and(err) {
        Ok(()) => ExitCode::from(answer.code),
        Err(_) => ExitCode::from(cli::exit::WORLD),
    }
}

//! `kernelc completions SHELL`.

use clap::{Args, CommandFactory};

use super::{Answer, Cli};

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// Prints the script.
pub fn run(args: &CompletionsArgs) -> Answer {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "kernelc", &mut script);
    Answer::ok(String::from_utf8_lossy(&script))
}

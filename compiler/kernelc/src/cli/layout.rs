//! `kernelc layout EXPR`: layout algebra from the command line.

use std::path::PathBuf;

use clap::Args;
use kernel_ir::layout::{AnswerOptions, answer_line, picture};

use super::{Answer, Cli, Format, exit};
use crate::files;
use crate::package::write_file;
use crate::session;

/// Arguments of `layout`.
#[derive(Debug, Args)]
pub struct LayoutArgs {
    /// An expression, such as `composition((4,8):(1,4), 8:2)`; `-` reads one a line and answers each with one
    /// line.
    #[arg(allow_hyphen_values = true)]
    pub expression: String,
    /// Print the index of each coordinate too.
    #[arg(long)]
    pub map: bool,
    /// Draw the layout into this file.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// Evaluates.
pub fn run(cli: &Cli, args: &LayoutArgs) -> Answer {
    let options = AnswerOptions { json: cli.format == Format::Json, map: args.map };
    if args.expression == "-" && args.svg.is_some() {
        return *session::usage(
            cli.format,
            "--svg draws one expression, not those of standard input",
        );
    }
    if args.expression == "-" {
        let text = match files::read_or_stdin(&args.expression, files::MAX_SOURCE) {
            Ok(text) => text,
            Err(error) => {
                return *session::cannot_read(cli.format, files::STDIN, &error.to_string());
            }
        };
        let text = String::from_utf8_lossy(&text);
        let lines = text.strip_suffix('\n').unwrap_or(&text);
        if text.is_empty() {
            return Answer::default();
        }
        let answers: String =
            lines.split('\n').map(|line| answer_line(line, options).text + "\n").collect();
        return Answer::ok(answers);
    }
    let line = answer_line(&args.expression, options);
    if let (Some(path), false) = (&args.svg, line.is_error) {
        match picture(&args.expression) {
            Ok(svg) => {
                if let Err(refusal) = write_file(cli.format, path, svg.as_bytes()) {
                    return *refusal;
                }
            }
            Err(error) => {
                return Answer {
                    stderr: format!("error[{}]: {error}\n", error.code()),
                    code: exit::FINDINGS,
                    ..Answer::default()
                };
            }
        }
    }
    let code = if line.is_error { exit::FINDINGS } else { exit::OK };
    match (line.is_error, options.json) {
        (true, false) => Answer { stderr: line.text + "\n", code, ..Answer::default() },
        (_, _) => Answer { stdout: line.text + "\n", code, ..Answer::default() },
    }
}

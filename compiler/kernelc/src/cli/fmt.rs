//! `kernelc fmt PATH…`: the canonical form of files.

use std::path::Path;

use clap::Args;

use super::{Answer, Cli, exit};
use crate::output;
use crate::package::write_file;
use crate::session::{Session, tile_files};

/// Arguments of `fmt`.
#[derive(Debug, Args)]
pub struct FmtArgs {
    /// Files or folders; `-` formats standard input to standard output.
    #[arg(required = true)]
    pub paths: Vec<String>,
    /// Change nothing; list files that are not formatted and exit with 1.
    #[arg(long)]
    pub check: bool,
}

/// Formats each file; a file with syntax errors is left alone.
pub fn run(cli: &Cli, args: &FmtArgs) -> Answer {
    let mut all = Answer::default();
    for path in &args.paths {
        let files = if path == "-" {
            vec![path.into()]
        } else {
            match tile_files(cli.format, Path::new(path)) {
                Ok(files) => files,
                Err(refusal) => return *refusal,
            }
        };
        for file in files {
            let answer = one(cli, args, &file.to_string_lossy());
            all.stdout.push_str(&answer.stdout);
            all.stderr.push_str(&answer.stderr);
            all.code = all.code.max(answer.code);
        }
    }
    all
}

fn one(cli: &Cli, args: &FmtArgs, path: &str) -> Answer {
    let mut session = Session::new();
    let file = match session.load(cli.format, path) {
        Ok(file) => file,
        Err(refusal) => return *refusal,
    };
    let parsed = kernel_dsl::parse(&session.sources, file);
    let answer = output::diagnostics(cli.format, &session.sources, &parsed.diagnostics);
    if answer.code != exit::OK {
        return answer;
    }
    let formatted = kernel_dsl::ast::print::print(&parsed.file);
    let same = formatted == session.sources.text(file);
    if args.check {
        return if same {
            Answer::default()
        } else {
            Answer { stdout: format!("{path}\n"), code: exit::FINDINGS, ..Answer::default() }
        };
    }
    if path == "-" {
        return Answer::ok(formatted);
    }
    if !same && let Err(refusal) = write_file(cli.format, Path::new(path), formatted.as_bytes()) {
        return *refusal;
    }
    Answer::default()
}

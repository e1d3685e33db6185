//! `kernelc reduce FILE`: a smaller file in which the same goes wrong.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use kernel_dsl::ast::print;
use kernel_dsl::diag::Code;
use kernel_dsl::source::SourceMap;
use kernel_mutation::{Failure, Subject};
use kernel_reduction::{Reduced, reduce};

use super::{Answer, Cli, KernelArgs, exit, mutate};
use crate::files;
use crate::package::write_file;
use crate::session::{self, Refusal, Session};

/// Arguments of `reduce`.
///
/// The smaller file goes to standard output, or to --out. It is refused with the same code and words, or errs or differs on the emulator in the same way.
///
/// Exit codes: 0 it is smaller or as small as can be; 1 nothing is wrong with the file, or not what --code names; 2 the command line is wrong; 4 a file or a process failed.
#[derive(Debug, Args)]
pub struct ReduceArgs {
    /// The file; `-` reads standard input.
    pub file: String,
    /// Which kernel.
    #[command(flatten)]
    pub kernel: KernelArgs,
    /// Keep this finding; otherwise the first one.
    #[arg(long, value_name = "CODE")]
    pub code: Option<Code>,
    /// Keep what this shell command says instead: it gets the text on standard input, and ends with 0 while it fails.
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["code", "kernel", "bind", "target"])]
    pub test: Option<String>,
    /// Schedules in which what nothing refuses runs on the emulator.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u64).range(1..))]
    pub schedules: u64,
    /// Seed of inputs and schedules.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Launches in a row of a kernel over several ranks.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub launches: u64,
    /// Texts to try at most.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub tries: u64,
    /// Where to write the smaller file.
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Reduces a file.
pub fn run(cli: &Cli, args: &ReduceArgs) -> Answer {
    execute(cli, args).unwrap_or_else(|refusal| *refusal)
}

fn execute(cli: &Cli, args: &ReduceArgs) -> Result<Answer, Refusal> {
    let mut session = Session::new();
    let root = session.load(cli.format, &args.file)?;
    let text = session.sources.text(root).to_owned();
    let (what, reduced) = match &args.test {
        Some(command) => {
            if !succeeds(command, &text).map_err(|error| no_shell(cli, command, &error))? {
                return Ok(nothing("the command does not end with 0 for this file"));
            }
            let fails = |text: &str| succeeds(command, text).unwrap_or(false);
            (format!("`{command}`"), least(&text, args.tries, fails))
        }
        None => {
            let front = session.front(root);
            // A file that does not come to its kernels is reduced for what is said of it.
            let (kernel, target, bindings) = if front.has_errors() {
                (args.kernel.kernel.clone().unwrap_or_default(), args.kernel.target, <_>::default())
            } else {
                let (template, bindings, target) =
                    session.pick(cli.format, &front, &args.kernel)?;
                (template.name().to_owned(), Some(target), bindings)
            };
            let read = |path: &str| {
                let bytes = files::read(Path::new(path), files::MAX_SOURCE);
                String::from_utf8(bytes.map_err(|e| e.to_string())?)
                    .map_err(|_| "the file is not UTF-8".to_owned())
            };
            let subject = Subject {
                name: session.sources.name(root),
                read: &read,
                kernel: &kernel,
                bindings: &|_| bindings.clone(),
                target,
                memories: &|built| mutate::memories(built, args.seed),
                launches: args.launches as usize,
                schedules: (args.schedules, args.seed),
            };
            let Some(failure) = chosen(&subject.failures(&text), args.code) else {
                return Ok(nothing(&match args.code {
                    Some(code) => format!("{} is not said of this file", code.name()),
                    None => "nothing is wrong with this file".to_owned(),
                }));
            };
            let fails = |text: &str| subject.failures(text).contains(&failure);
            (failure.to_string(), least(&text, args.tries, fails))
        }
    };
    let lines = |text: &str| text.lines().count();
    let rest = if reduced.is_least { "" } else { "; the limit of --tries ended the search" };
    let stderr = format!(
        "{} lines, {} were given; still {what}; {} texts tried{rest}\n",
        lines(&reduced.text),
        lines(&text),
        reduced.tries
    );
    let stdout = match &args.out {
        Some(path) => {
            write_file(cli.format, path, reduced.text.as_bytes())?;
            String::new()
        }
        None => reduced.text,
    };
    Ok(Answer { stdout, stderr, code: exit::OK })
}

/// What is kept: the code that is asked for, or the first thing.
fn chosen(failures: &[Failure], code: Option<Code>) -> Option<Failure> {
    let is_wanted = |failure: &&Failure| match (failure, code) {
        (_, None) => true,
        (Failure::Refused(found, _) | Failure::Found(found), Some(code)) => *found == code,
        (Failure::Levels | Failure::Schedules | Failure::Panicked, Some(_)) => false,
    };
    failures.iter().find(is_wanted).cloned()
}

/// The reduced text, in canonical form where the same goes wrong with that.
fn least(text: &str, tries: u64, mut fails: impl FnMut(&str) -> bool) -> Reduced {
    let mut reduced = reduce(text, tries, &mut fails);
    let mut sources = SourceMap::new();
    let file = sources.add("reduced", reduced.text.as_str());
    let parsed = kernel_dsl::parse(&sources, file);
    if parsed.diagnostics.is_empty() {
        let formatted = print::print(&parsed.file);
        if fails(&formatted) {
            reduced.text = formatted;
        }
    }
    reduced
}

/// Whether a shell command ends with 0 when it is given a text.
fn succeeds(command: &str, text: &str) -> std::io::Result<bool> {
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // A command that has seen enough does not read on.
        let _ = input.write_all(text.as_bytes());
    }
    Ok(child.wait()?.success())
}

fn no_shell(cli: &Cli, command: &str, error: &std::io::Error) -> Refusal {
    let message = format!("cannot run `{command}`: {error}");
    Box::new(session::world(cli.format, "E0806", &message))
}

fn nothing(reason: &str) -> Answer {
    let stderr = format!("there is nothing to reduce: {reason}\n");
    Answer { stderr, code: exit::FINDINGS, ..Answer::default() }
}

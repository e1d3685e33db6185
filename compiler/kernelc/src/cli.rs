//! The command line: one file a subcommand.

pub mod audit;
pub mod build;
pub mod check;
pub mod completions;
pub mod doctor;
pub mod emit;
pub mod explain;
pub mod fmt;
pub mod layout;
pub mod litmus;
pub mod mutate;
pub mod reduce;
pub mod run;

use std::any::Any;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use kernel_abi::trace;
use kernel_ir::target::Target;

/// Exit codes of every subcommand.
pub mod exit {
    /// Done, nothing found.
    pub const OK: u8 = 0;
    /// The input is refused, or the audit or a comparison found something.
    pub const FINDINGS: u8 = 1;
    /// The command line is wrong.
    pub const USAGE: u8 = 2;
    /// The audit met an instruction that it does not understand, or a litmus test is too large to decide.
    pub const NOT_JUDGED: u8 = 3;
    /// A file, a tool or a process failed: nothing is said about the input.
    pub const WORLD: u8 = 4;
    /// A fault of the compiler.
    pub const INTERNAL: u8 = 70;
}

/// What a command answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// Results.
    pub stdout: String,
    /// Messages.
    pub stderr: String,
    /// One of [`exit`].
    pub code: u8,
}

impl Answer {
    /// A result and success.
    pub fn ok(stdout: impl Into<String>) -> Answer {
        Answer { stdout: stdout.into(), ..Answer::default() }
    }
}

/// The tile compiler.
///
/// Exit codes: 0 done; 1 the input is refused, or the audit or a comparison found something; 2 the command
/// line is wrong; 3 the audit, or the memory model, cannot judge; 4 a file, a tool or a process failed; 70 a fault of kernelc.
#[derive(Debug, Parser)]
#[command(name = "kernelc", version = version(), max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// How to answer.
    #[arg(long, value_enum, global = true, default_value_t = Format::Text)]
    pub format: Format,
    /// Path of ptxas; otherwise KERNELC_PTXAS, $CUDA_HOME/bin, PATH, the project's tool folder.
    #[arg(long, value_name = "PATH", global = true)]
    pub ptxas: Option<PathBuf>,
    /// Path of nvdisasm; otherwise KERNELC_NVDISASM and so on.
    #[arg(long, value_name = "PATH", global = true)]
    pub nvdisasm: Option<PathBuf>,
    /// Print stages and decisions to stderr; twice for more.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// The form of answers and diagnostics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// For programs; diagnostics go to stdout, one object a line unless the command says otherwise.
    Json,
    /// SARIF 2.1.0 for review tools (diagnostics only).
    Sarif,
}

/// A subcommand.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check files: parse, check, and verify every kernel that its default bindings or build.toml name.
    Check(check::CheckArgs),
    /// Compile kernels to PTX, cubins, a manifest and an audit report.
    Build(build::BuildArgs),
    /// Print what a stage makes of one kernel.
    Emit(emit::EmitArgs),
    /// Run one kernel on the emulator.
    Run(run::RunArgs),
    /// Audit PTX or a cubin of any origin for reads that moved across a wait.
    Audit(audit::AuditArgs),
    /// Explain a kernel's layouts and costs, or a diagnostic code.
    Explain(explain::ExplainArgs),
    /// Format files in place, or check that they are formatted.
    Fmt(fmt::FmtArgs),
    /// Evaluate layout algebra.
    Layout(layout::LayoutArgs),
    /// Decide litmus tests of memory order: may a small PTX program end in a state?
    Litmus(litmus::LitmusArgs),
    /// Take one synchronisation of a kernel away at a time and say what sees it.
    Mutate(mutate::MutateArgs),
    /// Shrink a file while the same goes wrong with it.
    Reduce(reduce::ReduceArgs),
    /// Say which tools and targets there are.
    Doctor(doctor::DoctorArgs),
    /// Print a completion script for a shell.
    Completions(completions::CompletionsArgs),
    /// The back end's worker process.
    #[command(name = "__worker", hide = true)]
    Worker,
}

impl Cli {
    /// The level of log lines on stderr.
    pub fn log_level(&self) -> tracing::Level {
        match self.verbose {
            0 => tracing::Level::WARN,
            1 => tracing::Level::INFO,
            _ => tracing::Level::DEBUG,
        }
    }
}

/// Which kernel, with what bindings, for which target.
#[derive(Debug, Clone, Args)]
pub struct KernelArgs {
    /// The kernel; may be left out when the file has one only.
    #[arg(long, value_name = "NAME")]
    pub kernel: Option<String>,
    /// Values of const parameters: `--bind M=1,K=7168`.
    #[arg(long, value_name = "NAME=VALUE", value_delimiter = ',')]
    pub bind: Vec<String>,
    /// The target: sm_90a, sm_100a or sm_103a; otherwise the first that the file states.
    #[arg(long, value_name = "TARGET", value_parser = parse_target)]
    pub target: Option<Target>,
    /// The kernel writes its events down: `trace "text";`, at most 64 of each CTA and role or as many as are asked for.
    #[arg(
        long,
        value_name = "RECORDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "64",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(trace::MAX_RECORDS))
    )]
    pub trace: Option<u32>,
}

/// Reads a target name for clap.
pub fn parse_target(text: &str) -> Result<Target, String> {
    Target::from_name(text).ok_or_else(|| {
        let known: Vec<&str> = Target::ALL.iter().map(|t| t.name()).collect();
        format!("E0501: unknown target; known are {}", known.join(", "))
    })
}

/// Runs a command.
pub fn run(cli: &Cli) -> Answer {
    match &cli.command {
        Command::Check(args) => check::run(cli, args),
        Command::Build(args) => build::run(cli, args),
        Command::Emit(args) => emit::run(cli, args),
        Command::Run(args) => run::run(cli, args),
        Command::Audit(args) => audit::run(cli, args),
        Command::Explain(args) => explain::run(cli, args),
        Command::Fmt(args) => fmt::run(cli, args),
        Command::Layout(args) => layout::run(cli, args),
        Command::Litmus(args) => litmus::run(cli, args),
        Command::Mutate(args) => mutate::run(cli, args),
        Command::Reduce(args) => reduce::run(cli, args),
        Command::Doctor(args) => doctor::run(cli, args),
        Command::Completions(args) => completions::run(args),
        Command::Worker => {
            crate::worker::serve();
            Answer::default()
        }
    }
}

/// What a panic is told as.
pub fn internal_error(payload: &(dyn Any + Send)) -> Answer {
    let what = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    let command: Vec<String> = std::env::args().collect();
    Answer {
        stderr: format!(
            "error[E0810]: the compiler contradicts itself\n  = note: {what}\n  = note: kernelc {}\n  \
             = help: this is a fault of kernelc; report it with the input and this command:\n          {}\n",
            env!("CARGO_PKG_VERSION"),
            command.join(" ")
        ),
        code: exit::INTERNAL,
        ..Answer::default()
    }
}

/// `--version`: kernelc and every tool that an artefact depends on. It is asked for once a process.
fn version() -> &'static str {
    static VERSION: std::sync::LazyLock<String> = std::sync::LazyLock::new(version_text);
    if std::env::args().any(|arg| arg == "--version" || arg == "-V") {
        return &VERSION;
    }
    env!("CARGO_PKG_VERSION")
}

fn version_text() -> String {
    let here = std::env::current_dir().unwrap_or_default();
    let mut text = env!("CARGO_PKG_VERSION").to_owned();
    text.push_str(&format!("\nLLVM {}", kernel_codegen::llvm_version()));
    for tool in crate::tools::Tool::ALL {
        let found = tool.find(None, &here).and_then(|path| crate::tools::version(&path));
        text.push_str(&format!("\n{} {}", tool.name(), found.as_deref().unwrap_or("not found")));
    }
    text
}

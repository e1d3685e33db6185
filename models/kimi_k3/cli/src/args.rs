//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Runs Kimi K3 models: on the CPU emulator of the tile language, every operation a kernel.
#[derive(Debug, Parser)]
#[command(name = "kimi-k3", version, about)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Continues a text.
    Generate(Generate),
    /// Writes the logits of a sequence of token ids.
    Logits(Logits),
    /// Scores an evaluation set against its answers and the reference model's own output.
    Eval(Eval),
}

/// What every command needs.
#[derive(Debug, Args)]
pub(crate) struct Model {
    /// Folder with config.json, the checkpoint and tokenizer.json.
    #[arg(long, value_name = "DIR")]
    pub(crate) model: PathBuf,
    /// What runs the kernels.
    #[arg(long, value_enum, default_value_t = Device::Auto)]
    pub(crate) device: Device,
    /// Tensor-parallel ranks, simulated in this process.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=16))]
    pub(crate) ranks: u64,
}

/// What runs the kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Device {
    /// The best that there is; in this version the emulator.
    Auto,
    /// The CPU emulator.
    Emulator,
}

#[derive(Debug, Args)]
pub(crate) struct Generate {
    #[command(flatten)]
    pub(crate) model: Model,
    /// The text to continue.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) prompt: String,
    /// Tokens to add at most.
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) max_new_tokens: usize,
    /// 0 takes the likeliest token, greater values sample.
    #[arg(
        long,
        value_name = "T",
        default_value_t = 0.0,
        value_parser = temperature,
        allow_negative_numbers = true
    )]
    pub(crate) temperature: f32,
    /// Samples among the likeliest tokens that together have this probability.
    #[arg(
        long,
        value_name = "P",
        default_value_t = 1.0,
        value_parser = probability,
        allow_negative_numbers = true
    )]
    pub(crate) top_p: f32,
    /// Seed of the samples.
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Prints one JSON object at the end in place of the text.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Logits {
    #[command(flatten)]
    pub(crate) model: Model,
    /// A JSON list of token ids.
    #[arg(long, value_name = "FILE.json")]
    pub(crate) tokens: PathBuf,
    /// Gets the tensor `logits`, f32 [tokens, vocab].
    #[arg(long, value_name = "FILE.safetensors")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Eval {
    #[command(flatten)]
    pub(crate) model: Model,
    /// Tasks, one JSON object a line.
    #[arg(long, value_name = "FILE.jsonl")]
    pub(crate) tasks: PathBuf,
    /// Scores the first N tasks only.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// Tasks that run at a time.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    pub(crate) jobs: u64,
    /// Prints the score as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

fn temperature(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        Ok(_) | Err(_) => Err("expected a number that is 0 or more".to_owned()),
    }
}

fn probability(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(value) if value > 0.0 && value <= 1.0 => Ok(value),
        Ok(_) | Err(_) => Err("expected a number above 0 and up to 1".to_owned()),
    }
}

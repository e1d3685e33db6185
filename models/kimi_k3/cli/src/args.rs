//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Runs Kimi K3 models, every operation a kernel: on a CUDA device, or on the CPU emulator of the tile language.
#[derive(Debug, Parser)]
#[command(name = "kimi-k3", version, about)]
pub(crate) struct Arguments {
    /// Says more on standard error: what the device does; twice says everything.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
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
    /// Packs weights as the kernels want them, ahead of the first use.
    Pack(Pack),
    /// Times the decode step of one rank on a CUDA device, kernel by kernel, with random weights.
    Bench(Bench),
}

/// What every command needs.
#[derive(Debug, Args)]
pub(crate) struct Model {
    /// Folder with config.json, the checkpoint and tokenizer.json.
    #[arg(long, value_name = "DIR")]
    pub(crate) model: PathBuf,
    /// What runs the kernels: auto, emulator, cuda (the first CUDA device), cuda:0, cuda:1, …
    ///
    /// `auto` takes the first CUDA device when there is one and the bundle has the kernels for it, else the emulator,
    /// and says which. A bundle that is named and broken is an error, whatever runs the kernels.
    #[arg(long, value_name = "DEVICE", default_value = "auto", value_parser = device)]
    pub(crate) device: Device,
    /// Compiled kernels, which a CUDA device needs; `kernelc build` writes them.
    #[arg(long, value_name = "FILE.kbundle")]
    pub(crate) bundle: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) cuda: Cuda,
    /// Tensor-parallel ranks, simulated in this process.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=16))]
    pub(crate) ranks: u64,
    /// Tells how loading goes on where standard error is no terminal, too: a line a second.
    #[arg(long)]
    pub(crate) progress: bool,
    /// Folder for weights in the order of the kernels, which are made once; else MODEL.packed beside the model's folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) packed: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Pack {
    /// Folder with config.json and the checkpoint.
    #[arg(long, value_name = "DIR")]
    pub(crate) model: PathBuf,
    /// Tensor-parallel ranks that share the model.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=16))]
    pub(crate) ranks: u64,
    /// The rank; every one of them without.
    #[arg(long, value_name = "R")]
    pub(crate) rank: Option<u32>,
    /// Folder of the files; MODEL.packed beside the model's folder without.
    #[arg(long, value_name = "DIR")]
    pub(crate) packed: Option<PathBuf>,
    /// Tells how packing goes on where standard error is no terminal, too: a line a second.
    #[arg(long)]
    pub(crate) progress: bool,
}

/// What concerns CUDA devices alone.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Cuda {
    /// Takes a bundle with kernels whose audit is not clean.
    #[arg(long)]
    pub(crate) allow_unaudited: bool,
    /// Fills every buffer of a step on the device with NaN before its first use, to find reads of what nothing wrote.
    #[arg(long)]
    pub(crate) poison: bool,
    /// Prints how often each kernel ran on the device, to standard error.
    #[arg(long)]
    pub(crate) coverage: bool,
    /// Seconds that a step on the device may take.
    #[arg(long, value_name = "S", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) step_timeout: u64,
}

/// What runs the kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Device {
    /// The best that there is.
    Auto,
    /// The CPU emulator.
    Emulator,
    /// The CUDA device of that number.
    Cuda(u32),
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
    /// Says the SHA-256 of the logits of all steps, to compare two runs bit for bit.
    ///
    /// It is that of the f32 values of each step in turn, prompt included, little-endian. Every value is finite: logits
    /// that are not end with K0503.
    #[arg(long)]
    pub(crate) logits_hash: bool,
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

#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// The rank.
    #[arg(long, value_name = "R", default_value_t = 0)]
    pub(crate) rank: u32,
    /// Tensor-parallel ranks that share the model.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=16))]
    pub(crate) of: u64,
    /// Tokens of a step, one a request; several numbers are measured one after the other.
    #[arg(long, value_name = "B", value_delimiter = ',', default_value = "1,2,4,8")]
    pub(crate) batch: Vec<u64>,
    /// Positions of each request; all but the last are behind the token.
    #[arg(long, value_name = "N", default_value_t = 8192, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) context: u64,
    /// Compiled kernels; `kernelc build` writes them.
    #[arg(long, value_name = "FILE.kbundle")]
    pub(crate) bundle: PathBuf,
    /// Takes a bundle with kernels whose audit is not clean.
    #[arg(long)]
    pub(crate) allow_unaudited: bool,
    /// Folder with the config.json of another model than Kimi K3.
    #[arg(long, value_name = "DIR")]
    pub(crate) model: Option<PathBuf>,
    /// The CUDA device: cuda (the first one), cuda:0, cuda:1, …; or its number.
    #[arg(long, value_name = "DEVICE", default_value = "cuda:0", value_parser = ordinal)]
    pub(crate) device: u32,
    /// Times that each graph runs and counts.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = runs)]
    pub(crate) runs: usize,
    /// Seed of weights and tokens.
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Seconds that a step may take.
    #[arg(long, value_name = "S", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) step_timeout: u64,
    /// Gets the result as one JSON object.
    #[arg(long, value_name = "FILE.json")]
    pub(crate) json: Option<PathBuf>,
}

fn runs(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(runs @ 1..=100_000) => Ok(runs),
        Ok(_) | Err(_) => Err("expected a number from 1 to 100000".to_owned()),
    }
}

fn device(text: &str) -> Result<Device, String> {
    match text {
        "auto" => Ok(Device::Auto),
        "emulator" => Ok(Device::Emulator),
        _ => cuda(text)
            .map(Device::Cuda)
            .ok_or_else(|| "expected auto, emulator, cuda or cuda:0".to_owned()),
    }
}

/// The number of a CUDA device.
fn cuda(text: &str) -> Option<u32> {
    match text {
        "cuda" => Some(0),
        _ => text.strip_prefix("cuda:")?.parse().ok(),
    }
}

fn ordinal(text: &str) -> Result<u32, String> {
    cuda(text)
        .or_else(|| text.parse().ok())
        .ok_or_else(|| "expected cuda, cuda:0 or a number".to_owned())
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

//! `kimi-k3 generate`.

use std::time::Instant;

use kernel_text::Tokenizer;
use kimi_k3::hash::LogitsHash;
use kimi_k3::memory;
use kimi_k3::request::check_tokens;
use kimi_k3::sample::{Random, Sampling};
use serde::Serialize;

use crate::args::Generate;
use crate::engine::Source;
use crate::error::CliError;
use crate::{interrupt, output};

/// The token that ends a turn.
const END_OF_TURN: &str = "<|end|>";

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report<'a> {
    prompt: &'a str,
    prompt_ids: &'a [u32],
    text: String,
    ids: Vec<u32>,
    /// `eos`, `length` or `interrupted`.
    stop: &'static str,
    /// The SHA-256 of the logits of all steps, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    logits_sha256: Option<String>,
    loading_seconds: f64,
    prompt_seconds: f64,
    decode_seconds: f64,
    tokens_per_second: f64,
    /// The most memory that the process held, where the system says so.
    peak_memory_bytes: Option<u64>,
}

pub(crate) fn run(options: &Generate) -> Result<(), CliError> {
    interrupt::listen();
    let source = Source::open(&options.model)?;
    let tokenizer = Tokenizer::open(&options.model.model)?;
    let tokens = &source.config.tokens;
    let prompt = tokenizer.encode_prompt(tokens.bos, &options.prompt)?;
    let asked: Vec<i64> = prompt.iter().map(|&id| i64::from(id)).collect();
    let prompt = check_tokens(&source.config, &asked, options.max_new_tokens)?;
    let mut ends = tokens.eos.clone();
    ends.extend(tokenizer.id_of(END_OF_TURN));
    let mut engine = source.engine(source.plan(prompt.len() + options.max_new_tokens, 1)?, true)?;

    let sampling = Sampling { temperature: options.temperature, top_p: options.top_p };
    let mut random = Random::new(options.seed);
    let mut stream = tokenizer.stream();
    let (mut ids, mut text) = (Vec::new(), String::new());
    let mut stop = "length";
    let started = Instant::now();
    let bar = output::progress("prompt");
    bar.set_length(prompt.len() as u64);
    let mut hash = options.logits_hash.then(LogitsHash::default);
    for &id in &prompt {
        if interrupt::asked() {
            stop = "interrupted";
            break;
        }
        engine.step(id)?;
        if let Some(hash) = &mut hash {
            hash.take(&engine.logits()?);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let prompt_seconds = started.elapsed().as_secs_f64();
    let started = Instant::now();
    let mut steps = 0;
    while stop == "length" && ids.len() < options.max_new_tokens {
        let id = if options.temperature > 0.0 {
            sampling.choose(&engine.logits()?, &mut random) as u32
        } else {
            engine.greedy()?
        };
        if ends.contains(&id) {
            stop = "eos";
            break;
        }
        ids.push(id);
        let piece = stream.push(id)?;
        if !options.json {
            output::text(&piece)?;
        }
        text.push_str(&piece);
        if interrupt::asked() {
            stop = "interrupted";
        } else if ids.len() < options.max_new_tokens {
            engine.step(id)?;
            steps += 1;
            if let Some(hash) = &mut hash {
                hash.take(&engine.logits()?);
            }
        }
    }
    let logits_sha256 = hash.map(LogitsHash::finish);
    let rest = stream.finish();
    text.push_str(&rest);
    let decode_seconds = started.elapsed().as_secs_f64();
    // The first token came with the prompt, and the last one was not decoded.
    let tokens_per_second = if steps > 0 { f64::from(steps) / decode_seconds } else { 0.0 };
    if options.json {
        let report = Report {
            prompt: &options.prompt,
            prompt_ids: &prompt,
            text,
            ids,
            stop,
            logits_sha256,
            loading_seconds: engine.loading.as_secs_f64(),
            prompt_seconds,
            decode_seconds,
            tokens_per_second,
            peak_memory_bytes: memory::peak(),
        };
        let json = serde_json::to_string(&report).expect("numbers and texts have a JSON form");
        output::text(&format!("{json}\n"))?;
    } else {
        output::text(&format!("{rest}\n"))?;
        output::note(&format!(
            "{} + {} tokens, loaded in {:.2} s, {tokens_per_second:.1} tokens/s ({stop})",
            prompt.len(),
            ids.len(),
            engine.loading.as_secs_f64(),
        ));
        if let Some(hash) = logits_sha256 {
            output::note(&format!("logits: {hash}"));
        }
    }
    if stop == "interrupted" { Err(CliError::Interrupted) } else { Ok(()) }
}

//! Judges logits that `kimi-k3 logits` wrote for the ids of a prompt's goldens and its reference continuation, whatever
//! device computed them, by the column for bf16 of `models/kimi_k3/mini/README.md`.
//!
//! `logits --tokens DIR` writes `PROMPT.json` for each prompt; `logits --judge DIR` reads `PROMPT.safetensors` there;
//! `logits --free DIR` reads what `kimi-k3 generate --json` wrote to `PROMPT.free.json` and decodes the same prompt on the
//! emulator, free-running too, up to the first id that differs. Both print JSON; exit 1 when a value is outside of its
//! bound.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use kernel_tests::decode::{Decoding, Distance, mini};
use kernel_tests::tolerance::{DIVERGENCE, DIVERGENCE_MEAN, LOGIT_RMS, MARGIN};
use kimi_k3::Checkpoint;
use kimi_k3::plan::DecodeOptions;
use kimi_k3::sets::CONTEXT;
use serde::Deserialize;
use serde_json::{Value, json};

const PROMPTS: [&str; 4] = ["text", "code", "recall", "json"];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--tokens", folder] => tokens(Path::new(folder)).map(|()| (String::new(), true)),
        ["--judge", folder] => rows(|prompt| judge(Path::new(folder), prompt)),
        ["--free", folder] => rows(|prompt| free(Path::new(folder), prompt)),
        _ => Err("usage: logits --tokens DIR | logits --judge DIR | logits --free DIR".to_owned()),
    };
    let (text, holds) = done.unwrap_or_else(|reason| (format!("error: {reason}\n"), false));
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) if holds => ExitCode::SUCCESS,
        Ok(()) | Err(_) => ExitCode::FAILURE,
    }
}

struct Golden {
    prompt: Vec<f64>,
    greedy: Vec<f64>,
    logits: Vec<f64>,
    margins: Vec<f64>,
}

fn values(path: &Path, names: &[&str]) -> Result<Vec<Vec<f64>>, String> {
    let file = Checkpoint::open_file(path).map_err(|error| error.to_string())?;
    let read = |name: &&str| file.tensor(name).map(|t| t.to_f64()).map_err(|e| e.to_string());
    names.iter().map(read).collect()
}

fn golden(prompt: &str) -> Result<Golden, String> {
    let path: PathBuf = mini().join(format!("golden/{prompt}.safetensors"));
    let names = ["ids", "greedy_ids", "greedy_logits", "greedy_margin"];
    let [prompt, greedy, logits, margins] =
        <[Vec<f64>; 4]>::try_from(values(&path, &names)?).expect("as many as names");
    Ok(Golden { prompt, greedy, logits, margins })
}

fn tokens(folder: &Path) -> Result<(), String> {
    for prompt in PROMPTS {
        let golden = golden(prompt)?;
        // The last id is chosen, not fed in.
        let fed = golden.greedy.len() - 1;
        let ids: Vec<i64> =
            golden.prompt.iter().chain(&golden.greedy[..fed]).map(|id| *id as i64).collect();
        let path = folder.join(format!("{prompt}.json"));
        std::fs::write(&path, json!(ids).to_string())
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// One row a prompt, as text, and whether all of them hold.
fn rows(row: impl Fn(&str) -> Result<Value, String>) -> Result<(String, bool), String> {
    let rows = PROMPTS.into_iter().map(row).collect::<Result<Vec<Value>, String>>()?;
    let holds = rows.iter().all(|row| row["holds"] == true);
    let text = serde_json::to_string_pretty(&rows).map_err(|error| error.to_string())?;
    Ok((text + "\n", holds))
}

fn judge(folder: &Path, prompt: &str) -> Result<Value, String> {
    let all = values(&folder.join(format!("{prompt}.safetensors")), &["logits"])?;
    compare(prompt, &golden(prompt)?, &all[0])
}

/// What `kimi-k3 generate --json` prints, as far as it is compared.
#[derive(Deserialize)]
struct Generated {
    prompt_ids: Vec<u32>,
    ids: Vec<u32>,
}

fn free(folder: &Path, prompt: &str) -> Result<Value, String> {
    let path = folder.join(format!("{prompt}.free.json"));
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let other: Generated =
        serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut emulator =
        Decoding::open(&mini(), DecodeOptions { rows: 1, ranks: 1, context: CONTEXT })?;
    for &id in &other.prompt_ids {
        emulator.step(&[id as i32])?;
    }
    let mut first = None;
    for (at, &id) in other.ids.iter().enumerate() {
        let own = emulator.greedy()[0];
        if own != id as i32 {
            let mut logits = emulator.logits();
            logits.sort_by(|a, b| b.total_cmp(a));
            first = Some((at, f64::from(logits[0]) - f64::from(logits[1])));
            break;
        }
        emulator.step(&[own])?;
    }
    Ok(json!({
        "prompt": prompt,
        "prompt_tokens": other.prompt_ids.len(),
        "tokens": other.ids.len(),
        "first_differing": first.map(|(at, margin)| json!({"at": at, "margin": margin})),
        "holds": first.is_none_or(|(_, margin)| margin < MARGIN),
    }))
}

fn compare(prompt: &str, golden: &Golden, all: &[f64]) -> Result<Value, String> {
    let vocab = golden.logits.len() / golden.greedy.len();
    let start = (golden.prompt.len() - 1) * vocab;
    let got = all
        .get(start..start + golden.logits.len())
        .filter(|_| all.len() == start + golden.logits.len())
        .ok_or_else(|| format!("{prompt}: {} logits of other tokens", all.len()))?;
    let Distance { rms, mean, most } = Distance::of(got, &golden.logits, vocab);
    let best = |row: &[f64]| {
        let better = |best: usize, at: usize| if row[at] > row[best] { at } else { best };
        (0..row.len()).fold(0, better)
    };
    let differing: Vec<(usize, f64)> = got
        .chunks(vocab)
        .zip(&golden.greedy)
        .enumerate()
        .filter(|(_, (row, id))| best(row) as f64 != **id)
        .map(|(at, _)| (at, golden.margins[at]))
        .collect();
    let holds = rms <= LOGIT_RMS
        && mean <= DIVERGENCE_MEAN
        && most <= DIVERGENCE
        && differing.iter().all(|(_, margin)| *margin <= MARGIN);
    Ok(json!({
        "prompt": prompt,
        "logits_rms": rms,
        "divergence_mean": mean,
        "divergence_greatest": most,
        "agreeing": golden.greedy.len() - differing.len(),
        "of": golden.greedy.len(),
        "differing": differing.iter().map(|(at, m)| json!({"at": at, "margin": m})).collect::<Vec<_>>(),
        "holds": holds,
    }))
}

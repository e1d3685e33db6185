//! Ranks against one rank, rows against their own runs.

use kernel_tests::decode::{self, Decoding, Distance};
use kernel_tests::tolerance::{DIVERGENCE, DIVERGENCE_MEAN, LOGIT_RMS};
use kimi_k3::plan::DecodeOptions;
use kimi_k3::{Checkpoint, Config, synthetic};

/// Seed of random weights.
const SEED: u64 = 20_261_129;

/// Tokens of a test: "2 Kings 13 …" of the golden prompt, the first sixteen.
const IDS: [i32; 16] = [0, 25, 1112, 836, 228, 24, 26, 206, 24, 699, 285, 274, 805, 338, 963, 336];

fn options(rows: u64, ranks: u64) -> DecodeOptions {
    DecodeOptions { rows, ranks, context: 128 }
}

/// The logits of every token, and the greedy choices.
fn run(model: &mut Decoding, ids: &[i32]) -> Result<(Vec<Vec<f64>>, Vec<i32>), String> {
    let (mut logits, mut choices) = (Vec::new(), Vec::new());
    for &id in ids {
        model.step(&[id])?;
        logits.push(model.logits().iter().map(|&l| f64::from(l)).collect());
        choices.extend(model.greedy());
    }
    Ok((logits, choices))
}

fn compare(ranks: u64, one: &[Vec<f64>], many: &[Vec<f64>]) -> Result<(), String> {
    let vocab = one.first().map_or(1, Vec::len);
    let Distance { rms, mean, most } = Distance::of(&many.concat(), &one.concat(), vocab);
    let line = format!("{ranks} ranks: divergence {mean:.2e}, at most {most:.2e}, rms {rms:.2e}");
    let holds = mean <= DIVERGENCE_MEAN && most <= DIVERGENCE && rms <= LOGIT_RMS;
    if holds { Ok(()) } else { Err(line) }
}

/// kimi-k3-mini on several ranks agrees with one.
///
/// # Errors
/// They differ by more than the bounds.
pub(crate) fn mini(ranks: u64) -> Result<(), String> {
    let folder = decode::mini();
    let (one, _) = run(&mut Decoding::open(&folder, options(1, 1))?, &IDS)?;
    let (many, _) = run(&mut Decoding::open(&folder, options(1, ranks))?, &IDS)?;
    compare(ranks, &one, &many)
}

/// Random weights that 16 ranks can share agree with one rank.
///
/// # Errors
/// They differ by more than the bounds.
pub(crate) fn tiny_random(ranks: u64) -> Result<(), String> {
    let config = Config::parse(synthetic::TINY_RANDOM).map_err(|error| error.to_string())?;
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let path = folder.path().join("model.safetensors");
    let mut file = std::fs::File::create(&path).map_err(|error| error.to_string())?;
    synthetic::write_checkpoint(&config, SEED, &mut file).map_err(|error| error.to_string())?;
    let checkpoint = Checkpoint::open(folder.path()).map_err(|error| error.to_string())?;
    let ids = &IDS[..6];
    let (one, _) = run(&mut Decoding::new(config.clone(), &checkpoint, options(1, 1))?, ids)?;
    let (many, _) = run(&mut Decoding::new(config, &checkpoint, options(1, ranks))?, ids)?;
    compare(ranks, &one, &many)
}

/// A request gets the same bits whether it runs alone or beside others.
///
/// # Errors
/// A row differs from its own run.
pub(crate) fn rows(rows: u64) -> Result<(), String> {
    let mut together = Decoding::open(&decode::mini(), options(rows, 1))?;
    let mut alone = Decoding::open(&decode::mini(), options(1, 1))?;
    let vocab = alone.config.vocab;
    let id = |row: usize, at: usize| IDS[(at + 3 * row) % IDS.len()];
    let steps = 5;
    let mut all = Vec::new();
    for at in 0..steps {
        let ids: Vec<i32> = (0..rows as usize).map(|row| id(row, at)).collect();
        together.step(&ids)?;
        all.push(together.logits());
    }
    for row in [0, rows as usize - 1] {
        alone.reset();
        for (at, logits) in all.iter().enumerate() {
            alone.step(&[id(row, at)])?;
            let got = &logits[row * vocab..][..vocab];
            if alone.logits().iter().zip(got).any(|(a, b)| a.to_bits() != b.to_bits()) {
                return Err(format!("row {row} of {rows} differs from its own run at token {at}"));
            }
        }
    }
    Ok(())
}

//! Rows and maxima: the embedding, and the greatest logit of a shard.

use kernel_abi::DType;
use kernel_abi::numeric::float_from_f64;
use kernel_emulator::Buffer;
use kernel_tests::k3::{self, SEED};
use kimi_k3::reference;
use libtest_mimic::Trial;

use super::support::{check, trial};

/// The tests of this family.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (m, v, h) in
        [(6, 128, 256), (2, 2048, 256), (8, 2048, 256), (1, 10240, 7168), (3, 10240, 7168)]
    {
        let name = format!("embed V={v} H={h} M={m}");
        trials.push(trial(name, move || embed(m, v, h)));
    }
    for (m, v, block) in [
        (2, 2048, 1024),
        (3, 2048, 1024),
        (8, 2048, 1024),
        (1, 1000, 256),
        (1, 10240, 1024),
        (2, 10240, 1024),
        (1, 10240, 2048),
    ] {
        let name = format!("argmax V={v} M={m} BN={block}");
        trials.push(trial(name, move || argmax(m, v, block)));
    }
    trials
}

/// Rows that no id names hold NaN: a read of one would show.
fn embed(m: usize, v: usize, h: usize) -> Result<(), String> {
    let bind = [("M", m as i64), ("V", v as i64), ("H", h as i64)];
    let built = k3::build("embed.tile", "embed", &bind)?;
    // This rank is the second of four. The last row of the rank, one of another rank, and the first row.
    let first = v as i64;
    let mut ids =
        vec![2 * first - 1, 3 * first, first, 0, 4 * first - 1, first + 5, first + 7, 2 * first];
    ids.truncate(m);
    let nan = float_from_f64(DType::Bf16, f64::NAN).expect("bf16 is a float");
    let mut table = vec![nan; v * h];
    for id in ids.iter().filter(|id| (first..2 * first).contains(id)) {
        let row = (id - first) as usize;
        let values =
            Buffer::random(DType::Bf16, h, SEED, *id as u64, None).map_err(|e| e.to_string())?;
        for (at, slot) in table[row * h..][..h].iter_mut().enumerate() {
            *slot = values.code(at).expect("random buffers are written");
        }
    }
    let ids: Vec<i32> = ids.into_iter().map(|id| id as i32).collect();
    let memory = k3::memory(
        &built,
        vec![("E", Buffer::from_codes(DType::Bf16, &table)), ("ids", Buffer::from_i32(&ids))],
        &[("first", first as f64), ("vocab", 4.0 * first as f64)],
    )?;
    check(&built, memory, |a| {
        let (table, first) = (a.buffer("E"), a.scalar("first") as i64);
        let rows = a
            .buffer("ids")
            .into_iter()
            .flat_map(|id| reference::select::embed(&table, v, h, id as i64, first));
        vec![("p", rows.collect())]
    })?;
    Ok(())
}

/// Both kernels, one after the other; values and ids are exact.
fn argmax(m: usize, v: usize, block: i64) -> Result<(), String> {
    let bind = [("M", m as i64), ("V", v as i64), ("BN", block)];
    let blocks = k3::build("argmax.tile", "argmax_block", &bind)?;
    let merge = k3::build("argmax.tile", "argmax_merge", &bind)?;
    let random = Buffer::random(DType::F32, m * v, SEED, 0, None).map_err(|e| e.to_string())?;
    let mut logits: Vec<f32> = random.to_f64().iter().map(|x| *x as f32).collect();
    // NaN here and there, and the greatest value three times in two blocks of the last row.
    for (at, value) in logits.iter_mut().enumerate() {
        if at % 37 == 5 {
            *value = f32::NAN;
        }
    }
    let last = (m - 1) * v;
    for at in [v / 2 + 3, v / 2 + 4, v - 1] {
        logits[last + at] = 2.0;
    }
    let memory = k3::memory(&blocks, vec![("logits", Buffer::from_f32(DType::F32, &logits))], &[])?;
    let memory = k3::run(&blocks, memory)?;
    let part = |name: &str| {
        let id = kernel_tests::runner::param(&blocks, name)?;
        memory.buffer(id).cloned().ok_or_else(|| format!("`{name}` has no buffer"))
    };
    let first = 5 * v as i64;
    let merged = k3::memory(
        &merge,
        vec![("bv", part("bv")?), ("bi", part("bi")?)],
        &[("first", first as f64)],
    )?;
    let merged = k3::run(&merge, merged)?;
    let (mut best, mut at) = (Vec::new(), Vec::new());
    for row in logits.chunks(v) {
        let row: Vec<f64> = row.iter().map(|x| f64::from(*x)).collect();
        let (value, place) = reference::select::argmax(&row);
        best.push(value);
        at.push(first as f64 + place as f64);
    }
    let id = kernel_tests::runner::param(&merge, "best")?;
    let got = merged.buffer(id).map(Buffer::to_f64);
    if got.as_ref() != Some(&best) {
        return Err(format!("`best` is {got:?}, wanted {best:?}"));
    }
    k3::match_reference(&merge, &merged, &[("at", at)])?;
    Ok(())
}

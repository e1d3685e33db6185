//! Every kernel of Kimi K3 on the emulator: kernel level and device level give the same bits, and both are
//! within tolerance of the reference in f64; and layer 1 of kimi-k3-mini on its real weights.

use std::process::ExitCode;

use kernel_abi::DType;
use kernel_abi::numeric::float_from_f64;
use kernel_abi::numeric::random::IntRange;
use kernel_emulator::{Buffer, Memory};
use kernel_ir::pipeline::Built;
use kernel_tests::k3::{self, Arguments, SEED};
use kernel_tests::layer1;
use kimi_k3::reference;
use libtest_mimic::{Failed, Trial};

fn main() -> ExitCode {
    let arguments = libtest_mimic::Arguments::from_args();
    let mut trials = vec![trial("layer1".to_owned(), layer1_matches_its_goldens)];
    for (m, n, k, step) in [
        // Shapes of the mini, then in_proj of K3 at TP16 for one token and four, and eight tokens.
        (1, 128, 256, 256),
        (2, 96, 256, 64),
        (1, 3216, 7168, 512),
        (4, 3216, 7168, 512),
        (8, 64, 1024, 512),
    ] {
        let name = format!("gemv_bf16 {n}x{k} M={m}");
        trials.push(trial(name, move || gemv("gemv_bf16", m, n, k, step)));
    }
    for (m, n, k, step) in [(1, 32, 256, 256), (1, 896, 7168, 512), (4, 40, 768, 256)] {
        let name = format!("gemv_f32 {n}x{k} M={m}");
        trials.push(trial(name, move || gemv("gemv_f32", m, n, k, step)));
    }
    trials.push(trial("gemv_bf16 o_proj 7168x768 M=1".to_owned(), || {
        gemv("gemv_bf16", 1, 7168, 768, 256)
    }));
    for (m, h, round_first) in [(3, 256, 0), (2, 768, 1), (1, 7168, 0), (2, 7168, 1)] {
        let name = format!("rms_norm H={h} M={m} ROUND_FIRST={round_first}");
        trials.push(trial(name, move || rms_norm(m, h, round_first)));
    }
    for (m, h, blocks) in [(2, 256, 1), (1, 256, 3), (1, 7168, 0), (1, 7168, 3), (2, 7168, 8)] {
        let name = format!("attn_res_norm H={h} NB={blocks} M={m}");
        trials.push(trial(name, move || attn_res_norm(m, h, blocks, 0)));
    }
    trials.push(trial("attn_res_norm H=7168 NB=8 M=1 ROUND_FIRST=1".to_owned(), || {
        attn_res_norm(1, 7168, 8, 1)
    }));
    for (m, n, warps) in [(4, 512, 4), (3, 128, 1), (6, 4096, 4), (2, 4096, 8)] {
        let name = format!("softmax N={n} M={m} NW={warps}");
        trials.push(trial(name, move || softmax(m, n, warps)));
    }
    for (m, width) in [(2, 128), (1, 384), (4, 384), (1, 6144)] {
        let name = format!("silu_gate I={width} M={m}");
        trials.push(trial(name, move || silu_gate(m, width)));
    }
    for (m, v, h) in [(6, 128, 256), (3, 10240, 7168)] {
        let name = format!("embed V={v} H={h} M={m}");
        trials.push(trial(name, move || embed(m, v, h)));
    }
    for (m, v, block) in [(3, 2048, 1024), (1, 1000, 256), (2, 10240, 1024), (1, 10240, 2048)] {
        let name = format!("argmax V={v} M={m} BN={block}");
        trials.push(trial(name, move || argmax(m, v, block)));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial(name: String, test: impl FnOnce() -> Result<(), String> + Send + 'static) -> Trial {
    Trial::test(name, move || test().map_err(Failed::from))
}

/// Runs a kernel and compares it with the reference values that `wanted` makes of its arguments.
fn check(
    built: &Built,
    memory: Memory,
    wanted: impl FnOnce(&Arguments<'_>) -> Vec<(&'static str, Vec<f64>)>,
) -> Result<Memory, String> {
    let before = memory.clone();
    let memory = k3::run(built, memory)?;
    let wanted = wanted(&Arguments::new(built, &before));
    k3::match_reference(built, &memory, &wanted)?;
    Ok(memory)
}

fn gemv(kernel: &str, m: usize, n: usize, k: usize, step: i64) -> Result<(), String> {
    let bind = [("M", m as i64), ("N", n as i64), ("K", k as i64), ("STEP", step)];
    let built = k3::build("gemv.tile", kernel, &bind)?;
    let memory = k3::memory(&built, Vec::new(), &[])?;
    check(&built, memory, |a| {
        vec![("y", reference::gemv::gemv(&a.buffer("W"), &a.buffer("x"), m, n, k))]
    })?;
    Ok(())
}

fn rms_norm(m: usize, h: usize, round_first: i64) -> Result<(), String> {
    let bind = [("M", m as i64), ("H", h as i64), ("ROUND_FIRST", round_first)];
    let built = k3::build("rms_norm.tile", "rms_norm", &bind)?;
    let memory = k3::memory(&built, Vec::new(), &[("eps", 1e-5)])?;
    check(&built, memory, |a| {
        let (gamma, eps) = (a.buffer("gamma"), a.scalar("eps"));
        let rows = a.buffer("x");
        let out = rows.chunks(h).flat_map(|row| reference::norm::rms_norm(row, &gamma, eps));
        vec![("out", out.collect())]
    })?;
    Ok(())
}

fn attn_res_norm(m: usize, h: usize, blocks: usize, round_first: i64) -> Result<(), String> {
    let bind =
        [("M", m as i64), ("H", h as i64), ("NB", blocks as i64), ("ROUND_FIRST", round_first)];
    let built = k3::build("attn_res_norm.tile", "attn_res_norm", &bind)?;
    // Scores of the order of 1, so that every source has weight.
    let raw = Buffer::random(DType::F32, h, SEED, 99, None).map_err(|e| e.to_string())?;
    let scale = 2.0 / (h as f64).sqrt();
    let wnp: Vec<f32> = raw.to_f64().iter().map(|v| (v * scale) as f32).collect();
    let wnp = Buffer::from_f32(DType::F32, &wnp);
    let memory = k3::memory(&built, vec![("wnp", wnp)], &[("eps", 1e-5)])?;
    check(&built, memory, |a| {
        let (snapshots, prefix) = (a.buffer("blocks"), a.buffer("p"));
        let (wnp, gamma, eps) = (a.buffer("wnp"), a.buffer("gamma"), a.scalar("eps"));
        let (mut mixed, mut out) = (Vec::new(), Vec::new());
        for row in 0..m {
            let mut sources: Vec<&[f64]> =
                (0..blocks).map(|s| &snapshots[(s * m + row) * h..][..h]).collect();
            sources.push(&prefix[row * h..][..h]);
            let (_, mix) = reference::attn_res::mix(&sources, &wnp);
            out.extend(reference::norm::rms_norm(&mix, &gamma, eps));
            mixed.extend(mix);
        }
        vec![("h", mixed), ("out", out)]
    })?;
    Ok(())
}

fn softmax(m: usize, n: usize, warps: i64) -> Result<(), String> {
    let bind = [("M", m as i64), ("N", n as i64), ("NW", warps)];
    let built = k3::build("softmax.tile", "softmax", &bind)?;
    let range = IntRange { range: 0..n as i64 + 1, distinct: None };
    let mut lengths = Buffer::random(DType::I32, m, SEED, 0, Some(&range))
        .map_err(|e| e.to_string())?
        .to_f64()
        .iter()
        .map(|v| *v as i32)
        .collect::<Vec<_>>();
    // An empty row, a full one and one that ends within a vector are always there.
    for (length, edge) in lengths.iter_mut().zip([0, n as i32, 7]) {
        *length = edge;
    }
    let memory = k3::memory(&built, vec![("len", Buffer::from_i32(&lengths))], &[("scale", 3.5)])?;
    check(&built, memory, |a| {
        let (x, scale) = (a.buffer("x"), a.scalar("scale"));
        let mut y = vec![0.0; m * n];
        for (row, length) in a.buffer("len").into_iter().enumerate() {
            let length = length as usize;
            let soft = reference::pointwise::softmax(&x[row * n..][..length], scale);
            y[row * n..][..length].copy_from_slice(&soft);
        }
        vec![("y", y)]
    })?;
    Ok(())
}

fn silu_gate(m: usize, width: usize) -> Result<(), String> {
    let bind = [("M", m as i64), ("I", width as i64)];
    let built = k3::build("silu_gate.tile", "silu_gate", &bind)?;
    let memory = k3::memory(&built, Vec::new(), &[])?;
    check(&built, memory, |a| {
        let rows = a.buffer("gate_up");
        let y = rows.chunks(2 * width).flat_map(|row| {
            let (gate, up) = row.split_at(width);
            gate.iter().zip(up).map(|(g, u)| reference::pointwise::silu_gate(*g, *u))
        });
        vec![("y", y.collect())]
    })?;
    Ok(())
}

/// Rows that no id names hold NaN: a read of one would show.
fn embed(m: usize, v: usize, h: usize) -> Result<(), String> {
    let bind = [("M", m as i64), ("V", v as i64), ("H", h as i64)];
    let built = k3::build("embed.tile", "embed", &bind)?;
    // This rank is the second of four. The last row of the rank, one of another rank, and the first row.
    let first = v as i64;
    let mut ids = vec![2 * first - 1, 3 * first, first, 0, 4 * first - 1, first + 5];
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

#[expect(clippy::print_stdout, reason = "the measured numbers belong to the test")]
fn layer1_matches_its_goldens() -> Result<(), String> {
    let streams = layer1::streams()?;
    print!("{}", layer1::table(&streams));
    layer1::judge(&streams)
}

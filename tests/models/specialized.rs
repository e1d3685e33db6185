//! The kernels of the specialised path: a cluster of CTAs for what else takes several launches.

use kernel_abi::DType;
use kernel_abi::numeric::compare::Tolerance;
use kernel_abi::numeric::{float_from_f64, to_f64};
use kernel_emulator::{Buffer, Memory, Options, Schedule};
use kernel_ir::pipeline::Built;
use kernel_tests::k3::{self, Arguments};
use kernel_tests::runner::{self, Run};
use kimi_k3::reference;
use kimi_k3::reference::gemv::gemv;
use kimi_k3::reference::pointwise::Situ;
use kimi_k3::reference::{kda, moe};
use libtest_mimic::Trial;

use super::moe::{HELD, Shape, packed, unpacked};
use super::support::{check, scaled, slots, trial};

/// Orders in which the CTAs of a cluster take turns; fewer where a run takes long. `tests/schedules.rs` tries more.
const SCHEDULES: u64 = 16;
const FEW_SCHEDULES: u64 = 3;

/// The tests of this family.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (m, h, blocks, c) in
        [(1, 7168, 8, 7), (1, 7168, 0, 7), (2, 7168, 3, 7), (1, 256, 3, 1), (2, 2048, 2, 8)]
    {
        let name = format!("attn_res_norm_cluster H={h} NB={blocks} M={m} C={c}");
        trials.push(trial(name, move || attn_res_norm(m, h, blocks, c)));
    }
    for (m, h, d, vs) in [
        (1, 6, 128, 8),
        (3, 6, 128, 4),
        (2, 4, 32, 1),
        (8, 4, 32, 4),
        (2, 4, 32, 2),
        (3, 1, 16, 1),
        (3, 1, 64, 8),
    ] {
        let name = format!("kda_core H={h} D={d} M={m} VS={vs}");
        trials.push(trial(name, move || kda_core(m, h, d, vs)));
    }
    for (m, e, h, k) in [(1, 896, 7168, 16), (1, 32, 256, 4), (2, 32, 256, 4), (4, 32, 256, 4)] {
        let name = format!("router E={e} H={h} K={k} M={m}");
        trials.push(trial(name, move || router(m, e, h, k)));
    }
    for (m, v, block) in [(1, 10240, 1024), (2, 2048, 1024), (8, 2048, 256), (1, 1000, 256)] {
        let name = format!("argmax_shard V={v} M={m} BN={block}");
        trials.push(trial(name, move || argmax_shard(m, v, block)));
    }
    for (m, k, z, i, c) in
        [(1, 16, 3584, 192, 8), (1, 4, 64, 128, 1), (2, 4, 64, 128, 4), (8, 4, 64, 128, 2)]
    {
        let name = format!("experts Z={z} I={i} K={k} M={m} C={c}");
        trials.push(trial(name, move || experts(Shape { m, e: HELD, k, z, i }, c)));
    }
    trials
}

/// As [`check`], and the same bits in every order of the CTAs.
fn check_orders(
    built: &Built,
    memory: Memory,
    schedules: u64,
    wanted: impl FnOnce(&Arguments<'_>) -> Vec<(&'static str, Vec<f64>)>,
) -> Result<Memory, String> {
    let before = memory.clone();
    let result = check(built, memory, wanted)?;
    for number in 0..schedules {
        let options = Options { schedule: Schedule::numbered(5, number), ..Options::STANDARD };
        let run = Run { options, ..Run::STANDARD };
        let other = runner::run_both(built, before.clone(), run).map_err(|f| f.to_string())?;
        if other != result {
            return Err(format!("other bits in the order {:?}", options.schedule));
        }
    }
    Ok(result)
}

/// As many as a run over so many elements allows.
fn schedules(elements: usize) -> u64 {
    if elements <= 1 << 18 { SCHEDULES } else { FEW_SCHEDULES }
}

fn attn_res_norm(m: usize, h: usize, blocks: usize, c: i64) -> Result<(), String> {
    let bind = [("M", m as i64), ("H", h as i64), ("NB", blocks as i64), ("C", c)];
    let built = k3::build("specialized/attn_res_norm.tile", "attn_res_norm_cluster", &bind)?;
    let wnp = scaled(DType::F32, h, 99, 2.0 / (h as f64).sqrt())?;
    let memory = k3::memory(&built, vec![("wnp", wnp)], &[("eps", 1e-5)])?;
    check_orders(&built, memory, schedules(m * h), |a| {
        let (snapshots, prefix) = (a.buffer("blocks"), a.buffer("p"));
        let (wnp, gamma, eps) = (a.buffer("wnp"), a.buffer("gamma"), a.scalar("eps"));
        let (mut mixed, mut out) = (Vec::new(), Vec::new());
        for row in 0..m {
            let mut sources: Vec<&[f64]> =
                (0..blocks).map(|s| &snapshots[(s * m + row) * h..][..h]).collect();
            sources.push(&prefix[row * h..][..h]);
            let (_, mix) = reference::attn_res::mix(&sources, &wnp, eps);
            out.extend(reference::norm::rms_norm(&mix, &gamma, eps));
            mixed.extend(mix);
        }
        vec![("h", mixed), ("out", out)]
    })?;
    Ok(())
}

/// A null slot gives zeros, and nothing but the windows and states of the tokens changes.
fn kda_core(m: usize, h: usize, d: usize, vs: i64) -> Result<(), String> {
    let (slots, count) = slots(m);
    let c = 3 * h * d;
    let bind =
        [("M", m as i64), ("H", h as i64), ("D", d as i64), ("SLOTS", count as i64), ("VS", vs)];
    let built = k3::build("specialized/kda_core.tile", "kda_core", &bind)?;
    let memory = k3::memory(
        &built,
        vec![("slot", Buffer::from_i32(&slots)), ("f", scaled(DType::Bf16, m * h * d, 3, 6.0)?)],
        &[("lower", -5.0), ("eps", 1e-5)],
    )?;
    check_orders(&built, memory, schedules(4 * m * h * d * d), |a| {
        let (conv_w, gamma) = (a.buffer("conv_w"), a.buffer("gamma"));
        let (a_log, dt_bias, lower) = (a.buffer("a_log"), a.buffer("dt_bias"), a.scalar("lower"));
        let (proj, f, eps) = (a.buffer("proj"), a.buffer("f"), a.scalar("eps"));
        let (mut window, mut state) = (a.buffer("window"), a.buffer("S"));
        let mut out = Vec::new();
        for ((&slot, proj), f) in slots.iter().zip(proj.chunks(proj.len() / m)).zip(f.chunks(h * d))
        {
            if slot == 0 {
                out.extend(vec![0.0; h * d]);
                continue;
            }
            let slot = slot as usize;
            let y = kda::conv_step(&conv_w, &mut window[slot * 3 * c..][..3 * c], &proj[..c]);
            let b = &proj[c + h * d + d..][..h];
            let (decay, beta) = kda::gate(&a_log, &dt_bias, f, b, lower);
            let state = &mut state[slot * h * d * d..][..h * d * d];
            let o = kda::recurrence(state, &y, &decay, &beta);
            out.extend(kda::gated_norm(&o, &gamma, &proj[c..][..h * d], eps));
        }
        vec![("out", out), ("window", window), ("S", state)]
    })?;
    Ok(())
}

/// The counter is zero before and after. Picks are those of the logits that the kernel has.
fn router(m: usize, e: usize, h: usize, k: usize) -> Result<(), String> {
    let bind = [("M", m as i64), ("E", e as i64), ("H", h as i64), ("K", k as i64)];
    let built = k3::build("specialized/router.tile", "router", &bind)?;
    let weights = scaled(DType::Bf16, e * h, 1, 4.0 / (h as f64).sqrt())?;
    let bias = scaled(DType::F32, e, 2, 0.1)?;
    let memory = k3::memory(&built, vec![("W", weights), ("bias", bias)], &[("factor", 2.5)])?;
    let before = memory.clone();
    let result = check(&built, memory, |a| {
        vec![("z", gemv(&a.buffer("W"), &a.buffer("x"), m, e, h)), ("done", vec![0.0])]
    })?;
    let after = Arguments::new(&built, &result);
    let given = Arguments::new(&built, &before);
    let (mut id, mut wt) = (Vec::new(), Vec::new());
    for z in after.buffer("z").chunks(e) {
        let route = moe::route(z, &given.buffer("bias"), k, given.scalar("factor"));
        id.extend(route.ids.iter().map(|id| *id as f64));
        wt.extend(route.weights);
    }
    k3::match_reference(&built, &result, &[("id", id), ("wt", wt)]).map(|_| ())
}

/// NaN here and there, and the greatest value three times in two blocks of the last row.
fn argmax_shard(m: usize, v: usize, block: i64) -> Result<(), String> {
    let bind = [("M", m as i64), ("V", v as i64), ("BN", block)];
    let built = k3::build("specialized/argmax_shard.tile", "argmax_shard", &bind)?;
    let values = scaled(DType::F32, m * v, 0, 1.0)?;
    let mut logits: Vec<f32> = values.to_f64().iter().map(|x| *x as f32).collect();
    for value in logits.iter_mut().skip(5).step_by(37) {
        *value = f32::NAN;
    }
    let last = (m - 1) * v;
    for at in [v / 2 + 3, v / 2 + 4, v - 1] {
        logits[last + at] = 2.0;
    }
    let first = 5 * v;
    let memory = k3::memory(
        &built,
        vec![("logits", Buffer::from_f32(DType::F32, &logits))],
        &[("first", first as f64)],
    )?;
    check(&built, memory, |a| {
        let (mut best, mut at) = (Vec::new(), Vec::new());
        for row in a.buffer("logits").chunks(v) {
            let (value, place) = reference::select::argmax(row);
            best.push(value);
            at.push((first + place) as f64);
        }
        vec![("best", best), ("at", at), ("done", vec![0.0; m])]
    })?;
    Ok(())
}

/// Tokens share some experts; what no list names stays as it was.
fn experts(shape: Shape, c: i64) -> Result<(), String> {
    let Shape { m, e, k, z, i } = shape;
    let bind = [
        ("M", m as i64),
        ("K", k as i64),
        ("E", e as i64),
        ("I", i as i64),
        ("Z", z as i64),
        ("C", c),
    ];
    let built = k3::build("specialized/experts.tile", "experts", &bind)?;
    // A token picks an expert once; with more picks than experts that are held, only the first ones count.
    let own = k.min(e);
    let ids: Vec<usize> = (0..m * own).map(|at| (at / own * 3 + at % own) % e).collect();
    let groups = moe::group(&ids);
    let pick = |at: usize| at / own * k + at % own;
    let mut active = vec![0; m * k];
    let mut member = vec![-1; m * k * m];
    for (place, (expert, picks)) in groups.active.iter().zip(&groups.members).enumerate() {
        active[place] = *expert as i32;
        for (at, &id) in picks.iter().enumerate() {
            member[place * m + at] = pick(id) as i32;
        }
    }
    let (w13, s13, _) = packed(shape, 2 * i, z)?;
    let (w2, s2, _) = packed(shape, z, i)?;
    let memory = k3::memory(
        &built,
        vec![
            ("w13", w13),
            ("s13", s13),
            ("w2", w2),
            ("s2", s2),
            ("count", Buffer::from_i32(&[groups.active.len() as i32])),
            ("active", Buffer::from_i32(&active)),
            ("member", Buffer::from_i32(&member)),
            ("y", Buffer::from_f32(DType::F32, &vec![7.0; m * k * z])),
        ],
        &[("beta", 4.0), ("linear_beta", 25.0)],
    )?;
    let given = memory.clone();
    let result = check_orders(&built, memory, schedules(m * k * z * i), |_| Vec::new())?;
    let a = Arguments::new(&built, &given);
    let situ = Situ { beta: a.scalar("beta"), linear_beta: a.scalar("linear_beta") };
    let (w13, s13, w2, s2) = (a.buffer("w13"), a.buffer("s13"), a.buffer("w2"), a.buffer("s2"));
    let x = a.buffer("z");
    let mut y = vec![7.0; m * k * z];
    for (at, &expert) in ids.iter().enumerate() {
        let both = unpacked(&w13, &s13, expert, 2 * i, z);
        let (w1, w3) = both.split_at(i * z);
        let w2 = unpacked(&w2, &s2, expert, z, i);
        let expert = moe::Expert { w1: w1.to_vec(), w2: Vec::new(), w3: w3.to_vec() };
        let activation = expert.activation(&x[at / own * z..][..z], situ);
        let activation: Vec<f64> = activation.into_iter().map(rounded).collect();
        y[pick(at) * z..][..z].copy_from_slice(&gemv(&w2, &activation, 1, z, i));
    }
    // Activations are bf16 in between: one that rounds to the other side is in every sum.
    let tolerance = Tolerance::formula(DType::Bf16);
    k3::match_within(&built, &result, ("y", &y), tolerance).map(|_| ())
}

/// The nearest value of bf16.
fn rounded(value: f64) -> f64 {
    let code = float_from_f64(DType::Bf16, value).expect("bf16 is a float");
    to_f64(DType::Bf16, code)
}

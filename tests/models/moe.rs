//! The latent mixture of experts: routing and the experts.

use kernel_abi::DType;
use kernel_abi::numeric::random::IntRange;
use kernel_emulator::Buffer;
use kernel_tests::k3::{self, SEED};
use kimi_k3::reference::gemv::gemv;
use kimi_k3::reference::moe;
use kimi_k3::reference::pointwise::Situ;
use libtest_mimic::Trial;

use super::support::{between, check, scaled, trial};

/// Tokens, experts, picks, width of the latent, width of an expert on a rank.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) m: usize,
    pub(crate) e: usize,
    pub(crate) k: usize,
    pub(crate) z: usize,
    pub(crate) i: usize,
}

/// K3 at TP16, kimi-k3-mini for two tokens and eight, a rank of sixteen of the tiny model.
const SHAPES: [Shape; 5] = [
    Shape { m: 1, e: 896, k: 16, z: 3584, i: 192 },
    Shape { m: 2, e: 32, k: 4, z: 64, i: 128 },
    Shape { m: 8, e: 32, k: 4, z: 64, i: 128 },
    Shape { m: 2, e: 32, k: 4, z: 128, i: 32 },
    Shape { m: 8, e: 32, k: 4, z: 128, i: 32 },
];

type Test = fn(Shape) -> Result<(), String>;

/// The tests of this family.
pub(crate) fn trials() -> Vec<Trial> {
    let tests: [(&str, Test); 5] = [
        ("router_topk", router),
        ("group_experts", groups),
        ("expert_w13", gate_and_up),
        ("expert_w2", down),
        ("expert_sum", sum),
    ];
    let mut trials = Vec::new();
    for (kernel, test) in tests {
        for shape in SHAPES {
            let Shape { m, e, k, z, i } = shape;
            trials.push(trial(format!("{kernel} E={e} K={k} Z={z} I={i} M={m}"), move || {
                test(shape)
            }));
        }
    }
    trials
}

/// Logits with a NaN here and there and many that are equal.
fn router(shape: Shape) -> Result<(), String> {
    let Shape { m, e, k, .. } = shape;
    let bind = [("M", m as i64), ("E", e as i64), ("K", k as i64)];
    let built = k3::build("router.tile", "router_topk", &bind)?;
    let mut z: Vec<f32> =
        scaled(DType::F32, m * e, 1, 4.0)?.to_f64().iter().map(|v| *v as f32).collect();
    let mut bias: Vec<f32> =
        scaled(DType::F32, e, 2, 0.1)?.to_f64().iter().map(|v| *v as f32).collect();
    for (at, bias) in bias.iter_mut().enumerate() {
        match at % 5 {
            0 => *bias = 0.05,
            3 => *bias = 1.0,
            _ => {}
        }
    }
    for (at, z) in z.iter_mut().enumerate() {
        match at % e % 15 {
            0 | 5 => *z = 3.75,
            3 => *z = f32::NAN,
            _ => {}
        }
    }
    let memory = k3::memory(
        &built,
        vec![
            ("z", Buffer::from_f32(DType::F32, &z)),
            ("bias", Buffer::from_f32(DType::F32, &bias)),
        ],
        &[("factor", 2.5)],
    )?;
    check(&built, memory, |a| {
        let (z, bias, factor) = (a.buffer("z"), a.buffer("bias"), a.scalar("factor"));
        let (mut id, mut wt) = (Vec::new(), Vec::new());
        for z in z.chunks(e) {
            let route = moe::route(z, &bias, k, factor);
            id.extend(route.ids.iter().map(|id| *id as f64));
            wt.extend(route.weights);
        }
        vec![("id", id), ("wt", wt)]
    })?;
    Ok(())
}

/// Picks of each token are distinct; the tokens share some.
fn groups(shape: Shape) -> Result<(), String> {
    let Shape { m, e, k, .. } = shape;
    let bind = [("M", m as i64), ("E", e as i64), ("K", k as i64)];
    let built = k3::build("group_experts.tile", "group_experts", &bind)?;
    let pick = |at: usize| ((at / k * 3 + at % k) * 5 % e) as u64;
    let ids: Vec<u64> = (0..m * k).map(pick).collect();
    let memory = k3::memory(&built, vec![("id", Buffer::from_codes(DType::I32, &ids))], &[])?;
    check(&built, memory, |a| {
        let ids: Vec<usize> = a.buffer("id").iter().map(|id| *id as usize).collect();
        let found = moe::group(&ids);
        let mut active: Vec<f64> = found.active.iter().map(|id| *id as f64).collect();
        active.resize(m * k, 0.0);
        let mut member = vec![-1.0; m * k * m];
        for (place, picks) in found.members.iter().enumerate() {
            for (at, pick) in picks.iter().enumerate() {
                member[place * m + at] = *pick as f64;
            }
        }
        let count = vec![found.active.len() as f64];
        vec![("count", count), ("active", active), ("member", member)]
    })?;
    Ok(())
}

/// Experts whose weights a test holds; picks are among them.
pub(crate) const HELD: usize = 5;

/// Random codes of packed weights of `rows` rows, scales that keep sums of `columns` products near 1, and picks.
pub(crate) fn packed(
    shape: Shape,
    rows: usize,
    columns: usize,
) -> Result<(Buffer, Buffer, Buffer), String> {
    let random = |len: usize, stream: u64, range: i64| {
        let range = IntRange { range: 0..range, distinct: None };
        Buffer::random(DType::I32, len, SEED, stream, Some(&range)).map_err(|e| e.to_string())
    };
    let codes =
        |buffer: &Buffer| -> Vec<u64> { buffer.to_f64().iter().map(|v| *v as u64).collect() };
    let low = 127 - 2 - columns.ilog2() as u64 / 2;
    let weights = codes(&random(HELD * rows * columns, 21, 16)?);
    let scales: Vec<u64> =
        codes(&random(HELD * rows * columns / 32, 22, 3)?).iter().map(|s| low + s).collect();
    Ok((
        Buffer::from_codes(DType::E2m1, &weights),
        Buffer::from_codes(DType::Ue8m0, &scales),
        random(shape.m * shape.k, 23, HELD as i64)?,
    ))
}

/// The values of expert `e` of packed weights with `rows` rows.
pub(crate) fn unpacked(
    weights: &[f64],
    scales: &[f64],
    e: usize,
    rows: usize,
    columns: usize,
) -> Vec<f64> {
    let size = rows * columns;
    let (weights, scales) = (&weights[e * size..][..size], &scales[e * size / 32..][..size / 32]);
    weights.iter().enumerate().map(|(at, w)| w * scales[at / 32]).collect()
}

fn gate_and_up(shape: Shape) -> Result<(), String> {
    let Shape { m, k, z, i, .. } = shape;
    let bind =
        [("M", m as i64), ("E", HELD as i64), ("K", k as i64), ("I", i as i64), ("Z", z as i64)];
    let built = k3::build("experts.tile", "expert_w13", &bind)?;
    let (w13, s13, id) = packed(shape, 2 * i, z)?;
    let memory = k3::memory(
        &built,
        vec![("w13", w13), ("s13", s13), ("id", id)],
        &[("beta", 4.0), ("linear_beta", 25.0)],
    )?;
    check(&built, memory, |a| {
        let situ = Situ { beta: a.scalar("beta"), linear_beta: a.scalar("linear_beta") };
        let (w13, s13, id, x) = (a.buffer("w13"), a.buffer("s13"), a.buffer("id"), a.buffer("z"));
        let act = id.iter().enumerate().flat_map(|(pick, &e)| {
            let weights = unpacked(&w13, &s13, e as usize, 2 * i, z);
            let (w1, w3) = weights.split_at(i * z);
            let expert = moe::Expert { w1: w1.to_vec(), w2: Vec::new(), w3: w3.to_vec() };
            expert.activation(&x[pick / k * z..][..z], situ)
        });
        vec![("act", act.collect())]
    })?;
    Ok(())
}

fn down(shape: Shape) -> Result<(), String> {
    let Shape { m, k, z, i, .. } = shape;
    let bind =
        [("M", m as i64), ("E", HELD as i64), ("K", k as i64), ("I", i as i64), ("Z", z as i64)];
    let built = k3::build("experts.tile", "expert_w2", &bind)?;
    let (w2, s2, id) = packed(shape, z, i)?;
    let memory = k3::memory(&built, vec![("w2", w2), ("s2", s2), ("id", id)], &[])?;
    check(&built, memory, |a| {
        let (w2, s2, id, act) = (a.buffer("w2"), a.buffer("s2"), a.buffer("id"), a.buffer("act"));
        let y = id.iter().enumerate().flat_map(|(pick, &e)| {
            let weights = unpacked(&w2, &s2, e as usize, z, i);
            gemv(&weights, &act[pick * i..][..i], 1, z, i)
        });
        vec![("y", y.collect())]
    })?;
    Ok(())
}

fn sum(shape: Shape) -> Result<(), String> {
    let Shape { m, k, z, .. } = shape;
    let bind = [("M", m as i64), ("K", k as i64), ("Z", z as i64)];
    let built = k3::build("experts.tile", "expert_sum", &bind)?;
    let memory = k3::memory(&built, vec![("wt", between(m * k, 3, 0.0, 0.5)?)], &[])?;
    check(&built, memory, |a| {
        let (y, wt) = (a.buffer("y"), a.buffer("wt"));
        let out = y.chunks(k * z).zip(wt.chunks(k)).flat_map(|(y, wt)| moe::weighted_sum(y, wt));
        vec![("out", out.collect())]
    })?;
    Ok(())
}

//! The latent mixture of experts: routing and the experts.

use kernel_abi::DType;
use kernel_emulator::Buffer;
use kernel_tests::k3;
use kimi_k3::reference::moe;
use libtest_mimic::Trial;

use super::support::{between, check, scaled, trial};

/// Tokens, experts, picks, width of the latent, width of an expert.
#[derive(Debug, Clone, Copy)]
struct Shape {
    m: usize,
    e: usize,
    k: usize,
    z: usize,
}

/// K3 at TP16, kimi-k3-mini for two tokens and eight, a rank of sixteen of the tiny model.
const SHAPES: [Shape; 5] = [
    Shape { m: 1, e: 896, k: 16, z: 3584 },
    Shape { m: 2, e: 32, k: 4, z: 64 },
    Shape { m: 8, e: 32, k: 4, z: 64 },
    Shape { m: 2, e: 32, k: 4, z: 128 },
    Shape { m: 8, e: 32, k: 4, z: 128 },
];

type Test = fn(Shape) -> Result<(), String>;

/// The tests of this family.
pub(crate) fn trials() -> Vec<Trial> {
    let tests: [(&str, Test); 2] = [("router_topk", router), ("expert_sum", sum)];
    let mut trials = Vec::new();
    for (kernel, test) in tests {
        for shape in SHAPES {
            let Shape { m, e, k, z } = shape;
            trials.push(trial(format!("{kernel} E={e} K={k} Z={z} M={m}"), move || test(shape)));
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

//! Softmax, activations, residuals.

use kernel_abi::DType;
use kernel_abi::numeric::random::IntRange;
use kernel_emulator::Buffer;
use kernel_tests::k3::{self, SEED};
use kimi_k3::reference;
use kimi_k3::reference::pointwise::Situ;
use libtest_mimic::Trial;

use super::support::{check, scaled, trial};

/// The tests of this family.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (m, n, warps) in [(4, 512, 4), (3, 128, 1), (6, 4096, 4), (2, 4096, 8)] {
        let name = format!("softmax N={n} M={m} NW={warps}");
        trials.push(trial(name, move || softmax(m, n, warps)));
    }
    for (m, width) in [(2, 128), (1, 384), (4, 384), (1, 6144)] {
        let name = format!("silu_gate I={width} M={m}");
        trials.push(trial(name, move || silu_gate(m, width)));
    }
    // The shared MLP and the dense layer of K3 at TP16, both of kimi-k3-mini, and a rank of the tiny model.
    for (m, width) in [(1, 384), (1, 2112), (2, 256), (8, 768), (8, 64)] {
        let name = format!("situ_gate I={width} M={m}");
        trials.push(trial(name, move || situ_gate(m, width)));
    }
    for (m, h, block) in [(1, 7168, 1024), (2, 256, 256), (8, 256, 512)] {
        for kernel in ["residual_add", "residual_open"] {
            let name = format!("{kernel} H={h} M={m} BLOCK={block}");
            trials.push(trial(name, move || residual(kernel, m, h, block)));
        }
    }
    trials
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

fn situ_gate(m: usize, width: usize) -> Result<(), String> {
    let bind = [("M", m as i64), ("I", width as i64)];
    let built = k3::build("situ.tile", "situ_gate", &bind)?;
    // Wide enough that both bounds are felt.
    let gate_up = scaled(DType::Bf16, m * 2 * width, 7, 20.0)?;
    let memory =
        k3::memory(&built, vec![("gate_up", gate_up)], &[("beta", 4.0), ("linear_beta", 25.0)])?;
    check(&built, memory, |a| {
        let situ = Situ { beta: a.scalar("beta"), linear_beta: a.scalar("linear_beta") };
        let rows = a.buffer("gate_up");
        let y = rows.chunks(2 * width).flat_map(|row| {
            let (gate, up) = row.split_at(width);
            gate.iter().zip(up).map(move |(g, u)| situ.gate(*g, *u))
        });
        vec![("y", y.collect())]
    })?;
    Ok(())
}

fn residual(kernel: &str, m: usize, h: usize, block: i64) -> Result<(), String> {
    let bind = [("M", m as i64), ("H", h as i64), ("BLOCK", block)];
    let built = k3::build("residual.tile", kernel, &bind)?;
    let memory = k3::memory(&built, Vec::new(), &[])?;
    check(&built, memory, |a| {
        let mut out = a.buffer("y");
        if kernel == "residual_add" {
            out.iter_mut().zip(a.buffer("p")).for_each(|(out, p)| *out += p);
        }
        vec![("out", out)]
    })?;
    Ok(())
}

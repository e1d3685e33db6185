//! Multi-head latent attention.

use kernel_tests::k3;
use kimi_k3::reference::mla;
use libtest_mimic::Trial;

use super::support::{check, trial};

/// Tokens, heads, latent, shared key, query and value widths.
#[derive(Debug, Clone, Copy)]
struct Shape {
    m: usize,
    h: usize,
    l: usize,
    p: usize,
    n: usize,
    v: usize,
    q_lora: usize,
}

impl Shape {
    /// Width of a row of the merged projection: q_a, kv_a, g, up to a multiple of 16.
    fn merged(self) -> usize {
        (self.q_lora + self.l + self.p + self.h * self.v).next_multiple_of(16)
    }
}

/// K3 at TP16, kimi-k3-mini for two tokens and eight, a rank of sixteen of the tiny model.
const SHAPES: [Shape; 5] = [
    Shape { m: 1, h: 6, l: 512, p: 64, n: 128, v: 128, q_lora: 1536 },
    Shape { m: 2, h: 4, l: 64, p: 16, n: 32, v: 32, q_lora: 96 },
    Shape { m: 8, h: 4, l: 64, p: 16, n: 32, v: 32, q_lora: 96 },
    Shape { m: 2, h: 1, l: 64, p: 16, n: 16, v: 16, q_lora: 96 },
    Shape { m: 8, h: 1, l: 64, p: 16, n: 16, v: 16, q_lora: 96 },
];

type Test = fn(Shape) -> Result<(), String>;

/// The tests of this family.
pub(crate) fn trials() -> Vec<Trial> {
    let tests: [(&str, Test); 3] =
        [("mla_absorb", absorb), ("mla_value", value), ("mla_gate", gate)];
    let mut trials = Vec::new();
    for (kernel, test) in tests {
        for shape in SHAPES {
            let Shape { m, h, l, .. } = shape;
            trials.push(trial(format!("{kernel} H={h} L={l} M={m}"), move || test(shape)));
        }
    }
    trials
}

fn absorb(shape: Shape) -> Result<(), String> {
    let Shape { m, h, l, p, n, .. } = shape;
    let bind =
        [("M", m as i64), ("H", h as i64), ("L", l as i64), ("N", n as i64), ("P", p as i64)];
    let built = k3::build("mla_absorb.tile", "mla_absorb", &bind)?;
    let memory = k3::memory(&built, Vec::new(), &[])?;
    check(&built, memory, |a| {
        let (wuk, q) = (a.buffer("wuk"), a.buffer("q"));
        let out = q.chunks(h * (n + p)).flat_map(|q| mla::absorb(&wuk, q, h, n));
        vec![("out", out.collect())]
    })?;
    Ok(())
}

fn value(shape: Shape) -> Result<(), String> {
    let Shape { m, h, l, v, .. } = shape;
    let bind = [("M", m as i64), ("H", h as i64), ("V", v as i64), ("L", l as i64)];
    let built = k3::build("mla_value.tile", "mla_value", &bind)?;
    let memory = k3::memory(&built, Vec::new(), &[])?;
    check(&built, memory, |a| {
        let (wuv, o) = (a.buffer("wuv"), a.buffer("o"));
        let out = o.chunks(h * l).flat_map(|o| mla::value(&wuv, o, h));
        vec![("out", out.collect())]
    })?;
    Ok(())
}

fn gate(shape: Shape) -> Result<(), String> {
    let Shape { m, h, l, p, v, q_lora, .. } = shape;
    let (w, xw, x0) = (h * v, shape.merged(), q_lora + l + p);
    let bind = [("M", m as i64), ("W", w as i64), ("XW", xw as i64), ("X0", x0 as i64)];
    let built = k3::build("mla_gate.tile", "mla_gate", &bind)?;
    let memory = k3::memory(&built, Vec::new(), &[])?;
    check(&built, memory, |a| {
        let (o, proj) = (a.buffer("o"), a.buffer("proj"));
        let rows = o.chunks(w).zip(proj.chunks(xw));
        let out = rows.flat_map(|(o, row)| mla::output_gate(o, &row[x0..][..w]));
        vec![("out", out.collect())]
    })?;
    Ok(())
}

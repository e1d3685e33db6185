//! Kimi Delta Attention.

use kernel_abi::DType;
use kernel_emulator::Buffer;
use kernel_tests::k3;
use kimi_k3::reference::kda;
use libtest_mimic::Trial;

use super::support::{between, check, scaled, slots, trial};

/// Tokens, heads, width of a head.
#[derive(Debug, Clone, Copy)]
struct Shape {
    m: usize,
    h: usize,
    d: usize,
}

impl Shape {
    /// Width of a row of the merged projection: q, k, v, g, f_a, b, up to a multiple of 16.
    fn merged(self) -> usize {
        (4 * self.h * self.d + self.d + self.h).next_multiple_of(16)
    }
}

/// K3 at TP16, kimi-k3-mini for two tokens and eight, a rank of sixteen of the tiny model.
const SHAPES: [Shape; 5] = [
    Shape { m: 1, h: 6, d: 128 },
    Shape { m: 2, h: 4, d: 32 },
    Shape { m: 8, h: 4, d: 32 },
    Shape { m: 2, h: 1, d: 16 },
    Shape { m: 8, h: 1, d: 16 },
];

type Test = fn(Shape) -> Result<(), String>;

/// The tests of this family.
pub(crate) fn trials() -> Vec<Trial> {
    let tests: [(&str, Test); 4] = [
        ("kda_conv", conv),
        ("kda_gate", gate),
        ("kda_recurrence", recurrence),
        ("kda_gated_norm", gated_norm),
    ];
    let mut trials = Vec::new();
    for (kernel, test) in tests {
        for shape in SHAPES {
            let Shape { m, h, d } = shape;
            trials.push(trial(format!("{kernel} H={h} D={d} M={m}"), move || test(shape)));
        }
    }
    trials
}

fn gate(shape: Shape) -> Result<(), String> {
    let Shape { m, h, d } = shape;
    let (xw, x0) = (shape.merged(), 4 * h * d + d);
    let bind =
        [("M", m as i64), ("H", h as i64), ("D", d as i64), ("XW", xw as i64), ("X0", x0 as i64)];
    let built = k3::build("kda_gate.tile", "kda_gate", &bind)?;
    let f = scaled(DType::Bf16, m * h * d, 3, 6.0)?;
    let memory = k3::memory(&built, vec![("f", f)], &[("lower", -5.0)])?;
    check(&built, memory, |a| {
        let (a_log, dt_bias, lower) = (a.buffer("a_log"), a.buffer("dt_bias"), a.scalar("lower"));
        let (f, proj) = (a.buffer("f"), a.buffer("proj"));
        let (mut decay, mut beta) = (Vec::new(), Vec::new());
        for (f, row) in f.chunks(h * d).zip(proj.chunks(xw)) {
            let (one, other) = kda::gate(&a_log, &dt_bias, f, &row[x0..][..h], lower);
            decay.extend(one);
            beta.extend(other);
        }
        vec![("decay", decay), ("beta", beta)]
    })?;
    Ok(())
}

fn gated_norm(shape: Shape) -> Result<(), String> {
    let Shape { m, h, d } = shape;
    let (xw, x0) = (shape.merged(), 3 * h * d);
    let bind =
        [("M", m as i64), ("H", h as i64), ("D", d as i64), ("XW", xw as i64), ("X0", x0 as i64)];
    let built = k3::build("kda_norm.tile", "kda_gated_norm", &bind)?;
    let memory = k3::memory(&built, Vec::new(), &[("eps", 1e-5)])?;
    check(&built, memory, |a| {
        let (gamma, eps) = (a.buffer("gamma"), a.scalar("eps"));
        let (o, proj) = (a.buffer("o"), a.buffer("proj"));
        let rows = o.chunks(h * d).zip(proj.chunks(xw));
        let out = rows.flat_map(|(o, row)| kda::gated_norm(o, &gamma, &row[x0..][..h * d], eps));
        vec![("out", out.collect())]
    })?;
    Ok(())
}

/// A null slot gives zeros, and no window but those of the tokens changes.
fn conv(shape: Shape) -> Result<(), String> {
    let Shape { m, h, d } = shape;
    let (xw, c) = (shape.merged(), 3 * h * d);
    let (slots, count) = slots(m);
    let bind = [("M", m as i64), ("C", c as i64), ("SLOTS", count as i64), ("XW", xw as i64)];
    let built = k3::build("kda_conv.tile", "kda_conv", &bind)?;
    let memory = k3::memory(&built, vec![("slot", Buffer::from_i32(&slots))], &[])?;
    check(&built, memory, |a| {
        let (w, x, mut window) = (a.buffer("w"), a.buffer("x"), a.buffer("window"));
        let mut y = Vec::new();
        for (&slot, x) in slots.iter().zip(x.chunks(xw)) {
            if slot == 0 {
                y.extend(vec![0.0; c]);
                continue;
            }
            let window = &mut window[slot as usize * 3 * c..][..3 * c];
            y.extend(kda::conv_step(&w, window, &x[..c]));
        }
        vec![("y", y), ("window", window)]
    })?;
    Ok(())
}

/// A null slot gives zeros, and no state but those of the tokens changes.
fn recurrence(shape: Shape) -> Result<(), String> {
    let Shape { m, h, d } = shape;
    let (slots, count) = slots(m);
    let bind = [("M", m as i64), ("H", h as i64), ("D", d as i64), ("SLOTS", count as i64)];
    let built = k3::build("kda_recurrence.tile", "kda_recurrence", &bind)?;
    let memory = k3::memory(
        &built,
        vec![
            ("slot", Buffer::from_i32(&slots)),
            ("decay", between(m * h * d, 5, 0.01, 1.0)?),
            ("beta", between(m * h, 6, 0.0, 1.0)?),
        ],
        &[],
    )?;
    check(&built, memory, |a| {
        let (y, decay, beta) = (a.buffer("y"), a.buffer("decay"), a.buffer("beta"));
        let mut state = a.buffer("S");
        let mut o = Vec::new();
        for (i, &slot) in slots.iter().enumerate() {
            if slot == 0 {
                o.extend(vec![0.0; h * d]);
                continue;
            }
            let state = &mut state[slot as usize * h * d * d..][..h * d * d];
            let token = |x: &[f64], width: usize| x[i * width..][..width].to_vec();
            let y = token(&y, 3 * h * d);
            o.extend(kda::recurrence(state, &y, &token(&decay, h * d), &token(&beta, h)));
        }
        vec![("o", o), ("S", state)]
    })?;
    Ok(())
}

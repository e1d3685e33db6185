//! Projections and norms.

use kernel_tests::k3;
use kimi_k3::reference;
use libtest_mimic::Trial;

use super::support::{check, trial};

/// A projection: rows, columns, width of a row of the input, its first column, and further bindings.
type Projection = (usize, usize, usize, usize, &'static [(&'static str, i64)]);

/// The tests of this family.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let projections: [(&'static str, usize, Projection); 25] = [
        // K3 at TP16: the merged input projection for one token and four, o_proj, router, f_b on a part of the
        // merged projection, W_q_b, the latent pair, the shared pair.
        ("gemv_bf16", 1, (3216, 7168, 7168, 0, &[])),
        ("gemv_bf16", 4, (3216, 7168, 7168, 0, &[])),
        ("gemv_f32", 1, (7168, 768, 768, 0, &[])),
        ("gemv_f32", 1, (896, 7168, 7168, 0, &[])),
        ("gemv_bf16", 1, (768, 128, 3216, 3072, &[])),
        ("gemv_bf16", 1, (1152, 1536, 1536, 0, &[])),
        ("gemv_bf16", 1, (3584, 7168, 7168, 0, &[])),
        ("gemv_add", 1, (448, 3584, 3584, 0, &[])),
        ("gemv_bf16", 1, (768, 7168, 7168, 0, &[])),
        ("gemv_f32", 1, (7168, 384, 384, 0, &[])),
        // The input projection of MLA, the dense layer, the share of the output.
        ("gemv_bf16", 1, (2880, 7168, 7168, 0, &[])),
        ("gemv_bf16", 1, (4224, 7168, 7168, 0, &[])),
        ("gemv_f32", 1, (7168, 2112, 2112, 0, &[])),
        ("gemv_f32", 1, (10240, 7168, 7168, 0, &[])),
        // kimi-k3-mini.
        ("gemv_bf16", 2, (560, 256, 256, 0, &[("ROWS", 16)])),
        ("gemv_bf16", 8, (560, 256, 256, 0, &[("ROWS", 80)])),
        ("gemv_bf16", 2, (128, 32, 560, 512, &[])),
        ("gemv_bf16", 8, (192, 96, 96, 0, &[("ROWS", 64)])),
        ("gemv_f32", 8, (256, 128, 128, 0, &[])),
        ("gemv_add", 2, (256, 64, 64, 0, &[])),
        ("gemv_add", 8, (256, 64, 64, 0, &[("ROWS", 64)])),
        // A rank of sixteen of the tiny model: f_b, and the stripe of the up projection.
        ("gemv_bf16", 2, (16, 16, 96, 64, &[])),
        ("gemv_add", 8, (16, 128, 128, 0, &[("ROWS", 16)])),
        // The steps of a ring.
        ("gemv_bf16", 2, (96, 256, 256, 0, &[("STEP", 64)])),
        ("gemv_bf16", 8, (64, 1024, 1024, 0, &[("STEP", 512), ("NW", 2)])),
    ];
    for (kernel, m, projection) in projections {
        let (n, k, xw, x0, more) = projection;
        let name = format!("{kernel} {n}x{k} of {x0}/{xw} M={m} {more:?}");
        trials.push(trial(name, move || gemv(kernel, m, projection)));
    }
    for (m, w, part, round_first) in [
        (1, 7168, (7168, 0), 0),
        (2, 7168, (7168, 0), 1),
        (1, 1536, (2880, 0), 0),
        (2, 768, (768, 0), 1),
        (3, 256, (256, 0), 0),
        (2, 96, (304, 0), 0),
        (8, 96, (304, 0), 0),
        (8, 64, (200, 96), 0),
    ] {
        let name = format!("rms_norm W={w} of {part:?} M={m} ROUND_FIRST={round_first}");
        trials.push(trial(name, move || rms_norm(m, w, part, round_first)));
    }
    for (m, w) in [(1, 3584), (2, 64), (8, 64), (8, 128)] {
        let name = format!("latent_norm W={w} M={m}");
        trials.push(trial(name, move || latent_norm(m, w)));
    }
    trials
}

fn gemv(kernel: &str, m: usize, projection: Projection) -> Result<(), String> {
    let (n, k, xw, x0, more) = projection;
    let mut bind = vec![
        ("M", m as i64),
        ("N", n as i64),
        ("K", k as i64),
        ("XW", xw as i64),
        ("X0", x0 as i64),
    ];
    bind.extend(more);
    let built = k3::build("gemv.tile", kernel, &bind)?;
    let memory = k3::memory(&built, Vec::new(), &[])?;
    check(&built, memory, |a| {
        let x: Vec<f64> =
            a.buffer("x").chunks(xw).flat_map(|row| row[x0..][..k].to_vec()).collect();
        let mut y = reference::gemv::gemv(&a.buffer("W"), &x, m, n, k);
        if kernel == "gemv_add" {
            y.iter_mut().zip(a.buffer("add")).for_each(|(y, add)| *y += add);
        }
        vec![("y", y)]
    })?;
    Ok(())
}

fn rms_norm(m: usize, w: usize, part: (usize, usize), round_first: i64) -> Result<(), String> {
    let (xw, x0) = part;
    let bind = [
        ("M", m as i64),
        ("W", w as i64),
        ("XW", xw as i64),
        ("X0", x0 as i64),
        ("ROUND_FIRST", round_first),
    ];
    let built = k3::build("rms_norm.tile", "rms_norm", &bind)?;
    let memory = k3::memory(&built, Vec::new(), &[("eps", 1e-5)])?;
    check(&built, memory, |a| {
        let (gamma, eps) = (a.buffer("gamma"), a.scalar("eps"));
        let rows = a.buffer("x");
        let out =
            rows.chunks(xw).flat_map(|row| reference::norm::rms_norm(&row[x0..][..w], &gamma, eps));
        vec![("out", out.collect())]
    })?;
    Ok(())
}

fn latent_norm(m: usize, w: usize) -> Result<(), String> {
    let bind = [("M", m as i64), ("W", w as i64)];
    let built = k3::build("latent_norm.tile", "latent_norm", &bind)?;
    let memory = k3::memory(&built, Vec::new(), &[("eps", 1e-5)])?;
    check(&built, memory, |a| {
        let (gamma, eps) = (a.buffer("gamma"), a.scalar("eps"));
        let rows = a.buffer("x");
        let out = rows.chunks(w).flat_map(|row| reference::norm::rms_norm(row, &gamma, eps));
        vec![("out", out.collect())]
    })?;
    Ok(())
}

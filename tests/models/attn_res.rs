//! Attention Residuals.

use kernel_abi::DType;
use kernel_tests::k3;
use kimi_k3::reference;
use libtest_mimic::Trial;

use super::support::{check, scaled, trial};

/// The tests of this family.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (m, h, blocks) in
        [(2, 256, 1), (1, 256, 3), (8, 256, 2), (1, 7168, 0), (1, 7168, 3), (2, 7168, 8)]
    {
        let name = format!("attn_res_norm H={h} NB={blocks} M={m}");
        trials.push(trial(name, move || attn_res_norm(m, h, blocks, 0)));
    }
    trials.push(trial("attn_res_norm H=7168 NB=8 M=1 ROUND_FIRST=1".to_owned(), || {
        attn_res_norm(1, 7168, 8, 1)
    }));
    trials
}

fn attn_res_norm(m: usize, h: usize, blocks: usize, round_first: i64) -> Result<(), String> {
    let bind =
        [("M", m as i64), ("H", h as i64), ("NB", blocks as i64), ("ROUND_FIRST", round_first)];
    let built = k3::build("attn_res_norm.tile", "attn_res_norm", &bind)?;
    // Scores of the order of 1, so that every source has weight.
    let wnp = scaled(DType::F32, h, 99, 2.0 / (h as f64).sqrt())?;
    let memory = k3::memory(&built, vec![("wnp", wnp)], &[("eps", 1e-5)])?;
    check(&built, memory, |a| {
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

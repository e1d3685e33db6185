//! Attention Residuals: the softmax mix of block snapshots and the running prefix.

/// h = sum of a_s v_s over the `sources` (snapshots first, prefix last), a = softmax of
/// z_s = (v_s . wnp) * rsqrt(mean(v_s^2) + eps), wnp = norm weight * projection.
///
/// Each source is one token's row; `wnp` has the same length. Returns the weights a and the mix h.
pub fn mix(sources: &[&[f64]], wnp: &[f64], eps: f64) -> (Vec<f64>, Vec<f64>) {
    let scores: Vec<f64> = sources
        .iter()
        .map(|v| {
            let dot: f64 = v.iter().zip(wnp).map(|(a, b)| a * b).sum();
            let mean = v.iter().map(|a| a * a).sum::<f64>() / v.len() as f64;
            dot / (mean + eps).sqrt()
        })
        .collect();
    let weights = super::pointwise::softmax(&scores, 1.0);
    let mut h = vec![0.0; wnp.len()];
    for (source, weight) in sources.iter().zip(&weights) {
        for (out, v) in h.iter_mut().zip(*source) {
            *out += weight * v;
        }
    }
    (weights, h)
}

//! RMSNorm.

/// x * rsqrt(mean(x^2) + eps) * gamma over one row of any length.
pub fn rms_norm(x: &[f64], gamma: &[f64], eps: f64) -> Vec<f64> {
    let mean = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
    let r = 1.0 / (mean + eps).sqrt();
    x.iter().zip(gamma).map(|(v, g)| v * r * g).collect()
}

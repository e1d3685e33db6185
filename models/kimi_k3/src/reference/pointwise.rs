//! Softmax and activations.

/// exp(scale * (x - max)) / sum; an empty row stays empty.
pub fn softmax(x: &[f64], scale: f64) -> Vec<f64> {
    let top = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let e: Vec<f64> = x.iter().map(|v| ((v - top) * scale).exp()).collect();
    let sum: f64 = e.iter().sum();
    e.into_iter().map(|v| v / sum).collect()
}

/// gate * sigmoid(gate) * up.
pub fn silu_gate(gate: f64, up: f64) -> f64 {
    gate / (1.0 + (-gate).exp()) * up
}

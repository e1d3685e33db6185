//! Softmax and activations.

/// exp(scale * (x - max)) / sum; an empty row stays empty.
pub fn softmax(x: &[f64], scale: f64) -> Vec<f64> {
    let top = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let e: Vec<f64> = x.iter().map(|v| ((v - top) * scale).exp()).collect();
    let sum: f64 = e.iter().sum();
    e.into_iter().map(|v| v / sum).collect()
}

/// 1 / (1 + e^-x).
pub fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// x * sigmoid(x).
pub fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

/// gate * sigmoid(gate) * up.
pub fn silu_gate(gate: f64, up: f64) -> f64 {
    silu(gate) * up
}

/// The bounds of SiTU: `activation_situ_beta` and `activation_situ_linear_beta` of the configuration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Situ {
    /// Bound of the gate, 4 in K3.
    pub beta: f64,
    /// Bound of the linear part, 25 in K3.
    pub linear_beta: f64,
}

impl Situ {
    /// beta tanh(gate / beta) * sigmoid(gate) * linear_beta tanh(up / linear_beta) (official modelling code).
    pub fn gate(self, gate: f64, up: f64) -> f64 {
        let bounded = self.beta * (gate / self.beta).tanh();
        bounded * sigmoid(gate) * self.linear_beta * (up / self.linear_beta).tanh()
    }
}

//! Kimi Delta Attention, one token of one request: convolution, decay, recurrent update, gated norm.
//!
//! Letters: H heads, D their width (keys and values alike), C = 3 * H * D channels of the convolution in the
//! order q | k | v, each heads-major. Formulas: official modelling code of the model, Kimi Delta Attention.

use super::norm::rms_norm;
use super::pointwise::{sigmoid, silu};

/// Taps of the causal convolution.
pub const TAPS: usize = 4;

/// Raw inputs that the convolution remembers between tokens.
pub const WINDOW: usize = TAPS - 1;

/// Constant inside the root when queries and keys are normalised.
const UNIT_EPS: f64 = 1.0e-6;

/// One step of the causal convolution with SiLU.
///
/// `weight` [C, 4], tap 0 oldest; `window` [3, C], oldest first: the raw inputs of the three tokens before,
/// shifted by one afterwards so that `x` is its last row; `x` `[C]`. Returns y `[C]`,
/// y_c = silu(sum over taps of weight[c, tap] * (window, x)[tap, c]).
pub fn conv_step(weight: &[f64], window: &mut [f64], x: &[f64]) -> Vec<f64> {
    let channels = x.len();
    assert_eq!((weight.len(), window.len()), (channels * TAPS, channels * WINDOW));
    let mut y = vec![0.0; channels];
    for c in 0..channels {
        let mut sum = weight[c * TAPS + WINDOW] * x[c];
        for tap in 0..WINDOW {
            sum += weight[c * TAPS + tap] * window[tap * channels + c];
        }
        y[c] = silu(sum);
    }
    window.copy_within(channels.., 0);
    window[(WINDOW - 1) * channels..].copy_from_slice(x);
    y
}

/// The logarithm of the decay: lower * sigmoid(exp(a_log`[h]`) * (f`[h, d]` + dt_bias`[h, d]`)).
///
/// `a_log` `[H]`, `dt_bias` `[H, D]`, `f` `[H, D]`; `lower` is the gate's lower bound (-5). Returns `[H, D]`; the decay
/// itself is e to that, in (e^lower, 1).
pub fn log_decay(a_log: &[f64], dt_bias: &[f64], f: &[f64], lower: f64) -> Vec<f64> {
    assert_eq!(dt_bias.len(), f.len());
    let width = f.len() / a_log.len();
    (0..f.len()).map(|i| lower * sigmoid(a_log[i / width].exp() * (f[i] + dt_bias[i]))).collect()
}

/// [`log_decay`] to the power of e, and beta = sigmoid(b) `[H]`: both results of the gate.
pub fn gate(
    a_log: &[f64],
    dt_bias: &[f64],
    f: &[f64],
    b: &[f64],
    lower: f64,
) -> (Vec<f64>, Vec<f64>) {
    let decay = log_decay(a_log, dt_bias, f, lower).into_iter().map(f64::exp).collect();
    (decay, b.iter().map(|&b| sigmoid(b)).collect())
}

/// x / sqrt(sum x^2 + 1e-6): one head's query or key, any length.
pub fn unit(x: &[f64]) -> Vec<f64> {
    let r = 1.0 / (x.iter().map(|v| v * v).sum::<f64>() + UNIT_EPS).sqrt();
    x.iter().map(|v| v * r).collect()
}

/// Queries, keys and values of one token after the convolution, [H, D] each.
#[derive(Debug, Clone, PartialEq)]
pub struct Heads {
    /// Normalised, times D^-0.5.
    pub q: Vec<f64>,
    /// Normalised.
    pub k: Vec<f64>,
    /// As the convolution left them.
    pub v: Vec<f64>,
}

/// Cuts `y` [3, H, D], the result of [`conv_step`], and normalises queries and keys of `heads` heads.
pub fn heads(y: &[f64], heads: usize) -> Heads {
    let part = y.len() / 3;
    let width = part / heads;
    let units = |part: &[f64], scale: f64| -> Vec<f64> {
        part.chunks(width).flat_map(unit).map(|v| v * scale).collect()
    };
    Heads {
        q: units(&y[..part], (width as f64).powf(-0.5)),
        k: units(&y[part..2 * part], 1.0),
        v: y[2 * part..].to_vec(),
    }
}

/// What one token of the recurrence gives, [H, D] each.
#[derive(Debug, Clone, PartialEq)]
pub struct Update {
    /// The corrected values u = beta * (v - S k), with S already decayed.
    pub u: Vec<f64>,
    /// The reading o = S q, with S already updated.
    pub o: Vec<f64>,
}

/// The gated delta rule: S <- S * decay along keys; u = beta (v - S k); S <- S + u k^T; o = S q.
///
/// `state` `[H, D values, D keys]` is updated in place; `heads` `[H, D]` each; `decay` `[H, D]` along keys; `beta` `[H]`.
pub fn update(state: &mut [f64], heads: &Heads, decay: &[f64], beta: &[f64]) -> Update {
    let count = beta.len();
    let width = heads.v.len() / count;
    assert_eq!(state.len(), count * width * width);
    assert_eq!(decay.len(), count * width);
    let mut result = Update { u: vec![0.0; count * width], o: vec![0.0; count * width] };
    for h in 0..count {
        let (q, k) = (&heads.q[h * width..][..width], &heads.k[h * width..][..width]);
        for v in 0..width {
            let row = &mut state[(h * width + v) * width..][..width];
            let mut read = 0.0;
            for d in 0..width {
                row[d] *= decay[h * width + d];
                read += row[d] * k[d];
            }
            let u = beta[h] * (heads.v[h * width + v] - read);
            let mut o = 0.0;
            for d in 0..width {
                row[d] += u * k[d];
                o += row[d] * q[d];
            }
            result.u[h * width + v] = u;
            result.o[h * width + v] = o;
        }
    }
    result
}

/// [`heads`] and [`update`] together: from `y` `[3, H, D]`, `decay` `[H, D]` and `beta` `[H]` to o `[H, D]`, with `state`
/// [H, D, D] updated in place.
pub fn recurrence(state: &mut [f64], y: &[f64], decay: &[f64], beta: &[f64]) -> Vec<f64> {
    update(state, &heads(y, beta.len()), decay, beta).o
}

/// RMSNorm over each head of `o` `[H, D]` times `gamma` `[D]`, times sigmoid of `g` `[H, D]`. Returns `[H, D]`.
pub fn gated_norm(o: &[f64], gamma: &[f64], g: &[f64], eps: f64) -> Vec<f64> {
    let normed = o.chunks(gamma.len()).flat_map(|head| rms_norm(head, gamma, eps));
    normed.zip(g).map(|(v, &g)| v * sigmoid(g)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_moves_by_one_token() {
        // Two channels; tap 0 is the oldest.
        let weight = [1.0, 10.0, 100.0, 1000.0, 0.0, 0.0, 0.0, 1.0];
        let mut window = [1.0, -1.0, 2.0, -2.0, 3.0, -3.0];
        let y = conv_step(&weight, &mut window, &[4.0, 0.5]);
        assert_eq!(y, [4321.0, silu(0.5)]);
        assert_eq!(window, [2.0, -2.0, 3.0, -3.0, 4.0, 0.5]);
    }

    #[test]
    fn a_decay_stays_between_its_bounds() {
        let f = [-1e3, 0.0, 1e3, 0.0];
        let log = log_decay(&[0.0, 1.0], &[0.0, 0.0, 0.0, 0.5], &f, -5.0);
        assert!(log[0].abs() < 1e-12 && log[1] == -2.5 && log[2] == -5.0, "{log:?}");
        assert_eq!(log[3], -5.0 * sigmoid(1f64.exp() * 0.5));
        let (decay, beta) = gate(&[0.0], &[0.0; 4], &f, &[0.0], -5.0);
        assert_eq!((decay[1], beta[0]), ((-2.5f64).exp(), 0.5));
    }

    #[test]
    fn a_stored_value_is_read_back_by_its_key() {
        // beta = 1 and no decay: what is written under a unit key is read by it, whatever was there.
        let heads =
            Heads { q: vec![0.0, 1.0, 0.0], k: vec![0.0, 1.0, 0.0], v: vec![5.0, 6.0, 7.0] };
        let mut state = [0.3; 9];
        let update = update(&mut state, &heads, &[1.0; 3], &[1.0]);
        assert_eq!(update.o, [5.0, 6.0, 7.0]);
        assert_eq!(update.u, [4.7, 5.7, 6.7]);
        assert_eq!(state[..3], [0.3, 5.0, 0.3]);
    }

    #[test]
    fn decay_is_along_keys_and_before_the_reading() {
        let heads = Heads { q: vec![1.0, 1.0], k: vec![1.0, 0.0], v: vec![0.0, 1.0] };
        let mut state = [2.0, 4.0, 6.0, 8.0];
        let update = update(&mut state, &heads, &[0.5, 0.25], &[0.5]);
        // After the decay: [[1, 1], [3, 2]].
        assert_eq!(update.u, [-0.5, -1.0]);
        assert_eq!(state, [0.5, 1.0, 2.0, 2.0]);
        assert_eq!(update.o, [1.5, 4.0]);
    }

    #[test]
    fn the_gated_norm_takes_each_head_alone() {
        let out = gated_norm(&[3.0, 3.0, 0.5, 0.5], &[1.0, 2.0], &[0.0; 4], 0.0);
        assert_eq!(out, [0.5, 1.0, 0.5, 1.0]);
    }
}

//! The latent mixture of experts: routing, packed experts, and the layer as a whole.
//!
//! Letters: E experts, K picks a token, Z width of the latent, I width of an expert. Formulas: official
//! modelling code of the model (sigmoid router of type `noaux_tc`, latent experts, SiTU).

use kernel_abi::numeric::{e2m1, ue8m0};

use super::gemv::gemv;
use super::norm::rms_norm;
use super::pointwise::{Situ, sigmoid};

/// Added to the sum of the picked scores.
const SUM_EPS: f64 = 1.0e-20;

/// Elements that share one scale.
pub const GROUP: usize = 32;

/// What the router decides for one token.
#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    /// sigmoid of every logit, `[E]`; a NaN counts as 0.
    pub scores: Vec<f64>,
    /// The picked experts, best first, `[K]`.
    pub ids: Vec<usize>,
    /// Their weights, `[K]`.
    pub weights: Vec<f64>,
}

/// The `picks` greatest of score + bias, ties to the lower id; weights are score / (sum + 1e-20) * factor.
///
/// `logits` `[E]`; `bias` `[E]` serves the selection alone. A score that is NaN counts as 0.
pub fn route(logits: &[f64], bias: &[f64], picks: usize, factor: f64) -> Route {
    let scores: Vec<f64> = logits
        .iter()
        .map(|&z| sigmoid(z))
        .map(|score| if score.is_nan() { 0.0 } else { score })
        .collect();
    let mut ids: Vec<usize> = (0..scores.len()).collect();
    // A bias that is NaN never wins; adding 0 makes one zero of the two.
    let key = |id: usize| match scores[id] + bias[id] + 0.0 {
        key if key.is_nan() => f64::NEG_INFINITY,
        key => key,
    };
    // The sort is stable, so that equal keys stay in the order of ids.
    ids.sort_by(|&a, &b| key(b).total_cmp(&key(a)));
    ids.truncate(picks);
    let sum: f64 = ids.iter().map(|&id| scores[id]).sum();
    let weights = ids.iter().map(|&id| scores[id] / (sum + SUM_EPS) * factor).collect();
    Route { scores, ids, weights }
}

/// The picks of all tokens by expert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Groups {
    /// Distinct experts, in the order of first picks.
    pub active: Vec<usize>,
    /// Picks of each of them, ascending.
    pub members: Vec<Vec<usize>>,
}

/// Groups `ids`, one entry a pick, by expert.
pub fn group(ids: &[usize]) -> Groups {
    let mut groups = Groups { active: Vec::new(), members: Vec::new() };
    for (pick, id) in ids.iter().enumerate() {
        match groups.active.iter().position(|known| known == id) {
            Some(at) => groups.members[at].push(pick),
            None => {
                groups.active.push(*id);
                groups.members.push(vec![pick]);
            }
        }
    }
    groups
}

/// The values of a packed matrix: code times the scale of its group of 32 along a row.
///
/// `packed` [rows, cols / 2], two codes of e2m1 a byte, the even column in the low nibble; `scales`
/// [rows, cols / 32], codes of ue8m0. Returns [rows, cols], exact.
pub fn unpack(packed: &[u8], scales: &[u8], cols: usize) -> Vec<f64> {
    assert_eq!((packed.len() * 2, cols % GROUP), (scales.len() * GROUP, 0));
    (0..packed.len() * 2)
        .map(|i| {
            let byte = packed[i / 2];
            let code = if i % 2 == 0 { byte & 0xf } else { byte >> 4 };
            f64::from(e2m1::to_f32(code)) * f64::from(ue8m0::to_f32(scales[i / GROUP]))
        })
        .collect()
}

/// One expert with its weights as numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Expert {
    /// Gate, [I, Z].
    pub w1: Vec<f64>,
    /// Back to the latent, [Z, I].
    pub w2: Vec<f64>,
    /// Linear part, [I, Z].
    pub w3: Vec<f64>,
}

impl Expert {
    /// SiTU(w1 z, w3 z): `z` `[Z]` to `[I]`.
    pub fn activation(&self, z: &[f64], situ: Situ) -> Vec<f64> {
        let width = self.w1.len() / z.len();
        let gate = gemv(&self.w1, z, 1, width, z.len());
        let up = gemv(&self.w3, z, 1, width, z.len());
        gate.iter().zip(&up).map(|(&g, &u)| situ.gate(g, u)).collect()
    }

    /// w2 SiTU(w1 z, w3 z): `z` `[Z]` to `[Z]`.
    pub fn output(&self, z: &[f64], situ: Situ) -> Vec<f64> {
        let activation = self.activation(z, situ);
        gemv(&self.w2, &activation, 1, z.len(), activation.len())
    }
}

/// sum over picks of weight * output, in the order of picks: `outputs` `[K, Z]`, `weights` `[K]`, result `[Z]`.
pub fn weighted_sum(outputs: &[f64], weights: &[f64]) -> Vec<f64> {
    let width = outputs.len() / weights.len();
    let mut sum = vec![0.0; width];
    for (output, weight) in outputs.chunks(width).zip(weights) {
        for (s, o) in sum.iter_mut().zip(output) {
            *s += weight * o;
        }
    }
    sum
}

/// A dense MLP: down SiTU(gate x, up x).
///
/// `gate`, `up` `[I, X]`, `down` `[Y, I]`, `x` `[X]`. Returns `[Y]`.
pub fn mlp(gate: &[f64], up: &[f64], down: &[f64], x: &[f64], situ: Situ) -> Vec<f64> {
    let inner = gate.len() / x.len();
    let g = gemv(gate, x, 1, inner, x.len());
    let u = gemv(up, x, 1, inner, x.len());
    let activation: Vec<f64> = g.iter().zip(&u).map(|(&g, &u)| situ.gate(g, u)).collect();
    gemv(down, &activation, 1, down.len() / inner, inner)
}

/// The weights of the routed side of a latent layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Latent<'a> {
    /// Into the latent, [Z, hidden].
    pub down: &'a [f64],
    /// Norm of the summed experts, `[Z]`.
    pub norm: &'a [f64],
    /// Back, [hidden, Z].
    pub up: &'a [f64],
    /// Constant inside the root of the norm.
    pub eps: f64,
}

/// What the routed side computes for one token.
#[derive(Debug, Clone, PartialEq)]
pub struct Routed {
    /// down x, `[Z]`.
    pub latent: Vec<f64>,
    /// The output of each pick, [K, Z].
    pub expert_out: Vec<f64>,
    /// Their weighted sum, `[Z]`.
    pub latent_sum: Vec<f64>,
    /// RMSNorm of the sum, `[Z]`.
    pub latent_norm: Vec<f64>,
    /// up of the norm, `[hidden]`.
    pub out: Vec<f64>,
}

/// up RMSNorm(sum of weight_e * expert_e(down x)): `x` `[hidden]`; `expert` gives each pick's weights.
pub fn routed<'e>(
    x: &[f64],
    latent: Latent<'_>,
    route: &Route,
    situ: Situ,
    expert: impl Fn(usize) -> &'e Expert,
) -> Routed {
    let width = latent.norm.len();
    let z = gemv(latent.down, x, 1, width, x.len());
    let expert_out: Vec<f64> =
        route.ids.iter().flat_map(|&id| expert(id).output(&z, situ)).collect();
    let latent_sum = weighted_sum(&expert_out, &route.weights);
    let latent_norm = rms_norm(&latent_sum, latent.norm, latent.eps);
    let out = gemv(latent.up, &latent_norm, 1, x.len(), width);
    Routed { latent: z, expert_out, latent_sum, latent_norm, out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bias_picks_and_does_not_weigh() {
        let route = route(&[0.0, 0.0, 2.0, -1.0], &[0.0, 0.1, 0.0, 10.0], 3, 2.0);
        assert_eq!(route.ids, [3, 2, 1]);
        let sum: f64 = route.weights.iter().sum();
        assert!((sum - 2.0).abs() < 1e-15);
        assert_eq!(route.weights[1] / route.weights[2], sigmoid(2.0) / 0.5);
    }

    #[test]
    fn ties_go_to_the_lower_id_and_nan_counts_as_zero() {
        assert_eq!(route(&[1.0; 6], &[0.0; 6], 3, 1.0).ids, [0, 1, 2]);
        let route = route(&[f64::NAN, -50.0, 1.0, f64::NAN], &[0.0; 4], 3, 1.0);
        assert_eq!(route.ids, [2, 1, 0]);
        assert_eq!((route.scores[0], route.weights[2]), (0.0, 0.0));
    }

    #[test]
    fn the_low_nibble_is_the_even_column() {
        let mut packed = [0u8; 16];
        packed[0] = 0xa1;
        packed[15] = 0x70;
        let values = unpack(&packed, &[128], 32);
        assert_eq!(values[..3], [1.0, -2.0, 0.0]);
        assert_eq!(values[30..], [0.0, 12.0]);
        let two_groups = unpack(&[0x22; 32], &[127, 126], 64);
        assert_eq!((two_groups[31], two_groups[32]), (1.0, 0.5));
    }

    #[test]
    fn situ_is_bounded() {
        let situ = Situ { beta: 4.0, linear_beta: 25.0 };
        assert!((situ.gate(1e3, 1e4) - 100.0).abs() < 1e-9);
        assert_eq!(situ.gate(0.0, 3.0), 0.0);
        let small = situ.gate(1e-4, 1e-4);
        assert!((small / 0.5e-8 - 1.0).abs() < 1e-3);
    }
}

//! The whole model in f64, token by token, without rounding anywhere.
//!
//! The flow of a layer, with p the prefix stream of the token and B its snapshots (official modelling code):
//!
//! 1. h = p where there is no snapshot yet, else the mix of B and p.
//! 2. A layer that opens a block appends p to B and starts p anew.
//! 3. p += Attention(RMSNorm(h)).
//! 4. h = the mix of B and p.
//! 5. p += FFN(RMSNorm(h)).
//!
//! At the end: the mix of B and p, RMSNorm, output projection.

mod weights;

use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::config::{Attention, Config};
use crate::reference::gemv::gemv;
use crate::reference::moe::Latent;
use crate::reference::norm::rms_norm;
use crate::reference::{attn_res, kda, mla, moe};

pub use weights::{AttentionWeights, FfnWeights, KdaWeights, LayerWeights, Mix, MlaWeights};
pub use weights::{MlpWeights, MoeWeights, Weights};

/// Receives intermediate values: layer, name, values. The names are those of the goldens of kimi-k3-mini, without
/// `trace.layerN.`.
pub type Trace<'a> = dyn FnMut(usize, &'static str, &[f64]) + 'a;

/// A model with its weights as numbers.
#[derive(Debug, Clone)]
pub struct Model {
    config: Config,
    weights: Weights,
}

/// What a request remembers between tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// Tokens seen.
    pub tokens: usize,
    /// One a layer.
    pub layers: Vec<LayerState>,
}

/// What a layer remembers between tokens.
#[derive(Debug, Clone, PartialEq)]
pub enum LayerState {
    /// Kimi Delta Attention.
    Kda {
        /// Raw inputs of the convolution, [3, C], oldest first.
        window: Vec<f64>,
        /// The recurrent state, [H, D values, D keys].
        state: Vec<f64>,
    },
    /// Multi-head latent attention.
    Mla {
        /// One row a token, [tokens, L + P].
        rows: Vec<f64>,
    },
}

impl State {
    /// The state before the first token.
    pub fn new(config: &Config) -> State {
        let layer = |attention| match attention {
            Attention::Kda => LayerState::Kda {
                window: vec![0.0; kda::WINDOW * config.kda.channels()],
                state: vec![0.0; config.kda.state_elements()],
            },
            Attention::Mla => LayerState::Mla { rows: Vec::new() },
        };
        State {
            tokens: 0,
            layers: config.layers.iter().map(|kind| layer(kind.attention)).collect(),
        }
    }
}

impl Model {
    /// Widens every weight of a checkpoint to f64. Meant for small models: each parameter takes eight bytes.
    ///
    /// # Errors
    /// A tensor is missing, or of another type or shape than the configuration says.
    pub fn load(config: &Config, checkpoint: &Checkpoint) -> Result<Model, CheckpointError> {
        Ok(Model { config: config.clone(), weights: Weights::load(config, checkpoint)? })
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The weights.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// Takes one token; returns the normalised stream `[hidden]` that [`Model::logits`] reads. `token` must lie in the
    /// vocabulary.
    pub fn step(&self, state: &mut State, token: u32, trace: &mut Trace<'_>) -> Vec<f64> {
        let hidden = self.config.hidden;
        let mut p = self.weights.embed[token as usize * hidden..][..hidden].to_vec();
        let mut blocks: Vec<Vec<f64>> = Vec::new();
        for (at, layer) in self.weights.layers.iter().enumerate() {
            trace(at, "p_in", &p);
            let h = if blocks.is_empty() {
                p.clone()
            } else {
                self.mix(
                    (at, "attn_res_weights"),
                    &sources(&blocks, &p),
                    &layer.attention_mix,
                    trace,
                )
            };
            trace(at, "h_attn", &h);
            if self.config.layers[at].opens_block {
                blocks.push(std::mem::replace(&mut p, vec![0.0; hidden]));
            }
            let x = rms_norm(&h, &layer.input_norm, self.config.norm_eps);
            trace(at, "x_attn", &x);
            let y = self.attention(at, &layer.attention, &mut state.layers[at], &x, trace);
            trace(at, "attn_out", &y);
            add(&mut p, &y);
            trace(at, "p_mid", &p);
            let h = self.mix((at, "mlp_res_weights"), &sources(&blocks, &p), &layer.ffn_mix, trace);
            trace(at, "h_mlp", &h);
            let x = rms_norm(&h, &layer.post_norm, self.config.norm_eps);
            trace(at, "x_mlp", &x);
            let y = self.ffn(at, &layer.ffn, &x, trace);
            trace(at, "ffn_out", &y);
            add(&mut p, &y);
            trace(at, "p_out", &p);
        }
        state.tokens += 1;
        let (_, h) = attn_res::mix(
            &sources(&blocks, &p),
            &self.weights.output_mix.wnp,
            self.config.norm_eps,
        );
        rms_norm(&h, &self.weights.norm, self.config.norm_eps)
    }

    /// The mix of Attention Residuals; traces the share of each source under a layer and name.
    fn mix(
        &self,
        (layer, name): (usize, &'static str),
        sources: &[&[f64]],
        weights: &Mix,
        trace: &mut Trace<'_>,
    ) -> Vec<f64> {
        let (shares, h) = attn_res::mix(sources, &weights.wnp, self.config.norm_eps);
        trace(layer, name, &shares);
        h
    }

    /// The logits `[vocab]` of what [`Model::step`] returned.
    pub fn logits(&self, x: &[f64]) -> Vec<f64> {
        project(&self.weights.lm_head, x)
    }

    fn attention(
        &self,
        at: usize,
        weights: &AttentionWeights,
        state: &mut LayerState,
        x: &[f64],
        trace: &mut Trace<'_>,
    ) -> Vec<f64> {
        match (weights, state) {
            (AttentionWeights::Kda(weights), LayerState::Kda { window, state }) => {
                self.kda(at, weights, window, state, x, trace)
            }
            (AttentionWeights::Mla(weights), LayerState::Mla { rows }) => {
                self.mla(at, weights, rows, x, trace)
            }
            (AttentionWeights::Kda(_), LayerState::Mla { .. })
            | (AttentionWeights::Mla(_), LayerState::Kda { .. }) => {
                panic!("the state belongs to another model")
            }
        }
    }

    fn kda(
        &self,
        at: usize,
        weights: &KdaWeights,
        window: &mut [f64],
        state: &mut [f64],
        x: &[f64],
        trace: &mut Trace<'_>,
    ) -> Vec<f64> {
        let sizes = self.config.kda;
        let mut raw = Vec::with_capacity(sizes.channels());
        for (name, weight) in [("q_raw", &weights.q), ("k_raw", &weights.k), ("v_raw", &weights.v)]
        {
            let part = project(weight, x);
            trace(at, name, &part);
            raw.extend(part);
        }
        let g_out = project(&weights.g, x);
        trace(at, "g_out", &g_out);
        let f_a = project(&weights.f_a, x);
        trace(at, "f_a", &f_a);
        let f = project(&weights.f_b, &f_a);
        trace(at, "f", &f);
        let b = project(&weights.b, x);
        trace(at, "b", &b);
        let y = kda::conv_step(&weights.conv, window, &raw);
        trace(at, "conv_out", &y);
        let heads = kda::heads(&y, sizes.heads);
        trace(at, "q", &heads.q);
        trace(at, "k", &heads.k);
        trace(at, "v", &heads.v);
        let bound = sizes.gate_lower_bound;
        trace(at, "log_decay", &kda::log_decay(&weights.a_log, &weights.dt_bias, &f, bound));
        let (decay, beta) = kda::gate(&weights.a_log, &weights.dt_bias, &f, &b, bound);
        trace(at, "beta", &beta);
        let update = kda::update(state, &heads, &decay, &beta);
        trace(at, "u", &update.u);
        trace(at, "state", state);
        trace(at, "o_state", &update.o);
        let gated = kda::gated_norm(&update.o, &weights.o_norm, &g_out, self.config.norm_eps);
        trace(at, "o_gated", &gated);
        project(&weights.o, &gated)
    }

    fn mla(
        &self,
        at: usize,
        weights: &MlaWeights,
        rows: &mut Vec<f64>,
        x: &[f64],
        trace: &mut Trace<'_>,
    ) -> Vec<f64> {
        let (sizes, eps) = (self.config.mla, self.config.latent_norm_eps);
        let c_q_raw = project(&weights.q_a, x);
        trace(at, "c_q_raw", &c_q_raw);
        let c_q = rms_norm(&c_q_raw, &weights.q_a_norm, eps);
        trace(at, "c_q", &c_q);
        let q = project(&weights.q_b, &c_q);
        trace(at, "q", &q);
        let kv_a = project(&weights.kv_a, x);
        trace(at, "kv_a", &kv_a);
        let row = mla::cache_row(&kv_a, &weights.kv_a_norm, eps);
        trace(at, "c_tilde", &row[..sizes.kv_lora]);
        trace(at, "k_pe", &row[sizes.kv_lora..]);
        rows.extend(row);
        let absorbed = mla::absorb(&weights.up.wuk, &q, sizes.heads, sizes.nope);
        let heads = absorbed.chunks(sizes.cache_width());
        let latent_part = |head: &[f64]| head[..sizes.kv_lora].to_vec();
        trace(at, "q_latent", &heads.clone().flat_map(latent_part).collect::<Vec<f64>>());
        let (mut probabilities, mut latents) = (Vec::new(), Vec::new());
        for head in heads {
            let reading = mla::attend(head, rows, sizes.kv_lora, sizes.scale());
            probabilities.extend(reading.probabilities);
            latents.extend(reading.o);
        }
        trace(at, "attn_probs", &probabilities);
        let o = mla::value(&weights.up.wuv, &latents, sizes.heads);
        trace(at, "o", &o);
        let gate = project(&weights.g, x);
        trace(at, "gate", &gate);
        let gated = mla::output_gate(&o, &gate);
        trace(at, "o_gated", &gated);
        project(&weights.o, &gated)
    }

    fn ffn(&self, at: usize, weights: &FfnWeights, x: &[f64], trace: &mut Trace<'_>) -> Vec<f64> {
        let situ = self.config.situ;
        let mlp = |mlp: &MlpWeights| moe::mlp(&mlp.gate, &mlp.up, &mlp.down, x, situ);
        let weights = match weights {
            FfnWeights::Dense(weights) => return mlp(weights),
            FfnWeights::Moe(weights) => weights,
        };
        let sizes = self.config.moe;
        let logits = project(&weights.gate, x);
        trace(at, "router_logits", &logits);
        let route = moe::route(&logits, &weights.bias, sizes.picks, sizes.scaling);
        trace(at, "router_scores", &route.scores);
        let picked: Vec<f64> = route.ids.iter().map(|&id| id as f64).collect();
        trace(at, "picked", &picked);
        trace(at, "weights", &route.weights);
        let latent = Latent {
            down: &weights.down,
            norm: &weights.norm,
            up: &weights.up,
            eps: self.config.norm_eps,
        };
        let routed = moe::routed(x, latent, &route, situ, |id| &weights.experts[id]);
        trace(at, "latent", &routed.latent);
        trace(at, "expert_out", &routed.expert_out);
        trace(at, "latent_sum", &routed.latent_sum);
        trace(at, "latent_norm", &routed.latent_norm);
        trace(at, "routed_out", &routed.out);
        let mut out = mlp(&weights.shared);
        trace(at, "shared_out", &out);
        add(&mut out, &routed.out);
        out
    }
}

/// One matrix [n, k] times one vector [k].
fn project(weight: &[f64], x: &[f64]) -> Vec<f64> {
    gemv(weight, x, 1, weight.len() / x.len(), x.len())
}

fn add(sum: &mut [f64], term: &[f64]) {
    for (sum, term) in sum.iter_mut().zip(term) {
        *sum += term;
    }
}

/// What a mix reads: the snapshots, then the prefix.
fn sources<'a>(blocks: &'a [Vec<f64>], p: &'a [f64]) -> Vec<&'a [f64]> {
    blocks.iter().map(Vec::as_slice).chain([p]).collect()
}

//! A DSpark drafter in f64: several tokens proposed in one pass, without rounding.
//!
//! It reads the prefix streams of its target at some layers. Joined, projected and normed, they are its context: each
//! of its layers turns a position of it into a row of a latent cache. The rows of a step are the last token and masks;
//! they attend to the context and to each other, both ways. Row i proposes the token after its own position; a bias by
//! the token before makes the proposals depend on each other (public descriptions of DSpark; vLLM's model of it).

use kernel_abi::DType;

use super::gemv::gemv;
use super::mla::{UpProjections, absorb, attend, cache_row, split_kv_b, value};
use super::model::{MlpWeights, Model};
use super::norm::rms_norm;
use super::pointwise::silu_gate;
use super::select::argmax;
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::config::{Config, DraftConfig};
use crate::names::draft as names;

/// A drafter with its weights as numbers.
#[derive(Debug, Clone)]
pub struct Draft {
    config: DraftConfig,
    /// [hidden, taps * hidden].
    context: Vec<f64>,
    /// [hidden].
    context_norm: Vec<f64>,
    layers: Vec<DraftLayer>,
    /// [hidden].
    final_norm: Vec<f64>,
    /// [vocab, rank].
    markov_w1: Vec<f64>,
    /// [vocab, rank].
    markov_w2: Vec<f64>,
}

#[derive(Debug, Clone)]
struct DraftLayer {
    input_norm: Vec<f64>,
    q_a: Vec<f64>,
    q_a_norm: Vec<f64>,
    q_b: Vec<f64>,
    kv_a: Vec<f64>,
    kv_a_norm: Vec<f64>,
    up: UpProjections,
    o: Vec<f64>,
    post_norm: Vec<f64>,
    mlp: MlpWeights,
}

/// The latent caches of a request, one a layer: [positions, L + P], keys rotated.
#[derive(Debug, Clone, PartialEq)]
pub struct Context {
    /// One a layer.
    pub rows: Vec<Vec<f64>>,
    /// Positions so far.
    pub positions: usize,
}

/// What one step proposes.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    /// The stream before the last norm, [drafts, hidden].
    pub hidden: Vec<f64>,
    /// Logits with their bias, [drafts, vocab].
    pub logits: Vec<f64>,
    /// The best token of each row.
    pub ids: Vec<u32>,
}

impl Draft {
    /// Widens every weight of a drafter's checkpoint to f64.
    ///
    /// # Errors
    /// A tensor is missing, or of another type or shape than the configuration says.
    pub fn load(
        config: &DraftConfig,
        target: &Config,
        checkpoint: &Checkpoint,
    ) -> Result<Draft, CheckpointError> {
        let read = |name: &str, shape: &[usize]| {
            Ok(checkpoint.expect_finite(name, DType::Bf16, shape)?.to_f64())
        };
        let (hidden, width, mla) = (config.hidden, config.dense_width, config.mla);
        let layer = |at: usize| {
            let kv_b = [mla.heads * (mla.nope + mla.value), mla.kv_lora];
            let queries = mla.heads * mla.query_width();
            Ok(DraftLayer {
                input_norm: read(&names::input_layernorm(at), &[hidden])?,
                q_a: read(&names::q_a_proj(at), &[mla.q_lora, hidden])?,
                q_a_norm: read(&names::q_a_layernorm(at), &[mla.q_lora])?,
                q_b: read(&names::q_b_proj(at), &[queries, mla.q_lora])?,
                kv_a: read(&names::kv_a_proj(at), &[mla.cache_width(), hidden])?,
                kv_a_norm: read(&names::kv_a_layernorm(at), &[mla.kv_lora])?,
                up: split_kv_b(
                    &read(&names::kv_b_proj(at), &kv_b)?,
                    mla.heads,
                    mla.nope,
                    mla.value,
                ),
                o: read(&names::o_proj(at), &[hidden, mla.heads * mla.value])?,
                post_norm: read(&names::post_attention_layernorm(at), &[hidden])?,
                mlp: MlpWeights {
                    gate: read(&names::gate_proj(at), &[width, hidden])?,
                    up: read(&names::up_proj(at), &[width, hidden])?,
                    down: read(&names::down_proj(at), &[hidden, width])?,
                },
            })
        };
        let markov = [target.vocab, config.markov_rank];
        Ok(Draft {
            context: read(names::CONTEXT_PROJ, &[hidden, config.taps.len() * hidden])?,
            context_norm: read(names::CONTEXT_NORM, &[hidden])?,
            layers: (0..config.layers).map(layer).collect::<Result<_, _>>()?,
            final_norm: read(names::FINAL_NORM, &[hidden])?,
            markov_w1: read(names::MARKOV_W1, &markov)?,
            markov_w2: read(names::MARKOV_W2, &markov)?,
            config: config.clone(),
        })
    }

    /// A context without positions.
    pub fn context(&self) -> Context {
        Context { rows: vec![Vec::new(); self.layers.len()], positions: 0 }
    }

    /// Adds a position: `taps` [taps * hidden], the target's streams there.
    pub fn extend(&self, context: &mut Context, taps: &[f64]) {
        let x = gemv(&self.context, taps, 1, self.config.hidden, taps.len());
        let x = rms_norm(&x, &self.context_norm, self.config.norm_eps);
        for (layer, rows) in self.layers.iter().zip(&mut context.rows) {
            rows.extend(self.row(layer, &x, context.positions));
        }
        context.positions += 1;
    }

    /// Proposes the tokens after `anchor`, the last token, which stands behind the context.
    pub fn propose(&self, target: &Model, context: &Context, anchor: u32) -> Proposal {
        let (hidden, eps) = (self.config.hidden, self.config.norm_eps);
        let embed = |id: u32| target.weights().embed[id as usize * hidden..][..hidden].to_vec();
        let mut stream: Vec<Vec<f64>> = vec![embed(self.config.mask); self.config.drafts];
        stream[0] = embed(anchor);
        for (layer, known) in self.layers.iter().zip(&context.rows) {
            let inputs: Vec<Vec<f64>> =
                stream.iter().map(|h| rms_norm(h, &layer.input_norm, eps)).collect();
            let mut rows = known.clone();
            for (position, x) in (context.positions..).zip(&inputs) {
                rows.extend(self.row(layer, x, position));
            }
            for ((position, x), h) in (context.positions..).zip(&inputs).zip(&mut stream) {
                add(h, &self.attention(layer, &rows, x, position));
                let x = rms_norm(h, &layer.post_norm, eps);
                add(h, &mlp(&layer.mlp, &x));
            }
        }
        self.choose(target, &stream, anchor)
    }

    /// The best tokens from left to right, each biased by the one before.
    fn choose(&self, target: &Model, stream: &[Vec<f64>], anchor: u32) -> Proposal {
        let rank = self.config.markov_rank;
        let mut proposal =
            Proposal { hidden: stream.concat(), logits: Vec::new(), ids: Vec::new() };
        let mut before = anchor;
        for h in stream {
            let x = rms_norm(h, &self.final_norm, self.config.norm_eps);
            let mut logits = target.logits(&x);
            let embedding = &self.markov_w1[before as usize * rank..][..rank];
            let bias = gemv(&self.markov_w2, embedding, 1, logits.len(), rank);
            add(&mut logits, &bias);
            let (_, best) = argmax(&logits);
            before = u32::try_from(best).expect("the vocabulary is smaller than 2^32");
            proposal.ids.push(before);
            proposal.logits.append(&mut logits);
        }
        proposal
    }

    /// The cache row of a position.
    fn row(&self, layer: &DraftLayer, x: &[f64], position: usize) -> Vec<f64> {
        let mla = self.config.mla;
        let kv_a = gemv(&layer.kv_a, x, 1, mla.cache_width(), x.len());
        let mut row = cache_row(&kv_a, &layer.kv_a_norm, self.config.norm_eps);
        rotate(&mut row[mla.kv_lora..], position, self.config.rope_theta);
        row
    }

    fn attention(&self, layer: &DraftLayer, rows: &[f64], x: &[f64], position: usize) -> Vec<f64> {
        let mla = self.config.mla;
        let c_q = gemv(&layer.q_a, x, 1, mla.q_lora, x.len());
        let c_q = rms_norm(&c_q, &layer.q_a_norm, self.config.norm_eps);
        let mut q = gemv(&layer.q_b, &c_q, 1, mla.heads * mla.query_width(), mla.q_lora);
        for head in q.chunks_mut(mla.query_width()) {
            rotate(&mut head[mla.nope..], position, self.config.rope_theta);
        }
        let absorbed = absorb(&layer.up.wuk, &q, mla.heads, mla.nope);
        let heads = absorbed.chunks(mla.cache_width());
        let latents: Vec<f64> =
            heads.flat_map(|head| attend(head, rows, mla.kv_lora, mla.scale()).o).collect();
        let o = value(&layer.up.wuv, &latents, mla.heads);
        gemv(&layer.o, &o, 1, self.config.hidden, o.len())
    }
}

/// Turns each pair of neighbours by `position` * theta^(-2 i / width).
fn rotate(x: &mut [f64], position: usize, theta: f64) {
    let width = x.len() as f64;
    for (i, pair) in x.chunks_exact_mut(2).enumerate() {
        let angle = position as f64 * theta.powf(-2.0 * i as f64 / width);
        let (sin, cos) = angle.sin_cos();
        let [a, b] = [pair[0], pair[1]];
        pair[0] = a * cos - b * sin;
        pair[1] = a * sin + b * cos;
    }
}

/// down (silu(gate x) * up x).
fn mlp(weights: &MlpWeights, x: &[f64]) -> Vec<f64> {
    let width = weights.gate.len() / x.len();
    let gate = gemv(&weights.gate, x, 1, width, x.len());
    let up = gemv(&weights.up, x, 1, width, x.len());
    let inner: Vec<f64> = gate.iter().zip(&up).map(|(&g, &u)| silu_gate(g, u)).collect();
    gemv(&weights.down, &inner, 1, x.len(), width)
}

fn add(sum: &mut [f64], term: &[f64]) {
    for (sum, term) in sum.iter_mut().zip(term) {
        *sum += term;
    }
}

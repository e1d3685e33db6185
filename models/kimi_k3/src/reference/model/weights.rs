//! The weights of a checkpoint as f64, in its own layouts.

use kernel_abi::DType;

use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::config::{Attention, Config, Ffn, GROUP};
use crate::manifest::expert_shape;
use crate::names;
use crate::names::moe::Matrix;
use crate::reference::kda::TAPS;
use crate::reference::mla::{UpProjections, split_kv_b};
use crate::reference::moe::{Expert, unpack};

/// All weights.
#[derive(Debug, Clone)]
pub struct Weights {
    /// [vocab, hidden].
    pub embed: Vec<f64>,
    /// First to last.
    pub layers: Vec<LayerWeights>,
    /// Before the last norm.
    pub output_mix: Mix,
    /// `[hidden]`.
    pub norm: Vec<f64>,
    /// [vocab, hidden].
    pub lm_head: Vec<f64>,
}

/// One layer.
#[derive(Debug, Clone)]
pub struct LayerWeights {
    /// Before the attention.
    pub attention_mix: Mix,
    /// `[hidden]`.
    pub input_norm: Vec<f64>,
    /// The attention.
    pub attention: AttentionWeights,
    /// Before the feed-forward part.
    pub ffn_mix: Mix,
    /// `[hidden]`.
    pub post_norm: Vec<f64>,
    /// The feed-forward part.
    pub ffn: FfnWeights,
}

/// A mix of Attention Residuals.
#[derive(Debug, Clone)]
pub struct Mix {
    /// Norm weight times projection, `[hidden]`.
    pub wnp: Vec<f64>,
}

/// Either attention.
#[derive(Debug, Clone)]
pub enum AttentionWeights {
    /// Kimi Delta Attention.
    Kda(KdaWeights),
    /// Multi-head latent attention.
    Mla(MlaWeights),
}

/// Kimi Delta Attention.
#[derive(Debug, Clone)]
pub struct KdaWeights {
    /// [H * D, hidden].
    pub q: Vec<f64>,
    /// [H * D, hidden].
    pub k: Vec<f64>,
    /// [H * D, hidden].
    pub v: Vec<f64>,
    /// [H * D, hidden].
    pub g: Vec<f64>,
    /// [H, hidden].
    pub b: Vec<f64>,
    /// [D, hidden].
    pub f_a: Vec<f64>,
    /// [H * D, D].
    pub f_b: Vec<f64>,
    /// q, k, v one after the other: [3 * H * D, 4].
    pub conv: Vec<f64>,
    /// Without padding, `[H]`.
    pub a_log: Vec<f64>,
    /// [H, D].
    pub dt_bias: Vec<f64>,
    /// `[D]`.
    pub o_norm: Vec<f64>,
    /// [hidden, H * D].
    pub o: Vec<f64>,
}

/// Multi-head latent attention.
#[derive(Debug, Clone)]
pub struct MlaWeights {
    /// [q_lora, hidden].
    pub q_a: Vec<f64>,
    /// `[q_lora]`.
    pub q_a_norm: Vec<f64>,
    /// [H * (N + P), q_lora].
    pub q_b: Vec<f64>,
    /// [L + P, hidden].
    pub kv_a: Vec<f64>,
    /// `[L]`.
    pub kv_a_norm: Vec<f64>,
    /// `kv_b_proj` in two halves.
    pub up: UpProjections,
    /// [H * V, hidden].
    pub g: Vec<f64>,
    /// [hidden, H * V].
    pub o: Vec<f64>,
}

/// Either feed-forward part.
#[derive(Debug, Clone)]
pub enum FfnWeights {
    /// One MLP.
    Dense(MlpWeights),
    /// Latent mixture of experts.
    Moe(MoeWeights),
}

/// An MLP.
#[derive(Debug, Clone)]
pub struct MlpWeights {
    /// [width, hidden].
    pub gate: Vec<f64>,
    /// [width, hidden].
    pub up: Vec<f64>,
    /// [hidden, width].
    pub down: Vec<f64>,
}

/// Latent mixture of experts.
#[derive(Debug, Clone)]
pub struct MoeWeights {
    /// [E, hidden].
    pub gate: Vec<f64>,
    /// `[E]`.
    pub bias: Vec<f64>,
    /// [Z, hidden].
    pub down: Vec<f64>,
    /// By id.
    pub experts: Vec<Expert>,
    /// `[Z]`.
    pub norm: Vec<f64>,
    /// [hidden, Z].
    pub up: Vec<f64>,
    /// The shared MLP.
    pub shared: MlpWeights,
}

impl Weights {
    /// Every weight that the configuration names.
    ///
    /// # Errors
    /// A tensor is missing, or of another type or shape.
    pub fn load(config: &Config, checkpoint: &Checkpoint) -> Result<Weights, CheckpointError> {
        let read = Reader { config, checkpoint };
        let (hidden, vocab) = (config.hidden, config.vocab);
        Ok(Weights {
            embed: read.bf16(&names::embed_tokens(), &[vocab, hidden])?,
            layers: (0..config.layers.len()).map(|at| read.layer(at)).collect::<Result<_, _>>()?,
            output_mix: read.mix(&names::output_res_norm(), &names::output_res_proj())?,
            norm: read.bf16(&names::norm(), &[hidden])?,
            lm_head: read.bf16(&names::lm_head(), &[vocab, hidden])?,
        })
    }
}

struct Reader<'a> {
    config: &'a Config,
    checkpoint: &'a Checkpoint,
}

impl Reader<'_> {
    fn bf16(&self, name: &str, shape: &[usize]) -> Result<Vec<f64>, CheckpointError> {
        Ok(self.checkpoint.expect_finite(name, DType::Bf16, shape)?.to_f64())
    }

    fn f32(&self, name: &str, shape: &[usize]) -> Result<Vec<f64>, CheckpointError> {
        Ok(self.checkpoint.expect_finite(name, DType::F32, shape)?.to_f64())
    }

    fn mix(&self, norm: &str, projection: &str) -> Result<Mix, CheckpointError> {
        let norm = self.bf16(norm, &[self.config.hidden])?;
        let projection = self.bf16(projection, &[1, self.config.hidden])?;
        Ok(Mix { wnp: norm.iter().zip(&projection).map(|(a, b)| a * b).collect() })
    }

    fn layer(&self, at: usize) -> Result<LayerWeights, CheckpointError> {
        let norm = [self.config.hidden];
        Ok(LayerWeights {
            attention_mix: self
                .mix(&names::attention_res_norm(at), &names::attention_res_proj(at))?,
            input_norm: self.bf16(&names::input_layernorm(at), &norm)?,
            attention: match self.config.layers[at].attention {
                Attention::Kda => AttentionWeights::Kda(self.kda(at)?),
                Attention::Mla => AttentionWeights::Mla(self.mla(at)?),
            },
            ffn_mix: self.mix(&names::mlp_res_norm(at), &names::mlp_res_proj(at))?,
            post_norm: self.bf16(&names::post_attention_layernorm(at), &norm)?,
            ffn: match self.config.layers[at].ffn {
                Ffn::Dense => {
                    use names::dense::{down_proj, gate_proj, up_proj};
                    let names = [gate_proj(at), up_proj(at), down_proj(at)];
                    FfnWeights::Dense(self.mlp(&names, self.config.dense_width)?)
                }
                Ffn::Moe => FfnWeights::Moe(self.moe(at)?),
            },
        })
    }

    fn kda(&self, at: usize) -> Result<KdaWeights, CheckpointError> {
        use names::kda;
        let (hidden, sizes) = (self.config.hidden, self.config.kda);
        let (heads, dim, width) = (sizes.heads, sizes.head_dim, sizes.width());
        let mut conv = Vec::with_capacity(sizes.channels() * TAPS);
        for name in [kda::q_conv1d, kda::k_conv1d, kda::v_conv1d] {
            conv.extend(self.f32(&name(at), &[width, 1, TAPS])?);
        }
        Ok(KdaWeights {
            q: self.bf16(&kda::q_proj(at), &[width, hidden])?,
            k: self.bf16(&kda::k_proj(at), &[width, hidden])?,
            v: self.bf16(&kda::v_proj(at), &[width, hidden])?,
            g: self.bf16(&names::g_proj(at), &[width, hidden])?,
            b: self.bf16(&kda::b_proj(at), &[heads, hidden])?,
            f_a: self.bf16(&kda::f_a_proj(at), &[dim, hidden])?,
            f_b: self.bf16(&kda::f_b_proj(at), &[width, dim])?,
            conv,
            a_log: self.checkpoint.expect_padded(&kda::a_log(at), heads)?.to_f64(),
            dt_bias: self.f32(&kda::dt_bias(at), &[width])?,
            o_norm: self.bf16(&kda::o_norm(at), &[dim])?,
            o: self.bf16(&names::o_proj(at), &[hidden, width])?,
        })
    }

    fn mla(&self, at: usize) -> Result<MlaWeights, CheckpointError> {
        use names::mla;
        let (hidden, sizes) = (self.config.hidden, self.config.mla);
        let rows = sizes.heads * (sizes.nope + sizes.value);
        let kv_b = self.bf16(&mla::kv_b_proj(at), &[rows, sizes.kv_lora])?;
        let queries = sizes.heads * sizes.query_width();
        Ok(MlaWeights {
            q_a: self.bf16(&mla::q_a_proj(at), &[sizes.q_lora, hidden])?,
            q_a_norm: self.bf16(&mla::q_a_layernorm(at), &[sizes.q_lora])?,
            q_b: self.bf16(&mla::q_b_proj(at), &[queries, sizes.q_lora])?,
            kv_a: self.bf16(&mla::kv_a_proj(at), &[sizes.cache_width(), hidden])?,
            kv_a_norm: self.bf16(&mla::kv_a_layernorm(at), &[sizes.kv_lora])?,
            up: split_kv_b(&kv_b, sizes.heads, sizes.nope, sizes.value),
            g: self.bf16(&names::g_proj(at), &[sizes.heads * sizes.value, hidden])?,
            o: self.bf16(&names::o_proj(at), &[hidden, sizes.heads * sizes.value])?,
        })
    }

    /// `names` of gate, linear part and back.
    fn mlp(&self, names: &[String; 3], width: usize) -> Result<MlpWeights, CheckpointError> {
        let hidden = self.config.hidden;
        Ok(MlpWeights {
            gate: self.bf16(&names[0], &[width, hidden])?,
            up: self.bf16(&names[1], &[width, hidden])?,
            down: self.bf16(&names[2], &[hidden, width])?,
        })
    }

    fn moe(&self, at: usize) -> Result<MoeWeights, CheckpointError> {
        use names::moe;
        let (hidden, sizes) = (self.config.hidden, self.config.moe);
        let shared = [moe::shared_gate(at), moe::shared_up(at), moe::shared_down(at)];
        let expert = |id| {
            Ok(Expert {
                w1: self.matrix(at, id, Matrix::W1)?,
                w2: self.matrix(at, id, Matrix::W2)?,
                w3: self.matrix(at, id, Matrix::W3)?,
            })
        };
        Ok(MoeWeights {
            gate: self.bf16(&moe::gate(at), &[sizes.experts, hidden])?,
            bias: self.f32(&moe::gate_bias(at), &[sizes.experts])?,
            down: self.bf16(&moe::latent_down(at), &[sizes.latent, hidden])?,
            experts: (0..sizes.experts).map(expert).collect::<Result<_, _>>()?,
            norm: self.bf16(&moe::latent_norm(at), &[sizes.latent])?,
            up: self.bf16(&moe::latent_up(at), &[hidden, sizes.latent])?,
            shared: self.mlp(&shared, sizes.shared_width)?,
        })
    }

    fn matrix(&self, at: usize, id: usize, matrix: Matrix) -> Result<Vec<f64>, CheckpointError> {
        let [rows, columns] = expert_shape(self.config, matrix);
        let packed = names::moe::packed(at, id, matrix);
        let packed = self.checkpoint.expect(&packed, DType::U8, &[rows, columns / 2])?;
        let scales = names::moe::scale(at, id, matrix);
        let scales = self.checkpoint.expect_scales(&scales, [rows, columns / GROUP])?;
        Ok(unpack(&packed.bytes, &scales.bytes, columns))
    }
}

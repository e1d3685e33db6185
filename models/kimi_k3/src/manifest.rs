//! Every tensor that a checkpoint of a configuration must hold: name, element type, shape.

use std::convert::Infallible;

use kernel_abi::DType;

use crate::config::{Attention, Config, Ffn, GROUP};
use crate::names;
use crate::names::moe::Matrix;
use crate::reference::kda::TAPS;

/// One tensor of the checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its element type as stored.
    pub dtype: DType,
    /// Its shape, outermost axis first.
    pub shape: Vec<usize>,
    /// What its elements must be.
    pub rule: Rule,
}

/// What is required beyond name, type and shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Nothing.
    Any,
    /// Every element is a finite number.
    Finite,
    /// Every element is a scale, that is not the code 255.
    Scale,
    /// Every element is finite, and the axis may be longer: what follows is padding.
    Padded,
}

/// All tensors, in the order of the computation.
pub fn entries(config: &Config) -> Vec<Entry> {
    let mut entries = Vec::new();
    let never: Result<(), Infallible> = visit(config, &mut |entry| {
        entries.push(entry);
        Ok(())
    });
    match never {
        Ok(()) => entries,
    }
}

/// Hands out all tensors one by one, in the order of the computation, until one is refused: K3 has half a million, and
/// a hostile configuration any number.
///
/// # Errors
/// What `take` gives.
pub fn visit<E>(config: &Config, take: &mut dyn FnMut(Entry) -> Result<(), E>) -> Result<(), E> {
    let mut visit = Visit { config, take };
    visit.weight(names::embed_tokens(), &[config.vocab, config.hidden])?;
    for layer in 0..config.layers.len() {
        visit.layer(layer)?;
    }
    visit.weight(names::output_res_norm(), &[config.hidden])?;
    visit.weight(names::output_res_proj(), &[1, config.hidden])?;
    visit.weight(names::norm(), &[config.hidden])?;
    visit.weight(names::lm_head(), &[config.vocab, config.hidden])
}

/// Rows and columns of a routed expert's matrix.
pub fn expert_shape(config: &Config, matrix: Matrix) -> [usize; 2] {
    match matrix {
        Matrix::W1 | Matrix::W3 => [config.moe.width, config.moe.latent],
        Matrix::W2 => [config.moe.latent, config.moe.width],
    }
}

struct Visit<'a, E> {
    config: &'a Config,
    take: &'a mut dyn FnMut(Entry) -> Result<(), E>,
}

impl<E> Visit<'_, E> {
    fn push(&mut self, name: String, dtype: DType, shape: &[usize], rule: Rule) -> Result<(), E> {
        (self.take)(Entry { name, dtype, shape: shape.to_vec(), rule })
    }

    fn weight(&mut self, name: String, shape: &[usize]) -> Result<(), E> {
        self.push(name, DType::Bf16, shape, Rule::Finite)
    }

    fn parameter(&mut self, name: String, shape: &[usize]) -> Result<(), E> {
        self.push(name, DType::F32, shape, Rule::Finite)
    }

    fn layer(&mut self, layer: usize) -> Result<(), E> {
        let hidden = self.config.hidden;
        self.weight(names::attention_res_norm(layer), &[hidden])?;
        self.weight(names::attention_res_proj(layer), &[1, hidden])?;
        self.weight(names::input_layernorm(layer), &[hidden])?;
        match self.config.layers[layer].attention {
            Attention::Kda => self.kda(layer)?,
            Attention::Mla => self.mla(layer)?,
        }
        self.weight(names::mlp_res_norm(layer), &[hidden])?;
        self.weight(names::mlp_res_proj(layer), &[1, hidden])?;
        self.weight(names::post_attention_layernorm(layer), &[hidden])?;
        match self.config.layers[layer].ffn {
            Ffn::Dense => self.dense(layer)?,
            Ffn::Moe => self.moe(layer)?,
        }
        Ok(())
    }

    fn kda(&mut self, layer: usize) -> Result<(), E> {
        use names::kda;
        let hidden = self.config.hidden;
        let (heads, dim) = (self.config.kda.heads, self.config.kda.head_dim);
        let width = heads * dim;
        for name in [kda::q_proj, kda::k_proj, kda::v_proj, names::g_proj] {
            self.weight(name(layer), &[width, hidden])?;
        }
        self.weight(kda::b_proj(layer), &[heads, hidden])?;
        self.weight(kda::f_a_proj(layer), &[dim, hidden])?;
        self.weight(kda::f_b_proj(layer), &[width, dim])?;
        for name in [kda::q_conv1d, kda::k_conv1d, kda::v_conv1d] {
            self.parameter(name(layer), &[width, 1, TAPS])?;
        }
        self.push(kda::a_log(layer), DType::F32, &[heads], Rule::Padded)?;
        self.parameter(kda::dt_bias(layer), &[width])?;
        self.weight(kda::o_norm(layer), &[dim])?;
        self.weight(names::o_proj(layer), &[hidden, width])
    }

    fn mla(&mut self, layer: usize) -> Result<(), E> {
        use names::mla;
        let (hidden, sizes) = (self.config.hidden, self.config.mla);
        self.weight(mla::q_a_proj(layer), &[sizes.q_lora, hidden])?;
        self.weight(mla::q_a_layernorm(layer), &[sizes.q_lora])?;
        self.weight(mla::q_b_proj(layer), &[sizes.heads * sizes.query_width(), sizes.q_lora])?;
        self.weight(mla::kv_a_proj(layer), &[sizes.cache_width(), hidden])?;
        self.weight(mla::kv_a_layernorm(layer), &[sizes.kv_lora])?;
        let rows = sizes.heads * (sizes.nope + sizes.value);
        self.weight(mla::kv_b_proj(layer), &[rows, sizes.kv_lora])?;
        self.weight(names::g_proj(layer), &[sizes.heads * sizes.value, hidden])?;
        self.weight(names::o_proj(layer), &[hidden, sizes.heads * sizes.value])
    }

    fn dense(&mut self, layer: usize) -> Result<(), E> {
        use names::dense;
        let (hidden, width) = (self.config.hidden, self.config.dense_width);
        self.weight(dense::gate_proj(layer), &[width, hidden])?;
        self.weight(dense::up_proj(layer), &[width, hidden])?;
        self.weight(dense::down_proj(layer), &[hidden, width])
    }

    fn moe(&mut self, layer: usize) -> Result<(), E> {
        use names::moe;
        let (hidden, sizes) = (self.config.hidden, self.config.moe);
        self.weight(moe::gate(layer), &[sizes.experts, hidden])?;
        self.parameter(moe::gate_bias(layer), &[sizes.experts])?;
        self.weight(moe::latent_down(layer), &[sizes.latent, hidden])?;
        for expert in 0..sizes.experts {
            for matrix in Matrix::ALL {
                let [rows, cols] = expert_shape(self.config, matrix);
                let packed = moe::packed(layer, expert, matrix);
                self.push(packed, DType::U8, &[rows, cols / 2], Rule::Any)?;
                let scale = moe::scale(layer, expert, matrix);
                self.push(scale, DType::U8, &[rows, cols / GROUP], Rule::Scale)?;
            }
        }
        self.weight(moe::latent_norm(layer), &[sizes.latent])?;
        self.weight(moe::latent_up(layer), &[hidden, sizes.latent])?;
        self.weight(moe::shared_gate(layer), &[sizes.shared_width, hidden])?;
        self.weight(moe::shared_up(layer), &[sizes.shared_width, hidden])?;
        self.weight(moe::shared_down(layer), &[hidden, sizes.shared_width])
    }
}

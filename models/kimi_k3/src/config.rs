//! `config.json` of a Kimi K3 checkpoint: the wrapper `kimi_k3` around the text model `kimi_linear`.
//!
//! Every value is checked when it is read, so that sizes made of these numbers neither are zero nor overflow. A
//! field that this crate does not know is left alone, one that asks for something else is refused.

mod draft;
mod error;
mod fields;
mod json;
mod read;

use std::path::Path;

pub use draft::DraftConfig;
pub use error::ConfigError;

use crate::files::{MAX_CONFIG, read_bytes};
use crate::reference::pointwise::Situ;

/// The file's name in a folder.
pub const FILE_NAME: &str = "config.json";

/// Snapshots that a mix of Attention Residuals holds at most: slots of its kernel.
pub const MAX_BLOCKS: usize = 8;

/// Elements of a packed expert that share one scale.
pub const GROUP: usize = 32;

/// Everything that the checkpoint's configuration says about the text model.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Rows of the embedding and of the output.
    pub vocab: usize,
    /// Positions that a request may have.
    pub context: usize,
    /// Layers, first to last.
    pub layers: Vec<Layer>,
    /// Layers between two snapshots of the residual stream.
    pub block_size: usize,
    /// Constant inside the root of every RMSNorm but the two below.
    pub norm_eps: f64,
    /// The same for `q_a_layernorm` and `kv_a_layernorm`: [`Config::norm_eps`] unless the caller wants another.
    /// Implementations differ here, and the configuration does not say.
    pub latent_norm_eps: f64,
    /// Kimi Delta Attention.
    pub kda: Kda,
    /// Multi-head latent attention.
    pub mla: Mla,
    /// Inner width of the dense layers.
    pub dense_width: usize,
    /// Mixture of experts.
    pub moe: Moe,
    /// Bounds of the activation.
    pub situ: Situ,
    /// Ids with a meaning.
    pub tokens: Tokens,
}

/// One layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layer {
    /// How tokens see each other.
    pub attention: Attention,
    /// What follows.
    pub ffn: Ffn,
    /// The residual stream is stored before this layer and starts anew.
    pub opens_block: bool,
}

/// Kinds of attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attention {
    /// Kimi Delta Attention.
    Kda,
    /// Gated multi-head latent attention.
    Mla,
}

/// Kinds of feed-forward layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ffn {
    /// One MLP.
    Dense,
    /// Latent mixture of experts with a shared MLP.
    Moe,
}

/// Sizes of Kimi Delta Attention.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kda {
    /// Heads.
    pub heads: usize,
    /// Width of a head: of keys, of values and of the low-rank input of the decay.
    pub head_dim: usize,
    /// Least logarithm of the decay.
    pub gate_lower_bound: f64,
}

impl Kda {
    /// Channels of one of q, k, v: heads times width.
    pub fn width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Channels of the convolution.
    pub fn channels(&self) -> usize {
        3 * self.width()
    }

    /// Elements of the recurrent state of one request.
    pub fn state_elements(&self) -> usize {
        self.width() * self.head_dim
    }
}

/// Sizes of multi-head latent attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mla {
    /// Heads, of queries and of keys.
    pub heads: usize,
    /// Rank of the queries.
    pub q_lora: usize,
    /// Rank of keys and values: width of the latent.
    pub kv_lora: usize,
    /// Width of the part of queries and keys that comes from the latent.
    pub nope: usize,
    /// Width of the part that passes it by. (K3 does not rotate it.)
    pub rope: usize,
    /// Width of a head's values.
    pub value: usize,
}

impl Mla {
    /// Elements of one row of the cache.
    pub fn cache_width(&self) -> usize {
        self.kv_lora + self.rope
    }

    /// Width of one head's query.
    pub fn query_width(&self) -> usize {
        self.nope + self.rope
    }

    /// Factor of the scores: `query_width`^-0.5.
    pub fn scale(&self) -> f64 {
        (self.query_width() as f64).powf(-0.5)
    }
}

/// Sizes of the mixture of experts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moe {
    /// Routed experts.
    pub experts: usize,
    /// Experts that a token is sent to.
    pub picks: usize,
    /// Inner width of an expert.
    pub width: usize,
    /// Width that experts read and write.
    pub latent: usize,
    /// Inner width of the shared MLP.
    pub shared_width: usize,
    /// Factor of the weights.
    pub scaling: f64,
}

/// Ids with a meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tokens {
    /// Starts a sequence.
    pub bos: u32,
    /// Each ends one.
    pub eos: Vec<u32>,
    /// Fills.
    pub pad: Option<u32>,
}

impl Config {
    /// Reads `config.json` of a folder.
    ///
    /// # Errors
    /// The file cannot be read, or [`Config::parse`] refuses it.
    pub fn open(folder: &Path) -> Result<Config, ConfigError> {
        let path = folder.join(FILE_NAME);
        let bytes = match read_bytes(&path, MAX_CONFIG) {
            Ok(bytes) => bytes,
            Err(source) => return Err(ConfigError::Read { path, source }),
        };
        let text = std::str::from_utf8(&bytes)
            .map_err(|error| ConfigError::Syntax(format!("not UTF-8: {error}")))?;
        Config::parse(text)
    }

    /// Reads the text of a `config.json`.
    ///
    /// # Errors
    /// A field is missing, of another kind, outside of its limits, or asks for what is not implemented.
    pub fn parse(text: &str) -> Result<Config, ConfigError> {
        read::config(text)
    }

    /// Snapshots that stand at the attention mix of `layer`: those taken by the layers before it.
    pub fn blocks_at_attention(&self, layer: usize) -> usize {
        self.layers[..layer].iter().filter(|l| l.opens_block).count()
    }

    /// Snapshots that stand at the feed-forward mix of `layer`: its own is among them.
    pub fn blocks_at_ffn(&self, layer: usize) -> usize {
        self.blocks_at_attention(layer + 1)
    }

    /// Snapshots that stand at the end.
    pub fn blocks(&self) -> usize {
        self.blocks_at_attention(self.layers.len())
    }

    /// The layers of a kind of attention, first to last.
    pub fn layers_with(&self, attention: Attention) -> impl Iterator<Item = usize> + '_ {
        let of_kind = move |(_, layer): &(usize, &Layer)| layer.attention == attention;
        self.layers.iter().enumerate().filter(of_kind).map(|(at, _)| at)
    }
}

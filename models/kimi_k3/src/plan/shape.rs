//! What a decode plan needs to know of a model.

use thiserror::Error;

use super::{DecodeOptions, GROUP, SLOTS};
use crate::code::Code;
use crate::config::{Attention, Config, Ffn};

/// Extents of a model in the numbers that kernels take; all are counts of elements or things.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ModelShape {
    /// Width of the residual stream.
    pub(super) hidden: u64,
    /// Entries of the vocabulary.
    pub(super) vocab: u64,
    /// The mixer of each layer.
    pub(super) layers: Vec<Attention>,
    /// Layers of a block of the attention residuals.
    pub(super) block: u64,
    /// Leading layers with a dense MLP.
    pub(super) dense_layers: u64,
    /// Inner width of the dense MLP.
    pub(super) dense: u64,
    /// KDA heads.
    pub(super) kda_heads: u64,
    /// Width of a KDA head, and rank of its decay input.
    pub(super) kda_dim: u64,
    /// Lower bound of the log decay.
    pub(super) gate_lower: f32,
    /// MLA heads.
    pub(super) heads: u64,
    /// Rank of the query projection.
    pub(super) q_lora: u64,
    /// Rank of the latent cache.
    pub(super) kv_lora: u64,
    /// Width of a query head that meets the latent.
    pub(super) nope: u64,
    /// Width of the part of key and query that all heads share.
    pub(super) rope: u64,
    /// Width of a value head.
    pub(super) v_dim: u64,
    /// Routed experts.
    pub(super) experts: u64,
    /// Experts of a token.
    pub(super) top_k: u64,
    /// Inner width of an expert.
    pub(super) expert: u64,
    /// Width of the latent stream of the experts.
    pub(super) latent: u64,
    /// Inner width of the shared MLP.
    pub(super) shared: u64,
    /// Factor on the routing weights.
    pub(super) routed_scale: f32,
    /// `beta` of SiTU.
    pub(super) beta: f32,
    /// `linear_beta` of SiTU.
    pub(super) linear_beta: f32,
    /// Epsilon of the norms.
    pub(super) eps: f32,
    /// Epsilon of the norms of query and key latents.
    pub(super) latent_eps: f32,
    /// Positions that the model was made for.
    pub(super) max_positions: u64,
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ShapeError {
    /// The ranks do not divide what they share.
    #[error("{ranks} ranks do not divide {what}, which is {value}")]
    Ranks {
        /// The ranks.
        ranks: u64,
        /// What they share.
        what: &'static str,
        /// How much there is.
        value: u64,
    },
    /// No kernel takes that many rows.
    #[error("a step of {0} rows; kernels take 1, 2, 4 or 8")]
    Rows(u64),
    /// A context of no position, or more than the model has.
    #[error("a context of {0} positions; the model has 1 to {1}")]
    Context(u64, u64),
    /// An extent that the kernels do not take.
    #[error("{what} is {value}, which must be {rule}")]
    Extent {
        /// The extent.
        what: &'static str,
        /// Its value.
        value: u64,
        /// What is wanted.
        rule: &'static str,
    },
}

impl ShapeError {
    /// The stable code.
    pub fn code(&self) -> Code {
        match self {
            ShapeError::Ranks { .. } => Code::K0401,
            ShapeError::Rows(_) => Code::K0402,
            ShapeError::Context(..) => Code::K0403,
            ShapeError::Extent { .. } => Code::K0404,
        }
    }
}

impl ModelShape {
    pub(super) fn of(config: &Config) -> ModelShape {
        let dense = config.layers.iter().take_while(|layer| layer.ffn == Ffn::Dense).count();
        ModelShape {
            hidden: config.hidden as u64,
            vocab: config.vocab as u64,
            layers: config.layers.iter().map(|layer| layer.attention).collect(),
            block: config.block_size as u64,
            dense_layers: dense as u64,
            dense: config.dense_width as u64,
            kda_heads: config.kda.heads as u64,
            kda_dim: config.kda.head_dim as u64,
            gate_lower: config.kda.gate_lower_bound as f32,
            heads: config.mla.heads as u64,
            q_lora: config.mla.q_lora as u64,
            kv_lora: config.mla.kv_lora as u64,
            nope: config.mla.nope as u64,
            rope: config.mla.rope as u64,
            v_dim: config.mla.value as u64,
            experts: config.moe.experts as u64,
            top_k: config.moe.picks as u64,
            expert: config.moe.width as u64,
            latent: config.moe.latent as u64,
            shared: config.moe.shared_width as u64,
            routed_scale: config.moe.scaling as f32,
            beta: config.situ.beta as f32,
            linear_beta: config.situ.linear_beta as f32,
            eps: config.norm_eps as f32,
            latent_eps: config.latent_norm_eps as f32,
            max_positions: config.context as u64,
        }
    }

    /// Whether there is a plan.
    pub(super) fn check(&self, options: &DecodeOptions) -> Result<(), ShapeError> {
        let ranks = options.ranks;
        if ranks == 0 || ranks > 16 {
            return Err(ShapeError::Extent {
                what: "the number of ranks",
                value: ranks,
                rule: "1 to 16",
            });
        }
        if !matches!(options.rows, 1 | 2 | 4 | 8) {
            return Err(ShapeError::Rows(options.rows));
        }
        // Kernels take positions as i32.
        let most = self.max_positions.min(i32::MAX as u64);
        if options.context == 0 || options.context > most {
            return Err(ShapeError::Context(options.context, most));
        }
        let shared = [
            ("the number of KDA heads", self.kda_heads),
            ("the number of attention heads", self.heads),
            ("the vocabulary", self.vocab),
            ("the hidden width", self.hidden),
            ("the width of the dense MLP", self.dense),
            ("the width of the shared MLP", self.shared),
        ];
        for (what, value) in shared {
            if value % ranks != 0 {
                return Err(ShapeError::Ranks { ranks, what, value });
            }
        }
        // A rank holds whole groups of columns of every expert.
        if !self.expert.is_multiple_of(GROUP * ranks) {
            let what = "the width of an expert in groups of 32";
            return Err(ShapeError::Ranks { ranks, what, value: self.expert / GROUP });
        }
        let snapshots = (self.layers.len() as u64).div_ceil(self.block.max(1));
        let limits = [
            ("the hidden width", self.hidden, self.hidden.is_multiple_of(256), "a multiple of 256"),
            ("the number of blocks", snapshots, snapshots <= SLOTS && self.block > 0, "1 to 8"),
            (
                "the latent width",
                self.latent,
                self.latent.is_multiple_of(GROUP),
                "a multiple of 32",
            ),
        ];
        for (what, value, fits, rule) in limits {
            if !fits {
                return Err(ShapeError::Extent { what, value, rule });
            }
        }
        Ok(())
    }
}

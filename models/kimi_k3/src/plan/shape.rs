//! What a decode plan needs to know of a model.

use thiserror::Error;

use super::DecodeOptions;

/// The mixer of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerKind {
    /// Kimi Delta Attention: a recurrent state.
    Kda,
    /// Multi-head latent attention over a cache.
    Mla,
}

/// Extents of a model; all are counts of elements or things.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelShape {
    /// Width of the residual stream.
    pub hidden: u64,
    /// Entries of the vocabulary.
    pub vocab: u64,
    /// The mixer of each layer.
    pub layers: Vec<LayerKind>,
    /// Layers of a block of the attention residuals.
    pub block: u64,
    /// Leading layers with a dense MLP.
    pub dense_layers: u64,
    /// Inner width of the dense MLP.
    pub dense: u64,
    /// KDA heads.
    pub kda_heads: u64,
    /// Width of a KDA head, and rank of its decay input.
    pub kda_dim: u64,
    /// Entries of the stored `A_log`, of which the first `kda_heads` count.
    pub a_log_len: u64,
    /// Lower bound of the log decay.
    pub gate_lower: f32,
    /// MLA heads.
    pub heads: u64,
    /// Rank of the query projection.
    pub q_lora: u64,
    /// Rank of the latent cache.
    pub kv_lora: u64,
    /// Width of a query head that meets the latent.
    pub nope: u64,
    /// Width of the part of key and query that all heads share.
    pub rope: u64,
    /// Width of a value head.
    pub v_dim: u64,
    /// Routed experts.
    pub experts: u64,
    /// Experts of a token.
    pub top_k: u64,
    /// Inner width of an expert.
    pub expert: u64,
    /// Width of the latent stream of the experts.
    pub latent: u64,
    /// Inner width of the shared MLP.
    pub shared: u64,
    /// Factor on the routing weights.
    pub routed_scale: f32,
    /// `beta` of SiTU.
    pub beta: f32,
    /// `linear_beta` of SiTU.
    pub linear_beta: f32,
    /// Epsilon of the norms.
    pub eps: f32,
    /// Positions that the model was made for.
    pub max_positions: u64,
}

/// Why there is no plan for a shape.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ShapeError {
    /// The ranks do not divide what they share.
    #[error("K0301: {ranks} ranks do not divide {what}, which is {value}")]
    Ranks {
        /// The ranks.
        ranks: u64,
        /// What they share.
        what: &'static str,
        /// How much there is.
        value: u64,
    },
    /// No kernel takes that many rows.
    #[error("K0302: a step of {0} rows; kernels take 1, 2, 4 or 8")]
    Rows(u64),
    /// A context of no position, or more than the model has.
    #[error("K0303: a context of {0} positions; the model has 1 to {1}")]
    Context(u64, u64),
    /// An extent that the kernels do not take.
    #[error("K0304: {what} is {value}, which must be {rule}")]
    Extent {
        /// The extent.
        what: &'static str,
        /// Its value.
        value: u64,
        /// What is wanted.
        rule: &'static str,
    },
}

impl ModelShape {
    /// Whether there is a plan.
    pub(super) fn check(&self, options: &DecodeOptions) -> Result<(), ShapeError> {
        let ranks = options.ranks;
        if ranks == 0 || ranks > 16 {
            return Err(ShapeError::Extent { what: "the number of ranks", value: ranks, rule: "1 to 16" });
        }
        if !matches!(options.rows, 1 | 2 | 4 | 8) {
            return Err(ShapeError::Rows(options.rows));
        }
        if options.context == 0 || options.context > self.max_positions {
            return Err(ShapeError::Context(options.context, self.max_positions));
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
        // A rank holds whole groups of 32 columns of every expert.
        if self.expert % (32 * ranks) != 0 {
            let what = "the width of an expert in groups of 32";
            return Err(ShapeError::Ranks { ranks, what, value: self.expert / 32 });
        }
        let snapshots = (self.layers.len() as u64).div_ceil(self.block.max(1));
        let limits = [
            ("the hidden width", self.hidden, self.hidden % 256 == 0, "a multiple of 256"),
            ("the number of blocks", snapshots, snapshots <= 8 && self.block > 0, "1 to 8"),
            ("the latent width", self.latent, self.latent % 32 == 0, "a multiple of 32"),
        ];
        for (what, value, fits, rule) in limits {
            if !fits {
                return Err(ShapeError::Extent { what, value, rule });
            }
        }
        Ok(())
    }
}

//! `config.json` of a DSpark drafter.

use std::path::Path;

use serde_json::Value;

use super::fields::Fields;
use super::read::{MAX_AXIS, MAX_HEADS, MAX_LAYERS, MAX_VOCAB, product};
use super::{Config, ConfigError, FILE_NAME, Mla};
use crate::files::{MAX_CONFIG, read_text};

/// Everything that the drafter's configuration says.
#[derive(Debug, Clone, PartialEq)]
pub struct DraftConfig {
    /// Width of its stream, which is that of its target.
    pub hidden: usize,
    /// Inner width of its MLPs.
    pub dense_width: usize,
    /// Layers, each with latent attention and an MLP.
    pub layers: usize,
    /// Latent attention; here the part that passes the latent by is rotated.
    pub mla: Mla,
    /// Base of the rotation's frequencies.
    pub rope_theta: f64,
    /// Constant inside the root of its norms.
    pub norm_eps: f64,
    /// Layers of the target whose prefix streams it reads, from 0.
    pub taps: Vec<usize>,
    /// The token that stands for one to be proposed.
    pub mask: u32,
    /// Rank of the bias by the token before.
    pub markov_rank: usize,
    /// Tokens proposed in a step.
    pub drafts: usize,
}

impl DraftConfig {
    /// Reads `config.json` of a drafter's folder, for a target.
    ///
    /// # Errors
    /// The file cannot be read, or [`DraftConfig::parse`] refuses it.
    pub fn open(folder: &Path, target: &Config) -> Result<DraftConfig, ConfigError> {
        let path = folder.join(FILE_NAME);
        match read_text(&path, MAX_CONFIG) {
            Ok(text) => DraftConfig::parse(&text, target),
            Err(source) => Err(ConfigError::Read { path, source }),
        }
    }

    /// Reads the text of a drafter's `config.json`.
    ///
    /// # Errors
    /// A field is missing, of another kind, outside of its limits, does not fit the target, or asks for what is not
    /// implemented.
    pub fn parse(text: &str, target: &Config) -> Result<DraftConfig, ConfigError> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| ConfigError::Syntax(error.to_string()))?;
        let Value::Object(map) = &value else {
            return Err(ConfigError::Syntax("expected an object".to_owned()));
        };
        let fields = Fields::root(map);
        check_support(&fields, target)?;
        let heads = fields.count("num_attention_heads", 1..=MAX_HEADS)?;
        fields.may_only_be("num_key_value_heads", heads)?;
        let mla = Mla {
            heads,
            q_lora: fields.count("q_lora_rank", 1..=MAX_AXIS)?,
            kv_lora: fields.count("kv_lora_rank", 1..=MAX_AXIS)?,
            nope: fields.count("qk_nope_head_dim", 1..=MAX_AXIS)?,
            rope: fields.count("qk_rope_head_dim", 2..=MAX_AXIS)?,
            value: fields.count("v_head_dim", 1..=MAX_AXIS)?,
        };
        fields.multiple("qk_rope_head_dim", mla.rope, 2)?;
        product(&fields, "qk_nope_head_dim", heads, mla.query_width())?;
        product(&fields, "v_head_dim", heads, mla.nope + mla.value)?;
        let taps = fields.list("target_layer_ids", 0..=target.layers.len() - 1)?;
        fields.must_be("num_target_layers", taps.len())?;
        product(&fields, "target_layer_ids", taps.len(), target.hidden)?;
        let mask = fields.count("mask_token_id", 0..=target.vocab - 1)?;
        Ok(DraftConfig {
            hidden: target.hidden,
            dense_width: fields.count("intermediate_size", 1..=MAX_AXIS)?,
            layers: fields.count("num_hidden_layers", 1..=MAX_LAYERS)?,
            mla,
            rope_theta: fields.number("rope_theta", 1.0..=1e9)?,
            norm_eps: fields.number("rms_norm_eps", 1e-12..=0.1)?,
            taps,
            mask: u32::try_from(mask).expect("the vocabulary is smaller than 2^32"),
            markov_rank: fields.count("markov_rank", 1..=MAX_VOCAB)?,
            drafts: fields.count("num_draft_tokens", 1..=64)?,
        })
    }
}

/// Refuses what is not implemented and what does not fit the target.
fn check_support(fields: &Fields<'_>, target: &Config) -> Result<(), ConfigError> {
    fields.must_be("model_type", "k3_dspark")?;
    fields.must_be("hidden_size", target.hidden)?;
    fields.may_only_be("target_hidden_size", target.hidden)?;
    fields.may_only_be("target_num_hidden_layers", target.layers.len())?;
    fields.must_be("vocab_size", target.vocab)?;
    fields.may_only_be("draft_vocab_size", target.vocab)?;
    fields.must_be("hidden_act", "silu")?;
    fields.must_be("mla_use_nope", false)?;
    fields.must_be("mla_use_output_gate", false)?;
    fields.must_be("aux_hidden_stream", "prefix")?;
    fields.must_be("markov_head_type", "vanilla")?;
    fields.may_only_be("rope_interleave", true)?;
    fields.may_only_be("tie_word_embeddings", false)?;
    if fields.get("rope_parameters").is_some() {
        fields.object("rope_parameters")?.must_be("rope_type", "default")?;
    }
    Ok(())
}

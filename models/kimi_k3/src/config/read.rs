//! From JSON to [`Config`].

use serde_json::Value;

use super::fields::Fields;
use super::{
    Attention, Config, ConfigError, Ffn, GROUP, Kda, Layer, MAX_BLOCKS, Mla, Moe, Tokens, json,
};
use crate::reference::kda::TAPS;
use crate::reference::pointwise::Situ;

/// Greatest size of one axis, and greatest product of two that are laid out as one.
pub(super) const MAX_AXIS: usize = 1 << 20;
pub(super) const MAX_VOCAB: usize = 1 << 24;
const MAX_CONTEXT: usize = 1 << 30;
pub(super) const MAX_LAYERS: usize = 1024;
pub(super) const MAX_HEADS: usize = 4096;
const MAX_EXPERTS: usize = 1 << 14;

pub(super) fn config(text: &str) -> Result<Config, ConfigError> {
    let value: Value = json::parse(text).map_err(|error| ConfigError::Syntax(error.to_string()))?;
    let Value::Object(map) = &value else {
        return Err(ConfigError::Syntax("expected an object".to_owned()));
    };
    let wrapper = Fields::root(map);
    wrapper.must_be("model_type", "kimi_k3")?;
    wrapper.may_only_be("tie_word_embeddings", false)?;
    let text = wrapper.object("text_config")?;
    text.must_be("model_type", "kimi_linear")?;
    text.may_only_be("tie_word_embeddings", false)?;
    text.may_only_be("num_nextn_predict_layers", 0)?;
    for fields in [&wrapper, &text] {
        fields.may_only_be("dtype", "bfloat16")?;
        fields.may_only_be("torch_dtype", "bfloat16")?;
    }
    quantization(&wrapper, &text)?;

    let hidden = text.count("hidden_size", 1..=MAX_AXIS)?;
    let vocab = text.count("vocab_size", 1..=MAX_VOCAB)?;
    let block_size = text.count("attn_res_block_size", 1..=MAX_LAYERS)?;
    let norm_eps = text.number("rms_norm_eps", 1e-12..=0.1)?;
    Ok(Config {
        hidden,
        vocab,
        context: text.count("max_position_embeddings", 1..=MAX_CONTEXT)?,
        layers: layers(&text, block_size)?,
        block_size,
        norm_eps,
        latent_norm_eps: norm_eps,
        kda: kda(&text)?,
        mla: mla(&text)?,
        dense_width: text.count("intermediate_size", 1..=MAX_AXIS)?,
        moe: moe(&text)?,
        situ: situ(&text)?,
        tokens: tokens(&wrapper, &text, vocab)?,
    })
}

/// Routed experts in MXFP4 as compressed-tensors packs it. The field stands in the wrapper or in the text model.
fn quantization(wrapper: &Fields<'_>, text: &Fields<'_>) -> Result<(), ConfigError> {
    const NAME: &str = "quantization_config";
    const FORMAT: &str = "mxfp4-pack-quantized";
    let within = if text.get(NAME).is_some() { text } else { wrapper };
    let fields = within.object(NAME)?;
    fields.must_be("quant_method", "compressed-tensors")?;
    fields.must_be("format", FORMAT)?;
    let groups = fields.object("config_groups")?;
    let mut count = 0;
    for name in groups.names() {
        count += 1;
        let group = groups.object(name)?;
        group.may_only_be("format", FORMAT)?;
        // Activations stay as they are.
        group.must_be_absent("input_activations")?;
        group.must_be_absent("output_activations")?;
        let weights = group.object("weights")?;
        weights.must_be("num_bits", 4)?;
        weights.must_be("type", "float")?;
        weights.must_be("group_size", GROUP)?;
        weights.may_only_be("strategy", "group")?;
        weights.may_only_be("symmetric", true)?;
        weights.may_only_be("dynamic", false)?;
    }
    if count == 0 {
        return Err(fields.unsupported("config_groups", "{}", "a group for the experts"));
    }
    Ok(())
}

fn layers(text: &Fields<'_>, block_size: usize) -> Result<Vec<Layer>, ConfigError> {
    let count = text.count("num_hidden_layers", 1..=MAX_LAYERS)?;
    let dense = text.count("first_k_dense_replace", 0..=count)?;
    text.may_only_be("moe_layer_freq", 1)?;
    let blocks = count.div_ceil(block_size);
    if blocks > MAX_BLOCKS {
        return Err(ConfigError::Range {
            field: text.path("attn_res_block_size"),
            found: block_size.to_string(),
            limits: format!(
                "at least {}, for at most {MAX_BLOCKS} blocks in {count} layers",
                count.div_ceil(MAX_BLOCKS)
            ),
        });
    }
    let kinds = attention_kinds(&text.object("linear_attn_config")?, count)?;
    let layer = |(at, attention): (usize, Attention)| Layer {
        attention,
        ffn: if at < dense { Ffn::Dense } else { Ffn::Moe },
        opens_block: at.is_multiple_of(block_size),
    };
    Ok(kinds.into_iter().enumerate().map(layer).collect())
}

/// The two lists count layers from 1 and must name each of them once.
fn attention_kinds(linear: &Fields<'_>, count: usize) -> Result<Vec<Attention>, ConfigError> {
    let mut kinds: Vec<Option<Attention>> = vec![None; count];
    for (name, kind) in [("kda_layers", Attention::Kda), ("full_attn_layers", Attention::Mla)] {
        let fault = |fault: String| ConfigError::Layers { field: linear.path(name), fault };
        for number in linear.list(name, 0..=usize::MAX)? {
            let slot = number.checked_sub(1).and_then(|at| kinds.get_mut(at)).ok_or_else(|| {
                fault(format!("names layer {number}, there are the layers 1 to {count}"))
            })?;
            if slot.replace(kind).is_some() {
                return Err(fault(format!("names layer {number}, which is named before")));
            }
        }
    }
    let named = |(at, kind): (usize, Option<Attention>)| {
        kind.ok_or_else(|| ConfigError::Layers {
            field: linear.path("full_attn_layers"),
            fault: format!("does not name layer {}, and `kda_layers` neither", at + 1),
        })
    };
    kinds.into_iter().enumerate().map(named).collect()
}

fn kda(text: &Fields<'_>) -> Result<Kda, ConfigError> {
    let linear = text.object("linear_attn_config")?;
    linear.must_be("short_conv_kernel_size", TAPS)?;
    linear.must_be("use_full_rank_gate", true)?;
    let heads = linear.count("num_heads", 1..=MAX_HEADS)?;
    let head_dim = linear.count("head_dim", 1..=MAX_AXIS)?;
    product(&linear, "head_dim", heads, head_dim)?;
    // Below, e to the bound is no longer a normal f32.
    let gate_lower_bound = linear.number("gate_lower_bound", -80.0..=-1e-3)?;
    Ok(Kda { heads, head_dim, gate_lower_bound })
}

fn mla(text: &Fields<'_>) -> Result<Mla, ConfigError> {
    text.must_be("mla_use_nope", true)?;
    text.must_be("mla_use_output_gate", true)?;
    let heads = text.count("num_attention_heads", 1..=MAX_HEADS)?;
    text.may_only_be("num_key_value_heads", heads)?;
    let mla = Mla {
        heads,
        q_lora: text.count("q_lora_rank", 1..=MAX_AXIS)?,
        kv_lora: text.count("kv_lora_rank", 1..=MAX_AXIS)?,
        nope: text.count("qk_nope_head_dim", 1..=MAX_AXIS)?,
        rope: text.count("qk_rope_head_dim", 1..=MAX_AXIS)?,
        value: text.count("v_head_dim", 1..=MAX_AXIS)?,
    };
    product(text, "qk_nope_head_dim", heads, mla.query_width())?;
    product(text, "v_head_dim", heads, mla.nope + mla.value)?;
    Ok(mla)
}

fn moe(text: &Fields<'_>) -> Result<Moe, ConfigError> {
    text.must_be("moe_router_activation_func", "sigmoid")?;
    text.must_be("topk_method", "noaux_tc")?;
    text.must_be("moe_renormalize", true)?;
    text.must_be("latent_moe_use_norm", true)?;
    // With one group, both give the same picks.
    text.may_be_flag("use_grouped_topk")?;
    text.may_only_be("num_expert_group", 1)?;
    text.may_only_be("topk_group", 1)?;
    let experts = text.count("num_experts", 1..=MAX_EXPERTS)?;
    let width = text.count("moe_intermediate_size", 1..=MAX_AXIS)?;
    text.multiple("moe_intermediate_size", width, GROUP)?;
    let latent = text.count("routed_expert_hidden_size", 1..=MAX_AXIS)?;
    text.multiple("routed_expert_hidden_size", latent, GROUP)?;
    let shared = text.count("num_shared_experts", 1..=MAX_EXPERTS)?;
    product(text, "num_shared_experts", shared, width)?;
    Ok(Moe {
        experts,
        picks: text.count("num_experts_per_token", 1..=experts)?,
        width,
        latent,
        shared_width: shared * width,
        scaling: text.number("routed_scaling_factor", 1e-6..=1e6)?,
    })
}

fn situ(text: &Fields<'_>) -> Result<Situ, ConfigError> {
    text.must_be("hidden_act", "situ")?;
    Ok(Situ {
        beta: text.number("activation_situ_beta", 1e-3..=1e6)?,
        linear_beta: text.number("activation_situ_linear_beta", 1e-3..=1e6)?,
    })
}

/// The text model's ids, or the wrapper's where it has none.
fn tokens(wrapper: &Fields<'_>, text: &Fields<'_>, vocab: usize) -> Result<Tokens, ConfigError> {
    let home = |name| {
        if text.get(name).is_none() && wrapper.get(name).is_some() { wrapper } else { text }
    };
    let ids = 0..=vocab - 1;
    let id = |id: usize| u32::try_from(id).expect("the vocabulary is smaller than 2^32");
    let eos = home("eos_token_id").counts("eos_token_id", ids.clone())?;
    let pad = home("pad_token_id");
    // The wrapper's may differ, but not be nonsense.
    for name in ["bos_token_id", "eos_token_id", "pad_token_id"] {
        if wrapper.get(name).is_some() {
            wrapper.counts(name, ids.clone())?;
        }
    }
    Ok(Tokens {
        bos: id(home("bos_token_id").count("bos_token_id", ids.clone())?),
        eos: eos.into_iter().map(id).collect(),
        pad: match pad.get("pad_token_id") {
            Some(_) => Some(id(pad.count("pad_token_id", ids)?)),
            None => None,
        },
    })
}

/// Refuses sizes whose product is no sensible axis.
pub(super) fn product(
    fields: &Fields<'_>,
    name: &str,
    a: usize,
    b: usize,
) -> Result<(), ConfigError> {
    match a.checked_mul(b) {
        Some(product) if product <= MAX_AXIS => Ok(()),
        Some(_) | None => Err(ConfigError::Range {
            field: fields.path(name),
            found: format!("one of {a} times {b}"),
            limits: format!("a product of at most {MAX_AXIS}"),
        }),
    }
}

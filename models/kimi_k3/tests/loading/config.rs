//! config.json: the three shapes that must load, and what must be refused with the field's name.

use std::path::Path;

use kimi_k3::code::Code;
use kimi_k3::config::{Attention, DraftConfig, Ffn};
use kimi_k3::{Config, ConfigError, manifest};
use serde_json::{Value, json};

use super::folder::Folder;

fn folder(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn mini() -> Value {
    serde_json::from_str(&std::fs::read_to_string(folder("mini/config.json")).unwrap()).unwrap()
}

/// The mini with other values; a path is `a.b.c`, null removes the field.
fn changed(changes: &[(&str, Value)]) -> Value {
    let mut config = mini();
    for (path, value) in changes {
        let (parents, last) = path.rsplit_once('.').unwrap_or(("", path));
        let mut at = &mut config;
        for name in parents.split('.').filter(|name| !name.is_empty()) {
            at = &mut at[name];
        }
        let map = at.as_object_mut().unwrap();
        if value.is_null() {
            map.remove(last);
        } else {
            map.insert((*last).to_owned(), value.clone());
        }
    }
    config
}

fn parse(config: &Value) -> Result<Config, ConfigError> {
    Config::parse(&config.to_string())
}

/// K3 itself: the public numbers in the mini's file.
fn k3() -> Value {
    let mla: Vec<usize> = (1..=23).map(|i| 4 * i).chain([93]).collect();
    let kda: Vec<usize> = (1..=93).filter(|layer| !mla.contains(layer)).collect();
    let text = |name: &str| format!("text_config.{name}");
    let mut changes = vec![
        (text("linear_attn_config.kda_layers"), json!(kda)),
        (text("linear_attn_config.full_attn_layers"), json!(mla)),
    ];
    for (name, value) in [
        ("linear_attn_config.num_heads", 96),
        ("linear_attn_config.head_dim", 128),
        ("hidden_size", 7168),
        ("num_hidden_layers", 93),
        ("intermediate_size", 33792),
        ("num_attention_heads", 96),
        ("num_key_value_heads", 96),
        ("q_lora_rank", 1536),
        ("kv_lora_rank", 512),
        ("qk_nope_head_dim", 128),
        ("qk_rope_head_dim", 64),
        ("v_head_dim", 128),
        ("num_experts", 896),
        ("num_experts_per_token", 16),
        ("moe_intermediate_size", 3072),
        ("routed_expert_hidden_size", 3584),
        ("attn_res_block_size", 12),
        ("vocab_size", 163_840),
        ("max_position_embeddings", 1_048_576),
        ("bos_token_id", 163_584),
        ("eos_token_id", 163_586),
        ("pad_token_id", 163_839),
    ] {
        changes.push((text(name), json!(value)));
    }
    let changes: Vec<(&str, Value)> =
        changes.iter().map(|(path, value)| (path.as_str(), value.clone())).collect();
    changed(&changes)
}

#[test]
fn the_mini_loads() {
    let config = Config::open(&folder("mini")).unwrap();
    assert_eq!((config.hidden, config.vocab, config.context), (256, 2048, 131_072));
    let mla: Vec<usize> = config.layers_with(Attention::Mla).collect();
    assert_eq!(mla, [3, 7, 8]);
    let opening: Vec<usize> = (0..9).filter(|&at| config.layers[at].opens_block).collect();
    assert_eq!(opening, [0, 3, 6]);
    assert_eq!(config.layers[0].ffn, Ffn::Dense);
    assert!(config.layers[1..].iter().all(|layer| layer.ffn == Ffn::Moe));
    assert_eq!([0, 1, 3, 4, 8].map(|at| config.blocks_at_attention(at)), [0, 1, 1, 2, 3]);
    assert_eq!([0, 1, 3, 8].map(|at| config.blocks_at_ffn(at)), [1, 1, 2, 3]);
    assert_eq!((config.moe.shared_width, config.mla.cache_width()), (256, 80));
    assert_eq!((config.norm_eps, config.latent_norm_eps), (1e-5, 1e-5));
    assert_eq!((config.tokens.bos, &config.tokens.eos, config.tokens.pad), (0, &vec![1], Some(2)));
}

#[test]
fn the_random_one_loads() {
    let config = Config::open(&folder("tiny_random")).unwrap();
    assert_eq!((config.kda.heads, config.kda.head_dim, config.moe.latent), (16, 16, 128));
    assert_eq!((config.layers.len(), config.blocks(), config.moe.shared_width), (5, 3, 1024));
}

#[test]
fn k3_loads_and_has_its_size() {
    let config = parse(&k3()).unwrap();
    assert_eq!(config.layers_with(Attention::Kda).count(), 69);
    assert_eq!(config.blocks(), 8);
    assert_eq!(config.mla.scale(), 192f64.powf(-0.5));
    assert_eq!(config.kda.state_elements() * 4, 6_291_456);
    // 2.78 T parameters: two codes of an expert a byte, scales are none.
    let parameters: f64 = manifest::entries(&config)
        .iter()
        .filter(|entry| !entry.name.ends_with("weight_scale"))
        .map(|entry| {
            let elements: usize = entry.shape.iter().product();
            elements as f64 * if entry.name.ends_with("weight_packed") { 2.0 } else { 1.0 }
        })
        .sum();
    assert!((parameters / 2.7795e12 - 1.0).abs() < 1e-4, "{parameters:e}");
}

#[test]
fn where_the_ids_and_the_quantisation_stand_does_not_matter() {
    let mut config =
        changed(&[("text_config.eos_token_id", Value::Null), ("eos_token_id", json!([1, 7]))]);
    assert_eq!(parse(&config).unwrap().tokens.eos, [1, 7]);
    let moved = config.as_object_mut().unwrap().remove("quantization_config").unwrap();
    config["text_config"]["quantization_config"] = moved;
    assert!(parse(&config).is_ok());
    let without = changed(&[
        ("pad_token_id", Value::Null),
        ("text_config.pad_token_id", Value::Null),
        ("text_config.topk_group", Value::Null),
    ]);
    assert_eq!(parse(&without).unwrap().tokens.pad, None);
}

#[test]
fn every_needed_field_is_missed_by_name() {
    let optional = [
        "architectures",
        "dtype",
        "tie_word_embeddings",
        "pad_token_id",
        "num_key_value_heads",
        "use_grouped_topk",
        "num_expert_group",
        "topk_group",
        "moe_layer_freq",
        "num_nextn_predict_layers",
    ];
    let needed = |of: &Value| -> Vec<String> {
        let names = of.as_object().unwrap().keys().cloned();
        names.filter(|name| !optional.contains(&name.as_str())).collect()
    };
    let mut paths = Vec::new();
    for name in needed(&mini()["text_config"]) {
        // Ids may stand in the wrapper alone.
        if !name.ends_with("_token_id") {
            paths.push(format!("text_config.{name}"));
        }
    }
    for name in needed(&mini()["text_config"]["linear_attn_config"]) {
        paths.push(format!("text_config.linear_attn_config.{name}"));
    }
    paths.extend(["model_type", "text_config", "quantization_config"].map(str::to_owned));
    assert!(paths.len() > 30);
    for path in paths {
        let error = parse(&changed(&[(&path, Value::Null)])).unwrap_err();
        assert_eq!(error.code(), Code::K0103, "{path}: {error}");
        assert!(error.to_string().contains(&format!("`{path}`")), "{error}");
    }
}

/// One change, the code it earns, and the field that the message names.
fn refused(path: &str, value: Value, code: Code) {
    let error = parse(&changed(&[(path, value.clone())])).unwrap_err();
    assert_eq!(error.code(), code, "{path} = {value}: {error}");
    assert!(error.to_string().contains(&format!("`{path}`")), "{error}");
}

#[test]
fn absurd_values_are_refused_by_name() {
    let text = |name: &str| format!("text_config.{name}");
    for name in [
        "hidden_size",
        "vocab_size",
        "num_hidden_layers",
        "intermediate_size",
        "num_attention_heads",
        "q_lora_rank",
        "kv_lora_rank",
        "qk_nope_head_dim",
        "qk_rope_head_dim",
        "v_head_dim",
        "num_experts",
        "num_experts_per_token",
        "num_shared_experts",
        "moe_intermediate_size",
        "routed_expert_hidden_size",
        "attn_res_block_size",
        "max_position_embeddings",
        "linear_attn_config.num_heads",
        "linear_attn_config.head_dim",
    ] {
        for value in [json!(0), json!(-1), json!(u64::MAX), json!(1e300), json!(2.5)] {
            refused(&text(name), value, Code::K0105);
        }
        for value in [json!("8"), json!([8]), json!(true), json!({})] {
            refused(&text(name), value, Code::K0104);
        }
    }
    for (name, value) in [
        ("rms_norm_eps", json!(0.0)),
        ("rms_norm_eps", json!(1.0)),
        ("activation_situ_beta", json!(-4.0)),
        ("activation_situ_linear_beta", json!(1e30)),
        ("routed_scaling_factor", json!(0)),
        ("linear_attn_config.gate_lower_bound", json!(5.0)),
        ("linear_attn_config.gate_lower_bound", json!(-1e4)),
        ("first_k_dense_replace", json!(10)),
        ("num_experts_per_token", json!(33)),
        ("bos_token_id", json!(2048)),
        ("eos_token_id", json!([1, 4096])),
        ("pad_token_id", json!(-2)),
        // Nine layers in nine blocks, and a product that is too large.
        ("attn_res_block_size", json!(1)),
        ("linear_attn_config.head_dim", json!(1_048_576)),
        ("v_head_dim", json!(1_048_576)),
    ] {
        refused(&text(name), value, Code::K0105);
    }
    for (name, value, code) in [
        ("bos_token_id", json!(-1), Code::K0105),
        ("eos_token_id", json!(1 << 24), Code::K0105),
        ("pad_token_id", json!("x"), Code::K0104),
    ] {
        refused(name, value, code);
    }
    refused(&text("use_grouped_topk"), json!("x"), Code::K0104);
    refused(&text("eos_token_id"), json!([]), Code::K0104);
    refused(&text("linear_attn_config"), json!(3), Code::K0104);
    refused(&text("linear_attn_config.kda_layers"), json!("1, 2"), Code::K0104);
    refused(&text("moe_intermediate_size"), json!(100), Code::K0106);
    refused(&text("routed_expert_hidden_size"), json!(48), Code::K0106);
}

#[test]
fn what_is_not_implemented_is_refused_by_name() {
    for (path, value) in [
        ("model_type", json!("llama")),
        ("tie_word_embeddings", json!(true)),
        ("text_config.model_type", json!("kimi_linear_2")),
        ("text_config.tie_word_embeddings", json!(true)),
        ("text_config.num_nextn_predict_layers", json!(1)),
        ("text_config.hidden_act", json!("silu")),
        ("text_config.mla_use_nope", json!(false)),
        ("text_config.mla_use_output_gate", json!(false)),
        ("text_config.num_key_value_heads", json!(1)),
        ("text_config.moe_router_activation_func", json!("softmax")),
        ("text_config.topk_method", json!("greedy")),
        ("text_config.moe_renormalize", json!(false)),
        ("text_config.latent_moe_use_norm", json!(false)),
        ("text_config.num_expert_group", json!(8)),
        ("text_config.topk_group", json!(4)),
        ("text_config.moe_layer_freq", json!(2)),
        ("text_config.linear_attn_config.short_conv_kernel_size", json!(3)),
        ("text_config.linear_attn_config.use_full_rank_gate", json!(false)),
        ("quantization_config.quant_method", json!("gptq")),
        ("quantization_config.format", json!("nvfp4-pack-quantized")),
        ("quantization_config.config_groups", json!({})),
        ("quantization_config.config_groups.group_0.weights.num_bits", json!(8)),
        ("quantization_config.config_groups.group_0.weights.group_size", json!(16)),
        ("quantization_config.config_groups.group_0.weights.type", json!("int")),
        ("quantization_config.config_groups.group_0.input_activations", json!({"num_bits": 8})),
        ("quantization_config.config_groups.group_0.output_activations", json!({})),
        ("dtype", json!("float16")),
        ("text_config.dtype", json!("float32")),
    ] {
        refused(path, value, Code::K0107);
    }
}

#[test]
fn every_layer_is_named_once() {
    for (name, layers) in [
        ("kda_layers", json!([1, 2, 3, 5, 6, 7, 7])),
        ("kda_layers", json!([0, 1, 2, 3, 5, 6, 7])),
        ("full_attn_layers", json!([4, 8, 9, 10])),
        ("full_attn_layers", json!([4, 8, 9, 1])),
        ("full_attn_layers", json!([4, 8])),
    ] {
        refused(&format!("text_config.linear_attn_config.{name}"), layers, Code::K0108);
    }
}

#[test]
fn a_file_that_is_no_configuration_is_refused() {
    for text in ["", "{", "[]", "null", "3", "{\"model_type\": }", "\u{0}"] {
        assert_eq!(Config::parse(text).unwrap_err().code(), Code::K0102, "{text}");
    }
    // Of a field that is there twice it would be open which value counts.
    let twice = mini().to_string().replacen('{', "{\"model_type\": \"kimi_k3\",", 1);
    let error = Config::parse(&twice).unwrap_err();
    assert_eq!(error.code(), Code::K0102);
    assert!(error.to_string().contains("`model_type` is there twice"), "{error}");
    let deep = "[".repeat(100_000);
    assert_eq!(Config::parse(&deep).unwrap_err().code(), Code::K0102);
    let other = Folder::new();
    other.write("config.json", &[b'{', 0xff, b'}']);
    assert_eq!(Config::open(other.path()).unwrap_err().code(), Code::K0102);
    let error = Config::open(&folder("kernels")).unwrap_err();
    assert_eq!(error.code(), Code::K0101);
    assert!(error.to_string().contains("config.json"));
}

#[test]
fn the_drafter_loads_and_fits_its_target_alone() {
    let target = Config::open(&folder("mini")).unwrap();
    let config = DraftConfig::open(&folder("mini/dspark"), &target).unwrap();
    assert_eq!((config.taps.as_slice(), config.drafts, config.mask), ([1, 4, 7].as_slice(), 7, 3));
    let text = std::fs::read_to_string(folder("mini/dspark/config.json")).unwrap();
    let whole: Value = serde_json::from_str(&text).unwrap();
    for (name, value, code) in [
        ("model_type", json!("eagle"), Code::K0107),
        ("hidden_size", json!(512), Code::K0107),
        ("vocab_size", json!(100), Code::K0107),
        ("hidden_act", json!("situ"), Code::K0107),
        ("aux_hidden_stream", json!("attn_res"), Code::K0107),
        ("rope_parameters", json!({"rope_type": "yarn"}), Code::K0107),
        ("target_layer_ids", json!([1, 4]), Code::K0107),
        ("target_layer_ids", json!([1, 4, 9]), Code::K0105),
        ("mask_token_id", json!(2048), Code::K0105),
        ("num_draft_tokens", json!(0), Code::K0105),
        ("qk_rope_head_dim", json!(15), Code::K0106),
        ("rope_theta", Value::Null, Code::K0103),
        ("markov_rank", json!("32"), Code::K0104),
    ] {
        let mut changed = whole.clone();
        changed[name] = value;
        let error = DraftConfig::parse(&changed.to_string(), &target).unwrap_err();
        assert_eq!(error.code(), code, "{name}: {error}");
    }
    let other = Config::open(&folder("tiny_random")).unwrap();
    let error = DraftConfig::parse(&text, &other).unwrap_err();
    assert_eq!(error.code(), Code::K0107);
    assert_eq!(DraftConfig::parse("[]", &target).unwrap_err().code(), Code::K0102);
    assert_eq!(DraftConfig::open(&folder("src"), &target).unwrap_err().code(), Code::K0101);
}

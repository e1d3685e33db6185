//! Damaged tokenizers: each loads or is refused, none panics.

use std::path::Path;

use kernel_text::{TextError, Tokenizer};
use serde_json::{Value, json};

/// A small tokenizer with the parts of a real one.
fn small() -> Value {
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [
            {"id": 5, "content": "[BOS]", "single_word": false, "lstrip": false, "rstrip": false,
             "normalized": false, "special": true},
        ],
        "normalizer": null,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": true},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        ]},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true,
                    "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null,
                  "continuing_subword_prefix": null, "end_of_word_suffix": null,
                  "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                  "vocab": {"a": 0, "b": 1, "Ġ": 2, "ab": 3, "Ġab": 4},
                  "merges": [["a", "b"], ["Ġ", "ab"]]},
    })
}

/// The generator of splitmix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) % bound.max(1) as u64) as usize
    }
}

fn damage_bytes(bytes: &mut Vec<u8>, dice: &mut Dice) {
    for _ in 0..=dice.below(3) {
        let at = dice.below(bytes.len());
        let end = bytes.len().min(at + 1 + dice.below(16));
        match dice.below(4) {
            0 if at < bytes.len() => bytes[at] ^= 1 << dice.below(8),
            1 => drop(bytes.drain(at..end)),
            2 => bytes.truncate(at),
            _ => {
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece).for_each(drop);
            }
        }
    }
}

fn damage_value(value: &mut Value, dice: &mut Dice) {
    let children = match value {
        Value::Array(list) => list.len(),
        Value::Object(map) => map.len(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    };
    if children == 0 || dice.below(8) == 0 {
        let absurd = [
            json!(null),
            json!(0),
            json!(-1),
            json!(7),
            json!(1e308),
            json!(4_294_967_295_u64),
            json!(u64::MAX),
            json!(""),
            json!("a"),
            json!("(((("),
            json!("BPE"),
            json!([]),
            json!(["a", "b"]),
            json!({}),
            json!(true),
        ];
        *value = absurd[dice.below(absurd.len())].clone();
        return;
    }
    let at = dice.below(children);
    let child = match value {
        Value::Array(list) => list.get_mut(at),
        Value::Object(map) => map.values_mut().nth(at),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    };
    if let Some(child) = child {
        damage_value(child, dice);
    }
}

fn parse(value: &Value) -> Result<Tokenizer, TextError> {
    Tokenizer::parse(value.to_string().as_bytes(), Path::new("tokenizer.json"))
}

#[test]
fn a_prompt_is_neither_cut_nor_filled_up() {
    let mut value = small();
    value["truncation"] = json!({"direction": "Right", "max_length": 2,
                                 "strategy": "LongestFirst", "stride": 0});
    assert_eq!(parse(&value).unwrap().encode("ab ab[BOS]b").unwrap(), [3, 4, 5, 1]);
    let mut value = small();
    value["padding"] = json!({"strategy": {"Fixed": 9}, "direction": "Right",
                              "pad_to_multiple_of": null, "pad_id": 5, "pad_type_id": 0,
                              "pad_token": "[BOS]"});
    assert_eq!(parse(&value).unwrap().encode("ab ab[BOS]b").unwrap(), [3, 4, 5, 1]);
}

#[test]
fn what_would_change_the_ids_is_refused_by_its_field() {
    for dropout in [json!(0.5), json!(0.0), json!("x")] {
        let mut value = small();
        value["model"]["dropout"] = dropout;
        let error = parse(&value).unwrap_err();
        assert_eq!(error.code(), "T0104");
        assert!(error.to_string().contains("`model.dropout`"), "{error}");
    }
    for processor in [
        json!({"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}}),
        json!({"type": "Sequence", "processors": []}),
        json!(3),
    ] {
        let mut value = small();
        value["post_processor"] = processor;
        let error = parse(&value).unwrap_err();
        assert_eq!(error.code(), "T0104");
        assert!(error.to_string().contains("`post_processor.type`"), "{error}");
    }
    for mark in ["continuing_subword_prefix", "end_of_word_suffix"] {
        let mut value = small();
        value["model"][mark] = json!("##");
        let error = parse(&value).unwrap_err();
        assert_eq!(error.code(), "T0104");
        assert!(error.to_string().contains(mark), "{error}");
        value["model"][mark] = json!("");
        assert_eq!(parse(&value).unwrap().encode("ab ab[BOS]b").unwrap(), [3, 4, 5, 1]);
    }
    let mut value = small();
    value["post_processor"] = json!({"type": "ByteLevel", "add_prefix_space": true,
                                     "trim_offsets": true, "use_regex": true});
    assert_eq!(parse(&value).unwrap().encode("ab ab[BOS]b").unwrap(), [3, 4, 5, 1]);
}

#[test]
fn merges_and_ids_that_do_not_fit_are_refused() {
    // The last is longer than every token.
    for merge in [json!(["b", "b"]), json!("b b"), json!(["Ġab", "Ġab"]), json!("ab"), json!(["a"])]
    {
        let mut value = small();
        value["model"]["merges"] = json!([merge]);
        assert_eq!(parse(&value).unwrap_err().code(), "T0103", "{merge}");
    }
    // `[BOS]` would get the id 6.
    let mut value = small();
    value["model"]["vocab"]["aa"] = json!(9);
    assert_eq!(parse(&value).unwrap_err().code(), "T0103");
    let mut value = small();
    value["model"]["merges"] = json!(["a b", "Ġ ab"]);
    assert_eq!(parse(&value).unwrap().encode("ab ab[BOS]b").unwrap(), [3, 4, 5, 1]);
}

#[test]
fn messages_show_the_start_of_what_is_long() {
    let long = "x".repeat(10_000);
    let mut kind = small();
    kind["decoder"]["type"] = json!(long);
    let mut id = small();
    id["model"]["vocab"][&long] = json!(-1);
    let mut bytes = small();
    bytes["model"]["vocab"][format!("中{long}")] = json!(6);
    bytes["added_tokens"] = json!([]);
    let mut twice = small();
    twice["added_tokens"] = json!([]);
    twice["model"]["vocab"][&long] = json!(1);
    for (case, value) in [kind, id, bytes, twice].into_iter().enumerate() {
        let message = parse(&value).map(|_| case).unwrap_err().to_string();
        assert!(message.len() < 300 && message.contains('…'), "{message}");
    }
}

#[test]
fn damaged_tokenizers_never_panic() {
    let path = Path::new("tokenizer.json");
    let whole = Tokenizer::parse(small().to_string().as_bytes(), path).unwrap();
    assert_eq!(whole.encode("ab ab[BOS]b").unwrap(), [3, 4, 5, 1]);
    let (mut loaded, mut refused) = (0, 0);
    for case in 0..2000 {
        let mut dice = Dice(case);
        let mut value = small();
        let mut bytes = value.to_string().into_bytes();
        if case % 2 == 0 {
            damage_bytes(&mut bytes, &mut dice);
        } else {
            damage_value(&mut value, &mut dice);
            bytes = value.to_string().into_bytes();
        }
        match Tokenizer::parse(&bytes, path) {
            Ok(tokenizer) => {
                if let Ok(ids) = tokenizer.encode("ab 12 ab\u{1f980}[BOS]") {
                    // Every id that encoding gives has its bytes.
                    assert!(tokenizer.decode(&ids).is_ok(), "case {case}");
                }
                loaded += 1;
            }
            Err(error) => {
                assert!(["T0103", "T0104"].contains(&error.code()), "case {case}: {error}");
                refused += 1;
            }
        }
    }
    assert!(loaded > 50 && refused > 500, "{loaded} loaded, {refused} refused");
}

#[test]
fn parts_that_do_not_keep_bytes_are_refused() {
    for (part, settings) in [
        ("normalizer", json!({"type": "Precompiled", "precompiled_charsmap": "/////w=="})),
        ("normalizer", json!({"type": "Precompiled", "precompiled_charsmap": ""})),
        ("normalizer", json!({"type": "Replace", "pattern": {"String": ""}, "content": "x"})),
        ("normalizer", json!({"type": "Prepend", "prepend": ""})),
        ("normalizer", json!({"type": "Lowercase"})),
        (
            "normalizer",
            json!({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Strip"}]}),
        ),
        ("normalizer", json!({"type": "Sequence", "normalizers": 3})),
        ("normalizer", json!("NFC")),
        ("pre_tokenizer", json!({"type": "Nothing"})),
        ("pre_tokenizer", json!({"type": "FixedLength", "length": 0})),
        (
            "pre_tokenizer",
            json!({"type": "Metaspace", "replacement": "_", "add_prefix_space": true}),
        ),
        ("pre_tokenizer", json!({"type": "WhitespaceSplit"})),
        (
            "pre_tokenizer",
            json!({"type": "Split", "pattern": {"Regex": ""}, "behavior": "Isolated", "invert": false}),
        ),
        ("pre_tokenizer", json!({"type": "Split", "behavior": "Isolated", "invert": false})),
        (
            "pre_tokenizer",
            json!({"type": "Sequence", "pretokenizers": [{"type": "UnicodeScripts"}]}),
        ),
        ("post_processor", json!("ByteLevel")),
        ("decoder", json!({"type": "Fuse"})),
        ("model", json!(null)),
        ("model", json!("BPE")),
    ] {
        let mut value = small();
        value[part] = settings.clone();
        let error = parse(&value).expect_err(&settings.to_string());
        assert_eq!(error.code(), "T0104", "{error}");
        assert!(error.to_string().contains(part), "{error}");
        // What is there is shown, not called absent.
        let is_absent = error.to_string().contains("absent");
        let has_no_pattern = settings["type"] == "Split" && settings["pattern"].is_null();
        assert_eq!(is_absent, has_no_pattern || settings.is_null(), "{error}");
    }
}

#[test]
fn known_parts_are_taken_and_cut_texts() {
    for (part, settings) in [
        ("normalizer", json!({"type": "NFC"})),
        (
            "normalizer",
            json!({"type": "Sequence", "normalizers": [{"type": "NFKD"}, {"type": "NFC"}]}),
        ),
        (
            "pre_tokenizer",
            json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                                 "use_regex": false}),
        ),
        (
            "pre_tokenizer",
            json!({"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": "\\s?[a-z]+"}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]}),
        ),
    ] {
        let mut value = small();
        value[part] = settings.clone();
        assert_eq!(parse(&value).unwrap().encode("ab ab").unwrap(), [3, 4], "{settings}");
    }
}

/// Damage that meets the parts around the model more often than the rest.
#[test]
fn damaged_parts_load_or_are_refused() {
    let mut dice = Dice(20_261_130);
    for round in 0..4000 {
        let mut value = small();
        value["normalizer"] = json!({"type": "Sequence", "normalizers": [{"type": "NFC"}]});
        value["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": "[a-z]+"}, "behavior": "Isolated", "invert": false},
            {"type": "Digits", "individual_digits": true},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}]});
        let part = ["normalizer", "pre_tokenizer", "decoder", "added_tokens"][round % 4];
        damage_value(&mut value[part], &mut dice);
        if let Ok(tokenizer) = parse(&value) {
            let _ = tokenizer.encode("ab ab[BOS] 1");
        }
    }
}

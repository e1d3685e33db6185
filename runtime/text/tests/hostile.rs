//! Damaged tokenizers: each loads or is refused, none panics.

use std::path::Path;

use kernel_text::Tokenizer;
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
    assert!(loaded > 100 && refused > 500, "{loaded} loaded, {refused} refused");
}

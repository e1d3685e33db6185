//! Thousands of damaged files: each loads or is refused, none panics, and what loads can be read to its last byte.
//!
//! Damage is drawn from a seed, so that a failure names its case.

use std::path::Path;

use kernel_abi::numeric::random::word;
use kimi_k3::checkpoint::{INDEX_FILE, SINGLE_FILE};
use kimi_k3::{Checkpoint, Config, eval, manifest};
use serde_json::{Value, json};

use super::folder::{Folder, mini, safetensors};

const SEED: u64 = 20_261_129;

/// Draws of one case.
struct Dice {
    case: u64,
    drawn: u64,
}

impl Dice {
    fn new(case: u64) -> Dice {
        Dice { case, drawn: 0 }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.drawn += 1;
        (word(SEED, self.case, self.drawn) % bound.max(1) as u64) as usize
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }
}

/// One to four damages: a bit, a byte, a piece gone, twice, or cut off.
fn damage(bytes: &mut Vec<u8>, dice: &mut Dice) {
    for _ in 0..=dice.below(4) {
        let at = dice.below(bytes.len());
        let end = bytes.len().min(at + 1 + dice.below(24));
        match dice.below(7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << dice.below(8),
            1 if at < bytes.len() => bytes[at] = dice.pick(b"\0\"{}[]:,-0919eE.\\/\xff"),
            2 => drop(bytes.drain(at..end)),
            3 => {
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            4 => bytes.truncate(at),
            5 => bytes.splice(at..at, *b"18446744073709551615").for_each(drop),
            _ => {
                let from = dice.below(bytes.len());
                let piece = bytes[from..bytes.len().min(from + 16)].to_vec();
                let end = bytes.len().min(at + piece.len());
                bytes.splice(at..end, piece).for_each(drop);
            }
        }
    }
}

/// Replaces one value of a JSON text.
fn replace_value(value: &mut Value, dice: &mut Dice) {
    let absurd = [
        json!(null),
        json!(0),
        json!(-1),
        json!(1),
        json!(3),
        json!(1e308),
        json!(0.5),
        json!(u64::MAX),
        json!(1_u64 << 63),
        json!(4_294_967_296_u64),
        json!(i64::MIN),
        json!(""),
        json!("F32"),
        json!("../x.safetensors"),
        json!([]),
        json!([0, 18_446_744_073_709_551_615_u64]),
        json!({}),
        json!(true),
    ];
    let children = match value {
        Value::Array(list) => list.len(),
        Value::Object(map) => map.len(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    };
    if children == 0 || dice.below(8) == 0 {
        *value = dice.pick(&absurd);
        return;
    }
    let at = dice.below(children);
    let child = match value {
        Value::Array(list) => list.get_mut(at),
        Value::Object(map) => map.values_mut().nth(at),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    };
    if let Some(child) = child {
        replace_value(child, dice);
    }
}

/// A small file with every kind of tensor.
fn small() -> (Value, Vec<u8>) {
    let header = json!({
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "b": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]},
        "c": {"dtype": "U8", "shape": [1, 5, 1], "data_offsets": [32, 37]},
        "empty": {"dtype": "I64", "shape": [0], "data_offsets": [37, 37]},
        "d": {"dtype": "F8_E8M0", "shape": [], "data_offsets": [37, 38]},
    });
    (header, (0..38).collect())
}

/// Reads everything that a checkpoint holds.
fn read_all(checkpoint: &Checkpoint) -> usize {
    let tensors = checkpoint.names().filter_map(|name| checkpoint.tensor(name).ok());
    tensors.map(|tensor| tensor.to_f64().len()).sum()
}

#[test]
fn damaged_safetensors_never_panic() {
    let folder = Folder::new();
    let (header, data) = small();
    let whole = safetensors(&header.to_string(), &data);
    let (mut loaded, mut refused) = (0, 0);
    for case in 0..4000 {
        let mut dice = Dice::new(case);
        let file = if case % 2 == 0 {
            let mut file = whole.clone();
            damage(&mut file, &mut dice);
            file
        } else {
            let mut header = header.clone();
            replace_value(&mut header, &mut dice);
            safetensors(&header.to_string(), &data)
        };
        folder.write(SINGLE_FILE, &file);
        match Checkpoint::open(folder.path()) {
            Ok(checkpoint) => {
                assert!(read_all(&checkpoint) <= 2 * file.len(), "case {case}");
                loaded += 1;
            }
            Err(error) => {
                assert!(error.code().name().starts_with("K02"), "case {case}");
                assert!(error.to_string().len() < 2000, "case {case}");
                refused += 1;
            }
        }
    }
    assert!(loaded > 100 && refused > 1000, "{loaded} loaded, {refused} refused");
}

#[test]
fn damaged_configurations_never_panic() {
    let text = std::fs::read_to_string(mini().join("config.json")).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    let checkpoint = Checkpoint::open(&mini()).unwrap();
    let (mut loaded, mut refused) = (0, 0);
    for case in 0..4000 {
        let mut dice = Dice::new(case);
        let damaged = if case % 2 == 0 {
            let mut bytes = text.clone().into_bytes();
            damage(&mut bytes, &mut dice);
            String::from_utf8_lossy(&bytes).into_owned()
        } else {
            let mut value = value.clone();
            replace_value(&mut value, &mut dice);
            value.to_string()
        };
        match Config::parse(&damaged) {
            Ok(config) => {
                // Sizes of what loads can be counted, and the checkpoint fits or does not.
                let counted = manifest::visit(&config, &mut |entry| {
                    let elements =
                        entry.shape.iter().try_fold(1_usize, |all, n| all.checked_mul(*n));
                    if elements.is_some() { Ok(()) } else { Err(entry.name) }
                });
                assert_eq!(counted, Ok(()), "case {case}");
                let _ = checkpoint.check(&config);
                loaded += 1;
            }
            Err(error) => {
                assert!(error.code().name().starts_with("K01"), "case {case}");
                assert!(error.to_string().len() < 2000, "case {case}");
                refused += 1;
            }
        }
    }
    assert!(loaded > 100 && refused > 1000, "{loaded} loaded, {refused} refused");
}

#[test]
fn damaged_indices_never_panic() {
    let folder = Folder::new();
    let (header, data) = small();
    folder.write("model-1.safetensors", &safetensors(&header.to_string(), &data));
    let index = json!({
        "metadata": {"total_size": 38},
        "weight_map": {"a": "model-1.safetensors", "b": "model-1.safetensors"},
    });
    let (mut loaded, mut refused) = (0, 0);
    for case in 0..2000 {
        let mut dice = Dice::new(case);
        let mut bytes = index.to_string().into_bytes();
        if case % 2 == 0 {
            damage(&mut bytes, &mut dice);
        } else {
            let mut index = index.clone();
            replace_value(&mut index, &mut dice);
            bytes = index.to_string().into_bytes();
        }
        folder.write(INDEX_FILE, &bytes);
        match Checkpoint::open(folder.path()) {
            Ok(checkpoint) => {
                read_all(&checkpoint);
                loaded += 1;
            }
            Err(error) => {
                assert!(error.code().name().starts_with("K02"), "case {case}: {error}");
                refused += 1;
            }
        }
    }
    assert!(loaded > 50 && refused > 500, "{loaded} loaded, {refused} refused");
}

#[test]
fn damaged_tasks_never_panic() {
    let text = std::fs::read_to_string(mini().join("eval/arith.jsonl")).unwrap();
    let lines: Vec<&str> = text.lines().take(3).collect();
    for case in 0..1000 {
        let mut bytes = lines.join("\n").into_bytes();
        damage(&mut bytes, &mut Dice::new(case));
        let tasks =
            eval::parse(&String::from_utf8_lossy(&bytes), Path::new("tasks")).unwrap_or_default();
        for task in tasks {
            task.is_correct(&task.reference_text);
            task.agreement(&[1, 2, 3]);
        }
    }
}

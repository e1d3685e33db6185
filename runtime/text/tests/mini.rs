//! The tokenizer of kimi-k3-mini against its goldens, and what must be refused by name.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

use std::path::{Path, PathBuf};

use kernel_text::{TextError, Tokenizer};
use safetensors::SafeTensors;
use serde_json::{Value, json};

const BOS: u32 = 0;

fn mini() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/kimi_k3/mini")
}

fn tokenizer() -> Tokenizer {
    Tokenizer::open(&mini()).unwrap()
}

fn file() -> Value {
    serde_json::from_slice(&std::fs::read(mini().join("tokenizer.json")).unwrap()).unwrap()
}

fn parse(value: &Value) -> Result<Tokenizer, TextError> {
    Tokenizer::parse(value.to_string().as_bytes(), Path::new("tokenizer.json"))
}

/// The lines of a set of tasks.
fn tasks(name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(mini().join(format!("eval/{name}.jsonl"))).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

#[test]
fn prompts_have_the_ids_of_the_goldens() {
    let tokenizer = tokenizer();
    let manifest = std::fs::read_to_string(mini().join("golden/manifest.json")).unwrap();
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    for name in ["text", "code", "recall", "json"] {
        let prompt = &manifest[name];
        let ids = tokenizer.encode_prompt(BOS, prompt["prompt"].as_str().unwrap()).unwrap();
        let golden = std::fs::read(mini().join(format!("golden/{name}.safetensors"))).unwrap();
        let golden = SafeTensors::deserialize(&golden).unwrap();
        let golden = golden.tensor("ids").unwrap();
        let want =
            golden.data().chunks_exact(4).map(|id| u32::from_le_bytes(id.try_into().unwrap()));
        assert_eq!(ids, want.collect::<Vec<u32>>(), "{name}");
        assert_eq!(tokenizer.decode(&ids).unwrap(), prompt["prompt"].as_str().unwrap());
    }
}

#[test]
fn ids_and_texts_of_tasks_agree() {
    let tokenizer = tokenizer();
    for task in
        ["recall", "ith", "arith"].into_iter().flat_map(|name| tasks(name).into_iter().step_by(5))
    {
        let prompt = task["prompt"].as_str().unwrap();
        let encoded = tokenizer.encode_prompt(BOS, prompt).unwrap();
        assert_eq!(
            encoded.len(),
            task["prompt_tokens"].as_u64().unwrap() as usize,
            "{}",
            task["id"]
        );
        let reference = task["reference_text"].as_str().unwrap();
        assert_eq!(tokenizer.decode(&ids(&task["reference_ids"])).unwrap(), reference);
    }
}

#[test]
fn any_text_comes_back() {
    let tokenizer = tokenizer();
    for text in ["", " ", "a", "Größe: 3 µm — 中文 🦀👩‍👩‍👧\r\n\t\0", "0123456789", "\u{fffd}\u{feff}"]
    {
        let ids = tokenizer.encode(text).unwrap();
        assert_eq!(tokenizer.decode(&ids).unwrap(), text);
        let mut stream = tokenizer.stream();
        let parts: Vec<String> = ids.iter().map(|id| stream.push(*id).unwrap()).collect();
        assert_eq!(stream.finish(), "");
        assert_eq!(parts.concat(), text);
        assert!(text.contains('\u{fffd}') || !parts.concat().contains('\u{fffd}'));
    }
    assert_eq!(tokenizer.encode("123").unwrap(), [24, 25, 26], "digits are single tokens");
}

#[test]
fn an_unfinished_character_is_held_back() {
    let tokenizer = tokenizer();
    let ids = tokenizer.encode("🦀").unwrap();
    assert!(ids.len() > 1, "the vocabulary has no crab");
    let mut stream = tokenizer.stream();
    for id in &ids[..ids.len() - 1] {
        assert_eq!(stream.push(*id).unwrap(), "");
    }
    assert_eq!(stream.clone().finish(), "\u{fffd}");
    assert_eq!(stream.push(ids[ids.len() - 1]).unwrap(), "🦀");
}

#[test]
fn special_tokens_are_ids_and_no_text() {
    let tokenizer = tokenizer();
    assert_eq!(tokenizer.vocabulary_size(), 2048);
    assert_eq!(tokenizer.id_of("<|end|>"), Some(7));
    assert_eq!(tokenizer.id_of("<|nothing|>"), None);
    assert_eq!(tokenizer.encode("<|user|>").unwrap(), [4]);
    assert_eq!(tokenizer.decode(&[0, 24, 7, 1]).unwrap(), "1");
    let error = tokenizer.decode(&[2048]).unwrap_err();
    assert_eq!(error.code(), "T0106");
    assert!(error.to_string().contains("2048"), "{error}");
    assert_eq!(tokenizer.stream().push(u32::MAX).unwrap_err().code(), "T0106");
}

#[test]
fn another_format_is_refused_by_name() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("another_format");
    std::fs::create_dir_all(&folder).unwrap();
    let refused = || Tokenizer::open(&folder).unwrap_err();
    assert_eq!(refused().code(), "T0102");
    for name in ["tiktoken.model", "tokenizer.model"] {
        std::fs::write(folder.join(name), "x").unwrap();
        let error = refused();
        assert_eq!(error.code(), "T0102");
        assert!(error.to_string().contains(&format!("`{name}`")), "{error}");
        std::fs::remove_file(folder.join(name)).unwrap();
    }
    std::fs::create_dir_all(folder.join("tokenizer.json")).unwrap();
    assert_eq!(refused().code(), "T0101");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn another_kind_is_refused_by_name() {
    for (pointer, value, text) in [
        ("/model/type", json!("Unigram"), "`model.type` is \"Unigram\""),
        ("/model/type", json!("WordPiece"), "WordPiece"),
        ("/decoder/type", json!("Metaspace"), "`decoder.type` is \"Metaspace\""),
        ("/decoder", Value::Null, "`decoder.type` is absent"),
        ("/model", json!({}), "`model.type` is absent"),
    ] {
        let mut changed = file();
        *changed.pointer_mut(pointer).unwrap() = value;
        let error = parse(&changed).unwrap_err();
        assert_eq!(error.code(), "T0104", "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn a_broken_file_is_refused() {
    let path = Path::new("tokenizer.json");
    for text in ["", "{", "\u{0}", &"[".repeat(100_000)] {
        assert_eq!(Tokenizer::parse(text.as_bytes(), path).unwrap_err().code(), "T0103");
    }
    for (pointer, value) in [
        ("/model/merges", json!([["Q", "this is no token"]])),
        ("/model/merges", json!(3)),
        ("/model/vocab", json!(["a"])),
        ("/model/vocab", json!({"a": 4_294_967_295_u64})),
        ("/model/vocab", json!({"a": -1})),
        ("/added_tokens", json!([{"id": 99_999_999, "content": "x"}])),
        ("/added_tokens", json!({})),
        ("/version", json!(7)),
    ] {
        let mut changed = file();
        *changed.pointer_mut(pointer).unwrap() = value;
        assert_eq!(parse(&changed).unwrap_err().code(), "T0103", "{pointer}");
    }
    let mut changed = file();
    changed["model"]["vocab"]["not bytes"] = json!(2048);
    let error = parse(&changed).unwrap_err();
    assert_eq!(error.code(), "T0103");
    assert!(error.to_string().contains("not bytes"), "{error}");
    let mut changed = file();
    changed["model"]["vocab"]["abcabcabc"] = json!(100);
    assert!(parse(&changed).unwrap_err().to_string().contains("two tokens"));
}

#[test]
fn a_text_without_tokens_is_refused() {
    let mut small = file();
    small["model"]["vocab"] = json!({"a": 0});
    small["model"]["merges"] = json!([]);
    small["model"]["unk_token"] = json!("<unknown>");
    small["added_tokens"] = json!([]);
    let tokenizer = parse(&small).unwrap();
    assert_eq!(tokenizer.encode("aa").unwrap(), [0, 0]);
    assert_eq!(tokenizer.encode("ab").unwrap_err().code(), "T0105");
}

//! Checkpoints: the mini in one file and in three, and what must be refused with the tensor's or the file's name.

use super::folder::{Folder, mini, safetensors, tensor};
use kernel_abi::DType;
use kimi_k3::checkpoint::{INDEX_FILE, SINGLE_FILE};
use kimi_k3::code::Code;
use kimi_k3::names::moe::Matrix;
use kimi_k3::{Checkpoint, CheckpointError, Config, names};
use serde_json::{Value, json};

fn refuse(folder: &Folder) -> CheckpointError {
    Checkpoint::open(folder.path()).expect_err("the checkpoint is broken")
}

/// A file of these header and data bytes is refused with that code; the message holds that text.
fn refuse_file(header: &str, data: usize, code: Code, text: &str) {
    let folder = Folder::new();
    folder.write(SINGLE_FILE, &safetensors(header, &vec![0; data]));
    let error = refuse(&folder);
    assert_eq!(error.code(), code, "{header}: {error}");
    assert!(error.to_string().contains(text), "{error}");
}

#[test]
fn every_tensor_of_the_mini_is_known_and_right() {
    let config = Config::open(&mini()).unwrap();
    let checkpoint = Checkpoint::open(&mini()).unwrap();
    checkpoint.check(&config).unwrap();
    checkpoint.check_unchanged().unwrap();
    assert_eq!(checkpoint.bytes(), 13_740_280);
    let known = kimi_k3::manifest::entries(&config).len();
    assert_eq!(checkpoint.names().count(), known, "the manifest names every tensor");
}

#[test]
fn the_mini_in_three_files_is_the_same() {
    let whole = Checkpoint::open(&mini()).unwrap();
    let names: Vec<&str> = whole.names().collect();
    let folder = Folder::new();
    let mut weight_map = serde_json::Map::new();
    for part in 0..3 {
        let file = format!("model-{:05}-of-00003.safetensors", part + 1);
        let of_part: Vec<&str> = names.iter().copied().skip(part).step_by(3).collect();
        let mut header = serde_json::Map::new();
        let mut data = Vec::new();
        for name in of_part {
            let view = whole.tensor(name).unwrap();
            header.insert(name.to_owned(), tensor(&view, data.len()));
            data.extend_from_slice(&view.bytes);
            weight_map.insert(name.to_owned(), json!(file));
        }
        folder.write(&file, &safetensors(&Value::Object(header).to_string(), &data));
    }
    let index = json!({"metadata": {"total_size": 1}, "weight_map": weight_map});
    folder.write(INDEX_FILE, index.to_string().as_bytes());
    let parts = Checkpoint::open(folder.path()).unwrap();
    assert_eq!(parts.files().count(), 3);
    assert_eq!(parts.names().collect::<Vec<_>>(), names);
    for name in names {
        assert_eq!(parts.tensor(name).unwrap(), whole.tensor(name).unwrap(), "{name}");
    }
    parts.check(&Config::open(&mini()).unwrap()).unwrap();
}

#[test]
fn a_padded_buffer_is_cut() {
    let checkpoint = Checkpoint::open(&mini()).unwrap();
    let name = names::kda::a_log(1);
    assert_eq!(checkpoint.tensor(&name).unwrap().shape, [32]);
    let cut = checkpoint.expect_padded(&name, 4).unwrap();
    assert_eq!((cut.shape.as_slice(), cut.bytes.len()), ([4].as_slice(), 16));
    let error = checkpoint.expect_padded(&name, 33).unwrap_err();
    assert_eq!(error.code(), Code::K0208);
    assert!(error.to_string().contains("[33 or more]"), "{error}");
    assert_eq!(checkpoint.expect_padded(&name, usize::MAX / 4).unwrap_err().code(), Code::K0208);
    let matrix = names::kda::q_conv1d(1);
    assert_eq!(checkpoint.expect_padded(&matrix, 4).unwrap_err().code(), Code::K0208);
}

#[test]
fn another_tensor_than_expected_is_refused_by_name() {
    let checkpoint = Checkpoint::open(&mini()).unwrap();
    let name = names::embed_tokens();
    assert!(checkpoint.expect(&name, DType::Bf16, &[2048, 256]).is_ok());
    for (code, error) in [
        (Code::K0208, checkpoint.expect(&name, DType::Bf16, &[256, 2048])),
        (Code::K0209, checkpoint.expect(&name, DType::F32, &[2048, 256])),
        (Code::K0207, checkpoint.expect(&format!("{name}2"), DType::Bf16, &[1])),
    ] {
        let error = error.unwrap_err();
        assert_eq!(error.code(), code);
        assert!(error.to_string().contains(&name), "{error}");
    }
    let mut config = Config::open(&mini()).unwrap();
    config.moe.experts += 1;
    assert_eq!(checkpoint.check(&config).unwrap_err().code(), Code::K0208);
    config.moe.experts -= 1;
    config.layers.push(config.layers[8]);
    let error = checkpoint.check(&config).unwrap_err();
    assert_eq!(error.code(), Code::K0207);
    assert!(error.to_string().contains("layers.9."), "{error}");
}

/// The mini with some bytes of a tensor replaced.
fn mini_with(name: &str, at: usize, bytes: &[u8]) -> Folder {
    let path = mini().join(SINGLE_FILE);
    let whole = Checkpoint::open_file(&path).unwrap();
    let mut file = std::fs::read(path).unwrap();
    let view = whole.tensor(name).unwrap();
    // Where the same bytes stand: long enough to be there once.
    let start = file.windows(view.bytes.len()).position(|window| window == view.bytes).unwrap();
    file[start + at..][..bytes.len()].copy_from_slice(bytes);
    let folder = Folder::new();
    folder.write(SINGLE_FILE, &file);
    folder
}

#[test]
fn a_scale_that_is_no_number_is_found() {
    // [128, 2]: byte 201 is row 100, group 1.
    let name = names::moe::scale(4, 17, Matrix::W3);
    let folder = mini_with(&name, 201, &[255]);
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let error = checkpoint.check(&Config::open(&mini()).unwrap()).unwrap_err();
    assert_eq!(error.code(), Code::K0210);
    assert!(error.to_string().contains(&name) && error.to_string().contains("[100, 1]"), "{error}");
    assert_eq!(checkpoint.expect_scales(&name, [128, 2]).unwrap_err().code(), Code::K0210);
    assert!(checkpoint.expect_scales(&names::moe::scale(4, 16, Matrix::W3), [128, 2]).is_ok());
}

#[test]
fn a_parameter_that_is_no_number_is_found() {
    let config = Config::open(&mini()).unwrap();
    // The exponent of all ones in the last element of a long tensor, as +inf, -inf and NaN.
    let (embedding, last) = (names::embed_tokens(), 2048 * 256 - 1);
    for bad in [0x7f80_u16, 0xff80, 0x7fc0, 0xffff] {
        let folder = mini_with(&embedding, last * 2, &bad.to_le_bytes());
        let checkpoint = Checkpoint::open(folder.path()).unwrap();
        let error = checkpoint.check(&config).unwrap_err();
        assert_eq!(error.code(), Code::K0211, "{bad:x}");
        assert!(error.to_string().contains(&format!("element {last}")), "{error}");
    }
    // The greatest finite numbers may be there.
    let folder = mini_with(&embedding, last * 2, &0xff7f_u16.to_le_bytes());
    Checkpoint::open(folder.path()).unwrap().check(&config).unwrap();
    let norm = names::mla::kv_a_layernorm(3);
    let folder = mini_with(&norm, 2, &0x7fc0_u16.to_le_bytes());
    let error = Checkpoint::open(folder.path()).unwrap().check(&config).unwrap_err();
    assert!(error.to_string().contains(&norm) && error.to_string().contains("element 1"));
    for (name, bad) in [
        (names::moe::gate_bias(2), f32::NAN),
        (names::kda::dt_bias(2), f32::INFINITY),
        (names::kda::a_log(0), f32::NEG_INFINITY),
    ] {
        let folder = mini_with(&name, 4, &bad.to_le_bytes());
        let error = Checkpoint::open(folder.path()).unwrap().check(&config).unwrap_err();
        assert_eq!(error.code(), Code::K0211);
        assert!(error.to_string().contains(&name) && error.to_string().contains("element 1"));
    }
    // Padding may hold anything.
    let folder = mini_with(&names::kda::a_log(0), 4 * 4, &f32::NAN.to_le_bytes());
    Checkpoint::open(folder.path()).unwrap().check(&config).unwrap();
}

#[test]
fn a_folder_without_a_checkpoint_is_refused() {
    let folder = Folder::new();
    assert_eq!(refuse(&folder).code(), Code::K0212);
    // A link in a circle is a checkpoint that cannot be read.
    let link = folder.path().join(SINGLE_FILE);
    std::os::unix::fs::symlink(&link, &link).unwrap();
    assert_eq!(refuse(&folder).code(), Code::K0201);
    std::fs::remove_file(&link).unwrap();
    std::fs::create_dir(folder.path().join(SINGLE_FILE)).unwrap();
    let error = refuse(&folder);
    assert_eq!(error.code(), Code::K0201);
    assert!(error.to_string().contains("not a regular file"), "{error}");
    let error = Checkpoint::open_file(&folder.path().join("absent.safetensors")).unwrap_err();
    assert_eq!(error.code(), Code::K0201);
}

#[test]
fn a_broken_header_is_refused() {
    let folder = Folder::new();
    for bytes in [&[][..], &[1, 2, 3], &[0; 8], &[4, 0, 0, 0, 0, 0, 0, 0, b'{', b'}']] {
        folder.write(SINGLE_FILE, bytes);
        assert_eq!(refuse(&folder).code(), Code::K0202, "{bytes:?}");
    }
    for length in [u64::MAX, 1 << 63, 1 << 40, 100_000_001, 90_000_000] {
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend_from_slice(b"{}");
        folder.write(SINGLE_FILE, &bytes);
        let error = refuse(&folder);
        assert_eq!(error.code(), Code::K0202);
        assert!(error.to_string().contains(&length.to_string()), "{error}");
    }
    for header in [
        "[]",
        "{",
        r#"{"a": 3}"#,
        r#"{"a": {"dtype": "F33", "shape": [1], "data_offsets": [0, 4]}}"#,
        r#"{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}"#,
        r#"{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0]}}"#,
        r#"{"a": {"dtype": "F32", "data_offsets": [0, 4]}}"#,
        r#"{"a": {"dtype": "F32", "shape": [1.5], "data_offsets": [0, 4]}}"#,
        "{} {}",
    ] {
        refuse_file(header, 4, Code::K0202, "header");
    }
    let axes =
        format!(r#"{{"a": {{"dtype": "F32", "shape": {:?}, "data_offsets": [0, 4]}}}}"#, [1; 17]);
    refuse_file(&axes, 4, Code::K0202, "at most 16 extents");
    refuse_file(&"{\"a\":".repeat(10_000), 4, Code::K0202, "header");
    // Bytes that belong to no tensor.
    refuse_file("{}", 4, Code::K0202, "accounts for 0 bytes");
}

#[test]
fn a_wrong_place_is_refused() {
    let two = |a: &str, b: &str| {
        format!(
            r#"{{"a": {{"dtype": "F32", "shape": [2], "data_offsets": {a}}},
                 "b": {{"dtype": "F32", "shape": [2], "data_offsets": {b}}}}}"#
        )
    };
    refuse_file(&two("[0, 8]", "[4, 12]"), 12, Code::K0203, "overlaps");
    refuse_file(&two("[0, 8]", "[0, 8]"), 8, Code::K0203, "overlaps");
    refuse_file(&two("[0, 8]", "[12, 20]"), 20, Code::K0203, "gap");
    refuse_file(&two("[0, 8]", "[8, 16]"), 15, Code::K0203, "`b` stands at bytes 8..16");
    refuse_file(&two("[8, 0]", "[8, 16]"), 16, Code::K0203, "`a`");
    refuse_file(
        &two("[0, 8]", "[18446744073709551608, 18446744073709551615]"),
        16,
        Code::K0203,
        "`b`",
    );
    let one = |shape: &str, dtype: &str, end: usize| {
        format!(r#"{{"a": {{"dtype": "{dtype}", "shape": {shape}, "data_offsets": [0, {end}]}}}}"#)
    };
    refuse_file(&one("[3]", "F32", 8), 8, Code::K0203, "needs 12");
    refuse_file(
        &one("[4294967296, 4294967296]", "F32", 8),
        8,
        Code::K0203,
        "more than can be counted",
    );
    refuse_file(&one("[0, 4294967296, 4294967296, 9]", "U8", 8), 8, Code::K0203, "needs 0");
    refuse_file(&one("[9223372036854775808]", "U8", 8), 8, Code::K0203, "more than can be counted");
    // An empty tensor takes no room.
    let folder = Folder::new();
    folder.write(SINGLE_FILE, &safetensors(&one("[0, 7]", "BF16", 0), &[]));
    assert_eq!(Checkpoint::open(folder.path()).unwrap().tensor("a").unwrap().shape, [0, 7]);
    // An element type that the language lacks is an error of the one who asks for it.
    folder.write(SINGLE_FILE, &safetensors(&one("[1]", "F64", 8), &[0; 8]));
    let error = Checkpoint::open(folder.path()).unwrap().tensor("a").unwrap_err();
    assert_eq!(error.code(), Code::K0209);
}

#[test]
fn a_name_that_is_there_twice_is_refused() {
    let entry = |at: usize| {
        format!(r#"{{"dtype": "F32", "shape": [1], "data_offsets": [{at}, {}]}}"#, at + 4)
    };
    let header = format!(r#"{{"a": {}, "a": {}}}"#, entry(0), entry(4));
    refuse_file(&header, 8, Code::K0204, "`a`");
    // Also when it is spelled in another way.
    let header = format!(r#"{{"a": {}, "\u0061": {}}}"#, entry(0), entry(4));
    refuse_file(&header, 8, Code::K0204, "`a`");
    refuse_file(r#"{"__metadata__": {}, "__metadata__": {}}"#, 0, Code::K0204, "__metadata__");
}

#[test]
fn a_truncated_file_is_refused() {
    let whole = std::fs::read(mini().join(SINGLE_FILE)).unwrap();
    let folder = Folder::new();
    for len in [0, 7, 8, 1000, 300_000, whole.len() / 2, whole.len() - 1] {
        folder.write(SINGLE_FILE, &whole[..len]);
        assert!([Code::K0202, Code::K0203].contains(&refuse(&folder).code()), "{len} bytes");
    }
}

#[test]
fn a_broken_index_is_refused() {
    let folder = Folder::new();
    let entry = r#"{"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}"#;
    folder.write("model-1.safetensors", &safetensors(entry, &[7]));
    let index = |text: &str| {
        folder.write(INDEX_FILE, text.as_bytes());
        Checkpoint::open(folder.path())
    };
    assert_eq!(
        index(r#"{"weight_map": {"a": "model-1.safetensors"}}"#)
            .unwrap()
            .tensor("a")
            .unwrap()
            .bytes,
        [7]
    );
    for text in [
        "",
        "{}",
        "[]",
        r#"{"weight_map": 3}"#,
        r#"{"weight_map": {"a": 3}}"#,
        r#"{"weight_map": {}}"#,
    ] {
        assert_eq!(index(text).unwrap_err().code(), Code::K0205, "{text}");
    }
    for file in [
        "absent.safetensors",
        "../model-1.safetensors",
        "/model-1.safetensors",
        "..",
        "",
        "x/y.safetensors",
        "config.json",
    ] {
        let error = index(&json!({"weight_map": {"a": file}}).to_string()).unwrap_err();
        assert_eq!(error.code(), Code::K0206, "{file}");
        assert!(error.to_string().contains(&format!("`{file}`")), "{error}");
    }
    let long = "x".repeat(10_000);
    for text in [
        json!({"weight_map": {"a": format!("{long}.safetensors")}}).to_string(),
        json!({"weight_map": {"a": format!("{long}/")}}).to_string(),
        json!({"weight_map": {(long.clone()): "model-1.safetensors"}}).to_string(),
        format!(r#"{{"weight_map": {{"{long}": "b", "{long}": "b"}}}}"#),
        json!({"weight_map": long}).to_string(),
    ] {
        let message = index(&text).unwrap_err().to_string();
        assert!(message.len() < 500 && message.contains('…'), "{message}");
    }
    let twice = r#"{"weight_map": {"a": "model-1.safetensors", "a": "model-2.safetensors"}}"#;
    assert_eq!(index(twice).unwrap_err().code(), Code::K0204);
    let other = index(r#"{"weight_map": {"b": "model-1.safetensors"}}"#).unwrap_err();
    assert_eq!(other.code(), Code::K0207);
    assert!(other.to_string().contains("`b`") && other.to_string().contains("model-1"), "{other}");
    std::fs::remove_file(folder.path().join(INDEX_FILE)).unwrap();
    std::fs::create_dir(folder.path().join(INDEX_FILE)).unwrap();
    assert_eq!(refuse(&folder).code(), Code::K0201);
}

#[test]
fn a_change_under_way_is_noticed() {
    let folder = Folder::new();
    let entry = r#"{"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}"#;
    let path = folder.path().join(SINGLE_FILE);
    let reopened = || {
        folder.write(SINGLE_FILE, &safetensors(entry, &[7]));
        let checkpoint = Checkpoint::open(folder.path()).unwrap();
        checkpoint.check_unchanged().unwrap();
        checkpoint
    };
    let fault = |checkpoint: Checkpoint| {
        let error = checkpoint.check_unchanged().unwrap_err();
        assert_eq!(error.code(), Code::K0213);
        error.to_string()
    };
    let checkpoint = reopened();
    std::fs::OpenOptions::new().append(true).open(&path).unwrap().set_len(1000).unwrap();
    assert!(fault(checkpoint).contains("written"));
    // Written in place with the time of before.
    let checkpoint = reopened();
    let identity = checkpoint.identity();
    let before = std::fs::metadata(&path).unwrap().modified().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    std::fs::write(&path, safetensors(entry, &[8])).unwrap();
    let file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.set_modified(before).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().modified().unwrap(), before);
    assert!(fault(checkpoint).contains("written"));
    assert_ne!(Checkpoint::open(folder.path()).unwrap().identity(), identity);
    let checkpoint = reopened();
    folder.write("other", &safetensors(entry, &[7]));
    std::fs::rename(folder.path().join("other"), &path).unwrap();
    assert!(fault(checkpoint).contains("replaced"));
    let checkpoint = reopened();
    std::fs::OpenOptions::new().append(true).open(&path).unwrap().set_len(40).unwrap();
    for read in [
        checkpoint.tensor("a").map(|tensor| tensor.bytes),
        checkpoint.matrix("a", DType::U8, [1, 1]),
    ] {
        let error = read.unwrap_err();
        assert_eq!(error.code(), Code::K0213);
        assert!(error.to_string().contains("cut off"), "{error}");
    }
    let checkpoint = reopened();
    std::fs::remove_file(&path).unwrap();
    assert!(fault(checkpoint).contains("removed"));
}

//! `kimi-k3` as a process: what it answers and writes, and that bad input gets a coded error and leaves nothing.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn mini() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../mini")
}

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kimi-k3")).args(args).output().unwrap()
}

fn refused(args: &[&str], exit: i32, code: &str) {
    let output = run(args);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(exit), "{stderr}");
    assert!(stderr.starts_with(&format!("error[{code}]: ")), "{stderr}");
    assert!(output.stdout.is_empty());
}

/// A copy of the mini without its goldens, to be damaged.
fn copy() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        std::fs::copy(mini().join(name), folder.path().join(name)).unwrap();
    }
    folder
}

#[test]
fn a_text_is_continued_in_the_same_way_every_time() {
    let mini = mini();
    let mini = mini.to_str().unwrap();
    let prompt = "2 Kings 13\n1 In the three and twentieth year of Joash";
    let base = ["generate", "--model", mini, "--prompt", prompt, "--max-new-tokens", "6"];
    let text = run(&base);
    assert!(text.status.success(), "{}", String::from_utf8_lossy(&text.stderr));
    let text = String::from_utf8(text.stdout).unwrap();
    let json = run(&[&base[..], &["--json", "--device", "emulator"]].concat());
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(format!("{}\n", json["text"].as_str().unwrap()), text);
    assert_eq!(json["stop"], "length");
    assert_eq!(json["prompt_ids"].as_array().unwrap().len(), 24);
    // The first choices of the reference of this prompt; their margins are above 0.3.
    assert_eq!(json["ids"][0], 285);
    // Two runs of the same steps have the same logits, bit for bit; other steps have others.
    let hashed = |prompt: &str| {
        let words = ["generate", "--model", mini, "--prompt", prompt, "--max-new-tokens", "6"];
        let output = run(&[&words[..], &["--logits-hash"]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8(output.stderr).unwrap();
        let hash = said.lines().last().unwrap().strip_prefix("logits: ").unwrap().to_owned();
        (String::from_utf8(output.stdout).unwrap(), hash)
    };
    let (again, hash) = hashed(prompt);
    assert_eq!((again, hash.len()), (text, 64));
    let of_json = run(&[&base[..], &["--json", "--logits-hash"]].concat());
    let of_json: serde_json::Value = serde_json::from_slice(&of_json.stdout).unwrap();
    assert_eq!(of_json["logits_sha256"], hash);
    assert!(json.get("logits_sha256").is_none());
    assert_ne!(hashed("3 Kings").1, hash);
    let sampled = |seed: &str| {
        let words = ["--json", "--temperature", "1.5", "--top-p", "0.95", "--seed", seed];
        let output = run(&[&base[..], &words].concat());
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        json["ids"].clone()
    };
    assert_eq!(sampled("1"), sampled("1"));
    assert_ne!(sampled("1"), sampled("2"));
}

#[test]
fn logits_are_written_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (ids, out) = (folder.path().join("ids.json"), folder.path().join("out.safetensors"));
    std::fs::write(&ids, "[0, 25, 1112]").unwrap();
    let (ids_path, out_path) = (ids.to_str().unwrap(), out.to_str().unwrap());
    let mini = mini();
    let mini = mini.to_str().unwrap();
    let base = ["logits", "--model", mini, "--tokens", ids_path, "--out", out_path];
    let output = run(&base);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let bytes = std::fs::read(&out).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let logits = file.tensor("logits").unwrap();
    assert_eq!((logits.dtype(), logits.shape()), (safetensors::Dtype::F32, &[3, 2048][..]));
    for (text, code) in [
        ("[0, 2048]", "K0302"),
        ("[0, -1]", "K0302"),
        ("[]", "K0301"),
        ("[0, 1.5]", "K0304"),
        ("{", "K0304"),
    ] {
        std::fs::write(&ids, text).unwrap();
        refused(&base, 1, code);
    }
    // What was written before is still there.
    assert_eq!(std::fs::read(&out).unwrap(), bytes);
    let nowhere = folder.path().join("no/such/folder/out.safetensors");
    std::fs::write(&ids, "[0]").unwrap();
    let nowhere = nowhere.to_str().unwrap();
    refused(&["logits", "--model", mini, "--tokens", ids_path, "--out", nowhere], 4, "K0701");
}

#[test]
fn tasks_are_scored() {
    let mini = mini();
    let tasks = mini.join("eval/arith.jsonl");
    let (mini, tasks) = (mini.to_str().unwrap(), tasks.to_str().unwrap());
    let output =
        run(&["eval", "--model", mini, "--tasks", tasks, "--limit", "2", "--jobs", "2", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["tasks"], 2);
    // The reference agrees with itself in bf16 on 1729 of 1730 tokens of this set.
    let (agreeing, all) = (json["agreeing_tokens"].as_u64(), json["reference_tokens"].as_u64());
    assert!(agreeing.unwrap() + 1 >= all.unwrap(), "{json}");
}

#[test]
fn damaged_models_are_refused_with_a_code() {
    let generate = |folder: &Path, more: &[&str], exit, code: &str| {
        let model = folder.to_str().unwrap();
        let base = ["generate", "--model", model, "--prompt", "x"];
        refused(&[&base[..], more].concat(), exit, code);
    };
    generate(Path::new("/no/such/folder"), &[], 4, "K0101");
    generate(&mini(), &["--ranks", "3"], 1, "K0401");
    generate(&mini(), &["--max-new-tokens", "200000"], 1, "K0303");

    let folder = copy();
    let config = folder.path().join("config.json");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("\"hidden_size\": 256", "\"hidden_size\": 0")).unwrap();
    generate(folder.path(), &[], 1, "K0105");
    std::fs::write(&config, text.replace("\"kv_lora_rank\": 64,", "")).unwrap();
    generate(folder.path(), &[], 1, "K0103");
    let (few, many) = ("embeddings\": 131072", "embeddings\": 1073741824");
    assert!(text.contains(few));
    std::fs::write(&config, text.replace(few, many)).unwrap();
    generate(folder.path(), &["--max-new-tokens", "1073741000", "--ranks", "4"], 4, "K0504");
    std::fs::write(&config, &text).unwrap();

    let weights = folder.path().join("model.safetensors");
    let bytes = std::fs::read(&weights).unwrap();
    std::fs::write(&weights, &bytes[..bytes.len() / 2]).unwrap();
    generate(folder.path(), &[], 1, "K0203");
    std::fs::write(&weights, [&u64::MAX.to_le_bytes()[..], &bytes[8..]].concat()).unwrap();
    generate(folder.path(), &[], 1, "K0202");
    std::fs::write(&weights, &bytes).unwrap();

    let tokenizer = folder.path().join("tokenizer.json");
    std::fs::rename(&tokenizer, folder.path().join("tiktoken.model")).unwrap();
    generate(folder.path(), &[], 1, "T0102");
    std::fs::write(&tokenizer, "{}").unwrap();
    generate(folder.path(), &[], 1, "T0104");
}

/// A model of random weights with one field of its configuration set.
fn random_model(field: &str, value: usize) -> tempfile::TempDir {
    let mut json: serde_json::Value =
        serde_json::from_str(kimi_k3::synthetic::TINY_RANDOM).unwrap();
    json["text_config"][field] = value.into();
    let text = json.to_string();
    let folder = copy();
    std::fs::write(folder.path().join("config.json"), &text).unwrap();
    let mut file = std::fs::File::create(folder.path().join("model.safetensors")).unwrap();
    let config = kimi_k3::Config::parse(&text).unwrap();
    kimi_k3::synthetic::write_checkpoint(&config, 1, &mut file).unwrap();
    folder
}

#[test]
fn sizes_that_no_kernel_takes_are_refused_in_a_line_and_outputs_before_them() {
    let model = random_model("q_lora_rank", 40);
    let ids = model.path().join("ids.json");
    std::fs::write(&ids, "[0]").unwrap();
    let run = |out: &Path| {
        let words = ["logits", "--model", model.path().to_str().unwrap()];
        let files = ["--tokens", ids.to_str().unwrap(), "--out", out.to_str().unwrap()];
        run(&[&words[..], &files].concat())
    };
    let output = run(&model.path().join("out.safetensors"));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    let start = "error[K0404]: the kernels do not take the sizes of this model: gemv_bf16<";
    assert!(stderr.starts_with(start) && stderr.lines().count() == 1, "{stderr}");
    // Nothing is left beside it.
    assert_eq!(std::fs::read_dir(model.path()).unwrap().count(), 4);
    // What cannot be written is said before kernels are built.
    let output = run(&model.path().join("no/such/folder/out.safetensors"));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.starts_with("error[K0701]: "), "{stderr}");
}

#[test]
fn outputs_are_regular_files_behind_links_with_the_usual_permissions() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("ids.json"), "[0]").unwrap();
    std::fs::write(at("old"), "old").unwrap();
    symlink("old", at("link")).unwrap();
    symlink("nothing", at("dangling")).unwrap();
    let (mini, ids) = (mini(), at("ids.json"));
    let base = ["logits", "--model", mini.to_str().unwrap(), "--tokens", ids.to_str().unwrap()];
    for out in [Path::new("/dev/null"), folder.path(), &at("dangling")] {
        refused(&[&base[..], &["--out", out.to_str().unwrap()]].concat(), 4, "K0701");
    }
    let output = run(&[&base[..], &["--out", at("link").to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(at("link").is_symlink() && !at("old").is_symlink());
    assert!(std::fs::read(at("old")).unwrap().len() > 2048 * 4);
    let mode = |name: &str| std::fs::metadata(at(name)).unwrap().permissions().mode() & 0o777;
    std::fs::write(at("usual"), "").unwrap();
    assert_eq!(mode("old"), mode("usual"));
    // Token ids are read from regular files alone, whatever their bytes.
    std::fs::write(&ids, b"[\"\xff\"]").unwrap();
    let out = at("old");
    refused(&[&base[..], &["--out", out.to_str().unwrap()]].concat(), 1, "K0304");
    let device = ["logits", "--model", mini.to_str().unwrap(), "--tokens", "/dev/zero"];
    refused(&[&device[..], &["--out", out.to_str().unwrap()]].concat(), 4, "K0701");
}

#[test]
fn sets_of_tasks_that_do_not_fit_are_refused_with_the_task() {
    let folder = tempfile::tempdir().unwrap();
    let set = folder.path().join("set.jsonl");
    let mini = mini();
    let first = std::fs::read_to_string(mini.join("eval/arith.jsonl")).unwrap();
    let first: serde_json::Value = serde_json::from_str(first.lines().next().unwrap()).unwrap();
    let base = ["eval", "--model", mini.to_str().unwrap(), "--tasks", set.to_str().unwrap()];
    let changed = |field: &str, value: serde_json::Value| {
        let mut task = first.clone();
        task[field] = value;
        task.to_string()
    };
    let name = first["id"].as_str().unwrap();
    for (text, code, says) in [
        (String::new(), "K0602", "holds no task"),
        ("{}".to_owned(), "K0602", "set.jsonl: line 1 is no task: "),
        (changed("prompt_tokens", 3.into()), "K0602", name),
        (changed("reference_ids", vec![5000].into()), "K0302", name),
        (changed("reference_ids", vec![0; 140_000].into()), "K0303", name),
    ] {
        std::fs::write(&set, text).unwrap();
        let output = run(&base);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.starts_with(&format!("error[{code}]: ")), "{stderr}");
        assert!(stderr.contains(says), "{stderr}");
    }
    assert_eq!(run(&[&base[..], &["--limit", "0"]].concat()).status.code(), Some(2));
}

#[test]
fn weights_that_are_no_numbers_are_refused_before_they_are_used_or_packed() {
    let folder = copy();
    let path = folder.path().join("model.safetensors");
    let whole = std::fs::read(&path).unwrap();
    let header = u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let text: serde_json::Value = serde_json::from_slice(&whole[8..][..header]).unwrap();
    let model = folder.path().to_str().unwrap();
    let packed = folder.path().with_extension("packed");
    let pack = ["pack", "--model", model, "--packed", packed.to_str().unwrap()];
    let scale = text.as_object().unwrap().keys().find(|name| name.ends_with("w1.weight_scale"));
    let a_log = text.as_object().unwrap().keys().find(|name| name.ends_with("A_log"));
    let norm = "language_model.model.norm.weight";
    for (name, bytes, code) in [
        (norm, &0x7fc0_u16.to_le_bytes()[..], "K0211"),
        (a_log.unwrap(), &f32::NAN.to_le_bytes(), "K0211"),
        (scale.unwrap(), &[255], "K0210"),
    ] {
        let place = text[name]["data_offsets"][0].as_u64().unwrap();
        let mut changed = whole.clone();
        changed[8 + header + place as usize..][..bytes.len()].copy_from_slice(bytes);
        std::fs::write(&path, changed).unwrap();
        let start = format!("error[{code}]: {}: tensor `{name}` ", path.display());
        for words in [&["generate", "--model", model, "--prompt", "x"][..], &pack] {
            refused(words, 1, code);
            let said = String::from_utf8(run(words).stderr).unwrap();
            assert!(said.starts_with(&start), "{said}");
        }
        assert!(!packed.exists());
    }
}

/// The same with files of at most 100 blocks.
fn run_with_short_files(words: &[&str]) -> Output {
    let limited = "ulimit -f 100; exec \"$0\" \"$@\"";
    Command::new("sh")
        .args(["-c", limited, env!("CARGO_BIN_EXE_kimi-k3")])
        .args(words)
        .output()
        .unwrap()
}

#[test]
fn a_limit_of_the_size_of_files_is_an_error_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let (mini, packed) = (mini(), folder.path().join("packed"));
    let (mini, place) = (mini.to_str().unwrap(), packed.to_str().unwrap());
    let pack = ["pack", "--model", mini, "--packed", place];
    let generate = ["generate", "--model", mini, "--packed", place, "--prompt", "x"];
    let generate = [&generate[..], &["--max-new-tokens", "1"]].concat();
    for is_damaged in [false, true] {
        let output = run_with_short_files(&pack);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(4), "{said}");
        assert!(said.starts_with("error[K0215]: "), "{said}");
        let output = run_with_short_files(&generate);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        assert_eq!(said.starts_with("warning[K0214]: "), is_damaged, "{said}");
        assert!(said.contains("warning[K0215]: "), "{said}");
        // The second round finds a file that it cannot replace.
        assert_eq!(names(&packed).len(), usize::from(is_damaged));
        if !is_damaged {
            assert!(run(&pack).status.success());
            damage(&packed);
        }
    }
}

/// Flips a bit of a weight of the only file in a folder.
fn damage(packed: &Path) {
    let path = packed.join(&names(packed)[0]);
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.iter_mut().rev().nth(9000).unwrap() ^= 1;
    std::fs::write(&path, bytes).unwrap();
}

#[test]
fn damage_that_cannot_be_mended_ends() {
    use std::os::unix::fs::PermissionsExt;
    let model = copy();
    let folder = tempfile::tempdir().unwrap();
    let packed = folder.path().join("packed");
    let (model, place) = (model.path(), packed.to_str().unwrap());
    let pack = ["pack", "--model", model.to_str().unwrap(), "--packed", place];
    assert!(run(&pack).status.success());
    damage(&packed);
    let rights = |path: &Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    for (path, mode) in [(model, 0o755), (folder.path(), 0o755), (&packed, 0o555)] {
        rights(path, mode);
    }
    rights(&packed.join(&names(&packed)[0]), 0o444);
    // Who may do everything works as somebody else, where the system has the means.
    let takes_everything = std::fs::write(packed.join("x"), "").is_ok();
    let as_other = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let run_as_other = |words: &[&str]| {
        let mut command = Command::new("timeout");
        command.arg("60");
        if takes_everything {
            command.arg("setpriv").args(as_other);
        }
        command.arg(env!("CARGO_BIN_EXE_kimi-k3")).args(words).output().unwrap()
    };
    if takes_everything {
        std::fs::remove_file(packed.join("x")).unwrap();
        if !run_as_other(&["--version"]).status.success() {
            return;
        }
    }
    let output = run_as_other(&pack);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.starts_with("error[K0215]: "), "{said}");
    let generate = ["generate", "--prompt", "x", "--max-new-tokens", "1"];
    let output = run_as_other(&[&generate[..], &pack[1..]].concat());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.starts_with("warning[K0214]: ") && said.contains("warning[K0215]: "), "{said}");
    rights(&packed, 0o755);
}

#[test]
fn a_standard_error_that_is_full_changes_no_exit_code() {
    let mini = mini();
    let mini = mini.to_str().unwrap();
    for (model, exit) in [("/no/such/folder", 4), (mini, 0)] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let status = Command::new(env!("CARGO_BIN_EXE_kimi-k3"))
            .args(["generate", "--max-new-tokens", "1", "--model", model, "--prompt", "-x"])
            .stdout(std::process::Stdio::null())
            .stderr(full)
            .status()
            .unwrap();
        assert_eq!(status.code(), Some(exit), "{model}");
    }
}

#[test]
fn an_output_that_is_full_is_an_error() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mini = mini();
    let output = Command::new(env!("CARGO_BIN_EXE_kimi-k3"))
        .args(["generate", "--prompt", "x", "--max-new-tokens", "2", "--model"])
        .arg(&mini)
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(4));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.starts_with("error[K0702]: "), "{stderr}");
    // What `--help` prints is output, too; what a wrong command line prints is none.
    for (words, exit) in [
        (&["--help"][..], 4),
        (&["--version"], 4),
        (&["generate", "--help"], 4),
        (&["help", "pack"], 4),
        (&["fly"], 2),
    ] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output =
            Command::new(env!("CARGO_BIN_EXE_kimi-k3")).args(words).stdout(full).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(exit), "{words:?}: {stderr}");
        assert!(exit == 2 || stderr.starts_with("error[K0702]: "), "{words:?}: {stderr}");
    }
}

/// The names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn packed_weights_are_made_ahead_used_and_mended() {
    let folder = tempfile::tempdir().unwrap();
    let packed = folder.path().join("packed");
    let (mini, place) = (mini(), packed.to_str().unwrap().to_owned());
    let mini = mini.to_str().unwrap();
    let pack = |more: &[&str]| {
        let output = run(&[&["pack", "--model", mini, "--packed", &place][..], more].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let words = ["--prompt", "x", "--max-new-tokens", "1", "--packed", &place];
    let base = [&["generate", "--model", mini][..], &words].concat();
    let generate = |more: &[&str]| {
        let output = run(&[&base[..], more].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        (output.stdout, String::from_utf8(output.stderr).unwrap())
    };
    assert!(pack(&[]).ends_with("bytes packed\n"));
    assert!(pack(&["--ranks", "1", "--rank", "0"]).ends_with("there before\n"));
    let first = names(&packed);
    assert!(first.len() == 1 && first[0].starts_with("rank0-of-1-"), "{first:?}");
    let (text, said) = generate(&["--progress"]);
    assert!(said.contains("loading: 0.01") && said.contains(" GB/s\n"), "{said}");
    assert!(!said.contains("warning"), "{said}");

    // A flipped byte, half a file, and another file: said, and made anew.
    let path = packed.join(&first[0]);
    let whole = std::fs::read(&path).unwrap();
    let mut flipped = whole.clone();
    *flipped.iter_mut().rev().nth(9000).unwrap() ^= 1;
    for damaged in [flipped, whole[..whole.len() / 2].to_vec(), b"another file".to_vec()] {
        std::fs::write(&path, damaged).unwrap();
        let (again, said) = generate(&[]);
        assert!(said.starts_with("warning[K0214]: "), "{said}");
        assert!(said.contains(&first[0]) && again == text, "{said}");
        assert!(std::fs::read(&path).unwrap() == whole);
    }
    // Where nothing can be kept the weights are packed in memory, and `pack` says that it cannot.
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let nowhere = file.join("x");
    let nowhere = nowhere.to_str().unwrap();
    let mut without = base.clone();
    *without.last_mut().unwrap() = nowhere;
    let output = run(&without);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains("warning[K0215]: "), "{said}");
    assert!(output.stdout == text);
    refused(&["pack", "--model", mini, "--packed", nowhere], 4, "K0215");
    refused(&["pack", "--model", mini, "--packed", mini], 4, "K0215");
    std::os::unix::fs::symlink(mini, folder.path().join("link")).unwrap();
    let link = folder.path().join("link");
    for inside in ["link/p1", "x/../link/p2", "link/../mini/p3"] {
        let inside = folder.path().join(inside);
        for model in [mini, link.to_str().unwrap()] {
            refused(&["pack", "--model", model, "--packed", inside.to_str().unwrap()], 4, "K0215");
        }
    }
    assert!(!folder.path().join("x").exists());
    refused(&["pack", "--model", mini, "--packed", &place, "--rank", "1"], 1, "K0401");
    // Every rank has a file of its own; nothing else is left.
    assert_eq!(pack(&["--ranks", "2"]).lines().count(), 2);
    assert_eq!(names(&packed).len(), 3);
    assert!(!names(Path::new(mini)).iter().any(|name| name.contains("pack")));
    // Another checkpoint of the same content has its own.
    let copy = copy();
    refused(&["pack", "--model", copy.path().join("x").to_str().unwrap()], 4, "K0101");
    let model = copy.path().to_str().unwrap();
    assert!(run(&["pack", "--model", model, "--packed", &place]).status.success());
    assert_eq!(names(&packed).len(), 4);
}

#[test]
fn killed_at_any_time_a_process_leaves_no_half_file() {
    let folder = tempfile::tempdir().unwrap();
    let packed = folder.path().join("packed");
    let (mini, out) = (mini(), folder.path().join("out.safetensors"));
    let ids = folder.path().join("ids.json");
    std::fs::write(&ids, "[0, 1, 2, 3, 4, 5, 6, 7]").unwrap();
    for milliseconds in [1, 20, 60, 100, 150, 200, 300, 500] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_kimi-k3"))
            .args(["logits", "--model", mini.to_str().unwrap(), "--tokens", ids.to_str().unwrap()])
            .args(["--out", out.to_str().unwrap(), "--packed", packed.to_str().unwrap()])
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(milliseconds));
        child.kill().unwrap();
        child.wait().unwrap();
        let mut there = names(folder.path());
        there.retain(|name| name != "out.safetensors" && name != "packed");
        assert_eq!(there, ["ids.json"], "after {milliseconds} ms");
        if packed.exists() {
            assert!(names(&packed).iter().all(|name| name.ends_with(".kpacked")));
        }
    }
    // What is there is whole.
    let pack = ["pack", "--model", mini.to_str().unwrap(), "--packed", packed.to_str().unwrap()];
    let output = run(&pack);
    assert!(output.status.success() && output.stderr.is_empty());
}

#[test]
fn the_first_interrupt_ends_after_the_step_that_runs() {
    ended_by("-INT");
}

#[test]
fn a_request_of_the_system_to_end_is_an_interrupt() {
    ended_by("-TERM");
}

fn ended_by(signal: &str) {
    let mini = mini();
    let mut child = Command::new(env!("CARGO_BIN_EXE_kimi-k3"))
        .args(["generate", "--prompt", "x", "--max-new-tokens", "20000", "--model"])
        .arg(&mini)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // The first byte of text says that the handler is there and that steps are running.
    let mut first = [0];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut first).unwrap();
    let id = child.id().to_string();
    assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("(interrupted)"), "{stderr}");
    assert!(stderr.ends_with("error[K0703]: stopped\n"), "{stderr}");
    assert!(output.stdout.ends_with(b"\n"));
}

#[test]
fn usage_is_explained() {
    for args in [
        &["generate"][..],
        &["generate", "--model", "x", "--prompt", "y", "--ranks", "17"],
        &["generate", "--model", "x", "--prompt", "y", "--temperature", "-1"],
        &["generate", "--model", "x", "--prompt", "y", "--top-p", "0"],
        &["fly"],
    ] {
        assert_eq!(run(args).status.code(), Some(2), "{args:?}");
    }
    assert!(run(&["--help"]).status.success());
    let output = run(&["generate", "--model", "x", "--prompt", "y", "--temperature", "-1"]);
    assert!(String::from_utf8(output.stderr).unwrap().contains("expected a number that is 0"));
    // A text may begin with a hyphen: here the model is missed, not the option `-x`.
    refused(&["generate", "--model", "/no/such/folder", "--prompt", "-x"], 4, "K0101");
}

#[test]
fn a_device_that_is_not_there_is_said_at_once() {
    let mini = mini();
    let base = ["generate", "--model", mini.to_str().unwrap(), "--prompt", "x"];
    let on_device = [&base[..], &["--device", "cuda:0"]].concat();
    match kernel_runtime::probe() {
        // It needs kernels.
        Ok(_) => refused(&on_device, 1, "K0505"),
        Err(error) => {
            refused(&on_device, 4, error.code().name());
            let text = String::from_utf8(run(&on_device).stderr).unwrap();
            assert_eq!(text, format!("error[{}]: {error}\n", error.code()));
        }
    }
    let output = run(&[&base[..], &["--device", "gpu"]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("auto, emulator, cuda or cuda:0"));
    let output = run(&["generate", "--help"]);
    assert!(String::from_utf8(output.stdout).unwrap().contains("cuda (the first CUDA device)"));
}

/// A bundle without a kernel.
fn empty_bundle(folder: &Path) -> String {
    let path = folder.join("empty.kbundle");
    let bytes = kernel_abi::bundle::encode(&kernel_abi::bundle::Maker::default(), &[]).unwrap();
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_bundle_that_is_named_and_broken_is_refused_whatever_runs_the_kernels() {
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("broken.kbundle");
    std::fs::write(&broken, "no bundle").unwrap();
    let (mini, nowhere) = (mini(), folder.path().join("nothere"));
    let base = ["generate", "--model", mini.to_str().unwrap(), "--prompt", "x"];
    let bench = ["bench", "--batch", "1"];
    for (bundle, exit, code) in [
        (nowhere.to_str().unwrap(), 4, "B0101"),
        ("/dev/null", 4, "B0101"),
        (broken.to_str().unwrap(), 1, "B0102"),
    ] {
        for device in ["auto", "emulator", "cuda", "cuda:0"] {
            refused(&[&base[..], &["--bundle", bundle, "--device", device]].concat(), exit, code);
        }
        refused(&[&base[..], &["--bundle", bundle]].concat(), exit, code);
        refused(&[&bench[..], &["--bundle", bundle]].concat(), exit, code);
    }
}

#[test]
fn a_measurement_that_no_device_can_make_is_refused_before_one_is_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = empty_bundle(folder.path());
    let base = ["bench", "--bundle", &bundle];
    for (words, code) in [
        (&["--rank", "5", "--of", "3"][..], "K0401"),
        (&["--rank", "1", "--of", "1"], "K0401"),
        (&["--of", "3"], "K0401"),
        (&["--batch", "0"], "K0402"),
        (&["--batch", "1,2,3"], "K0402"),
        (&["--context", "9223372036854775808"], "K0403"),
    ] {
        refused(&[&base[..], words].concat(), 1, code);
    }
    // All names of the device lead to it.
    for device in ["cuda", "cuda:0", "0", "cuda:1000", "1000"] {
        let output = run(&[&base[..], &["--device", device, "--batch", "1"]].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.starts_with("error[R0"), "{device}: {said}");
    }
    let output = run(&[&base[..], &["--device", "emulator"]].concat());
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn the_emulator_takes_over_and_says_why() {
    let (mini, folder) = (mini(), tempfile::tempdir().unwrap());
    let (mini, bundle) = (mini.to_str().unwrap(), empty_bundle(folder.path()));
    let base = ["generate", "--model", mini, "--prompt", "x", "--max-new-tokens", "1"];
    let output = run(&[&base[..], &["--bundle", &bundle]].concat());
    assert!(output.status.success());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.starts_with("device: emulator, because of error["), "{stderr}");
    // Nobody looks for a device without kernels for one.
    let output = run(&base);
    assert!(!String::from_utf8(output.stderr).unwrap().contains("device: "));
}

#[test]
fn a_checkpoint_that_is_cut_off_while_it_is_read_is_named() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let folder = copy();
    let path = folder.path().join("model.safetensors");
    let whole = std::fs::read(&path).unwrap();
    let model = folder.path().to_str().unwrap();
    let args = ["generate", "--model", model, "--prompt", "In", "--max-new-tokens", "1"];
    let base = [&args[..], &["--device", "emulator"]].concat();
    let mut cut = 0;
    for round in 0..8_u64 {
        std::fs::write(&path, &whole).unwrap();
        let is_over = AtomicBool::new(false);
        let output = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(10 + 12 * round));
                while !is_over.load(Ordering::Relaxed) {
                    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
                    file.set_len(whole.len() as u64 / 2).unwrap();
                    file.set_len(whole.len() as u64).unwrap();
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
            });
            let output = run(&base);
            is_over.store(true, Ordering::Relaxed);
            output
        });
        // A signal would leave no exit code.
        let stderr = String::from_utf8(output.stderr).unwrap();
        let code = output.status.code().unwrap();
        if code != 0 {
            // Cut off while it was opened, its header or its tensors are wrong instead.
            assert!(stderr.starts_with("error[K02"), "{stderr}");
            cut += u32::from(stderr.starts_with("error[K0213]"));
        }
    }
    assert!(cut > 0, "no run was cut off while it was loading");
}

//! build: what it writes, that it writes the same every time, and that it does nothing twice.

use std::collections::BTreeMap;

use kernel_tests::process::{Scratch, kernelc};
use serde_json::Value;

fn scratch(name: &str) -> Scratch {
    Scratch::new(env!("CARGO_TARGET_TMPDIR"), &format!("build-{name}"))
}

const TWO: &str = "target sm_90a, sm_100a;\n\
    kernel a<const N: int = 128>(input x : gmem f32[N], output y : gmem f32[N]) launch { grid: 1, warps: 1, pdl: none } {\n\
    store load x + 1.0 -> y;\n}\n\
    kernel b<const N: int = 128>(input x : gmem f32[N], output y : gmem f32[1]) launch { grid: 1, warps: 4, pdl: both } {\n\
    grid_wait;\nlet s = reduce.add(load x, axis = 0);\ngrid_launch;\nstore s -> y[0];\n}\n";

fn manifest(folder: &Scratch, out: &str) -> Value {
    serde_json::from_slice(&folder.read(&format!("{out}/manifest.json"))).unwrap()
}

/// Every file of a folder but the stamps, which speak of this machine.
fn artefacts(folder: &Scratch, out: &str) -> BTreeMap<String, Vec<u8>> {
    let prefix = format!("{out}/");
    let names =
        folder.names().into_iter().filter_map(|name| Some(name.strip_prefix(&prefix)?.to_owned()));
    names
        .filter(|name| !name.starts_with('.'))
        .map(|name| (name.clone(), folder.read(&format!("{prefix}{name}"))))
        .collect()
}

/// The entries of the set `demo`, one a line.
fn entries_of_the_demo() -> usize {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/kimi_k3/kernels/build.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let set = text.lines().skip_while(|line| *line != "demo = [").skip(1);
    set.take_while(|line| *line != "]").count()
}

#[test]
fn the_kernels_of_k3_are_built_and_audited_for_every_target() {
    let folder = scratch("k3");
    let answer = kernelc([
        "build",
        "models/kimi_k3/kernels",
        "--set",
        "demo",
        "--out",
        &folder.path("out"),
        "--target",
        "sm_90a",
        "--target",
        "sm_100a",
        "--target",
        "sm_103a",
    ])
    .expect_code(0);
    assert!(answer.stdout.contains("in_proj"), "{}", answer.stdout);
    let manifest = manifest(&folder, "out");
    let kernels = manifest["kernels"].as_array().unwrap();
    assert_eq!(kernels.len(), 3 * entries_of_the_demo(), "every entry for three targets");
    for kernel in kernels {
        assert_eq!(kernel["audit"], "clean", "{kernel}");
        assert_eq!(kernel["spill_bytes"], 0, "{kernel}");
        for (file, hash) in [("ptx", "ptx_sha256"), ("cubin", "cubin_sha256")] {
            let name = kernel[file].as_str().unwrap();
            assert!(!folder.read(&format!("out/{name}")).is_empty());
            assert_eq!(kernel[hash].as_str().map(str::len), Some(64));
        }
    }
    for tool in ["kernelc", "llvm", "ptxas", "nvdisasm"] {
        assert!(manifest[tool].as_str().is_some_and(|version| !version.is_empty()), "{tool}");
    }
}

#[test]
fn a_manifest_tells_how_to_launch() {
    let folder = scratch("manifest");
    let source = folder.file("two.tile", TWO);
    let args =
        ["build", &source, "--kernel", "b", "--bind", "N=256", "--target", "sm_90a", "--out"];
    kernelc(args.into_iter().chain([folder.path("out").as_str()])).expect_code(0);
    let manifest = manifest(&folder, "out");
    let [kernel] = manifest["kernels"].as_array().unwrap().as_slice() else { panic!("{manifest}") };
    assert_eq!(kernel["bindings"], serde_json::json!({ "N": 256 }));
    assert_eq!(kernel["launch"]["grid"], serde_json::json!([1, 1, 1]));
    assert_eq!(kernel["launch"]["threads"], 128);
    assert_eq!(kernel["launch"]["waits_for_previous"], true);
    assert_eq!(kernel["launch"]["launches_next"], true);
    let params = kernel["params"].as_array().unwrap();
    assert_eq!(params.len(), 2);
    assert_eq!(params[0]["access"], "input");
    assert_eq!(params[0]["dtype"], "f32");
    assert_eq!(params[0]["shape"], serde_json::json!([256]));
}

#[test]
fn two_builds_write_the_same_bytes() {
    let folder = scratch("determinism");
    let source = folder.file("two.tile", TWO);
    for (out, jobs) in [("first", "1"), ("second", "2")] {
        kernelc(["build", &source, "--jobs", jobs, "--out", &folder.path(out)]).expect_code(0);
    }
    let (first, second) = (artefacts(&folder, "first"), artefacts(&folder, "second"));
    assert_eq!(first.keys().collect::<Vec<_>>(), second.keys().collect::<Vec<_>>());
    assert!(first.len() > 8, "four kernels with PTX and machine code: {:?}", first.keys());
    for (name, bytes) in first {
        assert!(bytes == second[&name], "{name} differs");
    }
}

#[test]
fn what_is_unchanged_is_not_built_again() {
    let folder = scratch("unchanged");
    let source = folder.file("two.tile", TWO);
    let out = folder.path("out");
    let build = |more: &[&str]| {
        kernelc([&["build", &source, "--out", &out], more].concat()).expect_code(0).stdout
    };
    assert!(!build(&[]).contains("(unchanged)"));
    let before = artefacts(&folder, "out");
    assert_eq!(build(&[]).matches("(unchanged)").count(), 4);
    assert_eq!(artefacts(&folder, "out"), before);
    assert!(!build(&["--force"]).contains("(unchanged)"));
    // A file that was lost or changed is made again; the others are kept.
    let lost = manifest(&folder, "out")["kernels"][0]["cubin"].as_str().unwrap().to_owned();
    std::fs::write(folder.path(&format!("out/{lost}")), b"broken").unwrap();
    assert_eq!(build(&[]).matches("(unchanged)").count(), 3);
    assert_eq!(artefacts(&folder, "out"), before);
    // A change of the text builds all of its kernels again.
    folder.file("two.tile", TWO.replace("+ 1.0", "+ 2.0"));
    assert!(!build(&[]).contains("(unchanged)"));
    assert_ne!(artefacts(&folder, "out"), before);
}

#[test]
fn build_answers_in_json() {
    let folder = scratch("json");
    let source = folder.file("two.tile", TWO);
    let args =
        ["build", &source, "--target", "sm_100a", "--format", "json", "--out", &folder.path("out")];
    let answer = kernelc(args).expect_code(0);
    let lines = answer.json_lines();
    assert_eq!(lines.last().unwrap()["kernels"].as_array().map(Vec::len), Some(2));
}

#[test]
fn impossible_tunings_are_left_out() {
    let folder = scratch("tunings");
    let source = folder.file(
        "tune.tile",
        "target sm_90a;\n\
         kernel k<const N: int = 256, const B: int = 64>(input x : gmem f32[N], output y : gmem f32[N])\n\
         launch { grid: N / B, warps: 1 }\nwhere N % B == 0\ntune B in {32, 48, 128}\n\
         { store load x[cta.x * B .. + B] -> y[cta.x * B .. + B]; }\n",
    );
    let answer =
        kernelc(["build", &source, "--all-tunings", "--out", &folder.path("out")]).expect_code(0);
    assert!(answer.stdout.contains("k-B48.sm_90a: left out, E0209"), "{}", answer.stdout);
    let manifest = manifest(&folder, "out");
    let names: Vec<&str> = manifest["kernels"]
        .as_array()
        .unwrap()
        .iter()
        .map(|k| k["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["k", "k-B128", "k-B32"]);
}

//! Events that a kernel writes down: `run --trace`, `emit --trace`, `build --trace`.

use std::path::PathBuf;

use kernel_tests::process::{Scratch, kernelc, root};

const EVENTS: &str = "tests/suite/ops/trace.tile";

fn scratch(name: &str) -> Scratch {
    Scratch::new(env!("CARGO_TARGET_TMPDIR"), &format!("cli-trace-{name}"))
}

#[test]
fn events_are_printed_where_they_are_asked_for() {
    let silent = kernelc(["run", EVENTS]).expect_code(0).stdout;
    assert!(!silent.contains("trace"), "{silent}");
    let answer = kernelc(["run", EVENTS, "--trace"]).expect_code(0).stdout;
    assert!(answer.starts_with(&silent), "{answer}");
    let lines: Vec<&str> = answer.lines().filter(|line| line.starts_with("trace: ")).collect();
    // 4 CTAs: begin, end, one of the loader, one of the worker and one or two rounds; the first one multiplies.
    assert_eq!(lines.len(), 4 * 4 + 2 * (1 + 2) + 1, "{answer}");
    assert!(lines[0].ends_with(": begin") && lines[1].ends_with(": end"), "{answer}");
    assert!(answer.contains("cta 0 worker sm 0 ") && answer.contains(": ten times\n"), "{answer}");
    for level in ["kernel", "device"] {
        let one = kernelc(["run", EVENTS, "--trace", "--level", level]).expect_code(0).stdout;
        assert_eq!(one.matches("trace: ").count(), lines.len(), "{one}");
    }
}

#[test]
fn events_are_one_more_line_of_json() {
    let answer = kernelc(["run", EVENTS, "--trace", "--format", "json"]).expect_code(0);
    let lines = answer.json_lines();
    let events = lines.last().unwrap()["trace"]["traceEvents"].as_array().unwrap().clone();
    assert_eq!(events.iter().filter(|event| event["name"] == "begin").count(), 4);
}

/// A branch around an event would part the threads of a warpgroup, and ptxas would run its products one by one.
#[test]
fn events_stand_between_products_that_are_under_way() {
    let folder = scratch("wgmma");
    let text = std::fs::read_to_string(root().join("tests/suite/ops/wgmma.tile")).unwrap();
    assert!(text.contains("commit;"));
    let text = text.replace("commit;", "trace \"started\"; commit; trace \"under way\";");
    let (file, out) = (folder.file("wgmma.tile", text), folder.path("out"));
    kernelc(["build", &file, "--trace", "--target", "sm_90a", "--out", &out]).expect_code(0);
}

#[test]
fn events_without_room_are_counted() {
    let answer = kernelc(["run", EVENTS, "--trace=1"]).expect_code(0).stdout;
    assert_eq!(answer.matches(": begin").count(), 4, "{answer}");
    assert!(!answer.contains(": end"), "{answer}");
    assert!(answer.contains("trace: 11 events dropped, there was no room\n"), "{answer}");
    kernelc(["run", EVENTS, "--trace=0"]).expect_code(2);
}

#[test]
fn events_go_into_a_file_for_viewers() {
    let folder = scratch("file");
    let file = folder.path("events.json");
    let answer = kernelc(["run", EVENTS, "--trace", "--trace-out", &file]).expect_code(0).stdout;
    assert!(!answer.contains("trace: "), "{answer}");
    let text = std::fs::read_to_string(&file).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let named = |name: &str| events.iter().filter(|event| event["name"] == name).count();
    assert_eq!((named("begin"), named("thread_name")), (4, 12));
    assert_eq!(json["otherData"]["dropped"], 0);
}

#[test]
fn nothing_is_left_of_events_that_nobody_asks_for() {
    let folder = scratch("ptx");
    let text = std::fs::read_to_string(root().join(EVENTS)).unwrap();
    let lines = text.lines().map(|line| if line.trim().starts_with("trace ") { "" } else { line });
    let without =
        lines.map(|line| line.replace("trace \"a \\\"round\\\"\";", "")).collect::<Vec<_>>();
    let without = folder.file("trace.tile", without.join("\n"));
    let ptx = |file: &str, more: &[&str]| {
        let all = [&["emit", file, "--stage", "ptx"], more].concat();
        kernelc(all).expect_code(0).stdout
    };
    let plain = ptx(EVENTS, &[]);
    assert_eq!(plain, ptx(&without, &[]));
    assert!(!plain.contains("%globaltimer"), "{plain}");
    let traced = ptx(EVENTS, &["--trace"]);
    assert_eq!(traced.matches("mov.u64 time, %globaltimer").count(), 6, "{traced}");
    // No events, no buffer for them.
    assert_eq!(ptx(&without, &["--trace"]), plain);
}

#[test]
fn a_bundle_says_what_the_events_are() {
    let folder = scratch("build");
    let out = PathBuf::from(folder.path("out"));
    let at = out.display().to_string();
    let target = ["--target", "sm_90a", "--out", &at];
    kernelc([&["build", EVENTS, "--trace=7"], target.as_slice()].concat()).expect_code(0);
    let manifest = std::fs::read_to_string(out.join("manifest.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    let kernel = &json["kernels"][0];
    assert_eq!(kernel["audit"], "clean");
    assert_eq!(kernel["events"][0], "begin");
    assert_eq!(kernel["roles"], serde_json::json!(["loader", "worker"]));
    let last = kernel["params"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["name"], "trace");
    // 4 CTAs, each with two roles and itself: a counter and 7 records.
    assert_eq!(last["shape"], serde_json::json!([4 * 3 * (1 + 3 * 7)]));
    // Another number of records, or none, is another kernel.
    kernelc([&["build", EVENTS], target.as_slice()].concat()).expect_code(0);
    let manifest = std::fs::read_to_string(out.join("manifest.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    assert!(json["kernels"][0].get("events").is_none());
}

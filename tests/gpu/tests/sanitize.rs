//! `gpu-tests sanitize` with a script in the place of compute-sanitizer.
#![cfg(unix)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// Says its version, and otherwise what a tool says of a run; `then` is its end.
fn script(folder: &Path, then: &str) -> PathBuf {
    std::fs::create_dir_all(folder).expect("a folder");
    let path = folder.join("sanitizer.sh");
    let text = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && {{ echo 'Version 9.9'; exit 0; }}\necho '========= COMPUTE-SANITIZER'\n\
         echo 'test result: ok. 3 passed; 0 failed; 0 ignored'\necho \"========= called with $*\"\n{then}\n"
    );
    std::fs::write(&path, text).expect("a file");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("its owner");
    path
}

fn sanitize(folder: &Path, sanitizer: &Path, more: &[&str]) -> (Output, Option<Value>) {
    let report = folder.join("report.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-tests"));
    command.args(["sanitize", "--bundle", "x.kbundle", "--jobs", "4", "--seed", "5"]);
    command.arg("--out").arg(folder.join("logs")).arg("--report").arg(&report);
    let output = command.arg("--sanitizer").arg(sanitizer).args(more).output().expect("it starts");
    let text = std::fs::read_to_string(report).ok();
    (output, text.map(|text| serde_json::from_str(&text).expect("it is JSON")))
}

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[test]
fn each_tool_runs_on_each_part_and_a_clean_run_ends_with_0() {
    let folder = folder("sanitize_clean");
    let flaw = "case \"$*\" in *flaw*) echo '========= ERROR SUMMARY: 1 error'; exit 86;; esac";
    let sanitizer = script(&folder, &format!("{flaw}\necho '========= ERROR SUMMARY: 0 errors'"));
    let (output, report) = sanitize(&folder, &sanitizer, &["memcheck", "racecheck"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report = report.expect("it was written");
    assert_eq!((&report["clean"], &report["sanitizer"]), (&true.into(), &"Version 9.9".into()));
    let runs = report["runs"].as_array().expect("rows");
    assert_eq!(runs.len(), 8);
    assert_eq!(runs[0]["verdict"], "the flaw was found");
    let said = runs[1]["said"][0].as_str().expect("what the script was called with");
    assert!(said.contains("--tool memcheck") && said.contains("run --bare"), "{said}");
    assert!(said.contains("kimi_k3/ --device 0"), "{said}");
}

#[test]
fn findings_and_a_process_that_does_not_end_are_told() {
    let folder = folder("sanitize_found");
    let sanitizer = script(&folder, "echo '========= RACECHECK SUMMARY: 2 hazards'; exit 86");
    let (output, report) = sanitize(&folder, &sanitizer, &["racecheck"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report = report.expect("it was written");
    assert_eq!(report["runs"][3]["verdict"], "RACECHECK SUMMARY: 2 hazards");
    let sanitizer = script(&folder, "echo '========= RACECHECK SUMMARY: 0 hazards'");
    let (output, report) = sanitize(&folder, &sanitizer, &["racecheck"]);
    assert_eq!(output.status.code(), Some(1), "a tool that finds no flaw: {output:?}");
    let report = report.expect("it was written");
    assert_eq!(report["runs"][0]["verdict"], "the flaw was not found, exit code 0");
    let sanitizer = script(&folder, "sleep 60");
    let (output, report) = sanitize(&folder, &sanitizer, &["initcheck", "--limit", "1"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report = report.expect("it was written");
    assert_eq!(report["runs"][1]["verdict"], "it ran past its limit, after 0 cases");
}

#[test]
fn what_cannot_start_is_said() {
    let folder = folder("sanitize_none");
    let (output, _) = sanitize(&folder, Path::new("no-such-program"), &[]);
    assert_eq!(output.status.code(), Some(4));
    assert!(output.stderr.starts_with(b"error: no-such-program: "), "{output:?}");
    let (output, _) = sanitize(&folder, Path::new("no-such-program"), &["lintcheck"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stderr.starts_with(b"error: there is no tool `lintcheck`\n"), "{output:?}");
}

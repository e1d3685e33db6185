//! gpu-tests as a process, where there is no device.

use std::path::PathBuf;
use std::process::{Command, Output};

use kernel_abi::bundle::{Maker, encode};

fn gpu_tests(args: &[&str], wants_gpu: bool) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-tests"));
    command.args(args).env_remove("KERNEL_GPU");
    if wants_gpu {
        command.env("KERNEL_GPU", "1");
    }
    command.output().expect("the program starts")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The first line of what went wrong.
fn fault(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or_default().to_owned()
}

/// A bundle without kernels.
fn bundle(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let bytes = encode(&Maker::default(), &[]).expect("an empty bundle");
    std::fs::write(&path, bytes).expect("it can be written");
    path.to_string_lossy().into_owned()
}

#[test]
fn without_a_device_every_test_is_ignored_with_its_reason_or_fails_where_one_is_wanted() {
    let Err(error) = kernel_runtime::probe() else { return };
    let reason = format!("ignored ({}: {error})", error.code().name());
    let bundle = bundle("ignored.kbundle");
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("ignored.json");
    let report = path.to_string_lossy();
    let output =
        gpu_tests(&["run", "--bundle", &bundle, "--report", &report, "ops/abs.tile"], false);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output).contains(&reason), "{}", text(&output));
    assert!(text(&output).contains("0 passed; 0 failed; 4 ignored"), "{}", text(&output));
    let written = std::fs::read_to_string(&path).expect("the report is written too");
    assert!(written.contains("\"gpu\": null") && written.contains("\"ignored\": 4"), "{written}");
    let output = gpu_tests(&["run", "--bundle", &bundle, "ops/abs.tile"], true);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output).contains("4 failed"), "{}", text(&output));
}

#[test]
fn the_sources_are_one_folder_that_names_every_case() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("sources");
    let output = gpu_tests(&["sources", "--out", &folder.to_string_lossy()], false);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let build = std::fs::read_to_string(folder.join("build.toml")).expect("it was written");
    // A case stands in the set of each family of targets that its file states.
    let names = build.lines().filter_map(|line| line.strip_prefix("name = "));
    let cases = names.collect::<std::collections::BTreeSet<_>>().len();
    for set in ["gpu", "gpu_blackwell"] {
        let entries = build.matches(&format!("[[set.{set}]]")).count();
        assert!((1..cases).contains(&entries), "{set}: {entries} of {cases}");
    }
    assert!(text(&output).starts_with(&format!("{cases} cases of ")), "{}", text(&output));
    for line in build.lines() {
        if let Some(file) = line.strip_prefix("file = ") {
            assert!(folder.join(file.trim_matches('"')).is_file(), "{file}");
        }
    }
    // What was written can be read instead of the repository.
    let suite = folder.join("suite");
    let copy = folder.join("copy");
    let args = ["sources", "--suite", &suite.to_string_lossy(), "--out", &copy.to_string_lossy()];
    assert_eq!(gpu_tests(&args, false).status.code(), Some(0));
    let again = std::fs::read_to_string(copy.join("build.toml")).expect("it was written");
    assert_eq!(again, build);
    let args = ["sources", "--suite", "no-such-folder", "--out", &copy.to_string_lossy()];
    assert_eq!(gpu_tests(&args, false).status.code(), Some(4));
    assert!(build.contains("file = \"kimi_k3/gemv.tile\""));
    assert!(build.contains("name = \"run_overlap_second.tile.0\""));
}

#[test]
fn a_wrong_command_line_and_a_missing_bundle_have_their_exit_codes() {
    let wrong: [(&[&str], &str); 6] = [
        (&["walk"], "error: there is no task `walk`"),
        (&["upload", "--bundle", "x"], "error: --out is missing"),
        (&["hostile", "--bundle", "x"], "error: --program is missing"),
        (&["hostile", "--bundle", "x", "--program", "y"], "error: --model is missing"),
        (&["trap", "--ptx", "x", "--target", "sm_999"], "error: there is no target `sm_999`"),
        (&["hang", "walk"], "error: there is no step `walk`"),
    ];
    for (words, reason) in wrong {
        let output = gpu_tests(words, false);
        assert_eq!((output.status.code(), &*fault(&output)), (Some(2), reason));
        assert!(output.stdout.is_empty(), "{output:?}");
    }
    for task in ["run", "plan", "fallback", "trap", "numerics"] {
        let output = gpu_tests(&[task], false);
        let reason = "error: --bundle is missing";
        assert_eq!((output.status.code(), &*fault(&output)), (Some(2), reason), "{task}");
        let output = gpu_tests(&[task, "--bundle", "no.kbundle"], false);
        assert_eq!(output.status.code(), Some(4), "{task}");
        assert!(fault(&output).contains("B0101"), "{task}: {output:?}");
        assert!(fault(&output).contains("no.kbundle"), "{task}: {output:?}");
    }
}

#[test]
fn help_and_version_are_no_mistakes() {
    for words in [&["--help"][..], &["-h"], &["trap", "--help"]] {
        let output = gpu_tests(words, false);
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        assert!(text(&output).starts_with("usage:\n  gpu-tests sources"), "{words:?}");
        assert!(output.stderr.is_empty(), "{words:?}");
    }
    let output = gpu_tests(&["--version"], false);
    let version = format!("gpu-tests {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!((output.status.code(), text(&output)), (Some(0), version));
}

#[test]
fn a_report_that_cannot_be_written_is_said_before_the_work() {
    let bundle = bundle("report.kbundle");
    for task in ["run", "plan", "fallback", "trap"] {
        let output = gpu_tests(&[task, "--bundle", &bundle, "--report", "/dev/full"], false);
        assert_eq!(output.status.code(), Some(4), "{task}: {output:?}");
        assert!(fault(&output).starts_with("error: /dev/full: "), "{task}: {output:?}");
        assert!(output.stdout.is_empty(), "{task}: {output:?}");
    }
    let words = ["numerics", "--rehearse", "--report", "/dev/full", "of_exp2"];
    let output = gpu_tests(&words, false);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert!(output.stdout.is_empty(), "nothing is measured: {output:?}");
    let output = gpu_tests(&["hang", "--report", "/dev/full"], false);
    assert!(fault(&output).starts_with("error: /dev/full: "), "{output:?}");
}

#[test]
fn a_suite_that_is_not_there_is_named() {
    let bundle = bundle("suite.kbundle");
    let output = gpu_tests(&["run", "--bundle", &bundle, "--suite", "no-such-folder"], false);
    assert_eq!(output.status.code(), Some(4));
    assert!(fault(&output).contains("no-such-folder/lib: "), "{output:?}");
}

//! gpu-tests as a process, where there is no device.

use std::path::PathBuf;
use std::process::{Command, Output};

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

#[test]
fn without_a_device_every_test_is_ignored_with_its_reason_or_fails_where_one_is_wanted() {
    let Err(error) = kernel_runtime::probe() else { return };
    let reason = format!("ignored ({}: {error})", error.code().name());
    let output = gpu_tests(&["run", "ops/abs.tile"], false);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output).contains(&reason), "{}", text(&output));
    assert!(text(&output).contains("0 passed; 0 failed; 4 ignored"), "{}", text(&output));
    let output = gpu_tests(&["run", "ops/abs.tile"], true);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output).contains("4 failed"), "{}", text(&output));
}

#[test]
fn the_sources_are_one_folder_that_names_every_case() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("sources");
    let output = gpu_tests(&["sources", "--out", &folder.to_string_lossy()], false);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let build = std::fs::read_to_string(folder.join("build.toml")).expect("it was written");
    let cases = build.matches("[[set.gpu]]").count();
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
    assert_eq!(gpu_tests(&["walk"], false).status.code(), Some(2));
    let output = gpu_tests(&["upload", "--bundle", "x"], false);
    assert_eq!((output.status.code(), &*text(&output)), (Some(4), "error: --out is missing\n"));
    let output = gpu_tests(&["hostile", "--bundle", "x"], false);
    assert_eq!((output.status.code(), &*text(&output)), (Some(4), "error: --program is missing\n"));
    let output = gpu_tests(&["trap", "--bundle", "no.kbundle"], false);
    assert_eq!(output.status.code(), Some(4));
    assert!(text(&output).contains("B0101: no.kbundle"), "{}", text(&output));
}

//! kernel-bench as a process, where there is no device.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

use std::path::PathBuf;
use std::process::{Command, Output};

use kernel_abi::bundle::{Maker, encode};

fn bench(args: &[&str]) -> (Option<i32>, String) {
    let output: Output =
        Command::new(env!("CARGO_BIN_EXE_kernel-bench")).args(args).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn bundle(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, encode(&Maker::default(), &[]).unwrap()).unwrap();
    path.to_string_lossy().into_owned()
}

#[test]
fn a_wrong_command_line_a_missing_bundle_and_a_missing_folder_have_their_exit_codes() {
    let (code, text) = bench(&["--bundle", "b", "--walk"]);
    assert_eq!(code, Some(2));
    assert!(text.starts_with("error: unknown option `--walk`\nusage: kernel-bench"), "{text}");
    let (code, text) = bench(&["--bundle", "no.kbundle"]);
    assert_eq!(code, Some(4));
    assert!(text.starts_with("error[B0101]: no.kbundle"), "{text}");
    let (code, text) = bench(&["--bundle", &bundle("there.kbundle"), "--json", "no-folder/x.json"]);
    assert_eq!(code, Some(4));
    assert!(text.starts_with("error: no-folder/x.json: "), "{text}");
}

#[test]
fn help_and_version_are_no_mistakes() {
    for (word, begin) in
        [("--help", "usage: kernel-bench --bundle"), ("--version", "kernel-bench ")]
    {
        let output: Output =
            Command::new(env!("CARGO_BIN_EXE_kernel-bench")).arg(word).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{word}");
        assert!(output.stderr.is_empty() && output.stdout.starts_with(begin.as_bytes()), "{word}");
    }
}

#[test]
fn without_a_device_it_says_so() {
    let Err(error) = kernel_runtime::probe() else { return };
    let (code, text) = bench(&["--bundle", &bundle("alone.kbundle")]);
    assert_eq!(code, Some(4), "{text}");
    assert_eq!(text, format!("error[{}]: {error}\n", error.code().name()));
}

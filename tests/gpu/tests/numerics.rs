//! `gpu-tests numerics` without a device: the emulator's device level stands in for it.

use std::path::PathBuf;
use std::process::{Command, Output};

use kernel_tests::program::{Program, package_folder, target};
use serde_json::Value;

fn numerics(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-tests"));
    command.arg("numerics").args(args).output().expect("the program starts")
}

#[test]
fn a_rehearsal_measures_no_difference_and_writes_the_report() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("numerics.json");
    let report = path.to_string_lossy();
    let words = ["of_log2", "from_e4m3", "order_rows", "group_f16"];
    let output =
        numerics(&[&["--rehearse", "--seed", "9", "--report", &report], &words[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = std::fs::read_to_string(&path).expect("it was written");
    let report: Value = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!((&report["seed"], &report["holds"]), (&Value::from(9), &Value::from(true)));
    let rows = report["rows"].as_array().expect("there are rows");
    for row in rows {
        let name = row["kernel"].as_str().expect("a row names its kernel");
        assert!(words.contains(&name), "{name}");
        assert_eq!((&row["holds"], &row["bits_differ"]), (&Value::from(true), &Value::from(0)));
        assert!(row["elements"].as_u64() > Some(0) && !row["bound"].is_null(), "{row}");
    }
    // The emulator's result is the exact value, rounded once.
    let log2 = rows.iter().filter(|row| row["kernel"] == "of_log2");
    let far = |row: &Value| row["greatest_ulp_from_exact"]["value"].as_f64() > Some(0.500_001);
    assert!(!log2.clone().any(far) && log2.count() == 3);
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), rows.len());
}

#[test]
fn without_bundle_or_device_it_says_so() {
    assert_eq!(numerics(&["--fast"]).status.code(), Some(2));
    let output = numerics(&[]);
    assert_eq!(output.status.code(), Some(4));
    assert_eq!(output.stdout, b"error: --bundle is missing\n");
    let output = numerics(&["--bundle", "no.kbundle"]);
    assert_eq!(output.status.code(), Some(4));
    assert!(output.stdout.starts_with(b"error: B0101: no.kbundle"), "{output:?}");
}

#[test]
fn the_kernels_build_for_every_target() {
    let folder = package_folder().join("gpu/numerics");
    let files = ["functions", "floats", "integers", "conversions", "orders", "products"];
    for file in files.map(|name| format!("{name}.tile")) {
        let program = Program::read(&folder, &file).expect("the file is there");
        for template in &program.front.templates {
            for name in ["sm_90a", "sm_100a", "sm_103a"] {
                let target = target(name).expect("a target");
                if let Err(findings) = program.build(template, &Vec::new(), target) {
                    panic!("{file}: {} for {name}: {findings}", template.name());
                }
            }
        }
    }
}

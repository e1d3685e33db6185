//! `gpu-tests numerics` without a device: the emulator's device level stands in for it.

use std::path::PathBuf;
use std::process::{Command, Output};

use kernel_ir::ops::UnaryOp;
use kernel_ir::ops::hardware::{PRODUCT_GROUP, Slack};
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
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stderr.starts_with(b"error: --bundle is missing\nusage:"), "{output:?}");
    let output = numerics(&["--bundle", "no.kbundle"]);
    assert_eq!(output.status.code(), Some(4));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("B0101") && said.contains("no.kbundle"), "{output:?}");
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

/// What was measured on hardware was measured against the bounds that hold today, and all of it holds.
#[test]
fn the_evidence_is_of_the_bounds_in_the_code() {
    let path = package_folder().join("../docs/evidence/h200_numerics.json");
    let text = std::fs::read_to_string(path).expect("the evidence is there");
    let report: Value = serde_json::from_str(&text).expect("it is JSON");
    let rows = report["rows"].as_array().expect("there are rows");
    let of =
        |name: &str| -> Vec<&Value> { rows.iter().filter(|row| row["kernel"] == name).collect() };
    for row in rows {
        assert_eq!(row["holds"], Value::from(true), "{row}");
    }
    for op in [UnaryOp::Exp2, UnaryOp::Exp, UnaryOp::Log2, UnaryOp::Tanh, UnaryOp::Sigmoid]
        .into_iter()
        .chain([UnaryOp::Rsqrt, UnaryOp::Sqrt])
    {
        let rows = of(&format!("of_{}", op.name()));
        assert!(rows.len() >= 3, "{}: all bf16, random bits, a range", op.name());
        for row in rows {
            let slack = Slack::of(op);
            assert_eq!(row["bound"]["ulp"], Value::from(slack.ulp), "{row}");
            assert_eq!(row["bound"]["or_abs"].as_f64(), Some(slack.abs), "{row}");
            assert!(row["elements"].as_u64() >= Some(1 << 16), "{row}");
        }
    }
    for name in ["group_bf16", "group_f16"] {
        let measured = of(name).into_iter().filter(|row| row["bound"].is_number());
        for row in measured.clone() {
            assert_eq!(row["bound"].as_f64(), Some(PRODUCT_GROUP), "{row}");
            assert!(row["elements"].as_u64() >= Some(10_000_000), "{row}");
        }
        assert!(measured.count() >= 4);
    }
}

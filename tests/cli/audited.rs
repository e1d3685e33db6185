//! The audit has nothing to say of the kernels that the verifier accepts: every accepting file of `tests/suite/verify`
//! is built for the first of its targets.

use std::path::Path;

use kernel_tests::directive::Directives;
use kernel_tests::process::{Scratch, kernelc};
use kernel_tests::program::package_folder;
use kernel_tests::suite::{directives, file_tests};
use rayon::prelude::*;
use serde_json::Value;

/// What is built of a file: all of it, or each kernel with its bindings.
fn choices(suite: &Path, path: &str, directives: &Directives) -> Vec<Vec<String>> {
    if directives.bind.is_empty() {
        return vec![Vec::new()];
    }
    let text = std::fs::read_to_string(suite.join(path)).unwrap();
    let kernels = text.split("\nkernel ").skip(1).map(|kernel| {
        let name = kernel.split(['(', '<', ' ']).next().unwrap();
        let header = kernel.split('{').next().unwrap();
        let own =
            directives.bind.iter().filter(|(name, _)| header.contains(&format!("const {name}")));
        let bind: Vec<String> = own.map(|(name, value)| format!("{name}={value}")).collect();
        let mut choice = vec!["--kernel".to_owned(), name.to_owned()];
        if !bind.is_empty() {
            choice.extend(["--bind".to_owned(), bind.join(",")]);
        }
        choice
    });
    kernels.collect()
}

#[test]
fn what_the_verifier_accepts_the_audit_accepts() {
    let suite = package_folder().join("suite");
    let mut builds = Vec::new();
    for test in file_tests(&suite).unwrap() {
        let said = directives(&suite, &test.path).unwrap();
        if test.path.starts_with("verify/") && said.expected.is_empty() {
            let choices = choices(&suite, &test.path, &said);
            builds.extend(choices.into_iter().map(|choice| (test.path.clone(), choice)));
        }
    }
    assert!(builds.len() > 40, "the accepting files are {builds:?}");
    let wrong: Vec<String> = builds
        .par_iter()
        .enumerate()
        .filter_map(|(number, (path, choice))| {
            let folder = Scratch::new(env!("CARGO_TARGET_TMPDIR"), &format!("audited-{number}"));
            let (file, out) = (format!("tests/suite/{path}"), folder.path("out"));
            let call = ["build", &file, "--jobs", "1", "--out", &out].map(str::to_owned);
            let answer = kernelc(call.iter().chain(choice));
            if answer.code == 0 {
                return None;
            }
            if !folder.names().contains(&"out/manifest.json".to_owned()) {
                return Some(format!("{path} {choice:?}: {}", answer.stderr));
            }
            let manifest: Value =
                serde_json::from_slice(&folder.read("out/manifest.json")).unwrap();
            let kernels = manifest["kernels"].as_array().unwrap().iter();
            let found: Vec<_> = kernels.filter(|kernel| kernel["audit"] != "clean").collect();
            Some(format!("{path}: {found:?}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

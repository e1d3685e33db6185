//! Case files and tools for the tests of this crate.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "what is not as expected fails the test")]

pub mod merge;

use std::path::{Path, PathBuf};

use kernel_audit::{Declarations, Processes, Report, Toolchain, audit_ptx};
use serde_json::Value;

/// A row of an `expected.jsonl`.
pub struct Row {
    /// The whole row.
    pub value: Value,
    /// The file that it speaks of.
    pub file: String,
    /// The target.
    pub target: String,
}

/// Folder of the case files.
pub fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/suite/audit").join(name)
}

/// Rows of a folder, the first line, which explains, left out.
pub fn rows(name: &str) -> Vec<Row> {
    let text = std::fs::read_to_string(folder(name).join("expected.jsonl")).unwrap();
    text.lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|value| value.get("about").is_none())
        .map(|value| Row {
            file: value["file"].as_str().unwrap().to_owned(),
            target: value["target"].as_str().unwrap().to_owned(),
            value,
        })
        .collect()
}

/// Text of a case file.
pub fn text(name: &str, file: &str) -> String {
    std::fs::read_to_string(folder(name).join(file)).unwrap()
}

/// Audits with names declared.
pub fn audit(
    text: &str,
    target: &str,
    statics: &[String],
    mutables: &[String],
    tools: Option<&dyn Toolchain>,
) -> Report {
    let declarations = Declarations::parse(statics, mutables).unwrap();
    audit_ptx(text, &declarations, target, tools).unwrap()
}

/// The names of a `mutable` or `static` field: `{"params": […], "verdict": …}`.
pub fn declared(field: &Value) -> (Vec<String>, String) {
    let names = field["params"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v.as_str().unwrap().to_owned())
        .collect();
    (names, field["verdict"].as_str().unwrap().to_owned())
}

/// `error` where there are findings, `silent` where there are none.
pub fn word(report: &Report, kernel: Option<&str>) -> &'static str {
    let any = report.findings.iter().any(|f| kernel.is_none_or(|kernel| f.kernel == kernel));
    if any { "error" } else { "silent" }
}

/// The tools: named by the environment, in the project's tool folder, or in PATH.
pub fn tools() -> Processes {
    let find = |variable: &str, name: &str| -> Option<PathBuf> {
        if let Some(path) = std::env::var_os(variable) {
            return Some(PathBuf::from(path));
        }
        let own =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/nvidia/cu13/bin").join(name);
        if own.exists() {
            return Some(own);
        }
        std::env::split_paths(&std::env::var_os("PATH")?)
            .map(|folder| folder.join(name))
            .find(|path| path.exists())
    };
    Processes {
        ptxas: find("KERNELC_PTXAS", "ptxas"),
        nvdisasm: find("KERNELC_NVDISASM", "nvdisasm"),
        scratch: std::env::temp_dir(),
    }
}

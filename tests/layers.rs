//! The dependency rules of docs/architecture.md, read from `cargo metadata`.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// Which of our crates each of our crates may name, first for its library and programs, then for
/// its tests alone. A crate that is not listed fails: a new edge is a decision.
const EDGES: [(&str, &[&str], &[&str]); 17] = [
    ("kernel_abi", &[], &[]),
    ("kernel_text", &[], &[]),
    ("kernel_runtime", &["kernel_abi"], &[]),
    ("kernel_dsl", &[], &[]),
    ("kernel_ir", &["kernel_abi", "kernel_dsl"], &[]),
    ("kernel_emulator", &["kernel_abi", "kernel_dsl", "kernel_ir", "kernel_memory_model"], &[]),
    ("kernel_audit", &["kernel_abi"], &[]),
    ("kernel_codegen", &["kernel_abi", "kernel_ir"], &["kernel_dsl"]),
    ("kernel_memory_model", &[], &[]),
    ("kernel_mutation", &["kernel_dsl", "kernel_emulator", "kernel_ir"], &[]),
    ("kernel_reduction", &[], &[]),
    (
        "kernelc",
        &[
            "kernel_abi",
            "kernel_audit",
            "kernel_codegen",
            "kernel_dsl",
            "kernel_emulator",
            "kernel_ir",
            "kernel_memory_model",
            "kernel_mutation",
            "kernel_reduction",
        ],
        &[],
    ),
    ("kimi_k3", &["kernel_abi"], &[]),
    (
        "kimi-k3",
        &["kernel_abi", "kernel_emulator", "kernel_runtime", "kernel_text", "kimi_k3"],
        &[],
    ),
    (
        "kernel_tests",
        &[
            "kernel_abi",
            "kernel_dsl",
            "kernel_emulator",
            "kernel_ir",
            "kernel_mutation",
            "kernel_reduction",
            "kimi_k3",
        ],
        &["kernel_audit", "kernel_codegen", "kernel_memory_model", "kernel_runtime", "kernelc"],
    ),
    (
        "kernel_gpu_tests",
        &[
            "kernel_abi",
            "kernel_emulator",
            "kernel_ir",
            "kernel_runtime",
            "kernel_tests",
            "kimi_k3",
        ],
        &[],
    ),
    ("xtask", &[], &[]),
];

/// External crates that only some of our crates may name in their manifest, and that nothing of
/// ours reaches by another way.
const GATES: [(&str, &[&str]); 11] = [
    ("annotate-snippets", &["kernel_dsl"]),
    ("pest", &["kernel_dsl"]),
    ("pest_derive", &["kernel_dsl"]),
    ("melior", &["kernel_codegen"]),
    ("mlir-sys", &["kernel_codegen"]),
    ("inkwell", &["kernel_codegen"]),
    ("llvm-sys", &["kernel_codegen"]),
    ("tracing-subscriber", &["kernelc", "kimi-k3"]),
    ("tokenizers", &["kernel_text"]),
    ("memmap2", &["kernel_abi"]),
    ("cudarc", &["kernel_runtime"]),
];

/// What links LLVM outside of tests.
const LINKS_LLVM: [&str; 2] = ["kernel_codegen", "kernelc"];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Edges {
    /// Without dev-dependencies: what a user of the crate gets.
    Normal,
    /// With the dev-dependencies of our crates.
    WithDev,
}

struct Dependency {
    id: String,
    is_dev_only: bool,
}

struct Graph {
    names: BTreeMap<String, String>,
    dependencies: BTreeMap<String, Vec<Dependency>>,
    members: BTreeSet<String>,
}

impl Graph {
    fn read() -> Graph {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let run = |command: &mut Command| {
            let output = command.output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        };
        let version = run(Command::new("rustc").arg("-vV"));
        let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
        let text = run(Command::new(cargo)
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
            .args(["metadata", "--format-version=1", "--locked", "--filter-platform", host]));
        Graph::parse(&serde_json::from_str(&text).unwrap())
    }

    fn parse(metadata: &Value) -> Graph {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let list = |value: &Value| value.as_array().unwrap().clone();
        let names = list(&metadata["packages"])
            .iter()
            .map(|package| (text(&package["id"]), text(&package["name"])))
            .collect();
        let dependency = |dependency: &Value| Dependency {
            id: text(&dependency["pkg"]),
            is_dev_only: list(&dependency["dep_kinds"]).iter().all(|kind| kind["kind"] == "dev"),
        };
        let dependencies = list(&metadata["resolve"]["nodes"])
            .iter()
            .map(|node| (text(&node["id"]), list(&node["deps"]).iter().map(dependency).collect()))
            .collect();
        let members = list(&metadata["workspace_members"]).iter().map(text).collect();
        Graph { names, dependencies, members }
    }

    fn name(&self, id: &str) -> &str {
        &self.names[id]
    }

    /// Everything that `start` reaches, without going into the crates named in `closed`.
    fn reached(&self, start: &str, edges: Edges, closed: &[&str]) -> BTreeSet<&str> {
        let mut seen = BTreeSet::new();
        let mut open = vec![(start, edges)];
        while let Some((id, edges)) = open.pop() {
            for dependency in &self.dependencies[id] {
                let name = self.name(&dependency.id);
                let is_followed = edges == Edges::WithDev || !dependency.is_dev_only;
                if is_followed && !closed.contains(&name) && seen.insert(name) {
                    // Dev-dependencies of a dependency are not built.
                    open.push((&dependency.id, Edges::Normal));
                }
            }
        }
        seen
    }
}

#[test]
fn our_crates_depend_on_each_other_as_planned() {
    let graph = Graph::read();
    let ours: BTreeSet<&str> = graph.members.iter().map(|id| graph.name(id)).collect();
    let mut faults = Vec::new();
    for id in &graph.members {
        let name = graph.name(id);
        let Some((_, normal, dev)) = EDGES.iter().find(|(member, ..)| *member == name) else {
            faults.push(format!("{name} is not in the table of edges"));
            continue;
        };
        for dependency in &graph.dependencies[id] {
            let to = graph.name(&dependency.id);
            let is_allowed = normal.contains(&to) || (dependency.is_dev_only && dev.contains(&to));
            if ours.contains(to) && to != name && !is_allowed {
                faults.push(format!("{name} must not depend on {to}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn telling_crates_are_reached_through_their_gate_alone() {
    let graph = Graph::read();
    let mut faults = Vec::new();
    for (package, gates) in GATES {
        for id in &graph.members {
            let name = graph.name(id);
            if !gates.contains(&name) && graph.reached(id, Edges::WithDev, gates).contains(package)
            {
                faults.push(format!("{name} reaches {package} past {}", gates.join(", ")));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn llvm_is_linked_by_code_generation_and_the_compiler_alone() {
    let graph = Graph::read();
    let with_llvm: BTreeSet<&str> = graph
        .members
        .iter()
        .filter(|id| graph.reached(id, Edges::Normal, &[]).contains("llvm-sys"))
        .map(|id| graph.name(id))
        .collect();
    assert_eq!(with_llvm, BTreeSet::from(LINKS_LLVM));
}

#[test]
fn the_program_that_installs_llvm_builds_without_it() {
    let graph = Graph::read();
    let xtask = graph.members.iter().find(|id| graph.name(id) == "xtask").unwrap();
    let reached = graph.reached(xtask, Edges::WithDev, &[]);
    for package in ["llvm-sys", "mlir-sys", "cudarc"] {
        assert!(!reached.contains(package), "xtask reaches {package}");
    }
}

#[test]
fn each_binding_of_llvm_is_there_once() {
    let graph = Graph::read();
    for package in ["melior", "mlir-sys", "inkwell", "llvm-sys"] {
        let count = graph.names.values().filter(|name| *name == package).count();
        assert_eq!(count, 1, "{package}: two versions would link LLVM twice");
    }
}

#[test]
fn a_way_past_a_gate_is_found() {
    let node = |id: &str, deps: &[(&str, Option<&str>)]| {
        let deps: Vec<Value> = deps
            .iter()
            .map(|(to, kind)| serde_json::json!({"pkg": to, "dep_kinds": [{"kind": kind}]}))
            .collect();
        serde_json::json!({"id": id, "deps": deps})
    };
    let graph = Graph::parse(&serde_json::json!({
        "packages": (["a", "b", "gate", "pest"].map(|name| serde_json::json!({"id": name, "name": name}))),
        "workspace_members": ["a", "b", "gate"],
        "resolve": {"nodes": [
            node("a", &[("gate", None), ("b", Some("dev"))]),
            node("b", &[("pest", None)]),
            node("gate", &[("pest", None)]),
            node("pest", &[]),
        ]},
    }));
    assert!(graph.reached("a", Edges::Normal, &[]).contains("pest"));
    assert!(!graph.reached("a", Edges::Normal, &["gate"]).contains("pest"));
    assert!(graph.reached("a", Edges::WithDev, &["gate"]).contains("pest"));
}

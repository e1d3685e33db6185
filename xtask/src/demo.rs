//! `cargo xtask demo`: what the project does, on a machine that has cargo and no GPU.

use crate::manifest::{Audit, Built, Manifest};
use crate::process::{capture, cargo, run, shown};
use crate::setup;
use crate::table::Table;
use crate::tools::Tools;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const KERNELS: &str = "models/kimi_k3/kernels";
const TARGETS: [&str; 3] = ["sm_90a", "sm_100a", "sm_103a"];
const OUT: &str = "out/demo";
const TRAP: &str = "tests/suite/audit/basic/flag_then_barrier_trap.ptx";
const TRAP_TARGET: &str = "sm_100a";

/// What every step may use.
struct Demo {
    kernelc: PathBuf,
    kimi_k3: PathBuf,
    tools: Tools,
}

struct Step {
    heading: &'static str,
    run: fn(&Demo) -> Result<()>,
}

const MINI: &str = "models/kimi_k3/mini";
const PROMPT: &str = "1 In the beginning";
const NEW_TOKENS: &str = "48";

const STEPS: [Step; 4] = [
    Step { heading: "every kernel for every target: built and audited", run: build_kernels },
    Step { heading: "the kernels on real input: layer 1 against its goldens", run: real_input },
    Step { heading: "the trap: a load that ptxas moves above its wait", run: trap },
    Step {
        heading: "kimi-k3-mini writes text, every operation a kernel on the emulator",
        run: generate,
    },
];

pub(crate) fn main(args: &[String]) -> Result<ExitCode> {
    if let Some(arg) = args.first() {
        bail!("demo takes no argument, got `{arg}`");
    }
    let workspace = Workspace::enter()?;
    let tools = setup::run(&workspace)?;
    run(cargo().args(["build", "--package", "kernelc", "--bin", "kernelc"]))?;
    run(cargo().args(["build", "--package", "kimi-k3", "--bin", "kimi-k3"]))?;
    let demo = Demo {
        kernelc: workspace.program("debug", "kernelc"),
        kimi_k3: workspace.program("debug", "kimi-k3"),
        tools,
    };
    for (index, step) in STEPS.iter().enumerate() {
        println!("\n== {} of {}: {}\n", index + 1, STEPS.len(), step.heading);
        (step.run)(&demo).with_context(|| format!("demo step {}", index + 1))?;
    }
    println!("\ndemo: all {} steps succeeded", STEPS.len());
    Ok(ExitCode::SUCCESS)
}

impl Demo {
    fn kernelc(&self) -> Command {
        let mut command = Command::new(&self.kernelc);
        command.envs(self.tools.variables());
        command
    }
}

fn build_kernels(demo: &Demo) -> Result<()> {
    let mut build = demo.kernelc();
    build.args(["build", KERNELS]);
    for target in TARGETS {
        build.args(["--target", target]);
    }
    run(build.args(["--set", "demo", "--out", OUT]))?;
    let manifest = Manifest::read(Path::new(OUT))?;
    println!();
    kernel_table(&manifest)?.print();
    println!(
        "\neach cell: registers / spilled bytes / shared bytes / audit; the files are in {OUT}"
    );
    let bad: Vec<&str> = manifest
        .kernels
        .iter()
        .filter(|built| built.audit != Audit::Clean)
        .map(|built| built.name.as_str())
        .collect();
    ensure!(bad.is_empty(), "the audit is not clean for {}", bad.join(", "));
    Ok(())
}

/// One row for each artefact, one column for each target; a cell that is missing is an error.
fn kernel_table(manifest: &Manifest) -> Result<Table> {
    let mut rows: BTreeMap<(&str, &str), Vec<&Built>> = BTreeMap::new();
    for built in &manifest.kernels {
        rows.entry((&built.name, &built.kernel)).or_default().push(built);
    }
    ensure!(!rows.is_empty(), "the build made no kernel");
    let mut table = Table::new(&[&["name", "kernel"], &TARGETS[..]].concat());
    for ((name, kernel), cells) in rows {
        let mut row = vec![name.to_owned(), kernel.to_owned()];
        for target in TARGETS {
            let built = cells
                .iter()
                .find(|built| built.target == target)
                .with_context(|| format!("{name} was not built for {target}"))?;
            row.push(format!(
                "{} / {} / {} / {}",
                built.registers,
                built.spill_bytes,
                built.shared_bytes,
                built.audit.as_str()
            ));
        }
        table.row(row);
    }
    Ok(table)
}

/// The program compares and prints; its exit code is the verdict.
fn real_input(demo: &Demo) -> Result<()> {
    let mut layer = cargo();
    layer.args(["run", "--quiet", "--package", "kernel_tests", "--bin", "layer1"]);
    run(layer.envs(demo.tools.variables()))
}

/// The audit must find the moved load: exit code 1 and the two addresses in the machine code.
fn trap(demo: &Demo) -> Result<()> {
    let mut audit = demo.kernelc();
    audit.args(["audit", TRAP, "--target", TRAP_TARGET, "--format", "json"]);
    println!("$ {}", shown(&audit));
    let output = capture(&mut audit)?;
    if output.status.code() != Some(1) {
        bail!(
            "the audit was to end with exit code 1, findings, and ended with {}:\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
    }
    let report: serde_json::Value =
        serde_json::from_slice(&output.stdout).context("the audit report is not JSON")?;
    let moved = moved_loads(&report);
    ensure!(!moved.is_empty(), "the audit names no load that moved: {report}");
    for line in moved {
        println!("{line}");
    }
    Ok(())
}

/// The program streams the text; its exit code is the verdict.
fn generate(demo: &Demo) -> Result<()> {
    let mut generate = Command::new(&demo.kimi_k3);
    generate.args(["generate", "--model", MINI, "--max-new-tokens", NEW_TOKENS]);
    run(generate.args(["--prompt", PROMPT]))
}

/// For each finding with places in the machine code: what moved above what, in PTX and in SASS.
fn moved_loads(report: &serde_json::Value) -> Vec<String> {
    let text = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let findings = report["findings"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut lines = Vec::new();
    for finding in findings.iter().filter(|finding| finding["sass"].is_object()) {
        lines.push(format!(
            "{} in kernel {}: {}",
            text(&finding["code"]),
            text(&finding["kernel"]),
            text(&finding["message"])
        ));
        for (name, place) in [("load", "ptx"), ("wait", "wait")] {
            lines.push(format!(
                "  {name}  SASS {}  PTX line {}: {}",
                text(&finding["sass"][name]),
                text(&finding[place]["line"]),
                text(&finding[place]["text"]).trim()
            ));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_addresses_of_a_moved_load_are_shown() {
        let report = serde_json::json!({"verdict": "findings", "findings": [
            {"code": "A0002", "kernel": "k", "message": "wrong kind of load", "sass": null},
            {"code": "A0001", "kernel": "k3", "param": "x", "message": "moved above the wait",
             "ptx": {"line": 60, "text": "  ld.global.nc.f32 %f2, [%rd6+512];"},
             "wait": {"line": 55, "text": "ld.acquire.sys.global.b32 %r2, [%rd2];"},
             "sass": {"load": "0x00b0", "wait": "0x0110"}, "help": "declare it"}]});
        assert_eq!(
            moved_loads(&report),
            [
                "A0001 in kernel k3: moved above the wait",
                "  load  SASS 0x00b0  PTX line 60: ld.global.nc.f32 %f2, [%rd6+512];",
                "  wait  SASS 0x0110  PTX line 55: ld.acquire.sys.global.b32 %r2, [%rd2];",
            ]
        );
        assert!(moved_loads(&serde_json::json!({"verdict": "clean"})).is_empty());
    }

    #[test]
    fn an_artefact_that_lacks_a_target_is_an_error() {
        let built = |target: &str| Built {
            name: "in_proj".into(),
            kernel: "gemv_bf16".into(),
            target: target.into(),
            registers: 40,
            spill_bytes: 0,
            shared_bytes: 512,
            audit: Audit::Clean,
            cubin: String::new(),
        };
        let all = Manifest { kernels: TARGETS.iter().map(|target| built(target)).collect() };
        assert!(kernel_table(&all).is_ok());
        let one = Manifest { kernels: vec![built("sm_90a")] };
        assert!(kernel_table(&one).is_err());
        assert!(kernel_table(&Manifest { kernels: Vec::new() }).is_err());
    }
}

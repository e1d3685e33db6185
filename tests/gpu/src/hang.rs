//! A step in whose middle stands a kernel that does not end: the process must say within ten seconds which nodes were in
//! flight and end by itself, and the next process must work at once.
//!
//! The kernel spins for a minute of the device's clock, so that nothing hangs for ever.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use kernel_abi::exec::Executor;
use kernel_abi::plan::{BufferId, BufferRole, Plan, PlanBuilder, Scalar};
use kernel_abi::{Access, DType};
use kernel_runtime::{
    Code, CudaExecutor, CudaOptions, Device, FoundPlan, KernelImage, RuntimeError, probe,
};
use serde_json::json;

use crate::Stop;
use crate::arguments::Arguments;
use crate::by_hand;
use crate::child::{Child, Ended, Scratch};
use crate::report::Report;

/// A case that takes longer has failed.
const LIMIT: Duration = Duration::from_secs(10);
/// How long a step is waited for.
const STEP_LIMIT: Duration = Duration::from_secs(5);
/// How long the kernel spins.
const SPIN_MILLISECONDS: i32 = 60_000;
/// Nodes of the step.
const NODES: usize = 100;
/// The node that spins, in the middle of the nodes between two marks.
const SPINNING: usize = 53;
/// What the child processes are told.
const PASS: &str = "pass";
const SPIN: &str = "spin";

/// Adds one to a word after so many milliseconds.
fn ptx(symbol: &str, target: &str) -> String {
    format!(
        "\
.version 8.8
.target {target}
.address_size 64
.visible .entry {symbol}(.param .u64 x, .param .u32 ms)
.reqntid 32
{{
  .reg .b32 %r<4>; .reg .b64 %rd<6>; .reg .pred %p<3>;
  ld.param.u64 %rd1, [x];
  ld.param.u32 %r1, [ms];
  mul.wide.u32 %rd2, %r1, 1000000;
  mov.u64 %rd3, %globaltimer;
  add.s64 %rd4, %rd3, %rd2;
W:
  mov.u64 %rd5, %globaltimer;
  setp.lt.u64 %p1, %rd5, %rd4;
  @%p1 bra W;
  mov.u32 %r2, %tid.x;
  setp.ne.u32 %p2, %r2, 0;
  @%p2 bra E;
  ld.global.u32 %r3, [%rd1];
  add.u32 %r3, %r3, 1;
  st.global.u32 [%rd1], %r3;
E:
  ret;
}}
"
    )
}

fn name(node: usize) -> String {
    format!("node{node}")
}

/// Every node adds one to the word; one of them spins before.
fn plan(milliseconds: i32) -> (Plan, BufferId) {
    let mut plan = PlanBuilder::new(1);
    let word = plan.buffer("word", DType::U32, &[1], BufferRole::State);
    for node in 0..NODES {
        let (kernel, ms) = if node == SPINNING { ("spin", milliseconds) } else { ("count", 0) };
        plan.kernel(name(node), "hang.ptx", kernel, &[])
            .update("x", word)
            .scalar("ms", Scalar::I32(ms))
            .add();
    }
    (plan.finish(), word)
}

/// Runs the cases, or in a child process the step.
///
/// # Errors
/// There is no device, or a process cannot be started.
pub(crate) fn main(all: &Arguments, say: fn(&str)) -> Result<u8, Stop> {
    match all.rest.first().map(String::as_str) {
        Some(SPIN) => Ok(child(all.device, SPIN_MILLISECONDS, say)),
        Some(PASS) => Ok(child(all.device, 0, say)),
        Some(other) => Err(Stop::Usage(format!("there is no step `{other}`"))),
        None => parent(all, say),
    }
}

/// The step in a process of its own.
fn child(ordinal: u32, milliseconds: i32, say: fn(&str)) -> u8 {
    match step(ordinal, milliseconds) {
        Ok(count) => {
            say(&format!("{count}\n"));
            0
        }
        Err(error) => {
            crate::complain(&format!("error[{}]: {error}\n", error.code().name()));
            if error.leaves_work_behind() {
                kernel_runtime::end_process(4);
            }
            4
        }
    }
}

/// Runs the step once and gives what the word holds then.
fn step(ordinal: u32, milliseconds: i32) -> Result<u32, RuntimeError> {
    let device = Device::open(ordinal)?;
    let target = format!("{}a", device.info().architecture());
    let texts = ["count", "spin"].map(|symbol| (symbol, ptx(symbol, &target)));
    let (plan, word) = plan(milliseconds);
    let found = FoundPlan::new(plan, |key| {
        let text = texts.iter().find(|(symbol, _)| *symbol == key.kernel);
        let (symbol, text) = text.ok_or_else(|| RuntimeError::NoKernel {
            kernel: key.to_string(),
            device: target.clone(),
            why: "it is not written here".to_owned(),
        })?;
        Ok(image(symbol, &target, text))
    })?;
    let options = CudaOptions { limit: STEP_LIMIT, ..CudaOptions::STANDARD };
    let mut executor = CudaExecutor::of_found(&device, found, options)?;
    executor.step()?;
    let bytes = executor.read(0, word)?;
    Ok(bytes.first_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes)))
}

fn image<'a>(symbol: &'a str, target: &'a str, text: &'a str) -> KernelImage<'a> {
    let params = vec![
        by_hand::buffer("x", Access::Inout, DType::U32, 1),
        by_hand::scalar("ms", Access::Scalar, DType::I32),
    ];
    by_hand::image(symbol, params, 32, target, text)
}

fn parent(all: &Arguments, say: fn(&str)) -> Result<u8, Stop> {
    let report = Report::create(all.report.as_deref())?;
    let driver = probe().map_err(|error| format!("{}: {error}", error.code().name()))?;
    let scratch = Scratch::new()?;
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let run = |step: &str| -> Result<Ended, String> {
        let mut command = Command::new(&program);
        command.args(["hang", step, "--device", &all.device.to_string()]);
        Ok(Child::start(command, &scratch)?.end())
    };
    let mut rows = Vec::new();
    for (case, step) in [
        ("a step that ends", PASS),
        ("a step that hangs", SPIN),
        ("the next process", PASS),
        ("a step that hangs, once more", SPIN),
        ("the process after that", PASS),
    ] {
        let ended = run(step)?;
        let message = ended.message();
        let is_right = if step == PASS { has_passed(&ended) } else { has_told(&ended) };
        let is_in_time = ended.taken <= LIMIT;
        let verdict = match (is_right, is_in_time) {
            (true, true) => "right",
            (true, false) => "too slow",
            (false, _) => "wrong",
        };
        let seconds = (ended.taken.as_secs_f64() * 1e3).round() / 1e3;
        say(&format!("{verdict}: {case}: {seconds:.2} s, {message}\n"));
        rows.push(json!({
            "case": case,
            "exit": ended.exit,
            "signal": ended.signal,
            "message": message,
            "nodes_named": named(&message).len(),
            "seconds": seconds,
            "verdict": verdict,
        }));
    }
    let is_right = rows.iter().all(|row| row["verdict"] == "right");
    report.finish(&json!({
        "gpu": driver.devices.iter().find(|i| i.ordinal == all.device).map(|i| i.name.clone()),
        "driver": driver.version,
        "nodes": NODES,
        "node_that_spins": name(SPINNING),
        "nodes_of_mark": CudaOptions::STANDARD.nodes_of_mark,
        "limit_of_the_step_seconds": STEP_LIMIT.as_secs(),
        "limit_seconds": LIMIT.as_secs(),
        "all_right": is_right,
        "cases": rows,
    }))?;
    Ok(u8::from(!is_right))
}

/// Every node of the step has run.
fn has_passed(ended: &Ended) -> bool {
    ended.exit == Some(0) && ended.stdout == format!("{NODES}\n").into_bytes()
}

/// The process ended by itself with the error, which names the node that spins and no more than those between two marks.
fn has_told(ended: &Ended) -> bool {
    let message = ended.message();
    let nodes = named(&message);
    let has_code = message.contains(&format!("error[{}]", Code::R0401.name()));
    ended.exit == Some(4)
        && has_code
        && nodes.contains(&*format!("{} (spin)", name(SPINNING)))
        && nodes.len() <= CudaOptions::STANDARD.nodes_of_mark
}

/// The nodes that a message names.
fn named(message: &str) -> BTreeSet<&str> {
    let nodes = message.split_once("in flight: ").map(|(_, nodes)| nodes.trim_end());
    nodes.map(|nodes| nodes.split(", ").collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_step_is_a_plan_that_holds() {
        let (plan, _) = plan(SPIN_MILLISECONDS);
        let found = FoundPlan::new(plan, |key| {
            let symbol = if key.kernel == "spin" { "spin" } else { "count" };
            Ok(image(symbol, "sm_90a", ""))
        });
        let found = found.expect("the plan is right");
        assert_eq!((found.plan().nodes.len(), found.plan().kernels().len()), (NODES, 2));
        let text = ptx("spin", "sm_90a");
        assert!(text.contains(".target sm_90a\n") && text.contains(".entry spin("), "{text}");
    }

    #[test]
    fn an_error_is_right_where_it_names_the_node_that_spins() {
        let told = |nodes: &[usize], code: &str, exit: i32| {
            let names: Vec<String> = nodes
                .iter()
                .map(|&n| format!("node{n} ({})", if n == SPINNING { "spin" } else { "count" }))
                .collect();
            let text =
                format!("error[{code}]: not done after 5.0 s; in flight: {}\n", names.join(", "));
            let mut ended = Ended::said(text, Duration::from_secs(6));
            ended.exit = Some(exit);
            has_told(&ended)
        };
        let between: Vec<usize> = (32..64).collect();
        assert!(told(&between, "R0401", 4));
        assert!(!told(&between, "R0106", 4) && !told(&between, "R0401", 0));
        assert!(!told(&(0..32).collect::<Vec<_>>(), "R0401", 4), "the node is not named");
        assert!(!told(&(0..NODES).collect::<Vec<_>>(), "R0401", 4), "all nodes are named");
        let mut passed = Ended::said(String::new(), Duration::ZERO);
        (passed.exit, passed.stdout) = (Some(0), b"100\n".to_vec());
        assert!(has_passed(&passed));
    }
}

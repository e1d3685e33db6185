//! The plans of the pages P01xx, word for word: a page shows the text of its two functions.

use std::collections::BTreeMap;

use kernel_abi::plan::{BufferRole, KernelKey, Plan, PlanBuilder, Promise, Scalar, Signature};
use kernel_abi::{Access, DType};
use kernel_tests::pages::judge::Found;
use kernel_tests::pages::{Block, Page, Purpose};
use kernel_tests::program::Program;

/// This file, which has the text of each function as a page shows it.
const TEXT: &str = include_str!("plans.rs");

/// A function that makes a plan.
type Maker = fn() -> Plan;

/// For each code the plan that is refused for it, and the one put right.
const PLANS: [(&str, Maker, Maker); 14] = [
    ("P0101", p0101_fails, p0101_passes),
    ("P0102", p0102_fails, p0102_passes),
    ("P0103", p0103_fails, p0103_passes),
    ("P0104", p0104_fails, p0104_passes),
    ("P0105", p0105_fails, p0105_passes),
    ("P0106", p0106_fails, p0106_passes),
    ("P0107", p0107_fails, p0107_passes),
    ("P0108", p0108_fails, p0108_passes),
    ("P0109", p0109_fails, p0109_passes),
    ("P0110", p0110_fails, p0110_passes),
    ("P0111", p0111_fails, p0111_passes),
    ("P0113", p0113_fails, p0113_passes),
    ("P0114", p0114_fails, p0114_passes),
    ("P0115", p0115_fails, p0115_passes),
];

/// What the check of a plan says, with the kernels of the file `k.tile` of the page.
pub(crate) fn judge(page: &Page, block: &Block) -> Result<Found, String> {
    let makers = PLANS.iter().find(|(code, ..)| *code == page.code);
    let (_, fails, passes) = makers.ok_or_else(|| format!("there is no plan for {}", page.code))?;
    let (make, word) = match block.purpose {
        Purpose::Fails => (fails, "fails"),
        Purpose::Passes | Purpose::File => (passes, "passes"),
    };
    let head = format!("fn {}_{word}() -> Plan {{\n", page.code.to_lowercase());
    if !block.text.starts_with(&head) || !TEXT.contains(&block.text) {
        return Err(format!(
            "line {}: the text is not that of `{}` in tests/codes/plans.rs",
            block.line,
            head.trim_end()
        ));
    }
    let errors = make().check(signatures(page)?).err().unwrap_or_default();
    let codes = errors.iter().map(|error| error.code.name().to_owned()).collect();
    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    Ok(Found { codes, text: lines.join("\n") })
}

/// The parameters of the kernels that a page has.
fn signatures(page: &Page) -> Result<BTreeMap<KernelKey, Signature>, String> {
    let Some(text) = page.file("k.tile") else { return Ok(BTreeMap::new()) };
    let mut read = |path: &str| Err(format!("there is no file `{path}`"));
    let program = Program::of_text("k.tile", text, &mut read);
    if program.front.has_errors() {
        return Err(program.show(&program.front.diagnostics));
    }
    let mut signatures = BTreeMap::new();
    for template in &program.front.templates {
        let built = program.build(template, &Vec::new(), None)?;
        let kernel = template.name().to_owned();
        let key = KernelKey { file: "k.tile".to_owned(), kernel, bindings: BTreeMap::new() };
        signatures.insert(key, kernel_emulator::signature(&built.kernel));
    }
    Ok(signatures)
}

fn p0101_fails() -> Plan {
    PlanBuilder::new(0).finish() // for nobody
}

fn p0101_passes() -> Plan {
    PlanBuilder::new(1).finish()
}

fn p0102_fails() -> Plan {
    let mut plan = PlanBuilder::new(1);
    let w = plan.buffer("w", DType::F32, &[4], BufferRole::Weight);
    let x = plan.buffer("x", DType::I32, &[4], BufferRole::Host { promise: None });
    let y = plan.buffer("y", DType::F32, &[4], BufferRole::Step);
    plan.kernel("first", "k.tile", "scale", &[]).read("w", w).read("x", x).write("y", y).add();
    plan.finish()
}

fn p0102_passes() -> Plan {
    let mut plan = PlanBuilder::new(1);
    let w = plan.buffer("w", DType::F32, &[4], BufferRole::Weight);
    let x = plan.buffer("x", DType::F32, &[4], BufferRole::Host { promise: None });
    let y = plan.buffer("y", DType::F32, &[4], BufferRole::Step);
    plan.kernel("first", "k.tile", "scale", &[]).read("w", w).read("x", x).write("y", y).add();
    plan.finish()
}

fn p0103_fails() -> Plan {
    let mut plan = PlanBuilder::new(1);
    let x = plan.buffer("x", DType::F32, &[4], BufferRole::Host { promise: None });
    let y = plan.buffer("y", DType::F32, &[4], BufferRole::Step);
    plan.kernel("first", "k.tile", "scale", &[]).read("w", x).read("x", x).write("y", y).add();
    plan.finish()
}

fn p0103_passes() -> Plan {
    let mut plan = PlanBuilder::new(1);
    let w = plan.buffer("w", DType::F32, &[4], BufferRole::Weight);
    let x = plan.buffer("x", DType::F32, &[4], BufferRole::Host { promise: None });
    let y = plan.buffer("y", DType::F32, &[4], BufferRole::Step);
    plan.kernel("first", "k.tile", "scale", &[]).read("w", w).read("x", x).write("y", y).add();
    plan.finish()
}

fn p0104_fails() -> Plan {
    let mut plan = PlanBuilder::new(1);
    let w = plan.buffer("w", DType::F32, &[4], BufferRole::Weight);
    let y = plan.buffer("y", DType::F32, &[4], BufferRole::Step);
    let z = plan.buffer("z", DType::F32, &[4], BufferRole::Step);
    plan.kernel("second", "k.tile", "scale", &[]).read("w", w).read("x", y).write("y", z).add();
    plan.finish()
}

fn p0104_passes() -> Plan {
    let mut plan = PlanBuilder::new(1);
    let w = plan.buffer("w", DType::F32, &[4], BufferRole::Weight);
    let x = plan.buffer("x", DType::F32, &[4], BufferRole::Host { promise: None });
    let y = plan.buffer("y", DType::F32, &[4], BufferRole::Step);
    let z = plan.buffer("z", DType::F32, &[4], BufferRole::Step);
    plan.kernel("first", "k.tile", "scale", &[]).read("w", w).read("x", x).write("y", y).add();
    plan.kernel("second", "k.tile", "scale", &[]).read("w", w).read("x", y).write("y", z).add();
    plan.finish()
}

fn p0105_fails() -> Plan {
    let mut plan = PlanBuilder::new(1);
    let w = plan.buffer("w", DType::F32, &[4], BufferRole::Weight);
    let x = plan.buffer("x", DType::F32, &[4], BufferRole::Host { promise: None });
    let y = plan.buffer("y", DType::F32, &[4], BufferRole::Step);
    plan.kernel("first", "k.tile", "scale", &[]).read("w", w).read("x", x).write("y", y).add();
    plan.kernel("second", "k.tile", "scale", &[]).read("w", w).read("x", x).write("y", y).add();
    let mut plan = plan.finish();
    plan.nodes[1].after.clear(); // the edge is lost
    plan
}

fn p0105_passes() -> Plan {
    let mut plan = PlanBuilder::new(1);
    let w = plan.buffer("w", DType::F32, &[4], BufferRole::Weight);
    let x = plan.buffer("x", DType::F32, &[4], BufferRole::Host { promise: None });
    let y = plan.buffer("y", DType::F32, &[4], BufferRole::Step);
    plan.kernel("first", "k.tile", "scale", &[]).read("w", w).read("x", x).write("y", y).add();
    plan.kernel("second", "k.tile", "scale", &[]).read("w", w).read("x", x).write("y", y).add();
    plan.finish()
}

fn p0106_fails() -> Plan {
    let mut plan = PlanBuilder::new(1);
    let promise = Some(Promise { lo: 0, hi: 9, distinct: false, except: None });
    let id = plan.buffer("id", DType::I32, &[2], BufferRole::Host { promise });
    let table = plan.buffer("table", DType::F32, &[8], BufferRole::Weight);
    let y = plan.buffer("y", DType::F32, &[2], BufferRole::Step);
    plan.kernel("pick", "k.tile", "pick", &[])
        .read("id", id)
        .read("table", table)
        .write("y", y)
        .add();
    plan.finish()
}

fn p0106_passes() -> Plan {
    let mut plan = PlanBuilder::new(1);
    let promise = Some(Promise { lo: 0, hi: 8, distinct: false, except: None });
    let id = plan.buffer("id", DType::I32, &[2], BufferRole::Host { promise });
    let table = plan.buffer("table", DType::F32, &[8], BufferRole::Weight);
    let y = plan.buffer("y", DType::F32, &[2], BufferRole::Step);
    plan.kernel("pick", "k.tile", "pick", &[])
        .read("id", id)
        .read("table", table)
        .write("y", y)
        .add();
    plan.finish()
}

fn p0107_fails() -> Plan {
    let mut plan = PlanBuilder::new(1);
    let x = plan.buffer("x", DType::F32, &[4], BufferRole::Host { promise: None });
    let state = plan.buffer("state", DType::F32, &[4], BufferRole::State);
    let y = plan.buffer("y", DType::F32, &[4], BufferRole::Step);
    let z = plan.buffer("z", DType::F32, &[4], BufferRole::Step);
    plan.kernel("writes", "k.tile", "scale", &[]).read("x", x).write("y", state).add();
    plan.kernel("reads", "k.tile", "add", &[]).read("s", state).read("x", x).write("y", y).add();
    plan.kernel("last", "k.tile", "scale", &[]).read("x", y).write("y", z).add();
    plan.finish()
}

fn p0107_passes() -> Plan {
    let mut plan = PlanBuilder::new(1);
    let x = plan.buffer("x", DType::F32, &[4], BufferRole::Host { promise: None });
    let state = plan.buffer("state", DType::F32, &[4], BufferRole::State);
    let y = plan.buffer("y", DType::F32, &[4], BufferRole::Step);
    let z = plan.buffer("z", DType::F32, &[4], BufferRole::Step);
    plan.kernel("writes", "k.tile", "scale", &[]).read("x", x).write("y", state).add();
    plan.kernel("between", "k.tile", "scale", &[]).read("x", x).write("y", z).add();
    plan.kernel("reads", "k.tile", "add", &[]).read("s", state).read("x", x).write("y", y).add();
    plan.finish()
}

fn p0108_fails() -> Plan {
    let mut plan = PlanBuilder::new(2);
    let x = plan.buffer("x", DType::F32, &[4], BufferRole::Host { promise: None });
    let all = plan.buffer("all", DType::F32, &[4], BufferRole::Step);
    plan.all_gather("gather", x, all, 1);
    plan.finish()
}

fn p0108_passes() -> Plan {
    let mut plan = PlanBuilder::new(2);
    let x = plan.buffer("x", DType::F32, &[4], BufferRole::Host { promise: None });
    let all = plan.buffer("all", DType::F32, &[8], BufferRole::Step);
    plan.all_gather("gather", x, all, 1);
    plan.finish()
}

fn p0109_fails() -> Plan {
    let mut plan = PlanBuilder::new(1);
    let w = plan.buffer("w", DType::F32, &[2, 2], BufferRole::Weight);
    let y = plan.buffer("y", DType::F32, &[2, 2], BufferRole::Step);
    let z = plan.buffer("z", DType::F32, &[2, 2], BufferRole::Step);
    plan.kernel("first", "k.tile", "by_columns", &[]).read("w", w).write("y", y).add();
    plan.kernel("second", "k.tile", "by_rows", &[]).read("w", w).write("y", z).add();
    plan.finish()
}

fn p0109_passes() -> Plan {
    let mut plan = PlanBuilder::new(1);
    let w = plan.buffer("w", DType::F32, &[2, 2], BufferRole::Weight);
    let y = plan.buffer("y", DType::F32, &[2, 2], BufferRole::Step);
    let z = plan.buffer("z", DType::F32, &[2, 2], BufferRole::Step);
    plan.kernel("first", "k.tile", "by_columns", &[]).read("w", w).write("y", y).add();
    plan.kernel("second", "k.tile", "by_columns", &[]).read("w", w).write("y", z).add();
    plan.finish()
}

fn p0110_fails() -> Plan {
    let mut plan = PlanBuilder::new(1);
    let x = plan.buffer("x", DType::F32, &[4], BufferRole::Host { promise: None });
    let s = plan.buffer("s", DType::F32, &[4], BufferRole::Step);
    let y = plan.buffer("y", DType::F32, &[4], BufferRole::Step);
    plan.kernel("writes", "k.tile", "scale", &[]).read("x", x).write("y", s).add();
    plan.kernel("reads", "k.tile", "peek", &[]).read("s", s).read("x", x).write("y", y).add();
    plan.finish()
}

fn p0110_passes() -> Plan {
    let mut plan = PlanBuilder::new(1);
    let x = plan.buffer("x", DType::F32, &[4], BufferRole::Host { promise: None });
    let s = plan.buffer("s", DType::F32, &[4], BufferRole::Step);
    let y = plan.buffer("y", DType::F32, &[4], BufferRole::Step);
    let z = plan.buffer("z", DType::F32, &[4], BufferRole::Step);
    plan.kernel("writes", "k.tile", "scale", &[]).read("x", x).write("y", s).add();
    plan.kernel("between", "k.tile", "scale", &[]).read("x", x).write("y", y).add();
    plan.kernel("reads", "k.tile", "peek", &[]).read("s", s).read("x", y).write("y", z).add();
    plan.finish()
}

fn p0111_fails() -> Plan {
    let mut plan = PlanBuilder::new(1);
    let x = plan.buffer("x", DType::F32, &[4], BufferRole::Host { promise: None });
    let a = plan.buffer("a", DType::F32, &[4], BufferRole::Step);
    let b = plan.buffer("b", DType::F32, &[4], BufferRole::Step);
    let c = plan.buffer("c", DType::F32, &[4], BufferRole::Step);
    plan.kernel("first", "k.tile", "scale", &[]).read("x", x).write("y", a).add();
    let node = plan.kernel("second", "k.tile", "scale_some", &[]).read("x", x).write("y", b);
    node.scalar("n", Scalar::I32(1)).add();
    plan.kernel("third", "k.tile", "scale", &[]).read("x", a).write("y", c).add();
    plan.finish()
}

fn p0111_passes() -> Plan {
    let mut plan = PlanBuilder::new(1);
    let x = plan.buffer("x", DType::F32, &[4], BufferRole::Host { promise: None });
    let a = plan.buffer("a", DType::F32, &[4], BufferRole::Step);
    let b = plan.buffer("b", DType::F32, &[4], BufferRole::Step);
    let c = plan.buffer("c", DType::F32, &[4], BufferRole::Step);
    plan.kernel("first", "k.tile", "scale", &[]).read("x", x).write("y", a).add();
    plan.kernel("second", "k.tile", "scale", &[]).read("x", x).write("y", b).add();
    plan.kernel("third", "k.tile", "scale", &[]).read("x", a).write("y", c).add();
    plan.finish()
}

fn p0113_fails() -> Plan {
    let mut plan = PlanBuilder::new(2);
    let x = plan.buffer("x", DType::F32, &[4], BufferRole::Host { promise: None });
    let y = plan.buffer("y", DType::F32, &[4], BufferRole::Step);
    let inbox = plan.buffer("inbox", DType::F32, &[4, 1, 4], BufferRole::Symmetric); // a ring of four
    let ready = plan.buffer("ready", DType::U32, &[1, 2], BufferRole::Symmetric);
    let seq = plan.buffer("seq", DType::U32, &[1], BufferRole::State);
    plan.kernel("sum", "k.tile", "push", &[])
        .read("x", x)
        .write("y", y)
        .arg("inbox", Access::Peer, inbox)
        .arg("ready", Access::Peer, ready)
        .update("seq", seq)
        .of_ranks()
        .add();
    plan.finish()
}

fn p0113_passes() -> Plan {
    let mut plan = PlanBuilder::new(2);
    let x = plan.buffer("x", DType::F32, &[4], BufferRole::Host { promise: None });
    let y = plan.buffer("y", DType::F32, &[4], BufferRole::Step);
    let inbox = plan.buffer("inbox", DType::F32, &[2, 2, 4], BufferRole::Symmetric);
    let ready = plan.buffer("ready", DType::U32, &[1, 2], BufferRole::Symmetric);
    let seq = plan.buffer("seq", DType::U32, &[1], BufferRole::State);
    plan.kernel("sum", "k.tile", "push", &[])
        .read("x", x)
        .write("y", y)
        .arg("inbox", Access::Peer, inbox)
        .arg("ready", Access::Peer, ready)
        .update("seq", seq)
        .of_ranks()
        .add();
    plan.finish()
}

fn p0114_fails() -> Plan {
    let mut plan = PlanBuilder::new(2);
    let x = plan.buffer("x", DType::F32, &[4], BufferRole::Host { promise: None });
    let y = plan.buffer("y", DType::F32, &[4], BufferRole::Step);
    let inbox = plan.buffer("inbox", DType::F32, &[2, 2, 4], BufferRole::Symmetric);
    let ready = plan.buffer("ready", DType::U32, &[1, 2], BufferRole::Symmetric);
    let seq = plan.buffer("seq", DType::U32, &[1], BufferRole::State);
    let inbox_2 = plan.buffer("inbox_2", DType::F32, &[2, 2, 4], BufferRole::Symmetric);
    let ready_2 = plan.buffer("ready_2", DType::U32, &[1, 2], BufferRole::Symmetric);
    plan.kernel("first", "k.tile", "push", &[])
        .read("x", x)
        .write("y", y)
        .arg("inbox", Access::Peer, inbox)
        .arg("ready", Access::Peer, ready)
        .update("seq", seq)
        .of_ranks()
        .add();
    plan.kernel("second", "k.tile", "push", &[])
        .read("x", x)
        .write("y", y)
        .arg("inbox", Access::Peer, inbox_2)
        .arg("ready", Access::Peer, ready_2)
        .update("seq", seq)
        .of_ranks()
        .add();
    plan.finish()
}

fn p0114_passes() -> Plan {
    let mut plan = PlanBuilder::new(2);
    let x = plan.buffer("x", DType::F32, &[4], BufferRole::Host { promise: None });
    let y = plan.buffer("y", DType::F32, &[4], BufferRole::Step);
    let inbox = plan.buffer("inbox", DType::F32, &[2, 2, 4], BufferRole::Symmetric);
    let ready = plan.buffer("ready", DType::U32, &[1, 2], BufferRole::Symmetric);
    let seq = plan.buffer("seq", DType::U32, &[1], BufferRole::State);
    let inbox_2 = plan.buffer("inbox_2", DType::F32, &[2, 2, 4], BufferRole::Symmetric);
    let ready_2 = plan.buffer("ready_2", DType::U32, &[1, 2], BufferRole::Symmetric);
    let seq_2 = plan.buffer("seq_2", DType::U32, &[1], BufferRole::State);
    plan.kernel("first", "k.tile", "push", &[])
        .read("x", x)
        .write("y", y)
        .arg("inbox", Access::Peer, inbox)
        .arg("ready", Access::Peer, ready)
        .update("seq", seq)
        .of_ranks()
        .add();
    plan.kernel("second", "k.tile", "push", &[])
        .read("x", x)
        .write("y", y)
        .arg("inbox", Access::Peer, inbox_2)
        .arg("ready", Access::Peer, ready_2)
        .update("seq", seq_2)
        .of_ranks()
        .add();
    plan.finish()
}

fn p0115_fails() -> Plan {
    let mut plan = PlanBuilder::new(2);
    let x = plan.buffer("x", DType::F32, &[4], BufferRole::Host { promise: None });
    let y = plan.buffer("y", DType::F32, &[4], BufferRole::Step);
    let z = plan.buffer("z", DType::F32, &[4], BufferRole::Step);
    let node = plan.kernel("fill", "k.tile", "some", &[]).read("x", x).write("y", y);
    node.scalar("rows", Scalar::I32(3)).add();
    plan.all_reduce("sum", y, z);
    plan.finish()
}

fn p0115_passes() -> Plan {
    let mut plan = PlanBuilder::new(2);
    let x = plan.buffer("x", DType::F32, &[4], BufferRole::Host { promise: None });
    let y = plan.buffer("y", DType::F32, &[4], BufferRole::Step);
    let z = plan.buffer("z", DType::F32, &[4], BufferRole::Step);
    let node = plan.kernel("fill", "k.tile", "some", &[]).read("x", x).write("y", y);
    node.scalar("rows", Scalar::I32(4)).add();
    plan.all_reduce("sum", y, z);
    plan.finish()
}

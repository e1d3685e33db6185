//! The check of our own builds: the order that the compiler proved, found again in what it emitted.
//!
//! Assumes that every operation has a `.loc` line of its own in the PTX, and that the cubin was made with
//! line information. Guarantees for a clean report: no load is non-coherent; every wait and launch signal
//! is still there; every load that has to follow a wait follows that one on every path, in PTX and in the
//! machine code; and every load of static data that stands before the wait still does.

use kernel_abi::Access;

use crate::analysis::{Facts, Said, analyse};
use crate::audit::{remark, spot, total, unreadable};
use crate::code::Code;
use crate::graph::NodeSet;
use crate::kernel::{Kernel, Order, Role};
use crate::moved::unwaited;
use crate::ptx::Module;
use crate::report::{Item, Report, SassSpot, Verdict};
use crate::rules::{Judgement, hex};
use crate::sass;
use crate::sass::lower::Lines;
use crate::toolchain::Toolchain;

/// What the compiler proved of the kernels of one PTX module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Obligations {
    /// One entry a kernel.
    pub kernels: Vec<KernelObligations>,
}

/// What the compiler proved of one kernel; lines are `.loc` lines, one for each operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelObligations {
    /// Symbol of the kernel.
    pub kernel: String,
    /// Name and class of each parameter, in the order of the PTX.
    pub params: Vec<(String, Access)>,
    /// Loads that every path reaches through a `grid_wait` only.
    pub after: Vec<LoadLine>,
    /// Loads of static data that no path reaches through a `grid_wait`.
    pub before: Vec<LoadLine>,
    /// The `grid_wait` operations.
    pub waits: Vec<u32>,
    /// The `grid_launch` operations.
    pub launches: Vec<u32>,
    /// The `arrive.last` operations: a fence, an atomic, a fence.
    pub arrivals: Vec<u32>,
    /// Atomic operations whose order with others does not matter.
    pub updates: Vec<u32>,
    /// The signals to other ranks or CTAs: a reduction with release.
    pub signals: Vec<u32>,
    /// The waits for signals of other ranks or CTAs: a load with acquire that its own branch repeats.
    pub awaits: Vec<u32>,
    /// The meetings of the CTAs of a cluster.
    pub meetings: Vec<u32>,
    /// Loads of what others write, with the waits and meetings that every path to them passes.
    pub behind: Vec<Behind>,
    /// Loads and stores at multicast addresses.
    pub multicast: Vec<u32>,
}

/// A load operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadLine {
    /// Its line.
    pub line: u32,
    /// The parameter that it reads, by its place in `params`.
    pub param: u32,
}

/// A load operation that has to follow others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behind {
    /// Its line.
    pub line: u32,
    /// The parameter that it reads, by its place in `params`; none for shared memory.
    pub param: Option<u32>,
    /// The lines of the waits for signals and of the meetings of the cluster ahead of it.
    pub waits: Vec<u32>,
}

/// A pass of the audit of our own builds.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// Name.
    pub name: &'static str,
    /// What it looks at: `ptx` or `sass`.
    pub stage: &'static str,
    /// Codes that it reports.
    pub codes: &'static [&'static str],
    /// What a clean result shows.
    pub proves: &'static str,
}

/// All passes, in order.
pub const PASSES: &[Pass] = &[
    Pass {
        name: "ptx-coherent",
        stage: "ptx",
        codes: &["E0901", "E0904"],
        proves: "no load is non-coherent, and every instruction that touches memory is understood (R12)",
    },
    Pass {
        name: "ptx-atomics",
        stage: "ptx",
        codes: &["E0907"],
        proves: "every atomic on global memory says its order and scope (R12)",
    },
    Pass {
        name: "ptx-multicast",
        stage: "ptx",
        codes: &["E0906", "E0909"],
        proves: "multicast addresses are touched by `multimem` alone, and fences order that with other accesses (R12)",
    },
    Pass {
        name: "ptx-order",
        stage: "ptx",
        codes: &["E0903", "E0905", "E0906"],
        proves: "waits and launch signals are there, and loads stand on their side of them (R12)",
    },
    Pass {
        name: "sass-coherent",
        stage: "sass",
        codes: &["E0901", "E0904", "E0908"],
        proves: "no machine load is non-coherent (R12)",
    },
    Pass {
        name: "sass-order",
        stage: "sass",
        codes: &["E0902", "E0903", "E0906"],
        proves: "the assembler kept waits and launch signals, and moved no load across a wait (R12)",
    },
];

/// One stage of a kernel under check.
struct Stage<'a> {
    kernel: &'a Kernel,
    facts: &'a Facts,
    duties: &'a KernelObligations,
    /// The `.loc` line of each node.
    lines: Vec<u32>,
    is_machine: bool,
}

impl Stage<'_> {
    fn place(&self) -> &'static str {
        if self.is_machine { "machine code" } else { "PTX" }
    }
}

/// Checks PTX and the cubin that was made of it against what the compiler proved.
pub fn check_build(
    ptx: &str,
    cubin: &[u8],
    obligations: &Obligations,
    tools: &dyn Toolchain,
) -> Report {
    let module = match crate::ptx::parse::parse(ptx) {
        Ok(module) => module,
        Err(error) => return unreadable("", format!("the PTX cannot be read: {error}")),
    };
    let Some(info) = sass::elf::read(cubin) else {
        return unreadable("", "the machine code is no cubin".to_owned());
    };
    let code = match tools.disassemble(cubin) {
        Ok(text) => sass::parse::parse(&text),
        Err(error) => {
            let mut report = unreadable("", error.to_string());
            report.notes[0].code = Code::Tool;
            return report;
        }
    };
    let mut judgements = Vec::new();
    let mut missing = Vec::new();
    for duties in &obligations.kernels {
        let name = duties.kernel.as_str();
        let function = module.functions.iter().find(|f| f.is_entry && f.name == name);
        let section = code.sections.iter().position(|section| section.name == name);
        let (Some(function), Some(section)) = (function, section) else {
            missing.push(remark(
                Code::NotUnderstood,
                name,
                "the kernel is not in the PTX and in the machine code".to_owned(),
            ));
            continue;
        };
        let mut kernel = crate::ptx::lower::lower(&module, function);
        let pointers = (0..duties.params.len() as u32).collect();
        let declared = Said { pointers, ..Said::default() };
        let facts = analyse(&mut kernel, &declared);
        let mut machine = sass::lower::lower(&code, section, &info, Lines::Any);
        let machine_facts = analyse(&mut machine, &declared);
        let lines = |id: u32| module.places.get(id as usize).map_or(0, |place| place.loc);
        let ptx_stage = Stage {
            lines: kernel.places.iter().map(|place| lines(place.id)).collect(),
            kernel: &kernel,
            facts: &facts,
            duties,
            is_machine: false,
        };
        let machine_stage = Stage {
            lines: machine.places.iter().map(|place| place.id).collect(),
            kernel: &machine,
            facts: &machine_facts,
            duties,
            is_machine: true,
        };
        let mut judgement = Judgement::default();
        let source = Source { text: ptx, module: &module, ptx: &ptx_stage };
        coherence(&source, &ptx_stage, &mut judgement);
        atomics(&source, function, &mut judgement);
        multicast(&source, function, &mut judgement);
        order(&source, &ptx_stage, &mut judgement);
        coherence(&source, &machine_stage, &mut judgement);
        order(&source, &machine_stage, &mut judgement);
        gaps(&source, &ptx_stage, &mut judgement);
        gaps(&source, &machine_stage, &mut judgement);
        judgements.push(judgement);
    }
    let mut report = total(judgements);
    if !missing.is_empty() {
        report.notes.extend(missing);
        report.verdict = Verdict::NotJudged;
    }
    report
}

/// Where the words of a report come from.
struct Source<'a> {
    text: &'a str,
    module: &'a Module,
    ptx: &'a Stage<'a>,
}

impl Source<'_> {
    /// An item on an operation; the PTX instruction is one of the same line.
    fn item(&self, code: Code, stage: &Stage<'_>, line: u32, message: String) -> Item {
        let kernel = &self.ptx.kernel;
        let of_line = |wanted: &dyn Fn(&Role) -> bool| {
            (0..self.ptx.lines.len()).find(|&node| {
                self.ptx.lines[node] == line && line > 0 && wanted(&kernel.roles[node])
            })
        };
        let node = of_line(&|role| !matches!(role, Role::None)).or_else(|| of_line(&|_| true));
        let wait = kernel.roles.iter().position(|role| matches!(role, Role::GridWait));
        let of_node = |node: usize| spot(self.text, self.module, kernel.places[node].id);
        Item {
            code,
            kernel: stage.duties.kernel.clone(),
            param: None,
            ptx: node.map(of_node),
            wait: wait.map(of_node),
            sass: None,
            message,
            help: String::new(),
        }
    }
}

fn name(duties: &KernelObligations, param: u32) -> Option<String> {
    duties.params.get(param as usize).map(|(name, _)| name.clone())
}

fn machine_spot(stage: &Stage<'_>, load: u32, waits: &[u32]) -> Option<SassSpot> {
    let address = |node: u32| hex(stage.kernel.places[node as usize].address);
    stage
        .is_machine
        .then(|| SassSpot { load: address(load), wait: waits.first().map(|&wait| address(wait)) })
}

/// No load is non-coherent.
fn coherence(source: &Source<'_>, stage: &Stage<'_>, judgement: &mut Judgement) {
    for read in stage.facts.reads.iter().filter(|read| read.noncoherent) {
        let line = stage.lines[read.node as usize];
        let message = format!("a load is non-coherent in the {}", stage.place());
        let mut item = source.item(Code::NonCoherent, stage, line, message);
        item.param = read.owners.params.first().and_then(|&param| name(stage.duties, param));
        item.sass = machine_spot(stage, read.node, &grid_waits(stage));
        item.help =
            "the compiler emits plain loads only; this is a fault of the compiler".to_owned();
        judgement.findings.push(item);
    }
}

/// Every atomic on global memory says order and scope.
fn atomics(source: &Source<'_>, function: &crate::ptx::Function, judgement: &mut Judgement) {
    for instruction in function.body.iter().flat_map(|body| &body.instructions) {
        let is_atomic = matches!(instruction.opcode.as_str(), "atom" | "red");
        let says = |names: &[&str]| {
            instruction.modifiers.iter().any(|modifier| names.contains(&modifier.as_str()))
        };
        let on_chip = instruction.modifiers.iter().any(|m| m.starts_with("shared"));
        let ordered = says(&["relaxed", "acquire", "release", "acq_rel"]);
        let scoped = says(&["cta", "cluster", "gpu", "sys"]);
        if is_atomic && !on_chip && !(ordered && scoped) {
            let mut item = source.item(
                Code::BareAtomic,
                source.ptx,
                0,
                "an atomic on global memory does not say its order and scope".to_owned(),
            );
            item.ptx = Some(spot(source.text, source.module, instruction.id));
            item.wait = None;
            item.help = "an atomic without them is relaxed and of gpu scope".to_owned();
            judgement.findings.push(item);
        }
    }
}

/// Multicast addresses are touched by `multimem` alone, and each signal and wait has a fence between those and others.
fn multicast(source: &Source<'_>, function: &crate::ptx::Function, judgement: &mut Judgement) {
    let duties = source.ptx.duties;
    let line = |id: u32| source.module.places.get(id as usize).map_or(0, |place| place.loc);
    let mut fenced = Vec::new();
    for instruction in function.body.iter().flat_map(|body| &body.instructions) {
        let (at, has) =
            (line(instruction.id), |word: &str| instruction.modifiers.iter().any(|m| m == word));
        let is_multicast = instruction.opcode == "multimem";
        if instruction.opcode == "fence" && has("alias") {
            fenced.push(at);
        }
        let is_plain =
            matches!(instruction.opcode.as_str(), "ld" | "st" | "atom" | "red") && has("global");
        let message = match (is_multicast, duties.multicast.contains(&at)) {
            (true, false) => "a `multimem` that the kernel does not have",
            (false, true) if is_plain => "an ordinary access at a multicast address",
            (true, true) | (false, _) => continue,
        };
        let mut item =
            source.item(Code::Multicast, source.ptx, at, format!("{message} is in the PTX"));
        item.ptx = Some(spot(source.text, source.module, instruction.id));
        item.wait = None;
        judgement.findings.push(item);
    }
    if duties.multicast.is_empty() {
        return;
    }
    for &at in duties.signals.iter().chain(&duties.awaits).filter(|at| !fenced.contains(at)) {
        let message =
            "the fence between multicast and other addresses is not in the PTX".to_owned();
        judgement.findings.push(source.item(Code::MissingSync, source.ptx, at, message));
    }
}

fn grid_waits(stage: &Stage<'_>) -> Vec<u32> {
    nodes(stage, |role| matches!(role, Role::GridWait), None)
}

/// Live nodes of a role, on one line or on any.
fn nodes(stage: &Stage<'_>, wanted: impl Fn(&Role) -> bool, line: Option<u32>) -> Vec<u32> {
    (0..stage.lines.len() as u32)
        .filter(|&node| {
            stage.facts.live.contains(node)
                && wanted(&stage.kernel.roles[node as usize])
                && line.is_none_or(|line| stage.lines[node as usize] == line)
        })
        .collect()
}

/// What stands for the operation on one of `lines`. Equal ones in both arms of a choice become one ahead of it, on no line.
fn merged(
    source: &Source<'_>,
    stage: &Stage<'_>,
    (lines, line): (&[u32], u32),
    wanted: impl Fn(&Role) -> bool + Copy,
) -> Vec<u32> {
    let own = nodes(stage, wanted, Some(line));
    if !own.is_empty() {
        return own;
    }
    let is_gone = |line: u32| nodes(source.ptx, wanted, Some(line)).is_empty();
    let is_merged = is_gone(line) && lines.iter().filter(|&&line| is_gone(line)).count() > 1;
    let without = nodes(source.ptx, wanted, Some(0));
    if !is_merged || without.is_empty() {
        return Vec::new();
    }
    if !stage.is_machine {
        return without;
    }
    // In the machine code it has the line of whatever comes before it.
    let all = nodes(stage, wanted, None);
    if all.len() < nodes(source.ptx, wanted, None).len() { Vec::new() } else { all }
}

/// A meeting of the CTAs of a cluster.
fn is_meeting(role: &Role) -> bool {
    matches!(role, Role::Barrier { waits: true, cluster: true })
}

/// The operations on `lines` are there, and no others of their kind.
fn signals(
    source: &Source<'_>,
    stage: &Stage<'_>,
    judgement: &mut Judgement,
    (lines, what): (&[u32], &str),
    wanted: impl Fn(&Role) -> bool + Copy,
) {
    let place = stage.place();
    for &line in lines {
        if merged(source, stage, (lines, line), wanted).is_empty() {
            let message = format!("`{what}` is not in the {place}");
            judgement.findings.push(source.item(Code::MissingSync, stage, line, message));
        }
    }
    if lines.is_empty() && !nodes(stage, wanted, None).is_empty() {
        let message = format!("the {place} holds a `{what}` that the kernel does not have");
        judgement.findings.push(source.item(Code::MissingSync, stage, 0, message));
    }
}

/// The part of an arrival that is missing: a fence ahead of the atomic, the atomic, a fence behind it.
fn arrival(stage: &Stage<'_>, line: u32) -> Option<&'static str> {
    let atomics = nodes(stage, |role| matches!(role, Role::Atomic { .. }), Some(line));
    if atomics.is_empty() {
        return Some("the atomic");
    }
    let fences = nodes(stage, |role| matches!(role, Role::Fence), Some(line));
    let graph = &stage.kernel.program.graph;
    let ahead = fences.iter().any(|&fence| {
        let reached = graph.reach_after(&[fence], |_, _| true);
        atomics.iter().any(|&atomic| reached.contains(atomic))
    });
    let behind = graph.reach_after(&atomics, |_, _| true);
    match (ahead, fences.iter().any(|&fence| behind.contains(fence))) {
        (false, _) => Some("the fence ahead of the atomic"),
        (true, false) => Some("the fence behind the atomic"),
        (true, true) => None,
    }
}

/// A load with acquire; in the machine code some order is what is left of it.
fn is_await(role: &Role) -> bool {
    matches!(role, Role::Read { order: Order::Acquire | Order::Strong, .. })
}

/// Signals, waits for those of others and meetings of the cluster are there.
fn ranks(source: &Source<'_>, stage: &Stage<'_>, judgement: &mut Judgement) {
    let is_signal = |role: &Role| matches!(role, Role::Atomic { .. } | Role::Touch { .. });
    let duties = stage.duties;
    let mut missing = Vec::new();
    for (lines, what) in [(&duties.signals, "a signal"), (&duties.updates, "an atomic")] {
        let gone = lines.iter().filter(|&&line| nodes(stage, is_signal, Some(line)).is_empty());
        missing.extend(gone.map(|&line| (line, what)));
    }
    let gone = duties.awaits.iter().filter(|&&line| nodes(stage, is_await, Some(line)).is_empty());
    missing.extend(gone.map(|&line| (line, "a wait for signals")));
    let is_gone =
        |line: u32| merged(source, stage, (&duties.meetings, line), is_meeting).is_empty();
    let gone = duties.meetings.iter().filter(|&&line| is_gone(line));
    missing.extend(gone.map(|&line| (line, "a meeting of the cluster")));
    for (line, what) in missing {
        let message = format!("{what} is not in the {}", stage.place());
        judgement.findings.push(source.item(Code::MissingSync, stage, line, message));
    }
}

/// What others write is loaded behind each wait and meeting that the source has ahead of the load.
fn behind(source: &Source<'_>, stage: &Stage<'_>, judgement: &mut Judgement) {
    let is_load =
        |role: &Role| matches!(role, Role::Read { .. } | Role::Texture { .. } | Role::SharedRead);
    let place = stage.place();
    for duty in &stage.duties.behind {
        let mut loads = nodes(stage, is_load, Some(duty.line));
        let is_merged = stage.is_machine
            && loads.is_empty()
            && !nodes(source.ptx, is_load, Some(duty.line)).is_empty();
        if let (true, Some(param)) = (is_merged, duty.param) {
            // The other load may be any of that buffer.
            let all = stage.facts.reads.iter().filter(|read| read.owners.params.contains(&param));
            loads.extend(all.map(|read| read.node));
        }
        for &wait in &duty.waits {
            // The lanes that wait meet the others in a barrier, and a load stands behind that. A thread that waits
            // alone meets nobody.
            let is_barrier = |role: &Role| matches!(role, Role::Barrier { waits: true, .. });
            let is_cluster = stage.duties.meetings.contains(&wait);
            // A launch without clusters meets at another instruction of the line.
            let mut over = nodes(stage, is_barrier, Some(wait));
            if over.is_empty() && is_cluster {
                over = merged(source, stage, (&stage.duties.meetings, wait), is_meeting);
            }
            if over.is_empty() {
                over = nodes(stage, is_await, Some(wait));
            }
            let Some(load) = unwaited(stage.kernel, &over, &loads) else { continue };
            let what = if is_cluster { "sync cluster" } else { "await" };
            let code = if stage.is_machine { Code::Moved } else { Code::Early };
            let message =
                format!("a load that has to follow `{what}` is ahead of it in the {place}");
            let mut item = source.item(code, stage, duty.line, message);
            item.param = duty.param.and_then(|param| name(stage.duties, param));
            item.sass = machine_spot(stage, load, &over);
            judgement.findings.push(item);
            break;
        }
    }
}

/// Waits and signals are there, and loads are on their side of the waits.
fn order(source: &Source<'_>, stage: &Stage<'_>, judgement: &mut Judgement) {
    let place = stage.place();
    let is_load = |role: &Role| matches!(role, Role::Read { .. } | Role::Texture { .. });
    let is_wait = |role: &Role| matches!(role, Role::GridWait);
    let is_launch = |role: &Role| matches!(role, Role::GridLaunch);
    signals(source, stage, judgement, (&stage.duties.waits, "grid_wait"), is_wait);
    signals(source, stage, judgement, (&stage.duties.launches, "grid_launch"), is_launch);
    for &line in &stage.duties.arrivals {
        if let Some(missing) = arrival(stage, line) {
            let message = format!("{missing} of `arrive.last` is not in the {place}");
            judgement.findings.push(source.item(Code::MissingSync, stage, line, message));
        }
    }
    ranks(source, stage, judgement);
    behind(source, stage, judgement);
    let waits = grid_waits(stage);
    for duty in &stage.duties.after {
        let loads = nodes(stage, is_load, Some(duty.line));
        if let Some(load) = unwaited(stage.kernel, &waits, &loads) {
            let code = if stage.is_machine { Code::Moved } else { Code::Early };
            let message =
                format!("a load that has to follow `grid_wait` is ahead of it in the {place}");
            let mut item = source.item(code, stage, duty.line, message);
            item.param = name(stage.duties, duty.param);
            item.sass = machine_spot(stage, load, &waits);
            judgement.findings.push(item);
        }
    }
    let mut behind = NodeSet::new(stage.lines.len());
    for &wait in &waits {
        behind.join(&stage.kernel.program.graph.reach_after(&[wait], |_, _| true));
    }
    for duty in &stage.duties.before {
        let loads = nodes(stage, is_load, Some(duty.line));
        if let Some(&load) = loads.iter().find(|&&load| behind.contains(load)) {
            let message = format!("a load of static data sank below `grid_wait` in the {place}");
            let mut item = source.item(Code::Sunk, stage, duty.line, message);
            item.param = name(stage.duties, duty.param);
            item.sass = machine_spot(stage, load, &waits);
            judgement.findings.push(item);
        }
        let emitted = !nodes(source.ptx, is_load, Some(duty.line)).is_empty();
        if stage.is_machine && loads.is_empty() && emitted {
            let message = "a load of static data before `grid_wait` is not in the machine code";
            let mut item = source.item(Code::Sunk, stage, duty.line, message.to_owned());
            item.param = name(stage.duties, duty.param);
            judgement.notes.push(item);
        }
    }
}

/// What was not understood leaves the kernel not judged.
fn gaps(source: &Source<'_>, stage: &Stage<'_>, judgement: &mut Judgement) {
    for gap in &stage.kernel.gaps {
        if gap.node.is_some_and(|node| !stage.facts.live.contains(node)) {
            continue;
        }
        judgement.open = true;
        let line = gap.node.map_or(0, |node| stage.lines[node as usize]);
        let mut item = source.item(Code::NotUnderstood, stage, line, gap.message.clone());
        item.sass = gap.node.and_then(|node| machine_spot(stage, node, &[]));
        judgement.notes.push(item);
    }
}

//! The passes over the device level, on every kernel of the suite: silent on what the expansion made, and loud when
//! one of its statements is dropped, doubled, swapped with the next one or moved out of its block.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]
#![expect(clippy::disallowed_methods, reason = "the files of the suite are read here")]

#[path = "support/suite.rs"]
mod support;

use std::collections::BTreeMap;

use kernel_abi::numeric::random;
use kernel_dsl::diag::Severity;
use kernel_dsl::source::{SourceMap, Span};
use kernel_ir::device::{
    DeviceKernel, DeviceOp, DevicePipe, DeviceStmt, Place, TensorOp, WarpgroupOp,
};
use kernel_ir::kernel::{Kernel, Outgoing, Stmt, StmtKind};
use kernel_ir::smem_plan::SmemPlan;
use kernel_ir::verify::{self, Verified};

struct Case {
    name: String,
    sources: SourceMap,
    source: Verified<Kernel>,
    device: DeviceKernel,
}

/// The kernels of some folders of the suite that the kernel level accepts.
fn suite(folders: &[&str]) -> Vec<Case> {
    let mut found = Vec::new();
    for path in support::paths(folders) {
        let file = support::file(&path);
        for (name, kernel) in file.kernels(&path) {
            let Some(source) = verify::kernel(kernel).verified else { continue };
            let Ok(device) = kernel_ir::expand::expand(&source) else { continue };
            found.push(Case { name, sources: file.sources.clone(), source, device });
        }
    }
    found
}

/// What the passes over the device level say.
fn findings(case: &Case, device: DeviceKernel) -> Vec<String> {
    let outcome = verify::device(device, &case.source);
    let errors = outcome.diagnostics.iter().filter(|found| found.severity == Severity::Error);
    errors
        .map(|found| {
            let labels = found.labels.iter().map(|label| {
                let line = case.sources.start(label.span).line;
                format!("{line}: {} ({})", case.sources.snippet(label.span), label.message)
            });
            let labels: Vec<_> = labels.collect();
            format!("{} {} {labels:?} {:?}", found.code.name(), found.message, found.notes)
        })
        .collect()
}

#[test]
fn what_the_expansion_makes_is_accepted() {
    let folders =
        ["verify", "patterns", "ops", "run", "overlap", "../ranks", "../hardware", "../gpu"];
    let mut faults = Vec::new();
    let cases = suite(&folders);
    for case in &cases {
        let found = findings(case, case.device.clone());
        faults.extend(found.into_iter().map(|found| format!("{}: {found}", case.name)));
    }
    assert!(cases.len() > 500, "{}", cases.len());
    assert!(faults.is_empty(), "{}:\n{}", faults.len(), faults.join("\n"));
}

/// What is done to one statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    /// It is gone.
    Drop,
    /// It is there twice.
    Double,
    /// It stands behind the next one that counts in its block.
    Swap,
    /// It stands ahead of the loop, choice or role around it.
    Out,
}

/// Where a statement stands: places from the outermost block on, each with the arm that leads inwards.
type Way = Vec<(usize, usize)>;

fn arms(op: &mut DeviceOp) -> Vec<&mut Vec<DeviceStmt>> {
    match op {
        DeviceOp::For { body, .. }
        | DeviceOp::Repeat { body, .. }
        | DeviceOp::Role { body, .. } => vec![body],
        DeviceOp::If { then_body, else_body, .. } => vec![then_body, else_body],
        _ => Vec::new(),
    }
}

fn inner(op: &DeviceOp) -> Vec<&DeviceStmt> {
    match op {
        DeviceOp::For { body, .. }
        | DeviceOp::Repeat { body, .. }
        | DeviceOp::Role { body, .. } => body.iter().collect(),
        DeviceOp::If { then_body, else_body, .. } => then_body.iter().chain(else_body).collect(),
        _ => Vec::new(),
    }
}

/// The name of what orders or touches memory; nothing where a statement does so to registers alone.
fn kind(op: &DeviceOp) -> Option<String> {
    let word =
        |text: String| -> String { text.chars().take_while(|c| c.is_alphanumeric()).collect() };
    let name = word(format!("{op:?}"));
    Some(match op {
        DeviceOp::Load { place, .. }
        | DeviceOp::LoadMatrices { place, .. }
        | DeviceOp::Store { place, .. }
        | DeviceOp::StoreMatrices { place, .. } => format!("{name} {}", word(format!("{place:?}"))),
        DeviceOp::Pipe(pipe) => format!("{name} {}", word(format!("{pipe:?}"))),
        DeviceOp::Warpgroup(op) => format!("{name} {}", word(format!("{op:?}"))),
        DeviceOp::Tensor(op) => format!("{name} {}", word(format!("{op:?}"))),
        DeviceOp::Atomic { .. }
        | DeviceOp::Prefetch { .. }
        | DeviceOp::CopyAsync { .. }
        | DeviceOp::CommitGroup
        | DeviceOp::WaitGroup { .. }
        | DeviceOp::Barrier
        | DeviceOp::ClusterBarrier
        | DeviceOp::Signal { .. }
        | DeviceOp::Await { .. }
        | DeviceOp::RoleBarrier { .. }
        | DeviceOp::Role { .. }
        | DeviceOp::Fence
        | DeviceOp::GridWait
        | DeviceOp::GridLaunch => name,
        DeviceOp::For { .. } | DeviceOp::Repeat { .. } | DeviceOp::If { .. } => {
            inner(op).into_iter().find_map(|stmt| kind(&stmt.op))?;
            name
        }
        _ => return None,
    })
}

fn sites(stmts: &mut [DeviceStmt], outer: &Way, found: &mut Vec<Way>) {
    for (at, stmt) in stmts.iter_mut().enumerate() {
        let way: Way = outer.iter().copied().chain([(at, 0)]).collect();
        if kind(&stmt.op).is_some() {
            found.push(way.clone());
        }
        for (arm, body) in arms(&mut stmt.op).into_iter().enumerate() {
            let mut inner = way.clone();
            inner.last_mut().unwrap().1 = arm;
            sites(body, &inner, found);
        }
    }
}

fn block<'d>(body: &'d mut Vec<DeviceStmt>, way: &[(usize, usize)]) -> &'d mut Vec<DeviceStmt> {
    way.iter().fold(body, |body, &(at, arm)| arms(&mut body[at].op).swap_remove(arm))
}

/// A changed kernel, the statement that it is about, and the one that this has changed places with.
struct Changed {
    device: DeviceKernel,
    own: DeviceStmt,
    next: Option<DeviceStmt>,
}

/// Nothing where the change cannot be made.
fn changed(device: &DeviceKernel, way: &Way, change: Change) -> Option<Changed> {
    let mut device = device.clone();
    let (&(at, _), outer) = way.split_last().unwrap();
    let block_of_it = block(&mut device.body, outer);
    let own = block_of_it[at].clone();
    let mut next = None;
    match change {
        Change::Drop => drop(block_of_it.remove(at)),
        Change::Double => block_of_it.insert(at, own.clone()),
        Change::Swap => {
            let mut behind = at + 1..block_of_it.len();
            let place = behind.find(|&place| kind(&block_of_it[place].op).is_some())?;
            next = Some(block_of_it[place].clone());
            block_of_it.remove(at);
            block_of_it.insert(place, own.clone());
        }
        Change::Out => {
            let (&(around, _), outer) = outer.split_last()?;
            block_of_it.remove(at);
            block(&mut device.body, outer).insert(around, own.clone());
        }
    }
    Some(Changed { device, own, next })
}

fn is_prefetch(op: &DeviceOp) -> bool {
    match op {
        DeviceOp::Prefetch { .. } | DeviceOp::Pipe(DevicePipe::Prefetch { .. }) => true,
        DeviceOp::For { .. } | DeviceOp::If { .. } => {
            let counted = |stmt: &DeviceStmt| kind(&stmt.op).is_some();
            inner(op).into_iter().filter(|stmt| counted(stmt)).all(|stmt| is_prefetch(&stmt.op))
        }
        _ => false,
    }
}

/// A fence that the expansion has put there, of copies and products.
fn is_fence(op: &DeviceOp) -> bool {
    matches!(
        op,
        DeviceOp::Pipe(DevicePipe::Fence)
            | DeviceOp::Warpgroup(WarpgroupOp::ProxyFence)
            | DeviceOp::Tensor(TensorOp::FenceBefore | TensorOp::FenceAfter)
    )
}

fn is_meeting(op: &DeviceOp) -> bool {
    matches!(op, DeviceOp::Barrier | DeviceOp::RoleBarrier { .. })
}

/// Texts of what the author wrote to let threads meet, or to publish.
fn written(stmts: &[Stmt], found: &mut Vec<Span>) {
    for stmt in stmts {
        if let StmtKind::Sync
        | StmtKind::SyncRole
        | StmtKind::Await(_)
        | StmtKind::Outgoing(Outgoing::Publish { .. }) = stmt.kind
        {
            found.push(stmt.span);
        }
        stmt.kind.bodies().into_iter().for_each(|body| written(body, found));
    }
}

/// Why nobody has to see a change.
fn harmless(
    case: &Case,
    change: Change,
    own: &DeviceStmt,
    next: Option<&DeviceStmt>,
) -> Option<&'static str> {
    let both = || [Some(own), next].into_iter().flatten();
    let place = |stmt: &DeviceStmt| case.device.locs[stmt.loc].span;
    let mut authors = Vec::new();
    written(&case.source.body, &mut authors);
    let floor = SmemPlan::of(&case.source).bytes();
    let exchanges = |stmt: &DeviceStmt| match &stmt.op {
        DeviceOp::Load { place: Place::Shared { base, .. }, .. }
        | DeviceOp::Store { place: Place::Shared { base, .. }, .. } => u64::from(*base) >= floor,
        _ => false,
    };
    if both().any(|stmt| is_prefetch(&stmt.op)) {
        return Some("a prefetch brings nothing that a thread reads");
    }
    if change == Change::Double && (is_fence(&own.op) || is_meeting(&own.op)) {
        return Some("one more orders more");
    }
    if next.is_some_and(|next| place(next) == place(own) && kind(&next.op) == kind(&own.op)) {
        return Some("the same operation for one statement of the source");
    }
    if both().any(|stmt| is_fence(&stmt.op)) {
        return Some("nothing needs the fence there");
    }
    if both().any(|stmt| is_meeting(&stmt.op) && !authors.contains(&place(stmt))) {
        return Some("another meeting completes the exchange");
    }
    if both().any(exchanges) {
        return Some("an exchange is in order by its meetings");
    }
    None
}

#[test]
fn a_change_of_one_statement_is_reported() {
    let every: u64 = std::env::var("KERNEL_CHANGES").map_or(8, |n| n.parse().unwrap());
    let mut counts: BTreeMap<Change, [usize; 2]> = BTreeMap::new();
    let mut reasons: BTreeMap<(Change, &str), usize> = BTreeMap::new();
    let mut dropped: BTreeMap<String, bool> = BTreeMap::new();
    let (mut left, mut number) = (Vec::new(), 0u64);
    for mut case in suite(&["ops", "run"]) {
        let mut ways = Vec::new();
        sites(&mut case.device.body, &Vec::new(), &mut ways);
        for way in &ways {
            for change in [Change::Drop, Change::Double, Change::Swap, Change::Out] {
                number += 1;
                // What is dropped is looked at each time, so that each kind is.
                if change != Change::Drop && !random::word(1, 0, number).is_multiple_of(every) {
                    continue;
                }
                let Some(Changed { device, own, next }) = changed(&case.device, way, change) else {
                    continue;
                };
                let count = counts.entry(change).or_default();
                count[0] += 1;
                let is_seen = !findings(&case, device).is_empty();
                if change == Change::Drop {
                    *dropped.entry(kind(&own.op).unwrap()).or_default() |= is_seen;
                }
                if is_seen {
                    count[1] += 1;
                } else if let Some(reason) = harmless(&case, change, &own, next.as_ref()) {
                    *reasons.entry((change, reason)).or_default() += 1;
                } else {
                    let kinds =
                        [Some(&own), next.as_ref()].map(|stmt| stmt.and_then(|s| kind(&s.op)));
                    let line = case.sources.start(case.device.locs[own.loc].span).line;
                    left.push(format!("{change:?} {kinds:?}: {}, line {line}", case.name));
                }
            }
        }
    }
    for (change, [all, seen]) in &counts {
        println!("{change:?}: {all} changes, {seen} reported");
        for ((_, reason), count) in reasons.iter().filter(|((of, _), _)| of == change) {
            println!("    {count} not: {reason}");
        }
    }
    let unseen: Vec<&String> = dropped.iter().filter(|(_, seen)| !**seen).map(|(k, _)| k).collect();
    assert!(left.is_empty(), "{}:\n{}", left.len(), left.join("\n"));
    assert_eq!(unseen, ["Pipe Prefetch", "Prefetch"], "kinds whose loss nobody sees");
}

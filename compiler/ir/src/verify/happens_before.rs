//! The happens-before graph of a kernel, and what it proves of each two statements that touch the same memory.
//!
//! The other passes walk a kernel with a state; this looks at the same kernel in another way, as a graph of events. A
//! proof can be printed: the path of edges by which two accesses are in order, or why they never meet. Where neither is
//! found ([`Verdict::Open`]) and no other pass has spoken of the two, the kernel is refused.
//!
//! *Agents.* Two of each class that may differ: two threads of each role, two CTAs of a cluster, two of the grid, two
//! ranks, and as many launches as the largest ring of ranks has slots and one more. A conflict is between two accesses,
//! and all of one class run one text, so two of each class show every conflict.
//!
//! *Rounds.* A loop is followed for as many rounds as the largest ring has slots, S, and two more. An access in round
//! r and one in round r + d meet in a ring only where d is a multiple of S, and elsewhere in every round. What orders
//! rounds r and r + 1, and r and r + S, orders any two further ones by the same edges again, since the text of a round
//! is the same and indices are sums of the round and what is the same in all of them: the graph is periodic behind its
//! first rounds. Rounds 0 to S + 1 have each distance from 0 to S, from the first round as well as from a later one.
//! Rounds of a loop that are known to be few are followed to the end. Quotients and remainders of numbers that the round
//! says are computed.
//!
//! *Paths.* An event inside of a choice or of a round that may not come is on a path only where one of the two accesses
//! says that it happens, or where both arms of the choice have a path.

mod agents;
mod graph;
mod judge;
mod reuse;
mod text;
mod touch;
mod trace;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use kernel_dsl::diag::{Code, Diagnostic, Fact, Severity, Sink};
use kernel_dsl::source::Span;

use super::scalars::{Facts, Knowledge};
use super::waivers;
use crate::kernel::{
    Extent, Kernel, Op, Outgoing, ParamId, PipeOp, Stmt, StmtKind, ValueId, each_access,
    each_pipe_op,
};
use agents::{Scope, agents};
use trace::Trace;
use words::Ops;

/// What the graph says of two statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Neither an order nor a reason was found.
    Open,
    /// The graph does not have what would decide it.
    LeftOut,
    /// One comes before the other whenever both may touch one element.
    Ordered,
    /// They never touch one element in different hands.
    Apart,
}

impl Verdict {
    /// The word that is printed.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Open => "open",
            Verdict::LeftOut => "left out",
            Verdict::Ordered => "ordered",
            Verdict::Apart => "apart",
        }
    }
}

/// What is said of two statements.
#[derive(Debug, Clone)]
pub struct Proof {
    /// The memory.
    pub memory: String,
    /// Both places; the same twice where one statement meets itself.
    pub places: [Span; 2],
    /// Which agents: threads, CTAs, ranks.
    pub between: &'static str,
    /// What the graph says.
    pub verdict: Verdict,
    /// The path, or the reason.
    pub why: Fact,
    /// What a compiler reports where the two are open: the code, and of whom the accesses are that it names.
    open: Option<Open>,
}

/// Two accesses without an order.
#[derive(Debug, Clone)]
struct Open {
    code: Code,
    /// Where the memory is declared.
    declared: Span,
    /// What is done, where and by whom, the later access first.
    acts: [(String, Span, String); 2],
}

/// All that the graph says of a kernel.
#[derive(Debug, Default)]
pub struct Proofs {
    /// One for each two statements that may conflict, and for each word and ring.
    pub proofs: Vec<Proof>,
    /// What the graph does not have, by name.
    pub left_out: BTreeSet<String>,
    /// Where accesses stand that the graph has.
    pub touched: BTreeSet<Span>,
    graphs: Vec<(Scope, graph::Graph)>,
}

/// What edges rest on: that indices of barriers, signals, arrivals, launches and what several CTAs bring add up.
const TRUSTED: [Code; 7] =
    [Code::E0115, Code::E0117, Code::E0148, Code::E0154, Code::E0156, Code::E0157, Code::E0174];

/// Refuses a kernel of which two accesses are open. It looks at what the other passes accept, and leaves alone what they
/// have found and the author has waived; where that is what edges rest on, all of the kernel.
pub(super) fn check(kernel: &Kernel, sink: &mut Sink) {
    let stops = |found: &Diagnostic| {
        let is_waived = waivers::silencing(&kernel.waivers, found).is_some();
        found.severity == Severity::Error && (!is_waived || TRUSTED.contains(&found.code))
    };
    if sink.diagnostics().iter().any(stops) {
        return;
    }
    let labels = sink.diagnostics().iter().flat_map(|found| &found.labels);
    let told: BTreeSet<Span> = labels.map(|label| label.span).collect();
    for (places, found) in open(kernel) {
        if !places.iter().any(|place| told.contains(place)) {
            sink.push(found);
        }
    }
}

/// What the graph alone says of a kernel: two places each, and the finding.
pub fn open(kernel: &Kernel) -> Vec<([Span; 2], Diagnostic)> {
    let proofs = look(kernel, Wanted::Open).proofs.into_iter();
    let found = |proof: Proof| {
        let found = proof.open?.found(&proof.memory, proof.between);
        Some((proof.places, found))
    };
    proofs.filter_map(found).collect()
}

impl Open {
    fn found(self, memory: &str, between: &str) -> Diagnostic {
        let Open { code, declared, acts: [(later, to, who), (earlier, from, whom)] } = self;
        let message =
            format!("`{memory}`: no path of the happens-before graph orders two accesses");
        let found = Diagnostic::error(code, message).label(to, format!("{later}, {who}"));
        let found = if from == to {
            found.note(format!("the statement meets itself: {whom}"))
        } else {
            found.secondary(from, format!("{earlier}, {whom}"))
        };
        found.secondary(declared, "declared here").note(format!("between {between}"))
    }
}

/// What is made of a kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// Every proof with its path.
    All,
    /// What is open.
    Open,
}

/// Makes the graphs of a kernel and looks at every two statements.
pub fn prove(kernel: &Kernel) -> Proofs {
    look(kernel, Wanted::All)
}

fn look(kernel: &Kernel, wanted: Wanted) -> Proofs {
    let mut survey = Survey {
        known: Knowledge::new(kernel),
        loops_of: BTreeMap::new(),
        ops: Ops::new(),
        loops: Vec::new(),
        facts: Facts::new(),
        written: BTreeSet::new(),
    };
    survey.block(&kernel.body);
    let launches = kernel
        .params
        .iter()
        .filter(|param| param.is_inbox())
        .filter_map(|param| match param.shape.first() {
            Some(Extent::Const(slots)) => Some(slots.saturating_add(1).min(9)),
            Some(Extent::Scalar(_)) | None => None,
        })
        .max()
        .unwrap_or(1);
    let mut proofs = Proofs { left_out: left_out(kernel), ..Proofs::default() };
    for scope in [Scope::Threads, Scope::Cluster, Scope::Grid, Scope::Ranks] {
        let is_there = match scope {
            Scope::Threads => true,
            Scope::Cluster => kernel.launch.cluster_size() > 1,
            Scope::Grid => kernel.launch.ctas() > 1,
            Scope::Ranks => kernel.launch.world.is_some_and(|world| world > 1),
        };
        if !is_there {
            continue;
        }
        let who = agents(kernel, scope, launches);
        let mut trace =
            Trace::of(kernel, &survey.known, scope, who, (&survey.ops, &survey.written));
        words::connect(&mut trace, &survey.ops);
        judge::judge(&trace, (&survey.loops_of, &survey.ops), wanted, &mut proofs);
        proofs.left_out.append(&mut trace.left_out);
        proofs.graphs.push((scope, trace.graph));
    }
    proofs
}

/// What the graphs do not have of this kernel.
fn left_out(kernel: &Kernel) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut add = |what: &str| {
        found.insert(what.to_owned());
    };
    each_pipe_op(&kernel.body, &mut |op, _| match op {
        PipeOp::Send { .. } => add("sends between CTAs (E0156)"),
        PipeOp::Copy { everywhere: true, .. }
        | PipeOp::Release { everywhere: true, .. }
        | PipeOp::Commit { everywhere: true, .. } => add("copies to all CTAs of a cluster (E0157)"),
        _ => {}
    });
    if crate::kernel::first_of_pair(&kernel.body).is_some() {
        add("products of a pair of CTAs (E0148)");
    }
    if kernel.params.iter().any(|param| param.words.is_some()) {
        add("words of counters, epochs and flags as memory (E0115, E0117, E0120)");
    }
    if kernel.uses_multicast() {
        add("multicast addresses (E0137)");
    }
    find_left_out(&kernel.body, &mut add);
    found
}

fn find_left_out(stmts: &[Stmt], add: &mut impl FnMut(&str)) {
    for stmt in stmts {
        match &stmt.kind {
            StmtKind::Warpgroup(_) => add("sums of products in registers (E0140, E0142)"),
            StmtKind::Tensor(crate::kernel::Tensor::Load { .. }) => {
                add("loads from tensor memory that go on (E0147)");
            }
            StmtKind::For { tickets: Some(_), .. } => {
                add("which CTA has a round of a work list (E0172)")
            }
            StmtKind::Outgoing(Outgoing::Copy { .. }) => {
                add("copies out that write one element twice, and the end of threads (E0161)");
            }
            _ => {}
        }
        for body in stmt.kind.bodies() {
            find_left_out(body, add);
        }
    }
}

/// What is known of the values of a kernel.
struct Survey<'k> {
    known: Knowledge<'k>,
    loops_of: BTreeMap<ValueId, BTreeSet<ValueId>>,
    ops: Ops<'k>,
    loops: Vec<ValueId>,
    facts: Facts,
    written: BTreeSet<ParamId>,
}

impl<'k> Survey<'k> {
    fn under(&mut self, facts: Facts, body: &'k [Stmt]) {
        let depth = self.facts.len();
        self.facts.extend(facts);
        self.block(body);
        self.facts.truncate(depth);
    }

    fn block(&mut self, stmts: &'k [Stmt]) {
        for stmt in stmts {
            self.stmt(stmt);
        }
    }

    fn stmt(&mut self, stmt: &'k Stmt) {
        let note = |written: &mut BTreeSet<ParamId>, is_write: bool| {
            each_access(&stmt.kind, &mut |access| {
                written.extend(access.storage.param().filter(|_| is_write));
            });
        };
        match &stmt.kind {
            StmtKind::Def { results, op } => {
                note(&mut self.written, matches!(op, Op::Atomic { .. }));
                self.known.define(results, op, &self.facts);
                for &result in results {
                    self.ops.insert(result, op);
                    if !self.loops.is_empty() {
                        self.loops_of.insert(result, self.loops.iter().copied().collect());
                    }
                }
            }
            StmtKind::Store { .. } => note(&mut self.written, true),
            StmtKind::Outgoing(Outgoing::Copy { dest, .. }) => {
                self.written.extend(dest.storage.param());
            }
            StmtKind::For { var, start, end, step, tickets: _, body } => {
                let facts = self.known.bind_loop(*var, *start, *end, *step);
                self.loops.push(*var);
                self.loops_of.insert(*var, self.loops.iter().copied().collect());
                self.under(facts, body);
                self.loops.pop();
            }
            StmtKind::If { cond, then_body, else_body } => {
                self.under(self.known.path_facts(*cond, true), then_body);
                self.under(self.known.path_facts(*cond, false), else_body);
            }
            kind => {
                for body in kind.bodies() {
                    self.block(body);
                }
            }
        }
    }
}

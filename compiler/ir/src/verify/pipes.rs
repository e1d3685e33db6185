//! R3, R4: rounds of barriers add up, and slots go round between roles.
//!
//! Where all indices of a barrier are constants, they are checked one by one, see [`exact`]. Otherwise:
//! what a role does with one index of a pipeline, or at one index of a barrier, stands in one list of statements: the
//! producer opens, fills, and releases where it fills by stores; the consumer waits and releases. Assumes forms of
//! scalars as [`Knowledge`] has them. Guarantees (E0154) that each index from 0 on is handled once, in order, by every
//! role that the edge names, up to one common number; that copies bring the bytes that the edge counts; and that all
//! roles of a barrier run side by side. So rounds alternate on both sides. Whether roles wait for each other is tried for
//! some numbers of rounds, see [`exact::supposed`].

mod cast;
mod exact;
mod inbox;
mod pair;
mod rounds;
mod runs;

use std::collections::{BTreeMap, BTreeSet};

use kernel_dsl::diag::{Code, Diagnostic, Sink};
use kernel_dsl::source::Span;

use super::scalars::{Facts, Form, Knowledge};
use crate::kernel::{
    Barrier, BarrierId, Between, Kernel, PipeOp, RoleId, Stmt, StmtKind, TileAccess, defined_in,
};
use exact::Exact;
pub(super) use inbox::inboxes;
use rounds::Rounds;
use runs::{Count, Key, Loop, Run};

/// What all findings of this pass say first.
const TITLE: &str = "a slot does not go round between its roles";

pub(super) fn check(kernel: &Kernel, sink: &mut Sink) {
    if kernel.barriers.is_empty() {
        return;
    }
    let mut walk = Walk {
        kernel,
        known: Knowledge::new(kernel),
        facts: Facts::new(),
        role: None,
        region: 0,
        loops: Vec::new(),
        is_conditional: None,
        groups: Vec::new(),
        begun: 0,
        ops: 0,
        ended: Vec::new(),
        sequences: BTreeMap::new(),
        gaps: BTreeSet::new(),
        findings: Vec::new(),
    };
    walk.block(&kernel.body);
    walk.compare();
    let found = walk.findings;
    let mut exact = Exact::of(kernel);
    let is_followed = |id| exact.decided.contains(&rounds::pipeline(kernel, id));
    let all_followed = kernel.barriers.ids().all(is_followed);
    if found.is_empty() && exact.findings.is_empty() && exact.spent.is_none() && !all_followed {
        exact.findings.extend(exact::supposed(kernel, &walk.known));
    }
    if let Some(spent) = exact.spent.filter(|_| !found.is_empty()) {
        sink.push(spent);
        return;
    }
    for (barrier, finding) in found {
        if !exact.decided.contains(&barrier) {
            sink.push(finding);
        }
    }
    exact.findings.into_iter().for_each(|finding| sink.push(finding));
}

/// How many indices of a pipeline a role opens, where that is constant; as many in each CTA of a cluster.
pub(crate) fn opened(kernel: &Kernel, role: RoleId, full: BarrierId) -> i64 {
    let rounds = Rounds::of(kernel, 0);
    let own = rounds.roles.iter().filter(|events| events.role == role);
    let opens = own.flat_map(|events| &events.events).filter(|event| {
        event.barrier == rounds::pipeline(kernel, full) && event.act == rounds::Act::Open
    });
    opens.count() as i64
}

/// The roles at a barrier, or at either edge of a pipeline: those that arrive, or open and fill, and those that wait.
fn ends(kernel: &Kernel, id: BarrierId) -> Vec<(RoleId, bool)> {
    let barrier = &kernel.barriers[id];
    let back = barrier.partner.map(|partner| &kernel.barriers[partner]);
    let mut found: Vec<(RoleId, bool)> = Vec::new();
    let arriving = barrier.from.iter().chain(back.into_iter().flat_map(|back| &back.to));
    let waiting = barrier.to.iter().chain(back.into_iter().flat_map(|back| &back.from));
    for end in arriving.map(|role| (*role, true)).chain(waiting.map(|role| (*role, false))) {
        if !found.contains(&end) {
            found.push(end);
        }
    }
    found
}

/// The bytes that a copy brings.
fn bytes_of(kernel: &Kernel, dest: &TileAccess) -> u64 {
    let bits = u64::from(kernel.dtype_of(dest.storage).bits());
    let shape = super::structure::access_shape(kernel, dest);
    shape.iter().fold(1u64, |n, &e| n.saturating_mul(u64::from(e))).saturating_mul(bits) / 8
}

/// What a role does at one index, in one list of statements.
struct Group {
    /// The barrier that names the pipeline, or the barrier itself.
    barrier: BarrierId,
    index: Form,
    span: Span,
    /// How many groups of the role began before.
    order: usize,
    opened: bool,
    waited: bool,
    released: Option<BarrierId>,
    bytes: u64,
    /// Its first and its last operation, counted in the role.
    ops: (usize, usize),
}

/// The indices that a role has handled on one side of a barrier.
#[derive(Clone)]
struct Sequence {
    /// How many: those from 0 on.
    count: Count,
    span: Span,
    region: usize,
}

struct Walk<'a> {
    kernel: &'a Kernel,
    known: Knowledge<'a>,
    facts: Facts,
    role: Option<RoleId>,
    /// Which region of roles this is.
    region: usize,
    loops: Vec<Loop>,
    /// The choice around this place.
    is_conditional: Option<Span>,
    groups: Vec<Group>,
    /// Groups of the role that have begun.
    begun: usize,
    /// Operations of the role so far.
    ops: usize,
    /// The indices of the list of statements around this place.
    ended: Vec<Run>,
    sequences: BTreeMap<Key, Sequence>,
    /// Barriers of which an index does not go on.
    gaps: BTreeSet<BarrierId>,
    /// What is wrong, by the barrier that names the pipeline.
    findings: Vec<(BarrierId, Diagnostic)>,
}

impl<'a> Walk<'a> {
    fn block(&mut self, stmts: &[Stmt]) {
        let outer = std::mem::take(&mut self.groups);
        for stmt in stmts {
            self.stmt(stmt);
        }
        for group in std::mem::replace(&mut self.groups, outer) {
            self.finish(&group);
        }
    }

    /// The body of a loop, of whose rounds each goes on where the one before has ended.
    fn rounds(&mut self, facts: Facts, body: &[Stmt]) {
        let outer = std::mem::take(&mut self.ended);
        self.under(facts, body);
        let runs = self.in_a_row();
        let around = self.loops.pop();
        self.ended = outer;
        for run in runs {
            let (barrier, span) = (run.key.0, run.span);
            let all =
                around.as_ref().and_then(|around| run.of_loop(&self.known, &self.facts, around));
            match all {
                Some(all) => self.ended.push(all),
                None => self
                    .wrong(barrier, span, "this index cannot be followed")
                    .map(|d| {
                        d.help("count it by a loop with step 1, or by constants: `for t in 0..n { open p@t; … }`")
                    })
                    .report(&mut self.findings),
            }
        }
    }

    /// What this list of statements handles, one run an end of a barrier: each index goes on from the last one.
    fn in_a_row(&mut self) -> Vec<Run> {
        let mut ended = std::mem::take(&mut self.ended);
        ended.sort_by_key(|run| run.order);
        let mut rows: BTreeMap<Key, Vec<Run>> = BTreeMap::new();
        for run in ended {
            rows.entry(run.key).or_default().push(run);
        }
        let mut found = Vec::new();
        for (key, runs) in rows {
            let mut runs = runs.into_iter();
            let Some(mut row) = runs.next() else { continue };
            let mut before = vec![(row.ops.1, row.held)];
            for run in runs {
                let open = before.iter().filter(|(last, _)| *last >= run.ops.0);
                let held = open.fold(run.held, |sum, (_, held)| sum.saturating_add(*held));
                before.push((run.ops.1, run.held));
                let barrier = &self.kernel.barriers[key.0];
                if barrier.partner.is_some() && held > barrier.slots {
                    self.wrong(
                        key.0,
                        run.span,
                        "more indices are held at once than there are slots",
                    )
                    .map(|d| d.help("release one before the next, or take more stages"))
                    .report(&mut self.findings);
                }
                match row.then(&run) {
                    Some(both) => row = Run { held: row.held.max(held), ..both },
                    None => self.gap(key.0, run.span),
                }
            }
            found.push(row);
        }
        found
    }

    fn gap(&mut self, barrier: BarrierId, span: Span) {
        self.gaps.insert(barrier);
        self.wrong(barrier, span, "indices do not go on from the last one")
            .map(|d| d.help("handle every index from 0 on once, in order"))
            .report(&mut self.findings);
    }

    fn under(&mut self, facts: Facts, body: &[Stmt]) {
        let depth = self.facts.len();
        self.facts.extend(facts);
        self.block(body);
        self.facts.truncate(depth);
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Def { results, op } => self.known.define(results, op, &self.facts),
            StmtKind::Pipe(op) => self.pipe(op, stmt.span),
            StmtKind::Role { role, body } => {
                self.role = Some(*role);
                self.begun = 0;
                self.ops = 0;
                self.block(body);
                self.chain();
                self.role = None;
            }
            StmtKind::For { var, start, end, step, tickets, body } => {
                let facts = self.known.bind_loop(*var, *start, *end, *step);
                let own = defined_in(body);
                self.loops.push(Loop { var: *var, start: *start, end: *end, step: *step, own });
                let outer = self.is_conditional;
                self.is_conditional = outer.or(tickets.map(|_| stmt.span));
                self.rounds(facts, body);
                self.is_conditional = outer;
            }
            StmtKind::If { cond, then_body, else_body } => {
                let decided = self.known.decided(*cond);
                let outer = self.is_conditional;
                if decided.is_none() {
                    self.is_conditional = Some(stmt.span);
                }
                if decided != Some(false) {
                    self.under(self.known.path_facts(*cond, true), then_body);
                }
                if decided != Some(true) {
                    self.under(self.known.path_facts(*cond, false), else_body);
                }
                self.is_conditional = outer;
            }
            StmtKind::SetVar { .. }
            | StmtKind::Store { .. }
            | StmtKind::Prefetch { .. }
            | StmtKind::Advance { .. }
            | StmtKind::CopyAsync { .. }
            | StmtKind::EmptyGroup
            | StmtKind::Outgoing(_)
            | StmtKind::Settle { .. }
            | StmtKind::Sync
            | StmtKind::Signal(_)
            | StmtKind::Warpgroup(_)
            | StmtKind::Tensor(_)
            | StmtKind::Await(_)
            | StmtKind::SyncCluster
            | StmtKind::SyncRole
            | StmtKind::GridWait
            | StmtKind::GridLaunch
            | StmtKind::Assert { .. }
            | StmtKind::Trace { .. }
            | StmtKind::Printf { .. } => {}
        }
        if self.role.is_none() && !matches!(stmt.kind, StmtKind::Role { .. }) {
            self.region += 1;
        }
    }

    /// The barrier by which both sides of a pipeline are known.
    fn pipeline(&self, barrier: BarrierId) -> BarrierId {
        self.kernel.barriers[barrier].partner.map_or(barrier, |partner| partner.min(barrier))
    }

    fn pipe(&mut self, op: &PipeOp, span: Span) {
        let pipeline = self.pipeline(op.place().0);
        let named = &self.kernel.barriers[pipeline];
        if named.is_prepaid() || named.everywhere || named.between != Between::Apart {
            return;
        }
        if let Some(choice) = self.is_conditional {
            self.wrong(pipeline, span, "this is done on some paths alone")
                .map(|d| d.secondary(choice, "the choice"))
                .map(|d| d.help("let the choice stand between `wait` and `release`"))
                .report(&mut self.findings);
            return;
        }
        self.ops += 1;
        let (barrier, at) = op.place();
        let index = self.known.form(at);
        let found = self.groups.iter().position(|g| g.barrier == pipeline && g.index == index);
        let starts = match op {
            PipeOp::Open { .. } | PipeOp::Wait { .. } => true,
            PipeOp::Release { .. } | PipeOp::Commit { .. } => {
                self.kernel.barriers[barrier].partner.is_none()
            }
            PipeOp::Copy { .. } | PipeOp::Send { .. } => false,
        };
        let at = match found {
            Some(at) => at,
            None if starts => {
                let group = Group {
                    barrier: pipeline,
                    index,
                    span,
                    order: self.begun,
                    opened: false,
                    waited: false,
                    released: None,
                    bytes: 0,
                    ops: (self.ops, self.ops),
                };
                self.begun += 1;
                self.groups.push(group);
                self.groups.len() - 1
            }
            None => {
                self.wrong(
                    pipeline,
                    span,
                    "the slot is neither opened nor waited for in this list of statements",
                )
                .map(|d| d.help("put `open` or `wait` with the same index before it"))
                .report(&mut self.findings);
                return;
            }
        };
        let bytes =
            if let PipeOp::Copy { dest, .. } = op { bytes_of(self.kernel, dest) } else { 0 };
        let group = &mut self.groups[at];
        group.ops.1 = self.ops;
        let again = match op {
            PipeOp::Open { .. } => std::mem::replace(&mut group.opened, true),
            PipeOp::Wait { .. } => std::mem::replace(&mut group.waited, true),
            PipeOp::Release { .. } | PipeOp::Commit { .. } => {
                group.released.replace(barrier).is_some()
            }
            PipeOp::Copy { .. } | PipeOp::Send { .. } => group.released.is_some(),
        };
        group.bytes = group.bytes.saturating_add(bytes);
        if again {
            self.wrong(pipeline, span, "the same index a second time").report(&mut self.findings);
        }
    }

    /// Judges what was done at one index, and notes the index.
    fn finish(&mut self, group: &Group) {
        let Some(role) = self.role else { return };
        let full = &self.kernel.barriers[group.barrier];
        if full.partner.is_some() {
            let ends_well = if group.opened {
                full.bytes > 0 || group.released.is_some()
            } else {
                group.released.is_some()
            };
            if !ends_well {
                self.wrong(group.barrier, group.span, "this slot is never released")
                    .map(|d| d.help("put `release` with the same index behind its last use"))
                    .report(&mut self.findings);
            }
            if group.opened && group.bytes != u64::from(full.bytes) {
                let said = full.bytes;
                let found = group.bytes;
                self.wrong(
                    group.barrier,
                    group.span,
                    &format!("copies bring {found} bytes of the {said} that are announced"),
                )
                .map(|d| d.secondary(full.span, "declared here"))
                .report(&mut self.findings);
            }
            if group.opened && group.waited {
                self.wrong(group.barrier, group.span, "one role is on both sides")
                    .report(&mut self.findings);
            }
        }
        let arrives = group.opened || (full.partner.is_none() && group.released.is_some());
        let key = (group.barrier, role, arrives);
        self.ended.push(Run {
            order: group.order,
            key,
            start: group.index.clone(),
            count: Count { known: Form::constant(1), rest: None },
            span: group.span,
            ops: group.ops,
            held: 1,
        });
    }

    /// The indices of a role start at 0.
    fn chain(&mut self) {
        for run in self.in_a_row() {
            let zero = Count { known: Form::default(), rest: None };
            let before =
                self.sequences.get(&run.key).map_or(zero, |sequence| sequence.count.clone());
            let (key, span) = (run.key, run.span);
            let so_far = Run { start: Form::default(), count: before, ..run.clone() };
            let count = match so_far.then(&run) {
                Some(both) => both.count,
                None => {
                    self.gap(key.0, span);
                    run.count
                }
            };
            let region = self.region;
            self.sequences.insert(key, Sequence { count, span, region });
        }
    }

    /// Every role of a barrier handles as many indices as the others.
    fn compare(&mut self) {
        for (id, barrier) in self.kernel.barriers.iter_enumerated() {
            let is_elsewhere = barrier.everywhere || barrier.between != Between::Apart;
            if self.pipeline(id) != id || barrier.is_prepaid() || is_elsewhere {
                continue;
            }
            let has_gap = self.gaps.contains(&id);
            if !has_gap {
                self.runs_ahead(id, barrier);
            }
            let mut first: Option<Sequence> = None;
            for (role, arrives) in ends(self.kernel, id) {
                let Some(own) = self.sequences.get(&(id, role, arrives)).cloned() else {
                    self.unused(id, barrier, role, arrives);
                    continue;
                };
                let Some(first) = &first else {
                    first = Some(own);
                    continue;
                };
                let is_same = has_gap || own.count.is_same(&first.count);
                if !is_same || own.region != first.region {
                    let why = if own.region == first.region {
                        "another number of rounds than at the other end, as far as can be proved"
                    } else {
                        "the roles do not run side by side"
                    };
                    let other = first.span;
                    self.wrong(id, own.span, why)
                        .map(|d| d.secondary(other, "the other end").secondary(barrier.span, "declared here"))
                        .map(|d| d.help("bound both loops by one constant, or by one scalar that is made before the roles"))
                        .report(&mut self.findings);
                }
            }
        }
    }

    /// Without an edge back, one side may be any number of rounds ahead: each slot has one.
    fn runs_ahead(&mut self, id: BarrierId, barrier: &Barrier) {
        let slots = i128::from(barrier.slots);
        let own = self.sequences.iter().filter(|((of, _, _), _)| *of == id);
        let most = own.max_by_key(|(_, s)| s.count.as_constant().unwrap_or(i128::MAX));
        let Some((_, most)) = most.filter(|_| barrier.partner.is_none()) else { return };
        if most.count.as_constant().is_none_or(|count| count > slots) {
            self.wrong(id, most.span, "nothing keeps one side from running ahead of the other")
                .map(|d| d.secondary(barrier.span, format!("{slots} slots, each for one round")))
                .map(|d| d.help("hand slots over by a `pipeline`, or give the barrier a slot for each index"))
                .report(&mut self.findings);
        }
    }

    fn unused(&mut self, id: BarrierId, barrier: &Barrier, role: RoleId, arrives: bool) {
        let role = &self.kernel.roles[role];
        let verb = if arrives { "arrives at" } else { "waits for" };
        self.findings.push((
            id,
            Diagnostic::error(
                Code::E0154,
                format!("`{}` never {verb} `{}`", role.name, barrier.name),
            )
            .label(role.span, "this role")
            .secondary(barrier.span, "declared here, with the role on its edge"),
        ));
    }

    fn wrong(&self, barrier: BarrierId, span: Span, why: &str) -> Finding {
        Finding(barrier, Diagnostic::error(Code::E0154, TITLE).label(span, why))
    }
}

/// A finding that is still being written.
struct Finding(BarrierId, Diagnostic);

impl Finding {
    fn map(self, more: impl FnOnce(Diagnostic) -> Diagnostic) -> Finding {
        Finding(self.0, more(self.1))
    }

    fn report(self, findings: &mut Vec<(BarrierId, Diagnostic)>) {
        findings.push((self.0, self.1));
    }
}

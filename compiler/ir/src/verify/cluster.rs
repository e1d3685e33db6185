//! R9 and R10 between the CTAs of a cluster: all of them reach `sync cluster`, and what one CTA does to the shared
//! memory of another is ordered by it.
//!
//! The statements between two `sync cluster`s are one interval. CTAs run it in any order and at any distance, so every
//! pair of accesses of one interval may meet in two CTAs, whichever stands first and whatever branch each is in.
//! Assumes forms of slots and slice starts as [`Knowledge`] has them. Guarantees that no two accesses of one interval
//! by two CTAs touch an element, one of them writing, on any path and over the back edges of loops. Two accesses are
//! apart where slots or slices provably are, or where they start at different places because the CTAs do.

mod pair;
pub(super) mod ranks;
mod varying;

use std::collections::BTreeMap;

use kernel_dsl::diag::{Code, Diagnostic, Sink};
use kernel_dsl::source::Span;

use super::scalars::{Facts, Form, Knowledge, Symbol};
use crate::kernel::{
    ClusterAxis, Kernel, Op, Outgoing, PipeOp, Stmt, StmtKind, TileAccess, ValueId, Warpgroup,
    defined_in,
};
use pair::{Access, Whose, meet};
use varying::Varying;

/// Rounds after which nothing is known of where an access of an earlier round went.
const MAX_AGE: u32 = 2;
/// Statements in loops that are walked, at most.
const MAX_VISITS: u32 = 100_000;

pub(super) fn check(kernel: &Kernel, sink: &mut Sink) {
    if kernel.launch.cluster_size() == 1 {
        return;
    }
    let mut walk = Walk {
        kernel,
        known: Knowledge::new(kernel),
        facts: Facts::new(),
        varying: Varying::of(kernel),
        ops: BTreeMap::new(),
        divided: None,
        recent: Vec::new(),
        reported: Vec::new(),
        has_remote: has_remote(&kernel.body),
        visits: MAX_VISITS,
        sink,
    };
    walk.block(&kernel.body);
}

/// Whether a statement touches shared memory of another CTA.
fn has_remote(stmts: &[Stmt]) -> bool {
    stmts.iter().any(|stmt| {
        let own = match &stmt.kind {
            StmtKind::Def { op: Op::Load { access, .. }, .. } | StmtKind::Store { access, .. } => {
                access.storage.cta().is_some()
            }
            _ => false,
        };
        own || stmt.kind.bodies().into_iter().any(has_remote)
    })
}

/// Whether a statement is, or holds, a `sync cluster`.
fn meets(stmts: &[Stmt]) -> bool {
    stmts.iter().any(|stmt| {
        matches!(stmt.kind, StmtKind::SyncCluster) || stmt.kind.bodies().into_iter().any(meets)
    })
}

struct Walk<'a> {
    kernel: &'a Kernel,
    known: Knowledge<'a>,
    facts: Facts,
    varying: Varying,
    /// How scalars are computed.
    ops: BTreeMap<ValueId, &'a Op>,
    /// The condition or bound around this place in which CTAs of a cluster may differ.
    divided: Option<Span>,
    /// Accesses since the last `sync cluster` on some path.
    recent: Vec<Access>,
    /// Pairs of places that have been reported.
    reported: Vec<(Span, Span)>,
    has_remote: bool,
    visits: u32,
    sink: &'a mut Sink,
}

impl<'a> Walk<'a> {
    fn block(&mut self, stmts: &'a [Stmt]) {
        for stmt in stmts {
            let Some(left) = self.visits.checked_sub(1) else { return };
            self.visits = left;
            if left == 0 {
                self.sink.push(
                    Diagnostic::error(
                        Code::E0219,
                        "loops around `sync cluster` are nested too deep",
                    )
                    .label(stmt.span, "the rounds around this are too many to follow")
                    .help("nest fewer loops, or unroll the innermost ones"),
                );
                return;
            }
            self.stmt(stmt);
        }
    }

    fn under(&mut self, facts: Facts, body: &'a [Stmt]) {
        let depth = self.facts.len();
        self.facts.extend(facts);
        self.block(body);
        self.facts.truncate(depth);
    }

    /// Runs a body that only some CTAs of a cluster may run.
    fn divided(&mut self, at: Option<Span>, run: impl FnOnce(&mut Self)) {
        let outer = self.divided;
        self.divided = outer.or(at);
        run(self);
        self.divided = outer;
    }

    fn stmt(&mut self, stmt: &'a Stmt) {
        match &stmt.kind {
            StmtKind::Def { results, op } => {
                if let Op::Load { access, .. } = op {
                    self.touch(access, false);
                }
                self.ops.extend(results.first().map(|&result| (result, op)));
                self.known.define(results, op, &self.facts);
            }
            StmtKind::Store { access, .. } => self.touch(access, true),
            StmtKind::CopyAsync { dest, .. } | StmtKind::Pipe(PipeOp::Copy { dest, .. }) => {
                self.touch(dest, true)
            }
            StmtKind::Warpgroup(Warpgroup::Mma(mma)) => {
                mma.reads().for_each(|access| self.touch(access, false));
            }
            StmtKind::Outgoing(Outgoing::Copy { source, .. }) => self.touch(source, false),
            StmtKind::SyncCluster => self.sync(stmt.span),
            StmtKind::Role { body, .. } => self.block(body),
            StmtKind::For { var, start, end, step, tickets, body } => {
                let facts = self.known.bind_loop(*var, *start, *end, *step);
                let varies = tickets.is_some()
                    || [*start, *end].iter().any(|bound| self.varying.has(*bound));
                self.divided(varies.then_some(stmt.span), |walk| {
                    walk.rounds(*var, *step, facts, body);
                });
            }
            StmtKind::If { cond, then_body, else_body } => {
                let varies = self.varying.has(*cond);
                self.divided(varies.then_some(stmt.span), |walk| {
                    walk.choice(*cond, then_body, else_body, varies);
                });
            }
            StmtKind::Tensor(op) => op.each_access(|access| {
                let writes = access
                    .storage
                    .tile()
                    .is_some_and(|(tile, _)| self.kernel.smem[tile].is_tensor());
                self.touch(access, writes);
            }),
            StmtKind::Warpgroup(Warpgroup::Commit | Warpgroup::Settle { .. })
            | StmtKind::SetVar { .. }
            | StmtKind::Prefetch { .. }
            | StmtKind::Advance { .. }
            | StmtKind::EmptyGroup
            | StmtKind::Outgoing(_)
            | StmtKind::Settle { .. }
            | StmtKind::Signal(_)
            | StmtKind::Await(_)
            | StmtKind::Sync
            | StmtKind::SyncRole
            | StmtKind::Pipe(_)
            | StmtKind::GridWait
            | StmtKind::GridLaunch
            | StmtKind::Assert { .. }
            | StmtKind::Trace { .. }
            | StmtKind::Printf { .. } => {}
        }
    }

    /// Where CTAs may differ, one is in either arm while another is in the other.
    fn choice(
        &mut self,
        cond: ValueId,
        then_body: &'a [Stmt],
        else_body: &'a [Stmt],
        varies: bool,
    ) {
        let decided = self.known.decided(cond);
        let before = self.recent.clone();
        if decided != Some(false) {
            self.under(self.known.path_facts(cond, true), then_body);
        }
        if decided == Some(true) {
            return;
        }
        let other = if varies || decided.is_some() {
            Vec::new()
        } else {
            std::mem::replace(&mut self.recent, before)
        };
        self.under(self.known.path_facts(cond, false), else_body);
        other.into_iter().for_each(|access| self.add(access));
    }

    /// In a loop that meets in every round, CTAs are in one round, or one behind a `sync cluster` of it; in any other
    /// loop they may be in any two rounds.
    fn rounds(&mut self, var: ValueId, step: u32, facts: Facts, body: &'a [Stmt]) {
        if !meets(body) || self.divided.is_some() {
            self.varying.part(var, body);
            self.under(facts, body);
            return;
        }
        let own = defined_in(body);
        let before = self.recent.clone();
        let mut entry = before.clone();
        loop {
            self.recent = entry.clone();
            self.under(facts.clone(), body);
            let mut next = entry.clone();
            for mut access in self.recent.clone() {
                access.next_round(var, step, &own, MAX_AGE);
                if !next.contains(&access) {
                    next.push(access);
                }
            }
            if next.len() == entry.len() || self.visits == 0 {
                break;
            }
            entry = next;
        }
        before.into_iter().for_each(|access| self.add(access));
        for access in &mut self.recent {
            access.leave(var, &own);
        }
    }

    fn sync(&mut self, span: Span) {
        if let Some(at) = self.divided {
            self.sink.push(
                Diagnostic::error(
                    Code::E0121,
                    "`sync cluster` that only some CTAs of the cluster may reach",
                )
                .label(span, "all CTAs of the cluster have to meet here")
                .secondary(at, "this depends on something in which they may differ")
                .help("meet outside of it, or let it depend on what all CTAs of a cluster share"),
            );
        }
        self.recent.clear();
    }

    fn add(&mut self, access: Access) {
        if !self.recent.contains(&access) {
            self.recent.push(access);
        }
    }

    fn touch(&mut self, access: &TileAccess, writes: bool) {
        if !self.has_remote || access.storage.tile().is_none() {
            return;
        }
        let whose = access.storage.cta().map_or(Whose::Own, |cta| self.whose(cta));
        let by = self.only_cta();
        let Some(new) = Access::of(access, writes, whose, by, &self.known) else { return };
        let clash = self
            .recent
            .iter()
            .chain([&new])
            .find(|earlier| meet(self.kernel, &self.known, &self.varying, earlier, &new))
            .cloned();
        if let Some(earlier) = clash {
            self.report(&earlier, &new);
        }
        self.add(new);
    }

    /// The only CTA of the cluster that comes here, where the conditions around say so.
    fn only_cta(&self) -> Option<i128> {
        let launch = &self.kernel.launch;
        let along = (0..3u8).filter(|&axis| {
            let at = usize::from(axis);
            launch.grid[at] == launch.cluster[at] && launch.cluster[at] == launch.cluster_size()
        });
        let ranks = along.map(Symbol::Cta).chain([Symbol::Cluster(ClusterAxis::Rank)]);
        ranks.into_iter().find_map(|rank| {
            let known = self.known.refined(&Form::symbol(rank), &self.facts);
            known.lo.filter(|_| known.lo == known.hi)
        })
    }

    /// The CTA that a scalar chooses.
    fn whose(&self, cta: ValueId) -> Whose {
        let size = self.kernel.launch.cluster_size();
        let ranks = (0..size).map(|rank| ranks::on_rank(self.kernel, &self.ops, cta, rank));
        ranks.collect::<Option<_>>().map_or(Whose::Any, Whose::Ranks)
    }

    fn report(&mut self, earlier: &Access, later: &Access) {
        let pair = (earlier.span.min(later.span), earlier.span.max(later.span));
        if self.reported.contains(&pair) {
            return;
        }
        self.reported.push(pair);
        let tile = &self.kernel.smem[later.tile];
        let does = |access: &Access| {
            let what = if access.writes { "writes" } else { "reads" };
            let whose = match access.whose {
                Whose::Own => "its own",
                Whose::Ranks(_) | Whose::Any => "shared memory of a CTA of the cluster",
            };
            format!("{what} {whose}")
        };
        let mut diagnostic = Diagnostic::error(
            Code::E0122,
            format!("two CTAs of a cluster can touch one element of `{}` without `sync cluster` between", tile.name),
        )
        .label(later.span, format!("one CTA {}", does(later)))
        .secondary(tile.span, "declared here")
        .help(
            "put `sync cluster;` between the two, or let each CTA write a place of its own: `tile@cta(c)[cluster.rank]`",
        );
        diagnostic = if earlier.span == later.span {
            diagnostic.note("two CTAs do this at the same time")
        } else {
            diagnostic.secondary(earlier.span, format!("another CTA {}", does(earlier)))
        };
        self.sink.push(diagnostic);
    }
}

//! `pipeline`, `barrier`, `open`, `wait`, `release` and `copy.bulk … into`.

use std::collections::{BTreeMap, BTreeSet};

use kernel_abi::DType;
use kernel_dsl::ast::{
    self, BinaryOp, Callee, Edge, Expr, ExprKind, InstanceKind, Move, Name, Scope,
};
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::access::Slice;
use super::constants::Const;
use super::limits::MAX_RING;
use super::lower::Lower;
use super::mistakes::copy_dest;
use super::operands::Operand;
use super::report::{Outcome, Refused};
use super::scope::{Entity, Memory};
use crate::kernel::{
    Barrier, BarrierId, Between, CopyWay, Evict, PipeOp, RoleId, StmtKind, Storage, TileAccess,
    ValueId,
};

/// The most bytes that a round of a barrier can count.
const MAX_BYTES: u64 = (1 << 20) - 1;

/// What a name means at which roles meet.
#[derive(Debug, Clone, Copy)]
pub(super) enum Meeting {
    Pipeline { full: BarrierId, empty: BarrierId },
    Barrier(BarrierId),
}

/// An edge whose roles have no numbers yet.
#[derive(Debug)]
struct Ends<'a> {
    barrier: BarrierId,
    from: &'a [Name],
    to: &'a [Name],
}

/// The pipelines and barriers of a kernel.
#[derive(Debug, Default)]
pub(super) struct Pipes<'a> {
    meetings: BTreeMap<&'a str, Meeting>,
    ends: Vec<Ends<'a>>,
    /// Barriers that a role commits its products to.
    pub(super) commits: Vec<(BarrierId, RoleId, Span)>,
    /// Barriers that a role releases.
    releases: Vec<(BarrierId, RoleId, Span)>,
    /// Of those of pipelines: barriers at which a role arrives, in all CTAs of the cluster or in its own.
    pub(super) reaches: Vec<(BarrierId, bool, Span)>,
    /// Barriers of slots that copies fill in all CTAs of the cluster.
    pub(super) casts: Vec<(BarrierId, Span)>,
    /// Barriers at which copies count, at that of the first CTA of a pair or at the own one.
    pub(super) counts: Vec<(BarrierId, bool, Span)>,
    /// Barriers at which a role arrives in the first CTA of a pair.
    pub(super) gathers: Vec<(BarrierId, Span)>,
    /// Roles with products of a pair of CTAs.
    pub(super) paired: BTreeSet<RoleId>,
    /// A place in all CTAs of the cluster may be named, and is.
    pub(super) for_all: Option<bool>,
}

/// Which CTA a barrier is named in.
#[derive(Debug, Clone, Copy)]
pub(super) enum Whose<'a> {
    Own,
    One(&'a Expr),
    All(Span),
}

/// The finding for what names all CTAs of a cluster in a wrong way.
pub(super) fn cast(what: &str, at: Span) -> Diagnostic {
    Diagnostic::error(Code::E0157, what).label(at, "`@cta(*)` means every CTA of the cluster")
}

impl<'a> Lower<'a> {
    /// `pipeline NAME { stages: n; full: BYTES from A to B; empty: from B to A; }`
    pub(super) fn pipeline(&mut self, ast: &'a ast::Pipeline, span: Span) -> Outcome<()> {
        let slots = self.const_extent(&ast.stages, "the number of stages", 1, MAX_RING)?;
        for edge in [&ast.full, &ast.empty] {
            if edge.scope.is_some() {
                return Err(self.not_built(edge.span, "the scope of an edge of a pipeline"));
            }
            if let Some(ring) = &edge.ring {
                return Err(self.not_built(ring.span, "`ring` of an edge of a pipeline"));
            }
        }
        if let Some(bytes) = &ast.empty.bytes {
            return Err(self.error(
                Diagnostic::error(Code::E0206, "bytes of an empty slot")
                    .label(bytes.span, "copies fill slots, and `full` counts them"),
            ));
        }
        let name = &ast.name;
        let full = self.edge(&format!("{}.full", name.text), name, &ast.full, slots)?;
        let empty = self.edge(&format!("{}.empty", name.text), name, &ast.empty, slots)?;
        self.kernel.barriers[full].partner = Some(empty);
        self.kernel.barriers[empty].partner = Some(full);
        self.meet(name, Meeting::Pipeline { full, empty }, span)
    }

    /// `barrier NAME : ring n from A to B;`
    pub(super) fn barrier(&mut self, ast: &'a ast::Barrier, span: Span) -> Outcome<()> {
        let of_cluster = match ast.edge.scope {
            Some(Scope::Cluster) => true,
            None => false,
            Some(Scope::Cta | Scope::Gpu | Scope::Sys) => {
                return Err(self.not_built(ast.edge.span, "this scope of a barrier"));
            }
        };
        if of_cluster {
            return self.barrier_of_cluster(ast, span);
        }
        if let (Some(_), Some(ring)) = (&ast.edge.bytes, &ast.edge.ring) {
            return Err(self.not_built(ring.span, "`ring` of a barrier that counts bytes"));
        }
        let slots = match &ast.edge.ring {
            Some(ring) => self.const_extent(ring, "the number of slots", 1, MAX_RING)?,
            None => 1,
        };
        let barrier = self.edge(&ast.name.text, &ast.name, &ast.edge, slots)?;
        self.meet(&ast.name, Meeting::Barrier(barrier), span)
    }

    /// `barrier NAME : bytes(s) scope cluster to B;`
    fn barrier_of_cluster(&mut self, ast: &'a ast::Barrier, span: Span) -> Outcome<()> {
        let edge = &ast.edge;
        let (Some(_), None, true) = (&edge.bytes, &edge.ring, edge.from.is_empty()) else {
            return Err(self.error(
                Diagnostic::error(Code::E0154, "a barrier that other CTAs fill")
                    .label(edge.span, "it counts bytes, has one slot, and anyone may send to it")
                    .help("write `barrier NAME : bytes(TILE) scope cluster to ROLE;`"),
            ));
        };
        let barrier = self.edge(&ast.name.text, &ast.name, edge, 1)?;
        self.meet(&ast.name, Meeting::Barrier(barrier), span)
    }

    fn meet(&mut self, name: &'a Name, meeting: Meeting, span: Span) -> Outcome<()> {
        if !self.is_top() || self.role.is_some() {
            return Err(self.error(
                Diagnostic::error(Code::E0154, "a meeting of roles inside of something else")
                    .label(span, "declare it at the top of the kernel, before the roles"),
            ));
        }
        self.pipes.meetings.insert(&name.text, meeting);
        Ok(())
    }

    fn edge(&mut self, name: &str, at: &'a Name, edge: &'a Edge, slots: u32) -> Outcome<BarrierId> {
        let of_cluster = matches!(edge.scope, Some(Scope::Cluster));
        let bytes = match &edge.bytes {
            Some(bytes) => self.bytes_of(bytes)?,
            None => 0,
        };
        let Some(bytes) = u32::try_from(bytes).ok().filter(|&b| u64::from(b) <= MAX_BYTES) else {
            return Err(self.error(
                Diagnostic::error(Code::E0503, format!("{bytes} bytes a round"))
                    .label(edge.span, format!("a barrier counts up to {MAX_BYTES}")),
            ));
        };
        if (edge.from.is_empty() && !of_cluster) || edge.to.is_empty() {
            return Err(self.error(
                Diagnostic::error(Code::E0154, "an edge without a role at both ends")
                    .label(edge.span, "write `from ROLE to ROLE`"),
            ));
        }
        let barrier = self.kernel.barriers.push(Barrier {
            name: name.to_owned(),
            slots,
            arrivals: 0,
            bytes,
            from: Vec::new(),
            to: Vec::new(),
            of_cluster,
            everywhere: false,
            between: Between::Apart,
            partner: None,
            span: at.span,
        });
        self.pipes.ends.push(Ends { barrier, from: &edge.from, to: &edge.to });
        Ok(barrier)
    }

    /// `bytes(s) + bytes(t)`, or a constant.
    fn bytes_of(&mut self, e: &'a Expr) -> Outcome<u64> {
        match &e.kind {
            ExprKind::Binary(BinaryOp::Add, a, b) => {
                Ok(self.bytes_of(a)?.saturating_add(self.bytes_of(b)?))
            }
            ExprKind::Call(call) => {
                let arg = match (&call.callee, call.args.as_slice()) {
                    (Callee::Path(path), [arg]) if path.is("bytes") => &arg.value,
                    (_, _) => return Err(self.not_built(e.span, "bytes of something else")),
                };
                let (buffer, _, _) = self.buffer(arg)?;
                match buffer.memory {
                    Memory::Smem { tile, .. } => Ok(self.kernel.smem[tile].bytes()),
                    Memory::Param(_) => Err(self.error(
                        Diagnostic::error(Code::E0221, "bytes of a buffer")
                            .label(arg.span, "a slot of a tile in shared memory is filled"),
                    )),
                }
            }
            _ => {
                let bytes = self.const_int(e, "a number of bytes")?;
                u64::try_from(bytes).map_err(|_| {
                    self.error(
                        Diagnostic::error(Code::E0214, "a negative number of bytes")
                            .label(e.span, format!("{bytes}")),
                    )
                })
            }
        }
    }

    /// The roles of each barrier, when all roles are known, and how often they arrive.
    pub(super) fn connect(&mut self) {
        let both = self.pipes.commits.iter().find_map(|commit| {
            let same = |release: &&(BarrierId, RoleId, Span)| {
                (release.0, release.1) == (commit.0, commit.1)
            };
            self.pipes.releases.iter().find(same).map(|release| (release.2, commit.2))
        });
        if let Some((release, commit)) = both {
            self.error(
                Diagnostic::error(Code::E0154, "a role releases and commits to one barrier")
                    .label(release, "released here")
                    .secondary(commit, "committed to here")
                    .help("a role arrives in one way: by `commit` where products read the slot"),
            );
        }
        self.connect_pair();
        self.fold_sums();
        self.connect_ctas();
        for Ends { barrier, from, to } in std::mem::take(&mut self.pipes.ends) {
            let mut numbers = [Vec::new(), Vec::new()];
            for (names, numbers) in [from, to].into_iter().zip(&mut numbers) {
                for name in names {
                    let of_name = |id: &RoleId| self.kernel.roles[*id].name == name.text;
                    let found = self.kernel.roles.ids().find(of_name);
                    match found {
                        Some(id) => numbers.push(id),
                        None => {
                            self.error(
                                Diagnostic::error(
                                    Code::E0201,
                                    format!("no role is called `{}`", name.text),
                                )
                                .label(name.span, "unknown role"),
                            );
                        }
                    }
                }
            }
            let [from, to] = numbers;
            let arriving = |role: &RoleId| {
                let commits =
                    self.pipes.commits.iter().any(|&(b, r, _)| (b, r) == (barrier, *role));
                let role = &self.kernel.roles[*role];
                if role.elect || commits { 1 } else { role.warps }
            };
            let arrivals: u32 = from.iter().map(arriving).sum();
            let declared = &mut self.kernel.barriers[barrier];
            let all = declared.everywhere || declared.between == Between::Gathered;
            let ctas = if all { self.kernel.launch.cluster_size() } else { 1 };
            // The thread that announces bytes arrives with them.
            declared.arrivals = if declared.bytes > 0 { 1 } else { arrivals.saturating_mul(ctas) };
            if declared.bytes > 0 && from.len() > 1 {
                let (span, name) = (declared.span, declared.name.clone());
                self.error(
                    Diagnostic::error(Code::E0154, format!("several roles fill `{name}`"))
                        .label(span, "bytes are announced by one role"),
                );
            }
            let declared = &mut self.kernel.barriers[barrier];
            (declared.from, declared.to) = (from, to);
        }
    }

    /// Pipelines whose slots are filled in all CTAs of the cluster, and given back to all.
    fn connect_ctas(&mut self) {
        let reaches = std::mem::take(&mut self.pipes.reaches);
        for &(barrier, everywhere, span) in &reaches {
            let other = reaches.iter().find(|(b, e, _)| *b == barrier && *e != everywhere);
            if let (true, Some(&(_, _, own))) = (everywhere, other) {
                self.error(
                    cast("a slot that goes back to all CTAs here and to the own one there", own)
                        .secondary(span, "to all of them")
                        .help("write `@cta(*)` each time"),
                );
                return;
            }
            if let (true, Some(wrong)) = (everywhere, self.not_for_all(barrier, span)) {
                self.error(wrong);
                return;
            }
            if everywhere {
                self.kernel.barriers[barrier].everywhere = true;
            }
        }
        for (full, span) in std::mem::take(&mut self.pipes.casts) {
            let empty = self.kernel.barriers[full].partner;
            if !empty.is_some_and(|empty| self.kernel.barriers[empty].everywhere) {
                let declared = self.kernel.barriers[full].span;
                self.error(
                    cast("slots of all CTAs that are released to their own one alone", span)
                        .secondary(declared, "this pipeline")
                        .help("write `release p.empty@cta(*)@t`: the next copy waits for the consumers of all CTAs"),
                );
                return;
            }
            self.kernel.barriers[full].everywhere = true;
        }
    }

    /// What is wrong with a barrier at which a role arrives in all CTAs of the cluster, each for itself.
    fn not_for_all(&self, barrier: BarrierId, at: Span) -> Option<Diagnostic> {
        if self.kernel.barriers[barrier].partner.is_none() {
            return Some(cast("a barrier of all CTAs that is no pipeline's", at));
        }
        (!self.is_empty_side(barrier)).then(|| {
            cast("a slot that is handed to consumers of all CTAs", at).help(
                "copies with `@cta(*)` fill slots of all CTAs; stores fill those of their own",
            )
        })
    }

    /// `ld@t`, `ld.full@t`, `done`: what it means, which part of it, and the index.
    fn meeting(&mut self, e: &'a Expr) -> Outcome<(Meeting, Option<&'a str>, ValueId)> {
        let (meeting, part, at, cta) = self.meeting_of(e)?;
        let (span, why) = match cta {
            Whose::Own => return Ok((meeting, part, at)),
            Whose::One(cta) => (cta.span, "only `copy.st_async` reaches it"),
            Whose::All(span) => (span, "copies and what releases their slots name all CTAs"),
        };
        Err(self.error(Diagnostic::error(Code::E0154, "a barrier of another CTA").label(span, why)))
    }

    /// The same with the CTA that is named.
    pub(super) fn meeting_of(
        &mut self,
        e: &'a Expr,
    ) -> Outcome<(Meeting, Option<&'a str>, ValueId, Whose<'a>)> {
        let ExprKind::Ref(reference) = &e.kind else {
            return Err(self.error(
                Diagnostic::error(Code::E0206, "no pipeline and no barrier").label(e.span, ""),
            ));
        };
        let (name, part) = match reference.path.segments.as_slice() {
            [name] => (name, None),
            [name, part] => (name, Some(part.text.as_str())),
            _ => return Err(self.unknown(&reference.path.text(), e.span)),
        };
        let Some(&meeting) = self.pipes.meetings.get(name.text.as_str()) else {
            if let Some(named) = self.frame.lookup(&name.text)
                && let Entity::Refused = named.entity
            {
                return Err(Refused);
            }
            return Err(self.unknown(&name.text, name.span));
        };
        let (mut index, mut cta) = (Operand::Const(Const::int(0)), Whose::Own);
        for at in &reference.at {
            match &at.kind {
                InstanceKind::Slot(slot) => index = self.expr(slot)?,
                InstanceKind::Cta(rank) => cta = Whose::One(rank),
                InstanceKind::AllCtas => cta = Whose::All(at.span),
                InstanceKind::Peer(_) | InstanceKind::AllPeers => {
                    return Err(self.not_built(at.span, "barriers of other ranks"));
                }
            }
        }
        let index = self.scalar(index, DType::I32, "the index of a slot", e.span)?;
        Ok((meeting, part, index, cta))
    }

    fn full_or_empty(&mut self, e: &'a Expr) -> Outcome<(BarrierId, Option<BarrierId>, ValueId)> {
        let (meeting, part, at) = self.meeting(e)?;
        let (barrier, partner) = self.side(meeting, part, e.span)?;
        Ok((barrier, partner, at))
    }

    /// The same, in the own CTA or in all of the cluster.
    fn full_or_empty_of(
        &mut self,
        e: &'a Expr,
    ) -> Outcome<(BarrierId, Option<BarrierId>, ValueId, bool)> {
        let (meeting, part, at, whose) = self.meeting_of(e)?;
        let everywhere = match whose {
            Whose::Own => false,
            Whose::All(span) => {
                self.in_cluster(span)?;
                true
            }
            Whose::One(_) => return self.full_or_empty(e).map(|(b, p, at)| (b, p, at, false)),
        };
        let (barrier, partner) = self.side(meeting, part, e.span)?;
        Ok((barrier, partner, at, everywhere))
    }

    pub(super) fn side(
        &mut self,
        meeting: Meeting,
        part: Option<&str>,
        at: Span,
    ) -> Outcome<(BarrierId, Option<BarrierId>)> {
        match (meeting, part) {
            (Meeting::Pipeline { full, empty }, Some("full")) => Ok((full, Some(empty))),
            (Meeting::Pipeline { empty, full }, Some("empty")) => Ok((empty, Some(full))),
            (Meeting::Barrier(barrier), None) => Ok((barrier, None)),
            (Meeting::Pipeline { .. }, _) => Err(self.error(
                Diagnostic::error(Code::E0154, "which side of the pipeline?")
                    .label(at, "write `.full` or `.empty` behind its name"),
            )),
            (Meeting::Barrier(_), Some(_)) => {
                Err(self
                    .error(Diagnostic::error(Code::E0154, "a barrier has no parts").label(at, "")))
            }
        }
    }

    /// All CTAs of the cluster are named: there is one.
    pub(super) fn in_cluster(&mut self, at: Span) -> Outcome<()> {
        if self.kernel.launch.cluster_size() > 1 {
            return Ok(());
        }
        Err(self.error(
            cast("all CTAs of a cluster where there is none", at)
                .help("write `cluster: …` in `launch`"),
        ))
    }

    /// `s@cta(*)`: legal where a copy goes.
    pub(super) fn for_all(&mut self, name: &str, at: Span) -> Outcome<()> {
        if self.pipes.for_all.is_none() {
            return Err(self.error(cast("a place in all CTAs of the cluster", at).help(format!(
                "copies fill it: `copy.tma … -> {name}@cta(*)@t into ld.full@cta(*)@t`"
            ))));
        }
        self.pipes.for_all = Some(true);
        self.in_cluster(at)
    }

    /// The destination of a copy that a barrier counts, and whether it is that of all CTAs of the cluster.
    pub(super) fn copy_target(&mut self, dest: &'a Expr) -> Outcome<(Slice, bool)> {
        self.pipes.for_all = Some(false);
        let slice = self.slice(dest, dest.span);
        let for_all = self.pipes.for_all.take();
        Ok((slice?, for_all == Some(true)))
    }

    /// The role at hand is one of those that the edge names at this end.
    fn takes_part(&mut self, barrier: BarrierId, arrives: bool, span: Span) -> Outcome<()> {
        let declared = &self.kernel.barriers[barrier];
        let (name, defined) = (declared.name.clone(), declared.span);
        let verb = if arrives { "arrive at" } else { "wait for" };
        let Some(role) = self.role else {
            return Err(self.error(
                Diagnostic::error(Code::E0154, format!("`{name}` outside of roles"))
                    .label(span, format!("roles {verb} it")),
            ));
        };
        let role = self.kernel.roles[role].name.clone();
        let ends = self.pipes.ends.iter().find(|ends| ends.barrier == barrier);
        let names = ends.map_or(&[][..], |ends| if arrives { ends.from } else { ends.to });
        if names.iter().any(|name| name.text == role) {
            return Ok(());
        }
        let side = if arrives { "from" } else { "to" };
        Err(self.error(
            Diagnostic::error(Code::E0154, format!("`{role}` does not {verb} `{name}`"))
                .label(span, format!("the edge does not name it behind `{side}`"))
                .secondary(defined, "declared here"),
        ))
    }

    /// `open p@t;`
    pub(super) fn open(&mut self, e: &'a Expr, span: Span) -> Outcome<()> {
        let (meeting, part, at) = self.meeting(e)?;
        let (Meeting::Pipeline { full, empty }, None) = (meeting, part) else {
            return Err(self.error(
                Diagnostic::error(Code::E0154, "`open` of what is no pipeline")
                    .label(e.span, "write the name of the pipeline, and `@t`"),
            ));
        };
        self.takes_part(full, true, span)?;
        self.takes_part(empty, false, span)?;
        self.emit(StmtKind::Pipe(PipeOp::Open { full, empty, at }), span)
    }

    /// `wait b@t;`
    pub(super) fn wait(&mut self, e: &'a Expr, span: Span) -> Outcome<()> {
        let (barrier, partner, at) = self.full_or_empty(e)?;
        self.takes_part(barrier, false, span)?;
        if partner.is_some() && self.is_empty_side(barrier) {
            return Err(self.error(
                Diagnostic::error(Code::E0154, "a wait for an empty slot")
                    .label(span, "`open` waits for it, and not in the first round"),
            ));
        }
        self.emit(StmtKind::Pipe(PipeOp::Wait { barrier, at }), span)
    }

    /// True for `p.empty`: of the two it is declared last.
    pub(super) fn is_empty_side(&self, barrier: BarrierId) -> bool {
        self.kernel.barriers[barrier].partner.is_some_and(|partner| partner < barrier)
    }

    /// `release b@t;`
    pub(super) fn release(&mut self, e: &'a Expr, span: Span) -> Outcome<()> {
        let first = self.arrives_at_first(e, span)?;
        let (barrier, _, at, everywhere) = match first {
            Some((barrier, at)) => (barrier, None, at, false),
            None => self.full_or_empty_of(e)?,
        };
        self.takes_part(barrier, true, span)?;
        if self.kernel.barriers[barrier].bytes > 0 {
            return Err(self.error(
                Diagnostic::error(Code::E0154, "a release of what bytes fill")
                    .label(span, "`open` arrives with the bytes that it announces")
                    .help("remove it, or leave `bytes(…)` out and fill the slot by stores"),
            ));
        }
        if let (true, Some(wrong)) = (everywhere, self.not_for_all(barrier, e.span)) {
            return Err(self.error(wrong));
        }
        if let Some(role) = self.role {
            self.pipes.releases.push((barrier, role, span));
        }
        if first.is_none() {
            self.pipes.reaches.push((barrier, everywhere, span));
        }
        self.emit(StmtKind::Pipe(PipeOp::Release { barrier, at, everywhere }), span)
    }

    /// `commit b@t;`
    pub(super) fn commit_to(&mut self, e: &'a Expr, span: Span) -> Outcome<()> {
        let (barrier, _, at, everywhere) = self.full_or_empty_of(e)?;
        self.takes_part(barrier, true, span)?;
        if self.kernel.barriers[barrier].bytes > 0 {
            return Err(self.error(
                Diagnostic::error(Code::E0154, "a commit to what bytes fill")
                    .label(span, "`open` arrives with the bytes that it announces"),
            ));
        }
        if let Some(role) = self.role {
            self.pipes.commits.push((barrier, role, span));
        }
        self.pipes.reaches.push((barrier, everywhere, span));
        self.emit(StmtKind::Pipe(PipeOp::Commit { barrier, at, everywhere }), span)
    }

    /// `copy.bulk x[…] -> s@t into p.full@t;`
    pub(super) fn copy_bulk(&mut self, mv: &'a Move, dest: &'a Expr, span: Span) -> Outcome<()> {
        let source = self.slice(&mv.source, mv.source.span);
        let target = self.copy_target(dest);
        let (source, (target, for_all)) = (source?, target?);
        if source.storage.tile().is_some() {
            return self.copy_out(mv, (source, target), dest, CopyWay::Bulk, span);
        }
        let into = self.counted(mv, span)?;
        if source.has_until {
            return Err(self.error(
                Diagnostic::error(Code::E0206, "`until` in a bulk copy")
                    .label(mv.source.span, "a bulk copy moves all of its bytes")
                    .help("copy a box by `copy.tma`, of which what lies outside of the buffer arrives as zeros, or copy by `copy.async`"),
            ));
        }
        if let Storage::Buffer(_) | Storage::Remote(..) = target.storage {
            return Err(self.error(copy_dest(dest.span)));
        }
        self.whole_pieces(&target, dest.span)?;
        self.same_elements(&source, &target, mv.source.span, dest.span)?;
        match (source.access, target.access) {
            (Some(source), Some(dest)) => {
                self.start_copy(mv, (into, for_all), source, dest, CopyWay::Bulk, span)
            }
            (_, _) => Ok(()),
        }
    }

    /// The barrier that counts a copy.
    pub(super) fn counted(&mut self, mv: &'a Move, span: Span) -> Outcome<&'a Expr> {
        if mv.policy.no_allocate {
            return Err(self.not_built(span, "`no_allocate` of an asynchronous copy"));
        }
        mv.into.as_ref().ok_or_else(|| {
            self.error(
                Diagnostic::error(Code::E0154, "a copy that no barrier counts")
                    .label(span, "nobody could wait for it")
                    .help("write `into PIPELINE.full@t`"),
            )
        })
    }

    /// Starts a copy into a barrier.
    pub(super) fn start_copy(
        &mut self,
        mv: &'a Move,
        (into, for_all): (&'a Expr, bool),
        source: TileAccess,
        dest: TileAccess,
        way: CopyWay,
        span: Span,
    ) -> Outcome<()> {
        let first = self.counts_at_first(into, way)?;
        let (barrier, _, at, everywhere) = match first {
            Some((barrier, at)) => (barrier, None, at, false),
            None => self.full_or_empty_of(into)?,
        };
        self.pipes.counts.push((barrier, first.is_some(), span));
        if everywhere != for_all {
            return Err(self.error(
                cast("bytes that count at other CTAs than they go to", into.span)
                    .secondary(dest.span, "they go here")
                    .help("write `@cta(*)` both times"),
            ));
        }
        if everywhere {
            self.pipes.casts.push((barrier, span));
        }
        self.takes_part(barrier, true, span)?;
        if self.kernel.barriers[barrier].bytes == 0 {
            return Err(self.error(
                Diagnostic::error(Code::E0154, "a copy into a barrier that counts no bytes")
                    .label(into.span, "its edge says no `bytes(…)`")
                    .secondary(self.kernel.barriers[barrier].span, "declared here"),
            ));
        }
        let evict = mv.policy.evict.map(|evict| match evict {
            ast::Evict::First => Evict::First,
            ast::Evict::Last => Evict::Last,
        });
        let op = PipeOp::Copy { source, dest, barrier, at, evict, way, everywhere };
        self.emit(StmtKind::Pipe(op), span)
    }

    /// `copy.st_async v -> s@cta(c)[…] into b@cta(c);`
    pub(super) fn send(&mut self, mv: &'a Move, dest: &'a Expr, span: Span) -> Outcome<()> {
        let Some(into) = &mv.into else {
            return Err(self.error(
                Diagnostic::error(Code::E0154, "a store that no barrier counts")
                    .label(span, "nobody could wait for it")
                    .help("write `into BARRIER@cta(c)`"),
            ));
        };
        if self.role.is_none() {
            return Err(self.error(
                Diagnostic::error(Code::E0154, "`copy.st_async` outside of roles")
                    .label(span, "no role sends this")
                    .help("put it into a role; in a kernel without roles let the barrier go to all warps: `scope cluster to all`"),
            ));
        }
        let value = self.expr(&mv.source);
        let slice = self.slice(dest, dest.span);
        let (meeting, part, at, cta) = self.meeting_of(into)?;
        let (value, slice) = (value?, slice?);
        let (Storage::Remote(_, _, to), Whose::One(cta)) = (slice.storage, cta) else {
            return Err(self.error(
                Diagnostic::error(Code::E0154, "`copy.st_async` goes to a CTA of the cluster")
                    .label(span, "which one?")
                    .help("write `copy.st_async v -> s@cta(c)[…] into b@cta(c);`"),
            ));
        };
        let (barrier, partner) = self.side(meeting, part, into.span)?;
        let operand = self.expr(cta)?;
        let counted = self.scalar(operand, DType::I32, "the rank of a CTA", cta.span)?;
        let declared = &self.kernel.barriers[barrier];
        if partner.is_some() && declared.bytes > 0 {
            self.takes_part(barrier, true, span)?;
            self.pipes.casts.push((barrier, span));
        } else if !declared.of_cluster {
            let at = declared.span;
            return Err(self.error(
                Diagnostic::error(Code::E0154, "a barrier that counts no bytes of other CTAs")
                    .label(into.span, "declared without `scope cluster`")
                    .secondary(at, "declared here"),
            ));
        }
        if self.congruence(to) != self.congruence(counted)
            || (to != counted && self.congruence(to).0 != 0)
        {
            return Err(self.error(
                Diagnostic::error(Code::E0154, "bytes that count at another CTA")
                    .label(into.span, "not the CTA that they are sent to")
                    .secondary(dest.span, "sent here")
                    .help("name the same CTA both times"),
            ));
        }
        self.whole_pieces(&slice, dest.span)?;
        if matches!(slice.dtype, DType::Bool | DType::E2m1) {
            return Err(self.not_built(dest.span, &format!("`copy.st_async` of {}", slice.dtype)));
        }
        let tile = self.tile(value, Some(slice.dtype), mv.source.span)?;
        let wanted = "the destination";
        self.same_type(&tile, slice.dtype, &slice.shape, mv.source.span, dest.span, wanted)?;
        match (tile.id(), slice.access) {
            (Some(value), Some(dest)) => {
                self.emit(StmtKind::Pipe(PipeOp::Send { value, dest, barrier, at }), span)
            }
            (_, _) => Ok(()),
        }
    }
}

//! What roles do at barriers, written out one by one where all of it is constant.
//!
//! A role is run on the integers alone, for each rank in the cluster: loops with constant bounds round by round, choices
//! with a constant condition on one side. Values that are not constants are unknown, and a barrier is given up whose operations stand under a
//! choice or in a loop that is unknown, or that has an unknown index; so are all barriers of a kernel that does more
//! than [`MAX_STEPS`] statements.

use std::collections::{BTreeMap, BTreeSet};

use kernel_abi::DType;
use kernel_dsl::source::Span;

use super::super::scalars::{Knowledge, Symbol};
use crate::index::IndexVec;
use crate::kernel::{
    AxisIndex, BarrierId, Between, ClusterAxis, Kernel, Literal, Op, PipeOp, RoleId, SmemId, Stmt,
    StmtKind, Tensor, TensorMma, TileAccess, ValueId, each_pipe_op, first_of_pair,
};
use crate::ops::{BinaryOp, UnaryOp, eval};

/// Statements that are run, at most, in all CTAs of a cluster together.
pub(super) const MAX_STEPS: u32 = 1 << 22;

/// What is done at an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// `open p@t`
    Open,
    /// A copy of so many bytes.
    Fill { bytes: u64, to: To },
    /// `wait b@t`
    Wait,
    /// `release b@t`, in the own CTA or in all of the cluster.
    Release { barrier: BarrierId, everywhere: bool },
    /// Bytes that are sent to the barrier of the CTA with a rank.
    Send { cta: i64, bytes: u64 },
}

/// The CTAs of a cluster that a copy goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum To {
    All,
    One(i64),
}

impl To {
    /// Whether it goes to the one with a rank.
    pub(super) fn reaches(self, rank: i64) -> bool {
        match self {
            To::All => true,
            To::One(cta) => cta == rank,
        }
    }
}

/// An operation at a barrier.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event {
    /// The barrier by which the pipeline is known, or the barrier itself.
    pub(super) barrier: BarrierId,
    pub(super) act: Act,
    pub(super) index: i64,
    pub(super) span: Span,
}

/// What one role does, in its order.
#[derive(Debug)]
pub(super) struct Events {
    pub(super) role: RoleId,
    /// Roles of one region run side by side.
    pub(super) region: usize,
    pub(super) events: Vec<Event>,
}

/// Elements that are sent to a CTA.
#[derive(Debug)]
pub(super) struct Sent<'k> {
    pub(super) barrier: BarrierId,
    pub(super) cta: i64,
    pub(super) dest: &'k TileAccess,
    pub(super) sides: Sides,
    /// The slot.
    pub(super) slot: i64,
    pub(super) span: Span,
}

/// First position and number of positions along each axis of a view.
pub(super) type Sides = Vec<(i64, i64)>;

/// A product of a pair of CTAs.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) role: RoleId,
    /// What its role has done at barriers before.
    pub(super) after: usize,
    /// Tiles that it reads, with the slots.
    pub(super) reads: Vec<(SmemId, i64)>,
    pub(super) span: Span,
}

/// A copy into a pipeline whose slots are filled in all CTAs of the cluster, or count at the first of a pair.
#[derive(Debug)]
pub(super) struct Cast<'k> {
    /// The barrier by which the pipeline is known.
    pub(super) barrier: BarrierId,
    pub(super) index: i64,
    pub(super) to: To,
    pub(super) dest: &'k TileAccess,
    pub(super) sides: Sides,
    pub(super) slot: i64,
    pub(super) span: Span,
}

/// What all roles do in the CTA of a cluster with one rank.
#[derive(Debug, Default)]
pub(super) struct Rounds<'k> {
    pub(super) roles: Vec<Events>,
    pub(super) sent: Vec<Sent<'k>>,
    pub(super) cast: Vec<Cast<'k>>,
    /// Products of a pair of CTAs that the CTA starts.
    pub(super) products: Vec<Shared>,
    /// One of which it is not known whether it does, or what it reads.
    pub(super) unsure: Option<Span>,
    /// Barriers of which it is not known.
    pub(super) unknown: BTreeSet<BarrierId>,
    /// What numbers of the run are taken to be.
    pub(super) supposed: BTreeMap<Symbol, i32>,
    /// The loop in which there were too many statements.
    pub(super) spent: Option<Span>,
}

/// The barrier by which both sides of a pipeline are known.
pub(super) fn pipeline(kernel: &Kernel, barrier: BarrierId) -> BarrierId {
    kernel.barriers[barrier].partner.map_or(barrier, |partner| partner.min(barrier))
}

impl<'k> Rounds<'k> {
    pub(super) fn of(kernel: &'k Kernel, rank: u32) -> Rounds<'k> {
        Rounds::run(kernel, rank, None)
    }

    /// The same for one choice of the numbers that are known at run time alone: loops have more rounds than rings have
    /// slots, as far as what is promised of the numbers allows.
    pub(super) fn supposed(kernel: &'k Kernel, rank: u32, known: &'k Knowledge<'k>) -> Rounds<'k> {
        Rounds::run(kernel, rank, Some(known))
    }

    fn run(kernel: &'k Kernel, rank: u32, known: Option<&'k Knowledge<'k>>) -> Rounds<'k> {
        let mut run = Run {
            kernel,
            rank,
            known,
            values: kernel.values.iter().map(|_| None).collect(),
            region: 0,
            role: None,
            loops: Vec::new(),
            steps: MAX_STEPS / kernel.launch.cluster_size().max(1),
            found: Rounds::default(),
        };
        run.block(&kernel.body);
        if run.found.spent.is_some() {
            run.found.unknown.extend(kernel.barriers.ids());
            run.found.unsure = first_of_pair(&kernel.body);
        }
        run.found
    }
}

struct Run<'a> {
    kernel: &'a Kernel,
    rank: u32,
    /// What is known of numbers, where unknown ones are taken to be something.
    known: Option<&'a Knowledge<'a>>,
    /// Those that are constant here.
    values: IndexVec<ValueId, Option<u64>>,
    region: usize,
    role: Option<RoleId>,
    /// Loops around the place.
    loops: Vec<Span>,
    /// Statements that may still be run.
    steps: u32,
    found: Rounds<'a>,
}

impl<'a> Run<'a> {
    fn block(&mut self, stmts: &'a [Stmt]) {
        for stmt in stmts {
            let Some(steps) = self.steps.checked_sub(1) else {
                let at = self.loops.first().copied().unwrap_or(stmt.span);
                self.found.spent.get_or_insert(at);
                return;
            };
            self.steps = steps;
            self.stmt(stmt);
        }
    }

    fn stmt(&mut self, stmt: &'a Stmt) {
        match &stmt.kind {
            StmtKind::Def { results, op } => {
                if let &[result] = results.as_slice() {
                    self.values[result] = self.value(result, op).or_else(|| self.suppose(result));
                }
            }
            StmtKind::Pipe(op) => self.pipe(op, stmt.span),
            StmtKind::Role { role, body } => {
                self.role = Some(*role);
                let events = Events { role: *role, region: self.region, events: Vec::new() };
                self.found.roles.push(events);
                self.block(body);
                self.role = None;
                return;
            }
            StmtKind::For { tickets: Some(_), body, .. } => self.give_up(body),
            StmtKind::For { var, start, end, step, tickets: None, body } => {
                if !is_of_roles(body) {
                    return;
                }
                let (Some(start), Some(end)) = (self.int(*start), self.int(*end)) else {
                    return self.give_up(body);
                };
                self.loops.push(stmt.span);
                let mut at = start;
                while at < end && self.found.spent.is_none() {
                    self.values[*var] = Some(u64::from(at as u32));
                    self.block(body);
                    let Some(next) = i32::try_from(*step).ok().and_then(|s| at.checked_add(s))
                    else {
                        break;
                    };
                    at = next;
                }
                self.loops.pop();
            }
            StmtKind::If { cond, then_body, else_body } => {
                if !is_of_roles(then_body) && !is_of_roles(else_body) {
                    return;
                }
                match self.values[*cond] {
                    Some(0) => self.block(else_body),
                    Some(_) => self.block(then_body),
                    None => {
                        self.give_up(then_body);
                        self.give_up(else_body);
                    }
                }
            }
            StmtKind::Tensor(Tensor::Mma(mma)) if mma.atom.pair => self.product(mma, stmt.span),
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
        if self.role.is_none() {
            self.region += 1;
        }
    }

    fn product(&mut self, mma: &TensorMma, span: Span) {
        let slot_of = |access: &TileAccess| {
            let (tile, slot) = access.storage.tile()?;
            Some((tile, slot.map_or(Some(0), |slot| self.int(slot))?.into()))
        };
        let reads: Option<Vec<(SmemId, i64)>> = mma.reads().map(slot_of).collect();
        match (self.role, reads) {
            (Some(role), Some(reads)) => {
                let after = self.found.roles.last().map_or(0, |role| role.events.len());
                self.found.products.push(Shared { role, after, reads, span });
            }
            (_, _) => self.found.unsure = Some(span),
        }
    }

    fn give_up(&mut self, stmts: &[Stmt]) {
        self.found.unsure = self.found.unsure.or_else(|| first_of_pair(stmts));
        each_pipe_op(stmts, &mut |op, _| {
            self.found.unknown.insert(pipeline(self.kernel, op.place().0));
        });
    }

    fn pipe(&mut self, op: &'a PipeOp, span: Span) {
        let (barrier, at) = op.place();
        let barrier = pipeline(self.kernel, barrier);
        let Some(index) = self.int(at) else {
            self.found.unknown.insert(barrier);
            return;
        };
        let act = match op {
            PipeOp::Open { .. } => Act::Open,
            PipeOp::Wait { .. } => Act::Wait,
            PipeOp::Release { barrier, everywhere, .. }
            | PipeOp::Commit { barrier, everywhere, .. } => {
                Act::Release { barrier: *barrier, everywhere: *everywhere }
            }
            PipeOp::Copy { dest, everywhere, .. } => {
                let to = if *everywhere { To::All } else { To::One(self.rank.into()) };
                let declared = &self.kernel.barriers[barrier];
                let is_cast = declared.everywhere || declared.between == Between::Gathered;
                if is_cast && !self.cast(barrier, index, to, dest, span) {
                    return;
                }
                Act::Fill { bytes: super::bytes_of(self.kernel, dest), to }
            }
            PipeOp::Send { dest, .. } if self.kernel.barriers[barrier].partner.is_some() => {
                let cta = dest.storage.cta().and_then(|cta| self.int(cta));
                let to = To::One(cta.map_or(-1, i64::from));
                if cta.is_none() || !self.cast(barrier, index, to, dest, span) {
                    self.found.unknown.insert(barrier);
                    return;
                }
                Act::Fill { bytes: super::bytes_of(self.kernel, dest), to }
            }
            PipeOp::Send { dest, .. } => {
                let Some(sent) = self.sent(barrier, dest, span) else {
                    self.found.unknown.insert(barrier);
                    return;
                };
                let (cta, bytes) = (sent.cta, super::bytes_of(self.kernel, dest));
                self.found.sent.push(sent);
                Act::Send { cta, bytes }
            }
        };
        if let Some(role) = self.found.roles.last_mut().filter(|_| self.role.is_some()) {
            role.events.push(Event { barrier, act, index: index.into(), span });
        }
    }

    /// Notes what a copy into slots of all CTAs writes; false where that is not known.
    fn cast(
        &mut self,
        barrier: BarrierId,
        index: i32,
        to: To,
        dest: &'a TileAccess,
        span: Span,
    ) -> bool {
        let Some((sides, slot)) = self.places(dest) else {
            self.found.unknown.insert(barrier);
            return false;
        };
        let index = i64::from(index);
        self.found.cast.push(Cast { barrier, index, to, dest, sides, slot, span });
        true
    }

    /// Where elements are sent, if that is known.
    fn sent(&self, barrier: BarrierId, dest: &'a TileAccess, span: Span) -> Option<Sent<'a>> {
        let (sides, slot) = self.places(dest)?;
        let cta = i64::from(self.int(dest.storage.cta()?)?);
        Some(Sent { barrier, cta, dest, sides, slot, span })
    }

    /// First position and number of positions along each axis, and the slot, if they are known.
    fn places(&self, dest: &TileAccess) -> Option<(Sides, i64)> {
        let int = |value: ValueId| self.int(value).map(i64::from);
        let mut sides = Vec::new();
        for index in &dest.index {
            match index {
                AxisIndex::At(at) => sides.push((int(*at)?, 1)),
                AxisIndex::Range { start, len, until: None } => {
                    sides.push((int(*start)?, i64::from(*len)));
                }
                AxisIndex::New => {}
                AxisIndex::Range { .. } | AxisIndex::Gather(_) | AxisIndex::Along(_) => {
                    return None;
                }
            }
        }
        let slot = match dest.storage.tile()? {
            (_, Some(slot)) => int(slot)?,
            (_, None) => 0,
        };
        Some((sides, slot))
    }

    /// An i32 that is constant here.
    fn int(&self, value: ValueId) -> Option<i32> {
        let code = self.values[value]?;
        (self.kernel.values[value].dtype == DType::I32).then_some(code as u32 as i32)
    }

    /// Some i32 that is not known: one value for what has one form.
    fn suppose(&mut self, value: ValueId) -> Option<u64> {
        let known = self.known?;
        let declared = &self.kernel.values[value];
        if !declared.is_scalar() || declared.dtype != DType::I32 {
            return None;
        }
        let symbol = known.form(value).as_symbol()?;
        let number = match symbol {
            Symbol::Cta(axis) => self.place(ClusterAxis::Along(axis)) as i32,
            _ => match self.found.supposed.get(&symbol) {
                Some(&number) => number,
                None => {
                    let slots = self.kernel.barriers.iter().map(|barrier| barrier.slots).max();
                    let rounds = i128::from(slots.unwrap_or(1)) + 2;
                    // Where a loop goes from one number to another, the later one is the larger.
                    let wanted = rounds * (self.found.supposed.len() as i128 + 1);
                    let range = known.interval(&known.form(value));
                    let number =
                        wanted.min(range.hi.unwrap_or(wanted)).max(range.lo.unwrap_or(wanted));
                    let number = i32::try_from(number).ok()?;
                    self.found.supposed.insert(symbol, number);
                    number
                }
            },
        };
        Some(u64::from(number as u32))
    }

    /// Where the CTA is in its cluster.
    fn place(&self, axis: ClusterAxis) -> u32 {
        let [x, y, _] = self.kernel.launch.cluster.map(|extent| extent.max(1));
        match axis {
            ClusterAxis::Along(0) => self.rank % x,
            ClusterAxis::Along(1) => self.rank / x % y,
            ClusterAxis::Along(_) => self.rank / x / y,
            ClusterAxis::Rank => self.rank,
        }
    }

    /// The code of a constant of a type that indices and conditions have.
    fn value(&self, result: ValueId, op: &Op) -> Option<u64> {
        let declared = &self.kernel.values[result];
        if !declared.is_scalar() || !matches!(declared.dtype, DType::I32 | DType::Bool) {
            return None;
        }
        let known = |value: &ValueId| self.values[*value];
        let dtype = |value: &ValueId| self.kernel.values[*value].dtype;
        match op {
            Op::Const(Literal::Int(value)) => Some(u64::from(i32::try_from(*value).ok()? as u32)),
            Op::Const(Literal::Bool(value)) => Some(u64::from(*value)),
            Op::Unary { op: op @ (UnaryOp::Neg | UnaryOp::Not | UnaryOp::Abs), x } => {
                Some(eval::unary_code(*op, dtype(x), known(x)?))
            }
            Op::Binary { op, a, b } => {
                let (x, y) = (known(a)?, known(b)?);
                let is_shift = matches!(op, BinaryOp::Shl | BinaryOp::Shr);
                if is_shift && y > 31 {
                    return None;
                }
                eval::binary_code(*op, dtype(a), x, y).ok()
            }
            Op::Compare { op, a, b } => {
                Some(u64::from(eval::compare_code(*op, dtype(a), known(a)?, known(b)?)))
            }
            Op::Select { cond, a, b } => {
                if known(cond)? != 0 {
                    known(a)
                } else {
                    known(b)
                }
            }
            Op::ClusterIndex(axis) => Some(u64::from(self.place(*axis))),
            Op::Const(Literal::Float(_))
            | Op::CtaIndex(_)
            | Op::ScalarParam(_)
            | Op::Unary { .. }
            | Op::Fma { .. }
            | Op::Inline { .. }
            | Op::Convert { .. }
            | Op::Iota
            | Op::Splat { .. }
            | Op::Expand { .. }
            | Op::Load { .. }
            | Op::ReadVar { .. }
            | Op::Reduce { .. }
            | Op::Argmax { .. }
            | Op::Contract { .. }
            | Op::Mma { .. }
            | Op::Relayout { .. }
            | Op::Slice { .. }
            | Op::ArriveLast { .. }
            | Op::Atomic { .. }
            | Op::Scan { .. }
            | Op::Concat { .. } => None,
        }
    }
}

/// Whether statements do something at barriers, or start products of a pair of CTAs.
fn is_of_roles(stmts: &[Stmt]) -> bool {
    let mut found = first_of_pair(stmts).is_some();
    each_pipe_op(stmts, &mut |_, _| found = true);
    found
}

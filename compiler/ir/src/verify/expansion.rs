//! What the kernel level orders is ordered at the device level: translation validation of the expansion.
//!
//! The passes over the kernel level prove order on what the author wrote. This one takes that kernel and what the
//! expansion made of it and walks both as trees: each statement that orders or touches memory is there once, as the
//! operations that it is made of, in the same role, loop and arm of a choice, and in the same order. So each path
//! through the device kernel has the order of the path through the source that was proved.
//!
//! *What may differ.* Operations on registers alone stand anywhere. A prefetch brings nothing that a thread reads, so
//! its place is free, but for the wait that `device-memory-order` asks for. A fence too many, or a meeting too many
//! where all threads come, orders more; a meeting of an author's `sync` is counted all the same. What the expansion
//! exchanges through its own part of shared memory, and the fences that it adds, are judged by `device-fences`.
//! Two accesses move: a load from shared memory whose use is a contraction on the tensor core goes down to it over
//! definitions alone, which store to no shared memory and which the kernel level takes to order none; and a load from
//! tensor memory goes down to its `settle`, ahead of which the kernel level lets nothing follow it.
//!
//! A choice may be gone: where the expansion knows the condition, one arm alone has places. Its word is taken for that,
//! as for every value.
//!
//! Assumes that both levels are well formed. Leaves values, addresses, slots and rounds alone: the emulator compares
//! both levels by what they compute.

mod event;
mod expected;

use kernel_dsl::diag::{Code, Diagnostic, Sink};
use kernel_dsl::source::Span;
use rustc_hash::FxHashSet;

use crate::device::{DeviceKernel, DeviceStmt, LocId};
use crate::index::Id;
use crate::kernel::{
    Kernel, Op, Outgoing, PipeOp, RoleId, Stmt, StmtKind, Tensor, ValueId, each_pipe_op,
    first_of_pair,
};
use crate::smem_plan::SmemPlan;

pub(super) use event::{Event, Item, Memory, Reader, blocks};

pub(super) fn check(source: &Kernel, device: &DeviceKernel, sink: &mut Sink) {
    let places = Places::of(source);
    let plan = SmemPlan::of(source);
    let reader = Reader::new(device, plan.bytes());
    let (role, moved) = (None, Vec::new());
    // The first place is that of what belongs to no statement.
    let mut walk = Walk { source, device, plan, reader, places, next: 1, role, moved };
    if let Err(fault) = walk.kernel() {
        sink.push(walk.finding(fault));
    }
}

/// Texts of statements at which threads meet or publish, by what they order.
#[derive(Default)]
pub(super) struct Places {
    /// `sync` of each kind, and `await`.
    pub(super) meetings: FxHashSet<Span>,
    /// `publish`.
    fences: FxHashSet<Span>,
    /// Work lists.
    pub(super) tickets: FxHashSet<Span>,
}

impl Places {
    pub(super) fn of(kernel: &Kernel) -> Places {
        let mut places = Places::default();
        places.collect(&kernel.body);
        places
    }

    fn collect(&mut self, stmts: &[Stmt]) {
        for stmt in stmts {
            match &stmt.kind {
                StmtKind::Sync
                | StmtKind::SyncRole
                | StmtKind::SyncCluster
                | StmtKind::Await(_) => {
                    self.meetings.insert(stmt.span);
                }
                StmtKind::Outgoing(Outgoing::Publish { .. }) => {
                    self.fences.insert(stmt.span);
                }
                StmtKind::For { tickets: Some(_), .. } => {
                    self.tickets.insert(stmt.span);
                }
                _ => {}
            }
            stmt.kind.bodies().into_iter().for_each(|body| self.collect(body));
        }
    }
}

/// Where the two levels part.
struct Fault {
    /// The statement of the source.
    at: Span,
    /// What the device level should have there; nothing where it should have no more.
    wanted: Option<&'static str>,
    event: Option<Event>,
    /// What it has, and the place that this was made for.
    found: Option<(String, Option<Span>)>,
}

/// A statement of the source, by the place that its operations have and by its text.
#[derive(Debug, Clone, Copy)]
struct At {
    loc: LocId,
    span: Span,
}

/// A place in a block of the device level.
struct Cursor<'d> {
    stmts: &'d [DeviceStmt],
    at: usize,
    /// All threads of the CTA, or of the role, come here together.
    uniform: bool,
}

impl<'d> Cursor<'d> {
    fn of(stmts: &'d [DeviceStmt], uniform: bool) -> Cursor<'d> {
        Cursor { stmts, at: 0, uniform }
    }
}

struct Walk<'a> {
    source: &'a Kernel,
    device: &'a DeviceKernel,
    plan: SmemPlan,
    reader: Reader<'a>,
    places: Places,
    /// The place of the next statement.
    next: usize,
    role: Option<RoleId>,
    /// Loads that go down to a contraction: its result, and what is loaded.
    moved: Vec<(ValueId, ValueId, Event)>,
}

impl<'a> Walk<'a> {
    fn kernel(&mut self) -> Result<(), Fault> {
        let device = self.device;
        let mut cursor = Cursor::of(&device.body, true);
        let (name, pair) = (self.source.span, first_of_pair(&self.source.body).is_some());
        let meet = if pair { Event::MeetCluster } else { Event::Meet };
        if !self.source.barriers.is_empty() {
            let at = self.enter(name)?;
            self.expect(&mut cursor, at, Event::MakeBarriers)?;
            self.expect(&mut cursor, at, Event::Meet)?;
        }
        let has_tensor = self.plan.address().is_some();
        if has_tensor {
            let at = self.enter(name)?;
            if pair {
                self.expect(&mut cursor, at, Event::MeetCluster)?;
            }
            self.expect(&mut cursor, at, Event::AllocateTensor)?;
            self.expect(&mut cursor, at, Event::TensorFenceBefore)?;
            self.expect(&mut cursor, at, meet.clone())?;
            self.expect(&mut cursor, at, Event::TensorFenceAfter)?;
            self.expect(&mut cursor, at, Event::AttachTensor)?;
        }
        self.edge(&mut cursor, !pair)?;
        self.block(&mut cursor, &self.source.body)?;
        if has_tensor {
            let at = self.enter(name)?;
            self.expect(&mut cursor, at, Event::TensorFenceBefore)?;
            self.expect(&mut cursor, at, meet)?;
            self.expect(&mut cursor, at, Event::TensorFenceAfter)?;
            self.expect(&mut cursor, at, Event::FreeTensor)?;
        }
        self.edge(&mut cursor, !pair)?;
        self.end(&mut cursor, At { loc: LocId::new(0), span: name })?;
        if self.next < device.locs.len() {
            return Err(self.fault(&cursor, At { loc: LocId::new(0), span: name }, "nothing"));
        }
        Ok(())
    }

    /// The CTAs of a cluster meet where a place says so; whether they must is for `device-fences` to say.
    fn edge(&mut self, cursor: &mut Cursor<'a>, may_meet: bool) -> Result<(), Fault> {
        if !may_meet || !self.is_next(self.source.span) {
            return Ok(());
        }
        let at = self.enter(self.source.span)?;
        self.expect(cursor, at, Event::MeetCluster)
    }

    /// The next place is that of the statement with this text.
    fn is_next(&self, span: Span) -> bool {
        self.device.locs.get(LocId::new(self.next)).is_some_and(|place| place.span == span)
    }

    /// Comes to a statement: places count the statements of the source, in their order.
    fn enter(&mut self, span: Span) -> Result<At, Fault> {
        if !self.is_next(span) {
            let wanted = Some("a place");
            return Err(Fault { at: span, wanted, event: None, found: None });
        }
        let loc = LocId::new(self.next);
        self.next += 1;
        Ok(At { loc, span })
    }

    /// Goes past the places of statements of which nothing is made.
    fn pass(&mut self, stmts: &[Stmt]) -> Result<(), Fault> {
        for stmt in stmts {
            self.enter(stmt.span)?;
            match &stmt.kind {
                StmtKind::If { then_body, else_body, .. } => {
                    for arm in [then_body, else_body] {
                        if arm.first().is_some_and(|first| self.is_next(first.span)) {
                            self.pass(arm)?;
                        }
                    }
                }
                kind => kind.bodies().into_iter().try_for_each(|body| self.pass(body))?,
            }
        }
        Ok(())
    }

    fn block(&mut self, cursor: &mut Cursor<'a>, stmts: &'a [Stmt]) -> Result<(), Fault> {
        let mut rest = stmts;
        while let Some((stmt, behind)) = rest.split_first() {
            self.stmt(cursor, stmt, behind)?;
            rest = behind;
        }
        Ok(())
    }

    /// Statements of an inner block.
    fn inner(&mut self, body: &'a [DeviceStmt], stmts: &'a [Stmt], at: At) -> Result<(), Fault> {
        let mut cursor = Cursor::of(body, true);
        self.block(&mut cursor, stmts)?;
        self.end(&mut cursor, at)
    }

    fn stmt(
        &mut self,
        cursor: &mut Cursor<'a>,
        stmt: &'a Stmt,
        behind: &[Stmt],
    ) -> Result<(), Fault> {
        let at = self.enter(stmt.span)?;
        match &stmt.kind {
            StmtKind::Def { results, op } => self.definition(cursor, at, results, op, behind),
            StmtKind::For { tickets: None, body, .. } => match self.structure(cursor, at) {
                Some(Item::For(inner)) => self.inner(inner, body, at),
                None if self.is_bare(body) => self.pass(body),
                _ => Err(self.fault(cursor, at, "a loop")),
            },
            StmtKind::For { tickets: Some(word), body, .. } => {
                let Some(Item::Repeat(inner)) = self.structure(cursor, at) else {
                    return Err(self.fault(cursor, at, "a loop"));
                };
                let mut cursor = Cursor::of(inner, true);
                self.by_one_thread(&mut cursor, at, &[Event::Atomic(word.param)])?;
                match self.structure(&mut cursor, at) {
                    Some(Item::If([round, _])) => self.inner(round, body, at)?,
                    None if self.is_bare(body) => self.pass(body)?,
                    _ => return Err(self.fault(&cursor, at, "a round with its number")),
                }
                self.end(&mut cursor, at)
            }
            StmtKind::If { then_body, else_body, .. } => {
                if let Some(Item::If([first, second])) = self.structure(cursor, at) {
                    self.inner(first, then_body, at)?;
                    return self.inner(second, else_body, at);
                }
                if self.is_bare(then_body) && self.is_bare(else_body) {
                    self.next -= 1;
                    return self.pass(std::slice::from_ref(stmt));
                }
                let mut others = cursor.stmts.iter().filter(|other| other.loc == at.loc);
                if others.any(|other| matches!(self.reader.item(&other.op), Some(Item::If(_)))) {
                    return Err(self.fault(cursor, at, "a choice"));
                }
                // The condition is known: one arm alone has places.
                let is_next =
                    |body: &[Stmt]| body.first().is_some_and(|first| self.is_next(first.span));
                let mut arms = [then_body, else_body].into_iter().filter(|body| is_next(body));
                let Some(arm) = arms.next() else { return Ok(()) };
                self.block(cursor, arm)?;
                let is_first = std::ptr::eq(arm, then_body);
                match else_body.first() {
                    Some(other) if is_first && self.is_next(other.span) => {
                        Err(self.fault(cursor, at, "a choice"))
                    }
                    Some(_) | None => Ok(()),
                }
            }
            StmtKind::Role { role, body } => match self.structure(cursor, at) {
                Some(Item::Role(found, inner)) if found == *role => {
                    let outer = self.role.replace(*role);
                    let done = self.role_body(inner, body, *role, at);
                    self.role = outer;
                    done
                }
                _ => Err(self.fault(cursor, at, "a role")),
            },
            StmtKind::Prefetch { .. }
            | StmtKind::Assert { .. }
            | StmtKind::Trace { .. }
            | StmtKind::Printf { .. } => Ok(()),
            StmtKind::SetVar { .. }
            | StmtKind::Store { .. }
            | StmtKind::Advance { .. }
            | StmtKind::Signal(_)
            | StmtKind::Await(_)
            | StmtKind::CopyAsync { .. }
            | StmtKind::EmptyGroup
            | StmtKind::Settle { .. }
            | StmtKind::Outgoing(_)
            | StmtKind::Warpgroup(_)
            | StmtKind::Tensor(_)
            | StmtKind::Sync
            | StmtKind::SyncCluster
            | StmtKind::SyncRole
            | StmtKind::Pipe(_)
            | StmtKind::GridWait
            | StmtKind::GridLaunch => self.plain(cursor, at, &stmt.kind),
        }
    }

    /// A role, and behind it the waits for what another CTA still commits to slots that nobody opens again.
    fn role_body(
        &mut self,
        inner: &'a [DeviceStmt],
        body: &'a [Stmt],
        role: RoleId,
        at: At,
    ) -> Result<(), Fault> {
        let mut cursor = Cursor::of(inner, true);
        self.block(&mut cursor, body)?;
        let mut committed = std::collections::BTreeSet::new();
        each_pipe_op(&self.source.body, &mut |op, _| {
            if let PipeOp::Commit { barrier, everywhere: true, .. } = op {
                committed.insert(*barrier);
            }
        });
        for empty in committed {
            let declared = &self.source.barriers[empty];
            let Some(full) = declared.partner.filter(|_| declared.to.contains(&role)) else {
                continue;
            };
            let opened = super::indices_opened(self.source, role, full);
            let at = self.enter(declared.span)?;
            for _ in 0..opened.min(i64::from(declared.slots)) {
                self.expect(&mut cursor, at, Event::Wait(empty))?;
            }
        }
        self.end(&mut cursor, at)
    }

    fn is_elected(&self) -> bool {
        self.role.is_some_and(|role| self.source.roles[role].elect)
    }

    fn place(&self, stmt: &DeviceStmt) -> Option<Span> {
        self.device.locs.get(stmt.loc).map(|loc| loc.span)
    }

    /// True for what the expansion may add, or put where it likes.
    fn is_free(&self, stmt: &DeviceStmt, uniform: bool) -> bool {
        let is_of =
            |places: &FxHashSet<Span>| self.place(stmt).is_none_or(|at| places.contains(&at));
        match self.reader.item(&stmt.op) {
            None => true,
            Some(Item::For(body)) => body.iter().all(|stmt| self.is_free(stmt, uniform)),
            Some(Item::If(arms)) => {
                arms.into_iter().flatten().all(|stmt| self.is_free(stmt, false))
            }
            Some(Item::Repeat(_) | Item::Role(..)) => false,
            Some(Item::Event(event)) => match event {
                Event::Load(memory) | Event::Store(memory, None) => memory == Memory::Exchange,
                Event::Prefetch => true,
                Event::Meet => uniform && self.role.is_none() && !is_of(&self.places.meetings),
                Event::MeetRole(role) => {
                    uniform && self.role == Some(role) && !is_of(&self.places.meetings)
                }
                Event::CopyFence | Event::SharedFence => !is_of(&self.places.fences),
                Event::TensorFenceBefore | Event::TensorFenceAfter => true,
                _ => false,
            },
        }
    }

    /// Goes past an event where it is the next that counts.
    fn take(&self, cursor: &mut Cursor<'a>, at: At, wanted: &Event) -> bool {
        let mut next = cursor.at;
        while let Some(stmt) = cursor.stmts.get(next) {
            if stmt.loc == at.loc
                && let Some(Item::Event(event)) = self.reader.item(&stmt.op)
                && event == *wanted
            {
                cursor.at = next + 1;
                return true;
            }
            if !self.is_free(stmt, cursor.uniform) {
                return false;
            }
            next += 1;
        }
        false
    }

    fn expect(&self, cursor: &mut Cursor<'a>, at: At, wanted: Event) -> Result<(), Fault> {
        if self.take(cursor, at, &wanted) {
            return Ok(());
        }
        Err(Fault { event: Some(wanted), ..self.fault(cursor, at, "") })
    }

    /// The loop, choice or role that is next, made for the statement at this place.
    fn structure(&self, cursor: &mut Cursor<'a>, at: At) -> Option<Item<'a>> {
        let mut next = cursor.at;
        while let Some(stmt) = cursor.stmts.get(next) {
            match self.reader.item(&stmt.op) {
                Some(Item::Event(_)) | None => {}
                Some(item) if stmt.loc == at.loc => {
                    cursor.at = next + 1;
                    return Some(item);
                }
                Some(_) => {}
            }
            if !self.is_free(stmt, cursor.uniform) {
                return None;
            }
            next += 1;
        }
        None
    }

    /// Nothing that counts is left of a block.
    fn end(&self, cursor: &mut Cursor<'a>, at: At) -> Result<(), Fault> {
        while let Some(stmt) = cursor.stmts.get(cursor.at) {
            if !self.is_free(stmt, cursor.uniform) {
                return Err(Fault { wanted: None, ..self.fault(cursor, at, "") });
            }
            cursor.at += 1;
        }
        Ok(())
    }

    fn fault(&self, cursor: &Cursor<'a>, at: At, wanted: &'static str) -> Fault {
        let next = cursor.stmts[cursor.at.min(cursor.stmts.len())..].iter();
        let found =
            next.clone().find(|stmt| !self.is_free(stmt, cursor.uniform)).and_then(|stmt| {
                let what = match self.reader.item(&stmt.op)? {
                    Item::Event(event) => event.to_string(),
                    Item::For(_) | Item::Repeat(_) => "a loop".to_owned(),
                    Item::If(_) => "a choice".to_owned(),
                    Item::Role(..) => "a role".to_owned(),
                };
                Some((what, self.place(stmt)))
            });
        Fault { at: at.span, wanted: Some(wanted), event: None, found }
    }

    fn finding(&self, fault: Fault) -> Diagnostic {
        let wanted = match (fault.event, fault.wanted) {
            (Some(event), _) => format!("{event} is made of this next"),
            (None, Some(wanted)) => format!("{wanted} is made of this next"),
            (None, None) => "nothing more is made of this".to_owned(),
        };
        let message = "the device level does not have the order of the source";
        let mut finding = Diagnostic::error(Code::E0810, message).label(fault.at, wanted);
        finding = match fault.found {
            Some((what, Some(place))) if place != fault.at => {
                finding.secondary(place, format!("the expansion has {what} of this first"))
            }
            Some((what, _)) => finding.note(format!("the expansion has {what} first")),
            None => finding.note("the expansion has nothing more in this block"),
        };
        finding.note("this is a fault of the compiler, not of the kernel")
    }

    /// True for statements of which nothing is made that counts.
    fn is_bare(&self, stmts: &[Stmt]) -> bool {
        stmts.iter().all(|stmt| match &stmt.kind {
            StmtKind::Def { results, op: Op::Load { .. } } => {
                results.iter().all(|&value| self.is_nothing(value))
            }
            StmtKind::Def { op, .. } => !matches!(op, Op::Atomic { .. } | Op::ArriveLast { .. }),
            StmtKind::Store { value, .. } => self.is_nothing(*value),
            // One thread alone has nobody to meet.
            StmtKind::Sync | StmtKind::SyncRole => self.is_elected(),
            StmtKind::Tensor(op) => matches!(op, Tensor::Load { .. }),
            StmtKind::SetVar { .. }
            | StmtKind::Prefetch { .. }
            | StmtKind::Assert { .. }
            | StmtKind::Trace { .. }
            | StmtKind::Printf { .. } => true,
            StmtKind::For { tickets: None, body, .. } => self.is_bare(body),
            StmtKind::If { then_body, else_body, .. } => {
                self.is_bare(then_body) && self.is_bare(else_body)
            }
            StmtKind::For { tickets: Some(_), .. }
            | StmtKind::Role { .. }
            | StmtKind::Advance { .. }
            | StmtKind::Signal(_)
            | StmtKind::Await(_)
            | StmtKind::CopyAsync { .. }
            | StmtKind::EmptyGroup
            | StmtKind::Settle { .. }
            | StmtKind::Outgoing(_)
            | StmtKind::Warpgroup(_)
            | StmtKind::SyncCluster
            | StmtKind::Pipe(_)
            | StmtKind::GridWait
            | StmtKind::GridLaunch => false,
        })
    }
}

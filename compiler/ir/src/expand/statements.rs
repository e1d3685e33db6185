//! Walks the statements: places, the side of the wait, control flow and variables.

use kernel_abi::DType;
use kernel_dsl::diag::Diagnostic;

use super::linear::{Fact, Linear};
use super::prefetch::prefetched;
use super::uses::each_use;
use super::{Expander, Repr};
use crate::device::{Arg, DeviceOp, FragId, LocId, OpRole, Slot, SlotId};
use crate::kernel::{
    Op, Outgoing, PipeOp, PrefetchRange, Stmt, StmtKind, Tensor, ValueId, VarId, Warpgroup,
};
use crate::order;

impl<'k> Expander<'k> {
    /// Expands a block; nothing waits at its end.
    pub(super) fn block(&mut self, stmts: &'k [Stmt]) {
        for stmt in stmts {
            if !matches!(stmt.kind, StmtKind::Role { .. }) {
                self.end_region();
            }
            let role = self.role(&stmt.kind);
            let loc = self.b.place(stmt.span, role);
            self.statement(stmt, loc);
        }
        self.end_region();
        self.flush();
    }

    fn role(&self, kind: &StmtKind) -> OpRole {
        let order = self.order;
        match kind {
            StmtKind::Def { op: Op::Load { access, .. }, .. } => {
                match self.kernel.reached_by(access.storage) {
                    Some(param) => OpRole::Load { param, order },
                    None => OpRole::Compute,
                }
            }
            StmtKind::Signal(signal) => OpRole::Signal { param: signal.param },
            StmtKind::Await(wait) => OpRole::Await { param: wait.param },
            StmtKind::Store { access, update, .. } => {
                match self.kernel.reached_by(access.storage) {
                    Some(param) if update.is_some() => OpRole::Update { param, order },
                    Some(param) => OpRole::Store { param, order },
                    None => OpRole::Compute,
                }
            }
            StmtKind::CopyAsync { source, .. } | StmtKind::Pipe(PipeOp::Copy { source, .. }) => {
                match self.kernel.reached_by(source.storage) {
                    Some(param) => OpRole::Load { param, order },
                    None => OpRole::Compute,
                }
            }
            StmtKind::Outgoing(Outgoing::Copy { dest, .. }) => {
                match self.kernel.reached_by(dest.storage) {
                    Some(param) => OpRole::Store { param, order },
                    None => OpRole::Compute,
                }
            }
            StmtKind::Prefetch { what, .. } => {
                let param = match what {
                    PrefetchRange::Tile(access) | PrefetchRange::Box(access) => prefetched(access),
                    PrefetchRange::Elements { param, .. } => *param,
                };
                OpRole::Prefetch { param, order }
            }
            StmtKind::GridWait => OpRole::GridWait,
            StmtKind::GridLaunch => OpRole::GridLaunch,
            StmtKind::Advance { word } => OpRole::Store { param: word.param, order },
            StmtKind::Def { op: Op::ArriveLast { word, .. }, .. } => {
                OpRole::Arrive { param: word.param }
            }
            StmtKind::Def { op: Op::Atomic { access, .. }, .. } => {
                match self.kernel.reached_by(access.storage) {
                    Some(param) => OpRole::Update { param, order },
                    None => OpRole::Compute,
                }
            }
            StmtKind::For { tickets: Some(word), .. } => {
                OpRole::Update { param: word.param, order }
            }
            StmtKind::If { cond, .. } if self.arrivals.contains_key(cond) => {
                OpRole::LastArriver { param: self.arrivals[cond] }
            }
            StmtKind::Def { .. }
            | StmtKind::SetVar { .. }
            | StmtKind::Assert { .. }
            | StmtKind::Trace { .. }
            | StmtKind::Printf { .. }
            | StmtKind::EmptyGroup
            | StmtKind::Outgoing(_)
            | StmtKind::Settle { .. }
            | StmtKind::Warpgroup(_)
            | StmtKind::Tensor(_)
            | StmtKind::Sync
            | StmtKind::SyncCluster
            | StmtKind::SyncRole
            | StmtKind::Pipe(_)
            | StmtKind::Role { .. }
            | StmtKind::For { .. }
            | StmtKind::If { .. } => OpRole::Compute,
        }
    }

    /// Completes every fold that waits, and the statements that wait for them.
    fn flush(&mut self) {
        while !self.queue.is_empty() {
            let (pending, deferred) = self.queue.take();
            if !pending.is_empty()
                && let Err(error) = self.exchange(pending.clone())
            {
                self.errors.push(error);
                for one in pending {
                    self.finish(one);
                }
            }
            for (stmt, loc) in deferred {
                self.statement(stmt, loc);
            }
        }
    }

    /// Expands a statement now, or puts it off until the folds that it needs are complete.
    fn statement(&mut self, stmt: &'k Stmt, loc: LocId) {
        let mut waits = false;
        each_use(&stmt.kind, |value| waits |= self.queue.is_waiting(value));
        match &stmt.kind {
            StmtKind::Def { op: Op::Load { .. } | Op::Mma { .. }, .. }
            | StmtKind::SetVar { .. }
            | StmtKind::Store { .. }
            | StmtKind::Prefetch { .. }
            | StmtKind::Assert { .. }
            | StmtKind::Trace { .. }
            | StmtKind::Printf { .. } => {
                if waits {
                    self.flush();
                }
            }
            StmtKind::Def { op: Op::ArriveLast { .. } | Op::Atomic { .. }, .. }
            | StmtKind::Advance { .. } => self.flush(),
            StmtKind::Def { results, .. } => {
                if waits {
                    return self.queue.defer(stmt, loc, results);
                }
            }
            StmtKind::CopyAsync { .. }
            | StmtKind::EmptyGroup
            | StmtKind::Outgoing(_)
            | StmtKind::Settle { .. }
            | StmtKind::Warpgroup(_)
            | StmtKind::Tensor(_)
            | StmtKind::Sync
            | StmtKind::Signal(_)
            | StmtKind::Await(_)
            | StmtKind::SyncCluster
            | StmtKind::SyncRole
            | StmtKind::Pipe(_)
            | StmtKind::GridWait
            | StmtKind::GridLaunch
            | StmtKind::Role { .. }
            | StmtKind::For { .. }
            | StmtKind::If { .. } => self.flush(),
        }
        self.b.loc = loc;
        if let Err(error) = self.expand_now(stmt) {
            self.errors.push(error);
            if let StmtKind::Def { results, .. } = &stmt.kind {
                for &result in results {
                    let value = &self.kernel.values[result];
                    let frag = self.b.frag(value.dtype, value.distribution.registers());
                    self.bind(result, frag);
                }
            }
        }
    }

    fn expand_now(&mut self, stmt: &'k Stmt) -> Result<(), Diagnostic> {
        match &stmt.kind {
            StmtKind::Def { results, op } => self.def(results, op)?,
            StmtKind::SetVar { var, slot, value } => self.set_var(*var, *slot, *value),
            StmtKind::Store { value, access, update, cache } => {
                self.store(*value, access, *update, *cache)?
            }
            StmtKind::Prefetch { what, evict } => self.prefetch(what, *evict)?,
            StmtKind::Advance { word } => self.advance(word),
            StmtKind::Signal(signal) => self.signal(signal),
            StmtKind::Await(wait) => {
                self.hand_over_operands();
                self.wait_for(wait);
            }
            StmtKind::CopyAsync { source, dest, evict } => {
                self.copy_async(source, dest, *evict)?;
            }
            StmtKind::EmptyGroup => self.b.emit(DeviceOp::CommitGroup),
            StmtKind::Settle { pending, .. } => self.settle(*pending),
            StmtKind::Outgoing(op) => self.outgoing(op)?,
            StmtKind::Warpgroup(op) => self.warpgroup(op)?,
            StmtKind::Tensor(op) => self.tensor(op)?,
            StmtKind::Sync => {
                self.hand_over_operands();
                self.barrier();
            }
            StmtKind::SyncCluster => {
                self.hand_over_to_cluster();
                self.cluster_barrier();
                self.take_over_operands();
            }
            StmtKind::SyncRole => {
                self.hand_over_operands();
                self.barrier();
            }
            StmtKind::Pipe(op) => self.pipe(op)?,
            StmtKind::Role { role, body } => self.role_body(*role, body),
            StmtKind::GridWait => {
                self.b.emit(DeviceOp::GridWait);
                self.order_kernels();
                self.order = order::after(self.order, std::slice::from_ref(stmt));
            }
            StmtKind::GridLaunch => self.b.emit(DeviceOp::GridLaunch),
            StmtKind::Assert { cond, message } => {
                let cond = self.frag(*cond);
                if self.b.known((cond, 0)) != Some(true) {
                    self.b.emit(DeviceOp::Assert { cond, message: message.clone() });
                }
            }
            StmtKind::Trace { event } => self.b.emit(DeviceOp::Trace { event: *event }),
            StmtKind::Printf { format, args } => {
                let args = args.iter().map(|&arg| self.frag(arg)).collect();
                self.b.emit(DeviceOp::Printf { format: format.clone(), args });
            }
            StmtKind::For { var, end, tickets: Some(word), body, .. } => {
                self.work_list(*var, *end, word, body)?;
            }
            StmtKind::For { var, start, end, step, tickets: None, body } => {
                self.for_loop(*var, *start, *end, *step, body);
            }
            StmtKind::If { cond, then_body, else_body } => {
                self.choice(*cond, then_body, else_body);
            }
        }
        Ok(())
    }

    fn def(&mut self, results: &[ValueId], op: &'k Op) -> Result<(), Diagnostic> {
        let Some(&result) = results.first() else { return Ok(()) };
        match op {
            Op::Const(literal) => self.literal(result, *literal),
            Op::CtaIndex(axis) => {
                let form = self.b.cta(*axis);
                self.bind_int(result, form);
            }
            Op::ClusterIndex(axis) => {
                let form = self.b.cluster(*axis);
                self.bind_int(result, form);
            }
            Op::ScalarParam(param) => {
                let (frag, _) = self.b.param(*param);
                self.bind(result, frag);
            }
            Op::Unary { op, x } => self.unary(result, *op, *x),
            Op::Binary { op, a, b } => self.binary(result, *op, *a, *b),
            Op::Compare { op, a, b } => self.compare(result, *op, *a, *b),
            Op::Select { cond, a, b } => self.select(result, *cond, *a, *b),
            Op::Fma { a, b, c } => self.fma(result, *a, *b, *c),
            Op::Inline { text, equals, inputs } => self.inline(result, text, *equals, inputs),
            Op::Convert { x } => self.convert(result, *x),
            Op::Iota => self.iota(result),
            Op::Splat { x } => self.splat(result, *x),
            Op::Expand { x, axes } => self.expand_axes(result, *x, axes),
            Op::Load { access, .. } if self.read_in_place.contains(&result) => {
                self.in_place.insert(result, access);
            }
            Op::Load { access, other, cache } => {
                let kernel = self.kernel;
                let distribution = &kernel.values[result].distribution;
                let frag = self.load(access, distribution, *other, *cache)?;
                self.bind(result, frag);
            }
            Op::ReadVar { var, slot } => self.read_var(result, *var, *slot),
            Op::Reduce { op, x, axis } => self.reduce(result, *op, *x, usize::from(*axis)),
            Op::Argmax { x, axis } => self.argmax(results, *x, usize::from(*axis)),
            Op::Mma { spec, a, b, acc } => self.mma(result, spec, *a, *b, *acc)?,
            Op::Contract { spec, a, b, acc } => self.contract(result, spec, *a, *b, *acc)?,
            Op::Relayout { x } => self.relayout(result, *x)?,
            Op::ArriveLast { word, count } => self.arrive_last(result, word, *count)?,
            Op::Atomic { op, value, access } => self.atomic(result, *op, *value, access)?,
            Op::Scan { x, axis, exclusive } => {
                self.scan(result, *x, usize::from(*axis), *exclusive)?;
            }
            Op::Slice { x, parts } => self.slice_tile(result, *x, parts),
            Op::Concat { a, b, axis } => self.concat(result, *a, *b, usize::from(*axis)),
        }
        Ok(())
    }

    pub(super) fn slot(&mut self, var: VarId, slot: u32) -> SlotId {
        let kernel = self.kernel;
        *self.slots.entry((var, slot)).or_insert_with(|| {
            let declared = &kernel.vars[var];
            let name = match declared.slots {
                1 => declared.name.clone(),
                _ => format!("{}@{slot}", declared.name),
            };
            let len = declared.distribution.registers();
            self.b.slots.push(Slot { name, dtype: declared.dtype, len })
        })
    }

    fn set_var(&mut self, var: VarId, slot: u32, value: ValueId) {
        let frag = self.frag(value);
        let id = self.slot(var, slot);
        if self.b.slots[id].len > 0 {
            self.b.emit(DeviceOp::SetSlot { slot: id, x: Arg::whole(frag) });
        }
        self.contents.insert((var, slot), frag);
    }

    fn read_var(&mut self, result: ValueId, var: VarId, slot: u32) {
        let frag = match self.contents.get(&(var, slot)) {
            Some(&frag) => frag,
            None => {
                let id = self.slot(var, slot);
                let frag = self.define_value(result, |dst| DeviceOp::ReadSlot { dst, slot: id });
                self.contents.insert((var, slot), frag);
                frag
            }
        };
        self.bind(result, frag);
    }

    fn for_loop(
        &mut self,
        var: ValueId,
        start: ValueId,
        end: ValueId,
        step: u32,
        body: &'k [Stmt],
    ) {
        let (from, to) = (self.integer(start), self.integer(end));
        let (start, end) = (self.frag(start), self.frag(end));
        let frag = self.loop_variable(&from, &to, step);
        let loc = self.b.loc;
        self.values.insert(var, Repr::Int(Linear::register((frag, 0))));

        let before = self.order;
        self.order = order::loop_entry(before, body);
        let mut kept = self.contents.clone();
        forget_assigned(&mut kept, body);
        self.contents = kept.clone();
        let outer = self.shared.enter_loop();
        self.b.open();
        self.block(body);
        if self.shared.round_collides() {
            self.barrier();
        }
        let stmts = self.b.close();
        self.shared.leave_loop(outer);
        self.contents = kept;
        self.order = order::join(before, self.order);
        self.b.loc = loc;
        self.b.emit(DeviceOp::For { var: frag, start, end, step, body: stmts });
    }

    /// The variable of a loop that is about to be opened.
    pub(super) fn loop_variable(&mut self, from: &Linear, to: &Linear, step: u32) -> FragId {
        let frag = self.b.loop_frag(DType::I32);
        let (lo, hi) = (self.b.range(from).0, self.b.range(to).1 - 1);
        let multiple = super::linear::gcd(self.b.multiple(from), u64::from(step));
        if let (Ok(lo), Ok(hi)) = (i64::try_from(lo), i64::try_from(hi.max(lo))) {
            self.b.learn((frag, 0), Fact { lo, hi, multiple });
        }
        frag
    }

    fn choice(&mut self, cond: ValueId, then_body: &'k [Stmt], else_body: &'k [Stmt]) {
        let cond = self.frag(cond);
        match self.b.known((cond, 0)) {
            Some(true) => return self.block(then_body),
            Some(false) => return self.block(else_body),
            None => {}
        }
        let loc = self.b.loc;
        let before = self.order;
        let contents = self.contents.clone();
        let flow = self.shared.enter_choice();
        self.b.open();
        self.block(then_body);
        let then_stmts = self.b.close();
        let first = self.shared.other_arm(flow);
        let after_then = std::mem::replace(&mut self.order, before);
        self.contents = contents.clone();
        self.b.open();
        self.block(else_body);
        let else_stmts = self.b.close();
        self.shared.leave_choice(first);
        self.order = order::join(after_then, self.order);
        self.contents = contents;
        forget_assigned(&mut self.contents, then_body);
        forget_assigned(&mut self.contents, else_body);
        self.b.loc = loc;
        self.b.emit(DeviceOp::If { cond, then_body: then_stmts, else_body: else_stmts });
    }
}

/// Drops what is known of slots that the statements assign.
pub(super) fn forget_assigned(
    contents: &mut rustc_hash::FxHashMap<(VarId, u32), FragId>,
    stmts: &[Stmt],
) {
    for stmt in stmts {
        if let StmtKind::SetVar { var, slot, .. } = &stmt.kind {
            contents.remove(&(*var, *slot));
        } else if let StmtKind::Warpgroup(Warpgroup::Mma(mma)) = &stmt.kind {
            contents.remove(&(mma.var, mma.slot));
        } else if let StmtKind::Tensor(Tensor::Load { var, slot, .. }) = &stmt.kind {
            contents.remove(&(*var, *slot));
        }
        for body in stmt.kind.bodies() {
            forget_assigned(contents, body);
        }
    }
}

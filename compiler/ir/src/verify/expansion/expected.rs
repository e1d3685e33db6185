//! Of which operations each statement is made, in which order.

use super::event::{Event, Item, Memory};
use super::{At, Cursor, Fault, Walk};
use crate::distribution::LANES;
use crate::infer::tile_axes;
use crate::kernel::{
    Extent, LeftOperand, Op, Outgoing, PipeOp, SCALE_ROWS, SCALE_WORD, Stmt, StmtKind, Storage,
    Tensor, TensorMma, TileAccess, ValueId, VarId, Warpgroup, WarpgroupMma,
};

impl<'a> Walk<'a> {
    fn memory(&self, storage: Storage) -> Memory {
        let base = |tile| u32::try_from(self.plan.base(tile)).unwrap_or(u32::MAX);
        match storage {
            Storage::Buffer(param) => Memory::Buffer(param),
            Storage::Peer(param, _) | Storage::Peers(param) => Memory::Peer(param),
            Storage::Multicast(memory, _) => {
                Memory::Multicast(self.source.window_of(memory).unwrap_or(memory))
            }
            Storage::Smem(tile, _) => Memory::Tile(base(tile)),
            Storage::Remote(tile, ..) => Memory::Remote(base(tile)),
        }
    }

    fn base(&self, access: &TileAccess) -> Option<u32> {
        match self.memory(access.storage) {
            Memory::Tile(base) | Memory::Remote(base) => Some(base),
            Memory::Buffer(_) | Memory::Peer(_) | Memory::Multicast(_) | Memory::Exchange => None,
        }
    }

    /// The name of a slot of registers, as the device level has it.
    fn slot(&self, var: VarId, slot: u32) -> String {
        let declared = &self.source.vars[var];
        match declared.slots {
            1 => declared.name.clone(),
            _ => format!("{}@{slot}", declared.name),
        }
    }

    pub(super) fn is_nothing(&self, value: ValueId) -> bool {
        self.source.values[value].distribution.registers() == 0
    }

    /// So many events of a kind.
    fn several(
        &self,
        cursor: &mut Cursor<'a>,
        at: At,
        event: &Event,
        count: u32,
    ) -> Result<(), Fault> {
        (0..count).try_for_each(|_| self.expect(cursor, at, event.clone()))
    }

    /// Stores of one thread to all ranks: threads that hold the same elements share them.
    fn rounds_of_ranks(&self, value: ValueId) -> u32 {
        let spread = &self.source.values[value].distribution;
        let free = spread.free_lanes().into_iter().chain(spread.free_warps());
        let replicas: u32 = free.map(|digit| digit.extent).product();
        let ranks = self.source.launch.world.unwrap_or(1);
        ranks.div_ceil(if self.is_elected() { 1 } else { replicas.max(1) })
    }

    /// All threads meet, where there are several.
    fn meeting(&self, cursor: &mut Cursor<'a>, at: At) -> Result<(), Fault> {
        if self.is_elected() {
            return Ok(());
        }
        self.expect(cursor, at, self.role.map_or(Event::Meet, Event::MeetRole))
    }

    /// So many lanes of the first warp alone do it.
    fn in_some_lanes(
        &self,
        cursor: &mut Cursor<'a>,
        at: At,
        lanes: u32,
        events: &[Event],
    ) -> Result<(), Fault> {
        let warps = self.role.map_or(self.source.launch.warps, |r| self.source.roles[r].warps);
        if warps == 1 && lanes >= LANES {
            return events.iter().try_for_each(|event| self.expect(cursor, at, event.clone()));
        }
        let Some(Item::If([body, other])) = self.structure(cursor, at) else {
            return Err(self.fault(cursor, at, "what some threads alone do"));
        };
        let mut inner = Cursor::of(body, false);
        for event in events {
            self.expect(&mut inner, at, event.clone())?;
        }
        self.end(&mut inner, at)?;
        self.end(&mut Cursor::of(other, false), at)
    }

    /// All threads meet, one does it, and all meet again and learn what it found.
    pub(super) fn by_one_thread(
        &self,
        cursor: &mut Cursor<'a>,
        at: At,
        events: &[Event],
    ) -> Result<(), Fault> {
        if self.is_elected() {
            return events.iter().try_for_each(|event| self.expect(cursor, at, event.clone()));
        }
        self.meeting(cursor, at)?;
        self.in_some_lanes(cursor, at, 1, events)?;
        self.meeting(cursor, at)
    }

    pub(super) fn definition(
        &mut self,
        cursor: &mut Cursor<'a>,
        at: At,
        results: &[ValueId],
        op: &Op,
        behind: &[Stmt],
    ) -> Result<(), Fault> {
        let Some(&result) = results.first() else { return Ok(()) };
        match op {
            Op::Load { access, .. } => {
                let event = Event::Load(self.memory(access.storage));
                if self.take(cursor, at, &event) || self.is_nothing(result) {
                    return Ok(());
                }
                // It goes down to the contraction that uses it.
                let moves = matches!(access.storage, Storage::Smem(..));
                let user = contraction(behind, result).filter(|_| moves);
                match user {
                    Some(contraction) => {
                        self.moved.push((contraction, result, event));
                        Ok(())
                    }
                    None => self.expect(cursor, at, event),
                }
            }
            Op::Mma { .. } => {
                let moved: Vec<Event> = self
                    .moved
                    .iter()
                    .filter(|(user, ..)| *user == result)
                    .map(|(.., event)| event.clone())
                    .collect();
                self.moved.retain(|(user, ..)| *user != result);
                let mut seen = vec![false; moved.len()];
                while let Some(next) = moved.iter().position(|event| self.take(cursor, at, event)) {
                    moved.iter().zip(&mut seen).for_each(|(event, seen)| {
                        *seen |= *event == moved[next];
                    });
                }
                match seen.iter().position(|seen| !seen) {
                    Some(missing) => self.expect(cursor, at, moved[missing].clone()),
                    None => Ok(()),
                }
            }
            Op::ReadVar { var, slot } => {
                // What is known of the slot is not read again.
                self.take(cursor, at, &Event::ReadSums(self.slot(*var, *slot)));
                Ok(())
            }
            Op::ArriveLast { word, .. } => {
                let events = [Event::Fence, Event::Atomic(word.param), Event::Fence];
                self.by_one_thread(cursor, at, &events)
            }
            Op::Atomic { access, .. } => {
                let event = access.storage.param().map(Event::Atomic);
                self.by_one_thread(cursor, at, event.as_slice())
            }
            Op::Const(_)
            | Op::CtaIndex(_)
            | Op::ClusterIndex(_)
            | Op::ScalarParam(_)
            | Op::Unary { .. }
            | Op::Binary { .. }
            | Op::Compare { .. }
            | Op::Select { .. }
            | Op::Fma { .. }
            | Op::Inline { .. }
            | Op::Convert { .. }
            | Op::Iota
            | Op::Splat { .. }
            | Op::Expand { .. }
            | Op::Reduce { .. }
            | Op::Argmax { .. }
            | Op::Contract { .. }
            | Op::Relayout { .. }
            | Op::Slice { .. }
            | Op::Scan { .. }
            | Op::Concat { .. } => Ok(()),
        }
    }

    /// A statement without blocks.
    pub(super) fn plain(
        &mut self,
        cursor: &mut Cursor<'a>,
        at: At,
        kind: &StmtKind,
    ) -> Result<(), Fault> {
        match kind {
            StmtKind::SetVar { var, slot, .. } => {
                self.take(cursor, at, &Event::SetSums(self.slot(*var, *slot)));
                Ok(())
            }
            StmtKind::Store { value, access, update, .. } => {
                let event = Event::Store(self.memory(access.storage), *update);
                let count = match access.storage {
                    _ if self.is_nothing(*value) => 0,
                    Storage::Peers(_) => self.rounds_of_ranks(*value),
                    _ => 1,
                };
                self.several(cursor, at, &event, count)
            }
            StmtKind::Advance { word } => {
                self.meeting(cursor, at)?;
                let memory = Memory::Buffer(word.param);
                self.expect(cursor, at, Event::Load(memory))?;
                self.expect(cursor, at, Event::Store(memory, None))
            }
            StmtKind::Signal(signal) => {
                let event = Event::Signal(signal.param);
                let to_all = signal.to.is_none() && self.source.params[signal.param].is_flag();
                let ranks = self.source.launch.world.filter(|_| to_all).unwrap_or(1);
                if self.is_elected() {
                    return self.several(cursor, at, &event, ranks);
                }
                self.in_some_lanes(cursor, at, ranks, &[event])
            }
            StmtKind::Await(wait) => {
                let event = Event::Await(wait.param);
                let shape = &self.source.params[wait.param].shape;
                let words = match wait.each().and_then(|axis| shape.get(axis)) {
                    Some(Extent::Const(words)) => *words,
                    Some(Extent::Scalar(_)) | None => 1,
                };
                if self.is_elected() {
                    return self.several(cursor, at, &event, words);
                }
                self.in_some_lanes(cursor, at, words, &[event])?;
                self.meeting(cursor, at)
            }
            StmtKind::CopyAsync { source, dest, .. } => {
                let [from, to] = [source, dest].map(|access| self.memory(access.storage));
                self.expect(cursor, at, Event::CopyAsync(from, to))?;
                self.expect(cursor, at, Event::CloseCopies)
            }
            StmtKind::EmptyGroup => self.expect(cursor, at, Event::CloseCopies),
            StmtKind::Settle { pending, .. } => {
                self.expect(cursor, at, Event::AwaitCopies(*pending))
            }
            StmtKind::Outgoing(op) => self.outgoing(cursor, at, op),
            StmtKind::Warpgroup(op) => self.warpgroup(cursor, at, op),
            StmtKind::Tensor(op) => self.tensor(cursor, at, op),
            StmtKind::Sync | StmtKind::SyncRole => self.meeting(cursor, at),
            StmtKind::SyncCluster => self.expect(cursor, at, Event::MeetCluster),
            StmtKind::Pipe(op) => self.pipe(cursor, at, op),
            StmtKind::GridWait => self.expect(cursor, at, Event::GridWait),
            StmtKind::GridLaunch => self.expect(cursor, at, Event::GridLaunch),
            StmtKind::Def { .. }
            | StmtKind::Prefetch { .. }
            | StmtKind::Role { .. }
            | StmtKind::Assert { .. }
            | StmtKind::Trace { .. }
            | StmtKind::Printf { .. }
            | StmtKind::For { .. }
            | StmtKind::If { .. } => Ok(()),
        }
    }

    fn outgoing(&self, cursor: &mut Cursor<'a>, at: At, op: &Outgoing) -> Result<(), Fault> {
        match op {
            Outgoing::Copy { source, dest, .. } => {
                let [from, to] = [source, dest].map(|access| self.memory(access.storage));
                self.expect(cursor, at, Event::CopyOut(from, to))?;
                self.expect(cursor, at, Event::CloseCopiesOut)
            }
            Outgoing::EmptyGroup => self.expect(cursor, at, Event::CloseCopiesOut),
            Outgoing::Settle { storage, pending, .. } => {
                let reads = storage.tile().is_some();
                self.expect(cursor, at, Event::AwaitCopiesOut { pending: *pending, reads })
            }
            Outgoing::Publish { storage } => {
                let is_tile = storage.tile().is_some();
                let fence = if is_tile { Event::SharedFence } else { Event::CopyFence };
                self.expect(cursor, at, fence)
            }
        }
    }

    fn warpgroup(&self, cursor: &mut Cursor<'a>, at: At, op: &Warpgroup) -> Result<(), Fault> {
        match op {
            Warpgroup::Mma(mma) => {
                let sums = self.slot(mma.var, mma.slot);
                self.expect(cursor, at, Event::HandOverSums(sums.clone()))?;
                let left = match &mma.a {
                    LeftOperand::Shared(access) => self.base(access),
                    LeftOperand::Registers(_) => None,
                };
                let right = self.base(&mma.b).unwrap_or(u32::MAX);
                let product = Event::Product { sums, left, right };
                self.several(cursor, at, &product, self.products(mma))
            }
            Warpgroup::Commit => self.expect(cursor, at, Event::CloseProducts),
            Warpgroup::Settle { var, slot, pending } => {
                let sums = self.slot(*var, *slot);
                self.expect(cursor, at, Event::AwaitProducts { pending: *pending, sums })
            }
        }
    }

    /// Instructions of one warpgroup.
    fn products(&self, mma: &WarpgroupMma) -> u32 {
        let &[rows, columns] = self.source.vars[mma.var].distribution.axes.as_slice() else {
            return 1;
        };
        let right = tile_axes(&mma.b);
        let depth = if mma.across { right.first() } else { right.last() };
        let steps = depth.map_or(0, |axis| axis.len) / mma.atom.depth();
        let blocks = columns.registers() / 2 / (mma.atom.n / 8).max(1);
        rows.rest.saturating_mul(blocks).saturating_mul(steps)
    }

    fn tensor(&self, cursor: &mut Cursor<'a>, at: At, op: &Tensor) -> Result<(), Fault> {
        match op {
            Tensor::Mma(mma) => self.tensor_product(cursor, at, mma),
            Tensor::Load { .. } => Ok(()),
            Tensor::Store { .. } => self.expect(cursor, at, Event::TensorStore),
            Tensor::Settle { .. } => self.expect(cursor, at, Event::TensorLoad),
        }
    }

    fn tensor_product(
        &self,
        cursor: &mut Cursor<'a>,
        at: At,
        mma: &TensorMma,
    ) -> Result<(), Fault> {
        for scales in mma.scales.iter().flatten() {
            let event = Event::CopyScales(self.base(scales).unwrap_or(u32::MAX));
            let axes = tile_axes(scales);
            let [rows, groups] = [axes.first(), axes.last()].map(|a| a.map_or(0, |axis| axis.len));
            let pieces = rows.div_ceil(SCALE_ROWS).saturating_mul(groups.div_ceil(SCALE_WORD));
            self.several(cursor, at, &event, pieces)?;
        }
        let in_tensor = |access: &TileAccess| {
            access.storage.tile().is_some_and(|(tile, _)| self.source.smem[tile].is_tensor())
        };
        let left = if in_tensor(&mma.a) { None } else { self.base(&mma.a) };
        let right = self.base(&mma.b).unwrap_or(u32::MAX);
        let last = |access: &TileAccess| tile_axes(access).last().map_or(0, |axis| axis.len);
        let blocks = last(&mma.acc) / mma.atom.n.max(1);
        let steps = last(&mma.a) / mma.atom.stored_depth().max(1);
        let product = Event::TensorProduct { left, right };
        self.several(cursor, at, &product, blocks.saturating_mul(steps))
    }

    fn pipe(&self, cursor: &mut Cursor<'a>, at: At, op: &PipeOp) -> Result<(), Fault> {
        match op {
            PipeOp::Open { full, empty, .. } => {
                self.expect(cursor, at, Event::Wait(*empty))?;
                if self.source.barriers[*full].bytes == 0 {
                    return Ok(());
                }
                self.expect(cursor, at, Event::Announce(*full))
            }
            PipeOp::Wait { barrier, .. } => self.expect(cursor, at, Event::Wait(*barrier)),
            PipeOp::Release { barrier, everywhere, .. } => {
                self.expect(cursor, at, Event::Arrive(*barrier, *everywhere))
            }
            PipeOp::Commit { barrier, everywhere, .. } => {
                self.expect(cursor, at, Event::Commit(*barrier, *everywhere))
            }
            PipeOp::Copy { source, dest, barrier, everywhere, .. } => {
                let [from, to] = [source, dest].map(|access| self.memory(access.storage));
                let (barrier, everywhere) = (*barrier, *everywhere);
                self.expect(cursor, at, Event::Copy { from, to, barrier, everywhere })
            }
            PipeOp::Send { value, dest, barrier, .. } => {
                if self.is_nothing(*value) {
                    return Ok(());
                }
                let to = self.memory(dest.storage);
                self.expect(cursor, at, Event::Send(to, *barrier))
            }
        }
    }
}

/// The contraction to which a load goes down: its use, with definitions alone between. None of these is taken to order
/// shared memory at the kernel level.
fn contraction(behind: &[Stmt], loaded: ValueId) -> Option<ValueId> {
    for stmt in behind {
        let StmtKind::Def { results, op } = &stmt.kind else { return None };
        match op {
            Op::Mma { a, b, .. } if *a == loaded || *b == loaded => {
                return results.first().copied();
            }
            _ => {}
        }
    }
    None
}

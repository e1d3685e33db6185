//! Barriers of roles: slots and rounds by division, and bulk copies as runs that lie together on both sides.

use std::collections::BTreeSet;

use kernel_abi::DType;
use kernel_dsl::diag::{Code, Diagnostic};

use super::Expander;
use super::builder::Pred;
use super::linear::{Linear, Reg, power_of_two};
use super::vectors::{Cell, VECTOR_BYTES};
use crate::device::{Arg, DeviceOp, DevicePipe, OpRole, Piece, Place};
use crate::distribution::{AxisMap, Distribution};
use crate::kernel::{BarrierId, CopyWay, PipeOp, RoleId, TileAccess, ValueId, each_pipe_op};
use crate::ops::BinaryOp;
use crate::verify::indices_opened;

/// Bits that a thread sends at once, at least.
const WORD_BITS: u32 = 32;

/// Runs of one copy, at most.
const MAX_RUNS: usize = 128;

impl Expander<'_> {
    /// Makes the barriers of the kernel before anything touches them.
    pub(super) fn make_barriers(&mut self) {
        if self.kernel.barriers.is_empty() {
            return;
        }
        self.b.loc = self.b.place(self.kernel.span, crate::device::OpRole::Compute);
        self.b.emit(DeviceOp::Pipe(DevicePipe::Init));
        self.barrier();
    }

    pub(super) fn pipe(&mut self, op: &PipeOp) -> Result<(), Diagnostic> {
        let pipe = match op {
            PipeOp::Open { full, empty, at } => {
                let (slot, round) = self.slot_and_round(*empty, *at);
                let rounds = self.b.materialize(&round, DType::I32);
                self.b.emit(DeviceOp::Pipe(DevicePipe::Wait { barrier: *empty, slot, rounds }));
                self.after_wait();
                if self.kernel.barriers[*full].bytes == 0 {
                    return Ok(());
                }
                self.order_refill(*full);
                DevicePipe::Announce { barrier: *full, slot }
            }
            PipeOp::Wait { barrier, at } => {
                let (slot, round) = self.slot_and_round(*barrier, *at);
                let rounds = round.offset(1).unwrap_or(round);
                let rounds = self.b.materialize(&rounds, DType::I32);
                self.b.emit(DeviceOp::Pipe(DevicePipe::Wait { barrier: *barrier, slot, rounds }));
                self.after_wait();
                self.order_sent(*barrier);
                return Ok(());
            }
            PipeOp::Release { barrier, at, everywhere } => {
                self.hand_over_operands();
                let (slot, _) = self.slot_and_round(*barrier, *at);
                self.before_arrival();
                DevicePipe::Arrive { barrier: *barrier, slot, everywhere: *everywhere }
            }
            PipeOp::Send { value, dest, barrier, at } => {
                return self.send(*value, dest, *barrier, *at);
            }
            PipeOp::Commit { barrier, at, everywhere } => {
                let (slot, _) = self.slot_and_round(*barrier, *at);
                DevicePipe::Commit { barrier: *barrier, slot, everywhere: *everywhere }
            }
            PipeOp::Copy { source, dest, barrier, at, evict, way, everywhere } => {
                self.order_read(source);
                self.order_fill(dest, *barrier);
                let (slot, _) = self.slot_and_round(*barrier, *at);
                let (barrier, evict, everywhere) = (*barrier, *evict, *everywhere);
                match way {
                    CopyWay::Bulk => {
                        let (source, dest, pieces) = self.runs(source, dest)?;
                        DevicePipe::Copy { source, dest, pieces, barrier, slot, evict, everywhere }
                    }
                    CopyWay::Tensor => {
                        let (map, at, dest, offset) = self.box_between(source, dest)?;
                        DevicePipe::Box { map, at, dest, offset, barrier, slot, evict, everywhere }
                    }
                }
            }
        };
        self.b.emit(DeviceOp::Pipe(pipe));
        Ok(())
    }

    /// At the end of a role: waits for the last arrivals of commits in the slots that it opens, of which no `open` is
    /// left to wait for. What another CTA commits arrives when its products are complete, and must find this CTA there.
    pub(super) fn await_commits(&mut self, role: RoleId) {
        let mut committed = BTreeSet::new();
        each_pipe_op(&self.kernel.body, &mut |op, _| {
            if let PipeOp::Commit { barrier, everywhere: true, .. } = op {
                committed.insert(*barrier);
            }
        });
        for empty in committed {
            let declared = &self.kernel.barriers[empty];
            let Some(full) = declared.partner.filter(|_| declared.to.contains(&role)) else {
                continue;
            };
            let slots = i64::from(declared.slots);
            let count = indices_opened(self.kernel, role, full);
            self.b.loc = self.b.place(declared.span, OpRole::Compute);
            for index in (count - slots).max(0)..count {
                let [slot, rounds] = [index % slots, index / slots + 1]
                    .map(|number| self.b.materialize(&Linear::constant(number), DType::I32));
                self.b.emit(DeviceOp::Pipe(DevicePipe::Wait { barrier: empty, slot, rounds }));
            }
        }
    }

    /// The register with the slot of an index, and its round.
    pub(super) fn slot_and_round(&mut self, barrier: BarrierId, at: ValueId) -> (Reg, Linear) {
        let slots = Linear::constant(self.kernel.barriers[barrier].slots.into());
        let at = self.integer(at);
        let slot = self.b.int_binary(BinaryOp::Rem, &at, &slots, DType::I32);
        let round = self.b.int_binary(BinaryOp::Div, &at, &slots, DType::I32);
        (self.b.materialize(&slot, DType::I32), round)
    }

    /// A tile is sent by its lowest replica.
    fn send(
        &mut self,
        value: ValueId,
        dest: &TileAccess,
        barrier: BarrierId,
        at: ValueId,
    ) -> Result<(), Diagnostic> {
        let (slot, _) = self.slot_and_round(barrier, at);
        let kernel = self.kernel;
        let (src, dtype) = (self.frag(value), kernel.values[value].dtype);
        let distribution = &kernel.values[value].distribution;
        let cells = self.cells(dest, distribution)?;
        let extra = self.b.lowest_replica(distribution);
        let (place, offsets) = self.place(dest.storage);
        let cut = self.b.cut(&cells, dtype);
        if extra == Pred::Never || cells.is_empty() {
            return Ok(());
        }
        let vectors = self.b.vectors(&cells, &cut, offsets, extra);
        if vectors.iter().any(|vector| vector.len.saturating_mul(dtype.bits()) < WORD_BITS) {
            return Err(Diagnostic::error(Code::E0310, "this tile cannot be sent")
                .label(dest.span, "fewer than 4 bytes of one thread lie together here")
                .help("spread it so that each thread has whole words, or send a wider type"));
        }
        let src = if cut.in_order() {
            Arg::whole(src)
        } else {
            self.b.gather(src, cut.order.iter().map(|&cell| cell as u32).collect())
        };
        let send = DevicePipe::Send { src, dest: place, vectors, barrier, slot };
        self.b.emit(DeviceOp::Pipe(send));
        self.note_access(dest, dtype, distribution, &cut, true);
        Ok(())
    }

    /// A bulk copy between a buffer and shared memory, either way: both memories, and the runs that lie together.
    pub(super) fn runs(
        &mut self,
        source: &TileAccess,
        dest: &TileAccess,
    ) -> Result<(Place, Place, Vec<Piece>), Diagnostic> {
        // One thread knows all elements.
        let axes = self.extents(source).into_iter().map(AxisMap::local).collect();
        let whole = Distribution { warps: 1, axes };
        let (from, to) = (self.cells(source, &whole)?, self.cells(dest, &whole)?);
        let bits = u64::from(self.kernel.dtype_of(dest.storage).bits());
        let vector = u64::from(VECTOR_BYTES) * 8;
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for i in 0..from.len() {
            let goes_on = runs.last().is_some_and(|&(first, len)| {
                let step = len as i64;
                // Of permuted memory pieces of 16 bytes alone lie together.
                let is_permuted = from[first].swizzle.is_some() || to[first].swizzle.is_some();
                let ends = is_permuted && len as u64 * bits >= vector;
                !ends && follows(&from[first], &from[i], step) && follows(&to[first], &to[i], step)
            });
            match runs.last_mut() {
                Some(run) if goes_on => run.1 += 1,
                Some(_) | None => runs.push((i, 1)),
            }
        }
        let fits = |&(first, len): &(usize, usize)| {
            let aligned = |cell: &Cell| {
                let multiple = power_of_two(self.b.multiple(&cell.offset));
                multiple.saturating_mul(bits) >= vector
            };
            (len as u64 * bits).is_multiple_of(vector)
                && aligned(&from[first])
                && aligned(&to[first])
        };
        if runs.len() > MAX_RUNS || !runs.iter().all(fits) {
            let reason = if runs.len() > MAX_RUNS {
                format!("{} runs lie together on both sides, the limit is {MAX_RUNS}", runs.len())
            } else {
                "a run that lies together on both sides is no multiple of 16 bytes, or is not aligned to 16".to_owned()
            };
            return Err(Diagnostic::error(Code::E0310, "this copy cannot be made of bulk copies")
                .label(source.span, reason)
                .secondary(dest.span, "where it goes")
                .help("copy whole rows, and give the tile the same order of axes as the buffer"));
        }
        let (from_place, from_offsets) = self.place(source.storage);
        let (to_place, to_offsets) = self.place(dest.storage);
        let mut pieces = Vec::with_capacity(runs.len());
        for (first, len) in runs {
            let source = self.b.address(&from[first], from_offsets);
            let dest = self.b.address(&to[first], to_offsets);
            let len = u32::try_from(len).unwrap_or(u32::MAX);
            pieces.push(Piece { len, source, dest, present: None, predicate: None });
        }
        Ok((from_place, to_place, pieces))
    }
}

/// True where a cell lies so many elements behind another, and both exist.
fn follows(first: &Cell, cell: &Cell, step: i64) -> bool {
    first.checks.is_empty()
        && cell.checks.is_empty()
        && first.offset.offset(step).as_ref() == Some(&cell.offset)
}

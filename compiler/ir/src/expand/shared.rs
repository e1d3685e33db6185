//! Shared memory: exchanges between warps, tiles that change their warps, and where they may lie.
//!
//! A region is written, a barrier follows, and it is read. The next region avoids what was read since the
//! last barrier, so that one barrier an exchange is enough; only where it would need much room is a second
//! barrier put before it.

use kernel_abi::DType;
use kernel_dsl::diag::{Code, Diagnostic};

use super::Expander;
use super::builder::{Builder, Pred};
use super::linear::Linear;
use super::notes::ExchangeNote;
use super::queue::Pending;
use super::vectors::{Cell, VECTOR_BYTES};
use crate::device::{Arg, DeviceOp, FragId, Place};
use crate::distribution::{AxisMap, Digit, Distribution};
use crate::kernel::CachePolicy;
use crate::smem_plan::over_budget;

/// Up to here a second region is cheaper than a second barrier.
const ROOMY_BYTES: u32 = 16 * 1024;

/// Bytes `start..end`.
pub(super) type Region = (u32, u32);

/// What accesses of the past forbid.
#[derive(Debug, Clone, Default)]
pub(super) struct Flow {
    /// Read since the last barrier.
    hot: Vec<Region>,
    /// Written since the loop body began, before any barrier in it.
    exposed: Vec<Region>,
    /// A barrier has been met since the loop body began.
    met: bool,
}

/// The allocator.
#[derive(Debug)]
pub(super) struct Shared {
    limit: u32,
    /// Where the tiles of the kernel end and exchanges may begin.
    floor: u32,
    peak: u32,
    flow: Flow,
}

fn overlap(a: Region, b: Region) -> bool {
    a.0 < b.1 && b.0 < a.1
}

impl Shared {
    pub(super) fn new(limit: u32, floor: u32) -> Shared {
        Shared { limit, floor, peak: floor, flow: Flow::default() }
    }

    /// Bytes that all regions together cover.
    pub(super) fn peak(&self) -> u32 {
        self.peak
    }

    /// Bytes that an exchange may have.
    pub(super) fn room(&self) -> u32 {
        self.limit.saturating_sub(self.floor)
    }

    /// The lowest place that avoids what was read since the last barrier.
    fn fit(&self, bytes: u32, limit: u32) -> Option<u32> {
        let ends = self.flow.hot.iter().map(|region| region.1.next_multiple_of(VECTOR_BYTES));
        let mut bases: Vec<u32> =
            std::iter::once(self.floor.next_multiple_of(VECTOR_BYTES)).chain(ends).collect();
        bases.sort_unstable();
        bases.into_iter().find(|&base| {
            let region = (base, base.saturating_add(bytes));
            region.1 <= limit && self.flow.hot.iter().all(|&hot| !overlap(hot, region))
        })
    }

    fn take(&mut self, base: u32, bytes: u32) -> Region {
        let region = (base, base + bytes);
        self.peak = self.peak.max(region.1);
        if !self.flow.met {
            self.flow.exposed.push(region);
        }
        region
    }

    /// Begins a role: others run beside it, so it gets room that nobody has used before. What is returned goes to
    /// [`Shared::leave_role`].
    pub(super) fn enter_role(&mut self) -> (u32, Flow) {
        let outer = (self.floor, std::mem::take(&mut self.flow));
        self.floor = self.peak.checked_next_multiple_of(VECTOR_BYTES).unwrap_or(u32::MAX);
        outer
    }

    /// Ends a role: what it has used is touched by others after the next barrier alone.
    pub(super) fn leave_role(&mut self, (floor, flow): (u32, Flow)) {
        let used = (self.floor, self.peak);
        self.floor = floor;
        self.flow = flow;
        if used.0 < used.1 {
            self.flow.hot.push(used);
            self.flow.exposed.push(used);
        }
    }

    fn barrier(&mut self) {
        self.flow.hot.clear();
        self.flow.met = true;
    }

    pub(super) fn read(&mut self, region: Region) {
        self.flow.hot.push(region);
    }

    /// Enters a loop body; what is returned goes to [`Shared::leave_loop`].
    pub(super) fn enter_loop(&mut self) -> Flow {
        let outer = self.flow.clone();
        self.flow.exposed.clear();
        self.flow.met = false;
        outer
    }

    /// True where a round may write what the round before it still reads.
    pub(super) fn round_collides(&self) -> bool {
        let flow = &self.flow;
        flow.hot.iter().any(|&hot| flow.exposed.iter().any(|&write| overlap(hot, write)))
    }

    /// Leaves a loop body, which may have run any number of times.
    pub(super) fn leave_loop(&mut self, outer: Flow) {
        let inner = std::mem::replace(&mut self.flow, outer);
        self.flow.hot.extend(inner.hot);
        if !self.flow.met {
            self.flow.exposed.extend(inner.exposed);
        }
    }

    /// The state before a choice; what is returned goes to [`Shared::other_arm`].
    pub(super) fn enter_choice(&self) -> Flow {
        self.flow.clone()
    }

    /// Ends the first arm and starts the second from the state before the choice.
    pub(super) fn other_arm(&mut self, before: Flow) -> Flow {
        std::mem::replace(&mut self.flow, before)
    }

    /// Joins the arms.
    pub(super) fn leave_choice(&mut self, first: Flow) {
        self.flow.hot.extend(first.hot);
        self.flow.exposed.extend(first.exposed);
        self.flow.met &= first.met;
    }
}

/// Bytes of a tile in shared memory.
pub(super) fn tile_bytes(dtype: DType, distribution: &Distribution) -> u32 {
    let size = dtype.bytes().unwrap_or(1);
    let extents = distribution.axes.iter().map(|axis| axis.extent());
    extents.fold(size, u32::saturating_mul)
}

/// A linear index over digits of the thread index.
#[derive(Debug, Clone, Default)]
struct ThreadIndex {
    lanes: Vec<Digit>,
    warps: Vec<Digit>,
}

impl ThreadIndex {
    /// Every digit that a tile uses.
    fn of(kept: &Distribution) -> ThreadIndex {
        let used = |f: fn(&AxisMap) -> Digit| {
            let mut digits: Vec<Digit> = kept.axes.iter().map(f).collect();
            digits.retain(|digit| digit.extent > 1);
            digits.sort_by_key(|digit| digit.stride);
            digits
        };
        ThreadIndex { lanes: used(|map| map.lanes), warps: used(|map| map.warps) }
    }

    fn count(&self) -> u32 {
        self.lanes.iter().chain(&self.warps).map(|digit| digit.extent).product()
    }

    fn form(&self, b: &mut Builder<'_>) -> Linear {
        let mut form = Linear::default();
        let mut scale = 1i64;
        for (digits, is_lane) in [(&self.lanes, true), (&self.warps, false)] {
            for &digit in digits {
                let index = if is_lane { b.lane(digit) } else { b.warp(digit) };
                form = form.plus(scale, &index).expect("thread indices are small");
                scale *= i64::from(digit.extent);
            }
        }
        form
    }
}

/// How the partial results of one part lie: `thread * t + warp * w + register * r`.
struct Parts {
    base: u32,
    dtype: DType,
    thread: ThreadIndex,
    warp: ThreadIndex,
    strides: (i64, i64, i64),
    bytes: u32,
}

impl Parts {
    fn new(pending: &Pending, dtype: DType) -> Parts {
        let thread = ThreadIndex::of(&pending.kept);
        let folded = Distribution { warps: pending.kept.warps, axes: pending.folded.clone() };
        let warp = ThreadIndex { lanes: Vec::new(), warps: ThreadIndex::of(&folded).warps };
        let size = dtype.bytes().unwrap_or(1);
        // Rows that vectors run along start at multiples of a vector.
        let pad = |len: u32| {
            let vector = (VECTOR_BYTES / size).max(1);
            if len < vector { len.next_power_of_two() } else { len.next_multiple_of(vector) }
        };
        let (threads, warps) = (thread.count(), warp.count());
        let registers = pending.kept.registers();
        // Stores and loads of one thread when the registers of a warp lie together, and when the warps of a
        // register do.
        let vectors = |len: u32| len.div_ceil((VECTOR_BYTES / size).max(1));
        let by_warp = vectors(registers).saturating_mul(warps + 1);
        let by_register = registers.saturating_mul(vectors(warps) + 1);
        let (strides, count) = if threads == 1 && by_register < by_warp {
            let row = pad(warps);
            ((0, 1, i64::from(row)), registers.saturating_mul(row))
        } else {
            let row = pad(registers);
            let all = threads.saturating_mul(row);
            ((i64::from(row), i64::from(all), 1), all.saturating_mul(warps))
        };
        let bytes = count.saturating_mul(size);
        Parts { base: 0, dtype, thread, warp, strides, bytes }
    }

    fn place(&self) -> Place {
        Place::Shared { base: self.base, dtype: self.dtype }
    }

    fn cell(&self, thread: &Linear, warp: &Linear, register: u32) -> Cell {
        let (t, w, r) = self.strides;
        let offset = thread
            .times(t)
            .and_then(|form| form.plus(w, warp))
            .and_then(|form| form.offset(r * i64::from(register)))
            .expect("shared memory is small");
        Cell::at(offset)
    }
}

impl Expander<'_> {
    pub(super) fn barrier(&mut self) {
        // One thread alone has nobody to meet.
        if self.b.is_elected() {
            return self.shared.barrier();
        }
        self.b.emit(match self.b.role {
            None => DeviceOp::Barrier,
            Some(role) => DeviceOp::RoleBarrier { role },
        });
        self.shared.barrier();
    }

    pub(super) fn cluster_barrier(&mut self) {
        self.b.emit(DeviceOp::ClusterBarrier);
        self.shared.barrier();
    }

    /// Room for `bytes`, after a barrier where that is needed.
    pub(super) fn reserve(&mut self, bytes: u32) -> Result<Region, Diagnostic> {
        let roomy = self.shared.floor.saturating_add(ROOMY_BYTES);
        let roomy = roomy.max(self.shared.peak).min(self.shared.limit);
        if let Some(base) = self.shared.fit(bytes, roomy) {
            return Ok(self.shared.take(base, bytes));
        }
        if !self.shared.flow.hot.is_empty() {
            self.barrier();
        }
        let limit = self.shared.limit;
        if let Some(base) = self.shared.fit(bytes, limit) {
            return Ok(self.shared.take(base, bytes));
        }
        match over_budget(self.kernel, u64::from(bytes)) {
            Some(found) => {
                Err(found.secondary(self.b.locs[self.b.loc].span, "data changes threads here"))
            }
            None => Err(Diagnostic::error(
                Code::E0503,
                format!("{bytes} bytes of shared memory are needed here"),
            )
            .label(self.b.locs[self.b.loc].span, "data changes threads through shared memory here")
            .note(format!("a CTA has {limit} bytes on {}", self.kernel.target))
            .help("take smaller tiles, or convert to a narrower type first")),
        }
    }

    /// Folds pending parts over the warps, all through one barrier.
    pub(super) fn exchange(&mut self, pending: Vec<Pending>) -> Result<(), Diagnostic> {
        let mut parts: Vec<Vec<Parts>> = Vec::new();
        let mut total = 0u32;
        for one in &pending {
            let mut own = Vec::new();
            for &frag in &one.parts {
                let mut part = Parts::new(one, self.b.frags[frag].dtype);
                part.base = total;
                total = total
                    .saturating_add(part.bytes)
                    .checked_next_multiple_of(VECTOR_BYTES)
                    .unwrap_or(u32::MAX);
                own.push(part);
            }
            parts.push(own);
        }
        self.b.loc = pending.first().map_or(self.b.loc, |one| one.loc);
        let region = self.reserve(total)?;
        for part in parts.iter_mut().flatten() {
            part.base += region.0;
        }
        let exchange = self.notes.exchanges.len();
        let spans = pending.iter().map(|one| self.b.locs[one.loc].span).collect();
        self.notes.exchanges.push(ExchangeNote { spans, shared_bytes: total });
        for (one, parts) in pending.iter().zip(&parts) {
            self.b.loc = one.loc;
            self.notes.folds[one.note].exchange = Some(exchange);
            self.notes.folds[one.note].shared_bytes = parts.iter().map(|part| part.bytes).sum();
            self.write_parts(one, parts);
        }
        self.barrier();
        for (mut one, parts) in pending.into_iter().zip(&parts) {
            self.b.loc = one.loc;
            one.parts = self.read_parts(&one, parts);
            self.finish(one);
        }
        self.shared.read(region);
        Ok(())
    }

    fn write_parts(&mut self, one: &Pending, parts: &[Parts]) {
        let mut axes = one.kept.axes.clone();
        let folded_warps = one.folded.iter().map(|map| AxisMap { lanes: Digit::NONE, ..*map });
        axes.extend(folded_warps);
        let writers = Distribution { warps: one.kept.warps, axes };
        let extra = self.b.lowest_replica(&writers);
        for (part, &frag) in parts.iter().zip(&one.parts) {
            let (thread, warp) = (part.thread.form(&mut self.b), part.warp.form(&mut self.b));
            let cells: Vec<Cell> =
                (0..one.kept.registers()).map(|r| part.cell(&thread, &warp, r)).collect();
            let cache = CachePolicy::default();
            self.store_cells(frag, &cells, part.dtype, part.place(), DType::I32, cache, extra);
        }
    }

    fn read_parts(&mut self, one: &Pending, parts: &[Parts]) -> Vec<FragId> {
        let len = one.kept.registers();
        let warps = parts[0].warp.count();
        let mut values: Vec<Vec<Arg>> = vec![Vec::new(); warps as usize];
        for part in parts {
            let thread = part.thread.form(&mut self.b);
            let cell = |w: u32, r: u32| part.cell(&thread, &Linear::constant(i64::from(w)), r);
            let mut load = |cells: Vec<Cell>| {
                let (place, cache) = (part.place(), CachePolicy::default());
                let i32 = DType::I32;
                self.load_cells(&cells, part.dtype, place, i32, None, cache, Pred::Always).0
            };
            if part.strides.1 == 1 {
                let all = (0..len).flat_map(|r| (0..warps).map(move |w| (w, r)));
                let frag = load(all.map(|(w, r)| cell(w, r)).collect());
                for w in 0..warps {
                    let table = (0..len).map(|r| r * warps + w).collect();
                    values[w as usize].push(self.b.gather(frag, table));
                }
            } else {
                for w in 0..warps {
                    let frag = load((0..len).map(|r| cell(w, r)).collect());
                    values[w as usize].push(Arg::whole(frag));
                }
            }
        }
        let mut values = values.into_iter();
        let mut total = values.next().unwrap_or_default();
        for next in values {
            let folded = self.combine(one.combine, total, next, len);
            total = folded.into_iter().map(Arg::whole).collect();
        }
        total.into_iter().map(|arg| arg.frag).collect()
    }

    /// The tile of `src`, spread as `from`, spread as `to`.
    pub(super) fn through_shared(
        &mut self,
        src: FragId,
        dtype: DType,
        from: &Distribution,
        to: &Distribution,
    ) -> Result<FragId, Diagnostic> {
        let bytes = tile_bytes(dtype, from);
        let region = self.reserve(bytes)?;
        self.notes
            .exchanges
            .push(ExchangeNote { spans: vec![self.b.locs[self.b.loc].span], shared_bytes: bytes });
        let place = Place::Shared { base: region.0, dtype };
        let (cells, cache) = (self.tile_cells(from), CachePolicy::default());
        let extra = self.b.lowest_replica(from);
        self.store_cells(src, &cells, dtype, place.clone(), DType::I32, cache, extra);
        self.barrier();
        let cells = self.tile_cells(to);
        let (frag, _) =
            self.load_cells(&cells, dtype, place, DType::I32, None, cache, Pred::Always);
        self.shared.read(region);
        Ok(frag)
    }

    /// The elements of a tile that lies row-major.
    fn tile_cells(&mut self, distribution: &Distribution) -> Vec<Cell> {
        let mut threads = Linear::default();
        let mut strides = vec![0i64; distribution.axes.len()];
        let mut stride = 1i64;
        for (axis, map) in distribution.axes.iter().enumerate().rev() {
            strides[axis] = stride;
            let thread = self.b.thread_coordinate(*map);
            threads = threads.plus(stride, &thread).expect("shared memory is small");
            stride *= i64::from(map.extent());
        }
        (0..distribution.registers())
            .map(|register| {
                let locals = distribution.locals(register);
                let local: i64 = distribution
                    .axes
                    .iter()
                    .zip(locals)
                    .zip(&strides)
                    .map(|((map, local), stride)| stride * Builder::local_coordinate(*map, local))
                    .sum();
                let offset = threads.offset(local).expect("shared memory is small");
                Cell::at(offset)
            })
            .collect()
    }
}

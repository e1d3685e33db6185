//! Prefetches: the threads of the CTA share the 128-byte lines of a range.

use kernel_abi::DType;
use kernel_dsl::diag::Diagnostic;

use super::Expander;
use super::builder::{Pred, fits};
use super::linear::{Linear, power_of_two};
use super::vectors::{Cell, Check, VECTOR_BYTES};
use crate::device::{DeviceOp, Place, Vector};
use crate::distribution::{Digit, Distribution, LANES};
use crate::infer::{contiguous_axis, tile_axes};
use crate::kernel::{AxisIndex, Evict, ParamId, PrefetchRange, TileAccess, ValueId};
use crate::ops::{BinaryOp, CompareOp};

/// Bytes that one prefetch brings in.
const LINE_BYTES: u32 = 128;

/// From here on the lines of a thread are a loop.
const MAX_UNROLLED_LINES: u64 = 16;

/// The lines of a tile: every axis but the one that lines run along is walked position by position.
struct Lines {
    /// Extent of each tile axis; gathered axes are 1, since registers walk them.
    extents: Vec<u64>,
    /// The axis that lines run along, positions between two lines, and the last position.
    along: Option<(usize, i64, i64)>,
    /// Index among the threads that hold the same gathered rows, and their number.
    replica: Linear,
    replicas: u64,
}

impl Lines {
    fn count(&self) -> u64 {
        self.extents.iter().fold(1u64, |n, &e| n.saturating_mul(e))
    }
}

/// The buffer of a prefetch.
pub(super) fn prefetched(access: &TileAccess) -> ParamId {
    access.storage.param().expect("sema refuses prefetches of shared memory")
}

impl Expander<'_> {
    pub(super) fn prefetch(
        &mut self,
        what: &PrefetchRange,
        evict: Option<Evict>,
    ) -> Result<(), Diagnostic> {
        let alone = self.b.is_elected();
        match what {
            PrefetchRange::Tile(access) => self.prefetch_tile(access, evict),
            PrefetchRange::Box(access) => self.prefetch_box(access, evict),
            PrefetchRange::Elements { param, start, end } if alone => {
                let (start, end) = (self.integer(*start), self.integer(*end));
                let count = self.b.int_binary(BinaryOp::Sub, &end, &start, DType::I64);
                self.prefetch_run(*param, &start, &count, evict);
                Ok(())
            }
            PrefetchRange::Elements { param, start, end } => {
                self.prefetch_elements(*param, *start, *end, evict);
                Ok(())
            }
        }
    }

    fn prefetch_tile(
        &mut self,
        access: &TileAccess,
        evict: Option<Evict>,
    ) -> Result<(), Diagnostic> {
        let kernel = self.kernel;
        let gathered: Vec<ValueId> = access
            .index
            .iter()
            .filter_map(|index| match index {
                AxisIndex::Gather(x) => Some(*x),
                AxisIndex::At(_)
                | AxisIndex::Range { .. }
                | AxisIndex::Along(_)
                | AxisIndex::New => None,
            })
            .collect();
        let maps = gathered.iter().flat_map(|&x| kernel.values[x].distribution.axes.clone());
        let rows = Distribution { warps: self.b.warps(), axes: maps.collect() };
        let mut lines = self.lines(access, &rows);
        if lines.count() == 0 {
            return Ok(());
        }
        // A range that does not start on a line may touch one more.
        if let Some((axis, step, last)) = lines.along
            && !self.is_in_runs(access)
        {
            let is_aligned = self.starts_on_lines(access, &rows, &lines);
            let len = last + 1;
            let whole = (len + step - 1) / step;
            let touched = (last + step - 1) / step + 1;
            lines.extents[axis] = if is_aligned { whole } else { touched.min(len) } as u64;
        }
        let rounds = lines.count().div_ceil(lines.replicas);
        if rounds <= MAX_UNROLLED_LINES {
            for round in 0..rounds {
                let item = lines.replica.offset((round * lines.replicas) as i64);
                let item = item.unwrap_or_default();
                self.prefetch_round(access, &rows, &lines, &item, evict);
            }
            return Ok(());
        }
        let end = i64::try_from(rounds).unwrap_or(i64::from(i32::MAX)).min(i64::from(i32::MAX));
        let (from, to) = (Linear::constant(0), Linear::constant(end));
        let var = self.loop_variable(&from, &to, 1);
        let start = self.b.int(DType::I32, 0).0;
        let end = self.b.int(DType::I32, end).0;
        self.b.open();
        let round = Linear::register((var, 0));
        let item = lines.replica.plus(lines.replicas as i64, &round).unwrap_or_default();
        self.prefetch_round(access, &rows, &lines, &item, evict);
        let body = self.b.close();
        self.b.emit(DeviceOp::For { var, start, end, step: 1, body });
        Ok(())
    }

    /// True where every run of the tile provably starts on a line.
    fn starts_on_lines(&mut self, access: &TileAccess, rows: &Distribution, lines: &Lines) -> bool {
        let bits = u64::from(self.kernel.params[prefetched(access)].dtype.bits());
        let on_line = |multiple: u64| {
            power_of_two(multiple).saturating_mul(bits) >= u64::from(LINE_BYTES) * 8
        };
        let first = self.line_cells(access, rows, lines, &Linear::default(), 0);
        let start = first.iter().all(|cell| on_line(self.b.multiple(&cell.offset)));
        let along = lines.along.map(|(axis, ..)| axis);
        let mut views = access.axes.iter();
        let mut axis = 0;
        let mut strides = Vec::new();
        for index in &access.index {
            let view = if let AxisIndex::New = index { None } else { views.next() };
            match (index, view) {
                (AxisIndex::At(_), _) => continue,
                (_, Some(view)) if along == Some(axis) => {
                    strides.extend(view.digits.iter().rev().skip(1).map(|digit| digit.stride));
                }
                (_, Some(view)) => strides.extend(view.digits.iter().map(|digit| digit.stride)),
                (_, None) => {}
            }
            axis += 1;
        }
        start && strides.iter().all(|stride| on_line(stride.unsigned_abs()))
    }

    fn lines(&mut self, access: &TileAccess, rows: &Distribution) -> Lines {
        let axes = tile_axes(access);
        let bits = self.kernel.params[prefetched(access)].dtype.bits();
        let whole_runs = self.is_in_runs(access);
        let mut extents: Vec<u64> =
            axes.iter().map(|axis| if axis.is_gathered { 1 } else { axis.len.into() }).collect();
        let along = contiguous_axis(&axes).map(|axis| {
            let line = if whole_runs { u32::MAX } else { LINE_BYTES * 8 / bits };
            let step = line.min(axes[axis].run).max(1);
            extents[axis] = u64::from(axes[axis].len.div_ceil(step));
            (axis, i64::from(step), i64::from(axes[axis].len) - 1)
        });
        let mut replica = Linear::default();
        let mut replicas = 1i64;
        if self.b.is_elected() {
            return Lines { extents, along, replica, replicas: 1 };
        }
        let digits = |list: Vec<Digit>, is_lane: bool| list.into_iter().map(move |d| (d, is_lane));
        for (digit, is_lane) in
            digits(rows.free_lanes(), true).chain(digits(rows.free_warps(), false))
        {
            let index = if is_lane { self.b.lane(digit) } else { self.b.warp(digit) };
            replica = replica.plus(replicas, &index).expect("thread indices are small");
            replicas *= i64::from(digit.extent);
        }
        Lines { extents, along, replica, replicas: replicas as u64 }
    }

    /// True where one thread prefetches, and what lies together of the tile is there whole.
    fn is_in_runs(&self, access: &TileAccess) -> bool {
        let ends = |index: &AxisIndex| matches!(index, AxisIndex::Range { until: Some(_), .. });
        self.b.is_elected()
            && !access.index.iter().any(ends)
            && access.axes.iter().all(|axis| axis.digits.len() <= 1)
    }

    /// One line of each gathered row: the `item`-th.
    fn prefetch_round(
        &mut self,
        access: &TileAccess,
        rows: &Distribution,
        lines: &Lines,
        item: &Linear,
        evict: Option<Evict>,
    ) {
        let count = Linear::constant(i64::try_from(lines.count()).unwrap_or(i64::MAX));
        let within = self.b.int_compare(CompareOp::Lt, item, &count, DType::I64);
        if within == Pred::Never {
            return;
        }
        let offsets = self.b.offset_dtype(prefetched(access));
        let mut vectors = Vec::new();
        if self.is_in_runs(access) {
            let step = lines.along.map_or(1, |(_, step, last)| step.min(last + 1));
            for cell in self.line_cells(access, rows, lines, item, 0) {
                let count = Linear::constant(step);
                self.prefetch_run(prefetched(access), &cell.offset, &count, evict);
            }
            return;
        }
        for register in 0..rows.registers() {
            for cell in self.line_cells(access, rows, lines, item, register) {
                let present = self.b.presence(&cell);
                let predicate = match self.b.and(within, present) {
                    Pred::Always => None,
                    Pred::Never => continue,
                    Pred::When(reg) => Some(reg),
                };
                vectors.push(self.line(&cell.offset, offsets, predicate));
            }
        }
        if !vectors.is_empty() {
            let place = Place::Global(prefetched(access));
            self.b.emit(DeviceOp::Prefetch { place, vectors, bytes: None, evict });
        }
    }

    /// One thread brings `count` elements from `first` on, widened to whole sixteen bytes, by one instruction.
    fn prefetch_run(
        &mut self,
        param: ParamId,
        first: &Linear,
        count: &Linear,
        evict: Option<Evict>,
    ) {
        let unit = i64::from(VECTOR_BYTES * 8 / self.kernel.params[param].dtype.bits());
        let (b, wide) = (&mut self.b, DType::I64);
        let zero = Linear::default();
        let is_some = b.int_compare(CompareOp::Gt, count, &zero, wide);
        let past = b.int_binary(BinaryOp::Rem, first, &Linear::constant(unit), wide);
        let start = b.int_binary(BinaryOp::Sub, first, &past, wide);
        let length = b.int_binary(BinaryOp::Add, count, &past, wide);
        let rounded = b.int_binary(BinaryOp::Add, &length, &Linear::constant(unit - 1), wide);
        let units = b.int_binary(BinaryOp::Div, &rounded, &Linear::constant(unit), wide);
        let most = Linear::constant(i64::from(i32::MAX / 16));
        let units = b.int_binary(BinaryOp::Min, &units, &most, wide);
        let bytes = units.times(i64::from(VECTOR_BYTES)).unwrap_or_default();
        let predicate = match is_some {
            Pred::Always => None,
            Pred::Never => return,
            Pred::When(reg) => Some(reg),
        };
        let bytes = Some(b.materialize(&bytes, DType::I32));
        let offsets = b.offset_dtype(param);
        let vectors = vec![self.line(&start, offsets, predicate)];
        let place = Place::Global(param);
        self.b.emit(DeviceOp::Prefetch { place, vectors, bytes, evict });
    }

    fn line(
        &mut self,
        offset: &Linear,
        offsets: DType,
        predicate: Option<(crate::device::FragId, u32)>,
    ) -> Vector {
        let variable = offset.variable();
        let run_time = if variable.terms.is_empty() {
            None
        } else {
            Some(self.b.materialize(&variable, offsets))
        };
        Vector { first: 0, len: 1, offset: run_time, constant: offset.constant, predicate }
    }

    /// The place of line `item` of the gathered row in `register`: none where numbers leave 64 bits.
    fn line_cells(
        &mut self,
        access: &TileAccess,
        rows: &Distribution,
        lines: &Lines,
        item: &Linear,
        register: u32,
    ) -> Vec<Cell> {
        let positions = self.line_positions(lines, item);
        self.line_cell(access, rows, &positions, register).into_iter().collect()
    }

    /// The position along each tile axis, the axis of the lines fastest.
    fn line_positions(&mut self, lines: &Lines, item: &Linear) -> Vec<Linear> {
        let mut positions = vec![Linear::default(); lines.extents.len()];
        let along = lines.along.map(|(axis, ..)| axis);
        let mut axes: Vec<usize> = (0..lines.extents.len()).rev().collect();
        axes.sort_by_key(|&axis| Some(axis) != along);
        let mut left = item.clone();
        for axis in axes {
            let extent = lines.extents[axis];
            if extent <= 1 {
                continue;
            }
            let by = Linear::constant(extent as i64);
            let dtype = if fits(self.b.range(&left), DType::I32) { DType::I32 } else { DType::I64 };
            positions[axis] = self.b.int_binary(BinaryOp::Rem, &left, &by, dtype);
            left = self.b.int_binary(BinaryOp::Div, &left, &by, dtype);
        }
        if let Some((axis, step, last)) = lines.along {
            let at = positions[axis].times(step).unwrap_or_default();
            let last = Linear::constant(last);
            positions[axis] = self.b.int_binary(BinaryOp::Min, &at, &last, DType::I32);
        }
        positions
    }

    fn line_cell(
        &mut self,
        access: &TileAccess,
        rows: &Distribution,
        positions: &[Linear],
        register: u32,
    ) -> Option<Cell> {
        let locals = rows.locals(register);
        let mut locals = locals.iter();
        let mut cell = Cell::default();
        let mut views = access.axes.iter();
        let mut axis = 0;
        for index in &access.index {
            if let AxisIndex::New = index {
                axis += 1;
                continue;
            }
            let view = views.next()?;
            let position = match index {
                AxisIndex::At(x) => self.integer(*x),
                AxisIndex::Range { start, until, .. } => {
                    let position = self.integer(*start).plus(1, &positions[axis])?;
                    if let Some(bound) = until {
                        let bound = self.integer(*bound);
                        let margin = bound.plus(-1, &position)?;
                        let parts = Some((position.clone(), bound));
                        cell.checks.push(Check { margin, parts });
                    }
                    axis += 1;
                    position
                }
                AxisIndex::Gather(x) => {
                    let map = &self.kernel.values[*x].distribution;
                    let register = map.register(&[*locals.next()?]);
                    let position = Linear::register((self.frag(*x), register));
                    cell.checks.push(Check { margin: position.offset(1)?, parts: None });
                    axis += 1;
                    position
                }
                AxisIndex::Along(_) | AxisIndex::New => return None,
            };
            let offset = self.b.axis_offset(&position, view)?;
            cell.offset = cell.offset.plus(1, &offset)?;
        }
        Some(cell)
    }

    /// Elements `start..end` with run-time bounds, by a loop over rounds of all threads.
    fn prefetch_elements(
        &mut self,
        param: ParamId,
        start: ValueId,
        end: ValueId,
        evict: Option<Evict>,
    ) {
        let step = i64::from(LINE_BYTES * 8 / self.kernel.params[param].dtype.bits());
        let (from, to) = (self.integer(start), self.integer(end));
        let b = &mut self.b;
        let wide = DType::I64;
        let line = Linear::constant(step);
        let past = b.int_binary(BinaryOp::Rem, &from, &line, wide);
        let first = b.int_binary(BinaryOp::Sub, &from, &past, wide);
        let length = b.int_binary(BinaryOp::Sub, &to, &first, wide);
        let rounded = b.int_binary(BinaryOp::Add, &length, &Linear::constant(step - 1), wide);
        let lines = b.int_binary(BinaryOp::Div, &rounded, &line, wide);
        let lines = match b.int_compare(CompareOp::Lt, &from, &to, wide) {
            Pred::Always => lines,
            Pred::Never => return,
            Pred::When(cond) => b.int_select(cond, &lines, &Linear::default(), wide),
        };
        let limit = Linear::constant(i64::from(i32::MAX) - i64::from(u16::MAX));
        let lines = b.int_binary(BinaryOp::Min, &lines, &limit, wide);
        let count = b.materialize(&lines, DType::I32);
        let end = b.single(count);
        let zero = b.int(DType::I32, 0).0;
        let threads = b.warps() * LANES;
        let offsets = b.offset_dtype(param);

        let var = self.loop_variable(&Linear::constant(0), &lines, threads);
        self.b.open();
        let thread = self.b.thread();
        let round = Linear::register((var, 0));
        let index = self.b.int_binary(BinaryOp::Add, &round, &thread, DType::I32);
        let within = self.b.int_compare(CompareOp::Lt, &index, &lines, DType::I32);
        let predicate = match within {
            Pred::When(reg) => Some(reg),
            Pred::Always | Pred::Never => None,
        };
        if let Some(offset) = first.plus(step, &index)
            && within != Pred::Never
        {
            let vectors = vec![self.line(&offset, offsets, predicate)];
            let place = Place::Global(param);
            self.b.emit(DeviceOp::Prefetch { place, vectors, bytes: None, evict });
        }
        let body = self.b.close();
        self.b.emit(DeviceOp::For { var, start: zero, end, step: threads, body });
    }
}

//! `copy.async`: pieces of 16, 8 or 4 bytes that travel from a buffer to shared memory on their own.
//!
//! The threads of the CTA share the pieces of the tile: lanes run along the contiguous axis, then along the
//! slower ones, then warps. Each piece is one instruction; what is absent of it arrives as zeros.

use kernel_dsl::diag::{Code, Diagnostic};

use super::Expander;
use super::builder::{Pred, Pure};
use super::linear::{Linear, power_of_two};
use super::vectors::{Cell, VECTOR_BYTES};
use crate::device::{DeviceOp, FragId, Piece};
use crate::distribution::{AxisMap, Digit, Distribution, LANES};
use crate::infer::{by_stride, contiguous_axis, largest_free, tile_axes};
use crate::kernel::{AxisIndex, Evict, TileAccess};
use crate::ops::BinaryOp;
use kernel_abi::DType;

/// Bytes that one instruction can move.
const WIDTHS: [u32; 3] = [VECTOR_BYTES, 8, 4];

/// Pieces that one thread issues for one statement, at most.
const MAX_PIECES: u32 = 512;

/// The elements of one piece on both sides.
struct Pair {
    source: Vec<Cell>,
    dest: Vec<Cell>,
}

impl Expander<'_> {
    /// Issues the copies of a tile and closes their group.
    pub(super) fn copy_async(
        &mut self,
        source: &TileAccess,
        dest: &TileAccess,
        evict: Option<Evict>,
    ) -> Result<(), Diagnostic> {
        let size = self.kernel.dtype_of(dest.storage).bytes().unwrap_or(1);
        let axes = [source, dest].map(tile_axes);
        let along = contiguous_axis(&axes[0]).filter(|a| contiguous_axis(&axes[1]) == Some(*a));
        let Some(along) = along else {
            return Err(no_pieces(source, dest, "no axis is contiguous on both sides"));
        };
        let shape = self.extents(source);
        for len in WIDTHS.iter().filter(|&&width| width >= size).map(|width| width / size) {
            if !shape[along].is_multiple_of(len) {
                continue;
            }
            let distribution = self.piece_distribution(source, &shape, along, len);
            let count = distribution.registers() / len;
            if count > MAX_PIECES {
                return Err(no_pieces(
                    source,
                    dest,
                    &format!("each thread would copy {count} pieces, the limit is {MAX_PIECES}"),
                ));
            }
            let pairs = self.pairs(source, dest, &distribution, along, len)?;
            if pairs.iter().all(|pair| self.is_piece(pair, len)) {
                self.issue(source, dest, &distribution, pairs, len, evict);
                return Ok(());
            }
        }
        Err(no_pieces(source, dest, "neither 16 nor 8 nor 4 aligned bytes lie together"))
    }

    /// Waits until at most `pending` groups of this thread are in flight.
    pub(super) fn settle(&mut self, pending: u32) {
        self.b.emit(DeviceOp::WaitGroup { pending });
    }

    pub(super) fn extents(&self, access: &TileAccess) -> Vec<u32> {
        let extent = |index: &AxisIndex| match index {
            AxisIndex::At(_) | AxisIndex::Along(_) => None,
            AxisIndex::Range { len, .. } => Some(*len),
            AxisIndex::Gather(tile) => self.kernel.values[*tile].shape.first().copied(),
            AxisIndex::New => Some(1),
        };
        access.index.iter().filter_map(extent).collect()
    }

    /// Who copies which piece. An axis of an index tile is spread as that tile is.
    fn piece_distribution(
        &self,
        source: &TileAccess,
        shape: &[u32],
        along: usize,
        len: u32,
    ) -> Distribution {
        let mut maps: Vec<AxisMap> = shape.iter().map(|&e| AxisMap::local(e)).collect();
        maps[along] = AxisMap { vec: len, rest: shape[along] / len, ..AxisMap::local(1) };
        let mut fixed = vec![false; shape.len()];
        let tile_indices =
            source.index.iter().filter(|i| !matches!(i, AxisIndex::At(_) | AxisIndex::Along(_)));
        for (axis, index) in tile_indices.enumerate() {
            if let AxisIndex::Gather(tile) = index {
                maps[axis] = self.kernel.values[*tile].distribution.axes[0];
                fixed[axis] = true;
            }
        }
        let mut order = by_stride(&tile_axes(source));
        order.retain(|&axis| axis != along);
        order.insert(0, along);
        order.retain(|&axis| !fixed[axis]);
        let warps = self.b.warps();
        let distribution = |axes| Distribution { warps, axes };
        if self.b.is_elected() {
            return distribution(maps);
        }
        for axis in &order {
            let taken: Vec<Digit> = used(&maps, |map| map.lanes);
            let left = maps[*axis].rest;
            if let Some(digit) = largest_free(LANES, &taken, |x| left.is_multiple_of(x)) {
                maps[*axis].lanes = digit;
                maps[*axis].rest /= digit.extent;
            }
        }
        for axis in &order {
            let taken: Vec<Digit> = used(&maps, |map| map.warps);
            let left = maps[*axis].rest;
            if let Some(digit) = largest_free(warps, &taken, |x| left.is_multiple_of(x)) {
                maps[*axis].warps = digit;
                maps[*axis].rest /= digit.extent;
            }
        }
        distribution(maps)
    }

    /// The elements of each piece, on both sides.
    fn pairs(
        &mut self,
        source: &TileAccess,
        dest: &TileAccess,
        distribution: &Distribution,
        along: usize,
        len: u32,
    ) -> Result<Vec<Pair>, Diagnostic> {
        let from = self.cells(source, distribution)?;
        let to = self.cells(dest, distribution)?;
        let mut pairs = Vec::new();
        for register in 0..distribution.registers() {
            let mut locals = distribution.locals(register);
            if !locals[along].is_multiple_of(len) {
                continue;
            }
            let mut pair = Pair { source: Vec::new(), dest: Vec::new() };
            for _ in 0..len {
                let at = distribution.register(&locals) as usize;
                pair.source.push(from[at].clone());
                pair.dest.push(to[at].clone());
                locals[along] += 1;
            }
            pairs.push(pair);
        }
        Ok(pairs)
    }

    /// True where both sides lie together and aligned, and absence begins at one place at most.
    fn is_piece(&self, pair: &Pair, len: u32) -> bool {
        let together = |cells: &[Cell]| {
            let first = &cells[0];
            power_of_two(self.b.multiple(&first.offset)) >= u64::from(len)
                && cells
                    .iter()
                    .zip(0i64..)
                    .all(|(cell, i)| first.offset.offset(i).as_ref() == Some(&cell.offset))
        };
        let first = &pair.source[0];
        let stepping = self.stepping(pair);
        let steps_evenly = pair.source.iter().zip(0i64..).all(|(cell, i)| {
            cell.checks.len() == first.checks.len()
                && cell.checks.iter().zip(&first.checks).enumerate().all(|(at, (check, leader))| {
                    let expected = if Some(at) == stepping { -i } else { 0 };
                    leader.margin.offset(expected).as_ref() == Some(&check.margin)
                })
        });
        together(&pair.source) && together(&pair.dest) && steps_evenly
    }

    /// The check whose margin shrinks along the piece.
    fn stepping(&self, pair: &Pair) -> Option<usize> {
        let (first, second) = (pair.source.first()?, pair.source.get(1)?);
        first.checks.iter().zip(&second.checks).position(|(a, b)| a.margin != b.margin)
    }

    fn issue(
        &mut self,
        source: &TileAccess,
        dest: &TileAccess,
        distribution: &Distribution,
        pairs: Vec<Pair>,
        len: u32,
        evict: Option<Evict>,
    ) {
        let extra = self.b.lowest_replica(distribution);
        let predicate = match extra {
            Pred::Always => None,
            Pred::Never | Pred::When(_) => Some(self.b.pred(extra)),
        };
        let (from, from_offsets) = self.place(source.storage);
        let (to, to_offsets) = self.place(dest.storage);
        let mut pieces = Vec::with_capacity(pairs.len());
        for pair in &pairs {
            let present = self.present(pair, len);
            let source = self.b.address(&pair.source[0], from_offsets);
            let dest = self.b.address(&pair.dest[0], to_offsets);
            pieces.push(Piece { len, source, dest, present, predicate });
        }
        self.b.emit(DeviceOp::CopyAsync { source: from, dest: to, pieces, evict });
        self.b.emit(DeviceOp::CommitGroup);
    }

    /// The register with the number of elements of a piece that are present; none where all are.
    fn present(&mut self, pair: &Pair, len: u32) -> Option<(FragId, u32)> {
        let first = &pair.source[0];
        let stepping = self.stepping(pair);
        let mut whole = first.clone();
        let mut count = None;
        if let Some(at) = stepping {
            let check = &first.checks[at];
            let margin = check.margin.clone();
            if power_of_two(self.b.multiple(&margin)) < u64::from(len) {
                whole.checks.remove(at);
                count = Some(margin);
            }
        }
        let pred = self.b.presence(&whole);
        let all = Linear::constant(i64::from(len));
        let count = match count {
            None if pred == Pred::Always => return None,
            None => all,
            Some(margin) => {
                let zero = Linear::constant(0);
                let low = self.b.int_binary(BinaryOp::Max, &margin, &zero, DType::I64);
                self.b.int_binary(BinaryOp::Min, &low, &all, DType::I64)
            }
        };
        let count = self.b.materialize(&count, DType::I32);
        match pred {
            Pred::Always => Some(count),
            Pred::Never => Some(self.b.int(DType::I32, 0)),
            Pred::When(reg) => {
                let zero = self.b.int(DType::I32, 0);
                Some((self.b.pure(Pure::Select(reg, count, zero), DType::I32), 0))
            }
        }
    }
}

fn used(maps: &[AxisMap], digit: fn(&AxisMap) -> Digit) -> Vec<Digit> {
    maps.iter().map(digit).filter(|digit| digit.extent > 1).collect()
}

fn no_pieces(source: &TileAccess, dest: &TileAccess, reason: &str) -> Diagnostic {
    Diagnostic::error(Code::E0310, "this copy has no pieces that travel on their own")
        .label(source.span, reason)
        .secondary(dest.span, "where it goes")
        .note("`copy.async` moves 16, 8 or 4 bytes that lie together and aligned on both sides")
        .help("write `load` and `store`, or a view whose fastest axis is contiguous on both sides")
}

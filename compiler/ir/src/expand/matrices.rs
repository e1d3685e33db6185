//! Operands of the tensor core that come from shared memory as matrices of 8 by 8, `ldmatrix`, and sums that go there
//! as such, `stmatrix`.
//!
//! A fragment whose pairs lie along 4 lanes and whose rows lie along 8 is made of such matrices where k is
//! contiguous in memory. Each of 8 lanes then gives the place of one row of 16 bytes, and up to four matrices come
//! with one instruction: those of the second to fourth start a constant number of elements after the first.

use kernel_abi::DType;

use super::Expander;
use super::linear::{Linear, power_of_two};
use super::vectors::{Cell, Cut};
use crate::device::{DeviceOp, FragId, MatrixLoad, Place};
use crate::distribution::{AxisMap, Digit, Distribution};
use crate::infer::{contiguous_axis, tile_axes};
use crate::kernel::{AxisIndex, Storage, TileAccess};
use crate::layout::Swizzle;
use crate::ops::mma::{is_pairs, may_be_matrices};

/// Elements of a row of a matrix.
const ROW: u32 = 8;

/// The part of the lane index that rows of a fragment run along.
const ROW_STRIDE: u32 = 4;

/// How the matrices of a fragment lie.
pub(super) struct Matrices {
    depth: usize,
    /// The spread in which lane r of each 8 has row r, from its first element on.
    turned: Distribution,
    cells: Vec<Cell>,
}

/// Constant distances of the matrices of one instruction from the first, by the bits of their number.
type Distances = [i64; 2];

impl Expander<'_> {
    /// The matrices of an operand, where it is made of some.
    pub(super) fn matrices(
        &mut self,
        access: &TileAccess,
        dtype: DType,
        distribution: &Distribution,
    ) -> Option<Matrices> {
        let Storage::Smem(..) = access.storage else { return None };
        let plain = access.index.iter().all(|index| match index {
            AxisIndex::At(_) | AxisIndex::Range { until: None, .. } | AxisIndex::New => true,
            AxisIndex::Range { until: Some(_), .. }
            | AxisIndex::Gather(_)
            | AxisIndex::Along(_) => false,
        });
        let depth = distribution.axes.iter().position(is_pairs)?;
        if !plain
            || !may_be_matrices(dtype, distribution)
            || contiguous_axis(&tile_axes(access)) != Some(depth)
        {
            return None;
        }
        let mut turned = distribution.clone();
        for (axis, map) in turned.axes.iter_mut().enumerate() {
            if axis == depth {
                if map.warps.extent > 1 || map.inner > 1 {
                    return None;
                }
                *map = AxisMap { vec: ROW, lanes: Digit::NONE, ..*map };
            } else if map.lanes.extent > 1 {
                if map.lanes.stride != ROW_STRIDE {
                    return None;
                }
                map.lanes.stride = 1;
            }
        }
        let cells = self.cells(access, &turned).ok()?;
        let of_whole_rows = |cell: &Cell| {
            power_of_two(self.b.multiple(&cell.offset)) >= u64::from(ROW) && cell.checks.is_empty()
        };
        let starts = (0..turned.registers())
            .filter(|&register| turned.locals(register)[depth].is_multiple_of(ROW));
        let whole = starts.into_iter().all(|register| of_whole_rows(&cells[register as usize]));
        whole.then_some(Matrices { depth, turned, cells })
    }

    /// The wanted registers of the fragment, in their order, loaded as matrices; nothing where they are no pairs.
    pub(super) fn load_matrices(
        &mut self,
        matrices: &Matrices,
        distribution: &Distribution,
        wanted: &[u32],
        place: Place,
        offsets: DType,
        dtype: DType,
    ) -> Option<(FragId, Cut)> {
        let (loads, cut) = self.instructions(matrices, distribution, wanted, offsets)?;
        let len = wanted.len() as u32;
        let frag = self.b.define(dtype, len, |dst| DeviceOp::LoadMatrices { dst, place, loads });
        Some((frag, cut))
    }

    /// Stores a fragment as matrices; nothing where it is made of none.
    pub(super) fn store_matrices(
        &mut self,
        src: FragId,
        access: &TileAccess,
        dtype: DType,
        distribution: &Distribution,
    ) -> Option<(Matrices, Cut)> {
        let matrices = self.matrices(access, dtype, distribution)?;
        let (place, offsets) = self.place(access.storage);
        let all: Vec<u32> = (0..distribution.registers()).collect();
        let (stores, cut) = self.instructions(&matrices, distribution, &all, offsets)?;
        self.b.emit(DeviceOp::StoreMatrices { src, place, stores });
        Some((matrices, cut))
    }

    /// The instructions that bring or take some registers of a fragment; nothing where they are no pairs.
    fn instructions(
        &mut self,
        matrices: &Matrices,
        distribution: &Distribution,
        wanted: &[u32],
        offsets: DType,
    ) -> Option<(Vec<MatrixLoad>, Cut)> {
        let mut starts = Vec::with_capacity(wanted.len() / 2);
        for pair in wanted.chunks(2) {
            let &[low, high] = pair else { return None };
            let (mut first, mut second) = (distribution.locals(low), distribution.locals(high));
            let at = first[matrices.depth];
            second[matrices.depth] = second[matrices.depth].checked_sub(1)?;
            if !at.is_multiple_of(2) || first != second {
                return None;
            }
            first[matrices.depth] = at / 2 * ROW;
            starts.push(matrices.turned.register(&first));
        }
        let mut loads = Vec::new();
        let mut pieces = Vec::new();
        let mut at = 0;
        while at < starts.len() {
            let cells: Vec<&Cell> =
                starts[at..].iter().take(4).map(|&s| &matrices.cells[s as usize]).collect();
            let (count, distances) = together(&cells);
            let (offset, swizzle) = (cells[0].offset.clone(), cells[0].swizzle);
            let address = self.row_address(offset, swizzle, distances, offsets)?;
            loads.push(MatrixLoad { first: at as u32 * 2, count, at: address });
            pieces.push((at, ROW as usize));
            at += count as usize;
        }
        Some((loads, Cut { order: starts.iter().map(|&s| s as usize).collect(), pieces }))
    }

    /// The place of the row that a lane gives.
    fn row_address(
        &mut self,
        first: Linear,
        swizzle: Option<Swizzle>,
        distances: Distances,
        offsets: DType,
    ) -> Option<crate::device::Address> {
        let mut offset = first;
        for (bit, distance) in distances.into_iter().enumerate() {
            let lane = self.b.lane(Digit { extent: 2, stride: ROW << bit });
            offset = offset.plus(distance, &lane)?;
        }
        Some(self.b.address(&Cell { offset, checks: Vec::new(), swizzle }, offsets))
    }
}

impl Matrices {
    /// The spread of their rows.
    pub(super) fn turned(&self) -> &Distribution {
        &self.turned
    }
}

/// How many of the matrices from the first on one instruction can bring, and their distances.
fn together(cells: &[&Cell]) -> (u32, Distances) {
    let from_first = |cell: &Cell| {
        let difference = cell.offset.plus(-1, &cells[0].offset)?;
        difference.as_constant()
    };
    let distances: Vec<Option<i64>> = cells.iter().map(|cell| from_first(cell)).collect();
    match distances.as_slice() {
        [_, Some(one), Some(two), Some(three)] if one + two == *three => (4, [*one, *two]),
        [_, Some(one), ..] => (2, [*one, 0]),
        _ => (1, [0, 0]),
    }
}

//! Tensor copies at device level: boxes by their maps.

use kernel_abi::{DType, numeric};
use kernel_ir::device::{Address, LocId, Place as Region};
use kernel_ir::kernel::{Extent, MapId, ParamId, SmemSwizzle, TensorMap};
use kernel_ir::ops::Elements;
use kernel_ir::ops::wgmma::swizzled;

use super::Machine;
use crate::error::{EmuError, ErrorKind};
use crate::pipes::Place;

/// Bytes that keep together in every permutation.
pub(super) const PIECE: usize = 16;

impl Machine<'_> {
    /// The first thread of the role starts the copy of a box.
    pub(super) fn copy_box(
        &mut self,
        map: MapId,
        at: &[i64],
        dest: (&Region, Address),
        place: (Place, bool),
        loc: LocId,
    ) -> Result<(), EmuError> {
        let map = &self.kernel.maps[map];
        let (elements, runs) = self.read_box(map, at, loc)?;
        let (dtype, places) = self.box_places(map, at, dest, loc)?;
        let mut bytes = vec![0; numeric::bytes_of(dtype, elements.len())];
        for i in 0..elements.len() {
            numeric::write_element(dtype, &mut bytes, i, elements.get(i));
        }
        let pieces: Vec<(i64, Vec<u8>)> = places
            .into_iter()
            .zip(bytes.chunks(PIECE))
            .map(|(at, piece)| (at, piece.to_vec()))
            .collect();
        self.fill(&pieces, &(map.param, runs), place, loc)
    }

    /// The type of a box in shared memory, and where its pieces lie there.
    pub(super) fn box_places(
        &self,
        map: &TensorMap,
        at: &[i64],
        (place, offset): (&Region, Address),
        loc: LocId,
    ) -> Result<(DType, Vec<i64>), EmuError> {
        let Region::Shared { base, dtype } = place else {
            unreachable!("boxes lie in shared memory of the CTA")
        };
        let run = match offset.offset {
            Some(register) => self.agreed(register, loc)?,
            None => 0,
        };
        let size = i64::from(dtype.bytes().unwrap_or(1));
        let first = i64::from(*base) + (run + offset.constant) * size;
        let line = match map.swizzle {
            SmemSwizzle::None => None,
            SmemSwizzle::B32 => Some(32),
            SmemSwizzle::B64 => Some(64),
            SmemSwizzle::B128 => Some(128),
        };
        let align = i64::from(map.swizzle.period().max(128));
        let (row, bytes) = (at[0] * size, numeric::bytes_of(*dtype, map.elements() as usize));
        if !bytes.is_multiple_of(PIECE) || first % align != 0 || row % 16 != 0 {
            let message =
                format!("a box of {bytes} bytes from byte {row} of its rows, at byte {first}");
            return Err(EmuError::new(ErrorKind::Misaligned, self.span(loc), message));
        }
        let place = |at: i64| match (line, u64::try_from(at)) {
            (Some(line), Ok(at)) => swizzled(at, line).cast_signed(),
            (_, _) => at,
        };
        Ok((*dtype, (first..).step_by(PIECE).take(bytes / PIECE).map(place).collect()))
    }

    /// The elements of a box, the first axis of its map fastest, zeros where there is no buffer; and what was read.
    fn read_box(
        &mut self,
        map: &TensorMap,
        at: &[i64],
        loc: LocId,
    ) -> Result<(Elements, Vec<(u64, usize)>), EmuError> {
        let span = self.span(loc);
        let dtype = self.kernel.params[map.param].dtype;
        let mut elements = Elements::splat(dtype, 0, map.elements() as usize);
        self.view.check_read(map.param, span)?;
        let mut rows = Vec::new();
        self.each_row(map, at, |start, count, to| {
            rows.push((start, count, to));
            Ok(())
        })?;
        let mut runs = Vec::with_capacity(rows.len());
        for (start, count, to) in rows {
            let from = self.view.inside(map.param, start, count, span)?;
            self.view.load(map.param, from as u64, count, &mut elements, to, span)?;
            runs.push((from as u64, count));
        }
        Ok((elements, runs))
    }

    /// Calls `see` with each row of a box that lies in its buffer: first element, number, and first of the box.
    pub(super) fn each_row(
        &self,
        map: &TensorMap,
        at: &[i64],
        mut see: impl FnMut(i64, usize, usize) -> Result<(), EmuError>,
    ) -> Result<(), EmuError> {
        let extents: Vec<i64> = map.axes.iter().map(|axis| self.positions(axis.extent)).collect();
        let row = map.axes[0].length as usize;
        for number in 0..map.elements() as usize / row.max(1) {
            let (mut rest, mut start, mut is_inside) = (number as i64, 0, true);
            for ((axis, &at), &extent) in map.axes.iter().zip(at).zip(&extents).skip(1) {
                let position = at + rest % i64::from(axis.length);
                rest /= i64::from(axis.length);
                is_inside &= (0..extent).contains(&position);
                start += position * axis.stride as i64;
            }
            let low = at[0].clamp(0, extents[0]);
            let high = (at[0] + row as i64).clamp(0, extents[0]);
            if is_inside && low < high {
                let (count, skip) = ((high - low) as usize, (low - at[0]) as usize);
                see(start + low, count, number * row + skip)?;
            }
        }
        Ok(())
    }

    fn positions(&self, extent: Extent) -> i64 {
        let of_scalar = |param: ParamId| {
            let dtype = self.kernel.params[param].dtype;
            numeric::to_i64(dtype, self.view.launched.scalar(param)).unwrap_or(i64::MAX)
        };
        match extent {
            Extent::Const(extent) => i64::from(extent),
            Extent::Scalar(param) => of_scalar(param),
        }
    }
}

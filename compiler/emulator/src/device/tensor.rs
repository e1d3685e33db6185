//! Tensor copies at device level: boxes by their maps.

use kernel_abi::numeric;
use kernel_ir::device::{Address, LocId, Place as Region};
use kernel_ir::kernel::{Extent, MapId, ParamId, SmemSwizzle, TensorMap};
use kernel_ir::ops::Elements;
use kernel_ir::ops::wgmma::swizzled;

use super::Machine;
use super::pipes::Post;
use super::shared::Shared;
use crate::error::{EmuError, ErrorKind};
use crate::pipes::Place;

/// Bytes that keep together in every permutation.
const PIECE: usize = 16;

impl Machine<'_> {
    /// The first thread of the role starts the copy of a box.
    pub(super) fn copy_box(
        &mut self,
        map: MapId,
        at: &[i64],
        dest: (&Region, Address),
        place: Place,
        loc: LocId,
    ) -> Result<(), EmuError> {
        let (Region::Shared { base, dtype }, offset) = dest else {
            unreachable!("boxes go to shared memory of the CTA")
        };
        let Post { pipes, .. } = self.post().0;
        let (kernel, span) = (self.kernel, self.span(loc));
        let map = &kernel.maps[map];
        let elements = self.read_box(map, at, loc)?;
        let run = match offset.offset {
            Some(register) => self.agreed(register, loc)?,
            None => 0,
        };
        let first =
            i64::from(*base) + (run + offset.constant) * i64::from(dtype.bytes().unwrap_or(1));
        let line = match map.swizzle {
            SmemSwizzle::None => None,
            SmemSwizzle::B32 => Some(32),
            SmemSwizzle::B64 => Some(64),
            SmemSwizzle::B128 => Some(128),
        };
        let align = i64::from(map.swizzle.period().max(128));
        let row = at[0] * i64::from(dtype.bytes().unwrap_or(1));
        let mut bytes = vec![0; numeric::bytes_of(*dtype, elements.len())];
        if !bytes.len().is_multiple_of(PIECE) || first % align != 0 || row % 16 != 0 {
            let message = format!(
                "a box of {} bytes from byte {row} of its rows to byte {first}",
                bytes.len()
            );
            return Err(EmuError::new(ErrorKind::Misaligned, span, message));
        }
        for i in 0..elements.len() {
            numeric::write_element(*dtype, &mut bytes, i, elements.get(i));
        }
        let stamp = pipes.stamp(place, span);
        let mut pieces = Vec::with_capacity(bytes.len() / PIECE);
        let mut shared = self.member.own();
        for (piece, at) in bytes.chunks(PIECE).zip((first..).step_by(PIECE)) {
            let at = match (line, u64::try_from(at)) {
                (Some(line), Ok(at)) => swizzled(at, line).cast_signed(),
                (_, _) => at,
            };
            pieces.push((shared.begin_bulk(at, PIECE, self.by(0, span), stamp)?, piece.to_vec()));
        }
        drop(shared);
        let count = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let land = move |shared: &mut Shared| {
            for (at, piece) in pieces {
                shared.land(at, &piece);
            }
            Ok(())
        };
        pipes.start(self.member.rank(), place, count, span, Box::new(land));
        Ok(())
    }

    /// The elements of a box, the first axis of its map fastest; zeros where there is no buffer.
    fn read_box(&mut self, map: &TensorMap, at: &[i64], loc: LocId) -> Result<Elements, EmuError> {
        let span = self.span(loc);
        let dtype = self.kernel.params[map.param].dtype;
        let mut elements = Elements::splat(dtype, 0, map.elements() as usize);
        let extents: Vec<i64> = map.axes.iter().map(|axis| self.positions(axis.extent)).collect();
        let row = map.axes[0].length as usize;
        self.view.check_read(map.param, span)?;
        for number in 0..elements.len() / row.max(1) {
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
                let from = self.view.inside(map.param, start + low, count, span)?;
                let to = number * row + skip;
                self.view.load(map.param, from as u64, count, &mut elements, to, span)?;
            }
        }
        Ok(elements)
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

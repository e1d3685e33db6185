//! Tensor copies: one instruction for a box, which names its place.

use kernel_abi::DType;
use kernel_dsl::diag::{Code, Diagnostic};

use super::Expander;
use super::linear::{Reg, power_of_two};
use crate::device::{Address, DeviceOp, DevicePipe, Place};
use crate::distribution::{AxisMap, Distribution};
use crate::kernel::{
    AxisIndex, BOX_ALIGN, Evict, MapId, SmemSwizzle, TensorBox, TileAccess, find_map, tensor_box,
    tensor_maps,
};

/// Along the contiguous axis of its buffer a box begins at a multiple of so many bytes.
const ROW_ALIGN: u64 = 16;

impl Expander<'_> {
    /// A prefetch of a box, by one thread.
    pub(super) fn prefetch_box(
        &mut self,
        source: &TileAccess,
        evict: Option<Evict>,
    ) -> Result<(), Diagnostic> {
        let found = tensor_box(self.kernel, source, None)?;
        let (map, at) = self.place_of(source, &found, true)?;
        self.b.emit(DeviceOp::Pipe(DevicePipe::Prefetch { map, at, evict }));
        Ok(())
    }

    /// The map of a box, and registers with its place.
    fn place_of(
        &mut self,
        source: &TileAccess,
        found: &TensorBox,
        is_prefetch: bool,
    ) -> Result<(MapId, Vec<Reg>), Diagnostic> {
        let map = find_map(&tensor_maps(self.kernel), &found.map, is_prefetch);
        let map = map.expect("every box of the kernel has its map");
        let bits = u64::from(self.kernel.dtype_of(source.storage).bits());
        let row = self.integer(found.at[0]);
        if power_of_two(self.b.multiple(&row)).saturating_mul(bits) < ROW_ALIGN * 8 {
            return Err(Diagnostic::error(Code::E0311, "no tensor copy moves this box")
                .label(
                    source.span,
                    format!("its rows do not provably begin at multiples of {ROW_ALIGN} bytes"),
                )
                .note("the hardware stops the launch at other places along the contiguous axis")
                .help(
                    "take boxes by their number, `x.tile(…)[i, j]`, or starts that are multiples",
                ));
        }
        let mut at = Vec::with_capacity(found.at.len());
        for &start in &found.at {
            let form = self.integer(start);
            at.push(self.b.materialize(&form, DType::I32));
        }
        Ok((map, at))
    }

    /// A box of a buffer and its place in shared memory, either way: the map, registers with the place in the buffer, and
    /// the first byte in shared memory.
    pub(super) fn box_between(
        &mut self,
        buffer: &TileAccess,
        tile: &TileAccess,
    ) -> Result<(MapId, Vec<Reg>, Place, Address), Diagnostic> {
        let found = tensor_box(self.kernel, buffer, Some(tile))?;
        let (map_id, at) = self.place_of(buffer, &found, false)?;
        let map = found.map;
        // The first element of the box alone says where it lies.
        let mut first = tile.clone();
        for index in &mut first.index {
            if let AxisIndex::Range { len, .. } = index {
                *len = 1;
            }
        }
        let axes = self.extents(&first).into_iter().map(AxisMap::local).collect();
        let mut cells = self.cells(&first, &Distribution { warps: 1, axes })?;
        let mut cell = cells.remove(0);
        cell.swizzle = None;
        let align = match map.swizzle {
            SmemSwizzle::None => BOX_ALIGN,
            SmemSwizzle::B32 | SmemSwizzle::B64 | SmemSwizzle::B128 => map.swizzle.period(),
        };
        let bits = u64::from(self.kernel.dtype_of(tile.storage).bits());
        let multiple = power_of_two(self.b.multiple(&cell.offset));
        if multiple.saturating_mul(bits) < u64::from(align) * 8 {
            return Err(Diagnostic::error(Code::E0311, "no tensor copy moves this box")
                .label(tile.span, format!("not provably at a multiple of {align} bytes"))
                .secondary(buffer.span, "the box")
                .help("take whole slots, or give the tile an axis for its parts: `s[i, :, :]`"));
        }
        let (place, offsets) = self.place(tile.storage);
        let offset = self.b.address(&cell, offsets);
        Ok((map_id, at, place, offset))
    }
}

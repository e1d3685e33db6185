//! How the axes of a tile lie in memory.

use kernel_abi::DType;

use crate::distribution::{AxisMap, Distribution};
use crate::kernel::{AxisIndex, TileAccess};

/// One axis of the tile of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TileAxis {
    /// Extent of the axis; 0 for a gathered axis, whose extent is that of its index tile.
    pub(crate) len: u32,
    /// Elements between two neighbours.
    pub(crate) stride: i64,
    /// Neighbours with that stride: all of the axis, or one digit of it.
    pub(crate) run: u32,
    /// True for positions from an index tile.
    pub(crate) is_gathered: bool,
}

/// The axes of the tile, in order.
pub(crate) fn tile_axes(access: &TileAccess) -> Vec<TileAxis> {
    let mut views = access.axes.iter();
    let mut axes = Vec::new();
    for index in &access.index {
        if let AxisIndex::New = index {
            axes.push(TileAxis { len: 1, stride: 0, run: 1, is_gathered: false });
            continue;
        }
        let Some(view) = views.next() else { break };
        let (stride, digit) = view.digits.last().map_or((0, 1), |d| (d.stride, d.extent));
        let run = |len: u32| if view.digits.len() > 1 { len.min(digit) } else { len };
        match index {
            AxisIndex::Range { len, .. } => {
                axes.push(TileAxis { len: *len, stride, run: run(*len), is_gathered: false });
            }
            AxisIndex::Gather(_) => {
                axes.push(TileAxis { len: 0, stride, run: 1, is_gathered: true });
            }
            AxisIndex::At(_) | AxisIndex::New => {}
        }
    }
    axes
}

/// The axis whose neighbours lie next to each other in memory.
pub(crate) fn contiguous_axis(axes: &[TileAxis]) -> Option<usize> {
    axes.iter().rposition(|a| a.stride == 1 && a.len > 1 && !a.is_gathered)
}

/// Axes of a tile in memory, nearest neighbours first; equal strides from the last axis on.
pub(super) fn by_stride(axes: &[TileAxis]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..axes.len()).rev().collect();
    order.sort_by_key(|&axis| axes[axis].stride.unsigned_abs());
    if let Some(first) = contiguous_axis(axes) {
        order.retain(|&axis| axis != first);
        order.insert(0, first);
    }
    order
}

/// Bytes that lie together, at most: in one thread under `distribution`, and in the whole tile.
pub(super) fn contiguous_bytes(
    axes: &[TileAxis],
    distribution: &Distribution,
    dtype: DType,
) -> (u64, u64) {
    let run = |map: &dyn Fn(usize) -> AxisMap| {
        let mut elements = 1u64;
        let mut seen = vec![false; axes.len()];
        loop {
            let next = (0..axes.len()).find(|&a| {
                !seen[a]
                    && axes[a].len > 1
                    && !axes[a].is_gathered
                    && u64::try_from(axes[a].stride) == Ok(elements)
            });
            let Some(axis) = next else { return elements };
            seen[axis] = true;
            let map = map(axis);
            if !map.is_local() {
                return elements * u64::from(map.vec.min(axes[axis].run));
            }
            elements *= u64::from(axes[axis].run);
            if axes[axis].run < axes[axis].len {
                return elements;
            }
        }
    };
    let bits = u64::from(dtype.bits());
    let thread = run(&|axis| distribution.axes[axis]);
    let tile = run(&|axis| AxisMap::local(axes[axis].len));
    (thread * bits / 8, tile * bits / 8)
}

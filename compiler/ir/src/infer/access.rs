//! How the axes of a tile lie in memory.

use kernel_abi::DType;

use crate::distribution::Distribution;
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
        let run = |len: u32| if view.digits.len() > 1 { len.min(digit.max(1)) } else { len };
        match index {
            AxisIndex::Range { len, .. } => {
                axes.push(TileAxis { len: *len, stride, run: run(*len), is_gathered: false });
            }
            AxisIndex::Gather(_) => {
                axes.push(TileAxis { len: 0, stride, run: 1, is_gathered: true });
            }
            AxisIndex::At(_) | AxisIndex::Along(_) | AxisIndex::New => {}
        }
    }
    axes
}

/// The axis whose neighbours lie next to each other in memory.
pub(crate) fn contiguous_axis(axes: &[TileAxis]) -> Option<usize> {
    axes.iter().rposition(|a| a.stride == 1 && a.len > 1 && !a.is_gathered)
}

/// The contiguous axis, then those that follow it without a gap, each whole.
pub(super) fn contiguous_chain(axes: &[TileAxis]) -> Vec<usize> {
    let mut chain: Vec<usize> = contiguous_axis(axes).into_iter().collect();
    let mut elements = 1u64;
    while let Some(&last) = chain.last() {
        elements = elements.saturating_mul(u64::from(axes[last].len));
        let follows = |axis: &TileAxis| {
            axis.len > 1 && !axis.is_gathered && u64::try_from(axis.stride) == Ok(elements)
        };
        let next = (0..axes.len()).find(|&a| !chain.contains(&a) && follows(&axes[a]));
        match next {
            Some(next) if axes[last].run == axes[last].len => chain.push(next),
            Some(_) | None => break,
        }
    }
    chain
}

/// Elements that a vector of at most `most` can have: a power of two that divides each axis, and goes on to the
/// next where it has all of one.
pub(super) fn widest_vector(axes: &[TileAxis], most: u32) -> u32 {
    let mut width = 1;
    for axis in contiguous_chain(axes) {
        let here = (1 << axes[axis].run.trailing_zeros()).min(most / width);
        width *= here;
        if here < axes[axis].len {
            break;
        }
    }
    width
}

/// Axes of a tile in memory, nearest neighbours first; equal strides from the last axis on.
pub(crate) fn by_stride(axes: &[TileAxis]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..axes.len()).rev().collect();
    order.sort_by_key(|&axis| axes[axis].stride.unsigned_abs());
    if let Some(first) = contiguous_axis(axes) {
        order.retain(|&axis| axis != first);
        order.insert(0, first);
    }
    order
}

/// Bytes that lie together in one thread under `distribution`.
pub(super) fn contiguous_bytes(
    axes: &[TileAxis],
    distribution: &Distribution,
    dtype: DType,
) -> u64 {
    let mut elements = 1u64;
    for axis in contiguous_chain(axes) {
        let map = distribution.axes[axis];
        let here = if map.is_local() { axes[axis].len } else { map.vec };
        elements *= u64::from(here.min(axes[axis].run));
        if here < axes[axis].len {
            break;
        }
    }
    elements * u64::from(dtype.bits()) / 8
}

//! Layout inference: decides how every tile is spread over the threads.
//!
//! The axes of all tiles are joined into *classes*: element-wise operands with the axis that they meet in
//! the result, a variable with what is written to it and read from it, an axis that a reduction keeps
//! with the operand's, the axes of a contraction by their letters. A class gets one [`AxisMap`], and a
//! tile is spread as the list of its classes. So two tiles that meet always agree, a reduced tile is its
//! source with the axis sliced off, broadcasting is free, and a load takes what its users need.
//! `relayout` joins nothing: it is the only place where data changes threads.
//!
//! Assumes a well-typed kernel (shapes broadcast, letters agree). Guarantees on success that every value
//! and variable has a distribution whose extents are its shape, that operands of an operation agree axis
//! by axis, that each is spread over as many warps as its distribution said before, and that digits of the lane and warp index are used by one axis of a tile at most.
//!
//! [`AxisMap`]: crate::distribution::AxisMap

mod access;
mod assign;
mod classes;
mod limits;
mod mma;
mod tmem;
mod warpgroup;

use kernel_dsl::diag::{Code, Diagnostic};

use crate::distribution::{AxisMap, Distribution};
use crate::index::Id;
use crate::kernel::Kernel;

use classes::{Classes, Tile};

pub(crate) use access::{by_stride, contiguous_axis, tile_axes};
pub(crate) use assign::largest_free;

/// Elements of one tile that one thread may hold.
pub const MAX_TILE_REGISTERS: u64 = 1024;

/// Decides the distribution of every value and variable of the kernel.
pub fn distribute(kernel: &mut Kernel) -> Result<(), Vec<Diagnostic>> {
    if kernel.launch.warps == 0 {
        return Err(vec![
            Diagnostic::error(Code::E0215, "a kernel has at least one warp")
                .label(kernel.span, "launched with `warps: 0`"),
        ]);
    }
    let classes = Classes::of(kernel);
    let conflicts = classes.conflicts(kernel);
    if !conflicts.is_empty() {
        return Err(conflicts);
    }
    let maps = assign::maps(kernel, &classes)?;
    write_distributions(kernel, &classes, &maps);
    let findings = limits::check(kernel, &classes);
    if findings.is_empty() { Ok(()) } else { Err(findings) }
}

/// Gives each tile the maps of its classes.
fn write_distributions(kernel: &mut Kernel, classes: &Classes, maps: &[Option<AxisMap>]) {
    let spread = |tile: Tile, shape: &[u32], warps: u32| {
        let axes = shape.iter().enumerate().map(|(axis, &extent)| {
            let map = classes.class(tile, axis).and_then(|class| maps[class]);
            map.unwrap_or_else(|| AxisMap::local(extent))
        });
        Distribution { warps, axes: axes.collect() }
    };
    for id in kernel.values.ids() {
        let value = &kernel.values[id];
        let spread = spread(Tile::Value(id), &value.shape, value.distribution.warps);
        kernel.values[id].distribution = spread;
    }
    for index in 0..kernel.vars.len() {
        let id = Id::new(index);
        let var = &kernel.vars[id];
        let spread = spread(Tile::Var(id), &var.shape, var.distribution.warps);
        kernel.vars[id].distribution = spread;
    }
}

#[cfg(test)]
mod tests;

//! Tensor maps: how copies of boxes see a buffer.
//!
//! A tensor copy moves a box of a buffer to a slot of shared memory. What it says of the buffer, its extents and
//! strides, the box and the permutation of the slot, is written down ahead of the launch: the map. The copy itself
//! names the place of the box alone. Positions outside of the buffer arrive as zeros, and count as bytes.

use kernel_abi::DType;
use kernel_dsl::diag::{Code, Diagnostic};
use serde::{Deserialize, Serialize};

use super::{
    AxisIndex, CopyWay, Extent, Kernel, MapId, Outgoing, ParamId, PipeOp, PrefetchRange,
    SmemSwizzle, Stmt, StmtKind, TileAccess, ValueId, ViewAxis,
};
use crate::index::IndexVec;

/// Axes of a map, at most.
const MAX_AXES: usize = 5;
/// Positions of a box along one axis, at most.
const MAX_LENGTH: u32 = 256;
/// Strides are multiples of this many bytes, and so is the contiguous axis of a box.
const PIECE: u64 = 16;
/// Bytes that no stride reaches.
const MAX_STRIDE: u64 = 1 << 40;
/// A slot without a permutation that a box fills starts at a multiple of this many bytes.
pub const BOX_ALIGN: u32 = 128;

/// How copies of one kind of box see a buffer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorMap {
    /// The buffer.
    pub param: ParamId,
    /// Axes, the contiguous one first.
    pub axes: Vec<MapAxis>,
    /// How the pieces of 16 bytes lie in shared memory.
    pub swizzle: SmemSwizzle,
}

/// An axis of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapAxis {
    /// Positions of the buffer.
    pub extent: Extent,
    /// Elements from one to the next.
    pub stride: u64,
    /// Positions of the box.
    pub length: u32,
}

impl TensorMap {
    /// Elements of a box.
    pub fn elements(&self) -> u64 {
        self.axes.iter().fold(1u64, |n, axis| n.saturating_mul(u64::from(axis.length)))
    }
}

/// A box: its map, and where it begins along each axis of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorBox {
    /// The map.
    pub map: TensorMap,
    /// i32 scalars, in the order of the axes of the map.
    pub at: Vec<ValueId>,
}

/// The one stride of an axis, where its digits follow each other.
fn stride_of(axis: &ViewAxis) -> Option<i64> {
    let (last, slower) = axis.digits.split_last()?;
    let mut expected = last.stride.checked_mul(i64::from(last.extent))?;
    for digit in slower.iter().rev() {
        if digit.stride != expected {
            return None;
        }
        expected = expected.checked_mul(i64::from(digit.extent))?;
    }
    Some(last.stride)
}

/// An axis of a box with what stands in the source.
struct BoxAxis {
    axis: MapAxis,
    at: ValueId,
    is_kept: bool,
}

/// The box that a copy from `source` to `dest` moves, or that a prefetch of `source` brings into the cache.
///
/// # Errors
/// No tensor map describes it: a finding at its place.
pub fn tensor_box(
    kernel: &Kernel,
    source: &TileAccess,
    dest: Option<&TileAccess>,
) -> Result<TensorBox, Diagnostic> {
    let refuse = |why: String, help: &str| {
        let found = Diagnostic::error(Code::E0311, "no tensor copy moves this box")
            .label(source.span, why)
            .help(help);
        match dest {
            Some(dest) => found.secondary(dest.span, "the tile"),
            None => found,
        }
    };
    let Some(param) = source.storage.param() else {
        return Err(refuse("it lies in no buffer".to_owned(), "name a buffer"));
    };
    let tile = dest.and_then(|dest| dest.storage.tile());
    let swizzle = tile.map_or(SmemSwizzle::None, |(tile, _)| kernel.smem[tile].swizzle);
    let dtype = kernel.params[param].dtype;
    let size = match dtype {
        DType::F32 | DType::I32 | DType::U32 => 4,
        DType::F16 | DType::Bf16 => 2,
        DType::I8 | DType::U8 | DType::E4m3 | DType::E5m2 | DType::Ue8m0 => 1,
        DType::I64 | DType::U64 => 8,
        DType::Bool | DType::E2m1 => {
            return Err(refuse(
                format!("tensor copies know no elements of {dtype}"),
                "take another type, or `copy.bulk`",
            ));
        }
    };
    let mut axes = Vec::new();
    let indices = source.index.iter().filter(|index| !matches!(index, AxisIndex::New));
    for (number, (view, index)) in source.axes.iter().zip(indices).enumerate() {
        let (at, length, is_kept) = match index {
            AxisIndex::At(at) => (*at, 1, false),
            AxisIndex::Range { start, len, until: None } => (*start, *len, true),
            AxisIndex::Range { until: Some(_), .. } => {
                return Err(refuse(
                    format!("`until` bounds axis {number}"),
                    "a box ends at the edge of its buffer: what lies outside arrives as zeros",
                ));
            }
            AxisIndex::Gather(_) | AxisIndex::Along(_) | AxisIndex::New => {
                return Err(refuse(
                    format!("axis {number} is taken by an index tile"),
                    "a box has one begin along each axis; use `copy.async`",
                ));
            }
        };
        let Some(stride) = stride_of(view).and_then(|stride| u64::try_from(stride).ok()) else {
            return Err(refuse(
                format!("axis {number} is no row of elements with one stride"),
                "take a view whose axes are plain",
            ));
        };
        let axis = MapAxis { extent: view.extent, stride, length };
        axes.push(BoxAxis { axis, at, is_kept });
    }
    // Axes that fall away lie outside of the others.
    let (mut kept, fallen): (Vec<BoxAxis>, Vec<BoxAxis>) =
        axes.into_iter().partition(|axis| axis.is_kept);
    kept.reverse();
    kept.extend(fallen);
    if kept.len() > MAX_AXES || kept.is_empty() {
        return Err(refuse(
            format!("{} axes; a tensor map has 1 to {MAX_AXES}", kept.len()),
            "merge axes by a view",
        ));
    }
    for (number, BoxAxis { axis, .. }) in kept.iter().enumerate() {
        if axis.length > MAX_LENGTH || axis.length == 0 {
            return Err(refuse(
                format!("{} positions of one axis; a box has 1 to {MAX_LENGTH}", axis.length),
                "copy smaller boxes",
            ));
        }
        let bytes = axis.stride.saturating_mul(size);
        if number == 0 && (axis.stride != 1 || !kept[0].is_kept) {
            return Err(refuse(
                "the last axis of the box is not the contiguous one of the buffer".to_owned(),
                "take a view with its axes in the order of the buffer",
            ));
        }
        if number > 0 && (!bytes.is_multiple_of(PIECE) || bytes == 0 || bytes >= MAX_STRIDE) {
            return Err(refuse(
                format!("a stride of {bytes} bytes; strides are multiples of {PIECE}"),
                "give the buffer rows of whole multiples of 16 bytes",
            ));
        }
    }
    let row = u64::from(kept[0].axis.length) * size;
    let line = 16 << swizzle.bits();
    if !row.is_multiple_of(PIECE) {
        return Err(refuse(
            format!("rows of {row} bytes; the rows of a box are multiples of {PIECE}"),
            "take wider boxes",
        ));
    }
    if swizzle != SmemSwizzle::None && row != line {
        return Err(refuse(
            format!("rows of {row} bytes in a tile whose lines have {line}"),
            "the rows of a box are the lines of the swizzle: 128, 64 or 32 bytes",
        ));
    }
    if let Some(dest) = dest.filter(|dest| !is_dense(dest)) {
        return Err(Diagnostic::error(Code::E0311, "no tensor copy moves this box")
            .label(dest.span, "the elements of a box lie one after the other here")
            .secondary(source.span, "what is copied")
            .help("take whole slots, or whole rows of the slowest axis"));
    }
    let at = kept.iter().map(|axis| axis.at).collect();
    let axes = kept.iter().map(|axis| axis.axis).collect();
    Ok(TensorBox { map: TensorMap { param, axes, swizzle }, at })
}

/// True where the elements of an access lie one after the other, the last axis fastest.
fn is_dense(access: &TileAccess) -> bool {
    let mut expected = Some(1i64);
    let indices = access.index.iter().filter(|index| !matches!(index, AxisIndex::New));
    let axes: Vec<(&ViewAxis, &AxisIndex)> = access.axes.iter().zip(indices).collect();
    axes.into_iter().rev().all(|(view, index)| match index {
        AxisIndex::At(_) | AxisIndex::New => true,
        AxisIndex::Range { len: 1, .. } => true,
        AxisIndex::Range { len, .. } => {
            let fits = stride_of(view) == expected;
            expected = expected.and_then(|n| n.checked_mul(i64::from(*len)));
            fits
        }
        AxisIndex::Gather(_) | AxisIndex::Along(_) => false,
    })
}

/// The maps of a kernel, each once, in the order of the first copies that use them. Prefetches take the maps of copies
/// where they can: how a box lies in shared memory does not matter to them.
pub fn tensor_maps(kernel: &Kernel) -> IndexVec<MapId, TensorMap> {
    let mut maps = IndexVec::new();
    collect(kernel, &kernel.body, false, &mut maps);
    collect(kernel, &kernel.body, true, &mut maps);
    maps
}

/// The map of a box among those of its kernel.
pub fn find_map(
    maps: &IndexVec<MapId, TensorMap>,
    wanted: &TensorMap,
    is_prefetch: bool,
) -> Option<MapId> {
    let fits = |map: &TensorMap| {
        let same = map.param == wanted.param && map.axes == wanted.axes;
        same && (is_prefetch || map.swizzle == wanted.swizzle)
    };
    maps.iter_enumerated().find(|(_, map)| fits(map)).map(|(id, _)| id)
}

fn collect(
    kernel: &Kernel,
    stmts: &[Stmt],
    prefetches: bool,
    maps: &mut IndexVec<MapId, TensorMap>,
) {
    for stmt in stmts {
        let ends = match &stmt.kind {
            StmtKind::Pipe(PipeOp::Copy { source, dest, way: CopyWay::Tensor, .. }) => {
                Some((source, Some(dest)))
            }
            StmtKind::Outgoing(Outgoing::Copy { source, dest, way: CopyWay::Tensor, .. }) => {
                Some((dest, Some(source)))
            }
            StmtKind::Prefetch { what: PrefetchRange::Box(source), .. } => Some((source, None)),
            _ => None,
        };
        if let Some((source, dest)) = ends.filter(|(_, dest)| dest.is_none() == prefetches)
            && let Ok(TensorBox { map, .. }) = tensor_box(kernel, source, dest)
            && find_map(maps, &map, prefetches).is_none()
        {
            maps.push(map);
        }
        for body in stmt.kind.bodies() {
            collect(kernel, body, prefetches, maps);
        }
    }
}

//! Divides: split a layout into the elements of a tile and the tiles.

use super::tiler::{by_mode, tile_modes, unzip};
use super::{Layout, LayoutError, Tiler, complement, compose_layouts};

/// The tile as first mode and the rest, rounded up, as second; by mode for a tuple.
pub fn logical_divide(layout: &Layout, tiler: &Tiler) -> Result<Layout, LayoutError> {
    match tiler {
        Tiler::Int(_) | Tiler::Layout(_) => zipped_divide(layout, tiler),
        Tiler::Modes(tilers) => by_mode(layout, tilers, logical_divide),
    }
}

/// As the logical divide, with the tiles of all modes gathered in one mode and the rests in
/// another.
pub fn zipped_divide(layout: &Layout, tiler: &Tiler) -> Result<Layout, LayoutError> {
    let (tile, rest) = unzip(layout, tiler, split)?;
    Layout::join(vec![tile, rest])
}

/// As the zipped divide, with the rests as modes of their own after the tile.
pub fn tiled_divide(layout: &Layout, tiler: &Tiler) -> Result<Layout, LayoutError> {
    let (tile, rest) = unzip(layout, tiler, split)?;
    tile_modes(tile, &rest)
}

fn split(layout: &Layout, tile: &Layout) -> Result<(Layout, Layout), LayoutError> {
    let rest = complement(tile, layout.size())?;
    Ok((compose_layouts(layout, tile)?, compose_layouts(layout, &rest)?))
}

//! Products: repeat a layout at the places that a second layout gives.

use super::error::multiply;
use super::tiler::{by_mode, tile_modes, unzip};
use super::{Layout, LayoutError, Tiler, complement, compose_layouts};

/// The block as first mode and its repetitions as second; by mode for a tuple.
pub fn logical_product(block: &Layout, tiler: &Tiler) -> Result<Layout, LayoutError> {
    match tiler {
        Tiler::Int(_) | Tiler::Layout(_) => zipped_product(block, tiler),
        Tiler::Modes(tilers) => by_mode(block, tilers, logical_product),
    }
}

/// As the logical product, with the blocks of all modes gathered in one mode and the repetitions
/// in another.
pub fn zipped_product(block: &Layout, tiler: &Tiler) -> Result<Layout, LayoutError> {
    let (block, grid) = unzip(block, tiler, split)?;
    Layout::join(vec![block, grid])
}

/// As the zipped product, with the repetitions as modes of their own after the block.
pub fn tiled_product(block: &Layout, tiler: &Tiler) -> Result<Layout, LayoutError> {
    let (block, grid) = unzip(block, tiler, split)?;
    tile_modes(block, &grid)
}

fn split(block: &Layout, tiler: &Layout) -> Result<(Layout, Layout), LayoutError> {
    let codomain = multiply(block.size(), tiler.cosize(), "the indices of a product")?;
    let places = complement(block, codomain)?;
    Ok((block.clone(), compose_layouts(&places, tiler)?))
}

//! Tilers: the second argument of composition, divides and products.

use super::{Layout, LayoutError};

/// A layout, an integer `n` that stands for `n:1`, or one tiler for each leading mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tiler {
    /// The first `n` elements.
    Int(i64),
    /// The elements that a layout picks.
    Layout(Layout),
    /// By mode: a tiler for each of the leading modes, the other modes stay as they are.
    Modes(Vec<Tiler>),
}

impl From<Layout> for Tiler {
    fn from(layout: Layout) -> Self {
        Self::Layout(layout)
    }
}

impl From<i64> for Tiler {
    fn from(extent: i64) -> Self {
        Self::Int(extent)
    }
}

/// The modes of `layout`, if a tiler of `tiler_rank` modes fits it.
pub(super) fn modes_for(layout: &Layout, tiler_rank: usize) -> Result<Vec<Layout>, LayoutError> {
    if tiler_rank == 0 {
        return Err(LayoutError::undefined("a by-mode tiler has no modes"));
    }
    if tiler_rank > layout.rank() {
        return Err(LayoutError::undefined(format!(
            "a by-mode tiler has {tiler_rank} modes, the layout has only {}",
            layout.rank()
        )));
    }
    Ok(layout.modes())
}

/// Applies `operation` to each leading mode with its tiler and keeps the other modes.
pub(super) fn by_mode(
    layout: &Layout,
    tilers: &[Tiler],
    operation: fn(&Layout, &Tiler) -> Result<Layout, LayoutError>,
) -> Result<Layout, LayoutError> {
    let mut modes = modes_for(layout, tilers.len())?;
    for (mode, tiler) in modes.iter_mut().zip(tilers) {
        *mode = operation(mode, tiler)?;
    }
    Layout::join(modes)
}

/// How a divide or a product splits a layout: the tile and the rest, or the block and the grid.
pub(super) type Split = fn(&Layout, &Layout) -> Result<(Layout, Layout), LayoutError>;

/// Splits by mode at every level of the tiler and gathers the first parts and the second parts.
pub(super) fn unzip(
    layout: &Layout,
    tiler: &Tiler,
    split: Split,
) -> Result<(Layout, Layout), LayoutError> {
    match tiler {
        Tiler::Int(extent) => split(layout, &Layout::identity(*extent)?),
        Tiler::Layout(tile) => split(layout, tile),
        Tiler::Modes(tilers) => {
            let modes = modes_for(layout, tilers.len())?;
            let mut firsts = Vec::with_capacity(tilers.len());
            let mut seconds = Vec::with_capacity(modes.len());
            for (mode, tiler) in modes.iter().zip(tilers) {
                let (first, second) = unzip(mode, tiler, split)?;
                firsts.push(first);
                seconds.push(second);
            }
            seconds.extend_from_slice(&modes[tilers.len()..]);
            Ok((Layout::join(firsts)?, Layout::join(seconds)?))
        }
    }
}

/// The first part as one mode, followed by the modes of the second part.
pub(super) fn tile_modes(first: Layout, second: &Layout) -> Result<Layout, LayoutError> {
    let mut modes = vec![first];
    modes.extend(second.modes());
    Layout::join(modes)
}

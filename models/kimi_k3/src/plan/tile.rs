//! Tile sizes that follow from shapes.

/// Tile of a GEMV kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GemvTile {
    /// Rows of a CTA.
    pub(super) rows: u64,
    /// Columns of a step.
    pub(super) step: u64,
    /// Steps in flight.
    pub(super) ahead: u64,
}

/// Registers of a thread for one step of weights: `rows * step / 256` at 128 threads.
const STEP_ELEMENTS: u64 = 8 * 512;

/// The tile of `[n, k]` for `m` tokens: as many columns as divide `k`, up to 512, and as many rows as keep
/// the step within the registers and divide `n`. For more than four tokens four rows are enough, but ptxas 13.5.37 spills
/// with four rows of 256 columns and does not with eight.
pub(super) fn gemv(m: u64, n: u64, k: u64) -> GemvTile {
    let step = largest_dividing(k, &[512, 256, 128, 64, 32, 16]);
    let enough = match (m > 4, step) {
        (false, _) => 16,
        (true, 256) => 8,
        (true, _) => 4,
    };
    let most = (STEP_ELEMENTS / step).min(enough);
    let rows = [16, 8, 4, 2, 1].into_iter().find(|rows| *rows <= most && n.is_multiple_of(*rows));
    GemvTile { rows: rows.unwrap_or(1), step, ahead: (k / step).clamp(1, 4) }
}

/// Columns of a block of the argmax of `v` logits.
pub(super) fn argmax_block(v: u64) -> u64 {
    [256, 512, 1024].into_iter().find(|block| *block >= v).unwrap_or(1024)
}

/// The first of `sizes` that divides `n`; the last one if none does.
fn largest_dividing(n: u64, sizes: &[u64]) -> u64 {
    let last = sizes[sizes.len() - 1];
    sizes.iter().copied().find(|size| n.is_multiple_of(*size)).unwrap_or(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_divide_their_shapes() {
        assert_eq!(gemv(1, 3216, 7168), GemvTile { rows: 8, step: 512, ahead: 4 });
        assert_eq!(gemv(1, 560, 256), GemvTile { rows: 16, step: 256, ahead: 1 });
        assert_eq!(gemv(1, 192, 96), GemvTile { rows: 16, step: 32, ahead: 3 });
        assert_eq!(gemv(8, 7168, 768), GemvTile { rows: 8, step: 256, ahead: 3 });
        assert_eq!(gemv(8, 7168, 7168), GemvTile { rows: 4, step: 512, ahead: 4 });
        assert_eq!(argmax_block(128), 256);
        assert_eq!(argmax_block(10240), 1024);
    }
}

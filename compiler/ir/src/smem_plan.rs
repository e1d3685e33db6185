//! Where tiles lie in the shared memory of a CTA: one after the other in the order of declaration, each slot
//! at a multiple of the tile's alignment, then the barriers of roles. What the compiler itself exchanges between warps lies behind them.

use kernel_dsl::diag::{Code, Diagnostic};

use crate::index::Id;
use crate::kernel::{BarrierId, Kernel, SmemId};

/// Bytes of one slot of a barrier.
const BARRIER_BYTES: u64 = 8;

/// The places of all tiles.
#[derive(Debug, Clone, Default)]
pub struct SmemPlan {
    /// First byte of each tile.
    bases: Vec<u64>,
    /// First byte of each barrier.
    barriers: Vec<u64>,
    /// Bytes of all tiles and barriers.
    bytes: u64,
}

impl SmemPlan {
    /// Places the tiles of a kernel.
    pub fn of(kernel: &Kernel) -> SmemPlan {
        let mut plan = SmemPlan::default();
        for tile in kernel.smem.iter() {
            let base = plan.bytes.checked_next_multiple_of(u64::from(tile.align));
            let base = base.unwrap_or(u64::MAX);
            let slots = u64::from(tile.slots).saturating_sub(1);
            let all = tile.slot_bytes().saturating_mul(slots).saturating_add(tile.span_bytes());
            plan.bases.push(base);
            plan.bytes = base.saturating_add(all);
        }
        for barrier in kernel.barriers.iter() {
            let base = plan.bytes.checked_next_multiple_of(BARRIER_BYTES).unwrap_or(u64::MAX);
            plan.barriers.push(base);
            plan.bytes = base.saturating_add(BARRIER_BYTES * u64::from(barrier.slots));
        }
        plan
    }

    /// First byte of a tile.
    pub fn base(&self, tile: SmemId) -> u64 {
        self.bases.get(tile.index()).copied().unwrap_or(0)
    }

    /// First byte of a barrier.
    pub fn barrier(&self, barrier: BarrierId) -> u64 {
        self.barriers.get(barrier.index()).copied().unwrap_or(0)
    }

    /// Bytes of all tiles and barriers, gaps included.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// The finding for tiles that together need more than a CTA has, `exchange` bytes of the compiler's own
/// included.
pub(crate) fn over_budget(kernel: &Kernel, exchange: u64) -> Option<Diagnostic> {
    let plan = SmemPlan::of(kernel);
    let limit = u64::from(kernel.target.info().max_shared_bytes);
    let needed = plan.bytes().saturating_add(exchange);
    let largest = kernel.smem.iter().max_by_key(|tile| {
        (tile.slot_bytes().saturating_mul(u64::from(tile.slots)), std::cmp::Reverse(tile.span))
    })?;
    if needed <= limit {
        return None;
    }
    let mut diagnostic = Diagnostic::error(
        Code::E0503,
        format!("{needed} bytes of shared memory where a CTA has {limit}"),
    )
    .label(largest.span, "the largest tile");
    for tile in kernel.smem.iter() {
        let all = tile.slot_bytes().saturating_mul(u64::from(tile.slots));
        let slots =
            if tile.slots > 1 { format!(" in {} slots", tile.slots) } else { String::new() };
        diagnostic = diagnostic.note(format!("`{}`: {all} bytes{slots}", tile.name));
    }
    if exchange > 0 {
        diagnostic =
            diagnostic.note(format!("reductions and relayouts between warps: {exchange} bytes"));
    }
    Some(diagnostic.help("take smaller tiles, fewer slots, or narrower elements"))
}

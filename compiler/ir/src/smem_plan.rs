//! Where tiles lie in the shared memory of a CTA: one after the other in the order of declaration, each slot
//! at a multiple of the tile's alignment, then the barriers of roles, then the word with the address of tensor memory.
//! What the compiler itself exchanges between warps lies behind them. Tiles in tensor memory lie in columns of their own,
//! and behind them, for each role with block-scaled products, the scales of the product that it starts.

use kernel_dsl::diag::{Code, Diagnostic};

use crate::index::Id;
use crate::infer::tile_axes;
use crate::kernel::{
    BarrierId, Kernel, RoleId, Smem, SmemId, Stmt, StmtKind, TENSOR_COLUMNS, Tensor, TileAccess,
    scale_columns,
};

/// Bytes of one slot of a barrier.
const BARRIER_BYTES: u64 = 8;

/// Bytes of the address of tensor memory.
const ADDRESS_BYTES: u64 = 8;

/// Each slot in tensor memory starts at a multiple of so many columns, and so many are allocated at least.
const COLUMN_STEP: u64 = 32;

/// The places of all tiles.
#[derive(Debug, Clone, Default)]
pub struct SmemPlan {
    /// First byte of each tile, or its first column.
    bases: Vec<u64>,
    /// Columns of tensor memory that all tiles take, and scales.
    columns: u64,
    /// First column of the scales of each role that has some.
    scales: Vec<(RoleId, u64)>,
    /// Where the address of tensor memory is put.
    address: Option<u64>,
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
            if tile.is_tensor() {
                plan.bases.push(plan.columns);
                let slots = slot_columns(tile.columns()).saturating_mul(tile.slots.into());
                plan.columns = plan.columns.saturating_add(slots);
                continue;
            }
            let base = plan.bytes.checked_next_multiple_of(u64::from(tile.align));
            let base = base.unwrap_or(u64::MAX);
            let slots = u64::from(tile.slots).saturating_sub(1);
            let all = tile.slot_bytes().saturating_mul(slots).saturating_add(tile.span_bytes());
            plan.bases.push(base);
            plan.bytes = base.saturating_add(all);
        }
        let mut needed = Vec::new();
        scales(&kernel.body, None, &mut needed);
        for (role, columns) in needed {
            plan.scales.push((role, plan.columns));
            plan.columns = plan.columns.saturating_add(slot_columns(columns));
        }
        for barrier in kernel.barriers.iter() {
            let base = plan.bytes.checked_next_multiple_of(BARRIER_BYTES).unwrap_or(u64::MAX);
            plan.barriers.push(base);
            plan.bytes = base.saturating_add(BARRIER_BYTES * u64::from(barrier.slots));
        }
        if plan.columns > 0 {
            let base = plan.bytes.checked_next_multiple_of(ADDRESS_BYTES).unwrap_or(u64::MAX);
            plan.address = Some(base);
            plan.bytes = base.saturating_add(ADDRESS_BYTES);
        }
        plan
    }

    /// Columns of tensor memory that are allocated: a power of two, or none.
    pub fn allocated(&self) -> u64 {
        match self.columns {
            0 => 0,
            columns => columns.checked_next_power_of_two().unwrap_or(u64::MAX),
        }
    }

    /// First column of the scales of a role's products.
    pub fn scales(&self, role: RoleId) -> Option<u64> {
        self.scales.iter().find(|(of, _)| *of == role).map(|(_, column)| *column)
    }

    /// First byte of the address of tensor memory, where the kernel has some.
    pub fn address(&self) -> Option<u64> {
        self.address
    }

    /// First byte of a tile in shared memory; first column of one in tensor memory.
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

/// The columns that the scales of one product take, at most, by role.
fn scales(stmts: &[Stmt], role: Option<RoleId>, needed: &mut Vec<(RoleId, u32)>) {
    for stmt in stmts {
        if let StmtKind::Tensor(Tensor::Mma(mma)) = &stmt.kind
            && let (Some(role), Some(scales)) = (role, &mma.scales)
        {
            let columns: u32 = scales.iter().map(of_scales).sum();
            match needed.iter_mut().find(|(of, _)| *of == role) {
                Some((_, most)) => *most = columns.max(*most),
                None => needed.push((role, columns)),
            }
        }
        let inner = if let StmtKind::Role { role, .. } = &stmt.kind { Some(*role) } else { role };
        stmt.kind.bodies().into_iter().for_each(|body| scales(body, inner, needed));
    }
}

/// The columns that scales take.
fn of_scales(access: &TileAccess) -> u32 {
    let lengths: Vec<u32> = tile_axes(access).iter().map(|axis| axis.len).collect();
    if let [rows, groups] = *lengths { scale_columns(rows, groups) } else { 0 }
}

/// Columns from one slot of a tile in tensor memory to the next.
pub fn slot_columns(columns: u32) -> u64 {
    u64::from(columns).next_multiple_of(COLUMN_STEP)
}

/// Shared memory of a multiprocessor in bytes, and what each of its CTAs loses of it to the system; on all targets.
const OF_MULTIPROCESSOR: u32 = 228 * 1024;
const OF_SYSTEM: u32 = 1024;

/// Bytes of shared memory that a CTA of the kernel can have, beside as many others as its launch asks for.
pub(crate) fn shared_limit(kernel: &Kernel) -> u32 {
    let most = kernel.target.info().max_shared_bytes;
    let share = OF_MULTIPROCESSOR.checked_div(kernel.launch.min_ctas.unwrap_or(1));
    share.map_or(most, |share| share.saturating_sub(OF_SYSTEM).min(most))
}

/// Who has so much of something: `a CTA`, or each of those that share a multiprocessor.
fn owner(kernel: &Kernel) -> String {
    match kernel.launch.min_ctas {
        None | Some(0 | 1) => "a CTA".to_owned(),
        Some(n) => format!("each of {n} CTAs (`min_ctas`)"),
    }
}

/// The finding for tiles in tensor memory that together need more than a CTA has.
fn too_many_columns(kernel: &Kernel, plan: &SmemPlan) -> Option<Diagnostic> {
    let tiles = || kernel.smem.iter().filter(|tile| tile.is_tensor());
    let all = |tile: &Smem| slot_columns(tile.columns()).saturating_mul(tile.slots.into());
    let largest = tiles().max_by_key(|tile| (all(tile), std::cmp::Reverse(tile.span)))?;
    let needed = plan.allocated();
    let limit = TENSOR_COLUMNS.checked_div(kernel.launch.min_ctas.unwrap_or(1)).unwrap_or(0);
    if needed <= u64::from(limit) {
        return None;
    }
    let owner = owner(kernel);
    let message = format!("{needed} columns of tensor memory where {owner} has {limit}");
    let mut found = Diagnostic::error(Code::E0503, message).label(largest.span, "the largest tile");
    for tile in tiles() {
        let slots =
            if tile.slots > 1 { format!(" in {} slots", tile.slots) } else { String::new() };
        found = found.note(format!("`{}`: {} columns{slots}", tile.name, all(tile)));
    }
    let tiles: u64 = tiles().map(all).sum();
    if plan.columns > tiles {
        found = found.note(format!("block scales: {} columns", plan.columns - tiles));
    }
    let help = "take fewer columns or slots; each slot takes a multiple of 32, all together a power of two";
    Some(found.help(help))
}

/// The finding for tiles that together need more than a CTA has, `exchange` bytes of the compiler's own
/// included.
pub(crate) fn over_budget(kernel: &Kernel, exchange: u64) -> Option<Diagnostic> {
    let plan = SmemPlan::of(kernel);
    if let Some(found) = too_many_columns(kernel, &plan) {
        return Some(found);
    }
    let limit = u64::from(shared_limit(kernel));
    let needed = plan.bytes().saturating_add(exchange);
    let tiles = || kernel.smem.iter().filter(|tile| !tile.is_tensor());
    let largest = tiles().max_by_key(|tile| {
        (tile.slot_bytes().saturating_mul(u64::from(tile.slots)), std::cmp::Reverse(tile.span))
    })?;
    if needed <= limit {
        return None;
    }
    let mut diagnostic = Diagnostic::error(
        Code::E0503,
        format!("{needed} bytes of shared memory where {} has {limit}", owner(kernel)),
    )
    .label(largest.span, "the largest tile");
    for tile in tiles() {
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

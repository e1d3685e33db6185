//! How large a kernel may grow. The numbers are far above what a useful kernel needs and far below
//! what makes a later stage slow.

/// Statements of a kernel after unrolling and inlining.
pub(super) const MAX_STATEMENTS: usize = 100_000;
/// Nodes of the tree that one instantiation visits, repetitions counted.
pub(super) const MAX_STEPS: usize = 500_000;
/// Nesting of expressions, blocks and inlined calls together.
pub(super) const MAX_DEPTH: usize = 128;
/// Elements of a tile.
pub(super) const MAX_TILE_ELEMENTS: u64 = 1 << 22;
/// 32-bit registers that one thread needs for a tile which is spread evenly over the CTA. A thread has 255.
pub(super) const MAX_TILE_REGISTERS: u64 = 1024;
/// Slots of a register ring.
pub(super) const MAX_RING: i64 = 64;
/// Slots of a ring in shared memory.
pub(super) const MAX_SMEM_RING: i64 = 64;
/// Bytes of the alignment of a tile in shared memory.
pub(super) const MAX_SMEM_ALIGN: i64 = 1024;
/// CTAs along x.
pub(super) const MAX_GRID_X: i64 = i32::MAX as i64;
/// CTAs along y and along z.
pub(super) const MAX_GRID_YZ: i64 = 65_535;
/// CTAs of a cluster: what every target takes.
pub(super) const MAX_CLUSTER: u32 = 8;
/// CTAs of one multiprocessor.
pub(super) const MAX_MIN_CTAS: i64 = 32;
/// Warps of all CTAs of a multiprocessor.
pub(super) const MAX_WARPS_TOGETHER: i64 = 64;

//! Fences between the ways to memory: bulk copies, tensor copies and products go another one than threads do.
//!
//! A fence stands in the CTA whose copy or product it is for: ahead of the meeting or the release by which its threads
//! hand over what they have written, behind the wait or the meeting by which they learn of what other CTAs have sent or
//! stored, and behind the wait by which a thread may start a copy over what threads have touched. What the back end makes of an operation has no fence
//! of this kind in it, but for the one that barriers are made with.

use kernel_abi::Access;
use rustc_hash::FxHashSet;

use super::Expander;
use crate::device::{DeviceOp, DevicePipe, WaitOrder, WarpgroupOp};
use crate::kernel::{
    BarrierId, Kernel, Op, Outgoing, PipeOp, SmemId, Stmt, StmtKind, Tensor, TileAccess, Warpgroup,
};

/// Which fences a kernel needs.
#[derive(Debug, Default)]
pub(super) struct Fences {
    /// Threads write what products read.
    hands_over: bool,
    /// Threads of other CTAs write what products read.
    takes_over: bool,
    /// Tiles that products read and the one thread of a role has written.
    alone: FxHashSet<SmemId>,
    /// Tiles that copies fill and threads touch.
    refilled: FxHashSet<SmemId>,
    /// Barriers that count copies into such tiles, with an `open` ahead of each.
    reopened: FxHashSet<BarrierId>,
    /// Barriers that count what other CTAs send to tiles which products or copies read.
    sent: FxHashSet<BarrierId>,
    /// Copies read or write buffers that earlier kernels may have touched.
    follows_kernels: bool,
}

/// What the statements do to tiles, by the way that they go.
#[derive(Default)]
struct Ways {
    read_by_products: FxHashSet<SmemId>,
    read_by_copies: FxHashSet<SmemId>,
    filled: Vec<(BarrierId, SmemId)>,
    opened: FxHashSet<BarrierId>,
    sent: Vec<(BarrierId, SmemId)>,
    written: FxHashSet<SmemId>,
    written_by_others: FxHashSet<SmemId>,
    written_alone: FxHashSet<SmemId>,
    touched: FxHashSet<SmemId>,
    follows_kernels: bool,
}

fn tile(access: &TileAccess) -> Option<SmemId> {
    access.storage.tile().map(|(tile, _)| tile)
}

impl Ways {
    fn walk(&mut self, kernel: &Kernel, stmts: &[Stmt], is_alone: bool) {
        for stmt in stmts {
            self.note(kernel, &stmt.kind, is_alone);
            let is_alone = match &stmt.kind {
                StmtKind::Role { role, .. } => kernel.roles[*role].elect,
                _ => is_alone,
            };
            for body in stmt.kind.bodies() {
                self.walk(kernel, body, is_alone);
            }
        }
    }

    fn note(&mut self, kernel: &Kernel, kind: &StmtKind, is_alone: bool) {
        let may_be_written = |access: &TileAccess| {
            let access = access.storage.param().map(|param| kernel.params[param].access);
            access.is_some_and(|access| access != Access::Static)
        };
        match kind {
            StmtKind::Def { op: Op::Load { access, .. }, .. } => self.touched.extend(tile(access)),
            StmtKind::Store { access, .. } | StmtKind::CopyAsync { dest: access, .. } => {
                self.written.extend(tile(access));
                self.touched.extend(tile(access));
                if access.storage.cta().is_some() {
                    self.written_by_others.extend(tile(access));
                }
                if is_alone {
                    self.written_alone.extend(tile(access));
                }
            }
            StmtKind::Warpgroup(Warpgroup::Mma(mma)) => {
                self.read_by_products.extend(mma.reads().filter_map(tile));
            }
            StmtKind::Tensor(Tensor::Mma(mma)) => {
                self.read_by_products.extend(mma.reads().filter_map(tile));
            }
            StmtKind::Outgoing(Outgoing::Copy { source, dest, .. }) => {
                self.read_by_copies.extend(tile(source));
                self.follows_kernels |= may_be_written(dest);
            }
            StmtKind::Pipe(PipeOp::Copy { source, dest, barrier, .. }) => {
                self.filled.extend(tile(dest).map(|tile| (*barrier, tile)));
                self.follows_kernels |= may_be_written(source);
            }
            StmtKind::Pipe(PipeOp::Send { dest, barrier, .. }) => {
                self.sent.extend(tile(dest).map(|tile| (*barrier, tile)));
                self.touched.extend(tile(dest));
            }
            StmtKind::Pipe(PipeOp::Open { full, .. }) => {
                self.opened.insert(*full);
            }
            _ => {}
        }
    }
}

impl Fences {
    pub(super) fn of(kernel: &Kernel) -> Fences {
        let mut ways = Ways::default();
        ways.walk(kernel, &kernel.body, false);
        let Ways { read_by_products, read_by_copies, filled, opened, sent, .. } = ways;
        let refilled: FxHashSet<SmemId> = filled
            .iter()
            .map(|&(_, tile)| tile)
            .filter(|tile| ways.touched.contains(tile))
            .collect();
        let reopened = filled
            .iter()
            .filter(|(barrier, tile)| opened.contains(barrier) && refilled.contains(tile));
        let is_read =
            |tile: &SmemId| read_by_products.contains(tile) || read_by_copies.contains(tile);
        Fences {
            hands_over: read_by_products.iter().any(|tile| ways.written.contains(tile)),
            takes_over: read_by_products.iter().any(|t| ways.written_by_others.contains(t)),
            alone: read_by_products.intersection(&ways.written_alone).copied().collect(),
            reopened: reopened.map(|&(barrier, _)| barrier).collect(),
            sent: sent
                .iter()
                .filter(|(_, tile)| is_read(tile))
                .map(|&(barrier, _)| barrier)
                .collect(),
            refilled,
            follows_kernels: ways.follows_kernels,
        }
    }
}

impl Expander<'_> {
    fn fence_shared(&mut self) {
        self.b.emit(DeviceOp::Warpgroup(WarpgroupOp::ProxyFence));
    }

    /// Threads order what they have written ahead of what products read after the barrier that follows.
    pub(super) fn hand_over_operands(&mut self) {
        if self.fences.hands_over {
            self.fence_shared();
        }
    }

    /// The same ahead of a meeting of the cluster, where no fence behind it does for that too.
    pub(super) fn hand_over_to_cluster(&mut self) {
        if !self.fences.takes_over {
            self.hand_over_operands();
        }
    }

    /// Behind a meeting of the cluster: what other CTAs have stored before it comes ahead of what products read. Their own
    /// fences do not count here.
    pub(super) fn take_over_operands(&mut self) {
        if self.fences.takes_over {
            self.fence_shared();
        }
    }

    /// The one thread of a role orders what it has written ahead of a product that it starts itself.
    pub(super) fn order_operands<'a>(&mut self, mut reads: impl Iterator<Item = &'a TileAccess>) {
        let fences = &self.fences;
        let is_own = reads.any(|access| tile(access).is_some_and(|t| fences.alone.contains(&t)));
        if is_own && self.b.is_elected() {
            self.fence_shared();
        }
    }

    /// Behind the wait of an `open`: what threads did to the slot comes ahead of the copies that fill it again.
    pub(super) fn order_refill(&mut self, full: BarrierId) {
        if self.fences.reopened.contains(&full) {
            self.fence_shared();
        }
    }

    /// Ahead of a copy whose barrier nobody opens, the same.
    pub(super) fn order_fill(&mut self, dest: &TileAccess, barrier: BarrierId) {
        let is_refilled = tile(dest).is_some_and(|tile| self.fences.refilled.contains(&tile));
        if is_refilled && !self.fences.reopened.contains(&barrier) {
            self.fence_shared();
        }
    }

    /// Behind a wait for what other CTAs have sent: it comes ahead of what products and copies read of it.
    pub(super) fn order_sent(&mut self, barrier: BarrierId) {
        if self.fences.sent.contains(&barrier) {
            self.fence_shared();
        }
    }

    /// Behind a wait for earlier kernels: what they did comes ahead of what copies read and write.
    pub(super) fn order_kernels(&mut self) {
        if self.fences.follows_kernels {
            self.b.emit(DeviceOp::Pipe(DevicePipe::Fence));
        }
    }

    /// What a copy reads ahead of the wait, an earlier kernel may have written, and what it reads of a buffer that the
    /// kernel may store to, its own threads.
    pub(super) fn order_read(&mut self, source: &TileAccess) {
        let is_early = matches!(self.order, WaitOrder::Before | WaitOrder::Mixed);
        let access = source.storage.param().map(|param| self.kernel.params[param].access);
        let by_others = is_early && access.is_some_and(|access| access != Access::Static);
        if by_others || access.is_some_and(Access::is_writable) {
            self.b.emit(DeviceOp::Pipe(DevicePipe::Fence));
        }
    }
}

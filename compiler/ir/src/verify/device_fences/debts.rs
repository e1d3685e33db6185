//! What some path has left undone.

use std::collections::BTreeSet;

use crate::kernel::{BarrierId, RoleId};

/// Bytes of the expansion's own shared memory, and the role that touches them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exchange {
    pub(super) lo: i64,
    pub(super) hi: i64,
    pub(super) role: Option<RoleId>,
}

impl Exchange {
    pub(super) fn overlaps(self, other: Exchange) -> bool {
        self.lo < other.hi && other.lo < self.hi
    }
}

/// How far a store to a tile that products read has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// The own thread has stored.
    Stored,
    /// To another CTA.
    Sent,
    /// The cluster has met since.
    Met,
}

/// Debts of all paths to a place.
#[derive(Debug, Clone, Default)]
pub(super) struct Debts {
    /// Regions that are read since threads have met.
    pub(super) read: Vec<Exchange>,
    /// The same, written.
    pub(super) written: Vec<Exchange>,
    /// Stores to tiles that products read, without a fence since.
    pub(super) stores: BTreeSet<(u32, Stage)>,
    /// Tiles that other CTAs have sent to, waited for without a fence.
    pub(super) sent: BTreeSet<u32>,
    /// Barriers into whose slots nothing may be copied yet.
    pub(super) unopened: BTreeSet<BarrierId>,
    /// Copies at other barriers may not fill.
    pub(super) fills_stale: bool,
    /// Something came after the last fence for copies of buffers.
    pub(super) copies_stale: bool,
    /// `grid_wait` has no such fence behind it.
    pub(super) follows: bool,
    /// `grid_wait` may not have been passed.
    pub(super) early: bool,
    /// A wait has no fence of tensor memory behind it.
    pub(super) tensor_stale: bool,
    /// Tensor memory is touched since the last fence ahead of an arrival.
    pub(super) tensor_used: bool,
    /// The CTAs of the cluster may not have met.
    pub(super) unmet: bool,
    /// Memory of another CTA is touched since they have.
    pub(super) open: bool,
}

impl Debts {
    /// Both paths lead here.
    pub(super) fn join(&mut self, other: Debts) {
        for (own, more) in [(&mut self.read, other.read), (&mut self.written, other.written)] {
            for region in more {
                if !own.contains(&region) {
                    own.push(region);
                }
            }
        }
        self.stores.extend(other.stores);
        self.sent.extend(other.sent);
        self.unopened.extend(other.unopened);
        self.fills_stale |= other.fills_stale;
        self.copies_stale |= other.copies_stale;
        self.follows |= other.follows;
        self.early |= other.early;
        self.tensor_stale |= other.tensor_stale;
        self.tensor_used |= other.tensor_used;
        self.unmet |= other.unmet;
        self.open |= other.open;
    }

    pub(super) fn collides(&self, region: Exchange) -> bool {
        self.read.iter().chain(&self.written).any(|used| used.overlaps(region))
    }

    pub(super) fn store(&mut self, tile: u32, stage: Stage) {
        self.stores.insert((tile, stage));
    }

    /// All threads of the CTA meet, or those of a role.
    pub(super) fn meet(&mut self, role: Option<RoleId>) {
        let stays = |region: &Exchange| role.is_some() && region.role != role;
        self.read.retain(stays);
        self.written.retain(stays);
        self.fills_stale = true;
        self.copies_stale = true;
    }

    /// All threads of the cluster do.
    pub(super) fn meet_cluster(&mut self) {
        self.meet(None);
        let stores = std::mem::take(&mut self.stores);
        self.stores.extend(stores.into_iter().map(|(tile, _)| (tile, Stage::Met)));
        self.unmet = false;
        self.open = false;
    }

    /// A fence of shared memory.
    pub(super) fn fence(&mut self) {
        self.stores.retain(|(_, stage)| *stage == Stage::Sent);
        self.sent.clear();
        self.unopened.clear();
        self.fills_stale = false;
    }

    /// A role answers for what it does itself.
    pub(super) fn enter_role(&mut self) {
        self.stores.retain(|(_, stage)| *stage != Stage::Stored);
        self.leave_role();
    }

    /// Fences of tensor memory are of each role alone.
    pub(super) fn leave_role(&mut self) {
        self.tensor_stale = false;
        self.tensor_used = false;
    }

    /// The thread waits at a barrier behind which slots of others are free.
    pub(super) fn wait(&mut self, reopened: impl Iterator<Item = BarrierId>) {
        self.unopened.extend(reopened);
        self.fills_stale = true;
        self.copies_stale = true;
    }
}

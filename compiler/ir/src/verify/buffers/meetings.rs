//! What CTAs do to a buffer, and which loads `sync cluster` orders ahead of which stores.
//!
//! Between a load and a later store of one cluster stands a meeting where every path from one to the other has a
//! `sync cluster`. A load that comes after a store is never in order: the emulator would not show what it reads.

use std::collections::BTreeSet;

use kernel_dsl::source::Span;

use super::ctas::Owners;
use super::{Does, MAX_RECENT};
use crate::kernel::Launch;

/// A load, and whether some path from it has not come to a `sync cluster`.
struct Load {
    owners: Owners,
    span: Span,
    unmet: bool,
    /// It may still read when the statement has passed.
    late: bool,
}

/// A store, and the loads that a meeting orders ahead of it.
struct Store {
    owners: Owners,
    span: Span,
    after: BTreeSet<usize>,
    does: Does,
    /// It comes after what other CTAs have changed.
    is_last: bool,
}

/// The loads and stores of a buffer, each kind once.
#[derive(Default)]
pub(super) struct Seen {
    loads: Vec<Load>,
    stores: Vec<Store>,
}

impl Seen {
    pub(super) fn load(&mut self, owners: Owners, span: Span, late: bool) {
        let is_known = |load: &Load| load.unmet && load.late == late && load.owners == owners;
        if !self.loads.iter().rev().take(MAX_RECENT).any(is_known) {
            self.loads.push(Load { owners, span, unmet: true, late });
        }
    }

    pub(super) fn store(&mut self, owners: Owners, span: Span, does: Does) {
        self.note_store(owners, span, does, false);
    }

    /// A store of the last CTA to arrive.
    pub(super) fn store_last(&mut self, owners: Owners, span: Span) {
        self.note_store(owners, span, Does::Write, true);
    }

    fn note_store(&mut self, owners: Owners, span: Span, does: Does, is_last: bool) {
        let met = |(_, load): &(usize, &Load)| !load.unmet;
        let after: BTreeSet<usize> =
            self.loads.iter().enumerate().filter(met).map(|(number, _)| number).collect();
        let mut recent = self.stores.iter_mut().rev().take(MAX_RECENT);
        match recent
            .find(|store| (&store.owners, store.does, store.is_last) == (&owners, does, is_last))
        {
            Some(known) => known.after.retain(|number| after.contains(number)),
            None => self.stores.push(Store { owners, span, after, does, is_last }),
        }
    }

    /// All CTAs of the cluster are here.
    pub(super) fn meet(&mut self) {
        for load in &mut self.loads {
            load.unmet = load.late;
        }
    }

    /// Which loads some path has not taken to a meeting.
    pub(super) fn unmet(&self) -> Vec<bool> {
        self.loads.iter().map(|load| load.unmet).collect()
    }

    /// Goes back to what was so before an arm.
    pub(super) fn restore(&mut self, unmet: &[bool]) {
        for (load, &unmet) in self.loads.iter_mut().zip(unmet) {
            load.unmet = unmet;
        }
    }

    /// Two paths meet.
    pub(super) fn join(&mut self, unmet: &[bool]) {
        for (load, &unmet) in self.loads.iter_mut().zip(unmet) {
            load.unmet |= unmet;
        }
    }

    /// Stores to what other CTAs may change by atomics, each with one such; `pairs` may be compared.
    pub(super) fn changed(&self, launch: &Launch, mut pairs: u32) -> Vec<(Span, Span)> {
        let mut found = Vec::new();
        for store in self.stores.iter().filter(|store| store.does == Does::Write && !store.is_last)
        {
            let mut updates = self.stores.iter().filter(|store| store.does == Does::Change);
            let foreign = updates.find(|update| {
                let Some(left) = pairs.checked_sub(1) else { return true };
                pairs = left;
                !store.owners.is_private(&update.owners, launch.grid)
            });
            found.extend(foreign.map(|update| (store.span, update.span)));
        }
        found
    }

    /// Loads of what other CTAs may store, each with one such store; `pairs` may be compared.
    pub(super) fn shared(&self, launch: &Launch, mut pairs: u32) -> Vec<(Span, Span)> {
        // Along these axes CTAs are of one cluster.
        let between: [u32; 3] = std::array::from_fn(|axis| {
            let (grid, cluster) = (launch.grid[axis], launch.cluster[axis]);
            if grid == cluster { 1 } else { grid }
        });
        let mut found = Vec::new();
        for (number, load) in self.loads.iter().enumerate() {
            let foreign = self.stores.iter().find(|store| {
                let Some(left) = pairs.checked_sub(1) else { return true };
                pairs = left;
                let grid = if store.after.contains(&number) { between } else { launch.grid };
                !load.owners.is_private(&store.owners, grid)
            });
            found.extend(foreign.map(|store| (load.span, store.span)));
        }
        found
    }
}

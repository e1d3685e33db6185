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
pub(super) struct Store {
    owners: Owners,
    span: Span,
    after: BTreeSet<usize>,
    does: Does,
    /// It comes after what other CTAs have changed.
    is_last: bool,
    /// A round of a work list does it.
    in_list: bool,
}

impl Store {
    pub(super) fn new(
        owners: Owners,
        span: Span,
        does: Does,
        is_last: bool,
        in_list: bool,
    ) -> Store {
        Store { owners, span, after: BTreeSet::new(), does, is_last, in_list }
    }

    /// True where another CTA may touch what this one does, and in no order.
    fn meets(&self, other: &Store, launch: &Launch) -> bool {
        !self.is_last
            && !other.is_last
            && !self.owners.is_private(&other.owners, launch.grid)
            && !self.owners.is_apart(&other.owners, launch.grid)
    }
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

    pub(super) fn store(&mut self, new: Store) {
        let met = |(_, load): &(usize, &Load)| !load.unmet;
        let after: BTreeSet<usize> =
            self.loads.iter().enumerate().filter(met).map(|(number, _)| number).collect();
        let mut recent = self.stores.iter_mut().rev().take(MAX_RECENT);
        let same = |known: &&mut Store| {
            let of = |store: &Store| (store.does, store.is_last, store.in_list);
            of(known) == of(&new) && known.owners == new.owners
        };
        match recent.find(same) {
            Some(known) => known.after.retain(|number| after.contains(number)),
            None => self.stores.push(Store { after, ..new }),
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

    /// Atomics of two operations on what CTAs share.
    pub(super) fn mixed(&self, launch: &Launch, pairs: u32) -> Vec<(Span, Span)> {
        self.unordered(
            launch,
            pairs,
            |a, b| matches!((a.does, b.does), (Does::Change(a), Does::Change(b)) if a != b),
        )
    }

    /// Stores of rounds of a work list to what other rounds store to, or CTAs outside of it.
    pub(super) fn rounds(&self, launch: &Launch, pairs: u32) -> Vec<(Span, Span)> {
        self.unordered(launch, pairs, |a, b| {
            (a.does, b.does) == (Does::Write, Does::Write) && (a.in_list || b.in_list)
        })
    }

    /// Accesses, each with an earlier one that another CTA may do to the same, of those pairs that need an order.
    fn unordered(
        &self,
        launch: &Launch,
        mut pairs: u32,
        needs: impl Fn(&Store, &Store) -> bool,
    ) -> Vec<(Span, Span)> {
        let mut found = Vec::new();
        for (number, later) in self.stores.iter().enumerate() {
            let mut earlier = self.stores[..number].iter().filter(|earlier| needs(earlier, later));
            let foreign = earlier.find(|earlier| {
                let Some(left) = pairs.checked_sub(1) else { return true };
                pairs = left;
                later.meets(earlier, launch)
            });
            found.extend(foreign.map(|earlier| (later.span, earlier.span)));
        }
        found
    }

    /// Stores to what other CTAs may change by atomics, each with one such; `pairs` may be compared.
    pub(super) fn changed(&self, launch: &Launch, mut pairs: u32) -> Vec<(Span, Span)> {
        let mut found = Vec::new();
        for store in self.stores.iter().filter(|store| store.does == Does::Write && !store.is_last)
        {
            let mut updates =
                self.stores.iter().filter(|store| matches!(store.does, Does::Change(_)));
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

//! What waits for an exchange between warps.

use rustc_hash::FxHashSet;

use super::fold::Combine;
use crate::device::{FragId, LocId};
use crate::distribution::{AxisMap, Distribution};
use crate::kernel::{Stmt, ValueId};

/// A fold whose parts still differ between warps.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    pub(super) loc: LocId,
    pub(super) results: Vec<ValueId>,
    /// One fragment a result.
    pub(super) parts: Vec<FragId>,
    pub(super) combine: Combine,
    /// How the results are spread.
    pub(super) kept: Distribution,
    /// The axes that are folded away.
    pub(super) folded: Vec<AxisMap>,
    /// What is added last.
    pub(super) acc: Option<ValueId>,
    /// Its entry in the notes.
    pub(super) note: usize,
}

/// Folds that wait for their exchange, and the pure statements that wait for their results.
#[derive(Debug, Default)]
pub(super) struct Queue<'k> {
    pending: Vec<Pending>,
    deferred: Vec<(&'k Stmt, LocId)>,
    waiting: FxHashSet<ValueId>,
}

impl<'k> Queue<'k> {
    pub(super) fn push(&mut self, pending: Pending) {
        self.waiting.extend(&pending.results);
        self.pending.push(pending);
    }

    /// Puts a pure statement off; `results` are the values that it defines.
    pub(super) fn defer(&mut self, stmt: &'k Stmt, loc: LocId, results: &[ValueId]) {
        self.waiting.extend(results);
        self.deferred.push((stmt, loc));
    }

    pub(super) fn is_waiting(&self, value: ValueId) -> bool {
        self.waiting.contains(&value)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.deferred.is_empty()
    }

    /// Everything that waits, folds first.
    pub(super) fn take(&mut self) -> (Vec<Pending>, Vec<(&'k Stmt, LocId)>) {
        self.waiting.clear();
        (std::mem::take(&mut self.pending), std::mem::take(&mut self.deferred))
    }
}

//! Copies out of shared memory that are under way: groups of one thread, oldest first.
//!
//! A copy reads when a `settle` of what it reads says so and not before, and writes when one of what it writes does. Nothing
//! orders what two copies under way write, so no two of a thread write one element.

use std::collections::VecDeque;
use std::sync::Arc;

use kernel_dsl::source::Span;
use kernel_ir::kernel::ParamId;

use crate::error::{EmuError, ErrorKind};
use crate::roles::Late;

/// Where a copy writes.
pub(crate) struct Landing {
    pub(crate) param: ParamId,
    /// First element, number, and first of what is moved; by the first element.
    pub(crate) runs: Vec<(u64, usize, usize)>,
}

impl Landing {
    pub(crate) fn new(param: ParamId, mut runs: Vec<(u64, usize, usize)>) -> Landing {
        runs.sort_unstable();
        Landing { param, runs }
    }

    /// The first element that both write.
    fn meets(&self, other: &Landing) -> Option<u64> {
        let (mut own, mut others) = (self.runs.as_slice(), other.runs.as_slice());
        while self.param == other.param
            && let (Some(&(a, m, _)), Some(&(b, n, _))) = (own.first(), others.first())
        {
            if a.saturating_add(m as u64) <= b {
                own = &own[1..];
            } else if b.saturating_add(n as u64) <= a {
                others = &others[1..];
            } else {
                return Some(a.max(b));
            }
        }
        None
    }
}

/// A copy; `C` is what it moves.
pub(crate) struct Departure<C> {
    pub(crate) copy: C,
    pub(crate) landing: Landing,
    /// For those who write what it reads.
    pub(crate) late: Arc<Late>,
    /// It has read what it moves.
    pub(crate) has_read: bool,
    pub(crate) span: Span,
}

/// The groups.
pub(crate) struct Departures<C> {
    open: Vec<Departure<C>>,
    groups: VecDeque<Vec<Departure<C>>>,
}

impl<C> Default for Departures<C> {
    fn default() -> Self {
        Departures { open: Vec::new(), groups: VecDeque::new() }
    }
}

impl<C> Departures<C> {
    /// Starts a copy; an error where one under way writes the same elements.
    pub(crate) fn start(
        &mut self,
        copy: C,
        landing: Landing,
        late: Arc<Late>,
        span: Span,
    ) -> Result<(), EmuError> {
        for earlier in self.groups.iter().flatten().chain(&self.open) {
            if let Some(element) = earlier.landing.meets(&landing) {
                let message =
                    format!("a copy writes element {element} of a buffer while one under way does");
                return Err(EmuError::new(ErrorKind::StoreConflict, span, message)
                    .other(earlier.span, "the copy under way, which may write it later"));
            }
        }
        self.open.push(Departure { copy, landing, late, has_read: false, span });
        Ok(())
    }

    /// Closes the group of the copies since the last one.
    pub(crate) fn close(&mut self) {
        self.groups.push_back(std::mem::take(&mut self.open));
    }

    /// The copies of all but the `pending` youngest groups; they are put back where they only have read.
    pub(crate) fn settled(&mut self, pending: usize) -> Vec<Vec<Departure<C>>> {
        let count = self.groups.len().saturating_sub(pending);
        self.groups.drain(..count).collect()
    }

    /// Puts groups back that are not complete.
    pub(crate) fn put_back(&mut self, groups: Vec<Vec<Departure<C>>>) {
        groups.into_iter().rev().for_each(|group| self.groups.push_front(group));
    }

    /// An error where the threads end with a copy under way.
    pub(crate) fn end(&self) -> Result<(), EmuError> {
        let Some(left) = self.open.iter().chain(self.groups.iter().flatten()).next() else {
            return Ok(());
        };
        let message = "a copy out of shared memory is under way when its threads end";
        Err(EmuError::new(ErrorKind::Absent, left.span, message))
    }
}

/// The error of a copy that reads something else than it would have when it started.
pub(crate) fn changed(name: &str, at: Span, copy: Span) -> EmuError {
    let message = format!("{name} is written while a copy may still read it");
    EmuError::new(ErrorKind::SharedRace, at, message).other(copy, "the copy")
}

/// The error of a copy of what threads have stored and not ordered ahead of it.
pub(crate) fn unpublished(name: &str, copy: Span) -> EmuError {
    let message = format!("a copy reads {name}, which threads have written and not published");
    EmuError::new(ErrorKind::SharedRace, copy, message)
}

//! How much memory may be taken at a time by those who share it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Memory that several threads take shares of.
#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    taken: u64,
    is_closed: bool,
}

/// A share of a budget, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Share<'b> {
    budget: &'b Budget,
    bytes: u64,
}

impl Budget {
    /// A budget of that many bytes.
    pub(super) fn new(limit: u64) -> Budget {
        Budget { limit, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Waits until so many bytes are left, or, for more than there are, until all are. `None` once it is closed.
    pub(super) fn take(&self, bytes: u64) -> Option<Share<'_>> {
        let mut state = self.state();
        while !state.is_closed && state.taken > 0 && state.taken.saturating_add(bytes) > self.limit
        {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_closed {
            return None;
        }
        state.taken = state.taken.saturating_add(bytes);
        Some(Share { budget: self, bytes })
    }

    /// Gives nothing any more; those who wait go.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let mut state = self.budget.state();
        state.taken = state.taken.saturating_sub(self.bytes);
        drop(state);
        self.budget.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn shares_stay_within_the_limit_and_the_large_one_comes_alone() {
        let budget = Budget::new(10);
        let (now, most) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (budget, now, most) = (&budget, &now, &most);
                scope.spawn(move || {
                    for round in 0..50 {
                        let bytes = if (thread + round) % 17 == 0 { 25 } else { 1 + round % 5 };
                        let share = budget.take(bytes).unwrap();
                        let taken = now.fetch_add(bytes, Ordering::SeqCst) + bytes;
                        assert!(taken <= 10 || taken == 25, "{taken}");
                        most.fetch_max(taken, Ordering::SeqCst);
                        std::thread::yield_now();
                        now.fetch_sub(bytes, Ordering::SeqCst);
                        drop(share);
                    }
                });
            }
        });
        assert_eq!((most.into_inner(), budget.state().taken), (25, 0));
    }

    #[test]
    fn those_who_wait_for_a_closed_one_go() {
        let budget = Budget::new(10);
        let share = budget.take(8);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| budget.take(5).is_none());
            budget.close();
            assert!(waits.join().unwrap());
        });
        drop(share);
        assert!(budget.take(1).is_none());
    }
}

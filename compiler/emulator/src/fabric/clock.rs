//! What parties know of each other.

/// For every party the last of its intervals that is known; nothing is known of those that have no entry.
#[derive(Debug, Clone, Default)]
pub(super) struct Clock(Vec<u32>);

impl Clock {
    /// The last interval of a party that is known; they start at 1.
    pub(super) fn of(&self, party: usize) -> u32 {
        self.0.get(party).copied().unwrap_or(0)
    }

    pub(super) fn set(&mut self, party: usize, interval: u32) {
        if self.0.len() <= party {
            self.0.resize(party + 1, 0);
        }
        self.0[party] = interval;
    }

    /// Learns what another one knows.
    pub(super) fn join(&mut self, other: &Clock) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            *own = (*own).max(*other);
        }
    }
}

//! Copies that read a buffer which the kernel stores to: they go on behind their statement.
//!
//! A copy by threads has read when they have settled its group, and others know of it when they have met. A copy whose
//! bytes a barrier counts has read when its role has ended, since who waits for the bytes has by then. What comes in a
//! later round of a loop is compared with all that may be under way at the end of one.

use super::place::Place;

/// A copy that may still read.
#[derive(Debug, Clone)]
pub(super) struct Reading {
    pub(super) place: Place,
    /// The number of the role that has started it.
    role: Option<u32>,
    /// A barrier counts its bytes.
    by_bytes: bool,
    /// Groups that were closed after its own, at least.
    since: u32,
    /// It has read, and the threads that have waited know.
    settled: bool,
}

/// Those on some path.
#[derive(Debug, Clone, Default)]
pub(super) struct Readings(Vec<Reading>);

impl Readings {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Reading> {
        self.0.iter()
    }

    /// A copy starts, of what may be stored to.
    pub(super) fn start(&mut self, place: Place, role: Option<u32>, by_bytes: bool) {
        self.0.push(Reading { place, role, by_bytes, since: 0, settled: false });
    }

    /// A group is closed that is younger than all so far.
    pub(super) fn close_group(&mut self) {
        self.0.iter_mut().for_each(|reading| reading.since = reading.since.saturating_add(1));
    }

    /// All groups but the youngest are complete.
    pub(super) fn settle(&mut self, role: Option<u32>, pending: u32) {
        for reading in self.0.iter_mut().filter(|r| r.role == role && !r.by_bytes) {
            reading.settled |= reading.since >= pending;
        }
    }

    /// All threads meet, or those of a role.
    pub(super) fn meet(&mut self, role: Option<u32>) {
        self.0.retain(|reading| !reading.settled || (role.is_some() && reading.role != role));
    }

    /// A role ends.
    pub(super) fn end_role(&mut self, role: Option<u32>) {
        for reading in self.0.iter_mut().filter(|r| r.role == role && r.by_bytes) {
            reading.settled = true;
        }
    }

    /// Two paths meet.
    pub(super) fn join(&mut self, other: Readings) {
        for reading in other.0 {
            match self.0.iter_mut().find(|known| known.place.is_at(&reading.place)) {
                Some(known) => {
                    known.since = known.since.min(reading.since);
                    known.settled &= reading.settled;
                }
                None => self.0.push(reading),
            }
        }
    }

    /// Those that the other ones are not.
    pub(super) fn without(&self, other: &Readings) -> Vec<Place> {
        let is_new = |place: &&Place| !other.iter().any(|known| known.place.is_at(place));
        self.iter().map(|reading| &reading.place).filter(is_new).cloned().collect()
    }
}

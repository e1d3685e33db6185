//! Copies that go on behind their statement: until when they touch a buffer, in one round of a loop and in later ones.

use super::super::scalars::Form;
use super::place::Place;
use crate::kernel::{BarrierId, RoleId};

/// Copies whose groups are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Groups {
    /// Into shared memory, by each thread.
    Into,
    /// Out of shared memory, by one thread.
    OutOf,
}

/// A copy that may go on, and by what it is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Flight {
    /// Its group, behind which at least so many have been closed.
    Group(Groups, u32),
    /// The round of a barrier.
    Round(BarrierId, Form),
}

impl Flight {
    /// Two paths meet.
    pub(super) fn join(known: &mut Option<Flight>, other: &Option<Flight>) {
        *known = match (known.take(), other) {
            (Some(Flight::Group(of, a)), Some(Flight::Group(_, b))) => {
                Some(Flight::Group(of, a.min(*b)))
            }
            (known, other) => known.or_else(|| other.clone()),
        };
    }
}

/// Something by which copies that some threads have started go on or end.
pub(super) enum Event {
    /// A group is closed.
    Closed(Groups),
    /// All groups but the youngest ones are complete.
    Settled(Groups, u32),
    /// A round of a barrier is complete.
    Waited(BarrierId, Form),
}

impl Event {
    /// What it does to copies of the same threads.
    pub(super) fn apply(&self, places: &mut [Place], role: Option<(u32, RoleId)>) {
        for place in places.iter_mut().filter(|place| place.who.role == role) {
            match (self, &mut place.flight) {
                (Event::Closed(of), Some(Flight::Group(groups, behind))) if groups == of => {
                    *behind = behind.saturating_add(1);
                }
                (Event::Settled(of, pending), Some(Flight::Group(groups, behind)))
                    if groups == of && *behind >= *pending =>
                {
                    place.flight = None;
                }
                (Event::Waited(of, at), Some(Flight::Round(barrier, index)))
                    if barrier == of && index == at =>
                {
                    place.flight = None;
                }
                (_, _) => {}
            }
        }
    }
}

/// What a round has done to the copies of a kind that earlier rounds have left.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    /// Groups that it has closed, at least.
    closed: i64,
    /// The most that it has closed beyond those that a wait left alone.
    settled: Option<i64>,
    /// The same, where a meeting has followed.
    met: Option<i64>,
}

/// An access of a round.
struct Touched {
    place: Place,
    /// Ahead of the first meeting on some path.
    is_first: bool,
    /// Groups into and out of shared memory.
    met: [Option<i64>; 2],
}

/// What a round has done so far.
pub(super) struct Head {
    touched: Vec<Touched>,
    /// All paths have met.
    pub(super) has_met: bool,
    /// Loops and choices around the statements of the body.
    depth: u32,
    counts: [Count; 2],
}

impl Head {
    pub(super) fn new(depth: u32, has_met: bool) -> Head {
        Head { touched: Vec::new(), has_met, depth, counts: [Count::default(); 2] }
    }

    /// Takes an access behind a meeting only where copies go on: `late`.
    pub(super) fn touch(&mut self, place: &Place, late: bool) {
        if self.has_met && !late {
            return;
        }
        let met = self.counts.map(|count| count.met);
        self.touched.push(Touched { place: place.clone(), is_first: !self.has_met, met });
    }

    pub(super) fn happens(&mut self, event: &Event, depth: u32) {
        // What stands in a choice may not happen.
        if depth != self.depth {
            return;
        }
        match event {
            Event::Closed(of) => self.counts[*of as usize].closed += 1,
            Event::Settled(of, pending) => {
                let count = &mut self.counts[*of as usize];
                count.settled = count.settled.max(Some(count.closed - i64::from(*pending)));
            }
            Event::Waited(..) => {}
        }
    }

    pub(super) fn meet(&mut self, depth: u32) {
        self.has_met = true;
        if depth == self.depth {
            self.counts.iter_mut().for_each(|count| count.met = count.settled);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.touched.is_empty()
    }

    /// The accesses that come before the threads have met behind one that an earlier round has left.
    pub(super) fn ahead<'h>(&'h self, end: &'h Place) -> impl Iterator<Item = &'h Place> {
        let goes_on = |touched: &Touched| match &end.flight {
            None => false,
            Some(Flight::Group(of, behind)) => {
                let met = touched.met[*of as usize];
                met.is_none_or(|beyond| i64::from(*behind) + beyond < 0)
            }
            Some(Flight::Round(..)) => true,
        };
        let ahead = move |touched: &&Touched| touched.is_first || goes_on(touched);
        self.touched.iter().filter(ahead).map(|touched| &touched.place)
    }
}

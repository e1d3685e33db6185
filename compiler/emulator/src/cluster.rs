//! The CTAs of a cluster: where they meet, and the shared memory of each.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kernel_dsl::source::{FileId, Span};

use crate::error::{EmuError, ErrorKind};
use crate::roles::Known;
use crate::turns::{Awaited, Seat};

/// What the CTAs of a cluster share; `S` is the shared memory of one of them.
pub(crate) struct Cluster<S> {
    meeting: Mutex<Meeting>,
    shared: Vec<Mutex<S>>,
    ctas: Vec<[u32; 3]>,
}

/// Where the CTAs of a cluster stand.
struct Meeting {
    /// CTAs that wait for the others.
    arrived: usize,
    /// Meetings so far.
    number: u32,
    lives: Vec<Life>,
    /// By rank, what a CTA knew of itself when it came last, and what all did at the last meeting.
    coming: Vec<Vec<u64>>,
    met: Known,
}

/// How far a CTA is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// It has not started.
    Coming,
    /// It runs.
    Here,
    /// It has ended, and its shared memory may be another one's.
    Gone,
}

impl Meeting {
    /// All that have not ended are there; those that have count as arrived.
    fn close(&mut self) {
        let awaited = self.lives.iter().filter(|&&life| life != Life::Gone).count();
        if self.arrived >= awaited {
            self.arrived = 0;
            self.number += 1;
            self.met = Arc::new(self.coming.clone());
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S> Cluster<S> {
    /// The cluster of these CTAs, by rank; `shared` makes the memory of one.
    pub(crate) fn new(ctas: Vec<[u32; 3]>, shared: impl Fn(usize) -> S) -> Cluster<S> {
        let lives = vec![Life::Coming; ctas.len()];
        let coming = vec![Vec::new(); ctas.len()];
        let met = Known::default();
        Cluster {
            meeting: Mutex::new(Meeting { arrived: 0, number: 0, lives, coming, met }),
            shared: (0..ctas.len()).map(|rank| Mutex::new(shared(rank))).collect(),
            ctas,
        }
    }

    /// Where in the grid a CTA of the cluster is.
    pub(crate) fn position(&self, rank: usize) -> [u32; 3] {
        self.ctas[rank]
    }
}

/// One CTA of a cluster at work.
pub(crate) struct Member<'c, S> {
    cluster: &'c Cluster<S>,
    /// Its place at the table; none where it is the only one.
    seat: Option<&'c Seat<'c>>,
    rank: usize,
}

impl<S> Clone for Member<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Member<'_, S> {}

impl<'c, S> Member<'c, S> {
    /// The CTA starts.
    pub(crate) fn start(
        cluster: &'c Cluster<S>,
        seat: Option<&'c Seat<'c>>,
        rank: usize,
    ) -> Member<'c, S> {
        locked(&cluster.meeting).lives[rank] = Life::Here;
        Member { cluster, seat, rank }
    }

    /// The CTA has ended.
    pub(crate) fn end(self) {
        let mut meeting = locked(&self.cluster.meeting);
        meeting.lives[self.rank] = Life::Gone;
        meeting.close();
    }

    /// Its place at the table, where there is one.
    pub(crate) fn seat(self) -> Option<&'c Seat<'c>> {
        self.seat
    }

    /// The same at another place: a role of the CTA.
    pub(crate) fn at<'s>(self, seat: &'s Seat<'s>) -> Member<'s, S>
    where
        'c: 's,
    {
        Member { cluster: self.cluster, seat: Some(seat), rank: self.rank }
    }

    /// Its rank in the cluster.
    pub(crate) fn rank(self) -> usize {
        self.rank
    }

    /// CTAs of the cluster.
    pub(crate) fn size(self) -> usize {
        self.cluster.ctas.len()
    }

    /// Those that a copy goes to: the own CTA, or all of the cluster.
    pub(crate) fn targets(self, everywhere: bool) -> std::ops::Range<usize> {
        if everywhere { 0..self.size() } else { self.rank..self.rank + 1 }
    }

    /// Where in the grid a CTA of the cluster is.
    pub(crate) fn position(self, rank: usize) -> [u32; 3] {
        self.cluster.position(rank)
    }

    /// How far a CTA of the cluster is.
    pub(crate) fn life(self, rank: usize) -> Life {
        locked(&self.cluster.meeting).lives[rank]
    }

    /// The own shared memory.
    pub(crate) fn own(self) -> MutexGuard<'c, S> {
        self.shared(self.rank)
    }

    /// Shared memory of a CTA of the cluster.
    pub(crate) fn shared(self, rank: usize) -> MutexGuard<'c, S> {
        locked(&self.cluster.shared[rank])
    }

    fn meetings(self) -> u32 {
        locked(&self.cluster.meeting).number
    }

    /// The first CTA of the cluster, and the number of the meeting that comes next.
    pub(crate) fn meeting(self) -> ([u32; 3], u32) {
        (self.position(0), self.meetings())
    }

    /// What each CTA of the cluster knew of itself at the last meeting.
    pub(crate) fn met(self) -> Known {
        Arc::clone(&locked(&self.cluster.meeting).met)
    }

    /// Meets all CTAs of the cluster, with what this one knows of itself; the number of meetings so far.
    ///
    /// # Errors
    /// One of them does not come.
    pub(crate) fn meet(self, seen: &[u64], span: Span) -> Result<u32, EmuError> {
        let number = {
            let mut meeting = locked(&self.cluster.meeting);
            let number = meeting.number;
            meeting.arrived += 1;
            meeting.coming[self.rank] = seen.to_vec();
            meeting.close();
            number
        };
        let [x, y, z] = self.position(self.rank);
        let awaited =
            || Awaited { what: format!("CTA ({x}, {y}, {z}) waits for its cluster"), span };
        if let Some(seat) = self.seat {
            seat.wait(|| self.meetings() > number, awaited)?;
        }
        Ok(number + 1)
    }
}

/// No CTA, and more than one.
const NOBODY: u32 = u32::MAX;
const SEVERAL: u32 = u32::MAX - 1;

/// An access by a CTA of the cluster.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    /// Its rank.
    pub(crate) cta: u32,
    /// Meetings before it.
    pub(crate) meeting: u32,
    pub(crate) span: Span,
}

impl Seen {
    const NEVER: Seen =
        Seen { cta: NOBODY, meeting: 0, span: Span { file: FileId(0), lo: 0, hi: 0 } };

    /// True where nothing orders it before an access of another CTA.
    fn races(self, by: Seen) -> bool {
        self.cta != NOBODY && self.meeting == by.meeting && self.cta != by.cta
    }
}

/// The last accesses of one place of shared memory, between CTAs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Marks {
    write: Seen,
    read: Seen,
}

impl Marks {
    pub(crate) const NEVER: Marks = Marks { write: Seen::NEVER, read: Seen::NEVER };

    /// Notes a read; gives the write that it races with.
    pub(crate) fn read(&mut self, by: Seen) -> Option<Seen> {
        let several = self.read.races(by);
        self.read = Seen { cta: if several { SEVERAL } else { by.cta }, ..by };
        Some(self.write).filter(|write| write.races(by))
    }

    /// Notes a write; gives the access that it races with.
    pub(crate) fn write(&mut self, by: Seen) -> Option<Seen> {
        let clash = [self.write, self.read].into_iter().find(|seen| seen.races(by));
        self.write = by;
        clash
    }
}

impl<S> Member<'_, S> {
    /// An access of this CTA after so many meetings.
    pub(crate) fn seen(self, meeting: u32, span: Span) -> Seen {
        Seen { cta: self.rank as u32, meeting, span }
    }

    /// The error of two accesses that nothing orders; `name` is what both touch.
    pub(crate) fn race(self, name: &str, by: Seen, other: Seen) -> EmuError {
        let message = format!(
            "two CTAs of a cluster touch {name} without `sync cluster` between, and one of them writes"
        );
        let who = match other.cta {
            SEVERAL => "several CTAs read it here".to_owned(),
            rank => {
                let [x, y, z] = self.position(rank as usize);
                format!("CTA ({x}, {y}, {z}) touches it here")
            }
        };
        EmuError::new(ErrorKind::ClusterRace, by.span, message).other(other.span, who)
    }
}

//! Roles of a CTA: what each knows of the others, and accesses of shared memory that nothing orders.
//!
//! Time is counted apart for the whole CTA and for each role: it goes on where what was done so far becomes known to
//! others. An access of one of them comes before an access of another one if that one has seen its time. CTAs count for
//! themselves, and where those of a cluster meet, each learns what the others know of themselves.

use std::sync::{Arc, Mutex, PoisonError};

use kernel_dsl::source::Span;
use kernel_ir::index::IndexVec;
use kernel_ir::kernel::{Barrier, BarrierId, Role, RoleId};

use crate::error::{EmuError, ErrorKind};

/// The whole CTA, outside of roles.
const ALL: usize = 0;

/// Agents from this one on are of another CTA.
const OTHER: usize = usize::MAX / 2;

/// Whose time it is: the whole CTA's, or that of the role with this number.
pub(crate) fn agent(role: Option<usize>) -> usize {
    role.map_or(ALL, |role| role + 1)
}

/// The own time of an agent, and the times of the others that it has seen.
#[derive(Debug, Clone)]
pub(crate) struct Clock {
    /// Rank of the CTA in its cluster.
    cta: usize,
    agent: usize,
    now: u64,
    /// By agent, the last moment that is known.
    seen: Vec<u64>,
    /// What the threads of roles that have ended knew: each its own part until all meet.
    ended: Vec<u64>,
    /// By agent of the other CTA of a pair, the last moment that is known.
    of_other: Vec<u64>,
    /// By CTA of the cluster, what it knew of itself where all of them met last.
    met: Known,
}

/// What each CTA of a cluster knows of itself: by rank, by agent, the last moment.
pub(crate) type Known = Arc<Vec<Vec<u64>>>;

impl Clock {
    /// The clock of a CTA with a rank, so many roles, and barriers that have so many slots.
    pub(crate) fn new(cta: usize, roles: usize, slots: usize) -> Clock {
        let seen = vec![0; roles + 1 + slots];
        let (ended, of_other, met) = (seen.clone(), seen.clone(), Known::default());
        Clock { cta, agent: ALL, now: 1, seen, ended, of_other, met }
    }

    /// The clock of one who knows so much and does nothing in this CTA itself.
    pub(crate) fn of_observer(seen: Vec<u64>) -> Clock {
        let (ended, of_other, met) = (Vec::new(), Vec::new(), Known::default());
        Clock { cta: OTHER, agent: OTHER, now: 0, seen, ended, of_other, met }
    }

    /// The clock in another CTA of the role that a clock is of, with so much knowledge.
    pub(crate) fn elsewhere(&self, seen: Vec<u64>) -> Clock {
        Clock { agent: OTHER + self.agent.min(OTHER), ..Clock::of_observer(seen) }
    }

    /// What the own CTA's knowledge is.
    pub(crate) fn seen(&self) -> &[u64] {
        &self.seen
    }

    /// What is known of the other CTA of the pair.
    pub(crate) fn of_other(&self) -> &[u64] {
        &self.of_other
    }

    /// What a wait brings of the other CTA of the pair.
    pub(crate) fn learn_of_other(&mut self, known: &[u64]) {
        join(&mut self.of_other, known);
    }

    /// All CTAs of the cluster have met, and each knew so much of itself.
    pub(crate) fn meet_cluster(&mut self, met: Known) {
        self.met = met;
    }

    /// The CTA.
    pub(crate) fn cta(&self) -> usize {
        self.cta
    }

    /// Whose time it is.
    pub(crate) fn agent(&self) -> usize {
        self.agent
    }

    /// All threads of the CTA meet.
    pub(crate) fn meet(&mut self) {
        self.seen[self.agent] = self.now;
        self.now += 1;
        let ended = std::mem::take(&mut self.ended);
        join(&mut self.seen, &ended);
        self.ended = ended;
    }

    /// The clock of a role that begins.
    pub(crate) fn begin(&self, role: usize) -> Clock {
        let agent = agent(Some(role));
        let now = self.ended[agent] + 1;
        let (seen, ended) = (self.seen.clone(), self.ended.clone());
        let (of_other, met) = (self.of_other.clone(), Arc::clone(&self.met));
        Clock { cta: self.cta, agent, now, seen, ended, of_other, met }
    }

    /// A role ends; its warps go on, but know no more than before of what others did.
    pub(crate) fn end(&mut self, role: &Clock) {
        join(&mut self.ended, &role.seen);
        self.ended[role.agent] = role.now;
    }

    /// What an arrival makes known: everything that the role has done or seen.
    pub(crate) fn publish(&mut self) -> Vec<u64> {
        let mut known = self.seen.clone();
        known[self.agent] = self.now;
        self.now += 1;
        known
    }

    /// What is known of asynchronous operations that are complete, and of nobody else.
    pub(crate) fn complete(&self, roles: usize) -> Vec<u64> {
        let of = |(agent, &at): (usize, &u64)| if agent > roles { at } else { 0 };
        self.seen.iter().enumerate().map(of).collect()
    }

    /// What a wait brings.
    pub(crate) fn learn(&mut self, known: &[u64]) {
        join(&mut self.seen, known);
    }

    /// True where the clock has seen what another one marked.
    pub(crate) fn has_seen(&self, other: Stamp) -> bool {
        let knows = |seen: &Vec<u64>| seen.get(other.agent).is_some_and(|&seen| seen >= other.at);
        other.agent == self.agent || knows(&self.seen) || self.met.get(other.cta).is_some_and(knows)
    }

    /// The mark of what is done now.
    pub(crate) fn stamp(&self, span: Span) -> Stamp {
        Stamp { cta: self.cta, agent: self.agent, at: self.now, span }
    }
}

/// Takes the later time of each.
pub(crate) fn join(into: &mut [u64], from: &[u64]) {
    for (into, &from) in into.iter_mut().zip(from) {
        *into = (*into).max(from);
    }
}

/// When something was touched, and by whom.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamp {
    /// Rank of the CTA whose time it is.
    cta: usize,
    agent: usize,
    at: u64,
    span: Span,
}

impl Stamp {
    /// The mark of an agent of a CTA at a time.
    pub(crate) fn of(cta: usize, agent: usize, at: u64, span: Span) -> Stamp {
        Stamp { cta, agent, at, span }
    }

    /// True for two marks of one agent.
    pub(crate) fn is_of_agent(self, other: Stamp) -> bool {
        (self.cta, self.agent) == (other.cta, other.agent)
    }
}

/// A product that reads as late as it likes, until a round is complete that says that it is.
#[derive(Debug)]
pub(crate) struct Late {
    cta: usize,
    agent: usize,
    span: Span,
    complete: Mutex<Vec<Stamp>>,
}

impl Late {
    /// A product that a role starts.
    pub(crate) fn new(by: &Clock, span: Span) -> Arc<Late> {
        Arc::new(Late { cta: by.cta, agent: by.agent, span, complete: Mutex::default() })
    }

    /// It is complete when a round is.
    pub(crate) fn commit(&self, round: Stamp) {
        let mut complete = self.complete.lock().unwrap_or_else(PoisonError::into_inner);
        if !complete.iter().any(|known| known.agent == round.agent) {
            complete.push(round);
        }
    }

    /// Its mark, where a clock has not seen it complete.
    fn running(&self, by: &Clock) -> Option<Stamp> {
        let complete = self.complete.lock().unwrap_or_else(PoisonError::into_inner);
        let is_seen = complete.iter().any(|&round| by.has_seen(round));
        (!is_seen).then(|| Stamp::of(self.cta, self.agent, u64::MAX, self.span))
    }
}

/// The last accesses of one place of shared memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Touches {
    write: Option<Stamp>,
    /// Since then, the last one of each agent.
    reads: Vec<Stamp>,
    /// A product that reads it later.
    late: Option<Arc<Late>>,
}

impl Touches {
    /// Notes a read; gives the write that it races with.
    pub(crate) fn read(&mut self, by: &Clock, span: Span) -> Option<Stamp> {
        let stamp = by.stamp(span);
        match self.reads.iter_mut().find(|read| read.is_of_agent(stamp)) {
            Some(read) => *read = stamp,
            None => self.reads.push(stamp),
        }
        self.write.filter(|&write| !by.has_seen(write))
    }

    /// Notes a write; gives the access that it races with.
    pub(crate) fn write(&mut self, by: &Clock, span: Span) -> Option<Stamp> {
        let clash = self.write.iter().chain(&self.reads).find(|&&other| !by.has_seen(other));
        let late = self.late.take().and_then(|late| late.running(by));
        let clash = late.or(clash.copied());
        self.reads.clear();
        self.write = Some(by.stamp(span));
        clash
    }

    /// Something from another CTA has landed.
    pub(crate) fn land(&mut self, stamp: Stamp) {
        self.write = Some(stamp);
    }

    /// Notes that a product of the role reads it later; the look at it when the product starts is no read of its threads.
    pub(crate) fn read_late(&mut self, by: &Clock, span: Span, late: &Arc<Late>) {
        let look = by.stamp(span);
        let is_look =
            |read: &Stamp| (read.agent, read.at, read.span) == (look.agent, look.at, look.span);
        self.reads.retain(|read| !is_look(read));
        self.late = Some(Arc::clone(late));
    }

    /// Notes what a copy will write; gives the access that it races with.
    pub(crate) fn copy(&mut self, by: &Clock, copy: Stamp) -> Option<Stamp> {
        let clash = self.write(by, copy.span);
        self.write = Some(copy);
        clash
    }
}

/// Who the parties of a CTA are, for messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Names<'k> {
    pub(crate) roles: &'k IndexVec<RoleId, Role>,
    pub(crate) barriers: &'k IndexVec<BarrierId, Barrier>,
}

impl Names<'_> {
    fn of(self, agent: usize) -> String {
        if agent >= OTHER {
            return "another CTA".to_owned();
        }
        let Some(mut number) = agent.checked_sub(1) else { return "the whole CTA".to_owned() };
        if let Some(role) = self.roles.iter().nth(number) {
            return format!("role `{}`", role.name);
        }
        number -= self.roles.len();
        for barrier in self.barriers.iter() {
            match number.checked_sub(barrier.slots as usize) {
                Some(rest) => number = rest,
                None => return format!("what `{}` counts", barrier.name),
            }
        }
        "a copy".to_owned()
    }

    /// The error of two accesses that nothing orders; `name` is what both touch.
    pub(crate) fn race(self, name: &str, by: &Clock, span: Span, other: Stamp) -> EmuError {
        let (own, before) = (self.of(by.agent), self.of(other.agent));
        let message = format!(
            "{own} and {before} touch {name}, one of them writes, and nothing orders the two"
        );
        EmuError::new(ErrorKind::RoleRace, span, message)
            .other(other.span, format!("{before} touches it here"))
    }
}

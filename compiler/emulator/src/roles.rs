//! Roles of a CTA: what each knows of the others, and accesses of shared memory that nothing orders.
//!
//! Time is counted apart for the whole CTA and for each role: it goes on where what was done so far becomes known to
//! others. An access of one of them comes before an access of another one if that one has seen its time.

use kernel_dsl::source::Span;
use kernel_ir::index::IndexVec;
use kernel_ir::kernel::{Barrier, BarrierId, Role, RoleId};

use crate::error::{EmuError, ErrorKind};

/// The whole CTA, outside of roles.
const ALL: usize = 0;

/// Whose time it is: the whole CTA's, or that of the role with this number.
pub(crate) fn agent(role: Option<usize>) -> usize {
    role.map_or(ALL, |role| role + 1)
}

/// The own time of an agent, and the times of the others that it has seen.
#[derive(Debug, Clone)]
pub(crate) struct Clock {
    agent: usize,
    now: u64,
    /// By agent, the last moment that is known.
    seen: Vec<u64>,
    /// What the threads of roles that have ended knew: each its own part until all meet.
    ended: Vec<u64>,
}

impl Clock {
    /// The clock of a CTA with so many roles, whose barriers have so many slots.
    pub(crate) fn new(roles: usize, slots: usize) -> Clock {
        let seen = vec![0; roles + 1 + slots];
        Clock { agent: ALL, now: 1, ended: seen.clone(), seen }
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
        Clock { agent, now, seen: self.seen.clone(), ended: self.ended.clone() }
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

    /// What a wait brings.
    pub(crate) fn learn(&mut self, known: &[u64]) {
        join(&mut self.seen, known);
    }

    /// True where the clock has seen what another one marked.
    fn has_seen(&self, other: Stamp) -> bool {
        other.agent == self.agent || self.seen[other.agent] >= other.at
    }

    fn stamp(&self, span: Span) -> Stamp {
        Stamp { agent: self.agent, at: self.now, span }
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
    agent: usize,
    at: u64,
    span: Span,
}

impl Stamp {
    /// The mark of an agent at a time.
    pub(crate) fn of(agent: usize, at: u64, span: Span) -> Stamp {
        Stamp { agent, at, span }
    }
}

/// The last accesses of one place of shared memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Touches {
    write: Option<Stamp>,
    /// Since then, the last one of each agent.
    reads: Vec<Stamp>,
}

impl Touches {
    /// Notes a read; gives the write that it races with.
    pub(crate) fn read(&mut self, by: &Clock, span: Span) -> Option<Stamp> {
        let stamp = by.stamp(span);
        match self.reads.iter_mut().find(|read| read.agent == stamp.agent) {
            Some(read) => *read = stamp,
            None => self.reads.push(stamp),
        }
        self.write.filter(|&write| !by.has_seen(write))
    }

    /// Notes a write; gives the access that it races with.
    pub(crate) fn write(&mut self, by: &Clock, span: Span) -> Option<Stamp> {
        let clash = self.write.iter().chain(&self.reads).find(|&&other| !by.has_seen(other));
        let clash = clash.copied();
        self.reads.clear();
        self.write = Some(by.stamp(span));
        clash
    }

    /// Something from another CTA has landed.
    pub(crate) fn land(&mut self, stamp: Stamp) {
        self.write = Some(stamp);
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
        let Some(mut number) = agent.checked_sub(1) else { return "the whole CTA".to_owned() };
        if let Some(role) = self.roles.iter().nth(number) {
            return format!("role `{}`", role.name);
        }
        number -= self.roles.len();
        for barrier in self.barriers.iter() {
            match number.checked_sub(barrier.slots as usize) {
                Some(rest) => number = rest,
                None => return format!("a copy into `{}`", barrier.name),
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

//! What signals of counters say of accesses, and who has waited for them.
//!
//! Assumes that every CTA raises a word once, on every path, and that a wait for it is for all who share it, itself
//! included: E0174. Then what a CTA did before a meeting of its threads and the signal comes before what those do who
//! have waited for the word. A signal of a role says what its own threads have met, and a wait of a role tells it alone,
//! until all threads meet.

use std::collections::BTreeSet;

/// A role that is at work: its number in the text, and whether it is one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Worker {
    pub(super) number: u32,
    pub(super) elect: bool,
}

/// Which threads have met since an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Met {
    Nobody,
    /// Those of the role that did it.
    Role,
    All,
}

/// How far an access is known: which words have been raised behind it.
#[derive(Debug, Clone)]
pub(super) struct Said {
    role: Option<u32>,
    met: Met,
    raised: BTreeSet<usize>,
}

impl Said {
    /// An access by a role, or by all threads.
    pub(super) fn new(role: Option<u32>) -> Said {
        Said { role, met: Met::Nobody, raised: BTreeSet::new() }
    }

    /// It is done again: nobody has met since then.
    pub(super) fn again(&mut self) {
        self.met = Met::Nobody;
    }

    /// All threads of the CTA have met since.
    pub(super) fn is_met(&self) -> bool {
        self.met == Met::All
    }

    /// The threads of a role meet, or all.
    pub(super) fn meet(&mut self, role: Option<u32>) {
        self.met = match role {
            None => Met::All,
            Some(_) if self.role == role => self.met.max(Met::Role),
            Some(_) => self.met,
        };
    }

    /// One thread of a role, or of all, raises a word.
    pub(super) fn signal(&mut self, word: usize, by: Option<Worker>) {
        let is_own = by
            .is_some_and(|by| self.role == Some(by.number) && (by.elect || self.met == Met::Role));
        if is_own || self.met == Met::All {
            self.raised.insert(word);
        }
    }

    /// A word counts the access by other means.
    pub(super) fn raise(&mut self, word: usize) {
        self.raised.insert(word);
    }

    /// The words that have been raised behind it.
    pub(super) fn raised(&self) -> &BTreeSet<usize> {
        &self.raised
    }
}

/// The words that have been waited for, and by which role.
#[derive(Debug, Clone, Default)]
pub(super) struct Waited(Vec<(usize, Option<u32>)>);

impl Waited {
    /// A role, or all threads, have waited for a word.
    pub(super) fn wait(&mut self, word: usize, role: Option<u32>) {
        self.0.push((word, role));
    }

    /// All threads of the CTA meet: what some have waited for all know.
    pub(super) fn meet(&mut self) {
        self.0.iter_mut().for_each(|(_, role)| *role = None);
    }

    /// What a role, or all threads, know.
    pub(super) fn words(&self, role: Option<u32>) -> BTreeSet<usize> {
        let known = self.0.iter().filter(|(_, by)| by.is_none() || *by == role);
        known.map(|&(word, _)| word).collect()
    }
}

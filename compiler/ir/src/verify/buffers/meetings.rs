//! What CTAs do to a buffer, and which loads `sync cluster` orders ahead of which stores.
//!
//! Between a load and a later store of one cluster stands a meeting where every path from one to the other has a
//! `sync cluster`. A load that comes after a store is never in order: the emulator would not show what it reads.

use std::cell::Cell;
use std::collections::BTreeSet;

use kernel_dsl::source::Span;

use super::super::scalars::Form;
use super::super::told::{Said, Worker};
use super::ctas::Owners;
use super::words::CtaDigit;
use super::{Does, MAX_RECENT};
use crate::kernel::Launch;

/// Who does an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct By {
    /// The role.
    pub(super) role: Option<u32>,
    /// The word at which it was the last to arrive.
    pub(super) last: Option<usize>,
}

/// How far the news of an access has come: other CTAs know of it when it was published by a meeting of threads ahead of
/// the signal of a word, for which they have waited.
struct News {
    by: By,
    said: Said,
    /// Words that told it to all threads: of the last to arrive, and of meetings of the cluster.
    heard: BTreeSet<usize>,
}

impl News {
    fn of(by: By) -> News {
        News { by, said: Said::new(by.role), heard: BTreeSet::new() }
    }

    /// True where a further access of the same kind may stand for both.
    fn is_fresh(&self) -> bool {
        self.said.raised().is_empty() && self.heard.is_empty()
    }
}

/// Accesses that come before one, each with the number of the word that says so to those who share it.
type Behind = BTreeSet<(usize, usize)>;

/// What comes before an access from now on, if it is told.
fn heard<'n>(is_told: bool, news: impl Iterator<Item = &'n News>) -> Behind {
    let numbered = news.enumerate().filter(|_| is_told);
    numbered.flat_map(|(number, news)| news.heard.iter().map(move |&word| (number, word))).collect()
}

/// A load, and whether some path from it has not come to a `sync cluster`.
struct Load {
    owners: Owners,
    span: Span,
    unmet: bool,
    /// It may still read when the statement has passed.
    late: bool,
    news: News,
    /// Stores before it.
    behind: Behind,
    /// Words whose signals come before it.
    told: BTreeSet<usize>,
}

/// A store, and the loads that a meeting orders ahead of it.
pub(super) struct Store {
    owners: Owners,
    span: Span,
    after: BTreeSet<usize>,
    does: Does,
    /// It may still write when the statement has passed.
    late: bool,
    /// A round of a work list does it.
    in_list: bool,
    /// Its places, where it was computed that no two CTAs have one in common.
    alone: Option<Vec<(Form, u32)>>,
    news: News,
    /// Loads before it.
    behind: Behind,
    /// Stores before it.
    behind_stores: Behind,
    /// Words whose signals come before it.
    told: BTreeSet<usize>,
}

impl Store {
    pub(super) fn new(owners: Owners, span: Span, does: Does, by: By) -> Store {
        Store {
            owners,
            span,
            after: BTreeSet::new(),
            does,
            late: false,
            in_list: false,
            alone: None,
            news: News::of(by),
            behind: Behind::new(),
            behind_stores: Behind::new(),
            told: BTreeSet::new(),
        }
    }

    /// What those know who do it.
    pub(super) fn told(self, told: BTreeSet<usize>) -> Store {
        Store { told, ..self }
    }

    pub(super) fn late(self, late: bool) -> Store {
        Store { late, ..self }
    }

    pub(super) fn alone(self, alone: Option<Vec<(Form, u32)>>) -> Store {
        Store { alone, ..self }
    }

    pub(super) fn in_list(self, in_list: bool) -> Store {
        Store { in_list, ..self }
    }

    /// True where one may stand for both, if news of neither has gone to other CTAs.
    fn is_like(&self, other: &Store) -> bool {
        let of = |store: &Store| (store.does, store.late, store.in_list, store.news.by);
        of(self) == of(other) && self.owners == other.owners && self.alone == other.alone
    }
}

/// Extents of the grid, of which one is 1 where CTAs along it are in order; and the digit of the CTA's number, of which CTAs
/// with the same one are.
pub(super) type Ordered = ([u32; 3], Option<CtaDigit>);

/// What CTAs there are, and of each word along which axes of the grid they have their own.
pub(super) struct Sharing<'a> {
    pub(super) launch: &'a Launch,
    pub(super) words: &'a [Ordered],
    /// Pairs of accesses of a buffer that may still be compared.
    pub(super) pairs: Cell<u32>,
    /// The first access that was not compared with all others.
    pub(super) left_out: Cell<Option<Span>>,
}

impl<'a> Sharing<'a> {
    pub(super) fn new(launch: &'a Launch, words: &'a [Ordered], pairs: u32) -> Sharing<'a> {
        Sharing { launch, words, pairs: Cell::new(pairs), left_out: Cell::new(None) }
    }

    /// Counts one pair more; false where there were too many.
    fn counts(&self, span: Span) -> bool {
        let Some(left) = self.pairs.get().checked_sub(1) else {
            self.left_out.set(self.left_out.get().or(Some(span)));
            return false;
        };
        self.pairs.set(left);
        true
    }

    /// True where different CTAs may touch one element in no order: `between` are the extents of the grid, of which one
    /// is 1 where CTAs along it are in order, each for another reason.
    fn conflict(
        &self,
        (a, b): (&Owners, &Owners),
        mut between: impl Iterator<Item = Ordered>,
    ) -> bool {
        !between.any(|(between, digit)| {
            let grid = self.launch.grid;
            a.is_private(b, grid, between)
                || digit.is_some_and(|digit| a.is_of_digit(b, digit, grid))
        })
    }

    /// The extents, where the last to arrive at one word does both: no two CTAs are that of one.
    fn of_last(&self, a: By, b: By) -> Option<Ordered> {
        self.words.get(a.last.filter(|_| a.last == b.last)?).copied()
    }

    /// The extents, for each word that orders an access with this number before.
    fn known_by(&self, behind: &Behind, number: usize) -> impl Iterator<Item = Ordered> {
        let of_it = behind.range((number, 0)..=(number, usize::MAX));
        of_it.filter_map(|&(_, word)| self.words.get(word).copied())
    }

    /// The extents, for each word that was raised behind an access and waited for before another one.
    fn told_by<'s>(
        &'s self,
        told: &'s BTreeSet<usize>,
        news: &'s News,
    ) -> impl Iterator<Item = Ordered> + 's {
        told.intersection(news.said.raised()).filter_map(|&word| self.words.get(word).copied())
    }
}

/// The loads and stores of a buffer, each kind once.
#[derive(Default)]
pub(super) struct Seen {
    loads: Vec<Load>,
    stores: Vec<Store>,
}

impl Seen {
    /// A load, or a copy that reads: `late` where it may go on behind its statement, `is_told` where it begins behind what
    /// its CTA has heard of.
    pub(super) fn load(
        &mut self,
        (owners, span): (Owners, Span),
        (late, is_told): (bool, bool),
        by: By,
        told: BTreeSet<usize>,
    ) {
        let told = if is_told { told } else { BTreeSet::new() };
        let behind = heard(is_told, self.stores.iter().map(|store| &store.news));
        let mut recent = self.loads.iter_mut().rev().take(MAX_RECENT);
        let known = recent.find(|load| {
            load.unmet
                && (load.late, load.news.by) == (late, by)
                && load.owners == owners
                && load.news.is_fresh()
        });
        match known {
            Some(known) => {
                known.news.said.again();
                known.behind.retain(|one| behind.contains(one));
                known.told.retain(|word| told.contains(word));
            }
            None => {
                let news = News::of(by);
                self.loads.push(Load { owners, span, unmet: true, late, news, behind, told });
            }
        }
    }

    pub(super) fn store(&mut self, new: Store) {
        let met = |(_, load): &(usize, &Load)| !load.unmet;
        let after: BTreeSet<usize> =
            self.loads.iter().enumerate().filter(met).map(|(number, _)| number).collect();
        let behind = heard(!new.late, self.loads.iter().map(|load| &load.news));
        let behind_stores = heard(!new.late, self.stores.iter().map(|store| &store.news));
        let told = if new.late { BTreeSet::new() } else { new.told.clone() };
        let mut recent = self.stores.iter_mut().rev().take(MAX_RECENT);
        match recent.find(|known| known.is_like(&new) && known.news.is_fresh()) {
            Some(known) => {
                known.news.said.again();
                known.after.retain(|number| after.contains(number));
                known.behind.retain(|one| behind.contains(one));
                known.behind_stores.retain(|one| behind_stores.contains(one));
                known.told.retain(|word| told.contains(word));
            }
            None => self.stores.push(Store { after, behind, behind_stores, told, ..new }),
        }
    }

    fn news(&mut self) -> impl Iterator<Item = &mut News> {
        let loads = self.loads.iter_mut().filter(|load| !load.late).map(|load| &mut load.news);
        let stores = self.stores.iter_mut().filter(|store| !store.late);
        loads.chain(stores.map(|store| &mut store.news))
    }

    /// All threads of the CTA are here, or those of a role.
    pub(super) fn publish(&mut self, role: Option<u32>) {
        self.news().for_each(|news| news.said.meet(role));
    }

    /// The CTA raises a word, by a role of it or outside of roles.
    pub(super) fn signal(&mut self, word: usize, by: Option<Worker>) {
        self.news().for_each(|news| news.said.signal(word, by));
    }

    /// All that share a word have arrived at it.
    pub(super) fn hear(&mut self, word: usize) {
        for news in self.news().filter(|news| news.said.raised().contains(&word)) {
            news.heard.insert(word);
        }
    }

    /// The CTA, or the role of it, counts its arrival at a word; threads that meet there need no other meeting.
    pub(super) fn arrive(&mut self, word: usize, role: Option<u32>) {
        for news in self.news() {
            if news.said.is_met() || role.is_none() || news.by.role == role {
                news.said.raise(word);
            }
        }
    }

    /// Behind what the last to arrive at a word does, nobody knows who that was.
    pub(super) fn forget(&mut self, word: usize) {
        self.news().for_each(|news| {
            news.heard.remove(&word);
        });
    }

    /// All CTAs of the cluster are here, on every path: all that any of them did comes before what they do from now on.
    pub(super) fn meet_once(&mut self, word: usize) {
        self.news().for_each(|news| {
            news.heard.insert(word);
        });
    }

    /// All CTAs of the cluster are here.
    pub(super) fn meet(&mut self) {
        for load in &mut self.loads {
            load.unmet = load.late;
        }
    }

    /// Which loads some path has not taken to a meeting.
    pub(super) fn unmet(&self) -> Vec<bool> {
        self.loads.iter().map(|load| load.unmet).collect()
    }

    /// Goes back to what was so before an arm.
    pub(super) fn restore(&mut self, unmet: &[bool]) {
        for (load, &unmet) in self.loads.iter_mut().zip(unmet) {
            load.unmet = unmet;
        }
    }

    /// Two paths meet.
    pub(super) fn join(&mut self, unmet: &[bool]) {
        for (load, &unmet) in self.loads.iter_mut().zip(unmet) {
            load.unmet |= unmet;
        }
    }

    /// Atomics of two operations on what CTAs share.
    pub(super) fn mixed(&self, sharing: &Sharing<'_>) -> Vec<(Span, Span)> {
        self.unordered(
            sharing,
            |a, b| matches!((a.does, b.does), (Does::Change(a), Does::Change(b)) if a != b),
        )
    }

    /// Stores of rounds of a work list to what other rounds store to, or CTAs outside of it.
    pub(super) fn rounds(&self, sharing: &Sharing<'_>) -> Vec<(Span, Span)> {
        self.unordered(sharing, |a, b| {
            (a.does, b.does) == (Does::Write, Does::Write) && (a.in_list || b.in_list)
        })
    }

    /// Stores to what other CTAs store to as well, by the same statement or another one; rounds of work lists aside.
    pub(super) fn twice(&self, sharing: &Sharing<'_>) -> Vec<(Span, Span)> {
        let is_plain = |store: &Store| store.does == Does::Write && !store.in_list;
        let own = self.stores.iter().filter(|store| is_plain(store) && store.alone.is_none());
        let own = own.filter(|store| {
            let between = std::iter::once((sharing.launch.grid, None))
                .chain(sharing.of_last(store.news.by, store.news.by));
            sharing.conflict((&store.owners, &store.owners), between)
        });
        let own = own.map(|store| (store.span, store.span));
        let others = self.unordered(sharing, |a, b| {
            is_plain(a) && is_plain(b) && (a.alone.is_none() || a.alone != b.alone)
        });
        own.chain(others).collect()
    }

    /// Accesses, each with an earlier one that another CTA may do to the same, of those pairs that need an order.
    fn unordered(
        &self,
        sharing: &Sharing<'_>,
        needs: impl Fn(&Store, &Store) -> bool,
    ) -> Vec<(Span, Span)> {
        let mut found = Vec::new();
        for (number, later) in self.stores.iter().enumerate() {
            let mut earlier = self.stores[..number].iter().enumerate();
            let foreign = earlier.find(|(other, earlier)| {
                needs(earlier, later)
                    && sharing.counts(later.span)
                    && self.stores_conflict(sharing, number, *other)
                    && !later.owners.is_apart(&earlier.owners, sharing.launch.grid)
            });
            found.extend(foreign.map(|(_, earlier)| (later.span, earlier.span)));
        }
        found
    }

    /// True where another CTA may do one to what this one does the other to, in no order.
    fn stores_conflict(&self, sharing: &Sharing<'_>, a: usize, b: usize) -> bool {
        let (Some(one), Some(other)) = (self.stores.get(a), self.stores.get(b)) else {
            return true;
        };
        let between = std::iter::once((sharing.launch.grid, None))
            .chain(sharing.of_last(one.news.by, other.news.by))
            .chain(sharing.known_by(&one.behind_stores, b))
            .chain(sharing.known_by(&other.behind_stores, a))
            .chain(sharing.told_by(&one.told, &other.news))
            .chain(sharing.told_by(&other.told, &one.news));
        sharing.conflict((&one.owners, &other.owners), between)
    }

    /// Stores to what other CTAs may change by atomics, each with one such.
    pub(super) fn changed(&self, sharing: &Sharing<'_>) -> Vec<(Span, Span)> {
        let mut found = Vec::new();
        for (number, store) in self.stores.iter().enumerate() {
            if store.does != Does::Write {
                continue;
            }
            let mut updates = self.stores.iter().enumerate();
            let foreign = updates.find(|(other, update)| {
                matches!(update.does, Does::Change(_))
                    && sharing.counts(store.span)
                    && self.stores_conflict(sharing, number, *other)
            });
            found.extend(foreign.map(|(_, update)| (store.span, update.span)));
        }
        found
    }

    /// Loads of what other CTAs may store, each with one such store.
    pub(super) fn shared(&self, sharing: &Sharing<'_>) -> Vec<(Span, Span)> {
        let (grid, between) = (sharing.launch.grid, sharing.launch.between_clusters());
        let mut found = Vec::new();
        for (number, load) in self.loads.iter().enumerate() {
            let mut stores = self.stores.iter().enumerate();
            let foreign = stores.find(|(other, store)| {
                if !sharing.counts(load.span) {
                    return false;
                }
                let met = if store.after.contains(&number) { between } else { grid };
                let between = std::iter::once((met, None))
                    .chain(sharing.of_last(load.news.by, store.news.by))
                    .chain(sharing.known_by(&load.behind, *other))
                    .chain(sharing.known_by(&store.behind, number))
                    .chain(sharing.told_by(&load.told, &store.news))
                    .chain(sharing.told_by(&store.told, &load.news));
                sharing.conflict((&load.owners, &store.owners), between)
            });
            found.extend(foreign.map(|(_, store)| (load.span, store.span)));
        }
        found
    }
}

//! Which statements wait for which: a signal that stands behind the wait for it is never given.
//!
//! All ranks and CTAs run one text, so a ring of those who wait for each other is one of its statements. A statement of
//! the outermost block, or of that of a role, comes behind those before it, unless they are of roles beside it. Where it
//! waits at a barrier, it comes behind all statements that arrive there, whatever the index is; where it waits for a
//! word, behind the signals of it, and of those that may be it.

use std::collections::{BTreeMap, BTreeSet};

use super::{At, Survey, is_apart};
use crate::kernel::{Await, BarrierId, PipeOp, Signal};

/// Where statements stand, and what they wait for and give at barriers.
#[derive(Default)]
pub(super) struct Turns {
    places: Vec<At>,
    waits: BTreeMap<usize, BTreeSet<BarrierId>>,
    gives: BTreeMap<BarrierId, BTreeSet<usize>>,
}

impl Turns {
    /// A statement begins.
    pub(super) fn begin(&mut self, at: At) {
        self.places.push(at);
    }

    /// What is done at a barrier, in the statement with a number.
    pub(super) fn pipe(&mut self, number: usize, op: &PipeOp) {
        match op {
            PipeOp::Open { full, empty, .. } => {
                self.waits.entry(number).or_default().insert(*empty);
                self.gives.entry(*full).or_default().insert(number);
            }
            PipeOp::Wait { barrier, .. } => {
                self.waits.entry(number).or_default().insert(*barrier);
            }
            PipeOp::Release { barrier, .. }
            | PipeOp::Commit { barrier, .. }
            | PipeOp::Copy { barrier, .. }
            | PipeOp::Send { barrier, .. } => {
                self.gives.entry(*barrier).or_default().insert(number);
            }
        }
    }

    /// The statements that arrive where one waits.
    fn givers(&self, number: usize) -> impl Iterator<Item = usize> {
        let barriers = self.waits.get(&number).into_iter().flatten();
        barriers.filter_map(|barrier| self.gives.get(barrier)).flatten().copied()
    }
}

impl Survey<'_> {
    /// True where a signal may raise what is waited for.
    fn may_raise(&self, signal: &Signal, wait: &Await) -> bool {
        let mut positions = signal.index.iter().zip(&wait.index);
        let is_other = positions.any(|(&raised, awaited)| {
            let of_ranks = self.known.param(signal.param).is_flag();
            awaited.is_some_and(|awaited| {
                let (raised, awaited) = (self.known.form(raised), self.known.form(awaited));
                !of_ranks && is_apart(&self.known, &raised, &awaited, self.grid)
            })
        });
        signal.param == wait.param && !is_other
    }

    /// True where a statement may come behind another one, so that it waits for it.
    pub(super) fn may_be_behind(&self, late: At, early: At) -> bool {
        let (mut seen, mut open) = (BTreeSet::from([late.number]), vec![late.number]);
        while let Some(number) = open.pop() {
            if number == early.number {
                return true;
            }
            let place = self.turns.places.iter().find(|at| at.number == number);
            let before =
                |at: &&At| at.number < number && !place.is_some_and(|place| at.is_beside(*place));
            let before = self.turns.places.iter().filter(before).map(|at| at.number);
            let awaits = self.awaits.iter().chain(&self.of_grid.awaits);
            let waits = awaits.filter(|(at, _)| at.number == number).map(|(_, wait)| *wait);
            let signals = waits.flat_map(|wait| {
                let all = self.signals.iter().chain(&self.of_grid.signals);
                all.filter(move |(_, signal)| self.may_raise(signal, wait)).map(|(at, _)| at.number)
            });
            for next in before.chain(self.turns.givers(number)).chain(signals) {
                if seen.insert(next) {
                    open.push(next);
                }
            }
        }
        false
    }
}

//! Linear facts, and what follows from them.

use std::collections::{BTreeMap, BTreeSet};

use super::form::{Form, Interval, Symbol};
use super::{Facts, Knowledge};

/// Facts that hold wherever their symbols exist, found by a symbol and the sign of its factor.
#[derive(Debug, Default)]
pub(super) struct Always {
    facts: BTreeSet<Form>,
    by: BTreeMap<(Symbol, bool), BTreeSet<Form>>,
}

impl Always {
    pub(super) fn push(&mut self, fact: Form) {
        if fact.terms.is_empty() || self.facts.contains(&fact) {
            return;
        }
        for (&symbol, &factor) in &fact.terms {
            self.by.entry((symbol, factor > 0)).or_default().insert(fact.clone());
        }
        self.facts.insert(fact);
    }

    /// Forgets what is known of a symbol.
    pub(super) fn forget(&mut self, symbol: Symbol) {
        let mut gone = self.by.remove(&(symbol, true)).unwrap_or_default();
        gone.extend(self.by.remove(&(symbol, false)).unwrap_or_default());
        for fact in gone {
            self.facts.remove(&fact);
            for (&other, &factor) in &fact.terms {
                if let Some(known) = self.by.get_mut(&(other, factor > 0)) {
                    known.remove(&fact);
                }
            }
        }
    }

    #[cfg(test)]
    pub(super) fn all(&self) -> impl Iterator<Item = &Form> {
        self.facts.iter()
    }

    /// Those that have a symbol of a form with the same sign: what another one is subtracted from grows no less.
    fn like<'a>(&'a self, form: &'a Form) -> impl Iterator<Item = &'a Form> {
        let keys = form.terms.iter().map(|(&symbol, &factor)| (symbol, factor > 0));
        keys.filter_map(|key| self.by.get(&key)).flatten()
    }
}

/// True where the two have a symbol with one sign.
fn is_like(a: &Form, b: &Form) -> bool {
    b.terms.iter().any(|(symbol, &factor)| {
        a.terms.get(symbol).is_some_and(|&other| (other > 0) == (factor > 0))
    })
}

impl Knowledge<'_> {
    /// True where `form >= 0` follows from the intervals, one fact as often as it takes, or two.
    pub(in crate::verify) fn proves(&self, form: &Form, facts: &Facts) -> bool {
        let at_least_zero = |f: &Form| self.interval(f).lo.is_some_and(|lo| lo >= 0);
        // A path that nobody takes proves anything.
        let is_false = |fact: &Form| fact.terms.is_empty() && fact.constant < 0;
        if at_least_zero(form) || facts.iter().any(is_false) {
            return true;
        }
        let around = |form: &Form| {
            let form = form.clone();
            facts.iter().filter(move |fact| is_like(&form, fact))
        };
        for first in self.always.like(form).chain(around(form)) {
            // As often as it takes a symbol away: `(t + 2) * 32` lies below 128 where `t + 2` lies below 4.
            let of_symbol = |(symbol, factor): (&Symbol, &i128)| {
                let times = form.terms.get(symbol)?.checked_div(*factor)?;
                (times > 1).then_some(times)
            };
            let times: BTreeSet<i128> = first.terms.iter().filter_map(of_symbol).collect();
            let taken = |times: i128| form.plus(-times, first);
            if times.into_iter().filter_map(taken).any(|rest| at_least_zero(&rest)) {
                return true;
            }
            let Some(rest) = taken(1) else { continue };
            if at_least_zero(&rest) {
                return true;
            }
            let ends = |second: &Form| rest.plus(-1, second).is_some_and(|r| at_least_zero(&r));
            if self.always.like(&rest).any(ends) || around(&rest).any(ends) {
                return true;
            }
        }
        false
    }

    /// The interval of a form, narrowed by facts that bound it up to a constant.
    pub(in crate::verify) fn refined(&self, form: &Form, facts: &Facts) -> Interval {
        let mut interval = self.interval(form);
        let opposite = Form::default().plus(-1, form).unwrap_or_default();
        for fact in self.always.like(form).chain(self.always.like(&opposite)).chain(facts) {
            // fact = form + rest >= 0 bounds it below, fact = rest - form >= 0 above.
            if let Some(rest) = fact.plus(-1, form) {
                let bound = self.interval(&rest).hi.map(|hi| -hi);
                interval = interval.meet(Interval { lo: bound, hi: None });
            }
            if let Some(rest) = fact.plus(1, form) {
                interval = interval.meet(Interval { lo: None, hi: self.interval(&rest).hi });
            }
        }
        interval
    }
}

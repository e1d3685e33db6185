//! Where a value may come from: sets of sums of origins.
//!
//! A value is a set of *terms*, one for each way in which it may have been made. A term is a sum:
//! the origins that were added up, and a constant where it is known. A term without origins is a
//! number. Joining paths unites sets, so that a pointer picked from two parameters has two terms;
//! adding unites the origins inside a term, because only one part of a sum is the pointer and the
//! sum alone does not say which.

use rustc_hash::FxHashMap;

/// One thing that an address can come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Origin {
    /// A pointer that the kernel parameter with this index holds.
    Param(u32),
    /// The address of the kernel parameter itself.
    ParamSpace(u32),
    /// A variable in global memory, by its index in the module.
    Global(u32),
    /// An address in shared memory.
    Shared,
    /// An address in constant memory.
    Const,
    /// An address in a tracked variable of one thread: local memory or a call parameter.
    Slot(u32),
    /// Read from memory that is not tracked, or made in a way that is not followed.
    Opaque,
    /// Marks a value with so many ways of making that its sums were taken apart; no origin itself.
    Loose,
}

/// A sum of origins, sorted, and the constant part where it is one number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Term {
    pub(crate) origins: Vec<Origin>,
    pub(crate) offset: Option<i64>,
}

/// An interned value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ValueId(u32);

impl ValueId {
    /// No value yet: nothing has been written here on any path.
    pub(crate) const NONE: ValueId = ValueId(0);
    /// Some number that is no address.
    pub(crate) const NUMBER: ValueId = ValueId(1);
    /// A value whose making is not followed.
    pub(crate) const OPAQUE: ValueId = ValueId(2);
}

/// More terms than this are taken apart into one term for each origin.
const MOST_TERMS: usize = 24;

/// The interner of all values of one analysis.
#[derive(Debug)]
pub(crate) struct Values {
    list: Vec<Vec<Term>>,
    ids: FxHashMap<Vec<Term>, u32>,
    joins: FxHashMap<(u32, u32), u32>,
    sums: FxHashMap<(u32, u32), u32>,
}

impl Values {
    /// An interner that knows the fixed values.
    pub(crate) fn new() -> Self {
        let mut values = Values {
            list: Vec::new(),
            ids: FxHashMap::default(),
            joins: FxHashMap::default(),
            sums: FxHashMap::default(),
        };
        values.intern(Vec::new());
        values.intern(vec![Term { origins: Vec::new(), offset: None }]);
        values.origin(Origin::Opaque, None);
        values
    }

    fn intern(&mut self, terms: Vec<Term>) -> ValueId {
        if let Some(&id) = self.ids.get(&terms) {
            return ValueId(id);
        }
        let id = self.list.len() as u32;
        self.list.push(terms.clone());
        self.ids.insert(terms, id);
        ValueId(id)
    }

    /// The terms of a value.
    pub(crate) fn terms(&self, value: ValueId) -> &[Term] {
        &self.list[value.0 as usize]
    }

    /// A constant.
    pub(crate) fn constant(&mut self, number: i64) -> ValueId {
        self.intern(vec![Term { origins: Vec::new(), offset: Some(number) }])
    }

    /// An origin, displaced by a number where it is known.
    pub(crate) fn origin(&mut self, origin: Origin, offset: Option<i64>) -> ValueId {
        self.intern(vec![Term { origins: vec![origin], offset }])
    }

    /// The constant that the value is on every path, if it is one.
    pub(crate) fn as_constant(&self, value: ValueId) -> Option<i64> {
        match self.terms(value) {
            [Term { origins, offset }] if origins.is_empty() => *offset,
            _ => None,
        }
    }

    /// Whether no term has an origin.
    pub(crate) fn is_number(&self, value: ValueId) -> bool {
        self.terms(value).iter().all(|term| term.origins.is_empty())
    }

    /// What either path gives.
    pub(crate) fn join(&mut self, left: ValueId, right: ValueId) -> ValueId {
        if left == right || right == ValueId::NONE {
            return left;
        }
        if left == ValueId::NONE {
            return right;
        }
        let key = (left.0.min(right.0), left.0.max(right.0));
        if let Some(&id) = self.joins.get(&key) {
            return ValueId(id);
        }
        let mut terms = self.terms(left).to_vec();
        terms.extend_from_slice(self.terms(right));
        let id = self.settle(terms);
        self.joins.insert(key, id.0);
        id
    }

    /// The sum of two values.
    pub(crate) fn add(&mut self, left: ValueId, right: ValueId) -> ValueId {
        if left == ValueId::NONE || right == ValueId::NONE {
            return ValueId::NONE;
        }
        let key = (left.0.min(right.0), left.0.max(right.0));
        if let Some(&id) = self.sums.get(&key) {
            return ValueId(id);
        }
        let mut terms = Vec::new();
        for a in self.terms(left) {
            for b in self.terms(right) {
                let mut origins = a.origins.clone();
                origins.extend_from_slice(&b.origins);
                origins.sort_unstable();
                origins.dedup();
                let offset = a.offset.zip(b.offset).map(|(x, y)| x.wrapping_add(y));
                terms.push(Term { origins, offset });
            }
        }
        let id = self.settle(terms);
        self.sums.insert(key, id.0);
        id
    }

    /// The value with its constant parts forgotten.
    pub(crate) fn blur(&mut self, value: ValueId) -> ValueId {
        let mut terms = self.terms(value).to_vec();
        for term in &mut terms {
            term.offset = None;
        }
        self.settle(terms)
    }

    /// Sorts, merges terms of the same origins, and keeps the set small.
    fn settle(&mut self, mut terms: Vec<Term>) -> ValueId {
        let loose = |term: &Term| term.origins.contains(&Origin::Loose);
        if terms.len() > MOST_TERMS || terms.iter().any(loose) {
            // The mark makes this final, so that a value only ever grows and loops come to rest.
            let mut apart = vec![Term { origins: vec![Origin::Loose], offset: None }];
            for term in &terms {
                if term.origins.is_empty() {
                    apart.push(Term { origins: Vec::new(), offset: None });
                }
                for &origin in &term.origins {
                    apart.push(Term { origins: vec![origin], offset: None });
                }
            }
            terms = apart;
        }
        terms.sort_by(|a, b| a.origins.cmp(&b.origins));
        let mut merged: Vec<Term> = Vec::with_capacity(terms.len());
        for term in terms {
            match merged.last_mut() {
                Some(last) if last.origins == term.origins => {
                    if last.offset != term.offset {
                        last.offset = None;
                    }
                }
                _ => merged.push(term),
            }
        }
        self.intern(merged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_keeps_the_pointer_and_the_constant() {
        let mut values = Values::new();
        let slot = values.origin(Origin::Slot(3), Some(0));
        let eight = values.constant(8);
        let sum = values.add(slot, eight);
        assert_eq!(values.terms(sum), [Term { origins: vec![Origin::Slot(3)], offset: Some(8) }]);
    }

    #[test]
    fn a_pick_has_two_terms_and_a_sum_one() {
        let mut values = Values::new();
        let a = values.origin(Origin::Param(0), None);
        let b = values.origin(Origin::Param(1), None);
        let pick = values.join(a, b);
        assert_eq!(values.terms(pick).len(), 2);
        let sum = values.add(a, b);
        assert_eq!(values.terms(sum).len(), 1);
        assert_eq!(values.terms(sum)[0].origins, [Origin::Param(0), Origin::Param(1)]);
    }

    #[test]
    fn counting_up_loses_the_constant_and_stops() {
        let mut values = Values::new();
        let one = values.constant(1);
        let mut counter = values.constant(0);
        for _ in 0..4 {
            let next = values.add(counter, one);
            counter = values.join(counter, next);
        }
        assert_eq!(counter, ValueId::NUMBER);
    }
}

//! Where a value may come from: sets of sums of origins.
//!
//! A value is a set of *terms*, one for each way in which it may have been made. A term is a sum:
//! the origins that were added up, and a constant where it is known. A term without origins is a
//! number. Joining paths unites sets, so that a pointer picked from two parameters has two terms;
//! adding unites the origins inside a term, because only one part of a sum is the pointer and the
//! sum alone does not say which. A pointer that is taken away cancels one that was added.

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
    /// An address in a variable of shared memory; [`ANY_SHARED`] where it is not known which.
    Shared(u32),
    /// An address in constant memory.
    Const,
    /// An address in a tracked variable of one thread: local memory or a call parameter.
    Slot(u32),
    /// A pointer that is taken away: the difference of two pointers, or the complement of one.
    MinusParam(u32),
    MinusGlobal(u32),
    /// Bits of a pointer, moved or mixed as a number is. Beside a whole pointer they are a number.
    BitsOfParam(u32),
    BitsOfGlobal(u32),
    /// A number that was stored in less than eight bytes. Beside pointers that are loaded from the same
    /// variable it is none.
    Word,
    /// Read from memory that is not tracked, or made in a way that is not followed.
    Opaque,
    /// Marks a value with so many ways of making that its sums were taken apart; no origin itself.
    Loose,
}

/// Some variable of shared memory.
pub(crate) const ANY_SHARED: u32 = u32::MAX;
/// The shared memory that the launch sizes; all variables of it start at one place.
pub(crate) const DYNAMIC_SHARED: u32 = u32::MAX - 1;

/// All shared memory of a CTA, in machine code, where variables have no names.
pub(crate) const SHARED_WINDOW: u32 = u32::MAX - 2;

impl Origin {
    /// Whether this is part of a number.
    pub(crate) fn is_bits(self) -> bool {
        matches!(self, Origin::BitsOfParam(_) | Origin::BitsOfGlobal(_) | Origin::Word)
    }

    /// A pointer for one that is taken away, and the other way round.
    fn opposite(self) -> Option<Origin> {
        match self {
            Origin::Param(param) => Some(Origin::MinusParam(param)),
            Origin::MinusParam(param) => Some(Origin::Param(param)),
            Origin::Global(global) => Some(Origin::MinusGlobal(global)),
            Origin::MinusGlobal(global) => Some(Origin::Global(global)),
            _ => None,
        }
    }

    /// What is left of a pointer in arithmetic that moves no pointers.
    fn bits(self) -> Option<Origin> {
        match self {
            Origin::Param(param) | Origin::MinusParam(param) | Origin::BitsOfParam(param) => {
                Some(Origin::BitsOfParam(param))
            }
            Origin::Global(global) | Origin::MinusGlobal(global) | Origin::BitsOfGlobal(global) => {
                Some(Origin::BitsOfGlobal(global))
            }
            _ => None,
        }
    }
}

/// Puts the origins of a sum in order: each once, and bits only where no whole address is.
fn tidy(origins: &mut Vec<Origin>) {
    origins.sort_unstable();
    origins.dedup();
    let partial = |origin: Origin| {
        origin.is_bits()
            || matches!(origin, Origin::MinusParam(_) | Origin::MinusGlobal(_) | Origin::Loose)
    };
    if origins.iter().any(|&origin| !partial(origin)) {
        origins.retain(|origin| !origin.is_bits());
    }
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
    /// Some number that went through memory in less than eight bytes.
    pub(crate) const WORD: ValueId = ValueId(3);
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
    differences: FxHashMap<(u32, u32), u32>,
}

impl Values {
    /// An interner that knows the fixed values.
    pub(crate) fn new() -> Self {
        let mut values = Values {
            list: Vec::new(),
            ids: FxHashMap::default(),
            joins: FxHashMap::default(),
            sums: FxHashMap::default(),
            differences: FxHashMap::default(),
        };
        values.intern(Vec::new());
        values.intern(vec![Term { origins: Vec::new(), offset: None }]);
        values.origin(Origin::Opaque, None);
        values.origin(Origin::Word, None);
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
                let mut origins: Vec<Origin> = a
                    .origins
                    .iter()
                    .copied()
                    .filter(|o| o.opposite().is_none_or(|other| !b.origins.contains(&other)))
                    .collect();
                origins.extend(b.origins.iter().copied().filter(|origin| {
                    origin.opposite().is_none_or(|other| !a.origins.contains(&other))
                }));
                tidy(&mut origins);
                let offset = a.offset.zip(b.offset).map(|(x, y)| x.wrapping_add(y));
                terms.push(Term { origins, offset });
            }
        }
        let id = self.settle(terms);
        self.sums.insert(key, id.0);
        id
    }

    /// The difference of two values. What stands in both cancels out.
    pub(crate) fn subtract(&mut self, from: ValueId, by: ValueId) -> ValueId {
        if from == ValueId::NONE || by == ValueId::NONE {
            return ValueId::NONE;
        }
        if let Some(number) = self.as_constant(by) {
            let negated = self.constant(number.wrapping_neg());
            return self.add(from, negated);
        }
        if let Some(&id) = self.differences.get(&(from.0, by.0)) {
            return ValueId(id);
        }
        let mut terms = Vec::new();
        for a in self.terms(from) {
            for b in self.terms(by) {
                let mut origins = a.origins.clone();
                let is_number = origins.iter().all(|origin| origin.is_bits());
                for &taken in &b.origins {
                    let before = origins.len();
                    match taken {
                        Origin::Shared(_) => {
                            origins.retain(|origin| !matches!(origin, Origin::Shared(_)));
                        }
                        _ => origins.retain(|&origin| origin != taken || origin.is_bits()),
                    }
                    if origins.len() < before {
                        continue;
                    }
                    match taken.opposite() {
                        Some(opposite) => origins.push(opposite),
                        None if taken.is_bits() || taken == Origin::Loose => origins.push(taken),
                        None if is_number => origins.push(Origin::Opaque),
                        None => {}
                    }
                }
                tidy(&mut origins);
                terms.push(Term { origins, offset: None });
            }
        }
        let id = self.settle(terms);
        self.differences.insert((from.0, by.0), id.0);
        id
    }

    /// The number that arithmetic makes of a value: the bits of its pointers.
    pub(crate) fn bits(&mut self, value: ValueId) -> ValueId {
        let mut origins: Vec<Origin> = self
            .terms(value)
            .iter()
            .flat_map(|term| &term.origins)
            .filter_map(|origin| origin.bits())
            .collect();
        if origins.is_empty() {
            return ValueId::NUMBER;
        }
        tidy(&mut origins);
        self.intern(vec![Term { origins, offset: None }])
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
        // Numbers are told apart no further than by whose bits they may be.
        let of_bits = |term: &Term| {
            !term.origins.is_empty() && term.origins.iter().all(|origin| origin.is_bits())
        };
        if terms.iter().filter(|term| of_bits(term)).count() > 1 {
            let mut origins: Vec<Origin> = terms
                .iter()
                .filter(|term| of_bits(term))
                .flat_map(|term| term.origins.iter().copied())
                .collect();
            tidy(&mut origins);
            terms.retain(|term| !of_bits(term));
            terms.push(Term { origins, offset: None });
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
    fn what_is_taken_away_cancels_out() {
        let mut values = Values::new();
        let a = values.origin(Origin::Param(0), None);
        let b = values.origin(Origin::Param(1), None);
        let number = values.add(a, ValueId::NUMBER);
        let number = values.subtract(number, a);
        assert_eq!(number, ValueId::NUMBER);
        let way = values.subtract(b, a);
        let back = values.add(a, way);
        assert_eq!(back, b);
        let ones = values.constant(-1);
        let not = values.subtract(ones, a);
        assert_eq!(values.subtract(ones, not), a);
    }

    #[test]
    fn bits_of_a_pointer_are_a_number_beside_another() {
        let mut values = Values::new();
        let a = values.origin(Origin::Param(0), None);
        let b = values.origin(Origin::Param(1), None);
        let (a_bits, b_bits) = (values.bits(a), values.bits(b));
        assert_eq!(values.add(a_bits, b), b);
        assert_ne!(a_bits, ValueId::NUMBER);
        let either = values.join(a_bits, b_bits);
        assert_eq!(values.terms(either).len(), 1);
        assert_eq!(values.bits(ValueId::OPAQUE), ValueId::NUMBER);
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

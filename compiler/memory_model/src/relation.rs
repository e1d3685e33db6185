//! Binary relations over the events of one execution, as matrices of bits.

use std::fmt;

/// A relation over `size` events: one row of bits an event.
#[derive(Clone, PartialEq, Eq)]
pub struct Relation {
    size: usize,
    words: usize,
    bits: Vec<u64>,
}

impl Relation {
    /// The relation over `size` events that relates nothing.
    pub fn empty(size: usize) -> Relation {
        let words = size.div_ceil(64).max(1);
        Relation { size, words, bits: vec![0; size * words] }
    }

    /// The relation that holds wherever `is_related` says so.
    pub fn from_fn(size: usize, mut is_related: impl FnMut(usize, usize) -> bool) -> Relation {
        let mut relation = Relation::empty(size);
        for from in 0..size {
            for to in 0..size {
                if is_related(from, to) {
                    relation.add(from, to);
                }
            }
        }
        relation
    }

    /// The number of events.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Relates `from` with `to`.
    pub fn add(&mut self, from: usize, to: usize) {
        debug_assert!(from < self.size && to < self.size);
        self.bits[from * self.words + to / 64] |= 1 << (to % 64);
    }

    /// Whether `from` is related with `to`.
    pub fn has(&self, from: usize, to: usize) -> bool {
        self.bits[from * self.words + to / 64] >> (to % 64) & 1 == 1
    }

    /// Whether nothing is related.
    pub fn is_empty(&self) -> bool {
        self.bits.iter().all(|word| *word == 0)
    }

    fn row(&self, from: usize) -> &[u64] {
        &self.bits[from * self.words..(from + 1) * self.words]
    }

    /// The events that `from` is related with.
    pub fn successors(&self, from: usize) -> impl Iterator<Item = usize> + '_ {
        self.row(from).iter().enumerate().flat_map(|(index, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                (rest != 0).then(|| {
                    let bit = rest.trailing_zeros() as usize;
                    rest &= rest - 1;
                    index * 64 + bit
                })
            })
        })
    }

    /// Every related pair, in order.
    pub fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        (0..self.size).flat_map(move |from| self.successors(from).map(move |to| (from, to)))
    }

    /// `self | other`.
    #[must_use]
    pub fn union(&self, other: &Relation) -> Relation {
        let mut result = self.clone();
        result.unite(other);
        result
    }

    /// Adds every pair of `other`.
    pub fn unite(&mut self, other: &Relation) {
        debug_assert_eq!(self.size, other.size);
        for (mine, theirs) in self.bits.iter_mut().zip(&other.bits) {
            *mine |= theirs;
        }
    }

    /// `self & other`.
    #[must_use]
    pub fn intersection(&self, other: &Relation) -> Relation {
        debug_assert_eq!(self.size, other.size);
        let mut result = self.clone();
        for (mine, theirs) in result.bits.iter_mut().zip(&other.bits) {
            *mine &= theirs;
        }
        result
    }

    /// `self ; other`: a step of each, one after the other.
    #[must_use]
    pub fn then(&self, other: &Relation) -> Relation {
        debug_assert_eq!(self.size, other.size);
        let mut result = Relation::empty(self.size);
        for from in 0..self.size {
            let row = from * self.words;
            for middle in self.successors(from) {
                for (index, word) in other.row(middle).iter().enumerate() {
                    result.bits[row + index] |= word;
                }
            }
        }
        result
    }

    /// `self^-1`.
    #[must_use]
    pub fn inverse(&self) -> Relation {
        let mut result = Relation::empty(self.size);
        for (from, to) in self.pairs() {
            result.add(to, from);
        }
        result
    }

    /// `self?`: every event is related with itself too.
    #[must_use]
    pub fn reflexive(&self) -> Relation {
        let mut result = self.clone();
        for event in 0..self.size {
            result.add(event, event);
        }
        result
    }

    /// `self+`: one step or more.
    #[must_use]
    pub fn closure(&self) -> Relation {
        let mut result = self.clone();
        result.close();
        result
    }

    /// Makes the relation transitive.
    pub fn close(&mut self) {
        let mut via = vec![0; self.words];
        for middle in 0..self.size {
            via.copy_from_slice(self.row(middle));
            for from in 0..self.size {
                if self.has(from, middle) {
                    let row = from * self.words;
                    for (index, word) in via.iter().enumerate() {
                        self.bits[row + index] |= word;
                    }
                }
            }
        }
    }

    /// Adds `from -> to` to a transitive relation and keeps it transitive.
    pub fn add_closed(&mut self, from: usize, to: usize) {
        let mut reached = self.row(to).to_vec();
        reached[to / 64] |= 1 << (to % 64);
        for source in 0..self.size {
            if source == from || self.has(source, from) {
                let row = source * self.words;
                for (index, word) in reached.iter().enumerate() {
                    self.bits[row + index] |= word;
                }
            }
        }
    }

    /// `[from] ; self ; [to]`: the pairs whose ends are so.
    #[must_use]
    pub fn between(
        &self,
        mut from: impl FnMut(usize) -> bool,
        mut to: impl FnMut(usize) -> bool,
    ) -> Relation {
        let mut targets = vec![0_u64; self.words];
        for event in 0..self.size {
            if to(event) {
                targets[event / 64] |= 1 << (event % 64);
            }
        }
        let mut result = Relation::empty(self.size);
        for event in 0..self.size {
            if from(event) {
                let row = event * self.words;
                for (index, target) in targets.iter().enumerate() {
                    result.bits[row + index] = self.bits[row + index] & target;
                }
            }
        }
        result
    }

    /// An event that is related with itself.
    pub fn reflexive_event(&self) -> Option<usize> {
        (0..self.size).find(|event| self.has(*event, *event))
    }

    /// Whether a path of steps leads from no event back to it.
    pub fn is_acyclic(&self) -> bool {
        self.closure().reflexive_event().is_none()
    }

    /// A shortest path of at least one step, ends included.
    pub fn path(&self, from: usize, to: usize) -> Option<Vec<usize>> {
        let mut came_from: Vec<Option<usize>> = vec![None; self.size];
        let mut open = std::collections::VecDeque::from([from]);
        while let Some(event) = open.pop_front() {
            for next in self.successors(event) {
                if next == to {
                    let mut path = vec![to, event];
                    let mut at = event;
                    while at != from {
                        at = came_from[at]?;
                        path.push(at);
                    }
                    path.reverse();
                    return Some(path);
                }
                if next != from && came_from[next].is_none() {
                    came_from[next] = Some(event);
                    open.push_back(next);
                }
            }
        }
        None
    }

    /// A shortest cycle, its first event repeated at the end.
    pub fn cycle(&self) -> Option<Vec<usize>> {
        let closed = self.closure();
        (0..self.size)
            .filter(|event| closed.has(*event, *event))
            .filter_map(|event| self.path(event, event))
            .min_by_key(Vec::len)
    }
}

impl fmt::Debug for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.pairs()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(size: usize) -> Relation {
        Relation::from_fn(size, |from, to| to == from + 1)
    }

    #[test]
    fn composition_closure_and_inverse_are_those_of_pairs() {
        for size in [1, 5, 64, 65, 130] {
            let step = chain(size);
            assert_eq!(step.then(&step), Relation::from_fn(size, |a, b| b == a + 2));
            assert_eq!(step.closure(), Relation::from_fn(size, |a, b| a < b));
            assert_eq!(step.inverse(), Relation::from_fn(size, |a, b| a == b + 1));
            assert!(step.is_acyclic());
            assert_eq!(step.pairs().count(), size - 1);
        }
    }

    #[test]
    fn an_edge_keeps_a_closed_relation_closed() {
        let mut relation = Relation::from_fn(70, |a, b| a < b && (b < 30 || a >= 30));
        relation.add_closed(29, 30);
        assert_eq!(relation, Relation::from_fn(70, |a, b| a < b));
    }

    #[test]
    fn a_cycle_is_found_and_is_shortest() {
        let mut relation = chain(80);
        relation.add(79, 0);
        relation.add(70, 68);
        assert!(!relation.is_acyclic());
        assert_eq!(relation.cycle(), Some(vec![68, 69, 70, 68]));
        assert_eq!(relation.path(3, 5), Some(vec![3, 4, 5]));
        assert_eq!(Relation::empty(3).path(0, 0), None);
    }

    #[test]
    fn ends_are_chosen() {
        let all = Relation::from_fn(66, |_, _| true);
        let chosen = all.between(|a| a == 65, |b| b % 2 == 0);
        assert_eq!(chosen, Relation::from_fn(66, |a, b| a == 65 && b % 2 == 0));
    }
}

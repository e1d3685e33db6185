//! Sets of elements as sorted, disjoint ranges.

/// A set of elements.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// Adds `start..end`.
    pub(super) fn add(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        self.0.push((start, end));
        self.0.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::with_capacity(self.0.len());
        for &(start, end) in &self.0 {
            match merged.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => merged.push((start, end)),
            }
        }
        self.0 = merged;
    }

    /// The first element of `start..end` that is not in the set.
    pub(super) fn first_missing(&self, start: u64, end: u64) -> Option<u64> {
        let mut at = start;
        for &(from, to) in &self.0 {
            if from <= at && at < to {
                at = to;
            }
        }
        (at < end).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::Ranges;

    #[test]
    fn ranges_merge_and_show_the_first_hole() {
        let mut set = Ranges::default();
        set.add(10, 20);
        set.add(0, 5);
        set.add(5, 5);
        assert_eq!(set.first_missing(0, 5), None);
        assert_eq!(set.first_missing(0, 20), Some(5));
        set.add(5, 10);
        assert_eq!(set.first_missing(0, 20), None);
        assert_eq!(set.first_missing(3, 21), Some(20));
        assert_eq!(set.first_missing(20, 20), None);
    }
}

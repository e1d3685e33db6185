//! Which kernel ran how often.

use std::collections::BTreeMap;

/// Launches by kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage(BTreeMap<String, u64>);

impl Coverage {
    /// Counts launches of a kernel.
    pub fn count(&mut self, kernel: &str, launches: u64) {
        match self.0.get_mut(kernel) {
            Some(count) => *count = count.saturating_add(launches),
            None => drop(self.0.insert(kernel.to_owned(), launches)),
        }
    }

    /// Counts what another has counted.
    pub fn add(&mut self, other: &Coverage) {
        for (kernel, &launches) in &other.0 {
            self.count(kernel, launches);
        }
    }

    /// Launches of a kernel.
    pub fn of(&self, kernel: &str) -> u64 {
        self.0.get(kernel).copied().unwrap_or(0)
    }

    /// Every kernel that ran, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(kernel, &launches)| (kernel.as_str(), launches))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_counts_at_each_start() {
        let mut of_graph = Coverage::default();
        of_graph.count("gemv<N = 4>", 2);
        of_graph.count("add", 1);
        let mut all = Coverage::default();
        assert_eq!(all.of("add"), 0);
        all.count("add", 1);
        for _ in 0..3 {
            all.add(&of_graph);
        }
        assert_eq!(all.iter().collect::<Vec<_>>(), [("add", 4), ("gemv<N = 4>", 6)]);
    }
}

//! Places of CTAs in their cluster.

use serde::{Deserialize, Serialize};

/// A way to count the CTAs of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ClusterAxis {
    /// Along x (0), y (1) or z (2).
    Along(u8),
    /// All of them, x fastest.
    Rank,
}

impl ClusterAxis {
    /// The word of the language.
    pub fn name(self) -> &'static str {
        match self {
            ClusterAxis::Along(0) => "cluster.x",
            ClusterAxis::Along(1) => "cluster.y",
            ClusterAxis::Along(_) => "cluster.z",
            ClusterAxis::Rank => "cluster.rank",
        }
    }

    /// How many there are, where a cluster has the extents `cluster`.
    pub fn extent(self, cluster: [u32; 3]) -> u32 {
        match self {
            ClusterAxis::Along(axis) => cluster[usize::from(axis)],
            ClusterAxis::Rank => cluster.iter().product(),
        }
    }

    /// The place of the CTA `cta` of the grid, where a cluster has the extents `cluster`.
    pub fn place(self, cta: [u32; 3], cluster: [u32; 3]) -> u32 {
        let along = |axis: usize| cta[axis] % cluster[axis];
        match self {
            ClusterAxis::Along(axis) => along(usize::from(axis)),
            ClusterAxis::Rank => along(0) + cluster[0] * (along(1) + cluster[1] * along(2)),
        }
    }
}

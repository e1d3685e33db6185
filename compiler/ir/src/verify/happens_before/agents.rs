//! Who acts: two of each class that may differ.

use crate::kernel::{Kernel, RoleId};

/// Which classes differ in a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scope {
    /// Threads of a CTA: two of each role.
    Threads,
    /// Two CTAs of a cluster.
    Cluster,
    /// Two CTAs of the grid.
    Grid,
    /// Two ranks, and as many launches as rings have slots and one more.
    Ranks,
}

impl Scope {
    pub(super) fn name(self) -> &'static str {
        match self {
            Scope::Threads => "threads of a CTA",
            Scope::Cluster => "CTAs of a cluster",
            Scope::Grid => "CTAs of the grid",
            Scope::Ranks => "ranks and launches",
        }
    }
}

/// A thread of the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Agent {
    pub(super) rank: u32,
    pub(super) launch: u32,
    pub(super) cta: u32,
    /// The role that it plays; none where the kernel has no roles.
    pub(super) role: Option<RoleId>,
    /// The first or the second of its class.
    pub(super) thread: u32,
}

impl Agent {
    /// Which CTA of which launch of which rank it is of.
    pub(super) fn group(self) -> (u32, u32, u32) {
        (self.rank, self.launch, self.cta)
    }

    pub(super) fn describe(self, kernel: &Kernel, scope: Scope, role: Option<RoleId>) -> String {
        let thread = match role {
            Some(role) => format!("`{}`", kernel.roles[role].name),
            None => "thread".to_owned(),
        };
        let number = if self.thread == 0 { "" } else { "'" };
        match scope {
            Scope::Threads => format!("{thread}{number}"),
            Scope::Cluster | Scope::Grid => format!("CTA {}", ["A", "B"][self.cta as usize % 2]),
            Scope::Ranks => {
                let rank = if self.rank == 0 { "this rank" } else { "another rank" };
                let launch = if self.launch == 0 {
                    "launch t".to_owned()
                } else {
                    format!("launch t + {}", self.launch)
                };
                format!("{rank}, {launch}")
            }
        }
    }
}

/// The agents of a graph: two threads of each role, and of the warps that play none.
pub(super) fn agents(kernel: &Kernel, scope: Scope, launches: u32) -> Vec<Agent> {
    let one =
        |role: Option<RoleId>, thread: u32| Agent { rank: 0, launch: 0, cta: 0, role, thread };
    let mut threads = Vec::new();
    let mut covered = std::collections::BTreeSet::new();
    for (id, role) in kernel.roles.iter_enumerated() {
        covered.extend(role.first..role.first.saturating_add(role.warps));
        threads.push(one(Some(id), 0));
        if !role.elect {
            threads.push(one(Some(id), 1));
        }
    }
    if covered.len() < kernel.launch.warps as usize || threads.len() < 2 {
        threads.extend([one(None, 0), one(None, 1)]);
    }
    let mut all = Vec::new();
    let (ranks, ctas, launches) = match scope {
        Scope::Threads => (1, 1, 1),
        Scope::Cluster | Scope::Grid => (1, 2, 1),
        Scope::Ranks => (2, 1, launches),
    };
    for rank in 0..ranks {
        for launch in 0..launches {
            for cta in 0..ctas {
                all.extend(threads.iter().map(|agent| Agent { rank, launch, cta, ..*agent }));
            }
        }
    }
    all
}

//! What may differ between the CTAs of a cluster.

use std::collections::BTreeSet;

use kernel_abi::Access;

use super::super::scalars::Symbol;
use crate::expand::each_use;
use crate::kernel::{
    ClusterAxis, Kernel, Op, Stmt, StmtKind, Tensor, ValueId, VarId, Warpgroup, defined_in,
};

/// The values in which CTAs of a cluster may differ.
pub(super) struct Varying {
    cluster: [u32; 3],
    values: BTreeSet<ValueId>,
    vars: BTreeSet<VarId>,
    /// Values of loops that CTAs go through each at its own pace.
    parted: BTreeSet<ValueId>,
}

impl Varying {
    /// Follows definitions and assignments until nothing new varies.
    pub(super) fn of(kernel: &Kernel) -> Varying {
        let mut varying = Varying {
            cluster: kernel.launch.cluster,
            values: BTreeSet::new(),
            vars: BTreeSet::new(),
            parted: BTreeSet::new(),
        };
        if kernel.launch.cluster_size() > 1 {
            while varying.grow(kernel, &kernel.body, false) {}
        }
        varying
    }

    /// True for a value in which CTAs of a cluster may differ.
    pub(super) fn has(&self, value: ValueId) -> bool {
        self.values.contains(&value)
    }

    /// True for a value that two CTAs may have from two rounds.
    fn is_parted(&self, value: ValueId) -> bool {
        self.parted.contains(&value)
    }

    /// CTAs go through the rounds of a loop each at its own pace.
    pub(super) fn part(&mut self, var: ValueId, body: &[Stmt]) {
        self.parted.insert(var);
        self.parted.extend(defined_in(body));
    }

    fn axis_varies(&self, axis: ClusterAxis) -> bool {
        axis.extent(self.cluster) > 1
    }

    /// The same for what forms are made of.
    pub(super) fn has_symbol(&self, symbol: Symbol) -> bool {
        match symbol {
            Symbol::Value(value) | Symbol::Other(value) | Symbol::Earlier(value) => {
                self.has(value) || self.is_parted(value)
            }
            Symbol::Param(_) | Symbol::Rounds(_) => false,
            Symbol::Cta(axis) => self.axis_varies(ClusterAxis::Along(axis)),
            Symbol::Cluster(axis) => self.axis_varies(axis),
        }
    }

    /// True for a number that is another one in each CTA of a cluster.
    pub(super) fn tells_apart(&self, symbol: Symbol) -> bool {
        let size: u32 = self.cluster.iter().product();
        match symbol {
            Symbol::Value(_)
            | Symbol::Param(_)
            | Symbol::Other(_)
            | Symbol::Earlier(_)
            | Symbol::Rounds(_) => false,
            Symbol::Cta(axis) => self.cluster[usize::from(axis)] == size,
            Symbol::Cluster(axis) => axis.extent(self.cluster) == size,
        }
    }

    fn varies(&self, kernel: &Kernel, stmt: &Stmt, op: &Op) -> bool {
        let mut used = false;
        each_use(&stmt.kind, |value| used |= self.has(value));
        used || match op {
            Op::CtaIndex(axis) => self.axis_varies(ClusterAxis::Along(*axis)),
            Op::ClusterIndex(axis) => self.axis_varies(*axis),
            Op::ArriveLast { .. } | Op::Atomic { .. } => true,
            Op::ReadVar { var, .. } => self.vars.contains(var),
            // What nobody writes while the kernel runs is the same for all.
            Op::Load { access, .. } => {
                access.storage.param().is_none_or(|param| match kernel.params[param].access {
                    Access::Static | Access::Input | Access::Scalar => false,
                    Access::Output
                    | Access::Inout
                    | Access::Scratch
                    | Access::Peer
                    | Access::Multicast => true,
                })
            }
            _ => false,
        }
    }

    /// One more look at the statements; true where it found something.
    fn grow(&mut self, kernel: &Kernel, stmts: &[Stmt], divided: bool) -> bool {
        let mut grew = false;
        for stmt in stmts {
            let mut inner = divided;
            match &stmt.kind {
                StmtKind::Def { results, op } => {
                    if self.varies(kernel, stmt, op) {
                        let before = self.values.len();
                        self.values.extend(results);
                        grew |= self.values.len() > before;
                    }
                }
                StmtKind::SetVar { var, value, .. } => {
                    if divided || self.has(*value) {
                        grew |= self.vars.insert(*var);
                    }
                }
                // What shared memory holds may differ.
                StmtKind::Warpgroup(Warpgroup::Mma(mma)) => grew |= self.vars.insert(mma.var),
                StmtKind::Tensor(Tensor::Load { var, .. }) => grew |= self.vars.insert(*var),
                StmtKind::For { var, start, end, tickets, .. } => {
                    if tickets.is_some() || self.has(*start) || self.has(*end) {
                        inner = true;
                        grew |= self.values.insert(*var);
                    }
                }
                StmtKind::If { cond, .. } => inner |= self.has(*cond),
                StmtKind::Role { .. }
                | StmtKind::Warpgroup(Warpgroup::Commit | Warpgroup::Settle { .. })
                | StmtKind::Tensor(Tensor::Mma(_) | Tensor::Store { .. } | Tensor::Settle { .. })
                | StmtKind::Store { .. }
                | StmtKind::Prefetch { .. }
                | StmtKind::Advance { .. }
                | StmtKind::CopyAsync { .. }
                | StmtKind::EmptyGroup
                | StmtKind::Outgoing(_)
                | StmtKind::Settle { .. }
                | StmtKind::Sync
                | StmtKind::Signal(_)
                | StmtKind::Await(_)
                | StmtKind::SyncCluster
                | StmtKind::SyncRole
                | StmtKind::Pipe(_)
                | StmtKind::GridWait
                | StmtKind::GridLaunch
                | StmtKind::Assert { .. }
                | StmtKind::Trace { .. }
                | StmtKind::Printf { .. } => {}
            }
            for body in stmt.kind.bodies() {
                grew |= self.grow(kernel, body, inner);
            }
        }
        grew
    }
}

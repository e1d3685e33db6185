//! On which side of `grid_wait` a statement stands, per path.
//!
//! Control flow is structured and uniform, so one walk decides it: a choice joins both arms, and a loop
//! may run zero times.

use crate::device::WaitOrder;
use crate::kernel::{Stmt, StmtKind};

/// The order that holds where two paths meet.
pub fn join(a: WaitOrder, b: WaitOrder) -> WaitOrder {
    if a == b { a } else { WaitOrder::Mixed }
}

/// What statements do to the order, from any state before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// No path waits.
    Nothing,
    /// Some paths wait.
    SomePaths,
    /// Every path waits.
    EveryPath,
}

impl Effect {
    /// The order afterwards when `at` holds before.
    pub fn apply(self, at: WaitOrder) -> WaitOrder {
        let waited = match at {
            WaitOrder::NoWait => WaitOrder::NoWait,
            WaitOrder::Before | WaitOrder::After | WaitOrder::Mixed => WaitOrder::After,
        };
        match self {
            Effect::Nothing => at,
            Effect::SomePaths => join(at, waited),
            Effect::EveryPath => waited,
        }
    }

    /// One after the other.
    pub fn then(self, next: Effect) -> Effect {
        match (self, next) {
            (Effect::EveryPath, _) | (_, Effect::EveryPath) => Effect::EveryPath,
            (Effect::SomePaths, _) | (_, Effect::SomePaths) => Effect::SomePaths,
            (Effect::Nothing, Effect::Nothing) => Effect::Nothing,
        }
    }

    /// Either of them.
    pub fn or(self, other: Effect) -> Effect {
        if self == other { self } else { Effect::SomePaths }
    }

    /// Any number of times, none included.
    pub fn repeated(self) -> Effect {
        self.or(Effect::Nothing)
    }
}

/// What the statements do to the order: one walk, however deep loops are nested.
pub fn effect(stmts: &[Stmt]) -> Effect {
    stmts.iter().fold(Effect::Nothing, |so_far, stmt| {
        so_far.then(match &stmt.kind {
            StmtKind::GridWait => Effect::EveryPath,
            StmtKind::For { body, .. } => effect(body).repeated(),
            StmtKind::If { then_body, else_body, .. } => effect(then_body).or(effect(else_body)),
            StmtKind::Role { body, .. } => effect(body),
            StmtKind::Def { .. }
            | StmtKind::SetVar { .. }
            | StmtKind::Store { .. }
            | StmtKind::Prefetch { .. }
            | StmtKind::Advance { .. }
            | StmtKind::CopyAsync { .. }
            | StmtKind::EmptyGroup
            | StmtKind::Outgoing(_)
            | StmtKind::Settle { .. }
            | StmtKind::Warpgroup(_)
            | StmtKind::Tensor(_)
            | StmtKind::Sync
            | StmtKind::Signal(_)
            | StmtKind::Await(_)
            | StmtKind::SyncCluster
            | StmtKind::SyncRole
            | StmtKind::Pipe(_)
            | StmtKind::GridLaunch
            | StmtKind::Assert { .. }
            | StmtKind::Trace { .. }
            | StmtKind::Printf { .. } => Effect::Nothing,
        })
    })
}

/// The order after `stmts` when `at` holds before them.
pub fn after(at: WaitOrder, stmts: &[Stmt]) -> WaitOrder {
    effect(stmts).apply(at)
}

/// The order at the first statement of a loop body: the entry joined with the end of a round.
pub fn loop_entry(at: WaitOrder, body: &[Stmt]) -> WaitOrder {
    join(at, after(at, body))
}

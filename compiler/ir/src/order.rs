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

/// The order after `stmts` when `at` holds before them.
pub fn after(at: WaitOrder, stmts: &[Stmt]) -> WaitOrder {
    stmts.iter().fold(at, |at, stmt| match &stmt.kind {
        StmtKind::GridWait => match at {
            WaitOrder::NoWait => WaitOrder::NoWait,
            WaitOrder::Before | WaitOrder::After | WaitOrder::Mixed => WaitOrder::After,
        },
        StmtKind::For { body, .. } => join(at, after(loop_entry(at, body), body)),
        StmtKind::If { then_body, else_body, .. } => {
            join(after(at, then_body), after(at, else_body))
        }
        StmtKind::Def { .. }
        | StmtKind::SetVar { .. }
        | StmtKind::Store { .. }
        | StmtKind::Prefetch { .. }
        | StmtKind::Advance { .. }
        | StmtKind::CopyAsync { .. }
        | StmtKind::EmptyGroup
        | StmtKind::Settle { .. }
        | StmtKind::Sync
        | StmtKind::GridLaunch
        | StmtKind::Assert { .. }
        | StmtKind::Printf { .. } => at,
    })
}

/// The order at the first statement of a loop body: the entry joined with the end of a round.
pub fn loop_entry(at: WaitOrder, body: &[Stmt]) -> WaitOrder {
    join(at, after(at, body))
}

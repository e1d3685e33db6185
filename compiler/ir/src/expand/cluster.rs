//! Where the CTAs of a cluster meet though the author did not say so: before the first access to memory of another
//! CTA, which has to have started, and after the last one, since a CTA that ends takes its memory with it.

use crate::kernel::{Kernel, Op, PipeOp, Stmt, StmtKind};

/// The meetings that a kernel needs besides its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Edges {
    /// At its start.
    pub(super) entry: bool,
    /// At its end.
    pub(super) exit: bool,
}

/// What holds at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    /// Every path has met.
    met: bool,
    /// Some path has touched memory of another CTA since it met.
    open: bool,
}

impl Edges {
    pub(super) fn of(kernel: &Kernel) -> Edges {
        let mut walk = Walk { entry: false };
        let end = walk.block(&kernel.body, State { met: false, open: false });
        Edges { entry: walk.entry, exit: end.open }
    }
}

struct Walk {
    /// Memory of another CTA is touched where some path has not met.
    entry: bool,
}

impl Walk {
    fn block(&mut self, stmts: &[Stmt], state: State) -> State {
        stmts.iter().fold(state, |state, stmt| self.stmt(&stmt.kind, state))
    }

    fn stmt(&mut self, kind: &StmtKind, state: State) -> State {
        match kind {
            StmtKind::Def { op: Op::Load { access, .. }, .. } | StmtKind::Store { access, .. }
                if access.storage.cta().is_some() =>
            {
                self.entry |= !state.met;
                State { open: true, ..state }
            }
            // Of slots that go back to all CTAs nobody waits for the last time.
            StmtKind::Pipe(
                PipeOp::Release { everywhere: true, .. } | PipeOp::Commit { everywhere: true, .. },
            ) => {
                self.entry |= !state.met;
                State { open: true, ..state }
            }
            // Whoever is sent to waits for all that comes, so its memory is there as long as it is written.
            StmtKind::Pipe(PipeOp::Send { .. } | PipeOp::Copy { everywhere: true, .. }) => {
                self.entry |= !state.met;
                state
            }
            StmtKind::SyncCluster => State { met: true, open: false },
            StmtKind::For { body, .. } => {
                // A later round starts where an earlier one has met, or open at most where that one ended open.
                let once = self.block(body, state);
                State { met: state.met, open: state.open || once.open }
            }
            StmtKind::If { then_body, else_body, .. } => {
                let (a, b) = (self.block(then_body, state), self.block(else_body, state));
                State { met: a.met && b.met, open: a.open || b.open }
            }
            StmtKind::Role { body, .. } => self.block(body, state),
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
            | StmtKind::SyncRole
            | StmtKind::Pipe(_)
            | StmtKind::GridWait
            | StmtKind::GridLaunch
            | StmtKind::Assert { .. }
            | StmtKind::Trace { .. }
            | StmtKind::Printf { .. } => state,
        }
    }
}

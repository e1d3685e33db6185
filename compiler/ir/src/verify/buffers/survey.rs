//! Which buffers a kernel stores to, and which of them copies touch.

use std::collections::BTreeSet;

use crate::kernel::{BarrierId, Op, Outgoing, ParamId, PipeOp, Stmt, StmtKind, copied};

/// What the statements of a kernel do to buffers, wherever they stand.
#[derive(Default)]
pub(super) struct Survey {
    /// Buffers that the kernel stores to.
    pub(super) stored: BTreeSet<ParamId>,
    /// Buffers that copies read or write.
    pub(super) copied: BTreeSet<ParamId>,
    /// Barriers for which some role waits.
    pub(super) awaited: BTreeSet<BarrierId>,
}

impl Survey {
    pub(super) fn of(stmts: &[Stmt]) -> Survey {
        let mut survey = Survey::default();
        survey.block(stmts);
        survey
    }

    fn block(&mut self, stmts: &[Stmt]) {
        for stmt in stmts {
            self.stmt(&stmt.kind);
            stmt.kind.bodies().into_iter().for_each(|body| self.block(body));
        }
    }

    fn stmt(&mut self, kind: &StmtKind) {
        match kind {
            StmtKind::Store { access, .. }
            | StmtKind::Def { op: Op::Atomic { access, .. }, .. } => {
                self.stored.extend(access.storage.param());
            }
            StmtKind::Outgoing(Outgoing::Copy { dest, .. }) => {
                self.stored.extend(dest.storage.param());
                self.copied.extend(dest.storage.param());
            }
            StmtKind::Advance { word } => {
                self.stored.insert(word.param);
            }
            StmtKind::Pipe(PipeOp::Wait { barrier, .. }) => {
                self.awaited.insert(*barrier);
            }
            other => {
                let source = copied(other).and_then(|(source, _)| source.storage.param());
                self.copied.extend(source);
            }
        }
    }
}

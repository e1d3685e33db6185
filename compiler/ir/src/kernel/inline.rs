//! PTX of authors in a kernel, for reports.

use kernel_dsl::source::Span;

use super::{Kernel, Op, Stmt, StmtKind};

impl Kernel {
    /// Every text of an `unsafe` block with its place, each place once.
    pub fn inline_ptx(&self) -> Vec<(Span, &str)> {
        let mut found = Vec::new();
        texts(&self.body, &mut found);
        found
    }
}

fn texts<'k>(stmts: &'k [Stmt], found: &mut Vec<(Span, &'k str)>) {
    for stmt in stmts {
        if let StmtKind::Def { op: Op::Inline { text, .. }, .. } = &stmt.kind
            && !found.iter().any(|(span, _)| *span == stmt.span)
        {
            found.push((stmt.span, text));
        }
        stmt.kind.bodies().into_iter().for_each(|body| texts(body, found));
    }
}

//! Questions about statements and all that stands inside of them.

use std::collections::BTreeSet;

use super::{Stmt, StmtKind, ValueId};

/// The values that statements define, those of loops and choices inside of them included.
pub(crate) fn defined_in(stmts: &[Stmt]) -> BTreeSet<ValueId> {
    let mut found = BTreeSet::new();
    collect(stmts, &mut found);
    found
}

fn collect(stmts: &[Stmt], found: &mut BTreeSet<ValueId>) {
    for stmt in stmts {
        if let StmtKind::Def { results, .. } = &stmt.kind {
            found.extend(results);
        } else if let StmtKind::For { var, .. } = &stmt.kind {
            found.insert(*var);
        }
        for body in stmt.kind.bodies() {
            collect(body, found);
        }
    }
}

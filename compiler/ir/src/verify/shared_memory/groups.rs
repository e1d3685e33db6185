//! The number that each `settle` leaves in flight.
//!
//! Every copy closes a group. A choice whose arms copy differently often gets empty groups at the end of the
//! arm that copies less, so that the count does not depend on the path. A `settle` then leaves as many groups
//! in flight as every path closes after the one that fills its slot.

use rustc_hash::FxHashMap;

use super::state::MAX_SINCE;
use crate::kernel::{Kernel, Leaving, Outgoing, Stmt, StmtKind};

/// Gives every `settle` of the kernel its number.
pub(crate) fn derive(kernel: &mut Kernel) {
    if kernel.smem.is_empty() {
        return;
    }
    crate::kernel::tell_settles(kernel);
    balance(&mut kernel.body, Way::In);
    if !Leaving::of(kernel).tiles.is_empty() {
        balance(&mut kernel.body, Way::Out);
    }
    let numbers = super::settle_numbers(kernel);
    assign(&mut kernel.body, &numbers);
}

/// Which copies: each thread counts groups of those to shared memory, and of those out of it, apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    In,
    Out,
}

impl Way {
    fn empty_group(self) -> StmtKind {
        match self {
            Way::In => StmtKind::EmptyGroup,
            Way::Out => StmtKind::Outgoing(Outgoing::EmptyGroup),
        }
    }
}

/// Adds empty groups; returns the groups that the statements close, if that is the same on every path.
fn balance(stmts: &mut [Stmt], way: Way) -> Option<usize> {
    let mut total = Some(0usize);
    for stmt in stmts {
        let span = stmt.span;
        let own = match &mut stmt.kind {
            StmtKind::CopyAsync { .. } | StmtKind::EmptyGroup => Some(usize::from(way == Way::In)),
            StmtKind::Outgoing(Outgoing::Copy { .. } | Outgoing::EmptyGroup) => {
                Some(usize::from(way == Way::Out))
            }
            StmtKind::For { body, .. } => match balance(body, way) {
                Some(0) => Some(0),
                Some(_) | None => None,
            },
            StmtKind::If { then_body, else_body, .. } => {
                let counts = (balance(then_body, way), balance(else_body, way));
                if let (Some(a), Some(b)) = counts {
                    let (shorter, missing) =
                        if a < b { (then_body, b - a) } else { (else_body, a - b) };
                    let empty = Stmt { kind: way.empty_group(), span };
                    shorter.extend(std::iter::repeat_n(empty, missing));
                    Some(a.max(b))
                } else {
                    None
                }
            }
            StmtKind::Role { body, .. } => balance(body, way).map(|_| 0),
            StmtKind::Def { .. }
            | StmtKind::SetVar { .. }
            | StmtKind::Store { .. }
            | StmtKind::Prefetch { .. }
            | StmtKind::Advance { .. }
            | StmtKind::Settle { .. }
            | StmtKind::Outgoing(Outgoing::Settle { .. } | Outgoing::Publish { .. })
            | StmtKind::Warpgroup(_)
            | StmtKind::Tensor(_)
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
            | StmtKind::Printf { .. } => Some(0),
        };
        total = total.zip(own).map(|(a, b)| a + b);
    }
    total
}

/// Statements by their place in memory, which does not change while they are numbered.
pub(super) type Numbers = FxHashMap<*const Stmt, u32>;

fn assign(stmts: &mut [Stmt], numbers: &Numbers) {
    for stmt in stmts {
        let place = std::ptr::from_ref::<Stmt>(stmt);
        if let StmtKind::Settle { pending, .. }
        | StmtKind::Outgoing(Outgoing::Settle { pending, .. }) = &mut stmt.kind
        {
            *pending = numbers.get(&place).copied().unwrap_or(0).min(MAX_SINCE);
        }
        for body in stmt.kind.bodies_mut() {
            assign(body, numbers);
        }
    }
}

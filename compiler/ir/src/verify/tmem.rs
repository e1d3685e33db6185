//! R5, R11: what runs in tensor memory is waited for.
//!
//! Assumes that barriers come round as [`super::pipes`] proves. Guarantees (E0146) that behind each product, on every
//! path of its role, stands a `commit` to a barrier that somebody waits for, so that none runs when tensor memory is
//! given back; (E0147) that between a `load` from tensor memory and its `settle` stand other loads alone, so that nobody
//! uses or gives away what is still read; and (E0145) that sums are read and operands stored by another role than the one that
//! starts the products. That it has waited for them is proved with the accesses of shared memory.

use kernel_dsl::diag::{Code, Diagnostic, Sink};
use kernel_dsl::source::Span;

use crate::kernel::{Kernel, Op, PipeOp, RoleId, Stmt, StmtKind, Tensor, VarId};

pub(super) fn check(kernel: &Kernel, sink: &mut Sink) {
    for stmt in &kernel.body {
        if let StmtKind::Role { role, body } = &stmt.kind {
            if let Some(product) = open_product(kernel, body, None) {
                sink.push(
                    Diagnostic::error(Code::E0146, "a product that nobody waits for")
                        .label(product, "may still run when the kernel ends")
                        .help("write `commit BARRIER;` behind it, on every path, and wait for that barrier in another role"),
                );
            }
            both_sides(kernel, *role, body, sink);
        }
    }
    settled(kernel, &kernel.body, sink);
}

/// A product that no commit to a barrier that is waited for stands behind.
fn open_product(kernel: &Kernel, stmts: &[Stmt], before: Option<Span>) -> Option<Span> {
    stmts.iter().fold(before, |open, stmt| match &stmt.kind {
        StmtKind::Tensor(Tensor::Mma(_)) => Some(stmt.span),
        // The last rounds of an empty slot are not waited for.
        StmtKind::Pipe(PipeOp::Commit { barrier, .. })
            if kernel.barriers[*barrier].partner.is_none_or(|partner| partner > *barrier) =>
        {
            None
        }
        StmtKind::For { body, .. } => open_product(kernel, body, open).or(open),
        StmtKind::If { then_body, else_body, .. } => {
            open_product(kernel, then_body, open).or_else(|| open_product(kernel, else_body, open))
        }
        _ => open,
    })
}

/// The first product, and the first load or store, in tensor memory.
fn uses(stmts: &[Stmt], found: &mut [Option<Span>; 2]) {
    for stmt in stmts {
        if let StmtKind::Tensor(op) = &stmt.kind {
            match op {
                Tensor::Mma(_) => found[0] = found[0].or(Some(stmt.span)),
                Tensor::Load { .. } | Tensor::Store { .. } => {
                    found[1] = found[1].or(Some(stmt.span))
                }
                Tensor::Settle { .. } => {}
            }
        }
        stmt.kind.bodies().into_iter().for_each(|body| uses(body, found));
    }
}

fn both_sides(kernel: &Kernel, role: RoleId, body: &[Stmt], sink: &mut Sink) {
    let mut found = [None; 2];
    uses(body, &mut found);
    if let [Some(product), Some(access)] = found {
        let name = &kernel.roles[role].name;
        sink.push(
            Diagnostic::error(
                Code::E0145,
                format!("`{name}` touches tensor memory itself and starts products"),
            )
            .label(access, "its threads do this")
            .secondary(product, "the product")
            .help("let another role read sums and store operands, and hand them over by barriers"),
        );
    }
}

/// Loads of one list of statements, each with its settle.
fn settled(kernel: &Kernel, stmts: &[Stmt], sink: &mut Sink) {
    let mut open: Vec<(VarId, u32, Span)> = Vec::new();
    // Loads that have been reported.
    let mut lost: Vec<(VarId, u32)> = Vec::new();
    for stmt in stmts {
        let waits = match &stmt.kind {
            StmtKind::Tensor(Tensor::Load { var, slot, .. }) => {
                open.push((*var, *slot, stmt.span));
                true
            }
            StmtKind::Tensor(Tensor::Settle { var, slot }) => {
                let before = open.len();
                open.retain(|&(v, s, _)| (v, s) != (*var, *slot));
                if open.len() == before && !lost.contains(&(*var, *slot)) {
                    let name = &kernel.vars[*var].name;
                    sink.push(
                        Diagnostic::error(Code::E0147, format!("no load fills `{name}` here"))
                            .label(
                                stmt.span,
                                "nothing is under way to it in this list of statements",
                            )
                            .help("put `settle` right behind the load"),
                    );
                }
                true
            }
            StmtKind::Def { results, op } => {
                let scalar = results.iter().all(|&result| kernel.values[result].is_scalar());
                scalar && !matches!(op, Op::Load { .. } | Op::ReadVar { .. } | Op::Reduce { .. })
            }
            _ => false,
        };
        if !waits && let Some(&(var, _, load)) = open.last() {
            unsettled(kernel, var, load, stmt.span, sink);
            lost.extend(open.drain(..).map(|(var, slot, _)| (var, slot)));
        }
        stmt.kind.bodies().into_iter().for_each(|body| settled(kernel, body, sink));
    }
    if let Some((var, _, load)) = open.pop() {
        unsettled(kernel, var, load, kernel.vars[var].span, sink);
    }
}

fn unsettled(kernel: &Kernel, var: VarId, load: Span, next: Span, sink: &mut Sink) {
    let name = &kernel.vars[var].name;
    sink.push(
        Diagnostic::error(Code::E0147, format!("`{name}` is not settled"))
            .label(load, "this load may still be under way")
            .secondary(next, "here")
            .help(format!("write `settle {name};` behind the load, before anything else is done")),
    );
}

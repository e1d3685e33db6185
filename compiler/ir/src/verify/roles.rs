//! R9 of roles: what runs side by side shares no warp and no buffer that one of them stores to.
//!
//! Assumes that roles stand at the top of a kernel. Guarantees (E0150) that the warps of roles of one region are
//! apart and are warps of the kernel, and (E0153) that no role loads from a buffer that another role of the region
//! stores to. Two roles may store to one buffer: that they store to other elements is the author's business, as it is
//! between CTAs, and the emulator's.

use kernel_dsl::diag::{Code, Diagnostic, Sink};
use kernel_dsl::source::Span;

use crate::kernel::{Kernel, Op, ParamId, RoleId, Stmt, StmtKind, TileAccess, copied};

/// An access of a buffer.
struct Touch {
    param: ParamId,
    writes: bool,
    span: Span,
}

/// A role of a region with what it touches.
struct Member {
    role: RoleId,
    touches: Vec<Touch>,
}

pub(super) fn check(kernel: &Kernel, sink: &mut Sink) {
    let mut region: Vec<Member> = Vec::new();
    for stmt in &kernel.body {
        let StmtKind::Role { role, body } = &stmt.kind else {
            region.clear();
            continue;
        };
        let mut touches = Vec::new();
        collect(body, &mut touches);
        warps(kernel, *role, &region, sink);
        let member = Member { role: *role, touches };
        region.iter().for_each(|other| buffers(kernel, other, &member, sink));
        region.push(member);
    }
}

fn collect(stmts: &[Stmt], found: &mut Vec<Touch>) {
    for stmt in stmts {
        let mut add = |access: &TileAccess, writes: bool| {
            let param = access.storage.param();
            found.extend(param.map(|param| Touch { param, writes, span: access.span }));
        };
        if let StmtKind::Def { op: Op::Load { access, .. }, .. } = &stmt.kind {
            add(access, false);
        } else if let StmtKind::Store { access, .. } = &stmt.kind {
            add(access, true);
        } else if let Some((source, _)) = copied(&stmt.kind) {
            add(source, false);
        }
        for body in stmt.kind.bodies() {
            collect(body, found);
        }
    }
}

fn warps(kernel: &Kernel, role: RoleId, region: &[Member], sink: &mut Sink) {
    let own = &kernel.roles[role];
    if own.first.saturating_add(own.warps) > kernel.launch.warps {
        sink.push(
            Diagnostic::error(Code::E0150, format!("`{}` has warps that do not exist", own.name))
                .label(own.span, format!("warps {}", own.range()))
                .secondary(kernel.span, format!("launched with {} warps", kernel.launch.warps))
                .help("launch more warps, or give the role others"),
        );
    }
    let overlaps = |other: &&Member| {
        let other = &kernel.roles[other.role];
        own.first < other.first.saturating_add(other.warps)
            && other.first < own.first.saturating_add(own.warps)
    };
    if let Some(other) = region.iter().find(overlaps) {
        let other = &kernel.roles[other.role];
        sink.push(
            Diagnostic::error(
                Code::E0150,
                format!("`{}` and `{}` share warps and run side by side", other.name, own.name),
            )
            .label(own.span, format!("warps {}", own.range()))
            .secondary(other.span, format!("warps {}", other.range()))
            .help("give them other warps, or put a statement between the two: `sync;`"),
        );
    }
}

fn buffers(kernel: &Kernel, first: &Member, second: &Member, sink: &mut Sink) {
    for a in &first.touches {
        let clash = second.touches.iter().find(|b| a.param == b.param && a.writes != b.writes);
        let Some(b) = clash else { continue };
        let (store, load, of) = if a.writes { (a, b, second) } else { (b, a, first) };
        let (param, reader) = (&kernel.params[a.param], &kernel.roles[of.role].name);
        sink.push(
            Diagnostic::error(
                Code::E0153,
                format!("`{reader}` reads `{}` while another role may store to it", param.name),
            )
            .label(load.span, "nothing orders this read")
            .secondary(store.span, "stored to here, by a role that runs beside it")
            .secondary(param.span, "declared here")
            .help("let one role do both, or end the roles and put `sync;` between"),
        );
        return;
    }
}

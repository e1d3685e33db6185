//! R1 and R2: accesses on the right side of `grid_wait`, on every path.
//!
//! Assumes structured, uniform control flow, so one walk with a three-valued state is exact but for loops,
//! which may run zero times. Guarantees, for kernels that may start before their predecessor has finished:
//! reads of `input`, `inout`, `scratch` and `peer` (unless `settled`) and all writes come after `grid_wait`;
//! every path waits; `grid_launch` comes after the wait. Leaves alone what other kernels do.

use kernel_dsl::diag::{Code, Diagnostic, Sink};
use kernel_dsl::source::Span;

use crate::device::WaitOrder;
use crate::kernel::{
    Kernel, Op, Outgoing, ParamId, PipeOp, PrefetchRange, Stmt, StmtKind, Storage,
};
use crate::order;

pub(super) fn check(kernel: &Kernel, sink: &mut Sink) {
    let start = if kernel.launch.pdl.is_consumer() { WaitOrder::Before } else { WaitOrder::NoWait };
    let mut walk = Walk { kernel, sink };
    walk.block(&kernel.body, start);
    if start == WaitOrder::Before {
        walk.every_path_waits();
    }
}

struct Walk<'a> {
    kernel: &'a Kernel,
    sink: &'a mut Sink,
}

impl Walk<'_> {
    fn block(&mut self, stmts: &[Stmt], mut at: WaitOrder) -> WaitOrder {
        for stmt in stmts {
            at = self.stmt(stmt, at);
        }
        at
    }

    fn stmt(&mut self, stmt: &Stmt, at: WaitOrder) -> WaitOrder {
        match &stmt.kind {
            StmtKind::Def { op: Op::Load { access, .. }, .. } => {
                if let Storage::Buffer(param) = access.storage {
                    self.read(param, access.span, at, "read");
                }
                at
            }
            StmtKind::CopyAsync { source, .. } | StmtKind::Pipe(PipeOp::Copy { source, .. }) => {
                if let Storage::Buffer(param) = source.storage {
                    self.read(param, source.span, at, "copy");
                }
                at
            }
            StmtKind::Def { op: Op::ArriveLast { word, .. }, .. } | StmtKind::Advance { word } => {
                self.write(word.param, word.span, at);
                at
            }
            StmtKind::Def { op: Op::Atomic { access, .. }, .. } => {
                if let Some(param) = access.storage.param() {
                    self.write(param, access.span, at);
                }
                at
            }
            StmtKind::Signal(signal) => {
                self.write(signal.param, signal.span, at);
                at
            }
            StmtKind::Await(wait) => {
                self.read(wait.param, wait.span, at, "wait");
                at
            }
            StmtKind::Store { access, .. } => {
                if let Some(param) = access.storage.param() {
                    self.write(param, access.span, at);
                }
                at
            }
            StmtKind::Outgoing(Outgoing::Copy { dest, .. }) => {
                dest.storage.param().into_iter().for_each(|param| self.write(param, dest.span, at));
                at
            }
            StmtKind::Prefetch { what, .. } => {
                let (param, span) = match what {
                    PrefetchRange::Tile(access) | PrefetchRange::Box(access) => {
                        (access.storage.param(), access.span)
                    }
                    PrefetchRange::Elements { param, .. } => (Some(*param), stmt.span),
                };
                if let Some(param) = param {
                    self.read(param, span, at, "prefetch");
                }
                at
            }
            StmtKind::GridWait => {
                if at == WaitOrder::NoWait {
                    self.sink.push(
                        Diagnostic::error(
                            Code::E0111,
                            format!(
                                "`grid_wait` in kernel `{}`, which is not launched early",
                                self.kernel.name
                            ),
                        )
                        .label(stmt.span, "this wait has nothing to wait for")
                        .secondary(self.kernel.span, "its `pdl` is neither `consumer` nor `both`")
                        .help(
                            "write `pdl: consumer` or `pdl: both` in `launch`, or remove the wait",
                        ),
                    );
                    return at;
                }
                WaitOrder::After
            }
            StmtKind::GridLaunch => {
                self.launch(stmt.span, at);
                at
            }
            StmtKind::Role { body, .. } => {
                // Each role waits for itself, and nobody after it gains by that.
                self.block(body, at);
                at
            }
            StmtKind::For { body, tickets, .. } => {
                if let Some(word) = tickets {
                    self.write(word.param, word.span, at);
                }
                let entry = order::loop_entry(at, body);
                let end = self.block(body, entry);
                order::join(at, end)
            }
            StmtKind::If { then_body, else_body, .. } => {
                let then_end = self.block(then_body, at);
                let else_end = self.block(else_body, at);
                order::join(then_end, else_end)
            }
            StmtKind::Def { .. }
            | StmtKind::SetVar { .. }
            | StmtKind::EmptyGroup
            | StmtKind::Outgoing(_)
            | StmtKind::Settle { .. }
            | StmtKind::Warpgroup(_)
            | StmtKind::Tensor(_)
            | StmtKind::Sync
            | StmtKind::SyncCluster
            | StmtKind::SyncRole
            | StmtKind::Pipe(_)
            | StmtKind::Assert { .. }
            | StmtKind::Trace { .. }
            | StmtKind::Printf { .. } => at,
        }
    }

    fn read(&mut self, param: ParamId, span: Span, at: WaitOrder, what: &str) {
        let p = &self.kernel.params[param];
        if p.settled || p.access.may_read_before_wait() || ordered(at) {
            return;
        }
        let who = match p.access {
            kernel_abi::Access::Input => "an earlier kernel writes it",
            kernel_abi::Access::Peer | kernel_abi::Access::Multicast => "other ranks write it",
            kernel_abi::Access::Static
            | kernel_abi::Access::Output
            | kernel_abi::Access::Inout
            | kernel_abi::Access::Scratch
            | kernel_abi::Access::Scalar => "earlier kernels may still write it",
        };
        self.sink.push(
            Diagnostic::error(
                Code::E0107,
                format!(
                    "activation `{}` can be read before the previous kernel has finished",
                    p.name
                ),
            )
            .label(span, format!("this {what} is not ordered after a `grid_wait`{}", on_paths(at)))
            .secondary(p.span, format!("declared `{}`: {who}", p.access))
            .help("put `grid_wait;` before this statement, on every path that leads to it"),
        );
    }

    fn write(&mut self, param: ParamId, span: Span, at: WaitOrder) {
        if ordered(at) {
            return;
        }
        let p = &self.kernel.params[param];
        self.sink.push(
            Diagnostic::error(
                Code::E0108,
                format!("`{}` can be written while the previous kernel still uses it", p.name),
            )
            .label(span, format!("this write is not ordered after a `grid_wait`{}", on_paths(at)))
            .secondary(
                p.span,
                format!("declared `{}`: earlier kernels may still read it", p.access),
            )
            .help("put `grid_wait;` before this statement, on every path that leads to it"),
        );
    }

    fn launch(&mut self, span: Span, at: WaitOrder) {
        if !self.kernel.launch.pdl.is_producer() {
            self.sink.push(
                Diagnostic::error(
                    Code::E0111,
                    format!(
                        "`grid_launch` in kernel `{}`, which lets nobody start early",
                        self.kernel.name
                    ),
                )
                .label(span, "no kernel is launched from here")
                .secondary(self.kernel.span, "its `pdl` is neither `producer` nor `both`")
                .help("write `pdl: producer` or `pdl: both` in `launch`, or remove the statement"),
            );
        } else if !ordered(at) {
            self.sink.push(
                Diagnostic::error(
                    Code::E0110,
                    "the next kernel can be launched before the previous one has finished",
                )
                .label(span, format!("not ordered after a `grid_wait`{}", on_paths(at)))
                .help("move `grid_launch;` behind `grid_wait;`"),
            );
        }
    }

    /// R2: reports where the paths part, if one of them never waits.
    fn every_path_waits(&mut self) {
        if order::after(WaitOrder::Before, &self.kernel.body) == WaitOrder::After {
            return;
        }
        let mut diagnostic = Diagnostic::error(
            Code::E0109,
            format!("kernel `{}` can finish without `grid_wait`", self.kernel.name),
        )
        .label(
            self.kernel.span,
            "kernels after this one may then start before those ahead are done",
        );
        if let Some((span, why)) = leak(&self.kernel.body) {
            diagnostic = diagnostic.secondary(span, why);
        }
        self.sink
            .push(diagnostic.help("put `grid_wait;` on every path, best before the first branch"));
    }
}

/// Where a path without a wait leaves the others.
fn leak(stmts: &[Stmt]) -> Option<(Span, &'static str)> {
    stmts.iter().find_map(|stmt| match &stmt.kind {
        StmtKind::If { then_body, else_body, .. } => {
            let waits = |body: &[Stmt]| order::after(WaitOrder::Before, body);
            match (waits(then_body), waits(else_body)) {
                (WaitOrder::After, WaitOrder::After) => None,
                (WaitOrder::After, _) => {
                    Some((stmt.span, "the wait is skipped when this is false"))
                }
                (_, WaitOrder::After) => Some((stmt.span, "the wait is skipped when this is true")),
                (_, _) => leak(then_body).or_else(|| leak(else_body)),
            }
        }
        StmtKind::For { body, .. } => (order::after(WaitOrder::Before, body) != WaitOrder::Before)
            .then_some((stmt.span, "the wait is skipped when this loop runs zero times")),
        StmtKind::Role { body, .. } => leak(body),
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
        | StmtKind::GridWait
        | StmtKind::GridLaunch
        | StmtKind::Assert { .. }
        | StmtKind::Trace { .. }
        | StmtKind::Printf { .. } => None,
    })
}

fn ordered(at: WaitOrder) -> bool {
    matches!(at, WaitOrder::After | WaitOrder::NoWait)
}

fn on_paths(at: WaitOrder) -> &'static str {
    match at {
        WaitOrder::Mixed => " on every path",
        WaitOrder::NoWait | WaitOrder::Before | WaitOrder::After => "",
    }
}

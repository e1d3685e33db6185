//! How a kernel touches its buffers around its wait, for the checks of plans.
//!
//! The verifier refuses a kernel that breaks rules R1 and R2, but for what its author waives; what is waived is told here, so
//! that the plan says whether it goes well. A role counts by its own wait: one that another role tells of its wait is taken
//! not to have waited.

use kernel_abi::Access;
use kernel_abi::plan::{Touches, Waits};
use kernel_ir::device::WaitOrder;
use kernel_ir::index::IndexVec;
use kernel_ir::kernel::{
    AxisIndex, Extent, Kernel, Op, Outgoing, Param, ParamId, PipeOp, PrefetchRange, Stmt, StmtKind,
    TileAccess, ValueId,
};
use kernel_ir::order::{self, Effect};

/// What a kernel does around its wait, and to each of its parameters.
pub(super) fn touches(kernel: &Kernel) -> (Waits, IndexVec<ParamId, Touches>) {
    let is_early = kernel.launch.pdl.is_consumer();
    let start = if is_early { WaitOrder::Before } else { WaitOrder::NoWait };
    let mut walk = Walk {
        kernel,
        scalars: Vec::new(),
        waits: Waits {
            may_not_wait: is_early && order::effect(&kernel.body) != Effect::EveryPath,
            may_launch_first: false,
        },
        touches: kernel.params.iter().map(|_| Touches::default()).collect(),
        rows: kernel.params.iter().map(|_| Rows::Unseen).collect(),
    };
    walk.block(&kernel.body, start);
    for (id, rows) in walk.rows.iter_enumerated() {
        if let Rows::Below(scalar) = *rows {
            walk.touches[id].rows = Some(kernel.params[scalar].name.clone());
        }
    }
    (walk.waits, walk.touches)
}

/// What bounds the rows of all accesses so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rows {
    /// There was none.
    Unseen,
    /// A scalar.
    Below(ParamId),
    /// Nothing, or more than one scalar.
    All,
}

struct Walk<'k> {
    kernel: &'k Kernel,
    /// Values that are scalar parameters.
    scalars: Vec<(ValueId, ParamId)>,
    waits: Waits,
    touches: IndexVec<ParamId, Touches>,
    rows: IndexVec<ParamId, Rows>,
}

impl Walk<'_> {
    fn block(&mut self, stmts: &[Stmt], mut at: WaitOrder) -> WaitOrder {
        for stmt in stmts {
            at = self.stmt(&stmt.kind, at);
        }
        at
    }

    fn stmt(&mut self, kind: &StmtKind, at: WaitOrder) -> WaitOrder {
        match kind {
            StmtKind::Def { results, op } => {
                match op {
                    Op::ScalarParam(param) => {
                        self.scalars.extend(results.iter().map(|&result| (result, *param)));
                    }
                    Op::Load { access, .. } => self.read(access, at),
                    Op::Atomic { access, .. } => self.write(access, at),
                    Op::ArriveLast { word, .. } => self.word(word.param, at),
                    _ => {}
                }
                at
            }
            StmtKind::Store { access, .. } => {
                self.write(access, at);
                at
            }
            StmtKind::CopyAsync { source, .. } => {
                self.read(source, at);
                at
            }
            StmtKind::Pipe(PipeOp::Copy { source, .. }) => {
                self.read(source, at);
                if let Some(param) = source.storage.param() {
                    // The compiler puts a fence ahead of copies of everything else.
                    let is_static = self.kernel.params[param].access == Access::Static;
                    self.touches[param].copied_unfenced |= is_static;
                }
                at
            }
            StmtKind::Outgoing(Outgoing::Copy { dest, .. }) => {
                self.write(dest, at);
                at
            }
            StmtKind::Prefetch { what, .. } => {
                // What a prefetch brings into a cache is no value that the kernel has read, but may be an old one there.
                match what {
                    PrefetchRange::Tile(access) | PrefetchRange::Box(access) => {
                        self.read(access, at);
                    }
                    PrefetchRange::Elements { param, .. } => {
                        self.rows[*param] = Rows::All;
                        self.reads_param(*param, at);
                    }
                }
                at
            }
            StmtKind::Advance { word } => {
                self.word(word.param, at);
                at
            }
            StmtKind::Signal(signal) => {
                self.word(signal.param, at);
                at
            }
            StmtKind::Await(wait) => {
                self.reads_param(wait.param, at);
                at
            }
            StmtKind::GridWait if at == WaitOrder::NoWait => at,
            StmtKind::GridWait => WaitOrder::After,
            StmtKind::GridLaunch => {
                self.waits.may_launch_first |= is_before(at);
                at
            }
            StmtKind::Role { body, .. } => {
                self.block(body, at);
                at
            }
            StmtKind::For { body, tickets, .. } => {
                if let Some(word) = tickets {
                    self.word(word.param, at);
                }
                let end = self.block(body, order::loop_entry(at, body));
                order::join(at, end)
            }
            StmtKind::If { then_body, else_body, .. } => {
                let then_end = self.block(then_body, at);
                let else_end = self.block(else_body, at);
                order::join(then_end, else_end)
            }
            StmtKind::SetVar { .. }
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

    fn read(&mut self, access: &TileAccess, at: WaitOrder) {
        let Some(param) = access.storage.param() else { return };
        self.bound(param, access);
        self.reads_param(param, at);
    }

    fn reads_param(&mut self, param: ParamId, at: WaitOrder) {
        let described = &self.kernel.params[param];
        let is_free = described.settled || described.access.may_read_before_wait();
        self.touches[param].read_early |= is_before(at) && !is_free;
    }

    fn write(&mut self, access: &TileAccess, at: WaitOrder) {
        let Some(param) = access.storage.param() else { return };
        self.bound(param, access);
        self.touches[param].written_early |= is_before(at);
    }

    /// An operation on a word both reads and writes it.
    fn word(&mut self, param: ParamId, at: WaitOrder) {
        self.rows[param] = Rows::All;
        self.touches[param].written_early |= is_before(at);
        self.touches[param].read_early |= is_before(at);
    }

    /// Notes which scalar bounds the rows of an access.
    fn bound(&mut self, param: ParamId, access: &TileAccess) {
        let here = match self.bound_of(&self.kernel.params[param], access) {
            Some(scalar) => Rows::Below(scalar),
            None => Rows::All,
        };
        let so_far = self.rows[param];
        self.rows[param] = if so_far == Rows::Unseen || so_far == here { here } else { Rows::All };
    }

    /// The scalar parameter below which all rows of an access are, where its first axis is that of the rows.
    fn bound_of(&self, param: &Param, access: &TileAccess) -> Option<ParamId> {
        let inner = param.shape.iter().skip(1).try_fold(1u64, |n, extent| match extent {
            Extent::Const(extent) => n.checked_mul(u64::from(*extent)),
            Extent::Scalar(_) => None,
        })?;
        let (rows, others) = access.axes.split_first()?;
        let [row] = rows.digits.as_slice() else { return None };
        let mut last = 0u64;
        for digit in others.iter().flat_map(|axis| &axis.digits) {
            let stride = u64::try_from(digit.stride).ok()?;
            let span = u64::from(digit.extent.max(1) - 1).checked_mul(stride)?;
            last = last.checked_add(span)?;
        }
        if u64::try_from(row.stride).ok()? != inner || last >= inner.max(1) {
            return None;
        }
        let first = access.index.iter().find(|index| !matches!(index, AxisIndex::New))?;
        let AxisIndex::Range { until: Some(until), .. } = first else { return None };
        let found = self.scalars.iter().find(|(value, _)| value == until);
        found.map(|&(_, scalar)| scalar)
    }
}

/// Whether some path comes here before the wait.
fn is_before(at: WaitOrder) -> bool {
    matches!(at, WaitOrder::Before | WaitOrder::Mixed)
}

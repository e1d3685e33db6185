//! Every access lies inside its buffer.
//!
//! Assumes that contracts on inputs hold (the emulator checks them at launch). Guarantees that each position
//! which a load, store or prefetch touches is at least 0 and below the extent of its axis. What cannot be
//! proved is an error, never a silent run-time check.

use kernel_dsl::diag::{Code, Diagnostic, Sink};
use kernel_dsl::source::Span;

use super::scalars::{Facts, Form, Knowledge};
use crate::kernel::{
    AxisIndex, CopyWay, Extent, Kernel, Op, Outgoing, ParamId, PipeOp, PrefetchRange, Stmt,
    StmtKind, TileAccess, ValueId, Warpgroup, Word,
};

pub(super) fn check(kernel: &Kernel, sink: &mut Sink) {
    let mut walk = Walk { kernel, known: Knowledge::new(kernel), facts: Facts::new(), sink };
    walk.block(&kernel.body);
}

struct Walk<'a> {
    kernel: &'a Kernel,
    known: Knowledge<'a>,
    facts: Facts,
    sink: &'a mut Sink,
}

impl Walk<'_> {
    fn block(&mut self, stmts: &[Stmt]) {
        for stmt in stmts {
            self.stmt(stmt);
        }
    }

    fn under(&mut self, facts: Facts, body: &[Stmt]) {
        let depth = self.facts.len();
        self.facts.extend(facts);
        self.block(body);
        self.facts.truncate(depth);
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Def { results, op } => {
                match op {
                    Op::Load { access, other, .. } => {
                        self.access(access);
                        if other.is_none() {
                            self.all_present(access);
                        }
                    }
                    Op::ArriveLast { word, .. } => self.word(word),
                    Op::Atomic { access, .. } => self.access(access),
                    _ => {}
                }
                self.known.define(results, op, &self.facts);
            }
            StmtKind::Store { access, .. } => self.access(access),
            // What of a box lies outside arrives as zeros.
            StmtKind::Pipe(PipeOp::Copy { dest, way: CopyWay::Tensor, .. }) => self.access(dest),
            StmtKind::CopyAsync { source, dest, .. }
            | StmtKind::Pipe(PipeOp::Copy { source, dest, way: CopyWay::Bulk, .. }) => {
                self.access(source);
                self.access(dest);
            }
            StmtKind::Outgoing(Outgoing::Copy { source, dest, way, .. }) => {
                self.access(source);
                // A box leaves out what lies outside.
                if *way == CopyWay::Bulk {
                    self.access(dest);
                }
            }
            StmtKind::Pipe(PipeOp::Send { dest, .. }) => self.access(dest),
            StmtKind::Warpgroup(Warpgroup::Mma(mma)) => {
                mma.reads().for_each(|access| self.access(access));
            }
            StmtKind::Prefetch { what, .. } => match what {
                PrefetchRange::Tile(access) => self.access(access),
                PrefetchRange::Box(_) => {}
                PrefetchRange::Elements { param, start, end } => {
                    let param = &self.kernel.params[*param];
                    let whole = param.const_len().and_then(|n| u32::try_from(n).ok());
                    let extent = whole.map(Extent::Const).or(param.shape.first().copied());
                    self.elements(stmt, extent.unwrap_or(Extent::Const(1)), *start, *end);
                }
            },
            StmtKind::Role { body, .. } => self.block(body),
            StmtKind::For { var, start, end, step, tickets, body } => {
                tickets.iter().for_each(|word| self.word(word));
                let facts = self.known.bind_loop(*var, *start, *end, *step);
                self.under(facts, body);
            }
            StmtKind::If { cond, then_body, else_body } => {
                let decided = self.known.decided(*cond);
                if decided != Some(false) {
                    self.under(self.known.path_facts(*cond, true), then_body);
                }
                if decided != Some(true) {
                    self.under(self.known.path_facts(*cond, false), else_body);
                }
            }
            StmtKind::Advance { word } => self.word(word),
            StmtKind::Signal(signal) => {
                for (axis, index) in signal.index.iter().enumerate() {
                    self.within(signal.param, axis, *index, signal.span);
                }
            }
            StmtKind::Await(wait) => {
                for (axis, index) in wait.index.iter().enumerate() {
                    index.iter().for_each(|index| self.within(wait.param, axis, *index, wait.span));
                }
            }
            StmtKind::Tensor(op) => op.each_access(|access| self.access(access)),
            StmtKind::Warpgroup(Warpgroup::Commit | Warpgroup::Settle { .. })
            | StmtKind::SetVar { .. }
            | StmtKind::EmptyGroup
            | StmtKind::Outgoing(
                Outgoing::EmptyGroup | Outgoing::Settle { .. } | Outgoing::Publish { .. },
            )
            | StmtKind::Settle { .. }
            | StmtKind::Sync
            | StmtKind::SyncCluster
            | StmtKind::SyncRole
            | StmtKind::Pipe(_)
            | StmtKind::GridWait
            | StmtKind::GridLaunch
            | StmtKind::Assert { .. }
            | StmtKind::Trace { .. }
            | StmtKind::Printf { .. } => {}
        }
    }

    fn word(&mut self, word: &Word) {
        self.within(word.param, 0, word.index, word.span);
    }

    /// One position along an axis of a buffer of words.
    fn within(&mut self, param: ParamId, axis: usize, index: ValueId, span: Span) {
        let param = &self.kernel.params[param];
        let Some(&extent) = param.shape.get(axis) else { return };
        let (extent, at) = (self.known.extent(extent), self.known.form(index));
        let room = extent.plus(-1, &at).and_then(|f| f.plus(-1, &Form::constant(1)));
        let inside = room.is_some_and(|f| self.known.proves(&f, &self.facts));
        if inside && self.known.proves(&at, &self.facts) {
            return;
        }
        self.sink.push(
            Diagnostic::error(
                Code::E0401,
                format!("this word of `{}` cannot be proved to lie inside it", param.name),
            )
            .label(
                span,
                format!(
                    "word {} of {}{}",
                    self.known.describe(&at),
                    self.known.describe(&extent),
                    self.range_of(&at)
                ),
            )
            .secondary(param.span, "declared here"),
        );
    }

    fn access(&mut self, access: &TileAccess) {
        if let Some(slot) = access.storage.slot() {
            self.slot(access, slot);
        }
        if let Some(cta) = access.storage.cta() {
            self.cta(access, cta);
        }
        if let Some(rank) = access.storage.rank() {
            self.rank(access, rank);
        }
        let indices = access.index.iter().filter(|i| !matches!(i, AxisIndex::New));
        for (position, (axis, index)) in access.axes.iter().zip(indices).enumerate() {
            let extent = self.known.extent(axis.extent);
            match index {
                AxisIndex::At(at) => {
                    let form = self.known.form(*at);
                    self.prove(access, position, &extent, &form, &form, "position");
                }
                AxisIndex::Range { start, len, until } => {
                    if *len == 0 {
                        continue;
                    }
                    let first = self.known.form(*start);
                    let last = first.plus(i128::from(*len) - 1, &Form::constant(1));
                    let last = last.unwrap_or_else(|| first.clone());
                    // Positions at or past `until` are not touched.
                    let bound = until.map(|n| self.known.form(n));
                    let inside = bound.and_then(|n| extent.plus(-1, &n));
                    if inside.is_some_and(|f| self.known.proves(&f, &self.facts)) {
                        self.prove_low(access, position, &first, "position");
                    } else {
                        self.prove(access, position, &extent, &first, &last, "position");
                    }
                }
                AxisIndex::Gather(tile) | AxisIndex::Along(tile) => {
                    let form = self.known.form(*tile);
                    self.prove_high(access, position, &extent, &form, "entry of the index tile");
                }
                AxisIndex::New => {}
            }
        }
    }

    /// A load that says nothing of absent elements has none: no entry of an index tile is negative.
    fn all_present(&mut self, access: &TileAccess) {
        let indices = access.index.iter().filter(|i| !matches!(i, AxisIndex::New));
        for (position, index) in indices.enumerate() {
            if let AxisIndex::Gather(tile) | AxisIndex::Along(tile) = index {
                let form = self.known.form(*tile);
                if !self.known.proves(&form, &self.facts) {
                    let text = format!(
                        "axis {position}: an entry of the index tile is {}, which may be below 0 and \
                         name nothing{}",
                        self.known.describe(&form),
                        self.range_of(&form)
                    );
                    self.report(
                        access,
                        text,
                        "say what absent elements are: `else 0.0`, or bound the entries below",
                    );
                }
            }
        }
    }

    /// Slots count from 0.
    fn slot(&mut self, access: &TileAccess, slot: ValueId) {
        let form = self.known.form(slot);
        if !self.known.proves(&form, &self.facts) {
            let text = format!(
                "the ring slot is {}, which may be below 0{}",
                self.known.describe(&form),
                self.range_of(&form)
            );
            self.report(access, text, "count slots from 0: `tile@(j - first)`");
        }
    }

    /// CTAs of a cluster count from 0 to its size.
    fn cta(&mut self, access: &TileAccess, cta: ValueId) {
        let form = self.known.form(cta);
        let size = self.kernel.launch.cluster_size();
        let last = Form::constant(i128::from(size) - 1).plus(-1, &form);
        let inside = last.is_some_and(|room| self.known.proves(&room, &self.facts));
        if !inside || !self.known.proves(&form, &self.facts) {
            let text = format!(
                "the CTA is {} of a cluster of {size}{}",
                self.known.describe(&form),
                self.range_of(&form)
            );
            self.report(access, text, "CTAs of a cluster count from 0: `tile@cta(c)`");
        }
    }

    /// Ranks count from 0 to their number.
    fn rank(&mut self, access: &TileAccess, rank: ValueId) {
        let form = self.known.form(rank);
        let world = self.kernel.launch.world.unwrap_or(1);
        let last = Form::constant(i128::from(world) - 1).plus(-1, &form);
        let inside = last.is_some_and(|room| self.known.proves(&room, &self.facts));
        if !inside || !self.known.proves(&form, &self.facts) {
            let text = format!(
                "the rank is {} of {world}{}",
                self.known.describe(&form),
                self.range_of(&form)
            );
            self.report(access, text, "ranks count from 0: `buffer@peer((rank + d) % world)`");
        }
    }

    fn elements(&mut self, stmt: &Stmt, extent: Extent, start: ValueId, end: ValueId) {
        let extent = self.known.extent(extent);
        let (start, end) = (self.known.form(start), self.known.form(end));
        let inside = extent.plus(-1, &end).is_some_and(|f| self.known.proves(&f, &self.facts));
        if !inside || !self.known.proves(&start, &self.facts) {
            self.sink.push(
                Diagnostic::error(
                    Code::E0401,
                    "this range cannot be proved to lie inside its buffer",
                )
                .label(
                    stmt.span,
                    format!(
                        "elements {} .. {} of {}",
                        self.known.describe(&start),
                        self.known.describe(&end),
                        self.known.describe(&extent)
                    ),
                )
                .help("bound it with `min`, a contract, or `share(i, of, n)`"),
            );
        }
    }

    fn prove(
        &mut self,
        access: &TileAccess,
        axis: usize,
        extent: &Form,
        first: &Form,
        last: &Form,
        what: &str,
    ) {
        if self.prove_low(access, axis, first, what) {
            self.prove_high(access, axis, extent, last, what);
        }
    }

    fn prove_low(&mut self, access: &TileAccess, axis: usize, first: &Form, what: &str) -> bool {
        let proved = self.known.proves(first, &self.facts);
        if !proved {
            let text = format!(
                "axis {axis}: the first {what} is {}, which may be below 0{}",
                self.known.describe(first),
                self.range_of(first)
            );
            self.report(access, text, "bound it below with `max(…, 0)` or a contract");
        }
        proved
    }

    fn prove_high(
        &mut self,
        access: &TileAccess,
        axis: usize,
        extent: &Form,
        last: &Form,
        what: &str,
    ) {
        let room = extent.plus(-1, last).and_then(|f| f.plus(-1, &Form::constant(1)));
        if room.is_some_and(|f| self.known.proves(&f, &self.facts)) {
            return;
        }
        let text = format!(
            "axis {axis}: the last {what} is {}, which may reach the extent {}{}",
            self.known.describe(last),
            self.known.describe(extent),
            self.range_of(last)
        );
        self.report(
            access,
            text,
            "state the bound: `until n` with an `else` value, a `where` clause, an `if`, or a contract `in a..b`",
        );
    }

    /// The interval of a form in words, where it says more than the form.
    fn range_of(&self, form: &Form) -> String {
        if form.as_constant().is_some() {
            return String::new();
        }
        let i = self.known.interval(form);
        let end = |bound: Option<i128>| bound.map_or("unbounded".to_owned(), |b| b.to_string());
        format!(" (known range: {} to {})", end(i.lo), end(i.hi))
    }

    fn report(&mut self, access: &TileAccess, text: String, help: &str) {
        let name = self.kernel.name_of(access.storage);
        self.sink.push(
            Diagnostic::error(
                Code::E0401,
                format!("this access of `{}` cannot be proved to lie inside it", name),
            )
            .label(access.span, text)
            .secondary(self.kernel.declaration_of(access.storage), "declared here")
            .help(help),
        );
    }
}

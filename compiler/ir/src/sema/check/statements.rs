//! Statements without bindings.

use kernel_dsl::ast::{
    ArchPattern, Assign, Atom, Block, Else, Expr, ExprKind, For, ForOver, If, Index, IndexKind,
    InstanceKind, Let, Mma, Move, MoveKind, Pattern, RangeEnd, Role, Settle, Stmt, StmtKind,
    TileDecl, TileSpace, Unroll, View,
};
use kernel_dsl::diag::{Code, Diagnostic};

use super::{Checker, Known, Use};
use crate::sema::mistakes::{
    copy_dest, not_assignable, printf_mistake, smem_assigned, trace_mistake,
};
use crate::sema::warpgroup::{Entries, entries, not_an_atom};
use crate::sema::{not_built, smem, tensor};

impl<'a> Checker<'a, '_> {
    pub(super) fn block(&mut self, block: &'a Block) {
        self.nested(block.span, |s| {
            s.scoped(|s| {
                s.statements(block);
                s.no_value(block, "this block");
            });
        });
    }

    pub(super) fn statements(&mut self, block: &'a Block) {
        block.stmts.iter().for_each(|stmt| self.statement(stmt));
    }

    fn statement(&mut self, stmt: &'a Stmt) {
        if let Some((span, what)) = not_built::statement(stmt) {
            self.report.not_built(span, what);
            self.declare_refused(stmt);
            return;
        }
        match &stmt.kind {
            StmtKind::Const(c) => {
                if let Some(ty) = &c.ty {
                    self.const_type(&ty.dtype);
                }
                self.value(&c.value);
                self.declare(&c.name, Known::Const);
            }
            StmtKind::Let(binding) => self.binding(binding),
            StmtKind::View(view) => self.view(view),
            StmtKind::Tile(tile) => match tile.space {
                TileSpace::Frag => self.frag(tile),
                TileSpace::Smem => self.smem(tile),
                TileSpace::Tmem => self.smem(tile),
            },
            StmtKind::Move(mv) => self.transfer(mv, stmt),
            StmtKind::Assign(assign) => self.assign(assign),
            StmtKind::For(looped) => self.looped(looped),
            StmtKind::If(choice) => self.choice(choice),
            StmtKind::MatchArch(arms) => {
                for arm in arms {
                    self.pattern(&arm.pattern);
                    self.block(&arm.body);
                }
            }
            StmtKind::Advance(e) => self.word(e),
            StmtKind::Signal(signal) => {
                self.flag(&signal.flag);
                signal.add.iter().for_each(|add| self.value(add));
            }
            StmtKind::Await(wait) => {
                self.flag(&wait.flag);
                self.value(&wait.until);
            }
            StmtKind::Settle(settle) => self.settled(settle),
            StmtKind::Atom(atom) => self.atom(atom),
            StmtKind::Mma(mma) => self.product(mma),
            StmtKind::Commit(barrier) => barrier.iter().for_each(|barrier| self.index_of(barrier)),
            StmtKind::Role(role) => self.role(role),
            StmtKind::Sync(_) | StmtKind::GridWait | StmtKind::GridLaunch => {}
            StmtKind::Assert(condition, _) => self.value(condition),
            StmtKind::Printf(text, args) => {
                args.iter().for_each(|arg| self.value(arg));
                if let Some(diagnostic) = printf_mistake(text, args.len()) {
                    self.report.error(diagnostic);
                }
            }
            StmtKind::Expr(e) => self.call_statement(e),
            StmtKind::Pipeline(pipeline) => self.declare(&pipeline.name, Known::Value),
            StmtKind::Barrier(barrier) => self.declare(&barrier.name, Known::Value),
            StmtKind::Open(e) | StmtKind::Wait(e) | StmtKind::Release(e) => self.index_of(e),
            StmtKind::Trace(event) => {
                if let Some(diagnostic) = trace_mistake(event) {
                    self.report.error(diagnostic);
                }
            }
            StmtKind::Unsafe(block) => self.inline_ptx(&block.ptx),
            StmtKind::Publish(e) => self.all_slots(e),
        }
    }

    /// The index of a slot: `ld.full@t`.
    fn index_of(&mut self, e: &'a Expr) {
        let ExprKind::Ref(reference) = &e.kind else { return };
        for at in &reference.at {
            if let InstanceKind::Slot(index) | InstanceKind::Cta(index) = &at.kind {
                self.value(index);
            }
        }
    }

    fn role(&mut self, role: &'a Role) {
        if let ExprKind::Range(range) = &role.warps.kind {
            self.value(&range.start);
            match &range.end {
                RangeEnd::Exclusive(e) | RangeEnd::Inclusive(e) | RangeEnd::Length(e) => {
                    self.value(e);
                }
            }
        }
        role.registers.iter().for_each(|e| self.value(e));
        self.block(&role.body);
    }

    /// The names that a refused statement would have defined.
    fn declare_refused(&mut self, stmt: &'a Stmt) {
        let name = match &stmt.kind {
            StmtKind::Tile(tile) => &tile.name,
            StmtKind::Atom(atom) => &atom.name,
            _ => return,
        };
        self.declare(name, Known::Refused);
    }

    fn binding(&mut self, binding: &'a Let) {
        if let Some(ty) = &binding.ty {
            self.register_dtype(&ty.dtype);
            self.shape(ty, false);
        }
        match &binding.pattern {
            Pattern::Name(name) => {
                self.range_or_value(&binding.value);
                self.declare(name, Known::Value);
            }
            Pattern::Tuple(names, span) => {
                self.several(&binding.value, names.len(), *span);
                for name in names.iter().filter(|name| name.text != "_") {
                    self.declare(name, Known::Value);
                }
            }
        }
    }

    fn view(&mut self, view: &'a View) {
        let known = self.viewed(&view.source).unwrap_or(Known::Refused);
        view.sizes.iter().for_each(|(_, size)| self.value(size));
        let known = match known {
            Known::Buffer { .. } | Known::Smem { .. } | Known::Refused => known,
            Known::Const | Known::Value | Known::Frag { .. } | Known::Pack | Known::Atom => {
                Known::Refused
            }
        };
        self.declare(&view.name, known);
    }

    fn frag(&mut self, tile: &'a TileDecl) {
        for (span, what) in not_built::frag(tile) {
            self.report.not_built(span, what);
        }
        self.register_dtype(&tile.ty.dtype);
        self.shape(&tile.ty, false);
        tile.ring.iter().chain(&tile.init).for_each(|e| self.value(e));
        for entry in tile.spread.iter().flatten() {
            if !matches!(entry.key.text.as_str(), "warp" | "lane" | "vec") {
                self.report.error(
                    Diagnostic::error(
                        Code::E0206,
                        format!("nothing is spread along `{}`", entry.key.text),
                    )
                    .label(entry.key.span, "`warp`, `lane` or `vec`"),
                );
            }
            self.list(&entry.axis);
        }
        self.declare(&tile.name, Known::Frag { ringed: tile.ring.is_some() });
    }

    /// What a view relabels: of a ring all slots at once.
    fn viewed(&mut self, source: &'a Expr) -> Option<Known> {
        if let ExprKind::Ref(reference) = &source.kind
            && let Some(name) = reference.path.single()
            && let Some((known @ Known::Smem { .. }, _)) = self.lookup(&name.text)
        {
            if let Some(at) = reference.at.first() {
                self.report.not_built(at.span, "a view of one slot");
            }
            return Some(known);
        }
        self.buffer(source)
    }

    fn smem(&mut self, tile: &'a TileDecl) {
        for (span, what) in not_built::smem(tile) {
            self.report.not_built(span, what);
        }
        self.register_dtype(&tile.ty.dtype);
        self.shape(&tile.ty, false);
        tile.ring.iter().chain(&tile.align).for_each(|e| self.value(e));
        if let Some(mode) = &tile.swizzle
            && let Err(wrong) = smem::swizzle(mode)
        {
            self.report.error(wrong);
        }
        if let Some(init) = &tile.init {
            self.report.error(smem::initial_value(init));
        }
        self.declare(&tile.name, Known::Smem { ringed: tile.ring.is_some() });
    }

    fn transfer(&mut self, mv: &'a Move, stmt: &'a Stmt) {
        let known = match mv.kind {
            MoveKind::Load => "load",
            MoveKind::Store => "store",
            MoveKind::Prefetch if mv.op.is("prefetch.tma") => "prefetch.tma",
            MoveKind::Prefetch => "prefetch.l2",
            MoveKind::Copy if mv.op.is("copy.bulk") => "copy.bulk",
            MoveKind::Copy if mv.op.is("copy.tma") => "copy.tma",
            MoveKind::Copy if mv.op.is("copy.st_async") => "copy.st_async",
            MoveKind::Copy => "copy.async",
            MoveKind::Multimem => "multimem.store",
        };
        if !mv.op.is(known) {
            self.unknown_operation(&mv.op.text(), mv.op.span);
            return;
        }
        if let (MoveKind::Store | MoveKind::Prefetch, Some(absent)) = (mv.kind, &mv.absent) {
            self.report.error(
                Diagnostic::error(Code::E0206, format!("`else` with `{known}`"))
                    .label(absent.span, "absent elements are skipped")
                    .help("remove `else …`"),
            );
        }
        match mv.kind {
            MoveKind::Load => {
                self.load_source(&mv.source);
                mv.absent.iter().for_each(|absent| self.value(absent));
                match &mv.dest {
                    Some(dest) => self.assignable(dest),
                    None => self.no_dest(stmt, "load x -> w;"),
                }
            }
            MoveKind::Store => {
                self.value(&mv.source);
                match &mv.dest {
                    Some(dest) => self.store_dest(dest),
                    None => self.no_dest(stmt, "store value -> y;"),
                }
            }
            MoveKind::Prefetch => {
                if mv.op.is("prefetch.tma") {
                    self.boxed(&mv.source);
                } else {
                    self.prefetch_source(&mv.source);
                }
                if let Some(dest) = &mv.dest {
                    self.report.error(
                        Diagnostic::error(Code::E0206, "a prefetch goes to L2 only")
                            .label(dest.span, "remove this"),
                    );
                }
            }
            MoveKind::Copy => {
                mv.into.iter().for_each(|into| self.index_of(into));
                let from = if mv.op.is("copy.tma") {
                    self.boxed(&mv.source)
                } else if mv.op.is("copy.st_async") {
                    self.value(&mv.source);
                    None
                } else {
                    self.buffer(&mv.source)
                };
                let leaves = (mv.op.is("copy.tma") || mv.op.is("copy.bulk"))
                    && matches!(from, Some(Known::Smem { .. }));
                match &mv.dest {
                    Some(dest) if leaves => {
                        self.boxed(dest);
                    }
                    Some(dest) => self.shared_dest(dest),
                    None => self.no_dest(stmt, "copy.async x -> s;"),
                }
            }
            MoveKind::Multimem => {
                self.value(&mv.source);
                match &mv.dest {
                    Some(dest) => {
                        self.buffer(dest);
                    }
                    None => self.no_dest(stmt, "multimem.store value -> all@t[…];"),
                }
            }
        }
    }

    /// `x.tile(a, b)[i, j]`, or a slice.
    fn boxed(&mut self, e: &'a Expr) -> Option<Known> {
        let Some(tiling) = tensor::tiling(e) else {
            return self.buffer(e);
        };
        tiling.lengths.iter().for_each(|length| self.value(&length.value));
        self.indices(tiling.indices);
        if self.lookup(&tiling.name.text).is_none() {
            self.unknown(&tiling.name.text, tiling.name.span, &[]);
        }
        None
    }

    /// The destination of a copy.
    fn shared_dest(&mut self, dest: &'a Expr) {
        let known = self.buffer(dest);
        if let Some(Known::Buffer { .. }) = known {
            self.report.error(copy_dest(dest.span));
        }
    }

    /// What `settle` waits for.
    fn settled(&mut self, settle: &'a Settle) {
        settle.but.iter().for_each(|but| self.value(but));
        if let ExprKind::Ref(reference) = &settle.value.kind
            && let Some(name) = reference.path.single()
            && let Some((Known::Frag { .. }, _)) = self.lookup(&name.text)
        {
            self.used(&settle.value, Use::Value);
            return;
        }
        if settle.but.is_some() {
            self.all_slots(&settle.value);
        } else {
            self.buffer(&settle.value);
        }
    }

    /// A tile with all of its slots, or a buffer.
    fn all_slots(&mut self, e: &'a Expr) {
        if let ExprKind::Ref(reference) = &e.kind
            && let (Some(name), true) = (reference.path.single(), reference.at.is_empty())
            && let Some((Known::Smem { .. }, _)) = self.lookup(&name.text)
        {
            return;
        }
        self.buffer(e);
    }

    /// `atom NAME = wgmma(m = 64, …);`
    pub(super) fn atom(&mut self, atom: &'a Atom) {
        match entries(&atom.value) {
            Ok(Entries { form: [m, n, k, a, b, d], scale, group }) => {
                [m, n, k].into_iter().chain(group).for_each(|e| self.value(e));
                for e in [a, b, d].into_iter().chain(scale) {
                    match &e.kind {
                        ExprKind::Ref(reference) => match reference.path.single() {
                            Some(name) => self.register_dtype(name),
                            None => self.value(e),
                        },
                        _ => self.value(e),
                    }
                }
            }
            Err(wrong) => {
                self.report.error(wrong);
            }
        }
        self.declare(&atom.name, Known::Atom);
    }

    /// An operand of a product, or its elements and their scales.
    fn operand_of_product(&mut self, e: &'a Expr) {
        if let ExprKind::Tuple(parts) = &e.kind {
            parts.iter().for_each(|part| _ = self.buffer(part));
        } else {
            self.buffer(e);
        }
    }

    /// The same, or a tile in registers.
    fn left_operand(&mut self, e: &'a Expr) {
        if let ExprKind::Tuple(_) = &e.kind {
            self.operand_of_product(e);
            return;
        }
        let base = if let ExprKind::Index(base, _) = &e.kind { base } else { e };
        let named = match &base.kind {
            ExprKind::Ref(reference) => reference.path.single(),
            _ => None,
        };
        let known = named.and_then(|name| self.lookup(&name.text));
        if let Some((Known::Buffer { .. } | Known::Smem { .. } | Known::Refused, _)) = known {
            self.buffer(e);
        } else {
            self.value(e);
        }
    }

    /// `mma a * (b)^T -> acc via ATOM add cond;`
    fn product(&mut self, mma: &'a Mma) {
        self.left_operand(&mma.a);
        let right = match &mma.b.kind {
            ExprKind::Transpose(b) => b,
            _ => &mma.b,
        };
        self.operand_of_product(right);
        self.sums(&mma.acc);
        mma.add.iter().for_each(|add| self.value(add));
        let Some(name) = mma.via.single() else {
            self.unknown(&mma.via.text(), mma.via.span, &[]);
            return;
        };
        match self.lookup(&name.text) {
            Some((Known::Atom | Known::Refused, _)) => {}
            Some((
                Known::Const
                | Known::Value
                | Known::Frag { .. }
                | Known::Buffer { .. }
                | Known::Smem { .. }
                | Known::Pack,
                defined,
            )) => {
                self.report.error(not_an_atom(&name.text, name.span, defined));
            }
            None => self.unknown(&name.text, name.span, &[]),
        }
    }

    /// The sums of a product: a tile in registers, or in tensor memory.
    fn sums(&mut self, acc: &'a Expr) {
        let base = if let ExprKind::Index(base, _) = &acc.kind { base } else { acc };
        if let ExprKind::Ref(reference) = &base.kind
            && let Some(name) = reference.path.single()
            && let Some((Known::Smem { .. }, _)) = self.lookup(&name.text)
        {
            self.buffer(acc);
            return;
        }
        self.assignable(acc);
    }

    fn no_dest(&mut self, stmt: &Stmt, form: &str) {
        self.report.error(
            Diagnostic::error(Code::E0206, "a move without a destination")
                .label(stmt.span, "where does it go?")
                .help(format!("write `{form}`")),
        );
    }

    fn assign(&mut self, assign: &'a Assign) {
        self.assignable(&assign.target);
        self.value(&assign.value);
    }

    /// The target of `=`, or of a `load`.
    pub(super) fn assignable(&mut self, target: &'a Expr) {
        let reference = match &target.kind {
            ExprKind::Ref(reference) => reference,
            ExprKind::Index(base, _) => {
                self.used(base, Use::Any);
                self.report.not_built(target.span, "assignment to a part of a tile");
                return;
            }
            _ => {
                self.report.error(
                    Diagnostic::error(Code::E0210, "this cannot be assigned to")
                        .label(target.span, "not a tile that `frag` declares"),
                );
                return;
            }
        };
        let Some(name) = reference.path.single() else {
            self.used(target, Use::Any);
            return;
        };
        match self.lookup(&name.text) {
            Some((Known::Buffer { .. }, span)) => {
                self.report.error(
                    Diagnostic::error(Code::E0221, format!("`{}` is a buffer", name.text))
                        .label(target.span, "buffers are written by `store`")
                        .secondary(span, "declared here")
                        .help(format!("write `store value -> {};`", name.text)),
                );
            }
            Some((Known::Smem { .. }, span)) => {
                self.report.error(smem_assigned(&name.text, target.span, span));
            }
            Some((Known::Const | Known::Value | Known::Pack | Known::Atom, span)) => {
                self.report.error(not_assignable(&name.text, target.span, span));
            }
            Some((Known::Frag { .. } | Known::Refused, _)) | None => {
                self.used(target, Use::Value);
            }
        }
    }

    fn looped(&mut self, looped: &'a For) {
        match &looped.over {
            ForOver::Range(range, step) => {
                self.range_or_value(range);
                step.iter().for_each(|step| self.value(step));
            }
            ForOver::Tickets(counter, count) => {
                self.word(counter);
                self.value(count);
            }
        }
        if let Some(Unroll::By(by)) = &looped.unroll {
            self.value(by);
        }
        self.nested(looped.header_span, |s| {
            s.scoped(|s| {
                s.declare(&looped.var, Known::Value);
                s.block(&looped.body);
            });
        });
    }

    fn choice(&mut self, choice: &'a If) {
        match &choice.cond.kind {
            ExprKind::ArriveLast(arrive) => {
                self.word(&arrive.counter);
                self.value(&arrive.count);
            }
            _ => self.value(&choice.cond),
        }
        self.block(&choice.then);
        match &choice.otherwise {
            None => {}
            Some(Else::Block(block)) => self.block(block),
            Some(Else::If(inner)) => self.nested(inner.header_span, |s| s.choice(inner)),
        }
    }

    /// A word of a counter or an epoch; which of them is judged with the kernel.
    fn word(&mut self, e: &'a Expr) {
        self.buffer(e);
    }

    /// Words that a signal raises or a wait watches; which of them is judged with the kernel.
    fn flag(&mut self, e: &'a Expr) {
        let ExprKind::Index(base, indices) = &e.kind else {
            self.buffer(e);
            return;
        };
        let each = |index: &&Index| matches!(&index.kind, IndexKind::At(e, None) if matches!(e.kind, ExprKind::Each));
        for index in indices.iter().filter(|index| !each(index)) {
            self.indices(std::slice::from_ref(index));
        }
        self.buffer(base);
    }

    pub(super) fn pattern(&mut self, pattern: &'a ArchPattern) {
        match pattern {
            ArchPattern::Targets(names) => names.iter().for_each(|name| self.target(name)),
            ArchPattern::Any(_) => {}
        }
    }
}

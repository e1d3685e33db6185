//! Statements without a block: one rule and one function each.

use super::expr::{Build, Parts};
use super::message::Piece;
use super::{Pair, Parser, Rule, words};
use crate::ast::{
    Assign, Atom, Await, Barrier, BinaryOp, Const, Edge, Expr, ExprKind, Let, Mma, Move, MoveKind,
    Name, Path, Pattern, Pipeline, Settle, Signal, StmtKind, SyncTarget, TileDecl, TileSpace, View,
};
use crate::diag::{Code, Diagnostic};
use crate::source::Span;

type Builder = fn(&Build, Pair<'_, Rule>) -> Option<StmtKind>;

/// The rule of the statement that starts with a word, and what builds it.
fn rule_of(word: &str) -> (Rule, Builder) {
    match word {
        "const" => (Rule::const_stmt, |build, pair| Some(StmtKind::Const(build.constant(pair)))),
        "let" => (Rule::let_stmt, |build, pair| Some(build.let_stmt(pair))),
        "view" => (Rule::view_stmt, |build, pair| Some(build.view(pair))),
        "frag" | "smem" | "tmem" => (Rule::tile_stmt, |build, pair| Some(build.tile(pair))),
        "pipeline" => (Rule::pipeline_stmt, Build::pipeline),
        "barrier" => (Rule::barrier_stmt, |build, pair| Some(build.barrier(pair))),
        "atom" => (Rule::atom_stmt, |build, pair| Some(StmtKind::Atom(build.atom(pair)))),
        "load" => (Rule::load_stmt, |build, pair| Some(build.load(pair))),
        "store" => (Rule::store_stmt, |build, pair| Some(build.store(pair))),
        "copy" => (Rule::copy_stmt, |build, pair| {
            Some(build.other_move(pair, MoveKind::Copy, Rule::copy_op))
        }),
        "prefetch" => (Rule::prefetch_stmt, |build, pair| {
            Some(build.other_move(pair, MoveKind::Prefetch, Rule::prefetch_op))
        }),
        "multimem" => (Rule::multimem_stmt, |build, pair| {
            Some(build.other_move(pair, MoveKind::Multimem, Rule::multimem_op))
        }),
        "mma" => (Rule::mma_stmt, |build, pair| Some(build.mma(pair))),
        "open" => (Rule::open_stmt, |build, pair| Some(StmtKind::Open(build.only_operand(pair)))),
        "wait" => (Rule::wait_stmt, |build, pair| Some(StmtKind::Wait(build.only_operand(pair)))),
        "release" => {
            (Rule::release_stmt, |build, pair| Some(StmtKind::Release(build.only_operand(pair))))
        }
        "commit" => (Rule::commit_stmt, |build, pair| {
            let operand = Parts::of(pair).take(Rule::operand);
            Some(StmtKind::Commit(operand.map(|operand| build.operators(operand))))
        }),
        "settle" => (Rule::settle_stmt, |build, pair| {
            let mut parts = Parts::of(pair);
            let value = build.operand(&mut parts);
            Some(StmtKind::Settle(Settle { value, but: build.clause(&mut parts, Rule::but) }))
        }),
        "publish" => {
            (Rule::publish_stmt, |build, pair| Some(StmtKind::Publish(build.only_operand(pair))))
        }
        "sync" => (Rule::sync_stmt, |build, pair| {
            let mut parts = Parts::of(pair);
            Some(StmtKind::Sync(match parts.take(Rule::name) {
                Some(role) => SyncTarget::Role(build.name(&role)),
                None if parts.has(Rule::sync_cluster) => SyncTarget::Cluster,
                None => SyncTarget::All,
            }))
        }),
        "grid_wait" => (Rule::grid_wait_stmt, |_, _| Some(StmtKind::GridWait)),
        "grid_launch" => (Rule::grid_launch_stmt, |_, _| Some(StmtKind::GridLaunch)),
        "signal" => (Rule::signal_stmt, |build, pair| {
            let mut parts = Parts::of(pair);
            Some(StmtKind::Signal(Box::new(Signal {
                flag: build.operand(&mut parts),
                add: build.clause(&mut parts, Rule::add_by),
                order: build.order(&mut parts),
                scope: build.scope(&mut parts),
            })))
        }),
        "await" => (Rule::await_stmt, |build, pair| {
            let mut parts = Parts::of(pair);
            Some(StmtKind::Await(Box::new(Await {
                flag: build.operand(&mut parts),
                until: build.only_cond(parts.need(Rule::until)),
                order: build.order(&mut parts),
                scope: build.scope(&mut parts),
            })))
        }),
        "advance" => {
            (Rule::advance_stmt, |build, pair| Some(StmtKind::Advance(build.only_operand(pair))))
        }
        "assert" => (Rule::assert_stmt, |build, pair| {
            let mut parts = Parts::of(pair);
            let cond = build.cond(parts.need(Rule::cond));
            let message = parts.take(Rule::string).map(|text| build.text(&text));
            Some(StmtKind::Assert(cond, message))
        }),
        "printf" => (Rule::printf_stmt, |build, pair| {
            let mut parts = Parts::of(pair);
            let text = build.text(&parts.need(Rule::string));
            let args = parts.all(Rule::cond).into_iter().map(|arg| build.cond(arg)).collect();
            Some(StmtKind::Printf(text, args))
        }),
        "trace" => (Rule::trace_stmt, |build, pair| {
            Some(StmtKind::Trace(build.text(&Parts::of(pair).need(Rule::string))))
        }),
        _ => (Rule::expr_stmt, Build::expr_stmt),
    }
}

impl Parser<'_> {
    /// The statement of the tokens `lo..hi`, which hold no `;` at the end.
    pub(super) fn simple_kind(&mut self, lo: usize, hi: usize) -> Option<StmtKind> {
        let word = self.word(lo);
        let (rule, build) = rule_of(word);
        let what = match rule {
            Rule::expr_stmt => "statement".to_owned(),
            _ => format!("`{word}` statement"),
        };
        let end = if word == "pipeline" { "the end of the statement" } else { "`;`" };
        let piece = Piece { rule, what: &what, end, form: words::form_of(word) };
        self.piece(&piece, lo, hi, build).flatten()
    }
}

impl Build {
    pub(super) fn operand(&self, parts: &mut Parts<'_>) -> Expr {
        self.operators(parts.need(Rule::operand))
    }

    fn only_operand(&self, pair: Pair<'_, Rule>) -> Expr {
        self.operand(&mut Parts::of(pair))
    }

    pub(super) fn constant(&self, pair: Pair<'_, Rule>) -> Const {
        let mut parts = Parts::of(pair);
        Const {
            name: self.name(&parts.need(Rule::name)),
            ty: self.type_of(&mut parts),
            value: self.value(parts.need(Rule::value)),
        }
    }

    fn type_of(&self, parts: &mut Parts<'_>) -> Option<crate::ast::Type> {
        let pair = parts.take(Rule::type_of)?;
        Some(self.ty(Parts::of(pair).need(Rule::r#type)))
    }

    pub(super) fn atom(&self, pair: Pair<'_, Rule>) -> Atom {
        let mut parts = Parts::of(pair);
        let name = self.name(&parts.need(Rule::name));
        Atom { name, value: self.value(parts.need(Rule::value)) }
    }

    fn let_stmt(&self, pair: Pair<'_, Rule>) -> StmtKind {
        let mut parts = Parts::of(pair);
        let pattern = parts.need(Rule::pattern);
        let span = self.span(&pattern);
        let mut inner = Parts::of(pattern);
        let pattern = match inner.take(Rule::name) {
            Some(name) => Pattern::Name(self.name(&name)),
            None => Pattern::Tuple(self.names(&inner.all(Rule::binder)), span),
        };
        let ty = self.type_of(&mut parts);
        StmtKind::Let(Let { pattern, ty, value: self.value(parts.need(Rule::value)) })
    }

    fn view(&self, pair: Pair<'_, Rule>) -> StmtKind {
        let mut parts = Parts::of(pair);
        let name = self.name(&parts.need(Rule::name));
        let source = self.operand(&mut parts);
        let spec = self.text(&parts.need(Rule::string));
        let size = |pair| {
            let mut parts = Parts::of(pair);
            (self.name(&parts.need(Rule::name)), self.cond(parts.need(Rule::cond)))
        };
        let sizes = parts.take(Rule::view_sizes).map(|list| Parts::of(list).all(Rule::view_size));
        let sizes = sizes.unwrap_or_default().into_iter().map(size).collect();
        StmtKind::View(View { name, source, spec, sizes })
    }

    fn tile(&self, pair: Pair<'_, Rule>) -> StmtKind {
        let mut parts = Parts::of(pair);
        let space = match parts.need(Rule::tile_space).as_str() {
            "frag" => TileSpace::Frag,
            "smem" => TileSpace::Smem,
            _ => TileSpace::Tmem,
        };
        let name = self.name(&parts.need(Rule::name));
        let ty = self.ty(parts.need(Rule::r#type));
        let mut attr = |rule, what| {
            let pair = self.once(&mut parts, rule, what);
            pair.map(|pair| self.only_cond(pair))
        };
        let swizzle = attr(Rule::swizzle, "`swizzle`");
        let align = attr(Rule::align, "`align`");
        let ring = attr(Rule::ring, "`ring`");
        let every = attr(Rule::every, "`every`");
        let stored = attr(Rule::stored, "`stored`");
        let spread = self.once(&mut parts, Rule::spread, "`spread`").map(|pair| self.spread(pair));
        let via = self.once(&mut parts, Rule::via, "`via`");
        let via = via.map(|pair| self.path(&Parts::of(pair).need(Rule::path)));
        let init = parts.take(Rule::tile_init);
        let init = init.map(|pair| self.value(Parts::of(pair).need(Rule::value)));
        let tile =
            TileDecl { space, name, ty, swizzle, align, ring, every, stored, spread, via, init };
        StmtKind::Tile(Box::new(tile))
    }

    fn pipeline(&self, pair: Pair<'_, Rule>) -> Option<StmtKind> {
        let mut parts = Parts::of(pair);
        let name = self.name(&parts.need(Rule::name));
        let stages = self.once(&mut parts, Rule::stages_entry, "`stages`");
        let full = self.once(&mut parts, Rule::full_entry, "`full`");
        let empty = self.once(&mut parts, Rule::empty_entry, "`empty`");
        let (Some(stages), Some(full), Some(empty)) = (stages, full, empty) else {
            let diagnostic =
                Diagnostic::error(Code::E0012, format!("pipeline `{}` lacks an entry", name.text))
                    .label(name.span, "needs `stages`, `full` and `empty`")
                    .help(format!("write `{}`", words::form_of("pipeline").unwrap_or_default()));
            self.report(diagnostic);
            return None;
        };
        let edge = |pair| self.edge(Parts::of(pair).need(Rule::edge));
        let pipeline =
            Pipeline { name, stages: self.only_cond(stages), full: edge(full), empty: edge(empty) };
        Some(StmtKind::Pipeline(Box::new(pipeline)))
    }

    fn barrier(&self, pair: Pair<'_, Rule>) -> StmtKind {
        let mut parts = Parts::of(pair);
        let name = self.name(&parts.need(Rule::name));
        StmtKind::Barrier(Barrier { name, edge: self.edge(parts.need(Rule::edge)) })
    }

    fn edge(&self, pair: Pair<'_, Rule>) -> Edge {
        let span = self.span(&pair);
        let mut parts = Parts::of(pair);
        let bytes = parts.take(Rule::cond).map(|bytes| self.cond(bytes));
        let ring = self.once(&mut parts, Rule::ring, "`ring`").map(|pair| self.only_cond(pair));
        let scope = self.scope(&mut parts);
        if let Some(second) = parts.take(Rule::scope) {
            self.repeated(self.span(&second), "`scope`");
        }
        let mut roles = |rule| -> Vec<Name> {
            let list = self.once(&mut parts, rule, "list of roles");
            list.map_or(Vec::new(), |pair| self.names(&Parts::of(pair).all(Rule::name)))
        };
        let from = roles(Rule::from_roles);
        let to = roles(Rule::to_roles);
        Edge { bytes, ring, scope, from, to, span }
    }

    fn load(&self, pair: Pair<'_, Rule>) -> StmtKind {
        let mut parts = Parts::of(pair);
        let op = self.keyword(&parts.need(Rule::kw_load));
        let source = self.operand(&mut parts);
        self.finish_move(parts, MoveKind::Load, op, source)
    }

    fn store(&self, pair: Pair<'_, Rule>) -> StmtKind {
        let mut parts = Parts::of(pair);
        let op = self.keyword(&parts.need(Rule::kw_store));
        let source = self.cond(parts.need(Rule::cond));
        self.finish_move(parts, MoveKind::Store, op, source)
    }

    fn other_move(&self, pair: Pair<'_, Rule>, kind: MoveKind, op: Rule) -> StmtKind {
        let mut parts = Parts::of(pair);
        let op = self.path(&parts.need(op));
        let source = match parts.take(Rule::operand) {
            Some(operand) => self.operators(operand),
            None => self.cond(parts.need(Rule::cond)),
        };
        self.finish_move(parts, kind, op, source)
    }

    fn keyword(&self, pair: &Pair<'_, Rule>) -> Path {
        self.path(pair)
    }

    fn finish_move(
        &self,
        mut parts: Parts<'_>,
        kind: MoveKind,
        op: Path,
        source: Expr,
    ) -> StmtKind {
        let dest = parts.take(Rule::move_dest).map(|pair| self.only_operand(pair));
        let into = self.once(&mut parts, Rule::into, "`into`").map(|pair| self.only_operand(pair));
        let via = self.once(&mut parts, Rule::via, "`via`");
        let via = via.map(|pair| self.path(&Parts::of(pair).need(Rule::path)));
        let absent = self.absent(&mut parts);
        let policy = self.policy(&mut parts);
        StmtKind::Move(Box::new(Move { kind, op, source, absent, dest, into, via, policy }))
    }

    fn mma(&self, pair: Pair<'_, Rule>) -> StmtKind {
        let mut parts = Parts::of(pair);
        let a = self.operand(&mut parts);
        let b = self.operand(&mut parts);
        let acc = self.only_operand(parts.need(Rule::move_dest));
        let via = self.path(&Parts::of(parts.need(Rule::via)).need(Rule::path));
        let add = self.clause(&mut parts, Rule::add_if);
        StmtKind::Mma(Box::new(Mma { a, b, acc, via, add }))
    }

    fn expr_stmt(&self, pair: Pair<'_, Rule>) -> Option<StmtKind> {
        let mut parts = Parts::of(pair);
        let value = self.value(parts.need(Rule::value));
        let Some(assign) = parts.take(Rule::assign) else {
            if !matches!(value.kind, ExprKind::Call(_)) {
                self.idle(value.span);
                return None;
            }
            return Some(StmtKind::Expr(value));
        };
        if !is_place(&value) {
            let diagnostic = Diagnostic::error(Code::E0010, "this cannot be assigned to")
                .label(value.span, "neither a name nor an element of one")
                .help("the left side is a tile, a scalar, or a slice of a tile");
            self.report(diagnostic);
            return None;
        }
        let mut parts = Parts::of(assign);
        let op = match parts.need(Rule::assign_op).as_str() {
            "+=" => Some(BinaryOp::Add),
            "-=" => Some(BinaryOp::Sub),
            "*=" => Some(BinaryOp::Mul),
            "/=" => Some(BinaryOp::Div),
            "%=" => Some(BinaryOp::Rem),
            "&=" => Some(BinaryOp::BitAnd),
            "|=" => Some(BinaryOp::BitOr),
            "^=" => Some(BinaryOp::BitXor),
            "<<=" => Some(BinaryOp::Shl),
            ">>=" => Some(BinaryOp::Shr),
            _ => None,
        };
        let right = self.value(parts.need(Rule::value));
        Some(StmtKind::Assign(Assign { target: value, op, value: right }))
    }

    /// A value that goes nowhere.
    fn idle(&self, span: Span) {
        let diagnostic = Diagnostic::error(Code::E0010, "expected a statement, found a value")
            .label(span, "this value goes nowhere")
            .help("bind it with `let`, store it with `store VALUE -> PLACE;`, or assign it");
        self.report(diagnostic);
    }
}

/// Whether an expression names something that can be changed.
fn is_place(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Ref(_) => true,
        ExprKind::Index(base, _) => is_place(base),
        ExprKind::Int(_)
        | ExprKind::Float(_)
        | ExprKind::Inf
        | ExprKind::Bool(_)
        | ExprKind::Str(_)
        | ExprKind::Each
        | ExprKind::Tuple(_)
        | ExprKind::Range(_)
        | ExprKind::Field(..)
        | ExprKind::Call(_)
        | ExprKind::Transpose(_)
        | ExprKind::Unary(..)
        | ExprKind::Binary(..)
        | ExprKind::Conditional(..)
        | ExprKind::Load(_)
        | ExprKind::ArriveLast(_)
        | ExprKind::Spread(_)
        | ExprKind::Layout(..)
        | ExprKind::MatchArch(_) => false,
    }
}

//! The mutants of a file: for each place that an operator fits, the text with that one change.

use kernel_dsl::ast::{
    Block, Edge, Else, Expr, ExprKind, File, If, ItemKind, Order, Scope, Stmt, StmtKind,
};
use kernel_dsl::source::{SourceMap, Span};

use crate::operator::Operator;

/// A file with one change.
#[derive(Debug, Clone)]
pub struct Mutant {
    /// What was done.
    pub operator: Operator,
    /// Where, in the file as it was.
    pub span: Span,
    /// What stood there.
    pub before: String,
    /// The whole text with the change. Lines keep their numbers.
    pub text: String,
}

/// All mutants of a file, in the order of their places.
pub fn mutants(sources: &SourceMap, file: &File) -> Vec<Mutant> {
    let mut walk = Walk { sources, found: Vec::new() };
    for item in &file.items {
        match &item.kind {
            ItemKind::Kernel(kernel) => walk.block(&kernel.body),
            ItemKind::Fn(function) => walk.block(&function.body),
            ItemKind::Target(_) | ItemKind::Import(_) | ItemKind::Const(_) | ItemKind::Atom(_) => {}
        }
    }
    walk.found.sort_by_key(|mutant| (mutant.span.lo, mutant.span.hi));
    walk.found
}

struct Walk<'s> {
    sources: &'s SourceMap,
    found: Vec<Mutant>,
}

impl Walk<'_> {
    fn block(&mut self, block: &Block) {
        for (at, stmt) in block.stmts.iter().enumerate() {
            self.stmt(stmt);
            if let (Some(_), Some(next)) = (synchronisation(stmt), block.stmts.get(at + 1))
                && !is_declaration(next)
            {
                self.swap(stmt, next);
            }
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        if let Some(what) = synchronisation(stmt) {
            self.replace(Operator::Remove(what), stmt.span, String::new());
        }
        match &stmt.kind {
            StmtKind::For(each) => self.block(&each.body),
            StmtKind::If(choice) => self.choice(choice),
            StmtKind::MatchArch(arms) => arms.iter().for_each(|arm| self.block(&arm.body)),
            StmtKind::Role(role) => self.block(&role.body),
            StmtKind::Tile(tile) => self.fewer(tile.ring.as_ref()),
            StmtKind::Pipeline(pipeline) => {
                self.fewer(Some(&pipeline.stages));
                self.edge(&pipeline.full);
                self.edge(&pipeline.empty);
            }
            StmtKind::Barrier(barrier) => self.edge(&barrier.edge),
            StmtKind::Settle(settle) => {
                let text = match &settle.but {
                    Some(but) => {
                        let value = format!("({}) + 1", self.sources.snippet(but.span));
                        return self.replace(Operator::SettleLess, but.span, value);
                    }
                    None => format!("settle {} but 1;", self.sources.snippet(settle.value.span)),
                };
                self.replace(Operator::SettleLess, stmt.span, text);
            }
            StmtKind::Signal(signal) => self.order_and_scope(stmt, signal.order, signal.scope),
            StmtKind::Await(wait) => {
                let less = format!("({}) - 1", self.sources.snippet(wait.until.span));
                self.replace(Operator::AwaitLess, wait.until.span, less);
                self.order_and_scope(stmt, wait.order, wait.scope);
            }
            StmtKind::Const(_)
            | StmtKind::Let(_)
            | StmtKind::View(_)
            | StmtKind::Atom(_)
            | StmtKind::Move(_)
            | StmtKind::Assign(_)
            | StmtKind::Mma(_)
            | StmtKind::Open(_)
            | StmtKind::Wait(_)
            | StmtKind::Release(_)
            | StmtKind::Commit(_)
            | StmtKind::Publish(_)
            | StmtKind::Sync(_)
            | StmtKind::GridWait
            | StmtKind::GridLaunch
            | StmtKind::Advance(_)
            | StmtKind::Assert(..)
            | StmtKind::Printf(..)
            | StmtKind::Trace(_)
            | StmtKind::Unsafe(_)
            | StmtKind::Expr(_) => {}
        }
    }

    fn choice(&mut self, choice: &If) {
        if let ExprKind::ArriveLast(arrival) = &choice.cond.kind {
            let less = format!("({}) - 1", self.sources.snippet(arrival.count.span));
            self.replace(Operator::FewerArrivals, arrival.count.span, less);
        }
        self.block(&choice.then);
        match &choice.otherwise {
            Some(Else::Block(block)) => self.block(block),
            Some(Else::If(other)) => self.choice(other),
            None => {}
        }
    }

    fn edge(&mut self, edge: &Edge) {
        self.fewer(edge.ring.as_ref());
        if let Some(bytes) = &edge.bytes {
            let less = format!("({}) - 16", self.sources.snippet(bytes.span));
            self.replace(Operator::FewerBytes, bytes.span, less);
        }
    }

    fn fewer(&mut self, slots: Option<&Expr>) {
        let Some(slots) = slots else { return };
        let less = format!("({}) - 1", self.sources.snippet(slots.span));
        self.replace(Operator::FewerSlots, slots.span, less);
    }

    /// The words `order …` and `scope …` stand behind everything else of their statement.
    fn order_and_scope(&mut self, stmt: &Stmt, order: Option<Order>, scope: Option<Scope>) {
        if let Some(order) = order.filter(|order| *order != Order::Relaxed) {
            self.replace_word(Operator::WeakenOrder, stmt, "order", order.word(), "relaxed");
        }
        let narrower = match scope {
            Some(Scope::Sys) => Some("gpu"),
            Some(Scope::Gpu | Scope::Cluster) => Some("cta"),
            Some(Scope::Cta) | None => None,
        };
        if let (Some(scope), Some(narrower)) = (scope, narrower) {
            self.replace_word(Operator::NarrowScope, stmt, "scope", scope.word(), narrower);
        }
    }

    fn replace_word(
        &mut self,
        operator: Operator,
        stmt: &Stmt,
        key: &str,
        before: &str,
        after: &str,
    ) {
        let text = self.sources.snippet(stmt.span);
        let Some(key_at) = text.rfind(key) else { return };
        let Some(at) = text[key_at..].find(before).map(|at| key_at + at) else { return };
        let lo = stmt.span.lo + at as u32;
        let span = Span::new(stmt.span.file, lo, lo + before.len() as u32);
        self.replace(operator, span, after.to_owned());
    }

    fn swap(&mut self, first: &Stmt, second: &Stmt) {
        let [a, b] = [first, second].map(|stmt| self.sources.snippet(stmt.span).to_owned());
        let whole = first.span.to(second.span);
        let between = Span::new(whole.file, first.span.hi, second.span.lo);
        let text = format!("{b}{}{a}", self.sources.snippet(between));
        self.replace(Operator::SwapAfter, whole, text);
    }

    /// One mutant. What is left of the lines that are taken away are their ends.
    fn replace(&mut self, operator: Operator, span: Span, mut with: String) {
        let text = self.sources.text(span.file);
        let before = self.sources.snippet(span).to_owned();
        let lines = |text: &str| text.matches('\n').count();
        let missing = lines(&before).saturating_sub(lines(&with));
        with.push_str(&"\n".repeat(missing));
        let (head, tail) = (&text[..span.lo as usize], &text[span.hi as usize..]);
        let text = format!("{head}{with}{tail}");
        self.found.push(Mutant { operator, span, before, text });
    }
}

/// True for what only names something.
fn is_declaration(stmt: &Stmt) -> bool {
    match &stmt.kind {
        StmtKind::Const(_)
        | StmtKind::View(_)
        | StmtKind::Tile(_)
        | StmtKind::Pipeline(_)
        | StmtKind::Barrier(_)
        | StmtKind::Atom(_) => true,
        StmtKind::Let(_)
        | StmtKind::Move(_)
        | StmtKind::Assign(_)
        | StmtKind::Mma(_)
        | StmtKind::For(_)
        | StmtKind::If(_)
        | StmtKind::MatchArch(_)
        | StmtKind::Role(_)
        | StmtKind::Open(_)
        | StmtKind::Wait(_)
        | StmtKind::Release(_)
        | StmtKind::Commit(_)
        | StmtKind::Settle(_)
        | StmtKind::Publish(_)
        | StmtKind::Sync(_)
        | StmtKind::GridWait
        | StmtKind::GridLaunch
        | StmtKind::Signal(_)
        | StmtKind::Await(_)
        | StmtKind::Advance(_)
        | StmtKind::Assert(..)
        | StmtKind::Printf(..)
        | StmtKind::Trace(_)
        | StmtKind::Unsafe(_)
        | StmtKind::Expr(_) => false,
    }
}

/// The word of a statement that orders something, or says that something is over.
fn synchronisation(stmt: &Stmt) -> Option<&'static str> {
    match &stmt.kind {
        StmtKind::Open(_) => Some("open"),
        StmtKind::Wait(_) => Some("wait"),
        StmtKind::Release(_) => Some("release"),
        StmtKind::Commit(_) => Some("commit"),
        StmtKind::Settle(_) => Some("settle"),
        StmtKind::Publish(_) => Some("publish"),
        StmtKind::Sync(_) => Some("sync"),
        StmtKind::GridWait => Some("grid_wait"),
        StmtKind::Signal(_) => Some("signal"),
        StmtKind::Await(_) => Some("await"),
        StmtKind::Advance(_) => Some("advance"),
        // Starting the next kernel late is never wrong.
        StmtKind::GridLaunch
        | StmtKind::Const(_)
        | StmtKind::Let(_)
        | StmtKind::View(_)
        | StmtKind::Tile(_)
        | StmtKind::Pipeline(_)
        | StmtKind::Barrier(_)
        | StmtKind::Atom(_)
        | StmtKind::Move(_)
        | StmtKind::Assign(_)
        | StmtKind::Mma(_)
        | StmtKind::For(_)
        | StmtKind::If(_)
        | StmtKind::MatchArch(_)
        | StmtKind::Role(_)
        | StmtKind::Assert(..)
        | StmtKind::Printf(..)
        | StmtKind::Trace(_)
        | StmtKind::Unsafe(_)
        | StmtKind::Expr(_) => None,
    }
}

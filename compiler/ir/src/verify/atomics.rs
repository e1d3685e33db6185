//! Which CTA came first is another one in every run, and no result may depend on it.
//!
//! Guarantees (E0171) that nothing which is computed from the old value of an atomic, or done where such a value says so,
//! reaches memory, a word, or another atomic: it may choose what is prefetched, be printed and asserted; and that
//! nothing does which the rounds of a work list leave behind in a CTA. Guarantees (E0173) that what a round of a work
//! list leaves in memory does not depend on the CTA that does it, nor on the rounds that this CTA did before. The value
//! that an element has when all atomics are done is the same in every order, since they commute; who may read it, E0116
//! says. A tile in shared memory counts as filled anew by the first store or copy of a round; whether that fills all of
//! it is left to the emulator.

use std::collections::BTreeMap;

use kernel_dsl::diag::{Code, Diagnostic, Sink};
use kernel_dsl::source::Span;

use crate::expand::each_use;
use crate::kernel::{
    Kernel, Op, Outgoing, SmemId, Stmt, StmtKind, Storage, Tensor, ValueId, VarId, Warpgroup,
};

pub(super) fn check(kernel: &Kernel, sink: &mut Sink) {
    if !depends_on_order(&kernel.body) {
        return;
    }
    let mut walk = Walk {
        values: BTreeMap::new(),
        vars: BTreeMap::new(),
        tiles: BTreeMap::new(),
        list: None,
        is_divided: false,
        reported: Vec::new(),
        is_again: false,
        sink,
    };
    walk.block(&kernel.body, Taint::default());
}

/// True where some CTA may find what another one does not.
fn depends_on_order(stmts: &[Stmt]) -> bool {
    stmts.iter().any(|stmt| match &stmt.kind {
        StmtKind::Def { op, .. } => matches!(op, Op::Atomic { .. }),
        StmtKind::For { tickets: Some(_), .. } => true,
        other => other.bodies().into_iter().any(depends_on_order),
    })
}

/// What something depends on, with the place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Taint {
    /// What an atomic finds, or which rounds of a work list a CTA did.
    order: Option<Span>,
    /// Which CTA it is.
    cta: Option<Span>,
}

impl Taint {
    fn or(self, other: Taint) -> Taint {
        Taint { order: self.order.or(other.order), cta: self.cta.or(other.cta) }
    }
}

struct Walk<'a> {
    values: BTreeMap<ValueId, Taint>,
    vars: BTreeMap<(VarId, u32), Taint>,
    tiles: BTreeMap<SmemId, Taint>,
    /// The work list around this place.
    list: Option<Span>,
    /// In a loop or a choice inside of the work list, or of the kernel.
    is_divided: bool,
    reported: Vec<Span>,
    /// A walk of a loop's body that says nothing.
    is_again: bool,
    sink: &'a mut Sink,
}

impl Walk<'_> {
    fn block(&mut self, stmts: &[Stmt], chosen: Taint) {
        for stmt in stmts {
            self.stmt(stmt, chosen);
        }
    }

    fn divided(&mut self, stmts: &[Stmt], chosen: Taint) {
        let outer = std::mem::replace(&mut self.is_divided, true);
        self.block(stmts, chosen);
        self.is_divided = outer;
    }

    fn stmt(&mut self, stmt: &Stmt, chosen: Taint) {
        let mut source = chosen;
        each_use(&stmt.kind, |value| {
            source = source.or(self.values.get(&value).copied().unwrap_or_default());
        });
        match &stmt.kind {
            StmtKind::Def { results, op } => self.define(stmt, results, op, source),
            StmtKind::SetVar { var, slot, .. } => self.set_var((*var, *slot), source),
            StmtKind::Store { access, .. } => match access.storage.tile() {
                Some((tile, _)) if source.order.is_none() => self.fill(tile, source),
                Some(_) => self.reaches(source, access.span, "this goes to shared memory"),
                None => self.reaches(source, access.span, "this goes to memory"),
            },
            StmtKind::CopyAsync { dest, .. } => match dest.storage.tile() {
                Some((tile, _)) if source.order.is_none() => self.fill(tile, source),
                Some(_) | None => self.reaches(source, dest.span, "this goes to shared memory"),
            },
            StmtKind::Tensor(Tensor::Load { var, slot, .. }) => {
                self.set_var((*var, *slot), source);
            }
            StmtKind::Warpgroup(Warpgroup::Mma(mma)) => {
                for access in mma.reads() {
                    source = source.or(self.content(access.storage));
                }
                if let Some(left) = mma.left_value() {
                    source = source.or(self.values.get(&left).copied().unwrap_or_default());
                }
                let known = self.vars.entry((mma.var, mma.slot)).or_default();
                *known = known.or(source);
            }
            StmtKind::Outgoing(Outgoing::Copy { source: from, dest, .. }) => {
                self.reaches(
                    source.or(self.content(from.storage)),
                    dest.span,
                    "this goes to memory",
                );
            }
            StmtKind::Advance { .. }
            | StmtKind::Signal(_)
            | StmtKind::Await(_)
            | StmtKind::SyncCluster
            | StmtKind::Tensor(Tensor::Mma(_) | Tensor::Settle { .. })
            | StmtKind::Pipe(_) => self.reaches(source, stmt.span, "others see this"),
            StmtKind::Warpgroup(Warpgroup::Commit | Warpgroup::Settle { .. })
            | StmtKind::Prefetch { .. }
            | StmtKind::EmptyGroup
            | StmtKind::Outgoing(_)
            | StmtKind::Settle { .. }
            | StmtKind::Sync
            | StmtKind::SyncRole
            | StmtKind::GridWait
            | StmtKind::GridLaunch
            | StmtKind::Assert { .. }
            | StmtKind::Trace { .. }
            | StmtKind::Printf { .. } => {}
            StmtKind::For { tickets: Some(word), body, .. } => self.work_list(word.span, body),
            StmtKind::For { tickets: None, body, .. } => {
                // Within a walk that says nothing, the one around it comes back until nothing is new.
                while !self.is_again {
                    let before = (self.vars.clone(), self.tiles.clone());
                    self.is_again = true;
                    self.divided(body, source);
                    self.is_again = false;
                    if before == (self.vars.clone(), self.tiles.clone()) {
                        break;
                    }
                }
                self.divided(body, source);
            }
            StmtKind::Role { body, .. } => self.block(body, source),
            StmtKind::If { then_body, else_body, .. } => {
                self.divided(then_body, source);
                self.divided(else_body, source);
            }
        }
    }

    fn define(&mut self, stmt: &Stmt, results: &[ValueId], op: &Op, source: Taint) {
        let mut of_results = source;
        match op {
            Op::CtaIndex(_) | Op::ClusterIndex(_) => of_results.cta = Some(stmt.span),
            Op::ReadVar { var, slot } => {
                of_results = source.or(self.vars.get(&(*var, *slot)).copied().unwrap_or_default());
            }
            Op::Load { access, .. } => of_results = source.or(self.content(access.storage)),
            Op::Atomic { access, .. } => {
                self.reaches(source, stmt.span, "this changes memory");
                of_results.order = Some(access.span);
            }
            Op::ArriveLast { word, .. } => self.reaches(source, word.span, "this counts CTAs"),
            _ => {}
        }
        if of_results != Taint::default() {
            self.values.extend(results.iter().map(|&result| (result, of_results)));
        }
    }

    /// What a tile in shared memory depends on.
    fn content(&self, storage: Storage) -> Taint {
        let tile = storage.tile().and_then(|(tile, _)| self.tiles.get(&tile));
        tile.copied().unwrap_or_default()
    }

    fn set_var(&mut self, place: (VarId, u32), source: Taint) {
        let known = self.vars.entry(place).or_default();
        *known = if self.is_divided { known.or(source) } else { source };
    }

    fn fill(&mut self, tile: SmemId, source: Taint) {
        let known = self.tiles.entry(tile).or_default();
        *known = if self.is_divided && self.list.is_none() { known.or(source) } else { source };
    }

    /// What a round leaves in registers and in shared memory, the next one finds, or not.
    fn work_list(&mut self, at: Span, body: &[Stmt]) {
        let (mut vars, mut tiles) = (Vec::new(), Vec::new());
        left_by(body, &mut vars, &mut tiles);
        let leave = |walk: &mut Self, left: Taint| {
            for &var in &vars {
                let known = walk.vars.entry(var).or_default();
                *known = known.or(left);
            }
            for &tile in &tiles {
                let known = walk.tiles.entry(tile).or_default();
                *known = known.or(left);
            }
        };
        leave(self, Taint { order: None, cta: Some(at) });
        let outer = (self.list.replace(at), std::mem::replace(&mut self.is_divided, false));
        self.block(body, Taint::default());
        (self.list, self.is_divided) = outer;
        leave(self, Taint { order: Some(at), cta: Some(at) });
    }

    fn reaches(&mut self, source: Taint, at: Span, what: &str) {
        if self.is_again || self.reported.contains(&at) {
            return;
        }
        let found = match (source.order, source.cta.filter(|_| self.list.is_some())) {
            (Some(order), _) => {
                Diagnostic::error(Code::E0171, "a result depends on which CTA came first")
                    .label(at, what)
                    .secondary(order, "it depends on what is found here")
                    .help(
                        "use the value that is there when all are done: `if arrive.last c[i] of n { … load … }`; what an \
                         atomic finds may be prefetched by, printed and asserted",
                    )
            }
            (None, Some(cta)) => {
                Diagnostic::error(Code::E0173, "a round of a work list depends on the CTA that does it")
                    .label(at, what)
                    .secondary(cta, "it depends on this, which is not the same in all CTAs")
                    .help("let a round depend on its number alone, and begin sums in it")
            }
            (None, None) => return,
        };
        self.reported.push(at);
        self.sink.push(found);
    }
}

/// Tiles that statements assign, in registers and in shared memory.
fn left_by(stmts: &[Stmt], vars: &mut Vec<(VarId, u32)>, tiles: &mut Vec<SmemId>) {
    for stmt in stmts {
        match &stmt.kind {
            StmtKind::SetVar { var, slot, .. }
            | StmtKind::Tensor(Tensor::Load { var, slot, .. }) => vars.push((*var, *slot)),
            StmtKind::Warpgroup(Warpgroup::Mma(mma)) => vars.push((mma.var, mma.slot)),
            StmtKind::Store { access, .. } | StmtKind::CopyAsync { dest: access, .. } => {
                tiles.extend(access.storage.tile().map(|(tile, _)| tile));
            }
            _ => {}
        }
        for body in stmt.kind.bodies() {
            left_by(body, vars, tiles);
        }
    }
}

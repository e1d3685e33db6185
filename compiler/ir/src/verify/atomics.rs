//! Which CTA came first is another one in every run, and no result may depend on it.
//!
//! Guarantees (E0171) that nothing which is computed from the old value of an atomic, or done where such a value says so,
//! reaches memory, a word, or another atomic: it may choose what is prefetched, be printed and asserted; that
//! nothing does which the rounds of a work list leave behind in a CTA; and that what the last one to arrive does, with
//! whatever it computed before, does not depend on which of those it is that arrive at its word, nor on the round of a
//! loop in which it arrives. Guarantees (E0173) that
//! what a round of a work list leaves in memory does not depend on the CTA that does it, nor on the rounds that this CTA
//! did before, and (E0115) that all CTAs find the same number of rounds. The value that an element has when all atomics
//! are done is the same in every order, since those of one operation commute and E0116 keeps others apart; who may read
//! it, E0116 says. A tile in shared memory or in tensor memory is filled anew by a store or copy of all of it, a slot of
//! a ring where the same number says which; anything else adds to what it depends on.

mod said;
mod taint;

use std::collections::{BTreeMap, BTreeSet};

use kernel_dsl::diag::{Code, Diagnostic, Sink};
use kernel_dsl::source::Span;

use crate::expand::each_use;
use crate::kernel::{
    AxisIndex, ClusterAxis, Extent, Kernel, Literal, Op, Outgoing, PipeOp, SmemId, Start, Stmt,
    StmtKind, Storage, Tensor, TileAccess, ValueId, VarId, Warpgroup, Word,
};
use said::Said;
use taint::{Last, Slot, State, Taint};

pub(super) fn check(kernel: &Kernel, sink: &mut Sink) {
    if !depends_on_order(&kernel.body) {
        return;
    }
    let mut left = Left::default();
    left.by(&kernel.body);
    let mut walk = Walk {
        kernel,
        values: BTreeMap::new(),
        numbers: BTreeMap::new(),
        arrivals: BTreeSet::new(),
        said: Said::new(kernel),
        loops: Vec::new(),
        state: State::default(),
        others: left.of_others,
        list: None,
        reported: Vec::new(),
        is_again: false,
        sink,
    };
    walk.block(&kernel.body, Taint::default());
}

/// True where some CTA may find what another one does not.
fn depends_on_order(stmts: &[Stmt]) -> bool {
    stmts.iter().any(|stmt| match &stmt.kind {
        StmtKind::Def { op, .. } => matches!(op, Op::Atomic { .. } | Op::ArriveLast { .. }),
        StmtKind::For { tickets: Some(_), .. } => true,
        other => other.bodies().into_iter().any(depends_on_order),
    })
}

struct Walk<'a> {
    kernel: &'a Kernel,
    values: BTreeMap<ValueId, Taint>,
    /// Constants.
    numbers: BTreeMap<ValueId, i64>,
    /// Which say whether the CTA is the last one.
    arrivals: BTreeSet<ValueId>,
    /// What the indices of their words say.
    said: Said<'a>,
    /// Loops around this place, each with its variable, but for work lists.
    loops: Vec<(ValueId, Span)>,
    state: State,
    /// Tiles that other CTAs, or other roles, fill as well.
    others: BTreeSet<SmemId>,
    /// The work list around this place.
    list: Option<Span>,
    reported: Vec<Span>,
    /// A walk that says nothing.
    is_again: bool,
    sink: &'a mut Sink,
}

impl<'a> Walk<'a> {
    fn block(&mut self, stmts: &[Stmt], chosen: Taint) {
        let is_role = |stmt: &Stmt| matches!(stmt.kind, StmtKind::Role { .. });
        let mut rest = stmts;
        while let Some(first) = rest.first() {
            let roles = rest.iter().take_while(|stmt| is_role(stmt)).count();
            if roles == 0 {
                self.stmt(first, chosen);
            } else {
                self.region(&rest[..roles], chosen);
            }
            rest = &rest[roles.max(1)..];
        }
    }

    /// Walks what may be done again, or beside itself, until nothing new is found; then what it finds is said.
    fn settle(&mut self, mut walk: impl FnMut(&mut Self)) {
        let outer = std::mem::replace(&mut self.is_again, true);
        loop {
            let before = self.state.clone();
            walk(self);
            self.state.join(&before);
            if self.state == before {
                break;
            }
        }
        self.is_again = outer;
        if !outer {
            let before = self.state.clone();
            walk(self);
            self.state.join(&before);
        }
    }

    /// Roles, each of which finds what the others leave.
    fn region(&mut self, roles: &[Stmt], chosen: Taint) {
        let fills = |role: &Stmt| {
            let mut left = Left::default();
            left.by(std::slice::from_ref(role));
            left.tiles
        };
        let fills: Vec<Vec<SmemId>> = roles.iter().map(fills).collect();
        self.settle(|walk| {
            for (number, role) in roles.iter().enumerate() {
                let outer = walk.others.clone();
                let beside = fills.iter().enumerate().filter(|(other, _)| *other != number);
                walk.others.extend(beside.flat_map(|(_, tiles)| tiles));
                let before = walk.state.clone();
                walk.stmt(role, chosen);
                walk.state.join(&before);
                walk.others = outer;
            }
        });
    }

    fn stmt(&mut self, stmt: &Stmt, chosen: Taint) {
        let mut used = Taint::default();
        each_use(&stmt.kind, |value| used = used.or(self.value(value)));
        let mut source = chosen.or(used);
        match &stmt.kind {
            StmtKind::Def { results, op } => self.define(stmt, results, op, (used, source)),
            StmtKind::SetVar { var, slot, .. } => self.state.set_var((*var, *slot), source),
            StmtKind::Store { access, .. } if access.storage.tile().is_none() => {
                self.reaches(source, access.span, "this goes to memory");
            }
            StmtKind::Store { access, .. } | StmtKind::CopyAsync { dest: access, .. } => {
                if source.order.is_some() {
                    self.reaches(source, access.span, "this goes to shared memory");
                } else {
                    self.fill(access, source, false);
                }
            }
            StmtKind::Tensor(Tensor::Store { access, .. }) => {
                if source.order.is_some() {
                    self.reaches(source, access.span, "this goes to tensor memory");
                } else {
                    self.fill(access, source, false);
                }
            }
            StmtKind::Tensor(Tensor::Load { var, slot, access }) => {
                let source = source.or(self.content(access.storage));
                self.state.set_var((*var, *slot), source);
            }
            StmtKind::Tensor(Tensor::Mma(mma)) => {
                self.reaches(source, stmt.span, "others see this");
                for access in mma.reads() {
                    source = source.or(self.content(access.storage));
                }
                self.fill(&mma.acc, source, mma.start != Start::Zero);
            }
            StmtKind::Warpgroup(Warpgroup::Mma(mma)) => {
                for access in mma.reads() {
                    source = source.or(self.content(access.storage));
                }
                if let Some(left) = mma.left_value() {
                    source = source.or(self.value(left));
                }
                let place = (mma.var, mma.slot);
                if mma.start != Start::Zero {
                    source = source.or(self.state.var(place));
                }
                self.state.set_var(place, source);
            }
            StmtKind::Outgoing(Outgoing::Copy { source: from, dest, .. }) => {
                self.reaches(
                    source.or(self.content(from.storage)),
                    dest.span,
                    "this goes to memory",
                );
            }
            StmtKind::Pipe(PipeOp::Copy { dest, everywhere, .. }) => {
                self.reaches(source, stmt.span, "others see this");
                self.fill(dest, source, *everywhere);
            }
            StmtKind::Pipe(PipeOp::Send { dest, .. }) => {
                self.reaches(source, stmt.span, "others see this");
                self.fill(dest, source, true);
            }
            StmtKind::Advance { .. }
            | StmtKind::Signal(_)
            | StmtKind::Await(_)
            | StmtKind::SyncCluster
            | StmtKind::Tensor(Tensor::Settle { .. })
            | StmtKind::Pipe(
                PipeOp::Open { .. }
                | PipeOp::Wait { .. }
                | PipeOp::Release { .. }
                | PipeOp::Commit { .. },
            ) => self.reaches(source, stmt.span, "others see this"),
            StmtKind::Warpgroup(Warpgroup::Commit | Warpgroup::Settle { .. })
            | StmtKind::Prefetch { .. }
            | StmtKind::EmptyGroup
            | StmtKind::Outgoing(
                Outgoing::EmptyGroup | Outgoing::Settle { .. } | Outgoing::Publish { .. },
            )
            | StmtKind::Settle { .. }
            | StmtKind::Sync
            | StmtKind::SyncRole
            | StmtKind::GridWait
            | StmtKind::GridLaunch
            | StmtKind::Assert { .. }
            | StmtKind::Trace { .. }
            | StmtKind::Printf { .. } => {}
            StmtKind::For { var, end, tickets: Some(word), body, .. } => {
                self.same_length(word, self.value(*end));
                let unsaid = !self.said.of(*var);
                let round = Taint { round: Some(word.span), unsaid, ..Taint::default() };
                self.values.insert(*var, round);
                self.work_list(word.span, body);
            }
            StmtKind::For { tickets: None, body, var, .. } => {
                self.values.insert(*var, used);
                self.loops.push((*var, stmt.span));
                self.settle(|walk| walk.block(body, source));
                self.loops.pop();
            }
            StmtKind::Role { body, .. } => self.block(body, source),
            StmtKind::If { cond, then_body, else_body } => {
                if self.arrivals.contains(cond) {
                    // Those who arrive have in common what has chosen that they do.
                    let (order, last) = (source.order, source.last);
                    source = Taint { order, last, ..used };
                }
                let before = self.state.clone();
                self.block(then_body, source);
                let then_state = std::mem::replace(&mut self.state, before);
                self.block(else_body, source);
                self.state.join(&then_state);
            }
        }
    }

    /// A value depends on what it is computed from; where it is computed says nothing of it.
    fn define(
        &mut self,
        stmt: &Stmt,
        results: &[ValueId],
        op: &Op,
        (used, source): (Taint, Taint),
    ) {
        let mut of_results = used;
        let whose = |axis: usize| (self.kernel.launch.grid[axis] > 1).then_some(stmt.span);
        match op {
            Op::CtaIndex(axis) | Op::ClusterIndex(ClusterAxis::Along(axis)) => {
                of_results.ctas[usize::from(*axis)] = whose(usize::from(*axis));
                of_results.unsaid = u64::MAX;
            }
            Op::ClusterIndex(ClusterAxis::Rank) => {
                of_results.ctas = [0, 1, 2].map(whose);
                of_results.unsaid = u64::MAX;
            }
            Op::ReadVar { var, slot } => of_results = used.or(self.state.var((*var, *slot))),
            Op::Load { access, .. } => of_results = used.or(self.content(access.storage)),
            Op::Atomic { access, .. } => {
                self.reaches(source, stmt.span, "this changes memory");
                of_results.order = Some(access.span);
            }
            Op::ArriveLast { word, count } => {
                self.reaches(source, word.span, "this counts CTAs");
                self.arrivals.extend(results);
                if let (true, Some(&result)) = (*count > 1, results.first()) {
                    self.rounds_apart(result, word);
                    let last = Last { at: word.span, arrivals: self.said.bit(result) };
                    of_results = of_results.or(Taint { last: Some(last), ..Taint::default() });
                }
            }
            Op::Const(Literal::Int(number)) => {
                self.numbers.extend(results.iter().map(|&result| (result, *number)));
            }
            Op::Const(_)
            | Op::ScalarParam(_)
            | Op::Unary { .. }
            | Op::Binary { .. }
            | Op::Compare { .. }
            | Op::Select { .. }
            | Op::Fma { .. }
            | Op::Inline { .. }
            | Op::Convert { .. }
            | Op::Iota
            | Op::Splat { .. }
            | Op::Expand { .. }
            | Op::Reduce { .. }
            | Op::Argmax { .. }
            | Op::Contract { .. }
            | Op::Mma { .. }
            | Op::Relayout { .. }
            | Op::Slice { .. }
            | Op::Scan { .. }
            | Op::Concat { .. } => {}
        }
        for &result in results {
            let mut taint = of_results;
            if taint.unsaid != 0 {
                taint.unsaid &= !self.said.of(result);
            }
            self.values.insert(result, taint);
        }
    }

    /// Rounds of a loop count in words of their own: of one word, the last to arrive may be in any of them.
    fn rounds_apart(&mut self, result: ValueId, word: &Word) {
        let mut loops = self.loops.iter();
        let Some(&(_, at)) = loops.find(|(var, _)| !self.said.is_of_round(result, *var)) else {
            return;
        };
        if self.is_again || self.reported.contains(&word.span) {
            return;
        }
        self.reported.push(word.span);
        self.sink.push(
            Diagnostic::error(Code::E0171, "an arrival in a loop whose rounds share a word")
                .label(word.span, "the last to arrive may be in any round")
                .secondary(at, "each round of this loop arrives")
                .help(
                    "let each round have a word of its own, `c[k]`, or arrive once behind the loop",
                ),
        );
    }

    fn value(&self, value: ValueId) -> Taint {
        self.values.get(&value).copied().unwrap_or_default()
    }

    /// Which slot of how many.
    fn slot(&self, tile: SmemId, slot: Option<ValueId>) -> (Slot, u32) {
        let ring = self.kernel.smem[tile].slots;
        let number = |value: ValueId| match self.numbers.get(&value) {
            Some(number) => Slot::Number(number.rem_euclid(i64::from(ring.max(1)))),
            None => Slot::Value(value),
        };
        let slot = if ring <= 1 { Slot::Number(0) } else { slot.map_or(Slot::Number(0), number) };
        (slot, ring)
    }

    /// What a tile in shared memory or in tensor memory depends on.
    fn content(&self, storage: Storage) -> Taint {
        let Some((tile, slot)) = storage.tile() else { return Taint::default() };
        self.state.content(tile, self.slot(tile, slot).0)
    }

    /// Fills what is accessed of a tile; what was there stays where this may leave some of it, or `adds` to it.
    fn fill(&mut self, access: &TileAccess, source: Taint, adds: bool) {
        let Some((tile, slot)) = access.storage.tile() else { return };
        let is_own = access.storage.cta().is_none() && !self.others.contains(&tile);
        let whole = !adds && is_own && covers(access, &self.kernel.smem[tile].shape);
        self.state.fill(tile, self.slot(tile, slot), source, whole);
    }

    /// Each CTA must find the same number of rounds.
    fn same_length(&mut self, word: &Word, length: Taint) {
        let Some(at) = length.order.or(length.cta()).or(length.last.map(|last| last.at)) else {
            return;
        };
        if !self.is_again {
            self.sink.push(
                Diagnostic::error(
                    Code::E0115,
                    "a work list whose number of rounds may be another one in another CTA",
                )
                .label(word.span, "tickets are taken here")
                .secondary(at, "the number depends on this")
                .help("the word starts again at zero where all CTAs count to the same number: take it from a scalar, or from data that all CTAs read"),
            );
        }
    }

    /// What a round leaves in registers and in shared memory, the next one finds, or not.
    fn work_list(&mut self, at: Span, body: &[Stmt]) {
        let mut left = Left::default();
        left.by(body);
        self.state.leave(&left.vars, &left.tiles, Taint::of_cta(at));
        let outer = self.list.replace(at);
        self.block(body, Taint::default());
        self.list = outer;
        let left_over = Taint { order: Some(at), ..Taint::of_cta(at) };
        self.state.leave(&left.vars, &left.tiles, left_over);
    }

    fn reaches(&mut self, source: Taint, at: Span, what: &str) {
        if self.is_again || self.reported.contains(&at) {
            return;
        }
        let found = if let Some(order) = source.order {
            Diagnostic::error(Code::E0171, "a result depends on which CTA came first")
                .label(at, what)
                .secondary(order, "it depends on what is found here")
                .help(
                    "use the value that is there when all are done: `if arrive.last c[i] of n { … load … }`; what an \
                     atomic finds may be prefetched by, printed and asserted",
                )
        } else if let Some((last, whose)) = source.of_last() {
            Diagnostic::error(Code::E0171, "a result depends on which CTA came last")
                .label(at, what)
                .secondary(last, "any of them may be the last one here")
                .secondary(whose, "and this is another thing in each")
                .help("let the last one do what any of them would do: compute it from memory, and from what the index of the word says")
        } else if let Some(cta) = source.cta().filter(|_| self.list.is_some()) {
            Diagnostic::error(Code::E0173, "a round of a work list depends on the CTA that does it")
                .label(at, what)
                .secondary(cta, "it depends on this, which is not the same in all CTAs")
                .help("let a round depend on its number alone, begin sums in it, and fill tiles of shared memory whole by one statement")
        } else {
            return;
        };
        self.reported.push(at);
        self.sink.push(found);
    }
}

/// True where an access surely comes to every element of a slot of this shape.
fn covers(access: &TileAccess, shape: &[u32]) -> bool {
    let elements = |extents: &mut dyn Iterator<Item = u32>| extents.map(u64::from).product::<u64>();
    let mut view = access.axes.iter().map(|axis| match axis.extent {
        Extent::Const(extent) => extent,
        Extent::Scalar(_) => 0,
    });
    if elements(&mut view) != elements(&mut shape.iter().copied()) {
        return false;
    }
    let index = access.index.iter().filter(|index| !matches!(index, AxisIndex::New));
    access.axes.iter().zip(index).all(|(axis, index)| {
        let Extent::Const(extent) = axis.extent else { return false };
        match index {
            AxisIndex::At(_) => extent == 1,
            AxisIndex::Range { len, until, .. } => *len >= extent && until.is_none(),
            AxisIndex::Gather(_) | AxisIndex::Along(_) | AxisIndex::New => false,
        }
    })
}

/// Tiles that statements assign, in registers and in memory of the CTA.
#[derive(Default)]
struct Left {
    vars: Vec<(VarId, u32)>,
    tiles: Vec<SmemId>,
    /// Of those, the ones that are filled in other CTAs.
    of_others: BTreeSet<SmemId>,
}

impl Left {
    fn by(&mut self, stmts: &[Stmt]) {
        for stmt in stmts {
            match &stmt.kind {
                StmtKind::SetVar { var, slot, .. }
                | StmtKind::Tensor(Tensor::Load { var, slot, .. }) => self.vars.push((*var, *slot)),
                StmtKind::Warpgroup(Warpgroup::Mma(mma)) => self.vars.push((mma.var, mma.slot)),
                StmtKind::Store { access, .. } | StmtKind::CopyAsync { dest: access, .. } => {
                    self.tile(access, false);
                }
                StmtKind::Pipe(PipeOp::Copy { dest, everywhere, .. }) => {
                    self.tile(dest, *everywhere);
                }
                StmtKind::Pipe(PipeOp::Send { dest, .. }) => self.tile(dest, true),
                StmtKind::Tensor(Tensor::Mma(mma)) => self.tile(&mma.acc, false),
                StmtKind::Tensor(Tensor::Store { access, .. }) => self.tile(access, false),
                StmtKind::Def { .. }
                | StmtKind::Prefetch { .. }
                | StmtKind::Advance { .. }
                | StmtKind::EmptyGroup
                | StmtKind::Outgoing(_)
                | StmtKind::Settle { .. }
                | StmtKind::Warpgroup(Warpgroup::Commit | Warpgroup::Settle { .. })
                | StmtKind::Tensor(Tensor::Settle { .. })
                | StmtKind::Sync
                | StmtKind::Signal(_)
                | StmtKind::Await(_)
                | StmtKind::SyncCluster
                | StmtKind::SyncRole
                | StmtKind::Pipe(
                    PipeOp::Open { .. }
                    | PipeOp::Wait { .. }
                    | PipeOp::Release { .. }
                    | PipeOp::Commit { .. },
                )
                | StmtKind::Role { .. }
                | StmtKind::For { .. }
                | StmtKind::If { .. }
                | StmtKind::GridWait
                | StmtKind::GridLaunch
                | StmtKind::Assert { .. }
                | StmtKind::Trace { .. }
                | StmtKind::Printf { .. } => {}
            }
            for body in stmt.kind.bodies() {
                self.by(body);
            }
        }
    }

    fn tile(&mut self, access: &TileAccess, of_others: bool) {
        let Some((tile, _)) = access.storage.tile() else { return };
        self.tiles.push(tile);
        if of_others || access.storage.cta().is_some() {
            self.of_others.insert(tile);
        }
    }
}

//! R5, R10: shared memory is touched in an order that `sync` makes.
//!
//! The statements between two `sync`s are one interval. Assumes structured, uniform control flow and forms
//! of ring slots and slice starts as [`Knowledge`] has them. Guarantees that no two overlapping accesses by
//! different threads, one of them a write, share an interval on any path: over both arms of a choice, over
//! the back edges of loops, and past loops that run zero times. Two accesses are apart when their slots or
//! their slices provably are; and one thread touches its own elements without `sync` where both accesses
//! are spread alike. Roles run beside each other: what two of them touch, one of them writing, is apart, and `sync`
//! stands between them and what all threads did before or do after. What an asynchronous copy fills is touched only after a `settle` and then a `sync`.
//! What a product of a warpgroup reads, in shared memory or in registers, is written, and its sums are used, only after a
//! `settle` of its group.

mod groups;
mod landing;
mod outgoing;
mod overlap;
mod products;
mod roles;
mod state;
mod tmem;

use std::collections::{BTreeMap, BTreeSet};

use kernel_dsl::diag::{Code, Diagnostic, Sink};
use kernel_dsl::source::Span;

use super::scalars::{Facts, Form, Knowledge, Symbol};
use crate::distribution::Distribution;
use crate::kernel::{
    Kernel, Leaving, Op, SmemId, Stmt, StmtKind, Storage, TileAccess, ValueId, VarId, defined_in,
};
use crate::smem_plan::over_budget;
use groups::Numbers;
pub(crate) use groups::derive;
use landing::BackEdge;
use overlap::Judge;
use roles::Region;
use state::{Kind, State, Touch};

/// First rounds of a loop that are walked one by one, at most.
const MAX_FIRST_ROUNDS: u32 = 9;
/// Statements in loops that are walked, at most: each level of nesting multiplies them.
const MAX_VISITS: u32 = 100_000;
/// Comparisons of two accesses, at most.
const MAX_WORK: u64 = 8_000_000;

pub(super) fn check(kernel: &Kernel, sink: &mut Sink) {
    if kernel.smem.is_empty() {
        return;
    }
    if let Some(found) = over_budget(kernel, 0) {
        sink.push(found);
    }
    let mut walk = Walk::new(kernel, sink, None);
    walk.block(&kernel.body);
    if walk.visits > 0 {
        walk.report_idle();
        walk.report_products();
        walk.leave_nothing();
    }
    walk.report_other_uses();
}

/// The groups that each `settle` may leave in flight.
fn settle_numbers(kernel: &Kernel) -> Numbers {
    let mut quiet = Sink::new();
    let mut walk = Walk::new(kernel, &mut quiet, Some(Numbers::default()));
    walk.block(&kernel.body);
    walk.numbers.unwrap_or_default()
}

struct Walk<'a> {
    kernel: &'a Kernel,
    known: Knowledge<'a>,
    facts: Facts,
    /// Variables of loops that are in one of their first rounds, with their values there.
    first_rounds: Vec<(Symbol, Form)>,
    state: State,
    /// The roles that run beside each other here.
    region: Region,
    /// Tiles that CTAs of the cluster send to.
    inboxes: BTreeSet<SmemId>,
    /// What copies out of shared memory touch.
    leaving: Leaving,
    /// Pairs of places that have been reported.
    reported: BTreeSet<(Span, Span)>,
    /// Each `settle`, and whether some round has found a copy for it.
    settles: BTreeMap<(Span, SmemId), bool>,
    /// The same of each `settle` of a buffer.
    idle: BTreeMap<Span, bool>,
    /// Each `settle` of products, and whether some round has found one for it.
    sums_settled: BTreeMap<(Span, VarId), bool>,
    /// Values that are read from tiles which are assigned to.
    read_from: BTreeMap<ValueId, (VarId, u32)>,
    /// Where the numbers of `settle` are found rather than checked.
    numbers: Option<Numbers>,
    /// Loops around the place.
    loops: Vec<Span>,
    /// Statements in loops that may still be walked.
    visits: u32,
    /// Comparisons of two accesses that may still be made.
    work: u64,
    sink: &'a mut Sink,
}

impl<'a> Walk<'a> {
    fn new(kernel: &'a Kernel, sink: &'a mut Sink, numbers: Option<Numbers>) -> Walk<'a> {
        Walk {
            kernel,
            known: Knowledge::new(kernel),
            facts: Facts::new(),
            first_rounds: Vec::new(),
            state: State::default(),
            region: Region::default(),
            inboxes: super::pipes::inboxes(kernel).into_iter().map(|(tile, _)| tile).collect(),
            leaving: Leaving::of(kernel),
            reported: BTreeSet::new(),
            settles: BTreeMap::new(),
            idle: BTreeMap::new(),
            sums_settled: BTreeMap::new(),
            read_from: BTreeMap::new(),
            numbers,
            loops: Vec::new(),
            visits: MAX_VISITS,
            work: MAX_WORK,
            sink,
        }
    }

    fn block(&mut self, stmts: &[Stmt]) {
        let mark = self.region.mark();
        self.statements(stmts);
        self.region.let_go(&mark);
    }

    fn statements(&mut self, stmts: &[Stmt]) {
        for stmt in stmts {
            if self.visits == 0 {
                return;
            }
            if !self.loops.is_empty() {
                self.visits -= 1;
                if self.visits == 0 {
                    self.too_many(stmt.span);
                    return;
                }
            }
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
        if !matches!(stmt.kind, StmtKind::Role { .. }) {
            self.end_region();
        }
        match &stmt.kind {
            StmtKind::Def { results, op } => {
                if let (Op::Load { access, .. }, Some(&result)) = (op, results.first()) {
                    let spread = &self.kernel.values[result].distribution;
                    self.touch(access, Kind::Read, Some(spread));
                }
                if let Op::ReadVar { var, slot } = op {
                    self.use_sums(stmt.span, *var, *slot, "read");
                }
                // All threads meet, or all of the role, and one of them counts.
                if let Op::ArriveLast { .. } | Op::Atomic { .. } = op {
                    self.state.sync();
                }
                results.iter().for_each(|&value| self.make_value(stmt.span, value, op));
                self.known.define(results, op, &self.facts);
            }
            StmtKind::SetVar { var, slot, .. } => {
                self.use_sums(stmt.span, *var, *slot, "assigned");
                self.assign_left(stmt.span, *var, *slot);
            }
            StmtKind::Warpgroup(op) => self.warpgroup(stmt, op),
            StmtKind::Tensor(op) => self.tensor(op),
            StmtKind::Store { value, access, .. } => {
                let spread = &self.kernel.values[*value].distribution;
                let touch = self.touch(access, Kind::Write, Some(spread));
                self.written(touch);
            }
            StmtKind::CopyAsync { dest, .. } => {
                let touch = self.touch(dest, Kind::Copy, None);
                self.written(touch);
            }
            StmtKind::Outgoing(op) => self.outgoing(stmt, op),
            StmtKind::EmptyGroup => self.state.close_group(),
            StmtKind::Settle { storage, but, pending } => {
                self.settle(stmt, *storage, *but, *pending);
            }
            StmtKind::Sync | StmtKind::SyncRole | StmtKind::Await(_) => self.state.sync(),
            StmtKind::SyncCluster => {
                self.meet_cluster(stmt.span);
                self.state.sync_cluster();
            }
            StmtKind::Pipe(op) => self.pipe(op, stmt.span),
            StmtKind::Role { role, body } => self.role(*role, body),
            StmtKind::For { var, start, end, tickets: Some(_), body, .. } => {
                self.loops.push(stmt.span);
                self.work_list(stmt.span, (*var, *start, *end), body);
                self.loops.pop();
            }
            StmtKind::For { var, start, end, step, tickets: None, body } => {
                let in_flight = !self.state.products.is_empty() && products::uses_vars(body);
                if in_flight || state::touches(body) {
                    self.loops.push(stmt.span);
                    let header = (*var, *start, *end, *step);
                    self.rounds(stmt.span, header, body);
                    self.loops.pop();
                    self.note_waits(header, body);
                }
            }
            StmtKind::If { cond, then_body, else_body } => {
                let decided = self.decided(*cond);
                let before = self.state.clone();
                if decided != Some(false) {
                    self.under(self.known.path_facts(*cond, true), then_body);
                }
                if decided != Some(true) {
                    let other = std::mem::replace(&mut self.state, before);
                    self.under(self.known.path_facts(*cond, false), else_body);
                    if decided.is_none() {
                        self.charge(stmt.span, self.state.len(), other.len());
                        self.state.join(other);
                    }
                }
            }
            StmtKind::Prefetch { .. }
            | StmtKind::Advance { .. }
            | StmtKind::Signal(_)
            | StmtKind::GridWait
            | StmtKind::GridLaunch
            | StmtKind::Assert { .. }
            | StmtKind::Trace { .. }
            | StmtKind::Printf { .. } => {}
        }
    }

    /// Whether a bool is the same wherever this place is reached.
    fn decided(&self, cond: ValueId) -> Option<bool> {
        let never = |truth: bool| {
            self.known.path_facts(cond, truth).iter().any(|fact| {
                let mut fact = fact.clone();
                for (symbol, start) in self.first_rounds.iter().rev() {
                    let Some(&factor) = fact.terms.get(symbol) else { continue };
                    fact.terms.remove(symbol);
                    match fact.plus(factor, start) {
                        Some(known) => fact = known,
                        None => return false,
                    }
                }
                let below = Form::constant(-1).plus(-1, &fact);
                below.is_some_and(|below| self.known.proves(&below, &self.facts))
            })
        };
        match self.known.decided(cond) {
            None if never(true) => Some(false),
            None if never(false) => Some(true),
            known => known,
        }
    }

    /// As many rounds as the largest ring has slots one by one, with the variable known; then rounds of any
    /// number until nothing new comes over the back edge.
    fn rounds(
        &mut self,
        span: Span,
        (var, start, end, step): (ValueId, ValueId, ValueId, u32),
        body: &[Stmt],
    ) {
        let first = self.known.form(start);
        let length = self.known.form(end).plus(-1, &first);
        let trips = length
            .as_ref()
            .and_then(Form::as_constant)
            .map(|n| u32::try_from(n.max(0)).unwrap_or(u32::MAX).div_ceil(step.max(1)));
        let runs = length
            .and_then(|f| f.plus(-1, &Form::constant(1)))
            .is_some_and(|length| self.known.proves(&length, &self.facts));
        let facts = self.known.bind_loop(var, start, end, step);
        let own = defined_in(body);
        let slots = self.kernel.smem.iter().map(|tile| tile.slots).max().unwrap_or(1);
        let most = (slots + 1).min(MAX_FIRST_ROUNDS);
        let before = self.state.clone();
        let mut after = State::default();
        for round in 0..trips.map_or(most, |trips| trips.min(most)) {
            if self.visits == 0 {
                break;
            }
            if round > 0 {
                self.charge(span, self.state.len(), self.state.len());
                self.state.next_round(BackEdge { known: &self.known, var, step, most, own: &own });
            }
            let value = first.plus(i128::from(round) * i128::from(step), &Form::constant(1));
            self.first_rounds.extend(value.map(|value| (Symbol::Value(var), value)));
            let depth = self.first_rounds.len();
            self.under(facts.clone(), body);
            self.first_rounds.truncate(depth.saturating_sub(1));
            self.charge(span, self.state.len(), after.len());
            after.join(self.state.clone());
        }
        if trips.is_none_or(|trips| trips > most) {
            // Each round of this loop adds to what the next one meets, and ages are bounded: it ends.
            let mut entry = self.state.clone();
            entry.next_round(BackEdge { known: &self.known, var, step, most, own: &own });
            let mut facts = facts.clone();
            let behind = first.plus(i128::from(most) * i128::from(step), &Form::constant(1));
            let later = behind.and_then(|b| Form::symbol(Symbol::Value(var)).plus(-1, &b));
            facts.extend(later);
            loop {
                self.state = entry.clone();
                self.under(facts.clone(), body);
                self.charge(span, self.state.len(), after.len() + self.state.len());
                self.charge(span, entry.len(), entry.len() + self.state.len());
                if self.visits == 0 {
                    break;
                }
                after.join(self.state.clone());
                let mut next = self.state.clone();
                next.next_round(BackEdge { known: &self.known, var, step, most, own: &own });
                next.join(entry.clone());
                if next == entry {
                    break;
                }
                entry = next;
            }
        }
        if !runs {
            after.join(before);
        }
        self.state = after;
    }

    /// Rounds that each begin with a meeting, as does the end; which numbers a CTA has is not known.
    fn work_list(
        &mut self,
        span: Span,
        (var, start, end): (ValueId, ValueId, ValueId),
        body: &[Stmt],
    ) {
        let facts = self.known.bind_loop(var, start, end, 1);
        let mut own = defined_in(body);
        own.insert(var);
        let mut entry = self.state.clone();
        loop {
            self.state = entry.clone();
            self.state.sync();
            self.under(facts.clone(), body);
            self.charge(span, self.state.len(), self.state.len());
            self.charge(span, entry.len(), entry.len() + self.state.len());
            let mut next = self.state.clone();
            next.next_round(BackEdge { known: &self.known, var, step: 1, most: 1, own: &own });
            next.join(entry.clone());
            if next == entry || self.visits == 0 {
                break;
            }
            entry = next;
        }
        self.state = entry;
        self.state.sync();
    }

    /// Counts comparisons of so many accesses with so many others. When they are too many, nothing more is walked.
    fn charge(&mut self, span: Span, some: usize, others: usize) {
        let work = u64::try_from(some.saturating_mul(others)).unwrap_or(u64::MAX);
        self.work = self.work.saturating_sub(work);
        if self.work == 0 && self.visits > 0 {
            self.visits = 0;
            self.too_many(span);
        }
    }

    fn too_many(&mut self, span: Span) {
        let found = match self.loops.first() {
            Some(&outermost) => {
                Diagnostic::error(Code::E0219, "loops around shared memory are nested too deep")
                    .label(
                        outermost,
                        "the rounds of this loop and those in it are too many to follow",
                    )
                    .help("nest fewer loops, or unroll the innermost ones")
            }
            None => {
                Diagnostic::error(Code::E0219, "too many accesses of shared memory in one kernel")
                    .label(span, "those so far are too many to compare")
                    .help("put `sync;` between, or split the kernel")
            }
        };
        self.sink.push(found);
    }

    fn judge(&self) -> Judge<'_> {
        Judge {
            kernel: self.kernel,
            known: &self.known,
            facts: &self.facts,
            first_rounds: &self.first_rounds,
        }
    }

    fn touch(
        &mut self,
        access: &TileAccess,
        kind: Kind,
        spread: Option<&Distribution>,
    ) -> Option<Touch> {
        let (tile, slot) = access.storage.tile()?;
        // The pass over pipelines proves that these are loads behind a wait for all that is written.
        if self.inboxes.contains(&tile) {
            return None;
        }
        let known = &self.known;
        let mut touch = Touch::new(access, (tile, slot), kind, spread, known);
        touch.guards = self.region.guards_of(self.kernel, &touch);
        self.meet_tensor(&touch);
        self.meet(&touch);
        self.beside(&touch);
        self.state.add(touch.clone());
        Some(touch)
    }

    /// Reports what an access may not meet.
    fn meet(&mut self, touch: &Touch) {
        self.charge(touch.span, self.state.len(), 1);
        let judge = self.judge();
        // One thread reads behind what it has written itself, and so do its copies of what it has published.
        let reads_behind =
            touch.kind == Kind::Read && !touch.product && self.region.is_one_thread(self.kernel);
        let mut earlier = self.state.touches.iter().filter(|_| !reads_behind);
        let clash = earlier.find(|earlier| judge.clash(earlier, touch)).cloned();
        let copy = self.state.copies.iter().find(|copy| judge.may_meet(copy, touch)).cloned();
        let mut arrivals = self.state.arrivals.iter().map(|arrival| &arrival.touch);
        let arrival = arrivals.find(|copy| judge.may_meet(copy, touch)).cloned();
        if let Some(earlier) = clash {
            self.report(&earlier, touch);
        }
        if let Some(copy) = copy {
            self.report_copy(&copy, touch);
        }
        if let Some(copy) = arrival {
            self.report_arrival(&copy, touch);
        }
        self.meet_products(touch);
        self.meet_departures(touch);
    }

    fn settle(&mut self, stmt: &Stmt, storage: Storage, but: Option<u32>, pending: u32) {
        let Storage::Smem(tile, slot) = storage else { return };
        let form = slot.map_or(Form::constant(0), |slot| self.known.form(slot));
        let judge = self.judge();
        let meets = |copy: &&Touch| {
            copy.tile == tile
                && match but {
                    Some(but) => copy.younger >= but,
                    None => {
                        judge.distance(tile, copy.slot.as_ref(), Some(&form)).is_none_or(|d| d == 0)
                    }
                }
        };
        let least = self.state.copies.iter().filter(meets).map(|copy| copy.since).min();
        *self.settles.entry((stmt.span, tile)).or_insert(false) |= least.is_some() || but.is_some();
        let pending = self.pending(stmt, least, pending);
        self.state.settle(pending);
        if self.region.is_one_thread(self.kernel) {
            self.state.retire();
        }
    }

    /// The groups that a `settle` leaves in flight: its own number, or while numbers are found, the least of all rounds.
    fn pending(&mut self, stmt: &Stmt, least: Option<u32>, pending: u32) -> u32 {
        let pending = match &mut self.numbers {
            Some(numbers) => {
                let place = std::ptr::from_ref(stmt);
                let number = numbers.entry(place).or_insert(u32::MAX);
                *number = (*number).min(least.unwrap_or(u32::MAX));
                *number
            }
            None => pending,
        };
        if least.is_some_and(|least| least < pending) && self.numbers.is_none() {
            self.sink.push(Diagnostic::error(Code::E0810, "the kernel IR is malformed").label(
                stmt.span,
                format!("this leaves {pending} groups in flight, and its own may be one"),
            ));
        }
        pending
    }

    /// Reports each `settle` that no round finds a copy for.
    fn report_idle(&mut self) {
        for (&(span, tile), _) in self.settles.iter().filter(|(_, found)| !**found) {
            let tile = &self.kernel.smem[tile];
            self.sink.push(
                Diagnostic::error(Code::E0119, format!("no copy fills `{}` here", tile.name))
                    .label(span, "nothing is under way to this slot")
                    .secondary(tile.span, "declared here")
                    .help("start the copy before, or remove `settle`"),
            );
        }
    }

    fn report(&mut self, earlier: &Touch, later: &Touch) {
        if !self.reported.insert((earlier.span, later.span)) {
            return;
        }
        let tile = &self.kernel.smem[later.tile];
        let place = if tile.is_tensor() { "tensor memory" } else { "shared memory" };
        let round = if earlier.is_of_earlier_round() { ", in a round before" } else { "" };
        let help = if earlier.is_of_earlier_round() {
            "put `sync;` between: at the end of the loop's body, or before this statement"
        } else {
            "put `sync;` between"
        };
        self.sink.push(
            Diagnostic::error(
                Code::E0113,
                format!("threads touch `{}` in {place} without `sync` between", tile.name),
            )
            .label(later.span, format!("this {} what other threads touch", verb(later.kind)))
            .secondary(earlier.span, format!("this {} it first{round}", verb(earlier.kind)))
            .secondary(tile.span, "declared here")
            .help(help),
        );
    }

    fn report_copy(&mut self, copy: &Touch, later: &Touch) {
        if !self.reported.insert((copy.span, later.span)) {
            return;
        }
        let tile = &self.kernel.smem[later.tile];
        let round = if copy.is_of_earlier_round() { ", in a round before" } else { "" };
        let (why, help) = if copy.settled {
            ("settled for the thread's own copies alone", "put `sync;` between `settle` and this")
        } else {
            ("not settled on every path", "put `settle` and then `sync;` before this")
        };
        self.sink.push(
            Diagnostic::error(
                Code::E0118,
                format!("`{}` is touched while a copy may still fill it", tile.name),
            )
            .label(later.span, format!("this {} what the copy fills", verb(later.kind)))
            .secondary(copy.span, format!("the copy{round}: {why}"))
            .secondary(tile.span, "declared here")
            .help(help),
        );
    }

    fn report_arrival(&mut self, copy: &Touch, later: &Touch) {
        if !self.reported.insert((copy.span, later.span)) {
            return;
        }
        let tile = &self.kernel.smem[later.tile];
        let round = if copy.is_of_earlier_round() { ", in a round before" } else { "" };
        self.sink.push(
            Diagnostic::error(
                Code::E0118,
                format!("`{}` is touched while a copy may still fill it", tile.name),
            )
            .label(later.span, format!("this {} what the copy fills", verb(later.kind)))
            .secondary(
                copy.span,
                format!("the copy{round}: this role does not wait for its barrier between"),
            )
            .secondary(tile.span, "declared here")
            .help("touch it where the barrier of the copy has been waited for, or give each copy a part of its own"),
        );
    }
}

fn verb(kind: Kind) -> &'static str {
    match kind {
        Kind::Read => "reads",
        Kind::Write => "writes",
        Kind::Copy => "copies to",
    }
}

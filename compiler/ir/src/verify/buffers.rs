//! Buffers that a kernel stores to: what their loads and further stores meet.
//!
//! Assumes structured, uniform control flow. Guarantees (E0116) that a load of such a buffer touches no element that
//! another CTA of the launch stores: along each axis of the grid some axis of the buffer tells CTAs apart, by the same
//! affine function of the CTA's index in both accesses, or by a slot number that a contract makes another one in each
//! CTA; or something orders the two: CTAs along it are of one cluster, which meets between them, or one stands ahead of
//! an arrival at a word and the other is of the last to arrive there, or one stands ahead of a signal and the other
//! behind the wait for all who share the word. Reports (E0120) two accesses of one CTA, one of them a store, without a
//! `sync` between, where their slices may meet and not each element is in the hands of one thread both times, in one
//! round of a loop or in two.

mod ctas;
mod meetings;
mod place;
mod readings;
mod threads;

pub(super) use ctas::tell_apart;

use std::collections::{BTreeMap, BTreeSet};

use kernel_dsl::diag::{Code, Diagnostic, Sink};
use kernel_dsl::source::Span;

use super::ranks::{arrivers, sharers};
use super::scalars::{Facts, Form, Knowledge};
use crate::distribution::Distribution;
use crate::kernel::{
    Kernel, Op, Outgoing, ParamId, PipeOp, Stmt, StmtKind, TileAccess, ValueId, Words, defined_in,
};
use crate::ops::AtomicOp;
use ctas::Owners;
use meetings::{By, Seen, Sharing, Store};
use place::Place;
use readings::Readings;

/// Accesses of one buffer since the last `sync`, at most.
const MAX_OPEN: usize = 512;
/// Accesses of one buffer among which one that is known is looked for.
const MAX_RECENT: usize = 64;
/// Pairs of a load and a store of one buffer that are compared.
const MAX_PAIRS: u32 = 1_000_000;

pub(super) fn check(kernel: &Kernel, sink: &mut Sink) {
    let mut stored = BTreeSet::new();
    find_stored(&kernel.body, &mut stored);
    if stored.is_empty() {
        return;
    }
    let mut walk = Walk {
        kernel,
        known: Knowledge::new(kernel),
        facts: Facts::new(),
        stored,
        iotas: BTreeSet::new(),
        loads: BTreeMap::new(),
        arrivals: BTreeMap::new(),
        recent: Vec::new(),
        readings: Readings::default(),
        outside: Vec::new(),
        beside: Vec::new(),
        role: None,
        roles: 0,
        last: None,
        in_loop: false,
        depth: 0,
        words: Vec::new(),
        heads: Vec::new(),
        loops_outside: 0,
        tickets: Vec::new(),
        reported: BTreeSet::new(),
        overrun: BTreeSet::new(),
        seen: BTreeMap::new(),
        sink,
    };
    walk.block(&kernel.body);
    if kernel.launch.grid.iter().any(|&extent| extent > 1) {
        walk.report_shared();
    }
}

/// What an access does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Does {
    Read,
    Write,
    /// An atomic operation, which needs no order with others that do the same.
    Change(AtomicOp),
}

/// What orders CTAs.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Of {
    /// A word that signals raise.
    Signal(ParamId, Form),
    /// One arrival in the text.
    Arrival,
    /// A meeting of the cluster.
    Cluster,
}

/// Something that orders CTAs, and along which axes of the grid they have their own.
struct Word {
    of: Of,
    own: [u32; 3],
}

/// The beginning of a round.
#[derive(Default)]
struct Head {
    touched: Vec<Place>,
    has_met: bool,
    /// All that the round stores.
    stored: Vec<Place>,
}

struct Walk<'a> {
    kernel: &'a Kernel,
    known: Knowledge<'a>,
    facts: Facts,
    /// Buffers that the kernel stores to.
    stored: BTreeSet<ParamId>,
    iotas: BTreeSet<ValueId>,
    loads: BTreeMap<ValueId, &'a Op>,
    /// Conditions that hold in the CTA that arrives last, each with the number of the word.
    arrivals: BTreeMap<ValueId, usize>,
    /// Accesses since the last `sync` on some path.
    recent: Vec<Place>,
    /// Of those, the ones from before the role around this place.
    outside: Vec<Place>,
    /// Copies that may still read what the kernel stores to.
    readings: Readings,
    /// What the roles of the region so far have touched.
    beside: Vec<Place>,
    /// The number of the role around this place.
    role: Option<u32>,
    roles: u32,
    /// The word at which the CTA was the last to arrive that comes here.
    last: Option<usize>,
    in_loop: bool,
    /// Loops and choices around this place.
    depth: u32,
    /// Words at which CTAs arrive or that signals raise, and where the cluster meets.
    words: Vec<Word>,
    /// For each loop around this place, what its round has touched ahead of the first meeting on some path; nothing
    /// more where all paths have met.
    heads: Vec<Head>,
    /// Of those, the ones around the role that this place is in: its threads alone meet there.
    loops_outside: usize,
    /// Variables of the work lists around this place.
    tickets: Vec<ValueId>,
    reported: BTreeSet<(Span, Span)>,
    /// Buffers with too many accesses.
    overrun: BTreeSet<ParamId>,
    seen: BTreeMap<ParamId, Seen>,
    sink: &'a mut Sink,
}

impl<'a> Walk<'a> {
    fn block(&mut self, stmts: &'a [Stmt]) {
        for stmt in stmts {
            self.stmt(stmt);
        }
    }

    fn under(&mut self, facts: Facts, body: &'a [Stmt]) {
        let depth = self.facts.len();
        self.facts.extend(facts);
        self.depth += 1;
        self.block(body);
        self.depth -= 1;
        self.facts.truncate(depth);
    }

    fn stmt(&mut self, stmt: &'a Stmt) {
        if !matches!(stmt.kind, StmtKind::Role { .. }) && self.role.is_none() {
            let beside = std::mem::take(&mut self.beside);
            self.join(beside);
        }
        match &stmt.kind {
            StmtKind::Def { results, op } => self.define(results, op),
            StmtKind::Store { value, access, update, .. } => {
                let spread = &self.kernel.values[*value].distribution;
                let does = update.map_or(Does::Write, Does::Change);
                self.touch(access, does, Some(spread));
            }
            StmtKind::CopyAsync { source, .. } => {
                self.touch(source, Does::Read, None);
                self.readings.close_group();
                self.start_reading(source, false);
            }
            StmtKind::Pipe(PipeOp::Copy { source, .. }) => {
                self.touch(source, Does::Read, None);
                self.start_reading(source, true);
            }
            StmtKind::EmptyGroup => self.readings.close_group(),
            StmtKind::Settle { pending, .. } => self.readings.settle(self.role, *pending),
            StmtKind::Outgoing(Outgoing::Copy { dest, .. }) => self.touch(dest, Does::Write, None),
            StmtKind::Sync | StmtKind::SyncRole => self.meet(),
            StmtKind::Await(wait) => {
                self.meet();
                let index = wait.index.first().copied().flatten();
                if let Some(word) = self.raised(wait.param, index) {
                    self.seen.values_mut().for_each(|seen| seen.hear(word));
                }
            }
            StmtKind::Signal(signal) => {
                if let Some(word) = self.raised(signal.param, signal.index.first().copied()) {
                    self.seen.values_mut().for_each(|seen| seen.signal(word));
                }
            }
            StmtKind::SyncCluster => {
                self.meet();
                // What stands ahead of it in a loop comes again behind it.
                if !self.in_loop {
                    self.seen.values_mut().for_each(Seen::meet);
                }
                if self.is_outermost() {
                    let word = self.number(Of::Cluster, self.kernel.launch.between_clusters());
                    self.seen.values_mut().for_each(|seen| seen.meet_once(word));
                }
            }
            StmtKind::Role { body, .. } => {
                self.outside.clone_from(&self.recent);
                self.roles += 1;
                self.role = Some(self.roles);
                let outer = std::mem::replace(&mut self.loops_outside, self.heads.len());
                self.block(body);
                self.loops_outside = outer;
                self.readings.end_role(self.role);
                self.role = None;
                let before = std::mem::take(&mut self.outside);
                let own = std::mem::replace(&mut self.recent, before);
                self.beside.extend(own);
            }
            StmtKind::For { var, start, end, step, tickets, body } => {
                let facts = self.known.bind_loop(*var, *start, *end, *step);
                if tickets.is_some() {
                    self.work_list(*var, facts, body);
                    return;
                }
                let before = self.recent.clone();
                let readings = self.readings.clone();
                let outer = std::mem::replace(&mut self.in_loop, true);
                let met = self.met();
                self.heads.push(Head::default());
                self.under(facts, body);
                let head = self.heads.pop().unwrap_or_default();
                // There may be no round at all.
                self.join_met(&met);
                self.in_loop = outer;
                self.readings_of_rounds((*var, *step), &head, &readings, body);
                self.readings.join(readings);
                self.rounds((*var, *step), head, &before, body);
                self.join(before);
            }
            StmtKind::If { cond, then_body, else_body } => {
                let decided = self.known.decided(*cond);
                let before = self.recent.clone();
                let readings = self.readings.clone();
                let unmet = self.unmet();
                let met = self.met();
                if decided != Some(false) {
                    let word = self.arrivals.get(cond).copied();
                    let news = |seen: &mut Seen, tell: fn(&mut Seen, usize)| {
                        word.into_iter().for_each(|word| tell(seen, word));
                    };
                    self.seen.values_mut().for_each(|seen| news(seen, Seen::hear));
                    let outer = self.last;
                    self.last = word.or(outer);
                    self.under(self.known.path_facts(*cond, true), then_body);
                    self.last = outer;
                    self.seen.values_mut().for_each(|seen| news(seen, Seen::forget));
                }
                if decided != Some(true) {
                    let then_recent = std::mem::replace(&mut self.recent, before);
                    let then_readings = std::mem::replace(&mut self.readings, readings);
                    let then_unmet = self.unmet();
                    let then_met = self.met();
                    self.set_met(&met);
                    self.each_seen(&unmet, Seen::restore);
                    self.under(self.known.path_facts(*cond, false), else_body);
                    if decided.is_none() {
                        self.join(then_recent);
                        self.readings.join(then_readings);
                        self.each_seen(&then_unmet, Seen::join);
                        self.join_met(&then_met);
                    }
                }
            }
            StmtKind::SetVar { .. }
            | StmtKind::Pipe(_)
            | StmtKind::Prefetch { .. }
            | StmtKind::Advance { .. }
            | StmtKind::Outgoing(_)
            | StmtKind::Warpgroup(_)
            | StmtKind::Tensor(_)
            | StmtKind::GridWait
            | StmtKind::GridLaunch
            | StmtKind::Assert { .. }
            | StmtKind::Trace { .. }
            | StmtKind::Printf { .. } => {}
        }
    }

    /// A copy goes on behind its statement.
    fn start_reading(&mut self, source: &TileAccess, by_bytes: bool) {
        let param = source.storage.param().filter(|param| self.stored.contains(param));
        if let Some(param) = param {
            let of = (param, source);
            let place = Place::new(&self.known, &self.iotas, of, Does::Read, None, &self.facts);
            self.readings.start(place, self.role, by_bytes);
        }
    }

    /// The number of something that orders CTAs.
    fn number(&mut self, of: Of, own: [u32; 3]) -> usize {
        if let Some(number) = self.words.iter().position(|word| word.of == of && of != Of::Arrival)
        {
            return number;
        }
        self.words.push(Word { of, own });
        self.words.len() - 1
    }

    /// The number of a word of a counter that signals raise, where it is raised on every path.
    fn raised(&mut self, param: ParamId, index: Option<ValueId>) -> Option<usize> {
        if !self.is_outermost() || self.kernel.params[param].words != Some(Words::Raised) {
            return None;
        }
        let form = self.known.form(index?);
        let own = sharers(&self.known, &form, self.kernel.launch.grid)?;
        Some(self.number(Of::Signal(param, form), own))
    }

    /// Every CTA arrives at a word.
    fn arrive(&mut self, results: &[ValueId], index: ValueId) {
        let form = self.known.form(index);
        // Of any other index nothing says who arrives there.
        let Some(own) = arrivers(&self.known, &form, self.kernel.launch.grid) else { return };
        let number = self.number(Of::Arrival, own);
        let role = self.role;
        self.seen.values_mut().for_each(|seen| seen.arrive(number, role));
        self.arrivals.extend(results.iter().map(|&result| (result, number)));
    }

    /// Rounds that each begin with a meeting, as does the end.
    fn work_list(&mut self, var: ValueId, facts: Facts, body: &'a [Stmt]) {
        let outer = std::mem::replace(&mut self.in_loop, true);
        self.tickets.push(var);
        self.meet();
        let readings = self.readings.clone();
        self.heads.push(Head::default());
        self.under(facts, body);
        let head = self.heads.pop().unwrap_or_default();
        self.meet();
        self.readings_of_rounds((var, 1), &head, &readings, body);
        self.readings.join(readings);
        self.tickets.pop();
        self.in_loop = outer;
    }

    /// All threads meet, or those of the role: what others did before it is not met by that.
    fn meet(&mut self) {
        self.recent.clone_from(&self.outside);
        self.readings.meet(self.role);
        self.heads[self.loops_outside..].iter_mut().for_each(|head| head.has_met = true);
        if self.is_outermost() {
            self.seen.values_mut().for_each(Seen::publish);
        }
    }

    /// True where all threads of every CTA come, once.
    fn is_outermost(&self) -> bool {
        self.depth == 0 && self.role.is_none()
    }

    /// For each loop around this place, whether its round has met.
    fn met(&self) -> Vec<bool> {
        self.heads.iter().map(|head| head.has_met).collect()
    }

    fn set_met(&mut self, met: &[bool]) {
        self.heads.iter_mut().zip(met).for_each(|(head, met)| head.has_met = *met);
    }

    /// Two paths meet.
    fn join_met(&mut self, met: &[bool]) {
        self.heads.iter_mut().zip(met).for_each(|(head, met)| head.has_met &= met);
    }

    /// What rounds of a loop touch since their last meeting, against what later ones touch ahead of their first.
    fn rounds(&mut self, of_loop: (ValueId, u32), head: Head, before: &[Place], body: &[Stmt]) {
        if head.touched.is_empty() {
            return;
        }
        let inside = defined_in(body);
        let is_new = |place: &&Place| !before.iter().any(|known| known.is_at(place));
        let ends: Vec<Place> = self.recent.iter().filter(is_new).cloned().collect();
        for end in ends {
            let earlier = threads::in_earlier_round(&mut self.known, &end, of_loop, &inside);
            // A place that has no form may be any.
            let earlier = earlier.unwrap_or_else(|| Place { axes: Vec::new(), ..end.clone() });
            for later in &head.touched {
                if threads::race(&self.known, &later.facts, &earlier, later) {
                    self.report_race(earlier.span, earlier.is_store, later);
                }
            }
        }
    }

    /// What copies of a round may still read, against what later rounds store.
    fn readings_of_rounds(
        &mut self,
        of_loop: (ValueId, u32),
        head: &Head,
        before: &Readings,
        body: &[Stmt],
    ) {
        if head.stored.is_empty() {
            return;
        }
        let inside = defined_in(body);
        for end in self.readings.without(before) {
            let earlier = threads::in_earlier_round(&mut self.known, &end, of_loop, &inside);
            let earlier = earlier.unwrap_or_else(|| Place { axes: Vec::new(), ..end.clone() });
            for later in &head.stored {
                if threads::race(&self.known, &later.facts, &earlier, later) {
                    self.report_reading(earlier.span, later);
                }
            }
        }
    }

    fn define(&mut self, results: &[ValueId], op: &'a Op) {
        if let Some(&result) = results.first() {
            match op {
                Op::Load { access, .. } => {
                    let spread = &self.kernel.values[result].distribution;
                    self.touch(access, Does::Read, Some(spread));
                    self.loads.insert(result, op);
                }
                Op::Iota => {
                    self.iotas.insert(result);
                }
                Op::ArriveLast { word, .. } => {
                    self.meet();
                    // Where some path does not come, the last to arrive has not heard of all.
                    if self.depth == 0 {
                        self.arrive(results, word.index);
                    }
                }
                Op::Atomic { op, access, .. } => {
                    self.meet();
                    self.touch(access, Does::Change(*op), None);
                    self.meet();
                }
                _ => {}
            }
        }
        self.known.define(results, op, &self.facts);
    }

    fn touch(&mut self, access: &TileAccess, does: Does, spread: Option<&Distribution>) {
        let is_store = does != Does::Read;
        let Some(param) = access.storage.param() else { return };
        if !self.stored.contains(&param) {
            return;
        }
        let place =
            Place::new(&self.known, &self.iotas, (param, access), does, spread, &self.facts);
        let clash = self
            .recent
            .iter()
            .find(|earlier| threads::race(&self.known, &self.facts, earlier, &place))
            .map(|earlier| (earlier.span, earlier.is_store));
        if let Some((earlier, stored)) = clash {
            self.report_race(earlier, stored, &place);
        }
        // Of memory of ranks each rank has rounds and words of its own.
        let of_ranks = self.kernel.params[param].is_inbox();
        let tickets = if of_ranks { &[] } else { self.tickets.as_slice() };
        let owners = Owners::new(self.kernel, &self.known, &self.loads, tickets, &place);
        if does == Does::Write
            && !self.tickets.is_empty()
            && !owners.is_of_round(self.kernel.launch.grid)
        {
            self.report_rounds(&place);
        }
        let by = By { role: self.role, last: self.last };
        let seen = self.seen.entry(param).or_default();
        // A copy goes on behind its statement; an atomic with a result does not.
        let late = of_ranks || spread.is_none() && !matches!(does, Does::Change(_));
        if is_store {
            let in_list = !self.tickets.is_empty();
            let store = Store::new(owners, place.span, does, by);
            seen.store(store.late(late).in_list(in_list));
        } else {
            seen.load(owners, place.span, late, by);
        }
        if is_store {
            let races = |earlier: &Place| threads::race(&self.known, &self.facts, earlier, &place);
            let found = self.readings.iter().find(|reading| races(&reading.place));
            if let Some(copy) = found.map(|reading| reading.place.span) {
                self.report_reading(copy, &place);
            }
            self.heads.iter_mut().for_each(|head| head.stored.push(place.clone()));
        }
        for head in self.heads.iter_mut().filter(|head| !head.has_met) {
            head.touched.push(place.clone());
        }
        self.remember(place);
    }

    fn remember(&mut self, place: Place) {
        let of_it = self.recent.iter().filter(|known| known.param == place.param).count();
        if of_it < MAX_OPEN {
            self.recent.push(place);
        } else if self.overrun.insert(place.param) {
            let name = &self.kernel.params[place.param].name;
            let message = format!("more than {MAX_OPEN} accesses of `{name}` without a `sync`");
            let finding = Diagnostic::error(Code::E0219, message);
            self.sink.push(
                finding.label(place.span, "this one is not compared").help("put `sync;` between"),
            );
        }
    }

    /// The loads of each buffer that some path has not taken to a meeting of the cluster.
    fn unmet(&self) -> BTreeMap<ParamId, Vec<bool>> {
        self.seen.iter().map(|(&param, seen)| (param, seen.unmet())).collect()
    }

    fn each_seen(&mut self, unmet: &BTreeMap<ParamId, Vec<bool>>, change: fn(&mut Seen, &[bool])) {
        for (param, unmet) in unmet {
            if let Some(seen) = self.seen.get_mut(param) {
                change(seen, unmet);
            }
        }
    }

    /// Two paths meet.
    fn join(&mut self, other: Vec<Place>) {
        for place in other {
            if !self.recent.iter().any(|known| known.is_at(&place)) {
                self.remember(place);
            }
        }
    }

    fn report_rounds(&mut self, place: &Place) {
        let param = &self.kernel.params[place.param];
        let name = &param.name;
        let mut finding = Diagnostic::error(
            Code::E0172,
            format!("two rounds of a work list may store to one element of `{name}`"),
        )
        .label(place.span, "nothing in this place says which round it is");
        if let Some(&ticket) = self.tickets.last() {
            finding =
                finding.secondary(self.kernel.values[ticket].span, "each number is one round");
        }
        self.sink.push(
            finding
                .secondary(param.span, "declared here")
                .help("write `y[t, …]`, or `y[t * n .. + n]`"),
        );
    }

    fn report_race(&mut self, earlier: Span, stored: bool, later: &Place) {
        if !self.reported.insert((earlier, later.span)) {
            return;
        }
        let param = &self.kernel.params[later.param];
        let verb = |is_store: bool| if is_store { "writes" } else { "reads" };
        self.sink.push(
            Diagnostic::error(
                Code::E0120,
                format!("threads touch `{}` without `sync` between", param.name),
            )
            .label(later.span, format!("this {} what other threads touch", verb(later.is_store)))
            .secondary(earlier, format!("this {} it first", verb(stored)))
            .secondary(param.span, "declared here")
            .help("put `sync;` between"),
        );
    }

    fn report_reading(&mut self, copy: Span, later: &Place) {
        if !self.reported.insert((copy, later.span)) {
            return;
        }
        let param = &self.kernel.params[later.param];
        self.sink.push(
            Diagnostic::error(
                Code::E0120,
                format!("`{}` is written while a copy may still read it", param.name),
            )
            .label(later.span, "this writes what the copy reads")
            .secondary(copy, "the copy: nothing says that it has read")
            .secondary(param.span, "declared here")
            .help("put `settle` of the tile that it fills and then `sync;` before this"),
        );
    }

    /// Loads of what other CTAs may store, stores to what they or other rounds may store or change, and changes by
    /// several operations.
    fn report_shared(&mut self) {
        let words: Vec<[u32; 3]> = self.words.iter().map(|word| word.own).collect();
        let sharing = Sharing { launch: &self.kernel.launch, words: &words, pairs: MAX_PAIRS };
        for (id, seen) in std::mem::take(&mut self.seen) {
            let param = &self.kernel.params[id];
            for (later, earlier) in seen.mixed(&sharing) {
                self.sink.push(
                    Diagnostic::error(
                        Code::E0116,
                        format!("CTAs change `{}` by two operations in no order", param.name),
                    )
                    .label(later, "nothing says that only the same CTA changes these elements by another operation")
                    .secondary(earlier, "changed by another one here")
                    .secondary(param.span, format!("declared `{}`", param.access))
                    .help("what is left depends on which comes first: let an earlier kernel do one of them, or the last CTA: `if arrive.last c[i] of n { … }`"),
                );
            }
            for (later, earlier) in seen.rounds(&sharing) {
                self.sink.push(
                    Diagnostic::error(
                        Code::E0172,
                        format!("a round of a work list may store to an element of `{}` that others store to", param.name),
                    )
                    .label(later, "nothing says that only the same round stores to these elements")
                    .secondary(earlier, "stored to here")
                    .secondary(param.span, "declared here")
                    .help("let both stores lie at the same places of a round, or in another buffer"),
                );
            }
            for (store, change) in seen.changed(&sharing) {
                self.sink.push(
                    Diagnostic::error(
                        Code::E0116,
                        format!("`{}` is stored to while other CTAs of the launch may change it", param.name),
                    )
                    .label(store, "nothing says that only the same CTA changes these elements")
                    .secondary(change, "changed here")
                    .secondary(param.span, format!("declared `{}`", param.access))
                    .help("let an earlier kernel clear it, or the last CTA: `if arrive.last c[i] of n { … }`"),
                );
            }
            for (load, store) in seen.shared(&sharing) {
                self.sink.push(
                    Diagnostic::error(
                        Code::E0116,
                        format!("`{}` is read while other CTAs of the launch may write it", param.name),
                    )
                    .label(load, "nothing says that only the same CTA stores to these elements")
                    .secondary(store, "stored to here")
                    .secondary(param.span, format!("declared `{}`", param.access))
                    .help(
                        "read it inside of `if arrive.last c[i] of n { … }`, which the last CTA runs, or \
                         index both accesses by the same function of the CTA, or let the CTAs of a cluster \
                         meet between the two: `sync cluster;`",
                    ),
                );
            }
        }
    }
}

fn find_stored(stmts: &[Stmt], found: &mut BTreeSet<ParamId>) {
    for stmt in stmts {
        match &stmt.kind {
            StmtKind::Store { access, .. }
            | StmtKind::Outgoing(Outgoing::Copy { dest: access, .. })
            | StmtKind::Def { op: Op::Atomic { access, .. }, .. } => {
                found.extend(access.storage.param());
            }
            StmtKind::For { body, .. } | StmtKind::Role { body, .. } => find_stored(body, found),
            StmtKind::If { then_body, else_body, .. } => {
                find_stored(then_body, found);
                find_stored(else_body, found);
            }
            StmtKind::Def { .. }
            | StmtKind::SetVar { .. }
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
            | StmtKind::Printf { .. } => {}
        }
    }
}

//! Buffers that a kernel stores to: what their loads and further stores meet.
//!
//! Assumes structured, uniform control flow. Guarantees (E0116) that a load of such a buffer touches no element that
//! another CTA of the launch stores: along each axis of the grid some axis of the buffer tells CTAs apart, by the same
//! affine function of the CTA's index in both accesses, or by a slot number that a contract makes another one in each
//! CTA; or something orders the two: CTAs along it are of one cluster, which meets between them, or one stands ahead of
//! an arrival at a word and the other is of the last to arrive there, or one stands ahead of a signal and the other
//! behind the wait for all who share the word, of the CTA or of a role of it. Reports (E0120) two accesses of one CTA,
//! one of them a store, without a `sync` between, where their slices may meet and not each element is in the hands of
//! one thread both times, in one round of a loop or in two.

mod ctas;
mod flight;
mod meetings;
mod place;
mod survey;
mod threads;
mod words;

pub(super) use ctas::tell_apart;

use std::collections::{BTreeMap, BTreeSet};

use kernel_dsl::diag::{Code, Diagnostic, Sink};
use kernel_dsl::source::Span;

use super::scalars::{Facts, Knowledge};
use super::told::{Waited, Worker};
use crate::distribution::Distribution;
use crate::kernel::{
    Kernel, Op, Outgoing, ParamId, PipeOp, RoleId, Stmt, StmtKind, Storage, TileAccess, ValueId,
    defined_in,
};
use crate::ops::AtomicOp;
use ctas::Owners;
use flight::{Event, Flight, Groups, Head};
use meetings::{By, Seen, Sharing, Store};
use place::{Place, Who};
use survey::Survey;
use words::{Of, Word};

/// Accesses of one buffer since the last `sync`, at most.
const MAX_OPEN: usize = 512;
/// Accesses of one buffer among which one that is known is looked for.
const MAX_RECENT: usize = 64;
/// Pairs of a load and a store of one buffer that are compared.
const MAX_PAIRS: u32 = 1_000_000;

pub(super) fn check(kernel: &Kernel, sink: &mut Sink) {
    let survey = Survey::of(&kernel.body);
    if survey.stored.is_empty() {
        return;
    }
    let mut walk = Walk {
        kernel,
        known: Knowledge::new(kernel),
        facts: Facts::new(),
        survey,
        iotas: BTreeSet::new(),
        loads: BTreeMap::new(),
        arrivals: BTreeMap::new(),
        recent: Vec::new(),
        outside: Vec::new(),
        of_role: Vec::new(),
        beside: Vec::new(),
        role: None,
        roles: 0,
        accesses: 0,
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
        waited: Waited::default(),
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

struct Walk<'a> {
    kernel: &'a Kernel,
    known: Knowledge<'a>,
    facts: Facts,
    survey: Survey,
    iotas: BTreeSet<ValueId>,
    loads: BTreeMap<ValueId, &'a Op>,
    /// Conditions that hold in the CTA that arrives last, each with the number of the word.
    arrivals: BTreeMap<ValueId, usize>,
    /// Accesses since the last `sync` on some path.
    recent: Vec<Place>,
    /// Of those, the ones from before the role around this place.
    outside: Vec<Place>,
    /// What the role around this place has touched: that it met itself says nothing to others.
    of_role: Vec<Place>,
    /// What the roles of the region so far have touched.
    beside: Vec<Place>,
    /// The number of the role around this place, and which one it is.
    role: Option<(u32, RoleId)>,
    roles: u32,
    accesses: u32,
    /// The word at which the CTA was the last to arrive that comes here.
    last: Option<usize>,
    in_loop: bool,
    /// Loops and choices around this place.
    depth: u32,
    /// Words at which CTAs arrive or that signals raise, and where the cluster meets.
    words: Vec<Word>,
    /// For each loop around this place, what its round has touched.
    heads: Vec<Head>,
    /// Of those, the ones around the role that this place is in: its threads alone meet there.
    loops_outside: usize,
    /// Variables of the work lists around this place.
    tickets: Vec<ValueId>,
    reported: BTreeSet<(ParamId, Span, Span)>,
    /// Buffers with too many accesses.
    overrun: BTreeSet<ParamId>,
    seen: BTreeMap<ParamId, Seen>,
    /// Words of signals that have been waited for.
    waited: Waited,
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
                self.happens(&Event::Closed(Groups::Into));
                self.touch_by_copy(source, Does::Read, Flight::Group(Groups::Into, 0));
            }
            StmtKind::Pipe(PipeOp::Copy { source, barrier, at, .. }) => {
                let flight = Flight::Round(*barrier, self.known.form(*at));
                self.touch_by_copy(source, Does::Read, flight);
            }
            StmtKind::Outgoing(Outgoing::Copy { dest, .. }) => {
                self.happens(&Event::Closed(Groups::OutOf));
                self.touch_by_copy(dest, Does::Write, Flight::Group(Groups::OutOf, 0));
            }
            StmtKind::EmptyGroup => self.happens(&Event::Closed(Groups::Into)),
            StmtKind::Outgoing(Outgoing::EmptyGroup) => {
                self.happens(&Event::Closed(Groups::OutOf));
            }
            StmtKind::Settle { pending, .. } => {
                self.happens(&Event::Settled(Groups::Into, *pending));
            }
            // What a copy has read need not be written.
            StmtKind::Outgoing(Outgoing::Settle {
                storage: Storage::Buffer(_), pending, ..
            }) => {
                self.happens(&Event::Settled(Groups::OutOf, *pending));
            }
            StmtKind::Pipe(PipeOp::Wait { barrier, at }) => {
                let round = Event::Waited(*barrier, self.known.form(*at));
                self.happens(&round);
            }
            StmtKind::Sync | StmtKind::SyncRole => self.meet(),
            StmtKind::Advance { word } => {
                self.meet();
                self.advance(word);
            }
            StmtKind::Await(wait) => {
                self.meet();
                let index = wait.index.first().copied().flatten();
                if let Some(word) = self.raised(wait.param, index) {
                    self.waited.wait(word, self.role_number());
                }
            }
            StmtKind::Signal(signal) => {
                if let Some(word) = self.raised(signal.param, signal.index.first().copied()) {
                    let by = self.role.map(|(number, role)| Worker {
                        number,
                        elect: self.kernel.roles[role].elect,
                    });
                    self.seen.values_mut().for_each(|seen| seen.signal(word, by));
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
            StmtKind::Role { role, body } => {
                self.outside.clone_from(&self.recent);
                self.roles += 1;
                self.role = Some((self.roles, *role));
                let outer = std::mem::replace(&mut self.loops_outside, self.heads.len());
                self.block(body);
                self.loops_outside = outer;
                self.role = None;
                let before = std::mem::take(&mut self.outside);
                let own = std::mem::replace(&mut self.recent, before);
                let all = std::mem::take(&mut self.of_role);
                let beside = all.into_iter().map(|place| self.left(place, &own));
                self.beside.extend(beside.collect::<Vec<_>>());
            }
            StmtKind::For { var, start, end, step, tickets, body } => {
                let facts = self.known.bind_loop(*var, *start, *end, *step);
                if tickets.is_some() {
                    self.work_list(*var, facts, body);
                    return;
                }
                let before = self.recent.clone();
                let outer = std::mem::replace(&mut self.in_loop, true);
                let met = self.met();
                self.round((*var, *step), facts, body, false);
                // There may be no round at all.
                self.join_met(&met);
                self.in_loop = outer;
                self.join(before);
            }
            StmtKind::If { cond, then_body, else_body } => {
                let decided = self.known.decided(*cond);
                let before = self.recent.clone();
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
                    let then_unmet = self.unmet();
                    let then_met = self.met();
                    self.set_met(&met);
                    self.each_seen(&unmet, Seen::restore);
                    self.under(self.known.path_facts(*cond, false), else_body);
                    if decided.is_none() {
                        self.join(then_recent);
                        self.each_seen(&then_unmet, Seen::join);
                        self.join_met(&then_met);
                    }
                }
            }
            StmtKind::SetVar { .. }
            | StmtKind::Pipe(_)
            | StmtKind::Prefetch { .. }
            | StmtKind::Outgoing(Outgoing::Settle { .. } | Outgoing::Publish { .. })
            | StmtKind::Warpgroup(_)
            | StmtKind::Tensor(_)
            | StmtKind::GridWait
            | StmtKind::GridLaunch
            | StmtKind::Assert { .. }
            | StmtKind::Trace { .. }
            | StmtKind::Printf { .. } => {}
        }
    }

    /// Rounds that each begin with a meeting, as does the end.
    fn work_list(&mut self, var: ValueId, facts: Facts, body: &'a [Stmt]) {
        let outer = std::mem::replace(&mut self.in_loop, true);
        self.tickets.push(var);
        self.meet();
        self.round((var, 1), facts, body, true);
        self.meet();
        self.tickets.pop();
        self.in_loop = outer;
    }

    /// All threads meet, or those of the role: what others did before it is not met by that, nor what goes on.
    fn meet(&mut self) {
        let mut met = self.outside.clone();
        let goes_on = |place: &Place| {
            place.flight.is_some() && self.outside.iter().all(|other| other.number != place.number)
        };
        met.extend(self.recent.drain(..).filter(goes_on));
        self.recent = met;
        let depth = self.depth;
        self.heads[self.loops_outside..].iter_mut().for_each(|head| head.meet(depth));
        if depth == 0 {
            let role = self.role_number();
            self.seen.values_mut().for_each(|seen| seen.publish(role));
        }
        if self.is_outermost() {
            self.waited.meet();
        }
    }

    /// The number of the role around this place.
    fn role_number(&self) -> Option<u32> {
        self.role.map(|(number, _)| number)
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

    /// Something happens to copies of the threads that come here.
    fn happens(&mut self, event: &Event) {
        event.apply(&mut self.recent, self.role);
        let depth = self.depth;
        self.heads[self.loops_outside..].iter_mut().for_each(|head| head.happens(event, depth));
    }

    /// What a role leaves behind of one of its accesses, of which it knows what its own threads have not met.
    fn left(&self, place: Place, own: &[Place]) -> Place {
        let open = own.iter().find(|other| other.number == place.number);
        let flight = open.and_then(|open| open.flight.clone());
        // Each round is waited for by a role of the region.
        let waited = |flight: &Flight| matches!(flight, Flight::Round(barrier, _) if self.survey.awaited.contains(barrier));
        Place { flight: flight.filter(|flight| !waited(flight)), ..place }
    }

    /// A round of a loop, against a later one: what it leaves, and what that touches before all have met.
    fn round(&mut self, of_loop: (ValueId, u32), facts: Facts, body: &'a [Stmt], meets: bool) {
        let first = self.accesses;
        self.heads.push(Head::new(self.depth + 1, meets));
        self.under(facts, body);
        let Some(head) = self.heads.pop().filter(|head| !head.is_empty()) else { return };
        if meets {
            self.meet();
        }
        let inside = defined_in(body);
        let is_new = |place: &&Place| place.number >= first;
        let ends: Vec<Place> = self.recent.iter().filter(is_new).cloned().collect();
        for end in ends {
            let earlier = threads::in_earlier_round(&mut self.known, &end, of_loop, &inside);
            // A place that has no form may be any.
            let earlier = earlier.unwrap_or_else(|| Place { axes: Vec::new(), ..end.clone() });
            for later in head.ahead(&end) {
                let is_known = self.reported.contains(&(later.param, earlier.span, later.span));
                if !is_known && threads::race(&self.known, &later.facts, &earlier, later) {
                    self.report_race(&earlier, later);
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
        self.touch_until(access, does, spread, None);
    }

    /// A copy that goes on behind its statement.
    fn touch_by_copy(&mut self, access: &TileAccess, does: Does, flight: Flight) {
        self.touch_until(access, does, None, Some(flight));
    }

    fn who(&self) -> Who {
        let role = self.role.map(|(_, role)| &self.kernel.roles[role]);
        Who {
            role: self.role,
            first: role.map_or(0, |role| role.first),
            elect: role.is_some_and(|role| role.elect),
        }
    }

    fn touch_until(
        &mut self,
        access: &TileAccess,
        does: Does,
        spread: Option<&Distribution>,
        flight: Option<Flight>,
    ) {
        let is_store = does != Does::Read;
        let Some(param) = access.storage.param() else { return };
        if !self.survey.stored.contains(&param) {
            return;
        }
        let of = (self.who(), spread);
        let mut place =
            Place::new(&self.known, &self.iotas, (param, access), does, of, &self.facts);
        place.number = self.accesses;
        self.accesses += 1;
        place.flight = flight;
        place.is_once &= !self.is_trusted(place.span);
        let clash = self
            .recent
            .iter()
            .find(|earlier| threads::race(&self.known, &self.facts, earlier, &place));
        if let Some(earlier) = clash.cloned() {
            self.report_race(&earlier, &place);
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
        let by = By { role: self.role_number(), last: self.last };
        let told = self.waited.words(by.role);
        let grid = self.kernel.launch.grid;
        let alone = does == Does::Write
            && !of_ranks
            && !owners.is_private(&owners, grid, grid)
            && self.known.are_apart(&place.starts());
        let seen = self.seen.entry(param).or_default();
        // A copy goes on behind its statement; an atomic with a result does not.
        let late = of_ranks || spread.is_none() && !matches!(does, Does::Change(_));
        if is_store {
            let in_list = !self.tickets.is_empty();
            let alone = alone.then(|| place.starts());
            let store = Store::new(owners, place.span, does, by).told(told).alone(alone);
            seen.store(store.late(late).in_list(in_list));
        } else {
            // The compiler puts a fence ahead of each copy that reads a buffer which the kernel may store to.
            seen.load((owners, place.span), (late, !of_ranks), by, told);
        }
        self.remember(place);
    }

    /// One thread adds 1 to a word, which threads that do not meet here may read.
    fn advance(&mut self, word: &crate::kernel::Word) {
        let start = self.known.form(word.index);
        let place = Place::of_word((word.param, start, word.span), self.who(), &self.facts);
        let place = Place { number: self.accesses, ..place };
        self.accesses += 1;
        let clash = self
            .recent
            .iter()
            .find(|earlier| threads::race(&self.known, &self.facts, earlier, &place));
        if let Some(earlier) = clash.cloned() {
            self.report_race(&earlier, &place);
        }
        self.remember(place);
    }

    /// True where only the author says that a store comes to no element twice.
    fn is_trusted(&self, at: Span) -> bool {
        self.kernel.waivers.iter().any(|waiver| {
            let of = waiver.span;
            waiver.code == Code::E0404.name()
                && of.file == at.file
                && (of.lo..of.hi).contains(&at.lo)
        })
    }

    fn remember(&mut self, place: Place) {
        let late = self.survey.copied.contains(&place.param);
        self.heads.iter_mut().for_each(|head| head.touch(&place, late));
        if self.role.is_some() && !self.of_role.iter().any(|known| known.is_like(&place)) {
            if self.has_room(&self.of_role, &place) {
                self.of_role.push(place.clone());
            } else {
                self.too_many(&place);
            }
        }
        self.keep(place);
    }

    fn keep(&mut self, place: Place) {
        if self.has_room(&self.recent, &place) {
            self.recent.push(place);
        } else {
            self.too_many(&place);
        }
    }

    fn has_room(&self, places: &[Place], place: &Place) -> bool {
        places.iter().filter(|known| known.param == place.param).count() < MAX_OPEN
    }

    fn too_many(&mut self, place: &Place) {
        if self.overrun.insert(place.param) {
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
            match self.recent.iter_mut().find(|known| known.number == place.number) {
                Some(known) => Flight::join(&mut known.flight, &place.flight),
                None => self.keep(place),
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

    fn report_race(&mut self, earlier: &Place, later: &Place) {
        if !self.reported.insert((later.param, earlier.span, later.span)) {
            return;
        }
        let param = &self.kernel.params[later.param];
        // A role meets itself; what came before it, or goes on by itself, that does not reach.
        let role = later.who.role.filter(|_| later.who.role == earlier.who.role);
        let sync = match role {
            Some((_, role)) => format!("sync {};", self.kernel.roles[role].name),
            None => "sync;".to_owned(),
        };
        let help = match &earlier.flight {
            Some(Flight::Group(..)) => format!("put `settle` and `{sync}` between"),
            Some(Flight::Round(..)) => format!("put the `wait` for the copy and `{sync}` between"),
            None => format!("put `{sync}` between"),
        };
        let is_copy = !earlier.is_store && earlier.spread.is_none();
        let message = if is_copy {
            format!("`{}` is written while a copy may still read it", param.name)
        } else {
            format!("threads touch `{}` without `sync` between", param.name)
        };
        let verb = |is_store: bool| if is_store { "writes" } else { "reads" };
        self.sink.push(
            Diagnostic::error(Code::E0120, message)
                .label(
                    later.span,
                    format!("this {} what other threads touch", verb(later.is_store)),
                )
                .secondary(earlier.span, format!("this {} it first", verb(earlier.is_store)))
                .secondary(param.span, "declared here")
                .help(help),
        );
    }

    /// Loads of what other CTAs may store, stores to what they or other rounds may store or change, and changes by
    /// several operations.
    fn report_shared(&mut self) {
        let words: Vec<_> = self.words.iter().map(|word| (word.own, word.digit)).collect();
        for (id, seen) in std::mem::take(&mut self.seen) {
            let param = &self.kernel.params[id];
            let sharing = Sharing::new(&self.kernel.launch, &words, MAX_PAIRS);
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
            let stores = Sharing::new(&self.kernel.launch, &words, MAX_PAIRS);
            for (later, earlier) in seen.twice(&stores) {
                let mut finding = Diagnostic::error(
                    Code::E0175,
                    format!("several CTAs may store to one element of `{}`", param.name),
                )
                .label(later, "nothing says that only one CTA stores to these elements");
                if later != earlier {
                    finding = finding.secondary(earlier, "stored to here");
                }
                self.sink.push(
                    finding.secondary(param.span, format!("declared `{}`", param.access)).help(
                        "let the place say which CTA it is: `y[cta.x, …]`, or let one CTA store: `if cta.x == 0 { … }`",
                    ),
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
            if let Some(span) = sharing.left_out.get().or(stores.left_out.get()) {
                let message =
                    format!("too many accesses of `{}` to compare between CTAs", param.name);
                self.sink.push(
                    Diagnostic::error(Code::E0219, message)
                        .label(span, "this one is not compared with all others")
                        .secondary(param.span, "declared here")
                        .help("unroll fewer loops, or split the kernel"),
                );
            }
        }
    }
}

//! Roles: what one of them touches while others run beside it.
//!
//! A role holds a slot of a pipeline from its `open` or `wait` to its `release`. What two roles at opposite ends do to a
//! tile whose slot is the index that they hold is ordered: the pass over pipelines proves that they never hold it at once.
//! Two roles on one side may. Ordered is too what one does before it releases a barrier of one round and another after it
//! has waited for it.

use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::super::scalars::{Form, Symbol};
use super::outgoing::Departures;
use super::state::{Arrival, Guard, Kind, Side, State, Touch};
use super::{Walk, verb};
use crate::kernel::{
    Barrier, BarrierId, Kernel, PipeOp, RoleId, Stmt, StmtKind, TensorAtom, TileAccess, ValueId,
    ViewAxis,
};

/// The roles that run beside each other.
#[derive(Default)]
pub(super) struct Region {
    /// What held when the first of them began.
    entry: Option<State>,
    /// The role that is walked.
    current: Option<RoleId>,
    /// Slots that it holds, by pipeline and index.
    holds: Vec<Hold>,
    /// Indices of barriers that no slot comes back by, for which it has waited.
    waited: Vec<Waited>,
    /// Everything that the roles so far have touched.
    touches: Vec<Beside>,
    /// Clashes that a later release may order: which of the own accesses, and the other one.
    pending: Vec<(usize, RoleId, Touch, Vec<Passed>)>,
    /// Copies that they have left under way.
    copies: State,
    /// Copies out of shared memory that they have started, all complete when they end.
    pub(super) departed: Departures,
    /// The sums that they write, with the instruction that does.
    product_sums: Vec<(Touch, TensorAtom)>,
}

/// A slot that a role holds.
#[derive(Clone)]
struct Hold {
    by: Guard,
    index: Form,
    /// Copies fill the slot. One thread starts them, so the hold is none of what threads touch.
    copied: bool,
    /// A product touches it.
    product: Option<Span>,
    /// Threads of the role do.
    threads: Option<Span>,
}

impl Hold {
    fn new((pipeline, fills): (BarrierId, bool), index: Form, copied: bool) -> Hold {
        let by = Guard { pipeline, fills, later: Some(0) };
        Hold { by, index, copied, product: None, threads: None }
    }
}

/// Indices of a barrier that a role has waited for.
struct Waited {
    barrier: BarrierId,
    /// One of them, and all before; all that there are without.
    index: Option<Form>,
    /// Outside of loops.
    is_once: bool,
}

/// An index of a barrier that a role has released behind an access, or waited for ahead of one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Passed {
    barrier: BarrierId,
    /// The index, where that is a constant.
    index: Option<i128>,
    /// What the access is of the index, if it lies there whole.
    own: Option<Own>,
    /// All indices that there are.
    all: bool,
}

/// What two indices never share.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Own {
    Slot,
    /// So many positions along an axis of the view.
    Part(ViewAxis, u32),
}

impl Own {
    /// What an access is of an index.
    fn of(kernel: &Kernel, touch: &Touch, barrier: BarrierId, index: &Form) -> Option<Own> {
        if kernel.barriers[barrier].slots > 1 && is_slot_of(kernel, touch, barrier, index) {
            return Some(Own::Slot);
        }
        let mut sides = touch.axes.iter().zip(&touch.sides);
        sides.find_map(|(axis, side)| {
            let Side::Range { start, len, .. } = side else { return None };
            let first = Form::default().plus(i128::from(*len), index)?;
            (*start == first).then(|| Own::Part(axis.clone(), *len))
        })
    }
}

impl Passed {
    fn new(barrier: BarrierId, index: &Form, is_once: bool, own: Option<Own>) -> Passed {
        let index = index.as_constant().filter(|_| is_once);
        Passed { barrier, index, own, all: false }
    }
}

/// True where what comes ahead of these releases comes ahead of what is behind these waits: a role waits for all indices
/// in order.
fn is_handed_over(until: &[Passed], since: &[Passed]) -> bool {
    until.iter().any(|release| {
        since.iter().filter(|wait| wait.barrier == release.barrier).any(|wait| {
            let is_before = release.index.zip(wait.index).is_some_and(|(a, b)| a <= b);
            wait.all || is_before || (release.own.is_some() && release.own == wait.own)
        })
    })
}

/// What a role holds and has waited for at the begin of a block.
pub(super) struct Mark {
    holds: Vec<(Guard, Form)>,
    waited: usize,
}

/// An access of a role.
struct Beside {
    role: RoleId,
    touch: Touch,
    /// What the role had waited for.
    since: Vec<Passed>,
    /// What it released later.
    until: Vec<Passed>,
}

impl Region {
    /// What the role holds and has waited for at the begin of a block.
    pub(super) fn mark(&self) -> Mark {
        let holds = self.holds.iter().map(|hold| (hold.by, hold.index.clone())).collect();
        Mark { holds, waited: self.waited.len() }
    }

    /// What a block has opened or waited for counts no longer, and what it has released is not held again.
    pub(super) fn let_go(&mut self, mark: &Mark) {
        self.holds.retain_mut(|hold| {
            let is_known =
                |(by, index): &&(Guard, Form)| by.is_at(hold.by.end()) && *index == hold.index;
            let Some((by, _)) = mark.holds.iter().find(is_known) else { return false };
            // On a path around the block the role has come to other indices.
            if *by != hold.by {
                hold.by.later = None;
            }
            true
        });
        self.waited.truncate(mark.waited);
    }

    /// What the role has waited for ahead of an access.
    fn since(&self, kernel: &Kernel, touch: &Touch) -> Vec<Passed> {
        let passed = |waited: &Waited| {
            let Some(index) = &waited.index else {
                return Passed { barrier: waited.barrier, index: None, own: None, all: true };
            };
            let own = Own::of(kernel, touch, waited.barrier, index);
            Passed::new(waited.barrier, index, waited.is_once, own)
        };
        self.waited.iter().map(passed).collect()
    }

    /// Accesses of the roles so far.
    pub(super) fn len(&self) -> usize {
        self.touches.len() + self.entry.as_ref().map_or(0, State::len)
    }

    /// True where one thread runs the role that is walked.
    pub(super) fn is_one_thread(&self, kernel: &Kernel) -> bool {
        self.current.is_some_and(|role| kernel.roles[role].elect)
    }

    /// A product of the role writes sums: all that it has written so far.
    pub(super) fn written_by_product(
        &mut self,
        touch: &Touch,
        atom: TensorAtom,
    ) -> &[(Touch, TensorAtom)] {
        let sums = (touch.clone(), atom);
        if !self.product_sums.contains(&sums) {
            self.product_sums.push(sums);
        }
        &self.product_sums
    }

    /// The role that is walked.
    pub(super) fn current(&self) -> Option<RoleId> {
        self.current
    }

    /// What held when the first of the roles began.
    pub(super) fn entry(&self) -> Option<&State> {
        self.entry.as_ref()
    }

    /// The pipelines by which the role may hold what it touches: of two that hold the same index, either.
    pub(super) fn guards_of(&mut self, kernel: &Kernel, touch: &Touch) -> Vec<Guard> {
        let mut guards = Vec::new();
        for hold in self.holds.iter_mut().filter(|hold| !hold.copied) {
            if is_slot_of(kernel, touch, hold.by.pipeline, &hold.index) {
                let toucher = if touch.product { &mut hold.product } else { &mut hold.threads };
                toucher.get_or_insert(touch.span);
                guards.push(hold.by);
            }
        }
        guards
    }

    /// What a copy into an index fills.
    fn filled(&self, pipeline: BarrierId, index: &Form) -> Guard {
        let opened = |hold: &&Hold| hold.by.is_at((pipeline, true)) && hold.index == *index;
        let opened = self.holds.iter().find(opened).map(|hold| hold.by);
        opened.unwrap_or(Guard { pipeline, fills: true, later: None })
    }
}

/// True for an access of the slot of an index.
fn is_slot_of(kernel: &Kernel, touch: &Touch, pipeline: BarrierId, index: &Form) -> bool {
    let slots = kernel.smem[touch.tile].slots;
    kernel.barriers[pipeline].slots == slots && (slots == 1 || touch.slot.as_ref() == Some(index))
}

impl Walk<'_> {
    /// Walks a role from a state in which nobody of it has touched anything.
    pub(super) fn role(&mut self, role: RoleId, body: &[Stmt]) {
        let before = std::mem::take(&mut self.state);
        self.region.entry.get_or_insert(before);
        self.region.current = Some(role);
        self.region.waited.clear();
        self.region.product_sums.clear();
        self.block(body);
        self.leave_nothing();
        self.region.current = None;
        for (own, other, earlier, since) in std::mem::take(&mut self.region.pending) {
            let own = &self.region.touches[own];
            if !is_handed_over(&own.until, &since) {
                let touch = own.touch.clone();
                self.report_roles(role, &touch, other, &earlier);
            }
        }
        let after = std::mem::take(&mut self.state);
        // Some role waits for each copy into a barrier.
        let (touches, arrivals, tensor_reads) = (Vec::new(), Vec::new(), Vec::new());
        self.region.copies.join(State { touches, arrivals, tensor_reads, ..after });
    }

    /// All threads go on: what the roles have touched, any of them may have.
    pub(super) fn end_region(&mut self) {
        if self.region.current.is_some() {
            return;
        }
        let region = std::mem::take(&mut self.region);
        let Some(entry) = region.entry else { return };
        self.state = entry;
        self.state.join(region.copies);
        self.state.departures.join(region.departed);
        for Beside { mut touch, .. } in region.touches {
            touch.spread = None;
            touch.guards.clear();
            self.state.add(touch);
        }
    }

    /// What a role does at a barrier.
    pub(super) fn pipe(&mut self, op: &PipeOp, span: Span) {
        let (barrier, at) = op.place();
        let (index, partner) = (self.known.form(at), self.kernel.barriers[barrier].partner);
        let pipeline = partner.map_or(barrier, |partner| partner.min(barrier));
        let is_once = self.loops.is_empty();
        match op {
            PipeOp::Open { .. } | PipeOp::Wait { .. } if partner.is_some() => {
                let fills = matches!(op, PipeOp::Open { .. });
                let slots = self.kernel.barriers[barrier].slots;
                if !fills {
                    self.arrived(pipeline, &index, 0);
                } else if self.kernel.barriers[barrier].bytes > 0 {
                    self.arrived(pipeline, &index, slots);
                }
                let end = (pipeline, fills);
                self.state.come(end, slots);
                let earlier = self.region.holds.iter_mut().filter(|hold| hold.by.is_at(end));
                earlier.for_each(|hold| hold.by.come(slots));
                // Where copies fill the slot, the consumer waits for their bytes and for nothing that threads do.
                let copied = fills && self.kernel.barriers[barrier].bytes > 0;
                // Copies of a ring before are done.
                let of_ring =
                    |hold: &Hold| hold.copied && hold.by.later.is_some_and(|later| later >= slots);
                self.region.holds.retain(|hold| !of_ring(hold));
                self.region.holds.push(Hold::new(end, index, copied));
            }
            PipeOp::Release { .. } | PipeOp::Commit { .. } if partner.is_some() => {
                let commits = matches!(op, PipeOp::Commit { .. });
                if !commits {
                    self.meet_release(span, Some((pipeline, &index)));
                }
                self.unsettled(span, Some((pipeline, &index)));
                self.departing(span, Some((pipeline, &index)));
                let judge = self.judge();
                let is_other = |held: &Form| {
                    judge.constant_distance(held, &index).is_some_and(|distance| distance != 0)
                };
                let (kept, gone): (Vec<Hold>, Vec<Hold>) = self
                    .region
                    .holds
                    .iter()
                    .cloned()
                    .partition(|hold| hold.by.pipeline != pipeline || is_other(&hold.index));
                self.region.holds = kept;
                for hold in gone {
                    let late = if commits { hold.threads } else { hold.product };
                    late.into_iter().for_each(|late| self.report_release(span, late, commits));
                }
            }
            PipeOp::Wait { .. } => {
                self.arrived(pipeline, &index, 0);
                self.region.waited.push(Waited { barrier, index: Some(index), is_once });
            }
            PipeOp::Release { .. } | PipeOp::Commit { .. } => {
                let commits = matches!(op, PipeOp::Commit { .. });
                self.unsettled(span, None);
                self.departing(span, None);
                let slots = self.kernel.barriers[barrier].slots;
                if is_once && slots == 1 && !commits {
                    self.meet_release(span, None);
                }
                // What products of a warpgroup still read is not handed over by an index.
                let is_read = slots > 1 && !commits && self.state.products.may_read();
                let kernel = self.kernel;
                let current = self.region.current;
                let arrivals = self.state.arrivals.iter().map(|arrival| arrival.touch.span);
                let own = self.region.touches.iter_mut().filter(|t| {
                    let is_done = !arrivals.clone().any(|span| span == t.touch.span);
                    Some(t.role) == current && t.touch.product == commits && is_done
                });
                for access in own.filter(|_| !is_read) {
                    let own = Own::of(kernel, &access.touch, barrier, &index);
                    access.until.push(Passed::new(barrier, &index, is_once, own));
                }
            }
            PipeOp::Copy { dest, .. } => self.arrival(dest, barrier, pipeline, index),
            PipeOp::Send { dest, .. } if partner.is_some() => {
                // What is sent elsewhere, others of the cluster send here: it meets what other roles do.
                if let Some((tile, slot)) = dest.storage.tile() {
                    let known = &self.known;
                    let mut touch = Touch::new(dest, (tile, slot), Kind::Write, None, known);
                    touch.cta = None;
                    touch.guards = self.region.guards_of(self.kernel, &touch);
                    if is_slot_of(self.kernel, &touch, pipeline, &index) {
                        touch.guards.push(self.region.filled(pipeline, &index));
                    }
                    self.beside(&touch);
                }
            }
            PipeOp::Open { .. } | PipeOp::Send { .. } => {}
        }
    }

    /// Behind a loop that has waited for each index of a barrier, all are complete.
    pub(super) fn note_waits(
        &mut self,
        (var, start, end, step): (ValueId, ValueId, ValueId, u32),
        body: &[Stmt],
    ) {
        if step != 1 || self.region.current.is_none() {
            return;
        }
        let is_at = |form: Option<Form>, number: u32| {
            form.and_then(|form| form.as_constant()) == Some(i128::from(number))
        };
        for stmt in body {
            let StmtKind::Pipe(PipeOp::Wait { barrier, at }) = &stmt.kind else { continue };
            let declared = &self.kernel.barriers[*barrier];
            let var = Form::symbol(Symbol::Value(var));
            let Some(offset) = self.known.form(*at).plus(-1, &var) else { continue };
            let first = self.known.form(start).plus(1, &offset);
            let last = self.known.form(end).plus(1, &offset);
            if declared.partner.is_none() && is_at(first, 0) && is_at(last, declared.slots) {
                let all = Waited { barrier: *barrier, index: None, is_once: false };
                self.region.waited.push(all);
            }
        }
    }

    /// A copy into a barrier: it is complete for who waits for that one, whatever else the role hands over.
    fn arrival(&mut self, dest: &TileAccess, barrier: BarrierId, pipeline: BarrierId, index: Form) {
        let Some((tile, slot)) = dest.storage.tile() else { return };
        if self.inboxes.contains(&tile) {
            return;
        }
        let known = &self.known;
        let mut touch = Touch::new(dest, (tile, slot), Kind::Write, None, known);
        let fills = self.region.filled(pipeline, &index);
        // The pass over pipelines proves that the role holds the index.
        if is_slot_of(self.kernel, &touch, pipeline, &index) {
            touch.guards.push(fills);
        }
        self.meet_tensor(&touch);
        self.meet(&touch);
        self.beside(&touch);
        if self.kernel.barriers[barrier].is_prepaid() {
            let known = self.region.touches.iter_mut().filter(|known| known.touch == touch);
            let landed = Passed::new(barrier, &Form::constant(0), true, None);
            known.for_each(|known| known.until.push(landed.clone()));
        }
        self.state.start(Arrival { touch, fills, index: Some(index) });
    }

    /// The role comes to an index of a barrier: copies into those at least so far before are complete.
    fn arrived(&mut self, pipeline: BarrierId, index: &Form, before: u32) {
        let mut arrivals = std::mem::take(&mut self.state.arrivals);
        let judge = self.judge();
        let limit = index.plus(-i128::from(before), &Form::constant(1));
        let is_complete = |arrival: &Arrival| {
            let known = arrival.index.as_ref().zip(limit.as_ref());
            arrival.fills.pipeline == pipeline
                && known.is_some_and(|(index, limit)| judge.is_at_most(index, limit))
        };
        arrivals.retain(|arrival| !is_complete(arrival));
        self.state.arrivals = arrivals;
    }

    /// Reports a copy that may still fill what a release hands over: the slot of an index, or anything.
    fn unsettled(&mut self, span: Span, slot: Option<(BarrierId, &Form)>) {
        let judge = self.judge();
        let hands_over = |copy: &&Touch| {
            let is_meant = |(pipeline, index)| judge.may_hand_over(copy, pipeline, index);
            !copy.settled && slot.is_none_or(is_meant)
        };
        let found = self.state.copies.iter().find(hands_over).cloned();
        if let Some(copy) = found
            && self.reported.insert((copy.span, span))
        {
            let tile = &self.kernel.smem[copy.tile];
            self.sink.push(
                Diagnostic::error(
                    Code::E0118,
                    format!("`{}` is handed over while a copy may still fill it", tile.name),
                )
                .label(span, "who waits for this may read it")
                .secondary(copy.span, "the copy: not settled on every path")
                .secondary(tile.span, "declared here")
                .help("put `settle` before this"),
            );
        }
    }

    /// Compares an access of a role with what others do beside it or did before it.
    pub(super) fn beside(&mut self, touch: &Touch) {
        let Some(role) = self.region.current else { return };
        self.charge(touch.span, self.region.len(), 1);
        let judge = self.judge();
        let meets = |earlier: &Touch| {
            let writes = earlier.kind != Kind::Read || touch.kind != Kind::Read;
            writes && judge.may_overlap(earlier, touch)
        };
        let entry = self.region.entry.iter().flat_map(|state| &state.touches);
        let before = entry.into_iter().find(|earlier| meets(earlier)).cloned();
        let copies = self.region.entry.iter().flat_map(|state| &state.copies);
        let copy = copies.into_iter().find(|copy| judge.may_overlap(copy, touch)).cloned();
        let since = self.region.since(self.kernel, touch);
        let unordered = |other: &&Beside| {
            let handed = touch.guards.iter().any(|guard| {
                let handed = |known: &Guard| known.pipeline == guard.pipeline;
                other.touch.guards.iter().any(handed)
                    && self.are_opposite(guard.pipeline, [role, other.role])
            });
            let met = is_handed_over(&other.until, &since);
            other.role != role && !handed && !met && meets(&other.touch)
        };
        let others: Vec<(RoleId, Touch, Vec<Passed>)> = self
            .region
            .touches
            .iter()
            .filter(unordered)
            .map(|other| (other.role, other.touch.clone(), other.since.clone()))
            .collect();
        if let Some(earlier) = before {
            self.report(&earlier, touch);
        }
        if let Some(copy) = copy {
            self.report_copy(&copy, touch);
        }
        let known = self.region.touches.iter().position(|known| {
            known.role == role
                && known.touch == *touch
                && known.since == since
                && known.until.is_empty()
        });
        // In another round of a loop it meets what it did not meet before.
        let own = known.unwrap_or_else(|| {
            let (touch, until) = (touch.clone(), Vec::new());
            self.region.touches.push(Beside { role, touch, since, until });
            self.region.touches.len() - 1
        });
        let pending = others.into_iter().map(|(role, touch, since)| (own, role, touch, since));
        self.region.pending.extend(pending);
    }

    /// True where one of two roles fills the slots of a pipeline and the other one uses them. Two on one side hold a slot
    /// at once.
    fn are_opposite(&self, full: BarrierId, [a, b]: [RoleId; 2]) -> bool {
        let Barrier { from, to, .. } = &self.kernel.barriers[full];
        let fills = |role: RoleId| from.contains(&role) && !to.contains(&role);
        let uses = |role: RoleId| to.contains(&role) && !from.contains(&role);
        (fills(a) && uses(b)) || (uses(a) && fills(b))
    }

    fn report_release(&mut self, release: Span, touch: Span, commits: bool) {
        if !self.reported.insert((touch, release)) {
            return;
        }
        let (message, why, help) = if commits {
            (
                "a slot is committed that threads of the role touch",
                "products alone are waited for by a `commit`",
                "write `release` where the threads of a role use a slot",
            )
        } else {
            (
                "a slot is released while a product may still touch it",
                "this does not wait for products",
                "write `commit` in place of `release`: the barrier is reached when the products are complete",
            )
        };
        self.sink.push(
            Diagnostic::error(Code::E0146, message)
                .label(release, why)
                .secondary(touch, "touched here")
                .help(help),
        );
    }

    fn report_roles(&mut self, role: RoleId, later: &Touch, other: RoleId, earlier: &Touch) {
        if !self.reported.insert((earlier.span, later.span)) {
            return;
        }
        let tile = &self.kernel.smem[later.tile];
        let place = if tile.is_tensor() { "tensor memory" } else { "shared memory" };
        let name = |role: RoleId| &self.kernel.roles[role].name;
        self.sink.push(
            Diagnostic::error(
                Code::E0153,
                format!("two roles touch `{}` in {place}, and nothing orders them", tile.name),
            )
            .label(later.span, format!("`{}` {} it", name(role), verb(later.kind)))
            .secondary(earlier.span, format!("`{}` {} it", name(other), verb(earlier.kind)))
            .secondary(tile.span, "declared here")
            .help(
                "hand it over by a pipeline, from a role that opens it to one that waits for it: the slot that is touched is \
                 the index that they hold; or give each role a part of its own",
            ),
        );
    }
}

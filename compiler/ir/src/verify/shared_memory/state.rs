//! What has touched shared memory since the last `sync`.

use kernel_dsl::source::Span;

use super::super::scalars::{Form, Knowledge};
use super::landing::BackEdge;
use super::outgoing::Departures;
use super::products::Products;
use crate::distribution::Distribution;
use crate::kernel::{
    AxisIndex, BarrierId, Op, SmemId, Stmt, StmtKind, Storage, TileAccess, ValueId, ViewAxis,
};

/// More groups than any `settle` leaves in flight.
pub(super) const MAX_SINCE: u32 = 64;

/// What an access does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    /// An asynchronous write.
    Copy,
}

/// What is known of an index along an axis of a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Side {
    /// Positions from a start on.
    Range { start: Form, len: u32, is_axis: bool },
    /// Any positions.
    Unknown,
}

/// Which CTA of the cluster; unknown without.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cta(pub(super) Option<Form>);

/// An end of a pipeline, or a barrier, by which the role holds what it touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Guard {
    pub(super) pipeline: BarrierId,
    /// The role fills the slot; otherwise it uses it.
    pub(super) fills: bool,
    /// Indices that the role has come to at this end since; unknown without. It comes to all of them, in order.
    pub(super) later: Option<u32>,
}

impl Guard {
    pub(super) fn end(&self) -> (BarrierId, bool) {
        (self.pipeline, self.fills)
    }

    pub(super) fn is_at(&self, end: (BarrierId, bool)) -> bool {
        self.end() == end
    }

    /// The role comes to one more index of a ring.
    pub(super) fn come(&mut self, slots: u32) {
        self.later = self.later.map(|later| later.saturating_add(1).min(slots));
    }
}

/// An access of shared memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Touch {
    pub(super) tile: SmemId,
    pub(super) kind: Kind,
    pub(super) span: Span,
    /// The CTA of the cluster, where it is not the own one.
    pub(super) cta: Option<Cta>,
    /// Which slot, before it is taken modulo the ring; unknown without.
    pub(super) slot: Option<Form>,
    /// The view that it is seen through.
    pub(super) axes: Vec<ViewAxis>,
    /// One entry an axis of the view.
    pub(super) sides: Vec<Side>,
    /// Axes of the tile of the access that are new.
    pub(super) new_axes: Vec<usize>,
    /// How the elements are spread over threads; unknown without.
    pub(super) spread: Option<Distribution>,
    /// The pipelines that hand the slot over, where the role holds it.
    pub(super) guards: Vec<Guard>,
    /// A product in tensor memory does it, later than the statements that follow.
    pub(super) product: bool,
    /// It has lasted into the next round of a loop.
    is_earlier: bool,
    /// Loops whose variables are named, with the number of rounds into which it has lasted.
    crossed: Vec<(ValueId, u32)>,
    /// Of a copy: groups that were closed after its own.
    pub(super) since: u32,
    /// Of a copy: later ones to the same tile, or out of it.
    pub(super) younger: u32,
    /// Of a copy: each thread has waited for its own part.
    pub(super) settled: bool,
}

impl Touch {
    pub(super) fn new(
        access: &TileAccess,
        (tile, slot): (SmemId, Option<ValueId>),
        kind: Kind,
        spread: Option<&Distribution>,
        known: &Knowledge<'_>,
    ) -> Touch {
        let form = |value| known.form(value);
        let mut sides = Vec::new();
        let mut new_axes = Vec::new();
        for (at, index) in access.index.iter().enumerate() {
            match index {
                AxisIndex::At(position) => {
                    sides.push(Side::Range { start: form(*position), len: 1, is_axis: false });
                }
                AxisIndex::Range { start, len, until: _ } => {
                    sides.push(Side::Range { start: form(*start), len: *len, is_axis: true });
                }
                AxisIndex::Gather(_) | AxisIndex::Along(_) => sides.push(Side::Unknown),
                AxisIndex::New => new_axes.push(at),
            }
        }
        Touch {
            tile,
            kind,
            span: access.span,
            cta: access.storage.cta().map(|cta| Cta(Some(form(cta)))),
            slot: Some(known.on_ring(slot.map_or(Form::constant(0), form), tile)),
            axes: access.axes.clone(),
            sides,
            new_axes,
            spread: spread.cloned(),
            guards: Vec::new(),
            product: false,
            is_earlier: false,
            crossed: Vec::new(),
            since: 0,
            younger: 0,
            settled: false,
        }
    }

    pub(super) fn is_of_earlier_round(&self) -> bool {
        self.is_earlier
    }

    /// True where it may have lasted for any number of rounds.
    pub(super) fn is_old(&self, edge: BackEdge<'_>) -> bool {
        self.crossed.iter().any(|&(known, age)| known == edge.var && age >= edge.most)
    }

    /// Says in the words of the next round what was said in those of this one. Rounds are counted where something that is
    /// known of it names the variable, or where `counted` says that something else does.
    pub(super) fn next_round(&mut self, edge: BackEdge<'_>, counted: bool) {
        let old = self.is_old(edge);
        let mut names = counted;
        let mut renamed = |form: &Form| {
            let form = edge.renamed(form, old);
            names |= form.as_ref().is_some_and(|form| edge.is_named(form));
            form
        };
        self.slot = self.slot.as_ref().and_then(&mut renamed);
        if let Some(Cta(cta)) = &mut self.cta {
            *cta = cta.as_ref().and_then(&mut renamed);
        }
        for side in &mut self.sides {
            if let Side::Range { start, .. } = side {
                let moved = edge.moved(start, old);
                names |= moved.as_ref().is_some_and(|form| edge.is_named(form));
                match moved {
                    Some(form) => *start = form,
                    None => *side = Side::Unknown,
                }
            }
        }
        self.is_earlier = true;
        let at = self.crossed.iter().position(|(known, _)| *known == edge.var);
        match at {
            Some(at) if names => {
                let age = &mut self.crossed[at].1;
                *age = age.saturating_add(1).min(edge.most);
            }
            Some(at) => {
                self.crossed.remove(at);
            }
            None if names => {
                self.crossed.push((edge.var, 1));
                self.crossed.sort_unstable();
            }
            None => {}
        }
    }

    /// True for two at different indices of one end of a pipeline. They are in different slots; or the earlier index is a
    /// ring behind, and the role has come to the later one when all threads had given the earlier one back.
    pub(super) fn is_at_other_index(&self, other: &Touch) -> bool {
        let differ = |a: &Guard, b: &Guard| {
            a.is_at(b.end()) && a.later.zip(b.later).is_some_and(|(a, b)| a != b)
        };
        self.guards.iter().any(|a| other.guards.iter().any(|b| differ(a, b)))
    }

    /// The role comes to one more index of a ring. True where the slot has come back since, so that the access is in
    /// order with all that follow.
    pub(super) fn come(&mut self, end: (BarrierId, bool), slots: u32) -> bool {
        let mut came_back = false;
        for guard in self.guards.iter_mut().filter(|guard| guard.is_at(end)) {
            guard.come(slots);
            came_back |= guard.later.is_some_and(|later| later >= slots);
        }
        came_back
    }

    /// The same of what may not be complete when the slot comes back: nothing is known of it then.
    pub(super) fn come_under_way(&mut self, end: (BarrierId, bool), slots: u32) {
        if self.come(end, slots) {
            let guards = self.guards.iter_mut().filter(|guard| guard.is_at(end));
            guards.for_each(|guard| guard.later = None);
        }
    }

    /// True for two that differ at most in what is known of their completion.
    pub(super) fn is_same(&self, other: &Touch) -> bool {
        let Touch { since, younger, settled, .. } = *other;
        Touch { since, younger, settled, ..self.clone() } == *other
    }
}

/// A copy into a barrier that the role has started, and of whose end it does not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) touch: Touch,
    /// What the copy fills.
    pub(super) fills: Guard,
    /// The index there; unknown without.
    pub(super) index: Option<Form>,
}

/// What holds at a place of the kernel.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    /// Accesses since the last `sync` on some path.
    pub(super) touches: Vec<Touch>,
    /// Copies that some path has not settled, or not met in `sync` since.
    pub(super) copies: Vec<Touch>,
    /// Copies into barriers. No `sync` ends one: who waits for its index knows that it is complete.
    pub(super) arrivals: Vec<Arrival>,
    /// What products in tensor memory read that the role has started.
    pub(super) tensor_reads: Vec<Touch>,
    /// Products of a warpgroup under way.
    pub(super) products: Products,
    /// Copies out of shared memory, and what they may not read yet.
    pub(super) departures: Departures,
}

impl PartialEq for State {
    /// The order does not matter.
    fn eq(&self, other: &State) -> bool {
        fn same<T: PartialEq>(a: &[T], b: &[T]) -> bool {
            a.len() == b.len() && a.iter().all(|t| b.contains(t))
        }
        same(&self.touches, &other.touches)
            && same(&self.copies, &other.copies)
            && same(&self.arrivals, &other.arrivals)
            && same(&self.tensor_reads, &other.tensor_reads)
            && self.products == other.products
            && self.departures == other.departures
    }
}

impl State {
    /// Accesses that are known.
    pub(super) fn len(&self) -> usize {
        self.touches.len()
            + self.copies.len()
            + self.arrivals.len()
            + self.tensor_reads.len()
            + self.products.len()
            + self.departures.len()
    }

    pub(super) fn add(&mut self, touch: Touch) {
        if touch.kind == Kind::Copy {
            self.close_group();
            for copy in self.copies.iter_mut().filter(|copy| copy.tile == touch.tile) {
                copy.younger = copy.younger.saturating_add(1).min(MAX_SINCE);
            }
            self.add_copy(touch);
        } else if !self.touches.contains(&touch) {
            self.touches.push(touch);
        }
    }

    /// Adds a copy, or what another path knows of it.
    fn add_copy(&mut self, copy: Touch) {
        match self.copies.iter_mut().find(|known| known.is_same(&copy)) {
            Some(known) => {
                known.since = known.since.min(copy.since);
                known.younger = known.younger.min(copy.younger);
                known.settled &= copy.settled;
            }
            None => self.copies.push(copy),
        }
    }

    /// A group that is younger than all copies so far.
    pub(super) fn close_group(&mut self) {
        for copy in &mut self.copies {
            copy.since = copy.since.saturating_add(1).min(MAX_SINCE);
        }
    }

    /// All but the `pending` youngest groups are complete.
    pub(super) fn settle(&mut self, pending: u32) {
        for copy in &mut self.copies {
            copy.settled |= copy.since >= pending;
        }
    }

    /// The threads that settled copies are all that there are.
    pub(super) fn retire(&mut self) {
        self.copies.retain(|copy| !copy.settled);
    }

    /// The role comes to one more index of a pipeline: what its threads did at the index a ring before, they did before
    /// they gave it back. Nothing orders what they do at indices between.
    pub(super) fn come(&mut self, end: (BarrierId, bool), slots: u32) {
        self.touches.retain_mut(|touch| !touch.come(end, slots));
        self.copies.retain_mut(|copy| {
            if !copy.settled {
                copy.come_under_way(end, slots);
            }
            !copy.settled || !copy.come(end, slots)
        });
        self.arrivals.retain_mut(|arrival| {
            arrival.touch.come(end, slots);
            if arrival.fills.is_at(end) {
                arrival.fills.come(slots);
            }
            arrival.fills.later.is_none_or(|later| later < slots)
        });
        for read in &mut self.tensor_reads {
            read.come_under_way(end, slots);
        }
        self.products.come(end, slots);
        self.departures.come(end, slots);
    }

    /// A copy into a barrier begins.
    pub(super) fn start(&mut self, arrival: Arrival) {
        if !self.arrivals.contains(&arrival) {
            self.arrivals.push(arrival);
        }
    }

    /// A product in tensor memory reads something.
    pub(super) fn read_by_product(&mut self, touch: Touch) {
        if !self.tensor_reads.contains(&touch) {
            self.tensor_reads.push(touch);
        }
    }

    /// All threads of the cluster meet.
    pub(super) fn sync_cluster(&mut self) {
        self.sync();
        self.departures.sync_cluster();
    }

    /// All threads meet.
    pub(super) fn sync(&mut self) {
        self.touches.clear();
        self.departures.sync();
        self.copies.retain(|copy| !copy.settled);
    }

    /// Two paths meet.
    pub(super) fn join(&mut self, other: State) {
        for touch in other.touches {
            self.add(touch);
        }
        for copy in other.copies {
            self.add_copy(copy);
        }
        other.arrivals.into_iter().for_each(|arrival| self.start(arrival));
        other.tensor_reads.into_iter().for_each(|read| self.read_by_product(read));
        self.products.join(other.products);
        self.departures.join(other.departures);
    }

    /// A back edge.
    pub(super) fn next_round(&mut self, edge: BackEdge<'_>) {
        for touch in std::mem::take(&mut self.touches) {
            let mut touch = touch;
            touch.next_round(edge, false);
            self.add(touch);
        }
        for copy in std::mem::take(&mut self.copies) {
            let mut copy = copy;
            copy.next_round(edge, false);
            self.add_copy(copy);
        }
        for mut arrival in std::mem::take(&mut self.arrivals) {
            let old = arrival.touch.is_old(edge);
            arrival.index = arrival.index.and_then(|index| edge.renamed(&index, old));
            let named = arrival.index.as_ref().is_some_and(|index| edge.is_named(index));
            arrival.touch.next_round(edge, named);
            self.start(arrival);
        }
        for mut read in std::mem::take(&mut self.tensor_reads) {
            read.next_round(edge, false);
            self.read_by_product(read);
        }
        self.products.next_round(edge);
        self.departures.next_round(edge);
    }
}

/// True where the statements change what is known of shared memory.
pub(super) fn touches(stmts: &[Stmt]) -> bool {
    stmts.iter().any(|stmt| match &stmt.kind {
        StmtKind::Def { op: Op::Load { access, .. }, .. } | StmtKind::Store { access, .. } => {
            matches!(access.storage, Storage::Smem(..) | Storage::Remote(..))
        }
        StmtKind::CopyAsync { .. }
        | StmtKind::EmptyGroup
        | StmtKind::Outgoing(_)
        | StmtKind::Settle { .. }
        | StmtKind::Warpgroup(_)
        | StmtKind::Tensor(_)
        | StmtKind::Sync
        | StmtKind::Await(_)
        | StmtKind::SyncCluster
        | StmtKind::SyncRole
        | StmtKind::Pipe(_) => true,
        StmtKind::For { body, .. } | StmtKind::Role { body, .. } => touches(body),
        StmtKind::If { then_body, else_body, .. } => touches(then_body) || touches(else_body),
        StmtKind::Def { .. }
        | StmtKind::Signal(_)
        | StmtKind::SetVar { .. }
        | StmtKind::Prefetch { .. }
        | StmtKind::Advance { .. }
        | StmtKind::GridWait
        | StmtKind::GridLaunch
        | StmtKind::Assert { .. }
        | StmtKind::Trace { .. }
        | StmtKind::Printf { .. } => false,
    })
}

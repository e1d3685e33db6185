//! What has touched shared memory since the last `sync`.

use std::collections::BTreeSet;

use kernel_dsl::source::Span;

use super::super::scalars::{Form, Symbol};
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
    pub(super) guards: Vec<BarrierId>,
    /// Those by which its slot has come into other hands since. Whoever holds a slot by one of them comes behind it.
    pub(super) handed: Vec<BarrierId>,
    /// A product in tensor memory does it, later than the statements that follow.
    pub(super) product: bool,
    /// Loops into whose next round it has lasted, with the number of rounds.
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
        tile: SmemId,
        slot: Option<ValueId>,
        kind: Kind,
        spread: Option<&Distribution>,
        form: impl Fn(ValueId) -> Form,
    ) -> Touch {
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
            slot: Some(slot.map_or(Form::constant(0), &form)),
            axes: access.axes.clone(),
            sides,
            new_axes,
            spread: spread.cloned(),
            guards: Vec::new(),
            handed: Vec::new(),
            product: false,
            crossed: Vec::new(),
            since: 0,
            younger: 0,
            settled: false,
        }
    }

    pub(super) fn is_of_earlier_round(&self) -> bool {
        !self.crossed.is_empty()
    }

    /// True where it may have lasted for any number of rounds.
    pub(super) fn is_old(&self, var: ValueId, most: u32) -> bool {
        self.crossed.iter().any(|&(known, age)| known == var && age >= most)
    }

    /// Says in the words of the next round what was said in those of this one.
    pub(super) fn next_round(
        &mut self,
        var: ValueId,
        step: u32,
        most: u32,
        own: &BTreeSet<ValueId>,
    ) {
        let at = self.crossed.iter().position(|(known, _)| *known == var);
        let age = at.map_or(0, |at| self.crossed[at].1);
        let old = self.is_old(var, most);
        let renamed = |form: &Form| {
            let mentions = |value: &ValueId| form.terms.contains_key(&Symbol::Value(*value));
            if own.iter().any(mentions) {
                return None;
            }
            match form.terms.get(&Symbol::Value(var)) {
                None => Some(form.clone()),
                Some(_) if old => None,
                Some(&factor) => form.plus(-factor, &Form::constant(i128::from(step))),
            }
        };
        self.slot = self.slot.as_ref().and_then(renamed);
        if let Some(Cta(cta)) = &mut self.cta {
            *cta = cta.as_ref().and_then(renamed);
        }
        for side in &mut self.sides {
            if let Side::Range { start, .. } = side {
                match renamed(start) {
                    Some(form) => *start = form,
                    None => *side = Side::Unknown,
                }
            }
        }
        match at {
            Some(at) => self.crossed[at].1 = age.saturating_add(1).min(most),
            None => self.crossed.push((var, 1)),
        }
        if !self.handed.is_empty() {
            self.forget_place(var);
        }
    }

    /// What went into other hands in a round before is met by what holds no slot alone: where it was in the tile does not
    /// matter.
    fn forget_place(&mut self, var: ValueId) {
        self.slot = None;
        self.sides.iter_mut().for_each(|side| *side = Side::Unknown);
        self.spread = None;
        self.crossed = vec![(var, 1)];
    }

    /// True for two that differ at most in what is known of their completion.
    pub(super) fn is_same(&self, other: &Touch) -> bool {
        let Touch { since, younger, settled, .. } = *other;
        Touch { since, younger, settled, ..self.clone() } == *other
    }
}

/// What holds at a place of the kernel.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    /// Accesses since the last `sync` on some path.
    pub(super) touches: Vec<Touch>,
    /// Copies that some path has not settled, or not met in `sync` since.
    pub(super) copies: Vec<Touch>,
    /// Products of a warpgroup under way.
    pub(super) products: Products,
    /// Copies out of shared memory, and what they may not read yet.
    pub(super) departures: Departures,
}

impl PartialEq for State {
    /// The order does not matter.
    fn eq(&self, other: &State) -> bool {
        let same = |a: &[Touch], b: &[Touch]| a.len() == b.len() && a.iter().all(|t| b.contains(t));
        same(&self.touches, &other.touches)
            && same(&self.copies, &other.copies)
            && self.products == other.products
            && self.departures == other.departures
    }
}

impl State {
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

    /// A slot of a pipeline comes into other hands: what was done to those of earlier rounds comes ahead of what is done
    /// to slots that are held by it from now on, but for those that the role holds still.
    pub(super) fn hand_over(&mut self, pipeline: BarrierId, held: &[Form]) {
        let stays = |touch: &Touch| {
            !touch.guards.contains(&pipeline)
                || touch.slot.as_ref().is_some_and(|s| held.contains(s))
        };
        self.departures.hand_over(stays);
        let (left, landed) =
            std::mem::take(&mut self.copies).into_iter().partition(|c| !c.settled || stays(c));
        self.copies = left;
        let landed: Vec<Touch> = landed;
        let landed = landed.into_iter().map(|copy| Touch {
            kind: Kind::Write,
            since: 0,
            younger: 0,
            settled: false,
            ..copy
        });
        for mut touch in std::mem::take(&mut self.touches).into_iter().chain(landed) {
            if !stays(&touch) && !touch.handed.contains(&pipeline) {
                touch.handed.push(pipeline);
            }
            self.add(touch);
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
        self.products.join(other.products);
        self.departures.join(other.departures);
    }

    /// A back edge.
    pub(super) fn next_round(&mut self, edge: BackEdge<'_>) {
        let BackEdge { var, step, most, own, .. } = edge;
        for touch in std::mem::take(&mut self.touches) {
            let mut touch = touch;
            touch.next_round(var, step, most, own);
            self.add(touch);
        }
        for copy in std::mem::take(&mut self.copies) {
            let mut copy = copy;
            copy.next_round(var, step, most, own);
            self.add_copy(copy);
        }
        self.products.next_round(var, step, most, own);
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

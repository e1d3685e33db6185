//! R6: copies out of shared memory read what has been published, and what they read is written only when they have.
//!
//! Copies go another way to memory than the accesses of threads. What a thread has stored comes ahead of what a copy
//! reads by a `publish` of the thread behind the store, and a meeting or a barrier behind that. A copy reads at any
//! time until its first thread has settled it, and is complete when that thread has settled the buffer. Until then no
//! other copy writes the same elements, and none of another thread before they have met.

use std::collections::BTreeSet;

use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::super::scalars::Form;
use super::Walk;
use super::landing::{BackEdge, Landing};
use super::roles::Region;
use super::state::{Kind, MAX_SINCE, Touch};
use crate::kernel::{
    BarrierId, Outgoing, ParamId, RoleId, SmemId, Stmt, StmtKind, Storage, TileAccess, ValueId,
    each_access,
};

/// A copy out of shared memory that nothing has waited for to the end.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Departure {
    /// What it reads; settled when it has read it.
    touch: Touch,
    /// What it writes.
    landing: Landing,
    /// Whose first thread has started it; that of the CTA without.
    by: Option<RoleId>,
    /// Later copies to the same buffer.
    younger: u32,
    span: Span,
}

/// What threads have stored to a tile that copies read.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Written {
    touch: Touch,
    /// Each thread has ordered its own part; a meeting has to follow.
    published: bool,
    /// It came from another CTA, and the cluster has not met since: only then the threads here can publish it.
    is_foreign: bool,
}

/// Copies out of shared memory on some path, and what they may not read.
#[derive(Debug, Clone, Default)]
pub(super) struct Departures {
    copies: Vec<Departure>,
    /// Copies that are complete, and known to be by the thread that started them alone.
    landed: Vec<Departure>,
    written: Vec<Written>,
}

impl PartialEq for Departures {
    /// The order does not matter.
    fn eq(&self, other: &Departures) -> bool {
        fn same<T: PartialEq>(a: &[T], b: &[T]) -> bool {
            a.len() == b.len() && a.iter().all(|x| b.contains(x))
        }
        same(&self.copies, &other.copies)
            && same(&self.landed, &other.landed)
            && same(&self.written, &other.written)
    }
}

impl Departures {
    /// Copies, and what they may not read.
    pub(super) fn len(&self) -> usize {
        self.copies.len() + self.landed.len() + self.written.len()
    }

    fn close_group(&mut self) {
        for copy in &mut self.copies {
            copy.touch.since = copy.touch.since.saturating_add(1).min(MAX_SINCE);
        }
    }

    fn start(&mut self, copy: Departure) {
        self.close_group();
        let one_more = |count: &mut u32| *count = count.saturating_add(1).min(MAX_SINCE);
        for known in &mut self.copies {
            if known.touch.tile == copy.touch.tile {
                one_more(&mut known.touch.younger);
            }
            if known.landing.param == copy.landing.param {
                one_more(&mut known.younger);
            }
        }
        self.add(copy);
    }

    fn add(&mut self, copy: Departure) {
        let same = |known: &&mut Departure| {
            known.landing == copy.landing
                && known.by == copy.by
                && known.span == copy.span
                && known.touch.is_same(&copy.touch)
        };
        match self.copies.iter_mut().find(same) {
            Some(known) => {
                known.touch.since = known.touch.since.min(copy.touch.since);
                known.touch.younger = known.touch.younger.min(copy.touch.younger);
                known.touch.settled &= copy.touch.settled;
                known.younger = known.younger.min(copy.younger);
            }
            None => self.copies.push(copy),
        }
    }

    fn land(&mut self, copy: Departure) {
        if !self.landed.contains(&copy) {
            self.landed.push(copy);
        }
    }

    fn write(&mut self, written: Written) {
        match self.written.iter_mut().find(|known| known.touch == written.touch) {
            Some(known) => {
                known.published &= written.published;
                known.is_foreign |= written.is_foreign;
            }
            None => self.written.push(written),
        }
    }

    /// Threads meet that have published.
    pub(super) fn sync(&mut self) {
        self.written.retain(|written| !written.published);
        self.landed.clear();
    }

    /// What has come from other CTAs is here.
    pub(super) fn sync_cluster(&mut self) {
        self.written.iter_mut().for_each(|written| written.is_foreign = false);
    }

    /// The role comes to one more index of a pipeline.
    pub(super) fn come(&mut self, end: (BarrierId, bool), slots: u32) {
        self.written.retain_mut(|written| !written.touch.come(end, slots));
        for copy in &mut self.copies {
            copy.touch.come_under_way(end, slots);
        }
    }

    /// Two paths meet.
    pub(super) fn join(&mut self, other: Departures) {
        other.copies.into_iter().for_each(|copy| self.add(copy));
        other.landed.into_iter().for_each(|copy| self.land(copy));
        other.written.into_iter().for_each(|written| self.write(written));
    }

    /// A back edge.
    pub(super) fn next_round(&mut self, edge: BackEdge<'_>) {
        let next = |copy: &mut Departure| {
            let old = copy.touch.is_old(edge);
            copy.landing.next_round(edge, old);
            copy.touch.next_round(edge, copy.landing.names(edge));
        };
        for mut copy in std::mem::take(&mut self.copies) {
            next(&mut copy);
            self.add(copy);
        }
        for mut copy in std::mem::take(&mut self.landed) {
            next(&mut copy);
            self.land(copy);
        }
        for mut written in std::mem::take(&mut self.written) {
            written.touch.next_round(edge, false);
            self.write(written);
        }
    }
}

impl Region {
    /// The copies that the roles so far have started.
    fn departed(&self) -> &[Departure] {
        &self.departed.landed
    }

    fn depart(&mut self, copy: &Departure) {
        if self.current().is_some() {
            self.departed.land(copy.clone());
        }
    }
}

impl Walk<'_> {
    pub(super) fn outgoing(&mut self, stmt: &Stmt, op: &Outgoing) {
        match op {
            Outgoing::Copy { source, dest, .. } => self.depart(stmt.span, source, dest),
            Outgoing::EmptyGroup => self.state.departures.close_group(),
            Outgoing::Settle { storage, but, pending } => {
                self.settle_departures(stmt, *storage, *but, *pending);
            }
            Outgoing::Publish { storage } => {
                if let Some((tile, slot)) = storage.tile() {
                    self.publish(tile, slot);
                }
            }
        }
    }

    /// Threads have written shared memory, by stores or by copies of their own.
    pub(super) fn written(&mut self, touch: Option<Touch>) {
        let Some(touch) = touch.filter(|touch| self.leaving.tiles.contains(&touch.tile)) else {
            return;
        };
        let is_foreign = touch.cta.is_some();
        self.state.departures.write(Written { touch, published: false, is_foreign });
    }

    /// Each thread orders what it has written to a tile, or to one slot of it, and knows of: not what its own copies may
    /// still bring, nor what it has stored to other CTAs.
    fn publish(&mut self, tile: SmemId, slot: Option<ValueId>) {
        let mut own = std::mem::take(&mut self.state.departures.written);
        let judge = self.judge();
        let slot = slot.map(|slot| self.known.form(slot));
        let is_meant = |touch: &Touch| {
            let Some(slot) = &slot else { return true };
            judge.distance(tile, touch.slot.as_ref(), Some(slot)) == Some(0)
        };
        let own_tile =
            |written: &&mut Written| written.touch.tile == tile && is_meant(&written.touch);
        for written in own.iter_mut().filter(own_tile) {
            let coming = |copy: &Touch| !copy.settled && judge.may_overlap(copy, &written.touch);
            written.published |= !written.is_foreign && !self.state.copies.iter().any(coming);
        }
        if self.region.is_one_thread(self.kernel) {
            own.retain(|written| !written.published);
        }
        self.state.departures.written = own;
    }

    fn depart(&mut self, span: Span, source: &TileAccess, dest: &TileAccess) {
        let Some(touch) = self.touch(source, Kind::Read, None) else { return };
        let judge = self.judge();
        let own = &self.state.departures.written;
        let before = self.region.entry().into_iter().flat_map(|state| &state.departures.written);
        let open = own
            .iter()
            .chain(before)
            .find(|written| judge.may_overlap(&written.touch, &touch))
            .cloned();
        if let Some(written) = open {
            self.report_unpublished(span, &written);
        }
        if let Some(param) = dest.storage.param() {
            let landing = Landing::new(param, dest, |value| self.known.form(value));
            let by = self.region.current();
            let copy = Departure { touch, landing, by, younger: 0, span };
            self.meet_landings(&copy);
            self.region.depart(&copy);
            self.state.departures.start(copy);
        }
    }

    /// Copies to elements that an earlier one may still write, or one of another thread.
    fn meet_landings(&mut self, copy: &Departure) {
        let judge = self.judge();
        let own = &self.state.departures;
        let before = self.region.entry().map(|state| &state.departures);
        let found = own
            .copies
            .iter()
            .chain(own.landed.iter().filter(|earlier| earlier.by != copy.by))
            .chain(before.into_iter().flat_map(|before| before.copies.iter().chain(&before.landed)))
            .chain(self.region.departed().iter().filter(|earlier| earlier.by != copy.by))
            .find(|earlier| earlier.landing.may_meet(&copy.landing, &judge))
            .cloned();
        if let Some(earlier) = found {
            self.report_order(copy, &earlier);
        }
    }

    fn settle_departures(&mut self, stmt: &Stmt, storage: Storage, but: Option<u32>, pending: u32) {
        let judge = self.judge();
        let is_own = |copy: &&Departure| match storage {
            Storage::Smem(tile, _) | Storage::Remote(tile, ..) => copy.touch.tile == tile,
            Storage::Buffer(param)
            | Storage::Peer(param, _)
            | Storage::Peers(param)
            | Storage::Multicast(param, _) => copy.landing.param == param,
        };
        let form = storage.slot().map_or(Form::constant(0), |slot| self.known.form(slot));
        let meets = |copy: &&Departure| match (storage.tile(), but) {
            (Some(_), Some(but)) => copy.touch.younger >= but,
            (None, Some(but)) => copy.younger >= but,
            (None, None) => true,
            (Some((tile, _)), None) => {
                let distance = judge.distance(tile, copy.touch.slot.as_ref(), Some(&form));
                distance.is_none_or(|distance| distance == 0)
            }
        };
        let copies = &self.state.departures.copies;
        let least = copies.iter().filter(is_own).filter(meets).map(|copy| copy.touch.since).min();
        // There may be fewer than are left alone.
        let found = but.is_some() || least.is_some();
        match storage.tile() {
            Some((tile, _)) => *self.settles.entry((stmt.span, tile)).or_insert(false) |= found,
            None => *self.idle.entry(stmt.span).or_insert(false) |= found,
        }
        let pending = self.pending(stmt, least, pending);
        let one_thread = self.region.is_one_thread(self.kernel);
        let copies = std::mem::take(&mut self.state.departures.copies);
        for mut copy in copies {
            if copy.touch.since >= pending {
                // What it has read, threads may write when they have met the one that has waited.
                if !copy.touch.settled && !one_thread {
                    let mut read = copy.touch.clone();
                    (read.since, read.younger) = (0, 0);
                    self.state.add(read);
                }
                copy.touch.settled = true;
                if storage.tile().is_none() {
                    if !self.kernel.roles.is_empty() && self.region.current().is_none() {
                        self.state.departures.land(copy);
                    }
                    continue;
                }
            }
            self.state.departures.copies.push(copy);
        }
    }

    /// Copies of the role, and those from before it.
    fn under_way(&self) -> impl Iterator<Item = &Departure> {
        let before = self.region.entry().into_iter().flat_map(|state| &state.departures.copies);
        self.state.departures.copies.iter().chain(before)
    }

    /// A write of shared memory against copies that may still read it.
    pub(super) fn meet_departures(&mut self, touch: &Touch) {
        if touch.kind == Kind::Read {
            return;
        }
        let judge = self.judge();
        let reads =
            |copy: &&Departure| !copy.touch.settled && judge.may_overlap(&copy.touch, touch);
        let found = self.under_way().find(reads).cloned();
        if let Some(copy) = found {
            self.report_read(touch.span, "this writes what the copy reads", &copy);
        }
    }

    /// A meeting of the cluster against copies of what other CTAs may write after it.
    pub(super) fn meet_cluster(&mut self, span: Span) {
        let mut others = BTreeSet::new();
        find_written_by_others(&self.kernel.body, &mut others);
        let found = self
            .under_way()
            .find(|copy| !copy.touch.settled && others.contains(&copy.touch.tile))
            .cloned();
        if let Some(copy) = found {
            self.report_read(span, "other CTAs may write it behind this", &copy);
        }
    }

    /// What a role hands over: no copy reads it any more, and copies of others may.
    pub(super) fn departing(&mut self, span: Span, slot: Option<(BarrierId, &Form)>) {
        let judge = self.judge();
        let hands_over = |touch: &Touch| {
            slot.is_none_or(|(pipeline, index)| judge.may_hand_over(touch, pipeline, index))
        };
        let reads = self.under_way().find(|copy| !copy.touch.settled && hands_over(&copy.touch));
        let open = self
            .state
            .departures
            .written
            .iter()
            .find(|written| !written.published && hands_over(&written.touch));
        let (reads, open) = (reads.cloned(), open.cloned());
        if let Some(copy) = reads {
            self.report_read(span, "who waits for this may write it", &copy);
        }
        if let Some(written) = open {
            self.report_unpublished(span, &written);
        }
    }

    /// Threads end: their copies have to be complete.
    pub(super) fn leave_nothing(&mut self) {
        for copy in std::mem::take(&mut self.state.departures.copies) {
            if !self.reported.insert((copy.span, copy.span)) {
                continue;
            }
            let param = &self.kernel.params[copy.landing.param];
            self.sink.push(
                Diagnostic::error(
                    Code::E0161,
                    format!("a copy to `{}` may be under way when its threads end", param.name),
                )
                .label(copy.span, "not complete on every path")
                .secondary(param.span, "declared here")
                .help(format!("write `settle {};` behind the last copy", param.name)),
            );
        }
        for (span, _) in std::mem::take(&mut self.idle).into_iter().filter(|(_, found)| !found) {
            self.sink.push(
                Diagnostic::error(Code::E0119, "no copy writes this buffer here")
                    .label(span, "nothing is under way to it")
                    .help("start the copy before, or remove `settle`"),
            );
        }
    }

    /// Copies write buffers that nothing else touches.
    pub(super) fn report_other_uses(&mut self) {
        let mut found = Vec::new();
        find_uses(&self.kernel.body, &self.leaving.buffers, &mut found);
        for (span, param) in found {
            let param = &self.kernel.params[param];
            self.sink.push(
                Diagnostic::error(
                    Code::E0163,
                    format!("`{}` is written by copies out of shared memory", param.name),
                )
                .label(span, "and touched in another way here")
                .secondary(param.span, "declared here")
                .help("write all of it by copies, and read it in a later kernel"),
            );
        }
    }

    fn report_read(&mut self, span: Span, why: &str, copy: &Departure) {
        if !self.reported.insert((copy.span, span)) {
            return;
        }
        let tile = &self.kernel.smem[copy.touch.tile];
        let round = if copy.touch.is_of_earlier_round() { ", in a round before" } else { "" };
        self.sink.push(
            Diagnostic::error(Code::E0160, format!("a copy may still read `{}`", tile.name))
                .label(span, why)
                .secondary(copy.span, format!("the copy{round}: not settled on every path"))
                .secondary(tile.span, "declared here")
                .help(format!(
                    "put `settle {};` before this, with the slot that is meant",
                    tile.name
                )),
        );
    }

    fn report_order(&mut self, copy: &Departure, earlier: &Departure) {
        if !self.reported.insert((earlier.span, copy.span)) {
            return;
        }
        let param = &self.kernel.params[copy.landing.param];
        let round = if earlier.touch.is_of_earlier_round() { ", in a round before" } else { "" };
        let (why, help) = if earlier.by == copy.by {
            let help = format!("put `settle {};` before this, or write other elements", param.name);
            ("not complete on every path", help)
        } else {
            let help = "let one role write what is written twice, or `settle` the buffer and then meet between";
            ("started by another thread", help.to_owned())
        };
        self.sink.push(
            Diagnostic::error(
                Code::E0161,
                format!("an earlier copy may write `{}` behind this one", param.name),
            )
            .label(copy.span, "this may write the same elements, and nothing orders the two")
            .secondary(earlier.span, format!("the other copy{round}: {why}"))
            .secondary(param.span, "declared here")
            .help(help),
        );
    }

    fn report_unpublished(&mut self, span: Span, written: &Written) {
        if !self.reported.insert((written.touch.span, span)) {
            return;
        }
        let tile = &self.kernel.smem[written.touch.tile];
        let (why, behind) = if written.published {
            ("published, and no meeting since", None)
        } else if written.touch.cta.is_some() {
            ("stored by another CTA, and not published here", Some("the next `sync cluster;`"))
        } else if written.touch.kind == Kind::Copy {
            ("copied by threads, and not published since it settled", Some("its `settle`"))
        } else {
            ("written by threads, and not published on every path", Some("what writes it"))
        };
        let help = match behind {
            None => "put `sync;` between `publish` and the copy".to_owned(),
            Some(behind) => {
                format!("put `publish {};` behind {behind}, and then a meeting", tile.name)
            }
        };
        self.sink.push(
            Diagnostic::error(
                Code::E0162,
                format!("a copy may read `{}` as it was before", tile.name),
            )
            .label(span, "copies go another way to shared memory than threads")
            .secondary(written.touch.span, why)
            .secondary(tile.span, "declared here")
            .help(help),
        );
    }
}

fn find_written_by_others(stmts: &[Stmt], found: &mut BTreeSet<SmemId>) {
    for stmt in stmts {
        if let StmtKind::Store { access, .. } = &stmt.kind
            && access.storage.cta().is_some()
        {
            found.extend(access.storage.tile().map(|(tile, _)| tile));
        }
        for body in stmt.kind.bodies() {
            find_written_by_others(body, found);
        }
    }
}

fn find_uses(stmts: &[Stmt], buffers: &BTreeSet<ParamId>, found: &mut Vec<(Span, ParamId)>) {
    for stmt in stmts {
        if !matches!(stmt.kind, StmtKind::Outgoing(_)) {
            each_access(&stmt.kind, &mut |access| {
                let param = access.storage.param().filter(|param| buffers.contains(param));
                found.extend(param.map(|param| (access.span, param)));
            });
        }
        for body in stmt.kind.bodies() {
            find_uses(body, buffers, found);
        }
    }
}

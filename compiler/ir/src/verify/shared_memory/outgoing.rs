//! R6: copies out of shared memory read what has been published, and what they read is written only when they have.
//!
//! Copies go another way to memory than the accesses of threads. What a thread has stored comes ahead of what a copy
//! reads by a `publish` of the thread behind the store, and a meeting or a barrier behind that. A copy reads at any
//! time until its first thread has settled it, and is complete when that thread has settled the buffer.

use std::collections::BTreeSet;

use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::super::scalars::Form;
use super::Walk;
use super::state::{Kind, MAX_SINCE, Touch};
use crate::kernel::{
    BarrierId, Outgoing, ParamId, SmemId, Stmt, StmtKind, Storage, TileAccess, ValueId, each_access,
};

/// A copy out of shared memory that nothing has waited for to the end.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Departure {
    /// What it reads; settled when it has read it.
    touch: Touch,
    /// What it writes.
    param: ParamId,
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
}

/// Copies out of shared memory on some path, and what they may not read.
#[derive(Debug, Clone, Default)]
pub(super) struct Departures {
    copies: Vec<Departure>,
    written: Vec<Written>,
}

impl PartialEq for Departures {
    /// The order does not matter.
    fn eq(&self, other: &Departures) -> bool {
        self.copies.len() == other.copies.len()
            && self.written.len() == other.written.len()
            && self.copies.iter().all(|copy| other.copies.contains(copy))
            && self.written.iter().all(|written| other.written.contains(written))
    }
}

impl Departures {
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
            if known.param == copy.param {
                one_more(&mut known.younger);
            }
        }
        self.add(copy);
    }

    fn add(&mut self, copy: Departure) {
        let same = |known: &&mut Departure| {
            known.param == copy.param && known.span == copy.span && known.touch.is_same(&copy.touch)
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

    fn write(&mut self, written: Written) {
        match self.written.iter_mut().find(|known| known.touch == written.touch) {
            Some(known) => known.published &= written.published,
            None => self.written.push(written),
        }
    }

    /// Threads meet that have published.
    pub(super) fn sync(&mut self) {
        self.written.retain(|written| !written.published);
    }

    /// A slot of a pipeline comes into other hands.
    pub(super) fn hand_over(&mut self, stays: impl Fn(&Touch) -> bool) {
        self.written.retain(|written| stays(&written.touch));
    }

    /// Two paths meet.
    pub(super) fn join(&mut self, other: Departures) {
        other.copies.into_iter().for_each(|copy| self.add(copy));
        other.written.into_iter().for_each(|written| self.write(written));
    }

    /// A back edge.
    pub(super) fn next_round(
        &mut self,
        var: ValueId,
        step: u32,
        most: u32,
        own: &BTreeSet<ValueId>,
    ) {
        for mut copy in std::mem::take(&mut self.copies) {
            copy.touch.next_round(var, step, most, own);
            self.add(copy);
        }
        for mut written in std::mem::take(&mut self.written) {
            written.touch.next_round(var, step, most, own);
            self.write(written);
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
                if let Some((tile, _)) = storage.tile() {
                    let own = self.state.departures.written.iter_mut();
                    own.filter(|written| written.touch.tile == tile)
                        .for_each(|written| written.published = true);
                }
            }
        }
    }

    /// Threads have written shared memory, by stores or by copies of their own.
    pub(super) fn written(&mut self, touch: Option<Touch>) {
        let Some(touch) = touch.filter(|touch| self.leaving.tiles.contains(&touch.tile)) else {
            return;
        };
        self.state.departures.write(Written { touch, published: false });
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
            self.state.departures.start(Departure { touch, param, younger: 0, span });
        }
    }

    fn settle_departures(&mut self, stmt: &Stmt, storage: Storage, but: Option<u32>, pending: u32) {
        let judge = self.judge();
        let is_own = |copy: &&Departure| match storage {
            Storage::Smem(tile, _) | Storage::Remote(tile, ..) => copy.touch.tile == tile,
            Storage::Buffer(param) | Storage::Peer(param, _) | Storage::Peers(param) => {
                copy.param == param
            }
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
                    continue;
                }
            }
            self.state.departures.copies.push(copy);
        }
    }

    /// A write of shared memory against copies that may still read it.
    pub(super) fn meet_departures(&mut self, touch: &Touch) {
        if touch.kind == Kind::Read {
            return;
        }
        let judge = self.judge();
        let reads =
            |copy: &&Departure| !copy.touch.settled && judge.may_overlap(&copy.touch, touch);
        let found = self.state.departures.copies.iter().find(reads).cloned();
        if let Some(copy) = found {
            self.report_read(touch.span, "this writes what the copy reads", &copy);
        }
    }

    /// A meeting of the cluster against copies of what other CTAs may write after it.
    pub(super) fn meet_cluster(&mut self, span: Span) {
        let mut others = BTreeSet::new();
        find_written_by_others(&self.kernel.body, &mut others);
        let found = self
            .state
            .departures
            .copies
            .iter()
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
            !slot.is_some_and(|(pipeline, index)| {
                let distance = touch.slot.as_ref().and_then(|s| judge.constant_distance(s, index));
                !touch.guards.contains(&pipeline) || distance.is_some_and(|d| d != 0)
            })
        };
        let departures = &self.state.departures;
        let reads =
            departures.copies.iter().find(|copy| !copy.touch.settled && hands_over(&copy.touch));
        let open = departures
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
            let param = &self.kernel.params[copy.param];
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

    fn report_unpublished(&mut self, span: Span, written: &Written) {
        if !self.reported.insert((written.touch.span, span)) {
            return;
        }
        let tile = &self.kernel.smem[written.touch.tile];
        let (why, help) = if written.published {
            ("published, and no meeting since", "put `sync;` between `publish` and the copy")
        } else {
            ("written by threads, and not published on every path", "behind what writes it")
        };
        let help = if written.published {
            help.to_owned()
        } else {
            format!("put `publish {};` {help}, and then a meeting", tile.name)
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

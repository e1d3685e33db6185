//! What the expansion orders by itself: exchanges through shared memory, fences between the ways to memory, and the
//! meetings of a cluster at the edges of a kernel.
//!
//! One walk over the device level carries what some path has left undone; a fence, a meeting or a wait does it, and what
//! needs it done finds it undone or not. A state is a set of debts, so paths join by union, and a loop is entered with
//! what a round leaves behind besides.
//!
//! *Exchanges.* What lies behind the tiles and barriers of the kernel is the expansion's own. A region is written, all
//! threads of the CTA, or of the role, meet, and it is read, in one block; it is written again when they have met since.
//! *Shared memory.* What threads store to a tile that products read has a fence behind it before the threads meet or
//! arrive somewhere; what other CTAs have stored or sent there has one behind the meeting or the wait. A copy fills a
//! tile that threads touch when a fence stands behind the wait that gives the slot back.
//! *Buffers* (R6). A fence stands behind each `grid_wait` ahead of copies of what earlier kernels touch, and right ahead
//! of a copy of what threads of the kernel may store, or earlier kernels before the wait.
//! *Tensor memory.* A role that touches it has a fence behind each wait and ahead of each arrival.
//! *Clusters.* The CTAs have met before one touches memory of another, and after it.
//!
//! Assumes what `device-structure` and `device-source-order` prove. Leaves alone whether a tile is published ahead of a
//! copy out of it: the author says that, and `shared-memory` judges it.

mod debts;
mod extent;
mod needs;

use kernel_abi::Access;
use kernel_dsl::diag::{Code, Diagnostic, Sink};
use kernel_dsl::source::Span;
use rustc_hash::FxHashMap;

use super::expansion::{Event, Item, Memory, Places, Reader};
use crate::device::{DeviceKernel, DeviceOp, DeviceStmt, LocId};
use crate::kernel::{Kernel, ParamId, RoleId};
use crate::smem_plan::SmemPlan;
use debts::{Debts, Exchange, Stage};
use extent::Extents;
use needs::Needs;

pub(super) fn check(source: &Kernel, device: &DeviceKernel, sink: &mut Sink) {
    let reader = Reader::new(device, SmemPlan::of(source).bytes());
    let needs = Needs::of(device, &reader);
    let extents = Extents::of(device);
    let mut walk = Walk {
        device,
        reader,
        needs,
        places: Places::of(source),
        extents,
        role: None,
        rounds: FxHashMap::default(),
        is_quiet: false,
        faults: Vec::new(),
    };
    let start = Debts {
        early: device.launch.pdl.is_consumer(),
        unmet: true,
        copies_stale: true,
        fills_stale: true,
        ..Debts::default()
    };
    let end = walk.block(&device.body, start);
    if end.open {
        let at = device.body.last().map(|stmt| stmt.loc);
        walk.faults.extend(at.map(|at| {
            (at, "CTAs of the cluster do not meet behind the last access to each other")
        }));
    }
    walk.faults.sort_unstable();
    walk.faults.dedup();
    for (loc, what) in walk.faults {
        let mut finding = Diagnostic::error(Code::E0810, "the expansion does not order this");
        finding = match device.locs.get(loc) {
            Some(place) => finding.label(place.span, what),
            None => finding.note(what),
        };
        sink.push(finding.note("this is a fault of the compiler, not of the kernel"));
    }
}

struct Walk<'a> {
    device: &'a DeviceKernel,
    reader: Reader<'a>,
    needs: Needs,
    places: Places,
    extents: Extents<'a>,
    role: Option<RoleId>,
    /// What one round of each loop leaves behind.
    rounds: FxHashMap<*const DeviceStmt, Debts>,
    /// A round is walked for what it leaves.
    is_quiet: bool,
    faults: Vec<(LocId, &'static str)>,
}

/// A region that a block has written, and whether threads have met since.
type Written = Vec<(Exchange, bool)>;

impl<'a> Walk<'a> {
    fn fault(&mut self, loc: LocId, what: &'static str) {
        if !self.is_quiet {
            self.faults.push((loc, what));
        }
    }

    fn is_elected(&self) -> bool {
        self.role.is_some_and(|role| self.device.roles[role].elect)
    }

    fn block(&mut self, stmts: &'a [DeviceStmt], debts: Debts) -> Debts {
        let mut written = Written::new();
        self.statements(stmts, debts, &mut written)
    }

    fn statements(
        &mut self,
        stmts: &'a [DeviceStmt],
        mut debts: Debts,
        written: &mut Written,
    ) -> Debts {
        // The state that all roles of a region start from.
        let mut region: Option<Debts> = None;
        for stmt in stmts {
            let item = self.reader.item(&stmt.op);
            if !matches!(item, Some(Item::Role(..))) {
                region = None;
            }
            match item {
                None => {}
                Some(Item::For(body) | Item::Repeat(body)) => {
                    let key = std::ptr::from_ref(stmt);
                    let left = match self.rounds.get(&key) {
                        Some(left) => left.clone(),
                        None => {
                            let outer = std::mem::replace(&mut self.is_quiet, true);
                            let left = self.block(body, Debts::default());
                            self.is_quiet = outer;
                            self.rounds.insert(key, left.clone());
                            left
                        }
                    };
                    debts.join(left);
                    let end = self.block(body, debts.clone());
                    debts.join(end);
                }
                Some(Item::If([first, second])) => {
                    let before = debts.clone();
                    // What some threads alone write, all read behind the choice.
                    debts = self.statements(first, debts, written);
                    debts.join(self.statements(second, before, written));
                }
                Some(Item::Role(role, body)) => {
                    let region = region.get_or_insert_with(|| debts.clone());
                    // Exchanges of roles side by side lie apart. All CTAs come to a meeting, in whichever role it is.
                    region.read.clone_from(&debts.read);
                    region.written.clone_from(&debts.written);
                    (region.unmet, region.open) = (debts.unmet, debts.open);
                    let mut start = region.clone();
                    start.enter_role();
                    let outer = self.role.replace(role);
                    let mut end = self.block(body, start);
                    end.leave_role();
                    self.role = outer;
                    (debts.unmet, debts.open) = (end.unmet, end.open);
                    debts.join(end);
                }
                Some(Item::Event(event)) => self.event(stmt, event, &mut debts, written),
            }
        }
        debts
    }

    fn event(
        &mut self,
        stmt: &'a DeviceStmt,
        event: Event,
        debts: &mut Debts,
        written: &mut Written,
    ) {
        let loc = stmt.loc;
        match event {
            Event::Load(Memory::Exchange) => self.read_exchange(stmt, debts, written),
            Event::Store(Memory::Exchange, _) => self.write_exchange(stmt, debts, written),
            Event::Load(memory) => self.reach(loc, memory, debts),
            Event::Store(memory, _) => {
                self.reach(loc, memory, debts);
                self.store(memory, debts);
            }
            Event::Atomic(_) => {
                // Ahead of it all threads have met, which counts where it takes a ticket.
                if self.places.tickets.contains(&self.place(loc)) {
                    self.handed_over(loc, debts);
                }
                debts.copies_stale = true;
            }
            Event::Signal(_) => debts.copies_stale = true,
            Event::CopyAsync(..) => debts.fills_stale = true,
            Event::AwaitCopies(_) => {
                // What copies of the threads have filled counts from here on.
                let filled = self.needs.filled_by_threads.iter();
                let own = filled.filter(|(role, _)| *role == self.role);
                own.for_each(|&(_, tile)| debts.store(tile, Stage::Stored));
                debts.fills_stale = true;
            }
            Event::Meet | Event::MeetRole(_) => {
                // What the expansion meets for hands nothing over.
                if self.places.meetings.contains(&self.place(loc)) {
                    self.handed_over(loc, debts);
                }
                let role = if let Event::MeetRole(role) = event { Some(role) } else { None };
                debts.meet(role);
                written.retain(|(_, met)| !met);
                written.iter_mut().for_each(|(_, met)| *met = true);
            }
            Event::MeetCluster => {
                // Where other CTAs store what products read, the fence stands behind.
                let is_authors = self.places.meetings.contains(&self.place(loc));
                if is_authors && !self.needs.stored_by_others {
                    self.handed_over(loc, debts);
                }
                debts.meet_cluster();
            }
            Event::Await(_) => debts.copies_stale = true,
            Event::GridWait => {
                debts.early = false;
                debts.follows = self.needs.follows_kernels;
                debts.copies_stale = true;
            }
            Event::CopyFence => {
                debts.follows = false;
                debts.copies_stale = false;
            }
            Event::SharedFence => debts.fence(),
            Event::Wait(barrier) => {
                debts.wait(self.needs.reopened_by(barrier));
                debts.sent.extend(self.needs.sent_at(barrier));
                debts.tensor_stale = true;
            }
            Event::Arrive(_, everywhere) => {
                self.handed_over(loc, debts);
                if debts.tensor_used && self.touches_tensor() {
                    self.fault(loc, "no fence of tensor memory ahead of this");
                }
                self.other_ctas(loc, everywhere, debts);
                debts.open |= everywhere;
            }
            Event::Commit(_, everywhere) => {
                self.other_ctas(loc, everywhere, debts);
                debts.open |= everywhere;
            }
            Event::Copy { from, to, barrier, everywhere } => {
                self.other_ctas(loc, everywhere, debts);
                self.copied_from(loc, from, debts);
                if self.needs.is_refilled(to) {
                    let is_opened = self.needs.reopened.contains(&barrier);
                    let is_stale = if is_opened {
                        debts.unopened.contains(&barrier)
                    } else {
                        debts.fills_stale
                    };
                    if is_stale {
                        self.fault(loc, "no fence behind the wait that gives the slot back");
                    }
                }
            }
            Event::CopyOut(from, to) => {
                if debts.follows && self.may_change(to) {
                    self.fault(loc, "no fence behind the wait for earlier kernels");
                }
                if let Memory::Tile(tile) = from {
                    self.read_sent(loc, tile, debts);
                }
            }
            Event::Send(..) => self.other_ctas(loc, true, debts),
            Event::Product { left, right, .. } => {
                left.into_iter().chain([right]).for_each(|tile| self.product(loc, tile, debts));
            }
            Event::TensorProduct { left, right } => {
                left.into_iter().chain([right]).for_each(|tile| self.product(loc, tile, debts));
                self.use_tensor(loc, debts);
            }
            Event::CopyScales(tile) => {
                self.product(loc, tile, debts);
                self.use_tensor(loc, debts);
            }
            Event::TensorStore | Event::TensorLoad => self.use_tensor(loc, debts),
            Event::TensorFenceBefore => debts.tensor_used = false,
            Event::TensorFenceAfter => debts.tensor_stale = false,
            Event::Prefetch
            | Event::CloseCopies
            | Event::Fence
            | Event::GridLaunch
            | Event::MakeBarriers
            | Event::Announce(_)
            | Event::CloseCopiesOut
            | Event::AwaitCopiesOut { .. }
            | Event::HandOverSums(_)
            | Event::CloseProducts
            | Event::AwaitProducts { .. }
            | Event::ReadSums(_)
            | Event::SetSums(_)
            | Event::AllocateTensor
            | Event::AttachTensor
            | Event::FreeTensor => {}
        }
    }

    /// What threads have stored, and what has been sent here, is not handed on before a fence.
    fn handed_over(&mut self, loc: LocId, debts: &Debts) {
        if !debts.sent.is_empty() {
            self.fault(loc, "what other CTAs have sent is handed on without a fence");
        }
        if debts.stores.iter().any(|(_, stage)| *stage != Stage::Sent) {
            self.fault(loc, "what products read is handed over without a fence");
        }
    }

    fn place(&self, loc: LocId) -> Span {
        self.device.locs.get(loc).map_or_else(Span::default, |place| place.span)
    }

    fn read_sent(&mut self, loc: LocId, tile: u32, debts: &Debts) {
        if debts.sent.contains(&tile) {
            self.fault(loc, "no fence behind the wait for what other CTAs have sent");
        }
    }

    fn product(&mut self, loc: LocId, tile: u32, debts: &Debts) {
        self.read_sent(loc, tile, debts);
        // What the own thread has stored is read by the products of one that is alone.
        let is_read =
            |stage: Stage| stage == Stage::Met || stage == Stage::Stored && self.is_elected();
        if debts.stores.iter().any(|&(stored, stage)| stored == tile && is_read(stage)) {
            self.fault(loc, "no fence between what threads store and what this reads");
        }
    }

    fn touches_tensor(&self) -> bool {
        self.role.is_some_and(|role| self.needs.tensor_roles.contains(&role))
    }

    fn use_tensor(&mut self, loc: LocId, debts: &mut Debts) {
        if debts.tensor_stale {
            self.fault(loc, "no fence of tensor memory behind the wait ahead of this");
        }
        debts.tensor_used = true;
    }

    /// Memory of another CTA is touched.
    fn reach(&mut self, loc: LocId, memory: Memory, debts: &mut Debts) {
        if let Memory::Remote(_) = memory {
            self.other_ctas(loc, true, debts);
            debts.open = true;
        }
    }

    fn other_ctas(&mut self, loc: LocId, reaches: bool, debts: &Debts) {
        if reaches && debts.unmet {
            self.fault(loc, "CTAs of the cluster have not met before one reaches another");
        }
    }

    /// Threads store; of tiles, what products read has to be fenced.
    fn store(&mut self, to: Memory, debts: &mut Debts) {
        match to {
            Memory::Tile(tile) if self.needs.read_by_products.contains(&tile) => {
                debts.store(tile, Stage::Stored);
            }
            Memory::Remote(tile) if self.needs.read_by_products.contains(&tile) => {
                debts.store(tile, Stage::Sent);
            }
            Memory::Tile(_) | Memory::Remote(_) | Memory::Exchange => {}
            Memory::Buffer(_) | Memory::Peer(_) | Memory::Multicast(_) => debts.copies_stale = true,
        }
        debts.fills_stale |= matches!(to, Memory::Tile(_) | Memory::Remote(_));
    }

    fn access(&self, memory: Memory) -> Option<Access> {
        let param: ParamId = match memory {
            Memory::Buffer(param) | Memory::Peer(param) | Memory::Multicast(param) => param,
            Memory::Tile(_) | Memory::Remote(_) | Memory::Exchange => return None,
        };
        Some(self.device.params[param].access)
    }

    /// An earlier kernel may have touched it.
    fn may_change(&self, memory: Memory) -> bool {
        self.access(memory).is_some_and(|access| access != Access::Static)
    }

    fn copied_from(&mut self, loc: LocId, from: Memory, debts: &Debts) {
        let may_change = self.may_change(from);
        if debts.follows && may_change {
            self.fault(loc, "no fence behind the wait for earlier kernels");
        }
        let by_threads = self.access(from).is_some_and(Access::is_writable);
        if debts.copies_stale && (by_threads || debts.early && may_change) {
            self.fault(loc, "no fence ahead of a copy of what threads may have stored");
        }
    }

    fn exchange(&self, op: &DeviceOp) -> Option<Exchange> {
        let (lo, hi) = self.extents.of_access(op, self.role)?;
        Some(Exchange { lo, hi, role: self.role })
    }

    fn write_exchange(&mut self, stmt: &DeviceStmt, debts: &mut Debts, written: &mut Written) {
        let Some(region) = self.exchange(&stmt.op) else { return };
        if !self.is_elected() && debts.collides(region) {
            self.fault(stmt.loc, "threads have not met since this was used in an exchange");
        }
        debts.written.push(region);
        written.push((region, self.is_elected()));
    }

    fn read_exchange(&mut self, stmt: &DeviceStmt, debts: &mut Debts, written: &Written) {
        let Some(region) = self.exchange(&stmt.op) else { return };
        let is_there = written.iter().any(|(own, met)| *met && own.overlaps(region));
        let is_stale = !self.is_elected() && debts.written.iter().any(|w| w.overlaps(region));
        if !is_there || is_stale {
            self.fault(stmt.loc, "an exchange is read that no meeting has completed");
        }
        debts.read.push(region);
    }
}

//! Shared memory of a CTA, with the last accesses to each byte.

use std::collections::BTreeMap;
use std::sync::Arc;

use kernel_dsl::source::Span;
use kernel_ir::device::DeviceKernel;
use kernel_ir::kernel::BarrierId;

use crate::cluster::{Marks, Member, Seen};
use crate::error::{EmuError, ErrorKind};
use crate::pipes::{HasRounds, Rounds};
use crate::roles::{Clock, Late, Names, Stamp, Touches};
use crate::tmem::TensorMemory;

/// No thread, and more than one thread.
const NOBODY: u32 = u32::MAX;
const SEVERAL: u32 = u32::MAX - 1;

/// In the place of an agent: a thread of another CTA, whose sends any thread of this one may fence.
const SENDER: usize = usize::MAX;
/// The same: a thread of another CTA, whose stores any thread of this one may fence behind the meeting that hands them over.
const NEIGHBOUR: usize = usize::MAX - 1;

/// A byte, and who touched it last.
#[derive(Clone, Copy)]
struct Cell {
    byte: u8,
    written: bool,
    write: Touch,
    read: Touch,
    /// Who wrote it, the whole CTA, a role or another CTA, and the fences ahead of products that those threads, or all of
    /// this CTA, had passed, or the meetings of the cluster where another CTA stored it; none where a copy wrote it that
    /// needs none.
    fences: Option<(usize, u32)>,
}

/// The last access of a kind.
#[derive(Clone, Copy)]
struct Touch {
    /// Rank of the CTA.
    cta: u32,
    thread: u32,
    /// Barriers that the threads of the CTA had passed.
    interval: u32,
    span: Span,
}

impl Touch {
    /// True where no barrier of the CTA orders it before an access of another thread of the CTA.
    fn races(self, by: &By<'_>) -> bool {
        self.thread != NOBODY
            && self.cta == by.seen.cta
            && self.interval == by.interval
            && self.thread != by.thread as u32
    }
}

/// Shared memory of a CTA.
pub(super) struct Shared {
    /// The CTA's rank in its cluster.
    rank: usize,
    cells: Vec<Cell>,
    /// Which CTAs touched each byte; empty where there is one.
    marks: Vec<Marks>,
    /// Which roles did; empty where there are none.
    touches: Vec<Touches>,
    /// By agent, the fences ahead of products that its threads have passed.
    fences: Vec<u32>,
    /// Meetings of the cluster before the last of those fences.
    last_fence: Option<u32>,
    /// Of the barriers.
    rounds: Arc<Rounds>,
    /// By barrier, bytes that CTAs of the cluster have sent.
    come: BTreeMap<BarrierId, u64>,
    pub(super) tensor: TensorMemory,
}

/// An access of one thread.
#[derive(Clone, Copy)]
pub(super) struct By<'m> {
    pub(super) member: Member<'m, Shared>,
    pub(super) thread: usize,
    /// Barriers that the threads of its CTA have passed.
    pub(super) interval: u32,
    /// Fences ahead of products that they have passed.
    pub(super) fences: u32,
    pub(super) seen: Seen,
    pub(super) clock: &'m Clock,
    pub(super) names: Names<'m>,
}

impl HasRounds for Shared {
    const SHOWS_MEETINGS: bool = true;

    fn rounds(&self) -> &Arc<Rounds> {
        &self.rounds
    }
}

impl By<'_> {
    fn touch(&self) -> Touch {
        let Seen { cta, span, .. } = self.seen;
        Touch { cta, thread: self.thread as u32, interval: self.interval, span }
    }
}

impl Shared {
    /// Shared memory of the CTA of the kernel with a rank, in a cluster or alone, with or without roles.
    pub(super) fn new(kernel: &DeviceKernel, rank: usize) -> Shared {
        let (bytes, in_cluster) = (kernel.shared_bytes, kernel.launch.cluster_size() > 1);
        let has_roles = !kernel.roles.is_empty();
        let barriers = kernel.barriers.iter().map(|placed| placed.barrier.clone());
        let never = Touch { cta: 0, thread: NOBODY, interval: 0, span: Span::default() };
        let cell = Cell { byte: 0, written: false, write: never, read: never, fences: None };
        let marks = vec![Marks::NEVER; if in_cluster { bytes as usize } else { 0 }];
        let touches = vec![Touches::default(); if has_roles { bytes as usize } else { 0 }];
        Shared {
            rank,
            cells: vec![cell; bytes as usize],
            marks,
            touches,
            fences: Vec::new(),
            last_fence: None,
            rounds: Rounds::new(barriers, kernel.roles.len(), rank),
            come: BTreeMap::new(),
            tensor: TensorMemory::default(),
        }
    }

    /// Bytes that CTAs of the cluster have sent to a barrier.
    pub(super) fn come(&self, barrier: BarrierId) -> u64 {
        self.come.get(&barrier).copied().unwrap_or(0)
    }

    pub(super) fn count(&mut self, barrier: BarrierId, bytes: u64) {
        *self.come.entry(barrier).or_insert(0) += bytes;
    }

    /// Something that a thread of another CTA sent lands; false where something was written before, or there is no such place.
    pub(super) fn receive(&mut self, at: i64, bytes: &[u8], stamp: Stamp) -> bool {
        let Ok(at) = usize::try_from(at) else { return false };
        let Some(cells) = self.cells.get(at..at + bytes.len()) else { return false };
        if cells.iter().any(|cell| cell.written) {
            return false;
        }
        self.land_sent(at, bytes);
        for touches in self.touches.iter_mut().skip(at).take(bytes.len()) {
            touches.land(stamp);
        }
        true
    }

    /// What a thread of another CTA sent is there; threads that have waited for it fence it.
    pub(super) fn land_sent(&mut self, at: usize, bytes: &[u8]) {
        let fences = self.fences.iter().sum();
        for (cell, &byte) in self.cells[at..].iter_mut().zip(bytes) {
            (cell.byte, cell.written, cell.fences) = (byte, true, Some((SENDER, fences)));
        }
    }

    /// An agent has passed so many fences ahead of products, the last one after so many meetings of the cluster.
    pub(super) fn fenced(&mut self, agent: usize, fences: u32, meetings: u32) {
        self.last_fence = Some(meetings);
        if self.fences.len() <= agent {
            self.fences.resize(agent + 1, 0);
        }
        self.fences[agent] = fences;
    }

    fn check_place(&self, at: i64, len: usize, by: &By<'_>) -> Result<usize, EmuError> {
        let size = self.cells.len();
        let inside = usize::try_from(at).ok().filter(|&at| at + len <= size);
        inside.ok_or_else(|| {
            let message = format!("byte {at} of shared memory, which has {size}");
            EmuError::new(ErrorKind::OutOfBounds, by.seen.span, message).thread(by.thread)
        })
    }

    fn race(by: &By<'_>, byte: usize, other: Touch) -> EmuError {
        let message = format!(
            "threads touch byte {byte} of shared memory without a barrier between, and one of them writes"
        );
        let who = match other.thread {
            SEVERAL => "several threads read it here".into(),
            thread => format!("thread {thread} touches it here"),
        };
        EmuError::new(ErrorKind::SharedRace, by.seen.span, message)
            .thread(by.thread)
            .other(other.span, who)
    }

    fn cluster_race(by: &By<'_>, byte: usize, other: Seen) -> EmuError {
        let name = format!("byte {byte} of shared memory");
        by.member.race(&name, by.seen, other).thread(by.thread)
    }

    fn role_race(by: &By<'_>, byte: usize, other: Stamp) -> EmuError {
        let name = format!("byte {byte} of shared memory");
        by.names.race(&name, by.clock, by.seen.span, other).thread(by.thread)
    }

    /// Reads bytes.
    pub(super) fn read(&mut self, at: i64, out: &mut [u8], by: By<'_>) -> Result<(), EmuError> {
        let at = self.check_place(at, out.len(), &by)?;
        for (i, out) in out.iter_mut().enumerate() {
            let cell = &mut self.cells[at + i];
            if !cell.written {
                let message =
                    format!("read of byte {} of shared memory, which nothing wrote", at + i);
                let error = EmuError::new(ErrorKind::Poison, by.seen.span, message);
                return Err(error.thread(by.thread));
            }
            if cell.write.races(&by) {
                return Err(Shared::race(&by, at + i, cell.write));
            }
            if let Some(other) = self.marks.get_mut(at + i).and_then(|marks| marks.read(by.seen)) {
                return Err(Shared::cluster_race(&by, at + i, other));
            }
            let touches = self.touches.get_mut(at + i);
            if let Some(other) = touches.and_then(|t| t.read(by.clock, by.seen.span)) {
                return Err(Shared::role_race(&by, at + i, other));
            }
            let thread = if cell.read.races(&by) { SEVERAL } else { by.thread as u32 };
            cell.read = Touch { thread, ..by.touch() };
            *out = cell.byte;
        }
        Ok(())
    }

    /// Reads bytes as a product or a copy does: what threads wrote is ordered ahead by a fence.
    pub(super) fn read_published(
        &mut self,
        at: i64,
        out: &mut [u8],
        by: By<'_>,
        who: &str,
    ) -> Result<(), EmuError> {
        self.read(at, out, by)?;
        let at = self.check_place(at, out.len(), &by)?;
        let passed = |agent: usize| match agent == by.clock.agent() {
            true => by.fences,
            // Threads of the CTA that have waited for it.
            false if agent == SENDER => self.fences.iter().sum(),
            false => self.fences.get(agent).copied().unwrap_or(0),
        };
        let is_open = |cell: &&Cell| match cell.fences {
            Some((NEIGHBOUR, meeting)) => self.last_fence.is_none_or(|last| last <= meeting),
            Some((agent, then)) => then == passed(agent),
            None => false,
        };
        let Some(cell) = self.cells[at..at + out.len()].iter().find(is_open) else {
            return Ok(());
        };
        let message = format!("{who} reads byte {at} of shared memory without a fence");
        Err(EmuError::new(ErrorKind::SharedRace, by.seen.span, message)
            .thread(by.thread)
            .other(cell.write.span, "written here"))
    }

    /// A product reads bytes later.
    pub(super) fn read_late(&mut self, at: i64, len: usize, by: By<'_>, late: &Arc<Late>) {
        let Ok(at) = self.check_place(at, len, &by) else { return };
        let touches = self.touches.iter_mut().skip(at).take(len);
        touches.for_each(|touches| touches.read_late(by.clock, by.seen.span, late));
    }

    /// True where bytes are still what they were.
    pub(super) fn holds(&self, at: i64, bytes: &[u8]) -> bool {
        let start = usize::try_from(at).ok();
        let cells = start.and_then(|start| self.cells.get(start..start + bytes.len()));
        cells.is_some_and(|cells| {
            cells.iter().zip(bytes).all(|(cell, &byte)| cell.written && cell.byte == byte)
        })
    }

    /// Bytes that a copy will fill: they hold nothing until it has arrived.
    pub(super) fn begin_copy(&mut self, at: i64, len: usize, by: By<'_>) -> Result<(), EmuError> {
        self.write(at, &vec![0; len], by)?;
        let at = self.check_place(at, len, &by)?;
        for cell in &mut self.cells[at..at + len] {
            cell.written = false;
        }
        Ok(())
    }

    /// Starts a bulk copy: its bytes hold nothing until it has landed. Gives its first byte.
    pub(super) fn begin_bulk(
        &mut self,
        at: i64,
        len: usize,
        by: By<'_>,
        stamp: Stamp,
    ) -> Result<usize, EmuError> {
        let at = self.check_place(at, len, &by)?;
        for i in at..at + len {
            let touches = self.touches.get_mut(i);
            if let Some(other) = touches.and_then(|t| t.copy(by.clock, stamp)) {
                return Err(Shared::role_race(&by, i, other));
            }
            self.cells[i].written = false;
        }
        Ok(at)
    }

    /// A bulk copy lands; it goes the way of products, which read it without a fence.
    pub(super) fn land(&mut self, at: usize, bytes: &[u8]) {
        for (cell, &byte) in self.cells[at..].iter_mut().zip(bytes) {
            (cell.byte, cell.written, cell.fences) = (byte, true, None);
        }
    }

    /// Writes bytes.
    pub(super) fn write(&mut self, at: i64, bytes: &[u8], by: By<'_>) -> Result<(), EmuError> {
        let at = self.check_place(at, bytes.len(), &by)?;
        for (i, &byte) in bytes.iter().enumerate() {
            let cell = &mut self.cells[at + i];
            if let Some(touch) = [cell.write, cell.read].into_iter().find(|t| t.races(&by)) {
                return Err(Shared::race(&by, at + i, touch));
            }
            if let Some(other) = self.marks.get_mut(at + i).and_then(|marks| marks.write(by.seen)) {
                return Err(Shared::cluster_race(&by, at + i, other));
            }
            let touches = self.touches.get_mut(at + i);
            if let Some(other) = touches.and_then(|t| t.write(by.clock, by.seen.span)) {
                return Err(Shared::role_race(&by, at + i, other));
            }
            cell.byte = byte;
            cell.written = true;
            cell.write = by.touch();
            cell.fences = Some(match by.member.rank() == self.rank {
                true => (by.clock.agent(), by.fences),
                false => (NEIGHBOUR, by.seen.meeting),
            });
        }
        Ok(())
    }
}

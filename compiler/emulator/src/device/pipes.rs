//! Barriers of roles at device level.

use std::sync::Arc;

use kernel_abi::{DType, numeric};
use kernel_dsl::source::Span;
use kernel_ir::device::{Arg, DevicePipe, FragId, LocId, Piece, Place as Region, Vector};
use kernel_ir::kernel::{BarrierId, Between, RoleId};
use kernel_ir::ops::Elements;

use super::Machine;
use super::copies::vector;
use super::record::Runs;
use super::shared::{By, Shared};
use crate::error::{EmuError, ErrorKind};
use crate::pipes::{HasRounds, Pipes, Place};
use crate::turns::Seat;

/// The role that a machine runs, and where it meets others.
#[derive(Clone, Copy)]
pub(super) struct Post<'k> {
    pub(super) role: RoleId,
    pub(super) pipes: &'k Pipes<'k, Shared>,
}

impl<'k> Machine<'k> {
    /// The post and the place at the table of a machine that runs a role.
    pub(super) fn post(&self) -> (Post<'k>, &'k Seat<'k>) {
        match (self.post, self.member.seat()) {
            (Some(post), Some(seat)) => (post, seat),
            (_, _) => unreachable!("barriers stand in roles, and roles take turns"),
        }
    }

    /// An integer that all threads agree on.
    pub(super) fn agreed(
        &self,
        (frag, element): (FragId, u32),
        loc: LocId,
    ) -> Result<i64, EmuError> {
        let code = self.code(frag, element, 0, loc)?;
        for t in 1..self.threads {
            if self.code(frag, element, t, loc)? != code {
                return Err(self.parted("a slot of a barrier", loc).thread(t));
            }
        }
        Ok(numeric::to_i64(DType::I32, code).unwrap_or(-1))
    }

    pub(super) fn slot_of(
        &self,
        barrier: BarrierId,
        slot: (FragId, u32),
        loc: LocId,
    ) -> Result<Place, EmuError> {
        let declared = &self.kernel.barriers[barrier].barrier;
        let number = self.agreed(slot, loc)?;
        match usize::try_from(number).ok().filter(|&n| n < declared.slots as usize) {
            Some(slot) => Ok(Place { barrier, slot }),
            None => {
                let message = format!("slot {number} of `{}`", declared.name);
                Err(EmuError::new(ErrorKind::OutOfBounds, self.span(loc), message))
            }
        }
    }

    pub(super) fn pipe(&mut self, pipe: &DevicePipe, loc: LocId) -> Result<(), EmuError> {
        self.uniform_only("a barrier", loc)?;
        let span = self.span(loc);
        match pipe {
            // Barriers are made anew for each region, and what ended before is there for all ways of reading.
            DevicePipe::Init | DevicePipe::Prefetch { .. } => Ok(()),
            DevicePipe::Fence => {
                self.note_proxy_fence();
                Ok(())
            }
            DevicePipe::Wait { barrier, slot, rounds } => {
                let (Post { role, pipes }, seat) = self.post();
                let place = self.slot_of(*barrier, *slot, loc)?;
                if self.kernel.barriers[*barrier].barrier.of_cluster {
                    let member = self.member;
                    let come = || member.own().come(*barrier);
                    pipes.wait_for_bytes(seat, role, place, come, &mut self.clock, span)?;
                    self.note_wait(place, 1);
                    return Ok(());
                }
                let rounds = u64::try_from(self.agreed(*rounds, loc)?).unwrap_or(0);
                self.flights.waited = true;
                pipes.wait(seat, role, place, rounds, &mut self.clock, span)?;
                self.note_wait(place, rounds);
                Ok(())
            }
            DevicePipe::Announce { barrier, slot } => {
                let (Post { pipes, .. }, seat) = self.post();
                let place = self.slot_of(*barrier, *slot, loc)?;
                let bytes = self.kernel.barriers[*barrier].barrier.bytes_awaited();
                if pipes.counts_in(self.member.rank(), place) == self.member.rank() {
                    self.note_arrival(place, 1, (1, self.member.targets(false)));
                    pipes.arrive(place, 1, bytes, &mut self.clock, span)?;
                }
                seat.pass(span)
            }
            DevicePipe::Commit { barrier, slot, everywhere } => {
                self.commit_tensor(*barrier, *slot, *everywhere, loc)
            }
            DevicePipe::Arrive { barrier, slot, everywhere } => {
                self.before_arrival(loc)?;
                let (Post { role, pipes }, seat) = self.post();
                let place = self.slot_of(*barrier, *slot, loc)?;
                let role = &self.kernel.roles[role];
                let arrivals = if role.elect { 1 } else { role.warps };
                if self.kernel.barriers[*barrier].barrier.between == Between::Gathered {
                    self.note_arrival(place, self.threads, (arrivals, 0..1));
                    pipes.arrive_at_first(self.member, place, arrivals, &mut self.clock, span)?;
                    return seat.pass(span);
                }
                let targets = self.member.targets(*everywhere);
                self.note_arrival(place, self.threads, (arrivals, targets));
                pipes.arrive(place, arrivals, 0, &mut self.clock, span)?;
                if *everywhere {
                    pipes.arrive_at_others(self.member, place, arrivals, span)?;
                }
                seat.pass(span)
            }
            DevicePipe::Send { src, dest, vectors, barrier, slot } => {
                let (_, seat) = self.post();
                let place = self.slot_of(*barrier, *slot, loc)?;
                for vector in vectors {
                    self.send(src, dest, vector, place, loc)?;
                }
                seat.pass(span)
            }
            DevicePipe::CopyOut { source, dest, pieces, evict: _ } => {
                self.copy_out(source, dest, pieces, loc)
            }
            DevicePipe::BoxOut { map, at, source, offset, evict: _ } => {
                let at = self.corner(at, loc)?;
                self.box_out(*map, &at, (source, *offset), loc)
            }
            DevicePipe::CommitGroup => {
                self.departures.close();
                Ok(())
            }
            DevicePipe::WaitGroup { pending, reads } => {
                self.settle_departures(*pending, *reads, loc)
            }
            DevicePipe::Copy { source, dest, pieces, barrier, slot, evict: _, everywhere } => {
                let (_, seat) = self.post();
                let place = self.slot_of(*barrier, *slot, loc)?;
                for piece in pieces {
                    self.copy_bulk(source, dest, piece, (place, *everywhere), loc)?;
                }
                seat.pass(span)
            }
            DevicePipe::Box { map, at, dest, offset, barrier, slot, evict: _, everywhere } => {
                let (_, seat) = self.post();
                let place = self.slot_of(*barrier, *slot, loc)?;
                let at = self.corner(at, loc)?;
                self.copy_box(*map, &at, (dest, *offset), (place, *everywhere), loc)?;
                seat.pass(span)
            }
        }
    }

    /// The place of a box along each axis of its map.
    fn corner(&self, at: &[(FragId, u32)], loc: LocId) -> Result<Vec<i64>, EmuError> {
        at.iter().map(|&start| self.agreed(start, loc)).collect()
    }

    /// The first thread of the role starts a copy.
    fn copy_bulk(
        &mut self,
        source: &Region,
        dest: &Region,
        piece: &Piece,
        place: (Place, bool),
        loc: LocId,
    ) -> Result<(), EmuError> {
        let (Region::Global(param), Region::Shared { base, dtype }) = (source, dest) else {
            unreachable!("copies go from a buffer to shared memory")
        };
        let (param, dtype, span, len) = (*param, *dtype, self.span(loc), piece.len as usize);
        let mut elements = Elements::splat(dtype, 0, len);
        let from = self.start(&vector(piece, piece.source), 0, loc)?;
        self.view.check_read(param, span)?;
        let from = self.view.inside(param, from, len, span)?;
        self.view.load(param, from as u64, len, &mut elements, 0, span)?;
        let to = self.start(&vector(piece, piece.dest), 0, loc)?;
        let size = i64::from(dtype.bytes().unwrap_or(1));
        let at = i64::from(*base) + to * size;
        let mut bytes = vec![0; numeric::bytes_of(dtype, len)];
        if !bytes.len().is_multiple_of(16) || at % 16 != 0 {
            let message = format!("a bulk copy of {} bytes to byte {at}", bytes.len());
            return Err(EmuError::new(ErrorKind::Misaligned, span, message));
        }
        for i in 0..len {
            numeric::write_element(dtype, &mut bytes, i, elements.get(i));
        }
        self.fill(&[(at, bytes)], &(param, vec![(from as u64, len)]), place, loc)
    }

    /// Starts a copy of pieces to the own CTA or to all of the cluster, each of which counts its bytes.
    pub(super) fn fill(
        &mut self,
        pieces: &[(i64, Vec<u8>)],
        source: &Runs,
        (place, everywhere): (Place, bool),
        loc: LocId,
    ) -> Result<(), EmuError> {
        let targets = self.member.targets(everywhere);
        self.note_fill(targets.clone(), pieces, Some(source), place, loc);
        self.fill_in(targets, pieces, place, Shared::land, self.span(loc))
    }

    fn fill_in(
        &self,
        ctas: std::ops::Range<usize>,
        pieces: &[(i64, Vec<u8>)],
        place: Place,
        lands: fn(&mut Shared, usize, &[u8]),
        span: Span,
    ) -> Result<(), EmuError> {
        let (Post { pipes, .. }, _) = self.post();
        let count = pieces.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        for cta in ctas {
            let is_own = cta == self.member.rank();
            let counted = pipes.counts_in(cta, place);
            let stamp = Arc::clone(self.member.shared(counted).rounds()).stamp(place, span);
            let mut shared = self.member.shared(cta);
            let known = Arc::clone(shared.rounds()).given_back(place);
            let by = self.by(0, span);
            let by = if is_own { by } else { By { clock: &known, ..by } };
            let mut begun = Vec::with_capacity(pieces.len());
            for (at, bytes) in pieces {
                begun.push((shared.begin_bulk(*at, bytes.len(), by, stamp)?, bytes.clone()));
            }
            drop(shared);
            let land = move |shared: &mut Shared| {
                for (at, bytes) in begun {
                    lands(shared, at, &bytes);
                }
                Ok(())
            };
            pipes.start(cta, place, count, span, Box::new(land));
        }
        Ok(())
    }

    /// All threads send elements to a CTA of the cluster; they land together, later.
    fn send(
        &mut self,
        src: &Arg,
        dest: &Region,
        vector: &Vector,
        place: Place,
        loc: LocId,
    ) -> Result<(), EmuError> {
        let (Post { pipes, .. }, span) = (self.post().0, self.span(loc));
        let Some((cta, sent)) = self.sent(src, dest, vector, loc)? else { return Ok(()) };
        self.note_fill(cta..cta + 1, &sent, None, place, loc);
        if !self.kernel.barriers[place.barrier].barrier.of_cluster {
            return self.fill_in(cta..cta + 1, &sent, place, Shared::land_sent, span);
        }
        let stamp = pipes.stamp_of_inbox(place, span);
        let barrier = place.barrier;
        let land = move |shared: &mut Shared| {
            for (at, bytes) in &sent {
                if !shared.receive(*at, bytes, stamp) {
                    let message = format!(
                        "something is sent to byte {at} of shared memory, which was written before"
                    );
                    return Err(EmuError::new(ErrorKind::ClusterRace, span, message));
                }
                shared.count(barrier, bytes.len() as u64);
            }
            Ok(())
        };
        pipes.send(cta, span, Box::new(land));
        Ok(())
    }
}

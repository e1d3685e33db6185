//! Barriers of roles at kernel level.

use std::sync::Arc;

use kernel_dsl::source::Span;
use kernel_ir::kernel::{
    BarrierId, Between, CopyWay, PipeOp, RoleId, Storage, TileAccess, ValueId,
};
use kernel_ir::ops::Elements;

use super::Machine;
use super::access::Tile;
use super::smem::SharedTiles;
use crate::error::{EmuError, ErrorKind};
use crate::pipes::{HasRounds, Pipes, Place};
use crate::turns::Seat;

/// The role that a machine runs, and where it meets others.
#[derive(Clone, Copy)]
pub(super) struct Post<'k> {
    pub(super) role: RoleId,
    pub(super) pipes: &'k Pipes<'k, SharedTiles>,
}

impl<'k> Machine<'k> {
    /// The post and the place at the table of a machine that runs a role.
    pub(super) fn post(&self) -> (Post<'k>, &'k Seat<'k>) {
        match (self.post, self.member.seat()) {
            (Some(post), Some(seat)) => (post, seat),
            (_, _) => unreachable!("barriers stand in roles, and roles take turns"),
        }
    }

    /// The slot of an index, and its round.
    pub(super) fn slot_and_round(
        &self,
        barrier: BarrierId,
        at: ValueId,
        span: Span,
    ) -> Result<(Place, u64), EmuError> {
        let declared = &self.kernel.barriers[barrier];
        let index = u64::try_from(self.int(at)).map_err(|_| {
            let message = format!("index {} of `{}`", self.int(at), declared.name);
            EmuError::new(ErrorKind::OutOfBounds, span, message)
                .other(declared.span, "declared here")
        })?;
        let slots = u64::from(declared.slots);
        Ok((Place { barrier, slot: (index % slots) as usize }, index / slots))
    }

    pub(super) fn pipe(&mut self, op: &PipeOp, span: Span) -> Result<(), EmuError> {
        let (Post { role, pipes }, seat) = self.post();
        match op {
            PipeOp::Open { full, empty, at } => {
                let (place, round) = self.slot_and_round(*empty, *at, span)?;
                pipes.wait(seat, role, place, round, &mut self.clock, span)?;
                let bytes = self.kernel.barriers[*full].bytes;
                if bytes > 0 {
                    let place = Place { barrier: *full, ..place };
                    let declared = &self.kernel.barriers[*full];
                    if pipes.counts_in(self.member.rank(), place) == self.member.rank() {
                        let bytes = declared.bytes_awaited();
                        pipes.arrive(place, 1, bytes, &mut self.clock, span)?;
                    }
                    seat.pass(span)?;
                }
                Ok(())
            }
            PipeOp::Wait { barrier, at } => {
                let (place, round) = self.slot_and_round(*barrier, *at, span)?;
                if self.kernel.barriers[*barrier].of_cluster {
                    let member = self.member;
                    let come = || member.own().come(*barrier);
                    return pipes.wait_for_bytes(seat, role, place, come, &mut self.clock, span);
                }
                pipes.wait(seat, role, place, round + 1, &mut self.clock, span)
            }
            PipeOp::Send { value, dest, barrier, at } => {
                let (place, _) = self.slot_and_round(*barrier, *at, span)?;
                self.send(*value, dest, place)?;
                seat.pass(span)
            }
            PipeOp::Release { barrier, at, everywhere } => {
                let (place, _) = self.slot_and_round(*barrier, *at, span)?;
                let role = &self.kernel.roles[role];
                let arrivals = if role.elect { 1 } else { role.warps };
                if self.kernel.barriers[*barrier].between == Between::Gathered {
                    pipes.arrive_at_first(self.member, place, arrivals, &mut self.clock, span)?;
                    return seat.pass(span);
                }
                pipes.arrive(place, arrivals, 0, &mut self.clock, span)?;
                if *everywhere {
                    pipes.arrive_at_others(self.member, place, arrivals, span)?;
                }
                seat.pass(span)
            }
            PipeOp::Commit { barrier, at, everywhere } => {
                self.commit_tensor(*barrier, *at, *everywhere, span)
            }
            PipeOp::Copy { source, dest, barrier, at, evict: _, way, everywhere } => {
                let (place, _) = self.slot_and_round(*barrier, *at, span)?;
                self.copy_bulk(source, dest, (place, *everywhere), *way)?;
                seat.pass(span)
            }
        }
    }

    fn copy_bulk(
        &mut self,
        source: &TileAccess,
        dest: &TileAccess,
        (place, everywhere): (Place, bool),
        way: CopyWay,
    ) -> Result<(), EmuError> {
        let Storage::Buffer(param) = source.storage else { return Ok(()) };
        let from = match way {
            CopyWay::Bulk => self.resolve(source, "copied")?,
            CopyWay::Tensor => self.resolve_box(source),
        };
        let to = self.resolve(dest, "copied")?;
        let dtype = self.kernel.dtype_of(dest.storage);
        let len = from.shape().iter().map(|&e| e as usize).product();
        let mut elements = Elements::splat(dtype, 0, len);
        let view = &mut self.view;
        from.runs(|start, count, at| {
            view.check_read(param, source.span)?;
            view.load(param, start, count, &mut elements, at, source.span)
        })?;
        self.fill(dest, &to, elements, place, self.member.targets(everywhere))
    }

    /// Elements go to the same place of some CTAs of the cluster, each of which counts their bytes.
    fn fill(
        &self,
        dest: &TileAccess,
        to: &Tile,
        elements: Elements,
        place: Place,
        ctas: std::ops::Range<usize>,
    ) -> Result<(), EmuError> {
        let Post { pipes, .. } = self.post().0;
        let bytes = elements.len() as u64 * u64::from(elements.dtype().bits()) / 8;
        for cta in ctas {
            let counted = pipes.counts_in(cta, place);
            let counted = Arc::clone(self.member.shared(counted).rounds());
            let begun = match cta == self.member.rank() {
                true => {
                    let stamp = counted.stamp(place, dest.span);
                    self.begin_bulk(dest, to, (cta, &self.clock, stamp))?
                }
                false => {
                    let rounds = Arc::clone(self.member.shared(cta).rounds());
                    let (known, stamp) =
                        (rounds.given_back(place), counted.stamp(place, dest.span));
                    self.begin_bulk(dest, to, (cta, &known, stamp))?
                }
            };
            let Some(places) = begun else { return Ok(()) };
            let elements = elements.clone();
            let land = move |shared: &mut SharedTiles| {
                shared.land(places, &elements);
                Ok(())
            };
            let count = u32::try_from(bytes).unwrap_or(u32::MAX);
            pipes.start(cta, place, count, dest.span, Box::new(land));
        }
        Ok(())
    }

    /// Sends a tile to a CTA of the cluster; it lands later.
    fn send(&mut self, value: ValueId, dest: &TileAccess, place: Place) -> Result<(), EmuError> {
        let (Post { pipes, .. }, _) = self.post();
        let to = self.resolve(dest, "sent")?;
        let Some((cta, places)) = self.places_of(dest, &to)? else { return Ok(()) };
        let elements = (*self.value(value)).clone();
        if !self.kernel.barriers[place.barrier].of_cluster {
            return self.fill(dest, &to, elements, place, cta..cta + 1);
        }
        let stamp = pipes.stamp_of_inbox(place, dest.span);
        let (name, size) = (self.kernel.smem[places.tile()].name.clone(), elements.dtype().bits());
        let bytes = elements.len() as u64 * u64::from(size) / 8;
        let (barrier, span) = (place.barrier, dest.span);
        let land = move |shared: &mut SharedTiles| {
            if !shared.receive(&places, &elements, stamp) {
                let message =
                    format!("something is sent to elements of `{name}` that were written before");
                return Err(EmuError::new(ErrorKind::ClusterRace, span, message));
            }
            shared.count(barrier, bytes);
            Ok(())
        };
        pipes.send(cta, dest.span, Box::new(land));
        Ok(())
    }
}

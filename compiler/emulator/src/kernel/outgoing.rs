//! Copies out of shared memory at kernel level.

use kernel_dsl::source::Span;
use kernel_ir::kernel::{CopyWay, Outgoing, TileAccess};
use kernel_ir::ops::Elements;

use super::Machine;
use super::smem::Places;
use crate::departures::{Landing, changed, unpublished};
use crate::error::EmuError;
use crate::roles::Late;

/// What a copy moves.
pub(super) struct Cargo {
    from: Places,
    /// What it would have read when it started.
    seen: Elements,
    name: String,
}

impl<'k> Machine<'k> {
    pub(super) fn outgoing(&mut self, op: &'k Outgoing, span: Span) -> Result<(), EmuError> {
        match op {
            Outgoing::Copy { source, dest, way, .. } => self.depart(source, dest, *way, span)?,
            Outgoing::EmptyGroup => self.departures.close(),
            Outgoing::Settle { storage, pending, .. } => {
                self.settle_departures(*pending, storage.tile().is_some(), span)?;
            }
            Outgoing::Publish { storage } => {
                if storage.tile().is_some() {
                    self.member.own().publish(self.clock.agent());
                }
            }
        }
        Ok(())
    }

    fn depart(
        &mut self,
        source: &TileAccess,
        dest: &TileAccess,
        way: CopyWay,
        span: Span,
    ) -> Result<(), EmuError> {
        let tile = self.resolve(source, "copied")?;
        let to = match way {
            CopyWay::Bulk => self.resolve(dest, "copied to")?,
            CopyWay::Tensor => self.resolve_box(dest),
        };
        let (Some(target), Some(param)) =
            (self.slot_of(source.storage, source.span)?, dest.storage.param())
        else {
            unreachable!("a copy goes from shared memory to a buffer")
        };
        let name = format!("`{}`", self.kernel.name_of(source.storage));
        let len = tile.shape().iter().map(|&e| e as usize).product();
        let mut seen = Elements::splat(self.kernel.dtype_of(source.storage), 0, len);
        self.load_slot(target, source, &tile, &mut seen)?;
        let mut places = vec![0; len];
        tile.runs(|start, count, at| {
            (0..count).for_each(|i| places[at + i] = start as usize + i);
            Ok(())
        })?;
        let from = target.places(places);
        let late = Late::new(&self.clock, span);
        let mut shared = self.member.own();
        if !shared.is_published(&from) {
            return Err(unpublished(&name, span));
        }
        if !self.kernel.roles.is_empty() {
            shared.read_late(&from, &self.clock, span, &late);
        }
        drop(shared);
        let mut runs = Vec::new();
        to.runs(|start, count, at| {
            runs.push((start, count, at));
            Ok(())
        })?;
        for &(start, count, _) in &runs {
            self.view.note_copy(param, start, count, span)?;
        }
        let landing = Landing::new(param, runs);
        self.departures.start(Cargo { from, seen, name }, landing, late, span)?;
        self.departures.close();
        Ok(())
    }

    fn settle_departures(&mut self, pending: u32, reads: bool, at: Span) -> Result<(), EmuError> {
        let mut settled = self.departures.settled(pending as usize);
        for departure in settled.iter_mut().flatten() {
            let Cargo { from, seen, name } = &departure.copy;
            let Landing { param, runs } = &departure.landing;
            let span = departure.span;
            if !std::mem::replace(&mut departure.has_read, true) {
                if self.member.own().read_places(from, seen.dtype()) != *seen {
                    return Err(changed(name, at, span));
                }
                departure.late.commit(self.clock.stamp(at));
            }
            if !reads {
                self.view.begin_store(*param, span)?;
                for &(start, count, at) in runs {
                    self.view.store(*param, start, count, seen, at, span)?;
                }
            }
        }
        if reads {
            self.departures.put_back(settled);
        }
        Ok(())
    }
}

//! Tiles in shared memory: elements, which of them something has written, and copies on their way.
//!
//! A copy arrives as late as it may: when a `settle` says so, and no element of it before.

use std::sync::Arc;

use kernel_abi::DType;
use kernel_dsl::source::Span;
use kernel_ir::index::IndexVec;
use kernel_ir::kernel::{BarrierId, Kernel, Leaving, Smem, SmemId, Storage, TileAccess};
use kernel_ir::ops::Elements;
use kernel_ir::smem_plan::SmemPlan;

use super::Machine;
use super::access::Tile;
use crate::cluster::Marks;
use crate::error::{EmuError, ErrorKind};
use crate::pipes::{HasRounds, Rounds};
use crate::roles::{Clock, Late, Names, Stamp, Touches};
use crate::tmem::TensorMemory;

/// One slot of a tile.
struct Slot {
    elements: Elements,
    /// What the statement with this number stored, plus one; 0 for what nothing has written.
    written: Vec<u64>,
    /// Who stored it, and how often they had published before, plus one; 0 for what nothing or a copy has written, which
    /// needs none. Empty where nothing is copied out.
    stored: Vec<(usize, u32)>,
    /// Which CTAs touched each element; empty where there is one.
    marks: Vec<Marks>,
    /// Which roles did; empty where there are none.
    touches: Vec<Touches>,
}

/// All tiles of a CTA.
pub(super) struct SharedTiles {
    tiles: IndexVec<SmemId, Vec<Slot>>,
    pub(super) tensor: TensorMemory,
    /// Of the barriers.
    rounds: Arc<Rounds>,
    /// By agent, how often it has published.
    published: Vec<u32>,
    /// Stores so far.
    stores: u64,
    /// By barrier, bytes that CTAs of the cluster have sent.
    come: IndexVec<BarrierId, u64>,
}

/// An element on its way.
pub(super) struct Arrival {
    tile: SmemId,
    slot: usize,
    place: usize,
    code: u64,
}

impl SharedTiles {
    pub(super) fn new(kernel: &Kernel, rank: usize) -> SharedTiles {
        let is_shared = kernel.launch.cluster_size() > 1;
        let has_roles = !kernel.roles.is_empty();
        let leaves = !Leaving::of(kernel).tiles.is_empty();
        let slot = |tile: &Smem| {
            let len: usize = tile.shape.iter().map(|&e| e as usize).product();
            let len = if tile.is_tensor() { 0 } else { len };
            Slot {
                elements: Elements::splat(tile.dtype, 0, len),
                written: vec![0; len],
                stored: vec![(0, 0); if leaves { len } else { 0 }],
                marks: vec![Marks::NEVER; if is_shared { len } else { 0 }],
                touches: vec![Touches::default(); if has_roles { len } else { 0 }],
            }
        };
        let tiles = kernel.smem.iter().map(|t| (0..t.slots).map(|_| slot(t)).collect()).collect();
        let columns = usize::try_from(SmemPlan::of(kernel).allocated()).unwrap_or(0);
        let tensor = TensorMemory::new(columns, 0);
        let come = kernel.barriers.iter().map(|_| 0).collect();
        let published = vec![0; kernel.roles.len() + 1];
        let rounds = Rounds::new(kernel.barriers.iter().cloned(), kernel.roles.len(), rank);
        SharedTiles { tiles, tensor, rounds, published, stores: 0, come }
    }

    /// Bytes that CTAs of the cluster have sent to a barrier.
    pub(super) fn come(&self, barrier: BarrierId) -> u64 {
        self.come[barrier]
    }

    pub(super) fn count(&mut self, barrier: BarrierId, bytes: u64) {
        self.come[barrier] += bytes;
    }

    /// An agent orders what it has stored ahead of copies.
    pub(super) fn publish(&mut self, agent: usize) {
        self.published[agent] += 1;
    }

    /// True where all that threads have stored in these places is ordered ahead of copies.
    pub(super) fn is_published(&self, from: &Places) -> bool {
        let slot = &self.tiles[from.tile][from.slot];
        from.places.iter().filter_map(|&place| slot.stored.get(place)).all(|&(agent, before)| {
            self.published.get(agent).is_none_or(|&now| before == 0 || now >= before)
        })
    }

    /// The mark of what an agent stores.
    fn stored(&self, agent: usize) -> (usize, u32) {
        (agent, self.published[agent] + 1)
    }

    /// Something from another CTA lands; false where something was written before.
    pub(super) fn receive(&mut self, places: &Places, elements: &Elements, stamp: Stamp) -> bool {
        self.stores += 1;
        let number = self.stores;
        let slot = &mut self.tiles[places.tile][places.slot];
        for (i, &place) in places.places.iter().enumerate() {
            if std::mem::replace(&mut slot.written[place], number) != 0 {
                return false;
            }
            slot.elements.set(place, elements.get(i));
            if let Some(touches) = slot.touches.get_mut(place) {
                touches.land(stamp);
            }
        }
        true
    }
}

impl HasRounds for SharedTiles {
    const SHOWS_MEETINGS: bool = false;

    fn rounds(&self) -> &Arc<Rounds> {
        &self.rounds
    }
}

/// A slot of a tile of some CTA.
#[derive(Clone, Copy)]
pub(super) struct Target {
    /// Rank of the CTA.
    cta: usize,
    tile: SmemId,
    slot: usize,
}

impl Target {
    /// The same slot of another CTA.
    pub(super) fn of(self, cta: usize) -> Target {
        Target { cta, ..self }
    }

    /// Elements of the slot, of the own CTA.
    pub(super) fn places(self, places: Vec<usize>) -> Places {
        Places { tile: self.tile, slot: self.slot, places }
    }
}

impl Machine<'_> {
    /// The slot that an access means.
    pub(super) fn slot_of(&self, storage: Storage, span: Span) -> Result<Option<Target>, EmuError> {
        let Some((tile, slot)) = storage.tile() else { return Ok(None) };
        let declared = &self.kernel.smem[tile];
        let outside = |message: String| {
            Err(EmuError::new(ErrorKind::OutOfBounds, span, message)
                .other(declared.span, "declared here"))
        };
        let number = slot.map_or(0, |slot| self.int(slot));
        if number < 0 {
            return outside(format!("slot {number} of `{}`", declared.name));
        }
        let cta = storage.cta().map_or(self.member.rank() as i64, |cta| self.int(cta));
        let size = self.member.size();
        let Some(cta) = usize::try_from(cta).ok().filter(|&cta| cta < size) else {
            return outside(format!("`{}` of CTA {cta} of a cluster of {size}", declared.name));
        };
        let slot = (number % i64::from(declared.slots)) as usize;
        Ok(Some(Target { cta, tile, slot }))
    }

    /// Reads the present elements of a tile in shared memory; none for another kind of memory.
    pub(super) fn load_shared(
        &mut self,
        access: &TileAccess,
        tile: &Tile,
        out: &mut Elements,
    ) -> Result<Option<usize>, EmuError> {
        let Some(target) = self.slot_of(access.storage, access.span)? else {
            return Ok(None);
        };
        self.load_slot(target, access, tile, out).map(Some)
    }

    /// Reads the present elements of a tile from a slot.
    pub(super) fn load_slot(
        &self,
        target: Target,
        access: &TileAccess,
        tile: &Tile,
        out: &mut Elements,
    ) -> Result<usize, EmuError> {
        self.load_slot_by(target, access, tile, out, &self.clock)
    }

    /// The same for one who knows so much of the slot's CTA.
    pub(super) fn load_slot_by(
        &self,
        target: Target,
        access: &TileAccess,
        tile: &Tile,
        out: &mut Elements,
        clock: &Clock,
    ) -> Result<usize, EmuError> {
        let (declared, member) = (&self.kernel.smem[target.tile], self.member);
        let (by, mut shared) = (member.seen(self.meetings, access.span), member.shared(target.cta));
        let names = self.names();
        let slot = &mut shared.tiles[target.tile][target.slot];
        let mut present = 0;
        tile.runs(|start, count, at| {
            let start = start as usize;
            present += count;
            if let Some(gap) = (start..start + count).find(|&i| slot.written[i] == 0) {
                return Err(unwritten(declared, gap, access.span));
            }
            for i in 0..count {
                out.set(at + i, slot.elements.get(start + i));
            }
            for place in start..start + count {
                if let Some(other) = slot.marks.get_mut(place).and_then(|m| m.read(by)) {
                    let error = member.race(&named(declared), by, other);
                    return Err(error.at(coordinate(declared, place)));
                }
                let touches = slot.touches.get_mut(place);
                if let Some(other) = touches.and_then(|t| t.read(clock, access.span)) {
                    let error = names.race(&named(declared), clock, access.span, other);
                    return Err(error.at(coordinate(declared, place)));
                }
            }
            Ok(())
        })?;
        Ok(present)
    }

    /// Stores a tile to shared memory; false for another kind of memory.
    pub(super) fn store_shared(
        &mut self,
        access: &TileAccess,
        tile: &Tile,
        value: &Elements,
    ) -> Result<bool, EmuError> {
        let Some(target) = self.slot_of(access.storage, access.span)? else {
            return Ok(false);
        };
        let (declared, member) = (&self.kernel.smem[target.tile], self.member);
        let (by, mut shared) = (member.seen(self.meetings, access.span), member.shared(target.cta));
        shared.stores += 1;
        let number = shared.stores;
        let (clock, names) = (&self.clock, self.names());
        let stored = shared.stored(clock.agent());
        let slot = &mut shared.tiles[target.tile][target.slot];
        tile.runs(|start, count, at| {
            for i in 0..count {
                let place = start as usize + i;
                if std::mem::replace(&mut slot.written[place], number) == number {
                    let name = &declared.name;
                    let message = format!("one store writes an element of `{name}` twice");
                    return Err(EmuError::new(ErrorKind::StoreConflict, access.span, message)
                        .at(coordinate(declared, place))
                        .other(declared.span, "declared here"));
                }
                if let Some(other) = slot.marks.get_mut(place).and_then(|m| m.write(by)) {
                    return Err(member
                        .race(&named(declared), by, other)
                        .at(coordinate(declared, place)));
                }
                let touches = slot.touches.get_mut(place);
                if let Some(other) = touches.and_then(|t| t.write(clock, access.span)) {
                    let error = names.race(&named(declared), clock, access.span, other);
                    return Err(error.at(coordinate(declared, place)));
                }
                slot.elements.set(place, value.get(at + i));
                slot.stored.get_mut(place).into_iter().for_each(|mark| *mark = stored);
            }
            Ok(())
        })?;
        Ok(true)
    }
}

impl SharedTiles {
    /// What elements hold now.
    pub(super) fn read_places(&self, from: &Places, dtype: DType) -> Elements {
        let slot = &self.tiles[from.tile][from.slot];
        Elements::from_codes(dtype, from.places.iter().map(|&place| slot.elements.get(place)))
    }

    /// A product reads elements later.
    pub(super) fn read_late(&mut self, from: &Places, by: &Clock, span: Span, late: &Arc<Late>) {
        let touches = &mut self.tiles[from.tile][from.slot].touches;
        from.places.iter().for_each(|&place| touches[place].read_late(by, span, late));
    }

    /// A copy lands.
    pub(super) fn land(&mut self, places: Places, elements: &Elements) {
        let Places { tile, slot, places } = places;
        self.stores += 1;
        let number = self.stores;
        let slot = &mut self.tiles[tile][slot];
        for (i, place) in places.into_iter().enumerate() {
            slot.elements.set(place, elements.get(i));
            slot.written[place] = number;
            slot.stored.get_mut(place).into_iter().for_each(|mark| *mark = (0, 0));
        }
    }
}

/// Elements of a slot that a copy fills, in the order of what it brings.
pub(super) struct Places {
    tile: SmemId,
    slot: usize,
    places: Vec<usize>,
}

impl<'k> Machine<'k> {
    pub(super) fn names(&self) -> Names<'k> {
        Names { roles: &self.kernel.roles, barriers: &self.kernel.barriers }
    }

    /// Starts a bulk copy to a CTA of the cluster, by one who knows so much of it: what it will fill holds nothing until
    /// it has landed.
    pub(super) fn begin_bulk(
        &self,
        dest: &TileAccess,
        to: &Tile,
        (cta, clock, stamp): (usize, &Clock, Stamp),
    ) -> Result<Option<Places>, EmuError> {
        let Some(Target { tile, slot, .. }) = self.slot_of(dest.storage, dest.span)? else {
            return Ok(None);
        };
        let (declared, names) = (&self.kernel.smem[tile], self.names());
        let mut shared = self.member.shared(cta);
        let Slot { written, touches, .. } = &mut shared.tiles[tile][slot];
        let mut places = Vec::new();
        to.runs(|start, count, _| {
            for place in start as usize..start as usize + count {
                let touches = touches.get_mut(place);
                if let Some(other) = touches.and_then(|t| t.copy(clock, stamp)) {
                    let error = names.race(&named(declared), clock, dest.span, other);
                    return Err(error.at(coordinate(declared, place)));
                }
                written[place] = 0;
                places.push(place);
            }
            Ok(())
        })?;
        Ok(Some(Places { tile, slot, places }))
    }
}

impl Places {
    pub(super) fn tile(&self) -> SmemId {
        self.tile
    }
}

impl Machine<'_> {
    /// The CTA that an access means, and its elements.
    pub(super) fn places_of(
        &self,
        access: &TileAccess,
        to: &Tile,
    ) -> Result<Option<(usize, Places)>, EmuError> {
        let Some(Target { cta, tile, slot }) = self.slot_of(access.storage, access.span)? else {
            return Ok(None);
        };
        let mut places = Vec::new();
        to.runs(|start, count, _| {
            places.extend(start as usize..start as usize + count);
            Ok(())
        })?;
        Ok(Some((cta, Places { tile, slot, places })))
    }
}

fn named(tile: &Smem) -> String {
    format!("an element of `{}`", tile.name)
}

impl Machine<'_> {
    /// Starts a copy: what it will fill holds nothing until it has arrived.
    pub(super) fn copy_async(
        &mut self,
        source: &TileAccess,
        dest: &TileAccess,
    ) -> Result<(), EmuError> {
        let Storage::Buffer(param) = source.storage else { return Ok(()) };
        let Some(Target { tile: id, slot, .. }) = self.slot_of(dest.storage, dest.span)? else {
            return Ok(());
        };
        let from = self.resolve(source, "copied")?;
        let to = self.resolve(dest, "copied")?;
        let dtype = self.kernel.smem[id].dtype;
        let len = from.shape().iter().map(|&e| e as usize).product();
        let mut elements = Elements::splat(dtype, 0, len);
        let view = &mut self.view;
        from.runs(|start, count, at| {
            view.check_read(param, source.span)?;
            view.load(param, start, count, &mut elements, at, source.span)
        })?;
        let mut group = Vec::with_capacity(len);
        let (declared, member) = (&self.kernel.smem[id], self.member);
        let (by, mut shared) = (member.seen(self.meetings, dest.span), member.own());
        let (clock, names) = (&self.clock, self.names());
        let Slot { written, marks, touches, .. } = &mut shared.tiles[id][slot];
        to.runs(|start, count, at| {
            for i in 0..count {
                let place = start as usize + i;
                if let Some(other) = marks.get_mut(place).and_then(|m| m.write(by)) {
                    return Err(member
                        .race(&named(declared), by, other)
                        .at(coordinate(declared, place)));
                }
                let touches = touches.get_mut(place);
                if let Some(other) = touches.and_then(|t| t.write(clock, dest.span)) {
                    let error = names.race(&named(declared), clock, dest.span, other);
                    return Err(error.at(coordinate(declared, place)));
                }
                written[place] = 0;
                group.push(Arrival { tile: id, slot, place, code: elements.get(at + i) });
            }
            Ok(())
        })?;
        drop(shared);
        self.groups.push_back(group);
        Ok(())
    }

    /// A group without copies.
    pub(super) fn empty_group(&mut self) {
        self.groups.push_back(Vec::new());
    }

    /// Lets all but the `pending` youngest groups arrive.
    pub(super) fn settle(&mut self, pending: u32) {
        let mut shared = self.member.own();
        let stored = shared.stored(self.clock.agent());
        while self.groups.len() > pending as usize {
            for arrival in self.groups.pop_front().into_iter().flatten() {
                shared.stores += 1;
                let number = shared.stores;
                let slot = &mut shared.tiles[arrival.tile][arrival.slot];
                slot.elements.set(arrival.place, arrival.code);
                slot.written[arrival.place] = number;
                slot.stored.get_mut(arrival.place).into_iter().for_each(|mark| *mark = stored);
            }
        }
    }
}

fn coordinate(tile: &Smem, place: usize) -> Vec<i64> {
    let shape: Vec<u64> = tile.shape.iter().map(|&e| u64::from(e)).collect();
    crate::launch::coordinate(&shape, place as u64)
}

fn unwritten(tile: &Smem, place: usize, span: Span) -> EmuError {
    let message = format!("read of an element of `{}` that nothing has written", tile.name);
    EmuError::new(ErrorKind::Poison, span, message)
        .at(coordinate(tile, place))
        .other(tile.span, "declared here")
}

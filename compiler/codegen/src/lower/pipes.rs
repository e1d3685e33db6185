//! Barriers of roles: mbarriers in shared memory, and bulk copies that count at them.

use kernel_abi::DType;
use kernel_ir::device::{Address, Arg, DevicePipe, FragId, Piece, Place, Vector};
use kernel_ir::kernel::{Barrier, BarrierId, Between, Evict, MapId};
use melior::dialect::arith::CmpiPredicate;
use melior::ir::Value;

use super::memory::words;
use super::{Lowered, Lowering, refuse};
use crate::mnemonic::{self, Space};

impl<'c, 'm> Lowering<'c, 'm, '_> {
    pub(super) fn pipe(&mut self, pipe: &DevicePipe) -> Lowered<()> {
        match pipe {
            DevicePipe::Init => self.make_barriers(),
            DevicePipe::Fence => {
                self.build.effect(&mnemonic::before_reads(), &[]);
                Ok(())
            }
            DevicePipe::Prefetch { map, at, evict } => {
                self.by_first_thread(|s| s.prefetch_box(*map, at, *evict))
            }
            DevicePipe::CopyOut { source, dest, pieces, evict } => {
                self.by_first_thread(|s| s.copy_out(source, dest, pieces, *evict))
            }
            DevicePipe::BoxOut { map, at, source, offset, evict } => {
                self.by_first_thread(|s| s.box_out(*map, at, (source, *offset), *evict))
            }
            DevicePipe::CommitGroup => self.by_first_thread(|s| {
                s.build.effect(&mnemonic::commit_copies_out(), &[]);
                Ok(())
            }),
            DevicePipe::WaitGroup { pending, reads } => self.by_first_thread(|s| {
                s.build.effect(&mnemonic::wait_copies_out(*pending, *reads), &[]);
                Ok(())
            }),
            DevicePipe::Box { map, at, dest, offset, barrier, slot, evict, everywhere } => {
                let place = self.barrier_at(*barrier, Some(*slot), 0)?;
                let ctas = self.ctas(*everywhere);
                let pair = self.between(*barrier)? == Between::Gathered;
                self.by_first_thread(|s| {
                    s.copy_box((*map, at), (dest, *offset), (place, ctas, pair), *evict)
                })
            }
            DevicePipe::Wait { barrier, slot, rounds } => {
                let place = self.barrier_at(*barrier, Some(*slot), 0)?;
                let b = self.build;
                let i32 = b.types.i32;
                // A wait for no round is one for the odd round before the first, which counts as complete.
                let last = b.subi(self.element(rounds.0, rounds.1)?, b.int(i32, 1));
                let parity = b.andi(last, b.int(i32, 1));
                let declared = self.declared_barrier(*barrier)?;
                let of_cluster = declared.of_cluster
                    || declared.everywhere
                    || declared.between != Between::Apart;
                b.effect(&mnemonic::wait_parity(of_cluster), &[place, parity]);
                Ok(())
            }
            DevicePipe::Announce { barrier, slot } => {
                let place = self.barrier_at(*barrier, Some(*slot), 0)?;
                let bytes = self.declared_barrier(*barrier)?.bytes_awaited();
                let announce = match self.between(*barrier)? {
                    Between::Gathered => mnemonic::announce_first(bytes),
                    Between::Apart | Between::Spread => mnemonic::announce(bytes),
                };
                self.by_first_thread(|s| {
                    s.build.effect(&announce, &[place]);
                    Ok(())
                })
            }
            DevicePipe::Arrive { barrier, slot, everywhere } => {
                let place = self.barrier_at(*barrier, Some(*slot), 0)?;
                let (b, ctas) = (self.build, self.ctas(*everywhere));
                let first = self.between(*barrier)? == Between::Gathered;
                let place = if first { self.in_first(place) } else { place };
                let lane = || b.andi(self.thread_index(), b.int(b.types.i32, 31));
                match (self.elects(), ctas) {
                    (true, None) => b.effect(&mnemonic::arrive(first), &[place]),
                    (true, Some(ctas)) => b.effect(&mnemonic::arrive_everywhere(ctas), &[place]),
                    (false, None) => {
                        b.effect(&mnemonic::arrive_once_a_warp(first), &[place, lane()]);
                    }
                    (false, Some(ctas)) => {
                        b.effect(&mnemonic::arrive_everywhere_once_a_warp(ctas), &[place, lane()]);
                    }
                }
                Ok(())
            }
            DevicePipe::Send { src, dest, vectors, barrier, slot } => {
                self.send(src, dest, vectors, (*barrier, *slot))
            }
            DevicePipe::Commit { barrier, slot, everywhere } => {
                let place = self.barrier_at(*barrier, Some(*slot), 0)?;
                let ctas = self.ctas(*everywhere);
                let pair = self.between(*barrier)? == Between::Spread;
                self.by_first_thread(|s| {
                    s.build.effect(&mnemonic::tensor_commit(ctas, pair), &[place]);
                    Ok(())
                })
            }
            DevicePipe::Copy { source, dest, pieces, barrier, slot, evict, everywhere } => {
                let place = self.barrier_at(*barrier, Some(*slot), 0)?;
                let ctas = self.ctas(*everywhere);
                self.by_first_thread(|s| s.copy_bulk(source, dest, pieces, (place, ctas), *evict))
            }
        }
    }

    /// The CTAs of the cluster, where all of them are meant.
    fn ctas(&self, everywhere: bool) -> Option<u32> {
        everywhere.then(|| self.kernel.launch.cluster_size())
    }

    /// How a pair of CTAs meets at a barrier.
    fn between(&self, barrier: BarrierId) -> Lowered<Between> {
        Ok(self.declared_barrier(barrier)?.between)
    }

    fn declared_barrier(&self, barrier: BarrierId) -> Lowered<&Barrier> {
        match self.kernel.barriers.get(barrier) {
            Some(declared) => Ok(&declared.barrier),
            None => refuse(format!("{barrier} is not declared")),
        }
    }

    /// The address of a slot.
    fn barrier_at(
        &self,
        barrier: BarrierId,
        slot: Option<(FragId, u32)>,
        constant: i64,
    ) -> Lowered<Value<'c, 'm>> {
        let Some(declared) = self.kernel.barriers.get(barrier) else {
            return refuse(format!("{barrier} is not declared"));
        };
        let region = self.region(&Place::Shared { base: declared.base, dtype: DType::U64 })?;
        self.address_of(&region, Address { offset: slot, constant })
    }

    /// The first thread of the CTA makes the barriers, for all threads and for copies.
    fn make_barriers(&mut self) -> Lowered<()> {
        let mut places = Vec::new();
        for (id, declared) in self.kernel.barriers.iter_enumerated() {
            for slot in 0..declared.barrier.slots {
                places.push((self.barrier_at(id, None, slot.into())?, &declared.barrier));
            }
        }
        let outer = self.build;
        let zero = outer.int(outer.types.i32, 0);
        let first = outer.compare_int(CmpiPredicate::Eq, self.thread_index(), zero);
        let (then_block, else_block) = outer.choice(first);
        let inner = outer.at(then_block);
        for (place, barrier) in places {
            inner.effect(&mnemonic::make_barrier(barrier.arrivals), &[place]);
            if barrier.is_prepaid() {
                inner.effect(&mnemonic::announce(barrier.bytes), &[place]);
            }
        }
        inner.effect(&mnemonic::barriers_made(), &[]);
        inner.end();
        outer.at(else_block).end();
        Ok(())
    }

    /// Whether one thread runs the statements anyway.
    fn elects(&self) -> bool {
        self.role.and_then(|role| self.kernel.roles.get(role)).is_some_and(|role| role.elect)
    }

    /// What the first thread of the role does alone.
    pub(super) fn by_first_thread(
        &mut self,
        run: impl FnOnce(&mut Self) -> Lowered<()>,
    ) -> Lowered<()> {
        let role = self.role.and_then(|role| self.kernel.roles.get(role));
        if role.is_some_and(|role| role.elect) {
            return run(self);
        }
        let outer = self.build;
        let first = role.map_or(0, kernel_ir::kernel::Role::first_thread);
        let first = outer.int(outer.types.i32, first.into());
        let is_first = outer.compare_int(CmpiPredicate::Eq, self.thread_index(), first);
        let (then_block, else_block) = outer.choice(is_first);
        self.build = outer.at(then_block);
        run(self)?;
        self.build.end();
        self.build = outer;
        outer.at(else_block).end();
        Ok(())
    }

    fn prefetch_box(
        &mut self,
        map: MapId,
        at: &[(FragId, u32)],
        evict: Option<Evict>,
    ) -> Lowered<()> {
        let mut operands = vec![self.map(map, at)?];
        for &(frag, element) in at {
            operands.push(self.element(frag, element)?);
        }
        operands.extend(self.policy(evict)?);
        self.build.effect(&mnemonic::prefetch_box(at.len(), evict.is_some()), &operands);
        Ok(())
    }

    /// The address of the map of a box.
    fn map(&self, map: MapId, at: &[(FragId, u32)]) -> Lowered<Value<'c, 'm>> {
        let axes = self.kernel.maps.get(map).map(|map| map.axes.len());
        match self.maps.get(map).filter(|_| axes == Some(at.len())) {
            Some(&address) => Ok(address),
            None => refuse(format!("a box of {map}, which is no map of so many axes")),
        }
    }

    fn policy(&self, evict: Option<Evict>) -> Lowered<Option<Value<'c, 'm>>> {
        match evict.map(|evict| self.policies.get(evict)) {
            Some(None) => refuse("the cache policy was not made at the entry"),
            Some(Some(policy)) => Ok(Some(policy)),
            None => Ok(None),
        }
    }

    fn copy_box(
        &mut self,
        (map, at): (MapId, &[(FragId, u32)]),
        (dest, offset): (&Place, Address),
        (barrier, ctas, pair): (Value<'c, 'm>, Option<u32>, bool),
        evict: Option<Evict>,
    ) -> Lowered<()> {
        let b = self.build;
        let to = self.region(dest)?;
        let address = self.map(map, at)?;
        if to.space != Space::Shared {
            return refuse("a box goes to shared memory");
        }
        let mut operands = vec![self.address_of(&to, offset)?, address];
        for &(frag, element) in at {
            operands.push(self.element(frag, element)?);
        }
        operands.push(if pair { self.in_first(barrier) } else { barrier });
        operands.extend(self.policy(evict)?);
        b.effect(&mnemonic::copy_box(at.len(), evict.is_some(), ctas, pair), &operands);
        Ok(())
    }

    /// The place in the first CTA of the cluster that lies where an address lies in the own one.
    fn in_first(&self, own: Value<'c, 'm>) -> Value<'c, 'm> {
        let b = self.build;
        let first = b.int(b.types.i32, 0);
        b.asm_values(&mnemonic::map_shared(), &[own, first], b.types.shared, 1)[0]
    }

    fn copy_bulk(
        &mut self,
        source: &Place,
        dest: &Place,
        pieces: &[Piece],
        (barrier, ctas): (Value<'c, 'm>, Option<u32>),
        evict: Option<Evict>,
    ) -> Lowered<()> {
        let b = self.build;
        let (from, to) = (self.region(source)?, self.region(dest)?);
        if from.space != Space::Global || to.space != Space::Shared || from.dtype != to.dtype {
            return refuse("a copy goes from a buffer to shared memory of the same type");
        }
        for piece in pieces {
            let bytes = u64::from(piece.len) * u64::from(to.dtype.bits()) / 8;
            if bytes == 0 || !bytes.is_multiple_of(16) {
                return refuse(format!("a bulk copy of {bytes} bytes"));
            }
            let mut operands =
                vec![self.address_of(&to, piece.dest)?, self.address_of(&from, piece.source)?];
            operands.push(barrier);
            operands.extend(self.policy(evict)?);
            b.effect(&mnemonic::copy_bulk(bytes, evict.is_some(), ctas), &operands);
        }
        Ok(())
    }

    /// Starts copies out of shared memory: what threads have stored there they have published.
    fn copy_out(
        &mut self,
        source: &Place,
        dest: &Place,
        pieces: &[Piece],
        evict: Option<Evict>,
    ) -> Lowered<()> {
        let (from, to) = (self.region(source)?, self.region(dest)?);
        if from.space != Space::Shared || to.space != Space::Global || from.dtype != to.dtype {
            return refuse("a copy goes from shared memory to a buffer of the same type");
        }
        for piece in pieces {
            let bytes = u64::from(piece.len) * u64::from(to.dtype.bits()) / 8;
            if bytes == 0 || !bytes.is_multiple_of(16) {
                return refuse(format!("a bulk copy of {bytes} bytes"));
            }
            let mut operands =
                vec![self.address_of(&to, piece.dest)?, self.address_of(&from, piece.source)?];
            operands.extend(self.policy(evict)?);
            self.build.effect(&mnemonic::copy_out(bytes, evict.is_some()), &operands);
        }
        Ok(())
    }

    fn box_out(
        &mut self,
        map: MapId,
        at: &[(FragId, u32)],
        (source, offset): (&Place, Address),
        evict: Option<Evict>,
    ) -> Lowered<()> {
        let from = self.region(source)?;
        if from.space != Space::Shared {
            return refuse("a box comes from shared memory");
        }
        let mut operands = vec![self.map(map, at)?];
        for &(frag, element) in at {
            operands.push(self.element(frag, element)?);
        }
        operands.push(self.address_of(&from, offset)?);
        operands.extend(self.policy(evict)?);
        self.build.effect(&mnemonic::box_out(at.len(), evict.is_some()), &operands);
        Ok(())
    }

    /// Stores into a CTA of the cluster whose bytes count at its barrier, the same as the own one there.
    fn send(
        &self,
        src: &Arg,
        dest: &Place,
        vectors: &[Vector],
        (barrier, slot): (BarrierId, (FragId, u32)),
    ) -> Lowered<()> {
        let Place::Remote { cta: (frag, element), .. } = dest else {
            return refuse("what is sent goes to a CTA of the cluster");
        };
        let own = self.barrier_at(barrier, Some(slot), 0)?;
        let b = self.build;
        let rank = self.element(*frag, *element)?;
        let there = b.asm_values(&mnemonic::map_shared(), &[own, rank], b.types.shared, 1)[0];
        let region = self.region(dest)?;
        let dtype = self.frag(src.frag)?.dtype;
        if dtype != region.dtype {
            return refuse(format!("{dtype} is sent as {}", region.dtype));
        }
        for vector in vectors {
            let words = words(vector, dtype)?;
            if words.bits < 32 {
                return refuse(format!("{} elements of {dtype} are sent at once", vector.len));
            }
            let elements = (0..vector.len)
                .map(|i| self.operand(src, vector.first.saturating_add(i)))
                .collect::<Lowered<Vec<_>>>()?;
            let mut operands = vec![self.address(&region, vector)?, there];
            operands.extend(self.pack_words(dtype, words, &elements)?);
            if let Some((frag, i)) = vector.predicate {
                operands.push(self.element(frag, i)?);
            }
            b.effect(&mnemonic::send(words, vector.predicate.is_some()), &operands);
        }
        Ok(())
    }
}

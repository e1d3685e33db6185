//! Loads, stores and prefetches: one vector a thread at a time.

use kernel_abi::{DType, numeric};
use kernel_dsl::source::Span;
use kernel_ir::device::{Arg, FragId, LocId, Place, Vector};
use kernel_ir::kernel::ParamId;
use kernel_ir::ops::{AtomicOp, Elements, ReduceOp};
use kernel_memory_model::event::Way;

use super::Machine;
use super::registers::{self, Registers};
use super::shared::By;
use crate::cluster::Life;
use crate::error::{EmuError, ErrorKind};
use crate::roles::Names;

/// Bytes with their places in shared memory.
pub(super) type Parcels = Vec<(i64, Vec<u8>)>;

impl Machine<'_> {
    /// Loads vectors into `dst`.
    pub(super) fn load(
        &mut self,
        dst: FragId,
        place: &Place,
        vectors: &[Vector],
        other: Option<FragId>,
        loc: LocId,
    ) -> Result<(), EmuError> {
        let frag = self.kernel.frags[dst];
        let (threads, len) = (self.threads, frag.len as usize);
        let mut out = self.take(dst);
        out.fill(0, len * threads);
        let mut undefined = vec![true; len * threads];
        let mut buffer = Elements::new(frag.dtype);
        for vector in vectors {
            let (first, count) = (vector.first as usize, vector.len as usize);
            buffer.fill(0, count * threads);
            for t in 0..threads {
                if !self.is_active(t) {
                    continue;
                }
                if self.is_wanted(vector, t, loc)? {
                    self.load_vector(place, vector, t, loc, &mut buffer)?;
                } else if let Some(other) = other {
                    let code = self.code(other, 0, t, loc)?;
                    (0..count).for_each(|i| buffer.set(t * count + i, code));
                } else {
                    continue;
                }
                (0..count).for_each(|i| undefined[(first + i) * threads + t] = false);
            }
            scatter(&buffer, count, threads, first, &mut out);
        }
        self.set(dst, Registers { elements: out, undefined: registers::some_if_any(undefined) });
        Ok(())
    }

    /// One vector of one thread into `buffer[t * len..]`.
    fn load_vector(
        &mut self,
        place: &Place,
        vector: &Vector,
        t: usize,
        loc: LocId,
        buffer: &mut Elements,
    ) -> Result<(), EmuError> {
        let (count, span) = (vector.len as usize, self.span(loc));
        let start = self.start(vector, t, loc)?;
        match place {
            Place::Global(param) => {
                self.check_alignment(start, vector, self.kernel.params[*param].dtype, t, loc)?;
                let view = &mut self.view;
                view.check_read(*param, span)?;
                let start = view.inside(*param, start, count, span).map_err(|e| e.thread(t))?;
                self.note_buffer(t, (*param, start, count), Way::Read, loc);
                let view = &mut self.view;
                view.load(*param, start as u64, count, buffer, t * count, span)
                    .map_err(|e| e.thread(t))
            }
            Place::Multicast { param, fold } => {
                let (memory, fold) = self.reached(*param, *fold);
                self.check_alignment(start, vector, self.kernel.params[memory].dtype, t, loc)?;
                let view = &mut self.view;
                view.check_read(memory, span)?;
                let start = view.inside(memory, start, count, span).map_err(|e| e.thread(t))?;
                let fold = fold.expect("a load at a multicast address folds");
                self.note_multicast(t, (memory, start, count), Way::Read, loc);
                let view = &mut self.view;
                view.load_multicast((memory, fold), start as u64, count, buffer, t * count, span)
                    .map_err(|e| e.thread(t))
            }
            Place::Peer { .. } => unreachable!("ranks read their own memory alone"),
            Place::Shared { base, dtype } | Place::Remote { base, dtype, .. } => {
                let at = self.shared_byte(*base, *dtype, start, vector, t, loc)?;
                let owner = self.owner(place, t, loc)?;
                let mut bytes = [0u8; 16];
                let bytes = &mut bytes[..numeric::bytes_of(*dtype, count)];
                self.note_shared(t, (owner, at, bytes.len()), Way::Read, loc);
                self.member.shared(owner).read(at, bytes, self.by(t, span))?;
                for i in 0..count {
                    let code = numeric::read_element(*dtype, bytes, i);
                    buffer.set(t * count + i, code.expect("the vector is as long as its bytes"));
                }
                Ok(())
            }
        }
    }

    /// The memory that a multicast address reaches, and what folds it.
    fn reached(&self, param: ParamId, fold: Option<ReduceOp>) -> (ParamId, Option<ReduceOp>) {
        let memory = self.kernel.params[param].of;
        (memory.expect("a multicast address is one of some memory"), fold)
    }

    /// Stores vectors of `src`.
    pub(super) fn store(
        &mut self,
        src: &Arg,
        place: &Place,
        vectors: &[Vector],
        update: Option<AtomicOp>,
        loc: LocId,
    ) -> Result<(), EmuError> {
        let span = self.span(loc);
        let len = vectors.iter().map(|v| v.first + v.len).max().unwrap_or(0);
        let value = self.operand_of_len(src, len);
        if let (Place::Global(param), None) = (place, update) {
            self.view.begin_store(*param, span)?;
        }
        let mut buffer = Elements::new(value.elements.dtype());
        for vector in vectors {
            let (first, count) = (vector.first as usize, vector.len as usize);
            for t in 0..self.threads {
                if !self.is_active(t) || !self.is_wanted(vector, t, loc)? {
                    continue;
                }
                let at = |i: usize| (first + i) * self.threads + t;
                if let Some(u) = &value.undefined
                    && (0..count).any(|i| u[at(i)])
                {
                    let message = "store of a register that holds no value";
                    return Err(EmuError::new(ErrorKind::Poison, span, message).thread(t));
                }
                buffer.reset(value.elements.dtype());
                buffer.gather(&value.elements, (0..count).map(at));
                let start = self.start(vector, t, loc)?;
                match place {
                    Place::Global(param) => {
                        let dtype = self.kernel.params[*param].dtype;
                        self.check_alignment(start, vector, dtype, t, loc)?;
                        let view = &mut self.view;
                        let start = view.inside(*param, start, count, span);
                        let start = start.map_err(|e| e.thread(t))?;
                        if let Some(op) = update {
                            let changed =
                                view.update(*param, start as u64, op, buffer.get(0), span);
                            self.note_update(t, (*param, start as i64), loc);
                            changed.map_err(|e| e.thread(t))?;
                            continue;
                        }
                        self.note_buffer(t, (*param, start, count), Way::Write, loc);
                        let view = &mut self.view;
                        view.store(*param, start as u64, count, &buffer, 0, span)
                            .map_err(|e| e.thread(t))?;
                    }
                    Place::Peer { param, rank: (frag, element) } => {
                        let dtype = self.kernel.params[*param].dtype;
                        self.check_alignment(start, vector, dtype, t, loc)?;
                        let rank = i64::from(self.code(*frag, *element, t, loc)? as u32 as i32);
                        let view = &mut self.view;
                        let start = view.inside(*param, start, count, span);
                        let start = start.map_err(|e| e.thread(t))?;
                        if let Some(recording) = self.recording() {
                            let peer = recording.of_rank(rank);
                            let bytes = self.bytes_of(&peer, *param, start as u64, count);
                            recording.access(t, bytes, Way::Write, span);
                        }
                        let view = &mut self.view;
                        view.store_to((*param, rank), start as u64, count, &buffer, 0, span)
                            .map_err(|e| e.thread(t))?;
                    }
                    Place::Multicast { param, fold } => {
                        let (memory, _) = self.reached(*param, *fold);
                        let dtype = self.kernel.params[memory].dtype;
                        self.check_alignment(start, vector, dtype, t, loc)?;
                        let view = &mut self.view;
                        let start = view.inside(memory, start, count, span);
                        let start = start.map_err(|e| e.thread(t))?;
                        self.note_multicast(t, (memory, start, count), Way::Write, loc);
                        let view = &mut self.view;
                        view.store_multicast(memory, start as u64, count, &buffer, 0, span)
                            .map_err(|e| e.thread(t))?;
                    }
                    Place::Shared { base, dtype } | Place::Remote { base, dtype, .. } => {
                        let at = self.shared_byte(*base, *dtype, start, vector, t, loc)?;
                        let owner = self.owner(place, t, loc)?;
                        let mut bytes = [0u8; 16];
                        let bytes = &mut bytes[..numeric::bytes_of(*dtype, count)];
                        for i in 0..count {
                            numeric::write_element(*dtype, bytes, i, buffer.get(i));
                        }
                        self.note_shared(t, (owner, at, bytes.len()), Way::Write, loc);
                        self.member.shared(owner).write(at, bytes, self.by(t, span))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// What threads send by one instruction: bytes with their places in the CTA of the cluster, if any thread does.
    pub(super) fn sent(
        &self,
        src: &Arg,
        place: &Place,
        vector: &Vector,
        loc: LocId,
    ) -> Result<Option<(usize, Parcels)>, EmuError> {
        let (Place::Remote { base, dtype, .. } | Place::Shared { base, dtype }) = place else {
            unreachable!("what is sent goes to shared memory")
        };
        let (mut sent, mut cta) = (Vec::new(), None);
        let value = self.operand_of_len(src, vector.first + vector.len);
        for t in 0..self.threads {
            if !self.is_active(t) || !self.is_wanted(vector, t, loc)? {
                continue;
            }
            let start = self.start(vector, t, loc)?;
            let at = self.shared_byte(*base, *dtype, start, vector, t, loc)?;
            let owner = self.owner(place, t, loc)?;
            if cta.replace(owner).is_some_and(|other| other != owner) {
                return Err(self.parted("a CTA of the cluster", loc).thread(t));
            }
            let mut bytes = vec![0u8; numeric::bytes_of(*dtype, vector.len as usize)];
            for i in 0..vector.len as usize {
                let register = (vector.first as usize + i) * self.threads + t;
                if value.undefined.as_ref().is_some_and(|u| u[register]) {
                    let message = "a register that holds no value is sent";
                    return Err(EmuError::new(ErrorKind::Poison, self.span(loc), message).thread(t));
                }
                numeric::write_element(*dtype, &mut bytes, i, value.elements.get(register));
            }
            sent.push((at, bytes));
        }
        Ok(cta.map(|cta| (cta, sent)))
    }

    /// Checks that the places of a prefetch exist.
    pub(super) fn prefetch(
        &mut self,
        place: &Place,
        vectors: &[Vector],
        bytes: Option<(FragId, u32)>,
        loc: LocId,
    ) -> Result<(), EmuError> {
        let Place::Global(param) = place else { return Ok(()) };
        for vector in vectors {
            for t in (0..self.threads).filter(|&t| self.is_active(t)) {
                if self.is_wanted(vector, t, loc)? {
                    let start = self.start(vector, t, loc)?;
                    let last = match bytes {
                        None => start,
                        // The sixteen bytes in which the range ends begin inside.
                        Some((frag, element)) => {
                            let bytes = i64::from(self.code(frag, element, t, loc)? as u32);
                            let bits = i64::from(self.kernel.params[*param].dtype.bits());
                            start + (bytes - 16).max(0) * 8 / bits
                        }
                    };
                    for at in [start, last] {
                        let inside = self.view.inside(*param, at, 1, self.span(loc));
                        inside.map_err(|e| e.thread(t))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn is_wanted(&self, vector: &Vector, t: usize, loc: LocId) -> Result<bool, EmuError> {
        match vector.predicate {
            None => Ok(true),
            Some((frag, element)) => Ok(self.code(frag, element, t, loc)? != 0),
        }
    }

    /// The first element of a vector.
    pub(super) fn start(&self, vector: &Vector, t: usize, loc: LocId) -> Result<i64, EmuError> {
        let Some((frag, element)) = vector.offset else { return Ok(vector.constant) };
        let code = self.code(frag, element, t, loc)?;
        let offset = numeric::to_i64(self.kernel.frags[frag].dtype, code).unwrap_or(i64::MAX);
        Ok(offset.saturating_add(vector.constant))
    }

    pub(super) fn check_alignment(
        &self,
        start: i64,
        vector: &Vector,
        dtype: DType,
        t: usize,
        loc: LocId,
    ) -> Result<(), EmuError> {
        let bits = i64::from(dtype.bits());
        let size = bits * i64::from(vector.len);
        let most = i64::from(self.kernel.target.info().max_vector_bytes) * 8;
        let is_aligned = start.checked_mul(bits).is_some_and(|at| at % size == 0);
        if vector.len.is_power_of_two() && size <= most && is_aligned {
            return Ok(());
        }
        let message =
            format!("{} elements of {dtype} at element {start} in one access", vector.len);
        Err(EmuError::new(ErrorKind::Misaligned, self.span(loc), message).thread(t))
    }

    /// An access of thread `t` now.
    pub(super) fn by(&self, t: usize, span: Span) -> By<'_> {
        let seen = self.member.seen(self.meetings, span);
        let fences = self.products.fences;
        let (clock, names) =
            (&self.clock, Names { roles: &self.kernel.roles, barriers: &self.barriers });
        let (member, interval) = (self.member, self.interval);
        By { member, thread: t, interval, fences, seen, clock, names }
    }

    /// The rank of the CTA whose shared memory thread `t` means.
    fn owner(&self, place: &Place, t: usize, loc: LocId) -> Result<usize, EmuError> {
        let Some((frag, element)) = place.owner() else { return Ok(self.member.rank()) };
        let code = self.code(frag, element, t, loc)?;
        let rank = numeric::to_i64(DType::I32, code).and_then(|rank| usize::try_from(rank).ok());
        let fail = |kind, what: String| Err(EmuError::new(kind, self.span(loc), what).thread(t));
        let Some(rank) = rank.filter(|&rank| rank < self.member.size()) else {
            let message =
                format!("CTA {} of a cluster of {}", code as u32 as i32, self.member.size());
            return fail(ErrorKind::OutOfBounds, message);
        };
        let when = match self.member.life(rank) {
            Life::Here => return Ok(rank),
            Life::Coming => "has not started",
            Life::Gone => "has ended",
        };
        fail(ErrorKind::Absent, format!("shared memory of CTA {rank} of the cluster, which {when}"))
    }

    /// The first byte of a vector in shared memory.
    pub(super) fn shared_byte(
        &self,
        base: u32,
        dtype: DType,
        start: i64,
        vector: &Vector,
        t: usize,
        loc: LocId,
    ) -> Result<i64, EmuError> {
        // The base counts in elements too: a region that starts off a multiple of the vector misaligns it.
        let size = numeric::bytes_of(dtype, vector.len as usize) as u32;
        self.check_alignment(start, vector, dtype, t, loc)?;
        if size > 0 && !base.is_multiple_of(size) {
            let message = format!("a vector of {size} bytes in a region from byte {base}");
            return Err(EmuError::new(ErrorKind::Misaligned, self.span(loc), message).thread(t));
        }
        let bytes = start.saturating_mul(i64::from(dtype.bits())) / 8;
        Ok(bytes.saturating_add(i64::from(base)))
    }
}

/// `out[(first + i) * threads + t] = buffer[t * count + i]`.
fn scatter(buffer: &Elements, count: usize, threads: usize, first: usize, out: &mut Elements) {
    use kernel_ir::ops::elements::{Word, Words};
    fn each<W: Word>(from: &[W], count: usize, threads: usize, first: usize, out: &mut [W]) {
        for i in 0..count {
            let row = &mut out[(first + i) * threads..][..threads];
            for (t, out) in row.iter_mut().enumerate() {
                *out = from[t * count + i];
            }
        }
    }
    match buffer.words() {
        Words::W8(w) => each(w, count, threads, first, out.vec_mut()),
        Words::W16(w) => each(w, count, threads, first, out.vec_mut()),
        Words::W32(w) => each(w, count, threads, first, out.vec_mut()),
        Words::W64(w) => each(w, count, threads, first, out.vec_mut()),
    }
}

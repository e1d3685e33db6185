//! Loads, stores and prefetches: one memory instruction for each vector.
//!
//! Accesses are inline assembly, not LLVM's loads and stores. LLVM cuts a vector load into the pieces that
//! are used and may merge, move or tag what is left; how wide an access is and where it stands was decided
//! in the device IR. A predicate stays a predicate, so that the accesses of one operation stay in one block
//! and overlap. Shared memory is one external array, never an internal one, whose accesses LLVM might think
//! a barrier does not see.

use kernel_abi::{Access, DType};
use kernel_ir::device::{
    Address, Arg, Change, DeviceKernel, DeviceOp, DevicePipe, DeviceStmt, FragId, Place, Vector,
};
use kernel_ir::index::Id;
use kernel_ir::kernel::{CachePolicy, Evict, ParamId};
use kernel_ir::ops::AtomicOp;
use melior::dialect::arith::CmpiPredicate;
use melior::ir::{Type, Value};

use super::build::Builder;
use super::{Lowered, Lowering, is_code, packed, refuse};
use crate::mnemonic::{self, MemoryForm, Multicast, Priority, Space, Words};

/// Policy operands, made once at the entry.
#[derive(Default, Clone, Copy)]
pub(super) struct Policies<'c, 'm> {
    first: Option<Value<'c, 'm>>,
    last: Option<Value<'c, 'm>>,
}

impl<'c, 'm> Policies<'c, 'm> {
    pub(super) fn create(entry: Builder<'c, 'm>, kernel: &DeviceKernel) -> Policies<'c, 'm> {
        let make = |evict: Evict| {
            uses_policy(&kernel.body, evict).then(|| {
                let asm = mnemonic::create_policy(priority(evict));
                entry.asm_values(&asm, &[], entry.types.i64, 1)[0]
            })
        };
        Policies { first: make(Evict::First), last: make(Evict::Last) }
    }

    pub(super) fn get(&self, evict: Evict) -> Option<Value<'c, 'm>> {
        match evict {
            Evict::First => self.first,
            Evict::Last => self.last,
        }
    }
}

fn priority(evict: Evict) -> Priority {
    match evict {
        Evict::First => Priority::First,
        Evict::Last => Priority::Last,
    }
}

fn uses_policy(statements: &[DeviceStmt], evict: Evict) -> bool {
    statements.iter().any(|statement| match &statement.op {
        DeviceOp::Load { cache, .. } | DeviceOp::Store { cache, .. } => cache.evict == Some(evict),
        DeviceOp::CopyAsync { evict: used, .. }
        | DeviceOp::Prefetch { bytes: Some(_), evict: used, .. }
        | DeviceOp::Pipe(
            DevicePipe::Copy { evict: used, .. }
            | DevicePipe::CopyOut { evict: used, .. }
            | DevicePipe::Box { evict: used, .. }
            | DevicePipe::BoxOut { evict: used, .. }
            | DevicePipe::Prefetch { evict: used, .. },
        ) => *used == Some(evict),
        DeviceOp::For { body, .. }
        | DeviceOp::Role { body, .. }
        | DeviceOp::Repeat { body, .. } => uses_policy(body, evict),
        DeviceOp::If { then_body, else_body, .. } => {
            uses_policy(then_body, evict) || uses_policy(else_body, evict)
        }
        DeviceOp::Const { .. }
        | DeviceOp::Special { .. }
        | DeviceOp::ScalarParam { .. }
        | DeviceOp::Unary { .. }
        | DeviceOp::Binary { .. }
        | DeviceOp::Compare { .. }
        | DeviceOp::Select { .. }
        | DeviceOp::Fma { .. }
        | DeviceOp::Inline { .. }
        | DeviceOp::Convert { .. }
        | DeviceOp::Copy { .. }
        | DeviceOp::Join { .. }
        | DeviceOp::Shuffle { .. }
        | DeviceOp::ReduceLanes { .. }
        | DeviceOp::Mma { .. }
        | DeviceOp::LoadMatrices { .. }
        | DeviceOp::StoreMatrices { .. }
        | DeviceOp::Prefetch { .. }
        | DeviceOp::ReadSlot { .. }
        | DeviceOp::SetSlot { .. }
        | DeviceOp::Warpgroup(_)
        | DeviceOp::Tensor(_)
        | DeviceOp::CommitGroup
        | DeviceOp::WaitGroup { .. }
        | DeviceOp::Barrier
        | DeviceOp::ClusterBarrier
        | DeviceOp::Signal { .. }
        | DeviceOp::Await { .. }
        | DeviceOp::RoleBarrier { .. }
        | DeviceOp::Pipe(_)
        | DeviceOp::Fence
        | DeviceOp::Atomic { .. }
        | DeviceOp::GridWait
        | DeviceOp::GridLaunch
        | DeviceOp::Assert { .. }
        | DeviceOp::Trace { .. }
        | DeviceOp::Printf { .. } => false,
    })
}

/// A region of memory, resolved.
pub(super) struct Region<'c, 'm> {
    pub(super) space: Space,
    pub(super) base: Value<'c, 'm>,
    pub(super) dtype: DType,
}

/// How the accesses of one operation are said.
struct Form {
    space: Space,
    multicast: Option<Multicast>,
    no_allocate: bool,
    evict: Option<Evict>,
}

impl<'c, 'm> Lowering<'c, 'm, '_> {
    /// The elements of `dst`.
    pub(super) fn load(
        &self,
        dst: FragId,
        place: &Place,
        vectors: &[Vector],
        other: Option<FragId>,
        cache: CachePolicy,
    ) -> Lowered<Vec<Value<'c, 'm>>> {
        let region = self.region(place)?;
        let frag = self.frag(dst)?;
        if frag.dtype != region.dtype {
            return refuse(format!("{} is loaded as {}", region.dtype, frag.dtype));
        }
        let form = self.form(place, &region, cache)?;
        if frag.dtype == DType::E2m1 {
            return self.load_packed(dst, &region, &form, vectors, other);
        }
        let mut elements: Vec<Option<Value<'c, 'm>>> = vec![None; frag.len as usize];
        for vector in vectors {
            let loaded = self.load_vector(&region, &form, vector, other)?;
            for (element, i) in loaded.into_iter().zip(vector.first..) {
                match elements.get_mut(i as usize) {
                    Some(place) => *place = Some(element),
                    None => return refuse(format!("{dst} has no element {i}")),
                }
            }
        }
        let all: Option<Vec<Value<'c, 'm>>> = elements.into_iter().collect();
        all.map_or_else(|| refuse(format!("the vectors do not cover {dst}")), Ok)
    }

    /// The words of `dst`, as they lie in memory.
    fn load_packed(
        &self,
        dst: FragId,
        region: &Region<'c, 'm>,
        form: &Form,
        vectors: &[Vector],
        other: Option<FragId>,
    ) -> Lowered<Vec<Value<'c, 'm>>> {
        let b = &self.build;
        let len = packed::units(DType::E2m1, self.frag(dst)?.len);
        let mut units: Vec<Option<Value<'c, 'm>>> = vec![None; len as usize];
        for vector in vectors {
            let words = words(vector, DType::E2m1)?;
            let address = self.address(region, vector)?;
            let word = self.word_type(words);
            let mut operands = Vec::new();
            if vector.predicate.is_some() {
                let absent = match other {
                    Some(other) => self.packed_operand(&Arg::all(other, 0), 0, packed::OF_WORD)?,
                    None => b.int(b.types.i32, 0),
                };
                let absent = if words.bits < 32 { b.trunci(word, absent) } else { absent };
                operands.extend((0..words.count).map(|_| absent));
            }
            operands.push(address);
            self.push_policy_and_predicate(form, vector, &mut operands)?;
            let asm = form.memory_form(words, vector).load();
            let loaded = b.asm_values(&asm, &operands, word, words.count);
            for (loaded, i) in loaded.into_iter().zip(0..) {
                // a byte comes in a register of 16 bits
                let byte = words.bits == 8 && words.register_bits() > 8;
                let loaded = if byte { b.trunci(b.types.i8, loaded) } else { loaded };
                self.deposit(&mut units, vector.first + i * packed::OF_WORD, loaded, words.bits)?;
            }
        }
        let all: Option<Vec<Value<'c, 'm>>> = units.into_iter().collect();
        all.map_or_else(|| refuse(format!("the vectors do not cover {dst}")), Ok)
    }

    fn load_vector(
        &self,
        region: &Region<'c, 'm>,
        form: &Form,
        vector: &Vector,
        other: Option<FragId>,
    ) -> Lowered<Vec<Value<'c, 'm>>> {
        let b = &self.build;
        let dtype = region.dtype;
        let words = words(vector, dtype)?;
        let address = self.address(region, vector)?;
        let word = self.word_type(words);
        let mut operands = Vec::new();
        if vector.predicate.is_some() {
            let absent = match other {
                Some(other) => self.element(other, 0)?,
                // Nobody may read an element that is absent and has no other value.
                None => self.zero(dtype)?,
            };
            operands.extend(self.pack_words(dtype, words, &vec![absent; vector.len as usize])?);
        }
        operands.push(address);
        self.push_policy_and_predicate(form, vector, &mut operands)?;
        let asm = form.memory_form(words, vector).load();
        let loaded = b.asm_values(&asm, &operands, word, words.count);
        self.unpack_words(dtype, words, vector.len, &loaded)
    }

    /// Writes `src`.
    pub(super) fn store(
        &self,
        src: &Arg,
        place: &Place,
        vectors: &[Vector],
        cache: CachePolicy,
    ) -> Lowered<()> {
        let b = &self.build;
        let region = self.region(place)?;
        let dtype = self.frag(src.frag)?.dtype;
        if dtype == DType::E2m1 {
            return refuse("stores of e2m1 are not built");
        }
        if dtype != region.dtype {
            return refuse(format!("{dtype} is stored as {}", region.dtype));
        }
        let form = self.form(place, &region, cache)?;
        for vector in vectors {
            let words = words(vector, dtype)?;
            let address = self.address(&region, vector)?;
            let elements = (0..vector.len)
                .map(|i| self.operand(src, vector.first.saturating_add(i)))
                .collect::<Lowered<Vec<_>>>()?;
            let mut operands = vec![address];
            operands.extend(self.pack_words(dtype, words, &elements)?);
            self.push_policy_and_predicate(&form, vector, &mut operands)?;
            b.effect(&form.memory_form(words, vector).store(), &operands);
        }
        Ok(())
    }

    /// Brings lines into L2.
    pub(super) fn prefetch(
        &self,
        place: &Place,
        vectors: &[Vector],
        evict: Option<Evict>,
    ) -> Lowered<()> {
        let region = self.region(place)?;
        if region.space != Space::Global {
            return refuse("shared memory is not prefetched");
        }
        // PTX has no prefetch whose line goes first; the plain one is what is left.
        let priority = evict.map_or(Priority::First, priority);
        for vector in vectors {
            let mut operands = vec![self.address(&region, vector)?];
            if let Some((frag, i)) = vector.predicate {
                operands.push(self.element(frag, i)?);
            }
            let asm = mnemonic::prefetch(priority, vector.predicate.is_some());
            self.build.effect(&asm, &operands);
        }
        Ok(())
    }

    /// Brings so many bytes from one place on into L2.
    pub(super) fn prefetch_bytes(
        &self,
        place: &Place,
        vectors: &[Vector],
        (bytes, element): (FragId, u32),
        evict: Option<Evict>,
    ) -> Lowered<()> {
        let region = self.region(place)?;
        if region.space != Space::Global {
            return refuse("shared memory is not prefetched");
        }
        let bytes = self.element(bytes, element)?;
        let policy = evict.and_then(|evict| self.policies.get(evict));
        for vector in vectors {
            let mut operands = vec![self.address(&region, vector)?, bytes];
            operands.extend(policy);
            if let Some((frag, i)) = vector.predicate {
                operands.push(self.element(frag, i)?);
            }
            let asm = mnemonic::prefetch_bytes(policy.is_some(), vector.predicate.is_some());
            self.build.effect(&asm, &operands);
        }
        Ok(())
    }

    /// Changes elements by those of `src`, each in one step.
    pub(super) fn update(
        &self,
        op: AtomicOp,
        src: &Arg,
        place: &Place,
        vectors: &[Vector],
    ) -> Lowered<()> {
        let region = self.region(place)?;
        let dtype = self.frag(src.frag)?.dtype;
        if region.space != Space::Global || region.dtype != dtype || !AtomicOp::takes(dtype) {
            return refuse("an atomic changes integers of a buffer by such");
        }
        for vector in vectors {
            if vector.len != 1 {
                return refuse("an atomic changes one element");
            }
            let by = self.operand(src, vector.first)?;
            let mut operands = vec![self.address(&region, vector)?, by];
            if let Some((frag, i)) = vector.predicate {
                operands.push(self.element(frag, i)?);
            }
            let asm = mnemonic::update(op, dtype, vector.predicate.is_some());
            self.build.effect(&asm, &operands);
        }
        Ok(())
    }

    /// The old value of an element that is changed in one step.
    pub(super) fn atomic(
        &self,
        param: ParamId,
        at: &Vector,
        change: Change,
    ) -> Lowered<Value<'c, 'm>> {
        let region = self.region(&Place::Global(param))?;
        let (frag, element) = change.register();
        let dtype = self.frag(frag)?.dtype;
        if region.dtype != dtype || at.predicate.is_some() || at.len != 1 {
            return refuse("an atomic changes one element by a value of its type");
        }
        let b = &self.build;
        let asm = match change {
            Change::Count { .. } if dtype == DType::U32 => mnemonic::atomic("inc", dtype),
            Change::Apply { op, .. } if AtomicOp::takes(dtype) => {
                mnemonic::atomic(op.name(), dtype)
            }
            Change::Count { .. } | Change::Apply { .. } => {
                return refuse(format!("no such atomic of {dtype}"));
            }
        };
        let operands = [self.address(&region, at)?, self.element(frag, element)?];
        let r#type = if dtype == DType::U64 { b.types.i64 } else { b.types.i32 };
        Ok(b.asm_values(&asm, &operands, r#type, 1)[0])
    }

    pub(super) fn region(&self, place: &Place) -> Lowered<Region<'c, 'm>> {
        match place {
            Place::Global(param) | Place::Multicast { param, .. } => {
                let (Some(declared), Some(base)) =
                    (self.kernel.params.get(*param), self.params.get(*param))
                else {
                    return refuse(format!("there is no parameter {}", param.index()));
                };
                let base = match declared.access {
                    Access::Peer => self.own_memory(*base)?,
                    Access::Static
                    | Access::Input
                    | Access::Output
                    | Access::Inout
                    | Access::Scratch
                    | Access::Multicast
                    | Access::Scalar => *base,
                };
                Ok(Region { space: Space::Global, base, dtype: declared.dtype })
            }
            Place::Peer { param, rank: (frag, element) } => {
                let rank = self.element(*frag, *element)?;
                self.memory_of(*param, rank)
            }
            Place::Shared { base, dtype } => {
                let Some(shared) = self.shared else {
                    return refuse("the kernel has no shared memory");
                };
                let b = &self.build;
                let base = b.offset(shared, b.types.i8, b.int(b.types.i64, (*base).into()));
                Ok(Region { space: Space::Shared, base, dtype: *dtype })
            }
            Place::Remote { cta: (frag, element), base, dtype } => {
                let own = self.region(&Place::Shared { base: *base, dtype: *dtype })?;
                let b = &self.build;
                let rank = self.element(*frag, *element)?;
                let operands = [own.base, rank];
                let base = b.asm_values(&mnemonic::map_shared(), &operands, b.types.shared, 1)[0];
                Ok(Region { space: Space::Cluster, base, dtype: *dtype })
            }
        }
    }

    fn form(&self, place: &Place, region: &Region<'c, 'm>, cache: CachePolicy) -> Lowered<Form> {
        let CachePolicy { evict, no_allocate } = cache;
        if region.space != Space::Global && (evict.is_some() || no_allocate) {
            return refuse("shared memory has no cache policy");
        }
        let multicast = match place {
            Place::Multicast { fold, .. } => Some(Multicast { fold: *fold, dtype: region.dtype }),
            Place::Global(_) | Place::Shared { .. } | Place::Remote { .. } | Place::Peer { .. } => {
                None
            }
        };
        if multicast.is_some() && (evict.is_some() || no_allocate) {
            return refuse("a multicast address has no cache policy");
        }
        Ok(Form { space: region.space, multicast, no_allocate, evict })
    }

    fn push_policy_and_predicate(
        &self,
        form: &Form,
        vector: &Vector,
        operands: &mut Vec<Value<'c, 'm>>,
    ) -> Lowered<()> {
        if let Some(evict) = form.evict {
            match self.policies.get(evict) {
                Some(policy) => operands.push(policy),
                None => return refuse("the cache policy was not made at the entry"),
            }
        }
        if let Some((frag, i)) = vector.predicate {
            operands.push(self.element(frag, i)?);
        }
        Ok(())
    }

    /// Address of the first element of a vector.
    pub(super) fn address(
        &self,
        region: &Region<'c, 'm>,
        vector: &Vector,
    ) -> Lowered<Value<'c, 'm>> {
        let place = Address { offset: vector.offset, constant: vector.constant };
        self.address_of(region, place)
    }

    /// Address of a place in a region.
    pub(super) fn address_of(
        &self,
        region: &Region<'c, 'm>,
        place: Address,
    ) -> Lowered<Value<'c, 'm>> {
        let b = &self.build;
        // Two packed elements are a byte; a vector of them starts on one.
        let is_packed = region.dtype == DType::E2m1;
        let memory = if is_packed { b.types.i8 } else { self.memory_type(region.dtype)? };
        let mut address = region.base;
        if let Some((frag, i)) = place.offset {
            let offset = self.element(frag, i)?;
            let wide = match self.frag(frag)?.dtype {
                DType::I32 => b.extsi(b.types.i64, offset),
                DType::I64 => offset,
                other => return refuse(format!("{other} is no offset")),
            };
            let bytes = if is_packed { b.shrsi(wide, b.int(b.types.i64, 1)) } else { wide };
            address = b.offset(address, memory, bytes);
        }
        let constant = if is_packed { place.constant / 2 } else { place.constant };
        if constant != 0 {
            address = b.offset(address, memory, b.int(b.types.i64, constant));
        }
        Ok(address)
    }

    fn zero(&self, dtype: DType) -> Lowered<Value<'c, 'm>> {
        let r#type = self.element_type(dtype)?;
        let b = &self.build;
        let is_int = !dtype.is_float() || is_code(dtype);
        Ok(if is_int { b.int(r#type, 0) } else { b.float(r#type, 0.0) })
    }

    fn read_element(&self, dtype: DType, x: Value<'c, 'm>) -> Value<'c, 'm> {
        let b = &self.build;
        if dtype != DType::Bool {
            return x;
        }
        b.compare_int(CmpiPredicate::Ne, x, b.int(b.types.i8, 0))
    }

    fn write_element(&self, dtype: DType, x: Value<'c, 'm>) -> Value<'c, 'm> {
        if dtype == DType::Bool { self.build.extui(self.build.types.i8, x) } else { x }
    }

    /// The type of the register that holds one word.
    fn word_type(&self, words: Words) -> Type<'c> {
        match words.register_bits() {
            16 => self.build.types.i16,
            32 => self.build.types.i32,
            _ => self.build.types.i64,
        }
    }

    /// The integer type of the bits of an element.
    fn bits_type(&self, dtype: DType) -> Lowered<Type<'c>> {
        Ok(match dtype.bits() {
            8 => self.build.types.i8,
            16 => self.build.types.i16,
            32 => self.build.types.i32,
            64 => self.build.types.i64,
            _ => return refuse(format!("{dtype} has no word")),
        })
    }

    fn unpack_words(
        &self,
        dtype: DType,
        words: Words,
        len: u32,
        loaded: &[Value<'c, 'm>],
    ) -> Lowered<Vec<Value<'c, 'm>>> {
        let b = &self.build;
        let memory = self.memory_type(dtype)?;
        let mut elements = Vec::new();
        for &word in loaded {
            let word = if words.bits == 8 { b.trunci(b.types.i8, word) } else { word };
            let of_word = len / words.count;
            let bits = self.bits_type(dtype)?;
            let parts: Vec<Value<'c, 'm>> = if of_word == 1 {
                vec![word]
            } else {
                // Shifts, not a cast to a vector: LLVM folds them into what uses the element.
                let part = |i: u32| match i * dtype.bits() {
                    0 => b.trunci(bits, word),
                    at => b.trunci(bits, b.shrui(word, b.int(self.word_type(words), at.into()))),
                };
                (0..of_word).map(part).collect()
            };
            for part in parts {
                let is_int = !dtype.is_float() || is_code(dtype);
                let element = if is_int { part } else { b.bitcast(memory, part) };
                elements.push(self.read_element(dtype, element));
            }
        }
        Ok(elements)
    }

    pub(super) fn pack_words(
        &self,
        dtype: DType,
        words: Words,
        elements: &[Value<'c, 'm>],
    ) -> Lowered<Vec<Value<'c, 'm>>> {
        let b = &self.build;
        let memory = self.memory_type(dtype)?;
        let word = self.word_type(words);
        let of_word = elements.len() / words.count as usize;
        let packed = elements.chunks(of_word.max(1)).map(|chunk| match chunk {
            [one] if words.bits == 8 => b.extui(word, self.write_element(dtype, *one)),
            [one] if dtype.is_float() => b.bitcast(word, *one),
            [one] => *one,
            all => {
                let all: Vec<_> = all.iter().map(|&e| self.write_element(dtype, e)).collect();
                b.bitcast(word, b.pack(memory, &all))
            }
        });
        Ok(packed.collect())
    }
}

impl Form {
    fn memory_form(&self, words: Words, vector: &Vector) -> MemoryForm {
        MemoryForm {
            space: self.space,
            words,
            multicast: self.multicast,
            no_allocate: self.no_allocate,
            policy: self.evict.is_some(),
            predicated: vector.predicate.is_some(),
        }
    }
}

/// The words that a vector travels in.
pub(super) fn words(vector: &Vector, dtype: DType) -> Lowered<Words> {
    Words::of(vector.len, dtype.bits()).map_or_else(
        || refuse(format!("a vector of {} {dtype} is no memory instruction", vector.len)),
        Ok,
    )
}

//! What one CTA sees of memory: the buffers as they were at launch, and its own stores above them.

mod copy;

use std::collections::BTreeMap;

use kernel_abi::{Access, DType, numeric};
use kernel_dsl::source::Span;
use kernel_ir::index::IndexVec;
use kernel_ir::kernel::{Launch, Param, ParamId, Role, RoleId};
use kernel_ir::ops::elements::Words;
use kernel_ir::ops::{AtomicOp, Elements, ReduceOp, multimem};

use crate::error::{EmuError, ErrorKind};
use crate::fabric::{OnRank, Party};
use crate::launch::{self, Extents};
use crate::memory::{Argument, Buffer, Memory};
use crate::options::Options;
use crate::overlap::{Does, Passenger};
use crate::record::Recorder;
use crate::roles::Clock;
use crate::turns::Seat;
use copy::copy;

/// Elements of a page of stores.
pub(crate) const PAGE: usize = 256;

/// Everything that is the same for all CTAs of a launch.
#[derive(Clone, Copy)]
pub(crate) struct Launched<'m> {
    pub(crate) params: &'m IndexVec<ParamId, Param>,
    pub(crate) memory: &'m Memory,
    pub(crate) extents: &'m Extents,
    /// The kernel may run beside its predecessors until it waits.
    pub(crate) early: bool,
    /// The CTA among others, where they share memory.
    party: Option<Party<'m>>,
    /// The CTA among those of other launches, where these may overlap.
    passenger: Option<Passenger<'m>>,
    /// Keeps what happens.
    pub(crate) recorder: Option<&'m Recorder>,
}

impl<'m> Launched<'m> {
    pub(crate) fn new(
        params: &'m IndexVec<ParamId, Param>,
        memory: &'m Memory,
        extents: &'m Extents,
        launch: &Launch,
        options: &Options,
    ) -> Launched<'m> {
        let early = launch.pdl.is_consumer() && options.producer_running;
        Launched { params, memory, extents, early, party: None, passenger: None, recorder: None }
    }

    /// The same in a stream of launches that may overlap.
    pub(crate) fn in_stream(self, passenger: Passenger<'m>) -> Launched<'m> {
        Launched { passenger: Some(passenger), ..self }
    }

    /// The same among other CTAs.
    pub(crate) fn among(self, party: Party<'m>) -> Launched<'m> {
        Launched { party: Some(party), ..self }
    }

    /// The same with a recorder, where there is one.
    pub(crate) fn recorded(self, recorder: Option<&'m Recorder>) -> Launched<'m> {
        Launched { recorder, ..self }
    }

    /// The rank.
    pub(crate) fn rank(&self) -> u32 {
        self.party.map_or(0, |party| u32::try_from(party.rank).unwrap_or(u32::MAX))
    }

    /// The party, where a buffer is shared with others.
    fn sharing(&self, param: ParamId) -> Option<Party<'m>> {
        self.party.filter(|party| party.shares(&self.params[param]))
    }

    fn party(&self) -> Party<'m> {
        self.party.expect("what CTAs share is used by kernels alone that run among others")
    }

    /// The buffer of a parameter that is one.
    pub(crate) fn buffer(&self, param: ParamId) -> &'m Buffer {
        match &self.memory.arguments[param] {
            Argument::Buffer(buffer) => buffer,
            Argument::Missing | Argument::Scalar { .. } => {
                unreachable!("arguments were checked at launch")
            }
        }
    }

    /// The code of a scalar parameter.
    pub(crate) fn scalar(&self, param: ParamId) -> u64 {
        match &self.memory.arguments[param] {
            Argument::Scalar { code, .. } => *code,
            Argument::Missing | Argument::Buffer(_) => {
                unreachable!("arguments were checked at launch")
            }
        }
    }

    /// The coordinate of a flat element of a buffer.
    pub(crate) fn coordinate(&self, param: ParamId, index: u64) -> Vec<i64> {
        launch::coordinate(&self.extents[param], index)
    }

    /// Number of elements of a buffer.
    pub(crate) fn len(&self, param: ParamId) -> u64 {
        launch::len_of(&self.extents[param]).expect("extents are checked when they are made")
    }
}

/// The stores of one CTA to one buffer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Overlay {
    pub(crate) pages: BTreeMap<usize, Box<Page>>,
}

/// The stores to a run of elements.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    bytes: Vec<u8>,
    written: [u64; PAGE / 64],
    /// Stored before `grid_wait`, so another kernel may have written over it.
    lost: [u64; PAGE / 64],
    /// Which store wrote it last.
    sites: Box<[u32; PAGE]>,
}

fn bit(bits: &[u64; PAGE / 64], i: usize) -> bool {
    bits[i / 64] >> (i % 64) & 1 == 1
}

impl Page {
    fn new(dtype: DType) -> Page {
        Page {
            bytes: vec![0; numeric::bytes_of(dtype, PAGE)],
            written: [0; PAGE / 64],
            lost: [0; PAGE / 64],
            sites: Box::new([0; PAGE]),
        }
    }

    /// Stores `value[at..at + count]` from element `slot` on.
    fn put(&mut self, dtype: DType, slot: usize, value: &Elements, at: usize, count: usize) {
        for i in slot..slot + count {
            self.written[i / 64] |= 1 << (i % 64);
        }
        let Some(size) = dtype.bytes().map(|size| size as usize) else {
            for i in 0..count {
                numeric::write_element(dtype, &mut self.bytes, slot + i, value.get(at + i));
            }
            return;
        };
        let bytes = &mut self.bytes[slot * size..][..count * size];
        match value.words() {
            Words::W8(words) => bytes.copy_from_slice(&words[at..at + count]),
            Words::W16(words) => {
                for (to, word) in bytes.as_chunks_mut::<2>().0.iter_mut().zip(&words[at..]) {
                    *to = word.to_le_bytes();
                }
            }
            Words::W32(words) => {
                for (to, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(&words[at..]) {
                    *to = word.to_le_bytes();
                }
            }
            Words::W64(words) => {
                for (to, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(&words[at..]) {
                    *to = word.to_le_bytes();
                }
            }
        }
    }

    /// Takes over one element of a page of the same place.
    fn copy_one(&mut self, dtype: DType, from: &Page, i: usize) {
        let (word, bit) = (i / 64, 1 << (i % 64));
        self.written[word] = self.written[word] & !bit | from.written[word] & bit;
        self.lost[word] = self.lost[word] & !bit | from.lost[word] & bit;
        if let Some(code) = numeric::read_element(dtype, &from.bytes, i) {
            numeric::write_element(dtype, &mut self.bytes, i, code);
        }
    }

    /// Elements that the CTA stored, kept or lost.
    pub(crate) fn touched(&self) -> [u64; PAGE / 64] {
        std::array::from_fn(|word| self.written[word] | self.lost[word])
    }

    /// Writes what was stored over the elements of a buffer from `first` on; what was lost becomes poison.
    pub(crate) fn merge(&self, buffer: &mut Buffer, first: usize) {
        let dtype = buffer.dtype();
        let size = dtype.bytes().map(|size| size as usize);
        let mut at = 0;
        while at < PAGE {
            if bit(&self.lost, at) {
                buffer.forget(first + at);
            }
            if !bit(&self.written, at) {
                at += 1;
                continue;
            }
            let run = (at..PAGE).take_while(|&i| bit(&self.written, i)).count();
            match size {
                Some(size) => {
                    buffer.write_run(first + at, &self.bytes[at * size..][..run * size]);
                }
                None => {
                    for i in at..at + run {
                        let code = numeric::read_element(dtype, &self.bytes, i);
                        buffer.write(first + i, code.expect("the index is inside the page"));
                    }
                }
            }
            at += run;
        }
    }
}

impl Overlay {
    /// The store that wrote an element.
    pub(crate) fn site(&self, index: usize) -> Option<u32> {
        self.pages.get(&(index / PAGE)).map(|page| page.sites[index % PAGE])
    }
}

/// What a CTA sees of memory.
#[derive(Clone)]
pub(crate) struct View<'m> {
    pub(crate) launched: Launched<'m>,
    overlays: IndexVec<ParamId, Overlay>,
    /// Place of each executed store.
    sites: Vec<Span>,
    waited: bool,
    /// Roles that have ended had waited.
    roles_waited: bool,
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
}

/// The stores of a CTA that has ended.
pub(crate) struct Stores {
    pub(crate) overlays: IndexVec<ParamId, Overlay>,
    pub(crate) sites: Vec<Span>,
}

/// What a role has stored, with what was stored before it.
pub(crate) struct RoleStores {
    overlays: IndexVec<ParamId, Overlay>,
    sites: Vec<Span>,
    waited: bool,
    bytes_read: u64,
    bytes_written: u64,
}

impl<'m> View<'m> {
    pub(crate) fn new(launched: Launched<'m>) -> View<'m> {
        View {
            launched,
            overlays: launched.params.iter().map(|_| Overlay::default()).collect(),
            sites: Vec::new(),
            waited: false,
            roles_waited: false,
            bytes_read: 0,
            bytes_written: 0,
        }
    }

    /// `grid_wait`: earlier kernels have ended, and may have written over what this one stored before.
    pub(crate) fn wait(&mut self, clock: &Clock, span: Span) -> Result<(), EmuError> {
        if self.launched.early && !self.waited && !self.roles_waited {
            self.lose_stores();
        }
        if let Some(passenger) = self.launched.passenger {
            self.launched.memory = passenger.wait(clock, span)?;
        }
        self.waited = true;
        Ok(())
    }

    /// In a stream, before the threads have waited: learns that others have whose work they know of.
    pub(crate) fn learn(&mut self, clock: &Clock) {
        if let (Some(passenger), false) = (self.launched.passenger, self.waited)
            && let Some(memory) = passenger.known_wait(clock)
        {
            self.launched.memory = memory;
            self.waited = true;
        }
    }

    /// `grid_launch`.
    pub(crate) fn let_go(&self, span: Span) -> Result<(), EmuError> {
        self.launched.passenger.map_or(Ok(()), |passenger| passenger.let_go(self.waited, span))
    }

    /// Notes an access, where other launches may meet it.
    fn note(
        &self,
        does: Does,
        param: ParamId,
        elements: std::ops::Range<usize>,
        span: Span,
    ) -> Result<(), EmuError> {
        match self.launched.passenger {
            Some(passenger) => passenger.note((does, self.waited), param, elements, span),
            None => Ok(()),
        }
    }

    /// Notes that elements may be written from now on.
    pub(crate) fn note_copy(
        &self,
        param: ParamId,
        start: u64,
        count: usize,
        span: Span,
    ) -> Result<(), EmuError> {
        let start = self.inside(param, start as i64, count, span)?;
        self.note(Does::Write, param, start..start + count, span)
    }

    /// What a role sees that begins.
    pub(crate) fn begin_role<'s>(
        &self,
        seat: &'s Seat<'s>,
        role: RoleId,
        declared: &'s Role,
    ) -> View<'s>
    where
        'm: 's,
    {
        let mut view: View<'s> = View { bytes_read: 0, bytes_written: 0, ..self.clone() };
        let party = view.launched.party;
        view.launched.party = party.map(|party| party.begin_role(seat, role, declared));
        view.launched.passenger = view.launched.passenger.map(|passenger| passenger.at(seat));
        view
    }

    /// The stores of a role that ends.
    pub(crate) fn into_role(self) -> RoleStores {
        if let Some(party) = self.launched.party {
            party.end_role();
        }
        let View { overlays, sites, waited, bytes_read, bytes_written, .. } = self;
        RoleStores { overlays, sites, waited, bytes_read, bytes_written }
    }

    /// Adds what a role has stored that began when there were `before` stores.
    pub(crate) fn end_role(&mut self, role: RoleStores, before: usize) -> Result<(), EmuError> {
        let shift = (self.sites.len() - before) as u32;
        let before = before as u32;
        for id in self.launched.params.ids() {
            let dtype = self.launched.params[id].dtype;
            for (&number, page) in &role.overlays[id].pages {
                let own = self.overlays[id].pages.entry(number);
                let own = own.or_insert_with(|| Box::new(Page::new(dtype)));
                for i in (0..PAGE).filter(|&i| page.sites[i] > before) {
                    if own.sites[i] > before {
                        let name = &self.launched.params[id].name;
                        let index = (number * PAGE + i) as u64;
                        let message = format!("two roles store to one element of `{name}`");
                        let place = role.sites[page.sites[i] as usize - 1];
                        let other = self.sites[own.sites[i] as usize - 1];
                        return Err(EmuError::new(ErrorKind::StoreConflict, place, message)
                            .at(self.launched.coordinate(id, index))
                            .other(other, "another role stores here"));
                    }
                    own.copy_one(dtype, page, i);
                    own.sites[i] = page.sites[i] + shift;
                }
            }
        }
        self.sites.extend(role.sites.into_iter().skip(before as usize));
        self.roles_waited |= role.waited;
        self.bytes_read += role.bytes_read;
        self.bytes_written += role.bytes_written;
        Ok(())
    }

    /// Stores so far.
    pub(crate) fn stores(&self) -> usize {
        self.sites.len()
    }

    fn lose_stores(&mut self) {
        for id in self.launched.params.ids() {
            let shared = self.launched.sharing(id);
            for (&number, page) in &mut self.overlays[id].pages {
                if let Some(party) = shared {
                    let stored = (0..PAGE).filter(|&i| bit(&page.written, i));
                    stored.for_each(|i| party.forget(id, number * PAGE + i));
                }
                for (lost, written) in page.lost.iter_mut().zip(&mut page.written) {
                    *lost |= std::mem::take(written);
                }
            }
        }
    }

    /// The stores, when the CTA has ended.
    pub(crate) fn into_stores(mut self) -> Stores {
        if self.launched.early && !self.waited && !self.roles_waited {
            self.lose_stores();
        }
        Stores { overlays: self.overlays, sites: self.sites }
    }

    /// Counts an arrival at a word of a counter; the old value.
    pub(crate) fn arrive(
        &self,
        param: ParamId,
        at: i64,
        limit: u32,
        span: Span,
    ) -> Result<u32, EmuError> {
        let index = self.inside(param, at, 1, span)?;
        self.note(Does::Write, param, index..index + 1, span)?;
        Ok(self.launched.party().arrive(param, index, limit))
    }

    /// Takes a ticket, and lets the schedule say who goes on.
    pub(crate) fn take(
        &self,
        param: ParamId,
        at: i64,
        limit: u32,
        span: Span,
    ) -> Result<u32, EmuError> {
        let index = self.inside(param, at, 1, span)?;
        self.note(Does::Write, param, index..index + 1, span)?;
        let party = self.launched.party();
        let ticket = party.take(param, index, limit);
        party.pause();
        Ok(ticket)
    }

    /// Changes an element of a buffer in one step; the old value.
    pub(crate) fn update(
        &mut self,
        param: ParamId,
        at: u64,
        op: AtomicOp,
        by: u64,
        span: Span,
    ) -> Result<u64, EmuError> {
        let index = self.inside(param, at as i64, 1, span)?;
        self.note(Does::Write, param, index..index + 1, span)?;
        let declared = &self.launched.params[param];
        let dtype = declared.dtype;
        let old = self.launched.party().update((param, declared), index, (op, by), span);
        let old = old.map_err(|error| error.at(self.launched.coordinate(param, index as u64)))?;
        self.bytes_written += launch::bytes_of_elements(dtype, 1);
        old.ok_or_else(|| self.poison(param, index, false, span))
    }

    /// Checks that a buffer may be read now.
    pub(crate) fn check_read(&self, param: ParamId, span: Span) -> Result<(), EmuError> {
        let p = &self.launched.params[param];
        if !self.launched.early || self.waited || p.settled || p.access.may_read_before_wait() {
            return Ok(());
        }
        let message = format!(
            "`{}` is read before `grid_wait`, while the kernel that writes it may still run",
            p.name
        );
        Err(EmuError::new(ErrorKind::Poison, span, message)
            .other(p.span, format!("declared `{}`", p.access))
            .help("read it after `grid_wait`, or declare it `settled` if it is"))
    }

    /// Begins a store: every element may be stored once until the next one begins.
    pub(crate) fn begin_store(&mut self, param: ParamId, span: Span) -> Result<(), EmuError> {
        let p = &self.launched.params[param];
        if p.access == Access::Scalar || !p.access.is_writable() {
            let message = format!("store to `{}`, which is `{}`", p.name, p.access);
            return Err(EmuError::new(ErrorKind::ReadOnly, span, message)
                .other(p.span, format!("declared `{}`", p.access))
                .help("declare it `output`, `inout` or `scratch`"));
        }
        self.sites.push(span);
        Ok(())
    }

    /// Copies elements `start..start + count` of a buffer to `out[at..]`.
    pub(crate) fn load(
        &mut self,
        param: ParamId,
        start: u64,
        count: usize,
        out: &mut Elements,
        at: usize,
        span: Span,
    ) -> Result<(), EmuError> {
        let start = self.inside(param, start as i64, count, span)?;
        self.note(Does::Read, param, start..start + count, span)?;
        let buffer = self.launched.buffer(param);
        let dtype = buffer.dtype();
        if let Some(party) = self.launched.sharing(param) {
            for i in 0..count {
                let code = self.load_shared(party, param, start + i, span)?;
                out.set(at + i, code);
            }
            self.bytes_read += launch::bytes_of_elements(dtype, count as u64);
            return Ok(());
        }
        if self.overlays[param].pages.is_empty() {
            if let Some(index) = buffer.unwritten_in(start, count) {
                return Err(self.poison(param, index, false, span));
            }
            copy(buffer.bytes(), dtype, start, count, out, at);
        } else {
            for i in 0..count {
                let code = self.load_one(param, start + i, span)?;
                out.set(at + i, code);
            }
        }
        self.bytes_read += launch::bytes_of_elements(dtype, count as u64);
        Ok(())
    }

    /// Reads what others may have written.
    fn load_shared(
        &self,
        party: Party<'_>,
        param: ParamId,
        index: usize,
        span: Span,
    ) -> Result<u64, EmuError> {
        let declared = &self.launched.params[param];
        let code = party
            .read(party.own(), (param, declared), index, span)
            .map_err(|error| error.at(self.launched.coordinate(param, index as u64)))?;
        let page = self.overlays[param].pages.get(&(index / PAGE));
        let lost = page.is_some_and(|page| bit(&page.lost, index % PAGE));
        code.ok_or_else(|| self.poison(param, index, lost, span))
    }

    /// Writes `value[at..at + count]` to elements `start..` of a buffer of a rank.
    pub(crate) fn store_to(
        &mut self,
        (param, rank): (ParamId, i64),
        start: u64,
        count: usize,
        value: &Elements,
        at: usize,
        span: Span,
    ) -> Result<(), EmuError> {
        let start = self.inside(param, start as i64, count, span)?;
        let (party, declared) = (self.launched.party(), &self.launched.params[param]);
        let Some(rank) = usize::try_from(rank).ok().filter(|&rank| rank < party.world) else {
            let message = format!("rank {rank} of {}", party.world);
            return Err(EmuError::new(ErrorKind::OutOfBounds, span, message));
        };
        let place = OnRank { rank, multicast: false };
        for i in 0..count {
            let code = value.get(at + i);
            party
                .write(place, (param, declared), start + i, code, span)
                .map_err(|error| error.at(self.launched.coordinate(param, (start + i) as u64)))?;
        }
        self.bytes_written += launch::bytes_of_elements(declared.dtype, count as u64);
        Ok(())
    }

    /// Writes `value[at..at + count]` to elements `start..` of a buffer of all ranks, at their multicast address.
    pub(crate) fn store_multicast(
        &mut self,
        param: ParamId,
        start: u64,
        count: usize,
        value: &Elements,
        at: usize,
        span: Span,
    ) -> Result<(), EmuError> {
        let start = self.inside(param, start as i64, count, span)?;
        let (party, declared) = (self.launched.party(), &self.launched.params[param]);
        for i in 0..count {
            let code = value.get(at + i);
            for rank in 0..party.world {
                let place = OnRank { rank, multicast: true };
                party.write(place, (param, declared), start + i, code, span).map_err(|error| {
                    error.at(self.launched.coordinate(param, (start + i) as u64))
                })?;
            }
        }
        self.bytes_written += launch::bytes_of_elements(declared.dtype, count as u64);
        Ok(())
    }

    /// The fold of what all ranks have in elements `start..start + count` of a buffer to `out[at..]`.
    pub(crate) fn load_multicast(
        &mut self,
        (param, fold): (ParamId, ReduceOp),
        start: u64,
        count: usize,
        out: &mut Elements,
        at: usize,
        span: Span,
    ) -> Result<(), EmuError> {
        let start = self.inside(param, start as i64, count, span)?;
        let (party, declared) = (self.launched.party(), &self.launched.params[param]);
        for i in 0..count {
            let index = start + i;
            let codes: Result<Vec<u64>, EmuError> = (0..party.world)
                .map(|rank| {
                    let place = OnRank { rank, multicast: true };
                    let code = party.read(place, (param, declared), index, span);
                    let code =
                        code.map_err(|e| e.at(self.launched.coordinate(param, index as u64)))?;
                    code.ok_or_else(|| self.poison(param, index, false, span))
                })
                .collect();
            let folded = multimem::fold(fold, declared.dtype, codes?);
            out.set(at + i, folded.expect("there is a rank, and sema takes types that fold"));
        }
        self.bytes_read += launch::bytes_of_elements(declared.dtype, count as u64);
        Ok(())
    }

    /// All threads of the CTA, or of the role, meet.
    pub(crate) fn meet(&self) {
        if let Some(party) = self.launched.party {
            party.meet();
        }
    }

    /// All CTAs of the cluster that begins with this CTA meet, when `wait` has waited for them.
    pub(crate) fn meet_cluster(
        &self,
        (first, number): ([u32; 3], u32),
        wait: impl FnOnce() -> Result<u32, EmuError>,
    ) -> Result<u32, EmuError> {
        let Some(party) = self.launched.party else { return wait() };
        party.come(first, number);
        let next = wait()?;
        party.leave(first, number);
        Ok(next)
    }

    /// Raises a word of a rank, or of the own one.
    pub(crate) fn signal(
        &self,
        (param, rank): (ParamId, Option<i64>),
        at: i64,
        add: u32,
        span: Span,
    ) -> Result<(), EmuError> {
        let (index, party) = (self.inside(param, at, 1, span)?, self.launched.party());
        self.note(Does::Write, param, index..index + 1, span)?;
        let rank = rank.unwrap_or(party.rank as i64);
        match usize::try_from(rank).ok().filter(|&rank| rank < party.world) {
            Some(rank) => party.signal(rank, param, index, add),
            None => {
                let message = format!("rank {rank} of {}", party.world);
                return Err(EmuError::new(ErrorKind::OutOfBounds, span, message));
            }
        }
        Ok(())
    }

    /// Waits until a word has reached a value.
    pub(crate) fn wait_for(
        &self,
        param: ParamId,
        at: i64,
        until: u32,
        span: Span,
    ) -> Result<(), EmuError> {
        let index = self.inside(param, at, 1, span)?;
        self.note(Does::Read, param, index..index + 1, span)?;
        let declared = &self.launched.params[param];
        self.launched.party().wait((param, declared), index, until, span)
    }

    fn load_one(&self, param: ParamId, index: usize, span: Span) -> Result<u64, EmuError> {
        let buffer = self.launched.buffer(param);
        if let Some(page) = self.overlays[param].pages.get(&(index / PAGE)) {
            let i = index % PAGE;
            if bit(&page.written, i) {
                let code = numeric::read_element(buffer.dtype(), &page.bytes, i);
                return Ok(code.expect("the index is inside the page"));
            }
            if bit(&page.lost, i) {
                return Err(self.poison(param, index, true, span));
            }
        }
        buffer.code(index).ok_or_else(|| self.poison(param, index, false, span))
    }

    /// Writes `value[at..at + count]` to elements `start..` of a buffer; [`View::begin_store`] came
    /// first.
    pub(crate) fn store(
        &mut self,
        param: ParamId,
        start: u64,
        count: usize,
        value: &Elements,
        at: usize,
        span: Span,
    ) -> Result<(), EmuError> {
        let start = self.inside(param, start as i64, count, span)?;
        self.note(Does::Write, param, start..start + count, span)?;
        let dtype = self.launched.params[param].dtype;
        let site = self.sites.len() as u32;
        let mut done = 0;
        while done < count {
            let index = start + done;
            let slot = index % PAGE;
            let here = (PAGE - slot).min(count - done);
            let pages = &mut self.overlays[param].pages;
            let page = pages.entry(index / PAGE).or_insert_with(|| Box::new(Page::new(dtype)));
            let sites = &mut page.sites[slot..slot + here];
            if let Some(twice) = sites.iter().position(|&s| s == site) {
                let name = &self.launched.params[param].name;
                let message = format!("one store writes an element of `{name}` twice");
                return Err(EmuError::new(ErrorKind::StoreConflict, span, message)
                    .at(self.launched.coordinate(param, (index + twice) as u64)));
            }
            sites.fill(site);
            page.put(dtype, slot, value, at + done, here);
            done += here;
        }
        if let Some(party) = self.launched.sharing(param) {
            let (own, declared) = (party.own(), &self.launched.params[param]);
            for i in 0..count {
                let written =
                    party.write(own, (param, declared), start + i, value.get(at + i), span);
                written.map_err(|e| e.at(self.launched.coordinate(param, (start + i) as u64)))?;
            }
        }
        self.bytes_written += launch::bytes_of_elements(dtype, count as u64);
        Ok(())
    }

    /// Checks that `count` elements from `start` are in the buffer.
    pub(crate) fn inside(
        &self,
        param: ParamId,
        start: i64,
        count: usize,
        span: Span,
    ) -> Result<usize, EmuError> {
        let len = self.launched.len(param);
        let end = i128::from(start) + count as i128;
        if start >= 0 && end <= i128::from(len) {
            return Ok(start as usize);
        }
        let p = &self.launched.params[param];
        let first = if start < 0 { start } else { start.max(len as i64) };
        let message = format!("element {first} of `{}`, which has {len} elements", p.name);
        Err(EmuError::new(ErrorKind::OutOfBounds, span, message)
            .at(vec![first])
            .other(p.span, "declared here"))
    }

    fn poison(&self, param: ParamId, index: usize, lost: bool, span: Span) -> EmuError {
        let early = self.launched.passenger;
        let early = early.and_then(|p| p.too_early(self.waited, param, index, span));
        if let Some(error) = early.filter(|_| !lost) {
            return error;
        }
        let p = &self.launched.params[param];
        let message = if lost {
            format!(
                "read of `{}`, which was stored before `grid_wait`, while other kernels may still use it",
                p.name
            )
        } else {
            format!("read of an element of `{}` that nothing wrote", p.name)
        };
        EmuError::new(ErrorKind::Poison, span, message)
            .at(self.launched.coordinate(param, index as u64))
            .other(p.span, format!("declared `{}`", p.access))
    }
}

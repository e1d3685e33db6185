//! Memory that ranks write for each other, and what each CTA knows of what the others did.
//!
//! A store to another rank is there at once, but nobody may read it before a signal and a wait have ordered the two:
//! each CTA has a clock of what it knows of every other one, a signal hands over what was known at the last meeting of
//! its threads, and a wait takes it. An access that the clocks do not order after the one before it, one of them a
//! write, is a race, in whatever order the two ran. So what the machine may show late or never shows here as an error.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kernel_dsl::source::Span;
use kernel_ir::index::{Id, IndexVec};
use kernel_ir::kernel::{Param, ParamId, Role, RoleId};

use crate::error::{EmuError, ErrorKind};
use crate::memory::{Argument, Buffer, Memory};
use crate::turns::{Awaited, Seat};

/// Intervals between meetings, for every CTA of every rank.
type Clock = Vec<u32>;

/// An access by a CTA in one of its intervals.
#[derive(Debug, Clone, Copy)]
struct Mark {
    part: usize,
    interval: u32,
    span: Span,
}

/// The last accesses of an element.
#[derive(Debug, Clone, Default)]
struct Marks {
    write: Option<Mark>,
    reads: Vec<Mark>,
}

/// A buffer on one rank.
struct Symmetric {
    buffer: Buffer,
    marks: Vec<Marks>,
    /// Of flags: what those knew who raised a word.
    known: BTreeMap<usize, Clock>,
}

struct State {
    clocks: Vec<Clock>,
    /// What roles that have ended knew, by CTA: of no use to others before all meet.
    ended: Vec<Clock>,
    memory: BTreeMap<(usize, ParamId), Symmetric>,
}

/// What ranks share.
pub(crate) struct Fabric {
    state: Mutex<State>,
    /// CTAs of a rank.
    ctas: usize,
    /// Parties of a CTA: itself, and its roles.
    parties: usize,
}

impl Fabric {
    /// The memory of ranks as it is before the first launch.
    pub(crate) fn new(
        params: &IndexVec<ParamId, Param>,
        memories: &[Memory],
        ctas: usize,
        roles: usize,
    ) -> Fabric {
        let parties = roles + 1;
        let parts = memories.len() * ctas * parties;
        let mut clocks = vec![vec![0; parts]; parts];
        clocks.iter_mut().enumerate().for_each(|(part, clock)| clock[part] = 1);
        let mut memory = BTreeMap::new();
        for (rank, own) in memories.iter().enumerate() {
            for (id, _) in shared_params(params) {
                let Argument::Buffer(buffer) = &own.arguments[id] else { continue };
                let (buffer, marks) = (buffer.clone(), vec![Marks::default(); buffer.len()]);
                memory.insert((rank, id), Symmetric { buffer, marks, known: BTreeMap::new() });
            }
        }
        let ended = vec![vec![0; parts]; memories.len() * ctas];
        Fabric { state: Mutex::new(State { clocks, ended, memory }), ctas, parties }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A launch of a rank has ended: its CTAs know of each other what they did.
    pub(crate) fn end_launch(&self, rank: usize) {
        let mut state = self.lock();
        let parts = rank * self.ctas * self.parties..(rank + 1) * self.ctas * self.parties;
        let mut all = vec![0; state.clocks.len()];
        for part in parts.clone() {
            join(&mut all, &state.clocks[part]);
        }
        for part in parts {
            state.clocks[part].clone_from(&all);
            state.clocks[part][part] += 1;
        }
    }

    /// Puts the memory of ranks back.
    pub(crate) fn into_memories(self, memories: &mut [Memory]) {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        for ((rank, id), symmetric) in state.memory {
            memories[rank].arguments[id] = Argument::Buffer(symmetric.buffer);
        }
    }
}

/// The parameters that lie in memory of ranks.
fn shared_params(
    params: &IndexVec<ParamId, Param>,
) -> impl Iterator<Item = (ParamId, &Param)> + '_ {
    params.iter_enumerated().filter(|(_, param)| param.access == kernel_abi::Access::Peer)
}

fn join(into: &mut Clock, other: &Clock) {
    for (into, other) in into.iter_mut().zip(other) {
        *into = (*into).max(*other);
    }
}

/// What two accesses of one element did.
struct Clash {
    earlier: Mark,
    wrote: bool,
}

impl State {
    /// True where a CTA knows of an access.
    fn knows(&self, part: usize, mark: &Mark) -> bool {
        mark.part == part || self.clocks[part][mark.part] >= mark.interval
    }

    fn mark(&self, part: usize, span: Span) -> Mark {
        Mark { part, interval: self.clocks[part][part], span }
    }

    fn read(
        &mut self,
        part: usize,
        place: (usize, ParamId),
        index: usize,
        span: Span,
    ) -> Result<Option<u64>, Clash> {
        let mark = self.mark(part, span);
        let write = self.memory.get(&place).and_then(|symmetric| symmetric.marks[index].write);
        if let Some(earlier) = write.filter(|write| !self.knows(part, write)) {
            return Err(Clash { earlier, wrote: true });
        }
        let Some(symmetric) = self.memory.get_mut(&place) else { return Ok(None) };
        let reads = &mut symmetric.marks[index].reads;
        reads.retain(|read| read.part != part);
        reads.push(mark);
        Ok(symmetric.buffer.code(index))
    }

    fn write(
        &mut self,
        part: usize,
        place: (usize, ParamId),
        index: usize,
        code: u64,
        span: Span,
    ) -> Result<(), Clash> {
        let mark = self.mark(part, span);
        let Some(symmetric) = self.memory.get(&place) else { return Ok(()) };
        let Marks { write, reads } = &symmetric.marks[index];
        let unknown = |earlier: &&Mark| !self.knows(part, earlier);
        if let Some(earlier) = write.iter().find(unknown) {
            return Err(Clash { earlier: *earlier, wrote: true });
        }
        if let Some(earlier) = reads.iter().find(unknown) {
            return Err(Clash { earlier: *earlier, wrote: false });
        }
        if let Some(symmetric) = self.memory.get_mut(&place) {
            symmetric.buffer.write(index, code);
            symmetric.marks[index] = Marks { write: Some(mark), reads: Vec::new() };
        }
        Ok(())
    }
}

/// One CTA of one rank at work.
#[derive(Clone, Copy)]
pub(crate) struct Peers<'m> {
    pub(crate) fabric: &'m Fabric,
    pub(crate) seat: &'m Seat<'m>,
    pub(crate) rank: usize,
    /// Ranks of the launch.
    pub(crate) world: usize,
    /// CTAs along x, y, z.
    pub(crate) grid: [u32; 3],
    pub(crate) cta: usize,
    /// The role that is at work.
    pub(crate) role: Option<(RoleId, &'m Role)>,
}

impl<'m> Peers<'m> {
    fn cta_of_all(&self) -> usize {
        self.rank * self.fabric.ctas + self.cta
    }

    fn part_of(&self, role: Option<RoleId>) -> usize {
        self.cta_of_all() * self.fabric.parties + role.map_or(0, |role| role.index() + 1)
    }

    fn part(&self) -> usize {
        self.part_of(self.role.map(|(role, _)| role))
    }

    fn name(&self, part: usize) -> String {
        let (cta, party) = (part / self.fabric.parties, part % self.fabric.parties);
        let [x, y, z] = crate::grid::position(self.grid, cta % self.fabric.ctas);
        let of_role = if party == 0 { String::new() } else { format!("role {party} of ") };
        format!("{of_role}CTA ({x}, {y}, {z}) of rank {}", cta / self.fabric.ctas)
    }

    /// A role begins: it knows what the CTA knows, and of what the CTA did what came before the last meeting.
    pub(crate) fn begin_role<'s>(
        self,
        seat: &'s Seat<'s>,
        role: RoleId,
        declared: &'s Role,
    ) -> Peers<'s>
    where
        'm: 's,
    {
        let (cta, part) = (self.part_of(None), self.part_of(Some(role)));
        let mut state = self.fabric.lock();
        let mut known = state.clocks[cta].clone();
        known[cta] -= 1;
        known[part] = state.clocks[part][part] + 1;
        state.clocks[part] = known;
        drop(state);
        Peers { seat, role: Some((role, declared)), ..self }
    }

    /// A role ends: the CTA learns what it knew when all meet.
    pub(crate) fn end_role(&self) {
        let part = self.part();
        let mut state = self.fabric.lock();
        let known = state.clocks[part].clone();
        join(&mut state.ended[self.cta_of_all()], &known);
    }

    /// All threads of the CTA, or of the role, meet: what they did before, a signal hands over.
    pub(crate) fn meet(&self) {
        let part = self.part();
        let mut state = self.fabric.lock();
        if self.role.is_none() {
            let ended = state.ended[self.cta_of_all()].clone();
            join(&mut state.clocks[part], &ended);
        }
        state.clocks[part][part] += 1;
    }

    /// Reads an element of the own rank.
    pub(crate) fn read(
        &self,
        (id, param): (ParamId, &Param),
        index: usize,
        span: Span,
    ) -> Result<Option<u64>, EmuError> {
        let read = self.fabric.lock().read(self.part(), (self.rank, id), index, span);
        read.map_err(|clash| self.race(param, "reads", &clash, span))
    }

    /// Writes an element of a rank.
    pub(crate) fn write(
        &self,
        rank: usize,
        (id, param): (ParamId, &Param),
        index: usize,
        code: u64,
        span: Span,
    ) -> Result<(), EmuError> {
        let write = self.fabric.lock().write(self.part(), (rank, id), index, code, span);
        write.map_err(|clash| self.race(param, "writes", &clash, span))
    }

    fn race(&self, param: &Param, does: &str, clash: &Clash, span: Span) -> EmuError {
        let did = if clash.wrote { "writes" } else { "reads" };
        let (own, other) = (self.name(self.part()), self.name(clash.earlier.part));
        let message = format!(
            "{own} {does} an element of `{}` that {other} {did}, and no signal and wait order the two",
            param.name
        );
        EmuError::new(ErrorKind::RankRace, span, message)
            .other(clash.earlier.span, format!("{other} {did} it here"))
            .help("signal after the stores and a `sync`, and wait for every sender before the read")
    }

    /// Raises a word of a rank.
    pub(crate) fn signal(&self, rank: usize, id: ParamId, index: usize, add: u32) {
        {
            let mut state = self.fabric.lock();
            let part = self.part();
            let mut known = state.clocks[part].clone();
            if self.role.is_some_and(|(_, role)| role.elect) {
                // One thread hands over all that it did.
                state.clocks[part][part] += 1;
            } else {
                // What threads did since they met is not handed over.
                known[part] -= 1;
            }
            if let Some(flags) = state.memory.get_mut(&(rank, id)) {
                let old = flags.buffer.code(index).unwrap_or(0) as u32;
                flags.buffer.write(index, u64::from(old.wrapping_add(add)));
                let of_word = flags.known.entry(index).or_insert_with(|| vec![0; known.len()]);
                join(of_word, &known);
            }
        }
        self.seat.pause();
    }

    /// Waits until a word of the own rank has reached a value.
    pub(crate) fn wait(
        &self,
        (id, param): (ParamId, &Param),
        index: usize,
        until: u32,
        span: Span,
    ) -> Result<(), EmuError> {
        let value = || {
            let state = self.fabric.lock();
            let flags = state.memory.get(&(self.rank, id));
            flags.and_then(|flags| flags.buffer.code(index)).unwrap_or(0) as u32
        };
        let awaited = || {
            let what = format!(
                "{} waits until word {index} of `{}` is {until}, and it is {}",
                self.name(self.part()),
                param.name,
                value()
            );
            Awaited { what, span }
        };
        self.seat.wait(|| value().wrapping_sub(until) as i32 >= 0, awaited)?;
        let mut state = self.fabric.lock();
        let part = self.part();
        let known =
            state.memory.get(&(self.rank, id)).and_then(|flags| flags.known.get(&index)).cloned();
        if let Some(known) = known {
            join(&mut state.clocks[part], &known);
        }
        Ok(())
    }
}

//! A CTA, or a role of it, at work among others.

use kernel_abi::Access;
use kernel_dsl::source::Span;
use kernel_ir::index::Id;
use kernel_ir::kernel::{Param, ParamId, Role, RoleId};
use kernel_ir::ops::AtomicOp;

use super::{Between, Clash, Clock, Does, Fabric, Mark};
use crate::error::{EmuError, ErrorKind};
use crate::turns::{Awaited, Seat};

/// One CTA of one rank at work.
#[derive(Clone, Copy)]
pub(crate) struct Party<'m> {
    pub(crate) fabric: &'m Fabric,
    /// Its place at the table; none where nobody waits.
    pub(crate) seat: Option<&'m Seat<'m>>,
    pub(crate) rank: usize,
    /// Ranks of the launch.
    pub(crate) world: usize,
    /// CTAs along x, y, z.
    pub(crate) grid: [u32; 3],
    pub(crate) cta: usize,
    /// The role that is at work.
    pub(crate) role: Option<(RoleId, &'m Role)>,
}

/// The memory of a rank, and by which address it is reached.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OnRank {
    pub(crate) rank: usize,
    /// By the address of all ranks at once.
    pub(crate) multicast: bool,
}

impl<'m> Party<'m> {
    fn cta_of_all(&self) -> usize {
        self.rank * self.fabric.ctas + self.cta
    }

    fn part_of(&self, role: Option<RoleId>) -> usize {
        self.cta_of_all() * self.fabric.parties + role.map_or(0, |role| role.index() + 1)
    }

    fn part(&self) -> usize {
        self.part_of(self.role.map(|(role, _)| role))
    }

    /// True for a buffer that goes through here.
    pub(crate) fn shares(&self, param: &Param) -> bool {
        self.fabric.between.shares(param)
    }

    /// The CTA that a party is, or is of.
    fn position(&self, part: usize) -> [u32; 3] {
        crate::grid::position(self.grid, part / self.fabric.parties % self.fabric.ctas)
    }

    fn name(&self, part: usize) -> String {
        let (cta, party) = (part / self.fabric.parties, part % self.fabric.parties);
        let [x, y, z] = self.position(part);
        let of_role = if party == 0 { String::new() } else { format!("role {party} of ") };
        let of_rank = match self.fabric.between {
            Between::Ranks | Between::All => format!(" of rank {}", cta / self.fabric.ctas),
            Between::Ctas => String::new(),
        };
        format!("{of_role}CTA ({x}, {y}, {z}){of_rank}")
    }

    /// A role begins: it knows what the CTA knows, and of what the CTA did what came before the last meeting.
    pub(crate) fn begin_role<'s>(
        self,
        seat: &'s Seat<'s>,
        role: RoleId,
        declared: &'s Role,
    ) -> Party<'s>
    where
        'm: 's,
    {
        let (cta, part) = (self.part_of(None), self.part_of(Some(role)));
        let mut state = self.fabric.lock();
        let mut known = state.clocks[cta].clone();
        known.set(cta, state.now[cta] - 1);
        state.clocks[part] = known;
        state.now[part] += 1;
        drop(state);
        Party { seat: Some(seat), role: Some((role, declared)), ..self }
    }

    /// A role ends: the CTA learns what it knew when all meet.
    pub(crate) fn end_role(&self) {
        let mut state = self.fabric.lock();
        let known = state.known_to(self.part());
        state.ended.entry(self.cta_of_all()).or_default().join(&known);
    }

    /// All threads of the CTA, or of the role, meet: what they did before, a signal hands over.
    pub(crate) fn meet(&self) {
        let part = self.part();
        let mut state = self.fabric.lock();
        if self.role.is_none()
            && let Some(ended) = state.ended.get(&self.cta_of_all()).cloned()
        {
            state.clocks[part].join(&ended);
        }
        state.now[part] += 1;
    }

    /// The CTA comes to a meeting of its cluster, whose first CTA this is.
    pub(crate) fn come(&self, first: [u32; 3], number: u32) {
        self.meet();
        let mut state = self.fabric.lock();
        let known = self.hand_over(&mut state);
        let cluster = self.number(first);
        // All that come here have left the one before the last.
        state.meetings.retain(|&(of, before), _| of != cluster || before + 1 >= number);
        state.meetings.entry((cluster, number)).or_default().join(&known);
    }

    /// All are there.
    pub(crate) fn leave(&self, first: [u32; 3], number: u32) {
        let mut state = self.fabric.lock();
        let known = state.meetings.get(&(self.number(first), number)).cloned();
        if let Some(known) = known {
            let part = self.part();
            state.clocks[part].join(&known);
        }
    }

    /// The number of a CTA among those of all ranks, x fastest.
    fn number(&self, [i, j, k]: [u32; 3]) -> usize {
        let [x, y, _] = self.grid.map(|extent| extent as usize);
        self.rank * self.fabric.ctas + i as usize + x * (j as usize + y * k as usize)
    }

    /// Notes an access of an element of a rank; `then` gets what it holds, and may change it.
    fn access<T>(
        &self,
        does: Does,
        (OnRank { rank, multicast }, id, param): (OnRank, ParamId, &Param),
        index: usize,
        span: Span,
        then: impl FnOnce(&mut crate::memory::Buffer) -> T,
    ) -> Result<T, EmuError> {
        let part = self.part();
        let mut state = self.fabric.lock();
        let warps = self
            .role
            .map_or((0, u32::MAX), |(_, role)| (role.first, role.first.saturating_add(role.warps)));
        let mark = Mark { party: part, interval: state.now[part], warps, multicast, span };
        let parties = self.fabric.parties;
        let of_ranks = param.access == Access::Peer;
        let is_own = |other: &Mark| {
            if of_ranks {
                mark.is_in_line_with(other)
            } else {
                other.party / parties == part / parties && mark.shares_warps_with(other)
            }
        };
        match state.access(does, mark, (rank, id), index, is_own) {
            Ok(shared) => Ok(then(&mut shared.buffer)),
            Err(clash) => Err(self.race(param, does, clash, span)),
        }
    }

    /// The own memory, at its own address.
    pub(crate) fn own(&self) -> OnRank {
        OnRank { rank: self.rank, multicast: false }
    }

    /// Reads an element of a rank.
    pub(crate) fn read(
        &self,
        place: OnRank,
        (id, param): (ParamId, &Param),
        index: usize,
        span: Span,
    ) -> Result<Option<u64>, EmuError> {
        self.access(Does::Read, (place, id, param), index, span, |buffer| buffer.code(index))
    }

    /// Writes an element of a rank.
    pub(crate) fn write(
        &self,
        place: OnRank,
        (id, param): (ParamId, &Param),
        index: usize,
        code: u64,
        span: Span,
    ) -> Result<(), EmuError> {
        let place = (place, id, param);
        self.access(Does::Write, place, index, span, |buffer| buffer.write(index, code))
    }

    /// Changes an element of the own rank in one step; what it held, if anything has written it.
    pub(crate) fn update(
        &self,
        (id, param): (ParamId, &Param),
        index: usize,
        (op, by): (AtomicOp, u64),
        span: Span,
    ) -> Result<Option<u64>, EmuError> {
        let place = (self.own(), id, param);
        self.access(Does::Update(op), place, index, span, |buffer| {
            let old = buffer.code(index)?;
            buffer.write(index, op.apply(param.dtype, old, by));
            Some(old)
        })
    }

    /// What was stored to an element may have been written over by an earlier kernel.
    pub(crate) fn forget(&self, id: ParamId, index: usize) {
        if let Some(shared) = self.fabric.lock().memory.get_mut(&(self.rank, id)) {
            shared.buffer.forget(index);
        }
    }

    fn race(&self, param: &Param, does: Does, clash: Clash, span: Span) -> EmuError {
        let (part, earlier) = (self.part(), clash.earlier);
        let (own, other) = (self.name(part), self.name(earlier.party));
        let name = &param.name;
        match (param.access == Access::Peer, does, clash.did) {
            (true, _, _) => {
                let (does, did) = (does.verb(), clash.did.verb());
                let message = format!(
                    "{own} {does} an element of `{name}` that {other} {did}, and no signal and wait order the two"
                );
                EmuError::new(ErrorKind::RankRace, span, message)
                    .other(earlier.span, format!("{other} {did} it here"))
                    .help("signal after the stores and a `sync`, and wait for every sender before the read")
            }
            (false, Does::Write, Does::Write) => {
                let message = format!("{own} and {other} store to one element of `{name}`");
                EmuError::new(ErrorKind::StoreConflict, span, message)
                    .other(earlier.span, format!("{other} stores here"))
            }
            (false, Does::Update(op), Does::Update(other_op)) => {
                let (does, did) = (op.name(), other_op.name());
                let message = format!(
                    "`{name}` is changed by atomic.{does} where {other} changes it by atomic.{did}, and nothing orders the \
                     two"
                );
                EmuError::new(ErrorKind::GridRace, span, message)
                    .other(earlier.span, format!("{other} changes it here"))
                    .help("let the last CTA do one of them: `if arrive.last`, or an earlier kernel")
            }
            // Whoever reads is told.
            (false, does, Does::Read) => {
                let message = format!(
                    "`{name}` is read where {own} {} it, and nothing orders the two",
                    does.verb()
                );
                EmuError::new(ErrorKind::GridRace, earlier.span, message)
                    .other(span, format!("{own} {} it here", does.verb()))
                    .help(ORDER)
            }
            (false, does, did) => {
                let (verb, did) =
                    (if does == Does::Read { "read" } else { "stored to" }, did.verb());
                let message = format!(
                    "`{name}` is {verb} where {other} {did} it, and nothing orders the two"
                );
                EmuError::new(ErrorKind::GridRace, span, message)
                    .other(earlier.span, format!("{other} {did} it here"))
                    .help(ORDER)
            }
        }
    }

    /// What is handed over to whoever learns of a word; in a role of one thread, all that it did.
    fn hand_over(&self, state: &mut super::State) -> Clock {
        let part = self.part();
        let mut known = state.known_to(part);
        if self.role.is_some_and(|(_, role)| role.elect) {
            state.now[part] += 1;
        } else {
            // What threads did since they met is not handed over.
            known.set(part, state.now[part] - 1);
        }
        known
    }

    /// Raises a word of a rank.
    pub(crate) fn signal(&self, rank: usize, id: ParamId, index: usize, add: u32) {
        {
            let mut state = self.fabric.lock();
            let known = self.hand_over(&mut state);
            if let Some(words) = state.memory.get_mut(&(rank, id)) {
                let old = words.buffer.code(index).unwrap_or(0) as u32;
                words.buffer.write(index, u64::from(old.wrapping_add(add)));
                words.known.entry(index).or_default().join(&known);
            }
        }
        self.pause();
    }

    /// Counts an arrival at a word, which becomes 0 after `limit`; the old value. Both sides learn what the other knew.
    pub(crate) fn arrive(&self, id: ParamId, index: usize, limit: u32) -> u32 {
        let mut state = self.fabric.lock();
        let known = self.hand_over(&mut state);
        let part = self.part();
        let Some(words) = state.memory.get_mut(&(self.rank, id)) else { return 0 };
        let old = count(&mut words.buffer, index, limit);
        let of_word = words.known.entry(index).or_default();
        of_word.join(&known);
        let learnt = of_word.clone();
        state.clocks[part].join(&learnt);
        old
    }

    /// Counts at a word, which becomes 0 after `limit`; the old value. Nobody learns anything by that.
    pub(crate) fn take(&self, id: ParamId, index: usize, limit: u32) -> u32 {
        let mut state = self.fabric.lock();
        let words = state.memory.get_mut(&(self.rank, id));
        words.map_or(0, |words| count(&mut words.buffer, index, limit))
    }

    /// Lets another one go on, where they take turns.
    pub(crate) fn pause(&self) {
        if let Some(seat) = self.seat {
            seat.pause();
        }
    }

    /// Waits until a word of the own rank has reached a value.
    pub(crate) fn wait(
        &self,
        (id, param): (ParamId, &Param),
        index: usize,
        until: u32,
        span: Span,
    ) -> Result<(), EmuError> {
        let place = (self.rank, id);
        let value = || {
            let state = self.fabric.lock();
            let words = state.memory.get(&place);
            words.and_then(|words| words.buffer.code(index)).unwrap_or(0) as u32
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
        if let Some(seat) = self.seat {
            seat.wait(|| value().wrapping_sub(until) as i32 >= 0, awaited)?;
        }
        let mut state = self.fabric.lock();
        let part = self.part();
        let known = state.memory.get(&place).and_then(|words| words.known.get(&index)).cloned();
        if let Some(known) = known {
            state.clocks[part].join(&known);
        }
        Ok(())
    }
}

/// Counts up to `limit` and from 0 again; the old value.
fn count(words: &mut crate::memory::Buffer, index: usize, limit: u32) -> u32 {
    let old = words.code(index).unwrap_or(0) as u32;
    words.write(index, u64::from(if old >= limit { 0 } else { old + 1 }));
    old
}

/// How accesses of two CTAs come into an order.
const ORDER: &str = "read it inside of `if arrive.last`, by the last of those who wrote it";

//! Memory that CTAs of a grid, or of several ranks, write for each other, and what each of them knows of what the others
//! did.
//!
//! A store is there at once, but nobody else may read it before something has ordered the two: each party has a clock
//! of what it knows of every other one, a signal or an arrival hands over what was known at the last meeting of its
//! threads, and a wait or an arrival takes it. An access that the clocks do not order after the one before it, one of
//! them a write, is a race, in whatever order the two ran. So what the machine may show late or never shows here as an
//! error.

mod clock;
mod marks;
mod party;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kernel_abi::Access;
use kernel_ir::index::IndexVec;
use kernel_ir::kernel::{Param, ParamId};

use crate::error::{EmuError, ErrorKind};
use crate::launch;
use crate::memory::{Argument, Buffer, Memory};
use clock::Clock;
use marks::{Clash, Does, Mark, Marks};

pub(crate) use party::{OnRank, Party};

/// A buffer on one rank.
struct Shared {
    buffer: Buffer,
    marks: BTreeMap<usize, Marks>,
    /// Of words: what those knew who raised one, or arrived at it.
    known: BTreeMap<usize, Clock>,
}

struct State {
    /// By party: what it knows of others.
    clocks: Vec<Clock>,
    /// By party: its interval between meetings, from 1 on.
    now: Vec<u32>,
    /// What roles that have ended knew, by CTA: of no use to others before all meet.
    ended: BTreeMap<usize, Clock>,
    /// What those knew who came to a meeting, by the first CTA of the cluster and the number of the meeting.
    meetings: BTreeMap<(usize, u32), Clock>,
    memory: BTreeMap<(usize, ParamId), Shared>,
}

/// Who shares memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Between {
    /// CTAs of several ranks.
    Ranks,
    /// CTAs of one grid: threads of one CTA are in order with each other as far as this goes, but for those of roles that
    /// run side by side.
    Ctas,
    /// CTAs of several ranks, and those of a rank among themselves.
    All,
}

impl Between {
    /// True for a buffer that they share.
    pub(crate) fn shares(self, param: &Param) -> bool {
        let is_peer = param.access == Access::Peer;
        match self {
            Between::Ranks => is_peer,
            Between::Ctas => !is_peer && param.access.is_writable(),
            Between::All => is_peer || param.access.is_writable(),
        }
    }
}

/// What the parties share.
pub(crate) struct Fabric {
    state: Mutex<State>,
    between: Between,
    /// CTAs of a rank.
    ctas: usize,
    /// Parties of a CTA: itself, and its roles.
    parties: usize,
}

impl Fabric {
    /// The memory of ranks, of which there may be one, as it is before the first launch.
    pub(crate) fn new(
        params: &IndexVec<ParamId, Param>,
        memories: &[Memory],
        between: Between,
        ctas: usize,
        roles: usize,
    ) -> Fabric {
        let parties = roles + 1;
        let parts = memories.len() * ctas * parties;
        let mut memory = BTreeMap::new();
        for (rank, own) in memories.iter().enumerate() {
            for (id, param) in params.iter_enumerated() {
                let Argument::Buffer(buffer) = &own.arguments[id] else { continue };
                if between.shares(param) {
                    let (buffer, marks, known) = (buffer.clone(), BTreeMap::new(), BTreeMap::new());
                    memory.insert((rank, id), Shared { buffer, marks, known });
                }
            }
        }
        let (clocks, now) = (vec![Clock::default(); parts], vec![1; parts]);
        let (ended, meetings) = (BTreeMap::new(), BTreeMap::new());
        let state = State { clocks, now, ended, meetings, memory };
        Fabric { state: Mutex::new(state), between, ctas, parties }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A launch of a rank has ended: its CTAs know of each other what they did.
    pub(crate) fn end_launch(&self, rank: usize) {
        let mut state = self.lock();
        let parts = rank * self.ctas * self.parties..(rank + 1) * self.ctas * self.parties;
        let mut all = Clock::default();
        for part in parts.clone() {
            all.join(&state.known_to(part));
        }
        for part in parts {
            state.clocks[part].clone_from(&all);
            state.now[part] += 1;
        }
    }

    /// A CTA has ended, and nobody asks again what it knew.
    pub(crate) fn end_cta(&self, cta: usize) {
        let mut state = self.lock();
        for part in cta * self.parties..(cta + 1) * self.parties {
            state.clocks[part] = Clock::default();
        }
        state.ended.remove(&cta);
    }

    /// Refuses counters of a rank that do not start again at zero.
    pub(crate) fn check_counters(
        &self,
        params: &IndexVec<ParamId, Param>,
        rank: usize,
    ) -> Result<(), EmuError> {
        let state = self.lock();
        for (id, param) in params.iter_enumerated().filter(|(_, param)| param.counts_arrivals()) {
            let Some(words) = state.memory.get(&(rank, id)) else { continue };
            let value = |&i: &usize| words.buffer.code(i).is_some_and(|code| code != 0);
            if let Some(index) = (0..words.buffer.len()).find(value) {
                let name = &param.name;
                let code = words.buffer.code(index).unwrap_or(0);
                let message = format!(
                    "word {index} of the counter `{name}` is {code} after the run: the arrivals are no multiple of the \
                     stated number"
                );
                let error = EmuError::new(ErrorKind::Contract, param.span, message);
                return Err(error.at(vec![index as i64]));
            }
        }
        Ok(())
    }

    /// What was there at the start has become something else: takes it over where no party has written.
    pub(crate) fn rebase(&self, before: &Memory, now: &Memory) {
        let mut state = self.lock();
        for ((_, id), shared) in &mut state.memory {
            let (Some(before), Some(now)) = (before.buffer(*id), now.buffer(*id)) else { continue };
            for index in 0..now.len() {
                let is_written = shared.marks.get(&index).is_some_and(Marks::is_written);
                // Words that are counted at have no marks.
                if is_written || shared.buffer.code(index) != before.code(index) {
                    continue;
                }
                match now.code(index) {
                    Some(code) => shared.buffer.write(index, code),
                    None => shared.buffer.forget(index),
                }
            }
        }
    }

    /// Brings what the parties of the only rank have written to its memory.
    pub(crate) fn bring(&self, params: &IndexVec<ParamId, Param>, memory: &mut Memory) {
        let state = self.lock();
        for ((_, id), shared) in &state.memory {
            let Argument::Buffer(to) = &mut memory.arguments[*id] else { continue };
            let is_word = params[*id].words.is_some();
            for index in 0..to.len() {
                let is_written = shared.marks.get(&index).is_some_and(Marks::is_written);
                if !is_written && !is_word {
                    continue;
                }
                match shared.buffer.code(index) {
                    Some(code) => to.write(index, code),
                    None => to.forget(index),
                }
            }
        }
    }

    /// Puts the memory of ranks back.
    pub(crate) fn into_memories(self, memories: &mut [Memory]) {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        for ((rank, id), shared) in state.memory {
            memories[rank].arguments[id] = Argument::Buffer(shared.buffer);
        }
    }
}

/// Refuses counters that do not start at zero.
pub(crate) fn check_zero(
    params: &IndexVec<ParamId, Param>,
    memory: &Memory,
) -> Result<(), EmuError> {
    for (id, param) in params.iter_enumerated().filter(|(_, param)| param.counts_arrivals()) {
        let Argument::Buffer(buffer) = &memory.arguments[id] else { continue };
        if let Some(index) = (0..buffer.len()).find(|&i| buffer.code(i) != Some(0)) {
            let message =
                format!("word {index} of the counter `{}` is not 0 at launch", param.name);
            let error = EmuError::new(ErrorKind::Contract, param.span, message);
            return Err(error.at(launch::coordinate(&[buffer.len() as u64], index as u64)));
        }
    }
    Ok(())
}

impl State {
    /// What a party knows, its own part included.
    fn known_to(&self, part: usize) -> Clock {
        let mut known = self.clocks[part].clone();
        known.set(part, self.now[part]);
        known
    }

    /// Notes an access of an element, and gives what it holds.
    fn access(
        &mut self,
        does: Does,
        mark: Mark,
        place: (usize, ParamId),
        index: usize,
        is_own: impl Fn(&Mark) -> bool,
    ) -> Result<&mut Shared, Clash> {
        let clock = &self.clocks[mark.party];
        let shared = self.memory.get_mut(&place);
        let shared = shared.expect("a buffer that is shared has been put here at launch");
        let knows = |earlier: &Mark| is_own(earlier) || clock.of(earlier.party) >= earlier.interval;
        shared.marks.entry(index).or_default().note(does, mark, knows)?;
        Ok(shared)
    }
}

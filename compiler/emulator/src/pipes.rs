//! Barriers of a CTA, and copies that land when the schedule says so.
//!
//! A round of a slot is complete when its arrivals have come and its bytes have landed. What an arrival has seen is
//! known to whoever waits for the round; a copy makes its own bytes known and nothing else. Copies land one at a time,
//! at turns of a part of their own, in any order.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kernel_dsl::source::Span;
use kernel_ir::index::{Id, IndexVec};
use kernel_ir::kernel::{Barrier, BarrierId, Between, Role, RoleId};

use crate::cluster::{Life, Member};
use crate::error::{EmuError, ErrorKind};
use crate::roles::{Clock, Stamp};
use crate::turns::{Awaited, Seat};

/// A slot of a barrier.
struct Slot {
    /// Complete rounds.
    done: u64,
    /// Arrivals that the round at hand still takes.
    missing: u32,
    /// Bytes that are announced and have not landed.
    bytes: i64,
    /// What the arrivals of the round at hand have seen.
    gathered: Vec<u64>,
    /// What those who wait for the last complete round come to know.
    known: Vec<u64>,
    /// The same of the other CTA of a pair, by its own arrivals.
    gathered_of_other: Vec<u64>,
    known_of_other: Vec<u64>,
}

/// Puts what a copy has read into shared memory.
type Land<S> = Box<dyn FnOnce(&mut S) -> Result<(), EmuError> + Send>;

/// Puts what products have computed into tensor memory.
type Complete<S> = Box<dyn FnOnce(Member<'_, S>) -> Result<(), EmuError> + Send>;

/// What happens when something lands.
enum Effect<S> {
    Land(Land<S>),
    Complete(Complete<S>),
}

/// A copy on its way.
struct Flight<S> {
    /// The CTA whose memory it fills.
    cta: usize,
    /// Where its bytes count, in that CTA or in another one; what is sent counts as it lands.
    counts: Option<(usize, Place, u32)>,
    /// Arrivals there.
    arrivals: u32,
    /// They come in every CTA of the cluster.
    everywhere: bool,
    /// What lands in the order in which it started: products of one role.
    queue: Option<usize>,
    /// What those who wait come to know by it.
    known: Vec<u64>,
    effect: Effect<S>,
    span: Span,
}

/// A slot of a barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) barrier: BarrierId,
    pub(crate) slot: usize,
}

/// The slots of all barriers of a CTA, which others of its cluster may reach.
pub(crate) struct Rounds {
    /// The CTA's rank in its cluster.
    cta: usize,
    barriers: IndexVec<BarrierId, Barrier>,
    /// Agents of the CTA before the first slot.
    agents: usize,
    slots: Mutex<IndexVec<BarrierId, Vec<Slot>>>,
}

/// Memory of a CTA, with the rounds of its barriers.
pub(crate) trait HasRounds {
    /// The cluster meets, by operations of this level, before others reach the memory and after they have.
    const SHOWS_MEETINGS: bool;

    /// The rounds.
    fn rounds(&self) -> &Arc<Rounds>;
}

struct State<S> {
    flights: Vec<Flight<S>>,
    /// Roles that still run.
    running: usize,
}

/// The barriers of a CTA while roles run; `S` is its shared memory.
pub(crate) struct Pipes<'k, S> {
    barriers: &'k IndexVec<BarrierId, Barrier>,
    roles: &'k IndexVec<RoleId, Role>,
    rounds: Arc<Rounds>,
    state: Mutex<State<S>>,
}

/// Slots of all barriers.
pub(crate) fn slots(barriers: &IndexVec<BarrierId, Barrier>) -> usize {
    barriers.iter().map(|barrier| barrier.slots as usize).sum()
}

impl Rounds {
    pub(crate) fn new(
        barriers: impl Iterator<Item = Barrier>,
        roles: usize,
        cta: usize,
    ) -> Arc<Rounds> {
        let barriers: IndexVec<BarrierId, Barrier> = barriers.collect();
        let agents = roles + 1;
        let known = vec![0; agents + slots(&barriers)];
        let slot = |barrier: &Barrier| Slot {
            done: 0,
            missing: if barrier.is_prepaid() { 0 } else { barrier.arrivals },
            bytes: if barrier.is_prepaid() { barrier.bytes.into() } else { 0 },
            gathered: known.clone(),
            known: known.clone(),
            gathered_of_other: known.clone(),
            known_of_other: known.clone(),
        };
        let of = |barrier: &Barrier| (0..barrier.slots).map(|_| slot(barrier)).collect();
        let slots = Mutex::new(barriers.iter().map(of).collect());
        Arc::new(Rounds { cta, barriers, agents, slots })
    }

    fn lock(&self) -> MutexGuard<'_, IndexVec<BarrierId, Vec<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The index of a slot's own time in a clock of its CTA.
    fn agent(&self, place: Place) -> usize {
        let before = self.barriers.iter().take(place.barrier.index());
        let slots: usize = before.map(|barrier| barrier.slots as usize).sum();
        self.agents + slots + place.slot
    }

    /// The mark of what a copy writes that counts in the round at hand.
    pub(crate) fn stamp(&self, place: Place, span: Span) -> Stamp {
        let done = self.lock()[place.barrier][place.slot].done;
        Stamp::of(self.cta, self.agent(place), done + 1, span)
    }

    /// What is known of the CTA where its roles have given a slot back.
    pub(crate) fn given_back(&self, place: Place) -> Clock {
        let partner = self.barriers[place.barrier].partner;
        let slots = self.lock();
        let gathered = partner.and_then(|partner| slots[partner].get(place.slot));
        Clock::of_observer(gathered.map(|slot| slot.gathered.clone()).unwrap_or_default())
    }

    /// Someone of the own CTA as an observer of the other one of the pair, who knows as much of it.
    pub(crate) fn other_of(&self, clock: &Clock) -> Clock {
        let mut seen = self.across(clock.seen());
        crate::roles::join(&mut seen, clock.of_other());
        clock.elsewhere(seen)
    }

    /// What of so much knowledge of the own CTA holds for the other one of its pair: copies of both count together.
    fn across(&self, seen: &[u64]) -> Vec<u64> {
        let mut of_both = vec![false; self.agents];
        for barrier in self.barriers.iter() {
            let both = barrier.between == Between::Gathered;
            of_both.extend((0..barrier.slots).map(|_| both));
        }
        seen.iter().zip(of_both).map(|(&at, both)| if both { at } else { 0 }).collect()
    }

    /// What arrivals of the other CTA of the pair have seen there.
    fn learn_of_other(&self, place: Place, known: &[u64]) {
        let slot = &mut self.lock()[place.barrier][place.slot];
        crate::roles::join(&mut slot.gathered_of_other, known);
    }

    /// Bytes have landed and arrivals have come, with what they know.
    fn count(
        &self,
        place: Place,
        (arrivals, bytes): (u32, i64),
        known: &[u64],
        span: Span,
    ) -> Result<(), EmuError> {
        let mut slots = self.lock();
        let slot = &mut slots[place.barrier][place.slot];
        let declared = &self.barriers[place.barrier];
        let Some(missing) = slot.missing.checked_sub(arrivals) else {
            let message = format!("more arrivals at {} than a round takes", name(declared, place));
            return Err(EmuError::new(ErrorKind::Phase, span, message)
                .other(declared.span, "declared here"));
        };
        slot.missing = missing;
        slot.bytes += bytes;
        crate::roles::join(&mut slot.gathered, known);
        if slot.missing == 0 && slot.bytes == 0 {
            slot.done += 1;
            slot.missing = declared.arrivals;
            slot.gathered[self.agent(place)] = slot.done;
            slot.known.clone_from(&slot.gathered);
            slot.known_of_other.clone_from(&slot.gathered_of_other);
        }
        Ok(())
    }
}

fn name(barrier: &Barrier, place: Place) -> String {
    match barrier.slots {
        1 => format!("`{}`", barrier.name),
        _ => format!("slot {} of `{}`", place.slot, barrier.name),
    }
}

impl<'k, S: HasRounds> Pipes<'k, S> {
    pub(crate) fn new(
        barriers: &'k IndexVec<BarrierId, Barrier>,
        roles: &'k IndexVec<RoleId, Role>,
        running: usize,
        rounds: Arc<Rounds>,
    ) -> Pipes<'k, S> {
        let state = State { flights: Vec::new(), running };
        Pipes { barriers, roles, rounds, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn agent(&self, place: Place) -> usize {
        self.rounds.agent(place)
    }

    fn name(&self, place: Place) -> String {
        name(&self.barriers[place.barrier], place)
    }

    /// A role has ended.
    pub(crate) fn leave(&self) {
        self.lock().running -= 1;
    }

    /// Waits until so many rounds are complete.
    pub(crate) fn wait(
        &self,
        seat: &Seat<'_>,
        role: RoleId,
        place: Place,
        rounds: u64,
        clock: &mut Clock,
        span: Span,
    ) -> Result<(), EmuError> {
        let done = || self.rounds.lock()[place.barrier][place.slot].done;
        let who = &self.roles[role].name;
        let out_of_turn = |done: u64| {
            let message = format!(
                "role `{who}` waits for round {rounds} of {} when {done} are complete",
                self.name(place)
            );
            Err(EmuError::new(ErrorKind::Phase, span, message))
        };
        // A thread sees whether the number of complete rounds is odd, no more.
        if rounds > done() + 1 || rounds < done() {
            return out_of_turn(done());
        }
        let awaited = || Awaited {
            what: format!("role `{who}` waits for round {rounds} of {}", self.name(place)),
            span,
        };
        seat.wait(|| done() >= rounds, awaited)?;
        if done() != rounds {
            return out_of_turn(done());
        }
        let slots = self.rounds.lock();
        let slot = &slots[place.barrier][place.slot];
        clock.learn(&slot.known);
        clock.learn_of_other(&slot.known_of_other);
        Ok(())
    }

    /// So many arrivals at a barrier which counts those of both CTAs of a pair, in the first.
    pub(crate) fn arrive_at_first(
        &self,
        member: Member<'_, S>,
        place: Place,
        arrivals: u32,
        clock: &mut Clock,
        span: Span,
    ) -> Result<(), EmuError> {
        if member.rank() == 0 {
            return self.arrive(place, arrivals, 0, clock, span);
        }
        if S::SHOWS_MEETINGS && member.life(0) != Life::Here {
            let message = "an arrival at CTA 0 of the cluster, which is not there";
            return Err(EmuError::new(ErrorKind::Absent, span, message));
        }
        let known = clock.publish();
        let rounds = Arc::clone(member.shared(0).rounds());
        rounds.learn_of_other(place, &known);
        rounds.count(place, (arrivals, 0), &[], span)
    }

    /// So many arrivals, and so many bytes announced with them.
    pub(crate) fn arrive(
        &self,
        place: Place,
        arrivals: u32,
        bytes: u32,
        clock: &mut Clock,
        span: Span,
    ) -> Result<(), EmuError> {
        let known = clock.publish();
        self.rounds.count(place, (arrivals, i64::from(bytes)), &known, span)
    }

    /// So many arrivals at the same barrier of the other CTAs of the cluster, which learn nothing by them of this one.
    pub(crate) fn arrive_at_others(
        &self,
        member: Member<'_, S>,
        place: Place,
        arrivals: u32,
        span: Span,
    ) -> Result<(), EmuError> {
        self.tell_others(member, place, arrivals, &[], span)
    }

    fn tell_others(
        &self,
        member: Member<'_, S>,
        place: Place,
        arrivals: u32,
        known: &[u64],
        span: Span,
    ) -> Result<(), EmuError> {
        for cta in (0..member.size()).filter(|&cta| cta != member.rank()) {
            if S::SHOWS_MEETINGS && member.life(cta) != Life::Here {
                let message = format!("an arrival at CTA {cta} of the cluster, which is not there");
                return Err(EmuError::new(ErrorKind::Absent, span, message));
            }
            let rounds = Arc::clone(member.shared(cta).rounds());
            rounds.count(place, (arrivals, 0), known, span)?;
        }
        Ok(())
    }

    /// The mark of what a copy writes that counts in the round at hand.
    pub(crate) fn stamp(&self, place: Place, span: Span) -> Stamp {
        self.rounds.stamp(place, span)
    }

    fn launch(&self, cta: usize, counts: Option<(usize, Place, u32)>, span: Span, land: Land<S>) {
        let (arrivals, queue, known, everywhere) = (0, None, Vec::new(), false);
        let effect = Effect::Land(land);
        let flight = Flight { cta, counts, arrivals, everywhere, queue, known, effect, span };
        self.lock().flights.push(flight);
    }

    /// Arrives when the products of a role are complete that it has started before. They have started after copies
    /// whose bytes the role had waited for, which is known then too, but nothing that threads did.
    pub(crate) fn commit(
        &self,
        cta: usize,
        (place, everywhere): (Place, bool),
        (role, clock): (usize, &Clock),
        span: Span,
        complete: Complete<S>,
    ) {
        let (arrivals, queue) = (1, Some(role));
        let (known, counts) = (clock.complete(self.roles.len()), Some((cta, place, 0)));
        let effect = Effect::Complete(complete);
        let flight = Flight { cta, counts, arrivals, everywhere, queue, known, effect, span };
        self.lock().flights.push(flight);
    }

    /// The CTA in which bytes count that are copied to one.
    pub(crate) fn counts_in(&self, cta: usize, place: Place) -> usize {
        match self.barriers[place.barrier].between {
            Between::Gathered => 0,
            Between::Apart | Between::Spread => cta,
        }
    }

    /// Starts a copy into memory of a CTA, which counts its bytes, or lets the first one of its pair do so.
    pub(crate) fn start(&self, cta: usize, place: Place, bytes: u32, span: Span, land: Land<S>) {
        self.launch(cta, Some((self.counts_in(cta, place), place, bytes)), span, land);
    }

    /// Sends something to memory of a CTA of the cluster.
    pub(crate) fn send(&self, cta: usize, span: Span, land: Land<S>) {
        self.launch(cta, None, span, land);
    }

    /// The mark of what other CTAs send whose bytes count at a barrier.
    pub(crate) fn stamp_of_inbox(&self, place: Place, span: Span) -> Stamp {
        Stamp::of(self.rounds.cta, self.agent(place), 1, span)
    }

    /// Waits until so many bytes have come from CTAs of the cluster; `come` counts them.
    pub(crate) fn wait_for_bytes(
        &self,
        seat: &Seat<'_>,
        role: RoleId,
        place: Place,
        come: impl Fn() -> u64,
        clock: &mut Clock,
        span: Span,
    ) -> Result<(), EmuError> {
        let declared = &self.barriers[place.barrier];
        let wanted = u64::from(declared.bytes);
        let who = &self.roles[role].name;
        let awaited = || Awaited {
            what: format!("role `{who}` waits for {wanted} bytes at {}", self.name(place)),
            span,
        };
        seat.wait(|| come() >= wanted, awaited)?;
        if come() != wanted {
            let message =
                format!("{} bytes come to {}, which takes {wanted}", come(), self.name(place));
            return Err(EmuError::new(ErrorKind::Phase, span, message)
                .other(declared.span, "declared here"));
        }
        let mut known = vec![0; self.agent(place) + 1];
        known[self.agent(place)] = 1;
        clock.learn(&known);
        Ok(())
    }

    /// Lets copies land until all roles have ended.
    pub(crate) fn fly(
        &self,
        seat: &Seat<'_>,
        member: Member<'_, S>,
        span: Span,
    ) -> Result<(), EmuError> {
        let awaited = || Awaited { what: String::new(), span };
        loop {
            let is_news = || {
                let state = self.lock();
                !state.flights.is_empty() || state.running == 0
            };
            seat.wait(is_news, awaited)?;
            let Flight { cta, counts, arrivals, everywhere, queue: _, known, effect, span: from } = {
                let mut state = self.lock();
                if state.flights.is_empty() {
                    return Ok(());
                }
                let flights = &state.flights;
                let first = |&i: &usize| {
                    let queue = flights[i].queue;
                    queue.is_none() || flights[..i].iter().all(|before| before.queue != queue)
                };
                let able: Vec<usize> = (0..flights.len()).filter(first).collect();
                let next = able[seat.pick(able.len())];
                state.flights.remove(next)
            };
            if member.life(cta) == Life::Gone {
                let message = "something is sent to a CTA that has ended";
                return Err(EmuError::new(ErrorKind::Absent, from, message));
            }
            match effect {
                Effect::Land(land) => land(&mut member.shared(cta))?,
                Effect::Complete(complete) => complete(member)?,
            }
            if let Some((cta, place, bytes)) = counts {
                if S::SHOWS_MEETINGS && member.life(cta) != Life::Here {
                    let message = format!("bytes that count in CTA {cta}, which is not there");
                    return Err(EmuError::new(ErrorKind::Absent, from, message));
                }
                let rounds = Arc::clone(member.shared(cta).rounds());
                rounds.count(place, (arrivals, -i64::from(bytes)), &known, from)?;
                if everywhere {
                    let known = match self.barriers[place.barrier].between {
                        Between::Spread => rounds.across(&known),
                        Between::Apart | Between::Gathered => Vec::new(),
                    };
                    self.tell_others(member, place, arrivals, &known, from)?;
                }
            }
            seat.pass(span)?;
        }
    }
}

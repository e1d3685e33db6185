//! Parts of a launch that wait for each other: each has a host thread of its own, and one of them runs at a time.
//!
//! A part runs until it waits for something that is not there yet or ends; then the schedule says who is next. So a
//! run depends on its arguments and its schedule alone. Parts that all wait for each other are found at once.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use kernel_dsl::source::Span;

use crate::error::{EmuError, ErrorKind};
use crate::options::{Policy, Schedule};

/// Parts at most that may wait for each other: each has a thread of the host.
pub(crate) const MAX_PARTS: u64 = 4096;

/// Host stack of a part.
const STACK_BYTES: usize = 4 << 20;

/// What a part waits for.
#[derive(Debug, Clone)]
pub(crate) struct Awaited {
    /// In words: `CTA (1, 0, 0) waits at …`; nothing where it waits for parts of its own.
    pub(crate) what: String,
    /// The statement.
    pub(crate) span: Span,
}

#[derive(Debug, Clone)]
enum Part {
    /// It can go on.
    Ready,
    /// It waits, and had nothing to go on with when it looked last.
    Waiting(Awaited),
    Ended,
}

struct State {
    parts: Vec<Part>,
    /// For each part the one of the first parts that it belongs to.
    roots: Vec<usize>,
    /// Where the thread of each part sleeps: only the one whose turn it is wakes up.
    beds: Vec<Arc<Condvar>>,
    /// Parts that have ended and whose places may be taken.
    free: Vec<usize>,
    /// Whose turn it is.
    current: usize,
    /// Parts that have looked in vain since anything last happened.
    in_vain: Vec<bool>,
    schedule: Schedule,
    /// Turns so far.
    turns: u64,
    /// Some part has failed: nobody goes on.
    is_over: bool,
    /// The first failure, with the part.
    error: Option<(usize, EmuError)>,
}

impl State {
    /// Gives the turn to a part that may go on; false where all wait in vain.
    fn next(&mut self) -> bool {
        let may = |i: &usize| !matches!(self.parts[*i], Part::Ended) && !self.in_vain[*i];
        let able: Vec<usize> = (0..self.parts.len()).filter(may).collect();
        if able.is_empty() {
            return self.parts.iter().all(|part| matches!(part, Part::Ended));
        }
        self.turns += 1;
        let after = |&&i: &&usize| i > self.current;
        self.current = match self.schedule.policy_of(self.turns) {
            Policy::RoundRobin => *able.iter().find(after).unwrap_or(&able[0]),
            Policy::Random => {
                able[(mix(self.schedule.seed, self.turns) % able.len() as u64) as usize]
            }
            // One part stays behind all others for as long as anything else can go on.
            Policy::Adversarial => {
                let is_live = |i: &usize| !matches!(self.parts[*i], Part::Ended);
                let live = (0..self.parts.len()).filter(is_live);
                let last = live.min_by_key(|&i| mix(self.schedule.seed, u64::MAX - i as u64));
                let others: Vec<usize> =
                    able.iter().copied().filter(|&i| Some(i) != last).collect();
                let from = if others.is_empty() { &able } else { &others };
                from[(mix(self.schedule.seed, self.turns) % from.len() as u64) as usize]
            }
        };
        true
    }
}

impl State {
    /// Wakes the part whose turn it is, or all where the run is over.
    fn wake(&self) {
        if self.is_over {
            self.beds.iter().for_each(|bed| bed.notify_one());
        } else if let Some(bed) = self.beds.get(self.current) {
            bed.notify_one();
        }
    }

    /// Adds parts that belong to `root`.
    fn hire(&mut self, count: usize, root: usize) -> Vec<usize> {
        let one = |_| {
            let part = self.free.pop().unwrap_or_else(|| {
                self.parts.push(Part::Ended);
                self.roots.push(root);
                self.beds.push(Arc::default());
                self.in_vain.push(false);
                self.parts.len() - 1
            });
            (self.parts[part], self.roots[part], self.in_vain[part]) = (Part::Ready, root, false);
            part
        };
        let mut parts: Vec<usize> = (0..count).map(one).collect();
        parts.sort_unstable();
        parts
    }
}

/// An order of `count` things that run one after the other.
pub(crate) fn order(count: usize, schedule: Schedule) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let pick = |n: usize| mix(schedule.seed, n as u64);
    match schedule.policy_of(0) {
        Policy::RoundRobin => {}
        Policy::Random => {
            for last in (1..count).rev() {
                order.swap(last, (pick(last) % (last as u64 + 1)) as usize);
            }
        }
        // One comes last of all, the others turned round by as much as the seed says.
        Policy::Adversarial if count > 1 => {
            let last = order.remove((pick(0) % count as u64) as usize);
            order.rotate_left((pick(1) % (count as u64 - 1)) as usize);
            order.push(last);
        }
        Policy::Adversarial => {}
    }
    order
}

/// A well mixed number for the `n`-th choice of a seed.
fn mix(seed: u64, n: u64) -> u64 {
    kernel_abi::numeric::random::word(seed, 0, n)
}

/// The parts of one run.
struct Turns {
    state: Mutex<State>,
}

impl Turns {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks until it is the turn of `part`; false where the run is over.
    fn until_turn(&self, mut state: MutexGuard<'_, State>, part: usize) -> bool {
        if state.current != part && !state.is_over {
            let bed = Arc::clone(&state.beds[part]);
            while state.current != part && !state.is_over {
                state = bed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        !state.is_over
    }

    /// Plays a part on a thread of its own; nothing where it failed or another one did.
    fn play<T>(
        &self,
        part: usize,
        body: impl FnOnce(&Seat<'_>) -> Result<T, EmuError>,
    ) -> Option<T> {
        if !self.until_turn(self.lock(), part) {
            return None;
        }
        let done = catch_unwind(AssertUnwindSafe(|| body(&Seat { turns: self, part })));
        match done {
            Ok(Ok(result)) => {
                self.end(part, Some(Ok(())));
                Some(result)
            }
            Ok(Err(error)) => {
                self.end(part, Some(Err(error)));
                None
            }
            Err(panic) => {
                self.end(part, None);
                resume_unwind(panic)
            }
        }
    }

    /// A part ends: well, with an error, or (nothing said) by a panic.
    fn end(&self, part: usize, how: Option<Result<(), EmuError>>) {
        let mut state = self.lock();
        state.parts[part] = Part::Ended;
        state.in_vain.fill(false);
        let failed = !matches!(how, Some(Ok(())));
        if let Some(Err(error)) = how {
            let root = state.roots[part];
            state.error.get_or_insert((root, error));
        }
        state.is_over |= failed || !state.next();
        state.wake();
    }
}

/// A part at work.
pub(crate) struct Seat<'t> {
    turns: &'t Turns,
    part: usize,
}

impl Seat<'_> {
    /// Lets another part go on, if the schedule says so.
    pub(crate) fn pause(&self) {
        let mut state = self.turns.lock();
        state.in_vain.fill(false);
        if state.next() {
            state.wake();
            // A run that is over is noticed by the next wait.
            self.turns.until_turn(state, self.part);
        }
    }

    /// Waits until `is_there` holds; other parts run meanwhile.
    ///
    /// # Errors
    /// All parts wait, or one has failed.
    pub(crate) fn wait(
        &self,
        is_there: impl Fn() -> bool,
        awaited: impl Fn() -> Awaited,
    ) -> Result<(), EmuError> {
        // Whatever this part did before is news to the others.
        self.turns.lock().in_vain.fill(false);
        if is_there() {
            return Ok(());
        }
        self.turns.lock().parts[self.part] = Part::Waiting(awaited());
        while !is_there() {
            let mut state = self.turns.lock();
            state.in_vain[self.part] = true;
            if !state.next() {
                state.is_over = true;
                let error = deadlock(&state.parts, awaited());
                let root = state.roots[self.part];
                state.error.get_or_insert((root, error.clone()));
                state.wake();
                return Err(error);
            }
            state.wake();
            if !self.turns.until_turn(state, self.part) {
                return Err(elsewhere(awaited().span));
            }
        }
        let mut state = self.turns.lock();
        state.parts[self.part] = Part::Ready;
        state.in_vain.fill(false);
        Ok(())
    }
}

impl Seat<'_> {
    /// Lets the schedule say who goes on, though this part could.
    ///
    /// # Errors
    /// Another part has failed.
    pub(crate) fn pass(&self, span: Span) -> Result<(), EmuError> {
        let mut state = self.turns.lock();
        state.in_vain.fill(false);
        state.next();
        state.wake();
        if self.turns.until_turn(state, self.part) { Ok(()) } else { Err(elsewhere(span)) }
    }

    /// One of `count`, as the schedule says: the first, any, or the last.
    pub(crate) fn pick(&self, count: usize) -> usize {
        let mut state = self.turns.lock();
        state.turns += 1;
        match state.schedule.policy_of(state.turns) {
            Policy::RoundRobin => 0,
            Policy::Random => {
                (mix(state.schedule.seed, state.turns) % count.max(1) as u64) as usize
            }
            Policy::Adversarial => count.saturating_sub(1),
        }
    }

    /// Runs `count` further parts with `body`, beside all others, and waits until they have ended.
    ///
    /// # Errors
    /// One of them, or any other part, has failed.
    pub(crate) fn fork<T: Send>(
        &self,
        count: usize,
        span: Span,
        body: impl Fn(&Seat<'_>, usize) -> Result<T, EmuError> + Sync,
    ) -> Result<Vec<T>, EmuError> {
        let turns = self.turns;
        let parts = {
            let mut state = turns.lock();
            let root = state.roots[self.part];
            state.hire(count, root)
        };
        let ended = || {
            let state = turns.lock();
            parts.iter().all(|&part| matches!(state.parts[part], Part::Ended))
        };
        let awaited = || Awaited { what: String::new(), span };
        let body = &body;
        let results: Option<Vec<T>> = thread::scope(|scope| {
            let spawn = |(i, &part): (usize, &usize)| {
                let builder = thread::Builder::new().stack_size(STACK_BYTES);
                builder.spawn_scoped(scope, move || turns.play(part, |seat| body(seat, i)))
            };
            let threads: Vec<_> = parts.iter().enumerate().map(spawn).collect();
            if threads.iter().any(Result::is_err) {
                let mut state = turns.lock();
                state.is_over = true;
                let root = state.roots[self.part];
                state.error.get_or_insert((root, no_room(count)));
                state.wake();
            }
            // What fails is known to the parts, and the first of it is reported.
            let waited = self.wait(ended, awaited);
            let results = threads.into_iter().map(joined).collect::<Vec<Option<T>>>();
            waited.ok().and_then(|()| results.into_iter().collect())
        });
        turns.lock().free.extend(parts);
        results.ok_or_else(|| elsewhere(span))
    }
}

/// The result of a host thread, if there is one.
fn joined<T>(thread: std::io::Result<thread::ScopedJoinHandle<'_, Option<T>>>) -> Option<T> {
    match thread.map(thread::ScopedJoinHandle::join) {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => resume_unwind(panic),
        Err(_) => None,
    }
}

fn no_room(count: usize) -> EmuError {
    let message = format!("the host has no room for {count} threads");
    EmuError::new(ErrorKind::StepLimit, Span::default(), message)
}

/// What a part ends with whose run failed in another one; the error of that one is reported.
fn elsewhere(span: Span) -> EmuError {
    EmuError::new(ErrorKind::Deadlock, span, "another part of the launch failed")
}

fn deadlock(parts: &[Part], own: Awaited) -> EmuError {
    let waiting: Vec<&Awaited> = parts
        .iter()
        .filter_map(|part| match part {
            Part::Waiting(awaited) => Some(awaited),
            Part::Ready | Part::Ended => None,
        })
        .filter(|awaited| !awaited.what.is_empty())
        .collect();
    let all: Vec<&str> = waiting.iter().map(|awaited| awaited.what.as_str()).collect();
    let message = format!("all that run wait for each other: {}", all.join("; "));
    let span = match waiting.first() {
        Some(first) if own.what.is_empty() => first.span,
        Some(_) | None => own.span,
    };
    let error = EmuError::new(ErrorKind::Deadlock, span, message);
    match waiting.into_iter().find(|awaited| awaited.span != span) {
        Some(other) => error.other(other.span, other.what.clone()),
        None => error,
    }
}

/// Runs `count` parts with `body` until all have ended; the error of the part that failed first, with its number.
pub(crate) fn run<T: Send>(
    count: usize,
    schedule: Schedule,
    body: impl Fn(&Seat<'_>, usize) -> Result<T, EmuError> + Sync,
) -> Result<Vec<T>, (usize, EmuError)> {
    let turns = Turns {
        state: Mutex::new(State {
            parts: vec![Part::Ready; count],
            roots: (0..count).collect(),
            beds: (0..count).map(|_| Arc::default()).collect(),
            free: Vec::new(),
            current: usize::MAX,
            in_vain: vec![false; count],
            schedule,
            turns: 0,
            is_over: false,
            error: None,
        }),
    };
    let work = |part: usize| turns.play(part, |seat| body(seat, part));
    let results: Vec<Option<T>> = thread::scope(|scope| {
        let spawn = |part: usize| {
            let builder = thread::Builder::new().stack_size(STACK_BYTES);
            builder.spawn_scoped(scope, move || work(part))
        };
        let threads: Vec<_> = (0..count).map(spawn).collect();
        {
            let mut state = turns.lock();
            // Without a thread for each part none can go on.
            state.is_over = threads.iter().any(Result::is_err) || !state.next();
            state.wake();
        }
        threads.into_iter().map(joined).collect()
    });
    if let Some(error) = turns.lock().error.take() {
        return Err(error);
    }
    let all: Option<Vec<T>> = results.into_iter().collect();
    all.ok_or_else(|| (0, no_room(count)))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn awaited() -> Awaited {
        Awaited { what: "a part waits".into(), span: Span::default() }
    }

    fn schedules() -> impl Iterator<Item = Schedule> {
        [Policy::RoundRobin, Policy::Random, Policy::Adversarial]
            .into_iter()
            .flat_map(|policy| (0..20).map(move |seed| Schedule::new(policy, seed)))
    }

    #[test]
    fn parts_that_hand_on_end_in_every_schedule() {
        for schedule in schedules() {
            let next = AtomicUsize::new(0);
            let order = Mutex::new(Vec::new());
            let done = run(5, schedule, |seat, part| {
                seat.wait(|| next.load(Ordering::Relaxed) == part, awaited)?;
                order.lock().unwrap().push(part);
                next.fetch_add(1, Ordering::Relaxed);
                Ok(part * 2)
            });
            assert_eq!(done.unwrap(), [0, 2, 4, 6, 8]);
            assert_eq!(order.into_inner().unwrap(), [0, 1, 2, 3, 4]);
        }
    }

    #[test]
    fn parts_that_wait_for_each_other_are_an_error() {
        for schedule in schedules() {
            let failed =
                run(
                    3,
                    schedule,
                    |seat, part| {
                        if part < 2 { seat.wait(|| false, awaited) } else { Ok(()) }
                    },
                );
            let (_, error) = failed.unwrap_err();
            assert_eq!(error.kind, ErrorKind::Deadlock);
            assert_eq!(
                error.message,
                "all that run wait for each other: a part waits; a part waits"
            );
        }
    }

    #[test]
    fn the_first_failure_is_reported_and_ends_the_others() {
        for schedule in schedules() {
            let failed: Result<Vec<()>, _> = run(4, schedule, |seat, part| {
                if part == 3 {
                    return Err(EmuError::new(ErrorKind::Assert, Span::default(), "no"));
                }
                seat.wait(|| false, awaited)
            });
            let (part, error) = failed.unwrap_err();
            assert_eq!((part, error.kind), (3, ErrorKind::Assert));
        }
    }

    #[test]
    fn parts_of_a_part_take_turns_with_all_and_end_before_it_goes_on() {
        for schedule in schedules() {
            let seen = AtomicUsize::new(0);
            let done = run(2, schedule, |seat, part| {
                let inner = seat.fork(3, Span::default(), |seat, i| {
                    seat.pass(Span::default())?;
                    // The last one of each waits for those of the other.
                    seat.wait(|| i < 2 || seen.load(Ordering::Relaxed) >= 4, awaited)?;
                    seen.fetch_add(1, Ordering::Relaxed);
                    Ok(10 * part + i)
                })?;
                let again = seat.fork(1, Span::default(), |_, i| Ok(i))?;
                Ok((inner, again))
            });
            let done = done.unwrap();
            assert_eq!(done[0], (vec![0, 1, 2], vec![0]));
            assert_eq!(done[1], (vec![10, 11, 12], vec![0]));
        }
    }

    #[test]
    fn parts_of_parts_that_wait_in_vain_are_named_once() {
        for schedule in schedules() {
            let failed = run(1, schedule, |seat, _| {
                seat.fork(2, Span::default(), |seat, _| seat.wait(|| false, awaited))
            });
            let (part, error) = failed.unwrap_err();
            assert_eq!((part, error.kind), (0, ErrorKind::Deadlock));
            let all = "all that run wait for each other: a part waits; a part waits";
            assert_eq!(error.message, all);
        }
    }

    #[test]
    fn a_schedule_repeats_itself() {
        let order = |schedule| {
            let (order, gate) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
            run(6, schedule, |seat, part| {
                if part == 5 {
                    gate.store(1, Ordering::Relaxed);
                } else {
                    seat.wait(|| gate.load(Ordering::Relaxed) == 1, awaited)?;
                }
                order.lock().unwrap().push(part);
                Ok(())
            })
            .unwrap();
            order.into_inner().unwrap()
        };
        let mut orders: Vec<Vec<usize>> = Vec::new();
        for schedule in schedules() {
            assert_eq!(order(schedule), order(schedule));
            orders.push(order(schedule));
        }
        orders.sort();
        orders.dedup();
        assert!(orders.len() > 10, "{} orders", orders.len());
    }
}

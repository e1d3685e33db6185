//! Launches of a stream that overlap, as programmatic dependent launch lets them.
//!
//! A launch of a kernel that may start early begins when all CTAs of the one before have let it begin or have ended. Then
//! CTAs of both are at work side by side, as many at a time as a small device has room for, in turns as the schedule
//! says. Its `grid_wait` returns when the one before has ended. What CTAs store is seen by later launches when theirs
//! has ended, so that what is read too early is never what was written just now; and each access is compared with those of
//! all launches that may still run for whoever does it, in whatever order the two came.

mod cta;
mod names;
mod order;
mod touches;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use kernel_dsl::source::Span;
use kernel_ir::index::IndexVec;
use kernel_ir::kernel::{Extent, ParamId};

use crate::cluster::{Cluster, Member};
use crate::counters::Trace;
use crate::error::{EmuError, ErrorKind};
use crate::fabric::{self, Between, Fabric, Party};
use crate::grid::{self, Clusters, Ended, Grid, Meets};
use crate::launch::{self, Extents};
use crate::memory::{Argument, Buffer, Memory};
use crate::options::{Options, Policy, Schedule};
use crate::turns::{self, Awaited, Seat};
use crate::view::Launched;
use cta::Deeds;
use order::Progress;
use touches::{Clash, Part, Site, Touches};

pub use names::StreamMemory;

pub(crate) use cta::Passenger;
pub(crate) use touches::Does;

/// What a parameter of a launch gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The buffer of the stream with this number.
    Buffer(usize),
    /// The code of a scalar of the parameter's type.
    Scalar(u64),
}

/// A launch of a kernel of either level.
#[derive(Debug, Clone)]
pub struct StreamLaunch<'k, K> {
    /// The kernel.
    pub kernel: &'k K,
    /// What each of its parameters gets.
    pub bound: IndexVec<ParamId, Bound>,
}

/// How a CTA runs.
type Run<'k, S> =
    dyn Fn([u32; 3], Launched<'_>, Member<'_, S>) -> Result<Ended, EmuError> + Sync + 'k;

/// A launch of a kernel of either level; `S` is the shared memory of a CTA.
pub(crate) struct Flight<'k, S> {
    pub(crate) name: &'k str,
    pub(crate) grid: Grid<'k>,
    pub(crate) bound: &'k IndexVec<ParamId, Bound>,
    pub(crate) shared: Box<dyn Fn(usize) -> S + Sync + 'k>,
    pub(crate) run: Box<Run<'k, S>>,
}

/// A launch that has begun.
pub(crate) struct Begun {
    at_start: Memory,
    after_wait: OnceLock<Memory>,
    extents: Extents,
    fabric: Option<Fabric>,
}

impl Begun {
    fn after_wait(&self) -> &Memory {
        self.after_wait.get().unwrap_or(&self.at_start)
    }
}

/// What a launch is to the others.
struct Declared<'k> {
    name: &'k str,
    grid: &'k Grid<'k>,
    bound: &'k IndexVec<ParamId, Bound>,
}

/// The launches, and what they share.
pub(crate) struct Stream<'k> {
    state: Mutex<State>,
    declared: Vec<Declared<'k>>,
    /// Buffers that some launch may write.
    is_written: Vec<bool>,
}

struct State {
    launches: Vec<Progress>,
    touches: Touches,
    buffers: Vec<Buffer>,
    begun: Vec<Option<Arc<Begun>>>,
    ended: Vec<Vec<(usize, Ended)>>,
    /// Of the last launch that has begun, what has not been handed out, last first.
    units: Vec<usize>,
    traces: Vec<Trace>,
}

impl State {
    /// The launch that has begun last.
    fn last(&self) -> Option<usize> {
        self.launches.iter().rposition(|launch| launch.has_begun)
    }

    /// The launch that would begin next.
    fn next(&self) -> usize {
        self.last().map_or(0, |last| last + 1)
    }

    /// True where somebody who is idle has something to do, or never will.
    fn has_news(&self) -> bool {
        let next = self.next();
        !self.units.is_empty()
            || next == self.launches.len()
            || order::may_begin(&self.launches, next)
    }
}

impl Stream<'_> {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The launch before has ended.
    fn has_ended_before(&self, launch: usize) -> bool {
        let before = launch.checked_sub(1);
        before.is_none_or(|before| self.lock().launches[before].has_ended())
    }

    /// The buffer of a parameter, if it is one that some launch may write.
    fn shared_buffer(&self, launch: usize, param: ParamId) -> Option<usize> {
        match self.declared[launch].bound[param] {
            Bound::Buffer(buffer) => self.is_written[buffer].then_some(buffer),
            Bound::Scalar(_) => None,
        }
    }

    /// Notes an access of one of the launches.
    fn note(
        &self,
        (part, does): (Part, Does),
        elements: std::ops::Range<usize>,
        site: Site,
    ) -> Result<(), EmuError> {
        let Some(buffer) = self.shared_buffer(part.launch, site.param) else { return Ok(()) };
        let mut state = self.lock();
        let State { launches, touches, .. } = &mut *state;
        let noted = touches.note(launches, (part, does), (buffer, elements), site);
        noted.map_err(|clash| self.race_of((part, does, site), clash))
    }

    /// The error of a read of what nothing has written yet, where a launch that may still run may write it.
    fn too_early(&self, part: Part, index: usize, site: Site) -> Option<EmuError> {
        let buffer = self.shared_buffer(part.launch, site.param)?;
        let running = self.lock().launches[part.launch].running(part.has_waited).clone();
        let writes = |&launch: &usize| {
            let Declared { grid, bound, .. } = &self.declared[launch];
            let is_it = |id: &ParamId| {
                grid.params[*id].access.is_writable() && bound[*id] == Bound::Buffer(buffer)
            };
            Some((launch, grid.params.ids().find(is_it)?))
        };
        let (before, param) = running.iter().rev().find_map(writes)?;
        let declared = &self.declared[before];
        let there = format!("launch {before} may write it later");
        let there = (declared.grid.params[param].span, there);
        Some(self.race((part, Does::Read, site), index, (before, Does::Write), there))
    }

    /// The error of two accesses: of the later launch, and of an earlier one.
    fn race_of(&self, own: (Part, Does, Site), clash: Clash) -> EmuError {
        let other = (clash.part, clash.did, clash.site);
        let (earlier, later) =
            if own.0.launch < other.0.launch { (own, other) } else { (other, own) };
        let (part, did, site) = earlier;
        let [x, y, z] = site.cta;
        let there = format!("CTA ({x}, {y}, {z}) of launch {} {} it here", part.launch, did.verb());
        self.race(later, clash.index, (part.launch, did), (site.span, there))
    }

    fn race(
        &self,
        (part, does, site): (Part, Does, Site),
        index: usize,
        (before, did): (usize, Does),
        there: (Span, String),
    ) -> EmuError {
        let (number, declared) = (part.launch, &self.declared[part.launch]);
        let param = &declared.grid.params[site.param];
        let message = format!(
            "launch {number}, `{}`, {} an element of `{}` that launch {before}, `{}`, {}, and no `grid_wait` orders the two",
            declared.name,
            does.verb(),
            param.name,
            self.declared[before].name,
            did.verb()
        );
        let extent = |extent: &Extent| match extent {
            Extent::Const(extent) => u64::from(*extent),
            Extent::Scalar(_) => 1,
        };
        let extents: Vec<u64> = param.shape.iter().map(extent).collect();
        let help = match (part.has_waited, number - before) {
            (true, _) => {
                "let every launch between the two wait: a wait covers the launch before it, and what that one waited for"
            }
            (false, 1) => "wait first: the launch before may still run until `grid_wait` returns",
            (false, _) => {
                "wait first, or let the launches between wait before `grid_launch`: then those before them have ended"
            }
        };
        EmuError::new(ErrorKind::LaunchRace, site.span, message)
            .at(launch::coordinate(&extents, index as u64))
            .other(there.0, there.1)
            .in_cta(site.cta)
            .in_launch(number)
            .help(help)
    }

    /// The memory of a launch as it is now.
    fn memory(&self, buffers: &[Buffer], launch: usize) -> Memory {
        let Declared { grid, bound, .. } = &self.declared[launch];
        let mut memory = Memory::new(grid.params);
        for (id, param) in grid.params.iter_enumerated() {
            match bound[id] {
                Bound::Buffer(buffer) => memory.set_buffer(id, buffers[buffer].clone()),
                Bound::Scalar(code) => memory.set_scalar(id, param.dtype, code),
            }
        }
        memory
    }

    /// The next launch begins.
    fn begin(&self, state: &mut State, schedule: Schedule) -> Result<(), EmuError> {
        let launch = state.next();
        let grid = self.declared[launch].grid;
        order::begin(&mut state.launches, launch);
        let at_start = self.memory(&state.buffers, launch);
        let extents = launch::check_arguments(grid.params, &at_start)?;
        let ctas = state.launches[launch].ctas;
        let fabric = (grid.meets != Meets::Apart).then(|| {
            let memories = std::slice::from_ref(&at_start);
            Fabric::new(grid.params, memories, Between::Ctas, ctas, grid.roles)
        });
        let begun = Begun { at_start, after_wait: OnceLock::new(), extents, fabric };
        state.begun[launch] = Some(Arc::new(begun));
        if launch == 0 || state.launches[launch - 1].has_ended() {
            self.cover(state, launch)?;
        }
        state.touches.begin(&state.launches);
        let units = if grid.meets == Meets::Waits { 1 } else { Clusters::new(grid.launch).count() };
        let seed = schedule.seed.wrapping_add(launch as u64);
        state.units = turns::order(units, Schedule { seed, ..schedule });
        state.units.reverse();
        Ok(())
    }

    /// The launch before has ended: this one, which has begun, finds what it left.
    fn cover(&self, state: &mut State, launch: usize) -> Result<(), EmuError> {
        order::cover(&mut state.launches, launch);
        let Some(begun) = state.begun[launch].clone() else { return Ok(()) };
        let params = self.declared[launch].grid.params;
        let memory = self.memory(&state.buffers, launch);
        launch::check_contracts(params, &memory).map_err(|e| e.in_launch(launch))?;
        fabric::check_zero(params, &memory).map_err(|e| e.in_launch(launch))?;
        if let Some(fabric) = &begun.fabric {
            fabric.rebase(&begun.at_start, &memory);
        }
        // A launch begins once, and the one before ends once.
        let _ = begun.after_wait.set(memory);
        Ok(())
    }

    /// A CTA leaves its stores; those of the launch reach the buffers with the last one.
    fn end_cta(&self, launch: usize, cta: usize, ended: Ended) -> Result<(), EmuError> {
        let mut guard = self.lock();
        let state = &mut *guard;
        state.ended[launch].push((cta, ended));
        if !state.launches[launch].end_cta() {
            return Ok(());
        }
        self.end(state, launch).map_err(|e| e.in_launch(launch))?;
        match state.launches.get(launch + 1) {
            Some(next) if next.has_begun => self.cover(state, launch + 1),
            Some(_) | None => Ok(()),
        }
    }

    fn end(&self, state: &mut State, launch: usize) -> Result<(), EmuError> {
        let Declared { grid, bound, .. } = &self.declared[launch];
        let mut ended = std::mem::take(&mut state.ended[launch]);
        ended.sort_by_key(|(cta, _)| *cta);
        let ended = ended.into_iter().map(|(_, ended)| ended).collect();
        let begun = state.begun[launch].take().expect("a launch that ends has begun");
        let written = |id: ParamId| match bound[id] {
            Bound::Buffer(buffer) if grid.params[id].access.is_writable() => Some(buffer),
            Bound::Buffer(_) | Bound::Scalar(_) => None,
        };
        // What is written is taken out of the list, so that it is not copied.
        let mut memory = self.memory(&state.buffers, launch);
        for buffer in grid.params.ids().filter_map(written) {
            let dtype = state.buffers[buffer].dtype();
            state.buffers[buffer] = Buffer::poison(dtype, 0);
        }
        let trace = match &begun.fabric {
            Some(fabric) => {
                fabric.check_counters(grid.params, 0)?;
                fabric.bring(grid.params, &mut memory);
                grid::gather(grid.params, &memory, ended)
            }
            None => grid::finish(grid.params, grid.launch.grid, &mut memory, ended),
        };
        for id in grid.params.ids() {
            let argument = std::mem::replace(&mut memory.arguments[id], Argument::Missing);
            if let (Some(buffer), Argument::Buffer(content)) = (written(id), argument) {
                state.buffers[buffer] = content;
            }
        }
        state.traces[launch] = trace?;
        Ok(())
    }
}

/// How many CTAs, or clusters, a device of this schedule has room for.
fn room(schedule: Schedule) -> usize {
    match schedule.policy_of(0) {
        Policy::RoundRobin => 4,
        Policy::Random | Policy::Adversarial => turns::order(7, schedule)[0] + 2,
    }
}

/// Runs launches one after another, overlapping where they may; `buffers` gets what they leave. A run that fails leaves
/// what the launches left that had ended.
pub(crate) fn run<S: Send>(
    flights: &[Flight<'_, S>],
    buffers: &mut [Buffer],
    options: &Options,
) -> Result<Vec<Trace>, EmuError> {
    let mut is_written = vec![false; buffers.len()];
    let mut launches = Vec::with_capacity(flights.len());
    for (launch, flight) in flights.iter().enumerate() {
        check(flight, buffers).map_err(|error| error.in_launch(launch))?;
        for (id, param) in flight.grid.params.iter_enumerated() {
            if let (Bound::Buffer(buffer), true) = (flight.bound[id], param.access.is_writable()) {
                is_written[buffer] = true;
            }
        }
        let (grid, comes_after) = (&flight.grid, !flight.grid.launch.pdl.is_consumer());
        launches.push(Progress::new(grid.ctas() as usize, comes_after));
    }
    let count = launches.len();
    let state = State {
        launches,
        touches: Touches::default(),
        buffers: buffers.iter_mut().map(std::mem::take).collect(),
        begun: (0..count).map(|_| None).collect(),
        ended: (0..count).map(|_| Vec::new()).collect(),
        units: Vec::new(),
        traces: vec![Trace::default(); count],
    };
    let declared = flights.iter().map(|flight| Declared {
        name: flight.name,
        grid: &flight.grid,
        bound: flight.bound,
    });
    let stream = Stream { state: Mutex::new(state), declared: declared.collect(), is_written };
    let span = flights.first().map_or(Span::default(), |flight| flight.grid.span);
    let idle = || Awaited { what: String::new(), span };
    let worker = |seat: &Seat<'_>, _: usize| -> Result<(), EmuError> {
        loop {
            // What is there after the wait is there until this part gives its turn away.
            seat.pass(span)?;
            seat.wait(|| stream.lock().has_news(), idle)?;
            let mut guard = stream.lock();
            let state = &mut *guard;
            if state.units.is_empty() {
                let next = state.next();
                if next == count {
                    return Ok(());
                }
                let begun = stream.begin(state, options.schedule);
                begun.map_err(|error| error.in_launch(next))?;
                continue;
            }
            let (Some(unit), Some(launch)) = (state.units.pop(), state.last()) else { continue };
            let begun = state.begun[launch].clone().expect("it has begun");
            drop(guard);
            unit_of(&stream, (launch, &flights[launch]), &begun, unit, seat, options)?;
        }
    };
    let ended = turns::run(room(options.schedule), options.schedule, worker);
    let state = stream.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    for (to, from) in buffers.iter_mut().zip(state.buffers) {
        *to = from;
    }
    ended.map_err(|(_, error)| error)?;
    Ok(state.traces)
}

/// Refuses what no stream runs, and arguments that are none.
fn check<S>(flight: &Flight<'_, S>, buffers: &[Buffer]) -> Result<(), EmuError> {
    let Flight { grid, bound, .. } = flight;
    if grid.launch.world.is_some() {
        let message = "a kernel over several ranks does not overlap with others here";
        return Err(EmuError::new(ErrorKind::Argument, grid.span, message));
    }
    grid.check_size()?;
    let is_known = |bound: &Bound| match bound {
        Bound::Buffer(buffer) => *buffer < buffers.len(),
        Bound::Scalar(_) => true,
    };
    if bound.len() == grid.params.len() && bound.iter().all(is_known) {
        return Ok(());
    }
    let message = format!("{} arguments for {} parameters", bound.len(), grid.params.len());
    Err(EmuError::new(ErrorKind::Argument, grid.span, message))
}

/// Runs a cluster of a launch, or all of its CTAs where one may wait for another.
fn unit_of<S: Send>(
    stream: &Stream<'_>,
    (launch, flight): (usize, &Flight<'_, S>),
    begun: &Begun,
    unit: usize,
    seat: &Seat<'_>,
    options: &Options,
) -> Result<(), EmuError> {
    let grid = &flight.grid;
    let clusters = Clusters::new(grid.launch);
    let numbers = if grid.meets == Meets::Waits { 0..clusters.count() } else { unit..unit + 1 };
    let of = |number: usize| Cluster::new(clusters.ctas(number), &flight.shared);
    let all: Vec<Cluster<S>> = numbers.map(of).collect();
    let size = grid.launch.cluster_size().max(1) as usize;
    let one = |seat: &Seat<'_>, i: usize| -> Result<(), EmuError> {
        let (cluster, rank) = (&all[i / size], i % size);
        let position = cluster.position(rank);
        let cta = clusters.number(position);
        let deeds = Mutex::new(Deeds::default());
        let passenger = Passenger { stream, begun, seat, deeds: &deeds, launch, cta: position };
        // What ran before the first launch is not here: it may still run, as for a launch alone.
        let options =
            &Options { producer_running: options.producer_running && launch == 0, ..*options };
        let launched =
            Launched::new(grid.params, &begun.at_start, &begun.extents, grid.launch, options);
        let mut launched = launched.in_stream(passenger);
        if let Some(fabric) = &begun.fabric {
            let (world, extents, role) = (1, grid.launch.grid, None);
            let seat = Some(seat);
            let party = Party { fabric, seat, rank: 0, world, grid: extents, cta, role };
            launched = launched.among(party);
        }
        let member = Member::start(cluster, Some(seat), rank);
        let ended = (flight.run)(position, launched, member);
        member.end();
        passenger.end();
        if let Some(fabric) = &begun.fabric {
            fabric.end_cta(cta);
        }
        let placed = |error: EmuError| match error.detail.launch {
            Some(_) => error,
            None => error.in_cta(position).in_launch(launch),
        };
        stream.end_cta(launch, cta, ended.map_err(placed)?)
    };
    match all.len() * size {
        1 => one(seat, 0),
        several => seat.fork(several, grid.span, one).map(|_| ()),
    }
}

//! The kernel level: one CTA after the other, one tile operation at a time.

mod access;
mod define;
mod outgoing;
mod pipes;
mod products;
mod ranks;
mod roles;
mod shape;
mod smem;
#[cfg(test)]
mod tests;
mod tmem;

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::OnceLock;

use kernel_abi::DType;
use kernel_dsl::source::Span;
use kernel_ir::index::{Id, IndexVec};
use kernel_ir::kernel::{
    Kernel, Op, ParamId, PipeOp, PrefetchRange, Stmt, StmtKind, Storage, TileAccess, ValueId,
    VarId, Word, Words,
};
use kernel_ir::ops::contract::Contraction;
use kernel_ir::ops::{AtomicOp, Elements};
use kernel_ir::smem_plan::SmemPlan;

use self::pipes::Post;
use crate::cluster::Member;
use crate::counters::{Event, Printed, Trace};
use crate::departures::Departures;
use crate::error::{EmuError, ErrorKind};
use crate::grid::{self, Ended, Grid, Meets};
use crate::memory::{Buffer, Memory};
use crate::options::Options;
use crate::overlap::{self, Flight, StreamLaunch};
use crate::roles::Clock;
use crate::view::{Launched, View};
use products::Products;
use smem::{Arrival, SharedTiles};

pub use ranks::run_kernel_on_ranks;

/// Runs a kernel on `memory`, which has an argument for every parameter.
///
/// Stores reach `memory` when every CTA has ended well. Only the check of what stored values
/// promise (`output … in a..b`) comes after that.
pub fn run_kernel(
    kernel: &Kernel,
    memory: &mut Memory,
    options: &Options,
) -> Result<Trace, EmuError> {
    run_prepared(kernel, &Prepared::new(kernel), memory, options)
}

/// Runs launches of a stream, which overlap where programmatic dependent launch lets them; `buffers` are those that the
/// launches name.
///
/// # Errors
/// A launch fails, or touches what one that may still run touches.
pub fn run_kernel_stream(
    launches: &[StreamLaunch<'_, Kernel>],
    buffers: &mut [Buffer],
    options: &Options,
) -> Result<Vec<Trace>, EmuError> {
    let prepared: Vec<Prepared> =
        launches.iter().map(|launch| Prepared::new(launch.kernel)).collect();
    run_prepared_stream(&launches.iter().zip(&prepared).collect::<Vec<_>>(), buffers, options)
}

/// [`run_kernel_stream`] with what earlier runs of the same kernels left.
pub(crate) fn run_prepared_stream(
    launches: &[(&StreamLaunch<'_, Kernel>, &Prepared)],
    buffers: &mut [Buffer],
    options: &Options,
) -> Result<Vec<Trace>, EmuError> {
    let flights = launches.iter().map(|(launch, prepared)| flight(launch, prepared, options));
    overlap::run(&flights.collect::<Vec<_>>(), buffers, options)
}

fn flight<'k>(
    launch: &'k StreamLaunch<'_, Kernel>,
    prepared: &'k Prepared,
    options: &'k Options,
) -> Flight<'k, SharedTiles> {
    let kernel = launch.kernel;
    let run = move |cta, launched: Launched<'_>, member: Member<'_, SharedTiles>| {
        let mut machine = Machine::new(kernel, prepared, launched, member, cta, options.max_steps);
        machine.block(&kernel.body)?;
        machine.end()
    };
    Flight {
        name: &kernel.name,
        grid: grid_of(kernel, options),
        bound: &launch.bound,
        shared: Box::new(|rank| SharedTiles::new(kernel, rank)),
        run: Box::new(run),
    }
}

fn grid_of<'k>(kernel: &'k Kernel, options: &'k Options) -> Grid<'k> {
    let (params, launch, span) = (&kernel.params, &kernel.launch, kernel.span);
    Grid {
        params,
        launch,
        span,
        roles: kernel.roles.len(),
        meets: meets(kernel),
        options,
        recorder: None,
    }
}

/// What every run of a kernel needs again; made as runs need it.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// By the value that it makes.
    contractions: IndexVec<ValueId, OnceLock<Contraction>>,
}

impl Prepared {
    pub(crate) fn new(kernel: &Kernel) -> Prepared {
        Prepared { contractions: kernel.values.iter().map(|_| OnceLock::new()).collect() }
    }
}

/// One launch of a kernel over several ranks, with what earlier runs of the same kernel left.
pub(crate) fn run_prepared_on_ranks(
    kernel: &Kernel,
    prepared: &Prepared,
    memories: &mut [Memory],
    options: &Options,
) -> Result<Vec<Trace>, EmuError> {
    ranks::run(kernel, prepared, memories, 1, options)
}

/// [`run_kernel`] with what earlier runs of the same kernel left.
pub(crate) fn run_prepared(
    kernel: &Kernel,
    prepared: &Prepared,
    memory: &mut Memory,
    options: &Options,
) -> Result<Trace, EmuError> {
    let run = |cta, launched: Launched<'_>, member: Member<'_, SharedTiles>| {
        let mut machine = Machine::new(kernel, prepared, launched, member, cta, options.max_steps);
        machine.block(&kernel.body)?;
        machine.end()
    };
    let shared = |rank| SharedTiles::new(kernel, rank);
    if kernel.launch.world.is_some() {
        let traces = ranks::run(kernel, prepared, std::slice::from_mut(memory), 1, options)?;
        return Ok(traces.into_iter().next().unwrap_or_default());
    }
    grid::run_grid(&grid_of(kernel, options), memory, shared, run)
}

/// What the CTAs have to do with each other.
fn meets(kernel: &Kernel) -> Meets {
    let waits = kernel.params.iter().any(|param| param.words == Some(Words::Raised));
    if waits || takes_turns(&kernel.body) {
        return Meets::Waits;
    }
    let counts = kernel.params.iter().any(|param| param.counts_arrivals());
    let hands_over = kernel.launch.cluster_size() > 1 && {
        let mut touched = Touched::default();
        touched.by(&kernel.body);
        touched.loaded.intersection(&touched.stored).next().is_some()
    };
    let shares = counts || hands_over || updates(&kernel.body);
    if shares { Meets::Counts } else { Meets::Apart }
}

/// Buffers that statements touch.
#[derive(Default)]
struct Touched {
    loaded: BTreeSet<ParamId>,
    stored: BTreeSet<ParamId>,
}

impl Touched {
    fn by(&mut self, stmts: &[Stmt]) {
        for stmt in stmts {
            match &stmt.kind {
                StmtKind::Store { access, .. } => self.stored.extend(access.storage.param()),
                StmtKind::Def { op: Op::Load { access, .. }, .. }
                | StmtKind::CopyAsync { source: access, .. }
                | StmtKind::Pipe(PipeOp::Copy { source: access, .. }) => {
                    self.loaded.extend(access.storage.param());
                }
                other => other.bodies().into_iter().for_each(|body| self.by(body)),
            }
        }
    }
}

/// True where it depends on other CTAs what some statement does.
fn takes_turns(stmts: &[Stmt]) -> bool {
    stmts.iter().any(|stmt| match &stmt.kind {
        StmtKind::For { tickets: Some(_), .. } => true,
        other => other.bodies().into_iter().any(takes_turns),
    })
}

/// True where some statement changes elements in one step.
fn updates(stmts: &[Stmt]) -> bool {
    stmts.iter().any(|stmt| match &stmt.kind {
        StmtKind::Store { update, .. } => update.is_some(),
        StmtKind::Def { op, .. } => matches!(op, Op::Atomic { .. }),
        other => other.bodies().into_iter().any(updates),
    })
}

/// One CTA.
struct Machine<'k> {
    kernel: &'k Kernel,
    prepared: &'k Prepared,
    cta: [u32; 3],
    view: View<'k>,
    values: IndexVec<ValueId, Option<Rc<Elements>>>,
    vars: IndexVec<VarId, Vec<Option<Rc<Elements>>>>,
    member: Member<'k, SharedTiles>,
    products: Products<'k>,
    /// Products and loads in tensor memory.
    flights: tmem::Flights<'k>,
    /// Where tiles lie.
    plan: SmemPlan,
    /// Meetings of the cluster so far.
    meetings: u32,
    clock: Clock,
    /// In a role, where it meets others.
    post: Option<Post<'k>>,
    /// Groups of copies that have not arrived, oldest first.
    groups: VecDeque<Vec<Arrival>>,
    /// Copies out of shared memory.
    departures: Departures<outgoing::Cargo>,
    printed: Vec<Printed>,
    events: Vec<Event>,
    flops: u64,
    steps: u64,
    max_steps: u64,
}

impl<'k> Machine<'k> {
    fn new(
        kernel: &'k Kernel,
        prepared: &'k Prepared,
        launched: Launched<'k>,
        member: Member<'k, SharedTiles>,
        cta: [u32; 3],
        max_steps: u64,
    ) -> Machine<'k> {
        Machine {
            kernel,
            prepared,
            cta,
            view: View::new(launched),
            values: kernel.values.iter().map(|_| None).collect(),
            vars: kernel.vars.iter().map(|v| vec![None; v.slots as usize]).collect(),
            member,
            products: Products::default(),
            flights: tmem::Flights::default(),
            plan: SmemPlan::of(kernel),
            meetings: 0,
            clock: Clock::new(
                member.rank(),
                kernel.roles.len(),
                crate::pipes::slots(&kernel.barriers),
            ),
            post: None,
            groups: VecDeque::new(),
            departures: Departures::default(),
            printed: Vec::new(),
            events: Vec::new(),
            flops: 0,
            steps: 0,
            max_steps,
        }
    }

    fn end(self) -> Result<Ended, EmuError> {
        self.departures.end()?;
        let trace = Trace {
            printed: self.printed,
            events: self.events,
            bytes_read: self.view.bytes_read,
            bytes_written: self.view.bytes_written,
            flops: self.flops,
            steps: self.steps,
        };
        Ok(Ended { stores: self.view.into_stores(), trace })
    }

    fn stmt(&mut self, stmt: &'k Stmt) -> Result<(), EmuError> {
        self.step(stmt.span)?;
        self.view.learn(&self.clock);
        match &stmt.kind {
            StmtKind::Def { results, op } => self.define(results, op, stmt.span)?,
            StmtKind::SetVar { var, slot, value } => {
                self.check_sums(*var, *slot, stmt.span)?;
                let value = self.value(*value);
                self.vars[*var][*slot as usize] = Some(value);
            }
            StmtKind::Store { value, access, update, cache: _ } => {
                self.store(*value, access, *update)?;
            }
            StmtKind::Prefetch { what, evict: _ } => self.prefetch(what, stmt.span)?,
            StmtKind::Advance { word } => self.advance(word)?,
            StmtKind::CopyAsync { source, dest, evict: _ } => self.copy_async(source, dest)?,
            StmtKind::EmptyGroup => self.empty_group(),
            StmtKind::Settle { pending, .. } => self.settle(*pending),
            StmtKind::Outgoing(op) => self.outgoing(op, stmt.span)?,
            StmtKind::Sync => {
                self.clock.meet();
                self.view.meet();
            }
            StmtKind::Signal(signal) => self.signal(signal)?,
            StmtKind::Await(wait) => self.wait_for(wait, stmt.span)?,
            StmtKind::Warpgroup(op) => self.warpgroup(op, stmt.span)?,
            StmtKind::Tensor(op) => self.tensor(op, stmt.span)?,
            // Which of its threads did what in shared memory is not followed here.
            StmtKind::SyncRole => self.view.meet(),
            StmtKind::Pipe(op) => self.pipe(op, stmt.span)?,
            StmtKind::Role { .. } => unreachable!("a block runs its roles itself"),
            StmtKind::SyncCluster => {
                self.clock.meet();
                let (member, meeting) = (self.member, self.member.meeting());
                let meet = || member.meet(self.clock.seen(), stmt.span);
                self.meetings = self.view.meet_cluster(meeting, meet)?;
                self.clock.meet_cluster(member.met());
            }
            StmtKind::GridWait => self.view.wait(&self.clock, stmt.span)?,
            StmtKind::GridLaunch => self.view.let_go(stmt.span)?,
            StmtKind::Assert { cond, message } => {
                if self.code(*cond) == 0 {
                    return Err(failed_assert(message, stmt.span));
                }
            }
            StmtKind::Trace { event } => {
                let role = self.post.as_ref().map(|post| post.role.index() as u32);
                let (cta, event, step) = (self.cta, *event, self.steps);
                self.events.push(Event { cta, role, event, step });
            }
            StmtKind::Printf { format, args } => {
                let args = args.iter().map(|&a| (self.kernel.values[a].dtype, self.code(a)));
                let text = format_text(format, args);
                self.printed.push(Printed { cta: self.cta, text });
            }
            StmtKind::For { var, end, tickets: Some(word), body, .. } => {
                self.work_list(*var, *end, word, stmt.span, body)?;
            }
            StmtKind::For { var, start, end, step, tickets: None, body } => {
                let (start, end) = (self.int(*start), self.int(*end));
                let mut at = start;
                while at < end {
                    self.step(stmt.span)?;
                    self.set(*var, Elements::from_i32(&[at as i32]));
                    self.block(body)?;
                    at += i64::from(*step);
                }
            }
            StmtKind::If { cond, then_body, else_body } => {
                let holds = self.code(*cond) != 0;
                self.block(if holds { then_body } else { else_body })?;
            }
        }
        Ok(())
    }

    /// Takes tickets and does their rounds until there is none.
    fn work_list(
        &mut self,
        var: ValueId,
        end: ValueId,
        word: &Word,
        span: Span,
        body: &'k [Stmt],
    ) -> Result<(), EmuError> {
        let (end, at) = (self.int(end), self.int(word.index));
        let ctas: i64 = self.kernel.launch.grid.iter().map(|&extent| i64::from(extent)).product();
        let limit = u32::try_from(end + ctas - 1).unwrap_or(u32::MAX);
        loop {
            self.step(span)?;
            self.clock.meet();
            self.view.meet();
            let ticket = self.view.take(word.param, at, limit, word.span)?;
            if i64::from(ticket) >= end {
                return Ok(());
            }
            self.set(var, Elements::from_i32(&[ticket as i32]));
            self.block(body)?;
        }
    }

    fn step(&mut self, span: Span) -> Result<(), EmuError> {
        self.steps += 1;
        if self.steps > self.max_steps {
            return Err(too_many_steps(self.max_steps, span));
        }
        Ok(())
    }

    fn value(&self, id: ValueId) -> Rc<Elements> {
        self.values[id].clone().expect("a value is defined before it is used")
    }

    fn set(&mut self, id: ValueId, elements: Elements) {
        self.values[id] = Some(Rc::new(elements));
    }

    /// Empty elements for the result of a definition; memory of its last result is used again.
    fn take(&mut self, id: ValueId, dtype: DType) -> Elements {
        let last = self.values[id].take().and_then(|rc| Rc::try_unwrap(rc).ok());
        let mut elements = last.unwrap_or_else(|| Elements::new(dtype));
        elements.reset(dtype);
        elements
    }

    /// The code of a scalar.
    fn code(&self, id: ValueId) -> u64 {
        self.values[id].as_ref().expect("a value is defined before it is used").get(0)
    }

    /// The value of an integer scalar.
    fn int(&self, id: ValueId) -> i64 {
        let dtype = self.kernel.values[id].dtype;
        // What i64 cannot hold is past the end of every buffer.
        kernel_abi::numeric::to_i64(dtype, self.code(id)).unwrap_or(i64::MAX)
    }

    fn store(
        &mut self,
        value: ValueId,
        access: &TileAccess,
        update: Option<AtomicOp>,
    ) -> Result<(), EmuError> {
        let tile = self.resolve(access, "stored")?;
        let shape = &self.kernel.values[value].shape;
        let value = self.value(value);
        let value = shape::broadcast(&value, shape, &tile.shape());
        if let Storage::Peer(param, rank) = access.storage {
            let (to, view) = ((param, self.int(rank)), &mut self.view);
            return tile
                .runs(|start, count, at| view.store_to(to, start, count, &value, at, access.span));
        }
        if let Storage::Peers(param) = access.storage {
            let view = &mut self.view;
            for rank in 0..i64::from(self.kernel.launch.world.unwrap_or(1)) {
                tile.runs(|start, count, at| {
                    view.store_to((param, rank), start, count, &value, at, access.span)
                })?;
            }
            return Ok(());
        }
        if let Storage::Multicast(param, _) = access.storage {
            let view = &mut self.view;
            return tile.runs(|start, count, at| {
                view.store_multicast(param, start, count, &value, at, access.span)
            });
        }
        let Storage::Buffer(param) = access.storage else {
            return self.store_shared(access, &tile, &value).map(|_| ());
        };
        if let Some(op) = update {
            let view = &mut self.view;
            return tile.runs(|start, count, at| {
                (0..count).try_for_each(|i| {
                    let (start, by) = (start + i as u64, value.get(at + i));
                    view.update(param, start, op, by, access.span).map(|_| ())
                })
            });
        }
        self.view.begin_store(param, access.span)?;
        let view = &mut self.view;
        tile.runs(|start, count, at| view.store(param, start, count, &value, at, access.span))
    }

    fn advance(&mut self, word: &Word) -> Result<(), EmuError> {
        let Word { param, index, span } = *word;
        let at = self.view.inside(param, self.int(index), 1, span)? as u64;
        self.view.check_read(param, span)?;
        let mut value = Elements::splat(DType::U32, 0, 1);
        self.view.load(param, at, 1, &mut value, 0, span)?;
        value.set(0, u64::from((value.get(0) as u32).wrapping_add(1)));
        self.view.begin_store(param, span)?;
        self.view.store(param, at, 1, &value, 0, span)
    }

    fn prefetch(&mut self, what: &PrefetchRange, span: Span) -> Result<(), EmuError> {
        match what {
            PrefetchRange::Tile(access) => {
                let tile = self.resolve(access, "prefetched")?;
                let Storage::Buffer(param) = access.storage else { return Ok(()) };
                let view = &self.view;
                tile.runs(|start, count, _| {
                    view.inside(param, start as i64, count, access.span).map(|_| ())
                })
            }
            PrefetchRange::Box(_) => Ok(()),
            PrefetchRange::Elements { param, start, end } => {
                let (start, end) = (self.int(*start), self.int(*end));
                // An empty range touches nothing.
                if start < end {
                    let count = usize::try_from(end - start).unwrap_or(usize::MAX);
                    self.view.inside(*param, start, count, span)?;
                }
                Ok(())
            }
        }
    }
}

/// The error of a failed `assert`.
pub(crate) fn failed_assert(message: &str, span: Span) -> EmuError {
    EmuError::new(ErrorKind::Assert, span, format!("assertion failed: {message}"))
}

/// The error of a CTA that does not end.
pub(crate) fn too_many_steps(limit: u64, span: Span) -> EmuError {
    EmuError::new(ErrorKind::StepLimit, span, format!("a CTA ran more than {limit} statements"))
}

/// The text of `printf`: each `{}` stands for the next argument.
pub(crate) fn format_text(format: &str, args: impl Iterator<Item = (DType, u64)>) -> String {
    let mut pieces = format.split("{}");
    let mut text = pieces.next().unwrap_or_default().to_owned();
    let mut args = args.map(|(dtype, code)| format_code(dtype, code));
    for piece in pieces {
        text.push_str(&args.next().unwrap_or_else(|| "{}".into()));
        text.push_str(piece);
    }
    text
}

fn format_code(dtype: DType, code: u64) -> String {
    match dtype {
        DType::Bool => (code != 0).to_string(),
        DType::U64 => code.to_string(),
        DType::I8 | DType::U8 | DType::I32 | DType::U32 | DType::I64 => {
            kernel_abi::numeric::to_i64(dtype, code).map_or_else(String::new, |v| v.to_string())
        }
        DType::F32
        | DType::F16
        | DType::Bf16
        | DType::E4m3
        | DType::E5m2
        | DType::E2m1
        | DType::Ue8m0 => kernel_abi::numeric::float_to_f32(dtype, code)
            .map_or_else(String::new, |v| v.to_string()),
    }
}

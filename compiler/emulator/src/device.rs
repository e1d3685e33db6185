//! The device level: all threads of a CTA run one statement after the other.
//!
//! The registers of all threads lie side by side, so a statement is one operation on `elements × threads`
//! values. A choice that is not uniform runs its arms under a mask; a barrier, a shuffle or a loop that masked
//! threads would not reach is an error.

mod copies;
mod mma;
mod outgoing;
mod pipes;
mod products;
mod ranks;
mod record;
mod registers;
mod roles;
mod shared;
mod tensor;
#[cfg(test)]
mod tests;
mod tmem;
mod vectors;

use std::rc::Rc;

use kernel_abi::DType;
use kernel_dsl::source::Span;
use kernel_ir::device::{
    Arg, Change, DeviceKernel, DeviceOp, DeviceStmt, FragId, Lanes, LocId, OpLoc, OpRole, SlotId,
    Special, Vector,
};
use kernel_ir::distribution::LANES;
use kernel_ir::index::{Id, IndexVec};
use kernel_ir::kernel::{Barrier, BarrierId, Literal, ParamId, Words};
use kernel_ir::ops::elements::literal_code;
use kernel_ir::ops::eval::EvalError;
use kernel_ir::ops::{BinaryOp, Elements, ReduceOp, convert, eval};

use crate::cluster::Member;
use crate::counters::{Event, Printed, Trace};
use crate::departures::Departures;
use crate::error::{EmuError, ErrorKind};
use crate::grid::{self, Ended, Grid, Meets};
use crate::kernel::{failed_assert, format_text, too_many_steps};
use crate::memory::{Buffer, Memory};
use crate::options::Options;
use crate::overlap::{self, Flight, StreamLaunch};
use crate::record::Recorder;
use crate::roles::Clock;
use crate::view::{Launched, View};
use copies::Copies;
use pipes::Post;
use products::Products;
use registers::{Operand, Registers};
use shared::Shared;

pub use ranks::run_device_on_ranks;
pub use record::record_device;

/// Runs a device kernel on `memory`, which has an argument for every parameter; as
/// [`run_kernel`](crate::run_kernel), with the same bits.
pub fn run_device(
    kernel: &DeviceKernel,
    memory: &mut Memory,
    options: &Options,
) -> Result<Trace, EmuError> {
    if kernel.launch.world.is_some() {
        let memories = std::slice::from_mut(memory);
        let traces = run_device_on_ranks(kernel, memories, 1, options)?;
        return Ok(traces.into_iter().next().unwrap_or_default());
    }
    run_device_on_one(kernel, memory, options, None)
}

/// Runs a kernel on one or more ranks, with or without a recorder.
fn run_device_recorded(
    kernel: &DeviceKernel,
    memories: &mut [Memory],
    launches: usize,
    options: &Options,
    recorder: Option<&Recorder>,
) -> Result<Vec<Trace>, EmuError> {
    if kernel.launch.world.is_some() {
        return ranks::run_all(kernel, memories, launches, options, recorder);
    }
    let mut traces = Vec::with_capacity(launches * memories.len());
    for memory in memories {
        for _ in 0..launches {
            traces.push(run_device_on_one(kernel, memory, options, recorder)?);
        }
    }
    Ok(traces)
}

fn run_device_on_one(
    kernel: &DeviceKernel,
    memory: &mut Memory,
    options: &Options,
    recorder: Option<&Recorder>,
) -> Result<Trace, EmuError> {
    let run = |cta, launched: Launched<'_>, member: Member<'_, Shared>| {
        let mut machine = Machine::new(kernel, launched, member, cta, options.max_steps);
        machine.note_start();
        machine.block(&kernel.body)?;
        machine.end()
    };
    let grid = Grid { recorder, ..grid_of(kernel, options) };
    grid::run_grid(&grid, memory, |rank| Shared::new(kernel, rank), run)
}

/// Runs launches of a stream; as [`run_kernel_stream`](crate::run_kernel_stream), with the same bits.
///
/// # Errors
/// A launch fails, or touches what one that may still run touches.
pub fn run_device_stream(
    launches: &[StreamLaunch<'_, DeviceKernel>],
    buffers: &mut [Buffer],
    options: &Options,
) -> Result<Vec<Trace>, EmuError> {
    let flights: Vec<_> = launches.iter().map(|launch| flight(launch, options)).collect();
    overlap::run(&flights, buffers, options)
}

fn flight<'k>(
    launch: &'k StreamLaunch<'_, DeviceKernel>,
    options: &'k Options,
) -> Flight<'k, Shared> {
    let kernel = launch.kernel;
    let run = move |cta, launched: Launched<'_>, member: Member<'_, Shared>| {
        let mut machine = Machine::new(kernel, launched, member, cta, options.max_steps);
        machine.block(&kernel.body)?;
        machine.end()
    };
    Flight {
        name: &kernel.name,
        grid: grid_of(kernel, options),
        bound: &launch.bound,
        shared: Box::new(|rank| Shared::new(kernel, rank)),
        run: Box::new(run),
    }
}

fn grid_of<'k>(kernel: &'k DeviceKernel, options: &'k Options) -> Grid<'k> {
    let span = kernel.locs.iter().next().map_or(Span::default(), |loc| loc.span);
    let (params, launch, roles) = (&kernel.params, &kernel.launch, kernel.roles.len());
    Grid { params, launch, span, roles, meets: meets(kernel), options, recorder: None }
}

/// What the CTAs have to do with each other.
fn meets(kernel: &DeviceKernel) -> Meets {
    let waits = kernel.params.iter().any(|param| param.words == Some(Words::Raised));
    if waits || takes_turns(&kernel.body) {
        return Meets::Waits;
    }
    let counts = kernel.params.iter().any(|param| param.counts_arrivals());
    let shares = counts || hands_over(kernel) || updates(&kernel.body);
    if shares { Meets::Counts } else { Meets::Apart }
}

/// True where a CTA of a cluster may read what another one stores.
fn hands_over(kernel: &DeviceKernel) -> bool {
    let mut loaded = kernel.locs.iter().filter_map(|loc| {
        let OpRole::Load { param, .. } = loc.role else { return None };
        Some(param)
    });
    let stores = |param: ParamId| {
        let is_store =
            |loc: &OpLoc| matches!(loc.role, OpRole::Store { param: of, .. } if of == param);
        kernel.locs.iter().any(is_store)
    };
    kernel.launch.cluster_size() > 1 && loaded.any(stores)
}

/// True where it depends on other CTAs what some statement does.
fn takes_turns(stmts: &[DeviceStmt]) -> bool {
    stmts.iter().any(|stmt| match &stmt.op {
        DeviceOp::Repeat { .. } => true,
        DeviceOp::For { body, .. } | DeviceOp::Role { body, .. } => takes_turns(body),
        DeviceOp::If { then_body, else_body, .. } => {
            takes_turns(then_body) || takes_turns(else_body)
        }
        _ => false,
    })
}

/// True where some statement changes elements in one step.
fn updates(stmts: &[DeviceStmt]) -> bool {
    stmts.iter().any(|stmt| match &stmt.op {
        DeviceOp::Store { update, .. } => update.is_some(),
        DeviceOp::Atomic { .. } => true,
        DeviceOp::For { body, .. }
        | DeviceOp::Role { body, .. }
        | DeviceOp::Repeat { body, .. } => updates(body),
        DeviceOp::If { then_body, else_body, .. } => updates(then_body) || updates(else_body),
        _ => false,
    })
}

/// Which threads take part: all, or those with `true`.
type Mask = Option<Rc<Vec<bool>>>;

/// One CTA.
struct Machine<'k> {
    kernel: &'k DeviceKernel,
    cta: [u32; 3],
    threads: usize,
    /// In a role, the first one of them, counted in the CTA.
    first_thread: usize,
    view: View<'k>,
    frags: IndexVec<FragId, Option<Rc<Registers>>>,
    slots: IndexVec<SlotId, Option<Rc<Registers>>>,
    member: Member<'k, Shared>,
    /// Meetings of the cluster so far.
    meetings: u32,
    /// Barriers that the threads have passed.
    interval: u32,
    clock: Clock,
    barriers: IndexVec<BarrierId, Barrier>,
    /// In a role, where it meets others.
    post: Option<Post<'k>>,
    copies: Copies,
    /// Copies out of shared memory.
    departures: Departures<outgoing::Cargo>,
    products: Products<'k>,
    /// Products and loads in tensor memory.
    flights: tmem::Flights,
    mask: Mask,
    printed: Vec<Printed>,
    events: Vec<Event>,
    flops: u64,
    steps: u64,
    max_steps: u64,
}

impl<'k> Machine<'k> {
    fn new(
        kernel: &'k DeviceKernel,
        launched: Launched<'k>,
        member: Member<'k, Shared>,
        cta: [u32; 3],
        max_steps: u64,
    ) -> Machine<'k> {
        let barriers: IndexVec<BarrierId, Barrier> =
            kernel.barriers.iter().map(|placed| placed.barrier.clone()).collect();
        Machine {
            kernel,
            cta,
            threads: kernel.launch.threads() as usize,
            first_thread: 0,
            view: View::new(launched),
            frags: kernel.frags.iter().map(|_| None).collect(),
            slots: kernel.slots.iter().map(|_| None).collect(),
            member,
            meetings: 0,
            interval: 0,
            clock: Clock::new(member.rank(), kernel.roles.len(), crate::pipes::slots(&barriers)),
            barriers,
            post: None,
            copies: Copies::default(),
            departures: Departures::default(),
            products: Products::default(),
            flights: tmem::Flights::default(),
            mask: None,
            printed: Vec::new(),
            events: Vec::new(),
            flops: 0,
            steps: 0,
            max_steps,
        }
    }

    fn end(self) -> Result<Ended, EmuError> {
        self.departures.end()?;
        self.note_end();
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

    fn span(&self, loc: LocId) -> Span {
        self.kernel.locs[loc].span
    }

    fn step(&mut self, loc: LocId) -> Result<(), EmuError> {
        self.steps += 1;
        if self.steps > self.max_steps {
            return Err(too_many_steps(self.max_steps, self.span(loc)));
        }
        Ok(())
    }

    fn is_active(&self, thread: usize) -> bool {
        self.mask.as_ref().is_none_or(|mask| mask[thread])
    }

    fn stmt(&mut self, stmt: &'k DeviceStmt) -> Result<(), EmuError> {
        let loc = stmt.loc;
        self.step(loc)?;
        self.view.learn(&self.clock);
        match &stmt.op {
            DeviceOp::Const { dst, values } => self.constant(*dst, values),
            DeviceOp::Special { dst, which } => {
                let of = |t: usize| match which {
                    Special::CtaIndex(axis) => self.cta[usize::from(*axis)],
                    Special::ClusterIndex(axis) => axis.place(self.cta, self.kernel.launch.cluster),
                    Special::Lane => t as u32 % LANES,
                    Special::Warp => t as u32 / LANES,
                    Special::WarpFrom(first) => (t as u32 / LANES).wrapping_sub(*first),
                    Special::WarpModulo(warps) => t as u32 / LANES % (*warps).max(1),
                };
                let threads = self.first_thread..self.first_thread + self.threads;
                let codes = threads.map(|t| u64::from(of(t)));
                let elements = Elements::from_codes(DType::I32, codes);
                self.set(*dst, Registers::defined(elements));
            }
            DeviceOp::ScalarParam { dst, param } => {
                let dtype = self.kernel.params[*param].dtype;
                let code = self.view.launched.scalar(*param);
                let elements = Elements::splat(dtype, code, self.threads);
                self.set(*dst, Registers::defined(elements));
            }
            DeviceOp::Unary { dst, op, x } => {
                let (x, mut out) = (self.operand(x, *dst), self.take(*dst));
                eval::unary(*op, &x.elements, &mut out);
                self.count_flops(*dst, 1);
                let undefined = x.undefined;
                self.set(*dst, Registers { elements: out, undefined });
            }
            DeviceOp::Convert { dst, x } => {
                let (x, mut out) = (self.operand(x, *dst), self.take(*dst));
                convert::elements(&x.elements, self.kernel.frags[*dst].dtype, &mut out);
                let undefined = x.undefined;
                self.set(*dst, Registers { elements: out, undefined });
            }
            DeviceOp::Copy { dst, x } => {
                let x = self.operand(x, *dst);
                self.set(*dst, x.into_registers());
            }
            DeviceOp::Binary { dst, op, a, b } => self.binary(*dst, *op, a, b, loc)?,
            DeviceOp::Compare { dst, op, a, b } => {
                let (a, b) = (self.operand(a, *dst), self.operand(b, *dst));
                let mut out = self.take(*dst);
                eval::compare(*op, &a.elements, &b.elements, &mut out);
                let undefined = registers::either(a.undefined, b.undefined);
                self.set(*dst, Registers { elements: out, undefined });
            }
            DeviceOp::Select { dst, cond, a, b } => {
                let cond = self.operand(cond, *dst);
                let (a, b) = (self.operand(a, *dst), self.operand(b, *dst));
                let mut out = self.take(*dst);
                eval::select(&cond.elements, &a.elements, &b.elements, &mut out);
                let undefined = registers::chosen(&cond, a.undefined, b.undefined);
                self.set(*dst, Registers { elements: out, undefined });
            }
            DeviceOp::Fma { dst, a, b, c } => {
                let (a, b) = (self.operand(a, *dst), self.operand(b, *dst));
                let c = self.operand(c, *dst);
                let mut out = self.take(*dst);
                eval::fma(&a.elements, &b.elements, &c.elements, &mut out);
                self.count_flops(*dst, 2);
                let undefined = registers::either(a.undefined, b.undefined);
                let undefined = registers::either(undefined, c.undefined);
                self.set(*dst, Registers { elements: out, undefined });
            }
            DeviceOp::Inline { dst, text: _, equals, inputs: _ } => {
                let equals = self.operand(equals, *dst);
                self.set(*dst, equals.into_registers());
            }
            DeviceOp::Join { dst, from } => {
                let sources = from.iter().map(|&(frag, element)| (self.frag(frag), element));
                let joined = registers::join(sources, self.kernel.frags[*dst].dtype, self.threads);
                self.set(*dst, joined);
            }
            DeviceOp::Mma { dst, a, b, acc, atoms } => {
                self.mma(*dst, [*a, *b], *acc, atoms, loc)?;
            }
            DeviceOp::Shuffle { dst, x, lanes } => self.shuffle(*dst, *x, *lanes, loc)?,
            DeviceOp::ReduceLanes { dst, x, op } => self.reduce_lanes(*dst, *x, *op, loc)?,
            DeviceOp::Load { dst, place, vectors, other, cache: _ } => {
                self.load(*dst, place, vectors, *other, loc)?;
            }
            DeviceOp::LoadMatrices { dst, place, loads } => {
                self.load_matrices(*dst, place, loads, loc)?;
            }
            DeviceOp::StoreMatrices { src, place, stores } => {
                self.store_matrices(*src, place, stores, loc)?;
            }
            DeviceOp::Store { src, place, vectors, update, cache: _ } => {
                self.store(src, place, vectors, *update, loc)?;
            }
            DeviceOp::Prefetch { place, vectors, bytes, evict: _ } => {
                self.prefetch(place, vectors, *bytes, loc)?;
            }
            DeviceOp::ReadSlot { dst, slot } => {
                self.check_sums(*slot, loc)?;
                let content = self.slots[*slot].clone();
                let content = content.ok_or_else(|| {
                    let name = &self.kernel.slots[*slot].name;
                    let message = format!("read of `{name}`, which nothing has assigned");
                    EmuError::new(ErrorKind::Poison, self.span(loc), message)
                })?;
                self.frags[*dst] = Some(content);
            }
            DeviceOp::SetSlot { slot, x } => {
                self.check_sums(*slot, loc)?;
                self.set_slot(*slot, x);
            }
            DeviceOp::Warpgroup(op) => self.warpgroup(op, loc)?,
            DeviceOp::Tensor(op) => self.tensor(op, loc)?,
            DeviceOp::CopyAsync { source, dest, pieces, evict: _ } => {
                self.copy_async(source, dest, pieces, loc)?;
            }
            DeviceOp::CommitGroup => {
                self.uniform_only("the end of a group", loc)?;
                self.copies.close();
            }
            DeviceOp::WaitGroup { pending } => {
                self.uniform_only("a wait for copies", loc)?;
                self.settle(*pending as usize, loc)?;
            }
            DeviceOp::Barrier => {
                self.uniform_only("a barrier", loc)?;
                self.interval += 1;
                self.view.meet();
                self.clock.meet();
                self.note_meeting();
            }
            DeviceOp::ClusterBarrier => {
                self.uniform_only("a barrier of the cluster", loc)?;
                self.interval += 1;
                self.clock.meet();
                let number = self.meetings;
                self.note_cluster(number, true);
                let (member, meeting, span) = (self.member, self.member.meeting(), self.span(loc));
                let meet = || member.meet(self.clock.seen(), span);
                self.meetings = self.view.meet_cluster(meeting, meet)?;
                self.clock.meet_cluster(member.met());
                self.note_cluster(number, false);
            }
            DeviceOp::RoleBarrier { .. } => {
                self.uniform_only("a barrier", loc)?;
                self.interval += 1;
                self.view.meet();
                self.note_meeting();
            }
            DeviceOp::Pipe(pipe) => self.pipe(pipe, loc)?,
            DeviceOp::Role { .. } => unreachable!("a block runs its roles itself"),
            DeviceOp::Fence => self.note_fence(),
            DeviceOp::Signal { param, rank, at, add, alias } => {
                self.note_alias_fence(*alias);
                self.signal(*param, *rank, at, *add, loc)?;
            }
            DeviceOp::Await { param, at, until, alias } => {
                self.wait_for(*param, at, *until, loc)?;
                self.note_alias_fence(*alias);
            }
            DeviceOp::Atomic { dst, param, at, change } => {
                self.atomic(*dst, *param, at, *change, loc)?;
            }
            DeviceOp::GridWait => {
                self.uniform_only("`grid_wait`", loc)?;
                self.view.wait(&self.clock, self.span(loc))?;
                self.note_grid_wait();
            }
            DeviceOp::GridLaunch => {
                self.uniform_only("`grid_launch`", loc)?;
                self.view.let_go(self.span(loc))?;
            }
            DeviceOp::Assert { cond, message } => {
                for t in (0..self.threads).filter(|&t| self.is_active(t)) {
                    if self.code(*cond, 0, t, loc)? == 0 {
                        return Err(failed_assert(message, self.span(loc)).thread(t));
                    }
                }
            }
            DeviceOp::Trace { event } => {
                let role = self.post.as_ref().map(|post| post.role.index() as u32);
                let (cta, event, step) = (self.cta, *event, self.steps);
                self.events.push(Event { cta, role, event, step });
            }
            DeviceOp::Printf { format, args } => self.printf(format, args, loc)?,
            DeviceOp::For { var, start, end, step, body } => {
                let (start, end) = (self.uniform(*start, loc)?, self.uniform(*end, loc)?);
                let (Some(start), Some(end)) = (start, end) else { return Ok(()) };
                let (mut at, end) = (i64::from(start as u32 as i32), i64::from(end as u32 as i32));
                while at < end {
                    self.step(loc)?;
                    let code = u64::from(at as u32);
                    let elements = Elements::splat(DType::I32, code, self.threads);
                    self.set(*var, Registers::defined(elements));
                    self.block(body)?;
                    at += i64::from(*step);
                }
            }
            DeviceOp::Repeat { body, again } => loop {
                self.step(loc)?;
                self.block(body)?;
                if self.uniform(*again, loc)? != Some(1) {
                    break;
                }
            },
            DeviceOp::If { cond, then_body, else_body } => {
                self.choose(*cond, then_body, else_body, loc)?;
            }
        }
        Ok(())
    }

    /// Changes an element once for each active thread; the others have no old value.
    fn atomic(
        &mut self,
        dst: FragId,
        param: ParamId,
        at: &Vector,
        change: Change,
        loc: LocId,
    ) -> Result<(), EmuError> {
        let span = self.span(loc);
        let mut out = self.take(dst);
        out.fill(0, self.threads);
        let mut undefined = vec![true; self.threads];
        for t in (0..self.threads).filter(|&t| self.is_active(t)).collect::<Vec<_>>() {
            let start = self.start(at, t, loc)?;
            let (frag, element) = change.register();
            let by = self.code(frag, element, t, loc)?;
            let old = match change {
                Change::Count { .. } => {
                    let arrives = matches!(self.kernel.locs[loc].role, OpRole::Arrive { .. });
                    let count = if arrives { View::arrive } else { View::take };
                    count(&self.view, param, start, by as u32, span).map(u64::from)
                }
                Change::Apply { op, .. } => self
                    .view
                    .inside(param, start, 1, span)
                    .and_then(|start| self.view.update(param, start as u64, op, by, span)),
            };
            self.note_update(t, (param, start), loc);
            out.set(t, old.map_err(|e| e.thread(t))?);
            undefined[t] = false;
        }
        self.set(dst, Registers { elements: out, undefined: registers::some_if_any(undefined) });
        Ok(())
    }

    fn constant(&mut self, dst: FragId, values: &[Literal]) {
        let frag = self.kernel.frags[dst];
        let code = |v: &Literal| literal_code(frag.dtype, *v).expect("expansion checks literals");
        let threads = self.threads;
        let mut out = self.take(dst);
        if let [value] = values {
            out.fill(code(value), frag.len as usize * threads);
        } else {
            let codes = values.iter().flat_map(|v| std::iter::repeat_n(code(v), threads));
            out = Elements::from_codes(frag.dtype, codes);
        }
        self.set(dst, Registers::defined(out));
    }

    fn binary(
        &mut self,
        dst: FragId,
        op: BinaryOp,
        a: &Arg,
        b: &Arg,
        loc: LocId,
    ) -> Result<(), EmuError> {
        let (a, mut b) = (self.operand(a, dst), self.operand(b, dst));
        let undefined = registers::either(a.undefined.clone(), b.undefined.clone());
        let divides = matches!(op, BinaryOp::Div | BinaryOp::Rem);
        if divides && b.elements.dtype().is_int() && (self.mask.is_some() || undefined.is_some()) {
            // What no thread computes must not fail.
            let mut elements = b.elements.clone();
            for i in 0..elements.len() {
                let ignored = undefined.as_ref().is_some_and(|u| u[i]);
                if ignored || !self.is_active(i % self.threads) {
                    elements.set(i, 1);
                }
            }
            b = Operand { elements: registers::Source::Owned(elements), undefined: None };
        }
        let mut out = self.take(dst);
        eval::binary(op, &a.elements, &b.elements, &mut out).map_err(|e| {
            let EvalError::DivisionByZero { index } = e;
            EmuError::new(ErrorKind::DivisionByZero, self.span(loc), "integer division by zero")
                .thread(index % self.threads)
        })?;
        self.count_flops(dst, 1);
        self.set(dst, Registers { elements: out, undefined });
        Ok(())
    }

    fn shuffle(
        &mut self,
        dst: FragId,
        x: FragId,
        lanes: Lanes,
        loc: LocId,
    ) -> Result<(), EmuError> {
        let threads = self.threads;
        let warp_lanes = LANES as usize;
        let threads_read: Vec<usize> = match lanes {
            Lanes::Xor(xor) => (0..threads).map(|t| t ^ xor as usize).collect(),
            Lanes::Register((frag, element)) => {
                let numbers = &self.frag(frag).elements;
                let first = element as usize * threads;
                let lane = |t: usize| numbers.get(first + t) as usize % warp_lanes;
                (0..threads).map(|t| t / warp_lanes * warp_lanes + lane(t)).collect()
            }
        };
        if let Some(mask) = &self.mask
            && (0..threads).any(|t| mask[t] && !mask[threads_read[t]])
        {
            return Err(self.parted("a shuffle", loc));
        }
        let source = self.frag(x);
        let len = self.kernel.frags[dst].len as usize;
        let from = |i: usize| i / threads * threads + threads_read[i % threads];
        let mut out = self.take(dst);
        out.gather(&source.elements, (0..len * threads).map(from));
        let undefined = source
            .undefined
            .as_ref()
            .map(|u| Rc::new((0..len * threads).map(|i| u[from(i)]).collect::<Vec<_>>()));
        self.set(dst, Registers { elements: out, undefined });
        Ok(())
    }

    fn reduce_lanes(
        &mut self,
        dst: FragId,
        x: FragId,
        op: ReduceOp,
        loc: LocId,
    ) -> Result<(), EmuError> {
        let (threads, lanes) = (self.threads, LANES as usize);
        if let Some(mask) = &self.mask
            && mask.chunks(lanes).any(|warp| warp.iter().any(|&on| on) && warp.contains(&false))
        {
            return Err(self.parted("a reduction over lanes", loc));
        }
        let (dtype, len) = (self.kernel.frags[dst].dtype, self.kernel.frags[dst].len as usize);
        let source = self.frag(x);
        let mut folded = Elements::new(dtype);
        folded.gather(&source.elements, 0..len * threads);
        let mut undefined = source.undefined.as_ref().map(|u| u[..len * threads].to_vec());
        let mut distance = 1;
        while distance < lanes {
            let other = |i: usize| i / threads * threads + ((i % threads) ^ distance);
            let (mut there, mut both) = (Elements::new(dtype), Elements::new(dtype));
            there.gather(&folded, (0..len * threads).map(other));
            eval::binary(op.binary(), &folded, &there, &mut both).expect("no reduction divides");
            folded = both;
            undefined = undefined.map(|u| (0..u.len()).map(|i| u[i] || u[other(i)]).collect());
            distance *= 2;
        }
        self.count_flops(dst, u64::from(LANES.ilog2()));
        self.set(dst, Registers { elements: folded, undefined: undefined.map(Rc::new) });
        Ok(())
    }

    fn set_slot(&mut self, slot: SlotId, x: &Arg) {
        let (dtype, len) = (self.kernel.slots[slot].dtype, self.kernel.slots[slot].len);
        let mut new = self.operand_of_len(x, len).into_registers();
        if let Some(mask) = &self.mask {
            let old = self.slots[slot].take();
            new.keep(mask, old.as_deref(), dtype);
        }
        self.slots[slot] = Some(Rc::new(new));
    }

    fn printf(&mut self, format: &str, args: &[FragId], loc: LocId) -> Result<(), EmuError> {
        if !self.is_active(0) {
            return Ok(());
        }
        let values = args
            .iter()
            .map(|&a| Ok((self.kernel.frags[a].dtype, self.code(a, 0, 0, loc)?)))
            .collect::<Result<Vec<_>, EmuError>>()?;
        let text = format_text(format, values.into_iter());
        self.printed.push(Printed { cta: self.cta, text });
        Ok(())
    }

    fn choose(
        &mut self,
        cond: FragId,
        then_body: &'k [DeviceStmt],
        else_body: &'k [DeviceStmt],
        loc: LocId,
    ) -> Result<(), EmuError> {
        let mut takes_then = vec![false; self.threads];
        let mut takes_else = vec![false; self.threads];
        for t in (0..self.threads).filter(|&t| self.is_active(t)) {
            let truth = self.code(cond, 0, t, loc)? != 0;
            takes_then[t] = truth;
            takes_else[t] = !truth;
        }
        let (any_then, any_else) = (takes_then.contains(&true), takes_else.contains(&true));
        if any_then && any_else {
            let outer = self.mask.replace(Rc::new(takes_then));
            self.block(then_body)?;
            self.mask = Some(Rc::new(takes_else));
            self.block(else_body)?;
            self.mask = outer;
            return Ok(());
        }
        if any_then {
            return self.block(then_body);
        }
        if any_else { self.block(else_body) } else { Ok(()) }
    }

    /// The registers of a fragment.
    fn frag(&self, id: FragId) -> Rc<Registers> {
        self.frags[id].clone().expect("a fragment is defined before it is used")
    }

    fn set(&mut self, id: FragId, registers: Registers) {
        self.frags[id] = Some(Rc::new(registers));
    }

    /// Empty elements for the result `dst`; memory of its last value is used again.
    fn take(&mut self, dst: FragId) -> Elements {
        let dtype = self.kernel.frags[dst].dtype;
        let last = self.frags[dst].take().and_then(|rc| Rc::try_unwrap(rc).ok());
        let mut elements = last.map_or_else(|| Elements::new(dtype), |r| r.elements);
        elements.reset(dtype);
        elements
    }

    /// An operand of an operation with the result `dst`.
    fn operand(&self, arg: &Arg, dst: FragId) -> Operand {
        self.operand_of_len(arg, self.kernel.frags[dst].len)
    }

    fn operand_of_len(&self, arg: &Arg, len: u32) -> Operand {
        registers::operand(self.frag(arg.frag), &arg.map, len as usize, self.threads)
    }

    /// The code of an element in one thread; undefined is an error.
    fn code(&self, frag: FragId, element: u32, t: usize, loc: LocId) -> Result<u64, EmuError> {
        let registers = self.frags[frag].as_ref().expect("a fragment is defined before it is used");
        let at = element as usize * self.threads + t;
        if registers.undefined.as_ref().is_some_and(|u| u[at]) {
            let message = "use of a register that holds no value";
            return Err(EmuError::new(ErrorKind::Poison, self.span(loc), message).thread(t));
        }
        Ok(registers.elements.get(at))
    }

    /// The code that all active threads agree on; none without active threads.
    fn uniform(&self, frag: FragId, loc: LocId) -> Result<Option<u64>, EmuError> {
        let mut agreed = None;
        for t in (0..self.threads).filter(|&t| self.is_active(t)) {
            let code = self.code(frag, 0, t, loc)?;
            if *agreed.get_or_insert(code) != code {
                return Err(self.parted("a loop bound", loc).thread(t));
            }
        }
        Ok(agreed)
    }

    fn uniform_only(&self, what: &str, loc: LocId) -> Result<(), EmuError> {
        if self.mask.is_some() { Err(self.parted(what, loc)) } else { Ok(()) }
    }

    fn parted(&self, what: &str, loc: LocId) -> EmuError {
        let message = format!("{what} that not all threads reach alike");
        EmuError::new(ErrorKind::NotUniform, self.span(loc), message)
    }

    /// Counts `each` operations for every element of `dst` in every active thread.
    fn count_flops(&mut self, dst: FragId, each: u64) {
        let frag = self.kernel.frags[dst];
        if frag.dtype.is_float() {
            let threads = match &self.mask {
                None => self.threads,
                Some(mask) => mask.iter().filter(|&&m| m).count(),
            };
            self.flops += each * u64::from(frag.len) * threads as u64;
        }
    }
}

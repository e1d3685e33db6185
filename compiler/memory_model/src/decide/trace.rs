//! What one thread may do: every path through its program, for every value that its reads might return.

use std::collections::BTreeMap;

use crate::code::{Code, Diagnostic};
use crate::event::{FenceOrder, ProxyFence, Scope};
use crate::litmus::{Barrier, BarrierMode, Instruction, Memory, Operation, Test, Value, Word};
use crate::relation::Relation;

/// The most events of one thread in one execution: dependencies are sets of bits.
const MAX_EVENTS: usize = 64;

/// What a trace does at one point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Reads a value.
    Read {
        memory: Memory,
        value: Word,
        /// Whether somebody uses the value: not for `red`.
        returns: bool,
        /// Whether the next action is the write of the same update.
        updates: bool,
    },
    /// Writes a value.
    Write { memory: Memory, value: Word },
    /// A fence between threads.
    Fence(FenceOrder, Scope),
    /// A fence between proxies.
    ProxyFence(ProxyFence),
    /// A barrier of the CTA.
    Barrier { mode: BarrierMode, key: (Word, Option<Word>), quorum: Option<Word> },
    /// The first half of a barrier of the cluster; whether it releases.
    ClusterArrive(bool),
    /// The second half.
    ClusterWait,
}

/// An action with its origin.
#[derive(Debug, Clone, Copy)]
pub(super) struct Done {
    pub(super) action: Action,
    /// The line of the program.
    pub(super) line: usize,
    /// The earlier events of the trace on which it depends, as bits.
    pub(super) depends: u64,
    /// Those of them that its value is computed with.
    pub(super) data: u64,
}

/// A path with its values.
#[derive(Debug, Clone)]
pub(super) struct Trace {
    pub(super) done: Vec<Done>,
    /// What the registers hold at the end.
    pub(super) registers: Vec<Word>,
}

/// The values that each object might hold, each with the least number of writes that make it: an initial value
/// has none, a write one more than the most of what it computes with.
pub(super) type Domain = Vec<BTreeMap<Word, usize>>;

/// Bounds of the enumeration.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// How often a path may run through a loop.
    pub(super) unroll: u32,
    /// The most traces of a thread.
    pub(super) traces: usize,
    /// The most values of an object.
    pub(super) values: usize,
}

/// A thread on its way.
#[derive(Clone)]
struct State {
    line: usize,
    registers: Vec<(Word, u64)>,
    done: Vec<Done>,
    /// What decided the way so far.
    control: u64,
    /// How often each line jumped back.
    jumps: Vec<u32>,
}

/// The traces of every thread, and the values that memory might hold.
///
/// The values are a fixed point: reads return initial values and what traces write, those included that end only with
/// what another thread writes later, or never. No value comes out of nothing, so none is made by more writes than an
/// execution has of what flows into it.
pub(super) fn traces(test: &Test, bounds: Bounds) -> Result<(Vec<Vec<Trace>>, Domain), Diagnostic> {
    let mut domain: Domain = vec![BTreeMap::new(); test.locations.len()];
    for location in &test.locations {
        domain[location.object as usize].insert(location.init, 0);
    }
    loop {
        let mut all = Vec::with_capacity(test.threads.len());
        for thread in 0..test.threads.len() {
            all.push(of_thread(test, thread, &domain, bounds)?);
        }
        let grown = grow(test, &all, &domain);
        if grown == domain {
            return Ok((all.into_iter().map(|paths| paths.ended).collect(), domain));
        }
        if grown.iter().any(|values| values.len() > bounds.values) {
            return Err(too_many(test, 0));
        }
        domain = grown;
    }
}

/// The paths of a thread.
#[derive(Default)]
struct Paths {
    ended: Vec<Trace>,
    /// Those that would run through a loop once more, up to there.
    cut: Vec<Trace>,
}

impl Paths {
    fn all(&self) -> impl Iterator<Item = &Trace> {
        self.ended.iter().chain(&self.cut)
    }

    fn count(&self) -> usize {
        self.ended.len() + self.cut.len()
    }
}

/// The values of a round with those that its traces write.
fn grow(test: &Test, all: &[Paths], domain: &Domain) -> Domain {
    let object = |memory: &Memory| test.locations[memory.location].object as usize;
    let size = domain.len();
    // What flows into what, and how many writes an execution has at most.
    let mut flows = Relation::empty(size);
    let mut writes = vec![0; size];
    for paths in all {
        let mut most = vec![0; size];
        for trace in paths.all() {
            let mut count = vec![0; size];
            for done in &trace.done {
                if let Action::Write { memory, .. } = &done.action {
                    count[object(memory)] += 1;
                    for read in inputs(trace, done) {
                        flows.add(object(read.0), object(memory));
                    }
                }
            }
            for (most, count) in most.iter_mut().zip(count) {
                *most = count.max(*most);
            }
        }
        for (writes, most) in writes.iter_mut().zip(most) {
            *writes += most;
        }
    }
    let flows = flows.closure().reflexive();
    let limit = |to: usize| -> usize {
        (0..size).filter(|from| flows.has(*from, to)).map(|from| writes[from]).sum()
    };
    let limits: Vec<usize> = (0..size).map(limit).collect();
    let mut grown = domain.clone();
    for trace in all.iter().flat_map(Paths::all) {
        for done in &trace.done {
            if let Action::Write { memory, value } = &done.action {
                let depth = inputs(trace, done)
                    .filter_map(|(read, value)| domain[object(read)].get(&value))
                    .max()
                    .map_or(1, |most| most + 1);
                let to = object(memory);
                if depth <= limits[to] {
                    let known = grown[to].entry(*value).or_insert(depth);
                    *known = depth.min(*known);
                }
            }
        }
    }
    grown
}

/// The reads that a write computes with.
fn inputs<'t>(trace: &'t Trace, done: &'t Done) -> impl Iterator<Item = (&'t Memory, Word)> {
    trace.done.iter().enumerate().filter_map(|(index, read)| match &read.action {
        Action::Read { memory, value, .. } if done.data >> index & 1 == 1 => Some((memory, *value)),
        _ => None,
    })
}

fn too_many(test: &Test, thread: usize) -> Diagnostic {
    let spot = test.threads[thread]
        .code
        .first()
        .map_or(crate::code::Spot { line: 1, column: 1 }, |l| l.spot);
    let message = "the thread has too many paths or values to look at all of them";
    Diagnostic::new(Code::M0202, spot, message)
}

fn of_thread(
    test: &Test,
    thread: usize,
    domain: &Domain,
    bounds: Bounds,
) -> Result<Paths, Diagnostic> {
    let program = &test.threads[thread];
    let start = State {
        line: 0,
        registers: program.init.iter().map(|value| (*value, 0)).collect(),
        done: Vec::new(),
        control: 0,
        jumps: vec![0; program.code.len()],
    };
    let mut open = vec![start];
    let mut paths = Paths::default();
    while let Some(mut state) = open.pop() {
        match run(test, thread, &mut state, bounds) {
            Stop::End => paths.ended.push(state.into_trace()),
            Stop::Unfinished => paths.cut.push(state.into_trace()),
            Stop::Read(memory) => {
                let object = test.locations[memory.location].object as usize;
                for value in domain[object].keys().rev() {
                    let mut next = state.clone();
                    step_read(test, thread, &mut next, memory, *value);
                    open.push(next);
                }
            }
            Stop::TooLong => return Err(too_many(test, thread)),
        }
        if open.len() + paths.count() > bounds.traces {
            return Err(too_many(test, thread));
        }
    }
    Ok(paths)
}

/// Why a thread does not go on by itself.
enum Stop {
    End,
    /// It would run through a loop once more.
    Unfinished,
    /// It reads.
    Read(Memory),
    TooLong,
}

impl State {
    fn into_trace(self) -> Trace {
        let registers = self.registers.iter().map(|(value, _)| *value).collect();
        Trace { done: self.done, registers }
    }

    fn value(&self, value: Value) -> (Word, u64) {
        match value {
            Value::Constant(value) => (value, 0),
            Value::Register(register) => self.registers[register],
        }
    }

    fn push(&mut self, action: Action, data: u64) {
        let depends = data | self.control;
        self.done.push(Done { action, line: self.line, depends, data });
    }
}

/// Runs up to the next read.
fn run(test: &Test, thread: usize, state: &mut State, bounds: Bounds) -> Stop {
    let code = &test.threads[thread].code;
    loop {
        let Some(line) = code.get(state.line) else { return Stop::End };
        // An update takes two places.
        if state.done.len() + 2 > MAX_EVENTS {
            return Stop::TooLong;
        }
        match line.instruction {
            Instruction::Load { memory, .. }
            | Instruction::Update { memory, .. }
            | Instruction::CompareAndSwap { memory, .. } => return Stop::Read(memory),
            Instruction::Store { memory, value } => {
                let (value, depends) = state.value(value);
                state.push(Action::Write { memory, value }, depends);
            }
            Instruction::Compute { into, operation, left, right } => {
                let ((left, from), (right, and)) = (state.value(left), state.value(right));
                state.registers[into] = (operation.apply(left, right), from | and);
            }
            Instruction::Fence(order, scope) => state.push(Action::Fence(order, scope), 0),
            Instruction::ProxyFence(fence) => state.push(Action::ProxyFence(fence), 0),
            Instruction::Barrier(barrier) => meet(state, barrier),
            Instruction::ClusterArrive(releases) => {
                state.push(Action::ClusterArrive(releases), 0);
            }
            Instruction::ClusterWait => state.push(Action::ClusterWait, 0),
            Instruction::Branch(branch) => {
                let taken = branch.condition.is_none_or(|(left, compare, right)| {
                    let ((left, from), (right, and)) = (state.value(left), state.value(right));
                    state.control |= from | and;
                    compare.holds(left, right)
                });
                if taken {
                    if branch.target <= state.line {
                        state.jumps[state.line] += 1;
                        if state.jumps[state.line] >= bounds.unroll {
                            return Stop::Unfinished;
                        }
                    }
                    state.line = branch.target;
                    continue;
                }
            }
        }
        state.line += 1;
    }
}

fn meet(state: &mut State, barrier: Barrier) {
    let of = |value: Option<Value>| value.map(|value| state.value(value).0);
    let action = Action::Barrier {
        mode: barrier.mode,
        key: (state.value(barrier.instance).0, of(barrier.resource)),
        quorum: of(barrier.quorum),
    };
    state.push(action, 0);
}

/// Does the instruction that reads, with the value that is read.
fn step_read(test: &Test, thread: usize, state: &mut State, memory: Memory, value: Word) {
    let here = 1_u64 << state.done.len();
    let read = |state: &mut State, returns, updates| {
        state.push(Action::Read { memory, value, returns, updates }, 0);
    };
    match test.threads[thread].code[state.line].instruction {
        Instruction::Load { into, .. } => {
            read(state, true, false);
            state.registers[into] = (value, here);
        }
        Instruction::Update { into, operation, value: operand, .. } => {
            let (operand, depends) = state.value(operand);
            read(state, into.is_some(), true);
            let written = operation.apply(value, operand);
            let of_old = if operation == Operation::Exchange { 0 } else { here };
            state.push(Action::Write { memory, value: written }, depends | of_old);
            if let Some(into) = into {
                state.registers[into] = (value, here);
            }
        }
        Instruction::CompareAndSwap { into, expected, value: new, .. } => {
            let ((expected, on), (new, depends)) = (state.value(expected), state.value(new));
            let swaps = expected == value;
            read(state, true, swaps);
            if swaps {
                // Whether there is a write depends on what was read; its value does not.
                let control = state.control;
                state.control |= on | here;
                state.push(Action::Write { memory, value: new }, depends);
                state.control = control;
            }
            state.registers[into] = (value, here);
        }
        Instruction::Store { .. }
        | Instruction::Compute { .. }
        | Instruction::Fence(..)
        | Instruction::ProxyFence(_)
        | Instruction::Barrier(_)
        | Instruction::ClusterArrive(_)
        | Instruction::ClusterWait
        | Instruction::Branch(_) => {}
    }
    state.line += 1;
}

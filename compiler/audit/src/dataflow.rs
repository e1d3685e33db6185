//! What each register and each tracked memory cell may hold, along every path.
//!
//! Readers of PTX and of machine code translate instructions into [`Step`]s; this module runs them to
//! a fixed point over the flow graph. Registers written once are kept in one place, the others per
//! block, so that a register that is used again for another pointer is told apart.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use blocks::Blocks;
use cells::{Access, copy_slot, fetch, held, memory, store};

use crate::graph::Graph;
use crate::values::{Origin, Term, ValueId, Values};

mod blocks;
mod cells;

/// An operand of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Reg(u32),
    Value(ValueId),
    /// A register that takes part as a number: the result depends on it, no pointer comes from it.
    Used(u32),
    /// A register that takes part as a number and may bring bits of a pointer.
    Bits(u32),
    /// A register that is taken away.
    Minus(u32),
}

/// One effect of an instruction on values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The register becomes the sum of the sources.
    Sum { dst: u32, parts: Vec<Source> },
    /// The register becomes one of the sources.
    Pick { dst: u32, among: Vec<Source> },
    /// The register becomes the difference; only the first part carries a pointer.
    Less { dst: u32, from: Source, by: Source },
    /// The register keeps a pointer of the source, with its constant part unknown.
    Align { dst: u32, src: Source },
    /// The register becomes a number, whatever went in; `uses` are what it depends on.
    Number { dst: u32, uses: Vec<Source> },
    /// The register becomes a value that is not followed.
    Opaque { dst: u32, uses: Vec<Source> },
    /// The register gets what memory holds at the address; `missing` where it is not tracked.
    Load { dst: u32, addr: Vec<Source>, bytes: u32, missing: ValueId },
    /// Memory at the address gets the source.
    Store { addr: Vec<Source>, bytes: u32, src: Source },
    /// All cells of one variable are copied to another.
    CopySlot { from: u32, to: u32 },
    /// Control depends on the sources.
    Depend { on: Vec<Source> },
}

/// The guard of an instruction: a predicate register and whether it is negated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Guard {
    pub(crate) reg: u32,
    pub(crate) negated: bool,
}

/// What an instruction reads and writes, in terms that the search for spinning needs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flow {
    pub(crate) uses: Vec<Key>,
    pub(crate) defs: Vec<Key>,
    /// Whether the node may not run, so that what it writes may keep its old value.
    pub(crate) guarded: bool,
    /// Whether the node only sets constants.
    pub(crate) constant: bool,
}

/// A register, a memory cell, or a part of shared memory.
///
/// A store gives every key that a load of the same place may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    Reg(u32),
    Cell(u32, i64),
    /// A word of a variable of shared memory.
    SharedCell(u32, i64),
    /// A word of the variable, not known which.
    SharedSomewhere(u32),
    /// Any word of the variable.
    SharedVariable(u32),
    /// A word of shared memory in a variable that is not known.
    SharedUnknown,
    /// Any word of shared memory.
    SharedMemory,
}

/// How a parameter in parameter memory is read: the value of `bytes` bytes at an offset.
pub(crate) trait ParamSpace {
    /// The value that a load of `bytes` bytes at `offset` of parameter `param` gives.
    fn read(&self, values: &mut Values, param: u32, offset: Option<i64>, bytes: u32) -> ValueId;
}

/// The instructions of one kernel, callees included.
#[derive(Debug, Default)]
pub(crate) struct Program {
    pub(crate) graph: Graph,
    pub(crate) steps: Vec<Vec<Step>>,
    pub(crate) guards: Vec<Option<Guard>>,
    pub(crate) entry: u32,
    pub(crate) regs: u32,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct State {
    regs: Vec<ValueId>,
    cells: BTreeMap<(u32, i64), ValueId>,
    /// What registers hold where the guard holds that they were last written under, within a block.
    under: BTreeMap<u32, (Guard, ValueId)>,
}

/// The result: what every register holds before every instruction, on demand.
#[derive(Debug)]
pub(crate) struct Solution {
    /// For each node that was asked for: the value of each asked sum.
    pub(crate) sums: FxHashMap<u32, ValueId>,
    /// For each node: what it reads and writes.
    pub(crate) flows: Vec<Flow>,
    /// Parameters that a sum names ahead of another.
    pub(crate) leads: BTreeSet<(u32, u32)>,
}

struct Engine<'a> {
    program: &'a Program,
    params: &'a dyn ParamSpace,
    /// Place of a register in the state of a block, or `u32::MAX` where it is written once only.
    slot_of: Vec<u32>,
    once: Vec<ValueId>,
    changed: bool,
}

/// Runs the program to a fixed point and evaluates `asked` (a sum at a node) in it.
pub(crate) fn solve(
    program: &Program,
    values: &mut Values,
    params: &dyn ParamSpace,
    initial: &[(u32, ValueId)],
    asked: &[(u32, Vec<Source>)],
) -> Solution {
    let order = program.graph.order(program.entry);
    let mut writes = vec![0u32; program.regs as usize];
    for &node in &order {
        for step in &program.steps[node as usize] {
            if let Some(dst) = destination(step) {
                writes[dst as usize] = writes[dst as usize].saturating_add(1);
            }
        }
    }
    for &(reg, _) in initial {
        writes[reg as usize] = writes[reg as usize].saturating_add(1);
    }
    let mut slot_of = vec![u32::MAX; program.regs as usize];
    let mut many = 0;
    for (reg, &count) in writes.iter().enumerate() {
        if count > 1 {
            slot_of[reg] = many;
            many += 1;
        }
    }
    let mut engine = Engine {
        program,
        params,
        slot_of,
        once: vec![ValueId::NONE; program.regs as usize],
        changed: false,
    };
    let mut start = State { regs: vec![ValueId::NONE; many as usize], ..State::default() };
    for &(reg, value) in initial {
        engine.write(values, &mut start, reg, value, None);
    }

    let blocks = Blocks::new(program, &order);
    let mut entry_states: Vec<Option<State>> = vec![None; blocks.list.len()];
    if let Some(first) = entry_states.first_mut() {
        *first = Some(start);
    }
    loop {
        engine.changed = false;
        for (index, block) in blocks.list.iter().enumerate() {
            let Some(mut state) = entry_states[index].clone() else { continue };
            for &node in block {
                engine.run(values, &mut state, node);
            }
            state.under.clear();
            let last = block[block.len() - 1];
            for &next in program.graph.succ(last) {
                let target = blocks.of[next as usize] as usize;
                match &mut entry_states[target] {
                    Some(old) => engine.changed |= merge(values, old, &state),
                    empty => {
                        *empty = Some(state.clone());
                        engine.changed = true;
                    }
                }
            }
        }
        if !engine.changed {
            break;
        }
    }

    let mut wanted: FxHashMap<u32, Vec<&Vec<Source>>> = FxHashMap::default();
    for (node, parts) in asked {
        wanted.entry(*node).or_default().push(parts);
    }
    let mut sums = FxHashMap::default();
    let mut flows = vec![Flow::default(); program.graph.len()];
    let mut leads = BTreeSet::new();
    for (index, block) in blocks.list.iter().enumerate() {
        let Some(mut state) = entry_states[index].clone() else { continue };
        for &node in block {
            for parts in wanted.get(&node).into_iter().flatten() {
                let value = engine.sum(values, &state, node, parts);
                sums.insert(node, value);
            }
            flows[node as usize] = engine.flow(values, &state, node);
            engine.leading(values, &state, node, &mut leads);
            engine.run(values, &mut state, node);
        }
    }
    Solution { sums, flows, leads }
}

fn destination(step: &Step) -> Option<u32> {
    match step {
        Step::Sum { dst, .. }
        | Step::Pick { dst, .. }
        | Step::Less { dst, .. }
        | Step::Align { dst, .. }
        | Step::Number { dst, .. }
        | Step::Opaque { dst, .. }
        | Step::Load { dst, .. } => Some(*dst),
        Step::Store { .. } | Step::CopySlot { .. } | Step::Depend { .. } => None,
    }
}

fn merge(values: &mut Values, old: &mut State, new: &State) -> bool {
    let mut changed = false;
    for (mine, &theirs) in old.regs.iter_mut().zip(&new.regs) {
        let joined = values.join(*mine, theirs);
        changed |= joined != *mine;
        *mine = joined;
    }
    let keys: BTreeSet<(u32, i64)> = old.cells.keys().chain(new.cells.keys()).copied().collect();
    let cells: Vec<_> =
        keys.into_iter().map(|key| (key, values.join(held(old, key), held(new, key)))).collect();
    for (key, joined) in cells {
        changed |= old.cells.insert(key, joined) != Some(joined);
    }
    changed
}

impl Engine<'_> {
    /// What a source holds where `node` runs.
    fn read(&self, values: &mut Values, state: &State, node: u32, source: Source) -> ValueId {
        match source {
            Source::Value(value) => value,
            Source::Used(_) => ValueId::NUMBER,
            Source::Bits(reg) => {
                let whole = self.register(state, node, reg);
                values.bits(whole)
            }
            Source::Minus(reg) => {
                let whole = self.register(state, node, reg);
                let zero = values.constant(0);
                values.subtract(zero, whole)
            }
            Source::Reg(reg) => self.register(state, node, reg),
        }
    }

    fn register(&self, state: &State, node: u32, reg: u32) -> ValueId {
        match self.slot_of[reg as usize] {
            u32::MAX => self.once[reg as usize],
            slot => {
                let guard = self.program.guards[node as usize];
                match state.under.get(&reg) {
                    Some(&(under, value)) if guard == Some(under) => value,
                    Some(_) | None => state.regs[slot as usize],
                }
            }
        }
    }

    /// The number that is made of the sources: it may hold bits of their pointers.
    fn number(&self, values: &mut Values, state: &State, node: u32, uses: &[Source]) -> ValueId {
        let mut total = ValueId::NUMBER;
        for &source in uses {
            let value = match source {
                Source::Reg(reg) | Source::Used(reg) | Source::Bits(reg) | Source::Minus(reg) => {
                    self.register(state, node, reg)
                }
                Source::Value(value) => value,
            };
            let bits = values.bits(value);
            total = values.add(total, bits);
        }
        total
    }

    fn write(
        &mut self,
        values: &mut Values,
        state: &mut State,
        reg: u32,
        value: ValueId,
        guard: Option<Guard>,
    ) {
        // A guard that is written again is another guard.
        state.under.retain(|_, (under, _)| under.reg != reg);
        match guard {
            Some(guard) => state.under.insert(reg, (guard, value)),
            None => state.under.remove(&reg),
        };
        match self.slot_of[reg as usize] {
            u32::MAX => {
                let joined = values.join(self.once[reg as usize], value);
                self.changed |= joined != self.once[reg as usize];
                self.once[reg as usize] = joined;
            }
            slot => {
                let cell = &mut state.regs[slot as usize];
                *cell = if guard.is_some() { values.join(*cell, value) } else { value };
            }
        }
    }

    fn sum(&self, values: &mut Values, state: &State, node: u32, parts: &[Source]) -> ValueId {
        let mut total = values.constant(0);
        for &part in parts {
            let value = self.read(values, state, node, part);
            total = values.add(total, value);
        }
        total
    }

    fn run(&mut self, values: &mut Values, state: &mut State, node: u32) {
        let program = self.program;
        let guard = program.guards[node as usize];
        for step in &program.steps[node as usize] {
            let (dst, value) = match step {
                Step::Sum { dst, parts } => (*dst, self.sum(values, state, node, parts)),
                Step::Pick { dst, among } => {
                    let mut picked = ValueId::NONE;
                    for &part in among {
                        if matches!(part, Source::Used(_)) {
                            continue;
                        }
                        let value = self.read(values, state, node, part);
                        picked = values.join(picked, value);
                    }
                    (*dst, picked)
                }
                Step::Less { dst, from, by } => {
                    let from = self.read(values, state, node, *from);
                    let by = self.read(values, state, node, *by);
                    (*dst, values.subtract(from, by))
                }
                Step::Align { dst, src } => {
                    let value = self.read(values, state, node, *src);
                    (*dst, values.blur(value))
                }
                Step::Number { dst, uses } => (*dst, self.number(values, state, node, uses)),
                Step::Opaque { dst, .. } => (*dst, ValueId::OPAQUE),
                Step::Load { dst, addr, bytes, missing } => {
                    let address = self.sum(values, state, node, addr);
                    (*dst, self.load(values, state, address, *bytes, *missing))
                }
                Step::Store { addr, bytes, src } => {
                    let address = self.sum(values, state, node, addr);
                    let value = self.read(values, state, node, *src);
                    store(values, state, address, *bytes, value, guard.is_some());
                    continue;
                }
                Step::CopySlot { from, to } => {
                    copy_slot(state, *from, *to);
                    continue;
                }
                Step::Depend { .. } => continue,
            };
            self.write(values, state, dst, value, guard);
        }
    }

    fn load(
        &self,
        values: &mut Values,
        state: &State,
        address: ValueId,
        bytes: u32,
        missing: ValueId,
    ) -> ValueId {
        let terms = values.terms(address).to_vec();
        let mut result = ValueId::NONE;
        for term in terms {
            let place = term.origins.iter().find_map(|origin| match origin {
                Origin::Slot(slot) => Some((Some(*slot), None)),
                Origin::ParamSpace(param) => Some((None, Some(*param))),
                Origin::Param(_)
                | Origin::Global(_)
                | Origin::Shared(_)
                | Origin::Const
                | Origin::MinusParam(_)
                | Origin::MinusGlobal(_)
                | Origin::BitsOfParam(_)
                | Origin::BitsOfGlobal(_)
                | Origin::Word
                | Origin::Opaque
                | Origin::Loose => None,
            });
            let part = match place {
                Some((Some(slot), _)) => fetch(values, state, slot, term.offset, bytes),
                Some((None, Some(param))) => self.params.read(values, param, term.offset, bytes),
                Some((None, None)) | None => missing,
            };
            result = values.join(result, part);
        }
        result
    }

    /// Adds which of two parameters the sums of the node name first.
    fn leading(&self, values: &Values, state: &State, node: u32, leads: &mut BTreeSet<(u32, u32)>) {
        let of = |source: &Source| {
            let Source::Reg(reg) = source else { return None };
            match values.terms(self.register(state, node, *reg)) {
                [Term { origins, .. }] => match origins[..] {
                    [Origin::Param(param)] => Some(param),
                    _ => None,
                },
                _ => None,
            }
        };
        for step in &self.program.steps[node as usize] {
            let Step::Sum { parts, .. } = step else { continue };
            // Bits of two pointers that are put together do not say which is the pointer.
            if parts.contains(&Source::Value(ValueId::NUMBER)) {
                continue;
            }
            for (index, first) in parts.iter().enumerate() {
                for second in &parts[index + 1..] {
                    if let (Some(first), Some(second)) = (of(first), of(second)) {
                        leads.insert((first, second));
                    }
                }
            }
        }
    }

    /// What the node reads and writes, with memory cells resolved.
    fn flow(&self, values: &mut Values, state: &State, node: u32) -> Flow {
        let program = self.program;
        let mut flow = Flow::default();
        if let Some(guard) = program.guards[node as usize] {
            flow.uses.push(Key::Reg(guard.reg));
        }
        let regs = |sources: &[Source]| -> Vec<Key> {
            sources
                .iter()
                .filter_map(|source| match source {
                    Source::Reg(reg)
                    | Source::Used(reg)
                    | Source::Bits(reg)
                    | Source::Minus(reg) => Some(Key::Reg(*reg)),
                    Source::Value(_) => None,
                })
                .collect()
        };
        for step in &program.steps[node as usize] {
            match step {
                Step::Sum { parts, .. } => flow.uses.extend(regs(parts)),
                Step::Pick { among, .. } => flow.uses.extend(regs(among)),
                Step::Less { from, by, .. } => flow.uses.extend(regs(&[*from, *by])),
                Step::Align { src, .. } => flow.uses.extend(regs(&[*src])),
                Step::Depend { on } => flow.uses.extend(regs(on)),
                Step::Number { uses, .. } | Step::Opaque { uses, .. } => {
                    flow.uses.extend(regs(uses));
                }
                Step::Load { addr, bytes, .. } => {
                    flow.uses.extend(regs(addr));
                    let address = self.sum(values, state, node, addr);
                    flow.uses.extend(memory(values, state, address, *bytes, Access::Load));
                }
                Step::Store { addr, bytes, src } => {
                    flow.uses.extend(regs(&[*src]));
                    let address = self.sum(values, state, node, addr);
                    flow.defs.extend(memory(values, state, address, *bytes, Access::Store));
                }
                Step::CopySlot { from, to } => {
                    for &(slot, cell) in state.cells.keys() {
                        if slot == *from {
                            flow.uses.push(Key::Cell(*from, cell));
                            flow.defs.push(Key::Cell(*to, cell));
                        }
                    }
                }
            }
            if let Some(dst) = destination(step) {
                flow.defs.push(Key::Reg(dst));
            }
        }
        flow.guarded = program.guards[node as usize].is_some();
        flow.constant = program.steps[node as usize].iter().all(|step| match step {
            Step::Sum { parts, .. } => parts.iter().all(|p| matches!(p, Source::Value(_))),
            Step::Number { uses, .. } => uses.is_empty(),
            Step::Pick { .. }
            | Step::Less { .. }
            | Step::Align { .. }
            | Step::Opaque { .. }
            | Step::Load { .. }
            | Step::Store { .. }
            | Step::CopySlot { .. }
            | Step::Depend { .. } => false,
        });
        flow
    }
}

//! What registers hold in single threads of one CTA, in the first turn of the loops around.
//!
//! Variables of shared memory, parameters and variables of global memory get made-up addresses, so that
//! arithmetic on addresses and the bits of descriptors come out as numbers.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::dataflow::{Guard, Step};
use crate::kernel::Kernel;
use crate::traffic::{Arg, Compare, Computed, Op, Special};

/// Shared memory lies below this.
pub(super) const SHARED_END: i64 = 1 << 18;
/// Parameters and variables of global memory lie at multiples of this and above.
pub(super) const GLOBAL_START: i64 = 1 << 44;
/// More values than this are not told apart.
const MOST_VALUES: usize = 4;
/// Threads of a CTA of which nothing is said.
const SOME_THREADS: u32 = 128;
/// Sums are followed no deeper than this.
const DEEPEST: u32 = 400;
/// Values that are looked at for one question.
const MOST_STEPS: u32 = 20_000;
/// Stands for a question that was given up.
const GIVEN_UP: (u32, u32) = (u32::MAX, u32::MAX);

/// What a register may hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) all: Vec<i64>,
    /// It holds this in every turn, in every CTA and for all parameters.
    pub(super) sure: bool,
    /// Nodes that give one of its parts another value, in another turn or on another way.
    pub(super) turns: BTreeSet<u32>,
}

impl Held {
    fn known(value: i64) -> Self {
        Held { all: vec![value], sure: true, turns: BTreeSet::new() }
    }

    fn maybe(value: i64) -> Self {
        Held { sure: false, ..Held::known(value) }
    }

    /// The one value, where it is the same everywhere.
    fn certain(&self) -> Option<i64> {
        match self.all[..] {
            [value] if self.sure => Some(value),
            _ => None,
        }
    }
}

/// A look at the registers of the threads.
pub(super) struct Threads<'a> {
    kernel: &'a Kernel,
    /// Nodes that write each register.
    writers: FxHashMap<u32, Vec<u32>>,
    /// Address of each variable of shared memory.
    bases: BTreeMap<u32, i64>,
    known: FxHashMap<(u32, u32, u32), Option<Held>>,
    guards: FxHashMap<(u32, u32), Option<bool>>,
    reaching: FxHashMap<(u32, u32), Vec<u32>>,
    open: FxHashSet<(u32, u32)>,
    /// Values that were asked for while they were being found: what a turn of a loop makes of the one before.
    cuts: BTreeSet<(u32, u32)>,
    depth: u32,
    budget: u32,
}

impl<'a> Threads<'a> {
    pub(super) fn new(kernel: &'a Kernel) -> Self {
        let mut writers: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        for (node, steps) in kernel.program.steps.iter().enumerate() {
            for dst in steps.iter().filter_map(written) {
                let list = writers.entry(dst).or_default();
                if list.last() != Some(&(node as u32)) {
                    list.push(node as u32);
                }
            }
        }
        let mut bases = BTreeMap::new();
        let mut next = 1024i64;
        for (&var, &bytes) in &kernel.traffic.shared {
            bases.insert(var, next);
            next = next.saturating_add((i64::from(bytes) + 1024) / 1024 * 1024);
        }
        Threads {
            kernel,
            writers,
            bases,
            known: FxHashMap::default(),
            guards: FxHashMap::default(),
            reaching: FxHashMap::default(),
            open: FxHashSet::default(),
            cuts: BTreeSet::new(),
            depth: 0,
            budget: 0,
        }
    }

    /// Whether the instruction runs in this thread; none where that depends on more.
    pub(super) fn runs(&mut self, thread: u32, node: u32) -> Option<bool> {
        let Some(guard) = self.kernel.program.guards[node as usize] else { return Some(true) };
        if let Some(&known) = self.guards.get(&(thread, node)) {
            return known;
        }
        self.begin();
        let held = self.register(thread, guard.reg, node);
        let runs = held.and_then(|held| held.certain()).map(|value| (value != 0) != guard.negated);
        self.guards.insert((thread, node), runs);
        runs
    }

    fn begin(&mut self) {
        self.cuts.clear();
        self.budget = MOST_STEPS;
    }

    pub(super) fn guard(&self, node: u32) -> Option<Guard> {
        self.kernel.program.guards[node as usize]
    }

    /// The sum of what makes an address.
    pub(super) fn sum(&mut self, thread: u32, parts: &[Arg], node: u32) -> Option<Held> {
        self.begin();
        let mut total = Held::known(0);
        for &part in parts {
            let part = self.arg(thread, part, node)?;
            total = combine(&[total, part], |v| Some(v[0].wrapping_add(v[1])))?;
        }
        Some(total)
    }

    fn arg(&mut self, thread: u32, arg: Arg, node: u32) -> Option<Held> {
        Some(match arg {
            Arg::Reg(reg) => return self.register(thread, reg, node),
            Arg::Number(number) => Held::known(number),
            Arg::Shared(var, offset) => Held::known(self.bases.get(&var)?.wrapping_add(offset)),
            Arg::Global(var, offset) => {
                Held::known((1i64 << 60).wrapping_add(i64::from(var) << 40).wrapping_add(offset))
            }
            Arg::Param(param, offset, bytes) if bytes >= 8 => {
                let start = (i64::from(param) + 1).wrapping_mul(GLOBAL_START);
                Held::maybe(start.wrapping_add(offset << 30))
            }
            Arg::Param(..) => Held::maybe(0),
            Arg::Slot(slot, offset) => return self.slot(thread, slot, offset),
            Arg::Special(special) => match special {
                Special::Thread => Held::known(i64::from(thread)),
                Special::Lane => Held::known(i64::from(thread % 32)),
                Special::Warp => Held::known(i64::from(thread / 32)),
                Special::Axis => Held::known(0),
                Special::Cta => Held::maybe(0),
                Special::Threads => {
                    Held::maybe(i64::from(self.kernel.traffic.threads.unwrap_or(SOME_THREADS)))
                }
                Special::One => Held::maybe(1),
            },
            Arg::Unknown => return None,
        })
    }

    /// What was stored to a variable of the thread, wherever that was.
    fn slot(&mut self, thread: u32, slot: u32, offset: i64) -> Option<Held> {
        let kernel = self.kernel;
        if !self.open.insert((u32::MAX, slot)) {
            self.cuts.insert((u32::MAX, slot));
            return None;
        }
        let mut found = Held { sure: true, ..Held::default() };
        let stored = kernel.traffic.slots.get(&(slot, offset)).into_iter().flatten();
        let mut parts: Vec<Option<Held>> =
            stored.map(|&(node, arg)| self.arg(thread, arg, node)).collect();
        for &from in kernel.traffic.copied.get(&slot).into_iter().flatten() {
            parts.push(self.slot(thread, from, offset));
        }
        self.open.remove(&(u32::MAX, slot));
        found.sure = parts.len() == 1;
        for part in parts {
            let part = part?;
            found.sure &= part.sure;
            found.all.extend(part.all);
            found.turns.extend(part.turns);
        }
        narrow(found)
    }

    fn register(&mut self, thread: u32, reg: u32, node: u32) -> Option<Held> {
        let writers = self.reaching(reg, node);
        if let [only] = writers[..] {
            return self.written(thread, reg, only).0;
        }
        let mut found = Held::default();
        let before = std::mem::take(&mut self.cuts);
        let mut cuts = before;
        for &writer in &writers {
            let (part, is_own) = self.written(thread, reg, writer);
            // What a turn makes of the one before is no value of the first turn.
            let is_cut = is_own || !self.cuts.is_empty();
            cuts.append(&mut self.cuts);
            if !is_cut {
                match part {
                    Some(part) => found.all.extend(part.all),
                    None => {
                        self.cuts = cuts;
                        return None;
                    }
                }
            }
        }
        self.cuts = cuts;
        found.turns.extend(writers);
        narrow(found)
    }

    /// Writers of the register whose value may be there ahead of the node.
    fn reaching(&mut self, reg: u32, node: u32) -> Vec<u32> {
        let writers = match self.writers.get(&reg) {
            Some(writers) if writers.len() == 1 => return writers.clone(),
            Some(writers) => writers,
            None => return Vec::new(),
        };
        if let Some(known) = self.reaching.get(&(reg, node)) {
            return known.clone();
        }
        let graph = &self.kernel.program.graph;
        let mut found = BTreeSet::new();
        let mut seen = FxHashSet::default();
        let mut stack: Vec<u32> = graph.pred(node).to_vec();
        while let Some(at) = stack.pop() {
            if !seen.insert(at) {
                continue;
            }
            let is_writer = writers.contains(&at);
            if is_writer {
                found.insert(at);
            }
            if !is_writer || self.kernel.program.guards[at as usize].is_some() {
                stack.extend(graph.pred(at));
            }
        }
        let found: Vec<u32> = found.into_iter().collect();
        self.reaching.insert((reg, node), found.clone());
        found
    }

    /// What the node writes to the register, and whether that goes back to itself.
    fn written(&mut self, thread: u32, reg: u32, node: u32) -> (Option<Held>, bool) {
        if let Some(known) = self.known.get(&(thread, reg, node)) {
            return (known.clone(), false);
        }
        if self.depth >= DEEPEST || self.budget == 0 {
            self.cuts.insert(GIVEN_UP);
            return (None, false);
        }
        if !self.open.insert((reg, node)) {
            self.cuts.insert((reg, node));
            return (None, false);
        }
        self.depth += 1;
        self.budget -= 1;
        let before = std::mem::take(&mut self.cuts);
        let kernel = self.kernel;
        let mut list = kernel.traffic.computed.get(&node).into_iter().flatten();
        let held = list
            .rfind(|computed| computed.dst == reg)
            .and_then(|computed| self.compute(thread, computed, node));
        self.depth -= 1;
        self.open.remove(&(reg, node));
        let is_own = self.cuts.remove(&(reg, node));
        if self.cuts.is_empty() && !is_own {
            self.known.insert((thread, reg, node), held.clone());
        }
        self.cuts.extend(before);
        (held, is_own)
    }

    fn compute(&mut self, thread: u32, computed: &Computed, node: u32) -> Option<Held> {
        let Computed { op, args, bits, out, signed, .. } = computed;
        let (bits, signed) = (*bits, *signed);
        match op {
            Op::Elect => return Some(Held::known(i64::from(thread.is_multiple_of(32)))),
            Op::FirstLane => {
                let held = self.arg(thread - thread % 32, *args.first()?, node)?;
                return Some(held);
            }
            Op::Pick => {
                let [one, other, by] = args[..] else { return None };
                let by = self.arg(thread, by, node).and_then(|held| held.certain());
                return match by {
                    Some(by) => self.arg(thread, if by != 0 { one } else { other }, node),
                    None => {
                        let one = self.arg(thread, one, node)?;
                        let other = self.arg(thread, other, node)?;
                        let mut found = Held { sure: false, ..one };
                        found.all.extend(other.all);
                        found.turns.extend(other.turns);
                        found.turns.insert(node);
                        narrow(found)
                    }
                };
            }
            _ => {}
        }
        let mut parts = Vec::new();
        for (index, &arg) in args.iter().enumerate() {
            let mut part = self.arg(thread, arg, node)?;
            let width = if *op == Op::ProductSum && index == 2 { *out } else { bits };
            for value in &mut part.all {
                *value = fit(*value, width, signed);
            }
            parts.push(part);
        }
        let mut held = combine(&parts, |values| apply(*op, values, bits))?;
        for value in &mut held.all {
            *value = fit(*value, *out, false);
        }
        Some(held)
    }
}

fn written(step: &Step) -> Option<u32> {
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

/// The value in so many bits.
fn fit(value: i64, bits: u32, signed: bool) -> i64 {
    if bits == 0 || bits >= 64 {
        return value;
    }
    let up = 64 - bits;
    if signed { value << up >> up } else { ((value << up) as u64 >> up) as i64 }
}

fn narrow(mut held: Held) -> Option<Held> {
    held.all.sort_unstable();
    held.all.dedup();
    (!held.all.is_empty() && held.all.len() <= MOST_VALUES).then_some(held)
}

/// All that comes of the values of the parts.
fn combine(parts: &[Held], apply: impl Fn(&[i64]) -> Option<i64>) -> Option<Held> {
    let mut rows: Vec<Vec<i64>> = vec![Vec::new()];
    for part in parts {
        let longer = rows.iter().flat_map(|row| {
            part.all.iter().map(move |&value| row.iter().copied().chain([value]).collect())
        });
        rows = longer.collect();
        if rows.len() > MOST_VALUES * MOST_VALUES {
            return None;
        }
    }
    let mut held = Held {
        all: rows.iter().map(|row| apply(row)).collect::<Option<_>>()?,
        sure: parts.iter().all(|part| part.sure),
        turns: BTreeSet::new(),
    };
    for part in parts {
        held.turns.extend(&part.turns);
    }
    narrow(held)
}

fn apply(op: Op, values: &[i64], bits: u32) -> Option<i64> {
    let shift = |by: i64| u32::try_from(by).ok().filter(|&by| by < bits.min(64));
    Some(match (op, values) {
        (Op::Sum, [a]) => *a,
        (Op::Sum, [a, b]) => a.wrapping_add(*b),
        (Op::Less, [a, b]) => a.wrapping_sub(*b),
        (Op::Product, [a, b]) => a.wrapping_mul(*b),
        (Op::ProductHigh, [a, b]) => ((i128::from(*a) * i128::from(*b)) >> bits.min(64)) as i64,
        (Op::ProductSum, [a, b, c]) => a.wrapping_mul(*b).wrapping_add(*c),
        (Op::ShiftLeft, [a, by]) => shift(*by).map_or(0, |by| a << by),
        (Op::ShiftRight, [a, by]) => match shift(*by) {
            // Of 64 bits without sign only small numbers come out right, as all addresses are.
            Some(by) => a >> by,
            None => 0,
        },
        (Op::And, [a, b]) => a & b,
        (Op::Or, [a, b]) => a | b,
        (Op::Xor, [a, b]) => a ^ b,
        (Op::Not, [a]) => !a,
        (Op::Min, [a, b]) => *a.min(b),
        (Op::Max, [a, b]) => *a.max(b),
        (Op::Divide, [a, b]) => a.checked_div(*b)?,
        (Op::Remainder, [a, b]) => a.checked_rem(*b)?,
        (Op::Extract, [a, from, count]) => {
            let (from, count) = (shift(*from)?, u32::try_from(*count).ok()?);
            fit(a >> from, count.clamp(1, 63), false)
        }
        (Op::Insert, [a, b, from, count]) => {
            let (from, count) = (shift(*from)?, u32::try_from(*count).ok()?.min(63));
            let mask = (1i64 << count).wrapping_sub(1) << from;
            b & !mask | a << from & mask
        }
        (Op::Table(table), [a, b, c]) => {
            let mut result = 0i64;
            for row in 0..8 {
                if table >> row & 1 == 1 {
                    let pick = |value: i64, bit: u8| if row & bit != 0 { value } else { !value };
                    result |= pick(*a, 4) & pick(*b, 2) & pick(*c, 1);
                }
            }
            result
        }
        (Op::Compare(compare), [a, b]) => i64::from(match compare {
            Compare::Equal => a == b,
            Compare::NotEqual => a != b,
            Compare::Less => a < b,
            Compare::LessEqual => a <= b,
            Compare::Greater => a > b,
            Compare::GreaterEqual => a >= b,
        }),
        (Op::Pack, [low, high]) if bits == 64 => fit(*low, 32, false) | high << 32,
        _ => return None,
    })
}

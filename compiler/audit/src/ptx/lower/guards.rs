//! Predicates that are always alike, or always opposite.
//!
//! Assumes a lowered kernel. Where two predicates are each set once, outside of loops, by the same
//! comparison or by its opposite, guards name the first of them, so that the rules see that two
//! instructions never run in one thread.

use rustc_hash::FxHashMap;

use super::super::{Instruction, Operand};
use super::Lowering;
use crate::dataflow::Guard;
use crate::graph::{NodeSet, loops};

/// One comparison: its kind, its type, what it compares.
type Test = (&'static str, String, Vec<Value>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Value {
    Reg(u32),
    Number(i64),
}

impl Lowering<'_> {
    /// Lets guards by the same or the opposite comparison name one predicate.
    pub(super) fn unify_guards(&mut self, entry: u32) {
        let mut around = NodeSet::new(self.graph.len());
        for found in loops(&self.graph, entry) {
            around.join(&found.set);
        }
        let mut written: FxHashMap<u32, u32> = FxHashMap::default();
        let mut repeated = NodeSet::new(self.layout.regs as usize);
        let mut sets: Vec<(u32, Guard)> = Vec::new();
        let mut tests: FxHashMap<Test, Guard> = FxHashMap::default();
        let layout = self.layout;
        let instructions = || {
            layout.contexts.iter().enumerate().flat_map(|(index, context)| {
                let list = context.function.body.iter().flat_map(|body| &body.instructions);
                list.enumerate().map(move |(offset, instruction)| {
                    let node = context.first_node + offset as u32;
                    (super::At { context: index as u32, node }, instruction)
                })
            })
        };
        for (at, instruction) in instructions() {
            for reg in self.results(at, instruction) {
                let count = written.entry(reg).or_insert(0);
                *count += 1;
                if *count > 1 || around.contains(at.node) || instruction.guard.is_some() {
                    repeated.insert(reg);
                }
            }
        }
        let is_once = |reg: u32| written.contains_key(&reg) && !repeated.contains(reg);
        for (at, instruction) in instructions() {
            let Some(dst) = instruction.operands.first().and_then(|o| self.register(at, o)) else {
                continue;
            };
            if !is_once(dst) {
                continue;
            }
            let same = |sets: &[(u32, Guard)], reg: u32| {
                let found = sets.iter().find(|(of, _)| *of == reg);
                found.map_or(Guard { reg, negated: false }, |(_, guard)| *guard)
            };
            let value = |operand: &Operand| match operand {
                Operand::Integer(number) => Some(Value::Number(*number)),
                other => self.register(at, other).filter(|&reg| is_once(reg)).map(Value::Reg),
            };
            let is_not = instruction.opcode == "not"
                && instruction.modifiers.first().is_some_and(|kind| kind == "pred");
            if is_not {
                if let Some(Value::Reg(reg)) = instruction.operands.get(1).and_then(value) {
                    let of = same(&sets, reg);
                    sets.push((dst, Guard { reg: of.reg, negated: !of.negated }));
                }
                continue;
            }
            let Some((kind, negated)) = comparison(instruction) else { continue };
            let values: Option<Vec<Value>> = instruction.operands[1..].iter().map(value).collect();
            let Some(values) = values.filter(|values| values.len() == 2) else { continue };
            let test = (kind, instruction.modifiers[1].clone(), values);
            let first = *tests.entry(test).or_insert(Guard { reg: dst, negated });
            if first.reg != dst {
                sets.push((dst, Guard { reg: first.reg, negated: first.negated != negated }));
            }
        }
        let sets: FxHashMap<u32, Guard> = sets.into_iter().collect();
        for guard in self.guards.iter_mut().flatten() {
            if let Some(of) = sets.get(&guard.reg) {
                *guard = Guard { reg: of.reg, negated: guard.negated != of.negated };
            }
        }
    }
}

/// The kind of an integer comparison, and whether it is the opposite of that.
fn comparison(instruction: &Instruction) -> Option<(&'static str, bool)> {
    let [kind, of] = &instruction.modifiers[..] else { return None };
    let is_integer =
        of.starts_with(['u', 's', 'b']) && of.as_bytes().get(1).is_some_and(u8::is_ascii_digit);
    if instruction.opcode != "setp" || !is_integer {
        return None;
    }
    Some(match kind.as_str() {
        "eq" => ("eq", false),
        "ne" => ("eq", true),
        "lt" | "lo" => ("lt", false),
        "ge" | "hs" => ("lt", true),
        "gt" | "hi" => ("gt", false),
        "le" | "ls" => ("gt", true),
        _ => return None,
    })
}

//! Instructions that touch memory: what they move, and what they mean to the rules.

use super::super::effect::{is_atomic_modifier, is_load_modifier};
use super::super::{Instruction, Operand, Space};
use super::{At, Lowering, element_bytes, elements, has, has_shared, space};
use crate::dataflow::{Source, Step};
use crate::kernel::{Named, Order, Role};
use crate::values::ValueId;

impl Lowering<'_> {
    pub(super) fn load(&mut self, at: At, instruction: &Instruction) {
        if let Some(other) = instruction.modifiers.iter().find(|name| !is_load_modifier(name)) {
            self.gap(at, format!("`.{other}` on a load is not known"));
        }
        let space = space(instruction);
        let noncoherent = has(instruction, "nc") || has(instruction, "proxy::readonly");
        self.load_as(at, instruction, space, noncoherent);
    }

    pub(super) fn load_as(
        &mut self,
        at: At,
        instruction: &Instruction,
        space: Option<Space>,
        noncoherent: bool,
    ) {
        let bytes = element_bytes(instruction);
        let addr = match instruction.operands.get(1) {
            Some(operand) => self.address(at, operand, space),
            None => return self.gap(at, "a load without an address"),
        };
        let named = match space {
            Some(Space::Global) => Some(Named::Global),
            None => Some(Named::Generic),
            Some(Space::Shared | Space::Const | Space::Local | Space::Param | Space::Texture) => {
                None
            }
        };
        if let Some(named) = named {
            let order = if has(instruction, "acquire") {
                Order::Acquire
            } else if ["relaxed", "volatile", "mmio", "cv"].iter().any(|m| has(instruction, m)) {
                Order::Strong
            } else {
                Order::Weak
            };
            self.roles[at.node as usize] =
                Role::Read { noncoherent, order, named, addr: addr.clone() };
        } else if space == Some(Space::Shared) {
            self.roles[at.node as usize] = Role::SharedRead;
        }
        let missing = if bytes >= 8 { ValueId::OPAQUE } else { ValueId::NUMBER };
        let Some(target) = instruction.operands.first() else { return };
        for (index, operand) in elements(target).iter().enumerate() {
            let Some(dst) = self.register(at, operand) else { continue };
            let mut addr = addr.clone();
            let by = self.values.constant(index as i64 * i64::from(bytes));
            addr.push(Source::Value(by));
            self.steps[at.node as usize].push(Step::Load { dst, addr, bytes, missing });
        }
    }

    pub(super) fn store(&mut self, at: At, instruction: &Instruction) {
        let space = space(instruction);
        let bytes = element_bytes(instruction);
        let (Some(target), Some(data)) =
            (instruction.operands.first(), instruction.operands.get(1))
        else {
            return self.gap(at, "a store without an address");
        };
        let addr = self.address(at, target, space);
        if matches!(space, Some(Space::Global) | None) {
            self.roles[at.node as usize] = Role::Touch { addr: addr.clone() };
        }
        for (index, operand) in elements(data).iter().enumerate() {
            let mut addr = addr.clone();
            let by = self.values.constant(index as i64 * i64::from(bytes));
            addr.push(Source::Value(by));
            let src = self.source(at, operand);
            self.steps[at.node as usize].push(Step::Store { addr, bytes, src });
        }
    }

    pub(super) fn atomic(&mut self, at: At, instruction: &Instruction) {
        if let Some(other) = instruction.modifiers.iter().find(|name| !is_atomic_modifier(name)) {
            self.gap(at, format!("`.{other}` on an atomic is not known"));
        }
        let wide = element_bytes(instruction) >= 8;
        let uses = self.uses(at, &instruction.operands[1.min(instruction.operands.len())..]);
        if let Some(target) = instruction.operands.first() {
            for operand in elements(target) {
                let Some(dst) = self.register(at, operand) else { continue };
                let uses = uses.clone();
                self.steps[at.node as usize].push(if wide {
                    Step::Opaque { dst, uses }
                } else {
                    Step::Number { dst, uses }
                });
            }
        }
        if has_shared(instruction) {
            return;
        }
        let Some(target) = instruction.operands.get(1) else {
            return self.gap(at, "an atomic without an address");
        };
        let named = if has(instruction, "global") { Named::Global } else { Named::Generic };
        let addr = self.address(at, target, None);
        // An exchange or a compare-and-swap tests a lock, and so does one that changes nothing; others,
        // such as a counter that hands out work, change what they read with each turn.
        let by = instruction.operands.get(2).and_then(|value| self.constant(at, value));
        let idle = by.is_some_and(|by| changes_nothing(instruction, by));
        self.roles[at.node as usize] = Role::Atomic {
            acquire: has(instruction, "acquire") || has(instruction, "acq_rel"),
            polls: has(instruction, "cas") || has(instruction, "exch") || idle,
            named,
            addr,
        };
    }

    pub(super) fn texture(&mut self, at: At, instruction: &Instruction) {
        self.numbers(at, instruction);
        let Some(Operand::Address(parts, _)) = instruction.operands.get(1) else {
            return self.gap(at, "a texture read without a handle");
        };
        let handle = parts.iter().map(|part| self.source(at, part)).collect();
        self.roles[at.node as usize] = Role::Texture { handle };
    }

    pub(super) fn async_copy(&mut self, at: At, instruction: &Instruction) {
        let waits = ["wait_group", "wait_all"].iter().any(|name| has(instruction, name));
        if waits {
            self.roles[at.node as usize] = Role::Fence;
            return;
        }
        if has(instruction, "prefetch") {
            return;
        }
        let reads_global = instruction.modifiers.iter().skip_while(|m| !m.starts_with("shared"));
        let reads_global = reads_global.skip(1).any(|m| m == "global");
        if reads_global && let Some(source) = instruction.operands.get(1) {
            let addr = self.address(at, source, None);
            self.roles[at.node as usize] =
                Role::Read { noncoherent: false, order: Order::Weak, named: Named::Global, addr };
        } else if has(instruction, "global") {
            self.touch(at, instruction, 0);
        }
    }

    pub(super) fn multimem(&mut self, at: At, instruction: &Instruction) {
        if !has(instruction, "ld_reduce") {
            self.touch(at, instruction, 0);
            return;
        }
        self.numbers(at, instruction);
        let Some(target) = instruction.operands.get(1) else {
            return self.gap(at, "a load without an address");
        };
        let addr = self.address(at, target, None);
        let order = if has(instruction, "acquire") {
            Order::Acquire
        } else if has(instruction, "relaxed") {
            Order::Strong
        } else {
            Order::Weak
        };
        self.roles[at.node as usize] =
            Role::Read { noncoherent: false, order, named: Named::Global, addr };
    }

    pub(super) fn fragment(&mut self, at: At, instruction: &Instruction) {
        let is_load = has(instruction, "load");
        if is_load {
            self.numbers(at, instruction);
        }
        if has_shared(instruction) {
            return;
        }
        let Some(target) = instruction.operands.get(usize::from(is_load)) else { return };
        let named = if has(instruction, "global") { Named::Global } else { Named::Generic };
        let addr = self.address(at, target, None);
        self.roles[at.node as usize] = if is_load {
            Role::Read { noncoherent: false, order: Order::Weak, named, addr }
        } else {
            Role::Touch { addr }
        };
    }

    pub(super) fn on_chip(&mut self, at: At, instruction: &Instruction) {
        let waits = instruction.modifiers.iter().any(|m| {
            matches!(m.as_str(), "wait_group" | "wait::ld" | "wait::st") || m.starts_with("fence")
        });
        if waits {
            self.roles[at.node as usize] = Role::Fence;
        }
        if matches!(instruction.operands.first(), Some(Operand::Reg(_) | Operand::Vector(_))) {
            self.numbers(at, instruction);
        }
    }

    pub(super) fn touch(&mut self, at: At, instruction: &Instruction, operand: usize) {
        if has_shared(instruction) || has(instruction, "local") {
            return;
        }
        let Some(target) = instruction.operands.get(operand) else { return };
        let addr = self.address(at, target, None);
        self.roles[at.node as usize] = Role::Touch { addr };
    }
}

/// Whether an atomic of that operand leaves memory as it was.
fn changes_nothing(instruction: &Instruction, by: i64) -> bool {
    let is_signed = has(instruction, "s32") || has(instruction, "s64");
    let bits = element_bytes(instruction) * 8;
    let up = 64u32.saturating_sub(bits);
    // The operand as the memory holds it, and the least and greatest of its kind.
    let by = (by as u64) << up;
    let ones = u64::MAX << up;
    let top = 1u64 << 63;
    let of = |op: &str| has(instruction, op);
    match by {
        0 if of("or") || of("xor") || of("add") => true,
        0 if of("max") => !is_signed,
        _ if of("and") => by == ones,
        _ if of("min") => by == if is_signed { ones & !top } else { ones },
        _ if of("max") => is_signed && by == top,
        _ => false,
    }
}

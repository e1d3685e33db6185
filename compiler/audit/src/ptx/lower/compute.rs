//! How values move through arithmetic.
//!
//! A pointer stays one through moves, conversions of address space, additions and picks. Products,
//! shifts and comparisons give numbers, which may hold bits of it.

use super::super::{Instruction, Operand};
use super::{At, Lowering, elements, has};
use crate::dataflow::{Source, Step};
use crate::kernel::Role;
use crate::ptx::parse::type_bits;
use crate::values::{ANY_SHARED, Origin, ValueId};

impl Lowering<'_> {
    pub(super) fn compute(&mut self, at: At, instruction: &Instruction) {
        let Some(target) = instruction.operands.first() else { return };
        if let Operand::Vector(parts) = target
            && instruction.opcode == "mov"
        {
            // A value is taken apart: each part may be the part that holds the pointer.
            let Some(whole) = instruction.operands.get(1) else { return };
            let src = self.source(at, whole);
            for part in parts {
                if let Some(dst) = self.register(at, part) {
                    self.steps[at.node as usize].push(Step::Align { dst, src });
                }
            }
            return;
        }
        let dst = match target {
            Operand::Pair(value, _) => self.register(at, value),
            other => self.register(at, other),
        };
        let step = dst.and_then(|dst| self.moving(at, instruction, dst));
        let Some(step) = step else {
            self.numbers(at, instruction);
            return;
        };
        self.steps[at.node as usize].push(step);
        if let Operand::Pair(_, predicate) = target {
            let uses = self.uses(at, &instruction.operands[1..]);
            for dst in self.registers(at, predicate) {
                self.steps[at.node as usize].push(Step::Number { dst, uses: uses.clone() });
            }
        }
    }

    /// The step of an instruction that may move a pointer; `None` where it gives numbers.
    fn moving(&mut self, at: At, instruction: &Instruction, dst: u32) -> Option<Step> {
        let operands = &instruction.operands;
        let floating = instruction.modifiers.iter().any(|name| {
            matches!(
                name.as_str(),
                "f16" | "f16x2" | "bf16" | "bf16x2" | "f32" | "f32x2" | "f64" | "tf32"
            )
        });
        if floating && !matches!(instruction.opcode.as_str(), "mov" | "selp") {
            return None;
        }
        let step = match instruction.opcode.as_str() {
            "mov" => {
                let parts = elements(operands.get(1)?);
                let mut parts: Vec<Source> =
                    parts.iter().map(|part| self.source(at, part)).collect();
                if parts.len() > 1 {
                    parts.push(Source::Value(ValueId::NUMBER));
                }
                Step::Sum { dst, parts }
            }
            "cvta" => {
                let src = self.source(at, operands.get(1)?);
                let mut parts = vec![src];
                let to = has(instruction, "to");
                if has(instruction, "global") {
                    self.roles[at.node as usize] = Role::Touch { addr: vec![src] };
                } else if !to {
                    let space = instruction.modifiers.iter().find_map(|name| match name.as_str() {
                        "shared" | "shared::cta" | "shared::cluster" => {
                            Some(Origin::Shared(ANY_SHARED))
                        }
                        "const" => Some(Origin::Const),
                        _ => None,
                    });
                    if let Some(origin) = space {
                        parts.push(Source::Value(self.values.origin(origin, Some(0))));
                    }
                }
                Step::Sum { dst, parts }
            }
            "mapa" => Step::Sum {
                dst,
                parts: vec![Source::Value(self.values.origin(Origin::Shared(ANY_SHARED), None))],
            },
            "add" | "addc" => {
                let parts = self.sources(at, operands.get(1..3)?);
                Step::Sum { dst, parts }
            }
            "sub" | "subc" => Step::Less {
                dst,
                from: self.source(at, operands.get(1)?),
                by: self.source(at, operands.get(2)?),
            },
            "mul" => self.product(at, dst, operands.get(1..3)?, None)?,
            "mad" | "madc" => {
                let addend = self.source(at, operands.get(3)?);
                self.product(at, dst, operands.get(1..3)?, Some(addend))?
            }
            "selp" | "slct" | "min" | "max" => {
                let mut among = self.sources(at, operands.get(1..3)?);
                among.extend(self.uses(at, operands.get(3..).unwrap_or_default()));
                Step::Pick { dst, among }
            }
            "and" => match operands.get(1..3)? {
                [value, Operand::Integer(mask)] | [Operand::Integer(mask), value]
                    if *mask < 0 || *mask > i64::from(u32::MAX) =>
                {
                    let src = self.source(at, value);
                    Step::Align { dst, src }
                }
                [_, Operand::Integer(_)] | [Operand::Integer(_), _] => return None,
                both => self.mixed(at, dst, both),
            },
            "or" | "xor" => self.mixed(at, dst, operands.get(1..3)?),
            "lop3" => self.mixed(at, dst, operands.get(1..4)?),
            "prmt" => self.mixed(at, dst, operands.get(1..3)?),
            // The complement is what is left of all ones.
            name @ ("not" | "neg") => Step::Less {
                dst,
                from: Source::Value(self.values.constant(if name == "not" { -1 } else { 0 })),
                by: self.source(at, operands.get(1)?),
            },
            "cnot" | "abs" => return None,
            "cvt" => {
                let mut types = instruction
                    .modifiers
                    .iter()
                    .rev()
                    .filter_map(|name| type_bits(&format!(".{name}")));
                let (from, to) = (types.next()?, types.next()?);
                if from != to {
                    return None;
                }
                Step::Sum { dst, parts: vec![self.source(at, operands.get(1)?)] }
            }
            "shfl" => {
                let mut among = vec![self.source(at, operands.get(1)?)];
                among.extend(self.uses(at, operands.get(2..).unwrap_or_default()));
                Step::Pick { dst, among }
            }
            "alloca" => Step::Opaque { dst, uses: self.uses(at, operands.get(1..)?) },
            _ => return None,
        };
        Some(step)
    }

    /// A product, with what is added to it. Only a factor of one lets the other pass.
    fn product(
        &mut self,
        at: At,
        dst: u32,
        factors: &[Operand],
        addend: Option<Source>,
    ) -> Option<Step> {
        let whole = match factors {
            [Operand::Integer(1), other] | [other, Operand::Integer(1)] => Some(other),
            _ => None,
        };
        let mut parts: Vec<Source> = addend.into_iter().collect();
        match whole {
            Some(other) => parts.push(self.source(at, other)),
            None => {
                if parts.is_empty() {
                    return None;
                }
                parts.push(Source::Value(ValueId::NUMBER));
                let factors = factors.iter().flat_map(|factor| self.registers(at, factor));
                parts.extend(factors.map(Source::Bits));
            }
        }
        Some(Step::Sum { dst, parts })
    }

    /// Bits of several values put together: any of them may carry the pointer.
    fn mixed(&mut self, at: At, dst: u32, operands: &[Operand]) -> Step {
        let mut parts = self.sources(at, operands);
        parts.push(Source::Value(ValueId::NUMBER));
        Step::Sum { dst, parts }
    }

    fn sources(&mut self, at: At, operands: &[Operand]) -> Vec<Source> {
        operands.iter().map(|operand| self.source(at, operand)).collect()
    }
}

//! How values move through machine instructions.
//!
//! A pointer is a pair of registers; both words carry where it comes from, and the low word decides.

use super::super::opcode::{Class, classify, has};
use super::super::{BARRIER_RESULT, FIRST_PREDICATE, FIRST_UNIFORM, Instruction, Operand, Reg};
use super::{Lowering, STACK};
use crate::dataflow::{Source, Step};
use crate::values::{Origin, ValueId};

impl Lowering<'_> {
    pub(super) fn compute(&mut self, node: u32, instruction: &Instruction) {
        let Targets { regs, predicates, first_source } = targets(instruction);
        let uses = self.uses(instruction, first_source);
        for predicate in predicates {
            self.steps[node as usize].push(Step::Number { dst: predicate, uses: uses.clone() });
        }
        let sources = &instruction.operands[first_source..];
        for (word, &dst) in regs.iter().enumerate() {
            let step = self.moving(instruction, dst, sources, word as u32);
            let step = step.unwrap_or_else(|| Step::Number { dst, uses: uses.clone() });
            self.steps[node as usize].push(step);
        }
    }

    /// The step of an instruction that may move a pointer; `None` where it gives numbers.
    fn moving(
        &mut self,
        instruction: &Instruction,
        dst: u32,
        sources: &[Operand],
        word: u32,
    ) -> Option<Step> {
        let base = instruction.base.strip_prefix('U').unwrap_or(&instruction.base);
        let step = match base {
            "S2R" | "S2UR" if sources.first() == Some(&Operand::CtaInCluster) => {
                Step::Sum { dst, parts: vec![self.source(&Operand::CtaInCluster)] }
            }
            "MOV" | "R2UR" => Step::Sum { dst, parts: vec![self.word(sources.first()?, word)] },
            "SHFL" => Step::Pick { dst, among: vec![self.word(sources.first()?, word)] },
            "IADD3" | "IADD" | "IADD64" | "VIADD" | "IADD32I" => {
                let operands = sources.iter().filter(|o| !matches!(o, Operand::Predicate(_)));
                let mut parts: Vec<Source> = operands.map(|o| self.word(o, word)).collect();
                parts.extend(self.predicates(sources));
                Step::Sum { dst, parts }
            }
            "IMAD" => self.multiply_add(instruction, dst, sources, word)?,
            "LEA" => self.scaled_add(instruction, dst, sources)?,
            "SEL" | "FSEL" | "IMNMX" | "VIMNMX" | "IMNMX64" => {
                let mut among: Vec<Source> =
                    sources.get(..2)?.iter().map(|o| self.word(o, word)).collect();
                among.extend(self.predicates(sources));
                Step::Pick { dst, among }
            }
            "LOP3" | "LOP" | "PRMT" => {
                let small = |operand: &&Operand| matches!(operand, Operand::Integer(mask) if (0..0x1_0000).contains(mask));
                // An `and` with a small mask leaves a number.
                let is_and = sources.contains(&Operand::Integer(0xc0));
                if is_and && sources.get(..2)?.iter().any(|o| small(&o)) {
                    return None;
                }
                let count = if base == "PRMT" { 3 } else { 2 };
                let mut parts: Vec<Source> = sources
                    .iter()
                    .take(count)
                    .filter(|operand| matches!(operand, Operand::Reg { .. }))
                    .map(|operand| self.word(operand, word))
                    .collect();
                parts.push(Source::Value(ValueId::NUMBER));
                parts.extend(self.uses(instruction, 1));
                Step::Sum { dst, parts }
            }
            _ => return None,
        };
        Some(step)
    }

    /// Whether the operand is the word of constant bank 0 that holds the stack pointer.
    fn is_stack(&self, operand: &Operand) -> bool {
        let base = self.info.params_at.map(i64::from);
        matches!(operand, Operand::Constant { bank: 0, index: None, offset }
            if base.is_some_and(|base| *offset < base))
    }

    /// `a * b + c`, also where it only moves or adds.
    fn multiply_add(
        &mut self,
        instruction: &Instruction,
        dst: u32,
        sources: &[Operand],
        word: u32,
    ) -> Option<Step> {
        let operands: Vec<&Operand> =
            sources.iter().filter(|o| !matches!(o, Operand::Predicate(_))).collect();
        let [left, right, addend] = operands.get(..3)? else { return None };
        let is_zero = |operand: &Operand| {
            matches!(operand, Operand::Reg { reg: Reg::Zero, .. } | Operand::Integer(0))
        };
        let is_one = |operand: &Operand| matches!(operand, Operand::Integer(1));
        let mut parts = vec![self.word(addend, word)];
        if is_zero(left) || is_zero(right) {
            // Nothing is added.
        } else if has(instruction, "HI") {
            parts.push(Source::Value(ValueId::NUMBER));
        } else if is_one(left) {
            parts.push(self.word(right, word));
        } else if is_one(right) {
            parts.push(self.word(left, word));
        } else {
            parts.push(Source::Value(ValueId::NUMBER));
            let factors = [left, right].into_iter().filter_map(|operand| operand.register());
            parts.extend(factors.map(Source::Bits));
        }
        parts.extend(self.predicates(sources));
        Some(Step::Sum { dst, parts })
    }

    /// `(a << n) + b`, or the high word of it.
    fn scaled_add(
        &mut self,
        instruction: &Instruction,
        dst: u32,
        sources: &[Operand],
    ) -> Option<Step> {
        let operands: Vec<&Operand> =
            sources.iter().filter(|o| !matches!(o, Operand::Predicate(_))).collect();
        let mut parts = vec![self.source(operands.get(1)?)];
        let shift = operands.iter().rev().find_map(|operand| operand.integer());
        let scaled = operands.first()?;
        if shift == Some(WINDOW_SHIFT) {
            // The number of the CTA, shifted so, is where its shared memory starts.
            parts.push(self.source(scaled));
            return Some(Step::Sum { dst, parts });
        }
        parts.push(Source::Value(ValueId::NUMBER));
        if shift == Some(0) && !has(instruction, "HI") {
            parts.push(self.source(scaled));
        } else {
            parts.extend(scaled.register().map(Source::Used));
        }
        parts.extend(self.predicates(sources));
        Some(Step::Sum { dst, parts })
    }

    /// The operand of a word of the result: pairs move as pairs.
    fn word(&mut self, operand: &Operand, word: u32) -> Source {
        match operand {
            Operand::Reg { reg: Reg::Numbered(number), negated } => {
                let number = pair_word(*number, word);
                if *negated { Source::Minus(number) } else { Source::Reg(number) }
            }
            other => self.source(other),
        }
    }

    fn predicates(&self, sources: &[Operand]) -> Vec<Source> {
        sources.iter().filter_map(Operand::predicate).map(Source::Used).collect()
    }

    fn uses(&mut self, instruction: &Instruction, from: usize) -> Vec<Source> {
        let mut uses = Vec::new();
        for operand in instruction.operands.iter().skip(from) {
            uses.extend(operand.register().or(operand.predicate()).map(Source::Used));
            let parts = operand.address().unwrap_or_default();
            uses.extend(parts.iter().filter_map(Operand::register).map(Source::Used));
        }
        uses
    }

    /// Constant banks into registers.
    pub(super) fn constant_load(&mut self, node: u32, instruction: &Instruction) {
        let Targets { regs, .. } = targets(instruction);
        let Some(Operand::Constant { bank, index, offset }) = instruction
            .operands
            .iter()
            .find(|operand| matches!(operand, Operand::Constant { .. }))
            .cloned()
        else {
            return self.numbers(node, instruction);
        };
        for (word, &dst) in regs.iter().enumerate() {
            let value = if dst == 1 && self.is_stack(&Operand::Constant { bank, index, offset }) {
                self.values.origin(Origin::Slot(STACK), Some(0))
            } else {
                self.bank(bank, index, offset + 4 * word as i64)
            };
            let mut parts = vec![Source::Value(value)];
            if let Some(Reg::Numbered(number)) = index {
                parts.push(Source::Used(number));
            }
            self.steps[node as usize].push(Step::Sum { dst, parts });
        }
    }

    /// A load through an address.
    pub(super) fn load(&mut self, node: u32, instruction: &Instruction, addr: &[Source]) {
        let Targets { regs, predicates, first_source } = targets(instruction);
        let wide = regs.len() > 1;
        let missing = if wide { ValueId::OPAQUE } else { ValueId::NUMBER };
        for (word, &dst) in regs.iter().enumerate() {
            let mut addr = addr.to_vec();
            addr.push(Source::Value(self.values.constant(4 * word as i64)));
            self.steps[node as usize].push(Step::Load { dst, addr, bytes: 4, missing });
        }
        let uses = self.uses(instruction, first_source);
        for dst in predicates {
            self.steps[node as usize].push(Step::Number { dst, uses: uses.clone() });
        }
    }

    /// A store through an address.
    pub(super) fn store(&mut self, node: u32, instruction: &Instruction, addr: &[Source]) {
        let data = instruction.operands.iter().rev().find_map(Operand::register);
        for word in 0..words(instruction) {
            let src = match data {
                Some(number) => Source::Reg(pair_word(number, word)),
                None => Source::Value(self.values.constant(0)),
            };
            let mut addr = addr.to_vec();
            addr.push(Source::Value(self.values.constant(4 * i64::from(word))));
            self.steps[node as usize].push(Step::Store { addr, bytes: 4, src });
        }
    }

    /// Results that come from memory that is not followed.
    pub(super) fn loaded(&mut self, node: u32, instruction: &Instruction) {
        let Targets { regs, predicates, first_source } = targets(instruction);
        let uses = self.uses(instruction, first_source);
        let wide = regs.len() > 1;
        for dst in regs {
            let uses = uses.clone();
            self.steps[node as usize].push(if wide {
                Step::Opaque { dst, uses }
            } else {
                Step::Number { dst, uses }
            });
        }
        for dst in predicates {
            self.steps[node as usize].push(Step::Number { dst, uses: uses.clone() });
        }
    }

    /// A barrier, which may put a value of each thread into one that another instruction gets.
    pub(super) fn barrier(&mut self, node: u32, instruction: &Instruction) {
        if instruction.base == "BAR" && has(instruction, "RED") {
            let uses = self.uses(instruction, 0);
            self.steps[node as usize].push(Step::Number { dst: BARRIER_RESULT, uses });
        } else if instruction.base == "B2R" {
            let Targets { regs, predicates, .. } = targets(instruction);
            for dst in regs.into_iter().chain(predicates) {
                let uses = vec![Source::Used(BARRIER_RESULT)];
                self.steps[node as usize].push(Step::Number { dst, uses });
            }
        } else {
            self.numbers(node, instruction);
        }
    }

    /// Results that are numbers.
    pub(super) fn numbers(&mut self, node: u32, instruction: &Instruction) {
        let Targets { regs, predicates, first_source } = targets(instruction);
        let uses = self.uses(instruction, first_source);
        for dst in regs.into_iter().chain(predicates) {
            self.steps[node as usize].push(Step::Number { dst, uses: uses.clone() });
        }
    }
}

/// The shift from the number of a CTA in its cluster to the window of its shared memory.
const WINDOW_SHIFT: i64 = 0x18;

/// What an instruction writes, and where its sources start.
struct Targets {
    regs: Vec<u32>,
    predicates: Vec<u32>,
    first_source: usize,
}

/// Leading operands are written: a register, predicates beside it, or predicates and a register.
fn targets(instruction: &Instruction) -> Targets {
    let mut found = Targets { regs: Vec::new(), predicates: Vec::new(), first_source: 0 };
    let writes_none = matches!(
        instruction.base.as_str(),
        "NOP"
            | "YIELD"
            | "NANOSLEEP"
            | "BSSY"
            | "BSYNC"
            | "BREAK"
            | "ERRBAR"
            | "CGAERRBAR"
            | "BPT"
            | "PMTRIG"
            | "RPCMOV"
            | "DEPBAR"
            | "WARPSYNC"
            | "BAR"
            | "UCGABAR_ARV"
            | "UCGABAR_WAIT"
            | "USETMAXREG"
            | "BMOV"
    );
    if writes_none {
        return found;
    }
    let carries = matches!(
        instruction.base.as_str(),
        "IADD3"
            | "UIADD3"
            | "IMAD"
            | "UIMAD"
            | "LEA"
            | "ULEA"
            | "IADD"
            | "UIADD"
            | "IADD64"
            | "UIADD64"
            | "VIADD"
    );
    let most_beside = if carries {
        2
    } else if matches!(instruction.base.as_str(), "VOTE" | "VOTEU" | "MATCH" | "R2UR" | "B2R") {
        1
    } else {
        0
    };
    if instruction.base == "R2P" {
        found.predicates = (0..7).map(|number| FIRST_PREDICATE + number).collect();
        found.first_source = 1;
        return found;
    }
    // Most instructions that write predicates first write nothing else.
    let reg_after_predicate = matches!(
        instruction.base.as_str(),
        "SHFL"
            | "ATOM"
            | "ATOMG"
            | "UATOMG"
            | "ATOMS"
            | "LOP3"
            | "ULOP3"
            | "R2UR"
            | "ELECT"
            | "MATCH"
    );
    // A texture read has its results in two registers, either of which may be the zero register.
    let is_texture = classify(instruction) == Class::Texture;
    if is_texture {
        let results = instruction.operands.iter().take(2);
        found.regs = results.filter_map(Operand::register).collect();
        found.first_source = 2.min(instruction.operands.len());
        return found;
    }
    let mut beside = 0;
    // The last operand of a vote is what each thread says.
    let is_vote = matches!(instruction.base.as_str(), "VOTE" | "VOTEU");
    let written = instruction.operands.len().saturating_sub(usize::from(is_vote));
    for operand in &instruction.operands[..written] {
        match operand {
            Operand::Reg { reg, .. }
                if beside != usize::MAX && (found.first_source == 0 || reg_after_predicate) =>
            {
                if let Reg::Numbered(number) = reg {
                    for word in 0..words(instruction) {
                        found.regs.push(pair_word(*number, word));
                    }
                }
                found.first_source += 1;
                if most_beside == 0 {
                    break;
                }
                beside = usize::MAX;
            }
            Operand::Predicate(predicate) if !predicate.negated => {
                let after_reg = beside == usize::MAX;
                let count = found.first_source;
                if after_reg && count > most_beside || !after_reg && count >= 2 {
                    break;
                }
                found.predicates.extend(predicate.reg);
                found.first_source += 1;
            }
            Operand::Reg { .. }
            | Operand::Predicate(_)
            | Operand::Integer(_)
            | Operand::Constant { .. }
            | Operand::Address(_)
            | Operand::Label(_)
            | Operand::CtaInCluster
            | Operand::Other => break,
        }
    }
    found
}

/// Words of the register operands that an instruction writes or stores.
fn words(instruction: &Instruction) -> u32 {
    let wide = |name: &str| has(instruction, name);
    if wide("256") {
        8
    } else if wide("128") {
        4
    } else if wide("96") {
        3
    } else if wide("64") || wide("WIDE") || wide("U64") || wide("S64") {
        2
    } else {
        match instruction.base.as_str() {
            "DADD" | "DMUL" | "DFMA" | "DMNMX" | "CS2R" if !wide("32") => 2,
            _ => 1,
        }
    }
}

/// The register that holds a word of a value that starts in `number`.
fn pair_word(number: u32, word: u32) -> u32 {
    let last = if number >= FIRST_UNIFORM { FIRST_UNIFORM + 255 } else { 255 };
    (number + word).min(last)
}

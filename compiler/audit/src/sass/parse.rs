//! The text of nvdisasm (`-g -c`) to sections of instructions.

use std::rc::Rc;

use super::{
    Code, FIRST_PREDICATE, FIRST_UNIFORM, FIRST_UNIFORM_PREDICATE, Instruction, Line, Operand,
    Predicate, Reg, Section,
};

/// Reads the text. Lines that are no code are passed over.
pub(crate) fn parse(text: &str) -> Code {
    let mut code = Code::default();
    let mut line: Option<Line> = None;
    let mut in_code = false;
    for row in text.lines() {
        let row = row.trim();
        let directive = row.strip_prefix(".section");
        if let Some(rest) = directive.filter(|rest| rest.starts_with(char::is_whitespace)) {
            let name = rest.trim().split(',').next().unwrap_or_default().trim_matches('"');
            in_code = false;
            if let Some(name) = name.strip_prefix(".text.") {
                code.sections.push(Section { name: name.to_owned(), ..Section::default() });
                in_code = true;
                line = None;
            }
            continue;
        }
        let Some(section) = code.sections.last_mut().filter(|_| in_code) else { continue };
        if let Some(rest) = row.strip_prefix("//## File ") {
            line = source_line(rest, line.as_ref());
        } else if row.starts_with(".other") {
            section.is_entry |= row.contains("STO_CUDA_ENTRY");
        } else if row.contains("/*") {
            if let Some(instruction) = instruction(row, line.as_ref()) {
                section.instructions.push(instruction);
            }
        } else if let Some(name) = row.strip_suffix(':')
            && !name.contains(char::is_whitespace)
        {
            section.labels.push((name.to_owned(), section.instructions.len() as u32));
        }
    }
    code
}

/// `"audit.ptx", line 43 inlined at …`.
fn source_line(text: &str, old: Option<&Line>) -> Option<Line> {
    let rest = text.strip_prefix('"')?;
    let (file, rest) = rest.rsplit_once("\", line ").or_else(|| rest.split_once("\", line "))?;
    let (file, rest) = match file.split_once("\", line ") {
        // The line may go on with the places that it was inlined at.
        Some((first, _)) => (first, &text[1 + first.len() + "\", line ".len()..]),
        None => (file, rest),
    };
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let line = digits.parse().ok()?;
    let file = match old {
        Some(old) if &*old.file == file => Rc::clone(&old.file),
        _ => Rc::from(file),
    };
    Some(Line { file, line })
}

/// `/*0080*/ @P0 BRA `(.L_x_0) ;`.
fn instruction(row: &str, line: Option<&Line>) -> Option<Instruction> {
    let (_, rest) = row.split_once("/*")?;
    let (address, rest) = rest.split_once("*/")?;
    let address = u64::from_str_radix(address.trim(), 16).ok()?;
    let mut body = rest.trim().trim_start_matches('{').trim_start();
    if let Some(remark) = body.find("(*") {
        body = &body[..remark];
    }
    let body = body.split(';').next().unwrap_or_default().trim().trim_end_matches('}').trim();
    let mut rest = body;
    let mut guard = None;
    if let Some(after) = body.strip_prefix('@') {
        let (name, tail) = after.split_once(char::is_whitespace)?;
        guard = Some(predicate(name)?);
        rest = tail.trim_start();
    }
    let (mnemonic, operands) = match rest.split_once(char::is_whitespace) {
        Some((mnemonic, operands)) => (mnemonic, operands.trim()),
        None => (rest, ""),
    };
    if mnemonic.is_empty() {
        return None;
    }
    let mut parts = mnemonic.split('.');
    let base = parts.next().unwrap_or_default().to_owned();
    Some(Instruction {
        address,
        guard,
        base,
        modifiers: parts.map(str::to_owned).collect(),
        operands: split(operands).into_iter().map(operand).collect(),
        line: line.cloned(),
    })
}

/// Operands, cut at commas outside of brackets; several words without a comma are one each.
fn split(text: &str) -> Vec<&str> {
    let mut list = Vec::new();
    let mut depth = 0usize;
    let mut start = 0;
    for (index, letter) in text.char_indices() {
        match letter {
            '[' | '(' | '{' => depth += 1,
            ']' | ')' | '}' => depth = depth.saturating_sub(1),
            ',' | ' ' if depth == 0 => {
                list.push(text[start..index].trim());
                start = index + 1;
            }
            _ => {}
        }
    }
    list.push(text[start..].trim());
    list.retain(|part| !part.is_empty());
    list
}

fn operand(text: &str) -> Operand {
    if let Some(label) = text.strip_prefix("`(").and_then(|rest| rest.strip_suffix(')')) {
        return Operand::Label(label.to_owned());
    }
    if let Some(number) = integer(text) {
        return Operand::Integer(number);
    }
    if let Some(predicate) = predicate(text) {
        return Operand::Predicate(predicate);
    }
    let bare = text.trim_start_matches(['-', '|', '~', '+']).trim_end_matches('|');
    if let Some(reg) = register(bare) {
        return Operand::Reg { reg, negated: text.starts_with('-') || text.starts_with('~') };
    }
    if let Some(constant) = constant(bare) {
        return constant;
    }
    if text.starts_with('[') || text.starts_with("desc[") {
        let inner = text.rsplit_once('[').map(|(_, inner)| inner.trim_end_matches(']'));
        return Operand::Address(inner.map(sum).unwrap_or_default());
    }
    if text == "SR_CgaCtaId" { Operand::CtaInCluster } else { Operand::Other }
}

/// `c[0x0][0x210]`, `c[0x0][R4+0x210]`.
fn constant(text: &str) -> Option<Operand> {
    let rest = text.strip_prefix("c[")?;
    let (bank, rest) = rest.split_once(']')?;
    let inner = rest.strip_prefix('[')?.split(']').next()?;
    let bank = match integer(bank) {
        Some(bank) => u32::try_from(bank).ok()?,
        None => u32::MAX,
    };
    let mut index = None;
    let mut offset = 0i64;
    for part in sum(inner) {
        match part {
            Operand::Integer(number) => offset = offset.wrapping_add(number),
            Operand::Reg { reg, .. } => index = Some(reg),
            Operand::Predicate(_)
            | Operand::Constant { .. }
            | Operand::Address(_)
            | Operand::Label(_)
            | Operand::CtaInCluster
            | Operand::Other => {}
        }
    }
    Some(Operand::Constant { bank, index, offset })
}

/// Parts joined by plus signs inside of brackets.
fn sum(text: &str) -> Vec<Operand> {
    text.split('+')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(|part| match integer(part) {
            Some(number) => Operand::Integer(number),
            None => match register(part.trim_start_matches('-')) {
                Some(reg) => Operand::Reg { reg, negated: part.starts_with('-') },
                None => Operand::Other,
            },
        })
        .collect()
}

fn integer(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let number = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()? as i64,
        None => digits.parse::<i64>().ok()?,
    };
    Some(if negative { number.wrapping_neg() } else { number })
}

/// `R2`, `R2.64`, `UR4`, `RZ`, with any suffix.
fn register(text: &str) -> Option<Reg> {
    let name = text.split('.').next()?;
    let (first, digits) = match name.strip_prefix("UR") {
        Some(digits) => (FIRST_UNIFORM, digits),
        None => (0, name.strip_prefix('R')?),
    };
    if digits == "Z" {
        return Some(Reg::Zero);
    }
    let number: u32 = digits.parse().ok()?;
    (number < 256).then_some(Reg::Numbered(first + number))
}

/// `P0`, `!P0`, `UP3`, `PT`.
fn predicate(text: &str) -> Option<Predicate> {
    let (negated, name) = match text.strip_prefix('!') {
        Some(name) => (true, name),
        None => (false, text),
    };
    let (first, rest) = match name.strip_prefix("UP") {
        Some(rest) => (FIRST_UNIFORM_PREDICATE, rest),
        None => (FIRST_PREDICATE, name.strip_prefix('P')?),
    };
    let rest = rest.split('.').next()?;
    if rest == "T" {
        return Some(Predicate { reg: None, negated });
    }
    let number: u32 = rest.parse().ok()?;
    (number < 7).then_some(Predicate { reg: Some(first + number), negated })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
	.section	.text.k3,"ax",@progbits
	.sectioninfo	@"SHI_REGISTERS=96"
        .other          k3,@"STO_CUDA_ENTRY STV_DEFAULT"
k3:
.text.k3:
	//## File "audit.ptx", line 48
        /*0050*/                   LDG.E.CONSTANT R0, desc[UR4][R2.64+0x200] ;
        /*0080*/              @!P0 BRA `(.L_x_0) ;
.L_x_0:
        /*00a0*/                   LDC R4, c[0x0][R5+0x398] ;
        /*00b0*/                   BRX R6 -0xd0 (*"BRANCH_TARGETS .L_x_5,.L_x_6"*);
	.section	.debug_line,"",@progbits
        /*0000*/ 	.byte	0x04, 0x66
"#;

    #[test]
    fn lines_guards_labels_and_addresses_are_read() {
        let code = parse(TEXT);
        assert_eq!(code.sections.len(), 1);
        let section = &code.sections[0];
        assert!(section.is_entry);
        assert_eq!(section.name, "k3");
        assert_eq!(section.instructions.len(), 4);
        let load = &section.instructions[0];
        assert_eq!((load.address, load.base.as_str()), (0x50, "LDG"));
        assert_eq!(load.modifiers, ["E", "CONSTANT"]);
        assert_eq!(load.line.as_ref().unwrap().line, 48);
        assert_eq!(
            load.operands[1],
            Operand::Address(vec![
                Operand::Reg { reg: Reg::Numbered(2), negated: false },
                Operand::Integer(0x200)
            ])
        );
        let branch = &section.instructions[1];
        assert!(branch.guard.unwrap().negated);
        assert_eq!(branch.operands, [Operand::Label(".L_x_0".to_owned())]);
        assert!(section.labels.contains(&(".L_x_0".to_owned(), 2)));
        assert_eq!(
            section.instructions[2].operands[1],
            Operand::Constant { bank: 0, index: Some(Reg::Numbered(5)), offset: 0x398 }
        );
        assert_eq!(section.instructions[3].operands[1], Operand::Integer(-0xd0));
    }
}

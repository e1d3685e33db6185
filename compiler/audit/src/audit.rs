//! Audits of whole files.

use std::collections::BTreeSet;

use crate::analysis::{Facts, Said, analyse};
use crate::code::Code;
use crate::declare::{Claim, Claims, Declarations, Names, UsageError, resolve};
use crate::kernel::Kernel;
use crate::machine::{Compared, Machine};
use crate::ptx::{Function, Module};
use crate::report::{Item, Report, Spot, Verdict};
use crate::rules::{Case, Judgement, judge};
use crate::sass;
use crate::sass::lower::Lines;
use crate::toolchain::Toolchain;

/// Audits PTX. With tools, the machine code that they make of it for `target` is compared with it.
///
/// # Errors
/// A declaration names nothing in the file.
pub fn audit_ptx(
    text: &str,
    declarations: &Declarations,
    target: &str,
    tools: Option<&dyn Toolchain>,
) -> Result<Report, UsageError> {
    let module = match crate::ptx::parse::parse(text) {
        Ok(module) => module,
        Err(error) => return Ok(unreadable("", format!("the PTX cannot be read: {error}"))),
    };
    let functions = roots(&module);
    let mut kernels: Vec<Kernel> =
        functions.iter().map(|f| crate::ptx::lower::lower(&module, f)).collect();
    let claims = claims_of(declarations, &kernels)?;
    let spots = |id: u32| spot(text, &module, id);
    let facts: Vec<Facts> = kernels
        .iter_mut()
        .zip(&claims)
        .map(|(kernel, claims)| analyse(kernel, &said(claims)))
        .collect();
    let machine = match tools {
        Some(tools) if facts.iter().any(may_move) => {
            Some(Machine::make(text, &module, target, tools))
        }
        Some(_) | None => None,
    };
    let mut judgements = Vec::new();
    for ((kernel, facts), claims) in kernels.iter().zip(&facts).zip(&claims) {
        let compared = match &machine {
            Some(Ok(machine)) => machine.compare(kernel, facts),
            Some(Err(_)) | None => Compared::default(),
        };
        let case = Case { kernel, facts, claims, moves: &compared.moves, spots: Some(&spots) };
        let mut judgement = judge(&case);
        crate::proxy::judge(&case, &mut judgement);
        for gap in compared.gaps {
            judgement.open = true;
            judgement.notes.push(remark(Code::NotUnderstood, &kernel.name, gap));
        }
        judgements.push(judgement);
    }
    let mut report = total(judgements);
    if let Some(Err(error)) = machine {
        report.notes.push(remark(Code::Tool, "", error.to_string()));
        if report.verdict == Verdict::Clean {
            report.verdict = Verdict::NotJudged;
        }
    } else if tools.is_none() && facts.iter().any(may_move) {
        report.assumed.push("the assembler keeps loads on their side of waits".to_owned());
    }
    Ok(report)
}

/// Audits a cubin of any origin from its machine code alone.
///
/// # Errors
/// A declaration names nothing in the file.
pub fn audit_cubin(
    bytes: &[u8],
    declarations: &Declarations,
    tools: &dyn Toolchain,
) -> Result<Report, UsageError> {
    let Some(info) = sass::elf::read(bytes) else {
        return Ok(unreadable("", "the file is no cubin".to_owned()));
    };
    let text = match tools.disassemble(bytes) {
        Ok(text) => text,
        Err(error) => {
            let mut report = unreadable("", error.to_string());
            report.notes[0].code = Code::Tool;
            return Ok(report);
        }
    };
    let code = sass::parse::parse(&text);
    let with_entries = code.sections.iter().any(|section| section.is_entry);
    let mut kernels: Vec<Kernel> = code
        .sections
        .iter()
        .enumerate()
        .filter(|(_, section)| section.is_entry || !with_entries)
        .map(|(index, _)| sass::lower::lower(&code, index, &info, Lines::None))
        .collect();
    let claims = claims_of(declarations, &kernels)?;
    let judgements = kernels
        .iter_mut()
        .zip(&claims)
        .map(|(kernel, claims)| {
            // Machine code adds in any order; what is declared is taken for a pointer.
            let pointers = claims.params.keys().copied().collect();
            let facts = analyse(kernel, &Said { pointers, ..Said::default() });
            judge(&Case { kernel, facts: &facts, claims, moves: &[], spots: None })
        })
        .collect();
    let mut report = total(judgements);
    if kernels.is_empty() {
        report.notes.push(remark(Code::NotUnderstood, "", "the cubin holds no code".to_owned()));
        report.verdict = Verdict::NotJudged;
    }
    Ok(report)
}

/// What the claims say of parameters in PTX.
fn said(claims: &Claims) -> Said {
    let with = |wanted: Claim| {
        claims
            .params
            .iter()
            .filter(|(_, claim)| **claim == wanted)
            .map(|(&param, _)| param)
            .collect()
    };
    Said { pointers: BTreeSet::new(), statics: with(Claim::Static), mutables: with(Claim::Mutable) }
}

/// Whether a load and a wait or fence stand in the kernel, so that one may move across the other.
fn may_move(facts: &Facts) -> bool {
    let weak = facts.reads.iter().any(|read| read.weak);
    let noncoherent = facts.reads.iter().any(|read| read.noncoherent);
    weak && !facts.waits.is_empty() || noncoherent && !facts.fences.is_empty()
}

/// An item without a place.
pub(crate) fn remark(code: Code, kernel: &str, message: String) -> Item {
    Item {
        code,
        kernel: kernel.to_owned(),
        param: None,
        ptx: None,
        wait: None,
        sass: None,
        message,
        help: String::new(),
    }
}

/// Kernels of a module; of a library without kernels, its functions.
fn roots(module: &Module) -> Vec<&Function> {
    let with_body = |f: &&Function| f.body.is_some();
    let entries: Vec<&Function> =
        module.functions.iter().filter(|f| f.is_entry).filter(with_body).collect();
    if entries.is_empty() { module.functions.iter().filter(with_body).collect() } else { entries }
}

fn claims_of(declarations: &Declarations, kernels: &[Kernel]) -> Result<Vec<Claims>, UsageError> {
    let names: Vec<Names<'_>> = kernels
        .iter()
        .map(|kernel| Names {
            kernel: &kernel.name,
            params: kernel.params.iter().map(|param| param.label.as_str()).collect(),
            globals: &kernel.globals,
        })
        .collect();
    resolve(declarations, &names)
}

/// The text of an instruction on one line.
pub(crate) fn spot(text: &str, module: &Module, id: u32) -> Spot {
    match module.places.get(id as usize) {
        Some(place) => {
            let words: Vec<&str> = text[place.start..place.end].split_whitespace().collect();
            Spot { line: place.line, text: words.join(" ") }
        }
        None => Spot { line: 0, text: String::new() },
    }
}

/// Adds up what is said of the kernels.
pub(crate) fn total(judgements: Vec<Judgement>) -> Report {
    let mut report = Report {
        verdict: Verdict::Clean,
        findings: Vec::new(),
        notes: Vec::new(),
        assumed: Vec::new(),
    };
    let mut open = false;
    for judgement in judgements {
        open |= judgement.open;
        report.findings.extend(judgement.findings);
        report.notes.extend(judgement.notes);
        report.assumed.extend(judgement.assumed);
    }
    report.verdict = if open {
        Verdict::NotJudged
    } else if report.findings.is_empty() {
        Verdict::Clean
    } else {
        Verdict::Findings
    };
    report
}

/// The report on a file that cannot be read.
pub(crate) fn unreadable(kernel: &str, message: String) -> Report {
    Report {
        verdict: Verdict::NotJudged,
        findings: Vec::new(),
        notes: vec![remark(Code::NotUnderstood, kernel, message)],
        assumed: Vec::new(),
    }
}

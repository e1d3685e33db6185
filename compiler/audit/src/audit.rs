//! Audits of whole files.

use std::collections::BTreeSet;

use crate::analysis::analyse;
use crate::code::Code;
use crate::declare::{Claims, Declarations, Names, UsageError, resolve};
use crate::kernel::Kernel;
use crate::ptx::{Function, Module};
use crate::report::{Item, Report, Spot, Verdict};
use crate::rules::{Case, Judgement, judge};
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
    let mut judgements = Vec::new();
    for (kernel, claims) in kernels.iter_mut().zip(&claims) {
        let declared: BTreeSet<u32> = claims.params.keys().copied().collect();
        let facts = analyse(kernel, &declared);
        let case = Case { kernel, facts: &facts, claims, moves: &[], spots: Some(&spots) };
        judgements.push(judge(&case));
    }
    let _ = (target, tools);
    Ok(report(judgements))
}

/// Kernels of a module; of a library without kernels, its functions.
fn roots(module: &Module) -> Vec<&Function> {
    let with_body = |f: &&Function| f.body.is_some();
    let entries: Vec<&Function> =
        module.functions.iter().filter(|f| f.is_entry).filter(with_body).collect();
    if entries.is_empty() { module.functions.iter().filter(with_body).collect() } else { entries }
}

fn claims_of(
    declarations: &Declarations,
    kernels: &[Kernel],
) -> Result<Vec<Claims>, UsageError> {
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
fn spot(text: &str, module: &Module, id: u32) -> Spot {
    match module.places.get(id as usize) {
        Some(place) => {
            let words: Vec<&str> = text[place.start..place.end].split_whitespace().collect();
            Spot { line: place.line, text: words.join(" ") }
        }
        None => Spot { line: 0, text: String::new() },
    }
}

fn report(judgements: Vec<Judgement>) -> Report {
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

fn unreadable(kernel: &str, message: String) -> Report {
    Report {
        verdict: Verdict::NotJudged,
        findings: Vec::new(),
        notes: vec![Item {
            code: Code::NotUnderstood,
            kernel: kernel.to_owned(),
            param: None,
            ptx: None,
            wait: None,
            sass: None,
            message,
            help: String::new(),
        }],
        assumed: Vec::new(),
    }
}

//! Headers of kernels and functions.

use super::doc::{Doc, INDENT, commas, text};
use super::expr::{cond, domain, quote, ty};
use super::output::{Output, WIDTH};
use super::stmt::paragraph;
use crate::ast::{
    Access, Buffer, ConstParam, Contract, Domain, DomainKind, Expr, ExprKind, FnParam, Function,
    Kernel, LaunchEntry, RangeEnd, Trivia, Tune,
};

/// The header of a kernel, up to the line before its `{`.
pub(super) fn kernel(out: &mut Output, kernel: &Kernel) {
    let buffers: Vec<Param<'_>> = kernel.buffers.iter().map(buffer).collect();
    signature(out, &format!("kernel {}", kernel.name.text), &kernel.consts, &buffers, "");
    let mut entries = vec![Doc::Line];
    entries.extend(commas(kernel.launch.entries.iter().map(launch_entry)));
    let launch = if kernel.launch.entries.is_empty() {
        text("launch {}")
    } else {
        Doc::Group(vec![text("launch {"), Doc::Nest(entries), Doc::Line, text("}")])
    };
    clause(out, &kernel.launch.trivia, &launch);
    if let Some(wheres) = &kernel.wheres {
        clause(out, &wheres.trivia, &words("where ", wheres.value.iter().map(cond)));
    }
    if let Some(entries) = &kernel.tune {
        clause(out, &entries.trivia, &words("tune ", entries.value.iter().map(tune)));
    }
    if let Some(symbol) = &kernel.export {
        clause(out, &symbol.trivia, &text(format!("export {}", quote(&symbol.value.value))));
    }
}

/// The header of a function, all but its ` {`.
pub(super) fn function(out: &mut Output, function: &Function) {
    let params: Vec<Param<'_>> = function.params.iter().map(fn_param).collect();
    let result = match function.returns.as_slice() {
        [] => String::new(),
        [one] => format!(" -> {}", ty(one).flat()),
        several => {
            let types: Vec<String> = several.iter().map(|one| ty(one).flat()).collect();
            format!(" -> ({})", types.join(", "))
        }
    };
    signature(out, &format!("fn {}", function.name.text), &function.consts, &params, &result);
}

fn clause(out: &mut Output, trivia: &Trivia, doc: &Doc) {
    out.comments(&trivia.leading);
    paragraph(out, doc);
    out.trailing(trivia.trailing.as_ref());
}

fn words(word: &str, entries: impl Iterator<Item = Doc>) -> Doc {
    Doc::Group(vec![text(word), Doc::Nest(commas(entries))])
}

fn launch_entry(entry: &LaunchEntry) -> Doc {
    Doc::Group(vec![text(format!("{}: ", entry.key.word())), cond(&entry.value)])
}

fn tune(entry: &Tune) -> Doc {
    Doc::Group(vec![text(format!("{} in ", entry.name.text)), domain(&entry.domain)])
}

/// A parameter in parts, for its columns.
struct Param<'a> {
    /// Words before the name; the first column where every line has them.
    access: String,
    name: String,
    rest: String,
    trivia: &'a Trivia,
}

impl Param<'_> {
    fn text(&self, access: usize, name: usize) -> String {
        let before = if self.access.is_empty() {
            String::new()
        } else {
            format!("{:access$} ", self.access)
        };
        format!("{before}{:name$}: {}", self.name, self.rest)
    }
}

/// `head<consts>(params)result` on as few lines as the comments and the author allow.
fn signature(
    out: &mut Output,
    head: &str,
    consts: &[ConstParam],
    params: &[Param<'_>],
    result: &str,
) {
    let flat_consts = flat_consts(consts);
    let flat_params: Vec<String> = params.iter().map(|param| param.text(0, 0)).collect();
    let wishes_one_line = params.first().is_none_or(|param| param.trivia.same_line.0)
        && params.iter().all(|param| has_no_comments(param.trivia));
    if let Some(consts) = &flat_consts
        && wishes_one_line
    {
        let line = format!("{head}{consts}({}){result}", flat_params.join(", "));
        if line.chars().count() + 2 <= WIDTH {
            return out.paragraph(vec![line]);
        }
    }
    match flat_consts {
        Some(consts) if head.len() + consts.chars().count() < WIDTH => {
            out.line(format!("{head}{consts}("));
        }
        _ => {
            out.line(format!("{head}<"));
            const_lines(out, consts);
            out.line(">(");
        }
    }
    if params.is_empty() {
        out.append(&format!("){result}"));
    } else {
        param_lines(out, params);
        out.paragraph(vec![format!("){result}")]);
    }
}

fn has_no_comments(trivia: &Trivia) -> bool {
    trivia.leading.is_empty() && trivia.trailing.is_none()
}

fn flat_consts(consts: &[ConstParam]) -> Option<String> {
    if consts.is_empty() {
        return Some(String::new());
    }
    if !consts.iter().all(|param| has_no_comments(&param.trivia)) {
        return None;
    }
    let params: Vec<String> = consts.iter().map(const_param).collect();
    Some(format!("<{}>", params.join(", ")))
}

fn const_lines(out: &mut Output, consts: &[ConstParam]) {
    out.begin(INDENT);
    for (at, param) in consts.iter().enumerate() {
        let comma = if at + 1 < consts.len() { "," } else { "" };
        let param_text = format!("{}{comma}", const_param(param));
        out.comments(&param.trivia.leading);
        if param.trivia.leading.is_empty() && out.takes(&param_text) {
            out.append(&format!(" {param_text}"));
        } else {
            out.paragraph(vec![param_text]);
        }
        out.trailing(param.trivia.trailing.as_ref());
    }
    out.end(INDENT);
}

fn const_param(param: &ConstParam) -> String {
    let mut out = format!("const {}: {}", param.name.text, param.ty.text);
    if let Some(values) = &param.domain {
        out.push_str(" in ");
        out.push_str(&const_domain(values));
    }
    if let Some(default) = &param.default {
        out.push_str(" = ");
        out.push_str(&shielded(default));
    }
    out
}

/// A `>` outside of brackets would end the list of parameters.
fn shielded(expr: &Expr) -> String {
    let flat = cond(expr).flat();
    if flat.contains(['<', '>']) { format!("({flat})") } else { flat }
}

fn const_domain(values: &Domain) -> String {
    let flat = domain(values).flat();
    let DomainKind::Range(Expr { kind: ExprKind::Range(range), .. }) = &values.kind else {
        return flat;
    };
    if !flat.contains(['<', '>']) {
        return flat;
    }
    let (mark, end) = match &range.end {
        RangeEnd::Length(end) => (".. +", end),
        RangeEnd::Exclusive(end) => ("..", end),
        RangeEnd::Inclusive(end) => ("..=", end),
    };
    let mut out = format!("{} {mark} {}", shielded(&range.start), shielded(end));
    if let Some(until) = &range.until {
        out.push_str(" until ");
        out.push_str(&shielded(until));
    }
    out
}

fn param_lines(out: &mut Output, params: &[Param<'_>]) {
    let starts = line_starts(params);
    let (access, name) = columns(params, &starts);
    out.begin(INDENT);
    for (param, starts) in params.iter().zip(starts) {
        let trivia = param.trivia;
        out.leading(trivia);
        if starts {
            out.paragraph(vec![format!("{},", param.text(access, name))]);
        } else {
            out.append(&format!(" {},", param.text(0, 0)));
        }
        out.trailing(trivia.trailing.as_ref());
    }
    out.end(INDENT);
}

/// Which parameters start a line: those that the author put there, and those that do not fit. The
/// columns depend on which start a line, and what fits depends on the columns; each round only adds
/// starts, so this ends.
fn line_starts(params: &[Param<'_>]) -> Vec<bool> {
    let mut starts: Vec<bool> = Vec::new();
    let mut closed = true;
    for param in params {
        let trivia = param.trivia;
        let joins = trivia.same_line.0 && !trivia.blank_before.0 && trivia.leading.is_empty();
        starts.push(closed || !joins);
        closed = trivia.trailing.is_some();
    }
    loop {
        let (access, name) = columns(params, &starts);
        let mut used = 0;
        let mut changed = false;
        for (param, starts) in params.iter().zip(&mut starts) {
            let joined = used + 1 + param.text(0, 0).chars().count() + 1;
            if !*starts && joined > WIDTH {
                *starts = true;
                changed = true;
            }
            used = if *starts {
                INDENT + param.text(access, name).chars().count() + 1
            } else {
                joined
            };
        }
        if !changed {
            return starts;
        }
    }
}

/// The widths of the access words and names of parameters that start a line.
fn columns(params: &[Param<'_>], starts: &[bool]) -> (usize, usize) {
    let firsts = || params.iter().zip(starts).filter(|(_, starts)| **starts).map(|(p, _)| p);
    let widest = |part: fn(&Param<'_>) -> usize| firsts().map(part).max().unwrap_or(0);
    (widest(|p| p.access.chars().count()), widest(|p| p.name.chars().count()))
}

fn access_words(access: &Access) -> String {
    let mut words = Vec::new();
    if access.settled {
        words.push("settled");
    }
    words.push(access.qualifier.word());
    if access.counter {
        words.push("counter");
    }
    if access.epoch {
        words.push("epoch");
    }
    words.join(" ")
}

fn buffer(buffer: &Buffer) -> Param<'_> {
    let mut rest = String::new();
    if let Some(space) = buffer.space {
        rest.push_str(space.word());
        rest.push(' ');
    }
    rest.push_str(&ty(&buffer.ty).flat());
    if let Some(ring) = &buffer.ring {
        rest.push_str(" ring ");
        rest.push_str(&cond(ring).flat());
    }
    if let Some(of) = &buffer.of {
        rest.push_str(" of ");
        rest.push_str(&of.text);
    }
    if let Some(scaled) = &buffer.scaled_by {
        let (scale, group) = (&scaled.scale.text, cond(&scaled.group).flat());
        rest.push_str(&format!(" scaled_by({scale}, group = {group})"));
    }
    if let Some(stored) = &buffer.stored {
        rest.push_str(" stored ");
        rest.push_str(&cond(stored).flat());
    }
    if let Some(contract) = &buffer.contract {
        rest.push_str(&contract_words(contract));
    }
    Param {
        access: access_words(&buffer.access),
        name: buffer.name.text.clone(),
        rest,
        trivia: &buffer.trivia,
    }
}

fn contract_words(contract: &Contract) -> String {
    let mut out = format!(" in {}", domain(&contract.domain).flat());
    if contract.distinct {
        out.push_str(" distinct");
    }
    if let Some(except) = &contract.except {
        out.push_str(" except ");
        out.push_str(&cond(except).flat());
    }
    out
}

fn fn_param(param: &FnParam) -> Param<'_> {
    let mut rest = String::new();
    if let Some(access) = &param.access {
        rest.push_str(&access_words(access));
        rest.push(' ');
    }
    if let Some(space) = param.space {
        rest.push_str(space.word());
        rest.push(' ');
    }
    rest.push_str(&ty(&param.ty).flat());
    Param { access: String::new(), name: param.name.text.clone(), rest, trivia: &param.trivia }
}

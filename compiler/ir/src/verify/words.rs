//! Words between CTAs and between launches: counters and epochs.
//!
//! Assumes that `arrive.last` orders what a CTA did before it ahead of what the last one does after. Guarantees:
//! where all CTAs arrive and the index tells who shares a word, their number is the stated one; in a kernel
//! with a counter, what other CTAs may write is read by the last arriver alone, which means that any other load
//! of a buffer that the kernel stores to is of exactly what the same CTA stores; and on every path an epoch is
//! advanced once, after the last time it is read. Whether every sharer of a word arrives inside of `if` and
//! `for` is left to the emulator.

use std::collections::BTreeMap;

use kernel_dsl::diag::{Code, Diagnostic, Sink};
use kernel_dsl::source::Span;

use super::scalars::{Facts, Form, Knowledge, Symbol};
use crate::kernel::{
    AxisIndex, Kernel, Op, ParamId, Stmt, StmtKind, Storage, TileAccess, ValueId, Word, Words,
};

pub(super) fn check(kernel: &Kernel, sink: &mut Sink) {
    if kernel.params.iter().all(|param| param.words.is_none()) {
        return;
    }
    let mut survey = Survey {
        known: Knowledge::new(kernel),
        stores: BTreeMap::new(),
        arrivals: Vec::new(),
        all: Vec::new(),
    };
    survey.block(&kernel.body, true);
    for (word, count) in &survey.all {
        arrivals(kernel, &survey.known, word, *count, sink);
    }
    let alone = kernel.launch.grid.iter().product::<u32>() <= 1;
    if !survey.arrivals.is_empty() && !alone {
        Readers { kernel, survey: &survey, sink }.block(&kernel.body, false);
    }
    for (id, param) in kernel.params.iter_enumerated() {
        if param.words == Some(Words::Epoch) {
            let mut walk = Epoch { param: id, sink };
            let end = walk.block(&kernel.body, Advanced::No);
            if end != Advanced::Once {
                let on_paths = if end == Advanced::OnSomePaths { " on every path" } else { "" };
                sink.push(
                    Diagnostic::error(
                        Code::E0117,
                        format!("the epoch `{}` is not advanced{on_paths}", param.name),
                    )
                    .label(param.span, "the next launch would take this one's number")
                    .help(format!("write `advance {}[…];` after its last use", param.name)),
                );
            }
        }
    }
}

/// Where an access lies, as far as forms say.
type Place = Vec<(Option<ValueId>, Option<Form>, u32)>;

/// What the kernel stores, and who arrives.
struct Survey<'k> {
    known: Knowledge<'k>,
    stores: BTreeMap<ParamId, Vec<Place>>,
    /// Conditions that are arrivals.
    arrivals: Vec<ValueId>,
    /// Arrivals that every CTA makes once.
    all: Vec<(Word, u32)>,
}

impl Survey<'_> {
    fn block(&mut self, stmts: &[Stmt], always: bool) {
        for stmt in stmts {
            match &stmt.kind {
                StmtKind::Def { results, op } => {
                    self.known.define(results, op, &Facts::new());
                    if let Op::ArriveLast { word, count } = op {
                        self.arrivals.extend(results);
                        if always {
                            self.all.push((*word, *count));
                        }
                    }
                }
                StmtKind::Store { access, .. } => {
                    if let Storage::Buffer(param) = access.storage {
                        let place = self.place(access);
                        self.stores.entry(param).or_default().push(place);
                    }
                }
                StmtKind::CopyAsync { .. } => {}
                StmtKind::For { var, start, end, step, body } => {
                    self.known.bind_loop(*var, *start, *end, *step);
                    self.block(body, false);
                }
                StmtKind::If { then_body, else_body, .. } => {
                    self.block(then_body, false);
                    self.block(else_body, false);
                }
                StmtKind::SetVar { .. }
                | StmtKind::Prefetch { .. }
                | StmtKind::Advance { .. }
                | StmtKind::EmptyGroup
                | StmtKind::Settle { .. }
                | StmtKind::Sync
                | StmtKind::GridWait
                | StmtKind::GridLaunch
                | StmtKind::Assert { .. }
                | StmtKind::Printf { .. } => {}
            }
        }
    }

    fn place(&self, access: &TileAccess) -> Place {
        let one = |index: &AxisIndex| match index {
            AxisIndex::At(at) => Some((None, Some(self.known.form(*at)), 1)),
            AxisIndex::Range { start, len, .. } => {
                Some((None, Some(self.known.form(*start)), *len))
            }
            AxisIndex::Gather(tile) | AxisIndex::Along(tile) => Some((Some(*tile), None, 0)),
            AxisIndex::New => None,
        };
        access.index.iter().filter_map(one).collect()
    }
}

/// The number of CTAs that share a word is the one that is stated.
fn arrivals(kernel: &Kernel, known: &Knowledge<'_>, word: &Word, count: u32, sink: &mut Sink) {
    let form = known.form(word.index);
    let mut sharers = kernel.launch.grid.map(u64::from);
    match form.terms.iter().collect::<Vec<_>>().as_slice() {
        [] => {}
        [(Symbol::Cta(axis), 1 | -1)] => sharers[usize::from(*axis)] = 1,
        _ => return,
    }
    let sharers: u64 = sharers.iter().product();
    if sharers == u64::from(count) {
        return;
    }
    let param = &kernel.params[word.param];
    sink.push(
        Diagnostic::error(
            Code::E0115,
            format!("{sharers} CTAs arrive at a word of `{}`, not {count}", param.name),
        )
        .label(word.span, format!("every CTA with the same {} arrives here", shared(&form)))
        .secondary(kernel.span, format!("launched with a grid of {:?}", kernel.launch.grid))
        .help(format!("write `of {sharers}`")),
    );
}

fn shared(form: &Form) -> &'static str {
    match form.terms.keys().next() {
        Some(Symbol::Cta(0)) => "`cta.x`",
        Some(Symbol::Cta(1)) => "`cta.y`",
        Some(Symbol::Cta(_)) => "`cta.z`",
        Some(Symbol::Value(_) | Symbol::Param(_)) | None => "index",
    }
}

/// Loads of what other CTAs may store.
struct Readers<'a, 'k> {
    kernel: &'a Kernel,
    survey: &'a Survey<'k>,
    sink: &'a mut Sink,
}

impl Readers<'_, '_> {
    fn block(&mut self, stmts: &[Stmt], last: bool) {
        for stmt in stmts {
            match &stmt.kind {
                StmtKind::Def { op: Op::Load { access, .. }, .. } if !last => self.load(access),
                StmtKind::CopyAsync { source, .. } if !last => self.load(source),
                StmtKind::For { body, .. } => self.block(body, last),
                StmtKind::If { cond, then_body, else_body } => {
                    self.block(then_body, last || self.survey.arrivals.contains(cond));
                    self.block(else_body, last);
                }
                StmtKind::Def { .. }
                | StmtKind::SetVar { .. }
                | StmtKind::Store { .. }
                | StmtKind::CopyAsync { .. }
                | StmtKind::Prefetch { .. }
                | StmtKind::Advance { .. }
                | StmtKind::EmptyGroup
                | StmtKind::Settle { .. }
                | StmtKind::Sync
                | StmtKind::GridWait
                | StmtKind::GridLaunch
                | StmtKind::Assert { .. }
                | StmtKind::Printf { .. } => {}
            }
        }
    }

    fn load(&mut self, access: &TileAccess) {
        let Storage::Buffer(id) = access.storage else { return };
        let Some(stores) = self.survey.stores.get(&id) else { return };
        if stores.contains(&self.survey.place(access)) {
            return;
        }
        let param = &self.kernel.params[id];
        self.sink.push(
            Diagnostic::error(
                Code::E0116,
                format!("`{}` is read while other CTAs of the launch may write it", param.name),
            )
            .label(access.span, "this is not exactly what the same CTA stores")
            .secondary(param.span, format!("declared `{}`, and stored to here", param.access))
            .help("read it inside of `if arrive.last c[i] of n { … }`, which the last CTA runs"),
        );
    }
}

/// Whether an epoch has been advanced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Advanced {
    No,
    Once,
    OnSomePaths,
}

struct Epoch<'a> {
    param: ParamId,
    sink: &'a mut Sink,
}

impl Epoch<'_> {
    fn block(&mut self, stmts: &[Stmt], at: Advanced) -> Advanced {
        stmts.iter().fold(at, |at, stmt| self.stmt(stmt, at))
    }

    fn stmt(&mut self, stmt: &Stmt, at: Advanced) -> Advanced {
        match &stmt.kind {
            StmtKind::Def { op: Op::Load { access, .. }, .. }
            | StmtKind::CopyAsync { source: access, .. }
                if access.storage == Storage::Buffer(self.param) =>
            {
                if at != Advanced::No {
                    self.wrong(access.span, "this reads an epoch that is advanced already");
                }
                at
            }
            StmtKind::Advance { word } if word.param == self.param => {
                if at != Advanced::No {
                    self.wrong(word.span, "this advances an epoch a second time");
                }
                Advanced::Once
            }
            StmtKind::For { body, .. } => {
                let end = self.block(body, at);
                if end == at {
                    return at;
                }
                self.wrong(stmt.span, "this loop may advance an epoch any number of times");
                Advanced::OnSomePaths
            }
            StmtKind::If { then_body, else_body, .. } => {
                let (a, b) = (self.block(then_body, at), self.block(else_body, at));
                if a == b { a } else { Advanced::OnSomePaths }
            }
            StmtKind::Def { .. }
            | StmtKind::SetVar { .. }
            | StmtKind::Store { .. }
            | StmtKind::CopyAsync { .. }
            | StmtKind::Prefetch { .. }
            | StmtKind::Advance { .. }
            | StmtKind::EmptyGroup
            | StmtKind::Settle { .. }
            | StmtKind::Sync
            | StmtKind::GridWait
            | StmtKind::GridLaunch
            | StmtKind::Assert { .. }
            | StmtKind::Printf { .. } => at,
        }
    }

    fn wrong(&mut self, span: Span, message: &str) {
        self.sink.push(
            Diagnostic::error(Code::E0117, message)
                .label(span, "")
                .help("advance it once on every path, after its last use"),
        );
    }
}

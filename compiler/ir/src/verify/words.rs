//! Words between CTAs and between launches: counters and epochs.
//!
//! Guarantees: where all CTAs arrive and the index tells who shares a word, their number is the stated one; and
//! on every path an epoch is advanced once, after the last time it is read, each CTA's own word. Whether every sharer
//! of a word arrives inside of `if` and `for` is left to the emulator.

use kernel_dsl::diag::{Code, Diagnostic, Sink};
use kernel_dsl::source::Span;

use super::buffers::tell_apart;
use super::ranks::{arrivers, is_apart};
use super::scalars::{Facts, Form, Knowledge, Symbol};
use crate::kernel::{
    AxisIndex, Kernel, Op, ParamId, PipeOp, Stmt, StmtKind, Storage, TileAccess, ValueId, Word,
    Words, copied,
};

pub(super) fn check(kernel: &Kernel, sink: &mut Sink) {
    if kernel.params.iter().all(|param| param.words.is_none()) {
        return;
    }
    let known = Knowledge::new(kernel);
    let mut survey = Survey {
        known,
        all: Vec::new(),
        lists: Vec::new(),
        counted: Vec::new(),
        epochs: Vec::new(),
    };
    survey.block(&kernel.body, true);
    survey.arrivals_apart(kernel, sink);
    survey.work_lists(kernel, sink);
    survey.lengths(kernel, sink);
    survey.own_epochs(kernel, sink);
    for (word, count, _) in &survey.all {
        arrivals(kernel, &survey.known, word, *count, sink);
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

/// Who arrives.
struct Survey<'k> {
    known: Knowledge<'k>,
    /// Arrivals that every CTA makes once, and which of all they are.
    all: Vec<(Word, u32, usize)>,
    /// Work lists, and whether every CTA comes to it once.
    lists: Vec<(Word, ValueId, bool)>,
    /// Words of all arrivals.
    counted: Vec<Word>,
    /// Where epochs are read and advanced: at a word, or in another way.
    epochs: Vec<(ParamId, Option<ValueId>, Span)>,
}

impl Survey<'_> {
    fn block(&mut self, stmts: &[Stmt], always: bool) {
        for stmt in stmts {
            if let Some((source, _)) = copied(&stmt.kind) {
                self.reads(source);
            }
            match &stmt.kind {
                StmtKind::Advance { word } => {
                    self.epochs.push((word.param, Some(word.index), word.span));
                }
                StmtKind::Def { results, op } => {
                    if let Op::Load { access, .. } = op {
                        self.reads(access);
                    }
                    self.known.define(results, op, &Facts::new());
                    if let Op::ArriveLast { word, count } = op {
                        self.all.extend(always.then_some((*word, *count, self.counted.len())));
                        self.counted.push(*word);
                    }
                }
                StmtKind::For { var, start, end, step, tickets, body } => {
                    self.lists.extend(tickets.map(|word| (word, *end, always)));
                    self.known.bind_loop(*var, *start, *end, *step);
                    self.block(body, false);
                }
                StmtKind::Role { body, .. } => self.block(body, always),
                StmtKind::If { then_body, else_body, .. } => {
                    self.block(then_body, false);
                    self.block(else_body, false);
                }
                StmtKind::SetVar { .. }
                | StmtKind::Store { .. }
                | StmtKind::CopyAsync { .. }
                | StmtKind::Prefetch { .. }
                | StmtKind::EmptyGroup
                | StmtKind::Outgoing(_)
                | StmtKind::Settle { .. }
                | StmtKind::Warpgroup(_)
                | StmtKind::Tensor(_)
                | StmtKind::Sync
                | StmtKind::Signal(_)
                | StmtKind::Await(_)
                | StmtKind::SyncCluster
                | StmtKind::SyncRole
                | StmtKind::Pipe(_)
                | StmtKind::GridWait
                | StmtKind::GridLaunch
                | StmtKind::Assert { .. }
                | StmtKind::Trace { .. }
                | StmtKind::Printf { .. } => {}
            }
        }
    }

    fn reads(&mut self, access: &TileAccess) {
        let Storage::Buffer(param) = access.storage else { return };
        if self.known.param(param).words != Some(Words::Epoch) {
            return;
        }
        let index = match access.index.as_slice() {
            [AxisIndex::At(at)] => Some(*at),
            _ => None,
        };
        self.epochs.push((param, index, access.span));
    }

    /// Each CTA counts in a word of its own, the one that it reads.
    fn own_epochs(&self, kernel: &Kernel, sink: &mut Sink) {
        let mut wrong = |param: ParamId, span: Span, label: &str, other: Option<Span>| {
            let param = &kernel.params[param];
            let message = format!("the epoch `{}` is not each CTA's own", param.name);
            let mut finding = Diagnostic::error(Code::E0117, message).label(span, label);
            finding = match other {
                Some(other) => finding.secondary(other, "its word is another one here"),
                None => finding.secondary(param.span, "declared here"),
            };
            sink.push(finding.help(
                "read and advance one word a CTA, at one index that is computed from `cta` alone",
            ));
        };
        for (number, (param, index, span)) in self.epochs.iter().enumerate() {
            let Some(form) = index.map(|index| self.known.form(index)) else {
                wrong(*param, *span, "other CTAs advance these words, before or after", None);
                continue;
            };
            let is_of_cta = form.terms.keys().all(|symbol| matches!(symbol, Symbol::Cta(_)))
                && tell_apart(&self.known, std::slice::from_ref(&form), kernel.launch.grid);
            if !is_of_cta {
                wrong(*param, *span, "nothing says that only this CTA counts here", None);
                continue;
            }
            let before = self.epochs[..number].iter().filter(|(other, ..)| other == param);
            let other = before
                .clone()
                .find(|(_, other, _)| other.is_some_and(|other| self.known.form(other) != form));
            if let Some((.., at)) = other {
                wrong(*param, *span, "this is another word than the CTA's", Some(*at));
            }
        }
    }

    /// Tickets and CTAs are counted in 31 bits.
    fn lengths(&self, kernel: &Kernel, sink: &mut Sink) {
        let limit = i128::from(i32::MAX)
            - kernel.launch.grid.iter().map(|&extent| i128::from(extent)).product::<i128>();
        for (word, end, _) in &self.lists {
            let most = self.known.interval(&self.known.form(*end)).hi;
            if most.is_none_or(|most| most > limit) {
                sink.push(
                    Diagnostic::error(Code::E0215, "a work list of too many rounds")
                        .label(word.span, "tickets and CTAs together are counted in 31 bits")
                        .help(format!(
                            "say how many there are at most, up to {}: `scalar n : i32 in 0..=…`, or `min(n, …)`",
                            limit.max(0)
                        )),
                );
            }
        }
    }

    /// No two arrivals share a word: a CTA could come to the second before another one has come to the first.
    fn arrivals_apart(&self, kernel: &Kernel, sink: &mut Sink) {
        for &(word, _, number) in &self.all {
            let form = self.known.form(word.index);
            let is_always = |number| self.all.iter().any(|&(.., always)| always == number);
            // Of two that every CTA comes to, the later one.
            let mut others = self.counted.iter().enumerate();
            let other = others.find(|&(other_number, other)| {
                let grid = kernel.launch.grid;
                other.param == word.param
                    && other_number != number
                    && (other_number < number || !is_always(other_number))
                    && !is_apart(&self.known, &self.known.form(other.index), &form, grid)
            });
            if let Some((_, other)) = other {
                let name = &kernel.params[word.param].name;
                let message = format!("a word of `{name}` that counts two things");
                sink.push(
                    Diagnostic::error(Code::E0115, message)
                        .label(word.span, "CTAs arrive here, some of them before others do there")
                        .secondary(other.span, "and here it counts too")
                        .help("let each arrival have a word of its own"),
                );
            }
        }
    }

    /// Every CTA of the grid comes once to a work list, whose word nothing else touches.
    fn work_lists(&self, kernel: &Kernel, sink: &mut Sink) {
        let mut wrong = |at: Span, message: &str, label: &str, other: Option<(Span, &str)>| {
            let mut finding = Diagnostic::error(Code::E0115, message).label(at, label);
            if let Some((span, label)) = other {
                finding = finding.secondary(span, label);
            }
            sink.push(finding.help(
                "the word starts again at zero when each CTA has found no ticket left, once",
            ));
        };
        let lists = self.lists.iter().map(|(word, ..)| word);
        for word in lists.chain(&self.counted) {
            let param = &kernel.params[word.param];
            if param.words == Some(Words::Raised) {
                let message = format!("a word of `{}` that counts two things", param.name);
                wrong(word.span, &message, "signals raise this counter", None);
            }
        }
        for (number, (word, _, always)) in self.lists.iter().enumerate() {
            let form = self.known.form(word.index);
            if !always {
                let message = "a work list that not every CTA comes to once";
                wrong(word.span, message, "it stands in a loop or a choice", None);
            }
            let is_shared = |symbol: &Symbol| matches!(symbol, Symbol::Param(_));
            if !form.terms.keys().all(is_shared) {
                let message = "a work list that not all CTAs share";
                wrong(word.span, message, "this may be another word in another CTA", None);
            }
            let lists = self.lists.iter().take(number).map(|(other, ..)| other);
            let same = |other: &&Word| {
                let gap = self.known.form(other.index).plus(-1, &form);
                let apart = gap.and_then(|gap| gap.as_constant()).is_some_and(|gap| gap != 0);
                other.param == word.param && !apart
            };
            if let Some(other) = lists.chain(&self.counted).find(same) {
                let message = format!(
                    "a word of `{}` that counts two things",
                    kernel.params[word.param].name
                );
                wrong(
                    word.span,
                    &message,
                    "tickets are taken here",
                    Some((other.span, "and here it counts too")),
                );
            }
        }
    }
}

/// The number of CTAs that share a word is the one that is stated.
fn arrivals(kernel: &Kernel, known: &Knowledge<'_>, word: &Word, count: u32, sink: &mut Sink) {
    let form = known.form(word.index);
    let sharers = match arrivers(known, &form, kernel.launch.grid) {
        Some(own) => {
            let along = kernel.launch.grid.iter().zip(own);
            along.map(|(&extent, own)| u64::from(extent / own.max(1))).product()
        }
        None => {
            let wrong = |shares: &u64| *shares != u64::from(count);
            let Some(all) = known.shares(&form) else { return };
            all.into_iter().find(wrong).unwrap_or(u64::from(count))
        }
    };
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
    match form.terms.keys().collect::<Vec<_>>().as_slice() {
        [Symbol::Cta(0)] => "`cta.x`",
        [Symbol::Cta(1)] => "`cta.y`",
        [Symbol::Cta(_)] => "`cta.z`",
        _ => "index",
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
            | StmtKind::Pipe(PipeOp::Copy { source: access, .. })
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
            StmtKind::Role { body, .. } => self.block(body, at),
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
            | StmtKind::Outgoing(_)
            | StmtKind::Settle { .. }
            | StmtKind::Warpgroup(_)
            | StmtKind::Tensor(_)
            | StmtKind::Sync
            | StmtKind::Signal(_)
            | StmtKind::Await(_)
            | StmtKind::SyncCluster
            | StmtKind::SyncRole
            | StmtKind::Pipe(_)
            | StmtKind::GridWait
            | StmtKind::GridLaunch
            | StmtKind::Assert { .. }
            | StmtKind::Trace { .. }
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

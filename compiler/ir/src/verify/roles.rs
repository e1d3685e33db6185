//! R9 of roles: what runs side by side shares no warp and no buffer that one of them stores to.
//!
//! Assumes that roles stand at the top of a kernel. Guarantees (E0150) that the warps of roles of one region are
//! apart and are warps of the kernel, (E0155) that registers which roles ask for are there, and (E0153) that no role
//! loads from a buffer that another role of the region stores to, that two roles which change one buffer do so by one
//! operation, and that one role alone counts the words of a counter or an epoch. What one does ahead of the signal of a
//! counter and another behind its wait for that word is in order: E0174 makes the CTA one of those who are waited for. Two
//! roles may store to one buffer: that they store to other elements is the author's business, as it is between CTAs, and
//! the emulator's.

use std::collections::BTreeSet;

use kernel_dsl::diag::{Code, Diagnostic, Sink};
use kernel_dsl::source::Span;

use super::scalars::{Facts, Form, Knowledge};
use super::told::{Said, Waited, Worker};
use crate::kernel::{
    Kernel, Op, Outgoing, ParamId, Role, RoleId, Stmt, StmtKind, TileAccess, ValueId, WARPGROUP,
    Word, Words, copied, entry_registers,
};
use crate::ops::AtomicOp;

/// An access of a buffer.
struct Touch {
    param: ParamId,
    writes: bool,
    /// By an atomic operation.
    update: Option<AtomicOp>,
    /// A word of a counter or an epoch.
    is_word: bool,
    span: Span,
    /// Words that are raised behind it.
    said: Said,
    /// Words that its role has waited for ahead of it.
    told: BTreeSet<usize>,
}

impl Touch {
    /// True where one comes before the other.
    fn is_ordered(&self, other: &Touch) -> bool {
        let before = |a: &Touch, b: &Touch| !a.said.raised().is_disjoint(&b.told);
        before(self, other) || before(other, self)
    }
}

/// A role of a region with what it touches.
struct Member {
    role: RoleId,
    touches: Vec<Touch>,
}

pub(super) fn check(kernel: &Kernel, sink: &mut Sink) {
    budgets(kernel, sink);
    let mut region: Vec<Member> = Vec::new();
    let mut words = Raised { known: Knowledge::new(kernel), words: Vec::new() };
    for (number, stmt) in (0..).zip(&kernel.body) {
        let StmtKind::Role { role, body } = &stmt.kind else {
            region.clear();
            words.define(std::slice::from_ref(stmt));
            continue;
        };
        words.define(body);
        let by = Worker { number, elect: kernel.roles[*role].elect };
        let mut at_work = AtWork { words: &mut words, by, waited: Waited::default(), depth: 0 };
        let mut touches = Vec::new();
        at_work.collect(body, &mut touches);
        warps(kernel, *role, &region, sink);
        let member = Member { role: *role, touches };
        region.iter().for_each(|other| buffers(kernel, other, &member, sink));
        region.push(member);
    }
}

/// Register budgets: whole warpgroups, in the last region, and together no more than the CTA starts with.
fn budgets(kernel: &Kernel, sink: &mut Sink) {
    let with_budget = |stmt: &Stmt| {
        let StmtKind::Role { role, .. } = &stmt.kind else { return None };
        kernel.roles.get(*role).filter(|role| role.registers.is_some())
    };
    let refuse = |role: &Role, why: String, help: &str| {
        Diagnostic::error(Code::E0155, format!("the registers of `{}`", role.name))
            .label(role.span, why)
            .help(help)
    };
    let entry = entry_registers(kernel.launch.threads(), kernel.launch.min_ctas);
    let mut others = kernel.launch.warps;
    let mut needed: u32 = 0;
    let mut last = None;
    for (at, stmt) in kernel.body.iter().enumerate() {
        let Some(role) = with_budget(stmt) else { continue };
        if !(role.first | role.warps).is_multiple_of(WARPGROUP) {
            let why = format!("warps {} are no whole groups of {WARPGROUP}", role.range());
            sink.push(refuse(role, why, "four warps change their registers together"));
            return;
        }
        let is_role = |stmt: &Stmt| matches!(stmt.kind, StmtKind::Role { .. });
        if let Some(after) = kernel.body[at..].iter().find(|stmt| !is_role(stmt)) {
            let help = "let the roles with budgets be the end of the kernel";
            sink.push(
                refuse(role, "its warps go on after it".to_owned(), help)
                    .secondary(after.span, "all warps run this"),
            );
            return;
        }
        others = others.saturating_sub(role.warps);
        needed = needed.saturating_add(role.registers.unwrap_or(0).saturating_mul(role.warps));
        last = Some(role);
    }
    let Some(role) = last else { return };
    needed = needed.saturating_add(others.saturating_mul(entry));
    let there = entry.saturating_mul(kernel.launch.warps);
    if needed > there {
        let [needed, there] = [needed, there].map(|n| n.saturating_mul(crate::distribution::LANES));
        let why = format!(
            "all warps together would have {needed} registers of the {there} that the CTA starts with"
        );
        let help = "let other roles have less: a warpgroup that only loads needs 24 to 40";
        sink.push(
            refuse(role, why, help)
                .secondary(kernel.span, format!("{entry} registers a thread at the entry")),
        );
    }
}

/// Words of counters that signals raise, by number.
struct Raised<'k> {
    known: Knowledge<'k>,
    words: Vec<(ParamId, Form)>,
}

impl Raised<'_> {
    /// The number of a word, which is that of the same position.
    fn number(&mut self, param: ParamId, index: Option<ValueId>) -> Option<usize> {
        let form = self.known.form(index?);
        if self.known.param(param).words != Some(Words::Raised) {
            return None;
        }
        let word = (param, form);
        let known = self.words.iter().position(|other| *other == word);
        Some(known.unwrap_or_else(|| {
            self.words.push(word);
            self.words.len() - 1
        }))
    }

    fn define(&mut self, stmts: &[Stmt]) {
        for stmt in stmts {
            match &stmt.kind {
                StmtKind::Def { results, op } => self.known.define(results, op, &Facts::new()),
                StmtKind::For { var, start, end, step, .. } => {
                    self.known.bind_loop(*var, *start, *end, *step);
                }
                _ => {}
            }
            for body in stmt.kind.bodies() {
                self.define(body);
            }
        }
    }
}

/// A role whose statements are gone through.
struct AtWork<'a, 'k> {
    words: &'a mut Raised<'k>,
    by: Worker,
    waited: Waited,
    /// Loops and choices around this place.
    depth: u32,
}

impl AtWork<'_, '_> {
    fn collect(&mut self, stmts: &[Stmt], found: &mut Vec<Touch>) {
        for stmt in stmts {
            self.orders(&stmt.kind, found);
            self.touch(&stmt.kind, found);
            self.depth += 1;
            for body in stmt.kind.bodies() {
                self.collect(body, found);
            }
            self.depth -= 1;
        }
    }

    /// What every path comes to: meetings of the role, signals and waits.
    fn orders(&mut self, kind: &StmtKind, found: &mut [Touch]) {
        if self.depth > 0 {
            return;
        }
        let role = Some(self.by.number);
        match kind {
            StmtKind::SyncRole => found.iter_mut().for_each(|touch| touch.said.meet(role)),
            StmtKind::Await(wait) => {
                found.iter_mut().for_each(|touch| touch.said.meet(role));
                let index = wait.index.first().copied().flatten();
                if let Some(word) = self.words.number(wait.param, index) {
                    self.waited.wait(word, role);
                }
            }
            StmtKind::Signal(signal) => {
                let index = signal.index.first().copied();
                if let Some(word) = self.words.number(signal.param, index) {
                    let by = Some(self.by);
                    found.iter_mut().for_each(|touch| touch.said.signal(word, by));
                }
            }
            _ => {}
        }
    }

    fn touch(&self, kind: &StmtKind, found: &mut Vec<Touch>) {
        let role = Some(self.by.number);
        // A copy goes on behind its statement, and no wait and no meeting ends it.
        let goes_on = matches!(kind, StmtKind::Outgoing(_)) || copied(kind).is_some();
        let touch = |param, writes, update, is_word, span| {
            let said = Said::new(role.filter(|_| !goes_on));
            let told = if goes_on { BTreeSet::new() } else { self.waited.words(role) };
            Touch { param, writes, update, is_word, span, said, told }
        };
        let mut add = |access: &TileAccess, writes: bool, update: Option<AtomicOp>| {
            let param = access.storage.param();
            found.extend(param.map(|param| touch(param, writes, update, false, access.span)));
        };
        if let StmtKind::Def { op: Op::ArriveLast { word, .. }, .. }
        | StmtKind::Advance { word }
        | StmtKind::For { tickets: Some(word), .. } = kind
        {
            let Word { param, span, .. } = *word;
            found.push(touch(param, true, None, true, span));
        } else if let StmtKind::Def { op: Op::Load { access, .. }, .. } = kind {
            add(access, false, None);
        } else if let StmtKind::Store { access, update, .. } = kind {
            add(access, true, *update);
        } else if let StmtKind::Def { op: Op::Atomic { op, access, .. }, .. } = kind {
            add(access, true, Some(*op));
        } else if let StmtKind::Outgoing(Outgoing::Copy { dest, .. }) = kind {
            add(dest, true, None);
        } else if let Some((source, _)) = copied(kind) {
            add(source, false, None);
        }
    }
}

fn warps(kernel: &Kernel, role: RoleId, region: &[Member], sink: &mut Sink) {
    let own = &kernel.roles[role];
    if own.first.saturating_add(own.warps) > kernel.launch.warps {
        sink.push(
            Diagnostic::error(Code::E0150, format!("`{}` has warps that do not exist", own.name))
                .label(own.span, format!("warps {}", own.range()))
                .secondary(kernel.span, format!("launched with {} warps", kernel.launch.warps))
                .help("launch more warps, or give the role others"),
        );
    }
    let overlaps = |other: &&Member| {
        let other = &kernel.roles[other.role];
        own.first < other.first.saturating_add(other.warps)
            && other.first < own.first.saturating_add(own.warps)
    };
    if let Some(other) = region.iter().find(overlaps) {
        let other = &kernel.roles[other.role];
        sink.push(
            Diagnostic::error(
                Code::E0150,
                format!("`{}` and `{}` share warps and run side by side", other.name, own.name),
            )
            .label(own.span, format!("warps {}", own.range()))
            .secondary(other.span, format!("warps {}", other.range()))
            .help("give them other warps, or put a statement between the two: `sync;`"),
        );
    }
}

/// The finding for words that two roles count.
fn words(kernel: &Kernel, a: &Touch, b: &Touch) -> Diagnostic {
    let param = &kernel.params[a.param];
    Diagnostic::error(Code::E0153, format!("two roles count words of `{}`", param.name))
        .label(b.span, "nothing orders this")
        .secondary(a.span, "counted here, by a role that runs beside it")
        .secondary(param.span, "declared here")
        .help("let one role count them, or give each role words of its own")
}

/// The finding for elements that two roles change by different operations.
fn mixed(kernel: &Kernel, a: &Touch, b: &Touch) -> Diagnostic {
    let param = &kernel.params[a.param];
    Diagnostic::error(
        Code::E0153,
        format!("two roles change `{}` by different operations", param.name),
    )
    .label(b.span, "nothing orders this")
    .secondary(a.span, "changed here, by a role that runs beside it")
    .secondary(param.span, "declared here")
    .help("let one role do both, or end the roles and put `sync;` between")
}

fn buffers(kernel: &Kernel, first: &Member, second: &Member, sink: &mut Sink) {
    for a in &first.touches {
        // What ranks write for each other is read after a wait, which another pass proves.
        if kernel.params[a.param].is_inbox() {
            continue;
        }
        let clash = |b: &&Touch| {
            let words = a.is_word && b.is_word;
            let clashes = a.writes != b.writes || words || a.update != b.update;
            // Words of counters and epochs are no data that a signal hands over.
            a.param == b.param && clashes && (a.is_word || b.is_word || !a.is_ordered(b))
        };
        let Some(b) = second.touches.iter().find(clash) else { continue };
        if a.is_word && b.is_word {
            sink.push(words(kernel, a, b));
            return;
        }
        if a.writes && b.writes {
            sink.push(mixed(kernel, a, b));
            return;
        }
        let (store, load, of) = if a.writes { (a, b, second) } else { (b, a, first) };
        let (param, reader) = (&kernel.params[a.param], &kernel.roles[of.role].name);
        sink.push(
            Diagnostic::error(
                Code::E0153,
                format!("`{reader}` reads `{}` while another role may store to it", param.name),
            )
            .label(load.span, "nothing orders this read")
            .secondary(store.span, "stored to here, by a role that runs beside it")
            .secondary(param.span, "declared here")
            .help("let one role do both, or end the roles and put `sync;` between"),
        );
        return;
    }
}

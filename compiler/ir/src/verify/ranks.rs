//! R7 and R8 between ranks: what a rank stores to another one is read in order, and not overwritten too early.
//!
//! Assumes that all ranks launch the kernel the same number of times, in stream order, with words and epochs that
//! start at zero (the plan says so), and that a CTA of one rank is awaited by the CTA with the same index of the others,
//! which E0116 makes the reader of what it stored. Guarantees one protocol, which is the proof: in launch t each CTA
//! stores to slot t of the others, meets, raises its word of every rank by 1, waits until its words of all senders are
//! t + 1, reads slot t, and advances its epoch once. A sender that is a launch ahead writes another slot, since a ring
//! has two at least; it is not two ahead, because it has waited for this rank's launch t + 1, which began after launch t
//! had ended. Signals and waits stand outside of loops and choices, so each path has them. Any role may store, signal, or
//! wait: a launch ends when all its roles have, and a store and its signal meet, as a wait and its read do. A signal never
//! comes behind the wait for it, nor behind what a role gives at a barrier when it has waited.
//!
//! Where a signal goes to one rank, who tells whom is computed for each rank: a permutation, whose other end waits for
//! the one that tells it. On a cycle of L ranks a rank that has ended launch t - 1 knows that the rank it stores to has
//! ended launch t - L: each of the L - 1 ranks between has waited for the one before it. So a ring has L slots at least.

mod grid;
mod partner;
mod protocol;
mod turns;

use std::collections::BTreeMap;

use kernel_dsl::diag::{Code, Diagnostic, Sink};
use kernel_dsl::source::Span;

use super::buffers::tell_apart;
use super::scalars::{Facts, Form, Knowledge, Symbol};
pub(super) use grid::{arrivers, is_apart, sharers};

use crate::kernel::{
    Await, AxisIndex, Kernel, Op, ParamId, PipeOp, RoleId, Signal, Stmt, StmtKind, Storage,
    TileAccess, ValueId, Word, Words,
};
use crate::ops::BinaryOp;
use turns::Turns;

pub(super) fn check(kernel: &Kernel, sink: &mut Sink) {
    let raised = kernel.params.iter().any(|param| param.words == Some(Words::Raised));
    let world = match kernel.launch.world {
        Some(world) => world,
        None if raised => 1,
        None => return,
    };
    let mut survey = Survey {
        known: Knowledge::new(kernel),
        world,
        grid: kernel.launch.grid,
        ops: BTreeMap::new(),
        facts: Facts::new(),
        at: 0,
        depth: 0,
        role: None,
        regions: 0,
        syncs: Vec::new(),
        signals: Vec::new(),
        awaits: Vec::new(),
        of_grid: OfGrid::default(),
        advances: Vec::new(),
        stores: Vec::new(),
        loads: Vec::new(),
        turns: Turns::default(),
    };
    survey.block(&kernel.body);
    grid::check(kernel, &survey, sink);
    if kernel.launch.world.is_some() {
        survey.in_one_way(kernel, sink);
        survey.published(kernel, sink);
        survey.awaited(kernel, sink);
        protocol::check(kernel, &survey, sink);
    }
    let mut waits = survey.awaits.iter().chain(&survey.of_grid.awaits);
    if !kernel.launch.resident
        && let Some((_, wait)) = waits.next()
    {
        sink.push(
            Diagnostic::error(
                Code::E0135,
                "this kernel waits for others and may not be there whole",
            )
            .label(wait.span, "a CTA that waits here keeps its place on the device")
            .secondary(kernel.span, "its launch does not say `resident: all`")
            .help("write `resident: all` in `launch`"),
        );
    }
}

/// The number of a statement of the outermost block, and whether something stands inside of a loop or a choice there.
#[derive(Debug, Clone, Copy)]
struct At {
    number: usize,
    inside: bool,
    /// The role that does it.
    role: Option<RoleId>,
    /// The statement of the kernel in whose turn the roles of a region run.
    region: usize,
}

impl At {
    /// True where one runs beside the other.
    fn is_beside(self, other: At) -> bool {
        let roles = self.role.is_some() && other.role.is_some();
        roles && self.region == other.region && self.role != other.role
    }
}

/// A load of an epoch: the buffer and the position of the word.
type Epoch = (ParamId, Form);

/// What CTAs of one rank tell each other.
#[derive(Default)]
struct OfGrid<'k> {
    signals: Vec<(At, &'k Signal)>,
    awaits: Vec<(At, &'k Await)>,
}

/// What concerns ranks, in the order of the statements.
struct Survey<'k> {
    known: Knowledge<'k>,
    /// Ranks of the launch.
    world: u32,
    grid: [u32; 3],
    /// How each value is made.
    ops: BTreeMap<ValueId, &'k Op>,
    facts: Facts,
    at: usize,
    depth: u32,
    role: Option<RoleId>,
    /// Regions of roles so far, and what stands between them.
    regions: usize,
    /// Where all threads meet, or those of a role, on every path.
    syncs: Vec<At>,
    /// Of ranks.
    signals: Vec<(At, &'k Signal)>,
    awaits: Vec<(At, &'k Await)>,
    of_grid: OfGrid<'k>,
    /// Words of epochs that are advanced.
    advances: Vec<&'k Word>,
    /// Stores to other ranks.
    stores: Vec<(At, &'k TileAccess)>,
    /// Reads of what other ranks write, by loads and by copies. A prefetch hands no value on.
    loads: Vec<(At, &'k TileAccess)>,
    turns: Turns,
}

impl<'k> Survey<'k> {
    fn block(&mut self, stmts: &'k [Stmt]) {
        for stmt in stmts {
            if self.depth == 0 {
                self.at += 1;
                let is_role = matches!(stmt.kind, StmtKind::Role { .. });
                self.regions += usize::from(self.role.is_none() && !is_role);
                if !is_role {
                    self.turns.begin(self.here());
                }
            }
            self.stmt(stmt);
        }
    }

    fn inner(&mut self, stmts: &'k [Stmt]) {
        self.depth += 1;
        self.block(stmts);
        self.depth -= 1;
    }

    fn here(&self) -> At {
        let (number, inside) = (self.at, self.depth > 0);
        At { number, inside, role: self.role, region: self.regions }
    }

    fn meet(&mut self) {
        if self.depth == 0 {
            self.syncs.push(self.here());
        }
    }

    fn stmt(&mut self, stmt: &'k Stmt) {
        match &stmt.kind {
            StmtKind::Def { results, op } => {
                self.known.define(results, op, &self.facts);
                self.ops.extend(results.iter().map(|&result| (result, op)));
                if let Op::Load { access, .. } = op
                    && self.is_inbox(access.storage)
                {
                    self.loads.push((self.here(), access));
                }
            }
            StmtKind::Store { access, .. } => {
                if access.storage.is_of_ranks() {
                    self.stores.push((self.here(), access));
                }
            }
            StmtKind::CopyAsync { source, .. } => self.copy(source),
            StmtKind::Pipe(op) => {
                self.turns.pipe(self.at, op);
                if let PipeOp::Copy { source, .. } = op {
                    self.copy(source);
                }
            }
            StmtKind::Sync | StmtKind::SyncRole => self.meet(),
            StmtKind::Signal(signal) => {
                let here = self.here();
                let of_ranks = self.known.param(signal.param).is_flag();
                let all = if of_ranks { &mut self.signals } else { &mut self.of_grid.signals };
                all.push((here, signal));
            }
            StmtKind::Advance { word } => self.advances.push(word),
            StmtKind::Await(wait) => {
                let here = self.here();
                let of_ranks = self.known.param(wait.param).is_flag();
                let all = if of_ranks { &mut self.awaits } else { &mut self.of_grid.awaits };
                all.push((here, wait));
                self.meet();
            }
            StmtKind::For { var, start, end, step, tickets: _, body } => {
                self.known.bind_loop(*var, *start, *end, *step);
                self.inner(body);
            }
            StmtKind::Role { role, body } => {
                self.role = Some(*role);
                self.block(body);
                self.role = None;
            }
            StmtKind::If { then_body, else_body, .. } => {
                self.inner(then_body);
                self.inner(else_body);
            }
            StmtKind::SetVar { .. }
            | StmtKind::Prefetch { .. }
            | StmtKind::EmptyGroup
            | StmtKind::Outgoing(_)
            | StmtKind::Settle { .. }
            | StmtKind::Warpgroup(_)
            | StmtKind::Tensor(_)
            | StmtKind::SyncCluster
            | StmtKind::GridWait
            | StmtKind::GridLaunch
            | StmtKind::Assert { .. }
            | StmtKind::Trace { .. }
            | StmtKind::Printf { .. } => {}
        }
    }

    fn copy(&mut self, source: &'k TileAccess) {
        if self.is_inbox(source.storage) {
            self.loads.push((self.here(), source));
        }
    }

    /// The word of an epoch that a value has been read from, one for each CTA.
    fn epoch(&self, kernel: &Kernel, value: ValueId) -> Option<Epoch> {
        let Op::Load { access, .. } = self.ops.get(&value)? else { return None };
        let Storage::Buffer(param) = access.storage else { return None };
        if kernel.params[param].words != Some(Words::Epoch) {
            return None;
        }
        let [AxisIndex::At(at)] = access.index.as_slice() else { return None };
        let form = self.known.form(*at);
        // Each launch counts in the word that it has read.
        let mut advances = self.advances.iter().filter(|word| word.param == param).peekable();
        let counts = advances.peek().is_some()
            && advances.all(|word| self.known.form(word.index) == form)
            && form.terms.keys().all(|symbol| matches!(symbol, Symbol::Cta(_)));
        let own = tell_apart(&self.known, std::slice::from_ref(&form), kernel.launch.grid);
        (own && counts).then_some((param, form))
    }

    /// The value to which 1 is added.
    fn one_less(&self, value: ValueId) -> Option<ValueId> {
        let Op::Binary { op: BinaryOp::Add, a, b } = self.ops.get(&value)? else { return None };
        let one = |value: ValueId| self.known.form(value).as_constant() == Some(1);
        match (one(*a), one(*b)) {
            (false, true) => Some(*a),
            (true, false) => Some(*b),
            (_, _) => None,
        }
    }

    fn is_inbox(&self, storage: Storage) -> bool {
        storage.param().is_some_and(|param| self.known.param(param).is_inbox())
    }

    /// Where a store is published: by the first signal behind a meeting behind it, of its threads with the one that
    /// signals.
    fn signal_of(&self, store: At, access: &TileAccess) -> Option<&(At, &'k Signal)> {
        let is_published = |signal: At| {
            let alone = |role: RoleId| self.known.role(role).elect && signal.role == Some(role);
            let between = |sync: &&At| store.number < sync.number && sync.number < signal.number;
            let mut syncs = self.syncs.iter().filter(between);
            store.number < signal.number
                && (store.role.is_some_and(alone)
                    || syncs.any(|sync| match sync.role {
                        None => true,
                        met => store.role == met && signal.role == met,
                    }))
        };
        let reaches = |signal: &Signal| match (access.storage.rank(), signal.to) {
            (_, None) => true,
            (Some(stored), Some(told)) => self.is_one_rank(stored, told),
            (None, Some(_)) => false,
        };
        self.signals.iter().find(|(at, signal)| is_published(*at) && reaches(signal))
    }

    /// Stores at a multicast address and at those of ranks are in no order.
    fn in_one_way(&self, kernel: &Kernel, sink: &mut Sink) {
        let is_multicast = |access: &TileAccess| matches!(access.storage, Storage::Multicast(..));
        for (_, access) in self.stores.iter().filter(|(_, access)| is_multicast(access)) {
            let other = self.stores.iter().find(|(_, other)| {
                other.storage.param() == access.storage.param() && !is_multicast(other)
            });
            let Some((_, other)) = other else { continue };
            let name = kernel.name_of(access.storage);
            sink.push(
                Diagnostic::error(
                    Code::E0137,
                    format!("`{name}` is stored to at a multicast address and at that of a rank"),
                )
                .label(access.span, "to all ranks at once")
                .secondary(other.span, "to single ranks; nothing orders the two")
                .help("store to it by `multimem.store` alone, or not at all by it"),
            );
        }
    }

    fn published(&self, kernel: &Kernel, sink: &mut Sink) {
        let mut flags: BTreeMap<ParamId, &Signal> = BTreeMap::new();
        for &(at, access) in &self.stores {
            if let Some(&(_, signal)) = self.signal_of(at, access) {
                let first =
                    access.storage.param().map(|inbox| *flags.entry(inbox).or_insert(signal));
                if let Some(first) = first.filter(|first| first.param != signal.param) {
                    sink.push(two_flags(kernel, access, [first, signal]));
                }
                continue;
            }
            let name = kernel.name_of(access.storage);
            let mut diagnostic = Diagnostic::error(
                Code::E0132,
                format!("what is stored to `{name}` of another rank is not published"),
            );
            let later = |signal: &At| signal.number > at.number && !signal.is_beside(at);
            diagnostic = match self.signals.iter().find(|(signal, _)| later(signal)) {
                Some((_, Signal { span, to: Some(_), .. })) => diagnostic
                    .label(access.span, "threads store this")
                    .secondary(
                        *span,
                        "this tells one rank; it is another one, or no `sync` stands between",
                    )
                    .help("write `sync;` before the signal, and tell the rank that was stored to"),
                Some((_, signal)) => diagnostic
                    .label(access.span, "threads store this")
                    .secondary(signal.span, "one thread signals, and no `sync` stands between")
                    .help("write `sync;` before the signal"),
                None => diagnostic.label(access.span, "no signal comes after this").help(
                    "write `sync;` and `signal f@peer(*)[i, rank] add 1 order release scope sys;`",
                ),
            };
            sink.push(diagnostic);
        }
    }

    /// The flags that publish all stores to an inbox.
    fn flag_of(&self, param: ParamId) -> Option<ParamId> {
        let mut flags = self
            .stores
            .iter()
            .filter(|(_, access)| access.storage.param() == Some(param))
            .map(|&(at, access)| self.signal_of(at, access).map(|(_, signal)| signal.param));
        let first = flags.next()??;
        flags.all(|flag| flag == Some(first)).then_some(first)
    }

    fn awaited(&self, kernel: &Kernel, sink: &mut Sink) {
        for &(at, access) in &self.loads {
            let Some(param) = access.storage.param() else { continue };
            if let Storage::Peer(..) | Storage::Peers(_) = access.storage {
                let label = "this is memory of another rank, and words say what is in the own one";
                sink.push(unordered(kernel, access, None, label));
                continue;
            }
            let Some(flag) = self.flag_of(param) else {
                if !self.stores.iter().any(|(_, store)| store.storage.param() == Some(param)) {
                    sink.push(unordered(kernel, access, None, "no store of this kernel fills it"));
                }
                continue;
            };
            let to_one = self.signals.iter().find(|(_, s)| s.param == flag && s.to.is_some());
            if let (Storage::Multicast(..), Some((_, signal))) = (access.storage, to_one) {
                let label = "this reads the memory of all ranks, and one of them has told this one";
                sink.push(unordered(kernel, access, Some(signal.span), label));
                continue;
            }
            let mut waits = self.awaits.iter().filter(|(_, wait)| wait.param == flag);
            let is_awaited = |wait: At| {
                let met = |sync: &At| {
                    sync.role.is_none() && wait.number < sync.number && sync.number < at.number
                };
                wait.number < at.number
                    && (wait.role.is_none() || wait.role == at.role || self.syncs.iter().any(met))
            };
            if waits.any(|(wait, _)| is_awaited(*wait)) {
                continue;
            }
            let signal = self.signals.iter().find(|(_, signal)| signal.param == flag);
            let signal = signal.map(|(_, signal)| signal.span);
            let label = "no wait for every sender stands before this";
            sink.push(unordered(kernel, access, signal, label));
        }
    }
}

/// Who reads an inbox has waited for one flag, and the ring covers how far that one lets a sender be ahead.
fn two_flags(kernel: &Kernel, access: &TileAccess, [first, other]: [&Signal; 2]) -> Diagnostic {
    let name = kernel.name_of(access.storage);
    Diagnostic::error(Code::E0134, format!("two flags say that `{name}` is written"))
        .label(access.span, "published by another flag than what is stored there before")
        .secondary(first.span, "the first flag")
        .secondary(other.span, "the other one")
        .help("raise one flag behind all stores to it, or store to another buffer")
}

fn unordered(
    kernel: &Kernel,
    access: &TileAccess,
    signal: Option<Span>,
    label: &str,
) -> Diagnostic {
    let name = kernel.name_of(access.storage);
    let diagnostic = Diagnostic::error(
        Code::E0133,
        format!("`{name}` is read while other ranks may not have written it"),
    )
    .label(access.span, label)
    .secondary(kernel.declaration_of(access.storage), "declared `peer`");
    let diagnostic = match signal {
        Some(signal) => diagnostic.secondary(signal, "this signal says that it is written"),
        None => diagnostic,
    };
    diagnostic.help("write `await f[i, each] until t + 1 order acquire scope sys;` before it")
}

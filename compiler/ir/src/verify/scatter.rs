//! No store by an index tile writes an element twice.
//!
//! Assumes that contracts on inputs hold. Guarantees that the entries of an index tile that a store uses, as
//! far as they are not negative, are pairwise distinct; with two index tiles one of them is enough. What it
//! knows: `iota`, a load of `distinct` data, a `select` against a negative value, the running count of a
//! condition where that condition holds, and sums and products with scalars. Anything else is a finding, which
//! the author may waive: the emulator still reports two entries that meet.

use std::collections::BTreeMap;

use kernel_abi::DType;
use kernel_dsl::diag::{Code, Diagnostic, Sink};

use super::scalars::{Facts, Knowledge};
use crate::kernel::{AxisIndex, Kernel, Op, Stmt, StmtKind, TileAccess, ValueId};
use crate::ops::{BinaryOp, CompareOp};

pub(super) fn check(kernel: &Kernel, sink: &mut Sink) {
    let known = Knowledge::new(kernel);
    let mut walk = Walk { kernel, known, facts: Facts::new(), ops: BTreeMap::new(), sink };
    walk.block(&kernel.body);
}

/// The entries of a tile that are not negative are pairwise distinct, but for one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entries {
    except: Option<i64>,
}

impl Entries {
    const DISTINCT: Entries = Entries { except: None };
}

struct Walk<'a> {
    kernel: &'a Kernel,
    known: Knowledge<'a>,
    facts: Facts,
    ops: BTreeMap<ValueId, &'a Op>,
    sink: &'a mut Sink,
}

impl<'a> Walk<'a> {
    fn block(&mut self, stmts: &'a [Stmt]) {
        for stmt in stmts {
            self.stmt(stmt);
        }
    }

    fn under(&mut self, facts: Facts, body: &'a [Stmt]) {
        let depth = self.facts.len();
        self.facts.extend(facts);
        self.block(body);
        self.facts.truncate(depth);
    }

    fn stmt(&mut self, stmt: &'a Stmt) {
        match &stmt.kind {
            StmtKind::Def { results, op } => {
                self.known.define(results, op, &self.facts);
                self.ops.extend(results.iter().map(|&result| (result, op)));
            }
            // Elements may change twice.
            StmtKind::Store { update: Some(_), .. } => {}
            StmtKind::Store { access, update: None, .. } => self.store(access),
            StmtKind::Role { body, .. } => self.block(body),
            StmtKind::For { var, start, end, step, tickets: _, body } => {
                let facts = self.known.bind_loop(*var, *start, *end, *step);
                self.under(facts, body);
            }
            StmtKind::If { cond, then_body, else_body } => {
                self.under(self.known.path_facts(*cond, true), then_body);
                self.under(self.known.path_facts(*cond, false), else_body);
            }
            StmtKind::SetVar { .. }
            | StmtKind::Advance { .. }
            | StmtKind::Prefetch { .. }
            | StmtKind::CopyAsync { .. }
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

    fn store(&mut self, access: &TileAccess) {
        let tiles: Vec<ValueId> = access
            .index
            .iter()
            .filter_map(|index| match index {
                AxisIndex::Gather(tile) | AxisIndex::Along(tile) => Some(*tile),
                AxisIndex::At(_) | AxisIndex::Range { .. } | AxisIndex::New => None,
            })
            .collect();
        let several = |tile: &ValueId| self.kernel.values[*tile].shape.iter().any(|&e| e > 1);
        if !tiles.iter().any(several)
            || tiles.iter().any(|&tile| self.entries(tile) == Some(Entries::DISTINCT))
        {
            return;
        }
        let name = self.kernel.name_of(access.storage);
        let mut diagnostic = Diagnostic::error(
            Code::E0404,
            format!("this store may write an element of `{name}` twice"),
        )
        .label(access.span, "two entries of the index tile may name one place");
        if let Some(&first) = tiles.first() {
            let tile = &self.kernel.values[first];
            diagnostic = diagnostic.secondary(tile.span, "nothing says that these are distinct");
        }
        self.sink.push(diagnostic.help(
            "declare the data `distinct` (`in 0..N distinct except -1`), or write `// allow E0404: why` before the \
             store: the proof then lists it as trusted, and the emulator still checks it",
        ));
    }

    /// Whether the entries are distinct; `None` where that is not known.
    fn entries(&self, tile: ValueId) -> Option<Entries> {
        let value = &self.kernel.values[tile];
        match self.ops.get(&tile)? {
            Op::Iota => Some(Entries::DISTINCT),
            Op::Relayout { x } | Op::Slice { x, .. } => self.entries(*x),
            Op::Load { access, other, .. } => self.loaded(access, *other),
            Op::Select { cond, a, b } => {
                let (when, x, truth) = match (self.is_negative(*a), self.is_negative(*b)) {
                    (_, true) => (*cond, *a, true),
                    (true, false) => (*cond, *b, false),
                    (false, false) => return None,
                };
                if self.shape(x) != value.shape {
                    return None;
                }
                if truth && self.counts(x, when) {
                    return Some(Entries::DISTINCT);
                }
                let Entries { except } = self.entries(x)?;
                let left_out = except.is_some_and(|v| self.excludes(when, truth, x, v));
                Some(if left_out { Entries::DISTINCT } else { Entries { except } })
            }
            Op::Binary { op, a, b } => {
                // A scalar that is added to, or a positive one that multiplies, keeps entries apart; entries
                // below zero must not come above it by that.
                let steps = |x: &ValueId, by: &ValueId| {
                    let keeps = match op {
                        BinaryOp::Add | BinaryOp::Sub => true,
                        BinaryOp::Mul => {
                            let by = self.known.interval(&self.known.form(*by));
                            by.lo.is_some_and(|lo| lo > 0)
                        }
                        BinaryOp::Div
                        | BinaryOp::Rem
                        | BinaryOp::Min
                        | BinaryOp::Max
                        | BinaryOp::And
                        | BinaryOp::Or
                        | BinaryOp::Xor
                        | BinaryOp::Shl
                        | BinaryOp::Shr => false,
                    };
                    let whole =
                        self.known.interval(&self.known.form(*x)).lo.is_some_and(|lo| lo >= 0);
                    keeps
                        && whole
                        && self.kernel.values[*by].is_scalar()
                        && self.does_not_wrap(tile)
                };
                let found = if steps(a, b) {
                    self.entries(*a)
                } else if *op != BinaryOp::Sub && steps(b, a) {
                    self.entries(*b)
                } else {
                    None
                };
                found.filter(|entries| *entries == Entries::DISTINCT)
            }
            Op::Const(_)
            | Op::CtaIndex(_)
            | Op::ClusterIndex(_)
            | Op::ScalarParam(_)
            | Op::Unary { .. }
            | Op::Compare { .. }
            | Op::Fma { .. }
            | Op::Inline { .. }
            | Op::Convert { .. }
            | Op::Splat { .. }
            | Op::Expand { .. }
            | Op::ReadVar { .. }
            | Op::Reduce { .. }
            | Op::Argmax { .. }
            | Op::Contract { .. }
            | Op::Mma { .. }
            | Op::Scan { .. }
            | Op::ArriveLast { .. }
            | Op::Atomic { .. }
            | Op::Concat { .. } => None,
        }
    }

    fn shape(&self, value: ValueId) -> &[u32] {
        &self.kernel.values[value].shape
    }

    /// A piece of a buffer whose values are declared distinct.
    fn loaded(&self, access: &TileAccess, other: Option<ValueId>) -> Option<Entries> {
        let distinct = self.kernel.params[access.storage.param()?].kept_contract()?.distinct?;
        let plain = access.index.iter().all(|index| match index {
            AxisIndex::At(_) | AxisIndex::Range { .. } | AxisIndex::New => true,
            AxisIndex::Gather(_) | AxisIndex::Along(_) => false,
        });
        let absent = other.is_none_or(|other| self.is_negative(other));
        (plain && absent).then_some(Entries { except: distinct.except.filter(|&v| v >= 0) })
    }

    fn is_negative(&self, value: ValueId) -> bool {
        self.known.interval(&self.known.form(value)).hi.is_some_and(|hi| hi < 0)
    }

    /// True where the arithmetic that makes the tile stays inside its type, so that it is the integer's.
    fn does_not_wrap(&self, tile: ValueId) -> bool {
        self.kernel.values[tile].dtype == DType::I32 && self.known.is_linear(tile)
    }

    /// True for `scan.add(i32(cond), …)`: where `cond` holds, every element is another number.
    fn counts(&self, x: ValueId, cond: ValueId) -> bool {
        let Some(Op::Scan { x: counted, .. }) = self.ops.get(&x) else { return false };
        let Some(Op::Convert { x: flag }) = self.ops.get(counted) else { return false };
        *flag == cond && self.shape(x).len() == 1
    }

    /// True where the condition being `truth` says that `x` is not `value`.
    fn excludes(&self, cond: ValueId, truth: bool, x: ValueId, value: i64) -> bool {
        match self.ops.get(&cond) {
            Some(Op::Compare { op, a, b }) if *a == x => {
                let bound = self.known.form(*b).as_constant();
                let Some(bound) = bound.and_then(|b| i64::try_from(b).ok()) else { return false };
                let holds = match op {
                    CompareOp::Eq => value == bound,
                    CompareOp::Ne => value != bound,
                    CompareOp::Lt => value < bound,
                    CompareOp::Le => value <= bound,
                    CompareOp::Gt => value > bound,
                    CompareOp::Ge => value >= bound,
                };
                holds != truth
            }
            Some(Op::Binary { op: BinaryOp::And, a, b }) if truth => {
                self.excludes(*a, truth, x, value) || self.excludes(*b, truth, x, value)
            }
            Some(_) | None => false,
        }
    }
}

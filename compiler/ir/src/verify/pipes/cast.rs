//! Pipelines whose slots copies fill in all CTAs of a cluster.
//!
//! Assumes that what each role does follows from its rank, see [`rounds`](super::rounds), and that in each CTA indices go
//! round. Who is done with a slot arrives in all CTAs, so who opens an index there has waited for all that used its slot
//! before. Guarantees (E0157) that all CTAs handle equally many indices; with [`exact`](super::exact), that the copies
//! of all CTAs bring each of them the bytes that it announces; that no two of them write one element; and that the tiles
//! are filled by such copies alone, and read where their consumers wait.

use std::collections::{BTreeMap, BTreeSet};

use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::rounds::{Act, Cast, Rounds, To};
use crate::kernel::{BarrierId, Kernel, Op, PipeOp, RoleId, SmemId, Stmt, StmtKind, each_access};

/// Copies into one index that are compared with each other.
pub(super) const MAX_CASTS: usize = 4096;

fn wrong(span: Span, why: String) -> Diagnostic {
    Diagnostic::error(Code::E0157, "slots that all CTAs of a cluster fill do not go round")
        .label(span, why)
}

/// What is wrong where rounds are not known.
pub(super) fn unknown(kernel: &Kernel, barrier: BarrierId) -> Diagnostic {
    let why = "what is done at it does not follow from the rank in the cluster alone";
    wrong(kernel.barriers[barrier].span, why.to_owned()).help(
        "let indices, bounds of loops and conditions around its operations depend on constants and `cluster.rank`",
    )
}

/// By index, the bytes that copies of other CTAs bring to one.
pub(super) fn from_others(
    kernel: &Kernel,
    barrier: BarrierId,
    rank: i64,
    all: &[Rounds<'_>],
) -> BTreeMap<i64, u64> {
    let mut bytes = BTreeMap::new();
    if !kernel.barriers[barrier].everywhere {
        return bytes;
    }
    for (_, rounds) in (0..).zip(all).filter(|(other, _)| *other != rank) {
        for event in rounds.roles.iter().flat_map(|role| &role.events) {
            if let Act::Fill { bytes: own, to } = event.act
                && event.barrier == barrier
                && to.reaches(rank)
            {
                let sum = bytes.entry(event.index).or_insert(0u64);
                *sum = sum.saturating_add(own);
            }
        }
    }
    bytes
}

/// What is wrong between the CTAs; `counts` are the indices that each handles.
pub(super) fn check(
    kernel: &Kernel,
    barrier: BarrierId,
    all: &[Rounds<'_>],
    counts: &[i64],
) -> Option<Diagnostic> {
    let declared = &kernel.barriers[barrier];
    if !declared.everywhere {
        return None;
    }
    let first = counts.first().copied().unwrap_or(0);
    if let Some((rank, count)) = counts.iter().enumerate().find(|(_, count)| **count != first) {
        let why = format!("CTA {rank} handles {count} indices, and CTA 0 handles {first}");
        return Some(wrong(declared.span, why).help("let all CTAs go round equally often"));
    }
    let mut by_index: BTreeMap<i64, Vec<&Cast<'_>>> = BTreeMap::new();
    for rounds in all {
        for cast in rounds.cast.iter().filter(|cast| cast.barrier == barrier) {
            by_index.entry(cast.index).or_default().push(cast);
        }
    }
    let mut tiles = BTreeSet::new();
    for casts in by_index.values() {
        if let Some(last) = casts.get(MAX_CASTS) {
            let why =
                format!("more than {MAX_CASTS} copies into one index are too many to compare");
            return Some(wrong(last.span, why));
        }
        let is_there = |cast: &Cast<'_>| (0..all.len() as i64).any(|rank| cast.to.reaches(rank));
        if let Some(cast) = casts.iter().find(|cast| !is_there(cast)) {
            return Some(wrong(cast.span, "there is no such CTA in the cluster".to_owned()));
        }
        for (i, a) in casts.iter().enumerate() {
            tiles.extend(a.dest.storage.tile().map(|(tile, _)| tile));
            if let Some(b) = casts[..i].iter().find(|b| meet(kernel, a, b)) {
                let why = "this writes elements that another copy into the same index writes";
                return Some(
                    wrong(a.span, why.to_owned())
                        .secondary(b.span, "the other one")
                        .help("let each CTA bring a part of its own: `s@cta(*)@t[cluster.rank * n .. + n, :]`"),
                );
            }
        }
    }
    let mut uses = Uses { kernel, barrier, tiles: &tiles, role: None, found: None };
    uses.block(&kernel.body);
    uses.found
}

/// True unless two copies provably have no element of a CTA in common.
pub(super) fn meet(kernel: &Kernel, a: &Cast<'_>, b: &Cast<'_>) -> bool {
    if let (To::One(first), To::One(second)) = (a.to, b.to)
        && first != second
    {
        return false;
    }
    let tile = |cast: &Cast<'_>| cast.dest.storage.tile().map(|(tile, _)| tile);
    let Some(slots) = tile(a).map(|tile| i64::from(kernel.smem[tile].slots)) else { return true };
    if tile(a) != tile(b) || (a.slot - b.slot) % slots != 0 {
        return false;
    }
    if a.dest.axes != b.dest.axes {
        return true;
    }
    a.sides.iter().zip(&b.sides).all(|((a, m), (b, n))| a < &(b + n) && b < &(a + m))
}

/// Looks for other uses of tiles that are filled from all CTAs.
struct Uses<'a> {
    kernel: &'a Kernel,
    barrier: BarrierId,
    tiles: &'a BTreeSet<SmemId>,
    role: Option<RoleId>,
    found: Option<Diagnostic>,
}

impl Uses<'_> {
    fn block(&mut self, stmts: &[Stmt]) {
        for stmt in stmts {
            if let StmtKind::Role { role, body } = &stmt.kind {
                self.role = Some(*role);
                self.block(body);
                self.role = None;
                continue;
            }
            let declared = &self.kernel.barriers[self.barrier];
            let reads = matches!(
                stmt.kind,
                StmtKind::Def { op: Op::Load { .. }, .. }
                    | StmtKind::Warpgroup(_)
                    | StmtKind::Tensor(_)
                    | StmtKind::Outgoing(_)
            );
            let consumes = reads && self.role.is_some_and(|role| declared.to.contains(&role));
            let fills = matches!(
                stmt.kind,
                StmtKind::Pipe(PipeOp::Copy { barrier, .. }) if barrier == self.barrier
            );
            each_access(&stmt.kind, &mut |access| {
                let tile = access.storage.tile().map(|(tile, _)| tile);
                let is_ours = tile.is_some_and(|tile| self.tiles.contains(&tile));
                let is_own = access.storage.cta().is_none();
                if is_ours && !(is_own && (consumes || fills)) && self.found.is_none() {
                    let why = "this touches what other CTAs fill".to_owned();
                    self.found = Some(wrong(access.span, why).help(
                        "copies into the pipeline fill it, and the roles that wait for it read it",
                    ));
                }
            });
            for body in stmt.kind.bodies() {
                self.block(body);
            }
        }
    }
}

//! Shared memory that other CTAs of the cluster send to, and the barrier at which their bytes count.
//!
//! The barrier has one round, announced where it is made. Assumes that who sends what to whom follows from the rank in
//! the cluster, see [`rounds`](super::rounds). Guarantees (E0156) that each CTA gets no bytes and waits for none, or
//! gets the bytes that are announced and waits for them once in each role that reads them; that no two of the things
//! that are sent have an element in common; and that such a tile is touched by nothing but these sends and by loads
//! behind the wait. So it is written once, before it is read, and no CTA ends before what is sent to it has landed.

use std::collections::BTreeSet;

use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::rounds::{Act, Rounds, Sent};
use crate::kernel::{BarrierId, Kernel, PipeOp, SmemId, Stmt, StmtKind, TileAccess, each_access};

/// Sends of all CTAs that are compared with each other.
const MAX_SENT: usize = 4096;

fn wrong(span: Span, why: String) -> Diagnostic {
    Diagnostic::error(Code::E0156, "what CTAs send to each other does not add up").label(span, why)
}

/// Tiles that are sent to, each with the barrier at which its bytes count.
pub(in crate::verify) fn inboxes(kernel: &Kernel) -> Vec<(SmemId, BarrierId)> {
    let mut found = Vec::new();
    crate::kernel::each_pipe_op(&kernel.body, &mut |op, _| {
        if let PipeOp::Send { dest, barrier, .. } = op
            && kernel.barriers[*barrier].of_cluster
            && let Some((tile, _)) = dest.storage.tile()
            && !found.contains(&(tile, *barrier))
        {
            found.push((tile, *barrier));
        }
    });
    found
}

/// What is wrong with a barrier that other CTAs fill.
pub(super) fn check(
    kernel: &Kernel,
    barrier: BarrierId,
    all: &[Rounds<'_>],
    is_known: bool,
) -> Option<Diagnostic> {
    let declared = &kernel.barriers[barrier];
    if !is_known {
        let why = "who sends what to whom does not follow from the rank in the cluster alone";
        return Some(wrong(declared.span, why.to_owned()).help(
            "let conditions, loops and places around `copy.st_async` and its `wait` depend on constants and `cluster.rank`",
        ));
    }
    let own = |sent: &&Sent<'_>| sent.barrier == barrier;
    let sent: Vec<&Sent<'_>> = all.iter().flat_map(|rounds| &rounds.sent).filter(own).collect();
    for (rank, rounds) in (0..).zip(all) {
        if let Some(finding) = bytes_of_one(kernel, barrier, rank, rounds, all) {
            return Some(finding);
        }
    }
    if let Some(sent) = sent.iter().find(|sent| !(0..all.len() as i64).contains(&sent.cta)) {
        return Some(wrong(sent.span, format!("there is no CTA {} in the cluster", sent.cta)));
    }
    if let Some(last) = sent.get(MAX_SENT) {
        let why = format!("more than {MAX_SENT} sends of all CTAs are too many to compare");
        return Some(wrong(last.span, why).help("send larger tiles, fewer times"));
    }
    for (i, a) in sent.iter().enumerate() {
        if let Some(b) = sent[..i].iter().find(|b| meet(kernel, a, b)) {
            let why = format!("this writes elements of CTA {} that another one writes", a.cta);
            return Some(
                wrong(a.span, why)
                    .secondary(b.span, "the other one")
                    .help("give each CTA a place of its own: `tile@cta(c)[cluster.rank]`"),
            );
        }
    }
    let tiles = inboxes(kernel);
    let ours: BTreeSet<SmemId> =
        tiles.iter().filter(|(_, of)| *of == barrier).map(|(tile, _)| *tile).collect();
    let other = tiles.iter().find(|(tile, of)| *of != barrier && ours.contains(tile));
    if let Some((tile, _)) = other {
        let why = "sent to at two barriers".to_owned();
        return Some(wrong(kernel.smem[*tile].span, why));
    }
    let mut uses = Uses { kernel, barrier, ours: &ours, waited: 0, in_role: false, found: None };
    uses.block(&kernel.body);
    uses.found
}

/// The bytes that come to one CTA against those that it waits for.
fn bytes_of_one(
    kernel: &Kernel,
    barrier: BarrierId,
    rank: i64,
    rounds: &Rounds<'_>,
    all: &[Rounds<'_>],
) -> Option<Diagnostic> {
    let declared = &kernel.barriers[barrier];
    let mut come: u64 = 0;
    let mut from = None;
    for event in all.iter().flat_map(|rounds| &rounds.roles).flat_map(|role| &role.events) {
        if let Act::Send { cta, bytes } = event.act
            && event.barrier == barrier
            && cta == rank
        {
            come = come.saturating_add(bytes);
            from = Some(event.span);
        }
    }
    let mut waits = Vec::new();
    for role in &rounds.roles {
        let own = role.events.iter().filter(|e| e.barrier == barrier && e.act == Act::Wait);
        let own: Vec<Span> = own.map(|event| event.span).collect();
        if let [_, again, ..] = own.as_slice() {
            return Some(wrong(*again, "a second wait for the only round".to_owned()));
        }
        waits.extend(own);
    }
    let said = u64::from(declared.bytes);
    match (from, waits.first()) {
        (None, None) => None,
        (Some(span), None) => Some(
            wrong(span, format!("CTA {rank} may have ended before this lands"))
                .secondary(declared.span, "it never waits for these bytes"),
        ),
        (_, Some(_)) if come == said => None,
        (_, Some(wait)) => Some(
            wrong(*wait, format!("CTA {rank} waits for {said} bytes and gets {come}"))
                .secondary(declared.span, "declared here"),
        ),
    }
}

/// True unless two sends provably have no element in common.
fn meet(kernel: &Kernel, a: &Sent<'_>, b: &Sent<'_>) -> bool {
    let tile = |sent: &Sent<'_>| sent.dest.storage.tile().map(|(tile, _)| tile);
    let Some(slots) = tile(a).map(|tile| i64::from(kernel.smem[tile].slots)) else { return true };
    if a.cta != b.cta || tile(a) != tile(b) || (a.slot - b.slot) % slots != 0 {
        return false;
    }
    if a.dest.axes != b.dest.axes {
        return true;
    }
    a.sides.iter().zip(&b.sides).all(|((a, m), (b, n))| a < &(b + n) && b < &(a + m))
}

/// Looks for uses of a tile that is sent to.
struct Uses<'a> {
    kernel: &'a Kernel,
    barrier: BarrierId,
    ours: &'a BTreeSet<SmemId>,
    /// Waits for the barrier in the lists of statements around.
    waited: usize,
    in_role: bool,
    found: Option<Diagnostic>,
}

impl Uses<'_> {
    fn block(&mut self, stmts: &[Stmt]) {
        let outer = self.waited;
        for stmt in stmts {
            let (kind, span) = (&stmt.kind, stmt.span);
            let is_load = matches!(kind, StmtKind::Def { .. });
            each_access(kind, &mut |access: &TileAccess| {
                let tile = access.storage.tile().map(|(tile, _)| tile);
                if !tile.is_some_and(|tile| self.ours.contains(&tile)) || self.found.is_some() {
                    return;
                }
                let is_own = access.storage.cta().is_none();
                if is_load && is_own && self.in_role && self.waited > 0 {
                    return;
                }
                let name = &self.kernel.barriers[self.barrier].name;
                self.found = Some(
                    wrong(span, "this touches what other CTAs send to".to_owned()).help(format!(
                        "only loads behind `wait {name};` touch it, in the role that waits"
                    )),
                );
            });
            if let StmtKind::Pipe(PipeOp::Wait { barrier, .. }) = kind
                && *barrier == self.barrier
            {
                self.waited += 1;
            }
            self.in_role |= matches!(kind, StmtKind::Role { .. });
            for body in kind.bodies() {
                self.block(body);
            }
            self.in_role &= !matches!(kind, StmtKind::Role { .. });
        }
        self.waited = outer;
    }
}

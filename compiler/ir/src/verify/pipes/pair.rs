//! R11: products that two CTAs of a cluster share.
//!
//! Threads of the first CTA start them; they read slots of both, at the same places, and write sums in both. Assumes that
//! what each role does follows from its rank, see [`rounds`](super::rounds). Guarantees (E0148) that all products of the
//! kernel are such, that roles of the first CTA alone start them, and that each of these waits at nothing but barriers
//! which count the copies of both CTAs, and arrives at nothing but barriers of both, no other role at either; that each
//! slot that a product reads is one that its role has waited for and not given back, which copies of both CTAs have filled
//! at that index, each its own and all of it, whatever else they bring to the barrier; and that nothing but those copies
//! and products touches these tiles. With [`exact`](super::exact), that both CTAs open and fill each index once, and wait
//! for the sums as often as the first commits. So where a role has waited, the copies of both have landed; where either
//! CTA opens a slot again, or reads sums, the products that read it or write them are complete.

use std::collections::{BTreeMap, BTreeSet};

use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::bytes_of;
use super::cast::{MAX_CASTS, meet};
use super::rounds::{Act, Cast, Rounds, pipeline};
use crate::kernel::{
    BarrierId, Between, Kernel, PipeOp, RoleId, SmemId, Stmt, StmtKind, Tensor, TileAccess,
    each_access, first_of_pair,
};

fn wrong(span: Span, why: String) -> Diagnostic {
    Diagnostic::error(Code::E0148, "products of a pair of CTAs that do not go together")
        .label(span, why)
}

/// What is wrong with the products of a pair.
pub(super) fn check(kernel: &Kernel, all: &[Rounds<'_>]) -> Option<Diagnostic> {
    let Some(first) = first_of_pair(&kernel.body) else {
        let declared = kernel.barriers.iter().find(|b| b.between != Between::Apart)?;
        let why = "no product of a pair of CTAs waits for it".to_owned();
        return Some(wrong(declared.span, why).help("let copies count at their own CTA"));
    };
    if let Some(alone) = product_alone(&kernel.body) {
        return Some(
            wrong(alone, "a CTA starts this for itself".to_owned())
                .secondary(first, "and a pair of CTAs shares this")
                .help("take one `cta_group` for all products of a kernel"),
        );
    }
    if let Some(span) = all.iter().find_map(|rounds| rounds.unsure) {
        let why = "which CTA starts this, and on which slots, does not follow from the rank in the cluster alone";
        return Some(wrong(span, why.to_owned()).help(
            "let indices, bounds of loops and conditions around it depend on constants and `cluster.rank`",
        ));
    }
    let elect = "put all that the role does under `if cluster.rank == 0 { … }`";
    let others = || all.iter().skip(1);
    if let Some(product) = others().find_map(|rounds| rounds.products.first()) {
        let why = "the second CTA of the pair comes here too".to_owned();
        return Some(wrong(product.span, why).help(elect));
    }
    let starters = kernel.body.iter().filter_map(|stmt| match &stmt.kind {
        StmtKind::Role { role, body } if first_of_pair(body).is_some() => Some(*role),
        _ => None,
    });
    let starters: Vec<RoleId> = starters.collect();
    if let Some(found) = ends(kernel, &starters) {
        return Some(found);
    }
    if let Some(load) = kernel.body.iter().find_map(|stmt| match &stmt.kind {
        StmtKind::Role { role, body } if copies(kernel, *role) => load_in(body),
        _ => None,
    }) {
        let why = "a role that copies operands reads sums, and opens no slot for that".to_owned();
        return Some(wrong(load, why).help("let another role read the sums"));
    }
    let of_role = |rounds: &'_ Rounds<'_>| {
        let own = rounds.roles.iter().filter(|events| starters.contains(&events.role));
        own.flat_map(|events| &events.events).map(|event| event.span).next()
    };
    if let Some(span) = others().find_map(of_role) {
        let why = "the second CTA of the pair comes here too".to_owned();
        return Some(wrong(span, why).help(elect));
    }
    for (id, declared) in kernel.barriers.iter_enumerated() {
        let named = pipeline(kernel, id);
        if declared.between != Between::Apart && all.iter().any(|r| r.unknown.contains(&named)) {
            let why = "what is done at it does not follow from the rank in the cluster alone";
            return Some(wrong(declared.span, why.to_owned()).help(
                "let indices, bounds of loops and conditions around its operations depend on constants and \
                 `cluster.rank`",
            ));
        }
    }
    let tiles = match filled(kernel, all) {
        Ok(tiles) => tiles,
        Err(found) => return Some(found),
    };
    let found = starters.iter().find_map(|role| held(kernel, *role, all, &tiles));
    found.or_else(|| {
        let mut uses = Uses { kernel, tiles: &tiles, found: None };
        uses.block(&kernel.body);
        uses.found
    })
}

/// A product that one CTA starts for itself.
fn product_alone(stmts: &[Stmt]) -> Option<Span> {
    stmts.iter().find_map(|stmt| match &stmt.kind {
        StmtKind::Tensor(Tensor::Mma(mma)) if !mma.atom.pair => Some(stmt.span),
        kind => kind.bodies().into_iter().find_map(product_alone),
    })
}

/// A role copies what products of a pair read.
fn copies(kernel: &Kernel, role: RoleId) -> bool {
    let mut barriers = kernel.barriers.iter();
    barriers.any(|b| b.between == Between::Gathered && b.bytes > 0 && b.from.contains(&role))
}

/// The first load from tensor memory.
fn load_in(stmts: &[Stmt]) -> Option<Span> {
    stmts.iter().find_map(|stmt| match &stmt.kind {
        StmtKind::Tensor(Tensor::Load { .. }) => Some(stmt.span),
        kind => kind.bodies().into_iter().find_map(load_in),
    })
}

/// Each role with products waits where copies of both CTAs count, and arrives in both; no other one does there.
fn ends(kernel: &Kernel, starters: &[RoleId]) -> Option<Diagnostic> {
    let among = |roles: &[RoleId]| roles.iter().copied().find(|role| starters.contains(role));
    let name_of = |roles: &[RoleId]| {
        among(roles).map_or_else(String::new, |role| kernel.roles[role].name.clone())
    };
    let is_one = |roles: &[RoleId]| roles.len() == 1 && among(roles).is_some();
    for (id, declared) in kernel.barriers.iter_enumerated() {
        let partner = declared.partner.map(|partner| &kernel.barriers[partner]);
        let told = &declared.name;
        match declared.between {
            Between::Apart if among(&declared.to).is_some() => {
                let name = name_of(&declared.to);
                let why =
                    format!("`{name}` of the first CTA learns nothing of the other one by this");
                return Some(wrong(declared.span, why).help(format!(
                    "let copies of both CTAs count at the first: `copy.tma … into {told}@cta(0)@t`"
                )));
            }
            Between::Apart if among(&declared.from).is_some() => {
                let name = name_of(&declared.from);
                let why = format!("`{name}` arrives in its own CTA alone");
                return Some(wrong(declared.span, why).help(format!(
                    "the other CTA waits for the products too: write `commit {told}@cta(*)`"
                )));
            }
            Between::Gathered if !is_one(&declared.to) => {
                let why = "other roles than one with products wait for it".to_owned();
                return Some(wrong(declared.span, why));
            }
            Between::Spread if !is_one(&declared.from) => {
                let why = "other roles than one with products arrive at it".to_owned();
                return Some(wrong(declared.span, why));
            }
            Between::Spread if partner.is_some_and(|p| p.between != Between::Gathered) => {
                let why = "its slots are not filled by copies of both CTAs".to_owned();
                return Some(
                    wrong(declared.span, why)
                        .help("let products read what `copy.tma … into p.full@cta(0)@t` brings"),
                );
            }
            Between::Gathered if partner.is_none_or(|p| p.between != Between::Spread) => {
                let why = "its slots do not go back to both CTAs".to_owned();
                let partner = declared.partner.map_or(id, |partner| partner);
                let empty = &kernel.barriers[partner].name;
                return Some(
                    wrong(declared.span, why).help(format!("write `commit {empty}@cta(*)@t`")),
                );
            }
            Between::Spread if partner.is_some_and(|full| full.to != declared.from) => {
                let why = "its slots come back from another role than the one that uses them";
                return Some(wrong(declared.span, why.to_owned()));
            }
            Between::Apart | Between::Gathered | Between::Spread => {}
        }
    }
    None
}

/// Tiles that copies of both CTAs fill, each with its pipeline.
fn filled(kernel: &Kernel, all: &[Rounds<'_>]) -> Result<BTreeMap<SmemId, BarrierId>, Diagnostic> {
    let mut tiles = BTreeMap::new();
    let gathered = |barrier: BarrierId| kernel.barriers[barrier].between == Between::Gathered;
    for cast in all.iter().flat_map(|rounds| &rounds.cast).filter(|c| gathered(c.barrier)) {
        let Some((tile, _)) = cast.dest.storage.tile() else { continue };
        let (slots, name) = (kernel.smem[tile].slots, &kernel.smem[tile].name);
        let declared = &kernel.barriers[cast.barrier];
        if slots != declared.slots || (cast.slot - cast.index) % i64::from(slots) != 0 {
            let (slot, index) = (cast.slot, cast.index);
            let why = format!("fills slot {slot} of `{name}` at index {index}");
            return Err(wrong(cast.span, why).secondary(declared.span, "declared here").help(
                "give the tile as many slots as the pipeline, and fill the one that is open",
            ));
        }
        if *tiles.entry(tile).or_insert(cast.barrier) != cast.barrier {
            let why = format!("another pipeline fills `{name}` too");
            return Err(wrong(cast.span, why));
        }
    }
    Ok(tiles)
}

/// What copies of one CTA bring to barriers that count those of both.
struct Brought {
    /// Slots that they fill at an index, each element once.
    whole: BTreeSet<(SmemId, i64)>,
    /// Bytes of an index.
    bytes: BTreeMap<(BarrierId, i64), u64>,
}

impl Brought {
    fn of(kernel: &Kernel, rounds: &Rounds<'_>) -> Brought {
        let mut copies: BTreeMap<(SmemId, i64), Vec<&Cast<'_>>> = BTreeMap::new();
        let mut bytes = BTreeMap::new();
        let gathered = |c: &&Cast<'_>| kernel.barriers[c.barrier].between == Between::Gathered;
        for cast in rounds.cast.iter().filter(gathered) {
            let sum = bytes.entry((cast.barrier, cast.index)).or_insert(0u64);
            *sum = sum.saturating_add(bytes_of(kernel, cast.dest));
            if let Some((tile, _)) = cast.dest.storage.tile() {
                copies.entry((tile, cast.index)).or_default().push(cast);
            }
        }
        copies.retain(|(tile, _), copies| {
            let sum = copies.iter().map(|cast| bytes_of(kernel, cast.dest));
            let apart = |(number, a): (usize, &&Cast<'_>)| {
                !copies[..number].iter().any(|b| meet(kernel, a, b))
            };
            sum.fold(0, u64::saturating_add) == kernel.smem[*tile].bytes()
                && copies.len() <= MAX_CASTS
                && copies.iter().enumerate().all(apart)
        });
        Brought { whole: copies.into_keys().collect(), bytes }
    }

    /// True where something else than the slot has got the bytes of the index. That bytes are missing is E0154.
    fn lacks(&self, kernel: &Kernel, tile: SmemId, at: (BarrierId, i64)) -> bool {
        let all = u64::from(kernel.barriers[at.0].bytes);
        !self.whole.contains(&(tile, at.1)) && self.bytes.get(&at) == Some(&all)
    }
}

/// Each product reads slots that both CTAs have filled, and that the role has waited for and not given back.
fn held(
    kernel: &Kernel,
    role: RoleId,
    all: &[Rounds<'_>],
    tiles: &BTreeMap<SmemId, BarrierId>,
) -> Option<Diagnostic> {
    let first = all.first()?;
    let brought: Vec<_> = all.iter().map(|rounds| Brought::of(kernel, rounds)).collect();
    let events = first.roles.iter().find(|events| events.role == role);
    let mut events = events.map_or(&[][..], |events| &events.events);
    let mut at = 0;
    let mut held = BTreeSet::new();
    for product in first.products.iter().filter(|product| product.role == role) {
        while at < product.after {
            let Some((event, rest)) = events.split_first() else { break };
            (events, at) = (rest, at + 1);
            match event.act {
                Act::Wait => _ = held.insert((event.barrier, event.index)),
                Act::Release { .. } => _ = held.remove(&(event.barrier, event.index)),
                Act::Open | Act::Fill { .. } | Act::Send { .. } => {}
            }
        }
        for (tile, slot) in &product.reads {
            let (name, declared) = (&kernel.smem[*tile].name, kernel.smem[*tile].span);
            let Some(barrier) = tiles.get(tile) else {
                let why = format!("`{name}` is not filled by copies of both CTAs");
                return Some(
                    wrong(product.span, why)
                        .secondary(declared, "declared here")
                        .help("fill it by `copy.tma … into p.full@cta(0)@t` in both CTAs"),
                );
            };
            let slots = i64::from(kernel.smem[*tile].slots);
            let mut own = held.iter().filter(|(of, _)| of == barrier);
            let Some(&at) = own.find(|(_, index)| (index - slot) % slots == 0) else {
                let why =
                    format!("slot {slot} of `{name}` is not one that the role has waited for");
                return Some(wrong(product.span, why).secondary(declared, "declared here"));
            };
            if let Some(cta) = brought.iter().position(|own| own.lacks(kernel, *tile, at)) {
                let index = at.1;
                let why = format!("CTA {cta} does not fill all of `{name}` at index {index}");
                return Some(
                    wrong(product.span, why)
                        .secondary(declared, "declared here")
                        .help("let copies of both CTAs fill each tile that the product reads, each element once"),
                );
            }
        }
    }
    None
}

/// Looks for other uses of the tiles.
struct Uses<'a> {
    kernel: &'a Kernel,
    tiles: &'a BTreeMap<SmemId, BarrierId>,
    found: Option<Diagnostic>,
}

impl Uses<'_> {
    fn block(&mut self, stmts: &[Stmt]) {
        for stmt in stmts {
            let fills = |tile: SmemId| match &stmt.kind {
                StmtKind::Pipe(PipeOp::Copy { barrier, .. }) => {
                    self.tiles.get(&tile) == Some(barrier)
                }
                kind => matches!(kind, StmtKind::Tensor(_)),
            };
            let mut others = Vec::new();
            let mut see = |access: &TileAccess| {
                let Some((tile, _)) = access.storage.tile() else { return };
                let is_own = access.storage.cta().is_none();
                if self.tiles.contains_key(&tile) && !(is_own && fills(tile)) {
                    others.push((tile, access.span));
                }
            };
            each_access(&stmt.kind, &mut see);
            if let StmtKind::Pipe(PipeOp::Send { dest, .. }) = &stmt.kind {
                see(dest);
            }
            if let (Some((tile, span)), None) = (others.first(), &self.found) {
                let tile = &self.kernel.smem[*tile];
                self.found = Some(
                    wrong(
                        *span,
                        format!("this touches `{}`, which products of a pair read", tile.name),
                    )
                    .secondary(tile.span, "declared here")
                    .help(
                        "copies that count at the first CTA fill it, and nothing else touches it",
                    ),
                );
            }
            for body in stmt.kind.bodies() {
                self.block(body);
            }
        }
    }
}

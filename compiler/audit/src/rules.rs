//! The rules: from facts and claims to findings and notes.

use std::collections::{BTreeMap, BTreeSet};

use crate::analysis::{Facts, Read};
use crate::code::Code;
use crate::declare::{Claim, Claims};
use crate::graph::{NONE, NodeSet};
use crate::kernel::Kernel;
use crate::moved::{Move, MoveKind};
use crate::paths;
use crate::report::{Item, SassSpot, Spot};

/// One kernel with all that the rules look at.
pub(crate) struct Case<'a> {
    pub(crate) kernel: &'a Kernel,
    pub(crate) facts: &'a Facts,
    pub(crate) claims: &'a Claims,
    pub(crate) moves: &'a [Move],
    /// Where a PTX instruction stands; none for machine code.
    pub(crate) spots: Option<&'a dyn Fn(u32) -> Spot>,
}

/// What the rules say of one kernel.
#[derive(Debug, Default)]
pub(crate) struct Judgement {
    pub(crate) findings: Vec<Item>,
    pub(crate) notes: Vec<Item>,
    pub(crate) assumed: Vec<String>,
    /// Something was not understood.
    pub(crate) open: bool,
}

/// Who owns memory, as the claims see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    Param(u32),
    Global(u32),
    Untraced,
}

/// A read as it appears in the file, with all its copies.
struct Site<'a> {
    reads: Vec<&'a Read>,
    noncoherent: bool,
    /// The wait for outside data that stands ahead of it, nearest first.
    wait: Option<u32>,
    /// A wait for outside data that stands behind it.
    later: Option<u32>,
    /// A barrier or fence ahead of it.
    fence: Option<u32>,
}

/// Judges one kernel.
pub(crate) fn judge(case: &Case<'_>) -> Judgement {
    let mut judgement = Judgement::default();
    gaps(case, &mut judgement);
    let mut stands: BTreeSet<String> = BTreeSet::new();
    let mut moves: BTreeMap<u32, Vec<&Move>> = BTreeMap::new();
    for m in case.moves {
        moves.entry(m.load).or_default().push(m);
    }
    for ((id, owner), site) in sites(case) {
        let moves = moves.get(&id).map_or(&[][..], |list| list);
        read(case, moves, &site, owner, &mut judgement, &mut stands);
    }
    for (name, claim) in claimed(case) {
        if claim == Claim::Static {
            stands.insert(format!(
                "`{}:{name}` is static: no one writes it while the grid runs",
                case.kernel.name
            ));
        }
    }
    judgement.assumed = stands.into_iter().collect();
    judgement
}

fn gaps(case: &Case<'_>, judgement: &mut Judgement) {
    for gap in &case.kernel.gaps {
        if gap.node.is_some_and(|node| !case.facts.live.contains(node)) {
            continue;
        }
        judgement.open = true;
        judgement.notes.push(Item {
            code: Code::NotUnderstood,
            kernel: case.kernel.name.clone(),
            param: None,
            ptx: gap.node.and_then(|node| spot(case, node)),
            wait: None,
            sass: match (gap.node, case.spots.is_none()) {
                (Some(node), true) => Some(SassSpot { load: hex(address(case, node)), wait: None }),
                _ => None,
            },
            message: gap.message.clone(),
            help: "the kernel is not judged, because this may touch memory".to_owned(),
        });
    }
}

fn claimed(case: &Case<'_>) -> Vec<(String, Claim)> {
    let params = case.claims.params.iter().map(|(&p, &claim)| (Owner::Param(p), claim));
    let globals = case.claims.globals.iter().map(|(&g, &claim)| (Owner::Global(g), claim));
    params
        .chain(globals)
        .filter_map(|(owner, claim)| Some((name_of(case, owner)?, claim)))
        .collect()
}

/// The name of a parameter.
pub(crate) fn name_of_param(case: &Case<'_>, param: u32) -> Option<String> {
    name_of(case, Owner::Param(param))
}

fn name_of(case: &Case<'_>, owner: Owner) -> Option<String> {
    match owner {
        Owner::Param(param) => case.kernel.params.get(param as usize).map(|p| p.label.clone()),
        Owner::Global(global) => case.kernel.globals.get(global as usize).cloned(),
        Owner::Untraced => None,
    }
}

fn claim_of(case: &Case<'_>, owner: Owner) -> Option<Claim> {
    match owner {
        Owner::Param(param) => case.claims.params.get(&param).copied(),
        Owner::Global(global) => case.claims.globals.get(&global).copied(),
        Owner::Untraced => None,
    }
}

/// Who may own what a read gets.
fn owners(read: &Read) -> impl Iterator<Item = Owner> {
    let params = read.owners.params.iter().map(|&param| Owner::Param(param));
    let globals = read.owners.globals.iter().map(|&global| Owner::Global(global));
    params.chain(globals).chain(read.owners.untraced.then_some(Owner::Untraced))
}

/// Reads by the instruction that they stand for, and by who owns what they get: a function that reads what
/// it is given reads other memory in each of its calls.
fn sites<'a>(case: &Case<'a>) -> BTreeMap<(u32, Owner), Site<'a>> {
    let facts = case.facts;
    let graph = &case.kernel.program.graph;
    let merge = |nodes: &[u32]| {
        let mut all = NodeSet::new(graph.len());
        for &node in nodes {
            let reached = paths::after(case.kernel, facts, node, |_, _| true);
            all.join(&reached);
        }
        all
    };
    let after_wait = merge(&facts.waits);
    let after_fence = merge(&facts.fences);
    let mut before_wait = NodeSet::new(graph.len());
    let mut stack = facts.waits.clone();
    while let Some(node) = stack.pop() {
        for &from in graph.pred(node) {
            if facts.live.contains(from) && before_wait.insert(from) {
                stack.push(from);
            }
        }
    }
    let wait_of = graph.nearest(&facts.waits, false);
    let fence_of = graph.nearest(&facts.fences, false);
    let later_of = graph.nearest(&facts.waits, true);
    let found = |list: &[u32], node: u32| Some(list[node as usize]).filter(|&found| found != NONE);
    let mut sites: BTreeMap<(u32, Owner), Site<'a>> = BTreeMap::new();
    for read in &facts.reads {
        let key = match case.spots {
            Some(_) => case.kernel.places[read.node as usize].id,
            None => address(case, read.node) as u32,
        };
        let ahead = |set: &NodeSet, list: &[u32]| {
            set.contains(read.node).then(|| found(list, read.node)).flatten()
        };
        for owner in owners(read) {
            let site = sites.entry((key, owner)).or_insert_with(|| Site {
                reads: Vec::new(),
                noncoherent: read.noncoherent,
                wait: None,
                later: None,
                fence: None,
            });
            site.reads.push(read);
            if read.noncoherent {
                site.wait = site.wait.or_else(|| ahead(&after_wait, &wait_of));
                site.fence = site.fence.or_else(|| ahead(&after_fence, &fence_of));
                site.later = site.later.or_else(|| ahead(&before_wait, &later_of));
            }
        }
    }
    sites
}

/// Judges one read of one owner.
fn read(
    case: &Case<'_>,
    moves: &[&Move],
    site: &Site<'_>,
    owner: Owner,
    judgement: &mut Judgement,
    stands: &mut BTreeSet<String>,
) {
    let outside = |m: &&Move| case.facts.waits.contains(&m.wait_node);
    let own = || moves.iter().copied();
    let lifted = own().filter(outside).find(|m| upward(case, site, m));
    let sunk = own().filter(outside).find(|m| !upward(case, site, m));
    let local = own().find(|m| !outside(m));
    let claim = claim_of(case, owner);
    let name = name_of(case, owner);
    let what = match &name {
        Some(name) => format!("`{name}`"),
        None => "memory whose owner cannot be traced".to_owned(),
    };
    let mut item = Item {
        code: Code::NonCoherent,
        kernel: case.kernel.name.clone(),
        param: name.clone(),
        ptx: spot(case, site.reads[0].node),
        wait: None,
        sass: None,
        message: String::new(),
        help: String::new(),
    };
    let place = |item: &mut Item, wait: Option<u32>, moved: Option<&Move>| {
        item.wait = moved.map(|m| m.wait_node).or(wait).and_then(|node| spot(case, node));
        item.sass = match moved {
            Some(m) => {
                Some(SassSpot { load: hex(m.load_address), wait: Some(hex(m.wait_address)) })
            }
            None if case.spots.is_none() => Some(SassSpot {
                load: hex(address(case, site.reads[0].node)),
                wait: wait.map(|node| hex(address(case, node))),
            }),
            None => None,
        };
    };
    let declare = match &name {
        Some(name) => {
            format!(", or declare `--static {name}` if no one writes it while the grid runs")
        }
        None => String::new(),
    };
    match claim {
        Some(Claim::Static) => {
            if let Some(m) = lifted.or(sunk).or(local) {
                item.code = Code::Moved;
                place(&mut item, None, Some(m));
                item.message = format!("the load of static {what} {}", verb(m.kind));
                item.help = "harmless while it is static; a plain load keeps its place".to_owned();
                judgement.notes.push(item);
            }
        }
        Some(Claim::Mutable) if site.noncoherent => {
            let moved = lifted.or(sunk).or(local);
            place(&mut item, site.wait.or(site.fence), moved);
            item.message = match moved {
                Some(m) => {
                    item.code = Code::Moved;
                    format!("the non-coherent load of mutable {what} {}", verb(m.kind))
                }
                None => format!("mutable {what} is read by a non-coherent load"),
            };
            item.help = "use a plain `ld.global`".to_owned();
            judgement.findings.push(item);
        }
        None if site.noncoherent && site.wait.is_some() => {
            place(&mut item, site.wait, lifted);
            item.message = match lifted {
                Some(m) => {
                    item.code = Code::Moved;
                    format!("the non-coherent load of {what} {}", verb(m.kind))
                }
                None => format!(
                    "{what} is read by a non-coherent load after a wait for data from outside"
                ),
            };
            item.help = format!("use a plain `ld.global`{declare}");
            let crossed = local.filter(|_| lifted.is_none()).map(|m| {
                let barrier = spot(case, m.wait_node);
                let message = crossing(&what, m);
                Item { code: Code::Moved, wait: barrier, sass: None, message, ..item.clone() }
            });
            judgement.findings.push(item);
            judgement.notes.extend(crossed);
        }
        Some(Claim::Mutable) | None if !site.noncoherent && lifted.is_some() => {
            item.code = Code::Moved;
            place(&mut item, None, lifted);
            item.message = format!("the load of {what} {}", lifted.map_or("", |m| verb(m.kind)));
            item.help = "use an acquiring load, or put a fence behind the wait".to_owned();
            judgement.findings.push(item);
        }
        Some(Claim::Mutable) | None => {
            if let Some(m) = sunk {
                item.code = Code::Moved;
                place(&mut item, None, Some(m));
                item.message = format!("the load of {what} {}", verb(m.kind));
                item.help = "a plain load keeps its place".to_owned();
                judgement.notes.push(item);
            } else if let Some(m) = local.filter(|_| site.noncoherent) {
                // No wait for data from outside is crossed, hence no place that a reader has to see.
                item.code = Code::Moved;
                item.wait = spot(case, m.wait_node);
                item.message = crossing(&what, m);
                item.help = "harmless unless others write it while the grid runs".to_owned();
                judgement.notes.push(item);
            } else if site.noncoherent && site.later.is_some() {
                item.code = Code::Early;
                place(&mut item, site.later, None);
                item.message = format!("{what} is read by a non-coherent load before the wait");
                item.help =
                    "right only if what it reads is not written by the earlier grid".to_owned();
                judgement.notes.push(item);
            }
            if site.noncoherent
                && let Some(name) = name
            {
                stands.insert(format!(
                    "`{}:{name}` does not change while it is read; no wait leads to these reads",
                    case.kernel.name
                ));
            }
        }
    }
}

/// Whether a move took a read that PTX places behind the wait.
fn upward(case: &Case<'_>, site: &Site<'_>, m: &Move) -> bool {
    match m.kind {
        MoveKind::Lifted => true,
        MoveKind::Sunk => false,
        MoveKind::Merged => {
            let reached = paths::after(case.kernel, case.facts, m.wait_node, |_, _| true);
            site.reads.iter().any(|read| reached.contains(read.node))
        }
    }
}

fn verb(kind: MoveKind) -> &'static str {
    match kind {
        MoveKind::Lifted => "stands after the wait in PTX and ahead of it in the machine code",
        MoveKind::Sunk => "stands before the wait in PTX and behind it in the machine code",
        MoveKind::Merged => {
            "was merged in the machine code with a load on the other side of the wait"
        }
    }
}

/// What is said of a load that crosses a barrier or fence and no wait.
fn crossing(what: &str, m: &Move) -> String {
    format!(
        "the load of {what} crosses a barrier or fence in the machine code (load at {}, barrier at {})",
        hex(m.load_address),
        hex(m.wait_address)
    )
}

pub(crate) fn spot(case: &Case<'_>, node: u32) -> Option<Spot> {
    let id = case.kernel.places[node as usize].id;
    (id != u32::MAX).then_some(())?;
    case.spots.map(|spots| spots(id))
}

fn address(case: &Case<'_>, node: u32) -> u64 {
    case.kernel.places[node as usize].address
}

/// An address as it is printed.
pub(crate) fn hex(address: u64) -> String {
    format!("{address:#06x}")
}

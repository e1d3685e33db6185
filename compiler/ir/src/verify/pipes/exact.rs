//! Rounds of barriers, checked one by one where all indices are constants.
//!
//! Each role does the same on every path, so its operations are a list. The rules are checked along each list: indices
//! are opened, waited for and released once and in order, an index is filled while it is open, with exactly the bytes
//! that are announced, and both ends handle equally many, none included. A wait is for a number of arrivals that only
//! grows, so whether all lists come to their ends does not depend on the order in which roles run: one order is tried.

use std::collections::{BTreeMap, BTreeSet};

use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::super::scalars::{Knowledge, Symbol};
use super::TITLE;
use super::cast;
use super::inbox;
use super::pair;
use super::rounds::{Act, Event, Events, MAX_STEPS, Rounds, pipeline};
use crate::kernel::{BarrierId, Between, Kernel, RoleId};

/// What is known of barriers whose indices are all constants.
#[derive(Debug, Default)]
pub(super) struct Exact {
    /// Those that it is known of.
    pub(super) decided: BTreeSet<BarrierId>,
    /// What is wrong with them, one finding a barrier.
    pub(super) findings: Vec<Diagnostic>,
    /// Why nothing is known of the others, where they do too much.
    pub(super) spent: Option<Diagnostic>,
}

impl Exact {
    pub(super) fn of(kernel: &Kernel) -> Exact {
        // What a CTA does may depend on its rank in the cluster.
        let ranks = kernel.launch.cluster_size();
        let all: Vec<Rounds<'_>> = (0..ranks).map(|rank| Rounds::of(kernel, rank)).collect();
        if let Some(spent) = all.iter().find_map(|rounds| rounds.spent).map(too_many) {
            return Exact::unknown(kernel, spent);
        }
        if let Some(found) = pair::check(kernel, &all) {
            let decided = kernel.barriers.ids().collect();
            return Exact { decided, findings: vec![found], spent: None };
        }
        let named = kernel.barriers.ids().filter(|id| pipeline(kernel, *id) == *id);
        let is_known = |id: &BarrierId| !all.iter().any(|rounds| rounds.unknown.contains(id));
        let (inboxes, others): (Vec<_>, Vec<_>) =
            named.partition(|id| kernel.barriers[*id].of_cluster);
        let mut decided: BTreeSet<BarrierId> = others.into_iter().filter(is_known).collect();
        let mut findings: Vec<Diagnostic> = decided
            .iter()
            .filter_map(|&barrier| {
                let mut counts = Vec::with_capacity(all.len());
                for (rank, rounds) in (0..).zip(&all) {
                    let others = cast::from_others(kernel, barrier, rank, &all);
                    match (Judge { kernel, barrier, all: &all, rounds, rank, others }).check() {
                        Ok(count) => counts.push(count),
                        Err(found) => return Some(found),
                    }
                }
                cast::check(kernel, barrier, &all, &counts)
            })
            .collect();
        let prepaid = kernel.barriers.ids().filter(|id| kernel.barriers[*id].is_prepaid());
        for id in prepaid.filter(|id| !kernel.barriers[*id].of_cluster) {
            if decided.insert(id) {
                let why = "copies into it do not follow from constants alone".to_owned();
                findings.push(
                    wrong(kernel.barriers[id].span, why).help(
                        "let them stand under no condition and in no loop that is not constant",
                    ),
                );
            }
        }
        for id in kernel.barriers.ids().filter(|id| kernel.barriers[*id].everywhere) {
            let id = pipeline(kernel, id);
            if decided.insert(id) {
                findings.push(cast::unknown(kernel, id));
            }
        }
        for barrier in inboxes {
            findings.extend(inbox::check(kernel, barrier, &all, is_known(&barrier)));
            decided.insert(barrier);
        }
        let mut exact = Exact { decided, findings, spent: None };
        if exact.findings.is_empty() {
            exact.findings.extend(stuck(kernel, &all, &exact.decided));
        }
        exact
    }

    /// Too much is done at barriers. Those that go round within a CTA may be judged by forms all the same.
    fn unknown(kernel: &Kernel, spent: Diagnostic) -> Exact {
        let by_forms = kernel.barriers.iter().all(|barrier| {
            let within = !barrier.of_cluster && !barrier.everywhere;
            within && !barrier.is_prepaid() && barrier.between == Between::Apart
        });
        if by_forms {
            return Exact { spent: Some(spent), ..Exact::default() };
        }
        let decided = kernel.barriers.ids().collect();
        Exact { decided, findings: vec![spent], spent: None }
    }
}

fn too_many(span: Span) -> Diagnostic {
    Diagnostic::error(Code::E0219, "more is done at barriers than is followed one by one")
        .label(span, "the rounds of this loop and of those in it are too many")
        .note(format!("at most {MAX_STEPS} statements of all roles, in all CTAs of a cluster together"))
        .help("count all indices of a role by one loop with step 1, whose rounds are not counted, or give a CTA less work")
}

fn wrong(span: Span, why: String) -> Diagnostic {
    Diagnostic::error(Code::E0154, TITLE).label(span, why)
}

/// How far a role is with one barrier.
#[derive(Default)]
struct Progress {
    /// Indices opened, waited for, and released at either side.
    opened: i64,
    waited: i64,
    /// By the barrier that is released.
    released: BTreeMap<BarrierId, i64>,
    /// Bytes of copies into each index.
    bytes: Vec<u64>,
    /// Where each index was opened.
    places: Vec<Span>,
}

struct Judge<'a> {
    kernel: &'a Kernel,
    barrier: BarrierId,
    /// By rank.
    all: &'a [Rounds<'a>],
    rounds: &'a Rounds<'a>,
    /// In the cluster.
    rank: i64,
    /// By index, bytes that copies of other CTAs bring.
    others: BTreeMap<i64, u64>,
}

impl Judge<'_> {
    /// The number of indices that both ends handle.
    fn check(&self) -> Result<i64, Diagnostic> {
        let barrier = &self.kernel.barriers[self.barrier];
        let mut first: Option<(i64, usize, Option<Span>)> = None;
        for (role, arrives) in super::ends(self.kernel, self.barrier) {
            let of_role = |events: &&Events| events.role == role;
            // Of a pair of CTAs one end is in the first.
            let is_first = match barrier.between {
                Between::Apart => false,
                Between::Gathered => !arrives,
                Between::Spread => arrives,
            };
            let rounds = self.all.first().filter(|_| is_first).unwrap_or(self.rounds);
            let Some(events) = rounds.roles.iter().find(of_role) else { continue };
            let count = self.role(events, arrives)?;
            let own = events.events.iter().find(|event| event.barrier == self.barrier);
            let own = own.map(|event| event.span);
            let Some((other, region, place)) = first else {
                first = Some((count, events.region, own));
                continue;
            };
            if count == other && region == events.region {
                continue;
            }
            let why = if region == events.region {
                format!("{count} rounds here and {other} at the other end")
            } else {
                "the roles do not run side by side".to_owned()
            };
            let at = own.unwrap_or(self.kernel.roles[role].span);
            let diagnostic = wrong(at, why).secondary(barrier.span, "declared here");
            return Err(match place {
                Some(place) => diagnostic.secondary(place, "the other end"),
                None => diagnostic,
            });
        }
        let slots = i64::from(barrier.slots);
        let (count, place) = first.map_or((0, None), |(count, _, place)| (count, place));
        if count <= slots || barrier.partner.is_some() {
            return Ok(count);
        }
        Err(wrong(
            place.unwrap_or(barrier.span),
            format!("{count} rounds, and nothing keeps one side from running ahead of the other"),
        )
        .secondary(barrier.span, format!("{slots} slots, each for one round"))
        .help("hand slots over by a `pipeline`, or give the barrier a slot for each index"))
    }

    /// How many indices a role handles, or what is wrong with one.
    fn role(&self, events: &Events, arrives: bool) -> Result<i64, Diagnostic> {
        let full = &self.kernel.barriers[self.barrier];
        let mut progress = Progress::default();
        let own = || events.events.iter().filter(|event| event.barrier == self.barrier);
        for event in own() {
            self.step(&mut progress, event)?;
        }
        let last = |span: Option<Span>| span.unwrap_or(full.span);
        let place = |index: i64| usize::try_from(index).ok().and_then(|i| progress.places.get(i));
        if progress.opened > 0 {
            let stages = i64::from(full.slots);
            for index in (progress.opened - stages).max(0)..progress.opened {
                self.is_filled(&progress, index, last(place(index).copied()))?;
            }
        }
        if full.is_prepaid() && arrives {
            let filled = progress.bytes.first().copied().unwrap_or(0);
            if filled == 0 || filled == u64::from(full.bytes) {
                return Ok(i64::from(filled > 0));
            }
            let why =
                format!("copies bring {filled} bytes of the {} that are announced", full.bytes);
            return Err(wrong(last(own().next().map(|event| event.span)), why)
                .secondary(full.span, "declared here"));
        }
        if full.partner.is_none() {
            let released = progress.released.get(&self.barrier).copied().unwrap_or(0);
            return Ok(if arrives { released } else { progress.waited });
        }
        if progress.opened > 0 && progress.waited > 0 {
            return Err(wrong(
                last(own().next().map(|event| event.span)),
                "one role is on both sides".to_owned(),
            ));
        }
        if progress.waited > 0 {
            let released = full.partner.and_then(|empty| progress.released.get(&empty).copied());
            let released = released.unwrap_or(0);
            if released != progress.waited {
                let waits = |event: &&Event| event.act == Act::Wait && event.index == released;
                return Err(wrong(
                    last(own().find(waits).map(|event| event.span)),
                    format!("index {released} is never released"),
                )
                .help("put `release` with the same index behind its last use"));
            }
        }
        Ok(if arrives { progress.opened } else { progress.waited })
    }

    fn step(&self, progress: &mut Progress, event: &Event) -> Result<(), Diagnostic> {
        let full = &self.kernel.barriers[self.barrier];
        let Event { act, index, span, .. } = *event;
        let order = |next: i64| {
            if index == next {
                return Ok(());
            }
            let why = if (0..next).contains(&index) {
                format!("index {index} a second time")
            } else {
                format!("index {index} where {next} is the next one")
            };
            Err(wrong(span, why).help("handle every index from 0 on once, in order"))
        };
        match act {
            Act::Open => {
                order(progress.opened)?;
                let stages = i64::from(full.slots);
                if index >= stages {
                    self.is_filled(progress, index - stages, span)?;
                }
                progress.opened += 1;
                progress.bytes.push(0);
                progress.places.push(span);
            }
            Act::Fill { bytes, .. } if full.is_prepaid() => {
                order(0)?;
                let sum = progress.bytes.first().copied().unwrap_or(0).saturating_add(bytes);
                progress.bytes = vec![sum];
            }
            Act::Fill { bytes, to } => {
                let bytes = if to.reaches(self.rank) { bytes } else { 0 };
                let place = usize::try_from(index).ok();
                let so_far = place.and_then(|place| progress.bytes.get_mut(place));
                let Some(so_far) = so_far else {
                    return Err(wrong(span, format!("index {index} is filled and not open")));
                };
                *so_far = so_far.saturating_add(bytes);
                if *so_far > u64::from(full.bytes) {
                    return Err(wrong(
                        span,
                        format!("copies bring {so_far} bytes to index {index} of the {} that are announced", full.bytes),
                    )
                    .secondary(full.span, "declared here"));
                }
            }
            Act::Wait => {
                order(progress.waited)?;
                progress.waited += 1;
            }
            Act::Send { .. } => {}
            Act::Release { barrier, .. } => {
                let next = progress.released.get(&barrier).copied().unwrap_or(0);
                order(next)?;
                let held = match full.partner {
                    None => i64::MAX,
                    Some(_) if barrier == self.barrier => progress.opened,
                    Some(_) => progress.waited,
                };
                if index >= held {
                    let why = format!("index {index} is neither opened nor waited for before");
                    let (first, edge) =
                        if barrier == self.barrier { ("open", "empty") } else { ("wait", "full") };
                    return Err(wrong(span, why)
                        .secondary(full.span, "declared here")
                        .help(format!("put `{first}` with the same index before it, in a role that `{edge}` goes to")));
                }
                progress.released.insert(barrier, next + 1);
            }
        }
        Ok(())
    }

    /// The producer is done with an index.
    fn is_filled(&self, progress: &Progress, index: i64, span: Span) -> Result<(), Diagnostic> {
        let full = &self.kernel.barriers[self.barrier];
        if full.partner.is_none() {
            return Ok(());
        }
        if full.bytes == 0 {
            let released = progress.released.get(&self.barrier).copied().unwrap_or(0);
            return match released > index {
                true => Ok(()),
                false => {
                    Err(wrong(span, format!("index {index} is opened and not released at `full`"))
                        .help("put `release` with the same index behind the last store"))
                }
            };
        }
        let place = usize::try_from(index).ok();
        let own = place.and_then(|place| progress.bytes.get(place)).copied().unwrap_or(0);
        let found = own.saturating_add(self.others.get(&index).copied().unwrap_or(0));
        if found == u64::from(full.bytes) {
            return Ok(());
        }
        let opened = place.and_then(|place| progress.places.get(place)).copied().unwrap_or(span);
        Err(wrong(
            opened,
            format!(
                "copies bring {found} bytes to index {index} of the {} that are announced",
                full.bytes
            ),
        )
        .secondary(full.span, "declared here"))
    }
}

/// Roles that wait for each other for ever where numbers of the run are what is supposed of them. That barriers add up
/// for all numbers is proved elsewhere; a barrier that does not for these is left out, since some facts do not hold.
pub(super) fn supposed(kernel: &Kernel, known: &Knowledge<'_>) -> Option<Diagnostic> {
    let ranks = kernel.launch.cluster_size();
    let all: Vec<Rounds<'_>> =
        (0..ranks).map(|rank| Rounds::supposed(kernel, rank, known)).collect();
    if all.iter().any(|rounds| rounds.spent.is_some()) {
        return None;
    }
    let adds_up = |&barrier: &BarrierId| {
        (0..).zip(&all).all(|(rank, rounds)| {
            let others = cast::from_others(kernel, barrier, rank, &all);
            let judge = Judge { kernel, barrier, all: &all, rounds, rank, others };
            let of_cluster = kernel.barriers[barrier].of_cluster;
            !rounds.unknown.contains(&barrier) && (of_cluster || judge.check().is_ok())
        })
    };
    let named = kernel.barriers.ids().filter(|id| pipeline(kernel, *id) == *id);
    let found = stuck(kernel, &all, &named.filter(adds_up).collect())?;
    let numbers = all.first().map_or(Vec::new(), |rounds| {
        let named = |(symbol, n): (&Symbol, &i32)| match symbol {
            Symbol::Param(id) => Some(format!("`{}` = {n}", kernel.params[*id].name)),
            _ => None,
        };
        rounds.supposed.iter().filter_map(named).collect()
    });
    Some(if numbers.is_empty() {
        found
    } else {
        found.note(format!("with {}", numbers.join(", ")))
    })
}

/// A barrier of the CTA with a rank, and an index.
type At = (i64, BarrierId, i64);

/// Arrivals and bytes that have come.
#[derive(Default)]
struct Come {
    arrivals: BTreeMap<At, u32>,
    bytes: BTreeMap<At, u64>,
}

/// What a role of the CTA with a rank does.
struct List {
    rank: i64,
    role: RoleId,
    events: Vec<Event>,
    /// How many it has done.
    at: usize,
}

/// Roles that wait for each other for ever.
fn stuck(kernel: &Kernel, all: &[Rounds<'_>], decided: &BTreeSet<BarrierId>) -> Option<Diagnostic> {
    let regions = all.iter().flat_map(|rounds| &rounds.roles).map(|role| role.region);
    let regions: BTreeSet<usize> = regions.collect();
    let mut come = Come::default();
    for region in regions {
        let mut lists = Vec::new();
        for (rank, rounds) in (0..).zip(all) {
            for role in rounds.roles.iter().filter(|role| role.region == region) {
                let known = role.events.iter().filter(|event| decided.contains(&event.barrier));
                lists.push(List { rank, role: role.role, events: known.copied().collect(), at: 0 });
            }
        }
        play(kernel, &mut come, &mut lists);
        let waiting = |list: &List| Some((list.role, *list.events.get(list.at)?));
        let mut waiting = lists.iter().filter_map(waiting);
        let why = |(role, event): (RoleId, Event)| {
            let name = &kernel.roles[role].name;
            (event.span, format!("`{name}` waits here for index {} for ever", event.index))
        };
        let Some((span, first)) = waiting.next().map(why) else { continue };
        let finding =
            waiting.map(why).fold(wrong(span, first), |d, (span, why)| d.secondary(span, why));
        return Some(
            finding
                .help("release slots before waiting for those that need them, or take more stages"),
        );
    }
    None
}

fn play(kernel: &Kernel, come: &mut Come, lists: &mut [List]) {
    loop {
        let mut moved = false;
        for list in lists.iter_mut() {
            while let Some(event) = list.events.get(list.at)
                && may_go(kernel, come, list.rank, event)
            {
                go(kernel, come, list.rank, list.role, event);
                list.at += 1;
                moved = true;
            }
        }
        if !moved {
            return;
        }
    }
}

/// Whether the role does not wait for ever at an operation.
fn may_go(kernel: &Kernel, come: &Come, rank: i64, event: &Event) -> bool {
    let declared = &kernel.barriers[event.barrier];
    match event.act {
        Act::Fill { .. } | Act::Release { .. } | Act::Send { .. } => true,
        Act::Open => {
            let before = event.index - i64::from(declared.slots);
            let Some(empty) = declared.partner.filter(|_| before >= 0) else { return true };
            let needed = kernel.barriers[empty].arrivals;
            come.arrivals.get(&(rank, empty, before)).is_some_and(|n| *n >= needed)
        }
        Act::Wait if declared.bytes > 0 => {
            let landed = come.bytes.get(&(rank, event.barrier, event.index));
            landed.is_some_and(|n| *n >= u64::from(declared.bytes_awaited()))
        }
        Act::Wait => {
            let found = come.arrivals.get(&(rank, event.barrier, event.index));
            found.is_some_and(|n| *n >= declared.arrivals)
        }
    }
}

fn go(kernel: &Kernel, come: &mut Come, rank: i64, role: RoleId, event: &Event) {
    let all = || 0..i64::from(kernel.launch.cluster_size());
    let ctas = |everywhere: bool| if everywhere { all() } else { rank..rank + 1 };
    let mut land = |cta: i64, bytes: u64| {
        *come.bytes.entry((cta, event.barrier, event.index)).or_insert(0) += bytes;
    };
    match event.act {
        Act::Open | Act::Wait => {}
        Act::Fill { bytes, .. } if kernel.barriers[event.barrier].between == Between::Gathered => {
            land(0, bytes);
        }
        Act::Fill { bytes, to } => {
            all().filter(|cta| to.reaches(*cta)).for_each(|cta| land(cta, bytes));
        }
        Act::Send { cta, bytes } => land(cta, bytes),
        Act::Release { barrier, everywhere } => {
            let role = &kernel.roles[role];
            let arrivals = if role.elect { 1 } else { role.warps };
            let gathered = kernel.barriers[barrier].between == Between::Gathered;
            for cta in if gathered { 0..1 } else { ctas(everywhere) } {
                *come.arrivals.entry((cta, barrier, event.index)).or_insert(0) += arrivals;
            }
        }
    }
}

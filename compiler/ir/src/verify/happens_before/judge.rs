//! Every two accesses of one memory: apart, ordered, or neither.

use std::collections::{BTreeMap, BTreeSet};

use kernel_abi::Access;
use kernel_dsl::diag::{Code, Fact};
use kernel_dsl::source::Span;
use petgraph::graph::NodeIndex;

use super::super::scalars::Symbol;
use super::agents::Scope;
use super::graph::{Arm, Edge, Graph};
use super::reuse::reuse;
use super::text;
use super::touch::{Apart, Kind, Memory, Places, Reach, Touch};
use super::trace::{MAX_EVENTS, Trace};
use super::words::{DIGITS, Ops};
use super::{Open, Proof, Proofs, Verdict, Wanted};
use crate::kernel::{Kernel, ParamId, RANK, ValueId};

/// Pairs of accesses that are looked at, at most.
const MAX_PAIRS: usize = 60_000;
/// Pairs of events that are looked at with a choice split in two, at most.
const MAX_SPLIT_PROOFS: u32 = 500;

/// What is left out where it hangs on the place of a CTA in its cluster.
const PLACES: &str = "places of CTAs in their cluster (E0122, E0156, E0157, E0175)";

/// What was found of two statements so far.
#[derive(Default)]
struct Summary {
    /// Two accesses that neither is found for, and why they are left out.
    open: Option<(usize, usize, Option<&'static str>)>,
    /// Two accesses in order, a write first, and a read first.
    ordered: [Option<(usize, usize)>; 2],
    apart: Option<Apart>,
}

/// What an event comes before, once for each event and condition.
type Reached = BTreeMap<(NodeIndex, Vec<Arm>, [bool; 3]), Vec<bool>>;

struct Judge<'a, 'k> {
    trace: &'a Trace<'k>,
    places: Places<'a>,
    wanted: Wanted,
    reached: Reached,
    /// Conditions that hold where an event happens.
    implied: BTreeMap<NodeIndex, BTreeSet<Arm>>,
    /// Some choice has both of its arms in the graph.
    has_choices: bool,
    /// Pairs of events that may still be looked at with a choice split in two.
    splits: u32,
}

pub(super) fn judge(
    trace: &Trace<'_>,
    (loops_of, ops): (&BTreeMap<ValueId, BTreeSet<ValueId>>, &Ops<'_>),
    wanted: Wanted,
    proofs: &mut Proofs,
) {
    let places = Places { kernel: trace.kernel, known: trace.known, loops_of, ops };
    let (has_choices, splits) = (trace.graph.has_choices(), MAX_SPLIT_PROOFS);
    let mut judge = Judge {
        trace,
        places,
        wanted,
        reached: Reached::new(),
        implied: BTreeMap::new(),
        has_choices,
        splits,
    };
    if trace.scope == Scope::Threads {
        judge.launches(proofs);
    }
    if wanted == Wanted::All {
        reuse(trace, proofs);
    }
    judge.pairs(proofs);
    proofs.touched.extend(trace.touches.iter().map(|touch| touch.span));
}

impl Judge<'_, '_> {
    fn pairs(&mut self, proofs: &mut Proofs) {
        let mut by_memory: BTreeMap<Memory, Vec<usize>> = BTreeMap::new();
        for (number, touch) in self.trace.touches.iter().enumerate() {
            by_memory.entry(touch.memory).or_default().push(number);
        }
        let mut left = MAX_PAIRS;
        for (memory, touches) in by_memory {
            let mut found: BTreeMap<(Span, Span), Summary> = BTreeMap::new();
            for (at, &i) in touches.iter().enumerate() {
                for &j in touches.iter().skip(at) {
                    if left == 0 {
                        proofs.left_out.insert(format!("what lies behind {MAX_PAIRS} pairs"));
                        break;
                    }
                    let (a, b) = (&self.trace.touches[i], &self.trace.touches[j]);
                    if !self.is_pair(a, b) {
                        continue;
                    }
                    left -= 1;
                    let places = (a.span.min(b.span), a.span.max(b.span));
                    let mut summary = found.remove(&places).unwrap_or_default();
                    self.compare((i, j), &mut summary);
                    found.insert(places, summary);
                }
            }
            // Of places that were not compared to the end nothing is said but what is open.
            found.retain(|_, summary| left > 0 || summary.open.is_some());
            for (places, summary) in found {
                self.tell(memory, places, &summary, proofs);
            }
        }
    }

    /// True where the two are of different hands in this graph.
    fn is_pair(&self, a: &Touch, b: &Touch) -> bool {
        let (one, other) = (self.trace.agents[a.agent], self.trace.agents[b.agent]);
        let is_inbox = match a.memory {
            Memory::Buffer(param) => self.trace.kernel.params[param].is_inbox(),
            Memory::Tile(_) => false,
        };
        let is_tile = matches!(a.memory, Memory::Tile(_));
        if a.kind == Kind::Read && b.kind == Kind::Read {
            return false;
        }
        match self.trace.scope {
            Scope::Threads => {
                // Of one copy each thread has its own part.
                let is_one = a.span == b.span && a.rounds == b.rounds && a.is_async && b.is_async;
                let hands = a.agent != b.agent || a.is_async || b.is_async;
                hands && !is_one && a.event != b.event
            }
            Scope::Cluster => is_tile && one.cta != other.cta && (a.is_foreign || b.is_foreign),
            Scope::Grid => !is_tile && one.cta != other.cta,
            Scope::Ranks => is_inbox && one.rank != other.rank,
        }
    }

    fn compare(&mut self, (i, j): (usize, usize), summary: &mut Summary) {
        let (a, b) = (&self.trace.touches[i], &self.trace.touches[j]);
        let mut axes = [false; 3];
        let under = |touch: &Touch| &self.trace.graph.events[touch.event].under;
        if under(a).iter().any(|&(choice, truth)| under(b).contains(&(choice, !truth))) {
            summary.apart.get_or_insert(Apart::Arms);
            return;
        }
        let apart = match self.trace.scope {
            Scope::Threads => self.places.apart(a, b),
            Scope::Cluster => self.cluster_apart(a, b),
            Scope::Grid => match self.places.shared_axes(a, b) {
                None if self.is_inbox(a) => None,
                Some(shared) => {
                    axes = shared;
                    None
                }
                None => Some(Apart::Axis(0)),
            },
            Scope::Ranks => self.ranks_apart(a, b),
        };
        if let Some(apart) = apart {
            summary.apart.get_or_insert(apart);
            return;
        }
        if let Some(what) = self.never_judged(a, b) {
            summary.open.get_or_insert((i, j, Some(what)));
            return;
        }
        for (from, to) in [(i, j), (j, i)] {
            if self.is_ordered(from, to, axes) {
                let reads_first = usize::from(self.trace.touches[from].kind == Kind::Read);
                let known = &mut summary.ordered[reads_first];
                if known.is_none_or(|known| self.is_nearer((from, to), known)) {
                    *known = Some((from, to));
                }
                return;
            }
        }
        let left_out = self.left_out(a, b);
        let is_open = |open: &(usize, usize, Option<&str>)| open.2.is_none();
        if !summary.open.as_ref().is_some_and(is_open) {
            summary.open = Some((i, j, left_out));
        }
    }

    /// Of reads before writes of memory of ranks those are shown that use the slot next.
    fn is_nearer(&self, new: (usize, usize), known: (usize, usize)) -> bool {
        let distance = |(from, to): (usize, usize)| {
            let launch = |at: usize| self.trace.agents[self.trace.touches[at].agent].launch;
            launch(to).abs_diff(launch(from))
        };
        distance(new) < distance(known)
    }

    fn is_ordered(&mut self, from: usize, to: usize, axes: [bool; 3]) -> bool {
        let (a, b) = (&self.trace.touches[from], &self.trace.touches[to]);
        let (x, y) = (a.event, b.event);
        let ordered = self.comes_before(x, y, axes);
        if !(ordered && a.by_threads && b.needs_publish) {
            return ordered;
        }
        // What one of the two accesses says counts, and not that a fence has come.
        let assumed = self.assumed(x, y);
        let published = self.trace.published.iter().filter(|(memory, _)| *memory == a.memory);
        let fences: Vec<NodeIndex> = published.map(|(_, fence)| *fence).collect();
        self.is_published((x, y), &fences, &assumed, axes)
            || fences.iter().flat_map(|&fence| &self.trace.graph.events[fence].under).any(|arm| {
                // Both arms of a choice may publish.
                let both = [true, false].map(|truth| {
                    let mut assumed = assumed.clone();
                    assumed.insert((arm.0, truth));
                    assumed
                });
                !both.contains(&assumed)
                    && both.iter().all(|known| self.is_published((x, y), &fences, known, axes))
            })
    }

    /// True where a path leads through one of the fences whenever these conditions hold.
    fn is_published(
        &mut self,
        (x, y): (NodeIndex, NodeIndex),
        fences: &[NodeIndex],
        assumed: &BTreeSet<Arm>,
        axes: [bool; 3],
    ) -> bool {
        let graph = &self.trace.graph;
        fences.iter().any(|&fence| {
            Self::leads(&mut self.reached, graph, (x, fence), assumed, axes)
                && Self::leads(&mut self.reached, graph, (fence, y), assumed, axes)
        })
    }

    /// The conditions that hold where both events happen.
    fn assumed(&mut self, x: NodeIndex, y: NodeIndex) -> BTreeSet<Arm> {
        let graph = &self.trace.graph;
        for at in [x, y] {
            self.implied.entry(at).or_insert_with(|| graph.implied(at));
        }
        let of = |at: NodeIndex| self.implied.get(&at).into_iter().flatten().copied();
        of(x).chain(of(y)).collect()
    }

    /// True where a path leads from one event to the other whenever these conditions hold.
    fn leads(
        known: &mut Reached,
        graph: &Graph,
        (from, to): (NodeIndex, NodeIndex),
        assumed: &BTreeSet<Arm>,
        axes: [bool; 3],
    ) -> bool {
        let key = (from, assumed.iter().copied().collect(), axes);
        let reached = known.entry(key).or_insert_with(|| graph.reached(from, assumed, axes));
        reached.get(to.index()).copied().unwrap_or_default()
    }

    fn comes_before(&mut self, from: NodeIndex, to: NodeIndex, axes: [bool; 3]) -> bool {
        let graph = &self.trace.graph;
        let assumed = self.assumed(from, to);
        if Self::leads(&mut self.reached, graph, (from, to), &assumed, axes) {
            return true;
        }
        if !self.has_choices {
            return false;
        }
        // Both arms of a choice may order the two.
        match self.splits.checked_sub(1) {
            Some(left) => {
                self.splits = left;
                graph.path(from, to, axes).is_some()
            }
            None => false,
        }
    }

    /// Two CTAs of a cluster.
    fn cluster_apart(&self, a: &Touch, b: &Touch) -> Option<Apart> {
        if self.places.apart_in_cluster(a, b) == Some(true) {
            return Some(Apart::Places);
        }
        self.places.apart(a, b).filter(|apart| *apart == Apart::Harmless)
    }

    /// Two ranks: slots, and for two stores the number of the rank.
    fn ranks_apart(&self, a: &Touch, b: &Touch) -> Option<Apart> {
        if self.places.slot_distance(a, b).is_some_and(|distance| distance != 0) {
            return Some(Apart::Slots);
        }
        if a.kind == Kind::Read || b.kind == Kind::Read || a.axes != b.axes {
            return None;
        }
        let own = |touch: &Touch, axis: usize| {
            let Reach::Run { start, len } = &touch.sides.get(axis)?.reach else { return None };
            let terms: Vec<_> = start.terms.iter().collect();
            let &[(&Symbol::Param(param), &step)] = terms.as_slice() else {
                return None;
            };
            let is_rank = self.trace.kernel.params[param].name == RANK;
            let within = start.constant.checked_rem_euclid(step)?;
            let fits = within.checked_add(i128::from(*len)).is_some_and(|end| end <= step);
            (is_rank && step > 0 && fits).then(|| (step, start.constant.div_euclid(step)))
        };
        let axis = (0..a.sides.len()).find(|&axis| {
            let place = own(a, axis);
            place.is_some() && place == own(b, axis)
        })?;
        Some(Apart::Axis(axis))
    }

    fn is_inbox(&self, touch: &Touch) -> bool {
        matches!(touch.memory, Memory::Buffer(param) if self.trace.kernel.params[param].is_inbox())
    }

    /// What the graph would order, and the passes do not.
    fn never_judged(&self, a: &Touch, b: &Touch) -> Option<&'static str> {
        let is_copy_of_buffer = (a.is_async || b.is_async) && matches!(a.memory, Memory::Buffer(_));
        let loads_there = [a, b].iter().any(|touch| touch.kind == Kind::Read && touch.is_foreign);
        match self.trace.scope {
            Scope::Grid if self.is_inbox(a) => Some("which CTA of another rank stores (E0116)"),
            Scope::Grid if is_copy_of_buffer => {
                Some("copies of buffers that other CTAs store to (E0116)")
            }
            Scope::Ranks if loads_there && !self.trace.kernel.uses_multicast() => {
                Some("loads of memory of another rank (E0133)")
            }
            Scope::Threads | Scope::Cluster | Scope::Grid | Scope::Ranks => None,
        }
    }

    /// Why the graph cannot decide, where that is so.
    fn left_out(&self, a: &Touch, b: &Touch) -> Option<&'static str> {
        let kernel = self.trace.kernel;
        let has = |what: &str| self.trace.left_out.iter().any(|name| name.starts_with(what));
        let is_loaded = |touch: &Touch| {
            touch.sides.iter().any(|side| match &side.reach {
                Reach::Each(_) => true,
                Reach::Run { start, .. } => start
                    .terms
                    .keys()
                    .any(|symbol| matches!(symbol, Symbol::Value(_) | Symbol::Earlier(_))),
            })
        };
        let is_spent = self.has_choices && self.splits == 0;
        if is_spent || self.trace.graph.events.node_count() >= MAX_EVENTS {
            return Some("what lies behind too many events or choices (E0219)");
        }
        let is_copy_of_buffer = (a.is_async || b.is_async) && matches!(a.memory, Memory::Buffer(_));
        match self.trace.scope {
            Scope::Threads => {
                let is_waived = kernel.waivers.iter().any(|waiver| waiver.code == "E0404");
                let by_index = |touch: &Touch| {
                    touch.sides.iter().any(|side| matches!(side.reach, Reach::Each(_)))
                };
                let is_pair = crate::kernel::first_of_pair(&kernel.body).is_some();
                let is_sent = |tile| {
                    super::super::pipes::inboxes(kernel).iter().any(|(inbox, _)| *inbox == tile)
                };
                let same_warps = match (a.role, b.role) {
                    (Some(one), Some(other)) if one != other => {
                        let [one, other] = [one, other].map(|role| &kernel.roles[role]);
                        one.first < other.first.saturating_add(other.warps)
                            && other.first < one.first.saturating_add(one.warps)
                    }
                    (_, _) => false,
                };
                let is_counted = |touch: &Touch| {
                    touch.slot.as_ref().is_some_and(|slot| slot.as_constant().is_none())
                };
                if matches!(a.memory, Memory::Tile(tile) if is_sent(tile)) {
                    Some("sends between CTAs (E0156)")
                } else if a.is_async && b.is_async && is_copy_of_buffer {
                    Some("copies out that write one element twice, and the end of threads (E0161)")
                } else if same_warps {
                    Some("roles that follow each other on the same warps (E0113, E0120)")
                } else if is_waived && (by_index(a) || by_index(b)) {
                    Some("index tiles that the author vouches for (E0404)")
                } else if is_pair && (a.is_async || b.is_async) {
                    Some("products of a pair of CTAs (E0148)")
                } else if self.trace.is_loose && (is_counted(a) || is_counted(b)) {
                    Some("indices of pipelines that start at a number of the run (E0154)")
                } else if self.is_inbox(a) {
                    Some("stores to several ranks by one thread (E0120)")
                } else {
                    None
                }
            }
            Scope::Cluster => {
                let is_simple = |touch: &Touch| {
                    !touch.under && touch.facts.is_empty() && touch.rounds.is_empty()
                };
                let known = self.places.apart_in_cluster(a, b).is_some();
                let simple = is_simple(a) && is_simple(b) && known;
                (!simple || !kernel.barriers.is_empty()).then_some(PLACES)
            }
            Scope::Grid => {
                let in_cluster = |touch: &Touch| {
                    let mut forms = touch.sides.iter().map(|side| match &side.reach {
                        Reach::Run { start, .. } => start,
                        Reach::Each(form) => form,
                    });
                    let is_place = |symbol: &Symbol| matches!(symbol, Symbol::Cluster(_));
                    !touch.facts.is_empty() || forms.any(|form| form.terms.keys().any(is_place))
                };
                let has_clusters = kernel.launch.cluster_size() > 1;
                if has(DIGITS) {
                    Some(DIGITS)
                } else if has_clusters && (in_cluster(a) || in_cluster(b)) {
                    Some(PLACES)
                } else if is_loaded(a) || is_loaded(b) {
                    Some("places by loaded values and numbers of rounds (E0116, E0175)")
                } else {
                    None
                }
            }
            Scope::Ranks => {
                if has("signals to one rank") {
                    Some("signals to one rank (E0134)")
                } else if kernel.uses_multicast() {
                    Some("multicast addresses (E0137)")
                } else {
                    None
                }
            }
        }
    }

    /// One line for two statements.
    fn tell(&self, memory: Memory, places: (Span, Span), summary: &Summary, proofs: &mut Proofs) {
        let name = match memory {
            Memory::Tile(tile) => &self.trace.kernel.smem[tile].name,
            Memory::Buffer(param) => &self.trace.kernel.params[param].name,
        };
        let told = |verdict: Verdict, why: Fact| Proof {
            memory: name.clone(),
            places: [places.0, places.1],
            between: self.trace.scope.name(),
            verdict,
            why,
            open: None,
        };
        if let Some((i, j, left_out)) = summary.open {
            let fact = self.pair(i, j);
            proofs.proofs.push(match left_out {
                Some(what) => {
                    proofs.left_out.insert(what.to_owned());
                    told(Verdict::LeftOut, fact.text(format!(": not in the graph: {what}")))
                }
                None => Proof {
                    open: Some(self.open(memory, (i, j))),
                    ..told(Verdict::Open, fact.text(": no path"))
                },
            });
            return;
        }
        if self.wanted == Wanted::Open {
            return;
        }
        let mut is_told = false;
        for (reads_first, pair) in summary.ordered.iter().enumerate() {
            let Some((from, to)) = *pair else { continue };
            is_told = true;
            proofs.proofs.push(told(Verdict::Ordered, self.path(from, to, reads_first == 1)));
        }
        if let Some(apart) = summary.apart.as_ref().filter(|_| !is_told) {
            let fact = Fact::new("apart").line(places.0).text(" and ").line(places.1);
            let why = match (apart, self.trace.scope) {
                (Apart::Harmless, _) => ": both change by one operation".to_owned(),
                (Apart::Slots, Scope::Ranks) => ": other slots, launch by launch".to_owned(),
                (Apart::Slots, _) => ": other slots of the ring".to_owned(),
                (Apart::Places, _) => ": other places for each two CTAs of a cluster".to_owned(),
                (Apart::Axis(_), Scope::Grid) => ": each CTA has places of its own".to_owned(),
                (Apart::Axis(_), Scope::Ranks) => ": each rank has places of its own".to_owned(),
                (Apart::Axis(axis), _) => format!(": other positions along axis {axis}"),
                (Apart::Arms, _) => ": the two arms of one choice".to_owned(),
                (Apart::Thread, _) => ": each element is of one thread".to_owned(),
            };
            proofs.proofs.push(told(Verdict::Apart, fact.text(why)));
        }
    }

    /// What is reported of two accesses of a memory that nothing orders: the rule that they break.
    fn open(&self, memory: Memory, (i, j): (usize, usize)) -> Open {
        let [a, b] = [i, j].map(|at| &self.trace.touches[at]);
        let is_read = |touch: &Touch| touch.kind == Kind::Read;
        let code = match (self.trace.scope, memory) {
            (Scope::Threads, _) if a.role.is_some() && b.role.is_some() && a.role != b.role => {
                Code::E0153
            }
            (Scope::Threads, Memory::Buffer(_)) => Code::E0120,
            (Scope::Threads, Memory::Tile(_)) => {
                let copies = [a, b].into_iter().filter(|touch| touch.is_async);
                match copies.map(is_read).max() {
                    Some(true) if a.by_threads && b.needs_publish => Code::E0162,
                    Some(true) => Code::E0160,
                    Some(false) => Code::E0118,
                    None => Code::E0113,
                }
            }
            (Scope::Cluster, _) => Code::E0122,
            (Scope::Grid, _) if a.kind == Kind::Write && b.kind == Kind::Write => Code::E0175,
            (Scope::Grid, _) => Code::E0116,
            (Scope::Ranks, _) if is_read(a) || is_read(b) => Code::E0133,
            (Scope::Ranks, _) => Code::E0134,
        };
        let act = |touch: &Touch| {
            let event = &self.trace.graph.events[touch.event];
            (event.what.clone(), touch.span, event.who.clone())
        };
        Open { code, declared: self.declared(memory), acts: [act(b), act(a)] }
    }

    fn declared(&self, memory: Memory) -> Span {
        match memory {
            Memory::Tile(tile) => self.trace.kernel.smem[tile].span,
            Memory::Buffer(param) => self.trace.kernel.params[param].span,
        }
    }

    fn pair(&self, i: usize, j: usize) -> Fact {
        let [a, b] = [i, j].map(|at| &self.trace.graph.events[self.trace.touches[at].event]);
        let fact = Fact::new("open").text(format!("{} (", a.what)).line(a.span);
        let fact = fact.text(format!(", {}) and {} (", a.who, b.what)).line(b.span);
        fact.text(format!(", {})", b.who))
    }

    fn path(&self, from: usize, to: usize, reuse: bool) -> Fact {
        let (a, b) = (&self.trace.touches[from], &self.trace.touches[to]);
        let axes = match self.trace.scope {
            Scope::Grid => self.places.shared_axes(a, b).unwrap_or_default(),
            Scope::Threads | Scope::Cluster | Scope::Ranks => [false; 3],
        };
        let fact = Fact::new("ordered");
        let path = self.trace.graph.path(a.event, b.event, axes).unwrap_or_default();
        let fact = text::path(self.trace, &path, fact);
        let launch = |touch: &Touch| self.trace.agents[touch.agent].launch;
        match (self.trace.scope, launch(b).checked_sub(launch(a))) {
            (Scope::Ranks, Some(distance)) if reuse => {
                let covered =
                    path.iter().rev().find(|(edge, _)| matches!(edge, Some(Edge::Signal(_))));
                let fact = fact.text(format!("; the slot is used again after {distance} launches"));
                match covered {
                    Some((_, wait)) => fact
                        .text(", covered by the wait on ")
                        .line(self.trace.graph.events[*wait].span),
                    None => fact,
                }
            }
            (_, _) => fact,
        }
    }

    /// R1: what other launches touch comes behind the wait for them.
    fn launches(&mut self, proofs: &mut Proofs) {
        let kernel: &Kernel = self.trace.kernel;
        if !kernel.launch.pdl.is_consumer() {
            return;
        }
        let Some(earlier) = self.trace.earlier(0) else { return };
        let mut found: BTreeMap<(ParamId, Span), (usize, bool)> = BTreeMap::new();
        for (number, touch) in self.trace.touches.iter().enumerate() {
            let Memory::Buffer(param) = touch.memory else { continue };
            let declared = &kernel.params[param];
            let may_be_early = declared.settled
                || declared.access.may_read_before_wait()
                || declared.access == Access::Static;
            if touch.kind == Kind::Read && may_be_early {
                continue;
            }
            let ordered = self.comes_before(earlier, touch.event, [false; 3]);
            let known = found.entry((param, touch.span)).or_insert((number, true));
            if !ordered && known.1 {
                *known = (number, false);
            }
        }
        for ((param, span), (number, ordered)) in found {
            if ordered && self.wanted == Wanted::Open {
                continue;
            }
            let touch = &self.trace.touches[number];
            let event = touch.event;
            let acts = || {
                let at = &self.trace.graph.events[event];
                let launches =
                    ("launches ahead".to_owned(), span, "which may still run".to_owned());
                [(at.what.clone(), span, at.who.clone()), launches]
            };
            let open = (!ordered).then(|| Open {
                code: if touch.kind == Kind::Read { Code::E0107 } else { Code::E0108 },
                declared: kernel.params[param].span,
                acts: acts(),
            });
            let fact = if ordered {
                let path = self.trace.graph.path(earlier, event, [false; 3]).unwrap_or_default();
                text::path(self.trace, &path, Fact::new("ordered"))
            } else {
                let what = &self.trace.graph.events[event].what;
                let fact = Fact::new("open").text("earlier launches and ");
                fact.text(format!("{what} (")).line(span).text("): no path")
            };
            proofs.proofs.push(Proof {
                memory: kernel.params[param].name.clone(),
                places: [span, span],
                between: "launches",
                verdict: if ordered { Verdict::Ordered } else { Verdict::Open },
                why: fact,
                open,
            });
        }
    }
}

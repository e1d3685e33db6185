//! What each agent does, one event after another, and what orders agents.
//!
//! A loop of which the number of rounds is a small constant is followed to its end, any other for as many rounds as the
//! largest ring has slots and two more. A choice that the round decides is decided; of any other both arms stand in the
//! graph, and an event of an arm counts where one of the two events that are compared is of the same arm.

mod rounds;
mod waits;

use std::collections::{BTreeMap, BTreeSet};

use kernel_dsl::source::Span;
use petgraph::graph::NodeIndex;

use super::super::missing::{does, named_order};
use super::super::scalars::{Facts, Form, Knowledge, Symbol};
use super::agents::{Agent, Scope};
use super::graph::{Arm, Edge, Event, Graph};
use super::touch::{Kind, Memory, Reach, Rounds, Side, Touch};
use super::words::Ops;
use crate::distribution::Distribution;
use crate::kernel::{
    AxisIndex, BarrierId, Kernel, Op, ParamId, RoleId, Signal, Stmt, StmtKind, Storage, TensorAtom,
    TileAccess, ValueId, Word,
};

/// Events of a graph, at most.
pub(super) const MAX_EVENTS: usize = 3_000;
/// Rounds of a loop that is followed to its end, at most: with barriers, of which all roles follow the same, or with all
/// loops around it.
const MAX_FULL: u32 = 64;

/// An event that several agents share.
type Key = (usize, Vec<(ValueId, u32)>, (u32, u32, u32), Option<RoleId>, bool);
/// Which CTA, barrier and index.
type RoundKey = ((u32, u32, u32), BarrierId);
/// Which CTA compares what with what.
type Condition = ((u32, u32, u32), u8, Form, Form);

/// A wait for an index of a barrier.
struct Waiting {
    of: RoundKey,
    index: Form,
    event: NodeIndex,
}

/// A signal or an await, for whoever connects them.
pub(super) struct Told<'k> {
    pub(super) stmt: &'k Stmt,
    pub(super) agent: usize,
    pub(super) event: NodeIndex,
    /// Forms of the index of a signal.
    pub(super) index: Vec<Form>,
}

/// An arrival of a CTA at a word, and what the last one does behind it.
pub(super) struct Arrived {
    pub(super) group: (u32, u32, u32),
    pub(super) word: (ParamId, Form),
    pub(super) arrival: NodeIndex,
    pub(super) last: NodeIndex,
}

pub(super) struct Trace<'k> {
    pub(super) kernel: &'k Kernel,
    pub(super) known: &'k Knowledge<'k>,
    pub(super) scope: Scope,
    pub(super) agents: Vec<Agent>,
    pub(super) graph: Graph,
    pub(super) touches: Vec<Touch>,
    pub(super) signals: Vec<Told<'k>>,
    pub(super) awaits: Vec<Told<'k>>,
    pub(super) arrivals: Vec<Arrived>,
    /// Where threads publish what they have stored.
    pub(super) published: Vec<(Memory, NodeIndex)>,
    /// What the graph does not have, by name.
    pub(super) left_out: BTreeSet<String>,
    /// Where launches end.
    ends: BTreeMap<(u32, u32), NodeIndex>,
    shared: BTreeMap<Key, NodeIndex>,
    choices: BTreeMap<Key, usize>,
    /// Choices by what they compare, of those that are the same in all roles.
    conditions: BTreeMap<Condition, usize>,
    /// CTAs work in the memory of others.
    is_joint: bool,
    /// How values are computed.
    ops: &'k Ops<'k>,
    rounds: BTreeMap<RoundKey, Vec<(Form, NodeIndex)>>,
    waiting: Vec<Waiting>,
    /// Buffers that are touched in another way than by loads.
    written: BTreeSet<ParamId>,
    /// What the last one of the CTAs does, by the value that says so.
    last: BTreeMap<(ValueId, (u32, u32, u32)), NodeIndex>,
    most_rounds: u32,
    /// Rounds of inner loops with barriers in one of a loop whose end is not known, at most.
    inner_rounds: u32,
    /// Some indices of a barrier cannot be compared.
    pub(super) is_loose: bool,
}

/// Groups of copies or products, each the events that are complete with it; the youngest last.
type Groups = Vec<Vec<NodeIndex>>;

/// How far an agent is.
#[derive(Clone)]
struct Thread {
    agent: usize,
    role: Option<RoleId>,
    tails: Vec<NodeIndex>,
    under: Vec<Arm>,
    rounds: Rounds,
    /// Rounds of all loops around, multiplied.
    followed: u32,
    values: Vec<(Symbol, Form)>,
    facts: Facts,
    /// Words at which the CTA was the last to arrive.
    last_at: Vec<(ParamId, Form)>,
    copies: Groups,
    outgoing: Groups,
    open: Vec<NodeIndex>,
    products: Groups,
    tensor: Vec<(TensorAtom, NodeIndex)>,
}

impl Thread {
    /// Two paths meet.
    fn join(&mut self, other: Thread) {
        for tail in other.tails {
            if !self.tails.contains(&tail) {
                self.tails.push(tail);
            }
        }
        let groups = |own: &mut Groups, other: Groups| {
            while own.len() < other.len() {
                own.insert(0, Vec::new());
            }
            for (group, more) in own.iter_mut().rev().zip(other.into_iter().rev()) {
                let new: Vec<NodeIndex> =
                    more.into_iter().filter(|event| !group.contains(event)).collect();
                group.extend(new);
            }
        };
        groups(&mut self.copies, other.copies);
        groups(&mut self.outgoing, other.outgoing);
        groups(&mut self.products, other.products);
        self.open.extend(other.open);
        self.tensor.extend(other.tensor);
        self.tensor.dedup();
    }
}

/// Takes all groups but for the youngest ones.
fn older(groups: &mut Groups, pending: u32) -> Vec<NodeIndex> {
    let kept = groups.len().saturating_sub(pending as usize);
    groups.drain(..kept).flatten().collect()
}

impl<'k> Trace<'k> {
    pub(super) fn of(
        kernel: &'k Kernel,
        known: &'k Knowledge<'k>,
        scope: Scope,
        agents: Vec<Agent>,
        (ops, written): (&'k Ops<'k>, &BTreeSet<ParamId>),
    ) -> Trace<'k> {
        let slots = kernel.smem.iter().map(|tile| tile.slots);
        let slots = slots.chain(kernel.barriers.iter().map(|barrier| barrier.slots));
        let most_rounds = slots.max().unwrap_or(1).saturating_add(2);
        let mut trace = Trace {
            kernel,
            known,
            scope,
            agents,
            graph: Graph::default(),
            touches: Vec::new(),
            signals: Vec::new(),
            awaits: Vec::new(),
            arrivals: Vec::new(),
            published: Vec::new(),
            left_out: BTreeSet::new(),
            ends: BTreeMap::new(),
            shared: BTreeMap::new(),
            choices: BTreeMap::new(),
            rounds: BTreeMap::new(),
            waiting: Vec::new(),
            written: written.clone(),
            last: BTreeMap::new(),
            conditions: BTreeMap::new(),
            ops,
            most_rounds,
            inner_rounds: 1,
            is_joint: rounds::is_joint(&kernel.body),
            is_loose: false,
        };
        trace.inner_rounds = trace.most_inner(&kernel.body);
        trace.launches();
        for agent in 0..trace.agents.len() {
            trace.follow(agent);
        }
        trace.wait_for_rounds();
        if trace.graph.events.node_count() >= MAX_EVENTS {
            trace.left_out.insert(format!("what lies behind {MAX_EVENTS} events"));
        }
        trace
    }

    /// Launches of a rank end, and one behind the other; the first has one before it.
    fn launches(&mut self) {
        let mut groups: Vec<(u32, u32)> =
            self.agents.iter().map(|agent| (agent.rank, agent.launch)).collect();
        groups.sort_unstable();
        groups.dedup();
        for (rank, launch) in groups {
            for launch in [launch, launch + 1] {
                let what = if launch == 0 { "the end of earlier launches" } else { "the end" };
                let event = Event {
                    what: what.to_owned(),
                    span: self.kernel.span,
                    who: "the device".to_owned(),
                    under: Vec::new(),
                };
                let graph = &mut self.graph;
                self.ends.entry((rank, launch)).or_insert_with(|| graph.events.add_node(event));
            }
        }
    }

    /// Where earlier launches of a rank have ended.
    pub(super) fn earlier(&self, rank: u32) -> Option<NodeIndex> {
        self.ends.get(&(rank, 0)).copied()
    }

    fn follow(&mut self, agent: usize) {
        let Agent { rank, launch, role: _, .. } = self.agents[agent];
        let before = self.ends.get(&(rank, launch)).copied();
        let mut thread = Thread {
            agent,
            role: None,
            tails: Vec::new(),
            under: Vec::new(),
            rounds: Rounds::new(),
            followed: 1,
            values: Vec::new(),
            facts: Facts::new(),
            last_at: Vec::new(),
            copies: Vec::new(),
            outgoing: Vec::new(),
            open: Vec::new(),
            products: Vec::new(),
            tensor: Vec::new(),
        };
        let kernel = self.kernel;
        self.gate(&mut thread, kernel.span);
        if !kernel.launch.pdl.is_consumer()
            && let (Some(before), Some(&start)) = (before, thread.tails.first())
        {
            self.graph.edge(before, start, Edge::Launch);
        }
        self.block(&mut thread, &kernel.body);
        if let Some(&end) = self.ends.get(&(rank, launch + 1)) {
            for tail in thread.tails {
                self.graph.edge(tail, end, Edge::Launch);
            }
            if let Some(before) = before {
                self.graph.edge(before, end, Edge::Launch);
            }
        }
    }

    fn is_full(&self) -> bool {
        self.graph.events.node_count() >= MAX_EVENTS
    }

    fn block(&mut self, thread: &mut Thread, stmts: &'k [Stmt]) {
        for stmt in stmts {
            if self.is_full() {
                return;
            }
            self.stmt(thread, stmt);
        }
    }

    fn group(&self, thread: &Thread) -> (u32, u32, u32) {
        self.agents[thread.agent].group()
    }

    /// True for the thread that does what one of them does.
    fn leads(&self, thread: &Thread) -> bool {
        let own = self.agents[thread.agent];
        match thread.role {
            Some(_) => own.thread == 0,
            None => {
                let first = self.agents.iter().position(|other| other.group() == own.group());
                first == Some(thread.agent)
            }
        }
    }

    fn key(&self, thread: &Thread, stmt: &Stmt, truth: bool) -> Key {
        let rounds = thread.rounds.iter().map(|(&var, &round)| (var, round)).collect();
        (std::ptr::from_ref(stmt).addr(), rounds, self.group(thread), thread.role, truth)
    }

    fn event(&mut self, thread: &Thread, what: String, span: Span) -> NodeIndex {
        let agent = self.agents[thread.agent];
        let who = agent.describe(self.kernel, self.scope, thread.role);
        let under = thread.under.clone();
        self.graph.events.add_node(Event { what, span, who, under })
    }

    /// The next event of a thread.
    fn step(&mut self, thread: &mut Thread, what: String, span: Span, edge: Edge) -> NodeIndex {
        let event = self.event(thread, what, span);
        for tail in std::mem::replace(&mut thread.tails, vec![event]) {
            self.graph.edge(tail, event, edge);
        }
        event
    }

    /// A fork or a join.
    fn gate(&mut self, thread: &mut Thread, span: Span) -> NodeIndex {
        self.step(thread, String::new(), span, Edge::Then)
    }

    /// An event that all who come to it share: what any of them did before comes before what they do behind.
    fn meet(&mut self, thread: &mut Thread, stmt: &Stmt, edge: Edge) -> NodeIndex {
        let mut key = self.key(thread, stmt, false);
        let of_cluster = matches!(edge, Edge::Cluster(_));
        if of_cluster {
            key.2.2 = 0;
            key.3 = None;
        }
        let event = match self.shared.get(&key) {
            Some(&event) => event,
            None => {
                let event = self.event(thread, named_order(self.kernel, stmt), stmt.span);
                self.graph.events[event].who = "all who meet".to_owned();
                self.shared.insert(key, event);
                event
            }
        };
        let tails = std::mem::take(&mut thread.tails);
        // What follows is of this thread alone.
        let after = self.gate(thread, stmt.span);
        for tail in tails {
            self.graph.edge(tail, event, edge);
            if of_cluster {
                self.graph.edge(tail, after, Edge::Then);
            }
        }
        self.graph.edge(event, after, edge);
        event
    }

    fn meet_cluster(&mut self, thread: &mut Thread, stmt: &Stmt) {
        let between = self.kernel.launch.between_clusters();
        let whole = match self.scope {
            Scope::Cluster => [true; 3],
            Scope::Grid => between.map(|extent| extent == 1),
            Scope::Threads | Scope::Ranks => return,
        };
        self.meet(thread, stmt, Edge::Cluster(whole));
    }

    fn stmt(&mut self, thread: &mut Thread, stmt: &'k Stmt) {
        match &stmt.kind {
            StmtKind::Def { results, op } => self.def(thread, stmt, results, op),
            StmtKind::Store { value, access, update, .. } => {
                let kind = update.map_or(Kind::Write, Kind::Change);
                let spread = &self.kernel.values[*value].distribution;
                self.access(thread, stmt, access, kind, Some(spread));
            }
            StmtKind::CopyAsync { source, dest, .. } => {
                let event = self.start(thread, stmt);
                self.touch(thread, source, Kind::Read, None, (event, true));
                self.touch(thread, dest, Kind::Write, None, (event, true));
                if let Some(touch) = self.touches.last_mut() {
                    touch.by_threads = true;
                }
                thread.copies.push(vec![event]);
            }
            StmtKind::EmptyGroup => thread.copies.push(Vec::new()),
            StmtKind::Settle { pending, .. } => {
                let done = older(&mut thread.copies, *pending);
                self.settle(thread, stmt, done);
            }
            StmtKind::Outgoing(op) => self.outgoing(thread, stmt, op),
            StmtKind::Warpgroup(op) => self.warpgroup(thread, stmt, op),
            StmtKind::Tensor(op) => self.tensor(thread, stmt, op),
            StmtKind::Sync | StmtKind::SyncRole => {
                self.meet(thread, stmt, Edge::Sync);
            }
            StmtKind::SyncCluster => {
                // All threads of the CTA meet as well.
                self.meet(thread, stmt, Edge::Sync);
                self.meet_cluster(thread, stmt);
            }
            StmtKind::Signal(signal) => self.signal(thread, stmt, signal),
            StmtKind::Await(_) => {
                let event = self.meet(thread, stmt, Edge::Sync);
                let agent = thread.agent;
                if !self.awaits.iter().any(|known| known.event == event) {
                    self.awaits.push(Told { stmt, agent, event, index: Vec::new() });
                }
            }
            StmtKind::Pipe(op) => self.pipe(thread, stmt, op),
            StmtKind::GridWait => {
                let event = self.step(thread, "`grid_wait`".to_owned(), stmt.span, Edge::Then);
                let Agent { rank, launch, .. } = self.agents[thread.agent];
                if let Some(&before) = self.ends.get(&(rank, launch)) {
                    self.graph.edge(before, event, Edge::Launch);
                }
            }
            StmtKind::Role { role, body } => {
                if self.agents[thread.agent].role == Some(*role) {
                    thread.role = Some(*role);
                    self.block(thread, body);
                    thread.role = None;
                }
            }
            StmtKind::For { var, start, end, step, tickets, body } => {
                let is_list = tickets.is_some();
                self.rounds_of(thread, stmt, (*var, *start, *end, *step, is_list), body);
            }
            StmtKind::If { cond, then_body, else_body } => {
                self.choice(thread, stmt, *cond, [then_body, else_body]);
            }
            StmtKind::SetVar { .. }
            | StmtKind::Prefetch { .. }
            | StmtKind::Advance { .. }
            | StmtKind::GridLaunch
            | StmtKind::Assert { .. }
            | StmtKind::Trace { .. }
            | StmtKind::Printf { .. } => {}
        }
    }

    fn def(&mut self, thread: &mut Thread, stmt: &'k Stmt, results: &[ValueId], op: &'k Op) {
        match (op, results.first()) {
            (Op::Load { access, .. }, Some(&result)) => {
                let spread = &self.kernel.values[result].distribution;
                self.access(thread, stmt, access, Kind::Read, Some(spread));
            }
            (Op::Atomic { op, access, .. }, Some(&result)) => {
                let spread = &self.kernel.values[result].distribution;
                // All threads meet, and one of them changes the element.
                self.meet(thread, stmt, Edge::Sync);
                if self.leads(thread) {
                    self.access(thread, stmt, access, Kind::Change(*op), Some(spread));
                }
            }
            (Op::ArriveLast { word, .. }, Some(&result)) => {
                self.arrive(thread, stmt, word, result);
            }
            (_, _) => {}
        }
    }

    /// All threads meet and one of them counts; what the last one does comes behind all arrivals.
    fn arrive(&mut self, thread: &mut Thread, stmt: &'k Stmt, word: &Word, result: ValueId) {
        let arrival = self.meet(thread, stmt, Edge::Sync);
        let group = self.group(thread);
        if self.last.contains_key(&(result, group))
            && self.arrivals.iter().any(|a| a.arrival == arrival)
        {
            return;
        }
        let last = self.event(thread, "the last to arrive".to_owned(), stmt.span);
        self.graph.edge(arrival, last, Edge::Then);
        self.last.insert((result, group), last);
        let word = (word.param, self.form(thread, word.index));
        self.arrivals.push(Arrived { group, word, arrival, last });
    }

    fn signal(&mut self, thread: &mut Thread, stmt: &'k Stmt, signal: &Signal) {
        if !self.leads(thread) {
            return;
        }
        let event = self.step(thread, named_order(self.kernel, stmt), stmt.span, Edge::Then);
        let index = signal.index.iter().map(|&at| self.form(thread, at)).collect();
        self.signals.push(Told { stmt, agent: thread.agent, event, index });
    }

    /// An access of the thread itself.
    fn access(
        &mut self,
        thread: &mut Thread,
        stmt: &Stmt,
        access: &'k TileAccess,
        kind: Kind,
        spread: Option<&Distribution>,
    ) {
        if !self.is_seen(access) {
            return;
        }
        let what = does(self.kernel, stmt, access.span);
        let event = self.step(thread, what, access.span, Edge::Then);
        self.touch(thread, access, kind, spread, (event, false));
    }

    /// True for memory that somebody writes.
    fn is_seen(&self, access: &TileAccess) -> bool {
        access.storage.param().is_none_or(|param| {
            self.written.contains(&param) || self.kernel.launch.pdl.is_consumer()
        })
    }

    /// A copy or product begins; it goes on beside what follows.
    fn start(&mut self, thread: &mut Thread, stmt: &Stmt) -> NodeIndex {
        let issued = self.gate(thread, stmt.span);
        let what = does(self.kernel, stmt, stmt.span);
        let event = self.event(thread, what, stmt.span);
        self.graph.edge(issued, event, Edge::Then);
        event
    }

    fn choice(
        &mut self,
        thread: &mut Thread,
        stmt: &'k Stmt,
        cond: ValueId,
        arms: [&'k [Stmt]; 2],
    ) {
        let facts = [true, false].map(|truth| {
            let facts = self.known.path_facts(cond, truth);
            facts.iter().map(|fact| self.substituted(thread, fact)).collect::<Facts>()
        });
        let never = facts.each_ref().map(|facts| {
            facts.iter().any(|fact| {
                let below = Form::constant(-1).plus(-1, fact);
                below.is_some_and(|below| self.known.proves(&below, &thread.facts))
            })
        });
        let known = self.known.decided(cond);
        let last = self.last.get(&(cond, self.group(thread))).copied();
        let fork = self.gate(thread, stmt.span);
        let entry = thread.clone();
        let mut after: Option<Thread> = None;
        let is_open = known.is_none() && never == [false; 2];
        let mut key = self.key(&entry, stmt, true);
        // What scalars decide is the same for all CTAs of a launch.
        let mut symbols = facts.iter().flatten().flat_map(|fact| fact.terms.keys());
        if symbols.all(|symbol| matches!(symbol, Symbol::Param(_))) && !facts[0].is_empty() {
            (key.2.2, key.3) = (0, None);
        }
        let next = self.choices.len() + self.conditions.len();
        let choice = match self.condition(&entry, cond, key.2) {
            Some(condition) => *self.conditions.entry(condition).or_insert(next),
            None => *self.choices.entry(key).or_insert(next),
        };
        for (body, (truth, facts)) in arms.into_iter().zip([true, false].into_iter().zip(facts)) {
            let impossible = if truth { never[0] } else { never[1] };
            if known == Some(!truth) || impossible {
                continue;
            }
            let mut arm = entry.clone();
            arm.facts.extend(facts);
            if is_open {
                arm.under.push((choice, truth));
            }
            self.gate(&mut arm, stmt.span);
            if let (Some(last), true, Some(&start)) = (last, truth, arm.tails.first()) {
                let under = arm.under.clone();
                self.graph.events[last].under = under;
                self.graph.edge(last, start, Edge::Then);
                let word = self.arrivals.iter().find(|arrived| arrived.last == last);
                arm.last_at.extend(word.map(|arrived| arrived.word.clone()));
            }
            self.block(&mut arm, body);
            arm.last_at.clone_from(&entry.last_at);
            arm.under.clone_from(&entry.under);
            arm.facts.clone_from(&entry.facts);
            match &mut after {
                Some(after) => after.join(arm),
                None => after = Some(arm),
            }
        }
        if let Some(after) = after {
            *thread = after;
        }
        let join = self.gate(thread, stmt.span);
        self.graph.edge(fork, join, Edge::Then);
    }

    fn rounds_of(
        &mut self,
        thread: &mut Thread,
        stmt: &'k Stmt,
        (var, start, end, step, is_list): (ValueId, ValueId, ValueId, u32, bool),
        body: &'k [Stmt],
    ) {
        if !is_list && !matters(body) {
            return;
        }
        let first = self.form(thread, start);
        let length = self.form(thread, end).plus(-1, &first);
        let trips = length.as_ref().and_then(Form::as_constant).filter(|_| !is_list);
        let trips =
            trips.map(|n| u32::try_from(n.max(0)).unwrap_or(u32::MAX).div_ceil(step.max(1)));
        let runs = length.and_then(|length| length.plus(-1, &Form::constant(1)));
        let runs = runs.is_some_and(|length| self.known.proves(&length, &thread.facts));
        let all = trips.filter(|&trips| {
            let of_all = thread.followed.saturating_mul(trips);
            trips <= self.most_rounds
                || (trips <= MAX_FULL && !self.kernel.barriers.is_empty())
                || (of_all <= MAX_FULL && self.scope == Scope::Threads)
        });
        let rounds = all.unwrap_or_else(|| self.rounds_to_follow(body));
        let followed = thread.followed;
        let least = trips.map_or(u32::from(runs && !is_list), |trips| trips.min(rounds));
        let before = thread.rounds.insert(var, 0);
        let entry = self.gate(thread, stmt.span);
        let mut after: Option<Thread> = (least == 0).then(|| thread.clone());
        let under = thread.under.clone();
        for round in 0..rounds {
            if self.is_full() {
                break;
            }
            thread.rounds.insert(var, round);
            thread.followed = followed.saturating_mul(rounds);
            if round >= least {
                let key = self.key(thread, stmt, true);
                let next = self.choices.len() + self.conditions.len();
                let choice = *self.choices.entry(key).or_insert(next);
                self.graph.rounds.insert(choice);
                thread.under.push((choice, true));
            }
            if is_list {
                self.meet(thread, stmt, Edge::Sync);
            } else {
                let value = first.plus(i128::from(round) * i128::from(step), &Form::constant(1));
                thread.values.extend(value.map(|value| (Symbol::Value(var), value)));
            }
            self.block(thread, body);
            thread.values.retain(|(symbol, _)| *symbol != Symbol::Value(var));
            if round + 1 >= least || round + 1 == rounds {
                match &mut after {
                    Some(after) => after.join(thread.clone()),
                    None => after = Some(thread.clone()),
                }
            }
        }
        if let Some(after) = after {
            *thread = after;
        }
        thread.under = under;
        thread.followed = followed;
        match before {
            Some(before) => thread.rounds.insert(var, before),
            None => thread.rounds.remove(&var),
        };
        let end = self.gate(thread, stmt.span);
        self.graph.edge(entry, end, Edge::Then);
        if is_list {
            self.meet(thread, stmt, Edge::Sync);
        }
    }

    fn touch(
        &mut self,
        thread: &Thread,
        access: &TileAccess,
        kind: Kind,
        spread: Option<&Distribution>,
        (event, is_async): (NodeIndex, bool),
    ) {
        let memory = memory_of(access.storage);
        let slot = access
            .storage
            .tile()
            .map(|(_, slot)| slot.map_or(Form::constant(0), |slot| self.form(thread, slot)));
        let mut sides = Vec::new();
        let (mut axis, mut gathered) = (0, 0);
        for index in &access.index {
            let side = match index {
                AxisIndex::New => {
                    axis += 1;
                    continue;
                }
                AxisIndex::At(at) => {
                    Side { reach: Reach::Run { start: self.form(thread, *at), len: 1 }, axis: None }
                }
                AxisIndex::Range { start, len, until: _ } => {
                    axis += 1;
                    let start = self.form(thread, *start);
                    Side { reach: Reach::Run { start, len: *len }, axis: Some(axis - 1) }
                }
                AxisIndex::Gather(tile) | AxisIndex::Along(tile) => {
                    if matches!(index, AxisIndex::Gather(_)) {
                        gathered = axis;
                        axis += 1;
                    }
                    Side { reach: Reach::Each(self.form(thread, *tile)), axis: Some(gathered) }
                }
            };
            sides.push(side);
        }
        self.touches.push(Touch {
            event,
            agent: thread.agent,
            memory,
            kind,
            is_async,
            needs_publish: false,
            slot,
            cta: access.storage.cta(),
            is_foreign: access.storage.cta().is_some() || access.storage.is_of_ranks(),
            axes: access.axes.clone(),
            sides,
            spread: spread.cloned(),
            role: thread.role,
            rounds: thread.rounds.clone(),
            facts: thread.facts.clone(),
            epoch_slot: None,
            last_at: thread.last_at.clone(),
            under: !thread.under.is_empty(),
            everywhere: matches!(access.storage, Storage::Peers(_)),
            span: access.span,
            by_threads: !is_async && kind != Kind::Read,
            first: access.index.iter().find_map(|index| match index {
                AxisIndex::At(at) => Some(*at),
                _ => None,
            }),
        });
    }
}

fn memory_of(storage: Storage) -> Memory {
    match storage {
        Storage::Smem(tile, _) | Storage::Remote(tile, ..) => Memory::Tile(tile),
        Storage::Buffer(param)
        | Storage::Peer(param, _)
        | Storage::Peers(param)
        | Storage::Multicast(param, _) => Memory::Buffer(param),
    }
}

/// True where something is touched or ordered.
fn matters(stmts: &[Stmt]) -> bool {
    stmts.iter().any(|stmt| {
        let is_value = match &stmt.kind {
            StmtKind::Def {
                op: Op::Load { .. } | Op::Atomic { .. } | Op::ArriveLast { .. },
                ..
            } => false,
            StmtKind::Def { .. } | StmtKind::SetVar { .. } => true,
            _ => false,
        };
        let bodies = stmt.kind.bodies();
        let has_body = bodies.iter().any(|body| !body.is_empty());
        if has_body { bodies.into_iter().any(matters) } else { !is_value }
    })
}

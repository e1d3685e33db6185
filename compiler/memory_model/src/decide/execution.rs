//! One execution of a test, for people and for drawings.

use crate::axioms::{self, Edge};
use crate::event::{ProxyFence, Strength};
use crate::graph::EventGraph;
use crate::litmus::{BarrierMode, Location, Test, Word};
use crate::relation::Relation;

use super::trace::{Action, Trace};

/// Where an event comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The thread, by its place in the test; `None` for initial values.
    pub thread: Option<usize>,
    /// The line of its program.
    pub line: usize,
    /// What the event does, such as `W x=1 release.gpu`.
    pub label: String,
}

/// One execution with its orders.
#[derive(Debug, Clone)]
pub struct Execution {
    /// Its events.
    pub graph: EventGraph,
    /// Where each event comes from.
    pub origins: Vec<Origin>,
    /// From writes to reads of their values.
    pub reads_from: Relation,
    /// Coherence order, transitive; empty where the axioms were violated before it was looked for.
    pub coherence: Relation,
    /// The order of `fence.sc` that was chosen.
    pub fence_order: Relation,
    /// From arrivals at barriers to waits.
    pub barriers: Relation,
    /// Synchronisation.
    pub synchronizes: Relation,
    /// Observation.
    pub observation: Relation,
    /// Proxy-preserved base causality.
    pub preserved: Relation,
    /// What the registers of each thread hold at the end.
    pub registers: Vec<Vec<Word>>,
    /// What the locations that the condition asks for hold at the end, by their place in the test.
    pub finals: Vec<(usize, Word)>,
}

/// The events of a combination of traces.
pub(super) struct Events {
    pub(super) graph: EventGraph,
    /// What each event reads or writes.
    pub(super) values: Vec<Option<Word>>,
    /// The number of the first event of each thread.
    pub(super) starts: Vec<usize>,
}

impl Events {
    /// The events of a combination of traces, initial values first.
    pub(super) fn of(test: &Test, traces: &[&Trace]) -> Events {
        let mut graph = EventGraph::new();
        let (mut values, mut starts) = (Vec::new(), Vec::new());
        for location in objects(test) {
            graph.init(super::place(location));
            values.push(Some(location.init));
        }
        for (number, trace) in traces.iter().enumerate() {
            let thread = graph.thread(test.threads[number].position);
            let start = values.len();
            starts.push(start);
            for (index, done) in trace.done.iter().enumerate() {
                graph.push(Some(thread), super::kind(test, &done.action));
                values.push(match done.action {
                    Action::Read { value, .. } | Action::Write { value, .. } => Some(value),
                    Action::Fence(..)
                    | Action::ProxyFence(_)
                    | Action::Barrier { .. }
                    | Action::ClusterArrive(_)
                    | Action::ClusterWait => None,
                });
                if matches!(done.action, Action::Read { updates: true, .. }) {
                    graph.updates.push((start + index, start + index + 1));
                }
                for earlier in 0..index {
                    if done.depends >> earlier & 1 == 1 {
                        graph.dependencies.push((start + earlier, start + index));
                    }
                }
            }
        }
        Events { graph, values, starts }
    }
}

/// The locations that are memory of their own, in the order of their initial values among the events.
fn objects(test: &Test) -> impl Iterator<Item = &Location> {
    let is_object = |(index, location): &(usize, &Location)| location.object as usize == *index;
    test.locations.iter().enumerate().filter(is_object).map(|(_, location)| location)
}

/// Where the events of a combination of traces come from, in their order.
pub(super) fn origins(test: &Test, traces: &[&Trace]) -> Vec<Origin> {
    let mut origins: Vec<Origin> = objects(test)
        .map(|location| Origin {
            thread: None,
            line: 0,
            label: format!("init {}={}", location.name, location.init),
        })
        .collect();
    for (number, trace) in traces.iter().enumerate() {
        origins.extend(trace.done.iter().map(|done| Origin {
            thread: Some(number),
            line: done.line,
            label: describe(test, &done.action),
        }));
    }
    origins
}

fn describe(test: &Test, action: &Action) -> String {
    let access = |letter: &str, location: usize, value: Word, strength: Strength| {
        format!("{letter} {}={value} {strength}", test.locations[location].name)
    };
    match action {
        Action::Read { memory, value, .. } => access("R", memory.location, *value, memory.read),
        Action::Write { memory, value } => access("W", memory.location, *value, memory.write),
        Action::Fence(order, scope) => format!("F {}.{}", order.name(), scope.name()),
        Action::ProxyFence(ProxyFence::Alias) => "F proxy.alias".to_owned(),
        Action::ProxyFence(ProxyFence::Proxy(proxy)) => format!("F proxy.{}", proxy.name()),
        Action::Barrier { mode, key: (instance, resource), .. } => {
            let mode = match mode {
                BarrierMode::Sync => "sync",
                BarrierMode::Arrive => "arrive",
            };
            let resource = resource.map_or(String::new(), |resource| format!(", {resource}"));
            format!("bar.{mode} {instance}{resource}")
        }
        Action::ClusterArrive(true) => "cluster.arrive".to_owned(),
        Action::ClusterArrive(false) => "cluster.arrive.relaxed".to_owned(),
        Action::ClusterWait => "cluster.wait".to_owned(),
    }
}

impl Execution {
    /// Program order.
    pub fn program_order(&self) -> Relation {
        let size = self.graph.events().len();
        Relation::from_fn(size, |a, b| self.graph.is_program_order(a, b))
    }

    /// From reads to the writes that come after the one they read from.
    pub fn from_read(&self) -> Relation {
        axioms::from_read(&self.reads_from, &self.coherence)
    }

    /// The steps of base causality, by name.
    pub fn steps(&self) -> Vec<(Edge, Relation)> {
        vec![
            (Edge::ProgramOrder, self.program_order()),
            (Edge::Synchronizes, self.synchronizes.clone()),
            (Edge::Barrier, self.barriers.clone()),
            (Edge::FenceOrder, self.fence_order.clone()),
        ]
    }
}

/// A transitive order without the pairs that follow from others.
pub(crate) fn reduced(order: &Relation) -> Relation {
    let skipped = order.then(order);
    Relation::from_fn(order.size(), |a, b| order.has(a, b) && !skipped.has(a, b))
}

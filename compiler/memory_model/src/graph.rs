//! Event graphs: the events of one execution, with what is known of their order.

use thiserror::Error;

use crate::event::{
    Access, BarrierSide, Event, EventId, FenceOrder, Kind, Place, Position, ProxyFence, Returns,
    Scope, ThreadId, Way,
};

/// Why an edge does not fit its events: a fault of whoever builds the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum GraphError {
    /// The id comes from another graph.
    #[error("the graph has no thread {}", .0.index())]
    NoThread(ThreadId),
    /// The id comes from another graph.
    #[error("the graph has no event {}", .0.index())]
    NoEvent(EventId),
    /// A value cannot pass from the one to the other.
    #[error("event {} is no write of a byte that event {} reads", .write.index(), .read.index())]
    NotReadFrom {
        /// Where the value should come from.
        write: EventId,
        /// Where it should go.
        read: EventId,
    },
    /// A fence that stands in no order with others.
    #[error("event {} is no fence.sc", .0.index())]
    NotScFence(EventId),
    /// An operation that nobody issues.
    #[error("an asynchronous operation is issued by a thread at least")]
    NotIssued,
    /// An access that its thread does itself.
    #[error("event {} is no access of an asynchronous operation", .0.index())]
    NotAsynchronous(EventId),
    /// An event that is on the other side of barriers, or on none.
    #[error("event {} is not on that side of a barrier", .0.index())]
    NotBarrierSide(EventId),
}

/// The events of one execution.
///
/// Program order is the order in which the events of a thread are added. What an execution chose is stated by
/// edges: where reads take their values from, which arrivals a barrier waited for, the order of `fence.sc`.
/// What goes on behind its statement is added by [`EventGraph::asynchronous`], and [`EventGraph::complete`] says who
/// saw it done. Orders that come from elsewhere (the end of a kernel) are stated with [`EventGraph::order`].
#[derive(Debug, Clone, Default)]
pub struct EventGraph {
    threads: Vec<Position>,
    events: Vec<Event>,
    pub(crate) updates: Vec<(usize, usize)>,
    pub(crate) dependencies: Vec<(usize, usize)>,
    pub(crate) reads_from: Vec<(usize, usize)>,
    pub(crate) barriers: Vec<(usize, usize)>,
    pub(crate) fence_order: Vec<(usize, usize)>,
    pub(crate) stated: Vec<(usize, usize)>,
    pub(crate) operations: Vec<Operation>,
}

/// An access of an asynchronous operation.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    /// The access.
    pub(crate) access: usize,
    /// Where threads issued it.
    pub(crate) issues: Vec<usize>,
    /// Where threads saw it complete.
    pub(crate) seen: Vec<usize>,
}

impl EventGraph {
    /// A graph without threads.
    pub fn new() -> EventGraph {
        EventGraph::default()
    }

    /// Adds a thread.
    pub fn thread(&mut self, position: Position) -> ThreadId {
        self.threads.push(position);
        ThreadId(self.threads.len() - 1)
    }

    /// Adds the initial value of some memory.
    pub fn init(&mut self, place: Place) -> EventId {
        self.push(None, Kind::Init(place))
    }

    /// Adds a read.
    ///
    /// # Errors
    /// The thread is not of this graph.
    pub fn read(&mut self, thread: ThreadId, access: Access) -> Result<EventId, GraphError> {
        self.of_thread(thread, Kind::Read(access, Returns::Value))
    }

    /// Adds a write.
    ///
    /// # Errors
    /// The thread is not of this graph.
    pub fn write(&mut self, thread: ThreadId, access: Access) -> Result<EventId, GraphError> {
        self.of_thread(thread, Kind::Write(access))
    }

    /// Adds an atomic update: a read and a write that nothing comes between.
    ///
    /// # Errors
    /// The thread is not of this graph.
    pub fn update(
        &mut self,
        thread: ThreadId,
        read: Access,
        returns: Returns,
        write: Access,
    ) -> Result<(EventId, EventId), GraphError> {
        let read = self.of_thread(thread, Kind::Read(read, returns))?;
        let write = self.of_thread(thread, Kind::Write(write))?;
        self.updates.push((read.0, write.0));
        Ok((read, write))
    }

    /// Adds a fence between threads.
    ///
    /// # Errors
    /// The thread is not of this graph.
    pub fn fence(
        &mut self,
        thread: ThreadId,
        order: FenceOrder,
        scope: Scope,
    ) -> Result<EventId, GraphError> {
        self.of_thread(thread, Kind::Fence(order, scope))
    }

    /// Adds a fence between proxies.
    ///
    /// # Errors
    /// The thread is not of this graph.
    pub fn proxy_fence(
        &mut self,
        thread: ThreadId,
        fence: ProxyFence,
    ) -> Result<EventId, GraphError> {
        self.of_thread(thread, Kind::ProxyFence(fence))
    }

    /// Adds one side of a barrier; [`EventGraph::meet`] says with whom.
    ///
    /// # Errors
    /// The thread is not of this graph.
    pub fn barrier(&mut self, thread: ThreadId, side: BarrierSide) -> Result<EventId, GraphError> {
        self.of_thread(thread, Kind::Barrier(side))
    }

    /// Adds a place in the program of a thread: where something asynchronous begins, or is seen to be complete.
    ///
    /// # Errors
    /// The thread is not of this graph.
    pub fn mark(&mut self, thread: ThreadId) -> Result<EventId, GraphError> {
        self.of_thread(thread, Kind::Mark)
    }

    /// Adds an access that goes on behind the events that issued it: it comes after all that is ahead of one of
    /// those, and before nothing until [`EventGraph::complete`] says so. It hands on nothing of its issuers.
    ///
    /// # Errors
    /// Nobody issues it, or an event is not of this graph or of no thread.
    pub fn asynchronous(
        &mut self,
        issues: &[EventId],
        access: Access,
        way: Way,
    ) -> Result<EventId, GraphError> {
        let first = issues.first().ok_or(GraphError::NotIssued)?;
        let position = self.position(self.event(*first)?).ok_or(GraphError::NotIssued)?;
        for issue in issues {
            self.event(*issue)?;
        }
        let thread = self.thread(position);
        let kind = match way {
            Way::Read => Kind::Read(access, Returns::Value),
            Way::Write => Kind::Write(access),
        };
        let event = self.of_thread(thread, kind)?;
        let issues = issues.iter().map(|issue| issue.0).collect();
        self.operations.push(Operation { access: event.0, issues, seen: Vec::new() });
        Ok(event)
    }

    /// States that the access was complete at `observer`, which knows of it from there on, by the generic proxy too.
    ///
    /// # Errors
    /// The access is no asynchronous one, or an event is not of this graph.
    pub fn complete(&mut self, access: EventId, observer: EventId) -> Result<(), GraphError> {
        self.event(observer)?;
        let at = self.operations.binary_search_by_key(&access.0, |operation| operation.access);
        let at = at.map_err(|_| GraphError::NotAsynchronous(access))?;
        self.operations[at].seen.push(observer.0);
        Ok(())
    }

    /// States that `read` has the value of `write`.
    ///
    /// # Errors
    /// They are not that, or touch no common byte.
    pub fn reads_from(&mut self, write: EventId, read: EventId) -> Result<(), GraphError> {
        let (from, to) = (self.event(write)?.kind, self.event(read)?.kind);
        let overlap = match (from.place(), to.place()) {
            (Some(a), Some(b)) => a.overlaps(b),
            _ => false,
        };
        if !from.is_write() || !to.is_read() || !overlap {
            return Err(GraphError::NotReadFrom { write, read });
        }
        self.reads_from.push((write.0, read.0));
        Ok(())
    }

    /// States that the events met at one barrier, each at its phase: whoever arrived is before whoever waited.
    ///
    /// # Errors
    /// One of them is no barrier.
    pub fn meet(&mut self, members: &[EventId]) -> Result<(), GraphError> {
        let mut sides = Vec::with_capacity(members.len());
        for id in members {
            match self.event(*id)?.kind {
                Kind::Barrier(side) => sides.push((id.0, side)),
                Kind::Init(_)
                | Kind::Read(..)
                | Kind::Write(_)
                | Kind::Fence(..)
                | Kind::ProxyFence(_)
                | Kind::Mark => return Err(GraphError::NotBarrierSide(*id)),
            }
        }
        for (from, arrives) in &sides {
            for (to, waits) in &sides {
                if from != to && *arrives != BarrierSide::Wait && *waits != BarrierSide::Arrive {
                    self.barriers.push((*from, *to));
                }
            }
        }
        Ok(())
    }

    /// States that one `fence.sc` came before another.
    ///
    /// # Errors
    /// One of them is no `fence.sc`.
    pub fn fence_order(&mut self, first: EventId, second: EventId) -> Result<(), GraphError> {
        for id in [first, second] {
            if !self.event(id)?.kind.is_sc_fence() {
                return Err(GraphError::NotScFence(id));
            }
        }
        self.fence_order.push((first.0, second.0));
        Ok(())
    }

    /// States that everything up to `first` is ordered before everything from `second` on, for a reason that
    /// this model does not know.
    ///
    /// # Errors
    /// An event is not of this graph.
    pub fn order(&mut self, first: EventId, second: EventId) -> Result<(), GraphError> {
        self.event(first)?;
        self.event(second)?;
        self.stated.push((first.0, second.0));
        Ok(())
    }

    /// States that the value or the address of `access`, or whether it happens, comes from `read`.
    ///
    /// # Errors
    /// An event is not of this graph.
    pub fn depend(&mut self, read: EventId, access: EventId) -> Result<(), GraphError> {
        self.event(read)?;
        self.event(access)?;
        self.dependencies.push((read.0, access.0));
        Ok(())
    }

    /// An event.
    ///
    /// # Errors
    /// It is not of this graph.
    pub fn event(&self, id: EventId) -> Result<&Event, GraphError> {
        self.events.get(id.0).ok_or(GraphError::NoEvent(id))
    }

    /// Every event, by its number.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Where every thread runs, by its number.
    pub fn threads(&self) -> &[Position] {
        &self.threads
    }

    pub(crate) fn position(&self, event: &Event) -> Option<Position> {
        event.thread.map(|thread| self.threads[thread.0])
    }

    /// Whether `first` comes before `second` in the program of one thread.
    pub(crate) fn is_program_order(&self, first: usize, second: usize) -> bool {
        first < second
            && self.events[first].thread.is_some()
            && self.events[first].thread == self.events[second].thread
    }

    fn of_thread(&mut self, thread: ThreadId, kind: Kind) -> Result<EventId, GraphError> {
        if thread.0 >= self.threads.len() {
            return Err(GraphError::NoThread(thread));
        }
        Ok(self.push(Some(thread), kind))
    }

    pub(crate) fn push(&mut self, thread: Option<ThreadId>, kind: Kind) -> EventId {
        self.events.push(Event { thread, kind });
        EventId(self.events.len() - 1)
    }
}

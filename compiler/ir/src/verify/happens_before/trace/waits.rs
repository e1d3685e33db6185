//! Copies, products and barriers: what goes on behind its statement, and who waits for it.

use petgraph::graph::NodeIndex;

use super::super::graph::Edge;
use super::super::touch::Kind;
use super::{RoundKey, Thread, Trace, Waiting, memory_of, older};
use crate::kernel::{Outgoing, PipeOp, Stmt, Tensor, Warpgroup};
use crate::verify::missing::{does, named_order};
use crate::verify::scalars::Form;

impl<'k> Trace<'k> {
    pub(super) fn settle(&mut self, thread: &mut Thread, stmt: &Stmt, done: Vec<NodeIndex>) {
        let event = self.step(thread, named_order(self.kernel, stmt), stmt.span, Edge::Then);
        for copy in done {
            self.graph.edge(copy, event, Edge::Settle);
        }
    }

    pub(super) fn outgoing(&mut self, thread: &mut Thread, stmt: &'k Stmt, op: &'k Outgoing) {
        if let Outgoing::Publish { storage } = op {
            let event = self.step(thread, named_order(self.kernel, stmt), stmt.span, Edge::Publish);
            self.published.push((memory_of(*storage), event));
            return;
        }
        if !self.leads(thread) {
            return;
        }
        match op {
            Outgoing::Copy { source, dest, .. } => {
                let read = self.start(thread, stmt);
                self.touch(thread, source, Kind::Read, None, (read, true));
                if let Some(touch) = self.touches.last_mut() {
                    touch.needs_publish = true;
                }
                let write = self.event(thread, does(self.kernel, stmt, dest.span), dest.span);
                self.graph.edge(read, write, Edge::Then);
                self.touch(thread, dest, Kind::Write, None, (write, true));
                thread.outgoing.push(vec![read, write]);
            }
            Outgoing::EmptyGroup => thread.outgoing.push(Vec::new()),
            Outgoing::Settle { storage, pending, .. } => {
                let is_buffer = storage.param().is_some();
                let kept = thread.outgoing.len().saturating_sub(*pending as usize);
                let done: Vec<NodeIndex> = thread
                    .outgoing
                    .iter()
                    .take(kept)
                    .flat_map(|group| group.iter().take(if is_buffer { 2 } else { 1 }))
                    .copied()
                    .collect();
                self.settle(thread, stmt, done);
            }
            Outgoing::Publish { .. } => {}
        }
    }

    pub(super) fn warpgroup(&mut self, thread: &mut Thread, stmt: &'k Stmt, op: &'k Warpgroup) {
        match op {
            Warpgroup::Mma(mma) => {
                let event = self.start(thread, stmt);
                for access in mma.reads() {
                    self.touch(thread, access, Kind::Read, None, (event, true));
                }
                thread.open.push(event);
            }
            Warpgroup::Commit => {
                let group = std::mem::take(&mut thread.open);
                thread.products.push(group);
            }
            Warpgroup::Settle { pending, .. } => {
                let done = older(&mut thread.products, *pending);
                self.settle(thread, stmt, done);
            }
        }
    }

    pub(super) fn tensor(&mut self, thread: &mut Thread, stmt: &'k Stmt, op: &'k Tensor) {
        match op {
            Tensor::Mma(mma) => {
                if !self.leads(thread) {
                    return;
                }
                let event = self.start(thread, stmt);
                for access in mma.reads() {
                    self.touch(thread, access, Kind::Read, None, (event, true));
                }
                self.touch(thread, &mma.acc, Kind::Write, None, (event, true));
                // The hardware keeps products of one thread and one shape in order.
                for (atom, earlier) in &thread.tensor {
                    if *atom == mma.atom {
                        self.graph.edge(*earlier, event, Edge::Then);
                    }
                }
                thread.tensor.push((mma.atom, event));
            }
            Tensor::Load { access, .. } => {
                self.access(thread, stmt, access, Kind::Read, None);
            }
            // A thread stores the rows that it holds.
            Tensor::Store { value, access } => {
                let spread = &self.kernel.values[*value].distribution;
                self.access(thread, stmt, access, Kind::Write, Some(spread));
            }
            Tensor::Settle { .. } => {}
        }
    }

    pub(super) fn pipe(&mut self, thread: &mut Thread, stmt: &'k Stmt, op: &'k PipeOp) {
        let group = self.group(thread);
        let (_, at) = op.place();
        let index = self.form(thread, at);
        match op {
            PipeOp::Open { empty, full, .. } => {
                let event =
                    self.step(thread, named_order(self.kernel, stmt), stmt.span, Edge::Then);
                let slots = i128::from(self.kernel.barriers[*full].slots);
                if let Some(index) = index.plus(-slots, &Form::constant(1)) {
                    self.waiting.push(Waiting { of: (group, *empty), index, event });
                }
            }
            PipeOp::Wait { barrier, .. } => {
                let event =
                    self.step(thread, named_order(self.kernel, stmt), stmt.span, Edge::Then);
                self.waiting.push(Waiting { of: (group, *barrier), index, event });
            }
            PipeOp::Release { barrier, .. } => {
                let event =
                    self.step(thread, named_order(self.kernel, stmt), stmt.span, Edge::Then);
                self.arrives((group, *barrier), index, event);
            }
            PipeOp::Commit { barrier, .. } => {
                if self.leads(thread) {
                    let issued = self.gate(thread, stmt.span);
                    let event = self.event(thread, named_order(self.kernel, stmt), stmt.span);
                    self.graph.edge(issued, event, Edge::Then);
                    for (_, product) in &thread.tensor {
                        self.graph.edge(*product, event, Edge::Settle);
                    }
                    // The thread goes on beside it.
                    self.arrives((group, *barrier), index, event);
                }
            }
            PipeOp::Copy { source, dest, barrier, .. } => {
                if self.leads(thread) {
                    let event = self.start(thread, stmt);
                    self.touch(thread, source, Kind::Read, None, (event, true));
                    self.touch(thread, dest, Kind::Write, None, (event, true));
                    self.arrives((group, *barrier), index, event);
                }
            }
            PipeOp::Send { .. } => {}
        }
    }

    pub(super) fn arrives(&mut self, key: RoundKey, index: Form, event: NodeIndex) {
        self.rounds.entry(key).or_default().push((index, event));
    }

    /// A wait is behind what arrives at its index; where that is of a round that is not followed, behind the last
    /// arrival before it, which comes first in its role.
    pub(super) fn wait_for_rounds(&mut self) {
        let (mut edges, mut is_loose) = (Vec::new(), false);
        for waiting in &self.waiting {
            let arrivals = self.rounds.get(&waiting.of).into_iter().flatten();
            let behind = arrivals.filter_map(|(index, event)| {
                let gap = waiting.index.plus(-1, index).and_then(|gap| gap.as_constant());
                is_loose |= gap.is_none();
                let gap = gap?;
                (gap >= 0).then_some((gap, *event))
            });
            let behind: Vec<(i128, NodeIndex)> = behind.collect();
            let nearest = behind.iter().map(|(gap, _)| *gap).min();
            let meant = behind.iter().filter(|(gap, _)| Some(*gap) == nearest);
            edges.extend(meant.map(|(_, event)| (*event, waiting.event)));
        }
        self.is_loose = is_loose;
        for (from, to) in edges {
            self.graph.edge(from, to, Edge::Round);
        }
    }
}

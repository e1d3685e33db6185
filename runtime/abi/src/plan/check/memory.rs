//! Who writes each buffer, and when: weights are never written, reads are covered by ordered writes, accesses of
//! which one writes are ordered, what may be read early is not written by the launch right before.

use super::{Checker, Touch};
use crate::plan::order::Order;
use crate::plan::ranges::Ranges;
use crate::plan::{BufferRole, PlanBuffer, PlanCode};

impl Checker<'_> {
    pub(super) fn memory(&mut self, touches: &[Touch]) {
        let order = Order::of(self.plan);
        let mut of_buffer: Vec<Vec<&Touch>> = vec![Vec::new(); self.plan.buffers.len()];
        for touch in touches {
            of_buffer[touch.buffer.index()].push(touch);
        }
        for (buffer, touches) in self.plan.buffers.iter().zip(&of_buffer) {
            for touch in touches {
                self.touch(buffer, touch, touches, &order);
            }
        }
    }

    fn touch(&mut self, buffer: &PlanBuffer, touch: &Touch, all: &[&Touch], order: &Order) {
        let name = &self.plan.nodes[touch.node].name;
        let is_weight = buffer.role == BufferRole::Weight;
        if touch.is_static && !is_weight {
            let message = format!("`{}` is `static` here, but no weight", buffer.name);
            self.error(PlanCode::StaticWritten, name, message);
        }
        if touch.writes && (is_weight || matches!(buffer.role, BufferRole::Host { .. })) {
            let message = format!("`{}` is written, but it belongs to the host", buffer.name);
            self.error(PlanCode::StaticWritten, name, message);
        }
        for other in all.iter().filter(|other| other.node < touch.node) {
            let conflict = (touch.writes || other.writes)
                && touch.start < other.end
                && other.start < touch.end;
            if conflict && !order.is_before(other.node, touch.node) {
                let message = format!(
                    "`{}` is touched by `{}` too, one of them writes, and nothing orders them",
                    buffer.name, self.plan.nodes[other.node].name
                );
                self.error(PlanCode::Race, name, message);
            }
        }
        if touch.reads && buffer.role == BufferRole::Step {
            let mut written = Ranges::default();
            for other in all {
                if other.writes
                    && other.fills
                    && other.node != touch.node
                    && order.is_before(other.node, touch.node)
                {
                    written.add(other.start, other.end);
                }
            }
            if let Some(missing) = written.first_missing(touch.start, touch.end) {
                let message =
                    format!("element {missing} of `{}` is read before it is written", buffer.name);
                self.error(PlanCode::ReadBeforeWrite, name, message);
            }
        }
    }

    /// A settled buffer must not be written by the launch right before: that one may still run. The first launch
    /// of a step follows the last one of the step before.
    pub(super) fn settled(&mut self, touches: &[Touch]) {
        let count = self.plan.nodes.len();
        for touch in touches.iter().filter(|touch| touch.settled) {
            let before = (touch.node + count - 1) % count;
            let written = touches
                .iter()
                .any(|other| other.node == before && other.buffer == touch.buffer && other.writes);
            if written {
                let message = format!(
                    "`{}` is settled here, but `{}`, which may still run, writes it",
                    self.buffer(touch.buffer).name,
                    self.plan.nodes[before].name
                );
                self.error(PlanCode::Settled, &self.plan.nodes[touch.node].name, message);
            }
        }
    }
}

//! Who writes each buffer, and when: weights are never written, reads are covered by ordered writes, accesses of
//! which one writes are ordered.

use super::{Checker, Touch};
use crate::plan::order::Order;
use crate::plan::ranges::Ranges;
use crate::plan::{BufferRole, PlanBuffer, PlanCode};

impl Checker<'_> {
    pub(super) fn memory(&mut self, touches: &[Touch<'_>]) {
        let order = Order::of(self.plan);
        let mut of_buffer: Vec<Vec<&Touch<'_>>> = vec![Vec::new(); self.plan.buffers.len()];
        for touch in touches {
            of_buffer[touch.buffer.index()].push(touch);
        }
        for (buffer, touches) in self.plan.buffers.iter().zip(&of_buffer) {
            for touch in touches {
                self.touch(buffer, touch, touches, &order);
            }
        }
    }

    fn touch(&mut self, buffer: &PlanBuffer, touch: &Touch<'_>, all: &[&Touch<'_>], order: &Order) {
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
            let conflict = (touch.writes || other.writes) && touch.meets(other);
            if conflict && !order.is_before(other.node, touch.node) {
                let message = format!(
                    "`{}` is touched by `{}` too, one of them writes, and nothing orders them",
                    buffer.name, self.plan.nodes[other.node].name
                );
                self.error(PlanCode::Race, name, message);
            }
        }
        if touch.reads && buffer.role == BufferRole::Step {
            let before = |other: &&&Touch<'_>| {
                other.writes && other.node != touch.node && order.is_before(other.node, touch.node)
            };
            let mut written = Ranges::default();
            for other in all.iter().filter(before) {
                written.add(other.start, other.filled);
            }
            let Some(missing) = written.first_missing(touch.start, touch.end) else { return };
            let leaves_out = |other: &&&Touch<'_>| other.rows.is_some() && other.filled <= missing;
            let left_out = all.iter().filter(before).find(leaves_out);
            match left_out.and_then(|other| Some((other.node, other.rows?))) {
                Some((writer, rows)) => {
                    let message = format!(
                        "element {missing} of `{}` is read, but `{}` writes no more than the rows below its `{rows}`; \
                         bound the reader by the same scalar, or write them all",
                        buffer.name, self.plan.nodes[writer].name
                    );
                    self.error(PlanCode::Rows, name, message);
                }
                None => {
                    let message = format!(
                        "element {missing} of `{}` is read before it is written",
                        buffer.name
                    );
                    self.error(PlanCode::ReadBeforeWrite, name, message);
                }
            }
        }
    }
}

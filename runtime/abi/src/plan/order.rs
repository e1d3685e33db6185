//! Which nodes have ended when a node starts.

use super::Plan;

/// For each node the set of nodes that are ordered before it, as bits.
#[derive(Debug)]
pub(super) struct Order {
    words: usize,
    bits: Vec<u64>,
}

impl Order {
    /// The order of a plan whose edges all point backwards.
    pub(super) fn of(plan: &Plan) -> Order {
        let words = plan.nodes.len().div_ceil(64);
        let mut order = Order { words, bits: vec![0; words * plan.nodes.len()] };
        for (i, node) in plan.nodes.iter().enumerate() {
            for earlier in &node.after {
                let earlier = earlier.index();
                let (done, rest) = order.bits.split_at_mut(i * words);
                let of_earlier = &done[earlier * words..][..words];
                for (to, from) in rest[..words].iter_mut().zip(of_earlier) {
                    *to |= from;
                }
                rest[earlier / 64] |= 1 << (earlier % 64);
            }
        }
        order
    }

    /// Whether `earlier` has ended when `later` starts.
    pub(super) fn is_before(&self, earlier: usize, later: usize) -> bool {
        self.bits[later * self.words + earlier / 64] >> (earlier % 64) & 1 == 1
    }
}

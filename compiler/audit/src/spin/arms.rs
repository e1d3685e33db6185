//! What a branch inside a loop decides: the instructions on some of its arms, and not on the others.

use std::collections::BTreeMap;

use crate::dataflow::{Flow, Key, Program};
use crate::graph::{Graph, NodeSet};

/// One turn of a loop: from its head until it goes back there.
pub(super) struct Turn<'a> {
    graph: &'a Graph,
    set: &'a NodeSet,
    head: u32,
    /// For each node the next one that every way to the end of the turn passes; `END` is the end.
    joins: BTreeMap<u32, u32>,
}

const END: u32 = u32::MAX;

impl<'a> Turn<'a> {
    pub(super) fn new(graph: &'a Graph, set: &'a NodeSet, head: u32) -> Self {
        let mut turn = Turn { graph, set, head, joins: BTreeMap::new() };
        turn.find_joins();
        turn
    }

    /// Where a node goes on within the turn; `END` stands for the way back to the head.
    fn next(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        let inside = self.graph.succ(node).iter().filter(|&&to| self.set.contains(to));
        inside.map(|&to| if to == self.head { END } else { to })
    }

    /// Immediate post-dominators, by the iteration of Cooper, Harvey and Kennedy on the reversed graph.
    fn find_joins(&mut self) {
        // The order in which ways from the end backwards leave the nodes.
        let mut order: Vec<u32> = Vec::new();
        let mut seen = NodeSet::new(self.graph.len());
        let inside = |list: &'a [u32], set: &'a NodeSet| {
            list.iter().copied().filter(move |&node| set.contains(node))
        };
        let mut stack: Vec<(u32, Vec<u32>)> =
            vec![(END, inside(self.graph.pred(self.head), self.set).collect())];
        while let Some((node, before)) = stack.last_mut() {
            match before.pop() {
                Some(next) if seen.insert(next) => {
                    let list = if next == self.head { &[][..] } else { self.graph.pred(next) };
                    stack.push((next, inside(list, self.set).collect()));
                }
                Some(_) => {}
                None => {
                    order.push(*node);
                    stack.pop();
                }
            }
        }
        order.reverse();
        let rank: BTreeMap<u32, usize> =
            order.iter().enumerate().map(|(index, &node)| (node, index)).collect();
        self.joins.insert(END, END);
        let mut changed = true;
        while changed {
            changed = false;
            for &node in order.iter().skip(1) {
                let mut joined: Option<u32> = None;
                for next in self.next(node) {
                    if self.joins.contains_key(&next) {
                        joined = Some(match joined {
                            Some(old) => common(&self.joins, &rank, old, next),
                            None => next,
                        });
                    }
                }
                if let Some(joined) = joined
                    && self.joins.get(&node) != Some(&joined)
                {
                    self.joins.insert(node, joined);
                    changed = true;
                }
            }
        }
    }

    /// Nodes that run or not by what the branch at `node` decides, and that leave another value than the
    /// other arms do. Constants are not among them.
    pub(super) fn decided(&self, program: &Program, flows: &[Flow], node: u32) -> Vec<u32> {
        let Some(&join) = self.joins.get(&node) else { return Vec::new() };
        let arms: Vec<Vec<u32>> = self.next(node).map(|to| self.arm(to, join)).collect();
        if arms.len() < 2 {
            return Vec::new();
        }
        let mut on: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (index, arm) in arms.iter().enumerate() {
            for &member in arm {
                on.entry(member).or_default().push(index);
            }
        }
        let mut writers: BTreeMap<&[Key], Vec<u32>> = BTreeMap::new();
        for &member in on.keys() {
            writers.entry(&flows[member as usize].defs).or_default().push(member);
        }
        let alike = |a: u32, b: u32| {
            let (a, b) = (a as usize, b as usize);
            program.steps[a] == program.steps[b] && program.guards[a] == program.guards[b]
        };
        on.iter()
            .filter(|&(&member, own)| {
                let flow = &flows[member as usize];
                if flow.defs.is_empty() || flow.constant || own.len() == arms.len() {
                    return false;
                }
                // A counter that each arm moves on by as much does not depend on the branch.
                let same = &writers[flow.defs.as_slice()];
                !(0..arms.len()).filter(|index| !own.contains(index)).all(|index| {
                    same.iter().any(|other| on[other].contains(&index) && alike(member, *other))
                })
            })
            .map(|(&member, _)| member)
            .collect()
    }

    /// What the turn reaches from `from` ahead of `join`.
    fn arm(&self, from: u32, join: u32) -> Vec<u32> {
        let mut list = Vec::new();
        if from == join || from == END {
            return list;
        }
        let mut seen = NodeSet::new(self.graph.len());
        seen.insert(from);
        let mut stack = vec![from];
        while let Some(node) = stack.pop() {
            list.push(node);
            for next in self.next(node) {
                if next != join && next != END && seen.insert(next) {
                    stack.push(next);
                }
            }
        }
        list
    }
}

/// The first node that the ways from both pass.
fn common(joins: &BTreeMap<u32, u32>, rank: &BTreeMap<u32, usize>, left: u32, right: u32) -> u32 {
    let (mut left, mut right) = (left, right);
    while left != right {
        if rank[&left] > rank[&right] {
            left = joins[&left];
        } else {
            right = joins[&right];
        }
    }
    left
}

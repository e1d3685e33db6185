//! Paths from waits to reads.

use crate::analysis::Facts;
use crate::dataflow::Key;
use crate::graph::{Loop, NodeSet};
use crate::kernel::{Kernel, Role};

/// Nodes that a path leads to from `wait` after the wait has run.
///
/// A wait under a predicate runs only where the predicate holds. Until the predicate is written again or
/// a barrier lets other threads pass, instructions under its opposite are not reached.
pub(crate) fn after(
    kernel: &Kernel,
    facts: &Facts,
    wait: u32,
    open: impl Fn(u32, u32) -> bool,
) -> NodeSet {
    let program = &kernel.program;
    let graph = &program.graph;
    let Some(guard) = program.guards[wait as usize] else {
        return graph.reach_after(&[wait], open);
    };
    let mut known = NodeSet::new(graph.len());
    let mut free = NodeSet::new(graph.len());
    let mut reached = NodeSet::new(graph.len());
    let mut stack: Vec<(u32, bool)> = Vec::new();
    let mut push = |stack: &mut Vec<(u32, bool)>, node: u32, holds: bool| {
        let seen = if holds { &mut known } else { &mut free };
        if seen.insert(node) {
            stack.push((node, holds));
        }
    };
    for &next in graph.succ(wait) {
        if open(wait, next) {
            push(&mut stack, next, true);
        }
    }
    while let Some((node, mut holds)) = stack.pop() {
        let here = program.guards[node as usize].filter(|g| holds && g.reg == guard.reg);
        let runs = here.is_none_or(|g| g.negated == guard.negated);
        if runs {
            reached.insert(node);
        }
        let succ = graph.succ(node);
        let writes = facts.flows[node as usize].defs.contains(&Key::Reg(guard.reg));
        let lets_pass = matches!(kernel.roles[node as usize], Role::Barrier { .. });
        if runs && (writes || lets_pass) {
            holds = false;
        }
        for (index, &next) in succ.iter().enumerate() {
            // Of several ways out, the last is the one that is taken when the guard does not hold.
            let falls = index + 1 == succ.len();
            let possible = succ.len() == 1 || here.is_none() || falls != runs;
            if possible && open(node, next) {
                push(&mut stack, next, holds);
            }
        }
    }
    reached
}

/// The loops around a node, innermost first.
pub(crate) fn around(loops: &[Loop], node: u32) -> Vec<&Loop> {
    let mut list: Vec<&Loop> = loops.iter().filter(|l| l.set.contains(node)).collect();
    list.sort_by_key(|l| l.nodes.len());
    list
}

/// A side of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// After it in the same turn of the loops around both.
    After,
    /// Before it in the same turn.
    Before,
    /// After it in this turn or a later one.
    EverAfter,
}

/// What a node reaches, or what reaches it, within one turn of the loops that both are in.
#[derive(Debug)]
pub(crate) struct Sides<'a> {
    chain: Vec<&'a Loop>,
    /// For each number of inner loops that are left open: what is after the node.
    after: Vec<NodeSet>,
    before: Vec<NodeSet>,
    anyhow: NodeSet,
}

impl<'a> Sides<'a> {
    /// Sides of `node`.
    pub(crate) fn new(kernel: &Kernel, facts: &'a Facts, node: u32) -> Self {
        let graph = &kernel.program.graph;
        let chain = around(&facts.loops, node);
        let mut sides = Sides {
            after: Vec::new(),
            before: Vec::new(),
            anyhow: after(kernel, facts, node, |_, _| true),
            chain,
        };
        for level in 0..=sides.chain.len() {
            let cut = &sides.chain[level..];
            let open =
                |from: u32, to: u32| !cut.iter().any(|l| l.head == to && l.set.contains(from));
            sides.after.push(after(kernel, facts, node, open));
            let mut seen = NodeSet::new(graph.len());
            let mut stack = vec![node];
            while let Some(at) = stack.pop() {
                for &from in graph.pred(at) {
                    if open(from, at) && facts.live.contains(from) && seen.insert(from) {
                        stack.push(from);
                    }
                }
            }
            sides.before.push(seen);
        }
        sides
    }

    fn level(&self, other: u32) -> usize {
        self.chain.iter().position(|l| l.set.contains(other)).unwrap_or(self.chain.len())
    }

    /// Whether `other` stands on this side of the node.
    pub(crate) fn holds(&self, side: Side, other: u32) -> bool {
        match side {
            Side::After => self.after[self.level(other)].contains(other),
            Side::Before => self.before[self.level(other)].contains(other),
            Side::EverAfter => self.anyhow.contains(other),
        }
    }
}

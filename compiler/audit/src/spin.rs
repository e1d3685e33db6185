//! Whether a load decides that its own loop goes on: the mark of a spin on a flag.
//!
//! The value of the load is followed through registers, predicates, spill slots and shared memory
//! inside each loop that holds the load; the load spins when a branch that leaves the loop depends on
//! it. What only one arm of a branch on the value sets or counts depends on it too. A counted loop around
//! a load does not spin, because its branch depends on the counter.

use std::collections::{BTreeSet, VecDeque};

use rustc_hash::FxHashMap;

use crate::dataflow::{Flow, Key, Program};
use crate::graph::{Graph, Loop, NodeSet};

mod arms;

use arms::Turn;

/// Whether some loop around `load` ends or goes on by the value that `load` reads.
pub(crate) fn spins(program: &Program, loops: &[Loop], flows: &[Flow], load: u32) -> bool {
    let graph = &program.graph;
    // Inner loops come last, and are small.
    for around in loops.iter().rev().filter(|l| l.set.contains(load)) {
        if decides(program, &around.set, &around.nodes, around.head, flows, load) {
            return true;
        }
        // Two loops may share their head: a spin that stands first in an outer loop. The part that
        // one back edge closes counts by itself when the address does not change in it.
        if around.latches.len() > 1 {
            for &latch in &around.latches {
                let (set, nodes) = closed_by(graph, around, latch);
                if set.contains(load)
                    && nodes.len() < around.nodes.len()
                    && address_stays(&nodes, flows, load)
                    && decides(program, &set, &nodes, around.head, flows, load)
                {
                    return true;
                }
            }
        }
    }
    false
}

/// The nodes of a loop from which one back edge is reached without passing the head.
fn closed_by(graph: &Graph, around: &Loop, latch: u32) -> (NodeSet, Vec<u32>) {
    let mut set = NodeSet::new(graph.len());
    let mut nodes = vec![around.head];
    set.insert(around.head);
    let mut stack = Vec::new();
    if set.insert(latch) {
        nodes.push(latch);
        stack.push(latch);
    }
    while let Some(node) = stack.pop() {
        for &before in graph.pred(node) {
            if around.set.contains(before) && set.insert(before) {
                nodes.push(before);
                stack.push(before);
            }
        }
    }
    (set, nodes)
}

fn address_stays(nodes: &[u32], flows: &[Flow], load: u32) -> bool {
    let address: BTreeSet<Key> = flows[load as usize].uses.iter().copied().collect();
    nodes
        .iter()
        .filter(|&&node| node != load)
        .all(|&node| flows[node as usize].defs.iter().all(|key| !address.contains(key)))
}

fn decides(
    program: &Program,
    set: &NodeSet,
    nodes: &[u32],
    head: u32,
    flows: &[Flow],
    load: u32,
) -> bool {
    let graph = &program.graph;
    let leaves = |node: u32| {
        let succ = graph.succ(node);
        succ.len() > 1
            && succ.iter().any(|&next| set.contains(next))
            && succ.iter().any(|&next| !set.contains(next))
    };
    let mut forced: BTreeSet<u32> = BTreeSet::new();
    let mut followed: BTreeSet<u32> = BTreeSet::new();
    let mut turn: Option<Turn<'_>> = None;
    loop {
        let tainted = taint(graph, set, flows, load, &forced);
        let depends = |node: u32| {
            let before = tainted.get(&node);
            flows[node as usize]
                .uses
                .iter()
                .any(|key| before.is_some_and(|before| before.binary_search(key).is_ok()))
        };
        if nodes.iter().any(|&node| leaves(node) && depends(node)) {
            return true;
        }
        // What is set on one arm of a branch on the value, and not in the same way on the others, carries
        // the value too.
        let before = forced.len();
        for &node in nodes {
            if graph.succ(node).len() > 1 && depends(node) && followed.insert(node) {
                mark_constants(graph, set, head, flows, node, &mut forced);
                let turn = turn.get_or_insert_with(|| Turn::new(graph, set, head));
                forced.extend(turn.decided(program, flows, node));
            }
        }
        if forced.len() == before {
            return false;
        }
    }
}

/// What depends on the load before each node of the loop, in order; few values do at a time.
type Tainted = FxHashMap<u32, Vec<Key>>;

/// Forward marking of what depends on the load.
fn taint(
    graph: &Graph,
    set: &NodeSet,
    flows: &[Flow],
    load: u32,
    forced: &BTreeSet<u32>,
) -> Tainted {
    let mut before = Tainted::default();
    let mut queue: VecDeque<u32> = VecDeque::new();
    for &node in forced.iter().chain([&load]) {
        before.entry(node).or_default();
        queue.push_back(node);
    }
    let mut after: Vec<Key> = Vec::new();
    while let Some(node) = queue.pop_front() {
        let flow = &flows[node as usize];
        after.clear();
        after.extend(before.get(&node).into_iter().flatten());
        let carries = node == load
            || forced.contains(&node)
            || flow.uses.iter().any(|key| after.binary_search(key).is_ok());
        if carries {
            for &key in &flow.defs {
                if let Err(at) = after.binary_search(&key) {
                    after.insert(at, key);
                }
            }
        } else if !flow.guarded {
            // A store may miss the cell that it seems to write; a register it cannot.
            after.retain(|key| !matches!(key, Key::Reg(_)) || !flow.defs.contains(key));
        }
        for &next in graph.succ(node) {
            if !set.contains(next) {
                continue;
            }
            let fresh = !before.contains_key(&next);
            let known = before.entry(next).or_default();
            let size = known.len();
            for &key in &after {
                if let Err(at) = known.binary_search(&key) {
                    known.insert(at, key);
                }
            }
            if fresh || known.len() != size {
                queue.push_back(next);
            }
        }
    }
    before
}

/// Marks nodes that set a constant on some but not all arms of the branch at `node`.
fn mark_constants(
    graph: &Graph,
    set: &NodeSet,
    head: u32,
    flows: &[Flow],
    node: u32,
    forced: &mut BTreeSet<u32>,
) {
    let arms: Vec<NodeSet> = graph
        .succ(node)
        .iter()
        .filter(|&&next| set.contains(next))
        .map(|&next| {
            let mut arm =
                graph.reach_after(&[next], |_, to| set.contains(to) && to != head && to != node);
            arm.insert(next);
            arm
        })
        .collect();
    for candidate in 0..graph.len() as u32 {
        let on = arms.iter().filter(|arm| arm.contains(candidate)).count();
        let flow = &flows[candidate as usize];
        if on > 0 && on < arms.len() && !flow.defs.is_empty() && flow.constant {
            forced.insert(candidate);
        }
    }
}

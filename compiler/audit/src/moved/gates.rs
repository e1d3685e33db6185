//! What every path to a load passes: a wait, or a branch around it.
//!
//! Where one thread waits for all, or a loop waits in some of its turns, paths lead past the wait. The
//! branches that decide whether the wait runs stand ahead of the load on those paths. A copy of the load
//! in the machine code that runs ahead of such a branch runs ahead of the wait.

use std::cell::OnceCell;
use std::collections::BTreeSet;

use crate::analysis::Facts;
use crate::graph::NodeSet;
use crate::kernel::Kernel;

/// Branches nest no deeper around a wait than is looked at.
const DEEPEST: usize = 8;

/// The wait in both codes.
#[derive(Clone, Copy)]
pub(super) struct WaitIn<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) nodes: &'a [u32],
}

/// The gates of one wait, from the wait alone to all branches around it; made when first asked for.
pub(super) struct Gates<'a> {
    ptx: WaitIn<'a>,
    facts: &'a Facts,
    sass: WaitIn<'a>,
    id: u32,
    levels: OnceCell<Vec<Level>>,
}

/// A set of instructions that paths pass.
struct Level {
    /// What PTX reaches without passing one of them.
    ptx_open: NodeSet,
    /// What the machine code reaches without passing one of them.
    sass_open: NodeSet,
    /// The machine instructions.
    gate: NodeSet,
    /// Those of them that decide whether the wait runs; none where it always does.
    decides: Option<NodeSet>,
}

impl<'a> Gates<'a> {
    pub(super) fn new(ptx: WaitIn<'a>, facts: &'a Facts, sass: WaitIn<'a>, id: u32) -> Self {
        Gates { ptx, facts, sass, id, levels: OnceCell::new() }
    }

    /// The first machine copy of a load that runs ahead of what PTX always passes before the load.
    pub(super) fn ahead(&self, loads: &[u32], copies: &[u32]) -> Option<u32> {
        if !loads.iter().all(|&node| self.facts.live.contains(node)) {
            return None;
        }
        let levels = self.levels.get_or_init(|| self.levels());
        let level = levels.iter().find(|l| loads.iter().all(|&n| !l.ptx_open.contains(n)))?;
        copies.iter().copied().find(|&copy| {
            level.sass_open.contains(copy)
                && level.decides.as_ref().is_none_or(|to| self.meets(copy, copies, level, to))
        })
    }

    fn levels(&self) -> Vec<Level> {
        let kernel = self.ptx.kernel;
        let free = self.ptx.nodes.iter().all(|&n| kernel.program.guards[n as usize].is_none());
        let mut gate = NodeSet::new(kernel.program.graph.len());
        for &node in self.ptx.nodes {
            gate.insert(node);
        }
        let mut branches = BTreeSet::new();
        let mut levels = vec![self.level(&gate, &branches, free)];
        while levels.len() < DEEPEST {
            let around = deciding(kernel, self.facts, &gate);
            if around.is_empty() {
                break;
            }
            for node in around {
                gate.insert(node);
                branches.insert(kernel.places[node as usize].id);
            }
            levels.push(self.level(&gate, &branches, false));
        }
        levels
    }

    fn level(&self, ptx_gate: &NodeSet, branches: &BTreeSet<u32>, always: bool) -> Level {
        let kernel = self.sass.kernel;
        let graph = &kernel.program.graph;
        let mut gate = NodeSet::new(graph.len());
        let mut decides = NodeSet::new(graph.len());
        for &node in self.sass.nodes {
            gate.insert(node);
            if kernel.program.guards[node as usize].is_some() {
                decides.insert(node);
            }
        }
        for node in 0..graph.len() as u32 {
            let id = kernel.places[node as usize].id;
            // Branches are also made for the wait itself, as one lane of a warp runs an atomic for all,
            // and a generic one picks its memory.
            if graph.succ(node).len() > 1 && (id == self.id || branches.contains(&id)) {
                gate.insert(node);
                decides.insert(node);
            }
        }
        Level {
            ptx_open: open(self.ptx.kernel, ptx_gate),
            sass_open: open(kernel, &gate),
            gate,
            decides: (!always).then_some(decides),
        }
    }

    /// Whether what decides on the wait comes next after a copy: before another copy of the load, which
    /// may be that of a turn of a loop that waits, and before a wait that runs in any case.
    fn meets(&self, copy: u32, copies: &[u32], level: &Level, decides: &NodeSet) -> bool {
        let graph = &self.sass.kernel.program.graph;
        let mut seen = NodeSet::new(graph.len());
        let mut stack = vec![copy];
        while let Some(node) = stack.pop() {
            for &next in graph.succ(node) {
                if decides.contains(next) {
                    return true;
                }
                if !level.gate.contains(next) && !copies.contains(&next) && seen.insert(next) {
                    stack.push(next);
                }
            }
        }
        false
    }
}

/// What paths from the entry reach without passing the gate, the gate itself included.
fn open(kernel: &Kernel, gate: &NodeSet) -> NodeSet {
    let entry = kernel.program.entry;
    if gate.contains(entry) {
        return NodeSet::new(kernel.program.graph.len());
    }
    let mut reached = kernel.program.graph.reach_after(&[entry], |from, _| !gate.contains(from));
    reached.insert(entry);
    reached
}

/// Branches from which one way leads to the gate in any case, and another may go past it.
fn deciding(kernel: &Kernel, facts: &Facts, gate: &NodeSet) -> Vec<u32> {
    let graph = &kernel.program.graph;
    let nodes = || (0..graph.len() as u32).filter(|&node| facts.live.contains(node));
    let mut past = NodeSet::new(graph.len());
    let mut stack: Vec<u32> = nodes().filter(|&node| graph.succ(node).is_empty()).collect();
    for &node in &stack {
        past.insert(node);
    }
    while let Some(node) = stack.pop() {
        for &before in graph.pred(node) {
            if !gate.contains(before) && past.insert(before) {
                stack.push(before);
            }
        }
    }
    nodes()
        .filter(|&node| past.contains(node) && !gate.contains(node))
        .filter(|&node| graph.succ(node).iter().any(|&next| !past.contains(next)))
        .collect()
}

//! A flow graph of single instructions, its loops, and reachability in it.

/// No node.
pub(crate) const NONE: u32 = u32::MAX;

/// A set of nodes of one graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeSet {
    words: Vec<u64>,
}

impl NodeSet {
    /// The empty set for a graph of `len` nodes.
    pub(crate) fn new(len: usize) -> Self {
        NodeSet { words: vec![0; len.div_ceil(64)] }
    }

    /// Adds a node; true when it was not there.
    pub(crate) fn insert(&mut self, node: u32) -> bool {
        let word = &mut self.words[node as usize / 64];
        let bit = 1u64 << (node % 64);
        let fresh = *word & bit == 0;
        *word |= bit;
        fresh
    }

    /// Adds all nodes of another set of the same graph.
    pub(crate) fn join(&mut self, other: &NodeSet) {
        for (mine, theirs) in self.words.iter_mut().zip(&other.words) {
            *mine |= theirs;
        }
    }

    /// Whether the node is in the set.
    pub(crate) fn contains(&self, node: u32) -> bool {
        self.words[node as usize / 64] & (1u64 << (node % 64)) != 0
    }
}

/// Directed graph over dense node numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    succ: Vec<Vec<u32>>,
    pred: Vec<Vec<u32>>,
}

impl Graph {
    /// Adds a node without edges and gives its number.
    pub(crate) fn add_node(&mut self) -> u32 {
        self.succ.push(Vec::new());
        self.pred.push(Vec::new());
        (self.succ.len() - 1) as u32
    }

    /// Adds an edge once.
    pub(crate) fn add_edge(&mut self, from: u32, to: u32) {
        if !self.succ[from as usize].contains(&to) {
            self.succ[from as usize].push(to);
            self.pred[to as usize].push(from);
        }
    }

    /// Number of nodes.
    pub(crate) fn len(&self) -> usize {
        self.succ.len()
    }

    /// Successors of a node.
    pub(crate) fn succ(&self, node: u32) -> &[u32] {
        &self.succ[node as usize]
    }

    /// Predecessors of a node.
    pub(crate) fn pred(&self, node: u32) -> &[u32] {
        &self.pred[node as usize]
    }

    /// Nodes that some path of at least one edge leads to from `from`, over edges that `open` lets pass.
    pub(crate) fn reach_after(&self, from: &[u32], open: impl Fn(u32, u32) -> bool) -> NodeSet {
        let mut seen = NodeSet::new(self.len());
        let mut stack: Vec<u32> = from.to_vec();
        while let Some(node) = stack.pop() {
            for &next in self.succ(node) {
                if open(node, next) && seen.insert(next) {
                    stack.push(next);
                }
            }
        }
        seen
    }

    /// `from` itself and all that can be reached from it.
    pub(crate) fn reach(&self, from: u32) -> NodeSet {
        let mut seen = self.reach_after(&[from], |_, _| true);
        seen.insert(from);
        seen
    }

    /// For each node the nearest of `from` on a way of at least one edge: one that leads to the node, or,
    /// `backwards`, one that the node leads to. [`NONE`] where there is no such way.
    pub(crate) fn nearest(&self, from: &[u32], backwards: bool) -> Vec<u32> {
        let next = |node: u32| if backwards { self.pred(node) } else { self.succ(node) };
        let mut nearest = vec![NONE; self.len()];
        let mut queue = std::collections::VecDeque::new();
        for &start in from {
            queue.push_back((start, start));
        }
        while let Some((node, start)) = queue.pop_front() {
            for &to in next(node) {
                if nearest[to as usize] == NONE {
                    nearest[to as usize] = start;
                    queue.push_back((to, start));
                }
            }
        }
        nearest
    }

    /// Reverse post-order of what can be reached from `entry`.
    pub(crate) fn order(&self, entry: u32) -> Vec<u32> {
        let mut seen = NodeSet::new(self.len());
        let mut post = Vec::new();
        seen.insert(entry);
        let mut stack = vec![(entry, 0usize)];
        while let Some((node, child)) = stack.pop() {
            match self.succ(node).get(child) {
                Some(&next) => {
                    stack.push((node, child + 1));
                    if seen.insert(next) {
                        stack.push((next, 0));
                    }
                }
                None => post.push(node),
            }
        }
        post.reverse();
        post
    }
}

/// One loop: its head, its nodes, and the edges inside it that lead back to the head.
#[derive(Clone, Debug)]
pub(crate) struct Loop {
    pub(crate) head: u32,
    pub(crate) nodes: Vec<u32>,
    pub(crate) set: NodeSet,
    pub(crate) latches: Vec<u32>,
}

/// The loops of a graph, outer ones before the loops inside them.
///
/// A loop is a strongly connected part; the loops inside it are the connected parts that remain
/// when the edges back to its head are cut. This covers loops with several entries too.
pub(crate) fn loops(graph: &Graph, entry: u32) -> Vec<Loop> {
    let order = graph.order(entry);
    let mut rank = vec![u32::MAX; graph.len()];
    for (index, &node) in order.iter().enumerate() {
        rank[node as usize] = index as u32;
    }
    let mut found = Vec::new();
    // Edges into these nodes from the loop that they head are cut.
    let mut head_of: Vec<bool> = vec![false; graph.len()];
    let mut work = std::collections::VecDeque::from([order]);
    while let Some(nodes) = work.pop_front() {
        let mut part = NodeSet::new(graph.len());
        for &node in &nodes {
            part.insert(node);
        }
        for component in components(graph, &nodes, &part, &head_of) {
            let mut set = NodeSet::new(graph.len());
            for &node in &component {
                set.insert(node);
            }
            let entered = |node: u32| {
                node == entry || graph.pred(node).iter().any(|&before| !set.contains(before))
            };
            let head = component
                .iter()
                .copied()
                .filter(|&node| entered(node))
                .min_by_key(|&node| rank[node as usize])
                .unwrap_or(component[0]);
            let latches =
                graph.pred(head).iter().copied().filter(|&before| set.contains(before)).collect();
            head_of[head as usize] = true;
            work.push_back(component.clone());
            found.push(Loop { head, nodes: component, set, latches });
        }
    }
    found
}

/// Strongly connected parts of `nodes` with at least one cycle, edges into cut heads left out.
fn components(graph: &Graph, nodes: &[u32], part: &NodeSet, cut: &[bool]) -> Vec<Vec<u32>> {
    const NEW: u32 = u32::MAX;
    let mut index = vec![NEW; graph.len()];
    let mut low = vec![0u32; graph.len()];
    let mut closed = NodeSet::new(graph.len());
    let mut trail: Vec<u32> = Vec::new();
    let mut parts = Vec::new();
    let mut count = 0u32;
    let usable = |to: u32| part.contains(to) && !cut[to as usize];
    for &root in nodes {
        if index[root as usize] != NEW {
            continue;
        }
        let mut stack = vec![(root, 0usize)];
        while let Some((node, child)) = stack.pop() {
            if child == 0 {
                index[node as usize] = count;
                low[node as usize] = count;
                count += 1;
                trail.push(node);
            }
            if let Some(&next) = graph.succ(node).get(child) {
                stack.push((node, child + 1));
                if usable(next) {
                    if index[next as usize] == NEW {
                        stack.push((next, 0));
                    } else if !closed.contains(next) {
                        low[node as usize] = low[node as usize].min(index[next as usize]);
                    }
                }
                continue;
            }
            if let Some(&(above, _)) = stack.last() {
                low[above as usize] = low[above as usize].min(low[node as usize]);
            }
            if low[node as usize] == index[node as usize] {
                let mut component = Vec::new();
                while let Some(member) = trail.pop() {
                    closed.insert(member);
                    component.push(member);
                    if member == node {
                        break;
                    }
                }
                let cyclic =
                    component.len() > 1 || graph.succ(node).iter().any(|&n| n == node && usable(n));
                if cyclic {
                    component.reverse();
                    parts.push(component);
                }
            }
        }
    }
    parts
}

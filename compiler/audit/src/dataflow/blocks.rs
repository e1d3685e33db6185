//! Straight runs of a program.

use super::Program;
use crate::graph::NodeSet;

/// Runs of nodes that are always executed one after the other.
pub(super) struct Blocks {
    pub(super) list: Vec<Vec<u32>>,
    pub(super) of: Vec<u32>,
}

impl Blocks {
    /// Cuts the nodes in `order` into blocks.
    pub(super) fn new(program: &Program, order: &[u32]) -> Self {
        let graph = &program.graph;
        let mut live = NodeSet::new(graph.len());
        for &node in order {
            live.insert(node);
        }
        let leads = |node: u32| {
            node == program.entry || {
                let mut before = graph.pred(node).iter().filter(|&&p| live.contains(p));
                match (before.next(), before.next()) {
                    (Some(&only), None) => graph.succ(only).len() != 1,
                    _ => true,
                }
            }
        };
        let mut list: Vec<Vec<u32>> = Vec::new();
        let mut of = vec![u32::MAX; graph.len()];
        for &node in order {
            if of[node as usize] != u32::MAX || !leads(node) {
                continue;
            }
            let index = list.len() as u32;
            let mut block = vec![node];
            of[node as usize] = index;
            let mut last = node;
            while let [next] = graph.succ(last) {
                if of[*next as usize] != u32::MAX || leads(*next) {
                    break;
                }
                of[*next as usize] = index;
                block.push(*next);
                last = *next;
            }
            list.push(block);
        }
        Blocks { list, of }
    }
}

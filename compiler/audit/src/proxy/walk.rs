//! Ways of one thread through a kernel.
//!
//! A branch that the number of the thread decides is taken as that thread takes it; of another one both
//! ways are gone, each time alike until its predicate is written again.

use std::collections::BTreeSet;

use rustc_hash::FxHashSet;

use super::threads::Threads;
use crate::analysis::Facts;
use crate::dataflow::Key;
use crate::kernel::Kernel;

/// States of one walk at most; beyond them nothing is said.
const MOST_STATES: usize = 60_000;

/// What is known of predicates on a way.
type Known = Vec<(u32, bool)>;

/// What goes on behind an instruction that ran.
pub(super) enum Step<M> {
    Stop,
    Go(M),
}

pub(super) struct Ways<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) facts: &'a Facts,
    /// Predicates that more than one instruction runs by.
    paired: FxHashSet<u32>,
}

impl<'a> Ways<'a> {
    pub(super) fn new(kernel: &'a Kernel, facts: &'a Facts) -> Self {
        let mut once = BTreeSet::new();
        let mut paired = FxHashSet::default();
        for guard in kernel.program.guards.iter().flatten() {
            if !once.insert(guard.reg) {
                paired.insert(guard.reg);
            }
        }
        Ways { kernel, facts, paired }
    }

    /// Goes every way of `thread` from behind `start`, or from the entry; `visit` sees each instruction that
    /// runs, with what was carried there. False where there are too many ways.
    pub(super) fn go<M: Copy + Eq + std::hash::Hash>(
        &self,
        threads: &mut Threads<'_>,
        thread: u32,
        start: Option<u32>,
        carried: M,
        mut visit: impl FnMut(&mut Threads<'_>, u32, M) -> Step<M>,
    ) -> bool {
        let program = &self.kernel.program;
        let mut seen: FxHashSet<(u32, Known, M)> = FxHashSet::default();
        let mut stack: Vec<(u32, Known, M)> = Vec::new();
        match start {
            None => stack.push((program.entry, Known::new(), carried)),
            Some(start) => {
                let mut known = Known::new();
                if let Some(guard) = threads.guard(start)
                    && self.paired.contains(&guard.reg)
                {
                    known.push((guard.reg, !guard.negated));
                }
                self.forget(&mut known, start);
                for &next in program.graph.succ(start) {
                    stack.push((next, known.clone(), carried));
                }
            }
        }
        while let Some((node, known, carried)) = stack.pop() {
            if seen.len() >= MOST_STATES {
                return false;
            }
            if !seen.insert((node, known.clone(), carried)) {
                continue;
            }
            let guard = threads.guard(node);
            let told = guard.and_then(|guard| {
                let held = known.iter().find(|(reg, _)| *reg == guard.reg)?.1;
                Some(held != guard.negated)
            });
            let runs = told.or_else(|| threads.runs(thread, node));
            let succ = program.graph.succ(node);
            for way in [true, false] {
                if runs.is_some_and(|runs| runs != way) {
                    continue;
                }
                let mut known = known.clone();
                if let (None, Some(guard)) = (runs, guard)
                    && self.paired.contains(&guard.reg)
                {
                    known.push((guard.reg, way != guard.negated));
                    known.sort_unstable();
                }
                let mut carried = carried;
                if way {
                    match visit(threads, node, carried) {
                        Step::Stop => continue,
                        Step::Go(next) => carried = next,
                    }
                    self.forget(&mut known, node);
                }
                for (index, &next) in succ.iter().enumerate() {
                    // Of several ways out, the last is the one that is taken when the guard does not hold.
                    let falls = index + 1 == succ.len();
                    if succ.len() == 1 || guard.is_none() || falls != way {
                        stack.push((next, known.clone(), carried));
                    }
                }
            }
        }
        true
    }

    /// Forgets predicates that the node writes.
    fn forget(&self, known: &mut Known, node: u32) {
        let defs = &self.facts.flows[node as usize].defs;
        known.retain(|(reg, _)| !defs.contains(&Key::Reg(*reg)));
    }
}

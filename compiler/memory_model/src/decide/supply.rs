//! Whether a combination of traces can still be completed, by counting who writes what.

use super::trace::{Action, Domain, Trace};
use crate::litmus::{Instruction, Memory, Test};

/// Whether combinations in which two updates must read from one write are left out at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Atomicity {
    Counted,
    LeftToTheAxiom,
}

/// What one trace takes and gives, as numbers of pairs of an object and a value.
#[derive(Debug, Default)]
struct Needs {
    /// What it reads.
    reads: Vec<usize>,
    /// What its updates read where two updates never read from the same write.
    takes: Vec<usize>,
    /// What it writes.
    gives: Vec<usize>,
}

/// The counts for a set of traces.
#[derive(Debug)]
pub(super) struct Supply {
    /// For each thread and trace.
    needs: Vec<Vec<Needs>>,
    /// For each thread: how often it and those behind it write each pair at most, and whether memory begins so.
    later: Vec<Vec<usize>>,
}

impl Supply {
    /// The counts. Without `atomicity`, what that axiom refuses is kept, so that it can be shown to refuse it.
    pub(super) fn of(
        test: &Test,
        traces: &[Vec<Trace>],
        domain: &Domain,
        atomicity: Atomicity,
    ) -> Supply {
        let mut starts = Vec::with_capacity(domain.len());
        let mut size = 0;
        for values in domain {
            starts.push(size);
            size += values.len();
        }
        let exclusive: Vec<bool> = (0..domain.len())
            .map(|object| atomicity == Atomicity::Counted && is_exclusive(test, object))
            .collect();
        let object = |memory: &Memory| test.locations[memory.location].object as usize;
        // A value that nobody was seen to write has no number: whoever reads it is not among the traces.
        let number = |memory: &Memory, value| {
            domain[object(memory)]
                .keys()
                .position(|known| *known == value)
                .map(|at| starts[object(memory)] + at)
        };
        let needs: Vec<Vec<Needs>> = traces
            .iter()
            .map(|traces| {
                traces
                    .iter()
                    .map(|trace| {
                        let mut needs = Needs::default();
                        for done in &trace.done {
                            match &done.action {
                                Action::Read { memory, value, updates, .. } => {
                                    let number = number(memory, *value);
                                    needs.reads.extend(number);
                                    if *updates && exclusive[object(memory)] {
                                        needs.takes.extend(number);
                                    }
                                }
                                Action::Write { memory, value } => {
                                    needs.gives.extend(number(memory, *value));
                                }
                                Action::Fence(..)
                                | Action::ProxyFence(_)
                                | Action::Barrier { .. }
                                | Action::ClusterArrive(_)
                                | Action::ClusterWait => {}
                            }
                        }
                        needs
                    })
                    .collect()
            })
            .collect();
        let mut last = vec![0; size];
        for (index, location) in test.locations.iter().enumerate() {
            if location.object as usize == index {
                let at = domain[index].keys().position(|known| *known == location.init);
                last[starts[index] + at.unwrap_or(0)] += 1;
            }
        }
        let mut later = vec![last];
        for traces in needs.iter().rev() {
            let mut most = vec![0; size];
            for needs in traces {
                let mut count = vec![0; size];
                for pair in &needs.gives {
                    count[*pair] += 1;
                }
                for (most, count) in most.iter_mut().zip(count) {
                    *most = count.max(*most);
                }
            }
            let behind = later.last().map_or(&[][..], |counts| counts);
            later.push(behind.iter().zip(most).map(|(a, b)| a + b).collect());
        }
        later.reverse();
        Supply { needs, later }
    }

    /// Whether the threads behind the picked ones might write what the picked ones read.
    pub(super) fn suffices(&self, picked: &[usize]) -> bool {
        let picks = || picked.iter().enumerate().map(|(thread, trace)| &self.needs[thread][*trace]);
        let given = |pair: &usize| {
            let here: usize =
                picks().map(|needs| needs.gives.iter().filter(|give| *give == pair).count()).sum();
            here + self.later[picked.len()][*pair]
        };
        let taken = |pair: &usize| -> usize {
            picks().map(|needs| needs.takes.iter().filter(|take| *take == pair).count()).sum()
        };
        picks().all(|needs| {
            needs.reads.iter().all(|pair| given(pair) > 0)
                && needs.takes.iter().all(|pair| taken(pair) <= given(pair))
        })
    }
}

/// Whether every update of an object is morally strong with every other write of it: then coherence orders all
/// of them, and atomicity lets no two updates read from the same write.
fn is_exclusive(test: &Test, object: usize) -> bool {
    let mut writes = Vec::new();
    for (number, thread) in test.threads.iter().enumerate() {
        for line in &thread.code {
            let (memory, updates) = match line.instruction {
                Instruction::Store { memory, .. } => (memory, false),
                Instruction::Update { memory, .. } | Instruction::CompareAndSwap { memory, .. } => {
                    (memory, true)
                }
                Instruction::Load { .. }
                | Instruction::Compute { .. }
                | Instruction::Fence(..)
                | Instruction::ProxyFence(_)
                | Instruction::Barrier(_)
                | Instruction::ClusterArrive(_)
                | Instruction::ClusterWait
                | Instruction::Branch(_) => continue,
            };
            if test.locations[memory.location].object as usize == object {
                writes.push((number, memory, updates));
            }
        }
    }
    let reaches = |a: usize, b: usize, memory: &Memory| {
        memory
            .write
            .scope()
            .is_some_and(|scope| test.threads[a].position.shares(test.threads[b].position, scope))
    };
    writes.iter().all(|(a, first, updates)| {
        writes.iter().all(|(b, second, _)| {
            let is_one_place = first.proxy == second.proxy
                && test.locations[first.location].mapping
                    == test.locations[second.location].mapping;
            !updates
                || (is_one_place && (a == b || (reaches(*a, *b, first) && reaches(*b, *a, second))))
        })
    })
}

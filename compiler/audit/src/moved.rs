//! Which loads are not left on their side of a wait in the machine code.
//!
//! PTX and machine code of one kernel are compared instruction by instruction: the machine code carries
//! for each instruction the number of the PTX instruction that it was made from. A load moved when PTX
//! places it on one side of a wait, within one turn of the loops around both, and no machine load of it
//! is left on that side; a load without machine load moved when the load that it was merged with stands
//! on the other side in PTX. Order is that of execution, not of addresses.

use std::collections::{BTreeMap, BTreeSet};

use crate::analysis::Facts;
use crate::dataflow::{Source, Step};
use crate::graph::NodeSet;
use crate::kernel::{Kernel, Role};
use crate::paths::{Side, Sides};

mod gates;

use gates::{Gates, WaitIn};

/// A load that moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    /// PTX instruction of the load.
    pub(crate) load: u32,
    /// PTX instruction of the wait.
    pub(crate) wait: u32,
    /// A node of the wait in the PTX kernel.
    pub(crate) wait_node: u32,
    pub(crate) kind: MoveKind,
    pub(crate) load_address: u64,
    pub(crate) wait_address: u64,
}

/// How a load moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MoveKind {
    /// From behind the wait to before it.
    Lifted,
    /// From before the wait to behind it.
    Sunk,
    /// It was merged with a load on the other side.
    Merged,
}

/// Nodes by the number of their PTX instruction.
type ById = BTreeMap<u32, Vec<u32>>;

/// Compares a kernel in PTX with its machine code.
pub(crate) fn moves(ptx: (&Kernel, &Facts), sass: (&Kernel, &Facts)) -> Vec<Move> {
    let (ptx_kernel, ptx_facts) = ptx;
    let (sass_kernel, sass_facts) = sass;
    let loads = by_id(ptx_kernel, ptx_facts.reads.iter().filter(|r| r.weak).map(|r| r.node));
    let noncoherent: BTreeSet<u32> = ptx_facts
        .reads
        .iter()
        .filter(|read| read.noncoherent)
        .map(|read| ptx_kernel.places[read.node as usize].id)
        .collect();
    let fences = ptx_facts.fences.iter().filter(|_| !noncoherent.is_empty());
    let syncs = ptx_facts.waits.iter().chain(fences).copied();
    let syncs = by_id(ptx_kernel, syncs);
    let machine_loads = by_id(sass_kernel, machine_nodes(sass_kernel, sass_facts, is_machine_load));
    let machine_syncs = by_id(sass_kernel, machine_nodes(sass_kernel, sass_facts, is_machine_sync));
    let machine_loads = with_textures(ptx_kernel, &loads, sass_kernel, machine_loads);
    let addresses: BTreeMap<u32, Address> = loads
        .iter()
        .filter_map(|(&id, nodes)| Some((id, address(ptx_kernel, *nodes.first()?)?)))
        .collect();

    let mut found = Vec::new();
    for (&wait, wait_nodes) in &syncs {
        let Some(machine) = machine_syncs.get(&wait) else { continue };
        let in_ptx: Vec<Sides<'_>> =
            wait_nodes.iter().map(|&node| Sides::new(ptx_kernel, ptx_facts, node)).collect();
        let in_sass: Vec<(u32, Sides<'_>)> = last_steps(sass_kernel, machine)
            .iter()
            .map(|&node| (node, Sides::new(sass_kernel, sass_facts, node)))
            .collect();
        let Some(&(shown, _)) = in_sass.first() else { continue };
        let shown = first_step(sass_kernel, machine).unwrap_or(shown);
        let any = |sides: &[Sides<'_>], nodes: &[u32], side: Side| {
            sides.iter().any(|of_wait| nodes.iter().any(|&node| of_wait.holds(side, node)))
        };
        let left = |nodes: &[u32], side: Side| {
            in_sass.iter().any(|(_, of_wait)| nodes.iter().any(|&node| of_wait.holds(side, node)))
        };
        let gates = Gates::new(
            WaitIn { kernel: ptx_kernel, nodes: wait_nodes },
            ptx_facts,
            WaitIn { kernel: sass_kernel, nodes: machine },
            wait,
        );
        let from_outside = ptx_facts.waits.contains(&wait_nodes[0]);
        for (&load, nodes) in &loads {
            // Plain loads keep their side of barriers, or may cross what does not order them.
            if load == wait || !from_outside && !noncoherent.contains(&load) {
                continue;
            }
            let mut relations = Vec::new();
            if any(&in_ptx, nodes, Side::After) {
                relations.push((Side::After, MoveKind::Lifted));
            } else if any(&in_ptx, nodes, Side::EverAfter) {
                relations.push((Side::EverAfter, MoveKind::Lifted));
            }
            if any(&in_ptx, nodes, Side::Before) {
                relations.push((Side::Before, MoveKind::Sunk));
            }
            let mut broken = None;
            for (side, kind) in relations {
                if let Some(own) = machine_loads.get(&load) {
                    // A copy of the load that runs although the wait has not is ahead of it, even
                    // where another copy stayed: a loop was unrolled and its parts differ.
                    let ahead = match side {
                        Side::After => gates.ahead(nodes, own),
                        Side::EverAfter | Side::Before => None,
                    };
                    if let Some(place) = ahead.or_else(|| (!left(own, side)).then(|| own[0])) {
                        broken = Some((place, kind));
                        break;
                    }
                    continue;
                }
                let Some(address) = addresses.get(&load) else { continue };
                let mut partners = machine_loads
                    .iter()
                    .filter(|(id, _)| addresses.get(id).is_some_and(|other| other.covers(address)));
                let stays = partners
                    .clone()
                    .any(|(id, _)| loads.get(id).is_some_and(|nodes| any(&in_ptx, nodes, side)));
                if let (false, Some((_, machine))) = (stays, partners.next()) {
                    broken = Some((machine[0], MoveKind::Merged));
                    break;
                }
            }
            let Some((place, kind)) = broken else { continue };
            let shown = next_of(sass_kernel, machine, place).unwrap_or(shown);
            found.push(Move {
                load,
                wait,
                wait_node: wait_nodes[0],
                kind,
                load_address: sass_kernel.places[place as usize].address,
                wait_address: sass_kernel.places[shown as usize].address,
            });
        }
    }
    found
}

/// The assembler gives texture reads the line of what made their handle: where none has the line of a
/// PTX read, all that have no line of a read may be it.
fn with_textures(ptx: &Kernel, loads: &ById, sass: &Kernel, mut machine: ById) -> ById {
    let is_texture =
        |kernel: &Kernel, node: u32| matches!(kernel.roles[node as usize], Role::Texture { .. });
    let astray: Vec<u32> = machine
        .iter()
        .filter(|(id, _)| !loads.contains_key(id))
        .flat_map(|(_, nodes)| nodes.iter().copied())
        .filter(|&node| is_texture(sass, node))
        .collect();
    for (&id, nodes) in loads {
        let lost = nodes.iter().any(|&node| is_texture(ptx, node)) && !machine.contains_key(&id);
        if lost && !astray.is_empty() {
            machine.insert(id, astray.clone());
        }
    }
    machine
}

/// The first load that a path from the entry reaches without passing a wait.
pub(crate) fn unwaited(kernel: &Kernel, waits: &[u32], loads: &[u32]) -> Option<u32> {
    let entry = kernel.program.entry;
    if waits.contains(&entry) {
        return None;
    }
    let mut reached = kernel.program.graph.reach_after(&[entry], |from, _| !waits.contains(&from));
    reached.insert(entry);
    loads.iter().copied().find(|&node| reached.contains(node))
}

/// The machine instruction of the wait that comes next after the load.
fn next_of(kernel: &Kernel, waits: &[u32], load: u32) -> Option<u32> {
    let graph = &kernel.program.graph;
    let mut seen = NodeSet::new(graph.len());
    let mut queue = std::collections::VecDeque::from([load]);
    while let Some(node) = queue.pop_front() {
        for &next in graph.succ(node) {
            if seen.insert(next) {
                let sync = !matches!(kernel.roles[next as usize], Role::Fence);
                if waits.contains(&next) && (sync || waits.len() == 1) {
                    return Some(next);
                }
                queue.push_back(next);
            }
        }
    }
    None
}

fn by_id(kernel: &Kernel, nodes: impl Iterator<Item = u32>) -> ById {
    let mut map = ById::new();
    for node in nodes {
        map.entry(kernel.places[node as usize].id).or_default().push(node);
    }
    for nodes in map.values_mut() {
        nodes.sort_by_key(|&node| (kernel.places[node as usize].address, node));
    }
    map
}

fn machine_nodes<'a>(
    kernel: &'a Kernel,
    facts: &'a Facts,
    wanted: fn(&Role) -> bool,
) -> impl Iterator<Item = u32> + 'a {
    (0..kernel.program.graph.len() as u32)
        .filter(move |&node| facts.live.contains(node) && wanted(&kernel.roles[node as usize]))
}

fn is_machine_load(role: &Role) -> bool {
    matches!(role, Role::Read { .. } | Role::Texture { .. })
}

fn is_machine_sync(role: &Role) -> bool {
    match role {
        Role::Read { .. } | Role::Atomic { .. } => true,
        Role::GridWait | Role::Barrier { .. } | Role::Fence => true,
        Role::None
        | Role::Texture { .. }
        | Role::Touch { .. }
        | Role::SharedRead
        | Role::GridLaunch => false,
    }
}

/// The machine instructions at whose end the wait is over.
fn last_steps(kernel: &Kernel, nodes: &[u32]) -> Vec<u32> {
    let fences: Vec<u32> = nodes
        .iter()
        .copied()
        .filter(|&node| matches!(kernel.roles[node as usize], Role::Fence | Role::Barrier { .. }))
        .collect();
    if fences.is_empty() { nodes.to_vec() } else { fences }
}

/// The machine instruction that stands for the wait: its load, atomic or barrier.
fn first_step(kernel: &Kernel, nodes: &[u32]) -> Option<u32> {
    nodes
        .iter()
        .copied()
        .find(|&node| !matches!(kernel.roles[node as usize], Role::Fence))
        .or(nodes.first().copied())
}

/// Registers and constant that make an address.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Address {
    parts: Vec<Source>,
    offset: i64,
}

impl Address {
    /// Whether a load here may have been widened to hold what a load there reads.
    fn covers(&self, other: &Address) -> bool {
        self.parts == other.parts && self.offset.abs_diff(other.offset) < 32
    }
}

/// The address of a read, through registers that are written once.
fn address(kernel: &Kernel, node: u32) -> Option<Address> {
    let mut once: BTreeMap<u32, Option<&Step>> = BTreeMap::new();
    for step in kernel.program.steps.iter().flatten() {
        let dst = match step {
            Step::Sum { dst, .. }
            | Step::Pick { dst, .. }
            | Step::Less { dst, .. }
            | Step::Align { dst, .. }
            | Step::Number { dst, .. }
            | Step::Opaque { dst, .. }
            | Step::Load { dst, .. } => *dst,
            Step::Store { .. } | Step::CopySlot { .. } | Step::Depend { .. } => continue,
        };
        once.entry(dst).and_modify(|old| *old = None).or_insert(Some(step));
    }
    let mut parts = Vec::new();
    let mut offset = 0i64;
    let mut open: Vec<Source> = kernel.roles[node as usize].address()?.clone();
    let mut budget = 64;
    while let Some(source) = open.pop() {
        match source {
            Source::Value(value) => match kernel.values.as_constant(value) {
                Some(number) => offset = offset.wrapping_add(number),
                None => parts.push(source),
            },
            Source::Used(_) | Source::Bits(_) | Source::Minus(_) => parts.push(source),
            Source::Reg(reg) => match once.get(&reg) {
                Some(Some(Step::Sum { parts: inner, .. })) if budget > 0 => {
                    budget -= 1;
                    open.extend(inner);
                }
                _ => parts.push(source),
            },
        }
    }
    parts.sort_by_key(|part| match part {
        Source::Reg(reg) => (0, *reg, None),
        Source::Used(reg) => (1, *reg, None),
        Source::Bits(reg) => (2, *reg, None),
        Source::Minus(reg) => (3, *reg, None),
        Source::Value(value) => (4, 0, Some(*value)),
    });
    Some(Address { parts, offset })
}

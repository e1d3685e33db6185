//! From a kernel to facts: its waits, its reads with their parameters, and the paths between them.

use std::collections::{BTreeMap, BTreeSet};

use crate::dataflow::{Flow, ParamSpace, Source, solve};
use crate::graph::{Loop, NodeSet, loops};
use crate::kernel::{Kernel, Named, Order, Param, Role};
use crate::spin::spins;
use crate::values::{Origin, Term, ValueId, Values};

/// Who may own the memory at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Owners {
    pub(crate) params: BTreeSet<u32>,
    pub(crate) globals: BTreeSet<u32>,
    /// Some way of making the address cannot be traced.
    pub(crate) untraced: bool,
}

/// A read of memory that others may write.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub(crate) node: u32,
    pub(crate) owners: Owners,
    pub(crate) noncoherent: bool,
    pub(crate) weak: bool,
}

/// What the rules need to know of a kernel.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) live: NodeSet,
    pub(crate) reads: Vec<Read>,
    /// Waits for data from outside the grid.
    pub(crate) waits: Vec<u32>,
    /// Barriers, fences and other synchronisation that brings no data from outside.
    pub(crate) fences: Vec<u32>,
    pub(crate) loops: Vec<Loop>,
    pub(crate) flows: Vec<Flow>,
    /// The value of the address at each access.
    pub(crate) sums: BTreeMap<u32, ValueId>,
}

/// Reads of parameter memory: whole pointers, their halves, or numbers.
struct Params<'a>(&'a [Param]);

impl ParamSpace for Params<'_> {
    fn read(&self, values: &mut Values, param: u32, _offset: Option<i64>, bytes: u32) -> ValueId {
        let Some(info) = self.0.get(param as usize) else { return ValueId::OPAQUE };
        let holds_pointer = info.bytes >= 8 && (bytes >= 8 || info.is_bytes || bytes == 4);
        if holds_pointer { values.origin(Origin::Param(param), None) } else { ValueId::NUMBER }
    }
}

/// What is said of parameters from outside.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said {
    /// Pointers beyond doubt.
    pub(crate) pointers: BTreeSet<u32>,
    /// Declared static. The user may have taken a number for a pointer.
    pub(crate) statics: BTreeSet<u32>,
    /// Declared mutable.
    pub(crate) mutables: BTreeSet<u32>,
}

/// Computes the facts.
pub(crate) fn analyse(kernel: &mut Kernel, said: &Said) -> Facts {
    let asked: Vec<(u32, Vec<Source>)> = kernel
        .roles
        .iter()
        .enumerate()
        .filter_map(|(node, role)| Some((node as u32, role.address()?.clone())))
        .collect();
    let params = kernel.params.clone();
    let solution =
        solve(&kernel.program, &mut kernel.values, &Params(&params), &kernel.initial, &asked);
    let sums: BTreeMap<u32, ValueId> =
        asked.iter().filter_map(|(node, _)| Some((*node, *solution.sums.get(node)?))).collect();
    let graph = &kernel.program.graph;
    let live = graph.reach(kernel.program.entry);
    let known = Known { sure: pointers(kernel, &sums, said), said, leads: &solution.leads };
    let found = loops(graph, kernel.program.entry);
    let flows = solution.flows;

    let mut facts = Facts {
        live,
        reads: Vec::new(),
        waits: Vec::new(),
        fences: Vec::new(),
        loops: found,
        flows,
        sums,
    };
    for (node, role) in kernel.roles.iter().enumerate() {
        let node = node as u32;
        if !facts.live.contains(node) {
            continue;
        }
        let terms = match facts.sums.get(&node) {
            Some(&sum) => kernel.values.terms(sum),
            None => &[],
        };
        match role {
            Role::None | Role::GridLaunch | Role::SharedRead | Role::Touch { .. } => {}
            Role::GridWait => facts.waits.push(node),
            Role::Barrier { .. } | Role::Fence => facts.fences.push(node),
            Role::Texture { .. } => {
                let owners = owners(terms, &known);
                facts.reads.push(Read { node, owners, noncoherent: true, weak: true });
            }
            Role::Read { noncoherent, order, named, .. } => {
                if !is_global(*named, terms) {
                    continue;
                }
                let waits = match order {
                    Order::Weak => false,
                    Order::Acquire => true,
                    Order::Strong => spins(&kernel.program, &facts.loops, &facts.flows, node),
                };
                if waits {
                    facts.waits.push(node);
                } else {
                    facts.reads.push(Read {
                        node,
                        owners: owners(terms, &known),
                        noncoherent: *noncoherent,
                        weak: *order == Order::Weak,
                    });
                }
            }
            Role::Atomic { acquire, polls, named, .. } => {
                let waits = is_global(*named, terms)
                    && (*acquire
                        || *polls && spins(&kernel.program, &facts.loops, &facts.flows, node));
                if waits {
                    facts.waits.push(node);
                }
            }
        }
    }
    facts
}

/// Whether an access goes to global memory; without a state space it does unless it is traced away.
fn is_global(named: Named, terms: &[Term]) -> bool {
    match named {
        Named::Global => true,
        Named::Generic => {
            terms.is_empty()
                || terms.iter().any(|term| {
                    !term.origins.iter().any(|origin| match origin {
                        Origin::Shared(_)
                        | Origin::Const
                        | Origin::Slot(_)
                        | Origin::ParamSpace(_) => true,
                        Origin::Param(_)
                        | Origin::Global(_)
                        | Origin::MinusParam(_)
                        | Origin::MinusGlobal(_)
                        | Origin::BitsOfParam(_)
                        | Origin::BitsOfGlobal(_)
                        | Origin::Word
                        | Origin::Opaque
                        | Origin::Loose => false,
                    })
                })
        }
    }
}

/// Origins that are pointers beyond doubt: said to be so, or used as an address with no other origin.
fn pointers(kernel: &Kernel, sums: &BTreeMap<u32, ValueId>, said: &Said) -> BTreeSet<Origin> {
    let mut known: BTreeSet<Origin> =
        said.pointers.iter().map(|&param| Origin::Param(param)).collect();
    for (index, param) in kernel.params.iter().enumerate() {
        if param.is_pointer {
            known.insert(Origin::Param(index as u32));
        }
    }
    for (node, sum) in sums {
        if matches!(kernel.roles[*node as usize], Role::Texture { .. }) {
            continue;
        }
        for term in kernel.values.terms(*sum) {
            if let [origin @ (Origin::Param(_) | Origin::Global(_))] = term.origins[..] {
                known.insert(origin);
            }
        }
    }
    for index in 0..kernel.globals.len() {
        known.insert(Origin::Global(index as u32));
    }
    known
}

/// What is known of the origins of a kernel.
struct Known<'a> {
    sure: BTreeSet<Origin>,
    said: &'a Said,
    leads: &'a BTreeSet<(u32, u32)>,
}

impl Known<'_> {
    /// The origins of a sum that may be its pointer.
    fn candidates(&self, term: &Term) -> Vec<Origin> {
        let of = |wanted: &dyn Fn(Origin) -> bool| -> Vec<Origin> {
            term.origins.iter().copied().filter(|&origin| wanted(origin)).collect()
        };
        let is_minus = |o: Origin| matches!(o, Origin::MinusParam(_) | Origin::MinusGlobal(_));
        let whole = of(&|origin| !origin.is_bits() && !is_minus(origin));
        if whole.is_empty() {
            // A pointer that was taken apart, or scaled and scaled back.
            return of(&|origin| origin.is_bits());
        }
        if whole.iter().any(|origin| self.sure.contains(origin)) {
            let is_mutable = |origin: Origin| matches!(origin, Origin::Param(param) if self.said.mutables.contains(&param));
            return of(&|origin| self.sure.contains(&origin) || is_mutable(origin));
        }
        let params: Vec<u32> = whole
            .iter()
            .filter_map(
                |origin| if let Origin::Param(param) = origin { Some(*param) } else { None },
            )
            .collect();
        let led = params.iter().find(|param| {
            self.said.statics.contains(param)
                && params.iter().all(|other| self.is_ahead(**param, *other))
        });
        match led {
            Some(&param) => vec![Origin::Param(param)],
            None => whole,
        }
    }

    /// Whether the code and the list of parameters name one ahead of the other, as a pointer stands ahead
    /// of the number that is added to it.
    fn is_ahead(&self, param: u32, other: u32) -> bool {
        param == other
            || param < other
                && self.leads.contains(&(param, other))
                && !self.leads.contains(&(other, param))
    }
}

/// Who owns the memory, by the terms of its address.
fn owners(terms: &[Term], known: &Known<'_>) -> Owners {
    let mut owners = Owners { untraced: terms.is_empty(), ..Owners::default() };
    let is_number = |term: &Term| {
        term.origins.iter().all(|origin| matches!(origin, Origin::Word | Origin::Loose))
    };
    let only_numbers = terms.iter().all(is_number);
    for term in terms {
        if term.origins.is_empty() {
            // A known number beside traced pointers is a null pointer that is never read.
            owners.untraced |= only_numbers || term.offset.is_none();
            continue;
        }
        let candidates = known.candidates(term);
        owners.untraced |= candidates.is_empty() || only_numbers;
        for origin in candidates {
            match origin {
                Origin::Param(param) | Origin::BitsOfParam(param) => {
                    owners.params.insert(param);
                }
                Origin::Global(global) | Origin::BitsOfGlobal(global) => {
                    owners.globals.insert(global);
                }
                Origin::Opaque => owners.untraced = true,
                Origin::ParamSpace(_)
                | Origin::Shared(_)
                | Origin::Const
                | Origin::Slot(_)
                | Origin::MinusParam(_)
                | Origin::MinusGlobal(_)
                | Origin::Word
                | Origin::Loose => {}
            }
        }
    }
    owners
}

//! Contracts: what a kernel needs of the values of an integer buffer is promised by whoever fills it, in this step
//! or, for a state, in an earlier one, on every rank.

use super::{Checker, integers};
use crate::Access;
use crate::plan::{
    Argument, ArgumentValue, BufferId, BufferRole, ContractSpec, KernelKey, Node, NodeOp,
    ParamSpec, PlanBuffer, PlanCode, Promise, UpperBound,
};

impl<'p> Checker<'p> {
    /// Contracts of what is read against promises of what is written.
    pub(super) fn contracts(&mut self) {
        // A state may hold what any node of an earlier step wrote, so promises are collected until nothing is
        // new before they are judged.
        let mut states = vec![Vec::new(); self.plan.buffers.len()];
        loop {
            let promises = self.promises(&states, false);
            let of_state =
                |(buffer, promises): (&PlanBuffer, Vec<Option<Promise>>)| match buffer.role {
                    BufferRole::State | BufferRole::Symmetric => promises,
                    BufferRole::Weight | BufferRole::Host { .. } | BufferRole::Step => Vec::new(),
                };
            let now: Vec<Vec<Option<Promise>>> =
                self.plan.buffers.iter().zip(promises).map(of_state).collect();
            if now == states {
                break;
            }
            states = now;
        }
        self.promises(&states, true);
    }

    /// The promises on every buffer at the end of a step that starts with those of `states`; judges the
    /// contracts on the way if asked to.
    fn promises(
        &mut self,
        states: &[Vec<Option<Promise>>],
        judge: bool,
    ) -> Vec<Vec<Option<Promise>>> {
        let plan = self.plan;
        let mut promises: Vec<Vec<Option<Promise>>> = states.to_vec();
        for (buffer, promises) in plan.buffers.iter().zip(&mut promises) {
            match &buffer.role {
                BufferRole::Host { promise } => add(promises, *promise),
                BufferRole::State | BufferRole::Symmetric => {
                    add(promises, Some(Promise { lo: 0, hi: 1, distinct: false, except: None }));
                }
                BufferRole::Weight => add(promises, None),
                BufferRole::Step => {}
            }
        }
        let shared = |promise: &Option<Promise>| {
            promise.map(|p| Promise { distinct: false, except: None, ..p })
        };
        for node in &plan.nodes {
            match &node.op {
                NodeOp::Kernel { kernel, args } => {
                    for (param, buffer) in self.buffers_of(kernel, args) {
                        let contract = param.contract.as_ref();
                        if let (true, Access::Input | Access::Inout, Some(contract)) =
                            (judge, param.access, contract)
                        {
                            let needed = promise_of(contract, args, Bound::Needed);
                            self.contract(node, contract, needed, buffer, &promises);
                        }
                        if param.access.is_writable() {
                            let promise =
                                contract.and_then(|c| promise_of(c, args, Bound::Promised));
                            add(&mut promises[buffer.index()], promise);
                        }
                    }
                }
                // A value may be there twice when pieces come together.
                NodeOp::AllGather { src, dst, .. } => {
                    for promise in promises[src.index()].clone() {
                        add(&mut promises[dst.index()], shared(&promise));
                    }
                }
                NodeOp::Copy { src, dst } => {
                    for promise in promises[src.buffer.index()].clone() {
                        add(&mut promises[dst.buffer.index()], shared(&promise));
                    }
                }
                NodeOp::AllReduce { dst, .. } | NodeOp::ReduceScatter { dst, .. } => {
                    add(&mut promises[dst.index()], None);
                }
            }
        }
        promises
    }

    fn contract(
        &mut self,
        node: &Node,
        contract: &ContractSpec,
        needed: Option<Promise>,
        buffer: BufferId,
        promises: &[Vec<Option<Promise>>],
    ) {
        let name = &self.buffer(buffer).name;
        let Some(needed) = needed else {
            let message = format!("the bound of the contract of `{name}` is no known scalar");
            self.error(PlanCode::Contract, &node.name, message);
            return;
        };
        let holds = promises[buffer.index()].iter().all(|promise| {
            promise.is_some_and(|p| {
                let distinct = !contract.distinct
                    || (p.distinct && (p.except.is_none() || p.except == contract.except));
                p.lo >= needed.lo && p.hi <= needed.hi && distinct
            })
        });
        if !holds {
            let message = format!(
                "values of `{name}` must be in {}..{}{}, and whoever fills it does not promise that",
                needed.lo,
                needed.hi,
                if contract.distinct { " and distinct" } else { "" }
            );
            self.error(PlanCode::Contract, &node.name, message);
        }
    }

    /// What a kernel gets of buffers.
    pub(super) fn buffers_of(
        &self,
        kernel: &KernelKey,
        args: &[Argument],
    ) -> Vec<(&'p ParamSpec, BufferId)> {
        let signature = &self.signatures[kernel];
        args.iter()
            .filter_map(|arg| match arg.value {
                ArgumentValue::Buffer { buffer, .. } => {
                    Some((signature.param(&arg.param)?, buffer))
                }
                ArgumentValue::Scalar(_) | ArgumentValue::Scalars(_) => None,
            })
            .collect()
    }
}

/// Adds a promise that is not there yet.
fn add(promises: &mut Vec<Option<Promise>>, promise: Option<Promise>) {
    if !promises.contains(&promise) {
        promises.push(promise);
    }
}

/// What the bound of a contract is for, where it differs between ranks.
#[derive(Debug, Clone, Copy)]
enum Bound {
    /// Values must be below it on every rank: the least counts.
    Needed,
    /// Values are below it: the greatest counts.
    Promised,
}

fn promise_of(contract: &ContractSpec, args: &[Argument], bound: Bound) -> Option<Promise> {
    let hi = match &contract.hi {
        UpperBound::Const(hi) => *hi,
        UpperBound::Scalar(name, offset) => {
            let (least, greatest) = integers(args, name)?;
            let value = match bound {
                Bound::Needed => least,
                Bound::Promised => greatest,
            };
            value.checked_add(*offset)?
        }
    };
    Some(Promise { lo: contract.lo, hi, distinct: contract.distinct, except: contract.except })
}

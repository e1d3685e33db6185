//! Kernels over several ranks, and the memory that ranks write for each other.
//!
//! A plan is one list of nodes for all ranks, so each kernel has one grid there, and all ranks launch it equally often and in
//! one order. What is left to agree on: the number of ranks that a kernel was made for, the number that each gets, the
//! shape of the memory with its ring, and the scalars that bound rows. What other ranks write may arrive at any time,
//! so kernels alone that say so touch it.

use super::{Checker, integers};
use crate::Access;
use crate::plan::{
    Argument, ArgumentValue, BufferId, BufferRole, ExtentSpec, KernelKey, Node, NodeOp, ParamSpec,
    PlanCode, RANK, Scalar, Signature,
};

/// Ranks of a kernel at most.
const MAX_WORLD: u32 = 32;

impl<'p> Checker<'p> {
    /// What kernels over ranks, and memory of ranks, are given.
    pub(super) fn ranks(&mut self) {
        for node in &self.plan.nodes {
            match &node.op {
                NodeOp::Kernel { kernel, args } => {
                    let Some(signature) = self.signatures.get(kernel) else { continue };
                    self.world(node, kernel, signature, args);
                    for (param, buffer) in self.buffers_of(kernel, args) {
                        self.memory_of_ranks(node, kernel, args, (param, buffer));
                    }
                }
                NodeOp::AllReduce { src, dst }
                | NodeOp::AllGather { src, dst, .. }
                | NodeOp::ReduceScatter { src, dst, .. } => {
                    self.no_memory_of_ranks(node, *src);
                    self.no_memory_of_ranks(node, *dst);
                }
                NodeOp::Copy { src, dst } => {
                    self.no_memory_of_ranks(node, src.buffer);
                    self.no_memory_of_ranks(node, dst.buffer);
                }
            }
        }
    }

    fn world(
        &mut self,
        node: &Node,
        kernel: &KernelKey,
        signature: &Signature,
        args: &'p [Argument],
    ) {
        let Some(world) = signature.world else { return };
        if world != self.plan.ranks || world > MAX_WORLD {
            let message = format!(
                "{kernel} is made for {world} ranks, and the plan has {}; take the kernel of as many, {MAX_WORLD} at most",
                self.plan.ranks
            );
            self.error(PlanCode::Ranks, &node.name, message);
            return;
        }
        let rank = args.iter().find(|arg| arg.param == RANK);
        let is_own = |values: &[Scalar]| {
            values.iter().zip(0..).all(|(value, rank)| value.integer() == Some(rank))
        };
        let is_right = match rank.map(|arg| &arg.value) {
            Some(ArgumentValue::Scalar(value)) => world == 1 && is_own(&[*value]),
            Some(ArgumentValue::Scalars(values)) => is_own(values),
            Some(ArgumentValue::Buffer { .. }) => false,
            None => signature.param(RANK).is_none(),
        };
        if !is_right {
            let message = format!("`{RANK}` of {kernel} is 0, 1, … from rank to rank");
            self.error(PlanCode::Ranks, &node.name, message);
        }
        for param in &signature.params {
            let Some(rows) = &param.touches.rows else { continue };
            if let Some((least, greatest)) = integers(args, rows).filter(|(a, b)| a != b) {
                let message = format!(
                    "the rows of `{}` end at {least} on one rank and at {greatest} on another by `{rows}`; ranks that work \
                     together bound them alike",
                    param.name
                );
                self.error(PlanCode::Rows, &node.name, message);
            }
        }
    }

    fn memory_of_ranks(
        &mut self,
        node: &Node,
        kernel: &KernelKey,
        args: &[Argument],
        (param, buffer): (&ParamSpec, BufferId),
    ) {
        let described = self.buffer(buffer);
        let is_symmetric = described.role == BufferRole::Symmetric;
        if param.access != Access::Peer {
            if is_symmetric {
                let message = format!(
                    "`{}` is memory of ranks, and `{}` of {kernel} is {}: other ranks may write it while the kernel runs",
                    described.name, param.name, param.access
                );
                self.error(PlanCode::Ranks, &node.name, message);
            }
            return;
        }
        if !is_symmetric {
            let message = format!(
                "`{}` of {kernel} is memory of other ranks too, and `{}` is none: give it the role `Symmetric`",
                param.name, described.name
            );
            self.error(PlanCode::Ranks, &node.name, message);
        }
        if self.signatures.get(kernel).is_none_or(|signature| signature.world.is_none()) {
            let message = format!("{kernel} writes memory of other ranks, and is over no ranks");
            self.error(PlanCode::Ranks, &node.name, message);
        }
        let extent = |extent: &ExtentSpec| match extent {
            ExtentSpec::Const(extent) => Some(*extent),
            // Each rank proves with its own what it stores to another one.
            ExtentSpec::Scalar(name) => integers(args, name)
                .filter(|(least, greatest)| least == greatest)
                .and_then(|(value, _)| u64::try_from(value).ok()),
        };
        let shape: Option<Vec<u64>> = param.shape.iter().map(extent).collect();
        if shape.as_ref() != Some(&described.shape) {
            let shape =
                shape.map_or("not the same on every rank".to_owned(), |shape| format!("{shape:?}"));
            let message = format!(
                "`{}` of {kernel} is {shape}, slots of the ring first, and `{}` is {:?} on every rank; all who touch memory \
                 of ranks agree on its shape",
                param.name, described.name, described.shape
            );
            self.error(PlanCode::Ranks, &node.name, message);
        }
    }

    fn no_memory_of_ranks(&mut self, node: &Node, buffer: BufferId) {
        let described = self.buffer(buffer);
        if described.role == BufferRole::Symmetric {
            let message = format!(
                "`{}` is memory of ranks, which kernels alone touch: other ranks may write it at any time",
                described.name
            );
            self.error(PlanCode::Ranks, &node.name, message);
        }
    }
}

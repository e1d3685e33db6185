//! Building a plan: edges follow from what the nodes read and write.

use super::{
    Argument, ArgumentValue, BufferId, BufferRole, KernelKey, Node, NodeId, NodeOp, Plan,
    PlanBuffer, RANK, Region, Scalar,
};
use crate::{Access, DType};

/// Collects buffers and nodes; each node waits for the last writers of what it reads and for the last
/// writers and readers of what it writes.
#[derive(Debug, Default)]
pub struct PlanBuilder {
    plan: Plan,
    users: Vec<Users>,
}

/// The nodes that a next access must wait for.
#[derive(Debug, Default, Clone)]
struct Users {
    writers: Vec<NodeId>,
    readers: Vec<NodeId>,
}

/// The arguments of a kernel node, one call a parameter.
#[derive(Debug)]
pub struct KernelNode<'b> {
    builder: &'b mut PlanBuilder,
    name: String,
    kernel: KernelKey,
    args: Vec<Argument>,
    reads: Vec<BufferId>,
    writes: Vec<BufferId>,
}

impl PlanBuilder {
    /// An empty plan for that many ranks.
    pub fn new(ranks: u32) -> PlanBuilder {
        PlanBuilder { plan: Plan { ranks, ..Plan::default() }, users: Vec::new() }
    }

    /// Adds a buffer.
    pub fn buffer(
        &mut self,
        name: impl Into<String>,
        dtype: DType,
        shape: &[u64],
        role: BufferRole,
    ) -> BufferId {
        let id = BufferId(self.plan.buffers.len() as u32);
        let (name, shape) = (name.into(), shape.to_vec());
        self.plan.buffers.push(PlanBuffer { name, dtype, shape, role });
        self.users.push(Users::default());
        id
    }

    /// Begins a kernel node.
    pub fn kernel(
        &mut self,
        name: impl Into<String>,
        file: &str,
        kernel: &str,
        bindings: &[(&str, u64)],
    ) -> KernelNode<'_> {
        let bindings = bindings.iter().map(|&(n, v)| (n.to_owned(), v as i64)).collect();
        KernelNode {
            builder: self,
            name: name.into(),
            kernel: KernelKey { file: file.into(), kernel: kernel.into(), bindings },
            args: Vec::new(),
            reads: Vec::new(),
            writes: Vec::new(),
        }
    }

    /// Adds a sum over the ranks; `src` and `dst` may be one buffer.
    pub fn all_reduce(&mut self, name: impl Into<String>, src: BufferId, dst: BufferId) -> NodeId {
        self.node(name.into(), NodeOp::AllReduce { src, dst }, &[src], &[dst])
    }

    /// Adds a gather of rows over the ranks.
    pub fn all_gather(
        &mut self,
        name: impl Into<String>,
        src: BufferId,
        dst: BufferId,
        rows: u64,
    ) -> NodeId {
        self.node(name.into(), NodeOp::AllGather { src, dst, rows }, &[src], &[dst])
    }

    /// Adds a sum over the ranks of which each keeps its part of every row.
    pub fn reduce_scatter(
        &mut self,
        name: impl Into<String>,
        src: BufferId,
        dst: BufferId,
        rows: u64,
    ) -> NodeId {
        self.node(name.into(), NodeOp::ReduceScatter { src, dst, rows }, &[src], &[dst])
    }

    /// Adds a copy within each rank.
    pub fn copy(&mut self, name: impl Into<String>, src: Region, dst: Region) -> NodeId {
        self.node(name.into(), NodeOp::Copy { src, dst }, &[src.buffer], &[dst.buffer])
    }

    /// The plan.
    pub fn finish(self) -> Plan {
        self.plan
    }

    fn node(
        &mut self,
        name: String,
        op: NodeOp,
        reads: &[BufferId],
        writes: &[BufferId],
    ) -> NodeId {
        let id = NodeId(self.plan.nodes.len() as u32);
        let mut after = Vec::new();
        for read in reads {
            after.extend(&self.users[read.index()].writers);
        }
        for write in writes {
            let users = &self.users[write.index()];
            after.extend(users.writers.iter().chain(&users.readers));
        }
        after.sort_unstable();
        after.dedup();
        for write in writes {
            // What waited for the earlier users is ordered through this node.
            self.users[write.index()] = Users { writers: vec![id], readers: Vec::new() };
        }
        for read in reads.iter().filter(|read| !writes.contains(read)) {
            self.users[read.index()].readers.push(id);
        }
        self.plan.nodes.push(Node { name, op, after });
        id
    }
}

impl KernelNode<'_> {
    /// A buffer of a parameter with that access.
    pub fn arg(mut self, param: &str, access: Access, buffer: BufferId) -> Self {
        self.push(param, access, buffer, None);
        self
    }

    /// A `static`, `input` or settled buffer that the kernel reads.
    pub fn read(self, param: &str, buffer: BufferId) -> Self {
        self.arg(param, Access::Input, buffer)
    }

    /// A buffer of which the kernel reads the leading elements alone.
    pub fn read_prefix(mut self, param: &str, buffer: BufferId, elements: u64) -> Self {
        self.push(param, Access::Input, buffer, Some(elements));
        self
    }

    /// A buffer that the kernel writes.
    pub fn write(self, param: &str, buffer: BufferId) -> Self {
        self.arg(param, Access::Output, buffer)
    }

    /// A buffer that the kernel reads and writes.
    pub fn update(self, param: &str, buffer: BufferId) -> Self {
        self.arg(param, Access::Inout, buffer)
    }

    /// A scalar, the same for all ranks.
    pub fn scalar(mut self, param: &str, value: Scalar) -> Self {
        let value = ArgumentValue::Scalar(value);
        self.args.push(Argument { param: param.into(), value });
        self
    }

    /// A scalar for each rank.
    pub fn scalars(mut self, param: &str, values: Vec<Scalar>) -> Self {
        let value = ArgumentValue::Scalars(values);
        self.args.push(Argument { param: param.into(), value });
        self
    }

    /// The number of the rank, for a kernel over all of them.
    pub fn of_ranks(self) -> Self {
        let ranks = i32::try_from(self.builder.plan.ranks).unwrap_or(i32::MAX);
        self.scalars(RANK, (0..ranks).map(Scalar::I32).collect())
    }

    /// Adds the node.
    pub fn add(self) -> NodeId {
        let KernelNode { builder, name, kernel, args, reads, writes } = self;
        builder.node(name, NodeOp::Kernel { kernel, args }, &reads, &writes)
    }

    fn push(&mut self, param: &str, access: Access, buffer: BufferId, prefix: Option<u64>) {
        if access != Access::Output {
            self.reads.push(buffer);
        }
        if access.is_writable() {
            self.writes.push(buffer);
        }
        let value = ArgumentValue::Buffer { buffer, prefix };
        self.args.push(Argument { param: param.into(), value });
    }
}

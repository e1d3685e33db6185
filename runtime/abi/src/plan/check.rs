//! The proof that a plan can run.
//!
//! * structure: ids, unique names, edges that point backwards;
//! * arguments: every parameter of every kernel has a buffer or scalar of its type and size;
//! * memory: what a kernel declares `static` is a weight that no node writes; every read of a buffer that
//!   lives within the step is covered by writes ordered before it; two accesses of which one writes are
//!   ordered; a buffer that a kernel writes is given to one of its parameters only;
//! * contracts: what a kernel needs of the values of an integer buffer is promised by whoever fills it, in
//!   this step or, for a state, in an earlier one, on every rank;
//! * launches that overlap: what a kernel touches before its wait, `settled` data above all, is touched by no launch that may
//!   still run then, and what it touches behind it by none that the wait does not cover; asynchronous copies read
//!   nothing that earlier kernels have stored without a fence;
//! * ranks: kernels over several ranks are for as many as the plan has and agree on the memory of ranks; counters,
//!   epochs and flags start at zero and are the words of one kernel's launches; rows that a writer leaves out by a
//!   scalar are read by nobody;
//! * stored: all kernels that read a weight want its elements in one order.
//!
//! What is assumed: a kernel writes all of each `output`, or all of the rows below a scalar (its own verification and the emulator's poison speak
//! of that), a kernel that is given a prefix of a buffer touches no more than that (the author of the plan says so),
//! and a buffer is its elements in a row: a kernel may read them with other extents.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use super::{
    Argument, ArgumentValue, BufferId, KernelKey, NodeId, NodeOp, Plan, PlanBuffer, PlanCode,
    PlanError, Region, Signature,
};
use crate::stored::StoredLayout;

mod arguments;
mod contracts;
mod memory;
mod overlap;
mod ranks;
mod stored;
mod words;

/// Ranks of a plan at most.
const MAX_RANKS: u32 = 64;

/// A plan that can run.
#[derive(Debug, Clone)]
pub struct CheckedPlan {
    plan: Plan,
    signatures: BTreeMap<KernelKey, Signature>,
    stored: BTreeMap<BufferId, StoredLayout>,
    runs_until: Vec<usize>,
}

impl CheckedPlan {
    /// The parameters of a kernel of the plan.
    pub fn signature(&self, kernel: &KernelKey) -> &Signature {
        &self.signatures[kernel]
    }

    /// Where the elements of a buffer lie when not in row-major order: whoever fills it packs by this.
    pub fn stored(&self, buffer: BufferId) -> Option<&StoredLayout> {
        self.stored.get(&buffer)
    }

    /// The last node that may touch memory while a node still runs, as launches overlap: the node itself where each that
    /// comes later knows it to have ended. Memory that a node used may be used for something else after that one.
    pub fn runs_until(&self, node: NodeId) -> usize {
        self.runs_until.get(node.index()).copied().unwrap_or(node.index())
    }
}

impl Deref for CheckedPlan {
    type Target = Plan;

    fn deref(&self) -> &Plan {
        &self.plan
    }
}

impl Plan {
    /// Every kernel of the plan, once, in order.
    pub fn kernels(&self) -> BTreeSet<&KernelKey> {
        self.nodes
            .iter()
            .filter_map(|node| match &node.op {
                NodeOp::Kernel { kernel, .. } => Some(kernel),
                NodeOp::AllReduce { .. }
                | NodeOp::AllGather { .. }
                | NodeOp::ReduceScatter { .. }
                | NodeOp::Copy { .. } => None,
            })
            .collect()
    }

    /// Checks the plan against the parameters of its kernels.
    ///
    /// # Errors
    /// Everything that is wrong, in the order of the nodes.
    pub fn check(
        self,
        signatures: BTreeMap<KernelKey, Signature>,
    ) -> Result<CheckedPlan, Vec<PlanError>> {
        let mut checker = Checker { plan: &self, signatures: &signatures, errors: Vec::new() };
        let mut stored = BTreeMap::new();
        let mut runs_until = Vec::new();
        checker.structure();
        if checker.errors.is_empty() {
            let accesses = checker.accesses();
            if checker.errors.is_empty() {
                checker.memory(&accesses);
                checker.contracts();
                checker.ranks();
                checker.words();
                runs_until = checker.overlap(&accesses);
                stored = checker.stored();
            }
        }
        let errors = checker.errors;
        if errors.is_empty() {
            Ok(CheckedPlan { plan: self, signatures, stored, runs_until })
        } else {
            Err(errors)
        }
    }
}

/// One access of a node to a buffer.
#[derive(Debug, Clone, Copy)]
struct Touch<'p> {
    node: usize,
    buffer: BufferId,
    start: u64,
    end: u64,
    reads: bool,
    writes: bool,
    /// Up to here what it writes may be read afterwards, on every rank.
    filled: u64,
    /// The scalar that keeps it from what lies behind.
    rows: Option<&'p str>,
    is_static: bool,
    settled: bool,
    /// Some of its reads come before the wait of a kernel that starts early.
    reads_early: bool,
    /// Some of its writes do.
    writes_early: bool,
    /// Asynchronous copies read it without a fence behind the wait.
    unfenced: bool,
}

impl Touch<'_> {
    /// A node reads or writes elements `start..end` of a buffer.
    fn plain(node: usize, (buffer, start, end): (BufferId, u64, u64), reads: bool) -> Self {
        Touch {
            node,
            buffer,
            start,
            end,
            reads,
            writes: !reads,
            filled: end,
            rows: None,
            is_static: false,
            settled: false,
            reads_early: false,
            writes_early: false,
            unfenced: false,
        }
    }

    /// Whether both touch an element.
    fn meets(&self, other: &Touch<'_>) -> bool {
        self.buffer == other.buffer && self.start.max(other.start) < self.end.min(other.end)
    }

    fn is_early(&self) -> bool {
        self.reads_early || self.writes_early
    }
}

struct Checker<'p> {
    plan: &'p Plan,
    signatures: &'p BTreeMap<KernelKey, Signature>,
    errors: Vec<PlanError>,
}

impl<'p> Checker<'p> {
    fn error(&mut self, code: PlanCode, node: &str, message: String) {
        self.errors.push(PlanError { code, node: node.to_owned(), message });
    }

    fn buffer(&self, id: BufferId) -> &'p PlanBuffer {
        &self.plan.buffers[id.index()]
    }

    fn structure(&mut self) {
        let plan = self.plan;
        if plan.ranks == 0 || plan.ranks > MAX_RANKS {
            let message = format!("{} ranks; a plan has 1 to {MAX_RANKS}", plan.ranks);
            self.error(PlanCode::Structure, "plan", message);
        }
        let mut names = BTreeSet::new();
        for buffer in &plan.buffers {
            if !names.insert(&buffer.name) {
                let message = format!("two buffers are called `{}`", buffer.name);
                self.error(PlanCode::Structure, "plan", message);
            }
            if buffer.elements().is_none() {
                let message = format!("`{}` has too many elements", buffer.name);
                self.error(PlanCode::Structure, "plan", message);
            }
        }
        let mut names = BTreeSet::new();
        for (i, node) in plan.nodes.iter().enumerate() {
            if !names.insert(&node.name) {
                self.error(PlanCode::Structure, &node.name, "two nodes have this name".into());
            }
            if node.after.iter().any(|earlier| earlier.index() >= i) {
                let message = "an edge that does not point to an earlier node".into();
                self.error(PlanCode::Structure, &node.name, message);
            }
            let known = |id: BufferId| id.index() < plan.buffers.len();
            let inside = |region: &Region| {
                known(region.buffer)
                    && region.start.checked_add(region.len).is_some_and(|end| {
                        self.buffer(region.buffer).elements().is_some_and(|len| end <= len)
                    })
            };
            let ok = match &node.op {
                NodeOp::Kernel { args, .. } => args.iter().all(|arg| match arg.value {
                    ArgumentValue::Buffer { buffer, .. } => known(buffer),
                    ArgumentValue::Scalar(_) | ArgumentValue::Scalars(_) => true,
                }),
                NodeOp::AllReduce { src, dst }
                | NodeOp::AllGather { src, dst, .. }
                | NodeOp::ReduceScatter { src, dst, .. } => known(*src) && known(*dst),
                NodeOp::Copy { src, dst } => inside(src) && inside(dst),
            };
            if !ok {
                let message = "a buffer, or a piece of one, that the plan does not have".into();
                self.error(PlanCode::Structure, &node.name, message);
            }
        }
    }
}

/// The least and the greatest value of a scalar argument over the ranks.
fn integers(args: &[Argument], name: &str) -> Option<(i64, i64)> {
    match &args.iter().find(|arg| arg.param == name)?.value {
        ArgumentValue::Scalar(value) => value.integer().map(|value| (value, value)),
        ArgumentValue::Scalars(values) => {
            let values = values.iter().map(|v| v.integer()).collect::<Option<Vec<i64>>>()?;
            Some((values.iter().copied().min()?, values.iter().copied().max()?))
        }
        ArgumentValue::Buffer { .. } => None,
    }
}

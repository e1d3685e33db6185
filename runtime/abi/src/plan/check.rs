//! The proof that a plan can run.
//!
//! * structure: ids, unique names, edges that point backwards;
//! * arguments: every parameter of every kernel has a buffer or scalar of its type and size;
//! * memory: what a kernel declares `static` is a weight that no node writes; every read of a buffer that
//!   lives within the step is covered by writes ordered before it; two accesses of which one writes are
//!   ordered; a buffer that a kernel writes is given to one of its parameters only;
//! * contracts: what a kernel needs of the values of an integer buffer is promised by whoever fills it, in
//!   this step or, for a state, in an earlier one, on every rank;
//! * `settled`: the launch right before, that of the step before included, does not write it, so that it may be
//!   read early.
//!
//! What is assumed: a kernel writes all of each `output` (its own verification and the emulator's poison speak
//! of that), and a buffer is its elements in a row: a kernel may read them with other extents.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use super::order::Order;
use super::ranges::Ranges;
use super::{
    Argument, ArgumentValue, BufferId, BufferRole, ContractSpec, ExtentSpec, KernelKey, Node,
    NodeOp, ParamSpec, Plan, PlanBuffer, PlanCode, PlanError, Promise, Region, Scalar, Signature,
    UpperBound,
};
use crate::{Access, DType};

/// Ranks of a plan at most.
const MAX_RANKS: u32 = 64;

/// A plan that can run.
#[derive(Debug, Clone)]
pub struct CheckedPlan {
    plan: Plan,
    signatures: BTreeMap<KernelKey, Signature>,
}

impl CheckedPlan {
    /// The parameters of a kernel of the plan.
    pub fn signature(&self, kernel: &KernelKey) -> &Signature {
        &self.signatures[kernel]
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
        checker.structure();
        if checker.errors.is_empty() {
            let accesses = checker.accesses();
            if checker.errors.is_empty() {
                checker.memory(&accesses);
                checker.contracts();
                checker.settled(&accesses);
            }
        }
        let errors = checker.errors;
        if errors.is_empty() { Ok(CheckedPlan { plan: self, signatures }) } else { Err(errors) }
    }
}

/// One access of a node to a buffer.
#[derive(Debug, Clone, Copy)]
struct Touch {
    node: usize,
    buffer: BufferId,
    start: u64,
    end: u64,
    reads: bool,
    writes: bool,
    /// What it writes may be read afterwards.
    fills: bool,
    is_static: bool,
    settled: bool,
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

    /// What every node touches; checks arguments and sizes on the way.
    fn accesses(&mut self) -> Vec<Touch> {
        let mut touches = Vec::new();
        for (i, node) in self.plan.nodes.iter().enumerate() {
            match &node.op {
                NodeOp::Kernel { kernel, args } => {
                    self.kernel(i, node, kernel, args, &mut touches);
                }
                NodeOp::AllReduce { src, dst } => {
                    let (from, to) = (self.buffer(*src), self.buffer(*dst));
                    if from.dtype != to.dtype
                        || from.elements() != to.elements()
                        || !is_summed(from.dtype)
                    {
                        let message = format!(
                            "a sum of `{}` into `{}`: both must be f32, f16 or bf16 of one size",
                            from.name, to.name
                        );
                        self.error(PlanCode::Collective, &node.name, message);
                    }
                    self.whole(i, *src, true, &mut touches);
                    self.whole(i, *dst, false, &mut touches);
                }
                NodeOp::AllGather { src, dst, rows } => {
                    self.rows(node, *src, *dst, *rows);
                    self.whole(i, *src, true, &mut touches);
                    self.whole(i, *dst, false, &mut touches);
                }
                NodeOp::ReduceScatter { src, dst, rows } => {
                    self.rows(node, *dst, *src, *rows);
                    if !is_summed(self.buffer(*src).dtype) {
                        let message = "a sum of elements that are not f32, f16 or bf16".into();
                        self.error(PlanCode::Collective, &node.name, message);
                    }
                    self.whole(i, *src, true, &mut touches);
                    self.whole(i, *dst, false, &mut touches);
                }
                NodeOp::Copy { src, dst } => {
                    let same = self.buffer(src.buffer).dtype == self.buffer(dst.buffer).dtype;
                    let overlap = src.buffer == dst.buffer
                        && src.start < dst.start + dst.len
                        && dst.start < src.start + src.len;
                    if !same || src.len != dst.len || overlap {
                        let message =
                            "a copy between pieces that overlap, or of two types or sizes".into();
                        self.error(PlanCode::Collective, &node.name, message);
                    }
                    for (region, reads) in [(src, true), (dst, false)] {
                        touches.push(Touch {
                            node: i,
                            buffer: region.buffer,
                            start: region.start,
                            end: region.start + region.len,
                            reads,
                            writes: !reads,
                            fills: true,
                            is_static: false,
                            settled: false,
                        });
                    }
                }
            }
        }
        touches
    }

    fn whole(&self, node: usize, buffer: BufferId, reads: bool, touches: &mut Vec<Touch>) {
        let end = self.buffer(buffer).elements().unwrap_or(0);
        touches.push(Touch {
            node,
            buffer,
            start: 0,
            end,
            reads,
            writes: !reads,
            fills: true,
            is_static: false,
            settled: false,
        });
    }

    /// `part` has `rows` rows of a size, `all` as many of `ranks` times the size.
    fn rows(&mut self, node: &Node, part: BufferId, all: BufferId, rows: u64) {
        let (p, a) = (self.buffer(part), self.buffer(all));
        let sizes = p.elements().zip(a.elements()).filter(|(p, a)| {
            rows > 0
                && p % rows == 0
                && p.checked_mul(u64::from(self.plan.ranks)) == Some(*a)
                && part != all
        });
        if sizes.is_none() || p.dtype != a.dtype {
            let message = format!(
                "`{}` and `{}` are not {rows} rows of a part and of the parts of {} ranks",
                p.name, a.name, self.plan.ranks
            );
            self.error(PlanCode::Collective, &node.name, message);
        }
    }

    fn kernel(
        &mut self,
        index: usize,
        node: &Node,
        kernel: &KernelKey,
        args: &[Argument],
        touches: &mut Vec<Touch>,
    ) {
        let Some(signature) = self.signatures.get(kernel) else {
            let message = format!("there is no kernel {kernel}");
            self.error(PlanCode::Argument, &node.name, message);
            return;
        };
        for arg in args {
            let count = args.iter().filter(|other| other.param == arg.param).count();
            if signature.param(&arg.param).is_none() || count != 1 {
                let message =
                    format!("`{}` is no parameter of {kernel}, or given twice", arg.param);
                self.error(PlanCode::Argument, &node.name, message);
            }
        }
        for param in &signature.params {
            let Some(arg) = args.iter().find(|arg| arg.param == param.name) else {
                let message = format!("the parameter `{}` of {kernel} gets nothing", param.name);
                self.error(PlanCode::Argument, &node.name, message);
                continue;
            };
            match &arg.value {
                ArgumentValue::Buffer { buffer, prefix } => {
                    let len = self.buffer(*buffer).elements().unwrap_or(0);
                    if prefix.is_some_and(|prefix| prefix > len || param.access.is_writable()) {
                        let message = format!(
                            "`{}` of {kernel}: a prefix is of something that is only read, and no longer",
                            param.name
                        );
                        self.error(PlanCode::Argument, &node.name, message);
                        continue;
                    }
                    if param.access == Access::Peer {
                        let message =
                            format!("`{}` of {kernel} is memory of other ranks", param.name);
                        self.error(PlanCode::Argument, &node.name, message);
                        continue;
                    }
                    let touch = Touch {
                        node: index,
                        buffer: *buffer,
                        start: 0,
                        end: prefix.unwrap_or(len),
                        reads: param.access != Access::Output && param.access != Access::Scratch,
                        writes: param.access.is_writable(),
                        // What a kernel leaves in scratch memory means nothing to others.
                        fills: param.access != Access::Scratch,
                        is_static: param.access == Access::Static,
                        settled: param.settled && signature.starts_early,
                    };
                    self.buffer_argument(node, kernel, args, param, touch, touches);
                }
                ArgumentValue::Scalar(value) => self.scalar_argument(node, param, &[*value], None),
                ArgumentValue::Scalars(values) => {
                    self.scalar_argument(node, param, values, Some(self.plan.ranks));
                }
            }
        }
    }

    fn scalar_argument(
        &mut self,
        node: &Node,
        param: &ParamSpec,
        values: &[Scalar],
        ranks: Option<u32>,
    ) {
        let count = ranks.map_or(1, |r| r as usize);
        let fits = param.access == Access::Scalar
            && values.len() == count
            && values.iter().all(|v| v.dtype() == param.dtype);
        if !fits {
            let message = format!(
                "`{}` is {} of {}; it gets {} scalars of {}",
                param.name,
                param.access,
                param.dtype,
                values.len(),
                values.first().map_or(DType::I32, |v| v.dtype())
            );
            self.error(PlanCode::Argument, &node.name, message);
        }
    }

    fn buffer_argument(
        &mut self,
        node: &Node,
        kernel: &KernelKey,
        args: &[Argument],
        param: &ParamSpec,
        touch: Touch,
        touches: &mut Vec<Touch>,
    ) {
        let buffer = self.buffer(touch.buffer);
        let mut wanted = Some(1u64);
        for extent in &param.shape {
            let extent = match extent {
                ExtentSpec::Const(extent) => Some(*extent),
                // An extent is the same on every rank.
                ExtentSpec::Scalar(name) => integers(args, name)
                    .filter(|(least, greatest)| least == greatest)
                    .and_then(|(value, _)| u64::try_from(value).ok()),
            };
            wanted = wanted.zip(extent).and_then(|(n, e)| n.checked_mul(e));
        }
        let len = buffer.elements().unwrap_or(0);
        if param.access == Access::Scalar || buffer.dtype != param.dtype || wanted != Some(len) {
            let wanted = wanted.map_or("an unknown number of".to_owned(), |n| n.to_string());
            let message = format!(
                "`{}` of {kernel} is {} {wanted} elements of {}; `{}` has {len} of {}",
                param.name, param.access, param.dtype, buffer.name, buffer.dtype
            );
            self.error(PlanCode::Argument, &node.name, message);
            return;
        }
        let twice = args.iter().any(|other| {
            other.param != param.name
                && matches!(other.value, ArgumentValue::Buffer { buffer, .. } if buffer == touch.buffer)
        });
        if twice && touch.writes {
            let message =
                format!("`{}` is written and given to two parameters of {kernel}", buffer.name);
            self.error(PlanCode::Race, &node.name, message);
        }
        touches.push(touch);
    }

    fn memory(&mut self, touches: &[Touch]) {
        let order = Order::of(self.plan);
        let mut of_buffer: Vec<Vec<&Touch>> = vec![Vec::new(); self.plan.buffers.len()];
        for touch in touches {
            of_buffer[touch.buffer.index()].push(touch);
        }
        for (buffer, touches) in self.plan.buffers.iter().zip(&of_buffer) {
            for touch in touches {
                self.touch(buffer, touch, touches, &order);
            }
        }
    }

    fn touch(&mut self, buffer: &PlanBuffer, touch: &Touch, all: &[&Touch], order: &Order) {
        let name = &self.plan.nodes[touch.node].name;
        let is_weight = buffer.role == BufferRole::Weight;
        if touch.is_static && !is_weight {
            let message = format!("`{}` is `static` here, but no weight", buffer.name);
            self.error(PlanCode::StaticWritten, name, message);
        }
        if touch.writes && (is_weight || matches!(buffer.role, BufferRole::Host { .. })) {
            let message = format!("`{}` is written, but it belongs to the host", buffer.name);
            self.error(PlanCode::StaticWritten, name, message);
        }
        for other in all.iter().filter(|other| other.node < touch.node) {
            let conflict = (touch.writes || other.writes)
                && touch.start < other.end
                && other.start < touch.end;
            if conflict && !order.is_before(other.node, touch.node) {
                let message = format!(
                    "`{}` is touched by `{}` too, one of them writes, and nothing orders them",
                    buffer.name, self.plan.nodes[other.node].name
                );
                self.error(PlanCode::Race, name, message);
            }
        }
        if touch.reads && buffer.role == BufferRole::Step {
            let mut written = Ranges::default();
            for other in all {
                if other.writes
                    && other.fills
                    && other.node != touch.node
                    && order.is_before(other.node, touch.node)
                {
                    written.add(other.start, other.end);
                }
            }
            if let Some(missing) = written.first_missing(touch.start, touch.end) {
                let message =
                    format!("element {missing} of `{}` is read before it is written", buffer.name);
                self.error(PlanCode::ReadBeforeWrite, name, message);
            }
        }
    }

    /// Contracts of what is read against promises of what is written.
    fn contracts(&mut self) {
        // A state may hold what any node of an earlier step wrote, so promises are collected until nothing is
        // new before they are judged.
        let mut states = vec![Vec::new(); self.plan.buffers.len()];
        loop {
            let promises = self.promises(&states, false);
            let of_state =
                |(buffer, promises): (&PlanBuffer, Vec<Option<Promise>>)| match buffer.role {
                    BufferRole::State => promises,
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
                BufferRole::State => {
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

    fn buffers_of(&self, kernel: &KernelKey, args: &[Argument]) -> Vec<(&'p ParamSpec, BufferId)> {
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

    /// A settled buffer must not be written by the launch right before: that one may still run. The first launch
    /// of a step follows the last one of the step before.
    fn settled(&mut self, touches: &[Touch]) {
        let count = self.plan.nodes.len();
        for touch in touches.iter().filter(|touch| touch.settled) {
            let before = (touch.node + count - 1) % count;
            let written = touches
                .iter()
                .any(|other| other.node == before && other.buffer == touch.buffer && other.writes);
            if written {
                let message = format!(
                    "`{}` is settled here, but `{}`, which may still run, writes it",
                    self.buffer(touch.buffer).name,
                    self.plan.nodes[before].name
                );
                self.error(PlanCode::Settled, &self.plan.nodes[touch.node].name, message);
            }
        }
    }
}

/// Adds a promise that is not there yet.
fn add(promises: &mut Vec<Option<Promise>>, promise: Option<Promise>) {
    if !promises.contains(&promise) {
        promises.push(promise);
    }
}

fn is_summed(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::Bf16)
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

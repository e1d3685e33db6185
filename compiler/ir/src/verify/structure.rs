//! The kernel is well formed: definitions before uses, shapes and dtypes that agree.
//!
//! Guarantees what every later stage takes for granted. A finding is a fault of the compiler, not of the
//! author: sema has already judged the source.

use kernel_abi::DType;
use kernel_dsl::diag::{Code, Diagnostic, Sink};
use kernel_dsl::source::Span;

use crate::distribution::LANES;
use crate::index::{Id, IndexVec};
use crate::kernel::{
    AxisIndex, Kernel, LeftOperand, Op, Outgoing, ParamId, PipeOp, PrefetchRange, RoleId,
    SCALE_GROUP, SlicePart, Start, Stmt, StmtKind, Storage, TENSOR_WARPS, Tensor, TensorAtom,
    TileAccess, ValueId, Warpgroup, WarpgroupMma, Word,
};
use crate::ops::{AtomicOp, inline, multimem};

pub(super) fn check(kernel: &Kernel, sink: &mut Sink) {
    let mut walk = Walk {
        kernel,
        warps: kernel.launch.warps,
        in_role: false,
        defined: kernel.values.iter().map(|_| false).collect(),
        sink,
    };
    for value in kernel.values.iter() {
        let spread = value.distribution.shape();
        if spread != value.shape {
            walk.fault(
                value.span,
                format!("a tile of shape {:?} is spread as {spread:?}", value.shape),
            );
        }
    }
    for var in kernel.vars.iter() {
        if var.distribution.shape() != var.shape {
            walk.fault(var.span, format!("tile `{}` is spread in another shape", var.name));
        }
    }
    walk.block(&kernel.body);
}

struct Walk<'a> {
    kernel: &'a Kernel,
    /// Warps that run the statements.
    warps: u32,
    in_role: bool,
    defined: IndexVec<ValueId, bool>,
    sink: &'a mut Sink,
}

impl Walk<'_> {
    /// Checks a block; what it defines is not visible after it.
    fn block(&mut self, stmts: &[Stmt]) {
        let outer = self.defined.clone();
        for stmt in stmts {
            self.stmt(stmt);
        }
        self.defined = outer;
    }

    fn stmt(&mut self, stmt: &Stmt) {
        let span = stmt.span;
        match &stmt.kind {
            StmtKind::Def { results, op } => {
                self.op(span, results, op);
                for &r in results {
                    if self.kernel.values[r].distribution.warps != self.warps {
                        self.fault(span, format!("{r} is spread over the warps of others"));
                    }
                    if std::mem::replace(&mut self.defined[r], true) {
                        self.fault(span, format!("{r} is defined twice"));
                    }
                }
            }
            StmtKind::SetVar { var, slot, value } => {
                self.uses(span, &[*value]);
                let (var, value) = (&self.kernel.vars[*var], &self.kernel.values[*value]);
                let same = var.dtype == value.dtype
                    && var.shape == value.shape
                    && var.distribution == value.distribution;
                if !same || *slot >= var.slots {
                    self.fault(
                        span,
                        format!("tile `{}` takes a value that does not fit", var.name),
                    );
                }
            }
            StmtKind::Store { value, access, .. } => {
                self.uses(span, &[*value]);
                self.multicast(access, false);
                self.access(access, &self.kernel.values[*value].shape.clone());
                if self.kernel.values[*value].dtype != self.kernel.dtype_of(access.storage) {
                    self.fault(span, "a store converts".to_owned());
                }
            }
            StmtKind::Prefetch { what, .. } => match what {
                PrefetchRange::Tile(access) | PrefetchRange::Box(access) => {
                    let shape = access_shape(self.kernel, access);
                    self.access(access, &shape);
                }
                PrefetchRange::Elements { start, end, .. } => self.uses(span, &[*start, *end]),
            },
            StmtKind::Advance { word } => self.word(word),
            StmtKind::Signal(signal) => {
                self.uses(signal.span, &signal.index);
                self.uses(signal.span, signal.to.as_slice());
                self.flag(signal.param, signal.index.len(), signal.span);
            }
            StmtKind::Await(wait) => {
                let used: Vec<ValueId> = wait.index.iter().copied().flatten().collect();
                self.uses(wait.span, &used);
                self.uses(wait.span, &[wait.until]);
                self.flag(wait.param, wait.index.len(), wait.span);
            }
            StmtKind::CopyAsync { source, dest, .. } => {
                let shape = access_shape(self.kernel, source);
                self.access(source, &shape);
                self.access(dest, &shape);
                let [from, to] = [source, dest].map(|a| self.kernel.dtype_of(a.storage));
                if from != to || source.storage.param().is_none() || dest.storage.param().is_some()
                {
                    self.fault(span, "a copy between memories that do not fit".to_owned());
                }
            }
            StmtKind::Outgoing(op) => self.outgoing(span, op),
            StmtKind::Settle { storage, .. } => {
                let slot: Vec<ValueId> = storage.slot().into_iter().collect();
                self.uses(span, &slot);
            }
            StmtKind::Warpgroup(Warpgroup::Mma(mma)) => self.product(span, mma),
            StmtKind::Warpgroup(Warpgroup::Settle { var, slot, .. }) => {
                if *slot >= self.kernel.vars[*var].slots {
                    self.fault(span, "a settle of a slot that is not there".to_owned());
                }
            }
            StmtKind::Tensor(op) => self.tensor(span, op),
            StmtKind::Warpgroup(Warpgroup::Commit)
            | StmtKind::EmptyGroup
            | StmtKind::Sync
            | StmtKind::SyncCluster
            | StmtKind::SyncRole
            | StmtKind::GridWait
            | StmtKind::GridLaunch => {}
            StmtKind::Assert { cond, .. } => {
                self.uses(span, &[*cond]);
                self.scalar_bool(span, *cond);
            }
            StmtKind::Trace { event } => {
                if self.kernel.events.len() <= *event as usize {
                    self.fault(span, "an event without a text".to_owned());
                }
            }
            StmtKind::Printf { args, .. } => self.uses(span, args),
            StmtKind::For { var, start, end, step, tickets, body } => {
                self.uses(span, &[*start, *end]);
                tickets.iter().for_each(|word| self.word(word));
                if *step == 0 {
                    self.fault(span, "a loop of step 0".to_owned());
                }
                let before = std::mem::replace(&mut self.defined[*var], true);
                self.block(body);
                self.defined[*var] = before;
            }
            StmtKind::Pipe(op) => self.pipe(span, op),
            StmtKind::Role { role, body } => self.role(span, *role, body),
            StmtKind::If { cond, then_body, else_body } => {
                self.uses(span, &[*cond]);
                self.scalar_bool(span, *cond);
                self.block(then_body);
                self.block(else_body);
            }
        }
    }

    fn outgoing(&mut self, span: Span, op: &Outgoing) {
        let mut used = Vec::new();
        op.each_use(|value| used.push(value));
        self.uses(span, &used);
        if let Outgoing::Copy { source, dest, .. } = op {
            let shape = access_shape(self.kernel, source);
            self.access(source, &shape);
            self.access(dest, &shape);
            let [from, to] = [source, dest].map(|a| self.kernel.dtype_of(a.storage));
            let fits = matches!(source.storage, Storage::Smem(..))
                && matches!(dest.storage, Storage::Buffer(_));
            if from != to || !fits {
                self.fault(span, "a copy between memories that do not fit".to_owned());
            }
        }
    }

    fn product(&mut self, span: Span, mma: &WarpgroupMma) {
        let var = &self.kernel.vars[mma.var];
        let (left, left_type) = match &mma.a {
            LeftOperand::Shared(access) => {
                (access_shape(self.kernel, access), self.kernel.dtype_of(access.storage))
            }
            LeftOperand::Registers(value) => {
                self.uses(span, &[*value]);
                let value = &self.kernel.values[*value];
                (value.shape.clone(), value.dtype)
            }
        };
        let mut right = access_shape(self.kernel, &mma.b);
        if mma.across {
            right.reverse();
        }
        let shapes = [left, right];
        let dtypes = [left_type, self.kernel.dtype_of(mma.b.storage)];
        let fits = match (shapes[0].as_slice(), shapes[1].as_slice(), var.shape.as_slice()) {
            ([m, k], [n, depth], [rows, columns]) => {
                k == depth && (m, n) == (rows, columns) && k.is_multiple_of(mma.atom.depth())
            }
            (_, _, _) => false,
        };
        let types = var.dtype == DType::F32 && dtypes == mma.atom.types;
        if !fits || !types || mma.slot >= var.slots {
            self.fault(span, "a product whose operands do not agree".to_owned());
        }
        for access in mma.reads() {
            self.access(access, &access_shape(self.kernel, access));
        }
        if let Start::When(cond) = mma.start {
            self.uses(span, &[cond]);
            self.scalar_bool(span, cond);
        }
    }

    fn tensor(&mut self, span: Span, op: &Tensor) {
        match op {
            Tensor::Mma(mma) => {
                let accesses = [&mma.acc, &mma.a, &mma.b];
                let shapes = accesses.map(|access| access_shape(self.kernel, access));
                let dtypes = [&mma.a, &mma.b].map(|access| self.kernel.dtype_of(access.storage));
                let fits = match (shapes[0].as_slice(), shapes[1].as_slice(), shapes[2].as_slice())
                {
                    ([rows, columns], [m, k], [n, depth]) => {
                        k == depth
                            && m == rows
                            && *n == columns / mma.atom.ctas()
                            && *m == mma.atom.own_rows()
                            && (!mma.atom.folds() || *columns == mma.atom.n)
                            && mma.acc.storage.tile().is_some_and(|(tile, _)| {
                                self.kernel.smem[tile].shape.first() == Some(rows)
                            })
                            && columns.is_multiple_of(mma.atom.n)
                            && k.is_multiple_of(mma.atom.stored_depth())
                    }
                    (_, _, _) => false,
                };
                let atom = mma.atom;
                let left_in_tensor = self.is_tensor(&mma.a);
                let may_be = !atom.pair && !atom.scaled && atom.m == TensorAtom::ROWS;
                let may_be = may_be && atom.types[0].bits() == 16;
                let lies = self.is_tensor(&mma.acc)
                    && self.kernel.dtype_of(mma.acc.storage) == DType::F32
                    && (!left_in_tensor || may_be)
                    && !self.is_tensor(&mma.b);
                let depth = shapes[1].last().map_or(0, |k| k * mma.atom.packing());
                let groups = depth / SCALE_GROUP;
                // Of a pair each CTA has the scales of its own rows, and of all columns.
                let scaled = mma.scales.iter().flatten().zip(&shapes[0]).all(|(scales, rows)| {
                    access_shape(self.kernel, scales) == [*rows, groups]
                        && self.kernel.dtype_of(scales.storage) == DType::Ue8m0
                        && !self.is_tensor(scales)
                });
                let scaled = scaled && mma.scales.is_some() == mma.atom.scaled;
                if !fits || !scaled || !lies || dtypes != mma.atom.stored() || !self.in_role {
                    self.fault(span, "a product whose operands do not agree".to_owned());
                }
                for (access, shape) in accesses.into_iter().zip(&shapes) {
                    self.access(access, shape);
                }
                for scales in mma.scales.iter().flatten() {
                    self.access(scales, &access_shape(self.kernel, scales));
                }
                if let Start::When(cond) = mma.start {
                    self.uses(span, &[cond]);
                    self.scalar_bool(span, cond);
                }
            }
            Tensor::Load { var, slot, access } => {
                let shape = access_shape(self.kernel, access);
                let declared = &self.kernel.vars[*var];
                let fits = declared.shape == shape
                    && *slot < declared.slots
                    && declared.distribution.warps == self.warps
                    && (self.warps.is_multiple_of(TENSOR_WARPS)
                        || shape.first() == Some(&(self.warps * LANES)));
                if !fits || !self.is_tensor(access) || !self.in_role {
                    self.fault(span, "a load from tensor memory that does not fit".to_owned());
                }
                self.access(access, &shape);
            }
            Tensor::Store { value, access } => {
                let shape = access_shape(self.kernel, access);
                let stored = &self.kernel.values[*value];
                let fits = stored.shape == shape
                    && stored.dtype == self.kernel.dtype_of(access.storage)
                    && stored.dtype.bits() == 16
                    && self.warps.is_multiple_of(TENSOR_WARPS);
                self.uses(span, &[*value]);
                if !fits || !self.is_tensor(access) || !self.in_role {
                    self.fault(span, "a store to tensor memory that does not fit".to_owned());
                }
                self.access(access, &shape);
            }
            Tensor::Settle { var, slot } => {
                if *slot >= self.kernel.vars[*var].slots {
                    self.fault(span, "a settle of a slot that is not there".to_owned());
                }
            }
        }
    }

    fn is_tensor(&self, access: &TileAccess) -> bool {
        let tile = access.storage.tile().and_then(|(tile, _)| self.kernel.smem.get(tile));
        tile.is_some_and(|tile| tile.is_tensor())
    }

    fn pipe(&mut self, span: Span, op: &PipeOp) {
        let (barrier, at) = op.place();
        self.uses(span, &[at]);
        if self.kernel.barriers.get(barrier).is_none() || !self.in_role {
            self.fault(span, format!("{barrier} is no barrier here"));
        }
        if let PipeOp::Copy { source, dest, .. } = op {
            let shape = access_shape(self.kernel, source);
            self.access(source, &shape);
            self.access(dest, &shape);
        } else if let PipeOp::Send { value, dest, .. } = op {
            self.uses(span, &[*value]);
            let shape = self.kernel.values[*value].shape.clone();
            self.access(dest, &shape);
        }
    }

    /// Checks the statements of a role: its tiles are spread over its warps.
    fn role(&mut self, span: Span, role: RoleId, body: &[Stmt]) {
        let Some(declared) = self.kernel.roles.get(role) else {
            return self.fault(span, format!("{role} is not declared"));
        };
        if self.warps != self.kernel.launch.warps || self.in_role {
            self.fault(span, "a role inside of a role".to_owned());
        }
        let outer = std::mem::replace(&mut self.warps, declared.warps);
        self.in_role = true;
        self.block(body);
        self.in_role = false;
        self.warps = outer;
    }

    fn op(&mut self, span: Span, results: &[ValueId], op: &Op) {
        self.uses(span, &operands(op));
        let [result, ..] = results else {
            self.fault(span, "a definition without a result".to_owned());
            return;
        };
        let value = |v: ValueId| &self.kernel.values[v];
        let shape = value(*result).shape.clone();
        let fits = match op {
            Op::Const(_) | Op::CtaIndex(_) | Op::ClusterIndex(_) | Op::ScalarParam(_) => {
                shape.is_empty()
            }
            Op::Unary { x, .. } | Op::Convert { x } | Op::Relayout { x } => {
                value(*x).shape == shape
            }
            Op::Binary { a, b, .. } => {
                value(*a).dtype == value(*b).dtype
                    && broadcast(&[&value(*a).shape, &value(*b).shape]).as_ref() == Some(&shape)
            }
            Op::Compare { a, b, .. } => {
                value(*result).dtype == DType::Bool
                    && value(*a).dtype == value(*b).dtype
                    && broadcast(&[&value(*a).shape, &value(*b).shape]).as_ref() == Some(&shape)
            }
            Op::Select { cond, a, b } => {
                value(*cond).dtype == DType::Bool
                    && broadcast(&[&value(*cond).shape, &value(*a).shape, &value(*b).shape])
                        .as_ref()
                        == Some(&shape)
            }
            Op::Fma { a, b, c } => {
                broadcast(&[&value(*a).shape, &value(*b).shape, &value(*c).shape]).as_ref()
                    == Some(&shape)
            }
            Op::Inline { text, equals, inputs } => {
                let all = std::iter::once(equals).chain(inputs);
                let shapes: Vec<&Vec<u32>> = all.clone().map(|&x| &value(x).shape).collect();
                let types: Vec<DType> = all.map(|&x| value(x).dtype).collect();
                broadcast(&shapes).as_ref() == Some(&shape)
                    && value(*result).dtype == value(*equals).dtype
                    && inline::read(text, &types).is_ok()
            }
            Op::Iota => shape.len() == 1,
            Op::Splat { x } => value(*x).is_scalar(),
            Op::Expand { x, axes } => {
                let old: Vec<u32> = axes
                    .iter()
                    .map(|a| {
                        a.map_or(1, |a| value(*x).shape.get(usize::from(a)).copied().unwrap_or(0))
                    })
                    .collect();
                old == shape
            }
            Op::Load { access, .. } => {
                self.multicast(access, true);
                self.access(access, &shape);
                value(*result).dtype == self.kernel.dtype_of(access.storage)
            }
            Op::ReadVar { var, slot } => {
                let var = &self.kernel.vars[*var];
                var.shape == shape
                    && *slot < var.slots
                    && var.distribution == value(*result).distribution
            }
            Op::Reduce { x, axis, .. } | Op::Argmax { x, axis } => {
                let mut kept = value(*x).shape.clone();
                let axis = usize::from(*axis);
                axis < kept.len() && {
                    kept.remove(axis);
                    results.iter().all(|r| value(*r).shape == kept)
                        && value(*result).distribution == value(*x).distribution.without(axis)
                }
            }
            Op::ArriveLast { word, count } => {
                self.word(word);
                shape.is_empty() && value(*result).dtype == DType::Bool && *count > 0
            }
            Op::Atomic { value: by, access, .. } => {
                self.access(access, &[]);
                shape.is_empty()
                    && value(*by).shape.is_empty()
                    && value(*by).dtype == value(*result).dtype
                    && AtomicOp::takes(value(*by).dtype)
                    && self.kernel.dtype_of(access.storage) == value(*by).dtype
            }
            Op::Scan { x, axis, .. } => {
                usize::from(*axis) < shape.len()
                    && value(*x).shape == shape
                    && value(*x).dtype == value(*result).dtype
                    && value(*x).distribution == value(*result).distribution
            }
            Op::Slice { x, parts } => {
                let source = &value(*x).shape;
                let inside = |(part, &extent): (&SlicePart, &u32)| {
                    let end = part.start.checked_add(part.len.unwrap_or(1));
                    end.is_some_and(|end| end <= extent)
                };
                parts.len() == source.len()
                    && parts.iter().zip(source).all(inside)
                    && parts.iter().filter_map(|part| part.len).eq(shape.iter().copied())
                    && value(*result).dtype == value(*x).dtype
            }
            Op::Concat { a, b, axis } => {
                let axis = usize::from(*axis);
                let (first, second) = (&value(*a).shape, &value(*b).shape);
                axis < shape.len() && first.len() == second.len() && {
                    let mut joined = first.clone();
                    let mut rest = second.clone();
                    joined[axis] = first[axis].saturating_add(second[axis]);
                    rest[axis] = joined[axis];
                    joined == shape
                        && rest == shape
                        && value(*a).dtype == value(*result).dtype
                        && value(*b).dtype == value(*result).dtype
                }
            }
            Op::Contract { spec, a, b, acc } | Op::Mma { spec, a, b, acc } => {
                spec.a.len() == value(*a).shape.len()
                    && spec.b.len() == value(*b).shape.len()
                    && spec.out.len() == shape.len()
                    && acc.is_none_or(|acc| value(acc).shape == shape)
            }
        };
        if !fits {
            self.fault(span, format!("operands of {result} do not agree: {op:?}"));
        }
    }

    /// A load at a multicast address folds, and a store does not.
    fn multicast(&mut self, access: &TileAccess, is_load: bool) {
        let Storage::Multicast(memory, fold) = access.storage else { return };
        let dtype = self.kernel.params[memory].dtype;
        let fits = match fold {
            Some(fold) => is_load && multimem::folds(fold, dtype),
            None => !is_load && multimem::stores(dtype),
        };
        if !fits || self.kernel.window_of(memory).is_none() {
            self.fault(access.span, "an access that no multicast address has".to_owned());
        }
    }

    fn access(&mut self, access: &TileAccess, shape: &[u32]) {
        let used: Vec<ValueId> = access_operands(access).collect();
        self.uses(access.span, &used);
        let indices = access.index.iter().filter(|i| !matches!(i, AxisIndex::New)).count();
        let mut gathered = None;
        for index in &access.index {
            match index {
                AxisIndex::Gather(tile) if gathered.is_none() => gathered = Some(*tile),
                AxisIndex::Along(tile)
                    if gathered.is_some_and(|first| {
                        self.kernel.values[first].distribution
                            == self.kernel.values[*tile].distribution
                    }) => {}
                AxisIndex::Gather(_) | AxisIndex::Along(_) => {
                    let message = "index tiles of one access do not go together".to_owned();
                    self.fault(access.span, message);
                }
                AxisIndex::At(_) | AxisIndex::Range { .. } | AxisIndex::New => {}
            }
        }
        if indices != access.axes.len() || access_shape(self.kernel, access) != shape {
            self.fault(access.span, "an access has another shape than its tile".to_owned());
        }
    }

    fn uses(&mut self, span: Span, values: &[ValueId]) {
        for &v in values {
            if v.index() >= self.kernel.values.len() || !self.defined[v] {
                self.fault(span, format!("{v} is used before it is defined"));
            }
        }
    }

    fn word(&mut self, word: &Word) {
        self.uses(word.span, &[word.index]);
        let (param, index) = (&self.kernel.params[word.param], &self.kernel.values[word.index]);
        if param.words.is_none() || param.shape.len() != 1 || !index.is_scalar() {
            self.fault(word.span, "a word of no counter and no epoch".to_owned());
        }
    }

    fn flag(&mut self, param: ParamId, rank: usize, span: Span) {
        let declared = &self.kernel.params[param];
        if !declared.is_raised() || declared.shape.len() != rank {
            self.fault(span, "a word of no flags".to_owned());
        }
    }

    fn scalar_bool(&mut self, span: Span, v: ValueId) {
        let value = &self.kernel.values[v];
        if !value.is_scalar() || value.dtype != DType::Bool {
            self.fault(span, "a condition that is no bool scalar".to_owned());
        }
    }

    fn fault(&mut self, span: Span, message: String) {
        self.sink.push(
            Diagnostic::error(Code::E0810, "the kernel IR is malformed").label(span, message),
        );
    }
}

/// Values that an operation reads, access operands included.
pub(super) fn operands(op: &Op) -> Vec<ValueId> {
    match op {
        Op::Const(_)
        | Op::CtaIndex(_)
        | Op::ClusterIndex(_)
        | Op::ScalarParam(_)
        | Op::Iota
        | Op::ReadVar { .. } => Vec::new(),
        Op::Unary { x, .. }
        | Op::Convert { x }
        | Op::Splat { x }
        | Op::Expand { x, .. }
        | Op::Reduce { x, .. }
        | Op::Argmax { x, .. }
        | Op::Relayout { x }
        | Op::Scan { x, .. }
        | Op::Slice { x, .. } => vec![*x],
        Op::Binary { a, b, .. } | Op::Compare { a, b, .. } | Op::Concat { a, b, .. } => {
            vec![*a, *b]
        }
        Op::Select { cond, a, b } => vec![*cond, *a, *b],
        Op::Fma { a, b, c } => vec![*a, *b, *c],
        Op::Inline { text: _, equals, inputs } => {
            std::iter::once(*equals).chain(inputs.iter().copied()).collect()
        }
        Op::ArriveLast { word, .. } => vec![word.index],
        Op::Atomic { value, access, .. } => {
            access_operands(access).chain(std::iter::once(*value)).collect()
        }
        Op::Contract { a, b, acc, .. } | Op::Mma { a, b, acc, .. } => {
            [*a, *b].into_iter().chain(*acc).collect()
        }
        Op::Load { access, other, .. } => access_operands(access).chain(*other).collect(),
    }
}

fn access_operands(access: &TileAccess) -> impl Iterator<Item = ValueId> + '_ {
    let chosen = access.storage.slot().into_iter().chain(access.storage.rank());
    access.index.iter().flat_map(index_operands).chain(chosen)
}

fn index_operands(index: &AxisIndex) -> Vec<ValueId> {
    match index {
        AxisIndex::At(at) => vec![*at],
        AxisIndex::Range { start, until, .. } => std::iter::once(*start).chain(*until).collect(),
        AxisIndex::Gather(tile) | AxisIndex::Along(tile) => vec![*tile],
        AxisIndex::New => Vec::new(),
    }
}

/// Shape of the tile that an access makes.
pub(super) fn access_shape(kernel: &Kernel, access: &TileAccess) -> Vec<u32> {
    access
        .index
        .iter()
        .filter_map(|index| match index {
            AxisIndex::At(_) | AxisIndex::Along(_) => None,
            AxisIndex::Range { len, .. } => Some(*len),
            AxisIndex::Gather(tile) => kernel.values[*tile].shape.first().copied(),
            AxisIndex::New => Some(1),
        })
        .collect()
}

/// The numpy broadcast of shapes, if there is one.
fn broadcast(shapes: &[&Vec<u32>]) -> Option<Vec<u32>> {
    let rank = shapes.iter().map(|s| s.len()).max()?;
    (0..rank)
        .map(|i| {
            let extents = shapes
                .iter()
                .filter_map(|s| (i + s.len()).checked_sub(rank).map(|at| s[at]))
                .filter(|e| *e != 1);
            let mut extent = 1;
            for e in extents {
                if extent != 1 && extent != e {
                    return None;
                }
                extent = e;
            }
            Some(extent)
        })
        .collect()
}

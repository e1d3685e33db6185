//! Kernels built by hand, for the tests of this crate.

use std::sync::Arc;

use kernel_abi::{Access, DType};
use kernel_dsl::source::{FileId, Span};
use proptest::prelude::*;

use crate::distribution::{AxisMap, Digit, Distribution};
use crate::index::IndexVec;
use crate::kernel::{
    AxisIndex, CachePolicy, ContractSpec, Extent, Kernel, Launch, Literal, Op, Param, ParamId, Pdl,
    Stmt, StmtKind, Storage, TileAccess, Value, ValueId, Var, VarId, ViewAxis, ViewDigit,
};
use crate::ops::{BinaryOp, CompareOp, ReduceOp, UnaryOp};
use crate::target::Target;

/// Builds a kernel statement by statement; every value gets a span of its own.
pub(crate) struct Sample {
    pub(crate) kernel: Kernel,
    blocks: Vec<Vec<Stmt>>,
    at: u32,
}

impl Sample {
    pub(crate) fn new(warps: u32, grid: u32) -> Sample {
        let launch = Launch {
            grid: [grid, 1, 1],
            cluster: [1, 1, 1],
            warps,
            pdl: Pdl::None,
            min_ctas: None,
            world: None,
            resident: false,
        };
        let kernel = Kernel {
            name: "sample".into(),
            export: "sample".into(),
            bindings: Vec::new(),
            target: Target::Sm90a,
            launch,
            params: IndexVec::new(),
            values: IndexVec::new(),
            vars: IndexVec::new(),
            smem: IndexVec::new(),
            roles: IndexVec::new(),
            barriers: IndexVec::new(),
            events: Vec::new(),
            body: Vec::new(),
            waivers: Vec::new(),
            span: Span::default(),
        };
        Sample { kernel, blocks: vec![Vec::new()], at: 0 }
    }

    pub(crate) fn span(&mut self) -> Span {
        self.at += 1;
        Span::new(FileId(0), self.at, self.at + 1)
    }

    pub(crate) fn param(
        &mut self,
        name: &str,
        access: Access,
        dtype: DType,
        shape: &[u32],
    ) -> ParamId {
        let span = self.span();
        self.kernel.params.push(Param {
            name: name.into(),
            access,
            settled: false,
            words: None,
            dtype,
            shape: shape.iter().map(|&e| Extent::Const(e)).collect(),
            stored: None,
            scaled: None,
            of: None,
            contract: None,
            span,
        })
    }

    pub(crate) fn input(&mut self, name: &str, dtype: DType, shape: &[u32]) -> ParamId {
        self.param(name, Access::Input, dtype, shape)
    }

    pub(crate) fn output(&mut self, name: &str, dtype: DType, shape: &[u32]) -> ParamId {
        self.param(name, Access::Output, dtype, shape)
    }

    pub(crate) fn var(&mut self, name: &str, dtype: DType, shape: &[u32], slots: u32) -> VarId {
        let span = self.span();
        self.kernel.vars.push(Var {
            name: name.into(),
            dtype,
            shape: shape.to_vec(),
            slots,
            spread: None,
            via_mma: false,
            distribution: Distribution::scalar(self.kernel.launch.warps),
            span,
        })
    }

    pub(crate) fn value(&mut self, dtype: DType, shape: &[u32]) -> ValueId {
        let span = self.span();
        self.kernel.values.push(Value {
            dtype,
            shape: shape.to_vec(),
            distribution: Distribution::scalar(self.kernel.launch.warps),
            name: None,
            span,
        })
    }

    pub(crate) fn stmt(&mut self, kind: StmtKind) {
        let span = self.span();
        self.blocks.last_mut().unwrap().push(Stmt { kind, span });
    }

    pub(crate) fn open(&mut self) {
        self.blocks.push(Vec::new());
    }

    pub(crate) fn close(&mut self) -> Vec<Stmt> {
        self.blocks.pop().unwrap()
    }

    pub(crate) fn def(&mut self, dtype: DType, shape: &[u32], op: Op) -> ValueId {
        let result = self.value(dtype, shape);
        self.stmt(StmtKind::Def { results: vec![result], op });
        result
    }

    pub(crate) fn int(&mut self, value: i64) -> ValueId {
        self.def(DType::I32, &[], Op::Const(Literal::Int(value)))
    }

    pub(crate) fn float(&mut self, value: f64) -> ValueId {
        self.def(DType::F32, &[], Op::Const(Literal::Float(value)))
    }

    pub(crate) fn cta(&mut self) -> ValueId {
        self.def(DType::I32, &[], Op::CtaIndex(0))
    }

    fn joined(&self, operands: &[ValueId]) -> (DType, Vec<u32>) {
        let shapes = operands.iter().map(|&x| &self.kernel.values[x].shape);
        let rank = shapes.clone().map(Vec::len).max().unwrap_or(0);
        let mut shape = vec![1; rank];
        for operand in shapes {
            for (back, &extent) in operand.iter().rev().enumerate() {
                if extent != 1 {
                    shape[rank - 1 - back] = extent;
                }
            }
        }
        (self.kernel.values[operands[0]].dtype, shape)
    }

    pub(crate) fn unary(&mut self, op: UnaryOp, x: ValueId) -> ValueId {
        let (dtype, shape) = self.joined(&[x]);
        self.def(dtype, &shape, Op::Unary { op, x })
    }

    pub(crate) fn binary(&mut self, op: BinaryOp, a: ValueId, b: ValueId) -> ValueId {
        let (dtype, shape) = self.joined(&[a, b]);
        self.def(dtype, &shape, Op::Binary { op, a, b })
    }

    pub(crate) fn compare(&mut self, op: CompareOp, a: ValueId, b: ValueId) -> ValueId {
        let (_, shape) = self.joined(&[a, b]);
        self.def(DType::Bool, &shape, Op::Compare { op, a, b })
    }

    pub(crate) fn convert(&mut self, dtype: DType, x: ValueId) -> ValueId {
        let (_, shape) = self.joined(&[x]);
        self.def(dtype, &shape, Op::Convert { x })
    }

    pub(crate) fn iota(&mut self, extent: u32) -> ValueId {
        self.def(DType::I32, &[extent], Op::Iota)
    }

    /// `x[_, :]` and the like: `true` stands for an axis of `x`.
    pub(crate) fn expand(&mut self, x: ValueId, kept: &[bool]) -> ValueId {
        let (dtype, old) = self.joined(&[x]);
        let mut next = 0;
        let axes: Vec<Option<u8>> = kept
            .iter()
            .map(|&keep| {
                keep.then(|| {
                    next += 1;
                    next - 1
                })
            })
            .collect();
        let shape: Vec<u32> = axes.iter().map(|a| a.map_or(1, |a| old[a as usize])).collect();
        self.def(dtype, &shape, Op::Expand { x, axes })
    }

    pub(crate) fn reduce(&mut self, op: ReduceOp, x: ValueId, axis: usize) -> ValueId {
        let (dtype, mut shape) = self.joined(&[x]);
        shape.remove(axis);
        self.def(dtype, &shape, Op::Reduce { op, x, axis: axis as u8 })
    }

    pub(crate) fn argmax(&mut self, x: ValueId, axis: usize) -> (ValueId, ValueId) {
        let (dtype, mut shape) = self.joined(&[x]);
        shape.remove(axis);
        let (value, index) = (self.value(dtype, &shape), self.value(DType::I32, &shape));
        let op = Op::Argmax { x, axis: axis as u8 };
        self.stmt(StmtKind::Def { results: vec![value, index], op });
        (value, index)
    }

    pub(crate) fn contract(
        &mut self,
        spec: &str,
        a: ValueId,
        b: ValueId,
        acc: Option<ValueId>,
    ) -> ValueId {
        let (left, out) = spec.split_once("->").unwrap();
        let (left, right) = left.split_once(',').unwrap();
        let letters = |s: &str| -> Vec<Arc<str>> { s.split_whitespace().map(Arc::from).collect() };
        let spec = ContractSpec { a: letters(left), b: letters(right), out: letters(out) };
        let extent = |letter: &Arc<str>| {
            let find = |names: &[Arc<str>], x: ValueId| {
                let at = names.iter().position(|l| l == letter)?;
                Some(self.kernel.values[x].shape[at])
            };
            find(&spec.a, a).or(find(&spec.b, b)).unwrap()
        };
        let shape: Vec<u32> = spec.out.iter().map(extent).collect();
        self.def(DType::F32, &shape, Op::Contract { spec, a, b, acc })
    }

    /// Axes of a row-major buffer.
    pub(crate) fn axes(&self, param: ParamId) -> Vec<ViewAxis> {
        let mut stride = 1i64;
        let mut axes = Vec::new();
        for &extent in self.kernel.params[param].shape.iter().rev() {
            let count = match extent {
                Extent::Const(c) => c,
                Extent::Scalar(_) => u32::MAX,
            };
            axes.insert(0, ViewAxis { extent, digits: vec![ViewDigit { extent: count, stride }] });
            stride *= i64::from(count);
        }
        axes
    }

    /// The last axis of a row-major buffer split as `(j k)` with `k` of extent `inner`.
    pub(crate) fn split_axes(&self, param: ParamId, inner: u32) -> Vec<ViewAxis> {
        let mut axes = self.axes(param);
        let Some(ViewAxis { extent: Extent::Const(extent), .. }) = axes.pop() else { panic!() };
        for (count, stride) in [(extent / inner, i64::from(inner)), (inner, 1)] {
            let digits = vec![ViewDigit { extent: count, stride }];
            axes.push(ViewAxis { extent: Extent::Const(count), digits });
        }
        axes
    }

    pub(crate) fn range(&mut self, start: ValueId, len: u32) -> AxisIndex {
        AxisIndex::Range { start, len, until: None }
    }

    pub(crate) fn full(&mut self, len: u32) -> AxisIndex {
        let start = self.int(0);
        self.range(start, len)
    }

    pub(crate) fn access(
        &mut self,
        param: ParamId,
        axes: Vec<ViewAxis>,
        index: Vec<AxisIndex>,
    ) -> TileAccess {
        TileAccess { storage: Storage::Buffer(param), axes, index, span: self.span() }
    }

    pub(crate) fn load_as(
        &mut self,
        param: ParamId,
        axes: Vec<ViewAxis>,
        index: Vec<AxisIndex>,
        other: Option<ValueId>,
    ) -> ValueId {
        let mut shape = Vec::new();
        for entry in &index {
            match entry {
                AxisIndex::At(_) | AxisIndex::Along(_) => {}
                AxisIndex::Range { len, .. } => shape.push(*len),
                AxisIndex::Gather(x) => shape.push(self.kernel.values[*x].shape[0]),
                AxisIndex::New => shape.push(1),
            }
        }
        let dtype = self.kernel.params[param].dtype;
        let access = self.access(param, axes, index);
        self.def(dtype, &shape, Op::Load { access, other, cache: CachePolicy::default() })
    }

    pub(crate) fn load(&mut self, param: ParamId, index: Vec<AxisIndex>) -> ValueId {
        let axes = self.axes(param);
        self.load_as(param, axes, index, None)
    }

    /// The whole buffer.
    pub(crate) fn load_all(&mut self, param: ParamId) -> ValueId {
        let index = self.whole(param);
        self.load(param, index)
    }

    pub(crate) fn whole(&mut self, param: ParamId) -> Vec<AxisIndex> {
        let shape = self.kernel.params[param].shape.clone();
        shape
            .iter()
            .map(|e| match e {
                Extent::Const(c) => self.full(*c),
                Extent::Scalar(_) => panic!("give a range"),
            })
            .collect()
    }

    pub(crate) fn store(&mut self, value: ValueId, param: ParamId, index: Vec<AxisIndex>) {
        let axes = self.axes(param);
        let access = self.access(param, axes, index);
        self.stmt(StmtKind::Store { value, access, update: None, cache: CachePolicy::default() });
    }

    pub(crate) fn set(&mut self, var: VarId, slot: u32, value: ValueId) {
        self.stmt(StmtKind::SetVar { var, slot, value });
    }

    pub(crate) fn read(&mut self, var: VarId, slot: u32) -> ValueId {
        let (dtype, shape) = (self.kernel.vars[var].dtype, self.kernel.vars[var].shape.clone());
        self.def(dtype, &shape, Op::ReadVar { var, slot })
    }

    /// The kernel without distributions.
    pub(crate) fn build(mut self) -> Kernel {
        self.kernel.body = self.blocks.pop().unwrap();
        assert!(self.blocks.is_empty());
        self.kernel
    }

    /// The kernel with distributions.
    pub(crate) fn finish(self) -> Kernel {
        let mut kernel = self.build();
        crate::infer::distribute(&mut kernel).unwrap();
        kernel
    }
}

/// The one-token GEMV of the language's sketch, unrolled: y[n] = W[n, k] x[k].
pub(crate) fn gemv(n: u32, k: u32, rows: u32, step: u32, ahead: u32) -> Kernel {
    let mut s = Sample::new(4, n / rows);
    s.kernel.launch.pdl = Pdl::Both;
    let w = s.param("W", Access::Static, DType::Bf16, &[n, k]);
    let x = s.input("x", DType::Bf16, &[k]);
    let y = s.output("y", DType::F32, &[n]);
    let (steps, j) = (k / step, step / 8);
    let ahead = ahead.min(steps);
    let w_ring = s.var("w", DType::Bf16, &[rows, j, 8], ahead);
    let x_ring = s.var("xs", DType::Bf16, &[j, 8], 2);
    let acc = s.var("acc", DType::F32, &[rows, j], 1);
    let (w_axes, x_axes) = (s.split_axes(w, 8), s.split_axes(x, 8));
    let (cta, extent) = (s.cta(), s.int(i64::from(rows)));
    let first = s.binary(BinaryOp::Mul, cta, extent);
    let load_w = |s: &mut Sample, step: u32| {
        let start = s.int(i64::from(step * j));
        let index = vec![s.range(first, rows), s.range(start, j), s.full(8)];
        let value = s.load_as(w, w_axes.clone(), index, None);
        s.set(w_ring, step % ahead, value);
    };
    let load_x = |s: &mut Sample, step: u32| {
        let start = s.int(i64::from(step * j));
        let index = vec![s.range(start, j), s.full(8)];
        let value = s.load_as(x, x_axes.clone(), index, None);
        s.set(x_ring, step % 2, value);
    };
    let zero = s.float(0.0);
    let zeros = s.def(DType::F32, &[rows, j], Op::Splat { x: zero });
    s.set(acc, 0, zeros);
    (0..ahead).for_each(|i| load_w(&mut s, i));
    s.stmt(StmtKind::GridWait);
    (0..steps.min(2)).for_each(|i| load_x(&mut s, i));
    for i in 0..steps {
        let running = s.read(acc, 0);
        let (wv, xv) = (s.read(w_ring, i % ahead), s.read(x_ring, i % 2));
        let (wf, xf) = (s.convert(DType::F32, wv), s.convert(DType::F32, xv));
        let sum = s.contract("r j k, j k -> r j", wf, xf, Some(running));
        s.set(acc, 0, sum);
        if i + 2 < steps {
            load_x(&mut s, i + 2);
        }
        if i + ahead < steps {
            load_w(&mut s, i + ahead);
        }
    }
    s.stmt(StmtKind::GridLaunch);
    let total = s.read(acc, 0);
    let reduced = s.reduce(ReduceOp::Add, total, 1);
    let index = vec![s.range(first, rows)];
    s.store(reduced, y, index);
    s.finish()
}

/// The AttnRes mix and RMSNorm of one token: nine sources, four sums over the row, one more after.
pub(crate) fn attn_res_norm(h: u32, nb: u32, warps: u32) -> Kernel {
    let mut s = Sample::new(warps, 1);
    s.kernel.launch.pdl = Pdl::Both;
    let wnp = s.param("wnp", Access::Static, DType::F32, &[h]);
    let gamma = s.param("gamma", Access::Static, DType::Bf16, &[h]);
    let blocks = s.input("blocks", DType::Bf16, &[nb, 1, h]);
    let p = s.input("p", DType::Bf16, &[1, h]);
    let out = s.output("out", DType::Bf16, &[1, h]);
    let (g, w) = (s.load_all(wnp), s.load_all(gamma));
    s.stmt(StmtKind::GridWait);
    let cta = s.cta();
    let index = vec![s.full(nb), AxisIndex::At(cta), s.full(h)];
    let vb = s.load(blocks, index);
    let vb = s.convert(DType::F32, vb);
    let index = vec![AxisIndex::At(cta), s.full(h)];
    let vp = s.load(p, index);
    let vp = s.convert(DType::F32, vp);
    s.stmt(StmtKind::GridLaunch);
    let (extent, tiny) = (s.float(f64::from(h)), s.float(1e-5));
    let score = |s: &mut Sample, v: ValueId, g: ValueId, axis: usize| {
        let product = s.binary(BinaryOp::Mul, v, g);
        let dot = s.reduce(ReduceOp::Add, product, axis);
        let square = s.binary(BinaryOp::Mul, v, v);
        let norm = s.reduce(ReduceOp::Add, square, axis);
        let mean = s.binary(BinaryOp::Div, norm, extent);
        let mean = s.binary(BinaryOp::Add, mean, tiny);
        let scale = s.unary(UnaryOp::Rsqrt, mean);
        s.binary(BinaryOp::Mul, dot, scale)
    };
    let g_row = s.expand(g, &[false, true]);
    let zb = score(&mut s, vb, g_row, 1);
    let zp = score(&mut s, vp, g, 0);
    let m = s.reduce(ReduceOp::Max, zb, 0);
    let m = s.binary(BinaryOp::Max, m, zp);
    let eb = s.binary(BinaryOp::Sub, zb, m);
    let eb = s.unary(UnaryOp::Exp, eb);
    let ep = s.binary(BinaryOp::Sub, zp, m);
    let ep = s.unary(UnaryOp::Exp, ep);
    let d = s.reduce(ReduceOp::Add, eb, 0);
    let d = s.binary(BinaryOp::Add, d, ep);
    let mixed = s.contract("s h, s -> h", vb, eb, None);
    let own = s.binary(BinaryOp::Mul, vp, ep);
    let mixed = s.binary(BinaryOp::Add, mixed, own);
    let mixed = s.binary(BinaryOp::Div, mixed, d);
    let square = s.binary(BinaryOp::Mul, mixed, mixed);
    let norm = s.reduce(ReduceOp::Add, square, 0);
    let r = s.unary(UnaryOp::Rsqrt, norm);
    let result = s.binary(BinaryOp::Mul, mixed, r);
    let w = s.convert(DType::F32, w);
    let result = s.binary(BinaryOp::Mul, result, w);
    let result = s.convert(DType::Bf16, result);
    let index = vec![AxisIndex::At(cta), s.full(h)];
    s.store(result, out, index);
    s.finish()
}

/// What a distribution of a tile of rank 2 over four warps is made from, see [`spread`].
pub(crate) type SpreadDraw = (usize, u32, u32, [usize; 2], u32);

/// The ways in which three things can stand.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// Lanes in three runs of bits and four warps in two, for two axes or for none; vectors as wide as fits.
pub(crate) fn spread(
    (order, first, second, warps, vec): SpreadDraw,
    extents: [u32; 2],
) -> Option<Distribution> {
    let cuts = [0, first.min(second), first.max(second), 5];
    let mut axes = [(Digit::NONE, Digit::NONE); 3];
    for (run, &axis) in ORDERS[order].iter().enumerate() {
        axes[axis].0 = Digit { extent: 1 << (cuts[run + 1] - cuts[run]), stride: 1 << cuts[run] };
    }
    for (place, &axis) in warps.iter().enumerate() {
        let digit = &mut axes[axis].1;
        let stride = if digit.extent == 1 { 1 << place } else { digit.stride };
        *digit = Digit { extent: digit.extent * 2, stride };
    }
    let mut maps = Vec::new();
    for ((lanes, warps), extent) in axes.into_iter().zip(extents) {
        let threads = lanes.extent * warps.extent;
        if !extent.is_multiple_of(threads) {
            return None;
        }
        let left = extent / threads;
        let vec = 1 << left.trailing_zeros().min(vec);
        maps.push(AxisMap { vec, lanes, inner: 1, warps, rest: left / vec });
    }
    Some(Distribution { warps: 4, axes: maps })
}

/// Numbers for [`spread`].
pub(crate) fn any_spread() -> impl Strategy<Value = SpreadDraw> {
    (0usize..6, 0u32..6, 0u32..6, [0usize..3, 0usize..3], 0u32..4)
}

//! Kernels built by hand, for the tests of this crate.

use kernel_abi::{Access, DType};
use kernel_dsl::source::{FileId, Span};
use kernel_ir::distribution::Distribution;
use kernel_ir::index::IndexVec;
use kernel_ir::kernel::{
    AxisIndex, CachePolicy, Extent, Kernel, Launch, Literal, Op, Param, ParamId, Pdl, Stmt,
    StmtKind, Storage, TileAccess, Value, ValueId, Var, VarId, ViewAxis, ViewDigit,
};
use kernel_ir::target::Target;

use crate::{Argument, Buffer, EmuError, ErrorKind, Memory, Options, Trace, run_kernel};

pub(crate) const OPTIONS: Options = Options { parallel: false, ..Options::STANDARD };

/// A span that tests can tell from others.
pub(crate) fn span(at: u32) -> Span {
    Span::new(FileId(0), at, at + 1)
}

/// Builds a kernel statement by statement; each statement has the span of its number.
pub(crate) struct Sample {
    pub(crate) kernel: Kernel,
    blocks: Vec<Vec<Stmt>>,
    at: u32,
}

impl Sample {
    pub(crate) fn new(grid: u32) -> Sample {
        let launch = Launch {
            grid: [grid, 1, 1],
            cluster: [1, 1, 1],
            warps: 1,
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
            span: span(0),
        };
        Sample { kernel, blocks: vec![Vec::new()], at: 0 }
    }

    pub(crate) fn param(
        &mut self,
        name: &str,
        access: Access,
        dtype: DType,
        shape: &[u32],
    ) -> ParamId {
        let shape = shape.iter().map(|&e| Extent::Const(e)).collect();
        let (settled, scaled, contract, span) = (false, None, None, span(900));
        let name = name.into();
        let words = None;
        self.kernel.params.push(Param {
            name,
            access,
            settled,
            words,
            dtype,
            shape,
            stored: None,
            scaled,
            of: None,
            contract,
            span,
        })
    }

    pub(crate) fn input(&mut self, name: &str, dtype: DType, shape: &[u32]) -> ParamId {
        self.param(name, Access::Input, dtype, shape)
    }

    pub(crate) fn output(&mut self, name: &str, dtype: DType, shape: &[u32]) -> ParamId {
        self.param(name, Access::Output, dtype, shape)
    }

    pub(crate) fn var(&mut self, dtype: DType, shape: &[u32], slots: u32) -> VarId {
        self.kernel.vars.push(Var {
            name: "acc".into(),
            dtype,
            shape: shape.to_vec(),
            slots,
            spread: None,
            via_mma: false,
            distribution: Distribution::scalar(1),
            span: span(901),
        })
    }

    pub(crate) fn value(&mut self, dtype: DType, shape: &[u32]) -> ValueId {
        self.kernel.values.push(Value {
            dtype,
            shape: shape.to_vec(),
            distribution: Distribution::scalar(1),
            name: None,
            span: span(902),
        })
    }

    /// Appends a statement; its span counts statements from 1.
    pub(crate) fn stmt(&mut self, kind: StmtKind) -> Span {
        self.at += 1;
        let span = span(self.at);
        self.blocks.last_mut().unwrap().push(Stmt { kind, span });
        span
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

    /// The whole buffer, row-major.
    pub(crate) fn whole(&mut self, param: ParamId) -> TileAccess {
        let extents = self.extents(param);
        let index = extents
            .iter()
            .map(|&len| AxisIndex::Range { start: self.int(0), len, until: None })
            .collect();
        self.access(param, index)
    }

    pub(crate) fn access(&mut self, param: ParamId, index: Vec<AxisIndex>) -> TileAccess {
        let extents = self.extents(param);
        let mut stride = 1;
        let mut axes: Vec<ViewAxis> = extents
            .iter()
            .rev()
            .map(|&extent| {
                let digit = ViewDigit { extent, stride };
                stride *= i64::from(extent);
                ViewAxis { extent: Extent::Const(extent), digits: vec![digit] }
            })
            .collect();
        axes.reverse();
        let axes_of_param = self.kernel.params[param].shape.clone();
        for (axis, extent) in axes.iter_mut().zip(axes_of_param) {
            axis.extent = extent;
        }
        self.at += 1;
        TileAccess { storage: Storage::Buffer(param), axes, index, span: span(self.at) }
    }

    fn extents(&self, param: ParamId) -> Vec<u32> {
        let extent = |e: &Extent| match e {
            Extent::Const(c) => *c,
            Extent::Scalar(_) => 1,
        };
        self.kernel.params[param].shape.iter().map(extent).collect()
    }

    pub(crate) fn load_whole(&mut self, param: ParamId) -> ValueId {
        let access = self.whole(param);
        let (dtype, shape) = (self.kernel.params[param].dtype, self.extents(param));
        self.load(dtype, &shape, access, None)
    }

    pub(crate) fn load(
        &mut self,
        dtype: DType,
        shape: &[u32],
        access: TileAccess,
        other: Option<ValueId>,
    ) -> ValueId {
        self.def(dtype, shape, Op::Load { access, other, cache: CachePolicy::default() })
    }

    pub(crate) fn store(&mut self, value: ValueId, access: TileAccess) -> Span {
        let span = access.span;
        self.stmt(StmtKind::Store { value, access, update: None, cache: CachePolicy::default() });
        span
    }

    pub(crate) fn store_whole(&mut self, value: ValueId, param: ParamId) -> Span {
        let access = self.whole(param);
        self.store(value, access)
    }

    /// The kernel, and memory in which every input has the numbers 0, 1, 2, … of its type and every
    /// output is poison.
    pub(crate) fn finish(mut self) -> (Kernel, Memory) {
        self.kernel.body = self.close();
        let mut memory = Memory::new(&self.kernel.params);
        for (id, param) in self.kernel.params.iter_enumerated() {
            let len = self.extents(id).iter().product::<u32>();
            let numbers: Vec<f32> = (0..len).map(|i| i as f32).collect();
            match param.access {
                Access::Scalar => memory.set_scalar(id, param.dtype, 3),
                Access::Output | Access::Scratch => {
                    memory.set_buffer(id, Buffer::poison(param.dtype, len as usize));
                }
                Access::Multicast => {}
                Access::Static | Access::Input | Access::Inout | Access::Peer => {
                    memory.set_buffer(id, Buffer::from_f32(param.dtype, &numbers));
                }
            }
        }
        (self.kernel, memory)
    }

    /// Runs it; the values of the last parameter.
    pub(crate) fn run(self) -> Result<(Vec<f64>, Trace), EmuError> {
        let (kernel, mut memory) = self.finish();
        let trace = run_kernel(&kernel, &mut memory, &OPTIONS)?;
        let last = kernel.params.ids().last().unwrap();
        Ok((memory.buffer(last).unwrap().to_f64(), trace))
    }

    /// Runs it; the values of the last parameter.
    pub(crate) fn values(self) -> Vec<f64> {
        self.run().unwrap().0
    }

    /// Runs it; the error, which leaves memory alone.
    pub(crate) fn error(self) -> (ErrorKind, EmuError) {
        let (kernel, mut memory) = self.finish();
        let before = memory.clone();
        let error = run_kernel(&kernel, &mut memory, &OPTIONS).unwrap_err();
        assert_eq!(memory, before);
        (error.kind, error)
    }
}

/// Sets the value of a scalar.
pub(crate) fn set_int(memory: &mut Memory, param: ParamId, value: i32) {
    assert!(matches!(memory.argument(param), Argument::Scalar { .. } | Argument::Missing));
    memory.set_scalar(param, DType::I32, u64::from(value as u32));
}

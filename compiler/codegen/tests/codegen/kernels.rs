//! Device kernels built by hand, and the tools that judge what becomes of them.

use std::path::{Path, PathBuf};

use kernel_abi::{Access, DType};
use kernel_codegen::{Compiled, SourceLine, Tools, compile};
use kernel_dsl::source::Span;
use kernel_ir::device::{
    Arg, DeviceKernel, DeviceOp, DeviceStmt, Frag, FragId, LocId, OpLoc, OpRole, Place, Slot,
    SlotId, Special, Vector,
};
use kernel_ir::index::IndexVec;
use kernel_ir::kernel::{
    CachePolicy, Extent, Launch, Literal, MapAxis, MapId, Param, ParamId, Pdl, Role, SmemSwizzle,
    TensorMap,
};
use kernel_ir::ops::{BinaryOp, CompareOp, UnaryOp};
use kernel_ir::target::Target;

/// Builds a device kernel statement by statement; each gets its own line.
pub(crate) struct KernelBuilder {
    kernel: DeviceKernel,
    bodies: Vec<Vec<DeviceStmt>>,
}

impl KernelBuilder {
    pub(crate) fn new(export: &str, target: Target) -> KernelBuilder {
        let launch = Launch {
            grid: [2, 1, 1],
            cluster: [1, 1, 1],
            warps: 4,
            pdl: Pdl::Both,
            min_ctas: None,
            world: None,
            resident: false,
        };
        KernelBuilder {
            kernel: DeviceKernel {
                name: export.to_owned(),
                export: export.to_owned(),
                target,
                launch,
                params: IndexVec::new(),
                frags: IndexVec::new(),
                slots: IndexVec::new(),
                roles: IndexVec::new(),
                maps: Default::default(),
                barriers: IndexVec::new(),
                events: Vec::new(),
                body: Vec::new(),
                shared_bytes: 0,
                locs: IndexVec::new(),
            },
            bodies: vec![Vec::new()],
        }
    }

    pub(crate) fn launch(&mut self) -> &mut Launch {
        &mut self.kernel.launch
    }

    pub(crate) fn role(&mut self, name: &str, first: u32, warps: u32) {
        let (name, span) = (name.to_owned(), Span::default());
        self.kernel.roles.push(Role { name, first, warps, elect: false, registers: None, span });
    }

    pub(crate) fn shared(&mut self, bytes: u32) {
        self.kernel.shared_bytes = bytes;
    }

    pub(crate) fn param(&mut self, name: &str, access: Access, dtype: DType) -> ParamId {
        let shape = if access == Access::Scalar { vec![] } else { vec![Extent::Const(1 << 20)] };
        self.kernel.params.push(Param {
            name: name.to_owned(),
            access,
            settled: false,
            words: None,
            dtype,
            shape,
            stored: None,
            scaled: None,
            of: None,
            contract: None,
            span: Span::default(),
        })
    }

    /// A map of boxes of 8 rows of 16 positions, of a buffer of 64 rows of 64.
    pub(crate) fn map(&mut self, param: ParamId) -> MapId {
        let axis = |stride, length| MapAxis { extent: Extent::Const(64), stride, length };
        let axes = vec![axis(1, 16), axis(64, 8)];
        self.kernel.maps.push(TensorMap { param, axes, swizzle: SmemSwizzle::None })
    }

    pub(crate) fn frag(&mut self, dtype: DType, len: u32) -> FragId {
        self.kernel.frags.push(Frag { dtype, len })
    }

    pub(crate) fn slot(&mut self, dtype: DType, len: u32) -> SlotId {
        self.kernel.slots.push(Slot { name: "slot".to_owned(), dtype, len })
    }

    /// Appends a statement with a line of its own.
    pub(crate) fn push(&mut self, op: DeviceOp) -> LocId {
        let loc = self.kernel.locs.push(OpLoc { span: Span::default(), role: OpRole::Compute });
        let body = self.bodies.last_mut().expect("there is a body");
        body.push(DeviceStmt { op, loc });
        loc
    }

    /// Runs `fill` and returns what it appended instead of appending it.
    pub(crate) fn body(&mut self, fill: impl FnOnce(&mut Self)) -> Vec<DeviceStmt> {
        self.bodies.push(Vec::new());
        fill(self);
        self.bodies.pop().expect("the body was pushed")
    }

    pub(crate) fn finish(mut self) -> DeviceKernel {
        self.kernel.body = self.bodies.pop().expect("there is a body");
        self.kernel
    }

    pub(crate) fn constant(&mut self, dtype: DType, value: Literal) -> FragId {
        let dst = self.frag(dtype, 1);
        self.push(DeviceOp::Const { dst, values: vec![value] });
        dst
    }

    pub(crate) fn int(&mut self, value: i64) -> FragId {
        self.constant(DType::I32, Literal::Int(value))
    }

    pub(crate) fn special(&mut self, which: Special) -> FragId {
        let dst = self.frag(DType::I32, 1);
        self.push(DeviceOp::Special { dst, which });
        dst
    }

    /// Index of the thread in the grid, times `scale`.
    pub(crate) fn thread(&mut self, scale: i64) -> FragId {
        let lane = self.special(Special::Lane);
        let warp = self.special(Special::Warp);
        let cta = self.special(Special::CtaIndex(0));
        let warps = self.int(i64::from(self.kernel.launch.warps));
        let lanes = self.int(32);
        let row = self.binary(BinaryOp::Mul, cta, warps);
        let row = self.binary(BinaryOp::Add, row, warp);
        let base = self.binary(BinaryOp::Mul, row, lanes);
        let thread = self.binary(BinaryOp::Add, base, lane);
        let scale = self.int(scale);
        self.binary(BinaryOp::Mul, thread, scale)
    }

    fn shape(&self, frag: FragId) -> Frag {
        self.kernel.frags[frag]
    }

    pub(crate) fn binary(&mut self, op: BinaryOp, a: FragId, b: FragId) -> FragId {
        let Frag { dtype, len } = self.shape(a);
        let dst = self.frag(dtype, len);
        self.push(DeviceOp::Binary { dst, op, a: Arg::whole(a), b: Arg::whole(b) });
        dst
    }

    pub(crate) fn unary(&mut self, op: UnaryOp, x: FragId) -> FragId {
        let Frag { dtype, len } = self.shape(x);
        let dst = self.frag(dtype, len);
        self.push(DeviceOp::Unary { dst, op, x: Arg::whole(x) });
        dst
    }

    pub(crate) fn compare(&mut self, op: CompareOp, a: FragId, b: FragId) -> FragId {
        let dst = self.frag(DType::Bool, self.shape(a).len);
        self.push(DeviceOp::Compare { dst, op, a: Arg::whole(a), b: Arg::whole(b) });
        dst
    }

    pub(crate) fn convert(&mut self, x: FragId, to: DType) -> FragId {
        let dst = self.frag(to, self.shape(x).len);
        self.push(DeviceOp::Convert { dst, x: Arg::whole(x) });
        dst
    }

    /// `len` elements from element `offset`, in one vector.
    pub(crate) fn load(&mut self, param: ParamId, offset: FragId, len: u32) -> FragId {
        self.load_with(param, offset, len, None, CachePolicy::default())
    }

    pub(crate) fn load_with(
        &mut self,
        param: ParamId,
        offset: FragId,
        len: u32,
        predicate: Option<FragId>,
        cache: CachePolicy,
    ) -> FragId {
        let dtype = self.kernel.params[param].dtype;
        let other = predicate.map(|_| {
            let zero = match dtype {
                DType::Bool => Literal::Bool(false),
                _ if dtype.is_float() => Literal::Float(0.0),
                _ => Literal::Int(0),
            };
            self.constant(dtype, zero)
        });
        let dst = self.frag(dtype, len);
        let vectors = vec![vector(0, len, Some(offset), 0, predicate)];
        let place = Place::Global(param);
        self.push(DeviceOp::Load { dst, place, vectors, other, cache });
        dst
    }

    pub(crate) fn store(&mut self, param: ParamId, offset: FragId, src: FragId) {
        self.store_with(param, offset, src, None, CachePolicy::default());
    }

    pub(crate) fn store_with(
        &mut self,
        param: ParamId,
        offset: FragId,
        src: FragId,
        predicate: Option<FragId>,
        cache: CachePolicy,
    ) {
        let len = self.shape(src).len;
        let vectors = vec![vector(0, len, Some(offset), 0, predicate)];
        let place = Place::Global(param);
        self.push(DeviceOp::Store { src: Arg::whole(src), place, vectors, update: None, cache });
    }
}

pub(crate) fn vector(
    first: u32,
    len: u32,
    offset: Option<FragId>,
    constant: i64,
    predicate: Option<FragId>,
) -> Vector {
    Vector {
        first,
        len,
        offset: offset.map(|frag| (frag, 0)),
        constant,
        predicate: predicate.map(|frag| (frag, 0)),
    }
}

/// The vendor's tools: `KERNELC_PTXAS` and `KERNELC_NVDISASM`, the project's tool folder, or the PATH.
#[expect(clippy::disallowed_methods, reason = "a test has nobody that passes the paths in")]
pub(crate) fn tools() -> Tools {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let find = |variable: &str, name: &str| -> Option<PathBuf> {
        let given = std::env::var_os(variable).map(PathBuf::from);
        let ours = root.join(".tools/nvidia/cu13/bin").join(name);
        let path = std::env::var_os("PATH").unwrap_or_default();
        given
            .into_iter()
            .chain([ours])
            .chain(std::env::split_paths(&path).map(|folder| folder.join(name)))
            .find(|candidate| candidate.is_file())
    };
    let tools = Tools {
        ptxas: find("KERNELC_PTXAS", "ptxas"),
        nvdisasm: find("KERNELC_NVDISASM", "nvdisasm"),
    };
    assert!(tools.ptxas.is_some(), "ptxas is missing: `cargo xtask setup` installs it");
    assert!(tools.nvdisasm.is_some(), "nvdisasm is missing: `cargo xtask setup` installs it");
    tools
}

/// Compiles or explains why not.
pub(crate) fn build(kernel: &DeviceKernel) -> Compiled {
    let places = [SourceLine { file: "kernels/first.tile".to_owned(), line: 7 }];
    match compile(kernel, &places, &tools()) {
        Ok(compiled) => compiled,
        Err(error) => panic!("{} for {}: {error}", kernel.export, kernel.target),
    }
}

/// PTX without comments and blank lines, one trimmed line each.
pub(crate) fn lines(ptx: &str) -> Vec<String> {
    ptx.lines()
        .map(|line| line.split("//").next().unwrap_or(line).trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect()
}

/// An instruction of the machine code with the line of the operation it was made for.
#[derive(Debug)]
pub(crate) struct Instruction {
    pub(crate) line: Option<u32>,
    pub(crate) text: String,
}

/// The instructions of a cubin in order.
pub(crate) fn sass(compiled: &Compiled) -> Vec<Instruction> {
    let text = kernel_codegen::ptxas::disassemble(&compiled.cubin, "k", &tools())
        .expect("nvdisasm reads what ptxas wrote");
    let mut line = None;
    let mut found = Vec::new();
    for row in text.lines() {
        if let Some(at) = row.find("//## File \"") {
            line = row[at..].rsplit("line ").next().and_then(|n| n.trim().parse().ok());
        } else if let Some((address, rest)) = row.trim().split_once("*/")
            && address.starts_with("/*")
        {
            found.push(Instruction { line, text: rest.trim().to_owned() });
        }
    }
    found
}

/// Position of the first instruction that holds `word`.
pub(crate) fn position(instructions: &[Instruction], word: &str) -> usize {
    instructions.iter().position(|i| i.text.contains(word)).unwrap_or_else(|| {
        let all: Vec<&str> = instructions.iter().map(|i| i.text.as_str()).collect();
        panic!("no {word} in\n{}", all.join("\n"))
    })
}

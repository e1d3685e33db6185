//! Device kernels to MLIR: one arm for each operation, no decisions.
//!
//! A fragment is a list of values, one an element; a slot is one stack cell an element, which LLVM turns
//! into registers. Control flow is structured (`scf`) and carries no results, since what outlives a body
//! is in slots. Pointers carry no promise (`noalias`, `readonly`, `invariant`) of any kind: with one, LLVM
//! would turn loads into non-coherent ones, which ptxas moves across waits.

mod build;
mod control;
mod convert;
mod copies;
mod elementwise;
mod memory;
mod mma;
mod packed;
mod pipes;
mod ranks;
mod report;
mod roles;
mod thread;
mod tmem;
mod trace;
mod warpgroup;

use std::collections::BTreeMap;

use kernel_abi::{Access, DType};
use kernel_ir::device::{Arg, DeviceKernel, DeviceOp, DeviceStmt, FragId, LocId, SlotId};
use kernel_ir::index::{Id, IndexVec};
use kernel_ir::kernel::{Literal, MapId, ParamId, RoleId, entry_registers};
use kernel_ir::ops::elements::literal_code;
use melior::dialect::llvm::r#type as llvm_type;
use melior::dialect::ods::llvm;
use melior::ir::attribute::{
    ArrayAttribute, DenseI32ArrayAttribute, IntegerAttribute, StringAttribute, TypeAttribute,
};
use melior::ir::operation::{Operation, OperationLike, OperationMutLike, OperationPrintingFlags};
use melior::ir::{
    Attribute, Block, BlockLike, BlockRef, Location, Module, Region, RegionLike, Type, Value,
};

use self::build::Builder;
use self::memory::Policies;
use self::report::Report;
use crate::context::MlirContext;
use crate::error::CodegenError;
use crate::job::SourceLine;
use crate::mnemonic;

/// A tensor map as a parameter: 128 bytes.
const MAP_ARGUMENT: &str =
    "{llvm.byval = !llvm.array<128 x i8>, llvm.align = 64 : i64, nvvm.grid_constant}";

/// The dynamic shared memory of the CTA.
const SHARED_MEMORY: &str = "kernel_shared_memory";

/// Where it starts: a multiple of every alignment that a tile can ask for.
const SHARED_ALIGNMENT: i64 = 1024;

/// Why one operation has no lowering; the statement adds where.
struct Refusal(String);

type Lowered<T> = Result<T, Refusal>;

fn refuse<T>(message: impl Into<String>) -> Lowered<T> {
    Err(Refusal(message.into()))
}

/// Prints a device kernel as an MLIR module.
pub(crate) fn lower<'c>(
    context: &'c MlirContext,
    kernel: &DeviceKernel,
    places: &[SourceLine],
) -> Result<Module<'c>, CodegenError> {
    let fail = |line: u32, Refusal(message): Refusal| CodegenError::Lower {
        kernel: kernel.export.clone(),
        line,
        message,
    };
    check_kernel(kernel).map_err(|r| fail(0, r))?;
    let melior = context.melior();
    let file = format!("{}.ops", kernel.export);
    let unplaced = Location::new(melior, &file, 1, 0);
    let module = Module::new(unplaced);
    {
        let globals = Builder::new(melior, module.body(), unplaced);
        let report = Report::declare(globals, kernel);
        if kernel.shared_bytes > 0 {
            declare_shared_memory(globals);
        }
        let entry = define_function(globals, kernel).map_err(|r| fail(0, r))?;
        let mut lowering = Lowering {
            build: globals.at(entry),
            kernel,
            places,
            file: &file,
            params: params(globals.at(entry), kernel).map_err(|r| fail(0, r))?,
            maps: maps(globals.at(entry), kernel).map_err(|r| fail(0, r))?,
            frags: kernel.frags.ids().map(|_| Vec::new()).collect(),
            slots: IndexVec::new(),
            shared: None,
            tensor: None,
            policies: Policies::default(),
            report,
            events: BTreeMap::new(),
            role: None,
            line: 0,
        };
        lowering.enter().map_err(|r| fail(0, r))?;
        if let Err(refusal) = lowering.statements(&kernel.body) {
            return Err(fail(lowering.line, refusal));
        }
        lowering.build.push(llvm::r#return(melior, unplaced));
    }
    Ok(module)
}

/// The module as text that parses again, with its locations.
pub(crate) fn print(module: &Module<'_>) -> Result<String, CodegenError> {
    let flags = OperationPrintingFlags::new().enable_debug_info(true, false);
    module
        .as_operation()
        .to_string_with_flags(flags)
        .map_err(|error| CodegenError::Mlir(vec![error.to_string()]))
}

struct Lowering<'c, 'm, 'k> {
    build: Builder<'c, 'm>,
    kernel: &'k DeviceKernel,
    places: &'k [SourceLine],
    file: &'k str,
    params: IndexVec<ParamId, Value<'c, 'm>>,
    /// Addresses of the tensor maps.
    maps: IndexVec<MapId, Value<'c, 'm>>,
    /// Elements of each fragment; none before its definition.
    frags: IndexVec<FragId, Vec<Value<'c, 'm>>>,
    /// Stack cells of each slot.
    slots: IndexVec<SlotId, Vec<Value<'c, 'm>>>,
    /// Base of the shared memory, if there is any.
    shared: Option<Value<'c, 'm>>,
    /// Address of the tensor memory, when it has been taken.
    tensor: Option<Value<'c, 'm>>,
    policies: Policies<'c, 'm>,
    report: Report<'c, 'm>,
    /// How many events the thread has written down in each part of the buffer for them, in cells of the stack.
    events: BTreeMap<u32, Value<'c, 'm>>,
    /// The role whose statements are lowered.
    role: Option<RoleId>,
    /// Line of the operation list that is being lowered.
    line: u32,
}

impl<'c, 'm> Lowering<'c, 'm, '_> {
    /// What stands before the first statement.
    fn enter(&mut self) -> Lowered<()> {
        for slot in self.kernel.slots.iter() {
            let r#type = self.element_type(slot.dtype)?;
            let cells = (0..packed::units(slot.dtype, slot.len))
                .map(|_| self.build.alloca(r#type, 1))
                .collect();
            self.slots.push(cells);
        }
        if self.kernel.shared_bytes > 0 {
            self.shared = Some(self.build.address_of(self.build.types.shared, SHARED_MEMORY));
        }
        self.policies = Policies::create(self.build, self.kernel);
        self.report.reserve(self.build, self.kernel);
        self.count_events();
        Ok(())
    }

    fn statements(&mut self, statements: &[DeviceStmt]) -> Lowered<()> {
        for statement in statements {
            self.line = line_of(statement.loc);
            self.build.location =
                Location::new(self.build.context, self.file, self.line as usize, 0);
            self.statement(&statement.op, statement.loc)?;
        }
        Ok(())
    }

    fn statement(&mut self, op: &DeviceOp, loc: LocId) -> Lowered<()> {
        match op {
            DeviceOp::Const { dst, values } => {
                let dtype = self.frag(*dst)?.dtype;
                let element = |i: u32| match values.as_slice() {
                    [one] => self.literal(dtype, *one),
                    _ => match values.get(i as usize) {
                        Some(value) => self.literal(dtype, *value),
                        None => refuse(format!("{dst} has more elements than the constant")),
                    },
                };
                let elements = self.each(*dst, element)?;
                self.define(*dst, elements)
            }
            DeviceOp::Special { dst, which } => {
                let value = self.special(*which)?;
                self.define(*dst, vec![value])
            }
            DeviceOp::ScalarParam { dst, param } => {
                let value = self.scalar_param(*param)?;
                self.define(*dst, vec![value])
            }
            DeviceOp::Unary { dst, op, x } => {
                let dtype = self.frag(x.frag)?.dtype;
                let elements = self.each(*dst, |i| self.unary(*op, dtype, self.operand(x, i)?))?;
                self.define(*dst, elements)
            }
            DeviceOp::Binary { dst, op, a, b } => {
                let dtype = self.frag(a.frag)?.dtype;
                let elements = self.each(*dst, |i| {
                    self.binary(*op, dtype, self.operand(a, i)?, self.operand(b, i)?)
                })?;
                self.define(*dst, elements)
            }
            DeviceOp::Compare { dst, op, a, b } => {
                let dtype = self.frag(a.frag)?.dtype;
                let elements = self.each(*dst, |i| {
                    self.compare(*op, dtype, self.operand(a, i)?, self.operand(b, i)?)
                })?;
                self.define(*dst, elements)
            }
            DeviceOp::Select { dst, cond, a, b } => {
                let elements = self.each(*dst, |i| {
                    let cond = self.operand(cond, i)?;
                    Ok(self.build.select(cond, self.operand(a, i)?, self.operand(b, i)?))
                })?;
                self.define(*dst, elements)
            }
            DeviceOp::Fma { dst, a, b, c } => {
                if self.frag(*dst)?.dtype != DType::F32 {
                    return refuse("fma is defined for f32");
                }
                let elements = self.each(*dst, |i| {
                    let (a, b) = (self.operand(a, i)?, self.operand(b, i)?);
                    Ok(self.build.fma(a, b, self.operand(c, i)?))
                })?;
                self.define(*dst, elements)
            }
            DeviceOp::Inline { dst, text, equals: _, inputs } => {
                let elements = self.inline(*dst, text, inputs)?;
                self.define(*dst, elements)
            }
            DeviceOp::Convert { dst, x } => {
                let from = self.frag(x.frag)?.dtype;
                let to = self.frag(*dst)?.dtype;
                let elements = if from == DType::E2m1 {
                    self.decode(*dst, x)?
                } else {
                    self.each(*dst, |i| self.convert(from, to, self.operand(x, i)?))?
                };
                self.define(*dst, elements)
            }
            DeviceOp::Copy { dst, x } => {
                let frag = self.frag(*dst)?;
                let elements = self.each(*dst, |i| self.unit(x, i, frag.dtype, frag.len))?;
                self.define(*dst, elements)
            }
            DeviceOp::Join { dst, from } => {
                let elements = from
                    .iter()
                    .map(|&(frag, i)| self.element(frag, i))
                    .collect::<Lowered<Vec<_>>>()?;
                self.define(*dst, elements)
            }
            DeviceOp::Mma { dst, a, b, acc, atoms } => {
                let elements = self.mma([*a, *b], *acc, atoms)?;
                self.define(*dst, elements)
            }
            DeviceOp::Shuffle { dst, x, lanes } => {
                let elements = self.shuffle(*dst, *x, *lanes)?;
                self.define(*dst, elements)
            }
            DeviceOp::ReduceLanes { dst, x, op } => {
                let elements = self.reduce_lanes(*dst, *x, *op)?;
                self.define(*dst, elements)
            }
            DeviceOp::Load { dst, place, vectors, other, cache } => {
                let elements = self.load(*dst, place, vectors, *other, *cache)?;
                self.define(*dst, elements)
            }
            DeviceOp::LoadMatrices { dst, place, loads } => {
                let elements = self.load_matrices(*dst, place, loads)?;
                self.define(*dst, elements)
            }
            DeviceOp::StoreMatrices { src, place, stores } => {
                self.store_matrices(*src, place, stores)
            }
            DeviceOp::Store { src, place, vectors, update, cache } => match update {
                None => self.store(src, place, vectors, *cache),
                Some(op) => self.update(*op, src, place, vectors),
            },
            DeviceOp::Prefetch { place, vectors, bytes: None, evict } => {
                self.prefetch(place, vectors, *evict)
            }
            DeviceOp::Prefetch { place, vectors, bytes: Some(bytes), evict } => {
                self.prefetch_bytes(place, vectors, *bytes, *evict)
            }
            DeviceOp::Warpgroup(op) => self.warpgroup(op),
            DeviceOp::Tensor(op) => self.tensor(op),
            DeviceOp::ReadSlot { dst, slot } => {
                let r#type = self.element_type(self.frag(*dst)?.dtype)?;
                let alignment = self.cell_bytes(self.frag(*dst)?.dtype)?;
                let elements = self
                    .each(*dst, |i| Ok(self.build.load(r#type, self.cell(*slot, i)?, alignment)))?;
                self.define(*dst, elements)
            }
            DeviceOp::SetSlot { slot, x } => {
                let Some(declared) = self.kernel.slots.get(*slot) else {
                    return refuse(format!("{slot} is not declared"));
                };
                let alignment = self.cell_bytes(declared.dtype)?;
                for i in 0..packed::units(declared.dtype, declared.len) {
                    let element = self.unit(x, i, declared.dtype, declared.len)?;
                    self.build.store(element, self.cell(*slot, i)?, alignment);
                }
                Ok(())
            }
            DeviceOp::CopyAsync { source, dest, pieces, evict } => {
                self.copy_async(source, dest, pieces, *evict)
            }
            DeviceOp::CommitGroup => {
                self.build.effect(&mnemonic::commit_group(), &[]);
                Ok(())
            }
            DeviceOp::WaitGroup { pending } => {
                self.build.effect(&mnemonic::wait_group(*pending), &[]);
                Ok(())
            }
            DeviceOp::Barrier => {
                self.barrier();
                Ok(())
            }
            DeviceOp::ClusterBarrier => {
                self.build.effect(&mnemonic::cluster_barrier(), &[]);
                Ok(())
            }
            DeviceOp::Signal { param, rank, at, add, alias } => {
                self.signal(*param, *rank, at, (*add, *alias))
            }
            DeviceOp::Await { param, at, until, alias } => {
                self.wait_for(*param, at, *until, *alias)
            }
            DeviceOp::RoleBarrier { role } => self.role_barrier(*role),
            DeviceOp::Pipe(pipe) => self.pipe(pipe),
            DeviceOp::Role { role, body } => self.role(*role, body),
            DeviceOp::Fence => {
                self.build.effect(&crate::mnemonic::fence(), &[]);
                Ok(())
            }
            DeviceOp::Atomic { dst, param, at, change } => {
                let old = self.atomic(*param, at, *change)?;
                self.define(*dst, vec![old])
            }
            DeviceOp::GridWait => {
                self.grid_wait();
                Ok(())
            }
            DeviceOp::GridLaunch => {
                self.grid_launch();
                Ok(())
            }
            DeviceOp::Assert { cond, message } => self.assert(*cond, message, loc),
            DeviceOp::Trace { event } => self.trace(*event),
            DeviceOp::Printf { format, args } => self.printf(format, args),
            DeviceOp::For { var, start, end, step, body } => {
                self.r#for(*var, *start, *end, *step, body)
            }
            DeviceOp::Repeat { body, again } => self.repeat(body, *again),
            DeviceOp::If { cond, then_body, else_body } => self.r#if(*cond, then_body, else_body),
        }
    }

    /// The declaration of a fragment.
    fn frag(&self, id: FragId) -> Lowered<kernel_ir::device::Frag> {
        match self.kernel.frags.get(id) {
            Some(frag) => Ok(*frag),
            None => refuse(format!("{id} is not declared")),
        }
    }

    /// Element `i` of a fragment that has been defined.
    fn element(&self, id: FragId, i: u32) -> Lowered<Value<'c, 'm>> {
        match self.frags.get(id).and_then(|elements| elements.get(i as usize)) {
            Some(element) => Ok(*element),
            None => refuse(format!("element {i} of {id} is not defined here")),
        }
    }

    /// Element `i` of an operand.
    fn operand(&self, arg: &Arg, i: u32) -> Lowered<Value<'c, 'm>> {
        if let kernel_ir::device::Map::Table(table) = &arg.map
            && i as usize >= table.len()
        {
            return refuse(format!("the map of {} has no entry {i}", arg.frag));
        }
        self.element(arg.frag, arg.element(i))
    }

    /// Element `i` of an operand, or its word `i` where elements are packed.
    fn unit(&self, arg: &Arg, i: u32, dtype: DType, len: u32) -> Lowered<Value<'c, 'm>> {
        if dtype == DType::E2m1 { self.packed_operand(arg, i, len) } else { self.operand(arg, i) }
    }

    /// Makes every element of `dst`.
    fn each(
        &self,
        dst: FragId,
        element: impl Fn(u32) -> Lowered<Value<'c, 'm>>,
    ) -> Lowered<Vec<Value<'c, 'm>>> {
        let frag = self.frag(dst)?;
        (0..packed::units(frag.dtype, frag.len)).map(element).collect()
    }

    fn define(&mut self, dst: FragId, elements: Vec<Value<'c, 'm>>) -> Lowered<()> {
        let frag = self.frag(dst)?;
        let len = packed::units(frag.dtype, frag.len);
        if elements.len() != len as usize {
            return refuse(format!("{dst} has {len} elements, {} are defined", elements.len()));
        }
        self.frags[dst] = elements;
        Ok(())
    }

    fn cell(&self, slot: SlotId, i: u32) -> Lowered<Value<'c, 'm>> {
        match self.slots.get(slot).and_then(|cells| cells.get(i as usize)) {
            Some(cell) => Ok(*cell),
            None => refuse(format!("{slot} has no element {i}")),
        }
    }

    fn cell_bytes(&self, dtype: DType) -> Lowered<u32> {
        // a cell of packed elements is a word
        Ok(dtype.bytes().unwrap_or(4))
    }

    /// The type of an element in a register.
    fn element_type(&self, dtype: DType) -> Lowered<Type<'c>> {
        element_type(self.build, dtype)
    }

    /// The type of an element in memory.
    fn memory_type(&self, dtype: DType) -> Lowered<Type<'c>> {
        memory_type(self.build, dtype)
    }

    fn literal(&self, dtype: DType, literal: Literal) -> Lowered<Value<'c, 'm>> {
        let r#type = self.element_type(dtype)?;
        match literal {
            Literal::Float(_) if is_code(dtype) => {
                let code = literal_code(dtype, literal).unwrap_or(0);
                let is_packed = dtype == DType::E2m1;
                let bits = if is_packed { packed::repeated(code) } else { i64::from(code as i8) };
                Ok(self.build.int(r#type, bits))
            }
            Literal::Float(value) if dtype.is_float() => Ok(self.build.float(r#type, value)),
            Literal::Int(value) if dtype.is_int() => {
                // MLIR takes the value that the bits have as a signed number.
                let wrapped = match dtype.bits() {
                    8 => i64::from(value as i8),
                    32 => i64::from(value as i32),
                    _ => value,
                };
                Ok(self.build.int(r#type, wrapped))
            }
            Literal::Bool(value) if dtype == DType::Bool => {
                Ok(self.build.int(r#type, i64::from(value)))
            }
            Literal::Float(_) | Literal::Int(_) | Literal::Bool(_) => {
                refuse(format!("{literal:?} is no constant of {dtype}"))
            }
        }
    }
}

/// True for floats that registers hold as their codes.
fn is_code(dtype: DType) -> bool {
    dtype.is_float() && dtype.bits() <= 8
}

fn line_of(loc: LocId) -> u32 {
    u32::try_from(loc.index() + 1).unwrap_or(u32::MAX)
}

fn element_type<'c>(build: Builder<'c, '_>, dtype: DType) -> Lowered<Type<'c>> {
    if dtype == DType::E2m1 {
        // a word of them
        return Ok(build.types.i32);
    }
    if dtype == DType::Bool { Ok(build.types.i1) } else { memory_type(build, dtype) }
}

fn memory_type<'c>(build: Builder<'c, '_>, dtype: DType) -> Lowered<Type<'c>> {
    match dtype {
        DType::F32 => Ok(build.types.f32),
        DType::F16 => Ok(build.types.f16),
        DType::Bf16 => Ok(build.types.bf16),
        DType::I8 | DType::U8 | DType::Bool | DType::E4m3 | DType::E5m2 | DType::Ue8m0 => {
            Ok(build.types.i8)
        }
        DType::I32 | DType::U32 => Ok(build.types.i32),
        DType::I64 | DType::U64 => Ok(build.types.i64),
        DType::E2m1 => refuse("single elements of e2m1 have no address"),
    }
}

fn check_kernel(kernel: &DeviceKernel) -> Lowered<()> {
    let name = &kernel.export;
    let mut letters = name.chars();
    let starts = letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    if !starts || !letters.all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return refuse(format!("`{name}` is no name for a symbol"));
    }
    let info = kernel.target.info();
    if kernel.launch.warps == 0 || kernel.launch.warps > info.max_warps {
        return refuse(format!("{} warps are not possible", kernel.launch.warps));
    }
    if kernel.shared_bytes > info.max_shared_bytes {
        return refuse(format!("{} bytes of shared memory are too many", kernel.shared_bytes));
    }
    Ok(())
}

fn declare_shared_memory(globals: Builder<'_, '_>) {
    let r#type = llvm_type::array(globals.types.i8, 0);
    globals.push(
        llvm::GlobalOperation::builder(globals.context, globals.location)
            .initializer(Region::new())
            .global_type(TypeAttribute::new(r#type))
            .sym_name(StringAttribute::new(globals.context, SHARED_MEMORY))
            .linkage(linkage(globals, "external"))
            .alignment(IntegerAttribute::new(globals.types.i64, SHARED_ALIGNMENT))
            .addr_space(IntegerAttribute::new(globals.types.i32, 3))
            .build(),
    );
}

fn linkage<'c>(globals: Builder<'c, '_>, name: &str) -> Attribute<'c> {
    Attribute::parse(globals.context, &format!("#llvm.linkage<{name}>"))
        .expect("the name of a linkage parses")
}

/// Declares the kernel and returns its entry block.
fn define_function<'c, 'm>(
    globals: Builder<'c, 'm>,
    kernel: &DeviceKernel,
) -> Lowered<BlockRef<'c, 'm>> {
    let mut arguments = Vec::new();
    for param in kernel.params.iter() {
        arguments.push(match param.access {
            Access::Scalar => memory_type(globals, param.dtype)?,
            Access::Static
            | Access::Input
            | Access::Output
            | Access::Inout
            | Access::Scratch
            | Access::Peer
            | Access::Multicast => globals.types.global,
        });
    }
    // A map is passed by value, and read in the place where the launch has put it.
    arguments.extend(kernel.maps.iter().map(|_| globals.types.pointer));
    let plain = || Attribute::parse(globals.context, "{}").expect("an empty dictionary parses");
    let mut promises: Vec<Attribute<'c>> = kernel.params.iter().map(|_| plain()).collect();
    promises.extend(kernel.maps.iter().map(|_| {
        Attribute::parse(globals.context, MAP_ARGUMENT).expect("the promises of a map parse")
    }));
    let placed: Vec<(Type<'c>, Location<'c>)> =
        arguments.iter().map(|&r#type| (r#type, globals.location)).collect();
    let region = Region::new();
    region.append_block(Block::new(&placed));
    let context = globals.context;
    let signature = llvm_type::function(llvm_type::void(context), &arguments, false);
    let mut function: Operation<'c> = llvm::LLVMFuncOperation::builder(context, globals.location)
        .body(region)
        .sym_name(StringAttribute::new(context, &kernel.export))
        .function_type(TypeAttribute::new(signature))
        .build()
        .into();
    let threads = i32::try_from(kernel.launch.threads()).expect("at most 32 warps of 32 lanes");
    function.set_attribute("nvvm.kernel", Attribute::unit(context));
    if !kernel.maps.is_empty() {
        function.set_attribute("arg_attrs", ArrayAttribute::new(context, &promises).into());
    }
    function.set_attribute("nvvm.reqntid", DenseI32ArrayAttribute::new(context, &[threads]).into());
    if kernel.roles.iter().any(|role| role.registers.is_some()) {
        let entry = entry_registers(kernel.launch.threads(), kernel.launch.min_ctas);
        let entry = IntegerAttribute::new(globals.types.i32, entry.into());
        function.set_attribute("nvvm.maxnreg", entry.into());
    } else if let Some(ctas) = kernel.launch.min_ctas {
        let ctas = IntegerAttribute::new(globals.types.i32, i64::from(ctas as i32));
        function.set_attribute("nvvm.minctasm", ctas.into());
    }
    if kernel.launch.cluster_size() > 1 {
        let extents = kernel.launch.cluster.map(|extent| extent as i32);
        function.set_attribute(
            "nvvm.cluster_dim",
            DenseI32ArrayAttribute::new(context, &extents).into(),
        );
    }
    let function = globals.push(function);
    let body = function.region(0).ok().and_then(|region| region.first_block());
    Ok(body.expect("the function was made with one block"))
}

fn params<'c, 'm>(
    entry: Builder<'c, 'm>,
    kernel: &DeviceKernel,
) -> Lowered<IndexVec<ParamId, Value<'c, 'm>>> {
    let argument = |id: ParamId| match entry.block.argument(id.index()) {
        Ok(argument) => Ok(Value::from(argument)),
        Err(error) => refuse(error.to_string()),
    };
    kernel.params.ids().map(argument).collect::<Lowered<Vec<_>>>().map(IndexVec::from_iter)
}

/// The maps stand behind the parameters.
fn maps<'c, 'm>(
    entry: Builder<'c, 'm>,
    kernel: &DeviceKernel,
) -> Lowered<IndexVec<MapId, Value<'c, 'm>>> {
    let argument = |id: MapId| match entry.block.argument(kernel.params.len() + id.index()) {
        Ok(argument) => Ok(Value::from(argument)),
        Err(error) => refuse(error.to_string()),
    };
    kernel.maps.ids().map(argument).collect::<Lowered<Vec<_>>>().map(IndexVec::from_iter)
}

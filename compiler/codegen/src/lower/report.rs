//! Assertions and printing, through the device functions that every driver provides.

use kernel_abi::DType;
use kernel_ir::device::{DeviceKernel, DeviceOp, DeviceStmt, FragId, LocId};
use kernel_ir::index::Id;
use melior::dialect::arith::CmpiPredicate;
use melior::dialect::llvm::r#type as llvm_type;
use melior::dialect::ods::llvm;
use melior::ir::attribute::{StringAttribute, TypeAttribute};
use melior::ir::{Attribute, Region, Value};

use super::build::Builder;
use super::{Lowered, Lowering, line_of, linkage, refuse};
use crate::mnemonic::{self, ASSERT_FAIL, VPRINTF};

/// Bytes of one argument of `vprintf`: all are widened to 8.
const ARGUMENT_BYTES: u32 = 8;

/// What assertions and printing need beside the kernel.
pub(super) struct Report<'c, 'm> {
    globals: Builder<'c, 'm>,
    strings: u32,
    arguments: Option<Value<'c, 'm>>,
}

/// What the statements of a kernel use.
#[derive(Default)]
struct Used {
    asserts: bool,
    prints: bool,
    most_arguments: usize,
}

impl Used {
    fn of(statements: &[DeviceStmt]) -> Used {
        let mut used = Used::default();
        used.add(statements);
        used
    }

    fn add(&mut self, statements: &[DeviceStmt]) {
        for statement in statements {
            match &statement.op {
                DeviceOp::Assert { .. } => self.asserts = true,
                DeviceOp::Printf { args, .. } => {
                    self.prints = true;
                    self.most_arguments = self.most_arguments.max(args.len());
                }
                DeviceOp::For { body, .. }
                | DeviceOp::Role { body, .. }
                | DeviceOp::Repeat { body, .. } => self.add(body),
                DeviceOp::If { then_body, else_body, .. } => {
                    self.add(then_body);
                    self.add(else_body);
                }
                DeviceOp::Trace { .. }
                | DeviceOp::Const { .. }
                | DeviceOp::Special { .. }
                | DeviceOp::ScalarParam { .. }
                | DeviceOp::Unary { .. }
                | DeviceOp::Binary { .. }
                | DeviceOp::Compare { .. }
                | DeviceOp::Select { .. }
                | DeviceOp::Fma { .. }
                | DeviceOp::Inline { .. }
                | DeviceOp::Convert { .. }
                | DeviceOp::Copy { .. }
                | DeviceOp::Join { .. }
                | DeviceOp::Shuffle { .. }
                | DeviceOp::ReduceLanes { .. }
                | DeviceOp::Mma { .. }
                | DeviceOp::LoadMatrices { .. }
                | DeviceOp::StoreMatrices { .. }
                | DeviceOp::Load { .. }
                | DeviceOp::Store { .. }
                | DeviceOp::Prefetch { .. }
                | DeviceOp::ReadSlot { .. }
                | DeviceOp::SetSlot { .. }
                | DeviceOp::Warpgroup(_)
                | DeviceOp::Tensor(_)
                | DeviceOp::CopyAsync { .. }
                | DeviceOp::CommitGroup
                | DeviceOp::WaitGroup { .. }
                | DeviceOp::Barrier
                | DeviceOp::ClusterBarrier
                | DeviceOp::Signal { .. }
                | DeviceOp::Await { .. }
                | DeviceOp::RoleBarrier { .. }
                | DeviceOp::Pipe(_)
                | DeviceOp::Fence
                | DeviceOp::Atomic { .. }
                | DeviceOp::GridWait
                | DeviceOp::GridLaunch => {}
            }
        }
    }
}

impl<'c, 'm> Report<'c, 'm> {
    /// Declares the device functions that the kernel calls.
    pub(super) fn declare(globals: Builder<'c, 'm>, kernel: &DeviceKernel) -> Report<'c, 'm> {
        let used = Used::of(&kernel.body);
        let types = globals.types;
        let (pointer, i32, i64) = (types.pointer, types.i32, types.i64);
        if used.prints {
            declare(globals, VPRINTF, llvm_type::function(i32, &[pointer, pointer], false));
        }
        if used.asserts {
            let void = llvm_type::void(globals.context);
            let arguments = [pointer, pointer, i32, pointer, i64];
            declare(globals, ASSERT_FAIL, llvm_type::function(void, &arguments, false));
        }
        Report { globals, strings: 0, arguments: None }
    }

    /// Reserves stack for the arguments of the longest `printf`.
    pub(super) fn reserve(&mut self, entry: Builder<'c, 'm>, kernel: &DeviceKernel) {
        let count = Used::of(&kernel.body).most_arguments;
        if count > 0 {
            let count = i64::try_from(count).expect("arguments fit in memory");
            self.arguments = Some(entry.alloca(entry.types.i64, count));
        }
    }

    /// A constant text that ends in NUL; returns its symbol.
    fn text(&mut self, text: &str) -> String {
        let name = format!("kernel_text_{}", self.strings);
        self.strings += 1;
        let bytes = format!("{}\0", text.replace('\0', ""));
        let globals = self.globals;
        let length = u32::try_from(bytes.len()).expect("a message is shorter than 4 GiB");
        globals.push(
            llvm::GlobalOperation::builder(globals.context, globals.location)
                .initializer(Region::new())
                .global_type(TypeAttribute::new(llvm_type::array(globals.types.i8, length)))
                .sym_name(StringAttribute::new(globals.context, &name))
                .linkage(linkage(globals, "internal"))
                .constant(Attribute::unit(globals.context))
                .value(StringAttribute::new(globals.context, &bytes).into())
                .build(),
        );
        name
    }
}

fn declare<'c>(globals: Builder<'c, '_>, name: &str, r#type: melior::ir::Type<'c>) {
    globals.push(
        llvm::LLVMFuncOperation::builder(globals.context, globals.location)
            .body(Region::new())
            .sym_name(StringAttribute::new(globals.context, name))
            .function_type(TypeAttribute::new(r#type))
            .build(),
    );
}

impl<'c, 'm> Lowering<'c, 'm, '_> {
    /// Stops the launch when the condition, which all threads share, is false. Thread 0 reports through
    /// the driver's own handler of failed assertions, which ends the launch with its own error code; the
    /// others leave, since a trap of theirs could end the launch before the message is out.
    pub(super) fn assert(&mut self, cond: FragId, message: &str, loc: LocId) -> Lowered<()> {
        let outer = self.build;
        let (file, line) = match self.places.get(loc.index()) {
            Some(place) => (place.file.clone(), place.line),
            None => (self.file.to_owned(), line_of(loc)),
        };
        let texts = [message, &file, &self.kernel.export].map(|text| self.report.text(text));
        let (_, failed) = {
            let (held, failed) = outer.choice(self.element(cond, 0)?);
            outer.at(held).end();
            (held, failed)
        };
        self.build = outer.at(failed);
        let (first, rest) = self.build.choice(self.is_first_thread());
        let b = self.build.at(first);
        let pointer = b.types.pointer;
        let [message, file, function] = texts.map(|name| b.address_of(pointer, &name));
        let line = b.int(b.types.i32, i64::from(line as i32));
        let character_size = b.int(b.types.i64, 1);
        b.call(ASSERT_FAIL, &[message, file, line, function, character_size], None);
        b.effect(&mnemonic::trap(), &[]);
        b.end();
        self.build.at(rest).end();
        self.build.effect(&mnemonic::exit(), &[]);
        self.build.end();
        self.build = outer;
        Ok(())
    }

    /// Prints from thread 0. Every argument is widened to 8 bytes: `%lld`, `%llu` or `%.9g`, which tells
    /// every f32 apart.
    pub(super) fn printf(&mut self, format: &str, args: &[FragId]) -> Lowered<()> {
        let outer = self.build;
        let mut dtypes = Vec::new();
        for &arg in args {
            dtypes.push(self.frag(arg)?.dtype);
        }
        let format = self.report.text(&c_format(format, &dtypes)?);
        let (first, rest) = outer.choice(self.is_first_thread());
        outer.at(rest).end();
        self.build = outer.at(first);
        let b = self.build;
        for ((&arg, &dtype), i) in args.iter().zip(&dtypes).zip(0..) {
            let Some(place) = self.report.arguments else {
                return refuse("no stack was reserved for the arguments");
            };
            let value = self.widen_argument(dtype, self.element(arg, 0)?)?;
            let address = b.offset(place, b.types.i64, b.int(b.types.i64, i));
            b.store(value, address, ARGUMENT_BYTES);
        }
        let format = b.address_of(b.types.pointer, &format);
        let arguments = match self.report.arguments {
            Some(place) => place,
            None => b.value(llvm::mlir_zero(b.context, b.types.pointer, b.location)),
        };
        b.call(VPRINTF, &[format, arguments], Some(b.types.i32));
        b.end();
        self.build = outer;
        Ok(())
    }

    /// The first thread of the role, or of the CTA.
    pub(super) fn is_first_thread(&self) -> Value<'c, 'm> {
        let b = &self.build;
        let role = self.role.and_then(|role| self.kernel.roles.get(role));
        let first = role.map_or(0, |role| role.first_thread());
        b.compare_int(CmpiPredicate::Eq, self.thread_index(), b.int(b.types.i32, first.into()))
    }

    fn widen_argument(&self, dtype: DType, x: Value<'c, 'm>) -> Lowered<Value<'c, 'm>> {
        let b = &self.build;
        if dtype.is_float() {
            return Ok(b.extf(b.types.f64, self.widen(dtype, x)?));
        }
        Ok(if dtype.bits() == 64 {
            x
        } else if dtype.is_signed_int() {
            b.extsi(b.types.i64, x)
        } else {
            b.extui(b.types.i64, x)
        })
    }
}

/// `{}` for each argument, as C says it.
fn c_format(format: &str, dtypes: &[DType]) -> Lowered<String> {
    let mut text = String::new();
    let mut rest = format;
    let mut dtypes = dtypes.iter();
    while let Some(at) = rest.find("{}") {
        text += &rest[..at].replace('%', "%%");
        text += match dtypes.next() {
            None => return refuse("printf has fewer arguments than places"),
            Some(dtype) if dtype.is_float() => "%.9g",
            Some(dtype) if dtype.is_signed_int() => "%lld",
            Some(_) => "%llu",
        };
        rest = &rest[at + 2..];
    }
    if dtypes.next().is_some() {
        return refuse("printf has more arguments than places");
    }
    text += &rest.replace('%', "%%");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_become_those_of_c() {
        let of = |format, dtypes: &[DType]| c_format(format, dtypes).ok();
        assert_eq!(of("100% {} {}\n", &[DType::F32, DType::I32]).unwrap(), "100%% %.9g %lld\n");
        assert_eq!(of("{}", &[DType::Bool]).unwrap(), "%llu");
        assert_eq!(of("{}", &[]), None);
        assert_eq!(of("", &[DType::U8]), None);
    }
}

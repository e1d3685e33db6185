//! What a thread knows of itself, and where it meets others.

use kernel_abi::DType;
use kernel_ir::device::Special;
use kernel_ir::index::Id;
use kernel_ir::kernel::ParamId;
use melior::dialect::arith::CmpiPredicate;
use melior::ir::{Attribute, Type, Value};

use super::{Lowered, Lowering, refuse};
use crate::{mnemonic, nvvm};

/// All lanes of a warp.
const FULL_MASK: i64 = -1;
/// No sub-segments: lane numbers run to 31.
const CLAMP: i64 = 31;

impl<'c, 'm> Lowering<'c, 'm, '_> {
    pub(super) fn thread_index(&self) -> Value<'c, 'm> {
        let b = &self.build;
        b.value(nvvm::read_ptx_sreg_tid_x(b.context, b.types.i32, b.location))
    }

    /// A built-in of the thread. Lane and warp come from the thread's index, whose range LLVM knows.
    pub(super) fn special(&self, which: Special) -> Lowered<Value<'c, 'm>> {
        let b = &self.build;
        let (context, i32, location) = (b.context, b.types.i32, b.location);
        Ok(match which {
            Special::CtaIndex(0) => b.value(nvvm::read_ptx_sreg_ctaid_x(context, i32, location)),
            Special::CtaIndex(1) => b.value(nvvm::read_ptx_sreg_ctaid_y(context, i32, location)),
            Special::CtaIndex(2) => b.value(nvvm::read_ptx_sreg_ctaid_z(context, i32, location)),
            Special::CtaIndex(axis) => return refuse(format!("a grid has no axis {axis}")),
            Special::Lane => b.andi(self.thread_index(), b.int(i32, 31)),
            Special::Warp => b.shrui(self.thread_index(), b.int(i32, 5)),
        })
    }

    pub(super) fn scalar_param(&self, param: ParamId) -> Lowered<Value<'c, 'm>> {
        let b = &self.build;
        let (Some(declared), Some(value)) = (self.kernel.params.get(param), self.params.get(param))
        else {
            return refuse(format!("there is no parameter {}", param.index()));
        };
        if declared.dtype == DType::Bool {
            return Ok(b.compare_int(CmpiPredicate::Ne, *value, b.int(b.types.i8, 0)));
        }
        Ok(*value)
    }

    pub(super) fn barrier(&self) {
        let b = &self.build;
        b.push(nvvm::barrier_0(b.context, b.location));
    }

    pub(super) fn grid_wait(&self) {
        self.build.effect(&mnemonic::grid_wait(), &[]);
    }

    pub(super) fn grid_launch(&self) {
        self.build.effect(&mnemonic::grid_launch(), &[]);
    }

    /// The element of the lane whose number differs by `xor`, moved in words of 32 bits.
    pub(super) fn shuffle(
        &self,
        dtype: DType,
        x: Value<'c, 'm>,
        xor: u32,
    ) -> Lowered<Value<'c, 'm>> {
        let b = &self.build;
        if !matches!(xor, 1 | 2 | 4 | 8 | 16) {
            return refuse(format!("lanes do not differ by {xor}"));
        }
        let (i32, i64) = (b.types.i32, b.types.i64);
        let word = |x: Value<'c, 'm>, r#type: Type<'c>| self.shuffle_word(x, r#type, xor);
        Ok(match dtype {
            DType::F32 => word(x, b.types.f32),
            DType::I32 | DType::U32 => word(x, i32),
            DType::F16 | DType::Bf16 => {
                let wide = b.extui(i32, b.bitcast(b.types.i16, x));
                let moved = b.trunci(b.types.i16, word(wide, i32));
                b.bitcast(self.element_type(dtype)?, moved)
            }
            DType::I8 | DType::U8 | DType::E4m3 | DType::E5m2 | DType::Ue8m0 => {
                b.trunci(b.types.i8, word(b.extui(i32, x), i32))
            }
            DType::Bool => b.trunci(b.types.i1, word(b.extui(i32, x), i32)),
            DType::I64 | DType::U64 => {
                let half = b.int(i64, 32);
                let low = word(b.trunci(i32, x), i32);
                let high = word(b.trunci(i32, b.shrui(x, half)), i32);
                b.ori(b.shli(b.extui(i64, high), half), b.extui(i64, low))
            }
            DType::E2m1 => return refuse("single elements of e2m1 have no register"),
        })
    }

    fn shuffle_word(&self, x: Value<'c, 'm>, r#type: Type<'c>, xor: u32) -> Value<'c, 'm> {
        let b = &self.build;
        let i32 = b.types.i32;
        let butterfly = Attribute::parse(b.context, "#nvvm<shfl_kind bfly>")
            .expect("the kind of a shuffle parses");
        b.value(nvvm::shfl_sync(
            b.context,
            r#type,
            b.int(i32, FULL_MASK),
            x,
            b.int(i32, xor.into()),
            b.int(i32, CLAMP),
            butterfly,
            b.location,
        ))
    }
}

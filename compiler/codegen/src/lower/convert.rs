//! Conversions between element types.

use kernel_abi::DType;
use melior::dialect::arith::{CmpfPredicate, CmpiPredicate};
use melior::ir::Value;

use super::{Lowered, Lowering, refuse};
use crate::mnemonic::Intrinsic;

impl<'c, 'm> Lowering<'c, 'm, '_> {
    /// A float of up to 32 bits as f32, exactly.
    pub(super) fn widen(&self, dtype: DType, x: Value<'c, 'm>) -> Lowered<Value<'c, 'm>> {
        match dtype {
            DType::F32 => Ok(x),
            DType::F16 => Ok(self.build.extf(self.build.types.f32, x)),
            // The upper half of the bits. LLVM sees through to the word that was loaded, and each half of it
            // widens in one instruction; its own extension takes two for the upper one.
            DType::Bf16 => {
                let b = &self.build;
                let bits = b.extui(b.types.i32, b.bitcast(b.types.i16, x));
                Ok(b.bitcast(b.types.f32, b.shli(bits, b.int(b.types.i32, 16))))
            }
            DType::E4m3
            | DType::E5m2
            | DType::E2m1
            | DType::Ue8m0
            | DType::I8
            | DType::U8
            | DType::I32
            | DType::U32
            | DType::I64
            | DType::U64
            | DType::Bool => refuse(format!("{dtype} does not widen to f32")),
        }
    }

    /// An f32 as a float of `dtype`, rounded to nearest even.
    pub(super) fn narrow(&self, dtype: DType, x: Value<'c, 'm>) -> Lowered<Value<'c, 'm>> {
        match dtype {
            DType::F32 => Ok(x),
            DType::F16 => Ok(self.build.truncf(self.build.types.f16, x)),
            DType::Bf16 => Ok(self.build.truncf(self.build.types.bf16, x)),
            DType::E4m3
            | DType::E5m2
            | DType::E2m1
            | DType::Ue8m0
            | DType::I8
            | DType::U8
            | DType::I32
            | DType::U32
            | DType::I64
            | DType::U64
            | DType::Bool => refuse(format!("f32 does not narrow to {dtype}")),
        }
    }

    /// `x` as an element of `to`: floats round to nearest even, floats to integers truncate and saturate
    /// with NaN giving 0, integers to floats round once, integers to integers wrap, anything but zero is
    /// true.
    pub(super) fn convert(
        &self,
        from: DType,
        to: DType,
        x: Value<'c, 'm>,
    ) -> Lowered<Value<'c, 'm>> {
        let b = &self.build;
        let target = self.element_type(to)?;
        self.element_type(from)?;
        if from == to {
            return Ok(x);
        }
        match (from.is_float(), to.is_float()) {
            (true, true) => self.narrow(to, self.widen(from, x)?),
            (true, false) if to == DType::Bool => {
                let wide = self.widen(from, x)?;
                Ok(b.compare_float(CmpfPredicate::Une, wide, b.float(b.types.f32, 0.0)))
            }
            (true, false) => self.float_to_int(to, self.widen(from, x)?),
            (false, true) => {
                Ok(if from.is_signed_int() { b.sitofp(target, x) } else { b.uitofp(target, x) })
            }
            (false, false) if to == DType::Bool => {
                Ok(b.compare_int(CmpiPredicate::Ne, x, b.int(self.element_type(from)?, 0)))
            }
            (false, false) => {
                let bits = |dtype: DType| if dtype == DType::Bool { 1 } else { dtype.bits() };
                Ok(match bits(from).cmp(&bits(to)) {
                    std::cmp::Ordering::Equal => x,
                    std::cmp::Ordering::Greater => b.trunci(target, x),
                    std::cmp::Ordering::Less if from.is_signed_int() => b.extsi(target, x),
                    std::cmp::Ordering::Less => b.extui(target, x),
                })
            }
        }
    }

    fn float_to_int(&self, to: DType, x: Value<'c, 'm>) -> Lowered<Value<'c, 'm>> {
        let b = &self.build;
        let (i32, i64) = (b.types.i32, b.types.i64);
        // cvt to 64 bits gives a number for NaN.
        let unless_nan = |value| {
            let nan = b.compare_float(CmpfPredicate::Uno, x, x);
            b.select(nan, b.int(i64, 0), value)
        };
        Ok(match to {
            DType::I32 => b.intrinsic(Intrinsic::F32ToI32, i32, &[x]),
            DType::U32 => b.intrinsic(Intrinsic::F32ToU32, i32, &[x]),
            DType::I64 => unless_nan(b.intrinsic(Intrinsic::F32ToI64, i64, &[x])),
            DType::U64 => unless_nan(b.intrinsic(Intrinsic::F32ToU64, i64, &[x])),
            DType::I8 => {
                let wide = b.intrinsic(Intrinsic::F32ToI32, i32, &[x]);
                let low = b.maxsi(wide, b.int(i32, i8::MIN.into()));
                b.trunci(b.types.i8, b.minsi(low, b.int(i32, i8::MAX.into())))
            }
            DType::U8 => {
                let wide = b.intrinsic(Intrinsic::F32ToU32, i32, &[x]);
                b.trunci(b.types.i8, b.minui(wide, b.int(i32, u8::MAX.into())))
            }
            DType::F32
            | DType::F16
            | DType::Bf16
            | DType::E4m3
            | DType::E5m2
            | DType::E2m1
            | DType::Ue8m0
            | DType::Bool => return refuse(format!("{to} is no integer")),
        })
    }
}

//! Conversions between element types.

use kernel_abi::DType;
use kernel_abi::numeric::CANONICAL_NAN;
use melior::dialect::arith::{CmpfPredicate, CmpiPredicate};
use melior::ir::Value;

use super::{Lowered, Lowering, refuse};
use crate::mnemonic::{self, ByteFloat, Intrinsic};

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
            DType::E4m3 => Ok(self.widen_byte(ByteFloat::E4m3, x)),
            DType::E5m2 => Ok(self.widen_byte(ByteFloat::E5m2, x)),
            DType::Ue8m0 => Ok(self.widen_scale(x)),
            DType::E2m1
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
            DType::E4m3 => Ok(self.narrow_byte(ByteFloat::E4m3, x)),
            DType::E5m2 => Ok(self.narrow_byte(ByteFloat::E5m2, x)),
            DType::Ue8m0 => Ok(self.narrow_scale(x)),
            DType::E2m1
            | DType::I8
            | DType::U8
            | DType::I32
            | DType::U32
            | DType::I64
            | DType::U64
            | DType::Bool => refuse(format!("f32 does not narrow to {dtype}")),
        }
    }

    fn widen_byte(&self, format: ByteFloat, x: Value<'c, 'm>) -> Value<'c, 'm> {
        let b = &self.build;
        let pair = b.extui(b.types.i16, x);
        let wide = b.asm_values(&mnemonic::widen_bytes(format), &[pair], b.types.i32, 1)[0];
        let half = b.bitcast(b.types.f16, b.trunci(b.types.i16, wide));
        b.extf(b.types.f32, half)
    }

    fn narrow_byte(&self, format: ByteFloat, x: Value<'c, 'm>) -> Value<'c, 'm> {
        let b = &self.build;
        let operands = [b.float(b.types.f32, 0.0), x];
        let pair = b.asm_values(&mnemonic::narrow_bytes(format), &operands, b.types.i16, 1)[0];
        b.trunci(b.types.i8, pair)
    }

    /// 2^(code - 127): the code is the exponent, 0 is half of the least normal number, 255 is NaN.
    fn widen_scale(&self, code: Value<'c, 'm>) -> Value<'c, 'm> {
        let b = &self.build;
        let i32 = b.types.i32;
        let wide = b.extui(i32, code);
        let normal = b.shli(wide, b.int(i32, 23));
        let bits = b.maxui(normal, b.int(i32, 0x0040_0000));
        let is_nan = b.compare_int(CmpiPredicate::Eq, wide, b.int(i32, 255));
        let bits = b.select(is_nan, b.int(i32, i64::from(CANONICAL_NAN)), bits);
        b.bitcast(b.types.f32, bits)
    }

    /// The least power of two, from 2^-127 to 2^127, that is not below `x`; NaN for what is negative.
    pub(super) fn scale_up(&self, x: Value<'c, 'm>) -> Value<'c, 'm> {
        let b = &self.build;
        let i32 = b.types.i32;
        let bits = b.andi(b.bitcast(i32, x), b.int(i32, 0x7fff_ffff));
        let least = b.int(i32, 0x0040_0000);
        let next = b.addi(bits, b.int(i32, 0x007f_ffff));
        let power = b.andi(next, b.int(i32, 0x7f80_0000));
        let is_least = b.compare_int(CmpiPredicate::Ule, bits, least);
        let power = b.select(is_least, least, b.minui(power, b.int(i32, 0x7f00_0000)));
        let positive = b.compare_float(CmpfPredicate::Oge, x, b.float(b.types.f32, 0.0));
        let nan = b.int(i32, i64::from(CANONICAL_NAN));
        b.bitcast(b.types.f32, b.select(positive, power, nan))
    }

    /// The nearest power of two, ties to the even code; 255 for NaN and what is negative.
    fn narrow_scale(&self, x: Value<'c, 'm>) -> Value<'c, 'm> {
        let b = &self.build;
        let i32 = b.types.i32;
        let bits = b.andi(b.bitcast(i32, x), b.int(i32, 0x7fff_ffff));
        let exponent = b.shrui(bits, b.int(i32, 23));
        let odd = b.andi(exponent, b.int(i32, 1));
        let rounded = b.addi(b.addi(bits, b.int(i32, 0x003f_ffff)), odd);
        let normal = b.shrui(rounded, b.int(i32, 23));
        // below the normal range there is one power of two more, 2^-127
        let above = b.compare_int(CmpiPredicate::Ugt, bits, b.int(i32, 0x0060_0000));
        let is_small = b.compare_int(CmpiPredicate::Eq, exponent, b.int(i32, 0));
        let code = b.select(is_small, b.extui(i32, above), normal);
        let code = b.minui(code, b.int(i32, 254));
        let positive = b.compare_float(CmpfPredicate::Oge, x, b.float(b.types.f32, 0.0));
        b.trunci(b.types.i8, b.select(positive, code, b.int(i32, 255)))
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

//! Operations on one element, exactly as the table of numerics says.
//!
//! No fast-math flag is set anywhere and LLVM contracts nothing without one, so `a * b + c` stays two
//! roundings. Operations on bf16 and f16 are computed in f32 and rounded once. Nothing here is undefined
//! in LLVM: integer division and shifts guard their operands.

use kernel_abi::DType;
use kernel_ir::device::{Arg, FragId};
use kernel_ir::ops::{BinaryOp, CompareOp, UnaryOp};
use melior::dialect::arith::{CmpfPredicate, CmpiPredicate};
use melior::ir::{Type, Value};

use super::{Lowered, Lowering, refuse};
use crate::mnemonic::{self, Intrinsic, Shift};

/// log2 of e, rounded to f32.
const LOG2_E: f64 = std::f32::consts::LOG2_E as f64;

impl<'c, 'm> Lowering<'c, 'm, '_> {
    /// PTX of the author, once for each element.
    pub(super) fn inline(
        &self,
        dst: FragId,
        text: &str,
        inputs: &[Arg],
    ) -> Lowered<Vec<Value<'c, 'm>>> {
        let b = &self.build;
        let mut types = vec![self.frag(dst)?.dtype];
        for input in inputs {
            types.push(self.frag(input.frag)?.dtype);
        }
        let Some(asm) = mnemonic::inline(text, &types) else {
            return refuse("PTX of a type that it computes nothing of");
        };
        let register = |dtype: DType| -> Lowered<Type<'c>> {
            if dtype.bits() == 16 { Ok(b.types.i16) } else { self.element_type(dtype) }
        };
        let (result, whole) = (register(types[0])?, self.element_type(types[0])?);
        self.each(dst, |i| {
            let mut operands = Vec::with_capacity(inputs.len());
            for (input, &dtype) in inputs.iter().zip(&types[1..]) {
                let (value, own) = (self.operand(input, i)?, register(dtype)?);
                let is_half = own == b.types.i16;
                operands.push(if is_half { b.bitcast(own, value) } else { value });
            }
            let value = b.asm_values(&asm, &operands, result, 1)[0];
            Ok(if result == b.types.i16 { b.bitcast(whole, value) } else { value })
        })
    }

    /// `op(x)`.
    pub(super) fn unary(
        &self,
        op: UnaryOp,
        dtype: DType,
        x: Value<'c, 'm>,
    ) -> Lowered<Value<'c, 'm>> {
        let b = &self.build;
        if dtype.is_float() {
            match op {
                UnaryOp::Neg => return Ok(b.negf(x)),
                UnaryOp::Abs => return Ok(b.abs_float(x)),
                UnaryOp::Not => return refuse(format!("`not` is not defined for {dtype}")),
                UnaryOp::Exp
                | UnaryOp::Exp2
                | UnaryOp::Log2
                | UnaryOp::Tanh
                | UnaryOp::Sigmoid
                | UnaryOp::Rsqrt
                | UnaryOp::Sqrt
                | UnaryOp::ScaleUp => {}
            }
            let wide = self.widen(dtype, x)?;
            return self.narrow(dtype, self.unary_f32(op, wide)?);
        }
        let r#type = self.element_type(dtype)?;
        match op {
            UnaryOp::Neg if dtype.is_int() => Ok(b.subi(b.int(r#type, 0), x)),
            UnaryOp::Not => Ok(b.xori(x, b.int(r#type, -1))),
            UnaryOp::Abs if dtype.is_signed_int() => {
                let negative = b.compare_int(CmpiPredicate::Slt, x, b.int(r#type, 0));
                Ok(b.select(negative, b.subi(b.int(r#type, 0), x), x))
            }
            UnaryOp::Abs if dtype.is_int() => Ok(x),
            UnaryOp::Neg
            | UnaryOp::Abs
            | UnaryOp::Exp
            | UnaryOp::Exp2
            | UnaryOp::Log2
            | UnaryOp::Tanh
            | UnaryOp::Sigmoid
            | UnaryOp::Rsqrt
            | UnaryOp::Sqrt
            | UnaryOp::ScaleUp => refuse(format!("`{}` is not defined for {dtype}", op.name())),
        }
    }

    fn unary_f32(&self, op: UnaryOp, x: Value<'c, 'm>) -> Lowered<Value<'c, 'm>> {
        let b = &self.build;
        let f32 = b.types.f32;
        let one = || b.float(f32, 1.0);
        Ok(match op {
            UnaryOp::Exp => self.exp(x),
            UnaryOp::Exp2 => b.intrinsic(Intrinsic::Ex2, f32, &[x]),
            UnaryOp::Log2 => b.intrinsic(Intrinsic::Lg2, f32, &[x]),
            UnaryOp::Rsqrt => b.intrinsic(Intrinsic::Rsqrt, f32, &[x]),
            UnaryOp::Sqrt => b.sqrt(x),
            UnaryOp::ScaleUp => self.scale_up(x),
            UnaryOp::Tanh => {
                let two = b.float(f32, 2.0);
                let exp = self.exp(b.mulf(two, x));
                b.subf(one(), b.divf(two, b.addf(exp, one())))
            }
            UnaryOp::Sigmoid => {
                let exp = self.exp(b.negf(x));
                b.divf(one(), b.addf(one(), exp))
            }
            UnaryOp::Neg | UnaryOp::Not | UnaryOp::Abs => {
                return refuse(format!("`{}` takes another way", op.name()));
            }
        })
    }

    fn exp(&self, x: Value<'c, 'm>) -> Value<'c, 'm> {
        let b = &self.build;
        let scaled = b.mulf(x, b.float(b.types.f32, LOG2_E));
        b.intrinsic(Intrinsic::Ex2, b.types.f32, &[scaled])
    }

    /// `op(x, y)`.
    pub(super) fn binary(
        &self,
        op: BinaryOp,
        dtype: DType,
        x: Value<'c, 'm>,
        y: Value<'c, 'm>,
    ) -> Lowered<Value<'c, 'm>> {
        if dtype.is_float() {
            let (x, y) = (self.widen(dtype, x)?, self.widen(dtype, y)?);
            return self.narrow(dtype, self.binary_f32(op, x, y)?);
        }
        let b = &self.build;
        let signed = dtype.is_signed_int();
        Ok(match op {
            BinaryOp::And => b.andi(x, y),
            BinaryOp::Or => b.ori(x, y),
            BinaryOp::Xor => b.xori(x, y),
            BinaryOp::Add
            | BinaryOp::Sub
            | BinaryOp::Mul
            | BinaryOp::Div
            | BinaryOp::Rem
            | BinaryOp::Min
            | BinaryOp::Max
            | BinaryOp::Shl
            | BinaryOp::Shr
                if dtype == DType::Bool =>
            {
                return refuse(format!("`{}` is not defined for bool", op.name()));
            }
            BinaryOp::Add => b.addi(x, y),
            BinaryOp::Sub => b.subi(x, y),
            BinaryOp::Mul => b.muli(x, y),
            BinaryOp::Div | BinaryOp::Rem => return self.divide(op, dtype, x, y),
            BinaryOp::Min if signed => b.minsi(x, y),
            BinaryOp::Min => b.minui(x, y),
            BinaryOp::Max if signed => b.maxsi(x, y),
            BinaryOp::Max => b.maxui(x, y),
            BinaryOp::Shl | BinaryOp::Shr => return self.shift(op, dtype, x, y),
        })
    }

    fn binary_f32(
        &self,
        op: BinaryOp,
        x: Value<'c, 'm>,
        y: Value<'c, 'm>,
    ) -> Lowered<Value<'c, 'm>> {
        let b = &self.build;
        Ok(match op {
            BinaryOp::Add => b.addf(x, y),
            BinaryOp::Sub => b.subf(x, y),
            BinaryOp::Mul => b.mulf(x, y),
            BinaryOp::Div => b.divf(x, y),
            BinaryOp::Min => b.intrinsic(Intrinsic::Min, b.types.f32, &[x, y]),
            BinaryOp::Max => b.intrinsic(Intrinsic::Max, b.types.f32, &[x, y]),
            BinaryOp::Rem
            | BinaryOp::And
            | BinaryOp::Or
            | BinaryOp::Xor
            | BinaryOp::Shl
            | BinaryOp::Shr => {
                return refuse(format!("`{}` is not defined for floating point", op.name()));
            }
        })
    }

    /// Division and remainder, truncating. By zero, which the emulator reports, they divide by one; the
    /// least number by -1 wraps. LLVM would take either for impossible.
    fn divide(
        &self,
        op: BinaryOp,
        dtype: DType,
        x: Value<'c, 'm>,
        y: Value<'c, 'm>,
    ) -> Lowered<Value<'c, 'm>> {
        let b = &self.build;
        let r#type = self.element_type(dtype)?;
        let (zero, one) = (b.int(r#type, 0), b.int(r#type, 1));
        let by_zero = b.compare_int(CmpiPredicate::Eq, y, zero);
        let quotient = op == BinaryOp::Div;
        if !dtype.is_signed_int() {
            let y = b.select(by_zero, one, y);
            return Ok(if quotient { b.divui(x, y) } else { b.remui(x, y) });
        }
        let by_minus_one = b.compare_int(CmpiPredicate::Eq, y, b.int(r#type, -1));
        let unsafe_divisor = b.ori(by_zero, by_minus_one);
        let safe = b.select(unsafe_divisor, one, y);
        let (plain, special) =
            if quotient { (b.divsi(x, safe), b.subi(zero, x)) } else { (b.remsi(x, safe), zero) };
        Ok(b.select(by_minus_one, special, plain))
    }

    /// Shifts, with what PTX does for amounts past the width: no bit of the operand is left, but for the
    /// sign. Those of 64 bits are PTX's own: LLVM 22 turns a guard like the one below into the clamping that
    /// PTX does, but on the low 32 bits of the amount, so that a shift by 2^32 would shift by nothing.
    fn shift(
        &self,
        op: BinaryOp,
        dtype: DType,
        x: Value<'c, 'm>,
        amount: Value<'c, 'm>,
    ) -> Lowered<Value<'c, 'm>> {
        let b = &self.build;
        let r#type = self.element_type(dtype)?;
        let width = i64::from(dtype.bits());
        if width == 64 {
            let past = b.int(r#type, width);
            let amount = b.trunci(b.types.i32, b.minui(amount, past));
            let direction = if op == BinaryOp::Shl {
                Shift::Left
            } else if dtype.is_signed_int() {
                Shift::RightSigned
            } else {
                Shift::Right
            };
            let asm = mnemonic::shift_64(direction);
            return Ok(b.asm_values(&asm, &[x, amount], r#type, 1)[0]);
        }
        let last = b.int(r#type, width - 1);
        let fits = b.compare_int(CmpiPredicate::Ule, amount, last);
        let within = b.select(fits, amount, last);
        if op == BinaryOp::Shr && dtype.is_signed_int() {
            return Ok(b.shrsi(x, within));
        }
        let shifted = if op == BinaryOp::Shl { b.shli(x, within) } else { b.shrui(x, within) };
        Ok(b.select(fits, shifted, b.int(r#type, 0)))
    }

    /// `op(x, y)` as a bool.
    pub(super) fn compare(
        &self,
        op: CompareOp,
        dtype: DType,
        x: Value<'c, 'm>,
        y: Value<'c, 'm>,
    ) -> Lowered<Value<'c, 'm>> {
        let b = &self.build;
        if dtype.is_float() {
            let predicate = match op {
                CompareOp::Eq => CmpfPredicate::Oeq,
                CompareOp::Ne => CmpfPredicate::Une,
                CompareOp::Lt => CmpfPredicate::Olt,
                CompareOp::Le => CmpfPredicate::Ole,
                CompareOp::Gt => CmpfPredicate::Ogt,
                CompareOp::Ge => CmpfPredicate::Oge,
            };
            let (x, y) = (self.widen(dtype, x)?, self.widen(dtype, y)?);
            return Ok(b.compare_float(predicate, x, y));
        }
        let signed = dtype.is_signed_int();
        let predicate = match op {
            CompareOp::Eq => CmpiPredicate::Eq,
            CompareOp::Ne => CmpiPredicate::Ne,
            CompareOp::Lt if signed => CmpiPredicate::Slt,
            CompareOp::Lt => CmpiPredicate::Ult,
            CompareOp::Le if signed => CmpiPredicate::Sle,
            CompareOp::Le => CmpiPredicate::Ule,
            CompareOp::Gt if signed => CmpiPredicate::Sgt,
            CompareOp::Gt => CmpiPredicate::Ugt,
            CompareOp::Ge if signed => CmpiPredicate::Sge,
            CompareOp::Ge => CmpiPredicate::Uge,
        };
        Ok(b.compare_int(predicate, x, y))
    }
}

//! Which operand types an operation takes, and what it gives.
//!
//! Each function returns the dtype of the result or a [`Refusal`] that says why not and what to write.
//! Shapes are not judged here.

use kernel_abi::DType;

use super::elementwise::{BinaryOp, CompareOp, ReduceOp, UnaryOp};

/// Why an operation does not take its operands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Whether the language forbids it or this version lacks it.
    pub kind: RefusalKind,
    /// The mistake in one line, lower case, without a full stop.
    pub reason: String,
    /// What to write instead, where something can be said.
    pub help: Option<String>,
}

/// Whether the language forbids an operation or this version lacks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// It has no meaning in the language.
    Wrong,
    /// It is legal and not built yet.
    NotBuilt,
}

impl Refusal {
    fn wrong(reason: String, help: Option<String>) -> Refusal {
        Refusal { kind: RefusalKind::Wrong, reason, help }
    }

    fn not_built(reason: String) -> Refusal {
        Refusal { kind: RefusalKind::NotBuilt, reason, help: None }
    }
}

/// What a dtype can do in registers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    F32,
    /// f16 and bf16: arithmetic is done in f32 and rounded once.
    Half,
    Signed,
    Unsigned,
    Bool,
    /// The formats of 8 bits and less: conversions only.
    Packed,
}

fn class(dtype: DType) -> Class {
    match dtype {
        DType::F32 => Class::F32,
        DType::F16 | DType::Bf16 => Class::Half,
        DType::E4m3 | DType::E5m2 | DType::E2m1 | DType::Ue8m0 => Class::Packed,
        DType::I8 | DType::I32 | DType::I64 => Class::Signed,
        DType::U8 | DType::U32 | DType::U64 => Class::Unsigned,
        DType::Bool => Class::Bool,
    }
}

/// A conversion to write around an operand of this type, where one helps.
fn conversion(dtype: DType) -> Option<String> {
    match class(dtype) {
        Class::Half | Class::Packed => Some("convert first: `f32(x)`".into()),
        Class::Signed | Class::Unsigned => Some("convert first: `f32(x)` rounds to f32".into()),
        Class::F32 | Class::Bool => None,
    }
}

fn refuse(what: &str, takes: &str, found: DType) -> Refusal {
    Refusal::wrong(format!("{what} takes {takes}, not {found}"), conversion(found))
}

fn same(what: &str, a: DType, b: DType) -> Result<DType, Refusal> {
    if a == b {
        return Ok(a);
    }
    Err(Refusal::wrong(
        format!("{what} of {a} and {b}: both operands must have one type"),
        Some("conversions are always written: convert one operand".into()),
    ))
}

/// The type of `op(x)`.
pub fn unary(op: UnaryOp, x: DType) -> Result<DType, Refusal> {
    let class = class(x);
    let (takes, fits) = match op {
        UnaryOp::Neg => (
            "f32, f16, bf16 and signed integers",
            matches!(class, Class::F32 | Class::Half | Class::Signed),
        ),
        UnaryOp::Abs => (
            "f32, f16, bf16 and signed integers",
            matches!(class, Class::F32 | Class::Half | Class::Signed),
        ),
        UnaryOp::Not => {
            ("bool and integers", matches!(class, Class::Bool | Class::Signed | Class::Unsigned))
        }
        UnaryOp::Exp
        | UnaryOp::Exp2
        | UnaryOp::Log2
        | UnaryOp::Tanh
        | UnaryOp::Sigmoid
        | UnaryOp::Rsqrt
        | UnaryOp::Sqrt
        | UnaryOp::ScaleUp => ("f32 only", class == Class::F32),
    };
    if fits { Ok(x) } else { Err(refuse(&format!("`{}`", op.name()), takes, x)) }
}

/// The symbol or name of a binary operation, for messages.
pub fn binary_symbol(op: BinaryOp) -> &'static str {
    match op {
        BinaryOp::Add => "+",
        BinaryOp::Sub => "-",
        BinaryOp::Mul => "*",
        BinaryOp::Div => "/",
        BinaryOp::Rem => "%",
        BinaryOp::Min => "min",
        BinaryOp::Max => "max",
        BinaryOp::And => "&",
        BinaryOp::Or => "|",
        BinaryOp::Xor => "^",
        BinaryOp::Shl => "<<",
        BinaryOp::Shr => ">>",
    }
}

/// The type of `op(a, b)`.
pub fn binary(op: BinaryOp, a: DType, b: DType) -> Result<DType, Refusal> {
    let what = format!("`{}`", binary_symbol(op));
    let dtype = same(&what, a, b)?;
    let class = class(dtype);
    let integer = matches!(class, Class::Signed | Class::Unsigned);
    let (takes, fits) = match op {
        BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Min | BinaryOp::Max => {
            ("f32, f16, bf16 and integers", integer || matches!(class, Class::F32 | Class::Half))
        }
        BinaryOp::Div => ("f32 and integers", integer || class == Class::F32),
        BinaryOp::Rem | BinaryOp::Shl | BinaryOp::Shr => ("integers", integer),
        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => {
            ("bool and integers", integer || class == Class::Bool)
        }
    };
    if fits { Ok(dtype) } else { Err(refuse(&what, takes, dtype)) }
}

/// The type of a comparison: bool.
pub fn compare(op: CompareOp, a: DType, b: DType) -> Result<DType, Refusal> {
    let what = format!("the comparison `{}`", op.name());
    let dtype = same(&what, a, b)?;
    match class(dtype) {
        Class::F32 | Class::Half | Class::Signed | Class::Unsigned => Ok(DType::Bool),
        Class::Bool if matches!(op, CompareOp::Eq | CompareOp::Ne) => Ok(DType::Bool),
        Class::Bool => Err(refuse(&what, "numbers", dtype)),
        Class::Packed => Err(refuse(&what, "f32, f16, bf16 and integers", dtype)),
    }
}

/// The type of `select(cond, a, b)`.
pub fn select(cond: DType, a: DType, b: DType) -> Result<DType, Refusal> {
    if cond != DType::Bool {
        return Err(Refusal::wrong(
            format!("the condition of `select` must be bool, not {cond}"),
            Some("compare: `x != 0`".into()),
        ));
    }
    match same("`select`", a, b)? {
        DType::E2m1 => Err(refuse("`select`", "no packed elements", DType::E2m1)),
        dtype => Ok(dtype),
    }
}

/// The type of `fma(a, b, c)`: f32.
pub fn fma(a: DType, b: DType, c: DType) -> Result<DType, Refusal> {
    match [a, b, c].into_iter().find(|&d| d != DType::F32) {
        None => Ok(DType::F32),
        Some(found) => Err(refuse("`fma`", "f32 only", found)),
    }
}

/// The type of a conversion from `from` to `to`: `to`.
pub fn convert(from: DType, to: DType) -> Result<DType, Refusal> {
    if to == DType::E2m1 && from != to {
        return Err(Refusal::not_built("conversions to e2m1".into()));
    }
    if class(to) == Class::Packed && !from.is_float() {
        return Err(Refusal::wrong(
            format!("{from} does not convert to {to}"),
            Some(format!("round to f32 first: `{to}(f32(x))`")),
        ));
    }
    if to == DType::Bool && from != DType::Bool {
        return Err(Refusal::wrong(
            format!("{from} does not convert to bool"),
            Some("compare: `x != 0`".into()),
        ));
    }
    Ok(to)
}

/// The type of `reduce.op(x, axis)`.
pub fn reduce(op: ReduceOp, x: DType) -> Result<DType, Refusal> {
    let what = format!("`reduce.{}`", op.name());
    match x {
        DType::F32 | DType::I32 | DType::U32 => Ok(x),
        DType::I64 | DType::U64 => Err(Refusal::not_built(format!("{what} on {x}"))),
        DType::F16
        | DType::Bf16
        | DType::E4m3
        | DType::E5m2
        | DType::E2m1
        | DType::Ue8m0
        | DType::I8
        | DType::U8
        | DType::Bool => Err(refuse(&what, "f32, i32 and u32", x)),
    }
}

/// The type of `scan.add(x, axis)`. Integers only: sums of floats would need an order of their own.
pub fn scan(x: DType) -> Result<DType, Refusal> {
    let what = "`scan.add`";
    match x {
        DType::I32 | DType::U32 => Ok(x),
        DType::F32 | DType::I64 | DType::U64 => Err(Refusal::not_built(format!("{what} on {x}"))),
        DType::F16
        | DType::Bf16
        | DType::E4m3
        | DType::E5m2
        | DType::E2m1
        | DType::Ue8m0
        | DType::I8
        | DType::U8
        | DType::Bool => Err(refuse(what, "i32 and u32", x)),
    }
}

/// The types of `argmax(x, axis)`: of the value and of the index.
pub fn argmax(x: DType) -> Result<(DType, DType), Refusal> {
    match x {
        DType::F32 | DType::I32 => Ok((x, DType::I32)),
        DType::F16
        | DType::Bf16
        | DType::E4m3
        | DType::E5m2
        | DType::E2m1
        | DType::Ue8m0
        | DType::I8
        | DType::U8
        | DType::U32
        | DType::I64
        | DType::U64
        | DType::Bool => Err(refuse("`argmax`", "f32 and i32", x)),
    }
}

/// The type of a contraction: f32 operands, f32 running value, f32 result.
pub fn contract(a: DType, b: DType, acc: Option<DType>) -> Result<DType, Refusal> {
    match [a, b].into_iter().chain(acc).find(|&d| d != DType::F32) {
        None => Ok(DType::F32),
        Some(found) => Err(refuse("`contract`", "f32 only", found)),
    }
}

/// The type of a contraction on the tensor core: operands of one type, f16, bf16 or e4m3, running value and result
/// f32.
pub fn mma(a: DType, b: DType, acc: Option<DType>) -> Result<DType, Refusal> {
    if let Some(found) = [a, b].into_iter().find(|d| !is_factor(*d)) {
        return Err(refuse("`mma_sync`", "bf16, f16 or e4m3", found));
    }
    if a != b {
        return Err(refuse("`mma_sync`", "two operands of one type", b));
    }
    match acc.filter(|&acc| acc != DType::F32) {
        None => Ok(DType::F32),
        Some(found) => Err(refuse("`mma_sync`", "a running value of f32", found)),
    }
}

/// True for the types whose products are exact on the tensor core: e4m3 by way of f16.
fn is_factor(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::Bf16 | DType::E4m3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_say_what_to_write() {
        let refusal = unary(UnaryOp::Exp, DType::Bf16).unwrap_err();
        assert_eq!(refusal.reason, "`exp` takes f32 only, not bf16");
        assert_eq!(refusal.help.as_deref(), Some("convert first: `f32(x)`"));
        let refusal = binary(BinaryOp::Add, DType::F32, DType::Bf16).unwrap_err();
        assert_eq!(refusal.reason, "`+` of f32 and bf16: both operands must have one type");
        assert!(binary(BinaryOp::Div, DType::Bf16, DType::Bf16).is_err());
        assert!(binary(BinaryOp::Rem, DType::F32, DType::F32).is_err());
        assert!(binary(BinaryOp::And, DType::Bool, DType::Bool).is_ok());
        assert!(compare(CompareOp::Lt, DType::Bool, DType::Bool).is_err());
        assert!(convert(DType::F32, DType::Bool).is_err());
        assert_eq!(convert(DType::Bool, DType::F32), Ok(DType::F32));
        assert_eq!(convert(DType::E4m3, DType::F32), Ok(DType::F32));
        assert_eq!(convert(DType::F32, DType::E2m1).unwrap_err().kind, RefusalKind::NotBuilt);
        assert_eq!(convert(DType::I32, DType::E4m3).unwrap_err().kind, RefusalKind::Wrong);
        assert_eq!(reduce(ReduceOp::Max, DType::I64).unwrap_err().kind, RefusalKind::NotBuilt);
        assert!(select(DType::I32, DType::F32, DType::F32).is_err());
        assert!(fma(DType::F32, DType::F16, DType::F32).is_err());
        assert_eq!(argmax(DType::F32), Ok((DType::F32, DType::I32)));
        assert!(contract(DType::F32, DType::F32, Some(DType::I32)).is_err());
    }
}

//! Constants: 64-bit integers, 64-bit floats and truth values, with checked arithmetic.

use std::fmt;
use std::str::FromStr;

use kernel_abi::DType;
use kernel_dsl::ast::{BinaryOp, UnaryOp};

/// The value of a constant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ConstValue {
    /// `int`
    Int(i64),
    /// `float`
    Float(f64),
    /// `bool`
    Bool(bool),
}

impl ConstValue {
    /// What the language calls the type of the value.
    pub fn type_name(self) -> &'static str {
        match self {
            ConstValue::Int(_) => "int",
            ConstValue::Float(_) => "float",
            ConstValue::Bool(_) => "bool",
        }
    }
}

impl fmt::Display for ConstValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConstValue::Int(v) => write!(f, "{v}"),
            ConstValue::Float(v) => write!(f, "{v:?}"),
            ConstValue::Bool(v) => write!(f, "{v}"),
        }
    }
}

/// The text is no constant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither an integer, a float, nor `true` or `false`")]
pub struct NoConstant(String);

impl FromStr for ConstValue {
    type Err = NoConstant;

    /// Reads the value of a binding: `7168`, `-1`, `0.5`, `true`.
    fn from_str(text: &str) -> Result<Self, NoConstant> {
        let plain = text.trim();
        match plain {
            "true" => return Ok(ConstValue::Bool(true)),
            "false" => return Ok(ConstValue::Bool(false)),
            _ => {}
        }
        if let Ok(value) = plain.parse() {
            return Ok(ConstValue::Int(value));
        }
        let looks_numeric = plain.contains(|c: char| c.is_ascii_digit());
        match plain.parse::<f64>() {
            Ok(value) if looks_numeric && value.is_finite() => Ok(ConstValue::Float(value)),
            Ok(_) | Err(_) => Err(NoConstant(text.to_owned())),
        }
    }
}

/// A constant in an expression. A literal has no element type and takes that of what it meets; a
/// conversion such as `bf16(0.0)` gives it one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Const {
    pub(super) value: ConstValue,
    pub(super) dtype: Option<DType>,
}

impl Const {
    pub(super) fn int(value: i64) -> Const {
        Const { value: ConstValue::Int(value), dtype: None }
    }

    pub(super) fn float(value: f64) -> Const {
        Const { value: ConstValue::Float(value), dtype: None }
    }

    pub(super) fn bool(value: bool) -> Const {
        Const { value: ConstValue::Bool(value), dtype: None }
    }

    /// The element type, or that which the value takes when nothing else asks for one.
    pub(super) fn natural_dtype(self) -> DType {
        self.dtype.unwrap_or(match self.value {
            ConstValue::Int(_) => DType::I32,
            ConstValue::Float(_) => DType::F32,
            ConstValue::Bool(_) => DType::Bool,
        })
    }

    /// What messages call its type.
    pub(super) fn type_name(self) -> &'static str {
        match self.dtype {
            Some(dtype) => dtype.name(),
            None => self.value.type_name(),
        }
    }
}

/// Why arithmetic on constants has no result.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum FoldError {
    /// The value does not exist or does not fit: code E0214.
    NoValue(String),
    /// The operand types do not go together: code E0203.
    Types(String),
    /// Folding would need the rounding of a narrow float; the operation is left for run time.
    NotFolded,
}

type Fold = Result<Const, FoldError>;

/// True for floats that are narrower than the constants' own arithmetic may be rounded to.
fn is_narrow(dtype: DType) -> bool {
    dtype.is_float() && dtype != DType::F32
}

/// The bounds of an integer type.
pub(super) fn int_range(dtype: DType) -> Option<(i128, i128)> {
    let bits = dtype.bits();
    if !dtype.is_int() {
        return None;
    }
    Some(if dtype.is_signed_int() {
        (-(1_i128 << (bits - 1)), (1_i128 << (bits - 1)) - 1)
    } else {
        (0, (1_i128 << bits) - 1)
    })
}

/// The value as a constant of `dtype`, without changing what it stands for.
pub(super) fn adapt(c: Const, dtype: DType) -> Fold {
    if let Some(own) = c.dtype
        && own != dtype
    {
        return Err(FoldError::Types(format!("a constant of type {own} where {dtype} is needed")));
    }
    match c.value {
        ConstValue::Int(v) if dtype.is_int() => {
            let (lo, hi) = int_range(dtype).unwrap_or((0, 0));
            if (lo..=hi).contains(&i128::from(v)) {
                Ok(Const { value: c.value, dtype: Some(dtype) })
            } else {
                Err(FoldError::NoValue(format!("{v} does not fit in {dtype}")))
            }
        }
        ConstValue::Float(v) if dtype.is_float() => {
            Ok(Const { value: ConstValue::Float(round(v, dtype)?), dtype: Some(dtype) })
        }
        ConstValue::Bool(_) if dtype == DType::Bool => {
            Ok(Const { value: c.value, dtype: Some(dtype) })
        }
        ConstValue::Int(_) | ConstValue::Float(_) | ConstValue::Bool(_) => Err(FoldError::Types(
            format!("the {} constant {} where {dtype} is needed", c.value.type_name(), c.value),
        )),
    }
}

/// Rounds to f32; narrower floats keep the value, since the literal is rounded once when it is used.
fn round(v: f64, dtype: DType) -> Result<f64, FoldError> {
    let (rounded, largest) = match dtype {
        DType::F32 => (f64::from(v as f32), f64::from(f32::MAX)),
        DType::F16 => (v, 65_504.0),
        // 0x7f7f
        DType::Bf16 => (v, 3.389_531_389_251_535_5e38),
        DType::E4m3 => (v, 448.0),
        DType::E5m2 => (v, 57_344.0),
        DType::E2m1 => (v, 6.0),
        DType::Ue8m0
        | DType::I8
        | DType::U8
        | DType::I32
        | DType::U32
        | DType::I64
        | DType::U64
        | DType::Bool => (v, f64::MAX),
    };
    if v.is_finite() && v.abs() > largest {
        return Err(FoldError::NoValue(format!("{v:?} is beyond the range of {dtype}")));
    }
    Ok(rounded)
}

/// `dtype(c)`: a conversion that the author wrote.
pub(super) fn convert(c: Const, dtype: DType) -> Fold {
    if c.dtype.is_some_and(is_narrow) && c.dtype != Some(dtype) {
        return Err(FoldError::NotFolded);
    }
    let value = match (c.value, dtype.is_float(), dtype.is_int()) {
        (ConstValue::Int(v), true, _) => {
            let wide = if dtype == DType::F32 { f64::from(v as f32) } else { v as f64 };
            ConstValue::Float(wide)
        }
        (ConstValue::Bool(v), true, _) => ConstValue::Float(f64::from(u8::from(v))),
        (ConstValue::Float(v), _, true) => {
            let whole = v.trunc();
            // casts of floats saturate, so compare first; 2^63 is the first float above the range
            let limit = 2.0_f64.powi(63);
            if !(-limit..limit).contains(&whole) {
                return Err(FoldError::NoValue(format!("{v:?} does not fit in {dtype}")));
            }
            ConstValue::Int(whole as i64)
        }
        (ConstValue::Bool(v), _, true) => ConstValue::Int(i64::from(v)),
        (value, _, _) => value,
    };
    adapt(Const { value, dtype: None }, dtype)
}

/// The common element type of two operands, and both as constants of it.
fn pair(a: Const, b: Const) -> Result<(Const, Const), FoldError> {
    match (a.dtype, b.dtype) {
        (Some(x), None) => Ok((a, adapt(b, x)?)),
        (None, Some(y)) => Ok((adapt(a, y)?, b)),
        (Some(x), Some(y)) if x != y => Err(FoldError::Types(format!("{x} and {y}"))),
        (Some(_), Some(_)) | (None, None) => Ok((a, b)),
    }
}

fn typed(value: ConstValue, dtype: Option<DType>) -> Fold {
    match dtype {
        Some(dtype) => adapt(Const { value, dtype: None }, dtype),
        None => Ok(Const { value, dtype: None }),
    }
}

/// `op c`
pub(super) fn unary(op: UnaryOp, c: Const) -> Fold {
    let value = match (op, c.value) {
        (UnaryOp::Neg, ConstValue::Int(v)) => {
            let negated = v.checked_neg();
            ConstValue::Int(negated.ok_or_else(|| FoldError::NoValue(format!("-({v}) overflows")))?)
        }
        (UnaryOp::Neg, ConstValue::Float(v)) => ConstValue::Float(-v),
        (UnaryOp::Not, ConstValue::Bool(v)) => ConstValue::Bool(!v),
        (UnaryOp::BitNot, ConstValue::Int(v)) => match c.dtype.map(int_range) {
            Some(Some((0, hi))) => ConstValue::Int(i64::try_from(hi).map_or(!v, |hi| hi - v)),
            Some(_) | None => ConstValue::Int(!v),
        },
        (UnaryOp::Neg | UnaryOp::Not | UnaryOp::BitNot, _) => {
            return Err(FoldError::Types(format!("`{}` on {}", op.symbol(), c.type_name())));
        }
    };
    typed(value, c.dtype)
}

/// `a op b`
pub(super) fn binary(op: BinaryOp, a: Const, b: Const) -> Fold {
    let (a, b) = pair(a, b)?;
    let dtype = a.dtype;
    if dtype.is_some_and(is_narrow) {
        return Err(FoldError::NotFolded);
    }
    let types = || {
        let (x, y) = (a.type_name(), b.type_name());
        FoldError::Types(format!("`{}` on {x} and {y}", op.symbol()))
    };
    match (a.value, b.value) {
        (ConstValue::Int(x), ConstValue::Int(y)) => {
            if let Some(holds) = compare(op, &x, &y) {
                return Ok(Const::bool(holds));
            }
            typed(ConstValue::Int(int(op, x, y).map_err(|e| e.unwrap_or_else(types))?), dtype)
        }
        (ConstValue::Float(x), ConstValue::Float(y)) => {
            if let Some(holds) = compare(op, &x, &y) {
                return Ok(Const::bool(holds));
            }
            let value = float(op, x, y).ok_or_else(types)?;
            if value.is_nan() && !x.is_nan() && !y.is_nan() {
                return Err(FoldError::NoValue(format!(
                    "{x:?} {} {y:?} has no value",
                    op.symbol()
                )));
            }
            if value.is_infinite() && x.is_finite() && y.is_finite() {
                return Err(FoldError::NoValue(format!("{x:?} {} {y:?} overflows", op.symbol())));
            }
            typed(ConstValue::Float(value), dtype)
        }
        (ConstValue::Bool(x), ConstValue::Bool(y)) => {
            let value = match op {
                BinaryOp::Or | BinaryOp::BitOr => x | y,
                BinaryOp::And | BinaryOp::BitAnd => x & y,
                BinaryOp::BitXor | BinaryOp::Ne => x != y,
                BinaryOp::Eq => x == y,
                BinaryOp::Lt
                | BinaryOp::Le
                | BinaryOp::Gt
                | BinaryOp::Ge
                | BinaryOp::Shl
                | BinaryOp::Shr
                | BinaryOp::Add
                | BinaryOp::Sub
                | BinaryOp::Mul
                | BinaryOp::Div
                | BinaryOp::Rem => return Err(types()),
            };
            typed(ConstValue::Bool(value), dtype)
        }
        (ConstValue::Int(_) | ConstValue::Float(_) | ConstValue::Bool(_), _) => Err(types()),
    }
}

fn compare<T: PartialOrd>(op: BinaryOp, x: &T, y: &T) -> Option<bool> {
    Some(match op {
        BinaryOp::Eq => x == y,
        BinaryOp::Ne => x != y,
        BinaryOp::Lt => x < y,
        BinaryOp::Le => x <= y,
        BinaryOp::Gt => x > y,
        BinaryOp::Ge => x >= y,
        BinaryOp::Or
        | BinaryOp::And
        | BinaryOp::BitOr
        | BinaryOp::BitXor
        | BinaryOp::BitAnd
        | BinaryOp::Shl
        | BinaryOp::Shr
        | BinaryOp::Add
        | BinaryOp::Sub
        | BinaryOp::Mul
        | BinaryOp::Div
        | BinaryOp::Rem => return None,
    })
}

/// `Err(None)`: the operation does not exist on integers.
fn int(op: BinaryOp, x: i64, y: i64) -> Result<i64, Option<FoldError>> {
    let value = match op {
        BinaryOp::Add => x.checked_add(y),
        BinaryOp::Sub => x.checked_sub(y),
        BinaryOp::Mul => x.checked_mul(y),
        BinaryOp::Div | BinaryOp::Rem if y == 0 => {
            return Err(Some(FoldError::NoValue(format!(
                "{x} {} 0: division by zero",
                op.symbol()
            ))));
        }
        BinaryOp::Div => x.checked_div(y),
        BinaryOp::Rem => x.checked_rem(y),
        BinaryOp::BitAnd => Some(x & y),
        BinaryOp::BitOr => Some(x | y),
        BinaryOp::BitXor => Some(x ^ y),
        BinaryOp::Shl => {
            u32::try_from(y).ok().filter(|&by| by < 63).and_then(|by| x.checked_mul(1_i64 << by))
        }
        BinaryOp::Shr => u32::try_from(y).ok().and_then(|by| x.checked_shr(by)),
        BinaryOp::Or
        | BinaryOp::And
        | BinaryOp::Eq
        | BinaryOp::Ne
        | BinaryOp::Lt
        | BinaryOp::Le
        | BinaryOp::Gt
        | BinaryOp::Ge => return Err(None),
    };
    value.ok_or_else(|| Some(FoldError::NoValue(format!("{x} {} {y} overflows", op.symbol()))))
}

fn float(op: BinaryOp, x: f64, y: f64) -> Option<f64> {
    match op {
        BinaryOp::Add => Some(x + y),
        BinaryOp::Sub => Some(x - y),
        BinaryOp::Mul => Some(x * y),
        BinaryOp::Div => Some(x / y),
        BinaryOp::Rem
        | BinaryOp::BitAnd
        | BinaryOp::BitOr
        | BinaryOp::BitXor
        | BinaryOp::Shl
        | BinaryOp::Shr
        | BinaryOp::Or
        | BinaryOp::And
        | BinaryOp::Eq
        | BinaryOp::Ne
        | BinaryOp::Lt
        | BinaryOp::Le
        | BinaryOp::Gt
        | BinaryOp::Ge => None,
    }
}

/// `min(a, b)`, or `max(a, b)` with `greatest`: a NaN loses.
pub(super) fn extreme(greatest: bool, a: Const, b: Const) -> Fold {
    let (a, b) = pair(a, b)?;
    let value = match (a.value, b.value) {
        (ConstValue::Int(x), ConstValue::Int(y)) => {
            ConstValue::Int(if greatest { x.max(y) } else { x.min(y) })
        }
        (ConstValue::Float(x), ConstValue::Float(y)) => {
            ConstValue::Float(if greatest { x.max(y) } else { x.min(y) })
        }
        (ConstValue::Int(_) | ConstValue::Float(_) | ConstValue::Bool(_), _) => {
            return Err(FoldError::Types(format!("{} and {}", a.type_name(), b.type_name())));
        }
    };
    Ok(Const { value, dtype: a.dtype })
}

/// `ceil_div(a, b)`: the least integer that is not below a / b.
pub(super) fn ceil_div(a: Const, b: Const) -> Fold {
    let (a, b) = pair(a, b)?;
    let (ConstValue::Int(x), ConstValue::Int(y)) = (a.value, b.value) else {
        return Err(FoldError::Types(format!("{} and {}", a.type_name(), b.type_name())));
    };
    if y <= 0 {
        return Err(FoldError::NoValue(format!("ceil_div({x}, {y}) needs a positive divisor")));
    }
    let quotient = x.div_euclid(y) + i64::from(x.rem_euclid(y) != 0);
    typed(ConstValue::Int(quotient), a.dtype)
}

/// `abs(c)`
pub(super) fn abs(c: Const) -> Fold {
    let value = match c.value {
        ConstValue::Int(v) => {
            let v = v.checked_abs();
            ConstValue::Int(v.ok_or_else(|| FoldError::NoValue("abs overflows".to_owned()))?)
        }
        ConstValue::Float(v) => ConstValue::Float(v.abs()),
        ConstValue::Bool(_) => return Err(FoldError::Types("`abs` on bool".to_owned())),
    };
    typed(value, c.dtype)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_value(fold: Fold) -> bool {
        matches!(fold, Err(FoldError::NoValue(_)))
    }

    #[test]
    fn arithmetic_is_checked() {
        let (a, b) = (Const::int(i64::MAX), Const::int(1));
        assert!(no_value(binary(BinaryOp::Add, a, b)));
        assert!(no_value(binary(BinaryOp::Mul, a, Const::int(2))));
        assert!(no_value(binary(BinaryOp::Div, a, Const::int(0))));
        assert!(no_value(binary(BinaryOp::Rem, Const::int(i64::MIN), Const::int(-1))));
        assert!(no_value(binary(BinaryOp::Div, Const::int(i64::MIN), Const::int(-1))));
        assert!(no_value(binary(BinaryOp::Shl, b, Const::int(63))));
        assert!(no_value(binary(BinaryOp::Shr, b, Const::int(-1))));
        assert!(no_value(unary(UnaryOp::Neg, Const::int(i64::MIN))));
        assert!(no_value(abs(Const::int(i64::MIN))));
        assert!(no_value(ceil_div(a, Const::int(0))));
        assert!(no_value(binary(BinaryOp::Div, Const::float(0.0), Const::float(0.0))));
        assert!(no_value(convert(Const::float(1e300), DType::I64)));
        assert!(no_value(convert(Const::float(f64::NAN), DType::I32)));
        assert!(no_value(adapt(Const::float(1e39), DType::F32)));
        assert!(no_value(adapt(Const::int(300), DType::U8)));
        assert_eq!(ceil_div(a, b), Ok(a));
        assert_eq!(ceil_div(Const::int(-5), Const::int(4)), Ok(Const::int(-1)));
    }

    #[test]
    fn a_literal_takes_the_type_it_meets_and_never_changes_its_kind() {
        let half = convert(Const::float(0.1), DType::F32).unwrap();
        assert_eq!(half.value, ConstValue::Float(f64::from(0.1_f32)));
        let sum = binary(BinaryOp::Add, half, Const::float(0.2)).unwrap();
        assert_eq!(sum.dtype, Some(DType::F32));
        assert_eq!(sum.value, ConstValue::Float(f64::from(0.1_f32 + 0.2_f32)));
        assert!(matches!(binary(BinaryOp::Add, half, Const::int(1)), Err(FoldError::Types(_))));
        assert!(matches!(adapt(Const::int(1), DType::F32), Err(FoldError::Types(_))));
        let narrow = convert(Const::float(0.1), DType::Bf16).unwrap();
        assert_eq!(binary(BinaryOp::Add, narrow, narrow), Err(FoldError::NotFolded));
        assert_eq!(convert(narrow, DType::F32), Err(FoldError::NotFolded));
    }

    #[test]
    fn bindings_are_read_from_text() {
        assert_eq!("7168".parse(), Ok(ConstValue::Int(7168)));
        assert_eq!("-1".parse(), Ok(ConstValue::Int(-1)));
        assert_eq!("0.5".parse(), Ok(ConstValue::Float(0.5)));
        assert_eq!("true".parse(), Ok(ConstValue::Bool(true)));
        for text in ["", "x", "inf", "nan", "1e999", "1 2"] {
            assert!(text.parse::<ConstValue>().is_err(), "{text}");
        }
    }
}

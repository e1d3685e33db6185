//! Element-wise operations and reductions as enums.

use kernel_abi::DType;
use serde::{Deserialize, Serialize};

/// An operation on one element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum UnaryOp {
    /// `-x`
    Neg,
    /// `!x` on bool, bitwise on integers
    Not,
    /// `abs(x)`
    Abs,
    /// `exp(x)` = ex2.approx(x * log2 e), f32
    Exp,
    /// `exp2(x)`, f32
    Exp2,
    /// `log2(x)`, f32
    Log2,
    /// `tanh(x)` = 1 - 2 / (exp(2x) + 1), f32
    Tanh,
    /// `sigmoid(x)` = 1 / (1 + exp(-x)), f32
    Sigmoid,
    /// `rsqrt(x)`, f32
    Rsqrt,
    /// `sqrt(x)`, f32, correctly rounded
    Sqrt,
    /// The least power of two of ue8m0 that is not below `x`, f32
    ScaleUp,
}

/// An operation on two elements of one type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BinaryOp {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a * b`
    Mul,
    /// `a / b`: correctly rounded for f32, truncating for integers
    Div,
    /// `a % b`: truncating, integers only
    Rem,
    /// `min(a, b)`: a NaN loses
    Min,
    /// `max(a, b)`: a NaN loses
    Max,
    /// `a & b` on bool and integers
    And,
    /// `a | b`
    Or,
    /// `a ^ b`
    Xor,
    /// `a << b`, integers
    Shl,
    /// `a >> b`: arithmetic on signed, logical on unsigned integers
    Shr,
}

/// A comparison; a NaN makes all but `Ne` false.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CompareOp {
    /// `a == b`
    Eq,
    /// `a != b`
    Ne,
    /// `a < b`
    Lt,
    /// `a <= b`
    Le,
    /// `a > b`
    Gt,
    /// `a >= b`
    Ge,
}

/// What `reduce` folds with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReduceOp {
    /// Sum, starting from 0.
    Add,
    /// Maximum, starting from -inf or the least integer; a NaN counts as -inf.
    Max,
    /// Minimum, starting from +inf or the greatest integer; a NaN counts as +inf.
    Min,
}

impl ReduceOp {
    /// What combines two values.
    pub const fn binary(self) -> BinaryOp {
        match self {
            ReduceOp::Add => BinaryOp::Add,
            ReduceOp::Max => BinaryOp::Max,
            ReduceOp::Min => BinaryOp::Min,
        }
    }

    /// True where the result of a fold has the same bits in any order; of floats, where no NaN is among them.
    pub fn is_free_of_order(self, dtype: DType) -> bool {
        match self {
            ReduceOp::Add => matches!(dtype, DType::I32 | DType::U32),
            ReduceOp::Max | ReduceOp::Min => {
                matches!(dtype, DType::I32 | DType::U32 | DType::F32)
            }
        }
    }
}

macro_rules! names {
    ($type:ident { $($variant:ident = $name:literal),* $(,)? }) => {
        impl $type {
            /// Every variant, in the order of declaration.
            pub const ALL: &'static [$type] = &[$($type::$variant),*];

            /// The name that the text forms print.
            pub const fn name(self) -> &'static str {
                match self { $($type::$variant => $name),* }
            }
        }
    };
}

names!(UnaryOp {
    Neg = "neg",
    Not = "not",
    Abs = "abs",
    Exp = "exp",
    Exp2 = "exp2",
    Log2 = "log2",
    Tanh = "tanh",
    Sigmoid = "sigmoid",
    Rsqrt = "rsqrt",
    Sqrt = "sqrt",
    ScaleUp = "scale.up",
});
names!(BinaryOp {
    Add = "add",
    Sub = "sub",
    Mul = "mul",
    Div = "div",
    Rem = "rem",
    Min = "min",
    Max = "max",
    And = "and",
    Or = "or",
    Xor = "xor",
    Shl = "shl",
    Shr = "shr",
});
names!(CompareOp { Eq = "eq", Ne = "ne", Lt = "lt", Le = "le", Gt = "gt", Ge = "ge" });
names!(ReduceOp { Add = "add", Max = "max", Min = "min" });

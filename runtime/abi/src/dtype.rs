//! Element types of buffers and tiles.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An element type. Sizes are asked for in bits, because `E2m1` packs two elements a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
    Bf16,
    /// OCP 8-bit float, 4 exponent and 3 mantissa bits, no infinities.
    E4m3,
    /// OCP 8-bit float, 5 exponent and 2 mantissa bits.
    E5m2,
    /// OCP 4-bit float, packed two a byte, even element in the low nibble.
    E2m1,
    /// OCP 8-bit power of two, the scale of a block.
    Ue8m0,
    /// Signed 8-bit integer.
    I8,
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 32-bit integer.
    I32,
    /// Unsigned 32-bit integer.
    U32,
    /// Signed 64-bit integer.
    I64,
    /// Unsigned 64-bit integer.
    U64,
    /// Truth value; one byte in memory.
    Bool,
}

impl DType {
    /// Every element type, in the order of declaration.
    pub const ALL: [DType; 14] = [
        DType::F32,
        DType::F16,
        DType::Bf16,
        DType::E4m3,
        DType::E5m2,
        DType::E2m1,
        DType::Ue8m0,
        DType::I8,
        DType::U8,
        DType::I32,
        DType::U32,
        DType::I64,
        DType::U64,
        DType::Bool,
    ];

    /// The name in the language, as in `bf16[N, K]`.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
            DType::E4m3 => "e4m3",
            DType::E5m2 => "e5m2",
            DType::E2m1 => "e2m1",
            DType::Ue8m0 => "ue8m0",
            DType::I8 => "i8",
            DType::U8 => "u8",
            DType::I32 => "i32",
            DType::U32 => "u32",
            DType::I64 => "i64",
            DType::U64 => "u64",
            DType::Bool => "bool",
        }
    }

    /// The type of that name, if there is one.
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|d| d.name() == name)
    }

    /// Bits that one element takes in memory.
    pub const fn bits(self) -> u32 {
        match self {
            DType::E2m1 => 4,
            DType::E4m3 | DType::E5m2 | DType::Ue8m0 | DType::I8 | DType::U8 | DType::Bool => 8,
            DType::F16 | DType::Bf16 => 16,
            DType::F32 | DType::I32 | DType::U32 => 32,
            DType::I64 | DType::U64 => 64,
        }
    }

    /// Bytes that one element takes in memory, or `None` for packed types.
    pub const fn bytes(self) -> Option<u32> {
        match self {
            DType::E2m1 => None,
            DType::F32
            | DType::F16
            | DType::Bf16
            | DType::E4m3
            | DType::E5m2
            | DType::Ue8m0
            | DType::I8
            | DType::U8
            | DType::I32
            | DType::U32
            | DType::I64
            | DType::U64
            | DType::Bool => Some(self.bits() / 8),
        }
    }

    /// True for floating-point types of any width.
    pub const fn is_float(self) -> bool {
        match self {
            DType::F32
            | DType::F16
            | DType::Bf16
            | DType::E4m3
            | DType::E5m2
            | DType::E2m1
            | DType::Ue8m0 => true,
            DType::I8
            | DType::U8
            | DType::I32
            | DType::U32
            | DType::I64
            | DType::U64
            | DType::Bool => false,
        }
    }

    /// True for integers, signed and unsigned.
    pub const fn is_int(self) -> bool {
        !self.is_float() && !matches!(self, DType::Bool)
    }

    /// True for signed integers.
    pub const fn is_signed_int(self) -> bool {
        matches!(self, DType::I8 | DType::I32 | DType::I64)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

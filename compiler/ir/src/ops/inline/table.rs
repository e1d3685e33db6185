//! The instructions that a text may hold: their parts, their types, and the width of each operand.

use std::fmt;

use super::{Fault, fault};

/// What an operand is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    /// A register of so many bits.
    Bits(u32),
    /// A predicate.
    Predicate,
}

impl fmt::Display for Width {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Width::Bits(bits) => write!(f, "{bits} bits"),
            Width::Predicate => f.write_str("a predicate"),
        }
    }
}

/// A place for an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// A register of a type, or a number of it; `packed` where two of half its width may stand for it.
    Typed { bits: u32, is_float: bool, packed: bool },
    /// A predicate.
    Predicate,
    /// A number that is part of the instruction.
    Number,
}

impl Place {
    pub(super) fn width(self) -> Width {
        match self {
            Place::Typed { bits, .. } => Width::Bits(bits),
            Place::Predicate | Place::Number => Width::Predicate,
        }
    }

    pub(super) fn is_float(self) -> bool {
        matches!(self, Place::Typed { is_float: true, .. })
    }

    pub(super) fn is_packed(self) -> bool {
        matches!(self, Place::Typed { packed: true, .. })
    }
}

/// An instruction with its types.
pub(super) struct Form {
    /// The operands, what is written first.
    pub(super) places: Vec<Place>,
}

/// A type of PTX.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Type {
    bits: u32,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Signed,
    Unsigned,
    Bits,
    Float,
    /// Several in one register.
    Several,
    Predicate,
}

fn type_of(name: &str) -> Option<Type> {
    let (kind, bits) = match name {
        "s16" => (Kind::Signed, 16),
        "s32" => (Kind::Signed, 32),
        "s64" => (Kind::Signed, 64),
        "u16" => (Kind::Unsigned, 16),
        "u32" => (Kind::Unsigned, 32),
        "u64" => (Kind::Unsigned, 64),
        "b16" => (Kind::Bits, 16),
        "b32" => (Kind::Bits, 32),
        "b64" => (Kind::Bits, 64),
        "f16" | "bf16" => (Kind::Float, 16),
        "f32" | "tf32" => (Kind::Float, 32),
        "f16x2" | "bf16x2" => (Kind::Several, 32),
        "e4m3x2" | "e5m2x2" => (Kind::Several, 16),
        "pred" => (Kind::Predicate, 1),
        _ => return None,
    };
    Some(Type { bits, kind })
}

impl Type {
    fn place(self) -> Place {
        match self.kind {
            Kind::Predicate => Place::Predicate,
            Kind::Signed | Kind::Unsigned | Kind::Bits | Kind::Float | Kind::Several => {
                let is_float = self.kind == Kind::Float && self.bits == 32;
                Place::Typed { bits: self.bits, is_float, packed: false }
            }
        }
    }
}

const fn int(bits: u32) -> Place {
    Place::Typed { bits, is_float: false, packed: false }
}

/// Which types an instruction has: integers with a sign or without, any bits, floats, several of them.
#[derive(Clone, Copy)]
struct Takes {
    integers: bool,
    bits: bool,
    floats: bool,
    several: bool,
    predicates: bool,
}

const NONE: Takes =
    Takes { integers: false, bits: false, floats: false, several: false, predicates: false };
const INTEGERS: Takes = Takes { integers: true, ..NONE };
const FLOATS: Takes = Takes { floats: true, several: true, ..NONE };
const NUMBERS: Takes = Takes { integers: true, floats: true, several: true, ..NONE };
const BITS: Takes = Takes { bits: true, ..NONE };
const LOGIC: Takes = Takes { bits: true, predicates: true, ..NONE };
const SHIFTS: Takes = Takes { integers: true, bits: true, ..NONE };
const ANY: Takes = Takes { bits: true, integers: true, floats: true, ..NONE };

impl Takes {
    fn has(self, r#type: Type) -> bool {
        match r#type.kind {
            Kind::Signed | Kind::Unsigned => self.integers,
            Kind::Bits => self.bits,
            Kind::Float => self.floats,
            Kind::Several => self.several,
            Kind::Predicate => self.predicates,
        }
    }
}

/// Shape of the operands, `T` for the type of the instruction.
#[derive(Clone, Copy)]
enum Shape {
    /// A result and so many operands of one type.
    Same(usize),
    /// As `Same`, with a number behind.
    Table(usize),
    /// `mul` and `mad`: by `lo`, `hi` and `wide`, which floats lack.
    Product(usize),
    /// So many operands of the type, then so many of 32 bits.
    Then32(usize, usize),
    /// A result of 32 bits.
    Count,
    /// A choice by a predicate behind.
    Select,
    /// A comparison.
    Compare,
    /// From one type to another one.
    Convert,
    /// `mov`: two halves may stand for a whole.
    Move,
}

const ROUND: &[&str] = &["rn", "rz", "rm", "rp", "ftz", "sat"];
const APPROX: &[&str] = &["approx", "rn", "rz", "rm", "rp", "ftz", "full"];

fn row(name: &str) -> Option<(Takes, Shape, &'static [&'static str])> {
    use Shape::{Compare, Convert, Count, Move, Product, Same, Select, Table, Then32};
    Some(match name {
        "add" | "sub" => (NUMBERS, Same(2), ROUND),
        "min" | "max" => (NUMBERS, Same(2), &["ftz", "NaN", "xorsign", "abs", "relu"]),
        "mul" => (NUMBERS, Product(2), &["rn", "rz", "rm", "rp", "ftz", "sat", "lo", "hi", "wide"]),
        "mad" => (INTEGERS, Product(3), &["lo", "hi", "wide", "sat"]),
        "mul24" => (INTEGERS, Same(2), &["lo", "hi"]),
        "mad24" => (INTEGERS, Same(3), &["lo", "hi", "sat"]),
        "fma" => (FLOATS, Same(3), &["rn", "rz", "rm", "rp", "ftz", "sat", "relu"]),
        "div" => (NUMBERS, Same(2), APPROX),
        "rem" => (INTEGERS, Same(2), &[]),
        "sad" => (INTEGERS, Same(3), &[]),
        "abs" | "neg" => (NUMBERS, Same(1), &["ftz"]),
        "sqrt" | "rcp" | "rsqrt" | "ex2" | "lg2" | "sin" | "cos" | "tanh" => {
            (FLOATS, Same(1), APPROX)
        }
        "copysign" => (FLOATS, Same(2), &[]),
        "and" | "or" | "xor" => (LOGIC, Same(2), &[]),
        "not" => (LOGIC, Same(1), &[]),
        "cnot" | "brev" => (BITS, Same(1), &[]),
        "lop3" => (BITS, Table(3), &[]),
        "shl" => (BITS, Then32(1, 1), &[]),
        "shr" => (SHIFTS, Then32(1, 1), &[]),
        "shf" => (BITS, Then32(2, 1), &["l", "r", "clamp", "wrap"]),
        "prmt" => (BITS, Then32(2, 1), &["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"]),
        "bfe" => (INTEGERS, Then32(1, 2), &[]),
        "bfi" => (BITS, Then32(2, 2), &[]),
        "clz" | "popc" => (BITS, Count, &[]),
        "bfind" => (INTEGERS, Count, &["shiftamt"]),
        "selp" => (ANY, Select, &[]),
        "setp" => (
            Takes { several: false, ..ANY },
            Compare,
            &[
                "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu",
                "leu", "gtu", "geu", "num", "nan", "ftz",
            ],
        ),
        "cvt" => (
            Takes { several: true, ..NUMBERS },
            Convert,
            &[
                "rn",
                "rz",
                "rm",
                "rp",
                "rna",
                "rni",
                "rzi",
                "rmi",
                "rpi",
                "ftz",
                "sat",
                "relu",
                "satfinite",
            ],
        ),
        "mov" => (Takes { predicates: true, ..ANY }, Move, &[]),
        _ => return None,
    })
}

/// The form of an instruction.
///
/// # Errors
/// It is none that computes from registers alone, or its parts do not fit.
pub(super) fn instruction(name: &str, parts: &[&str]) -> Result<Form, Fault> {
    let Some((takes, shape, modifiers)) = row(name) else {
        return fault(format!(
            "`{name}` is none of the instructions that compute from registers alone, which such a text may hold"
        ));
    };
    let mut types = Vec::new();
    for part in parts {
        match type_of(part) {
            Some(r#type) if takes.has(r#type) => types.push(r#type),
            Some(_) => return fault(format!("`{name}` has no type `{part}`")),
            None if types.is_empty() && modifiers.contains(part) => {}
            None => return fault(format!("`{part}` is no part of `{name}`, or not at this place")),
        }
    }
    let wanted = if matches!(shape, Shape::Convert) { 2 } else { 1 };
    if types.len() != wanted {
        return fault(format!("`{name}` names {wanted} type, `{name}.f32` for example"));
    }
    let whole = types[0];
    let own = whole.place();
    let places = match shape {
        Shape::Same(count) => vec![own; count + 1],
        Shape::Table(count) => {
            let mut places = vec![own; count + 1];
            places.push(Place::Number);
            places
        }
        Shape::Product(count) => {
            let by = parts.iter().find(|part| matches!(**part, "lo" | "hi" | "wide"));
            let is_integer = matches!(whole.kind, Kind::Signed | Kind::Unsigned);
            match by {
                None if is_integer => {
                    return fault(format!("`{name}` of integers says `lo`, `hi` or `wide`"));
                }
                Some(_) if !is_integer => {
                    return fault(format!("`{name}` of floats has no `lo`, `hi` and `wide`"));
                }
                Some(&"wide") if whole.bits < 64 => {
                    let wide = int(2 * whole.bits);
                    let mut places = vec![wide, own, own];
                    places.extend((count == 3).then_some(wide));
                    places
                }
                Some(&"wide") => {
                    return fault(format!("`{name}.wide` has operands of 16 or 32 bits"));
                }
                Some(_) | None => vec![own; count + 1],
            }
        }
        Shape::Then32(count, others) => {
            let mut places = vec![own; count + 1];
            places.extend(std::iter::repeat_n(int(32), others));
            places
        }
        Shape::Count => vec![int(32), own],
        Shape::Select => vec![own, own, own, Place::Predicate],
        Shape::Compare => vec![Place::Predicate, own, own],
        Shape::Convert => {
            let from = types[1].place();
            // Two numbers go into one register.
            let packs = whole.kind == Kind::Several && types[1].kind == Kind::Float;
            if packs { vec![own, from, from] } else { vec![own, from] }
        }
        Shape::Move => match own {
            Place::Typed { bits, is_float, packed: _ } => {
                let packed = whole.kind == Kind::Bits;
                vec![Place::Typed { bits, is_float, packed }; 2]
            }
            Place::Predicate | Place::Number => vec![own; 2],
        },
    };
    Ok(Form { places })
}

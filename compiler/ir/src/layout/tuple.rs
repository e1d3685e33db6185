//! Nested tuples of integers: the type of shapes and strides.

use std::fmt;

/// An integer or a tuple of such; a tuple of one differs from its integer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum IntTuple {
    /// A single integer.
    Int(i64),
    /// A tuple, written with a trailing comma when it has one element.
    Tuple(Vec<IntTuple>),
}

impl IntTuple {
    /// The integers from left to right.
    pub fn flatten(&self) -> Vec<i64> {
        match self {
            Self::Int(value) => vec![*value],
            Self::Tuple(parts) => parts.iter().flat_map(Self::flatten).collect(),
        }
    }

    /// The value as JSON: a number or a list.
    pub fn to_json(&self) -> String {
        match self {
            Self::Int(value) => value.to_string(),
            Self::Tuple(parts) => {
                let parts: Vec<String> = parts.iter().map(Self::to_json).collect();
                format!("[{}]", parts.join(", "))
            }
        }
    }
}

impl From<i64> for IntTuple {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<Vec<IntTuple>> for IntTuple {
    fn from(parts: Vec<IntTuple>) -> Self {
        Self::Tuple(parts)
    }
}

impl fmt::Display for IntTuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(value) => write!(f, "{value}"),
            Self::Tuple(parts) => {
                f.write_str("(")?;
                for (position, part) in parts.iter().enumerate() {
                    if position > 0 {
                        f.write_str(",")?;
                    }
                    write!(f, "{part}")?;
                }
                f.write_str(if parts.len() == 1 { ",)" } else { ")" })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tuple_of_one_has_a_trailing_comma() {
        let one = IntTuple::Tuple(vec![8.into()]);
        assert_eq!(one.to_string(), "(8,)");
        assert_eq!(one.to_json(), "[8]");
        let nested = IntTuple::Tuple(vec![2.into(), one]);
        assert_eq!(nested.to_string(), "(2,(8,))");
        assert_eq!(nested.to_json(), "[2, [8]]");
        assert_eq!(nested.flatten(), [2, 8]);
    }
}

//! What an author promises about the values of a parameter.

use serde::{Deserialize, Serialize};

use super::ParamId;

/// `in lo..hi [distinct [except v]]`: every element is at least `lo` and below `hi`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contract {
    /// Least value.
    pub lo: i64,
    /// Bound of the values.
    pub hi: ContractBound,
    /// No value occurs twice, but for the exception.
    pub distinct: Option<Distinct>,
}

/// The exclusive upper bound of a contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContractBound {
    /// A constant.
    Const(i64),
    /// `scalar + offset`: the value of a `scalar` parameter (offset 1 for `..=`).
    Scalar(ParamId, i64),
}

/// The `distinct` part of a contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distinct {
    /// A value that may repeat.
    pub except: Option<i64>,
}

//! What the compiler says of a kernel's parameters, for the checks of a plan.

use serde::{Deserialize, Serialize};

use super::TensorMapSpec;
use crate::stored::StoredLayout;
use crate::{Access, DType};

/// The parameters of a kernel for given bindings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signature {
    /// In the order of declaration.
    pub params: Vec<ParamSpec>,
    /// The kernel may start before its predecessor has ended (`pdl: consumer` or `both`).
    pub starts_early: bool,
    /// Tensor maps, which a launch passes behind the parameters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub maps: Vec<TensorMapSpec>,
}

impl Signature {
    /// The parameter of that name.
    pub fn param(&self, name: &str) -> Option<&ParamSpec> {
        self.params.iter().find(|p| p.name == name)
    }
}

/// A parameter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParamSpec {
    /// Its name.
    pub name: String,
    /// Who may write it while the kernel runs.
    pub access: Access,
    /// `settled`: may be read before the kernel waits.
    pub settled: bool,
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first; empty for a scalar.
    pub shape: Vec<ExtentSpec>,
    /// Where its elements lie in memory, when not in row-major order: whoever fills the buffer packs by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<StoredLayout>,
    /// `scaled_by`: where the scales of its elements are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaled: Option<ScaledBy>,
    /// `in lo..hi`: what it needs of values that it reads, what it promises of values that it writes.
    pub contract: Option<ContractSpec>,
}

/// The scales of a parameter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScaledBy {
    /// The parameter that holds them.
    pub param: String,
    /// Elements that share one.
    pub group: u32,
}

/// An extent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExtentSpec {
    /// Known at instantiation.
    Const(u64),
    /// The value of the scalar parameter of that name.
    Scalar(String),
}

/// `in lo..hi [distinct [except v]]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContractSpec {
    /// Least value.
    pub lo: i64,
    /// Exclusive bound.
    pub hi: UpperBound,
    /// No value occurs twice, but for `except`.
    pub distinct: bool,
    /// A value that may repeat.
    pub except: Option<i64>,
}

/// The exclusive upper bound of a contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UpperBound {
    /// A constant.
    Const(i64),
    /// The value of a scalar parameter plus a constant.
    Scalar(String, i64),
}

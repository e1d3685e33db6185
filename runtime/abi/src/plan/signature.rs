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
    /// On which sides of its wait it ends and lets the next kernel begin.
    #[serde(default, skip_serializing_if = "Waits::is_regular")]
    pub waits: Waits,
    /// Ranks that launch it together, if it is a kernel over several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub world: Option<u32>,
    /// Tensor maps, which a launch passes behind the parameters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub maps: Vec<TensorMapSpec>,
}

impl Signature {
    /// A kernel of one rank without tensor maps, that waits where it must.
    pub fn new(params: Vec<ParamSpec>, starts_early: bool) -> Signature {
        Signature { params, starts_early, waits: Waits::default(), world: None, maps: Vec::new() }
    }

    /// The parameter of that name.
    pub fn param(&self, name: &str) -> Option<&ParamSpec> {
        self.params.iter().find(|p| p.name == name)
    }
}

/// How a kernel that starts early stands to `grid_wait` and `grid_launch`. Both are false where rule R2 holds: the
/// verifier proves it of every kernel but for what its author waives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waits {
    /// It can end without a wait, so that its end says nothing of the launches before it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub may_not_wait: bool,
    /// It can let the next kernel begin before it has waited.
    #[serde(default, skip_serializing_if = "is_false")]
    pub may_launch_first: bool,
}

impl Waits {
    fn is_regular(&self) -> bool {
        *self == Waits::default()
    }
}

fn is_false(value: &bool) -> bool {
    !*value
}

/// What the words of a buffer count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WordKind {
    /// Arrivals of CTAs, or tickets: zero before each launch and after it.
    Counter,
    /// Signals of CTAs: every launch raises them by as much.
    Raised,
    /// Launches.
    Epoch,
    /// Signals of ranks: every launch raises them by as much.
    Flag,
}

impl WordKind {
    /// What it is called in messages.
    pub fn name(self) -> &'static str {
        match self {
            WordKind::Counter => "a counter",
            WordKind::Raised => "a counter that signals raise",
            WordKind::Epoch => "an epoch",
            WordKind::Flag => "a flag of ranks",
        }
    }

    /// True where launches follow each other's words, so that all of them must be of one kernel.
    pub fn goes_on(self) -> bool {
        match self {
            WordKind::Counter => false,
            WordKind::Raised | WordKind::Epoch | WordKind::Flag => true,
        }
    }
}

/// How a kernel touches a buffer, beside what its qualifiers say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Touches {
    /// It may read it before its wait, though it is neither `static` nor `settled`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub read_early: bool,
    /// It may write it before its wait.
    #[serde(default, skip_serializing_if = "is_false")]
    pub written_early: bool,
    /// Asynchronous copies read it that no fence orders after what earlier kernels have stored.
    #[serde(default, skip_serializing_if = "is_false")]
    pub copied_unfenced: bool,
    /// A scalar parameter that bounds all accesses: positions of the outermost axis from it on are left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<String>,
}

impl Touches {
    fn is_regular(&self) -> bool {
        *self == Touches::default()
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
    /// `counter`, `epoch`, `sym_flag`: what its words count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<WordKind>,
    /// How the kernel touches it.
    #[serde(default, skip_serializing_if = "Touches::is_regular")]
    pub touches: Touches,
}

impl ParamSpec {
    /// A parameter with that and nothing more; a scalar where there are no extents.
    pub fn new(
        name: impl Into<String>,
        access: Access,
        dtype: DType,
        shape: Vec<ExtentSpec>,
    ) -> ParamSpec {
        ParamSpec {
            name: name.into(),
            access,
            settled: false,
            dtype,
            shape,
            stored: None,
            scaled: None,
            contract: None,
            words: None,
            touches: Touches::default(),
        }
    }

    /// Whether it is read before the kernel has waited.
    pub fn is_read_early(&self) -> bool {
        self.settled || self.touches.read_early
    }
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

//! Expressions and types.

use super::{Name, Path};
use crate::source::Span;

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// What it is.
    pub kind: ExprKind,
    /// The whole expression, with brackets around it.
    pub span: Span,
}

/// The kinds of expressions. Brackets leave no node: the printer writes those that are needed.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// `42`, `0xff`, `1_000`
    Int(IntLit),
    /// `1.0`, `1.0e-5`
    Float(FloatLit),
    /// `inf`; with a minus before it, `-inf`
    Inf,
    /// `true`, `false`
    Bool(bool),
    /// `"n (j k) -> n j k"`
    Str(String),
    /// `each`: every lane takes its own index
    Each,
    /// `x`, `cta.x`, `tile@t`, `inbox@peer(p)@t`, `ld.full@t`
    Ref(Ref),
    /// `(a, b)`, `(8,)`
    Tuple(Vec<Expr>),
    /// `a .. + L until n`, `a..b`, `a..=b`; only as a whole value: an index, argument, `let`, bound
    Range(Box<Range>),
    /// `(x@t).scale`: a part of something that is no dotted name
    Field(Box<Expr>, Name),
    /// `x[i, :, _]`
    Index(Box<Expr>, Vec<Index>),
    /// `reduce.add(x, axis = 1)`, `f32(x)`, `gemv_rows<M, K>(W, x)`, `W.tile(128, 64)`
    Call(Box<Call>),
    /// `x^T`
    Transpose(Box<Expr>),
    /// `-a`, `!a`, `~a`
    Unary(UnaryOp, Box<Expr>),
    /// `a + b`
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// `c ? a : b`
    Conditional(Box<Expr>, Box<Expr>, Box<Expr>),
    /// `load x[i .. + L until n] else 0.0 evict first`
    Load(Box<LoadExpr>),
    /// `arrive.last c[i] of n`
    ArriveLast(Box<ArriveLast>),
    /// `spread(warp: 0, lane: 1, vec: 1)`
    Spread(Vec<SpreadEntry>),
    /// `layout((4, 8) : (1, 4))`: shape and stride
    Layout(Box<Expr>, Box<Expr>),
    /// `match arch { sm_90a => wgmma(…), _ => tcgen05(…) }`
    MatchArch(Vec<ArchValue>),
}

/// An integer literal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntLit {
    /// Its value.
    pub value: u64,
    /// As it is written.
    pub text: String,
}

/// A float literal.
#[derive(Clone, Debug, PartialEq)]
pub struct FloatLit {
    /// Its value, nearest to the decimal text; finite.
    pub value: f64,
    /// As it is written.
    pub text: String,
}

/// A dotted name with the instances it is taken at.
#[derive(Clone, Debug, PartialEq)]
pub struct Ref {
    /// The dotted name.
    pub path: Path,
    /// `@…` in order; they stack.
    pub at: Vec<Instance>,
}

/// `@…`: which instance.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    /// Which kind of instance.
    pub kind: InstanceKind,
    /// From `@` on.
    pub span: Span,
}

/// The kinds of instances.
#[derive(Clone, Debug, PartialEq)]
pub enum InstanceKind {
    /// `@t`, `@0`, `@(t + 1)`, `@each`: a ring slot
    Slot(Box<Expr>),
    /// `@cta(c)`: a CTA of the cluster
    Cta(Box<Expr>),
    /// `@cta(*)`: every CTA of the cluster
    AllCtas,
    /// `@peer(p)`: a rank
    Peer(Box<Expr>),
    /// `@peer(*)`: every rank
    AllPeers,
}

/// A range.
#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    /// Where it starts.
    pub start: Expr,
    /// Where it ends.
    pub end: RangeEnd,
    /// Positions from here on are absent.
    pub until: Option<Expr>,
}

/// The end of a range.
#[derive(Clone, Debug, PartialEq)]
pub enum RangeEnd {
    /// `a .. + L`: a length
    Length(Expr),
    /// `a..b`: without b
    Exclusive(Expr),
    /// `a..=b`: with b
    Inclusive(Expr),
}

/// One entry between `[` and `]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Index {
    /// What it selects.
    pub kind: IndexKind,
    /// The whole entry.
    pub span: Span,
}

/// The kinds of index entries.
#[derive(Clone, Debug, PartialEq)]
pub enum IndexKind {
    /// `:`, the whole axis; with `until`, `: until n`
    All(Option<Expr>),
    /// `_`, a new axis of 1
    NewAxis,
    /// A scalar, an index tile, or a value that is a range; `i until n` makes it absent from n on.
    /// The `until` of a range is in the range.
    At(Expr, Option<Expr>),
}

/// A call.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// What is called.
    pub callee: Callee,
    /// `<M, K>`: `const` arguments: names, literals and arithmetic without brackets.
    pub generics: Vec<Expr>,
    /// `(x, axis = 1)`
    pub args: Vec<Arg>,
    /// `via ATOM`
    pub via: Option<Path>,
    /// `order release`, for atomics
    pub order: Option<Order>,
    /// `scope sys`, for atomics
    pub scope: Option<Scope>,
}

/// What is called.
#[derive(Clone, Debug, PartialEq)]
pub enum Callee {
    /// `reduce.add(…)`: an operation, a type, a function, or a method of a named thing
    Path(Path),
    /// `(W@t).tile(…)`: a method of something that is no dotted name
    Method(Expr, Name),
}

/// An argument, by position or by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Arg {
    /// `axis` in `axis = 1`.
    pub name: Option<Name>,
    /// The value; `exclusive` alone is a `Ref`.
    pub value: Expr,
}

/// Prefix operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnaryOp {
    /// `-`
    Neg,
    /// `!`
    Not,
    /// `~`
    BitNot,
}

impl UnaryOp {
    /// The operator as it is written.
    pub fn symbol(self) -> &'static str {
        match self {
            UnaryOp::Neg => "-",
            UnaryOp::Not => "!",
            UnaryOp::BitNot => "~",
        }
    }
}

/// Infix operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    /// `||`
    Or,
    /// `&&`
    And,
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
    /// `|`
    BitOr,
    /// `^`
    BitXor,
    /// `&`
    BitAnd,
    /// `<<`
    Shl,
    /// `>>`
    Shr,
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`
    Div,
    /// `%`
    Rem,
}

impl BinaryOp {
    /// The operator as it is written.
    pub fn symbol(self) -> &'static str {
        match self {
            BinaryOp::Or => "||",
            BinaryOp::And => "&&",
            BinaryOp::Eq => "==",
            BinaryOp::Ne => "!=",
            BinaryOp::Lt => "<",
            BinaryOp::Le => "<=",
            BinaryOp::Gt => ">",
            BinaryOp::Ge => ">=",
            BinaryOp::BitOr => "|",
            BinaryOp::BitXor => "^",
            BinaryOp::BitAnd => "&",
            BinaryOp::Shl => "<<",
            BinaryOp::Shr => ">>",
            BinaryOp::Add => "+",
            BinaryOp::Sub => "-",
            BinaryOp::Mul => "*",
            BinaryOp::Div => "/",
            BinaryOp::Rem => "%",
        }
    }

    /// Binding strength: higher binds tighter.
    pub fn strength(self) -> u8 {
        match self {
            BinaryOp::Or => 1,
            BinaryOp::And => 2,
            BinaryOp::Eq
            | BinaryOp::Ne
            | BinaryOp::Lt
            | BinaryOp::Le
            | BinaryOp::Gt
            | BinaryOp::Ge => 3,
            BinaryOp::BitOr => 4,
            BinaryOp::BitXor => 5,
            BinaryOp::BitAnd => 6,
            BinaryOp::Shl | BinaryOp::Shr => 7,
            BinaryOp::Add | BinaryOp::Sub => 8,
            BinaryOp::Mul | BinaryOp::Div | BinaryOp::Rem => 9,
        }
    }

    /// Whether it is one of the six comparisons, which do not chain.
    pub fn is_comparison(self) -> bool {
        self.strength() == BinaryOp::Eq.strength()
    }
}

/// A load whose result is a value.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadExpr {
    /// What is read.
    pub source: Expr,
    /// The value of absent elements.
    pub absent: Option<Expr>,
    /// Cache policy.
    pub policy: Policy,
}

/// Cache policy of a move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// `evict first`, `evict last`
    pub evict: Option<Evict>,
    /// `no_allocate`
    pub no_allocate: bool,
}

/// When a cache line may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evict {
    /// `evict first`
    First,
    /// `evict last`
    Last,
}

/// True in the CTA that arrives last.
#[derive(Clone, Debug, PartialEq)]
pub struct ArriveLast {
    /// The counter word.
    pub counter: Expr,
    /// How many CTAs arrive.
    pub count: Expr,
}

/// `warp: 0` in `spread(…)`.
#[derive(Clone, Debug, PartialEq)]
pub struct SpreadEntry {
    /// `warp`, `lane`, `vec`.
    pub key: Name,
    /// An axis number, a letter, or a factor `(1, 4)`.
    pub axis: Expr,
}

/// `sm_90a | sm_100a => VALUE` in `match arch`.
#[derive(Clone, Debug, PartialEq)]
pub struct ArchValue {
    /// The targets.
    pub pattern: ArchPattern,
    /// The value there.
    pub value: Expr,
}

/// Which targets an arm of `match arch` is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArchPattern {
    /// `sm_90a | sm_100a`
    Targets(Vec<Name>),
    /// `_`
    Any(Span),
}

/// `order …` of signals, awaits and atomics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// `relaxed`
    Relaxed,
    /// `acquire`
    Acquire,
    /// `release`
    Release,
    /// `acq_rel`
    AcqRel,
}

impl Order {
    /// The word as it is written.
    pub fn word(self) -> &'static str {
        match self {
            Order::Relaxed => "relaxed",
            Order::Acquire => "acquire",
            Order::Release => "release",
            Order::AcqRel => "acq_rel",
        }
    }
}

/// `scope …`: who takes part in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// `cta`
    Cta,
    /// `cluster`
    Cluster,
    /// `gpu`
    Gpu,
    /// `sys`
    Sys,
}

impl Scope {
    /// The word as it is written.
    pub fn word(self) -> &'static str {
        match self {
            Scope::Cta => "cta",
            Scope::Cluster => "cluster",
            Scope::Gpu => "gpu",
            Scope::Sys => "sys",
        }
    }
}

/// `bf16[M, K]`: element type and shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Type {
    /// `f32`, `int`, …
    pub dtype: Name,
    /// Empty for a scalar.
    pub shape: Vec<Dim>,
    /// The whole type.
    pub span: Span,
}

/// One extent of a shape.
#[derive(Clone, Debug, PartialEq)]
pub enum Dim {
    /// A value.
    Extent(Expr),
    /// `_`: any, in parameters of a `fn`.
    Any(Span),
    /// `..S`: any further axes, called S.
    Rest(Name),
}

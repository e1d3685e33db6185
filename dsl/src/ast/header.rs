//! Kernels, functions and what their headers hold.

use super::{Block, Comment, Expr, Name, Text, Trivia, Type};
use crate::source::Span;

/// A kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// Its name.
    pub name: Name,
    /// `<const …>`
    pub consts: Vec<ConstParam>,
    /// `(…)`
    pub buffers: Vec<Buffer>,
    /// `launch { … }`
    pub launch: Launch,
    /// `where …`
    pub wheres: Option<Clause<Vec<Expr>>>,
    /// `tune …`
    pub tune: Option<Clause<Vec<Tune>>>,
    /// `export "symbol"`
    pub export: Option<Clause<Text>>,
    /// The statements.
    pub body: Block,
    /// From `kernel` to the end of the header.
    pub header_span: Span,
}

/// A function; calls are inlined.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Its name.
    pub name: Name,
    /// `<const …>`
    pub consts: Vec<ConstParam>,
    /// `(…)`
    pub params: Vec<FnParam>,
    /// `-> f32[N]`, `-> (f32[N], i32[N])`; empty: returns nothing
    pub returns: Vec<Type>,
    /// The statements; `Block::value` is what it returns.
    pub body: Block,
    /// From `fn` to the end of the header.
    pub header_span: Span,
}

/// `const ROWS : int in {4, 8} = 8`
#[derive(Clone, Debug, PartialEq)]
pub struct ConstParam {
    /// Its name.
    pub name: Name,
    /// `int`, `bool`, `float`
    pub ty: Name,
    /// `in …`
    pub domain: Option<Domain>,
    /// `= …`
    pub default: Option<Expr>,
    /// Comments around it.
    pub trivia: Trivia,
    /// The whole parameter.
    pub span: Span,
}

/// `in {1, 2, 4}` or `in 0..8`
#[derive(Clone, Debug, PartialEq)]
pub struct Domain {
    /// Its kind.
    pub kind: DomainKind,
    /// Behind `in`.
    pub span: Span,
}

/// The kinds of domains.
#[derive(Clone, Debug, PartialEq)]
pub enum DomainKind {
    /// `{1, 2, 4}`
    Set(Vec<Expr>),
    /// `a..b`, `a..=b`: always an `ExprKind::Range`
    Range(Expr),
}

/// A parameter of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    /// Who may write it, and by which forms.
    pub access: Access,
    /// Its name.
    pub name: Name,
    /// `gmem`, `sym`, …; absent for `scalar`.
    pub space: Option<Space>,
    /// Element type and shape.
    pub ty: Type,
    /// `ring n`
    pub ring: Option<Expr>,
    /// `of x`: the symmetric memory that this is a multicast window of
    pub of: Option<Name>,
    /// `scaled_by(s, group = 32)`
    pub scaled_by: Option<ScaledBy>,
    /// `stored LAYOUT`
    pub stored: Option<Expr>,
    /// `in a..b distinct except v`
    pub contract: Option<Contract>,
    /// Comments around it.
    pub trivia: Trivia,
    /// The whole parameter.
    pub span: Span,
}

/// Qualifier and modifiers of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Who may write it while the kernel runs.
    pub qualifier: Qualifier,
    /// `settled` before the qualifier
    pub settled: bool,
    /// `counter` behind the qualifier
    pub counter: bool,
    /// `epoch` behind the qualifier
    pub epoch: bool,
    /// All words of it.
    pub span: Span,
}

/// Who may write a buffer while the kernel runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Qualifier {
    /// Nobody.
    Static,
    /// An earlier kernel.
    Input,
    /// This kernel.
    Output,
    /// An earlier kernel and this one.
    Inout,
    /// This kernel; private to the launch.
    Scratch,
    /// Every rank.
    Peer,
    /// Passed by value.
    Scalar,
    /// In a `fn` only: any qualifier that may be written.
    Writable,
}

impl Qualifier {
    /// The word as it is written.
    pub fn word(self) -> &'static str {
        match self {
            Qualifier::Static => "static",
            Qualifier::Input => "input",
            Qualifier::Output => "output",
            Qualifier::Inout => "inout",
            Qualifier::Scratch => "scratch",
            Qualifier::Peer => "peer",
            Qualifier::Scalar => "scalar",
            Qualifier::Writable => "writable",
        }
    }
}

/// A memory space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// Global memory.
    Gmem,
    /// Shared memory.
    Smem,
    /// Tensor memory.
    Tmem,
    /// Registers.
    Frag,
    /// Peer-mapped global memory.
    Sym,
    /// Flags in peer-mapped memory.
    SymFlag,
    /// Multicast addresses.
    SymMc,
}

impl Space {
    /// The word as it is written.
    pub fn word(self) -> &'static str {
        match self {
            Space::Gmem => "gmem",
            Space::Smem => "smem",
            Space::Tmem => "tmem",
            Space::Frag => "frag",
            Space::Sym => "sym",
            Space::SymFlag => "sym_flag",
            Space::SymMc => "sym_mc",
        }
    }
}

/// `scaled_by(s, group = 32)`
#[derive(Clone, Debug, PartialEq)]
pub struct ScaledBy {
    /// The buffer of scales.
    pub scale: Name,
    /// How many elements share one scale.
    pub group: Expr,
}

/// `in a..b distinct except v`
#[derive(Clone, Debug, PartialEq)]
pub struct Contract {
    /// Which values may occur.
    pub domain: Domain,
    /// `distinct`: no value occurs twice
    pub distinct: bool,
    /// `except v`: this value may
    pub except: Option<Expr>,
    /// From `in` on.
    pub span: Span,
}

/// A parameter of a function: a tile, a scalar, or a buffer with its qualifier.
#[derive(Clone, Debug, PartialEq)]
pub struct FnParam {
    /// Its name.
    pub name: Name,
    /// Present for a buffer.
    pub access: Option<Access>,
    /// Where a buffer or tile lives, when it is stated.
    pub space: Option<Space>,
    /// Element type and shape.
    pub ty: Type,
    /// Comments around it.
    pub trivia: Trivia,
    /// The whole parameter.
    pub span: Span,
}

/// A part of a kernel header with its comments.
#[derive(Clone, Debug, PartialEq)]
pub struct Clause<T> {
    /// The part.
    pub value: T,
    /// Comments around it.
    pub trivia: Trivia,
    /// The whole clause.
    pub span: Span,
}

/// `launch { grid: N / ROWS, warps: 4, pdl: both }`
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// In the order of the text; each key at most once.
    pub entries: Vec<LaunchEntry>,
    /// Comments around it.
    pub trivia: Trivia,
    /// The whole clause.
    pub span: Span,
}

impl Launch {
    /// The value of an entry.
    pub fn get(&self, key: LaunchKey) -> Option<&Expr> {
        self.entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }
}

/// One entry of `launch`.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchEntry {
    /// Which.
    pub key: LaunchKey,
    /// `pdl` and `resident` take a word, which is a `Ref` here.
    pub value: Expr,
    /// The whole entry.
    pub span: Span,
}

/// The entries of `launch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LaunchKey {
    /// `grid`: CTAs, as a number or a tuple of up to three
    Grid,
    /// `cluster`: CTAs a cluster
    Cluster,
    /// `warps`: warps a CTA
    Warps,
    /// `pdl`: `none`, `producer`, `consumer` or `both`
    Pdl,
    /// `world`: ranks
    World,
    /// `resident: all`: every CTA must be on the device at once
    Resident,
    /// `min_ctas`: CTAs a multiprocessor
    MinCtas,
}

impl LaunchKey {
    /// Every key, in the order of documentation.
    pub const ALL: [LaunchKey; 7] = [
        LaunchKey::Grid,
        LaunchKey::Cluster,
        LaunchKey::Warps,
        LaunchKey::Pdl,
        LaunchKey::World,
        LaunchKey::Resident,
        LaunchKey::MinCtas,
    ];

    /// The word as it is written.
    pub fn word(self) -> &'static str {
        match self {
            LaunchKey::Grid => "grid",
            LaunchKey::Cluster => "cluster",
            LaunchKey::Warps => "warps",
            LaunchKey::Pdl => "pdl",
            LaunchKey::World => "world",
            LaunchKey::Resident => "resident",
            LaunchKey::MinCtas => "min_ctas",
        }
    }
}

/// `ROWS in {4, 8, 16}` in `tune`
#[derive(Clone, Debug, PartialEq)]
pub struct Tune {
    /// A `const` parameter.
    pub name: Name,
    /// The values to try.
    pub domain: Domain,
    /// The whole entry.
    pub span: Span,
}

/// Comments that stand in an empty or at the end of a bracketed region.
pub type Dangling = Vec<Comment>;

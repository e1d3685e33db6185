//! Statements.

use super::{
    ArchPattern, Comment, Dangling, Expr, Hint, Name, Order, Path, Policy, Scope, SpreadEntry,
    Text, Trivia, Type,
};
use crate::source::Span;

/// `{ … }`
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// The statements.
    pub stmts: Vec<Stmt>,
    /// The value at the end, without `;`. Only the body of a `fn` may have one.
    pub value: Option<BlockValue>,
    /// The comment behind `{` on its line.
    pub opening: Option<Comment>,
    /// Comments before `}`.
    pub dangling: Dangling,
    /// Whether the author wrote it on one line.
    pub inline: Hint,
    /// With the braces.
    pub span: Span,
}

/// The value of a block.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockValue {
    /// The expression.
    pub expr: Expr,
    /// Comments around it.
    pub trivia: Trivia,
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Stmt {
    /// What it is.
    pub kind: StmtKind,
    /// Comments around it.
    pub trivia: Trivia,
    /// The whole statement with its `;` or block.
    pub span: Span,
}

/// The kinds of statements.
#[derive(Clone, Debug, PartialEq)]
pub enum StmtKind {
    /// `const A = min(AHEAD, NS);`
    Const(Const),
    /// `let (v, i) = argmax(x, axis = 1);`
    Let(Let),
    /// `view V = W by "n (j k) -> n j k" (k = 8);`
    View(View),
    /// `frag w : bf16[ROWS, J, 8] ring A;`, `smem …`, `tmem …`
    Tile(Box<TileDecl>),
    /// `pipeline ld { stages: 4; full: bytes(sW) from loader to math; empty: from math to loader; }`
    Pipeline(Box<Pipeline>),
    /// `barrier done : from tensor to epilogue;`
    Barrier(Barrier),
    /// `atom MMA = wgmma(m = 64, …);`
    Atom(Atom),
    /// `load src -> dst;`, `store …`, `copy.async …`, `prefetch.l2 …`, `multimem.store …`
    Move(Box<Move>),
    /// `x = e;`, `x += e;`
    Assign(Assign),
    /// `mma a * b -> acc via ATOM add cond;`
    Mma(Box<Mma>),
    /// `for i in a..b step s unroll n { … }`
    For(Box<For>),
    /// `if c { … } else { … }`, `const if …`
    If(Box<If>),
    /// `match arch { sm_90a => { … } _ => { … } }`
    MatchArch(Vec<ArchArm>),
    /// `role math: warps 4..8 { … }`
    Role(Box<Role>),
    /// `open ld@t;`
    Open(Expr),
    /// `wait ld.full@t;`
    Wait(Expr),
    /// `release ld.empty@t;`
    Release(Expr),
    /// `commit;`, `commit done;`
    Commit(Option<Expr>),
    /// `settle acc but 1;`
    Settle(Settle),
    /// `publish buf;`
    Publish(Expr),
    /// `sync;`, `sync math;`, `sync cluster;`
    Sync(SyncTarget),
    /// `grid_wait;`
    GridWait,
    /// `grid_launch;`
    GridLaunch,
    /// `signal flag@peer(*)[i] add 1 order release scope sys;`
    Signal(Box<Signal>),
    /// `await flag until v order acquire scope sys;`
    Await(Box<Await>),
    /// `advance seq[i];`
    Advance(Expr),
    /// `assert n > 0, "n is positive";`
    Assert(Expr, Option<Text>),
    /// `printf "n = {}", n;`
    Printf(Text, Vec<Expr>),
    /// `trace "event";`
    Trace(Text),
    /// `unsafe { ptx "…" out(a) in(b); }`
    Unsafe(Unsafe),
    /// `gemv_rows<M, H, ROWS>(W, x, z);`
    Expr(Expr),
}

/// `const NAME : TYPE = VALUE;`
#[derive(Clone, Debug, PartialEq)]
pub struct Const {
    /// Its name.
    pub name: Name,
    /// `: int`, when it is stated.
    pub ty: Option<Type>,
    /// Its value.
    pub value: Expr,
}

/// `let PATTERN : TYPE = VALUE;`
#[derive(Clone, Debug, PartialEq)]
pub struct Let {
    /// What it names.
    pub pattern: Pattern,
    /// `: f32[N]`, when it is stated.
    pub ty: Option<Type>,
    /// Its value, which may be a range.
    pub value: Expr,
}

/// What a `let` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// One name.
    Name(Name),
    /// `(v, i)`; a name may be `_`
    Tuple(Vec<Name>, Span),
}

/// `view NAME = SOURCE by "…" (k = 8);`
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// Its name.
    pub name: Name,
    /// The buffer or tile that it relabels.
    pub source: Expr,
    /// `n (j k) -> n j k`
    pub spec: Text,
    /// `k = 8`
    pub sizes: Vec<(Name, Expr)>,
}

/// A tile declaration.
#[derive(Clone, Debug, PartialEq)]
pub struct TileDecl {
    /// Registers, shared memory or tensor memory.
    pub space: TileSpace,
    /// Its name.
    pub name: Name,
    /// Element type and shape.
    pub ty: Type,
    /// `swizzle b128`
    pub swizzle: Option<Expr>,
    /// `align 1024`
    pub align: Option<Expr>,
    /// `ring n`
    pub ring: Option<Expr>,
    /// `every n`: filled once in n uses
    pub every: Option<Expr>,
    /// `stored LAYOUT`: a layout in memory, or a thread-value layout of a `frag`
    pub stored: Option<Expr>,
    /// `spread(warp: 0, lane: 1, vec: 1)`
    pub spread: Option<Vec<SpreadEntry>>,
    /// `via ATOM`: the layout that the atom wants
    pub via: Option<Path>,
    /// `= VALUE`
    pub init: Option<Expr>,
}

/// Where a declared tile lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TileSpace {
    /// Registers.
    Frag,
    /// Shared memory.
    Smem,
    /// Tensor memory.
    Tmem,
}

impl TileSpace {
    /// The word as it is written.
    pub fn word(self) -> &'static str {
        match self {
            TileSpace::Frag => "frag",
            TileSpace::Smem => "smem",
            TileSpace::Tmem => "tmem",
        }
    }
}

/// `pipeline NAME { … }`
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    /// Its name.
    pub name: Name,
    /// `stages: n;`
    pub stages: Expr,
    /// `full: BYTES from A to B;`
    pub full: Edge,
    /// `empty: from B to A;`
    pub empty: Edge,
}

/// `barrier NAME : EDGE;`
#[derive(Clone, Debug, PartialEq)]
pub struct Barrier {
    /// Its name.
    pub name: Name,
    /// What passes it.
    pub edge: Edge,
}

/// `bytes(part) scope cluster from a to b`, each part optional
#[derive(Clone, Debug, PartialEq)]
pub struct Edge {
    /// Bytes of the asynchronous copies into it.
    pub bytes: Option<Expr>,
    /// `ring n`
    pub ring: Option<Expr>,
    /// `scope cluster`
    pub scope: Option<Scope>,
    /// Roles that arrive.
    pub from: Vec<Name>,
    /// Roles that wait.
    pub to: Vec<Name>,
    /// The whole edge.
    pub span: Span,
}

/// `atom NAME = VALUE;`
#[derive(Clone, Debug, PartialEq)]
pub struct Atom {
    /// Its name.
    pub name: Name,
    /// `wgmma(m = 64, …)`, or a `match arch` of such.
    pub value: Expr,
}

/// A statement that moves data.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// Its family.
    pub kind: MoveKind,
    /// The whole operation name: `load`, `store`, `copy.tma`, `prefetch.l2`.
    pub op: Path,
    /// What is read; for `store` any value.
    pub source: Expr,
    /// The value of absent elements: `load x[…] else 0.0 -> w;`
    pub absent: Option<Expr>,
    /// What is written; absent for `prefetch`.
    pub dest: Option<Expr>,
    /// `into ld.full@t`: the barrier that an asynchronous copy signals
    pub into: Option<Expr>,
    /// `via ATOM`
    pub via: Option<Path>,
    /// Cache policy.
    pub policy: Policy,
}

/// Families of moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MoveKind {
    /// `load`
    Load,
    /// `store`
    Store,
    /// `copy.…`
    Copy,
    /// `prefetch.…`
    Prefetch,
    /// `multimem.…`
    Multimem,
}

/// An assignment.
#[derive(Clone, Debug, PartialEq)]
pub struct Assign {
    /// What is changed.
    pub target: Expr,
    /// The operator of `+=` and its like; absent for `=`. Arithmetic, bit and shift operators only.
    pub op: Option<super::BinaryOp>,
    /// The new value or operand.
    pub value: Expr,
}

/// `mma a * b -> acc via ATOM add cond;`
#[derive(Clone, Debug, PartialEq)]
pub struct Mma {
    /// Left operand.
    pub a: Expr,
    /// Right operand.
    pub b: Expr,
    /// Accumulator.
    pub acc: Expr,
    /// The instruction.
    pub via: Path,
    /// Where false, the accumulator starts from zero.
    pub add: Option<Expr>,
}

/// A loop.
#[derive(Clone, Debug, PartialEq)]
pub struct For {
    /// The loop variable.
    pub var: Name,
    /// What it runs over.
    pub over: ForOver,
    /// `unroll`, `unroll n`
    pub unroll: Option<Unroll>,
    /// The statements.
    pub body: Block,
    /// From `for` to before the block.
    pub header_span: Span,
}

/// What a loop runs over.
#[derive(Clone, Debug, PartialEq)]
pub enum ForOver {
    /// `a..b step s`; the first is always an `ExprKind::Range`
    Range(Expr, Option<Expr>),
    /// `tickets(c[i], n)`: counter word and number
    Tickets(Expr, Expr),
}

/// How a loop is unrolled.
#[derive(Clone, Debug, PartialEq)]
pub enum Unroll {
    /// `unroll`
    Full,
    /// `unroll n`
    By(Expr),
}

/// A choice.
#[derive(Clone, Debug, PartialEq)]
pub struct If {
    /// `const if`: decided at instantiation
    pub is_const: bool,
    /// The condition; `if arrive.last c[i] of n` has an `ExprKind::ArriveLast`.
    pub cond: Expr,
    /// Where it holds.
    pub then: Block,
    /// Where it does not.
    pub otherwise: Option<Else>,
    /// From `if` to before the block.
    pub header_span: Span,
}

/// Behind `else`.
#[derive(Clone, Debug, PartialEq)]
pub enum Else {
    /// `else { … }`
    Block(Box<Block>),
    /// `else if …`
    If(Box<If>),
}

/// An arm of a `match arch` statement.
#[derive(Clone, Debug, PartialEq)]
pub struct ArchArm {
    /// The targets.
    pub pattern: ArchPattern,
    /// The statements there.
    pub body: Block,
    /// Comments around it.
    pub trivia: Trivia,
    /// The whole arm.
    pub span: Span,
}

/// `role NAME: warps a..b elect one { … }`
#[derive(Clone, Debug, PartialEq)]
pub struct Role {
    /// Its name.
    pub name: Name,
    /// Its warps; always an `ExprKind::Range`.
    pub warps: Expr,
    /// `elect one`
    pub elect_one: bool,
    /// `registers n`
    pub registers: Option<Expr>,
    /// The statements.
    pub body: Block,
    /// From `role` to before the block.
    pub header_span: Span,
}

/// `settle x but n;`
#[derive(Clone, Debug, PartialEq)]
pub struct Settle {
    /// What must be complete.
    pub value: Expr,
    /// How many groups may stay in flight.
    pub but: Option<Expr>,
}

/// Who takes part in `sync`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncTarget {
    /// `sync;`: all warps
    All,
    /// `sync ROLE;`
    Role(Name),
    /// `sync cluster;`
    Cluster,
}

/// `signal FLAG add n order release scope sys;`
#[derive(Clone, Debug, PartialEq)]
pub struct Signal {
    /// The flag or counter word.
    pub flag: Expr,
    /// By how much it is raised; 1 when absent.
    pub add: Option<Expr>,
    /// `order …`
    pub order: Option<Order>,
    /// `scope …`
    pub scope: Option<Scope>,
}

/// `await FLAG until v order acquire scope sys;`
#[derive(Clone, Debug, PartialEq)]
pub struct Await {
    /// The flag or counter word.
    pub flag: Expr,
    /// The value to reach.
    pub until: Expr,
    /// `order …`
    pub order: Option<Order>,
    /// `scope …`
    pub scope: Option<Scope>,
}

/// `unsafe { … }`
#[derive(Clone, Debug, PartialEq)]
pub struct Unsafe {
    /// Its `ptx` statements.
    pub ptx: Vec<Ptx>,
}

/// `ptx "…" out(a) in(b) = b + 1;`
#[derive(Clone, Debug, PartialEq)]
pub struct Ptx {
    /// The instruction text; `%0`, `%1`, … stand for outputs, then inputs.
    pub text: Text,
    /// Places that it writes.
    pub outputs: Vec<Expr>,
    /// Values that it reads.
    pub inputs: Vec<Expr>,
    /// What the instructions compute, in the language.
    pub meaning: Option<Expr>,
    /// Comments around it.
    pub trivia: Trivia,
    /// The whole statement.
    pub span: Span,
}

//! Trees from random bytes. When the bytes run out every choice is the first, the smallest.

use kernel_dsl::Span;
use kernel_dsl::ast::*;

/// A source of choices.
pub(crate) struct Source<'a> {
    bytes: &'a [u8],
    depth: u32,
}

impl<'a> Source<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, depth: 0 }
    }

    /// A number below `count`.
    fn pick(&mut self, count: usize) -> usize {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        usize::from(*first) % count
    }

    fn coin(&mut self) -> bool {
        self.pick(2) == 1
    }

    fn from<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.pick(choices.len())].clone()
    }

    fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.pick(3) == 1).then(|| make(self))
    }

    fn list<T>(&mut self, least: usize, make: impl Fn(&mut Self) -> T) -> Vec<T> {
        let count = least + self.pick(3);
        (0..count).map(|_| make(self)).collect()
    }
}

fn at() -> Span {
    Span::default()
}

fn name(s: &mut Source<'_>) -> Name {
    let text = s.from(&[
        "x",
        "acc",
        "T",
        "ring",
        "first",
        "order",
        "_y",
        "full",
        "each_one",
        "a_rather_long_name_for_a_tile",
        "from",
        "f32",
        "inbox",
        "in_",
        "stage",
    ]);
    Name { text: text.to_owned(), span: at() }
}

fn path(s: &mut Source<'_>) -> Path {
    let mut segments = vec![name(s)];
    for _ in 0..s.pick(3) {
        let word = s.from(&["add", "load", "x", "full", "rank"]);
        segments.push(Name { text: word.to_owned(), span: at() });
    }
    Path { segments, span: at() }
}

fn text(s: &mut Source<'_>) -> Text {
    Text { value: string(s), span: at() }
}

fn string(s: &mut Source<'_>) -> String {
    s.from(&["", "n (j k) -> n j k", "quote \" and \\ and \n and \t", "ü // no comment /*", "{}"])
        .to_owned()
}

fn comment(s: &mut Source<'_>) -> Comment {
    let (kind, text) = s.from(&[
        (CommentKind::Line, "// why"),
        (CommentKind::Line, "//"),
        (CommentKind::Line, "//! ; { ( \" /* é"),
        (CommentKind::Block, "/* block */"),
        (CommentKind::Block, "/* two\n   lines; } */"),
    ]);
    Comment { kind, text: text.to_owned(), blank_before: Hint(s.coin()), span: at() }
}

fn comments(s: &mut Source<'_>) -> Vec<Comment> {
    if s.pick(6) == 1 { s.list(1, comment) } else { Vec::new() }
}

fn trivia(s: &mut Source<'_>) -> Trivia {
    Trivia {
        leading: comments(s),
        trailing: (s.pick(6) == 1).then(|| comment(s)),
        blank_before: Hint(s.coin()),
        same_line: Hint(s.coin()),
    }
}

// ---- expressions

fn expr(kind: ExprKind) -> Expr {
    Expr { kind, span: at() }
}

fn int(s: &mut Source<'_>) -> ExprKind {
    let (value, text) = s.from(&[
        (0, "0"),
        (8, "8"),
        (255, "0xff"),
        (7168, "7_168"),
        (u64::MAX, "18446744073709551615"),
    ]);
    ExprKind::Int(IntLit { value, text: text.to_owned() })
}

fn float(s: &mut Source<'_>) -> ExprKind {
    let (value, text) = s.from(&[(0.0, "0.0"), (1.0e-5, "1.0e-5"), (2e3, "2e3"), (1.5, "1.5")]);
    ExprKind::Float(FloatLit { value, text: text.to_owned() })
}

fn leaf(s: &mut Source<'_>) -> Expr {
    expr(match s.pick(9) {
        0 | 1 => ExprKind::Ref(Ref { path: path(s), at: Vec::new() }),
        2 | 3 => int(s),
        4 => float(s),
        5 => ExprKind::Inf,
        6 => ExprKind::Bool(s.coin()),
        7 => ExprKind::Str(string(s)),
        _ => ExprKind::Each,
    })
}

/// An expression that is no range at the top.
fn cond(s: &mut Source<'_>) -> Expr {
    if s.depth > 5 || s.pick(3) == 0 {
        return leaf(s);
    }
    s.depth += 1;
    let kind = match s.pick(16) {
        0..=3 => ExprKind::Binary(binary_op(s), Box::new(value(s)), Box::new(value(s))),
        4 => {
            let op = s.from(&[UnaryOp::Neg, UnaryOp::Not, UnaryOp::BitNot]);
            ExprKind::Unary(op, Box::new(value(s)))
        }
        5 => ExprKind::Ref(Ref { path: path(s), at: s.list(1, instance) }),
        6 => ExprKind::Tuple(s.list(1, value)),
        7 => ExprKind::Field(Box::new(value(s)), name(s)),
        8 => ExprKind::Index(Box::new(value(s)), s.list(1, index)),
        9 | 10 => ExprKind::Call(Box::new(call(s))),
        11 => ExprKind::Transpose(Box::new(value(s))),
        12 => ExprKind::Conditional(Box::new(value(s)), Box::new(value(s)), Box::new(value(s))),
        13 => ExprKind::Load(Box::new(LoadExpr {
            source: value(s),
            absent: s.maybe(value),
            policy: policy(s),
        })),
        14 => ExprKind::ArriveLast(Box::new(ArriveLast { counter: value(s), count: value(s) })),
        _ => match s.pick(3) {
            0 => ExprKind::Spread(spread(s)),
            1 => ExprKind::Layout(Box::new(value(s)), Box::new(value(s))),
            _ => ExprKind::MatchArch(
                s.list(1, |s| ArchValue { pattern: pattern(s), value: value(s) }),
            ),
        },
    };
    s.depth -= 1;
    expr(kind)
}

/// Any expression; ranges too, which get brackets where they need them.
fn value(s: &mut Source<'_>) -> Expr {
    if s.depth < 4 && s.pick(8) == 1 {
        s.depth += 1;
        let range = range(s);
        s.depth -= 1;
        return range;
    }
    cond(s)
}

fn range(s: &mut Source<'_>) -> Expr {
    let start = cond(s);
    let end = cond(s);
    let end = match s.pick(3) {
        0 => RangeEnd::Exclusive(end),
        1 => RangeEnd::Length(end),
        _ => RangeEnd::Inclusive(end),
    };
    expr(ExprKind::Range(Box::new(Range { start, end, until: s.maybe(cond) })))
}

fn binary_op(s: &mut Source<'_>) -> BinaryOp {
    use BinaryOp::*;
    s.from(&[
        Add, Sub, Mul, Div, Rem, Or, And, Eq, Ne, Lt, Le, Gt, Ge, BitOr, BitXor, BitAnd, Shl, Shr,
    ])
}

fn instance(s: &mut Source<'_>) -> Instance {
    let kind = match s.pick(5) {
        0 => InstanceKind::Slot(Box::new(cond(s))),
        1 => InstanceKind::Cta(Box::new(cond(s))),
        2 => InstanceKind::Peer(Box::new(cond(s))),
        3 => InstanceKind::AllCtas,
        _ => InstanceKind::AllPeers,
    };
    Instance { kind, span: at() }
}

fn index(s: &mut Source<'_>) -> Index {
    let kind = match s.pick(4) {
        0 => IndexKind::All(s.maybe(cond)),
        1 => IndexKind::NewAxis,
        2 => IndexKind::At(range(s), None),
        _ => IndexKind::At(cond(s), s.maybe(cond)),
    };
    Index { kind, span: at() }
}

fn call(s: &mut Source<'_>) -> Call {
    let mut call = Call {
        callee: Callee::Path(path(s)),
        generics: Vec::new(),
        args: arguments(s),
        via: None,
        order: None,
        scope: None,
    };
    match s.pick(6) {
        0 | 1 => {}
        2 => call.generics = s.list(1, generic),
        3 => call.via = Some(path(s)),
        4 => call.callee = Callee::Method(value(s), name(s)),
        _ => {
            let names = ["atomic", "add"].map(|text| Name { text: text.to_owned(), span: at() });
            call.callee = Callee::Path(Path { segments: names.to_vec(), span: at() });
            call.order = s.maybe(order);
            call.scope = s.maybe(scope);
        }
    }
    call
}

/// Names, literals and arithmetic that needs no brackets.
fn generic(s: &mut Source<'_>) -> Expr {
    let atom = |s: &mut Source<'_>| {
        expr(match s.pick(3) {
            0 => ExprKind::Ref(Ref { path: path(s), at: Vec::new() }),
            1 => int(s),
            _ => ExprKind::Bool(s.coin()),
        })
    };
    let left = atom(s);
    if s.coin() {
        return left;
    }
    let op = s.from(&[BinaryOp::Add, BinaryOp::Mul, BinaryOp::Rem]);
    expr(ExprKind::Binary(op, Box::new(left), Box::new(atom(s))))
}

fn arguments(s: &mut Source<'_>) -> Vec<Arg> {
    s.list(0, |s| Arg { name: s.maybe(name), value: value(s) })
}

fn policy(s: &mut Source<'_>) -> Policy {
    Policy { evict: s.maybe(|s| s.from(&[Evict::First, Evict::Last])), no_allocate: s.pick(4) == 1 }
}

fn order(s: &mut Source<'_>) -> Order {
    s.from(&[Order::Relaxed, Order::Acquire, Order::Release, Order::AcqRel])
}

fn scope(s: &mut Source<'_>) -> Scope {
    s.from(&[Scope::Cta, Scope::Cluster, Scope::Gpu, Scope::Sys])
}

fn spread(s: &mut Source<'_>) -> Vec<SpreadEntry> {
    s.list(1, |s| SpreadEntry { key: name(s), axis: cond(s) })
}

fn pattern(s: &mut Source<'_>) -> ArchPattern {
    if s.coin() { ArchPattern::Any(at()) } else { ArchPattern::Targets(s.list(1, name)) }
}

fn ty(s: &mut Source<'_>) -> Type {
    let shape = s.list(0, |s| match s.pick(4) {
        0 => Dim::Any(at()),
        1 => Dim::Rest(name(s)),
        _ => Dim::Extent(cond(s)),
    });
    Type { dtype: name(s), shape, span: at() }
}

fn domain(s: &mut Source<'_>) -> Domain {
    let kind =
        if s.coin() { DomainKind::Set(s.list(1, cond)) } else { DomainKind::Range(range(s)) };
    Domain { kind, span: at() }
}

// ---- statements

fn block(s: &mut Source<'_>) -> Block {
    s.depth += 1;
    let stmts = if s.depth > 4 { Vec::new() } else { s.list(0, stmt) };
    s.depth -= 1;
    Block {
        stmts,
        value: None,
        opening: (s.pick(8) == 1).then(|| comment(s)),
        dangling: comments(s),
        inline: Hint(s.coin()),
        span: at(),
    }
}

fn stmt(s: &mut Source<'_>) -> Stmt {
    let trivia = trivia(s);
    // Statements hold whole expressions; their depth counts from here.
    let depth = s.depth;
    s.depth = depth.max(2);
    let kind = kind(s);
    s.depth = depth;
    Stmt { kind, trivia, span: at() }
}

fn constant(s: &mut Source<'_>) -> Const {
    Const { name: name(s), ty: s.maybe(ty), value: value(s) }
}

fn atom(s: &mut Source<'_>) -> Atom {
    Atom { name: name(s), value: value(s) }
}

fn edge(s: &mut Source<'_>) -> Edge {
    Edge {
        bytes: s.maybe(cond),
        ring: s.maybe(cond),
        scope: s.maybe(scope),
        from: if s.coin() { s.list(1, name) } else { Vec::new() },
        to: if s.coin() { s.list(1, name) } else { Vec::new() },
        span: at(),
    }
}

fn moved(s: &mut Source<'_>) -> Move {
    let kind = s.from(&[
        MoveKind::Load,
        MoveKind::Store,
        MoveKind::Copy,
        MoveKind::Prefetch,
        MoveKind::Multimem,
    ]);
    let words: &[&str] = match kind {
        MoveKind::Load => &["load"],
        MoveKind::Store => &["store"],
        MoveKind::Copy => &["copy", "tma"],
        MoveKind::Prefetch => &["prefetch", "l2"],
        MoveKind::Multimem => &["multimem", "store"],
    };
    let segments = words.iter().map(|text| Name { text: (*text).to_owned(), span: at() }).collect();
    let has_dest = kind != MoveKind::Prefetch;
    let may_be_absent = kind == MoveKind::Load;
    Move {
        kind,
        op: Path { segments, span: at() },
        source: cond(s),
        absent: if may_be_absent { s.maybe(cond) } else { None },
        dest: has_dest.then(|| cond(s)),
        into: s.maybe(cond),
        via: s.maybe(path),
        policy: policy(s),
    }
}

fn place(s: &mut Source<'_>) -> Expr {
    let name = expr(ExprKind::Ref(Ref { path: path(s), at: s.list(0, instance) }));
    if s.coin() { name } else { expr(ExprKind::Index(Box::new(name), s.list(1, index))) }
}

fn header() -> Span {
    at()
}

fn choice(s: &mut Source<'_>) -> If {
    let otherwise = match s.pick(3) {
        0 => None,
        1 => Some(Else::Block(Box::new(block(s)))),
        _ => Some(Else::If(Box::new(choice(s)))),
    };
    If { is_const: s.pick(4) == 1, cond: cond(s), then: block(s), otherwise, header_span: header() }
}

fn kind(s: &mut Source<'_>) -> StmtKind {
    match s.pick(30) {
        0 => StmtKind::GridWait,
        1 => StmtKind::Const(constant(s)),
        2 | 3 => StmtKind::Let(Let {
            pattern: if s.coin() {
                Pattern::Name(name(s))
            } else {
                let hole = |s: &mut Source<'_>| {
                    if s.coin() { name(s) } else { Name { text: "_".to_owned(), span: at() } }
                };
                Pattern::Tuple(s.list(1, hole), at())
            },
            ty: s.maybe(ty),
            value: value(s),
        }),
        4 => StmtKind::View(View {
            name: name(s),
            source: cond(s),
            spec: text(s),
            sizes: s.list(0, |s| (name(s), cond(s))),
        }),
        5 | 6 => StmtKind::Tile(Box::new(TileDecl {
            space: s.from(&[TileSpace::Frag, TileSpace::Smem, TileSpace::Tmem]),
            name: name(s),
            ty: ty(s),
            swizzle: s.maybe(cond),
            align: s.maybe(cond),
            ring: s.maybe(cond),
            every: s.maybe(cond),
            stored: s.maybe(cond),
            spread: s.maybe(spread),
            via: s.maybe(path),
            init: s.maybe(value),
        })),
        7 => StmtKind::Pipeline(Box::new(Pipeline {
            name: name(s),
            stages: cond(s),
            full: edge(s),
            empty: edge(s),
        })),
        8 => StmtKind::Barrier(Barrier { name: name(s), edge: edge(s) }),
        9 => StmtKind::Atom(atom(s)),
        10 | 11 => StmtKind::Move(Box::new(moved(s))),
        12 => StmtKind::Assign(Assign {
            target: place(s),
            op: s.maybe(|s| {
                s.from(&[BinaryOp::Add, BinaryOp::Shl, BinaryOp::BitXor, BinaryOp::Rem])
            }),
            value: value(s),
        }),
        13 => StmtKind::Mma(Box::new(Mma {
            a: cond(s),
            b: cond(s),
            acc: cond(s),
            via: path(s),
            add: s.maybe(cond),
        })),
        14 => StmtKind::For(Box::new(For {
            var: name(s),
            over: if s.coin() {
                ForOver::Tickets(cond(s), cond(s))
            } else {
                ForOver::Range(range(s), s.maybe(cond))
            },
            unroll: s.maybe(|s| if s.coin() { Unroll::Full } else { Unroll::By(cond(s)) }),
            body: block(s),
            header_span: header(),
        })),
        15 | 16 => StmtKind::If(Box::new(choice(s))),
        17 => StmtKind::MatchArch(s.list(1, |s| ArchArm {
            pattern: pattern(s),
            body: block(s),
            trivia: trivia(s),
            span: at(),
        })),
        18 => StmtKind::Role(Box::new(Role {
            name: name(s),
            warps: range(s),
            elect_one: s.coin(),
            registers: s.maybe(cond),
            body: block(s),
            header_span: header(),
        })),
        19 => s.from(&[StmtKind::Open as fn(Expr) -> StmtKind, StmtKind::Wait, StmtKind::Release])(
            cond(s),
        ),
        20 => StmtKind::Commit(s.maybe(cond)),
        21 => StmtKind::Settle(Settle { value: cond(s), but: s.maybe(cond) }),
        22 => s.from(&[StmtKind::Publish as fn(Expr) -> StmtKind, StmtKind::Advance])(cond(s)),
        23 => StmtKind::Sync(match s.pick(3) {
            0 => SyncTarget::All,
            1 => SyncTarget::Cluster,
            _ => SyncTarget::Role(name(s)),
        }),
        24 => StmtKind::GridLaunch,
        25 => StmtKind::Signal(Box::new(Signal {
            flag: cond(s),
            add: s.maybe(cond),
            order: s.maybe(order),
            scope: s.maybe(scope),
        })),
        26 => StmtKind::Await(Box::new(Await {
            flag: cond(s),
            until: cond(s),
            order: s.maybe(order),
            scope: s.maybe(scope),
        })),
        27 => match s.pick(3) {
            0 => StmtKind::Assert(cond(s), s.maybe(text)),
            1 => StmtKind::Printf(text(s), s.list(0, cond)),
            _ => StmtKind::Trace(text(s)),
        },
        28 => StmtKind::Unsafe(Unsafe {
            ptx: s.list(0, |s| Ptx {
                text: text(s),
                outputs: s.list(0, cond),
                inputs: s.list(0, cond),
                meaning: s.maybe(value),
                trivia: trivia(s),
                span: at(),
            }),
        }),
        _ => StmtKind::Expr(expr(ExprKind::Call(Box::new(call(s))))),
    }
}

// ---- items

fn access(s: &mut Source<'_>) -> Access {
    use Qualifier::*;
    Access {
        qualifier: s.from(&[Input, Static, Output, Inout, Scratch, Peer, Scalar, Writable]),
        settled: s.coin(),
        counter: s.pick(4) == 1,
        epoch: s.pick(4) == 1,
        span: at(),
    }
}

fn space(s: &mut Source<'_>) -> Space {
    use Space::*;
    s.from(&[Gmem, Smem, Tmem, Frag, Sym, SymFlag, SymMc])
}

fn consts(s: &mut Source<'_>) -> Vec<ConstParam> {
    s.list(0, |s| ConstParam {
        name: name(s),
        ty: name(s),
        domain: s.maybe(domain),
        default: s.maybe(cond),
        trivia: trivia(s),
        span: at(),
    })
}

fn buffer(s: &mut Source<'_>) -> Buffer {
    Buffer {
        access: access(s),
        name: name(s),
        space: s.maybe(space),
        ty: ty(s),
        ring: s.maybe(cond),
        of: s.maybe(name),
        scaled_by: s.maybe(|s| ScaledBy { scale: name(s), group: cond(s) }),
        stored: s.maybe(cond),
        contract: s.maybe(|s| {
            let distinct = s.coin();
            let except = if distinct { s.maybe(cond) } else { None };
            Contract { domain: domain(s), distinct, except, span: at() }
        }),
        trivia: trivia(s),
        span: at(),
    }
}

fn clause<T>(s: &mut Source<'_>, value: T) -> Clause<T> {
    Clause { value, trivia: trivia(s), span: at() }
}

fn kernel(s: &mut Source<'_>) -> Kernel {
    let entries = LaunchKey::ALL.into_iter().filter(|_| s.coin()).collect::<Vec<_>>();
    let entries =
        entries.into_iter().map(|key| LaunchEntry { key, value: cond(s), span: at() }).collect();
    let wheres = s.maybe(|s| s.list(1, cond));
    let tune = s.maybe(|s| s.list(1, |s| Tune { name: name(s), domain: domain(s), span: at() }));
    let export = s.maybe(text);
    Kernel {
        name: name(s),
        consts: consts(s),
        buffers: s.list(0, buffer),
        launch: Launch { entries, trivia: trivia(s), span: at() },
        wheres: wheres.map(|value| clause(s, value)),
        tune: tune.map(|value| clause(s, value)),
        export: export.map(|value| clause(s, value)),
        body: block(s),
        header_span: at(),
    }
}

fn function(s: &mut Source<'_>) -> Function {
    let mut body = block(s);
    body.value = s.maybe(|s| BlockValue { expr: value(s), trivia: trivia(s) });
    Function {
        name: name(s),
        consts: consts(s),
        params: s.list(0, |s| FnParam {
            name: name(s),
            access: s.maybe(access),
            space: s.maybe(space),
            ty: ty(s),
            trivia: trivia(s),
            span: at(),
        }),
        returns: s.list(0, ty),
        body,
        header_span: at(),
    }
}

pub(crate) fn file(s: &mut Source<'_>) -> File {
    let items = s.list(1, |s| {
        let trivia = trivia(s);
        let kind = match s.pick(8) {
            0 => ItemKind::Target(s.list(1, name)),
            1 => ItemKind::Import(text(s)),
            2 => ItemKind::Const(constant(s)),
            3 => ItemKind::Atom(atom(s)),
            4 => ItemKind::Fn(Box::new(function(s))),
            _ => ItemKind::Kernel(Box::new(kernel(s))),
        };
        Item { kind, trivia, span: at() }
    });
    File { items, tail: comments(s), waivers: Vec::new(), span: at() }
}

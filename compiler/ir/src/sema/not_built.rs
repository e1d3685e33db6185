//! What parses and is not built in this version, by form. Forms that depend on a name or a type are
//! judged where those are known; everything else is here, so that nothing is ever ignored.

use kernel_dsl::ast::{
    Access, Buffer, Call, Callee, ExprKind, InstanceKind, LaunchKey, Move, MoveKind, Qualifier,
    Ref, Space, Stmt, StmtKind, TileDecl, TileSpace,
};
use kernel_dsl::source::Span;

use super::warpgroup::is_built;

/// The part of a value that holds the scales of its elements: `w.scale`.
pub(super) const SCALE: &str = "scale";

/// What `stored NAME` asks for.
pub(super) const BY_NAME: &str =
    "layouts of buffers by name (write `stored layout(SHAPE : STRIDE)`)";

/// A place and what stands there.
pub(super) type NotBuilt = (Span, &'static str);

/// A statement that is refused as a whole, without a look inside.
pub(super) fn statement(stmt: &Stmt) -> Option<NotBuilt> {
    let whole = stmt.span;
    match &stmt.kind {
        StmtKind::Tile(tile) => match tile.space {
            TileSpace::Frag | TileSpace::Smem | TileSpace::Tmem => None,
        },
        StmtKind::Atom(atom) => {
            let what = "atoms but for `wgmma` and `tcgen05`";
            (!is_built(&atom.value)).then_some((atom.value.span, what))
        }
        StmtKind::Move(mv) => moves(mv, whole),
        StmtKind::Mma(_)
        | StmtKind::For(_)
        | StmtKind::Commit(_)
        | StmtKind::Settle(_)
        | StmtKind::Publish(_)
        | StmtKind::Pipeline(_)
        | StmtKind::Barrier(_)
        | StmtKind::Open(_)
        | StmtKind::Wait(_)
        | StmtKind::Release(_)
        | StmtKind::Role(_)
        | StmtKind::Sync(_)
        | StmtKind::If(_)
        | StmtKind::Advance(_)
        | StmtKind::Signal(_)
        | StmtKind::Await(_)
        | StmtKind::Const(_)
        | StmtKind::Let(_)
        | StmtKind::View(_)
        | StmtKind::Assign(_)
        | StmtKind::MatchArch(_)
        | StmtKind::GridWait
        | StmtKind::GridLaunch
        | StmtKind::Assert(..)
        | StmtKind::Trace(_)
        | StmtKind::Unsafe(_)
        | StmtKind::Printf(..)
        | StmtKind::Expr(_) => None,
    }
}

fn moves(mv: &Move, whole: Span) -> Option<NotBuilt> {
    match mv.kind {
        MoveKind::Copy
            if mv.op.is("copy.bulk") || mv.op.is("copy.tma") || mv.op.is("copy.st_async") =>
        {
            return None;
        }
        MoveKind::Multimem if !mv.op.is("multimem.store") => {
            return Some((whole, "`multimem` operations but `load_reduce` and `store`"));
        }
        MoveKind::Multimem
        | MoveKind::Load
        | MoveKind::Store
        | MoveKind::Copy
        | MoveKind::Prefetch => {}
    }
    if let Some(into) = &mv.into {
        return Some((into.span, "`into` a barrier"));
    }
    mv.via.as_ref().map(|via| (via.span, "`via` an atom"))
}

/// The parts of a register tile's declaration that are not built.
pub(super) fn frag(tile: &TileDecl) -> Vec<NotBuilt> {
    let parts = [
        (&tile.swizzle, "`swizzle`"),
        (&tile.align, "`align`"),
        (&tile.every, "`every`"),
        (&tile.stored, "thread-value layouts by `stored`"),
    ];
    let mut found: Vec<NotBuilt> =
        parts.iter().filter_map(|(part, what)| Some((part.as_ref()?.span, *what))).collect();
    let via = tile.via.as_ref().filter(|via| !via.is("mma_sync"));
    found.extend(via.map(|via| (via.span, "layouts `via` an atom")));
    found
}

/// The parts of the declaration of a tile in shared memory that are not built.
pub(super) fn smem(tile: &TileDecl) -> Vec<NotBuilt> {
    let mut found: Vec<NotBuilt> = tile.every.iter().map(|e| (e.span, "`every`")).collect();
    found.extend(tile.stored.iter().map(|e| (e.span, "layouts in shared memory by `stored`")));
    found.extend(tile.spread.iter().flatten().map(|e| (e.axis.span, "`spread` of shared memory")));
    found.extend(tile.via.iter().map(|via| (via.span, "layouts `via` an atom")));
    found
}

/// The parts of a buffer's declaration that are not built.
pub(super) fn buffer(buffer: &Buffer) -> Vec<NotBuilt> {
    let space =
        buffer.space.filter(|space| !matches!(space, Space::Sym | Space::SymFlag | Space::SymMc));
    let mut found: Vec<NotBuilt> =
        space.and_then(|space| self::space(space, buffer.span)).into_iter().collect();
    let ring = buffer.ring.as_ref().filter(|_| buffer.access.qualifier != Qualifier::Peer);
    found.extend(ring.map(|e| (e.span, "rings of buffers")));
    let peer = buffer.access.qualifier == Qualifier::Peer;
    let parts = [&buffer.stored, &buffer.scaled_by.as_ref().map(|by| by.group.clone())];
    let stored = parts.into_iter().flatten().filter(|_| peer);
    found.extend(stored.map(|e| (e.span, "layouts and scales of symmetric memory")));
    let by_name = buffer.stored.as_ref().filter(|e| !matches!(e.kind, ExprKind::Layout(..)));
    found.extend(by_name.map(|e| (e.span, BY_NAME)));
    found
}

/// The qualifiers of a function's parameter that are not built.
pub(super) fn access(access: &Access) -> Vec<NotBuilt> {
    let words = access.counter || access.epoch;
    words
        .then_some((access.span, "counters and epochs as parameters of a function"))
        .into_iter()
        .collect()
}

/// The memory spaces that are not built.
pub(super) fn space(space: Space, span: Span) -> Option<NotBuilt> {
    match space {
        Space::Gmem | Space::Frag => None,
        Space::Smem => Some((span, "tiles in shared memory")),
        Space::Tmem => Some((span, "tiles in tensor memory")),
        Space::Sym => Some((span, "symmetric memory")),
        Space::SymFlag => Some((span, "flags in symmetric memory")),
        Space::SymMc => Some((span, "multicast memory")),
    }
}

/// The launch entries that are not built.
pub(super) fn launch(key: LaunchKey) -> Option<&'static str> {
    match key {
        LaunchKey::Grid
        | LaunchKey::Cluster
        | LaunchKey::Warps
        | LaunchKey::Pdl
        | LaunchKey::World
        | LaunchKey::Resident
        | LaunchKey::MinCtas => None,
    }
}

/// An expression that is refused as a whole, without a look inside.
pub(super) fn expression(kind: &ExprKind) -> Option<&'static str> {
    match kind {
        ExprKind::Each => Some("`each`"),
        ExprKind::Transpose(_) => Some("`^T`"),
        ExprKind::ArriveLast(_) => Some("`arrive.last`"),
        ExprKind::Spread(_) => Some("`spread` as a value"),
        ExprKind::Layout(..) => Some("layouts as values"),
        ExprKind::Field(_, part) if part.text != SCALE => Some("parts of a value"),
        ExprKind::Field(..)
        | ExprKind::Int(_)
        | ExprKind::Float(_)
        | ExprKind::Inf
        | ExprKind::Bool(_)
        | ExprKind::Str(_)
        | ExprKind::Ref(_)
        | ExprKind::Tuple(_)
        | ExprKind::Range(_)
        | ExprKind::Index(..)
        | ExprKind::Call(_)
        | ExprKind::Unary(..)
        | ExprKind::Binary(..)
        | ExprKind::Conditional(..)
        | ExprKind::Load(_)
        | ExprKind::MatchArch(_) => None,
    }
}

/// The parts of a call that are not built.
pub(super) fn call(call: &Call, span: Span) -> Option<NotBuilt> {
    if let Some(via) = &call.via {
        let takes =
            matches!(&call.callee, Callee::Path(path) if path.is("contract") || path.is("dot"));
        if !takes || !via.is("mma_sync") {
            return Some((via.span, "tensor-core atoms"));
        }
    }
    (call.order.is_some() || call.scope.is_some()).then_some((span, "atomic operations"))
}

/// The instances of a name that are not built.
pub(super) fn instances(reference: &Ref) -> Option<NotBuilt> {
    reference.at.iter().find_map(|at| match &at.kind {
        InstanceKind::Slot(slot) => {
            matches!(slot.kind, ExprKind::Each).then_some((at.span, "`@each`"))
        }
        InstanceKind::Cta(_)
        | InstanceKind::AllCtas
        | InstanceKind::Peer(_)
        | InstanceKind::AllPeers => None,
    })
}

/// Dotted names of the language that are not built as values.
pub(super) fn path(text: &str) -> Option<&'static str> {
    match text {
        "cluster.size" => Some("the size of a cluster as a value (give it a `const`)"),
        _ => None,
    }
}

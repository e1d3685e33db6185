//! What statements do and what they order, in words.

use kernel_dsl::source::Span;

use crate::kernel::{
    Kernel, Op, Outgoing, PipeOp, Stmt, StmtKind, Storage, Tensor, TileAccess, Warpgroup,
};

/// What a statement does at a place of it.
pub(crate) fn does(kernel: &Kernel, stmt: &Stmt, span: Span) -> String {
    let named =
        |verb: &str, access: &TileAccess| format!("{verb} `{}`", kernel.name_of(access.storage));
    let word = |verb: &str, param| format!("{verb} `{}`", kernel.params[param].name);
    match &stmt.kind {
        StmtKind::Def { op: Op::Load { access, .. }, .. } => named("load", access),
        StmtKind::Def { op: Op::Atomic { access, .. }, .. } => named("atomic", access),
        StmtKind::Def { op: Op::ArriveLast { word: at, .. }, .. } => word("arrive", at.param),
        StmtKind::Def { op: Op::ReadVar { var, .. }, .. } => {
            format!("use of `{}`", kernel.vars[*var].name)
        }
        StmtKind::SetVar { var, .. } => format!("assignment of `{}`", kernel.vars[*var].name),
        StmtKind::Store { access, update: None, .. } => named("store", access),
        StmtKind::Store { access, update: Some(_), .. } => named("change of", access),
        StmtKind::CopyAsync { source, dest, .. }
        | StmtKind::Pipe(PipeOp::Copy { source, dest, .. })
        | StmtKind::Outgoing(Outgoing::Copy { source, dest, .. }) => {
            if source.span == span {
                named("copy out of", source)
            } else if dest.span == span {
                named("copy to", dest)
            } else {
                format!("{} to `{}`", named("copy", source), kernel.name_of(dest.storage))
            }
        }
        StmtKind::Pipe(PipeOp::Send { dest, .. }) => named("send to", dest),
        StmtKind::Warpgroup(Warpgroup::Mma(mma)) => {
            format!("product to `{}`", kernel.vars[mma.var].name)
        }
        StmtKind::Tensor(Tensor::Mma(mma)) => named("product to", &mma.acc),
        StmtKind::Tensor(Tensor::Load { access, .. }) => named("load", access),
        StmtKind::Tensor(Tensor::Store { access, .. }) => named("store", access),
        StmtKind::Prefetch { .. } => "prefetch".to_owned(),
        StmtKind::Advance { word: at } => word("advance", at.param),
        StmtKind::Assert { .. }
        | StmtKind::Trace { .. }
        | StmtKind::Printf { .. }
        | StmtKind::EmptyGroup
        | StmtKind::Def { .. } => "this".to_owned(),
        StmtKind::For { .. } => "loop".to_owned(),
        StmtKind::If { .. } => "choice".to_owned(),
        StmtKind::Role { role, .. } => format!("role `{}`", kernel.roles[*role].name),
        StmtKind::Outgoing(
            Outgoing::EmptyGroup | Outgoing::Settle { .. } | Outgoing::Publish { .. },
        )
        | StmtKind::Settle { .. }
        | StmtKind::Warpgroup(Warpgroup::Commit | Warpgroup::Settle { .. })
        | StmtKind::Tensor(Tensor::Settle { .. })
        | StmtKind::Sync
        | StmtKind::SyncCluster
        | StmtKind::SyncRole
        | StmtKind::Signal(_)
        | StmtKind::Await(_)
        | StmtKind::Pipe(
            PipeOp::Open { .. }
            | PipeOp::Wait { .. }
            | PipeOp::Release { .. }
            | PipeOp::Commit { .. },
        )
        | StmtKind::GridWait
        | StmtKind::GridLaunch => named_order(kernel, stmt),
    }
}

/// A statement that orders something, as it is written.
pub(crate) fn named_order(kernel: &Kernel, stmt: &Stmt) -> String {
    let storage = |word: &str, storage: Storage| format!("`{word} {}`", kernel.name_of(storage));
    let barrier = |word: &str, barrier| format!("`{word} {}`", kernel.barriers[barrier].name);
    match &stmt.kind {
        StmtKind::Sync => "`sync`".to_owned(),
        StmtKind::SyncRole => "`sync` of the role".to_owned(),
        StmtKind::SyncCluster => "`sync cluster`".to_owned(),
        StmtKind::Settle { storage: of, .. }
        | StmtKind::Outgoing(Outgoing::Settle { storage: of, .. }) => storage("settle", *of),
        StmtKind::Outgoing(Outgoing::Publish { storage: of }) => storage("publish", *of),
        StmtKind::Warpgroup(Warpgroup::Commit) => "`commit`".to_owned(),
        StmtKind::Warpgroup(Warpgroup::Settle { var, .. })
        | StmtKind::Tensor(Tensor::Settle { var, .. }) => {
            format!("`settle {}`", kernel.vars[*var].name)
        }
        StmtKind::Signal(signal) => format!("`signal {}`", kernel.params[signal.param].name),
        StmtKind::Await(wait) => format!("`await {}`", kernel.params[wait.param].name),
        StmtKind::Pipe(PipeOp::Open { full, .. }) => {
            let name = &kernel.barriers[*full].name;
            format!("`open {}`", name.strip_suffix(".full").unwrap_or(name))
        }
        StmtKind::Pipe(PipeOp::Wait { barrier: at, .. }) => barrier("wait", *at),
        StmtKind::Pipe(PipeOp::Release { barrier: at, .. }) => barrier("release", *at),
        StmtKind::Pipe(PipeOp::Commit { barrier: at, .. }) => barrier("commit", *at),
        StmtKind::GridWait => "`grid_wait`".to_owned(),
        StmtKind::GridLaunch => "`grid_launch`".to_owned(),
        StmtKind::Def { op: Op::ArriveLast { word, .. }, .. } => {
            format!("`arrive.last {}`", kernel.params[word.param].name)
        }
        StmtKind::For { .. } => "a round of the work list".to_owned(),
        _ => "this".to_owned(),
    }
}

/// What a statement orders, nothing where it orders nothing.
pub(crate) fn orders(stmt: &Stmt) -> Option<&'static str> {
    Some(match &stmt.kind {
        StmtKind::Sync => "orders the threads of the CTA",
        StmtKind::SyncRole => "orders the threads of the role",
        StmtKind::SyncCluster => "orders the CTAs of the cluster",
        StmtKind::Settle { .. } => "completes copies of the thread that waits, for that thread",
        StmtKind::Outgoing(Outgoing::Settle { storage: Storage::Buffer(_), .. }) => {
            "completes copies of one thread"
        }
        StmtKind::Outgoing(Outgoing::Settle { .. }) => "ends what copies of one thread read",
        StmtKind::Outgoing(Outgoing::Publish { .. }) => {
            "is a fence for copies, and orders no other thread"
        }
        StmtKind::Warpgroup(Warpgroup::Commit) => "closes a group, and waits for nothing",
        StmtKind::Warpgroup(Warpgroup::Settle { .. }) => "completes older groups of products",
        StmtKind::Tensor(Tensor::Settle { .. }) => "completes a load from tensor memory",
        StmtKind::Signal(_) => "tells who awaits it",
        StmtKind::Await(_) => "is behind the signals of its words",
        StmtKind::Pipe(PipeOp::Open { .. }) => "is behind the release of the slot one round before",
        StmtKind::Pipe(PipeOp::Wait { .. }) => "is behind what arrives at this index",
        StmtKind::Pipe(PipeOp::Release { .. }) => "tells who waits for this index",
        StmtKind::Pipe(PipeOp::Commit { .. }) => "tells who waits, when products are complete",
        StmtKind::GridWait => "is behind earlier launches",
        StmtKind::GridLaunch => "lets the next launch start, and orders nothing",
        StmtKind::Def { op: Op::ArriveLast { .. }, .. } => "is behind arrivals, in the last CTA",
        StmtKind::For { tickets: Some(_), .. } => "orders the threads of the CTA",
        _ => return None,
    })
}

//! Barriers at which roles hand slots over to each other, and what is done at them.
//!
//! A barrier has slots, and each slot counts rounds: round `r` of a slot is complete when all its arrivals have come
//! and all its bytes have landed. Index `t` means round `t / slots` of slot `t % slots`. A pipeline is a pair of
//! barriers: `full`, at which its consumer waits, and `empty`, at which its producer waits, one round behind.

use kernel_dsl::source::Span;
use serde::{Deserialize, Serialize};

use super::{
    BarrierId, Evict, Op, Outgoing, PrefetchRange, RoleId, Stmt, StmtKind, TileAccess, ValueId,
    Warpgroup,
};

/// How the two CTAs of a pair, which share products, meet at a barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Between {
    /// Each for itself.
    #[default]
    Apart,
    /// What comes from both counts in the first CTA, and its roles alone wait.
    Gathered,
    /// The first CTA alone arrives, in both.
    Spread,
}

/// A barrier in shared memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Barrier {
    /// The author's name: `done`, `ld.full`.
    pub name: String,
    /// Ring slots.
    pub slots: u32,
    /// Arrivals that a round takes.
    pub arrivals: u32,
    /// Bytes of copies that a round takes besides, of each CTA that brings some.
    pub bytes: u32,
    /// Roles that arrive.
    pub from: Vec<RoleId>,
    /// Roles that wait.
    pub to: Vec<RoleId>,
    /// `scope cluster`: CTAs of the cluster fill it, itself among them.
    pub of_cluster: bool,
    /// A barrier of a pipeline whose slots copies fill in all CTAs of the cluster: who is done with a slot arrives in
    /// all of them.
    pub everywhere: bool,
    /// How a pair of CTAs meets at it.
    pub between: Between,
    /// The other barrier of its pipeline.
    pub partner: Option<BarrierId>,
    /// Where it is declared.
    #[serde(skip)]
    pub span: Span,
}

impl Barrier {
    /// A barrier that counts bytes outside of a pipeline: it has one round, whose bytes are announced where it is made.
    pub fn is_prepaid(&self) -> bool {
        self.bytes > 0 && self.partner.is_none()
    }

    /// Bytes that a round takes where it is waited for.
    pub fn bytes_awaited(&self) -> u32 {
        match self.between {
            Between::Gathered => self.bytes.saturating_mul(2),
            Between::Apart | Between::Spread => self.bytes,
        }
    }
}

/// What a statement does at a barrier. `at` is an i32 scalar, at least 0.
#[derive(Debug, Clone)]
pub enum PipeOp {
    /// `open p@t`: waits until the slot is free, which it is at first, and announces the bytes of the round.
    Open {
        /// The barrier of the pipeline that will be full.
        full: BarrierId,
        /// The one that is waited for.
        empty: BarrierId,
        /// Index.
        at: ValueId,
    },
    /// `wait b@t`: until the round is complete; what was done before its arrivals is visible, and its bytes are.
    Wait {
        /// The barrier.
        barrier: BarrierId,
        /// Index.
        at: ValueId,
    },
    /// `release b@t`: the role arrives, once a warp, after what its threads have done before.
    Release {
        /// The barrier.
        barrier: BarrierId,
        /// Index.
        at: ValueId,
        /// `@cta(*)`: in every CTA of the cluster.
        everywhere: bool,
    },
    /// `commit b@t`: one thread lets the role arrive once, when all products are complete that it has started before.
    Commit {
        /// The barrier.
        barrier: BarrierId,
        /// Index.
        at: ValueId,
        /// `@cta(*)`: in every CTA of the cluster.
        everywhere: bool,
    },
    /// `copy.bulk`, `copy.tma`: one thread starts a copy from a buffer to shared memory whose bytes count at the
    /// barrier; at that of the first CTA where it is [gathered](Between::Gathered).
    Copy {
        /// Where from, a buffer.
        source: TileAccess,
        /// Where to, shared memory; the same extents.
        dest: TileAccess,
        /// The barrier.
        barrier: BarrierId,
        /// Index.
        at: ValueId,
        /// `evict first|last`.
        evict: Option<Evict>,
        /// By which instructions.
        way: CopyWay,
        /// `@cta(*)`: to the same place of every CTA of the cluster, each of which counts the bytes.
        everywhere: bool,
    },
    /// `copy.st_async`: the role's threads send a tile to shared memory of a CTA of the cluster, whose bytes count at
    /// the barrier of that CTA.
    Send {
        /// What is sent; its shape is the shape of the access.
        value: ValueId,
        /// Where to, in a CTA of the cluster.
        dest: TileAccess,
        /// The barrier.
        barrier: BarrierId,
        /// Index.
        at: ValueId,
    },
}

/// How a copy that a barrier counts is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyWay {
    /// Runs that lie together on both sides.
    Bulk,
    /// One box of a tensor map; positions outside of the buffer arrive as zeros.
    Tensor,
}

impl CopyWay {
    /// The name in the source.
    pub fn name(self) -> &'static str {
        match self {
            CopyWay::Bulk => "copy.bulk",
            CopyWay::Tensor => "copy.tma",
        }
    }
}

impl PipeOp {
    /// The barrier that names the pipeline, or the barrier itself, and the index.
    pub fn place(&self) -> (BarrierId, ValueId) {
        match self {
            PipeOp::Open { full, at, .. } => (*full, *at),
            PipeOp::Wait { barrier, at }
            | PipeOp::Release { barrier, at, .. }
            | PipeOp::Commit { barrier, at, .. }
            | PipeOp::Copy { barrier, at, .. }
            | PipeOp::Send { barrier, at, .. } => (*barrier, *at),
        }
    }
}

/// The buffer access and the shared access of a copy of either kind.
pub fn copied(kind: &StmtKind) -> Option<(&TileAccess, &TileAccess)> {
    match kind {
        StmtKind::CopyAsync { source, dest, .. }
        | StmtKind::Pipe(PipeOp::Copy { source, dest, .. }) => Some((source, dest)),
        _ => None,
    }
}

/// Calls `see` with every access of a statement, but for those in its blocks and for what `copy.st_async` writes.
pub fn each_access(kind: &StmtKind, see: &mut impl FnMut(&TileAccess)) {
    match kind {
        StmtKind::Def { op: Op::Load { access, .. } | Op::Atomic { access, .. }, .. }
        | StmtKind::Store { access, .. } => {
            see(access);
        }
        StmtKind::Prefetch { what: PrefetchRange::Tile(access), .. } => see(access),
        StmtKind::Warpgroup(Warpgroup::Mma(mma)) => {
            mma.reads().for_each(see);
        }
        StmtKind::Tensor(op) => op.each_access(see),
        StmtKind::CopyAsync { source, dest, .. }
        | StmtKind::Outgoing(Outgoing::Copy { source, dest, .. })
        | StmtKind::Pipe(PipeOp::Copy { source, dest, .. }) => {
            see(source);
            see(dest);
        }
        StmtKind::Def { .. }
        | StmtKind::Prefetch { .. }
        | StmtKind::SetVar { .. }
        | StmtKind::Advance { .. }
        | StmtKind::EmptyGroup
        | StmtKind::Outgoing(_)
        | StmtKind::Settle { .. }
        | StmtKind::Warpgroup(_)
        | StmtKind::Sync
        | StmtKind::Signal(_)
        | StmtKind::Await(_)
        | StmtKind::SyncCluster
        | StmtKind::SyncRole
        | StmtKind::Pipe(_)
        | StmtKind::Role { .. }
        | StmtKind::For { .. }
        | StmtKind::If { .. }
        | StmtKind::GridWait
        | StmtKind::GridLaunch
        | StmtKind::Assert { .. }
        | StmtKind::Trace { .. }
        | StmtKind::Printf { .. } => {}
    }
}

/// Calls `see` with every operation at a barrier.
pub fn each_pipe_op<'k>(stmts: &'k [Stmt], see: &mut impl FnMut(&'k PipeOp, Span)) {
    for stmt in stmts {
        if let StmtKind::Pipe(op) = &stmt.kind {
            see(op, stmt.span);
        }
        for body in stmt.kind.bodies() {
            each_pipe_op(body, see);
        }
    }
}

//! Which values a statement reads.

use crate::kernel::{Op, PipeOp, PrefetchRange, StmtKind, TileAccess, ValueId, Warpgroup};

/// Calls `see` with every value that the statement itself reads; inner statements are left out.
pub(crate) fn each_use(kind: &StmtKind, mut see: impl FnMut(ValueId)) {
    match kind {
        StmtKind::Def { results: _, op } => each_operand(op, see),
        StmtKind::SetVar { value, .. } => see(*value),
        StmtKind::Store { value, access, .. } => {
            see(*value);
            each_index(access, see);
        }
        StmtKind::Prefetch { what, .. } => match what {
            PrefetchRange::Tile(access) | PrefetchRange::Box(access) => each_index(access, see),
            PrefetchRange::Elements { param: _, start, end } => {
                see(*start);
                see(*end);
            }
        },
        StmtKind::Advance { word } => see(word.index),
        StmtKind::Signal(signal) => signal.index.iter().copied().chain(signal.to).for_each(see),
        StmtKind::Await(wait) => {
            wait.index.iter().copied().flatten().for_each(&mut see);
            see(wait.until);
        }
        StmtKind::CopyAsync { source, dest, .. } => {
            each_index(source, &mut see);
            each_index(dest, see);
        }
        StmtKind::Pipe(op) => {
            see(op.place().1);
            if let PipeOp::Copy { source, dest, .. } = op {
                each_index(source, &mut see);
                each_index(dest, see);
            } else if let PipeOp::Send { value, dest, .. } = op {
                see(*value);
                each_index(dest, see);
            }
        }
        StmtKind::Settle { storage, .. } => storage.slot().into_iter().for_each(see),
        StmtKind::Warpgroup(Warpgroup::Mma(mma)) => mma.each_use(see),
        StmtKind::Tensor(op) => op.each_use(see),
        StmtKind::Outgoing(op) => op.each_use(see),
        StmtKind::Warpgroup(Warpgroup::Commit | Warpgroup::Settle { .. })
        | StmtKind::EmptyGroup
        | StmtKind::Sync
        | StmtKind::SyncCluster
        | StmtKind::SyncRole
        | StmtKind::Role { .. }
        | StmtKind::GridWait
        | StmtKind::GridLaunch => {}
        StmtKind::Assert { cond, .. } | StmtKind::If { cond, .. } => see(*cond),
        StmtKind::Trace { event: _ } => {}
        StmtKind::Printf { args, .. } => args.iter().copied().for_each(see),
        StmtKind::For { start, end, tickets, .. } => {
            see(*start);
            see(*end);
            tickets.iter().for_each(|word| see(word.index));
        }
    }
}

fn each_operand(op: &Op, mut see: impl FnMut(ValueId)) {
    match op {
        Op::Const(_)
        | Op::CtaIndex(_)
        | Op::ClusterIndex(_)
        | Op::ScalarParam(_)
        | Op::Iota
        | Op::ReadVar { .. } => {}
        Op::Unary { x, .. }
        | Op::Convert { x }
        | Op::Splat { x }
        | Op::Expand { x, .. }
        | Op::Reduce { x, .. }
        | Op::Argmax { x, .. }
        | Op::Relayout { x }
        | Op::Scan { x, .. }
        | Op::Slice { x, .. } => see(*x),
        Op::Binary { a, b, .. } | Op::Compare { a, b, .. } | Op::Concat { a, b, .. } => {
            see(*a);
            see(*b);
        }
        Op::Select { cond: a, a: b, b: c } | Op::Fma { a, b, c } => {
            [a, b, c].into_iter().for_each(|x| see(*x));
        }
        Op::Inline { text: _, equals, inputs } => {
            std::iter::once(equals).chain(inputs).for_each(|x| see(*x));
        }
        Op::Load { access, other, .. } => {
            other.iter().for_each(|x| see(*x));
            each_index(access, see);
        }
        Op::ArriveLast { word, .. } => see(word.index),
        Op::Atomic { op: _, value, access } => {
            see(*value);
            each_index(access, see);
        }
        Op::Contract { spec: _, a, b, acc } | Op::Mma { spec: _, a, b, acc } => {
            see(*a);
            see(*b);
            acc.iter().for_each(|x| see(*x));
        }
    }
}

fn each_index(access: &TileAccess, see: impl FnMut(ValueId)) {
    access.each_use(see);
}

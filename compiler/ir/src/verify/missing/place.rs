//! Where statements stand, and what stands between two of them.

use kernel_dsl::source::Span;

use super::words::orders;
use crate::kernel::{
    Kernel, Op, Outgoing, ParamId, PipeOp, RoleId, SmemId, Stmt, StmtKind, each_access,
};

/// A statement and the way to it: at each level its block and its number there, outermost first.
#[derive(Clone)]
pub(super) struct Found<'k> {
    pub(super) stmt: &'k Stmt,
    /// The role that does it.
    pub(super) role: Option<RoleId>,
    chain: Vec<(&'k [Stmt], usize)>,
}

/// A statement that orders something.
pub(super) struct Step<'k> {
    pub(super) stmt: &'k Stmt,
    /// Some paths go past it.
    pub(super) sometimes: bool,
}

/// What leads from one statement to another one.
pub(super) enum Way<'k> {
    /// The statements between, in one thread.
    Straight(Vec<Step<'k>>),
    /// Through the end of a loop's body and its start.
    Round { of: Span, after: Vec<Step<'k>>, before: Vec<Step<'k>> },
    /// What one role does behind the first, and another one ahead of the second.
    Beside { after: Vec<Step<'k>>, before: Vec<Step<'k>> },
    /// None: other threads, CTAs or launches do the first.
    None,
}

/// The first statement that does what stands at `span`, none where it is a declaration. What stands in a function is done
/// at each call: one that touches the memory of `other` is meant then.
pub(super) fn at<'k>(
    kernel: &'k Kernel,
    span: Span,
    other: Option<&Found<'k>>,
) -> Option<Found<'k>> {
    let memory = other.map_or_else(Vec::new, |found| memory(&found.stmt.kind));
    let mut best: Option<((bool, u32), Found<'k>)> = None;
    walk(&kernel.body, &mut Vec::new(), None, &mut |stmt, chain, role| {
        let Some(rank) = fits(stmt, span) else { return };
        let shares = self::memory(&stmt.kind).iter().any(|touched| memory.contains(touched));
        let rank = (!memory.is_empty() && !shares, rank);
        if best.as_ref().is_none_or(|(known, _)| rank < *known) {
            best = Some((rank, Found { stmt, role, chain: chain.to_vec() }));
        }
    });
    best.map(|(_, found)| found)
}

/// The first statement of a kind.
pub(super) fn first<'k>(
    kernel: &'k Kernel,
    is_meant: impl Fn(&StmtKind) -> bool,
) -> Option<Found<'k>> {
    let mut found = None;
    walk(&kernel.body, &mut Vec::new(), None, &mut |stmt, chain, role| {
        if found.is_none() && is_meant(&stmt.kind) {
            found = Some(Found { stmt, role, chain: chain.to_vec() });
        }
    });
    found
}

fn walk<'k>(
    stmts: &'k [Stmt],
    chain: &mut Vec<(&'k [Stmt], usize)>,
    role: Option<RoleId>,
    see: &mut impl FnMut(&'k Stmt, &[(&'k [Stmt], usize)], Option<RoleId>),
) {
    for (number, stmt) in stmts.iter().enumerate() {
        chain.push((stmts, number));
        see(stmt, chain, role);
        let role = match &stmt.kind {
            StmtKind::Role { role, .. } => Some(*role),
            _ => role,
        };
        for body in stmt.kind.bodies() {
            walk(body, chain, role, see);
        }
        chain.pop();
    }
}

/// The memory that a statement touches.
fn memory(kind: &StmtKind) -> Vec<(Option<ParamId>, Option<SmemId>)> {
    let mut found = Vec::new();
    each_access(kind, &mut |access| {
        found.push((access.storage.param(), access.storage.tile().map(|(tile, _)| tile)));
    });
    found
}

/// How well a statement fits a place: 0 an access of it, 1 itself, from 2 on what is around it.
fn fits(stmt: &Stmt, span: Span) -> Option<u32> {
    let mut is_part = false;
    each_access(&stmt.kind, &mut |access| is_part |= access.span == span);
    is_part |= match &stmt.kind {
        StmtKind::Signal(signal) => signal.span == span,
        StmtKind::Await(wait) => wait.span == span,
        StmtKind::Advance { word } | StmtKind::Def { op: Op::ArriveLast { word, .. }, .. } => {
            word.span == span
        }
        StmtKind::Pipe(PipeOp::Send { dest, .. }) => dest.span == span,
        _ => false,
    };
    if is_part {
        return Some(0);
    }
    if stmt.span == span {
        return Some(1);
    }
    let is_leaf = stmt.kind.bodies().iter().all(|body| body.is_empty());
    let inside = stmt.span.file == span.file && stmt.span.lo <= span.lo && span.hi <= stmt.span.hi;
    (is_leaf && inside).then(|| (stmt.span.hi - stmt.span.lo).saturating_add(2))
}

impl<'k> Found<'k> {
    /// What stands before it, from the start of the kernel on.
    pub(super) fn since_start(&self) -> Vec<Step<'k>> {
        self.before(0)
    }

    /// What stands behind it, up to the end of the kernel.
    pub(super) fn to_end(&self) -> Vec<Step<'k>> {
        self.after(0)
    }

    fn after(&self, from: usize) -> Vec<Step<'k>> {
        let levels = self.chain.iter().skip(from).rev();
        levels.flat_map(|&(block, at)| steps(block.get(at + 1..).unwrap_or_default())).collect()
    }

    fn before(&self, from: usize) -> Vec<Step<'k>> {
        let levels = self.chain.iter().skip(from);
        levels.flat_map(|&(block, at)| steps(block.get(..at).unwrap_or_default())).collect()
    }

    /// What leads from this statement to a later one, which may stand before it in a loop.
    pub(super) fn way_to(&self, later: &Found<'k>) -> Way<'k> {
        let both = self.chain.iter().zip(&later.chain);
        let common = both.take_while(|(a, b)| std::ptr::eq(a.0, b.0) && a.1 == b.1).count();
        if let (Some(&(block, i)), Some(&(other, j))) =
            (self.chain.get(common), later.chain.get(common))
            && std::ptr::eq(block.as_ptr(), other.as_ptr())
        {
            let between = block.get(i.min(j)..=i.max(j)).unwrap_or_default();
            if between.iter().all(|stmt| matches!(stmt.kind, StmtKind::Role { .. })) {
                let (after, before) = (self.after(common + 1), later.before(common + 1));
                return Way::Beside { after, before };
            }
            if i < j {
                let mut all = self.after(common + 1);
                all.extend(steps(block.get(i + 1..j).unwrap_or_default()));
                all.extend(later.before(common + 1));
                return Way::Straight(all);
            }
        }
        let loops = self.chain.iter().take(common).enumerate().rev();
        let mut loops = loops.filter_map(|(level, &(block, at))| {
            let stmt = block.get(at)?;
            matches!(stmt.kind, StmtKind::For { .. }).then_some((level, stmt.span))
        });
        match loops.next() {
            Some((level, of)) => {
                let (after, before) = (self.after(level + 1), later.before(level + 1));
                Way::Round { of, after, before }
            }
            None => Way::None,
        }
    }
}

/// The statements that order something, those in loops and choices included.
fn steps(stmts: &[Stmt]) -> Vec<Step<'_>> {
    fn collect<'k>(stmts: &'k [Stmt], sometimes: bool, found: &mut Vec<Step<'k>>) {
        for stmt in stmts {
            if orders(stmt).is_some() {
                found.push(Step { stmt, sometimes });
            }
            // What roles do orders their own threads alone.
            if !matches!(stmt.kind, StmtKind::Role { .. }) {
                for body in stmt.kind.bodies() {
                    collect(body, true, found);
                }
            }
        }
    }
    let mut found = Vec::new();
    collect(stmts, false, &mut found);
    found
}

/// True for what goes on by itself behind its statement.
pub(super) fn is_copy(kind: &StmtKind) -> bool {
    matches!(
        kind,
        StmtKind::CopyAsync { .. }
            | StmtKind::Outgoing(Outgoing::Copy { .. })
            | StmtKind::Pipe(PipeOp::Copy { .. } | PipeOp::Send { .. })
    )
}

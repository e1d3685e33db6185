//! Copies out of shared memory: one thread starts them, they read and write on their own, and groups say how far they are.

use std::collections::BTreeSet;

use super::{
    CopyWay, Evict, Kernel, ParamId, SmemId, Stmt, StmtKind, Storage, TileAccess, ValueId,
};

/// What a statement does with copies out of shared memory.
#[derive(Debug, Clone)]
pub enum Outgoing {
    /// `copy.bulk s -> y[…]`, `copy.tma s -> y.tile(…)[…]`: one thread starts a copy; each is a group of its own.
    Copy {
        /// Where from, shared memory of the own CTA.
        source: TileAccess,
        /// Where to, a buffer; the same extents. A box leaves out what lies outside of the buffer.
        dest: TileAccess,
        /// `evict first|last`.
        evict: Option<Evict>,
        /// By which instructions.
        way: CopyWay,
    },
    /// A group without copies: it stands where another path copies, so that all paths count alike.
    EmptyGroup,
    /// `settle s@t`, until the copies out of the slot have read it; `settle y`, until those to the buffer are complete.
    Settle {
        /// The slot that is read, or the buffer that is written.
        storage: Storage,
        /// `but n`: of the copies out of any slot of the tile, or to the buffer, so many of the youngest are left alone.
        but: Option<u32>,
        /// Groups that every path closes after the last one that is waited for.
        pending: u32,
    },
    /// `publish x`: what the threads have stored there comes ahead of what copies read of it.
    Publish {
        /// A tile in shared memory, or a buffer.
        storage: Storage,
    },
}

impl Outgoing {
    /// Calls `see` with every value that it uses.
    pub fn each_use(&self, mut see: impl FnMut(ValueId)) {
        match self {
            Outgoing::Copy { source, dest, .. } => {
                source.each_use(&mut see);
                dest.each_use(see);
            }
            Outgoing::Settle { storage, .. } | Outgoing::Publish { storage } => {
                storage.slot().into_iter().for_each(see);
            }
            Outgoing::EmptyGroup => {}
        }
    }
}

/// What the copies out of shared memory of a kernel touch.
#[derive(Debug, Clone, Default)]
pub struct Leaving {
    /// Tiles that they read.
    pub tiles: BTreeSet<SmemId>,
    /// Buffers that they write.
    pub buffers: BTreeSet<ParamId>,
}

impl Leaving {
    /// Looks through a kernel.
    pub fn of(kernel: &Kernel) -> Leaving {
        let mut found = Leaving::default();
        found.collect(&kernel.body);
        found
    }

    fn collect(&mut self, stmts: &[Stmt]) {
        for stmt in stmts {
            if let StmtKind::Outgoing(Outgoing::Copy { source, dest, .. }) = &stmt.kind {
                self.tiles.extend(source.storage.tile().map(|(tile, _)| tile));
                self.buffers.extend(dest.storage.param());
            }
            for body in stmt.kind.bodies() {
                self.collect(body);
            }
        }
    }
}

/// Lets each `settle` of a tile wait for the copies that there are: those that fill it, those that read it, or both.
pub(crate) fn tell_settles(kernel: &mut Kernel) {
    let leaving = Leaving::of(kernel);
    if leaving.tiles.is_empty() {
        return;
    }
    let mut filled = BTreeSet::new();
    find_filled(&kernel.body, &mut filled);
    tell(&mut kernel.body, &leaving.tiles, &filled);
}

fn find_filled(stmts: &[Stmt], filled: &mut BTreeSet<SmemId>) {
    for stmt in stmts {
        if let StmtKind::CopyAsync { dest, .. } = &stmt.kind {
            filled.extend(dest.storage.tile().map(|(tile, _)| tile));
        }
        for body in stmt.kind.bodies() {
            find_filled(body, filled);
        }
    }
}

fn tell(stmts: &mut Vec<Stmt>, left: &BTreeSet<SmemId>, filled: &BTreeSet<SmemId>) {
    let mut told = Vec::with_capacity(stmts.len());
    for mut stmt in stmts.drain(..) {
        if let StmtKind::For { body, .. } | StmtKind::Role { body, .. } = &mut stmt.kind {
            tell(body, left, filled);
        } else if let StmtKind::If { then_body, else_body, .. } = &mut stmt.kind {
            tell(then_body, left, filled);
            tell(else_body, left, filled);
        }
        let StmtKind::Settle { storage, but, pending } = stmt.kind else {
            told.push(stmt);
            continue;
        };
        let tile = storage.tile().map(|(tile, _)| tile);
        let is_left = tile.is_some_and(|tile| left.contains(&tile));
        if !is_left || tile.is_some_and(|tile| filled.contains(&tile)) {
            told.push(Stmt { kind: StmtKind::Settle { storage, but, pending }, span: stmt.span });
        }
        if is_left {
            let settle = Outgoing::Settle { storage, but, pending };
            told.push(Stmt { kind: StmtKind::Outgoing(settle), span: stmt.span });
        }
    }
    *stmts = told;
}

//! `copy.async x[…] -> s@t;`, copies out of shared memory, `publish` and `settle`.

use kernel_dsl::ast::{self, Expr, ExprKind, Move, Settle};
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::access::Slice;
use super::lower::Lower;
use super::mistakes::{copy_dest, read_only, settle_of, word_mistake};
use super::operands::describe;
use super::report::Outcome;
use super::scope::Memory;
use super::tensor::{drop_ones, tiling};
use crate::kernel::{
    AxisIndex, BOX_ALIGN, CopyWay, Evict, Extent, Outgoing, StmtKind, Storage, tensor_box,
};

/// Copies that `settle … but` can leave alone, at most.
const MAX_BUT: u32 = 32;

impl<'a> Lower<'a> {
    /// `copy.async x[…] -> s@t[…] evict first;`
    pub(super) fn copy_async(&mut self, mv: &'a Move, dest: &'a Expr, span: Span) -> Outcome<()> {
        if mv.policy.no_allocate {
            return Err(self.not_built(span, "`no_allocate` of an asynchronous copy"));
        }
        let source = self.slice(&mv.source, mv.source.span);
        let target = self.slice(dest, dest.span);
        let (source, target) = (source?, target?);
        if let Some((tile, _)) = source.storage.tile() {
            let declared = self.kernel.smem[tile].span;
            return Err(self.error(
                Diagnostic::error(Code::E0221, "a copy out of shared memory")
                    .label(mv.source.span, "`copy.async` reads a buffer of global memory")
                    .secondary(declared, "declared here")
                    .help("write `store load s -> y;`"),
            ));
        }
        if let Storage::Buffer(_) | Storage::Remote(..) = target.storage {
            return Err(self.error(copy_dest(dest.span)));
        }
        self.whole_pieces(&target, dest.span)?;
        self.same_elements(&source, &target, mv.source.span, dest.span)?;
        let evict = mv.policy.evict.map(|evict| match evict {
            ast::Evict::First => Evict::First,
            ast::Evict::Last => Evict::Last,
        });
        match (source.access, target.access) {
            (Some(source), Some(dest)) => {
                self.emit(StmtKind::CopyAsync { source, dest, evict }, span)
            }
            (_, _) => Ok(()),
        }
    }

    /// Every element of the destination is written.
    pub(super) fn whole_pieces(&mut self, target: &Slice, at: Span) -> Outcome<()> {
        let scattered = target.access.as_ref().is_some_and(|access| {
            access.index.iter().any(|i| matches!(i, AxisIndex::Gather(_) | AxisIndex::Along(_)))
        });
        if scattered {
            return Err(self.not_built(at, "an asynchronous copy to places of an index tile"));
        }
        if target.has_until {
            return Err(self.error(
                Diagnostic::error(Code::E0206, "`until` in the destination of a copy")
                    .label(at, "a copy writes every element")
                    .help("write `until` in the source: what is absent there arrives as zeros"),
            ));
        }
        Ok(())
    }

    pub(super) fn same_elements(
        &mut self,
        source: &Slice,
        target: &Slice,
        from: Span,
        to: Span,
    ) -> Outcome<()> {
        let found = describe(source.dtype, &source.shape);
        let wanted = describe(target.dtype, &target.shape);
        let code = if source.shape != target.shape {
            Code::E0204
        } else if source.dtype != target.dtype {
            Code::E0203
        } else {
            return Ok(());
        };
        Err(self.error(
            Diagnostic::error(code, format!("a copy of {found} to {wanted}"))
                .label(from, format!("this is {found}"))
                .secondary(to, format!("this is {wanted}"))
                .help("a copy moves bytes; `load`, convert and `store` what must change"),
        ))
    }

    /// `settle s@t;`, `settle y;`, `settle s but n;`
    pub(super) fn settle(&mut self, settle: &'a Settle, span: Span) -> Outcome<()> {
        let but = match &settle.but {
            Some(but) => {
                Some(self.const_extent(but, "the number of copies", 0, i64::from(MAX_BUT))?)
            }
            None => None,
        };
        if let ExprKind::Index(..) = settle.value.kind {
            return Err(self.error(
                Diagnostic::error(Code::E0222, "`settle` of a slice")
                    .label(settle.value.span, "a whole slot settles")
                    .help("write the tile, and `@t` for its slot"),
            ));
        }
        let (buffer, reference, defined) = self.buffer(&settle.value)?;
        let is_whole = reference.at.is_empty();
        let storage = match (buffer.memory, but) {
            (Memory::Smem { tile, .. }, Some(_)) if is_whole => Storage::Smem(tile, None),
            (Memory::Smem { .. }, Some(_)) => {
                return Err(self.error(
                    Diagnostic::error(Code::E0222, "`but` with a slot")
                        .label(settle.value.span, "the youngest copies of which slot?")
                        .help("leave the slot out: the copies of all slots count together"),
                ));
            }
            (_, _) => self.storage(&buffer, reference, defined)?,
        };
        // Nothing is copied to or from what has no elements.
        let is_empty = match storage {
            Storage::Smem(tile, _) | Storage::Remote(tile, ..) => {
                super::operands::is_empty(&self.kernel.smem[tile].shape)
            }
            Storage::Buffer(param)
            | Storage::Peer(param, _)
            | Storage::Peers(param)
            | Storage::Multicast(param, _) => {
                let shape = &self.kernel.params[param].shape;
                shape.contains(&Extent::Const(0))
            }
        };
        if is_empty {
            return Ok(());
        }
        match storage {
            Storage::Smem(..) => self.emit(StmtKind::Settle { storage, but, pending: 0 }, span),
            Storage::Buffer(_) => {
                let settle = Outgoing::Settle { storage, but, pending: 0 };
                self.emit(StmtKind::Outgoing(settle), span)
            }
            Storage::Remote(..)
            | Storage::Peer(..)
            | Storage::Peers(_)
            | Storage::Multicast(..) => Err(self.error(settle_of(settle.value.span))),
        }
    }

    /// `publish s;`
    pub(super) fn publish(&mut self, e: &'a Expr, span: Span) -> Outcome<()> {
        let (buffer, reference, defined) = self.buffer(e)?;
        let storage = match buffer.memory {
            Memory::Smem { tile, .. } if reference.at.is_empty() => Storage::Smem(tile, None),
            Memory::Smem { .. } | Memory::Param(_) => self.storage(&buffer, reference, defined)?,
        };
        let wrong = match storage {
            Storage::Smem(..) => None,
            Storage::Remote(..)
            | Storage::Peer(..)
            | Storage::Peers(_)
            | Storage::Multicast(..) => Some("not memory of the own CTA or rank"),
            Storage::Buffer(param) => {
                let is_read_only = !self.kernel.params[param].access.is_writable();
                is_read_only.then_some("nobody writes it here")
            }
        };
        if let Some(why) = wrong {
            return Err(self.error(
                Diagnostic::error(Code::E0221, "`publish` of what threads of the CTA do not write")
                    .label(e.span, why)
                    .secondary(defined, "declared here"),
            ));
        }
        self.emit(StmtKind::Outgoing(Outgoing::Publish { storage }), span)
    }

    /// True for a tensor copy out of shared memory: its destination is a box, or its source a tile.
    pub(super) fn leaves(&self, source: &'a Expr, dest: &'a Expr) -> bool {
        tiling(dest).is_some() || (tiling(source).is_none() && self.names_memory(source))
    }

    /// `copy.tma s@t -> y.tile(128, 64)[i, j] evict first;`
    pub(super) fn tensor_out(&mut self, mv: &'a Move, dest: &'a Expr, span: Span) -> Outcome<()> {
        let source = self.slice(&mv.source, mv.source.span);
        let target = self.boxed(dest);
        let (source, mut target) = (source?, target?);
        if source.shape != target.shape {
            drop_ones(&mut target);
        }
        self.copy_out(mv, (source, target), dest, CopyWay::Tensor, span)
    }

    /// A copy out of shared memory.
    pub(super) fn copy_out(
        &mut self,
        mv: &'a Move,
        (source, target): (Slice, Slice),
        dest: &'a Expr,
        way: CopyWay,
        span: Span,
    ) -> Outcome<()> {
        if mv.policy.no_allocate {
            return Err(self.not_built(span, "`no_allocate` of an asynchronous copy"));
        }
        if let Some(into) = &mv.into {
            return Err(self.error(
                Diagnostic::error(Code::E0154, "a barrier for a copy out of shared memory")
                    .label(into.span, "its own thread waits for it")
                    .help("leave `into` out, and write `settle` behind"),
            ));
        }
        let Storage::Smem(tile, _) = source.storage else {
            return Err(self.error(
                Diagnostic::error(
                    Code::E0221,
                    "a copy out of what is not shared memory of the own CTA",
                )
                .label(mv.source.span, "copied from here"),
            ));
        };
        let Storage::Buffer(param) = target.storage else {
            return Err(match target.storage.rank() {
                Some(_) => self.not_built(dest.span, "copies to memory of ranks"),
                None => self.error(
                    Diagnostic::error(Code::E0221, "a copy from shared memory to shared memory")
                        .label(dest.span, "a buffer stands here"),
                ),
            });
        };
        let declared = &self.kernel.params[param];
        if !declared.access.is_writable() {
            let found = read_only(declared.access.name(), dest.span, declared.span);
            return Err(self.error(found));
        }
        if declared.is_inbox() {
            return Err(self.not_built(dest.span, "copies to memory of ranks"));
        }
        if let Some(words) = declared.words {
            let (name, at) = (declared.name.clone(), declared.span);
            return Err(self.error(word_mistake(words.name(), &name, dest.span, at)));
        }
        self.whole_pieces(&source, mv.source.span)?;
        self.whole_pieces(&target, dest.span)?;
        self.same_elements(&source, &target, mv.source.span, dest.span)?;
        let (Some(source), Some(access)) = (source.access, target.access) else { return Ok(()) };
        if way == CopyWay::Tensor {
            let align = &mut self.kernel.smem[tile].align;
            *align = (*align).max(BOX_ALIGN);
            let found = tensor_box(&self.kernel, &access, Some(&source));
            found.map_err(|found| self.error(found))?;
        }
        let evict = super::moves::cache(mv.policy).evict;
        let copy = Outgoing::Copy { source, dest: access, evict, way };
        self.emit(StmtKind::Outgoing(copy), span)
    }
}

//! `copy.async x[…] -> s@t;` and `settle s@t;`

use kernel_dsl::ast::{self, Expr, ExprKind, Move, Settle};
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::access::Slice;
use super::lower::Lower;
use super::mistakes::{copy_dest, settle_of};
use super::operands::describe;
use super::report::Outcome;
use crate::kernel::{AxisIndex, Evict, StmtKind, Storage};

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

    /// `settle s@t;`
    pub(super) fn settle(&mut self, settle: &'a Settle, span: Span) -> Outcome<()> {
        if let Some(but) = &settle.but {
            return Err(self.not_built(but.span, "`settle … but n` of a copy"));
        }
        if let ExprKind::Index(..) = settle.value.kind {
            return Err(self.error(
                Diagnostic::error(Code::E0222, "`settle` of a slice")
                    .label(settle.value.span, "a whole slot settles")
                    .help("write the tile, and `@t` for its slot"),
            ));
        }
        let (buffer, reference, defined) = self.buffer(&settle.value)?;
        let storage = self.storage(&buffer, reference, defined)?;
        match storage {
            Storage::Smem(..) => self.emit(StmtKind::Settle { storage, pending: 0 }, span),
            Storage::Buffer(_) | Storage::Remote(..) | Storage::Peer(..) => {
                Err(self.error(settle_of(settle.value.span)))
            }
        }
    }
}

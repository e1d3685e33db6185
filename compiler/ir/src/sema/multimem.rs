//! Multicast addresses: `multimem.load_reduce.add(all@t[i])` and `multimem.store v -> all@t[i];`.

use kernel_abi::{Access, DType};
use kernel_dsl::ast::{self, Arg, Call, Callee, Expr, ExprKind, InstanceKind, Move, Path};
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::access::Slice;
use super::lower::Lower;
use super::operands::{Operand, Tile};
use super::report::{Outcome, Refused};
use super::scope::{Buffer, Memory};
use crate::kernel::{AxisIndex, CachePolicy, Op, ParamId, StmtKind, Storage};
use crate::ops::{ReduceOp, multimem};

/// How they are written.
const FORM: &str = "write `let s = multimem.load_reduce.add(all@t[…]);` or `multimem.store v -> all@t[…];` of a \
     `peer all : sym_mc f32[…] ring n of x`";

/// What folds, where a path is `multimem.load_reduce.` and something.
pub(super) fn operation(path: &Path) -> Option<Option<ReduceOp>> {
    let text = path.text();
    let word = text.strip_prefix("multimem.load_reduce.")?;
    Some(ReduceOp::ALL.iter().copied().find(|op| op.name() == word))
}

/// What is read, or what is wrong with the call.
pub(super) fn argument(call: &Call, span: Span) -> Result<&Expr, Diagnostic> {
    let Callee::Path(path) = &call.callee else { return Err(misuse(span, "no such operation")) };
    if operation(path).flatten().is_none() {
        return Err(misuse(path.span, "`add`, `max` or `min` goes here"));
    }
    match call.args.as_slice() {
        [Arg { name: None, value }] => Ok(value),
        _ => Err(misuse(span, "it takes a slice of a multicast address")),
    }
}

impl<'a> Lower<'a> {
    /// `multimem.load_reduce.add(all@t[i])`
    pub(super) fn load_reduce(&mut self, call: &'a Call, span: Span) -> Outcome<Operand> {
        let source = argument(call, span).map_err(|wrong| self.error(wrong))?;
        let fold = match &call.callee {
            Callee::Path(path) => operation(path).flatten().ok_or(Refused)?,
            Callee::Method(..) => return Err(Refused),
        };
        let slice = self.multicast(source, Some(fold), span)?;
        let dtype = slice.dtype;
        if !multimem::folds(fold, dtype) {
            let label = format!("no instruction forms `{}` of {dtype}", fold.name());
            return Err(self.error(misuse(span, &label)));
        }
        if slice.has_until {
            return Err(self.not_built(source.span, "absent elements of `multimem.load_reduce`"));
        }
        let Some(access) = slice.access else {
            return Ok(Operand::Tile(Tile::empty(dtype, slice.shape)));
        };
        let op = Op::Load { access, other: None, cache: CachePolicy::default() };
        self.define(op, dtype, slice.shape, span).map(Operand::Tile)
    }

    /// `multimem.store v -> all@t[i];`
    pub(super) fn multimem_store(&mut self, mv: &'a Move, span: Span) -> Outcome<()> {
        let Some(dest) = &mv.dest else { return Err(self.error(misuse(span, "to where?"))) };
        if mv.policy.evict.is_some() || mv.policy.no_allocate {
            return Err(self.error(misuse(span, "it takes no cache policy")));
        }
        let value = self.expr(&mv.source);
        let slice = self.multicast(dest, None, span)?;
        let tile = self.tile(value?, Some(slice.dtype), mv.source.span)?;
        let wanted = "the destination";
        self.same_type(&tile, slice.dtype, &slice.shape, mv.source.span, dest.span, wanted)?;
        match (tile.id(), slice.access) {
            (Some(value), Some(access)) => {
                let (update, cache) = (None, CachePolicy::default());
                self.emit(StmtKind::Store { value, access, update, cache }, span)
            }
            (_, _) => Ok(()),
        }
    }

    /// A slice of memory of ranks at its multicast address.
    fn multicast(&mut self, e: &'a Expr, fold: Option<ReduceOp>, whole: Span) -> Outcome<Slice> {
        let (base, indices) = match &e.kind {
            ExprKind::Index(base, indices) => (&**base, Some(indices.as_slice())),
            _ => (e, None),
        };
        let (buffer, reference, defined) = self.any_buffer(base)?;
        let Some(memory) = self.reached(&buffer) else {
            return Err(self.error(
                misuse(base.span, "this is no multicast address")
                    .secondary(defined, "declared here"),
            ));
        };
        let of_rank = |at: &&ast::Instance| !matches!(at.kind, InstanceKind::Slot(_));
        if let Some(at) = reference.at.iter().find(of_rank) {
            return Err(self.error(misuse(at.span, "this is the memory of all ranks at once")));
        }
        let (_, slot) = self.inbox_place(memory, buffer.instance, reference, defined)?;
        let storage = Storage::Multicast(memory, fold);
        let slice =
            self.slice_in(e, indices, (buffer, base.span, defined), (storage, Some(slot)), whole)?;
        let gathers = |access: &crate::kernel::TileAccess| {
            access.index.iter().any(|i| matches!(i, AxisIndex::Gather(_) | AxisIndex::Along(_)))
        };
        if slice.gathers || slice.access.as_ref().is_some_and(gathers) {
            return Err(self.not_built(e.span, "index tiles at a multicast address"));
        }
        Ok(slice)
    }

    /// The memory that a multicast address reaches.
    pub(super) fn reached(&self, buffer: &Buffer) -> Option<ParamId> {
        match buffer.memory {
            Memory::Param(param) => self.kernel.params[param].of,
            Memory::Smem { .. } => None,
        }
    }

    /// `of x` of a declaration, once all extents are known.
    pub(super) fn window(&mut self, buffer: &'a ast::Buffer) -> Outcome<()> {
        let Some(of) = &buffer.of else { return Ok(()) };
        let found = |name: &str| {
            let mut params = self.kernel.params.iter_enumerated();
            params.find(|(_, param)| param.name == name).map(|(id, _)| id)
        };
        let (Some(id), Some(memory)) = (found(&buffer.name.text), found(&of.text)) else {
            return Err(self.unknown(&of.text, of.span));
        };
        let (window, reached) = (&self.kernel.params[id], &self.kernel.params[memory]);
        let other = self.kernel.window_of(memory).filter(|other| *other != id);
        let wrong = if !reached.is_inbox() {
            Some(("no memory of ranks", reached.span))
        } else if window.dtype != reached.dtype || window.shape != reached.shape {
            Some(("memory of another type, extents or ring", reached.span))
        } else {
            other.map(|other| {
                ("what has a multicast address already", self.kernel.params[other].span)
            })
        };
        if let Some((what, declared)) = wrong {
            let name = &buffer.name.text;
            return Err(self.error(
                Diagnostic::error(
                    Code::E0215,
                    format!("`{name}` is a multicast address of {what}"),
                )
                .label(of.span, "of this")
                .secondary(declared, "declared here")
                .help("write `peer x : sym f32[N] ring 2, peer all : sym_mc f32[N] ring 2 of x`"),
            ));
        }
        let dtype = window.dtype;
        if !multimem::stores(dtype) {
            return Err(self.error(no_type(dtype, buffer.ty.span)));
        }
        self.kernel.params[id].of = Some(memory);
        Ok(())
    }

    /// Refuses what touches a multicast address and is no form of `multimem`.
    pub(super) fn is_no_window(&mut self, memory: Memory, at: Span, defined: Span) -> Outcome<()> {
        let Memory::Param(param) = memory else { return Ok(()) };
        if self.kernel.params[param].access != Access::Multicast {
            return Ok(());
        }
        Err(self.error(
            misuse(at, "an ordinary access at a multicast address has no meaning")
                .secondary(defined, "declared `sym_mc`"),
        ))
    }
}

fn misuse(at: Span, label: &str) -> Diagnostic {
    Diagnostic::error(Code::E0136, "a multicast address is touched by `multimem` alone")
        .label(at, label)
        .help(FORM)
}

fn no_type(dtype: DType, at: Span) -> Diagnostic {
    Diagnostic::error(Code::E0136, format!("a multicast address of {dtype}"))
        .label(at, "there are instructions for f32, f16, bf16 and integers of 32 and 64 bits")
}

//! `copy.tma x.tile(128, 64)[i, j] -> s@t into p.full@t;`

use kernel_abi::DType;
use kernel_dsl::ast::{Arg, BinaryOp, Callee, Expr, ExprKind, Index, IndexKind, Move, Name};
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::access::Slice;
use super::constants::Const;
use super::lower::Lower;
use super::mistakes::{copy_dest, value_as_buffer};
use super::operands::Operand;
use super::report::{Outcome, Refused};
use super::scope::{Buffer, Entity, Memory};
use crate::kernel::{
    AxisIndex, BOX_ALIGN, CopyWay, PrefetchRange, StmtKind, Storage, TileAccess, tensor_box,
};

/// `x.tile(128, 64)[i, j]`: a box that is one of many of one shape.
pub(super) struct Tiling<'a> {
    /// The buffer or view.
    pub(super) name: &'a Name,
    /// Extents of the box.
    pub(super) lengths: &'a [Arg],
    /// Its number along each axis.
    pub(super) indices: &'a [Index],
    span: Span,
}

/// The tiling that an expression says.
pub(super) fn tiling(e: &Expr) -> Option<Tiling<'_>> {
    let ExprKind::Index(base, indices) = &e.kind else { return None };
    let ExprKind::Call(call) = &base.kind else { return None };
    let Callee::Path(path) = &call.callee else { return None };
    let [name, tile] = path.segments.as_slice() else { return None };
    let is_plain = tile.text == "tile" && call.generics.is_empty() && call.via.is_none();
    is_plain.then_some(Tiling { name, lengths: &call.args, indices, span: base.span })
}

impl<'a> Lower<'a> {
    /// `copy.tma x.tile(128, 64)[i, j] -> s@t into p.full@t evict first;`
    pub(super) fn copy_tma(&mut self, mv: &'a Move, dest: &'a Expr, span: Span) -> Outcome<()> {
        if self.leaves(&mv.source, dest) {
            return self.tensor_out(mv, dest, span);
        }
        let into = self.counted(mv, span)?;
        let source = self.boxed(&mv.source);
        let target = self.copy_target(dest);
        let (mut source, (target, for_all)) = (source?, target?);
        let Storage::Smem(tile, _) = target.storage else {
            return Err(self.error(copy_dest(dest.span)));
        };
        self.whole_pieces(&target, dest.span)?;
        if source.shape != target.shape {
            drop_ones(&mut source);
        }
        self.same_elements(&source, &target, mv.source.span, dest.span)?;
        let (Some(source), Some(access)) = (source.access, target.access) else {
            return Ok(());
        };
        let align = &mut self.kernel.smem[tile].align;
        *align = (*align).max(BOX_ALIGN);
        tensor_box(&self.kernel, &source, Some(&access)).map_err(|found| self.error(found))?;
        self.start_copy(mv, (into, for_all), source, access, CopyWay::Tensor, span)
    }

    /// `prefetch.tma x.tile(128, 64)[i, j] evict last;`
    pub(super) fn prefetch_tma(&mut self, mv: &'a Move, span: Span) -> Outcome<()> {
        let mut source = self.boxed(&mv.source)?;
        drop_ones(&mut source);
        let Some(access) = source.access else { return Ok(()) };
        tensor_box(&self.kernel, &access, None).map_err(|found| self.error(found))?;
        let evict = super::moves::cache(mv.policy).evict;
        self.emit(StmtKind::Prefetch { what: PrefetchRange::Box(access), evict }, span)
    }

    /// A box of a buffer.
    pub(super) fn boxed(&mut self, e: &'a Expr) -> Outcome<Slice> {
        let source = match tiling(e) {
            Some(tiling) => self.tiled(&tiling, e.span)?,
            None => self.slice(e, e.span)?,
        };
        if source.storage.tile().is_some() {
            return Err(self.error(no_buffer(e.span)));
        }
        let param = source.storage.param();
        if param.is_some_and(|param| self.kernel.params[param].is_inbox()) {
            return Err(self.not_built(e.span, "tensor copies of symmetric memory"));
        }
        Ok(source)
    }

    /// The box of a tiling: its number along each axis times its extent.
    fn tiled(&mut self, tiling: &Tiling<'a>, whole: Span) -> Outcome<Slice> {
        let Tiling { name, lengths, indices, span } = *tiling;
        let Some(named) = self.frame.lookup(&name.text) else {
            return Err(self.unknown(&name.text, name.span));
        };
        let (defined, entity) = (named.span, named.entity.clone());
        let Entity::Buffer(Buffer { memory, axes, instance: _ }) = entity else {
            return Err(match entity {
                Entity::Refused => Refused,
                Entity::Const(_)
                | Entity::Tile(_)
                | Entity::Range(_)
                | Entity::Frag(_)
                | Entity::Atom(_)
                | Entity::Buffer(_) => self.error(value_as_buffer(&name.text, span, defined)),
            });
        };
        let Memory::Param(param) = memory else {
            return Err(self.error(no_buffer(span)));
        };
        self.is_no_window(memory, span, defined)?;
        if self.kernel.params[param].words.is_some() || self.kernel.params[param].is_inbox() {
            return Err(self.not_built(span, "tensor copies of symmetric memory and of words"));
        }
        if lengths.len() != axes.len() || indices.len() != axes.len() {
            let (lengths, indices, axes) = (lengths.len(), indices.len(), axes.len());
            return Err(self.error(
                Diagnostic::error(Code::E0222, "a tiling that does not fit its buffer")
                    .label(whole, format!("{lengths} extents and {indices} numbers of the box"))
                    .secondary(defined, format!("{axes} axes"))
                    .help("write an extent and a number for each axis: `x.tile(1, 64)[i, j]`"),
            ));
        }
        let (mut shape, mut index) = (Vec::new(), Vec::new());
        for (length, number) in lengths.iter().zip(indices) {
            let len = self.const_extent(&length.value, "the extent of a box", 1, 1 << 20)?;
            let number_of = match &number.kind {
                IndexKind::At(e, None) if !matches!(e.kind, ExprKind::Range(_)) => Some(e),
                IndexKind::At(..) | IndexKind::All(_) | IndexKind::NewAxis => None,
            };
            let Some(number_of) = number_of else {
                return Err(self.error(
                    Diagnostic::error(Code::E0222, "a box is one of many, by its number")
                        .label(number.span, "a scalar stands here")
                        .help(
                            "write `x.tile(128, 64)[i, j]`, or a slice: `x[a .. + 128, b .. + 64]`",
                        ),
                ));
            };
            let at = self.expr(number_of)?;
            let by = Operand::Const(Const::int(i64::from(len)));
            let start =
                self.infix(BinaryOp::Mul, (at, number.span), (by, number.span), number.span)?;
            let start = self.scalar(start, DType::I32, "the number of a box", number.span)?;
            shape.push(len);
            index.push(AxisIndex::Range { start, len, until: None });
        }
        let storage = Storage::Buffer(param);
        let exists = !axes.iter().any(|axis| axis.extent == crate::kernel::Extent::Const(0));
        let access =
            exists.then(|| TileAccess { storage, axes: axes.to_vec(), index, span: whole });
        let dtype = self.kernel.dtype_of(storage);
        Ok(Slice { storage, dtype, shape, access, has_until: false, gathers: false, scale: None })
    }
}

/// The finding for a tensor copy between two tiles in shared memory.
fn no_buffer(at: Span) -> Diagnostic {
    Diagnostic::error(Code::E0221, "a tensor copy that names no buffer")
        .label(at, "a tile in shared memory")
        .help("one side is a box of a buffer, the other one a tile in shared memory")
}

/// Axes of one position fall away.
pub(super) fn drop_ones(slice: &mut Slice) {
    slice.shape.retain(|&extent| extent != 1);
    let Some(access) = &mut slice.access else { return };
    access.index.retain(|index| !matches!(index, AxisIndex::New));
    for index in &mut access.index {
        if let AxisIndex::Range { start, len: 1, until: None } = *index {
            *index = AxisIndex::At(start);
        }
    }
}

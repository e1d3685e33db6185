//! `load`, `store`, `prefetch.l2`.

use std::rc::Rc;

use kernel_abi::DType;
use kernel_dsl::ast::{
    self, Call, Callee, Expr, ExprKind, Index, IndexKind, LoadExpr, Move, MoveKind,
};
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::access::{Slice, const_int};
use super::builtins;
use super::constants::Const;
use super::lower::{Lower, Shared};
use super::mistakes::{not_assignable, read_only, word_mistake};
use super::operands::{Operand, Tile, describe};
use super::ranks;
use super::report::{Outcome, Refused};
use super::scope::{Entity, Frag, RangeLimit};
use crate::kernel::{
    AxisIndex, CachePolicy, Evict, Extent, Literal, Op, ParamId, PrefetchRange, StmtKind, Storage,
    ValueId, ViewAxis,
};
use crate::ops::BinaryOp;

/// Bytes of the line that one prefetch brings in.
const LINE_BYTES: u64 = 128;

impl<'a> Lower<'a> {
    /// `load src else v`
    pub(super) fn load_value(&mut self, load: &'a LoadExpr, span: Span) -> Outcome<Operand> {
        let absent = load.absent.as_ref();
        self.load(&load.source, absent, load.policy, span).map(Operand::Tile)
    }

    /// Whether an operand of the tensor core is a tile in shared memory, whole or sliced.
    pub(super) fn names_memory(&self, e: &'a Expr) -> bool {
        let base = match &e.kind {
            ExprKind::Index(base, _) => base,
            _ => e,
        };
        let ExprKind::Ref(reference) = &base.kind else { return false };
        let Some(name) = reference.path.single() else { return false };
        let entity = self.frame.lookup(&name.text).map(|named| &named.entity);
        matches!(
            entity,
            Some(Entity::Buffer(super::scope::Buffer {
                memory: super::scope::Memory::Smem { .. },
                ..
            }))
        )
    }

    /// An operand of the tensor core that lies in shared memory.
    pub(super) fn load_operand(&mut self, e: &'a Expr) -> Outcome<Tile> {
        let policy = ast::Policy { evict: None, no_allocate: false };
        self.load(e, None, policy, e.span)
    }

    fn load(
        &mut self,
        source: &'a Expr,
        absent: Option<&'a Expr>,
        policy: ast::Policy,
        span: Span,
    ) -> Outcome<Tile> {
        let slice = self.slice(source, span)?;
        if slice.storage.is_of_ranks() {
            return Err(self.error(ranks::misuse(
                "a load from another rank",
                source.span,
                "ranks push: each reads what others wrote to it",
                "write `load x@t[…]`, and let the other rank store to `x@peer(…)@t`",
            )));
        }
        self.no_policy(slice.storage, policy, span)?;
        let other = self.absent_value(&slice, absent, source.span)?;
        let Some(access) = slice.access else {
            if slice.shape.is_empty() || !super::operands::is_empty(&slice.shape) {
                return Err(self.error(
                    Diagnostic::error(Code::E0401, "a load from a buffer without elements")
                        .label(span, "there is nothing here to load")
                        .help("decide it before: a `const` condition in `if`"),
                ));
            }
            return Ok(Tile::empty(slice.dtype, slice.shape));
        };
        let cache = cache(policy);
        let mut tile =
            self.define(Op::Load { access, other, cache }, slice.dtype, slice.shape, span)?;
        if let Some((access, shape)) = slice.scale {
            // the scale of absent elements is 1
            let other = match other {
                Some(_) => Some(self.scalar(
                    Operand::Const(Const::float(1.0)),
                    DType::Ue8m0,
                    "a scale",
                    span,
                )?),
                None => None,
            };
            let op = Op::Load { access, other, cache };
            tile.scale = Some(Rc::new(self.define(op, DType::Ue8m0, shape, span)?));
        }
        Ok(tile)
    }

    /// The value after `else`, which is there exactly when something can be absent.
    fn absent_value(
        &mut self,
        slice: &Slice,
        absent: Option<&'a Expr>,
        source: Span,
    ) -> Outcome<Option<crate::kernel::ValueId>> {
        let Some(absent) = absent else {
            if slice.has_until {
                return Err(self.error(
                    Diagnostic::error(Code::E0402, "absent elements have no value")
                        .label(source, "positions from `until` on are absent")
                        .help("write `else 0.0` after the slice, or the value that is meant"),
                ));
            }
            return Ok(None);
        };
        let value = self.expr(absent)?;
        if !slice.has_until && !slice.gathers {
            return Err(self.error(
                Diagnostic::error(Code::E0206, "`else` where nothing can be absent")
                    .label(absent.span, "never used")
                    .help("remove `else …`, or bound the slice by `until`"),
            ));
        }
        if slice.access.is_none() {
            return Ok(None);
        }
        self.scalar(value, slice.dtype, "the value of absent elements", absent.span).map(Some)
    }

    pub(super) fn transfer(&mut self, mv: &'a Move, span: Span) -> Outcome<()> {
        let known = match mv.kind {
            MoveKind::Load => "load",
            MoveKind::Store => "store",
            MoveKind::Prefetch if mv.op.is("prefetch.tma") => "prefetch.tma",
            MoveKind::Prefetch => "prefetch.l2",
            MoveKind::Copy if mv.op.is("copy.bulk") => "copy.bulk",
            MoveKind::Copy if mv.op.is("copy.tma") => "copy.tma",
            MoveKind::Copy if mv.op.is("copy.st_async") => "copy.st_async",
            MoveKind::Copy => "copy.async",
            MoveKind::Multimem => "multimem.store",
        };
        if !mv.op.is(known) {
            return Err(self.unknown(&mv.op.text(), mv.op.span));
        }
        match (mv.kind, &mv.dest) {
            (MoveKind::Load, Some(dest)) => self.load_into(mv, dest, span),
            (MoveKind::Store, Some(dest)) => self.store(mv, dest, span),
            (MoveKind::Multimem, _) => self.multimem_store(mv, span),
            (MoveKind::Copy, Some(dest)) if mv.op.is("copy.st_async") => self.send(mv, dest, span),
            (MoveKind::Copy, Some(dest)) if mv.op.is("copy.bulk") => self.copy_bulk(mv, dest, span),
            (MoveKind::Copy, Some(dest)) if mv.op.is("copy.tma") => self.copy_tma(mv, dest, span),
            (MoveKind::Copy, Some(dest)) => self.copy_async(mv, dest, span),
            (MoveKind::Prefetch, None) if mv.op.is("prefetch.tma") => self.prefetch_tma(mv, span),
            (MoveKind::Prefetch, None) => self.prefetch(mv, span),
            (_, _) => Err(self.error(
                Diagnostic::error(Code::E0206, "a move with a wrong destination").label(
                    span,
                    "`load x -> w;`, `store v -> y;`, `copy.async x -> s;`, `prefetch.l2 x;`",
                ),
            )),
        }
    }

    /// `load src -> w@s;`
    fn load_into(&mut self, mv: &'a Move, dest: &'a Expr, span: Span) -> Outcome<()> {
        if self.names_tensor(&mv.source) {
            let (frag, slot, declared) = self.assignable(dest)?;
            return self.tensor_load(&mv.source, &frag, slot, declared, span);
        }
        let tile = self.load(&mv.source, mv.absent.as_ref(), mv.policy, span);
        let (frag, slot, defined) = self.assignable(dest)?;
        self.set(&frag, slot, &tile?, defined, mv.source.span, span)
    }

    /// The tile and slot that `=` or a `load` writes, and where the tile is declared.
    pub(super) fn assignable(&mut self, target: &'a Expr) -> Outcome<(Frag, u32, Span)> {
        let reference = match &target.kind {
            ExprKind::Ref(reference) => reference,
            ExprKind::Index(..) => {
                return Err(self.not_built(target.span, "assignment to a part of a tile"));
            }
            _ => {
                return Err(self.error(
                    Diagnostic::error(Code::E0210, "this cannot be assigned to")
                        .label(target.span, "not a tile that `frag` declares"),
                ));
            }
        };
        let text = reference.path.text();
        let Some(named) = self.frame.lookup(&text) else {
            return Err(self.unknown(&text, reference.path.span));
        };
        let (defined, entity) = (named.span, named.entity.clone());
        self.own_tile(&text, target.span)?;
        match entity {
            Entity::Frag(frag) => {
                let slot = self.slot(&frag, reference, defined)?;
                Ok((frag, slot, defined))
            }
            Entity::Refused => Err(Refused),
            Entity::Buffer(_) => Err(self.error(
                Diagnostic::error(Code::E0221, format!("`{text}` is a buffer"))
                    .label(target.span, "buffers are written by `store`")
                    .secondary(defined, "declared here")
                    .help(format!("write `store value -> {text};`")),
            )),
            Entity::Const(_) | Entity::Tile(_) | Entity::Range(_) | Entity::Atom(_) => {
                Err(self.error(not_assignable(&text, target.span, defined)))
            }
        }
    }

    /// Writes a slot: dtype and shape are those of the declaration.
    pub(super) fn set(
        &mut self,
        frag: &Frag,
        slot: u32,
        value: &Tile,
        declared: Span,
        at: Span,
        span: Span,
    ) -> Outcome<()> {
        self.same_type(value, frag.dtype, &frag.shape, at, declared, "declared")?;
        match (frag.var, value.id()) {
            (Some(var), Some(id)) => self.emit(StmtKind::SetVar { var, slot, value: id }, span)?,
            (_, _) => return Ok(()),
        }
        self.set_scale(frag, slot, value, at, span)
    }

    /// Refuses a value whose type is not exactly the one of its destination.
    pub(super) fn same_type(
        &mut self,
        value: &Tile,
        dtype: DType,
        shape: &[u32],
        at: Span,
        wanted_at: Span,
        wanted: &str,
    ) -> Outcome<()> {
        let (found, needed) = (value.describe(), describe(dtype, shape));
        if value.shape != shape {
            let mut diagnostic = Diagnostic::error(
                Code::E0204,
                format!("shapes that do not agree: {found} where {needed} is {wanted}"),
            )
            .label(at, format!("this is {found}"))
            .secondary(wanted_at, format!("{needed} is {wanted} here"));
            if value.is_scalar() {
                diagnostic = diagnostic.help("write `splat(value, extent, …)` to repeat a scalar");
            }
            return Err(self.error(diagnostic));
        }
        if value.dtype != dtype {
            return Err(self.error(
                Diagnostic::error(
                    Code::E0203,
                    format!("types that do not agree: {found} where {needed} is {wanted}"),
                )
                .label(at, format!("this is {found}"))
                .secondary(wanted_at, format!("{needed} is {wanted} here"))
                .help(format!("conversions are always written: `{dtype}(…)`")),
            ));
        }
        Ok(())
    }

    /// `store value -> y[…];`
    fn store(&mut self, mv: &'a Move, dest: &'a Expr, span: Span) -> Outcome<()> {
        if let Some(absent) = &mv.absent {
            return Err(self.error(
                Diagnostic::error(Code::E0206, "`else` with `store`")
                    .label(absent.span, "absent elements are skipped")
                    .help("remove `else …`"),
            ));
        }
        if self.names_tensor(dest) {
            return self.tensor_store(mv, dest, span);
        }
        let value = self.expr(&mv.source);
        let base = match &dest.kind {
            ExprKind::Index(base, _) => base,
            _ => dest,
        };
        if let ExprKind::Ref(reference) = &base.kind
            && let Some(named) = self.frame.lookup(&reference.path.text())
            && let Entity::Frag(_) = named.entity
        {
            let (name, defined) = (reference.path.text(), named.span);
            return Err(self.error(
                Diagnostic::error(Code::E0221, format!("`{name}` is a tile in registers"))
                    .label(dest.span, "`store` writes buffers")
                    .secondary(defined, "declared here")
                    .help(format!("write `{name} = value;`")),
            ));
        }
        let slice = self.slice(dest, span)?;
        match slice.storage {
            Storage::Buffer(param)
            | Storage::Peer(param, _)
            | Storage::Peers(param)
            | Storage::Multicast(param, _) => {
                let is_own = !slice.storage.is_of_ranks();
                let param = &self.kernel.params[param];
                if param.is_inbox() && is_own {
                    return Err(self.error(ranks::misuse(
                        "a store to memory of ranks that names no rank",
                        dest.span,
                        "on which rank?",
                        "write `x@peer(p)@t[…]`; `x@peer(rank)` is the own one",
                    )));
                }
                let (access, declared) = (param.access, param.span);
                if let Some(words) = param.words {
                    let name = param.name.clone();
                    return Err(self.error(word_mistake(words.name(), &name, dest.span, declared)));
                }
                if !access.is_writable() {
                    return Err(self.error(read_only(access.name(), dest.span, declared)));
                }
            }
            Storage::Smem(..) | Storage::Remote(..) => {
                self.no_policy(slice.storage, mv.policy, span)?;
            }
        }
        if slice.dtype == DType::E2m1 {
            return Err(self.not_built(dest.span, "stores of e2m1"));
        }
        let tile = self.tile(value?, Some(slice.dtype), mv.source.span)?;
        let wanted = "the destination";
        self.same_type(&tile, slice.dtype, &slice.shape, mv.source.span, dest.span, wanted)?;
        match (tile.id(), slice.access) {
            (Some(value), Some(access)) => {
                let cache = cache(mv.policy);
                self.emit(StmtKind::Store { value, access, update: None, cache }, span)
            }
            (_, _) => Ok(()),
        }
    }

    /// Refuses a cache policy where nothing is cached.
    pub(super) fn no_policy(
        &mut self,
        storage: Storage,
        policy: ast::Policy,
        span: Span,
    ) -> Outcome<()> {
        let Some((tile, _)) = storage.tile() else { return Ok(()) };
        if policy.evict.is_none() && !policy.no_allocate {
            return Ok(());
        }
        let declared = self.kernel.smem[tile].span;
        Err(self.error(
            Diagnostic::error(Code::E0206, "a cache policy for shared memory")
                .label(span, "shared memory is not cached")
                .secondary(declared, "declared here")
                .help("remove `evict …` and `no_allocate`"),
        ))
    }

    /// `prefetch.l2 w[…];`
    fn prefetch(&mut self, mv: &'a Move, span: Span) -> Outcome<()> {
        let evict = cache(mv.policy).evict;
        if let ExprKind::Index(base, indices) = &mv.source.kind
            && let [Index { kind: IndexKind::At(at, None), span: index_span }] = indices.as_slice()
        {
            if let ExprKind::Call(call) = &at.kind
                && let Callee::Path(path) = &call.callee
                && path.is("share")
            {
                return self.prefetch_share(base, call, at.span, evict, span);
            }
            if let ExprKind::Range(range) = &at.kind {
                let range = self.range(range, at.span)?;
                if let (RangeLimit::End(end), None) = (&range.end, &range.until) {
                    let flat = self.flat(base)?;
                    if flat.dtype.is_none() {
                        return Ok(());
                    }
                    let what = "a bound of a prefetch";
                    let start = self.scalar(range.start, DType::I32, what, *index_span)?;
                    let end = self.scalar(end.clone(), DType::I32, what, *index_span)?;
                    return self.prefetch_elements(&flat, [start, end], evict, span);
                }
            }
        }
        let slice = self.slice(&mv.source, span)?;
        if slice.storage.is_of_ranks() {
            return Err(self.error(prefetch_of_others(mv.source.span)));
        }
        if let Some((tile, _)) = slice.storage.tile() {
            let declared = self.kernel.smem[tile].span;
            return Err(self.error(prefetch_of_shared(mv.source.span, declared)));
        }
        match slice.access {
            Some(access) if access.index.iter().any(|i| matches!(i, AxisIndex::Along(_))) => {
                Err(self.not_built(mv.source.span, "a prefetch by two index tiles"))
            }
            Some(access) => {
                let what = PrefetchRange::Tile(access);
                self.emit(StmtKind::Prefetch { what, evict }, span)
            }
            None => Ok(()),
        }
    }

    /// A buffer of one axis in memory order, or a slot of memory of ranks that is one.
    fn flat(&mut self, base: &'a Expr) -> Outcome<Flat> {
        let (buffer, reference, defined) = self.buffer(base)?;
        let inbox = self.inbox(&buffer);
        let (storage, slot) = match inbox {
            Some(param) => {
                let (storage, slot) =
                    self.inbox_place(param, buffer.instance, reference, defined)?;
                (storage, Some(slot))
            }
            None => (self.storage(&buffer, reference, defined)?, None),
        };
        if storage.is_of_ranks() {
            return Err(self.error(prefetch_of_others(base.span)));
        }
        let Some(id) = storage.param() else {
            return Err(self.error(prefetch_of_shared(base.span, defined)));
        };
        let param = &self.kernel.params[id];
        let dtype = param.dtype;
        let axes = &buffer.axes[usize::from(slot.is_some()).min(buffer.axes.len())..];
        let plain = match axes {
            [axis] => axis.digits.len() == 1 && axis.digits[0].stride <= 1,
            _ => false,
        };
        // Where the slots lie within rows, those of one are not together.
        let slot = match (slot, axes) {
            (Some(slot), [ViewAxis { extent: Extent::Const(len), .. }]) => Some((slot, *len)),
            (_, _) => None,
        };
        let empty = param.const_len() == Some(0);
        if !plain {
            return Err(self.error(
                Diagnostic::error(Code::E0222, "a run-time range of a buffer with several axes")
                    .label(base.span, "one axis in memory order is needed")
                    .secondary(defined, "declared here")
                    .help("merge the axes: `view flat = x by \"a b -> (a b)\";`"),
            ));
        }
        Ok(Flat { param: id, dtype: (!empty).then_some(dtype), slot })
    }

    /// `prefetch.l2 w[share(i, of, n)];`: the i-th of `of` nearly equal ranges of 0..n, in lines. With
    /// q = lines / of and r = lines % of, range i starts at line i·q + min(i, r).
    fn prefetch_share(
        &mut self,
        base: &'a Expr,
        call: &'a Call,
        at: Span,
        evict: Option<Evict>,
        span: Span,
    ) -> Outcome<()> {
        let Some(form) = builtins::find("share") else { return Err(Refused) };
        let args = builtins::arrange(form, call, at).map_err(|wrong| self.error(wrong))?;
        let [(i, i_at), (of, of_at), (n, n_at)] = self.operands(&args)?;
        let flat = self.flat(base)?;
        let Some(dtype) = flat.dtype else { return Ok(()) };
        if const_int(&n) == Some(0) {
            return Ok(());
        }
        if const_int(&of).is_some_and(|of| of < 1) {
            return Err(self.error(
                Diagnostic::error(Code::E0214, "a share needs at least one part")
                    .label(of_at, "the number of parts"),
            ));
        }
        let per_line = LINE_BYTES * 8 / u64::from(dtype.bits());
        let per_line = Operand::Const(Const::int(i64::try_from(per_line).unwrap_or(1)));
        let one = Operand::Const(Const::int(1));
        let n = (n, n_at);
        let of = (of, of_at);
        let lines = self.ceil_div(n.clone(), (per_line.clone(), at), at)?;
        let quotient = self.infix(ast::BinaryOp::Div, (lines.clone(), at), of.clone(), at)?;
        let rest = self.infix(ast::BinaryOp::Rem, (lines, at), of, at)?;
        let after = self.infix(ast::BinaryOp::Add, (i.clone(), i_at), (one, at), at)?;
        let mut bounds = Vec::with_capacity(2);
        for part in [i, after] {
            let whole =
                self.infix(ast::BinaryOp::Mul, (part.clone(), i_at), (quotient.clone(), at), at)?;
            let line = if const_int(&rest) == Some(0) {
                whole
            } else {
                let extra = self.extreme(false, (part, i_at), (rest.clone(), at), at)?;
                self.infix(ast::BinaryOp::Add, (whole, at), (extra, at), at)?
            };
            let element = self.infix(ast::BinaryOp::Mul, (line, at), (per_line.clone(), at), at)?;
            let bound = self.extreme(false, (element, at), n.clone(), at)?;
            bounds.push(self.scalar(bound, DType::I32, "a bound of a prefetch", at)?);
        }
        let [start, end] = bounds[..] else { return Err(Refused) };
        self.prefetch_elements(&flat, [start, end], evict, span)
    }

    /// Brings in elements of a buffer, those of a slot behind the slots before it.
    fn prefetch_elements(
        &mut self,
        flat: &Flat,
        bounds: [ValueId; 2],
        evict: Option<Evict>,
        span: Span,
    ) -> Outcome<()> {
        let [mut start, mut end] = bounds;
        if let Some((slot, len)) = flat.slot {
            let len = self.shared(Shared::Const(Literal::Int(i64::from(len))), DType::I32, span)?;
            let op = Op::Binary { op: BinaryOp::Mul, a: slot, b: len };
            let first = self.define(op, DType::I32, Vec::new(), span)?;
            for bound in [&mut start, &mut end] {
                let (Some(a), b) = (first.id(), *bound) else { return Err(Refused) };
                let op = Op::Binary { op: BinaryOp::Add, a, b };
                *bound = self.define(op, DType::I32, Vec::new(), span)?.id().ok_or(Refused)?;
            }
        }
        let what = PrefetchRange::Elements { param: flat.param, start, end };
        self.emit(StmtKind::Prefetch { what, evict }, span)
    }
}

/// A buffer whose elements have numbers.
struct Flat {
    param: ParamId,
    /// None where there are no elements.
    dtype: Option<DType>,
    /// Of memory of ranks the slot, and the elements of each.
    slot: Option<(ValueId, u32)>,
}

/// The finding for a prefetch of memory of another rank.
fn prefetch_of_others(at: Span) -> Diagnostic {
    ranks::misuse(
        "a prefetch from another rank",
        at,
        "each rank brings in its own memory",
        "write `prefetch.l2 x@t[…];`",
    )
}

/// The finding for a prefetch of what is on the chip.
fn prefetch_of_shared(at: Span, declared: Span) -> Diagnostic {
    Diagnostic::error(Code::E0221, "a prefetch of shared memory")
        .label(at, "`prefetch.l2` brings a buffer of global memory nearer")
        .secondary(declared, "declared here")
}

pub(super) fn cache(policy: ast::Policy) -> CachePolicy {
    let evict = policy.evict.map(|evict| match evict {
        ast::Evict::First => Evict::First,
        ast::Evict::Last => Evict::Last,
    });
    CachePolicy { evict, no_allocate: policy.no_allocate }
}

//! Slices of buffers and of tiles in shared memory.

use std::rc::Rc;

use kernel_abi::DType;
use kernel_dsl::ast::{Expr, ExprKind, Index, IndexKind, InstanceKind, Range, RangeEnd, Ref};
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::constants::{Const, ConstValue};
use super::lower::Lower;
use super::mistakes::{
    no_shared_memory, ring_without_slot, slot_without_ring, two_ctas, value_as_buffer, word_mistake,
};
use super::operands::Operand;
use super::report::{Outcome, Refused};
use super::scope::{Buffer, Entity, Memory, RangeLimit, RangeValue};
use super::tmem::{not_tensor, tensor_misused};
use crate::kernel::{AxisIndex, Extent, Space, Storage, TileAccess, ValueId, ViewAxis, Words};

/// A slice of a buffer.
#[derive(Debug)]
pub(super) struct Slice {
    pub(super) storage: Storage,
    pub(super) dtype: DType,
    /// Extents of the tile.
    pub(super) shape: Vec<u32>,
    /// Where it is; `None` when the slice or the buffer has no elements.
    pub(super) access: Option<TileAccess>,
    /// `until` somewhere: elements can be absent.
    pub(super) has_until: bool,
    /// An index tile somewhere: elements with negative entries are absent.
    pub(super) gathers: bool,
    /// The scales of the elements, if the buffer has some, and the shape of their tile.
    pub(super) scale: Option<(TileAccess, Vec<u32>)>,
}

/// One index entry, evaluated.
enum Entry {
    At(ValueId),
    Range(RangeValue),
    All(Option<Operand>),
    Gather(ValueId, u32),
    /// A gather without entries.
    Nothing,
    New,
}

impl<'a> Lower<'a> {
    /// The buffer or view that a name stands for, the name with its instances, and where it is declared.
    pub(super) fn buffer(&mut self, e: &'a Expr) -> Outcome<(Buffer, &'a Ref, Span)> {
        self.buffer_in(e, Space::Shared)
    }

    /// The same of a tile in tensor memory, or of anything else.
    fn buffer_in(&mut self, e: &'a Expr, space: Space) -> Outcome<(Buffer, &'a Ref, Span)> {
        let found @ (_, reference, defined) = self.any_buffer(e)?;
        let name = reference.path.text();
        self.is_no_window(found.0.memory, e.span, defined)?;
        match (space, self.is_tensor(&found.0)) {
            (Space::Shared, true) => Err(self.error(tensor_misused(&name, e.span, defined))),
            (Space::Tensor, false) => Err(self.error(not_tensor(&name, e.span, defined))),
            (Space::Shared, false) | (Space::Tensor, true) => Ok(found),
        }
    }

    pub(super) fn any_buffer(&mut self, e: &'a Expr) -> Outcome<(Buffer, &'a Ref, Span)> {
        let found @ (_, reference, _) = self.named_buffer(e)?;
        if let Memory::Param(id) = found.0.memory
            && let Some(words @ (Words::Counter | Words::Raised | Words::Flag)) =
                self.kernel.params[id].words
        {
            let (name, declared) = (reference.path.text(), self.kernel.params[id].span);
            return Err(self.error(word_mistake(words.name(), &name, e.span, declared)));
        }
        Ok(found)
    }

    /// A buffer, words included.
    pub(super) fn named_buffer(&mut self, e: &'a Expr) -> Outcome<(Buffer, &'a Ref, Span)> {
        let ExprKind::Ref(reference) = &e.kind else {
            return Err(match &e.kind {
                ExprKind::Index(..) => self.not_built(e.span, "a view of a slice"),
                _ => self.error(value_as_buffer("this", e.span, e.span)),
            });
        };
        let Some(name) = reference.path.single() else {
            return Err(self.not_built(e.span, "parts of a value"));
        };
        let Some(named) = self.frame.lookup(&name.text) else {
            return Err(self.unknown(&name.text, name.span));
        };
        let defined = named.span;
        match named.entity.clone() {
            Entity::Buffer(buffer) => Ok((buffer, reference, defined)),
            Entity::Refused => Err(Refused),
            Entity::Const(_)
            | Entity::Tile(_)
            | Entity::Range(_)
            | Entity::Frag(_)
            | Entity::Atom(_) => Err(self.error(value_as_buffer(&name.text, e.span, defined))),
        }
    }

    /// The memory that `x` or `x@e` means.
    pub(super) fn storage(
        &mut self,
        buffer: &Buffer,
        reference: &'a Ref,
        defined: Span,
    ) -> Outcome<Storage> {
        if let Some((span, what)) = super::not_built::instances(reference) {
            return Err(self.not_built(span, what));
        }
        let name = reference.path.text();
        let (mut ctas, mut slots) = (Vec::new(), Vec::new());
        for at in &reference.at {
            match &at.kind {
                InstanceKind::Cta(e) => ctas.push((at.span, &**e)),
                InstanceKind::Slot(e) => slots.push((at.span, &**e)),
                InstanceKind::AllCtas => self.for_all(&name, at.span)?,
                InstanceKind::Peer(_) | InstanceKind::AllPeers => {
                    return Err(self.error(super::mistakes::no_rank(&name, at.span, defined)));
                }
            }
        }
        let (tile, slot) = match (buffer.memory, slots.as_slice()) {
            (Memory::Param(param), []) => {
                return match ctas.first() {
                    None => Ok(Storage::Buffer(param)),
                    Some((at, _)) => Err(self.error(no_shared_memory(&name, *at, defined))),
                };
            }
            (Memory::Smem { tile, ringed: false }, []) => (tile, None),
            (Memory::Param(_) | Memory::Smem { ringed: false, .. }, [(at, _), ..]) => {
                return Err(self.error(slot_without_ring(&name, *at, defined)));
            }
            (Memory::Smem { ringed: true, .. }, []) => {
                return Err(self.error(ring_without_slot(&name, reference.path.span, defined)));
            }
            (Memory::Smem { tile, ringed: true }, [(_, e), ..]) => {
                let slot = self.expr(e)?;
                (tile, Some(self.scalar(slot, DType::I32, "a ring slot", e.span)?))
            }
        };
        match ctas.as_slice() {
            [] => Ok(Storage::Smem(tile, slot)),
            [(_, e)] => {
                let cta = self.expr(e)?;
                let cta = self.scalar(cta, DType::I32, "a CTA of the cluster", e.span)?;
                Ok(Storage::Remote(tile, slot, cta))
            }
            [_, (at, _), ..] => Err(self.error(two_ctas(&name, *at))),
        }
    }

    /// A buffer, whole or sliced. `whole` is the text of the load or store.
    pub(super) fn slice(&mut self, e: &'a Expr, whole: Span) -> Outcome<Slice> {
        self.slice_of(e, whole, Space::Shared)
    }

    /// The same of a tile in tensor memory, or of anything else.
    pub(super) fn slice_of(&mut self, e: &'a Expr, whole: Span, space: Space) -> Outcome<Slice> {
        let (base, indices) = match &e.kind {
            ExprKind::Index(base, indices) => (&**base, Some(indices.as_slice())),
            _ => (e, None),
        };
        let (buffer, reference, defined) = self.buffer_in(base, space)?;
        let inbox = self.inbox(&buffer);
        let place = match inbox {
            Some(param) => {
                let (storage, slot) =
                    self.inbox_place(param, buffer.instance, reference, defined)?;
                (storage, Some(slot))
            }
            None => (self.storage(&buffer, reference, defined)?, None),
        };
        self.slice_in(e, indices, (buffer, base.span, defined), place, whole)
    }

    /// The part of a buffer that indices mean; in memory of ranks after a slot.
    pub(super) fn slice_in(
        &mut self,
        e: &'a Expr,
        indices: Option<&'a [Index]>,
        (buffer, base, defined): (Buffer, Span, Span),
        (storage, slot): (Storage, Option<ValueId>),
        whole: Span,
    ) -> Outcome<Slice> {
        let slot = slot.map(|slot| (Entry::At(slot), base));
        let own = usize::from(slot.is_some());
        // The axis of ranks stands before all others.
        let ranks = matches!(storage, Storage::Peers(_)).then_some((Entry::New, base));
        let mut entries: Vec<(Entry, Span)> = ranks.into_iter().chain(slot).collect();
        match indices {
            Some(indices) => entries.extend(self.entries(indices)?),
            None => entries.extend(buffer.axes.iter().skip(own).map(|_| (Entry::All(None), base))),
        }
        let named = entries.iter().filter(|(entry, _)| !matches!(entry, Entry::New)).count();
        if named != buffer.axes.len() {
            let (named, axes) = (named - own, buffer.axes.len() - own);
            return Err(self.error(
                Diagnostic::error(Code::E0222, format!("{named} indices for {axes} axes"))
                    .label(e.span, format!("{named} indices"))
                    .secondary(defined, format!("{axes} axes"))
                    .help("write `:` for a whole axis"),
            ));
        }
        self.place(&buffer, storage, entries, whole)
    }

    fn entries(&mut self, indices: &'a [Index]) -> Outcome<Vec<(Entry, Span)>> {
        let entries: Vec<Outcome<(Entry, Span)>> =
            indices.iter().map(|index| Ok((self.entry(index)?, index.span))).collect();
        entries.into_iter().collect()
    }

    fn entry(&mut self, index: &'a Index) -> Outcome<Entry> {
        match &index.kind {
            IndexKind::NewAxis => Ok(Entry::New),
            IndexKind::All(until) => {
                let until = until.as_ref().map(|until| self.expr(until)).transpose()?;
                Ok(Entry::All(until))
            }
            IndexKind::At(e, until) => {
                let range =
                    match &e.kind {
                        ExprKind::Range(range) => Some(self.range(range, e.span)?),
                        ExprKind::Ref(reference) => reference.path.single().and_then(|name| {
                            match &self.frame.lookup(&name.text)?.entity {
                                Entity::Range(range) => Some(range.clone()),
                                Entity::Const(_)
                                | Entity::Tile(_)
                                | Entity::Frag(_)
                                | Entity::Buffer(_)
                                | Entity::Atom(_)
                                | Entity::Refused => None,
                            }
                        }),
                        _ => None,
                    };
                let Some(mut range) = range else { return self.single(e, until.as_ref()) };
                if let Some(until) = until {
                    if range.until.is_some() {
                        return Err(self.error(
                            Diagnostic::error(Code::E0222, "two bounds for one range")
                                .label(until.span, "the second `until`")
                                .secondary(range.span, "the range has one already"),
                        ));
                    }
                    range.until = Some(self.expr(until)?);
                }
                Ok(Entry::Range(range))
            }
        }
    }

    /// A position, or a tile of positions.
    fn single(&mut self, e: &'a Expr, until: Option<&'a Expr>) -> Outcome<Entry> {
        let operand = self.expr(e)?;
        if let Some(until) = until {
            return Err(self.not_built(until.span, "`until` on a position or an index tile"));
        }
        if let Operand::Tile(tile) = &operand
            && !tile.is_scalar()
        {
            if tile.dtype != DType::I32 {
                return Err(self.error(
                    Diagnostic::error(Code::E0203, "an index tile is of type i32")
                        .label(e.span, format!("this is {}", tile.describe()))
                        .help("write `i32(…)`"),
                ));
            }
            return match (tile.id(), tile.shape.as_slice()) {
                (Some(id), [extent]) => Ok(Entry::Gather(id, *extent)),
                (None, [_]) => Ok(Entry::Nothing),
                (_, _) => Err(self.not_built(e.span, "index tiles of several axes")),
            };
        }
        Ok(Entry::At(self.scalar(operand, DType::I32, "an index", e.span)?))
    }

    /// `a .. + L until n`, `a..b`
    pub(super) fn range(&mut self, range: &'a Range, span: Span) -> Outcome<RangeValue> {
        let start = self.expr(&range.start);
        let end = match &range.end {
            RangeEnd::Length(length) => {
                let length = self.const_extent(length, "a length", 0, i64::from(i32::MAX));
                length.map(RangeLimit::Length)
            }
            RangeEnd::Exclusive(end) => self.expr(end).map(RangeLimit::End),
            RangeEnd::Inclusive(end) => self.inclusive(end).map(RangeLimit::End),
        };
        let until = range.until.as_ref().map(|until| self.expr(until)).transpose();
        let (start, mut end, until) = (start?, end?, until?);
        if let (Some(first), RangeLimit::End(last)) = (const_int(&start), &end)
            && let Some(last) = const_int(last)
        {
            let length = last.checked_sub(first).and_then(|n| u32::try_from(n).ok());
            let Some(length) = length else {
                return Err(self.error(
                    Diagnostic::error(Code::E0222, format!("the range {first}..{last}"))
                        .label(span, "it ends before it starts, or is too long"),
                ));
            };
            end = RangeLimit::Length(length);
        }
        Ok(RangeValue { start, end, until, span })
    }

    /// The position behind `end`.
    pub(super) fn inclusive(&mut self, end: &'a Expr) -> Outcome<Operand> {
        let last = self.expr(end)?;
        let one = Operand::Const(Const::int(1));
        self.infix(kernel_dsl::ast::BinaryOp::Add, (last, end.span), (one, end.span), end.span)
    }

    /// Puts entries and axes together.
    fn place(
        &mut self,
        buffer: &Buffer,
        storage: Storage,
        entries: Vec<(Entry, Span)>,
        whole: Span,
    ) -> Outcome<Slice> {
        let dtype = self.kernel.dtype_of(storage);
        let mut exists = !buffer.axes.iter().any(|axis| axis.extent == Extent::Const(0));
        let (mut shape, mut index) = (Vec::new(), Vec::with_capacity(entries.len()));
        let (mut has_until, mut gathered) = (false, None);
        let mut axes = buffer.axes.iter();
        let spans: Vec<Span> = entries.iter().map(|(_, span)| *span).collect();
        for (entry, span) in entries {
            let axis = match entry {
                Entry::New => None,
                _ => axes.next(),
            };
            match entry {
                Entry::New => {
                    shape.push(1);
                    index.push(AxisIndex::New);
                }
                Entry::At(at) => index.push(AxisIndex::At(at)),
                Entry::Gather(tile, extent) => {
                    if let Some((first, at)) = gathered.filter(|&(first, _)| first != extent) {
                        return Err(self.error(
                            Diagnostic::error(
                                Code::E0204,
                                "index tiles of one access go together, entry by entry",
                            )
                            .label(span, format!("{extent} entries"))
                            .secondary(at, format!("{first} entries")),
                        ));
                    }
                    if gathered.replace((extent, span)).is_some() {
                        index.push(AxisIndex::Along(tile));
                    } else {
                        shape.push(extent);
                        index.push(AxisIndex::Gather(tile));
                    }
                }
                Entry::Nothing => {
                    exists = false;
                    shape.push(0);
                }
                Entry::All(until) => {
                    let len = self.whole_axis(axis, span)?;
                    let zero = Operand::Const(Const::int(0));
                    has_until |= until.is_some();
                    shape.push(len);
                    index.push(self.range_index(zero, len, until, span)?);
                }
                Entry::Range(range) => {
                    let len = match range.end {
                        RangeLimit::Length(len) => len,
                        RangeLimit::End(_) => {
                            return Err(self.error(
                                Diagnostic::error(Code::E0205, "the length of a slice is constant")
                                    .label(
                                        span,
                                        "the length of this range is known at run time only",
                                    )
                                    .help("write `start .. + length until bound`"),
                            ));
                        }
                    };
                    has_until |= range.until.is_some();
                    shape.push(len);
                    index.push(self.range_index(range.start, len, range.until, span)?);
                }
            }
        }
        let exists = exists && !super::operands::is_empty(&shape);
        let access = exists.then(|| TileAccess {
            storage,
            axes: Rc::clone(&buffer.axes).to_vec(),
            index,
            span: whole,
        });
        let scale = match &access {
            Some(access) => self.scale_slice(access, &spans)?,
            None => None,
        };
        let gathers = gathered.is_some();
        Ok(Slice { storage, dtype, shape, access, has_until, gathers, scale })
    }

    fn whole_axis(&mut self, axis: Option<&ViewAxis>, span: Span) -> Outcome<u32> {
        match axis.map(|axis| axis.extent) {
            Some(Extent::Const(extent)) => Ok(extent),
            Some(Extent::Scalar(_)) => Err(self.error(
                Diagnostic::error(Code::E0205, "an axis whose extent is known at run time only")
                    .label(span, "the whole axis")
                    .help("write `start .. + length`, with a constant length"),
            )),
            None => Err(Refused),
        }
    }

    fn range_index(
        &mut self,
        start: Operand,
        len: u32,
        until: Option<Operand>,
        span: Span,
    ) -> Outcome<AxisIndex> {
        let start = self.scalar(start, DType::I32, "the start of a slice", span)?;
        let until = until
            .map(|until| self.scalar(until, DType::I32, "the bound of a slice", span))
            .transpose()?;
        Ok(AxisIndex::Range { start, len, until })
    }
}

/// The value of an integer constant.
pub(super) fn const_int(operand: &Operand) -> Option<i64> {
    match operand {
        Operand::Const(Const { value: ConstValue::Int(v), .. }) => Some(*v),
        Operand::Const(_) | Operand::Tile(_) => None,
    }
}

//! Pieces of tiles, new axes, and tiles put together.

use kernel_abi::DType;
use kernel_dsl::ast::{Expr, ExprKind, Index, IndexKind};
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::access::const_int;
use super::lower::Lower;
use super::mistakes::buffer_slice_as_value;
use super::operands::{Operand, Tile, is_empty};
use super::report::{Outcome, Refused};
use super::scope::{Entity, RangeLimit, RangeValue};
use crate::kernel::{Op, SlicePart};

/// One index of a tile.
enum Entry {
    /// A new axis of 1.
    New,
    /// A whole axis.
    All,
    /// A piece of an axis.
    Part(SlicePart),
}

impl<'a> Lower<'a> {
    /// `x[1 .. + 2, 3, :, _]`: a piece of a tile, with new axes.
    pub(super) fn piece(
        &mut self,
        base: &'a Expr,
        indices: &'a [Index],
        span: Span,
    ) -> Outcome<Operand> {
        if let ExprKind::Ref(reference) = &base.kind
            && let Some(named) = self.frame.lookup(&reference.path.text())
            && let Entity::Buffer(_) = named.entity
        {
            return Err(self.error(buffer_slice_as_value(span)));
        }
        let tile = match self.expr(base)? {
            Operand::Tile(tile) => tile,
            Operand::Const(_) => {
                return Err(self.error(
                    Diagnostic::error(Code::E0222, "a constant has no axes")
                        .label(span, "indices of a constant")
                        .help("write `splat(value, extent)` first"),
                ));
            }
        };
        let mut entries = Vec::with_capacity(indices.len());
        for index in indices {
            entries.push((self.tile_index(index)?, index.span));
        }
        let named = entries.iter().filter(|(entry, _)| !matches!(entry, Entry::New)).count();
        if named != tile.shape.len() {
            return Err(self.error(
                Diagnostic::error(Code::E0222, "indices that do not fit the tile")
                    .label(span, format!("{named} of its axes are named"))
                    .secondary(base.span, format!("this is {}", tile.describe()))
                    .help("write `:` for each axis and `_` for each new one"),
            ));
        }
        let (mut parts, mut axes, mut next) = (Vec::new(), Vec::new(), 0u8);
        let mut extents = tile.shape.iter();
        for (entry, at) in entries {
            let part = match entry {
                Entry::New => {
                    axes.push(None);
                    continue;
                }
                Entry::All => SlicePart { start: 0, len: extents.next().copied() },
                Entry::Part(part) => {
                    let extent = extents.next().copied().unwrap_or(0);
                    self.within(part, extent, at, base.span)?;
                    part
                }
            };
            parts.push(part);
            if part.len.is_some() {
                axes.push(Some(next));
                next = next.saturating_add(1);
            }
        }
        let scale = match &tile.scale {
            Some(scale) => {
                let parts = self.scale_parts(&tile, scale, &parts, span)?;
                let scale = self.sliced(scale, parts, span)?;
                Some(self.with_axes(scale, axes.clone(), span)?.into())
            }
            None => None,
        };
        let sliced = self.sliced(&tile, parts, span)?;
        let mut result = self.with_axes(sliced, axes, span)?;
        result.scale = scale;
        Ok(Operand::Tile(result))
    }

    /// The same elements with new axes of 1.
    fn with_axes(&mut self, tile: Tile, axes: Vec<Option<u8>>, span: Span) -> Outcome<Tile> {
        let extent = |axis: &Option<u8>| axis.map_or(1, |a| tile.shape[usize::from(a)]);
        let shape: Vec<u32> = axes.iter().map(extent).collect();
        match tile.id() {
            None => Ok(Tile::empty(tile.dtype, shape)),
            Some(_) if axes.iter().all(Option::is_some) => Ok(tile),
            Some(x) => self.define(Op::Expand { x, axes }, tile.dtype, shape, span),
        }
    }

    fn sliced(&mut self, tile: &Tile, parts: Vec<SlicePart>, span: Span) -> Outcome<Tile> {
        let shape: Vec<u32> = parts.iter().filter_map(|part| part.len).collect();
        let whole = parts.iter().zip(&tile.shape).all(|(part, &extent)| part.is_whole(extent));
        match tile.id() {
            Some(_) if whole => Ok(tile.clone()),
            Some(x) if !is_empty(&shape) => {
                self.define(Op::Slice { x, parts }, tile.dtype, shape, span)
            }
            Some(_) => Ok(Tile::empty(tile.dtype, shape)),
            None if is_empty(&shape) => Ok(Tile::empty(tile.dtype, shape)),
            None => Err(self.error(
                Diagnostic::error(Code::E0401, "a piece of a tile without elements")
                    .label(span, "there is nothing here to take")
                    .help("decide it before: a `const` condition in `if`"),
            )),
        }
    }

    /// Refuses positions outside of an axis.
    fn within(&mut self, part: SlicePart, extent: u32, at: Span, tile: Span) -> Outcome<()> {
        let len = part.len.unwrap_or(1);
        if part.start.checked_add(len).is_some_and(|end| end <= extent) {
            return Ok(());
        }
        let text = match part.len {
            Some(len) => format!("positions {} .. + {len}", part.start),
            None => format!("position {}", part.start),
        };
        Err(self.error(
            Diagnostic::error(Code::E0401, "a piece that lies outside of its tile")
                .label(at, format!("{text} of an axis of {extent}"))
                .secondary(tile, "the tile"),
        ))
    }

    fn tile_index(&mut self, index: &'a Index) -> Outcome<Entry> {
        let e = match &index.kind {
            IndexKind::All(None) => return Ok(Entry::All),
            IndexKind::NewAxis => return Ok(Entry::New),
            IndexKind::At(e, None) => e,
            IndexKind::All(Some(until)) | IndexKind::At(_, Some(until)) => {
                return Err(self.not_built(until.span, "`until` on a tile in registers"));
            }
        };
        let named = |s: &Self| match &e.kind {
            ExprKind::Ref(reference) => match &s.frame.lookup(&reference.path.text())?.entity {
                Entity::Range(range) => Some(range.clone()),
                Entity::Const(_)
                | Entity::Tile(_)
                | Entity::Frag(_)
                | Entity::Buffer(_)
                | Entity::Atom(_)
                | Entity::Refused => None,
            },
            _ => None,
        };
        let range = match &e.kind {
            ExprKind::Range(range) => Some(self.range(range, e.span)?),
            _ => named(self),
        };
        if let Some(range) = range {
            return self.tile_range(&range, e.span);
        }
        let position = self.expr(e)?;
        let start = self.tile_position(&position, e.span)?;
        Ok(Entry::Part(SlicePart { start, len: None }))
    }

    fn tile_range(&mut self, range: &RangeValue, at: Span) -> Outcome<Entry> {
        if range.until.is_some() {
            return Err(self.not_built(at, "`until` on a tile in registers"));
        }
        let start = self.tile_position(&range.start, at)?;
        match range.end {
            RangeLimit::Length(len) => Ok(Entry::Part(SlicePart { start, len: Some(len) })),
            RangeLimit::End(_) => Err(self.not_built(at, "run-time positions in a tile")),
        }
    }

    /// A constant position; registers have no run-time index.
    fn tile_position(&mut self, position: &Operand, at: Span) -> Outcome<u32> {
        let Some(value) = const_int(position) else {
            return Err(self.not_built(at, "run-time positions in a tile"));
        };
        u32::try_from(value).map_err(|_| -> Refused {
            self.error(
                Diagnostic::error(Code::E0401, "a piece that lies outside of its tile")
                    .label(at, format!("position {value}")),
            )
        })
    }

    /// `concat(a, b, axis = k)`
    pub(super) fn concat(&mut self, args: &[&'a Expr], span: Span) -> Outcome<Operand> {
        let [first, second, axis] = args else { return Err(Refused) };
        let (a, b) = (self.tile_argument(first), self.tile_argument(second));
        let (a, b) = (a?, b?);
        let axis = self.axis(&a, axis, first.span)?;
        let along = usize::from(axis);
        let mut rest = b.shape.clone();
        if let (Some(to), Some(&from)) = (rest.get_mut(along), a.shape.get(along)) {
            *to = from;
        }
        if a.dtype != b.dtype || rest != a.shape {
            let code = if a.dtype == b.dtype { Code::E0204 } else { Code::E0203 };
            let (left, right) = (a.describe(), b.describe());
            return Err(self.error(
                Diagnostic::error(code, format!("{left} and {right} do not make one tile"))
                    .label(first.span, format!("this is {left}"))
                    .secondary(second.span, format!("this is {right}"))
                    .help("all axes but the one that is given agree; `x[_, :]` adds an axis"),
            ));
        }
        if a.dtype == DType::E2m1 {
            return Err(self.not_built(span, "`concat` of e2m1"));
        }
        let mut shape = a.shape.clone();
        let Some(sum) = a.shape[along].checked_add(b.shape[along]) else { return Err(Refused) };
        shape[along] = sum;
        Ok(Operand::Tile(match (a.id(), b.id()) {
            (Some(first), Some(second)) => {
                self.define(Op::Concat { a: first, b: second, axis }, a.dtype, shape, span)?
            }
            (Some(_), None) if a.shape == shape => a,
            (None, Some(_)) if b.shape == shape => b,
            (_, _) => Tile::empty(a.dtype, shape),
        }))
    }
}

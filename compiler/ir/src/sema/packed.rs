//! Buffers of packed elements and their scales: `scaled_by(s, group = 32)`, and the two parts that a load of
//! such a buffer has.
//!
//! A group is `group` neighbours along the last axis of the buffer, whose extent is a multiple of the group.
//! Guarantees that every slice starts and ends between two groups, and that the scales that belong to it are
//! the same slice of the buffer of scales, with the axis along the group divided by it.

use std::rc::Rc;

use kernel_abi::{Access, DType};
use kernel_dsl::ast;
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::constants::Const;
use super::lower::Lower;
use super::operands::{Operand, Tile};
use super::report::{Outcome, Refused};
use super::scope::Frag;
use crate::distribution::Distribution;
use crate::kernel::{
    AxisIndex, Extent, Op, Param, Scaled, SlicePart, StmtKind, Storage, TileAccess, ValueId, Var,
    VarId, ViewAxis, ViewDigit,
};
use crate::ops::BinaryOp;

/// What a register tile holds beside its elements.
#[derive(Debug, Clone)]
pub(super) enum Scales {
    /// Something without scales was assigned.
    Without,
    /// The tile of scales, one slot a slot.
    Of(VarId, Vec<u32>),
}

/// An axis of a view beside the groups of its buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct GroupedAxis {
    /// Neighbours along the axis that share a scale.
    within: u32,
    /// The axis of the scales; `None` where it would have one position.
    outer: Option<ViewAxis>,
}

/// A digit of an axis of a buffer.
#[derive(Debug, Clone, Copy)]
struct BufferDigit {
    axis: usize,
    /// Values; none is too large for a run-time extent.
    extent: u32,
    /// Elements of memory between two values.
    stride: i64,
    /// Positions of the axis between two values.
    times: i64,
}

/// The digits of a buffer's axes: those of its stored layout, else one an axis.
fn buffer_digits(param: &Param) -> Option<Vec<BufferDigit>> {
    let mut digits = Vec::new();
    if let Some(layout) = &param.stored {
        for (axis, stored) in layout.axes().iter().enumerate() {
            let mut times = 1;
            for digit in stored {
                let (extent, stride) = (digit.extent, i64::try_from(digit.stride).ok()?);
                digits.push(BufferDigit { axis, extent, stride, times });
                times *= i64::from(extent);
            }
        }
        return Some(digits);
    }
    let mut stride = 1i64;
    for (axis, extent) in param.shape.iter().enumerate().rev() {
        let extent = match extent {
            Extent::Const(n) => (*n).max(1),
            Extent::Scalar(_) => u32::MAX,
        };
        digits.push(BufferDigit { axis, extent, stride, times: 1 });
        stride = stride.checked_mul(i64::from(extent)).unwrap_or(i64::MAX);
    }
    Some(digits)
}

/// A digit of `extent` values, `step` apart by the measure `of`, as pieces of the digits of a buffer: for each the
/// digit, the number of its values between two of the piece, and the values of the piece. Fastest first.
fn pieces(
    extent: u32,
    step: i64,
    digits: &[BufferDigit],
    of: impl Fn(&BufferDigit) -> i64,
) -> Option<Vec<(BufferDigit, i64, u32)>> {
    let (mut left, mut step) = (extent, step);
    let mut found = Vec::new();
    while left > 1 {
        let holds = |digit: &&BufferDigit| {
            let unit = of(digit);
            digit.extent > 1 && unit > 0 && unit <= step && step / unit < i64::from(digit.extent)
        };
        let digit = *digits.iter().find(holds)?;
        let unit = of(&digit);
        let apart = u32::try_from(step / unit).ok()?;
        if step % unit != 0 || !digit.extent.is_multiple_of(apart) {
            return None;
        }
        let taken = left.min(digit.extent / apart);
        if !left.is_multiple_of(taken) {
            return None;
        }
        found.push((digit, i64::from(apart), taken));
        left /= taken;
        step = step.checked_mul(i64::from(taken))?;
    }
    Some(found)
}

/// Splits an axis of a view of `param` into what runs inside a group and what counts groups, as it lies in the
/// buffer of scales. `None` where the elements of a group do not follow each other along the axis.
fn grouped(
    axis: &ViewAxis,
    group: u32,
    param: &Param,
    scale: Option<&Param>,
) -> Option<GroupedAxis> {
    let size = i64::from(group);
    let last = param.shape.len().checked_sub(1)?;
    let own = buffer_digits(param)?;
    let scales = scale.and_then(buffer_digits);
    let mut within = 1_u32;
    let mut counts_groups = false;
    // fastest first
    let mut outer: Vec<ViewDigit> = Vec::new();
    for digit in axis.digits.iter().rev() {
        for (place, apart, mut extent) in
            pieces(digit.extent, digit.stride, &own, |digit| digit.stride)?
        {
            let mut times = place.times * apart;
            if place.axis == last {
                if times < size {
                    if counts_groups || size % times != 0 {
                        return None;
                    }
                    let inside = extent.min(u32::try_from(size / times).ok()?);
                    let room = u32::try_from(size / times).ok()?;
                    if !room.is_multiple_of(inside) || !extent.is_multiple_of(inside) {
                        return None;
                    }
                    within = within.checked_mul(inside)?;
                    extent /= inside;
                    times *= i64::from(inside);
                }
                if extent > 1 && times % size != 0 {
                    return None;
                }
                times /= size;
            }
            if extent <= 1 {
                continue;
            }
            counts_groups = true;
            let Some(scales) = &scales else { continue };
            let of_axis: Vec<BufferDigit> =
                scales.iter().copied().filter(|digit| digit.axis == place.axis).collect();
            for (place, apart, extent) in pieces(extent, times, &of_axis, |digit| digit.times)? {
                let stride = place.stride * apart;
                match outer.last_mut() {
                    Some(faster) if faster.stride * i64::from(faster.extent) == stride => {
                        faster.extent = faster.extent.checked_mul(extent)?;
                    }
                    Some(_) | None => outer.push(ViewDigit { extent, stride }),
                }
            }
        }
    }
    outer.reverse();
    let outer = match axis.extent {
        _ if !counts_groups => None,
        Extent::Scalar(_) if within > 1 => return None,
        Extent::Scalar(_) => Some(ViewAxis { extent: axis.extent, digits: outer }),
        Extent::Const(n) if n.is_multiple_of(within) => {
            Some(ViewAxis { extent: Extent::Const(n / within), digits: outer })
        }
        Extent::Const(_) => return None,
    };
    Some(GroupedAxis { within, outer })
}

/// Elements that a slice may not part: the group of a scaled buffer, a byte of a packed one.
fn group_of(param: &Param) -> Option<u32> {
    match (param.scaled, param.dtype.bytes()) {
        (Some(scaled), _) => Some(scaled.group),
        (None, None) => Some(2),
        (None, Some(_)) => None,
    }
}

impl<'a> Lower<'a> {
    /// `scaled_by(s, group = 32)` of a declaration, once all extents are known.
    pub(super) fn scales(&mut self, buffer: &'a ast::Buffer) -> Outcome<()> {
        let Some(scaled) = &buffer.scaled_by else { return Ok(()) };
        let find = |name: &str| self.kernel.params.iter_enumerated().find(|(_, p)| p.name == name);
        let (Some((own, _)), Some((by, scale))) =
            (find(&buffer.name.text), find(&scaled.scale.text))
        else {
            return Err(self.unknown(&scaled.scale.text, scaled.scale.span));
        };
        let (found, declared) = (scale.dtype, scale.span);
        if found != DType::Ue8m0 || scale.access == Access::Scalar {
            return Err(self.error(
                Diagnostic::error(Code::E0203, "scales are a buffer of ue8m0")
                    .label(scaled.scale.span, format!("this is of {found}"))
                    .secondary(declared, "declared here"),
            ));
        }
        let param = &self.kernel.params[own];
        let (dtype, access) = (param.dtype, param.access);
        match dtype {
            DType::E2m1 | DType::E4m3 | DType::E5m2 => {}
            DType::F32
            | DType::F16
            | DType::Bf16
            | DType::Ue8m0
            | DType::I8
            | DType::U8
            | DType::I32
            | DType::U32
            | DType::I64
            | DType::U64
            | DType::Bool => {
                return Err(self.error(
                    Diagnostic::error(Code::E0203, format!("scales of a buffer of {dtype}"))
                        .label(scaled.scale.span, "only e2m1, e4m3 and e5m2 have block scales")
                        .secondary(buffer.ty.dtype.span, "declared here"),
                ));
            }
        }
        if access.is_writable() {
            return Err(self.not_built(scaled.scale.span, "block scales of writable buffers"));
        }
        let group = self.const_extent(&scaled.group, "the group", 2, 1024)?;
        if !group.is_power_of_two() {
            return Err(self.error(
                Diagnostic::error(Code::E0215, format!("a group of {group} elements"))
                    .label(scaled.group.span, "no power of two"),
            ));
        }
        let mut wanted = self.kernel.params[own].shape.clone();
        let last = wanted.last_mut();
        match last {
            Some(Extent::Const(n)) if n.is_multiple_of(group) => *n /= group,
            Some(Extent::Const(_) | Extent::Scalar(_)) | None => {
                return Err(self.error(
                    Diagnostic::error(
                        Code::E0204,
                        format!("the last extent is no multiple of the group of {group}"),
                    )
                    .label(buffer.ty.span, "a group would reach into the next row"),
                ));
            }
        }
        if self.kernel.params[by].shape != wanted {
            return Err(self.error(
                Diagnostic::error(Code::E0204, "scales of another shape")
                    .label(
                        scaled.scale.span,
                        format!("one scale for {group} neighbours along the last axis is needed"),
                    )
                    .secondary(declared, "declared here")
                    .help("give it the same extents, the last one divided by the group"),
            ));
        }
        self.kernel.params[own].scaled = Some(Scaled { by, group });
        Ok(())
    }

    /// Checks that a slice keeps groups whole; the slice of the scales and its shape, where there are scales.
    pub(super) fn scale_slice(
        &mut self,
        access: &TileAccess,
        spans: &[Span],
    ) -> Outcome<Option<(TileAccess, Vec<u32>)>> {
        let Storage::Buffer(id) = access.storage else { return Ok(None) };
        let param = &self.kernel.params[id];
        let Some(group) = group_of(param) else { return Ok(None) };
        let scaled = param.scaled;
        let mut views = access.axes.iter();
        let (mut axes, mut index, mut shape) = (Vec::new(), Vec::new(), Vec::new());
        for (entry, &span) in access.index.iter().zip(spans) {
            if let AxisIndex::New = entry {
                index.push(AxisIndex::New);
                shape.push(1);
                continue;
            }
            let Some(view) = views.next() else { return Err(Refused) };
            let params = &self.kernel.params;
            let scale = scaled.map(|scaled: Scaled| &params[scaled.by]);
            let Some(axis) = grouped(view, group, &params[id], scale) else {
                return Err(self.parted(access, group, span, "neighbours of a group lie apart"));
            };
            match entry {
                AxisIndex::New => {}
                AxisIndex::At(_) | AxisIndex::Gather(_) | AxisIndex::Along(_)
                    if axis.within > 1 =>
                {
                    return Err(self.parted(access, group, span, "single elements of a group"));
                }
                AxisIndex::At(_) | AxisIndex::Along(_) => {
                    index.push(entry.clone());
                    axes.extend(axis.outer);
                }
                AxisIndex::Gather(positions) => {
                    shape.push(self.kernel.values[*positions].shape.first().copied().unwrap_or(1));
                    index.push(entry.clone());
                    axes.extend(axis.outer);
                }
                AxisIndex::Range { start, len, until } => {
                    if !len.is_multiple_of(axis.within) {
                        let found = format!("{len} elements");
                        return Err(self.parted(access, group, span, &found));
                    }
                    let start = self.divided(*start, axis.within, access, group, span)?;
                    let until = match until {
                        Some(until) => {
                            Some(self.divided(*until, axis.within, access, group, span)?)
                        }
                        None => None,
                    };
                    let len = len / axis.within;
                    shape.push(len);
                    match axis.outer {
                        Some(outer) => {
                            index.push(AxisIndex::Range { start, len, until });
                            axes.push(outer);
                        }
                        None if until.is_some() => {
                            let what = "`until` inside a group";
                            return Err(self.not_built(span, what));
                        }
                        None => index.push(AxisIndex::New),
                    }
                }
            }
        }
        let Some(scaled) = scaled else { return Ok(None) };
        Ok(Some((
            TileAccess { storage: Storage::Buffer(scaled.by), axes, index, span: access.span },
            shape,
        )))
    }

    /// `x / by`, where `by` provably divides it.
    fn divided(
        &mut self,
        x: ValueId,
        by: u32,
        access: &TileAccess,
        group: u32,
        span: Span,
    ) -> Outcome<ValueId> {
        if by == 1 {
            return Ok(x);
        }
        let divisor = i64::from(by);
        let (modulus, residue) = self.congruence(x);
        if modulus % divisor != 0 || residue % divisor != 0 {
            let found = if modulus == 0 {
                format!("position {residue}")
            } else {
                format!("nothing says that {by} divides this position")
            };
            return Err(self.parted(access, group, span, &found));
        }
        let quotient = if modulus == 0 {
            Operand::Const(Const::int(residue / divisor))
        } else {
            let x = Operand::Tile(Tile::new(x, DType::I32, Vec::new()));
            let by = Operand::Const(Const::int(divisor));
            self.binary(BinaryOp::Div, (x, span), (by, span), span)?
        };
        self.scalar(quotient, DType::I32, "a position", span)
    }

    fn parted(&mut self, access: &TileAccess, group: u32, span: Span, found: &str) -> Refused {
        let Storage::Buffer(id) = access.storage else { return Refused };
        let param = &self.kernel.params[id];
        let (name, dtype, declared) = (&param.name, param.dtype, param.span);
        let what = match param.scaled {
            Some(_) => format!("{group} elements of `{name}` share a scale"),
            None => format!("{group} elements of `{name}` share a byte"),
        };
        self.error(
            Diagnostic::error(Code::E0405, format!("this slice of {dtype} parts a group: {what}"))
                .label(span, found)
                .secondary(declared, "declared here")
                .help(format!(
                    "start at a multiple of {group} and take a multiple of {group}, or split the axis: \
                     `view … by \"… (j k) -> … j k\" (k = {group})`"
                )),
        )
    }

    /// The piece of the scales that belongs to a piece of a tile.
    pub(super) fn scale_parts(
        &mut self,
        tile: &Tile,
        scale: &Tile,
        parts: &[SlicePart],
        span: Span,
    ) -> Outcome<Vec<SlicePart>> {
        let mut of_scale = Vec::with_capacity(parts.len());
        for ((part, &extent), &scales) in parts.iter().zip(&tile.shape).zip(&scale.shape) {
            let within = extent / scales.max(1);
            let whole = |n: u32| n.is_multiple_of(within.max(1));
            if within > 1 && !(whole(part.start) && part.len.is_some_and(whole)) {
                return Err(self.error(
                    Diagnostic::error(Code::E0405, "this piece of a tile parts a group")
                        .label(span, format!("{within} neighbours along this axis share a scale"))
                        .help(format!("take a multiple of {within} from a multiple of {within}")),
                ));
            }
            let within = within.max(1);
            of_scale
                .push(SlicePart { start: part.start / within, len: part.len.map(|n| n / within) });
        }
        Ok(of_scale)
    }

    /// `x.scale`
    pub(super) fn scale_part(&mut self, x: Operand, at: Span, span: Span) -> Outcome<Operand> {
        let found = x.describe();
        if let Operand::Tile(tile) = x
            && let Some(scale) = tile.scale
        {
            return Ok(Operand::Tile((*scale).clone()));
        }
        Err(self.error(
            Diagnostic::error(Code::E0203, "this value has no scale")
                .label(at, format!("this is {found}"))
                .secondary(span, "the scales of what is loaded from a `scaled_by` buffer")
                .help("take `.scale` of the loaded value itself, before any conversion"),
        ))
    }

    /// Assigns the scales that belong to a value of a slot.
    pub(super) fn set_scale(
        &mut self,
        frag: &Frag,
        slot: u32,
        value: &Tile,
        at: Span,
        span: Span,
    ) -> Outcome<()> {
        let Some(var) = frag.var else { return Ok(()) };
        let scale = value.scale.as_ref().and_then(|scale| Some((scale.id()?, &scale.shape)));
        let known = self.scales.get(&var).cloned();
        match (known, scale) {
            (None, None) => {
                self.scales.insert(var, Scales::Without);
                Ok(())
            }
            (Some(Scales::Without), None) => Ok(()),
            (Some(Scales::Of(scales, shape)), Some((value, found))) if shape == *found => {
                self.emit(StmtKind::SetVar { var: scales, slot, value }, span)
            }
            (None, Some((value, shape))) => {
                let declared = &self.kernel.vars[var];
                let scales = Var {
                    name: format!("{}.scale", declared.name),
                    dtype: DType::Ue8m0,
                    shape: shape.clone(),
                    slots: declared.slots,
                    spread: None,
                    via_mma: false,
                    distribution: Distribution::scalar(self.warps()),
                    span: declared.span,
                };
                let scales = self.kernel.vars.push(scales);
                self.scales.insert(var, Scales::Of(scales, shape.clone()));
                self.emit(StmtKind::SetVar { var: scales, slot, value }, span)
            }
            (Some(Scales::Without), Some(_)) | (Some(Scales::Of(..)), _) => {
                let declared = self.kernel.vars[var].span;
                Err(self.error(
                    Diagnostic::error(
                        Code::E0203,
                        "a tile that is assigned with and without scales",
                    )
                    .label(at, "other scales than the assignment before")
                    .secondary(declared, "the tile")
                    .help("take one tile for each form of group"),
                ))
            }
        }
    }

    /// The scales in a slot, if it has some.
    pub(super) fn read_scale(
        &mut self,
        frag: &Frag,
        slot: u32,
        span: Span,
    ) -> Outcome<Option<Rc<Tile>>> {
        let scales = frag.var.and_then(|var| self.scales.get(&var));
        let Some(Scales::Of(var, shape)) = scales.cloned() else { return Ok(None) };
        let tile = self.define(Op::ReadVar { var, slot }, DType::Ue8m0, shape, span)?;
        Ok(Some(Rc::new(tile)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel_abi::stored::{StoredDigit, StoredLayout};

    fn axis(extent: u32, digits: &[(u32, i64)]) -> ViewAxis {
        let digits = digits.iter().map(|&(extent, stride)| ViewDigit { extent, stride }).collect();
        ViewAxis { extent: Extent::Const(extent), digits }
    }

    fn param(dtype: DType, shape: &[u32], stored: Option<Vec<Vec<(u32, u64)>>>) -> Param {
        let digit = |(extent, stride)| StoredDigit { extent, stride };
        let axes = stored.map(|axes| {
            axes.into_iter().map(|axis| axis.into_iter().map(digit).collect()).collect()
        });
        Param {
            name: "w".to_owned(),
            access: Access::Static,
            settled: false,
            words: None,
            dtype,
            shape: shape.iter().map(|&n| Extent::Const(n)).collect(),
            stored: axes.map(|axes| StoredLayout::new(axes).unwrap()),
            scaled: None,
            of: None,
            contract: None,
            span: Span::default(),
        }
    }

    #[test]
    fn axes_fall_apart_at_the_group() {
        let (w, s) = (param(DType::E2m1, &[7, 256], None), param(DType::Ue8m0, &[7, 8], None));
        let grouped = |axis: &ViewAxis| grouped(axis, 32, &w, Some(&s));
        let row = grouped(&axis(7, &[(7, 256)])).unwrap();
        assert_eq!(row, GroupedAxis { within: 1, outer: Some(axis(7, &[(7, 8)])) });
        let whole = grouped(&axis(256, &[(256, 1)])).unwrap();
        assert_eq!(whole, GroupedAxis { within: 32, outer: Some(axis(8, &[(8, 1)])) });
        let inside = grouped(&axis(32, &[(32, 1)])).unwrap();
        assert_eq!(inside, GroupedAxis { within: 32, outer: None });
        let eights = grouped(&axis(32, &[(32, 8)])).unwrap();
        assert_eq!(eights, GroupedAxis { within: 4, outer: Some(axis(8, &[(8, 1)])) });
        let flat = grouped(&axis(7 * 256, &[(7 * 256, 1)])).unwrap();
        assert_eq!(flat, GroupedAxis { within: 32, outer: Some(axis(56, &[(56, 1)])) });
        assert_eq!(grouped(&axis(64, &[(32, 1), (2, 32)])), None);
        assert_eq!(grouped(&axis(48, &[(48, 1)])), None);
    }

    #[test]
    fn scales_follow_through_stored_layouts() {
        // blocks of 32 columns, 8 rows each; scales column by column
        let w = param(DType::E2m1, &[8, 64], Some(vec![vec![(8, 32)], vec![(32, 1), (2, 256)]]));
        let s = param(DType::Ue8m0, &[8, 2], Some(vec![vec![(8, 1)], vec![(2, 8)]]));
        let grouped = |axis: &ViewAxis| grouped(axis, 32, &w, Some(&s));
        let row = grouped(&axis(8, &[(8, 32)])).unwrap();
        assert_eq!(row, GroupedAxis { within: 1, outer: Some(axis(8, &[(8, 1)])) });
        let columns = grouped(&axis(64, &[(2, 256), (32, 1)])).unwrap();
        assert_eq!(columns, GroupedAxis { within: 32, outer: Some(axis(2, &[(2, 8)])) });
    }
}

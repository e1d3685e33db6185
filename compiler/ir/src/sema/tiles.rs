//! Operations on whole tiles: new axes, iota, splat, reductions, contractions.

use std::sync::Arc;

use kernel_abi::DType;
use kernel_dsl::ast::{Expr, ExprKind};
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::constants::{Const, ConstValue, int_range};
use super::lower::Lower;
use super::operands::{Operand, Tile, is_empty};
use super::report::Outcome;
use crate::kernel::{ContractSpec, Op, StmtKind};
use crate::ops::mma::{DEPTH, Roles};
use crate::ops::{ReduceOp, typing};

impl<'a> Lower<'a> {
    /// `iota(n)`
    pub(super) fn iota(&mut self, args: &[&'a Expr], span: Span) -> Outcome<Operand> {
        let [n] = args else { return Err(super::report::Refused) };
        let extent = self.const_extent(n, "the extent", 0, i64::from(i32::MAX))?;
        if extent == 0 {
            return Ok(Operand::Tile(Tile::empty(DType::I32, vec![0])));
        }
        Ok(Operand::Tile(self.define(Op::Iota, DType::I32, vec![extent], span)?))
    }

    /// `splat(value, extent, …)`
    pub(super) fn splat(&mut self, args: &[&'a Expr], span: Span) -> Outcome<Operand> {
        let [value, extents @ ..] = args else { return Err(super::report::Refused) };
        let operand = self.expr(value)?;
        let mut shape = Vec::with_capacity(extents.len());
        for extent in extents {
            shape.push(self.const_extent(extent, "the extent", 0, i64::from(u32::MAX))?);
        }
        let scalar = self.tile(operand, None, value.span)?;
        self.rank_zero(&scalar, "the value of `splat`", value.span)?;
        self.repeat(&scalar, shape, span).map(Operand::Tile)
    }

    /// A scalar repeated to a shape.
    pub(super) fn repeat(&mut self, scalar: &Tile, shape: Vec<u32>, span: Span) -> Outcome<Tile> {
        match scalar.id() {
            Some(x) if !shape.is_empty() && !is_empty(&shape) => {
                self.define(Op::Splat { x }, scalar.dtype, shape, span)
            }
            Some(_) if shape.is_empty() => Ok(scalar.clone()),
            Some(_) | None => Ok(Tile::empty(scalar.dtype, shape)),
        }
    }

    /// A constant repeated to a shape.
    pub(super) fn filled(
        &mut self,
        value: ConstValue,
        dtype: DType,
        shape: Vec<u32>,
        span: Span,
    ) -> Outcome<Tile> {
        if is_empty(&shape) {
            return Ok(Tile::empty(dtype, shape));
        }
        let scalar = self.materialize(Const { value, dtype: None }, Some(dtype), span)?;
        self.repeat(&scalar, shape, span)
    }

    /// The axis of a reduction.
    pub(super) fn axis(&mut self, tile: &Tile, e: &'a Expr, at: Span) -> Outcome<u8> {
        let axis = self.const_int(e, "an axis")?;
        match u8::try_from(axis) {
            Ok(axis) if usize::from(axis) < tile.shape.len() => Ok(axis),
            Ok(_) | Err(_) => Err(self.error(
                Diagnostic::error(Code::E0204, format!("there is no axis {axis}"))
                    .label(e.span, "the axis")
                    .secondary(at, format!("this is {}", tile.describe()))
                    .help("axes are numbered from 0"),
            )),
        }
    }

    /// A tile argument; constants are refused, since they have no axes.
    pub(super) fn tile_argument(&mut self, e: &'a Expr) -> Outcome<Tile> {
        let operand = self.expr(e)?;
        self.tile(operand, None, e.span)
    }

    /// `reduce.op(x, axis = k)`
    pub(super) fn reduce(
        &mut self,
        op: ReduceOp,
        args: &[&'a Expr],
        span: Span,
    ) -> Outcome<Operand> {
        let [x, axis] = args else { return Err(super::report::Refused) };
        let tile = self.tile_argument(x)?;
        let axis = self.axis(&tile, axis, x.span)?;
        let dtype = typing::reduce(op, tile.dtype)
            .map_err(|no| self.refuse(no, &[(&tile, x.span)], span))?;
        let mut shape = tile.shape.clone();
        shape.remove(usize::from(axis));
        let result = match tile.id() {
            Some(x) => self.define(Op::Reduce { op, x, axis }, dtype, shape, span)?,
            None => self.filled(identity(op, dtype), dtype, shape, span)?,
        };
        Ok(Operand::Tile(result))
    }

    /// `scan.add(x, axis = k, exclusive)`
    pub(super) fn scan(
        &mut self,
        args: &[&'a Expr],
        exclusive: bool,
        span: Span,
    ) -> Outcome<Operand> {
        let [x, axis] = args else { return Err(super::report::Refused) };
        let tile = self.tile_argument(x)?;
        let axis = self.axis(&tile, axis, x.span)?;
        let dtype =
            typing::scan(tile.dtype).map_err(|no| self.refuse(no, &[(&tile, x.span)], span))?;
        let shape = tile.shape.clone();
        Ok(Operand::Tile(match tile.id() {
            Some(x) => self.define(Op::Scan { x, axis, exclusive }, dtype, shape, span)?,
            None => Tile::empty(dtype, shape),
        }))
    }

    /// `argmax(x, axis = k)`: value and index.
    pub(super) fn argmax(&mut self, args: &[&'a Expr], span: Span) -> Outcome<Vec<Operand>> {
        let [x, axis] = args else { return Err(super::report::Refused) };
        let tile = self.tile_argument(x)?;
        let axis = self.axis(&tile, axis, x.span)?;
        let (dtype, index) =
            typing::argmax(tile.dtype).map_err(|no| self.refuse(no, &[(&tile, x.span)], span))?;
        let mut shape = tile.shape.clone();
        let along = shape.remove(usize::from(axis));
        let Some(x) = tile.id() else {
            if along == 0 && !is_empty(&shape) {
                return Err(self.error(
                    Diagnostic::error(Code::E0204, "the greatest of no elements")
                        .label(span, format!("the axis of {} has no elements", tile.describe())),
                ));
            }
            let parts = [dtype, index].map(|d| Operand::Tile(Tile::empty(d, shape.clone())));
            return Ok(parts.into());
        };
        self.fits(dtype, &shape, span)?;
        let value = self.declare_value(dtype, shape.clone(), span);
        let place = self.declare_value(index, shape.clone(), span);
        let kind = StmtKind::Def { results: vec![value, place], op: Op::Argmax { x, axis } };
        self.emit(kind, span)?;
        Ok(vec![
            Operand::Tile(Tile::new(value, dtype, shape.clone())),
            Operand::Tile(Tile::new(place, index, shape)),
        ])
    }

    /// `contract("r k, k -> r", a, b)`; `acc` starts the chain.
    pub(super) fn contract(
        &mut self,
        args: &[&'a Expr],
        acc: Option<&Tile>,
        via_mma: bool,
        span: Span,
    ) -> Outcome<Operand> {
        let [text, a, b] = args else { return Err(super::report::Refused) };
        let spec = letters(text).map_err(|wrong| self.error(wrong))?;
        self.contraction(spec, [a, b], acc, via_mma, text.span, span)
    }

    /// `dot(a, b)` = `contract("m k, n k -> m n", a, b)`
    pub(super) fn dot(
        &mut self,
        args: &[&'a Expr],
        acc: Option<&Tile>,
        via_mma: bool,
        span: Span,
    ) -> Outcome<Operand> {
        let [a, b] = args else { return Err(super::report::Refused) };
        let [m, n, k]: [Arc<str>; 3] = ["m", "n", "k"].map(Arc::from);
        let spec =
            ContractSpec { a: vec![m.clone(), k.clone()], b: vec![n.clone(), k], out: vec![m, n] };
        self.contraction(spec, [a, b], acc, via_mma, span, span)
    }

    fn contraction(
        &mut self,
        spec: ContractSpec,
        operands: [&'a Expr; 2],
        acc: Option<&Tile>,
        via_mma: bool,
        text: Span,
        span: Span,
    ) -> Outcome<Operand> {
        let [a_span, b_span] = operands.map(|e| e.span);
        let [a, b] = operands.map(|e| {
            if via_mma && self.names_memory(e) {
                self.load_operand(e)
            } else {
                self.tile_argument(e)
            }
        });
        let (a, b) = (a?, b?);
        let typing = if via_mma { typing::mma } else { typing::contract };
        let dtype = typing(a.dtype, b.dtype, acc.map(|acc| acc.dtype))
            .map_err(|no| self.refuse(no, &[(&a, a_span), (&b, b_span)], span))?;
        let mut extents: Vec<(&Arc<str>, u32, Span)> = Vec::new();
        for (tile, names, at) in [(&a, &spec.a, a_span), (&b, &spec.b, b_span)] {
            if tile.shape.len() != names.len() {
                return Err(self.error(
                    Diagnostic::error(
                        Code::E0216,
                        format!("{} letters for {}", names.len(), tile.describe()),
                    )
                    .label(at, format!("{} axes", tile.shape.len()))
                    .secondary(text, "the letters"),
                ));
            }
            for (name, &extent) in names.iter().zip(&tile.shape) {
                match extents.iter().find(|(known, _, _)| *known == name) {
                    Some(&(_, known, first)) if known != extent => {
                        return Err(self.error(
                            Diagnostic::error(
                                Code::E0216,
                                format!(
                                    "the letter `{name}` has two extents, {known} and {extent}"
                                ),
                            )
                            .label(at, format!("`{name}` is {extent} here"))
                            .secondary(first, format!("and {known} here")),
                        ));
                    }
                    Some(_) => {}
                    None => extents.push((name, extent, at)),
                }
            }
        }
        let extent = |name| extents.iter().find(|(known, _, _)| *known == name).map(|e| e.1);
        let shape: Vec<u32> = spec.out.iter().filter_map(extent).collect();
        if let Some(acc) = acc
            && acc.shape != shape
        {
            let found = super::operands::describe(dtype, &shape);
            return Err(self.error(
                Diagnostic::error(
                    Code::E0204,
                    format!("{found} cannot be added to {}", acc.describe()),
                )
                .label(span, format!("this is {found}"))
                .help("the letters right of `->` are the axes of the tile that is added to"),
            ));
        }
        if via_mma {
            let extents: Vec<(Arc<str>, u32)> =
                extents.iter().map(|(name, extent, _)| ((*name).clone(), *extent)).collect();
            atom_letters(&spec, &extents, text, span).map_err(|wrong| self.error(wrong))?;
        }
        let result = match (a.id(), b.id()) {
            (Some(a), Some(b)) => {
                let acc = acc.and_then(Tile::id);
                let op = if via_mma {
                    Op::Mma { spec, a, b, acc }
                } else {
                    Op::Contract { spec, a, b, acc }
                };
                self.define(op, dtype, shape, span)?
            }
            (_, _) => match acc {
                Some(acc) => acc.clone(),
                None => self.filled(ConstValue::Float(0.0), dtype, shape, span)?,
            },
        };
        Ok(Operand::Tile(result))
    }

    /// `relayout(x)`
    pub(super) fn relayout(&mut self, args: &[&'a Expr], span: Span) -> Outcome<Operand> {
        let [x] = args else { return Err(super::report::Refused) };
        let tile = self.tile_argument(x)?;
        let result = match tile.id() {
            Some(_) if tile.dtype == DType::E2m1 => {
                return Err(self.not_built(span, "`relayout` of e2m1"));
            }
            Some(x) if !tile.is_scalar() => {
                self.define(Op::Relayout { x }, tile.dtype, tile.shape.clone(), span)?
            }
            Some(_) | None => tile,
        };
        Ok(Operand::Tile(result))
    }
}

/// Every letter has its place in the atom, and k is whole atoms deep.
fn atom_letters(
    spec: &ContractSpec,
    extents: &[(Arc<str>, u32)],
    text: Span,
    span: Span,
) -> Result<(), Diagnostic> {
    let wrong = |reason: String| {
        Diagnostic::error(Code::E0216, "letters that the tensor core does not take")
            .label(text, reason)
            .help("m stands left and in the result, n right and in the result, k in both operands")
    };
    let roles = Roles::of(spec).map_err(|letter| {
        wrong(format!("`{letter}` stands in one operand and not in the result"))
    })?;
    if roles.k.is_empty() {
        return Err(wrong("no letter is contracted".to_owned()));
    }
    let extent = |letter: &Arc<str>| extents.iter().find(|(l, _)| l == letter).map_or(0, |e| e.1);
    if roles.k.iter().any(|l| extent(l).is_multiple_of(DEPTH as u32)) {
        return Ok(());
    }
    let found: Vec<String> = roles.k.iter().map(|l| format!("`{l}` = {}", extent(l))).collect();
    Err(Diagnostic::error(Code::E0204, "a contraction that is not whole atoms deep")
        .label(span, format!("contracted: {}", found.join(", ")))
        .note("an atom takes 16 positions of k; m and n are padded, k never is")
        .help("make one contracted extent a multiple of 16"))
}

/// What a fold of no elements gives.
fn identity(op: ReduceOp, dtype: DType) -> ConstValue {
    match (op, int_range(dtype)) {
        (ReduceOp::Add, None) => ConstValue::Float(0.0),
        (ReduceOp::Max, None) => ConstValue::Float(f64::NEG_INFINITY),
        (ReduceOp::Min, None) => ConstValue::Float(f64::INFINITY),
        (ReduceOp::Add, Some(_)) => ConstValue::Int(0),
        (ReduceOp::Max, Some((least, _))) => {
            ConstValue::Int(i64::try_from(least).unwrap_or(i64::MIN))
        }
        (ReduceOp::Min, Some((_, greatest))) => {
            ConstValue::Int(i64::try_from(greatest).unwrap_or(i64::MAX))
        }
    }
}

/// The letters of a contraction: `"r j k, j k -> r j"`.
pub(super) fn letters(e: &Expr) -> Result<ContractSpec, Diagnostic> {
    let wrong = |reason: String| {
        Diagnostic::error(Code::E0216, "letters that do not fit")
            .label(e.span, reason)
            .help("write one letter an axis: `contract(\"r k, k -> r\", a, b)`")
    };
    let ExprKind::Str(text) = &e.kind else {
        return Err(wrong("a text with the letters goes here".to_owned()));
    };
    let Some((operands, out)) = text.split_once("->") else {
        return Err(wrong("there is no `->`".to_owned()));
    };
    let Some((a, b)) = operands.split_once(',') else {
        return Err(wrong("two operands are apart by a comma".to_owned()));
    };
    let mut sides = Vec::with_capacity(3);
    for side in [a, b, out] {
        let mut names: Vec<Arc<str>> = Vec::new();
        for name in side.split_whitespace() {
            let is_letter = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                && name.starts_with(|c: char| c.is_ascii_alphabetic());
            if !is_letter {
                return Err(wrong(format!("`{name}` is no letter")));
            }
            if names.iter().any(|known| &**known == name) {
                return Err(wrong(format!("the letter `{name}` names two axes of one operand")));
            }
            names.push(Arc::from(name));
        }
        sides.push(names);
    }
    let [a, b, out]: [Vec<Arc<str>>; 3] = sides.try_into().expect("three sides were read");
    if let Some(lost) = out.iter().find(|name| !a.contains(name) && !b.contains(name)) {
        return Err(wrong(format!("the letter `{lost}` of the result stands in no operand")));
    }
    Ok(ContractSpec { a, b, out })
}

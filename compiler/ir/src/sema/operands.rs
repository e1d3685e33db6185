//! Values while a kernel is written out: constants and tiles, and how constants become tiles.

use std::rc::Rc;

use kernel_abi::DType;
use kernel_dsl::ast::Expr;
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::constants::{self, Const, ConstValue, FoldError};
use super::lower::{Lower, Shared};
use super::report::Outcome;
use crate::kernel::{Literal, ValueId};

/// A constant or a value of the IR.
#[derive(Debug, Clone)]
pub(super) enum Operand {
    Const(Const),
    Tile(Tile),
}

impl Operand {
    /// What messages call its type: `f32[8, 4]`, `int`.
    pub(super) fn describe(&self) -> String {
        match self {
            Operand::Const(c) => format!("the constant {} ({})", c.value, c.type_name()),
            Operand::Tile(tile) => tile.describe(),
        }
    }
}

/// A scalar or a tile. What has no elements has no value either: statements on it disappear.
#[derive(Debug, Clone)]
pub(super) struct Tile {
    id: Option<ValueId>,
    pub(super) dtype: DType,
    pub(super) shape: Vec<u32>,
    /// What is read as `x.scale`.
    pub(super) scale: Option<Rc<Tile>>,
}

impl Tile {
    pub(super) fn new(id: ValueId, dtype: DType, shape: Vec<u32>) -> Tile {
        Tile { id: Some(id), dtype, shape, scale: None }
    }

    /// A tile of a shape with an extent of 0.
    pub(super) fn empty(dtype: DType, shape: Vec<u32>) -> Tile {
        Tile { id: None, dtype, shape, scale: None }
    }

    /// The value; `None` for a tile without elements.
    pub(super) fn id(&self) -> Option<ValueId> {
        self.id
    }

    pub(super) fn is_scalar(&self) -> bool {
        self.shape.is_empty()
    }

    pub(super) fn describe(&self) -> String {
        describe(self.dtype, &self.shape)
    }
}

/// A type as the language writes it.
pub(super) fn describe(dtype: DType, shape: &[u32]) -> String {
    if shape.is_empty() {
        return dtype.name().to_owned();
    }
    let extents: Vec<String> = shape.iter().map(u32::to_string).collect();
    format!("{dtype}[{}]", extents.join(", "))
}

/// Whether a shape has no elements.
pub(super) fn is_empty(shape: &[u32]) -> bool {
    shape.contains(&0)
}

impl<'a> Lower<'a> {
    /// Turns a refused constant operation into a finding.
    pub(super) fn fold_error(&mut self, error: FoldError, span: Span) -> super::report::Refused {
        match error {
            FoldError::NoValue(reason) => self.error(
                Diagnostic::error(Code::E0214, "this constant has no value").label(span, reason),
            ),
            FoldError::Types(reason) => {
                let diagnostic = Diagnostic::error(Code::E0203, "types that do not agree")
                    .label(span, reason)
                    .help("conversions are always written: `f32(x)`, `i32(x)`; a float literal has a point: `2.0`");
                self.error(diagnostic)
            }
            FoldError::NotFolded => self.error(
                Diagnostic::error(Code::E0205, "this is no constant")
                    .label(span, "arithmetic in a narrow float type happens at run time"),
            ),
        }
    }

    /// A constant as a scalar of `dtype`, or of its own type.
    pub(super) fn materialize(
        &mut self,
        c: Const,
        dtype: Option<DType>,
        span: Span,
    ) -> Outcome<Tile> {
        let dtype = dtype.unwrap_or(c.natural_dtype());
        let c = constants::adapt(c, dtype).map_err(|e| self.fold_error(e, span))?;
        let literal = match c.value {
            ConstValue::Int(v) => Literal::Int(v),
            ConstValue::Float(v) => Literal::Float(v),
            ConstValue::Bool(v) => Literal::Bool(v),
        };
        let id = self.shared(Shared::Const(literal), dtype, span)?;
        self.set_residue(id, c.value);
        Ok(Tile::new(id, dtype, Vec::new()))
    }

    /// The operand as a tile; a constant takes `dtype`, or its own type.
    pub(super) fn tile(
        &mut self,
        operand: Operand,
        dtype: Option<DType>,
        span: Span,
    ) -> Outcome<Tile> {
        match operand {
            Operand::Const(c) => self.materialize(c, dtype, span),
            Operand::Tile(tile) => Ok(tile),
        }
    }

    /// A constant expression.
    pub(super) fn constant(&mut self, e: &'a Expr) -> Outcome<Const> {
        match self.expr(e)? {
            Operand::Const(c) => Ok(c),
            Operand::Tile(tile) => Err(self.error(
                Diagnostic::error(Code::E0205, "a constant is needed here")
                    .label(e.span, format!("{} is known at run time only", tile.describe())),
            )),
        }
    }

    /// A constant integer; `what` it is, for messages.
    pub(super) fn const_int(&mut self, e: &'a Expr, what: &str) -> Outcome<i64> {
        match self.constant(e)? {
            Const { value: ConstValue::Int(v), .. } => Ok(v),
            other => Err(self.error(
                Diagnostic::error(Code::E0203, format!("{what} is an integer"))
                    .label(e.span, format!("this is {}", other.type_name())),
            )),
        }
    }

    /// A constant integer within bounds, as `u32`.
    pub(super) fn const_extent(
        &mut self,
        e: &'a Expr,
        what: &str,
        least: i64,
        most: i64,
    ) -> Outcome<u32> {
        let value = self.const_int(e, what)?;
        if value < least || value > most {
            let code = if value < least { Code::E0214 } else { Code::E0219 };
            let limit =
                if value < least { format!("at least {least}") } else { format!("at most {most}") };
            return Err(self.error(
                Diagnostic::error(code, format!("{what} is {value}, it must be {limit}"))
                    .label(e.span, format!("this is {value}")),
            ));
        }
        u32::try_from(value).map_err(|_| {
            self.error(
                Diagnostic::error(Code::E0219, format!("{what} is {value}"))
                    .label(e.span, "too large"),
            )
        })
    }

    /// A scalar of a given type; constants take it.
    pub(super) fn scalar(
        &mut self,
        operand: Operand,
        dtype: DType,
        what: &str,
        span: Span,
    ) -> Outcome<ValueId> {
        let tile = self.tile(operand, Some(dtype), span)?;
        self.rank_zero(&tile, what, span)?;
        if tile.dtype != dtype {
            return Err(self.error(
                Diagnostic::error(Code::E0203, format!("{what} is of type {dtype}"))
                    .label(span, format!("this is {}", tile.dtype))
                    .help(format!("write `{dtype}(…)`")),
            ));
        }
        Ok(tile.id().expect("rank 0 has one element"))
    }

    /// Refuses tiles where a scalar is needed.
    pub(super) fn rank_zero(&mut self, tile: &Tile, what: &str, span: Span) -> Outcome<()> {
        if tile.is_scalar() {
            return Ok(());
        }
        Err(self.error(
            Diagnostic::error(Code::E0207, format!("{what} is a scalar"))
                .label(span, format!("this is {}", tile.describe()))
                .help(
                    "control flow is uniform; choose per element with `select`, or reduce the tile",
                ),
        ))
    }
}

//! Element-wise operations: constants are folded, constants that meet a tile take its type, shapes
//! broadcast as numpy does.

use kernel_abi::DType;
use kernel_dsl::ast;
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::constants::{self, FoldError};
use super::lower::Lower;
use super::operands::{Operand, Tile, is_empty};
use super::report::Outcome;
use crate::kernel::{Op, ValueId};
use crate::ops::typing::{self, Refusal, RefusalKind};
use crate::ops::{BinaryOp, CompareOp, UnaryOp};

/// An operand and where it stands.
pub(super) type Placed = (Operand, Span);

/// What an infix operator does with tiles.
enum Infix {
    Binary(BinaryOp),
    Compare(CompareOp),
    /// `&&` and `||`: truth values of rank 0.
    Logic(BinaryOp),
}

fn infix(op: ast::BinaryOp) -> Infix {
    match op {
        ast::BinaryOp::Or => Infix::Logic(BinaryOp::Or),
        ast::BinaryOp::And => Infix::Logic(BinaryOp::And),
        ast::BinaryOp::Eq => Infix::Compare(CompareOp::Eq),
        ast::BinaryOp::Ne => Infix::Compare(CompareOp::Ne),
        ast::BinaryOp::Lt => Infix::Compare(CompareOp::Lt),
        ast::BinaryOp::Le => Infix::Compare(CompareOp::Le),
        ast::BinaryOp::Gt => Infix::Compare(CompareOp::Gt),
        ast::BinaryOp::Ge => Infix::Compare(CompareOp::Ge),
        ast::BinaryOp::BitOr => Infix::Binary(BinaryOp::Or),
        ast::BinaryOp::BitXor => Infix::Binary(BinaryOp::Xor),
        ast::BinaryOp::BitAnd => Infix::Binary(BinaryOp::And),
        ast::BinaryOp::Shl => Infix::Binary(BinaryOp::Shl),
        ast::BinaryOp::Shr => Infix::Binary(BinaryOp::Shr),
        ast::BinaryOp::Add => Infix::Binary(BinaryOp::Add),
        ast::BinaryOp::Sub => Infix::Binary(BinaryOp::Sub),
        ast::BinaryOp::Mul => Infix::Binary(BinaryOp::Mul),
        ast::BinaryOp::Div => Infix::Binary(BinaryOp::Div),
        ast::BinaryOp::Rem => Infix::Binary(BinaryOp::Rem),
    }
}

impl Lower<'_> {
    /// `op x`
    pub(super) fn prefix(
        &mut self,
        op: ast::UnaryOp,
        (x, at): Placed,
        span: Span,
    ) -> Outcome<Operand> {
        if let Operand::Const(c) = x {
            match constants::unary(op, c) {
                Ok(c) => return Ok(Operand::Const(c)),
                Err(FoldError::NotFolded) => {}
                Err(other) => return Err(self.fold_error(other, span)),
            }
        }
        let tile = self.tile(x, None, at)?;
        let op = match op {
            ast::UnaryOp::Neg => UnaryOp::Neg,
            ast::UnaryOp::Not | ast::UnaryOp::BitNot => {
                let (right, other) =
                    if op == ast::UnaryOp::Not { (DType::Bool, "~") } else { (DType::I32, "!") };
                if (tile.dtype == DType::Bool) != (right == DType::Bool) {
                    return Err(self.error(
                        Diagnostic::error(
                            Code::E0203,
                            format!("`{}` does not take {}", op.symbol(), tile.dtype),
                        )
                        .label(at, format!("this is {}", tile.describe()))
                        .help(format!("write `{other}`")),
                    ));
                }
                UnaryOp::Not
            }
        };
        self.unary(op, tile, at, span)
    }

    /// An operation on one operand.
    pub(super) fn unary(&mut self, op: UnaryOp, x: Tile, at: Span, span: Span) -> Outcome<Operand> {
        let dtype = typing::unary(op, x.dtype).map_err(|no| self.refuse(no, &[(&x, at)], at))?;
        self.elementwise(dtype, x.shape.clone(), &[&x], span, |ids| Op::Unary { op, x: ids[0] })
    }

    /// `a op b`
    pub(super) fn infix(
        &mut self,
        op: ast::BinaryOp,
        a: Placed,
        b: Placed,
        span: Span,
    ) -> Outcome<Operand> {
        if let (Operand::Const(x), Operand::Const(y)) = (&a.0, &b.0) {
            match constants::binary(op, *x, *y) {
                Ok(c) => return Ok(Operand::Const(c)),
                Err(FoldError::NotFolded) => {}
                Err(other) => return Err(self.fold_error(other, span)),
            }
        }
        match infix(op) {
            Infix::Binary(op) => self.binary(op, a, b, span),
            Infix::Compare(op) => self.compare(op, a, b, span),
            Infix::Logic(binary) => {
                let (at, bt) = (a.1, b.1);
                let (x, y) = self.pair(a, b)?;
                for (tile, at) in [(&x, at), (&y, bt)] {
                    if tile.dtype != DType::Bool {
                        return Err(self.error(
                            Diagnostic::error(
                                Code::E0203,
                                format!("`{}` takes bool, not {}", op.symbol(), tile.dtype),
                            )
                            .label(at, format!("this is {}", tile.describe()))
                            .help("compare: `x != 0`"),
                        ));
                    }
                    if !tile.is_scalar() {
                        return Err(self.error(
                            Diagnostic::error(
                                Code::E0207,
                                format!("`{}` takes scalars", op.symbol()),
                            )
                            .label(at, format!("this is {}", tile.describe()))
                            .help(format!("write `{}` for tiles", &op.symbol()[..1])),
                        ));
                    }
                }
                self.join(DType::Bool, &x, &y, span, |a, b| Op::Binary { op: binary, a, b })
            }
        }
    }

    /// An operation on two operands of one type.
    pub(super) fn binary(
        &mut self,
        op: BinaryOp,
        a: Placed,
        b: Placed,
        span: Span,
    ) -> Outcome<Operand> {
        let (at, bt) = (a.1, b.1);
        let (x, y) = self.pair(a, b)?;
        let dtype = typing::binary(op, x.dtype, y.dtype)
            .map_err(|no| self.refuse(no, &[(&x, at), (&y, bt)], span))?;
        let result = self.join(dtype, &x, &y, span, |a, b| Op::Binary { op, a, b })?;
        if let (Operand::Tile(tile), Some(x), Some(y)) = (&result, x.id(), y.id())
            && let Some(id) = tile.id()
            && tile.is_scalar()
        {
            self.combine_congruence(op, id, x, y);
        }
        Ok(result)
    }

    fn compare(&mut self, op: CompareOp, a: Placed, b: Placed, span: Span) -> Outcome<Operand> {
        let (at, bt) = (a.1, b.1);
        let (x, y) = self.pair(a, b)?;
        let dtype = typing::compare(op, x.dtype, y.dtype)
            .map_err(|no| self.refuse(no, &[(&x, at), (&y, bt)], span))?;
        self.join(dtype, &x, &y, span, |a, b| Op::Compare { op, a, b })
    }

    /// `min(a, b)` or `max(a, b)`.
    pub(super) fn extreme(
        &mut self,
        greatest: bool,
        a: Placed,
        b: Placed,
        span: Span,
    ) -> Outcome<Operand> {
        if let (Operand::Const(x), Operand::Const(y)) = (&a.0, &b.0) {
            let folded = constants::extreme(greatest, *x, *y);
            return folded.map(Operand::Const).map_err(|e| self.fold_error(e, span));
        }
        self.binary(if greatest { BinaryOp::Max } else { BinaryOp::Min }, a, b, span)
    }

    /// `ceil_div(a, b)` = (a + (b - 1)) / b for a scalar or tile a that is not negative and a constant b.
    pub(super) fn ceil_div(&mut self, a: Placed, b: Placed, span: Span) -> Outcome<Operand> {
        let Operand::Const(divisor) = b.0 else {
            return Err(self.error(
                Diagnostic::error(Code::E0205, "`ceil_div` divides by a constant")
                    .label(b.1, format!("this is {}", b.0.describe())),
            ));
        };
        let a = match a {
            (Operand::Const(x), _) => {
                let folded = constants::ceil_div(x, divisor);
                return folded.map(Operand::Const).map_err(|e| self.fold_error(e, span));
            }
            (Operand::Tile(tile), at) => (Operand::Tile(tile), at),
        };
        // a valid divisor has a value; the fold says what is wrong with any other
        let one = constants::ceil_div(divisor, divisor).map_err(|e| self.fold_error(e, b.1))?;
        let less = constants::binary(ast::BinaryOp::Sub, divisor, one)
            .map_err(|e| self.fold_error(e, b.1))?;
        let sum = self.binary(BinaryOp::Add, a, (Operand::Const(less), b.1), span)?;
        self.binary(BinaryOp::Div, (sum, span), b, span)
    }

    /// `fma(a, b, c)`
    pub(super) fn fma(&mut self, [a, b, c]: [Placed; 3], span: Span) -> Outcome<Operand> {
        let spans = [a.1, b.1, c.1];
        let mut tiles = Vec::with_capacity(3);
        for (operand, at) in [a, b, c] {
            tiles.push(self.tile(operand, Some(DType::F32), at)?);
        }
        let placed: Vec<(&Tile, Span)> = tiles.iter().zip(spans).collect();
        typing::fma(tiles[0].dtype, tiles[1].dtype, tiles[2].dtype)
            .map_err(|no| self.refuse(no, &placed, span))?;
        let shape = self.broadcast(&tiles.iter().collect::<Vec<_>>(), span)?;
        let operands: Vec<&Tile> = tiles.iter().collect();
        self.elementwise(DType::F32, shape, &operands, span, |ids| Op::Fma {
            a: ids[0],
            b: ids[1],
            c: ids[2],
        })
    }

    /// `select(cond, a, b)`, and `cond ? a : b` on scalars.
    pub(super) fn select(&mut self, [c, a, b]: [Placed; 3], span: Span) -> Outcome<Operand> {
        let cond = self.tile(c.0, Some(DType::Bool), c.1)?;
        let (at, bt) = (a.1, b.1);
        let (x, y) = self.pair(a, b)?;
        typing::select(cond.dtype, x.dtype, y.dtype)
            .map_err(|no| self.refuse(no, &[(&cond, c.1), (&x, at), (&y, bt)], span))?;
        let shape = self.broadcast(&[&cond, &x, &y], span)?;
        self.elementwise(x.dtype, shape, &[&cond, &x, &y], span, |ids| Op::Select {
            cond: ids[0],
            a: ids[1],
            b: ids[2],
        })
    }

    /// `dtype(x)`
    pub(super) fn convert(
        &mut self,
        dtype: DType,
        (x, at): Placed,
        span: Span,
    ) -> Outcome<Operand> {
        let tile = match x {
            Operand::Const(c) => match constants::convert(c, dtype) {
                Ok(c) => return Ok(Operand::Const(c)),
                Err(FoldError::NotFolded) => self.materialize(c, None, at)?,
                Err(other) => return Err(self.fold_error(other, span)),
            },
            Operand::Tile(tile) => tile,
        };
        typing::convert(tile.dtype, dtype).map_err(|no| self.refuse(no, &[(&tile, at)], span))?;
        if tile.dtype == dtype {
            return Ok(Operand::Tile(tile));
        }
        self.elementwise(dtype, tile.shape.clone(), &[&tile], span, |ids| Op::Convert { x: ids[0] })
    }

    /// Both operands as tiles; a constant without a type takes that of the other operand.
    fn pair(&mut self, a: Placed, b: Placed) -> Outcome<(Tile, Tile)> {
        let wanted = |operand: &Operand| match operand {
            Operand::Const(c) => c.dtype,
            Operand::Tile(tile) => Some(tile.dtype),
        };
        let (from_a, from_b) = (wanted(&a.0), wanted(&b.0));
        let x = self.tile(a.0, from_a.or(from_b), a.1)?;
        let y = self.tile(b.0, from_b.or(from_a), b.1)?;
        Ok((x, y))
    }

    fn join(
        &mut self,
        dtype: DType,
        x: &Tile,
        y: &Tile,
        span: Span,
        op: impl FnOnce(ValueId, ValueId) -> Op,
    ) -> Outcome<Operand> {
        let shape = self.broadcast(&[x, y], span)?;
        self.elementwise(dtype, shape, &[x, y], span, |ids| op(ids[0], ids[1]))
    }

    /// Emits an operation whose result has the broadcast shape.
    pub(super) fn elementwise(
        &mut self,
        dtype: DType,
        shape: Vec<u32>,
        operands: &[&Tile],
        span: Span,
        op: impl FnOnce(&[ValueId]) -> Op,
    ) -> Outcome<Operand> {
        if is_empty(&shape) {
            return Ok(Operand::Tile(Tile::empty(dtype, shape)));
        }
        let ids: Vec<ValueId> = operands.iter().filter_map(|tile| tile.id()).collect();
        Ok(Operand::Tile(self.define(op(&ids), dtype, shape, span)?))
    }

    /// The common shape of operands: aligned at the last axis, an extent of 1 is repeated.
    pub(super) fn broadcast(&mut self, tiles: &[&Tile], span: Span) -> Outcome<Vec<u32>> {
        let rank = tiles.iter().map(|tile| tile.shape.len()).max().unwrap_or(0);
        let mut shape = vec![1_u32; rank];
        for tile in tiles {
            let offset = rank - tile.shape.len();
            for (axis, &extent) in tile.shape.iter().enumerate() {
                let common = &mut shape[offset + axis];
                if *common == extent || extent == 1 {
                    continue;
                }
                if *common != 1 {
                    let shown: Vec<String> = tiles.iter().map(|tile| tile.describe()).collect();
                    return Err(self.error(
                        Diagnostic::error(
                            Code::E0204,
                            format!("shapes that do not agree: {}", shown.join(" and ")),
                        )
                        .label(span, format!("{common} positions meet {extent}"))
                        .help("axes are matched from the last one; `x[:, _]` adds an axis of 1"),
                    ));
                }
                *common = extent;
            }
        }
        Ok(shape)
    }

    /// The finding for operands that an operation does not take.
    pub(super) fn refuse(
        &mut self,
        refusal: Refusal,
        operands: &[(&Tile, Span)],
        span: Span,
    ) -> super::report::Refused {
        if refusal.kind == RefusalKind::NotBuilt {
            return self.not_built(span, &refusal.reason);
        }
        let mut diagnostic = Diagnostic::error(Code::E0203, refusal.reason);
        diagnostic = match operands {
            [(tile, at)] => diagnostic.label(*at, format!("this is {}", tile.describe())),
            _ => diagnostic.label(span, "types that do not agree"),
        };
        if operands.len() > 1 {
            for (tile, at) in operands {
                diagnostic = diagnostic.secondary(*at, tile.describe());
            }
        }
        if let Some(help) = refusal.help {
            diagnostic = diagnostic.help(help);
        }
        self.error(diagnostic)
    }

    /// What is known of a sum, difference or product of integer scalars.
    fn combine_congruence(&mut self, op: BinaryOp, result: ValueId, x: ValueId, y: ValueId) {
        let ((mx, rx), (my, ry)) = (self.congruence(x), self.congruence(y));
        let combined = match op {
            BinaryOp::Add => rx.checked_add(ry).map(|r| (gcd(mx, my), r)),
            BinaryOp::Sub => rx.checked_sub(ry).map(|r| (gcd(mx, my), r)),
            BinaryOp::Mul => product((mx, rx), (my, ry)),
            BinaryOp::Div
            | BinaryOp::Rem
            | BinaryOp::Min
            | BinaryOp::Max
            | BinaryOp::And
            | BinaryOp::Or
            | BinaryOp::Xor
            | BinaryOp::Shl
            | BinaryOp::Shr => None,
        };
        if let Some((modulus, residue)) = combined {
            let residue = if modulus == 0 { residue } else { residue.rem_euclid(modulus) };
            self.set_congruence(result, modulus, residue);
        }
    }
}

/// (x mod mx) · (y mod my) as a congruence.
fn product((mx, rx): (i64, i64), (my, ry): (i64, i64)) -> Option<(i64, i64)> {
    let modulus = gcd(gcd(mx.checked_mul(my)?, mx.checked_mul(ry)?), my.checked_mul(rx)?);
    Some((modulus, rx.checked_mul(ry)?))
}

/// The greatest common divisor; 0 divides nothing but 0.
pub(super) fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.saturating_abs(), b.saturating_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

//! Expressions: names, operators, choices of constants.

use kernel_dsl::ast::{ArchPattern, ArchValue, BinaryOp, Expr, ExprKind, InstanceKind, Ref};
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use kernel_abi::DType;

use super::constants::{Const, ConstValue};
use super::lower::{Lower, Shared};
use super::mistakes::{atom_as_value, buffer_as_value, ring_without_slot, slot_without_ring};
use super::not_built;
use super::operands::{Operand, Tile};
use super::report::{Outcome, Refused};
use super::scope::{Entity, Frag};
use crate::kernel::{ClusterAxis, Op};

impl<'a> Lower<'a> {
    /// The value of an expression.
    pub(super) fn expr(&mut self, e: &'a Expr) -> Outcome<Operand> {
        self.nested(e.span, |s| s.expr_kind(e))
    }

    fn expr_kind(&mut self, e: &'a Expr) -> Outcome<Operand> {
        if let Some(what) = not_built::expression(&e.kind) {
            return Err(self.not_built(e.span, what));
        }
        match &e.kind {
            ExprKind::Int(literal) => {
                let value = i64::try_from(literal.value).map_err(|_| {
                    self.error(
                        Diagnostic::error(Code::E0214, "this constant has no value")
                            .label(e.span, "constants are signed 64-bit integers"),
                    )
                })?;
                Ok(Operand::Const(Const::int(value)))
            }
            ExprKind::Float(literal) => Ok(Operand::Const(Const::float(literal.value))),
            ExprKind::Inf => Ok(Operand::Const(Const::float(f64::INFINITY))),
            ExprKind::Bool(value) => Ok(Operand::Const(Const::bool(*value))),
            ExprKind::Ref(reference) => self.reference(reference, e.span),
            ExprKind::Index(base, indices) => self.piece(base, indices, e.span),
            ExprKind::Call(call) => self.call(call, e.span),
            ExprKind::Unary(op, x) => {
                let operand = self.expr(x)?;
                self.prefix(*op, (operand, x.span), e.span)
            }
            ExprKind::Binary(..) => self.chain(e),
            ExprKind::Conditional(cond, a, b) => self.conditional(cond, a, b, e.span),
            ExprKind::Load(load) => self.load_value(load, e.span),
            ExprKind::MatchArch(arms) => {
                let value = self.arch_value(arms, e.span)?;
                self.expr(value)
            }
            ExprKind::Str(_) | ExprKind::Tuple(_) | ExprKind::Range(_) => Err(self.error(
                Diagnostic::error(Code::E0206, "one value is needed here")
                    .label(e.span, "this is no value"),
            )),
            ExprKind::Field(base, _) => {
                let value = self.expr(base)?;
                self.scale_part(value, base.span, e.span)
            }
            ExprKind::Each
            | ExprKind::Transpose(_)
            | ExprKind::ArriveLast(_)
            | ExprKind::Spread(_)
            | ExprKind::Layout(..) => Err(Refused),
        }
    }

    /// A left-deep chain `a + b + c + …`, without nesting.
    fn chain(&mut self, e: &'a Expr) -> Outcome<Operand> {
        let mut at = e;
        let mut pending: Vec<(BinaryOp, &'a Expr, Span)> = Vec::new();
        while let ExprKind::Binary(op, a, b) = &at.kind {
            pending.push((*op, b, at.span));
            at = a;
        }
        let mut left = self.expr(at);
        let mut left_span = at.span;
        for (op, b, span) in pending.into_iter().rev() {
            // the right side of a decided `&&` or `||` is not looked at
            if let (Ok(Operand::Const(c)), BinaryOp::And | BinaryOp::Or) = (&left, op)
                && c.value == ConstValue::Bool(op == BinaryOp::Or)
            {
                left_span = span;
                continue;
            }
            let right = self.expr(b);
            left = match (left, right) {
                (Ok(a), Ok(c)) => self.infix(op, (a, left_span), (c, b.span), span),
                (Err(Refused), _) | (_, Err(Refused)) => Err(Refused),
            };
            left_span = span;
        }
        left
    }

    fn conditional(
        &mut self,
        cond: &'a Expr,
        a: &'a Expr,
        b: &'a Expr,
        span: Span,
    ) -> Outcome<Operand> {
        let c = self.expr(cond)?;
        if let Operand::Const(c) = c {
            return match c.value {
                ConstValue::Bool(true) => self.expr(a),
                ConstValue::Bool(false) => self.expr(b),
                ConstValue::Int(_) | ConstValue::Float(_) => Err(self.error(
                    Diagnostic::error(Code::E0203, "a condition is of type bool")
                        .label(cond.span, format!("this is {}", c.type_name())),
                )),
            };
        }
        let c = self.tile(c, None, cond.span)?;
        self.rank_zero(&c, "the condition of `? :`", cond.span)?;
        let (x, y) = (self.expr(a)?, self.expr(b)?);
        for (operand, at) in [(&x, a.span), (&y, b.span)] {
            if let Operand::Tile(tile) = operand {
                self.rank_zero(tile, "a side of `? :`", at)?;
            }
        }
        self.select([(Operand::Tile(c), cond.span), (x, a.span), (y, b.span)], span)
    }

    /// The arm of the target.
    fn arch_value(&mut self, arms: &'a [ArchValue], span: Span) -> Outcome<&'a Expr> {
        let taken = arms.iter().find(|arm| self.is_for_target(&arm.pattern));
        taken.map(|arm| &arm.value).ok_or_else(|| self.no_arm(span))
    }

    pub(super) fn is_for_target(&self, pattern: &ArchPattern) -> bool {
        match pattern {
            ArchPattern::Targets(names) => names.iter().any(|n| n.text == self.target.name()),
            ArchPattern::Any(_) => true,
        }
    }

    pub(super) fn no_arm(&mut self, span: Span) -> Refused {
        let target = self.target;
        self.error(
            Diagnostic::error(Code::E0502, format!("no arm for {target}"))
                .label(span, format!("this `match arch` says nothing for {target}"))
                .help(format!("add an arm `{target} => …` or `_ => …`")),
        )
    }

    fn reference(&mut self, reference: &'a Ref, span: Span) -> Outcome<Operand> {
        let Some(name) = reference.path.single() else { return self.dotted(reference) };
        let Some(named) = self.frame.lookup(&name.text) else {
            let value = self.file_constant(&name.text);
            if value.is_none()
                && let Some(value) = self.rank_name(&name.text, span)
            {
                return value;
            }
            return match (value, not_built::path(&name.text)) {
                (Some(value), _) => value.map(Operand::Const),
                (None, Some(what)) => Err(self.not_built(span, what)),
                (None, None) => Err(self.unknown(&name.text, name.span)),
            };
        };
        let defined = named.span;
        self.own_tile(&name.text, span)?;
        let Some(named) = self.frame.lookup(&name.text) else { return Err(Refused) };
        if let Some(at) = reference.at.first()
            && !matches!(named.entity, Entity::Frag(_) | Entity::Refused)
        {
            return Err(self.error(slot_without_ring(&name.text, at.span, defined)));
        }
        match named.entity.clone() {
            Entity::Const(c) => Ok(Operand::Const(c)),
            Entity::Tile(tile) => Ok(Operand::Tile(tile)),
            Entity::Frag(frag) => {
                let slot = self.slot(&frag, reference, defined)?;
                self.read(&frag, slot, span).map(Operand::Tile)
            }
            Entity::Buffer(_) => Err(self.error(buffer_as_value(&name.text, span, defined))),
            Entity::Range(_) => Err(self.error(
                Diagnostic::error(Code::E0206, format!("`{}` is a range, not a value", name.text))
                    .label(span, "ranges stand in index lists")
                    .secondary(defined, "defined here"),
            )),
            Entity::Atom(_) => Err(self.error(atom_as_value(&name.text, span, defined))),
            Entity::Refused => Err(Refused),
        }
    }

    fn dotted(&mut self, reference: &'a Ref) -> Outcome<Operand> {
        let path = &reference.path;
        if let [first, part] = path.segments.as_slice()
            && part.text == not_built::SCALE
            && let Some(named) = self.frame.lookup(&first.text)
        {
            let named = named.clone();
            self.own_tile(&first.text, path.span)?;
            let value = match named.entity.clone() {
                Entity::Tile(tile) => tile,
                Entity::Frag(frag) => {
                    let slot = self.slot(&frag, reference, named.span)?;
                    self.read(&frag, slot, path.span)?
                }
                Entity::Refused => return Err(Refused),
                Entity::Const(_) | Entity::Buffer(_) | Entity::Range(_) | Entity::Atom(_) => {
                    return Err(self.not_built(path.span, "parts of a value"));
                }
            };
            return self.scale_part(Operand::Tile(value), first.span, path.span);
        }
        let text = path.text();
        let shared = match text.as_str() {
            "cta.x" => Shared::Cta(0),
            "cta.y" => Shared::Cta(1),
            "cta.z" => Shared::Cta(2),
            "cluster.x" => Shared::Cluster(ClusterAxis::Along(0)),
            "cluster.y" => Shared::Cluster(ClusterAxis::Along(1)),
            "cluster.z" => Shared::Cluster(ClusterAxis::Along(2)),
            "cluster.rank" => Shared::Cluster(ClusterAxis::Rank),
            _ => {
                let part = path.segments.first().and_then(|f| self.frame.lookup(&f.text)).is_some();
                return Err(match not_built::path(&text) {
                    Some(what) => self.not_built(path.span, what),
                    None if part => self.not_built(path.span, "parts of a value"),
                    None => self.unknown(&text, path.span),
                });
            }
        };
        let id = self.shared(shared, DType::I32, path.span)?;
        Ok(Operand::Tile(Tile::new(id, DType::I32, Vec::new())))
    }

    /// A constant of the file, or of one that it imports.
    fn file_constant(&mut self, name: &str) -> Option<Outcome<Const>> {
        let modules = self.modules;
        let (unit, constant) = modules.constant(self.frame.unit, name)?;
        let outer = std::mem::replace(&mut self.frame, super::scope::Frame::new(unit));
        let value = self.nested(constant.name.span, |s| s.const_value(constant));
        self.frame = outer;
        Some(value)
    }

    /// The slot that `x` or `x@e` means.
    pub(super) fn slot(&mut self, frag: &Frag, reference: &'a Ref, defined: Span) -> Outcome<u32> {
        if let Some((span, what)) = not_built::instances(reference) {
            return Err(self.not_built(span, what));
        }
        let name = reference.path.text();
        match (frag.ringed, reference.at.as_slice()) {
            (false, []) => Ok(0),
            (false, [at, ..]) => Err(self.error(slot_without_ring(&name, at.span, defined))),
            (true, []) => Err(self.error(ring_without_slot(&name, reference.path.span, defined))),
            (true, [at, ..]) => {
                let InstanceKind::Slot(e) = &at.kind else { return Err(Refused) };
                let slots = i64::from(frag.slots);
                let slot = match self.expr(e)? {
                    Operand::Const(Const { value: ConstValue::Int(v), .. }) => v.rem_euclid(slots),
                    Operand::Const(other) => {
                        return Err(self.error(
                            Diagnostic::error(Code::E0203, "a ring slot is an integer")
                                .label(e.span, format!("this is {}", other.type_name())),
                        ));
                    }
                    Operand::Tile(tile) => {
                        self.rank_zero(&tile, "a ring slot", e.span)?;
                        let (modulus, residue) = tile.id().map_or((1, 0), |id| self.congruence(id));
                        if modulus % slots != 0 {
                            return Err(self.error(
                                Diagnostic::error(
                                    Code::E0217,
                                    format!("which slot of `{name}` this is depends on run time"),
                                )
                                .label(at.span, "not constant after unrolling")
                                .secondary(defined, format!("a ring of {slots} slots"))
                                .help(format!(
                                    "unroll the loop by a multiple of the ring: `unroll {slots}`"
                                )),
                            ));
                        }
                        residue.rem_euclid(slots)
                    }
                };
                Ok(u32::try_from(slot).expect("a residue of a u32"))
            }
        }
    }

    /// The content of a slot.
    pub(super) fn read(&mut self, frag: &Frag, slot: u32, span: Span) -> Outcome<Tile> {
        match frag.var {
            Some(var) => {
                let op = Op::ReadVar { var, slot };
                let mut tile = self.define(op, frag.dtype, frag.shape.clone(), span)?;
                tile.scale = self.read_scale(frag, slot, span)?;
                Ok(tile)
            }
            None => Ok(Tile::empty(frag.dtype, frag.shape.clone())),
        }
    }
}

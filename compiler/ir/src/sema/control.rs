//! Loops and choices.

use kernel_abi::DType;
use kernel_dsl::ast::{BinaryOp, Else, Expr, ExprKind, For, ForOver, If, RangeEnd, Unroll};
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::access::const_int;
use super::constants::{Const, ConstValue};
use super::limits::MAX_STATEMENTS;
use super::lower::Lower;
use super::operands::{Operand, Tile};
use super::report::{Outcome, Refused};
use super::scope::Entity;
use crate::kernel::{StmtKind, ValueId, Words};

/// The bounds of a loop.
struct Bounds {
    start: Operand,
    /// Exclusive.
    end: Operand,
    step: u32,
    /// `a..b`
    span: Span,
}

impl<'a> Lower<'a> {
    pub(super) fn looped(&mut self, looped: &'a For, span: Span) -> Outcome<()> {
        if let ForOver::Tickets(counter, count) = &looped.over {
            return self.work_list(looped, counter, count, span);
        }
        let bounds = self.bounds(looped)?;
        let trips = trip_count(&bounds);
        match &looped.unroll {
            None => {
                if trips == Some(0) {
                    return Ok(());
                }
                let (start, end) = self.scalars(&bounds)?;
                self.rounds(looped, start, end, bounds.step, span)
            }
            Some(Unroll::Full) => {
                let (Some(trips), Some(first)) = (trips, const_int(&bounds.start)) else {
                    return Err(self.error(
                        Diagnostic::error(
                            Code::E0205,
                            "the rounds of an unrolled loop are constant",
                        )
                        .label(bounds.span, "known at run time only")
                        .help("write `unroll n`, or leave `unroll` out"),
                    ));
                };
                self.write_out(looped, first, trips, bounds.step)
            }
            Some(Unroll::By(by)) => {
                let by = self.const_extent(by, "the number of copies", 1, 1024)?;
                match (trips, const_int(&bounds.start)) {
                    (Some(trips), Some(first)) => {
                        self.unroll_const(looped, first, trips, bounds.step, by, span)
                    }
                    (_, _) => self.unroll_scalar(looped, bounds, by, span),
                }
            }
        }
    }

    fn bounds(&mut self, looped: &'a For) -> Outcome<Bounds> {
        let ForOver::Range(over, step) = &looped.over else { return Err(Refused) };
        let ExprKind::Range(range) = &over.kind else {
            return Err(self.error(
                Diagnostic::error(Code::E0206, "a loop runs over a range")
                    .label(over.span, "this is no range")
                    .help("write `for i in a..b`"),
            ));
        };
        if let Some(until) = &range.until {
            return Err(self.error(
                Diagnostic::error(Code::E0206, "`until` in the bounds of a loop")
                    .label(until.span, "rounds are never absent")
                    .help("write `for i in a..min(b, n)`"),
            ));
        }
        let start = self.expr(&range.start);
        let end = match &range.end {
            RangeEnd::Exclusive(end) => self.expr(end),
            RangeEnd::Inclusive(end) => self.inclusive(end),
            RangeEnd::Length(length) => match (&start, self.expr(length)) {
                (Ok(start), Ok(count)) => {
                    let start = (start.clone(), range.start.span);
                    self.infix(BinaryOp::Add, start, (count, length.span), over.span)
                }
                (Err(Refused), _) | (_, Err(Refused)) => Err(Refused),
            },
        };
        let step = match step {
            Some(step) => self.const_extent(step, "a step", 1, i64::from(i32::MAX))?,
            None => 1,
        };
        let (start, end) = (start?, end?);
        for (bound, e) in [(&start, &range.start), (&end, range_end(&range.end))] {
            if let Operand::Const(c) = bound
                && !matches!(c.value, ConstValue::Int(_))
            {
                return Err(self.error(
                    Diagnostic::error(Code::E0203, "a loop bound is an integer")
                        .label(e.span, format!("this is {}", c.type_name())),
                ));
            }
        }
        Ok(Bounds { start, end, step, span: over.span })
    }

    fn scalars(&mut self, bounds: &Bounds) -> Outcome<(ValueId, ValueId)> {
        let what = "a loop bound";
        let start = self.scalar(bounds.start.clone(), DType::I32, what, bounds.span)?;
        let end = self.scalar(bounds.end.clone(), DType::I32, what, bounds.span)?;
        Ok((start, end))
    }

    /// One round with the loop variable bound to a value. What is wrong in it has been reported.
    fn round(&mut self, looped: &'a For, value: Operand) {
        let entity = match value {
            Operand::Const(c) => Entity::Const(c),
            Operand::Tile(tile) => Entity::Tile(tile),
        };
        let _ = self.nested(looped.header_span, |s| {
            s.frame.open();
            s.frame.define(&looped.var, entity);
            s.block(&looped.body);
            s.frame.close();
            Ok(())
        });
    }

    /// Rounds with constant values, one after the other.
    fn write_out(&mut self, looped: &'a For, first: i64, trips: u64, step: u32) -> Outcome<()> {
        if trips > MAX_STATEMENTS as u64 {
            return Err(self.stop(
                Diagnostic::error(Code::E0219, "this kernel grows too large")
                    .label(looped.header_span, format!("{trips} rounds are written out"))
                    .help("unroll less: `unroll n`, or a loop without `unroll`"),
            ));
        }
        for trip in 0..trips {
            if self.is_stopped() {
                return Err(Refused);
            }
            let value = first + trip as i64 * i64::from(step);
            self.rounds.push((&looped.var.text, value));
            self.round(looped, Operand::Const(Const::int(value)));
            self.rounds.pop();
        }
        Ok(())
    }

    /// A loop at run time whose body is `copies` rounds.
    fn emit_loop(
        &mut self,
        looped: &'a For,
        [start, end]: [ValueId; 2],
        step: u32,
        copies: u32,
        span: Span,
    ) -> Outcome<()> {
        let stride = i64::from(step) * i64::from(copies);
        let stride_u32 = u32::try_from(stride).ok().filter(|s| i32::try_from(*s).is_ok());
        let Some(stride_u32) = stride_u32 else {
            return Err(self.error(
                Diagnostic::error(Code::E0219, format!("a step of {stride} is too large"))
                    .label(looped.header_span, "this loop"),
            ));
        };
        let (modulus, residue) = self.congruence(start);
        let var = self.declare_value(DType::I32, Vec::new(), looped.var.span);
        self.name_value(var, &looped.var.text);
        // start + k·stride, so equal to the start modulo what divides both
        self.set_congruence(var, gcd(modulus, stride), residue);
        let mut outcome = Ok(());
        let body = self.block_of(|s| {
            for copy in 0..copies {
                let base = Operand::Tile(Tile::new(var, DType::I32, Vec::new()));
                let ahead = Operand::Const(Const::int(i64::from(copy) * i64::from(step)));
                let at = looped.var.span;
                let value = match copy {
                    0 => Ok(base),
                    _ => s.infix(BinaryOp::Add, (base, at), (ahead, at), at),
                };
                match value {
                    Ok(value) => s.round(looped, value),
                    Err(refused) => outcome = Err(refused),
                }
            }
        });
        outcome?;
        self.emit(StmtKind::For { var, start, end, step: stride_u32, tickets: None, body }, span)
    }

    fn rounds(
        &mut self,
        looped: &'a For,
        start: ValueId,
        end: ValueId,
        step: u32,
        span: Span,
    ) -> Outcome<()> {
        self.emit_loop(looped, [start, end], step, 1, span)
    }

    /// `for t in tickets(c[i], n)`: each number below `n` once, by some CTA.
    fn work_list(
        &mut self,
        looped: &'a For,
        counter: &'a Expr,
        count: &'a Expr,
        span: Span,
    ) -> Outcome<()> {
        if looped.unroll.is_some() {
            return Err(self.error(
                Diagnostic::error(Code::E0206, "a work list that is unrolled")
                    .label(looped.header_span, "which rounds a CTA does shows at run time")
                    .help("remove `unroll`"),
            ));
        }
        let word = self.word(counter, Words::Counter);
        let at = count.span;
        let count = self.expr(count);
        let (word, count) = (word?, count?);
        let int = |value: i64| Operand::Const(Const::int(value));
        let ctas = self.kernel.launch.grid.iter().map(|&extent| i64::from(extent)).product::<i64>();
        match const_int(&count) {
            Some(0) => return Ok(()),
            Some(count) if !(0..=i64::from(i32::MAX) - ctas).contains(&count) => {
                return Err(self.error(
                    Diagnostic::error(Code::E0215, format!("a work list of {count} rounds"))
                        .label(at, "tickets and CTAs together are counted in 31 bits"),
                ));
            }
            Some(_) | None => {}
        }
        let count = self.extreme(true, (count, at), (int(0), at), at)?;
        let what = "the number of tickets";
        let start = self.scalar(int(0), DType::I32, what, at)?;
        let end = self.scalar(count, DType::I32, what, at)?;
        let var = self.declare_value(DType::I32, Vec::new(), looped.var.span);
        self.name_value(var, &looped.var.text);
        let body = self.block_of(|s| {
            s.round(looped, Operand::Tile(Tile::new(var, DType::I32, Vec::new())));
        });
        self.emit(StmtKind::For { var, start, end, step: 1, tickets: Some(word), body }, span)
    }

    /// `unroll n` of a constant number of rounds: full groups in a loop, the rest written out.
    fn unroll_const(
        &mut self,
        looped: &'a For,
        first: i64,
        trips: u64,
        step: u32,
        by: u32,
        span: Span,
    ) -> Outcome<()> {
        let groups = trips / u64::from(by);
        let stride = i64::from(step) * i64::from(by);
        let rest = i128::from(first) + i128::from(groups) * i128::from(stride);
        let Ok(rest) = i64::try_from(rest) else {
            return Err(self.error(
                Diagnostic::error(Code::E0214, "this constant has no value")
                    .label(looped.header_span, "the rounds go beyond 64-bit integers"),
            ));
        };
        if groups > 0 {
            let bounds = [first, rest].map(|bound| Operand::Const(Const::int(bound)));
            let [start, end] = bounds
                .map(|bound| self.scalar(bound, DType::I32, "a loop bound", looped.header_span));
            self.emit_loop(looped, [start?, end?], step, by, span)?;
        }
        self.write_out(looped, rest, trips % u64::from(by), step)
    }

    /// `unroll n` of a number of rounds that is known at run time: full groups in a loop, then at most
    /// n - 1 rounds, each under its own condition.
    fn unroll_scalar(
        &mut self,
        looped: &'a For,
        bounds: Bounds,
        by: u32,
        span: Span,
    ) -> Outcome<()> {
        let at = bounds.span;
        let int = |value: i64| (Operand::Const(Const::int(value)), at);
        let step = i64::from(bounds.step);
        let stride = step * i64::from(by);
        let start = (bounds.start.clone(), at);
        // never negative, so that division rounds down and the difference does not wrap
        let last = self.extreme(true, (bounds.end.clone(), at), start.clone(), at)?;
        let distance = self.infix(BinaryOp::Sub, (last, at), start.clone(), at)?;
        let trips =
            if step == 1 { distance } else { self.ceil_div((distance, at), int(step), at)? };
        let groups = self.infix(BinaryOp::Div, (trips, at), int(i64::from(by)), at)?;
        let covered = self.infix(BinaryOp::Mul, (groups, at), int(stride), at)?;
        let rest = self.infix(BinaryOp::Add, start, (covered, at), at)?;
        let what = "a loop bound";
        let from = self.scalar(bounds.start, DType::I32, what, at)?;
        let to = self.scalar(rest.clone(), DType::I32, what, at)?;
        self.emit_loop(looped, [from, to], bounds.step, by, span)?;
        for copy in 0..i64::from(by) - 1 {
            let value = match copy {
                0 => rest.clone(),
                _ => self.infix(BinaryOp::Add, (rest.clone(), at), int(copy * step), at)?,
            };
            let inside =
                self.infix(BinaryOp::Lt, (value.clone(), at), (bounds.end.clone(), at), at)?;
            let cond = self.scalar(inside, DType::Bool, "a condition", at)?;
            let then_body = self.block_of(|s| s.round(looped, value));
            self.emit(StmtKind::If { cond, then_body, else_body: Vec::new() }, span)?;
        }
        Ok(())
    }

    pub(super) fn choice(&mut self, choice: &'a If) -> Outcome<()> {
        if let ExprKind::ArriveLast(arrive) = &choice.cond.kind {
            let last = self.arrive_last(arrive, choice.cond.span)?;
            return self.run_time_choice(choice, &last);
        }
        let cond = self.expr(&choice.cond)?;
        if let Operand::Const(c) = &cond
            && let ConstValue::Bool(holds) = c.value
        {
            match (holds, &choice.otherwise) {
                (true, _) => self.block(&choice.then),
                (false, Some(otherwise)) => self.otherwise(otherwise),
                (false, None) => {}
            }
            return Ok(());
        }
        let tile = self.condition(cond, &choice.cond)?;
        if choice.is_const {
            return Err(self.error(
                Diagnostic::error(Code::E0205, "the condition of `const if` is constant")
                    .label(
                        choice.cond.span,
                        format!("{} is known at run time only", tile.describe()),
                    )
                    .help("write `if` without `const`"),
            ));
        }
        self.run_time_choice(choice, &tile)
    }

    fn run_time_choice(&mut self, choice: &'a If, cond: &Tile) -> Outcome<()> {
        let Some(cond) = cond.id() else { return Err(Refused) };
        let then_body = self.block_of(|s| s.block(&choice.then));
        let else_body = self.block_of(|s| {
            if let Some(otherwise) = &choice.otherwise {
                s.otherwise(otherwise);
            }
        });
        self.emit(StmtKind::If { cond, then_body, else_body }, choice.header_span)
    }

    fn condition(&mut self, cond: Operand, e: &'a Expr) -> Outcome<Tile> {
        let tile = self.tile(cond, None, e.span)?;
        self.rank_zero(&tile, "a condition", e.span)?;
        if tile.dtype != DType::Bool {
            return Err(self.error(
                Diagnostic::error(Code::E0203, "a condition is of type bool")
                    .label(e.span, format!("this is {}", tile.dtype))
                    .help("compare it: `x != 0`"),
            ));
        }
        Ok(tile)
    }

    fn otherwise(&mut self, otherwise: &'a Else) {
        match otherwise {
            Else::Block(block) => self.block(block),
            Else::If(inner) => {
                // what is wrong has been reported; the statements after the choice are read all the same
                let _ = self.nested(inner.header_span, |s| s.choice(inner));
            }
        }
    }
}

/// How often a loop with constant bounds runs.
fn trip_count(bounds: &Bounds) -> Option<u64> {
    let (start, end) = (const_int(&bounds.start)?, const_int(&bounds.end)?);
    let distance = i128::from(end) - i128::from(start);
    let step = i128::from(bounds.step);
    u64::try_from((distance.max(0) + step - 1) / step).ok()
}

fn range_end(end: &RangeEnd) -> &Expr {
    match end {
        RangeEnd::Length(e) | RangeEnd::Exclusive(e) | RangeEnd::Inclusive(e) => e,
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    super::elementwise::gcd(a, b)
}

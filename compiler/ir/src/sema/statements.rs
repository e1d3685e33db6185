//! Statements of straight-line code.

use kernel_abi::DType;
use kernel_dsl::ast::{
    self, Assign, BinaryOp, Block, Callee, Dim, Expr, ExprKind, Let, Pattern, Stmt,
    StmtKind as Ast, Text, TileDecl, TileSpace, Type,
};
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::atomics;
use super::builtins::{self, Builtin};
use super::check;
use super::constants::{self, Const, ConstValue};
use super::limits::MAX_RING;
use super::lower::Lower;
use super::mistakes::{printf_mistake, trace_mistake};
use super::not_built;
use super::operands::{Operand, Tile, is_empty};
use super::report::{Outcome, Refused};
use super::scope::{Entity, Frag};
use crate::distribution::Distribution;
use crate::kernel::{Spread, SpreadAxis, StmtKind, Var};

impl<'a> Lower<'a> {
    /// The statements of a block in a scope of their own.
    pub(super) fn block(&mut self, block: &'a Block) {
        self.frame.open();
        self.statements(block);
        self.frame.close();
    }

    /// The statements of a block; one that is refused does not keep the next from being read.
    pub(super) fn statements(&mut self, block: &'a Block) {
        self.list(&block.stmts);
    }

    /// The same of some of them.
    pub(super) fn list(&mut self, stmts: &'a [Stmt]) {
        for stmt in stmts {
            if self.is_stopped() {
                return;
            }
            if self.nested(stmt.span, |s| s.statement(stmt)).is_err() {
                self.define_refused(stmt);
            }
        }
    }

    /// Names of a refused statement are known, so that their uses are no news.
    fn define_refused(&mut self, stmt: &'a Stmt) {
        let names: Vec<&ast::Name> = match &stmt.kind {
            Ast::Const(c) => vec![&c.name],
            Ast::Let(binding) => match &binding.pattern {
                Pattern::Name(name) => vec![name],
                Pattern::Tuple(names, _) => names.iter().collect(),
            },
            Ast::View(view) => vec![&view.name],
            Ast::Tile(tile) => vec![&tile.name],
            Ast::Pipeline(pipeline) => vec![&pipeline.name],
            Ast::Barrier(barrier) => vec![&barrier.name],
            Ast::Atom(atom) => vec![&atom.name],
            _ => Vec::new(),
        };
        for name in names {
            let own = self.frame.lookup(&name.text).is_some_and(|named| named.span == name.span);
            if !own {
                self.frame.define(name, Entity::Refused);
            }
        }
    }

    fn statement(&mut self, stmt: &'a Stmt) -> Outcome<()> {
        if let Some((span, what)) = not_built::statement(stmt) {
            return Err(self.not_built(span, what));
        }
        match &stmt.kind {
            Ast::Const(c) => {
                let value = self.const_value(c)?;
                self.frame.define(&c.name, Entity::Const(value));
                Ok(())
            }
            Ast::Let(binding) => self.binding(binding),
            Ast::View(view) => self.view(view),
            Ast::Tile(tile) => match tile.space {
                TileSpace::Frag => self.frag(tile, stmt.span),
                TileSpace::Smem => self.smem(tile),
                TileSpace::Tmem => self.tmem(tile),
            },
            Ast::Move(mv) => self.transfer(mv, stmt.span),
            Ast::Assign(assign) => self.assign(assign, stmt.span),
            Ast::For(looped) => self.looped(looped, stmt.span),
            Ast::If(choice) => self.choice(choice),
            Ast::MatchArch(arms) => match arms.iter().find(|a| self.is_for_target(&a.pattern)) {
                Some(arm) => {
                    self.block(&arm.body);
                    Ok(())
                }
                None => Err(self.no_arm(stmt.span)),
            },
            Ast::Advance(e) => self.advance(e, stmt.span),
            Ast::Signal(signal) => self.signal(signal, stmt.span),
            Ast::Await(wait) => self.wait_for(wait, stmt.span),
            Ast::Atom(atom) => self.atom(atom),
            Ast::Mma(mma) => self.mma(mma, stmt.span),
            Ast::Commit(barrier) => self.commit(barrier.as_ref(), stmt.span),
            Ast::Settle(settle) if self.names_sums(settle) => self.settle_sums(settle, stmt.span),
            Ast::Settle(settle) => self.settle(settle, stmt.span),
            Ast::Role(role) => self.role(role, stmt.span),
            Ast::Sync(target) => self.sync(target, stmt.span),
            Ast::GridWait => self.emit(StmtKind::GridWait, stmt.span),
            Ast::GridLaunch => self.emit(StmtKind::GridLaunch, stmt.span),
            Ast::Assert(condition, text) => self.assert(condition, text.as_ref(), stmt.span),
            Ast::Printf(text, args) => self.printf(text, args, stmt.span),
            Ast::Trace(event) => self.trace(event, stmt.span),
            Ast::Expr(e) => self.call_statement(e),
            Ast::Pipeline(pipeline) => self.pipeline(pipeline, stmt.span),
            Ast::Barrier(barrier) => self.barrier(barrier, stmt.span),
            Ast::Open(e) => self.open(e, stmt.span),
            Ast::Wait(e) => self.wait(e, stmt.span),
            Ast::Release(e) => self.release(e, stmt.span),
            Ast::Unsafe(block) => self.inline_ptx(&block.ptx),
            Ast::Publish(e) => self.publish(e, stmt.span),
        }
    }

    /// `const NAME : TYPE = VALUE`
    pub(super) fn const_value(&mut self, c: &'a ast::Const) -> Outcome<Const> {
        let value = self.constant(&c.value)?;
        let Some(ty) = &c.ty else { return Ok(value) };
        if !ty.shape.is_empty() {
            return Err(self.error(
                Diagnostic::error(Code::E0204, "a constant is a scalar")
                    .label(ty.span, "a type with axes"),
            ));
        }
        let kind = value.value.type_name();
        match ty.dtype.text.as_str() {
            wanted @ ("int" | "float" | "bool") if wanted == kind => Ok(value),
            wanted @ ("int" | "float" | "bool") => Err(self.error(
                Diagnostic::error(Code::E0203, format!("a constant of type {wanted} is {kind}"))
                    .label(c.value.span, format!("this is {}", value.value))
                    .secondary(ty.span, "the stated type"),
            )),
            _ => {
                let dtype = self.dtype(&ty.dtype)?;
                constants::adapt(value, dtype).map_err(|e| self.fold_error(e, c.value.span))
            }
        }
    }

    /// An element type by name.
    pub(super) fn dtype(&mut self, name: &ast::Name) -> Outcome<DType> {
        let mut found = super::report::Reporter::default();
        check::dtype(name, &mut found).map_err(|refused| {
            found.into_sorted().into_iter().fold(refused, |_, diagnostic| self.error(diagnostic))
        })
    }

    fn binding(&mut self, binding: &'a Let) -> Outcome<()> {
        match &binding.pattern {
            Pattern::Name(name) => {
                let entity = match &binding.value.kind {
                    ExprKind::Range(range) => Entity::Range(self.range(range, binding.value.span)?),
                    _ => self.bound(binding, &name.text)?,
                };
                self.frame.define(name, entity);
                Ok(())
            }
            Pattern::Tuple(names, span) => self.bind_several(binding, names, *span),
        }
    }

    /// The value of `let name = …`, of the stated type if there is one.
    fn bound(&mut self, binding: &'a Let, name: &str) -> Outcome<Entity> {
        let value = self.expr(&binding.value)?;
        let at = binding.value.span;
        if let Some(ty) = &binding.ty {
            let (dtype, shape) = self.tile_type(ty)?;
            let tile = match value {
                Operand::Const(c) if shape.is_empty() => {
                    let c = constants::adapt(c, dtype).map_err(|e| self.fold_error(e, at))?;
                    return Ok(Entity::Const(c));
                }
                other => self.tile(other, Some(dtype), at)?,
            };
            self.same_type(&tile, dtype, &shape, at, ty.span, "stated")?;
            return Ok(self.named_tile(tile, name));
        }
        Ok(match value {
            Operand::Const(c) => Entity::Const(c),
            Operand::Tile(tile) => self.named_tile(tile, name),
        })
    }

    pub(super) fn named_tile(&mut self, tile: Tile, name: &str) -> Entity {
        if let Some(id) = tile.id() {
            self.name_value(id, name);
        }
        Entity::Tile(tile)
    }

    fn bind_several(
        &mut self,
        binding: &'a Let,
        names: &'a [ast::Name],
        span: Span,
    ) -> Outcome<()> {
        let values = match &binding.value.kind {
            ExprKind::Call(call) => {
                let at = binding.value.span;
                self.nested(at, |s| s.call_values(call, at))?
            }
            _ => vec![self.expr(&binding.value)?],
        };
        if values.len() != names.len() {
            let (wanted, given) = (names.len(), values.len());
            return Err(self.error(
                Diagnostic::error(Code::E0206, format!("{wanted} names for {given} values"))
                    .label(span, format!("{wanted} names"))
                    .secondary(binding.value.span, format!("{given} values")),
            ));
        }
        for (name, value) in names.iter().zip(values) {
            if name.text == "_" {
                continue;
            }
            let entity = match value {
                Operand::Const(c) => Entity::Const(c),
                Operand::Tile(tile) => self.named_tile(tile, &name.text),
            };
            self.frame.define(name, entity);
        }
        Ok(())
    }

    /// `f32[ROWS, J]` with all extents known.
    pub(super) fn tile_type(&mut self, ty: &'a Type) -> Outcome<(DType, Vec<u32>)> {
        let dtype = self.dtype(&ty.dtype)?;
        let mut shape = Vec::with_capacity(ty.shape.len());
        for dim in &ty.shape {
            match dim {
                Dim::Extent(e) => {
                    shape.push(self.const_extent(e, "an extent", 0, i64::from(u32::MAX))?);
                }
                Dim::Rest(name) => match self.frame.packs.get(name.text.as_str()) {
                    Some(pack) => shape.extend(pack),
                    None => return Err(self.unknown(&name.text, name.span)),
                },
                Dim::Any(span) => {
                    return Err(self.error(
                        Diagnostic::error(Code::E0205, "an extent that is not stated")
                            .label(*span, "`_` stands for any extent of an argument")
                            .help("write the extent"),
                    ));
                }
            }
        }
        Ok((dtype, shape))
    }

    /// `frag w : bf16[ROWS, J, 8] ring A = …;`
    fn frag(&mut self, tile: &'a TileDecl, span: Span) -> Outcome<()> {
        if let Some((at, what)) = not_built::frag(tile).into_iter().next() {
            return Err(self.not_built(at, what));
        }
        let (dtype, shape) = self.tile_type(&tile.ty)?;
        self.fits(dtype, &shape, tile.ty.span)?;
        self.one_thread(dtype, &shape, tile.ty.span)?;
        let slots = match &tile.ring {
            Some(ring) => self.const_extent(ring, "the number of slots", 1, MAX_RING)?,
            None => 1,
        };
        let spread = match &tile.spread {
            Some(entries) => Some(self.spread(entries, shape.len())?),
            None => None,
        };
        let load = tile.init.as_ref().and_then(|init| self.load_of_tensor(init));
        let init = match &tile.init {
            _ if load.is_some() => None,
            Some(init) => Some(self.initial(init, dtype, &shape, tile.ty.span)?),
            None => None,
        };
        let var = (!is_empty(&shape)).then(|| {
            let distribution = Distribution::scalar(self.warps());
            self.kernel.vars.push(Var {
                name: tile.name.text.clone(),
                dtype,
                shape: shape.clone(),
                slots,
                spread,
                via_mma: tile.via.is_some(),
                distribution,
                span: tile.name.span,
            })
        });
        let ringed = tile.ring.is_some();
        let frag = Frag { var, dtype, shape, slots, ringed };
        if let Some(init) = &init {
            for slot in 0..slots {
                if let (Some(var), Some(value)) = (var, init.id()) {
                    self.emit(StmtKind::SetVar { var, slot, value }, span)?;
                    self.set_scale(&frag, slot, init, tile.name.span, span)?;
                }
            }
        }
        if let Some(load) = load {
            for slot in 0..slots {
                self.tensor_load(&load.source, &frag, slot, tile.ty.span, span)?;
            }
        }
        self.frame.define(&tile.name, Entity::Frag(frag));
        Ok(())
    }

    /// What `= …` gives a tile: a constant is repeated, anything else has exactly its type.
    fn initial(
        &mut self,
        e: &'a Expr,
        dtype: DType,
        shape: &[u32],
        declared: Span,
    ) -> Outcome<Tile> {
        let tile = match self.expr(e)? {
            Operand::Const(c) => {
                let c = constants::adapt(c, dtype).map_err(|err| self.fold_error(err, e.span))?;
                return self.filled(c.value, dtype, shape.to_vec(), e.span);
            }
            Operand::Tile(tile) => tile,
        };
        self.same_type(&tile, dtype, shape, e.span, declared, "declared")?;
        Ok(tile)
    }

    fn spread(&mut self, entries: &'a [ast::SpreadEntry], rank: usize) -> Outcome<Spread> {
        let mut spread = Spread::default();
        for entry in entries {
            let (axis, factor) = match &entry.axis.kind {
                ExprKind::Tuple(parts) => match parts.as_slice() {
                    [axis] => (axis, None),
                    [axis, factor] => (axis, Some(factor)),
                    _ => {
                        return Err(self.error(
                            Diagnostic::error(Code::E0206, "an axis, or an axis and a factor")
                                .label(entry.axis.span, "more than two numbers"),
                        ));
                    }
                },
                _ => (&entry.axis, None),
            };
            let number = self.const_int(axis, "an axis")?;
            let Some(number) = u8::try_from(number).ok().filter(|&n| usize::from(n) < rank) else {
                return Err(self.error(
                    Diagnostic::error(Code::E0204, format!("there is no axis {number}"))
                        .label(axis.span, format!("the tile has {rank} axes"))
                        .help("axes are numbered from 0"),
                ));
            };
            let factor = match factor {
                Some(factor) => Some(self.const_extent(factor, "a factor", 1, 1024)?),
                None => None,
            };
            let axes = match entry.key.text.as_str() {
                "warp" => &mut spread.warp,
                "lane" => &mut spread.lane,
                "vec" => &mut spread.vec,
                other => {
                    let message = format!("nothing is spread along `{other}`");
                    return Err(self.error(
                        Diagnostic::error(Code::E0206, message)
                            .label(entry.key.span, "`warp`, `lane` or `vec`"),
                    ));
                }
            };
            if axes.iter().any(|known| known.axis == number) {
                return Err(self.error(
                    Diagnostic::error(Code::E0206, format!("axis {number} is named twice"))
                        .label(axis.span, format!("`{}` runs along it already", entry.key.text)),
                ));
            }
            axes.push(SpreadAxis { axis: number, factor });
            let whole = entry.key.span.to(entry.axis.span);
            spread.span = Some(spread.span.map_or(whole, |span| span.to(whole)));
        }
        Ok(spread)
    }

    /// `x = e;`, `x += e;`
    fn assign(&mut self, assign: &'a Assign, span: Span) -> Outcome<()> {
        let target = self.assignable(&assign.target);
        let Ok((frag, slot, declared)) = target else {
            // the value is looked at all the same
            let _ = self.expr(&assign.value);
            return Err(Refused);
        };
        let Some(op) = assign.op else {
            let value = self.initial(&assign.value, frag.dtype, &frag.shape, declared)?;
            return self.set(&frag, slot, &value, declared, assign.value.span, span);
        };
        if op == BinaryOp::Add
            && let Some(sum) = self.chained(&assign.value, &frag, slot, assign.target.span)
        {
            return self.set(&frag, slot, &sum?, declared, assign.value.span, span);
        }
        let value = self.expr(&assign.value)?;
        let old = self.read(&frag, slot, assign.target.span)?;
        let old = (Operand::Tile(old), assign.target.span);
        let new = self.infix(op, old, (value, assign.value.span), span)?;
        let new = self.tile(new, Some(frag.dtype), span)?;
        self.set(&frag, slot, &new, declared, assign.value.span, span)
    }

    /// `acc += contract(…)`: the running value starts the chain of each output.
    fn chained(
        &mut self,
        value: &'a Expr,
        frag: &Frag,
        slot: u32,
        target: Span,
    ) -> Option<Outcome<Tile>> {
        let ExprKind::Call(call) = &value.kind else { return None };
        let Callee::Path(path) = &call.callee else { return None };
        let form = builtins::find(&path.text())?;
        if !matches!(form.builtin, Builtin::Contract | Builtin::Dot) {
            return None;
        }
        if let Some((span, what)) = not_built::call(call, value.span) {
            return Some(Err(self.not_built(span, what)));
        }
        let args = match builtins::arrange(form, call, value.span) {
            Ok(args) => args,
            Err(wrong) => return Some(Err(self.error(wrong))),
        };
        let sum = self.read(frag, slot, target).and_then(|acc| match form.builtin {
            Builtin::Dot => self.dot(&args, Some(&acc), call.via.is_some(), value.span),
            _ => self.contract(&args, Some(&acc), call.via.is_some(), value.span),
        });
        Some(sum.and_then(|sum| self.tile(sum, Some(frag.dtype), value.span)))
    }

    fn assert(&mut self, e: &'a Expr, text: Option<&'a Text>, span: Span) -> Outcome<()> {
        let message = text
            .map_or_else(|| "the condition does not hold".to_owned(), |text| text.value.clone());
        match self.expr(e)? {
            Operand::Const(Const { value: ConstValue::Bool(true), .. }) => Ok(()),
            operand => {
                let cond =
                    self.scalar(operand, DType::Bool, "the condition of `assert`", e.span)?;
                self.emit(StmtKind::Assert { cond, message }, span)
            }
        }
    }

    fn printf(&mut self, text: &'a Text, args: &'a [Expr], span: Span) -> Outcome<()> {
        if let Some(diagnostic) = printf_mistake(text, args.len()) {
            return Err(self.error(diagnostic));
        }
        let mut values = Vec::with_capacity(args.len());
        for arg in args {
            let operand = self.expr(arg)?;
            let tile = self.tile(operand, None, arg.span)?;
            self.rank_zero(&tile, "an argument of `printf`", arg.span)?;
            values.extend(tile.id());
        }
        self.emit(StmtKind::Printf { format: text.value.clone(), args: values }, span)
    }

    /// Without a buffer for events nothing is left of the statement.
    fn trace(&mut self, event: &'a Text, span: Span) -> Outcome<()> {
        if let Some(diagnostic) = trace_mistake(event) {
            return Err(self.error(diagnostic));
        }
        if self.records.is_none() {
            return Ok(());
        }
        let events = &mut self.kernel.events;
        let known = events.iter().position(|known| *known == event.value);
        let place = known.unwrap_or_else(|| {
            events.push(event.value.clone());
            events.len() - 1
        });
        let event = u32::try_from(place).expect("a kernel has fewer statements");
        self.emit(StmtKind::Trace { event }, span)
    }

    fn call_statement(&mut self, e: &'a Expr) -> Outcome<()> {
        let ExprKind::Call(call) = &e.kind else {
            return Err(self.error(
                Diagnostic::error(Code::E0206, "a value that goes nowhere")
                    .label(e.span, "")
                    .help("bind it with `let`, or remove it"),
            ));
        };
        if let Callee::Path(path) = &call.callee
            && atomics::operation(path).is_some()
        {
            return self.atomic_statement(call, e.span);
        }
        let values = self.nested(e.span, |s| s.call_values(call, e.span))?;
        if values.is_empty() {
            return Ok(());
        }
        Err(self.error(
            Diagnostic::error(Code::E0206, "a value that goes nowhere")
                .label(e.span, "")
                .help("bind it with `let`, or remove it"),
        ))
    }
}

//! Calls of operations.

use kernel_abi::DType;
use kernel_dsl::ast::{Call, Callee, Expr, Function};
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::atomics;
use super::builtins::{self, Builtin};
use super::constants;
use super::elementwise::Placed;
use super::lower::Lower;
use super::multimem;
use super::not_built;
use super::operands::Operand;
use super::report::{Outcome, Refused};
use crate::ops::UnaryOp;

impl<'a> Lower<'a> {
    /// A call that gives one value.
    pub(super) fn call(&mut self, call: &'a Call, span: Span) -> Outcome<Operand> {
        let mut values = self.call_values(call, span)?;
        match (values.pop(), values.is_empty()) {
            (Some(value), true) => Ok(value),
            (_, _) => Err(self.error(
                Diagnostic::error(Code::E0206, "one value is needed here")
                    .label(span, "this call gives none, or several"),
            )),
        }
    }

    /// A call that gives any number of values.
    pub(super) fn call_values(&mut self, call: &'a Call, span: Span) -> Outcome<Vec<Operand>> {
        let Callee::Path(path) = &call.callee else {
            return Err(self.not_built(span, "methods of a value"));
        };
        let modules = self.modules;
        if let Some(name) = path.single()
            && let Some((unit, function)) = modules.function(self.frame.unit, &name.text)
        {
            return self.inline(call, unit, function, span);
        }
        let text = path.text();
        if atomics::operation(path).is_some() {
            return Ok(vec![self.atomic_value(call, span)?]);
        }
        if multimem::operation(path).is_some() {
            return Ok(vec![self.load_reduce(call, span)?]);
        }
        let Some(form) = builtins::find(&text) else {
            return Err(if builtins::is_not_built(&text) || path.segments.len() > 1 {
                self.not_built(span, &format!("`{text}`"))
            } else {
                self.unknown(&text, path.span)
            });
        };
        if let Some((span, what)) = not_built::call(call, span) {
            return Err(self.not_built(span, what));
        }
        if form.builtin == Builtin::Relayout && call.args.len() > 1 {
            return Err(self.not_built(span, "`relayout` to a stated layout"));
        }
        let args = builtins::arrange(form, call, span).map_err(|wrong| self.error(wrong))?;
        if form.builtin == Builtin::Argmax {
            return self.argmax(&args, span);
        }
        if form.builtin == Builtin::Scan {
            return Ok(vec![self.scan(&args, builtins::has_word(form, call), span)?]);
        }
        if call.via.is_some() {
            let sum = match form.builtin {
                Builtin::Dot => self.dot(&args, None, true, span)?,
                _ => self.contract(&args, None, true, span)?,
            };
            return Ok(vec![sum]);
        }
        Ok(vec![self.builtin(form.builtin, &args, span)?])
    }

    fn builtin(&mut self, builtin: Builtin, args: &[&'a Expr], span: Span) -> Outcome<Operand> {
        match builtin {
            Builtin::Unary(op) => {
                let [(x, at)] = self.operands(args)?;
                if let (UnaryOp::Abs, Operand::Const(c)) = (op, &x) {
                    let folded = constants::abs(*c);
                    return folded.map(Operand::Const).map_err(|e| self.fold_error(e, span));
                }
                let tile = self.tile(x, Some(DType::F32), at)?;
                self.unary(op, tile, at, span)
            }
            Builtin::Min | Builtin::Max => {
                let [a, b] = self.operands(args)?;
                self.extreme(builtin == Builtin::Max, a, b, span)
            }
            Builtin::CeilDiv => {
                let [a, b] = self.operands(args)?;
                self.ceil_div(a, b, span)
            }
            Builtin::Fma => {
                let operands = self.operands(args)?;
                self.fma(operands, span)
            }
            Builtin::Select => {
                let operands = self.operands(args)?;
                self.select(operands, span)
            }
            Builtin::Convert(dtype) => {
                let [x] = self.operands(args)?;
                self.convert(dtype, x, span)
            }
            Builtin::ScaleUp => {
                let [(x, at)] = self.operands(args)?;
                let tile = self.tile(x, Some(DType::F32), at)?;
                let power = self.unary(UnaryOp::ScaleUp, tile, at, span)?;
                self.convert(DType::Ue8m0, (power, at), span)
            }
            Builtin::Iota => self.iota(args, span),
            Builtin::Splat => self.splat(args, span),
            Builtin::Reduce(op) => self.reduce(op, args, span),
            Builtin::Contract => self.contract(args, None, false, span),
            Builtin::Dot => self.dot(args, None, false, span),
            Builtin::Relayout => self.relayout(args, span),
            Builtin::Concat => self.concat(args, span),
            Builtin::Scan => self.scan(args, false, span),
            Builtin::Argmax | Builtin::Share => Err(self.error(
                Diagnostic::error(Code::E0206, "one value is needed here")
                    .label(span, "this operation gives none, or several"),
            )),
        }
    }

    /// The values of a fixed number of arguments; all are looked at before any is refused.
    pub(super) fn operands<const N: usize>(&mut self, args: &[&'a Expr]) -> Outcome<[Placed; N]> {
        let values: Vec<Outcome<Placed>> =
            args.iter().map(|arg| Ok((self.expr(arg)?, arg.span))).collect();
        let values: Vec<Placed> = values.into_iter().collect::<Outcome<_>>()?;
        values.try_into().map_err(|_| Refused)
    }
}

/// What is wrong with the number of arguments of a function call.
pub(super) fn count_mistake(call: &Call, function: &Function, span: Span) -> Option<Diagnostic> {
    let name = &function.name.text;
    if let Some(named) = call.args.iter().find_map(|arg| arg.name.as_ref()) {
        return Some(
            Diagnostic::error(Code::E0206, format!("`{name}` takes its arguments by position"))
                .label(named.span, "an argument by name")
                .secondary(function.header_span, "the function"),
        );
    }
    let (given, wanted) = (call.args.len(), function.params.len());
    if given != wanted {
        return Some(
            Diagnostic::error(Code::E0206, format!("`{name}` takes {wanted} arguments"))
                .label(span, format!("{given} are given"))
                .secondary(function.header_span, "the function"),
        );
    }
    let (given, wanted) = (call.generics.len(), function.consts.len());
    (given > wanted).then(|| {
        Diagnostic::error(Code::E0206, format!("`{name}` takes {wanted} constants"))
            .label(span, format!("{given} are given"))
            .secondary(function.header_span, "the function")
    })
}

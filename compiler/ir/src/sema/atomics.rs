//! Atomic operations: `atomic.add(x[i], v) order relaxed scope gpu`.

use kernel_abi::{Access, DType};
use kernel_dsl::ast::{Arg, Call, Callee, Expr, Order, Path, Scope};
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::access::Slice;
use super::lower::Lower;
use super::mistakes::{read_only, word_mistake};
use super::operands::{Operand, Tile};
use super::report::Outcome;
use crate::kernel::{CachePolicy, Op, ParamId, StmtKind, Storage};
use crate::ops::AtomicOp;

/// How they are written.
const FORM: &str =
    "write `atomic.add(x[i], v) order relaxed scope gpu;`, with `add`, `max`, `min`, `and` or `or`";

/// The operation, where a path is `atomic.` and something.
pub(super) fn operation(path: &Path) -> Option<Option<AtomicOp>> {
    let text = path.text();
    let word = text.strip_prefix("atomic.")?;
    Some(AtomicOp::ALL.into_iter().find(|op| op.name() == word))
}

/// What is changed and by what, or what is wrong with the arguments.
pub(super) fn arguments(call: &Call, span: Span) -> Result<(&Expr, &Expr), Diagnostic> {
    match call.args.as_slice() {
        [Arg { name: None, value: place }, Arg { name: None, value }] => Ok((place, value)),
        _ => Err(Diagnostic::error(Code::E0206, "an atomic takes an element and a value")
            .label(span, "")
            .help(FORM)),
    }
}

/// What is wrong with an atomic, whatever it changes.
pub(super) fn mistake(call: &Call, span: Span) -> Option<Diagnostic> {
    let Callee::Path(path) = &call.callee else { return None };
    let op = operation(path)?;
    let wrong = |message: &str, label: &str| {
        Some(Diagnostic::error(Code::E0170, message).label(span, label).help(FORM))
    };
    if op.is_none() {
        return wrong("an atomic that does not exist", "there is no such operation");
    }
    match (call.order, call.scope) {
        (None, _) | (_, None) => {
            wrong("an atomic without order and scope", "both are always written")
        }
        (Some(Order::Relaxed), Some(Scope::Gpu)) => None,
        (Some(Order::Relaxed), Some(_)) => {
            wrong("an atomic of another scope", "all CTAs of the launch may come here")
        }
        (Some(_), _) => wrong(
            "an atomic that is to order other accesses",
            "what an atomic finds proves nothing, so it orders nothing",
        ),
    }
}

impl<'a> Lower<'a> {
    /// `atomic.add(x[i], v) …;`: nobody learns what was there. A scalar changes all elements.
    pub(super) fn atomic_statement(&mut self, call: &'a Call, span: Span) -> Outcome<()> {
        let (op, slice, value, place, by) = self.atomic_parts(call, span)?;
        let wanted = "the destination";
        let value = match value.id() {
            Some(x) if value.is_scalar() && !slice.shape.is_empty() => {
                self.define(Op::Splat { x }, value.dtype, slice.shape.clone(), by)?
            }
            Some(_) | None => value,
        };
        self.same_type(&value, slice.dtype, &slice.shape, by, place, wanted)?;
        match (value.id(), slice.access) {
            (Some(value), Some(access)) => {
                let (update, cache) = (Some(op), CachePolicy::default());
                self.emit(StmtKind::Store { value, access, update, cache }, span)
            }
            (_, _) => Ok(()),
        }
    }

    /// `let old = atomic.add(x[i], v) …;`
    pub(super) fn atomic_value(&mut self, call: &'a Call, span: Span) -> Outcome<Operand> {
        let (op, slice, value, place, by) = self.atomic_parts(call, span)?;
        let dtype = slice.dtype;
        if !slice.shape.is_empty() {
            return Err(self.error(
                Diagnostic::error(Code::E0170, "the old values of several elements")
                    .label(place, "an atomic with a value changes one element")
                    .help("leave the value out: an atomic that is a statement takes tiles"),
            ));
        }
        self.same_type(&value, dtype, &[], by, place, "the destination")?;
        match (value.id(), slice.access) {
            (Some(value), Some(access)) => {
                let old = self.define(Op::Atomic { op, value, access }, dtype, Vec::new(), span)?;
                Ok(Operand::Tile(old))
            }
            (_, _) => Ok(Operand::Tile(Tile::new(
                self.declare_value(dtype, Vec::new(), span),
                dtype,
                Vec::new(),
            ))),
        }
    }

    fn atomic_parts(
        &mut self,
        call: &'a Call,
        span: Span,
    ) -> Outcome<(AtomicOp, Slice, Tile, Span, Span)> {
        let (place, by) = arguments(call, span).map_err(|wrong| self.error(wrong))?;
        if let Some(wrong) = mistake(call, span) {
            return Err(self.error(wrong));
        }
        let op = match &call.callee {
            Callee::Path(path) => operation(path).flatten(),
            Callee::Method(..) => None,
        };
        let Some(op) = op else { return Err(super::report::Refused) };
        let value = self.expr(by);
        let slice = self.slice(place, span)?;
        match slice.storage {
            Storage::Buffer(param) => self.is_changed(param, slice.dtype, place.span)?,
            Storage::Peer(..) | Storage::Peers(_) | Storage::Multicast(..) => {
                return Err(self.not_built(place.span, "atomics on memory of ranks"));
            }
            Storage::Smem(..) | Storage::Remote(..) => {
                return Err(self.not_built(place.span, "atomics on shared memory"));
            }
        }
        let value = self.tile(value?, Some(slice.dtype), by.span)?;
        Ok((op, slice, value, place.span, by.span))
    }

    /// Refuses buffers that atomics do not change.
    fn is_changed(&mut self, param: ParamId, dtype: DType, at: Span) -> Outcome<()> {
        let declared = &self.kernel.params[param];
        let (name, access, span) = (declared.name.clone(), declared.access, declared.span);
        if let Some(words) = declared.words {
            return Err(self.error(word_mistake(words.name(), &name, at, span)));
        }
        if !access.is_writable() {
            return Err(self.error(read_only(access.name(), at, span)));
        }
        if access != Access::Inout {
            return Err(self.error(
                Diagnostic::error(
                    Code::E0170,
                    format!("an atomic on `{name}`, which is `{access}`"),
                )
                .label(at, "it starts from what is there")
                .secondary(span, "nobody has written it before")
                .help("declare it `inout`; an earlier kernel clears it"),
            ));
        }
        if !AtomicOp::takes(dtype) {
            let why = if dtype.is_float() {
                "sums of floats depend on the order of their terms"
            } else {
                "there are atomics of u32, i32 and u64"
            };
            return Err(self.error(
                Diagnostic::error(Code::E0170, format!("an atomic of {dtype}"))
                    .label(at, why)
                    .secondary(span, "declared here"),
            ));
        }
        Ok(())
    }
}

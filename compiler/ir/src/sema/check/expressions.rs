//! Expressions without bindings.

use kernel_dsl::ast::{
    Call, Callee, Expr, ExprKind, Function, Index, IndexKind, Instance, InstanceKind, LoadExpr,
    Path, Qualifier, RangeEnd, Ref,
};
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::{CallEdge, Checker, Known, Use};
use crate::sema::atomics;
use crate::sema::builtins::{self, Builtin};
use crate::sema::mistakes::{
    atom_as_value, buffer_as_value, buffer_slice_as_value, no_rank, no_shared_memory, read_only,
    ring_without_slot, slot_without_ring, two_ctas, value_as_buffer,
};
use crate::sema::multimem;
use crate::sema::not_built;
use crate::sema::suggest::closest;

const CTA_NAMES: [&str; 7] =
    ["cta.x", "cta.y", "cta.z", "cluster.x", "cluster.y", "cluster.z", "cluster.rank"];

/// `x.scale`
fn is_scale(path: &Path) -> bool {
    matches!(path.segments.as_slice(), [_, part] if part.text == not_built::SCALE)
}

impl<'a> Checker<'a, '_> {
    /// A scalar, a tile or a constant.
    pub(super) fn value(&mut self, e: &'a Expr) {
        self.used(e, Use::Value);
    }

    pub(super) fn used(&mut self, e: &'a Expr, used: Use) {
        self.nested(e.span, |s| s.expression(e, used));
    }

    fn expression(&mut self, e: &'a Expr, used: Use) {
        if let Some(what) = not_built::expression(&e.kind) {
            self.report.not_built(e.span, what);
            return;
        }
        match &e.kind {
            ExprKind::Int(_) | ExprKind::Float(_) | ExprKind::Inf | ExprKind::Bool(_) => {}
            ExprKind::Str(_) => self.misplaced(
                e.span,
                "text is no value",
                "only `contract` and `view … by` take text",
            ),
            ExprKind::Tuple(parts) => {
                self.misplaced(e.span, "a list is no value", "write one value");
                parts.iter().for_each(|part| self.used(part, Use::Any));
            }
            ExprKind::Range(_) => self.misplaced(
                e.span,
                "a range is no value",
                "ranges stand in index lists, loop bounds and `let`",
            ),
            ExprKind::Ref(reference) => {
                self.reference(reference, e.span, used);
            }
            ExprKind::Index(base, indices) => self.indexed(e, base, indices, used),
            ExprKind::Call(call) => {
                if let Some(function) = self.call(call, e.span)
                    && used != Use::Any
                    && function.returns.len() != 1
                {
                    let count = function.returns.len();
                    let found =
                        if count == 0 { "nothing".to_owned() } else { format!("{count} values") };
                    let name = &function.name.text;
                    self.report.error(
                        Diagnostic::error(Code::E0206, format!("`{name}` returns {found}"))
                            .label(e.span, "one value is needed here")
                            .secondary(function.header_span, "the function"),
                    );
                }
            }
            ExprKind::Unary(_, x) => self.value(x),
            ExprKind::Binary(..) => self.binary(e),
            ExprKind::Conditional(c, a, b) => [c, a, b].into_iter().for_each(|x| self.value(x)),
            ExprKind::Load(load) => self.load(load),
            ExprKind::MatchArch(arms) => {
                for arm in arms {
                    self.pattern(&arm.pattern);
                    self.value(&arm.value);
                }
            }
            ExprKind::Field(base, _) => self.value(base),
            ExprKind::Each
            | ExprKind::Transpose(_)
            | ExprKind::ArriveLast(_)
            | ExprKind::Spread(_)
            | ExprKind::Layout(..) => {}
        }
    }

    fn misplaced(&mut self, span: Span, message: &str, help: &str) {
        self.report.error(Diagnostic::error(Code::E0206, message).label(span, "").help(help));
    }

    /// Walks a left-deep chain `a + b + c + …` without nesting.
    fn binary(&mut self, e: &'a Expr) {
        let mut at = e;
        let mut right: Vec<&'a Expr> = Vec::new();
        while let ExprKind::Binary(_, a, b) = &at.kind {
            right.push(b);
            at = a;
        }
        self.value(at);
        right.into_iter().rev().for_each(|b| self.value(b));
    }

    /// A value or a range.
    pub(super) fn range_or_value(&mut self, e: &'a Expr) {
        let ExprKind::Range(range) = &e.kind else { return self.value(e) };
        self.value(&range.start);
        match &range.end {
            RangeEnd::Length(e) | RangeEnd::Exclusive(e) | RangeEnd::Inclusive(e) => self.value(e),
        }
        range.until.iter().for_each(|until| self.value(until));
    }

    /// A value or a tuple of values.
    pub(super) fn list(&mut self, e: &'a Expr) {
        match &e.kind {
            ExprKind::Tuple(parts) => parts.iter().for_each(|part| self.value(part)),
            _ => self.value(e),
        }
    }

    /// A name, and what it stands for.
    fn reference(&mut self, reference: &'a Ref, span: Span, used: Use) -> Option<Known> {
        for at in &reference.at {
            match &at.kind {
                InstanceKind::Slot(slot) if matches!(slot.kind, ExprKind::Each) => {}
                InstanceKind::Slot(e) | InstanceKind::Cta(e) => self.value(e),
                InstanceKind::Peer(e) if !matches!(e.kind, ExprKind::Each) => self.value(e),
                InstanceKind::Peer(_) | InstanceKind::AllPeers | InstanceKind::AllCtas => {}
            }
        }
        let Some(name) = reference.path.single() else {
            return self.dotted(reference);
        };
        let Some((known, defined)) = self.lookup(&name.text) else {
            // Whether the kernel is one of several ranks is judged with the kernel.
            if matches!(name.text.as_str(), "rank" | "world") {
                return Some(Known::Value);
            }
            match not_built::path(&name.text) {
                Some(what) => {
                    self.report.not_built(span, what);
                }
                None => self.unknown(&name.text, name.span, &CTA_NAMES),
            }
            return None;
        };
        if let Known::Refused = known {
            return None;
        }
        if let Some((span, what)) = not_built::instances(reference) {
            self.report.not_built(span, what);
            return None;
        }
        self.ring(reference, known, defined);
        match (known, used) {
            (Known::Atom, Use::Any) => {}
            (Known::Atom, Use::Value | Use::Buffer) => {
                self.report.error(atom_as_value(&name.text, span, defined));
            }
            (Known::Pack, _) => {
                self.misplaced(span, "a shape is no value", "it stands in types as `..S`")
            }
            (Known::Buffer { .. } | Known::Smem { .. }, Use::Value) => {
                self.report.error(buffer_as_value(&name.text, span, defined));
            }
            (Known::Const | Known::Value | Known::Frag { .. }, Use::Buffer) => {
                self.report.error(value_as_buffer(&name.text, span, defined));
            }
            (
                Known::Buffer { .. }
                | Known::Smem { .. }
                | Known::Const
                | Known::Value
                | Known::Frag { .. }
                | Known::Refused,
                Use::Value | Use::Buffer | Use::Any,
            ) => {}
        }
        Some(known)
    }

    /// A ring has a slot, and nothing else has.
    fn ring(&mut self, reference: &'a Ref, known: Known, defined: Span) {
        let name = reference.path.text();
        if let Known::Buffer { qualifier: Qualifier::Peer, .. } = known {
            return;
        }
        let of_rank =
            |at: &&Instance| matches!(at.kind, InstanceKind::Peer(_) | InstanceKind::AllPeers);
        if let Some(at) = reference.at.iter().find(of_rank) {
            self.report.error(no_rank(&name, at.span, defined));
            return;
        }
        let of_cta =
            |at: &&Instance| matches!(at.kind, InstanceKind::Cta(_) | InstanceKind::AllCtas);
        let mut ctas = reference.at.iter().filter(of_cta);
        match (known, ctas.next(), ctas.next()) {
            (_, None, _) | (Known::Smem { .. }, Some(_), None) => {}
            (Known::Smem { .. }, Some(_), Some(at)) => {
                self.report.error(two_ctas(&name, at.span));
            }
            (_, Some(at), _) => {
                self.report.error(no_shared_memory(&name, at.span, defined));
            }
        }
        let slots: Vec<&Instance> = reference.at.iter().filter(|at| !of_cta(at)).collect();
        match (known, slots.as_slice()) {
            (Known::Frag { ringed: true } | Known::Smem { ringed: true }, [_]) => {}
            (Known::Frag { ringed: true } | Known::Smem { ringed: true }, []) => {
                self.report.error(ring_without_slot(&name, reference.path.span, defined));
            }
            (Known::Frag { ringed: true } | Known::Smem { ringed: true }, [_, second, ..]) => {
                self.report.error(
                    Diagnostic::error(Code::E0217, format!("`{name}` has one ring"))
                        .label(second.span, "a second slot"),
                );
            }
            (_, [first, ..]) => {
                self.report.error(slot_without_ring(&name, first.span, defined));
            }
            (_, []) => {}
        }
    }

    fn dotted(&mut self, reference: &'a Ref) -> Option<Known> {
        let path = &reference.path;
        let text = path.text();
        if CTA_NAMES.contains(&text.as_str()) {
            return None;
        }
        if let Some(what) = not_built::path(&text) {
            self.report.not_built(path.span, what);
            return None;
        }
        match path.segments.first().and_then(|first| self.lookup(&first.text)) {
            Some((Known::Refused, _)) => {}
            Some((known @ (Known::Value | Known::Frag { .. }), defined)) if is_scale(path) => {
                self.ring(reference, known, defined);
                return Some(Known::Value);
            }
            Some(_) => {
                self.report.not_built(path.span, "parts of a value");
            }
            None => self.unknown(&text, path.span, &CTA_NAMES),
        }
        None
    }

    /// `base[…]` as a value: new axes of a tile.
    fn indexed(&mut self, e: &'a Expr, base: &'a Expr, indices: &'a [Index], used: Use) {
        let known = match &base.kind {
            ExprKind::Ref(reference) => self.reference(reference, base.span, Use::Any),
            _ => {
                self.value(base);
                Some(Known::Value)
            }
        };
        match (known, used) {
            (Some(Known::Buffer { .. } | Known::Smem { .. }), Use::Value) => {
                self.indices(indices);
                self.report.error(buffer_slice_as_value(e.span));
            }
            (Some(Known::Value | Known::Frag { .. }), Use::Value) => {
                self.indices(indices);
            }
            // It has been reported, or is used in a place that has.
            (Some(Known::Atom), Use::Value | Use::Buffer) => self.indices(indices),
            (Some(Known::Const | Known::Pack), Use::Value) => {
                self.misplaced(
                    e.span,
                    "a constant has no axes",
                    "write `splat(value, extent)` first",
                );
            }
            (Some(Known::Value | Known::Frag { .. } | Known::Const | Known::Pack), Use::Buffer) => {
                self.report.error(value_as_buffer("this", base.span, base.span));
            }
            (Some(Known::Buffer { .. } | Known::Smem { .. } | Known::Refused) | None, _)
            | (Some(_), Use::Any) => {
                self.indices(indices);
            }
        }
    }

    pub(super) fn indices(&mut self, indices: &'a [Index]) {
        for index in indices {
            match &index.kind {
                IndexKind::All(until) => until.iter().for_each(|until| self.value(until)),
                IndexKind::NewAxis => {}
                IndexKind::At(at, until) => {
                    self.range_or_value(at);
                    until.iter().for_each(|until| self.value(until));
                }
            }
        }
    }

    /// A buffer or view, whole or sliced.
    pub(super) fn buffer(&mut self, e: &'a Expr) -> Option<Known> {
        match &e.kind {
            ExprKind::Ref(reference) => self.reference(reference, e.span, Use::Buffer),
            ExprKind::Index(base, indices) => {
                self.indices(indices);
                match &base.kind {
                    ExprKind::Ref(reference) => self.reference(reference, base.span, Use::Buffer),
                    _ => {
                        self.report.error(value_as_buffer("this", base.span, base.span));
                        None
                    }
                }
            }
            _ => {
                if let Some(what) = not_built::expression(&e.kind) {
                    self.report.not_built(e.span, what);
                } else {
                    self.report.error(value_as_buffer("this", e.span, e.span));
                }
                None
            }
        }
    }

    pub(super) fn load_source(&mut self, e: &'a Expr) {
        self.buffer(e);
    }

    fn load(&mut self, load: &'a LoadExpr) {
        self.load_source(&load.source);
        load.absent.iter().for_each(|absent| self.value(absent));
    }

    pub(super) fn store_dest(&mut self, e: &'a Expr) {
        let base = match &e.kind {
            ExprKind::Index(base, _) => base,
            _ => e,
        };
        if let ExprKind::Ref(reference) = &base.kind
            && let Some(name) = reference.path.single()
            && let Some((Known::Frag { .. }, span)) = self.lookup(&name.text)
        {
            self.report.error(
                Diagnostic::error(Code::E0221, format!("`{}` is a tile in registers", name.text))
                    .label(e.span, "`store` writes buffers")
                    .secondary(span, "declared here")
                    .help(format!("write `{} = value;`", name.text)),
            );
            return;
        }
        let (qualifier, dtype) = match self.buffer(e) {
            Some(Known::Buffer { qualifier, dtype }) => (qualifier, dtype),
            Some(
                Known::Smem { .. }
                | Known::Const
                | Known::Value
                | Known::Frag { .. }
                | Known::Pack
                | Known::Atom
                | Known::Refused,
            )
            | None => return,
        };
        self.storable(e.span, dtype);
        if let Qualifier::Static | Qualifier::Input = qualifier
            && let ExprKind::Ref(reference) = &base.kind
            && let Some((_, defined)) = self.lookup(&reference.path.text())
        {
            self.report.error(read_only(qualifier.word(), e.span, defined));
        }
    }

    pub(super) fn prefetch_source(&mut self, e: &'a Expr) {
        if let ExprKind::Index(base, indices) = &e.kind
            && let [Index { kind: IndexKind::At(at, None), .. }] = indices.as_slice()
            && let ExprKind::Call(call) = &at.kind
            && let Callee::Path(path) = &call.callee
            && path.is("share")
        {
            self.buffer(base);
            self.builtin_args(call, at.span);
            return;
        }
        self.buffer(e);
    }

    /// A call; the function when it is one of the program.
    fn call(&mut self, call: &'a Call, span: Span) -> Option<&'a Function> {
        let Callee::Path(path) = &call.callee else {
            self.report.not_built(span, "methods of a value");
            return None;
        };
        if let Some(name) = path.single()
            && let Some((unit, function)) = self.modules.function(self.unit, &name.text)
        {
            self.user_call(call, unit, function, path.span);
            return Some(function);
        }
        if atomics::operation(path).is_some() {
            match atomics::arguments(call, span) {
                Ok((place, value)) => {
                    self.buffer(place);
                    self.value(value);
                }
                Err(diagnostic) => {
                    self.report.error(diagnostic);
                }
            }
            if let Some(wrong) = atomics::mistake(call, span) {
                self.report.error(wrong);
            }
            return None;
        }
        if multimem::operation(path).is_some() {
            match multimem::argument(call, span) {
                Ok(place) => {
                    self.buffer(place);
                }
                Err(diagnostic) => {
                    self.report.error(diagnostic);
                }
            }
            return None;
        }
        let text = path.text();
        if let Some(form) = builtins::find(&text) {
            match form.builtin {
                Builtin::Argmax => {
                    self.misplaced(
                        span,
                        "`argmax` gives a value and an index",
                        "write `let (v, i) = argmax(x, axis = k);`",
                    );
                    return None;
                }
                Builtin::Share => {
                    self.misplaced(span, "`share` is no value", form.form);
                    return None;
                }
                _ => {}
            }
            if let Some((span, what)) = not_built::call(call, span) {
                self.report.not_built(span, what);
                return None;
            }
            self.builtin_args(call, span);
            return None;
        }
        if builtins::is_not_built(&text) {
            self.report.not_built(span, &format!("`{text}`"));
            return None;
        }
        let first = path.segments.first().and_then(|first| self.lookup(&first.text));
        match first {
            Some((Known::Refused, _)) => {}
            Some(_) if path.segments.len() > 1 => {
                self.report.not_built(span, "methods of a value");
            }
            Some(_) | None => {
                self.unknown_operation(&text, path.span);
                call.args.iter().for_each(|arg| self.used(&arg.value, Use::Any));
            }
        }
        None
    }

    pub(super) fn unknown_operation(&mut self, text: &str, span: Span) {
        if !self.modules.units[self.unit].complete {
            return;
        }
        let mut candidates: Vec<&str> = builtins::names().collect();
        candidates.extend(self.modules.function_names(self.unit));
        candidates.extend(["load", "store", "prefetch.l2"]);
        let mut diagnostic =
            Diagnostic::error(Code::E0201, format!("no operation or function is called `{text}`"))
                .label(span, "unknown operation");
        if let Some(near) = closest(text, candidates) {
            diagnostic = diagnostic.help(format!("did you mean `{near}`?"));
        }
        self.report.error(diagnostic);
    }

    fn builtin_args(&mut self, call: &'a Call, span: Span) {
        let Callee::Path(path) = &call.callee else { return };
        let Some(form) = builtins::find(&path.text()) else { return };
        if form.builtin == Builtin::Relayout && call.args.len() > 1 {
            self.report.not_built(span, "`relayout` to a stated layout");
            return;
        }
        let args = match builtins::arrange(form, call, span) {
            Ok(args) => args,
            Err(diagnostic) => {
                self.report.error(diagnostic);
                call.args.iter().for_each(|arg| match arg.value.kind {
                    ExprKind::Str(_) => {}
                    _ => self.used(&arg.value, Use::Any),
                });
                return;
            }
        };
        let mut args = args.as_slice();
        if form.builtin == Builtin::Contract
            && let [letters, rest @ ..] = args
        {
            if let Err(diagnostic) = crate::sema::tiles::letters(letters) {
                self.report.error(diagnostic);
            }
            args = rest;
        }
        for arg in args {
            if call.via.is_some() && self.names_memory(arg) {
                self.buffer(arg);
            } else {
                self.value(arg);
            }
        }
    }

    /// Whether an operand of the tensor core is a tile in shared memory, whole or sliced.
    fn names_memory(&self, e: &'a Expr) -> bool {
        let base = match &e.kind {
            ExprKind::Index(base, _) => base,
            _ => e,
        };
        let ExprKind::Ref(reference) = &base.kind else { return false };
        let known = reference.path.single().and_then(|name| self.lookup(&name.text));
        matches!(known, Some((Known::Smem { .. }, _)))
    }

    fn user_call(&mut self, call: &'a Call, unit: usize, function: &'a Function, span: Span) {
        if let Some(caller) = self.function {
            self.calls.push(CallEdge {
                caller: (self.unit, caller),
                callee: (unit, &function.name.text),
                span,
            });
        }
        call.generics.iter().for_each(|generic| self.value(generic));
        if let Some(diagnostic) = crate::sema::calls::count_mistake(call, function, span) {
            self.report.error(diagnostic);
            call.args.iter().for_each(|arg| self.used(&arg.value, Use::Any));
            return;
        }
        for (param, arg) in function.params.iter().zip(&call.args) {
            match &param.access {
                Some(access) if access.qualifier != Qualifier::Scalar => {
                    if let ExprKind::Index(..) = arg.value.kind {
                        self.report.not_built(arg.value.span, "a slice of a buffer as an argument");
                    } else {
                        self.buffer(&arg.value);
                    }
                }
                Some(_) | None => self.value(&arg.value),
            }
        }
    }

    /// A call that stands alone.
    pub(super) fn call_statement(&mut self, e: &'a Expr) {
        let ExprKind::Call(call) = &e.kind else {
            self.misplaced(e.span, "a value that goes nowhere", "bind it with `let`, or remove it");
            return;
        };
        if let Callee::Path(path) = &call.callee
            && builtins::find(&path.text()).is_some()
            && path.single().is_none_or(|n| self.modules.function(self.unit, &n.text).is_none())
        {
            self.misplaced(e.span, "a value that goes nowhere", "bind it with `let`, or remove it");
            return;
        }
        if let Some(function) = self.call(call, e.span)
            && !function.returns.is_empty()
        {
            self.misplaced(e.span, "a value that goes nowhere", "bind it with `let`, or remove it");
        }
    }

    /// The right side of `let (a, b) = …`.
    pub(super) fn several(&mut self, e: &'a Expr, wanted: usize, pattern: Span) {
        let mut given = None;
        match &e.kind {
            ExprKind::Call(call) => {
                if let Callee::Path(path) = &call.callee
                    && path.is("argmax")
                {
                    self.builtin_args(call, e.span);
                    given = Some(2);
                } else if let Some(function) = self.call(call, e.span) {
                    given = Some(function.returns.len());
                } else {
                    return;
                }
            }
            _ => {
                self.value(e);
                given.get_or_insert(1);
            }
        }
        if let Some(given) = given
            && given != wanted
        {
            self.report.error(
                Diagnostic::error(Code::E0206, format!("{wanted} names for {given} values"))
                    .label(pattern, format!("{wanted} names"))
                    .secondary(e.span, format!("{given} values")),
            );
        }
    }
}

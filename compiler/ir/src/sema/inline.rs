//! Calls of functions of the program: constants are found, arguments matched, the body written out.

use std::collections::BTreeMap;

use kernel_dsl::ast::{
    Access, Call, ConstParam, Dim, Expr, ExprKind, FnParam, Function, Qualifier,
};
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::calls::count_mistake;
use super::constants::{Const, ConstValue};
use super::lower::Lower;
use super::operands::{Operand, Tile, describe};
use super::report::{Outcome, Refused};
use super::scope::{Buffer, Entity, Frame, Memory};
use crate::kernel::{Extent, ParamId};

/// An evaluated argument.
enum Argument {
    Value(Operand),
    Buffer(Buffer, ParamId),
}

impl<'a> Lower<'a> {
    /// Writes out a call and returns what the body gives back.
    pub(super) fn inline(
        &mut self,
        call: &'a Call,
        unit: usize,
        function: &'a Function,
        span: Span,
    ) -> Outcome<Vec<Operand>> {
        if let Some(diagnostic) = count_mistake(call, function, span) {
            return Err(self.error(diagnostic));
        }
        let mut explicit = Vec::with_capacity(call.generics.len());
        for generic in &call.generics {
            explicit.push((self.constant(generic)?, generic.span));
        }
        let arguments: Vec<Outcome<(Argument, Span)>> = function
            .params
            .iter()
            .zip(&call.args)
            .map(|(param, arg)| Ok((self.argument(param, &arg.value)?, arg.value.span)))
            .collect();
        let arguments: Vec<(Argument, Span)> = arguments.into_iter().collect::<Outcome<_>>()?;

        let outer = std::mem::replace(&mut self.frame, Frame::new(unit));
        self.calls.push(span);
        let values = self.inline_body(function, explicit, arguments, span);
        self.calls.pop();
        self.frame = outer;
        values
    }

    fn inline_body(
        &mut self,
        function: &'a Function,
        explicit: Vec<(Const, Span)>,
        arguments: Vec<(Argument, Span)>,
        span: Span,
    ) -> Outcome<Vec<Operand>> {
        self.fn_consts(function, explicit, &arguments, span)?;
        for (param, (argument, at)) in function.params.iter().zip(arguments) {
            let entity = self.parameter(param, argument, at)?;
            self.frame.define(&param.name, entity);
        }
        if !self.inlined.contains(&function.body.span) {
            self.inlined.push(function.body.span);
        }
        self.frame.open();
        self.statements(&function.body);
        let values = self.returned(function);
        self.frame.close();
        values
    }

    fn argument(&mut self, param: &'a FnParam, e: &'a Expr) -> Outcome<Argument> {
        let is_buffer =
            param.access.as_ref().is_some_and(|access| access.qualifier != Qualifier::Scalar);
        if !is_buffer {
            return self.expr(e).map(Argument::Value);
        }
        if let ExprKind::Index(..) = e.kind {
            return Err(self.not_built(e.span, "a slice of a buffer as an argument"));
        }
        let (buffer, reference, defined) = self.named_buffer(e)?;
        if let Memory::Param(param) = buffer.memory
            && self.kernel.params[param].access == kernel_abi::Access::Peer
        {
            return match reference.at.first() {
                None => Ok(Argument::Buffer(buffer, param)),
                Some(_) if self.kernel.params[param].is_inbox() => {
                    let instance =
                        self.inbox_instance(param, buffer.instance, reference, defined)?;
                    Ok(Argument::Buffer(Buffer { instance, ..buffer }, param))
                }
                Some(at) => Err(self.not_built(at.span, "flags of one rank as an argument")),
            };
        }
        let (buffer, reference, defined) = self.buffer(e)?;
        match self.storage(&buffer, reference, defined)?.param() {
            Some(param) => Ok(Argument::Buffer(buffer, param)),
            None => Err(self.not_built(e.span, "a tile in shared memory as an argument")),
        }
    }

    /// Values of the function's constants: stated at the call, else found in the shapes of the
    /// arguments, else the default.
    fn fn_consts(
        &mut self,
        function: &'a Function,
        explicit: Vec<(Const, Span)>,
        arguments: &[(Argument, Span)],
        span: Span,
    ) -> Outcome<()> {
        let mut found: BTreeMap<&str, (Const, Span)> = BTreeMap::new();
        for (param, value) in function.consts.iter().zip(explicit) {
            found.insert(&param.name.text, value);
        }
        for (param, (argument, at)) in function.params.iter().zip(arguments) {
            for (dim, extent) in self.matched_dims(param, argument) {
                if let (Dim::Extent(e), Some(extent)) = (dim, extent)
                    && let Some(name) = bare_name(e)
                    && function.consts.iter().any(|c| c.name.text == name)
                {
                    found.entry(name).or_insert((Const::int(i64::from(extent)), *at));
                }
            }
        }
        for param in &function.consts {
            let (value, at) = match (found.get(param.name.text.as_str()), &param.default) {
                (Some((value, at)), _) => (*value, *at),
                (None, Some(default)) => (self.constant(default)?, default.span),
                (None, None) => {
                    let name = &param.name.text;
                    return Err(self.error(
                        Diagnostic::error(Code::E0206, format!("`{name}` is not known here"))
                            .label(span, "no argument shows it")
                            .secondary(param.span, "this constant")
                            .help(format!("state it: `{}<…>(…)`", function.name.text)),
                    ));
                }
            };
            self.define_const(param, value, at)?;
        }
        Ok(())
    }

    /// Puts a constant in scope after checking it against its type and domain.
    pub(super) fn define_const(
        &mut self,
        param: &'a ConstParam,
        value: Const,
        at: Span,
    ) -> Outcome<()> {
        let value = self.fit_const(param, value, at)?;
        self.frame.define(&param.name, Entity::Const(value));
        Ok(())
    }

    /// The dims of a parameter beside the extents of its argument; an extent that is known at run time
    /// only is `None`. Axes that `..S` takes are left out.
    fn matched_dims(&self, param: &'a FnParam, argument: &Argument) -> Vec<(&'a Dim, Option<u32>)> {
        let extents = self.given_extents(argument);
        let fixed = param.ty.shape.iter().filter(|dim| !matches!(dim, Dim::Rest(_))).count();
        let rest = extents.len().saturating_sub(fixed);
        let mut at = 0;
        let mut dims = Vec::new();
        for dim in &param.ty.shape {
            if let Dim::Rest(_) = dim {
                at += rest;
            } else {
                dims.push((dim, extents.get(at).copied().flatten()));
                at += 1;
            }
        }
        dims
    }

    fn given_extents(&self, argument: &Argument) -> Vec<Option<u32>> {
        match argument {
            Argument::Value(Operand::Const(_)) => Vec::new(),
            Argument::Value(Operand::Tile(tile)) => tile.shape.iter().copied().map(Some).collect(),
            Argument::Buffer(buffer, id) => self.extents_of(buffer, *id),
        }
    }

    /// The extents of a buffer, without the slots of memory of ranks.
    fn extents_of(&self, buffer: &Buffer, id: ParamId) -> Vec<Option<u32>> {
        let extent = |extent| match extent {
            Extent::Const(extent) => Some(extent),
            Extent::Scalar(_) => None,
        };
        let own = usize::from(self.kernel.params[id].is_inbox());
        buffer.axes.iter().skip(own).map(|axis| extent(axis.extent)).collect()
    }

    /// What a parameter stands for, after the argument has been checked against its type.
    fn parameter(&mut self, param: &'a FnParam, argument: Argument, at: Span) -> Outcome<Entity> {
        let dtype = self.dtype(&param.ty.dtype)?;
        match argument {
            Argument::Value(value) => {
                let tile = self.tile(value, Some(dtype), at)?;
                let shape: Vec<Option<u32>> = tile.shape.iter().copied().map(Some).collect();
                self.fits_type(param, &tile.describe(), &shape, at)?;
                if tile.dtype != dtype {
                    return Err(self.error(
                        Diagnostic::error(
                            Code::E0203,
                            format!("types that do not agree: {} for {dtype}", tile.dtype),
                        )
                        .label(at, format!("this is {}", tile.describe()))
                        .secondary(param.ty.span, "what the function takes")
                        .help(format!("conversions are always written: `{dtype}(…)`")),
                    ));
                }
                Ok(Entity::Tile(tile))
            }
            Argument::Buffer(buffer, id) => {
                let Some(access) = &param.access else { return Err(Refused) };
                self.qualifier(access, id, at)?;
                let declared = &self.kernel.params[id];
                let found = declared.dtype;
                let shape = self.extents_of(&buffer, id);
                let shown: Vec<u32> = shape.iter().map(|e| e.unwrap_or(0)).collect();
                if found != dtype {
                    return Err(self.error(
                        Diagnostic::error(
                            Code::E0203,
                            format!("types that do not agree: a buffer of {found} for {dtype}"),
                        )
                        .label(at, format!("this is {}", describe(found, &shown)))
                        .secondary(param.ty.span, "what the function takes"),
                    ));
                }
                self.fits_type(param, &describe(found, &shown), &shape, at)?;
                Ok(Entity::Buffer(buffer))
            }
        }
    }

    /// The qualifier of an argument is the one that the function states.
    fn qualifier(&mut self, wanted: &'a Access, buffer: ParamId, at: Span) -> Outcome<()> {
        let declared = &self.kernel.params[buffer];
        let agrees = match wanted.qualifier {
            Qualifier::Writable => {
                declared.access.is_writable() && declared.access != kernel_abi::Access::Peer
            }
            Qualifier::Static
            | Qualifier::Input
            | Qualifier::Output
            | Qualifier::Inout
            | Qualifier::Scratch
            | Qualifier::Peer
            | Qualifier::Scalar => {
                declared.access.name() == wanted.qualifier.word()
                    && declared.settled == wanted.settled
            }
        };
        if agrees {
            return Ok(());
        }
        let word = |settled: bool, name: &str| {
            if settled { format!("settled {name}") } else { name.to_owned() }
        };
        let found = word(declared.settled, declared.access.name());
        let stated = word(wanted.settled, wanted.qualifier.word());
        let place = declared.span;
        Err(self.error(
            Diagnostic::error(
                Code::E0220,
                format!("a `{found}` buffer for a `{stated}` parameter"),
            )
            .label(at, format!("this buffer is `{found}`"))
            .secondary(wanted.span, "what the function takes")
            .secondary(place, "the declaration of the buffer")
            .help("the qualifier decides when a read is legal, so both must be the same"),
        ))
    }

    /// The extents of an argument agree with the shape of its parameter; `..S` is bound.
    fn fits_type(
        &mut self,
        param: &'a FnParam,
        found: &str,
        shape: &[Option<u32>],
        at: Span,
    ) -> Outcome<()> {
        let dims = &param.ty.shape;
        let has_rest = dims.iter().any(|dim| matches!(dim, Dim::Rest(_)));
        let fixed = dims.iter().filter(|dim| !matches!(dim, Dim::Rest(_))).count();
        let rank_fits = if has_rest { shape.len() >= fixed } else { shape.len() == fixed };
        let mismatch = |reason: String| {
            Diagnostic::error(Code::E0204, format!("shapes that do not agree: {found}"))
                .label(at, reason)
                .secondary(param.ty.span, "what the function takes")
        };
        if !rank_fits {
            return Err(self.error(mismatch(format!("{} axes, not {fixed}", shape.len()))));
        }
        let mut next = 0;
        for dim in dims {
            match dim {
                Dim::Any(_) => next += 1,
                Dim::Extent(e) => {
                    let wanted = self.const_int(e, "an extent")?;
                    let given = shape[next];
                    next += 1;
                    if given.map(i64::from) != Some(wanted) {
                        let given = given.map_or("a run-time extent".to_owned(), |g| g.to_string());
                        return Err(self.error(mismatch(format!(
                            "axis {} is {given}, not {wanted}",
                            next - 1
                        ))));
                    }
                }
                Dim::Rest(name) => {
                    let count = shape.len() - fixed;
                    let axes: Option<Vec<u32>> =
                        shape[next..next + count].iter().copied().collect();
                    next += count;
                    let Some(axes) = axes else {
                        return Err(self.error(mismatch("an extent at run time".to_owned())));
                    };
                    match self.frame.packs.get(name.text.as_str()) {
                        Some(known) if *known != axes => {
                            let known = known.clone();
                            return Err(self.error(mismatch(format!(
                                "`{}` is {known:?} from another argument, {axes:?} here",
                                name.text
                            ))));
                        }
                        Some(_) => {}
                        None => {
                            self.frame.packs.insert(&name.text, axes);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The value of the body, checked against the header.
    fn returned(&mut self, function: &'a Function) -> Outcome<Vec<Operand>> {
        let parts: Vec<&'a Expr> = match function.body.value.as_ref().map(|value| &value.expr) {
            None => Vec::new(),
            Some(Expr { kind: ExprKind::Tuple(parts), .. }) => parts.iter().collect(),
            Some(e) => vec![e],
        };
        if parts.len() != function.returns.len() {
            return Err(self.error(
                Diagnostic::error(Code::E0206, "the header promises another number of values")
                    .label(function.header_span, "the header"),
            ));
        }
        let mut values = Vec::with_capacity(parts.len());
        for (e, ty) in parts.into_iter().zip(&function.returns) {
            let value = self.expr(e)?;
            let (dtype, shape) = self.tile_type(ty)?;
            let tile: Tile = self.tile(value, Some(dtype), e.span)?;
            self.same_type(&tile, dtype, &shape, e.span, ty.span, "promised")?;
            values.push(Operand::Tile(tile));
        }
        Ok(values)
    }

    /// The value of a constant parameter, of its type and within its domain.
    pub(super) fn fit_const(
        &mut self,
        param: &'a ConstParam,
        value: Const,
        at: Span,
    ) -> Outcome<Const> {
        let name = &param.name.text;
        let fits = match (param.ty.text.as_str(), value.value) {
            ("int", ConstValue::Int(_)) | ("bool", ConstValue::Bool(_)) => true,
            (_, ConstValue::Int(_) | ConstValue::Float(_) | ConstValue::Bool(_)) => false,
        };
        if !fits {
            return Err(self.error(
                Diagnostic::error(
                    Code::E0208,
                    format!("`{name}` is of type {}, {} is not", param.ty.text, value.value),
                )
                .label(at, format!("{} is given", value.value))
                .secondary(param.ty.span, "the type"),
            ));
        }
        let Some(domain) = &param.domain else { return Ok(value) };
        if self.in_domain(domain, value)? {
            return Ok(value);
        }
        Err(self.error(
            Diagnostic::error(
                Code::E0208,
                format!("`{name}` = {} is outside its domain", value.value),
            )
            .label(at, format!("{} is given", value.value))
            .secondary(domain.span, "the values that it may have"),
        ))
    }
}

/// The name of an extent that is nothing but a name.
fn bare_name(e: &Expr) -> Option<&str> {
    match &e.kind {
        ExprKind::Ref(reference) if reference.at.is_empty() => {
            reference.path.single().map(|name| name.text.as_str())
        }
        _ => None,
    }
}

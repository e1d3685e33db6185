//! Headers of files, kernels and functions.

use kernel_dsl::ast::{
    Buffer, ConstParam, Contract, Domain, DomainKind, Expr, ExprKind, Function, Item, ItemKind,
    Kernel, Launch, LaunchKey, Name, Qualifier, Space,
};
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::{Checker, Known, Use, is_packed};
use crate::sema::builtins;
use crate::sema::header;
use crate::sema::not_built;
use crate::sema::ranks;
use crate::sema::suggest::closest;
use crate::target::Target;

impl<'a> Checker<'a, '_> {
    pub(super) fn unit(&mut self) {
        let file: &'a kernel_dsl::ast::File = &self.modules.units[self.unit].file;
        self.item_names(&file.items);
        for item in &file.items {
            match &item.kind {
                ItemKind::Target(names) => names.iter().for_each(|name| self.target(name)),
                ItemKind::Import(_) => {}
                ItemKind::Const(c) => {
                    if let Some(ty) = &c.ty {
                        self.const_type(&ty.dtype);
                    }
                    self.value(&c.value);
                }
                ItemKind::Atom(atom) => self.scoped(|s| s.atom(atom)),
                ItemKind::Kernel(kernel) => self.kernel(kernel),
                ItemKind::Fn(function) => self.function(function),
            }
        }
        if let Some(first) = file.kernels().next()
            && file.targets().next().is_none()
        {
            self.report.error(
                Diagnostic::error(Code::E0218, "a file with kernels that states no target")
                    .label(first.name.span, "for which targets is it?")
                    .help("write `target sm_90a, sm_100a, sm_103a;` before the first kernel"),
            );
        }
        self.exports(file.kernels());
    }

    /// No two items of a file, or of its imports, share a name.
    fn item_names(&mut self, items: &'a [Item]) {
        let mut seen: Vec<(&str, Span)> = Vec::new();
        for (import, line) in &self.modules.units[self.unit].imports {
            let imported = &self.modules.units[*import].file;
            for name in imported.items.iter().filter_map(|item| item_name(&item.kind, false)) {
                if let Some((_, first)) = seen.iter().find(|(known, _)| *known == name.text) {
                    let first = *first;
                    self.report.error(twice(name, *line, first));
                } else {
                    seen.push((&name.text, name.span));
                }
            }
        }
        for item in items {
            let Some(name) = item_name(&item.kind, true) else { continue };
            let is_fn = matches!(item.kind, ItemKind::Fn(_));
            let text = &name.text;
            if let Some((_, first)) = seen.iter().find(|(known, _)| *known == name.text) {
                let first = *first;
                self.report.error(twice(name, name.span, first));
            } else if is_fn && (builtins::find(text).is_some() || builtins::is_not_built(text)) {
                self.report.error(
                    Diagnostic::error(Code::E0202, format!("`{}` is defined twice", name.text))
                        .label(name.span, "an operation of the language has this name")
                        .help("choose another name"),
                );
            } else {
                seen.push((&name.text, name.span));
            }
        }
    }

    /// No two kernels of a file have the same symbol.
    fn exports(&mut self, kernels: impl Iterator<Item = &'a Kernel>) {
        let mut seen: Vec<(&str, Span)> = Vec::new();
        for kernel in kernels {
            let (symbol, span) = match &kernel.export {
                Some(export) => (export.value.value.as_str(), export.value.span),
                None => (kernel.name.text.as_str(), kernel.name.span),
            };
            if !header::is_symbol(symbol) {
                self.report.error(
                    Diagnostic::error(Code::E0215, format!("`{symbol}` is no symbol"))
                        .label(span, "not a C identifier")
                        .help("use letters, digits and `_`, a letter first"),
                );
            }
            if let Some((_, first)) = seen.iter().find(|(known, _)| *known == symbol) {
                let first = *first;
                self.report.error(
                    Diagnostic::error(Code::E0202, format!("`{symbol}` is exported twice"))
                        .label(span, "the second kernel with this symbol")
                        .secondary(first, "the first"),
                );
            }
            seen.push((symbol, span));
        }
    }

    pub(super) fn target(&mut self, name: &Name) {
        if Target::from_name(&name.text).is_some() {
            return;
        }
        let known = Target::ALL.map(Target::name);
        let mut diagnostic =
            Diagnostic::error(Code::E0501, format!("`{}` is no known target", name.text))
                .label(name.span, "unknown target");
        if let Some(near) = closest(&name.text, known) {
            diagnostic = diagnostic.help(format!("did you mean `{near}`?"));
        }
        self.report.error(diagnostic.note(format!("known targets are {}", known.join(", "))));
    }

    /// The type of a constant: a constant kind, or an element type that it is rounded to.
    pub(super) fn const_type(&mut self, name: &Name) {
        if !matches!(name.text.as_str(), "int" | "bool" | "float") {
            let _ = self.dtype(name);
        }
    }

    fn const_params(&mut self, params: &'a [ConstParam]) {
        for param in params {
            match param.ty.text.as_str() {
                "int" | "bool" => {}
                "float" => {
                    self.report.not_built(param.ty.span, "`const` parameters of type float");
                }
                other => {
                    self.report.error(
                        Diagnostic::error(Code::E0203, format!("a constant of type `{other}`"))
                            .label(param.ty.span, "constants are `int` or `bool`")
                            .help("write `int`"),
                    );
                }
            }
            if let Some(domain) = &param.domain {
                self.domain(domain);
            }
            if let Some(default) = &param.default {
                self.value(default);
            }
            self.declare(&param.name, Known::Const);
        }
    }

    fn domain(&mut self, domain: &'a Domain) {
        match &domain.kind {
            DomainKind::Set(values) => values.iter().for_each(|v| self.value(v)),
            DomainKind::Range(range) => self.range_or_value(range),
        }
    }

    fn kernel(&mut self, kernel: &'a Kernel) {
        self.scoped(|s| {
            s.const_params(&kernel.consts);
            for buffer in &kernel.buffers {
                s.declare_buffer(buffer);
            }
            for buffer in &kernel.buffers {
                s.shape(&buffer.ty, false);
                if let Some(contract) = &buffer.contract {
                    s.contract(contract);
                }
                if let Some(scaled) = &buffer.scaled_by {
                    s.value(&scaled.group);
                }
                if let Some(layout) = &buffer.stored
                    && let ExprKind::Layout(..) = layout.kind
                {
                    s.stored(layout);
                }
            }
            s.launch(&kernel.launch, kernel.header_span);
            for condition in kernel.wheres.iter().flat_map(|clause| &clause.value) {
                s.value(condition);
            }
            for tune in kernel.tune.iter().flat_map(|clause| &clause.value) {
                if !kernel.consts.iter().any(|c| c.name.text == tune.name.text) {
                    s.unknown_const_param(&tune.name, &kernel.consts);
                }
                s.domain(&tune.domain);
            }
            s.statements(&kernel.body);
            s.no_value(&kernel.body, "a kernel");
        });
    }

    /// `layout(SHAPE : STRIDE)`: numbers in tuples.
    fn stored(&mut self, e: &'a Expr) {
        if let ExprKind::Layout(extents, strides) = &e.kind {
            for part in [extents, strides] {
                self.nested(part.span, |s| s.stored(part));
            }
        } else if let ExprKind::Tuple(parts) = &e.kind {
            for part in parts {
                self.nested(part.span, |s| s.stored(part));
            }
        } else {
            self.value(e);
        }
    }

    fn unknown_const_param(&mut self, name: &Name, params: &[ConstParam]) {
        let mut diagnostic = Diagnostic::error(
            Code::E0201,
            format!("there is no `const` parameter called `{}`", name.text),
        )
        .label(name.span, "unknown name");
        if let Some(near) = closest(&name.text, params.iter().map(|c| c.name.text.as_str())) {
            diagnostic = diagnostic.help(format!("did you mean `{near}`?"));
        }
        self.report.error(diagnostic);
    }

    fn declare_buffer(&mut self, buffer: &'a Buffer) {
        let mut refused = false;
        for (span, what) in not_built::buffer(buffer) {
            self.report.not_built(span, what);
            refused = true;
        }
        let dtype = self.dtype(&buffer.ty.dtype).ok();
        let qualifier = buffer.access.qualifier;
        if let Some((message, help)) = header::buffer_mistake(buffer) {
            self.report.error(
                Diagnostic::error(Code::E0215, message).label(buffer.access.span, "").help(help),
            );
        }
        let known = match qualifier {
            _ if refused => Known::Refused,
            Qualifier::Scalar => {
                if let Some(dtype) = dtype.filter(|dtype| is_packed(*dtype)) {
                    self.report.not_built(buffer.ty.dtype.span, &format!("scalars of {dtype}"));
                }
                Known::Value
            }
            Qualifier::Static
            | Qualifier::Input
            | Qualifier::Output
            | Qualifier::Inout
            | Qualifier::Scratch
            | Qualifier::Peer
            | Qualifier::Writable => Known::Buffer { qualifier, dtype },
        };
        self.declare(&buffer.name, known);
    }

    fn contract(&mut self, contract: &'a Contract) {
        self.domain(&contract.domain);
        if let Some(except) = &contract.except {
            self.value(except);
        }
    }

    fn launch(&mut self, launch: &'a Launch, header: Span) {
        for entry in &launch.entries {
            if let Some(what) = not_built::launch(entry.key) {
                self.report.not_built(entry.span, what);
                continue;
            }
            match entry.key {
                LaunchKey::Pdl => {
                    if header::pdl(&entry.value).is_none() {
                        self.report.error(header::pdl_mistake(entry.value.span));
                    }
                }
                LaunchKey::Resident => {
                    if !ranks::is_all(&entry.value) {
                        self.report.error(ranks::resident_mistake(entry.value.span));
                    }
                }
                LaunchKey::Grid | LaunchKey::Cluster => self.list(&entry.value),
                LaunchKey::Warps | LaunchKey::MinCtas | LaunchKey::World => {
                    self.value(&entry.value)
                }
            }
        }
        for key in [LaunchKey::Grid, LaunchKey::Warps] {
            if launch.get(key).is_none() {
                self.report.error(header::missing_launch(key, header));
            }
        }
    }

    fn function(&mut self, function: &'a Function) {
        self.function = Some(&function.name.text);
        self.scoped(|s| {
            s.const_params(&function.consts);
            for param in &function.params {
                let known = match &param.access {
                    Some(access) if access.qualifier == Qualifier::Scalar => {
                        s.register_dtype(&param.ty.dtype);
                        Known::Value
                    }
                    Some(access) => {
                        let mut refused = false;
                        for (span, what) in not_built::access(access) {
                            s.report.not_built(span, what);
                            refused = true;
                        }
                        if let Some((span, what)) =
                            param.space.and_then(|space| not_built::space(space, param.span))
                        {
                            s.report.not_built(span, what);
                            refused = true;
                        }
                        let dtype = s.dtype(&param.ty.dtype).ok();
                        if refused {
                            Known::Refused
                        } else {
                            Known::Buffer { qualifier: access.qualifier, dtype }
                        }
                    }
                    None => {
                        s.register_dtype(&param.ty.dtype);
                        match param.space {
                            None | Some(Space::Frag) => Known::Value,
                            Some(space) => {
                                let what = not_built::space(space, param.span);
                                if let Some((span, what)) = what {
                                    s.report.not_built(span, what);
                                } else {
                                    s.report.error(
                                        Diagnostic::error(
                                            Code::E0206,
                                            "a buffer parameter without a qualifier",
                                        )
                                        .label(param.span, "who may write it?")
                                        .help("write `static`, `input`, … or `writable` before the type"),
                                    );
                                }
                                Known::Refused
                            }
                        }
                    }
                };
                s.declare(&param.name, known);
                s.shape(&param.ty, true);
            }
            for ty in &function.returns {
                s.register_dtype(&ty.dtype);
                s.shape(ty, false);
            }
            s.statements(&function.body);
            s.returned(function);
        });
        self.function = None;
    }

    /// What a body gives back agrees with what the header says, in number.
    fn returned(&mut self, function: &'a Function) {
        let wanted = function.returns.len();
        match &function.body.value {
            None if wanted == 0 => {}
            None => {
                let end = function.body.span.end();
                self.report.error(
                    Diagnostic::error(Code::E0206, "a function that returns nothing")
                        .label(Span { lo: end.lo.saturating_sub(1), ..end }, "no value stands here")
                        .secondary(function.returns[0].span, "the header promises a value")
                        .help("end the body with the value, without `;`"),
                );
            }
            Some(value) => {
                let given = match &value.expr.kind {
                    kernel_dsl::ast::ExprKind::Tuple(parts) => {
                        parts.iter().for_each(|part| self.value(part));
                        parts.len()
                    }
                    _ => {
                        self.used(&value.expr, Use::Value);
                        1
                    }
                };
                if given != wanted {
                    self.report.error(
                        Diagnostic::error(
                            Code::E0206,
                            format!("the header promises {wanted} values, the body gives {given}"),
                        )
                        .label(value.expr.span, "the value of the function")
                        .secondary(function.header_span, "the header"),
                    );
                }
            }
        }
    }

    pub(super) fn no_value(&mut self, block: &'a kernel_dsl::ast::Block, what: &str) {
        if let Some(value) = &block.value {
            self.report.error(
                Diagnostic::error(Code::E0206, format!("{what} has no value"))
                    .label(value.expr.span, "a value that goes nowhere")
                    .help("only the body of a `fn` ends with a value"),
            );
        }
    }

    /// An element type that stores can write.
    pub(super) fn storable(&mut self, span: Span, dtype: Option<kernel_abi::DType>) {
        if dtype == Some(kernel_abi::DType::E2m1) {
            self.report.not_built(span, "stores of e2m1");
        }
    }
}

fn item_name(kind: &ItemKind, own: bool) -> Option<&Name> {
    match kind {
        ItemKind::Const(c) => Some(&c.name),
        ItemKind::Atom(atom) => Some(&atom.name),
        ItemKind::Fn(function) => Some(&function.name),
        ItemKind::Kernel(kernel) => own.then_some(&kernel.name),
        ItemKind::Target(_) | ItemKind::Import(_) => None,
    }
}

fn twice(name: &Name, at: Span, first: Span) -> Diagnostic {
    Diagnostic::error(Code::E0202, format!("`{}` is defined twice", name.text))
        .label(at, "the second definition")
        .secondary(first, "the first")
        .help("choose another name")
}

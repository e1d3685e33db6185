//! Reads every file without bindings.
//!
//! Assumes a tree of the parser. Guarantees, where it reports nothing: every name and operation is
//! known and used as what it is, every call has the arguments that its form asks for, headers are
//! complete, no function reaches itself, and everything that occurs is built in this version. It leaves
//! values, element types and shapes to instantiation.

mod expressions;
mod inline_ptx;
mod items;
mod statements;

use std::collections::BTreeMap;
use std::sync::Arc;

use kernel_abi::DType;
use kernel_dsl::ast::{Dim, Name, Qualifier, Type};
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::Checked;
use super::limits::MAX_DEPTH;
use super::mistakes::too_deep;
use super::program::{Modules, Program};
use super::report::{Outcome, Reporter};
use super::suggest::closest;
use super::template::KernelTemplate;

pub(super) fn check(program: &Program) -> Checked {
    let mut report = Reporter::default();
    let modules = program.modules(&mut report);
    let mut calls = Vec::new();
    for unit in 0..modules.units.len() {
        let mut checker = Checker {
            modules: &modules,
            unit,
            report: &mut report,
            calls: &mut calls,
            function: None,
            scopes: Vec::new(),
            depth: 0,
        };
        checker.unit();
    }
    report_recursion(&calls, &mut report);
    let modules = Arc::new(modules);
    let kernels = modules.units[0].file.kernels().count();
    let templates = (0..kernels).map(|at| KernelTemplate::new(modules.clone(), 0, at)).collect();
    Checked { templates, diagnostics: report.into_sorted() }
}

/// What a name stands for, as far as it is known without bindings.
#[derive(Debug, Clone, Copy)]
enum Known {
    Const,
    /// A scalar, a tile or a range.
    Value,
    /// An assignable tile; with or without a ring.
    Frag {
        ringed: bool,
    },
    Buffer {
        qualifier: Qualifier,
        dtype: Option<DType>,
    },
    /// A tile in shared memory or a view of one; with or without a ring.
    Smem {
        ringed: bool,
    },
    /// What `mma … via` names.
    Atom,
    /// A shape pack `..S`.
    Pack,
    /// Its declaration has been refused, so its uses are no news.
    Refused,
}

/// How an expression is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Value,
    Buffer,
    /// Whatever it is: its context has been refused.
    Any,
}

/// One function calls another.
struct CallEdge<'a> {
    caller: (usize, &'a str),
    callee: (usize, &'a str),
    span: Span,
}

struct Checker<'a, 'r> {
    modules: &'a Modules,
    unit: usize,
    report: &'r mut Reporter,
    calls: &'r mut Vec<CallEdge<'a>>,
    /// The function whose body is read.
    function: Option<&'a str>,
    scopes: Vec<BTreeMap<&'a str, (Known, Span)>>,
    depth: usize,
}

impl<'a> Checker<'a, '_> {
    fn scoped(&mut self, inner: impl FnOnce(&mut Self)) {
        self.scopes.push(BTreeMap::new());
        inner(self);
        self.scopes.pop();
    }

    /// Runs `inner` one level deeper; refuses trees that nest beyond reason.
    fn nested(&mut self, span: Span, inner: impl FnOnce(&mut Self)) {
        if self.depth >= MAX_DEPTH {
            self.report.error(too_deep(span));
            return;
        }
        self.depth += 1;
        inner(self);
        self.depth -= 1;
    }

    fn declare(&mut self, name: &'a Name, known: Known) {
        let Some(scope) = self.scopes.last_mut() else { return };
        if let Some((_, first)) = scope.get(name.text.as_str()) {
            let diagnostic =
                Diagnostic::error(Code::E0202, format!("`{}` is defined twice", name.text))
                    .label(name.span, "the second definition")
                    .secondary(*first, "the first")
                    .help("choose another name; a tile is changed by `=`");
            self.report.error(diagnostic);
            return;
        }
        scope.insert(&name.text, (known, name.span));
    }

    fn lookup(&self, name: &str) -> Option<(Known, Span)> {
        let local = self.scopes.iter().rev().find_map(|scope| scope.get(name).copied());
        local.or_else(|| {
            let constant = self.modules.constant(self.unit, name);
            let constant = constant.map(|(_, found)| (Known::Const, found.name.span));
            constant.or_else(|| {
                let (_, found) = self.modules.atom(self.unit, name)?;
                Some((Known::Atom, found.name.span))
            })
        })
    }

    /// Reports a name that stands for nothing.
    fn unknown(&mut self, name: &str, span: Span, extra: &[&str]) {
        if !self.modules.units[self.unit].complete {
            return;
        }
        if self.modules.function(self.unit, name).is_some() {
            self.report.error(
                Diagnostic::error(Code::E0221, format!("`{name}` is a function, not a value"))
                    .label(span, "a function")
                    .help(format!("call it: `{name}(…)`")),
            );
            return;
        }
        let mut candidates: Vec<&str> =
            self.scopes.iter().flat_map(|s| s.keys().copied()).collect();
        candidates.extend(self.modules.constant_names(self.unit));
        candidates.extend(self.modules.atom_names(self.unit));
        candidates.extend(extra);
        let mut diagnostic = Diagnostic::error(Code::E0201, format!("nothing is called `{name}`"))
            .label(span, "unknown name");
        if let Some(near) = closest(name, candidates) {
            diagnostic = diagnostic.help(format!("did you mean `{near}`?"));
        }
        self.report.error(diagnostic);
    }

    /// The element type of that name.
    fn dtype(&mut self, name: &Name) -> Outcome<DType> {
        dtype(name, self.report)
    }

    /// An element type of a tile or scalar in registers.
    fn register_dtype(&mut self, name: &Name) {
        // an unknown one has been reported
        let _ = self.dtype(name);
    }

    /// Extents; `_` and a new `..S` are legal where `parameter` is set.
    fn shape(&mut self, ty: &'a Type, parameter: bool) {
        for dim in &ty.shape {
            match dim {
                Dim::Extent(e) => self.value(e),
                Dim::Any(span) if !parameter => {
                    self.report.error(
                        Diagnostic::error(Code::E0205, "an extent that is not stated")
                            .label(*span, "`_` stands for any extent of an argument")
                            .help("write the extent"),
                    );
                }
                Dim::Any(_) => {}
                Dim::Rest(name) => match self.lookup(&name.text) {
                    Some((Known::Pack | Known::Refused, _)) => {}
                    Some(_) => self.declare(name, Known::Pack),
                    None if parameter => self.declare(name, Known::Pack),
                    None => self.unknown(&name.text, name.span, &[]),
                },
            }
        }
    }
}

/// The element type of that name.
pub(super) fn dtype(name: &Name, report: &mut Reporter) -> Outcome<DType> {
    DType::from_name(&name.text).ok_or_else(|| {
        let mut diagnostic =
            Diagnostic::error(Code::E0201, format!("`{}` is no element type", name.text))
                .label(name.span, "unknown type");
        let known = DType::ALL.map(DType::name);
        diagnostic = match (closest(&name.text, known), name.text.as_str()) {
            (_, "int") => diagnostic.help("`int` is the type of constants; write `i32`"),
            (_, "float") => diagnostic.help("`float` is the type of constants; write `f32`"),
            (Some(near), _) => diagnostic.help(format!("did you mean `{near}`?")),
            (None, _) => diagnostic.help(format!("known types are {}", known.join(", "))),
        };
        report.error(diagnostic)
    })
}

/// True for the types that are only ever packed in memory.
pub(super) fn is_packed(dtype: DType) -> bool {
    match dtype {
        DType::E4m3 | DType::E5m2 | DType::E2m1 | DType::Ue8m0 => true,
        DType::F32
        | DType::F16
        | DType::Bf16
        | DType::I8
        | DType::U8
        | DType::I32
        | DType::U32
        | DType::I64
        | DType::U64
        | DType::Bool => false,
    }
}

/// Reports each call that closes a circle of functions.
fn report_recursion(calls: &[CallEdge<'_>], report: &mut Reporter) {
    let mut reaches: BTreeMap<(usize, &str), Vec<&CallEdge<'_>>> = BTreeMap::new();
    for edge in calls {
        reaches.entry(edge.caller).or_default().push(edge);
    }
    let mut done: BTreeMap<(usize, &str), bool> = BTreeMap::new();
    for &start in reaches.keys() {
        if done.contains_key(&start) {
            continue;
        }
        done.insert(start, false);
        let mut path = vec![(start, 0)];
        while let Some((node, next)) = path.last_mut() {
            let Some(edge) = reaches.get(node).and_then(|edges| edges.get(*next)) else {
                done.insert(*node, true);
                path.pop();
                continue;
            };
            *next += 1;
            match done.get(&edge.callee) {
                None => {
                    done.insert(edge.callee, false);
                    path.push((edge.callee, 0));
                }
                Some(true) => {}
                Some(false) => {
                    let name = edge.callee.1;
                    report.error(
                        Diagnostic::error(Code::E0213, format!("`{name}` calls itself"))
                            .label(edge.span, "this call leads back to the function it stands in")
                            .help("calls are inlined; write a loop"),
                    );
                }
            }
        }
    }
}

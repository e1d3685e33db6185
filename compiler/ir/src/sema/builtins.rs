//! The operations of the language by name, with the form of their arguments.

use kernel_abi::DType;
use kernel_dsl::ast::{Arg, Call, Expr, ExprKind};
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use crate::ops::{ReduceOp, UnaryOp};

/// What a call of a known name does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Builtin {
    Unary(UnaryOp),
    Min,
    Max,
    CeilDiv,
    Fma,
    Select,
    Convert(DType),
    ScaleUp,
    Iota,
    Splat,
    Reduce(ReduceOp),
    Argmax,
    Contract,
    Dot,
    Relayout,
    Concat,
    Scan,
    Share,
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form {
    /// Dotted name.
    pub(super) name: &'static str,
    /// What it does.
    pub(super) builtin: Builtin,
    /// How it is written.
    pub(super) form: &'static str,
    /// Arguments in order; `axis` may be given by name.
    params: &'static [&'static str],
    /// Whether more arguments may follow.
    variadic: bool,
    /// A word that may stand among the arguments.
    word: Option<&'static str>,
}

const fn form(
    name: &'static str,
    builtin: Builtin,
    form: &'static str,
    params: &'static [&'static str],
) -> Form {
    Form { name, builtin, form, params, variadic: false, word: None }
}

/// Every operation that is built.
pub(super) const FORMS: &[Form] = &[
    form("abs", Builtin::Unary(UnaryOp::Abs), "abs(x)", &["x"]),
    form("exp", Builtin::Unary(UnaryOp::Exp), "exp(x)", &["x"]),
    form("exp2", Builtin::Unary(UnaryOp::Exp2), "exp2(x)", &["x"]),
    form("log2", Builtin::Unary(UnaryOp::Log2), "log2(x)", &["x"]),
    form("tanh", Builtin::Unary(UnaryOp::Tanh), "tanh(x)", &["x"]),
    form("sigmoid", Builtin::Unary(UnaryOp::Sigmoid), "sigmoid(x)", &["x"]),
    form("rsqrt", Builtin::Unary(UnaryOp::Rsqrt), "rsqrt(x)", &["x"]),
    form("sqrt", Builtin::Unary(UnaryOp::Sqrt), "sqrt(x)", &["x"]),
    form("min", Builtin::Min, "min(a, b)", &["a", "b"]),
    form("max", Builtin::Max, "max(a, b)", &["a", "b"]),
    form("ceil_div", Builtin::CeilDiv, "ceil_div(a, b)", &["a", "b"]),
    form("fma", Builtin::Fma, "fma(a, b, c)", &["a", "b", "c"]),
    form("select", Builtin::Select, "select(cond, a, b)", &["cond", "a", "b"]),
    form("f32", Builtin::Convert(DType::F32), "f32(x)", &["x"]),
    form("f16", Builtin::Convert(DType::F16), "f16(x)", &["x"]),
    form("e4m3", Builtin::Convert(DType::E4m3), "e4m3(x)", &["x"]),
    form("e5m2", Builtin::Convert(DType::E5m2), "e5m2(x)", &["x"]),
    form("ue8m0", Builtin::Convert(DType::Ue8m0), "ue8m0(x)", &["x"]),
    form("ue8m0.up", Builtin::ScaleUp, "ue8m0.up(x)", &["x"]),
    form("bf16", Builtin::Convert(DType::Bf16), "bf16(x)", &["x"]),
    form("i8", Builtin::Convert(DType::I8), "i8(x)", &["x"]),
    form("u8", Builtin::Convert(DType::U8), "u8(x)", &["x"]),
    form("i32", Builtin::Convert(DType::I32), "i32(x)", &["x"]),
    form("u32", Builtin::Convert(DType::U32), "u32(x)", &["x"]),
    form("i64", Builtin::Convert(DType::I64), "i64(x)", &["x"]),
    form("u64", Builtin::Convert(DType::U64), "u64(x)", &["x"]),
    form("iota", Builtin::Iota, "iota(n)", &["n"]),
    Form {
        name: "splat",
        builtin: Builtin::Splat,
        form: "splat(value, extent, …)",
        params: &["value", "extent"],
        variadic: true,
        word: None,
    },
    form("reduce.add", Builtin::Reduce(ReduceOp::Add), "reduce.add(x, axis = k)", &["x", "axis"]),
    form("reduce.max", Builtin::Reduce(ReduceOp::Max), "reduce.max(x, axis = k)", &["x", "axis"]),
    form("reduce.min", Builtin::Reduce(ReduceOp::Min), "reduce.min(x, axis = k)", &["x", "axis"]),
    Form {
        name: "scan.add",
        builtin: Builtin::Scan,
        form: "scan.add(x, axis = k, exclusive)",
        params: &["x", "axis"],
        variadic: false,
        word: Some("exclusive"),
    },
    form("argmax", Builtin::Argmax, "let (v, i) = argmax(x, axis = k);", &["x", "axis"]),
    form("contract", Builtin::Contract, "contract(\"r k, k -> r\", a, b)", &["letters", "a", "b"]),
    form("dot", Builtin::Dot, "dot(a, b)", &["a", "b"]),
    form("relayout", Builtin::Relayout, "relayout(x)", &["x"]),
    form("concat", Builtin::Concat, "concat(a, b, axis = k)", &["a", "b", "axis"]),
    form("share", Builtin::Share, "prefetch.l2 buffer[share(i, of, n)];", &["i", "of", "n"]),
];

/// Operations of the language that this version does not build; a trailing `*` stands for any rest.
const NOT_BUILT: &[&str] = &[
    "transpose",
    "slice",
    "multimem.*",
    "bytes",
    "exp.fast",
    "exp2.fast",
    "log2.fast",
    "tanh.fast",
    "sigmoid.fast",
    "rsqrt.fast",
    "rcp.fast",
    "e2m1",
    "f16.scaled",
    "mma_sync",
    "wgmma",
    "tcgen05",
    "swizzle",
    "composition",
];

/// The operation of that name.
pub(super) fn find(name: &str) -> Option<&'static Form> {
    FORMS.iter().find(|form| form.name == name)
}

/// Whether the language has an operation of that name which this version does not build.
pub(super) fn is_not_built(name: &str) -> bool {
    NOT_BUILT.iter().any(|known| match known.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => *known == name,
    })
}

/// Names for "did you mean".
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    FORMS.iter().map(|form| form.name)
}

/// Whether an argument is the word of the form.
fn is_word(form: &Form, arg: &Arg) -> bool {
    match (&arg.name, &arg.value.kind, form.word) {
        (None, ExprKind::Ref(reference), Some(word)) => {
            reference.at.is_empty() && reference.path.is(word)
        }
        (_, _, _) => false,
    }
}

/// Whether the word of the form stands among the arguments.
pub(super) fn has_word(form: &Form, call: &Call) -> bool {
    call.args.iter().any(|arg| is_word(form, arg))
}

/// The arguments in the order of the form, or what is wrong with them.
pub(super) fn arrange<'a>(
    form: &Form,
    call: &'a Call,
    span: Span,
) -> Result<Vec<&'a Expr>, Diagnostic> {
    let wrong = |at: Span, found: String| {
        Diagnostic::error(Code::E0206, format!("arguments that `{}` does not take", form.name))
            .label(at, found)
            .help(format!("write `{}`", form.form))
    };
    if let Some(first) = call.generics.first() {
        return Err(wrong(first.span, "an operation takes no `<…>`".to_owned()));
    }
    let mut slots: Vec<Option<&'a Expr>> = vec![None; form.params.len()];
    let mut rest = Vec::new();
    let mut next = 0;
    for Arg { name, value } in call.args.iter().filter(|arg| !is_word(form, arg)) {
        let position = match name {
            Some(name) if name.text == "axis" => {
                form.params.iter().position(|p| *p == name.text).ok_or_else(|| {
                    wrong(name.span, format!("there is no argument `{}`", name.text))
                })?
            }
            Some(name) => {
                return Err(wrong(name.span, format!("there is no argument `{}`", name.text)));
            }
            None => {
                next += 1;
                next - 1
            }
        };
        match slots.get_mut(position) {
            Some(slot @ None) => *slot = Some(value),
            Some(Some(_)) => return Err(wrong(value.span, "this argument is given twice".into())),
            None if form.variadic => rest.push(value),
            None => {
                let most = form.params.len();
                return Err(wrong(value.span, format!("this is one more than {most}")));
            }
        }
    }
    if let Some(missing) = slots.iter().position(Option::is_none) {
        return Err(wrong(span, format!("`{}` is missing", form.params[missing])));
    }
    Ok(slots.into_iter().flatten().chain(rest).collect())
}

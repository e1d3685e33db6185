//! Expressions and types as docs, with the brackets that are needed and no others.

use super::doc::{Doc, bracketed, commas, text};
use crate::ast::{
    ArchPattern, Arg, BinaryOp, Call, Callee, Dim, Domain, DomainKind, Evict, Expr, ExprKind,
    Index, IndexKind, Instance, InstanceKind, LoadExpr, Order, Policy, Range, RangeEnd, Ref, Scope,
    SpreadEntry, Type,
};

/// How tightly a form binds; the grammar has a rule for each.
type Strength = u8;
/// `value`: anything, ranges too.
const VALUE: Strength = 0;
/// `cond`
const COND: Strength = 1;
/// `chain`: the loosest operator; operators follow with their own strength.
const CHAIN: Strength = 2;
const UNARY: Strength = 11;
const LOAD: Strength = 12;
/// `operand`
const OPERAND: Strength = 13;
const ATOM: Strength = 14;

fn strength(expr: &Expr) -> Strength {
    match &expr.kind {
        ExprKind::Range(_) => VALUE,
        ExprKind::Conditional(..) | ExprKind::ArriveLast(_) => COND,
        ExprKind::Binary(op, ..) => COND + op.strength(),
        ExprKind::Unary(..) => UNARY,
        ExprKind::Load(_) => LOAD,
        ExprKind::Call(call)
            if call.via.is_some() || call.order.is_some() || call.scope.is_some() =>
        {
            LOAD
        }
        ExprKind::Index(..) | ExprKind::Field(..) | ExprKind::Transpose(_) => OPERAND,
        ExprKind::Call(_)
        | ExprKind::Int(_)
        | ExprKind::Float(_)
        | ExprKind::Inf
        | ExprKind::Bool(_)
        | ExprKind::Str(_)
        | ExprKind::Each
        | ExprKind::Ref(_)
        | ExprKind::Tuple(_)
        | ExprKind::Spread(_)
        | ExprKind::Layout(..)
        | ExprKind::MatchArch(_) => ATOM,
    }
}

/// A value: an expression or a range.
pub(super) fn value(expr: &Expr) -> Doc {
    at_least(expr, VALUE)
}

/// An expression that is no range without brackets.
pub(super) fn cond(expr: &Expr) -> Doc {
    at_least(expr, COND)
}

/// An expression without operators outside of brackets.
pub(super) fn operand(expr: &Expr) -> Doc {
    at_least(expr, OPERAND)
}

/// A `cond` with `order` or `scope` behind it, which an atomic at its end would take.
pub(super) fn cond_before_order(expr: &Expr) -> Doc {
    if ends_with(expr, is_atomic) { in_brackets(expr) } else { cond(expr) }
}

/// An `operand` with clauses behind it, which a call would take.
pub(super) fn operand_before_clauses(expr: &Expr) -> Doc {
    if matches!(expr.kind, ExprKind::Call(_)) { in_brackets(expr) } else { operand(expr) }
}

/// The value behind `else` of a load.
pub(super) fn absent(expr: &Expr) -> Doc {
    if ends_with(expr, |part| matches!(part.kind, ExprKind::Load(_))) {
        in_brackets(expr)
    } else {
        at_least(expr, UNARY)
    }
}

fn at_least(expr: &Expr, wanted: Strength) -> Doc {
    if strength(expr) < wanted { in_brackets(expr) } else { bare(expr) }
}

fn in_brackets(expr: &Expr) -> Doc {
    bracketed("(", vec![bare(expr)], ")")
}

/// Whether the expression or a part at its right end, which what follows could join, is such a one.
fn ends_with(expr: &Expr, wanted: fn(&Expr) -> bool) -> bool {
    wanted(expr) || right_part(expr).is_some_and(|part| ends_with(part, wanted))
}

fn right_part(expr: &Expr) -> Option<&Expr> {
    match &expr.kind {
        ExprKind::Unary(_, operand) | ExprKind::Binary(_, _, operand) => Some(operand),
        ExprKind::Conditional(_, _, otherwise) => Some(otherwise),
        ExprKind::ArriveLast(arrive) => Some(&arrive.count),
        ExprKind::Load(load) => Some(load.absent.as_ref().unwrap_or(&load.source)),
        ExprKind::Range(range) => match (&range.until, &range.end) {
            (Some(until), _) => Some(until),
            (None, RangeEnd::Length(end) | RangeEnd::Exclusive(end) | RangeEnd::Inclusive(end)) => {
                Some(end)
            }
        },
        ExprKind::Int(_)
        | ExprKind::Float(_)
        | ExprKind::Inf
        | ExprKind::Bool(_)
        | ExprKind::Str(_)
        | ExprKind::Each
        | ExprKind::Ref(_)
        | ExprKind::Tuple(_)
        | ExprKind::Field(..)
        | ExprKind::Index(..)
        | ExprKind::Call(_)
        | ExprKind::Transpose(_)
        | ExprKind::Spread(_)
        | ExprKind::Layout(..)
        | ExprKind::MatchArch(_) => None,
    }
}

fn is_atomic(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Call(call) => match &call.callee {
            Callee::Path(path) => path.segments.len() > 1 && path.segments[0].text == "atomic",
            Callee::Method(..) => false,
        },
        _ => false,
    }
}

fn bare(expr: &Expr) -> Doc {
    match &expr.kind {
        ExprKind::Int(lit) => text(&*lit.text),
        ExprKind::Float(lit) => text(&*lit.text),
        ExprKind::Inf => text("inf"),
        ExprKind::Bool(value) => text(value.to_string()),
        ExprKind::Str(value) => text(quote(value)),
        ExprKind::Each => text("each"),
        ExprKind::Ref(reference) => self::reference(reference),
        ExprKind::Tuple(values) => tuple(values),
        ExprKind::Range(range) => self::range(range),
        ExprKind::Field(base, name) => {
            Doc::Group(vec![member_base(base), text(format!(".{}", name.text))])
        }
        ExprKind::Index(base, entries) => {
            let entries = commas(entries.iter().map(index));
            Doc::Group(vec![operand(base), bracketed("[", entries, "]")])
        }
        ExprKind::Call(call) => self::call(call),
        ExprKind::Transpose(base) => {
            let base = match &base.kind {
                ExprKind::Ref(reference) if !reference.at.is_empty() => in_brackets(base),
                _ => operand(base),
            };
            Doc::Group(vec![base, text("^T")])
        }
        ExprKind::Unary(op, operand) => {
            Doc::Group(vec![text(op.symbol()), at_least(operand, UNARY)])
        }
        ExprKind::Binary(op, left, right) => binary(*op, left, right),
        ExprKind::Conditional(test, then, otherwise) => Doc::Group(vec![
            at_least(test, CHAIN),
            Doc::Nest(vec![
                Doc::Line,
                text("? "),
                cond(then),
                Doc::Line,
                text(": "),
                cond(otherwise),
            ]),
        ]),
        ExprKind::Load(load) => self::load(load),
        ExprKind::ArriveLast(arrive) => Doc::Group(vec![
            text("arrive.last "),
            operand(&arrive.counter),
            text(" of "),
            cond(&arrive.count),
        ]),
        ExprKind::Spread(entries) => spread(entries),
        ExprKind::Layout(shape, stride) => {
            Doc::Group(vec![text("layout("), cond(shape), text(" : "), cond(stride), text(")")])
        }
        ExprKind::MatchArch(arms) => {
            let arms = arms.iter().map(|arm| {
                Doc::Group(vec![text(format!("{} => ", pattern(&arm.pattern))), value(&arm.value)])
            });
            let mut inner = vec![Doc::Line];
            inner.extend(commas(arms));
            Doc::Group(vec![text("match arch {"), Doc::Nest(inner), Doc::Line, text("}")])
        }
    }
}

/// A chain of operators of one strength breaks before each of them.
fn binary(op: BinaryOp, left: &Expr, right: &Expr) -> Doc {
    let mut links = vec![(op, right)];
    let mut first = left;
    while let ExprKind::Binary(inner, left, right) = &first.kind
        && inner.strength() == op.strength()
        && (*inner == op || !(is_rare(*inner) || is_rare(op)))
        && !op.is_comparison()
    {
        links.push((*inner, right));
        first = left;
    }
    let own = COND + op.strength();
    let mut rest = Vec::new();
    for (op, operand) in links.into_iter().rev() {
        rest.push(Doc::Line);
        rest.push(text(format!("{} ", op.symbol())));
        rest.push(side(op, operand, own + 1));
    }
    let first = side(op, first, if op.is_comparison() { own + 1 } else { own });
    Doc::Group(vec![first, Doc::Nest(rest)])
}

/// An operand of an operator; a mix that few people read without thinking gets brackets too.
fn side(op: BinaryOp, operand: &Expr, wanted: Strength) -> Doc {
    if let ExprKind::Binary(inner, ..) = operand.kind
        && inner != op
        && (is_rare(op) || is_rare(inner))
        && !(op.is_comparison() && inner == BinaryOp::Rem)
        && !(is_join(op) && inner.is_comparison())
    {
        return in_brackets(operand);
    }
    at_least(operand, wanted)
}

/// Operators whose strength is easily forgotten.
fn is_rare(op: BinaryOp) -> bool {
    match op {
        BinaryOp::Or
        | BinaryOp::And
        | BinaryOp::BitOr
        | BinaryOp::BitXor
        | BinaryOp::BitAnd
        | BinaryOp::Shl
        | BinaryOp::Shr
        | BinaryOp::Rem => true,
        BinaryOp::Eq
        | BinaryOp::Ne
        | BinaryOp::Lt
        | BinaryOp::Le
        | BinaryOp::Gt
        | BinaryOp::Ge
        | BinaryOp::Add
        | BinaryOp::Sub
        | BinaryOp::Mul
        | BinaryOp::Div => false,
    }
}

fn is_join(op: BinaryOp) -> bool {
    op == BinaryOp::And || op == BinaryOp::Or
}

fn reference(reference: &Ref) -> Doc {
    let mut docs = vec![text(reference.path.text())];
    docs.extend(reference.at.iter().map(instance));
    Doc::Group(docs)
}

fn instance(instance: &Instance) -> Doc {
    let in_form = |name: &str, inner: Doc| Doc::Group(vec![text(name), inner, text(")")]);
    match &instance.kind {
        InstanceKind::Slot(slot) => match &slot.kind {
            ExprKind::Int(_) | ExprKind::Each => Doc::Group(vec![text("@"), bare(slot)]),
            ExprKind::Ref(name) if name.at.is_empty() && name.path.segments.len() == 1 => {
                Doc::Group(vec![text("@"), bare(slot)])
            }
            _ => in_form("@(", cond(slot)),
        },
        InstanceKind::Cta(rank) => in_form("@cta(", cond(rank)),
        InstanceKind::Peer(rank) => in_form("@peer(", cond(rank)),
        InstanceKind::AllCtas => text("@cta(*)"),
        InstanceKind::AllPeers => text("@peer(*)"),
    }
}

fn tuple(values: &[Expr]) -> Doc {
    let mut list = commas(values.iter().map(value));
    if values.len() == 1 {
        list.push(text(","));
    }
    bracketed("(", list, ")")
}

fn range(range: &Range) -> Doc {
    let mut docs = vec![cond(&range.start)];
    let spaced = strength(&range.start) < UNARY;
    let (mark, end) = match &range.end {
        RangeEnd::Length(end) => (" .. + ", end),
        RangeEnd::Exclusive(end) => (if spaced { " .. " } else { ".." }, end),
        RangeEnd::Inclusive(end) => (if spaced { " ..= " } else { "..=" }, end),
    };
    docs.push(text(mark));
    docs.push(cond(end));
    docs.extend(until(range.until.as_ref()));
    Doc::Group(docs)
}

fn until(until: Option<&Expr>) -> Vec<Doc> {
    until.map_or(Vec::new(), |until| vec![text(" until "), cond(until)])
}

fn index(index: &Index) -> Doc {
    match &index.kind {
        IndexKind::All(end) => {
            let mut docs = vec![text(":")];
            docs.extend(until(end.as_ref()));
            Doc::Group(docs)
        }
        IndexKind::NewAxis => text("_"),
        IndexKind::At(expr, end) => {
            let mut docs = vec![value(expr)];
            docs.extend(until(end.as_ref()));
            Doc::Group(docs)
        }
    }
}

/// What stands before a `.`: a dotted name and a number would swallow it.
fn member_base(base: &Expr) -> Doc {
    match &base.kind {
        ExprKind::Ref(_) | ExprKind::Int(_) | ExprKind::Float(_) => in_brackets(base),
        _ => operand(base),
    }
}

fn call(call: &Call) -> Doc {
    let mut docs = match &call.callee {
        Callee::Path(path) => vec![text(path.text())],
        Callee::Method(base, name) => vec![member_base(base), text(format!(".{}", name.text))],
    };
    if !call.generics.is_empty() {
        docs.push(bracketed("<", commas(call.generics.iter().map(cond)), ">"));
    }
    docs.push(bracketed("(", commas(call.args.iter().map(arg)), ")"));
    if let Some(via) = &call.via {
        docs.push(text(format!(" via {}", via.text())));
    }
    docs.push(text(order_and_scope(call.order, call.scope)));
    Doc::Group(docs)
}

fn arg(arg: &Arg) -> Doc {
    match &arg.name {
        None => value(&arg.value),
        Some(name) => Doc::Group(vec![text(format!("{} = ", name.text)), value(&arg.value)]),
    }
}

fn load(load: &LoadExpr) -> Doc {
    let mut docs = vec![text("load "), operand(&load.source)];
    if let Some(value) = &load.absent {
        docs.push(text(" else "));
        docs.push(absent(value));
    }
    docs.push(text(policy(load.policy)));
    Doc::Group(docs)
}

/// Cache policy with a space before each word.
pub(super) fn policy(policy: Policy) -> String {
    let mut out = String::new();
    match policy.evict {
        Some(Evict::First) => out.push_str(" evict first"),
        Some(Evict::Last) => out.push_str(" evict last"),
        None => {}
    }
    if policy.no_allocate {
        out.push_str(" no_allocate");
    }
    out
}

/// `order` and `scope` with a space before each.
pub(super) fn order_and_scope(order: Option<Order>, scope: Option<Scope>) -> String {
    let mut out = String::new();
    if let Some(order) = order {
        out.push_str(" order ");
        out.push_str(order.word());
    }
    if let Some(scope) = scope {
        out.push_str(" scope ");
        out.push_str(scope.word());
    }
    out
}

/// `spread(…)`
pub(super) fn spread(entries: &[SpreadEntry]) -> Doc {
    let entries = entries
        .iter()
        .map(|entry| Doc::Group(vec![text(format!("{}: ", entry.key.text)), cond(&entry.axis)]));
    bracketed("spread(", commas(entries), ")")
}

/// `sm_90a | sm_100a`, `_`
pub(super) fn pattern(pattern: &ArchPattern) -> String {
    match pattern {
        ArchPattern::Any(_) => "_".to_owned(),
        ArchPattern::Targets(names) => {
            let names: Vec<&str> = names.iter().map(|name| name.text.as_str()).collect();
            names.join(" | ")
        }
    }
}

/// `bf16[M, K]`
pub(super) fn ty(ty: &Type) -> Doc {
    if ty.shape.is_empty() {
        return text(&*ty.dtype.text);
    }
    let dims = ty.shape.iter().map(|dim| match dim {
        Dim::Extent(extent) => cond(extent),
        Dim::Any(_) => text("_"),
        Dim::Rest(name) => text(format!("..{}", name.text)),
    });
    Doc::Group(vec![text(&*ty.dtype.text), bracketed("[", commas(dims), "]")])
}

/// `{1, 2}`, `0..n`
pub(super) fn domain(domain: &Domain) -> Doc {
    match &domain.kind {
        DomainKind::Set(values) => bracketed("{", commas(values.iter().map(cond)), "}"),
        DomainKind::Range(range) => value(range),
    }
}

/// A string literal.
pub(super) fn quote(value: &str) -> String {
    let mut out = String::with_capacity(value.len() + 2);
    out.push('"');
    for c in value.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

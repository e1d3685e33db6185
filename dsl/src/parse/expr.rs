//! Pairs of the grammar to expressions and types.
//!
//! Assumes pairs of one piece; offsets in them count from the start of the piece.

use std::cell::RefCell;
use std::sync::LazyLock;

use pest::iterators::Pair;
use pest::pratt_parser::{Assoc, Op, PrattParser};

use super::Rule;
use crate::ast::{
    ArchPattern, ArchValue, Arg, ArriveLast, BinaryOp, Call, Callee, Dim, Domain, DomainKind,
    Evict, Expr, ExprKind, FloatLit, Index, IndexKind, Instance, InstanceKind, IntLit, LoadExpr,
    Name, Order, Path, Policy, Range, RangeEnd, Ref, Scope, SpreadEntry, Text, Type, UnaryOp,
};
use crate::diag::{Code, Diagnostic};
use crate::source::{FileId, Span};

/// Infix operators, one row a strength, loosest first; prefix and postfix bind tighter.
const INFIX: &[&[(Rule, BinaryOp)]] = &[
    &[(Rule::or, BinaryOp::Or)],
    &[(Rule::and, BinaryOp::And)],
    &[
        (Rule::eq, BinaryOp::Eq),
        (Rule::ne, BinaryOp::Ne),
        (Rule::lt, BinaryOp::Lt),
        (Rule::le, BinaryOp::Le),
        (Rule::gt, BinaryOp::Gt),
        (Rule::ge, BinaryOp::Ge),
    ],
    &[(Rule::bit_or, BinaryOp::BitOr)],
    &[(Rule::bit_xor, BinaryOp::BitXor)],
    &[(Rule::bit_and, BinaryOp::BitAnd)],
    &[(Rule::shl, BinaryOp::Shl), (Rule::shr, BinaryOp::Shr)],
    &[(Rule::add, BinaryOp::Add), (Rule::sub, BinaryOp::Sub)],
    &[(Rule::mul, BinaryOp::Mul), (Rule::div, BinaryOp::Div), (Rule::rem, BinaryOp::Rem)],
];

static PRATT: LazyLock<PrattParser<Rule>> = LazyLock::new(|| {
    let mut parser = PrattParser::new();
    for row in INFIX {
        let row = row.iter().map(|&(rule, _)| Op::infix(rule, Assoc::Left));
        parser = parser.op(row.reduce(|a, b| a | b).expect("every row has an operator"));
    }
    parser.op(Op::prefix(Rule::neg) | Op::prefix(Rule::not) | Op::prefix(Rule::bit_not)).op(
        Op::postfix(Rule::transpose) | Op::postfix(Rule::index_list) | Op::postfix(Rule::member),
    )
});

fn binary_op(rule: Rule) -> BinaryOp {
    let found = INFIX.iter().flat_map(|row| row.iter()).find(|(r, _)| *r == rule);
    found.expect("PRATT knows the operators of INFIX only").1
}

/// The parts of a pair, taken by rule.
pub(super) struct Parts<'i>(Vec<Pair<'i, Rule>>);

impl<'i> Parts<'i> {
    pub(super) fn of(pair: Pair<'i, Rule>) -> Self {
        Self(pair.into_inner().collect())
    }

    /// Takes the first part of a rule out.
    pub(super) fn take(&mut self, rule: Rule) -> Option<Pair<'i, Rule>> {
        let at = self.0.iter().position(|pair| pair.as_rule() == rule)?;
        Some(self.0.remove(at))
    }

    /// Takes the first part of a rule that the grammar makes sure of.
    pub(super) fn need(&mut self, rule: Rule) -> Pair<'i, Rule> {
        self.take(rule).expect("the grammar has this part in every alternative")
    }

    /// Takes all parts of a rule out.
    pub(super) fn all(&mut self, rule: Rule) -> Vec<Pair<'i, Rule>> {
        let (wanted, rest) =
            std::mem::take(&mut self.0).into_iter().partition(|pair| pair.as_rule() == rule);
        self.0 = rest;
        wanted
    }

    pub(super) fn has(&self, rule: Rule) -> bool {
        self.0.iter().any(|pair| pair.as_rule() == rule)
    }
}

/// Builds nodes of one piece.
pub(super) struct Build {
    file: FileId,
    /// Offset of the piece in the file.
    base: u32,
    findings: RefCell<Vec<Diagnostic>>,
}

impl Build {
    pub(super) fn new(file: FileId, base: u32) -> Self {
        Self { file, base, findings: RefCell::default() }
    }

    pub(super) fn into_findings(self) -> Vec<Diagnostic> {
        self.findings.into_inner()
    }

    pub(super) fn report(&self, diagnostic: Diagnostic) {
        self.findings.borrow_mut().push(diagnostic);
    }

    /// The place of a pair without the white space that an absent last part leaves.
    pub(super) fn span(&self, pair: &Pair<'_, Rule>) -> Span {
        let lo = self.base + pair.as_span().start() as u32;
        Span::new(self.file, lo, lo + pair.as_str().trim_end().len() as u32)
    }

    pub(super) fn name(&self, pair: &Pair<'_, Rule>) -> Name {
        Name { text: pair.as_str().trim_end().to_owned(), span: self.span(pair) }
    }

    pub(super) fn names(&self, pairs: &[Pair<'_, Rule>]) -> Vec<Name> {
        pairs.iter().map(|pair| self.name(pair)).collect()
    }

    /// A dotted name; also one that starts with a word of the language, as `copy.tma` does.
    pub(super) fn path(&self, pair: &Pair<'_, Rule>) -> Path {
        let span = self.span(pair);
        let mut lo = span.lo;
        let segments = pair.as_str().trim_end().split('.').map(|text| {
            let hi = lo + text.len() as u32;
            let name = Name { text: text.to_owned(), span: Span::new(self.file, lo, hi) };
            lo = hi + 1;
            name
        });
        Path { segments: segments.collect(), span }
    }

    pub(super) fn text(&self, pair: &Pair<'_, Rule>) -> Text {
        let span = self.span(pair);
        Text { value: self.unescape(pair.as_str(), span), span }
    }

    fn unescape(&self, quoted: &str, span: Span) -> String {
        let inner = &quoted[1..quoted.len() - 1];
        let mut value = String::with_capacity(inner.len());
        let mut chars = inner.char_indices();
        while let Some((_, c)) = chars.next() {
            if c != '\\' {
                value.push(c);
                continue;
            }
            let (at, escaped) =
                chars.next().expect("the rule `string` has a character behind `\\`");
            match escaped {
                'n' => value.push('\n'),
                't' => value.push('\t'),
                '"' | '\\' => value.push(escaped),
                other => {
                    let lo = span.lo + at as u32;
                    let place = Span::new(self.file, lo, lo + 1 + other.len_utf8() as u32);
                    let message = format!("`\\{}` is no escape", other.escape_default());
                    let diagnostic = Diagnostic::error(Code::E0007, message)
                        .label(place, "unknown escape")
                        .help("known escapes are `\\n`, `\\t`, `\\\"` and `\\\\`");
                    self.report(diagnostic);
                }
            }
        }
        value
    }

    /// `value`: an expression or a range.
    pub(super) fn value(&self, pair: Pair<'_, Rule>) -> Expr {
        let span = self.span(&pair);
        let mut parts = Parts::of(pair);
        let start = self.cond(parts.need(Rule::cond));
        let Some(end) = parts.take(Rule::range_end) else { return start };
        let mut parts = Parts::of(end);
        let until = self.until(&mut parts);
        let bound = |rule, wrap: fn(Expr) -> RangeEnd, parts: &mut Parts<'_>| {
            parts.take(rule).map(|pair| wrap(self.only_cond(pair)))
        };
        let end = bound(Rule::to_inclusive, RangeEnd::Inclusive, &mut parts)
            .or_else(|| bound(Rule::to_length, RangeEnd::Length, &mut parts))
            .or_else(|| bound(Rule::to_exclusive, RangeEnd::Exclusive, &mut parts))
            .expect("`range_end` has one of three forms");
        Expr { kind: ExprKind::Range(Box::new(Range { start, end, until })), span }
    }

    fn until(&self, parts: &mut Parts<'_>) -> Option<Expr> {
        parts.take(Rule::until).map(|pair| self.only_cond(pair))
    }

    /// The one `cond` of a clause such as `ring` or `step`.
    pub(super) fn only_cond(&self, pair: Pair<'_, Rule>) -> Expr {
        self.cond(Parts::of(pair).need(Rule::cond))
    }

    /// The `cond` of a clause that may be absent.
    pub(super) fn clause(&self, parts: &mut Parts<'_>, rule: Rule) -> Option<Expr> {
        parts.take(rule).map(|pair| self.only_cond(pair))
    }

    pub(super) fn cond(&self, pair: Pair<'_, Rule>) -> Expr {
        let span = self.span(&pair);
        let mut parts = Parts::of(pair);
        let first = self.operators(parts.need(Rule::chain));
        let Some(then) = parts.take(Rule::cond) else { return first };
        let then = Box::new(self.cond(then));
        let otherwise = Box::new(self.cond(parts.need(Rule::cond)));
        Expr { kind: ExprKind::Conditional(Box::new(first), then, otherwise), span }
    }

    /// `chain`, `signed`, `operand` and `generic_arg`: operands with their operators.
    pub(super) fn operators(&self, pair: Pair<'_, Rule>) -> Expr {
        PRATT
            .map_primary(|pair| self.primary(pair))
            .map_prefix(|op, operand| {
                let kind = match op.as_rule() {
                    Rule::neg => UnaryOp::Neg,
                    Rule::not => UnaryOp::Not,
                    _ => UnaryOp::BitNot,
                };
                let span = self.span(&op).to(operand.span);
                Expr { kind: ExprKind::Unary(kind, Box::new(operand)), span }
            })
            .map_postfix(|base, op| self.postfix(base, op))
            .map_infix(|left, op, right| self.infix(left, &op, right))
            .parse(pair.into_inner())
    }

    fn infix(&self, left: Expr, op: &Pair<'_, Rule>, right: Expr) -> Expr {
        let symbol = binary_op(op.as_rule());
        if let ExprKind::Binary(first, inner, _) = &left.kind
            && first.is_comparison()
            && symbol.is_comparison()
            && inner.span.lo == left.span.lo
        {
            let diagnostic = Diagnostic::error(Code::E0014, "comparisons do not chain")
                .label(self.span(op), format!("compares the result of `{}`", first.symbol()))
                .secondary(left.span, "this is true or false")
                .help("join two comparisons with `&&`, or put one into brackets");
            self.report(diagnostic);
        }
        let span = left.span.to(right.span);
        Expr { kind: ExprKind::Binary(symbol, Box::new(left), Box::new(right)), span }
    }

    fn postfix(&self, base: Expr, op: Pair<'_, Rule>) -> Expr {
        let span = base.span.to(self.span(&op));
        let kind = match op.as_rule() {
            Rule::transpose => ExprKind::Transpose(Box::new(base)),
            Rule::index_list => {
                let entries = Parts::of(op).all(Rule::index);
                ExprKind::Index(
                    Box::new(base),
                    entries.into_iter().map(|e| self.index(e)).collect(),
                )
            }
            _ => {
                let mut parts = Parts::of(op);
                let name = self.name(&parts.need(Rule::word));
                match parts.take(Rule::args) {
                    None => ExprKind::Field(Box::new(base), name),
                    Some(args) => ExprKind::Call(Box::new(Call {
                        callee: Callee::Method(base, name),
                        generics: Vec::new(),
                        args: self.args(args),
                        via: self.via(&mut parts),
                        order: None,
                        scope: None,
                    })),
                }
            }
        };
        Expr { kind, span }
    }

    fn index(&self, pair: Pair<'_, Rule>) -> Index {
        let span = self.span(&pair);
        let mut parts = Parts::of(pair);
        let until = self.until(&mut parts);
        let kind = match parts.take(Rule::value) {
            Some(value) => {
                let value = self.value(value);
                if matches!(value.kind, ExprKind::Range(_)) && until.is_some() {
                    self.repeated(span, "`until`");
                }
                IndexKind::At(value, until)
            }
            None if parts.has(Rule::hole) => IndexKind::NewAxis,
            None => IndexKind::All(until),
        };
        Index { kind, span }
    }

    fn primary(&self, pair: Pair<'_, Rule>) -> Expr {
        let span = self.span(&pair);
        let kind = match pair.as_rule() {
            Rule::int => self.int(&pair),
            Rule::float => self.float(&pair),
            Rule::inf => ExprKind::Inf,
            Rule::boolean => ExprKind::Bool(pair.as_str() == "true"),
            Rule::string => ExprKind::Str(self.unescape(pair.as_str(), span)),
            Rule::each => ExprKind::Each,
            Rule::paren => return self.paren(pair),
            Rule::load_expr => {
                let mut parts = Parts::of(pair);
                let source = self.operators(parts.need(Rule::operand));
                let absent = self.absent(&mut parts);
                let policy = self.policy(&mut parts);
                ExprKind::Load(Box::new(LoadExpr { source, absent, policy }))
            }
            Rule::arrive_last => {
                let mut parts = Parts::of(pair);
                let counter = self.operators(parts.need(Rule::operand));
                let count = self.cond(parts.need(Rule::cond));
                ExprKind::ArriveLast(Box::new(ArriveLast { counter, count }))
            }
            Rule::match_arch => {
                let arms = Parts::of(pair).all(Rule::arch_value);
                ExprKind::MatchArch(arms.into_iter().map(|arm| self.arch_value(arm)).collect())
            }
            Rule::spread => ExprKind::Spread(self.spread(pair)),
            Rule::layout => {
                let mut parts = Parts::of(pair);
                let shape = self.cond(parts.need(Rule::cond));
                let stride = self.cond(parts.need(Rule::cond));
                ExprKind::Layout(Box::new(shape), Box::new(stride))
            }
            Rule::atomic => {
                let mut parts = Parts::of(pair);
                let mut call = self.call(&mut parts);
                call.order = self.order(&mut parts);
                call.scope = self.scope(&mut parts);
                ExprKind::Call(Box::new(call))
            }
            Rule::generic_call => {
                let mut parts = Parts::of(pair);
                let head = parts.need(Rule::generic_head);
                let generics = parts.all(Rule::generic_arg);
                ExprKind::Call(Box::new(Call {
                    callee: Callee::Path(self.path(&Parts::of(head).need(Rule::path))),
                    generics: generics.into_iter().map(|arg| self.operators(arg)).collect(),
                    args: self.args(parts.need(Rule::args)),
                    via: self.via(&mut parts),
                    order: None,
                    scope: None,
                }))
            }
            Rule::generic_path => {
                let path = self.path(&Parts::of(pair).need(Rule::path));
                ExprKind::Ref(Ref { path, at: Vec::new() })
            }
            _ => {
                let mut parts = Parts::of(pair);
                if parts.has(Rule::args) {
                    ExprKind::Call(Box::new(self.call(&mut parts)))
                } else {
                    let path = self.path(&parts.need(Rule::path));
                    let at = parts.all(Rule::instance);
                    let at = at.into_iter().map(|instance| self.instance(instance)).collect();
                    ExprKind::Ref(Ref { path, at })
                }
            }
        };
        Expr { kind, span }
    }

    fn int(&self, pair: &Pair<'_, Rule>) -> ExprKind {
        let text = pair.as_str().to_owned();
        let digits = text.replace('_', "");
        let value = match digits.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => digits.parse(),
        };
        let value = value.unwrap_or_else(|_| {
            let diagnostic =
                Diagnostic::error(Code::E0006, "this integer does not fit into 64 bits")
                    .label(self.span(pair), "at most 18446744073709551615");
            self.report(diagnostic);
            0
        });
        ExprKind::Int(IntLit { value, text })
    }

    fn float(&self, pair: &Pair<'_, Rule>) -> ExprKind {
        let text = pair.as_str().to_owned();
        let value = text.replace('_', "").parse().unwrap_or(f64::INFINITY);
        if value == f64::INFINITY {
            let diagnostic = Diagnostic::error(Code::E0006, "this number is not finite in f64")
                .label(self.span(pair), "too large")
                .help("write `inf` for infinity");
            self.report(diagnostic);
        }
        ExprKind::Float(FloatLit { value, text })
    }

    fn paren(&self, pair: Pair<'_, Rule>) -> Expr {
        let span = self.span(&pair);
        let mut parts = Parts::of(pair);
        let one_tuple = parts.has(Rule::trailing_comma);
        let values = parts.all(Rule::value);
        let mut values: Vec<Expr> = values.into_iter().map(|value| self.value(value)).collect();
        if values.len() == 1 && !one_tuple {
            let inner = values.pop().expect("it has one");
            return Expr { span, ..inner };
        }
        Expr { kind: ExprKind::Tuple(values), span }
    }

    fn call(&self, parts: &mut Parts<'_>) -> Call {
        Call {
            callee: Callee::Path(self.path(&parts.need(Rule::path))),
            generics: Vec::new(),
            args: self.args(parts.need(Rule::args)),
            via: self.via(parts),
            order: None,
            scope: None,
        }
    }

    fn args(&self, pair: Pair<'_, Rule>) -> Vec<Arg> {
        let args = Parts::of(pair).all(Rule::arg);
        let arg = |pair| {
            let mut parts = Parts::of(pair);
            let name = parts.take(Rule::arg_name).map(|name| self.name(&name));
            Arg { name, value: self.value(parts.need(Rule::value)) }
        };
        args.into_iter().map(arg).collect()
    }

    fn instance(&self, pair: Pair<'_, Rule>) -> Instance {
        let span = self.span(&pair);
        let mut parts = Parts::of(pair);
        let kind = if let Some(cta) = parts.take(Rule::cta_instance) {
            match Parts::of(cta).take(Rule::cond) {
                Some(rank) => InstanceKind::Cta(Box::new(self.cond(rank))),
                None => InstanceKind::AllCtas,
            }
        } else if let Some(peer) = parts.take(Rule::peer_instance) {
            match Parts::of(peer).take(Rule::cond) {
                Some(rank) => InstanceKind::Peer(Box::new(self.cond(rank))),
                None => InstanceKind::AllPeers,
            }
        } else {
            InstanceKind::Slot(Box::new(self.slot(parts.need(Rule::slot))))
        };
        Instance { kind, span }
    }

    fn slot(&self, pair: Pair<'_, Rule>) -> Expr {
        let span = self.span(&pair);
        let mut parts = Parts::of(pair);
        if let Some(cond) = parts.take(Rule::cond) {
            return Expr { span, ..self.cond(cond) };
        }
        let kind = if let Some(int) = parts.take(Rule::int) {
            self.int(&int)
        } else if let Some(name) = parts.take(Rule::name) {
            let name = self.name(&name);
            let path = Path { span: name.span, segments: vec![name] };
            ExprKind::Ref(Ref { path, at: Vec::new() })
        } else {
            ExprKind::Each
        };
        Expr { kind, span }
    }

    pub(super) fn absent(&self, parts: &mut Parts<'_>) -> Option<Expr> {
        let pair = parts.take(Rule::absent)?;
        Some(self.operators(Parts::of(pair).need(Rule::signed)))
    }

    pub(super) fn policy(&self, parts: &mut Parts<'_>) -> Policy {
        let mut policy = Policy::default();
        for pair in parts.all(Rule::policy) {
            let span = self.span(&pair);
            let words = Parts::of(pair);
            let repeated = if words.has(Rule::kw_no_allocate) {
                std::mem::replace(&mut policy.no_allocate, true)
            } else {
                let evict = if words.has(Rule::kw_first) { Evict::First } else { Evict::Last };
                policy.evict.replace(evict).is_some()
            };
            if repeated {
                self.repeated(span, "cache policy");
            }
        }
        policy
    }

    pub(super) fn repeated(&self, span: Span, what: &str) {
        let diagnostic = Diagnostic::error(Code::E0012, format!("this {what} is given twice"))
            .label(span, "already given before");
        self.report(diagnostic);
    }

    pub(super) fn via(&self, parts: &mut Parts<'_>) -> Option<Path> {
        let pair = parts.take(Rule::via)?;
        Some(self.path(&Parts::of(pair).need(Rule::path)))
    }

    pub(super) fn order(&self, parts: &mut Parts<'_>) -> Option<Order> {
        let pair = parts.take(Rule::order)?;
        let all = [Order::Relaxed, Order::Acquire, Order::Release, Order::AcqRel];
        let word = Parts::of(pair).need(Rule::order_word);
        all.into_iter().find(|order| order.word() == word.as_str())
    }

    pub(super) fn scope(&self, parts: &mut Parts<'_>) -> Option<Scope> {
        let pair = parts.take(Rule::scope)?;
        let all = [Scope::Cta, Scope::Cluster, Scope::Gpu, Scope::Sys];
        let word = Parts::of(pair).need(Rule::scope_word);
        all.into_iter().find(|scope| scope.word() == word.as_str())
    }

    pub(super) fn spread(&self, pair: Pair<'_, Rule>) -> Vec<SpreadEntry> {
        let list = Parts::of(pair).need(Rule::spread_list);
        let entry = |pair| {
            let mut parts = Parts::of(pair);
            let key = self.name(&parts.need(Rule::name));
            SpreadEntry { key, axis: self.cond(parts.need(Rule::cond)) }
        };
        Parts::of(list).all(Rule::spread_entry).into_iter().map(entry).collect()
    }

    fn arch_value(&self, pair: Pair<'_, Rule>) -> ArchValue {
        let mut parts = Parts::of(pair);
        let pattern = self.arch_pattern(parts.need(Rule::arch_pattern));
        ArchValue { pattern, value: self.value(parts.need(Rule::value)) }
    }

    pub(super) fn arch_pattern(&self, pair: Pair<'_, Rule>) -> ArchPattern {
        let mut parts = Parts::of(pair);
        match parts.take(Rule::hole) {
            Some(hole) => ArchPattern::Any(self.span(&hole)),
            None => ArchPattern::Targets(self.names(&parts.all(Rule::name))),
        }
    }

    pub(super) fn ty(&self, pair: Pair<'_, Rule>) -> Type {
        let span = self.span(&pair);
        let mut parts = Parts::of(pair);
        let dtype = self.name(&parts.need(Rule::dtype));
        let shape = parts.all(Rule::dim).into_iter().map(|dim| self.dim(dim)).collect();
        Type { dtype, shape, span }
    }

    fn dim(&self, pair: Pair<'_, Rule>) -> Dim {
        let mut parts = Parts::of(pair);
        if let Some(rest) = parts.take(Rule::rest_of_shape) {
            Dim::Rest(self.name(&Parts::of(rest).need(Rule::name)))
        } else if let Some(hole) = parts.take(Rule::hole) {
            Dim::Any(self.span(&hole))
        } else {
            Dim::Extent(self.cond(parts.need(Rule::cond)))
        }
    }

    pub(super) fn domain(&self, pair: Pair<'_, Rule>) -> Domain {
        let span = self.span(&pair);
        let mut parts = Parts::of(pair);
        let kind = match parts.take(Rule::domain_set) {
            Some(set) => {
                let values = Parts::of(set).all(Rule::cond);
                DomainKind::Set(values.into_iter().map(|value| self.cond(value)).collect())
            }
            None => DomainKind::Range(self.range(parts.need(Rule::value))),
        };
        Domain { kind, span }
    }

    /// A value that must be a range.
    pub(super) fn range(&self, pair: Pair<'_, Rule>) -> Expr {
        let value = self.value(pair);
        if !matches!(value.kind, ExprKind::Range(_)) {
            let diagnostic =
                Diagnostic::error(Code::E0010, "expected a range, found a single value")
                    .label(value.span, "no range")
                    .help("a range is written `0..n`, `0..=n` or `start .. + length`");
            self.report(diagnostic);
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_and_the_pratt_parser_agree_on_strengths() {
        for (row, ops) in INFIX.iter().enumerate() {
            for (_, op) in *ops {
                assert_eq!(usize::from(op.strength()), row + 1, "{op:?}");
            }
        }
    }
}

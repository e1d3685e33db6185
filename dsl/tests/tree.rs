//! What readers of the tree rely on: spans, waivers, and the order of operators.

use kernel_dsl::ast::{BinaryOp, Expr, ExprKind, ItemKind, Stmt, StmtKind};
use kernel_dsl::{Code, Parsed, SourceMap, parse, parse_expr};

const SYNTAX: &str = include_str!("../../tests/suite/parse/ok/syntax.tile");

fn parsed(text: &str) -> (SourceMap, Parsed) {
    let mut sources = SourceMap::new();
    let file = sources.add("test.tile", text);
    let parsed = parse(&sources, file);
    (sources, parsed)
}

fn expr(text: &str) -> Expr {
    let mut sources = SourceMap::new();
    let file = sources.add("test.tile", text);
    parse_expr(&sources, file).expect("the text is an expression")
}

/// An expression with a bracket around every operation.
fn shown(expr: &Expr) -> String {
    match &expr.kind {
        ExprKind::Ref(name) => name.path.text(),
        ExprKind::Int(lit) => lit.text.clone(),
        ExprKind::Unary(op, operand) => format!("({}{})", op.symbol(), shown(operand)),
        ExprKind::Binary(op, left, right) => {
            format!("({} {} {})", shown(left), op.symbol(), shown(right))
        }
        ExprKind::Conditional(test, then, otherwise) => {
            format!("({} ? {} : {})", shown(test), shown(then), shown(otherwise))
        }
        ExprKind::Load(load) => format!("(load {})", shown(&load.source)),
        ExprKind::Index(base, _) => format!("{}[]", shown(base)),
        ExprKind::Transpose(base) => format!("{}^T", shown(base)),
        other => panic!("{other:?} is not part of this test"),
    }
}

#[test]
fn operators_bind_as_the_grammar_says() {
    let cases = [
        ("a + b * c - d", "((a + (b * c)) - d)"),
        ("a - b - c", "((a - b) - c)"),
        ("-a * b", "((-a) * b)"),
        ("!a && b || c", "(((!a) && b) || c)"),
        ("a & 1 == 0", "((a & 1) == 0)"),
        ("a | b ^ c & d << 1 + e", "(a | (b ^ (c & (d << (1 + e)))))"),
        ("a < b && c >= d", "((a < b) && (c >= d))"),
        ("a ? b : c ? d : e", "(a ? b : (c ? d : e))"),
        ("load a[i] - b", "((load a[]) - b)"),
        ("-load a[i] * b", "((-(load a[])) * b)"),
        ("a^T * b", "(a^T * b)"),
        ("a ^ b", "(a ^ b)"),
        ("(a + b) % c", "((a + b) % c)"),
        ("a<b", "(a < b)"),
        ("~a >> 2", "((~a) >> 2)"),
    ];
    for (text, wanted) in cases {
        assert_eq!(shown(&expr(text)), wanted, "{text}");
    }
}

#[test]
fn generic_arguments_stand_directly_behind_a_name() {
    assert!(matches!(expr("f<A, B>(x)").kind, ExprKind::Call(call) if call.generics.len() == 2));
    assert!(matches!(expr("f < A").kind, ExprKind::Binary(BinaryOp::Lt, ..)));
    assert!(matches!(expr("f(a < b, c > (d))").kind, ExprKind::Call(call) if call.args.len() == 2));
}

#[test]
fn spans_cover_their_text() {
    let (sources, parsed) = parsed(SYNTAX);
    assert_eq!(parsed.diagnostics, []);
    let mut count = 0;
    for item in &parsed.file.items {
        let text = sources.snippet(item.span);
        assert!(text.ends_with([';', '}']), "{text}");
        if let ItemKind::Kernel(kernel) = &item.kind {
            assert!(sources.snippet(kernel.header_span).ends_with("\"all_forms\""));
            assert_eq!(sources.snippet(kernel.buffers[4].span), "inout counter done: gmem u32[1]");
            assert_eq!(sources.snippet(kernel.buffers[4].access.span), "inout counter");
            for Stmt { kind, span, .. } in &kernel.body.stmts {
                let text = sources.snippet(*span);
                assert!(text.ends_with([';', '}']) && !text.starts_with(' '), "{text}");
                count += 1;
                if let StmtKind::Let(stmt) = kind {
                    let value = sources.snippet(stmt.value.span);
                    assert!(text.ends_with(&format!("{value};")), "{text}: {value}");
                }
            }
        }
    }
    assert!(count > 30, "{count} statements");
}

#[test]
fn brackets_belong_to_the_span_of_what_is_in_them() {
    let mut sources = SourceMap::new();
    let file = sources.add("test.tile", "(a + b) * c");
    let value = parse_expr(&sources, file).expect("an expression");
    let ExprKind::Binary(_, left, _) = value.kind else { panic!("a product") };
    assert_eq!(sources.snippet(left.span), "(a + b)");
    assert_eq!(sources.snippet(value.span), "(a + b) * c");
}

#[test]
fn waivers_cover_what_stands_on_the_next_line() {
    let text = "\
kernel k(
    // allow E0310: a parameter
    input x: gmem f32[4],
) launch { grid: 1, warps: 4 } {
    // allow E0107: the plan orders it
    // allow E0108: as above
    let a = load x;

    // allow E0109: only the head
    if a > 0.0 {
        grid_wait;
    }
}
";
    let (sources, parsed) = parsed(text);
    assert_eq!(parsed.diagnostics, []);
    let found: Vec<(Code, u32, &str, &str)> = parsed
        .file
        .waivers
        .iter()
        .map(|w| (w.code, w.line, w.reason.as_str(), sources.snippet(w.covers)))
        .collect();
    let wanted = [
        (Code::E0310, 2, "a parameter", "input x: gmem f32[4]"),
        (Code::E0107, 5, "the plan orders it", "let a = load x;"),
        (Code::E0108, 6, "as above", "let a = load x;"),
        (Code::E0109, 9, "only the head", "if a > 0.0"),
    ];
    assert_eq!(found, wanted);
}

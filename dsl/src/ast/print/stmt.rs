//! Statements.

use super::block_rest;
use super::doc::{Doc, bracketed, commas, text};
use super::expr::{
    absent, cond, cond_before_order, operand, operand_before_clauses, order_and_scope, pattern,
    policy, quote, spread, ty, value,
};
use super::output::{Output, WIDTH};
use crate::ast::{
    Assign, Atom, Await, Barrier, Block, Const, Edge, Else, For, ForOver, If, Let, Mma, Move, Name,
    Pattern, Pipeline, Ptx, Role, Settle, Signal, Stmt, StmtKind, SyncTarget, TileDecl, Trivia,
    Unroll, View,
};

/// A statement with its comments.
pub(super) fn statement(out: &mut Output, stmt: &Stmt) {
    out.leading(&stmt.trivia);
    let flat = flat(&stmt.kind);
    let joins = stmt.trivia.same_line.0 && stmt.trivia.leading.is_empty();
    match flat {
        Some(flat) if joins && out.takes(&flat) => out.append(&format!(" {flat}")),
        Some(flat) if out.indent() + flat.chars().count() <= WIDTH => {
            out.paragraph(vec![flat]);
            if let StmtKind::Tile(tile) = &stmt.kind {
                out.mark_column(tile.space.word().len() + 1 + tile.name.text.len());
            }
        }
        _ => broken(out, &stmt.kind),
    }
    out.trailing(stmt.trivia.trailing.as_ref());
}

/// A doc as the next lines.
pub(super) fn paragraph(out: &mut Output, doc: &Doc) {
    out.paragraph(doc.lines(out.indent(), WIDTH));
}

/// What a statement consists of.
enum Shape<'a> {
    /// It has no block.
    Simple(Doc),
    /// Heads, each with its block: one, or the links of an `if` chain.
    Blocks(Vec<(Doc, &'a Block)>),
    /// A head and parts between braces.
    Braces(Doc, Braces<'a>),
}

enum Braces<'a> {
    Arms(&'a [crate::ast::ArchArm]),
    Ptx(&'a [Ptx]),
    Entries(Vec<Doc>),
}

/// The statement on one line, when it has no comments and its author wrote it so.
fn flat(kind: &StmtKind) -> Option<String> {
    match shape(kind) {
        Shape::Simple(doc) => Some(doc.flat()),
        Shape::Blocks(links) => {
            let inline = links.iter().all(|(_, block)| block.inline.0 || is_empty(block));
            if !inline {
                return None;
            }
            let mut parts = Vec::new();
            for (head, block) in links {
                parts.push(format!("{} {}", head.flat(), flat_block(block)?));
            }
            Some(parts.join(" "))
        }
        Shape::Braces(head, Braces::Entries(entries)) => {
            let entries: Vec<String> = entries.iter().map(Doc::flat).collect();
            Some(format!("{} {{ {} }}", head.flat(), entries.join(" ")))
        }
        Shape::Braces(head, Braces::Arms([])) | Shape::Braces(head, Braces::Ptx([])) => {
            Some(format!("{} {{}}", head.flat()))
        }
        Shape::Braces(head, Braces::Ptx([one])) if has_no_comments(&one.trivia) => {
            Some(format!("{} {{ {} }}", head.flat(), ptx(one).flat()))
        }
        Shape::Braces(_, Braces::Arms(_) | Braces::Ptx(_)) => None,
    }
}

/// The block on one line, when it has no comments and its author wrote it so.
pub(super) fn flat_block(block: &Block) -> Option<String> {
    if is_empty(block) {
        return Some("{}".to_owned());
    }
    if !block.inline.0 || block.opening.is_some() || !block.dangling.is_empty() {
        return None;
    }
    let mut parts = Vec::new();
    for stmt in &block.stmts {
        if !has_no_comments(&stmt.trivia) {
            return None;
        }
        parts.push(flat(&stmt.kind)?);
    }
    if let Some(last) = &block.value {
        if !has_no_comments(&last.trivia) {
            return None;
        }
        parts.push(value(&last.expr).flat());
    }
    Some(format!("{{ {} }}", parts.join(" ")))
}

fn is_empty(block: &Block) -> bool {
    block.stmts.is_empty()
        && block.value.is_none()
        && block.opening.is_none()
        && block.dangling.is_empty()
}

fn has_no_comments(trivia: &Trivia) -> bool {
    trivia.leading.is_empty() && trivia.trailing.is_none()
}

/// The statement over several lines.
fn broken(out: &mut Output, kind: &StmtKind) {
    match shape(kind) {
        Shape::Simple(doc) => paragraph(out, &doc),
        Shape::Blocks(links) => {
            if let Some(lines) = one_line_a_link(out.indent(), &links) {
                return lines.into_iter().for_each(|line| out.line(line));
            }
            for (at, (head, block)) in links.into_iter().enumerate() {
                let lines = head.lines(out.indent(), WIDTH - 2);
                if at == 0 {
                    out.paragraph(lines);
                } else {
                    out.continue_line(lines);
                }
                out.append(" {");
                block_rest(out, block);
            }
        }
        Shape::Braces(head, braces) => {
            paragraph(out, &head);
            out.append(" {");
            out.begin(super::INDENT);
            match braces {
                Braces::Arms(arms) => {
                    for arm in arms {
                        out.leading(&arm.trivia);
                        let head = text(format!("{} =>", pattern(&arm.pattern)));
                        let flat = flat_block(&arm.body);
                        let flat = flat.map(|body| format!("{} {body}", head.flat()));
                        match flat {
                            Some(flat) if out.indent() + flat.chars().count() <= WIDTH => {
                                out.line(flat);
                            }
                            _ => {
                                out.line(format!("{} {{", head.flat()));
                                block_rest(out, &arm.body);
                            }
                        }
                        out.trailing(arm.trivia.trailing.as_ref());
                    }
                }
                Braces::Ptx(statements) => {
                    for statement in statements {
                        out.leading(&statement.trivia);
                        paragraph(out, &ptx(statement));
                        out.trailing(statement.trivia.trailing.as_ref());
                    }
                }
                Braces::Entries(entries) => {
                    entries.iter().for_each(|entry| paragraph(out, entry));
                }
            }
            out.end(super::INDENT);
            out.line("}");
        }
    }
}

/// The links of an `if` chain as one line each, when their author wrote each so and all fit.
fn one_line_a_link(indent: usize, links: &[(Doc, &Block)]) -> Option<Vec<String>> {
    let line = |(head, block): &(Doc, &Block)| {
        let line = format!("{} {}", head.flat(), flat_block(block)?);
        (indent + line.chars().count() <= WIDTH).then_some(line)
    };
    let whole = links.len() > 1 && links.iter().all(|(_, block)| !is_empty(block));
    if whole { links.iter().map(line).collect() } else { None }
}

fn shape(kind: &StmtKind) -> Shape<'_> {
    let simple = |docs: Vec<Doc>| Shape::Simple(Doc::Group(docs));
    let word = |word: &str| Shape::Simple(text(word));
    let with_operand =
        |word: &str, expr| Shape::Simple(Doc::Group(vec![text(word), operand(expr), text(";")]));
    match kind {
        StmtKind::Const(stmt) => Shape::Simple(constant(stmt)),
        StmtKind::Let(stmt) => Shape::Simple(self::let_(stmt)),
        StmtKind::View(stmt) => Shape::Simple(view(stmt)),
        StmtKind::Tile(stmt) => Shape::Simple(tile(stmt)),
        StmtKind::Pipeline(stmt) => pipeline(stmt),
        StmtKind::Barrier(stmt) => Shape::Simple(barrier(stmt)),
        StmtKind::Atom(stmt) => Shape::Simple(atom(stmt)),
        StmtKind::Move(stmt) => Shape::Simple(move_(stmt)),
        StmtKind::Assign(stmt) => Shape::Simple(assign(stmt)),
        StmtKind::Mma(stmt) => Shape::Simple(mma(stmt)),
        StmtKind::For(stmt) => Shape::Blocks(vec![(for_head(stmt), &stmt.body)]),
        StmtKind::If(stmt) => Shape::Blocks(if_links(stmt)),
        StmtKind::MatchArch(arms) => Shape::Braces(text("match arch"), Braces::Arms(arms)),
        StmtKind::Role(stmt) => Shape::Blocks(vec![(role_head(stmt), &stmt.body)]),
        StmtKind::Open(expr) => with_operand("open ", expr),
        StmtKind::Wait(expr) => with_operand("wait ", expr),
        StmtKind::Release(expr) => with_operand("release ", expr),
        StmtKind::Commit(None) => word("commit;"),
        StmtKind::Commit(Some(expr)) => with_operand("commit ", expr),
        StmtKind::Settle(stmt) => Shape::Simple(settle(stmt)),
        StmtKind::Publish(expr) => with_operand("publish ", expr),
        StmtKind::Sync(SyncTarget::All) => word("sync;"),
        StmtKind::Sync(SyncTarget::Cluster) => word("sync cluster;"),
        StmtKind::Sync(SyncTarget::Role(name)) => {
            simple(vec![text(format!("sync {};", name.text))])
        }
        StmtKind::GridWait => word("grid_wait;"),
        StmtKind::GridLaunch => word("grid_launch;"),
        StmtKind::Signal(stmt) => Shape::Simple(signal(stmt)),
        StmtKind::Await(stmt) => Shape::Simple(await_(stmt)),
        StmtKind::Advance(expr) => with_operand("advance ", expr),
        StmtKind::Assert(test, message) => {
            let mut docs = vec![text("assert "), cond(test)];
            if let Some(message) = message {
                docs.push(Doc::Nest(vec![text(","), Doc::Line, text(quote(&message.value))]));
            }
            docs.push(text(";"));
            simple(docs)
        }
        StmtKind::Printf(format, args) => {
            let mut list = vec![text(quote(&format.value))];
            list.extend(args.iter().map(cond));
            simple(vec![text("printf "), Doc::Nest(commas(list)), text(";")])
        }
        StmtKind::Trace(event) => word(&format!("trace {};", quote(&event.value))),
        StmtKind::Unsafe(stmt) => Shape::Braces(text("unsafe"), Braces::Ptx(&stmt.ptx)),
        StmtKind::Expr(expr) => simple(vec![value(expr), text(";")]),
    }
}

fn type_of(declared: Option<&crate::ast::Type>) -> Doc {
    declared.map_or_else(|| text(""), |declared| Doc::Group(vec![text(" : "), ty(declared)]))
}

/// `const NAME = VALUE;`
pub(super) fn constant(stmt: &Const) -> Doc {
    let name = text(format!("const {}", stmt.name.text));
    definition(name, stmt.ty.as_ref(), &stmt.value)
}

/// `atom NAME = VALUE;`
pub(super) fn atom(stmt: &Atom) -> Doc {
    definition(text(format!("atom {}", stmt.name.text)), None, &stmt.value)
}

fn definition(head: Doc, declared: Option<&crate::ast::Type>, init: &crate::ast::Expr) -> Doc {
    Doc::Group(vec![head, type_of(declared), text(" = "), value(init), text(";")])
}

fn let_(stmt: &Let) -> Doc {
    let head = match &stmt.pattern {
        Pattern::Name(name) => format!("let {}", name.text),
        Pattern::Tuple(names, _) => {
            let comma = if names.len() == 1 { "," } else { "" };
            format!("let ({}{comma})", join(names))
        }
    };
    definition(text(head), stmt.ty.as_ref(), &stmt.value)
}

fn join(names: &[Name]) -> String {
    let names: Vec<&str> = names.iter().map(|name| name.text.as_str()).collect();
    names.join(", ")
}

fn view(stmt: &View) -> Doc {
    let mut docs = vec![
        text(format!("view {} = ", stmt.name.text)),
        operand(&stmt.source),
        text(format!(" by {}", quote(&stmt.spec.value))),
    ];
    if !stmt.sizes.is_empty() {
        let sizes = stmt
            .sizes
            .iter()
            .map(|(name, size)| Doc::Group(vec![text(format!("{} = ", name.text)), cond(size)]));
        docs.push(text(" "));
        docs.push(bracketed("(", commas(sizes), ")"));
    }
    docs.push(text(";"));
    Doc::Group(docs)
}

fn tile(stmt: &TileDecl) -> Doc {
    let mut docs = vec![text(format!("{} {} : ", stmt.space.word(), stmt.name.text)), ty(&stmt.ty)];
    if let Some(via) = &stmt.via {
        docs.push(text(format!(" via {}", via.text())));
    }
    if let Some(entries) = &stmt.spread {
        docs.push(text(" "));
        docs.push(spread(entries));
    }
    let clauses = [
        (" swizzle ", &stmt.swizzle),
        (" align ", &stmt.align),
        (" ring ", &stmt.ring),
        (" every ", &stmt.every),
        (" stored ", &stmt.stored),
    ];
    for (word, expr) in clauses {
        docs.extend(clause(word, expr.as_ref()));
    }
    if let Some(init) = &stmt.init {
        docs.push(text(" = "));
        docs.push(value(init));
    }
    docs.push(text(";"));
    Doc::Group(docs)
}

fn clause(word: &str, expr: Option<&crate::ast::Expr>) -> Vec<Doc> {
    expr.map_or(Vec::new(), |expr| vec![text(word), cond(expr)])
}

fn pipeline(stmt: &Pipeline) -> Shape<'_> {
    let entry = |name: &str, doc| Doc::Group(vec![text(format!("{name}:")), doc, text(";")]);
    let entries = vec![
        entry("stages", Doc::Group(vec![text(" "), cond(&stmt.stages)])),
        entry("full", edge(&stmt.full)),
        entry("empty", edge(&stmt.empty)),
    ];
    Shape::Braces(text(format!("pipeline {}", stmt.name.text)), Braces::Entries(entries))
}

fn barrier(stmt: &Barrier) -> Doc {
    Doc::Group(vec![text(format!("barrier {} :", stmt.name.text)), edge(&stmt.edge), text(";")])
}

/// An edge with a space before each part.
fn edge(edge: &Edge) -> Doc {
    let mut docs = Vec::new();
    if let Some(bytes) = &edge.bytes {
        docs.push(text(" "));
        docs.push(bytes_of_edge(bytes));
    }
    if let Some(ring) = &edge.ring {
        docs.push(text(" ring "));
        docs.push(cond_before_order(ring));
    }
    if let Some(scope) = edge.scope {
        docs.push(text(format!(" scope {}", scope.word())));
    }
    if !edge.from.is_empty() {
        docs.push(text(format!(" from {}", join(&edge.from))));
    }
    if !edge.to.is_empty() {
        docs.push(text(format!(" to {}", join(&edge.to))));
    }
    Doc::Group(docs)
}

/// A name at the start of an edge must not look like one of its words.
fn bytes_of_edge(bytes: &crate::ast::Expr) -> Doc {
    let doc = cond_before_order(bytes);
    let flat = doc.flat();
    let word = flat.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next();
    match word {
        Some("ring" | "scope" | "from" | "to") => bracketed("(", vec![doc], ")"),
        _ => doc,
    }
}

fn move_(stmt: &Move) -> Doc {
    let has_operand = match stmt.kind {
        crate::ast::MoveKind::Load | crate::ast::MoveKind::Prefetch => true,
        crate::ast::MoveKind::Store
        | crate::ast::MoveKind::Copy
        | crate::ast::MoveKind::Multimem => false,
    };
    let source = match (has_operand, &stmt.dest) {
        (true, Some(_)) => operand(&stmt.source),
        (true, None) => operand_before_clauses(&stmt.source),
        (false, _) => cond(&stmt.source),
    };
    let mut docs = vec![text(format!("{} ", stmt.op.text())), source];
    if let Some(value) = &stmt.absent {
        docs.push(text(" else "));
        docs.push(absent(value));
    }
    if let Some(dest) = &stmt.dest {
        docs.push(Doc::Nest(vec![Doc::Line, text("-> "), operand_before_clauses(dest)]));
    }
    if let Some(into) = &stmt.into {
        docs.push(text(" into "));
        docs.push(operand_before_clauses(into));
    }
    if let Some(via) = &stmt.via {
        docs.push(text(format!(" via {}", via.text())));
    }
    docs.push(text(format!("{};", policy(stmt.policy))));
    Doc::Group(docs)
}

fn assign(stmt: &Assign) -> Doc {
    let op = stmt.op.map_or("", |op| op.symbol());
    Doc::Group(vec![operand(&stmt.target), text(format!(" {op}= ")), value(&stmt.value), text(";")])
}

fn mma(stmt: &Mma) -> Doc {
    let mut docs = vec![
        text("mma "),
        operand(&stmt.a),
        text(" * "),
        operand(&stmt.b),
        Doc::Nest(vec![Doc::Line, text("-> "), operand_before_clauses(&stmt.acc)]),
        text(format!(" via {}", stmt.via.text())),
    ];
    docs.extend(clause(" add ", stmt.add.as_ref()));
    docs.push(text(";"));
    Doc::Group(docs)
}

fn settle(stmt: &Settle) -> Doc {
    let mut docs = vec![text("settle "), operand(&stmt.value)];
    docs.extend(clause(" but ", stmt.but.as_ref()));
    docs.push(text(";"));
    Doc::Group(docs)
}

fn signal(stmt: &Signal) -> Doc {
    let mut docs = vec![text("signal "), operand_before_clauses(&stmt.flag)];
    if let Some(add) = &stmt.add {
        docs.push(text(" add "));
        docs.push(cond_before_order(add));
    }
    docs.push(text(format!("{};", order_and_scope(stmt.order, stmt.scope))));
    Doc::Group(docs)
}

fn await_(stmt: &Await) -> Doc {
    Doc::Group(vec![
        text("await "),
        operand(&stmt.flag),
        text(" until "),
        cond_before_order(&stmt.until),
        text(format!("{};", order_and_scope(stmt.order, stmt.scope))),
    ])
}

fn for_head(stmt: &For) -> Doc {
    let mut docs = vec![text(format!("for {} in ", stmt.var.text))];
    match &stmt.over {
        ForOver::Tickets(counter, count) => {
            docs.push(bracketed("tickets(", commas([cond(counter), cond(count)]), ")"));
        }
        ForOver::Range(range, step) => {
            docs.push(value(range));
            docs.extend(clause(" step ", step.as_ref()));
        }
    }
    match &stmt.unroll {
        None => {}
        Some(Unroll::Full) => docs.push(text(" unroll")),
        Some(Unroll::By(count)) => docs.extend(clause(" unroll ", Some(count))),
    }
    Doc::Group(docs)
}

fn role_head(stmt: &Role) -> Doc {
    let mut docs = vec![text(format!("role {}: warps ", stmt.name.text)), value(&stmt.warps)];
    if stmt.elect_one {
        docs.push(text(" elect one"));
    }
    docs.extend(clause(" registers ", stmt.registers.as_ref()));
    Doc::Group(docs)
}

/// The links of an `if` chain; heads behind the first start with `else`.
fn if_links(first: &If) -> Vec<(Doc, &Block)> {
    let mut links = Vec::new();
    let mut link = first;
    let mut before = "";
    loop {
        let word = if link.is_const { "const if" } else { "if" };
        let head = Doc::Group(vec![text(format!("{before}{word} ")), cond(&link.cond)]);
        links.push((head, &link.then));
        before = "else ";
        match &link.otherwise {
            None => break,
            Some(Else::If(next)) => link = next,
            Some(Else::Block(block)) => {
                links.push((text("else"), &**block));
                break;
            }
        }
    }
    links
}

fn ptx(stmt: &Ptx) -> Doc {
    let mut docs = vec![text(format!("ptx {}", quote(&stmt.text.value)))];
    for (word, places) in [("out", &stmt.outputs), ("in", &stmt.inputs)] {
        if !places.is_empty() {
            let list = bracketed(&format!("{word}("), commas(places.iter().map(cond)), ")");
            docs.push(Doc::Nest(vec![Doc::Line, list]));
        }
    }
    if let Some(meaning) = &stmt.meaning {
        docs.push(Doc::Nest(vec![Doc::Line, text("= "), value(meaning)]));
    }
    docs.push(text(";"));
    Doc::Group(docs)
}

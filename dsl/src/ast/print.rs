//! The canonical printer.
//!
//! `parse(print(file))` gives the same tree, spans and [`Hint`]s aside, and every comment; printing
//! that again gives the same text. Line breaks of the author that the printer keeps: blank lines
//! (one at most), statements that share a line, and blocks on one line, each where it fits.

mod doc;
mod expr;
mod header;
mod output;
mod stmt;

#[cfg(doc)]
use crate::ast::Hint;
use crate::ast::{Block, File, Function, Item, ItemKind, Kernel};
use doc::INDENT;
use output::Output;

/// The text of a tree.
pub fn print(file: &File) -> String {
    let mut out = Output::new();
    let mut before: Option<&Item> = None;
    for item in &file.items {
        if before.is_some_and(|before| is_long(before) || is_long(item)) {
            out.blank();
        }
        out.leading(&item.trivia);
        self::item(&mut out, item);
        out.trailing(item.trivia.trailing.as_ref());
        before = Some(item);
    }
    out.comments(&file.tail);
    out.finish()
}

/// Kernels and functions stand between blank lines.
fn is_long(item: &Item) -> bool {
    matches!(item.kind, ItemKind::Kernel(_) | ItemKind::Fn(_))
}

fn item(out: &mut Output, item: &Item) {
    match &item.kind {
        ItemKind::Target(names) => {
            let names: Vec<&str> = names.iter().map(|name| name.text.as_str()).collect();
            out.line(format!("target {};", names.join(", ")));
        }
        ItemKind::Import(file) => out.line(format!("import {};", expr::quote(&file.value))),
        ItemKind::Const(constant) => stmt::paragraph(out, &stmt::constant(constant)),
        ItemKind::Atom(atom) => stmt::paragraph(out, &stmt::atom(atom)),
        ItemKind::Kernel(kernel) => self::kernel(out, kernel),
        ItemKind::Fn(function) => self::function(out, function),
    }
}

fn kernel(out: &mut Output, kernel: &Kernel) {
    header::kernel(out, kernel);
    out.line("{");
    block_rest(out, &kernel.body);
}

fn function(out: &mut Output, function: &Function) {
    header::function(out, function);
    if let Some(body) = stmt::flat_block(&function.body)
        && out.takes(&body)
    {
        out.append(&format!(" {body}"));
        return;
    }
    out.append(" {");
    block_rest(out, &function.body);
}

/// A block whose `{` ends the last line.
fn block_rest(out: &mut Output, block: &Block) {
    out.trailing(block.opening.as_ref());
    out.begin(INDENT);
    for stmt in &block.stmts {
        stmt::statement(out, stmt);
    }
    if let Some(value) = &block.value {
        out.leading(&value.trivia);
        stmt::paragraph(out, &expr::value(&value.expr));
        out.trailing(value.trivia.trailing.as_ref());
    }
    out.comments(&block.dangling);
    out.end(INDENT);
    out.line("}");
}

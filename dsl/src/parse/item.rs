//! Items of a file.

use super::expr::Parts;
use super::message::Piece;
use super::{Parser, Rule, words};
use crate::ast::{Comment, Function, Item, ItemKind, Kernel, Launch, Trivia};
use crate::diag::{Code, Diagnostic};

const ITEM_END: &str = "`;`";

impl Parser<'_> {
    /// All items, and the comments behind the last.
    pub(super) fn items(&mut self) -> (Vec<Item>, Vec<Comment>) {
        let mut items = Vec::new();
        let mut at = 0;
        while at < self.tokens.len() && !self.gives_up() {
            let (item, next) = match self.word(at) {
                "target" => self.target(at),
                "import" => self.import(at),
                "const" | "atom" => self.definition(at),
                "kernel" => self.kernel(at),
                "fn" => self.function(at),
                _ => (None, self.no_item(at)),
            };
            items.extend(item);
            at = next.max(at + 1);
        }
        (items, self.comments_before(self.tokens.len()))
    }

    /// Reports what is no item, and finds the next one.
    fn no_item(&mut self, lo: usize) -> usize {
        let mut at = lo;
        while at < self.tokens.len() {
            let item = words::ITEM_WORDS.contains(&self.word(at))
                || (matches!(self.word(at), "const" | "atom") && self.tokens[at].first);
            if at > lo && item {
                break;
            }
            at = self.skip(at);
        }
        if !self.is_broken(lo, at) {
            let word = self.word(lo);
            let help = if words::form_of(word).is_some() {
                "statements stand in the body of a `kernel` or `fn`"
            } else {
                "a file holds `target`, `import`, `const`, `atom`, `kernel` and `fn` items"
            };
            let diagnostic =
                Diagnostic::error(Code::E0010, format!("expected an item, found `{word}`"))
                    .label(self.span(lo, lo + 1), "starts no item")
                    .help(help);
            self.sink.push(diagnostic);
        }
        at
    }

    fn target(&mut self, at: usize) -> (Option<Item>, usize) {
        self.short_item(at, "`target` line", Rule::target_item, |build, pair| {
            ItemKind::Target(build.names(&Parts::of(pair).all(Rule::name)))
        })
    }

    fn import(&mut self, at: usize) -> (Option<Item>, usize) {
        self.short_item(at, "`import` line", Rule::import_item, |build, pair| {
            ItemKind::Import(build.text(&Parts::of(pair).need(Rule::string)))
        })
    }

    fn definition(&mut self, at: usize) -> (Option<Item>, usize) {
        if self.word(at) == "const" {
            self.short_item(at, "`const` item", Rule::const_stmt, |build, pair| {
                ItemKind::Const(build.constant(pair))
            })
        } else {
            self.short_item(at, "`atom` item", Rule::atom_stmt, |build, pair| {
                ItemKind::Atom(build.atom(pair))
            })
        }
    }

    /// An item that ends with `;`.
    fn short_item(
        &mut self,
        at: usize,
        what: &str,
        rule: Rule,
        build: impl FnOnce(&super::Build, pest::iterators::Pair<'_, Rule>) -> ItemKind,
    ) -> (Option<Item>, usize) {
        let open = self.begin(at);
        let cut = self.cut_statement(at, self.tokens.len());
        let form = words::form_of(self.word(at));
        let piece = Piece { rule, what, end: ITEM_END, form };
        let kind = self.piece(&piece, at, cut.hi, build);
        if kind.is_some() && !cut.ended {
            self.report_missing_end(cut.hi);
        }
        let span = self.span(at, cut.next);
        let trivia = self.end(open, cut.next - 1, span);
        (kind.map(|kind| Item { kind, trivia, span }), cut.next)
    }

    /// The `{` of the body of a kernel or function whose header starts at `lo`; else where the next
    /// item starts.
    fn find_body(&self, lo: usize) -> Result<usize, usize> {
        let mut at = lo + 1;
        while at < self.tokens.len() {
            let word = self.word(at);
            if words::ITEM_WORDS.contains(&word) && self.tokens[at].first {
                return Err(at);
            }
            let braces_of_clause = matches!(self.word(at - 1), "launch" | "in" | "arch")
                || matches!(self.word(self.skip(at)), "{" | "launch" | "where" | "tune" | "export");
            if self.opens(at, "{") && !braces_of_clause {
                return Ok(at);
            }
            at = self.skip(at);
        }
        Err(at)
    }

    fn report_no_body(&mut self, lo: usize, hi: usize) {
        let word = self.word(lo);
        if !self.is_broken(lo, hi) {
            let form = words::form_of(word).unwrap_or_default();
            let diagnostic = Diagnostic::error(Code::E0016, format!("this `{word}` has no body"))
                .label(self.span(lo, lo + 1), "no `{ … }` follows its header")
                .help(format!("write `{form}`"));
            self.sink.push(diagnostic);
        }
    }

    fn kernel(&mut self, at: usize) -> (Option<Item>, usize) {
        let mut open = self.begin(at);
        let brace = match self.find_body(at) {
            Ok(brace) => brace,
            Err(next) => {
                self.report_no_body(at, next);
                self.end(open, next - 1, self.span(at, next));
                return (None, next);
            }
        };
        let header = self.kernel_header(at, brace);
        self.inside(&mut open, brace);
        let body = self.block(brace, false);
        let next = self.partner(brace) + 1;
        let header_span = self.span(at, brace);
        let trivia = self.end(open, next - 1, header_span);
        let Some(header) = header else { return (None, next) };
        let launch = match header.launch {
            Some(launch) => launch,
            None => {
                if !self.is_broken(at, brace) {
                    let diagnostic = Diagnostic::error(
                        Code::E0016,
                        format!("kernel `{}` does not say how it is launched", header.name.text),
                    )
                    .label(header.name.span, "no `launch { … }` in its header")
                    .help("write `launch { grid: N, warps: 4 }` behind the parameters");
                    self.sink.push(diagnostic);
                }
                Launch {
                    entries: Vec::new(),
                    trivia: Trivia::default(),
                    span: header.name.span.end(),
                }
            }
        };
        let kernel = Kernel {
            name: header.name,
            consts: header.consts,
            buffers: header.buffers,
            launch,
            wheres: header.wheres,
            tune: header.tune,
            export: header.export,
            body,
            header_span,
        };
        let kind = ItemKind::Kernel(Box::new(kernel));
        (Some(Item { kind, trivia, span: self.span(at, next) }), next)
    }

    fn function(&mut self, at: usize) -> (Option<Item>, usize) {
        let mut open = self.begin(at);
        let brace = match self.find_body(at) {
            Ok(brace) => brace,
            Err(next) => {
                self.report_no_body(at, next);
                self.end(open, next - 1, self.span(at, next));
                return (None, next);
            }
        };
        let header = self.function_header(at, brace);
        self.inside(&mut open, brace);
        let body = self.block(brace, true);
        let next = self.partner(brace) + 1;
        let header_span = self.span(at, brace);
        let trivia = self.end(open, next - 1, header_span);
        let Some(header) = header else { return (None, next) };
        let function = Function {
            name: header.name,
            consts: header.consts,
            params: header.params,
            returns: header.returns,
            body,
            header_span,
        };
        let kind = ItemKind::Fn(Box::new(function));
        (Some(Item { kind, trivia, span: self.span(at, next) }), next)
    }
}

//! Blocks: cuts them into statements, and reads statements that have a block themselves.

use super::expr::Parts;
use super::message::Piece;
use super::trivia::Open;
use super::{MAX_OPERATORS, Parser, Rule, words};
use crate::ast::{
    ArchArm, Block, BlockValue, Else, For, ForOver, Hint, If, Ptx, Role, Stmt, StmtKind, Unroll,
    Unsafe,
};
use crate::diag::{Code, Diagnostic};

/// Where a statement without a block ends.
pub(super) struct Cut {
    /// Behind its last token, without `;`.
    pub(super) hi: usize,
    /// Where the next one starts.
    pub(super) next: usize,
    /// Whether `;` was there.
    pub(super) ended: bool,
}

impl Parser<'_> {
    /// The block whose `{` is at `at`.
    pub(super) fn block(&mut self, brace: usize, may_have_value: bool) -> Block {
        let end = self.partner(brace);
        let span = self.span(brace, end + 1);
        let inline = Hint(!self.sources.snippet(span).contains('\n'));
        let opening = self.comment_behind(brace);
        let mut block =
            Block { stmts: Vec::new(), value: None, opening, dangling: Vec::new(), inline, span };
        let mut at = brace + 1;
        while at < end && !self.gives_up() {
            let next = self.statement(at, end, may_have_value, &mut block);
            at = next.max(at + 1);
        }
        block.dangling = self.comments_before(end);
        block
    }

    /// Reads the statement at `at` into a block that ends at `end`; gives the place behind it.
    fn statement(&mut self, at: usize, end: usize, value: bool, block: &mut Block) -> usize {
        match self.word(at) {
            "for" => self.with_block(at, end, block, Self::for_loop),
            "if" => self.choice(at, end, block),
            "const" if self.word(at + 1) == "if" => self.choice(at, end, block),
            "role" => self.with_block(at, end, block, Self::role),
            "match" if self.is_match_statement(at) => {
                self.with_block(at, end, block, Self::match_arch)
            }
            "unsafe" => self.with_block(at, end, block, Self::unsafe_block),
            "pipeline" => self.pipeline(at, end, block),
            "else" => self.odd(at, end, "`else` follows no `if`", "no `if` block ends before it"),
            ";" => {
                let diagnostic = Diagnostic::error(Code::E0010, "expected a statement, found `;`")
                    .label(self.span(at, at + 1), "nothing stands before it")
                    .help("remove the `;`");
                self.sink.push(diagnostic);
                at + 1
            }
            "{" => self.odd(at, end, "this block has no head", "expected a statement"),
            _ => self.simple(at, end, value, block),
        }
    }

    /// Reports something that starts no statement, reads a block in it for its own findings.
    fn odd(&mut self, at: usize, end: usize, message: &str, label: &str) -> usize {
        let diagnostic = Diagnostic::error(Code::E0010, message)
            .label(self.span(at, at + 1), label)
            .help("a block follows `if`, `else`, `for`, `role`, `match arch` or `unsafe`");
        self.sink.push(diagnostic);
        match self.find_brace(at, end) {
            Some(brace) => {
                self.block(brace, false);
                self.partner(brace) + 1
            }
            None => self.cut_statement(at, end).next,
        }
    }

    /// The `{` that ends the head of a block statement.
    fn find_brace(&self, lo: usize, end: usize) -> Option<usize> {
        let mut at = lo;
        while at < end {
            let of_a_value =
                at > lo + 2 && self.word(at - 1) == "arch" && self.word(at - 2) == "match";
            if self.opens(at, "{") && !of_a_value {
                return Some(at);
            }
            if self.word(at) == ";" || (at > lo && self.starts_line(at)) {
                return None;
            }
            at = self.skip(at);
        }
        None
    }

    /// Whether a token starts a line with a word that only starts statements.
    fn starts_line(&self, at: usize) -> bool {
        self.tokens[at].first
            && words::starts_statement(self.word(at))
            && self.word(at - 1) != "order"
    }

    /// Finds the end of a statement without a block.
    pub(super) fn cut_statement(&self, lo: usize, end: usize) -> Cut {
        let mut at = lo;
        while at < end {
            if self.word(at) == ";" {
                return Cut { hi: at, next: at + 1, ended: true };
            }
            if at > lo && self.starts_line(at) {
                return Cut { hi: at, next: at, ended: false };
            }
            at = self.skip(at);
        }
        Cut { hi: at, next: at, ended: false }
    }

    /// Reports a `;` that should stand before the token `at`.
    pub(super) fn report_missing_end(&mut self, at: usize) {
        let last = self.span(at - 1, at);
        let diagnostic = Diagnostic::error(Code::E0011, "this statement does not end with `;`")
            .label(last, "expected `;` behind this");
        self.sink.push(diagnostic);
    }

    fn simple(&mut self, at: usize, end: usize, value: bool, block: &mut Block) -> usize {
        let mut open = self.begin(at);
        let cut = self.cut_statement(at, end);
        let word = self.word(at);
        let keyword = words::starts_statement(word);
        if value
            && !cut.ended
            && cut.hi == end
            && !keyword
            && self.matches(Rule::value_alone, at, end)
        {
            let piece = Piece { rule: Rule::value_alone, what: "value", end: "`}`", form: None };
            let expr = self.piece(&piece, at, end, |build, pair| {
                build.value(Parts::of(pair).need(Rule::value))
            });
            let trivia = self.end(open, end - 1, self.span(at, end));
            block.value = expr.map(|expr| BlockValue { expr, trivia });
            return end;
        }
        let kind = self.simple_kind(at, cut.hi);
        if kind.is_some() && !cut.ended {
            self.report_missing_end(cut.hi);
        }
        let span = self.span(at, cut.next);
        self.inside(&mut open, cut.next - 1);
        let trivia = self.end(open, cut.next - 1, span);
        block.stmts.extend(kind.map(|kind| Stmt { kind, trivia, span }));
        cut.next
    }

    fn pipeline(&mut self, at: usize, end: usize, block: &mut Block) -> usize {
        let open = self.begin(at);
        let Some(brace) = self.find_brace(at, end) else { return self.no_block(at, end, open) };
        let next = self.partner(brace) + 1;
        let kind = self.simple_kind(at, next);
        let span = self.span(at, next);
        let trivia = self.end(open, next - 1, span);
        block.stmts.extend(kind.map(|kind| Stmt { kind, trivia, span }));
        next
    }

    fn no_block(&mut self, at: usize, end: usize, open: Open) -> usize {
        let cut = self.cut_statement(at, end);
        if !self.is_broken(at, cut.next) {
            let word = self.word(at);
            let form = words::form_of(word).unwrap_or_default();
            let found = match self.word(cut.hi) {
                "" => "the end of the file".to_owned(),
                word => format!("`{word}`"),
            };
            let diagnostic =
                Diagnostic::error(Code::E0010, format!("expected `{{`, found {found}"))
                    .label(self.span(cut.hi, cut.hi + 1), format!("this `{word}` has no block"))
                    .help(format!("write `{form}`"));
            self.sink.push(diagnostic);
        }
        self.end(open, cut.next - 1, self.span(at, cut.next));
        cut.next
    }

    /// Reads a statement that is a head and one block.
    fn with_block(
        &mut self,
        at: usize,
        end: usize,
        block: &mut Block,
        read: fn(&mut Self, usize, usize) -> Option<StmtKind>,
    ) -> usize {
        let mut open = self.begin(at);
        let Some(brace) = self.find_brace(at, end) else { return self.no_block(at, end, open) };
        self.inside(&mut open, brace);
        let kind = read(self, at, brace);
        let next = self.partner(brace) + 1;
        let trivia = self.end(open, next - 1, self.span(at, brace));
        let span = self.span(at, next);
        block.stmts.extend(kind.map(|kind| Stmt { kind, trivia, span }));
        next
    }

    fn head<'p>(&self, rule: Rule, what: &'p str, word: &str) -> Piece<'p> {
        Piece { rule, what, end: "`{`", form: words::form_of(word) }
    }

    fn for_loop(&mut self, at: usize, brace: usize) -> Option<StmtKind> {
        let piece = self.head(Rule::for_head, "`for` head", "for");
        let head = self.piece(&piece, at, brace, |build, pair| {
            let mut parts = Parts::of(pair);
            let var = build.name(&parts.need(Rule::name));
            let step = build.clause(&mut parts, Rule::step);
            let over = match parts.take(Rule::tickets) {
                Some(tickets) => {
                    let mut parts = Parts::of(tickets);
                    let counter = build.cond(parts.need(Rule::cond));
                    ForOver::Tickets(counter, build.cond(parts.need(Rule::cond)))
                }
                None => ForOver::Range(build.range(parts.need(Rule::value)), step),
            };
            let unroll = parts.take(Rule::unroll).map(|pair| {
                let count = Parts::of(pair).take(Rule::cond);
                count.map_or(Unroll::Full, |count| Unroll::By(build.cond(count)))
            });
            (var, over, unroll)
        });
        let body = self.block(brace, false);
        let (var, over, unroll) = head?;
        let header_span = self.span(at, brace);
        Some(StmtKind::For(Box::new(For { var, over, unroll, body, header_span })))
    }

    fn role(&mut self, at: usize, brace: usize) -> Option<StmtKind> {
        let piece = self.head(Rule::role_head, "`role` head", "role");
        let head = self.piece(&piece, at, brace, |build, pair| {
            let mut parts = Parts::of(pair);
            let name = build.name(&parts.need(Rule::name));
            let warps = build.range(parts.need(Rule::value));
            let elect_one = build.once(&mut parts, Rule::elect_one, "`elect one`").is_some();
            let registers = build.once(&mut parts, Rule::registers, "`registers`");
            (name, warps, elect_one, registers.map(|pair| build.only_cond(pair)))
        });
        let body = self.block(brace, false);
        let (name, warps, elect_one, registers) = head?;
        let header_span = self.span(at, brace);
        let role = Role { name, warps, elect_one, registers, body, header_span };
        Some(StmtKind::Role(Box::new(role)))
    }

    /// Whether the arms of a `match` are blocks, not values.
    fn is_match_statement(&self, at: usize) -> bool {
        let Some(brace) = (at + 1..self.tokens.len().min(at + 4)).find(|&at| self.opens(at, "{"))
        else {
            return true;
        };
        let end = self.partner(brace);
        let arrow = (brace + 1..end).find(|&at| self.word(at) == "=>");
        arrow.is_none_or(|arrow| self.opens(arrow + 1, "{"))
    }

    fn match_arch(&mut self, at: usize, brace: usize) -> Option<StmtKind> {
        let piece = self.head(Rule::match_head, "`match` head", "match");
        let head = self.piece(&piece, at, brace, |_, _| ());
        let end = self.partner(brace);
        let mut arms = Vec::new();
        let mut at = brace + 1;
        while at < end && !self.gives_up() {
            let mut open = self.begin(at);
            let arm = self.find_brace(at, end).filter(|&arm| self.word(arm - 1) == "=>");
            let Some(arm) = arm else {
                self.no_arm(at, end, open);
                break;
            };
            self.inside(&mut open, arm);
            let piece = Piece {
                rule: Rule::arm_head,
                what: "arm",
                end: "`=>`",
                form: Some("sm_90a | sm_100a => { … }"),
            };
            let pattern = self.piece(&piece, at, arm - 1, |build, pair| {
                build.arch_pattern(Parts::of(pair).need(Rule::arch_pattern))
            });
            let body = self.block(arm, false);
            let mut last = self.partner(arm);
            if self.word(last + 1) == "," && last + 1 < end {
                last += 1;
            }
            let span = self.span(at, self.partner(arm) + 1);
            let trivia = self.end(open, last, self.span(at, arm));
            arms.extend(pattern.map(|pattern| ArchArm { pattern, body, trivia, span }));
            at = last + 1;
        }
        head?;
        Some(StmtKind::MatchArch(arms))
    }

    fn no_arm(&mut self, at: usize, end: usize, open: Open) {
        if !self.is_broken(at, end) {
            let found = self.word(at);
            let diagnostic =
                Diagnostic::error(Code::E0010, format!("expected an arm, found `{found}`"))
                    .label(self.span(at, at + 1), "no `TARGET => { … }` starts here")
                    .help("write `sm_90a => { … }` or `_ => { … }`");
            self.sink.push(diagnostic);
        }
        self.end(open, end - 1, self.span(at, end));
    }

    fn unsafe_block(&mut self, at: usize, brace: usize) -> Option<StmtKind> {
        if brace != at + 1 {
            let diagnostic = Diagnostic::error(
                Code::E0010,
                format!("expected `{{`, found `{}`", self.word(at + 1)),
            )
            .label(self.span(at + 1, at + 2), "`{` follows `unsafe`");
            self.sink.push(diagnostic);
        }
        let end = self.partner(brace);
        let mut ptx = Vec::new();
        let mut at = brace + 1;
        while at < end && !self.gives_up() {
            let open = self.begin(at);
            let cut = self.cut_statement(at, end);
            let piece = Piece {
                rule: Rule::ptx_stmt,
                what: "`ptx` statement",
                end: "`;`",
                form: words::form_of("ptx"),
            };
            let built = self.piece(&piece, at, cut.hi, |build, pair| {
                let mut parts = Parts::of(pair);
                let mut places = |rule| -> Vec<_> {
                    let Some(list) = parts.take(rule) else { return Vec::new() };
                    let list = Parts::of(list).need(Rule::ptx_places);
                    let places = Parts::of(list).all(Rule::cond);
                    places.into_iter().map(|place| build.cond(place)).collect()
                };
                let (outputs, inputs) = (places(Rule::ptx_out), places(Rule::ptx_in));
                let meaning = parts
                    .take(Rule::ptx_meaning)
                    .map(|meaning| build.value(Parts::of(meaning).need(Rule::value)));
                (build.text(&parts.need(Rule::string)), outputs, inputs, meaning)
            });
            if built.is_some() && !cut.ended {
                self.report_missing_end(cut.hi);
            }
            let span = self.span(at, cut.next);
            let next = cut.next.max(at + 1);
            let trivia = self.end(open, next - 1, span);
            let built = built.map(|(text, outputs, inputs, meaning)| Ptx {
                text,
                outputs,
                inputs,
                meaning,
                trivia,
                span,
            });
            ptx.extend(built);
            at = next;
        }
        Some(StmtKind::Unsafe(Unsafe { ptx }))
    }

    /// `if … { } else if … { } else { }`
    fn choice(&mut self, at: usize, end: usize, block: &mut Block) -> usize {
        let mut open = self.begin(at);
        let brace = self.find_brace(at, end);
        let Some(brace) = brace else { return self.no_block(at, end, open) };
        // The links of the chain, so that its length costs no stack.
        let mut links = Vec::new();
        let mut otherwise = None;
        let (mut head_at, mut brace) = (at, brace);
        let mut whole = true;
        let next = loop {
            self.inside(&mut open, brace);
            let piece = self.head(Rule::if_head, "`if` head", "if");
            let head = self.piece(&piece, head_at, brace, |build, pair| {
                let mut parts = Parts::of(pair);
                (parts.has(Rule::kw_const), build.cond(parts.need(Rule::cond)))
            });
            let then = self.block(brace, false);
            let header_span = self.span(head_at, brace);
            whole &= head.is_some();
            links.extend(head.map(|(is_const, cond)| (is_const, cond, then, header_span)));
            let next = self.partner(brace) + 1;
            if self.word(next) != "else" || next >= end {
                break next;
            }
            let after = next + 1;
            if self.word(after) == "if"
                || (self.word(after) == "const" && self.word(after + 1) == "if")
            {
                if links.len() >= MAX_OPERATORS {
                    let diagnostic =
                        Diagnostic::error(Code::E0005, "this `else if` chain is too long")
                            .label(
                                self.span(after, after + 1),
                                format!("more than {MAX_OPERATORS} links"),
                            )
                            .help("move parts of it into a `fn`");
                    self.sink.push(diagnostic);
                    whole = false;
                    break end;
                }
                let Some(found) = self.find_brace(after, end) else {
                    self.end(open, after, self.span(at, after));
                    let open = self.begin(after);
                    return self.no_block(after, end, open);
                };
                (head_at, brace) = (after, found);
                continue;
            }
            if !self.opens(after, "{") {
                let found = self.word(after);
                let diagnostic = Diagnostic::error(
                    Code::E0010,
                    format!("expected `{{` or `if`, found `{found}`"),
                )
                .label(self.span(after, after + 1), "`else` has no block")
                .help("write `if CONDITION { … } else { … }`");
                self.sink.push(diagnostic);
                whole = false;
                break self.cut_statement(after, end).next.max(after);
            }
            self.inside(&mut open, after);
            otherwise = Some(Else::Block(Box::new(self.block(after, false))));
            break self.partner(after) + 1;
        };
        let first_header = self.span(at, self.find_brace(at, end).unwrap_or(at + 1));
        let trivia = self.end(open, next - 1, first_header);
        if !whole {
            return next;
        }
        let span = self.span(at, next);
        while let Some((is_const, cond, then, header_span)) = links.pop() {
            let link = If { is_const, cond, then, otherwise: otherwise.take(), header_span };
            otherwise = Some(Else::If(Box::new(link)));
        }
        if let Some(Else::If(first)) = otherwise {
            block.stmts.push(Stmt { kind: StmtKind::If(first), trivia, span });
        }
        next
    }
}

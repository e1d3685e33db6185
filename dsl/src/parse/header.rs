//! Headers of kernels and functions: parameters and clauses, each a piece of its own.

use super::expr::{Build, Parts};
use super::message::Piece;
use super::{Pair, Parser, Rule, words};
use crate::ast::{
    Access, Buffer, Clause, ConstParam, Contract, Expr, FnParam, Launch, LaunchEntry, LaunchKey,
    Name, Qualifier, ScaledBy, Space, Text, Trivia, Tune, Type,
};
use crate::diag::{Code, Diagnostic};

/// What the header of a kernel holds.
pub(super) struct KernelHeader {
    pub(super) name: Name,
    pub(super) consts: Vec<ConstParam>,
    pub(super) buffers: Vec<Buffer>,
    pub(super) launch: Option<Launch>,
    pub(super) wheres: Option<Clause<Vec<Expr>>>,
    pub(super) tune: Option<Clause<Vec<Tune>>>,
    pub(super) export: Option<Clause<Text>>,
}

/// What the header of a function holds.
pub(super) struct FunctionHeader {
    pub(super) name: Name,
    pub(super) consts: Vec<ConstParam>,
    pub(super) params: Vec<FnParam>,
    pub(super) returns: Vec<Type>,
}

const CLAUSES: [&str; 4] = ["launch", "where", "tune", "export"];

const CONST_PARAM: Piece<'_> = Piece {
    rule: Rule::const_param,
    what: "`const` parameter",
    end: "`,` or `>`",
    form: Some("const NAME : int in {A, B} = DEFAULT"),
};
const BUFFER: Piece<'_> = Piece {
    rule: Rule::buffer,
    what: "parameter",
    end: "`,` or `)`",
    form: Some("QUALIFIER NAME : SPACE TYPE[SHAPE]"),
};
const FN_PARAM: Piece<'_> = Piece {
    rule: Rule::fn_param,
    what: "parameter",
    end: "`,` or `)`",
    form: Some("NAME : TYPE[SHAPE]` or `NAME : QUALIFIER TYPE[SHAPE]"),
};

impl Parser<'_> {
    /// The header of the kernel at `lo`, whose body starts at `hi`.
    pub(super) fn kernel_header(&mut self, lo: usize, hi: usize) -> Option<KernelHeader> {
        let (name, at) = self.header_name(lo, hi, Rule::kernel_head, "kernel");
        let (consts, at) = self.consts(at, hi);
        let (buffers, at) = self.list(at, hi, "(", |parser, lo, hi, trivia| {
            let buffer = parser.piece(&BUFFER, lo, hi, Build::buffer)?;
            Some(Buffer { trivia, ..buffer })
        });
        let (mut launch, mut wheres, mut tune, mut export) = (None, None, None, None);
        let mut at = self.expect_clause(at, hi);
        while at < hi {
            let end = self.next_clause(at + 1, hi);
            let open = self.begin(at);
            let word = self.word(at);
            let repeated = match word {
                "launch" => {
                    let entries = self.launch_entries(at, end);
                    let trivia = self.end(open, end - 1, self.span(at, end));
                    let span = self.span(at, end);
                    launch.replace(Launch { entries, trivia, span }).is_some()
                }
                "where" => {
                    let value = self.where_entries(at, end);
                    let trivia = self.end(open, end - 1, self.span(at, end));
                    wheres.replace(Clause { value, trivia, span: self.span(at, end) }).is_some()
                }
                "tune" => {
                    let value = self.tune_entries(at, end);
                    let trivia = self.end(open, end - 1, self.span(at, end));
                    tune.replace(Clause { value, trivia, span: self.span(at, end) }).is_some()
                }
                _ => {
                    let piece = Piece {
                        rule: Rule::export_clause,
                        what: "`export` clause",
                        end: "`{`",
                        form: Some("export \"SYMBOL\""),
                    };
                    let value = self.piece(&piece, at, end, |build, pair| {
                        build.text(&Parts::of(pair).need(Rule::string))
                    });
                    let trivia = self.end(open, end - 1, self.span(at, end));
                    let span = self.span(at, end);
                    let clause = value.map(|value| Clause { value, trivia, span });
                    let before = export.is_some();
                    export = clause.or(export);
                    before
                }
            };
            if repeated {
                let message = format!("this header has a second `{word}`");
                let diagnostic = Diagnostic::error(Code::E0012, message)
                    .label(self.span(at, at + 1), "already given before")
                    .help("join the two with `,`, or remove one");
                self.sink.push(diagnostic);
            }
            at = end;
        }
        Some(KernelHeader { name: name?, consts, buffers, launch, wheres, tune, export })
    }

    /// The header of the function at `lo`, whose body starts at `hi`.
    pub(super) fn function_header(&mut self, lo: usize, hi: usize) -> Option<FunctionHeader> {
        let (name, at) = self.header_name(lo, hi, Rule::fn_head, "fn");
        let (consts, at) = self.consts(at, hi);
        let (params, at) = self.list(at, hi, "(", |parser, lo, hi, trivia| {
            let param = parser.piece(&FN_PARAM, lo, hi, Build::fn_param)?;
            Some(FnParam { trivia, ..param })
        });
        let mut returns = Vec::new();
        if at < hi {
            let piece = Piece {
                rule: Rule::fn_result,
                what: "result type",
                end: "`{`",
                form: Some("-> TYPE[SHAPE]"),
            };
            let types = self.piece(&piece, at, hi, |build, pair| {
                let types = Parts::of(pair).all(Rule::r#type);
                types.into_iter().map(|ty| build.ty(ty)).collect()
            });
            returns = types.unwrap_or_default();
        }
        Some(FunctionHeader { name: name?, consts, params, returns })
    }

    /// The name in a header, and where the parameters start.
    fn header_name(
        &mut self,
        lo: usize,
        hi: usize,
        rule: Rule,
        word: &str,
    ) -> (Option<Name>, usize) {
        let what = format!("`{word}` header");
        let piece = Piece { rule, what: &what, end: "`(`", form: words::form_of(word) };
        let params = (lo + 1..hi).find(|&at| matches!(self.word(at), "(" | "<" | "{"));
        let end = params.unwrap_or(hi);
        let name = self
            .piece(&piece, lo, end, |build, pair| build.name(&Parts::of(pair).need(Rule::name)));
        (name, end)
    }

    /// `<const …>` at `at`, if it is there, and the place behind it.
    fn consts(&mut self, at: usize, hi: usize) -> (Vec<ConstParam>, usize) {
        if self.word(at) != "<" {
            return (Vec::new(), at);
        }
        let mut end = at + 1;
        while end < hi && self.word(end) != ">" {
            end = self.skip(end);
        }
        let params = self.list_between(at + 1, end.min(hi), |parser, lo, hi, trivia| {
            let param = parser.piece(&CONST_PARAM, lo, hi, Build::const_param)?;
            Some(ConstParam { trivia, ..param })
        });
        if end >= hi {
            if !self.is_broken(at, hi) {
                let diagnostic = Diagnostic::error(Code::E0004, "`<` is not closed")
                    .label(self.span(at, at + 1), "opened here")
                    .help("the `const` parameters end with `>` before `(`");
                self.sink.push(diagnostic);
            }
            return (params, hi);
        }
        (params, end + 1)
    }

    /// A list in brackets at `at`, and the place behind it.
    fn list<T>(
        &mut self,
        at: usize,
        hi: usize,
        bracket: &str,
        read: impl Fn(&mut Self, usize, usize, Trivia) -> Option<T>,
    ) -> (Vec<T>, usize) {
        if at >= hi || !self.opens(at, bracket) {
            let at = at.min(hi);
            if !self.is_broken(at.saturating_sub(2), hi) {
                let found = self.word(at);
                let diagnostic = Diagnostic::error(
                    Code::E0010,
                    format!("expected `{bracket}`, found `{found}`"),
                )
                .label(self.span(at, at + 1), "the parameters stand here, in `(` and `)`");
                self.sink.push(diagnostic);
            }
            return (Vec::new(), self.next_clause(at, hi));
        }
        let end = self.partner(at);
        // An opening bracket without its partner runs into what follows the list.
        let last = if self.is_broken(at, at + 1) { at + 1 } else { end };
        (self.list_between(at + 1, last, read), end + 1)
    }

    fn list_between<T>(
        &mut self,
        lo: usize,
        hi: usize,
        read: impl Fn(&mut Self, usize, usize, Trivia) -> Option<T>,
    ) -> Vec<T> {
        let mut nodes = Vec::new();
        for (start, end) in self.split(lo, hi, ",") {
            let open = self.begin(start);
            // The separator belongs to the node, so that a comment behind it does.
            let last = if end < hi { end } else { end - 1 };
            let trivia = self.end(open, last, self.span(start, end));
            nodes.extend(read(self, start, end, trivia));
        }
        nodes
    }

    /// Skips and reports what stands between the parameters and the first clause.
    fn expect_clause(&mut self, at: usize, hi: usize) -> usize {
        let clause = self.next_clause(at, hi);
        if clause > at && !self.is_broken(at, clause) {
            let found = self.word(at);
            let diagnostic = Diagnostic::error(
                Code::E0010,
                format!("expected `launch`, `where`, `tune`, `export` or `{{`, found `{found}`"),
            )
            .label(self.span(at, at + 1), "the header does not go on like this");
            self.sink.push(diagnostic);
        }
        clause
    }

    fn next_clause(&self, mut at: usize, hi: usize) -> usize {
        while at < hi && !CLAUSES.contains(&self.word(at)) {
            at = self.skip(at);
        }
        at.min(hi)
    }

    fn launch_entries(&mut self, at: usize, end: usize) -> Vec<LaunchEntry> {
        let mut entries: Vec<LaunchEntry> = Vec::new();
        if !self.opens(at + 1, "{") || self.partner(at + 1) + 1 != end {
            if !self.is_broken(at, end) {
                let odd = if self.opens(at + 1, "{") { self.partner(at + 1) + 1 } else { at + 1 };
                let diagnostic = Diagnostic::error(
                    Code::E0010,
                    format!("`{}` does not fit behind `launch`", self.word(odd)),
                )
                .label(self.span(odd, odd + 1), "expected `{ … }` and then the next clause")
                .help("write `launch { grid: N, warps: 4, pdl: both }`");
                self.sink.push(diagnostic);
            }
            return entries;
        }
        let piece = Piece {
            rule: Rule::launch_entry,
            what: "`launch` entry",
            end: "`,` or `}`",
            form: Some("NAME: VALUE"),
        };
        for (lo, hi) in self.split(at + 2, end - 1, ",") {
            let entry = self.piece(&piece, lo, hi, |build, pair| {
                let span = build.span(&pair);
                let mut parts = Parts::of(pair);
                (build.name(&parts.need(Rule::word)), build.cond(parts.need(Rule::cond)), span)
            });
            let Some((key, value, span)) = entry else { continue };
            let known = LaunchKey::ALL.into_iter().find(|known| known.word() == key.text);
            match known {
                None => {
                    let all = LaunchKey::ALL.map(|key| format!("`{}`", key.word())).join(", ");
                    let diagnostic = Diagnostic::error(
                        Code::E0012,
                        format!("`launch` has no entry `{}`", key.text),
                    )
                    .label(key.span, "unknown entry")
                    .help(format!("its entries are {all}"));
                    self.sink.push(diagnostic);
                }
                Some(known) if entries.iter().any(|entry| entry.key == known) => {
                    let diagnostic =
                        Diagnostic::error(Code::E0012, format!("`{}` is given twice", key.text))
                            .label(key.span, "already given before");
                    self.sink.push(diagnostic);
                }
                Some(key) => entries.push(LaunchEntry { key, value, span }),
            }
        }
        entries
    }

    fn where_entries(&mut self, at: usize, end: usize) -> Vec<Expr> {
        let piece = Piece {
            rule: Rule::where_entry,
            what: "condition",
            end: "`,` or the next clause",
            form: None,
        };
        self.entries(at, end, &piece, |build, pair| build.only_cond(pair))
    }

    fn tune_entries(&mut self, at: usize, end: usize) -> Vec<Tune> {
        let piece = Piece {
            rule: Rule::tune_entry,
            what: "`tune` entry",
            end: "`,` or the next clause",
            form: Some("tune NAME in {A, B}"),
        };
        self.entries(at, end, &piece, |build, pair| {
            let span = build.span(&pair);
            let mut parts = Parts::of(pair);
            let name = build.name(&parts.need(Rule::name));
            Tune { name, domain: build.domain(parts.need(Rule::domain)), span }
        })
    }

    /// The entries behind the word of a clause; at least one.
    fn entries<T>(
        &mut self,
        at: usize,
        end: usize,
        piece: &Piece<'_>,
        build: impl Fn(&Build, Pair<'_, Rule>) -> T,
    ) -> Vec<T> {
        let mut parts = self.split(at + 1, end, ",");
        if parts.is_empty() {
            parts.push((end, end));
        }
        let mut nodes = Vec::new();
        for (lo, hi) in parts {
            nodes.extend(self.piece(piece, lo, hi, &build));
        }
        nodes
    }
}

impl Build {
    fn const_param(&self, pair: Pair<'_, Rule>) -> ConstParam {
        let span = self.span(&pair);
        let mut parts = Parts::of(pair);
        let domain = parts.take(Rule::domain_of);
        ConstParam {
            name: self.name(&parts.need(Rule::name)),
            ty: self.name(&parts.need(Rule::name)),
            domain: domain.map(|pair| self.domain(Parts::of(pair).need(Rule::domain))),
            default: self.clause(&mut parts, Rule::default),
            trivia: Trivia::default(),
            span,
        }
    }

    fn buffer(&self, pair: Pair<'_, Rule>) -> Buffer {
        let span = self.span(&pair);
        let mut parts = Parts::of(pair);
        let access = self.access(parts.need(Rule::access));
        let name = self.name(&parts.need(Rule::name));
        let space = self.space(&mut parts);
        let ty = self.ty(parts.need(Rule::r#type));
        let ring = self.once(&mut parts, Rule::ring, "`ring`").map(|pair| self.only_cond(pair));
        let of = self.once(&mut parts, Rule::window_of, "`of`");
        let of = of.map(|pair| self.name(&Parts::of(pair).need(Rule::name)));
        let scaled_by = self.once(&mut parts, Rule::scaled_by, "`scaled_by`").map(|pair| {
            let mut parts = Parts::of(pair);
            let scale = self.name(&parts.need(Rule::name));
            ScaledBy { scale, group: self.cond(parts.need(Rule::cond)) }
        });
        let stored = self.once(&mut parts, Rule::stored, "`stored`");
        let stored = stored.map(|pair| self.only_cond(pair));
        let contract = self.once(&mut parts, Rule::contract, "contract");
        let contract = contract.map(|pair| self.contract(pair));
        let trivia = Trivia::default();
        Buffer { access, name, space, ty, ring, of, scaled_by, stored, contract, trivia, span }
    }

    /// The one part of a rule; a second one is reported.
    pub(super) fn once<'i>(
        &self,
        parts: &mut Parts<'i>,
        rule: Rule,
        what: &str,
    ) -> Option<Pair<'i, Rule>> {
        let mut all = parts.all(rule).into_iter();
        let first = all.next();
        if let Some(second) = all.next() {
            self.repeated(self.span(&second), what);
        }
        first
    }

    fn access(&self, pair: Pair<'_, Rule>) -> Access {
        let span = self.span(&pair);
        let mut parts = Parts::of(pair);
        let modifiers: Vec<Parts<'_>> =
            parts.all(Rule::access_modifier).into_iter().map(Parts::of).collect();
        let has = |rule| parts.has(rule) || modifiers.iter().any(|modifier| modifier.has(rule));
        let settled = parts.has(Rule::kw_settled);
        let (counter, epoch) = (has(Rule::kw_counter), has(Rule::kw_epoch));
        let word = parts.need(Rule::qualifier);
        let all = [
            Qualifier::Static,
            Qualifier::Input,
            Qualifier::Output,
            Qualifier::Inout,
            Qualifier::Scratch,
            Qualifier::Peer,
            Qualifier::Scalar,
            Qualifier::Writable,
        ];
        let qualifier = all.into_iter().find(|qualifier| qualifier.word() == word.as_str());
        let qualifier = qualifier.expect("the rule `qualifier` lists the words of Qualifier");
        Access { qualifier, settled, counter, epoch, span }
    }

    fn space(&self, parts: &mut Parts<'_>) -> Option<Space> {
        let word = parts.take(Rule::space)?;
        let all = [
            Space::Gmem,
            Space::Smem,
            Space::Tmem,
            Space::Frag,
            Space::Sym,
            Space::SymFlag,
            Space::SymMc,
        ];
        all.into_iter().find(|space| space.word() == word.as_str())
    }

    fn contract(&self, pair: Pair<'_, Rule>) -> Contract {
        let span = self.span(&pair);
        let mut parts = Parts::of(pair);
        Contract {
            domain: self.domain(parts.need(Rule::domain)),
            distinct: parts.has(Rule::kw_distinct),
            except: self.clause(&mut parts, Rule::except),
            span,
        }
    }

    fn fn_param(&self, pair: Pair<'_, Rule>) -> FnParam {
        let span = self.span(&pair);
        let mut parts = Parts::of(pair);
        FnParam {
            name: self.name(&parts.need(Rule::name)),
            access: parts.take(Rule::access_of_param).map(|pair| self.access(pair)),
            space: self.space(&mut parts),
            ty: self.ty(parts.need(Rule::r#type)),
            trivia: Trivia::default(),
            span,
        }
    }
}

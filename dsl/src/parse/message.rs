//! Failures of the grammar in the words of the language.

use pest::error::{Error, ErrorVariant, InputLocation};

use super::scan::{Token, TokenKind};
use super::{Rule, words};
use crate::diag::{Code, Diagnostic};
use crate::source::{FileId, Span};

/// A piece of text that is matched alone, and how to speak of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'a> {
    /// The rule that it must match.
    pub(super) rule: Rule,
    /// What it is: "`store` statement", "parameter".
    pub(super) what: &'a str,
    /// What may follow it: "`;`".
    pub(super) end: &'a str,
    /// How it is written.
    pub(super) form: Option<&'a str>,
}

/// Where the piece stands: tokens `lo..hi` of all tokens.
pub(super) struct Place<'a> {
    pub(super) file: FileId,
    pub(super) text: &'a str,
    pub(super) tokens: &'a [Token],
    pub(super) lo: usize,
    pub(super) hi: usize,
}

/// Says what a piece lacks.
pub(super) fn syntax_error(
    place: &Place<'_>,
    piece: &Piece<'_>,
    error: &Error<Rule>,
) -> Diagnostic {
    let base = place.tokens[place.lo].lo;
    let offset = match error.location {
        InputLocation::Pos(at) | InputLocation::Span((at, _)) => base + at as u32,
    };
    let at = place.lo + place.tokens[place.lo..place.hi].partition_point(|t| t.hi <= offset);
    let positives = match &error.variant {
        ErrorVariant::ParsingError { positives, .. } => positives.as_slice(),
        ErrorVariant::CustomError { .. } => {
            return Diagnostic::error(Code::E0005, format!("this {} nests too deeply", piece.what))
                .label(place.span(place.lo, place.hi), "too deep to follow")
                .help("bind parts of it with `let` or `const`");
        }
    };
    let mut expected = expected(positives, piece);
    let behind_name = at > place.lo
        && place.tokens[at - 1].kind == TokenKind::Word
        && !words::is_reserved(place.word(at - 1));
    if behind_name && expected.len() > 1 {
        // Every name could be called; nobody is helped by hearing so.
        expected.retain(|phrase| phrase != "`(`");
    }
    let found = place.found(at);
    let here = place.span(at, at + 1);

    if at < place.hi
        && place.tokens[at].kind == TokenKind::Word
        && expected.iter().any(|phrase| phrase == NAME)
        && words::is_reserved(place.word(at))
    {
        let word = place.word(at);
        let message = format!("`{word}` is a word of the language and cannot be a name");
        return Diagnostic::error(Code::E0013, message)
            .label(here, "expected a name")
            .help("choose another name");
    }

    let list = join(&expected);
    let mut diagnostic = Diagnostic::error(Code::E0010, format!("expected {list}, found {found}"))
        .label(here, format!("this {} does not go on like this", piece.what));
    if at < place.hi && place.word(at) == "@" && at > place.lo && place.word(at - 1) == "]" {
        diagnostic = diagnostic.help("`@` stands behind the name, before the index: `x@t[i]`");
    }
    match piece.form {
        Some(form) => diagnostic.help(format!("write `{form}`")),
        None => diagnostic,
    }
}

const NAME: &str = "a name";
const EXPRESSION: &str = "an expression";
/// What "an expression" covers.
const BEGINS_EXPRESSION: &[&str] =
    &[NAME, "a string", "`(`", "`load`", "`arrive.last`", "`layout`", "`spread`", "`match`"];
const INSTANCE: &str = "which instance";
const OPERATOR: &str = "an operator";

/// The phrases for what could stand at the place, the most telling first.
fn expected(positives: &[Rule], piece: &Piece<'_>) -> Vec<String> {
    let mut phrases: Vec<String> = Vec::new();
    if positives.contains(&Rule::EOI) {
        phrases.push(piece.end.to_owned());
    }
    for &rule in positives {
        if let Some(phrase) = phrase(rule)
            && !phrases.contains(&phrase)
        {
            phrases.push(phrase);
        }
    }
    if phrases.len() > 1 {
        phrases.retain(|phrase| phrase != OPERATOR);
    }
    if phrases.iter().any(|phrase| phrase == EXPRESSION) {
        phrases.retain(|phrase| !BEGINS_EXPRESSION.contains(&phrase.as_str()));
    }
    let has = |phrases: &[String], wanted: &str| phrases.iter().any(|phrase| phrase == wanted);
    if has(&phrases, "`,`") {
        // Every argument could be a named one.
        phrases.retain(|phrase| phrase != "`=`");
    }
    if has(&phrases, INSTANCE) {
        phrases.retain(|phrase| phrase != "`cta`" && phrase != "`peer`");
    }
    if phrases.is_empty() {
        phrases.push(format!("the form of a {}", piece.what));
    }
    phrases
}

fn join(phrases: &[String]) -> String {
    let shown = &phrases[..phrases.len().min(6)];
    match shown {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// What people call a rule; keyword rules are `kw_` and the word.
fn phrase(rule: Rule) -> Option<String> {
    let debug = format!("{rule:?}");
    if let Some(word) = debug.strip_prefix("kw_") {
        return Some(format!("`{}`", if word == "arrive_last" { "arrive.last" } else { word }));
    }
    let phrase = match rule {
        Rule::EOI => return None,
        Rule::name | Rule::binder | Rule::path | Rule::word | Rule::pattern => NAME,
        Rule::dtype | Rule::r#type => "a type",
        Rule::string => "a string",
        Rule::value
        | Rule::cond
        | Rule::chain
        | Rule::signed
        | Rule::operand
        | Rule::int
        | Rule::float
        | Rule::boolean
        | Rule::inf
        | Rule::each
        | Rule::paren
        | Rule::named
        | Rule::atomic
        | Rule::generic_call
        | Rule::generic_head
        | Rule::load_expr
        | Rule::arrive_last
        | Rule::match_arch
        | Rule::spread
        | Rule::layout
        | Rule::arg
        | Rule::arg_name
        | Rule::neg
        | Rule::not
        | Rule::bit_not => EXPRESSION,
        Rule::generic_arg | Rule::generic_path => EXPRESSION,
        Rule::or
        | Rule::and
        | Rule::eq
        | Rule::ne
        | Rule::le
        | Rule::lt
        | Rule::ge
        | Rule::gt
        | Rule::shl
        | Rule::shr
        | Rule::bit_or
        | Rule::bit_xor
        | Rule::bit_and
        | Rule::add
        | Rule::sub
        | Rule::mul
        | Rule::div
        | Rule::rem
        | Rule::transpose
        | Rule::index_list
        | Rule::member
        | Rule::question
        | Rule::range_end
        | Rule::to_inclusive
        | Rule::to_length
        | Rule::to_exclusive
        | Rule::instance
        | Rule::at_sign
        | Rule::args
        | Rule::open_bracket => OPERATOR,
        Rule::index => "an index",
        Rule::hole => "`_`",
        Rule::all_of_axis => "`:`",
        Rule::slot | Rule::cta_instance | Rule::peer_instance => INSTANCE,
        Rule::dim | Rule::rest_of_shape => "an extent",
        Rule::arrow | Rule::move_dest => "`->`",
        Rule::comma | Rule::trailing_comma => "`,`",
        Rule::colon | Rule::type_of => "`:`",
        Rule::equals | Rule::tile_init | Rule::default => "`=`",
        Rule::fat_arrow => "`=>`",
        Rule::open_paren => "`(`",
        Rule::close_paren => "`)`",
        Rule::close_bracket => "`]`",
        Rule::open_brace => "`{`",
        Rule::close_brace => "`}`",
        Rule::semicolon => "`;`",
        Rule::star => "`*`",
        Rule::dot => "`.`",
        Rule::assign | Rule::assign_op => "`=`",
        Rule::qualifier | Rule::access | Rule::access_of_param => {
            "a qualifier such as `static`, `input` or `output`"
        }
        Rule::space => "a memory space such as `gmem`",
        Rule::order_word => "`relaxed`, `acquire`, `release` or `acq_rel`",
        Rule::scope_word => "`cta`, `cluster`, `gpu` or `sys`",
        Rule::order => "`order`",
        Rule::scope => "`scope`",
        Rule::until => "`until`",
        Rule::via => "`via`",
        Rule::absent => "`else`",
        Rule::policy => "`evict`",
        Rule::into => "`into`",
        Rule::ring => "`ring`",
        Rule::stored => "`stored`",
        Rule::scaled_by => "`scaled_by`",
        Rule::window_of => "`of`",
        Rule::contract | Rule::domain_of => "`in`",
        Rule::except => "`except`",
        Rule::swizzle => "`swizzle`",
        Rule::align => "`align`",
        Rule::every => "`every`",
        Rule::but => "`but`",
        Rule::step => "`step`",
        Rule::unroll => "`unroll`",
        Rule::add_by | Rule::add_if => "`add`",
        Rule::view_sizes => "`(`",
        Rule::view_size => NAME,
        Rule::domain | Rule::domain_set => "values such as `{1, 2}` or `0..n`",
        Rule::arch_pattern | Rule::arch_value => "a target or `_`",
        Rule::spread_list => "`(`",
        Rule::spread_entry => "an entry such as `warp: 0`",
        Rule::edge => "bytes, `from` or `to`",
        Rule::from_roles => "`from`",
        Rule::to_roles => "`to`",
        Rule::stages_entry => "`stages`",
        Rule::full_entry => "`full`",
        Rule::empty_entry => "`empty`",
        Rule::elect_one => "`elect one`",
        Rule::registers => "`registers`",
        Rule::sync_cluster => "`cluster`",
        Rule::tickets => "`tickets`",
        Rule::ptx_out => "`out`",
        Rule::ptx_in => "`in`",
        Rule::ptx_places => "`(`",
        _ => return None,
    };
    Some(phrase.to_owned())
}

impl Place<'_> {
    /// The text of a token; empty behind the last.
    fn word(&self, at: usize) -> &str {
        let token = self.tokens.get(at);
        token.map_or("", |token| &self.text[token.lo as usize..token.hi as usize])
    }

    /// From the first of the tokens `lo..hi` to the last; an empty place behind the text when there
    /// are none.
    fn span(&self, lo: usize, hi: usize) -> Span {
        let hi = hi.min(self.tokens.len());
        if lo >= hi {
            let end = self.tokens.last().map_or(0, |token| token.hi);
            return Span::new(self.file, end, end);
        }
        Span::new(self.file, self.tokens[lo].lo, self.tokens[hi - 1].hi)
    }

    fn found(&self, at: usize) -> String {
        let Some(token) = self.tokens.get(at) else { return "the end of the file".to_owned() };
        let word = self.word(at);
        match token.kind {
            TokenKind::Str => "a string".to_owned(),
            _ if word.is_empty() => "the end of the text".to_owned(),
            _ if word.len() > 32 => {
                format!("`{}…`", word.chars().take(30).collect::<String>())
            }
            _ => format!("`{word}`"),
        }
    }
}

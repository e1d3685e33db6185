//! Counters and epochs: `if arrive.last c[i] of n { … }` and `advance e[i];`.

use kernel_abi::DType;
use kernel_dsl::ast::{ArriveLast, Await, Expr, ExprKind, Index, IndexKind, Order, Scope, Signal};
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::lower::Lower;
use super::mistakes::word_mistake;
use super::operands::Tile;
use super::report::{Outcome, Refused};
use super::scope::{Buffer, Entity, Memory};
use crate::kernel::{self, Op, StmtKind, Word, Words};

/// How the CTAs of a grid wait for each other.
const SIGNAL_FORM: &str = "write `signal c[0] add 1 order release scope gpu;` and \
     `await c[0] until (t + 1) * CTAS order acquire scope gpu;`, with `let t = load e[…];` of an `inout epoch e`";

impl<'a> Lower<'a> {
    /// `arrive.last c[i] of n`: whether this CTA is the last.
    pub(super) fn arrive_last(&mut self, arrive: &'a ArriveLast, span: Span) -> Outcome<Tile> {
        let word = self.word(&arrive.counter, Words::Counter);
        let count = self.const_extent(&arrive.count, "the number of arrivals", 1, 1 << 31)?;
        self.define(Op::ArriveLast { word: word?, count }, DType::Bool, Vec::new(), span)
    }

    /// The counter that a signal or a wait names, where it names one.
    pub(super) fn names_counter(&self, e: &Expr) -> bool {
        let base = match &e.kind {
            ExprKind::Index(base, _) => base,
            _ => e,
        };
        let ExprKind::Ref(reference) = &base.kind else { return false };
        let named = self.frame.lookup(&reference.path.text());
        named.is_some_and(|named| match &named.entity {
            Entity::Buffer(Buffer { memory: Memory::Param(param), .. }) => {
                let words = self.kernel.params[*param].words;
                matches!(words, Some(Words::Counter | Words::Raised))
            }
            _ => false,
        })
    }

    /// `signal c[i] add n order release scope gpu;`
    pub(super) fn signal_counter(&mut self, signal: &'a Signal, span: Span) -> Outcome<()> {
        let word = self.raised(&signal.flag)?;
        self.ordered_in_grid(signal.order, signal.scope, Order::Release, signal.flag.span)?;
        let add = match &signal.add {
            None => 1,
            Some(e) => self.const_extent(e, "what a signal adds", 1, 1 << 16)?,
        };
        let Word { param, index, span: at } = word;
        let signal = kernel::Signal { param, index: vec![index], to: None, add, span: at };
        self.emit(StmtKind::Signal(signal), span)
    }

    /// `await c[i] until v order acquire scope gpu;`
    pub(super) fn wait_for_counter(&mut self, wait: &'a Await, span: Span) -> Outcome<()> {
        let word = self.raised(&wait.flag)?;
        self.ordered_in_grid(wait.order, wait.scope, Order::Acquire, wait.flag.span)?;
        let until = self.expr(&wait.until)?;
        let until =
            self.scalar(until, DType::U32, "the value that is waited for", wait.until.span)?;
        let Word { param, index, span: at } = word;
        let wait = kernel::Await { param, index: vec![Some(index)], until, span: at };
        self.emit(StmtKind::Await(wait), span)
    }

    /// A word of a counter that signals raise from now on.
    fn raised(&mut self, e: &'a Expr) -> Outcome<Word> {
        let word = self.word(e, Words::Raised)?;
        self.kernel.params[word.param].words = Some(Words::Raised);
        Ok(word)
    }

    fn ordered_in_grid(
        &mut self,
        order: Option<Order>,
        scope: Option<Scope>,
        wanted: Order,
        at: Span,
    ) -> Outcome<()> {
        if order == Some(wanted) && scope == Some(Scope::Gpu) {
            return Ok(());
        }
        let label = format!("this takes `order {} scope gpu`", wanted.word());
        Err(self.error(
            Diagnostic::error(Code::E0174, "an order that other CTAs do not see")
                .label(at, label)
                .help(SIGNAL_FORM),
        ))
    }

    /// `advance e[i];`
    pub(super) fn advance(&mut self, e: &'a Expr, span: Span) -> Outcome<()> {
        let word = self.word(e, Words::Epoch)?;
        self.emit(StmtKind::Advance { word }, span)
    }

    pub(super) fn word(&mut self, e: &'a Expr, wanted: Words) -> Outcome<Word> {
        let (base, index) = match &e.kind {
            ExprKind::Index(base, indices) => match indices.as_slice() {
                [Index { kind: IndexKind::At(index, None), .. }] => (&**base, index),
                _ => return Err(self.no_word(e.span, wanted)),
            },
            _ => return Err(self.no_word(e.span, wanted)),
        };
        let ExprKind::Ref(reference) = &base.kind else {
            return Err(self.no_word(e.span, wanted));
        };
        let name = reference.path.text();
        let Some(named) = self.frame.lookup(&name) else {
            return Err(self.unknown(&name, reference.path.span));
        };
        let param = match &named.entity {
            Entity::Buffer(Buffer { memory: Memory::Param(param), .. }) => *param,
            Entity::Buffer(Buffer { memory: Memory::Smem { .. }, .. }) => {
                return Err(self.no_word(e.span, wanted));
            }
            Entity::Refused => return Err(Refused),
            Entity::Const(_)
            | Entity::Tile(_)
            | Entity::Range(_)
            | Entity::Frag(_)
            | Entity::Atom(_) => {
                return Err(self.no_word(e.span, wanted));
            }
        };
        let declared = &self.kernel.params[param];
        // A counter is one that signals raise when the first signal or wait says so.
        let is_new = (wanted, declared.words) == (Words::Raised, Some(Words::Counter));
        if declared.words != Some(wanted) && !is_new {
            let span = declared.span;
            return Err(self.error(word_mistake(wanted.name(), &name, base.span, span)));
        }
        let operand = self.expr(index)?;
        let index = self.scalar(operand, DType::I32, "the index of a word", index.span)?;
        Ok(Word { param, index, span: e.span })
    }

    fn no_word(&mut self, span: Span, wanted: Words) -> Refused {
        self.error(
            Diagnostic::error(Code::E0114, format!("a word of {} is needed here", article(wanted)))
                .label(span, "one position of a buffer of one axis")
                .help(form(wanted.name())),
        )
    }
}

fn article(words: Words) -> &'static str {
    match words {
        Words::Counter | Words::Raised => "a counter",
        Words::Epoch => "an epoch",
        Words::Flag => "a flag",
    }
}

/// How the words are used.
pub(super) fn form(word: &str) -> &'static str {
    match word {
        "flag" => super::ranks::FLAG_FORM,
        "counter" => {
            "write `if arrive.last c[i] of n { … }`, `for t in tickets(c[i], n) { … }`, or `signal c[i] …` and `await c[i] …`"
        }
        _ => "write `let t = load e[i];` and `advance e[i];`",
    }
}

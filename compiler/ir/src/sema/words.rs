//! Counters and epochs: `if arrive.last c[i] of n { … }` and `advance e[i];`.

use kernel_abi::DType;
use kernel_dsl::ast::{ArriveLast, Expr, ExprKind, Index, IndexKind};
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::lower::Lower;
use super::mistakes::word_mistake;
use super::operands::Tile;
use super::report::{Outcome, Refused};
use super::scope::{Buffer, Entity, Memory};
use crate::kernel::{Op, StmtKind, Word, Words};

impl<'a> Lower<'a> {
    /// `arrive.last c[i] of n`: whether this CTA is the last.
    pub(super) fn arrive_last(&mut self, arrive: &'a ArriveLast, span: Span) -> Outcome<Tile> {
        let word = self.word(&arrive.counter, Words::Counter);
        let count = self.const_extent(&arrive.count, "the number of arrivals", 1, 1 << 31)?;
        self.define(Op::ArriveLast { word: word?, count }, DType::Bool, Vec::new(), span)
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
        if declared.words != Some(wanted) {
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
        Words::Counter => "a counter",
        Words::Epoch => "an epoch",
        Words::Flag => "a flag",
    }
}

/// How the words are used.
pub(super) fn form(word: &str) -> &'static str {
    match word {
        "flag" => super::ranks::FLAG_FORM,
        "counter" => "write `if arrive.last c[i] of n { … }` or `for t in tickets(c[i], n) { … }`",
        _ => "write `let t = load e[i];` and `advance e[i];`",
    }
}

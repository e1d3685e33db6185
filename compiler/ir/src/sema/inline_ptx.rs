//! `unsafe { ptx "…" out(y) in(a, b) = a + b; }`: instructions that the author writes, with what they compute.

use kernel_abi::DType;
use kernel_dsl::ast::{Expr, ExprKind, Name, Ptx, Text};
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::lower::Lower;
use super::operands::Tile;
use super::report::{Outcome, Refused};
use super::scope::Entity;
use crate::kernel::{Op, Stmt, StmtKind};
use crate::ops::inline;

/// The form, for messages.
const FORM: &str = "write `unsafe { ptx \"add.f32 %0, %1, %2;\" out(y) in(a, b) = a + b; }`";

/// What is wrong whatever the values are.
pub(super) fn mistake(ptx: &Ptx) -> Option<Diagnostic> {
    let wrong = |message: &str, at: Span, label: &str| {
        Some(Diagnostic::error(Code::E0223, message).label(at, label).help(FORM))
    };
    match (ptx.outputs.as_slice(), &ptx.meaning) {
        ([], _) => wrong("PTX without a result", ptx.text.span, "`out(y)` says where `%0` goes"),
        ([_, second, ..], _) => {
            wrong("PTX with two results", second.span, "one text gives one value, `%0`")
        }
        ([_], None) => wrong(
            "PTX without a meaning",
            ptx.text.span,
            "`= value` says in the language what it computes; the emulator runs that",
        ),
        ([_], Some(_)) => None,
    }
}

/// The name after `out`.
pub(super) fn target(output: &Expr) -> Option<&Name> {
    let ExprKind::Ref(reference) = &output.kind else { return None };
    reference.path.single()
}

/// A result that goes into a part of something.
pub(super) fn no_name(output: &Expr) -> Diagnostic {
    Diagnostic::error(Code::E0223, "PTX whose result has no name")
        .label(output.span, "a new name, or a tile that `frag` declares")
        .help(FORM)
}

impl<'a> Lower<'a> {
    /// The statements of an `unsafe` block.
    pub(super) fn inline_ptx(&mut self, statements: &'a [Ptx]) -> Outcome<()> {
        for ptx in statements {
            let done = self.one_ptx(ptx);
            if done.is_err() {
                // Later statements name the result.
                let names = ptx.outputs.iter().filter_map(target);
                let unknown: Vec<&Name> =
                    names.filter(|name| self.frame.lookup(&name.text).is_none()).collect();
                unknown.into_iter().for_each(|name| self.frame.define(name, Entity::Refused));
                return done;
            }
        }
        Ok(())
    }

    fn one_ptx(&mut self, ptx: &'a Ptx) -> Outcome<()> {
        if let Some(diagnostic) = mistake(ptx) {
            return Err(self.error(diagnostic));
        }
        let ([output], Some(meaning)) = (ptx.outputs.as_slice(), &ptx.meaning) else {
            return Err(Refused);
        };
        let Some(name) = target(output) else { return Err(self.error(no_name(output))) };
        let mut inputs = Vec::with_capacity(ptx.inputs.len());
        for input in &ptx.inputs {
            let operand = self.expr(input)?;
            inputs.push(self.tile(operand, None, input.span)?);
        }
        let mark = self.mark();
        let equals = self.expr(meaning)?;
        let equals = self.tile(equals, None, meaning.span)?;
        if !self.since(mark).iter().all(is_elementwise) {
            return Err(self.error(
                Diagnostic::error(Code::E0223, "a meaning that is more than element-wise")
                    .label(
                        meaning.span,
                        "each element follows from those of the inputs at its place",
                    )
                    .help("load and reduce before, and name the values in `in(…)`"),
            ));
        }
        let types: Vec<DType> =
            std::iter::once(equals.dtype).chain(inputs.iter().map(|tile| tile.dtype)).collect();
        let text = self.ptx_text(&ptx.text, &types)?;
        let all: Vec<&Tile> = std::iter::once(&equals).chain(&inputs).collect();
        let shape = self.broadcast(&all, ptx.span)?;
        if shape != equals.shape {
            let found = equals.describe();
            return Err(self.error(
                Diagnostic::error(Code::E0204, "PTX with operands of another shape")
                    .label(meaning.span, format!("the result is {found}"))
                    .help("the result has the common shape of all operands"),
            ));
        }
        let value = self.elementwise(equals.dtype, shape, &all, ptx.span, |ids| Op::Inline {
            text,
            equals: ids[0],
            inputs: ids[1..].to_vec(),
        })?;
        let tile = self.tile(value, Some(equals.dtype), ptx.span)?;
        let is_frag = self
            .frame
            .lookup(&name.text)
            .is_some_and(|named| matches!(named.entity, Entity::Frag(_)));
        if is_frag {
            let (frag, slot, declared) = self.assignable(output)?;
            return self.set(&frag, slot, &tile, declared, output.span, ptx.span);
        }
        let entity = self.named_tile(tile, &name.text);
        self.frame.define(name, entity);
        Ok(())
    }

    fn ptx_text(&mut self, text: &'a Text, types: &[DType]) -> Outcome<String> {
        inline::read(&text.value, types).map_err(|fault| {
            self.error(
                Diagnostic::error(Code::E0223, "PTX that a kernel may not hold")
                    .label(text.span, fault.to_string())
                    .help("a text computes `%0` from `%1`, `%2`, … by arithmetic alone"),
            )
        })
    }
}

fn is_elementwise(stmt: &Stmt) -> bool {
    let StmtKind::Def { op, .. } = &stmt.kind else { return false };
    match op {
        Op::Const(_)
        | Op::CtaIndex(_)
        | Op::ClusterIndex(_)
        | Op::ScalarParam(_)
        | Op::Unary { .. }
        | Op::Binary { .. }
        | Op::Compare { .. }
        | Op::Select { .. }
        | Op::Fma { .. }
        | Op::Inline { .. }
        | Op::Convert { .. }
        | Op::Splat { .. }
        | Op::Expand { .. }
        | Op::ReadVar { .. } => true,
        Op::Iota
        | Op::Load { .. }
        | Op::Reduce { .. }
        | Op::Argmax { .. }
        | Op::Contract { .. }
        | Op::Mma { .. }
        | Op::Relayout { .. }
        | Op::Slice { .. }
        | Op::ArriveLast { .. }
        | Op::Atomic { .. }
        | Op::Scan { .. }
        | Op::Concat { .. } => false,
    }
}

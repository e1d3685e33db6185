//! `unsafe { ptx … }`, without bindings.

use kernel_dsl::ast::Ptx;

use super::{Checker, Known};
use crate::sema::inline_ptx::{mistake, no_name, target};

impl<'a> Checker<'a, '_> {
    /// The statements of an `unsafe` block.
    pub(super) fn inline_ptx(&mut self, statements: &'a [Ptx]) {
        for ptx in statements {
            ptx.inputs.iter().chain(&ptx.meaning).for_each(|value| self.value(value));
            if let Some(diagnostic) = mistake(ptx) {
                self.report.error(diagnostic);
            }
            for output in &ptx.outputs {
                let Some(name) = target(output) else {
                    self.report.error(no_name(output));
                    continue;
                };
                match self.lookup(&name.text) {
                    Some((Known::Frag { .. }, _)) => self.assignable(output),
                    Some(_) | None => self.declare(name, Known::Value),
                }
            }
        }
    }
}

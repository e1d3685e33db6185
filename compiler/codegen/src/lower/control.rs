//! Loops and choices.

use kernel_ir::device::{DeviceStmt, FragId};
use melior::dialect::arith::CmpiPredicate;

use super::build::LoopCompare;
use super::{Lowered, Lowering, refuse};

impl Lowering<'_, '_, '_> {
    /// A loop. With a step of 1 the variable itself is counted; otherwise the rounds are, so that a
    /// variable near the greatest number does not wrap into a loop without end.
    pub(super) fn r#for(
        &mut self,
        var: FragId,
        start: FragId,
        end: FragId,
        step: u32,
        body: &[DeviceStmt],
    ) -> Lowered<()> {
        let outer = self.build;
        let i32 = outer.types.i32;
        let (start, end) = (self.element(start, 0)?, self.element(end, 0)?);
        if step == 0 || i32::try_from(step).is_err() {
            return refuse(format!("a loop cannot step by {step}"));
        }
        let one = outer.int(i32, 1);
        if step == 1 {
            let (block, counter) = outer.counted_loop([start, end, one], LoopCompare::Signed);
            self.build = outer.at(block);
            self.define(var, vec![counter])?;
        } else {
            let step = outer.int(i32, step.into());
            let runs = outer.compare_int(CmpiPredicate::Slt, start, end);
            let zero = outer.int(i32, 0);
            let span = outer.select(runs, outer.subi(end, start), zero);
            let rounds = outer.ceildivui(span, step);
            let (block, counter) = outer.counted_loop([zero, rounds, one], LoopCompare::Unsigned);
            self.build = outer.at(block);
            let value = self.build.addi(start, self.build.muli(counter, step));
            self.define(var, vec![value])?;
        }
        self.statements(body)?;
        self.build.end();
        self.build = outer;
        Ok(())
    }

    /// A loop whose rounds end with a look at a register.
    pub(super) fn repeat(&mut self, body: &[DeviceStmt], again: FragId) -> Lowered<()> {
        let outer = self.build;
        self.build = outer.at(outer.repeat());
        self.statements(body)?;
        self.build.end_round(self.element(again, 0)?);
        self.build = outer;
        Ok(())
    }

    /// A choice.
    pub(super) fn r#if(
        &mut self,
        cond: FragId,
        then_body: &[DeviceStmt],
        else_body: &[DeviceStmt],
    ) -> Lowered<()> {
        let outer = self.build;
        let (then_block, else_block) = outer.choice(self.element(cond, 0)?);
        for (block, body) in [(then_block, then_body), (else_block, else_body)] {
            self.build = outer.at(block);
            self.statements(body)?;
            self.build.end();
        }
        self.build = outer;
        Ok(())
    }
}

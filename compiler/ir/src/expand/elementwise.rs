//! Operations that work register by register.

use super::builder::{Pred, fits};
use super::linear::Linear;
use super::{Expander, Repr};
use crate::device::{Arg, DeviceOp, FragId};
use crate::distribution::Distribution;
use crate::kernel::{Literal, ValueId};
use crate::ops::{BinaryOp, CompareOp, UnaryOp};

/// For each register of the result the register of an operand that broadcasts to it.
fn operand_table(result: &Distribution, operand: &Distribution) -> Vec<u32> {
    let skip = result.axes.len().saturating_sub(operand.axes.len());
    (0..result.registers())
        .map(|register| {
            let locals = result.locals(register);
            let mut own: Vec<u32> = locals.get(skip..).unwrap_or_default().to_vec();
            for (local, axis) in own.iter_mut().zip(&operand.axes) {
                if axis.extent() == 1 {
                    *local = 0;
                }
            }
            operand.register(&own)
        })
        .collect()
}

impl Expander<'_> {
    fn distribution(&self, value: ValueId) -> &Distribution {
        &self.kernel.values[value].distribution
    }

    /// The operand `x` of an operation that gives `result`.
    pub(super) fn operand(&mut self, x: ValueId, result: ValueId) -> Arg {
        let frag = self.frag(x);
        let kernel = self.kernel;
        let (own, target) = (&kernel.values[x].distribution, &kernel.values[result].distribution);
        if own == target {
            return Arg::whole(frag);
        }
        let table = operand_table(target, own);
        self.b.gather(frag, table)
    }

    /// Registers of `result` computed by the operation that `make` returns.
    pub(super) fn define_value(
        &mut self,
        result: ValueId,
        make: impl FnOnce(FragId) -> DeviceOp,
    ) -> FragId {
        let dtype = self.kernel.values[result].dtype;
        let len = self.distribution(result).registers();
        self.b.define(dtype, len, make)
    }

    pub(super) fn bind(&mut self, result: ValueId, frag: FragId) {
        self.values.insert(result, Repr::Frag(frag));
    }

    pub(super) fn bind_int(&mut self, result: ValueId, form: Linear) {
        self.values.insert(result, Repr::Int(form));
    }

    fn bind_pred(&mut self, result: ValueId, pred: Pred) {
        let reg = self.b.pred(pred);
        let frag = self.b.single(reg);
        self.bind(result, frag);
    }

    pub(super) fn literal(&mut self, result: ValueId, literal: Literal) {
        let dtype = self.kernel.values[result].dtype;
        match literal {
            Literal::Int(value) if self.is_form(result) => {
                self.bind_int(result, Linear::constant(value));
            }
            Literal::Int(value) if dtype.is_float() => {
                let frag = self.b.float(dtype, value as f64);
                self.bind(result, frag);
            }
            Literal::Int(value) => {
                let (frag, _) = self.b.int(dtype, value);
                self.bind(result, frag);
            }
            Literal::Float(value) => {
                let frag = self.b.float(dtype, value);
                self.bind(result, frag);
            }
            Literal::Bool(value) => {
                let (frag, _) = self.b.truth(value);
                self.bind(result, frag);
            }
        }
    }

    pub(super) fn unary(&mut self, result: ValueId, op: UnaryOp, x: ValueId) {
        if op == UnaryOp::Neg && self.is_form(result) {
            let (form, zero) = (self.integer(x), Linear::constant(0));
            let dtype = self.kernel.values[result].dtype;
            let negated = self.b.int_binary(BinaryOp::Sub, &zero, &form, dtype);
            return self.bind_int(result, negated);
        }
        let x = self.operand(x, result);
        let frag = self.define_value(result, |dst| DeviceOp::Unary { dst, op, x });
        self.bind(result, frag);
    }

    pub(super) fn binary(&mut self, result: ValueId, op: BinaryOp, a: ValueId, b: ValueId) {
        if self.is_form(result) {
            let (a, b) = (self.integer(a), self.integer(b));
            let dtype = self.kernel.values[result].dtype;
            let form = self.b.int_binary(op, &a, &b, dtype);
            return self.bind_int(result, form);
        }
        let (a, b) = (self.operand(a, result), self.operand(b, result));
        let frag = self.define_value(result, |dst| DeviceOp::Binary { dst, op, a, b });
        self.bind(result, frag);
    }

    pub(super) fn compare(&mut self, result: ValueId, op: CompareOp, a: ValueId, b: ValueId) {
        if self.is_form(a) && self.is_form(b) {
            let dtype = self.kernel.values[a].dtype;
            let (a, b) = (self.integer(a), self.integer(b));
            let pred = self.b.int_compare(op, &a, &b, dtype);
            return self.bind_pred(result, pred);
        }
        let (a, b) = (self.operand(a, result), self.operand(b, result));
        let frag = self.define_value(result, |dst| DeviceOp::Compare { dst, op, a, b });
        self.bind(result, frag);
    }

    pub(super) fn select(&mut self, result: ValueId, cond: ValueId, a: ValueId, b: ValueId) {
        if self.is_form(result) {
            let cond = self.frag(cond);
            let (a, b) = (self.integer(a), self.integer(b));
            let dtype = self.kernel.values[result].dtype;
            let form = self.b.int_select((cond, 0), &a, &b, dtype);
            return self.bind_int(result, form);
        }
        let cond = self.operand(cond, result);
        let (a, b) = (self.operand(a, result), self.operand(b, result));
        let frag = self.define_value(result, |dst| DeviceOp::Select { dst, cond, a, b });
        self.bind(result, frag);
    }

    pub(super) fn fma(&mut self, result: ValueId, a: ValueId, b: ValueId, c: ValueId) {
        let (a, b) = (self.operand(a, result), self.operand(b, result));
        let c = self.operand(c, result);
        let frag = self.define_value(result, |dst| DeviceOp::Fma { dst, a, b, c });
        self.bind(result, frag);
    }

    pub(super) fn inline(
        &mut self,
        result: ValueId,
        text: &str,
        equals: ValueId,
        inputs: &[ValueId],
    ) {
        let equals = self.operand(equals, result);
        let inputs = inputs.iter().map(|&x| self.operand(x, result)).collect();
        let text = text.to_owned();
        let frag = self.define_value(result, |dst| DeviceOp::Inline { dst, text, equals, inputs });
        self.bind(result, frag);
    }

    pub(super) fn convert(&mut self, result: ValueId, x: ValueId) {
        let (from, to) = (self.kernel.values[x].dtype, self.kernel.values[result].dtype);
        if from == to {
            let same = self.values.get(&x).cloned();
            let same = same.expect("a value is defined before its uses");
            self.values.insert(result, same);
            return;
        }
        if self.is_form(x) && self.is_form(result) {
            let form = self.integer(x);
            if fits(self.b.range(&form), to) {
                return self.bind_int(result, form);
            }
        }
        let x = self.operand(x, result);
        let frag = self.define_value(result, |dst| DeviceOp::Convert { dst, x });
        self.bind(result, frag);
    }

    pub(super) fn iota(&mut self, result: ValueId) {
        let Some(&map) = self.distribution(result).axes.first() else { return };
        let dtype = self.kernel.values[result].dtype;
        let values: Vec<Literal> = (0..map.registers())
            .map(|local| Literal::Int(i64::from(map.coordinate(0, 0, local))))
            .collect();
        let local = self.define_value(result, |dst| DeviceOp::Const { dst, values });
        let thread = self.b.thread_coordinate(map);
        if thread.as_constant() == Some(0) {
            return self.bind(result, local);
        }
        let base = self.b.materialize(&thread, dtype);
        let a = Arg::all(base.0, base.1);
        let frag = self.define_value(result, |dst| DeviceOp::Binary {
            dst,
            op: BinaryOp::Add,
            a,
            b: Arg::whole(local),
        });
        self.bind(result, frag);
    }

    pub(super) fn splat(&mut self, result: ValueId, x: ValueId) {
        let x = Arg::all(self.frag(x), 0);
        let frag = self.define_value(result, |dst| DeviceOp::Copy { dst, x });
        self.bind(result, frag);
    }

    /// New axes of extent 1 leave the registers in place.
    pub(super) fn expand_axes(&mut self, result: ValueId, x: ValueId, axes: &[Option<u8>]) {
        let frag = self.frag(x);
        let kernel = self.kernel;
        let (own, target) = (&kernel.values[x].distribution, &kernel.values[result].distribution);
        let table: Vec<u32> = (0..target.registers())
            .map(|register| {
                let locals = target.locals(register);
                let mut source = vec![0; own.axes.len()];
                for (axis, from) in axes.iter().enumerate() {
                    if let Some(slot) = from.and_then(|from| source.get_mut(usize::from(from))) {
                        *slot = locals[axis];
                    }
                }
                own.register(&source)
            })
            .collect();
        let x = self.b.gather(frag, table);
        let frag = if x == Arg::whole(frag) {
            frag
        } else {
            self.define_value(result, |dst| DeviceOp::Copy { dst, x })
        };
        self.bind(result, frag);
    }
}

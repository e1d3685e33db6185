//! What is known of integers: affine forms over symbols, intervals, and linear facts.
//!
//! The prover knows affine forms over scalars and `iota` with constant factors, intervals, path conditions
//! of `if`, `min`, `max`, `/` and `%` by a constant, `select`, and the intervals of reductions; nothing else,
//! so it always ends. A tile of integers is handled like a scalar: the form holds for each element.

mod alike;
mod facts;
mod form;

use std::collections::{BTreeMap, BTreeSet};

use kernel_abi::DType;

use crate::index::IndexVec;
use crate::kernel::{
    ClusterAxis, ContractBound, Extent, Kernel, Literal, Op, ParamId, Storage, ValueId,
};
use crate::ops::{BinaryOp, CompareOp, ReduceOp, UnaryOp};
use alike::Alike;
pub(super) use alike::Joint;
use facts::Always;
pub(super) use form::{Form, Interval, Symbol};

/// Forms that are known to be at least 0 at a place.
pub(super) type Facts = Vec<Form>;

/// What is known of every value that has been defined so far.
pub(super) struct Knowledge<'k> {
    kernel: &'k Kernel,
    forms: IndexVec<ValueId, Option<Form>>,
    /// How a bool is computed, for path conditions.
    conditions: BTreeMap<ValueId, Condition>,
    intervals: BTreeMap<Symbol, Interval>,
    /// Facts that hold wherever their symbols exist.
    always: Always,
    /// Values that are computed alike.
    alike: Alike,
}

#[derive(Debug, Clone)]
enum Condition {
    Compare(CompareOp, ValueId, ValueId),
    And(ValueId, ValueId),
    Or(ValueId, ValueId),
    Not(ValueId),
    Known(bool),
}

impl<'k> Knowledge<'k> {
    pub(super) fn new(kernel: &'k Kernel) -> Knowledge<'k> {
        let mut knowledge = Knowledge {
            kernel,
            forms: kernel.values.iter().map(|_| None).collect(),
            conditions: BTreeMap::new(),
            intervals: BTreeMap::new(),
            always: Always::default(),
            alike: Alike::default(),
        };
        for axis in 0..3u8 {
            let count = kernel.launch.grid[usize::from(axis)];
            knowledge.intervals.insert(Symbol::Cta(axis), Interval::new(0, i128::from(count) - 1));
        }
        for axis in [0, 1, 2].map(ClusterAxis::Along).into_iter().chain([ClusterAxis::Rank]) {
            let count = axis.extent(kernel.launch.cluster);
            let interval = Interval::new(0, i128::from(count) - 1);
            knowledge.intervals.insert(Symbol::Cluster(axis), interval);
        }
        for (id, param) in kernel.params.iter_enumerated() {
            if param.access == kernel_abi::Access::Scalar {
                let symbol = Symbol::Param(id);
                knowledge.intervals.insert(symbol, dtype_interval(param.dtype));
                knowledge.promise(symbol, id);
            }
        }
        // An outermost extent is a number of rows: never negative.
        for param in kernel.params.iter() {
            for extent in &param.shape {
                if let Extent::Scalar(id) = extent {
                    knowledge.narrow(Symbol::Param(*id), Interval { lo: Some(0), hi: None });
                }
            }
        }
        knowledge
    }

    /// The form of an extent.
    pub(super) fn extent(&self, extent: Extent) -> Form {
        match extent {
            Extent::Const(n) => Form::constant(i128::from(n)),
            Extent::Scalar(param) => Form::symbol(Symbol::Param(param)),
        }
    }

    /// A parameter of the kernel.
    pub(super) fn param(&self, param: ParamId) -> &'k crate::kernel::Param {
        &self.kernel.params[param]
    }

    /// The declaration of a role.
    pub(super) fn role(&self, role: crate::kernel::RoleId) -> &'k crate::kernel::Role {
        &self.kernel.roles[role]
    }

    /// The form of a value; a value that is not understood stands for itself.
    pub(super) fn form(&self, value: ValueId) -> Form {
        self.forms[value].clone().unwrap_or_else(|| Form::symbol(Symbol::Value(value)))
    }

    /// Entries of an index tile.
    pub(super) fn len(&self, tile: ValueId) -> u32 {
        self.kernel.values[tile].shape.first().copied().unwrap_or(1)
    }

    /// True for a value whose form is exact, because no step to it can wrap.
    pub(super) fn is_linear(&self, value: ValueId) -> bool {
        self.forms[value].is_some() && !self.alike.is_repeated(value)
    }

    /// The interval of a form under `facts`, from the intervals of its symbols.
    pub(super) fn interval(&self, form: &Form) -> Interval {
        let mut sum = Interval::new(form.constant, form.constant);
        for (symbol, &factor) in &form.terms {
            let known = match symbol {
                Symbol::Other(value) | Symbol::Earlier(value) => Symbol::Value(*value),
                _ => *symbol,
            };
            let unknown = match symbol {
                Symbol::Rounds(_) => Interval { lo: Some(1), hi: None },
                _ => Interval::TOP,
            };
            let i = self.intervals.get(&known).copied().unwrap_or(unknown);
            let (lo, hi) = if factor >= 0 { (i.lo, i.hi) } else { (i.hi, i.lo) };
            let add = |sum: Option<i128>, bound: Option<i128>| {
                sum?.checked_add(bound?.checked_mul(factor)?)
            };
            sum = Interval { lo: add(sum.lo, lo), hi: add(sum.hi, hi) };
        }
        sum
    }

    /// A form without the values `gone` that is nowhere below `form`, or nowhere above it, where these have bounds.
    pub(super) fn bounded(&self, form: &Form, gone: &BTreeSet<ValueId>, up: bool) -> Option<Form> {
        let mut kept = form.clone();
        for (symbol, &factor) in &form.terms {
            if !matches!(symbol, Symbol::Value(value) if gone.contains(value)) {
                continue;
            }
            let i = self.intervals.get(symbol).copied().unwrap_or(Interval::TOP);
            let bound = if (factor > 0) == up { i.hi } else { i.lo }?;
            kept.terms.remove(symbol);
            kept = kept.plus(factor, &Form::constant(bound))?;
        }
        Some(kept)
    }

    /// The facts that hold where the bool `value` is `truth`.
    pub(super) fn path_facts(&self, value: ValueId, truth: bool) -> Facts {
        let Some(condition) = self.conditions.get(&value) else { return Facts::new() };
        match condition.clone() {
            Condition::Known(_) => Facts::new(),
            Condition::Not(x) => self.path_facts(x, !truth),
            Condition::And(a, b) if truth => {
                [self.path_facts(a, true), self.path_facts(b, true)].concat()
            }
            Condition::Or(a, b) if !truth => {
                [self.path_facts(a, false), self.path_facts(b, false)].concat()
            }
            Condition::And(..) | Condition::Or(..) => Facts::new(),
            Condition::Compare(op, a, b) => {
                let (a, b) = (self.form(a), self.form(b));
                // x - y - strict >= 0
                let above = |x: &Form, y: &Form, strict: i128| {
                    x.plus(-1, y).and_then(|f| f.plus(-strict, &Form::constant(1)))
                };
                let op = if truth { op } else { negate(op) };
                let facts = match op {
                    CompareOp::Lt => vec![above(&b, &a, 1)],
                    CompareOp::Le => vec![above(&b, &a, 0)],
                    CompareOp::Gt => vec![above(&a, &b, 1)],
                    CompareOp::Ge => vec![above(&a, &b, 0)],
                    CompareOp::Eq => vec![above(&a, &b, 0), above(&b, &a, 0)],
                    // At the edge of what both can be, the other is on the inner side.
                    CompareOp::Ne => {
                        let difference = a.plus(-1, &b).map(|d| self.interval(&d));
                        match difference {
                            Some(Interval { lo: Some(0), .. }) => vec![above(&a, &b, 1)],
                            Some(Interval { hi: Some(0), .. }) => vec![above(&b, &a, 1)],
                            Some(_) | None => Vec::new(),
                        }
                    }
                };
                facts.into_iter().flatten().collect()
            }
        }
    }

    /// Whether the bool is the same on every path.
    pub(super) fn decided(&self, value: ValueId) -> Option<bool> {
        match self.conditions.get(&value) {
            Some(Condition::Known(truth)) => Some(*truth),
            _ => None,
        }
    }

    /// Binds the variable of a loop that runs from `start` below `end` in steps of `step`.
    pub(super) fn bind_loop(
        &mut self,
        var: ValueId,
        start: ValueId,
        end: ValueId,
        step: u32,
    ) -> Facts {
        let symbol = Symbol::Value(var);
        let (start, end) = (self.form(start), self.form(end));
        // Where the length is a multiple of the step, the last round starts a whole step before the end.
        let step = i128::from(step);
        let whole = end.plus(-1, &start).is_some_and(|length| {
            length.constant % step == 0 && length.terms.values().all(|factor| factor % step == 0)
        });
        let last = if whole { step } else { 1 };
        let interval = Interval {
            lo: self.interval(&start).lo,
            hi: self.interval(&end).hi.map(|hi| hi - last),
        };
        self.intervals.insert(symbol, interval.meet(dtype_interval(DType::I32)));
        let form = Form::symbol(symbol);
        let facts = [
            form.plus(-1, &start),
            end.plus(-1, &form).and_then(|f| f.plus(-last, &Form::constant(1))),
        ];
        facts.into_iter().flatten().collect()
    }

    /// Records what `op` makes of `results`, under the facts of the place.
    pub(super) fn define(&mut self, results: &[ValueId], op: &Op, facts: &Facts) {
        let kernel = self.kernel;
        let Some(&result) = results.first() else { return };
        let dtype = kernel.values[result].dtype;
        if dtype == DType::Bool {
            self.define_bool(result, op);
            return;
        }
        if let (Op::Argmax { x, axis }, Some(&at)) = (op, results.get(1)) {
            let extent = kernel.values[*x].shape[usize::from(*axis)];
            self.intervals.insert(Symbol::Value(at), Interval::new(0, i128::from(extent) - 1));
        }
        if !dtype.is_int() {
            return;
        }
        let symbol = Symbol::Value(result);
        if let Some(first) = self.repeated(result, op) {
            self.forms[result] = Some(Form::symbol(Symbol::Value(first)));
            return;
        }
        self.intervals.remove(&symbol);
        let range = dtype_interval(dtype);
        match self.form_of(result, op, facts) {
            // Arithmetic that may wrap is not linear.
            Some(form) if self.interval(&form).lies_in(range) => self.forms[result] = Some(form),
            Some(_) | None => {
                self.remember(result, op);
                // So far this speaks of numbers without end. Where one of them leaves the type, it comes
                // back anywhere: the part of the interval inside of the type says nothing.
                let exact = self.intervals.get(&symbol).copied().unwrap_or(Interval::TOP);
                let known = if exact.lies_in(range) { exact } else { range };
                self.intervals.insert(symbol, known);
            }
        }
    }

    fn define_bool(&mut self, result: ValueId, op: &Op) {
        let condition = match op {
            Op::Const(Literal::Bool(truth)) => Condition::Known(*truth),
            Op::Compare { op, a, b } => Condition::Compare(*op, *a, *b),
            Op::Binary { op: BinaryOp::And, a, b } => Condition::And(*a, *b),
            Op::Binary { op: BinaryOp::Or, a, b } => Condition::Or(*a, *b),
            Op::Unary { op: UnaryOp::Not, x } => Condition::Not(*x),
            _ => return,
        };
        self.conditions.insert(result, condition);
    }

    /// The linear form of an integer operation. `None`: the result is a symbol of its own, whose interval
    /// and facts were recorded here.
    fn form_of(&mut self, result: ValueId, op: &Op, facts: &Facts) -> Option<Form> {
        let symbol = Symbol::Value(result);
        let own = Form::symbol(symbol);
        match op {
            Op::Const(Literal::Int(n)) => Some(Form::constant(i128::from(*n))),
            Op::Const(Literal::Float(_) | Literal::Bool(_)) => None,
            Op::CtaIndex(axis) => Some(Form::symbol(Symbol::Cta(*axis))),
            Op::ClusterIndex(axis) => Some(self.cluster_index(*axis)),
            Op::ScalarParam(param) => Some(Form::symbol(Symbol::Param(*param))),
            Op::Iota => {
                let n = self.kernel.values[result].shape.first().copied().unwrap_or(1);
                self.intervals.insert(symbol, Interval::new(0, i128::from(n) - 1));
                None
            }
            Op::Splat { x } | Op::Relayout { x } => Some(self.form(*x)),
            // The elements of a form are aligned at the last axis: in another place they are others.
            Op::Expand { x, .. } | Op::Slice { x, .. } => {
                let form = self.form(*x);
                if self.is_uniform(&form) {
                    return Some(form);
                }
                self.intervals.insert(symbol, self.interval(&form));
                None
            }
            Op::Concat { a, b, .. } => {
                let joined = self.interval(&self.form(*a)).join(self.interval(&self.form(*b)));
                self.intervals.insert(symbol, joined);
                None
            }
            Op::Convert { x } => {
                let from = self.kernel.values[*x].dtype;
                if from.is_int() {
                    Some(self.form(*x))
                } else {
                    if from == DType::Bool {
                        self.intervals.insert(symbol, Interval::new(0, 1));
                    }
                    None
                }
            }
            Op::Unary { op: UnaryOp::Neg, x } => Form::default().plus(-1, &self.form(*x)),
            Op::Unary { op: UnaryOp::Abs, x } => {
                let i = self.interval(&self.form(*x));
                let hi = i.lo.zip(i.hi).map(|(lo, hi)| hi.max(-lo));
                // The least number of a type has no counterpart: it stays what it is.
                self.intervals.insert(symbol, Interval { lo: Some(0), hi });
                None
            }
            Op::Unary { .. } => None,
            Op::Binary { op, a, b } => {
                let (a, b) = (self.form(*a), self.form(*b));
                self.binary(symbol, *op, &a, &b)
            }
            Op::Select { cond, a, b } => {
                // Each arm is taken only where its condition holds.
                let arm = |value: ValueId, truth: bool| {
                    let form = self.form(value);
                    let mut known: Facts = facts.clone();
                    known.extend(self.path_facts(*cond, truth));
                    self.refined(&form, &known)
                };
                let interval = arm(*a, true).join(arm(*b, false));
                self.intervals.insert(symbol, interval);
                None
            }
            Op::Load { access, other, .. } => {
                if let Storage::Buffer(param) = access.storage {
                    self.promise(symbol, param);
                }
                if let Some(other) = other {
                    let absent = self.interval(&self.form(*other));
                    let interval = self.intervals.get(&symbol).copied().unwrap_or(Interval::TOP);
                    self.intervals.insert(symbol, interval.join(absent));
                    self.always.forget(symbol);
                }
                None
            }
            Op::Reduce { op, x, axis } => {
                let i = self.interval(&self.form(*x));
                let n = i128::from(self.kernel.values[*x].shape[usize::from(*axis)]);
                let interval = match op {
                    ReduceOp::Max | ReduceOp::Min => i,
                    ReduceOp::Add => Interval {
                        lo: i.lo.and_then(|lo| lo.checked_mul(n)),
                        hi: i.hi.and_then(|hi| hi.checked_mul(n)),
                    },
                };
                self.intervals.insert(symbol, interval);
                None
            }
            Op::Scan { x, axis, exclusive } => {
                let i = self.interval(&self.form(*x));
                let n = i128::from(self.kernel.values[*x].shape[usize::from(*axis)]);
                // The number of summands runs over an interval, so the ends are at its ends.
                let (least, most) = if *exclusive { (0, n - 1) } else { (1, n) };
                let ends = |bound: Option<i128>, pick: fn(i128, i128) -> i128| {
                    Some(pick(bound?.checked_mul(least)?, bound?.checked_mul(most)?))
                };
                let interval = Interval { lo: ends(i.lo, i128::min), hi: ends(i.hi, i128::max) };
                self.intervals.insert(symbol, interval);
                None
            }
            Op::Argmax { x, .. } => {
                let interval = self.interval(&self.form(*x));
                self.intervals.insert(symbol, interval);
                None
            }
            Op::Compare { .. }
            | Op::Fma { .. }
            | Op::Inline { .. }
            | Op::ReadVar { .. }
            | Op::ArriveLast { .. }
            | Op::Atomic { .. }
            | Op::Contract { .. }
            | Op::Mma { .. } => None,
        }
        .filter(|form| *form != own)
    }

    /// True where every element of a tile with this form is the same.
    pub(super) fn is_uniform(&self, form: &Form) -> bool {
        form.terms.keys().all(|symbol| match symbol {
            Symbol::Value(value) | Symbol::Other(value) | Symbol::Earlier(value) => {
                self.kernel.values[*value].is_scalar()
            }
            Symbol::Param(_) | Symbol::Cta(_) | Symbol::Cluster(_) | Symbol::Rounds(_) => true,
        })
    }

    /// The form for another element of the tiles in it.
    pub(super) fn other_element(&self, form: &Form) -> Form {
        let other = |symbol: &Symbol| match *symbol {
            Symbol::Value(value) if !self.kernel.values[value].is_scalar() => Symbol::Other(value),
            symbol => symbol,
        };
        let terms = form.terms.iter().map(|(symbol, &factor)| (other(symbol), factor)).collect();
        Form { constant: form.constant, terms }
    }

    /// What a form was in an earlier round of the loop with variable `var`, in which the values `inside` are defined.
    pub(super) fn in_earlier_round(
        &mut self,
        form: &Form,
        (var, step): (ValueId, u32),
        inside: &BTreeSet<ValueId>,
    ) -> Option<Form> {
        let of_var = self.interval(&Form::symbol(Symbol::Value(var)));
        let length = of_var.hi.zip(of_var.lo).and_then(|(hi, lo)| hi.checked_sub(lo));
        let rounds = Interval { lo: Some(1), hi: length.map(|l| (l / i128::from(step)).max(1)) };
        self.intervals.insert(Symbol::Rounds(var), rounds);
        let mut was = Form::constant(form.constant);
        for (&symbol, &factor) in &form.terms {
            let (symbol, rounds) = match symbol {
                Symbol::Value(value) if value == var => (symbol, i128::from(step)),
                Symbol::Value(value) if inside.contains(&value) => (Symbol::Earlier(value), 0),
                symbol => (symbol, 0),
            };
            was = was.plus(factor, &Form::symbol(symbol))?;
            was = was.plus(factor.checked_mul(-rounds)?, &Form::symbol(Symbol::Rounds(var)))?;
        }
        Some(was)
    }

    fn binary(&mut self, symbol: Symbol, op: BinaryOp, a: &Form, b: &Form) -> Option<Form> {
        let (ia, ib) = (self.interval(a), self.interval(b));
        let constant = b.as_constant();
        match op {
            BinaryOp::Add => return a.plus(1, b),
            BinaryOp::Sub => return a.plus(-1, b),
            BinaryOp::Mul => match (a.as_constant(), constant) {
                (Some(c), _) => return Form::default().plus(c, b),
                (_, Some(c)) => return Form::default().plus(c, a),
                (None, None) => {
                    let corners: Option<Vec<i128>> =
                        [(ia.lo, ib.lo), (ia.lo, ib.hi), (ia.hi, ib.lo), (ia.hi, ib.hi)]
                            .into_iter()
                            .map(|(x, y)| x?.checked_mul(y?))
                            .collect();
                    if let Some(corners) = corners {
                        let lo = corners.iter().copied().min();
                        let hi = corners.iter().copied().max();
                        self.intervals.insert(symbol, Interval { lo, hi });
                    }
                }
            },
            BinaryOp::Shl => {
                if let Some(c @ 0..=62) = constant {
                    return Form::default().plus(1i128 << c, a);
                }
            }
            BinaryOp::Div => {
                if let Some(c) = constant.filter(|c| *c > 0) {
                    if let Some(exact) = a.divided(c).or_else(|| Some(self.digits(a, c)?.0)) {
                        return Some(exact);
                    }
                    let divide = |x: Option<i128>| x.map(|x| x / c);
                    self.intervals
                        .insert(symbol, Interval { lo: divide(ia.lo), hi: divide(ia.hi) });
                    if ia.lo.is_some_and(|lo| lo >= 0) {
                        // c * q <= a < c * (q + 1)
                        let q = Form::symbol(symbol);
                        let low = a.plus(-c, &q);
                        let high = Form::constant(c - 1).plus(c, &q).and_then(|f| f.plus(-1, a));
                        [low, high].into_iter().flatten().for_each(|fact| self.always.push(fact));
                    }
                }
            }
            BinaryOp::Rem => {
                if let Some(c) = constant.filter(|c| *c > 0) {
                    let known = self.place_in_cluster(a, c).or_else(|| Some(self.digits(a, c)?.1));
                    if known.is_some() {
                        return known;
                    }
                    let non_negative = ia.lo.is_some_and(|lo| lo >= 0);
                    let hi = match ia.hi {
                        Some(hi) if non_negative => hi.min(c - 1),
                        _ => c - 1,
                    };
                    self.intervals
                        .insert(symbol, Interval::new(if non_negative { 0 } else { 1 - c }, hi));
                }
            }
            BinaryOp::Shr => {
                if let Some(c @ 0..=62) = constant {
                    let shift = |x: Option<i128>| x.map(|x| x >> c);
                    self.intervals.insert(symbol, Interval { lo: shift(ia.lo), hi: shift(ia.hi) });
                }
            }
            BinaryOp::And => {
                if let Some(c) = constant.filter(|c| *c >= 0) {
                    self.intervals.insert(symbol, Interval::new(0, c));
                }
            }
            BinaryOp::Min | BinaryOp::Max => {
                let least = op == BinaryOp::Min;
                let pick = |x: Option<i128>, y: Option<i128>, both: bool| match (x, y) {
                    (Some(x), Some(y)) => Some(if least { x.min(y) } else { x.max(y) }),
                    (x, y) if !both => x.or(y),
                    (_, _) => None,
                };
                // A minimum is bounded above by either operand, below by both; a maximum the other way.
                let interval =
                    Interval { lo: pick(ia.lo, ib.lo, least), hi: pick(ia.hi, ib.hi, !least) };
                self.intervals.insert(symbol, interval);
                let own = Form::symbol(symbol);
                for operand in [a, b] {
                    let fact = if least { operand.plus(-1, &own) } else { own.plus(-1, operand) };
                    fact.into_iter().for_each(|fact| self.always.push(fact));
                }
            }
            BinaryOp::Or | BinaryOp::Xor => {
                // No bit is above the highest of both.
                let above = ia.lo.zip(ib.lo).is_some_and(|(a, b)| a >= 0 && b >= 0);
                let most = ia.hi.zip(ib.hi).map(|(a, b)| a.max(b).unsigned_abs());
                if let Some(most) = most.filter(|_| above) {
                    let bits = 128 - most.leading_zeros();
                    self.intervals.insert(symbol, Interval::new(0, (1 << bits.min(120)) - 1));
                }
            }
        }
        None
    }

    /// Takes the contract of `param` as known of `symbol`.
    fn promise(&mut self, symbol: Symbol, param: ParamId) {
        let p = &self.kernel.params[param];
        let mut interval = dtype_interval(p.dtype);
        if let Some(contract) = p.kept_contract() {
            interval = interval.meet(Interval { lo: Some(i128::from(contract.lo)), hi: None });
            match contract.hi {
                ContractBound::Const(hi) => {
                    interval = interval.meet(Interval { lo: None, hi: Some(i128::from(hi) - 1) });
                }
                ContractBound::Scalar(bound, offset) => {
                    // bound + offset - 1 - symbol >= 0
                    let fact = Form {
                        constant: i128::from(offset) - 1,
                        terms: BTreeMap::from([(Symbol::Param(bound), 1), (symbol, -1)]),
                    };
                    self.always.push(fact);
                }
            }
        }
        self.narrow(symbol, interval);
    }

    fn narrow(&mut self, symbol: Symbol, interval: Interval) {
        let known = self.intervals.get(&symbol).copied().unwrap_or(Interval::TOP);
        self.intervals.insert(symbol, known.meet(interval));
    }

    /// How a form reads in a message: the source names of its symbols.
    pub(super) fn describe(&self, form: &Form) -> String {
        let mut text = String::new();
        for (symbol, &factor) in &form.terms {
            let name = match symbol {
                Symbol::Value(v) | Symbol::Other(v) | Symbol::Earlier(v) => {
                    match &self.kernel.values[*v].name {
                        Some(name) => name.clone(),
                        None => "a computed value".to_owned(),
                    }
                }
                Symbol::Param(p) => self.kernel.params[*p].name.clone(),
                Symbol::Cta(axis) => format!("cta.{}", ["x", "y", "z"][usize::from(*axis)]),
                Symbol::Cluster(axis) => axis.name().to_owned(),
                Symbol::Rounds(_) => "rounds".to_owned(),
            };
            let sign = match (text.is_empty(), factor < 0) {
                (true, false) => "",
                (true, true) => "-",
                (false, false) => " + ",
                (false, true) => " - ",
            };
            text.push_str(sign);
            if factor.abs() != 1 {
                text.push_str(&format!("{} * ", factor.abs()));
            }
            text.push_str(&name);
        }
        match (text.is_empty(), form.constant) {
            (true, c) => c.to_string(),
            (false, 0) => text,
            (false, c) if c > 0 => format!("{text} + {c}"),
            (false, c) => format!("{text} - {}", -c),
        }
    }
}

fn negate(op: CompareOp) -> CompareOp {
    match op {
        CompareOp::Eq => CompareOp::Ne,
        CompareOp::Ne => CompareOp::Eq,
        CompareOp::Lt => CompareOp::Ge,
        CompareOp::Le => CompareOp::Gt,
        CompareOp::Gt => CompareOp::Le,
        CompareOp::Ge => CompareOp::Lt,
    }
}

/// All values of an integer dtype.
fn dtype_interval(dtype: DType) -> Interval {
    match dtype {
        DType::I8 => Interval::new(i8::MIN.into(), i8::MAX.into()),
        DType::U8 => Interval::new(0, u8::MAX.into()),
        DType::I32 => Interval::new(i32::MIN.into(), i32::MAX.into()),
        DType::U32 => Interval::new(0, u32::MAX.into()),
        DType::I64 => Interval::new(i64::MIN.into(), i64::MAX.into()),
        DType::U64 => Interval::new(0, u64::MAX.into()),
        DType::F32
        | DType::F16
        | DType::Bf16
        | DType::E4m3
        | DType::E5m2
        | DType::E2m1
        | DType::Ue8m0
        | DType::Bool => Interval::TOP,
    }
}

#[cfg(test)]
mod tests;

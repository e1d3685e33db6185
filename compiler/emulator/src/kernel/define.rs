//! What each operation of a definition computes.

use kernel_abi::DType;
use kernel_dsl::source::Span;
use kernel_ir::distribution::AxisMap;
use kernel_ir::kernel::{Op, Storage, TileAccess, Value, ValueId, VarId};
use kernel_ir::ops::contract::{Contraction, Operand};
use kernel_ir::ops::elements::literal_code;
use kernel_ir::ops::eval::EvalError;
use kernel_ir::ops::reduce::{Axes3, argmax, fold, scan};
use kernel_ir::ops::{Elements, convert, eval, mma};

use super::{Machine, shape};
use crate::error::{EmuError, ErrorKind};

impl Machine<'_> {
    /// Computes `op` and sets its results.
    pub(super) fn define(
        &mut self,
        results: &[ValueId],
        op: &Op,
        span: Span,
    ) -> Result<(), EmuError> {
        let values = &self.kernel.values;
        let result = results[0];
        let (dtype, to) = (values[result].dtype, values[result].shape.as_slice());
        // These share the elements of their operand.
        match op {
            Op::ReadVar { var, slot } => {
                self.check_sums(*var, *slot, span)?;
                let content = self.vars[*var][*slot as usize].clone();
                let content = content.ok_or_else(|| self.unassigned(*var, *slot, span))?;
                self.values[result] = Some(content);
                return Ok(());
            }
            Op::Relayout { x } => {
                self.values[result] = Some(self.value(*x));
                return Ok(());
            }
            Op::Expand { x, axes } if axes.iter().flatten().is_sorted() => {
                self.values[result] = Some(self.value(*x));
                return Ok(());
            }
            Op::Argmax { x, axis } => {
                let axes = Axes3::around(&values[*x].shape, usize::from(*axis));
                let (mut value, mut index) = (self.take(result, dtype), Elements::new(DType::I32));
                let x = self.value(*x);
                argmax(&x, axes, &mut value, &mut index);
                self.count_flops(dtype, x.len());
                self.set(result, value);
                self.set(results[1], index);
                return Ok(());
            }
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
            | Op::Iota
            | Op::Splat { .. }
            | Op::Expand { .. }
            | Op::Load { .. }
            | Op::Reduce { .. }
            | Op::ArriveLast { .. }
            | Op::Atomic { .. }
            | Op::Scan { .. }
            | Op::Slice { .. }
            | Op::Concat { .. }
            | Op::Contract { .. }
            | Op::Mma { .. } => {}
        }
        let mut out = self.take(result, dtype);
        self.compute(result, op, dtype, to, &mut out, span)?;
        self.set(result, out);
        Ok(())
    }

    /// Fills `out` with `result`, the one result of `op`.
    fn compute(
        &mut self,
        result: ValueId,
        op: &Op,
        dtype: DType,
        to: &[u32],
        out: &mut Elements,
        span: Span,
    ) -> Result<(), EmuError> {
        let values = &self.kernel.values;
        // An operand, and its elements repeated to the shape of the result.
        macro_rules! operand {
            ($id:ident) => {
                let shape_of = &values[*$id].shape;
                let $id = self.value(*$id);
                let $id = shape::broadcast(&$id, shape_of, to);
            };
        }
        match op {
            Op::Const(literal) => {
                let code = literal_code(dtype, *literal);
                out.fill(code.expect("a literal fits the type of its value"), 1);
            }
            Op::CtaIndex(axis) => out.fill(u64::from(self.cta[usize::from(*axis)]), 1),
            Op::ClusterIndex(axis) => {
                let place = axis.place(self.cta, self.kernel.launch.cluster);
                out.fill(u64::from(place), 1);
            }
            Op::ScalarParam(param) => out.fill(self.view.launched.scalar(*param), 1),
            Op::Iota => {
                let len = to.first().copied().unwrap_or(0);
                out.vec_mut::<u32>().extend(0..len);
            }
            Op::Unary { op, x } => {
                eval::unary(*op, &self.value(*x), out);
                self.count_flops(dtype, out.len());
            }
            Op::Binary { op, a, b } => {
                operand!(a);
                operand!(b);
                eval::binary(*op, &a, &b, out).map_err(|e| division_by_zero(e, to, span))?;
                self.count_flops(dtype, out.len());
            }
            Op::Compare { op, a, b } => {
                operand!(a);
                operand!(b);
                eval::compare(*op, &a, &b, out);
            }
            Op::Select { cond, a, b } => {
                operand!(cond);
                operand!(a);
                operand!(b);
                eval::select(&cond, &a, &b, out);
            }
            Op::Fma { a, b, c } => {
                operand!(a);
                operand!(b);
                operand!(c);
                eval::fma(&a, &b, &c, out);
                self.count_flops(dtype, 2 * out.len());
            }
            Op::Inline { text: _, equals, inputs } => {
                operand!(equals);
                out.clone_from(&equals);
                self.count_flops(dtype, inputs.len().min(1) * out.len());
            }
            Op::Convert { x } => convert::elements(&self.value(*x), dtype, out),
            Op::Splat { x } => out.fill(self.code(*x), shape::len(to)),
            Op::Expand { x, axes } => {
                let from = &values[*x].shape;
                let stride = |axis: usize| shape::len(&from[axis + 1..]);
                let strides: Vec<usize> =
                    axes.iter().map(|a| a.map_or(0, |a| stride(usize::from(a)))).collect();
                shape::gather(&self.value(*x), to, &strides, out);
            }
            Op::Load { access, other, cache: _ } => {
                let other = other.map(|o| self.code(o));
                self.load(access, other, to, out)?;
            }
            Op::Reduce { op, x, axis } => {
                let axis = usize::from(*axis);
                let map = maps_of(&values[*x])[axis];
                let axes = Axes3::around(&values[*x].shape, axis);
                let x = self.value(*x);
                fold(*op, &x, axes, map, out);
                self.count_flops(dtype, x.len());
            }
            Op::ArriveLast { word, count } => {
                let (at, limit) = (self.int(word.index), count - 1);
                self.view.meet();
                let old = self.view.arrive(word.param, at, limit, word.span)?;
                out.fill(u64::from(old == limit), 1);
            }
            Op::Atomic { op, value, access } => {
                let by = self.code(*value);
                self.view.meet();
                let tile = self.resolve(access, "changed")?;
                let Some(param) = access.storage.param() else {
                    unreachable!("atomics are of buffers")
                };
                let view = &mut self.view;
                tile.runs(|start, _, _| {
                    out.fill(view.update(param, start, *op, by, access.span)?, 1);
                    Ok(())
                })?;
            }
            Op::Scan { x, axis, exclusive } => {
                let axes = Axes3::around(&values[*x].shape, usize::from(*axis));
                scan(&self.value(*x), axes, *exclusive, out);
            }
            Op::Slice { x, parts } => shape::slice(&self.value(*x), &values[*x].shape, parts, out),
            Op::Concat { a, b, axis } => {
                let along = |id: ValueId| shape::len(&values[id].shape[usize::from(*axis)..]);
                let (first, second) = (self.value(*a), self.value(*b));
                for row in 0..shape::len(&to[..usize::from(*axis)]) {
                    for (x, len) in [(&first, along(*a)), (&second, along(*b))] {
                        out.extend_from(x, row * len..(row + 1) * len);
                    }
                }
            }
            Op::Mma { spec, a, b, acc } => {
                let (a_maps, b_maps) = (maps_of(&values[*a]), maps_of(&values[*b]));
                let (a_shape, b_shape) = (&values[*a].shape, &values[*b].shape);
                let (a, b) = (self.value(*a), self.value(*b));
                let acc = acc.map(|acc| self.value(acc));
                let a = Operand { elements: &a, shape: a_shape, maps: &a_maps };
                let b = Operand { elements: &b, shape: b_shape, maps: &b_maps };
                let products = mma::contract(spec, a, b, acc.as_deref(), out);
                let products = products.expect("sema and inference fix extents and spreads");
                self.count_flops(dtype, 2 * products as usize);
            }
            Op::Contract { spec, a: a_id, b: b_id, acc } => {
                let (a, b) = (self.value(*a_id), self.value(*b_id));
                let acc = acc.map(|acc| self.value(acc));
                let order = self.prepared.contractions[result].get_or_init(|| {
                    let (a_maps, b_maps) = (maps_of(&values[*a_id]), maps_of(&values[*b_id]));
                    let (a_shape, b_shape) = (&values[*a_id].shape, &values[*b_id].shape);
                    let a = Operand { elements: &a, shape: a_shape, maps: &a_maps };
                    let b = Operand { elements: &b, shape: b_shape, maps: &b_maps };
                    let order = Contraction::new(spec, a, b);
                    order.expect("sema and inference fix extents and spreads")
                });
                let products = order.run(&a, &b, acc.as_deref(), out);
                self.count_flops(dtype, 2 * products as usize);
            }
            Op::ReadVar { .. } | Op::Relayout { .. } | Op::Argmax { .. } => {
                unreachable!("handled by `define`")
            }
        }
        Ok(())
    }

    fn load(
        &mut self,
        access: &TileAccess,
        other: Option<u64>,
        to: &[u32],
        out: &mut Elements,
    ) -> Result<(), EmuError> {
        let tile = self.resolve(access, "read")?;
        out.fill(other.unwrap_or(0), shape::len(to));
        let mut present = 0;
        match access.storage {
            Storage::Buffer(param) | Storage::Peer(param, _) | Storage::Peers(param) => {
                let view = &mut self.view;
                tile.runs(|start, count, at| {
                    present += count;
                    view.check_read(param, access.span)?;
                    view.load(param, start, count, out, at, access.span)
                })?;
            }
            Storage::Multicast(param, fold) => {
                let (view, span) = (&mut self.view, access.span);
                let fold = fold.expect("a load at a multicast address folds");
                tile.runs(|start, count, at| {
                    present += count;
                    view.check_read(param, span)?;
                    view.load_multicast((param, fold), start, count, out, at, span)
                })?;
            }
            Storage::Smem(..) | Storage::Remote(..) => {
                present = self.load_shared(access, &tile, out)?.unwrap_or(0);
            }
        }
        if other.is_none() && present < out.len() {
            let name = self.kernel.name_of(access.storage);
            let message = format!("an element of `{name}` is absent, and the load has no `else`");
            return Err(EmuError::new(ErrorKind::Poison, access.span, message)
                .help("write what absent elements are: `load x[…] else 0.0`"));
        }
        Ok(())
    }

    pub(super) fn unassigned(&self, var: VarId, slot: u32, span: Span) -> EmuError {
        let var = &self.kernel.vars[var];
        let what = if var.slots == 1 {
            format!("`{}`", var.name)
        } else {
            format!("slot {slot} of `{}`", var.name)
        };
        EmuError::new(
            ErrorKind::Poison,
            span,
            format!("read of {what}, which nothing has assigned"),
        )
        .other(var.span, "declared here without a value")
    }

    pub(super) fn count_flops(&mut self, dtype: DType, count: usize) {
        if dtype.is_float() {
            self.flops += count as u64;
        }
    }
}

/// One map an axis: the value's distribution, or whole axes where layouts are not inferred yet.
fn maps_of(value: &Value) -> Vec<AxisMap> {
    if value.distribution.shape() == value.shape {
        value.distribution.axes.clone()
    } else {
        value.shape.iter().map(|&extent| AxisMap::local(extent)).collect()
    }
}

/// The error of an integer division by zero in an element of a tile.
fn division_by_zero(error: EvalError, shape: &[u32], span: Span) -> EmuError {
    let EvalError::DivisionByZero { index } = error;
    let shape: Vec<u64> = shape.iter().map(|&e| u64::from(e)).collect();
    EmuError::new(ErrorKind::DivisionByZero, span, "integer division by zero")
        .at(crate::launch::coordinate(&shape, index as u64))
}

//! Sums along an axis, of integers: within a thread, over lanes by a butterfly, over warps and over the
//! slowest registers through shared memory.
//!
//! A thread holds the axis as `rest` runs of `vec` neighbours, and its run `r` lies between those of other
//! lanes and warps: before it come all runs with a lower `r`, then lower warps, then lower lanes.

use kernel_abi::DType;
use kernel_dsl::diag::Diagnostic;

use super::Expander;
use super::builder::{Builder, Pred};
use super::linear::Linear;
use super::notes::FoldNote;
use crate::device::{Arg, DeviceOp, FragId, Lanes};
use crate::distribution::{AxisMap, Digit, Distribution};
use crate::kernel::{Literal, ValueId};
use crate::ops::{BinaryOp, CompareOp};

/// The shape of one scan: registers are counted run by run, `kept` elements each.
struct Shape {
    dtype: DType,
    map: AxisMap,
    axis: usize,
    whole: Distribution,
    kept: Distribution,
}

impl Shape {
    /// Elements of a thread beside the axis.
    fn len(&self) -> u32 {
        self.kept.registers()
    }

    /// The distribution with another map along the axis.
    fn with(&self, map: AxisMap) -> Distribution {
        let mut other = self.whole.clone();
        other.axes[self.axis] = map;
        other
    }

    /// For each element beside the axis its register in `distribution` at `local`.
    fn table(&self, distribution: &Distribution, local: u32) -> Vec<u32> {
        let register = |element| {
            let mut locals = self.kept.locals(element);
            locals.insert(self.axis, local);
            distribution.register(&locals)
        };
        (0..self.len()).map(register).collect()
    }
}

impl Expander<'_> {
    /// Sums along `axis`.
    pub(super) fn scan(
        &mut self,
        result: ValueId,
        x: ValueId,
        axis: usize,
        exclusive: bool,
    ) -> Result<(), Diagnostic> {
        let value = &self.kernel.values[x];
        let whole = value.distribution.clone();
        let (map, kept) = (whole.axes[axis], whole.without(axis));
        let shape = Shape { dtype: value.dtype, map, axis, whole, kept };
        let src = self.frag(x);

        // Sums within each run of neighbours, and the sum of each run.
        let mut within: Vec<Vec<FragId>> = Vec::new();
        for run in 0..map.rest {
            let mut sums: Vec<FragId> = Vec::new();
            for v in 0..map.vec {
                let table = shape.table(&shape.whole, run * map.vec + v);
                let own = self.b.gather(src, table);
                let sum = match sums.last() {
                    Some(&before) => self.sum(&shape, Arg::whole(before), own, shape.len()),
                    None => self
                        .b
                        .define(shape.dtype, shape.len(), |dst| DeviceOp::Copy { dst, x: own }),
                };
                sums.push(sum);
            }
            within.push(sums);
        }
        let last = |sums: &Vec<FragId>| sums.last().copied().unwrap_or(src);
        let runs: Vec<FragId> = within.iter().map(last).collect();
        let totals = self.side_by_side(&shape, &runs);
        let (before, totals) = self.lanes_before(&shape, totals);
        let before = self.runs_before(&shape, before, totals)?;

        let mut columns = Vec::new();
        for (sums, before) in within.iter().zip(before) {
            for v in 0..map.vec as usize {
                let own = if exclusive { v.checked_sub(1).map(|v| sums[v]) } else { Some(sums[v]) };
                columns.push(match own {
                    Some(own) => self.sum(&shape, before.clone(), Arg::whole(own), shape.len()),
                    None => self.b.define(shape.dtype, shape.len(), |dst| DeviceOp::Copy {
                        dst,
                        x: before.clone(),
                    }),
                });
            }
        }
        let mut from = vec![(src, 0); shape.whole.registers() as usize];
        for (local, &column) in columns.iter().enumerate() {
            for (element, register) in shape.table(&shape.whole, local as u32).iter().enumerate() {
                from[*register as usize] = (column, element as u32);
            }
        }
        let frag = self.define_value(result, |dst| DeviceOp::Join { dst, from });
        self.bind(result, frag);
        Ok(())
    }

    fn sum(&mut self, shape: &Shape, a: Arg, b: Arg, len: u32) -> FragId {
        let op = BinaryOp::Add;
        self.b.define(shape.dtype, len, |dst| DeviceOp::Binary { dst, op, a, b })
    }

    /// The fragments of all runs in one.
    fn side_by_side(&mut self, shape: &Shape, runs: &[FragId]) -> FragId {
        let from: Vec<(FragId, u32)> =
            runs.iter().flat_map(|&run| (0..shape.len()).map(move |i| (run, i))).collect();
        let len = from.len() as u32;
        self.b.define(shape.dtype, len, |dst| DeviceOp::Join { dst, from })
    }

    /// Of each run: the sum over lower lanes, and the sum over all lanes.
    fn lanes_before(&mut self, shape: &Shape, mut totals: FragId) -> (FragId, FragId) {
        let len = shape.len() * shape.map.rest;
        let zero = vec![Literal::Int(0)];
        let values = |dst| DeviceOp::Const { dst, values: zero };
        let mut before = self.b.define(shape.dtype, len, values);
        let lanes = shape.map.lanes;
        let mut distance = 1;
        while distance < lanes.extent {
            let xor = distance * lanes.stride;
            let x = totals;
            let lanes = Lanes::Xor(xor);
            let others = self.b.define(shape.dtype, len, |dst| DeviceOp::Shuffle { dst, x, lanes });
            let upper = self.digit_is(Digit { extent: 2, stride: xor }, true, 1);
            let with = self.sum(shape, Arg::whole(before), Arg::whole(others), len);
            before = self.pick(shape, upper, with, before, len);
            totals = self.sum(shape, Arg::whole(totals), Arg::whole(others), len);
            distance *= 2;
        }
        (before, totals)
    }

    /// Of each run: the sum of everything before it along the axis.
    fn runs_before(
        &mut self,
        shape: &Shape,
        lanes: FragId,
        totals: FragId,
    ) -> Result<Vec<Arg>, Diagnostic> {
        let (len, map) = (shape.len(), shape.map);
        let of_run = |b: &Builder<'_>, frag, run: u32| {
            b.gather(frag, (run * len..(run + 1) * len).collect())
        };
        let mut runs = Vec::new();
        // The sum of each part of the axis, in order, and how many parts a run has: one a warp.
        let parts: Vec<Arg> = if map.warps.extent == 1 {
            (0..map.rest).map(|run| of_run(&self.b, totals, run)).collect()
        } else {
            self.exchange_totals(shape, totals)?
        };
        let mut sum: Option<FragId> = None;
        let mut parts = parts.into_iter();
        for run in 0..map.rest {
            let mut before: Option<FragId> = sum;
            for warp in 0..map.warps.extent {
                if let Some(below) = sum.filter(|_| warp > 0) {
                    let here = self.digit_is(map.warps, false, warp);
                    let other = match before {
                        Some(before) => before,
                        None => {
                            let values = vec![Literal::Int(0)];
                            self.b.define(shape.dtype, len, |dst| DeviceOp::Const { dst, values })
                        }
                    };
                    before = Some(self.pick(shape, here, below, other, len));
                }
                let Some(part) = parts.next() else { continue };
                sum = Some(match sum {
                    Some(sum) => self.sum(shape, Arg::whole(sum), part, len),
                    None => self.b.define(shape.dtype, len, |dst| DeviceOp::Copy { dst, x: part }),
                });
            }
            let own = of_run(&self.b, lanes, run);
            runs.push(match before {
                Some(before) => Arg::whole(self.sum(shape, Arg::whole(before), own, len)),
                None => own,
            });
        }
        self.notes.folds.push(FoldNote {
            span: self.b.locs[self.b.loc].span,
            name: "scan",
            thread: map.registers(),
            lanes: map.lanes.extent,
            warps: map.warps.extent,
            exchange: (map.warps.extent > 1).then(|| self.notes.exchanges.len().saturating_sub(1)),
            shared_bytes: 0,
        });
        Ok(runs)
    }

    /// The sums of all runs of all warps, in the order of the axis.
    fn exchange_totals(&mut self, shape: &Shape, totals: FragId) -> Result<Vec<Arg>, Diagnostic> {
        let map = shape.map;
        let parts = map.rest * map.warps.extent;
        let from = shape.with(AxisMap { vec: 1, lanes: Digit::NONE, ..map });
        let to = shape.with(AxisMap::local(parts));
        let mut table = vec![0; from.registers() as usize];
        for run in 0..map.rest {
            for (element, register) in shape.table(&from, run).iter().enumerate() {
                table[*register as usize] = run * shape.len() + element as u32;
            }
        }
        let x = self.b.gather(totals, table);
        let src = self.b.define(shape.dtype, from.registers(), |dst| DeviceOp::Copy { dst, x });
        let all = self.through_shared(src, shape.dtype, &from, &to)?;
        let part = |part| self.b.gather(all, shape.table(&to, part));
        Ok((0..parts).map(part).collect())
    }

    /// Whether a digit of the lane or warp index has a value.
    fn digit_is(&mut self, digit: Digit, is_lane: bool, value: u32) -> FragId {
        let index = if is_lane { self.b.lane(digit) } else { self.b.warp(digit) };
        let value = Linear::constant(i64::from(value));
        let pred: Pred = self.b.int_compare(CompareOp::Eq, &index, &value, DType::I32);
        let reg = self.b.pred(pred);
        self.b.single(reg)
    }

    fn pick(&mut self, shape: &Shape, cond: FragId, a: FragId, b: FragId, len: u32) -> FragId {
        let (cond, a, b) = (Arg::all(cond, 0), Arg::whole(a), Arg::whole(b));
        self.b.define(shape.dtype, len, |dst| DeviceOp::Select { dst, cond, a, b })
    }
}

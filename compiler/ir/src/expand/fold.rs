//! Reductions, `argmax` and contractions: the part within a thread and over the lanes of a warp.
//!
//! The order is that of [`crate::kernel::Op`]: a thread folds what it holds in ascending order, lanes follow
//! by a butterfly from the nearest distance, and warps, in ascending order, through shared memory (see
//! `shared`). Where all lanes of a warp fold and the order does not show, they do so in one operation.

use std::collections::BTreeMap;
use std::sync::Arc;

use kernel_abi::DType;
use kernel_dsl::diag::{Code, Diagnostic};

use super::Expander;
use super::notes::FoldNote;
use super::queue::Pending;
use crate::device::{Arg, DeviceOp, FragId, Lanes};
use crate::distribution::{AxisMap, Distribution, LANES};
use crate::kernel::{ContractSpec, Literal, ValueId};
use crate::ops::{BinaryOp, CompareOp, ReduceOp};

/// Products that one thread computes for one contraction, at most.
const MAX_PRODUCTS: u64 = 1 << 18;

/// What a fold combines partial results with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Combine {
    /// One part.
    Reduce(ReduceOp),
    /// Two parts: value and index.
    Argmax,
}

/// What a fold of nothing gives.
fn identity(op: ReduceOp, dtype: DType) -> Literal {
    let (lo, hi) = super::builder::dtype_range(dtype);
    match (op, dtype.is_float()) {
        (ReduceOp::Add, true) => Literal::Float(0.0),
        (ReduceOp::Max, true) => Literal::Float(f64::NEG_INFINITY),
        (ReduceOp::Min, true) => Literal::Float(f64::INFINITY),
        (ReduceOp::Add, false) => Literal::Int(0),
        (ReduceOp::Max, false) => Literal::Int(if dtype == DType::U64 { 0 } else { lo }),
        (ReduceOp::Min, false) => Literal::Int(hi),
    }
}

impl Expander<'_> {
    /// Folds one axis away.
    pub(super) fn reduce(&mut self, result: ValueId, op: ReduceOp, x: ValueId, axis: usize) {
        let kernel = self.kernel;
        let source = &kernel.values[x].distribution;
        let (map, kept) = (source.axes[axis], source.without(axis));
        let dtype = kernel.values[x].dtype;
        let src = self.frag(x);
        let len = kept.registers();
        let values = vec![identity(op, dtype)];
        let mut sum = self.b.define(dtype, len, |dst| DeviceOp::Const { dst, values });
        for local in 0..map.registers() {
            let b = self.b.gather(src, slice(source, &kept, axis, local));
            let (a, op) = (Arg::whole(sum), op.binary());
            sum = self.b.define(dtype, len, |dst| DeviceOp::Binary { dst, op, a, b });
        }
        self.finish_fold(vec![result], vec![sum], Combine::Reduce(op), kept, vec![map], None);
    }

    /// The greatest element along an axis and its index.
    pub(super) fn argmax(&mut self, results: &[ValueId], x: ValueId, axis: usize) {
        let kernel = self.kernel;
        let source = &kernel.values[x].distribution;
        let (map, kept) = (source.axes[axis], source.without(axis));
        let dtype = kernel.values[x].dtype;
        let src = self.frag(x);
        let len = kept.registers();
        let least = vec![identity(ReduceOp::Max, dtype)];
        let mut best = self.b.define(dtype, len, |dst| DeviceOp::Const { dst, values: least });
        let zero = vec![Literal::Int(0)];
        let mut at = self.b.define(DType::I32, len, |dst| DeviceOp::Const { dst, values: zero });
        for local in 0..map.registers() {
            let next = self.b.gather(src, slice(source, &kept, axis, local));
            if local == 0 {
                // The first one counts whatever it is; NaN becomes the least value.
                let (a, op) = (Arg::whole(best), BinaryOp::Max);
                best = self.b.define(dtype, len, |dst| DeviceOp::Binary { dst, op, a: next, b: a });
                continue;
            }
            let (a, b) = (next.clone(), Arg::whole(best));
            let cond = self.b.define(DType::Bool, len, |dst| DeviceOp::Compare {
                dst,
                op: CompareOp::Gt,
                a,
                b,
            });
            let index = self.b.int(DType::I32, i64::from(map.coordinate(0, 0, local)));
            best = self.choose(cond, next, Arg::whole(best), dtype, len);
            at = self.choose(cond, Arg::all(index.0, 0), Arg::whole(at), DType::I32, len);
        }
        let thread = self.b.thread_coordinate(map);
        if thread.as_constant() != Some(0) {
            let base = self.b.materialize(&thread, DType::I32);
            let (a, b) = (Arg::whole(at), Arg::all(base.0, base.1));
            let op = BinaryOp::Add;
            at = self.b.define(DType::I32, len, |dst| DeviceOp::Binary { dst, op, a, b });
        }
        self.finish_fold(results.to_vec(), vec![best, at], Combine::Argmax, kept, vec![map], None);
    }

    fn choose(&mut self, cond: FragId, a: Arg, b: Arg, dtype: DType, len: u32) -> FragId {
        let cond = Arg::whole(cond);
        self.b.define(dtype, len, |dst| DeviceOp::Select { dst, cond, a, b })
    }

    /// Sums of products over letters.
    pub(super) fn contract(
        &mut self,
        result: ValueId,
        spec: &ContractSpec,
        a: ValueId,
        b: ValueId,
        acc: Option<ValueId>,
    ) -> Result<(), Diagnostic> {
        let kernel = self.kernel;
        let (a_map, b_map) = (&kernel.values[a].distribution, &kernel.values[b].distribution);
        let kept = &kernel.values[result].distribution;
        let letters = spec.contracted();
        let maps: Vec<AxisMap> = letters.iter().map(|l| map_of(l, spec, a_map, b_map)).collect();
        let is_local = maps.iter().all(|map| map.is_local());
        let (a_frag, b_frag) = (self.frag(a), self.frag(b));
        let len = kept.registers();
        let positions =
            maps.iter().fold(1u64, |n, map| n.saturating_mul(u64::from(map.registers())));
        let products = positions.saturating_mul(u64::from(len.max(1)));
        if products > MAX_PRODUCTS {
            return Err(Diagnostic::error(
                Code::E0219,
                format!("this contraction takes {products} products in each thread"),
            )
            .label(self.b.locs[self.b.loc].span, "every product is an instruction of its own")
            .note(format!("at most {MAX_PRODUCTS} are written out"))
            .help("sum one operand first, or loop over a part of the contracted axes"));
        }
        let mut chain = match acc.filter(|_| is_local) {
            Some(acc) => self.operand(acc, result),
            None => {
                let values = vec![Literal::Float(0.0)];
                Arg::whole(self.b.define(DType::F32, len, |dst| DeviceOp::Const { dst, values }))
            }
        };
        let mut locals: BTreeMap<Arc<str>, u32> = BTreeMap::new();
        for position in 0..positions {
            let mut left = position;
            for (letter, map) in letters.iter().zip(&maps).rev() {
                let count = u64::from(map.registers());
                locals.insert(letter.clone(), (left % count) as u32);
                left /= count;
            }
            let (mut a_table, mut b_table) = (Vec::new(), Vec::new());
            for register in 0..len {
                for (letter, local) in spec.out.iter().zip(kept.locals(register)) {
                    locals.insert(letter.clone(), local);
                }
                let register_of = |names: &[Arc<str>], map: &Distribution| {
                    let own: Vec<u32> = names.iter().map(|l| locals[l]).collect();
                    map.register(&own)
                };
                a_table.push(register_of(&spec.a, a_map));
                b_table.push(register_of(&spec.b, b_map));
            }
            let (a, b) = (self.b.gather(a_frag, a_table), self.b.gather(b_frag, b_table));
            let c = chain;
            chain =
                Arg::whole(self.b.define(DType::F32, len, |dst| DeviceOp::Fma { dst, a, b, c }));
        }
        let total = if chain == Arg::whole(chain.frag) {
            chain.frag
        } else {
            self.b.define(DType::F32, len, |dst| DeviceOp::Copy { dst, x: chain })
        };
        if is_local {
            let thread = positions.min(u64::from(u32::MAX)) as u32;
            self.notes.folds.push(FoldNote {
                span: self.b.locs[self.b.loc].span,
                name: "contract",
                thread,
                lanes: 1,
                warps: 1,
                exchange: None,
                shared_bytes: 0,
            });
            self.bind(result, total);
            return Ok(());
        }
        let add = Combine::Reduce(ReduceOp::Add);
        self.finish_fold(vec![result], vec![total], add, kept.clone(), maps, acc);
        Ok(())
    }

    /// Folds over the lanes, and hands over to the exchange where warps differ.
    fn finish_fold(
        &mut self,
        results: Vec<ValueId>,
        mut parts: Vec<FragId>,
        combine: Combine,
        kept: Distribution,
        folded: Vec<AxisMap>,
        acc: Option<ValueId>,
    ) {
        // Where the order does not show, all lanes of a warp fold in one instruction.
        let dtype = self.b.frags[parts[0]].dtype;
        let is_whole = folded.iter().map(|map| map.lanes.extent).product::<u32>() == LANES;
        let at_once = is_whole
            && match combine {
                Combine::Reduce(op) => op.is_free_of_order(dtype),
                Combine::Argmax => true,
            };
        if at_once {
            parts = match combine {
                Combine::Reduce(op) => vec![self.reduce_lanes(op, parts[0])],
                Combine::Argmax => self.argmax_lanes(parts[0], parts[1]),
            };
        }
        for map in folded.iter().filter(|_| !at_once) {
            let mut distance = 1;
            while distance < map.lanes.extent {
                let xor = distance * map.lanes.stride;
                let others: Vec<Arg> = parts.iter().map(|&x| self.shuffle(x, xor)).collect();
                let own: Vec<Arg> = parts.iter().map(|&x| Arg::whole(x)).collect();
                parts = self.combine(combine, own, others, kept.registers());
                distance *= 2;
            }
        }
        let product = |f: fn(&AxisMap) -> u32| folded.iter().map(f).product::<u32>();
        let note = self.notes.folds.len();
        self.notes.folds.push(FoldNote {
            span: self.b.locs[self.b.loc].span,
            name: match (combine, results.len(), acc) {
                (Combine::Argmax, _, _) => "argmax",
                (Combine::Reduce(_), _, Some(_)) => "contract",
                (Combine::Reduce(op), _, None) => op.name(),
            },
            thread: product(|map| map.registers()),
            lanes: product(|map| map.lanes.extent),
            warps: product(|map| map.warps.extent),
            exchange: None,
            shared_bytes: 0,
        });
        let pending = Pending { loc: self.b.loc, results, parts, combine, kept, folded, acc, note };
        if pending.folded.iter().all(|map| map.warps.extent == 1) || pending.kept.registers() == 0 {
            self.finish(pending);
        } else {
            self.queue.push(pending);
        }
    }

    /// Binds the results of a fold that every thread has completed.
    pub(super) fn finish(&mut self, mut done: Pending) {
        if let Some(acc) = done.acc
            && let Some(&result) = done.results.first()
        {
            let (a, b) = (self.operand(acc, result), Arg::whole(done.parts[0]));
            let op = BinaryOp::Add;
            let sum = self.define_value(result, |dst| DeviceOp::Binary { dst, op, a, b });
            done.parts = vec![sum];
        }
        for (&result, &part) in done.results.iter().zip(&done.parts) {
            self.bind(result, part);
        }
    }

    fn reduce_lanes(&mut self, op: ReduceOp, x: FragId) -> FragId {
        let frag = self.b.frags[x];
        self.b.define(frag.dtype, frag.len, |dst| DeviceOp::ReduceLanes { dst, x, op })
    }

    /// The greatest of all lanes and the lowest index among those that have it. No NaN is among the values.
    fn argmax_lanes(&mut self, best: FragId, at: FragId) -> Vec<FragId> {
        let (frag, whole) = (self.b.frags[best], Arg::whole);
        let most = self.reduce_lanes(ReduceOp::Max, best);
        let equal = |dst, a, b| DeviceOp::Compare { dst, op: CompareOp::Eq, a, b };
        let has = self.b.define(DType::Bool, frag.len, |dst| equal(dst, whole(best), whole(most)));
        let never = vec![identity(ReduceOp::Min, DType::I32)];
        let never = self.b.define(DType::I32, 1, |dst| DeviceOp::Const { dst, values: never });
        let own = self.choose(has, whole(at), Arg::all(never, 0), DType::I32, frag.len);
        let index = self.reduce_lanes(ReduceOp::Min, own);
        if !frag.dtype.is_float() {
            return vec![most, index];
        }
        // +0 and -0 are equal there, so the value is asked for again, of the lane that won.
        let won = self.b.define(DType::Bool, frag.len, |dst| equal(dst, whole(own), whole(index)));
        let least = vec![identity(ReduceOp::Max, frag.dtype)];
        let least = self.b.define(frag.dtype, 1, |dst| DeviceOp::Const { dst, values: least });
        let own = self.choose(won, whole(best), Arg::all(least, 0), frag.dtype, frag.len);
        vec![self.reduce_lanes(ReduceOp::Max, own), index]
    }

    fn shuffle(&mut self, x: FragId, xor: u32) -> Arg {
        let frag = self.b.frags[x];
        let lanes = Lanes::Xor(xor);
        Arg::whole(self.b.define(frag.dtype, frag.len, |dst| DeviceOp::Shuffle { dst, x, lanes }))
    }

    /// `own op other` for `len` outputs, part by part.
    pub(super) fn combine(
        &mut self,
        combine: Combine,
        own: Vec<Arg>,
        other: Vec<Arg>,
        len: u32,
    ) -> Vec<FragId> {
        let dtype = self.b.frags[own[0].frag].dtype;
        match combine {
            Combine::Reduce(op) => {
                let (a, b, op) = (own[0].clone(), other[0].clone(), op.binary());
                vec![self.b.define(dtype, len, |dst| DeviceOp::Binary { dst, op, a, b })]
            }
            Combine::Argmax => {
                let mut test = |op, part: usize| {
                    let (a, b) = (other[part].clone(), own[part].clone());
                    let dtype = DType::Bool;
                    Arg::whole(self.b.define(dtype, len, |dst| DeviceOp::Compare { dst, op, a, b }))
                };
                let (greater, equal) = (test(CompareOp::Gt, 0), test(CompareOp::Eq, 0));
                let lower = test(CompareOp::Lt, 1);
                let mut join = |op, a, b| {
                    let dtype = DType::Bool;
                    self.b.define(dtype, len, |dst| DeviceOp::Binary { dst, op, a, b })
                };
                let tie = Arg::whole(join(BinaryOp::And, equal, lower));
                let cond = join(BinaryOp::Or, greater, tie);
                [dtype, DType::I32]
                    .into_iter()
                    .zip(own.into_iter().zip(other))
                    .map(|(dtype, (own, other))| self.choose(cond, other, own, dtype, len))
                    .collect()
            }
        }
    }
}

/// For each register of `kept` the register of `source` with `local` on the folded axis.
fn slice(source: &Distribution, kept: &Distribution, axis: usize, local: u32) -> Vec<u32> {
    (0..kept.registers())
        .map(|register| {
            let mut locals = kept.locals(register);
            locals.insert(axis, local);
            source.register(&locals)
        })
        .collect()
}

/// The map of a contracted letter.
fn map_of(letter: &str, spec: &ContractSpec, a: &Distribution, b: &Distribution) -> AxisMap {
    let find = |names: &[Arc<str>], map: &Distribution| {
        names.iter().position(|l| **l == *letter).and_then(|axis| map.axes.get(axis).copied())
    };
    find(&spec.a, a).or(find(&spec.b, b)).unwrap_or(AxisMap::local(1))
}

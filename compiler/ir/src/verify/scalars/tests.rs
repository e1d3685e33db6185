//! What is said of integers holds of what wrapping arithmetic computes.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::expand::sample::Sample;
use crate::kernel::{AxisIndex, Contract, StmtKind};
use crate::ops::{convert, elements, eval};
use kernel_abi::Access;

const TYPES: [DType; 6] = [DType::I32, DType::U32, DType::I8, DType::U8, DType::I64, DType::U64];
const LEN: usize = 4;

/// A draw for one statement.
#[derive(Debug, Clone)]
struct Draw {
    kind: u8,
    op: usize,
    a: usize,
    b: usize,
    c: usize,
    number: i64,
    ends: [i64; 2],
    entries: [u8; LEN],
}

fn draw() -> impl Strategy<Value = Draw> {
    let number = || {
        prop_oneof![
            -4i64..40,
            Just(i64::from(i32::MAX)),
            Just(i64::from(i32::MIN)),
            Just(i64::from(u32::MAX)),
            Just(i64::MAX),
            Just(i64::MIN),
            any::<i32>().prop_map(i64::from),
        ]
    };
    let ends = [number(), number()];
    (any::<u8>(), any::<usize>(), any::<[usize; 3]>(), number(), ends, any::<[u8; LEN]>()).prop_map(
        |(kind, op, [a, b, c], number, ends, entries)| Draw {
            kind,
            op,
            a,
            b,
            c,
            number,
            ends,
            entries,
        },
    )
}

/// A kernel that is written while it is computed.
struct Run {
    sample: Sample,
    /// Integer tiles of `LEN` entries with their values.
    tiles: Vec<(ValueId, Vec<i128>)>,
    values: BTreeMap<ValueId, Vec<i128>>,
}

impl Run {
    fn dtype(&self, value: ValueId) -> DType {
        self.sample.kernel.values[value].dtype
    }

    fn tile(&mut self, dtype: DType, op: Op, numbers: Vec<i128>) -> ValueId {
        let value = self.sample.def(dtype, &[LEN as u32], op);
        self.values.insert(value, numbers.clone());
        self.tiles.push((value, numbers));
        value
    }

    fn pick(&self, at: usize) -> (ValueId, Vec<i128>) {
        self.tiles[at % self.tiles.len()].clone()
    }

    fn scalar(&mut self, dtype: DType, number: i64) -> Option<(ValueId, i128)> {
        elements::literal_code(dtype, Literal::Int(number))?;
        let value = self.sample.def(dtype, &[], Op::Const(Literal::Int(number)));
        self.values.insert(value, vec![i128::from(number); LEN]);
        Some((value, i128::from(number)))
    }

    /// A tile of data within a contract.
    fn load(&mut self, draw: &Draw) {
        let dtype = TYPES[draw.op % TYPES.len()];
        let range = dtype_interval(dtype);
        let (Some(least), Some(most)) = (range.lo, range.hi) else { return };
        let [a, b] = draw.ends.map(|end| i128::from(end).clamp(least, most));
        let (lo, hi) = (a.min(b), a.max(b).min(i128::from(i64::MAX) - 1));
        if lo > hi {
            return;
        }
        let param = self.sample.param("x", Access::Input, dtype, &[LEN as u32]);
        let end = |x: i128| i64::try_from(x).unwrap();
        self.sample.kernel.params[param].contract =
            Some(Contract { lo: end(lo), hi: ContractBound::Const(end(hi + 1)), distinct: None });
        let numbers = draw.entries.map(|e| lo + (hi - lo) * i128::from(e) / 255).to_vec();
        let zero = self.sample.int(0);
        self.values.insert(zero, vec![0; LEN]);
        let index = vec![AxisIndex::Range { start: zero, len: LEN as u32, until: None }];
        let value = self.sample.load(param, index);
        self.values.insert(value, numbers.clone());
        self.tiles.push((value, numbers));
    }

    fn as_dtype(&mut self, tile: (ValueId, Vec<i128>), to: DType) -> (ValueId, Vec<i128>) {
        let from = self.dtype(tile.0);
        if from == to {
            return tile;
        }
        let numbers: Vec<i128> =
            tile.1.iter().map(|&n| number(to, convert::code(from, to, code(from, n)))).collect();
        (self.tile(to, Op::Convert { x: tile.0 }, numbers.clone()), numbers)
    }

    fn step(&mut self, draw: &Draw) {
        if self.tiles.is_empty() {
            return self.load(draw);
        }
        let (x, numbers) = self.pick(draw.a);
        let dtype = self.dtype(x);
        let both = |n: i128| code(dtype, n);
        match draw.kind % 12 {
            0 => self.load(draw),
            1 => {
                let value = self.sample.def(DType::I32, &[LEN as u32], Op::Iota);
                let numbers: Vec<i128> = (0..LEN as i128).collect();
                self.values.insert(value, numbers.clone());
                self.tiles.push((value, numbers));
            }
            2 if matches!(dtype, DType::I8 | DType::I32 | DType::I64) => {
                let op = [UnaryOp::Neg, UnaryOp::Abs][draw.op % 2];
                let results =
                    numbers.iter().map(|&n| number(dtype, eval::unary_code(op, dtype, both(n))));
                let results = results.collect();
                self.tile(dtype, Op::Unary { op, x }, results);
            }
            3 => {
                let to = TYPES[draw.op % TYPES.len()];
                self.as_dtype((x, numbers), to);
            }
            4 if matches!(dtype, DType::I32 | DType::U32) => {
                let (op, result) = match draw.op % 3 {
                    0 => (ReduceOp::Add, wrapped(dtype, numbers.iter().sum())),
                    1 => (ReduceOp::Max, numbers.iter().copied().max().unwrap()),
                    _ => (ReduceOp::Min, numbers.iter().copied().min().unwrap()),
                };
                let value = self.sample.def(dtype, &[], Op::Reduce { op, x, axis: 0 });
                self.values.insert(value, vec![result; LEN]);
                self.tile(dtype, Op::Splat { x: value }, vec![result; LEN]);
            }
            5 if matches!(dtype, DType::I32 | DType::U32) => {
                let exclusive = draw.op.is_multiple_of(2);
                let sum = |i: usize| {
                    let all = if exclusive { &numbers[..i] } else { &numbers[..=i] };
                    wrapped(dtype, all.iter().sum())
                };
                let results = (0..LEN).map(sum).collect();
                self.tile(dtype, Op::Scan { x, axis: 0, exclusive }, results);
            }
            6 => {
                let (a, va) = (x, numbers);
                let b = self.pick(draw.b);
                let (b, vb) = self.as_dtype(b, dtype);
                let other = self.pick(draw.c);
                let (other, vo) = self.as_dtype(other, dtype);
                let ops =
                    [CompareOp::Lt, CompareOp::Le, CompareOp::Gt, CompareOp::Ge, CompareOp::Eq];
                let op = ops[draw.op % ops.len()];
                let cond = self.sample.compare(op, a, b);
                let results = (0..LEN)
                    .map(|i| {
                        let truth =
                            eval::compare_code(op, dtype, code(dtype, va[i]), code(dtype, vb[i]));
                        if truth { va[i] } else { vo[i] }
                    })
                    .collect();
                self.tile(dtype, Op::Select { cond, a, b: other }, results);
            }
            kind => {
                let ops = [
                    BinaryOp::Add,
                    BinaryOp::Sub,
                    BinaryOp::Mul,
                    BinaryOp::Div,
                    BinaryOp::Rem,
                    BinaryOp::Min,
                    BinaryOp::Max,
                    BinaryOp::And,
                    BinaryOp::Or,
                    BinaryOp::Xor,
                    BinaryOp::Shl,
                    BinaryOp::Shr,
                ];
                let op = ops[draw.op % ops.len()];
                let (b, vb) = if kind < 10 {
                    let Some((b, n)) = self.scalar(dtype, draw.number) else { return };
                    (b, vec![n; LEN])
                } else {
                    let b = self.pick(draw.b);
                    self.as_dtype(b, dtype)
                };
                let results: Result<Vec<i128>, _> = numbers
                    .iter()
                    .zip(&vb)
                    .map(|(&x, &y)| {
                        eval::binary_code(op, dtype, code(dtype, x), code(dtype, y))
                            .map(|c| number(dtype, c))
                    })
                    .collect();
                if let Ok(results) = results {
                    self.tile(dtype, Op::Binary { op, a: x, b }, results);
                }
            }
        }
    }

    /// Everything that is said against everything that was computed.
    fn judge(self) -> Result<(), TestCaseError> {
        let Run { sample, values, .. } = self;
        let kernel = sample.finish();
        let mut known = Knowledge::new(&kernel);
        for stmt in &kernel.body {
            if let StmtKind::Def { results, op } = &stmt.kind {
                known.define(results, op, &Facts::new());
            }
        }
        let of = |form: &Form, i: usize| {
            form.terms.iter().try_fold(form.constant, |sum, (symbol, factor)| match symbol {
                Symbol::Value(value) => Some(sum + factor * values.get(value)?[i]),
                Symbol::Param(_)
                | Symbol::Cta(_)
                | Symbol::Cluster(_)
                | Symbol::Other(_)
                | Symbol::Earlier(_)
                | Symbol::Rounds(_) => None,
            })
        };
        for (&value, numbers) in &values {
            let form = known.form(value);
            let interval = known.interval(&form);
            for (i, &number) in numbers.iter().enumerate() {
                prop_assert_eq!(of(&form, i), Some(number), "{:?} is {:?}", value, form);
                let inside = interval.lo.is_none_or(|lo| lo <= number)
                    && interval.hi.is_none_or(|hi| number <= hi);
                prop_assert!(inside, "{:?} is {}, not in {:?}", value, number, interval);
            }
        }
        for fact in known.always.all() {
            for i in 0..LEN {
                prop_assert!(of(fact, i).is_some_and(|n| n >= 0), "{:?} is no fact", fact);
            }
        }
        Ok(())
    }
}

fn code(dtype: DType, number: i128) -> u64 {
    let bits = dtype.bits();
    (number as u64) & if bits == 64 { u64::MAX } else { (1 << bits) - 1 }
}

fn number(dtype: DType, code: u64) -> i128 {
    match dtype {
        DType::I8 => (code as i8).into(),
        DType::I32 => (code as i32).into(),
        DType::I64 => (code as i64).into(),
        _ => code.into(),
    }
}

fn wrapped(dtype: DType, exact: i128) -> i128 {
    number(dtype, code(dtype, exact))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn intervals_forms_and_facts_hold_with_wrapping(draws in proptest::collection::vec(draw(), 2..14)) {
        let mut run = Run { sample: Sample::new(1, 1), tiles: Vec::new(), values: BTreeMap::new() };
        for draw in &draws {
            run.step(draw);
        }
        run.judge()?;
    }
}

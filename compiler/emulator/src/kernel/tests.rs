//! Every operation and every error at kernel level.

use std::sync::Arc;

use kernel_abi::{Access, DType};
use kernel_ir::kernel::{
    AxisIndex, Contract, ContractBound, ContractSpec, Distinct, Evict, Extent, Literal, Op, Pdl,
    PrefetchRange, StmtKind,
};
use kernel_ir::ops::{BinaryOp, CompareOp, ReduceOp, UnaryOp};

use crate::sample::{OPTIONS, Sample, set_int, span};
use crate::{Buffer, ErrorKind, Memory, Options, run_kernel};

const F32: DType = DType::F32;
const I32: DType = DType::I32;

fn at(value: kernel_ir::kernel::ValueId) -> AxisIndex {
    AxisIndex::At(value)
}

#[test]
fn element_wise_operations_broadcast() {
    let mut s = Sample::new(1);
    let (x, y, out) =
        (s.input("x", F32, &[3]), s.input("y", F32, &[2, 1]), s.output("out", F32, &[2, 3]));
    let (x, y) = (s.load_whole(x), s.load_whole(y));
    let ten = s.float(10.0);
    let y = s.def(F32, &[2, 1], Op::Binary { op: BinaryOp::Mul, a: y, b: ten });
    let sum = s.def(F32, &[2, 3], Op::Binary { op: BinaryOp::Add, a: x, b: y });
    let negative = s.def(F32, &[2, 3], Op::Unary { op: UnaryOp::Neg, x: sum });
    let one = s.float(1.0);
    let big = s.def(DType::Bool, &[2, 3], Op::Compare { op: CompareOp::Gt, a: sum, b: one });
    let chosen = s.def(F32, &[2, 3], Op::Select { cond: big, a: negative, b: ten });
    let fused = s.def(F32, &[2, 3], Op::Fma { a: chosen, b: ten, c: one });
    s.store_whole(fused, out);
    let (values, trace) = s.run().unwrap();
    assert_eq!(values, [101.0, 101.0, -19.0, -99.0, -109.0, -119.0]);
    assert_eq!((trace.bytes_read, trace.bytes_written), (20, 24));
    assert_eq!(trace.flops, 2 + 6 + 6 + 12);
}

#[test]
fn shapes_conversions_and_constants() {
    let mut s = Sample::new(1);
    let out = s.output("out", DType::Bf16, &[3, 4]);
    let iota = s.def(I32, &[4], Op::Iota);
    let row = s.def(I32, &[1, 4], Op::Expand { x: iota, axes: vec![None, Some(0)] });
    let iota3 = s.def(I32, &[3], Op::Iota);
    let column = s.def(I32, &[3, 1], Op::Expand { x: iota3, axes: vec![Some(0), None] });
    let hundred = s.int(100);
    let hundred = s.def(I32, &[3, 1], Op::Splat { x: hundred });
    let column = s.def(I32, &[3, 1], Op::Binary { op: BinaryOp::Mul, a: column, b: hundred });
    let sum = s.def(I32, &[3, 4], Op::Binary { op: BinaryOp::Add, a: row, b: column });
    let sum = s.def(DType::Bf16, &[3, 4], Op::Convert { x: sum });
    let sum = s.def(DType::Bf16, &[3, 4], Op::Relayout { x: sum });
    s.store_whole(sum, out);
    assert_eq!(
        s.values(),
        [0.0, 1.0, 2.0, 3.0, 100.0, 101.0, 102.0, 103.0, 200.0, 201.0, 202.0, 203.0]
    );
}

#[test]
fn reductions_argmax_and_contractions() {
    let mut s = Sample::new(1);
    let (x, out) = (s.input("x", F32, &[2, 3]), s.output("out", F32, &[6]));
    let x = s.load_whole(x);
    let sum = s.def(F32, &[2], Op::Reduce { op: ReduceOp::Add, x, axis: 1 });
    let (value, index) = (s.value(F32, &[3]), s.value(I32, &[3]));
    s.stmt(StmtKind::Def { results: vec![value, index], op: Op::Argmax { x, axis: 0 } });
    let index = s.def(F32, &[3], Op::Convert { x: index });
    let best = s.def(F32, &[3], Op::Binary { op: BinaryOp::Add, a: value, b: index });
    let letters = |text: &str| text.split(' ').map(Arc::from).collect::<Vec<Arc<str>>>();
    let spec = ContractSpec { a: letters("i j"), b: letters("j"), out: letters("i") };
    let twice = s.def(F32, &[2], Op::Contract { spec, a: x, b: best, acc: Some(sum) });
    for (i, start) in [(sum, 0), (twice, 2)] {
        let start = s.int(start);
        let access = s.access(out, vec![AxisIndex::Range { start, len: 2, until: None }]);
        s.store(i, access);
    }
    let five = s.int(5);
    let total = s.def(F32, &[], Op::Reduce { op: ReduceOp::Max, x: best, axis: 0 });
    let access = s.access(out, vec![at(five)]);
    s.store(total, access);
    let values = s.values();
    // best = [4, 5, 6]; rows are [0 1 2] and [3 4 5].
    assert_eq!(values[..4], [3.0, 12.0, 3.0 + 17.0, 12.0 + 62.0]);
    assert!(values[4].is_nan(), "nothing wrote it");
    assert_eq!(values[5], 6.0);
}

#[test]
fn slices_views_and_gathers() {
    let mut s = Sample::new(1);
    let (x, out) = (s.input("x", F32, &[4, 4]), s.output("out", F32, &[2, 1, 3]));
    let (minus, two) = (s.int(-1), s.int(2));
    let iota = s.def(I32, &[2], Op::Iota);
    let three = s.int(3);
    let picks = s.def(I32, &[2], Op::Binary { op: BinaryOp::Mul, a: iota, b: three });
    let picks = s.def(I32, &[2], Op::Binary { op: BinaryOp::Add, a: picks, b: minus });
    let range = AxisIndex::Range { start: two, len: 3, until: Some(three) };
    // Rows -1 (absent) and 2, a new axis, columns 2, 3 (absent), 4 (absent).
    let access = s.access(x, vec![AxisIndex::Gather(picks), AxisIndex::New, range]);
    let other = s.float(-5.0);
    let tile = s.load(F32, &[2, 1, 3], access, Some(other));
    s.store_whole(tile, out);
    assert_eq!(s.values(), [-5.0, -5.0, -5.0, 10.0, -5.0, -5.0]);
}

#[test]
fn loops_choices_rings_and_printf() {
    let mut s = Sample::new(2);
    let (len, out) = (s.param("len", Access::Scalar, I32, &[]), s.output("out", I32, &[2]));
    let slot = s.var(I32, &[], 2);
    let zero = s.int(0);
    s.stmt(StmtKind::SetVar { var: slot, slot: 1, value: zero });
    let end = s.def(I32, &[], Op::ScalarParam(len));
    let i = s.value(I32, &[]);
    s.open();
    let last = s.def(I32, &[], Op::ReadVar { var: slot, slot: 1 });
    let sum = s.def(I32, &[], Op::Binary { op: BinaryOp::Add, a: last, b: i });
    s.stmt(StmtKind::SetVar { var: slot, slot: 1, value: sum });
    let body = s.close();
    s.stmt(StmtKind::For { var: i, start: zero, end, step: 2, tickets: None, body });
    let cta = s.def(I32, &[], Op::CtaIndex(0));
    let first = s.def(DType::Bool, &[], Op::Compare { op: CompareOp::Eq, a: cta, b: zero });
    let total = s.def(I32, &[], Op::ReadVar { var: slot, slot: 1 });
    s.open();
    s.stmt(StmtKind::Printf { format: "sum {} of {}".into(), args: vec![total, first] });
    let then_body = s.close();
    s.stmt(StmtKind::If { cond: first, then_body, else_body: Vec::new() });
    let access = s.access(out, vec![at(cta)]);
    s.store(total, access);
    let (kernel, mut memory) = s.finish();
    set_int(&mut memory, len, 6);
    let trace = run_kernel(&kernel, &mut memory, &OPTIONS).unwrap();
    assert_eq!(memory.buffer(out).unwrap().to_f64(), [6.0, 6.0]);
    assert_eq!(trace.printed.len(), 1);
    assert_eq!(trace.printed[0].text, "sum 6 of true");
    set_int(&mut memory, len, -6);
    run_kernel(&kernel, &mut memory, &OPTIONS).unwrap();
    assert_eq!(memory.buffer(out).unwrap().to_f64(), [0.0, 0.0], "a loop may run zero times");
}

#[test]
fn poison_names_the_line_and_the_element() {
    let mut s = Sample::new(1);
    let (scratch, out) = (s.param("s", Access::Scratch, F32, &[2, 2]), s.output("out", F32, &[4]));
    let (one, value) = (s.int(1), s.float(1.0));
    let access = s.access(scratch, vec![at(one), at(one)]);
    s.store(value, access);
    let access = s.access(scratch, vec![at(one), at(one)]);
    s.load(F32, &[], access, None);
    let access = s.whole(scratch);
    let line = access.span;
    let tile = s.load(F32, &[2, 2], access, None);
    s.store_whole(tile, out);
    let (kind, error) = s.error();
    assert_eq!(kind, ErrorKind::Poison);
    assert_eq!(error.span, line);
    assert_eq!(error.detail.coordinate, [0, 0]);
    assert_eq!(error.detail.cta, Some([0, 0, 0]));
    assert_eq!(error.code().to_string(), "E0701");

    let mut s = Sample::new(1);
    let out = s.output("out", F32, &[4]);
    let var = s.var(F32, &[4], 1);
    let tile = s.def(F32, &[4], Op::ReadVar { var, slot: 0 });
    s.store_whole(tile, out);
    let (kind, error) = s.error();
    assert_eq!(kind, ErrorKind::Poison);
    assert_eq!(error.message, "read of `acc`, which nothing has assigned");
    assert_eq!(error.detail.other.unwrap().0, span(901));
}

#[test]
fn an_input_is_poison_until_the_wait() {
    let build = |wait_first: bool, settled: bool| {
        let mut s = Sample::new(1);
        s.kernel.launch.pdl = Pdl::Consumer;
        let (w, x) = (s.param("w", Access::Static, F32, &[2]), s.input("x", F32, &[2]));
        s.kernel.params[x].settled = settled;
        let out = s.output("out", F32, &[2]);
        s.load_whole(w);
        if wait_first {
            s.stmt(StmtKind::GridWait);
        }
        let tile = s.load_whole(x);
        if !wait_first {
            s.stmt(StmtKind::GridWait);
        }
        s.stmt(StmtKind::GridLaunch);
        s.store_whole(tile, out);
        s
    };
    assert_eq!(build(true, false).values(), [0.0, 1.0]);
    assert_eq!(build(false, true).values(), [0.0, 1.0]);
    let (kind, error) = build(false, false).error();
    assert_eq!(kind, ErrorKind::Poison);
    assert!(error.message.contains("read before `grid_wait`"), "{error}");
    let (kernel, mut memory) = build(false, false).finish();
    let quiet = Options { producer_running: false, ..OPTIONS };
    assert!(run_kernel(&kernel, &mut memory, &quiet).is_ok());
}

#[test]
fn a_store_before_the_wait_is_lost() {
    let mut s = Sample::new(1);
    s.kernel.launch.pdl = Pdl::Both;
    let out = s.param("out", Access::Inout, F32, &[2]);
    let (zero, value) = (s.int(0), s.float(7.0));
    let access = s.access(out, vec![at(zero)]);
    s.store(value, access);
    s.stmt(StmtKind::GridWait);
    let (kernel, mut memory) = s.finish();
    run_kernel(&kernel, &mut memory, &OPTIONS).unwrap();
    let buffer = memory.buffer(out).unwrap();
    assert_eq!((buffer.code(0), buffer.is_written(1)), (None, true));
    assert_eq!(buffer.first_unwritten(), Some(0));
}

#[test]
fn accesses_out_of_bounds() {
    for (start, until, extent, ok) in
        [(0, None, 4, true), (1, None, 4, false), (2, Some(4), 4, true), (2, Some(5), 4, false)]
    {
        let mut s = Sample::new(1);
        let (x, out) = (s.input("x", F32, &[extent]), s.output("out", F32, &[4]));
        let start = s.int(start);
        let until = until.map(|u| s.int(u));
        let access = s.access(x, vec![AxisIndex::Range { start, len: 4, until }]);
        let other = s.float(0.0);
        let tile = s.load(F32, &[4], access, Some(other));
        s.store_whole(tile, out);
        match s.run() {
            Ok(_) => assert!(ok),
            Err(error) => {
                assert!(!ok);
                assert_eq!(error.kind, ErrorKind::OutOfBounds);
                assert_eq!(error.detail.coordinate, [4]);
                assert!(error.message.contains("position 4 of axis 0, which has 4"), "{error}");
            }
        }
    }
    for position in [-1, 4] {
        let mut s = Sample::new(1);
        let out = s.output("out", F32, &[4]);
        let (position, value) = (s.int(position), s.float(1.0));
        let access = s.access(out, vec![at(position)]);
        s.store(value, access);
        assert_eq!(s.error().0, ErrorKind::OutOfBounds);
    }
    for (end, ok) in [(4, true), (5, false), (-3, true)] {
        let mut s = Sample::new(1);
        let x = s.input("x", F32, &[4]);
        let (start, end) = (s.int(2), s.int(end));
        let what = PrefetchRange::Elements { param: x, start, end };
        s.stmt(StmtKind::Prefetch { what, evict: Some(Evict::Last) });
        assert_eq!(s.run().is_ok(), ok);
    }
}

#[test]
fn contracts_are_checked_at_launch() {
    let contract = |lo, hi, distinct| {
        let mut s = Sample::new(1);
        let ids = s.input("ids", I32, &[4]);
        s.kernel.params[ids].contract = Some(Contract { lo, hi, distinct });
        s.kernel.params.push(s.kernel.params[ids].clone());
        let n = s.param("n", Access::Scalar, I32, &[]);
        assert_eq!(n, kernel_ir::index::Id::new(2));
        s
    };
    // The elements are 0 to 3, n is 3.
    let n = kernel_ir::index::Id::new(2);
    assert!(contract(0, ContractBound::Const(4), None).finish().0.params.len() == 3);
    let run = |s: Sample| {
        let (kernel, mut memory) = s.finish();
        run_kernel(&kernel, &mut memory, &OPTIONS)
    };
    assert!(run(contract(0, ContractBound::Const(4), None)).is_ok());
    assert!(run(contract(0, ContractBound::Scalar(n, 1), None)).is_ok());
    let error = run(contract(0, ContractBound::Scalar(n, 0), None)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Contract);
    assert_eq!(error.message, "`ids` is 3 at launch, outside 0..3");
    assert_eq!((error.detail.coordinate, error.detail.cta), (vec![3], None));

    let distinct = Some(Distinct { except: Some(-1) });
    for (ids, ok) in [([1, 0, -1, -1], true), ([1, 0, 1, 2], false), ([2, 1, 0, 3], true)] {
        let mut s = Sample::new(1);
        let param = s.input("ids", I32, &[4]);
        let hi = ContractBound::Const(4);
        s.kernel.params[param].contract = Some(Contract { lo: -1, hi, distinct });
        let (kernel, mut memory) = s.finish();
        memory.set_buffer(param, Buffer::from_i32(&ids));
        let result = run_kernel(&kernel, &mut memory, &OPTIONS);
        assert_eq!(result.is_ok(), ok);
        if let Err(error) = result {
            assert_eq!(error.message, "`ids` is 1 twice at launch, and is declared distinct");
            assert_eq!(error.detail.coordinate, [2]);
        }
    }
}

#[test]
fn what_an_output_promises_is_checked_after_the_run() {
    let mut s = Sample::new(1);
    let out = s.output("out", I32, &[2]);
    let hi = ContractBound::Const(4);
    s.kernel.params[out].contract = Some(Contract { lo: 0, hi, distinct: None });
    let nine = s.int(9);
    let nine = s.def(I32, &[2], Op::Splat { x: nine });
    s.store_whole(nine, out);
    let (kernel, mut memory) = s.finish();
    let error = run_kernel(&kernel, &mut memory, &OPTIONS).unwrap_err();
    assert_eq!(error.message, "`out` is 9 after the run, outside 0..4");
}

#[test]
fn assert_and_division_by_zero() {
    let mut s = Sample::new(1);
    let no = s.def(DType::Bool, &[], Op::Const(Literal::Bool(false)));
    let line = s.stmt(StmtKind::Assert { cond: no, message: "n is even".into() });
    let (kind, error) = s.error();
    assert_eq!((kind, error.span), (ErrorKind::Assert, line));
    assert_eq!(error.message, "assertion failed: n is even");

    let mut s = Sample::new(1);
    let (x, y) = (s.input("x", I32, &[2, 2]), s.input("y", I32, &[2, 2]));
    let (x, y) = (s.load_whole(x), s.load_whole(y));
    s.def(I32, &[2, 2], Op::Binary { op: BinaryOp::Rem, a: x, b: y });
    let (kind, error) = s.error();
    assert_eq!(kind, ErrorKind::DivisionByZero);
    assert_eq!(error.detail.coordinate, [0, 0]);
}

#[test]
fn arguments_are_checked() {
    let build = || {
        let mut s = Sample::new(1);
        let n = s.param("n", Access::Scalar, I32, &[]);
        let x = s.input("x", F32, &[1, 4]);
        s.kernel.params[x].shape[0] = Extent::Scalar(n);
        (s.finish(), n, x)
    };
    let fails = |change: &dyn Fn(&mut Memory)| {
        let ((kernel, mut memory), ..) = build();
        change(&mut memory);
        let error = run_kernel(&kernel, &mut memory, &OPTIONS).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Argument, "{error}");
        error.message
    };
    let ((kernel, mut memory), n, x) = build();
    memory.set_buffer(x, Buffer::poison(F32, 12));
    assert!(run_kernel(&kernel, &mut memory, &OPTIONS).is_ok());
    let message = fails(&|_| {});
    assert_eq!(message, "`x` is 12 elements of f32, the argument has 4 elements of f32");
    let message = fails(&|m| m.set_buffer(x, Buffer::poison(I32, 12)));
    assert_eq!(message, "`x` is 12 elements of f32, the argument has 12 elements of i32");
    let message = fails(&|m| *m = Memory::new(&kernel.params));
    assert_eq!(message, "the scalar `n` is missing");
    let message = fails(&|m| set_int(m, n, -1));
    assert_eq!(message, "the extent `n` of `x` is -1, below zero");
    let message = fails(&|m| m.set_scalar(n, F32, 0));
    assert_eq!(message, "`n` is a scalar of i32, the argument is a scalar of f32");
    let message = fails(&|m| m.set_scalar(x, F32, 0));
    assert_eq!(message, "`x` is a buffer of f32, the argument is a scalar of f32");
    let message = fails(&|m| set_int(m, n, i32::MAX));
    assert!(message.contains("the argument has 4 elements"), "{message}");
}

#[test]
fn two_ctas_store_to_one_address() {
    let mut s = Sample::new(3);
    let out = s.output("out", F32, &[2]);
    let cta = s.def(I32, &[], Op::CtaIndex(0));
    let two = s.int(2);
    let half = s.def(I32, &[], Op::Binary { op: BinaryOp::Rem, a: cta, b: two });
    let value = s.float(1.0);
    let access = s.access(out, vec![at(half)]);
    let line = s.store(value, access);
    let (kind, error) = s.error();
    assert_eq!((kind, error.span), (ErrorKind::StoreConflict, line));
    assert_eq!(error.message, "CTAs (0, 0, 0) and (2, 0, 0) store to one element of `out`");
    assert_eq!(error.detail.other, Some((line, "CTA (0, 0, 0) stores here".into())));
    assert_eq!(error.detail.coordinate, [0]);

    let mut s = Sample::new(1);
    let out = s.output("out", F32, &[2]);
    let zero = s.int(0);
    let twice = s.def(I32, &[2], Op::Splat { x: zero });
    let value = s.float(1.0);
    let value = s.def(F32, &[2], Op::Splat { x: value });
    let access = s.access(out, vec![AxisIndex::Gather(twice)]);
    s.store(value, access);
    assert_eq!(s.error().0, ErrorKind::StoreConflict);
}

#[test]
fn stores_to_read_only_buffers_and_runaway_loops() {
    let mut s = Sample::new(1);
    let x = s.input("x", F32, &[2]);
    let tile = s.load_whole(x);
    s.store_whole(tile, x);
    let (kind, error) = s.error();
    assert_eq!(kind, ErrorKind::ReadOnly);
    assert_eq!(error.message, "store to `x`, which is `input`");

    let mut s = Sample::new(1);
    let (zero, many) = (s.int(0), s.int(i64::from(i32::MAX)));
    let i = s.value(I32, &[]);
    let line = s.stmt(StmtKind::For {
        var: i,
        start: zero,
        end: many,
        step: 1,
        tickets: None,
        body: Vec::new(),
    });
    let (kernel, mut memory) = s.finish();
    let limited = Options { max_steps: 1000, ..OPTIONS };
    let error = run_kernel(&kernel, &mut memory, &limited).unwrap_err();
    assert_eq!((error.kind, error.span), (ErrorKind::StepLimit, line));
}

#[test]
fn missing_arguments_are_filled_by_the_recipe() {
    let mut s = Sample::new(1);
    let n = s.param("n", Access::Scalar, I32, &[]);
    let hi = ContractBound::Const(5);
    s.kernel.params[n].contract = Some(Contract { lo: 4, hi, distinct: None });
    let x = s.input("x", DType::Bf16, &[1, 8]);
    s.kernel.params[x].shape[0] = Extent::Scalar(n);
    let out = s.output("out", F32, &[2]);
    let (kernel, _) = s.finish();
    let mut memory = Memory::new(&kernel.params);
    memory.fill_missing(&kernel.params, 9).unwrap();
    let expected = Buffer::random(DType::Bf16, 32, 9, 1, None).unwrap();
    assert_eq!(memory.buffer(x), Some(&expected));
    assert_eq!(memory.buffer(out).unwrap().first_unwritten(), Some(0));
    assert!(run_kernel(&kernel, &mut memory, &OPTIONS).is_ok());
}

#[test]
fn threads_of_the_host_change_nothing() {
    let build = |bad: i64| {
        let mut s = Sample::new(200);
        let (x, out) = (s.input("x", F32, &[200]), s.output("out", F32, &[200]));
        let cta = s.def(I32, &[], Op::CtaIndex(0));
        let bad = s.int(bad);
        let ok = s.def(DType::Bool, &[], Op::Compare { op: CompareOp::Lt, a: cta, b: bad });
        s.stmt(StmtKind::Printf { format: "{}".into(), args: vec![cta] });
        s.stmt(StmtKind::Assert { cond: ok, message: "small".into() });
        let access = s.access(x, vec![at(cta)]);
        let value = s.load(F32, &[], access, None);
        let value = s.def(F32, &[], Op::Unary { op: UnaryOp::Exp2, x: value });
        let access = s.access(out, vec![at(cta)]);
        s.store(value, access);
        s.finish()
    };
    let run = |bad, parallel| {
        let (kernel, mut memory) = build(bad);
        let result = run_kernel(&kernel, &mut memory, &Options { parallel, ..OPTIONS });
        (result, memory)
    };
    assert_eq!(run(200, true), run(200, false));
    assert_eq!(run(77, true), run(77, false));
    assert_eq!(run(77, true).0.unwrap_err().detail.cta, Some([77, 0, 0]));
}

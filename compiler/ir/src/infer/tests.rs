//! Inference on kernels built by hand.

use kernel_abi::DType;

use super::distribute;
use crate::distribution::Distribution;
use crate::expand::sample::{self, Sample};
use crate::kernel::{AxisIndex, Kernel, Op, SlicePart, Spread, SpreadAxis};
use crate::ops::{BinaryOp, CompareOp, ReduceOp};

fn var<'k>(kernel: &'k Kernel, name: &str) -> &'k Distribution {
    &kernel.vars.iter().find(|v| v.name == name).unwrap().distribution
}

fn codes(kernel: Kernel) -> Vec<String> {
    let mut kernel = kernel;
    let findings = distribute(&mut kernel).unwrap_err();
    findings.iter().map(|d| d.code.name().to_owned()).collect()
}

#[test]
fn the_gemv_sketch_gets_sixteen_byte_vectors_and_few_sums() {
    let kernel = sample::gemv(64, 2048, 8, 512, 4);
    assert_eq!(var(&kernel, "w").to_string(), "[w2@2 r4, l32 w2, v8]");
    assert_eq!(var(&kernel, "xs").to_string(), "[l32 w2, v8]");
    assert_eq!(var(&kernel, "acc").to_string(), "[w2@2 r4, l32 w2]");
    assert_eq!(var(&kernel, "acc").registers(), 4);
    assert_eq!(var(&kernel, "xs").free_warps().len(), 1);
}

#[test]
fn fourteen_warps_hold_sixteen_elements_of_a_row_of_7168() {
    let kernel = sample::attn_res_norm(7168, 8, 14);
    let row = kernel.values.iter().find(|v| v.shape == [7168]).unwrap();
    assert_eq!(row.distribution.to_string(), "[v8 l32 w14 r2]");
    let blocks = kernel.values.iter().find(|v| v.shape == [8, 7168]).unwrap();
    assert_eq!(blocks.distribution.to_string(), "[r8, v8 l32 w14 r2]");
    let scores = kernel.values.iter().find(|v| v.shape == [8]).unwrap();
    assert_eq!(scores.distribution.to_string(), "[r8]");
}

#[test]
fn a_tile_against_itself_across_needs_a_second_load() {
    let build = |second: bool| {
        let mut s = Sample::new(8, 1);
        let ids = s.input("ids", DType::I32, &[128]);
        let out = s.output("out", DType::I32, &[128]);
        let e = s.load_all(ids);
        let er = if second { s.load_all(ids) } else { e };
        let (column, row) = (s.expand(e, &[true, false]), s.expand(er, &[false, true]));
        let same = s.compare(CompareOp::Eq, column, row);
        let same = s.convert(DType::I32, same);
        let count = s.reduce(ReduceOp::Add, same, 1);
        let index = s.whole(out);
        s.store(count, out, index);
        s.build()
    };
    assert_eq!(codes(build(false)), ["E0310"]);
    let mut kernel = build(true);
    distribute(&mut kernel).unwrap();
    let square = kernel.values.iter().find(|v| v.shape == [128, 128]).unwrap();
    assert_eq!(square.distribution.to_string(), "[w8 r16, v4 l32]");
}

#[test]
fn spread_binds_and_two_that_disagree_are_refused() {
    let axis = |axis, factor| vec![SpreadAxis { axis, factor }];
    let build = |second: Option<Spread>| {
        let mut s = Sample::new(4, 1);
        let x = s.input("x", DType::F32, &[16, 128]);
        let out = s.output("out", DType::F32, &[16, 128]);
        let (a, b) = (s.var("a", DType::F32, &[16, 128], 1), s.var("b", DType::F32, &[16, 128], 1));
        let span = Some(s.span());
        s.kernel.vars[a].spread =
            Some(Spread { warp: axis(0, None), lane: axis(1, None), vec: axis(1, None), span });
        s.kernel.vars[b].spread = second;
        let value = s.load_all(x);
        s.set(a, 0, value);
        let value = s.read(a, 0);
        let value = s.binary(BinaryOp::Add, value, value);
        s.set(b, 0, value);
        let value = s.read(b, 0);
        let index = s.whole(out);
        s.store(value, out, index);
        s.build()
    };
    let mut kernel = build(None);
    distribute(&mut kernel).unwrap();
    assert_eq!(var(&kernel, "b").to_string(), "[w4 r4, v4 l32]");
    let other = Spread { warp: axis(0, Some(2)), ..Spread::default() };
    assert_eq!(codes(build(Some(other))), ["E0310"]);
    let impossible = Spread { lane: axis(1, Some(3)), ..Spread::default() };
    assert_eq!(codes(build(Some(impossible))), ["E0310"]);
}

#[test]
fn a_large_load_in_small_pieces_is_refused() {
    let build = |relayout: bool| {
        let mut s = Sample::new(4, 1);
        let (a, b) = (s.input("a", DType::Bf16, &[64, 512]), s.input("b", DType::Bf16, &[512, 64]));
        let out = s.output("out", DType::F32, &[64, 512]);
        let left = s.load_all(a);
        let mut right = s.load_all(b);
        if relayout {
            right = s.def(DType::Bf16, &[512, 64], Op::Relayout { x: right });
        }
        let (left, right) = (s.convert(DType::F32, left), s.convert(DType::F32, right));
        let ones = s.float(1.0);
        let one = s.def(DType::F32, &[1], Op::Splat { x: ones });
        let one = s.expand(one, &[true, false]);
        let right = s.binary(BinaryOp::Mul, right, one);
        let spec = "m n, n m -> m n";
        let product = s.contract(spec, left, right, None);
        let index = s.whole(out);
        s.store(product, out, index);
        s.build()
    };
    assert_eq!(codes(build(false)), ["E0310"]);
    let mut kernel = build(true);
    distribute(&mut kernel).unwrap();
}

#[test]
fn a_tile_with_too_many_registers_is_named() {
    let mut s = Sample::new(1, 1);
    let out = s.output("out", DType::F32, &[1031, 64]);
    let zero = s.float(0.0);
    let tile = s.def(DType::F32, &[1031, 64], Op::Splat { x: zero });
    let index = s.whole(out);
    s.store(tile, out, index);
    assert_eq!(codes(s.build()), ["E0503"]);
}

#[test]
fn an_axis_that_is_cut_lies_in_registers() {
    let build = |spread: Option<Spread>| {
        let mut s = Sample::new(4, 1);
        let x = s.input("x", DType::F32, &[8, 128]);
        let out = s.output("out", DType::F32, &[3, 128]);
        let a = s.var("a", DType::F32, &[8, 128], 1);
        s.kernel.vars[a].spread = spread;
        let value = s.load_all(x);
        s.set(a, 0, value);
        let tile = s.read(a, 0);
        let parts =
            vec![SlicePart { start: 2, len: Some(3) }, SlicePart { start: 0, len: Some(128) }];
        let piece = s.def(DType::F32, &[3, 128], Op::Slice { x: tile, parts });
        let index = s.whole(out);
        s.store(piece, out, index);
        (s.build(), piece)
    };
    let (mut kernel, piece) = build(None);
    distribute(&mut kernel).unwrap();
    assert_eq!(kernel.values[piece].distribution.to_string(), "[r3, v4 l32]");
    assert_eq!(var(&kernel, "a").to_string(), "[r8, v4 l32]");
    let warps = vec![SpreadAxis { axis: 0, factor: None }];
    let (kernel, _) = build(Some(Spread { warp: warps, ..Spread::default() }));
    assert_eq!(codes(kernel), ["E0310"]);
}

#[test]
fn index_tiles_follow_the_rows_that_they_gather() {
    let mut s = Sample::new(4, 1);
    let table = s.input("table", DType::Bf16, &[1000, 256]);
    let ids = s.input("ids", DType::I32, &[8]);
    let out = s.output("out", DType::Bf16, &[8, 256]);
    let rows = s.load_all(ids);
    let zero = s.def(DType::Bf16, &[], Op::Const(crate::kernel::Literal::Float(0.0)));
    let index = vec![AxisIndex::Gather(rows), s.full(256)];
    let axes = s.axes(table);
    let tile = s.load_as(table, axes, index, Some(zero));
    let index = s.whole(out);
    s.store(tile, out, index);
    let kernel = s.finish();
    assert_eq!(kernel.values[tile].distribution.to_string(), "[w4 r2, v8 l32]");
    assert_eq!(kernel.values[rows].distribution.to_string(), "[w4 r2]");
}

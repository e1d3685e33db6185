//! Every operation, for every dtype that it takes, on every target.

use kernel_abi::{Access, DType};
use kernel_ir::device::{Arg, DeviceKernel, DeviceOp, FragId, Lanes, Map, Place, Special};
use kernel_ir::kernel::{CachePolicy, Evict, Literal, ParamId};
use kernel_ir::ops::{BinaryOp, CompareOp, ReduceOp, UnaryOp};
use kernel_ir::target::Target;

use crate::kernels::{KernelBuilder, build, lines, vector};

const DTYPES: [DType; 10] = [
    DType::F32,
    DType::F16,
    DType::Bf16,
    DType::I8,
    DType::U8,
    DType::I32,
    DType::U32,
    DType::I64,
    DType::U64,
    DType::Bool,
];

fn takes_unary(op: UnaryOp, dtype: DType) -> bool {
    match op {
        UnaryOp::Neg => dtype.is_float() || dtype.is_int(),
        UnaryOp::Not => !dtype.is_float(),
        UnaryOp::Abs => dtype != DType::Bool,
        UnaryOp::Exp
        | UnaryOp::Exp2
        | UnaryOp::Log2
        | UnaryOp::Tanh
        | UnaryOp::Sigmoid
        | UnaryOp::Rsqrt
        | UnaryOp::Sqrt
        | UnaryOp::ScaleUp => dtype.is_float(),
    }
}

fn takes_binary(op: BinaryOp, dtype: DType) -> bool {
    match op {
        BinaryOp::Add
        | BinaryOp::Sub
        | BinaryOp::Mul
        | BinaryOp::Div
        | BinaryOp::Min
        | BinaryOp::Max => dtype != DType::Bool,
        BinaryOp::Rem | BinaryOp::Shl | BinaryOp::Shr => dtype.is_int(),
        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => !dtype.is_float(),
    }
}

struct Sink {
    out: ParamId,
    at: FragId,
}

impl Sink {
    /// Makes a value observable: as f32, so that one buffer takes every dtype.
    fn keep(&self, k: &mut KernelBuilder, x: FragId) {
        let wide = k.convert(x, DType::F32);
        k.store(self.out, self.at, wide);
    }
}

fn with_sink(export: &str, target: Target) -> (KernelBuilder, Sink) {
    let mut k = KernelBuilder::new(export, target);
    let out = k.param("out", Access::Output, DType::F32);
    let at = k.thread(4);
    (k, Sink { out, at })
}

/// All element-wise operations on loaded values.
fn elementwise(target: Target, dtype: DType) -> DeviceKernel {
    let (mut k, sink) = with_sink("elementwise", target);
    let input = k.param("x", Access::Input, dtype);
    let a = k.load(input, sink.at, 2);
    let offset = k.int(4096);
    let b = k.load(input, offset, 2);
    for &op in UnaryOp::ALL.iter().filter(|op| takes_unary(**op, dtype)) {
        let x = k.unary(op, a);
        sink.keep(&mut k, x);
    }
    for &op in BinaryOp::ALL.iter().filter(|op| takes_binary(**op, dtype)) {
        let x = k.binary(op, a, b);
        sink.keep(&mut k, x);
    }
    for &op in CompareOp::ALL {
        let cond = k.compare(op, a, b);
        let dst = k.frag(dtype, 2);
        let reversed = Arg { frag: b, map: Map::Table(vec![1, 0]) };
        k.push(DeviceOp::Select { dst, cond: Arg::whole(cond), a: Arg::all(a, 1), b: reversed });
        sink.keep(&mut k, dst);
    }
    for to in DTYPES {
        let x = k.convert(a, to);
        sink.keep(&mut k, x);
    }
    let lane = k.special(Special::Lane);
    let lanes = [1, 2, 4, 8, 16, 21].map(Lanes::Xor);
    for lanes in lanes.into_iter().chain([Lanes::Register((lane, 0))]) {
        let dst = k.frag(dtype, 2);
        k.push(DeviceOp::Shuffle { dst, x: a, lanes });
        sink.keep(&mut k, dst);
    }
    for &op in ReduceOp::ALL.iter().filter(|op| op.is_free_of_order(dtype)) {
        let dst = k.frag(dtype, 2);
        k.push(DeviceOp::ReduceLanes { dst, x: a, op });
        sink.keep(&mut k, dst);
    }
    k.finish()
}

/// Loads and stores of every width, plain, predicated and with every cache policy, and shared memory.
fn memory(target: Target, dtype: DType) -> DeviceKernel {
    let mut k = KernelBuilder::new("memory", target);
    let x = k.param("x", Access::Static, dtype);
    let y = k.param("y", Access::Output, dtype);
    let bytes = dtype.bytes().expect("no packed type is among them");
    k.shared(4096);
    let at = k.thread(16);
    let lane = k.special(Special::Lane);
    let half = k.int(16);
    let active = k.compare(CompareOp::Lt, lane, half);
    let policies = [None, Some(Evict::First), Some(Evict::Last)];
    for len in [1, 2, 4, 8, 16].into_iter().filter(|len| len * bytes <= 16) {
        for evict in policies {
            for no_allocate in [false, true] {
                for predicate in [None, Some(active)] {
                    let cache = CachePolicy { evict, no_allocate };
                    let loaded = k.load_with(x, at, len, predicate, cache);
                    k.store_with(y, at, loaded, predicate, cache);
                }
            }
        }
        let shared = Place::Shared { base: 256, dtype };
        let loaded = k.load(x, at, len);
        for predicate in [None, Some(active)] {
            let vectors = vec![vector(0, len, Some(lane), 16, predicate)];
            let cache = CachePolicy::default();
            k.push(DeviceOp::Store {
                update: None,
                src: Arg::whole(loaded),
                place: shared.clone(),
                vectors: vectors.clone(),
                cache,
            });
            k.push(DeviceOp::Barrier);
            let dst = k.frag(dtype, len);
            let other = None;
            k.push(DeviceOp::Load { dst, place: shared.clone(), vectors, other, cache });
            k.store(y, at, dst);
        }
    }
    k.finish()
}

/// Everything else: constants, scalars, slots, loops, choices, waits, prefetches, assertions, printing.
fn control(target: Target) -> DeviceKernel {
    let (mut k, sink) = with_sink("control", target);
    k.launch().min_ctas = Some(2);
    let w = k.param("w", Access::Static, DType::Bf16);
    let scalars: Vec<ParamId> =
        DTYPES.iter().map(|d| k.param(d.name(), Access::Scalar, *d)).collect();
    for evict in [None, Some(Evict::First), Some(Evict::Last)] {
        let lane = k.special(Special::Lane);
        let zero = k.int(0);
        let first = k.compare(CompareOp::Eq, lane, zero);
        let vectors =
            vec![vector(0, 0, Some(lane), 64, None), vector(0, 0, Some(lane), 128, Some(first))];
        k.push(DeviceOp::Prefetch { place: Place::Global(w), vectors, bytes: None, evict });
    }
    k.push(DeviceOp::GridWait);
    k.push(DeviceOp::GridLaunch);
    for (scalar, dtype) in scalars.iter().zip(DTYPES) {
        let dst = k.frag(dtype, 1);
        k.push(DeviceOp::ScalarParam { dst, param: *scalar });
        sink.keep(&mut k, dst);
    }
    for axis in 0..3 {
        let cta = k.special(Special::CtaIndex(axis));
        sink.keep(&mut k, cta);
    }
    for value in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -0.0, 1.0e-45, 0.1] {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let x = k.constant(dtype, Literal::Float(value));
            sink.keep(&mut k, x);
        }
    }
    let wide = k.constant(DType::U64, Literal::Int(-1));
    let byte = k.constant(DType::U8, Literal::Int(255));
    let truth = k.constant(DType::Bool, Literal::Bool(true));
    let many = k.frag(DType::F32, 3);
    k.push(DeviceOp::Const { dst: many, values: [1.0, 2.0, 3.0].map(Literal::Float).to_vec() });
    let fma = k.frag(DType::F32, 3);
    let (a, b, c) = (Arg::whole(many), Arg::all(many, 2), Arg::whole(many));
    k.push(DeviceOp::Fma { dst: fma, a, b, c });
    let slot = k.slot(DType::F32, 3);
    k.push(DeviceOp::SetSlot { slot, x: Arg::whole(fma) });
    let (start, end) = (k.int(3), k.int(100));
    for step in [1, 7] {
        let var = k.frag(DType::I32, 1);
        let body = k.body(|k| {
            let read = k.frag(DType::F32, 3);
            k.push(DeviceOp::ReadSlot { dst: read, slot });
            let value = k.convert(var, DType::F32);
            let dst = k.frag(DType::F32, 3);
            k.push(DeviceOp::Copy { dst, x: Arg::all(value, 0) });
            let sum = k.binary(BinaryOp::Add, read, dst);
            let limit = k.int(50);
            let cond = k.compare(CompareOp::Lt, var, limit);
            let then_body = k.body(|k| {
                k.push(DeviceOp::SetSlot { slot, x: Arg::whole(sum) });
                k.push(DeviceOp::Barrier);
            });
            let else_body = k.body(|k| {
                k.push(DeviceOp::Printf { format: "late {}\n".to_owned(), args: vec![var] });
            });
            k.push(DeviceOp::If { cond, then_body, else_body });
        });
        k.push(DeviceOp::For { var, start, end, step, body });
    }
    let last = k.frag(DType::F32, 3);
    k.push(DeviceOp::ReadSlot { dst: last, slot });
    for i in 0..3 {
        let one = k.frag(DType::F32, 1);
        k.push(DeviceOp::Copy { dst: one, x: Arg::all(last, i) });
        k.store(sink.out, sink.at, one);
    }
    k.push(DeviceOp::Assert { cond: truth, message: "100% \"true\"".to_owned() });
    let flag = k.frag(DType::Bool, 1);
    k.push(DeviceOp::ScalarParam { dst: flag, param: scalars[9] });
    k.push(DeviceOp::Assert { cond: flag, message: "the flag is set".to_owned() });
    k.push(DeviceOp::Printf { format: "done\n".to_owned(), args: vec![] });
    let args = vec![start, many, wide, byte, flag];
    k.push(DeviceOp::Printf { format: "100% {} {} {} {} {}\n".to_owned(), args });
    k.finish()
}

#[test]
fn every_elementwise_operation_reaches_a_cubin() {
    for target in Target::ALL {
        for dtype in DTYPES {
            let compiled = build(&elementwise(target, dtype));
            assert!(compiled.ptx.contains(&format!(".target {target}")), "{}", compiled.ptx);
        }
    }
}

#[test]
fn every_memory_operation_reaches_a_cubin() {
    for target in Target::ALL {
        for dtype in DTYPES {
            build(&memory(target, dtype));
        }
    }
}

#[test]
fn every_other_operation_reaches_a_cubin() {
    for target in Target::ALL {
        let compiled = build(&control(target));
        let version = target.info().ptx_version;
        let stated = format!(".version {}.{}", version / 10, version % 10);
        assert!(compiled.ptx.contains(&stated), "{}", compiled.ptx);
        assert!(compiled.ptx.contains(".minnctapersm 2"), "{}", compiled.ptx);
    }
}

#[test]
fn a_vector_is_one_memory_instruction() {
    for (dtype, len) in
        [(DType::Bf16, 8), (DType::F16, 8), (DType::F32, 4), (DType::U8, 16), (DType::Bool, 16)]
    {
        let mut k = KernelBuilder::new("copy", Target::Sm90a);
        let x = k.param("x", Access::Input, dtype);
        let y = k.param("y", Access::Output, dtype);
        let at = k.thread(16);
        let loaded = k.load(x, at, len);
        k.store(y, at, loaded);
        let compiled = build(&k.finish());
        let count =
            |verb: &str| lines(&compiled.ptx).iter().filter(|line| line.starts_with(verb)).count();
        assert_eq!((count("ld.global"), count("st.global")), (1, 1), "{dtype}: {}", compiled.ptx);
        assert!(compiled.ptx.contains("ld.global.v4.b32"), "{dtype}: {}", compiled.ptx);
        assert!(compiled.ptx.contains("st.global.v4.b32"), "{dtype}: {}", compiled.ptx);
    }
}

#[test]
fn weights_widen_in_one_instruction_each() {
    let mut k = KernelBuilder::new("widen", Target::Sm90a);
    let x = k.param("x", Access::Static, DType::Bf16);
    let y = k.param("y", Access::Output, DType::F32);
    let at = k.thread(8);
    let loaded = k.load(x, at, 8);
    let wide = k.convert(loaded, DType::F32);
    let vectors = vec![vector(0, 4, Some(at), 0, None), vector(4, 4, Some(at), 4, None)];
    let src = Arg::whole(wide);
    k.push(DeviceOp::Store {
        update: None,
        src,
        place: Place::Global(y),
        vectors,
        cache: CachePolicy::default(),
    });
    let compiled = build(&k.finish());
    let code = crate::kernels::sass(&compiled);
    let widening = code
        .iter()
        .filter(|i| ["PRMT", "IMAD.U32", "LOP3", "SHL", "SHF"].iter().any(|op| i.text.contains(op)))
        .count();
    assert!(widening <= 8 + 3, "{code:#?}");
}

//! Every operation and every error at device level.

use kernel_abi::{Access, DType};
use kernel_ir::device::{
    Arg, DeviceKernel, DeviceOp, DeviceStmt, Frag, FragId, Lanes, LocId, Map, OpLoc, OpRole, Place,
    Slot, SlotId, Special, Vector,
};
use kernel_ir::kernel::{CachePolicy, Literal, ParamId};
use kernel_ir::ops::{BinaryOp, CompareOp, ReduceOp, UnaryOp};

use crate::sample::{OPTIONS, Sample, span};
use crate::{EmuError, ErrorKind, Memory, Options, Trace, run_device};

const F32: DType = DType::F32;
const I32: DType = DType::I32;
const BOOL: DType = DType::Bool;

/// Builds a device kernel; statement `n`, counted from 1, has the span of that number.
struct Device {
    kernel: DeviceKernel,
    memory: Memory,
    blocks: Vec<Vec<DeviceStmt>>,
}

impl Device {
    fn new(sample: Sample, warps: u32, shared_bytes: u32) -> Device {
        let (tile, memory) = sample.finish();
        let mut launch = tile.launch;
        launch.warps = warps;
        let kernel = DeviceKernel {
            name: tile.name,
            export: tile.export,
            target: tile.target,
            launch,
            params: tile.params,
            frags: Default::default(),
            slots: Default::default(),
            roles: Default::default(),
            barriers: Default::default(),
            maps: Default::default(),
            events: Vec::new(),
            body: Vec::new(),
            shared_bytes,
            locs: Default::default(),
        };
        Device { kernel, memory, blocks: vec![Vec::new()] }
    }

    fn push(&mut self, op: DeviceOp) -> LocId {
        let number = self.kernel.locs.len() as u32 + 1;
        let loc = self.kernel.locs.push(OpLoc { span: span(number), role: OpRole::Compute });
        self.blocks.last_mut().unwrap().push(DeviceStmt { op, loc });
        loc
    }

    fn frag(&mut self, dtype: DType, len: u32) -> FragId {
        self.kernel.frags.push(Frag { dtype, len })
    }

    fn slot(&mut self, dtype: DType, len: u32) -> SlotId {
        self.kernel.slots.push(Slot { name: "acc".into(), dtype, len })
    }

    fn def(&mut self, dtype: DType, len: u32, op: impl FnOnce(FragId) -> DeviceOp) -> FragId {
        let dst = self.frag(dtype, len);
        self.push(op(dst));
        dst
    }

    fn int(&mut self, value: i64) -> FragId {
        let values = vec![Literal::Int(value)];
        self.def(I32, 1, |dst| DeviceOp::Const { dst, values })
    }

    fn special(&mut self, which: Special) -> FragId {
        self.def(I32, 1, |dst| DeviceOp::Special { dst, which })
    }

    fn binary(&mut self, op: BinaryOp, a: FragId, b: FragId) -> FragId {
        let Frag { dtype, len } = self.kernel.frags[a];
        let (a, b) = (Arg::whole(a), Arg::whole(b));
        self.def(dtype, len, |dst| DeviceOp::Binary { dst, op, a, b })
    }

    fn compare(&mut self, op: CompareOp, a: FragId, b: FragId) -> FragId {
        let len = self.kernel.frags[a].len;
        let (a, b) = (Arg::whole(a), Arg::whole(b));
        self.def(BOOL, len, |dst| DeviceOp::Compare { dst, op, a, b })
    }

    /// The number of the thread in the CTA.
    fn thread(&mut self) -> FragId {
        let (lane, warp, lanes) =
            (self.special(Special::Lane), self.special(Special::Warp), self.int(32));
        let base = self.binary(BinaryOp::Mul, warp, lanes);
        self.binary(BinaryOp::Add, base, lane)
    }

    fn load(&mut self, dtype: DType, len: u32, place: Place, vectors: Vec<Vector>) -> FragId {
        let cache = CachePolicy::default();
        self.def(dtype, len, |dst| DeviceOp::Load { dst, place, vectors, other: None, cache })
    }

    fn store(&mut self, src: FragId, place: Place, vectors: Vec<Vector>) -> LocId {
        let (src, cache) = (Arg::whole(src), CachePolicy::default());
        self.push(DeviceOp::Store { src, place, vectors, update: None, cache })
    }

    fn open(&mut self) {
        self.blocks.push(Vec::new());
    }

    fn close(&mut self) -> Vec<DeviceStmt> {
        self.blocks.pop().unwrap()
    }

    fn run_with(mut self, options: &Options) -> (Result<Trace, EmuError>, Vec<f64>) {
        self.kernel.body = self.close();
        let result = run_device(&self.kernel, &mut self.memory, options);
        let last = self.kernel.params.ids().last().unwrap();
        (result, self.memory.buffer(last).unwrap().to_f64())
    }

    fn values(self) -> Vec<f64> {
        let (result, values) = self.run_with(&OPTIONS);
        result.unwrap();
        values
    }

    fn error(self) -> EmuError {
        self.run_with(&OPTIONS).0.unwrap_err()
    }
}

fn vector(first: u32, len: u32, offset: FragId) -> Vector {
    Vector { first, len, offset: Some((offset, 0)), constant: 0, predicate: None }
}

fn shared(dtype: DType) -> Place {
    Place::Shared { base: 0, dtype }
}

/// A device kernel with input `x` of `x_len` and output `out` of `out_len` elements of f32.
fn device(x_len: u32, out_len: u32, warps: u32, shared_bytes: u32) -> (Device, ParamId, ParamId) {
    let mut s = Sample::new(1);
    let (x, out) = (s.input("x", F32, &[x_len]), s.output("out", F32, &[out_len]));
    (Device::new(s, warps, shared_bytes), x, out)
}

#[test]
fn vectors_maps_and_arithmetic() {
    let (mut d, x, out) = device(128, 128, 1, 0);
    let (lane, four) = (d.special(Special::Lane), d.int(4));
    let at = d.binary(BinaryOp::Mul, lane, four);
    let v = d.load(F32, 4, Place::Global(x), vec![vector(0, 4, at)]);
    let reversed = Arg { frag: v, map: Map::Table(vec![3, 2, 1, 0]) };
    let all = Arg::all(v, 1);
    let sum = d.def(F32, 4, |dst| DeviceOp::Fma { dst, a: reversed, b: all, c: Arg::whole(v) });
    let negative =
        d.def(F32, 4, |dst| DeviceOp::Unary { dst, op: UnaryOp::Neg, x: Arg::whole(sum) });
    let half = d.def(DType::Bf16, 4, |dst| DeviceOp::Convert { dst, x: Arg::whole(negative) });
    let back = d.def(F32, 4, |dst| DeviceOp::Convert { dst, x: Arg::whole(half) });
    let greater = d.compare(CompareOp::Gt, back, v);
    let (cond, a, b) = (Arg::whole(greater), Arg::whole(v), Arg::whole(back));
    let chosen = d.def(F32, 4, |dst| DeviceOp::Select { dst, cond, a, b });
    let pair = d.def(F32, 2, |dst| DeviceOp::Copy { dst, x: Arg::all(chosen, 3) });
    d.store(chosen, Place::Global(out), vec![Vector { first: 0, ..vector(0, 2, at) }]);
    d.store(pair, Place::Global(out), vec![Vector { constant: 2, ..vector(0, 2, at) }]);
    let values = d.values();
    for lane in 0..32 {
        let x = |i: usize| (4 * lane + i) as f32;
        for i in 0..4 {
            let j = if i < 2 { i } else { 3 };
            let exact = -(x(3 - j) * x(1) + x(j));
            let rounded =
                kernel_abi::numeric::bf16::to_f32(kernel_abi::numeric::bf16::from_f32(exact));
            assert_eq!(values[4 * lane + i], f64::from(rounded.max(x(j)).min(rounded)));
        }
    }
}

#[test]
fn shuffles_and_shared_memory() {
    let (mut d, x, out) = device(64, 64, 2, 256);
    let thread = d.thread();
    let v = d.load(F32, 1, Place::Global(x), vec![vector(0, 1, thread)]);
    let other = d.def(F32, 1, |dst| DeviceOp::Shuffle { dst, x: v, lanes: Lanes::Xor(16) });
    let sum = d.binary(BinaryOp::Add, v, other);
    d.store(sum, shared(F32), vec![vector(0, 1, thread)]);
    d.push(DeviceOp::Barrier);
    let last = d.int(63);
    let mirror = d.binary(BinaryOp::Sub, last, thread);
    let read = d.load(F32, 1, shared(F32), vec![vector(0, 1, mirror)]);
    d.store(read, Place::Global(out), vec![vector(0, 1, thread)]);
    let values = d.values();
    for (t, value) in values.into_iter().enumerate() {
        let u = 63 - t;
        assert_eq!(value, (u + (u ^ 16)) as f64);
    }
}

#[test]
fn lanes_of_each_warp_are_reduced() {
    for (op, of) in [
        (ReduceOp::Max, (|warp| warp * 32 + 31) as fn(usize) -> usize),
        (ReduceOp::Min, |warp| warp * 32),
        (ReduceOp::Add, |warp| (0..32).map(|lane| warp * 32 + lane).sum()),
    ] {
        let (mut d, _, out) = device(64, 64, 2, 0);
        let thread = d.thread();
        let folded = d.def(I32, 1, |dst| DeviceOp::ReduceLanes { dst, x: thread, op });
        let value = d.def(F32, 1, |dst| DeviceOp::Convert { dst, x: Arg::whole(folded) });
        d.store(value, Place::Global(out), vec![vector(0, 1, thread)]);
        let values = d.values();
        assert!((0..64).all(|t| values[t] == of(t / 32) as f64), "{op:?}: {values:?}");
    }
}

#[test]
fn a_missing_barrier_is_a_race() {
    let run = |order: u32| {
        let (mut d, _, out) = device(1, 32, 1, 256);
        let thread = d.thread();
        let one = d.int(1);
        let neighbour = d.binary(BinaryOp::Xor, thread, one);
        d.store(thread, shared(I32), vec![vector(0, 1, thread)]);
        if order != 0 {
            d.push(DeviceOp::Barrier);
        }
        let read = d.load(I32, 1, shared(I32), vec![vector(0, 1, neighbour)]);
        if order == 2 {
            d.store(thread, shared(I32), vec![vector(0, 1, thread)]);
        }
        let read = d.def(F32, 1, |dst| DeviceOp::Convert { dst, x: Arg::whole(read) });
        d.store(read, Place::Global(out), vec![vector(0, 1, thread)]);
        d.run_with(&OPTIONS).0
    };
    assert!(run(1).is_ok());
    let error = run(0).unwrap_err();
    assert_eq!((error.kind, error.detail.thread), (ErrorKind::SharedRace, Some(0)));
    // Five statements make the number of the thread, then 1, xor, store, load.
    assert_eq!(error.span, span(9));
    assert_eq!(error.detail.other, Some((span(8), "thread 1 touches it here".into())));
    let error = run(2).unwrap_err();
    assert_eq!(error.kind, ErrorKind::SharedRace);
    assert_eq!(error.detail.other.unwrap().1, "thread 1 touches it here");
}

#[test]
fn shared_memory_that_nothing_wrote_and_its_end() {
    let (mut d, ..) = device(1, 1, 1, 8);
    let zero = d.int(0);
    d.load(F32, 1, shared(F32), vec![vector(0, 1, zero)]);
    assert_eq!(d.error().message, "read of byte 0 of shared memory, which nothing wrote");
    let (mut d, ..) = device(1, 1, 1, 8);
    let lane = d.special(Special::Lane);
    d.store(lane, shared(I32), vec![vector(0, 1, lane)]);
    let error = d.error();
    assert_eq!((error.kind, error.detail.thread), (ErrorKind::OutOfBounds, Some(2)));
}

#[test]
fn masked_stores_and_predicates() {
    let (mut d, _, out) = device(1, 32, 1, 0);
    let thread = d.thread();
    let (three, ten) = (d.int(3), d.int(10));
    let few = d.compare(CompareOp::Lt, thread, three);
    let many = d.compare(CompareOp::Lt, thread, ten);
    let slot = d.slot(I32, 1);
    d.push(DeviceOp::SetSlot { slot, x: Arg::whole(ten) });
    d.open();
    d.push(DeviceOp::SetSlot { slot, x: Arg::whole(thread) });
    let then_body = d.close();
    d.push(DeviceOp::If { cond: few, then_body, else_body: Vec::new() });
    let value = d.def(I32, 1, |dst| DeviceOp::ReadSlot { dst, slot });
    let value = d.def(F32, 1, |dst| DeviceOp::Convert { dst, x: Arg::whole(value) });
    d.open();
    // No thread divides by zero: thread 0 is masked off in the arm.
    let zero = d.int(0);
    let positive = d.compare(CompareOp::Gt, thread, zero);
    d.open();
    d.binary(BinaryOp::Div, ten, thread);
    let inner = d.close();
    d.push(DeviceOp::If { cond: positive, then_body: inner, else_body: Vec::new() });
    let guarded = Vector { predicate: Some((many, 0)), ..vector(0, 1, thread) };
    d.store(value, Place::Global(out), vec![guarded]);
    let all = d.close();
    let yes = d.compare(CompareOp::Eq, ten, ten);
    d.push(DeviceOp::If { cond: yes, then_body: all, else_body: Vec::new() });
    let values = d.values();
    assert_eq!(values[..10], [0.0, 1.0, 2.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0]);
    assert!(values[10..].iter().all(|v| v.is_nan()));
}

#[test]
fn absent_elements_take_the_other_value_or_none() {
    let run = |with_other: bool, used: bool| {
        let (mut d, x, out) = device(16, 32, 1, 0);
        let thread = d.thread();
        let end = d.int(16);
        let inside = d.compare(CompareOp::Lt, thread, end);
        let values = vec![Literal::Float(-1.0)];
        let other = d.def(F32, 1, |dst| DeviceOp::Const { dst, values });
        let vectors = vec![Vector { predicate: Some((inside, 0)), ..vector(0, 1, thread) }];
        let (place, cache) = (Place::Global(x), CachePolicy::default());
        let other = with_other.then_some(other);
        let v = d.def(F32, 1, |dst| DeviceOp::Load { dst, place, vectors, other, cache });
        let predicate = (!used).then_some((inside, 0));
        let vectors = vec![Vector { predicate, ..vector(0, 1, thread) }];
        d.store(v, Place::Global(out), vectors);
        d.run_with(&OPTIONS)
    };
    let (result, values) = run(true, true);
    result.unwrap();
    assert_eq!((values[15], values[16]), (15.0, -1.0));
    assert!(run(false, false).0.is_ok());
    let error = run(false, true).0.unwrap_err();
    assert_eq!((error.kind, error.detail.thread), (ErrorKind::Poison, Some(16)));
}

#[test]
fn barriers_shuffles_and_loops_must_be_uniform() {
    let run = |which: u32| {
        let (mut d, ..) = device(1, 1, 1, 0);
        let thread = d.thread();
        let three = d.int(3);
        let few = d.compare(CompareOp::Lt, thread, three);
        if which == 2 {
            let (var, zero) = (d.frag(I32, 1), d.int(0));
            d.push(DeviceOp::For { var, start: zero, end: thread, step: 1, body: Vec::new() });
        }
        d.open();
        match which {
            0 => {
                d.push(DeviceOp::Barrier);
            }
            1 => {
                d.def(I32, 1, |dst| DeviceOp::Shuffle { dst, x: thread, lanes: Lanes::Xor(2) });
            }
            _ => {
                d.push(DeviceOp::GridWait);
            }
        }
        let then_body = d.close();
        d.push(DeviceOp::If { cond: few, then_body, else_body: Vec::new() });
        d.error()
    };
    assert_eq!(run(0).message, "a barrier that not all threads reach alike");
    assert_eq!(run(1).message, "a shuffle that not all threads reach alike");
    assert_eq!(run(2).message, "a loop bound that not all threads reach alike");
    assert_eq!(run(3).message, "`grid_wait` that not all threads reach alike");
    assert_eq!(run(0).kind, ErrorKind::NotUniform);
}

#[test]
fn alignment_bounds_and_replicas() {
    let error = |change: &dyn Fn(&mut Vector)| {
        let (mut d, x, _) = device(16, 1, 1, 0);
        let zero = d.int(0);
        let mut v = vector(0, 4, zero);
        change(&mut v);
        d.load(F32, v.len, Place::Global(x), vec![v]);
        d.run_with(&OPTIONS).0.err().map(|e| e.kind)
    };
    assert_eq!(error(&|_| {}), None);
    assert_eq!(error(&|v| v.constant = 8), None);
    assert_eq!(error(&|v| v.constant = 2), Some(ErrorKind::Misaligned));
    assert_eq!(error(&|v| v.len = 8), Some(ErrorKind::Misaligned));
    assert_eq!(error(&|v| v.constant = 16), Some(ErrorKind::OutOfBounds));
    assert_eq!(error(&|v| v.constant = -4), Some(ErrorKind::OutOfBounds));

    let (mut d, _, out) = device(1, 4, 1, 0);
    let (zero, values) = (d.int(0), vec![Literal::Float(1.0)]);
    let one = d.def(F32, 1, |dst| DeviceOp::Const { dst, values });
    d.store(one, Place::Global(out), vec![vector(0, 1, zero)]);
    assert_eq!(d.error().kind, ErrorKind::StoreConflict);
}

#[test]
fn errors_of_the_author_are_found_here_too() {
    let (mut d, x, _) = device(4, 1, 1, 0);
    d.kernel.launch.pdl = kernel_ir::kernel::Pdl::Consumer;
    let zero = d.int(0);
    d.load(F32, 1, Place::Global(x), vec![vector(0, 1, zero)]);
    assert_eq!(d.error().kind, ErrorKind::Poison);

    let (mut d, ..) = device(1, 1, 1, 0);
    let (lane, one) = (d.special(Special::Lane), d.int(1));
    d.binary(BinaryOp::Div, one, lane);
    let error = d.error();
    assert_eq!((error.kind, error.detail.thread), (ErrorKind::DivisionByZero, Some(0)));

    let (mut d, ..) = device(1, 1, 1, 0);
    let (one, two) = (d.int(1), d.int(2));
    let no = d.compare(CompareOp::Gt, one, two);
    d.push(DeviceOp::Assert { cond: no, message: "n".into() });
    assert_eq!(d.error().message, "assertion failed: n");

    let (mut d, ..) = device(1, 1, 1, 0);
    let slot = d.slot(I32, 1);
    d.def(I32, 1, |dst| DeviceOp::ReadSlot { dst, slot });
    assert_eq!(d.error().message, "read of `acc`, which nothing has assigned");

    let (mut d, x, _) = device(1, 1, 1, 0);
    let zero = d.int(0);
    d.store(zero, Place::Global(x), vec![vector(0, 1, zero)]);
    assert_eq!(d.error().kind, ErrorKind::ReadOnly);

    let (mut d, x, _) = device(4, 1, 1, 0);
    let four = d.int(4);
    let vectors = vec![vector(0, 1, four)];
    d.push(DeviceOp::Prefetch { place: Place::Global(x), vectors, bytes: None, evict: None });
    assert_eq!(d.error().kind, ErrorKind::OutOfBounds);
}

#[test]
fn loops_printf_scalars_and_the_step_limit() {
    let build = || {
        let mut s = Sample::new(1);
        let n = s.param("n", Access::Scalar, I32, &[]);
        s.output("out", F32, &[1]);
        let mut d = Device::new(s, 1, 0);
        let (zero, end) = (d.int(0), d.def(I32, 1, |dst| DeviceOp::ScalarParam { dst, param: n }));
        let slot = d.slot(I32, 1);
        d.push(DeviceOp::SetSlot { slot, x: Arg::whole(zero) });
        let i = d.frag(I32, 1);
        d.open();
        let last = d.def(I32, 1, |dst| DeviceOp::ReadSlot { dst, slot });
        let sum = d.binary(BinaryOp::Add, last, i);
        d.push(DeviceOp::SetSlot { slot, x: Arg::whole(sum) });
        let body = d.close();
        d.push(DeviceOp::For { var: i, start: zero, end, step: 2, body });
        let total = d.def(I32, 1, |dst| DeviceOp::ReadSlot { dst, slot });
        d.push(DeviceOp::Printf { format: "total {}".into(), args: vec![total] });
        d
    };
    // n is 3.
    let trace = build().run_with(&OPTIONS).0.unwrap();
    assert_eq!(trace.printed[0].text, "total 2");
    let limited = Options { max_steps: 8, ..OPTIONS };
    assert_eq!(build().run_with(&limited).0.unwrap_err().kind, ErrorKind::StepLimit);
}

//! A small device machine for the tests: all threads in step, with a check that shared memory is ordered by
//! barriers. It knows the types and operations that the tests use.

use std::collections::BTreeMap;

use kernel_abi::DType;

use crate::device::{
    Arg, DeviceKernel, DeviceOp, DeviceStmt, FragId, Lanes, Place, SlotId, Special, Vector,
};
use crate::distribution::LANES;
use crate::index::Id;
use crate::kernel::Literal;
use crate::kernel::ParamId;
use crate::ops::{BinaryOp, CompareOp, UnaryOp};

/// A value: integers and truth values as they are, floats as the bits of an f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Word {
    Int(i64),
    Float(f32),
}

impl Word {
    pub(super) fn int(self) -> i64 {
        match self {
            Word::Int(x) => x,
            Word::Float(x) => panic!("{x} is no integer"),
        }
    }

    pub(super) fn float(self) -> f32 {
        match self {
            Word::Float(x) => x,
            Word::Int(x) => panic!("{x} is no float"),
        }
    }
}

/// Who touched an element of shared memory since the last barrier.
#[derive(Clone, Debug, Default)]
struct Touched {
    writer: Option<usize>,
    readers: Vec<usize>,
}

/// One CTA.
pub(super) struct Machine<'a> {
    device: &'a DeviceKernel,
    pub(super) cta: i64,
    pub(super) buffers: Vec<Vec<Word>>,
    pub(super) scalars: BTreeMap<ParamId, Word>,
    /// How often each element of each buffer was stored.
    pub(super) stores: Vec<Vec<u32>>,
    /// Bytes of each buffer that prefetches named.
    pub(super) prefetched: Vec<(ParamId, i64)>,
    pub(super) barriers: usize,
    frags: Vec<Vec<Vec<Word>>>,
    slots: BTreeMap<(SlotId, usize), Vec<Word>>,
    shared: BTreeMap<u32, Word>,
    touched: BTreeMap<u32, Touched>,
}

fn wrap(value: i64, dtype: DType) -> Word {
    match dtype {
        DType::I32 => Word::Int(i64::from(value as i32)),
        DType::Bool => Word::Int(value & 1),
        _ => Word::Int(value),
    }
}

impl<'a> Machine<'a> {
    pub(super) fn new(device: &'a DeviceKernel, buffers: Vec<Vec<Word>>) -> Machine<'a> {
        let threads = device.launch.threads() as usize;
        Machine {
            device,
            cta: 0,
            stores: buffers.iter().map(|b| vec![0; b.len()]).collect(),
            buffers,
            scalars: BTreeMap::new(),
            prefetched: Vec::new(),
            barriers: 0,
            frags: vec![vec![Vec::new(); threads]; device.frags.len()],
            slots: BTreeMap::new(),
            shared: BTreeMap::new(),
            touched: BTreeMap::new(),
        }
    }

    pub(super) fn run(&mut self) {
        let device = self.device;
        self.block(&device.body);
    }

    fn threads(&self) -> usize {
        self.device.launch.threads() as usize
    }

    fn arg(&self, arg: &Arg, thread: usize, i: u32) -> Word {
        self.frags[arg.frag.index()][thread][arg.element(i) as usize]
    }

    fn uniform(&self, frag: FragId) -> Word {
        let first = self.frags[frag.index()][0][0];
        for thread in 0..self.threads() {
            assert_eq!(self.frags[frag.index()][thread][0], first, "{frag} is not uniform");
        }
        first
    }

    fn each(&mut self, dst: FragId, value: impl Fn(&Self, usize, u32) -> Word) {
        let len = self.device.frags[dst].len;
        for thread in 0..self.threads() {
            let values = (0..len).map(|i| value(self, thread, i)).collect();
            self.frags[dst.index()][thread] = values;
        }
    }

    fn block(&mut self, stmts: &'a [DeviceStmt]) {
        for stmt in stmts {
            self.statement(&stmt.op);
        }
    }

    fn statement(&mut self, op: &'a DeviceOp) {
        let device = self.device;
        let dtype = |frag: FragId| device.frags[frag].dtype;
        match op {
            DeviceOp::Const { dst, values } => self.each(*dst, |_, _, i| {
                let value = if values.len() == 1 { values[0] } else { values[i as usize] };
                match value {
                    Literal::Float(x) => Word::Float(x as f32),
                    Literal::Int(x) => Word::Int(x),
                    Literal::Bool(x) => Word::Int(i64::from(x)),
                }
            }),
            DeviceOp::Special { dst, which } => self.each(*dst, |m, thread, _| {
                Word::Int(match which {
                    Special::CtaIndex(0) => m.cta,
                    Special::CtaIndex(_) | Special::ClusterIndex(_) => 0,
                    Special::Lane => (thread % LANES as usize) as i64,
                    Special::Warp => (thread / LANES as usize) as i64,
                    Special::WarpFrom(_) | Special::WarpModulo(_) => panic!("there are no roles"),
                })
            }),
            DeviceOp::ScalarParam { dst, param } => self.each(*dst, |m, _, _| m.scalars[param]),
            DeviceOp::Unary { dst, op, x } => self.each(*dst, |m, t, i| match op {
                UnaryOp::Neg => Word::Float(-m.arg(x, t, i).float()),
                UnaryOp::Exp => Word::Float(m.arg(x, t, i).float().exp()),
                UnaryOp::Rsqrt => Word::Float(1.0 / m.arg(x, t, i).float().sqrt()),
                op => panic!("{op:?}"),
            }),
            DeviceOp::Binary { dst, op, a, b } => {
                self.each(*dst, |m, t, i| match (m.arg(a, t, i), m.arg(b, t, i)) {
                    (Word::Int(a), Word::Int(b)) => wrap(int_binary(*op, a, b), dtype(*dst)),
                    (a, b) => Word::Float(float_binary(*op, a.float(), b.float())),
                })
            }
            DeviceOp::Compare { dst, op, a, b } => self.each(*dst, |m, t, i| {
                let order = match (m.arg(a, t, i), m.arg(b, t, i)) {
                    (Word::Int(a), Word::Int(b)) => Some(a.cmp(&b)),
                    (a, b) => a.float().partial_cmp(&b.float()),
                };
                Word::Int(i64::from(match op {
                    CompareOp::Eq => order.is_some_and(|o| o.is_eq()),
                    CompareOp::Ne => order.is_none_or(|o| o.is_ne()),
                    CompareOp::Lt => order.is_some_and(|o| o.is_lt()),
                    CompareOp::Le => order.is_some_and(|o| o.is_le()),
                    CompareOp::Gt => order.is_some_and(|o| o.is_gt()),
                    CompareOp::Ge => order.is_some_and(|o| o.is_ge()),
                }))
            }),
            DeviceOp::Select { dst, cond, a, b } => self.each(*dst, |m, t, i| {
                if m.arg(cond, t, i).int() == 1 { m.arg(a, t, i) } else { m.arg(b, t, i) }
            }),
            DeviceOp::Fma { dst, a, b, c } => self.each(*dst, |m, t, i| {
                let (a, b) = (m.arg(a, t, i).float(), m.arg(b, t, i).float());
                Word::Float(a.mul_add(b, m.arg(c, t, i).float()))
            }),
            DeviceOp::Inline { dst, equals, .. } => self.each(*dst, |m, t, i| m.arg(equals, t, i)),
            DeviceOp::Convert { dst, x } => self.each(*dst, |m, t, i| match m.arg(x, t, i) {
                Word::Int(x) if dtype(*dst).is_float() => Word::Float(x as f32),
                Word::Int(x) => wrap(x, dtype(*dst)),
                Word::Float(x) => Word::Float(x),
            }),
            DeviceOp::Copy { dst, x } => self.each(*dst, |m, t, i| m.arg(x, t, i)),
            DeviceOp::Join { dst, from } => self.each(*dst, |m, t, i| {
                let (frag, element) = from[i as usize];
                m.frags[frag.index()][t][element as usize]
            }),
            DeviceOp::ReduceLanes { dst, x, op } => self.each(*dst, |m, t, i| {
                let all =
                    (t / 32 * 32..t / 32 * 32 + 32).map(|t| m.frags[x.index()][t][i as usize]);
                let op = op.binary();
                all.reduce(|a, b| match (a, b) {
                    (Word::Int(a), Word::Int(b)) => wrap(int_binary(op, a, b), dtype(*dst)),
                    (a, b) => Word::Float(float_binary(op, a.float(), b.float())),
                })
                .unwrap()
            }),
            DeviceOp::Shuffle { dst, x, lanes } => self.each(*dst, |m, t, i| {
                let lane = match *lanes {
                    Lanes::Xor(xor) => t ^ xor as usize,
                    Lanes::Register((frag, element)) => {
                        let Word::Int(lane) = m.frags[frag.index()][t][element as usize] else {
                            panic!("a lane number is an integer")
                        };
                        t / 32 * 32 + lane as usize
                    }
                };
                m.frags[x.index()][lane][i as usize]
            }),
            DeviceOp::Load { dst, place, vectors, other, cache: _ } => {
                self.load(*dst, place, vectors, *other);
            }
            DeviceOp::Store { src, place, vectors, update: _, cache: _ } => {
                self.store(src, place, vectors)
            }
            DeviceOp::Prefetch { place, vectors, bytes: _, evict: _ } => {
                let Place::Global(param) = place else { panic!("{place:?}") };
                for thread in 0..self.threads() {
                    for vector in vectors {
                        if let Some(at) = self.address(vector, thread) {
                            self.prefetched.push((*param, at));
                        }
                    }
                }
            }
            DeviceOp::ReadSlot { dst, slot } => {
                for thread in 0..self.threads() {
                    self.frags[dst.index()][thread] = self.slots[&(*slot, thread)].clone();
                }
            }
            DeviceOp::SetSlot { slot, x } => {
                for thread in 0..self.threads() {
                    let values =
                        (0..device.slots[*slot].len).map(|i| self.arg(x, thread, i)).collect();
                    self.slots.insert((*slot, thread), values);
                }
            }
            DeviceOp::Barrier => {
                self.barriers += 1;
                self.touched.clear();
            }
            DeviceOp::Fence
            | DeviceOp::GridWait
            | DeviceOp::GridLaunch
            | DeviceOp::Trace { .. }
            | DeviceOp::Printf { .. } => {}
            DeviceOp::CopyAsync { .. }
            | DeviceOp::LoadMatrices { .. }
            | DeviceOp::StoreMatrices { .. }
            | DeviceOp::CommitGroup
            | DeviceOp::WaitGroup { .. }
            | DeviceOp::Mma { .. } => panic!("the kernels of these tests have none"),
            DeviceOp::Role { .. } | DeviceOp::RoleBarrier { .. } | DeviceOp::Pipe(_) => {
                panic!("there are no roles")
            }
            DeviceOp::Atomic { .. }
            | DeviceOp::Repeat { .. }
            | DeviceOp::ClusterBarrier
            | DeviceOp::Signal { .. }
            | DeviceOp::Await { .. } => panic!("there is one CTA"),
            DeviceOp::Warpgroup(_) | DeviceOp::Tensor(_) => panic!("no sample has such products"),
            DeviceOp::Assert { cond, message } => {
                assert_eq!(self.uniform(*cond), Word::Int(1), "{message}");
            }
            DeviceOp::For { var, start, end, step, body } => {
                let (start, end) = (self.uniform(*start).int(), self.uniform(*end).int());
                let mut at = start;
                while at < end {
                    self.each(*var, |_, _, _| Word::Int(at));
                    self.block(body);
                    at += i64::from(*step);
                }
            }
            DeviceOp::If { cond, then_body, else_body } => {
                let taken = self.uniform(*cond).int() == 1;
                self.block(if taken { then_body } else { else_body });
            }
        }
    }

    /// The first element of a vector, if its predicate holds.
    fn address(&self, vector: &Vector, thread: usize) -> Option<i64> {
        let register =
            |(frag, i): (FragId, u32)| self.frags[frag.index()][thread][i as usize].int();
        if vector.predicate.is_some_and(|reg| register(reg) == 0) {
            return None;
        }
        let at = vector.offset.map_or(0, register) + vector.constant;
        assert_eq!(at.rem_euclid(i64::from(vector.len)), 0, "{vector:?} is not aligned");
        Some(at)
    }

    fn load(&mut self, dst: FragId, place: &Place, vectors: &[Vector], other: Option<FragId>) {
        let frag = self.device.frags[dst];
        let covered: u32 = vectors.iter().map(|v| v.len).sum();
        assert_eq!(covered, frag.len, "vectors tile the result");
        for thread in 0..self.threads() {
            let mut values = vec![None; frag.len as usize];
            for vector in vectors {
                assert!(vector.len * frag.dtype.bits() <= 128);
                let at = self.address(vector, thread);
                for i in 0..vector.len {
                    let value = match at {
                        Some(at) => self.read(place, at + i64::from(i), thread),
                        None => match other {
                            Some(other) => self.frags[other.index()][thread][0],
                            None => panic!("an absent element has a value"),
                        },
                    };
                    let slot = &mut values[(vector.first + i) as usize];
                    assert!(slot.replace(value).is_none(), "an element is loaded once");
                }
            }
            self.frags[dst.index()][thread] = values.into_iter().map(Option::unwrap).collect();
        }
    }

    fn read(&mut self, place: &Place, at: i64, thread: usize) -> Word {
        match place {
            Place::Global(param) => self.buffers[param.index()][at as usize],
            Place::Shared { base, dtype } => {
                let byte = self.shared_byte(*base, *dtype, at);
                let touched = self.touched.entry(byte).or_default();
                assert!(touched.writer.is_none_or(|w| w == thread), "read before the barrier");
                touched.readers.push(thread);
                self.shared[&byte]
            }
            Place::Peer { .. } | Place::Multicast { .. } | Place::Remote { .. } => {
                panic!("there is one CTA")
            }
        }
    }

    fn shared_byte(&self, base: u32, dtype: DType, at: i64) -> u32 {
        let bytes = dtype.bytes().unwrap();
        let byte = base + at as u32 * bytes;
        assert!(byte + bytes <= self.device.shared_bytes, "within shared memory");
        byte
    }

    fn store(&mut self, src: &Arg, place: &Place, vectors: &[Vector]) {
        for thread in 0..self.threads() {
            for vector in vectors {
                let Some(at) = self.address(vector, thread) else { continue };
                for i in 0..vector.len {
                    let value = self.arg(src, thread, vector.first + i);
                    let at = at + i64::from(i);
                    match place {
                        Place::Global(param) => {
                            self.buffers[param.index()][at as usize] = value;
                            self.stores[param.index()][at as usize] += 1;
                        }
                        Place::Shared { base, dtype } => {
                            let byte = self.shared_byte(*base, *dtype, at);
                            let touched = self.touched.entry(byte).or_default();
                            let alone = touched.writer.is_none()
                                && touched.readers.iter().all(|&r| r == thread);
                            assert!(alone, "write that no barrier orders");
                            touched.writer = Some(thread);
                            self.shared.insert(byte, value);
                        }
                        Place::Peer { .. } | Place::Multicast { .. } | Place::Remote { .. } => {
                            panic!("there is one CTA")
                        }
                    }
                }
            }
        }
    }
}

fn int_binary(op: BinaryOp, a: i64, b: i64) -> i64 {
    match op {
        BinaryOp::Add => a.wrapping_add(b),
        BinaryOp::Sub => a.wrapping_sub(b),
        BinaryOp::Mul => a.wrapping_mul(b),
        BinaryOp::Div => a / b,
        BinaryOp::Rem => a % b,
        BinaryOp::Min => a.min(b),
        BinaryOp::Max => a.max(b),
        BinaryOp::And => a & b,
        BinaryOp::Or => a | b,
        BinaryOp::Xor => a ^ b,
        BinaryOp::Shl => a << b,
        BinaryOp::Shr => a >> b,
    }
}

fn float_binary(op: BinaryOp, a: f32, b: f32) -> f32 {
    match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div => a / b,
        BinaryOp::Min => a.min(b),
        BinaryOp::Max => a.max(b),
        op => panic!("{op:?}"),
    }
}

//! Emits device statements: scopes, places, and integer registers that are computed once.
//!
//! A pure operation on single integers and truth values goes into the outermost scope in which its operands
//! exist, before the statement that is being built there, and is found again by its operands. So thread
//! coordinates stand at the top, and what does not change in a loop stands before it.

use kernel_abi::DType;
use kernel_dsl::source::Span;
use rustc_hash::FxHashMap;

use super::linear::{Fact, Linear, Reg};
use crate::device::{
    Arg, DeviceOp, DeviceStmt, Frag, FragId, LocId, Map, OpLoc, OpRole, Slot, SlotId, Special,
};
use crate::distribution::{Digit, LANES};
use crate::index::{Id, IndexVec};
use crate::kernel::{ClusterAxis, ContractBound, Kernel, Literal, ParamId, RoleId};
use crate::ops::{BinaryOp, CompareOp};

/// Numbers of the built-ins of a thread, behind the three axes of the grid.
const LANE: u8 = 3;
const WARP: u8 = 4;
const CLUSTER_RANK: u8 = 5;
const CLUSTER_X: u8 = 6;

/// A pure operation on single elements, as a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Pure {
    Int(DType, i64),
    Bool(bool),
    Float(DType, u64),
    Special(u8),
    /// Warp of a role, by its number and its first warp.
    RoleWarp(u32, u32),
    /// The same of a role that reads tensor memory, by its number and its warps.
    RoleWarpModulo(u32, u32),
    Param(ParamId),
    Binary(BinaryOp, Reg, Reg),
    Compare(CompareOp, Reg, Reg),
    Select(Reg, Reg, Reg),
    Convert(DType, Reg),
}

#[derive(Default)]
struct Scope {
    stmts: Vec<DeviceStmt>,
    pure: FxHashMap<Pure, FragId>,
}

/// A truth value that may be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pred {
    Always,
    Never,
    When(Reg),
}

/// The statements built so far, and what is known of their registers.
pub(super) struct Builder<'k> {
    pub(super) kernel: &'k Kernel,
    pub(super) frags: IndexVec<FragId, Frag>,
    pub(super) slots: IndexVec<SlotId, Slot>,
    pub(super) locs: IndexVec<LocId, OpLoc>,
    /// The place that statements get.
    pub(super) loc: LocId,
    /// The role whose statements are built.
    pub(super) role: Option<RoleId>,
    /// Its warps count by the rows of tensor memory that they reach.
    pub(super) reads_tensor: bool,
    /// Depth of the scope in which each fragment is defined.
    levels: IndexVec<FragId, usize>,
    facts: FxHashMap<Reg, Fact>,
    known: FxHashMap<Reg, bool>,
    scopes: Vec<Scope>,
}

/// The values that an integer type has, as far as 64 bits show them.
pub(super) fn dtype_range(dtype: DType) -> (i64, i64) {
    match dtype {
        DType::I8 => (i64::from(i8::MIN), i64::from(i8::MAX)),
        DType::U8 => (0, i64::from(u8::MAX)),
        DType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        DType::U32 => (0, i64::from(u32::MAX)),
        DType::Bool => (0, 1),
        DType::I64
        | DType::U64
        | DType::F32
        | DType::F16
        | DType::Bf16
        | DType::E4m3
        | DType::E5m2
        | DType::E2m1
        | DType::Ue8m0 => (i64::MIN, i64::MAX),
    }
}

/// True where every value of the interval has its place in the type.
pub(super) fn fits(range: (i128, i128), dtype: DType) -> bool {
    let (lo, hi) = dtype_range(dtype);
    i128::from(lo) <= range.0 && range.1 <= i128::from(hi)
}

impl<'k> Builder<'k> {
    pub(super) fn new(kernel: &'k Kernel) -> Builder<'k> {
        let mut locs = IndexVec::new();
        let loc = locs.push(OpLoc { span: kernel.span, role: OpRole::Compute });
        Builder {
            kernel,
            frags: IndexVec::new(),
            slots: IndexVec::new(),
            locs,
            loc,
            role: None,
            reads_tensor: false,
            levels: IndexVec::new(),
            facts: FxHashMap::default(),
            known: FxHashMap::default(),
            scopes: vec![Scope::default()],
        }
    }

    /// A new place for the operation at `span`.
    pub(super) fn place(&mut self, span: Span, role: OpRole) -> LocId {
        self.locs.push(OpLoc { span, role })
    }

    /// Starts the statements of an inner block.
    pub(super) fn open(&mut self) {
        self.scopes.push(Scope::default());
    }

    /// Ends the block that was opened last.
    pub(super) fn close(&mut self) -> Vec<DeviceStmt> {
        self.scopes.pop().map(|scope| scope.stmts).unwrap_or_default()
    }

    fn depth(&self) -> usize {
        self.scopes.len() - 1
    }

    fn frag_at(&mut self, dtype: DType, len: u32, level: usize) -> FragId {
        self.levels.push(level);
        self.frags.push(Frag { dtype, len })
    }

    /// A fragment that is defined in the current block.
    pub(super) fn frag(&mut self, dtype: DType, len: u32) -> FragId {
        self.frag_at(dtype, len, self.depth())
    }

    /// A fragment that is defined at the head of the next inner block.
    pub(super) fn loop_frag(&mut self, dtype: DType) -> FragId {
        self.frag_at(dtype, 1, self.depth() + 1)
    }

    /// Appends a statement to the current block.
    pub(super) fn emit(&mut self, op: DeviceOp) {
        let loc = self.loc;
        self.push(self.depth(), op, loc);
    }

    fn push(&mut self, level: usize, op: DeviceOp, loc: LocId) {
        self.scopes[level].stmts.push(DeviceStmt { op, loc });
    }

    /// Defines a fragment of `len` elements by the operation that `make` returns; nothing is emitted
    /// for a fragment without elements.
    pub(super) fn define(
        &mut self,
        dtype: DType,
        len: u32,
        make: impl FnOnce(FragId) -> DeviceOp,
    ) -> FragId {
        let dst = self.frag(dtype, len);
        if len > 0 {
            self.emit(make(dst));
        }
        dst
    }

    /// The operand that takes register `reg` for every element.
    pub(super) fn arg(&self, reg: Reg) -> Arg {
        if self.frags[reg.0].len == 1 { Arg::whole(reg.0) } else { Arg::all(reg.0, reg.1) }
    }

    /// The operand that takes element `table[i]` of a fragment, in its shortest form.
    pub(super) fn gather(&self, frag: FragId, table: Vec<u32>) -> Arg {
        let len = self.frags[frag].len;
        let in_order = table.iter().enumerate().all(|(i, &t)| t as usize == i);
        let map = match table.first() {
            _ if in_order && table.len() == len as usize => Map::Identity,
            Some(&first) if table.iter().all(|&t| t == first) => Map::All(first),
            Some(_) | None => Map::Table(table),
        };
        Arg { frag, map }
    }

    /// A fragment of one element with the value of `reg`.
    pub(super) fn single(&mut self, reg: Reg) -> FragId {
        let Frag { dtype, len } = self.frags[reg.0];
        if len == 1 {
            return reg.0;
        }
        let x = self.arg(reg);
        let copy = self.define(dtype, 1, |dst| DeviceOp::Copy { dst, x });
        let fact = self.fact(reg);
        self.learn((copy, 0), fact);
        copy
    }

    /// What is known of an integer register.
    pub(super) fn fact(&self, reg: Reg) -> Fact {
        self.facts.get(&reg).copied().unwrap_or_else(|| {
            let (lo, hi) = dtype_range(self.frags[reg.0].dtype);
            Fact { lo, hi, multiple: 1 }
        })
    }

    /// Records what is known of an integer register.
    pub(super) fn learn(&mut self, reg: Reg, fact: Fact) {
        self.facts.insert(reg, fact);
    }

    pub(super) fn range(&self, form: &Linear) -> (i128, i128) {
        form.range(|reg| self.fact(reg))
    }

    pub(super) fn multiple(&self, form: &Linear) -> u64 {
        form.multiple(|reg| self.fact(reg))
    }

    pub(super) fn split(&self, form: &Linear, divisor: i64) -> Option<(Linear, Linear)> {
        form.split(divisor, |reg| self.fact(reg))
    }

    /// The fragment that a pure operation defines, made where its operands exist.
    pub(super) fn pure(&mut self, key: Pure, dtype: DType) -> FragId {
        let operands: &[Reg] = match &key {
            Pure::Int(..)
            | Pure::Bool(_)
            | Pure::Float(..)
            | Pure::Special(_)
            | Pure::RoleWarp(..)
            | Pure::RoleWarpModulo(..)
            | Pure::Param(_) => &[],
            Pure::Binary(_, a, b) | Pure::Compare(_, a, b) => &[*a, *b],
            Pure::Select(a, b, c) => &[*a, *b, *c],
            Pure::Convert(_, a) => &[*a],
        };
        let level = operands.iter().map(|reg| self.levels[reg.0]).max().unwrap_or(0);
        if let Some(&frag) = self.scopes[level].pure.get(&key) {
            return frag;
        }
        let dst = self.frag_at(dtype, 1, level);
        let op = match key {
            Pure::Int(_, value) => DeviceOp::Const { dst, values: vec![Literal::Int(value)] },
            Pure::Bool(value) => DeviceOp::Const { dst, values: vec![Literal::Bool(value)] },
            Pure::Float(_, bits) => {
                DeviceOp::Const { dst, values: vec![Literal::Float(f64::from_bits(bits))] }
            }
            Pure::Special(code) => {
                let which = match code {
                    0..=2 => Special::CtaIndex(code),
                    LANE => Special::Lane,
                    WARP => Special::Warp,
                    CLUSTER_RANK => Special::ClusterIndex(ClusterAxis::Rank),
                    along => Special::ClusterIndex(ClusterAxis::Along(along - CLUSTER_X)),
                };
                DeviceOp::Special { dst, which }
            }
            Pure::RoleWarpModulo(_, warps) => {
                DeviceOp::Special { dst, which: Special::WarpModulo(warps) }
            }
            Pure::RoleWarp(_, first) => DeviceOp::Special { dst, which: Special::WarpFrom(first) },
            Pure::Param(param) => DeviceOp::ScalarParam { dst, param },
            Pure::Binary(op, a, b) => DeviceOp::Binary { dst, op, a: self.arg(a), b: self.arg(b) },
            Pure::Compare(op, a, b) => {
                DeviceOp::Compare { dst, op, a: self.arg(a), b: self.arg(b) }
            }
            Pure::Select(cond, a, b) => {
                DeviceOp::Select { dst, cond: self.arg(cond), a: self.arg(a), b: self.arg(b) }
            }
            Pure::Convert(_, x) => DeviceOp::Convert { dst, x: self.arg(x) },
        };
        // Thread coordinates and constants belong to no operation of the source.
        let loc = if operands.is_empty() { LocId::new(0) } else { self.loc };
        self.push(level, op, loc);
        self.scopes[level].pure.insert(key, dst);
        dst
    }

    pub(super) fn int(&mut self, dtype: DType, value: i64) -> Reg {
        let frag = self.pure(Pure::Int(dtype, value), dtype);
        self.learn((frag, 0), Fact { lo: value, hi: value, multiple: value.unsigned_abs() });
        (frag, 0)
    }

    pub(super) fn float(&mut self, dtype: DType, value: f64) -> FragId {
        self.pure(Pure::Float(dtype, value.to_bits()), dtype)
    }

    pub(super) fn truth(&mut self, value: bool) -> Reg {
        let frag = self.pure(Pure::Bool(value), DType::Bool);
        self.known.insert((frag, 0), value);
        (frag, 0)
    }

    /// The value of a truth register, if it is known.
    pub(super) fn known(&self, reg: Reg) -> Option<bool> {
        self.known.get(&reg).copied()
    }

    fn special(&mut self, code: u8, count: u32) -> Linear {
        self.builtin(Pure::Special(code), count)
    }

    /// A built-in of the thread, below `count`.
    fn builtin(&mut self, key: Pure, count: u32) -> Linear {
        if count == 1 {
            return Linear::constant(0);
        }
        let frag = self.pure(key, DType::I32);
        self.learn((frag, 0), Fact { lo: 0, hi: i64::from(count) - 1, multiple: 1 });
        Linear::register((frag, 0))
    }

    /// Index of the CTA along an axis of the grid.
    pub(super) fn cta(&mut self, axis: u8) -> Linear {
        let count = self.kernel.launch.grid.get(usize::from(axis)).copied().unwrap_or(1);
        self.special(axis, count)
    }

    /// Place of the CTA in its cluster.
    pub(super) fn cluster(&mut self, axis: ClusterAxis) -> Linear {
        let code = match axis {
            ClusterAxis::Along(along) => CLUSTER_X + along,
            ClusterAxis::Rank => CLUSTER_RANK,
        };
        self.special(code, axis.extent(self.kernel.launch.cluster))
    }

    /// A digit of the lane index.
    pub(super) fn lane(&mut self, digit: Digit) -> Linear {
        if digit.extent == 1 {
            return Linear::constant(0);
        }
        let index = self.special(LANE, LANES);
        self.digit(&index, digit)
    }

    /// A digit of the warp index.
    pub(super) fn warp(&mut self, digit: Digit) -> Linear {
        if digit.extent == 1 {
            return Linear::constant(0);
        }
        let index = match self.role {
            None => self.special(WARP, self.kernel.launch.warps),
            Some(role) => {
                let declared = &self.kernel.roles[role];
                let number = u32::try_from(role.index()).unwrap_or(u32::MAX);
                // Which rows of tensor memory a warp reaches follows from its number in the CTA.
                let key = if self.reads_tensor {
                    Pure::RoleWarpModulo(number, declared.warps)
                } else {
                    Pure::RoleWarp(number, declared.first)
                };
                self.builtin(key, declared.warps)
            }
        };
        self.digit(&index, digit)
    }

    /// Warps that run the statements.
    pub(super) fn warps(&self) -> u32 {
        self.role.map_or(self.kernel.launch.warps, |role| self.kernel.roles[role].warps)
    }

    /// True where one thread alone runs what is built.
    pub(super) fn is_elected(&self) -> bool {
        self.role.is_some_and(|role| self.kernel.roles[role].elect)
    }

    fn digit(&mut self, index: &Linear, digit: Digit) -> Linear {
        let high = self.int_binary(
            BinaryOp::Div,
            index,
            &Linear::constant(digit.stride.into()),
            DType::I32,
        );
        self.int_binary(BinaryOp::Rem, &high, &Linear::constant(digit.extent.into()), DType::I32)
    }

    /// Index of the thread in its role, or in its CTA.
    pub(super) fn thread(&mut self) -> Linear {
        let lane = self.lane(Digit { extent: LANES, stride: 1 });
        let warps = self.warps();
        let warp = self.warp(Digit { extent: warps, stride: 1 });
        lane.plus(i64::from(LANES), &warp).expect("thread indices are small")
    }

    /// The value of a `scalar` parameter.
    pub(super) fn param(&mut self, param: ParamId) -> Reg {
        let declared = &self.kernel.params[param];
        let dtype = declared.dtype;
        let contract = declared.contract;
        let frag = self.pure(Pure::Param(param), dtype);
        if dtype.is_int()
            && let Some(contract) = contract
        {
            self.promise((frag, 0), contract.lo, contract.hi);
        }
        (frag, 0)
    }

    /// Records a contract `lo..hi` of an integer register.
    pub(super) fn promise(&mut self, reg: Reg, lo: i64, hi: ContractBound) {
        let mut fact = self.fact(reg);
        fact.lo = fact.lo.max(lo);
        match hi {
            ContractBound::Const(hi) => fact.hi = fact.hi.min(hi.saturating_sub(1)),
            ContractBound::Scalar(..) => {}
        }
        if fact.lo <= fact.hi {
            self.learn(reg, fact);
        }
    }

    /// A register with the value of the form in `dtype`, computed from the outermost scope inwards.
    pub(super) fn materialize(&mut self, form: &Linear, dtype: DType) -> Reg {
        let mut terms = form.terms.clone();
        terms.sort_by_key(|&(reg, _)| (self.levels[reg.0], reg));
        let mut sum: Option<Reg> = None;
        for (reg, factor) in terms {
            let x = self.as_dtype(reg, dtype);
            sum = Some(match (sum, factor) {
                (None, 1) => x,
                (Some(sum), 1) => self.binary(BinaryOp::Add, sum, x, dtype),
                (Some(sum), -1) => self.binary(BinaryOp::Sub, sum, x, dtype),
                (sum, factor) => {
                    let factor = self.int(dtype, wrap(factor, dtype));
                    let product = self.binary(BinaryOp::Mul, x, factor, dtype);
                    match sum {
                        Some(sum) => self.binary(BinaryOp::Add, sum, product, dtype),
                        None => product,
                    }
                }
            });
        }
        match (sum, form.constant) {
            (Some(sum), 0) => sum,
            (Some(sum), constant) => {
                let constant = self.int(dtype, wrap(constant, dtype));
                self.binary(BinaryOp::Add, sum, constant, dtype)
            }
            (None, constant) => self.int(dtype, wrap(constant, dtype)),
        }
    }

    fn as_dtype(&mut self, reg: Reg, dtype: DType) -> Reg {
        if self.frags[reg.0].dtype == dtype {
            return reg;
        }
        let frag = self.pure(Pure::Convert(dtype, reg), dtype);
        let fact = self.fact(reg);
        if fits((fact.lo.into(), fact.hi.into()), dtype) {
            self.learn((frag, 0), fact);
        }
        (frag, 0)
    }

    pub(super) fn binary(&mut self, op: BinaryOp, a: Reg, b: Reg, dtype: DType) -> Reg {
        (self.pure(Pure::Binary(op, a, b), dtype), 0)
    }

    /// Both hold.
    pub(super) fn and(&mut self, a: Pred, b: Pred) -> Pred {
        match (a, b) {
            (Pred::Never, _) | (_, Pred::Never) => Pred::Never,
            (Pred::Always, other) | (other, Pred::Always) => other,
            (Pred::When(x), Pred::When(y)) if x == y => a,
            (Pred::When(x), Pred::When(y)) => {
                Pred::When(self.binary(BinaryOp::And, x, y, DType::Bool))
            }
        }
    }

    /// A register with the truth value.
    pub(super) fn pred(&mut self, pred: Pred) -> Reg {
        match pred {
            Pred::Always => self.truth(true),
            Pred::Never => self.truth(false),
            Pred::When(reg) => reg,
        }
    }
}

/// The value modulo the type.
fn wrap(value: i64, dtype: DType) -> i64 {
    match dtype {
        DType::I32 => i64::from(value as i32),
        DType::I8
        | DType::U8
        | DType::U32
        | DType::I64
        | DType::U64
        | DType::Bool
        | DType::F32
        | DType::F16
        | DType::Bf16
        | DType::E4m3
        | DType::E5m2
        | DType::E2m1
        | DType::Ue8m0 => value,
    }
}

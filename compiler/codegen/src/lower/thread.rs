//! What a thread knows of itself, and where it meets others.

use kernel_abi::DType;
use kernel_ir::device::{FragId, Lanes, Special};
use kernel_ir::distribution::LANES;
use kernel_ir::index::Id;
use kernel_ir::kernel::{ClusterAxis, ParamId};
use kernel_ir::ops::ReduceOp;
use melior::dialect::arith::CmpiPredicate;
use melior::ir::{Attribute, Type, Value};

use super::{Lowered, Lowering, refuse};
use crate::{mnemonic, nvvm};

/// All lanes of a warp.
const FULL_MASK: i64 = -1;
/// No sub-segments: lane numbers run to 31.
const CLAMP: i64 = 31;

impl<'c, 'm> Lowering<'c, 'm, '_> {
    pub(super) fn thread_index(&self) -> Value<'c, 'm> {
        let b = &self.build;
        b.value(nvvm::read_ptx_sreg_tid_x(b.context, b.types.i32, b.location))
    }

    /// A built-in of the thread. Lane and warp come from the thread's index, whose range LLVM knows.
    pub(super) fn special(&self, which: Special) -> Lowered<Value<'c, 'm>> {
        let b = &self.build;
        let (context, i32, location) = (b.context, b.types.i32, b.location);
        Ok(match which {
            Special::CtaIndex(0) => b.value(nvvm::read_ptx_sreg_ctaid_x(context, i32, location)),
            Special::CtaIndex(1) => b.value(nvvm::read_ptx_sreg_ctaid_y(context, i32, location)),
            Special::CtaIndex(2) => b.value(nvvm::read_ptx_sreg_ctaid_z(context, i32, location)),
            Special::CtaIndex(axis) => return refuse(format!("a grid has no axis {axis}")),
            Special::ClusterIndex(axis) => match axis {
                ClusterAxis::Along(0) => {
                    b.value(nvvm::read_ptx_sreg_cluster_ctaid_x(context, i32, location))
                }
                ClusterAxis::Along(1) => {
                    b.value(nvvm::read_ptx_sreg_cluster_ctaid_y(context, i32, location))
                }
                ClusterAxis::Along(2) => {
                    b.value(nvvm::read_ptx_sreg_cluster_ctaid_z(context, i32, location))
                }
                ClusterAxis::Along(axis) => {
                    return refuse(format!("a cluster has no axis {axis}"));
                }
                ClusterAxis::Rank => {
                    b.value(nvvm::read_ptx_sreg_cluster_ctarank(context, i32, location))
                }
            },
            Special::Lane => b.andi(self.thread_index(), b.int(i32, 31)),
            Special::Warp => b.shrui(self.thread_index(), b.int(i32, 5)),
            Special::WarpModulo(warps) => {
                let warp = b.shrui(self.thread_index(), b.int(i32, 5));
                b.remui(warp, b.int(i32, warps.max(1).into()))
            }
            Special::WarpFrom(first) => {
                b.subi(b.shrui(self.thread_index(), b.int(i32, 5)), b.int(i32, first.into()))
            }
        })
    }

    pub(super) fn scalar_param(&self, param: ParamId) -> Lowered<Value<'c, 'm>> {
        let b = &self.build;
        let (Some(declared), Some(value)) = (self.kernel.params.get(param), self.params.get(param))
        else {
            return refuse(format!("there is no parameter {}", param.index()));
        };
        if declared.dtype == DType::Bool {
            return Ok(b.compare_int(CmpiPredicate::Ne, *value, b.int(b.types.i8, 0)));
        }
        Ok(*value)
    }

    pub(super) fn barrier(&self) {
        let b = &self.build;
        b.push(nvvm::barrier_0(b.context, b.location));
    }

    pub(super) fn grid_wait(&self) {
        self.build.effect(&mnemonic::grid_wait(), &[]);
    }

    pub(super) fn grid_launch(&self) {
        self.build.effect(&mnemonic::grid_launch(), &[]);
    }

    /// Each element folded over all lanes. Floats fold as integers of the same order: the bits of a negative number
    /// are turned round.
    pub(super) fn reduce_lanes(
        &self,
        dst: FragId,
        x: FragId,
        op: ReduceOp,
    ) -> Lowered<Vec<Value<'c, 'm>>> {
        let b = &self.build;
        let i32 = b.types.i32;
        let dtype = self.frag(x)?.dtype;
        if !op.is_free_of_order(dtype) {
            return refuse(format!("{} of {dtype} depends on the order of lanes", op.name()));
        }
        let kind = match (op, dtype == DType::I32) {
            (ReduceOp::Add, _) => "add",
            (ReduceOp::Max, true) => "max",
            (ReduceOp::Min, true) => "min",
            (ReduceOp::Max, false) => "umax",
            (ReduceOp::Min, false) => "umin",
        };
        let kind = Attribute::parse(b.context, &format!("#nvvm<redux_kind {kind}>"))
            .expect("the kind of a reduction parses");
        let word = |x: Value<'c, 'm>| {
            let mask = b.int(i32, FULL_MASK);
            b.value(nvvm::redux_sync(b.context, i32, x, mask, kind, b.location))
        };
        let (top, last) = (b.int(i32, i64::from(i32::MIN)), b.int(i32, 31));
        let turned = |bits, sign| b.xori(bits, b.ori(b.shrsi(sign, last), top));
        self.each(dst, |i| {
            let x = self.element(x, i)?;
            if dtype != DType::F32 {
                return Ok(word(x));
            }
            let bits = b.bitcast(i32, x);
            let folded = word(turned(bits, bits));
            Ok(b.bitcast(b.types.f32, turned(folded, b.xori(folded, b.int(i32, -1)))))
        })
    }

    /// The elements of another lane, moved in words of 32 bits: narrow ones as many as a word holds.
    pub(super) fn shuffle(
        &self,
        dst: FragId,
        x: FragId,
        lanes: Lanes,
    ) -> Lowered<Vec<Value<'c, 'm>>> {
        let b = &self.build;
        let (i32, i64) = (b.types.i32, b.types.i64);
        let (kind, lane) = match lanes {
            Lanes::Xor(xor) if (1..LANES).contains(&xor) => ("bfly", b.int(i32, xor.into())),
            Lanes::Xor(xor) => return refuse(format!("lanes do not differ by {xor}")),
            Lanes::Register((frag, element)) => ("idx", self.element(frag, element)?),
        };
        let kind = Attribute::parse(b.context, &format!("#nvvm<shfl_kind {kind}>"))
            .expect("the kind of a shuffle parses");
        let word = |x: Value<'c, 'm>, r#type: Type<'c>| {
            let (mask, clamp) = (b.int(i32, FULL_MASK), b.int(i32, CLAMP));
            b.value(nvvm::shfl_sync(b.context, r#type, mask, x, lane, clamp, kind, b.location))
        };
        let dtype = self.frag(x)?.dtype;
        let elements = self.each(dst, |i| self.element(x, i))?;
        let moved = elements.iter().copied();
        Ok(match dtype {
            DType::F32 => moved.map(|x| word(x, b.types.f32)).collect(),
            DType::I32 | DType::U32 => moved.map(|x| word(x, i32)).collect(),
            DType::F16 | DType::Bf16 => {
                let bits: Vec<_> = moved.map(|x| b.bitcast(b.types.i16, x)).collect();
                let moved = self.shuffle_narrow(&bits, 16, b.types.i16, word);
                let own = self.element_type(dtype)?;
                moved.into_iter().map(|bits| b.bitcast(own, bits)).collect()
            }
            DType::I8 | DType::U8 | DType::E4m3 | DType::E5m2 | DType::Ue8m0 => {
                self.shuffle_narrow(&elements, 8, b.types.i8, word)
            }
            DType::Bool => {
                moved.map(|x| b.trunci(b.types.i1, word(b.extui(i32, x), i32))).collect()
            }
            DType::I64 | DType::U64 => {
                let half = b.int(i64, 32);
                let both = |x: Value<'c, 'm>| {
                    let low = word(b.trunci(i32, x), i32);
                    let high = word(b.trunci(i32, b.shrui(x, half)), i32);
                    b.ori(b.shli(b.extui(i64, high), half), b.extui(i64, low))
                };
                moved.map(both).collect()
            }
            DType::E2m1 => return refuse("single elements of e2m1 have no register"),
        })
    }

    /// Integers of `bits` bits, side by side in words.
    fn shuffle_narrow(
        &self,
        elements: &[Value<'c, 'm>],
        bits: u32,
        narrow: Type<'c>,
        word: impl Fn(Value<'c, 'm>, Type<'c>) -> Value<'c, 'm>,
    ) -> Vec<Value<'c, 'm>> {
        let b = &self.build;
        let i32 = b.types.i32;
        let mut moved = Vec::with_capacity(elements.len());
        for group in elements.chunks((32 / bits) as usize) {
            let shift = |place: usize| b.int(i32, i64::from(bits) * place as i64);
            let mut all = b.extui(i32, group[0]);
            for (place, &element) in group.iter().enumerate().skip(1) {
                all = b.ori(all, b.shli(b.extui(i32, element), shift(place)));
            }
            let there = word(all, i32);
            moved.push(b.trunci(narrow, there));
            let rest = (1..group.len()).map(|place| b.trunci(narrow, b.shrui(there, shift(place))));
            moved.extend(rest);
        }
        moved
    }
}

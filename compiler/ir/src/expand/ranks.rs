//! Words of other ranks: one lane of the first warp for each rank, or for each word that is waited for.

use kernel_abi::DType;

use super::Expander;
use super::builder::Pred;
use super::linear::Linear;
use super::vectors::{Cell, Cut};
use crate::device::{DeviceOp, DeviceStmt, FragId, Place, Vector};
use crate::distribution::{Digit, Distribution, LANES};
use crate::kernel::{Await, CachePolicy, Extent, ParamId, RANK, Signal, ValueId};
use crate::ops::{BinaryOp, CompareOp};

impl Expander<'_> {
    /// Lane p of the first warp raises the word of rank p; the first lane that of one rank.
    pub(super) fn signal(&mut self, signal: &Signal) {
        let index: Vec<Option<ValueId>> = signal.index.iter().copied().map(Some).collect();
        let world = self.kernel.launch.world.unwrap_or(1);
        let (param, add, alias) = (signal.param, signal.add, self.kernel.uses_multicast());
        if !self.kernel.params[param].is_flag() {
            let at = self.flag(param, &index, &Linear::default());
            return self.once(DeviceOp::Signal { param, rank: None, at, add, alias });
        }
        if let Some(to) = signal.to {
            let to = self.integer(to);
            let at = self.flag(param, &index, &Linear::default());
            let rank = Some(self.b.materialize(&to, DType::I32));
            return self.once(DeviceOp::Signal { param, rank, at, add, alias });
        }
        if self.b.is_elected() {
            // One thread has no lanes beside it.
            for number in 0..world {
                let rank = Linear::constant(i64::from(number));
                let at = self.flag(param, &index, &rank);
                let rank = self.b.materialize(&rank, DType::I32);
                self.b.emit(DeviceOp::Signal { param, rank: Some(rank), at, add, alias });
            }
            return;
        }
        let lane = self.lane();
        let rank = self.b.materialize(&lane, DType::I32);
        let at = self.flag(signal.param, &index, &lane);
        self.in_first_lanes(world, DeviceOp::Signal { param, rank: Some(rank), at, add, alias });
    }

    /// Lane r of the first warp waits for word r, and all threads meet.
    pub(super) fn wait_for(&mut self, wait: &Await) {
        let words = wait.each().and_then(|axis| {
            self.kernel.params[wait.param].shape.get(axis).and_then(|extent| match extent {
                Extent::Const(words) => Some(*words),
                Extent::Scalar(_) => None,
            })
        });
        let (until, alias) = (self.frag(wait.until), self.kernel.uses_multicast());
        if self.b.is_elected() {
            for word in 0..words.unwrap_or(1) {
                let word = Linear::constant(i64::from(word));
                let (param, at) = (wait.param, self.flag(wait.param, &wait.index, &word));
                self.b.emit(DeviceOp::Await { param, at, until, alias });
            }
            return;
        }
        let lane = self.lane();
        let at = self.flag(wait.param, &wait.index, &lane);
        let param = wait.param;
        self.in_first_lanes(words.unwrap_or(1), DeviceOp::Await { param, at, until, alias });
        self.barrier();
    }

    /// Stores a tile to every rank: threads that hold the same elements share the ranks.
    pub(super) fn store_to_all(
        &mut self,
        src: FragId,
        cells: &[Cell],
        param: ParamId,
        distribution: &Distribution,
        cache: CachePolicy,
    ) -> Cut {
        let world = self.kernel.launch.world.unwrap_or(1);
        let dtype = self.kernel.params[param].dtype;
        let (mut replica, mut replicas) = (Linear::default(), 1_u32);
        if !self.b.is_elected() {
            let lanes = distribution.free_lanes().into_iter().map(|digit| (digit, true));
            let warps = distribution.free_warps().into_iter().map(|digit| (digit, false));
            for (digit, is_lane) in lanes.chain(warps) {
                let index = if is_lane { self.b.lane(digit) } else { self.b.warp(digit) };
                let sum = replica.plus(i64::from(replicas), &index);
                replica = sum.expect("thread indices are small");
                replicas *= digit.extent;
            }
        }
        let own = self.own_rank();
        let offsets = self.b.offset_dtype(param);
        let mut cut = None;
        for round in 0..world.div_ceil(replicas) {
            let first = i64::from(round) * i64::from(replicas);
            let index = replica.offset(first).expect("ranks are few");
            let all = Linear::constant(i64::from(world));
            let there = self.b.int_compare(CompareOp::Lt, &index, &all, DType::I32);
            // Each begins with another rank.
            let rank = index.plus(1, &own).expect("ranks are few");
            let rank = self.b.int_binary(BinaryOp::Rem, &rank, &all, DType::I32);
            let rank = self.b.materialize(&rank, DType::I32);
            let place = Place::Peer { param, rank };
            cut = Some(self.store_cells(src, cells, dtype, place, offsets, cache, there));
        }
        cut.unwrap_or_else(|| self.b.cut(cells, dtype))
    }

    fn own_rank(&mut self) -> Linear {
        let params = self.kernel.params.iter_enumerated();
        match params.into_iter().find(|(_, param)| param.name == RANK) {
            Some((rank, _)) => Linear::register(self.b.param(rank)),
            None => Linear::default(),
        }
    }

    fn lane(&mut self) -> Linear {
        self.b.lane(Digit { extent: LANES, stride: 1 })
    }

    fn once(&mut self, op: DeviceOp) {
        if self.b.is_elected() {
            self.b.emit(op);
        } else {
            self.in_first_lanes(1, op);
        }
    }

    /// Emits what the first `count` lanes of the first warp do.
    fn in_first_lanes(&mut self, count: u32, op: DeviceOp) {
        let warps = [Digit { extent: self.b.warps(), stride: 1 }];
        let first = self.b.digits_are_zero(&[], &warps);
        let (lane, count) = (self.lane(), Linear::constant(i64::from(count)));
        let below = self.b.int_compare(CompareOp::Lt, &lane, &count, DType::I32);
        match self.b.and(first, below) {
            Pred::When(register) => {
                let cond = self.b.single(register);
                let then_body = self.alone(op);
                self.b.emit(DeviceOp::If { cond, then_body, else_body: Vec::new() });
            }
            Pred::Always => self.b.emit(op),
            Pred::Never => {}
        }
    }

    fn alone(&mut self, op: DeviceOp) -> Vec<DeviceStmt> {
        self.b.open();
        self.b.emit(op);
        self.b.close()
    }

    /// The place of a word; `each` is the lane.
    fn flag(&mut self, param: ParamId, index: &[Option<ValueId>], lane: &Linear) -> Vector {
        let mut place = Linear::default();
        let shape = self.kernel.params[param].shape.clone();
        for (extent, position) in shape.iter().zip(index) {
            let extent = match extent {
                Extent::Const(extent) => i64::from(*extent),
                Extent::Scalar(_) => 1,
            };
            let position = match position {
                Some(value) => self.integer(*value),
                None => lane.clone(),
            };
            let sum = place.times(extent).and_then(|place| place.plus(1, &position));
            place = sum.expect("words are few: their number fits 31 bits");
        }
        let variable = place.variable();
        let offset = (!variable.terms.is_empty()).then(|| {
            let dtype = self.b.offset_dtype(param);
            self.b.materialize(&variable, dtype)
        });
        Vector { first: 0, len: 1, offset, constant: place.constant, predicate: None }
    }
}

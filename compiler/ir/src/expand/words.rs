//! Counters and epochs: words between CTAs, and from launch to launch.

use kernel_abi::DType;
use kernel_dsl::diag::Diagnostic;

use super::Expander;
use super::builder::Pred;
use super::linear::{Linear, Reg};
use super::vectors::Cell;
use crate::device::{Arg, DeviceOp, FragId, Place, Vector};
use crate::distribution::{Digit, LANES};
use crate::kernel::{CachePolicy, Literal, ParamId, ValueId, Word};
use crate::ops::{BinaryOp, CompareOp};

/// Bytes through which the last arriver is told to all threads.
const FLAG_BYTES: u32 = 1;

impl Expander<'_> {
    /// All threads meet, one counts the arrival between two fences, and all learn whether it was the last.
    pub(super) fn arrive_last(
        &mut self,
        result: ValueId,
        word: &Word,
        count: u32,
    ) -> Result<(), Diagnostic> {
        let limit = count.saturating_sub(1);
        let param = word.param;
        let limit_reg = self.b.int(DType::U32, i64::from(limit));
        if self.b.is_elected() {
            let at = self.word(word, None);
            let last = self.count(param, at, limit, limit_reg);
            self.arrivals.insert(result, param);
            self.bind(result, last);
            return Ok(());
        }
        let region = self.reserve(FLAG_BYTES)?;
        self.barrier();
        let at = self.word(word, None);
        let one = self.first_thread();
        let place = Place::Shared { base: region.0, dtype: DType::Bool };
        let cells = [Cell::at(Linear::default())];
        let (dtype, cache) = (DType::Bool, CachePolicy::default());

        self.b.open();
        let last = self.count(param, at, limit, limit_reg);
        self.store_cells(last, &cells, dtype, place.clone(), DType::I32, cache, Pred::Always);
        let body = self.b.close();
        match one {
            Some(cond) => {
                self.b.emit(DeviceOp::If { cond, then_body: body, else_body: Vec::new() });
            }
            None => unreachable!("a warp has more than one thread"),
        }
        self.barrier();
        let (frag, _) =
            self.load_cells(&cells, dtype, place, DType::I32, None, cache, Pred::Always);
        self.shared.read(region);
        self.arrivals.insert(result, param);
        self.bind(result, frag);
        Ok(())
    }

    /// One thread counts between two fences; whether it was the last.
    fn count(&mut self, param: ParamId, at: Vector, limit: u32, limit_reg: Reg) -> FragId {
        self.b.emit(DeviceOp::Fence);
        let old = self.b.define(DType::U32, 1, |dst| DeviceOp::AtomicInc { dst, param, at, limit });
        self.b.emit(DeviceOp::Fence);
        let (a, b) = (Arg::whole(old), Arg::all(limit_reg.0, 0));
        let op = CompareOp::Eq;
        self.b.define(DType::Bool, 1, |dst| DeviceOp::Compare { dst, op, a, b })
    }

    /// Adds 1 to a word that all threads have read.
    pub(super) fn advance(&mut self, word: &Word) {
        self.barrier();
        let place = Place::Global(word.param);
        let predicate = self.first_thread().map(|cond| (cond, 0));
        let vectors = vec![self.word(word, predicate)];
        let (from, cache) = (place.clone(), CachePolicy::default());
        let values = vec![Literal::Int(1)];
        let one = self.b.define(DType::U32, 1, |dst| DeviceOp::Const { dst, values });
        let at = vectors.clone();
        let old = self.b.define(DType::U32, 1, |dst| DeviceOp::Load {
            dst,
            place: from,
            vectors: at,
            other: Some(one),
            cache,
        });
        let (a, b, op) = (Arg::whole(old), Arg::whole(one), BinaryOp::Add);
        let next = self.b.define(DType::U32, 1, |dst| DeviceOp::Binary { dst, op, a, b });
        self.b.emit(DeviceOp::Store { src: Arg::whole(next), place, vectors, cache });
    }

    /// Holds in one thread of the CTA.
    fn first_thread(&mut self) -> Option<FragId> {
        if self.b.is_elected() {
            return None;
        }
        let lanes = [Digit { extent: LANES, stride: 1 }];
        let warps = [Digit { extent: self.b.warps(), stride: 1 }];
        match self.b.digits_are_zero(&lanes, &warps) {
            Pred::When(reg) => Some(self.b.single(reg)),
            Pred::Always | Pred::Never => None,
        }
    }

    fn word(&mut self, word: &Word, predicate: Option<(FragId, u32)>) -> Vector {
        let form = self.integer(word.index);
        let variable = form.variable();
        let offset = (!variable.terms.is_empty()).then(|| {
            let dtype = self.b.offset_dtype(word.param);
            self.b.materialize(&variable, dtype)
        });
        Vector { first: 0, len: 1, offset, constant: form.constant, predicate }
    }
}

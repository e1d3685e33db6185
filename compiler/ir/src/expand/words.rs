//! Counters and epochs: words between CTAs, and from launch to launch.

use kernel_abi::DType;
use kernel_dsl::diag::Diagnostic;

use super::builder::Pred;
use super::linear::{Fact, Linear};
use super::statements::forget_assigned;
use super::vectors::Cell;
use super::{Expander, Repr};
use crate::device::{Address, Arg, Change, DeviceOp, FragId, Place, Vector};
use crate::distribution::{Digit, LANES};
use crate::kernel::{CachePolicy, Literal, ParamId, Stmt, Storage, TileAccess, ValueId, Word};
use crate::ops::{AtomicOp, BinaryOp, CompareOp};
use crate::order;

impl<'k> Expander<'k> {
    /// All threads meet, one counts the arrival between two fences, and all learn whether it was the last.
    pub(super) fn arrive_last(
        &mut self,
        result: ValueId,
        word: &Word,
        count: u32,
    ) -> Result<(), Diagnostic> {
        let limit = count.saturating_sub(1);
        let limit_reg = self.b.int(DType::U32, i64::from(limit));
        let at = self.word(word, None);
        // What threads have stored is ahead of products behind the meeting.
        self.hand_over_operands();
        let last = self.by_one_thread(DType::Bool, |s| {
            s.b.emit(DeviceOp::Fence);
            let old = s.change(word.param, DType::U32, at, Change::Count { limit: limit_reg });
            s.b.emit(DeviceOp::Fence);
            let (a, b) = (Arg::whole(old), Arg::all(limit_reg.0, 0));
            let op = CompareOp::Eq;
            s.b.define(DType::Bool, 1, |dst| DeviceOp::Compare { dst, op, a, b })
        })?;
        self.arrivals.insert(result, word.param);
        self.bind(result, last);
        Ok(())
    }

    /// All threads meet, one changes the element, and all learn what it was.
    pub(super) fn atomic(
        &mut self,
        result: ValueId,
        op: AtomicOp,
        value: ValueId,
        access: &TileAccess,
    ) -> Result<(), Diagnostic> {
        let Storage::Buffer(param) = access.storage else {
            unreachable!("atomics are of buffers of the own rank")
        };
        let dtype = self.kernel.dtype_of(access.storage);
        let (by, offsets) = (self.frag(value), self.b.offset_dtype(param));
        let cells = self.cells(access, &self.kernel.values[value].distribution)?;
        let Some(cell) = cells.first() else { unreachable!("a scalar has one register") };
        let Address { offset, constant } = self.b.address(cell, offsets);
        let at = Vector { first: 0, len: 1, offset, constant, predicate: None };
        let change = Change::Apply { op, value: (by, 0) };
        self.hand_over_operands();
        let old = self.by_one_thread(dtype, |s| s.change(param, dtype, at, change))?;
        self.bind(result, old);
        Ok(())
    }

    fn change(&mut self, param: ParamId, dtype: DType, at: Vector, change: Change) -> FragId {
        self.b.define(dtype, 1, |dst| DeviceOp::Atomic { dst, param, at, change })
    }

    /// All threads meet, one of them computes a scalar, and all learn it, through shared memory.
    pub(super) fn by_one_thread(
        &mut self,
        dtype: DType,
        compute: impl FnOnce(&mut Self) -> FragId,
    ) -> Result<FragId, Diagnostic> {
        if self.b.is_elected() {
            return Ok(compute(self));
        }
        let region = self.reserve(dtype.bytes().unwrap_or(1))?;
        self.barrier();
        let one = self.first_thread();
        let place = Place::Shared { base: region.0, dtype };
        let cells = [Cell::at(Linear::default())];
        let cache = CachePolicy::default();
        self.b.open();
        let own = compute(self);
        self.store_cells(own, &cells, dtype, place.clone(), DType::I32, cache, Pred::Always);
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
        Ok(frag)
    }

    /// Rounds whose numbers are tickets. The word becomes 0 with the last ticket that is taken: one for each round, and
    /// for each CTA one that says that there is no more.
    pub(super) fn work_list(
        &mut self,
        var: ValueId,
        end: ValueId,
        word: &Word,
        body: &'k [Stmt],
    ) -> Result<(), Diagnostic> {
        let ctas = self.kernel.launch.grid.iter().map(|&extent| i64::from(extent)).product::<i64>();
        let count = self.integer(end);
        let last = count.offset(ctas - 1).expect("the number of tickets has 31 bits");
        let last = self.b.materialize(&last, DType::I32);
        let last = self
            .b
            .define(DType::U32, 1, |dst| DeviceOp::Convert { dst, x: Arg::all(last.0, last.1) });
        let (end, at, loc) = (self.frag(end), self.word(word, None), self.b.loc);

        let before = self.order;
        self.order = order::loop_entry(before, body);
        let mut kept = self.contents.clone();
        forget_assigned(&mut kept, body);
        self.contents = kept.clone();
        let outer = self.shared.enter_loop();
        self.b.open();
        // Taking a ticket is a meeting of all threads.
        self.hand_over_operands();
        let change = Change::Count { limit: (last, 0) };
        let taken =
            self.by_one_thread(DType::U32, |s| s.change(word.param, DType::U32, at, change));
        let again = taken.map(|taken| {
            let x = Arg::whole(taken);
            let number = self.b.define(DType::I32, 1, |dst| DeviceOp::Convert { dst, x });
            let (a, b, op) = (Arg::whole(number), Arg::whole(end), CompareOp::Lt);
            let again = self.b.define(DType::Bool, 1, |dst| DeviceOp::Compare { dst, op, a, b });
            let flow = self.shared.enter_choice();
            self.b.open();
            self.bind_ticket(var, number, &count);
            self.block(body);
            let then_body = self.b.close();
            let first = self.shared.other_arm(flow);
            self.shared.leave_choice(first);
            self.b.loc = loc;
            self.b.emit(DeviceOp::If { cond: again, then_body, else_body: Vec::new() });
            again
        });
        if self.shared.round_collides() {
            self.barrier();
        }
        let body = self.b.close();
        self.shared.leave_loop(outer);
        self.contents = kept;
        self.order = order::join(before, self.order);
        self.b.loc = loc;
        self.b.emit(DeviceOp::Repeat { body, again: again? });
        Ok(())
    }

    /// The number of a round, of which more is known than of a ticket.
    fn bind_ticket(&mut self, var: ValueId, number: FragId, count: &Linear) {
        let x = Arg::whole(number);
        let frag = self.b.define(DType::I32, 1, |dst| DeviceOp::Copy { dst, x });
        if let Ok(hi) = i64::try_from(self.b.range(count).1 - 1) {
            self.b.learn((frag, 0), Fact { lo: 0, hi: hi.max(0), multiple: 1 });
        }
        self.values.insert(var, Repr::Int(Linear::register((frag, 0))));
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
        self.b.emit(DeviceOp::Store { src: Arg::whole(next), place, vectors, update: None, cache });
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

//! Cuts the elements that one thread moves into memory instructions.

use kernel_abi::DType;

use super::builder::{Builder, Pred, fits};
use super::linear::{Linear, Reg, power_of_two};
use crate::device::{Address, Vector};
use crate::layout::Swizzle;
use crate::ops::BinaryOp;

/// Bytes of the widest load or store of one thread.
pub(super) const VECTOR_BYTES: u32 = 16;

/// One element that a thread moves.
#[derive(Debug, Clone, Default)]
pub(super) struct Cell {
    /// Its place, in elements.
    pub(super) offset: Linear,
    /// It is present where all of these hold.
    pub(super) checks: Vec<Check>,
    /// What permutes the places of the region, in elements.
    pub(super) swizzle: Option<Swizzle>,
}

impl Cell {
    /// An element that is always present.
    pub(super) fn at(offset: Linear) -> Cell {
        Cell { offset, checks: Vec::new(), swizzle: None }
    }
}

/// `margin > 0`. Where the margin is `bound - position`, both are kept, since the difference may need more
/// bits than they do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Check {
    pub(super) margin: Linear,
    pub(super) parts: Option<(Linear, Linear)>,
}

/// How elements are moved: operation element `i` is cell `order[i]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) order: Vec<usize>,
    /// First operation element and length of each instruction.
    pub(super) pieces: Vec<(usize, usize)>,
}

impl Cut {
    /// Each cell by an instruction of its own.
    pub(super) fn of_single(cells: usize) -> Cut {
        let order: Vec<usize> = (0..cells).collect();
        Cut { pieces: order.iter().map(|&cell| (cell, 1)).collect(), order }
    }

    /// True where operation elements are the cells in order.
    pub(super) fn in_order(&self) -> bool {
        self.order.iter().enumerate().all(|(i, &cell)| i == cell)
    }
}

impl Builder<'_> {
    /// The fewest instructions: cells in their own order, else sorted by address.
    pub(super) fn cut(&self, cells: &[Cell], dtype: DType) -> Cut {
        let own: Vec<usize> = (0..cells.len()).collect();
        let pieces = self.pieces(cells, &own, dtype);
        let mut sorted = own.clone();
        sorted.sort_by(|&a, &b| {
            let key = |i: usize| (&cells[i].offset.terms, cells[i].offset.constant, i);
            key(a).cmp(&key(b))
        });
        let better = self.pieces(cells, &sorted, dtype);
        if better.len() < pieces.len() {
            Cut { order: sorted, pieces: better }
        } else {
            Cut { order: own, pieces }
        }
    }

    fn pieces(&self, cells: &[Cell], order: &[usize], dtype: DType) -> Vec<(usize, usize)> {
        let widest = (VECTOR_BYTES * 8 / dtype.bits()) as usize;
        let mut pieces = Vec::new();
        let mut at = 0;
        while at < order.len() {
            let mut len = widest;
            while len > 1 && !self.is_vector(cells, &order[at..], len) {
                len /= 2;
            }
            pieces.push((at, len));
            at += len;
        }
        pieces
    }

    /// True where the first `len` cells are one aligned vector that is present or absent as a whole.
    fn is_vector(&self, cells: &[Cell], order: &[usize], len: usize) -> bool {
        let Some(order) = order.get(..len) else { return false };
        let first = &cells[order[0]];
        if power_of_two(self.multiple(&first.offset)) < len as u64 {
            return false;
        }
        order.iter().enumerate().skip(1).all(|(i, &cell)| {
            let cell = &cells[cell];
            let next = first.offset.offset(i as i64);
            next.as_ref() == Some(&cell.offset)
                && cell.checks.len() == first.checks.len()
                && cell.checks.iter().zip(&first.checks).all(|(check, leader)| {
                    check == leader || self.share_presence(leader, check, len)
                })
        })
    }

    /// True where two checks fall together: the margin shrinks by less than `len` and the first is a multiple
    /// of `len`.
    fn share_presence(&self, leader: &Check, check: &Check, len: usize) -> bool {
        let Some(step) = leader.margin.plus(-1, &check.margin).and_then(|d| d.as_constant()) else {
            return false;
        };
        let len = len as i64;
        (0..len).contains(&step) && power_of_two(self.multiple(&leader.margin)) >= len as u64
    }

    /// The instructions of a cut. `offsets` is the type of run-time offsets; `extra` must hold as well.
    pub(super) fn vectors(
        &mut self,
        cells: &[Cell],
        cut: &Cut,
        offsets: DType,
        extra: Pred,
    ) -> Vec<Vector> {
        let mut vectors = Vec::with_capacity(cut.pieces.len());
        for &(first, len) in &cut.pieces {
            let cell = &cells[cut.order[first]];
            let presence = self.presence(cell);
            let predicate = match self.and(extra, presence) {
                Pred::Always => None,
                Pred::Never => Some(self.truth(false)),
                Pred::When(reg) => Some(reg),
            };
            let Address { offset, constant } = self.address(cell, offsets);
            vectors.push(Vector {
                first: first as u32,
                len: len as u32,
                offset,
                constant,
                predicate,
            });
        }
        vectors
    }

    /// The place of a cell in its region.
    pub(super) fn address(&mut self, cell: &Cell, offsets: DType) -> Address {
        let (offset, constant) = match cell.swizzle {
            Some(swizzle) => self.swizzled(&cell.offset, swizzle, offsets),
            None => {
                let variable = cell.offset.variable();
                let is_constant = variable.terms.is_empty();
                let offset = (!is_constant).then(|| self.materialize(&variable, offsets));
                (offset, cell.offset.constant)
            }
        };
        Address { offset, constant }
    }

    /// Run-time part and constant of a place that a swizzle permutes. What the pattern does not see, whole
    /// periods, stays outside.
    fn swizzled(&mut self, place: &Linear, swizzle: Swizzle, offsets: DType) -> (Option<Reg>, i64) {
        let (bits, base, shift) = swizzle.parameters();
        let period = 1i64 << (bits + base + shift.unsigned_abs());
        let whole = place.constant.div_euclid(period) * period;
        let within = Linear { terms: place.terms.clone(), constant: place.constant - whole };
        let variable = within.variable();
        let steps = power_of_two(self.multiple(&variable));
        if variable.terms.is_empty() || steps >= period as u64 {
            let offset = (!variable.terms.is_empty()).then(|| self.materialize(&variable, offsets));
            return (offset, swizzle.apply(within.constant) + whole);
        }
        let x = self.materialize(&within, offsets);
        let distance = self.int(offsets, i64::from(shift));
        let mask = self.int(offsets, ((1i64 << bits) - 1) << base);
        let line = self.binary(BinaryOp::Shr, x, distance, offsets);
        let line = self.binary(BinaryOp::And, line, mask, offsets);
        (Some(self.binary(BinaryOp::Xor, x, line, offsets)), whole)
    }

    /// Whether an element is present.
    pub(super) fn presence(&mut self, cell: &Cell) -> Pred {
        cell.checks.iter().fold(Pred::Always, |all, check| {
            let one = self.holds(check);
            self.and(all, one)
        })
    }

    fn holds(&mut self, check: &Check) -> Pred {
        use crate::ops::CompareOp::{Gt, Lt};
        let (lo, hi) = self.range(&check.margin);
        if lo > 0 {
            return Pred::Always;
        }
        if hi <= 0 {
            return Pred::Never;
        }
        // The constant part goes to the other side, so that neighbours share one run-time form.
        let variable = check.margin.variable();
        let against = check.margin.constant.checked_neg().map(Linear::constant);
        if let Some(against) = &against
            && fits(self.range(&variable), DType::I32)
            && fits(self.range(against), DType::I32)
        {
            return self.int_compare(Gt, &variable, against, DType::I32);
        }
        if let Some((position, bound)) = &check.parts
            && fits(self.range(position), DType::I32)
            && fits(self.range(bound), DType::I32)
        {
            return self.int_compare(Lt, position, bound, DType::I32);
        }
        self.int_compare(Gt, &check.margin, &Linear::constant(0), DType::I64)
    }
}

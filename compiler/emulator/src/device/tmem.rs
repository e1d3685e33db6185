//! Tensor memory at device level: products read their operands when the round is complete that they are committed to.

use std::sync::Arc;

use kernel_abi::{DType, numeric};
use kernel_ir::device::{
    Address, FragId, LocId, Matrix, ProductStart, TensorOp, TensorProduct, Vector,
};
use kernel_ir::distribution::LANES;
use kernel_ir::index::Id;
use kernel_ir::kernel::{BarrierId, TENSOR_WARPS, TensorAtom};
use kernel_ir::ops::{Elements, mma, wgmma};

use super::Machine;
use super::registers::Registers;
use super::shared::Shared;
use crate::error::{EmuError, ErrorKind};
use crate::roles::Late;
use crate::tmem::{Factors, ROWS, TensorMemory};

/// Bytes that lie together whatever the swizzle.
const PIECE_BYTES: usize = 16;

/// A matrix in shared memory: its pieces, row by row.
struct Operand {
    pieces: Vec<i64>,
    /// What would have been read when the product started.
    seen: Vec<u8>,
}

/// A product that is not committed yet.
struct Product {
    operands: [Operand; 2],
    columns: (i64, usize),
    dtype: DType,
    from_zero: bool,
    span: kernel_dsl::source::Span,
}

/// What the threads have under way in tensor memory, and the fences that they still have to pass.
#[derive(Default)]
pub(super) struct Flights {
    products: Vec<Product>,
    /// All that the role has started, for those who write what they read.
    started: Vec<Arc<Late>>,
    /// They have waited since the last fence: what others did in tensor memory is not ordered yet.
    pub(super) waited: bool,
    /// They have loaded since the last fence: others may not rely on that being done.
    pub(super) loaded: bool,
}

impl<'k> Machine<'k> {
    pub(super) fn tensor(&mut self, op: &'k TensorOp, loc: LocId) -> Result<(), EmuError> {
        self.uniform_only("tensor memory", loc)?;
        match op {
            TensorOp::Allocate { columns, .. } => {
                self.member.own().tensor = TensorMemory::new(*columns as usize);
            }
            TensorOp::Free { .. } => self.member.own().tensor = TensorMemory::default(),
            TensorOp::Attach { .. } => {}
            TensorOp::FenceBefore => self.flights.loaded = false,
            TensorOp::FenceAfter => self.flights.waited = false,
            TensorOp::Product(product) => self.begin_tensor(product, loc)?,
            TensorOp::Load { dst, column } => self.load_tensor(*dst, *column, loc)?,
        }
        Ok(())
    }

    /// The role ends.
    pub(super) fn end_tensor(&self) -> Result<(), EmuError> {
        let Some(product) = self.flights.products.first() else { return Ok(()) };
        let message = "a product that is never committed";
        Err(EmuError::new(ErrorKind::Phase, product.span, message))
    }

    fn fenced(&self, missing: bool, what: &str, loc: LocId) -> Result<(), EmuError> {
        if !missing {
            return Ok(());
        }
        let message = format!("{what} without a fence of tensor memory");
        Err(EmuError::new(ErrorKind::RoleRace, self.span(loc), message))
    }

    /// Threads may not arrive anywhere with loads that no fence stands behind.
    pub(super) fn before_arrival(&self, loc: LocId) -> Result<(), EmuError> {
        self.fenced(self.flights.loaded, "an arrival after loads", loc)
    }

    fn column(&self, at: Address, t: usize, loc: LocId) -> Result<i64, EmuError> {
        let Address { offset, constant } = at;
        self.start(&Vector { first: 0, len: 1, offset, constant, predicate: None }, t, loc)
    }

    fn load_tensor(&mut self, dst: FragId, column: Address, loc: LocId) -> Result<(), EmuError> {
        self.fenced(self.flights.waited, "a load", loc)?;
        let (count, span) = (self.kernel.frags[dst].len as usize, self.span(loc));
        let mut values = vec![0.0; count * self.threads];
        for t in 0..self.threads {
            let thread = self.first_thread + t;
            let (warp, lane) = (thread as u32 / LANES, thread as u32 % LANES);
            let row = (warp % TENSOR_WARPS * LANES + lane) as usize;
            let first = self.column(column, t, loc)?;
            let by = self.by(t, span);
            let tensor = &mut self.member.own().tensor;
            let own = tensor.read(first, count, row..row + 1, by.clock, by.names, span);
            for (i, value) in own.map_err(|e| e.thread(t))?.into_iter().enumerate() {
                values[i * self.threads + t] = value;
            }
        }
        self.flights.loaded = true;
        self.set(dst, Registers::defined(Elements::from_f32(&values)));
        Ok(())
    }

    fn begin_tensor(&mut self, product: &TensorProduct, loc: LocId) -> Result<(), EmuError> {
        self.fenced(self.flights.waited, "a product", loc)?;
        let span = self.span(loc);
        let rows = [TensorAtom::ROWS, product.n];
        let operands = [
            self.tensor_operand(&product.a, rows[0], product.dtype, loc)?,
            self.tensor_operand(&product.b, rows[1], product.dtype, loc)?,
        ];
        let from_zero = match product.start {
            ProductStart::Sums => false,
            ProductStart::Zero => true,
            ProductStart::When((frag, element)) => self.code(frag, element, 0, loc)? == 0,
        };
        let columns = (self.column(product.column, 0, loc)?, product.n as usize);
        let by = self.by(0, span);
        let mut shared = self.member.own();
        shared.tensor.begin(columns.0, columns.1, by.clock, by.names, span)?;
        let late = Late::new(by.clock, span);
        for piece in operands.iter().flat_map(|operand| &operand.pieces) {
            shared.read_late(*piece, PIECE_BYTES, by, &late);
        }
        drop(shared);
        self.flights.started.push(late);
        let depth = operands[0].seen.len() * 8 / product.dtype.bits() as usize;
        self.flops += (2 * depth * columns.1) as u64;
        let dtype = product.dtype;
        self.flights.products.push(Product { operands, columns, dtype, from_zero, span });
        Ok(())
    }

    fn tensor_operand(
        &mut self,
        matrix: &Matrix,
        rows: u32,
        dtype: DType,
        loc: LocId,
    ) -> Result<Operand, EmuError> {
        let size = i64::from(dtype.bits() / 8);
        let start = self.column(matrix.at, 0, loc)? * size;
        let by = self.by(0, self.span(loc));
        let mut operand = Operand { pieces: Vec::new(), seen: Vec::new() };
        for row in 0..i64::from(rows) {
            for piece in 0..i64::from(TensorAtom::DEPTH_BYTES) / PIECE_BYTES as i64 {
                let at = start + row * i64::from(matrix.line) + piece * PIECE_BYTES as i64;
                let at = wgmma::swizzled(u64::try_from(at).unwrap_or(u64::MAX / 2), matrix.line);
                let at = i64::from(matrix.base).saturating_add_unsigned(at);
                let mut bytes = [0; PIECE_BYTES];
                self.member.own().read_for_product(at, &mut bytes, by)?;
                operand.pieces.push(at);
                operand.seen.extend(bytes);
            }
        }
        Ok(operand)
    }

    /// The first thread commits the products so far.
    pub(super) fn commit_tensor(
        &mut self,
        barrier: BarrierId,
        slot: (FragId, u32),
        loc: LocId,
    ) -> Result<(), EmuError> {
        let (post, seat) = self.post();
        let (place, span) = (self.slot_of(barrier, slot, loc)?, self.span(loc));
        let round = post.pipes.stamp(place, span);
        let products = std::mem::take(&mut self.flights.products);
        self.member.own().tensor.commit(&self.clock, round);
        self.flights.started.iter().for_each(|late| late.commit(round));
        let land = move |shared: &mut Shared| -> Result<(), EmuError> {
            products.iter().try_for_each(|product| product.complete(shared))
        };
        let by = (post.role.index(), &self.clock);
        post.pipes.commit(self.member.rank(), place, by, span, Box::new(land));
        seat.pass(span)
    }
}

impl Product {
    fn complete(&self, shared: &mut Shared) -> Result<(), EmuError> {
        for Operand { pieces, seen } in &self.operands {
            let now = pieces.iter().zip(seen.chunks(PIECE_BYTES));
            if now.into_iter().any(|(&at, seen)| !shared.holds(at, seen)) {
                let message = "shared memory is written while a product may still read it";
                return Err(EmuError::new(ErrorKind::SharedRace, self.span, message));
            }
        }
        let [a, b] = [&self.operands[0], &self.operands[1]].map(|operand| {
            let count = operand.seen.len() * 8 / self.dtype.bits() as usize;
            let codes = (0..count).map(|i| {
                numeric::read_element(self.dtype, &operand.seen, i)
                    .expect("the element lies inside")
            });
            mma::floats(&Elements::from_codes(self.dtype, codes))
        });
        let depth = a.len() / ROWS;
        let factors = Factors { a, b, depth, step: depth, from_zero: self.from_zero };
        shared.tensor.multiply(self.columns.0, self.columns.1, &factors, self.span)
    }
}

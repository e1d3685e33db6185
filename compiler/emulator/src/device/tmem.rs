//! Tensor memory at device level: products read their operands when the round is complete that they are committed to.

use std::sync::Arc;

use kernel_abi::DType;
use kernel_dsl::source::Span;
use kernel_ir::device::{
    Address, FragId, LocId, Matrix, ProductStart, TensorLeft, TensorOp, TensorProduct,
    TensorScales, Vector,
};
use kernel_ir::distribution::LANES;
use kernel_ir::index::Id;
use kernel_ir::kernel::{
    BarrierId, SCALE_GROUP, SCALE_WORD, TENSOR_WARPS, TensorAtom, scale_place, stored,
};
use kernel_ir::ops::{Elements, wgmma};

use super::Machine;
use super::products::elements;
use super::registers::Registers;
use super::shared::{By, Shared};
use crate::cluster::Member;
use crate::error::{EmuError, ErrorKind};
use crate::pipes::HasRounds;
use crate::record::Noted;
use crate::roles::{Clock, Late};
use crate::tmem::{Factors, TensorMemory, halves, joined};

/// Bytes that lie together whatever the swizzle.
const PIECE_BYTES: usize = 16;

/// A matrix in shared memory: its pieces, row by row.
struct Operand {
    pieces: Vec<i64>,
    /// What would have been read when the product started.
    seen: Vec<u8>,
}

/// A left operand: in shared memory, or in columns of tensor memory from one on.
enum Left {
    Shared(Operand),
    Tensor { first: i64, count: usize },
}

impl Left {
    fn of_shared(&self) -> Option<&Operand> {
        match self {
            Left::Shared(operand) => Some(operand),
            Left::Tensor { .. } => None,
        }
    }
}

/// What one thread of a CTA knows of a CTA.
#[derive(Clone, Copy)]
struct View<'a> {
    cta: usize,
    clock: &'a Clock,
}

/// A copy of scales that is not committed yet.
struct Scales {
    column: u32,
    /// Of each CTA that copies: its rank, and the words of its rows, one after the other.
    words: Vec<(usize, Operand)>,
    span: Span,
}

/// What the first thread of a role has started, to be done in that order.
enum Started {
    Scales(Scales),
    Product(Product),
}

/// A product that is not committed yet.
struct Product {
    /// Of each CTA that shares it: its rank, and its part of the operands.
    operands: Vec<(usize, (Left, Operand))>,
    columns: (i64, usize),
    rows: usize,
    types: [DType; 2],
    from_zero: bool,
    scales: Option<TensorScales>,
    folded: bool,
    span: Span,
}

/// What the threads have under way in tensor memory, and the fences that they still have to pass.
#[derive(Default)]
pub(super) struct Flights {
    products: Vec<Started>,
    /// Products that another CTA shares are among them.
    pair: bool,
    /// All that the role has started, for those who write what they read.
    started: Vec<Arc<Late>>,
    /// The same for the recorder.
    noted: Noted,
    /// They have waited since the last fence: what others did in tensor memory is not ordered yet.
    pub(super) waited: bool,
    /// They have loaded or stored since the last fence: others may not rely on that being done.
    pub(super) loaded: bool,
}

impl<'k> Machine<'k> {
    pub(super) fn tensor(&mut self, op: &'k TensorOp, loc: LocId) -> Result<(), EmuError> {
        self.uniform_only("tensor memory", loc)?;
        match op {
            TensorOp::Allocate { pair: true, .. } if self.meetings == 0 => {
                let message = "tensor memory is allocated before the CTAs of the pair have met";
                return Err(EmuError::new(ErrorKind::ClusterRace, self.span(loc), message));
            }
            TensorOp::Allocate { columns, .. } => {
                self.member.own().tensor = TensorMemory::new(*columns as usize, self.meetings);
            }
            TensorOp::Free { pair, .. } => {
                for cta in self.member.targets(*pair) {
                    if cta != self.member.rank()
                        && !self.member.shared(cta).tensor.may_go(self.meetings)
                    {
                        let message =
                            "tensor memory is given back that the other CTA of the pair may use";
                        return Err(EmuError::new(ErrorKind::ClusterRace, self.span(loc), message));
                    }
                }
                self.member.own().tensor.free(self.meetings);
            }
            TensorOp::Attach { .. } => {}
            TensorOp::FenceBefore => self.flights.loaded = false,
            TensorOp::FenceAfter => self.flights.waited = false,
            TensorOp::CopyScales { column, base, at, rows, pair } => {
                self.fenced(self.flights.waited, "a copy of scales", loc)?;
                let from = i64::from(*base) + self.column(*at, 0, loc)?;
                self.begin_scales(*column, from, (*rows, *pair), loc)?;
            }
            TensorOp::Product(product) => self.begin_tensor(product, loc)?,
            TensorOp::Store { src, column } => self.store_tensor(*src, *column, loc)?,
            TensorOp::Load { dst, rows, column } => self.load_tensor(*dst, *rows, *column, loc)?,
        }
        Ok(())
    }

    /// The role ends.
    pub(super) fn end_tensor(&self) -> Result<(), EmuError> {
        let Some(started) = self.flights.products.first() else { return Ok(()) };
        let span = match started {
            Started::Scales(scales) => scales.span,
            Started::Product(product) => product.span,
        };
        Err(EmuError::new(ErrorKind::Phase, span, "a product that is never committed"))
    }

    fn fenced(&self, missing: bool, what: &str, loc: LocId) -> Result<(), EmuError> {
        if !missing {
            return Ok(());
        }
        let message = format!("{what} without a fence of tensor memory");
        Err(EmuError::new(ErrorKind::RoleRace, self.span(loc), message))
    }

    /// Threads may not arrive anywhere with loads or stores that no fence stands behind.
    pub(super) fn before_arrival(&self, loc: LocId) -> Result<(), EmuError> {
        self.fenced(self.flights.loaded, "an arrival after loads and stores", loc)
    }

    fn column(&self, at: Address, t: usize, loc: LocId) -> Result<i64, EmuError> {
        let Address { offset, constant } = at;
        self.start(&Vector { first: 0, len: 1, offset, constant, predicate: None }, t, loc)
    }

    fn load_tensor(
        &mut self,
        dst: FragId,
        rows: u32,
        column: Address,
        loc: LocId,
    ) -> Result<(), EmuError> {
        self.fenced(self.flights.waited, "a load", loc)?;
        let (count, span) = (self.kernel.frags[dst].len as usize, self.span(loc));
        let mut values = vec![0.0; count * self.threads];
        for t in 0..self.threads {
            let thread = self.first_thread + t;
            let (warp, lane) = (thread as u32 / LANES, thread as u32 % LANES);
            let first = self.column(column, t, loc)?;
            // Neighbouring columns of one row each.
            let runs: Vec<(u32, i64, usize)> = if rows == TensorAtom::HALF {
                let row = warp % TENSOR_WARPS * 16 + lane / 4;
                let pair = |i: usize| (first + (8 * i) as i64 + i64::from(lane % 4 * 2), 2);
                let pairs = |row: u32| (0..count / 4).map(move |i| (row, pair(i).0, pair(i).1));
                pairs(row).chain(pairs(row + 8)).collect()
            } else {
                vec![(warp % TENSOR_WARPS * LANES + lane, first, count)]
            };
            let mut place = t;
            for (row, first, count) in runs {
                let (by, row) = (self.by(t, span), row as usize);
                let tensor = &mut self.member.own().tensor;
                tensor.touch(self.meetings);
                let own = tensor.read(first, count, row..row + 1, by.clock, by.names, span);
                for value in own.map_err(|e| e.thread(t))? {
                    values[place] = value;
                    place += self.threads;
                }
            }
        }
        self.flights.loaded = true;
        self.set(dst, Registers::defined(Elements::from_f32(&values)));
        Ok(())
    }

    fn store_tensor(&mut self, src: FragId, column: Address, loc: LocId) -> Result<(), EmuError> {
        self.fenced(self.flights.waited, "a store", loc)?;
        let (len, span) = (self.kernel.frags[src].len, self.span(loc));
        for t in 0..self.threads {
            let thread = (self.first_thread + t) as u32;
            let row = (thread / LANES % TENSOR_WARPS * LANES + thread % LANES) as usize;
            let first = self.column(column, t, loc)?;
            let codes: Result<Vec<u64>, EmuError> =
                (0..len).map(|element| self.code(src, element, t, loc)).collect();
            let (by, words) = (self.by(t, span), joined(&codes?));
            let tensor = &mut self.member.own().tensor;
            tensor.touch(self.meetings);
            let own = tensor.store(first, row..row + 1, &words, by.clock, by.names, span);
            own.map_err(|e| e.thread(t))?;
        }
        self.flights.loaded = true;
        Ok(())
    }

    fn begin_scales(
        &mut self,
        column: u32,
        from: i64,
        (rows, pair): (u32, bool),
        loc: LocId,
    ) -> Result<(), EmuError> {
        let span = self.span(loc);
        let own = self.member.rank();
        let across = self.member.own().rounds().other_of(&self.clock);
        let late = Late::new(&self.clock, span);
        let mut words = Vec::new();
        for cta in self.member.targets(pair) {
            let by = self.by(0, span);
            let by = By { clock: if cta == own { &self.clock } else { &across }, ..by };
            let mut part = Operand { pieces: Vec::new(), seen: Vec::new() };
            let mut shared = self.member.shared(cta);
            if !shared.tensor.is_met(own == cta, self.meetings) {
                return Err(not_met("a copy of scales", span));
            }
            shared.tensor.touch(self.meetings);
            for row in 0..rows {
                let at = from + i64::from(scale_place(row, 0));
                let mut bytes = [0; SCALE_WORD as usize];
                shared.read_published(at, &mut bytes, by, "a product")?;
                shared.read_late(at, bytes.len(), by, &late);
                part.pieces.push(at);
                part.seen.extend(bytes);
            }
            words.push((cta, part));
        }
        self.flights.started.push(late);
        self.flights.pair |= pair;
        for (cta, part) in &words {
            let pieces = part.pieces.iter().map(|&at| (at, SCALE_WORD as usize));
            let noted = self.note_reads((0..1, *cta), pieces, loc);
            self.flights.noted.extend(noted);
        }
        self.flights.products.push(Started::Scales(Scales { column, words, span }));
        Ok(())
    }

    fn begin_tensor(&mut self, product: &TensorProduct, loc: LocId) -> Result<(), EmuError> {
        self.fenced(self.flights.waited, "a product", loc)?;
        let span = self.span(loc);
        let [left, right] = product.types;
        let own = self.member.rank();
        let across = self.member.own().rounds().other_of(&self.clock);
        let ctas = self.member.targets(product.pair);
        let shares = ctas.len().max(1) as u32;
        let mut operands = Vec::new();
        for cta in ctas {
            let view = View { cta, clock: if cta == own { &self.clock } else { &across } };
            let a = match &product.a {
                TensorLeft::Shared(a) => {
                    Left::Shared(self.tensor_operand(a, product.m / shares, left, view, loc)?)
                }
                TensorLeft::Tensor(at) => {
                    let first = self.column(*at, 0, loc)?;
                    Left::Tensor { first, count: TensorAtom::DEPTH_BYTES as usize / 4 }
                }
            };
            let b = self.tensor_operand(&product.b, product.n / shares, right, view, loc)?;
            operands.push((cta, (a, b)));
        }
        let from_zero = match product.start {
            ProductStart::Sums => false,
            ProductStart::Zero => true,
            ProductStart::When((frag, element)) => self.code(frag, element, 0, loc)? == 0,
        };
        let columns = (self.column(product.column, 0, loc)?, product.columns() as usize);
        let late = Late::new(&self.clock, span);
        for (cta, (a, b)) in &operands {
            let by = self.by(0, span);
            let by = By { clock: if *cta == own { &self.clock } else { &across }, ..by };
            let mut shared = self.member.shared(*cta);
            if !shared.tensor.is_met(own == *cta, self.meetings) {
                return Err(not_met("a product", span));
            }
            shared.tensor.begin(columns.0, columns.1, by.clock, by.names, span)?;
            if let Left::Tensor { first, count } = a {
                shared.tensor.use_left(*first, *count, by.clock, by.names, span)?;
            }
            shared.tensor.touch(self.meetings);
            for piece in a.of_shared().into_iter().chain([b]).flat_map(|operand| &operand.pieces) {
                shared.read_late(*piece, PIECE_BYTES, by, &late);
            }
        }
        self.flights.started.push(late);
        self.flights.pair |= product.pair;
        for (cta, (a, b)) in &operands {
            let pieces = a.of_shared().into_iter().chain([b]).flat_map(|operand| &operand.pieces);
            let noted = self.note_reads((0..1, *cta), pieces.map(|&at| (at, PIECE_BYTES)), loc);
            self.flights.noted.extend(noted);
        }
        let bytes: usize = operands.iter().map(|(_, (_, b))| b.seen.len()).sum();
        let elements = bytes * 8 / right.bits() as usize;
        self.flops += (2 * elements * product.m as usize) as u64;
        let (rows, types) = ((product.m / shares) as usize, product.types);
        let (scales, folded) = (product.scales, product.folds());
        let product = Product { operands, columns, rows, types, from_zero, scales, folded, span };
        self.flights.products.push(Started::Product(product));
        Ok(())
    }

    fn tensor_operand(
        &self,
        matrix: &Matrix,
        rows: u32,
        dtype: DType,
        view: View<'_>,
        loc: LocId,
    ) -> Result<Operand, EmuError> {
        let size = i64::from(stored(dtype).bits() / 8);
        let start = self.column(matrix.at, 0, loc)? * size;
        let by = By { clock: view.clock, ..self.by(0, self.span(loc)) };
        let mut operand = Operand { pieces: Vec::new(), seen: Vec::new() };
        for row in 0..i64::from(rows) {
            for piece in 0..i64::from(TensorAtom::DEPTH_BYTES) / PIECE_BYTES as i64 {
                let at = start + row * i64::from(matrix.line) + piece * PIECE_BYTES as i64;
                let at = wgmma::swizzled(u64::try_from(at).unwrap_or(u64::MAX / 2), matrix.line);
                let at = i64::from(matrix.base).saturating_add_unsigned(at);
                let mut bytes = [0; PIECE_BYTES];
                let mut shared = self.member.shared(view.cta);
                shared.read_published(at, &mut bytes, by, "a product")?;
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
        everywhere: bool,
        loc: LocId,
    ) -> Result<(), EmuError> {
        let (post, seat) = self.post();
        let (place, span) = (self.slot_of(barrier, slot, loc)?, self.span(loc));
        self.note_commit(place, everywhere, &self.flights.noted);
        let round = post.pipes.stamp(place, span);
        let products = std::mem::take(&mut self.flights.products);
        let own = self.member.rank();
        let across = self.clock.elsewhere(Vec::new());
        for cta in self.member.targets(self.flights.pair) {
            let clock = if cta == own { &self.clock } else { &across };
            self.member.shared(cta).tensor.commit(clock, round);
        }
        self.flights.started.iter().for_each(|late| late.commit(round));
        let complete = move |member: Member<'_, Shared>| -> Result<(), EmuError> {
            products.iter().try_for_each(|started| match started {
                Started::Scales(scales) => scales.complete(member),
                Started::Product(product) => product.complete(member),
            })
        };
        let by = (post.role.index(), &self.clock);
        post.pipes.commit(own, (place, everywhere), by, span, Box::new(complete));
        seat.pass(span)
    }
}

impl Operand {
    /// An error where its bytes, so many a piece, are no longer what they were.
    fn is_still(&self, shared: &Shared, bytes: usize, span: Span) -> Result<(), EmuError> {
        let mut now = self.pieces.iter().zip(self.seen.chunks(bytes));
        if now.all(|(&at, seen)| shared.holds(at, seen)) {
            return Ok(());
        }
        let message = "shared memory is written while a product may still read it";
        Err(EmuError::new(ErrorKind::SharedRace, span, message))
    }
}

impl Scales {
    fn complete(&self, member: Member<'_, Shared>) -> Result<(), EmuError> {
        for (cta, words) in &self.words {
            let mut shared = member.shared(*cta);
            words.is_still(&shared, SCALE_WORD as usize, self.span)?;
            shared.tensor.set_scales(self.column, &words.seen, self.span)?;
        }
        Ok(())
    }
}

fn not_met(what: &str, span: Span) -> EmuError {
    let message =
        format!("{what} before the other CTA of the pair is known to have its tensor memory");
    EmuError::new(ErrorKind::ClusterRace, span, message)
}

impl Product {
    /// Every CTA gets its rows of the left operand times all of the right one.
    fn complete(&self, member: Member<'_, Shared>) -> Result<(), EmuError> {
        for (cta, (a, b)) in &self.operands {
            let shared = member.shared(*cta);
            for operand in a.of_shared().into_iter().chain([b]) {
                operand.is_still(&shared, PIECE_BYTES, self.span)?;
            }
        }
        let [left, right] = self.types;
        let of = |dtype, operand: &Operand| wgmma::factors(&elements(dtype, &operand.seen));
        let right: Vec<f64> = self.operands.iter().flat_map(|(_, (_, b))| of(right, b)).collect();
        for (cta, (a, _)) in &self.operands {
            let mut shared = member.shared(*cta);
            let mut a = match a {
                Left::Shared(a) => of(left, a),
                &Left::Tensor { first, count } => {
                    let words = shared.tensor.words(first, count, self.rows, self.span)?;
                    wgmma::factors(&halves(left, &words))
                }
            };
            let mut b = right.clone();
            let depth = a.len() / self.rows;
            if let Some(TensorScales { columns: [of_a, of_b], byte }) = self.scales {
                let groups = depth / SCALE_GROUP as usize;
                for (factors, column) in [(&mut a, of_a), (&mut b, of_b)] {
                    let rows = factors.len() / depth;
                    let codes = shared.tensor.scales(column, byte, rows, groups, self.span)?;
                    let scales = wgmma::factors(&elements(DType::Ue8m0, &codes));
                    wgmma::scale(factors, &scales, SCALE_GROUP as usize);
                }
            }
            let (from_zero, folded) = (self.from_zero, self.folded);
            let factors = Factors { a, b, depth, step: depth, from_zero, folded };
            shared.tensor.multiply(self.columns.0, self.columns.1, &factors, self.span)?;
        }
        Ok(())
    }
}

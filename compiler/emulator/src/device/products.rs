//! Products of a warpgroup: they read their operands when a wait says that they are complete, and not before.

use std::collections::VecDeque;
use std::rc::Rc;

use kernel_abi::{DType, numeric};
use kernel_ir::device::{
    Factor, FragId, LocId, Matrix, ProductStart, SlotId, Vector, WarpgroupOp, WarpgroupProduct,
};
use kernel_ir::distribution::LANES;
use kernel_ir::kernel::WgmmaAtom;
use kernel_ir::ops::{Elements, wgmma};

use super::Machine;
use super::registers::{Registers, some_if_any};
use crate::error::{EmuError, ErrorKind};
use crate::record::Noted;

/// Elements of a row that one instruction reads, in bytes.
const ROW_BYTES: usize = WgmmaAtom::DEPTH_BYTES as usize;

/// Bytes that lie together in shared memory whatever the swizzle.
const PIECE_BYTES: usize = 16;

/// The pieces of a matrix from byte `start` of its tile: the first row and byte of a row that each holds, and where it
/// lies. A piece is of one row, or, of a matrix that lies across, of one byte of eight rows.
fn pieces(matrix: &Matrix, rows: u32, start: i64) -> Vec<((usize, usize), i64)> {
    let place = |further: usize| {
        let at = start.saturating_add_unsigned(further as u64);
        let at = wgmma::swizzled(u64::try_from(at).unwrap_or(u64::MAX / 2), matrix.line);
        i64::from(matrix.base).saturating_add_unsigned(at)
    };
    let (line, rows) = (matrix.line as usize, rows as usize);
    if let Some(block) = matrix.across {
        let of = |k: usize, first: usize| {
            let column = first * 2;
            let (blocks, within) = match block {
                0 => (0, column),
                _ => (column / line, column % line),
            };
            ((first, k * 2), place(k * line + blocks * block as usize + within))
        };
        let all = (0..ROW_BYTES / 2).flat_map(|k| (0..rows).step_by(8).map(move |row| (k, row)));
        return all.map(|(k, first)| of(k, first)).collect();
    }
    let all = (0..rows).flat_map(|row| (0..ROW_BYTES).step_by(PIECE_BYTES).map(move |c| (row, c)));
    all.map(|(row, column)| ((row, column), place(row * line + column))).collect()
}

/// The elements that lie in bytes.
pub(super) fn elements(dtype: DType, bytes: &[u8]) -> Elements {
    let count = bytes.len() * 8 / dtype.bits() as usize;
    let code = |i| numeric::read_element(dtype, bytes, i).expect("the bytes hold so many elements");
    Elements::from_codes(dtype, (0..count).map(code))
}

/// An instruction of one warpgroup under way.
struct Product<'k> {
    product: &'k WarpgroupProduct,
    /// First thread of the warpgroup.
    thread: usize,
    from_zero: bool,
    /// First byte of each operand in shared memory.
    starts: [i64; 2],
    /// What it would have read when it started.
    seen: [Vec<u8>; 2],
    noted: Noted,
    loc: LocId,
}

/// The products of all warpgroups.
#[derive(Default)]
pub(super) struct Products<'k> {
    open: Vec<Product<'k>>,
    /// Closed groups, oldest first.
    groups: VecDeque<Vec<Product<'k>>>,
    /// Fences that threads have passed which order what they wrote ahead of products.
    pub(super) fences: u32,
}

impl<'k> Machine<'k> {
    pub(super) fn warpgroup(&mut self, op: &'k WarpgroupOp, loc: LocId) -> Result<(), EmuError> {
        self.uniform_only("a product of a warpgroup", loc)?;
        match op {
            WarpgroupOp::ProxyFence => {
                self.products.fences += 1;
                self.member.own().fenced(self.clock.agent(), self.products.fences, self.meetings);
                self.note_proxy_fence();
            }
            WarpgroupOp::Fence { .. } => {}
            WarpgroupOp::Mma(product) => self.begin_product(product, loc)?,
            WarpgroupOp::Commit => {
                let group = std::mem::take(&mut self.products.open);
                self.products.groups.push_back(group);
            }
            WarpgroupOp::Wait { pending, .. } => {
                while self.products.groups.len() > *pending as usize {
                    for product in self.products.groups.pop_front().into_iter().flatten() {
                        self.complete(&product, loc)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// An error where a product may still add to the slot.
    pub(super) fn check_sums(&self, slot: SlotId, loc: LocId) -> Result<(), EmuError> {
        let mut all = self.products.groups.iter().flatten().chain(&self.products.open);
        let Some(found) = all.find(|p| p.product.slot == slot) else { return Ok(()) };
        let name = &self.kernel.slots[slot].name;
        let message = format!("use of `{name}` while a product may still add to it");
        Err(EmuError::new(ErrorKind::Poison, self.span(loc), message)
            .other(self.span(found.loc), "the product"))
    }

    fn begin_product(&mut self, product: &'k WarpgroupProduct, loc: LocId) -> Result<(), EmuError> {
        let size = (WgmmaAtom::WARPS * LANES) as usize;
        for thread in (0..self.threads).step_by(size) {
            let starts = self.matrix_starts(product, thread, loc)?;
            for other in thread..thread + size {
                if self.matrix_starts(product, other, loc)? != starts {
                    return Err(self.parted("a matrix of a warpgroup", loc).thread(other));
                }
            }
            let from_zero = match product.start {
                ProductStart::Sums => false,
                ProductStart::Zero => true,
                ProductStart::When((frag, element)) => self.code(frag, element, thread, loc)? == 0,
            };
            let noted = self.note_product(product, starts, thread, loc);
            let seen = [
                match &product.a {
                    Factor::Shared(a) => self.matrix(a, WgmmaAtom::ROWS, starts[0], thread, loc)?,
                    Factor::Registers { frag, elements } => {
                        self.left_registers(*frag, elements, thread, loc)?
                    }
                },
                self.matrix(&product.b, product.n, starts[1], thread, loc)?,
            ];
            let begun = Product { product, thread, from_zero, starts, seen, noted, loc };
            self.products.open.push(begun);
        }
        Ok(())
    }

    /// What a product reads of shared memory.
    fn note_product(
        &self,
        product: &WarpgroupProduct,
        starts: [i64; 2],
        thread: usize,
        loc: LocId,
    ) -> Noted {
        if self.recording().is_none() {
            return Noted::new();
        }
        let right = pieces(&product.b, product.n, starts[1]);
        let left = match &product.a {
            Factor::Shared(a) => pieces(a, WgmmaAtom::ROWS, starts[0]),
            Factor::Registers { .. } => Vec::new(),
        };
        let all = left.into_iter().chain(right).map(|(_, at)| (at, PIECE_BYTES));
        let threads = thread..thread + (WgmmaAtom::WARPS * LANES) as usize;
        self.note_reads((threads, self.member.rank()), all, loc)
    }

    /// The first byte of each matrix from the start of its tile.
    fn matrix_starts(
        &self,
        product: &WarpgroupProduct,
        thread: usize,
        loc: LocId,
    ) -> Result<[i64; 2], EmuError> {
        let start = |matrix: &Matrix, dtype: DType| {
            let (offset, constant) = (matrix.at.offset, matrix.at.constant);
            let at = Vector { first: 0, len: 1, offset, constant, predicate: None };
            Ok(self.start(&at, thread, loc)? * i64::from(dtype.bits() / 8))
        };
        let [left, right] = product.types;
        let left = match &product.a {
            Factor::Shared(a) => start(a, left)?,
            Factor::Registers { .. } => 0,
        };
        Ok([left, start(&product.b, right)?])
    }

    /// The bytes of a left operand in registers, row by row.
    fn left_registers(
        &self,
        frag: FragId,
        elements: &[u32],
        thread: usize,
        loc: LocId,
    ) -> Result<Vec<u8>, EmuError> {
        let mut bytes = vec![0; WgmmaAtom::ROWS as usize * ROW_BYTES];
        let lanes = LANES as usize;
        for t in 0..WgmmaAtom::WARPS as usize * lanes {
            let (warp, g, pair) = (t / lanes, t % lanes / 4, t % 4);
            for (i, &element) in elements.iter().enumerate() {
                let code = self.code(frag, element, thread + t, loc)?;
                let (row, k) = (16 * warp + g + 8 * (i / 2 % 2), 2 * pair + i % 2 + 8 * (i / 4));
                let at = row * ROW_BYTES + k * 2;
                bytes[at..at + 2].copy_from_slice(&(code as u16).to_le_bytes());
            }
        }
        Ok(bytes)
    }

    /// The bytes of a matrix, row by row.
    fn matrix(
        &mut self,
        matrix: &Matrix,
        rows: u32,
        start: i64,
        thread: usize,
        loc: LocId,
    ) -> Result<Vec<u8>, EmuError> {
        let by = self.by(thread, self.span(loc));
        let mut bytes = vec![0; rows as usize * ROW_BYTES];
        for ((row, column), at) in pieces(matrix, rows, start) {
            let mut piece = [0; PIECE_BYTES];
            self.member.own().read_published(at, &mut piece, by, "a product")?;
            if matrix.across.is_none() {
                let place = row * ROW_BYTES + column;
                bytes[place..place + PIECE_BYTES].copy_from_slice(&piece);
                continue;
            }
            for (i, element) in piece.chunks(2).enumerate() {
                let place = (row + i) * ROW_BYTES + column;
                bytes[place..place + 2].copy_from_slice(element);
            }
        }
        Ok(bytes)
    }

    fn complete(&mut self, under_way: &Product<'k>, loc: LocId) -> Result<(), EmuError> {
        let Product { product, thread, from_zero, starts, seen, noted, loc: begun } = under_way;
        if let Some(recording) = self.recording() {
            let threads = *thread..thread + (WgmmaAtom::WARPS * LANES) as usize;
            recording.complete(threads, noted);
        }
        let operands = [
            match &product.a {
                Factor::Shared(a) => self.matrix(a, WgmmaAtom::ROWS, starts[0], *thread, loc)?,
                Factor::Registers { .. } => seen[0].clone(),
            },
            self.matrix(&product.b, product.n, starts[1], *thread, loc)?,
        ];
        if operands != *seen {
            let message = "shared memory is written while a product may still read it";
            return Err(EmuError::new(ErrorKind::SharedRace, self.span(*begun), message)
                .other(self.span(loc), "the product is complete here"));
        }
        let [a, b] = [0, 1].map(|side| elements(product.types[side], &operands[side]));
        let [a, b] = [wgmma::factors(&a), wgmma::factors(&b)];
        let (columns, depth) = (product.n as usize, a.len() / WgmmaAtom::ROWS as usize);
        let len = self.kernel.slots[product.slot].len as usize * self.threads;
        let (mut values, mut undefined) = match &self.slots[product.slot] {
            Some(old) => {
                let gaps = old.undefined.as_ref();
                (old.elements.to_f32(), gaps.map_or_else(|| vec![false; len], |u| u.to_vec()))
            }
            None => (vec![0.0; len], vec![true; len]),
        };
        // The register of each sum: lane 4 g + t of a warp has rows g and g + 8 of its 16.
        let place = |row: usize, column: usize| {
            let (warp, half, g) = (row / 16, row / 8 % 2, row % 8);
            let (block, t, v) = (column / 8, column % 8 / 2, column % 2);
            let lane = thread + warp * LANES as usize + 4 * g + t;
            product.sums[block * 4 + half * 2 + v] as usize * self.threads + lane
        };
        let rows = WgmmaAtom::ROWS as usize;
        let places = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        let places: Vec<usize> = places.map(|(row, column)| place(row, column)).collect();
        if *from_zero {
            for &at in &places {
                (values[at], undefined[at]) = (0.0, false);
            }
        }
        if let Some(gap) = places.iter().find(|&&at| undefined[at]) {
            let name = &self.kernel.slots[product.slot].name;
            let message = format!("a product adds to `{name}`, which nothing has assigned");
            let error = EmuError::new(ErrorKind::Poison, self.span(*begun), message);
            return Err(error.thread(gap % self.threads));
        }
        let mut sums: Vec<f32> = places.iter().map(|&at| values[at]).collect();
        wgmma::multiply(&mut sums, columns, &a, &b, depth, depth);
        for (&at, sum) in places.iter().zip(sums) {
            values[at] = sum;
        }
        self.flops += (2 * rows * columns * depth) as u64;
        let elements = Elements::from_f32(&values);
        let registers = Registers { elements, undefined: some_if_any(undefined) };
        self.slots[product.slot] = Some(Rc::new(registers));
        Ok(())
    }
}

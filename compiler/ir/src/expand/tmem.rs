//! Tensor memory: its allocation around the kernel, products as instructions, and fences where threads meet.
//!
//! Between threads of two roles that meet at a barrier, what one did in tensor memory comes ahead of what the other does
//! there only by a fence on both sides; `commit` is one itself. They stand wherever a role with products or loads waits
//! or arrives.

use kernel_abi::DType;
use kernel_dsl::diag::{Code, Diagnostic};

use super::Expander;
use super::linear::Linear;
use super::memory::too_far;
use crate::device::{
    Address, Arg, DeviceOp, Matrix, OpRole, ProductStart, TensorLeft, TensorOp, TensorProduct,
    TensorScales,
};
use crate::distribution::Digit;
use crate::infer::tile_axes;
use crate::kernel::{
    AxisIndex, SCALE_GROUP, SCALE_ROWS, SCALE_WORD, Start, Stmt, StmtKind, TENSOR_WARPS, Tensor,
    TensorAtom, TensorMma, TileAccess, ValueId, VarId, first_of_pair, scale_columns,
};
use crate::ops::BinaryOp;
use crate::smem_plan::slot_columns;

/// Bytes of a row in a column of tensor memory.
const COLUMN_BYTES: u32 = 4;

/// Instructions of one product, at most.
const MAX_INSTRUCTIONS: u32 = 256;

/// Where the scales of a product are in tensor memory: by words of four groups, in each by rows.
#[derive(Clone, Copy)]
struct Scales {
    columns: [u32; 2],
    /// Columns of one word of all rows.
    words: [u32; 2],
}

impl Scales {
    /// Those that an instruction takes which starts in a column and at a position of k.
    fn of(self, column: u32, k: u32) -> TensorScales {
        let group = k / SCALE_GROUP;
        let word = group / SCALE_WORD;
        let [left, right] = [0, 1].map(|side| self.columns[side] + word * self.words[side]);
        TensorScales { columns: [left, right + column / 32], byte: group % SCALE_WORD }
    }
}

/// What the statements of a role do with tensor memory.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Part {
    /// They start products, load or store.
    pub(super) touches: bool,
    /// Threads load from it or store to it.
    pub(super) loads: bool,
}

impl Part {
    /// Looks through the statements of a role.
    pub(super) fn of(stmts: &[Stmt]) -> Part {
        let mut part = Part::default();
        for stmt in stmts {
            if let StmtKind::Tensor(op) = &stmt.kind {
                part.touches = true;
                part.loads |= matches!(op, Tensor::Load { .. } | Tensor::Store { .. });
            }
            for body in stmt.kind.bodies() {
                let inner = Part::of(body);
                part.touches |= inner.touches;
                part.loads |= inner.loads;
            }
        }
        part
    }
}

impl Expander<'_> {
    /// Allocates tensor memory before anything touches it. A pair of CTAs does so together: both are there before, and
    /// both have theirs after.
    pub(super) fn allocate_tensor(&mut self) {
        let Some((columns, word)) = self.tensor_room() else { return };
        let pair = self.is_of_pair();
        self.b.loc = self.b.place(self.kernel.span, OpRole::Compute);
        if pair {
            self.cluster_barrier();
        }
        self.b.emit(DeviceOp::Tensor(TensorOp::Allocate { columns, word, pair }));
        self.b.emit(DeviceOp::Tensor(TensorOp::FenceBefore));
        self.meet_all(pair);
        self.b.emit(DeviceOp::Tensor(TensorOp::FenceAfter));
        self.b.emit(DeviceOp::Tensor(TensorOp::Attach { word }));
    }

    /// Gives it back when all threads are done with it, those of the other CTA of a pair too.
    pub(super) fn free_tensor(&mut self) {
        let Some((columns, _)) = self.tensor_room() else { return };
        let pair = self.is_of_pair();
        self.b.loc = self.b.place(self.kernel.span, OpRole::Compute);
        self.b.emit(DeviceOp::Tensor(TensorOp::FenceBefore));
        self.meet_all(pair);
        self.b.emit(DeviceOp::Tensor(TensorOp::FenceAfter));
        self.b.emit(DeviceOp::Tensor(TensorOp::Free { columns, pair }));
    }

    /// Products of the kernel are those of a pair of CTAs.
    pub(super) fn is_of_pair(&self) -> bool {
        first_of_pair(&self.kernel.body).is_some()
    }

    fn meet_all(&mut self, pair: bool) {
        if pair {
            self.cluster_barrier();
        } else {
            self.barrier();
        }
    }

    fn tensor_room(&self) -> Option<(u32, u32)> {
        let word = u32::try_from(self.smem.address()?).ok()?;
        Some((u32::try_from(self.smem.allocated()).ok()?, word))
    }

    /// Before threads of the role arrive somewhere.
    pub(super) fn before_arrival(&mut self) {
        if self.part.touches {
            self.b.emit(DeviceOp::Tensor(TensorOp::FenceBefore));
        }
    }

    /// After they have waited.
    pub(super) fn after_wait(&mut self) {
        if self.part.touches {
            self.b.emit(DeviceOp::Tensor(TensorOp::FenceAfter));
        }
    }

    pub(super) fn tensor(&mut self, op: &Tensor) -> Result<(), Diagnostic> {
        match op {
            Tensor::Mma(mma) => self.tensor_mma(mma),
            // The instruction stands at the `settle`, together with its wait: nothing stands between that could matter.
            Tensor::Load { var, slot, access } => {
                self.tensor_loads.push((*var, *slot, access.clone()));
                Ok(())
            }
            Tensor::Store { value, access } => self.tensor_store(*value, access),
            Tensor::Settle { var, slot } => self.tensor_load(*var, *slot),
        }
    }

    fn tensor_load(&mut self, var: VarId, slot: u32) -> Result<(), Diagnostic> {
        let found = self.tensor_loads.iter().position(|load| (load.0, load.1) == (var, slot));
        let Some(found) = found else { return Ok(()) };
        let (_, _, access) = self.tensor_loads.remove(found);
        let declared = &self.kernel.vars[var];
        let own = declared.distribution.registers();
        let columns = declared.shape[1];
        let tile = access.storage.tile().map(|(tile, _)| &self.kernel.smem[tile]);
        // Warps reach both halves of columns that lie one below the other.
        let rows = match tile {
            Some(tile) if !tile.folded => tile.shape[0],
            Some(_) | None => TensorAtom::ROWS,
        };
        let column = self.own_column(&access, columns)?;
        let load = |dst| DeviceOp::Tensor(TensorOp::Load { dst, rows, column });
        let frag = self.b.define(DType::F32, own, load);
        let id = self.slot(var, slot);
        self.b.emit(DeviceOp::SetSlot { slot: id, x: Arg::whole(frag) });
        self.contents.insert((var, slot), frag);
        Ok(())
    }

    fn tensor_store(&mut self, value: ValueId, access: &TileAccess) -> Result<(), Diagnostic> {
        let columns = tile_axes(access).last().map_or(0, |axis| axis.len);
        let column = self.own_column(access, columns / 2)?;
        let src = self.frag(value);
        self.b.emit(DeviceOp::Tensor(TensorOp::Store { src, column }));
        Ok(())
    }

    /// The first column of an access that the warp has, where groups of four share so many.
    fn own_column(&mut self, access: &TileAccess, columns: u32) -> Result<Address, Diagnostic> {
        let groups = (self.b.warps() / TENSOR_WARPS).max(1);
        let group = Digit { extent: groups, stride: TENSOR_WARPS };
        let step = i64::from(columns / groups);
        let group = self.b.warp(group).times(step).ok_or_else(|| too_far(access))?;
        self.column(access, &group)
    }

    /// The first column of an access, and some more.
    fn column(&mut self, access: &TileAccess, more: &Linear) -> Result<Address, Diagnostic> {
        let far = || too_far(access);
        let (tile, slot) = access.storage.tile().ok_or_else(far)?;
        let declared = &self.kernel.smem[tile];
        let (slots, step) = (i64::from(declared.slots), slot_columns(declared.columns()));
        let mut column = more.clone();
        if let Some(slot) = slot {
            let form = self.integer(slot);
            let number = match form.as_constant() {
                Some(constant) => Linear::constant(constant.rem_euclid(slots)),
                None => {
                    let by = Linear::constant(slots);
                    self.b.int_binary(BinaryOp::Rem, &form, &by, DType::I32)
                }
            };
            let step = i64::try_from(step).map_err(|_| far())?;
            column = column.plus(step, &number).ok_or_else(far)?;
        }
        if let Some(AxisIndex::Range { start, .. }) = access.index.last() {
            let start = self.integer(*start);
            let of_column = Linear::constant(declared.column_elements().into());
            let start = self.b.int_binary(BinaryOp::Div, &start, &of_column, DType::I32);
            column = column.plus(1, &start).ok_or_else(far)?;
        }
        let first = i64::try_from(self.smem.base(tile)).map_err(|_| far())?;
        let column = column.offset(first).ok_or_else(far)?;
        let variable = column.variable();
        let offset =
            (!variable.terms.is_empty()).then(|| self.b.materialize(&variable, DType::I32));
        Ok(Address { offset, constant: column.constant })
    }

    /// Brings the scales of a product to tensor memory.
    fn copy_scales(&mut self, mma: &TensorMma) -> Result<Option<Scales>, Diagnostic> {
        let Some(both) = &mma.scales else { return Ok(None) };
        let first = self.b.role.and_then(|role| self.smem.scales(role));
        let first = first.and_then(|first| u32::try_from(first).ok());
        let mut next = first.ok_or_else(|| too_far(&mma.a))?;
        let mut columns = [0; 2];
        let mut words = [0; 2];
        for (side, access) in both.iter().enumerate() {
            let far = || too_far(access);
            let lengths: Vec<u32> = tile_axes(access).iter().map(|axis| axis.len).collect();
            let &[rows, groups] = lengths.as_slice() else { return Err(far()) };
            (columns[side], words[side]) = (next, scale_columns(rows, SCALE_WORD));
            let tile = access.storage.tile().map(|(tile, _)| tile).ok_or_else(far)?;
            let base = u32::try_from(self.smem.base(tile)).map_err(|_| far())?;
            for group in (0..groups).step_by(SCALE_WORD as usize) {
                for row in (0..rows).step_by(SCALE_ROWS as usize) {
                    let behind = [row, group].map(|by| Linear::constant(by.into()));
                    let at = self.place_behind(access, &behind)?;
                    let variable = at.variable();
                    let offset = (!variable.terms.is_empty())
                        .then(|| self.b.materialize(&variable, DType::I32));
                    let at = Address { offset, constant: at.constant };
                    let rows = (rows - row).min(SCALE_ROWS);
                    let pair = mma.atom.pair;
                    let copy = TensorOp::CopyScales { column: next, base, at, rows, pair };
                    self.b.emit(DeviceOp::Tensor(copy));
                    next += SCALE_ROWS / 32;
                }
            }
        }
        Ok(Some(Scales { columns, words }))
    }

    fn tensor_mma(&mut self, mma: &TensorMma) -> Result<(), Diagnostic> {
        let span = self.b.locs[self.b.loc].span;
        self.order_operands(mma.reads());
        let columns = tile_axes(&mma.acc).last().map_or(0, |axis| axis.len);
        let depth = tile_axes(&mma.a).last().map_or(0, |axis| axis.len);
        let TensorAtom { m, n, types, scaled: _, pair } = mma.atom;
        let (blocks, steps) = (columns / n, depth / mma.atom.stored_depth());
        let count = blocks.saturating_mul(steps);
        if count > MAX_INSTRUCTIONS {
            return Err(Diagnostic::error(
                Code::E0219,
                format!("this product takes {count} instructions"),
            )
            .label(span, format!("at most {MAX_INSTRUCTIONS} are written out"))
            .help("take smaller tiles, or loop over a part of k"));
        }
        let start = match mma.start {
            Start::Sums => ProductStart::Sums,
            Start::Zero => ProductStart::Zero,
            Start::When(cond) => ProductStart::When((self.frag(cond), 0)),
        };
        let first = self.column(&mma.acc, &Linear::default())?;
        let scales = self.copy_scales(mma)?;
        let of_tensor = |tile| self.kernel.smem[tile].is_tensor();
        let is_tensor = mma.a.storage.tile().is_some_and(|(tile, _)| of_tensor(tile));
        let left = if is_tensor {
            TensorLeft::Tensor(self.column(&mma.a, &Linear::default())?)
        } else {
            TensorLeft::Shared(self.matrix(&mma.a, &Linear::default())?)
        };
        for block in 0..blocks {
            // Of a pair each CTA has its part of the rows of every atom.
            let row = Linear::constant((block * mma.atom.own_columns()).into());
            let right = self.matrix(&mma.b, &row)?;
            let column = Address { constant: first.constant + i64::from(block * n), ..first };
            for step in 0..steps {
                let along = |matrix: Matrix| {
                    let constant = matrix.at.constant + i64::from(step * mma.atom.stored_depth());
                    Matrix { at: Address { constant, ..matrix.at }, ..matrix }
                };
                let product = TensorProduct {
                    column,
                    m,
                    n,
                    pair,
                    types,
                    a: match left {
                        TensorLeft::Shared(left) => TensorLeft::Shared(along(left)),
                        TensorLeft::Tensor(at) => {
                            let further = step * TensorAtom::DEPTH_BYTES / COLUMN_BYTES;
                            let constant = at.constant + i64::from(further);
                            TensorLeft::Tensor(Address { constant, ..at })
                        }
                    },
                    b: along(right),
                    start: if step == 0 { start } else { ProductStart::Sums },
                    scales: scales.map(|scales| scales.of(block * n, step * mma.atom.depth())),
                };
                self.b.emit(DeviceOp::Tensor(TensorOp::Product(Box::new(product))));
            }
        }
        Ok(())
    }
}

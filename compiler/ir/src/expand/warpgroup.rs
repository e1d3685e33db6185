//! Products of a warpgroup: which instructions they are, and the fences in front of them.
//!
//! Each warpgroup has whole atoms of the sums. An atom of a product is one instruction for 32 bytes of k, in
//! ascending order.

use kernel_dsl::diag::{Code, Diagnostic};

use super::Expander;
use super::linear::Linear;
use super::memory::too_far;
use crate::device::{
    Address, DeviceOp, Factor, Matrix, ProductStart, WarpgroupOp, WarpgroupProduct,
};
use crate::distribution::{AxisMap, Digit, Distribution};
use crate::infer::tile_axes;
use crate::kernel::{
    AxisIndex, LeftOperand, Start, TileAccess, Warpgroup, WarpgroupMma, WgmmaAtom,
};
use kernel_abi::DType;

/// Instructions of one product in one warpgroup, at most.
const MAX_INSTRUCTIONS: u32 = 256;

/// The registers of a left operand that an instruction takes: of the rows g and g + 8 of the warp's 16 the positions
/// 2t and 2t + 1 of k, then those 8 further on, for lane `4 g + t`.
fn registers_of(spread: &Distribution, row: u32, step: u32) -> Vec<u32> {
    let place = |i: u32| [row * 2 + i / 2 % 2, (step * 2 + i / 4) * 2 + i % 2];
    (0..8).map(|i| spread.register(&place(i))).collect()
}

/// The part of the warp index that counts warpgroups along an axis, of a map whose warps are those of sums.
fn groups(map: AxisMap, warps: u32) -> Digit {
    Digit { extent: map.warps.extent / warps, stride: map.warps.stride * warps }
}

impl Expander<'_> {
    /// Expands an operation of the warpgroup.
    pub(super) fn warpgroup(&mut self, op: &Warpgroup) -> Result<(), Diagnostic> {
        match op {
            Warpgroup::Mma(mma) => self.warpgroup_mma(mma),
            Warpgroup::Commit => {
                self.b.emit(DeviceOp::Warpgroup(WarpgroupOp::Commit));
                Ok(())
            }
            Warpgroup::Settle { var, slot, pending } => {
                let sums = self.slot(*var, *slot);
                let pending = *pending;
                self.b.emit(DeviceOp::Warpgroup(WarpgroupOp::Wait { pending, sums }));
                Ok(())
            }
        }
    }

    fn warpgroup_mma(&mut self, mma: &WarpgroupMma) -> Result<(), Diagnostic> {
        let span = self.b.locs[self.b.loc].span;
        let distribution = &self.kernel.vars[mma.var].distribution;
        let &[rows, columns] = distribution.axes.as_slice() else {
            return Err(Diagnostic::error(Code::E0810, "sums of a warpgroup without two axes")
                .label(span, "this product"));
        };
        let per_atom = mma.atom.n / 8;
        let row_blocks = rows.rest;
        let column_blocks = columns.registers() / 2 / per_atom;
        let right = tile_axes(&mma.b);
        let depth = if mma.across { right.first() } else { right.last() };
        let depth = depth.map_or(0, |axis| axis.len);
        let steps = depth / mma.atom.depth();
        let count = row_blocks.saturating_mul(column_blocks).saturating_mul(steps);
        if count > MAX_INSTRUCTIONS {
            return Err(Diagnostic::error(
                Code::E0219,
                format!("this product takes {count} instructions in each warpgroup"),
            )
            .label(span, format!("at most {MAX_INSTRUCTIONS} are written out"))
            .help("take smaller tiles, or loop over a part of k"));
        }
        let sums = self.slot(mma.var, mma.slot);
        let start = match mma.start {
            Start::Sums => ProductStart::Sums,
            Start::Zero => ProductStart::Zero,
            Start::When(cond) => ProductStart::When((self.frag(cond), 0)),
        };
        // First row of the warpgroup's atoms on both sides.
        let row_groups = groups(rows, WgmmaAtom::WARPS);
        let column_groups = groups(columns, 1);
        let of_rows = self.b.warp(row_groups).times(i64::from(WgmmaAtom::ROWS));
        let of_columns = self.b.warp(column_groups).times(i64::from(mma.atom.n));
        let (Some(of_rows), Some(of_columns)) = (of_rows, of_columns) else {
            return Err(too_far(&mma.b));
        };
        let mut left = Vec::new();
        for block in 0..row_blocks {
            left.push(match &mma.a {
                LeftOperand::Shared(access) => {
                    let stride = i64::from(WgmmaAtom::ROWS * row_groups.extent);
                    let row = of_rows.offset(i64::from(block) * stride);
                    let row = row.ok_or_else(|| too_far(access))?;
                    Factor::Shared(self.matrix(access, &row)?)
                }
                LeftOperand::Registers(value) => {
                    let frag = self.frag(*value);
                    let spread = &self.kernel.values[*value].distribution;
                    Factor::Registers { frag, elements: registers_of(spread, block, 0) }
                }
            });
        }
        let mut right = Vec::new();
        for block in 0..column_blocks {
            let stride = i64::from(mma.atom.n * column_groups.extent);
            let first = of_columns.offset(i64::from(block) * stride);
            let first = first.ok_or_else(|| too_far(&mma.b))?;
            right.push(if mma.across {
                self.matrix_across(&mma.b, &first)?
            } else {
                self.matrix(&mma.b, &first)?
            });
        }
        self.b.emit(DeviceOp::Warpgroup(WarpgroupOp::Fence { sums }));
        for row in 0..row_blocks {
            for column in 0..column_blocks {
                let mut registers = Vec::with_capacity(mma.atom.n as usize / 2);
                for c in 0..per_atom {
                    for half in 0..2 {
                        for v in 0..2 {
                            let locals = [row * 2 + half, (column * per_atom + c) * 2 + v];
                            registers.push(distribution.register(&locals));
                        }
                    }
                }
                for step in 0..steps {
                    // Where the operand lies across, further positions of k are further lines.
                    let along = |matrix: Matrix| {
                        let line = matrix.line / (mma.atom.types[1].bits() / 8);
                        let each = if matrix.across.is_some() { line } else { 1 };
                        let further = i64::from(step * mma.atom.depth() * each);
                        let constant = matrix.at.constant + further;
                        Matrix { at: Address { constant, ..matrix.at }, ..matrix }
                    };
                    let a = match &left[row as usize] {
                        Factor::Shared(matrix) => Factor::Shared(along(*matrix)),
                        Factor::Registers { frag, .. } => {
                            let LeftOperand::Registers(value) = mma.a else { continue };
                            let spread = &self.kernel.values[value].distribution;
                            let elements = registers_of(spread, row, step);
                            Factor::Registers { frag: *frag, elements }
                        }
                    };
                    let product = WarpgroupProduct {
                        slot: sums,
                        sums: registers.clone(),
                        n: mma.atom.n,
                        types: mma.atom.types,
                        a,
                        b: along(right[column as usize]),
                        start: if step == 0 { start } else { ProductStart::Sums },
                    };
                    self.b.emit(DeviceOp::Warpgroup(WarpgroupOp::Mma(Box::new(product))));
                }
            }
        }
        self.contents.remove(&(mma.var, mma.slot));
        Ok(())
    }

    /// A matrix that starts in a row of an operand.
    pub(super) fn matrix(
        &mut self,
        access: &TileAccess,
        row: &Linear,
    ) -> Result<Matrix, Diagnostic> {
        let far = || too_far(access);
        let axes = tile_axes(access);
        let line = match axes.as_slice() {
            [rows, _] => {
                let size = self.kernel.dtype_of(access.storage).bytes().unwrap_or(1);
                u32::try_from(rows.stride * i64::from(size)).map_err(|_| far())?
            }
            _ => {
                return Err(Diagnostic::error(Code::E0810, "an operand without two axes")
                    .label(access.span, "this operand"));
            }
        };
        let mut offset = self.slot_start(access.storage).ok_or_else(far)?;
        let mut is_row = true;
        for (index, view) in access.index.iter().zip(&access.axes) {
            let position = match index {
                AxisIndex::At(at) => self.integer(*at),
                AxisIndex::Range { start, .. } => {
                    let start = self.integer(*start);
                    let inner = if is_row { row.clone() } else { Linear::default() };
                    is_row = false;
                    start.plus(1, &inner).ok_or_else(far)?
                }
                AxisIndex::Gather(_) | AxisIndex::Along(_) | AxisIndex::New => return Err(far()),
            };
            let here = self.b.axis_offset(&position, view).ok_or_else(far)?;
            offset = offset.plus(1, &here).ok_or_else(far)?;
        }
        let variable = offset.variable();
        let register =
            (!variable.terms.is_empty()).then(|| self.b.materialize(&variable, DType::I32));
        let tile = access.storage.tile().map(|(tile, _)| tile).ok_or_else(far)?;
        let base = u32::try_from(self.smem.base(tile)).map_err(|_| far())?;
        let at = Address { offset: register, constant: offset.constant };
        Ok(Matrix { base, at, line, across: None })
    }

    /// A matrix `[k, n]` that starts in a column of an operand.
    fn matrix_across(
        &mut self,
        access: &TileAccess,
        column: &Linear,
    ) -> Result<Matrix, Diagnostic> {
        let far = || too_far(access);
        let size = i64::from(self.kernel.dtype_of(access.storage).bytes().unwrap_or(1));
        let [.., lines, columns] = access.axes.as_slice() else { return Err(far()) };
        let line = lines.digits.last().map_or(0, |digit| digit.stride);
        // Columns beyond a line lie in blocks of lines.
        let block = match columns.digits.as_slice() {
            [blocks, _] => blocks.stride,
            _ => 0,
        };
        let at = self.place_behind(access, &[Linear::default(), column.clone()])?;
        let variable = at.variable();
        let offset =
            (!variable.terms.is_empty()).then(|| self.b.materialize(&variable, DType::I32));
        let tile = access.storage.tile().map(|(tile, _)| tile).ok_or_else(far)?;
        let base = u32::try_from(self.smem.base(tile)).map_err(|_| far())?;
        let bytes = |elements: i64| u32::try_from(elements * size).map_err(|_| far());
        let across = Some(bytes(block)?);
        let at = Address { offset, constant: at.constant };
        Ok(Matrix { base, at, line: bytes(line)?, across })
    }

    /// The element of a tile that is so far behind the starts of its ranges.
    pub(super) fn place_behind(
        &mut self,
        access: &TileAccess,
        behind: &[Linear],
    ) -> Result<Linear, Diagnostic> {
        let far = || too_far(access);
        let mut offset = self.slot_start(access.storage).ok_or_else(far)?;
        let mut behind = behind.iter();
        for (index, view) in access.index.iter().zip(&access.axes) {
            let position = match index {
                AxisIndex::At(at) => self.integer(*at),
                AxisIndex::Range { start, .. } => {
                    let by = behind.next().ok_or_else(far)?;
                    self.integer(*start).plus(1, by).ok_or_else(far)?
                }
                AxisIndex::Gather(_) | AxisIndex::Along(_) | AxisIndex::New => return Err(far()),
            };
            let here = self.b.axis_offset(&position, view).ok_or_else(far)?;
            offset = offset.plus(1, &here).ok_or_else(far)?;
        }
        Ok(offset)
    }
}

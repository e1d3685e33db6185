//! Tensor memory: allocation by the first warp, products by one thread, loads with their wait.
//!
//! An address has the row in its upper and the column in its lower half. A load and its wait are one piece of assembly,
//! so that nothing reads, moves or copies the registers in between; so are stores and theirs.

use kernel_abi::DType;
use kernel_ir::device::{
    Address, Frag, FragId, Matrix, Place, ProductStart, TensorLeft, TensorOp, TensorProduct,
    TensorScales,
};
use kernel_ir::kernel::{SCALE_GROUP, TENSOR_WARPS, TensorAtom, multiplies, stored};
use melior::dialect::arith::CmpiPredicate;
use melior::ir::Value;

use super::{Lowered, Lowering, refuse};
use crate::mnemonic;

/// Bits from the number of a warp to the row that it starts from, in an address.
const ROWS_OF_WARP: i64 = 16 + 5;

/// Registers of the widest load.
const WIDEST_LOAD: u32 = 128;

/// Powers of two, at most a widest one, that together are so many columns.
fn pieces(columns: u32, widest: u32) -> Vec<u32> {
    let mut sizes = Vec::new();
    let mut left = columns;
    while left > 0 {
        let size = (1 << left.ilog2()).min(widest);
        sizes.push(size);
        left -= size;
    }
    sizes
}

/// The code of a type among those of its width, in the descriptor of an instruction.
fn is_second(dtype: DType) -> bool {
    matches!(dtype, DType::Bf16 | DType::E5m2 | DType::E2m1)
}

impl<'c, 'm> Lowering<'c, 'm, '_> {
    pub(super) fn tensor(&mut self, op: &TensorOp) -> Lowered<()> {
        let build = self.build;
        match op {
            TensorOp::Allocate { columns, word, pair } => {
                let region = self.region(&Place::Shared { base: *word, dtype: DType::U32 })?;
                let word = self.address_of(&region, Address { offset: None, constant: 0 })?;
                let (columns, pair) = (*columns, *pair);
                self.by_first_warp(|s| {
                    s.build.effect(&mnemonic::allocate_tensor(columns, pair), &[word]);
                    s.build.effect(&mnemonic::allocate_no_more(pair), &[]);
                    Ok(())
                })
            }
            TensorOp::Attach { word } => {
                let region = self.region(&Place::Shared { base: *word, dtype: DType::U32 })?;
                let word = self.address_of(&region, Address { offset: None, constant: 0 })?;
                let asm = mnemonic::tensor_address();
                self.tensor = build.asm_values(&asm, &[word], build.types.i32, 1).pop();
                Ok(())
            }
            TensorOp::Free { columns, pair } => {
                let (base, columns, pair) = (self.tensor_base()?, *columns, *pair);
                self.by_first_warp(|s| {
                    s.build.effect(&mnemonic::free_tensor(columns, pair), &[base]);
                    Ok(())
                })
            }
            TensorOp::FenceBefore => {
                build.effect(&mnemonic::tensor_fence_before(), &[]);
                Ok(())
            }
            TensorOp::FenceAfter => {
                build.effect(&mnemonic::tensor_fence_after(), &[]);
                Ok(())
            }
            TensorOp::CopyScales { column, base, at, rows: _, pair } => {
                let (column, base, at, pair) = (*column, *base, *at, *pair);
                self.by_first_thread(|s| s.copy_scales(column, base, at, pair))
            }
            TensorOp::Product(product) => self.by_first_thread(|s| s.tensor_product(product)),
            TensorOp::Store { src, column } => self.tensor_store(*src, *column),
            TensorOp::Load { dst, rows, column } => self.tensor_load(*dst, *rows, *column),
        }
    }

    fn tensor_base(&self) -> Lowered<Value<'c, 'm>> {
        match self.tensor {
            Some(base) => Ok(base),
            None => refuse("tensor memory before its address is taken"),
        }
    }

    /// The address of a column, in the first row.
    fn tensor_column(&self, column: Address) -> Lowered<Value<'c, 'm>> {
        let b = self.build;
        let mut at = self.tensor_base()?;
        if let Some((frag, element)) = column.offset {
            at = b.addi(at, self.element(frag, element)?);
        }
        Ok(match column.constant {
            0 => at,
            constant => b.addi(at, b.int(b.types.i32, constant)),
        })
    }

    fn by_first_warp(&mut self, run: impl FnOnce(&mut Self) -> Lowered<()>) -> Lowered<()> {
        let outer = self.build;
        let i32 = outer.types.i32;
        let warp = outer.shrui(self.thread_index(), outer.int(i32, 5));
        let is_first = outer.compare_int(CmpiPredicate::Eq, warp, outer.int(i32, 0));
        let (then_block, else_block) = outer.choice(is_first);
        self.build = outer.at(then_block);
        run(self)?;
        self.build.end();
        self.build = outer;
        outer.at(else_block).end();
        Ok(())
    }

    fn tensor_load(&mut self, dst: FragId, rows: u32, column: Address) -> Lowered<()> {
        let Some(count) = self.kernel.frags.get(dst).map(|frag| frag.len) else {
            return refuse(format!("{dst} is not declared"));
        };
        let b = self.build;
        let i32 = b.types.i32;
        let first = self.rows_of_warp(column)?;
        // Pieces of one column of 32 rows, or of 8 columns of 16 rows: their columns, and registers.
        let is_half = rows == TensorAtom::HALF;
        let (shape, wide, each) = if is_half { ("16x256b", 8, 4) } else { ("32x32b", 1, 1) };
        let sizes = pieces(count / each, WIDEST_LOAD / each);
        let mut addresses = Vec::new();
        let mut at = 0;
        for size in &sizes {
            addresses.push(if at == 0 { first } else { b.addi(first, b.int(i32, at)) });
            at += i64::from(*size) * wide;
        }
        let asm = mnemonic::tensor_load(shape, each, &sizes);
        let mut values = b.asm_values(&asm, &addresses, b.types.f32, count);
        if is_half {
            // Each piece has a pair of the one row and a pair of the other.
            let (pieces, old) = (count / 4, values);
            let place = |i: u32| (i / 2 % pieces * 4 + i / (2 * pieces) * 2 + i % 2) as usize;
            values = (0..count).filter_map(|i| old.get(place(i)).copied()).collect();
        }
        self.define(dst, values)
    }

    /// The address of a column in the first row that the warp reaches.
    fn rows_of_warp(&self, column: Address) -> Lowered<Value<'c, 'm>> {
        let b = self.build;
        let i32 = b.types.i32;
        let warp = b.shrui(self.thread_index(), b.int(i32, 5));
        let quarter = b.andi(warp, b.int(i32, i64::from(TENSOR_WARPS) - 1));
        let lanes = b.shli(quarter, b.int(i32, ROWS_OF_WARP));
        Ok(b.addi(self.tensor_column(column)?, lanes))
    }

    /// Pairs of elements of 16 bits, one a column of the thread's row.
    fn tensor_store(&mut self, src: FragId, column: Address) -> Lowered<()> {
        let Some(&Frag { dtype, len }) = self.kernel.frags.get(src) else {
            return refuse(format!("{src} is not declared"));
        };
        let b = self.build;
        let first = self.rows_of_warp(column)?;
        let sizes = pieces(len / 2, WIDEST_LOAD);
        let mut operands = Vec::new();
        let mut at = 0;
        for size in &sizes {
            let offset = b.int(b.types.i32, i64::from(at));
            operands.push(if at == 0 { first } else { b.addi(first, offset) });
            at += size;
        }
        for word in 0..len / 2 {
            let (low, high) = (self.element(src, 2 * word)?, self.element(src, 2 * word + 1)?);
            operands.push(self.pair(dtype, low, high));
        }
        b.effect(&mnemonic::tensor_store(&sizes), &operands);
        Ok(())
    }

    /// 8 lanes of 16 bytes follow each other, and the next 8 behind them. Both CTAs of a pair copy by one instruction, each
    /// its own shared memory.
    fn copy_scales(&self, column: u32, base: u32, at: Address, pair: bool) -> Lowered<()> {
        let b = &self.build;
        let region = self.region(&Place::Shared { base, dtype: DType::Ue8m0 })?;
        let address = b.address_number(self.address_of(&region, at)?);
        let constant = |value: i64| b.int(b.types.i64, value);
        let field = b.shrui(b.andi(address, constant(0x3_ffff)), constant(4));
        let descriptor = b.ori(field, constant(8 << 32 | 1 << 46));
        let to = self.tensor_column(Address { offset: None, constant: column.into() })?;
        b.effect(&mnemonic::tensor_scales(pair), &[to, descriptor]);
        Ok(())
    }

    fn tensor_product(&self, product: &TensorProduct) -> Lowered<()> {
        let b = &self.build;
        let [left, right] = product.types.map(|dtype| i64::from(is_second(dtype)));
        let kind = match (product.types[0].bits(), product.scales) {
            (16, None) if multiplies(product.types) => "f16",
            (8, None) if multiplies(product.types) => "f8f6f4",
            (8, Some(_)) if multiplies(product.types) => "mxf8f6f4",
            (4, Some(_)) if product.types == [DType::E2m1; 2] => "mxf4",
            _ => return refuse("operands that are not multiplied in tensor memory"),
        };
        // Sums of f32, which need no word where scales are ue8m0; both operands with k contiguous.
        let form = match product.scales {
            None => 1 << 4,
            Some(scales) => i64::from(scales.byte) << 4 | 1 << 23 | i64::from(scales.byte) << 29,
        };
        let instruction = form
            | left << 7
            | right << 10
            | i64::from(product.n / 8) << 17
            | i64::from(product.m / 16) << 24;
        let add = match product.start {
            ProductStart::Sums => b.int(b.types.i1, 1),
            ProductStart::Zero => b.int(b.types.i1, 0),
            ProductStart::When((frag, i)) => self.element(frag, i)?,
        };
        let mut operands = vec![
            self.tensor_column(product.column)?,
            match &product.a {
                TensorLeft::Shared(a) => self.tensor_descriptor(a, stored(product.types[0]))?,
                TensorLeft::Tensor(column) => self.tensor_column(*column)?,
            },
            self.tensor_descriptor(&product.b, stored(product.types[1]))?,
            b.int(b.types.i32, instruction),
            add,
        ];
        let Some(TensorScales { columns, .. }) = product.scales else {
            let in_tensor = matches!(product.a, TensorLeft::Tensor(_));
            b.effect(&mnemonic::tensor_product(kind, product.pair, in_tensor), &operands);
            return Ok(());
        };
        for column in columns {
            let at = Address { offset: None, constant: column.into() };
            operands.push(self.tensor_column(at)?);
        }
        let scales = TensorAtom::DEPTH_BYTES * 8 / product.types[0].bits() / SCALE_GROUP;
        b.effect(&mnemonic::scaled_product(kind, scales, product.pair), &operands);
        Ok(())
    }

    /// The descriptor of a matrix: as that of a warpgroup, with another code of the swizzle and a version.
    fn tensor_descriptor(&self, matrix: &Matrix, dtype: DType) -> Lowered<Value<'c, 'm>> {
        let mode = match matrix.line {
            128 => 2,
            64 => 4,
            32 => 6,
            other => return refuse(format!("no swizzle has lines of {other} bytes")),
        };
        self.descriptor_of(matrix, dtype, mode << 61 | 1 << 46)
    }
}

//! Tensor memory: allocation by the first warp, products by one thread, loads with their wait.
//!
//! An address has the row in its upper and the column in its lower half. A load and its wait are one piece of assembly,
//! so that nothing reads, moves or copies the registers in between.

use kernel_abi::DType;
use kernel_ir::device::{Address, FragId, Matrix, Place, ProductStart, TensorOp, TensorProduct};
use kernel_ir::kernel::{TENSOR_WARPS, TensorAtom};
use melior::dialect::arith::CmpiPredicate;
use melior::ir::Value;

use super::{Lowered, Lowering, refuse};
use crate::mnemonic;

/// Bits from the number of a warp to the row that it starts from, in an address.
const ROWS_OF_WARP: i64 = 16 + 5;

/// Columns of the widest load.
const WIDEST_LOAD: u32 = 128;

impl<'c, 'm> Lowering<'c, 'm, '_> {
    pub(super) fn tensor(&mut self, op: &TensorOp) -> Lowered<()> {
        let build = self.build;
        match op {
            TensorOp::Allocate { columns, word } => {
                let region = self.region(&Place::Shared { base: *word, dtype: DType::U32 })?;
                let word = self.address_of(&region, Address { offset: None, constant: 0 })?;
                let columns = *columns;
                self.by_first_warp(|s| {
                    s.build.effect(&mnemonic::allocate_tensor(columns), &[word]);
                    s.build.effect(&mnemonic::allocate_no_more(), &[]);
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
            TensorOp::Free { columns } => {
                let (base, columns) = (self.tensor_base()?, *columns);
                self.by_first_warp(|s| {
                    s.build.effect(&mnemonic::free_tensor(columns), &[base]);
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
            TensorOp::Product(product) => self.by_first_thread(|s| s.tensor_product(product)),
            TensorOp::Load { dst, column } => self.tensor_load(*dst, *column),
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

    fn tensor_load(&mut self, dst: FragId, column: Address) -> Lowered<()> {
        let Some(count) = self.kernel.frags.get(dst).map(|frag| frag.len) else {
            return refuse(format!("{dst} is not declared"));
        };
        let b = self.build;
        let i32 = b.types.i32;
        let warp = b.shrui(self.thread_index(), b.int(i32, 5));
        let quarter = b.andi(warp, b.int(i32, i64::from(TENSOR_WARPS) - 1));
        let rows = b.shli(quarter, b.int(i32, ROWS_OF_WARP));
        let first = b.addi(self.tensor_column(column)?, rows);
        let mut sizes = Vec::new();
        let mut left = count;
        while left > 0 {
            let size = (1 << left.ilog2()).min(WIDEST_LOAD);
            sizes.push(size);
            left -= size;
        }
        let mut addresses = Vec::new();
        let mut at = 0;
        for size in &sizes {
            addresses.push(if at == 0 { first } else { b.addi(first, b.int(i32, at)) });
            at += i64::from(*size);
        }
        let asm = mnemonic::tensor_load(&sizes);
        let values = b.asm_values(&asm, &addresses, b.types.f32, count);
        self.define(dst, values)
    }

    fn tensor_product(&self, product: &TensorProduct) -> Lowered<()> {
        let b = &self.build;
        let format = match product.dtype {
            DType::F16 => 0,
            DType::Bf16 => 1,
            other => return refuse(format!("{other} is no operand of a product in tensor memory")),
        };
        // Sums of f32, both operands with k contiguous.
        let instruction = 1 << 4
            | format << 7
            | format << 10
            | i64::from(product.n / 8) << 17
            | i64::from(TensorAtom::ROWS / 16) << 24;
        let add = match product.start {
            ProductStart::Sums => b.int(b.types.i1, 1),
            ProductStart::Zero => b.int(b.types.i1, 0),
            ProductStart::When((frag, i)) => self.element(frag, i)?,
        };
        let operands = [
            self.tensor_column(product.column)?,
            self.tensor_descriptor(&product.a, product.dtype)?,
            self.tensor_descriptor(&product.b, product.dtype)?,
            b.int(b.types.i32, instruction),
            add,
        ];
        b.effect(&mnemonic::tensor_product(), &operands);
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

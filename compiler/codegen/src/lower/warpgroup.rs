//! Products of a warpgroup: descriptors of their operands, and sums that stay in their registers.
//!
//! Whatever a product may still change goes through each fence, product and wait as operand and result, so that
//! nothing else moves, copies or reads it in between.

use kernel_abi::DType;
use kernel_ir::device::{
    Factor, Matrix, Place, ProductStart, SlotId, WarpgroupOp, WarpgroupProduct,
};
use kernel_ir::kernel::multiplies;
use melior::ir::Value;

use super::{Lowered, Lowering, refuse};
use crate::mnemonic::{self, Asm};

/// Alignment of an f32 on the stack.
const SUM_BYTES: u32 = 4;

impl<'c, 'm> Lowering<'c, 'm, '_> {
    /// Lowers an operation of the warpgroup.
    pub(super) fn warpgroup(&self, op: &WarpgroupOp) -> Lowered<()> {
        let build = &self.build;
        match op {
            WarpgroupOp::ProxyFence => build.effect(&mnemonic::proxy_fence(), &[]),
            WarpgroupOp::Fence { sums } => self.through(*sums, mnemonic::wgmma_fence)?,
            WarpgroupOp::Mma(product) => self.product(product)?,
            WarpgroupOp::Commit => build.effect(&mnemonic::wgmma_commit(), &[]),
            WarpgroupOp::Wait { pending, sums } => {
                self.through(*sums, |count| mnemonic::wgmma_wait(*pending, count))?;
            }
        }
        Ok(())
    }

    /// All sums of a slot go through an instruction.
    fn through(&self, slot: SlotId, asm: impl Fn(u32) -> Asm) -> Lowered<()> {
        let len = self.kernel.slots.get(slot).map_or(0, |slot| slot.len);
        let registers: Vec<u32> = (0..len).collect();
        let before = self.sums(slot, &registers)?;
        let after = self.build.asm_values(&asm(len), &before, self.build.types.f32, len);
        self.set_sums(slot, &registers, &after)
    }

    fn sums(&self, slot: SlotId, registers: &[u32]) -> Lowered<Vec<Value<'c, 'm>>> {
        let of =
            |&i: &u32| Ok(self.build.load(self.build.types.f32, self.cell(slot, i)?, SUM_BYTES));
        registers.iter().map(of).collect()
    }

    fn set_sums(&self, slot: SlotId, registers: &[u32], to: &[Value<'c, 'm>]) -> Lowered<()> {
        for (&i, &value) in registers.iter().zip(to) {
            self.build.store(value, self.cell(slot, i)?, SUM_BYTES);
        }
        Ok(())
    }

    fn product(&self, product: &WarpgroupProduct) -> Lowered<()> {
        let build = &self.build;
        if !multiplies(product.types) {
            return refuse("operands that a warpgroup does not multiply");
        }
        let count = product.n / 2;
        if product.sums.len() != count as usize || !product.n.is_multiple_of(8) {
            return refuse("a product of a warpgroup with another number of sums");
        }
        let mut operands = self.sums(product.slot, &product.sums)?;
        let [left, right] = product.types;
        let registers = match &product.a {
            Factor::Shared(a) => {
                operands.push(self.descriptor(a, left)?);
                false
            }
            Factor::Registers { frag, elements } => {
                let mut words = Vec::with_capacity(4);
                for pair in elements.chunks(2) {
                    let [low, high] = pair else { return refuse("a left operand takes pairs") };
                    let (low, high) = (self.element(*frag, *low)?, self.element(*frag, *high)?);
                    words.push(self.pair(left, low, high));
                }
                let left = mnemonic::wgmma_left();
                operands.extend(build.asm_values(&left, &words, build.types.i32, 4));
                true
            }
        };
        operands.push(self.descriptor(&product.b, right)?);
        operands.push(match product.start {
            ProductStart::Sums => build.int(build.types.i1, 1),
            ProductStart::Zero => build.int(build.types.i1, 0),
            ProductStart::When((frag, i)) => self.element(frag, i)?,
        });
        let asm = mnemonic::wgmma(
            product.n,
            product.types,
            mnemonic::WgmmaForm { registers, across: product.b.across.is_some() },
        );
        let sums = build.asm_values(&asm, &operands, build.types.f32, count);
        self.set_sums(product.slot, &product.sums, &sums)
    }

    /// The descriptor of a matrix: its address, the bytes from 8 rows to the next 8, and the swizzle. Along a line
    /// the address alone moves on.
    fn descriptor(&self, matrix: &Matrix, dtype: DType) -> Lowered<Value<'c, 'm>> {
        let mode = match matrix.line {
            128 => 1,
            64 => 2,
            32 => 3,
            other => return refuse(format!("no swizzle has lines of {other} bytes")),
        };
        self.descriptor_of(matrix, dtype, mode << 62)
    }

    /// The same with further fields.
    pub(super) fn descriptor_of(
        &self,
        matrix: &Matrix,
        dtype: DType,
        fields: i64,
    ) -> Lowered<Value<'c, 'm>> {
        let b = &self.build;
        let size = i64::from(dtype.bits() / 8);
        let along = matrix.at.constant.rem_euclid(i64::from(matrix.line) / size);
        let mut start = matrix.at;
        start.constant -= along;
        let region = self.region(&Place::Shared { base: matrix.base, dtype })?;
        let address = b.address_number(self.address_of(&region, start)?);
        let constant = |value: i64| b.int(b.types.i64, value);
        let field = b.shrui(b.andi(address, constant(0x3_ffff)), constant(4));
        let eight_rows = i64::from(matrix.line) * 8 / 16;
        // Where lines run along n, the columns beyond a line lie so far behind.
        let beyond = matrix.across.map_or(1, |block| i64::from(block) / 16);
        let fixed = fields | (eight_rows << 32) | (beyond << 16);
        let first = b.ori(field, constant(fixed));
        Ok(b.addi(first, constant(along * size / 16)))
    }
}

//! Products of small matrices on the tensor core: one `mma.sync` an atom.

use kernel_abi::DType;
use kernel_ir::device::{FragId, MatrixLoad, MmaAtom, Place};
use melior::ir::Value;

use super::{Lowered, Lowering, refuse};
use crate::mnemonic::{self, ByteFloat, Space};

impl<'c, 'm> Lowering<'c, 'm, '_> {
    /// The sums after all atoms.
    pub(super) fn mma(
        &self,
        [a, b]: [FragId; 2],
        acc: FragId,
        atoms: &[MmaAtom],
    ) -> Lowered<Vec<Value<'c, 'm>>> {
        let build = &self.build;
        let dtype = self.frag(a)?.dtype;
        if self.frag(b)?.dtype != dtype || !matches!(dtype, DType::Bf16 | DType::F16 | DType::E4m3)
        {
            return refuse(format!("{dtype} is no operand of a matrix product"));
        }
        let asm = mnemonic::mma(dtype == DType::Bf16);
        let mut sums =
            (0..self.frag(acc)?.len).map(|i| self.element(acc, i)).collect::<Lowered<Vec<_>>>()?;
        let zero = build.float(build.types.f32, 0.0);
        for atom in atoms {
            let mut operands = Vec::with_capacity(10);
            for pair in atom.a.chunks(2) {
                operands.push(match pair {
                    [Some(low), Some(high)] => {
                        self.pair(dtype, self.element(a, *low)?, self.element(a, *high)?)
                    }
                    _ => build.int(build.types.i32, 0),
                });
            }
            for pair in atom.b.chunks(2) {
                let [low, high] = pair else { return refuse("an atom takes pairs") };
                operands.push(self.pair(dtype, self.element(b, *low)?, self.element(b, *high)?));
            }
            for place in &atom.c {
                let sum = place.map(|i| sums.get(i as usize).copied());
                operands.push(match sum {
                    None => zero,
                    Some(Some(sum)) => sum,
                    Some(None) => return refuse("an atom adds to a sum that is not there"),
                });
            }
            let results = build.asm_values(&asm, &operands, build.types.f32, 4);
            for (place, result) in atom.c.iter().zip(results) {
                if let Some(sum) = place.and_then(|i| sums.get_mut(i as usize)) {
                    *sum = result;
                }
            }
        }
        Ok(sums)
    }

    /// The elements of matrices of 8 by 8, two of each in a register.
    pub(super) fn load_matrices(
        &self,
        dst: FragId,
        place: &Place,
        loads: &[MatrixLoad],
    ) -> Lowered<Vec<Value<'c, 'm>>> {
        let b = &self.build;
        let region = self.region(place)?;
        let dtype = self.frag(dst)?.dtype;
        if region.space != Space::Shared || region.dtype != dtype || dtype.bits() != 16 {
            return refuse("matrices are of 16 bits, in shared memory of the CTA");
        }
        let element = self.element_type(dtype)?;
        let mut elements = Vec::new();
        for load in loads {
            if !matches!(load.count, 1 | 2 | 4) || load.first as usize != elements.len() {
                return refuse("matrices that do not follow each other");
            }
            let address = self.address_of(&region, load.at)?;
            let asm = mnemonic::load_matrices(load.count);
            for word in b.asm_values(&asm, &[address], b.types.i32, load.count) {
                let high = b.shrui(word, b.int(b.types.i32, 16));
                for half in [word, high] {
                    elements.push(b.bitcast(element, b.trunci(b.types.i16, half)));
                }
            }
        }
        Ok(elements)
    }

    /// Writes matrices of 8 by 8, two elements of each in a register.
    pub(super) fn store_matrices(
        &self,
        src: FragId,
        place: &Place,
        stores: &[MatrixLoad],
    ) -> Lowered<()> {
        let b = &self.build;
        let region = self.region(place)?;
        let dtype = self.frag(src)?.dtype;
        if region.space != Space::Shared || region.dtype != dtype || dtype.bits() != 16 {
            return refuse("matrices are of 16 bits, in shared memory of the CTA");
        }
        for store in stores {
            let mut operands = vec![self.address_of(&region, store.at)?];
            for matrix in 0..store.count {
                let first = store.first + 2 * matrix;
                let (low, high) = (self.element(src, first)?, self.element(src, first + 1)?);
                operands.push(self.pair(dtype, low, high));
            }
            b.effect(&mnemonic::store_matrices(store.count), &operands);
        }
        Ok(())
    }

    /// Two elements in one register of 32 bits, the first low; those of 8 bits as f16. Shifts, not a vector: LLVM
    /// sees that they undo those of the load.
    pub(super) fn pair(
        &self,
        dtype: DType,
        low: Value<'c, 'm>,
        high: Value<'c, 'm>,
    ) -> Value<'c, 'm> {
        let b = &self.build;
        if dtype == DType::E4m3 {
            let half = |x| b.extui(b.types.i16, x);
            let codes = b.ori(half(low), b.shli(half(high), b.int(b.types.i16, 8)));
            let wide = mnemonic::widen_bytes(ByteFloat::E4m3);
            return b.asm_values(&wide, &[codes], b.types.i32, 1)[0];
        }
        let word = |x| b.extui(b.types.i32, b.bitcast(b.types.i16, x));
        b.ori(word(low), b.shli(word(high), b.int(b.types.i32, 16)))
    }
}

//! The tensor core: each warp multiplies its small matrices.

use std::rc::Rc;

use kernel_abi::numeric;
use kernel_ir::device::{Address, FragId, LocId, MatrixLoad, MmaAtom, Place, Vector};
use kernel_ir::distribution::LANES;
use kernel_ir::ops::Elements;
use kernel_ir::ops::mma::{COLUMNS, DEPTH, ROWS, floats, step};

use super::Machine;
use super::registers::{Registers, some_if_any};
use crate::error::EmuError;

/// Rows of a matrix, and elements of a row.
const SIDE: usize = 8;

impl Machine<'_> {
    /// Each lane gives the place of a row, and gets two elements of each matrix.
    pub(super) fn load_matrices(
        &mut self,
        dst: FragId,
        place: &Place,
        loads: &[MatrixLoad],
        loc: LocId,
    ) -> Result<(), EmuError> {
        self.uniform_only("a load of matrices", loc)?;
        let (Place::Shared { base, dtype }, lanes) = (place, LANES as usize) else {
            unreachable!("matrices lie in shared memory")
        };
        let len = self.kernel.frags[dst].len as usize;
        let mut codes = vec![0; len * self.threads];
        for load in loads {
            let Address { offset, constant } = load.at;
            let row = Vector { first: 0, len: SIDE as u32, offset, constant, predicate: None };
            for warp in (0..self.threads).step_by(lanes) {
                for supplier in 0..load.count as usize * SIDE {
                    let t = warp + supplier;
                    let start = self.start(&row, t, loc)?;
                    let at = self.shared_byte(*base, *dtype, start, &row, t, loc)?;
                    let mut bytes = vec![0; numeric::bytes_of(*dtype, SIDE)];
                    let by = self.by(t, self.span(loc));
                    self.member.own().read(at, &mut bytes, by)?;
                    let (matrix, g) = (supplier / SIDE, supplier % SIDE);
                    for column in 0..SIDE {
                        let code = numeric::read_element(*dtype, &bytes, column);
                        let element = load.first as usize + 2 * matrix + column % 2;
                        let lane = 4 * g + column / 2;
                        codes[element * self.threads + warp + lane] =
                            code.expect("a row has eight elements");
                    }
                }
            }
        }
        self.set(dst, Registers::defined(Elements::from_codes(*dtype, codes)));
        Ok(())
    }

    /// Each lane gives the place of a row, and two elements of each matrix.
    pub(super) fn store_matrices(
        &mut self,
        src: FragId,
        place: &Place,
        stores: &[MatrixLoad],
        loc: LocId,
    ) -> Result<(), EmuError> {
        self.uniform_only("a store of matrices", loc)?;
        let (Place::Shared { base, dtype }, lanes) = (place, LANES as usize) else {
            unreachable!("matrices lie in shared memory")
        };
        for store in stores {
            let Address { offset, constant } = store.at;
            let row = Vector { first: 0, len: SIDE as u32, offset, constant, predicate: None };
            for warp in (0..self.threads).step_by(lanes) {
                for supplier in 0..store.count as usize * SIDE {
                    let t = warp + supplier;
                    let start = self.start(&row, t, loc)?;
                    let at = self.shared_byte(*base, *dtype, start, &row, t, loc)?;
                    let (matrix, g) = (supplier / SIDE, supplier % SIDE);
                    let mut bytes = Vec::with_capacity(2 * SIDE);
                    for column in 0..SIDE {
                        let element = store.first as usize + 2 * matrix + column % 2;
                        let lane = warp + 4 * g + column / 2;
                        let code = self.code(src, element as u32, lane, loc)?;
                        bytes.extend((code as u16).to_le_bytes());
                    }
                    let by = self.by(t, self.span(loc));
                    self.member.own().write(at, &bytes, by)?;
                }
            }
        }
        Ok(())
    }

    /// `dst` becomes `acc` with the products of all atoms added, atoms in order.
    pub(super) fn mma(
        &mut self,
        dst: FragId,
        operands: [FragId; 2],
        acc: FragId,
        atoms: &[MmaAtom],
        loc: LocId,
    ) -> Result<(), EmuError> {
        self.uniform_only("a matrix product", loc)?;
        let threads = self.threads;
        let [left, right] = operands.map(|id| self.frag(id));
        let before = self.frag(acc);
        let (x, y) = (floats(&left.elements), floats(&right.elements));
        let mut sums = before.elements.to_f32();
        let gaps = |r: &Registers, i: usize| r.undefined.as_ref().is_some_and(|u| u[i]);
        let mut undefined: Vec<bool> = (0..sums.len()).map(|i| gaps(&before, i)).collect();
        for warp in 0..threads / LANES as usize {
            let at = |element: u32, lane: usize| {
                element as usize * threads + warp * LANES as usize + lane
            };
            for atom in atoms {
                let mut a = [[0.0f32; DEPTH]; ROWS];
                let mut b = [[0.0f32; DEPTH]; COLUMNS];
                let mut c = [[0.0f32; COLUMNS]; ROWS];
                let mut missing = false;
                for lane in 0..LANES as usize {
                    let (g, t) = (lane / 4, lane % 4);
                    for (i, element) in atom.a.iter().enumerate() {
                        let Some(element) = element else { continue };
                        let k = 2 * t + i % 2 + 8 * (i / 4);
                        a[g + 8 * (i / 2 % 2)][k] = x[at(*element, lane)];
                        missing |= gaps(&left, at(*element, lane));
                    }
                    for (i, element) in atom.b.iter().enumerate() {
                        let k = 2 * t + i % 2 + 8 * (i / 2);
                        b[g][k] = y[at(*element, lane)];
                        missing |= gaps(&right, at(*element, lane));
                    }
                    for (i, element) in atom.c.iter().enumerate() {
                        let Some(element) = element else { continue };
                        c[g + 8 * (i / 2)][2 * t + i % 2] = sums[at(*element, lane)];
                    }
                }
                for (a, c) in a.iter().zip(&mut c) {
                    for (b, c) in b.iter().zip(c) {
                        *c = step(*c, a, b);
                    }
                }
                for lane in 0..LANES as usize {
                    let (g, t) = (lane / 4, lane % 4);
                    for (i, element) in atom.c.iter().enumerate() {
                        let Some(element) = element else { continue };
                        sums[at(*element, lane)] = c[g + 8 * (i / 2)][2 * t + i % 2];
                        undefined[at(*element, lane)] |= missing;
                    }
                }
                let products = ROWS * COLUMNS * DEPTH;
                self.flops += 2 * products as u64;
            }
        }
        let undefined = some_if_any(undefined);
        let elements = Elements::from_f32(&sums);
        self.frags[dst] = Some(Rc::new(Registers { elements, undefined }));
        Ok(())
    }
}

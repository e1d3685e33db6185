//! Contractions on the tensor core, `via mma_sync`: letters as axes of a matrix product, and the order of sums.
//!
//! The atom is m16n8k16: a tile of 16 by 8 sums gains 16 products each. Letters of both operands and the
//! result are batch, letters of one operand and the result are m (left) or n (right), the rest is k. The
//! positions of k are cut into groups of 16, one an atom; which position sits in which place of the atom
//! follows from the spread of the fastest letter of k, and is the same for both operands. For each output the
//! emulator adds the 16 products of an atom, place by place, to the running value in f64, and rounds the sum
//! once to f32; groups follow in ascending order. Products of f16 and bf16 are exact; e4m3 goes through f16, which
//! holds each of its values.

use std::sync::Arc;

use kernel_abi::DType;
use kernel_abi::numeric::canonical;

use super::contract::Operand;
use super::convert;
use super::elements::Elements;
use crate::distribution::{AxisMap, Digit, Distribution};
use crate::kernel::ContractSpec;

/// Rows of the atom.
pub const ROWS: usize = 16;
/// Columns of the atom.
pub const COLUMNS: usize = 8;
/// Products of one output in one atom.
pub const DEPTH: usize = 16;

/// The lanes that k runs along.
pub const DEPTH_LANES: Digit = Digit { extent: 4, stride: 1 };

/// True where elements are spread so that `ldmatrix` and `stmatrix` may move them: rows of matrices, each by another lane than
/// those that hold its elements.
pub fn may_be_matrices(dtype: DType, spread: &Distribution) -> bool {
    dtype.bits() == 16 && spread.axes.iter().any(is_pairs)
}

/// An axis of pairs that lie along the lanes of k.
pub fn is_pairs(map: &AxisMap) -> bool {
    map.lanes == DEPTH_LANES && map.vec == 2
}

/// What each letter of a contraction is to the matrix product.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Roles {
    /// In both operands and the result, in the order of the result.
    pub batch: Vec<Arc<str>>,
    /// In the left operand and the result, in the order of the left operand.
    pub m: Vec<Arc<str>>,
    /// In the right operand and the result, in the order of the right operand.
    pub n: Vec<Arc<str>>,
    /// Contracted, in the order of the left operand.
    pub k: Vec<Arc<str>>,
}

impl Roles {
    /// The roles; or the letter that has none.
    pub fn of(spec: &ContractSpec) -> Result<Roles, Arc<str>> {
        let mut roles = Roles::default();
        for letter in &spec.a {
            match (spec.b.contains(letter), spec.out.contains(letter)) {
                (true, true) => {}
                (true, false) => roles.k.push(letter.clone()),
                (false, true) => roles.m.push(letter.clone()),
                (false, false) => return Err(letter.clone()),
            }
        }
        for letter in &spec.b {
            match (spec.a.contains(letter), spec.out.contains(letter)) {
                (false, true) => roles.n.push(letter.clone()),
                (false, false) => return Err(letter.clone()),
                (true, _) => {}
            }
        }
        let in_both = |l: &&Arc<str>| spec.a.contains(l) && spec.b.contains(l);
        roles.batch = spec.out.iter().filter(in_both).cloned().collect();
        Ok(roles)
    }
}

/// The maps of the letters of k, and which of them is fastest: the one that runs along lanes, else the last.
#[derive(Debug, Clone)]
pub struct Depth {
    maps: Vec<AxisMap>,
    fast: usize,
}

impl Depth {
    /// Of the maps of the letters in order; nothing where they are not an atom's.
    pub fn of(maps: &[AxisMap]) -> Option<Depth> {
        let fast =
            maps.iter().rposition(|map| map.lanes.extent > 1).or(maps.len().checked_sub(1))?;
        let mut maps = maps.to_vec();
        if maps[fast].lanes.extent == 1 {
            // Not spread yet: pairs of neighbours along the lanes.
            let extent = maps[fast].extent();
            maps[fast] = natural(extent)?;
        }
        let is_atom = maps.iter().enumerate().all(|(i, map)| {
            map.warps.extent == 1
                && map.inner == 1
                && if i == fast {
                    map.lanes == DEPTH_LANES
                        && map.vec.is_multiple_of(2)
                        && map.registers().is_multiple_of(4)
                } else {
                    map.lanes.extent == 1
                }
        });
        is_atom.then_some(Depth { maps, fast })
    }

    /// Registers of one thread along the fastest letter that one instruction may bring: a multiple of 4.
    pub fn chunk(&self) -> u32 {
        let vec = self.maps[self.fast].vec;
        if vec.is_multiple_of(4) { vec } else { 4 }
    }

    /// Chunks of axis-local positions, one entry a letter: four positions are one atom.
    pub fn chunks(&self) -> Vec<Vec<Vec<u32>>> {
        let mut counts: Vec<u32> = self.maps.iter().map(|map| map.registers()).collect();
        let inner = std::mem::replace(&mut counts[self.fast], 1);
        let mut chunks = Vec::new();
        for outer in combinations(&counts) {
            for start in (0..inner).step_by(self.chunk() as usize) {
                let locals = (start..(start + self.chunk()).min(inner)).map(|local| {
                    let mut one = outer.clone();
                    one[self.fast] = local;
                    one
                });
                chunks.push(locals.collect());
            }
        }
        chunks
    }

    /// Positions along each letter of the 16 places of every atom, atoms in order.
    fn places(&self) -> Vec<Vec<u32>> {
        let mut places = Vec::new();
        for chunk in self.chunks() {
            for atom in chunk.chunks(4) {
                for half in 0..2 {
                    for lane in 0..DEPTH_LANES.extent {
                        for element in 0..2 {
                            let locals = &atom[half * 2 + element];
                            let of =
                                |(map, &local): (&AxisMap, &u32)| map.coordinate(0, lane, local);
                            places.push(self.maps.iter().zip(locals).map(of).collect());
                        }
                    }
                }
            }
        }
        places
    }
}

/// k along four lanes in pairs of neighbours.
pub fn natural(extent: u32) -> Option<AxisMap> {
    let rest = extent / (2 * DEPTH_LANES.extent);
    (extent.is_multiple_of(DEPTH as u32) && extent > 0).then_some(AxisMap {
        vec: 2,
        lanes: DEPTH_LANES,
        inner: 1,
        warps: Digit::NONE,
        rest,
    })
}

/// All coordinates below the counts, the last fastest.
pub fn combinations(counts: &[u32]) -> Vec<Vec<u32>> {
    let mut all = vec![Vec::new()];
    for &count in counts {
        all = all
            .into_iter()
            .flat_map(|head: Vec<u32>| {
                (0..count).map(move |i| {
                    let mut one = head.clone();
                    one.push(i);
                    one
                })
            })
            .collect();
    }
    all
}

/// One output of one atom: the running value and 16 products.
pub fn step(running: f32, a: &[f32; DEPTH], b: &[f32; DEPTH]) -> f32 {
    let products = a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b));
    canonical(products.fold(f64::from(running), |sum, product| sum + product) as f32)
}

/// Replaces `out` by the contraction; returns the number of products, or nothing where extents or spreads are
/// not an atom's.
pub fn contract(
    spec: &ContractSpec,
    a: Operand<'_>,
    b: Operand<'_>,
    acc: Option<&Elements>,
    out: &mut Elements,
) -> Option<u64> {
    let roles = Roles::of(spec).ok()?;
    let left = Side::of(&spec.a, a);
    let right = Side::of(&spec.b, b);
    let maps: Option<Vec<AxisMap>> =
        roles.k.iter().map(|l| left.axis(l).map(|axis| a.maps[axis])).collect();
    let depth = Depth::of(&maps?)?;
    let places = depth.places();
    let extents = |letters: &[Arc<str>]| -> Option<Vec<u32>> {
        letters.iter().map(|l| left.extent(l).or(right.extent(l))).collect()
    };
    let shape = extents(&spec.out)?;
    let result = Side::shaped(&spec.out, &shape);
    let offsets = |letters: &[Arc<str>], coordinates: &[Vec<u32>]| -> Vec<[usize; 3]> {
        let of = |c: &Vec<u32>| [&left, &right, &result].map(|side| side.offset(letters, c));
        coordinates.iter().map(of).collect()
    };
    let batch = offsets(&roles.batch, &combinations(&extents(&roles.batch)?));
    let rows = offsets(&roles.m, &combinations(&extents(&roles.m)?));
    let columns = offsets(&roles.n, &combinations(&extents(&roles.n)?));
    let ks = offsets(&roles.k, &places);
    let (x, y) = (floats(a.elements), floats(b.elements));
    let len: usize = shape.iter().map(|&e| e as usize).product();
    let mut sums = acc.map_or_else(|| vec![0.0; len], Elements::to_f32);
    let mut wide = vec![0.0f64; columns.len()];
    let mut panel = vec![0.0f64; ks.len() * columns.len()];
    for [a0, b0, c0] in batch {
        for (k, row) in ks.iter().zip(panel.chunks_mut(columns.len().max(1))) {
            for (column, place) in columns.iter().zip(row) {
                *place = f64::from(y[b0 + k[1] + column[1]]);
            }
        }
        for row in &rows {
            let place = |column: &[usize; 3]| c0 + row[2] + column[2];
            let mut running: Vec<f32> = columns.iter().map(|c| sums[place(c)]).collect();
            for (atom, lines) in ks.chunks(DEPTH).zip(panel.chunks(DEPTH * columns.len().max(1))) {
                for (wide, &running) in wide.iter_mut().zip(&running) {
                    *wide = f64::from(running);
                }
                for (k, line) in atom.iter().zip(lines.chunks(columns.len().max(1))) {
                    let factor = f64::from(x[a0 + row[0] + k[0]]);
                    for (wide, &other) in wide.iter_mut().zip(line) {
                        *wide += factor * other;
                    }
                }
                for (running, &wide) in running.iter_mut().zip(&wide) {
                    *running = canonical(wide as f32);
                }
            }
            for (column, &value) in columns.iter().zip(&running) {
                sums[place(column)] = value;
            }
        }
    }
    *out = Elements::from_f32(&sums);
    Some(len as u64 * ks.len() as u64)
}

/// Elements as f32.
pub fn floats(x: &Elements) -> Vec<f32> {
    let mut wide = Elements::new(DType::F32);
    convert::elements(x, DType::F32, &mut wide);
    wide.to_f32()
}

/// The letters of a tile with extents and strides.
struct Side {
    letters: Vec<(Arc<str>, u32, usize)>,
}

impl Side {
    fn of(letters: &[Arc<str>], operand: Operand<'_>) -> Side {
        Side::shaped(letters, operand.shape)
    }

    fn shaped(letters: &[Arc<str>], shape: &[u32]) -> Side {
        let mut stride = 1usize;
        let mut all = Vec::new();
        for (letter, &extent) in letters.iter().zip(shape).rev() {
            all.push((letter.clone(), extent, stride));
            stride *= extent as usize;
        }
        all.reverse();
        Side { letters: all }
    }

    fn axis(&self, letter: &Arc<str>) -> Option<usize> {
        self.letters.iter().position(|(own, ..)| own == letter)
    }

    fn extent(&self, letter: &Arc<str>) -> Option<u32> {
        self.axis(letter).map(|axis| self.letters[axis].1)
    }

    /// Elements from the start, by the letters that the tile has.
    fn offset(&self, letters: &[Arc<str>], coordinates: &[u32]) -> usize {
        let of = |(letter, &c): (&Arc<str>, &u32)| {
            self.axis(letter).map_or(0, |axis| self.letters[axis].2 * c as usize)
        };
        letters.iter().zip(coordinates).map(of).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letters(text: &str) -> Vec<Arc<str>> {
        text.split_whitespace().map(Arc::from).collect()
    }

    #[test]
    fn letters_have_roles() {
        let spec = ContractSpec { a: letters("c w k"), b: letters("m w k"), out: letters("w m c") };
        let roles = Roles::of(&spec).unwrap();
        assert_eq!((roles.batch, roles.m), (letters("w"), letters("c")));
        assert_eq!((roles.n, roles.k), (letters("m"), letters("k")));
        let lost = ContractSpec { a: letters("a k"), b: letters("k n"), out: letters("n") };
        assert_eq!(Roles::of(&lost).unwrap_err(), "a".into());
    }

    #[test]
    fn every_position_of_k_has_one_place() {
        for vec in [2, 4, 8] {
            let map =
                AxisMap { vec, lanes: DEPTH_LANES, inner: 1, warps: Digit::NONE, rest: 16 / vec };
            let depth = Depth::of(&[AxisMap::local(3), map]).unwrap();
            let mut places = depth.places();
            assert_eq!(places.len(), 3 * 64);
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len(), 3 * 64);
        }
        let odd = AxisMap { vec: 1, lanes: DEPTH_LANES, inner: 1, warps: Digit::NONE, rest: 8 };
        assert!(Depth::of(&[odd]).is_none() && Depth::of(&[AxisMap::local(24)]).is_none());
    }

    #[test]
    fn an_atom_rounds_once() {
        let mut a = [0.0; DEPTH];
        (a[0], a[1], a[2]) = (16_777_216.0, 1.0, 1.0);
        assert_eq!(step(0.0, &a, &[1.0; DEPTH]), 16_777_218.0);
        assert_eq!(step(f32::NAN, &a, &[1.0; DEPTH]).to_bits(), 0x7fff_ffff);
    }
}
